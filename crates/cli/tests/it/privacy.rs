//! What must not be seen: secrets in the record, the server's environment in a command's, and the
//! server's own files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use crate::bench::Bench;
use crate::client::Server;

/// Looks for bytes in every file of the state directory, the write-ahead log included.
fn state_holds(bench: &Bench, needle: &str) -> Vec<String> {
    let holds = |path: &Path| {
        fs::read(path)
            .unwrap()
            .windows(needle.len())
            .any(|window| window == needle.as_bytes())
    };
    let files = fs::read_dir(bench.state())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file());
    files
        .filter(|path| holds(path))
        .map(|path| path.display().to_string())
        .collect()
}

#[test]
fn secrets_do_not_reach_the_record() {
    Bench::each(|bench| {
        let bench = bench
            .env("ALLOWED_COMMANDS", "true,sh,curl")
            .env("DEPLOY_TOKEN", "serverownedsecret77");
        let mut server = Server::start(&bench);
        let hidden = [
            (
                "execute_process",
                json!({"file": "true", "args": ["--password", "hunterpass1"]}),
                "hunterpass1",
            ),
            (
                "execute_process",
                json!({"file": "true", "args": ["--token=tokenvalue22"]}),
                "tokenvalue22",
            ),
            (
                "execute_process",
                json!({"file": "true", "args": ["x"], "env": {"API_KEY": "envsecret333"}}),
                "envsecret333",
            ),
            (
                "execute_process",
                json!({"file": "true", "args": [], "input": "inputsecret4444"}),
                "inputsecret4444",
            ),
            (
                "execute_command",
                json!({"command": "true --password linesecret5"}),
                "linesecret5",
            ),
            (
                "execute_command",
                json!({"command": "PASSWORD=linesecret6 sh -c true"}),
                "linesecret6",
            ),
            (
                "execute_command",
                json!({"command": "true serverownedsecret77"}),
                "serverownedsecret77",
            ),
            (
                "execute_command",
                json!({"command": "true 'Authorization: Bearer abcdef0123456789abcdef'"}),
                "abcdef0123456789abcdef",
            ),
            (
                "execute_command",
                json!({"command": "true https://user:urlsecret88@host/x"}),
                "urlsecret88",
            ),
            (
                "execute_command",
                json!({"command": "curl -u me:refusedsecret9 http://x", "cwd": "missing"}),
                "refusedsecret9",
            ),
            (
                "execute_command",
                json!({"command": "nosuch --password refusedsecret10"}),
                "refusedsecret10",
            ),
            (
                "run_command",
                json!({"command": "true", "args": ["ghp_0123456789abcdefghijABCDEFGHIJ012345"], "working_directory": "."}),
                "ghp_0123456789abcdefghijABCDEFGHIJ012345",
            ),
            (
                "run_command",
                json!({"command": "true", "working_directory": ".", "caller_id": "--password callersecret11"}),
                "callersecret11",
            ),
            (
                "execute_command",
                json!({"command": "true", "cwd": "serverownedsecret77"}),
                "serverownedsecret77",
            ),
            (
                "execute_command",
                json!({"command": "true", "serverownedsecret77": 1}),
                "serverownedsecret77",
            ),
        ];
        bench.dir("serverownedsecret77");
        for (tool, arguments, secret) in &hidden {
            server.call(tool, arguments.clone());
            assert_eq!(state_holds(&bench, secret), Vec::<String>::new(), "{arguments}");
        }
        server.end();
        for (_, arguments, secret) in &hidden {
            assert_eq!(
                state_holds(&bench, secret),
                Vec::<String>::new(),
                "{arguments} after the end"
            );
        }
    });
}

#[test]
fn a_secret_that_a_command_prints_is_given_to_the_caller_and_not_to_the_record() {
    let bench = Bench::allowing("cat").env("GITHUB_TOKEN", "printedsecret123");
    bench.file("config", "password = filesecret456\nprintedsecret123\n");
    let mut server = Server::start(&bench);
    assert!(server.line("cat config").ok().contains("printedsecret123"));
    assert_eq!(state_holds(&bench, "printedsecret123"), Vec::<String>::new());
}

#[test]
fn a_commands_environment_is_built_from_nothing() {
    Bench::each(|bench| {
        let bench = bench
            .configure("env", "  env_allow: [LANG, ALLOWED_ONE]\n")
            .env("SECRET_TOKEN", "x")
            .env("LANG", "C.UTF-8")
            .env("ALLOWED_ONE", "1")
            .env("LD_LIBRARY_PATH", "/nowhere")
            .env("GIT_DIR", "/x");
        let mut server = Server::start(&bench);
        let outcome = server.call(
            "execute_process",
            json!({"file": "env", "args": [], "env": {"MINE": "a=b\nc"}}),
        );
        let lines = outcome.ok().lines();
        let mut names: Vec<&str> = lines
            .filter(|line| *line != "c")
            .map(|line| line.split_once('=').unwrap().0)
            .collect();
        names.retain(|name| !name.starts_with("GIT_CONFIG_"));
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "ALLOWED_ONE",
                "GIT_TERMINAL_PROMPT",
                "HOME",
                "LANG",
                "MINE",
                "PATH",
                "PWD",
                "TMPDIR"
            ]
        );
        let value = |name: &str| {
            outcome
                .stdout()
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{name}=")).map(str::to_owned))
                .unwrap()
        };
        assert_eq!(
            value("PATH"),
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        );
        assert!(
            !Path::new(&value("HOME")).starts_with(bench.path("home"))
                && !Path::new(&value("HOME")).starts_with(bench.state())
        );
        assert_ne!(value("TMPDIR"), bench.path("tmp").to_str().unwrap());
    });
}

#[test]
fn a_call_cannot_set_what_changes_which_programs_run() {
    let bench = Bench::allowing("env");
    let mut server = Server::start(&bench);
    for name in [
        "PATH",
        "HOME",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "BASH_ENV",
        "ENV",
        "PYTHONPATH",
        "NODE_OPTIONS",
        "GIT_DIR",
        "GIT_SSH_COMMAND",
        "PERL5OPT",
        "IFS",
        "LANGUAGE",
        "TEXTDOMAINDIR",
        "RSYNC_CONNECT_PROG",
        "VIMINIT",
    ] {
        let outcome = server.call(
            "execute_process",
            json!({"file": "env", "args": [], "env": {name: "x"}}),
        );
        outcome.refused("POLICY_DENIED");
        assert!(outcome.message().contains(name), "{}", outcome.text);
    }
    for name in ["", "A=B", "A\0B"] {
        server
            .call(
                "execute_process",
                json!({"file": "env", "args": [], "env": {name: "x"}}),
            )
            .refused("INVALID_ARGUMENTS");
    }
}

#[test]
fn home_is_kept_between_calls_and_the_temporary_directory_is_not() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "sh,ls,mkdir");
        let mut server = Server::start(&bench);
        server
            .line("sh -c 'echo kept > $HOME/file; echo lost > $TMPDIR/file; mkdir -m 0 $TMPDIR/locked'")
            .ok();
        let outcome = server.line("sh -c 'read x < $HOME/file; echo $x; ls -A $TMPDIR'");
        assert_eq!(outcome.ok(), "kept\n");
    });
}

#[test]
fn the_servers_own_files_cannot_be_read() {
    Bench::each(|bench| {
        fs::create_dir(bench.path("home/.ssh")).unwrap();
        fs::write(bench.path("home/.ssh/id_ed25519"), "private").unwrap();
        fs::write(bench.path("home/notes"), "private").unwrap();
        let bench = bench.config("approval_policy: {mode: never}\n# private\n");
        let mut server = Server::start(&bench);
        server.process("true", &[]).ok();
        let base = bench.state().parent().unwrap().to_owned();
        for file in [
            "state/record.db",
            "state/record-key",
            "home/.ssh/id_ed25519",
            "home/notes",
            "config/countersign/config.yaml",
        ] {
            let path = base.join(file);
            assert!(path.exists(), "{file}");
            for outcome in [
                server.process("cat", &[path.to_str().unwrap()]),
                server.line(&format!("cat ../{file} < ../{file}")),
            ] {
                assert!(
                    outcome.status() == "failed" && outcome.stdout().is_empty(),
                    "{file}: {}",
                    outcome.text
                );
            }
        }
        for file in [
            "/proc/1/environ",
            &format!("/proc/{}/environ", server.pid()),
            &format!("/proc/{}/mem", server.pid()),
            "/etc/shadow",
        ] {
            let outcome = server.process("head", &["-c", "1", file]);
            assert!(
                outcome.status() == "failed" || file == "/proc/1/environ",
                "{file}: {}",
                outcome.text
            );
        }
    });
}

#[test]
fn the_servers_own_files_cannot_be_read_among_those_of_the_system() {
    Bench::each(|bench| {
        // Any file of the system will do for the key.
        let bench = bench.config("tls: {cert: /etc/passwd, key: /etc/group}\n");
        let mut server = Server::start(&bench);
        for line in ["cat /etc/group", "cat /etc/../etc/group", "grep root /etc/group"] {
            let outcome = server.line(line);
            assert!(!outcome.stdout().contains("root:x:0:\n"), "{line}: {}", outcome.text);
        }
        assert!(server.line("cat /etc/passwd").ok().starts_with("root:"));
    });
}

/// An agent that was started in somebody's home.
#[test]
fn hidden_places_stay_hidden_under_whatever_name_a_command_gives_the_directory_above() {
    Bench::each(|bench| {
        let home = bench.work();
        let bench = bench
            .env("HOME", &home)
            .env("ALLOWED_COMMANDS", "cat,mv,mkdir,chmod,sh");
        for dir in [".config/gh", ".cargo", ".ssh"] {
            fs::create_dir_all(home.join(dir)).unwrap();
        }
        let secrets = [".config/gh/hosts.yml", ".cargo/credentials.toml", ".ssh/id"];
        for file in secrets {
            fs::write(home.join(file), "private").unwrap();
        }
        for dir in [".config", ".cargo", ".ssh"] {
            bench.give_all(&home.join(dir));
        }
        let mut server = Server::start(&bench);
        let sees = |server: &mut Server, line: &str| server.line(line).stdout().contains("private");
        if !server.line("cat .config/gh/hosts.yml").layers().contains(&"mountns") {
            return;
        }
        for (line, then) in [
            (
                "mv .config old; mv .cargo oldc; mv .ssh olds",
                "cat old/gh/hosts.yml oldc/credentials.toml olds/id",
            ),
            (
                "mkdir new; mv .config new/; mv .cargo new/",
                "cat new/.config/gh/hosts.yml new/.cargo/credentials.toml",
            ),
            (
                "chmod 000 .config .cargo .ssh",
                "sh -c 'chmod 755 .config .cargo .ssh; cat .config/gh/hosts.yml .cargo/credentials.toml .ssh/id'",
            ),
        ] {
            assert!(!sees(&mut server, line) && !sees(&mut server, then), "{line}");
            for dir in [".config", ".cargo", ".ssh"] {
                fs::set_permissions(home.join(dir), fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        for file in secrets {
            assert!(home.join(file).exists(), "{file}");
        }
    });
}

#[test]
fn homes_of_other_workspaces_are_hidden_from_one_that_contains_them() {
    Bench::each(|bench| {
        let home = bench.work();
        let cache = home.join(".cache");
        let bench = bench.env("HOME", &home).env("COUNTERSIGN_CACHE_DIR", &cache);
        let bench = bench.env("ALLOWED_COMMANDS", "sh,cat");
        let mut server = Server::start(&bench);
        let own = server.line("sh -c 'echo own > $HOME/kept; cat $HOME/kept'");
        if !own.layers().contains(&"mountns") {
            return;
        }
        assert_eq!(own.ok(), "own\n");
        server.end();
        let homes = cache.join("homes");
        fs::create_dir(homes.join("other")).unwrap();
        fs::write(homes.join("other/kept"), "private\n").unwrap();
        bench.give_all(&homes.join("other"));
        let mut server = Server::start(&bench);
        let seen = server.line("sh -c 'cat .cache/homes/*/kept; cat $HOME/kept'");
        assert!(
            seen.stdout().ends_with("own\n") && !seen.stdout().contains("private"),
            "{}",
            seen.text
        );
    });
}

#[test]
fn a_home_that_is_reached_by_a_link_hides_what_comes_into_being_there() {
    Bench::each(|bench| {
        let home = bench.work();
        std::os::unix::fs::symlink(&home, bench.path("linked")).unwrap();
        let linked = bench.path("linked");
        let bench = bench.env("HOME", &linked).env("ALLOWED_COMMANDS", "cat,ls");
        let mut server = Server::start(&bench);
        if !server.line("ls").layers().contains(&"mountns") {
            return;
        }
        fs::create_dir(home.join(".aws")).unwrap();
        fs::write(home.join(".aws/credentials"), "private").unwrap();
        bench.give_all(&home.join(".aws"));
        assert!(!server.line("cat .aws/credentials").stdout().contains("private"));
    });
}

#[test]
fn the_servers_own_arguments_are_not_told_by_the_process_beside_a_command() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "cat");
        let mut server = Server::start(&bench);
        let told = server.process("cat", &["/proc/1/cmdline"]);
        if told.layers().contains(&"pidns") {
            assert!(!told.ok().contains("stdio"), "{}", told.text);
        }
    });
}

#[test]
fn state_is_private_to_its_owner() {
    let bench = Bench::allowing("true");
    fs::remove_dir(bench.state()).unwrap();
    let mut server = Server::start(&bench);
    server.process("true", &[]).ok();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&bench.state()), 0o700);
    for entry in fs::read_dir(bench.state()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
}

#[test]
fn commands_of_a_root_server_are_the_owner_of_the_workspace() {
    let bench = Bench::allowing("id,touch");
    if !bench.is_root() {
        return;
    }
    let mut server = Server::start(&bench);
    assert_eq!(server.line("id -u && id -G").ok(), "1000\n1000\n");
    std::os::unix::fs::chown(bench.work(), Some(0), Some(0)).unwrap();
    assert_eq!(server.line("id -u && id -G").ok(), "65534\n65534\n");
    server.line("touch canary").failed("COMMAND_EXIT_NON_ZERO");
}

#[test]
fn a_secret_in_a_calls_own_variables_is_given_to_the_caller_and_not_to_the_record() {
    let bench = Bench::allowing("sh");
    let mut server = Server::start(&bench);
    let script = "echo got $DEPLOY_TOKEN; echo again $DEPLOY_TOKEN >&2; echo plain $COLOUR";
    let env = json!({"DEPLOY_TOKEN": "callsecret909", "COLOUR": "ultramarine"});
    let printed = server.call(
        "execute_process",
        json!({"file": "sh", "args": ["-c", script], "env": env}),
    );
    let said = printed.ok();
    assert!(said.contains("got callsecret909"), "{said}");
    // Refused, failed, and with the secret where none belongs.
    for arguments in [
        json!({"file": "sh", "args": ["-c", "echo callsecret909; exit 3"], "env": env}),
        json!({"file": "callsecret909", "args": [], "env": env}),
        json!({"file": "sh", "args": [], "cwd": "callsecret909", "env": env}),
        json!({"file": "sh", "args": [], "callsecret909": 1, "env": env}),
    ] {
        server.call("execute_process", arguments);
    }
    assert_eq!(state_holds(&bench, "callsecret909"), Vec::<String>::new());
    assert_ne!(state_holds(&bench, "plain ultramarine"), Vec::<String>::new());
    server.end();
    assert_eq!(state_holds(&bench, "callsecret909"), Vec::<String>::new());
}

#[test]
fn a_secret_across_the_place_where_output_is_cut_does_not_reach_the_record() {
    let bench = Bench::allowing("cat").env("GITHUB_TOKEN", "bordersecret77");
    // Half of what is kept is the head: nothing is left out of the first, most of the second.
    let half = (1 << 20) / 2;
    for (name, behind) in [("whole", 1000), ("cut", 2 << 20)] {
        let text = format!("{}bordersecret77{}", " ".repeat(half - 7), " ".repeat(behind));
        bench.file(name, &text);
        let token = format!(
            "{} ghp_abcdefghij0123456789{}",
            "-".repeat(half - 12),
            " ".repeat(behind)
        );
        bench.file(&format!("{name}-token"), &token);
    }
    let mut server = Server::start(&bench);
    for name in ["whole", "cut", "whole-token", "cut-token"] {
        server.process("cat", &[name]).ok();
    }
    server.end();
    for secret in ["bordersecret77", "borders", "ghp_abcdefghij0123456789", "ghp_abcde"] {
        assert_eq!(state_holds(&bench, secret), Vec::<String>::new(), "{secret}");
    }
}

#[test]
fn a_secret_that_a_line_names_is_not_recorded_when_the_line_prints_it_encoded_or_plain() {
    let bench = Bench::allowing("sh,echo,base64");
    let mut server = Server::start(&bench);
    let named = server.line("export DEPLOY_TOKEN='named secret 31'; echo $DEPLOY_TOKEN; echo $DEPLOY_TOKEN | base64");
    assert_eq!(named.ok(), "named secret 31\nbmFtZWQgc2VjcmV0IDMxCg==\n");
    let args = ["-c", "echo \"$2\"", "sh", "--password", "argued secret 32"];
    assert_eq!(server.process("sh", &args).ok(), "argued secret 32\n");
    let header = ["-c", "echo \"$2\"", "sh", "X-Api-Key:", "headed-secret-33"];
    assert_eq!(server.process("sh", &header).ok(), "headed-secret-33\n");
    server.end();
    for secret in [
        "named secret 31",
        "bmFtZWQgc2VjcmV0IDMx",
        "argued secret 32",
        "headed-secret-33",
    ] {
        assert_eq!(state_holds(&bench, secret), Vec::<String>::new(), "{secret}");
    }
    let again = Server::start(&bench).call("command_status", json!({"request_id": named.id()}));
    assert_eq!(again.structured["stdout"], "[redacted]\n[redacted]Cg==\n");
    assert_eq!(again.structured["stdout_truncated"], false);
}

#[test]
fn a_secret_in_a_calls_own_variables_is_not_in_the_question_about_it_and_hides_no_command() {
    let bench = Bench::new().config("answer_within_ms: 300\napproval_policy: {mode: untrusted}\n");
    let mut server = Server::start(&bench);
    let env = json!({"DEPLOY_TOKEN": "askedsecret41"});
    let named = server.call(
        "execute_process",
        json!({"file": "touch", "args": ["askedsecret41"], "env": env}),
    );
    assert_eq!(named.code(), "APPROVAL_PENDING");
    let env = json!({"DEPLOY_TOKEN": "; rm -r shown"});
    let hiding = server.call(
        "execute_command",
        json!({"command": "sh -c 'true; rm -r shown'", "env": env}),
    );
    assert_eq!(hiding.code(), "APPROVAL_PENDING");
    assert_ne!(state_holds(&bench, "rm -r shown"), Vec::<String>::new());
    server.end();
    assert_eq!(state_holds(&bench, "askedsecret41"), Vec::<String>::new());
}
