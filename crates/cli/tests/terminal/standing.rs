//! "Allow from now on": the rule that is shown, the file it is written into, and the servers that take it up.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::pty::Terminal;
use crate::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(30);

/// A client of a `stdio` server.
struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next: i64,
}

impl Client {
    fn start(stage: &Stage) -> Self {
        let mut child = stage
            .command(&["stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (
            child.stdin.take().unwrap(),
            BufReader::new(child.stdout.take().unwrap()),
        );
        let mut client = Self {
            child,
            stdin,
            stdout,
            next: 0,
        };
        client.send(
            "initialize",
            &json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
        );
        client.answer();
        client
    }

    fn send(&mut self, method: &str, params: &Value) {
        self.next += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        writeln!(self.stdin, "{message}")
            .and_then(|()| self.stdin.flush())
            .unwrap();
    }

    fn answer(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the server went away");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == self.next {
                return message;
            }
        }
    }

    fn ask(&mut self, line: &str) {
        self.send(
            "tools/call",
            &json!({"name": "execute_command", "arguments": {"command": line}}),
        );
    }

    fn status(&mut self, line: &str) -> String {
        self.ask(line);
        let answer = self.answer();
        answer["result"]["structuredContent"]["status"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The id of the question about a line.
fn question(stage: &Stage, line: &str) -> String {
    eventually(|| {
        let open: Vec<Value> = serde_json::from_str(&stage.run(&["approvals", "list", "--json"]).stdout).ok()?;
        let found = open.iter().find(|it| it["details"]["command"] == line)?;
        found["requestId"].as_str().map(str::to_owned)
    })
}

#[track_caller]
fn eventually<T>(look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it never comes to be");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn events(stage: &Stage, kind: &str) -> Vec<Value> {
    let all = stage.json(&["audit", "query", "--kind", "event", "--limit", "100000", "--json"]);
    let all = all.as_array().unwrap().clone();
    all.into_iter().filter(|event| event["event_type"] == kind).collect()
}

const OPERATOR: &str = "# mine\nanswer_within_ms: 400 # short\napproval_policy:\n  # rules\n  whitelist:\n    - {pattern: \"^true$\"} # first\n";

#[test]
fn what_is_allowed_from_now_on_runs_unasked_in_every_process() {
    let stage = Stage::new();
    let file = stage.operator(OPERATOR);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let mut one = Client::start(&stage);
    let mut other = Client::start(&stage);
    assert_eq!(one.status("sleep 0"), "pending");
    let id = question(&stage, "sleep 0");

    let ran = stage.run(&["approve", &id[..8], "--always", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout.contains("approved `sleep 0`") && ran.stdout.contains("rule `^sleep 0$` in"),
        "{ran:?}"
    );
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with(OPERATOR), "everything stays:\n{text}");
    let added = &text[OPERATOR.len()..];
    assert!(
        added.contains("    - pattern: \"^sleep 0$\"\n") && added.contains("not_match: [\"sleep 0 more\""),
        "{added}"
    );
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);

    for client in [&mut one, &mut other] {
        let deadline = Instant::now() + PATIENCE;
        while client.status("sleep 0") != "ok" {
            assert!(Instant::now() < deadline, "the rule does not hold");
        }
        assert_eq!(client.status("sleep 0 more"), "pending", "nothing else does");
    }
    let changed = events(&stage, "policy.changed");
    let by: Vec<_> = changed
        .iter()
        .map(|event| event["actor_id"].as_str().unwrap())
        .collect();
    assert_eq!(by, ["policy", "ada", "policy", "policy"], "{changed:#?}");
    assert_eq!(changed[1]["payload"]["rule"]["pattern"], "^sleep 0$");
    let verified = stage.run(&["audit", "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    // A rule is not made twice, nor of what cannot be one.
    one.ask("sleep $(echo 0)");
    let shell = question(&stage, "sleep $(echo 0)");
    let refused = stage.run(&["approve", &shell, "--always", "--yes"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("no rule can be made of this") && refused.stderr.contains("approves it this once"),
        "{refused:?}"
    );
    assert_eq!(
        stage.json(&["approvals", "show", &shell, "--json"])["approval_state"],
        "pending"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn without_a_terminal_a_rule_needs_a_word_and_without_a_file_one_is_made() {
    let stage = Stage::new();
    let mut client = Client::start(&stage);
    client.ask("sleep 0");
    let id = question(&stage, "sleep 0");
    let asked = stage.run(&["approve", &id, "--always"]);
    assert!(asked.code == 2 && asked.stderr.contains("`--yes` answers"), "{asked:?}");
    assert_eq!(
        stage.json(&["approvals", "show", &id, "--json"])["approval_state"],
        "pending"
    );
    let shown = stage.json(&["approve", &id, "--always", "--yes", "--json"]);
    let file = stage.home().join(".config/countersign/config.yaml");
    assert_eq!(
        (shown["rule"]["pattern"].as_str(), shown["rule"]["file"].as_str()),
        (Some("^sleep 0$"), file.to_str())
    );
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(stage.run(&["policy", "check", file.to_str().unwrap()]).code, 0);
    let explained = stage.json(&["policy", "explain", "--json", "--", "sleep", "0"]);
    assert_eq!(explained["verdict"], "allow", "{explained}");
    assert_eq!(
        client.answer()["result"]["structuredContent"]["status"],
        "ok",
        "the call that waited goes on"
    );
}

#[test]
fn a_file_that_cannot_be_edited_safely_is_left_alone_and_the_lines_are_told() {
    let stage = Stage::new();
    let text = "{answer_within_ms: 400}\n";
    let file = stage.operator(text);
    let mut client = Client::start(&stage);
    assert_eq!(client.status("sleep 0"), "pending");
    let id = question(&stage, "sleep 0");
    let ran = stage.run(&["approve", &id, "--always", "--yes"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stderr
            .contains("cannot be edited safely; put these lines in by hand:\napproval_policy:\n  whitelist:\n"),
        "{ran:?}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert_eq!(events(&stage, "policy.refused").len(), 1);
    let names: Vec<_> = fs::read_dir(file.parent().unwrap())
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert_eq!(names, ["config.yaml"], "nothing is left beside it");
}

#[test]
fn a_hangup_reads_the_configuration_again_and_a_broken_one_changes_nothing() {
    let stage = Stage::new();
    let file = stage.operator("command_policy: {timeout_seconds: 20}\n");
    let mut server = stage
        .command(&["serve", "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(server.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(said.any(|line| line.starts_with("console: ")));
    let pid = server.id().to_string();
    let hangup = || assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    let timeouts = || -> Vec<Value> {
        let changed = events(&stage, "policy.changed");
        changed
            .iter()
            .map(|event| event["payload"]["content"]["timeout_seconds"].clone())
            .collect()
    };
    assert_eq!(timeouts(), [json!(20)]);
    fs::write(&file, "command_policy: {timeout_seconds: 10}\n").unwrap();
    hangup();
    assert!(said.any(|line| line == "the configuration was read again"));
    assert_eq!(timeouts(), [json!(20), json!(10)]);
    assert_eq!(events(&stage, "policy.changed")[1]["actor_id"], "SIGHUP");

    fs::write(&file, "command_policy: {timeout_seconds: soon}\n").unwrap();
    hangup();
    let complaint = said.find(|line| line.contains("the old policy stays in force"));
    assert!(complaint.is_some());
    let refused = events(&stage, "policy.refused");
    assert!(
        refused[0]["payload"]["reason"]
            .as_str()
            .unwrap()
            .contains("timeout_seconds"),
        "{refused:?}"
    );
    assert_eq!(timeouts().len(), 2);
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn clients_that_are_there_hear_of_a_tool_that_goes() {
    let stage = Stage::new();
    let file = stage.operator("answer_within_ms: 400\n");
    let mut client = Client::start(&stage);
    assert_eq!(client.status("sleep 0"), "pending");
    let id = question(&stage, "sleep 0");
    fs::write(&file, "answer_within_ms: 400\ntools: {run_command: {enabled: false}}\n").unwrap();
    // Whoever decides rings, and whoever hears it looks at its files.
    assert_eq!(stage.run(&["deny", &id, "--reason", "no"]).code, 0);
    let mut line = String::new();
    while !line.contains("notifications/tools/list_changed") {
        line.clear();
        assert_ne!(client.stdout.read_line(&mut line).unwrap(), 0, "the server went away");
    }
    client.send("tools/list", &json!({}));
    let listed = client.answer()["result"]["tools"].to_string();
    assert!(
        listed.contains("execute_command") && !listed.contains("run_command"),
        "{listed}"
    );
}

#[test]
fn on_a_terminal_the_rule_is_shown_before_anybody_agrees() {
    let stage = Stage::new();
    let text = "answer_within_ms: 400\n";
    let file = stage.operator(text);
    let mut client = Client::start(&stage);
    assert_eq!(client.status("sleep 0"), "pending");
    let id = question(&stage, "sleep 0");
    for (answer, agreed) in [("\r", false), ("y\r", true)] {
        let mut terminal = Terminal::run(&stage, &format!("approve {id} --always"), &[]);
        terminal.until("- pattern: \"^sleep 0$\"");
        terminal.until("agreed? [y/N]");
        terminal.press(answer);
        terminal.until(if agreed {
            "from now on it runs unasked"
        } else {
            "nothing was decided"
        });
        terminal.until(if agreed { "code=0" } else { "code=1" });
        assert_eq!(fs::read_to_string(&file).unwrap() != text, agreed);
        let state = &stage.json(&["approvals", "show", &id, "--json"])["approval_state"];
        assert_eq!(*state == "approved", agreed, "{state}");
    }

    assert_eq!(client.status("sleep 0 0"), "pending");
    let other = question(&stage, "sleep 0 0");
    let mut terminal = Terminal::run(&stage, "approvals watch", &[]);
    terminal.until("sleep 0 0");
    // It has just come, so it is chosen before it is decided.
    terminal.press("kA");
    terminal.until("^sleep 0 0$");
    terminal.until("allow it from now on?");
    terminal.press("y");
    terminal.until("from now on it runs unasked");
    assert_eq!(
        stage.json(&["approvals", "show", &other, "--json"])["approval_state"],
        "approved"
    );
    assert!(fs::read_to_string(&file).unwrap().contains("\"^sleep 0 0$\""));
    terminal.press("q");
    terminal.until("code=0");
}
