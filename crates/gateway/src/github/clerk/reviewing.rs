//! What a development made waits for the owner's review, from the moment that it is put up for it until changes are
//! asked for or the pull request is closed.

use super::{Clerk, Undone, itself};
use crate::audit::Change;
use crate::run::keeping::ReviewChange;
use crate::run::lifecycle::WaitState;
use crate::run::state::Run;
use crate::run::telling;

impl Clerk {
    /// Writes down that a run's work waits for its review, or no longer does, where that is news. A run whose agent
    /// came from outside has no session that could wait.
    pub(super) async fn note_review(&self, run: &Run, waits: bool) -> Result<(), Undone> {
        let Some(session) = self.parts.runs.agent_session(&run.id).await? else {
            return Ok(());
        };
        let waited = session.wait_state.as_deref() == Some(WaitState::OwnerReview.as_str());
        if waited == waits {
            return Ok(());
        }
        let now = self.now();
        let change = Change {
            events: vec![telling::review(run, self.parts.ids.event(), now, waits, itself())],
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
