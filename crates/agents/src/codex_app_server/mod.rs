//! Codex's app-server: one process, many conversations, on a socket, so that it outlives us.
//!
//! Its protocol is spoken by hand: the published types are a hundred versions behind, and what is not known
//! here must be kept rather than refused. `the_fields_we_rely_on_are_in_the_schema_of_the_installed_version` holds
//! it against the schema that the program itself prints.

mod follow;
mod line;
mod reading;
mod server;
mod socket;
mod thread;

use std::sync::{Arc, Mutex, OnceLock};

use countersign_gateway::audit::Pending;
use countersign_gateway::job::driver::{
    AgentDriver, AgentEvent, AgentEventKind, Conversation, DriverError, EventSink, Hearing, Input, Probed, ProcessMark,
    Resume, Start, Taking, Terms, Words,
};
use countersign_gateway::policy::effective::{Mode, SandboxMode};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::probe;
use crate::process::{Launcher, MARK, reap, runs};
use crate::speech::noticed;
use follow::Follower;
use line::{CallError, Line, Said};
use reading::Reading;
use server::{Server, Servers};
use thread::{State, Thread};

/// Drives Codex by its app-server.
#[derive(Clone, Debug)]
pub struct CodexAppServer {
    servers: Arc<Servers>,
    can_sandbox: Arc<OnceLock<bool>>,
}

/// Versions that were tried; others are used with a warning.
const TRIED: (&str, &str) = ("0.160.0", "0.167.0");

/// What a conversation is opened with, once there is a line.
struct Opened {
    server: Arc<Server>,
    line: Arc<Line>,
    said: mpsc::Receiver<Said>,
    /// The answer to `thread/start` or `thread/resume`.
    answer: Value,
}

/// A conversation and whoever will follow it.
struct Conversing {
    thread: Thread,
    follower: Follower,
    answer: Value,
}

impl Conversing {
    fn follow(self) -> Thread {
        tokio::spawn(self.follower.follow());
        self.thread
    }
}

impl CodexAppServer {
    /// `command` is the program and what is always said to it, as in `agents[].command`.
    pub fn new(launcher: Launcher, command: Vec<String>) -> CodexAppServer {
        CodexAppServer {
            servers: Arc::new(Servers::new(launcher, command)),
            can_sandbox: Arc::new(OnceLock::new()),
        }
    }

    /// Asks for a conversation on a server that was taken; lets go of it when that fails.
    async fn open(
        &self,
        server: Arc<Server>,
        job_id: &str,
        (method, params): (&str, Value),
        events: &EventSink,
    ) -> Result<Opened, DriverError> {
        let opened = async {
            let told = events.send(noticed(AgentEventKind::Spawned(server.mark.clone()))).await;
            told.map_err(|_| DriverError::Process("nobody follows its events".to_owned()))?;
            let (line, said) = server.line().await?;
            let answer = line.call(method, params).await.map_err(|error| match error {
                CallError::Refused { message } if method == "thread/resume" => DriverError::Lost(message),
                other => other.into(),
            })?;
            Ok((line, said, answer))
        };
        match opened.await {
            Ok((line, said, answer)) => Ok(Opened {
                server,
                line,
                said,
                answer,
            }),
            Err(error) => {
                self.servers.let_go(&server, job_id).await;
                Err(error)
            }
        }
    }

    /// Tells that the conversation is there.
    async fn converse(
        &self,
        opened: Opened,
        terms: &Terms,
        events: EventSink,
        known: Option<&str>,
    ) -> Result<Conversing, DriverError> {
        let text = |path: &str| opened.answer.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let (id, model) = (text("/thread/id"), text("/model"));
        let id = id.filter(|id| known.is_none_or(|known| known == id));
        let Some(id) = id else {
            self.servers.let_go(&opened.server, &terms.job_id).await;
            return Err(DriverError::Lost(
                "the app-server answered with another conversation".to_owned(),
            ));
        };
        let started = AgentEvent {
            kind: AgentEventKind::Started {
                conversation_id: id.clone(),
                rollout: text("/thread/path").map(Into::into),
                model: model.clone(),
            },
            raw: without_turns(&opened.answer),
        };
        let _ = events.send(started).await;
        let state = Arc::new(State {
            servers: Arc::clone(&self.servers),
            server: opened.server,
            job_id: terms.job_id.clone(),
            turn_settings: self.turn_settings(terms),
            reading: Mutex::new(Reading::new(id, model, terms.mode == Mode::Untrusted)),
            line: Mutex::new(opened.line),
            busy: watch::Sender::new(false),
            wish: Mutex::default(),
            released: watch::Sender::new(false),
        });
        // By its name it is known which job a conversation is of, when nobody remembers its id.
        let name = json!({"threadId": state.reading().thread_id(), "name": terms.job_id});
        let _ = state.line().call("thread/name/set", name).await;
        let follower = Follower {
            state: Arc::clone(&state),
            said: opened.said,
            events,
            held: None,
        };
        Ok(Conversing {
            thread: Thread { state },
            follower,
            answer: opened.answer,
        })
    }

    /// Goes on with a conversation that was found in a running process.
    async fn take_up(
        &self,
        opened: Opened,
        words: Words,
        id: &str,
        terms: &Terms,
        events: EventSink,
    ) -> Result<Arc<dyn Conversation>, DriverError> {
        let conversing = self.converse(opened, terms, events.clone(), Some(id)).await?;
        let thread = conversing.thread.clone();
        let turns = conversing
            .answer
            .pointer("/thread/turns")
            .cloned()
            .unwrap_or(Value::Null);
        let missed = thread.state.reading().take_up(&turns);
        thread.state.announce();
        match words {
            Words::Next(prompt) => {
                conversing.follow();
                thread.send(prompt).await?;
            }
            Words::IfCutOff(prompt) if missed.is_empty() => {
                conversing.follow();
                thread.state.begin_turn(&prompt).await?;
            }
            Words::IfCutOff(_) => {
                for event in missed {
                    let _ = events.send(event).await;
                }
                conversing.follow();
            }
        }
        Ok(Arc::new(thread))
    }

    /// Begins a turn of a conversation that is open; without it there is no use for one.
    async fn say(&self, thread: Thread, prompt: &[Input]) -> Result<Arc<dyn Conversation>, DriverError> {
        match thread.state.begin_turn(prompt).await {
            Ok(()) => Ok(Arc::new(thread)),
            Err(error) => {
                thread.stop().await;
                Err(error)
            }
        }
    }

    fn can_sandbox(&self) -> bool {
        *self
            .can_sandbox
            .get_or_init(|| self.servers.launcher().agents_can_sandbox())
    }

    /// What a conversation is under, said when it is made and again when it is taken up.
    fn settings(&self, terms: &Terms) -> Value {
        let mut settings = json!({
            "cwd": terms.cwd,
            "approvalPolicy": policy(terms.mode),
            "approvalsReviewer": "user",
            "sandbox": if self.can_sandbox() { sandbox(terms.sandbox) } else { "danger-full-access" },
            "config": config(terms),
        });
        if let Some(model) = &terms.model {
            settings["model"] = json!(model);
        }
        for (name, text) in [
            ("baseInstructions", &terms.guidance.base),
            ("developerInstructions", &terms.guidance.developer),
        ] {
            if let Some(text) = text {
                settings[name] = json!(text);
            }
        }
        settings
    }

    /// What is said with every turn. An agent that cannot have a sandbox inside ours is told that it is in one.
    fn turn_settings(&self, terms: &Terms) -> Value {
        let is_open = terms.sandbox == SandboxMode::DangerFullAccess;
        if self.can_sandbox() || is_open {
            return json!({});
        }
        json!({"sandboxPolicy": {"type": "externalSandbox", "networkAccess": "restricted"}})
    }
}

/// The conversation's own configuration: the mark of its commands, and the way back to us.
fn config(terms: &Terms) -> Value {
    let mut variables = json!({(MARK): terms.job_id});
    // What is ours comes after it, and wins.
    let mut config = json!(terms.guidance.settings);
    if let Some(effort) = terms.effort {
        config["model_reasoning_effort"] = json!(effort.as_str());
    }
    if let Some(endpoint) = &terms.endpoint {
        variables["COUNTERSIGN_MCP_URL"] = json!(endpoint.url);
        variables["COUNTERSIGN_TOKEN"] = json!(endpoint.token);
        config["mcp_servers"] = json!({"countersign": {"url": endpoint.url,
            "http_headers": {"Authorization": format!("Bearer {}", endpoint.token)},
            // Such a call is judged when it reaches us; asked for before, people would be asked twice.
            "default_tools_approval_mode": "approve"}});
    }
    config["shell_environment_policy"] = json!({"set": variables});
    config
}

/// There is no `on-failure` here: it is sent as `on-request`, and our own rule decides.
fn policy(mode: Mode) -> &'static str {
    match mode {
        Mode::Untrusted => "untrusted",
        Mode::OnRequest | Mode::OnFailure => "on-request",
        Mode::Never => "never",
    }
}

pub(crate) fn sandbox(mode: SandboxMode) -> &'static str {
    match mode {
        SandboxMode::ReadOnly => "read-only",
        SandboxMode::WorkspaceWrite => "workspace-write",
        SandboxMode::DangerFullAccess => "danger-full-access",
    }
}

/// An answer without the whole history that it may carry.
fn without_turns(answer: &Value) -> Value {
    let mut answer = answer.clone();
    if let Some(thread) = answer.get_mut("thread").and_then(Value::as_object_mut) {
        thread.remove("turns");
    }
    answer
}

impl AgentDriver for CodexAppServer {
    fn name(&self) -> &'static str {
        "codex-app-server"
    }

    fn takes_guidance(&self) -> bool {
        true
    }

    fn hearing(&self) -> Hearing {
        Hearing::Always
    }

    fn probe(&self) -> Pending<Result<Probed, DriverError>> {
        let servers = Arc::clone(&self.servers);
        Box::pin(async move {
            let version = probe::version(servers.launcher(), servers.command(), "Codex", probe::INSTALL_CODEX).await?;
            if !probe::is_between(&version, "0.106.0", "1000.0.0") {
                return Err(DriverError::Unusable {
                    agent: "Codex".to_owned(),
                    version,
                    reason: format!("its app-server is too old; update it with `{}`", probe::INSTALL_CODEX),
                });
            }
            Ok(Probed {
                known: probe::is_between(&version, TRIED.0, TRIED.1),
                version,
                asks: true,
                resumes: true,
            })
        })
    }

    fn start(&self, start: Start, events: EventSink) -> Pending<Result<Arc<dyn Conversation>, DriverError>> {
        let driver = self.clone();
        Box::pin(async move {
            let server = driver.servers.take(&start.terms)?;
            let opened = driver
                .open(
                    server,
                    &start.terms.job_id,
                    ("thread/start", driver.settings(&start.terms)),
                    &events,
                )
                .await?;
            let thread = driver.converse(opened, &start.terms, events, None).await?;
            driver.say(thread.follow(), &start.prompt).await
        })
    }

    fn resume(&self, resume: Resume, events: EventSink) -> Pending<Result<Arc<dyn Conversation>, DriverError>> {
        let driver = self.clone();
        Box::pin(async move {
            let id = resume.conversation_id;
            let found = resume
                .process
                .as_ref()
                .and_then(|mark| driver.servers.take_up(mark, &resume.terms));
            if let Some(server) = found {
                let opened = driver
                    .open(
                        server,
                        &resume.terms.job_id,
                        ("thread/resume", json!({"threadId": id})),
                        &events,
                    )
                    .await?;
                return driver.take_up(opened, resume.words, &id, &resume.terms, events).await;
            }
            if resume.taking == Taking::WhereItRuns {
                let gone = "the app-server was gone before its conversation was taken up";
                return Err(DriverError::Process(gone.to_owned()));
            }
            reap(&resume.terms.job_id, None).await;
            driver.servers.end_unrecorded(&resume.terms.job_id).await;
            let server = driver.servers.take(&resume.terms)?;
            let mut settings = driver.settings(&resume.terms);
            settings["threadId"] = json!(id);
            let opened = driver
                .open(server, &resume.terms.job_id, ("thread/resume", settings), &events)
                .await?;
            let thread = driver.converse(opened, &resume.terms, events, Some(&id)).await?;
            let (Words::Next(prompt) | Words::IfCutOff(prompt)) = resume.words;
            driver.say(thread.follow(), &prompt).await
        })
    }

    fn outlives(&self, process: &ProcessMark) -> bool {
        process.socket.is_some() && runs(process)
    }

    fn reap(&self, job_id: String, process: Option<ProcessMark>) -> Pending<()> {
        let servers = Arc::clone(&self.servers);
        Box::pin(async move {
            reap(&job_id, None).await;
            match process {
                Some(mark) => servers.end_unused(&mark, &job_id).await,
                None => servers.end_unrecorded(&job_id).await,
            }
        })
    }
}
