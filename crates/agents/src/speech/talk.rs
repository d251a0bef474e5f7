//! One process that is spoken with, for as long as it lives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_gateway::audit::Pending;
use countersign_gateway::job::driver::{
    AgentAnswer, AgentEventKind, Conversation, DriverError, EventSink, Input, ProcessMark,
};
use countersign_sandbox::agent;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::listen::{Listener, write_all};
use super::{Interruption, Speech, noticed};
use crate::limits;
use crate::process::{Ending, Launch, Launcher, Process, Streams, Tree};

/// A conversation over pipes.
#[derive(Clone)]
pub(crate) struct Talk {
    shared: Arc<Shared>,
    process: ProcessMark,
    tree: Tree,
    mark: String,
    ending: watch::Receiver<Option<Ending>>,
}

/// What the conversation, its reader and its writer have in common.
pub(super) struct Shared {
    speech: Mutex<Box<dyn Speech>>,
    outbox: Mutex<Option<mpsc::UnboundedSender<Value>>>,
    busy: watch::Sender<bool>,
    /// Processes of the agent itself, which no interrupt ends.
    spared: Mutex<BTreeMap<u32, u64>>,
    /// When something was heard last.
    heard_at: Mutex<Instant>,
    /// Everything was told, up to the end of the process.
    over: watch::Sender<bool>,
}

/// What a conversation over pipes begins with.
pub(crate) struct Opening {
    pub(crate) launch: Launch,
    /// A program that makes events of what the process writes.
    pub(crate) parser: Option<Launch>,
    pub(crate) speech: Box<dyn Speech>,
    /// What is told before anything was heard.
    pub(crate) first: Vec<AgentEventKind>,
}

impl Talk {
    /// Starts a process, tells its mark before anything is said to it, and begins.
    pub(crate) async fn begin(launcher: &Launcher, opening: Opening, events: EventSink) -> Result<Talk, DriverError> {
        let mark = opening.launch.mark.clone();
        let mut process = launcher.start(opening.launch)?;
        let told = events
            .send(noticed(AgentEventKind::Spawned(process.mark.clone())))
            .await;
        for kind in opening.first {
            let _ = events.send(noticed(kind)).await;
        }
        if told.is_err() {
            // Nobody could record it, and what is not recorded must not run.
            process.end().await;
            return Err(DriverError::Process("nobody follows its events".to_owned()));
        }
        let parser = match opening.parser {
            Some(parser) => match with_parser(launcher, &mut process, parser) {
                Ok(parser) => Some(parser),
                Err(error) => {
                    process.end().await;
                    return Err(error);
                }
            },
            None => None,
        };
        Ok(Talk::with(process, parser, mark, opening.speech, events))
    }

    fn with(
        mut process: Process,
        mut parser: Option<Process>,
        mark: String,
        mut speech: Box<dyn Speech>,
        events: EventSink,
    ) -> Talk {
        let (outbox, lines) = mpsc::unbounded_channel();
        for line in speech.begin() {
            let _ = outbox.send(line);
        }
        let shared = Arc::new(Shared {
            busy: watch::Sender::new(speech.is_busy()),
            speech: Mutex::new(speech),
            outbox: Mutex::new(Some(outbox)),
            spared: Mutex::new(BTreeMap::from([(process.mark.pid, process.mark.started)])),
            heard_at: Mutex::new(Instant::now()),
            over: watch::Sender::new(false),
        });
        tokio::spawn(write_all(process.stdin.take(), lines));
        let stdout = match &mut parser {
            Some(parser) => parser.stdout.take(),
            None => process.stdout.take(),
        };
        let listener = Listener {
            shared: Arc::clone(&shared),
            tree: process.tree.clone(),
            mark: mark.clone(),
            ending: process.ending.clone(),
            events,
            parser,
        };
        tokio::spawn(listener.follow(stdout, process.stderr.take()));
        Talk {
            shared,
            process: process.mark,
            tree: process.tree,
            mark,
            ending: process.ending,
        }
    }

    /// Whether its process is still there.
    pub(crate) fn is_over(&self) -> bool {
        *self.shared.over.borrow()
    }

    /// Whether a turn runs. Asked of what was heard: those who wait for a turn's end hear of it a moment later.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.speech().is_busy()
    }

    /// Waits until its process is gone and everything of it was told. One that has nothing more to do and stays is ended.
    pub(crate) async fn ended(&self) {
        if !until(limits::PROTOCOL_GRACE, self.shared.over.subscribe(), |over| over).await {
            self.end_process().await;
        }
    }

    /// How long it has said nothing, not counting while it waits for us.
    pub(crate) fn silence(&self) -> Duration {
        if self.shared.speech().is_waiting() {
            self.shared.note_life();
        }
        let heard_at = *self.shared.heard_at.lock().unwrap_or_else(PoisonError::into_inner);
        heard_at.elapsed()
    }

    /// Ends it because of this.
    pub(crate) async fn condemn(&self, reason: &str) {
        self.shared.speech().condemn(reason);
        self.end_process().await;
    }

    async fn interrupted(&self) {
        let was = self.shared.speech().interrupt();
        match was {
            Interruption::Words(lines) => {
                self.shared.write(lines);
                let ended = self.shared.busy.subscribe();
                if until(limits::PROTOCOL_GRACE, ended, |busy| !busy).await || self.is_over() {
                    let spared = self.shared.spared().clone();
                    if let Err(survivors) = self.tree.end(&spared).await {
                        tracing::error!(pids = ?survivors.0, "what a turn started could not be killed");
                    }
                } else {
                    self.end_process().await;
                }
            }
            Interruption::Signals => self.end_process().await,
        }
    }

    async fn end_process(&self) {
        crate::process::end(&self.process, &self.tree).await;
        until(limits::KILL_WAIT, self.shared.over.subscribe(), |over| over).await;
        agent::forget(&self.mark);
    }

    async fn stopped(&self) {
        if self.is_busy() && !self.is_over() {
            self.interrupted().await;
        }
        // An agent that reads its input ends with it.
        self.shared.close();
        let _ = timeout(limits::TERMINATE_GRACE, Ending::of(self.ending.clone())).await;
        self.end_process().await;
    }
}

impl Conversation for Talk {
    fn send(&self, message: Vec<Input>) -> Pending<Result<(), DriverError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let lines = shared.speech().send(message)?;
            shared.announce();
            shared.write_or_fail(lines)
        })
    }

    fn answer(&self, question: &str, answer: AgentAnswer) -> Pending<Result<(), DriverError>> {
        let shared = Arc::clone(&self.shared);
        let question = question.to_owned();
        Box::pin(async move {
            let lines = shared.speech().answer(&question, answer)?;
            shared.write(lines);
            Ok(())
        })
    }

    fn interrupt(&self) -> Pending<Result<(), DriverError>> {
        let talk = self.clone();
        Box::pin(async move {
            talk.interrupted().await;
            Ok(())
        })
    }

    fn stop(&self) -> Pending<()> {
        let talk = self.clone();
        Box::pin(async move { talk.stopped().await })
    }
}

impl Shared {
    pub(super) fn speech(&self) -> MutexGuard<'_, Box<dyn Speech>> {
        self.speech.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spared(&self) -> MutexGuard<'_, BTreeMap<u32, u64>> {
        self.spared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What runs now is the agent's own; what a turn starts comes later.
    pub(super) async fn spare(&self, tree: &Tree) {
        // Where nobody can tell, those of before are spared: the agent itself is one of them.
        if let Ok(members) = tree.look().await {
            *self.spared() = members;
        }
    }

    /// Lets whoever waits for the end of a turn look again.
    pub(super) fn announce(&self) {
        let busy = self.speech().is_busy();
        self.busy.send_if_modified(|was| std::mem::replace(was, busy) != busy);
    }

    pub(super) fn note_life(&self) {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(super) fn conclude(&self) {
        self.close();
        self.busy.send_replace(false);
        self.over.send_replace(true);
    }

    pub(super) fn write(&self, lines: Vec<Value>) {
        // An agent that is gone is told of by its end.
        let _ = self.write_or_fail(lines);
    }

    fn write_or_fail(&self, lines: Vec<Value>) -> Result<(), DriverError> {
        let outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = || DriverError::Process("it has ended; take the conversation up again".to_owned());
        let outbox = outbox.as_ref().ok_or_else(gone)?;
        lines
            .into_iter()
            .try_for_each(|line| outbox.send(line).map_err(|_| gone()))
    }

    fn close(&self) {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Starts a parser that reads what the agent writes.
fn with_parser(launcher: &Launcher, process: &mut Process, parser: Launch) -> Result<Process, DriverError> {
    let unusable = |error: std::io::Error| DriverError::Process(format!("its output cannot be handed on: {error}"));
    let stdout = process
        .stdout
        .take()
        .ok_or_else(|| unusable(std::io::ErrorKind::BrokenPipe.into()))?;
    let streams = Streams::Fed(stdout.into_owned_fd().map_err(unusable)?);
    launcher.start(Launch { streams, ..parser })
}

/// Waits until the value is as wanted; false when it did not become so in time.
async fn until(patience: Duration, mut value: watch::Receiver<bool>, is_so: impl Fn(bool) -> bool) -> bool {
    timeout(patience, value.wait_for(|value| is_so(*value)))
        .await
        .is_ok_and(|found| found.is_ok())
}

/// The text of a line, with its end.
pub(crate) fn with_end(value: &Value) -> String {
    format!("{value}\n")
}
