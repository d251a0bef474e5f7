//! Telling one process from any other: its number and the moment it started.
//!
//! Numbers are used again. Nothing is signalled before both were compared, and the signal goes through a
//! descriptor of the very process that was compared.

use std::fs::{self, File};
use std::io::{self, Read};

use countersign_gateway::job::driver::ProcessMark;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// What `/proc` says of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stat {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) session: u32,
    /// In clock ticks since the machine started.
    pub(crate) started: u64,
    /// Ended, and only waiting for its parent to notice.
    pub(crate) is_over: bool,
}

impl Stat {
    pub(crate) fn of(pid: u32) -> Option<Stat> {
        Stat::read(pid, &String::from_utf8_lossy(&told(pid, "stat").ok()?))
    }

    /// Reads a line of `/proc/PID/stat`. The name in it may contain anything, also parentheses.
    fn read(pid: u32, line: &str) -> Option<Stat> {
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Stat {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            is_over: matches!(*fields.first()?, "Z" | "X"),
        })
    }

    /// Everybody there is. An error where nobody can tell: no more files may be opened, say.
    pub(crate) fn all() -> io::Result<Vec<Stat>> {
        let mut everybody = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let line = seen(told(pid, "stat"))?;
            everybody.extend(line.and_then(|line| Stat::read(pid, &String::from_utf8_lossy(&line))));
        }
        Ok(everybody)
    }
}

/// What `/proc` tells of a process. Its files do not say how long they are, so there is room for most of them
/// from the start: each is read once, not piece by piece.
pub(crate) fn told(pid: u32, file: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(8 * 1024);
    File::open(format!("/proc/{pid}/{file}"))?.read_to_end(&mut text)?;
    Ok(text)
}

/// What was told of a process; none of one that is gone, or not ours to look at.
pub(crate) fn seen(told: io::Result<Vec<u8>>) -> io::Result<Option<Vec<u8>>> {
    let is_gone = |error: &io::Error| error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error());
    match told {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Ok(None),
            _ => Err(error),
        },
    }
}

/// The mark of a process that runs.
pub(crate) fn mark_of(pid: u32) -> Option<ProcessMark> {
    Stat::of(pid).map(|stat| ProcessMark {
        pid,
        started: stat.started,
        socket: None,
    })
}

/// Whether this very process still runs.
pub fn runs(mark: &ProcessMark) -> bool {
    Stat::of(mark.pid).is_some_and(|stat| stat.started == mark.started && !stat.is_over)
}

/// Whether a process is gone, or only waits for its parent to notice. False where that cannot be looked at.
pub(crate) fn has_ended(pid: u32) -> bool {
    match seen(told(pid, "stat")) {
        Ok(None) => true,
        Ok(Some(line)) => Stat::read(pid, &String::from_utf8_lossy(&line)).is_some_and(|stat| stat.is_over),
        Err(_) => false,
    }
}

/// Signals this very process and no other. False when it is gone.
pub(crate) fn signal(pid: u32, started: u64, signal: Signal) -> bool {
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    let Ok(process) = pidfd_open(number, PidfdFlags::empty()) else {
        return false;
    };
    // The descriptor holds on to whoever has the number now; only after that is it worth comparing.
    let is_the_same = Stat::of(pid).is_some_and(|stat| stat.started == started);
    is_the_same && pidfd_send_signal(&process, signal).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_behind_any_name() {
        let line = "12 (a) b (c) S 7 12 3 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 99887 1 2";
        let expected = Stat {
            pid: 12,
            parent: 7,
            session: 3,
            started: 99887,
            is_over: false,
        };
        assert_eq!(Stat::read(12, line), Some(expected));
        assert_eq!(Stat::read(12, "garbage"), None);
    }

    #[test]
    fn a_process_with_the_same_number_but_another_start_is_left_alone() {
        let mut child = std::process::Command::new("sleep").arg("300").spawn().unwrap();
        let mark = mark_of(child.id()).unwrap();
        assert!(!signal(mark.pid, mark.started + 1, Signal::KILL));
        assert!(runs(&mark));
        assert!(!runs(&ProcessMark {
            started: mark.started + 1,
            ..mark.clone()
        }));
        assert!(signal(mark.pid, mark.started, Signal::KILL));
        let deadline = std::time::Instant::now() + crate::limits::KILL_WAIT;
        while !has_ended(mark.pid) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(has_ended(mark.pid), "though nobody has noticed");
        child.wait().unwrap();
        assert!(!runs(&mark));
    }
}
