//! Conversations of agents that start a process for every turn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_gateway::audit::Pending;
use countersign_gateway::job::driver::{AgentAnswer, AgentEventKind, Conversation, DriverError, EventSink, Input};

use crate::process::{Launch, Launcher};
use crate::speech::{Opening, Speech, Talk, is_busy};

/// How a turn of one agent is made.
pub(crate) trait Recipe: Send + Sync + 'static {
    /// The process of a turn and the language it speaks.
    fn turn(&self, message: &[Input]) -> Result<(Launch, Box<dyn Speech>), DriverError>;

    /// What is told before anything was heard.
    fn first(&self) -> Vec<AgentEventKind>;

    /// A program that makes events of what the process writes.
    fn parser(&self) -> Option<Launch> {
        None
    }

    /// A process was started.
    fn started(&self, _talk: &Talk) {}
}

#[derive(Clone)]
pub(crate) struct Turns {
    launcher: Launcher,
    recipe: Arc<dyn Recipe>,
    events: EventSink,
    current: Arc<Mutex<Option<Talk>>>,
}

impl Turns {
    /// Begins with a first turn.
    pub(crate) async fn begin(
        launcher: &Launcher,
        recipe: Arc<dyn Recipe>,
        events: EventSink,
        message: &[Input],
    ) -> Result<Turns, DriverError> {
        let turns = Turns {
            launcher: launcher.clone(),
            recipe,
            events,
            current: Arc::default(),
        };
        turns.turn(message).await?;
        Ok(turns)
    }

    async fn turn(&self, message: &[Input]) -> Result<(), DriverError> {
        let (launch, speech) = self.recipe.turn(message)?;
        let opening = Opening {
            launch,
            parser: self.recipe.parser(),
            speech,
            first: self.recipe.first(),
        };
        let talk = Talk::begin(&self.launcher, opening, self.events.clone()).await?;
        self.recipe.started(&talk);
        *self.current() = Some(talk);
        Ok(())
    }

    fn current(&self) -> MutexGuard<'_, Option<Talk>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn talk(&self) -> Option<Talk> {
        self.current().clone()
    }
}

impl Conversation for Turns {
    fn send(&self, message: Vec<Input>) -> Pending<Result<(), DriverError>> {
        let turns = self.clone();
        Box::pin(async move {
            if let Some(talk) = turns.talk() {
                if talk.is_busy() {
                    return Err(is_busy());
                }
                // Its last process may still be on its way out, and two must not write to one conversation.
                talk.ended().await;
            }
            turns.turn(&message).await
        })
    }

    fn answer(&self, question: &str, answer: AgentAnswer) -> Pending<Result<(), DriverError>> {
        match self.talk() {
            Some(talk) => talk.answer(question, answer),
            None => Box::pin(async { Ok(()) }),
        }
    }

    fn interrupt(&self) -> Pending<Result<(), DriverError>> {
        match self.talk() {
            Some(talk) => talk.interrupt(),
            None => Box::pin(async { Ok(()) }),
        }
    }

    fn stop(&self) -> Pending<()> {
        match self.talk() {
            Some(talk) => talk.stop(),
            None => Box::pin(async {}),
        }
    }
}
