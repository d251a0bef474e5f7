//! Everything that belongs to a job, however far it went, and how it is ended.
//!
//! Agents start their commands in sessions and groups of their own, and commands leave their parents, so
//! neither a group nor ancestry is enough. A process is a job's when its cgroup carries the job's mark, when
//! its environment does, or when its parent or the leader of its session is.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use countersign_gateway::job::driver::ProcessMark;
use countersign_sandbox::agent;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::mark::{self, Stat};
use crate::limits;

/// The name of the environment variable by which every process of a job is known.
pub const MARK: &str = "COUNTERSIGN_JOB";

/// For which job a process was started that several may share. Their commands inherit it, so it says nothing of
/// them.
pub(crate) const STARTED_FOR: &str = "COUNTERSIGN_STARTED_FOR";

/// How long it is waited before it is looked again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The processes of one mark.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    mark: String,
    root: Option<ProcessMark>,
}

/// Who is left after a tree was ended; only the kernel can keep a killed process from going.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Survivors(pub(crate) Vec<u32>);

impl Tree {
    /// All that carries the mark, and this process with all that descends from it.
    pub(crate) fn of(mark: &str, root: Option<ProcessMark>) -> Tree {
        Tree {
            mark: mark.to_owned(),
            root,
        }
    }

    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Who belongs to it now, by number, with the moment each started. We ourselves never do. An error where nobody can tell.
    pub(crate) fn members(&self) -> io::Result<BTreeMap<u32, u64>> {
        let in_cgroup = agent::members(&self.mark);
        grown(|stat| {
            let is_known = self.is_root(stat) || in_cgroup.contains(&(stat.pid as i32));
            Ok(is_known || carries(stat.pid, &self.mark)?)
        })
    }

    fn is_root(&self, stat: &Stat) -> bool {
        let root = self.root.as_ref();
        root.is_some_and(|root| root.pid == stat.pid && root.started == stat.started)
    }

    /// The same, by a thread that may take its time: there can be thousands of processes to look at.
    pub(crate) async fn look(&self) -> io::Result<BTreeMap<u32, u64>> {
        let tree = self.clone();
        tokio::task::spawn_blocking(move || tree.members())
            .await
            .unwrap_or_else(|broken| Err(io::Error::other(broken)))
    }

    async fn left(&self, spared: &BTreeMap<u32, u64>) -> io::Result<BTreeMap<u32, u64>> {
        let mut members = self.look().await?;
        members.retain(|pid, started| spared.get(pid) != Some(started));
        Ok(members)
    }

    /// Ends all of it but `spared`: told to terminate first, killed after a while. What cannot be looked at is not taken
    /// for ended.
    pub(crate) async fn end(&self, spared: &BTreeMap<u32, u64>) -> Result<(), Survivors> {
        let deadline = Instant::now() + limits::TERMINATE_GRACE + limits::KILL_WAIT;
        let mut patient = None;
        loop {
            let looked = self.left(spared).await;
            let now = Instant::now();
            let found = match looked {
                Ok(found) if found.is_empty() => return Ok(()),
                Ok(found) if now > deadline => return Err(Survivors(found.into_keys().collect())),
                Ok(found) => found,
                Err(error) if now > deadline => {
                    tracing::error!(%error, mark = self.mark, "processes of an agent cannot be looked for");
                    return Err(Survivors(Vec::new()));
                }
                Err(_) => {
                    sleep(LOOK_AGAIN).await;
                    continue;
                }
            };
            match patient {
                None => {
                    patient = Some(now + limits::TERMINATE_GRACE);
                    for (pid, started) in found {
                        mark::signal(pid, started, Signal::TERM);
                        // A stopped process would never act on it.
                        mark::signal(pid, started, Signal::CONT);
                    }
                }
                Some(until) if now < until => sleep(LOOK_AGAIN).await,
                Some(_) => {
                    // Stopped first, so that none can fork away while its parent is killed.
                    for signal in [Signal::STOP, Signal::KILL] {
                        for (pid, started) in &found {
                            mark::signal(*pid, *started, signal);
                        }
                    }
                    sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }
}

/// Everybody who belongs to any job. Where we were ourselves started by an agent, our own job's are not meant.
pub(super) fn of_any_job() -> io::Result<BTreeMap<u32, u64>> {
    let own = variable(std::process::id(), MARK)?;
    let in_cgroup = agent::members_of_any(own.as_deref());
    grown(|stat| {
        let carried = variable(stat.pid, MARK)?;
        Ok(in_cgroup.contains(&(stat.pid as i32)) || carried.is_some() && carried != own)
    })
}

/// Those who are meant, with all that they started, by number, with the moment each started. We ourselves never are.
fn grown(is_meant: impl Fn(&Stat) -> io::Result<bool>) -> io::Result<BTreeMap<u32, u64>> {
    let everybody: Vec<Stat> = Stat::all()?.into_iter().filter(|stat| !stat.is_over).collect();
    let ours = Stat::of(std::process::id());
    let is_ours = |stat: &Stat| stat.pid == std::process::id();
    let mut found = BTreeMap::new();
    for stat in everybody.iter().filter(|stat| !is_ours(stat)) {
        if is_meant(stat)? {
            found.insert(stat.pid, stat.started);
        }
    }
    // Sessions that were made inside the tree. Ours is not one of them, whatever a process says.
    loop {
        let sessions: Vec<u32> = everybody
            .iter()
            .filter(|stat| found.contains_key(&stat.pid) && ours.is_none_or(|ours| ours.session != stat.session))
            .filter(|stat| found.contains_key(&stat.session) || !everybody.iter().any(|it| it.pid == stat.session))
            .map(|stat| stat.session)
            .collect();
        let more: Vec<&Stat> = everybody
            .iter()
            .filter(|stat| !is_ours(stat) && !found.contains_key(&stat.pid))
            .filter(|stat| found.contains_key(&stat.parent) || sessions.contains(&stat.session))
            .collect();
        if more.is_empty() {
            return Ok(found);
        }
        found.extend(more.into_iter().map(|stat| (stat.pid, stat.started)));
    }
}

/// Looks again and again until it is so; false when it did not become so in time.
pub(crate) async fn wait_until(patience: Duration, is_so: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Whether the environment a process was started with says that it is the job's.
fn carries(pid: u32, mark: &str) -> io::Result<bool> {
    Ok(variable(pid, MARK)?.is_some_and(|found| found == mark))
}

/// What a variable was when a process was started.
fn variable(pid: u32, name: &str) -> io::Result<Option<String>> {
    let environment = mark::seen(mark::told(pid, "environ"))?.unwrap_or_default();
    let mut entries = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    Ok(entries.find_map(|entry| Some(entry.strip_prefix(name)?.strip_prefix('=')?.to_owned())))
}

/// Processes that were started for a job and carry a mark of their own, with that mark.
pub(crate) fn started_for(job_id: &str) -> io::Result<Vec<(ProcessMark, String)>> {
    let mut found = Vec::new();
    for stat in Stat::all()?.into_iter().filter(|stat| !stat.is_over) {
        let is_it = variable(stat.pid, STARTED_FOR)?.is_some_and(|job| job == job_id);
        if let Some(mark) = variable(stat.pid, MARK)?.filter(|_| is_it) {
            let process = ProcessMark {
                pid: stat.pid,
                started: stat.started,
                socket: None,
            };
            found.push((process, mark));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn sh(mark: &str, line: &str) -> Child {
        Command::new("sh")
            .args(["-c", line])
            .env(MARK, mark)
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn name(test: &str) -> String {
        format!("tree-{test}-{}", std::process::id())
    }

    #[tokio::test]
    async fn a_child_that_left_its_session_parent_and_group_is_found_and_ended() {
        let name = name("left");
        let mut root = sh(&name, "(setsid sh -c 'trap \"\" TERM; sleep 300 & wait' &); sleep 300");
        let tree = Tree::of(&name, mark::mark_of(root.id()));
        assert!(wait_until(limits::KILL_WAIT, || tree.members().unwrap().len() == 4).await);
        let reaped = tokio::task::spawn_blocking(move || root.wait().unwrap());
        tree.end(&BTreeMap::new()).await.unwrap();
        assert!(tree.members().unwrap().is_empty());
        reaped.await.unwrap();
    }

    #[tokio::test]
    async fn a_child_that_dropped_the_mark_is_found_by_its_parent() {
        let name = name("dropped");
        let mut root = sh(&name, "env -i sleep 300 & wait");
        let tree = Tree::of(&name, None);
        assert!(wait_until(limits::KILL_WAIT, || tree.members().unwrap().len() == 2).await);
        let reaped = tokio::task::spawn_blocking(move || root.wait().unwrap());
        tree.end(&BTreeMap::new()).await.unwrap();
        reaped.await.unwrap();
    }

    #[tokio::test]
    async fn other_jobs_and_those_who_are_spared_go_on() {
        let name = name("spared");
        let (mut spared, mut other) = (sh(&name, "exec sleep 300"), sh(&format!("{name}x"), "exec sleep 300"));
        let tree = Tree::of(&name, None);
        assert!(wait_until(limits::KILL_WAIT, || tree.members().unwrap().len() == 1).await);
        let before = tree.members().unwrap();
        let mut ended = sh(&name, "exec sleep 300");
        assert!(wait_until(limits::KILL_WAIT, || tree.members().unwrap().len() == 2).await);
        let reaped = tokio::task::spawn_blocking(move || ended.wait().unwrap());
        tree.end(&before).await.unwrap();
        reaped.await.unwrap();
        assert_eq!(tree.members().unwrap(), before);
        assert!(other.try_wait().unwrap().is_none());
        for child in [&mut spared, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Runs itself once more, where no file can be opened any more: that cannot be undone for other tests.
    #[test]
    fn whoever_cannot_look_does_not_say_that_nobody_is_there() {
        const ALONE: &str = "COUNTERSIGN_TEST_WITHOUT_FILES";
        if std::env::var_os(ALONE).is_none() {
            let name = "process::tree::tests::whoever_cannot_look_does_not_say_that_nobody_is_there";
            let again = Command::new(std::env::current_exe().unwrap())
                .args([name, "--exact", "--nocapture"])
                .env(ALONE, "1")
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&again.stdout);
            assert!(again.status.success() && told.contains("1 passed"), "{told}");
            return;
        }
        let here = "127.0.0.1:1".parse().unwrap();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let none = rustix::process::Rlimit {
            current: Some(3),
            ..limit
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, none).unwrap();
        let looked = (Tree::of("nobody", None).members(), started_for("nobody"));
        let may_be = crate::process::may_be_an_agent(here, here);
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
        assert!(looked.0.is_err() && looked.1.is_err() && may_be);
    }
}
