//! A PostgreSQL for tests: a cluster in a directory of its own, on a socket there and on a loopback port.
//!
//! Included by `#[path]`, so that the tests of every crate share it and no crate is needed for it. The server runs as an
//! ordinary user, flushes to the disk as it does in earnest, and ends when the test's process ends, however that
//! happens: a small shell holds the other end of a pipe, and cleans up when the pipe closes.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stderr)]

use std::ffi::OsStr;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The role of the tests: the cluster's superuser.
const USER: &str = "countersign";
const PASSWORD: &str = "countersign";
/// How long a server may take to start or stop on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The cluster that all tests of this process share. None, with a word about it, where PostgreSQL is not installed
/// and need not be.
pub(crate) fn cluster() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    SHARED.get_or_init(Cluster::start).as_ref()
}

pub(crate) struct Cluster {
    directory: PathBuf,
    port: u16,
    /// What its keeper is told; when this closes, the keeper ends the server and removes the directory.
    orders: Mutex<Option<ChildStdin>>,
    keeper: Mutex<Child>,
    databases: AtomicU64,
}

/// A database of one test's own.
pub(crate) struct Database {
    pub(crate) name: String,
    /// Over TCP, with a password.
    pub(crate) url: String,
    /// Over the socket in the cluster's directory, without one.
    pub(crate) socket_url: String,
}

impl Cluster {
    /// A cluster of its own, for a test that stops it.
    pub(crate) fn start() -> Option<Self> {
        let programs = programs()?;
        let directory = tempfile::Builder::new().prefix("cs-pg-").tempdir().unwrap().keep();
        let user = ordinary_user();
        if let Some((uid, gid)) = user {
            chown(&directory, Some(uid), Some(gid)).unwrap();
        }
        lay_out(&programs, &directory, user);
        let port = free_port();
        let mut keeper = as_user(user, "sh")
            .arg("-c")
            .arg(KEEPER)
            .arg("keeper")
            .arg(programs.join("postgres"))
            .arg(&directory)
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let orders = Mutex::new(keeper.stdin.take());
        let cluster = Self {
            directory,
            port,
            orders,
            keeper: Mutex::new(keeper),
            databases: AtomicU64::new(0),
        };
        cluster.wait_until_it_answers();
        Some(cluster)
    }

    /// An empty database.
    pub(crate) fn database(&self) -> Database {
        // A new cluster has one that nobody uses yet.
        let name = match self.databases.fetch_add(1, Ordering::Relaxed) {
            0 => "postgres".to_owned(),
            number => {
                let name = format!("test_{number}");
                assert_done(&self.program("createdb").arg(&name).output().unwrap());
                name
            }
        };
        let socket = self.directory.display().to_string().replace('/', "%2F");
        let port = self.port;
        Database {
            url: format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{port}/{name}"),
            socket_url: format!("postgres://{USER}@{socket}:{port}/{name}"),
            name,
        }
    }

    /// SQL by whoever has the password: one or several statements.
    pub(crate) fn run(&self, database: &Database, statements: &str) -> Result<String, String> {
        self.run_at(&database.name, statements)
    }

    /// The same where only a name or an address of the database is at hand.
    pub(crate) fn run_at(&self, database: &str, statements: &str) -> Result<String, String> {
        let done = self
            .program("psql")
            .args([
                "-X",
                "-q",
                "-At",
                "-v",
                "ON_ERROR_STOP=1",
                "-d",
                database,
                "-c",
                statements,
            ])
            .output()
            .unwrap();
        if done.status.success() {
            Ok(String::from_utf8_lossy(&done.stdout).trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&done.stderr).into_owned())
        }
    }

    /// Ends all connections to a database, as an operator or a failing network would.
    pub(crate) fn cut_connections(&self, database: &Database) {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        self.run(database, sql).unwrap();
    }

    /// Stops the server as a crash would: no connection is finished, nothing is written in order.
    pub(crate) fn stop(&self) {
        self.order("stop");
        let start = Instant::now();
        while self.directory.join("data/postmaster.pid").exists() {
            assert!(start.elapsed() < PATIENCE, "the server does not stop");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts it again, on the same port.
    pub(crate) fn start_again(&self) {
        self.order("start");
        self.wait_until_it_answers();
    }

    fn order(&self, word: &str) {
        let mut orders = self.orders.lock().unwrap();
        writeln!(orders.as_mut().unwrap(), "{word}").unwrap();
    }

    fn wait_until_it_answers(&self) {
        let start = Instant::now();
        while !self.answers() {
            if start.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
                panic!("the server does not answer: {log}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The server keeps its state in the eighth line of this file; reading it is cheaper than asking.
    fn answers(&self) -> bool {
        let state = std::fs::read_to_string(self.directory.join("data/postmaster.pid")).unwrap_or_default();
        state.lines().nth(7).is_some_and(|word| word.trim() == "ready")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(programs().unwrap().join(name));
        command
            .env("PGHOST", &self.directory)
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", USER)
            .env("PGCONNECT_TIMEOUT", "10");
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.orders.lock().unwrap().take());
        let _ = self.keeper.lock().unwrap().wait();
    }
}

/// Starts the server, obeys, and cleans up when nobody can give orders any more.
const KEEPER: &str = r#"
postgres=$1 directory=$2 port=$3
start() {
  "$postgres" -D "$directory/data" >>"$directory/log" 2>&1 \
    -c unix_socket_directories="$directory" -c listen_addresses=127.0.0.1 -c port="$port" \
    -c shared_buffers=16MB -c max_connections=120 -c fsync=on -c synchronous_commit=on &
  server=$!
}
stop() { kill -QUIT "$server" 2>/dev/null; wait "$server"; rm -f "$directory/data/postmaster.pid"; }
start
while read -r order; do
  case $order in stop) stop ;; start) start ;; esac
done
stop
cd / && rm -rf "$directory"
"#;

/// Where PostgreSQL's programs are: where the set-up left a link, else in the usual places.
fn programs() -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let linked = home().join("bin");
        let mut places: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
            .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
            .unwrap_or_default();
        places.sort();
        places.push(linked);
        places.into_iter().rev().find(|place| place.join("initdb").exists())
    });
    if found.is_none() {
        let is_required = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
        assert!(
            !is_required("COUNTERSIGN_REQUIRE_POSTGRES", "1") && !is_required("CI", "true"),
            "PostgreSQL is not installed; run tests/postgres/setup"
        );
        eprintln!("skipped: PostgreSQL is not installed; run tests/postgres/setup");
    }
    found.clone()
}

fn home() -> PathBuf {
    let given = std::env::var_os("COUNTERSIGN_POSTGRES").map(PathBuf::from);
    given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/postgres"))
}

/// The server refuses to run as root: then as its own user where there is one, else as nobody.
fn ordinary_user() -> Option<(u32, u32)> {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let own = users.lines().find_map(|line| {
        let mut fields = line.strip_prefix("postgres:")?.split(':').skip(1);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    });
    Some(own.unwrap_or((65_534, 65_534)))
}

fn as_user(user: Option<(u32, u32)>, program: impl AsRef<OsStr>) -> Command {
    let Some((uid, gid)) = user else {
        return Command::new(program);
    };
    let mut command = Command::new("setpriv");
    command
        .arg(format!("--reuid={uid}"))
        .arg(format!("--regid={gid}"))
        .args(["--clear-groups", "--"])
        .arg(program)
        .current_dir("/");
    command
}

/// Fills the data directory: by a copy of one that was made before, which is much faster than making it.
fn lay_out(programs: &Path, directory: &Path, user: Option<(u32, u32)>) {
    let version = Command::new(programs.join("postgres"))
        .arg("--version")
        .output()
        .unwrap();
    let version: String = String::from_utf8_lossy(&version.stdout)
        .chars()
        .map(|it| {
            if it.is_ascii_alphanumeric() || it == '.' {
                it
            } else {
                '-'
            }
        })
        .collect();
    let template = home().join(format!(
        "{}-{}",
        version.trim_matches('-'),
        user.map_or(0, |(uid, _)| uid)
    ));
    let data = directory.join("data");
    let copy = |from: &Path, to: &Path| Command::new("cp").arg("-a").arg(from).arg(to).output().unwrap();
    if template.exists() {
        assert_done(&copy(&template, &data));
        return;
    }
    let password = directory.join("password");
    std::fs::write(&password, PASSWORD).unwrap();
    if let Some((uid, gid)) = user {
        chown(&password, Some(uid), Some(gid)).unwrap();
    }
    let made = as_user(user, programs.join("initdb"))
        .args(["--encoding=UTF8", "--locale=C", "--wal-segsize=4", "--no-instructions"])
        .args([
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "-U",
            USER,
            "--pwfile",
        ])
        .arg(&password)
        .arg("-D")
        .arg(&data)
        .output()
        .unwrap();
    assert_done(&made);
    std::fs::create_dir_all(home()).unwrap();
    let draft = home().join(format!("draft-{}", std::process::id()));
    assert_done(&copy(&data, &draft));
    // Another process may have been first; its template is as good.
    if std::fs::rename(&draft, &template).is_err() {
        let _ = std::fs::remove_dir_all(&draft);
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn assert_done(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
