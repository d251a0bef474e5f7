//! The table of mounts: which part of which file system is where, and by which names a place can be reached.
//!
//! Only what one file system shows twice is known. A file system that shows the files of another one, as an overlay does,
//! is another.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::TABLE;

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) id: u64,
    /// The mount that this one is on.
    parent: u64,
    pub(crate) device: Vec<u8>,
    /// What of the file system is mounted.
    pub(crate) root: PathBuf,
    /// Where.
    pub(crate) point: PathBuf,
}

impl Mount {
    /// Where in the file system a path of this mount is.
    pub(crate) fn place_of(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.point).ok()?;
        Some(join(&self.root, below))
    }
}

/// A part of a file system, with everything below it, and the mount by which it is known.
type Piece<'a> = (&'a Mount, PathBuf);

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Table {
    mounts: Vec<Mount>,
    /// What is mounted right at a path of a mount.
    on: HashMap<(u64, PathBuf), usize>,
    /// The mount that the root directory is on before anything is mounted there. It need not be in the table.
    ground: u64,
}

impl Table {
    /// As it is where this process is.
    pub(crate) fn now() -> io::Result<Table> {
        Ok(Table::parse(&fs::read(TABLE)?))
    }

    /// As the kernel writes it: number, parent, device, root and point of each mount, and what is not needed here.
    pub(crate) fn parse(text: &[u8]) -> Table {
        let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<u64>().ok();
        let of_line = |line: &[u8]| {
            let mut fields = line.split(|byte| *byte == b' ');
            Some(Mount {
                id: number(fields.next()?)?,
                parent: number(fields.next()?)?,
                device: fields.next()?.to_vec(),
                root: unescaped(fields.next()?),
                point: unescaped(fields.next()?),
            })
        };
        let mounts: Vec<Mount> = text.split(|byte| *byte == b'\n').filter_map(of_line).collect();
        let ids: BTreeSet<u64> = mounts.iter().map(|mount| mount.id).collect();
        // The very first mount of a namespace is its own parent.
        let is_first = |mount: &&Mount| mount.parent == mount.id || !ids.contains(&mount.parent);
        let ground = mounts.iter().find(is_first).map_or(0, |mount| mount.parent);
        let numbered = mounts.iter().enumerate();
        let on = numbered
            .filter(|(_, mount)| mount.parent != mount.id)
            .map(|(index, mount)| ((mount.parent, mount.point.clone()), index))
            .collect();
        Table { mounts, on, ground }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.iter()
    }

    /// These places by their own names, and by every other that leads to them or into them.
    pub(crate) fn names(&self, places: &[PathBuf]) -> Vec<PathBuf> {
        let others: BTreeSet<PathBuf> = places.iter().flat_map(|place| self.other_names(place)).collect();
        let others = others.into_iter().filter(|name| !places.contains(name));
        places.iter().cloned().chain(others).collect()
    }

    fn other_names(&self, place: &Path) -> Vec<PathBuf> {
        let pieces = self.pieces(place);
        let shown = |mount: &Mount| -> Vec<PathBuf> {
            // Where a mount itself is, is no other name of it.
            let is_other = |of: &Mount| of.device == mount.device && of.id != mount.id;
            let of_it = pieces.iter().filter(|(of, _)| is_other(of));
            of_it.filter_map(|(_, piece)| name_in(mount, piece)).collect()
        };
        let is_seen = |mount: &Mount, name: &PathBuf| self.at(name).is_some_and(|seen| seen.id == mount.id);
        self.mounts
            .iter()
            .flat_map(|mount| shown(mount).into_iter().filter(move |name| is_seen(mount, name)))
            .filter(|name| name != place)
            .collect()
    }

    /// What a path shows: its part of the mount that it is on, what is mounted below it, and what it showed before
    /// something was mounted over it, which another name may show still.
    fn pieces(&self, path: &Path) -> Vec<Piece<'_>> {
        let mut pieces: Vec<Piece<'_>> = Vec::new();
        for mount in self.way_to(path) {
            pieces.extend(mount.place_of(path).map(|place| (mount, place)));
        }
        let below = self
            .mounts
            .iter()
            .filter(|mount| mount.point.starts_with(path) && mount.point != path);
        let seen = below.filter(|mount| self.at(&mount.point).is_some_and(|seen| seen.id == mount.id));
        pieces.extend(seen.map(|mount| (mount, mount.root.clone())));
        pieces
    }

    /// The mount that a path without links is on.
    fn at(&self, path: &Path) -> Option<&Mount> {
        self.way_to(path).pop()
    }

    /// The mounts that are passed on the way to a path, as the kernel does.
    fn way_to(&self, path: &Path) -> Vec<&Mount> {
        let mut way: Vec<&Mount> = Vec::new();
        let first = self.mounts.iter().find(|mount| mount.id == self.ground);
        way.extend(first);
        let mut here = self.ground;
        let mut parts: Vec<&Path> = path.ancestors().collect();
        parts.reverse();
        for part in parts {
            while let Some(index) = self.on.get(&(here, part.to_owned())) {
                let mount = &self.mounts[*index];
                way.push(mount);
                here = mount.id;
            }
        }
        way
    }
}

/// Where a mount shows a part of its file system: somewhere below, or the mount is a part of it as a whole.
fn name_in(mount: &Mount, piece: &Path) -> Option<PathBuf> {
    match piece.strip_prefix(&mount.root) {
        Ok(below) => Some(join(&mount.point, below)),
        Err(_) => mount.root.starts_with(piece).then(|| mount.point.clone()),
    }
}

/// A path ends without a separator, also where nothing is joined.
fn join(above: &Path, below: &Path) -> PathBuf {
    above.join(below).components().collect()
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
        let Table { mounts, ground, .. } = Table::parse(text);
        assert_eq!((mounts.len(), ground), (2, 1));
        assert_eq!((mounts[1].id, mounts[1].parent), (44, 29));
        assert_eq!(mounts[1].device, b"8:1");
        assert_eq!(mounts[1].root, Path::new("/home/ana/a b"));
        assert_eq!(mounts[1].point, Path::new("/work\\x"));
        let place = |path: &str| mounts[1].place_of(Path::new(path));
        assert_eq!(place("/work\\x/c"), Some("/home/ana/a b/c".into()));
        assert_eq!(place("/work\\x"), Some("/home/ana/a b".into()));
        assert_eq!(place("/elsewhere"), None);
    }

    /// `lines` are number, parent, device, root and point.
    #[track_caller]
    fn check(lines: &[&str], hidden: &str, others: &[&str]) {
        let table = Table::parse(lines.join(" rw - x x rw\n").as_bytes());
        let mut expected: Vec<PathBuf> = vec![hidden.into()];
        expected.extend(others.iter().map(PathBuf::from));
        assert_eq!(table.names(&[hidden.into()]), expected);
    }

    const ROOT: &str = "2 1 8:1 / /";

    #[test]
    fn a_place_has_a_name_wherever_its_file_system_shows_it() {
        check(&[ROOT], "/home/ana/.ssh", &[]);
        // Above, at and below the place.
        check(&[ROOT, "3 2 8:1 /home /data"], "/home/ana/.ssh", &["/data/ana/.ssh"]);
        check(&[ROOT, "3 2 8:1 /home/ana/.ssh /w/s"], "/home/ana/.ssh", &["/w/s"]);
        check(&[ROOT, "3 2 8:1 /home/ana/.ssh/a/b /w/s"], "/home/ana/.ssh", &["/w/s"]);
        // The other way round: what is hidden is what the second mount shows.
        check(
            &[ROOT, "3 2 8:1 /data/home /home"],
            "/home/ana/.ssh",
            &["/data/home/ana/.ssh"],
        );
        check(&[ROOT, "3 2 8:1 / /w/all"], "/state", &["/w/all/state"]);
        // Others are not meant, though they are called alike.
        check(
            &[ROOT, "3 2 8:2 /home /data", "4 2 8:1 /home/anabel /b"],
            "/home/ana",
            &[],
        );
    }

    #[test]
    fn what_is_mounted_in_a_hidden_place_is_hidden_elsewhere_too() {
        let within = [
            ROOT,
            "3 2 8:2 /keys /state/keys",
            "4 2 8:2 / /mnt",
            "5 2 8:2 /keys/a /w/a",
        ];
        check(&within, "/state", &["/mnt/keys", "/w/a"]);
        let nested = [ROOT, "3 2 8:2 / /home", "4 2 8:2 /ana /w/home", "5 4 8:1 /x /w/home/x"];
        check(&nested, "/home/ana/.ssh", &["/w/home/.ssh"]);
    }

    #[test]
    fn only_names_that_lead_there_count() {
        // As where a service has a temporary directory of its own: the other name leads into that one again.
        check(&[ROOT, "3 2 8:1 /tmp/own/tmp /tmp"], "/tmp/c", &[]);
        // Something else is mounted over the other name, or over what is above it.
        let over = [ROOT, "3 2 8:1 /home /data", "4 3 8:9 / /data/ana"];
        check(&over, "/home/ana/.ssh", &[]);
        let above = [ROOT, "3 2 8:1 /home /data/home", "4 2 8:9 / /data"];
        check(&above, "/home/ana/.ssh", &[]);
        // What was mounted over the place itself does not cover its other name.
        let covered = [ROOT, "3 2 8:1 /home /data", "4 2 8:9 / /home/ana/.ssh"];
        check(&covered, "/home/ana/.ssh", &["/data/ana/.ssh"]);
    }

    #[test]
    fn a_root_that_is_no_mount_or_its_own_parent_is_one_to_begin_at() {
        let jailed = ["3 1 8:2 / /home", "4 1 8:2 /ana /w"];
        check(&jailed, "/home/ana/.ssh", &["/w/.ssh"]);
        check(&jailed, "/state", &[]);
        let first = ["1 1 8:1 / /", "2 1 8:1 /home /data"];
        check(&first, "/home/ana", &["/data/ana"]);
    }
}
