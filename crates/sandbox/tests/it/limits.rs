//! Limits hold, and hitting one is told apart from any other failure.

use std::fs;

use countersign_sandbox::{Hits, Launch, Layer, Outcome};

use crate::setting::{ALL, Setting, in_settings};
use crate::support::{Server, find, has, launch, run, sh};

const ROOT: &[Setting] = &[Setting::Root, Setting::RootPlain];

#[test]
fn a_fork_bomb_hits_the_pids_limit_and_is_reported() {
    in_settings(
        "limits::a_fork_bomb_hits_the_pids_limit_and_is_reported",
        ROOT,
        |setting| {
            let server = Server::start(setting);
            let mut profile = server.profile();
            profile.limits.pids = Some(20);
            let keeper = server.keeper(&profile);
            if !has(&keeper, Layer::Cgroup) {
                return;
            }
            let done = sh(
                &keeper,
                &server.workspace,
                "f() { f | f & }; i=0; while [ $i -lt 64 ]; do sleep 50 & i=$((i+1)); done; f; wait",
            );
            assert!(done.ending().hits.pids, "{done:?}");
            // Counted by difference: the next failure has nothing to do with it.
            let next = sh(&keeper, &server.workspace, "exit 9");
            assert_eq!((next.code(), next.ending().hits), (Some(9), Hits::default()));
        },
    );
}

#[test]
fn processes_are_limited_without_a_cgroup_too() {
    in_settings(
        "limits::processes_are_limited_without_a_cgroup_too",
        &[Setting::User, Setting::UserPlain],
        |setting| {
            let server = Server::start(setting);
            let mut profile = server.profile();
            profile.limits.pids = Some(20);
            let done = sh(
                &server.keeper(&profile),
                &server.workspace,
                "i=0; while [ $i -lt 64 ]; do sleep 50 & i=$((i+1)); done; echo all",
            );
            done.refused("all");
        },
    );
}

#[test]
fn memory_that_runs_out_is_reported() {
    in_settings("limits::memory_that_runs_out_is_reported", ROOT, |setting| {
        let server = Server::start(setting);
        let mut profile = server.profile();
        profile.limits.memory_bytes = Some(48 << 20);
        let keeper = server.keeper(&profile);
        if !has(&keeper, Layer::Cgroup) {
            return;
        }
        for _ in 0..2 {
            let done = sh(&keeper, &server.workspace, "head -c 200000000 /dev/zero | tail");
            assert!(done.ending().hits.memory, "{done:?}");
            let next = sh(&keeper, &server.workspace, "exit 9");
            assert_eq!((next.code(), next.ending().hits), (Some(9), Hits::default()));
        }
    });
}

#[test]
fn a_command_goes_before_its_keeper_when_memory_runs_out() {
    let name = "limits::a_command_goes_before_its_keeper_when_memory_runs_out";
    in_settings(name, &[Setting::Root], |setting| {
        let server = Server::start(setting);
        let mut profile = server.profile();
        profile.limits.memory_bytes = Some(256 << 20);
        let keeper = server.keeper(&profile);
        if !has(&keeper, Layer::Cgroup) || !has(&keeper, Layer::Pidns) {
            return;
        }
        // The keeper is the first process in there, and on its way back to its own standing.
        let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        let ask = format!(
            "cat /proc/self/oom_score_adj; until [ $(cat /proc/1/oom_score_adj) = {} ]; do :; done; echo back",
            own.trim()
        );
        for _ in 0..2 {
            assert_eq!(sh(&keeper, &server.workspace, &ask).succeeded(), "500\nback\n");
        }
    });
}

#[test]
fn memory_is_limited_by_process_without_a_cgroup() {
    in_settings(
        "limits::memory_is_limited_by_process_without_a_cgroup",
        &[Setting::User, Setting::UserPlain],
        |setting| {
            let server = Server::start(setting);
            let mut profile = server.profile();
            profile.limits.memory_bytes = Some(48 << 20);
            let keeper = server.keeper(&profile);
            sh(
                &keeper,
                &server.workspace,
                "head -c 200000000 /dev/zero | tail >/dev/null && echo fits",
            )
            .refused("fits");
        },
    );
}

#[test]
fn cpu_seconds_run_out_and_are_reported() {
    in_settings("limits::cpu_seconds_run_out_and_are_reported", ALL, |setting| {
        let server = Server::start(setting);
        let keeper = server.keeper(&server.profile());
        let program = find("sh");
        let order = Launch {
            cpu_seconds: Some(1),
            ..launch(&program, &server.workspace, &["sh", "-c", "while :; do :; done"])
        };
        let done = run(&keeper, &order, &[program.executable()]);
        assert_eq!(done.ending().outcome, Outcome::Signal(libc::SIGXCPU));
        assert!(done.ending().hits.cpu);
        assert!(done.ending().usage.user_us >= 500_000);
    });
}

#[test]
fn a_command_that_nobody_ends_in_time_is_ended_all_the_same() {
    in_settings(
        "limits::a_command_that_nobody_ends_in_time_is_ended_all_the_same",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let keeper = server.keeper(&server.profile());
            let program = find("sh");
            let line = "trap '' TERM; (trap '' TERM; sleep 600) & sleep 600";
            let order = Launch {
                ends_after_ms: Some(200),
                ..launch(&program, &server.workspace, &["sh", "-c", line])
            };
            let done = run(&keeper, &order, &[program.executable()]);
            assert_eq!(done.ending().outcome, Outcome::Signal(libc::SIGKILL));
            assert!(done.ending().hits.time);
            // The next one has a time of its own.
            let done = run(
                &keeper,
                &launch(&program, &server.workspace, &["sh", "-c", "sleep 0.3"]),
                &[program.executable()],
            );
            assert_eq!(
                (done.ending().outcome, done.ending().hits.time),
                (Outcome::Code(0), false)
            );
        },
    );
}

#[test]
fn a_cpu_share_slows_and_does_not_kill() {
    in_settings("limits::a_cpu_share_slows_and_does_not_kill", ROOT, |setting| {
        let server = Server::start(setting);
        let mut profile = server.profile();
        profile.limits.cpu_millicores = Some(200);
        let keeper = server.keeper(&profile);
        if has(&keeper, Layer::Cgroup) {
            sh(
                &keeper,
                &server.workspace,
                "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done",
            )
            .succeeded();
        }
    });
}

#[test]
fn process_limits_are_set_and_cannot_be_raised() {
    in_settings("limits::process_limits_are_set_and_cannot_be_raised", ALL, |setting| {
        let server = Server::start(setting);
        let done = server.sh("ulimit -c; ulimit -n; ulimit -Hn; ulimit -t; ulimit -f");
        assert_eq!(done.succeeded(), "0\n256\n256\n60\n2097152\n");
        server.sh("ulimit -Hn 1000").refused("x");
    });
}

#[test]
fn the_limit_of_cores_stays_what_it_is() {
    in_settings("limits::the_limit_of_cores_stays_what_it_is", ALL, |setting| {
        let server = Server::start(setting);
        let done = server.sh("ulimit -c 0 && grep -i core /proc/self/limits");
        let words: Vec<&str> = done.succeeded().split_whitespace().collect();
        assert_eq!(words[4..6], ["1", "1"], "{words:?}");
    });
}
