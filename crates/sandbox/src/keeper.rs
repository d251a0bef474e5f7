//! A keeper: one pooled place to run commands of one profile, one at a time.
//!
//! It is the guardian of what it runs. It sits in the cgroup and the namespaces of its profile, is the first
//! process of its pid namespace where there is one, and ends its whole tree and itself when the server's end
//! of its socket closes. Commands inherit from it what is safe to inherit: namespaces, cgroup, groups, an
//! empty bounding set, no-new-privs and the system call filter. User, capabilities, Landlock and the limits
//! that differ by call are the child's own, so that no command can signal, trace or read its keeper.

mod aliases;
mod call;
mod child;
mod mounts;
pub(crate) mod report;
mod setup;
mod standing;
pub(crate) mod tree;

use std::fs::File;
use std::io::{PipeWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::cgroup::{Counters, Leaf};
use crate::landlock::SharedMemory;
use crate::launch::{ExecRights, Launch};
use crate::opened::Opened;
use crate::profile::Profile;
use crate::runner::Runner;
use crate::sys::process::{Stack, exit_now};
use crate::sys::watch::Watch;
use crate::wire;

pub(crate) use child::{check_unchanged, execute_descriptor};
use mounts::Guard;
pub use mounts::is_absent;
pub(crate) use mounts::mask;
pub(crate) use setup::namespace_flags;
use standing::Standing;
use tree::Tree;

/// What the zygote gives a new keeper.
pub(crate) struct Seat {
    pub(crate) profile: Profile,
    pub(crate) namespaces: Namespaces,
    /// The leaf to sit in, or why there is none.
    pub(crate) leaf: Result<Leaf, String>,
    pub(crate) socket: UnixStream,
    pub(crate) runner: Option<Runner>,
}

/// By which right a keeper has its namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Namespaces {
    /// The server may make them.
    Own,
    /// Inside a user namespace that maps only the server's user, whose ids cannot be read from inside.
    User { uid: u32, gid: u32 },
    /// There are none, for this reason.
    None(String),
}

pub(crate) struct Keeper {
    socket: UnixStream,
    profile: Profile,
    opened: Opened,
    tree: Tree,
    guards: Vec<Guard>,
    counters: Counters,
    /// Counter values before the current call.
    counted: (u64, u64),
    /// Where commands have a limit of memory together with us.
    standing: Option<Standing>,
    shared_memory: SharedMemory,
    /// The directory of private shared memory, since the first call.
    shared_memory_opened: Option<File>,
    /// The last call left something that could not be cleared away; nothing runs here any more.
    is_spoiled: bool,
    in_mount_namespace: bool,
    /// The command made something barred.
    made_barred: bool,
    /// The command was ended because its time was over.
    ran_on: bool,
    /// Tells when something barred may have come into being.
    watch: Option<Watch>,
    landlocked: bool,
    drops_capabilities: bool,
    /// The profile's limit, or ours where that is lower: nobody can raise it.
    open_files: u64,
    /// Finished rulesets by what they allow to execute, the latest last.
    rulesets: Vec<(ExecRights, OwnedFd)>,
    stack: Stack,
    runner: Option<Runner>,
}

/// Becomes a keeper: prepares, tells the zygote how that went, and serves until the server is gone.
pub(crate) fn enter(seat: Seat, mut status: PipeWriter) -> ! {
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let prepared = setup::prepare(seat);
        let told = match &prepared {
            Ok((_, report)) => Ok(report),
            Err(error) => Err(error),
        };
        let bytes = postcard::to_stdvec(&told).unwrap_or_default();
        let delivered = status.write_all(&bytes).is_ok();
        drop(status);
        match prepared {
            Ok((mut keeper, _)) if delivered => keeper.serve(),
            _ => {}
        }
    }));
    exit_now(if ended.is_ok() { 0 } else { 70 })
}

impl Keeper {
    fn serve(&mut self) {
        loop {
            let mut fds = Vec::new();
            let launch: Launch = match wire::receive(self.socket.as_fd(), &mut fds) {
                Ok(Some(launch)) => launch,
                // The server is gone or speaks no sense; nothing runs at this point.
                Ok(None) | Err(_) => return,
            };
            let Some(reply) = self.conduct(&launch, fds) else {
                return;
            };
            if wire::send(self.socket.as_fd(), &reply, &[]).is_err() {
                return;
            }
            self.tidy();
        }
    }
}
