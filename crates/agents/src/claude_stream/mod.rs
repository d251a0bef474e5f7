//! Claude Code, over its standard streams: one process a conversation, many turns, questions by its control
//! protocol.
//!
//! The conversation's id is chosen before the process starts, so that it is on record whatever happens then.
//! Claude keeps no lock on a conversation: before one is taken up again, what still writes to it is ended.

mod questions;
mod reading;

use std::path::PathBuf;
use std::sync::Arc;

use countersign_gateway::audit::Pending;
use countersign_gateway::job::driver::{
    AgentDriver, AgentEventKind, Conversation, DriverError, EventSink, Hearing, Input, Probed, ProcessMark, Resume,
    Start, Terms, Words,
};
use serde_json::json;
use uuid::Uuid;

use crate::probe;
use crate::process::{Launch, Launcher, Streams, reap, still, with_endpoint};
use crate::speech::{Opening, Talk};
use reading::Claude;

/// Drives Claude Code.
#[derive(Clone, Debug)]
pub struct ClaudeStream {
    launcher: Launcher,
    command: Vec<String>,
}

/// Versions that were tried; others are used with a warning.
const TRIED: (&str, &str) = ("2.1.300", "2.2.0");

impl ClaudeStream {
    /// `command` is the program and what is always said to it, as in `agents[].command`.
    pub fn new(launcher: Launcher, command: Vec<String>) -> ClaudeStream {
        ClaudeStream { launcher, command }
    }

    async fn begin(
        self,
        conversation: Which,
        prompt: Vec<Input>,
        terms: Terms,
        events: EventSink,
    ) -> Result<Arc<dyn Conversation>, DriverError> {
        let id = conversation.id().to_owned();
        let launch = Launch {
            command: self.arguments(&conversation, &terms),
            cwd: terms.cwd.clone(),
            environment: with_endpoint(&terms),
            mark: terms.job_id.clone(),
            streams: Streams::Piped,
            still: still(&terms),
        };
        let started = AgentEventKind::Started {
            conversation_id: id.clone(),
            rollout: None,
            model: terms.model.clone(),
        };
        let opening = Opening {
            launch,
            parser: None,
            speech: Box::new(Claude::new(id, terms.cwd.clone(), prompt)),
            first: vec![started],
        };
        let talk = Talk::begin(&self.launcher, opening, events).await?;
        Ok(Arc::new(talk))
    }

    /// Whether Claude has written anything of a conversation. It does so a moment after a turn began.
    fn has_kept(&self, id: &str, terms: &Terms) -> bool {
        let given = terms.environment.get("CLAUDE_CONFIG_DIR").map(PathBuf::from);
        let place = given.unwrap_or_else(|| self.launcher.home().join(".claude"));
        let Ok(projects) = std::fs::read_dir(place.join("projects")) else {
            return false;
        };
        let file = format!("{id}.jsonl");
        projects.flatten().any(|project| project.path().join(&file).exists())
    }

    fn arguments(&self, conversation: &Which, terms: &Terms) -> Vec<String> {
        let mut arguments = self.command.clone();
        let fixed = [
            "--print",
            "--output-format=stream-json",
            "--input-format=stream-json",
            "--verbose",
            "--include-partial-messages",
            "--permission-prompt-tool=stdio",
            // Every act that needs permission is asked for; who may allow it is not the agent's business.
            "--permission-mode=default",
            // A project's settings could allow acts without a question, and the agent can write them.
            "--setting-sources=user",
        ];
        arguments.extend(fixed.map(str::to_owned));
        arguments.push(match conversation {
            Which::New(id) => format!("--session-id={id}"),
            Which::Known(id) => format!("--resume={id}"),
        });
        if let Some(model) = &terms.model {
            arguments.push(format!("--model={model}"));
        }
        if let Some(effort) = terms.effort {
            arguments.push(format!("--effort={}", effort.as_str()));
        }
        if let Some(endpoint) = &terms.endpoint {
            // The token itself stays out of the arguments, which everybody on the machine can read.
            let server = json!({"type": "http", "url": endpoint.url,
                "headers": {"Authorization": "Bearer ${COUNTERSIGN_TOKEN}"}});
            let servers = json!({"mcpServers": {"countersign": server}});
            arguments.push(format!("--mcp-config={servers}"));
            // Such a call is judged when it reaches us; asked for before, people would be asked twice.
            arguments.push("--allowedTools=mcp__countersign".to_owned());
        }
        arguments
    }
}

/// Which conversation it is.
#[derive(Debug)]
enum Which {
    New(String),
    Known(String),
}

impl Which {
    fn id(&self) -> &str {
        match self {
            Which::New(id) | Which::Known(id) => id,
        }
    }
}

impl AgentDriver for ClaudeStream {
    fn name(&self) -> &'static str {
        "claude-stream"
    }

    fn hearing(&self) -> Hearing {
        Hearing::BetweenTurns
    }

    fn probe(&self) -> Pending<Result<Probed, DriverError>> {
        let (launcher, command) = (self.launcher.clone(), self.command.clone());
        Box::pin(async move {
            let install = "npm install -g @anthropic-ai/claude-code";
            let version = probe::version(&launcher, &command, "Claude Code", install).await?;
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
            let id = Which::New(Uuid::new_v4().to_string());
            driver.begin(id, start.prompt, start.terms, events).await
        })
    }

    fn resume(&self, resume: Resume, events: EventSink) -> Pending<Result<Arc<dyn Conversation>, DriverError>> {
        let driver = self.clone();
        Box::pin(async move {
            reap(&resume.terms.job_id, resume.process).await;
            let id = resume.conversation_id;
            // It ends with us, so a turn that was under way has been cut off.
            let (which, prompt) = match (driver.has_kept(&id, &resume.terms), resume.words) {
                (true, Words::Next(prompt) | Words::IfCutOff(prompt)) | (false, Words::Next(prompt)) => {
                    (Which::Known(id), prompt)
                }
                // It was lost before it had written anything, so it begins, under the name that is known.
                (false, Words::IfCutOff(_)) => (Which::New(id), resume.asked),
            };
            driver.begin(which, prompt, resume.terms, events).await
        })
    }

    fn reap(&self, job_id: String, process: Option<ProcessMark>) -> Pending<()> {
        Box::pin(async move { reap(&job_id, process).await })
    }
}

/// A path of Claude's, which may be relative to where it works.
fn absolute(cwd: &std::path::Path, path: &str) -> PathBuf {
    cwd.join(path)
}
