//! Follows one job from its turn to its end, or until it must be tried again.
//!
//! Everything an agent says is written down before the driver may go on. What is said to the agent is said
//! beside the following, never within it: an agent that waits to be heard could not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::super::driver::{
    AgentAnswer, AgentEvent, AgentEventKind, Conversation, DriverError, EventSink, EventSource, Input, Item, ItemKind,
    ItemPhase, ProcessMark, Resume, Start, Terms, Usage, Words,
};
use super::super::event::{JobEventType, of_agent};
use super::super::keeping::{Errand, GoneProcess, Hold, Note, parts_json};
use super::super::lifecycle::{JobStatus, JobStep, SessionStatus, SessionStep, SubState};
use super::super::session::JobSession;
use super::super::state::Job;
use super::course::{self, Behind, Ending, Next, Wish};
use super::writing::{Lost, Writing};
use super::{Agent, LOOK_EVERY, News, Supervisor};
use crate::approval::request::ApprovalRequest;
use crate::audit::event::EventType;
use crate::audit::{Change, Pending};
use crate::clock::Timestamp;
use crate::error::ErrorCode;
use crate::ids::{ApprovalId, ConversationId};
use crate::limits;
use crate::policy::effective::{Mode, SandboxMode};

/// Events that a driver may be ahead of what is written.
const EVENTS_AHEAD: usize = 64;

/// Said to an agent that is started again in the middle of its work.
const GO_ON: &str = "Your work was cut off, and what you were doing may be half done. Look at how things stand, \
    then go on with what you were asked.";

/// An agent that is being started or taken up.
type Starting = Pending<Result<Arc<dyn Conversation>, DriverError>>;

pub(super) struct Follower {
    pub(super) supervisor: Arc<Supervisor>,
    agent: Agent,
    pub(super) job: Job,
    pub(super) session: JobSession,
    conversation: Option<Arc<dyn Conversation>>,
    /// The agent's process, also when the job has ended and nobody needs it.
    process: Option<ProcessMark>,
    /// Open questions by the agent's ids of them.
    pub(super) questions: BTreeMap<String, ApprovalId>,
    /// Questions of an earlier life that nobody has asked again.
    pub(super) unasked: BTreeSet<ApprovalId>,
    pub(super) decisions: JoinSet<ApprovalRequest>,
    /// What is being said to the agent.
    calls: JoinSet<Result<(), DriverError>>,
    /// Answers that are ready before the conversation is.
    pub(super) answers: Vec<(String, AgentAnswer)>,
    /// Totals as far as they are written down.
    usage: Usage,
    /// Commands that failed in this job.
    pub(super) failed: BTreeSet<String>,
    limited_until: Option<Timestamp>,
    pub(super) heard_at: Timestamp,
    interrupted_at: Option<Timestamp>,
    /// Something may have been said to the job.
    look_for_notes: bool,
    /// A call that the agent made through us waits for a person.
    pub(super) calls_wait: bool,
}

impl Follower {
    pub(super) fn new(supervisor: Arc<Supervisor>, agent: Agent, job: Job, session: JobSession) -> Self {
        let heard_at = supervisor.parts.clock.now();
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
            decisions: JoinSet::new(),
            calls: JoinSet::new(),
            answers: Vec::new(),
            usage: Usage::default(),
            failed: BTreeSet::new(),
            limited_until: None,
            heard_at,
            interrupted_at: None,
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
            // Whoever has the job now has its agent too.
            Err(Lost::Moved) => {
                tracing::info!(job = %self.job.id, "another process looks after this job now");
                self.supervisor.parts.endpoints.close(&self.job.id).await;
            }
            Err(Lost::Unrecorded(error)) => {
                tracing::error!(job = %self.job.id, %error, "an agent is stopped: what it does cannot be recorded");
                self.leave(starting).await;
            }
        }
    }

    /// What earlier lives of this job left.
    async fn look_back(&mut self) -> Result<(), Lost> {
        let parts = &self.supervisor.parts;
        self.usage = parts.jobs.usage(&self.session.id).await.map_err(Lost::Unrecorded)?;
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
        Ok(())
    }

    async fn starting(&self, sink: EventSink) -> Starting {
        let terms = self.terms().await;
        let driver = &self.agent.driver;
        let Some(conversation) = &self.session.conversation_id else {
            // An earlier try may have left a process that nobody can speak with.
            if self.job.sub_state.is_some() || self.session.process.is_some() {
                let job = self.job.id.as_str().to_owned();
                driver.reap(job, self.session.process.clone()).await;
            }
            let prompt = vec![Input::Text(self.job.input.prompt.clone())];
            return driver.start(Start { prompt, terms }, sink);
        };
        let words = match self.job.status() {
            JobStatus::Pending => Words::Next(vec![Input::Text(self.job.input.prompt.clone())]),
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
            words,
            terms,
        };
        driver.resume(resume, sink)
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

    async fn terms(&self) -> Terms {
        let config = &self.session.config;
        let text = |name: &str| config[name].as_str();
        let mode = match &config["approvalPolicy"] {
            Value::String(word) => Mode::parse(word),
            other => other["mode"].as_str().and_then(Mode::parse),
        };
        Terms {
            job_id: self.job.id.as_str().to_owned(),
            caller: self.job.owner.as_str().to_owned(),
            cwd: text("cwd").unwrap_or("/").into(),
            model: self.job.input.model.clone(),
            // What cannot be read is the strictest.
            mode: mode.unwrap_or(Mode::Untrusted),
            sandbox: text("sandboxPolicy")
                .and_then(SandboxMode::parse)
                .unwrap_or(SandboxMode::ReadOnly),
            environment: self.agent.environment.clone(),
            endpoint: self.supervisor.parts.endpoints.open(&self.job).await,
        }
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
                self.hand_over().await?;
                self.look_at_calls().await?;
            }
            tokio::select! {
                biased;
                begun = started(starting), if starting.is_some() => match begun {
                    Ok(conversation) => self.begun(conversation),
                    Err(error) => return Ok(course::after_refusal(&error, self.behind())),
                },
                heard = source.next() => match heard {
                    Some(heard) => {
                        self.heard_at = self.supervisor.parts.clock.now();
                        if let Some(next) = self.hear(&heard.event).await? {
                            return Ok(next);
                        }
                    }
                    None => return Ok(course::after_loss(&course::exit_words(None, None), self.behind())),
                },
                Some(decided) = self.decisions.join_next(), if !self.decisions.is_empty() => {
                    self.heard_at = self.supervisor.parts.clock.now();
                    if let Ok(approval) = decided {
                        self.decided(approval).await?;
                    }
                }
                Some(said) = self.calls.join_next(), if !self.calls.is_empty() => {
                    if let Ok(Err(error)) = said {
                        self.note_warning(&format!("the agent did not take what was said to it: {error}")).await?;
                    }
                }
                _ = tokio::time::timeout(LOOK_EVERY, changes.changed()) => self.look_for_notes = true,
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
        let now = self.supervisor.parts.clock.now();
        if let Some(since) = self.interrupted_at {
            let over = now.since(since) >= limits::INTERRUPT_PATIENCE || self.conversation.is_none();
            return Ok(over.then(|| course::after_loss("it did not end when it was told to", self.behind())));
        }
        if self.job.clock.is_over(now) {
            self.end_turn(now, Vec::new()).await?;
            return Ok(None);
        }
        let silent = now.since(self.heard_at);
        if self.questions.is_empty() && !self.calls_wait && silent >= self.supervisor.parts.settings.idle_max {
            let how = format!("the agent said nothing for {} seconds", silent.as_secs());
            return Ok(Some(course::after_loss(&how, self.behind())));
        }
        Ok(None)
    }

    /// Begins to end the turn; that it is being ended survives us.
    async fn end_turn(&mut self, now: Timestamp, delivered: Vec<crate::ids::NoteId>) -> Result<(), Lost> {
        let mut writing = Writing::of(self.job.changed(now));
        writing.job.sub_state = Some(SubState::Interrupting);
        writing.job.clock = writing.job.clock.paused(now);
        writing.delivered = delivered;
        self.write(writing).await?;
        self.interrupted_at = Some(now);
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

    fn behind(&self) -> Behind {
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

    /// Hands over what was said to the job since, in whichever process.
    async fn hand_over(&mut self) -> Result<(), Lost> {
        let notes = self.supervisor.parts.jobs.notes(&self.job.id).await;
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
                Errand::Message if self.conversation.is_some() => self.say(note, now).await?,
                // It is said once there is somebody to hear it.
                Errand::Message => {}
            }
        }
        Ok(())
    }

    async fn say(&mut self, note: Note, now: Timestamp) -> Result<(), Lost> {
        let mut writing = Writing::of(self.job.changed(now));
        let data = json!({"items": parts_json(&note.message), "by": note.by});
        writing.events.push(self.event(JobEventType::UserMessage, data));
        writing.delivered.push(note.id);
        self.write(writing).await?;
        if let Some(conversation) = self.conversation.clone() {
            self.calls.spawn(async move { conversation.send(note.message).await });
        }
        Ok(())
    }

    async fn note_warning(&mut self, message: &str) -> Result<(), Lost> {
        let mut writing = Writing::of(self.job.changed(self.supervisor.parts.clock.now()));
        writing
            .events
            .push(self.event(JobEventType::AgentWarning, json!({"message": message})));
        self.write(writing).await
    }

    fn event(&self, kind: JobEventType, data: Value) -> super::super::event::JobEvent {
        self.supervisor.event(&self.job, &self.session, kind, data)
    }

    /// Writes down what the agent said, and says what follows where something does.
    async fn hear(&mut self, event: &AgentEvent) -> Result<Option<Next>, Lost> {
        let now = self.supervisor.parts.clock.now();
        let said = of_agent(event, &self.supervisor.parts.redactor);
        let mut writing = Writing::of(self.job.changed(now));
        if let Some((kind, data)) = said {
            let mut line = self.event(kind, Value::Null);
            line.data = data;
            writing.events.push(line);
        }
        match &event.kind {
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
                let (job_id, text) = (self.job.id.clone(), text.as_str().into());
                let _ = self.supervisor.news.send(News::Text { job_id, text });
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
                let next = course::after_turn(end, self.behind());
                return self.conclude(next, writing).await;
            }
            AgentEventKind::Exited { status, signal } => {
                let how = course::exit_words(*status, *signal);
                let crashed = EventType::JobProcessCrashed;
                let mark = self.session.process.as_ref();
                writing
                    .drafts
                    .push(self.supervisor.process_draft(&self.job, crashed, mark, Some(&how)));
                let data = json!({"status": status, "signal": signal, "reason": how});
                writing.events.push(self.event(JobEventType::ProcessCrashed, data));
                self.write(writing).await?;
                return Ok(Some(course::after_loss(&how, self.behind())));
            }
            AgentEventKind::Message(_) => {
                // It goes on, so no limit holds it.
                self.limited_until = None;
                self.write(writing).await?;
            }
            AgentEventKind::TurnStarted { .. }
            | AgentEventKind::Diff(_)
            | AgentEventKind::Retrying { .. }
            | AgentEventKind::Warning(_)
            | AgentEventKind::Unknown => self.write(writing).await?,
        }
        Ok(None)
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
        let again = self.session.process.is_some() || self.job.retries > 0 || self.job.sub_state.is_some();
        let (kind, line) = if again {
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
        if item.kind == ItemKind::Command && item.phase == ItemPhase::Failed {
            self.failed.insert(item.title.clone());
        }
    }

    /// Writes how a turn ended in one with what follows from it.
    async fn conclude(&mut self, next: Next, writing: Writing) -> Result<Option<Next>, Lost> {
        match &next {
            Next::End(ending) if ending.step == JobStep::Complete => {
                let ended = self.ended(ending, writing.events.clone());
                match self.write(ended).await {
                    Ok(()) => Ok(Some(next)),
                    // A message came at the last moment: it is the next turn.
                    Err(Lost::Moved) if self.has_message().await? => {
                        self.write(writing).await?;
                        self.look_for_notes = true;
                        Ok(None)
                    }
                    Err(lost) => Err(lost),
                }
            }
            Next::End(ending) => {
                let ended = self.ended(ending, writing.events);
                self.write(ended).await?;
                Ok(Some(next))
            }
            Next::TryAgain { .. } | Next::PauseUntil { .. } => {
                self.write(writing).await?;
                Ok(Some(next))
            }
        }
    }

    /// Whether the job stands as we know it and somebody said something to it.
    async fn has_message(&self) -> Result<bool, Lost> {
        let jobs = &self.supervisor.parts.jobs;
        let kept = jobs.find(&self.job.id).await.map_err(Lost::Unrecorded)?;
        if kept.is_none_or(|kept| kept.version != self.job.version) {
            return Ok(false);
        }
        let notes = jobs.notes(&self.job.id).await.map_err(Lost::Unrecorded)?;
        let waits = |note: &Note| !note.delivered && note.errand == Errand::Message;
        Ok(notes.iter().any(waits))
    }

    /// The job's end, with the session at rest, or ended where nobody can come back to it.
    fn ended(&self, ending: &Ending, events: Vec<super::super::event::JobEvent>) -> Writing {
        let supervisor = &self.supervisor;
        let now = supervisor.parts.clock.now();
        let mut job = self
            .job
            .step(ending.step, now)
            .unwrap_or_else(|_| self.job.changed(now));
        job.result = ending.result.as_ref().map(|text| {
            let clean = supervisor.parts.redactor.redact_text(text);
            cut(&clean, limits::JOB_RESULT_BYTES_MAX).to_owned()
        });
        job.error.clone_from(&ending.error);
        let mut writing = Writing::of(job.clone());
        writing.events = events;
        writing.hold = Hold::Release;
        let step = match self.session.status() {
            SessionStatus::Active => Some(SessionStep::Rest),
            SessionStatus::Initializing | SessionStatus::Recovering => Some(SessionStep::Terminate),
            SessionStatus::Idle | SessionStatus::Terminated => None,
        };
        let stepped = step.and_then(|step| Some((step, self.session.step(step).ok()?)));
        let mut session = stepped
            .as_ref()
            .map_or_else(|| self.session.changed(), |(_, session)| session.clone());
        session.process = None;
        writing.drafts.push(supervisor.step_draft(&job, ending.step));
        writing.events.push(supervisor.step_event(&job, &session, ending.step));
        if let Some((step, _)) = stepped {
            writing.drafts.push(supervisor.session_draft(&job, &session, step));
            let kind = JobEventType::of_session_step(step);
            writing.events.push(supervisor.event(&job, &session, kind, json!({})));
        }
        writing.session = Some(session);
        writing
    }

    /// Carries out what follows; what is written already is not written again.
    async fn settle(&mut self, next: Next) -> Result<(), Lost> {
        if self.job.has_ended() {
            return Ok(());
        }
        match next {
            Next::End(ending) => {
                let ended = self.ended(&ending, Vec::new());
                self.write(ended).await
            }
            Next::TryAgain { pause, why } => {
                let mut job = self.resting(pause_until(&self.supervisor, pause));
                job.retries += 1;
                job.sub_state = Some(SubState::Recovering);
                self.rest(job, Vec::new(), &why).await
            }
            Next::PauseUntil { until, why } => {
                let mut job = self.resting(until);
                job.sub_state = Some(SubState::PausedLimit);
                let paused = self.supervisor.limit_reached(&job, &why);
                self.rest(job, vec![paused], &why).await
            }
        }
    }

    fn resting(&self, until: Timestamp) -> Job {
        let now = self.supervisor.parts.clock.now();
        let mut job = self.job.changed(now);
        job.clock = job.clock.paused(now);
        job.not_before = Some(until);
        job
    }

    /// Back into the queue, to be taken up when its time comes.
    async fn rest(&mut self, job: Job, drafts: Vec<crate::audit::event::Draft>, why: &str) -> Result<(), Lost> {
        let mut writing = Writing::of(job);
        writing.hold = Hold::Release;
        writing.drafts = drafts;
        if let Ok(session) = self.session.step(SessionStep::Recover) {
            let recovering = EventType::JobSessionRecovering;
            let draft = self
                .supervisor
                .session_event(&writing.job, &session, recovering, Some(why));
            writing.drafts.push(draft);
            writing
                .events
                .push(self.event(JobEventType::SessionRecovering, json!({"reason": why})));
            writing.session = Some(session);
        }
        self.write(writing).await
    }

    /// Lets go of the agent: its process ends, its questions are taken back, its file is whole.
    async fn leave(&mut self, starting: Option<Starting>) {
        self.withdraw_all("the job no longer waits for this").await;
        let conversation = match (self.conversation.take(), starting) {
            // It was over before it was taken up. Its driver holds a process for us by now, and only a
            // conversation can let go of that.
            (None, Some(starting)) => {
                let begun = tokio::time::timeout(limits::INTERRUPT_PATIENCE, starting).await;
                begun.ok().and_then(Result::ok)
            }
            (conversation, _) => conversation,
        };
        match conversation {
            Some(conversation) => conversation.stop().await,
            None => {
                let (job, process) = (self.job.id.as_str().to_owned(), self.process.clone());
                self.agent.driver.reap(job, process).await;
            }
        }
        let gone = self.processes_gone().await;
        if let Err(error) = gone {
            tracing::warn!(%error, "that an agent's process is gone could not be recorded; it is looked for again");
        }
        // Not before the agent is gone: it would take the closed door for a failure.
        self.supervisor.parts.endpoints.close(&self.job.id).await;
        if self.job.has_ended() {
            self.supervisor.file_up(&self.session, true).await;
        }
    }

    async fn processes_gone(&self) -> Result<(), crate::audit::RecordError> {
        let parts = &self.supervisor.parts;
        let ours = parts.jobs.processes().await?.into_iter();
        let gone = ours
            .filter(|process| process.session_id == self.session.id)
            .map(|process| GoneProcess {
                mark: process.mark,
                session: process.session_id,
            });
        let gone: Vec<_> = gone.collect();
        if gone.is_empty() {
            return Ok(());
        }
        self.supervisor
            .commit(Change {
                gone,
                ..Change::default()
            })
            .await
    }
}

/// The agent, once it is there.
async fn started(starting: &mut Option<Starting>) -> Result<Arc<dyn Conversation>, DriverError> {
    let begun = match starting {
        Some(starting) => starting.await,
        None => std::future::pending().await,
    };
    *starting = None;
    begun
}

fn pause_until(supervisor: &Supervisor, pause: Duration) -> Timestamp {
    supervisor.parts.clock.now().after(pause)
}

/// What was used between two totals; none where nothing was.
fn since(total: &Usage, before: &Usage) -> Option<Usage> {
    let cost = total
        .cost_usd
        .map(|cost| (cost - before.cost_usd.unwrap_or(0.0)).max(0.0));
    let used = Usage {
        model: total.model.clone(),
        prompt_tokens: total.prompt_tokens.saturating_sub(before.prompt_tokens),
        completion_tokens: total.completion_tokens.saturating_sub(before.completion_tokens),
        total_tokens: total.total_tokens.saturating_sub(before.total_tokens),
        cost_usd: cost,
    };
    (used.total_tokens > 0 || cost.is_some_and(|cost| cost > 0.0)).then_some(used)
}

/// As much of a text as is kept.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
