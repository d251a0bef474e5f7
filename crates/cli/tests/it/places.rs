//! Working directories that are not what they seem.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::bench::{Bench, hand_over, is_root};
use crate::client::Server;
use crate::web::{Web, legacy};

#[test]
fn a_directory_outside_the_roots_is_refused_however_it_is_written() {
    Bench::each(|bench| {
        let root = bench.dir("mono");
        bench.dir("mono/sub");
        bench.dir("mono-evil");
        symlink(bench.work(), root.join("up")).unwrap();
        symlink("/etc", root.join("etc")).unwrap();
        symlink("../mono-evil", root.join("sideways")).unwrap();
        let bench = bench.env("ALLOWED_COMMANDS", "touch").env("ALLOWED_CWD_ROOTS", &root);
        let mut server = Server::start(&bench);
        let root = root.to_str().unwrap();
        for cwd in [
            format!("{root}/.."),
            format!("{root}/sub/../.."),
            format!("{root}-evil"),
            format!("{root}/up"),
            format!("{root}/etc"),
            format!("{root}/sideways"),
            format!("{root}/up/mono-evil"),
            "mono-evil".to_owned(),
            "/".to_owned(),
            "/proc/self/cwd".to_owned(),
            format!("/proc/{}/root", std::process::id()),
            format!("{root}/sub/./.././../mono-evil"),
        ] {
            let outcome = server.call("execute_command", json!({"command": "touch canary", "cwd": cwd}));
            assert_eq!(outcome.code(), "CWD_NOT_ALLOWED", "{cwd}: {}", outcome.text);
        }
        for cwd in [
            format!("{root}/sub/.."),
            format!("{root}/up/mono"),
            "mono//sub".to_owned(),
        ] {
            server
                .call("execute_command", json!({"command": "touch fine", "cwd": cwd}))
                .ok();
        }
        for place in [bench.work(), bench.work().join("mono-evil")] {
            assert!(!place.join("canary").exists());
        }
    });
}

#[test]
fn nobody_works_among_terminals_and_settings_of_the_kernel() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "ls");
        let mut server = Server::start(&bench);
        for cwd in ["/dev", "/dev/pts", "/proc/self", "/proc/sys", "/sys/fs/cgroup"] {
            let outcome = server.call("execute_command", json!({"command": "ls", "cwd": cwd}));
            assert_eq!(outcome.code(), "CWD_NOT_ALLOWED", "{cwd}: {}", outcome.text);
            assert!(outcome.message().contains("devices"), "{}", outcome.text);
        }
        server
            .call("execute_command", json!({"command": "ls", "cwd": "/dev/shm"}))
            .ok();
    });
}

#[test]
fn nobody_works_among_what_steers_git_and_ourselves() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "sh,ls,git");
        bench.repository();
        bench.dir(".countersign");
        let tightens = bench.file(".countersign/config.yaml", "command_policy: {timeout_seconds: 5}\n");
        // A bare repository, and a worktree of it that was put inside.
        run(&bench, &["cp", "-r", ".git", "bare"]);
        run(&bench, &["git", "-C", "bare", "config", "core.bare", "true"]);
        run(&bench, &["git", "-C", "bare", "worktree", "add", "-q", "tree"]);
        bench.give_all(&bench.work().join("bare"));
        symlink(".git/hooks", bench.work().join("link")).unwrap();
        let mut server = Server::start(&bench);
        let script = "echo evil > canary; echo evil > hooks/canary; echo evil >> config; echo > config.yaml";
        for (cwd, around) in [
            (".git", ".git"),
            (".git/hooks", ".git"),
            (".git/refs/heads", ".git"),
            ("link", ".git"),
            ("./.git/../.git/info", ".git"),
            (bench.work().join(".git").to_str().unwrap(), ".git"),
            (".countersign", ".countersign"),
            ("bare", "bare"),
            ("bare/hooks", "bare"),
            ("bare/worktrees/tree", "bare/worktrees/tree"),
        ] {
            let process = json!({"file": "sh", "args": ["-c", script], "cwd": cwd});
            let command = json!({"command": "sh", "args": ["-c", script], "working_directory": cwd});
            for (tool, arguments) in [("execute_process", process), ("run_command", command)] {
                let outcome = server.call(tool, arguments);
                assert_eq!(outcome.code(), "CWD_NOT_ALLOWED", "{tool} {cwd}: {}", outcome.text);
                let named = format!("`{}`", bench.work().canonicalize().unwrap().join(around).display());
                assert!(outcome.message().contains(&named), "{}", outcome.text);
            }
            for place in [bench.work().join(cwd), bench.work().join(cwd).join("hooks")] {
                assert!(!place.join("canary").exists(), "{cwd}");
            }
        }
        assert!(fs::read_to_string(tightens).unwrap().contains("timeout_seconds"));
        for config in [".git/config", "bare/config"] {
            assert!(!fs::read_to_string(bench.work().join(config)).unwrap().contains("evil"));
        }
        // To look around is not to write, and a worktree is nothing of git's own.
        let look = json!({"file": "ls", "args": [], "cwd": ".git", "sandbox": "read-only"});
        assert!(server.call("execute_process", look).ok().contains("hooks\n"));
        for cwd in [".", "bare/tree"] {
            server
                .call("execute_process", json!({"file": "ls", "args": [], "cwd": cwd}))
                .ok();
        }
        assert!(server.end().success());
        let refused = "SELECT count(*) FROM flow_events WHERE event_type = 'command.completed' AND payload LIKE '%CWD_NOT_ALLOWED%'";
        assert_eq!(bench.count(refused), 20, "each is in the record");
    });
}

#[test]
fn a_root_among_what_steers_git_is_the_operators_to_correct() {
    let bench = Bench::allowing("touch");
    bench.repository();
    let bench = {
        let roots = bench.work().join(".git/hooks");
        bench.env("ALLOWED_CWD_ROOTS", roots)
    };
    let touch = json!({"file": "touch", "args": ["canary"], "cwd": ".git/hooks"});
    let outcome = Server::start(&bench).call("execute_process", touch);
    outcome.refused("CONFIGURATION_ERROR");
    assert!(
        outcome.message().starts_with("`ALLOWED_CWD_ROOTS` names"),
        "{}",
        outcome.text
    );
    assert!(!bench.work().join(".git/hooks/canary").exists());

    let bench = Bench::new().config("workspace_root: .git\napproval_policy: {mode: never}\n");
    bench.repository();
    let outcome = Server::start(&bench).process("touch", &["canary"]);
    outcome.refused("CONFIGURATION_ERROR");
    assert!(outcome.message().starts_with("`workspace_root`"), "{}", outcome.text);
    assert!(!bench.work().join(".git/canary").exists());
}

#[test]
fn inside_a_workspace_what_steers_git_can_be_entered_and_not_changed() {
    Bench::each(|bench| {
        let bench = bench.configure("sh, touch", "");
        bench.repository();
        let mut server = Server::start(&bench);
        let script = "echo fine > description; echo evil > hooks/canary; echo evil >> config; :";
        let outcome = server.call(
            "execute_process",
            json!({"file": "sh", "args": ["-c", script], "cwd": ".git"}),
        );
        outcome.ok();
        let repository = bench.work().join(".git");
        assert_eq!(fs::read_to_string(repository.join("description")).unwrap(), "fine\n");
        if outcome.layers().contains(&"protected-paths") {
            assert!(!repository.join("hooks/canary").exists());
            assert!(!fs::read_to_string(repository.join("config")).unwrap().contains("evil"));
        }
    });
}

/// A command of whoever makes the workspace.
fn run(bench: &Bench, words: &[&str]) {
    let mut command = Command::new(words[0]);
    command.current_dir(bench.work()).env("HOME", bench.path("home"));
    let done = command.args(&words[1..]).output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{words:?}: {told}");
}

#[test]
fn a_root_that_is_a_link_is_what_it_leads_to() {
    let bench = Bench::allowing("pwd");
    let real = bench.dir("real").canonicalize().unwrap();
    symlink(&real, bench.work().join("link")).unwrap();
    let bench = {
        let link = bench.work().join("link");
        bench.env("ALLOWED_CWD_ROOTS", link)
    };
    let mut server = Server::start(&bench);
    for cwd in ["real", "link"] {
        let outcome = server.call("execute_command", json!({"command": "pwd", "cwd": cwd}));
        assert_eq!(outcome.ok().trim(), real.to_str().unwrap());
    }
}

#[test]
fn a_list_of_roots_that_names_none_allows_none_and_says_so() {
    let bench = Bench::allowing("pwd").env("ALLOWED_CWD_ROOTS", " , ");
    let mut server = Server::start(&bench);
    let outcome = server.call("execute_command", json!({"command": "pwd", "cwd": "."}));
    let told = outcome.structured["error_message"].as_str().unwrap_or_default();
    assert_eq!(outcome.structured["error_code"], "CWD_NOT_ALLOWED");
    assert!(
        told.ends_with("is not allowed: `ALLOWED_CWD_ROOTS` names no directory; calls without `cwd` still work"),
        "{told}"
    );
}

#[test]
fn a_directory_swapped_during_the_call_is_never_worked_in() {
    let bench = Bench::allowing("pwd,touch");
    let inside = bench.dir("mono/inside");
    let outside = bench.dir("outside");
    let (aside, root) = (bench.work().join("mono/aside"), bench.work().join("mono"));
    let bench = bench.env("ALLOWED_CWD_ROOTS", &root);
    let mut server = Server::start(&bench);
    /// Set also when the test fails, so that it can end.
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _done = Done(&done);
        scope.spawn(|| {
            // The name `inside` is now a directory within the root and now a link out of it.
            while !done.load(Ordering::Relaxed) {
                fs::rename(&inside, &aside).unwrap();
                symlink(&outside, &inside).unwrap();
                std::thread::yield_now();
                fs::remove_file(&inside).unwrap();
                fs::rename(&aside, &inside).unwrap();
                std::thread::yield_now();
            }
        });
        let mut seen = [0; 2];
        for round in 0..150 {
            let outcome = server.call(
                "execute_process",
                json!({"file": "touch", "args": [format!("canary-{round}")], "cwd": inside}),
            );
            match outcome.code() {
                "" => seen[0] += 1,
                "CWD_NOT_ALLOWED" | "CWD_NOT_FOUND" => seen[1] += 1,
                // Found inside, and gone when the command was to enter it.
                "COMMAND_EXECUTION_FAILED" if outcome.message().contains("working directory") => seen[1] += 1,
                other => panic!("{other}: {}", outcome.text),
            }
        }
        println!("ran {}, refused {}", seen[0], seen[1]);
    });
    assert_eq!(
        fs::read_dir(&outside).unwrap().count(),
        0,
        "a command worked outside its root"
    );
}

#[test]
fn a_deleted_directory_is_not_found_and_a_new_one_is() {
    let bench = Bench::allowing("pwd");
    let place = bench.dir("place");
    let mut server = Server::start(&bench);
    let mut run = || server.call("execute_command", json!({"command": "pwd", "cwd": "place"}));
    run().ok();
    fs::remove_dir(&place).unwrap();
    run().refused("CWD_NOT_FOUND");
    fs::create_dir(&place).unwrap();
    hand_over(&place);
    assert_eq!(run().ok().trim(), place.canonicalize().unwrap().to_str().unwrap());
}

#[test]
fn a_server_whose_directory_was_replaced_works_in_the_new_one() {
    let bench = Bench::configured("ls", "");
    let mut server = Server::start(&bench);
    server.line("ls").ok();
    fs::rename(bench.work(), bench.path("moved")).unwrap();
    fs::create_dir(bench.work()).unwrap();
    hand_over(&bench.work());
    bench.file("new", "");
    assert_eq!(server.line("ls").ok(), "new\n");
}

#[test]
fn names_that_are_not_utf_8_are_listed_and_flagged() {
    use std::os::unix::ffi::OsStrExt;
    let bench = Bench::allowing("ls,cat");
    let name = std::ffi::OsStr::from_bytes(b"na\xffme");
    fs::create_dir(bench.work().join(name)).unwrap();
    fs::write(bench.work().join(name).join("file"), "in it\n").unwrap();
    let mut server = Server::start(&bench);
    let outcome = server.line("ls");
    assert_eq!(outcome.ok(), "na\u{fffd}me\n");
    assert!(outcome.structured["stdout_lossy"] == true && outcome.structured["stderr_lossy"] == false);
    assert_eq!(outcome.structured["stdout_bytes"], 6);
    // A glob carries the bytes as they are.
    assert_eq!(server.line("cat na*/file").ok(), "in it\n");
}

#[test]
fn a_directory_whose_name_is_not_utf_8_is_entered_or_refused_in_words() {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::OsStr::from_bytes(b"na\xffme");
    let within = Bench::configured("ls", "");
    let alone = Bench::allowing("ls");
    for bench in [&within, &alone] {
        fs::create_dir(bench.work().join(name)).unwrap();
        fs::write(bench.work().join(name).join("file"), "").unwrap();
        // A link by a readable name leads to it.
        symlink(name, bench.work().join("link")).unwrap();
    }
    let call = json!({"command": "ls", "cwd": "link"});
    assert_eq!(
        Server::start(&within).call("execute_command", call.clone()).ok(),
        "file\n"
    );
    let refused = Server::start(&alone).call("execute_command", call);
    refused.refused("CWD_NOT_ALLOWED");
    assert!(refused.message().contains("UTF-8"), "{}", refused.text);
}

#[test]
fn a_directory_that_holds_secrets_is_not_worked_in() {
    Bench::each(|bench| {
        let ssh = bench.path("home/.ssh");
        fs::create_dir(&ssh).unwrap();
        let bench = bench.env("ALLOWED_COMMANDS", "ls");
        let mut server = Server::start(&bench);
        let config = bench.path("config/countersign");
        let _ = fs::create_dir(&config);
        for cwd in [bench.state(), ssh] {
            let outcome = server.call("execute_command", json!({"command": "ls", "cwd": cwd}));
            outcome.refused("CWD_NOT_ALLOWED");
        }
        // Around them one may work where they can be covered, and then does not see into them.
        let outcome = server.call(
            "execute_command",
            json!({"command": "ls state", "cwd": bench.state().parent().unwrap()}),
        );
        match outcome.status() {
            "rejected" => assert_eq!(outcome.code(), "CWD_NOT_ALLOWED"),
            _ => assert!(!outcome.stdout().contains("record"), "{}", outcome.text),
        }
    });
}

#[test]
fn nobody_works_among_the_private_directories_of_commands() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "ls");
        let mut server = Server::start(&bench);
        server.line("ls").ok();
        let homes = bench.path("cache/homes");
        let base = fs::read_dir(bench.path("tmp")).unwrap().next().unwrap().unwrap().path();
        let within = |path: &Path| fs::read_dir(path).unwrap().next().unwrap().unwrap().path();
        for cwd in [homes.clone(), within(&homes), base.clone(), within(&base)] {
            let outcome = server.call("execute_command", json!({"command": "ls", "cwd": cwd}));
            outcome.refused("CWD_NOT_ALLOWED");
        }
        // Around them one sees one's own, where the others can be covered.
        for place in [&homes, &base] {
            let arguments = json!({"file": "ls", "args": [place], "cwd": place.parent().unwrap()});
            let outcome = server.call("execute_process", arguments);
            match outcome.status() {
                "rejected" => assert_eq!(outcome.code(), "CWD_NOT_ALLOWED"),
                _ => assert_eq!(outcome.ok().lines().count(), 1, "{}", outcome.text),
            }
        }
    });
}

#[test]
fn a_directory_that_flips_to_a_link_opens_nothing_beyond_it() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "cat,perl");
        let flipping = bench.dir("flipping");
        let mut server = Server::start(&bench);
        let secret = bench.state().join("secret");
        fs::write(&secret, "the secret").unwrap();
        bench.give_all(&secret);
        symlink(bench.state(), bench.work().join("link")).unwrap();
        // renameat2 with RENAME_EXCHANGE, by number.
        let script = "my ($a, $b) = ('flipping', 'link'); my $end = time + 4; \
                      while (time < $end) { syscall(316, -100, $a, -100, $b, 2) }";
        let flips = server.call_later("execute_process", json!({"file": "perl", "args": ["-e", script]}));
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(3) {
            let arguments = json!({"file": "cat", "args": [&secret], "cwd": &flipping});
            let outcome = server.call("execute_process", arguments);
            assert!(!outcome.text.contains("the secret"), "{}", outcome.text);
        }
        server.result(flips).ok();
    });
}

#[test]
fn what_is_mounted_while_the_server_runs_is_what_commands_see() {
    if !is_root() {
        println!("only root mounts");
        return;
    }
    let bench = Bench::allowing("cat,ls");
    let (outer, inner) = (bench.dir("outer"), bench.dir("outer/inner"));
    bench.file("outer/inner/name", "below");
    // In mounts of its own, which end with it.
    let served = bench.command();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private"])
        .arg(served.get_program())
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env_clear()
        .envs(served.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(bench.work());
    let web = Web::of(&mut command);
    let there = |words: &[&str]| {
        let target = web.pid().to_string();
        let mut enter = Command::new("nsenter");
        let entered = enter
            .args(["--target", target.as_str(), "--mount"])
            .args(words)
            .status();
        assert!(entered.unwrap().success(), "{words:?}");
    };
    let session = web.session(json!({}));
    let name_in = |cwd: &Path, file: &str| {
        let arguments = json!({"file": "cat", "args": [file], "cwd": cwd});
        let call = json!({"name": "execute_process", "arguments": arguments});
        let (_, answer) = web.post("/mcp", &session, &legacy(1, "tools/call", call));
        let result = &answer["result"]["structuredContent"];
        result["stdout"]
            .as_str()
            .filter(|out| !out.is_empty())
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    };
    let both = || (name_in(&outer, "inner/name"), name_in(&inner, "name"));
    let all = |text: &str| (text.to_owned(), text.to_owned());
    assert_eq!(both(), all("below"));
    let place = inner.to_str().unwrap();
    let fifo = outer.join("wait");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| name_in(&outer, "wait"));
        // Opened once the command reads.
        let mut told = OpenOptions::new().write(true).open(&fifo).unwrap();
        there(&["mount", "-t", "tmpfs", "tmpfs", place]);
        there(&["sh", "-c", &format!("printf above > {place}/name")]);
        assert_eq!(both(), all("above"));
        told.write_all(b"told").unwrap();
        drop(told);
        assert_eq!(waiting.join().unwrap(), "told");
    });
    // Nor does anybody get what that command saw.
    for _ in 0..4 {
        assert_eq!(both(), all("above"));
    }
    there(&["umount", place]);
    assert_eq!(both(), all("below"));
}

/// Its beginning is told with its end: an end alone would be one that somebody had written.
#[test]
fn a_directory_that_is_refused_as_late_as_can_be_leaves_a_sound_record() {
    use std::os::unix::ffi::OsStrExt as _;
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "ls");
        let odd = bench.dir("odd");
        let named = bench.work().join(std::ffi::OsStr::from_bytes(b"n\xff"));
        std::fs::rename(&odd, &named).unwrap();
        std::os::unix::fs::symlink(&named, bench.work().join("link")).unwrap();
        let mut server = Server::start(&bench);
        server
            .call("execute_command", json!({"command": "ls", "cwd": "link"}))
            .refused("CWD_NOT_ALLOWED");
        server.call("execute_command", json!({"command": "ls"})).ok();
        drop(server);
        assert_eq!(
            bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'command.received'"),
            2
        );
        bench.prove();
    });
}

#[test]
fn a_root_that_commands_turned_elsewhere_is_no_root() {
    Bench::each(|bench| {
        let (mono, outside) = (bench.dir("mono/releases/1"), bench.dir("outside"));
        let root = bench.work().join("mono");
        let current = root.join("current");
        std::os::unix::fs::symlink(&mono, &current).unwrap();
        let bench = bench
            .env("ALLOWED_COMMANDS", "touch")
            .env("ALLOWED_CWD_ROOTS", format!("{},{}", root.display(), current.display()));
        let mut server = Server::start(&bench);
        let touch = |cwd: &Path| json!({"file": "touch", "args": ["made"], "cwd": cwd});
        server.call("execute_process", touch(&current)).ok();
        std::fs::remove_file(&current).unwrap();
        std::os::unix::fs::symlink(&outside, &current).unwrap();
        for cwd in [&outside, &current, &root] {
            server
                .call("execute_process", touch(cwd))
                .refused("CONFIGURATION_ERROR");
        }
        assert!(!outside.join("made").exists());
        // The link in the root is on the way of one outside of it.
        let front = bench.work().join("front");
        std::os::unix::fs::symlink("mono/current", &front).unwrap();
        let bench = bench.env("ALLOWED_CWD_ROOTS", format!("{},{}", root.display(), front.display()));
        let mut server = Server::start(&bench);
        server
            .call("execute_process", touch(&outside))
            .refused("CONFIGURATION_ERROR");
        drop(server);
        // Nor does it make the server's own directory a root.
        std::fs::remove_file(&current).unwrap();
        std::os::unix::fs::symlink(bench.work(), &current).unwrap();
        let mut server = Server::start(&bench);
        let outcome = server.call("execute_process", json!({"file": "touch", "args": ["made"]}));
        assert_ne!(outcome.status(), "ok", "{}", outcome.text);
        assert!(!bench.work().join("made").exists());
    });
}

#[test]
fn a_home_in_which_a_link_leads_to_credentials_is_not_written_to() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "ls,mv,ln,cat");
        let home = bench.path("home");
        let kept = home.join("dotfiles/azure");
        fs::create_dir_all(&kept).unwrap();
        fs::write(kept.join("token"), "the secret").unwrap();
        std::os::unix::fs::symlink(&kept, home.join(".azure")).unwrap();
        bench.give_all(&home);
        let mut server = Server::start(&bench);
        let mut in_home = |line: &str, sandbox: &str| {
            let arguments = json!({"command": line, "cwd": home, "sandbox": sandbox});
            server.call("execute_command", arguments)
        };
        let outcome = in_home("mv .azure elsewhere", "workspace-write");
        outcome.refused("CWD_NOT_ALLOWED");
        assert!(outcome.message().contains("a link leads there"), "{}", outcome.text);
        let outcome = in_home("cat dotfiles/azure/token", "read-only");
        assert!(!outcome.text.contains("the secret"), "{}", outcome.text);
        // Where there is no link one may work, if what must not be seen can be covered.
        fs::remove_file(home.join(".azure")).unwrap();
        let outcome = in_home("ls dotfiles", "workspace-write");
        assert!(
            outcome.status() == "ok" || outcome.code() == "CWD_NOT_ALLOWED",
            "{}",
            outcome.text
        );
    });
}

#[test]
fn a_directory_deeper_than_any_is_refused_before_everything_above_it_is_looked_at() {
    let bench = Bench::allowing("ls");
    let deep: PathBuf = std::iter::repeat_n("d", 300).collect();
    let deep = bench.dir(deep.to_str().unwrap());
    let mut server = Server::start(&bench);
    let outcome = server.call("execute_command", json!({"command": "ls", "cwd": deep}));
    assert_eq!(outcome.code(), "CWD_NOT_ALLOWED", "{}", outcome.text);
    assert!(outcome.message().contains("deeper"), "{}", outcome.text);
}
