//! `approvals`, `approve` and `deny`: what is shown, what is said, and with which exit code.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::pty::Terminal;
use crate::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(20);

/// A server that asks, as long as the test goes on.
struct Asking {
    child: Child,
    stdin: ChildStdin,
}

impl Asking {
    fn start(stage: &Stage) -> Self {
        stage.operator("answer_within_ms: 600000\n");
        let mut child = stage
            .command(&["stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut asking = Self { child, stdin };
        asking.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}));
        asking
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}")
            .and_then(|()| self.stdin.flush())
            .unwrap();
    }

    /// Asks to run a line; gives the id of the question.
    fn ask(&mut self, stage: &Stage, line: &str) -> String {
        let arguments = json!({"command": line, "justification": "it is time"});
        self.ask_for(stage, "execute_command", &arguments, |asked| {
            asked["details"]["command"] == line
        })
    }

    /// Calls a tool; gives the id of the question that it comes to.
    fn ask_for(&mut self, stage: &Stage, tool: &str, arguments: &Value, is_it: impl Fn(&Value) -> bool) -> String {
        let params = json!({"name": tool, "arguments": arguments});
        let id: String = arguments.to_string().chars().take(100).collect();
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
        let deadline = Instant::now() + PATIENCE;
        loop {
            // At first there is no record yet.
            let ran = stage.run(&["approvals", "list", "--json"]);
            let open: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap_or_default();
            if let Some(found) = open.iter().find(|it| is_it(it)) {
                return found["requestId"].as_str().unwrap().to_owned();
            }
            assert!(Instant::now() < deadline, "nothing is asked: {ran:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_waits_is_listed_and_shown_and_what_was_decided_is_kept() {
    let stage = Stage::new();
    let mut asking = Asking::start(&stage);
    let id = asking.ask(&stage, "touch \u{1b}[2Jmade");
    let listed = stage.run(&["approvals", "list"]);
    assert_eq!(listed.code, 0);
    assert!(
        listed.stdout.starts_with(&id[..8]) && listed.stdout.contains("pending") && listed.stdout.contains("touch"),
        "{listed:?}"
    );
    assert!(
        !listed.stdout.contains('\u{1b}'),
        "what steers a terminal is written out: {listed:?}"
    );
    let shown = stage.run(&["approvals", "show", &id[..6]]).stdout;
    for part in [
        &id,
        "mode untrusted",
        "it is time",
        "/bash",
        "workspace-write",
        "no whitelist rule",
    ] {
        assert!(shown.contains(part), "`{part}` is missing: {shown}");
    }
    let json = stage.json(&["approvals", "show", &id, "--json"]);
    assert_eq!(
        (
            &json["requestId"],
            &json["type"],
            &json["status"],
            &json["approval_state"]
        ),
        (&json!(id), &json!("exec-command"), &json!("pending"), &json!("pending"))
    );
    for absent in ["decision", "resolvedAt", "waitingDuration", "decided_by"] {
        assert!(json.get(absent).is_none(), "{json}");
    }
    let denied = stage.run(&["approvals", "deny", &id, "--reason", "not\u{7} now"]);
    assert_eq!((denied.code, denied.stderr.as_str()), (0, ""), "{denied:?}");
    assert!(denied.stdout.starts_with("denied `touch"), "{denied:?}");
    let decided = stage.json(&["approvals", "show", &id, "--json"]);
    assert_eq!(
        (&decided["status"], &decided["decision"], &decided["decided_by"]),
        (&json!("denied"), &json!("deny"), &json!("ada"))
    );
    assert!(decided["waitingDuration"].is_u64() && decided["resolvedAt"].is_string());
    let none = stage.run(&["approvals", "list"]);
    assert_eq!(
        (none.code, none.stdout.as_str(), none.stderr.as_str()),
        (0, "", "nothing waits for a decision\n")
    );
    let listed = |args: &[&str]| stage.json(&[&["approvals", "list", "--json"], args].concat());
    assert_eq!(listed(&["--all"]).as_array().unwrap().len(), 1);
    assert_eq!(listed(&["--status", "denied"])[0]["requestId"], json!(id));
    assert_eq!(listed(&["--status", "approved"]), json!([]));
}

#[test]
fn whatever_is_asked_about_is_shown_whole_and_what_is_not_shown_is_said() {
    let stage = Stage::new();
    let mut asking = Asking::start(&stage);
    let content = format!("first line\n{}the end", "x".repeat(600));
    let write = json!({"tool_name": "Write", "input": {"file_path": "notes.txt", "content": content}});
    let id = asking.ask_for(&stage, "approval_prompt", &write, |it| it["type"] == "apply-patch");
    let shown = stage.run(&["approvals", "show", &id]).stdout;
    for part in [
        "notes.txt (create)",
        "first line",
        "of one change only the first 500 characters are shown",
    ] {
        assert!(shown.contains(part), "`{part}` is missing: {shown}");
    }
    let fetch = json!({"tool_name": "WebFetch", "input": {"url": "https://example.org/\u{202e}x"}});
    let id = asking.ask_for(&stage, "approval_prompt", &fetch, |it| it["type"] == "tool-call");
    let shown = stage.run(&["approvals", "show", &id]).stdout;
    assert!(
        shown.contains("WebFetch") && shown.contains("https://example.org/\\u{202e}x"),
        "{shown}"
    );
    // What runs does not hide behind what looks like a key; what is behind the end of what is shown is said.
    let script = format!("-----BEGIN PRIVATE KEY-----\n{}\nrm -rf ~", "true\n".repeat(1_000));
    let hidden = json!({"file": "bash", "args": ["-c", &script], "input": "y\n".repeat(2_000), "env": {"MODE": "z".repeat(300)}});
    let id = asking.ask_for(&stage, "execute_process", &hidden, |it| it["tool"] == "execute_process");
    let shown = stage.run(&["approvals", "show", &id]).stdout;
    for part in [
        "characters of the command are withheld as secrets, and count all the same",
        "only the first 2000 of 4000 characters of its input are shown",
        "only the first 200 of 300 characters of `MODE` are shown",
    ] {
        assert!(shown.contains(part), "`{part}` is missing: {shown}");
    }
    assert!(shown.contains("rm -rf ~"), "{shown}");
}

#[test]
fn deciding_says_what_came_of_it() {
    let stage = Stage::new();
    let mut asking = Asking::start(&stage);
    let id = asking.ask(&stage, "touch made");
    let approved = stage.run(&["approve", &id, "--reason", "fine"]);
    assert_eq!(
        (approved.code, approved.stdout),
        (0, format!("approved `touch made` ({})\n", &id[..8]))
    );
    let before = format!(
        "`touch made` ({}) was approved before, by ada: fine; that stands\n",
        &id[..8]
    );
    let again = stage.run(&["approve", &id]);
    assert_eq!((again.code, &again.stdout), (0, &before));
    let other = stage.run(&["deny", &id, "--reason", "no"]);
    assert_eq!((other.code, &other.stdout), (1, &before));
    let json = stage.run(&["approve", &id, "--json"]).json();
    assert_eq!(
        (&json["decision"], &json["decisionReason"]),
        (&json!("allow"), &json!("fine"))
    );
}

#[test]
fn what_names_nothing_is_said_in_our_voice() {
    let stage = Stage::with_record();
    for word in ["nosuch", "%", "..", "é"] {
        let sentence =
            format!("countersign: there is no approval `{word}`; `approvals list --all` shows what there is\n");
        stage.run(&["approve", word]).failed(1, &sentence);
        stage.run(&["approvals", "show", word]).failed(1, &sentence);
    }
    stage
        .run(&["deny", "x", "--reason", " "])
        .failed(2, "countersign: `--reason` must say something; the agent is told\n");
    assert_eq!(stage.run(&["deny", "x"]).code, 2);
    assert_eq!(stage.run(&["approvals", "list", "--status", "perhaps"]).code, 2);
    let nowhere = Stage::new().run(&["approvals", "list"]);
    assert!(
        nowhere.code == 1 && nowhere.stderr.contains("there is no record in"),
        "{nowhere:?}"
    );
}

#[test]
fn looking_signs_nothing() {
    let stage = Stage::with_record();
    let size = || stage.run(&["audit", "verify"]).stdout;
    let before = size().split(" proved").next().map(str::to_owned);
    stage.run(&["approvals", "list", "--all"]);
    assert_eq!(size().split(" proved").next().map(str::to_owned), before);
}

/// What a process prints, as it comes.
fn heard(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = channel();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

#[test]
fn watching_into_a_pipe_prints_what_comes_and_goes() {
    let stage = Stage::new();
    let mut asking = Asking::start(&stage);
    let first = asking.ask(&stage, "touch one");
    let mut watch = stage
        .command(&["approvals", "watch"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = heard(&mut watch);
    let next = || lines.recv_timeout(PATIENCE).unwrap();
    assert!(next().starts_with(&first[..8]));
    let second = asking.ask(&stage, "touch two");
    let line = next();
    assert!(line.starts_with(&second[..8]) && line.contains("pending"), "{line}");
    stage.run(&["deny", &first, "--reason", "no"]);
    let line = next();
    assert!(line.starts_with(&first[..8]) && line.contains("denied"), "{line}");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn watching_on_a_terminal_that_only_adds_lines_prints_lines() {
    let stage = Stage::new();
    let mut asking = Asking::start(&stage);
    let first = asking.ask(&stage, "touch one");
    let mut terminal = Terminal::run(&stage, "approvals watch", &[("TERM", "dumb")]);
    let seen = terminal.until(&first[..8]);
    assert!(!seen.contains('\u{1b}'), "{seen:?}");
}

#[test]
fn watching_on_a_terminal_decides_by_single_keys() {
    let stage = Stage::new();
    let mut asking = Asking::start(&stage);
    let first = asking.ask(&stage, "touch one");
    let second = asking.ask(&stage, "touch two");
    let mut terminal = Terminal::run(&stage, "approvals watch", &[]);
    let state = |id: &str| stage.json(&["approvals", "show", id, "--json"])["approval_state"].clone();
    terminal.until("2 questions wait");
    // Down to the second, and deny it with a reason.
    terminal.press("jd");
    terminal.until("deny because");
    terminal.press("no need\r");
    terminal.until("denied `touch two`");
    assert_eq!(state(&second), "denied");
    assert_eq!(
        stage.json(&["approvals", "show", &second, "--json"])["decisionReason"],
        "no need"
    );
    // It came into the other's place, so it is chosen once more.
    terminal.press("ka");
    terminal.until("approved `touch one`");
    assert_ne!(state(&first), "pending");
    terminal.press("q");
    terminal.until("code=0");
}
