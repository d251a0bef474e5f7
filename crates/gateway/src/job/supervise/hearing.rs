//! What an agent says, written down before the driver may go on.

use serde_json::{Value, json};

use super::super::driver::{
    AgentEvent, AgentEventKind, Hearing, Item, ItemKind, ItemPhase, ProcessMark, TurnEnd, Usage,
};
use super::super::event::{JobEventType, of_agent};
use super::super::lifecycle::{JobStatus, JobStep, SessionStatus, SessionStep, SubState};
use super::course::{self, Ending, Next};
use super::following::{Follower, Turn};
use super::writing::{Lost, Writing};
use crate::audit::event::EventType;
use crate::error::ErrorCode;
use crate::ids::ConversationId;
use crate::limits;

impl Follower {
    /// Writes down what the agent said, and says what follows where something does.
    pub(super) async fn hear(&mut self, event: &AgentEvent) -> Result<Option<Next>, Lost> {
        let now = self.supervisor.parts.clock.now();
        let said = of_agent(event, &self.supervisor.parts.redactor);
        let mut writing = Writing::of(self.job.changed(now));
        if let Some((kind, data)) = said {
            let mut line = self.event(kind, Value::Null);
            line.data = data;
            writing.events.push(line);
        }
        match &event.kind {
            AgentEventKind::Exited { .. } if self.is_between_processes() => {}
            AgentEventKind::Spawned(mark) => self.spawned(mark, writing).await?,
            AgentEventKind::Started {
                conversation_id,
                rollout,
                model,
            } => {
                let rollout = rollout.as_ref().map(|path| path.to_string_lossy().into_owned());
                return self.started(conversation_id, rollout, model.clone(), writing).await;
            }
            AgentEventKind::TextDelta(text) => {
                self.unfinished.add(text);
                self.show_unfinished().await;
            }
            AgentEventKind::Item(item) => {
                self.remember_failure(item);
                self.write(writing).await?;
            }
            AgentEventKind::Usage(total) => {
                writing.usage = since(total, &self.usage);
                self.usage = total.clone();
                self.write(writing).await?;
            }
            AgentEventKind::LimitReached { resets_at, .. } => {
                let unknown = now.after(limits::JOB_LIMIT_PAUSE);
                self.limited_until = Some(resets_at.unwrap_or(unknown).max(now));
                self.write(writing).await?;
            }
            AgentEventKind::ApprovalRequested(question) => self.ask(question).await?,
            AgentEventKind::ApprovalWithdrawn(id) => self.withdrawn(id).await,
            AgentEventKind::TurnEnded(end) => {
                self.forget_unfinished().await;
                let next = course::after_turn(end, self.behind());
                if let TurnEnd::Crashed {
                    message,
                    status,
                    signal,
                } = end
                {
                    self.crashed(&mut writing, (*status, *signal), message);
                }
                return self.conclude(next, writing).await;
            }
            AgentEventKind::Exited { status, signal } => {
                let how = course::exit_words(*status, *signal);
                self.crashed(&mut writing, (*status, *signal), &how);
                self.write(writing).await?;
                return Ok(Some(course::after_loss(&how, self.behind())));
            }
            AgentEventKind::Message(_) => {
                // It goes on, so no limit holds it.
                self.limited_until = None;
                self.write(writing).await?;
                self.forget_unfinished().await;
            }
            AgentEventKind::TurnStarted { .. } => {
                self.turn = Turn::Runs;
                self.write(writing).await?;
            }
            AgentEventKind::Diff(_)
            | AgentEventKind::Retrying { .. }
            | AgentEventKind::Warning(_)
            | AgentEventKind::Unknown => self.write(writing).await?,
        }
        Ok(None)
    }

    /// Whether the process of the last turn may go, because the next has one of its own.
    fn is_between_processes(&self) -> bool {
        self.turn != Turn::Runs && self.agent.driver.hearing() == Hearing::ByAnotherProcess
    }

    /// The agent's process went away by itself, in front of what that did to its turn.
    fn crashed(&self, writing: &mut Writing, (status, signal): (Option<i32>, Option<i32>), how: &str) {
        let (kind, mark) = (EventType::JobProcessCrashed, self.session.process.as_ref());
        let draft = self.supervisor.process_draft(&self.job, kind, mark, Some(how));
        writing.drafts.push(draft);
        let data = json!({"status": status, "signal": signal, "reason": how});
        writing.events.insert(0, self.event(JobEventType::ProcessCrashed, data));
    }

    /// A process runs for the job; it is on record before anything is said to it.
    async fn spawned(&mut self, mark: &ProcessMark, mut writing: Writing) -> Result<(), Lost> {
        let known = self.session.process.as_ref();
        let is_known = known.is_some_and(|known| (known.pid, known.started) == (mark.pid, mark.started));
        self.process = Some(mark.clone());
        if is_known {
            // It outlived whoever looked after it, and so did what it asked.
            writing.process = Some(mark.clone());
            return self.write(writing).await;
        }
        let is_next = self.is_between_processes();
        let again = self.session.process.is_some() || self.job.retries > 0 || self.job.sub_state.is_some();
        let (kind, line) = if again && !is_next {
            (EventType::JobProcessRestarted, JobEventType::ProcessRestarted)
        } else {
            (EventType::JobProcessStarted, JobEventType::ProcessStarted)
        };
        let mut session = self.session.changed();
        session.process = Some(mark.clone());
        writing
            .drafts
            .push(self.supervisor.process_draft(&self.job, kind, Some(mark), None));
        writing.events.push(self.event(line, json!({"pid": mark.pid})));
        writing.process = Some(mark.clone());
        writing.session = Some(session);
        self.write(writing).await?;
        if is_next {
            self.turn = Turn::Runs;
        }
        // Whoever asked before is gone, and with it what was asked.
        self.withdraw_all("the agent was started again").await;
        Ok(())
    }

    /// The conversation has its id: the job runs.
    async fn started(
        &mut self,
        conversation: &str,
        rollout: Option<String>,
        model: Option<String>,
        mut writing: Writing,
    ) -> Result<Option<Next>, Lost> {
        let id = ConversationId::trusted(conversation);
        let known = self.session.conversation_id.clone();
        if known.as_ref().is_some_and(|known| *known != id) {
            let message =
                format!("the agent began another conversation, `{conversation}`, instead of going on with this");
            return Ok(Some(Next::End(Ending::failed(ErrorCode::UpstreamError, message))));
        }
        let supervisor = self.supervisor.clone();
        let now = supervisor.parts.clock.now();
        let was_recovering = self.session.status() == SessionStatus::Recovering;
        let mut session = self
            .session
            .step(SessionStep::Activate)
            .unwrap_or_else(|_| self.session.changed());
        session.conversation_id = Some(id.clone());
        session.rollout = rollout.or(session.rollout);
        if let Some(model) = model {
            session.config["model"] = json!(model);
        }
        if let Some(branch) = self.branch().await {
            session.config["branch"] = json!(branch);
        }
        let starts = self.job.status() == JobStatus::Pending;
        if starts && let Ok(job) = self.job.step(JobStep::Start, now) {
            writing.job = job;
        }
        let job = &mut writing.job;
        job.conversation_id = Some(id);
        if matches!(job.sub_state, Some(SubState::Recovering | SubState::PausedLimit)) {
            job.sub_state = None;
        }
        let job = writing.job.clone();
        if known.is_none() {
            let created = EventType::JobSessionCreated;
            writing
                .drafts
                .push(supervisor.session_event(&job, &session, created, None));
            let data = json!({"sessionName": session.name.as_str(), "sessionDir": session.folder()});
            writing
                .events
                .push(supervisor.event(&job, &session, JobEventType::SessionCreated, data));
        }
        if starts {
            writing.drafts.push(supervisor.step_draft(&job, JobStep::Start));
            writing
                .events
                .push(supervisor.step_event(&job, &session, JobStep::Start));
        }
        if self.session.status() != SessionStatus::Active {
            writing
                .drafts
                .push(supervisor.session_draft(&job, &session, SessionStep::Activate));
            writing
                .events
                .push(supervisor.event(&job, &session, JobEventType::SessionActive, json!({})));
        }
        if was_recovering {
            let recovered = EventType::JobSessionRecovered;
            writing
                .drafts
                .push(supervisor.session_event(&job, &session, recovered, None));
        }
        let path = session.rollout.clone();
        writing.session = Some(session);
        self.write(writing).await?;
        if let Some(path) = path
            && let Err(error) = supervisor.parts.files.rollout(&self.session.folder(), &path).await
        {
            tracing::warn!(%error, "where the agent keeps its conversation could not be noted");
        }
        Ok(None)
    }

    fn remember_failure(&mut self, item: &Item) {
        let fits = self.failed.len() < limits::FAILURES_REMEMBERED_MAX && item.title.len() <= limits::FAILURE_BYTES_MAX;
        if item.kind == ItemKind::Command && item.phase == ItemPhase::Failed && fits {
            self.failed.insert(item.title.clone());
        }
    }
}

/// What was used between two totals; none where nothing was. An agent may claim any number, and a sum that does not fit
/// into its column would make every later look at the session fail.
fn since(total: &Usage, before: &Usage) -> Option<Usage> {
    let tokens = |total: u64, before: u64| total.saturating_sub(before).min(limits::TOKENS_REPORTED_MAX);
    let cost = total
        .cost_usd
        .map(|cost| (cost - before.cost_usd.unwrap_or(0.0)).clamp(0.0, limits::DOLLARS_REPORTED_MAX));
    let used = Usage {
        model: total.model.clone(),
        prompt_tokens: tokens(total.prompt_tokens, before.prompt_tokens),
        completion_tokens: tokens(total.completion_tokens, before.completion_tokens),
        total_tokens: tokens(total.total_tokens, before.total_tokens),
        cost_usd: cost,
    };
    (used.total_tokens > 0 || cost.is_some_and(|cost| cost > 0.0)).then_some(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_told_once_and_no_claim_is_larger_than_what_can_be_added_up() {
        let usage = |tokens: u64, cost: f64| Usage {
            model: None,
            prompt_tokens: tokens,
            completion_tokens: 0,
            total_tokens: tokens,
            cost_usd: Some(cost),
        };
        assert_eq!(since(&usage(5, 0.5), &usage(3, 0.25)), Some(usage(2, 0.25)));
        assert_eq!(since(&usage(3, 0.5), &usage(5, 0.5)), None);
        let most = usage(limits::TOKENS_REPORTED_MAX, limits::DOLLARS_REPORTED_MAX);
        assert_eq!(since(&usage(u64::MAX, f64::MAX), &usage(0, -f64::MAX)), Some(most));
    }
}
