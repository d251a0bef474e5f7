//! The desk at which labels change: one at a time per issue, in one call to GitHub, looked at afterwards, and
//! told in the record before and behind.
//!
//! GitHub exchanges all labels of an issue at once but does not say over which. So what somebody else does
//! between our look and our change would be lost; the issue's own history tells it, and it is put right in
//! another round.

use std::sync::Arc;
use std::time::Duration;

use super::{GitHub, GitHubError, IssueRef, LabelEvent, Trouble};
use crate::audit::event::{Actor, Draft, EventType};
use crate::audit::payload::Object;
use crate::audit::{Change, Record, RecordError};
use crate::clock::Clock;
use crate::error::{ErrorCode, Refusal};
use crate::ids::{CorrelationId, IdSource};
use crate::lease::LeaseChange;

/// How long one change may take, and for how long an issue is kept for it: longer, so that nobody else begins
/// before it has ended.
const CHANGE_PATIENCE: Duration = Duration::from_secs(25);
const LEASE_TIME: Duration = Duration::from_secs(30);
/// How long a change waits for its turn: longer than a holder that is gone can be in the way.
const TURN_PATIENCE: Duration = Duration::from_secs(35);
const TURN_LOOK: Duration = Duration::from_millis(100);
/// How often a change is done over when somebody else changes the same labels.
const ROUNDS_MAX: usize = 4;

pub struct LabelDesk {
    parts: LabelParts,
}

pub struct LabelParts {
    pub github: Arc<dyn GitHub>,
    pub record: Arc<dyn Record>,
    pub clock: Clock,
    pub ids: IdSource,
}

/// What is to become of labels. Names are told apart without regard to case, as GitHub does.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LabelChange {
    pub add: Vec<String>,
    pub remove: Vec<String>,
}

/// On whose behalf labels change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Errand {
    pub by: Actor,
    pub correlation_id: CorrelationId,
    pub run_id: Option<String>,
    /// The tool, or why we do it by ourselves.
    pub cause: String,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relabelled {
    pub before: Vec<String>,
    pub after: Vec<String>,
    /// How often somebody else's change had to be put right.
    pub rounds: usize,
}

impl LabelDesk {
    pub fn new(parts: LabelParts) -> Arc<Self> {
        Arc::new(Self { parts })
    }

    pub async fn list(&self, of: &IssueRef) -> Result<Vec<String>, Refusal> {
        let mut labels = self.parts.github.labels(of).await?;
        labels.sort();
        Ok(labels)
    }

    /// Changes labels. Nothing is sent before the record says that it will be.
    pub async fn change(&self, of: &IssueRef, change: &LabelChange, errand: &Errand) -> Result<Relabelled, Refusal> {
        let holder = self.parts.ids.event().to_string();
        self.take_turn(of, change, errand, &holder).await?;
        let tried = tokio::time::timeout(CHANGE_PATIENCE, self.exchange(of, change, &holder)).await;
        let outcome = tried.unwrap_or_else(|_| {
            Err(GitHubError {
                kind: Trouble::Unavailable,
                message: format!(
                    "GitHub took longer than {} s to change the labels of {of}; look at them before you try again",
                    CHANGE_PATIENCE.as_secs()
                ),
            })
        });
        let event = match &outcome {
            Ok(done) => {
                let payload = told(of, change, errand)
                    .texts("before", sorted(&done.before))
                    .texts("after", sorted(&done.after))
                    .whole("rounds", i64::try_from(done.rounds).unwrap_or(i64::MAX));
                self.event(errand, EventType::LabelApplied, payload)
            }
            Err(error) => {
                let payload = told(of, change, errand).text("reason", &error.message);
                self.event(errand, EventType::LabelRejected, payload)
            }
        };
        let written = self.parts.record.commit(Change {
            events: vec![event],
            leases: vec![LeaseChange::Return {
                name: lease(of),
                holder,
            }],
            ..Change::default()
        });
        written
            .await
            .map_err(|error| error.refusal(&format!("the labels of {of} may have changed all the same")))?;
        Ok(outcome?)
    }

    /// Writes down what is wanted, once this issue is nobody else's.
    async fn take_turn(
        &self,
        of: &IssueRef,
        change: &LabelChange,
        errand: &Errand,
        holder: &str,
    ) -> Result<(), Refusal> {
        let deadline = tokio::time::Instant::now() + TURN_PATIENCE;
        let event = self.event(errand, EventType::LabelRequested, told(of, change, errand));
        loop {
            let opening = Change {
                events: vec![event.clone()],
                leases: vec![LeaseChange::Take {
                    name: lease(of),
                    holder: holder.to_owned(),
                    now: self.parts.clock.now(),
                    time: LEASE_TIME,
                }],
                ..Change::default()
            };
            match self.parts.record.commit(opening).await {
                Ok(_) => return Ok(()),
                Err(RecordError::LeaseTaken(_)) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(TURN_LOOK).await;
                }
                Err(RecordError::LeaseTaken(_)) => {
                    let message = format!("somebody else changes the labels of {of} at this moment; try again");
                    return Err(Refusal::new(ErrorCode::QueueFull, message));
                }
                Err(error) => return Err(error.refusal("nothing was done, try again later")),
            }
        }
    }

    async fn exchange(&self, of: &IssueRef, change: &LabelChange, holder: &str) -> Result<Relabelled, GitHubError> {
        let github = &self.parts.github;
        let own = github.login().await.unwrap_or(None);
        let mut wanted = change.clone();
        let mut first = None;
        for round in 0..ROUNDS_MAX {
            let seen = self.last_event(of, own.as_deref()).await;
            let before = github.labels(of).await?;
            first.get_or_insert_with(|| before.clone());
            let target = wanted.applied_to(&before);
            let after = if same(&target, &before) {
                before.clone()
            } else {
                self.still_has_turn(of, holder).await?;
                self.send(of, &wanted, target).await?
            };
            let Meanwhile { lost, overtaken } = self.meanwhile(of, own.as_deref(), seen, &before, &wanted).await;
            wanted = wanted.without(&overtaken);
            if wanted.holds_in(&after) && lost == LabelChange::default() {
                return Ok(Relabelled {
                    before: first.unwrap_or_default(),
                    after,
                    rounds: round,
                });
            }
            wanted.add.extend(lost.add);
            wanted.remove.extend(lost.remove);
        }
        Err(GitHubError {
            kind: Trouble::Unavailable,
            message: format!(
                "others change the labels of {of} at the same time, again and again; look at them and try again"
            ),
        })
    }

    /// Brings the labels to what they are to be; what stands there then.
    async fn send(&self, of: &IssueRef, wanted: &LabelChange, target: Vec<String>) -> Result<Vec<String>, GitHubError> {
        let github = &self.parts.github;
        if wanted.remove.is_empty() {
            return github.add_labels(of, wanted.add.clone()).await;
        }
        github.replace_labels(of, target).await?;
        // What GitHub answers is what it did, not what stands there now.
        github.labels(of).await
    }

    /// Asked right before anything is sent: this machine may have slept since it looked, and another have had its turn.
    async fn still_has_turn(&self, of: &IssueRef, holder: &str) -> Result<(), GitHubError> {
        let asked = Change {
            leases: vec![LeaseChange::Has {
                name: lease(of),
                holder: holder.to_owned(),
            }],
            ..Change::default()
        };
        let written = self.parts.record.commit(asked).await;
        written.map(drop).map_err(|error| GitHubError {
            kind: Trouble::Unavailable,
            message: format!("the labels of {of} were not touched: {error}; look at them and try again"),
        })
    }

    /// Where the issue's history stands; none where it cannot be told what of it is ours.
    async fn last_event(&self, of: &IssueRef, own: Option<&str>) -> Option<u64> {
        own?;
        let events = self.parts.github.label_events(of).await.ok()?;
        Some(events.last().map_or(0, |event| event.id))
    }

    /// What others did around our change.
    async fn meanwhile(
        &self,
        of: &IssueRef,
        own: Option<&str>,
        seen: Option<u64>,
        before: &[String],
        wanted: &LabelChange,
    ) -> Meanwhile {
        let (Some(own), Some(seen)) = (own, seen) else {
            return Meanwhile::default();
        };
        let Ok(mut events) = self.parts.github.label_events(of).await else {
            return Meanwhile::default();
        };
        events.retain(|event| event.id > seen);
        Meanwhile {
            lost: undone(own, &events, before, wanted),
            overtaken: overtaken(own, &events),
        }
    }

    fn event(&self, errand: &Errand, kind: EventType, payload: Object) -> Draft {
        Draft::new(
            self.parts.ids.event(),
            self.parts.clock.now(),
            errand.correlation_id.clone(),
            errand.by.clone(),
            kind,
            payload.finish(),
        )
    }
}

#[derive(Default)]
struct Meanwhile {
    /// What somebody did between our look and our change, and our change undid.
    lost: LabelChange,
    /// Labels that somebody changed again after us: that stands.
    overtaken: Vec<String>,
}

/// Labels whose last change is not ours but follows one of ours.
fn overtaken(own: &str, events: &[LabelEvent]) -> Vec<String> {
    let is_ours = |event: &LabelEvent| event.login.eq_ignore_ascii_case(own);
    let last_of = |label: &str| {
        let mut all = events.iter().rev();
        all.find(|event| event.label.eq_ignore_ascii_case(label))
    };
    let ours = events.iter().filter(|event| is_ours(event));
    ours.filter(|event| last_of(&event.label).is_some_and(|last| !is_ours(last)))
        .map(|event| event.label.clone())
        .collect()
}

/// Labels that we took off without having seen them, and labels that we put on though somebody had just taken
/// them off. What is wanted is wanted all the same.
fn undone(own: &str, events: &[LabelEvent], before: &[String], wanted: &LabelChange) -> LabelChange {
    let mut put_right = LabelChange::default();
    for event in events.iter().filter(|event| event.login.eq_ignore_ascii_case(own)) {
        let label = &event.label;
        if has(&wanted.add, label) || has(&wanted.remove, label) {
            continue;
        }
        match (event.added, has(before, label)) {
            (false, false) => put_right.add.push(label.clone()),
            (true, true) => put_right.remove.push(label.clone()),
            (true, false) | (false, true) => {}
        }
    }
    put_right
}

impl LabelChange {
    fn applied_to(&self, labels: &[String]) -> Vec<String> {
        let stays = |label: &&String| !has(&self.remove, label) || has(&self.add, label);
        let mut target: Vec<String> = labels.iter().filter(stays).cloned().collect();
        for label in &self.add {
            if !has(&target, label) {
                target.push(label.clone());
            }
        }
        target
    }

    fn without(&self, labels: &[String]) -> LabelChange {
        let others = |of: &[String]| of.iter().filter(|label| !has(labels, label)).cloned().collect();
        LabelChange {
            add: others(&self.add),
            remove: others(&self.remove),
        }
    }

    fn holds_in(&self, labels: &[String]) -> bool {
        self.add.iter().all(|label| has(labels, label))
            && self
                .remove
                .iter()
                .all(|label| !has(labels, label) || has(&self.add, label))
    }
}

fn has(labels: &[String], label: &str) -> bool {
    labels.iter().any(|known| known.eq_ignore_ascii_case(label))
}

fn same(one: &[String], other: &[String]) -> bool {
    one.len() == other.len() && one.iter().all(|label| has(other, label))
}

fn sorted(labels: &[String]) -> Vec<&str> {
    let mut labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    labels.sort_unstable();
    labels
}

fn lease(of: &IssueRef) -> String {
    format!("labels:{of}")
}

fn told(of: &IssueRef, change: &LabelChange, errand: &Errand) -> Object {
    Object::new()
        .text("repository", of.repository.as_str())
        .whole("issue_number", i64::try_from(of.number).unwrap_or(i64::MAX))
        .texts("add", change.add.iter().map(String::as_str))
        .texts("remove", change.remove.iter().map(String::as_str))
        .text("cause", &errand.cause)
        .optional_text("run_id", errand.run_id.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn event(login: &str, label: &str, added: bool) -> LabelEvent {
        LabelEvent {
            id: 1,
            login: login.to_owned(),
            label: label.to_owned(),
            added,
        }
    }

    #[test]
    fn a_change_keeps_what_it_does_not_name() {
        let change = LabelChange {
            add: words(&["b", "c"]),
            remove: words(&["A", "b"]),
        };
        assert_eq!(change.applied_to(&words(&["a", "x"])), ["x", "b", "c"]);
        assert!(change.holds_in(&words(&["x", "B", "c"])));
        assert!(!change.holds_in(&words(&["a", "b", "c"])));
        assert!(!change.holds_in(&words(&["b"])));
    }

    #[test]
    fn what_others_did_meanwhile_is_put_right_and_what_was_wanted_is_not() {
        let events = [
            event("ana", "urgent", true),
            event("bot", "urgent", false),
            event("ana", "stale", false),
            event("bot", "stale", true),
            event("bot", "run:dev", false),
            event("bot", "state:in-review", true),
            event("ana", "other", true),
        ];
        let wanted = LabelChange {
            add: words(&["state:in-review"]),
            remove: words(&["run:dev"]),
        };
        let before = words(&["run:dev", "stale"]);
        let right = undone("Bot", &events, &before, &wanted);
        assert_eq!((right.add, right.remove), (words(&["urgent"]), words(&["stale"])));
    }

    #[test]
    fn what_others_did_after_us_stands() {
        let events = [
            event("ana", "early", true),
            event("bot", "early", false),
            event("bot", "Run:dev", false),
            event("ana", "run:dev", true),
        ];
        let overtaken = overtaken("Bot", &events);
        assert_eq!(overtaken, ["Run:dev"]);
        let wanted = LabelChange {
            add: words(&["state:in-review"]),
            remove: words(&["run:dev"]),
        };
        assert!(
            wanted
                .without(&overtaken)
                .holds_in(&words(&["run:dev", "state:in-review"]))
        );
    }
}
