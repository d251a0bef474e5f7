//! Commands that turn on the server, on each other, or on whoever comes after them.

use serde_json::json;

use crate::bench::Bench;
use crate::client::{Server, eventually};

#[test]
fn a_command_cannot_signal_the_server_or_its_neighbours() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "perl,sleep");
        let mut server = Server::start(&bench);
        let neighbour = server.call_later(
            "execute_process",
            json!({"file": "perl", "args": ["-e", "sleep 2; print qq(alive\n)"]}),
        );
        let code = format!(
            "kill 9, {}; kill 9, getppid; kill 9, -1; kill 15, 1; sleep 1; print qq(tried\n)",
            server.pid()
        );
        let outcome = server.process("perl", &["-e", &code]);
        assert!(matches!(outcome.status(), "ok" | "failed"), "{}", outcome.text);
        server.ping();
        assert_eq!(server.result(neighbour).ok(), "alive\n");
        assert_eq!(server.process("perl", &["-e", "print 1"]).ok(), "1");
    });
}

#[test]
fn a_command_gets_three_streams_and_no_other_descriptor() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "ls,bash,perl,cat");
        let mut server = Server::start(&bench);
        let code = "opendir my $d, '/proc/self/fd'; my $own = fileno $d; print join(' ', sort grep { /\\d/ && -e \"/proc/self/fd/$_\" } readdir $d), qq(\n)";
        for outcome in [
            server.process("perl", &["-e", code]),
            server.line(&format!(
                "perl -e '{}' | cat",
                code.replace('\'', "\"")
                    .replace("\"/proc/self/fd\"", "q(/proc/self/fd)")
                    .replace("join(\" \"", "join(q( )")
                    .replace("\"/proc/self/fd/$_\"", "qq(/proc/self/fd/$_)")
            )),
        ] {
            // The fourth is the listing's own.
            assert!(matches!(outcome.ok(), "0 1 2 3\n" | "0 1 2\n"), "{}", outcome.text);
        }
    });
}

#[test]
fn a_deep_or_full_temporary_directory_is_cleared_away() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "perl,ls");
        let mut server = Server::start(&bench);
        let deep = "chdir $ENV{TMPDIR}; for (1..5000) { mkdir 'd' or last; chdir 'd' or last } print qq(made\n)";
        assert_eq!(
            server
                .call(
                    "execute_process",
                    json!({"file": "perl", "args": ["-e", deep], "timeout_ms": 60_000})
                )
                .ok(),
            "made\n"
        );
        server.ping();
        let full = "chdir $ENV{TMPDIR}; for (1..20000) { open my $f, '>', $_ } mkdir 'locked', 0; print qq(made\n)";
        assert_eq!(
            server
                .call(
                    "execute_process",
                    json!({"file": "perl", "args": ["-e", full], "timeout_ms": 60_000})
                )
                .ok(),
            "made\n"
        );
        for _ in 0..4 {
            assert_eq!(
                server
                    .process("perl", &["-e", "chdir $ENV{TMPDIR}; print join ' ', glob '*'"])
                    .ok(),
                ""
            );
        }
        assert!(server.end().success());
        bench.until_tidy();
    });
}

#[test]
fn a_pipe_in_the_workspace_holds_up_nobody_but_its_reader() {
    let bench = Bench::allowing("cat,echo");
    let fifo = bench.work().join("fifo");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    crate::bench::hand_over(&fifo);
    let mut server = Server::start(&bench);
    for line in ["cat < fifo", "cat fifo", "echo x > fifo"] {
        let call = server.call_later("execute_command", json!({"command": line, "timeout_ms": 500}));
        server.ping();
        assert_eq!(server.line("echo fine").ok(), "fine\n");
        assert_eq!(server.result(call).status(), "timeout", "{line}");
    }
}

#[test]
fn a_project_file_in_the_workspace_does_not_loosen_policy() {
    let loose = "command_policy: {allowlist: [\"*\"], sandbox: danger-full-access, network: allow, env_allow: [SECRET_TOKEN]}\n\
        approval_policy: {mode: never, whitelist: [{pattern: \".*\", reason: mine, enabled: true}]}\n";
    let project = |bench: &Bench| {
        bench.dir(".countersign");
        bench.file(".countersign/config.yaml", loose);
    };
    let bench = Bench::new();
    project(&bench);
    Server::start(&bench).asked(&bench, "execute_process", json!({"file": "touch", "args": ["canary"]}));
    let bench = Bench::allowing("ls");
    project(&bench);
    Server::start(&bench)
        .process("touch", &["canary"])
        .refused("COMMAND_NOT_ALLOWED");
    assert!(!bench.work().join("canary").exists());
    let bench = Bench::configured("env", "").env("SECRET_TOKEN", "x");
    project(&bench);
    let mut server = Server::start(&bench);
    let outcome = server.process("env", &[]);
    assert!(
        !outcome.ok().contains("SECRET_TOKEN") && outcome.layers().contains(&"landlock"),
        "{}",
        outcome.text
    );
    server.process("touch", &["canary"]).refused("COMMAND_NOT_ALLOWED");
}

#[test]
fn a_listed_script_that_is_swapped_does_not_run_as_listed() {
    let bench = Bench::new();
    let script = bench.program("tool", "#!/bin/sh\necho honest\n");
    let bench = bench.configure(&format!("\"{}\"", script.display()), "");
    let mut server = Server::start(&bench);
    assert_eq!(server.process(script.to_str().unwrap(), &[]).ok(), "honest\n");
    // A copy under another name is another program, whatever it says.
    let other = bench.program("other", "#!/bin/sh\necho other\n");
    server
        .process(other.to_str().unwrap(), &[])
        .refused("COMMAND_NOT_ALLOWED");
}

#[test]
fn a_server_that_lost_its_helpers_confines_as_before_and_lives() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "touch");
        let mut server = Server::start(&bench);
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.pid())).unwrap();
        for child in children.split_whitespace() {
            assert!(
                std::process::Command::new("kill")
                    .args(["-9", child])
                    .status()
                    .unwrap()
                    .success()
            );
        }
        let outcome = server.process("touch", &["canary"]);
        outcome.ok();
        for layer in ["landlock", "seccomp", "exec-list", "no-new-privs"] {
            assert!(outcome.layers().contains(&layer), "{}", outcome.text);
        }
        bench.recorded(&outcome);
        server.process("cat", &["canary"]).refused("COMMAND_NOT_ALLOWED");
        server.ping();
        assert!(server.end().success());
    });
}

#[test]
fn nothing_kept_in_memory_outlives_a_call() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "perl,ls");
        let mut server = Server::start(&bench);
        // Shared memory, a semaphore and a queue of System V, made anew or not at all.
        let make = "print join ' ', map { defined $_ ? 'made' : 'refused' } shmget(7, 4096, 03600), semget(7, 1, 03600), msgget(7, 03600)";
        for _ in 0..3 {
            assert_eq!(server.process("perl", &["-e", make]).ok(), "made made made");
        }
        let deep = "chdir '/dev/shm'; for (1..5000) { mkdir 'd' or last; chdir 'd' or last } print qq(made\n)";
        assert_eq!(
            server
                .call(
                    "execute_process",
                    json!({"file": "perl", "args": ["-e", deep], "timeout_ms": 60_000})
                )
                .ok(),
            "made\n"
        );
        assert_eq!(server.process("ls", &["-A", "/dev/shm"]).ok(), "");
    });
}

#[test]
fn a_line_that_begins_with_a_dash_is_no_option_of_the_shell_that_runs_it() {
    let bench = Bench::new().config("approval_policy: {mode: never}\ncommand_policy: {allowlist: ['*']}\n");
    let mut server = Server::start(&bench);
    for line in ["-s 2>/dev/null; for i in 1; do echo $i; done", "+x; echo $((0 + 1))"] {
        assert_eq!(server.line(line).stdout(), "1\n", "{line}");
    }
}

#[test]
fn what_a_command_makes_of_its_temporary_directory_is_not_the_next_ones() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "sh,touch,chmod,mktemp,ls");
        let mut server = Server::start(&bench);
        for mode in ["000", "555", "1777"] {
            let script = format!("touch $TMPDIR/left; chmod {mode} $TMPDIR");
            server.process("sh", &["-c", &script]).ok();
            assert_eq!(server.process("sh", &["-c", "ls -A $TMPDIR"]).ok(), "", "{mode}");
            server.process("mktemp", &[]).ok();
            server
                .process("sh", &["-c", "ls -ld $TMPDIR"])
                .ok()
                .strip_prefix("drwx------")
                .unwrap();
        }
    });
}

#[test]
fn a_here_document_is_passed_on_whole_to_a_user_who_has_many_pipes() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "perl,cat,wc");
        let mut server = Server::start(&bench);
        let hoard = "for (0..1199) { pipe(my $r, my $w) or die $!; push @k, $r, $w } open(F, '>made'); sleep 600";
        let hoarder = server.call_later("execute_process", json!({"file": "perl", "args": ["-e", hoard]}));
        eventually("there are many pipes", || bench.work().join("made").exists());
        let text = "line\n".repeat(8 << 10);
        let counted = server.line(&format!("cat <<'EOF' | wc -c\n{text}EOF\n"));
        assert_eq!(counted.ok().trim(), text.len().to_string());
        server.notify("notifications/cancelled", json!({"requestId": hoarder}));
    });
}
