//! Where the socket of a process is that outlives us, and what it wrote to nobody.
//!
//! The process makes its socket in a room of its own user's. We may be root, and everything in that room, and every place
//! that a link in it names, is what the agent says it is: nothing there is moved or read on its word.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use countersign_sandbox::emptying;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, linkat, openat, unlinkat};

pub(super) const ROOMS: &str = "rooms";
pub(super) const SOCKETS: &str = "sockets";

/// The places of one process.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// A directory of the agent's user.
    pub(crate) room: PathBuf,
    /// Where we listen to it; hidden from agents.
    pub(crate) socket: PathBuf,
    /// Where its errors go; hidden as well.
    errors: PathBuf,
}

impl Place {
    pub(super) fn of(runtime: &Path, name: &str) -> Place {
        let hidden = runtime.join(SOCKETS);
        Place {
            room: runtime.join(ROOMS).join(name),
            socket: hidden.join(name),
            errors: hidden.join(format!("{name}.errors")),
        }
    }

    /// A file for what it writes to nobody.
    pub(crate) fn errors(&self) -> Option<File> {
        File::create(&self.errors).ok()
    }

    /// What it wrote to nobody, or the end of it.
    pub(crate) fn last_words(&self, bytes_max: u64) -> String {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(&self.errors)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
            let mut end = Vec::new();
            file.take(bytes_max).read_to_end(&mut end)?;
            Ok(end)
        };
        String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
    }

    /// Takes the socket that this user's process made away to where it is hidden. Nothing else is taken: the very file
    /// that was looked at gets its new place, and loses the old one in the directory that was opened then.
    pub(crate) fn take(&self, made: &Path, user: u32) -> io::Result<()> {
        let (Some(parent), Some(name)) = (made.parent(), made.file_name()) else {
            return Ok(());
        };
        let opened = |flags: OFlags| flags | OFlags::PATH | OFlags::CLOEXEC;
        let parent = openat(CWD, parent, opened(OFlags::DIRECTORY), Mode::empty())?;
        let found = openat(&parent, name, opened(OFlags::NOFOLLOW), Mode::empty())?;
        let what = fstat(&found)?;
        if FileType::from_raw_mode(what.st_mode) != FileType::Socket || what.st_uid != user {
            return Err(io::Error::other("it is no socket of the agent's own"));
        }
        match fs::remove_file(&self.socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let it = format!("/proc/self/fd/{}", found.as_raw_fd());
        linkat(CWD, it, CWD, &self.socket, AtFlags::SYMLINK_FOLLOW)?;
        Ok(unlinkat(&parent, name, AtFlags::empty())?)
    }

    /// Removes all of it, with what the process left in its room.
    pub(crate) fn forget(&self) {
        for file in [&self.socket, &self.errors] {
            let _ = fs::remove_file(file);
        }
        if let Err(error) = emptying::remove(&self.room) {
            tracing::debug!(room = %self.room.display(), %error, "the directory of an agent's socket stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn only_a_socket_of_the_agents_own_is_taken() {
        let runtime = tempfile::tempdir().unwrap();
        let place = Place::of(runtime.path(), "it");
        fs::create_dir_all(&place.room).unwrap();
        fs::create_dir(runtime.path().join(SOCKETS)).unwrap();
        let own = fs::metadata(runtime.path()).unwrap().uid();
        let made = place.room.join("socket");
        let missing = place.take(&made, own).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        // A file of ours that the agent names, itself and by links.
        let precious = runtime.path().join("precious");
        fs::write(&precious, "kept").unwrap();
        symlink(&precious, &made).unwrap();
        symlink(runtime.path(), place.room.join("elsewhere")).unwrap();
        for named in [&made, &precious, &place.room.join("elsewhere/precious")] {
            assert!(place.take(named, own).is_err(), "{}", named.display());
        }
        assert_eq!(fs::read_to_string(&precious).unwrap(), "kept");
        assert!(!place.socket.exists());
        // A socket of somebody else, and one of its own.
        fs::remove_file(&made).unwrap();
        let _listener = UnixListener::bind(&made).unwrap();
        assert!(place.take(&made, own + 1).is_err());
        place.take(&made, own).unwrap();
        assert!(!made.exists());
        UnixStream::connect(&place.socket).unwrap();
    }

    #[test]
    fn a_room_is_removed_however_deep_it_is() {
        // Best where directories never reach a disk: there are many.
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory } else { Path::new("/tmp") };
        let runtime = tempfile::tempdir_in(base).unwrap();
        let place = Place::of(runtime.path(), "it");
        fs::create_dir_all(&place.room).unwrap();
        let open = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = openat(CWD, &place.room, open, Mode::empty()).unwrap();
        for _ in 0..20_000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", open, Mode::empty()).unwrap();
        }
        place.forget();
        assert!(!place.room.exists());
    }

    #[test]
    fn last_words_are_the_end_of_what_was_written() {
        let runtime = tempfile::tempdir().unwrap();
        fs::create_dir(runtime.path().join(SOCKETS)).unwrap();
        let place = Place::of(runtime.path(), "it");
        assert_eq!(place.last_words(4), "");
        io::Write::write_all(&mut place.errors().unwrap(), b"a long story").unwrap();
        assert_eq!(place.last_words(5), "story");
        assert_eq!(place.last_words(100), "a long story");
        // A room is the agent's, and so is what it puts there.
        assert!(!place.errors.starts_with(&place.room));
    }
}
