//! Starting an agent's process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use countersign_gateway::job::driver::{DriverError, ProcessMark, Terms};
use countersign_sandbox::Identity;
use countersign_sandbox::agent::{self, Confinement, Cover};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;

use super::mark;
use super::place::{Place, ROOMS, SOCKETS};
use super::tree::{MARK, Tree};

/// What every agent of this server has around it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Household {
    /// Whom agents run as; `None` keeps our user, which must not be root then.
    pub identity: Option<Identity>,
    /// Where programs are looked for, by us and by agents.
    pub path: String,
    /// The home of that user, where agents keep their logins and conversations.
    pub home: PathBuf,
    /// For temporary files.
    pub tmp: PathBuf,
    /// What agents must not see: the state directory, the operator's configuration.
    pub hidden: Vec<PathBuf>,
    /// Where agents that outlive us make their sockets, and where we take them to. It survives us, is not among
    /// the hidden, and is best on the file system of `/tmp`, where agents put sockets.
    pub runtime: PathBuf,
}

/// Starts agents.
#[derive(Clone, Debug)]
pub struct Launcher {
    household: Household,
}

/// How we are connected to a process.
#[derive(Debug)]
pub(crate) enum Streams {
    /// All three are pipes, and the process notices when we are gone.
    Piped,
    /// Output is a pipe, input is empty.
    Spoken,
    /// Output is a pipe, input is this text and then its end.
    Given(String),
    /// Output is a pipe, input is what another process writes.
    Fed(OwnedFd),
    /// It listens on a socket of its own and does not notice. Errors go to a file, which outlives us too.
    Detached { errors: Option<File> },
}

/// One process to be started.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The program, as a name or a path, and its arguments.
    pub(crate) command: Vec<String>,
    pub(crate) cwd: PathBuf,
    /// Besides where it is and what marks it.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) mark: String,
    pub(crate) streams: Streams,
    /// Where it may not write, by the kernel's word.
    pub(crate) still: Option<PathBuf>,
}

/// Where an agent may not write under its terms.
pub(crate) fn still(terms: &Terms) -> Option<PathBuf> {
    terms.keeps_still.then(|| terms.cwd.clone())
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ending {
    pub(crate) status: Option<i32>,
    pub(crate) signal: Option<i32>,
}

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) mark: ProcessMark,
    pub(crate) tree: Tree,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) stderr: Option<ChildStderr>,
    /// None while it runs.
    pub(crate) ending: watch::Receiver<Option<Ending>>,
}

impl Launcher {
    pub fn new(household: Household) -> Launcher {
        Launcher { household }
    }

    /// Where agents keep what is theirs.
    pub(crate) fn home(&self) -> &Path {
        &self.household.home
    }

    /// Whether agents can have a sandbox of their own inside what holds them.
    pub(crate) fn agents_can_sandbox(&self) -> bool {
        // Only a cover by Landlock forbids it, and the choice is the same for every agent of a server.
        let mut command = Command::new("true");
        let prepared = agent::prepare(&mut command, &self.confinement("probe", None));
        agent::forget("probe");
        prepared.is_ok_and(|prepared| prepared.held().cover != Cover::Landlock)
    }

    fn confinement(&self, mark: &str, still: Option<&Path>) -> Confinement {
        let sockets = self.household.runtime.join(SOCKETS);
        let hidden = self.household.hidden.iter().chain([&sockets]);
        Confinement {
            identity: self.household.identity.clone(),
            hidden: hidden
                .map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.clone()))
                .collect(),
            read_only: still
                .map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()))
                .into_iter()
                .collect(),
            mark: mark.to_owned(),
        }
    }

    /// What agents must not see is no place to work in, nor is what took the place of the directory that the task was
    /// given for: between then and now somebody may have put a link there.
    fn refuse_other_places(&self, cwd: &Path) -> Result<(), DriverError> {
        let canonical = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let place = canonical(cwd);
        if place != cwd {
            return Err(DriverError::Process(format!(
                "`{}` leads to `{}` by now, which is not where the task was to be done; give it anew",
                cwd.display(),
                place.display()
            )));
        }
        match self
            .household
            .hidden
            .iter()
            .any(|hidden| place.starts_with(canonical(hidden)))
        {
            true => Err(DriverError::Process(format!(
                "`{}` is hidden from agents; let it work elsewhere",
                cwd.display()
            ))),
            false => Ok(()),
        }
    }

    /// Where a program is, by its name or path.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
        let is_program = |path: &Path| {
            use std::os::unix::fs::PermissionsExt;
            fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        if program.contains('/') {
            return Some(PathBuf::from(program)).filter(|path| path.is_absolute() && is_program(path));
        }
        self.household
            .path
            .split(':')
            .filter(|directory| directory.starts_with('/'))
            .map(|directory| Path::new(directory).join(program))
            .find(|path| is_program(path))
    }

    /// What an agent finds in its environment: a place, what it was given, and its mark.
    pub(crate) fn environment(&self, given: &BTreeMap<String, String>, mark: &str) -> BTreeMap<String, String> {
        let household = &self.household;
        let text = |path: &Path| path.display().to_string();
        let mut environment = BTreeMap::from([
            ("PATH".to_owned(), household.path.clone()),
            ("HOME".to_owned(), text(&household.home)),
            ("TMPDIR".to_owned(), text(&household.tmp)),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("SHELL".to_owned(), "/bin/sh".to_owned()),
        ]);
        environment.extend(given.clone());
        environment.insert(MARK.to_owned(), mark.to_owned());
        environment
    }

    /// Places for a process that outlives us: a directory of the agent's user, in which it makes its socket,
    /// and where we take that socket to, out of reach of the agent's own commands.
    pub(crate) fn place(&self, name: &str) -> Result<Place, DriverError> {
        let runtime = &self.household.runtime;
        let make = || -> io::Result<Place> {
            private_directory(runtime, 0o711)?;
            private_directory(&runtime.join(ROOMS), 0o711)?;
            private_directory(&runtime.join(SOCKETS), 0o700)?;
            let place = Place::of(runtime, name);
            private_directory(&place.room, 0o700)?;
            if let Some(identity) = &self.household.identity {
                chown(&place.room, Some(identity.uid), Some(identity.gid))?;
            }
            Ok(place)
        };
        make().map_err(|error| {
            let runtime = runtime.display();
            DriverError::Process(format!("cannot make a place for its socket in `{runtime}`: {error}"))
        })
    }

    /// The place of a process that was started with this name.
    pub(crate) fn place_of(&self, name: &str) -> Place {
        Place::of(&self.household.runtime, name)
    }

    /// Starts a process. It says nothing before it was spoken to, so its mark can be recorded first.
    pub(crate) fn start(&self, launch: Launch) -> Result<Process, DriverError> {
        let failed = |reason: String| DriverError::Process(reason);
        let [program, arguments @ ..] = launch.command.as_slice() else {
            return Err(failed("no command is configured".to_owned()));
        };
        let found = self
            .find(program)
            .ok_or_else(|| failed(format!("`{program}` is no program on `{}`", self.household.path)))?;
        self.refuse_other_places(&launch.cwd)?;
        let mut command = Command::new(found);
        command
            .args(arguments)
            .current_dir(&launch.cwd)
            .env_clear()
            .envs(self.environment(&launch.environment, &launch.mark));
        let mut given = None;
        match launch.streams {
            Streams::Fed(from) => command
                .stdin(Stdio::from(from))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
            Streams::Given(text) => {
                given = Some(text);
                command
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
            }
            Streams::Piped => command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
            Streams::Spoken => command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
            Streams::Detached { errors } => command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(errors.map_or_else(Stdio::null, Stdio::from)),
        };
        let prepared = agent::prepare(&mut command, &self.confinement(&launch.mark, launch.still.as_deref()))
            .map_err(|error| failed(error.to_string()))?;
        if let Some(reason) = &prepared.held().cgroup_missing {
            tracing::debug!(mark = launch.mark, reason, "an agent has no cgroup");
        }
        let mut command = tokio::process::Command::from(command);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Err(failed(prepared.explain(&error))),
        };
        let mark = child.id().and_then(mark::mark_of);
        let Some(mark) = mark else {
            // It can only be found again by its mark; without one it must not stay.
            let _ = child.start_kill();
            return Err(failed("it ended before it could be looked at".to_owned()));
        };
        let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        if let Some((text, mut stdin)) = given.and_then(|text| Some((text, stdin.take()?))) {
            tokio::spawn(async move { stdin.write_all(text.as_bytes()).await });
        }
        Ok(Process {
            tree: Tree::of(&launch.mark, Some(mark.clone())),
            mark,
            stdin,
            stdout,
            stderr,
            ending: watched(child),
        })
    }
}

impl Ending {
    /// Of a process that nobody can ask about any more.
    pub(crate) const UNKNOWN: Ending = Ending {
        status: None,
        signal: None,
    };

    /// Waits for the end of a process.
    pub(crate) async fn of(mut ending: watch::Receiver<Option<Ending>>) -> Ending {
        let found = ending.wait_for(Option::is_some).await;
        found.ok().and_then(|found| *found).unwrap_or(Ending::UNKNOWN)
    }
}

/// Makes a directory of our own; one that is there must be ours, since somebody else could have made it.
fn private_directory(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    match fs::DirBuilder::new().recursive(false).mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(path)?;
            let is_ours =
                found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
            let others = || io::Error::other(format!("`{}` belongs to somebody else", path.display()));
            if is_ours { Ok(()) } else { Err(others()) }
        }
        // What the mask of this process took away is given back: agents pass through.
        made => made.and_then(|()| {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
        }),
    }
}

/// Waits for a child in a task of its own, so that it is noticed whoever looks.
fn watched(mut child: Child) -> watch::Receiver<Option<Ending>> {
    let (tell, ending) = watch::channel(None);
    tokio::spawn(async move {
        use std::os::unix::process::ExitStatusExt;
        let ending = match child.wait().await {
            Ok(status) => Ending {
                status: status.code(),
                signal: status.signal(),
            },
            Err(_) => Ending::UNKNOWN,
        };
        tell.send_replace(Some(ending));
    });
    ending
}

/// What the process of a job is given besides its terms: our endpoint, for agents that ask the environment.
pub(crate) fn with_endpoint(terms: &Terms) -> BTreeMap<String, String> {
    let mut environment = terms.environment.clone();
    if let Some(endpoint) = &terms.endpoint {
        environment.insert("COUNTERSIGN_MCP_URL".to_owned(), endpoint.url.clone());
        environment.insert("COUNTERSIGN_TOKEN".to_owned(), endpoint.token.clone());
    }
    environment
}
