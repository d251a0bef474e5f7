//! What people and their programs read over REST: the record by page, proved, exported and followed; policy;
//! numbers.

use serde_json::{Value, json};

use super::office::{Events, Office, ROLES, Who, token, until};
use super::{AGENT, APPROVER, VIEWER, id, later, question, touch};
use crate::bench::Bench;
use crate::client::Server;

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
    for list in [
        "/audit/events",
        "/audit/commands",
        "/audit/invocations",
        "/metrics/summary",
    ] {
        let backwards = office.get(VIEWER, &format!("{list}?from=1h&to=2h"));
        backwards.refused(400, "INVALID_ARGUMENTS");
    }
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
fn what_is_wrong_beside_the_rows_is_told_without_a_row() {
    let bench = Bench::configured("echo", "");
    let office = Office::open(&bench);
    office
        .post(AGENT, "/commands", json!({"file": "echo", "args": ["a"]}))
        .ok();
    let record = rusqlite::Connection::open(bench.state().join("record.db")).unwrap();
    record.execute_batch("CREATE TABLE beside (a)").unwrap();
    let proof = office.get(VIEWER, "/audit/verify").ok();
    assert_eq!((&proof["ok"], &proof["row"]), (&json!(false), &Value::Null));
    assert!(proof["problem"].as_str().unwrap().contains("beside"), "{proof}");
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
    // A place that this record has not reached: silence would look like quiet.
    office
        .ask(VIEWER, "GET", "/events", "Last-Event-ID: 99999999\r\n", None)
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
    let mut local: Value = serde_json::from_slice(&local.stdout).unwrap();
    // What was said on the command line of the server is one source more.
    local["content"]["sources"] = shown["content"]["sources"].clone();
    assert_eq!(shown["content"], local["content"]);
    let recorded = format!(
        "SELECT count(*) FROM flow_events WHERE event_type = 'policy.changed' AND payload ->> '$.digest' = {}",
        shown["digest"].to_string().replace('"', "'")
    );
    assert_eq!(bench.count(&recorded), 1);
    let explain = |body: Value| office.post(VIEWER, "/policy/explain", body).ok();
    let allowed = explain(json!({"tool": "execute_process", "arguments": {"file": "echo", "args": []}}));
    assert_eq!(allowed["verdict"], "allow");
    assert!(allowed["programs"][0].as_str().unwrap().ends_with("/echo"), "{allowed}");
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
