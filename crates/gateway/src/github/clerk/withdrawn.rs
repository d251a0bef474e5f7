//! What asked for a run is gone. A run that waits is called back; one that is at work goes on.

use super::{Clerk, Outcome, Undone, ended, labels_have, person, unserved};
use crate::audit::Change;
use crate::github::Trouble;
use crate::github::delivery::{Delivery, DeliveryState};
use crate::github::task::WithdrawalTask;
use crate::run::lifecycle::{RunStatus, TriggerKind};
use crate::run::state::Run;

impl Clerk {
    pub(super) async fn withdrawn(&self, delivery: &Delivery, task: &WithdrawalTask) -> Result<Outcome, Undone> {
        let repository = task.issue.repository.as_str();
        if !self.parts.policies.serves(repository) {
            return Ok(Outcome::Nothing(unserved(repository)));
        }
        if let Some(why) = self.unheard(&task.issue.repository, &task.sender).await? {
            return Ok(Outcome::Nothing(why));
        }
        // It may have come late, behind the same label put on once more.
        if let Some(label) = &task.label {
            match self.parts.github.labels(&task.issue).await {
                Ok(labels) if labels_have(&labels, label) => {
                    return Ok(Outcome::Nothing(format!("`{label}` is on again")));
                }
                Ok(_) => {}
                Err(error) if error.kind == Trouble::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        let by = person(&task.sender);
        let reason = match &task.label {
            Some(label) => format!("`{label}` was taken off before its turn came"),
            None => format!("{} was deleted before its turn came", task.issue),
        };
        // What a person set off by hand or by a review does not hang on a label.
        let is_meant = |run: &Run| {
            let same = task.label.is_none() || run.trigger_label == task.label;
            same && run.status == RunStatus::Pending && run.trigger_kind == TriggerKind::Label
        };
        let mut called_back = 0;
        for run in self.runs_of(repository, Some(task.issue.number), None).await? {
            if is_meant(&run) && self.parts.desk.call_back_waiting(&by, &run, &reason).await? {
                called_back += 1;
            }
        }
        if called_back == 0 {
            return Ok(Outcome::Nothing("no run waits for it".to_owned()));
        }
        let change = Change {
            deliveries: vec![ended(delivery, DeliveryState::Done)],
            ..Change::default()
        };
        self.parts.record.commit(change).await?;
        Ok(Outcome::Written)
    }
}
