//! What a command can read and write.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use countersign_sandbox::directory::{self, Seen};
use countersign_sandbox::{ExecList, ExecRights, Layer, Mode, NoExec, Profile, Reply, SetupError, ZygoteError};

use crate::setting::{ALL, Setting, WITH_NAMESPACES, in_settings};
use crate::support::{NOBODY, Server, attack, exec, find, has, only, open_files_max, sh};

#[test]
fn the_workspace_is_writable_and_the_rest_is_not() {
    in_settings("files::the_workspace_is_writable_and_the_rest_is_not", ALL, |setting| {
        let server = Server::start(setting);
        let keeper = server.keeper(&server.profile());
        let sh = |line: &str| sh(&keeper, &server.workspace, line);
        assert_eq!(
            sh("echo inside > new && mkdir d && mv new d/ && cat d/new && rm -r d").succeeded(),
            "inside\n"
        );
        let outside = server.outside.display();
        for line in [
            format!("cat {outside}/secret"),
            format!("ls {outside}"),
            format!("echo x > {outside}/new"),
            format!("mkdir {outside}/d"),
            format!("rm -f {outside}/secret && test ! -e {outside}/secret"),
            format!("ln {outside}/secret here && cat here"),
            format!("ln -s {outside}/secret link; cat link"),
            "ls /root".to_owned(),
            "ls /home".to_owned(),
            "echo x > /tmp/countersign-test-file".to_owned(),
            "echo x > /etc/countersign-test-file".to_owned(),
        ] {
            sh(&line).refused("the secret");
        }
        assert_eq!(fs::read_to_string(server.outside.join("secret")).unwrap(), "the secret");
        sh("ls / >/dev/null").refused("x");
        sh("cat /etc/passwd >/dev/null && ls /usr/bin >/dev/null").succeeded();
    });
}

#[test]
fn read_only_leaves_the_temporary_directory() {
    in_settings("files::read_only_leaves_the_temporary_directory", ALL, |setting| {
        let server = Server::start(setting);
        server.file("note", "hello", 0o644);
        let mut profile = server.profile();
        profile.mode = Mode::ReadOnly;
        let keeper = server.keeper(&profile);
        let tmp = profile.tmp.unwrap();
        let sh = |line: &str| sh(&keeper, &server.workspace, line);
        assert_eq!(sh("cat note").succeeded(), "hello");
        sh("echo x > new").refused("x");
        sh("rm note").refused("x");
        sh(&format!("echo x > {}/new", tmp.display())).succeeded();
    });
}

#[test]
fn read_paths_open_what_they_name() {
    in_settings("files::read_paths_open_what_they_name", ALL, |setting| {
        let server = Server::start(setting);
        let mut profile = server.profile();
        profile.read_paths = vec![server.outside.clone()];
        let keeper = server.keeper(&profile);
        assert_eq!(
            sh(
                &keeper,
                &server.workspace,
                &format!("cat {}/secret", server.outside.display())
            )
            .succeeded(),
            "the secret"
        );
        sh(
            &keeper,
            &server.workspace,
            &format!("echo x > {}/new", server.outside.display()),
        )
        .refused("x");
    });
}

fn with_state_directory(server: &Server) -> PathBuf {
    server.file("state/key", "the secret", 0o644);
    server.file("config.yaml", "the secret", 0o644);
    server.workspace.join("state")
}

#[test]
fn masked_paths_inside_the_workspace_are_empty() {
    in_settings(
        "files::masked_paths_inside_the_workspace_are_empty",
        WITH_NAMESPACES,
        |setting| {
            let server = Server::start(setting);
            let state = with_state_directory(&server);
            let mut profile = server.profile();
            profile.masked = vec![
                state,
                server.workspace.join("config.yaml"),
                server.workspace.join("absent"),
            ];
            let keeper = server.keeper(&profile);
            if !has(&keeper, Layer::Mountns) {
                return;
            }
            assert!(keeper.report.exposed.is_empty());
            let sh = |line: &str| sh(&keeper, &server.workspace, line);
            assert_eq!(sh("ls -A state; cat config.yaml").succeeded(), "");
            for line in [
                "cat state/key",
                "echo x > state/new",
                "echo x > config.yaml; grep . config.yaml",
                "chmod 777 state && echo x > state/new",
                "mv state elsewhere",
                "rmdir state",
                "cat ./state/../state/key",
            ] {
                sh(line).refused("the secret");
            }
            assert_eq!(
                fs::read_to_string(server.workspace.join("config.yaml")).unwrap(),
                "the secret"
            );
        },
    );
}

#[test]
fn the_working_directory_does_not_lead_past_the_masks() {
    in_settings(
        "files::the_working_directory_does_not_lead_past_the_masks",
        WITH_NAMESPACES,
        |setting| {
            let server = Server::start(setting);
            let state = with_state_directory(&server);
            server.file("sub/x", "", 0o644);
            let mut profile = server.profile();
            profile.masked = vec![state.clone()];
            let keeper = server.keeper(&profile);
            sh(&keeper, &server.workspace.join("sub"), "cat ../state/key").refused("the secret");
            // The masked directory itself is another one inside than the one the server opened.
            let program = crate::support::find("ls");
            let done = crate::support::run(
                &keeper,
                &crate::support::launch(&program, &state, &["ls"]),
                &[program.executable()],
            );
            assert!(matches!(done.reply, Reply::LaunchFailed { .. }), "{done:?}");
        },
    );
}

#[test]
fn masks_that_cannot_be_had_are_reported() {
    in_settings(
        "files::masks_that_cannot_be_had_are_reported",
        &[Setting::RootPlain, Setting::UserPlain],
        |setting| {
            let server = Server::start(setting);
            let state = with_state_directory(&server);
            let mut profile = server.profile();
            profile.masked = vec![state.clone(), server.outside.clone()];
            // What lies outside is closed by Landlock without any mask.
            assert_eq!(server.keeper(&profile).report.exposed, [state]);
        },
    );
}

#[test]
fn masked_paths_among_files_that_everybody_reads_cannot_be_read() {
    in_settings(
        "files::masked_paths_among_files_that_everybody_reads_cannot_be_read",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let mut profile = server.profile();
            assert_ne!(server.sh("cat /etc/passwd").succeeded(), "");
            profile.masked = vec!["/etc/passwd".into(), "/etc/ssl".into()];
            let keeper = server.keeper(&profile);
            assert!(keeper.report.exposed.is_empty());
            let sh = |line: &str| sh(&keeper, &server.workspace, line);
            for line in [
                "cat /etc/passwd",
                "cat /etc/./passwd",
                "ls /etc/ssl/*",
                "cat /etc/ssl/*",
            ] {
                assert_eq!(sh(line).stdout, "", "{line}");
            }
            assert_ne!(sh("cat /etc/group").succeeded(), "");
            assert_eq!(sh("ls -d /usr/bin").succeeded(), "/usr/bin\n");
        },
    );
}

#[test]
fn protected_paths_stay_as_they_are() {
    in_settings("files::protected_paths_stay_as_they_are", WITH_NAMESPACES, |setting| {
        let server = Server::start(setting);
        server.file(".git/config", "original", 0o644);
        server.file(".git/hooks/pre-commit", "original", 0o755);
        server.file(".git/index", "", 0o644);
        let mut profile = server.profile();
        profile.protected = [".git/hooks", ".git/config", ".countersign"]
            .map(|path| server.workspace.join(path))
            .to_vec();
        let keeper = server.keeper(&profile);
        if !has(&keeper, Layer::ProtectedPaths) {
            return;
        }
        let sh = |line: &str| sh(&keeper, &server.workspace, line);
        for line in [
            "echo bad > .git/config",
            "echo bad > .git/hooks/pre-commit",
            "echo bad > .git/hooks/post-merge",
            "echo bad > c && mv c .git/config",
            "rm .git/config",
            "mv .git gone && mkdir -p .git/hooks && echo bad > .git/hooks/pre-commit",
            "mv .git/hooks gone",
            "rm -rf .git/hooks",
        ] {
            sh(line).refused("bad");
        }
        assert_eq!(
            sh("cat .git/config .git/hooks/pre-commit").succeeded(),
            "originaloriginal"
        );
        sh("echo fine > .git/index.lock && mv .git/index.lock .git/index").succeeded();
    });
}

/// Runs inside the sandbox: hooks beside a tree that is deeper than a keeper may have files open. Much deeper ones take
/// their time, because Landlock looks at every directory on the way.
pub(crate) fn deep_hooks() -> i32 {
    fs::create_dir(".git/hooks").unwrap();
    std::env::set_current_dir(".git/hooks").unwrap();
    for name in ["pre-commit", "zzz"] {
        fs::write(name, "bad").unwrap();
    }
    for _ in 0..600 {
        fs::create_dir("d").unwrap();
        std::env::set_current_dir("d").unwrap();
    }
    0
}

fn made_barred(reply: &Reply) -> bool {
    matches!(reply, Reply::Exited(ending) if ending.hits.barred)
}

#[test]
fn what_comes_into_being_where_nothing_may_is_gone_after_the_call_however_deep() {
    in_settings(
        "files::what_comes_into_being_where_nothing_may_is_gone_after_the_call_however_deep",
        WITH_NAMESPACES,
        |setting| {
            // Fewer than the tree is deep.
            open_files_max(512);
            let server = Server::start(setting);
            server.file(".git/config", "original", 0o644);
            let hooks = server.workspace.join(".git/hooks");
            let mut profile = server.profile();
            profile.protected = vec![server.workspace.join(".git/config")];
            profile.barred = vec![hooks.clone()];
            let keeper = server.keeper(&profile);
            for made in [
                "echo bad > .git/hooks",
                "mkdir .git/hooks && echo bad > .git/hooks/pre-commit && chmod 0 .git/hooks",
                "ln -s .. .git/hooks",
            ] {
                let done = sh(&keeper, &server.workspace, made);
                assert!(made_barred(&done.reply), "{made}: {done:?}");
                assert!(fs::symlink_metadata(&hooks).is_err(), "{made}");
            }
            let done = attack(&keeper, &server.workspace, "deep-hooks");
            assert!(made_barred(&done.reply), "{done:?}");
            assert!(fs::symlink_metadata(&hooks).is_err());
            // However long it would have gone on.
            let done = sh(
                &keeper,
                &server.workspace,
                "echo bad > .git/x; mv .git/x .git/hooks; sleep 300",
            );
            assert!(made_barred(&done.reply), "{done:?}");
            sh(&keeper, &server.workspace, "cat .git/config").succeeded();
        },
    );
}

#[test]
fn a_keeper_whose_protection_came_off_refuses_to_run() {
    in_settings(
        "files::a_keeper_whose_protection_came_off_refuses_to_run",
        WITH_NAMESPACES,
        |setting| {
            let server = Server::start(setting);
            server.file(".git/config", "original", 0o644);
            let mut profile = server.profile();
            profile.protected = [".git/config", ".git/hooks"]
                .map(|path| server.workspace.join(path))
                .to_vec();
            let keeper = server.keeper(&profile);
            sh(&keeper, &server.workspace, "true").succeeded();
            // The user's own git replaces the file, and the mount on it is gone.
            server.file(".git/config.lock", "edited", 0o644);
            fs::rename(
                server.workspace.join(".git/config.lock"),
                server.workspace.join(".git/config"),
            )
            .unwrap();
            assert_eq!(sh(&keeper, &server.workspace, "true").reply, Reply::Stale);

            let keeper = server.keeper(&profile);
            sh(&keeper, &server.workspace, "echo bad > .git/config").refused("bad");
            // Something to protect that was not there before.
            sh(&keeper, &server.workspace, "mkdir .git/hooks").succeeded();
            assert_eq!(sh(&keeper, &server.workspace, "true").reply, Reply::Stale);
        },
    );
}

#[test]
fn shared_memory_works_and_is_forgotten_between_calls() {
    in_settings(
        "files::shared_memory_works_and_is_forgotten_between_calls",
        WITH_NAMESPACES,
        |setting| {
            let server = Server::start(setting);
            let keeper = server.keeper(&server.profile());
            assert_eq!(
                sh(
                    &keeper,
                    &server.workspace,
                    "mkdir /dev/shm/d && echo x > /dev/shm/d/f && cat /dev/shm/d/f"
                )
                .succeeded(),
                "x\n"
            );
            assert_eq!(sh(&keeper, &server.workspace, "ls -A /dev/shm").succeeded(), "");
        },
    );
}

#[test]
fn shared_memory_holds_no_more_than_the_memory_limit() {
    in_settings(
        "files::shared_memory_holds_no_more_than_the_memory_limit",
        WITH_NAMESPACES,
        |setting| {
            let server = Server::start(setting);
            let mut profile = server.profile();
            profile.limits.memory_bytes = Some(64 << 20);
            let keeper = server.keeper(&profile);
            let size = sh(&keeper, &server.workspace, "echo $(($(stat -f -c '%b * %S' /dev/shm)))");
            assert_eq!(size.succeeded(), format!("{}\n", 64 << 20));
            sh(
                &keeper,
                &server.workspace,
                "head -c 80M /dev/zero > /dev/shm/f && echo all",
            )
            .refused("all");
        },
    );
}

#[test]
fn full_access_keeps_the_user_and_says_what_is_off() {
    in_settings(
        "files::full_access_keeps_the_user_and_says_what_is_off",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let mut profile = server.profile();
            profile.mode = Mode::DangerFullAccess;
            profile.require = vec![Layer::NoNewPrivs, Layer::Rlimits];
            profile.masked = vec!["/etc/passwd".into()];
            let keeper = server.keeper(&profile);
            assert!(keeper.report.exposed.is_empty(), "only the roots are looked at");
            for layer in [Layer::Landlock, Layer::Seccomp, Layer::Netns, Layer::Mountns] {
                assert!(!keeper.report.layers.contains(&layer), "{layer}");
                assert!(
                    keeper.report.missing.iter().any(|(missing, _)| *missing == layer),
                    "{layer}"
                );
            }
            assert_eq!(
                sh(
                    &keeper,
                    &server.workspace,
                    &format!("cat {}/secret", server.outside.display())
                )
                .succeeded(),
                "the secret"
            );
            if setting.is_root() {
                assert_eq!(
                    sh(&keeper, &server.workspace, "id -u").succeeded().trim(),
                    NOBODY.to_string()
                );
            }
            // What is off because it was asked for is not missing.
            profile.require = vec![Layer::Landlock];
            assert!(server.zygote.keeper(&profile).is_ok());
        },
    );
}

#[test]
fn a_root_that_is_everything_or_the_kernels_own_is_refused() {
    in_settings(
        "files::a_root_that_is_everything_or_the_kernels_own_is_refused",
        &[Setting::Root, Setting::User],
        |setting| {
            let server = Server::start(setting);
            let mut profile = server.profile();
            profile.roots = vec!["/".into()];
            assert!(server.zygote.keeper(&profile).is_err());
            profile.roots = vec!["relative".into()];
            assert!(server.zygote.keeper(&profile).is_err());
            for place in ["/dev", "/dev/pts", "/proc/sys", "/sys/fs/cgroup"] {
                profile.roots = vec![place.into()];
                for mode in [Mode::WorkspaceWrite, Mode::ReadOnly] {
                    profile.mode = mode;
                    assert!(server.zygote.keeper(&profile).is_err(), "{place}");
                }
            }
            profile.roots = vec!["/dev/shm".into()];
            assert!(server.zygote.keeper(&profile).is_ok());
        },
    );
}

#[test]
fn a_protected_path_behind_a_link_is_said_not_to_be_protected() {
    in_settings(
        "files::a_protected_path_behind_a_link_is_said_not_to_be_protected",
        WITH_NAMESPACES,
        |setting| {
            let server = Server::start(setting);
            server.file("hooks/pre-commit", "original", 0o755);
            server.file(".git/index", "", 0o644);
            std::os::unix::fs::symlink("../hooks", server.workspace.join(".git/hooks")).unwrap();
            let mut profile = server.profile();
            profile.protected = vec![server.workspace.join(".git/hooks")];
            let keeper = server.keeper(&profile);
            assert!(
                !keeper.report.layers.contains(&Layer::ProtectedPaths),
                "{:?}",
                keeper.report
            );
            sh(&keeper, &server.workspace, "echo bad > hooks/pre-commit").refused("bad");
            profile.require.push(Layer::ProtectedPaths);
            assert!(server.zygote.keeper(&profile).is_err());
        },
    );
}

#[test]
fn a_workspace_that_was_replaced_asks_for_a_new_keeper() {
    in_settings(
        "files::a_workspace_that_was_replaced_asks_for_a_new_keeper",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let keeper = server.keeper(&server.profile());
            sh(&keeper, &server.workspace, "true").succeeded();
            fs::rename(&server.workspace, server.base.path().join("old")).unwrap();
            fs::create_dir(&server.workspace).unwrap();
            assert_eq!(sh(&keeper, &server.workspace, "true").reply, Reply::Stale);
            sh(&server.keeper(&server.profile()), &server.workspace, "ls").succeeded();
        },
    );
}

#[test]
fn a_link_or_a_stranger_in_the_place_of_a_root_is_not_opened() {
    in_settings(
        "files::a_link_or_a_stranger_in_the_place_of_a_root_is_not_opened",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let decided = directory::open_unlinked(&server.workspace).unwrap();
            let mut profile = server.profile();
            profile.seen = vec![Seen::of(&server.workspace, decided.as_fd()).unwrap()];
            sh(&server.keeper(&profile), &server.workspace, "true").succeeded();
            let moved = |profile: &Profile| match server.zygote.keeper(profile) {
                Err(ZygoteError::Setup(error)) => error == SetupError::Moved,
                _ => false,
            };
            fs::rename(&server.workspace, server.base.path().join("old")).unwrap();
            std::os::unix::fs::symlink(&server.outside, &server.workspace).unwrap();
            assert!(moved(&profile), "a link");
            assert!(moved(&server.profile()), "a link where nobody looked before");
            fs::remove_file(&server.workspace).unwrap();
            fs::create_dir(&server.workspace).unwrap();
            assert!(moved(&profile), "another directory");
        },
    );
}

#[test]
fn a_link_in_the_place_of_a_listed_program_opens_nothing() {
    in_settings(
        "files::a_link_in_the_place_of_a_listed_program_opens_nothing",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let mut profile = server.profile();
            profile.exec_list = true;
            let keeper = server.keeper(&profile);
            let listed = server.workspace.join("listed");
            std::os::unix::fs::symlink(&server.outside, &listed).unwrap();
            let cat = find("cat");
            let ExecRights::Only(programs) = only(&[&cat]) else {
                unreachable!("a list was asked for");
            };
            let list = programs.paths().map(Path::to_owned).chain([listed]);
            let rights = ExecRights::Only(ExecList::new(list));
            let secret = server.outside.join("secret");
            let words = ["cat", secret.to_str().unwrap()];
            exec(&keeper, &server.workspace, &words, rights).refused("the secret");
        },
    );
}

#[test]
fn a_home_among_directories_of_the_system_is_not_read() {
    in_settings(
        "files::a_home_among_directories_of_the_system_is_not_read",
        ALL,
        |setting| {
            // Only root makes one there.
            let Ok(home) = tempfile::tempdir_in("/opt") else { return };
            let server = Server::start(setting);
            let secret = home.path().join("notes");
            fs::write(&secret, "the secret").unwrap();
            for path in [home.path(), &secret] {
                fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            }
            let read = |closed: Vec<PathBuf>| {
                let keeper = server.keeper(&Profile {
                    closed,
                    ..server.profile()
                });
                sh(&keeper, &server.workspace, &format!("cat {}", secret.display()))
            };
            assert_eq!(read(Vec::new()).succeeded(), "the secret");
            read(vec![home.path().to_owned()]).refused("the secret");
        },
    );
}

#[test]
fn a_command_has_its_own_home_where_the_others_are_covered() {
    in_settings(
        "files::a_command_has_its_own_home_where_the_others_are_covered",
        WITH_NAMESPACES,
        |setting| {
            let server = Server::start(setting);
            server.file("cache/homes/mine/kept", "mine\n", 0o644);
            server.file("cache/homes/other/kept", "the secret", 0o644);
            let homes = server.workspace.join("cache/homes");
            let mut profile = server.profile();
            profile.masked = vec![homes.clone()];
            profile.home = Some(homes.join("mine"));
            profile.noexec = NoExec::Everything;
            let keeper = server.keeper(&profile);
            if !has(&keeper, Layer::Mountns) {
                return;
            }
            let sh = |line: &str| sh(&keeper, &server.workspace, line);
            let seen = sh("ls cache/homes; cat cache/homes/mine/kept; echo new > cache/homes/mine/new");
            assert_eq!(seen.succeeded(), "mine\nmine\n");
            assert_eq!(fs::read_to_string(homes.join("mine/new")).unwrap(), "new\n");
            for line in [
                "cat cache/homes/other/kept",
                "mv cache/homes elsewhere",
                "mv cache elsewhere",
                "mv cache/homes/mine elsewhere",
                "echo x > cache/homes/new",
            ] {
                sh(line).refused("the secret");
            }
        },
    );
}

#[test]
fn nothing_covered_is_reached_where_the_workspace_is_mounted_a_second_time() {
    in_settings(
        "files::nothing_covered_is_reached_where_the_workspace_is_mounted_a_second_time",
        &[Setting::Root],
        |setting| {
            // In mounts of its own, which end with it.
            const INSIDE: &str = "COUNTERSIGN_TEST_UNSHARED";
            if std::env::var_os(INSIDE).is_none() {
                let name = "files::nothing_covered_is_reached_where_the_workspace_is_mounted_a_second_time";
                let mut again = std::process::Command::new("unshare");
                again.args(["--mount", "--propagation", "private"]);
                again.arg(std::env::current_exe().unwrap()).args(["--exact", name]);
                assert!(again.env(INSIDE, "1").status().unwrap().success());
                return;
            }
            let server = Server::start(setting);
            let state = with_state_directory(&server);
            server.file("protected", "kept", 0o644);
            server.file("mine", fs::read("/usr/bin/id").unwrap(), 0o755);
            let (alias, within) = (server.base.path().join("alias"), server.workspace.join("within"));
            for place in [&alias, &within] {
                fs::create_dir(place).unwrap();
            }
            for (what, place) in [(&server.workspace, &alias), (&state, &within)] {
                let mount = std::process::Command::new("mount")
                    .arg("--bind")
                    .args([what, place])
                    .status();
                assert!(mount.unwrap().success());
            }
            let mut profile = server.profile();
            profile.masked = vec![state];
            profile.protected = vec![server.workspace.join("protected")];
            let keeper = server.keeper(&profile);
            if !has(&keeper, Layer::Mountns) {
                return;
            }
            assert!(has(&keeper, Layer::ProtectedPaths));
            let alias = alias.display();
            for line in [
                format!("cat {alias}/state/key"),
                "cat within/key".to_owned(),
                format!("echo x > {alias}/protected"),
                format!("cat {alias}/mine"),
            ] {
                sh(&keeper, &server.workspace, &line).refused("the secret");
            }
            assert_eq!(fs::read_to_string(server.workspace.join("protected")).unwrap(), "kept");
        },
    );
}
