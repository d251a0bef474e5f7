//! Working directories: where a call wants to work, and whether it may.
//!
//! The directory is opened first and judged by the canonical path of what was opened; the child
//! enters that same opened directory, so a swap in between changes nothing.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::effective::Places;
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
}

/// Where a call will work.
#[derive(Clone, Debug)]
pub struct Place {
    pub cwd: OpenDirectory,
    /// What the call may write below, and read whatever else is readable.
    pub root: PathBuf,
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

/// Finds and judges the working directory of a call.
pub fn settle(places: &Places, cwd: Option<&str>, directories: &dyn Directories) -> Result<Place, Misplaced> {
    let roots = match cwd {
        Some(_) => resolve_roots(places, directories)?,
        None => None,
    };
    let wanted = match (cwd, &places.workspace_root) {
        (Some(given), base) => base.as_ref().unwrap_or(&places.start).join(given),
        (None, Some(root)) => root.clone(),
        (None, None) => places.start.clone(),
    };
    let cwd = directories
        .open(&wanted)
        .map_err(|failure| not_opened(&wanted, failure))?;
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
        Some(roots) => match roots.iter().find(|root| cwd.path.starts_with(root)) {
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
    let root = match (workspace, within_root) {
        (Some(workspace), Some(root)) => {
            if root.starts_with(&workspace) {
                root
            } else {
                workspace
            }
        }
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => cwd.path.clone(),
    };
    Ok(Place { cwd, root })
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
    resolved.map(Some).map_err(|root| {
        let message = format!(
            "`ALLOWED_CWD_ROOTS` names `{}`, which is not a directory that can be resolved; the operator must correct it, \
             calls without `cwd` still work",
            root.display()
        );
        PlaceRule::Roots.refuses(ErrorCode::ConfigurationError, message)
    })
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

/// Refuses to work where commands and agents must not look.
pub fn check_hidden(place: &Place, hidden: &[PathBuf]) -> Result<(), Misplaced> {
    match hidden
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
