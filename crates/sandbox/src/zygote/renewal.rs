//! A zygote that was killed is made anew. By then the server has threads and secrets, and a fork of it would have them
//! too; so this program is started again, and becomes a zygote before it is anything else.
//!
//! What the new one must know comes by the socket and not by words: whoever types them makes it remove nothing.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Options, ZygoteError, service};
use crate::runner::Runner;
use crate::sys::process::{Patience, signal, wait_for};
use crate::wire::{self, WireError};

/// This very program, also when its file was replaced since it was started.
const ITSELF: &str = "/proc/self/exe";
/// Time between two new ones; it doubles up to the longest while they die young.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How the next zygote is made, and when it may be.
#[derive(Debug)]
pub(super) struct Renewal {
    words: Vec<OsString>,
    options: Options,
    made: u64,
    pace: Pace,
}

/// What a server says first to a zygote that it did not fork.
#[derive(Serialize, Deserialize)]
struct Hello {
    server: i32,
    temp_base: Option<PathBuf>,
    namespaces: bool,
}

impl Renewal {
    pub(super) fn new(words: Vec<OsString>, options: Options) -> Self {
        Self {
            words,
            options,
            made: 0,
            pace: Pace::default(),
        }
    }

    pub(super) fn made(&self) -> u64 {
        self.made
    }

    pub(super) fn is_due(&self) -> bool {
        self.pace.is_due(Instant::now())
    }

    pub(super) fn make(&mut self) -> Result<(UnixStream, i32), ZygoteError> {
        // One that cannot be started is not tried again at once either.
        self.pace.begun(Instant::now());
        let (ours, theirs) = UnixStream::pair().map_err(ZygoteError::Start)?;
        let child = Command::new(ITSELF)
            .arg0("countersign")
            .args(&self.words)
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(ZygoteError::Start)?;
        let pid = child.id() as i32;
        let hello = Hello {
            server: std::process::id() as i32,
            temp_base: self.options.temp_base.clone(),
            namespaces: self.options.namespaces,
        };
        if let Err(error) = wire::send(ours.as_fd(), &hello, &[]) {
            signal(pid, libc::SIGKILL);
            let _ = wait_for(pid, Patience::Block);
            return Err(error.into());
        }
        self.made += 1;
        Ok((ours, pid))
    }
}

/// Serves as the zygote of the server at the other end of standard input, and does not come back. To be called first
/// thing, in a program that was started for nothing else.
pub fn serve_on_stdin(runner: Option<Runner>) -> Result<Infallible, ZygoteError> {
    // A descriptor of its own: what was standard input is closed on the way.
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(ZygoteError::Start)?;
    let socket = UnixStream::from(socket);
    let hello: Option<Hello> = wire::receive(socket.as_fd(), &mut Vec::new())?;
    let hello = hello.ok_or(WireError::Closed)?;
    let options = Options {
        temp_base: hello.temp_base,
        namespaces: hello.namespaces,
        runner,
    };
    service::run(socket, &options, hello.server)
}

/// Keeps a zygote that cannot live from being started over and over.
#[derive(Debug, Default)]
struct Pace {
    pause: Duration,
    not_before: Option<Instant>,
}

impl Pace {
    fn is_due(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| now >= at)
    }

    fn begun(&mut self, now: Instant) {
        let was_calm = self.not_before.is_none_or(|at| now >= at + PAUSE_MAX);
        self.pause = if was_calm {
            PAUSE_FIRST
        } else {
            (self.pause * 2).min(PAUSE_MAX)
        };
        self.not_before = Some(now + self.pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_made_at_once_and_those_that_die_young_are_waited_with() {
        let start = Instant::now();
        let mut pace = Pace::default();
        assert!(pace.is_due(start));
        let mut now = start;
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            pace.begun(now);
            let due = now + Duration::from_secs(pause);
            assert!(!pace.is_due(due - Duration::from_millis(1)), "{pause}");
            assert!(pace.is_due(due), "{pause}");
            now = due;
        }
        // One that lived for long is replaced as quickly as the first.
        now += PAUSE_MAX;
        pace.begun(now);
        assert!(pace.is_due(now + PAUSE_FIRST));
    }
}
