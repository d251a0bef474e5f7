//! Any agent that writes one event a line, as its definition says: one process a turn, the prompt its last
//! argument.
//!
//! It has no memory of its own that we could know of, so a conversation that is taken up is a new turn.

mod definition;
mod health;
mod parsing;
mod reading;

use std::sync::Arc;

use countersign_gateway::audit::Pending;
use countersign_gateway::job::driver::{
    AgentDriver, AgentEventKind, Conversation, DriverError, EventSink, Hearing, Input, Probed, ProcessMark, Resume,
    Start, Terms, Words,
};
use uuid::Uuid;

use crate::limits;
use crate::process::{Launch, Launcher, Streams, reap, still, with_endpoint};
use crate::speech::{Speech, Talk, as_text};
use crate::turns::{Recipe, Turns};

pub use definition::{Definition, EventFormat, Health, HealthMethod, InputMode, Parsing};
use reading::Lines;

/// Drives an agent by its definition.
#[derive(Clone, Debug)]
pub struct Jsonl {
    launcher: Launcher,
    definition: Arc<Definition>,
}

struct Turn {
    launcher: Launcher,
    definition: Arc<Definition>,
    terms: Terms,
    conversation_id: String,
}

impl Jsonl {
    pub fn new(launcher: Launcher, definition: Definition) -> Jsonl {
        Jsonl {
            launcher,
            definition: Arc::new(definition),
        }
    }

    async fn begin(
        self,
        conversation_id: String,
        prompt: Vec<Input>,
        terms: Terms,
        events: EventSink,
    ) -> Result<Arc<dyn Conversation>, DriverError> {
        let recipe = Turn {
            launcher: self.launcher.clone(),
            definition: self.definition,
            terms,
            conversation_id,
        };
        let turns = Turns::begin(&self.launcher, Arc::new(recipe), events, &prompt).await?;
        Ok(Arc::new(turns))
    }
}

impl Recipe for Turn {
    fn turn(&self, message: &[Input]) -> Result<(Launch, Box<dyn Speech>), DriverError> {
        let mut command = self.definition.command.clone();
        command.push(as_argument(as_text(message)?)?);
        let mut terms = self.terms.clone();
        // What a run grants is more particular than what a definition says; from one that keeps still it takes away.
        if !terms.keeps_still {
            let given = std::mem::replace(&mut terms.environment, self.definition.env.clone());
            terms.environment.extend(given);
        }
        let launch = Launch {
            command,
            cwd: terms.cwd.clone(),
            environment: with_endpoint(&terms),
            mark: terms.job_id.clone(),
            streams: match self.definition.input {
                InputMode::Open => Streams::Piped,
                InputMode::Closed => Streams::Spoken,
            },
            still: still(&terms),
        };
        Ok((launch, Box::new(Lines::new(&self.definition))))
    }

    fn first(&self) -> Vec<AgentEventKind> {
        vec![AgentEventKind::Started {
            conversation_id: self.conversation_id.clone(),
            rollout: None,
            model: self.terms.model.clone(),
        }]
    }

    fn parser(&self) -> Option<Launch> {
        let EventFormat::Custom { parser } = &self.definition.parsing.format else {
            return None;
        };
        Some(Launch {
            command: parser.clone(),
            cwd: self.terms.cwd.clone(),
            environment: self.definition.env.clone(),
            // Its own, so that it is not ended together with the agent whose last lines it still reads.
            mark: mark_of_parser(&self.terms.job_id),
            streams: Streams::Spoken,
            still: still(&self.terms),
        })
    }

    fn started(&self, talk: &Talk) {
        if let Some(health) = self.definition.health.clone() {
            let terms = self.terms.clone();
            tokio::spawn(health::watch(self.launcher.clone(), health, terms, talk.clone()));
        }
    }
}

fn mark_of_parser(job_id: &str) -> String {
    format!("{job_id}-parser")
}

/// Ends what nobody looks after any more of a job, and of the program that read for it.
async fn reap_all(job_id: &str, process: Option<ProcessMark>) {
    reap(job_id, process).await;
    reap(&mark_of_parser(job_id), None).await;
}

/// A prompt is never an option: whoever writes one does not choose how the agent is started. To a model the blank means
/// nothing. What the kernel takes for no argument is refused at once, since trying again would not help.
fn as_argument(prompt: String) -> Result<String, DriverError> {
    let argument = if prompt.starts_with('-') {
        format!(" {prompt}")
    } else {
        prompt
    };
    if argument.len() > limits::ARGUMENT_BYTES_MAX {
        return Err(DriverError::Unsupported(format!(
            "the prompt has {} bytes, and this agent takes it as an argument of at most {}; put the rest into a file \
             and name it",
            argument.len(),
            limits::ARGUMENT_BYTES_MAX
        )));
    }
    Ok(argument)
}

impl AgentDriver for Jsonl {
    fn name(&self) -> &'static str {
        "jsonl"
    }

    fn hearing(&self) -> Hearing {
        Hearing::ByAnotherProcess
    }

    fn probe(&self) -> Pending<Result<Probed, DriverError>> {
        let driver = self.clone();
        Box::pin(async move {
            let program = driver.definition.command.first().cloned().unwrap_or_default();
            if driver.launcher.find(&program).is_none() {
                return Err(DriverError::Unusable {
                    agent: driver.definition.name.clone(),
                    version: "unknown".to_owned(),
                    reason: format!("`{program}` is no program; correct `agents[].command`"),
                });
            }
            Ok(Probed {
                version: "unknown".to_owned(),
                asks: driver.definition.input == InputMode::Open,
                resumes: false,
                // There is only its definition, and that is what is spoken.
                known: true,
            })
        })
    }

    fn start(&self, start: Start, events: EventSink) -> Pending<Result<Arc<dyn Conversation>, DriverError>> {
        let driver = self.clone();
        Box::pin(async move {
            let id = Uuid::now_v7().to_string();
            driver.begin(id, start.prompt, start.terms, events).await
        })
    }

    fn resume(&self, resume: Resume, events: EventSink) -> Pending<Result<Arc<dyn Conversation>, DriverError>> {
        let driver = self.clone();
        Box::pin(async move {
            reap_all(&resume.terms.job_id, resume.process).await;
            let (Words::Next(prompt) | Words::IfCutOff(prompt)) = resume.words;
            driver.begin(resume.conversation_id, prompt, resume.terms, events).await
        })
    }

    fn reap(&self, job_id: String, process: Option<ProcessMark>) -> Pending<()> {
        Box::pin(async move { reap_all(&job_id, process).await })
    }
}
