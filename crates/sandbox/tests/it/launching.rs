//! From a launch to a running program: the gate, descriptors, environment, user, directory.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};

use countersign_sandbox::{Body, Launch, Layer, Outcome, Reply, Step, Unchanged, directory, wire};

use crate::setting::{ALL, Setting, WITH_NAMESPACES, am_root, in_settings, own_uid};
use crate::support::{self, Server, c, control, exec, find, has, launch, open_files_max, run, send, sh};
use countersign_sandbox::ExecRights;

#[test]
fn a_command_runs_and_its_output_arrives() {
    in_settings("launching::a_command_runs_and_its_output_arrives", ALL, |setting| {
        let server = Server::start(setting);
        let keeper = server.keeper(&server.profile());
        for round in 0..3 {
            let done = sh(
                &keeper,
                &server.workspace,
                &format!("echo {round}; echo oops >&2; exit {round}"),
            );
            assert_eq!(
                (done.stdout.as_str(), done.stderr.as_str()),
                (format!("{round}\n").as_str(), "oops\n")
            );
            assert_eq!(done.code(), Some(round));
        }
        let killed = sh(&keeper, &server.workspace, "kill -9 $$");
        assert_eq!(killed.ending().outcome, Outcome::Signal(9));
    });
}

#[test]
fn layers_are_reported_as_they_are() {
    in_settings("launching::layers_are_reported_as_they_are", ALL, |setting| {
        let server = Server::start(setting);
        let mut profile = server.profile();
        profile.protected = vec![server.workspace.join(".git/config")];
        profile.exec_list = true;
        let report = server.keeper(&profile).report;
        let has = |layer| report.layers.contains(&layer);
        for layer in Layer::ALL {
            let expected = match layer {
                Layer::Netns | Layer::Mountns | Layer::Pidns | Layer::ProtectedPaths => setting.namespaces(),
                Layer::Uid | Layer::Cgroup => setting.is_root(),
                _ => true,
            };
            assert_eq!(has(layer), expected, "{layer} in {setting:?}: {report:?}");
            let explained = report
                .missing
                .iter()
                .any(|(missing, why)| *missing == layer && !why.is_empty());
            assert_eq!(
                explained,
                !expected && layer != Layer::Uid,
                "{layer} in {setting:?}: {report:?}"
            );
        }
    });
}

#[test]
fn nothing_runs_when_the_gate_is_closed() {
    in_settings("launching::nothing_runs_when_the_gate_is_closed", ALL, |setting| {
        let server = Server::start(setting);
        let keeper = server.keeper(&server.profile());
        let touch = find("touch");
        let cwd = directory::open(&server.workspace).unwrap();
        let order = launch(&touch, &server.workspace, &["touch", "ran"]);

        let pending = send(&keeper, &order, &cwd.fd, &[touch.executable()]);
        control(&keeper, wire::ABORT);
        assert_eq!(pending.finish(&keeper).reply, Reply::Aborted);
        assert!(!server.workspace.join("ran").exists());

        // The keeper is as good as new.
        assert_eq!(
            sh(&keeper, &server.workspace, "echo still here").succeeded(),
            "still here\n"
        );

        let _pending = send(&keeper, &order, &cwd.fd, &[touch.executable()]);
        drop(keeper);
        server.zygote.finish().unwrap();
        assert!(!server.workspace.join("ran").exists());
    });
}

#[test]
fn a_word_that_comes_too_late_harms_nobody() {
    in_settings(
        "launching::a_word_that_comes_too_late_harms_nobody",
        &[Setting::Root, Setting::User],
        |setting| {
            let server = Server::start(setting);
            let keeper = server.keeper(&server.profile());
            sh(&keeper, &server.workspace, "true").succeeded();
            for word in [wire::KILL, wire::TERMINATE, wire::GO, wire::ABORT] {
                control(&keeper, word);
            }
            assert_eq!(sh(&keeper, &server.workspace, "echo fine").succeeded(), "fine\n");
        },
    );
}

#[test]
fn the_environment_is_exactly_as_given() {
    in_settings("launching::the_environment_is_exactly_as_given", ALL, |setting| {
        let server = Server::start(setting);
        let env = find("env");
        let order = Launch {
            env: vec![c("A=1"), c("B=x y")],
            ..launch(&env, &server.workspace, &["env"])
        };
        let done = run(&server.keeper(&server.profile()), &order, &[env.executable()]);
        assert_eq!(done.succeeded(), "A=1\nB=x y\n");
    });
}

#[test]
fn only_the_standard_streams_are_open() {
    in_settings("launching::only_the_standard_streams_are_open", ALL, |setting| {
        let server = Server::start(setting);
        // The fourth is the directory that ls itself reads.
        let done = exec(
            &server.keeper(&server.profile()),
            &server.workspace,
            &["ls", "/proc/self/fd"],
            ExecRights::Any,
        );
        assert_eq!(done.succeeded(), "0\n1\n2\n3\n");
    });
}

#[test]
fn a_broken_pipe_ends_a_program_and_no_signal_is_blocked() {
    in_settings(
        "launching::a_broken_pipe_ends_a_program_and_no_signal_is_blocked",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let done = exec(
                &server.keeper(&server.profile()),
                &server.workspace,
                &["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"],
                ExecRights::Any,
            );
            for line in done.succeeded().lines() {
                assert!(
                    line.starts_with("SigCgt") || line.ends_with("0000000000000000"),
                    "{line}"
                );
            }
            assert_eq!(server.sh("(yes; echo $? >&2) | head -1").stderr, "141\n");
        },
    );
}

#[test]
fn the_user_is_dropped_with_every_capability() {
    in_settings("launching::the_user_is_dropped_with_every_capability", ALL, |setting| {
        let server = Server::start(setting);
        let done = exec(
            &server.keeper(&server.profile()),
            &server.workspace,
            &["cat", "/proc/self/status"],
            ExecRights::Any,
        );
        let status = done.succeeded();
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap()
                .split_whitespace()
                .collect::<Vec<_>>()
        };
        let uid = if setting.is_root() { support::NOBODY } else { own_uid() }.to_string();
        assert_eq!(field("Uid:"), vec![uid.as_str(); 4]);
        assert_eq!(field("Gid:"), vec![uid.as_str(); 4]);
        if setting.is_root() {
            assert!(field("Groups:").is_empty());
        }
        let sets: &[&str] = if setting == Setting::UserPlain {
            &["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"]
        } else {
            &["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"]
        };
        for set in sets {
            assert_eq!(field(set), ["0000000000000000"], "{set}");
        }
        assert_eq!(field("NoNewPrivs:"), ["1"]);
        assert_eq!(field("Seccomp:"), ["2"]);
    });
}

#[test]
fn root_is_never_given_by_name() {
    in_settings("launching::root_is_never_given_by_name", ALL, |setting| {
        let server = Server::start(setting);
        let mut profile = server.profile();
        // The kernel takes -1 for the number that there is.
        for (uid, gid) in [(0, 0), (u32::MAX, 1), (1, u32::MAX)] {
            profile.identity = Some(countersign_sandbox::Identity {
                uid,
                gid,
                groups: Vec::new(),
            });
            assert!(server.zygote.keeper(&profile).is_err(), "{uid} {gid}");
        }
        if !setting.is_root() {
            profile.identity = Some(countersign_sandbox::Identity {
                uid: 4321,
                gid: 4321,
                groups: Vec::new(),
            });
            assert!(server.zygote.keeper(&profile).is_err());
        }
    });
}

#[test]
fn a_directory_swapped_after_the_check_is_not_entered() {
    in_settings(
        "launching::a_directory_swapped_after_the_check_is_not_entered",
        WITH_NAMESPACES,
        |setting| {
            let server = Server::start(setting);
            let keeper = server.keeper(&server.profile());
            if !has(&keeper, Layer::Mountns) {
                return;
            }
            let checked = server.workspace.join("checked");
            fs::create_dir(&checked).unwrap();
            let opened = directory::open(&checked).unwrap();
            fs::rename(&checked, server.workspace.join("moved")).unwrap();
            std::os::unix::fs::symlink(&server.outside, &checked).unwrap();
            let pwd = find("pwd");
            let order = launch(&pwd, &opened.path, &["pwd"]);
            let pending = send(&keeper, &order, &opened.fd, &[pwd.executable()]);
            control(&keeper, wire::GO);
            let done = pending.finish(&keeper);
            assert!(
                matches!(
                    done.reply,
                    Reply::LaunchFailed {
                        step: Step::Directory,
                        ..
                    }
                ),
                "{done:?}"
            );
        },
    );
}

#[test]
fn without_mounts_the_opened_directory_is_entered_wherever_it_is() {
    in_settings(
        "launching::without_mounts_the_opened_directory_is_entered_wherever_it_is",
        &[Setting::RootPlain, Setting::UserPlain],
        |setting| {
            let server = Server::start(setting);
            let keeper = server.keeper(&server.profile());
            let checked = server.workspace.join("checked");
            fs::create_dir(&checked).unwrap();
            let opened = directory::open(&checked).unwrap();
            fs::rename(&checked, server.workspace.join("moved")).unwrap();
            let pwd = find("pwd");
            let order = launch(&pwd, &opened.path, &["pwd", "-P"]);
            let pending = send(&keeper, &order, &opened.fd, &[pwd.executable()]);
            control(&keeper, wire::GO);
            assert_eq!(
                pending.finish(&keeper).succeeded().trim(),
                server.workspace.join("moved").to_str().unwrap()
            );
        },
    );
}

#[test]
fn a_script_runs_by_its_interpreter_unless_it_changed() {
    in_settings(
        "launching::a_script_runs_by_its_interpreter_unless_it_changed",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let keeper = server.keeper(&server.profile());
            let path = server.file("script", "#!/bin/sh -e\necho \"$0 $1\"\nls /proc/self/fd\n", 0o755);
            let script = countersign_sandbox::program::open(&path).unwrap();
            let order = launch(&script, &server.workspace, &["script", "one"]);
            let done = run(&keeper, &order, &[script.executable()]);
            assert_eq!(done.succeeded(), format!("{} one\n0\n1\n2\n3\n", path.display()));

            // As long as before, and as old by its own word.
            let modified = fs::metadata(&path).unwrap().modified().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text.replace("echo", "cat ")).unwrap();
            fs::File::open(&path).unwrap().set_modified(modified).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), modified);
            let done = run(&keeper, &order, &[script.executable()]);
            assert!(
                matches!(
                    done.reply,
                    Reply::LaunchFailed {
                        step: Step::Unchanged,
                        ..
                    }
                ),
                "{done:?}"
            );
        },
    );
}

#[test]
fn a_program_that_was_written_over_is_not_run() {
    in_settings(
        "launching::a_program_that_was_written_over_is_not_run",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let keeper = server.keeper(&server.profile());
            let path = server.file("mine", fs::read("/usr/bin/true").unwrap(), 0o755);
            let program = countersign_sandbox::program::open(&path).unwrap();
            let order = Launch {
                body: Body::Exec {
                    unchanged: Unchanged {
                        scripts: Vec::new(),
                        executable: Some(program.executable_identity()),
                    },
                },
                ..launch(&program, &server.workspace, &["mine"])
            };
            run(&keeper, &order, &[program.executable()]).succeeded();
            fs::write(&path, fs::read("/usr/bin/id").unwrap()).unwrap();
            let done = run(&keeper, &order, &[program.executable()]);
            assert!(
                matches!(
                    done.reply,
                    Reply::LaunchFailed {
                        step: Step::Unchanged,
                        ..
                    }
                ),
                "{done:?}"
            );
        },
    );
}

#[test]
fn a_file_that_is_no_program_fails_by_name_and_the_keeper_lives_on() {
    in_settings(
        "launching::a_file_that_is_no_program_fails_by_name_and_the_keeper_lives_on",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let keeper = server.keeper(&server.profile());
            let junk = fs::File::open(server.file("junk", "no program", 0o755)).unwrap();
            let order = launch(&find("true"), &server.workspace, &["junk"]);
            let done = run(&keeper, &order, &[junk.as_fd()]);
            assert_eq!(
                done.reply,
                Reply::LaunchFailed {
                    step: Step::Exec,
                    errno: libc::ENOEXEC
                }
            );
            sh(&keeper, &server.workspace, "true").succeeded();
        },
    );
}

/// A process of its own, because how many files it may open is its own.
#[test]
fn a_keeper_there_was_no_room_for_is_not_taken_for_the_next() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "launching::server_without_room", "--nocapture"])
        .env("COUNTERSIGN_TEST_NO_ROOM", "yes")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Not a test: the process that the test above starts.
#[test]
fn server_without_room() {
    if std::env::var("COUNTERSIGN_TEST_NO_ROOM").is_err() {
        return;
    }
    let server = Server::start(if am_root() { Setting::Root } else { Setting::User });
    let read_only = countersign_sandbox::Profile {
        mode: countersign_sandbox::Mode::ReadOnly,
        ..server.profile()
    };
    // All numbers below this one are taken.
    let next_free = fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let before = open_files_max(next_free);
    let refused = server.zygote.keeper(&server.profile());
    open_files_max(before);
    assert!(refused.is_err());
    let keeper = server.keeper(&read_only);
    sh(&keeper, &server.workspace, "echo made > file && echo made").refused("made");
}
