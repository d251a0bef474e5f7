//! Agents' jobs where people and clients look: over REST, in notifications, in numbers.

use std::fs;

use serde_json::{Value, json};

use crate::client::{Server, eventually};
use crate::jobs::{bench, shown, told, until as until_status};
use crate::rest::office::{Events, Office, Who, token, until};
use crate::web::{Web, legacy};

const OPERATOR: Who<'_> = Who::Role("operator");
const VIEWER: Who<'_> = Who::Role("viewer");
const AGENT: Who<'_> = Who::Role("agent");
const PROGRESS: &str = "codex-father/progress";

fn task(prompt: &str) -> Value {
    json!({"agent": "mine", "prompt": prompt})
}

/// Starts a job over REST; gives its id.
#[track_caller]
fn start(office: &Office, who: Who<'_>, prompt: &str) -> String {
    let reply = office.post(who, "/jobs", task(prompt));
    let accepted = reply.ok();
    assert_eq!(
        (reply.status, &accepted["status"]),
        (202, &json!("accepted")),
        "{accepted}"
    );
    let job = accepted["jobId"].as_str().unwrap();
    assert_eq!(reply.header("location"), Some(format!("/api/v1/jobs/{job}").as_str()));
    job.to_owned()
}

/// The next event of a kind.
fn event(events: &mut Events, kind: &str) -> (u64, Value) {
    loop {
        let (id, event) = events.next().expect("the stream goes on");
        if event["type"] == kind {
            return (id, event);
        }
    }
}

#[test]
fn a_job_is_given_followed_and_read_over_rest() {
    let bench = bench();
    let office = Office::open(&bench);
    let job = start(&office, AGENT, "work");
    let mut events = Events::of_job(&office, VIEWER, &job, "");
    let (seen, first) = event(&mut events, "codex-agent-message");
    assert_eq!(first["data"]["message"], "first");
    let at_work = office.get(VIEWER, &format!("/jobs/{job}")).ok();
    assert_eq!(
        (&at_work["status"], &at_work["agent"]),
        (&json!("running"), &json!("mine"))
    );
    assert_eq!(at_work["usage"]["totalTokens"], 0);
    assert!(at_work["session"]["sessionDir"].is_string(), "{at_work}");
    let processes = office.get(VIEWER, "/processes").ok();
    let process = &processes["items"][0];
    assert_eq!(
        (&process["status"], &process["currentJobId"]),
        (&json!("busy"), &json!(job))
    );
    assert!(
        process["pid"].as_u64().unwrap() > 1 && process["sessionId"].is_string(),
        "{process}"
    );
    let open = office.get(VIEWER, "/jobs?status=running,pending").ok();
    assert_eq!(open["items"].as_array().unwrap().len(), 1);
    assert_eq!(office.get(VIEWER, "/jobs?status=completed").ok()["items"], json!([]));
    assert_eq!(office.get(VIEWER, "/jobs?owner=nobody").ok()["items"], json!([]));
    // Whoever comes back goes on behind what they saw.
    let mut resumed = Events::of_job(&office, AGENT, &job, &format!("Last-Event-ID: {seen}\r\n"));
    fs::write(bench.work().join("go"), "").unwrap();
    let (_, second) = event(&mut resumed, "codex-agent-message");
    assert_eq!(second["data"]["message"], "second");
    let (last, _) = event(&mut events, "job-completed");
    while events.next().is_some() {}
    let ended = office.get(VIEWER, &format!("/jobs/{job}")).ok();
    assert_eq!(ended["output"]["result"], "worked");
    // The end of a job that has ended has nothing more to say.
    let end = office.get(VIEWER, &format!("/jobs/{job}/events?limit=1000")).ok();
    let end = end["next"].as_u64().unwrap();
    assert!(end >= last);
    let headers = format!("Accept: text/event-stream\r\nLast-Event-ID: {end}\r\n");
    let over = office.ask(VIEWER, "GET", &format!("/jobs/{job}/events"), &headers, None);
    assert_eq!(over.status, 204);
    // By page the same is told, and each once.
    let (mut seqs, mut after) = (Vec::new(), 0);
    loop {
        let page = office
            .get(VIEWER, &format!("/jobs/{job}/events?limit=3&after={after}"))
            .ok();
        seqs.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| it["seq"].as_u64().unwrap()),
        );
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(seqs, (1..=end).collect::<Vec<_>>());
    office.close();
    bench.prove();
}

#[test]
fn a_job_is_its_callers_and_operators_have_a_say_in_it() {
    let bench = bench();
    let office = Office::open(&bench);
    let job = start(&office, AGENT, "work");
    let path = format!("/jobs/{job}");
    let other = token(&bench, "agent", "other");
    for stranger in [Who::Token(&other), Who::Nobody] {
        office.get(stranger, &path).refused(404, "NOT_FOUND");
        office
            .get(stranger, &format!("{path}/events"))
            .refused(404, "NOT_FOUND");
        office
            .post(stranger, &format!("{path}/interrupt"), json!({}))
            .refused(404, "NOT_FOUND");
        assert_eq!(office.get(stranger, "/jobs").ok()["items"], json!([]));
    }
    for reader in [VIEWER, Who::Role("approver")] {
        office.get(reader, &path).ok();
        office
            .post(reader, &format!("{path}/interrupt"), json!({}))
            .refused(403, "FORBIDDEN");
        office
            .post(reader, &format!("{path}/messages"), json!({"message": "x"}))
            .refused(403, "FORBIDDEN");
        office.post(reader, "/jobs", task("greet")).refused(403, "FORBIDDEN");
    }
    office.get(AGENT, "/processes").refused(403, "FORBIDDEN");
    office
        .post(AGENT, "/jobs", json!({"agent": "none", "prompt": "x"}))
        .refused(400, "INVALID_ARGUMENTS");
    office
        .post(AGENT, "/jobs", json!({"agent": "mine"}))
        .refused(400, "INVALID_ARGUMENTS");
    until_status(&bench, &job, "running");
    let called_back = office.post(OPERATOR, &format!("{path}/interrupt"), json!({})).ok();
    assert_eq!(called_back["jobId"], json!(job));
    until_status(&bench, &job, "cancelled");
    office
        .post(OPERATOR, &format!("{path}/interrupt"), json!({}))
        .refused(409, "CONFLICT");
    let next = office
        .post(AGENT, &format!("{path}/messages"), json!({"message": "go on"}))
        .ok();
    assert_ne!(
        next["jobId"],
        json!(job),
        "a message to an agent at rest is its next job"
    );
    until_status(&bench, next["jobId"].as_str().unwrap(), "completed");
    office.close();
    bench.prove();
}

#[test]
fn a_client_hears_what_happens_to_its_own_jobs_and_to_no_others() {
    let bench = bench();
    let office = Office::open(&bench);
    let mut server = Server::start(&bench);
    let others = start(&office, AGENT, "greet");
    until_status(&bench, &others, "completed");
    let id = server.call_later("start-task", task("greet"));
    let own = server.answer(id)["result"]["structuredContent"]["jobId"].clone();
    let mut kinds = Vec::new();
    while kinds.last() != Some(&json!("task-complete")) {
        let told = server.told(PROGRESS);
        let params = &told["params"];
        assert_eq!(params["jobId"], own, "another's job was told: {told}");
        assert!(
            params["timestamp"].is_string() && params["eventData"].is_object(),
            "{told}"
        );
        if params["eventType"] == "agent-message" {
            assert_eq!(params["eventData"]["message"], "hello");
        }
        kinds.push(params["eventType"].clone());
    }
    assert_eq!(kinds, ["task-started", "agent-message", "task-complete"]);
}

#[test]
fn a_stream_beside_the_requests_tells_of_jobs_that_another_process_looks_after() {
    let bench = bench();
    let web = Web::serve(&bench);
    let session = web.session(json!({}));
    let mut beside = web.stream("GET", "/mcp", &session, &Value::Null);
    let mut server = Server::start(&bench);
    // Both are the same anonymous agent, and one of the two looks after the job.
    let id = server.call_later("start-task", task("greet"));
    let job = server.answer(id)["result"]["structuredContent"]["jobId"].clone();
    let ended = |told: &Value| told["method"] == PROGRESS && told["params"]["eventType"] == "task-complete";
    assert_eq!(beside.until(ended)["params"]["jobId"], job);
    while server.told(PROGRESS)["params"]["eventType"] != "task-complete" {}
}

#[test]
fn a_caller_that_waits_for_a_job_hears_how_it_gets_on() {
    let bench = bench();
    let mut server = Server::start(&bench);
    let id = server.call_later("start-task", task("work"));
    let job = server.answer(id)["result"]["structuredContent"]["jobId"].clone();
    // What was said before somebody waits is not told to them.
    eventually("its first word is kept", || {
        told(&bench, &["jobs", "logs", job.as_str().unwrap()]).contains("first")
    });
    let params = json!({"name": "job-status", "arguments": {"jobId": job, "wait_ms": 60_000},
        "_meta": {"progressToken": "p"}});
    let id = server.request("tools/call", params);
    // A question that comes behind the wait and is answered at once: the wait has begun by then.
    let look = server.call_later("job-status", json!({"jobId": job}));
    server.answer(look);
    fs::write(bench.work().join("go"), "").unwrap();
    let progress = server.told("notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "p");
    let status = server.answer(id)["result"]["structuredContent"].clone();
    assert_eq!(status["job"]["status"], "completed", "{status}");
    let mut said = vec![progress];
    said.extend(
        server
            .notes
            .iter()
            .filter(|it| it["method"] == "notifications/progress")
            .cloned(),
    );
    let heard = |words: &str| said.iter().any(|it| it["params"]["message"] == words);
    assert!(heard("second") && !heard("first"), "{said:?}");
}

#[test]
fn a_modern_client_asks_to_be_told_of_its_jobs() {
    let bench = bench();
    let mut server = Server::start(&bench);
    let meta = || {
        json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}})
    };
    let wanted = json!({"notifications": {PROGRESS: true}, "_meta": meta()});
    let listening = server.request("subscriptions/listen", wanted);
    let acknowledged = server.told("notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({PROGRESS: true}));
    let params = json!({"name": "start-task", "arguments": task("greet"), "_meta": meta()});
    let id = server.request("tools/call", params);
    let job = server.answer(id)["result"]["structuredContent"]["jobId"].clone();
    let named = "io.modelcontextprotocol/subscriptionId";
    loop {
        let told = server.told(PROGRESS);
        // The session on the same pipes hears of it as well.
        if told["params"]["_meta"][named] == json!(listening) && told["params"]["eventType"] == "task-complete" {
            assert_eq!(told["params"]["jobId"], job);
            break;
        }
    }
}

#[test]
fn the_page_of_metrics_tells_what_waits_and_how_jobs_stand() {
    let bench = bench();
    let office = Office::open(&bench);
    let job = start(&office, AGENT, "ask");
    until(|| office.get(VIEWER, "/approvals").ok()["items"].get(0).cloned());
    let page = || {
        let mut text = String::new();
        let mut stream = office.send(Who::Nobody, "GET", "/metrics", "", None);
        std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
        text
    };
    let has = |page: &str, line: &str| page.lines().any(|it| it == line);
    let waiting = page();
    for line in [
        "countersign_approvals_waiting 1",
        r#"countersign_jobs{status="running"} 1"#,
        r#"countersign_verdicts_total{verdict="ask"} 1"#,
        "countersign_queue 0",
        "countersign_agent_restarts_total 0",
    ] {
        assert!(has(&waiting, line), "{line} is not in\n{waiting}");
    }
    let question = office.get(VIEWER, "/approvals").ok()["items"][0].clone();
    // What an agent asks says where it would act, and for which job.
    assert_eq!(
        (&question["jobId"], &question["details"]["cwd"]),
        (&json!(job), &json!(bench.work()))
    );
    let path = format!("/approvals/{}/decision", question["requestId"].as_str().unwrap());
    office.post(OPERATOR, &path, json!({"decision": "approve"})).ok();
    until_status(&bench, &job, "completed");
    assert!(has(&page(), r#"countersign_jobs{status="completed"} 1"#));
    let summary = shown(&bench, &["metrics", "--json"]);
    assert_eq!(
        (&summary["totalJobs"], &summary["manualApprovedCount"]),
        (&json!(1), &json!(1)),
        "{summary}"
    );
}

#[test]
fn every_row_of_the_mapping_is_told_on_the_stream_of_the_older_transport() {
    let bench = bench();
    let web = Web::serve(&bench);
    let mut stream = web.stream("GET", "/sse", "", &Value::Null);
    let endpoint = stream.endpoint();
    let say = |message: &Value| assert_eq!(web.post(&endpoint, "", message).0, 202);
    let hello =
        json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    say(&legacy(0, "initialize", hello));
    stream.until(|message| message["id"] == 0);
    say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    for (id, prompt, rows) in [
        (
            1,
            "greet",
            ["task-started", "agent-message", "task-complete"].as_slice(),
        ),
        (2, "fail", &["task-started", "task-error"]),
        (3, "ask", &["task-started", "approval-required", "task-complete"]),
    ] {
        say(&legacy(
            id,
            "tools/call",
            json!({"name": "start-task", "arguments": task(prompt)}),
        ));
        let mut job = None;
        for row in rows {
            let told = stream.until(|message| message["method"] == PROGRESS);
            let params = &told["params"];
            assert_eq!(params["eventType"], *row, "{prompt}: {told}");
            assert!(
                params["eventData"].is_object() && params["timestamp"].is_string(),
                "{told}"
            );
            let known = job.get_or_insert(params["jobId"].clone());
            assert_eq!(*known, params["jobId"], "one job at a time");
            if *row == "approval-required" {
                let (question, _) = bench.question();
                crate::jobs::told(&bench, &["approve", &question, "--reason", "because"]);
            }
        }
    }
}
