//! How output ends: pipes that close, terminals that must not be steered, lines that come later.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::pty::Terminal;
use crate::stage::{Stage, ran};

#[test]
fn a_reader_that_went_away_ends_a_command_quietly() {
    let stage = Stage::with_record();
    for args in [
        &["audit", "query", "--json"][..],
        &["audit", "query"],
        &["audit", "tail"],
        &["audit", "export"],
        &["policy", "show"],
        &["policy", "explain", "--", "ls"],
        &["config", "show"],
        &["config", "schema"],
        &["completions", "bash"],
    ] {
        assert_eq!(without_reader(&stage, args), (Some(0), String::new()), "{args:?}");
    }
    // It depends on which is seen first, that the command has ended or that nobody reads.
    let (status, said) = without_reader(&stage, &["exec", "--", "ls", "/usr"]);
    assert!(matches!(status, Some(0 | 141)) && said.is_empty(), "{status:?}: {said}");
}

/// How a command ends whose output nobody reads, and what it says of that.
fn without_reader(stage: &Stage, args: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = stage.command(args).stdout(writer).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn nothing_that_steers_a_terminal_comes_through() {
    let stage = Stage::with_record();
    stage
        .listing("ls")
        .run(&["exec", "--", "rm", "\u{1b}]0;owned\u{7}\u{1b}[2J\n\u{202e}"]);
    for args in [
        &["audit", "query"][..],
        &["audit", "query", "--kind", "event"],
        &["audit", "tail", "--no-follow"],
        &["policy", "explain", "--", "\u{1b}[2J"],
        &["doctor"],
    ] {
        let ran = stage.run(args);
        let steering = ran
            .stdout
            .contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}');
        assert!(!ran.stdout.is_empty() && !steering, "{ran:?}");
    }
    assert!(
        stage
            .run(&["audit", "query"])
            .stdout
            .contains("rm \\u{1b}]0;owned\\u{7}\\u{1b}[2J\\n\\u{202e}")
    );
}

#[test]
fn tail_begins_with_the_last_events_and_follows() {
    let stage = Stage::with_record();
    let child = stage
        .command(&["audit", "tail", "--json", "--last", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Ended(child);
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut seq = || -> u64 {
        let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        event["seq"].as_u64().unwrap()
    };
    assert_eq!([seq(), seq()], [4, 5]);
    stage.listing("ls").run(&["exec", "--", "rm", "three"]);
    assert_eq!([seq(), seq()], [6, 7]);
    // Nothing is written any more, and still it notices that nobody reads.
    drop(lines);
    assert!(child.wait().success());
}

#[test]
fn tail_can_begin_with_nothing() {
    let stage = Stage::with_record();
    assert_eq!(stage.run(&["audit", "tail", "--no-follow", "--last", "0"]).stdout, "");
    assert_eq!(stage.run(&["audit", "tail", "--no-follow"]).stdout.lines().count(), 5);
}

#[test]
fn the_record_is_read_while_a_server_runs() {
    let stage = Stage::with_record();
    let mut server = stage.command(&["stdio"]);
    let child = server
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut server = Ended(child);
    let mut asked = server.0.stdin.take().unwrap();
    let mut answers = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    writeln!(asked, "{hello}").unwrap();
    answers.next().unwrap().unwrap();
    // Its policy is another than that of the commands before, so it has written one row; those of its
    // session come while it already answers.
    assert!(stage.json(&["audit", "verify", "--json"])["rows"].as_u64() >= Some(6));
    assert_eq!(stage.json(&["audit", "query", "--json"]).as_array().unwrap().len(), 2);
    assert_eq!(stage.run(&["audit", "export"]).code, 0);
    drop(asked);
    assert!(server.wait().success());
}

/// A child that does not outlive its test.
struct Ended(Child);

impl Ended {
    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match self.0.try_wait().unwrap() {
                Some(status) => return status,
                None => assert!(Instant::now() < deadline, "it goes on for nobody"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn settings_of_the_log_that_cannot_be_understood_are_told() {
    let stage = Stage::with_record();
    for (name, value) in [("COUNTERSIGN_LOG", "a=b=c"), ("COUNTERSIGN_LOG_FORMAT", "xml")] {
        let mut command = stage.command(&["audit", "query"]);
        command.env(name, value);
        let told = ran(command);
        let warning = format!("warning: `{name}` is ");
        assert!(told.code == 0 && told.stderr.starts_with(&warning), "{told:?}");
    }
}

#[test]
fn a_person_who_starts_stdio_by_hand_is_told_what_it_is_for() {
    let stage = Stage::new();
    let mut terminal = Terminal::run(&stage, "stdio", &[]);
    terminal.until("`countersign connect CLIENT` tells them how");
    terminal.press("\u{4}");
    terminal.until("code=0");
}

#[test]
fn a_program_without_dashes_before_it_is_told_where_they_go() {
    let ran = Stage::new().run(&["exec", "ls"]);
    assert!(
        ran.code == 2
            && ran
                .stderr
                .ends_with("put `--` before the program, as in `countersign exec -- ls -l`\n"),
        "{ran:?}"
    );
}
