//! The REST routes as people and their programs use them, against the server's own document.

pub(crate) mod office;

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::Server;
use office::{Events, Office, ROLES, Reply, Who, token, until};

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
    let bench = Bench::configured("echo, sh, sleep", "");
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
        .post(OPERATOR, "/commands", json!({"command": "echo a | sh -c cat"}))
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

/// Every page of a list.
fn pages(office: &Office, path: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut next = String::new();
    loop {
        let page = office.get(VIEWER, &format!("{path}{next}")).ok();
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match &page["next"] {
            Value::Null => return items,
            after => next = format!("&after={after}"),
        }
    }
}

#[test]
fn the_record_is_read_by_page_in_either_order_and_nothing_is_missing() {
    let bench = Bench::configured("echo", "");
    let office = Office::open(&bench);
    for word in ["a", "b", "c"] {
        office
            .post(AGENT, "/commands", json!({"file": "echo", "args": [word]}))
            .ok();
    }
    let seqs = |items: &[Value]| {
        items
            .iter()
            .map(|item| item["seq"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    let oldest = seqs(&pages(&office, "/audit/events?limit=4"));
    assert_eq!(oldest, (1..=oldest.len() as u64).collect::<Vec<_>>());
    let mut newest = seqs(&pages(&office, "/audit/events?limit=5&order=newest"));
    newest.reverse();
    assert_eq!(newest, oldest);
    let completed = office.get(VIEWER, "/audit/events?type=command.completed").ok();
    assert_eq!(completed["items"].as_array().unwrap().len(), 3);
    let first = &completed["items"][0];
    let of_call = format!(
        "/audit/events?correlation_id={}",
        first["correlation_id"].as_str().unwrap()
    );
    assert_eq!(office.get(VIEWER, &of_call).ok()["items"].as_array().unwrap().len(), 4);
    let commands = pages(&office, "/audit/commands?limit=1");
    assert_eq!(commands.len(), 3);
    assert_eq!(commands[0]["arguments"], json!(["a"]));
    assert_eq!(pages(&office, "/audit/invocations?limit=2").len(), 3);
    assert_eq!(pages(&office, "/audit/envelopes?limit=2&status=accepted").len(), 3);
    let last = office.get(VIEWER, "/audit/commands?order=newest&limit=1").ok();
    assert_eq!(last["items"][0]["arguments"], json!(["c"]));
    assert_eq!(
        office
            .get(VIEWER, "/audit/commands?from=2020-01-01T00:00:00Z&to=1h")
            .ok()["items"],
        json!([])
    );
    let sessions = office.get(VIEWER, "/sessions").ok();
    assert_eq!(sessions["items"], json!([]));
    let tokens = office.get(VIEWER, "/tokens").ok();
    assert_eq!(tokens["items"].as_array().unwrap().len(), ROLES.len());
    assert!(!tokens.to_string().contains("cs_agent_"));
}

#[test]
fn the_record_is_proved_and_exported_over_http() {
    let bench = Bench::configured("echo", "");
    let office = Office::open(&bench);
    office
        .post(AGENT, "/commands", json!({"file": "echo", "args": ["a"]}))
        .ok();
    let proof = office.get(VIEWER, "/audit/verify").ok();
    assert_eq!(proof["ok"], true);
    // Asked again before the record grows, the same walk answers.
    assert_eq!(
        office.get(VIEWER, "/audit/verify").ok()["proved_at"],
        proof["proved_at"]
    );
    office
        .post(AGENT, "/commands", json!({"file": "echo", "args": ["b"]}))
        .ok();
    let further = office.get(VIEWER, "/audit/verify").ok();
    assert!(further["last_seq"].as_u64() > proof["last_seq"].as_u64());
    let export = office.get(VIEWER, "/audit/export");
    assert_eq!(export.header("content-type"), Some("application/jsonl"));
    let file = bench.path("outside").join("record.jsonl");
    std::fs::write(&file, &export.body).unwrap();
    let verified = bench.command().args(["audit", "verify"]).arg(&file).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
    office.get(AGENT, "/audit/export").refused(403, "FORBIDDEN");
}

#[test]
fn events_are_followed_from_any_process_and_taken_up_again() {
    let bench = Bench::allowing("echo");
    let office = Office::open(&bench);
    let mut events = Events::follow(&office, VIEWER, "?type=command.completed,token.created", "");
    office
        .post(AGENT, "/commands", json!({"file": "echo", "args": ["here"]}))
        .ok();
    let (first, event) = events.next().unwrap();
    assert_eq!(
        (&event["seq"], &event["payload"]["arguments"]),
        (&json!(first), &json!(["here"]))
    );
    // Another process of the state directory, which tells nobody.
    let mut elsewhere = Server::start(&bench);
    elsewhere.process("echo", &["there"]).ok();
    let (second, event) = events.next().unwrap();
    assert_eq!(event["payload"]["arguments"], json!(["there"]));
    drop(events);
    elsewhere.process("echo", &["meanwhile"]).ok();
    let mut resumed = Events::follow(
        &office,
        VIEWER,
        "?type=command.completed",
        &format!("Last-Event-ID: {first}\r\n"),
    );
    assert_eq!(resumed.next().unwrap().0, second);
    assert_eq!(resumed.next().unwrap().1["payload"]["arguments"], json!(["meanwhile"]));
    let call = event["correlation_id"].as_str().unwrap();
    let mut of_call = Events::follow(&office, VIEWER, &format!("?after=0&correlation_id={call}"), "");
    assert_eq!(of_call.until("command.received").1["correlation_id"], call);
    office.get(AGENT, "/events").refused(403, "FORBIDDEN");
    office
        .ask(VIEWER, "GET", "/events", "Last-Event-ID: x\r\n", None)
        .refused(400, "INVALID_ARGUMENTS");
    office
        .get(VIEWER, "/events?type=nothing")
        .refused(400, "INVALID_ARGUMENTS");
}

#[test]
fn a_stream_ends_with_the_token_that_opened_it_and_with_the_server() {
    let bench = Bench::allowing("echo");
    let secret = token(&bench, "viewer", "passing");
    let office = Office::open(&bench);
    let mut events = Events::follow(&office, Who::Token(&secret), "?type=session.created", "");
    let mut staying = Events::follow(&office, VIEWER, "?type=session.created", "");
    let revoked = bench.command().args(["tokens", "revoke", "passing"]).output().unwrap();
    assert!(revoked.status.success(), "{revoked:?}");
    assert_eq!(events.next(), None);
    office
        .get(Who::Token(&secret), "/approvals")
        .refused(401, "UNAUTHENTICATED");
    office.close();
    assert_eq!(staying.next(), None);
}

#[test]
fn only_so_many_streams_are_open_at_once() {
    let bench = Bench::allowing("echo");
    let office = Office::open(&bench);
    let mut streams: Vec<_> = (0..64).map(|_| Events::follow(&office, VIEWER, "", "")).collect();
    let refused = office.get(VIEWER, "/events");
    refused.refused(503, "QUEUE_FULL");
    assert!(refused.header("retry-after").is_some());
    streams.pop();
    until(|| {
        let stream = office.send(VIEWER, "HEAD", "/api/v1/events", "", None);
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stream), &mut line).unwrap();
        line.contains(" 200 ").then_some(())
    });
}

#[test]
fn policy_is_shown_and_explained_as_it_is_in_force() {
    let bench = Bench::configured("echo, ls", "tools: {execute_command: {approval: required}}\n");
    let office = Office::open(&bench);
    let shown = office.get(VIEWER, "/policy").ok();
    let local = bench
        .command()
        .args(["policy", "show", "--effective", "--json"])
        .output()
        .unwrap();
    assert_eq!(shown, serde_json::from_slice::<Value>(&local.stdout).unwrap());
    let explain = |body: Value| office.post(VIEWER, "/policy/explain", body).ok();
    let allowed = explain(json!({"tool": "execute_process", "arguments": {"file": "echo", "args": []}}));
    assert_eq!(
        (&allowed["verdict"], &allowed["programs"]),
        (&json!("allow"), &json!(["echo"]))
    );
    let denied =
        explain(json!({"tool": "execute_process", "arguments": {"file": "id", "args": []}, "role": "operator"}));
    assert_eq!(
        (&denied["verdict"], &denied["error_code"]),
        (&json!("deny"), &json!("COMMAND_NOT_ALLOWED"))
    );
    let asks = explain(json!({"tool": "execute_command", "arguments": {"command": "echo a"}}));
    assert_eq!(asks["verdict"], "ask");
    let run = json!({"tool": "github_labels_list", "run": {"agent_key": "dev", "labels": ["run:dev"]}});
    assert_eq!(explain(run)["keys"]["agent_key"], "dev");
    let refused = |body: Value| {
        office
            .post(VIEWER, "/policy/explain", body)
            .refused(400, "INVALID_ARGUMENTS")
    };
    refused(json!({"tool": "x", "role": "viewer"}));
    refused(json!({"tool": "x", "run": {"agent": "dev"}}));
    refused(json!({"arguments": {}}));
    let nothing_ran = "SELECT count(*) FROM flow_events WHERE event_type LIKE 'command.%'";
    assert_eq!(bench.count(nothing_ran), 0);
}

#[test]
fn the_summary_of_a_period_is_the_same_at_the_terminal_and_over_http() {
    let bench = Bench::new();
    let office = Office::open(&bench);
    std::thread::scope(|scope| {
        let call = later(scope, &office, AGENT, touch("made"));
        let path = format!("/approvals/{}/decision", id(&question(&office)));
        office
            .post(APPROVER, &path, json!({"decision": "deny", "reason": "no"}))
            .ok();
        call.join().unwrap().refused(403, "APPROVAL_DENIED");
    });
    office.post(AGENT, "/commands", json!({"file": "ls", "args": []})).ok();
    let over = office.get(VIEWER, "/metrics/summary?to=2100-01-01T00:00:00Z").ok();
    let local = bench
        .command()
        .args(["metrics", "--to", "2100-01-01T00:00:00Z", "--json"])
        .output()
        .unwrap();
    assert_eq!(
        over,
        serde_json::from_slice::<Value>(&local.stdout).unwrap(),
        "{local:?}"
    );
    let count = |name: &str| over[name].as_u64().unwrap();
    assert_eq!(
        (
            count("totalApprovals"),
            count("autoApprovedCount"),
            count("deniedCount")
        ),
        (2, 1, 1)
    );
    assert_eq!(over["errorDistribution"]["APPROVAL_DENIED"], 1);
    let before = office
        .get(
            VIEWER,
            "/metrics/summary?from=2000-01-01T00:00:00Z&to=2001-01-01T00:00:00Z",
        )
        .ok();
    assert_eq!(
        (&before["totalApprovals"], &before["errorDistribution"]),
        (&json!(0), &json!({}))
    );
    assert_eq!(before["periodStart"], "2000-01-01T00:00:00.000Z");
    let bad = bench.command().args(["metrics", "--from", "soon"]).output().unwrap();
    assert_eq!(bad.status.code(), Some(2));
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
    let refused = bench.count(
        "SELECT count(*) FROM flow_events WHERE event_type = 'auth.refused' AND payload ->> '$.transport' = 'rest'",
    );
    assert!(refused >= 2, "{refused}");
}

#[test]
fn what_the_document_does_not_name_is_refused_in_the_same_form() {
    let bench = Bench::configured(
        "echo",
        "limits: {body_bytes: 2000, requests_per_second: 200, burst: 200}\n",
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
    office
        .ask(AGENT, "POST", "/commands", "", Some("{"))
        .refused(400, "INVALID_ARGUMENTS");
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
