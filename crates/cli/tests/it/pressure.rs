//! Commands that take all they can get. Each ends as documented, and the server stays small and awake.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::sync::mpsc;

use serde_json::json;

use crate::bench::Bench;
use crate::client::{PATIENCE, Server, eventually};

/// Memory of the server in KiB.
fn resident(server: &Server) -> u64 {
    kib_of(server.pid(), "VmRSS")
}

/// What the kernel says of a process's memory, in KiB.
fn kib_of(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_fork_bomb_hits_its_limit_and_is_gone() {
    Bench::each(|bench| {
        let bench = bench.configure("perl", "  pids_limit: 32\n");
        let mut server = Server::start(&bench);
        let code = "while (1) { my $pid = fork; die qq(no more: $!\n) unless defined $pid; sleep 600 unless $pid }";
        let call = server.call_later(
            "execute_process",
            json!({"file": "perl", "args": ["-e", code], "timeout_ms": 10_000}),
        );
        server.ping();
        let outcome = server.result(call);
        if outcome.layers().contains(&"cgroup") {
            outcome.failed("PROCESS_LIMIT_EXCEEDED");
            assert_eq!(
                outcome.message(),
                "the command started more processes than it may; those beyond the limit were not started; it is \
                 `command_policy.pids_limit`"
            );
        }
        assert_eq!(outcome.status(), "failed", "{}", outcome.text);
        // The next command is not the worse for it.
        assert_eq!(server.process("perl", &["-e", "print qq(fine\n)"]).ok(), "fine\n");
    });
}

#[test]
fn a_memory_hog_hits_its_limit() {
    let bench = Bench::configured("perl", "  memory_limit: 64Mi\n");
    let mut server = Server::start(&bench);
    let code = "my @all; push @all, 'x' x (1 << 20) for 1..2048; print 'done'";
    let outcome = server.process("perl", &["-e", code]);
    assert_eq!((outcome.status(), outcome.stdout()), ("failed", ""), "{}", outcome.text);
    if outcome.layers().contains(&"cgroup") {
        outcome.failed("MEMORY_LIMIT_EXCEEDED");
        let setting = "the limit is `command_policy.memory_limit`";
        assert!(outcome.message().ends_with(setting), "{}", outcome.text);
    }
    bench.recorded(&outcome);
    server.process("perl", &["-e", "1"]).ok();
}

/// With the limit of policy this takes more cores than a test can count on; the command lowers the very same one.
#[test]
fn a_command_that_burns_its_cpu_seconds_hits_its_limit() {
    Bench::each(|bench| {
        let bench = bench.configure("bash", "");
        let mut server = Server::start(&bench);
        let outcome = server.process("bash", &["-c", "ulimit -S -t 1; while :; do :; done"]);
        outcome.failed("CPU_LIMIT_EXCEEDED");
        bench.recorded(&outcome);
        server.process("bash", &["-c", "exit 0"]).ok();
    });
}

/// A megabyte on each stream, every byte of which has to be escaped, and once more where the text repeats it.
const ZEROES: &str = "head -c 1048576 /dev/zero; head -c 1048576 /dev/zero >&2";

#[test]
fn answers_that_nobody_reads_cost_what_was_written_and_are_given_back_once_read() {
    const CALLS: u64 = 16;
    const EACH_KIB: u64 = 2 << 10;
    let bench = Bench::allowing("sh,head");
    let mut command = bench.command();
    command.arg("stdio").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let kib = |name: &str| kib_of(pid, name);
    let mut stdin = child.stdin.take().unwrap();
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let mut say = |message: &serde_json::Value| writeln!(stdin, "{message}").unwrap();
    say(&json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello}));
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    let before = kib("VmHWM");
    for id in 0..CALLS {
        let params = json!({"name": "execute_process", "arguments": {"file": "sh", "args": ["-c", ZEROES]}});
        say(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }
    let ended = "SELECT count(*) FROM flow_events WHERE event_type = 'command.completed'";
    eventually("all commands have ended", || bench.count(ended) == CALLS as i64);
    let taken = kib("VmHWM") - before;
    // As bytes each costs what it wrote; in words more than ten times that, which only two of them have at once.
    assert!(
        taken < 6 * CALLS * EACH_KIB,
        "{taken} KiB for {CALLS} answers of {EACH_KIB} KiB"
    );
    let answers = stdout.lines().take(CALLS as usize).filter(Result::is_ok);
    assert_eq!(answers.count() as u64, CALLS);
    eventually("the memory is given back", || kib("VmRSS") < before + taken / 2);
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn endless_output_is_counted_and_cut_and_the_server_stays_awake() {
    let bench = Bench::allowing("yes");
    let mut server = Server::start(&bench);
    server.process("yes", &["--version"]).ok();
    let before = resident(&server);
    let call = server.call_later(
        "execute_process",
        json!({"file": "yes", "args": [], "timeout_ms": 1_000}),
    );
    for _ in 0..20 {
        server.ping();
    }
    let outcome = server.result(call);
    assert_eq!(outcome.status(), "timeout");
    assert!(
        outcome.structured["stdout_truncated"] == true
            && outcome.structured["stdout_bytes"].as_u64().unwrap() > 1 << 20
    );
    assert!(outcome.stdout().len() < 2 << 20);
    let after = resident(&server);
    assert!(after < before + 96 * 1024, "{before} KiB before, {after} KiB after");
}

#[test]
fn endless_output_that_is_streamed_to_nobody_in_particular_stays_small() {
    let bench = Bench::allowing("yes");
    let mut server = Server::start(&bench);
    server.process("yes", &["--version"]).ok();
    let before = resident(&server);
    let arguments = json!({"file": "yes", "args": ["x".repeat(1000)], "timeout_ms": 1_000});
    let call = server.request(
        "tools/call",
        json!({"name": "execute_process", "arguments": arguments, "_meta": {"progressToken": 7}}),
    );
    server.ping();
    assert_eq!(server.result(call).status(), "timeout");
    let after = resident(&server);
    assert!(after < before + 96 * 1024, "{before} KiB before, {after} KiB after");
}

#[test]
fn a_hundred_megabytes_are_counted_to_the_byte() {
    let bench = Bench::allowing("head,sh");
    let mut server = Server::start(&bench);
    let before = resident(&server);
    let outcome = server.line("sh -c 'echo first; head -c 104857600 /dev/zero; echo last; echo e >&2'");
    assert_eq!(outcome.status(), "ok", "{}", outcome.text.len());
    assert_eq!(outcome.structured["stdout_bytes"], 104_857_600 + 11);
    assert!(outcome.structured["stdout_truncated"] == true && outcome.structured["stderr_truncated"] == false);
    assert!(outcome.stdout().starts_with("first\n") && outcome.stdout().ends_with("last\n"));
    assert_eq!(
        (outcome.stderr(), &outcome.structured["stderr_bytes"]),
        ("e\n", &json!(2))
    );
    let after = resident(&server);
    assert!(after < before + 96 * 1024, "{before} KiB before, {after} KiB after");
}

#[test]
fn output_at_the_limit_is_whole_and_one_byte_more_is_cut() {
    let bench = Bench::configured("head", "output_limit_bytes: 4096\n");
    let mut server = Server::start(&bench);
    for (bytes, truncated) in [(4095, false), (4096, false), (4097, true)] {
        let outcome = server.process("head", &["-c", &bytes.to_string(), "/dev/zero"]);
        assert_eq!(outcome.structured["stdout_truncated"], truncated, "{bytes}");
        assert_eq!(outcome.structured["stdout_bytes"], bytes);
    }
}

#[test]
fn a_child_that_never_reads_does_not_hold_up_its_input() {
    let bench = Bench::allowing("true,wc,sleep");
    let mut server = Server::start(&bench);
    let input = "x".repeat(8 << 20);
    let call = |file: &str, args: &[&str]| json!({"file": file, "args": args, "input": input, "timeout_ms": 20_000});
    server.call("execute_process", call("true", &[])).ok();
    assert_eq!(server.call("execute_process", call("wc", &["-c"])).ok(), "8388608\n");
    let late = server.call(
        "execute_process",
        json!({"file": "sleep", "args": ["600"], "input": input, "timeout_ms": 300}),
    );
    assert_eq!(late.status(), "timeout");
    let over = server.call(
        "execute_process",
        json!({"file": "true", "args": [], "input": "x".repeat((8 << 20) + 1)}),
    );
    assert_eq!(over.status(), "rejected");
}

#[test]
fn bytes_that_are_not_text_are_replaced_and_flagged() {
    let bench = Bench::allowing("printf,sh");
    let mut server = Server::start(&bench);
    let outcome = server.line(r"printf 'a\377\376b\0c'");
    assert_eq!(outcome.ok(), "a\u{fffd}\u{fffd}b\0c");
    assert!(outcome.structured["stdout_lossy"] == true && outcome.structured["stdout_bytes"] == 6);
    // Control characters of either kind, which the text must carry as YAML.
    let outcome = server.line(r"printf 'a\177\302\233b\033[0m\nc\342\200\250d\357\273\277'");
    assert_eq!(outcome.ok(), "a\u{7f}\u{9b}b\u{1b}[0m\nc\u{2028}d\u{feff}");
    let outcome = server.line(r"sh -c 'printf \\342\\202\\254; printf \\377 >&2'");
    assert_eq!((outcome.ok(), outcome.stderr()), ("€", "\u{fffd}"));
    assert!(outcome.structured["stdout_lossy"] == false && outcome.structured["stderr_lossy"] == true);
}

#[test]
fn many_calls_at_once_all_get_their_own_answer() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "echo");
        let mut server = Server::start(&bench);
        let calls: Vec<i64> = (0..64)
            .map(|number| server.call_later("execute_process", json!({"file": "echo", "args": [number.to_string()]})))
            .collect();
        server.ping();
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(server.result(call).ok(), format!("{number}\n"));
        }
        assert_eq!(
            bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'command.completed'"),
            64
        );
    });
}

#[test]
fn logs_that_nobody_reads_hold_up_no_answer_and_no_end() {
    let bench = Bench::allowing("true");
    let mut command = bench.command();
    command.arg("stdio");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    // Kept open, and never read.
    let _logs = server.stderr.take().unwrap();
    let mut stdin = server.stdin.take().unwrap();
    let answers = BufReader::new(server.stdout.take().unwrap());
    let (sender, answered) = mpsc::channel();
    std::thread::spawn(move || {
        for line in answers.lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    writeln!(
        stdin,
        "{}",
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
    )
    .unwrap();
    writeln!(
        stdin,
        "{}",
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
    )
    .unwrap();
    answered.recv_timeout(PATIENCE).expect("the handshake is answered");
    // Without its file nothing can be recorded, and each message that is refused leaves a line: more than a pipe holds.
    fs::rename(bench.state().join("record.db"), bench.state().join("away")).unwrap();
    for id in 1..800 {
        let unknown = json!({"jsonrpc": "2.0", "id": id, "method": "nothing"});
        writeln!(stdin, "{unknown}").unwrap();
        answered.recv_timeout(PATIENCE).expect("every message is answered");
    }
    drop(stdin);
    eventually("the server ends", || server.try_wait().unwrap().is_some());
    assert!(server.wait().unwrap().success());
}
