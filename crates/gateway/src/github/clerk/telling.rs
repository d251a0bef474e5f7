//! What GitHub shows of a run: its one comment, and its labels once it has ended.

use super::{AT_ONCE, Clerk, Undone, pause};
use crate::audit::event::EventType;
use crate::audit::payload::Object;
use crate::audit::{Change, RecordError};
use crate::github::labels::LabelChange;
use crate::github::message::{KeptMessage, marker, render};
use crate::github::vocabulary::{IN_REVIEW, Trigger};
use crate::github::{IssueRef, Repository, Trouble};
use crate::ids::RunId;
use crate::lease::LeaseChange;
use crate::run::lifecycle::RunStatus;
use crate::run::state::Run;

/// What was done about a comment.
enum Told {
    Created(u64),
    Updated(u64),
    /// It says so already.
    Same,
}

impl Clerk {
    pub(super) async fn tell_all(&self) {
        let untold = self.parts.messages.untold(self.now(), AT_ONCE).await;
        let untold = untold.unwrap_or_else(|error| {
            tracing::warn!(%error, "runs cannot be looked at, trying again");
            Vec::new()
        });
        for (run, kept) in untold {
            let name = lease(&run.id);
            if !self.take_lease(&name).await {
                continue;
            }
            if let Err(error) = self.tell(&run, kept).await {
                tracing::warn!(%error, run = %run.id, "a run's comment could not be put away, trying again");
            }
            self.return_lease(&name).await;
        }
    }

    async fn tell(&self, run: &Run, kept: Option<KeptMessage>) -> Result<(), RecordError> {
        let mut next = kept.unwrap_or_else(|| KeptMessage {
            run_id: run.id.clone(),
            comment_id: None,
            run_version: 0,
            text: String::new(),
            labels_done: false,
            tries: 0,
            not_before: run.created_at,
        });
        let repository = run.repository.as_deref().and_then(Repository::parse);
        let (Some(repository), Some(number)) = (repository, run.issue_number) else {
            return Ok(());
        };
        let of = IssueRef { repository, number };
        let mut events = Vec::new();
        let text = render(run, self.answer(run).await?.as_deref());
        match self.shown(run, &of, &mut next, &text).await {
            Ok(()) => {}
            Err(undone) => {
                next.tries += 1;
                next.not_before = self.now().after(pause(next.tries));
                let reason = undone.reason();
                tracing::warn!(run = %run.id, reason, "GitHub could not be told of a run, trying again later");
                // What cannot be told at all is not tried for ever.
                if next.tries >= undone.tries_max() {
                    next.run_version = run.version;
                    next.labels_done |= run.has_ended();
                    next.tries = 0;
                }
                return self.keep(next, events).await;
            }
        }
        let told = match (next.text == text, next.comment_id) {
            (true, Some(_)) => Told::Same,
            (_, Some(id)) if next.run_version > 0 => Told::Updated(id),
            (_, Some(id)) => Told::Created(id),
            (_, None) => Told::Same,
        };
        let (id, created) = match told {
            Told::Created(id) => (Some(id), true),
            Told::Updated(id) => (Some(id), false),
            Told::Same => (None, false),
        };
        if let Some(id) = id {
            let payload = Object::new()
                .text("run_id", run.id.as_str())
                .text("repository", of.repository.as_str())
                .whole("issue_number", i64::try_from(of.number).unwrap_or(i64::MAX))
                .whole("comment_id", i64::try_from(id).unwrap_or(i64::MAX))
                .text("status", run.status.as_str())
                .flag("created", created);
            events.push(self.event(&run.correlation_id, EventType::RunServiceMessage, payload));
        }
        next.text = text;
        next.run_version = run.version;
        next.tries = 0;
        self.keep(next, events).await
    }

    /// What the agent of a discussion said last. It has nothing to comment with, so its words are put there for it.
    async fn answer(&self, run: &Run) -> Result<Option<String>, RecordError> {
        if !run.is_talk() || run.status != RunStatus::Succeeded {
            return Ok(None);
        }
        let session = self.parts.runs.agent_session(&run.id).await?;
        let kept: Option<serde_json::Value> = session.and_then(|it| serde_json::from_str(&it.session_json).ok());
        let said = kept.and_then(|kept| kept["job"]["output"]["result"].as_str().map(str::to_owned));
        Ok(said.filter(|said| !said.trim().is_empty()))
    }

    /// Brings GitHub to what a run says.
    async fn shown(&self, run: &Run, of: &IssueRef, next: &mut KeptMessage, text: &str) -> Result<(), Undone> {
        if next.text != text || next.comment_id.is_none() {
            next.comment_id = Some(self.comment(run, of, next.comment_id, text).await?);
        }
        if run.has_ended() && !next.labels_done {
            self.relabel(run, of).await?;
            next.labels_done = true;
        }
        Ok(())
    }

    /// The comment, changed in place; made anew only where there is none.
    async fn comment(&self, run: &Run, of: &IssueRef, known: Option<u64>, text: &str) -> Result<u64, Undone> {
        let github = &self.parts.github;
        let known = match known {
            Some(id) => Some(id),
            // It may have been made before its id could be kept.
            None => github.find_comment(of, &marker(&run.id)).await?,
        };
        if let Some(id) = known {
            match github.update_comment(&of.repository, id, text.to_owned()).await {
                Ok(()) => return Ok(id),
                Err(error) if error.kind == Trouble::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(github.create_comment(of, text.to_owned()).await?)
    }

    /// What asked for a run that went well is taken off; a development is then to be reviewed.
    async fn relabel(&self, run: &Run, of: &IssueRef) -> Result<(), Undone> {
        let Some(label) = run
            .trigger_label
            .as_deref()
            .filter(|_| run.status == RunStatus::Succeeded)
        else {
            return Ok(());
        };
        let is_talk = run.is_talk();
        let is_dev = Trigger::of(label).is_some_and(|trigger| trigger.stage == "dev") && !is_talk;
        let review = || if is_dev { vec![IN_REVIEW.to_owned()] } else { Vec::new() };
        let errand = self.errand(&run.correlation_id, Some(run), "run.finished");
        let change = LabelChange {
            add: review(),
            remove: vec![label.to_owned()],
        };
        self.parts.labels.change(of, &change, &errand).await?;
        if let Some(number) = run.pull_request_number.filter(|number| is_dev && *number != of.number) {
            let pull_request = IssueRef { number, ..of.clone() };
            let change = LabelChange {
                add: review(),
                ..LabelChange::default()
            };
            self.parts.labels.change(&pull_request, &change, &errand).await?;
            self.note_review(run, true, &super::itself()).await?;
        }
        Ok(())
    }

    /// Writes down what GitHub shows, unless somebody else has told of the run meanwhile: theirs is newer.
    async fn keep(&self, next: KeptMessage, events: Vec<crate::audit::event::Draft>) -> Result<(), RecordError> {
        let change = Change {
            events,
            leases: vec![LeaseChange::Has {
                name: lease(&next.run_id),
                holder: self.holder.clone(),
            }],
            messages: vec![next],
            ..Change::default()
        };
        self.parts.record.commit(change).await.map(drop)
    }
}

fn lease(run: &RunId) -> String {
    format!("message:{run}")
}
