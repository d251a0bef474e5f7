//! The zygote: a small process, forked before the server has threads or secrets, that makes keepers. This is
//! the server's side of it; `service` is the other, and `renewal` makes one anew that was killed.

mod renewal;
mod service;

use std::ffi::OsString;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::keeper::report::{KeeperReport, SetupError};
use crate::profile::{Profile, ProfileError};
use crate::runner::Runner;
use crate::sys::process::{Patience, Side, fork_threaded, signal, wait_for};
use crate::sys::sockets;
use crate::wire::{self, WireError};
use renewal::Renewal;

pub use renewal::serve_on_stdin;

/// A keeper takes milliseconds to make. A zygote that was stopped would otherwise stop every call with it.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How keepers are made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Removed with everything in it when the server is gone, however it went; so is the directory it lies in, where
    /// nothing else does.
    pub temp_base: Option<PathBuf>,
    /// False keeps to layers that need no namespace, for machines where they do harm.
    pub namespaces: bool,
    /// Runs the launches that are not programs.
    pub runner: Option<Runner>,
}

/// The server's hold on its zygote. When it is dropped, and no keeper is left, the zygote ends.
#[derive(Debug)]
pub struct Zygote {
    line: Mutex<Line>,
    /// How often it was made anew; told without waiting for the line, which a keeper that is being made holds.
    renewals: AtomicU64,
}

/// The zygote that is spoken to at the moment.
#[derive(Debug)]
struct Line {
    socket: UnixStream,
    pid: i32,
    /// How the next one is made; without it a zygote that was killed is missed for good.
    renewal: Option<Renewal>,
}

/// A keeper, ready for launches. When the socket closes, it ends with everything it runs.
#[derive(Debug)]
pub struct KeeperHandle {
    pub socket: OwnedFd,
    pub pid: i32,
    pub report: KeeperReport,
}

#[derive(Debug, thiserror::Error)]
pub enum ZygoteError {
    #[error("cannot start the zygote")]
    Start(#[source] io::Error),
    #[error("the profile makes no sense")]
    Profile(#[from] ProfileError),
    #[error("cannot make a keeper")]
    Setup(#[from] SetupError),
    #[error("cannot talk to the zygote")]
    Wire(#[from] WireError),
    #[error("the zygote is gone")]
    Gone,
}

/// What the server asks.
#[derive(Serialize, Deserialize)]
struct Request {
    profile: Profile,
}

/// What the zygote answers; the keeper's socket travels along.
#[derive(Serialize, Deserialize)]
enum Answer {
    Made { pid: i32, report: KeeperReport },
    BadProfile(ProfileError),
    Failed(SetupError),
}

impl Zygote {
    /// Forks the zygote. To be called at the very start, while the process is small and has one thread.
    pub fn start(options: Options) -> Result<Zygote, ZygoteError> {
        let (ours, theirs) = UnixStream::pair().map_err(ZygoteError::Start)?;
        let server = std::process::id() as i32;
        match fork_threaded().map_err(ZygoteError::Start)? {
            Side::Child => service::run(theirs, &options, server),
            Side::Parent { child } => Ok(Zygote {
                line: Mutex::new(Line {
                    socket: ours,
                    pid: child,
                    renewal: None,
                }),
                renewals: AtomicU64::new(0),
            }),
        }
    }

    /// From now on one that was killed is made anew: this program, started again with these words, must call
    /// [`serve_on_stdin`].
    #[must_use]
    pub fn renewed_by(self, words: Vec<OsString>, options: Options) -> Zygote {
        self.line().renewal = Some(Renewal::new(words, options));
        self
    }

    /// The process number, for `doctor`.
    pub fn pid(&self) -> i32 {
        self.line().pid
    }

    /// Whether keepers can be made, by a new zygote if need be. Whoever makes one just now knows better, and is not
    /// waited for.
    pub fn is_there(&self) -> bool {
        match self.line.try_lock() {
            Ok(mut line) => self.stand(&mut line).is_ok(),
            Err(TryLockError::Poisoned(line)) => self.stand(&mut line.into_inner()).is_ok(),
            Err(TryLockError::WouldBlock) => true,
        }
    }

    /// How often it was made anew.
    pub fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::Relaxed)
    }

    /// Asks for a keeper. Blocks for a few milliseconds.
    pub fn keeper(&self, profile: &Profile) -> Result<KeeperHandle, ZygoteError> {
        let mut line = self.line();
        self.stand(&mut line)?;
        let asked = line.ask(profile);
        let (answer, mut fds) = match asked {
            // It was killed while it made the keeper, which nobody can reach now and which ends by itself.
            Err(error) if !error.leaves_in_step() => {
                self.stand(&mut line)?;
                line.ask(profile)?
            }
            asked => asked?,
        };
        match answer {
            Answer::Made { pid, report } => {
                let socket = fds.pop().ok_or(WireError::Closed)?;
                Ok(KeeperHandle { socket, pid, report })
            }
            Answer::BadProfile(error) => Err(error.into()),
            Answer::Failed(error) => Err(error.into()),
        }
    }

    /// Lets the zygote go and waits until it has cleaned up. All keeper sockets must be closed before.
    pub fn finish(self) -> io::Result<()> {
        let Line { socket, pid, .. } = self.line.into_inner().unwrap_or_else(PoisonError::into_inner);
        drop(socket);
        wait_for(pid, Patience::Block).map(drop)
    }

    /// Sees to it that there is a zygote to speak to.
    fn stand(&self, line: &mut Line) -> Result<(), ZygoteError> {
        let stands = line.stand();
        let made = line.renewal.as_ref().map_or(0, Renewal::made);
        self.renewals.store(made, Ordering::Relaxed);
        stands
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// A zygote that hung up is made anew, if it may be.
    fn stand(&mut self) -> Result<(), ZygoteError> {
        if !sockets::is_hung_up(self.socket.as_fd()) {
            return Ok(());
        }
        let renewal = self.renewal.as_mut().ok_or(ZygoteError::Gone)?;
        if !renewal.is_due() {
            return Err(ZygoteError::Gone);
        }
        // One that only hung up must not be there to remove what the next one uses, and is ours until it is waited for.
        signal(self.pid, libc::SIGKILL);
        let _ = wait_for(self.pid, Patience::Block);
        (self.socket, self.pid) = renewal.make()?;
        Ok(())
    }

    /// One question and its answer.
    fn ask(&self, profile: &Profile) -> Result<(Answer, Vec<OwnedFd>), WireError> {
        let mut fds = Vec::new();
        let request = Request {
            profile: profile.clone(),
        };
        let socket = self.socket.as_fd();
        let answer = wire::send(socket, &request, &[])
            .and_then(|()| sockets::wait_readable_for(socket, ANSWER_WITHIN).map_err(WireError::Receive))
            .and_then(|()| wire::receive(socket, &mut fds)?.ok_or(WireError::Closed));
        match answer {
            Ok(answer) => Ok((answer, fds)),
            Err(error) => {
                // The next answer could be taken for that of another question: a keeper with other rights.
                if !error.leaves_in_step() {
                    let _ = self.socket.shutdown(Shutdown::Both);
                }
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_keeper_that_is_being_made_to_hear_how_things_stand() {
        let options = Options {
            temp_base: None,
            namespaces: false,
            runner: None,
        };
        let zygote = Zygote::start(options).unwrap();
        let making = zygote.line();
        let (told, answer) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| told.send((zygote.is_there(), zygote.renewals())));
            assert_eq!(answer.recv_timeout(Duration::from_secs(60)), Ok((true, 0)));
            drop(making);
        });
        zygote.finish().unwrap();
    }
}
