//! Following a conversation: telling what is said, holding the end of a turn back while its commands still run,
//! and coming back when the line breaks.

use std::sync::Arc;

use countersign_gateway::job::driver::{AgentEvent, AgentEventKind, EventSink, TurnEnd};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::line::Said;
use super::reading::Step;
use super::thread::State;
use crate::limits;
use crate::process::Ending;
use crate::speech::{how_it_ended, noticed};

pub(super) struct Follower {
    pub(super) state: Arc<State>,
    pub(super) said: mpsc::Receiver<Said>,
    pub(super) events: EventSink,
    /// The end of a turn that is not told yet.
    pub(super) held: Option<AgentEvent>,
}

impl Follower {
    pub(super) async fn follow(mut self) {
        loop {
            tokio::select! {
                biased;
                said = self.said.recv() => match said {
                    Some(said) => self.heard(said).await,
                    None if self.state.wish().is_stopped => {
                        self.state.until_released().await;
                        return self.let_go().await;
                    }
                    None => {
                        if !self.come_back().await {
                            return self.gone().await;
                        }
                    }
                },
                () = self.state.until_released() => return self.let_go().await,
                () = sleep(limits::LEFTOVER_LOOK), if self.held.is_some() => self.look_again().await,
            }
        }
    }

    async fn heard(&mut self, said: Said) {
        let steps = self.state.reading().hear(said);
        self.state.announce();
        for step in steps {
            match step {
                Step::Tell(event) => {
                    if matches!(event.kind, AgentEventKind::TurnStarted { .. }) {
                        self.release().await;
                    }
                    self.tell(event).await;
                }
                Step::TurnEnded(event) => {
                    self.held = Some(event);
                    self.look_again().await;
                }
                Step::Refuse { id, method } => self.state.line().refuse(&id, &method),
            }
        }
    }

    /// Tells the held end once no command of the turn is left.
    async fn look_again(&mut self) {
        let params = json!({"threadId": self.state.reading().thread_id()});
        let line = self.state.line();
        let listed = line.call("thread/backgroundTerminals/list", params).await;
        let is_left = listed.is_ok_and(|listed| {
            let terminals = listed.get("data").and_then(Value::as_array);
            terminals.is_some_and(|terminals| !terminals.is_empty())
        });
        if !is_left {
            self.release().await;
        }
    }

    async fn release(&mut self) {
        let Some(mut held) = self.held.take() else {
            return;
        };
        // Commands that an interrupt ended did not complete, although the model had said its last word.
        if self.state.wish().is_interrupted && matches!(held.kind, AgentEventKind::TurnEnded(TurnEnd::Completed { .. }))
        {
            held.kind = AgentEventKind::TurnEnded(TurnEnd::Interrupted);
        }
        self.tell(held).await;
    }

    async fn tell(&self, event: AgentEvent) {
        let _ = self.events.send(event).await;
    }

    async fn tell_all(&self, events: Vec<AgentEvent>) {
        for event in events {
            self.tell(event).await;
        }
    }

    /// A new line to the same process, and what was missed.
    async fn come_back(&mut self) -> bool {
        if !self.state.server.runs() {
            return false;
        }
        let Ok((line, said)) = self.state.server.line().await else {
            return false;
        };
        let params = json!({"threadId": self.state.reading().thread_id()});
        let Ok(answer) = line.call("thread/resume", params).await else {
            return false;
        };
        self.state.use_line(line);
        self.said = said;
        let was_running = self.state.reading().turn_id().is_some();
        let (missed, runs) = {
            let mut reading = self.state.reading();
            reading.turn_over();
            let missed = reading.take_up(answer.pointer("/thread/turns").unwrap_or(&Value::Null));
            (missed, reading.turn_id().is_some())
        };
        self.state.announce();
        // What ran before and still runs was told of already.
        match (was_running, runs) {
            (true, true) | (false, false) => {}
            (false, true) => self.tell_all(missed).await,
            (true, false) if missed.is_empty() => {
                let end = TurnEnd::Failed {
                    message: "the turn was cut off while the app-server could not be heard".to_owned(),
                    retryable: true,
                };
                self.tell(noticed(AgentEventKind::TurnEnded(end))).await;
            }
            (true, false) => self.tell_all(missed).await,
        }
        true
    }

    /// The process is gone, and with it every conversation in it.
    async fn gone(&mut self) {
        let ending = self.state.server.ending().await;
        self.release().await;
        let end = TurnEnd::Crashed {
            message: how_it_ended("the app-server", ending, &self.state.server.last_words()),
            status: ending.status,
            signal: ending.signal,
        };
        let events = self.state.reading().cut_off(end);
        self.state.announce();
        self.tell_all(events).await;
        self.state.end_marked().await;
        self.exited(ending).await;
        self.state.let_go().await;
    }

    /// The conversation was stopped; what is still open is over.
    async fn let_go(&mut self) {
        self.release().await;
        let end = TurnEnd::Failed {
            message: "the conversation was stopped".to_owned(),
            retryable: true,
        };
        let events = self.state.reading().cut_off(end);
        self.tell_all(events).await;
        if !self.state.server.runs() {
            let ending = self.state.server.ending().await;
            self.exited(ending).await;
        }
    }

    async fn exited(&self, Ending { status, signal }: Ending) {
        self.tell(noticed(AgentEventKind::Exited { status, signal })).await;
    }
}
