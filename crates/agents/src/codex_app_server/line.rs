//! A line to an app-server: requests of ours with their answers, and what it says by itself.
//!
//! Each conversation has a line of its own, so that nothing of one can be taken for another's. Messages look
//! like JSON-RPC without its version.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_gateway::job::driver::DriverError;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::socket::{self, Message, Reader, Writer};
use crate::limits;

/// What the app-server says by itself.
#[derive(Debug, Clone)]
pub(super) enum Said {
    Notification {
        method: String,
        params: Value,
        raw: Value,
    },
    Request {
        id: Value,
        method: String,
        params: Value,
        raw: Value,
    },
}

/// Why a request was not answered as wished.
#[derive(Debug, Clone)]
pub(super) enum CallError {
    Refused { message: String },
    Gone,
    Silent,
}

impl From<CallError> for DriverError {
    fn from(error: CallError) -> DriverError {
        match error {
            CallError::Refused { message } => DriverError::Protocol(message),
            CallError::Gone => {
                DriverError::Process("the app-server is gone; take the conversation up again".to_owned())
            }
            CallError::Silent => DriverError::Silent(limits::ANSWER_WAIT),
        }
    }
}

type Answer = Result<Value, CallError>;

pub(super) struct Line {
    outbox: mpsc::UnboundedSender<Out>,
    waiting: Mutex<Option<BTreeMap<u64, oneshot::Sender<Answer>>>>,
    next: AtomicU64,
}

enum Out {
    Value(Value),
    Pong(Vec<u8>),
}

impl Line {
    /// Connects and introduces us. What is said by itself comes out of the receiver; its end is the end.
    pub(super) async fn open(path: &Path) -> Result<(Arc<Line>, mpsc::Receiver<Said>), DriverError> {
        let unreachable =
            |error: std::io::Error| DriverError::Process(format!("the app-server cannot be reached: {error}"));
        // Connections are taken by the kernel, also for a process that hangs or is stopped.
        let connected = timeout(limits::ANSWER_WAIT, socket::connect(path)).await;
        let (reader, writer) = connected.map_err(|_| CallError::Silent)?.map_err(unreachable)?;
        let (outbox, out) = mpsc::unbounded_channel();
        let (told, said) = mpsc::channel(limits::NOTIFICATIONS_AHEAD);
        let line = Arc::new(Line {
            outbox,
            waiting: Mutex::new(Some(BTreeMap::new())),
            next: AtomicU64::new(0),
        });
        tokio::spawn(write(writer, out));
        tokio::spawn(read(reader, Arc::clone(&line), told));
        // Looking at terminals that run in the background is still called experimental.
        let client = json!({"name": "countersign", "title": "Countersign", "version": env!("CARGO_PKG_VERSION")});
        line.call(
            "initialize",
            json!({"clientInfo": client, "capabilities": {"experimentalApi": true}}),
        )
        .await?;
        line.send(json!({"method": "initialized"}));
        Ok((line, said))
    }

    /// Asks, and waits for the answer.
    pub(super) async fn call(&self, method: &str, params: Value) -> Answer {
        self.call_within(limits::ANSWER_WAIT, method, params).await
    }

    pub(super) async fn call_within(&self, patience: Duration, method: &str, params: Value) -> Answer {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, answer) = oneshot::channel();
        match self.waiting().as_mut() {
            Some(waiting) => waiting.insert(id, tell),
            None => return Err(CallError::Gone),
        };
        self.send(json!({"id": id, "method": method, "params": params}));
        match timeout(patience, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(CallError::Gone),
            Err(_) => {
                if let Some(waiting) = self.waiting().as_mut() {
                    waiting.remove(&id);
                }
                Err(CallError::Silent)
            }
        }
    }

    /// Answers a request of the app-server.
    pub(super) fn answer(&self, id: &Value, result: Value) {
        self.send(json!({"id": id, "result": result}));
    }

    /// Refuses a request of the app-server.
    pub(super) fn refuse(&self, id: &Value, method: &str) {
        self.send(json!({"id": id, "error": {"code": -32601, "message": format!("`{method}` is not offered here")}}));
    }

    fn send(&self, value: Value) {
        let _ = self.outbox.send(Out::Value(value));
    }

    fn waiting(&self) -> MutexGuard<'_, Option<BTreeMap<u64, oneshot::Sender<Answer>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self, message: &Value) {
        let id = message.get("id").and_then(Value::as_u64);
        let asked = id.and_then(|id| self.waiting().as_mut()?.remove(&id));
        if let Some(tell) = asked {
            let answer = match message.get("error").filter(|error| !error.is_null()) {
                Some(error) => Err(CallError::Refused {
                    message: error
                        .get("message")
                        .and_then(Value::as_str)
                        .unwrap_or("it was refused")
                        .to_owned(),
                }),
                None => Ok(message.get("result").cloned().unwrap_or(Value::Null)),
            };
            let _ = tell.send(answer);
        }
    }
}

async fn write(mut writer: Writer, mut out: mpsc::UnboundedReceiver<Out>) {
    while let Some(next) = out.recv().await {
        let written = match next {
            Out::Value(value) => writer.text(&value.to_string()).await,
            Out::Pong(content) => writer.pong(&content).await,
        };
        if written.is_err() {
            return;
        }
    }
}

async fn read(mut reader: Reader, line: Arc<Line>, told: mpsc::Sender<Said>) {
    loop {
        let text = tokio::select! {
            message = reader.next() => match message {
                Ok(Some(Message::Text(text))) => text,
                Ok(Some(Message::Ping(content))) => {
                    let _ = line.outbox.send(Out::Pong(content));
                    continue;
                }
                Ok(None) | Err(_) => break,
            },
            // Nobody listens any more: the conversation was let go.
            () = told.closed() => break,
        };
        let Ok(raw) = serde_json::from_str::<Value>(&text) else {
            continue;
        };
        let method = raw.get("method").and_then(Value::as_str).map(str::to_owned);
        let params = raw.get("params").cloned().unwrap_or(Value::Null);
        // An id may be zero, and that is an id.
        let said = match (method, raw.get("id").cloned()) {
            (Some(method), Some(id)) => Said::Request {
                id,
                method,
                params,
                raw,
            },
            (Some(method), None) => Said::Notification { method, params, raw },
            (None, _) => {
                line.answered(&raw);
                continue;
            }
        };
        if told.send(said).await.is_err() {
            break;
        }
    }
    // Whoever waits hears that nothing comes any more.
    line.waiting().take();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_app_server_that_takes_a_connection_and_hangs_is_not_waited_for_without_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _hangs = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(Line::open(&path).await, Err(DriverError::Silent(_))));
    }
}
