//! How a conversation begins, or is taken up: its terms, and what is said first.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::super::driver::{Conversation, DriverError, EventSink, Input, Resume, Start, Taking, Terms, Words};
use super::super::effort::Effort;
use super::super::event::JobEventType;
use super::super::guidance::Guidance;
use super::super::lifecycle::JobStatus;
use super::following::{Follower, Starting};
use crate::limits;
use crate::policy::effective::{Mode, SandboxMode};

/// Said to an agent that is started again in the middle of its work.
const GO_ON: &str = "Your work was cut off, and what you were doing may be half done. Look at how things stand, \
    then go on with what you were asked.";

/// What an agent that only talks is not given, whoever gives it: with these it could publish something.
const PUBLISHING: [&str; 6] = [
    "CODEXK8S_GIT_BOT_TOKEN",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GIT_ASKPASS",
    "KUBECONFIG",
    "SSH_AUTH_SOCK",
];

impl Follower {
    pub(super) async fn starting(&mut self, sink: EventSink) -> Starting {
        let taking = self.taking().await;
        self.is_attached = taking == Taking::WhereItRuns;
        let driver = &self.agent.driver;
        let terms = self.terms(taking).await;
        if !terms.guidance.is_empty() && !driver.takes_guidance() {
            let message = format!(
                "`{}` takes no instructions or settings beside the prompt",
                driver.name()
            );
            return Box::pin(async move { Err(DriverError::Unsupported(message)) });
        }
        let Some(conversation) = &self.session.conversation_id else {
            // An earlier try may have left a process that nobody can speak with.
            if self.job.sub_state.is_some() || self.session.process.is_some() {
                let job = self.supervisor.parts.jobs.mark(&self.job.id);
                driver.reap(job, self.session.process.clone()).await;
            }
            let prompt = self.job.input.message();
            return driver.start(Start { prompt, terms }, sink);
        };
        let words = match self.job.status() {
            JobStatus::Pending => Words::Next(self.job.input.message()),
            JobStatus::Running
            | JobStatus::Completed
            | JobStatus::Failed
            | JobStatus::Cancelled
            | JobStatus::Timeout => Words::IfCutOff(self.go_on().await),
        };
        let resume = Resume {
            conversation_id: conversation.as_str().to_owned(),
            rollout: self.session.rollout.as_ref().map(Into::into),
            process: self.session.process.clone(),
            taking,
            words,
            asked: self.job.input.message(),
            used: self.usage.clone(),
            terms,
        };
        driver.resume(resume, sink)
    }

    /// An agent that still runs keeps the way back that it has: it would not hear of another.
    async fn taking(&self) -> Taking {
        let process = self.session.process.as_ref();
        let runs = process.is_some_and(|process| self.agent.driver.outlives(process));
        if runs && self.session.conversation_id.is_some() && self.supervisor.parts.endpoints.keep(&self.job).await {
            Taking::WhereItRuns
        } else {
            Taking::Anyhow
        }
    }

    /// What an agent is told that goes on, with what was said to it and perhaps never reached it.
    async fn go_on(&self) -> Vec<Input> {
        let mut words = vec![Input::Text(GO_ON.to_owned())];
        let (jobs, session) = (&self.supervisor.parts.jobs, &self.session.id);
        let mut unheard: Vec<Value> = Vec::new();
        let mut after = 0;
        while let Ok(events) = jobs.events(session, after, limits::JOB_EVENTS_AT_ONCE).await {
            let Some(last) = events.last() else { break };
            after = last.seq;
            for stored in events {
                match stored.event.kind {
                    JobEventType::UserMessage => unheard.push(stored.event.data["items"].clone()),
                    JobEventType::CodexAgentMessage | JobEventType::AgentItem => unheard.clear(),
                    _ => {}
                }
            }
        }
        words.extend(unheard.iter().flat_map(super::super::keeping::parts_from));
        words
    }

    async fn terms(&self, taking: Taking) -> Terms {
        let config = &self.session.config;
        let text = |name: &str| config[name].as_str();
        let mode = match &config["approvalPolicy"] {
            Value::String(word) => Mode::parse(word),
            other => other["mode"].as_str().and_then(Mode::parse),
        };
        Terms {
            job_id: self.supervisor.parts.jobs.mark(&self.job.id),
            caller: self.job.owner.as_str().to_owned(),
            cwd: text("cwd").unwrap_or("/").into(),
            model: self.job.input.model.clone(),
            effort: text("reasoningEffort").and_then(Effort::parse),
            // What cannot be read is the strictest.
            mode: mode.unwrap_or(Mode::Untrusted),
            sandbox: text("sandboxPolicy")
                .and_then(SandboxMode::parse)
                .unwrap_or(SandboxMode::ReadOnly),
            keeps_still: self.keeps_still(),
            environment: self.environment().await,
            endpoint: match taking {
                Taking::Anyhow => self.supervisor.parts.endpoints.open(&self.job).await,
                Taking::WhereItRuns => None,
            },
            guidance: Guidance::from_json(&config["guidance"]),
        }
    }

    /// What its definition says, and what its run grants.
    async fn environment(&self) -> BTreeMap<String, String> {
        let mut environment = self.agent.environment.clone();
        environment.extend(self.supervisor.parts.agents.grants(&self.job).await);
        // For agents that have no argument for it.
        let chosen = [
            ("COUNTERSIGN_MODEL", self.job.input.model.as_deref()),
            (
                "COUNTERSIGN_REASONING_EFFORT",
                self.session.config["reasoningEffort"].as_str(),
            ),
        ];
        let chosen = chosen
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        environment.extend(chosen);
        if self.keeps_still() {
            environment.retain(|name, _| !PUBLISHING.contains(&name.as_str()));
        }
        environment
    }

    /// Whether its agent may only talk.
    fn keeps_still(&self) -> bool {
        self.session.config["discussion"] == true
    }
}

/// The agent, once it is there.
pub(super) async fn begun(starting: &mut Option<Starting>) -> Result<Arc<dyn Conversation>, DriverError> {
    let begun = match starting {
        Some(starting) => starting.await,
        None => std::future::pending().await,
    };
    *starting = None;
    begun
}
