//! Keepers, kept: making one costs milliseconds, so those that ended a call well wait for the next
//! call of the same profile. A keeper serves one call at a time, and the one that waited longest is next:
//! after a call a keeper tidies up behind its answer, and a client that asks at once need not wait for
//! that. So a profile that is used gets a second keeper in time.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use countersign_gateway::policy::effective::Layer;
use countersign_sandbox::directory::Seen;
use countersign_sandbox::mounted::Mounted;
use countersign_sandbox::{Identity, Profile, Zygote, ZygoteError, directory};
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::existing::Existing;
use crate::homes::Inhabited;
use crate::profile::{self, Unseen};
use crate::running::Emptied;
use crate::temporary::{PRIVATE, Temporaries, Temporary, TemporaryError, remove_default_rights_at};

/// Keepers that wait for work, over all profiles.
const IDLE_MAX: usize = 16;
/// How long a keeper that is not needed at once stays away.
const REST: Duration = Duration::from_millis(2);
/// A profile that has served this many calls gets a second keeper.
const SECOND_AFTER: usize = 4;
/// Profiles that are remembered though none of their keepers waits.
const PROFILES_MAX: usize = 64;

/// Where private directories are made.
#[derive(Clone, Debug)]
pub struct Directories {
    /// One home per workspace and user, kept between calls.
    pub homes: PathBuf,
    /// One temporary directory per keeper, emptied after each call; gone with the server.
    pub temporary: Temporaries,
    /// Homes that lie in a directory which every command may read, and are not read for that.
    pub closed: Vec<PathBuf>,
}

/// Why the sandbox could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("cannot make the private directory `{}`", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot make a temporary directory")]
    Temporary(#[from] TemporaryError),
    #[error("cannot make a sandbox")]
    Keeper(#[source] ZygoteError),
    #[error("cannot talk to the sandbox")]
    Socket(#[source] io::Error),
    #[error("something was mounted or unmounted while the sandbox was being made")]
    Mounted,
    #[error("cannot look up what is mounted")]
    Mounts(#[source] io::Error),
}

/// A keeper and what belongs to it.
pub(crate) struct Keeper {
    pub(crate) line: Line,
    pub(crate) report: countersign_sandbox::KeeperReport,
    /// The layers of the report, in the gateway's words.
    pub(crate) layers: Vec<Layer>,
    pub(crate) home: PathBuf,
    pub(crate) tmp: Temporary,
    profile: Arc<Profile>,
    /// The pool's when it was made.
    generation: u64,
    /// None where the home cannot be locked.
    _inhabited: Option<Inhabited>,
}

/// The socket to a keeper, watched for what it answers only: room for what we say, which there always is,
/// would wake us each time the keeper has read something. What tokio has for that is the end of a pipe; reading
/// is all it does, and to read a socket is the same call.
pub(crate) struct Line(pipe::Receiver);

impl Line {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        pipe::Receiver::from_owned_fd_unchecked(socket.into()).map(Self)
    }

    /// Adds what the keeper says next; nothing when it is gone.
    pub(crate) async fn read(&mut self, inbox: &mut Vec<u8>) -> io::Result<usize> {
        self.0.read_buf(inbox).await
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The keepers of one profile that wait, oldest first.
#[derive(Default)]
struct Idle {
    keepers: VecDeque<Keeper>,
    /// Calls served so far; enough of them ask for a second keeper.
    served: usize,
}

pub(crate) struct Pool {
    zygote: Zygote,
    /// The times it was made anew that were told of.
    renewals_told: AtomicU64,
    mounted: Mounted,
    /// Of what is mounted, as the keepers that wait see it. Those of an earlier one see what was there before.
    generation: AtomicU64,
    directories: Directories,
    /// The directories in which those of commands lie. A command sees its own ones only.
    private: Arc<[PathBuf]>,
    existing: Existing,
    next: AtomicU64,
    idle: Mutex<HashMap<Arc<Profile>, Idle>>,
}

impl Pool {
    pub(crate) fn new(zygote: Zygote, directories: Directories) -> Self {
        Self {
            zygote,
            renewals_told: AtomicU64::new(0),
            mounted: Mounted::watch(),
            generation: AtomicU64::new(0),
            private: std::iter::once(directories.homes.clone())
                .chain(directories.temporary.shared())
                .collect(),
            directories,
            existing: Existing::default(),
            next: AtomicU64::new(0),
            idle: Mutex::default(),
        }
    }

    pub(crate) fn closed(&self) -> &[PathBuf] {
        &self.directories.closed
    }

    /// A keeper for a profile: one that waits, or a new one.
    pub(crate) async fn take(self: &Arc<Self>, profile: Profile, unseen: Unseen) -> Result<Keeper, StartError> {
        let generation = self.mounted.generation();
        if self.generation.swap(generation, Ordering::Relaxed) != generation {
            let outdated = std::mem::take(&mut *self.idle());
            drop(outdated);
        }
        if generation != unseen.generation {
            return Err(StartError::Mounted);
        }
        let waiting = self.idle().get_mut(&profile).and_then(|idle| {
            let keeper = idle.keepers.pop_front()?;
            idle.served += 1;
            Some((keeper, idle.served == SECOND_AFTER && idle.keepers.is_empty()))
        });
        if let Some((keeper, wants_second)) = waiting {
            if wants_second {
                self.make_second(profile, unseen);
            }
            return Ok(keeper);
        }
        let pool = self.clone();
        let made = tokio::task::spawn_blocking(move || pool.make(profile, &unseen)).await;
        made.map_err(|_| StartError::Socket(io::Error::other("the maker of sandboxes died")))?
    }

    /// Takes a keeper back once the call's own answer is on its way. While another waits this one is not needed
    /// at once, and a client that asks again right away need not wait until its directory was looked through, nor until
    /// the streams of the last call are closed.
    pub(crate) fn give_back_soon(self: &Arc<Self>, keeper: Keeper, emptied: Option<Emptied>) {
        let pool = self.clone();
        tokio::spawn(async move {
            let another_waits = pool
                .idle()
                .get(&keeper.profile)
                .is_some_and(|idle| !idle.keepers.is_empty());
            if another_waits {
                tokio::time::sleep(REST).await;
            } else {
                tokio::task::yield_now().await;
            }
            drop(emptied);
            pool.give_back(keeper);
        });
    }

    /// Takes back a keeper whose call ended well, once its temporary directory is empty. A command may
    /// have left any number of files there, so removing them is not the business of the thread that
    /// runs everything.
    pub(crate) fn give_back(self: &Arc<Self>, keeper: Keeper) {
        if keeper.tmp.restore().is_err() {
            return Self::discard(keeper);
        }
        if keeper.tmp.is_empty().unwrap_or(false) {
            return self.keep(keeper);
        }
        let pool = self.clone();
        tokio::task::spawn_blocking(move || {
            if keeper.tmp.empty().is_ok() {
                pool.keep(keeper);
            }
        });
    }

    /// Lets go of a keeper that is of no more use. What its command left goes with it, and may be any number of files,
    /// so that is not the business of the thread that runs everything either.
    pub(crate) fn discard(keeper: Keeper) {
        let Keeper { line, tmp, .. } = keeper;
        drop(line);
        tokio::task::spawn_blocking(move || drop(tmp));
    }

    /// Makes another keeper beside the call that noticed the want of one.
    fn make_second(self: &Arc<Self>, profile: Profile, unseen: Unseen) {
        let pool = self.clone();
        tokio::task::spawn_blocking(move || {
            if let Ok(keeper) = pool.make(profile, &unseen) {
                pool.keep(keeper);
            }
        });
    }

    /// Has a keeper wait for the next call. Where too many wait, one of another profile goes, or this one.
    fn keep(&self, keeper: Keeper) {
        let leaving = self.make_room_and_keep(keeper);
        // Without the lock: a keeper goes with its temporary directory.
        drop(leaving);
    }

    /// Gives the keeper that found no room.
    fn make_room_and_keep(&self, keeper: Keeper) -> Option<Keeper> {
        if keeper.generation != self.generation.load(Ordering::Relaxed) {
            return Some(keeper);
        }
        let mut idle = self.idle();
        let is_full = idle.values().map(|idle| idle.keepers.len()).sum::<usize>() >= IDLE_MAX;
        let mut leaving = None;
        if is_full {
            let others = idle.iter_mut().filter(|(profile, _)| **profile != keeper.profile);
            leaving = others.map(|(_, idle)| idle).find_map(|idle| idle.keepers.pop_front());
            if leaving.is_none() {
                return Some(keeper);
            }
        }
        idle.entry(keeper.profile.clone())
            .or_default()
            .keepers
            .push_back(keeper);
        if idle.len() > PROFILES_MAX {
            idle.retain(|_, idle| !idle.keepers.is_empty());
        }
        leaving
    }

    /// Lets go of the keepers made like this one: what made it useless happened to them too.
    pub(crate) fn forget_like(&self, keeper: &Keeper) {
        let forgotten = self.idle().remove(&keeper.profile);
        drop(forgotten);
    }

    pub(crate) fn can_make_keepers(&self) -> bool {
        let can = self.zygote.is_there();
        self.tell_of_renewals();
        can
    }

    /// How often the zygote was made anew.
    pub(crate) fn renewals(&self) -> u64 {
        self.zygote.renewals()
    }

    fn tell_of_renewals(&self) {
        let made = self.renewals();
        if self.renewals_told.swap(made, Ordering::Relaxed) < made {
            tracing::warn!(
                times = made,
                "the process that makes sandboxes (`cs-zygote`) was gone, or did not answer; a new one has its place"
            );
        }
    }

    fn make(&self, profile: Profile, unseen: &Unseen) -> Result<Keeper, StartError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let temporary = &self.directories.temporary;
        let tmp = temporary.add(format!("tmp-{number}"), profile.identity.as_ref())?;
        let home = self.directories.homes.join(home_name(&profile));
        let inhabited = Inhabited::enter(&home, || private_directory(&home, profile.identity.as_ref()).map(drop))?;
        let mut complete = Profile {
            home: Some(home.clone()),
            tmp: Some(tmp.path.clone()),
            ..profile.clone()
        };
        let seen_tmp = tmp.seen().map_err(|error| not_made(&tmp.path, error))?;
        complete.seen.push(seen_tmp);
        complete.seen.push(seen(&home, unlinked(&home)?.as_fd())?);
        let handle = self.zygote.keeper(&complete).map_err(StartError::Keeper);
        self.tell_of_renewals();
        let handle = handle?;
        // What was mounted meanwhile may or may not be seen there.
        if !self.is_all(unseen).map_err(StartError::Mounts)? {
            return Err(StartError::Mounted);
        }
        Ok(Keeper {
            line: Line::new(handle.socket).map_err(StartError::Socket)?,
            layers: profile::layers(&handle.report.layers),
            report: handle.report,
            _inhabited: inhabited,
            home,
            tmp,
            profile: Arc::new(profile),
            generation: unseen.generation,
        })
    }

    /// What commands must not see, and by which names they could now.
    pub(crate) fn unseen(&self, hidden: &Arc<[PathBuf]>) -> io::Result<Unseen> {
        // First: of what is mounted meanwhile the names may or may not be among these.
        let generation = self.mounted.generation();
        let names = self.mounted.names(hidden)?;
        Ok(Unseen {
            generation,
            existing: self.existing.of(&names),
            hidden: names,
            private: self.mounted.names(&self.private)?,
            places: hidden.clone(),
        })
    }

    /// Whether these are still the names, after a look at the whole table.
    fn is_all(&self, unseen: &Unseen) -> io::Result<bool> {
        self.mounted.read_anew()?;
        let now = self.unseen(&unseen.places)?;
        Ok(now.hidden == unseen.hidden && now.private == unseen.private)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<Profile>, Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Workspaces do not share a home, nor do users.
fn home_name(profile: &Profile) -> String {
    let mut digest = Sha256::new();
    for root in &profile.roots {
        digest.update(root.as_os_str().as_encoded_bytes());
        digest.update([0]);
    }
    let hash: String = digest
        .finalize()
        .iter()
        .take(12)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    match &profile.identity {
        Some(identity) => format!("{hash}-{}", identity.uid),
        None => hash,
    }
}

/// Makes a directory, or takes the one that is there, and gives it to its user. No link leads to it, neither now nor when
/// it is given away.
fn private_directory(path: &Path, identity: Option<&Identity>) -> Result<OwnedFd, StartError> {
    // What commands of the same user say of rights to directories that are made later, and of this one.
    if let Some(around) = path.parent() {
        remove_default_rights_at(around).map_err(|error| not_made(around, error))?;
    }
    match fs::DirBuilder::new().mode(PRIVATE).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(not_made(path, error)),
    }
    let opened = unlinked(path)?;
    let found = fs::metadata(itself(&opened)).map_err(|error| not_made(path, error))?;
    if found.permissions().mode() & 0o777 != PRIVATE {
        let private = fs::Permissions::from_mode(PRIVATE);
        fs::set_permissions(itself(&opened), private).map_err(|error| not_made(path, error))?;
    }
    if let Some(identity) = identity {
        let (uid, gid) = (Some(identity.uid), Some(identity.gid));
        std::os::unix::fs::chown(itself(&opened), uid, gid).map_err(|error| not_made(path, error))?;
    }
    Ok(opened)
}

fn unlinked(path: &Path) -> Result<OwnedFd, StartError> {
    directory::open_unlinked(path).map_err(|error| not_made(path, error))
}

fn seen(path: &Path, opened: BorrowedFd<'_>) -> Result<Seen, StartError> {
    Seen::of(path, opened).map_err(|error| not_made(path, error))
}

/// A path that leads to what was opened, whatever has its name by now.
fn itself(opened: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", opened.as_raw_fd()).into()
}

fn not_made(path: &Path, source: io::Error) -> StartError {
    StartError::Directory {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use countersign_sandbox::{Limits, Mode, Network, Options};

    use super::*;

    /// What no keeper can be made of.
    fn nonsense() -> Profile {
        Profile {
            mode: Mode::WorkspaceWrite,
            network: Network::Deny,
            identity: None,
            roots: vec!["relative".into()],
            read_paths: vec![],
            masked: vec![],
            protected: vec![],
            barred: vec![],
            exec_list: false,
            closed: Vec::new(),
            noexec: countersign_sandbox::NoExec::Nothing,
            home: None,
            tmp: None,
            seen: Vec::new(),
            limits: Limits {
                memory_bytes: None,
                cpu_millicores: None,
                pids: None,
                file_bytes: None,
                open_files: 64,
            },
            require: vec![],
        }
    }

    #[test]
    fn a_keeper_that_cannot_be_made_leaves_no_temporary_directory() {
        let base = tempfile::tempdir().unwrap();
        let uid = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap());
        let directories = Directories {
            homes: base.path().join("homes"),
            temporary: Temporaries::make(&base.path().canonicalize().unwrap(), uid).unwrap(),
            closed: Vec::new(),
        };
        fs::create_dir(&directories.homes).unwrap();
        let zygote = Zygote::start(Options {
            temp_base: None,
            namespaces: false,
            runner: None,
        });
        let pool = Pool::new(zygote.unwrap(), directories.clone());
        let nothing: Arc<[PathBuf]> = Arc::new([]);
        let unseen = pool.unseen(&nothing).unwrap();
        assert!(matches!(pool.make(nonsense(), &unseen), Err(StartError::Keeper(_))));
        assert_eq!(fs::read_dir(directories.temporary.path()).unwrap().count(), 0);
    }
}
