//! Other names of the directories that commands are given, where a file system is mounted a second time.
//!
//! Covers and protections lie on one mount, while Landlock's rules hold on directories wherever they are seen. Whoever
//! reaches a root by its other name would find nothing covered there, so the other name is covered as a whole.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    let mounts = table(&fs::read("/proc/self/mountinfo")?);
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

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    device: Vec<u8>,
    /// What of the file system is mounted.
    root: PathBuf,
    /// Where.
    point: PathBuf,
}

impl Mount {
    /// Where in the file system a path of this mount is.
    fn place_of(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.point).ok()?;
        Some(self.root.join(below).components().collect())
    }
}

/// The table as the kernel writes it: number, parent, device, root and point of each mount, and what is not needed here.
fn table(text: &[u8]) -> Vec<Mount> {
    let of_line = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        Some(Mount {
            id: std::str::from_utf8(fields.next()?).ok()?.parse().ok()?,
            device: fields.nth(1)?.to_vec(),
            root: unescaped(fields.next()?),
            point: unescaped(fields.next()?),
        })
    };
    text.split(|byte| *byte == b'\n').filter_map(of_line).collect()
}

/// Blanks, line ends and backslashes are written as three octal digits.
fn unescaped(mut text: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(text.len());
    while let [first, rest @ ..] = text {
        text = rest;
        match rest {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..] if *first == b'\\' => {
                path.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                text = behind;
            }
            _ => path.push(*first),
        }
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_mounts_is_read_as_the_kernel_writes_it() {
        let text = b"29 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                     44 29 8:1 /home/ana/a\\040b /work\\134x rw - ext4 /dev/sda1 rw\nbroken\n";
        let mounts = table(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[1].id, 44);
        assert_eq!(mounts[1].device, b"8:1");
        assert_eq!(mounts[1].root, Path::new("/home/ana/a b"));
        assert_eq!(mounts[1].point, Path::new("/work\\x"));
        let place = |path: &str| mounts[1].place_of(Path::new(path));
        assert_eq!(place("/work\\x/c"), Some("/home/ana/a b/c".into()));
        assert_eq!(place("/work\\x"), Some("/home/ana/a b".into()));
        assert_eq!(place("/elsewhere"), None);
    }
}
