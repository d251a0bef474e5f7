//! Calls that make no sense get a clear answer, are recorded, and run nothing.

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::Server;

#[test]
fn arguments_that_do_not_fit_are_named_and_nothing_runs() {
    let bench = Bench::allowing("touch,echo,ls");
    let mut server = Server::start(&bench);
    let long = "x".repeat(200_000);
    let many = vec!["x"; 20_000];
    let cases: Vec<(&str, Value, &str)> = vec![
        ("execute_command", json!({}), "command"),
        ("execute_command", json!({"command": ""}), "command"),
        ("execute_command", json!({"command": null}), "command"),
        ("execute_command", json!({"command": ["touch", "canary"]}), "command"),
        ("execute_command", json!({"command": "touch canary\0x"}), "command"),
        (
            "execute_command",
            json!({"command": format!("touch canary {long}")}),
            "command",
        ),
        (
            "execute_command",
            json!({"command": "touch canary", "timeout_ms": 0}),
            "timeout_ms",
        ),
        (
            "execute_command",
            json!({"command": "touch canary", "timeout_ms": -5}),
            "timeout_ms",
        ),
        (
            "execute_command",
            json!({"command": "touch canary", "timeout_ms": 1.5}),
            "timeout_ms",
        ),
        (
            "execute_command",
            json!({"command": "touch canary", "timeout_ms": "5"}),
            "timeout_ms",
        ),
        (
            "execute_command",
            json!({"command": "touch canary", "timeout_ms": true}),
            "timeout_ms",
        ),
        ("execute_command", json!({"command": "touch canary", "cwd": 5}), "cwd"),
        ("execute_command", json!({"command": "touch canary", "cwd": ""}), "cwd"),
        (
            "execute_command",
            json!({"command": "touch canary", "cwd": "a\0b"}),
            "cwd",
        ),
        (
            "execute_command",
            json!({"command": "touch canary", "surprise": 1}),
            "surprise",
        ),
        (
            "execute_command",
            json!({"command": "touch canary", "env": ["A"]}),
            "env",
        ),
        (
            "execute_command",
            json!({"command": "touch canary", "env": {"A": 1}}),
            "env",
        ),
        (
            "execute_command",
            json!({"command": "touch canary", "env": {"A": "x\0y"}}),
            "env",
        ),
        (
            "execute_command",
            json!({"command": "touch canary", "input": 5}),
            "input",
        ),
        (
            "execute_command",
            json!({"command": "touch canary", "request_id": ""}),
            "request_id",
        ),
        (
            "execute_command",
            json!({"command": "touch canary", "request_id": "x".repeat(200)}),
            "request_id",
        ),
        (
            "execute_command",
            json!({"command": "touch canary", "sandbox": "none"}),
            "sandbox",
        ),
        (
            "execute_command",
            json!({"command": "touch canary", "network": true}),
            "network",
        ),
        ("execute_process", json!({"file": "touch"}), "args"),
        ("execute_process", json!({"args": ["canary"]}), "file"),
        ("execute_process", json!({"file": "", "args": []}), "file"),
        ("execute_process", json!({"file": "touch", "args": "canary"}), "args"),
        (
            "execute_process",
            json!({"file": "touch", "args": ["canary", 5]}),
            "args",
        ),
        (
            "execute_process",
            json!({"file": "touch", "args": ["canary", "a\0b"]}),
            "args",
        ),
        (
            "execute_process",
            json!({"file": "touch\0", "args": ["canary"]}),
            "file",
        ),
        (
            "execute_process",
            json!({"file": "touch", "args": ["canary", long]}),
            "argument",
        ),
        ("execute_process", json!({"file": "touch", "args": many}), "arg"),
        (
            "run_command",
            json!({"command": "touch", "args": ["canary"], "working_directory": ".", "cwd": "."}),
            "cwd",
        ),
        (
            "run_command",
            json!({"command": "touch", "args": ["canary"], "working_directory": ""}),
            "working_directory",
        ),
        (
            "run_command",
            json!({"command": "touch", "args": ["canary"], "working_directory": ".", "requested_at": "noon"}),
            "requested_at",
        ),
    ];
    for (tool, arguments, named) in cases {
        let short: String = arguments.to_string().chars().take(120).collect();
        let outcome = server.call(tool, arguments);
        assert!(
            matches!(outcome.code(), "INVALID_ARGUMENTS" | "LIMIT_EXCEEDED"),
            "{short}: {}",
            outcome.text
        );
        assert_eq!(outcome.status(), "rejected", "{short}");
        assert!(outcome.message().contains(named), "{short}: {}", outcome.message());
        bench.recorded(&outcome);
    }
    assert_eq!(std::fs::read_dir(bench.work()).unwrap().count(), 0);
    server
        .call("execute_command", json!({"command": "echo x", "timeout_ms": u64::MAX}))
        .refused("LIMIT_EXCEEDED");
}

#[test]
fn what_cannot_be_read_as_a_line_is_refused_with_its_place() {
    let bench = Bench::allowing("*");
    let mut server = Server::start(&bench);
    for line in [
        "touch 'canary",
        "touch canary &&",
        "if true; then touch canary",
        "touch canary )",
        "| touch canary",
    ] {
        let outcome = server.line(line);
        outcome.refused("COMMAND_NOT_ALLOWED");
        assert!(outcome.message().contains("line "), "{line}: {}", outcome.message());
    }
    assert!(!bench.work().join("canary").exists());
}

#[test]
fn what_only_bash_can_read_runs_where_any_program_may_and_nowhere_else() {
    let lines = [
        ("select x in a b; do echo $x; break; done <<< 2", "b\n"),
        ("for x in a b; { echo $x; }", "a\nb\n"),
        ("x=$(case a in a) echo it;; esac); echo $x", "it\n"),
        ("(case a in a) echo it;; esac)", "it\n"),
        ("f() [[ a == a ]]; f && echo it", "it\n"),
    ];
    let any = Bench::allowing("*");
    let listed = Bench::allowing("echo");
    let (mut free, mut strict) = (Server::start(&any), Server::start(&listed));
    for (line, output) in lines {
        assert_eq!(free.line(line).ok(), output, "{line}");
        let outcome = strict.line(line);
        outcome.refused("COMMAND_NOT_ALLOWED");
        let message = outcome.message();
        assert!(message.contains("cannot be read safely (line 1"), "{line}: {message}");
    }
}

#[test]
fn a_program_that_is_not_there_is_said_to_be_missing() {
    let bench = Bench::allowing("*");
    let mut server = Server::start(&bench);
    for outcome in [server.process("nosuchprogram", &[]), server.line("nosuchprogram")] {
        assert!(
            outcome.is_error && outcome.text.contains("nosuchprogram"),
            "{}",
            outcome.text
        );
    }
}

#[test]
fn calls_outside_the_tools_are_protocol_errors() {
    let bench = Bench::allowing("touch");
    let mut server = Server::start(&bench);
    for (method, params, code) in [
        ("tools/call", json!({"name": "nosuch", "arguments": {}}), -32602),
        (
            "tools/call",
            json!({"name": "Execute_Command", "arguments": {"command": "touch canary"}}),
            -32602,
        ),
        ("tools/call", json!({"arguments": {}}), -32602),
        (
            "tools/call",
            json!({"name": "execute_command", "arguments": "touch canary"}),
            -32602,
        ),
        (
            "tools/call",
            json!({"name": "execute_command", "arguments": ["touch canary"]}),
            -32602,
        ),
        ("nosuch/method", json!({}), -32601),
    ] {
        let id = server.request(method, params.clone());
        let answer = server.answer(id);
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
        assert!(
            answer["error"]["message"]
                .as_str()
                .is_some_and(|message| !message.is_empty())
        );
    }
    server.raw(b"this is not JSON\n\n{\"jsonrpc\": \"2.0\"\n[1,\n\xff\xfe\n");
    server.ping();
    assert_eq!(std::fs::read_dir(bench.work()).unwrap().count(), 0);
}

#[test]
fn the_tools_that_are_always_there_are_listed_with_schemas() {
    let bench = Bench::allowing("ls");
    let mut server = Server::start(&bench);
    let id = server.request("tools/list", json!({}));
    let answer = server.answer(id);
    let tools = answer["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "execute_command",
            "execute_process",
            "run_command",
            "command_status",
            "command_cancel",
            "approval_prompt",
            "owner.feedback.request"
        ]
    );
    for tool in tools {
        // What Claude Code asks before a tool is used is answered in text alone.
        let promises = tool["outputSchema"]["type"] == "object" || tool["name"] == "approval_prompt";
        assert!(tool["inputSchema"]["type"] == "object" && promises, "{tool}");
    }
}
