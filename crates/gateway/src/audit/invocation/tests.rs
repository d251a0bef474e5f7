//! The derivation, event by event.

use super::*;
use crate::audit::StoredEnd;
use crate::audit::redact::Config;
use crate::ids::RequestId;

fn entry(event_type: EventType, at: i64, payload: Value) -> Entry {
    Entry {
        event_id: format!("{}-{at}", event_type.as_str()),
        timestamp: Timestamp::from_millis(at),
        correlation_id: "c1".to_owned(),
        event_type,
        payload,
    }
}

fn told(settling: Entry, opening: Option<Entry>, command: Option<StoredCommand>) -> Value {
    let sources = Sources {
        settling,
        opening,
        command,
        session: Some("s1".to_owned()),
    };
    derive(sources).expect("an invocation").to_json()
}

fn received(tool: &str, more: Value) -> Entry {
    let mut payload = json!({"tool": tool, "request_id": "r1", "rpc_id": "4", "session_id": "sha256:aa",
                             "credential": "local", "transport": "stdio"});
    let fields = payload.as_object_mut().expect("an object");
    fields.extend(more.as_object().cloned().unwrap_or_default());
    entry(EventType::CommandReceived, 1_000, payload)
}

fn ended(status: &str, more: Value) -> Entry {
    let mut payload = json!({"tool": "execute_process", "request_id": "r1", "status": status, "exit_code": null});
    let fields = payload.as_object_mut().expect("an object");
    fields.extend(more.as_object().cloned().unwrap_or_default());
    entry(EventType::CommandCompleted, 1_250, payload)
}

fn stored() -> StoredCommand {
    StoredCommand {
        open: None,
        request_id: RequestId::trusted("r1"),
        digest: "d".to_owned(),
        opened_at: Timestamp::from_millis(1_000),
        end: Some(StoredEnd {
            result: json!({"status": "ok", "exit_code": 0, "stdout_bytes": 3, "kept": {"stdout_head": 3}}).to_string(),
            stdout: b"hi\n".to_vec(),
            stderr: Vec::new(),
        }),
    }
}

#[test]
fn a_command_that_went_well_is_told_with_its_whole_result() {
    let opening = received(
        "execute_process",
        json!({"command": "echo", "arguments": ["hi"], "cwd": "sub"}),
    );
    let call = told(ended("ok", json!({"exit_code": 0})), Some(opening), Some(stored()));
    assert_eq!(
        (&call["result"]["stdout"], &call["result"]["exit_code"]),
        (&json!("hi\n"), &json!(0))
    );
    let mut rest = call.clone();
    rest.as_object_mut().expect("an object").remove("result");
    assert_eq!(
        rest,
        json!({
            "invocationId": "command.received-1000", "sessionId": "s1", "requestId": 4, "toolName": "execute_process",
            "arguments": {"file": "echo", "args": ["hi"], "cwd": "sub", "request_id": "r1"}, "status": "ok",
            "startedAt": "1970-01-01T00:00:01.000Z", "finishedAt": "1970-01-01T00:00:01.250Z", "durationMs": 250,
            "correlation_id": "c1",
        })
    );
}

#[test]
fn every_code_of_the_table_is_told_with_its_number() {
    for code in ErrorCode::ALL {
        let end = ended("rejected", json!({"error_code": code.name(), "error_message": "no"}));
        let call = told(end, Some(received("execute_process", json!({}))), None);
        let error = json!({
            "code": code.json_rpc(), "message": "no",
            "data": {"errorCode": code.name(), "details": {}, "retryable": code.retryable(), "correlation_id": "c1"},
        });
        assert_eq!((&call["status"], &call["error"]), (&json!("error"), &error));
        assert_eq!(call.get("result"), None, "an error has no result");
    }
}

#[test]
fn arguments_have_the_names_that_their_tool_gives_them() {
    let common = json!({"command": "c", "arguments": ["a"], "cwd": "d", "timeout_ms": 9_000});
    let cases = [
        (
            "execute_command",
            json!({"command": "c", "cwd": "d", "timeout_ms": 9_000, "request_id": "r1"}),
        ),
        (
            "execute_process",
            json!({"file": "c", "args": ["a"], "cwd": "d", "timeout_ms": 9_000, "request_id": "r1"}),
        ),
        (
            "run_command",
            json!({"command": "c", "args": ["a"], "working_directory": "d", "requested_timeout_seconds": 9,
                   "request_id": "r1"}),
        ),
    ];
    for (tool, expected) in cases {
        assert_eq!(
            Value::Object(arguments(&received(tool, common.clone()))),
            expected,
            "{tool}"
        );
    }
}

#[test]
fn of_input_and_environment_only_the_shape_is_told() {
    let opening = received("execute_command", json!({"input_bytes": 12, "env_names": ["A", "B"]}));
    let told = arguments(&opening);
    assert_eq!(told["input"], "[12 bytes]");
    assert_eq!(told["env"], json!({"A": "[redacted]", "B": "[redacted]"}));
}

#[test]
fn what_runs_out_of_a_variable_is_told() {
    let opening = received(
        "execute_command",
        json!({"env_names": ["A", "B"], "env_run": {"B": "rm -rf work"}}),
    );
    assert_eq!(
        arguments(&opening)["env"],
        json!({"A": "[redacted]", "B": "rm -rf work"})
    );
}

#[test]
fn arguments_that_could_not_be_read_are_told_by_name() {
    let opening = received("execute_command", json!({"fields": ["comand", "env"]}));
    assert_eq!(
        Value::Object(arguments(&opening)),
        json!({"comand": "[not read]", "env": "[not read]"})
    );
}

#[test]
fn an_early_answer_is_what_the_call_was_told() {
    let opening = received("execute_command", json!({"command": "sleep 60"}));
    let answered = entry(
        EventType::ToolAnswered,
        46_000,
        json!({"tool": "execute_command", "status": "ok", "result": {"status": "running"}, "request_id": "r1"}),
    );
    let call = told(answered, Some(opening), None);
    assert_eq!(
        (&call["result"]["status"], &call["durationMs"]),
        (&json!("running"), &json!(45_000))
    );
    assert_eq!(call["invocationId"], "command.received-1000");
}

#[test]
fn a_call_without_a_command_is_told_by_its_one_event() {
    let called = entry(
        EventType::ToolCalled,
        2_000,
        json!({"tool": "nope", "arguments": {"x": 1}, "status": "error", "error": {"code": -32602},
               "started_at": "1970-01-01T00:00:01.990Z", "rpc_id": "\"seven\"", "session_id": "sha256:aa"}),
    );
    let call = told(called, None, None);
    assert_eq!(
        (&call["requestId"], &call["toolName"]),
        (&json!("seven"), &json!("nope"))
    );
    assert_eq!(
        (&call["durationMs"], &call["error"]),
        (&json!(10), &json!({"code": -32602}))
    );
    assert_eq!(call["invocationId"], "tool.called-2000");
}

#[test]
fn a_call_outside_any_session_has_none() {
    let sources = Sources {
        settling: ended("ok", json!({})),
        opening: None,
        command: None,
        session: None,
    };
    let call = derive(sources).expect("an invocation").to_json();
    assert_eq!((call.get("sessionId"), &call["requestId"]), (None, &Value::Null));
    assert_eq!(call["result"]["status"], "ok", "what the closing event knows is left");
}

#[test]
fn a_clock_that_was_set_back_makes_no_negative_time() {
    let mut end = ended("ok", json!({}));
    end.timestamp = Timestamp::from_millis(10);
    assert_eq!(
        told(end, Some(received("execute_command", json!({}))), None)["durationMs"],
        0
    );
}

#[test]
fn other_events_settle_nothing() {
    for kind in EventType::ALL.iter().filter(|kind| !SETTLING.contains(kind)) {
        let sources = Sources {
            settling: entry(*kind, 0, json!({})),
            opening: None,
            command: None,
            session: None,
        };
        assert_eq!(derive(sources), None, "{}", kind.as_str());
    }
}

#[test]
fn arguments_nobody_checked_are_cut_and_redacted() {
    let redactor = Redactor::new(Config::default());
    let long = "x".repeat(limits::ARGUMENT_BYTES_SHOWN);
    let given = json!({
        "request_id": "r1", "input": "hunter22", "env": {"A": "hunter22"}, "password": "hunter22", "long": long,
        "args": ["--token", "hunter22"], ("n".repeat(5_000)): 1,
    });
    let shown = presentable_arguments(&redactor, given.as_object().expect("an object"));
    assert!(!shown.to_string().contains("hunter22"), "{shown}");
    assert_eq!(shown["input"], "[8 bytes]");
    assert_eq!(shown["env"], json!({"A": "[redacted]"}));
    assert_eq!(shown["long"], format!("[{} bytes]", limits::ARGUMENT_BYTES_SHOWN + 2));
    assert_eq!(shown["n".repeat(limits::ARGUMENT_NAME_CHARS_SHOWN)], 1);
    let many: Map<_, _> = (0..1_000).map(|number| (number.to_string(), json!(0))).collect();
    let shown = presentable_arguments(&redactor, &many);
    assert_eq!(shown.as_object().map(Map::len), Some(limits::ARGUMENTS_SHOWN_MAX));
}

#[test]
fn a_clients_id_is_kept_as_it_was_unless_it_is_absurd() {
    let redactor = Redactor::new(Config::default());
    for id in ["0", "-7", "18446744073709551615", "\"a b\"", "\"é\""] {
        assert_eq!(presentable_id(&redactor, id), id);
    }
    let long = Value::from("x".repeat(100_000)).to_string();
    assert_eq!(presentable_id(&redactor, &long).len(), limits::RPC_ID_CHARS_SHOWN + 2);
    assert_eq!(
        presentable_id(&redactor, "\"Bearer abcdefgh\""),
        "\"Bearer [redacted]\""
    );
}

#[test]
fn what_is_nested_deeper_than_anybody_reads_is_cut() {
    let redactor = Redactor::new(Config::default());
    let depth = |value: &Value| -> usize {
        let text = value.to_string();
        text.bytes().filter(|byte| *byte == b'[').count()
    };
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let given = json!({"deep": nested(128), "fine": nested(limits::LEVELS_SHOWN_MAX)});
    let shown = presentable_arguments(&redactor, given.as_object().expect("an object"));
    assert_eq!(shown["fine"], given["fine"]);
    // The marker has a bracket of its own.
    assert_eq!(depth(&shown["deep"]), limits::LEVELS_SHOWN_MAX + 1);
    assert!(shown.to_string().contains("[nested deeper]"), "{shown}");
}
