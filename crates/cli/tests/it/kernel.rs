//! What gets past reading meets the kernel: a listed program may start listed programs only.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::bench::Bench;
use crate::client::{Outcome, Server};
use crate::outside::until;

/// `id` prints this, whoever it runs as.
const TRACE: &str = "uid=";

fn nothing_ran(bench: &Bench, outcome: &Outcome, how: &str) {
    assert!(
        !outcome.stdout().contains(TRACE) && !outcome.stderr().contains(TRACE),
        "{how}: {}",
        outcome.text
    );
    assert!(!bench.work().join("canary").exists(), "{how}");
    assert!(
        outcome.layers().is_empty() || outcome.layers().contains(&"exec-list"),
        "{how}: {}",
        outcome.text
    );
}

#[test]
fn git_cannot_start_what_is_not_listed() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "git,find");
        bench.repository();
        bench.program("evil", "#!/bin/sh\nid\ntouch canary\n");
        let mut server = Server::start(&bench);
        for args in [
            &["-c", "alias.x=!id", "x"][..],
            &["-c", "alias.x=!./evil", "x"],
            &["-c", "core.pager=id", "-p", "log"],
            &["-c", "core.fsmonitor=./evil", "status"],
            &["-c", "diff.external=./evil", "diff", "HEAD"],
            &["-c", "core.editor=./evil", "commit", "--amend"],
            &["-c", "core.sshCommand=./evil", "ls-remote", "ssh://host/x"],
            &["-c", "protocol.ext.allow=always", "ls-remote", "ext::./evil"],
            &["-c", "core.hooksPath=.", "commit", "--allow-empty", "-mx"],
            &["grep", "-O./evil", "one"],
            &["bisect", "run", "./evil"],
            &["rebase", "--exec", "./evil", "HEAD"],
        ] {
            let outcome = server.process("git", args);
            nothing_ran(&bench, &outcome, &format!("{args:?}"));
        }
        assert!(server.process("git", &["log", "--oneline"]).ok().contains("first"));
    });
}

#[test]
fn a_workspace_program_does_not_start_however_it_is_reached() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "perl,cp,ls");
        let elf = bench.program("ls", fs::read("/usr/bin/id").unwrap());
        let script = bench.program("script", "#!/bin/sh\nid\ntouch canary\n");
        let mut server = Server::start(&bench);
        for file in [
            elf.to_str().unwrap(),
            script.to_str().unwrap(),
            "/usr/bin/id",
            "/bin/sh",
        ] {
            let outcome = server.process("perl", &["-e", "exec @ARGV or print qq(no: $!\n)", file]);
            nothing_ran(&bench, &outcome, file);
            assert!(
                outcome.stdout().contains("no: Permission denied"),
                "{file}: {}",
                outcome.text
            );
        }
        // A copy made by the command itself, in each place it may write.
        for place in [".", "$ENV{HOME}", "$ENV{TMPDIR}"] {
            let code = format!("system('cp', 'ls', \"{place}/copy\"); exec \"{place}/copy\" or print qq(no: $!\n)");
            let outcome = server.process("perl", &["-e", &code]);
            nothing_ran(&bench, &outcome, place);
            assert!(
                outcome.stdout().contains("no: Permission denied"),
                "{place}: {}",
                outcome.text
            );
        }
    });
}

#[test]
fn the_loader_does_not_start_a_workspace_program() {
    let bench = Bench::allowing("perl");
    let elf = bench.program("copy", fs::read("/usr/bin/id").unwrap());
    let mut server = Server::start(&bench);
    let loader = "/lib64/ld-linux-x86-64.so.2";
    let script = "exec @ARGV or print qq(no: $!\n)";
    for mode in ["workspace-write", "read-only"] {
        let args = ["-e", script, loader, elf.to_str().unwrap()];
        let arguments = json!({"file": "perl", "args": args, "sandbox": mode});
        let outcome = server.call("execute_process", arguments);
        if outcome.layers().contains(&"mountns") {
            nothing_ran(&bench, &outcome, mode);
        }
    }
}

/// A root opens what lies in it, and where programs are it cannot be mounted so that nothing runs.
#[test]
fn the_loader_starts_no_program_of_a_directory_that_a_call_works_in() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "perl,ls");
        let mut server = Server::start(&bench);
        let script = "exec @ARGV or print qq(no: $!\n)";
        let args = ["-e", script, "/lib64/ld-linux-x86-64.so.2", "/usr/bin/id"];
        for cwd in ["/usr/bin", "/usr", "/usr/local", "/usr/local/bin"] {
            for mode in ["workspace-write", "read-only"] {
                let arguments = json!({"file": "perl", "args": args, "cwd": cwd, "sandbox": mode});
                let outcome = server.call("execute_process", arguments);
                assert!(!outcome.text.contains("uid="), "{cwd}, {mode}: {}", outcome.text);
            }
            // Nor does it start what was written meanwhile, where commands may always write.
            let written = "use File::Copy; copy('/usr/bin/perl', qq($ENV{TMPDIR}/x)); \
                           exec '/lib64/ld-linux-x86-64.so.2', qq($ENV{TMPDIR}/x), '-e', 'print qq(it ran)'";
            let arguments = json!({"file": "perl", "args": ["-e", written], "cwd": cwd});
            let outcome = server.call("execute_process", arguments);
            if outcome.layers().contains(&"mountns") {
                assert!(!outcome.stdout().contains("it ran"), "{cwd}: {}", outcome.text);
            }
            // It is a directory as any other to those who look at it.
            server
                .call("execute_command", json!({"command": "ls", "cwd": cwd}))
                .ok();
        }
        for mode in ["workspace-write", "read-only"] {
            let arguments = json!({"file": "perl", "args": args, "cwd": "/", "sandbox": mode});
            server.call("execute_process", arguments).refused("CWD_NOT_ALLOWED");
        }
    });
}

#[test]
fn a_program_in_memory_does_not_start() {
    let bench = Bench::allowing("perl");
    let mut server = Server::start(&bench);
    // memfd_create, by number.
    let outcome = server.process(
        "perl",
        &["-e", "my $n = 'x'; my $fd = syscall(319, $n, 0); print qq(fd $fd $!\n)"],
    );
    if cfg!(target_arch = "x86_64") {
        assert!(outcome.ok().starts_with("fd -1"), "{}", outcome.text);
    }
}

#[test]
fn helpers_may_start_only_where_the_operator_said_so() {
    let evil = "#!/bin/sh\necho helped\n";
    for (more, starts) in [("", false), ("  helpers: {perl: [sh, workspace]}\n", true)] {
        let bench = Bench::configured("perl", more);
        let script = bench.program("script", evil);
        let mut server = Server::start(&bench);
        let outcome = server.process(
            "perl",
            &["-e", "exec @ARGV or print qq(no\n)", script.to_str().unwrap()],
        );
        assert_eq!(outcome.ok(), if starts { "helped\n" } else { "no\n" }, "{more}");
    }
}

#[test]
fn hooks_and_configuration_of_a_repository_stay_as_they_are() {
    let bench = Bench::allowing("sh,touch,git");
    bench.repository();
    let mut server = Server::start(&bench);
    let outcome = server.line("sh -c 'echo evil > .git/hooks/pre-commit; echo evil >> .git/config'");
    if outcome.layers().contains(&"protected-paths") {
        assert!(!bench.work().join(".git/hooks/pre-commit").exists());
        assert!(
            !fs::read_to_string(bench.work().join(".git/config"))
                .unwrap()
                .contains("evil")
        );
    }
}

#[test]
fn a_hook_that_runs_is_not_written_through_its_process() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "*");
        bench.repository();
        let hook = bench.program(".git/hooks/pre-push", fs::read("/bin/cat").unwrap());
        let grab = "import glob, os, time\n\
                    def found():\n\
                    \x20for exe in glob.glob('/proc/[0-9]*/exe'):\n\
                    \x20 try:\n\
                    \x20  if os.readlink(exe).endswith('pre-push'): return os.open(exe, os.O_RDONLY)\n\
                    \x20 except OSError: pass\n\
                    fd = None\n\
                    for _ in range(500):\n\
                    \x20fd = found()\n\
                    \x20if fd is not None: break\n\
                    \x20time.sleep(0.01)\n\
                    os.close(1)\n\
                    time.sleep(0.5)\n\
                    print(fd is not None, file=open('grabbed', 'w'))\n\
                    os.open('/proc/self/fd/%d' % fd, os.O_WRONLY | os.O_TRUNC)\n";
        bench.file("grab.py", grab);
        let before = fs::read(&hook).unwrap();
        let mut server = Server::start(&bench);
        let outcome = server.line("python3 grab.py | .git/hooks/pre-push");
        if outcome.layers().contains(&"protected-paths") {
            let grabbed = fs::read_to_string(bench.work().join("grabbed")).unwrap_or_default();
            assert_eq!(grabbed, "True\n", "{}", outcome.text);
            assert!(fs::read(&hook).unwrap() == before, "{}", outcome.text);
        }
        // Alone it runs as ever.
        server.process(hook.to_str().unwrap(), &["tracked"]).ok();
    });
}

#[test]
fn a_repository_cannot_be_pointed_at_other_hooks_and_configuration() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "sh,mkdir,sleep,git");
        bench.repository();
        fs::remove_dir_all(bench.work().join(".git/hooks")).unwrap();
        let mut server = Server::start(&bench);
        for _ in 0..2 {
            let outcome = server.line(
                "sh -c 'echo evil > .git/hooks/pre-commit; echo \"[core]\" > .git/config.worktree; echo made > tried; \
                 echo ../evil > .git/commondir; sleep 60'",
            );
            if !outcome.layers().contains(&"protected-paths") {
                return;
            }
            // Nobody has a minute in which it steers git: it is ended at once.
            outcome.failed("COMMAND_EXECUTION_FAILED");
            assert!(outcome.text.contains("`.git/commondir`"), "{}", outcome.text);
            assert!(fs::exists(bench.work().join("tried")).unwrap());
            let part = |name: &str| bench.work().join(".git").join(name);
            assert!(!part("commondir").exists() && !part("hooks/pre-commit").exists());
            assert_eq!(fs::read_to_string(part("config.worktree")).unwrap(), "");
        }
        fs::remove_file(bench.work().join("tried")).unwrap();
        assert_eq!(server.process("git", &["status", "--short"]).ok(), "");
        // A linked worktree names its repository in a file.
        fs::rename(bench.work().join(".git"), bench.path("outside/repository")).unwrap();
        let pointer = bench.file(".git", "gitdir: ../outside/repository\n");
        let outcome = server.line("sh -c 'echo gitdir: evil > .git; mkdir evil; mv .git evil; rm -f .git; :'");
        if outcome.layers().contains(&"protected-paths") {
            assert_eq!(fs::read_to_string(pointer).unwrap(), "gitdir: ../outside/repository\n");
        }
    });
}

#[test]
fn a_repository_that_a_file_leads_to_in_the_workspace_stays_as_it_is() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "sh,mkdir,mv,git");
        bench.repository();
        let repository = bench.work().join("of/.bare");
        fs::create_dir(bench.work().join("of")).unwrap();
        fs::rename(bench.work().join(".git"), &repository).unwrap();
        bench.file(".git", "gitdir: ./of/.bare\n");
        let mut server = Server::start(&bench);
        server.process("git", &["status", "--short"]).ok();
        let outcome = server.line(
            "sh -c 'echo evil > of/.bare/hooks/pre-commit; echo evil >> of/.bare/config; mv of was; \
             mkdir -p of/.bare/hooks; echo evil > of/.bare/hooks/pre-commit; :'",
        );
        if outcome.layers().contains(&"protected-paths") {
            assert!(!repository.join("hooks/pre-commit").exists());
            assert!(!fs::read_to_string(repository.join("config")).unwrap().contains("evil"));
        }
        bench.file(".git", "gitdir: ./missing\n");
        let outcome = server.process("mkdir", &["missing"]);
        outcome.refused("CWD_NOT_ALLOWED");
        assert!(outcome.text.contains("leads to no repository"), "{}", outcome.text);
    });
}

/// A command that began while another one's was there must not have it under its own protection, to lose it with that.
#[test]
fn a_repository_that_is_pointed_elsewhere_is_not_worked_in() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "git,touch");
        bench.repository();
        let pointer = bench.file(".git/commondir", "../evil\n");
        let mut server = Server::start(&bench);
        let outcome = server.process("touch", &["made"]);
        outcome.refused("CWD_NOT_ALLOWED");
        assert!(
            outcome.text.contains("commondir` makes git take hooks"),
            "{}",
            outcome.text
        );
        fs::remove_file(pointer).unwrap();
        server.process("touch", &["made"]).ok();
    });
}

#[test]
fn hooks_that_are_a_link_are_not_replaced_by_a_command() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "git,find");
        bench.repository();
        let hooks = bench.work().join(".git/hooks");
        fs::remove_dir_all(&hooks).unwrap();
        bench.dir("shared");
        std::os::unix::fs::symlink("../shared", &hooks).unwrap();
        let mut server = Server::start(&bench);
        let outcome = server.process("find", &[".git", "-maxdepth", "1", "-name", "hooks", "-delete"]);
        let message = outcome.refused("CWD_NOT_ALLOWED").message();
        assert!(message.contains(".git/hooks` is a symbolic link"), "{message}");
        assert!(hooks.is_symlink());
        fs::remove_file(&hooks).unwrap();
        server.process("git", &["status"]).ok();
    });
}

/// Whoever owns a directory can close it to the server, which is the same user, and open it again.
#[test]
fn a_repository_that_is_closed_to_the_server_is_not_worked_in() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "sh,chmod");
        bench.repository();
        let mut server = Server::start(&bench);
        server.line("chmod 000 .git").ok();
        let outcome =
            server.line("sh -c 'chmod 755 .git; echo evil >> .git/config; echo evil > .git/hooks/pre-commit'");
        if !bench.is_root() {
            outcome.refused("CWD_NOT_ALLOWED");
        }
        let part = |name: &str| bench.work().join(".git").join(name);
        fs::set_permissions(part(""), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!part("hooks/pre-commit").exists());
        assert!(!fs::read_to_string(part("config")).unwrap().contains("evil"));
    });
}

#[test]
fn hooks_that_somebody_installs_during_a_command_are_left_alone() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "sh,sleep");
        bench.repository();
        fs::remove_dir_all(bench.work().join(".git/hooks")).unwrap();
        let mut server = Server::start(&bench);
        let id = server.call_later(
            "execute_process",
            json!({"file": "sh", "args": ["-c", "echo > begun; while [ ! -e go ]; do sleep 0.02; done"]}),
        );
        until("it begins", || bench.work().join("begun").exists());
        let hooks = bench.work().join(".git/hooks");
        fs::create_dir_all(&hooks).unwrap();
        fs::write(hooks.join("pre-commit"), "true").unwrap();
        fs::write(bench.work().join(".git/config.worktree"), "[core]\n").unwrap();
        bench.file("go", "");
        server.result(id).ok();
        assert!(hooks.join("pre-commit").exists());
        assert_eq!(
            fs::read_to_string(bench.work().join(".git/config.worktree")).unwrap(),
            "[core]\n"
        );
    });
}

#[test]
fn what_is_put_in_place_of_a_repository_meanwhile_is_not_cleared() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "sh,sleep");
        bench.repository();
        let (repository, precious) = (bench.work().join(".git"), bench.path("outside/precious"));
        fs::remove_dir_all(repository.join("hooks")).unwrap();
        fs::create_dir_all(precious.join("hooks")).unwrap();
        fs::write(precious.join("hooks/kept"), "").unwrap();
        let mut server = Server::start(&bench);
        let id = server.call_later(
            "execute_process",
            json!({"file": "sh", "args": ["-c", "echo > begun; while [ ! -e go ]; do sleep 0.02; done"]}),
        );
        until("it begins", || bench.work().join("begun").exists());
        // As whoever the workspace belongs to could, outside: a link, and another directory.
        fs::rename(&repository, bench.path("outside/repository")).unwrap();
        std::os::unix::fs::symlink(&precious, &repository).unwrap();
        bench.file("go", "");
        server.result(id).ok();
        assert!(precious.join("hooks/kept").exists(), "it follows no link");
        server.end();
    });
}

#[test]
fn the_network_is_out_of_reach() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "python3");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let mut server = Server::start(&bench);
        for code in [
            "import socket,sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2); print('reached')",
            "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/x'); print('reached')",
            "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('127.0.0.1', 9)); print('reached')",
        ] {
            let outcome = server.process("python3", &["-c", code, &port]);
            assert!(
                outcome.status() == "failed" && !outcome.stdout().contains("reached"),
                "{}",
                outcome.text
            );
        }
        let more = server.call(
            "execute_process",
            json!({"file": "python3", "args": [], "network": "allow"}),
        );
        more.refused("POLICY_DENIED");
        let more = server.call(
            "execute_process",
            json!({"file": "python3", "args": [], "sandbox": "danger-full-access"}),
        );
        more.refused("POLICY_DENIED");
    });
}

#[test]
fn nothing_outside_the_workspace_can_be_written_or_seen() {
    Bench::each(|bench| {
        let bench = bench.env("ALLOWED_COMMANDS", "sh,cat,touch");
        fs::write(bench.path("outside/secret"), "the secret").unwrap();
        let mut server = Server::start(&bench);
        let outside = bench.path("outside");
        for line in [
            format!("cat {}/secret", outside.display()),
            "cat ../outside/secret".to_owned(),
            format!("touch {}/canary", outside.display()),
            "sh -c 'echo x > ../outside/canary'".to_owned(),
            format!("cat a > {}/canary", outside.display()),
            format!("cat < {}/secret", outside.display()),
        ] {
            let outcome = server.line(&line);
            assert!(
                outcome.status() == "failed" && !outcome.stdout().contains("the secret"),
                "{line}: {}",
                outcome.text
            );
        }
        assert!(!outside.join("canary").exists());
    });
}
