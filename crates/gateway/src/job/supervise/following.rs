//! Follows one job from its turn to its end, or until it must be tried again.
//!
//! Everything an agent says is written down before the driver may go on. What is said to the agent is said
//! beside the following, never within it: an agent that waits to be heard could not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::super::driver::{
    AgentAnswer, Conversation, DriverError, EventSink, EventSource, Hearing, ProcessMark, Usage,
};
use super::super::event::{JobEvent, JobEventType};
use super::super::keeping::{Errand, Note, parts_json};
use super::super::lifecycle::SubState;
use super::super::session::JobSession;
use super::super::state::Job;
use super::asking::Asked;
use super::course::{self, Behind, Next, Wish};
use super::unfinished::Unfinished;
use super::writing::{Lost, Writing};
use super::{Agent, LOOK_EVERY, Supervisor, opening};
use crate::approval::request::ApprovalRequest;
use crate::audit::Pending;
use crate::clock::{Steady, Timestamp, Watch};
use crate::ids::{ApprovalId, NoteId};
use crate::limits;

/// Events that a driver may be ahead of what is written.
const EVENTS_AHEAD: usize = 64;

/// An agent that is being started or taken up.
pub(super) type Starting = Pending<Result<Arc<dyn Conversation>, DriverError>>;

/// Where the turns of a job stand, as far as its agent has told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// One is under way, or the first begins.
    Runs,
    /// The last has ended, and the next is not asked for yet.
    Over,
    /// The next is asked for, and nothing of it was heard.
    Asked,
}

pub(super) struct Follower {
    pub(super) supervisor: Arc<Supervisor>,
    pub(super) agent: Agent,
    pub(super) job: Job,
    pub(super) session: JobSession,
    pub(super) conversation: Option<Arc<dyn Conversation>>,
    /// The agent's process, also when the job has ended and nobody needs it.
    pub(super) process: Option<ProcessMark>,
    /// Open questions by the agent's ids of them.
    pub(super) questions: BTreeMap<String, Asked>,
    /// Questions of an earlier life that nobody has asked again.
    pub(super) unasked: BTreeSet<ApprovalId>,
    /// What this agent has been answered.
    pub(super) answered: BTreeSet<ApprovalId>,
    /// The agent worked on without us, and may have missed an answer.
    pub(super) is_attached: bool,
    pub(super) decisions: JoinSet<ApprovalRequest>,
    /// What is being said to the agent.
    pub(super) calls: JoinSet<Result<(), DriverError>>,
    /// Answers that are ready before the conversation is.
    pub(super) answers: Vec<(String, AgentAnswer)>,
    /// Totals as far as they are written down.
    pub(super) usage: Usage,
    /// Commands that failed in this job.
    pub(super) failed: BTreeSet<String>,
    pub(super) limited_until: Option<Timestamp>,
    /// The message that it is at.
    pub(super) unfinished: Unfinished,
    pub(super) heard_at: Steady,
    pub(super) interrupted_at: Option<Steady>,
    pub(super) watch: Watch,
    /// Where its turns stand.
    pub(super) turn: Turn,
    /// Something may have been said to the job.
    pub(super) look_for_notes: bool,
    /// A call that the agent made through us waits for a person.
    pub(super) calls_wait: bool,
}

impl Follower {
    pub(super) fn new(supervisor: Arc<Supervisor>, agent: Agent, job: Job, session: JobSession) -> Self {
        let heard_at = supervisor.parts.clock.steady();
        let watch = Watch::on(&supervisor.parts.clock);
        let process = session.process.clone();
        Self {
            supervisor,
            agent,
            job,
            session,
            conversation: None,
            process,
            questions: BTreeMap::new(),
            unasked: BTreeSet::new(),
            answered: BTreeSet::new(),
            is_attached: false,
            decisions: JoinSet::new(),
            calls: JoinSet::new(),
            answers: Vec::new(),
            usage: Usage::default(),
            failed: BTreeSet::new(),
            limited_until: None,
            unfinished: Unfinished::default(),
            heard_at,
            interrupted_at: None,
            watch,
            turn: Turn::Runs,
            look_for_notes: true,
            calls_wait: false,
        }
    }

    pub(super) async fn conduct(mut self) {
        let mut starting = None;
        let outcome = match self.look_back().await {
            Ok(()) => {
                let (sink, mut source) = EventSink::new(EVENTS_AHEAD);
                starting = Some(self.starting(sink).await);
                self.follow(&mut starting, &mut source).await
            }
            Err(lost) => Err(lost),
        };
        let outcome = match outcome {
            Ok(next) => self.settle(next).await,
            Err(lost) => Err(lost),
        };
        match outcome {
            Ok(()) => self.leave(starting).await,
            Err(Lost::Moved) => {
                tracing::info!(job = %self.job.id, "another process looks after this job now");
                self.give_up(starting).await;
            }
            Err(Lost::Unrecorded(error)) => {
                tracing::error!(job = %self.job.id, %error, "an agent is stopped: what it does cannot be recorded");
                self.leave(starting).await;
                self.put_back(&error).await;
            }
        }
    }

    /// What earlier lives of this job left.
    async fn look_back(&mut self) -> Result<(), Lost> {
        let parts = &self.supervisor.parts;
        let read = self.supervisor.read(|| parts.jobs.usage(&self.session.id)).await;
        self.usage = read.map_err(Lost::Unrecorded)?;
        let open = parts
            .board
            .list(crate::approval::ApprovalFilter::open())
            .await
            .map_err(Lost::Unrecorded)?;
        // What the agent asks by calls of its own is the business of whoever takes those calls.
        let of_this_job = |approval: &ApprovalRequest| {
            approval.job_id.as_deref() == Some(self.job.id.as_str()) && approval.owner == self.job.owner
        };
        self.unasked = open
            .into_iter()
            .filter(of_this_job)
            .map(|approval| approval.id)
            .collect();
        self.supervisor.file_up(&self.session, false).await;
        self.remove_unfinished().await;
        Ok(())
    }

    /// Hears the agent, the people and the clock until something decides how it goes on.
    async fn follow(&mut self, starting: &mut Option<Starting>, source: &mut EventSource) -> Result<Next, Lost> {
        let mut changes = self.supervisor.parts.board.changes();
        loop {
            changes.mark_unchanged();
            if let Some(next) = self.due().await? {
                return Ok(next);
            }
            if std::mem::take(&mut self.look_for_notes) {
                self.check_hold().await?;
                self.hand_over().await?;
                self.look_at_calls().await?;
            }
            tokio::select! {
                biased;
                begun = opening::begun(starting), if starting.is_some() => match begun {
                    Ok(conversation) => self.begun(conversation),
                    Err(error) => return Ok(course::after_refusal(&error, self.behind())),
                },
                heard = source.next() => match heard {
                    Some(heard) => {
                        self.heard_at = self.supervisor.parts.clock.steady();
                        if let Some(next) = self.hear(&heard.event).await? {
                            return Ok(next);
                        }
                    }
                    None => return Ok(course::after_loss(&course::exit_words(None, None), self.behind())),
                },
                Some(decided) = self.decisions.join_next(), if !self.decisions.is_empty() => {
                    self.heard_at = self.supervisor.parts.clock.steady();
                    if let Ok(approval) = decided {
                        self.decided(approval).await?;
                    }
                }
                Some(said) = self.calls.join_next(), if !self.calls.is_empty() => {
                    if let Ok(Err(error)) = said {
                        self.not_taken(&error).await?;
                        // It was to begin a turn with it, so nothing will ever be heard of that.
                        if self.turn == Turn::Asked {
                            return Ok(course::after_refusal(&error, self.behind()));
                        }
                    }
                }
                _ = tokio::time::timeout(LOOK_EVERY, changes.changed()) => {
                    self.look_for_notes = true;
                    self.show_unfinished().await;
                }
            }
        }
    }

    fn begun(&mut self, conversation: Arc<dyn Conversation>) {
        self.conversation = Some(conversation);
        self.look_for_notes = true;
        for (question, answer) in std::mem::take(&mut self.answers) {
            self.answer(question, answer);
        }
        if self.interrupted_at.is_some() {
            self.interrupt();
        }
    }

    /// What the clocks say.
    async fn due(&mut self) -> Result<Option<Next>, Lost> {
        self.follow_the_clock().await?;
        let (now, steady) = (self.supervisor.parts.clock.now(), self.supervisor.parts.clock.steady());
        if let Some(since) = self.interrupted_at {
            let over = steady.since(since) >= limits::INTERRUPT_PATIENCE || self.conversation.is_none();
            return Ok(over.then(|| course::after_loss("it did not end when it was told to", self.behind())));
        }
        if self.supervisor.hands_on() {
            let why = "the node that looked after the job stops".to_owned();
            return Ok(Some(Next::HandOn { why }));
        }
        if self.job.clock.is_over(now) {
            self.end_turn(now, Vec::new()).await?;
            return Ok(None);
        }
        let silent = steady.since(self.heard_at);
        if self.questions.is_empty() && !self.calls_wait && silent >= self.supervisor.parts.settings.idle_max {
            let how = format!("the agent said nothing for {} seconds", silent.as_secs());
            return Ok(Some(course::after_loss(&how, self.behind())));
        }
        Ok(None)
    }

    /// A clock that was set neither ends the job nor gives it time.
    async fn follow_the_clock(&mut self) -> Result<(), Lost> {
        let clock = &self.supervisor.parts.clock;
        let Some(step_ms) = self.watch.step_ms(clock) else {
            return Ok(());
        };
        let mut writing = Writing::of(self.job.changed(clock.now()));
        writing.job.clock = writing.job.clock.set_by(step_ms);
        self.write(writing).await
    }

    /// Begins to end the turn; that it is being ended survives us.
    async fn end_turn(&mut self, now: Timestamp, delivered: Vec<NoteId>) -> Result<(), Lost> {
        let mut writing = Writing::of(self.job.changed(now));
        writing.job.sub_state = Some(SubState::Interrupting);
        writing.job.clock = writing.job.clock.paused(now);
        writing.delivered = delivered;
        self.write(writing).await?;
        self.interrupted_at = Some(self.supervisor.parts.clock.steady());
        self.withdraw_all("the turn is being ended").await;
        self.interrupt();
        Ok(())
    }

    fn interrupt(&mut self) {
        if let Some(conversation) = self.conversation.clone() {
            self.calls.spawn(async move { conversation.interrupt().await });
        }
    }

    pub(super) fn answer(&mut self, question: String, answer: AgentAnswer) {
        match self.conversation.clone() {
            Some(conversation) => {
                self.calls
                    .spawn(async move { conversation.answer(&question, answer).await });
            }
            None => self.answers.push((question, answer)),
        }
    }

    pub(super) fn behind(&self) -> Behind {
        let now = self.supervisor.parts.clock.now();
        let wish = match (self.interrupted_at, self.job.clock.is_over(now)) {
            (None, false) => Wish::None,
            (Some(_), false) => Wish::Interrupt,
            (_, true) => Wish::TimeOut,
        };
        Behind {
            wish,
            retries: self.job.retries,
            limited_until: self.limited_until,
        }
    }

    /// Whether the job is still ours. Its holder alone writes it, so another version is another holder's: this process
    /// slept, or was cut off, for longer than others wait for a sign of life.
    async fn check_hold(&self) -> Result<(), Lost> {
        let parts = &self.supervisor.parts;
        let kept = self.supervisor.read(|| parts.jobs.find(&self.job.id)).await;
        let kept = kept.map_err(Lost::Unrecorded)?;
        match kept {
            Some(kept) if kept.version == self.job.version => Ok(()),
            Some(_) | None => Err(Lost::Moved),
        }
    }

    /// Hands over what was said to the job since, in whichever process.
    async fn hand_over(&mut self) -> Result<(), Lost> {
        let parts = &self.supervisor.parts;
        let notes = self.supervisor.read(|| parts.jobs.notes(&self.job.id)).await;
        let notes = notes.map_err(Lost::Unrecorded)?;
        for note in notes.into_iter().filter(|note| !note.delivered) {
            let now = self.supervisor.parts.clock.now();
            match note.errand {
                Errand::Interrupt if self.interrupted_at.is_none() => self.end_turn(now, vec![note.id]).await?,
                Errand::Interrupt => {
                    let mut writing = Writing::of(self.job.changed(now));
                    writing.delivered.push(note.id);
                    self.write(writing).await?;
                }
                Errand::Message if self.is_heard() => self.say(note, now).await?,
                // It is said once there is somebody to hear it.
                Errand::Message => {}
            }
        }
        Ok(())
    }

    /// Whether the agent hears a message now. One whose turn is being ended hears none any more.
    fn is_heard(&self) -> bool {
        let hears = match self.agent.driver.hearing() {
            Hearing::Always => true,
            Hearing::BetweenTurns | Hearing::ByAnotherProcess => self.turn == Turn::Over,
        };
        hears && self.conversation.is_some() && self.interrupted_at.is_none()
    }

    async fn say(&mut self, note: Note, now: Timestamp) -> Result<(), Lost> {
        let mut writing = Writing::of(self.job.changed(now));
        let data = json!({"items": parts_json(&note.message), "by": note.by});
        writing.events.push(self.event(JobEventType::UserMessage, data));
        writing.delivered.push(note.id);
        self.write(writing).await?;
        if self.turn == Turn::Over {
            self.turn = Turn::Asked;
        }
        if let Some(conversation) = self.conversation.clone() {
            self.calls.spawn(async move { conversation.send(note.message).await });
        }
        Ok(())
    }

    async fn not_taken(&mut self, error: &DriverError) -> Result<(), Lost> {
        let message = format!("the agent did not take what was said to it: {error}");
        let mut writing = Writing::of(self.job.changed(self.supervisor.parts.clock.now()));
        writing
            .events
            .push(self.event(JobEventType::AgentWarning, json!({"message": message})));
        self.write(writing).await
    }

    /// Whether the agent is at the next turn when it tells of the end of one: what was being said to it missed that end, and
    /// began another.
    pub(super) async fn works_on(&mut self) -> Result<bool, Lost> {
        if self.agent.driver.hearing() != Hearing::Always || self.interrupted_at.is_some() {
            return Ok(false);
        }
        let deadline = tokio::time::Instant::now() + limits::INTERRUPT_PATIENCE;
        while let Ok(Some(said)) = tokio::time::timeout_at(deadline, self.calls.join_next()).await {
            if let Ok(Err(error)) = said {
                self.not_taken(&error).await?;
            }
        }
        Ok(self
            .conversation
            .as_ref()
            .is_some_and(|conversation| conversation.is_busy()))
    }

    pub(super) fn event(&self, kind: JobEventType, data: Value) -> JobEvent {
        self.supervisor.event(&self.job, &self.session, kind, data)
    }
}
