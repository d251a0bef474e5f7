//! Tools that an agent has of its own, governed by us: `approval_prompt` and `hook claude-code`.

mod claude;

use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::Server;
use crate::web::Web;

/// What the tool answers: one text of JSON and nothing else, as Claude Code wants it.
#[track_caller]
fn answer(server: &mut Server, id: i64) -> Value {
    let result = server.answer(id)["result"].clone();
    let text = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(result["content"].as_array().unwrap().len(), 1, "{result}");
    assert!(result.get("structuredContent").is_none(), "{result}");
    assert_ne!(result["isError"], json!(true), "{result}");
    serde_json::from_str(text).unwrap()
}

fn prompt(tool: &str, input: &Value, id: &str) -> Value {
    json!({"tool_name": tool, "input": input, "tool_use_id": id})
}

#[track_caller]
fn asked(server: &mut Server, tool: &str, input: &Value) -> Value {
    let id = server.call_later("approval_prompt", prompt(tool, input, "toolu_1"));
    answer(server, id)
}

fn decide(bench: &Bench, answer: &str, question: &str) {
    let arguments = [answer, question, "--reason", "because"];
    let output = bench.command().args(arguments).env("USER", "ana").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The hook of Claude Code, as it is started.
fn hook(bench: &Bench, event: &str, more: &[&str]) -> Child {
    let mut child = bench
        .command()
        .args(["hook", "claude-code"])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(event.as_bytes()).unwrap();
    child
}

fn event(bench: &Bench, tool: &str, input: Value) -> String {
    json!({"hook_event_name": "PreToolUse", "session_id": "s", "cwd": bench.work(), "permission_mode": "default",
        "tool_name": tool, "tool_input": input, "tool_use_id": "toolu_1"})
    .to_string()
}

/// What the hook decided, and why.
#[track_caller]
fn decision(output: &Output) -> (String, String) {
    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let said = &said["hookSpecificOutput"];
    assert_eq!(said["hookEventName"], "PreToolUse");
    let text = |name: &str| said[name].as_str().unwrap().to_owned();
    (text("permissionDecision"), text("permissionDecisionReason"))
}

#[test]
fn policy_answers_what_it_knows_in_the_form_that_claude_understands() {
    let bench = Bench::new();
    let mut server = Server::start(&bench);
    let input = json!({"command": "ls -l", "description": "to look"});
    assert_eq!(
        asked(&mut server, "Bash", &input),
        json!({"behavior": "allow", "updatedInput": input})
    );
    let bench = Bench::configured("ls", "");
    let mut server = Server::start(&bench);
    let denied = asked(&mut server, "Bash", &json!({"command": "ls; rm x"}));
    assert_eq!(denied["behavior"], "deny");
    assert!(denied["message"].as_str().unwrap().contains("rm"), "{denied}");
    let tool = asked(&mut server, "WebFetch", &json!({"url": "http://example.org"}));
    assert_eq!(tool["behavior"], "deny", "nobody is asked in mode never: {tool}");
    // What cannot be read is a no as well.
    let id = server.call_later("approval_prompt", json!({"tool_name": "Bash", "input": 5}));
    assert_eq!(answer(&mut server, id)["behavior"], "deny");
}

#[test]
fn a_person_decides_on_commands_changes_and_other_tools() {
    let bench = Bench::new();
    let mut server = Server::start(&bench);
    let long = "word ".repeat(200);
    for (tool, input, kind, decision) in [
        ("Bash", json!({"command": "touch made"}), "exec-command", "approve"),
        ("Bash", json!({"command": "touch other"}), "exec-command", "deny"),
        (
            "Write",
            json!({"file_path": "made", "content": long}),
            "apply-patch",
            "approve",
        ),
        ("WebFetch", json!({"url": "http://example.org"}), "tool-call", "deny"),
    ] {
        let id = server.call_later("approval_prompt", prompt(tool, &input, "toolu_1"));
        let (question, details) = bench.question();
        let query = format!("SELECT count(*) FROM approvals WHERE approval_id = '{question}' AND type = '{kind}'");
        assert_eq!(bench.count(&query), 1, "{tool}: {kind}");
        match kind {
            "exec-command" => assert_eq!(details["command"], input["command"], "{details}"),
            "apply-patch" => {
                let change = &details["fileChanges"][0];
                assert_eq!((&change["path"], &change["type"]), (&json!("made"), &json!("create")));
                assert_eq!(change["contentPreview"].as_str().unwrap().chars().count(), 500);
            }
            _ => assert_eq!(details["tool"], tool, "{details}"),
        }
        decide(&bench, decision, &question);
        let said = answer(&mut server, id);
        if decision == "approve" {
            assert_eq!(said, json!({"behavior": "allow", "updatedInput": input}));
        } else {
            assert_eq!(said["behavior"], "deny");
            assert!(said["message"].as_str().unwrap().contains("because"), "{said}");
        }
    }
    server.end();
    bench.prove();
}

#[test]
fn who_waits_too_long_is_told_what_to_do_and_the_same_try_finds_the_answer() {
    let bench = Bench::new().config("answer_within_ms: 300\n");
    let mut server = Server::start(&bench);
    let input = json!({"command": "touch made"});
    let denied = asked(&mut server, "Bash", &input);
    let (question, _) = bench.question();
    assert_eq!(denied["behavior"], "deny");
    let message = denied["message"].as_str().unwrap();
    assert!(
        message.contains(&format!("countersign approve {question}")) && message.contains("same again"),
        "{message}"
    );
    decide(&bench, "approve", &question);
    let id = server.call_later("approval_prompt", prompt("Bash", &input, "toolu_2"));
    assert_eq!(answer(&mut server, id)["behavior"], "allow");
    // A yes is good for one use.
    assert_eq!(asked(&mut server, "Bash", &input)["behavior"], "deny");
}

#[test]
fn a_change_of_what_governs_the_agent_is_never_waved_through() {
    let bench = Bench::new().config("answer_within_ms: 200\napproval_policy: {mode: on-request}\n");
    let mut server = Server::start(&bench);
    let write = |path: &str| json!({"file_path": path, "content": "x"});
    assert_eq!(asked(&mut server, "Write", &write("src/a"))["behavior"], "allow");
    for path in [
        ".claude/settings.json",
        ".countersign/config.yaml",
        "/etc/passwd",
        "../x",
    ] {
        assert_eq!(asked(&mut server, "Write", &write(path))["behavior"], "deny", "{path}");
    }
}

#[test]
fn the_hook_judges_by_itself_where_no_server_runs() {
    let bench = Bench::new();
    let output = hook(&bench, &event(&bench, "Bash", json!({"command": "ls"})), &[]);
    let (decided, _) = decision(&output.wait_with_output().unwrap());
    assert_eq!(decided, "allow");
    for (answer, expected) in [("approve", "allow"), ("deny", "deny")] {
        let child = hook(&bench, &event(&bench, "Bash", json!({"command": "touch made"})), &[]);
        let (question, details) = bench.question();
        assert_eq!(details["command"], "touch made");
        decide(&bench, answer, &question);
        let (decided, reason) = decision(&child.wait_with_output().unwrap());
        assert_eq!(decided, expected, "{reason}");
    }
    bench.prove();
}

#[test]
fn the_hook_asks_the_server_that_runs() {
    let bench = Bench::new();
    let web = Web::serve(&bench);
    let edit = json!({"file_path": "a", "old_string": "x", "new_string": "y"});
    let child = hook(&bench, &event(&bench, "Edit", edit), &[]);
    let (question, details) = bench.question();
    assert_eq!(details["fileChanges"][0]["contentPreview"], "@@\n-x\n+y\n");
    decide(&bench, "approve", &question);
    assert_eq!(decision(&child.wait_with_output().unwrap()).0, "allow");
    let query =
        "SELECT count(*) FROM flow_events WHERE event_type = 'tool.called' AND payload LIKE '%streamable-http%'";
    assert_eq!(bench.count(query), 1, "the call was the server's");
    web.stop();
    bench.prove();
}

#[test]
fn the_hook_says_no_before_claude_gives_up_waiting() {
    let bench = Bench::new();
    let child = hook(
        &bench,
        &event(&bench, "Bash", json!({"command": "touch made"})),
        &["--wait-seconds", "1"],
    );
    let (decided, reason) = decision(&child.wait_with_output().unwrap());
    assert_eq!(decided, "deny");
    assert!(reason.contains("countersign approve"), "{reason}");
}

/// An agent can send signals to what its own user runs, and any end but this one lets the tool through.
#[test]
fn a_hook_that_is_told_to_stop_while_it_waits_says_no() {
    for (signal, is_served) in [("-TERM", true), ("-HUP", false), ("-USR1", false)] {
        let bench = Bench::new();
        let web = is_served.then(|| Web::serve(&bench));
        let child = hook(&bench, &event(&bench, "Bash", json!({"command": "touch made"})), &[]);
        bench.question();
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{signal}: {output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{output:?}");
        if let Some(web) = web {
            web.stop();
        }
    }
}

#[test]
fn whatever_goes_wrong_with_the_hook_the_tool_is_not_used() {
    let blocked = |bench: &Bench, event: &str| {
        let output = hook(bench, event, &[]).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{output:?}");
    };
    let bench = Bench::new();
    for event in ["", "nonsense", "{}", r#"{"hook_event_name": "PreToolUse"}"#] {
        blocked(&bench, event);
    }
    let asks = event(&bench, "Bash", json!({"command": "ls"}));
    let broken = Bench::new().config("approval_policy: {mode: sometimes}\n");
    blocked(&broken, &asks);
    let nowhere = Bench::new().env("COUNTERSIGN_MCP_URL", "http://127.0.0.1:1/mcp");
    blocked(&nowhere, &asks);
    let web = Web::serve(&bench);
    blocked(
        &Bench::new()
            .env("COUNTERSIGN_MCP_URL", web.url())
            .env("COUNTERSIGN_TOKEN", "cs_agent_0"),
        &asks,
    );
    // Events that ask nothing pass.
    let output = hook(&bench, r#"{"hook_event_name": "PostToolUse"}"#, &[])
        .wait_with_output()
        .unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
}
