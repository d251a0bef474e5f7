//! Agent jobs with the real binary: started through tools and at the terminal, decided by people, ended
//! with all that they started, and found again by the next server. Here the agent is a script; the files of
//! this folder have the real ones.

mod astray;
mod chance;
mod codex;
mod other_agents;
mod others;
mod recovery;
mod returning;
mod stage;

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::{PATIENCE, Server};
use crate::web::{Web, legacy};

/// An agent that does what its prompt says.
const AGENT: &str = r#"#!/bin/sh
echo '{"event": "TaskStarted"}'
case $1 in
greet)
    echo '{"event": "AgentMessage", "message": "hello"}'
    echo '{"event": "TaskComplete", "result": "greeted"}' ;;
ask)
    echo '{"event": "ApprovalRequired", "requestId": "q1", "type": "exec-command", "command": "touch made", "reason": "it is needed"}'
    read -r answer
    case $answer in
    *'"allow"'*) touch made; echo '{"event": "TaskComplete", "result": "allowed"}' ;;
    *) echo '{"event": "TaskComplete", "result": "denied"}' ;;
    esac ;;
work)
    echo '{"event": "AgentMessage", "message": "first"}'
    while [ -e "$0" ] && [ ! -e go ]; do sleep 0.05; done
    echo '{"event": "AgentMessage", "message": "second"}'
    echo '{"event": "TaskComplete", "result": "worked"}' ;;
hang)
    setsid sleep 300 &
    echo $! > pids.new
    echo $$ >> pids.new
    mv pids.new pids
    wait ;;
linger)
    trap '' INT TERM
    echo $$ > pids.new
    mv pids.new pids
    echo '{"event": "TaskComplete", "result": "done"}'
    while [ -e "$0" ]; do sleep 0.1; done ;;
fail) exit 3 ;;
spy) ls "$SPIED" > /dev/null 2>&1 && [ -n "$(ls -A "$SPIED")" ] && result=seen || result=hidden
    echo "{\"event\": \"TaskComplete\", \"result\": \"$result\"}" ;;
*) echo '{"event": "TaskComplete", "result": "taken up"}' ;;
esac
"#;

pub(crate) fn bench() -> Bench {
    with_agent(Bench::new(), "")
}

pub(crate) fn with_agent(bench: Bench, more: &str) -> Bench {
    let agent = bench.program("agent.sh", AGENT);
    let state = bench.state();
    let config = format!(
        "agents:\n  - name: mine\n    type: exec\n    command: ['{}']\n    input: open\n    env: {{SPIED: '{}'}}\n    \
         eventParsing: {{format: jsonl, lineDelimited: true, eventTypeField: event}}\n{more}",
        agent.display(),
        state.display()
    );
    bench.config(&config)
}

fn run(bench: &Bench, arguments: &[&str]) -> Output {
    bench.command().args(arguments).env("USER", "ana").output().unwrap()
}

#[track_caller]
pub(crate) fn told(bench: &Bench, arguments: &[&str]) -> String {
    let output = run(bench, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
pub(crate) fn shown(bench: &Bench, arguments: &[&str]) -> Value {
    serde_json::from_str(&told(bench, arguments)).unwrap()
}

/// Starts a job at the terminal.
#[track_caller]
pub(crate) fn start(bench: &Bench, prompt: &str, more: &[&str]) -> String {
    let accepted = shown(bench, &[&["jobs", "start", "--json", prompt], more].concat());
    accepted["jobId"].as_str().unwrap().to_owned()
}

/// The job, once it is in this state.
#[track_caller]
pub(crate) fn until(bench: &Bench, job: &str, status: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = shown(bench, &["jobs", "show", job, "--json"]);
        if shown["status"] == status {
            return shown;
        }
        assert!(Instant::now() < deadline, "it does not become {status}: {shown}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The processes that a hanging agent wrote down, once it did.
fn processes(bench: &Bench) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(text) = fs::read_to_string(bench.work().join("pids")) {
            return text.lines().map(str::to_owned).collect();
        }
        assert!(Instant::now() < deadline, "the agent does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    stat.is_ok_and(|stat| {
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| !rest.trim_start().starts_with('Z'))
    })
}

#[track_caller]
fn until_gone(pids: &[String]) {
    let deadline = Instant::now() + PATIENCE;
    while let Some(left) = pids.iter().find(|pid| runs(pid)) {
        assert!(Instant::now() < deadline, "process {left} stayed");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The types of a session's events, as its file tells them.
fn filed(job: &Value) -> Vec<String> {
    let directory = job["session"]["sessionDir"].as_str().unwrap();
    let text = fs::read_to_string(Path::new(directory).join("events.jsonl")).unwrap();
    let kind = |line: &str| {
        serde_json::from_str::<Value>(line).unwrap()["type"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    text.lines().map(kind).collect()
}

#[track_caller]
fn until_filed(job: &Value, wanted: &str) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let kinds = filed(job);
        if kinds.iter().any(|kind| kind == wanted) {
            return kinds;
        }
        assert!(
            Instant::now() < deadline,
            "the file does not tell `{wanted}`: {kinds:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Calls a tool over HTTP.
fn call(web: &Web, session: &str, id: i64, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    let (_, answer) = web.post("/mcp", session, &legacy(id, "tools/call", params));
    answer["result"]["structuredContent"].clone()
}

#[test]
fn a_task_is_done_by_its_agent_and_told_in_its_files() {
    Bench::each(|bench| {
        let bench = with_agent(bench, "");
        let web = Web::serve(&bench);
        let session = web.session(json!({}));
        let task = json!({"agent": "mine", "prompt": "greet", "sessionName": "greeting"});
        let accepted = call(&web, &session, 1, "start-task", task);
        assert_eq!(accepted["status"], "accepted", "{accepted}");
        let job = accepted["jobId"].as_str().unwrap();
        let status = call(
            &web,
            &session,
            2,
            "job-status",
            json!({"jobId": job, "wait_ms": 30_000}),
        );
        assert_eq!(status["job"]["status"], "completed", "{status}");
        assert_eq!(status["job"]["output"]["result"], "greeted");
        let shown = shown(&bench, &["jobs", "show", job, "--json"]);
        assert_eq!(shown["session"]["sessionName"], "greeting");
        let kinds = until_filed(&shown, "job-completed");
        for kind in ["job-created", "job-started", "codex-agent-message", "job-completed"] {
            assert_eq!(kinds.iter().filter(|it| *it == kind).count(), 1, "{kind}: {kinds:?}");
        }
        let log = told(&bench, &["jobs", "logs", job]);
        assert!(log.contains("codex-agent-message") && log.contains("hello"), "{log}");
        web.stop();
        bench.prove();
    });
}

#[test]
fn a_person_gives_work_at_the_terminal_and_follows_it() {
    let bench = bench();
    let _web = Web::serve(&bench);
    let log = told(&bench, &["jobs", "start", "-f", "greet"]);
    assert!(log.contains("hello") && log.contains("job-completed"), "{log}");
    let list = shown(&bench, &["jobs", "list", "--json"]);
    assert_eq!(
        (&list[0]["agent"], &list[0]["startedBy"]),
        (&json!("mine"), &json!("ana")),
        "{list}"
    );
    let job = start(&bench, "fail", &[]);
    let failed = until(&bench, &job, "failed");
    assert!(
        failed["output"]["error"]["message"].as_str().unwrap().contains('3'),
        "{failed}"
    );
}

#[test]
fn whoever_follows_a_job_is_told_by_the_exit_code_that_it_failed() {
    let bench = bench();
    let _web = Web::serve(&bench);
    let output = run(&bench, &["jobs", "start", "-f", "fail"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("job-failed"),
        "{output:?}"
    );
}

#[test]
fn what_an_agent_asks_is_decided_at_the_terminal() {
    for (answer, result) in [("approve", "allowed"), ("deny", "denied")] {
        let bench = bench();
        let _web = Web::serve(&bench);
        let job = start(&bench, "ask", &[]);
        let (question, details) = bench.question();
        assert_eq!(details["command"], "touch made");
        assert!(!bench.work().join("made").exists());
        told(&bench, &[answer, &question, "--reason", "because"]);
        let ended = until(&bench, &job, "completed");
        assert_eq!(ended["output"]["result"], result);
        assert_eq!(bench.work().join("made").exists(), answer == "approve");
    }
}

#[test]
fn an_interrupted_job_leaves_no_process() {
    Bench::each(|bench| {
        let bench = with_agent(bench, "");
        let _web = Web::serve(&bench);
        let job = start(&bench, "hang", &[]);
        let pids = processes(&bench);
        assert!(pids.iter().all(|pid| runs(pid)));
        told(&bench, &["jobs", "interrupt", &job]);
        until(&bench, &job, "cancelled");
        until_gone(&pids);
    });
}

#[test]
fn a_job_that_takes_too_long_ends_with_all_that_it_started() {
    let bench = bench();
    let _web = Web::serve(&bench);
    let job = start(&bench, "hang", &["--timeout-ms", "1500"]);
    let pids = processes(&bench);
    until(&bench, &job, "timeout");
    until_gone(&pids);
}

#[test]
fn a_server_that_ends_leaves_no_agent_whose_job_has_ended() {
    let bench = bench();
    let web = Web::serve(&bench);
    let job = start(&bench, "linger", &["--agent", "mine"]);
    until(&bench, &job, "completed");
    let pids = processes(&bench);
    assert!(
        pids.iter().all(|pid| runs(pid)),
        "it takes no notice of being told to end"
    );
    web.stop();
    assert!(!pids.iter().any(|pid| runs(pid)));
}

#[test]
fn a_job_of_a_killed_server_is_taken_up_by_the_next_and_ends_once() {
    let bench = bench();
    let mut web = Web::serve(&bench);
    let job = start(&bench, "hang", &[]);
    let pids = processes(&bench);
    until(&bench, &job, "running");
    web.kill();
    let web = Web::serve(&bench);
    let ended = until(&bench, &job, "completed");
    assert_eq!(ended["output"]["result"], "taken up");
    until_gone(&pids);
    let kinds = until_filed(&ended, "job-completed");
    for kind in ["job-created", "job-started", "job-completed"] {
        assert_eq!(kinds.iter().filter(|it| *it == kind).count(), 1, "{kind}: {kinds:?}");
    }
    web.stop();
    bench.prove();
}

#[test]
fn a_message_to_an_agent_at_rest_is_its_next_job() {
    let bench = bench();
    let _web = Web::serve(&bench);
    let first = start(&bench, "greet", &[]);
    until(&bench, &first, "completed");
    let next = shown(&bench, &["jobs", "send", &first, "more", "--json"]);
    let next = next["jobId"].as_str().unwrap();
    assert_ne!(next, first);
    assert_eq!(until(&bench, next, "completed")["output"]["result"], "taken up");
}

#[test]
fn a_message_to_an_agent_at_work_is_its_next_turn_in_the_same_job() {
    let bench = bench();
    let _web = Web::serve(&bench);
    let job = start(&bench, "work", &[]);
    until(&bench, &job, "running");
    for words in ["greet", "more"] {
        assert_eq!(
            shown(&bench, &["jobs", "send", &job[..20], words, "--json"])["jobId"],
            job
        );
    }
    bench.file("go", "");
    let ended = until(&bench, &job, "completed");
    assert_eq!(ended["output"]["result"], "taken up");
    let told = until_filed(&ended, "job-completed");
    let count = |kind: &str| told.iter().filter(|it| *it == kind).count();
    assert_eq!(
        (count("user-message"), count("codex-task-complete")),
        (2, 3),
        "{told:?}"
    );
    assert_eq!((count("process-started"), count("process-crashed")), (3, 0), "{told:?}");
}

#[test]
fn what_a_client_started_ends_with_it_where_no_server_goes_on() {
    let bench = bench();
    let mut server = Server::start(&bench);
    let id = server.call_later("start-task", json!({"agent": "mine", "prompt": "hang"}));
    let accepted = server.answer(id)["result"]["structuredContent"].clone();
    let job = accepted["jobId"].as_str().unwrap();
    let pids = processes(&bench);
    assert!(server.end().success());
    assert_eq!(shown(&bench, &["jobs", "show", job, "--json"])["status"], "cancelled");
    until_gone(&pids);
}

#[test]
fn two_servers_together_run_no_more_jobs_than_may_run() {
    let bench = with_agent(Bench::new(), "jobs: {maxProcesses: 1}\n");
    let _web = Web::serve(&bench);
    let mut other = Server::start(&bench);
    let mut jobs = vec![start(&bench, "hang", &[])];
    let id = other.call_later("start-task", json!({"agent": "mine", "prompt": "hang"}));
    jobs.push(
        other.answer(id)["result"]["structuredContent"]["jobId"]
            .as_str()
            .unwrap()
            .to_owned(),
    );
    processes(&bench);
    let status = |job: &String| shown(&bench, &["jobs", "show", job, "--json"])["status"].clone();
    // Long enough for a second one to be taken, were there a place.
    for _ in 0..20 {
        let running = jobs.iter().filter(|job| status(job) == "running").count();
        assert!(running <= 1, "{running} run");
        std::thread::sleep(Duration::from_millis(100));
    }
    let (first, second) = if status(&jobs[0]) == "running" { (0, 1) } else { (1, 0) };
    assert_eq!(status(&jobs[second]), "pending");
    told(&bench, &["jobs", "interrupt", &jobs[first]]);
    until(&bench, &jobs[second], "running");
    told(&bench, &["jobs", "interrupt", &jobs[second]]);
    until(&bench, &jobs[second], "cancelled");
}

#[test]
fn an_agent_does_not_see_the_state_directory() {
    Bench::each(|bench| {
        let bench = with_agent(bench, "");
        let _web = Web::serve(&bench);
        let job = start(&bench, "spy", &[]);
        assert_eq!(until(&bench, &job, "completed")["output"]["result"], "hidden");
    });
}

#[test]
fn without_an_agent_there_are_no_job_tools_and_work_needs_a_server() {
    let listed = |bench: &Bench| {
        let mut server = Server::start(bench);
        let id = server.request("tools/list", json!({}));
        let tools = server.answer(id)["result"]["tools"].clone();
        let names = tools
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned());
        names
            .filter(|name| name.contains("task") || name.contains("job"))
            .collect::<Vec<_>>()
    };
    // Nothing is found on an empty path, whatever is installed here.
    let alone = Bench::new().config("command_policy: {path: /nonexistent}\n");
    assert!(listed(&alone).is_empty());
    let bench = with_agent(Bench::new(), "command_policy: {path: /usr/bin:/bin}\n");
    assert_eq!(
        listed(&bench),
        ["start-task", "interrupt-task", "job-status", "list-jobs", "job-logs"]
    );
    let refused = run(&bench, &["jobs", "start", "greet"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && said.contains("countersign serve"),
        "{said}"
    );
}

#[test]
fn a_project_adds_no_agents() {
    let bench = Bench::new().config("command_policy: {path: /usr/bin:/bin}\n");
    bench.dir(".countersign");
    bench.file(
        ".countersign/config.yaml",
        "agents: [{name: mine, command: [/bin/true]}]\n",
    );
    let mut server = Server::start(&bench);
    let id = server.request("tools/list", json!({}));
    assert!(!server.answer(id).to_string().contains("start-task"));
    server.end();
    assert!(server.stderr().contains("agents"), "the operator is told");
}

#[test]
fn whoever_waits_hears_at_once_that_the_server_stops() {
    let bench = with_agent(Bench::new(), "shutdown_grace_ms: 60000\n");
    let web = Web::serve(&bench);
    let session = web.session(json!({}));
    let accepted = call(
        &web,
        &session,
        9,
        "start-task",
        json!({"agent": "mine", "prompt": "hang"}),
    );
    let job = accepted["jobId"].as_str().unwrap().to_owned();
    until(&bench, &job, "running");
    let pids = processes(&bench);
    let touch = json!({"name": "execute_process", "arguments": {"file": "touch", "args": ["made"]}});
    let wait = json!({"name": "job-status", "arguments": {"jobId": job, "wait_ms": 45_000}});
    // The one that shows nothing of itself first: it has arrived by the time the other asks.
    let mut waiting: Vec<_> = [wait, touch]
        .into_iter()
        .zip(1..)
        .map(|(params, id)| web.stream("POST", "/mcp", &session, &legacy(id, "tools/call", params)))
        .collect();
    bench.question();
    let began = Instant::now();
    web.stop();
    let heard: Vec<Value> = waiting
        .iter_mut()
        .map(|it| it.until(|message| message["id"].is_i64()))
        .collect();
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "it takes far less than it may"
    );
    assert!(heard[1].to_string().contains("APPROVAL_PENDING"), "{heard:?}");
    let status = &heard[0]["result"]["structuredContent"]["job"]["status"];
    assert_eq!(status, "running", "{heard:?}");
    // The next server goes on with it, by another word than the one that it hangs at.
    let _web = Web::serve(&bench);
    until(&bench, &job, "completed");
    until_gone(&pids);
}
