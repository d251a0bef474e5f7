//! Where the servers of a state directory are: `server.json` beside the record tells of the latest, and a file of its own of
//! each, for the commands of a person who may read them. They go with the server; one that a crash left behind names a
//! process that is gone.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use countersign_store::process::Process;
use serde_json::{Value, json};

const FILE_NAME: &str = "server.json";
/// How the file of each server begins; its address follows.
const EACH: &str = "server-";

/// A server that says where it is for as long as this is held.
pub(crate) struct Whereabouts {
    state_dir: PathBuf,
    own: PathBuf,
    text: String,
}

impl Whereabouts {
    /// Tells of the server at this address, such as `http://127.0.0.1:7420`. Of several the latest is found.
    pub(crate) fn tell(state_dir: &Path, address: &str) -> anyhow::Result<Self> {
        let process = Process::current();
        let text = json!({"address": address, "pid": std::process::id(), "process": process.as_str()}).to_string();
        for (path, told) in each(state_dir) {
            if address_of_living(&told).is_none() {
                let _ = fs::remove_file(path);
            }
        }
        let plain: String = address
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let own = state_dir.join(format!("{EACH}{plain}.json"));
        for path in [&own, &state_dir.join(FILE_NAME)] {
            write(state_dir, path, &text).with_context(|| format!("cannot write `{}`", path.display()))?;
        }
        Ok(Self {
            state_dir: state_dir.to_owned(),
            own,
            text,
        })
    }
}

impl Drop for Whereabouts {
    fn drop(&mut self) {
        let is_ours = |path: &Path| fs::read_to_string(path).is_ok_and(|text| text == self.text);
        if is_ours(&self.own) {
            let _ = fs::remove_file(&self.own);
        }
        // Another server may have told of itself since; and one that was there before may still be.
        let path = self.state_dir.join(FILE_NAME);
        if is_ours(&path) {
            let _ = match latest(&self.state_dir) {
                Some(other) => write(&self.state_dir, &path, &other),
                None => fs::remove_file(&path),
            };
        }
    }
}

/// The address of a server that runs on a state directory, the latest of several.
pub(crate) fn find(state_dir: &Path) -> Option<String> {
    let told = fs::read_to_string(state_dir.join(FILE_NAME)).ok();
    let found = told.as_deref().and_then(address_of_living);
    found.or_else(|| address_of_living(&latest(state_dir)?))
}

/// What the latest of those that live has told of itself.
fn latest(state_dir: &Path) -> Option<String> {
    let living = each(state_dir)
        .into_iter()
        .filter(|(_, told)| address_of_living(told).is_some());
    let since = |path: &Path| {
        fs::metadata(path)
            .and_then(|it| it.modified())
            .unwrap_or(SystemTime::UNIX_EPOCH)
    };
    living.max_by_key(|(path, _)| since(path)).map(|(_, told)| told)
}

/// The file of each server, and what it says.
fn each(state_dir: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(state_dir).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(EACH)));
    files
        .filter_map(|entry| Some((entry.path(), fs::read_to_string(entry.path()).ok()?)))
        .collect()
}

fn address_of_living(told: &str) -> Option<String> {
    let told: Value = serde_json::from_str(told).ok()?;
    let lives = Process::is_alive(told["process"].as_str()?);
    lives.then(|| told["address"].as_str().map(str::to_owned))?
}

/// Whoever reads the file finds all of it or what was there before.
fn write(state_dir: &Path, path: &Path, text: &str) -> io::Result<()> {
    let draft = state_dir.join(format!("{FILE_NAME}.{}", std::process::id()));
    let _ = fs::remove_file(&draft);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_while_it_lives() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(find(dir.path()), None);
        let first = Whereabouts::tell(dir.path(), "http://127.0.0.1:1").unwrap();
        let mode = fs::metadata(dir.path().join(FILE_NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let second = Whereabouts::tell(dir.path(), "http://127.0.0.1:2").unwrap();
        drop(first);
        assert_eq!(
            find(dir.path()).as_deref(),
            Some("http://127.0.0.1:2"),
            "the latest is found"
        );
        drop(second);
        assert_eq!(find(dir.path()), None);
        let gone = json!({"address": "http://127.0.0.1:3", "process": "another-boot/1/1"});
        fs::write(dir.path().join(FILE_NAME), gone.to_string()).unwrap();
        assert_eq!(find(dir.path()), None, "what a crash left behind");
    }

    #[test]
    fn a_server_is_found_when_a_later_one_has_gone() {
        let dir = tempfile::tempdir().unwrap();
        let first = Whereabouts::tell(dir.path(), "http://127.0.0.1:1").unwrap();
        let found = || find(dir.path());
        drop(Whereabouts::tell(dir.path(), "http://127.0.0.1:2").unwrap());
        assert_eq!(
            found().as_deref(),
            Some("http://127.0.0.1:1"),
            "the later one was stopped"
        );
        let gone = json!({"address": "http://127.0.0.1:3", "process": "another-boot/1/1"}).to_string();
        for name in [FILE_NAME, "server-http---127-0-0-1-3.json"] {
            fs::write(dir.path().join(name), &gone).unwrap();
        }
        assert_eq!(
            found().as_deref(),
            Some("http://127.0.0.1:1"),
            "the later one was killed"
        );
        drop(first);
        assert_eq!(found(), None);
        let next = Whereabouts::tell(dir.path(), "http://127.0.0.1:4").unwrap();
        drop(next);
        let left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .flatten()
            .map(|it| it.file_name())
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
