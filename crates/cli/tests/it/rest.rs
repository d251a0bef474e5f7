//! The REST routes as people and their programs use them, against the server's own document.

#[allow(dead_code, reason = "the tests with other people's programs use the rest")]
pub(crate) mod office;
mod reading;

use serde_json::{Value, json};

use crate::bench::Bench;
use office::{Office, ROLES, Reply, Who, until};

const OPERATOR: Who<'_> = Who::Role("operator");
const APPROVER: Who<'_> = Who::Role("approver");
const VIEWER: Who<'_> = Who::Role("viewer");
const AGENT: Who<'_> = Who::Role("agent");

fn touch(name: &str) -> Value {
    json!({"file": "touch", "args": [name]})
}

/// The question that waits, once there is one.
fn question(office: &Office) -> Value {
    until(|| office.get(VIEWER, "/approvals").ok()["items"].get(0).cloned())
}

fn id(question: &Value) -> &str {
    question["requestId"].as_str().unwrap()
}

/// Runs a command in the background, as somebody who waits for its answer.
fn later<'a>(
    scope: &'a std::thread::Scope<'a, '_>,
    office: &'a Office,
    who: Who<'a>,
    body: Value,
) -> std::thread::ScopedJoinHandle<'a, Reply> {
    scope.spawn(move || office.post(who, "/commands", body))
}

#[test]
fn a_question_is_read_decided_once_and_told_to_whoever_comes_late() {
    let bench = Bench::new();
    let office = Office::open(&bench);
    std::thread::scope(|scope| {
        let call = later(scope, &office, AGENT, touch("made"));
        let asked = question(&office);
        assert_eq!(
            (&asked["status"], &asked["type"]),
            (&json!("pending"), &json!("exec-command"))
        );
        let shown = office.get(APPROVER, &format!("/approvals/{}", id(&asked))).ok();
        assert_eq!(shown["details"]["command"], "touch made");
        let path = format!("/approvals/{}/decision", id(&asked));
        office
            .post(VIEWER, &path, json!({"decision": "approve"}))
            .refused(403, "FORBIDDEN");
        office
            .post(AGENT, &path, json!({"decision": "approve"}))
            .refused(403, "FORBIDDEN");
        office
            .post(Who::Nobody, &path, json!({"decision": "approve"}))
            .refused(403, "FORBIDDEN");
        office
            .post(APPROVER, &path, json!({"decision": "maybe"}))
            .refused(400, "INVALID_ARGUMENTS");
        office
            .post(APPROVER, &path, json!({"decision": "deny", "extra": 1}))
            .refused(400, "INVALID_ARGUMENTS");
        let decided = office
            .post(APPROVER, &path, json!({"decision": "approve", "reason": "fine"}))
            .ok();
        assert_eq!(
            (&decided["decision"], &decided["decided_by"]),
            (&json!("allow"), &json!("approver"))
        );
        let late = office
            .post(OPERATOR, &path, json!({"decision": "deny", "reason": "no"}))
            .ok();
        assert_eq!(
            (&late["decision"], &late["decisionReason"]),
            (&json!("allow"), &json!("fine"))
        );
        let result = call.join().unwrap().ok();
        assert_eq!(result["status"], "ok");
    });
    assert!(bench.work().join("made").exists());
    assert_eq!(office.get(VIEWER, "/approvals").ok()["items"], json!([]));
    let all = office.get(VIEWER, "/approvals?state=all&automatic=false").ok();
    assert_eq!(all["items"][0]["approval_state"], "applied");
    assert_eq!(
        office.get(VIEWER, "/approvals?state=denied,expired").ok()["items"],
        json!([])
    );
    office.get(VIEWER, "/approvals/nothing").refused(404, "NOT_FOUND");
    office.close();
    bench.prove();
}

#[test]
fn what_a_revoked_token_asked_or_began_is_neither_approved_nor_goes_on() {
    let bench = Bench::new();
    let office = Office::open(&bench);
    let revoke = |name: &str| {
        let revoked = bench.command().args(["tokens", "revoke", name]).output().unwrap();
        assert!(revoked.status.success(), "{revoked:?}");
    };
    let decide = |asked: &Value| {
        let path = format!("/approvals/{}/decision", id(asked));
        office.post(APPROVER, &path, json!({"decision": "approve"})).ok()
    };
    // One that waits for a person, and one that a person let run.
    let (asks, runs) = (
        office::token(&bench, "agent", "asks"),
        office::token(&bench, "agent", "runs"),
    );
    let (office, runs, asks) = (&office, runs.as_str(), asks.as_str());
    std::thread::scope(|scope| {
        let sleep = json!({"file": "sleep", "args": ["600"], "timeout_ms": 600_000});
        let running = scope.spawn(move || office.post(Who::Token(runs), "/commands", sleep));
        decide(&question(office));
        let started = "SELECT count(*) FROM flow_events WHERE event_type = 'command.dispatched'";
        until(|| (bench.count(started) == 1).then_some(()));
        let waiting = scope.spawn(move || office.post(Who::Token(asks), "/commands", touch("made")));
        let asked = question(office);
        revoke("asks");
        revoke("runs");
        let ended = |call: std::thread::ScopedJoinHandle<'_, Reply>| call.join().unwrap().json()["error_code"].clone();
        assert_eq!(
            (ended(running), ended(waiting)),
            (json!("CANCELLED"), json!("CANCELLED"))
        );
        until(|| (bench.approval_state(id(&asked)) == "withdrawn").then_some(()));
        assert_eq!(
            decide(&asked)["decision"],
            "deny",
            "there is nothing left to say yes to"
        );
    });
    assert!(!bench.work().join("made").exists());
    bench.prove();
}

#[test]
fn an_operator_does_not_decide_what_it_asked_for() {
    let bench = Bench::new();
    let office = Office::open(&bench);
    std::thread::scope(|scope| {
        let call = later(scope, &office, OPERATOR, touch("made"));
        let path = format!("/approvals/{}/decision", id(&question(&office)));
        office
            .post(OPERATOR, &path, json!({"decision": "approve"}))
            .refused(403, "FORBIDDEN");
        office
            .post(APPROVER, &path, json!({"decision": "deny", "reason": "not today"}))
            .ok();
        let refused = call.join().unwrap().refused(403, "APPROVAL_DENIED");
        assert!(
            refused["error"]["message"].as_str().unwrap().contains("not today"),
            "{refused}"
        );
        assert_eq!(refused["result"]["status"], "rejected");
    });
    assert!(!bench.work().join("made").exists());
}

#[test]
fn a_command_runs_as_its_caller_and_is_found_by_nobody_else() {
    let bench = Bench::configured("echo, cat, sh, sleep", "");
    let office = Office::open(&bench);
    let ran = office
        .post(
            AGENT,
            "/commands",
            json!({"file": "echo", "args": ["hi"], "request_id": "r1"}),
        )
        .ok();
    assert_eq!((&ran["status"], &ran["stdout"]), (&json!("ok"), &json!("hi\n")));
    let same = office
        .post(
            AGENT,
            "/commands",
            json!({"file": "echo", "args": ["hi"], "request_id": "r1"}),
        )
        .ok();
    assert_eq!(same["audit_id"], ran["audit_id"]);
    let other = json!({"file": "echo", "args": ["ho"], "request_id": "r1"});
    office.post(AGENT, "/commands", other).refused(409, "CONFLICT");
    assert_eq!(office.get(AGENT, "/commands/r1").ok()["stdout"], "hi\n");
    assert_eq!(office.get(AGENT, "/commands/r1?offset=1&limit=1").ok()["stdout"], "i");
    office.get(OPERATOR, "/commands/r1").refused(404, "NOT_FOUND");
    office.get(Who::Nobody, "/commands/r1").refused(404, "NOT_FOUND");
    office.get(APPROVER, "/commands/r1").refused(403, "FORBIDDEN");
    office.post(VIEWER, "/commands", touch("x")).refused(403, "FORBIDDEN");
    // A line, S0's own request, and one that its fields do not tell apart.
    let line = office
        .post(OPERATOR, "/commands", json!({"command": "echo a | cat"}))
        .ok();
    assert_eq!(line["stdout"], "a\n");
    let s0 = json!({"command": "echo", "args": ["b"], "working_directory": "."});
    assert_eq!(office.post(OPERATOR, "/commands", s0).ok()["stdout"], "b\n");
    let named = json!({"tool": "execute_process", "file": "sh", "args": ["-c", "exit 3"]});
    let failed = office.post(OPERATOR, "/commands", named).ok();
    assert_eq!((&failed["status"], &failed["exit_code"]), (&json!("failed"), &json!(3)));
    // Refused, with the result beside the error.
    let refused = office.post(AGENT, "/commands", json!({"file": "id", "args": []}));
    let refused = refused.refused(403, "COMMAND_NOT_ALLOWED");
    assert_eq!(
        refused["result"]["request_id"],
        refused["error"]["details"]["request_id"]
    );
    office
        .post(AGENT, "/commands", json!({"file": "echo"}))
        .refused(400, "INVALID_ARGUMENTS");
    office
        .post(AGENT, "/commands", json!({"tool": "other"}))
        .refused(400, "INVALID_ARGUMENTS");
    let outside = json!({"command": "echo", "working_directory": "/"});
    office
        .post(AGENT, "/commands", outside)
        .refused(403, "WORKSPACE_ISOLATION_VIOLATION");
    // One that lasts.
    let begun = office.post(
        AGENT,
        "/commands?wait_ms=0",
        json!({"file": "sleep", "args": ["60"], "request_id": "long"}),
    );
    assert_eq!(
        (begun.status, begun.header("location")),
        (202, Some("/api/v1/commands/long"))
    );
    assert_eq!(office.get(AGENT, "/commands/long?wait_ms=1").ok()["status"], "running");
    let ended = office.post(AGENT, "/commands/long/cancel", Value::Null).ok();
    assert_eq!(
        (&ended["status"], &ended["error_code"]),
        (&json!("failed"), &json!("CANCELLED"))
    );
    office
        .post(AGENT, "/commands/none/cancel", Value::Null)
        .refused(404, "NOT_FOUND");
    // What people see of it.
    let recent = office.get(VIEWER, "/commands?limit=1").ok();
    assert_eq!(recent["items"][0]["request_id"], "long");
    let next = format!("/commands?limit=1&after={}", recent["next"]);
    assert_eq!(
        office.get(VIEWER, &next).ok()["items"][0]["error_code"],
        "WORKSPACE_ISOLATION_VIOLATION"
    );
    let calls = bench.count("SELECT count(*) FROM flow_events WHERE payload ->> '$.transport' = 'rest'");
    assert!(calls > 8, "{calls}");
    office.close();
    bench.prove();
}

#[test]
fn the_same_body_again_runs_what_was_approved_once_and_hears_a_no() {
    let bench = Bench::new();
    let office = Office::open(&bench);
    let decided = |name: &str, decision: &str| {
        // Answered at once, before or after the question was asked.
        assert_eq!(office.post(AGENT, "/commands?wait_ms=0", touch(name)).status, 202);
        let path = format!("/approvals/{}/decision", id(&question(&office)));
        office
            .post(APPROVER, &path, json!({"decision": decision, "reason": "because"}))
            .ok();
    };
    decided("yes", "approve");
    decided("no", "deny");
    assert!(!bench.work().join("yes").exists());
    assert_eq!(office.post(AGENT, "/commands", touch("yes")).ok()["status"], "ok");
    office
        .post(AGENT, "/commands", touch("no"))
        .refused(403, "APPROVAL_DENIED");
    assert!(bench.work().join("yes").exists() && !bench.work().join("no").exists());
    assert_eq!(office.get(VIEWER, "/approvals").ok()["items"], json!([]));
    office.close();
    bench.prove();
}

#[test]
fn a_vote_without_a_reason_is_shown_without_one() {
    let bench = Bench::new();
    let office = Office::open(&bench);
    office.post(AGENT, "/commands?wait_ms=0", touch("no"));
    let asked = question(&office);
    let path = format!("/approvals/{}/decision", id(&asked));
    office.post(APPROVER, &path, json!({"decision": "deny"})).ok();
    let shown = bench
        .command()
        .args(["approvals", "show", id(&asked)])
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(" approver: no ("), "{shown}");
    office.close();
}

#[test]
fn a_call_over_rest_is_counted_like_every_other() {
    let bench = Bench::new();
    let office = Office::open(&bench);
    let done = office.post(AGENT, "/commands", json!({"file": "ls", "args": []})).ok();
    assert_eq!(done["status"], "ok");
    office
        .post(AGENT, "/commands", json!({"file": "ls", "args": [], "cwd": "nowhere"}))
        .refused(400, "CWD_NOT_FOUND");
    office.get(AGENT, "/commands/nothing").refused(404, "NOT_FOUND");
    let mut page = String::new();
    let mut stream = office.send(Who::Nobody, "GET", "/metrics", "", None);
    std::io::Read::read_to_string(&mut stream, &mut page).unwrap();
    for line in [
        r#"countersign_calls_total{tool="execute_process",status="ok"} 1"#,
        r#"countersign_calls_total{tool="execute_process",status="rejected"} 1"#,
        r#"countersign_calls_total{tool="command_status",status="rejected"} 1"#,
        r#"countersign_call_seconds_count{tool="execute_process"} 2"#,
        r#"countersign_sandbox_layers_total{layer="landlock"} 1"#,
        "countersign_open_calls 0",
    ] {
        assert!(page.lines().any(|it| it == line), "{line} is not in\n{page}");
    }
    office.close();
}

#[test]
fn every_route_lets_in_whom_the_document_names_and_nobody_else() {
    let bench = Bench::allowing("echo");
    let office = Office::open(&bench);
    let paths = office.document()["paths"].as_object().unwrap().clone();
    let mut tried = 0;
    for (path, methods) in &paths {
        for (method, operation) in methods.as_object().unwrap() {
            let path = path.strip_prefix("/api/v1").unwrap();
            let path = path.replace("{id}", "nothing").replace("{request_id}", "nothing");
            let allowed: Vec<&str> = operation["x-countersign-roles"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_str)
                .collect();
            let body = operation.get("requestBody").map(|_| "{");
            for role in ROLES {
                // A stream that is let in does not end.
                if allowed.contains(&role) && path == "/events" {
                    continue;
                }
                let reply = office.ask(Who::Role(role), &method.to_uppercase(), &path, "", body);
                assert_eq!(
                    reply.status != 403,
                    allowed.contains(&role),
                    "{role} {method} {path}: {}",
                    reply.status
                );
                tried += 1;
            }
            let reply = office.ask(Who::Token("cs_viewer_00"), &method.to_uppercase(), &path, "", body);
            reply.refused(401, "UNAUTHENTICATED");
            assert!(reply.header("www-authenticate").is_some());
        }
    }
    assert!(tried > 70, "{tried}");
    for code in ["FORBIDDEN", "UNAUTHENTICATED"] {
        let recorded = format!(
            "SELECT count(*) FROM flow_events WHERE event_type IN ('auth.refused', 'request.refused')
                 AND payload ->> '$.transport' = 'rest' AND payload ->> '$.error_code' = '{code}'"
        );
        assert!(bench.count(&recorded) >= 1, "{code}");
    }
}

#[test]
fn what_the_document_does_not_name_is_refused_in_the_same_form() {
    let bench = Bench::configured(
        "echo",
        "limits: {body_bytes: 2000, requests_per_second: 1, burst: 100}\n",
    );
    let office = Office::open(&bench);
    office.get(VIEWER, "/nothing").refused(404, "NOT_FOUND");
    let wrong = office.ask(VIEWER, "DELETE", "/approvals", "", None);
    wrong.refused(405, "METHOD_NOT_FOUND");
    assert!(
        wrong.header("allow").is_some_and(|allow| allow.contains("GET")),
        "{}",
        wrong.head
    );
    office
        .ask(VIEWER, "OPTIONS", "/commands", "", None)
        .refused(405, "METHOD_NOT_FOUND");
    let head = office.ask(VIEWER, "HEAD", "/approvals", "", None);
    assert_eq!((head.status, head.body.len()), (200, 0));
    office
        .get(VIEWER, "/approvals?stat=x")
        .refused(400, "INVALID_ARGUMENTS");
    office
        .get(VIEWER, "/approvals?limit=1001")
        .refused(400, "INVALID_ARGUMENTS");
    office
        .get(VIEWER, "/audit/events?limit=1&limit=2")
        .refused(400, "INVALID_ARGUMENTS");
    office.get(VIEWER, "/approvals/%ff").refused(400, "INVALID_ARGUMENTS");
    for body in ["{", "[]", "[\"approve\", \"r\", null, null]", "7"] {
        office
            .ask(AGENT, "POST", "/commands", "", Some(body))
            .refused(400, "INVALID_ARGUMENTS");
        office
            .ask(Who::Role("approver"), "POST", "/approvals/x/decision", "", Some(body))
            .refused(400, "INVALID_ARGUMENTS");
    }
    let large = format!("{{\"command\": \"{}\"}}", "x".repeat(3_000));
    office
        .ask(AGENT, "POST", "/commands", "", Some(&large))
        .refused(413, "INVALID_REQUEST");
    let form = office.ask(
        AGENT,
        "POST",
        "/commands",
        "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
        None,
    );
    form.refused(415, "INVALID_REQUEST");
    let foreign = office.ask(VIEWER, "GET", "/approvals", "Origin: http://example.com\r\n", None);
    foreign.refused(403, "FORBIDDEN");
    let limited = (0..1_000)
        .map(|_| office.get(VIEWER, "/tokens"))
        .find(|reply| reply.status == 429);
    let limited = limited.expect("a limit");
    limited.refused(429, "RATE_LIMITED");
    assert!(limited.header("retry-after").is_some());
}
