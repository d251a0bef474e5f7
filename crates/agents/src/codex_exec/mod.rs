//! Codex, a process a turn, by `codex exec --json`.
//!
//! It asks nobody: what its sandbox refuses is refused. So it takes only jobs of mode `never`.

mod reading;

use std::sync::{Arc, Mutex, PoisonError};

use countersign_gateway::audit::Pending;
use countersign_gateway::job::driver::{
    AgentDriver, AgentEventKind, Conversation, DriverError, EventSink, Hearing, Input, Probed, ProcessMark, Resume,
    Start, Terms, Words,
};
use countersign_gateway::policy::effective::Mode;
use serde_json::json;
use uuid::Uuid;

use crate::codex_app_server::sandbox;
use crate::probe;
use crate::process::{Launch, Launcher, Streams, reap, still, with_endpoint};
use crate::speech::{Speech, as_text};
use crate::turns::{Recipe, Turns};
use reading::Exec;

/// Drives Codex by `codex exec`.
#[derive(Clone, Debug)]
pub struct CodexExec {
    launcher: Launcher,
    command: Vec<String>,
}

/// Versions that were tried; others are used with a warning.
const TRIED: (&str, &str) = ("0.160.0", "0.167.0");

/// The conversation's id, once it has one.
type ThreadId = Arc<Mutex<Option<String>>>;

struct Turn {
    command: Vec<String>,
    terms: Terms,
    can_sandbox: bool,
    thread_id: ThreadId,
}

impl CodexExec {
    /// `command` is the program and what is always said to it, as in `agents[].command`.
    pub fn new(launcher: Launcher, command: Vec<String>) -> CodexExec {
        CodexExec { launcher, command }
    }

    async fn begin(
        self,
        thread_id: Option<String>,
        prompt: Vec<Input>,
        terms: Terms,
        events: EventSink,
    ) -> Result<Arc<dyn Conversation>, DriverError> {
        if terms.mode != Mode::Never {
            return Err(DriverError::Unsupported(
                "`codex-exec` asks nobody, so it takes only jobs of approval mode `never`; use `codex-app-server`"
                    .to_owned(),
            ));
        }
        let recipe = Turn {
            command: self.command.clone(),
            terms,
            can_sandbox: self.launcher.agents_can_sandbox(),
            thread_id: Arc::new(Mutex::new(thread_id)),
        };
        let turns = Turns::begin(&self.launcher, Arc::new(recipe), events, &prompt).await?;
        Ok(Arc::new(turns))
    }
}

impl Recipe for Turn {
    fn turn(&self, message: &[Input]) -> Result<(Launch, Box<dyn Speech>), DriverError> {
        let known = self.thread_id.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let launch = Launch {
            command: self.arguments(known.as_deref()),
            cwd: self.terms.cwd.clone(),
            environment: with_endpoint(&self.terms),
            mark: self.terms.job_id.clone(),
            // Arguments are short, and everybody on the machine can read them.
            streams: Streams::Given(as_text(message)?),
            still: still(&self.terms),
        };
        Ok((
            launch,
            Box::new(Exec::new(Arc::clone(&self.thread_id), self.terms.model.clone())),
        ))
    }

    fn first(&self) -> Vec<AgentEventKind> {
        Vec::new()
    }
}

impl Turn {
    /// Settings are not kept by a conversation, so each turn says them again, before the word `resume`.
    fn arguments(&self, known: Option<&str>) -> Vec<String> {
        let mut arguments = self.command.clone();
        // A definition may name the subcommand itself, as its author would type it.
        if !arguments.iter().any(|argument| argument == "exec") {
            arguments.push("exec".to_owned());
        }
        if !arguments.iter().any(|argument| argument == "--json") {
            arguments.push("--json".to_owned());
        }
        arguments.push("--skip-git-repo-check".to_owned());
        let mode = if self.can_sandbox {
            sandbox(self.terms.sandbox)
        } else {
            "danger-full-access"
        };
        arguments.extend(["--sandbox".to_owned(), mode.to_owned()]);
        if let Some(model) = &self.terms.model {
            arguments.extend(["--model".to_owned(), model.clone()]);
        }
        if let Some(effort) = self.terms.effort {
            let setting = format!("model_reasoning_effort={}", json!(effort.as_str()));
            arguments.extend(["-c".to_owned(), setting]);
        }
        if let Some(endpoint) = &self.terms.endpoint {
            let settings = [
                format!("mcp_servers.countersign.url={}", json!(endpoint.url)),
                "mcp_servers.countersign.bearer_token_env_var=\"COUNTERSIGN_TOKEN\"".to_owned(),
                // Such a call is judged when it reaches us.
                "mcp_servers.countersign.default_tools_approval_mode=\"approve\"".to_owned(),
            ];
            arguments.extend(settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]));
        }
        if let Some(known) = known {
            arguments.extend(["resume".to_owned(), known.to_owned()]);
        }
        arguments.push("-".to_owned());
        arguments
    }
}

impl AgentDriver for CodexExec {
    fn name(&self) -> &'static str {
        "codex-exec"
    }

    fn hearing(&self) -> Hearing {
        Hearing::ByAnotherProcess
    }

    fn probe(&self) -> Pending<Result<Probed, DriverError>> {
        let (launcher, command) = (self.launcher.clone(), self.command.clone());
        Box::pin(async move {
            let version = probe::version(&launcher, &command, "Codex", probe::INSTALL_CODEX).await?;
            Ok(Probed {
                known: probe::is_between(&version, TRIED.0, TRIED.1),
                version,
                asks: false,
                resumes: true,
            })
        })
    }

    fn start(&self, start: Start, events: EventSink) -> Pending<Result<Arc<dyn Conversation>, DriverError>> {
        let driver = self.clone();
        Box::pin(async move { driver.begin(None, start.prompt, start.terms, events).await })
    }

    fn resume(&self, resume: Resume, events: EventSink) -> Pending<Result<Arc<dyn Conversation>, DriverError>> {
        let driver = self.clone();
        Box::pin(async move {
            // Codex takes any other word for the name of a new conversation.
            if Uuid::parse_str(&resume.conversation_id).is_err() {
                let id = resume.conversation_id;
                return Err(DriverError::Lost(format!("`{id}` is no conversation of Codex")));
            }
            reap(&resume.terms.job_id, resume.process).await;
            let (Words::Next(prompt) | Words::IfCutOff(prompt)) = resume.words;
            driver
                .begin(Some(resume.conversation_id), prompt, resume.terms, events)
                .await
        })
    }

    fn reap(&self, job_id: String, process: Option<ProcessMark>) -> Pending<()> {
        Box::pin(async move { reap(&job_id, process).await })
    }
}
