//! Working directories: where a call wants to work, and whether it may.
//!
//! The directory is opened first and judged by the canonical path of what was opened; the child
//! enters that same opened directory, so a swap in between changes nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::allowlist::Allowlist;
use super::effective::{Places, SandboxMode};
use crate::error::{ErrorCode, Refusal};

/// A directory that is open, and its canonical path at that moment.
#[derive(Clone, Debug)]
pub struct OpenDirectory {
    pub path: PathBuf,
    pub handle: Arc<OwnedFd>,
}

/// Why a directory could not be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenFailure {
    Missing,
    NotADirectory,
    Refused,
}

/// Port: the file system, as far as policy looks at it.
pub trait Directories: Send + Sync {
    /// Opens a directory, following links, and tells its canonical path.
    fn open(&self, path: &Path) -> Result<OpenDirectory, OpenFailure>;

    /// The directory, at or above a canonical path, that git would take for its own by what lies in it: a bare
    /// repository, or one that a `.git` elsewhere leads to. Not above a worktree.
    fn git_directory(&self, path: &Path) -> Option<PathBuf>;

    /// The links that are followed on the way to where a path leads, each by its canonical place, and where it leads.
    fn links(&self, path: &Path) -> (Vec<PathBuf>, PathBuf);

    /// These places by every name that leads to them or into them now: a file system may be mounted a second time.
    fn names(&self, places: &Arc<[PathBuf]>) -> io::Result<Arc<[PathBuf]>>;
}

/// Where a call will work.
#[derive(Clone, Debug)]
pub struct Place {
    pub cwd: OpenDirectory,
    /// What the call may write below, and read whatever else is readable.
    pub root: PathBuf,
    /// What made it the root.
    pub root_by: RootBy,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RootBy {
    Workspace,
    /// `ALLOWED_CWD_ROOTS`.
    Roots,
    /// There is neither, so it is where the call works.
    Cwd,
    /// A call that names no directory works where the server does, and that is in none of `ALLOWED_CWD_ROOTS`: there is
    /// nothing that it may read or write.
    Outside,
    /// The same in a workspace, which it may read.
    WorkspaceOutside,
    /// The machine's programs are there, and only some of them may be started. What a root opens can be run by the loader, and
    /// these cannot be mounted so that it cannot; so there is nothing more to read than everywhere, and nothing to write.
    Programs,
}

impl Place {
    /// The sandbox of a call that would have this one elsewhere.
    pub fn narrow(&self, sandbox: SandboxMode) -> SandboxMode {
        match (self.root_by, sandbox) {
            (RootBy::Workspace | RootBy::Roots | RootBy::Cwd, sandbox)
            | (_, sandbox @ (SandboxMode::ReadOnly | SandboxMode::DangerFullAccess)) => sandbox,
            (RootBy::Outside | RootBy::WorkspaceOutside | RootBy::Programs, SandboxMode::WorkspaceWrite) => {
                SandboxMode::ReadOnly
            }
        }
    }

    /// The place as it is where this list is in force.
    pub fn under(mut self, list: &Allowlist) -> Self {
        let is_opened = self.root_by != RootBy::Outside;
        if is_opened && *list != Allowlist::Any && is_among_programs(&self.root) {
            self.root_by = RootBy::Programs;
        }
        self
    }

    /// What a call in this sandbox may read below; nothing where it only starts in a directory.
    pub fn opened_root(&self, sandbox: SandboxMode) -> Option<&Path> {
        match (self.root_by, sandbox) {
            (RootBy::Outside | RootBy::Programs, SandboxMode::ReadOnly | SandboxMode::WorkspaceWrite) => None,
            (RootBy::Outside | RootBy::Programs, SandboxMode::DangerFullAccess)
            | (RootBy::Workspace | RootBy::Roots | RootBy::Cwd | RootBy::WorkspaceOutside, _) => Some(&self.root),
        }
    }

    /// Why nothing may be written there that policy would let be written elsewhere, and what to do about it.
    pub fn why_narrow(&self) -> Option<(&'static str, &'static str)> {
        match self.root_by {
            RootBy::Outside | RootBy::WorkspaceOutside => Some((
                "is in none of `ALLOWED_CWD_ROOTS`",
                "give a `cwd` that is in one of them",
            )),
            RootBy::Programs => Some((
                "is where the machine's programs are, of which only those on the list may run",
                "give another `cwd`",
            )),
            RootBy::Workspace | RootBy::Roots | RootBy::Cwd => None,
        }
    }
}

/// Why a call may not work where it wants to, and what says so.
#[derive(Debug)]
pub struct Misplaced {
    pub refusal: Refusal,
    pub by: PlaceRule,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaceRule {
    Workspace,
    /// `ALLOWED_CWD_ROOTS`.
    Roots,
    /// What no command ever sees.
    Hidden,
    /// What others are steered by.
    Steering,
    /// What nothing could confine.
    Boundless,
}

impl PlaceRule {
    fn refuses(self, code: ErrorCode, message: String) -> Misplaced {
        Misplaced {
            refusal: Refusal::new(code, message),
            by: self,
        }
    }
}

impl From<Misplaced> for Refusal {
    fn from(misplaced: Misplaced) -> Self {
        misplaced.refusal
    }
}

/// Whether a path lies in a directory or is it. Comparing bytes first spares nearly all comparing of
/// components, of which a call would do hundreds.
pub fn is_within(path: &Path, directory: &Path) -> bool {
    path.as_os_str()
        .as_encoded_bytes()
        .starts_with(directory.as_os_str().as_encoded_bytes())
        && path.starts_with(directory)
}

/// Directories of the system, which every command may read. What is hidden and lies in one of them has to be covered.
pub const READABLE_BY_ALL: [&str; 10] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
];

/// How deep a directory may lie: each above it is looked at.
const DEPTH_MAX: usize = 256;

/// Finds and judges the working directory of a call.
pub fn settle(places: &Places, cwd: Option<&str>, directories: &dyn Directories) -> Result<Place, Misplaced> {
    let roots = match cwd {
        Some(_) => resolve_roots(places, directories)?,
        None => None,
    };
    let is_named = cwd.is_some();
    let wanted = wanted(places, cwd);
    let cwd = directories
        .open(&wanted)
        .map_err(|failure| not_opened(&wanted, failure))?;
    if cwd.path.components().count() > DEPTH_MAX {
        let message = format!("working directory is not allowed: it lies deeper than {DEPTH_MAX} directories");
        return Err(PlaceRule::Boundless.refuses(ErrorCode::CwdNotAllowed, message));
    }
    let workspace = match &places.workspace_root {
        None => None,
        Some(root) => Some(
            directories
                .open(root)
                .map_err(|failure| unusable_workspace(root, failure))?
                .path,
        ),
    };

    let within_root = match &roots {
        None => None,
        // The narrowest of those that it is in.
        Some(roots) => match roots
            .iter()
            .filter(|root| cwd.path.starts_with(root))
            .max_by_key(|root| root.as_os_str().len())
        {
            Some(root) => Some(root.clone()),
            None => return Err(outside_roots(&cwd.path, roots)),
        },
    };
    if let Some(workspace) = &workspace
        && !cwd.path.starts_with(workspace)
    {
        return Err(outside_workspace(&cwd.path, workspace));
    }
    // Where both hold, the narrower of the two is what may be written.
    let (root, root_by) = match (workspace, within_root) {
        (workspace, None) if !is_named && is_outside_roots(places, &cwd.path, directories) => match workspace {
            Some(workspace) => (workspace, RootBy::WorkspaceOutside),
            None => (cwd.path.clone(), RootBy::Outside),
        },
        (Some(workspace), Some(root)) if !root.starts_with(&workspace) => (workspace, RootBy::Workspace),
        (_, Some(root)) => (root, RootBy::Roots),
        (Some(workspace), None) => (workspace, RootBy::Workspace),
        (None, None) => (cwd.path.clone(), RootBy::Cwd),
    };
    Ok(Place { cwd, root, root_by })
}

/// Where a call wants to work, as it was asked.
pub(crate) fn wanted(places: &Places, cwd: Option<&str>) -> PathBuf {
    let base = places.workspace_root.as_ref().unwrap_or(&places.start);
    cwd.map_or_else(|| base.clone(), |given| base.join(given))
}

fn resolve_roots(places: &Places, directories: &dyn Directories) -> Result<Option<Vec<PathBuf>>, Misplaced> {
    let Some(roots) = &places.cwd_roots else {
        return Ok(None);
    };
    let resolved: Result<Vec<_>, _> = roots
        .iter()
        .map(|root| {
            let absolute = places.start.join(root);
            directories.open(&absolute).map(|open| open.path).map_err(|_| root)
        })
        .collect();
    let resolved = resolved.map_err(|root| {
        let message = format!(
            "`ALLOWED_CWD_ROOTS` names `{}`, which is not a directory that can be resolved; the operator must correct it, \
             calls without `cwd` still work",
            root.display()
        );
        PlaceRule::Roots.refuses(ErrorCode::ConfigurationError, message)
    })?;
    for (root, leads_to) in roots.iter().zip(&resolved) {
        if is_turned(&places.start.join(root), leads_to, &resolved, directories) {
            let message = format!(
                "`ALLOWED_CWD_ROOTS` names `{}`, which leads out of another root by a link that commands there can turn; the \
                 operator must name `{}` itself, calls without `cwd` still work",
                root.display(),
                leads_to.display()
            );
            return Err(PlaceRule::Roots.refuses(ErrorCode::ConfigurationError, message));
        }
    }
    Ok(Some(resolved))
}

/// Whether a link that leads this path out of a root lies in that root: commands could turn it to anywhere, and back while it
/// is looked at.
fn is_turned(path: &Path, leads_to: &Path, roots: &[PathBuf], directories: &dyn Directories) -> bool {
    if path == leads_to {
        return false;
    }
    let (links, end) = directories.links(path);
    let mut left = roots.iter().filter(|root| !leads_to.starts_with(root));
    end != leads_to || left.any(|root| links.iter().any(|link| link.starts_with(root)))
}

/// Whether there are roots, and a directory lies in none of them. One that cannot be resolved has nothing in it.
fn is_outside_roots(places: &Places, cwd: &Path, directories: &dyn Directories) -> bool {
    let Some(roots) = &places.cwd_roots else {
        return false;
    };
    let paths: Vec<PathBuf> = roots.iter().map(|root| places.start.join(root)).collect();
    let opened: Vec<Option<PathBuf>> = paths
        .iter()
        .map(|path| directories.open(path).ok().map(|open| open.path))
        .collect();
    let resolved: Vec<PathBuf> = opened.iter().flatten().cloned().collect();
    let holds = |(path, leads_to): (&PathBuf, &Option<PathBuf>)| {
        let leads_to = leads_to.as_ref().filter(|it| cwd.starts_with(it));
        leads_to.is_some_and(|leads_to| !is_turned(path, leads_to, &resolved, directories))
    };
    !paths.iter().zip(&opened).any(holds)
}

fn not_opened(path: &Path, failure: OpenFailure) -> Misplaced {
    let shown = path.display();
    let (code, message) = match failure {
        OpenFailure::Missing => (
            ErrorCode::CwdNotFound,
            format!("working directory `{shown}` does not exist"),
        ),
        OpenFailure::NotADirectory => (ErrorCode::CwdNotFound, format!("`{shown}` is not a directory")),
        OpenFailure::Refused => (
            ErrorCode::CwdNotAllowed,
            format!("working directory `{shown}` cannot be opened by the server"),
        ),
    };
    PlaceRule::Workspace.refuses(code, message)
}

fn unusable_workspace(root: &Path, failure: OpenFailure) -> Misplaced {
    let why = match failure {
        OpenFailure::Missing => "does not exist",
        OpenFailure::NotADirectory => "is not a directory",
        OpenFailure::Refused => "cannot be opened by the server",
    };
    PlaceRule::Workspace.refuses(
        ErrorCode::ConfigurationError,
        format!(
            "`workspace_root` `{}` {why}; the operator must correct it",
            root.display()
        ),
    )
}

fn outside_roots(path: &Path, roots: &[PathBuf]) -> Misplaced {
    let list: Vec<_> = roots.iter().map(|root| format!("`{}`", root.display())).collect();
    let why = match list.as_slice() {
        [] => "`ALLOWED_CWD_ROOTS` names no directory; calls without `cwd` still work".to_owned(),
        list => format!("it is outside {}", list.join(" and ")),
    };
    let message = format!("working directory `{}` is not allowed: {why}", path.display());
    PlaceRule::Roots.refuses(ErrorCode::CwdNotAllowed, message)
}

fn outside_workspace(path: &Path, workspace: &Path) -> Misplaced {
    let message = format!(
        "working directory `{}` is outside the workspace `{}`; use a directory inside it",
        path.display(),
        workspace.display()
    );
    PlaceRule::Workspace.refuses(ErrorCode::WorkspaceIsolationViolation, message)
}

/// Refuses to work where commands and agents must not look, by whatever name.
pub fn check_hidden(place: &Place, hidden: &Arc<[PathBuf]>, directories: &dyn Directories) -> Result<(), Misplaced> {
    let names = directories.names(hidden).map_err(|error| not_looked_up(&error))?;
    check_outside(place, &names)
}

/// What is said where nobody knows by which names something can be reached.
pub fn not_looked_up(error: &io::Error) -> Misplaced {
    let message = format!("what is mounted cannot be looked up, so nothing could be hidden from the command: {error}");
    PlaceRule::Hidden.refuses(ErrorCode::SandboxUnavailable, message)
}

/// The same for names that are known.
pub fn check_outside(place: &Place, names: &[PathBuf]) -> Result<(), Misplaced> {
    match names
        .iter()
        .find(|path| is_within(&place.root, path) || is_within(&place.cwd.path, path))
    {
        None => Ok(()),
        Some(path) => {
            let message = format!(
                "working directory `{}` is inside `{}`, which commands and agents never see",
                place.cwd.path.display(),
                path.display()
            );
            Err(PlaceRule::Hidden.refuses(ErrorCode::CwdNotAllowed, message))
        }
    }
}

/// A directory whose files steer programs that others run later, outside of every sandbox: git's own, and ours.
/// Inside a root they are kept as they are; a root that is one of them, or lies in one, would be written to freely.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Steering {
    /// By its name, `.git` or `.countersign`.
    Named(PathBuf),
    /// By what lies in it.
    Git(PathBuf),
}

impl Steering {
    const NAMES: [&str; 2] = [".git", ".countersign"];

    /// What of the kind a canonical path is or lies in; `git_directory` as [`Directories::git_directory`].
    pub fn around(path: &Path, git_directory: impl FnOnce(&Path) -> Option<PathBuf>) -> Option<Self> {
        let is_named = |part: &&Path| {
            part.file_name()
                .is_some_and(|name| Self::NAMES.iter().any(|it| name == *it))
        };
        // The outermost: what is above that is where people work.
        match path.ancestors().filter(is_named).last() {
            Some(named) => Some(Self::Named(named.to_owned())),
            None => git_directory(path).map(Self::Git),
        }
    }

    /// What is wrong with working there.
    pub fn reason(&self) -> String {
        match self {
            Self::Named(place) => format!("what is in `{}` steers what others run", place.display()),
            Self::Git(place) => format!(
                "`{}` is a directory of git's own, and what is in it steers what others run",
                place.display()
            ),
        }
    }

    /// What whoever wanted to work there hears.
    pub fn refusal(&self, cwd: &Path) -> Refusal {
        let instead = match self {
            Self::Named(place) => format!("work in `{}`", place.parent().unwrap_or(place).display()),
            Self::Git(_) => "work in a worktree or a clone of it".to_owned(),
        };
        let message = format!(
            "working directory `{}` is not allowed: it would be writable, and {}; {instead}, or with `sandbox` `read-only`",
            cwd.display(),
            self.reason(),
        );
        Refusal::new(ErrorCode::CwdNotAllowed, message)
    }
}

/// Refuses to let commands write among what steers others.
pub fn check_writable(place: &Place, directories: &dyn Directories) -> Result<(), Misplaced> {
    let Some(steering) = Steering::around(&place.root, |path| directories.git_directory(path)) else {
        return Ok(());
    };
    let (root, reason) = (place.root.display(), steering.reason());
    Err(match place.root_by {
        RootBy::Workspace => PlaceRule::Workspace.refuses(
            ErrorCode::ConfigurationError,
            format!("`workspace_root` `{root}` cannot be written to: {reason}; the operator must correct it"),
        ),
        RootBy::Roots => PlaceRule::Roots.refuses(
            ErrorCode::ConfigurationError,
            format!(
                "`ALLOWED_CWD_ROOTS` names `{root}`, which cannot be written to: {reason}; the operator must correct it"
            ),
        ),
        RootBy::Cwd | RootBy::Outside | RootBy::WorkspaceOutside | RootBy::Programs => {
            not_among(&place.root, &steering)
        }
    })
}

/// A root that no sandbox could hold commands to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Boundless {
    /// `/`: whoever reads or writes below it reads or writes everything, the state directory and terminals included.
    System,
    /// Devices, and what the kernel shows of processes and of itself.
    Kernel,
}

/// Where a machine has its programs.
#[rustfmt::skip]
const PROGRAM_DIRECTORIES: [&str; 11] = [
    "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/libexec", "/usr/games", "/usr/local/bin", "/usr/local/sbin", "/usr/local/libexec",
    "/usr/local/games", "/nix/store",
];

/// Whether a canonical path is a directory of programs, lies in one or holds one.
pub fn is_among_programs(root: &Path) -> bool {
    let mut directories = PROGRAM_DIRECTORIES.iter().map(Path::new);
    directories.any(|directory| root.starts_with(directory) || directory.starts_with(root))
}

impl Boundless {
    /// Shared memory lies among the devices and holds files like any other.
    const SHARED_MEMORY: &str = "/dev/shm";

    /// What of the kind a canonical path is, for commands in this sandbox.
    pub fn of(root: &Path, sandbox: SandboxMode) -> Option<Self> {
        let is_kernels = ["/proc", "/dev", "/sys"]
            .iter()
            .any(|kernels| root.starts_with(kernels));
        if sandbox == SandboxMode::DangerFullAccess {
            None
        } else if root == Path::new("/") {
            Some(Self::System)
        } else if is_kernels && !root.starts_with(Self::SHARED_MEMORY) {
            Some(Self::Kernel)
        } else {
            None
        }
    }

    /// What is wrong with such a root.
    pub fn reason(self) -> &'static str {
        match self {
            Self::System => {
                "no command may work in it, since it holds the whole system, with the record and what commands must never see"
            }
            Self::Kernel => "there are no files but devices and the kernel's own",
        }
    }

    /// What the operator does about it.
    pub fn remedy() -> &'static str {
        "set `workspace_root` in the operator's file to the directory to work in"
    }
}

/// Refuses to work where nothing could confine a command.
pub fn check_bounds(place: &Place, sandbox: SandboxMode) -> Result<(), Misplaced> {
    // There nothing is opened.
    let is_opened = place.root_by != RootBy::Outside;
    let Some(boundless) = Boundless::of(&place.root, sandbox).filter(|_| is_opened) else {
        return Ok(());
    };
    let (root, reason) = (place.root.display(), boundless.reason());
    Err(match place.root_by {
        RootBy::Workspace | RootBy::WorkspaceOutside => {
            let message = format!("the workspace is `{root}`, and {reason}; {}", Boundless::remedy());
            PlaceRule::Workspace.refuses(ErrorCode::ConfigurationError, message)
        }
        RootBy::Roots => PlaceRule::Roots.refuses(
            ErrorCode::ConfigurationError,
            format!("`ALLOWED_CWD_ROOTS` names `{root}`, and {reason}; the operator must correct it"),
        ),
        RootBy::Cwd | RootBy::Outside | RootBy::Programs => {
            let instead = match boundless {
                Boundless::System => "use one inside it",
                Boundless::Kernel => "use another",
            };
            PlaceRule::Boundless.refuses(
                ErrorCode::CwdNotAllowed,
                format!("working directory `{root}` is not allowed: {reason}; {instead}"),
            )
        }
    })
}

/// Refuses to let an agent work among what steers others, wherever the root is: its own sandbox begins where it works.
pub fn check_cwd(place: &Place, directories: &dyn Directories) -> Result<(), Misplaced> {
    match Steering::around(&place.cwd.path, |path| directories.git_directory(path)) {
        Some(steering) => Err(not_among(&place.cwd.path, &steering)),
        None => Ok(()),
    }
}

fn not_among(cwd: &Path, steering: &Steering) -> Misplaced {
    Misplaced {
        refusal: steering.refusal(cwd),
        by: PlaceRule::Steering,
    }
}
