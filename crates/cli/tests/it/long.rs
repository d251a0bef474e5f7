//! Calls that take longer than a client waits, and names for calls.

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::{Outcome, Server};

fn bench() -> Bench {
    Bench::configured("sh, sleep, echo, touch, cat", "answer_within_ms: 200\n")
}

/// Looks until the command has ended.
fn ended(server: &mut Server, id: &str) -> Outcome {
    loop {
        let outcome = server.call("command_status", json!({"request_id": id, "wait_ms": 5_000}));
        if outcome.status() != "running" {
            return outcome;
        }
    }
}

#[test]
fn a_long_call_answers_running_and_is_looked_at_later() {
    let bench = bench();
    let mut server = Server::start(&bench);
    let first = server.line("sh -c 'echo begun; sleep 1; echo done'");
    assert_eq!((first.status(), first.is_error), ("running", false), "{}", first.text);
    let next =
        "the command goes on; call `command_status` with this `request_id`, and with `wait_ms` to wait for its end";
    assert_eq!(first.structured["next"], next);
    assert!(first.text.contains(next), "{}", first.text);
    assert!(first.text.contains(first.id()));
    let end = ended(&mut server, first.id());
    assert_eq!((end.ok(), end.id()), ("begun\ndone\n", first.id()));
    bench.recorded(&end);
}

#[test]
fn a_command_that_runs_names_the_layers_it_runs_under() {
    let bench = bench();
    let mut server = Server::start(&bench);
    let first = server.line("sh -c 'sleep 1'");
    assert_eq!(first.status(), "running", "{}", first.text);
    let looked = server.call("command_status", json!({"request_id": first.id()}));
    assert_eq!(looked.status(), "running", "{}", looked.text);
    let end = ended(&mut server, first.id());
    end.ok();
    assert!(!end.layers().is_empty());
    assert_eq!((first.layers(), looked.layers()), (end.layers(), end.layers()));
}

#[test]
fn output_is_paged_by_bytes_of_either_stream() {
    let bench = bench();
    let mut server = Server::start(&bench);
    let id = server.line("sh -c 'echo 0123456789; echo abcdef >&2'").id().to_owned();
    ended(&mut server, &id).ok();
    let mut page = |arguments: Value| {
        let mut whole = json!({"request_id": id});
        whole
            .as_object_mut()
            .unwrap()
            .extend(arguments.as_object().unwrap().clone());
        let outcome = server.call("command_status", whole);
        (
            outcome.stdout().to_owned(),
            outcome.stderr().to_owned(),
            outcome.structured["offset"].clone(),
            outcome.structured["next_offset"].clone(),
        )
    };
    let all_err = "abcdef\n";
    assert_eq!(
        page(json!({"offset": 0, "limit": 4})),
        ("0123".into(), all_err.into(), json!(0), json!(4))
    );
    assert_eq!(
        page(json!({"offset": 4, "limit": 4})),
        ("4567".into(), all_err.into(), json!(4), json!(8))
    );
    assert_eq!(
        page(json!({"offset": 8, "limit": 4})),
        ("89\n".into(), all_err.into(), json!(8), Value::Null)
    );
    assert_eq!(page(json!({"offset": 99})).0, "");
    assert_eq!(
        page(json!({"stream": "stderr", "offset": 2, "limit": 2})),
        (String::new(), "cd".into(), json!(2), json!(4))
    );
}

#[test]
fn a_page_reaches_output_that_an_answer_had_no_room_for() {
    let bench = Bench::configured("sh", "output_limit_bytes: 100000\n");
    let mut server = Server::start(&bench);
    let outcome = server.line("sh -c 'i=0; while [ $i -lt 9000 ]; do echo line-$i; i=$((i+1)); done'");
    let id = outcome.id().to_owned();
    assert_eq!(
        (outcome.status(), &outcome.structured["stdout_truncated"]),
        ("ok", &json!(false))
    );
    let (mut offset, mut text) = (json!(0), String::new());
    while !offset.is_null() {
        let page = server.call(
            "command_status",
            json!({"request_id": id, "offset": offset, "limit": 30_000}),
        );
        text.push_str(page.stdout());
        offset = page.structured["next_offset"].clone();
    }
    assert_eq!(text, outcome.stdout());
}

#[test]
fn a_running_command_is_cancelled_by_its_id_once_and_for_all() {
    let bench = bench();
    let mut server = Server::start(&bench);
    let running = server.line("sh -c 'echo begun; sleep 600'");
    assert_eq!(running.status(), "running");
    let mut said = || server.call("command_status", json!({"request_id": running.id()}));
    while said().stdout().is_empty() {}
    for _ in 0..2 {
        let outcome = server.call("command_cancel", json!({"request_id": running.id()}));
        outcome.failed("CANCELLED");
        assert_eq!(outcome.stdout(), "begun\n");
    }
    let after = server.call("command_status", json!({"request_id": running.id()}));
    after.failed("CANCELLED");
    assert_eq!(bench.records(running.id()).len(), 1);
}

#[test]
fn the_same_id_and_content_never_run_twice() {
    Bench::each(|bench| {
        let bench = bench.configure("sh, echo, cat", "answer_within_ms: 30000\n");
        let arguments = json!({"command": "sh -c 'echo ran >> canary; cat canary'", "request_id": "once"});
        let mut server = Server::start(&bench);
        let first = server.call("execute_command", arguments.clone());
        let calls: Vec<i64> = (0..8)
            .map(|_| server.call_later("execute_command", arguments.clone()))
            .collect();
        for call in calls {
            assert_eq!(server.result(call).structured, first.structured);
        }
        let other = server.call(
            "execute_command",
            json!({"command": "echo other", "request_id": "once"}),
        );
        other.refused("CONFLICT");
        server
            .call(
                "execute_process",
                json!({"file": "echo", "args": [], "request_id": "once"}),
            )
            .refused("CONFLICT");
        server.end();
        // Nor after a restart.
        let mut server = Server::start(&bench);
        assert_eq!(
            server.call("execute_command", arguments.clone()).structured,
            first.structured
        );
        server
            .call(
                "execute_command",
                json!({"command": "echo other", "request_id": "once"}),
            )
            .refused("CONFLICT");
        assert_eq!(std::fs::read_to_string(bench.work().join("canary")).unwrap(), "ran\n");
    });
}

#[test]
fn the_same_id_in_another_workspace_is_another_request() {
    let bench = Bench::configured("ls", "");
    bench.file("here", "");
    let arguments = json!({"command": "ls", "request_id": "list"});
    let mut server = Server::start(&bench);
    assert_eq!(server.call("execute_command", arguments.clone()).ok(), "here\n");
    server.end();
    let bench = bench.config("workspace_root: ../outside\napproval_policy: {mode: never}\n");
    let mut server = Server::start(&bench);
    server.call("execute_command", arguments).refused("CONFLICT");
}

#[test]
fn calls_with_the_same_id_at_once_run_once() {
    let bench = bench();
    let mut server = Server::start(&bench);
    let arguments = json!({"command": "sh -c 'echo ran >> canary; sleep 0.05; echo done'", "request_id": "race"});
    let calls: Vec<i64> = (0..16)
        .map(|_| server.call_later("execute_command", arguments.clone()))
        .collect();
    for call in calls {
        let outcome = server.result(call);
        assert!(matches!(outcome.status(), "ok" | "running"), "{}", outcome.text);
    }
    assert_eq!(ended(&mut server, "race").ok(), "done\n");
    assert_eq!(std::fs::read_to_string(bench.work().join("canary")).unwrap(), "ran\n");
}

#[test]
fn an_unknown_id_is_not_found() {
    let bench = bench();
    let mut server = Server::start(&bench);
    for tool in ["command_status", "command_cancel"] {
        let outcome = server.call(tool, json!({"request_id": "nobody"}));
        outcome.refused("NOT_FOUND");
        assert!(outcome.message().contains("nobody"));
        server.call(tool, json!({})).refused("INVALID_ARGUMENTS");
        server.call(tool, json!({"request_id": 5})).refused("INVALID_ARGUMENTS");
    }
}

#[test]
fn an_ended_command_is_answered_from_the_record_after_a_restart() {
    Bench::each(|bench| {
        let bench = bench.configure("sh", "");
        let mut server = Server::start(&bench);
        let outcomes = [
            server.line("sh -c 'echo out; echo err >&2; exit 7'"),
            server.line("sh -c 'echo fine'"),
            server.line("nosuch"),
        ];
        server.end();
        let mut server = Server::start(&bench);
        for outcome in outcomes {
            let again = server.call("command_status", json!({"request_id": outcome.id()}));
            assert_eq!(again.structured, outcome.structured);
        }
    });
}

#[test]
fn a_streamed_call_reports_its_output_as_it_comes() {
    let bench = Bench::configured("sh, sleep", "answer_within_ms: 100\n");
    let mut server = Server::start(&bench);
    let arguments = json!({"command": "sh -c 'echo one; sleep 0.4; echo two'"});
    let call = server.request(
        "tools/call",
        json!({"name": "execute_command", "arguments": arguments, "_meta": {"progressToken": "p"}}),
    );
    // Being streamed, it is waited for past the limit.
    assert_eq!(server.result(call).ok(), "one\ntwo\n");
    let told: String = server
        .notes
        .iter()
        .map(|note| note["params"]["message"].as_str().unwrap_or("").to_owned())
        .collect();
    assert!(told.contains("one") && told.contains("two"), "{:?}", server.notes);
    assert!(server.notes.iter().all(|note| note["params"]["progressToken"] == "p"));
}
