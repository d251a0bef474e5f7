//! Nothing outlives its call, and nothing outlives the server.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use countersign_sandbox::{KeeperHandle, Outcome, directory, wire};

use crate::setting::{ALL, Setting, am_root, in_settings};
use crate::support::{Pending, Server, control, find, launch, send, sh};

/// Ways to hide from whoever ends a command; each leaves a process behind that runs `sleep` with this argument.
const HIDERS: &[&str] = &[
    "sleep 98765 &",
    "setsid sleep 98765 &",
    "(setsid sh -c 'setsid sleep 98765 & exit' &) ; :",
    "sh -c 'trap \"\" TERM HUP INT; sleep 98765 & wait' >/dev/null 2>&1 &",
    "(trap '' TERM HUP INT; setsid nohup sleep 98765 </dev/null &)",
    "for i in 1 2 3 4 5; do (setsid sleep 98765 >/dev/null 2>&1 &) ; done",
    // A process is named after its file, and a name need not be text.
    "nameless=$(printf 'x\\377'); cp /bin/sleep \"$nameless\"; setsid \"./$nameless\" 98765 & \
     until [ \"$(cat /proc/$!/comm)\" = \"$nameless\" ]; do :; done",
];

fn survivors() -> Vec<String> {
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.parse::<i32>().is_ok())
        })
        .filter_map(|entry| Some((entry.file_name(), fs::read(entry.path().join("cmdline")).ok()?)))
        .map(|(pid, line)| {
            format!(
                "{} {}",
                pid.display(),
                String::from_utf8_lossy(&line).replace('\0', " ")
            )
        })
        .filter(|line| line.contains(&mark()))
        .collect()
}

/// Told apart from other tests, in this process and in others.
fn mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed));
    format!("98765.{}{:03}", std::process::id(), NUMBER.with(|number| *number))
}

fn marked(line: &str) -> String {
    line.replace("98765", &mark())
}

fn begin(server: &Server, keeper: &KeeperHandle, line: &str) -> Pending {
    let program = find("sh");
    let cwd = directory::open(&server.workspace).unwrap();
    let pending = send(
        keeper,
        &launch(&program, &server.workspace, &["sh", "-c", &marked(line)]),
        &cwd.fd,
        &[program.executable()],
    );
    control(keeper, wire::GO);
    pending
}

pub(crate) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_call_that_ends_leaves_nothing_behind() {
    in_settings("ending::a_call_that_ends_leaves_nothing_behind", ALL, |setting| {
        let server = Server::start(setting);
        let keeper = server.keeper(&server.profile());
        for hider in HIDERS {
            let done = begin(&server, &keeper, &format!("{hider}\necho started; exit 3")).finish(&keeper);
            assert_eq!(done.code(), Some(3), "{hider}: {done:?}");
            assert_eq!(survivors(), Vec::<String>::new(), "{hider}");
        }
    });
}

#[test]
fn kill_reaches_the_whole_tree() {
    in_settings("ending::kill_reaches_the_whole_tree", ALL, |setting| {
        let server = Server::start(setting);
        let keeper = server.keeper(&server.profile());
        for hider in HIDERS {
            let pending = begin(
                &server,
                &keeper,
                &format!("trap '' TERM; {hider}\ntouch started; while :; do sleep 98765; done"),
            );
            wait_until("the command starts", || {
                server.workspace.join("started").exists() && !survivors().is_empty()
            });
            control(&keeper, wire::KILL);
            let done = pending.finish(&keeper);
            assert_eq!(
                done.ending().outcome,
                Outcome::Signal(libc::SIGKILL),
                "{hider}: {done:?}"
            );
            assert_eq!(survivors(), Vec::<String>::new(), "{hider}");
            fs::remove_file(server.workspace.join("started")).unwrap();
        }
    });
}

#[test]
fn terminate_is_a_request_that_all_of_the_tree_gets() {
    in_settings(
        "ending::terminate_is_a_request_that_all_of_the_tree_gets",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let keeper = server.keeper(&server.profile());
            let line = "setsid sh -c 'trap \"echo child; exit\" TERM; touch started; while :; do sleep 0.01; done' & trap 'wait; echo parent; exit 7' TERM; wait";
            let pending = begin(&server, &keeper, line);
            wait_until("the command starts", || server.workspace.join("started").exists());
            control(&keeper, wire::TERMINATE);
            let done = pending.finish(&keeper);
            assert_eq!((done.code(), done.stdout.as_str()), (Some(7), "child\nparent\n"));
        },
    );
}

#[test]
fn closing_the_keeper_ends_what_it_runs() {
    in_settings("ending::closing_the_keeper_ends_what_it_runs", ALL, |setting| {
        let server = Server::start(setting);
        for hider in HIDERS {
            let keeper = server.keeper(&server.profile());
            let _pending = begin(
                &server,
                &keeper,
                &format!("trap '' TERM; {hider}\ntouch started; sleep 98765"),
            );
            wait_until("the command starts", || {
                server.workspace.join("started").exists() && !survivors().is_empty()
            });
            drop(keeper);
            wait_until(&format!("{hider}: the tree ends"), || survivors().is_empty());
            fs::remove_file(server.workspace.join("started")).unwrap();
        }
    });
}

#[test]
fn killing_the_keeper_ends_what_it_runs() {
    in_settings("ending::killing_the_keeper_ends_what_it_runs", ALL, |setting| {
        let server = Server::start(setting);
        for hider in HIDERS {
            let keeper = server.keeper(&server.profile());
            let other = server.keeper(&server.profile());
            let line = format!("trap '' TERM; {hider}\ntouch started; sleep 98765");
            let _pending = begin(&server, &keeper, &line);
            wait_until("the command starts", || {
                server.workspace.join("started").exists() && !survivors().is_empty()
            });
            // SAFETY: a signal to a process of this test.
            unsafe { libc::kill(keeper.pid, libc::SIGKILL) };
            wait_until(&format!("{hider}: the tree ends"), || survivors().is_empty());
            assert_eq!(sh(&other, &server.workspace, "echo on").stdout, "on\n", "{hider}");
            fs::remove_file(server.workspace.join("started")).unwrap();
        }
    });
}

/// Starts a server in a process of its own and kills it.
fn killed_server(setting: Setting) {
    let base = tempfile::tempdir().unwrap();
    let temp_base = base.path().join("temp-base");
    fs::create_dir_all(temp_base.join("deep")).unwrap();
    let started = base.path().join("pids");
    let executable = std::env::current_exe().unwrap();
    let mut server = std::process::Command::new(executable)
        .args(["--exact", "ending::server_to_be_killed", "--nocapture"])
        .env("COUNTERSIGN_TEST_VICTIM", &started)
        .env("COUNTERSIGN_TEST_MARK", mark())
        .env("COUNTERSIGN_TEST_TEMP_BASE", &temp_base)
        .env("COUNTERSIGN_TEST_PLAIN", if setting.namespaces() { "0" } else { "1" })
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pids = || fs::read_to_string(&started).unwrap_or_default();
    wait_until("the server starts its command", || {
        pids().lines().count() == 3 && survivors().len() >= HIDERS.len()
    });
    let cgroups = || -> Vec<String> {
        let own = format!("countersign-{}-", server_pid(&pids()));
        leaves(&own)
    };
    assert_eq!(cgroups().is_empty(), !setting.is_root());
    server.kill().unwrap();
    server.wait().unwrap();
    wait_until("the trees end", || survivors().is_empty());
    wait_until("the zygote and the keeper end", || {
        pids().lines().skip(1).all(|pid| !Path::new("/proc").join(pid).exists())
    });
    assert_eq!(cgroups(), Vec::<String>::new());
    assert!(!temp_base.exists());
}

/// Every cgroup, of either version, whose name holds this.
fn leaves(name: &str) -> Vec<String> {
    let mut found = walk(Path::new("/sys/fs/cgroup"), 4);
    found.retain(|path| path.contains(name));
    found
}

fn server_pid(pids: &str) -> String {
    pids.lines().next().unwrap_or_default().to_owned()
}

fn walk(directory: &Path, depth: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().is_dir())
    {
        found.push(entry.path().display().to_string());
        if depth > 0 {
            found.extend(walk(&entry.path(), depth - 1));
        }
    }
    found
}

#[test]
fn a_killed_server_takes_everything_with_it() {
    in_settings("ending::a_killed_server_takes_everything_with_it", ALL, killed_server);
}

/// Not a test: the process that the test above kills.
#[test]
fn server_to_be_killed() {
    let Ok(started) = std::env::var("COUNTERSIGN_TEST_VICTIM") else {
        return;
    };
    let variable = |name: &str| std::env::var(name).unwrap();
    let setting = match (am_root(), variable("COUNTERSIGN_TEST_PLAIN") == "0") {
        (true, true) => Setting::Root,
        (true, false) => Setting::RootPlain,
        (false, true) => Setting::User,
        (false, false) => Setting::UserPlain,
    };
    let mut server = Server::start(setting);
    let options = countersign_sandbox::Options {
        temp_base: Some(variable("COUNTERSIGN_TEST_TEMP_BASE").into()),
        namespaces: setting.namespaces(),
        runner: None,
    };
    server.zygote = countersign_sandbox::Zygote::start(options).unwrap();
    let mut profile = server.profile();
    profile.limits.memory_bytes = Some(256 << 20);
    let keeper = server.keeper(&profile);
    let program = find("sh");
    let cwd = directory::open(&server.workspace).unwrap();
    let line = format!("{}\nsleep 98765", HIDERS.join("\n")).replace("98765", &variable("COUNTERSIGN_TEST_MARK"));
    let pending = send(
        &keeper,
        &launch(&program, &server.workspace, &["sh", "-c", &line]),
        &cwd.fd,
        &[program.executable()],
    );
    wire::send_control(keeper.socket.as_fd(), wire::GO).unwrap();
    fs::write(
        started,
        format!("{}\n{}\n{}\n", std::process::id(), server.zygote.pid(), keeper.pid),
    )
    .unwrap();
    pending.finish(&keeper);
}

#[test]
fn a_finished_zygote_leaves_no_cgroup_and_no_temporary_files() {
    in_settings(
        "ending::a_finished_zygote_leaves_no_cgroup_and_no_temporary_files",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let keeper = server.keeper(&server.profile());
            sh(&keeper, &server.workspace, "true").succeeded();
            let own = format!("countersign-{}-{}-", std::process::id(), server.zygote.pid());
            assert_eq!(leaves(&own).is_empty(), !setting.is_root());
            drop(keeper);
            server.zygote.finish().unwrap();
            assert_eq!(leaves(&own), Vec::<String>::new());
        },
    );
}
