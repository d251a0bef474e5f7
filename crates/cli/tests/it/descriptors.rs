//! A machine on which no more files can be opened.

use std::process::{Command, Output, Stdio};

use crate::bench::Bench;
use crate::client::Server;

/// The product, which may have so many files open at first and at most.
fn with_files(bench: &Bench, limits: &str, words: &[&str]) -> Output {
    let bare = bench.command();
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={limits}")).arg("--");
    command.arg(bare.get_program()).args(bare.get_args()).args(words);
    command.env_clear().current_dir(bench.work()).stdin(Stdio::null());
    command.envs(bare.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.output().unwrap()
}

#[test]
fn whoever_may_open_too_few_files_is_told_so_and_nothing_starts() {
    let bench = Bench::allowing("touch");
    for words in [
        &["stdio"][..],
        &["exec", "--", "touch", "canary"],
        &["serve"],
        &["demo"],
    ] {
        for most in [6, 7, 8, 9, 16, 32, 63] {
            let output = with_files(&bench, &format!("{most}:{most}"), words);
            let said = String::from_utf8_lossy(&output.stderr);
            let expected = format!(
                "countersign: too few files may be open at once: {most}, and commands need 64 at least; raise the limit \
                 (`ulimit -n 1024`, or `LimitNOFILE` of a service)\n"
            );
            assert_eq!((output.status.code(), &*said), (Some(2), &*expected), "{words:?}");
        }
    }
    assert!(!bench.work().join("canary").exists());
    // What may be raised is.
    for limits in ["64:64", "8:512"] {
        let output = with_files(&bench, limits, &["exec", "--", "touch", "canary"]);
        assert!(output.status.success(), "{limits}: {output:?}");
    }
}

#[test]
fn a_server_without_files_to_open_refuses_calls_and_goes_on() {
    let bench = Bench::allowing("touch,ls");
    let mut server = Server::start(&bench);
    server.process("touch", &["before"]).ok();
    let pid = server.pid().to_string();
    let limit = |soft: &str| {
        let limit = format!("--nofile={soft}:");
        let status = Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap();
        assert!(status.success());
    };
    for most in ["4", "8", "16", "20", "24", "28", "32"] {
        limit(most);
        for line in ["touch canary", "ls | ls", "for x in 1; do touch canary; done"] {
            let outcome = server.line(line);
            let is_refused = matches!(outcome.status(), "rejected" | "failed");
            assert!(is_refused || !["4", "8"].contains(&most), "{most}: {}", outcome.text);
        }
        server.ping();
    }
    limit("1024");
    server.process("touch", &["after"]).ok();
    assert!(bench.work().join("after").exists());
    assert!(server.end().success());
}
