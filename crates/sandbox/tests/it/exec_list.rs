//! Only listed programs run, whoever starts them.

use std::fs;

use countersign_sandbox::{ExecRights, Launch, Layer, Mode, NoExec, Reply, Step};

use crate::setting::{ALL, WITH_NAMESPACES, in_settings};
use crate::support::{Server, exec, find, has, launch, only, run, sh};

fn strict(server: &Server) -> countersign_sandbox::Profile {
    let mut profile = server.profile();
    profile.exec_list = true;
    profile.noexec = NoExec::Everything;
    profile
}

#[test]
fn a_listed_program_runs_and_starts_no_other() {
    in_settings("exec_list::a_listed_program_runs_and_starts_no_other", ALL, |setting| {
        let server = Server::start(setting);
        let keeper = server.keeper(&strict(&server));
        assert!(has(&keeper, Layer::ExecList));
        server.file("file", "", 0o644);
        let elf = server.file("mine", fs::read("/usr/bin/id").unwrap(), 0o755);
        let script = server.file("script", "#!/bin/sh\necho uid=script\n", 0o755);
        let rights = only(&[&find("find")]);
        let find = |arguments: &[&str]| {
            exec(
                &keeper,
                &server.workspace,
                &[&["find"], arguments].concat(),
                rights.clone(),
            )
        };
        assert_eq!(find(&[".", "-name", "file"]).succeeded(), "./file\n");
        for program in [
            "id",
            "/usr/bin/id",
            "/bin/sh",
            elf.to_str().unwrap(),
            script.to_str().unwrap(),
        ] {
            let done = find(&["file", "-exec", program, ";"]);
            assert!(!done.stdout.contains("uid="), "{program}: {done:?}");
            assert!(done.stderr.contains("Permission denied"), "{program}: {done:?}");
        }
    });
}

#[test]
fn the_loader_runs_no_system_program() {
    in_settings("exec_list::the_loader_runs_no_system_program", ALL, |setting| {
        let server = Server::start(setting);
        let keeper = server.keeper(&strict(&server));
        server.file("file", "", 0o644);
        let find_program = find("find");
        let loader = find_program.loader.clone().unwrap();
        let done = exec(
            &keeper,
            &server.workspace,
            &["find", "file", "-exec", loader.to_str().unwrap(), "/usr/bin/id", ";"],
            only(&[&find_program]),
        );
        assert!(!done.stdout.contains("uid="), "{done:?}");
        assert!(
            done.stderr.contains("cannot open shared object file") || done.stderr.contains("Permission denied"),
            "{done:?}"
        );
    });
}

#[test]
fn the_loader_runs_no_program_from_the_workspace() {
    in_settings(
        "exec_list::the_loader_runs_no_program_from_the_workspace",
        WITH_NAMESPACES,
        |setting| {
            let server = Server::start(setting);
            let elf = server.file("mine", fs::read("/usr/bin/id").unwrap(), 0o755);
            let find_program = find("find");
            let loader = find_program.loader.clone().unwrap();
            for mode in [Mode::WorkspaceWrite, Mode::ReadOnly] {
                let mut profile = strict(&server);
                profile.mode = mode;
                let keeper = server.keeper(&profile);
                if !has(&keeper, Layer::Mountns) {
                    return;
                }
                let done = exec(
                    &keeper,
                    &server.workspace,
                    &[
                        "find",
                        "mine",
                        "-exec",
                        loader.to_str().unwrap(),
                        elf.to_str().unwrap(),
                        ";",
                    ],
                    only(&[&find_program]),
                );
                assert!(!done.stdout.contains("uid="), "{mode:?}: {done:?}");
                assert!(done.stderr.contains("failed to map segment"), "{mode:?}: {done:?}");
            }
        },
    );
}

#[test]
fn a_script_needs_its_interpreter_listed() {
    in_settings("exec_list::a_script_needs_its_interpreter_listed", ALL, |setting| {
        let server = Server::start(setting);
        let keeper = server.keeper(&strict(&server));
        let path = server.file("script", "#!/usr/bin/env sh\necho ran\n", 0o755);
        let script = countersign_sandbox::program::open(&path).unwrap();
        let order = Launch {
            exec: only(&[&script]),
            ..launch(&script, &server.workspace, &["script"])
        };
        assert_eq!(run(&keeper, &order, &[script.executable()]).succeeded(), "ran\n");
        let order = Launch {
            exec: only(&[&find("find")]),
            ..order
        };
        let done = run(&keeper, &order, &[script.executable()]);
        assert_eq!(
            done.reply,
            Reply::LaunchFailed {
                step: Step::Exec,
                errno: libc::EACCES
            }
        );
    });
}

#[test]
fn a_program_that_was_updated_still_runs() {
    in_settings("exec_list::a_program_that_was_updated_still_runs", ALL, |setting| {
        let server = Server::start(setting);
        let mut profile = strict(&server);
        profile.noexec = NoExec::Nothing;
        let keeper = server.keeper(&profile);
        let path = server.file("tool", fs::read("/usr/bin/true").unwrap(), 0o755);
        for _ in 0..2 {
            let tool = countersign_sandbox::program::open(&path).unwrap();
            let order = Launch {
                exec: only(&[&tool]),
                ..launch(&tool, &server.workspace, &["tool"])
            };
            run(&keeper, &order, &[tool.executable()]).succeeded();
            // Another file under the same name, as a package manager leaves it.
            server.file("tool.new", fs::read("/usr/bin/true").unwrap(), 0o755);
            fs::rename(server.workspace.join("tool.new"), &path).unwrap();
        }
    });
}

#[test]
fn a_listed_directory_lets_what_was_built_there_run() {
    in_settings(
        "exec_list::a_listed_directory_lets_what_was_built_there_run",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let mut profile = strict(&server);
            profile.noexec = NoExec::Nothing;
            let keeper = server.keeper(&profile);
            let sh_program = find("sh");
            server.file("built/tool", fs::read("/usr/bin/id").unwrap(), 0o755);
            let list = sh_program.exec_paths(&[]).into_iter().chain([server.workspace.clone()]);
            let rights = ExecRights::Only(countersign_sandbox::ExecList::new(list));
            let done = exec(&keeper, &server.workspace, &["sh", "-c", "built/tool"], rights);
            assert!(done.succeeded().contains("uid="));
        },
    );
}

#[test]
fn a_launch_without_a_list_is_refused_where_lists_are_the_rule() {
    in_settings(
        "exec_list::a_launch_without_a_list_is_refused_where_lists_are_the_rule",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let done = sh(&server.keeper(&strict(&server)), &server.workspace, "true");
            assert!(
                matches!(done.reply, Reply::LaunchFailed { step: Step::Rules, .. }),
                "{done:?}"
            );
        },
    );
}
