//! Agents: started as an ordinary user in a session and cgroup of their own, with paths hidden from them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use countersign_sandbox::Identity;
use countersign_sandbox::agent::{self, Confinement, Cover, Held};

use crate::support::NOBODY;

fn is_root() -> bool {
    // A file of ours is the simplest way to ask who we are.
    fs::metadata(tempfile::tempdir().unwrap().path()).unwrap().uid() == 0
}

fn confinement(mark: &str, hidden: Vec<PathBuf>) -> Confinement {
    Confinement {
        identity: is_root().then_some(Identity {
            uid: NOBODY,
            gid: NOBODY,
            groups: Vec::new(),
        }),
        hidden,
        read_only: Vec::new(),
        mark: mark.to_owned(),
    }
}

fn mark(name: &str) -> String {
    format!("test-{name}-{}", std::process::id())
}

fn run(line: &str, confinement: &Confinement) -> (Held, Output) {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).env_clear().stdin(Stdio::null());
    let prepared = agent::prepare(&mut command, confinement).unwrap();
    let held = prepared.held().clone();
    let output = command.output().unwrap();
    agent::forget(&confinement.mark);
    (held, output)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A directory that others could read, so that only the cover can hide it.
fn open_secret() -> (tempfile::TempDir, PathBuf) {
    let base = tempfile::tempdir().unwrap();
    let path = fs::canonicalize(base.path()).unwrap().join("state");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("key"), "the secret").unwrap();
    for path in [base.path(), &path] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    (base, path)
}

#[test]
fn an_agent_is_an_ordinary_user_that_cannot_become_more() {
    let (_, output) = run(
        "id -u; grep -E 'NoNewPrivs|CapBnd' /proc/self/status",
        &confinement(&mark("uid"), Vec::new()),
    );
    let said = said(&output);
    assert_ne!(said.lines().next(), Some("0"), "{said}");
    assert!(said.contains("NoNewPrivs:\t1"), "{said}");
    if is_root() {
        assert!(said.contains("CapBnd:\t0000000000000000"), "{said}");
    }
}

#[test]
fn an_agent_leads_a_session_of_its_own() {
    let (_, output) = run(
        "read -r pid _ _ _ _ sid _ </proc/self/stat; echo $$ $sid",
        &confinement(&mark("sid"), Vec::new()),
    );
    let said = said(&output);
    let (pid, sid) = said.trim().split_once(' ').unwrap();
    assert_eq!(pid, sid);
}

#[test]
fn what_is_hidden_cannot_be_read_and_all_else_can() {
    let (base, state) = open_secret();
    fs::write(base.path().join("beside"), "not hidden").unwrap();
    let line = format!(
        "cat {0}/key; ls {0}; cat {1}",
        state.display(),
        base.path().join("beside").display()
    );
    let (held, output) = run(&line, &confinement(&mark("hidden"), vec![state.clone()]));
    assert_ne!(held.cover, Cover::Nothing);
    assert_eq!(said(&output).trim(), "not hidden", "{held:?}");
    assert_eq!(fs::read_to_string(state.join("key")).unwrap(), "the secret");
}

/// A second agent would find it where the first one put it.
#[test]
fn what_is_hidden_is_not_found_under_another_name_by_the_next_agent() {
    let (base, _) = open_secret();
    let home = fs::canonicalize(base.path()).unwrap();
    let hidden = home.join("config/gh");
    fs::create_dir_all(&hidden).unwrap();
    fs::write(hidden.join("key"), "the secret").unwrap();
    let owner = if is_root() {
        NOBODY
    } else {
        fs::metadata(&home).unwrap().uid()
    };
    for path in [&home, &home.join("config")] {
        std::os::unix::fs::chown(path, Some(owner), None).unwrap();
    }
    for line in ["mv config old; cat old/gh/key", "cat old/gh/key config/gh/key"] {
        let line = format!("cd {}; {line}", home.display());
        let (held, output) = run(&line, &confinement(&mark("renamed"), vec![hidden.clone()]));
        if held.cover != Cover::Mounts {
            return;
        }
        assert_eq!(said(&output), "", "{line}");
    }
    assert!(hidden.join("key").exists());
}

#[test]
fn what_is_closed_to_writing_is_read_and_not_written_by_whichever_way() {
    let (base, place) = open_secret();
    for path in [base.path(), &place] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let beside = base.path().join("beside");
    let mut still = confinement(&mark("still"), Vec::new());
    still.read_only = vec![place.clone()];
    let mut command = Command::new("/bin/sh");
    let line = format!(
        "cat key; echo 1 >here; echo 2 >{0}/there; unshare -rm sh -c 'mount -o remount,rw {0}; umount {0}; echo 3 >{0}/after'; \
         rm -f key; echo 4 >{1}",
        place.display(),
        beside.display()
    );
    // It is there before its mounts are.
    command
        .args(["-c", &line])
        .env_clear()
        .stdin(Stdio::null())
        .current_dir(&place);
    match agent::prepare(&mut command, &still) {
        // A machine without mount namespaces starts no such agent.
        Err(agent::AgentError::Writable { .. }) => return,
        prepared => assert_eq!(prepared.unwrap().held().cover, Cover::Mounts),
    }
    let output = command.output().unwrap();
    agent::forget(&still.mark);
    assert_eq!(said(&output), "the secret", "{output:?}");
    let left: Vec<_> = fs::read_dir(&place)
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert_eq!(left, ["key"]);
    assert_eq!(fs::read_to_string(beside).unwrap(), "4\n");
}

#[test]
fn the_cover_cannot_be_taken_off() {
    let (_base, state) = open_secret();
    let attempts = format!(
        "umount {0}; unshare -rm sh -c 'umount {0}; cat {0}/key'; cat /proc/{1}/root{0}/key; cat {0}/key",
        state.display(),
        std::process::id(),
    );
    let (_, output) = run(&attempts, &confinement(&mark("off"), vec![state]));
    assert_eq!(said(&output), "");
}

#[test]
fn a_directory_that_is_hidden_is_not_worked_in() {
    let (_base, state) = open_secret();
    let below = state.join("below");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("key"), "the secret").unwrap();
    fs::set_permissions(&below, fs::Permissions::from_mode(0o755)).unwrap();
    for directory in [&state, &below] {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "cat key ../key ../below/key below/key; ls . .."]);
        command.env_clear().stdin(Stdio::null()).current_dir(directory);
        let confinement = confinement(&mark("below"), vec![state.clone()]);
        let _prepared = agent::prepare(&mut command, &confinement).unwrap();
        let output = command.output();
        agent::forget(&confinement.mark);
        // What is not there under the cover cannot be gone to.
        let said = output.as_ref().map(said).unwrap_or_default();
        assert!(!said.contains("secret") && !said.contains("key"), "{said}");
    }
}

#[test]
fn a_link_that_took_the_place_of_an_agents_directory_is_not_followed() {
    let (base, state) = open_secret();
    let place = fs::canonicalize(base.path()).unwrap().join("place");
    // With a cover of mounts, and without one.
    for hidden in [vec![state.clone()], Vec::new()] {
        fs::create_dir(&place).unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "pwd -P; cat key"]);
        command.env_clear().stdin(Stdio::null()).current_dir(&place);
        let confinement = confinement(&mark("swapped"), hidden);
        let prepared = agent::prepare(&mut command, &confinement).unwrap();
        fs::remove_dir(&place).unwrap();
        std::os::unix::fs::symlink(&state, &place).unwrap();
        let started = command.output();
        agent::forget(&confinement.mark);
        fs::remove_file(&place).unwrap();
        let words = prepared.explain(&started.unwrap_err());
        assert!(words.starts_with("going back to its directory failed"), "{words}");
    }
}

#[test]
fn an_agent_signals_what_it_started_and_nobody_else() {
    if countersign_sandbox::landlock_abi() < 6 {
        println!("this kernel cannot tell whose signals are whose");
        return;
    }
    let (_base, state) = open_secret();
    // A neighbour of the agent's own user.
    let mut neighbour = Command::new("sleep");
    neighbour.arg("300");
    if is_root() {
        use std::os::unix::process::CommandExt;
        neighbour.uid(NOBODY).gid(NOBODY);
    }
    let mut neighbour = neighbour.spawn().unwrap();
    let line = format!(
        "kill -0 {} || echo refused; sleep 300 & kill $! && echo own",
        neighbour.id()
    );
    for hidden in [Vec::new(), vec![state]] {
        let (held, output) = run(&line, &confinement(&mark("signals"), hidden));
        assert_eq!(said(&output), "refused\nown\n", "{held:?}");
    }
    neighbour.kill().unwrap();
    neighbour.wait().unwrap();
}

#[test]
fn a_path_that_is_not_there_needs_no_cover() {
    let (held, _) = run(
        "true",
        &confinement(&mark("absent"), vec![PathBuf::from("/nonexistent/state")]),
    );
    assert_eq!(held.cover, Cover::Nothing);
}

#[test]
fn the_processes_of_an_agent_are_found_by_its_mark_wherever_they_went() {
    let name = mark("found");
    let mut command = Command::new("/bin/sh");
    // One child has left its session, its parent and its environment.
    command
        .args(["-c", "(env -i setsid sleep 300 &) ; echo up; read _"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let prepared = agent::prepare(&mut command, &confinement(&name, Vec::new())).unwrap();
    if let Some(reason) = &prepared.held().cgroup_missing {
        return crate::setting::skip("agents in cgroups", reason);
    }
    let mut child = command.spawn().unwrap();
    let mut up = [0; 3];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut up).unwrap();
    let found = wait_for(|| Some(agent::members(&name)).filter(|found| found.len() == 2));
    assert!(found.contains(&(child.id() as i32)));
    for pid in &found {
        Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    }
    child.wait().unwrap();
    wait_for(|| agent::members(&name).is_empty().then_some(()));
    agent::forget(&name);
    assert!(agent::members(&name).is_empty());
}

/// Starts an agent, with a cgroup or without.
pub(crate) fn is_started(name: &str) {
    run("true", &confinement(name, Vec::new()));
}

/// Starts an agent that can only be found by its cgroup, which there must be.
pub(crate) fn is_found_in_its_cgroup(name: &str) {
    let mut command = Command::new("/bin/cat");
    command.env_clear().stdin(Stdio::piped()).stdout(Stdio::null());
    let prepared = agent::prepare(&mut command, &confinement(name, Vec::new())).unwrap();
    assert_eq!(prepared.held().cgroup_missing, None);
    let mut child = command.spawn().unwrap();
    assert_eq!(agent::members(name), [child.id() as i32]);
    drop(child.stdin.take());
    child.wait().unwrap();
    agent::forget(name);
}

#[test]
fn our_descriptors_do_not_reach_an_agent() {
    use std::os::fd::AsRawFd;
    let secret = fs::File::open("/etc/hostname")
        .or_else(|_| fs::File::open("/etc/passwd"))
        .unwrap();
    // As a careless library would leave it.
    let leaked = Path::new("/proc/self/fd").join(secret.as_raw_fd().to_string());
    let (_, output) = run("ls /proc/self/fd | wc -l", &confinement(&mark("fds"), Vec::new()));
    assert!(leaked.exists());
    // Its three streams and the directory that is being listed.
    assert_eq!(said(&output).trim(), "4");
}

#[test]
fn a_program_that_is_not_there_is_said_to_be() {
    let mut command = Command::new("/nonexistent/agent");
    let prepared = agent::prepare(&mut command, &confinement(&mark("none"), Vec::new())).unwrap();
    let error = command.spawn().unwrap_err();
    assert_eq!(prepared.explain(&error), format!("starting it failed: {error}"));
}

fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1000 {
        match found() {
            Some(found) => return found,
            None => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    }
    panic!("it did not happen");
}
