//! The one door to the database file: where it is, who may read it, how a connection is set up.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use countersign_gateway::audit::chain::Hash;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, TransactionBehavior};
use tokio::sync::watch;

use self::index::Index;
use super::ledger;
use super::log::{Growth, Log};
use super::migrations::{self, MigrateError};
use super::{CHAIN, Durability, Options, trouble};
use crate::health::Health;
use crate::key::{Key, KeyError};
use crate::known::KnownEnd;
use crate::moved;
use crate::process::Process;
use crate::seal::{self, Sealer};
use crate::witness::Witness;

mod index;

pub const FILE_NAME: &str = "record.db";

/// Pages each connection may keep. Small: an idle process holds a few of these.
const CACHE_KIBIBYTES: i64 = 2_048;

/// The log is cut back to this size once nobody needs more of it.
const LOG_BYTES_KEPT: i64 = 16 << 20;

/// A file, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

/// What stands beside the database while it is in use: its log, and the index of the log that processes share.
#[derive(Default)]
enum Beside {
    #[default]
    Unseen,
    Seen {
        database: Identity,
        log: Option<Identity>,
        index: Option<Identity>,
    },
    /// One of them was taken away: rows in it are found by nobody else, and whoever opens the database next makes
    /// another. Only when every connection of this process is closed can it begin anew.
    Lost,
    /// The log was cut in its place. What others would write behind it is found by nobody either, and copied into the
    /// database with the hole before it, it would damage that.
    Cut,
}

/// What may be done with the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    Write,
    /// Nothing can be written here, also not what stands beside a database in use.
    Read,
}

/// Everything a connection needs, fixed at the start.
pub(super) struct Site {
    pub(super) database: PathBuf,
    access: Access,
    /// The log and its index.
    beside_at: [PathBuf; 2],
    beside: Mutex<Beside>,
    index: Index,
    pub(super) options: Options,
    pub(super) witness: Witness,
    pub(super) key: Key,
    pub(super) sealer: Sealer,
    pub(super) process: Process,
    pub(super) growth: Arc<Growth>,
    pub(super) known: KnownEnd,
    /// Place of the last event that this process wrote.
    pub(super) written: watch::Sender<u64>,
    pub(super) health: Health,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the state directory `{path}` cannot be prepared; `--state-dir` names another")]
    Directory { path: PathBuf, source: io::Error },
    #[error(
        "the state directory `{path}` is open to other users (mode {mode:o}) and holds other files; choose another or close it with `chmod 700`"
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error("the database file `{path}` cannot be prepared")]
    File { path: PathBuf, source: io::Error },
    #[error("the database `{path}` cannot be opened: {}", trouble::of_opening(.trouble))]
    Connect { path: PathBuf, trouble: rusqlite::Error },
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("the writer of the record cannot be started")]
    Thread { source: io::Error },
    #[error(
        "the record of `{path}` was moved to {to}; name that by `--database`, or remove the file `{mark}` there to go on with the record as it was"
    )]
    Moved {
        path: PathBuf,
        to: String,
        mark: &'static str,
    },
}

/// Whether the record of a directory has rows; also where nobody can say.
pub(crate) fn holds_rows(directory: &Path) -> bool {
    let database = directory.join(FILE_NAME);
    let is_empty = |file: &fs::Metadata| file.len() == 0;
    if fs::metadata(&database).map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |file| is_empty(&file)) {
        return false;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let found = Connection::open_with_flags(&database, flags).and_then(|connection| {
        let table = "SELECT 1 FROM sqlite_schema WHERE name = 'flow_events'";
        let has_table = connection.prepare(table)?.exists([])?;
        Ok(has_table && connection.prepare("SELECT 1 FROM flow_events")?.exists([])?)
    });
    found.unwrap_or(true)
}

impl OpenError {
    /// Whether all is there, and only the right to write is not.
    pub(super) fn is_unwritable(&self) -> bool {
        let by_system = |error: &io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
            )
        };
        match self {
            Self::Directory { source, .. } | Self::File { source, .. } => by_system(source),
            Self::Connect { trouble, .. } => trouble::is_unwritable(trouble),
            Self::Exposed { .. } | Self::Migrate(_) | Self::Key(_) | Self::Thread { .. } | Self::Moved { .. } => false,
        }
    }
}

impl Site {
    /// Prepares directory, key and database, and gives the connection that writes.
    pub(super) fn prepare(directory: &Path, options: Options) -> Result<(Self, Connection), OpenError> {
        close_directory(directory)?;
        refuse_moved(directory)?;
        let database = directory.join(FILE_NAME);
        let unprepared = |source| OpenError::File {
            path: database.clone(),
            source,
        };
        let is_new = create_file(&database, directory).map_err(unprepared)?;
        let site = Self::of(directory, Access::Write, options)?;
        let patience = site.options.busy_timeout;
        let mut connection = site.connect_writer(patience).map_err(|trouble| OpenError::Connect {
            path: site.database.clone(),
            trouble,
        })?;
        migrations::apply(&mut connection)?;
        if is_new || (site.options.seals && !site.sealer.is_expected()) {
            let sealed = site.seal_first(&mut connection);
            sealed.map_err(|trouble| OpenError::Connect {
                path: site.database.clone(),
                trouble,
            })?;
            site.sealer.expect().map_err(unprepared)?;
        }
        Ok((site, connection))
    }

    /// The same of a record that cannot be written and is only read, a backup or a disk that is mounted so. It must have the
    /// shape that this program knows: nobody can bring it up to date.
    pub(super) fn look_into(directory: &Path, options: Options) -> Result<Self, OpenError> {
        refuse_moved(directory)?;
        let site = Self::of(directory, Access::Read, options)?;
        let connection = site.connect_reader().map_err(|trouble| OpenError::Connect {
            path: site.database.clone(),
            trouble,
        })?;
        migrations::check(&connection)?;
        Ok(site)
    }

    /// Seals the head of a record that has no seal yet.
    fn seal_first(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let unsealed = "SELECT seq, hash FROM chain_heads WHERE chain = ?1 AND seal IS NULL";
        let head = transaction.query_row(unsealed, [CHAIN], |row| {
            Ok((row.get::<_, i64>(0)?, Hash::from_bytes(row.get(1)?)))
        });
        let Some((seq, hash)) = head.optional()? else {
            return Ok(());
        };
        let seal = self.sealer.seal(CHAIN, seq.cast_unsigned(), &hash);
        let sql = "UPDATE chain_heads SET seal = ?2, sealed_seq = seq WHERE chain = ?1";
        transaction.execute(sql, (CHAIN, seal))?;
        transaction.commit()?;
        // On the disk before it is said that it must be there, however commits are flushed.
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        seal::tell_taken_over(seq.cast_unsigned());
        Ok(())
    }

    fn of(directory: &Path, access: Access, options: Options) -> Result<Self, OpenError> {
        let database = directory.join(FILE_NAME);
        let key = Key::load_or_create(directory)?;
        Ok(Self {
            access,
            sealer: Sealer::new(&key, directory, None),
            key,
            process: Process::current(),
            growth: Arc::default(),
            known: KnownEnd::default(),
            written: watch::Sender::new(0),
            health: Health::default(),
            beside_at: ["-wal", "-shm"].map(|end| {
                let mut path = database.clone().into_os_string();
                path.push(end);
                path.into()
            }),
            beside: Mutex::default(),
            index: Index::default(),
            database,
            witness: Witness::new(options.witness.clone()),
            options,
        })
    }

    /// A connection for a [`ledger::Ledger`] that appends. Triggers keep everybody else from changing what is
    /// written; the ledger's only statements on events are inserts, and without triggers those need no way back.
    pub(super) fn connect_writer(&self, patience: Duration) -> rusqlite::Result<Connection> {
        let connection = self.connect_within(patience)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        // Rows of open commands are overwritten as they go, in pages that are written anyway; see `prune` for the others.
        connection.pragma_update(None, "secure_delete", "FAST")?;
        Ok(connection)
    }

    /// A connection that may write. The file must exist: a database that was taken away is trouble,
    /// not the start of an empty one.
    pub(super) fn connect(&self) -> rusqlite::Result<Connection> {
        self.connect_within(self.options.busy_timeout)
    }

    fn connect_within(&self, patience: Duration) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&self.database, flags)?;
        // Rows would be signed with a key that this record does not know.
        let directory = self.database.parent().unwrap_or(Path::new("/"));
        if self.key.is_foreign_to(directory) {
            return Err(trouble::replaced());
        }
        // SQLite opens a file that it may not write for reading only, and would tell much later.
        if connection.is_readonly(rusqlite::MAIN_DB)? {
            return Err(trouble::read_only());
        }
        connection.busy_timeout(patience)?;
        use_wal(&connection, patience)?;
        connection.pragma_update(None, "cache_size", -CACHE_KIBIBYTES)?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
        let synchronous = match self.options.durability {
            Durability::Power => "FULL",
            Durability::Process => "NORMAL",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        Log::configure(&connection)?;
        Log::measure(&mut connection, self.growth.clone())?;
        connection.set_prepared_statement_cache_capacity(ledger::STATEMENTS_KEPT);
        Ok(connection)
    }

    /// A connection that only reads.
    pub(super) fn connect_reader(&self) -> rusqlite::Result<Connection> {
        let connection = match self.access {
            Access::Write => {
                let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                Connection::open_with_flags(&self.database, flags)?
            }
            Access::Read => self.connect_unwritable()?,
        };
        connection.busy_timeout(self.options.busy_timeout)?;
        connection.pragma_update(None, "cache_size", -CACHE_KIBIBYTES)?;
        connection.pragma_update(None, "query_only", true)?;
        Log::configure(&connection)?;
        Ok(connection)
    }

    /// SQLite reads a log only together with its index. Where neither is there, all rows are in the database itself, and nobody
    /// who could write is at work; a log without its index is refused rather than passed over.
    fn connect_unwritable(&self) -> rusqlite::Result<Connection> {
        let [has_log, has_index] = self.beside_at.each_ref().map(|path| path.exists());
        let how = match (has_log, has_index) {
            (true, true) => "mode=ro",
            (false, _) => "immutable=1",
            (true, false) => return Err(trouble::read_only()),
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        Connection::open_with_flags(format!("{}?{how}", address(&self.database)), flags)
    }

    /// Which file stands under the database's name now.
    pub(super) fn identity(&self) -> io::Result<Identity> {
        fs::metadata(&self.database).map(|file| Identity::of(&file))
    }

    /// Whether the log of this database was taken away from under this process, or cut, once and for all.
    pub(super) fn has_lost_log(&self, database: Identity) -> bool {
        let files = self.beside_at.each_ref().map(fs::metadata);
        // A look that failed says nothing of what is there.
        let is_unknown =
            |error: &io::Error| !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        if files.iter().any(|file| file.as_ref().is_err_and(is_unknown)) {
            return matches!(
                *self.beside.lock().unwrap_or_else(PoisonError::into_inner),
                Beside::Lost | Beside::Cut
            );
        }
        let files = files.map(Result::ok);
        let is_cut = files[0]
            .as_ref()
            .is_some_and(|log| self.index.finds_cut(&self.beside_at, log, self.growth.pages_written()));
        let [log, index] = files.map(|file| file.as_ref().map(Identity::of));
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        // What was not there yet may come; what was there stays.
        let stays = |before: &mut Option<Identity>, now: Option<Identity>| match before {
            Some(before) => Some(*before) == now,
            None => {
                *before = now;
                true
            }
        };
        let is_lost = match &mut *beside {
            Beside::Lost | Beside::Cut => return true,
            Beside::Seen {
                database: known,
                log: known_log,
                index: known_index,
            } if *known == database => !stays(known_log, log) || !stays(known_index, index),
            Beside::Seen { .. } | Beside::Unseen => {
                *beside = Beside::Seen { database, log, index };
                false
            }
        };
        if is_lost {
            *beside = Beside::Lost;
        } else if is_cut {
            *beside = Beside::Cut;
        }
        is_lost || is_cut
    }

    /// Whether a part of the log is gone, and not only out of others' reach.
    pub(super) fn has_cut_log(&self) -> bool {
        matches!(*self.beside.lock().unwrap_or_else(PoisonError::into_inner), Beside::Cut)
    }

    /// Whether nobody has begun another log in the place of one that was taken away.
    pub(super) fn has_no_other_log(&self) -> bool {
        let [log, _] = &self.beside_at;
        fs::metadata(log).map_or(true, |file| file.len() == 0)
    }
}

impl Identity {
    fn of(file: &fs::Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
        }
    }
}

/// A path as SQLite takes addresses.
fn address(path: &Path) -> String {
    let mut address = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                address.push(char::from(*byte))
            }
            byte => address.push_str(&format!("%{byte:02X}")),
        }
    }
    address
}

/// The change to WAL does not wait for others by itself as other statements do.
fn use_wal(connection: &Connection, patience: Duration) -> rusqlite::Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        let changed = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match changed {
            Err(error) if trouble::is_busy(&error) && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error),
            Ok(_) => return Ok(()),
        }
    }
}

/// Two continuations of one chain would contradict each other.
fn refuse_moved(directory: &Path) -> Result<(), OpenError> {
    let path = directory.to_owned();
    match moved::to(directory) {
        Ok(None) => Ok(()),
        Ok(Some(to)) => Err(OpenError::Moved {
            path,
            to,
            mark: moved::FILE_NAME,
        }),
        Err(source) => Err(OpenError::Directory { path, source }),
    }
}

pub(crate) fn close_directory(path: &Path) -> Result<(), OpenError> {
    let failed = |source| OpenError::Directory {
        path: path.to_owned(),
        source,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(failed)?;
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    // Closing a directory that others use (say `/tmp`) would do more harm than refusing it. One
    // listing decides: another process may be filling the directory at this moment.
    let names = fs::read_dir(path)
        .and_then(Iterator::collect::<io::Result<Vec<_>>>)
        .map_err(failed)?;
    let is_ours = |entry: &fs::DirEntry| entry.file_name().as_bytes().starts_with(b"record");
    if !names.is_empty() && !names.iter().any(is_ours) {
        return Err(OpenError::Exposed {
            path: path.to_owned(),
            mode,
        });
    }
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed)
}

/// SQLite gives its log and shared memory the mode of the database, so that one is made first. Says whether it was.
fn create_file(path: &Path, directory: &Path) -> io::Result<bool> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => File::open(directory)?.sync_all().map(|()| true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let mode = fs::metadata(path)?.permissions().mode();
            if mode & 0o077 != 0 {
                fs::set_permissions(path, Permissions::from_mode(0o600))?;
            }
            Ok(false)
        }
        Err(e) => Err(e),
    }
}
