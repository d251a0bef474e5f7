//! Reaching every process that a command left behind, however far it went.

use std::fs;
use std::io;
use std::time::Duration;

use crate::sys::process::{Patience, Waited, signal, wait_for};

/// How the processes of a command are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// The keeper is the first process of a pid namespace: everybody else in it is the command.
    Namespace,
    /// The keeper adopts orphans, so the command is whatever descends from it.
    Descendants,
}

impl Tree {
    /// Sends a signal to all of it. Stopped processes are woken, else they would never act on it.
    pub(super) fn signal(self, number: i32) {
        let all = match self {
            Tree::Namespace => vec![-1],
            Tree::Descendants => descendants(std::process::id() as i32, &[]),
        };
        for pid in &all {
            signal(*pid, number);
        }
        for pid in &all {
            signal(*pid, libc::SIGCONT);
        }
    }

    /// Kills all of it and returns when nothing is left.
    pub(super) fn end(self) -> io::Result<()> {
        match self {
            Tree::Namespace => loop {
                // One sweep is enough for the kernel: a process with a pending KILL cannot fork.
                signal(-1, libc::SIGKILL);
                if let Waited::NoChildren = wait_for(-1, Patience::Block)? {
                    return Ok(());
                }
            },
            Tree::Descendants => loop {
                kill(&descendants(std::process::id() as i32, &[]));
                loop {
                    match wait_for(-1, Patience::Look)? {
                        Waited::NoChildren => return Ok(()),
                        Waited::Ended(_) => {}
                        Waited::StillRunning => break,
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
            },
        }
    }
}

/// Kills what a keeper that was killed itself left to this process, its parent: everybody below it but for the other
/// `keepers` and what they run. One look is not enough where processes fork away meanwhile; whoever is left becomes
/// our child when its parent ends, so the end of each is a reason to look again.
pub(crate) fn kill_strays(keepers: &[i32]) {
    kill(&descendants(std::process::id() as i32, keepers));
}

/// Stopped first, so that none can fork away while its parent is killed.
fn kill(all: &[i32]) {
    for number in [libc::SIGSTOP, libc::SIGKILL] {
        all.iter().for_each(|pid| signal(*pid, number));
    }
}

/// Everybody below `root`, parents before children, but for `others` and whoever is below them. Threads do not matter
/// here: a child belongs to the process, whichever thread made it.
fn descendants(root: i32, others: &[i32]) -> Vec<i32> {
    let pairs: Vec<(i32, i32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            // Not as text: whoever gave itself a name that is none would be left out, with all its children.
            Some((pid, parent(&fs::read(entry.path().join("stat")).ok()?)?))
        })
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let children = pairs.iter().filter(|(pid, of)| *of == parent && !others.contains(pid));
        found.extend(children.map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

/// The parent in a line of `/proc/PID/stat`. The name before it may contain anything, also parentheses.
fn parent(stat: &[u8]) -> Option<i32> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_found_behind_any_name() {
        assert_eq!(parent(b"12 (sh) S 7 12 12 0"), Some(7));
        assert_eq!(parent(b"12 (a) b (c) R 99 (x) S 3 1"), Some(3));
        assert_eq!(parent(b"12 (\xff) S 7 12 12 0"), Some(7));
        assert_eq!(parent(b"garbage"), None);
    }
}
