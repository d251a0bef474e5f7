//! What a development made waits for the owner's review, from the moment that it is put up for it until somebody
//! approves it, asks for changes or closes the pull request.

use super::{Clerk, Outcome, Undone, ended, labels_have, person, unserved};
use crate::audit::Change;
use crate::audit::event::Actor;
use crate::github::IssueRef;
use crate::github::delivery::{Delivery, DeliveryState};
use crate::github::labels::LabelChange;
use crate::github::task::ApprovalTask;
use crate::github::vocabulary::{APPROVED, IN_REVIEW};
use crate::run::keeping::ReviewChange;
use crate::run::lifecycle::WaitState;
use crate::run::state::Run;
use crate::run::telling;

impl Clerk {
    /// Somebody who may write is content: nothing of this pull request waits for a review any longer.
    pub(super) async fn approved(&self, delivery: &Delivery, task: &ApprovalTask) -> Result<Outcome, Undone> {
        let of = &task.pull_request;
        let repository = of.repository.as_str();
        if !self.parts.policies.serves(repository) {
            return Ok(Outcome::Nothing(unserved(repository)));
        }
        // On a public repository anybody may approve.
        if let Some(why) = self.unheard(&of.repository, &task.sender).await? {
            return Ok(Outcome::Nothing(why));
        }
        let makers = self.runs_of(repository, None, Some(of.number)).await?;
        let Some(last) = makers.first() else {
            return Ok(Outcome::Nothing("no run belongs to this pull request".to_owned()));
        };
        let by = person(&task.sender);
        // Only what was put up for review is approved by it: changes may have been asked for meanwhile.
        let change = LabelChange {
            add: vec![APPROVED.to_owned()],
            remove: vec![IN_REVIEW.to_owned()],
        };
        let errand = self.errand(&last.correlation_id, Some(last), "pull_request_review.approved");
        let mut numbers: Vec<u64> = makers.iter().filter_map(|run| run.issue_number).collect();
        numbers.push(of.number);
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            let target = IssueRef { number, ..of.clone() };
            if labels_have(&self.parts.github.labels(&target).await?, IN_REVIEW) {
                self.parts.labels.change(&target, &change, &errand).await?;
            }
        }
        for run in &makers {
            self.note_review(run, false, &by).await?;
        }
        let change = Change {
            deliveries: vec![ended(delivery, DeliveryState::Done)],
            ..Change::default()
        };
        self.parts.record.commit(change).await?;
        Ok(Outcome::Written)
    }

    /// Writes down that a run's work waits for its review, or no longer does, where that is news. A run whose agent
    /// came from outside has no session that could wait.
    pub(super) async fn note_review(&self, run: &Run, waits: bool, by: &Actor) -> Result<(), Undone> {
        let Some(session) = self.parts.runs.agent_session(&run.id).await? else {
            return Ok(());
        };
        let waited = session.wait_state.as_deref() == Some(WaitState::OwnerReview.as_str());
        if waited == waits {
            return Ok(());
        }
        let now = self.now();
        let change = Change {
            events: vec![telling::review(run, self.parts.ids.event(), now, waits, by.clone())],
            reviews: vec![ReviewChange {
                run_id: run.id.clone(),
                waits,
                now,
            }],
            ..Change::default()
        };
        self.parts.record.commit(change).await?;
        Ok(())
    }
}
