//! Other names of the directories that commands are given, where a file system is mounted a second time.
//!
//! Covers and protections lie on one mount, while Landlock's rules hold on directories wherever they are seen. Whoever
//! reaches a root by its other name would find nothing covered there, so the other name is covered as a whole.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::mounted::table::{Mount, Table};
use crate::opened::Opened;
use crate::profile::Profile;
use crate::sys;

/// What is known of other names.
#[derive(Default)]
pub(super) struct Aliases {
    /// To be covered.
    pub(super) found: Vec<PathBuf>,
    /// A directory that lies in its own other name, which therefore cannot be covered.
    pub(super) around: Option<PathBuf>,
}

/// Looks for other names in the table of mounts.
pub(super) fn of(profile: &Profile, opened: &Opened) -> io::Result<Aliases> {
    let mounts = Table::now()?;
    let mut aliases = Aliases::default();
    for path in profile.private_and_roots() {
        let Some(itself) = opened.get(path) else { continue };
        let id = sys::mounts::mount_id(itself.as_fd())?;
        let Some(own) = mounts.iter().find(|mount| mount.id == id) else {
            continue;
        };
        let others = mounts
            .iter()
            .filter(|other| other.id != id && other.device == own.device);
        for name in others.filter_map(|other| other_name(profile, path, own, other)) {
            let (known, found) = (itself.metadata()?, fs::symlink_metadata(&name));
            let is_shown =
                found.is_ok_and(|it| is_inside(path, &name) || (it.dev(), it.ino()) == (known.dev(), known.ino()));
            if path.starts_with(&name) && path != name && is_shown {
                aliases.around.get_or_insert_with(|| path.to_owned());
            } else if path != name && is_shown && !aliases.found.contains(&name) {
                aliases.found.push(name);
            }
        }
    }
    Ok(aliases)
}

fn is_inside(path: &Path, name: &Path) -> bool {
    name.starts_with(path) && name != path
}

/// Where another mount shows a directory, or inside of it something again that is covered or protected.
fn other_name(profile: &Profile, path: &Path, own: &Mount, other: &Mount) -> Option<PathBuf> {
    let place = own.place_of(path)?;
    if let Ok(below) = place.strip_prefix(&other.root) {
        return Some(other.point.join(below).components().collect());
    }
    let kept = profile.protected.iter().chain(&profile.masked);
    let mut kept = kept.filter_map(|kept| own.place_of(kept));
    let shows = kept.any(|kept| kept.starts_with(&other.root) || other.root.starts_with(&kept));
    let is_again = other.root.starts_with(&place) && is_inside(path, &other.point);
    (is_again && shows).then(|| other.point.clone())
}
