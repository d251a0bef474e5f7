//! Where the server of a state directory is: `server.json` beside the record, for the commands of a person
//! who may read it. It goes with the server; one that a crash left behind names a process that is gone.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use countersign_store::process::Process;
use serde_json::{Value, json};

const FILE_NAME: &str = "server.json";

/// A server that says where it is for as long as this is held.
pub(crate) struct Whereabouts {
    path: PathBuf,
    text: String,
}

impl Whereabouts {
    /// Tells of the server at this address, such as `http://127.0.0.1:7420`. Of several the latest is found.
    pub(crate) fn tell(state_dir: &Path, address: &str) -> anyhow::Result<Self> {
        let path = state_dir.join(FILE_NAME);
        let process = Process::current();
        let text = json!({"address": address, "pid": std::process::id(), "process": process.as_str()}).to_string();
        let draft = state_dir.join(format!("{FILE_NAME}.{}", std::process::id()));
        let written = || -> std::io::Result<()> {
            let _ = fs::remove_file(&draft);
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&draft)?;
            file.write_all(text.as_bytes())?;
            fs::rename(&draft, &path)
        };
        written().with_context(|| format!("cannot write `{}`", path.display()))?;
        Ok(Self { path, text })
    }
}

impl Drop for Whereabouts {
    fn drop(&mut self) {
        // Another server may have told of itself since.
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The address of the server that runs on a state directory.
pub(crate) fn find(state_dir: &Path) -> Option<String> {
    let text = fs::read_to_string(state_dir.join(FILE_NAME)).ok()?;
    let told: Value = serde_json::from_str(&text).ok()?;
    let lives = Process::is_alive(told["process"].as_str()?);
    lives.then(|| told["address"].as_str().map(str::to_owned))?
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
}
