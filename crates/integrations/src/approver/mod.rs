//! An approver over HTTP: a service of the operator's that is shown every question and may answer it, at
//! once or later by a callback.
//!
//! What it says decides, also when it says no by failing: an answer that is no decision is a no. What it
//! does *not* say decides nothing. An approver that cannot be reached is tried again for a while, and the
//! question stays with everybody else. One that has the question is never asked again, since nobody
//! should decide twice; only a server that starts shows it what is still open.

mod answer;
mod question;

use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::approval::Approver;
use countersign_gateway::approval::ballot::{Ballot, Choice, Decider};
use countersign_gateway::approval::journal::{Asking, Journal};
use countersign_gateway::approval::question::Given;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::Pending;
use countersign_gateway::audit::event::Actor;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::http::{Dialer, Endpoint, Header, SendError};
use answer::Said;

/// How long an approver may take to answer, unless configured otherwise.
pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(10);
/// Time before the second try to reach an approver; it doubles up to the longest.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(60);
/// How long an approver that cannot be reached is tried.
const RETRY_FOR: Duration = Duration::from_secs(3_600);
/// Questions that one approver is sent at once.
const AT_ONCE_MAX: usize = 16;

/// How one approver is asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// As the record names it.
    pub name: String,
    pub endpoint: Endpoint,
    pub headers: Vec<Header>,
    pub timing: Timing,
}

/// When the answer comes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Timing {
    /// In the answer to the request, within this time.
    AtOnce(Duration),
    /// By a callback to this address. The time is what whoever decides is given, where it has an end.
    Later {
        callback_url: String,
        patience: Option<Duration>,
    },
}

/// One configured approver.
#[derive(Clone)]
pub struct HttpApprover(Arc<Parts>);

struct Parts {
    options: Options,
    dialer: Arc<Dialer>,
    journal: Journal,
    permits: Semaphore,
}

impl HttpApprover {
    pub fn new(options: Options, dialer: Arc<Dialer>, journal: Journal) -> Self {
        Self(Arc::new(Parts {
            options,
            dialer,
            journal,
            permits: Semaphore::new(AT_ONCE_MAX),
        }))
    }
}

impl Approver for HttpApprover {
    fn ask(&self, question: &ApprovalRequest) -> Pending<Option<Ballot>> {
        let (parts, question) = (self.0.clone(), question.clone());
        Box::pin(async move { parts.ask(&question).await })
    }
}

impl Parts {
    async fn ask(&self, question: &ApprovalRequest) -> Option<Ballot> {
        let name = &self.options.name;
        let (began, mut wait, mut tries) = (Instant::now(), RETRY_FIRST, 0);
        loop {
            tries += 1;
            let reason = match self.send(question).await {
                Ok((said, chosen)) => {
                    let reached = Asking::Reached { said: said.told() };
                    self.journal.note(question, name, tries, &reached).await;
                    return self.ballot(said, chosen);
                }
                Err(SendError::Lost(reason)) => {
                    tracing::warn!(approver = name, reason, "an approver did not answer; others may");
                    let lost = Asking::Unanswered { reason };
                    self.journal.note(question, name, tries, &lost).await;
                    return None;
                }
                Err(SendError::Unreachable(reason)) => reason,
            };
            if began.elapsed() + wait > RETRY_FOR {
                tracing::warn!(
                    approver = name,
                    reason,
                    "an approver cannot be reached; others may answer"
                );
                self.journal
                    .note(question, name, tries, &Asking::GivenUp { reason })
                    .await;
                return None;
            }
            // The first says it; a row for every other try would only fill the record.
            if tries == 1 {
                tracing::warn!(approver = name, reason, "an approver cannot be reached; trying again");
                self.journal
                    .note(question, name, tries, &Asking::Unreachable { reason })
                    .await;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_LONGEST);
        }
    }

    async fn send(&self, question: &ApprovalRequest) -> Result<(Said, Option<Given>), SendError> {
        let Options {
            endpoint,
            headers,
            timing,
            ..
        } = &self.options;
        let body = question::body(question, timing, self.journal.clock.now());
        let patience = match timing {
            Timing::AtOnce(patience) => *patience,
            // Taking a question needs no thinking.
            Timing::Later { .. } => PATIENCE_DEFAULT,
        };
        // Nobody closes it, so waiting for a turn cannot fail.
        let _turn = self.permits.acquire().await.ok();
        let reply = self
            .dialer
            .post(endpoint, headers, body.to_string().into_bytes(), patience)
            .await?;
        Ok((answer::read(&reply, question, timing), answer::chosen(&reply)))
    }

    fn ballot(&self, said: Said, chosen: Option<Given>) -> Option<Ballot> {
        let (choice, reason, answer) = match said {
            Said::Pending => return None,
            Said::Yes(reason) => (Choice::Allow, reason, chosen),
            Said::No(reason) => (Choice::Deny, reason, None),
        };
        let name = &self.options.name;
        let by = match self.options.timing {
            Timing::AtOnce(_) => Decider::approver(name),
            // It can call back besides, and is one voice all the same.
            Timing::Later { .. } => Decider::callback(Actor::system(name)),
        };
        Some(Ballot {
            choice,
            by,
            reason,
            answer,
        })
    }
}
