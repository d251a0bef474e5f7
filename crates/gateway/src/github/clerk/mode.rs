//! `mode:discussion` is put on an issue, or taken off, while runs of it wait or work.
//!
//! A run that waits is then of the other kind. One that works and may no longer is called back, for its agent holds
//! what it was given; it goes on as a discussion. Behind a discussion that still goes on comes the work, where the
//! issue still asks for it; one that is over is gone on with when somebody puts the `run:*` label on again.

use super::labelled::Setting;
use super::{Clerk, Outcome, Undone, ended, labels_have, person, unserved};
use crate::audit::Change;
use crate::audit::event::EventType;
use crate::github::delivery::{Delivery, DeliveryState};
use crate::github::task::ModeTask;
use crate::github::vocabulary::DISCUSSION;
use crate::github::{IssueFacts, Trouble};
use crate::run::keeping::RunChange;
use crate::run::lifecycle::{RunStatus, TriggerKind};
use crate::run::state::Run;
use crate::run::telling::told;

impl Clerk {
    pub(super) async fn mode_changed(&self, delivery: &Delivery, task: &ModeTask) -> Result<Outcome, Undone> {
        let repository = task.issue.repository.as_str();
        if !self.parts.policies.serves(repository) {
            return Ok(Outcome::Nothing(unserved(repository)));
        }
        if let Some(why) = self.unheard(&task.issue.repository, &task.sender).await? {
            return Ok(Outcome::Nothing(why));
        }
        let facts = match self.parts.github.issue(&task.issue).await {
            Ok(facts) => facts,
            Err(error) if error.kind == Trouble::NotFound => {
                return Ok(Outcome::Nothing(format!("{} is not there any more", task.issue)));
            }
            Err(error) => return Err(error.into()),
        };
        // Deliveries come late and in any order; what is so now counts.
        if carries(&facts, DISCUSSION) != task.is_talk {
            return Ok(Outcome::Nothing(format!("`{DISCUSSION}` has been changed back")));
        }
        let runs = self.runs_of(repository, Some(task.issue.number), None).await?;
        let mut changed = 0;
        for run in runs.iter().filter(|run| run.status == RunStatus::Pending) {
            changed += usize::from(self.turn(run, task.is_talk).await?);
        }
        let at_work = runs.iter().find(|run| run.status == RunStatus::Running);
        if let Some(run) = at_work.filter(|run| run.is_talk() != task.is_talk) {
            let waits = |it: &Run| it.status == RunStatus::Pending && it.trigger_label == run.trigger_label;
            let label = run.trigger_label.as_deref();
            let label = label.filter(|label| carries(&facts, label) && !runs.iter().any(waits));
            if let Some(label) = label {
                return self.set_off_again(delivery, task, &facts, run, label).await;
            }
            if task.is_talk {
                let desk = &self.parts.desk;
                desk.cancel(&person(&task.sender), &run.id, &goes_on_as_talk()).await?;
                changed += 1;
            }
        }
        if changed == 0 {
            return Ok(Outcome::Nothing("no run waits or works that it concerns".to_owned()));
        }
        let change = Change {
            deliveries: vec![ended(delivery, DeliveryState::Done)],
            ..Change::default()
        };
        self.parts.record.commit(change).await?;
        Ok(Outcome::Written)
    }

    /// Makes a run that waits one of the other kind; false where it is already.
    async fn turn(&self, run: &Run, is_talk: bool) -> Result<bool, Undone> {
        if run.is_talk() == is_talk {
            return Ok(false);
        }
        let mut next = run.changed(self.now());
        if is_talk {
            next.labels.insert(DISCUSSION.to_owned());
        } else {
            next.labels.retain(|label| !label.eq_ignore_ascii_case(DISCUSSION));
        }
        let mode = if is_talk { "discussion" } else { "work" };
        let payload = told(&next).text("mode", mode);
        let change = Change {
            events: vec![self.event(&run.correlation_id, EventType::RunProfileResolved, payload)],
            runs: vec![RunChange::over(run.version, next)],
            ..Change::default()
        };
        // Where it has begun meanwhile this is tried again, and meets it at work.
        self.parts.record.commit(change).await?;
        Ok(true)
    }

    /// The same once more, as the issue now wants it. Work is called back for it in one with that, or neither: a try that
    /// came half-way would find nothing at work.
    async fn set_off_again(
        &self,
        delivery: &Delivery,
        task: &ModeTask,
        facts: &IssueFacts,
        run: &Run,
        label: &str,
    ) -> Result<Outcome, Undone> {
        let pull_request_labels = self.labels_beside(&task.issue, run.pull_request_number).await?;
        let reason = goes_on_as_talk();
        let setting = Setting {
            target: &task.issue,
            issue: Some(task.issue.number),
            pull_request: run.pull_request_number,
            kind: TriggerKind::Label,
            label,
            title: &facts.title,
            instructions: run.instructions.as_deref().unwrap_or(&facts.body),
            sender: &task.sender,
            issue_labels: &facts.labels,
            pull_request_labels: &pull_request_labels,
            last_run: Some(run),
            in_place_of: task.is_talk.then_some((run, reason.as_str())),
        };
        self.set_off(delivery, &setting, Vec::new()).await
    }
}

fn goes_on_as_talk() -> String {
    format!("`{DISCUSSION}` was put on: it goes on as a discussion")
}

fn carries(facts: &IssueFacts, label: &str) -> bool {
    labels_have(&facts.labels, label)
}
