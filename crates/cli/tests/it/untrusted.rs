//! With no configuration at all: what only looks runs unasked, everything else waits for a person.

use std::fs;

use serde_json::json;

use crate::bench::Bench;
use crate::client::Server;

#[test]
fn what_only_looks_runs_unasked() {
    Bench::each(|bench| {
        bench.repository();
        let mut server = Server::start(&bench);
        for line in [
            "git status",
            "git log --oneline",
            "git diff",
            "ls",
            "ls -la",
            "cat tracked",
            "git status && ls | cat",
        ] {
            let outcome = server.line(line);
            assert_eq!(outcome.status(), "ok", "{line}: {}", outcome.text);
        }
        server.process("git", &["status"]).ok();
        server
            .call("run_command", json!({"command": "ls", "working_directory": "."}))
            .ok();
        let automatic =
            "SELECT count(*) FROM approvals WHERE automatic = 1 AND state = 'applied' AND decided_by = 'whitelist'";
        assert_eq!(bench.count(automatic), 9);
        let marked = "SELECT count(*) FROM flow_events WHERE approval_state = 'auto-approved'";
        assert_eq!(bench.count(marked), 9);
    });
}

#[test]
fn everything_else_needs_a_person() {
    Bench::each(|bench| {
        bench.repository();
        bench.file("x", "kept");
        let mut server = Server::start(&bench);
        for line in [
            "rm x",
            "git status; rm -rf x",
            "git status > ../x",
            "git status > x",
            "git status $(rm x)",
            "git status | tee y",
            "git status\nrm x",
            "git -c core.pager='rm x' status",
            "git -c alias.status='!rm x' status",
            "git diff --output=y",
            "git diff --ext-diff",
            "ls `rm x`",
            "git commit --allow-empty -m x",
            "cat x > y",
            "env git status",
            "./ls",
            "git log --textconv",
            "git --exec-path=. status",
        ] {
            let asked = server.asked(&bench, "execute_command", json!({"command": line}));
            assert_eq!(asked["command"], line);
            assert_eq!(asked["rule"], "mode untrusted", "{line}");
        }
        for (file, args) in [("rm", &["x"][..]), ("git", &["push"]), ("bash", &["-c", "git status"])] {
            server.asked(&bench, "execute_process", json!({"file": file, "args": args}));
        }
        // Variables given by the call change what a program does.
        let asked = server.asked(
            &bench,
            "execute_command",
            json!({"command": "git status", "env": {"A": "b"}}),
        );
        assert_eq!(asked["env"], json!({"A": "b"}));
        let asked = server.asked(
            &bench,
            "execute_command",
            json!({"command": "git status", "network": "allow"}),
        );
        assert_eq!(
            (&asked["rule"], &asked["network"]),
            (&json!("request for more"), &json!("allow"))
        );
        assert_eq!(fs::read_to_string(bench.work().join("x")).unwrap(), "kept");
        assert!(!bench.work().join("y").exists());
    });
}

/// A repository whose configuration names a program wherever it can.
fn configured(bench: &Bench, settings: &str) {
    bench.repository();
    let evil = bench.program("evil", "#!/bin/sh\ntouch canary\ncat\n");
    let config = bench.work().join(".git/config");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text + &settings.replace("EVIL", evil.to_str().unwrap())).unwrap();
    bench.file("tracked", "two\n");
}

#[test]
fn git_does_not_miss_what_the_workspace_configured_and_must_not_run() {
    Bench::each(|bench| {
        configured(
            &bench,
            "[core]\n\tfsmonitor = EVIL\n\tpager = EVIL\n\thooksPath = .\n[pager]\n\tstatus = EVIL\n",
        );
        let mut server = Server::start(&bench);
        for line in ["git status", "git diff", "git log", "git show"] {
            let outcome = server.line(line);
            assert_eq!(
                (outcome.status(), outcome.stderr()),
                ("ok", ""),
                "{line}: {}",
                outcome.text
            );
            assert!(!bench.work().join("canary").exists(), "{line}");
        }
    });
}

#[test]
fn git_runs_nothing_that_the_workspace_configured() {
    Bench::each(|bench| {
        configured(
            &bench,
            "[diff]\n\texternal = EVIL\n[diff \"x\"]\n\ttextconv = EVIL\n\tcommand = EVIL\n\
             [filter \"x\"]\n\tclean = EVIL\n\tsmudge = EVIL\n\tprocess = EVIL\n[log]\n\tshowSignature = true\n[gpg]\n\tprogram = EVIL\n",
        );
        bench.file(".gitattributes", "* diff=x filter=x\n");
        let mut server = Server::start(&bench);
        for line in ["git status", "git diff", "git log -p", "git show"] {
            let outcome = server.line(line);
            assert_ne!(outcome.status(), "rejected", "{line}: {}", outcome.text);
            assert!(
                !bench.work().join("canary").exists(),
                "{line} ran what the workspace configured: {}",
                outcome.text
            );
        }
    });
}

/// The loader is no program of the workspace, and git may start it: it is git's own.
const CONVERTER: &str = "[diff \"x\"]\n\ttextconv = /lib64/ld-linux-x86-64.so.2\n";

#[test]
fn git_runs_no_program_of_the_workspace_by_the_loader() {
    Bench::each(|bench| {
        configured(&bench, CONVERTER);
        bench.dir("d");
        bench.program("d/mine", fs::read("/usr/bin/id").unwrap());
        bench.file(".gitattributes", "d/mine diff=x\n");
        let added = bench.as_agents_do("git").args(["add", "-N", "d/mine"]).status();
        assert!(added.unwrap().success());
        let mut server = Server::start(&bench);
        for mode in ["workspace-write", "read-only"] {
            let outcome = server.call("execute_command", json!({"command": "git diff", "sandbox": mode}));
            if outcome.layers().contains(&"mountns") {
                let refused = "failed to map segment";
                assert!(!outcome.stdout().contains("uid="), "{mode}: {}", outcome.text);
                assert!(outcome.stderr().contains(refused), "{mode}: {}", outcome.text);
            }
        }
    });
}

#[test]
fn git_takes_no_settings_from_a_directory_that_looks_like_a_repository() {
    Bench::each(|bench| {
        bench.repository();
        let (git, copy) = (bench.work().join(".git"), bench.dir("copy"));
        for part in ["objects", "refs", "info"] {
            fs::create_dir(copy.join(part)).unwrap();
        }
        fs::copy(git.join("HEAD"), copy.join("HEAD")).unwrap();
        let evil = bench.program("evil", "#!/bin/sh\ntouch canary\ncat\n");
        let settings = format!(
            "[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = {}\n",
            evil.display()
        );
        fs::write(copy.join("config"), settings + CONVERTER).unwrap();
        fs::write(copy.join("info/attributes"), "* diff=x\n").unwrap();
        bench.give_all(&copy);
        let mut server = Server::start(&bench);
        for (line, said) in [
            ("git status", "safe.bareRepository"),
            ("git diff", "Not a git repository"),
        ] {
            let arguments = json!({"command": line, "cwd": "copy", "sandbox": "read-only"});
            let outcome = server.call("execute_command", arguments);
            assert!(outcome.stderr().contains(said), "{line}: {}", outcome.text);
        }
    });
}

#[test]
fn a_script_beside_git_does_not_lend_it_a_shell() {
    let bench = Bench::new();
    configured(
        &bench,
        "[filter \"x\"]\n\tclean = \"echo x > canary; :\"\n[diff]\n\texternal = \"echo x > canary; :\"\n",
    );
    bench.file(".gitattributes", "* filter=x\n");
    let script = bench.path("bin");
    fs::create_dir(&script).unwrap();
    let bench = bench.config(&format!(
        "workspace_root: .\ncommand_policy: {{path: \"{}:/usr/bin:/bin\"}}\n",
        script.display()
    ));
    let script = script.join("which");
    fs::write(&script, "#!/bin/sh\necho found\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut server = Server::start(&bench);
    for line in [
        "which sh; git status",
        "git diff | which sh",
        "which sh && git status -s",
    ] {
        server.asked(&bench, "execute_command", json!({"command": line}));
        assert!(!bench.work().join("canary").exists(), "{line}");
    }
    assert_eq!(server.line("which sh; which ls | cat").ok(), "found\nfound\n");
}

#[test]
fn a_program_with_a_rule_of_its_own_is_not_lent_to_git() {
    Bench::each(|bench| {
        configured(&bench, "[diff]\n\texternal = rm\n");
        let bench = bench.config(
            "workspace_root: .\napproval_policy:\n  whitelist:\n    - {pattern: '^rm log$', reason: only this}\n    \
             - {pattern: '^sleep', reason: waits}\n",
        );
        bench.file("log", "");
        let mut server = Server::start(&bench);
        // It would be started with the changed file for a word.
        for line in [
            "git diff; rm log",
            "rm log && git diff",
            "git diff | cat; rm log",
            "sleep 0; rm log",
        ] {
            server.asked(&bench, "execute_command", json!({"command": line}));
        }
        assert!(bench.work().join("tracked").exists() && bench.work().join("log").exists());
        server.line("sleep 0; sleep 0 | cat").ok();
        server.line("ls; rm log").ok();
        assert!(!bench.work().join("log").exists());
    });
}

#[test]
fn what_only_looks_may_look_elsewhere_and_a_rule_for_here_is_no_rule_for_there() {
    Bench::each(|bench| {
        let bench =
            bench.config("workspace_root: .\napproval_policy:\n  whitelist: [{pattern: '^touch made$', reason: x}]\n");
        bench.repository();
        fs::create_dir(bench.work().join("sub")).unwrap();
        bench.file("sub/five", "1\n2\n3\n4\n5\n");
        let mut server = Server::start(&bench);
        assert_eq!(server.line("cd sub && sed -n 2,3p five").ok(), "2\n3\n");
        assert_eq!(server.line("cd sub; [ -f five ] && ls").ok(), "five\n");
        assert!(server.line("cd sub && git log --oneline").ok().contains("first"));
        assert_ne!(server.line("cd .. && cat outside/secret").status(), "ok");
        server.line("touch made").ok();
        for line in ["cd sub && touch made", "cd sub && ./five", "cd sub && rm five"] {
            server.asked(&bench, "execute_command", json!({"command": line}));
        }
        assert!(!bench.work().join("sub/made").exists() && bench.work().join("sub/five").exists());
    });
}

#[test]
fn a_program_that_only_tells_its_version_is_not_lent_to_git() {
    Bench::each(|bench| {
        configured(&bench, "[diff]\n\texternal = python3\n");
        bench.file("tracked", "print('it ran')\n");
        let mut server = Server::start(&bench);
        for line in [
            "git diff; python3 --version",
            "python3 --version && git diff",
            "git diff | cat; python3 --version",
            "git diff | sed -n 1p",
        ] {
            server.asked(&bench, "execute_command", json!({"command": line}));
        }
        assert!(!server.line("git diff").stdout().contains("it ran"));
        server.line("python3 --version; ls | sed -n 1p").ok();
    });
}

#[test]
fn a_line_that_only_bash_can_run_is_asked_about_though_it_only_reads() {
    let bench = Bench::new();
    let mut server = Server::start(&bench);
    for line in ["ls 2>&-", "ls 3>&1", "ls 2>&- | cat"] {
        server.asked(&bench, "execute_command", json!({"command": line}));
    }
    server.line("ls 2>&1 | cat").ok();
}

#[test]
fn what_runs_unasked_by_a_built_in_rule_writes_nothing() {
    Bench::each(|bench| {
        // Git starts a name without spaces without a shell, and git itself may be started: with a patch for a
        // name, this one would be applied.
        let bench = bench.config("answer_within_ms: 2000\n");
        configured(&bench, "[diff]\n\texternal = git-apply\n");
        let patch =
            "diff --git a/planted b/planted\nnew file mode 100644\n--- /dev/null\n+++ b/planted\n@@ -0,0 +1 @@\n+x\n";
        bench.file("tracked", patch);
        let mut server = Server::start(&bench);
        for line in [
            "git diff",
            "git status",
            "git describe --always --dirty",
            "uniq -- tracked -planted",
        ] {
            server.line(line);
            assert!(
                !bench.work().join("planted").exists() && !bench.work().join("-planted").exists(),
                "{line}"
            );
        }
        assert_eq!(server.line("egrep -c planted tracked").ok(), "2\n");
        assert_eq!(server.line("fgrep -c planted tracked | sort").ok(), "2\n");
    });
}

#[test]
fn what_runs_unasked_by_a_built_in_rule_reaches_nobody_though_others_may() {
    Bench::each(|bench| {
        let bench = bench.config(
            "workspace_root: .\ncommand_policy: {network: allow}\napproval_policy: {whitelist: [{pattern: '^sleep 0$', reason: x}]}\n",
        );
        bench.repository();
        let mut server = Server::start(&bench);
        let allowed = server.line("sleep 0");
        for line in ["git show", "git status; ls", "cat tracked"] {
            let outcome = server.line(line);
            outcome.ok();
            let has_own_network = outcome.layers().contains(&"netns");
            assert_eq!(
                has_own_network,
                outcome.layers().contains(&"mountns"),
                "{line}: {}",
                outcome.text
            );
        }
        assert!(!allowed.layers().contains(&"netns"), "{}", allowed.text);
    });
}

#[test]
fn commands_stay_in_the_directory_the_server_was_started_in() {
    let bench = Bench::new();
    let mut server = Server::start(&bench);
    let outside = server.call("execute_command", json!({"command": "ls", "cwd": ".."}));
    outside.refused("WORKSPACE_ISOLATION_VIOLATION");
    let outside = server.line("cat ../outside/secret");
    assert_ne!(outside.status(), "ok");
}
