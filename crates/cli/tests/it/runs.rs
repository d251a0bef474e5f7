//! Runs with the real binary: set off at the terminal and over REST, done by an agent or by whoever has the
//! run's token, under the policy of their label, and told under one id.

use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::PATIENCE;
use crate::rest::office::{Office, Who};
use crate::web::{Web, legacy};

/// An agent that does what its prompt says.
const AGENT: &str = r#"#!/bin/sh
echo '{"event": "TaskStarted"}'
case $1 in
*ask*)
    echo '{"event": "ApprovalRequired", "requestId": "q1", "type": "exec-command", "command": "touch made", "reason": "it is needed"}'
    read -r answer
    echo '{"event": "TaskComplete", "result": "answered"}' ;;
*hang*) sleep 3000 ;;
*fail*) exit 3 ;;
*env*) echo "{\"event\": \"TaskComplete\", \"result\": \"$CODEXK8S_GIT_BOT_TOKEN,$KUBECONFIG,$GITHUB_TOKEN\"}" ;;
*) echo '{"event": "TaskComplete", "result": "done"}' ;;
esac
"#;

pub(crate) fn bench() -> Bench {
    let bench = Bench::new();
    let agent = bench.program("agent.sh", AGENT);
    let config = format!(
        "agents:\n  - name: mine\n    type: exec\n    command: ['{}']\n    input: open\n    \
         eventParsing: {{format: jsonl, lineDelimited: true, eventTypeField: event}}\n\
         github: {{agent_token: 'theirs-alone', token: 'ours-alone'}}\n\
         kubernetes: {{agent_kubeconfig: '/agents/{{namespace}}.yaml'}}\n\
         runs: {{prompt: \"{{{{ instructions }}}}\\nfor {{{{ repository }}}}#{{{{ issue_number }}}}\"}}\n\
         policies:\n  labels:\n    'run:dev': {{agent: mine, agent_key: dev}}\n    'run:dev:revise': {{agent: mine}}\n    \
         'run:ops': {{agent_key: sre, runtime: full-env}}\n    'run:lost': {{agent: nowhere}}\n    \
         'run:look': {{agent: mine, tools: {{execute_command: {{approval: deny}}}}}}\n",
        agent.display(),
    );
    bench.config(&config)
}

fn run(bench: &Bench, arguments: &[&str]) -> Output {
    bench.command().args(arguments).env("USER", "ana").output().unwrap()
}

#[track_caller]
fn told(bench: &Bench, arguments: &[&str]) -> String {
    let output = run(bench, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
pub(crate) fn shown(bench: &Bench, arguments: &[&str]) -> Value {
    serde_json::from_str(&told(bench, arguments)).unwrap()
}

/// Sets a run off for issue 12 of `acme/shop`.
#[track_caller]
fn start(bench: &Bench, label: &str, words: &str) -> Value {
    let issue = ["runs", "start", "--repository", "acme/shop", "--issue", "12", "--json"];
    shown(bench, &[&issue[..], &["--label", label, words]].concat())
}

fn id(run: &Value) -> &str {
    run["run_id"].as_str().unwrap()
}

/// The run, once this is so.
#[track_caller]
fn until(bench: &Bench, run: &Value, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = shown(bench, &["runs", "show", id(run), "--json"]);
        if is_so(&shown) {
            return shown;
        }
        assert!(Instant::now() < deadline, "it does not come to be {what}: {shown}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn until_status(bench: &Bench, run: &Value, status: &str) -> Value {
    until(bench, run, status, |shown| shown["status"] == status)
}

/// The kinds of all events under the run's id.
fn story(bench: &Bench, run: &Value) -> Vec<String> {
    let correlation = run["correlation_id"].as_str().unwrap();
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

/// A token of the run's agent.
pub(crate) fn token(bench: &Bench, run: &Value, name: &str) -> String {
    let made = shown(
        bench,
        &[
            "tokens",
            "create",
            "--role",
            "agent",
            "--name",
            name,
            "--run",
            id(run),
            "--json",
        ],
    );
    made["token"].as_str().unwrap().to_owned()
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// A client that comes with a run's token.
pub(crate) struct Agent<'a> {
    web: &'a Web,
    headers: String,
}

impl<'a> Agent<'a> {
    pub(crate) fn come(web: &'a Web, token: &str) -> Self {
        let hello =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let session = web.session_with(&bearer(token), &hello);
        Self {
            web,
            headers: format!("{}{session}", bearer(token)),
        }
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        self.web.post("/mcp", &self.headers, &legacy(1, method, params)).1
    }

    pub(crate) fn tools(&self) -> Vec<String> {
        let listed = self.ask("tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }
}

#[test]
fn a_run_is_done_by_its_agent_and_told_under_one_id() {
    let bench = bench();
    let web = Web::serve(&bench);
    let begun = start(&bench, "run:dev", "greet");
    assert_eq!(begun["agent_key"], "dev");
    let ended = until_status(&bench, &begun, "succeeded");
    assert_eq!(ended["session"]["status"], "succeeded", "{ended}");
    assert!(ended["session"]["snapshot_checksum"].is_string(), "{ended}");
    let linked: Vec<&str> = ended["links"]
        .as_array()
        .unwrap()
        .iter()
        .map(|link| link["target"]["type"].as_str().unwrap())
        .collect();
    assert_eq!(linked, ["issue", "session"]);
    let story = story(&bench, &begun);
    for kind in [
        "run.enqueued",
        "run.profile.resolved",
        "run.started",
        "job.created",
        "run.agent.ready",
        "job.completed",
        "run.finished",
    ] {
        let count = story.iter().filter(|it| *it == kind).count();
        assert_eq!(count, 1, "{kind} in {story:?}");
    }
    let job = shown(&bench, &["jobs", "show", ended["job_id"].as_str().unwrap(), "--json"]);
    assert_eq!(job["run_id"], begun["run_id"]);
    assert_eq!(job["input"]["prompt"], "greet\nfor acme/shop#12");
    let map = told(&bench, &["runs", "map"]);
    assert!(map.contains("## [acme/shop#12]") && map.contains(id(&begun)), "{map}");
    let page = told(&bench, &["runs", "show", id(&begun)]);
    assert!(
        page.contains("succeeded") && page.contains("implements issue acme/shop#12"),
        "{page}"
    );
    let named = |name: &str| {
        page.lines()
            .find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
    };
    let conversation = ended["session"]["session_id"].as_str().map(str::to_owned);
    assert!(conversation.is_some(), "{ended}");
    assert_eq!(
        (named("conversation"), named("session")),
        (conversation, None),
        "{page}"
    );
    web.stop();
    told(&bench, &["audit", "verify"]);
}

#[test]
fn a_question_of_a_runs_agent_stops_its_clock_until_it_is_answered() {
    let bench = bench();
    let web = Web::serve(&bench);
    let begun = start(&bench, "run:dev", "ask");
    let waits = until(&bench, &begun, "waiting", |shown| shown["wait_state"] == "mcp");
    assert_eq!(
        (&waits["timer"]["paused"], &waits["timer"]["deadline"]),
        (&json!(true), &Value::Null)
    );
    let left = waits["timer"]["remaining_ms"].clone();
    std::thread::sleep(Duration::from_millis(300));
    let later = shown(&bench, &["runs", "show", id(&begun), "--json"]);
    assert_eq!(
        later["timer"]["remaining_ms"], left,
        "no time goes by while somebody thinks"
    );
    assert_eq!(later["session"]["wait_state"], "mcp");
    let question = later["approvals"][0]["requestId"].as_str().unwrap();
    told(&bench, &["approve", question]);
    let ended = until_status(&bench, &begun, "succeeded");
    assert!(ended["timer"]["remaining_ms"].as_u64() <= left.as_u64());
    let story = story(&bench, &begun);
    let count = |kind: &str| story.iter().filter(|it| *it == kind).count();
    // One of the question's own clock, one of the run's.
    assert_eq!(
        (count("run.wait.paused"), count("run.wait.resumed")),
        (2, 2),
        "{story:?}"
    );
    web.stop();
}

#[test]
fn nothing_more_is_said_in_the_conversation_of_a_run_that_has_ended() {
    let bench = bench();
    let web = Web::serve(&bench);
    let ended = until_status(&bench, &start(&bench, "run:dev", "greet"), "succeeded");
    let said = run(&bench, &["jobs", "send", ended["job_id"].as_str().unwrap(), "and more"]);
    let told = String::from_utf8(said.stderr).unwrap();
    assert_eq!(said.status.code(), Some(1), "{told}");
    assert!(
        told.contains(id(&ended)) && told.contains("set off another run"),
        "{told}"
    );
    assert_eq!(shown(&bench, &["jobs", "list", "--json"]).as_array().unwrap().len(), 1);
    web.stop();
}

#[test]
fn what_a_runs_label_denies_its_agent_is_denied_without_a_question() {
    let bench = bench();
    let web = Web::serve(&bench);
    let run = start(&bench, "run:look", "ask");
    let ended = until_status(&bench, &run, "succeeded");
    let told = story(&bench, &ended);
    assert!(!told.contains(&"approval.requested".to_owned()), "{told:?}");
    drop(web);
}

#[test]
fn one_run_of_an_issue_works_and_a_revise_waits_for_it() {
    let bench = bench();
    let web = Web::serve(&bench);
    let dev = start(&bench, "run:dev", "hang");
    until_status(&bench, &dev, "running");
    let revise = start(&bench, "run:dev:revise", "greet");
    let again = start(&bench, "run:dev:revise", "greet");
    assert_eq!(again["run_id"], revise["run_id"], "one waits already");
    std::thread::sleep(Duration::from_millis(300));
    until_status(&bench, &revise, "pending");
    told(&bench, &["runs", "cancel", id(&dev), "--reason", "not needed"]);
    let ended = until_status(&bench, &dev, "cancelled");
    assert_eq!(ended["reason"], "not needed");
    until_status(&bench, &revise, "succeeded");
    let job = ended["job_id"].as_str().unwrap();
    until_job_is_over(&bench, job);
    web.stop();
}

/// A server that stops leaves agents at work for the next one to go on with.
#[track_caller]
fn until_job_is_over(bench: &Bench, job: &str) {
    let deadline = Instant::now() + PATIENCE;
    while ["pending", "running"].contains(
        &shown(bench, &["jobs", "show", job, "--json"])["status"]
            .as_str()
            .unwrap(),
    ) {
        assert!(Instant::now() < deadline, "its job goes on");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_run_whose_agent_fails_or_is_not_there_or_whose_time_is_over_fails_with_the_reason() {
    let bench = bench();
    let web = Web::serve(&bench);
    let lost = until_status(&bench, &start(&bench, "run:lost", "greet"), "failed");
    assert!(lost["reason"].as_str().unwrap().contains("`nowhere`"), "{lost}");
    let slow = shown(
        &bench,
        &[
            "runs",
            "start",
            "--label",
            "run:dev",
            "--timeout-ms",
            "300",
            "--json",
            "hang",
        ],
    );
    let slow = until_status(&bench, &slow, "failed");
    assert!(slow["reason"].as_str().unwrap().starts_with("timeout"), "{slow}");
    until_job_is_over(&bench, slow["job_id"].as_str().unwrap());
    web.stop();
}

#[test]
fn a_runs_token_shows_what_its_run_may_use_and_hides_the_rest_like_what_is_not() {
    let bench = bench();
    let web = Web::serve(&bench);
    let begun = start(&bench, "run:ops", "");
    let token = token(&bench, &begun, "agent-of-ops");
    until_status(&bench, &begun, "running");
    let agent = Agent::come(&web, &token);
    let tools = agent.tools();
    let has = |name: &str| tools.iter().any(|tool| tool == name);
    assert!(has("run_status_report") && has("execute_process"), "{tools:?}");
    for hidden in ["self_improve_runs_list", "start-task", "list-jobs"] {
        assert!(!has(hidden), "{hidden} in {tools:?}");
        let unknown: String = hidden.chars().rev().collect();
        let like = |tool: &str| agent.call(tool, json!({})).to_string().replace(tool, "TOOL");
        assert_eq!(like(hidden), like(&unknown), "byte for byte");
    }
    let correlation = begun["correlation_id"].as_str().unwrap();
    let query = [
        "audit",
        "query",
        "--kind",
        "event",
        "--json",
        "--correlation-id",
        correlation,
    ];
    let events = shown(&bench, &query);
    let recorded = |tool: &str| {
        let events = events.as_array().unwrap();
        let of = |event: &&Value| event["event_type"] == "tool.called" && event["payload"]["tool"] == tool;
        let found = events.iter().find(of);
        found.unwrap_or_else(|| panic!("{tool} in {events:?}"))["payload"].clone()
    };
    let hidden = recorded("self_improve_runs_list");
    assert!(hidden["hidden_by"]["rule"].is_string(), "the record knows: {hidden}");
    let unknown = recorded(&"self_improve_runs_list".chars().rev().collect::<String>());
    assert!(unknown["hidden_by"].is_null(), "{unknown}");
    // Nor are tools of runs there for whoever is in none.
    let local = web.session(json!({}));
    let listed = web
        .post("/mcp", &local, &legacy(1, "tools/list", json!({})))
        .1
        .to_string();
    assert!(
        !listed.contains("run_status_report") && !listed.contains("self_improve"),
        "{listed}"
    );
    web.stop();
}

#[test]
fn what_an_agent_reports_and_does_with_a_runs_token_is_the_runs() {
    let bench = bench();
    let web = Web::serve(&bench);
    let begun = start(&bench, "run:ops", "");
    let token = token(&bench, &begun, "reporter");
    let agent = Agent::come(&web, &token);
    let words = "ж".repeat(100);
    let reported = agent.call("run_status_report", json!({"status": words}));
    assert_eq!(
        reported["result"]["structuredContent"]["reported_status"], words,
        "{reported}"
    );
    let long = agent.call("run_status_report", json!({"status": format!("{words}ж")}));
    assert_eq!(
        long["result"]["structuredContent"]["error_code"], "INVALID_ARGUMENTS",
        "{long}"
    );
    let kept = shown(&bench, &["runs", "show", id(&begun), "--json"]);
    assert_eq!(kept["reported_status"], words);
    let done = agent.call("execute_process", json!({"file": "ls", "args": []}));
    assert_eq!(done["result"]["structuredContent"]["status"], "ok", "{done}");
    let story = story(&bench, &begun);
    for kind in ["run.agent.status_reported", "command.completed", "mcp.tool.requested"] {
        assert!(story.iter().any(|it| it == kind), "{kind} in {story:?}");
    }
    told(&bench, &["runs", "cancel", id(&begun)]);
    let deadline = Instant::now() + PATIENCE;
    while web.post("/mcp", &agent.headers, &legacy(2, "ping", json!({}))).0 != 401 {
        assert!(Instant::now() < deadline, "its token outlives the run");
        std::thread::sleep(Duration::from_millis(50));
    }
    web.stop();
}

#[test]
fn a_runs_token_ends_when_its_time_is_over_and_when_it_is_revoked() {
    let bench = bench();
    let web = Web::serve(&bench);
    let begun = start(&bench, "run:ops", "");
    let make = |name: &str, lives: &str| {
        let of = ["tokens", "create", "--role", "agent", "--run", id(&begun), "--json"];
        shown(&bench, &[&of[..], &["--name", name, "--expires-in", lives]].concat())
    };
    let (brief, revoked, good) = (make("brief", "3s"), make("revoked", "1h"), make("good", "1h"));
    let agents = [&brief, &revoked, &good].map(|made| Agent::come(&web, made["token"].as_str().unwrap()));
    let answered = |agent: &Agent<'_>| web.post("/mcp", &agent.headers, &legacy(2, "ping", json!({}))).0;
    told(&bench, &["tokens", "revoke", revoked["id"].as_str().unwrap()]);
    for (agent, why) in agents.iter().zip(["its time is over", "it is revoked"]) {
        let deadline = Instant::now() + PATIENCE;
        while answered(agent) != 401 {
            assert!(Instant::now() < deadline, "it is good though {why}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert_eq!(answered(&agents[2]), 200, "others go on");
    web.stop();
}

#[test]
fn a_run_that_improves_the_house_looks_at_the_runs_of_its_repository() {
    let bench = bench();
    let web = Web::serve(&bench);
    let past = until_status(&bench, &start(&bench, "run:dev", "greet"), "succeeded");
    let elsewhere = shown(
        &bench,
        &[
            "runs",
            "start",
            "--repository",
            "acme/other",
            "--label",
            "run:dev",
            "--json",
            "greet",
        ],
    );
    let improver = start(&bench, "run:self-improve", "");
    let agent = Agent::come(&web, &token(&bench, &improver, "improver"));
    let answer = |tool: &str, arguments: Value| agent.call(tool, arguments)["result"]["structuredContent"].clone();
    let listed = answer("self_improve_runs_list", json!({"limit": 1}));
    assert_eq!(
        (&listed["page"], &listed["has_next"]),
        (&json!(1), &json!(true)),
        "{listed}"
    );
    assert_eq!(listed["items"][0]["run_id"], improver["run_id"], "the newest first");
    let next = answer("self_improve_runs_list", json!({"limit": 1, "page": 2}));
    assert_eq!(next["items"][0]["run_id"], past["run_id"]);
    assert_eq!(next["items"][0]["issue_url"], "https://github.com/acme/shop/issues/12");
    let found = answer("self_improve_run_lookup", json!({"issue_number": 12}));
    assert_eq!(found["items"].as_array().unwrap().len(), 2, "{found}");
    let nothing = answer("self_improve_run_lookup", json!({}));
    assert_eq!(nothing["error_code"], "INVALID_ARGUMENTS");
    let session = answer("self_improve_session_get", json!({"run_id": id(&past)}));
    assert_eq!(
        session["tmp_file_path"],
        format!("/tmp/codex-sessions/{}/codex-session.json", id(&past))
    );
    assert!(session["codex_session_json"].to_string().contains("greet"), "{session}");
    let foreign = answer("self_improve_session_get", json!({"run_id": id(&elsewhere)}));
    assert_eq!(foreign["error_code"], "NOT_FOUND", "{foreign}");
    web.stop();
}

#[test]
fn an_agent_in_a_run_is_given_its_own_credentials_and_a_cluster_only_with_full_env() {
    let bench = bench();
    let web = Web::serve(&bench);
    for (runtime, kubeconfig) in [("full-env", "/agents/shop-dev.yaml"), ("code-only", "")] {
        let begun = shown(
            &bench,
            &[
                "runs",
                "start",
                "--label",
                "run:dev",
                "--runtime",
                runtime,
                "--namespace",
                "shop-dev",
                "--json",
                "env",
            ],
        );
        let ended = until_status(&bench, &begun, "succeeded");
        let job = shown(&bench, &["jobs", "show", ended["job_id"].as_str().unwrap(), "--json"]);
        let result = job["output"]["result"].as_str().unwrap();
        // What is given is known to the redactor, so that even the agent's own words do not keep it.
        assert!(!result.contains("ours-alone"), "{result}");
        let given: Vec<&str> = result.split(',').collect();
        assert!(!given[0].is_empty(), "{result}");
        assert_eq!(given[1], kubeconfig, "{runtime}: {result}");
    }
    web.stop();
}

#[test]
fn runs_are_set_off_and_called_back_over_rest_by_operators_only() {
    let bench = bench();
    let office = Office::open(&bench);
    let order = json!({"repository": "acme/shop", "issue_number": 7, "label": "run:ops", "title": "Mend it"});
    for role in ["approver", "viewer", "agent"] {
        office
            .post(Who::Role(role), "/runs", order.clone())
            .refused(403, "FORBIDDEN");
    }
    let begun = office.post(Who::Role("operator"), "/runs", order.clone()).ok();
    assert_eq!(
        (&begun["runtime"], &begun["agent_key"]),
        (&json!("full-env"), &json!("sre"))
    );
    let listed = office
        .get(Who::Role("viewer"), "/runs?repository=acme/shop&issue_number=7")
        .ok();
    assert_eq!(listed["items"][0]["run_id"], begun["run_id"]);
    let path = format!("/runs/{}", id(&begun));
    assert_eq!(office.get(Who::Role("viewer"), &path).ok()["title"], "Mend it");
    office
        .get(Who::Role("viewer"), "/runs/nothing")
        .refused(404, "NOT_FOUND");
    for bad in [
        json!({"issue_number": 7}),
        json!({}),
        json!({"repository": "acme/shop", "agent_key": "dev"}),
        json!({"instructions": " \n"}),
    ] {
        office
            .post(Who::Role("operator"), "/runs", bad)
            .refused(400, "INVALID_ARGUMENTS");
    }
    let cancel = format!("{path}/cancel");
    office
        .post(Who::Role("viewer"), &cancel, json!({"reason": "x"}))
        .refused(403, "FORBIDDEN");
    let ended = office
        .post(Who::Role("operator"), &cancel, json!({"reason": "enough"}))
        .ok();
    assert_eq!(
        (&ended["status"], &ended["reason"]),
        (&json!("cancelled"), &json!("enough"))
    );
    office
        .post(Who::Role("operator"), &cancel, json!({"reason": "again"}))
        .refused(409, "CONFLICT");
    office.close();
}

#[test]
fn what_makes_no_sense_is_refused_at_the_terminal() {
    let bench = bench();
    for (arguments, status, words) in [
        (&["runs", "start", "--issue", "12"][..], 2, "names its repository"),
        (&["runs", "start", "--label", "bug"][..], 2, "begin with `run:`"),
        (
            &["runs", "start", "--repository", "no-slash", "greet"][..],
            2,
            "owner/name",
        ),
        (&["runs", "start"][..], 2, "nothing to do"),
        (&["runs", "start", "--agent-key", "dev", ""][..], 2, "nothing to do"),
        (&["runs", "start", "--agent-key", "dev", " \n"][..], 2, "nothing to do"),
        (
            &["tokens", "create", "--role", "viewer", "--name", "v", "--run", "r"][..],
            2,
            "its agent's",
        ),
        (
            &["tokens", "create", "--role", "agent", "--name", "a", "--run", "nothing"][..],
            1,
            "there is no run `nothing`",
        ),
        (
            &[
                "tokens",
                "create",
                "--role",
                "agent",
                "--name",
                "a",
                "--run",
                "r",
                "--expires-in",
                "8d",
            ][..],
            2,
            "at most 7d",
        ),
    ] {
        let output = run(&bench, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
