//! Where private directories live: a temporary base that dies with this process, and the homes of
//! commands, which stay.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use countersign_exec::{Directories, Temporaries};
use countersign_gateway::policy::places::READABLE_BY_ALL;

use crate::config::all_homes;
use crate::policy::PROGRAMS_AND_LIBRARIES;
use crate::start::BadUsage;

/// Commands of a root server run as another user, who must be able to pass through.
const PASSABLE: u32 = 0o711;
const PRIVATE: u32 = 0o700;
/// Names a directory of ours for what may be lost.
const CACHE_DIR: &str = "COUNTERSIGN_CACHE_DIR";

/// Makes the directories this process's commands will use.
pub(crate) fn directories(is_root: bool) -> anyhow::Result<Directories> {
    let mode = if is_root { PASSABLE } else { PRIVATE };
    let base = fs::canonicalize(std::env::temp_dir()).context("there is no directory for temporary files")?;
    let temporary = Temporaries::make(&base, crate::wiring::uid())?;
    let homes = homes(is_root, temporary.path(), mode)?;
    Ok(Directories {
        homes,
        temporary,
        closed: homes_of_the_system(all_homes()),
    })
}

/// The same below one directory, which takes everything with it when it goes.
pub(crate) fn directories_within(base: &Path, is_root: bool) -> anyhow::Result<Directories> {
    let mode = if is_root { PASSABLE } else { PRIVATE };
    let homes = base.join("homes");
    let made = fs::DirBuilder::new().mode(mode).create(&homes);
    made.with_context(|| format!("cannot make `{}`", homes.display()))?;
    let temporary = Temporaries::make(base, crate::wiring::uid())?;
    Ok(Directories {
        homes,
        temporary,
        closed: homes_of_the_system(all_homes()),
    })
}

/// Those that lie in a directory which every command may read. Some users have one for a home in which programs or libraries lie.
fn homes_of_the_system(homes: Vec<PathBuf>) -> Vec<PathBuf> {
    let is_readable = |home: &Path| {
        READABLE_BY_ALL
            .iter()
            .any(|all| home.starts_with(all) && home != Path::new(all))
    };
    let is_needed = |home: &Path| {
        let mut needed = PROGRAMS_AND_LIBRARIES.iter().map(Path::new);
        needed.any(|needed| home.starts_with(needed) || needed.starts_with(home))
    };
    let homes = homes.into_iter().filter_map(|home| fs::canonicalize(home).ok());
    let mut homes: Vec<PathBuf> = homes.filter(|home| is_readable(home) && !is_needed(home)).collect();
    homes.sort();
    homes.dedup();
    homes
}

/// A directory of our own among the temporary ones; whoever asks for it removes it.
pub(crate) fn temporary_base(is_root: bool) -> anyhow::Result<PathBuf> {
    let mode = if is_root { PASSABLE } else { PRIVATE };
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

/// Homes are in the cache: losing them costs time and nothing else.
fn homes(is_root: bool, temporary: &Path, mode: u32) -> anyhow::Result<PathBuf> {
    if let Some(chosen) = std::env::var_os(CACHE_DIR).filter(|path| !path.is_empty()) {
        let chosen = PathBuf::from(chosen);
        if !chosen.is_absolute() {
            let chosen = chosen.display();
            return Err(BadUsage(format!("{CACHE_DIR} is `{chosen}`; name a directory from the root on")).into());
        }
        return make_homes(&chosen, mode).with_context(|| {
            format!(
                "cannot keep the homes of commands in `{}` ({CACHE_DIR})",
                chosen.display()
            )
        });
    }
    if let Some(homes) = cache(is_root).and_then(|cache| make_homes(&cache, mode).ok()) {
        return Ok(homes);
    }
    // Without a place that lasts, a home lasts as long as the server.
    make_homes(temporary, mode).with_context(|| format!("cannot make homes for commands in `{}`", temporary.display()))
}

fn cache(is_root: bool) -> Option<PathBuf> {
    if is_root {
        return Some(PathBuf::from("/var/cache/countersign"));
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(cache.join("countersign"))
}

fn make_homes(cache: &Path, mode: u32) -> io::Result<PathBuf> {
    let homes = cache.join("homes");
    fs::DirBuilder::new().recursive(true).mode(mode).create(&homes)?;
    // The umask may have taken away what another user needs to pass through. What is above is not ours.
    for own in [cache, &homes] {
        fs::set_permissions(own, fs::Permissions::from_mode(mode))?;
    }
    // As the kernel names it: whatever is made in it is reached by no link.
    fs::canonicalize(homes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_home_among_what_all_may_read_is_closed_unless_programs_lie_there() {
        let dir = tempfile::tempdir_in("/opt").or_else(|_| tempfile::tempdir()).unwrap();
        let home = dir.path().canonicalize().unwrap();
        let others = ["/usr/bin", "/usr", "/opt", "/usr/lib", "/nonexistent"].map(PathBuf::from);
        let closed = homes_of_the_system(others.into_iter().chain([home.clone(), home.clone()]).collect());
        let expected: Vec<PathBuf> = Some(home).filter(|home| home.starts_with("/opt")).into_iter().collect();
        assert_eq!(closed, expected);
    }

    #[test]
    fn directories_above_the_cache_keep_their_permissions() {
        let place = tempfile::tempdir().unwrap();
        let user = place.path().join("countersign");
        fs::create_dir(&user).unwrap();
        fs::set_permissions(&user, fs::Permissions::from_mode(0o755)).unwrap();

        let homes = make_homes(&user.join(".cache/countersign"), PRIVATE).unwrap();

        assert_eq!(mode_of(&homes), PRIVATE);
        assert_eq!(mode_of(homes.parent().unwrap()), PRIVATE);
        assert_eq!(mode_of(&user), 0o755, "the home of a user who is called like us");
    }
}
