//! `exec`: one command from a terminal, through the same pipeline.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::bench::Bench;

fn exec(bench: &Bench, arguments: &[&str], input: &[u8]) -> Output {
    // A session of its own has no terminal to ask at.
    let inner = bench.command();
    let mut command = Command::new("setsid");
    command
        .arg("--wait")
        .arg(inner.get_program())
        .args(inner.get_args())
        .arg("exec")
        .args(arguments);
    command
        .env_clear()
        .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(bench.work());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_exit_code_is_the_commands() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "sh,true");
        for (script, code) in [("exit 0", 0), ("exit 3", 3), ("exit 255", 255)] {
            let output = exec(&bench, &["--", "sh", "-c", script], b"");
            assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        }
        let output = exec(&bench, &["--", "sh", "-c", "echo out; echo err >&2; exit 4"], b"");
        assert_eq!(
            (text(&output.stdout), text(&output.stderr), output.status.code()),
            ("out\n", "err\n", Some(4))
        );
        assert_eq!(
            bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'command.completed'"),
            4
        );
        bench.prove();
    });
}

#[test]
fn a_timeout_is_124_and_what_was_printed_is_shown() {
    let bench = Bench::allowing("sh,sleep");
    let output = exec(
        &bench,
        &["--timeout-ms", "300", "--", "sh", "-c", "echo begun; sleep 600"],
        b"",
    );
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(124), "begun\n"));
    assert!(text(&output.stderr).contains("timeout"));
}

#[test]
fn a_refusal_is_126_and_says_why() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "true");
        for (arguments, why) in [
            (&["--", "touch", "canary"][..], "touch"),
            (&["--cwd", "missing", "--", "true"], "missing"),
            (&["--timeout-ms", "999999999", "--", "true"], "maximum"),
        ] {
            let output = exec(&bench, arguments, b"");
            assert_eq!(output.status.code(), Some(126), "{arguments:?}");
            assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
        }
        assert!(!bench.work().join("canary").exists());
    });
}

#[test]
fn standard_input_is_passed_on() {
    let bench = Bench::allowing("cat,wc");
    let output = exec(&bench, &["--", "cat"], b"given\n");
    assert_eq!((text(&output.stdout), output.status.code()), ("given\n", Some(0)));
    let output = exec(&bench, &["--", "wc", "-c"], &vec![b'x'; 1 << 20]);
    assert_eq!(text(&output.stdout), "1048576\n");
}

#[test]
fn a_question_without_a_terminal_is_a_refusal() {
    let bench = Bench::new();
    let output = exec(&bench, &["--", "touch", "canary"], b"");
    assert_eq!(output.status.code(), Some(126), "{}", text(&output.stderr));
    let next = "run it at one, or see by `countersign policy explain` which rule asks";
    assert!(text(&output.stderr).contains(next), "{}", text(&output.stderr));
    assert!(!bench.work().join("canary").exists());
    assert_eq!(exec(&bench, &["--", "ls"], b"").status.code(), Some(0));
}

/// Runs `exec` on a terminal of its own and types an answer.
fn on_a_terminal(bench: &Bench, typed: &str) -> String {
    let inner = bench.command();
    let line = format!(
        "{} exec -- touch canary; echo code=$?",
        inner.get_program().to_str().unwrap()
    );
    let mut command = Command::new("script");
    command
        .args(["-qec", &line, "/dev/null"])
        .env_clear()
        .current_dir(bench.work());
    command
        .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("SHELL", "/bin/sh")
        .env("USER", "ann");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut said = String::new();
    let mut stdout = child.stdout.take().unwrap();
    let mut buffer = [0; 4096];
    let mut answered = false;
    while let Ok(count @ 1..) = std::io::Read::read(&mut stdout, &mut buffer) {
        said.push_str(&String::from_utf8_lossy(&buffer[..count]));
        if !answered && said.contains("[y/N]") {
            stdin.write_all(typed.as_bytes()).unwrap();
            answered = true;
        }
    }
    child.wait().unwrap();
    said
}

#[test]
fn the_person_at_the_terminal_is_asked_and_decides() {
    for (typed, runs) in [("y\n", true), ("n\n", false), ("\n", false)] {
        let bench = Bench::new();
        let said = on_a_terminal(&bench, typed);
        assert!(said.contains("touch canary") && said.contains("[y/N]"), "{said}");
        assert_eq!(bench.work().join("canary").exists(), runs, "{said}");
        assert!(said.contains(if runs { "code=0" } else { "code=126" }), "{said}");
        let decided = "SELECT count(*) FROM flow_events WHERE event_type LIKE 'approval.%' AND payload LIKE '%ann%'";
        assert!(bench.count(decided) >= 1, "the decision is not recorded");
    }
}
