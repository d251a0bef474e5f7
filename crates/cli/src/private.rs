//! Where private directories live: a temporary base that dies with this process, and the homes of
//! commands, which stay.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use countersign_exec::Directories;

/// Commands of a root server run as another user, who must be able to pass through.
const PASSABLE: u32 = 0o711;
const PRIVATE: u32 = 0o700;

/// Makes the directories this process's commands will use.
pub(crate) fn directories(is_root: bool) -> anyhow::Result<Directories> {
    let mode = if is_root { PASSABLE } else { PRIVATE };
    let temporary = temporary(mode)?;
    let homes = match homes(is_root).filter(|path| make_all(path, mode).is_ok()) {
        Some(homes) => homes,
        // Without a place that lasts, a home lasts as long as the server.
        None => {
            let homes = temporary.join("homes");
            make_all(&homes, mode).with_context(|| format!("cannot make `{}`", homes.display()))?;
            homes
        }
    };
    Ok(Directories { homes, temporary })
}

/// The same below one directory, which takes everything with it when it goes.
pub(crate) fn directories_within(base: &Path, is_root: bool) -> anyhow::Result<Directories> {
    let mode = if is_root { PASSABLE } else { PRIVATE };
    let make = |name: &str| {
        let path = base.join(name);
        let made = fs::DirBuilder::new().mode(mode).create(&path);
        made.with_context(|| format!("cannot make `{}`", path.display()))?;
        Ok::<_, anyhow::Error>(path)
    };
    Ok(Directories {
        homes: make("homes")?,
        temporary: make("temporary")?,
    })
}

/// A directory of our own among the temporary ones; whoever asks for it removes it.
pub(crate) fn temporary_base(is_root: bool) -> anyhow::Result<PathBuf> {
    temporary(if is_root { PASSABLE } else { PRIVATE })
}

fn temporary(mode: u32) -> anyhow::Result<PathBuf> {
    let base = fs::canonicalize(std::env::temp_dir()).context("there is no directory for temporary files")?;
    let own = std::process::id();
    for attempt in 0..100 {
        let path = base.join(format!("countersign-{own}-{attempt}"));
        match fs::DirBuilder::new().mode(mode).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("cannot make `{}`", path.display())),
        }
    }
    anyhow::bail!(
        "cannot make a temporary directory in `{}`: all names are taken",
        base.display()
    )
}

fn homes(is_root: bool) -> Option<PathBuf> {
    if is_root {
        return Some(PathBuf::from("/var/cache/countersign/homes"));
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(cache.join("countersign/homes"))
}

fn make_all(path: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path)?;
    // The umask may have taken away what another user needs to pass through.
    for own in path
        .ancestors()
        .take_while(|dir| dir.components().any(|part| part.as_os_str() == "countersign"))
    {
        fs::set_permissions(own, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}
