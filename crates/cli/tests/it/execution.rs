//! The execution specification: every scenario, under its own name.

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::Server;

/// The program of the scenarios where it is installed, else another that prints its version.
fn versioned() -> (&'static str, &'static str) {
    if std::path::Path::new("/usr/bin/npm").exists() {
        ("npm", "npm -v")
    } else {
        ("git", "git --version")
    }
}

#[test]
fn default_timeout_prevents_hangs() {
    let bench = Bench::new()
        .config("approval_policy: {mode: never}\ncommand_policy: {allowlist: [bash, sleep], timeout_seconds: 1}\n");
    let mut server = Server::start(&bench);
    let outcome = server.line("bash -c 'echo before; echo trouble >&2; sleep 600'");
    assert_eq!((outcome.status(), outcome.code()), ("timeout", "COMMAND_TIMEOUT"));
    assert!(
        outcome.is_error && outcome.message().contains("time"),
        "{}",
        outcome.text
    );
    assert_eq!((outcome.stdout(), outcome.stderr()), ("before\n", "trouble\n"));
    bench.recorded(&outcome);
}

#[test]
fn caller_provided_timeout_overrides_default() {
    let bench = Bench::new()
        .config("approval_policy: {mode: never}\ncommand_policy: {allowlist: [bash, sleep], timeout_seconds: 1}\n");
    let mut server = Server::start(&bench);
    // Longer than the default, and shorter than what the line takes.
    for (tool, arguments) in [
        (
            "execute_command",
            json!({"command": "bash -c 'sleep 1.5; echo done'", "timeout_ms": 20_000}),
        ),
        (
            "execute_process",
            json!({"file": "bash", "args": ["-c", "sleep 1.5; echo done"], "timeout_ms": 20_000}),
        ),
        (
            "run_command",
            json!({"command": "bash", "args": ["-c", "sleep 1.5; echo done"], "working_directory": ".", "requested_timeout_seconds": 20}),
        ),
    ] {
        assert_eq!(server.call(tool, arguments).ok(), "done\n");
    }
    let short = server.call(
        "execute_process",
        json!({"file": "sleep", "args": ["600"], "timeout_ms": 50}),
    );
    assert_eq!(short.status(), "timeout");
}

#[test]
fn allowed_command() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "ls,cat");
        bench.file("here", "inside\n");
        let mut server = Server::start(&bench);
        assert_eq!(server.line("ls").ok(), "here\n");
        assert_eq!(server.line("ls | cat && cat here").ok(), "here\ninside\n");
    });
}

#[test]
fn disallowed_command() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "ls");
        let mut server = Server::start(&bench);
        let outcome = server.line("pwd");
        outcome.refused("COMMAND_NOT_ALLOWED");
        assert!(outcome.message().contains("`pwd`"), "{}", outcome.text);
        bench.recorded(&outcome);
    });
}

#[test]
fn nothing_is_allowed_by_an_empty_list() {
    let bench = Bench::allowing("");
    let mut server = Server::start(&bench);
    server.line("ls").refused("COMMAND_NOT_ALLOWED");
    server.process("ls", &[]).refused("COMMAND_NOT_ALLOWED");
}

#[test]
fn wildcard_allowlist() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "*");
        let mut server = Server::start(&bench);
        // An account number without a name is an error of `whoami`, not of ours.
        let uid = server.line("id -u").ok().trim().to_owned();
        assert_ne!(uid, "0");
        let accounts = std::fs::read_to_string("/etc/passwd").unwrap();
        let mut fields = accounts.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let account = fields.find(|fields| fields.get(2) == Some(&uid.as_str()));
        let outcome = server.line("whoami");
        match account {
            Some(account) => assert_eq!(outcome.ok().trim(), account[0]),
            None => assert!(
                outcome.stderr().contains("whoami: cannot find name"),
                "{}",
                outcome.text
            ),
        }
        // Nothing here depends on the user, and neither is on any list.
        assert_eq!(server.line("echo any | tr a-z A-Z").ok(), "ANY\n");
    });
}

#[test]
fn yaml_output() {
    let bench = Bench::allowing("printf,sh");
    let mut server = Server::start(&bench);
    let tricky = "- a: b\\n\\t#c\\n...\\n---\\n'\\x22\\u00e9';\\n\\n";
    for line in [
        "printf hello",
        "printf '%s\\n' yes no null",
        &format!("printf '{tricky}'"),
        "sh -c 'echo x >&2; exit 3'",
    ] {
        let outcome = server.line(line);
        let yaml: Value = serde_saphyr::from_str(&outcome.text).unwrap();
        for field in ["exit_code", "stdout", "stderr"] {
            assert_eq!(yaml[field], outcome.structured[field], "{line}: {}", outcome.text);
        }
    }
    let failed = server.line("sh -c 'echo out; echo err >&2; exit 3'");
    failed.failed("COMMAND_EXIT_NON_ZERO");
    assert_eq!(
        (
            failed.structured["exit_code"].as_i64(),
            failed.stdout(),
            failed.stderr()
        ),
        (Some(3), "out\n", "err\n")
    );
}

#[test]
fn an_omitted_cwd_is_the_servers_directory() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "pwd");
        let mut server = Server::start(&bench);
        let here = format!("{}\n", bench.work().canonicalize().unwrap().display());
        assert_eq!(server.line("pwd").ok(), here);
        assert_eq!(server.process("pwd", &[]).ok(), here);
    });
}

#[test]
fn execute_with_relative_cwd() {
    let (program, line) = versioned();
    let bench = Bench::allowing(&format!("{program},pwd"));
    let frontend = bench.dir("frontend");
    let mut server = Server::start(&bench);
    let outcome = server.call("execute_command", json!({"command": line, "cwd": "frontend"}));
    assert!(outcome.ok().contains('.'), "{}", outcome.text);
    let outcome = server.call("execute_command", json!({"command": "pwd", "cwd": "frontend"}));
    assert_eq!(outcome.ok().trim(), frontend.canonicalize().unwrap().to_str().unwrap());
}

#[test]
fn execute_with_absolute_cwd() {
    let (program, line) = versioned();
    let bench = Bench::allowing(&format!("{program},pwd"));
    let frontend = bench.dir("repos/monorepo/frontend").canonicalize().unwrap();
    let mut server = Server::start(&bench);
    assert!(
        server
            .call("execute_command", json!({"command": line, "cwd": frontend}))
            .ok()
            .contains('.')
    );
    for (tool, arguments) in [
        ("execute_command", json!({"command": "pwd", "cwd": frontend})),
        ("execute_process", json!({"file": "pwd", "args": [], "cwd": frontend})),
        ("run_command", json!({"command": "pwd", "working_directory": frontend})),
    ] {
        assert_eq!(
            server.call(tool, arguments).ok().trim(),
            frontend.to_str().unwrap(),
            "{tool}"
        );
    }
}

#[test]
fn error_on_non_existent_cwd() {
    let bench = Bench::allowing("touch");
    let canary = bench.work().join("canary");
    bench.file("file", "");
    let mut server = Server::start(&bench);
    for cwd in ["does-not-exist", "file", "/nowhere/at/all", "file/.."] {
        let line = format!("touch {}", canary.display());
        for (tool, arguments) in [
            ("execute_command", json!({"command": line, "cwd": cwd})),
            (
                "execute_process",
                json!({"file": "touch", "args": [canary], "cwd": cwd}),
            ),
            (
                "run_command",
                json!({"command": "touch", "args": [canary], "working_directory": cwd}),
            ),
        ] {
            let outcome = server.call(tool, arguments);
            outcome.refused("CWD_NOT_FOUND");
            assert!(outcome.message().contains(cwd), "{}", outcome.text);
            bench.recorded(&outcome);
        }
    }
    assert!(!canary.exists());
}

#[test]
fn allowed_when_within_allowed_cwd_roots() {
    Bench::each(|bench| {
        let (program, line) = versioned();
        let frontend = bench.dir("monorepo/frontend");
        let root = bench.work().join("monorepo");
        let bench = bench.env("ALLOWED_COMMANDS", program).env("ALLOWED_CWD_ROOTS", &root);
        let mut server = Server::start(&bench);
        for cwd in [&frontend, &root] {
            server
                .call("execute_command", json!({"command": line, "cwd": cwd}))
                .ok();
        }
    });
}

#[test]
fn rejected_when_outside_allowed_cwd_roots() {
    Bench::each(|bench| {
        bench.dir("monorepo");
        let root = bench.work().join("monorepo");
        let bench = bench.env("ALLOWED_COMMANDS", "touch").env("ALLOWED_CWD_ROOTS", &root);
        let mut server = Server::start(&bench);
        let outcome = server.call(
            "execute_command",
            json!({"command": "touch canary", "cwd": bench.work()}),
        );
        outcome.refused("CWD_NOT_ALLOWED");
        server
            .call("execute_command", json!({"command": "touch canary", "cwd": "/tmp"}))
            .refused("CWD_NOT_ALLOWED");
        server
            .call(
                "run_command",
                json!({"command": "touch", "args": ["canary"], "working_directory": "/tmp"}),
            )
            .refused("CWD_NOT_ALLOWED");
        assert!(!bench.work().join("canary").exists());
    });
}

#[test]
fn a_call_without_cwd_reads_and_writes_nothing_where_no_root_is() {
    Bench::each(|bench| {
        let inside = bench.dir("monorepo");
        let bench = bench
            .env("ALLOWED_COMMANDS", "touch,ls,echo,cat")
            .env("ALLOWED_CWD_ROOTS", &inside);
        bench.file("private", "text");
        let mut server = Server::start(&bench);
        server.call("execute_command", json!({"command": "echo hi"})).ok();
        for (tool, arguments) in [
            ("execute_command", json!({"command": "cat private"})),
            ("execute_command", json!({"command": "touch canary"})),
            ("execute_process", json!({"file": "touch", "args": ["canary"]})),
        ] {
            let outcome = server.call(tool, arguments);
            assert_ne!(outcome.status(), "ok", "{}", outcome.text);
            assert!(
                outcome.text.contains("in none of `ALLOWED_CWD_ROOTS`"),
                "{}",
                outcome.text
            );
        }
        assert!(!bench.work().join("canary").exists());
        server
            .call("execute_command", json!({"command": "touch canary", "cwd": inside}))
            .ok();
    });
}

#[test]
fn no_restriction_when_allowed_cwd_roots_is_unset() {
    let (program, line) = versioned();
    for roots in [None, Some("")] {
        let bench = Bench::allowing(program);
        let bench = if let Some(roots) = roots {
            bench.env("ALLOWED_CWD_ROOTS", roots)
        } else {
            bench
        };
        let mut server = Server::start(&bench);
        for cwd in ["/tmp", "/var/tmp", "/usr", "/"] {
            let outcome = server.call("execute_command", json!({"command": line, "cwd": cwd}));
            match cwd {
                // A command that may read and write below `/` cannot be confined.
                "/" => assert_eq!(outcome.code(), "CWD_NOT_ALLOWED", "{}", outcome.text),
                _ => assert_eq!(outcome.status(), "ok", "{}", outcome.text),
            }
        }
    }
}

#[test]
fn reject_when_allowed_cwd_roots_contains_an_invalid_root() {
    let bench = Bench::allowing("touch");
    let frontend = bench.dir("monorepo/frontend");
    let roots = format!("{},/path/that/does/not/exist", bench.work().join("monorepo").display());
    let bench = bench.env("ALLOWED_CWD_ROOTS", &roots);
    let mut server = Server::start(&bench);
    for (tool, arguments) in [
        ("execute_command", json!({"command": "touch canary", "cwd": frontend})),
        (
            "execute_process",
            json!({"file": "touch", "args": ["canary"], "cwd": frontend}),
        ),
        (
            "run_command",
            json!({"command": "touch", "args": ["canary"], "working_directory": frontend}),
        ),
    ] {
        let outcome = server.call(tool, arguments);
        outcome.refused("CONFIGURATION_ERROR");
        assert!(
            outcome.message().contains("ALLOWED_CWD_ROOTS") && outcome.message().contains("/path/that/does/not/exist"),
            "{}",
            outcome.text
        );
    }
    assert!(!frontend.join("canary").exists());
}

#[test]
fn execute_process_runs_argv_based_command() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "python3");
        let mut server = Server::start(&bench);
        let words = [
            "-c",
            "import sys; print(sys.argv[1:], sys.stdin.read())",
            "a b",
            "$(id)",
            "*",
            ";",
        ];
        let outcome = server.call(
            "execute_process",
            json!({"file": "python3", "args": words, "input": "given"}),
        );
        assert_eq!(outcome.ok(), "['a b', '$(id)', '*', ';'] given\n");
        assert!(outcome.text.contains("exit_code: 0\n"), "{}", outcome.text);
    });
}

#[test]
fn execute_process_rejects_disallowed_file() {
    let bench = Bench::allowing("echo");
    let mut server = Server::start(&bench);
    let outcome = server.process("python3", &["-c", "open('canary', 'w')"]);
    outcome.refused("COMMAND_NOT_ALLOWED");
    assert!(outcome.message().contains("`python3`"), "{}", outcome.text);
    assert!(!bench.work().join("canary").exists());
}

#[test]
fn a_long_here_document_needs_no_place_in_the_workspace() {
    let bench = Bench::new()
        .config("approval_policy: {mode: never}\ncommand_policy: {allowlist: [wc, ls], sandbox: read-only}\n");
    let mut server = Server::start(&bench);
    let text = "x".repeat(100_000);
    let line = format!("wc -c <<'END'\n{text}\nEND");
    assert_eq!(server.line(&line).ok(), "100001\n");
    assert_eq!(server.line("ls").ok(), "");
}

/// As bash does it: `cat * > all` does not read what it writes.
#[test]
fn names_are_expanded_before_anything_is_opened() {
    let bench = Bench::allowing("cat,printf,cd");
    bench.file("one", "1\n");
    bench.file("two", "2\n");
    let mut server = Server::start(&bench);
    server.line("cat * > all").ok();
    assert_eq!(server.line("cat all").ok(), "1\n2\n");
    assert_eq!(
        server.line("printf '%s\\n' [!a]* > names; cat names").ok(),
        "one\ntwo\n"
    );
}
