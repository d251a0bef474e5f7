//! The zygote itself. It has one thread and touches no lock but the allocator's, because the process it was
//! forked from may have had more.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Answer, Options, Request};
use crate::cgroup::{Cgroups, Leaf};
use crate::emptying;
use crate::keeper::report::{Act, KeeperReport, SetupError};
use crate::keeper::tree::kill_strays;
use crate::keeper::{self, Namespaces, Seat};
use crate::layer::Layer;
use crate::profile::Profile;
use crate::sys::process::{
    Patience, Side, Waited, block_signals, default_signals, exit_now, fork_into, new_session, wait_for, wait_ready,
};
use crate::sys::{self, errno_of};
use crate::wire;

struct Service<'a> {
    options: &'a Options,
    server: i32,
    cgroups: Cgroups,
    /// Numbers the leaves.
    made: u32,
    keepers: Vec<Kept>,
}

/// A keeper that was made and has not ended.
struct Kept {
    pid: i32,
    leaf: Option<Leaf>,
    /// Whether the kernel ends what it runs when it is killed.
    in_namespace: bool,
}

/// Serves until the server is gone, then cleans up after everyone.
pub(super) fn run(socket: UnixStream, options: &Options, server: i32) -> ! {
    let ended = catch_unwind(AssertUnwindSafe(|| {
        if settle(&socket).is_err() {
            return;
        }
        let cgroups = Cgroups::of_this_process();
        cgroups.remove_stale(is_alive);
        let mut service = Service {
            options,
            server,
            cgroups,
            made: 0,
            keepers: Vec::new(),
        };
        service.serve(&socket);
        service.close();
    }));
    exit_now(if ended.is_ok() { 0 } else { 70 })
}

/// Cuts what ties this process to the server: terminal, descriptors, signals, environment.
fn settle(socket: &UnixStream) -> io::Result<()> {
    block_signals()?;
    default_signals()?;
    new_session()?;
    sys::null_streams()?;
    sys::keep_only(&[socket.as_fd()])?;
    sys::forget_environment();
    sys::forget_arguments();
    sys::set_name(c"cs-zygote");
    // What a keeper without a namespace of processes runs is left to us when the keeper is killed.
    sys::set_child_subreaper()?;
    sys::set_dumpable(false)
}

impl Service<'_> {
    fn serve(&mut self, socket: &UnixStream) {
        loop {
            let readable = wait_ready(socket.as_fd()).unwrap_or(true);
            self.reap(Patience::Look);
            if !readable {
                continue;
            }
            let Ok(Some(Request { profile })) = wire::receive(socket.as_fd(), &mut Vec::new()) else {
                return;
            };
            let sent = match self.make(profile) {
                Ok((keeper, answer)) => wire::send(socket.as_fd(), &answer, &[keeper.as_fd()]),
                Err(answer) => wire::send(socket.as_fd(), &answer, &[]),
            };
            if sent.is_err() {
                return;
            }
        }
    }

    /// Makes a keeper with the best namespaces to be had.
    fn make(&mut self, profile: Profile) -> Result<(UnixStream, Answer), Answer> {
        profile.check().map_err(Answer::BadProfile)?;
        let (uid, gid) = (sys::effective_uid(), sys::effective_gid());
        if let Some(identity) = profile
            .identity
            .as_ref()
            .filter(|identity| uid != 0 && identity.uid != uid)
        {
            return Err(Answer::Failed(SetupError::OtherUser { uid: identity.uid }));
        }
        let best = match (self.options.namespaces, uid) {
            (false, _) => Namespaces::None("namespaces are turned off".to_owned()),
            (true, 0) => Namespaces::Own,
            (true, _) => Namespaces::User { uid, gid },
        };
        let has_any = !matches!(best, Namespaces::None(_));
        let made = match self.try_make(&profile, best) {
            Err(error) if has_any && error.blames_namespaces() => {
                self.try_make(&profile, Namespaces::None(error.to_string()))
            }
            made => made,
        };
        let (socket, pid, report) = made.map_err(Answer::Failed)?;
        Ok((socket, Answer::Made { pid, report }))
    }

    fn try_make(
        &mut self,
        profile: &Profile,
        namespaces: Namespaces,
    ) -> Result<(UnixStream, i32, KeeperReport), SetupError> {
        let failed = |error: io::Error| SetupError::Act {
            act: Act::Fork,
            errno: errno_of(&error),
        };
        let (server_end, keeper_end) = UnixStream::pair().map_err(failed)?;
        let (mut status, told) = io::pipe().map_err(failed)?;
        self.made += 1;
        // One server may have started more than one zygote.
        let name = format!("{}-{}", std::process::id(), self.made);
        let leaf = self
            .cgroups
            .create(self.server, &name, &profile.limits)
            .map_err(|error| describe(&error));
        let flags = keeper::namespace_flags(profile, &namespaces);
        let pid = match fork_into(flags) {
            Err(error) => {
                leaf.iter().for_each(Leaf::remove);
                return Err(failed(error));
            }
            Ok(Side::Child) => {
                sys::set_name(c"cs-keeper");
                // The rest belongs to the zygote and to keepers to come.
                if sys::keep_only(&[keeper_end.as_fd(), told.as_fd()]).is_err() {
                    exit_now(70);
                }
                let seat = Seat {
                    profile: profile.clone(),
                    namespaces,
                    leaf,
                    socket: keeper_end,
                    runner: self.options.runner,
                };
                keeper::enter(seat, told)
            }
            Ok(Side::Parent { child }) => child,
        };
        drop((keeper_end, told));
        let mut bytes = Vec::new();
        let read = status.read_to_end(&mut bytes);
        let report = match read.map(|_| postcard::from_bytes::<Result<KeeperReport, SetupError>>(&bytes)) {
            Ok(Ok(report)) => report,
            Ok(Err(_)) | Err(_) => Err(SetupError::Died),
        };
        match report {
            Ok(report) => {
                self.keepers.push(Kept {
                    pid,
                    leaf: leaf.ok(),
                    in_namespace: report.layers.contains(&Layer::Pidns),
                });
                Ok((server_end, pid, report))
            }
            Err(error) => {
                let _ = wait_for(pid, Patience::Block);
                leaf.iter().for_each(Leaf::remove);
                Err(error)
            }
        }
    }

    /// Takes ended keepers, ends what they left, and removes their cgroups.
    fn reap(&mut self, patience: Patience) {
        while let Ok(Waited::Ended(ended)) = wait_for(-1, patience) {
            let at = self.keepers.iter().position(|kept| kept.pid == ended.pid);
            let ended = at.map(|at| self.keepers.swap_remove(at));
            if ended.as_ref().is_none_or(|kept| !kept.in_namespace) {
                let others: Vec<i32> = self.keepers.iter().map(|kept| kept.pid).collect();
                kill_strays(&others);
            }
            if let Some(leaf) = ended.and_then(|kept| kept.leaf) {
                leaf.remove();
            }
        }
    }

    /// The keepers end by themselves when the server does; then nothing uses the temporary files any more.
    fn close(&mut self) {
        self.reap(Patience::Block);
        if let Some(base) = &self.options.temp_base {
            let _ = emptying::remove_unlinked(base);
        }
    }
}

fn is_alive(pid: i32) -> bool {
    std::path::Path::new("/proc").join(pid.to_string()).exists()
}

/// An error and its cause in one line; the other side gets only text.
fn describe(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
