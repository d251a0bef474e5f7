//! The files of sessions below the state directory: `sessions/<name>-<date>/`.
//!
//! `events.jsonl` only grows, a whole number of lines at a time. A crash may tear the last line; looking at
//! the file again cuts off what is not the kept events in their order, and the rest is added anew. All
//! other files are replaced as a whole or not at all. Directories are 0700, files 0600.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use countersign_gateway::audit::Pending;
use countersign_gateway::ids::EventId;
use countersign_gateway::job::event::StoredEvent;
use countersign_gateway::job::files::{Files, FilesError};
use serde_json::Value;

const EVENTS: &str = "events.jsonl";
const CONFIG: &str = "config.json";
const ROLLOUT: &str = "rollout-ref.txt";
const METRICS: &str = "metrics.json";
const WRITING: &str = "writing.txt";

/// The folders of all sessions of a state directory.
#[derive(Clone)]
pub struct SessionFiles {
    root: PathBuf,
    told: Arc<Mutex<HashMap<String, Told>>>,
}

/// What `events.jsonl` held when we last looked.
#[derive(Clone, Copy)]
struct Told {
    events: u64,
    bytes: u64,
}

impl SessionFiles {
    pub fn below(state_directory: &Path) -> Self {
        Self {
            root: state_directory.join("sessions"),
            told: Arc::default(),
        }
    }

    fn make_folder(&self, folder: &str) -> Result<PathBuf, FilesError> {
        let path = self.root.join(folder);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|error| write(&path, &error))?;
        Ok(path)
    }

    fn look(&self, folder: &str, kept: &[EventId]) -> Result<u64, FilesError> {
        let path = self.make_folder(folder)?.join(EVENTS);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| write(&path, &error))?;
        let told = whole_lines(&file, kept).map_err(|error| read(&path, &error))?;
        let length = file.metadata().map_err(|error| read(&path, &error))?.len();
        if length != told.bytes {
            tracing::warn!(path = %path.display(), cut = length - told.bytes, "a session's file was mended");
            file.set_len(told.bytes)
                .and_then(|()| file.sync_all())
                .map_err(|error| write(&path, &error))?;
        }
        self.remember(folder, Some(told));
        Ok(told.events)
    }

    fn add(&self, folder: &str, events: &[StoredEvent]) -> Result<u64, FilesError> {
        let path = self.root.join(folder).join(EVENTS);
        let known = self.lock().get(folder).copied();
        let gap = |told: u64| FilesError::Gap {
            path: path.clone(),
            told,
            next: events.first().map_or(0, |event| event.seq),
        };
        let Some(mut told) = known else {
            return Err(gap(0));
        };
        let mut lines = String::new();
        for stored in events {
            match stored.seq {
                seq if seq <= told.events => {}
                seq if seq == told.events + 1 => {
                    lines.push_str(&stored.event.to_line());
                    told.events = seq;
                }
                _ => return Err(gap(told.events)),
            }
        }
        if lines.is_empty() {
            return Ok(told.events);
        }
        let mut file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(|error| write(&path, &error))?;
        let length = file.metadata().map_err(|error| read(&path, &error))?.len();
        if length != told.bytes {
            // Somebody else wrote, or took away; who looks again knows more.
            self.remember(folder, None);
            return Err(gap(told.events));
        }
        if let Err(error) = file.write_all(lines.as_bytes()).and_then(|()| file.sync_data()) {
            self.remember(folder, None);
            return Err(write(&path, &error));
        }
        told.bytes += lines.len() as u64;
        self.remember(folder, Some(told));
        Ok(told.events)
    }

    fn replace(&self, folder: &str, name: &str, content: &str) -> Result<(), FilesError> {
        let directory = self.make_folder(folder)?;
        let path = directory.join(name);
        let fresh = directory.join(format!(".{name}.new"));
        let work = || -> io::Result<()> {
            // What a crash left half written may have any mode.
            if let Err(error) = fs::remove_file(&fresh)
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(error);
            }
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&fresh)?;
            file.write_all(content.as_bytes())?;
            file.sync_all()?;
            fs::rename(&fresh, &path)?;
            File::open(&directory)?.sync_all()
        };
        work().map_err(|error| write(&path, &error))
    }

    fn remember(&self, folder: &str, told: Option<Told>) {
        let mut known = self.lock();
        match told {
            Some(told) => known.insert(folder.to_owned(), told),
            None => known.remove(folder),
        };
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, FilesError> + Send + 'static,
    ) -> Pending<Result<T, FilesError>> {
        let files = self.clone();
        Box::pin(async move {
            tokio::task::spawn_blocking(move || work(&files))
                .await
                .unwrap_or_else(|_| {
                    Err(FilesError::Write {
                        path: PathBuf::new(),
                        why: "the writer was stopped".to_owned(),
                    })
                })
        })
    }
}

impl Files for SessionFiles {
    fn directory(&self, folder: &str) -> PathBuf {
        self.root.join(folder)
    }

    fn begin(&self, folder: &str, config: Value) -> Pending<Result<(), FilesError>> {
        let folder = folder.to_owned();
        self.blocking(move |files| {
            if files.root.join(&folder).join(CONFIG).exists() {
                return Ok(());
            }
            files.replace(&folder, CONFIG, &format!("{config:#}\n"))
        })
    }

    fn open(&self, folder: &str, kept: Vec<EventId>) -> Pending<Result<u64, FilesError>> {
        let folder = folder.to_owned();
        self.blocking(move |files| files.look(&folder, &kept))
    }

    fn append(&self, folder: &str, events: Vec<StoredEvent>) -> Pending<Result<u64, FilesError>> {
        let folder = folder.to_owned();
        self.blocking(move |files| files.add(&folder, &events))
    }

    fn rollout(&self, folder: &str, path: &str) -> Pending<Result<(), FilesError>> {
        let (folder, line) = (folder.to_owned(), format!("{path}\n"));
        self.blocking(move |files| files.replace(&folder, ROLLOUT, &line))
    }

    fn metrics(&self, folder: &str, metrics: Value) -> Pending<Result<(), FilesError>> {
        let folder = folder.to_owned();
        self.blocking(move |files| files.replace(&folder, METRICS, &format!("{metrics:#}\n")))
    }

    fn write_unfinished(&self, folder: &str, text: Option<String>) -> Pending<Result<(), FilesError>> {
        let folder = folder.to_owned();
        self.blocking(move |files| {
            let directory = files.root.join(&folder);
            let (path, fresh) = (directory.join(WRITING), directory.join(format!(".{WRITING}.new")));
            let work = || -> io::Result<()> {
                let Some(text) = text else {
                    return match fs::remove_file(&path) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                        Ok(()) | Err(_) => Ok(()),
                    };
                };
                let mut options = OpenOptions::new();
                let mut file = options
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(0o600)
                    .open(&fresh)?;
                file.write_all(text.as_bytes())?;
                fs::rename(&fresh, &path)
            };
            work().map_err(|error| write(&path, &error))
        })
    }

    fn unfinished(&self, folder: &str) -> Pending<Option<String>> {
        let path = self.root.join(folder).join(WRITING);
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || fs::read_to_string(path).ok());
            read.await.ok().flatten()
        })
    }
}

/// How far the file tells the kept events in their order.
fn whole_lines(file: &File, kept: &[EventId]) -> io::Result<Told> {
    let mut reader = BufReader::new(file);
    let mut told = Told { events: 0, bytes: 0 };
    let mut line = Vec::new();
    for id in kept {
        line.clear();
        let length = reader.read_until(b'\n', &mut line)?;
        let is_whole = line.ends_with(b"\n");
        let tells = || serde_json::from_slice::<Value>(&line).is_ok_and(|event| event["eventId"] == id.as_str());
        if !is_whole || !tells() {
            break;
        }
        told.events += 1;
        told.bytes += length as u64;
    }
    Ok(told)
}

fn write(path: &Path, error: &io::Error) -> FilesError {
    FilesError::Write {
        path: path.to_owned(),
        why: error.to_string(),
    }
}

fn read(path: &Path, error: &io::Error) -> FilesError {
    FilesError::Read {
        path: path.to_owned(),
        why: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    use countersign_gateway::clock::Timestamp;
    use countersign_gateway::ids::JobId;
    use countersign_gateway::job::event::{JobEvent, JobEventType};
    use serde_json::json;

    fn events(count: u64) -> Vec<StoredEvent> {
        (1..=count)
            .map(|seq| StoredEvent {
                seq,
                event: JobEvent {
                    event_id: EventId::trusted(format!("e{seq}")),
                    timestamp: Timestamp::from_millis(0),
                    job_id: JobId::trusted("j"),
                    session_id: None,
                    kind: JobEventType::CodexAgentMessage,
                    data: json!({"message": format!("line {seq}\nwith é")}),
                },
            })
            .collect()
    }

    fn ids(count: u64) -> Vec<EventId> {
        (1..=count).map(|seq| EventId::trusted(format!("e{seq}"))).collect()
    }

    fn whole(count: u64) -> String {
        events(count).iter().map(|stored| stored.event.to_line()).collect()
    }

    #[test]
    fn a_file_torn_at_any_byte_is_brought_back_to_what_is_kept() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join("sessions/s/events.jsonl");
        SessionFiles::below(state.path()).look("s", &[]).unwrap();
        let full = whole(3);
        let two = whole(2).len();
        for cut in two..=full.len() {
            fs::write(&path, &full.as_bytes()[..cut]).unwrap();
            // A process that starts anew.
            let files = SessionFiles::below(state.path());
            let told = files.look("s", &ids(3)).unwrap();
            assert_eq!(told, if cut == full.len() { 3 } else { 2 }, "cut at {cut}");
            assert_eq!(files.add("s", &events(4)).unwrap(), 4);
            assert_eq!(fs::read_to_string(&path).unwrap(), whole(4), "cut at {cut}");
        }
    }

    #[test]
    fn nothing_is_told_twice_and_nothing_is_left_out() {
        let state = tempfile::tempdir().unwrap();
        let files = SessionFiles::below(state.path());
        assert!(
            matches!(files.add("s", &events(1)), Err(FilesError::Gap { .. })),
            "nobody looked yet"
        );
        files.look("s", &[]).unwrap();
        assert_eq!(files.add("s", &events(2)).unwrap(), 2);
        assert_eq!(files.add("s", &events(2)).unwrap(), 2);
        assert_eq!(files.add("s", &events(3)).unwrap(), 3);
        let later = events(5).split_off(4);
        assert!(matches!(
            files.add("s", &later),
            Err(FilesError::Gap { told: 3, next: 5, .. })
        ));
        assert_eq!(
            fs::read_to_string(state.path().join("sessions/s/events.jsonl")).unwrap(),
            whole(3)
        );
    }

    #[test]
    fn what_nobody_kept_is_cut_off_and_a_file_that_others_changed_is_looked_at_again() {
        let state = tempfile::tempdir().unwrap();
        let files = SessionFiles::below(state.path());
        files.look("s", &[]).unwrap();
        files.add("s", &events(2)).unwrap();
        let path = state.path().join("sessions/s/events.jsonl");
        for strange in ["{\"eventId\":\"other\"}\n", "\0\0\0", "not json\n"] {
            fs::write(&path, whole(2) + strange).unwrap();
            assert!(matches!(files.add("s", &events(3)), Err(FilesError::Gap { .. })));
            assert_eq!(files.look("s", &ids(3)).unwrap(), 2, "{strange:?}");
            files.add("s", &events(3)).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), whole(3));
            fs::write(&path, whole(2)).unwrap();
            files.look("s", &ids(2)).unwrap();
        }
        // A line that is told twice is one too many.
        fs::write(&path, whole(1) + &whole(2)).unwrap();
        assert_eq!(files.look("s", &ids(2)).unwrap(), 1);
    }

    #[test]
    fn other_files_are_replaced_whole_and_nobody_else_reads_any() {
        let state = tempfile::tempdir().unwrap();
        let files = SessionFiles::below(state.path());
        files.look("s", &[]).unwrap();
        files.replace("s", ROLLOUT, "/a\n").unwrap();
        files.replace("s", ROLLOUT, "/b\n").unwrap();
        let folder = state.path().join("sessions/s");
        // What a crash left half written is in nobody's way.
        fs::write(folder.join(".metrics.json.new"), "{").unwrap();
        files.replace("s", METRICS, "{}\n").unwrap();
        assert_eq!(fs::read_to_string(folder.join(ROLLOUT)).unwrap(), "/b\n");
        assert_eq!(fs::read_to_string(folder.join(METRICS)).unwrap(), "{}\n");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(folder.parent().unwrap())), (0o700, 0o700));
        for entry in fs::read_dir(&folder).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
    }
}
