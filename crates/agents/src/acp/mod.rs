//! Any agent that speaks the Agent Client Protocol, over its standard streams.
//!
//! It is the driver for agents that have none of their own here: what it cannot do is come back to a process
//! that outlived us, tell errors apart, or end commands that run in the background by name.

mod questions;
mod reading;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use countersign_gateway::audit::Pending;
use countersign_gateway::job::driver::{
    AgentDriver, Conversation, DriverError, EventSink, Hearing, Input, Probed, ProcessMark, Resume, Start, Terms, Words,
};
use serde_json::Value;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::time::timeout;
use uuid::Uuid;

use crate::limits;
use crate::process::{Launch, Launcher, Line, Lines, Streams, reap, still, with_endpoint};
use crate::speech::{Opening, Talk, text_at};
use reading::{Client, Known};

/// Drives an agent by the Agent Client Protocol.
#[derive(Clone, Debug)]
pub struct Acp {
    launcher: Launcher,
    command: Vec<String>,
}

impl Acp {
    /// `command` is the program and its arguments, such as `gemini --acp`.
    pub fn new(launcher: Launcher, command: Vec<String>) -> Acp {
        Acp { launcher, command }
    }

    async fn begin(
        self,
        known: Option<Known>,
        prompt: Vec<Input>,
        terms: Terms,
        events: EventSink,
    ) -> Result<Arc<dyn Conversation>, DriverError> {
        let opening = Opening {
            launch: self.launch(&terms),
            parser: None,
            speech: Box::new(Client::new(self.name_of(), known, &terms, prompt)),
            first: Vec::new(),
        };
        let talk = Talk::begin(&self.launcher, opening, events).await?;
        Ok(Arc::new(talk))
    }

    fn launch(&self, terms: &Terms) -> Launch {
        Launch {
            command: self.command.clone(),
            cwd: terms.cwd.clone(),
            environment: self.environment(terms),
            mark: terms.job_id.clone(),
            streams: Streams::Piped,
            still: still(terms),
        }
    }

    /// What its definition sets wins.
    fn environment(&self, terms: &Terms) -> BTreeMap<String, String> {
        let habits = habits(&self.name_of()).iter();
        let mut environment: BTreeMap<_, _> = habits
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        environment.extend(with_endpoint(terms));
        environment
    }

    fn name_of(&self) -> String {
        let program = self.command.first().map(Path::new).and_then(Path::file_name);
        program.map_or_else(|| "the agent".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// Starts it only to be introduced.
    async fn introduce(&self) -> Result<Value, DriverError> {
        let mut process = self.launcher.start(Launch {
            command: self.command.clone(),
            cwd: Path::new("/").to_owned(),
            environment: Default::default(),
            mark: format!("probe-{}", Uuid::now_v7().simple()),
            streams: Streams::Piped,
            still: None,
        })?;
        let asked = async {
            let (mut stdin, stdout) = (process.stdin.take()?, process.stdout.take()?);
            stdin
                .write_all(format!("{}\n", reading::initialize()).as_bytes())
                .await
                .ok()?;
            let mut lines = Lines::new(BufReader::new(stdout));
            loop {
                let Line::Text(text) = lines.next().await.ok()?? else {
                    continue;
                };
                let answer = serde_json::from_str::<Value>(&text).ok();
                if let Some(result) = answer.as_ref().and_then(|answer| answer.get("result")) {
                    return Some(result.clone());
                }
            }
        };
        let answered = timeout(limits::PROBE_WAIT, asked).await;
        process.end().await;
        match answered {
            Ok(Some(result)) => Ok(result),
            Ok(None) => Err(DriverError::Protocol(format!(
                "`{}` does not introduce itself",
                self.name_of()
            ))),
            Err(_) => Err(DriverError::Silent(limits::PROBE_WAIT)),
        }
    }
}

/// What makes an agent ask that would let itself do anything. What it does through us is judged when it reaches
/// us, and a project's settings, which the agent can write, do not count.
fn habits(program: &str) -> &'static [(&'static str, &'static str)] {
    match program {
        "opencode" => &[
            (
                "OPENCODE_PERMISSION",
                r#"{"*": "ask", "read": "allow", "list": "allow", "glob": "allow", "grep": "allow", "todowrite": "allow", "todoread": "allow", "countersign_*": "allow"}"#,
            ),
            ("OPENCODE_DISABLE_PROJECT_CONFIG", "1"),
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        ],
        _ => &[],
    }
}

/// How agents that are known to speak it are installed.
fn install(program: &str) -> Option<&'static str> {
    let command = match program {
        "gemini" => "npm install -g @google/gemini-cli",
        "qwen" => "npm install -g @qwen-code/qwen-code",
        "opencode" => "npm install -g opencode-ai",
        "copilot" => "npm install -g @github/copilot",
        "auggie" => "npm install -g @augmentcode/auggie",
        "codex-acp" => "npm install -g @agentclientprotocol/codex-acp",
        "claude-agent-acp" => "npm install -g @agentclientprotocol/claude-agent-acp",
        _ => return None,
    };
    Some(command)
}

impl AgentDriver for Acp {
    fn name(&self) -> &'static str {
        "acp"
    }

    fn hearing(&self) -> Hearing {
        Hearing::BetweenTurns
    }

    fn probe(&self) -> Pending<Result<Probed, DriverError>> {
        let driver = self.clone();
        Box::pin(async move {
            let program = driver.command.first().cloned().unwrap_or_default();
            if driver.launcher.find(&program).is_none() {
                return Err(match install(&driver.name_of()) {
                    Some(install) => DriverError::Missing {
                        agent: driver.name_of(),
                        install: install.to_owned(),
                    },
                    None => DriverError::Unusable {
                        agent: driver.name_of(),
                        version: "unknown".to_owned(),
                        reason: format!("`{program}` is no program; correct `agents[].command`"),
                    },
                });
            }
            let introduced = driver.introduce().await?;
            let loads = introduced.pointer("/agentCapabilities/loadSession") == Some(&Value::Bool(true));
            Ok(Probed {
                version: text_at(&introduced, &["agentInfo", "version"])
                    .unwrap_or("unknown")
                    .to_owned(),
                asks: true,
                resumes: loads,
                known: introduced.get("protocolVersion").and_then(Value::as_u64) == Some(reading::VERSION),
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
            reap(&resume.terms.job_id, resume.process).await;
            let (Words::Next(prompt) | Words::IfCutOff(prompt)) = resume.words;
            let known = Known {
                session_id: resume.conversation_id,
                used: resume.used,
            };
            driver.begin(Some(known), prompt, resume.terms, events).await
        })
    }

    fn reap(&self, job_id: String, process: Option<ProcessMark>) -> Pending<()> {
        Box::pin(async move { reap(&job_id, process).await })
    }
}
