//! `exec`: one command from a terminal, through the same pipeline.

use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::bench::Bench;
use crate::client::eventually;

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
fn a_program_that_does_not_exist_is_127_and_one_that_is_refused_126() {
    for (allowed, code) in [("*", 127), ("true", 126)] {
        let output = exec(&Bench::allowing(allowed), &["--", "nosuch"], b"");
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    }
}

#[test]
fn a_timeout_is_124_and_what_was_printed_is_shown() {
    let bench = Bench::allowing("sh,sleep");
    let output = exec(
        &bench,
        &["--timeout-ms", "2000", "--", "sh", "-c", "echo begun; sleep 600"],
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
fn where_the_tool_behind_it_is_switched_off_it_is_refused_and_says_so() {
    let bench = Bench::new().config("tools: {execute_process: {enabled: false}}\n");
    let output = exec(&bench, &["--", "ls"], b"");
    let why = "countersign: refused: `execute_process`, by which this runs, is switched off under `tools` in the configuration\n";
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(126), why));
}

#[test]
fn standard_input_is_passed_on() {
    let bench = Bench::allowing("cat,wc");
    let output = exec(&bench, &["--", "cat"], b"given\n");
    assert_eq!((text(&output.stdout), output.status.code()), ("given\n", Some(0)));
    let output = exec(&bench, &["--", "wc", "-c"], &vec![b'x'; 1 << 20]);
    assert_eq!(text(&output.stdout), "1048576\n");
    let output = exec(&bench, &["--", "cat"], b"\xff\0");
    assert_eq!(
        (output.stdout.as_slice(), output.status.code()),
        (&b"\xff\0"[..], Some(0))
    );
    // More than a call may bring.
    let output = exec(&bench, &["--", "wc", "-c"], &vec![b'x'; (8 << 20) + 1]);
    assert_eq!(text(&output.stdout), "8388609\n");
    let received = "SELECT payload FROM flow_events WHERE event_type = 'command.received' ORDER BY seq";
    assert!(bench.column(received)[0].contains("\"input_streamed\":true"));
}

/// `exec` with a standard input that somebody holds open.
fn held_open(bench: &Bench, arguments: &[&str]) -> Child {
    let inner = bench.command();
    let mut command = Command::new(inner.get_program());
    command
        .arg("exec")
        .args(arguments)
        .env_clear()
        .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(bench.work());
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn a_command_begins_and_ends_before_its_input_does() {
    let bench = Bench::allowing("cat,head,true");
    for (arguments, code) in [(&["--", "true"][..], 0), (&["--timeout-ms", "300", "--", "cat"], 124)] {
        let mut child = held_open(&bench, arguments);
        // To wait for a child closes what it reads, unless somebody else has it.
        let _held = child.stdin.take();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{arguments:?}");
    }

    // It reads while more comes, and what it does not read is not waited for.
    let mut child = held_open(&bench, &["--", "cat"]);
    let (mut asked, mut said) = (
        child.stdin.take().unwrap(),
        BufReader::new(child.stdout.take().unwrap()),
    );
    for word in ["one\n", "two\n"] {
        asked.write_all(word.as_bytes()).unwrap();
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, word);
    }
    drop(asked);
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let mut child = held_open(&bench, &["--", "head", "-1"]);
    let mut endless = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || while endless.write_all(&[b'\n'; 4096]).is_ok() {});
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout), output.status.code()), ("\n", Some(0)));
    writer.join().unwrap();
}

#[test]
fn whoever_is_asked_is_told_that_what_is_piped_in_is_not_shown() {
    for (before, told) in [("echo x |", true), ("</dev/null", false), ("true | sleep 1 |", true)] {
        let bench = Bench::new();
        let said = asked_on_a_terminal(&bench, before, "n\n");
        assert!(said.contains("touch canary") && said.contains("[y/N]"), "{said}");
        let line = "reads what is piped into it, which is not shown";
        assert_eq!(said.contains(line), told, "{before}: {said}");
    }
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
    asked_on_a_terminal(bench, "", typed)
}

/// The same with something before it in the line.
fn asked_on_a_terminal(bench: &Bench, before: &str, typed: &str) -> String {
    let inner = bench.command();
    let line = format!(
        "trap : INT; {before} {} exec -- touch canary; echo code=$?",
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
    while let Ok(count @ 1..) = stdout.read(&mut buffer) {
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

#[test]
fn ctrl_c_at_the_question_takes_it_back_and_is_130() {
    let bench = Bench::new();
    let said = on_a_terminal(&bench, "\x03");
    assert!(said.contains("code=130"), "{said}");
    assert!(!said.contains("decided elsewhere"), "{said}");
    assert!(!bench.work().join("canary").exists());
    assert_eq!(bench.column("SELECT state FROM approvals"), ["withdrawn"]);
}

#[test]
fn a_command_that_a_signal_ended_has_the_code_that_shells_give_it() {
    let bench = Bench::allowing("sh");
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139)] {
        let output = exec(&bench, &["--", "sh", "-c", &format!("kill -{signal} $$")], b"");
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("ended by"), "{}", text(&output.stderr));
    }
}

#[test]
fn input_of_what_may_run_twice_is_read_first_and_said_to_be_waited_for() {
    let on_failure = "workspace_root: .\napproval_policy: {mode: on-failure}\ncommand_policy: {allowlist: [cat]}\n";
    let bench = Bench::new().config(on_failure);
    let mut child = held_open(&bench, &["--", "cat"]);
    let mut said = String::new();
    BufReader::new(child.stderr.as_mut().unwrap())
        .read_line(&mut said)
        .unwrap();
    assert!(said.contains("reading standard input to its end"), "{said}");
    child.stdin.take().unwrap().write_all(b"given").unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "given");
}

#[test]
fn only_what_needs_the_current_directory_misses_one_that_was_removed() {
    let bench = Bench::allowing("true");
    let there = bench.work();
    let run = |arguments: &[&str]| {
        let inner = bench.command();
        let mut command = Command::new("sh");
        let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$@\"";
        command
            .args(["-c", script, "sh"])
            .arg(inner.get_program())
            .args(arguments)
            .env_clear()
            .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .current_dir(bench.work())
            .stdin(Stdio::null());
        command.output().unwrap()
    };
    for (arguments, code) in [
        (&["exec", "--", "true"][..], 126),
        (&["exec", "--cwd", ".", "--", "true"], 126),
        (&["exec", "--cwd", there.to_str().unwrap(), "--", "true"], 0),
        (&["audit", "verify"], 0),
        (&["audit", "query", "--kind", "command"], 0),
        (&["doctor"], 1),
    ] {
        let output = run(arguments);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        let told = format!("{told}{}", text(&output.stdout));
        assert!(code == 0 || told.contains("gone (deleted)"), "{arguments:?}: {told}");
    }
}

/// Runs a command that does not end, tells it so by these signals, and gives the exit code.
fn stopped_by(bench: &Bench, through: &[&str], signals: &[&str]) -> Option<i32> {
    let inner = bench.command();
    let words = through.iter().map(|word| (*word).into());
    let mut words = words.chain([inner.get_program().to_owned()]);
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .args(["exec", "--", "sleep", "600"])
        .env_clear()
        .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(bench.work())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let has_table = "SELECT count(*) FROM sqlite_master WHERE name = 'open_commands'";
    let is_made = || bench.state().join("record.db").exists() && bench.count(has_table) == 1;
    let open = "SELECT count(*) FROM open_commands";
    eventually("it runs", || is_made() && bench.count(open) == 1);
    for signal in signals {
        let pid = child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, pid.as_str()])
                .status()
                .unwrap()
                .success()
        );
    }
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), None);
    assert_eq!(bench.count(open), 0, "what was stopped is closed in the record");
    status.code()
}

#[test]
fn whoever_stops_it_finds_the_code_of_their_signal_and_a_record_that_is_closed() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        assert_eq!(
            stopped_by(&Bench::allowing("sleep"), &[], &[signal]),
            Some(code),
            "{signal}"
        );
    }
    let bench = Bench::allowing("sleep");
    let code = stopped_by(&bench, &["nohup"], &["-HUP", "-TERM"]);
    assert_eq!(code, Some(143), "what is to be ignored is ignored");
    bench.prove();
}

#[test]
fn output_is_passed_on_whole_and_byte_for_byte_however_little_is_kept_of_it() {
    let bench = Bench::configured("sh, seq", "output_limit_bytes: 1000\n");
    let output = exec(&bench, &["--", "seq", "300000"], b"");
    let all: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    assert!(text(&output.stdout) == all, "{} bytes", output.stdout.len());
    let output = exec(
        &bench,
        &["--", "sh", "-c", "printf '\\377\\0a' >&2; printf '\\376'"],
        b"",
    );
    assert_eq!((&*output.stdout, &*output.stderr), (&b"\xfe"[..], &b"\xff\0a"[..]));
}

#[test]
fn output_of_a_command_that_may_run_twice_is_that_of_its_last_run_and_what_is_left_out_is_told() {
    let bench = Bench::new().config(
        "workspace_root: .\napproval_policy: {mode: on-failure}\ncommand_policy: {allowlist: [sh, seq]}\n\
         output_limit_bytes: 1000\n",
    );
    let output = exec(&bench, &["--", "seq", "1000"], b"");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("3893 bytes in all, was left out"),
        "{}",
        text(&output.stderr)
    );
    let output = exec(&bench, &["--", "sh", "-c", "printf '\\377'"], b"");
    assert!(text(&output.stderr).contains("not UTF-8"), "{}", text(&output.stderr));
    let output = exec(&bench, &["--", "seq", "3"], b"");
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("1\n2\n3\n", ""));
}

/// `exec` with this script, its output to be read by whoever asked.
fn script(bench: &Bench, script: &str) -> Child {
    bench
        .command()
        .args(["exec", "--", "sh", "-c", script])
        .current_dir(bench.work())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn output_is_passed_on_as_it_comes() {
    let bench = Bench::allowing("sh,sleep");
    let waits = "echo out; echo err >&2; until [ -e told ]; do sleep 0.05; done; echo end";
    let mut child = script(&bench, waits);
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = [stdout.next(), stderr.next()].map(|line| line.unwrap().unwrap());
    assert_eq!(first, ["out", "err"]);
    std::fs::write(bench.work().join("told"), "").unwrap();
    assert_eq!(stdout.next().unwrap().unwrap(), "end");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_command_waits_for_whoever_reads_its_output() {
    let bench = Bench::allowing("sh,seq,touch");
    let mut child = script(&bench, "touch begun; seq 500000; touch done");
    eventually("it runs", || bench.work().join("begun").exists());
    std::thread::sleep(Duration::from_millis(500));
    assert!(!bench.work().join("done").exists(), "nobody has read any of it");
    let mut read = String::new();
    child.stdout.take().unwrap().read_to_string(&mut read).unwrap();
    assert_eq!(read.lines().count(), 500_000);
    assert!(child.wait().unwrap().success());
    assert!(bench.work().join("done").exists());
}

#[test]
fn a_command_that_writes_to_nobody_is_ended_as_by_a_pipe() {
    let bench = Bench::allowing("sh,yes");
    let mut child = script(&bench, "yes");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (line.as_str(), output.status.code(), text(&output.stderr)),
        ("y\n", Some(141), "")
    );
    assert_eq!(bench.count("SELECT count(*) FROM open_commands"), 0);
    bench.prove();
}
