//! Waiting for a person, with the real binary: asked by one process, decided in another, run once.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::{PATIENCE, Server};

fn touch(name: &str) -> Value {
    json!({"file": "touch", "args": [name]})
}

fn run(bench: &Bench, arguments: &[&str]) -> Output {
    bench.command().args(arguments).env("USER", "ana").output().unwrap()
}

#[track_caller]
fn decide(bench: &Bench, arguments: &[&str]) {
    let output = run(bench, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

fn made(bench: &Bench, name: &str) -> bool {
    bench.work().join(name).exists()
}

/// With little patience, for tests of what happens past it.
fn impatient() -> Bench {
    Bench::new().config("answer_within_ms: 400\n")
}

#[test]
fn approving_in_another_process_releases_the_call_that_waits() {
    Bench::each(|bench| {
        let mut server = Server::start(&bench);
        let call = server.call_later("execute_process", touch("made"));
        let (question, details) = bench.question();
        assert_eq!(details["command"], "touch made");
        assert!(!made(&bench, "made") && !server.has_answered(call));
        let began = Instant::now();
        decide(&bench, &["approve", &question[..8], "--reason", "fine"]);
        let outcome = server.result(call);
        outcome.ok();
        assert!(began.elapsed() < PATIENCE && made(&bench, "made"));
        assert_eq!(bench.approval_state(&question), "applied");
        assert_eq!(
            bench.states(outcome.id()),
            [
                "command.received",
                "command.validated",
                "approval.requested",
                "run.wait.paused",
                "approval.approved",
                "run.wait.resumed",
                "command.dispatched",
                "mcp.tool.applied",
                "command.completed",
            ]
        );
        let who = "SELECT count(*) FROM flow_events WHERE event_type = 'approval.approved' AND actor_type = 'human' AND actor_id = 'ana' AND approval_state = 'approved'";
        assert_eq!(bench.count(who), 1);
        server.end();
        bench.prove();
    });
}

#[test]
fn a_program_that_is_written_over_while_a_person_is_asked_does_not_run() {
    Bench::each(|bench| {
        let mut server = Server::start(&bench);
        let alone = json!({"file": "./mine", "args": []});
        let twice = json!({"command": "./mine && ./mine"});
        for (tool, arguments) in [("execute_process", alone), ("execute_command", twice)] {
            let path = bench.program("mine", fs::read("/usr/bin/true").unwrap());
            let call = server.call_later(tool, arguments);
            let (question, _) = bench.question();
            fs::write(&path, fs::read("/usr/bin/id").unwrap()).unwrap();
            run(&bench, &["approve", &question]);
            let outcome = server.result(call);
            assert!(outcome.text.contains("changed"), "{tool}: {}", outcome.text);
            assert!(!outcome.stdout().contains("uid="), "{tool}: {}", outcome.text);
        }
    });
}

#[test]
fn full_access_that_a_person_grants_is_had_and_told() {
    Bench::each(|bench| {
        let bench = bench.config("approval_policy: {mode: on-request}\n");
        let place = open_outside(&bench).join("made");
        let mut server = Server::start(&bench);
        let mut arguments = json!({"file": "touch", "args": [place]});
        server
            .call("execute_process", arguments.clone())
            .failed("COMMAND_EXIT_NON_ZERO");
        arguments["sandbox"] = json!("danger-full-access");
        arguments["justification"] = json!("it belongs there");
        let call = server.call_later("execute_process", arguments);
        let (question, _) = bench.question();
        decide(&bench, &["approve", &question]);
        let outcome = server.result(call);
        outcome.ok();
        assert!(place.exists());
        let layers = outcome.layers();
        let is_told = |layer: &str| layers.contains(&layer);
        assert!(is_told("rlimits") && is_told("guardian"), "{layers:?}");
        assert!(!is_told("landlock") && !is_told("seccomp"), "{layers:?}");
    });
}

#[test]
fn a_command_that_its_confinement_made_fail_runs_again_without_it_when_a_person_says_so() {
    Bench::each(|bench| {
        let bench = bench.config("approval_policy: {mode: on-failure}\ncommand_policy: {allowlist: [touch]}\n");
        let place = open_outside(&bench).join("made");
        let mut server = Server::start(&bench);
        let call = server.call_later("execute_process", json!({"file": "touch", "args": [place]}));
        let (question, details) = bench.question();
        assert_eq!(details["rule"], "mode on-failure");
        assert!(!place.exists());
        decide(&bench, &["approve", &question]);
        server.result(call).ok();
        assert!(place.exists());
    });
}

/// A directory beside the workspace that everybody may write but for the sandbox.
fn open_outside(bench: &Bench) -> PathBuf {
    let outside = bench.path("outside");
    fs::set_permissions(&outside, Permissions::from_mode(0o777)).unwrap();
    outside
}

#[test]
fn without_the_bell_a_decision_only_comes_a_little_later() {
    let bench = Bench::new();
    let mut server = Server::start(&bench);
    let call = server.call_later("execute_process", touch("made"));
    let (question, _) = bench.question();
    std::fs::remove_dir_all(bench.state().join("wake")).unwrap();
    decide(&bench, &["approve", &question]);
    server.result(call).ok();
    assert!(made(&bench, "made"));
}

#[test]
fn a_denial_reaches_the_call_that_waits_with_its_reason() {
    let bench = Bench::new();
    let mut server = Server::start(&bench);
    let call = server.call_later("execute_process", touch("made"));
    let (question, _) = bench.question();
    decide(&bench, &["deny", &question, "--reason", "not on a Friday"]);
    let outcome = server.result(call);
    outcome.refused("APPROVAL_DENIED");
    assert!(outcome.message().contains("ana") && outcome.message().contains("not on a Friday"));
    assert_eq!(bench.recorded(&outcome)["status"], "rejected");
    assert!(!made(&bench, "made"));
    // Deciding again changes nothing and says what was decided.
    let late = run(&bench, &["approve", &question]);
    assert_eq!(late.status.code(), Some(1));
    let said = String::from_utf8(late.stdout).unwrap();
    assert!(said.contains("was denied before, by ana: not on a Friday"), "{said}");
}

#[test]
fn silence_becomes_a_no() {
    let bench = Bench::new().config("approval_policy: {timeout_ms: 300}\n");
    let mut server = Server::start(&bench);
    let outcome = server.call("execute_process", touch("made"));
    outcome.refused("APPROVAL_EXPIRED");
    assert!(!made(&bench, "made"));
    assert_eq!(
        bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'approval.expired'"),
        1
    );
}

#[test]
fn silence_becomes_a_no_also_when_whoever_asked_is_gone() {
    let bench = Bench::new().config("approval_policy: {timeout_ms: 300}\n");
    let mut server = Server::start(&bench);
    server.call_later("execute_process", touch("made"));
    let (question, _) = bench.question();
    server.kill();
    std::thread::sleep(Duration::from_millis(400));
    let late = run(&bench, &["approve", &question]);
    assert_eq!(late.status.code(), Some(1), "{late:?}");
    assert_eq!(bench.approval_state(&question), "expired");
    let mut server = Server::start(&bench);
    server
        .call("execute_process", touch("made"))
        .refused("APPROVAL_EXPIRED");
    assert!(!made(&bench, "made"));
}

#[test]
fn cancelling_withdraws_the_question() {
    let bench = impatient();
    let mut server = Server::start(&bench);
    let call = server.call_later("execute_process", touch("one"));
    let (question, _) = bench.question();
    server.notify("notifications/cancelled", json!({"requestId": call}));
    bench.until(&question, "withdrawn");
    assert_eq!(run(&bench, &["approve", &question]).status.code(), Some(1));
    // The same by `command_cancel`, when nobody waits any longer.
    let pending = server.call("execute_process", touch("two"));
    assert_eq!(pending.status(), "pending");
    let cancelled = server.call("command_cancel", json!({"request_id": pending.id()}));
    cancelled.failed("CANCELLED");
    assert_eq!(bench.recorded(&cancelled)["status"], "failed");
    assert!(!made(&bench, "one") && !made(&bench, "two"));
    server.end();
    bench.prove();
}

#[test]
fn a_call_answers_pending_and_the_same_call_runs_it_once_after_the_decision() {
    let bench = impatient();
    let mut server = Server::start(&bench);
    let line = json!({"command": "echo x >> log && cat log"});
    let pending = server.call("execute_command", line.clone());
    assert_eq!(pending.status(), "pending");
    let (question, _) = bench.question();
    assert_eq!(pending.structured["approval_id"], question.as_str());
    let again = server.call("execute_command", line.clone());
    assert_eq!(again.structured["approval_id"], question.as_str(), "no second question");
    let status = server.call("command_status", json!({"request_id": pending.id()}));
    assert_eq!(status.status(), "pending");
    decide(&bench, &["approve", &question]);
    assert!(!made(&bench, "log"), "it runs when it is asked for");
    let done = server.call("execute_command", line.clone());
    assert_eq!((done.ok(), done.id()), ("x\n", pending.id()));
    let later = server.call("command_status", json!({"request_id": pending.id()}));
    assert_eq!(later.ok(), "x\n");
    assert_eq!(
        server.call("execute_command", line).status(),
        "pending",
        "an approval is used once"
    );
    server.end();
    bench.prove();
}

#[test]
fn a_changed_argument_is_another_question() {
    let bench = impatient();
    let mut server = Server::start(&bench);
    server.call("execute_process", touch("one"));
    let (question, _) = bench.question();
    decide(&bench, &["approve", &question]);
    for other in [
        touch("two"),
        touch("one "),
        json!({"file": "touch", "args": ["one"], "cwd": ".."}),
    ] {
        assert_ne!(server.call("execute_process", other).status(), "ok");
    }
    assert!(!made(&bench, "one") && !made(&bench, "two"));
    server.call("execute_process", touch("one")).ok();
}

#[test]
fn a_program_of_the_workspace_that_changed_since_the_yes_is_another_question() {
    let bench = impatient();
    let mut server = Server::start(&bench);
    let (good, other) = ("#!/bin/sh\ntouch made\n", "#!/bin/sh\ntouch evil\n");
    let tool = bench.program("tool.sh", good);
    for call in [
        ("execute_process", json!({"file": "./tool.sh", "args": []})),
        ("execute_command", json!({"command": "./tool.sh && true"})),
    ] {
        let mut ask = || server.call(call.0, call.1.clone());
        ask();
        let (question, _) = bench.question();
        decide(&bench, &["approve", &question]);
        // As long as it was, and as old as it says.
        let before = std::fs::metadata(&tool).unwrap().modified().unwrap();
        std::fs::write(&tool, other).unwrap();
        let file = std::fs::File::options().write(true).open(&tool).unwrap();
        file.set_modified(before).unwrap();
        assert_eq!(ask().status(), "pending", "{call:?}");
        assert!(!made(&bench, "evil"), "{call:?}");
        let (again, _) = bench.question();
        decide(&bench, &["deny", &again, "--reason", "it is another"]);
        std::fs::write(&tool, good).unwrap();
    }
}

#[test]
fn a_question_outlives_its_server_and_the_repeated_call_runs_once() {
    for way in ["killed", "ended"] {
        let bench = Bench::new();
        let mut server = Server::start(&bench);
        let named = json!({"file": "touch", "args": ["made"], "request_id": "mine"});
        server.call_later("execute_process", named.clone());
        let (question, _) = bench.question();
        if way == "killed" {
            server.kill();
        } else {
            server.end();
        }
        assert_eq!(bench.approval_state(&question), "pending", "{way}");
        let mut server = Server::start(&bench);
        let status = server.call("command_status", json!({"request_id": "mine"}));
        assert_eq!(status.status(), "pending", "{way}: {}", status.text);
        decide(&bench, &["approve", &question]);
        let done = server.call("execute_process", named.clone());
        assert_eq!((done.status(), done.id()), ("ok", "mine"), "{way}: {}", done.text);
        assert!(made(&bench, "made"));
        std::fs::remove_file(bench.work().join("made")).unwrap();
        let again = server.call("execute_process", named);
        assert_eq!(
            again.structured["audit_id"], done.structured["audit_id"],
            "the first result"
        );
        assert!(!made(&bench, "made"), "{way}: it ran twice");
        assert_eq!(bench.records("mine").len(), 1);
        server.end();
        bench.prove();
    }
}

#[test]
fn an_approval_that_was_given_while_nobody_was_there_is_not_lost() {
    let bench = Bench::new();
    let mut server = Server::start(&bench);
    server.call_later("execute_process", touch("made"));
    let (question, _) = bench.question();
    server.kill();
    decide(&bench, &["approve", &question]);
    // Several starts sweep what was left open; this is not.
    for _ in 0..2 {
        Server::start(&bench).end();
    }
    let mut server = Server::start(&bench);
    server.call("execute_process", touch("made")).ok();
    assert!(made(&bench, "made"));
    assert_eq!(
        bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'command.dispatched'"),
        1
    );
}

#[test]
fn a_server_killed_around_the_decision_neither_loses_it_nor_runs_it_twice() {
    for delay_ms in [0, 1, 3, 6, 10, 15, 25, 40] {
        let bench = Bench::new().config("answer_within_ms: 3000\n");
        let mut server = Server::start(&bench);
        let line = json!({"command": "echo x >> log && cat log"});
        server.call_later("execute_command", line.clone());
        let (question, _) = bench.question();
        let mut approve = bench.command().args(["approve", &question]).spawn().unwrap();
        bench.until_not_pending(&question);
        std::thread::sleep(Duration::from_millis(delay_ms));
        server.kill();
        assert!(approve.wait().unwrap().success());
        let lines = || std::fs::read_to_string(bench.work().join("log")).unwrap_or_default();
        let let_go = bench.approval_state(&question) == "applied";
        let mut server = Server::start(&bench);
        let outcome = server.call("execute_command", line);
        if let_go {
            // It began and its end is unknown: the next one is a new act, and a new question.
            assert_eq!(outcome.status(), "pending", "{delay_ms}: {}", outcome.text);
            assert!(lines().len() <= 2, "{delay_ms}: {}", lines());
        } else {
            assert_eq!((outcome.ok(), lines().as_str()), ("x\n", "x\n"), "{delay_ms}");
        }
        let dispatched = "SELECT count(*) FROM flow_events WHERE event_type = 'command.dispatched'";
        assert_eq!(bench.count(dispatched), 1, "{delay_ms}");
        server.end();
        bench.prove();
    }
}

#[test]
fn two_servers_that_wait_for_one_answer_run_it_once() {
    let bench = Bench::new();
    let mut servers = [Server::start(&bench), Server::start(&bench)];
    let line = json!({"command": "echo x >> log && cat log"});
    let first = servers[0].call_later("execute_command", line.clone());
    let (question, _) = bench.question();
    let second = servers[1].call_later("execute_command", line);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(bench.count("SELECT count(*) FROM approvals"), 1);
    decide(&bench, &["approve", &question]);
    let outcomes = [servers[0].result(first), servers[1].result(second)];
    for outcome in &outcomes {
        assert_eq!(outcome.ok(), "x\n");
    }
    assert_eq!(outcomes[0].id(), outcomes[1].id());
    assert_eq!(
        bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'command.dispatched'"),
        1
    );
    servers.iter_mut().for_each(|server| assert!(server.end().success()));
    bench.prove();
}

#[test]
fn the_time_of_thinking_is_not_the_commands_time() {
    let bench = Bench::new();
    let mut server = Server::start(&bench);
    let call = server.call_later(
        "execute_command",
        json!({"command": "sleep 0.2; echo done", "timeout_ms": 1_500}),
    );
    let (question, _) = bench.question();
    std::thread::sleep(Duration::from_millis(2_000));
    decide(&bench, &["approve", &question]);
    let outcome = server.result(call);
    assert_eq!(outcome.ok(), "done\n");
    let took = outcome.structured["duration_ms"].as_u64().unwrap();
    assert!(took < 1_500, "{took}");
}

#[test]
fn a_command_can_neither_see_the_questions_nor_decide_them() {
    Bench::each(|bench| {
        let bench = bench.config("answer_within_ms: 400\nworkspace_root: .\n");
        let mut server = Server::start(&bench);
        let pending = server.call("execute_process", touch("wanted"));
        let question = pending.structured["approval_id"].as_str().unwrap().to_owned();
        let state = bench.state();
        let state = state.to_str().unwrap();
        let binary = env!("CARGO_BIN_EXE_countersign");
        let attacks = [
            json!({"file": binary, "args": ["approve", question]}),
            json!({"file": binary, "args": ["--state-dir", state, "approve", question]}),
            json!({"file": binary, "args": ["approve", question], "env": {"COUNTERSIGN_STATE_DIR": state}}),
            json!({"file": "ls", "args": ["-a", state]}),
            json!({"command": format!("ls {state}/wake && cat {state}/record.db")}),
        ];
        for attack in attacks {
            let tool = if attack.get("file").is_some() {
                "execute_process"
            } else {
                "execute_command"
            };
            let asked = server.call(tool, attack.clone());
            // Even with a person's yes it finds nothing; the built-in rules let it read no more.
            let mut outcome = match asked.structured["approval_id"].as_str() {
                Some(id) => {
                    decide(&bench, &["approve", id]);
                    server.call(tool, attack.clone())
                }
                None => asked,
            };
            while outcome.status() == "running" {
                outcome = server.call("command_status", json!({"request_id": outcome.id(), "wait_ms": 5_000}));
            }
            assert_eq!(outcome.status(), "failed", "{attack}: {}", outcome.text);
            assert!(!outcome.stdout().contains("record"), "{}", outcome.text);
        }
        assert_eq!(bench.approval_state(&question), "pending");
        assert!(!made(&bench, "wanted"));
    });
}

/// `exec` on a terminal of its own, where nobody types.
fn exec_on_a_terminal(bench: &Bench) -> Child {
    let inner = bench.command();
    let line = format!(
        "{} exec -- touch canary; echo code=$?",
        inner.get_program().to_str().unwrap()
    );
    let mut command = std::process::Command::new("script");
    command
        .args(["-qec", &line, "/dev/null"])
        .env_clear()
        .current_dir(bench.work());
    command
        .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("SHELL", "/bin/sh")
        .env("USER", "ann");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn what_exec_asks_can_be_decided_from_elsewhere() {
    let bench = Bench::new();
    let exec = exec_on_a_terminal(&bench);
    let (question, details) = bench.question();
    assert_eq!(details["command"], "touch canary");
    decide(&bench, &["approve", &question]);
    let said = exec.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("code=0") && said.contains("decided elsewhere"), "{said}");
    assert!(made(&bench, "canary"));
}

#[test]
fn where_nobody_may_approve_themselves_another_person_has_to() {
    let bench = Bench::new().config("approvals: {self: deny}\n");
    let exec = exec_on_a_terminal(&bench);
    let (question, _) = bench.question();
    let own = bench
        .command()
        .args(["approve", &question])
        .env("USER", "ann")
        .output()
        .unwrap();
    assert_eq!(own.status.code(), Some(1), "{own:?}");
    let said = String::from_utf8(own.stderr).unwrap();
    assert_eq!(
        said,
        "countersign: nobody decides what they asked for themselves; another person has to\n"
    );
    assert!(!made(&bench, "canary"));
    decide(&bench, &["approve", &question]);
    let said = exec.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains("waits for another person") && said.contains("code=0"),
        "{said}"
    );
    assert!(made(&bench, "canary"));
}

#[test]
fn several_people_must_agree_where_the_operator_says_so() {
    let bench = Bench::new().config("answer_within_ms: 400\nquorum: 2\n");
    let mut server = Server::start(&bench);
    server.call("execute_process", touch("made"));
    let (question, _) = bench.question();
    for _ in 0..2 {
        decide(&bench, &["approve", &question]);
        assert_eq!(bench.approval_state(&question), "pending");
    }
    let other = bench
        .command()
        .args(["approve", &question])
        .env("USER", "ben")
        .output()
        .unwrap();
    assert!(other.status.success(), "{other:?}");
    assert_eq!(bench.approval_state(&question), "approved");
    let mut outcome = server.call("execute_process", touch("made"));
    while outcome.status() == "running" {
        outcome = server.call("command_status", json!({"request_id": outcome.id()}));
    }
    outcome.ok();
}

#[test]
fn progress_tells_of_the_question_and_the_answer_comes_at_the_limit_too() {
    let bench = impatient();
    let mut server = Server::start(&bench);
    let params = json!({"name": "execute_process", "arguments": touch("made"), "_meta": {"progressToken": "p"}});
    let call = server.request("tools/call", params);
    let outcome = server.result(call);
    assert_eq!(outcome.status(), "pending");
    let waits = format!(
        "waiting for approval {}",
        outcome.structured["approval_id"].as_str().unwrap()
    );
    let told = server
        .notes
        .iter()
        .any(|note| note["params"]["message"] == waits.as_str());
    assert!(told, "{:?}", server.notes);
}
