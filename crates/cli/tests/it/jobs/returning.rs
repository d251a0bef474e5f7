//! An agent comes back to us: what it does through its endpoint is the job's, by one correlation id, is
//! decided by people, and ends with the job.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::stage::{Player, Stage};
use super::{shown, start, told, until, until_gone};
use crate::bench::Bench;
use crate::client::{Server, eventually};
use crate::web::{Web, legacy};

/// An agent that writes down what it was given, and waits.
const KEEPER: &str = r#"#!/bin/sh
echo '{"event": "TaskStarted"}'
printf '%s\n%s\n' "$COUNTERSIGN_MCP_URL" "$COUNTERSIGN_TOKEN" > given.new
mv given.new given
sleep 300
"#;

fn keeper(more: &str) -> Bench {
    keeping(Bench::new(), more)
}

fn keeping(bench: Bench, more: &str) -> Bench {
    let agent = bench.program("keeper.sh", KEEPER);
    let config = format!(
        "agents:\n  - name: mine\n    command: ['{}']\n    \
         eventParsing: {{format: jsonl, lineDelimited: true, eventTypeField: event}}\n{more}",
        agent.display(),
    );
    bench.config(&config)
}

/// The address and the token that the agent was given, once it was.
fn given(bench: &Bench) -> (String, String) {
    let file = bench.work().join("given");
    eventually("the agent begins", || file.exists());
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let mut lines = text.lines().map(str::to_owned);
    (lines.next().unwrap(), lines.next().unwrap())
}

/// A call as the agent would make it: without a session, with its token.
fn call(web: &Web, token: &str, tool: &str, arguments: Value) -> (u16, Value) {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}, "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"}});
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    let headers = format!(
        "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\nAuthorization: Bearer {token}\r\n"
    );
    web.post("/mcp", &headers, &legacy(1, "tools/call", params))
}

/// The types of the events under a correlation id.
fn story(bench: &Bench, correlation: &str) -> Vec<String> {
    let events = shown(
        bench,
        &[
            "audit",
            "query",
            "--kind",
            "event",
            "--correlation-id",
            correlation,
            "--json",
        ],
    );
    let kind = |event: &Value| event["event_type"].as_str().unwrap().to_owned();
    events.as_array().unwrap().iter().map(kind).collect()
}

fn tokens_in_force(bench: &Bench) -> i64 {
    bench.count("SELECT count(*) FROM tokens WHERE revoked_at_ms IS NULL AND name LIKE 'job-%'")
}

#[test]
fn what_a_real_agent_does_through_us_is_approved_and_recorded_with_its_job() {
    for (player, tool) in [
        (Player::Claude, "mcp__countersign__execute_process"),
        (Player::CodexAppServer, "mcp__countersign/execute_process"),
    ] {
        let Some(mut stage) = Stage::set(player) else { return };
        let job = stage.start(&format!(r#"[[tool {tool} {{"file": "touch", "args": ["made"]}}]]"#));
        let (question, details) = stage.bench.question();
        assert_eq!(details["command"], "touch made", "{player:?}: {details}");
        let asked = shown(&stage.bench, &["approvals", "show", &question, "--json"]);
        assert_eq!(
            (&asked["type"], &asked["jobId"], &asked["requested_by"]),
            (&json!("exec-command"), &json!(job), &json!(format!("job-{job}"))),
            "{player:?}: {asked}"
        );
        eventually("the job's clock stands still", || {
            shown(&stage.bench, &["jobs", "show", &job, "--json"])["subState"] == "waiting_approval"
        });
        assert!(!stage.bench.work().join("made").exists());
        told(&stage.bench, &["approve", &question, "--reason", "because"]);
        let ended = stage.until(&job, "completed");
        assert!(stage.bench.work().join("made").exists(), "{player:?}");
        let seen: Vec<String> = stage
            .model
            .seen
            .lock()
            .unwrap()
            .iter()
            .map(|it| it.body.to_string())
            .collect();
        let is_heard = |text: &str| seen.iter().any(|body| body.contains(text));
        assert!(
            is_heard("exit_code"),
            "{player:?}: the result reaches the model: {seen:?}"
        );
        assert!(
            !is_heard("start-task"),
            "{player:?}: an agent in a job is offered no jobs"
        );
        let correlation = asked["correlation_id"].as_str().unwrap();
        eventually("its token ends with it", || tokens_in_force(&stage.bench) == 0);
        let kinds = story(&stage.bench, correlation);
        for kind in [
            "job.created",
            "token.created",
            "job.started",
            "command.received",
            "approval.requested",
            "approval.approved",
            "command.dispatched",
            "command.completed",
            "job.completed",
            "token.revoked",
        ] {
            assert!(
                kinds.iter().any(|it| it == kind),
                "{player:?}: {kind} is missing: {kinds:?}"
            );
        }
        let commands = shown(
            &stage.bench,
            &[
                "audit",
                "query",
                "--kind",
                "command",
                "--correlation-id",
                correlation,
                "--json",
            ],
        );
        assert_eq!(commands[0]["status"], "ok", "{player:?}: {commands}");
        stage.close(&ended);
    }
}

#[test]
fn a_jobs_token_is_the_jobs_alone_and_ends_with_it() {
    Bench::wherever(|bench| {
        let bench = keeping(bench, "");
        let web = Web::serve(&bench);
        let job = start(&bench, "keep", &[]);
        let (url, token) = given(&bench);
        assert!(url.starts_with("http://127.0.0.1:") && url.ends_with("/mcp"), "{url}");
        let (status, answer) = call(&web, &token, "execute_process", json!({"file": "ls", "args": []}));
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["result"]["structuredContent"]["status"], "ok", "{answer}");
        // Agents that start agents would never end.
        let (_, refused) = call(&web, &token, "start-task", json!({"agent": "mine", "prompt": "x"}));
        assert_eq!(refused["error"]["data"]["errorCode"], "UNKNOWN_TOOL", "{refused}");
        told(&bench, &["jobs", "interrupt", &job]);
        until(&bench, &job, "cancelled");
        eventually("the token is revoked", || tokens_in_force(&bench) == 0);
        eventually("the token is refused", || {
            call(&web, &token, "execute_process", json!({"file": "ls"})).0 == 401
        });
        for file in fs::read_dir(bench.state()).unwrap().flatten() {
            let kept = fs::read(file.path()).unwrap_or_default();
            let is_there = kept.windows(token.len()).any(|part| part == token.as_bytes());
            assert!(!is_there, "the token itself is kept in {:?}", file.path());
        }
        web.stop();
        bench.prove();
    });
}

#[test]
fn several_commands_of_a_job_are_told_apart_under_their_one_correlation() {
    let bench = keeper("");
    let web = Web::serve(&bench);
    let job = start(&bench, "keep", &[]);
    let (_, token) = given(&bench);
    for (id, args) in [("first", vec!["-l"]), ("second", vec!["-a"])] {
        let arguments = json!({"file": "ls", "args": args, "request_id": id});
        let (_, answer) = call(&web, &token, "execute_process", arguments);
        assert_eq!(answer["result"]["structuredContent"]["status"], "ok", "{answer}");
    }
    for (id, argument) in [("first", "-l"), ("second", "-a")] {
        let invocations = shown(
            &bench,
            &["audit", "query", "--kind", "invocation", "--request-id", id, "--json"],
        );
        let list = invocations.as_array().unwrap();
        assert_eq!(list.len(), 1, "{id}: {invocations}");
        assert!(
            list[0]["arguments"].to_string().contains(argument),
            "{id}: {invocations}"
        );
        let events = shown(
            &bench,
            &["audit", "query", "--kind", "event", "--request-id", id, "--json"],
        );
        let kinds: Vec<_> = events
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["event_type"].clone())
            .collect();
        assert_eq!(
            kinds,
            [
                "command.received",
                "command.validated",
                "command.dispatched",
                "command.completed"
            ],
            "{id}"
        );
        assert_eq!(events[0]["payload"]["job_id"], json!(job));
    }
    told(&bench, &["jobs", "interrupt", &job]);
    until(&bench, &job, "cancelled");
}

#[test]
fn an_interrupted_job_takes_its_commands_and_questions_with_it() {
    let whitelist = "approval_policy: {whitelist: [{pattern: '^sleep', reason: test, enabled: true}]}\n";
    let bench = keeper(whitelist);
    let web = Web::serve(&bench);
    let job = start(&bench, "keep", &[]);
    let (_, token) = given(&bench);
    std::thread::scope(|scope| {
        let sleeping = json!({"file": "sleep", "args": ["3141"], "timeout_ms": 600_000});
        scope.spawn(|| call(&web, &token, "execute_process", sleeping));
        scope.spawn(|| {
            call(
                &web,
                &token,
                "execute_process",
                json!({"file": "touch", "args": ["made"]}),
            )
        });
        let (question, _) = bench.question();
        let mut pids = Vec::new();
        eventually("the command runs", || {
            pids = sleepers("3141");
            !pids.is_empty()
        });
        told(&bench, &["jobs", "interrupt", &job]);
        until(&bench, &job, "cancelled");
        bench.until(&question, "withdrawn");
        until_gone(&pids);
    });
    assert_eq!(bench.count("SELECT count(*) FROM open_commands"), 0);
    web.stop();
    bench.prove();
}

#[test]
fn a_token_that_a_killed_server_gave_is_refused_by_the_next_and_the_job_gets_another() {
    Bench::wherever(|bench| {
        let bench = keeping(bench, "");
        let mut web = Web::serve(&bench);
        let job = start(&bench, "keep", &[]);
        let (_, old) = given(&bench);
        until(&bench, &job, "running");
        web.kill();
        let web = Web::serve(&bench);
        assert_eq!(call(&web, &old, "execute_process", json!({"file": "ls"})).0, 401);
        let (_, new) = given(&bench);
        assert_ne!(new, old);
        assert_eq!(call(&web, &new, "execute_process", json!({"file": "ls"})).0, 200);
        assert_eq!(tokens_in_force(&bench), 1);
        told(&bench, &["jobs", "interrupt", &job]);
        until(&bench, &job, "cancelled");
        eventually("none stays in force", || tokens_in_force(&bench) == 0);
    });
}

/// A certificate that no agent trusts.
fn with_tls() -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/data");
    let file = |name: &str| data.join(name).display().to_string();
    format!("tls: {{cert: '{}', key: '{}'}}\n", file("cert.pem"), file("key.pem"))
}

/// What one agent does through us is run and recorded with its job.
fn comes_back(player: Player, tool: &str, more: &str) {
    let Some(mut stage) = Stage::set_with(player, &format!("approval_policy: {{mode: never}}\n{more}")) else {
        return;
    };
    let job = stage.start(&format!(r#"[[tool {tool} {{"file": "touch", "args": ["made"]}}]]"#));
    let ended = stage.until(&job, "completed");
    assert!(stage.bench.work().join("made").exists(), "{player:?}: {ended}");
    let query = "SELECT correlation_id FROM jobs";
    let correlation: String = stage.bench.database().query_row(query, [], |row| row.get(0)).unwrap();
    let kinds = story(&stage.bench, &correlation);
    for kind in ["job.started", "command.received", "command.completed", "job.completed"] {
        assert!(
            kinds.iter().any(|it| it == kind),
            "{player:?}: {kind} is missing: {kinds:?}"
        );
    }
    stage.close(&ended);
}

#[test]
fn agents_of_every_driver_come_back_to_us() {
    comes_back(Player::CodexExec, "mcp__countersign/execute_process", "");
    comes_back(Player::Acp, "mcp__countersign/execute_process", "");
    comes_back(Player::Opencode, "countersign_execute_process", "");
}

#[test]
fn agents_come_back_to_a_server_whose_certificate_they_do_not_trust() {
    comes_back(Player::Claude, "mcp__countersign__execute_process", &with_tls());
    comes_back(Player::CodexAppServer, "mcp__countersign/execute_process", &with_tls());
}

#[test]
fn a_job_of_a_process_without_a_door_comes_back_through_the_server_beside_it() {
    for more in [String::new(), with_tls()] {
        let bench = keeper(&more);
        // It knows no agents, so the job is looked after by the other.
        let alone = bench.file("alone.yaml", format!("command_policy: {{path: /nonexistent}}\n{more}"));
        let arguments = ["--listen", "127.0.0.1:0", "--config", alone.to_str().unwrap()];
        let web = Web::serve_with(&bench, &arguments);
        let mut client = Server::start(&bench);
        let id = client.call_later("start-task", json!({"agent": "mine", "prompt": "keep"}));
        let accepted = client.answer(id)["result"]["structuredContent"].clone();
        let job = accepted["jobId"].as_str().unwrap().to_owned();
        let (url, token) = given(&bench);
        assert_eq!(url, format!("http://{}/mcp", web.address()));
        let (status, answer) = call(&web, &token, "command_status", json!({"request_id": "none"}));
        assert_eq!(status, 200, "{answer}");
        assert!(answer.to_string().contains("NOT_FOUND"), "{answer}");
        told(&bench, &["jobs", "interrupt", &job]);
        until(&bench, &job, "cancelled");
        eventually("the token is refused", || {
            call(&web, &token, "command_status", json!({"request_id": "none"})).0 == 401
        });
        client.end();
        web.stop();
        bench.prove();
    }
}

#[test]
fn an_agent_that_outlives_its_server_comes_back_to_the_next_with_the_token_that_it_has() {
    let Some(mut stage) = Stage::set_with(Player::CodexAppServer, "approval_policy: {mode: never}\n") else {
        return;
    };
    let job = stage.start("[[slow 80]]");
    stage.until(&job, "running");
    eventually("the model is asked", || !stage.model.seen.lock().unwrap().is_empty());
    let address = stage.address();
    stage.kill_server();
    stage.serve_on(&address);
    eventually("it is taken up", || stage.recorded("job.session.recovered") == 1);
    let word = r#"[[tool mcp__countersign/execute_process {"file": "touch", "args": ["made"]}]]"#;
    told(&stage.bench, &["jobs", "send", &job, word]);
    let ended = stage.until(&job, "completed");
    assert!(stage.bench.work().join("made").exists(), "{ended}");
    assert_eq!(stage.recorded("token.created"), 1, "it has the token of its first life");
    eventually("the token ends with the job", || tokens_in_force(&stage.bench) == 0);
    stage.close(&ended);
}

/// Processes that sleep for exactly this long.
fn sleepers(seconds: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let wanted = format!("sleep\0{seconds}\0");
    let is_it = |pid: &String| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == wanted.as_bytes());
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(is_it).collect()
}
