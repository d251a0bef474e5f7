//! What an operator sets, a call narrows and a new user types: each as it is meant.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::bench::Bench;
use crate::client::Server;

#[test]
fn lists_in_variables_may_have_spaces_and_empty_places() {
    let bench = Bench::allowing(" ls , ,cat,ls,");
    let root = bench.dir("mono");
    let roots = format!(" {} , ", root.display());
    let bench = bench.env("ALLOWED_CWD_ROOTS", &roots);
    let mut server = Server::start(&bench);
    for line in ["ls", "cat /dev/null"] {
        server
            .call("execute_command", json!({"command": line, "cwd": "mono"}))
            .ok();
    }
    server
        .call("execute_command", json!({"command": "ls", "cwd": "."}))
        .refused("CWD_NOT_ALLOWED");
}

#[test]
fn a_call_may_narrow_its_sandbox() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "touch,cat");
        bench.file("here", "text");
        let mut server = Server::start(&bench);
        let mut run = |file: &str, name: &str| {
            server.call(
                "execute_process",
                json!({"file": file, "args": [name], "sandbox": "read-only"}),
            )
        };
        assert_eq!(run("cat", "here").ok(), "text");
        run("touch", "canary").failed("COMMAND_EXIT_NON_ZERO");
        assert!(!bench.work().join("canary").exists());
        server.process("touch", &["canary"]).ok();
    });
}

#[test]
fn every_mode_does_what_it_says() {
    const ASKS: &str = "APPROVAL_PENDING";
    for (mode, plain, more) in [
        ("untrusted", ASKS, ASKS),
        ("on-request", "", ASKS),
        ("never", "", "POLICY_DENIED"),
    ] {
        let bench = Bench::new().config(&format!("answer_within_ms: 3000\napproval_policy: {{mode: {mode}}}\n"));
        let mut server = Server::start(&bench);
        assert_eq!(server.process("touch", &["made"]).code(), plain, "{mode}");
        assert_eq!(bench.work().join("made").exists(), plain.is_empty(), "{mode}");
        for wish in [json!({"network": "allow"}), json!({"sandbox": "danger-full-access"})] {
            let mut arguments = json!({"file": "touch", "args": ["canary"], "justification": "please"});
            arguments
                .as_object_mut()
                .unwrap()
                .extend(wish.as_object().unwrap().clone());
            assert_eq!(server.call("execute_process", arguments).code(), more, "{mode} {wish}");
        }
        assert!(!bench.work().join("canary").exists(), "{mode}");
    }
}

#[test]
fn a_required_layer_that_other_settings_leave_out_is_said_to_be_so_and_one_with_nothing_to_do_is_not_missed() {
    for (require, more, why) in [
        ("netns", "  network: allow\n", "the network is allowed"),
        ("exec-list", "", "any program may run"),
        ("protected-paths", "", ""),
    ] {
        let bench = Bench::configured("'*'", &format!("  require: [{require}]\n{more}"));
        let outcome = Server::start(&bench).process("true", &[]);
        if why.is_empty() {
            outcome.ok();
            continue;
        }
        let message = outcome.refused("SANDBOX_UNAVAILABLE").message();
        assert!(message.contains(why) && !message.contains("doctor"), "{message}");
    }
}

#[test]
fn the_tool_matrix_denies_asks_and_hides() {
    let bench = Bench::configured(
        "touch",
        "tools: {execute_command: {approval: deny}, execute_process: {approval: required}, run_command: {enabled: false}}\n",
    );
    let mut server = Server::start(&bench);
    server.line("touch canary").refused("POLICY_DENIED");
    let asked = server.asked(&bench, "execute_process", json!({"file": "touch", "args": ["canary"]}));
    assert_eq!(asked["rule"], "tools execute_process");
    let id = server.call_later(
        "run_command",
        json!({"command": "touch", "args": ["canary"], "working_directory": "."}),
    );
    assert_eq!(server.answer(id)["error"]["code"], -32602);
    assert!(!bench.work().join("canary").exists());
}

#[test]
fn everyday_git_works_in_a_workspace() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "git");
        bench.repository();
        bench.file("new", "text\n");
        let mut server = Server::start(&bench);
        for line in [
            "git status --short",
            "git add new",
            "git -c user.name=t -c user.email=t@t commit -qm second",
            "git checkout -qb side",
            "git log --oneline",
            "git rm -q new",
            "git -c user.name=t -c user.email=t@t stash",
            "git stash pop",
            "git init -q other",
            "git diff HEAD",
            "git tag v1",
            "git gc -q",
        ] {
            let outcome = server.line(line);
            assert_eq!(outcome.status(), "ok", "{line}: {}", outcome.text);
        }
    });
}

#[test]
fn a_job_in_the_background_ends_with_its_line() {
    let bench = Bench::allowing("*");
    let mut server = Server::start(&bench);
    for line in [
        "sleep 600 & echo started",
        "(sleep 600; touch canary) & echo started",
        "nohup sleep 600 > /dev/null 2>&1 & echo started",
    ] {
        assert_eq!(server.line(line).ok(), "started\n", "{line}");
    }
}

/// Nothing but a mount keeps the owner of a file from changing who may read it.
#[test]
fn a_command_does_not_open_the_state_directory_to_others() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "chmod");
        let mut server = Server::start(&bench);
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for (name, expected) in [("record-key", 0o600), ("record.db", 0o600), ("", 0o700)] {
            let path = bench.state().join(name);
            let outcome = server.process("chmod", &["777", path.to_str().unwrap()]);
            if outcome.layers().contains(&"mountns") {
                assert_eq!(mode(&path), expected, "{name}: {}", outcome.text);
            }
        }
    });
}

/// What does not exist cannot be covered, so that it is made.
#[test]
fn a_command_does_not_write_the_operators_file_where_there_is_none() {
    Bench::each(|bench| {
        let home = bench.dir("home");
        let bench = bench
            .env("ALLOWED_COMMANDS", "mkdir,tee")
            .env("XDG_CONFIG_HOME", home.join(".config"));
        let mut server = Server::start(&bench);
        server.line("mkdir -p home/.config/countersign");
        let call = json!({"file": "tee", "args": ["home/.config/countersign/config.yaml"], "input": "approval_policy: {mode: never}"});
        let outcome = server.call("execute_process", call);
        assert_ne!(outcome.status(), "ok", "{}", outcome.text);
        assert!(!home.join(".config/countersign/config.yaml").exists());
    });
}

#[test]
fn a_state_directory_inside_the_workspace_is_not_seen_by_commands() {
    Bench::each(|bench| {
        let state = bench.dir("state");
        let bench = bench
            .env("ALLOWED_COMMANDS", "ls,cat,touch,mv,rm")
            .env("COUNTERSIGN_STATE_DIR", &state);
        let mut server = Server::start(&bench);
        for line in [
            "cat state/record.db",
            "cat state/record-key",
            "touch state/canary",
            "rm state/record.db",
            "mv state moved",
        ] {
            let outcome = server.line(line);
            assert!(
                outcome.is_error && outcome.stdout().is_empty(),
                "{line}: {}",
                outcome.text
            );
        }
        assert!(state.join("record.db").exists() && !state.join("canary").exists());
        assert!(fs::read_dir(&state).unwrap().count() >= 2);
    });
}

#[test]
fn workspaces_do_not_share_a_home() {
    let bench = Bench::allowing("sh");
    bench.dir("one");
    bench.dir("two");
    let mut server = Server::start(&bench);
    let mut home = |cwd: &str| {
        server
            .call("execute_command", json!({"command": "sh -c 'echo $HOME'", "cwd": cwd}))
            .ok()
            .to_owned()
    };
    let (one, two) = (home("one"), home("two"));
    assert_ne!(one, two);
    assert_eq!(home("one"), one);
}

#[test]
fn homes_are_kept_in_the_cache_directory_that_was_named() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "touch");
        let mut server = Server::start(&bench);
        server.call("execute_command", json!({"command": "touch ~/kept"})).ok();
        let homes: Vec<_> = fs::read_dir(bench.path("cache/homes")).unwrap().flatten().collect();
        assert_eq!(homes.len(), 1, "{homes:?}");
        assert!(homes[0].path().join("kept").exists());
    });
}

#[test]
fn a_cache_directory_that_cannot_be_used_is_said_at_the_start() {
    let bench = Bench::allowing("true");
    let file = bench.file("taken", "a file");
    for (named, complaint, code) in [(file.to_str().unwrap(), "taken", 1), ("cache", "from the root on", 2)] {
        let refused = bench
            .command()
            .env("COUNTERSIGN_CACHE_DIR", named)
            .args(["exec", "--", "true"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(code), "{said}");
        assert!(
            said.contains("COUNTERSIGN_CACHE_DIR") && said.contains(complaint),
            "{said}"
        );
    }
}
