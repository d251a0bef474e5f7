//! App-server processes: who shares one, how one is found again, when one is ended.
//!
//! A process is shared by the conversations of one caller, directory, sandbox and environment. It is detached:
//! it outlives us, and whoever comes after finds it by the mark that was recorded, and its cgroup by the name
//! of the directory its socket is in.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_gateway::job::driver::{DriverError, ProcessMark, Terms};
use countersign_gateway::policy::effective::SandboxMode;
use countersign_sandbox::agent;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::line::{Line, Said};
use crate::limits;
use crate::process::{self, Ending, Launch, Launcher, Place, Streams, Tree};
use crate::speech::{how_it_ended, text_at};

/// How the names of processes begin, which are their marks as well.
const NAMED: &str = "codex-";
const SOCKET: &str = "app-server";

/// Those for whom one process is enough.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Key {
    caller: String,
    cwd: PathBuf,
    sandbox: SandboxMode,
    keeps_still: bool,
    environment: BTreeMap<String, String>,
}

impl Key {
    pub(super) fn of(terms: &Terms) -> Key {
        Key {
            caller: terms.caller.clone(),
            cwd: terms.cwd.clone(),
            sandbox: terms.sandbox,
            keeps_still: terms.keeps_still,
            environment: terms.environment.clone(),
        }
    }
}

/// One process.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) mark: ProcessMark,
    place: Place,
    tree: Tree,
    name: String,
    /// How it ended, of a process that we started ourselves.
    ending: Option<watch::Receiver<Option<Ending>>>,
}

#[derive(Debug)]
struct Shared {
    key: Key,
    server: Arc<Server>,
    users: usize,
}

/// The processes that conversations of ours use.
#[derive(Debug)]
pub(super) struct Servers {
    launcher: Launcher,
    command: Vec<String>,
    running: Mutex<Vec<Shared>>,
}

impl Servers {
    pub(super) fn new(launcher: Launcher, command: Vec<String>) -> Servers {
        Servers {
            launcher,
            command,
            running: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn launcher(&self) -> &Launcher {
        &self.launcher
    }

    pub(super) fn command(&self) -> &[String] {
        &self.command
    }

    /// A process for these terms: one that is shared already, else a new one. Every taking needs a letting go.
    pub(super) fn take(&self, terms: &Terms) -> Result<Arc<Server>, DriverError> {
        let key = Key::of(terms);
        let mut running = self.running();
        running.retain(|shared| shared.users > 0 || shared.server.runs());
        if let Some(shared) = running
            .iter_mut()
            .find(|shared| shared.key == key && shared.server.runs())
        {
            shared.users += 1;
            return Ok(Arc::clone(&shared.server));
        }
        let server = Arc::new(self.launch(terms)?);
        running.push(Shared {
            key,
            server: Arc::clone(&server),
            users: 1,
        });
        Ok(server)
    }

    /// A process that was recorded, if it is still that one.
    pub(super) fn take_up(&self, mark: &ProcessMark, terms: &Terms) -> Option<Arc<Server>> {
        let mut running = self.running();
        let is_it =
            |shared: &&mut Shared| shared.server.mark.pid == mark.pid && shared.server.mark.started == mark.started;
        if let Some(shared) = running.iter_mut().find(is_it) {
            return shared.server.runs().then(|| {
                shared.users += 1;
                Arc::clone(&shared.server)
            });
        }
        let server = Arc::new(Server::recorded(&self.launcher, mark)?);
        running.push(Shared {
            key: Key::of(terms),
            server: Arc::clone(&server),
            users: 1,
        });
        Some(server)
    }

    /// Lets go of a process for a job. With its last user it is ended, unless it still works for somebody who
    /// has not come back to it yet. A turn of this job that does not end is nobody's any more.
    pub(super) async fn let_go(&self, server: &Arc<Server>, job_id: &str) {
        let is_last = {
            let mut running = self.running();
            let place = running.iter().position(|shared| Arc::ptr_eq(&shared.server, server));
            place.is_some_and(|place| {
                running[place].users -= 1;
                let is_last = running[place].users == 0;
                if is_last {
                    running.remove(place);
                }
                is_last
            })
        };
        if is_last && !server.works_for_others(job_id).await {
            server.end().await;
        }
    }

    /// Ends the turn of a job that nobody looks after, and a recorded process that then works for nobody.
    pub(super) async fn end_unused(&self, mark: &ProcessMark, job_id: &str) {
        let is_used = self
            .running()
            .iter()
            .any(|shared| shared.server.mark.pid == mark.pid && shared.server.mark.started == mark.started);
        let Some(server) = Server::recorded(&self.launcher, mark).filter(|_| !is_used) else {
            return;
        };
        server.abandon(job_id).await;
        if !server.works_for_others(job_id).await {
            server.end().await;
        }
    }

    /// Ends processes that were started for a job by somebody who died before that was on record. Nobody else
    /// knows of them.
    pub(super) async fn end_unrecorded(&self, job_id: &str) {
        let job = job_id.to_owned();
        let found = tokio::task::spawn_blocking(move || process::started_for(&job)).await;
        let Ok(Ok(found)) = found else {
            return tracing::warn!(job = job_id, "what was started for a job cannot be looked for");
        };
        let servers = found.into_iter().filter(|(_, name)| name.starts_with(NAMED));
        // What such a process started is found beside it, and goes with it.
        for (mark, name) in servers {
            let socket = Some(self.launcher.place_of(&name).socket);
            self.end_unused(&ProcessMark { socket, ..mark }, job_id).await;
        }
    }

    fn running(&self) -> MutexGuard<'_, Vec<Shared>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn launch(&self, terms: &Terms) -> Result<Server, DriverError> {
        let name = format!("{NAMED}{}", Uuid::now_v7().simple());
        let place = self.launcher.place(&name)?;
        let mut command = self.command.clone();
        command.extend([
            "app-server".to_owned(),
            "--listen".to_owned(),
            format!("unix://{}", place.room.join(SOCKET).display()),
        ]);
        let mut environment = terms.environment.clone();
        environment.insert(process::STARTED_FOR.to_owned(), terms.job_id.clone());
        let started = self.launcher.start(Launch {
            command,
            cwd: terms.cwd.clone(),
            environment,
            mark: name.clone(),
            streams: Streams::Detached { errors: place.errors() },
            still: process::still(terms),
        });
        let process = started.inspect_err(|_| place.forget())?;
        Ok(Server {
            mark: ProcessMark {
                socket: Some(place.socket.clone()),
                ..process.mark
            },
            place,
            tree: process.tree,
            name,
            ending: Some(process.ending),
        })
    }
}

impl Server {
    fn recorded(launcher: &Launcher, mark: &ProcessMark) -> Option<Server> {
        let name = mark.socket.as_ref()?.file_name()?.to_str()?.to_owned();
        process::runs(mark).then(|| Server {
            mark: mark.clone(),
            place: launcher.place_of(&name),
            tree: Tree::of(&name, Some(mark.clone())),
            name,
            ending: None,
        })
    }

    pub(super) fn runs(&self) -> bool {
        process::runs(&self.mark)
    }

    /// A line of its own for a conversation; a process that has just started is waited for.
    pub(super) async fn line(&self) -> Result<(Arc<Line>, mpsc::Receiver<Said>), DriverError> {
        let deadline = Instant::now() + limits::LISTEN_WAIT;
        loop {
            match Line::open(&self.socket()).await {
                Ok(line) => return Ok(line),
                Err(_) if !self.runs() => {
                    let how = how_it_ended("the app-server", self.ending().await, &self.last_words());
                    return Err(DriverError::Process(how));
                }
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Where it is listened to. It makes its socket where its own user can reach it, and so could the commands
    /// that it runs, to answer their own questions: we take it away from there first.
    fn socket(&self) -> PathBuf {
        let link = self.place.room.join(SOCKET);
        let made = fs::read_link(&link).unwrap_or(link);
        let taken = match process::user_of(self.mark.pid) {
            Some(user) => self.place.take(&made, user),
            None => Ok(()),
        };
        match taken {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                tracing::warn!(%error, socket = %made.display(), "commands of an agent can reach its app-server");
                return made;
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, socket = %made.display(), "this is not taken for the socket of an agent");
            }
            Ok(()) | Err(_) => {}
        }
        self.place.socket.clone()
    }

    /// What it wrote to nobody, or the end of it.
    pub(super) fn last_words(&self) -> String {
        self.place.last_words(limits::STDERR_BYTES_KEPT as u64)
    }

    /// How a process that is gone ended; of one that another started nobody can say.
    pub(super) async fn ending(&self) -> Ending {
        let Some(ending) = self.ending.clone() else {
            return Ending::UNKNOWN;
        };
        let ended = tokio::time::timeout(limits::TERMINATE_GRACE, Ending::of(ending)).await;
        ended.unwrap_or(Ending::UNKNOWN)
    }

    /// Whether a turn runs that is of another job. One of this job that an interrupt did not end hangs, and
    /// holds nobody else up.
    async fn works_for_others(&self, job_id: &str) -> bool {
        let is_of_another = |thread: &Value| text_at(thread, &["name"]) != Some(job_id);
        self.active()
            .await
            .is_some_and(|(_, active)| active.iter().any(is_of_another))
    }

    /// Interrupts the turn of a job, by the name that its conversation was given.
    async fn abandon(&self, job_id: &str) {
        let Some((line, active)) = self.active().await else {
            return;
        };
        for thread in active
            .iter()
            .filter(|thread| text_at(thread, &["name"]) == Some(job_id))
        {
            let (id, turn) = (thread.get("id"), thread.pointer("/turns").and_then(Value::as_array));
            let turn_id = turn.and_then(|turns| turns.last()?.get("id"));
            let params = json!({"threadId": id, "turnId": turn_id});
            let _ = line.call_within(limits::PROTOCOL_GRACE, "turn/interrupt", params).await;
            let clean = json!({"threadId": id});
            let _ = line
                .call_within(limits::PROTOCOL_GRACE, "thread/backgroundTerminals/clean", clean)
                .await;
        }
    }

    /// Conversations with a turn running, and a line to speak of them.
    async fn active(&self) -> Option<(Arc<Line>, Vec<Value>)> {
        let (line, _said) = Line::open(&self.socket()).await.ok()?;
        let loaded = line.call("thread/loaded/list", json!({})).await.ok()?;
        let mut active = Vec::new();
        for id in loaded.get("data").and_then(Value::as_array).into_iter().flatten() {
            let read = line
                .call("thread/read", json!({"threadId": id, "includeTurns": true}))
                .await;
            let thread = read.ok().and_then(|read| read.get("thread").cloned());
            active.extend(thread.filter(|thread| text_at(thread, &["status", "type"]) == Some("active")));
        }
        Some((line, active))
    }

    async fn end(&self) {
        process::end(&self.mark, &self.tree).await;
        agent::forget(&self.name);
        self.place.forget();
    }
}
