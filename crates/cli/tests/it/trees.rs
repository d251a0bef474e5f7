//! Nothing outlives its call: whole trees of processes that do what they can to stay.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::bench::{Bench, is_root};
use crate::client::{PATIENCE, Server, eventually};
use crate::web::Web;

/// A tree of processes that left their session, forked twice, ignore signals and hold the output.
/// It says `ready` when all of them are there.
const TREE: &str = r#"
use POSIX;
$SIG{$_} = 'IGNORE' for qw(TERM INT HUP PIPE QUIT);
sub stay { sleep 600 while 1 }
if (!fork) { POSIX::setsid(); stay() }
if (!fork) { if (!fork) { POSIX::setsid(); if (!fork) { close STDOUT; close STDERR; chdir '/'; stay() } stay() } exit 0 }
for (1..3) { if (!fork) { POSIX::setpgid(0, 0); stay() } }
$| = 1; select(undef, undef, undef, 0.1); print "ready\n"; stay()
"#;

/// How many processes carry a mark in their environment or on their command line.
fn marked(mark: &str) -> usize {
    let holds = |bytes: Vec<u8>| bytes.windows(mark.len()).any(|window| window == mark.as_bytes());
    let processes = fs::read_dir("/proc")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("environ").exists());
    processes
        .filter(|path| {
            ["environ", "cmdline"]
                .iter()
                .any(|file| fs::read(path.join(file)).is_ok_and(holds))
        })
        .count()
}

fn until_gone(mark: &str) {
    let deadline = Instant::now() + PATIENCE;
    while marked(mark) > 0 {
        assert!(Instant::now() < deadline, "{} processes stayed", marked(mark));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts the tree and waits until it has grown. Returns the call.
fn plant(server: &mut Server, mark: &str, timeout_ms: u64) -> i64 {
    let arguments = json!({"file": "perl", "args": ["-e", TREE, mark], "request_id": mark, "timeout_ms": timeout_ms});
    let call = server.call_later("execute_process", arguments);
    let deadline = Instant::now() + PATIENCE;
    while marked(mark) < 7 {
        assert!(
            Instant::now() < deadline && !server.has_answered(call),
            "the tree does not grow"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    call
}

fn mark(name: &str) -> String {
    format!("mark-{name}-{}", std::process::id())
}

#[test]
fn a_tree_is_gone_when_its_time_is_up() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "perl");
        let mut server = Server::start(&bench);
        let mark = mark("timeout");
        let call = plant(&mut server, &mark, 2_000);
        let outcome = server.result(call);
        assert_eq!((outcome.status(), outcome.stdout()), ("timeout", "ready\n"));
        assert_eq!(marked(&mark), 0, "gone when the answer is there");
    });
}

#[test]
fn a_tree_is_gone_when_its_first_process_ends() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "perl");
        let mut server = Server::start(&bench);
        let mark = mark("exit");
        let code = TREE.replace("print \"ready\\n\"; stay()", "print \"ready\\n\"; exit 0");
        let outcome = server.process("perl", &["-e", &code, &mark]);
        assert_eq!(outcome.ok(), "ready\n");
        assert_eq!(marked(&mark), 0);
    });
}

#[test]
fn a_tree_is_gone_when_it_is_cancelled_by_its_id() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "perl");
        let mut server = Server::start(&bench);
        let mark = mark("cancel");
        let call = plant(&mut server, &mark, 600_000);
        let cancelled = server.call("command_cancel", json!({"request_id": mark}));
        cancelled.failed("CANCELLED");
        assert_eq!((marked(&mark), cancelled.stdout()), (0, "ready\n"));
        let outcome = server.result(call);
        outcome.failed("CANCELLED");
        bench.recorded(&outcome);
    });
}

#[test]
fn a_tree_is_gone_when_the_client_cancels_its_request() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "perl");
        let mut server = Server::start(&bench);
        let mark = mark("notified");
        let call = plant(&mut server, &mark, 600_000);
        server.notify("notifications/cancelled", json!({"requestId": call}));
        until_gone(&mark);
        let outcome = server.call("command_status", json!({"request_id": mark, "wait_ms": 10_000}));
        outcome.failed("CANCELLED");
        assert!(!server.has_answered(call), "a cancelled request is not answered");
    });
}

#[test]
fn a_tree_is_gone_when_the_server_is_killed() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "perl");
        let mut server = Server::start(&bench);
        let mark = mark("killed");
        plant(&mut server, &mark, 600_000);
        server.kill();
        until_gone(&mark);
        // The next server says what became of it.
        let outcome = Server::start(&bench).call("command_status", json!({"request_id": mark}));
        outcome.failed("ABANDONED");
    });
}

#[test]
fn a_tree_is_gone_when_the_input_ends() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "perl");
        let mut server = Server::start(&bench);
        let mark = mark("eof");
        plant(&mut server, &mark, 600_000);
        assert!(server.end().success());
        assert_eq!(marked(&mark), 0);
        assert_eq!(bench.records(&mark)[0]["error_code"], "CANCELLED");
        bench.prove();
    });
}

#[test]
fn a_tree_is_gone_when_the_server_is_terminated_or_hung_up_on() {
    for signal in ["-TERM", "-HUP"] {
        let bench = Bench::allowing("perl");
        let mut server = Server::start(&bench);
        let mark = mark("terminated");
        plant(&mut server, &mark, 600_000);
        let pid = server.pid().to_string();
        let kill = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(kill.success() && server.gone().success(), "{signal}");
        assert_eq!(marked(&mark), 0);
        bench.until_tidy();
        let ends = "SELECT event_type FROM flow_events WHERE event_type IN ('command.completed', 'session.closed') ORDER BY seq";
        assert_eq!(bench.column(ends), ["command.completed", "session.closed"], "{signal}");
        bench.prove();
    }
}

/// The process of ours that watches over a marked tree: the parent of its first process.
fn keeper(mark: &str) -> u32 {
    let is_marked = |pid: u32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.windows(mark.len()).any(|it| it == mark.as_bytes()))
    };
    let parent = |pid: u32| -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
    };
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
    let own = std::process::id();
    pids.filter(|pid| is_marked(*pid))
        .filter_map(parent)
        .find(|pid| ![0, 1, own].contains(pid) && !is_marked(*pid))
        .expect("a keeper")
}

#[test]
fn a_tree_is_gone_when_its_keeper_is_killed() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "perl");
        let mut server = Server::start(&bench);
        let mark = mark("keeper");
        let call = plant(&mut server, &mark, 600_000);
        let victim = keeper(&mark);
        assert_ne!(victim, server.pid());
        assert!(
            std::process::Command::new("kill")
                .args(["-9", &victim.to_string()])
                .status()
                .unwrap()
                .success()
        );
        let outcome = server.result(call);
        outcome.failed("COMMAND_EXECUTION_FAILED");
        until_gone(&mark);
        assert_eq!(
            server.process("perl", &["-e", "print 1"]).ok(),
            "1",
            "the next one gets another"
        );
    });
}

#[test]
fn a_command_that_ends_when_asked_to_may_tidy_up() {
    let bench = Bench::allowing("perl");
    let mut server = Server::start(&bench);
    let code = "$SIG{TERM} = sub { print qq(tidied\n); exit 0 }; $| = 1; print qq(on\n); sleep 600";
    let outcome = server.call(
        "execute_process",
        json!({"file": "perl", "args": ["-e", code], "timeout_ms": 500}),
    );
    assert_eq!((outcome.status(), outcome.stdout()), ("timeout", "on\ntidied\n"));
}

/// The product as the first process of a container.
fn first_of_a_container(bench: &Bench, words: &[&str]) -> Command {
    let inner = bench.command();
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
        .arg(inner.get_program())
        .args(words)
        .env_clear()
        .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(bench.work());
    command
}

#[test]
fn the_first_process_of_a_container_leaves_no_zombie_and_ends_as_its_server_does() {
    if !is_root() {
        println!("only root makes a container");
        return;
    }
    let bench = Bench::allowing("sh");
    let mut web = Web::of(&mut first_of_a_container(&bench, &["serve", "--listen", "127.0.0.1:0"]));
    let children = |pid: &str| -> Vec<String> {
        let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        listed.split_whitespace().map(str::to_owned).collect()
    };
    let first = children(&web.pid().to_string()).remove(0);
    let orphans = "(true &) ; (sh -c 'true' &) ; (sleep 0.05 &)";
    let enter = ["--target", first.as_str(), "--pid", "sh", "-c", orphans];
    assert!(Command::new("nsenter").args(enter).status().unwrap().success());
    eventually("every orphan was waited for", || children(&first).len() == 1);
    assert!(Command::new("kill").args(["-TERM", &first]).status().unwrap().success());
    assert_eq!(web.ended(), Some(0), "{}", web.said());
    for (script, code) in [("exit 7", 7), ("kill -9 $$", 137)] {
        let ended = first_of_a_container(&bench, &["exec", "--", "sh", "-c", script]).output();
        assert_eq!(ended.unwrap().status.code(), Some(code), "{script}");
    }
    bench.prove();
}
