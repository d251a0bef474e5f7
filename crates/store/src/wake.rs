//! How processes of one state directory wake each other: a datagram socket each, in a folder of theirs.
//!
//! A datagram says nothing but *look again*; what there is to see stands in the database. One that is
//! lost costs the time until the next look, so nothing here is an error worth more than a line in the log.
//! The folder is as closed as the state directory, and commands can reach neither.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use countersign_gateway::approval::Bell;
use countersign_gateway::audit::Pending;
use tokio::net::UnixDatagram;

const FOLDER: &str = "wake";
/// Sockets that are rung in one go; more than anybody runs on one machine.
const SOCKETS_MAX: usize = 1_024;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The bell of one state directory, with an ear of its own.
pub struct Doorbell {
    folder: PathBuf,
    own: PathBuf,
    ear: Arc<UnixDatagram>,
    mouth: StdDatagram,
}

impl Doorbell {
    /// Hangs up a bell. Must be called where an event loop runs.
    pub fn hang(state_directory: &Path) -> io::Result<Self> {
        let folder = state_directory.join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let own = folder.join(format!(
            "{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        // Left by a process that had our id before us.
        let _ = fs::remove_file(&own);
        let ear = UnixDatagram::bind(short(&folder, &own)?)?;
        let mouth = mouth()?;
        Ok(Self {
            folder,
            own,
            ear: Arc::new(ear),
            mouth,
        })
    }
}

impl Bell for Doorbell {
    fn ring(&self) {
        ring_others(&self.folder, &self.mouth, Some(&self.own));
    }

    fn rung(&self) -> Pending<()> {
        let ear = self.ear.clone();
        Box::pin(async move {
            let mut nothing = [0; 1];
            if let Err(error) = ear.recv(&mut nothing).await {
                tracing::warn!(%error, "the bell of the state directory cannot be heard");
                std::future::pending::<()>().await;
            }
            // One look is enough for all that rang meanwhile.
            while ear.try_recv(&mut nothing).is_ok() {}
        })
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.own);
    }
}

/// A bell without an ear, for a process that does not stay.
pub struct Knock {
    folder: PathBuf,
}

impl Knock {
    pub fn on(state_directory: &Path) -> Self {
        Self {
            folder: state_directory.join(FOLDER),
        }
    }
}

impl Bell for Knock {
    fn ring(&self) {
        if let Ok(mouth) = mouth() {
            ring_others(&self.folder, &mouth, None);
        }
    }

    fn rung(&self) -> Pending<()> {
        Box::pin(std::future::pending())
    }
}

fn mouth() -> io::Result<StdDatagram> {
    let mouth = StdDatagram::unbound()?;
    // A process that does not listen must not hold us up.
    mouth.set_nonblocking(true)?;
    Ok(mouth)
}

fn ring_others(folder: &Path, mouth: &StdDatagram, own: Option<&Path>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().take(SOCKETS_MAX) {
        let path = entry.path();
        if Some(path.as_path()) == own {
            continue;
        }
        let Ok(address) = short(folder, &path) else { continue };
        match mouth.send_to(&[1], address) {
            // Nobody listens there any more.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => drop(fs::remove_file(&path)),
            // A full ear will look anyway.
            Ok(_) | Err(_) => {}
        }
    }
}

/// A socket's address has at most 107 bytes, a state directory may be deeper: then it is named through a
/// link in `/proc` to the open folder.
fn short(folder: &Path, socket: &Path) -> io::Result<PathBuf> {
    const ADDRESS_MAX: usize = 100;
    if socket.as_os_str().len() <= ADDRESS_MAX {
        return Ok(socket.to_owned());
    }
    use std::os::fd::AsRawFd as _;
    thread_local! {
        static FOLDERS: std::cell::RefCell<Option<(PathBuf, fs::File)>> = const { std::cell::RefCell::new(None) };
    }
    FOLDERS.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(path, _)| path != folder) {
            *kept = Some((folder.to_owned(), fs::File::open(folder)?));
        }
        let open = kept.as_ref().map(|(_, file)| file.as_raw_fd()).unwrap_or(-1);
        let name = socket.file_name().unwrap_or_default();
        Ok(PathBuf::from(format!("/proc/self/fd/{open}")).join(name))
    })
}
