//! The zygote: a small process, forked before the server has threads or secrets, that makes keepers. This is
//! the server's side of it; `service` is the other.

mod service;

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::keeper::report::{KeeperReport, SetupError};
use crate::profile::{Profile, ProfileError};
use crate::runner::Runner;
use crate::sys::process::{Patience, Side, fork_threaded, wait_for};
use crate::sys::sockets;
use crate::wire::{self, WireError};

/// How keepers are made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Removed with everything in it when the server is gone, however it went.
    pub temp_base: Option<PathBuf>,
    /// False keeps to layers that need no namespace, for machines where they do harm.
    pub namespaces: bool,
    /// Runs the launches that are not programs.
    pub runner: Option<Runner>,
}

/// The server's hold on its zygote. When it is dropped, and no keeper is left, the zygote ends.
#[derive(Debug)]
pub struct Zygote {
    socket: Mutex<UnixStream>,
    pid: i32,
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
                socket: Mutex::new(ours),
                pid: child,
            }),
        }
    }

    /// The process number, for `doctor`.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether keepers can still be made. A zygote that was killed is not made anew: by now this process has threads
    /// and secrets.
    pub fn is_there(&self) -> bool {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        !sockets::is_hung_up(socket.as_fd())
    }

    /// Asks for a keeper. Blocks for a few milliseconds.
    pub fn keeper(&self, profile: &Profile) -> Result<KeeperHandle, ZygoteError> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fds = Vec::new();
        let answer = match ask(&socket, profile, &mut fds) {
            Ok(answer) => answer,
            Err(error) => {
                // The next answer could be taken for that of another question: a keeper with other rights.
                if !error.leaves_in_step() {
                    let _ = socket.shutdown(Shutdown::Both);
                }
                return Err(error.into());
            }
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
        drop(self.socket);
        wait_for(self.pid, Patience::Block).map(drop)
    }
}

fn ask(socket: &UnixStream, profile: &Profile, fds: &mut Vec<OwnedFd>) -> Result<Answer, WireError> {
    let request = Request {
        profile: profile.clone(),
    };
    wire::send(socket.as_fd(), &request, &[])?;
    wire::receive(socket.as_fd(), fds)?.ok_or(WireError::Closed)
}
