//! One conversation with an app-server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_gateway::audit::Pending;
use countersign_gateway::job::driver::{AgentAnswer, Conversation, DriverError, Input};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::line::{CallError, Line};
use super::reading::{Reading, decision};
use super::server::{Server, Servers};
use crate::limits;
use crate::process::Tree;

#[derive(Clone)]
pub(super) struct Thread {
    pub(super) state: Arc<State>,
}

/// What the conversation and whoever follows its events have in common.
pub(super) struct State {
    pub(super) servers: Arc<Servers>,
    pub(super) server: Arc<Server>,
    pub(super) job_id: String,
    /// What is said with every turn.
    pub(super) turn_settings: Value,
    pub(super) reading: Mutex<Reading>,
    pub(super) line: Mutex<Arc<Line>>,
    pub(super) busy: watch::Sender<bool>,
    pub(super) wish: Mutex<Wish>,
    /// The process was let go of: nothing more is to be followed.
    pub(super) released: watch::Sender<bool>,
}

/// What was asked for and is still to be seen.
#[derive(Debug, Default)]
pub(super) struct Wish {
    pub(super) is_interrupted: bool,
    pub(super) is_stopped: bool,
    /// The process was taken once, so it is let go of once: its other users are counted.
    is_let_go: bool,
}

impl State {
    pub(super) fn reading(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wish(&self) -> MutexGuard<'_, Wish> {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn line(&self) -> Arc<Line> {
        Arc::clone(&self.line.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn use_line(&self, line: Arc<Line>) {
        *self.line.lock().unwrap_or_else(PoisonError::into_inner) = line;
    }

    pub(super) fn announce(&self) {
        let busy = self.reading().turn_id().is_some();
        self.busy.send_if_modified(|was| std::mem::replace(was, busy) != busy);
    }

    /// Waits until the conversation was stopped and its process let go of.
    pub(super) async fn until_released(&self) {
        let mut released = self.released.subscribe();
        // The other end is ours as well, so this cannot end in another way.
        let _ = released.wait_for(|released| *released).await;
    }

    /// Begins a turn.
    pub(super) async fn begin_turn(&self, message: &[Input]) -> Result<(), DriverError> {
        self.wish().is_interrupted = false;
        let mut params = self.turn_settings.clone();
        params["threadId"] = json!(self.reading().thread_id());
        params["input"] = inputs(message);
        let answer = self.line().call("turn/start", params).await?;
        if let Some(turn_id) = answer.pointer("/turn/id").and_then(Value::as_str) {
            self.reading().turn_runs(turn_id);
        }
        self.announce();
        Ok(())
    }

    /// A word into the running turn; false when it has ended meanwhile.
    async fn steer(&self, turn_id: &str, message: &[Input]) -> Result<bool, DriverError> {
        let params =
            json!({"threadId": self.reading().thread_id(), "expectedTurnId": turn_id, "input": inputs(message)});
        match self.line().call("turn/steer", params).await {
            Ok(_) => Ok(true),
            Err(CallError::Refused { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn interrupt(&self) -> Result<(), DriverError> {
        self.wish().is_interrupted = true;
        let line = self.line();
        let thread_id = self.reading().thread_id().to_owned();
        let turn_id = self.reading().turn_id();
        let mut outcome = Ok(());
        if let Some(turn_id) = turn_id {
            let params = json!({"threadId": thread_id, "turnId": turn_id});
            match line.call_within(limits::PROTOCOL_GRACE, "turn/interrupt", params).await {
                // Refused is a turn that has just ended by itself.
                Ok(_) | Err(CallError::Refused { .. }) => {
                    let mut busy = self.busy.subscribe();
                    let _ = timeout(limits::PROTOCOL_GRACE, busy.wait_for(|busy| !busy)).await;
                }
                Err(error) => outcome = Err(error.into()),
            }
        }
        // An interrupt leaves commands running; this is what ends them.
        let clean = json!({"threadId": thread_id});
        let _ = line
            .call_within(limits::PROTOCOL_GRACE, "thread/backgroundTerminals/clean", clean)
            .await;
        self.end_marked().await;
        outcome
    }

    /// Ends what carries the job's mark: commands of this conversation, never the app-server or a neighbour's.
    pub(super) async fn end_marked(&self) {
        if let Err(survivors) = Tree::of(&self.job_id, None).end(&Default::default()).await {
            tracing::error!(pids = ?survivors.0, "commands of an agent could not be killed");
        }
    }

    async fn stop(&self) {
        if std::mem::replace(&mut self.wish().is_stopped, true) {
            return;
        }
        let _ = self.interrupt().await;
        let params = json!({"threadId": self.reading().thread_id()});
        let _ = self
            .line()
            .call_within(limits::PROTOCOL_GRACE, "thread/unsubscribe", params)
            .await;
        self.let_go().await;
        self.released.send_replace(true);
    }

    pub(super) async fn let_go(&self) {
        if !std::mem::replace(&mut self.wish().is_let_go, true) {
            self.servers.let_go(&self.server, &self.job_id).await;
        }
    }
}

impl Conversation for Thread {
    fn send(&self, message: Vec<Input>) -> Pending<Result<(), DriverError>> {
        let state = Arc::clone(&self.state);
        Box::pin(async move {
            let turn_id = state.reading().turn_id();
            if let Some(turn_id) = turn_id
                && state.steer(&turn_id, &message).await?
            {
                return Ok(());
            }
            state.begin_turn(&message).await
        })
    }

    fn is_busy(&self) -> bool {
        self.state.reading().turn_id().is_some()
    }

    fn answer(&self, question: &str, answer: AgentAnswer) -> Pending<Result<(), DriverError>> {
        let state = Arc::clone(&self.state);
        let question = question.to_owned();
        Box::pin(async move {
            let (request, turn_id) = {
                let mut reading = state.reading();
                (reading.answered(&question), reading.turn_id())
            };
            let Some(id) = request else {
                return Ok(());
            };
            state.line().answer(&id, decision(&answer));
            // A refusal has no place for its reason, without which an agent only tries again.
            if let (AgentAnswer::Deny { reason }, Some(turn_id)) = (&answer, turn_id)
                && !reason.is_empty()
            {
                let words = Input::Text(format!("What you asked for was declined: {reason}"));
                state.steer(&turn_id, &[words]).await?;
            }
            Ok(())
        })
    }

    fn interrupt(&self) -> Pending<Result<(), DriverError>> {
        let state = Arc::clone(&self.state);
        Box::pin(async move { state.interrupt().await })
    }

    fn stop(&self) -> Pending<()> {
        let state = Arc::clone(&self.state);
        Box::pin(async move { state.stop().await })
    }
}

fn inputs(message: &[Input]) -> Value {
    let input = |input: &Input| match input {
        Input::Text(text) => json!({"type": "text", "text": text}),
        Input::Image { url } => json!({"type": "image", "url": url}),
    };
    message.iter().map(input).collect()
}
