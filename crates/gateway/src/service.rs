//! What a transport sees of the gateway: tools to list, calls to make.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::audit::Pending;
use crate::catalog::definition::ToolDefinition;
use crate::error::Refusal;
use crate::session::Caller;

/// The gateway, as transports use it.
pub trait Service: Send + Sync + 'static {
    /// The tools this caller may call, in a stable order.
    fn tools(&self, caller: &Caller) -> Vec<ToolDefinition>;

    /// Makes one call. The call goes on when the future is dropped; `call.cancel` ends it.
    /// `Err` is a protocol error; everything a tool has to say is an [`Answer`].
    fn call(&self, caller: Caller, call: ToolCall) -> Pending<Result<Answer, Refusal>>;

    /// Ends every command tree and waits until their records are closed.
    fn shutdown(&self) -> Pending<()>;
}

/// One `tools/call`.
#[derive(Clone)]
pub struct ToolCall {
    pub tool: String,
    pub arguments: Map<String, Value>,
    /// Where progress goes, when the client gave a token.
    pub progress: Option<Arc<dyn Progress>>,
    pub cancel: Cancel,
}

/// Takes progress of a call that is being streamed.
pub trait Progress: Send + Sync + 'static {
    /// A piece of output, or a sign of life when there is none. Must not block.
    fn report(&self, message: &str);
}

/// A tool's answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    pub structured: Value,
    pub text: String,
    pub is_error: bool,
}

/// Tells a call that its client no longer wants it.
#[derive(Clone, Debug)]
pub struct Cancel(watch::Receiver<bool>);

/// The other end of a [`Cancel`]. Dropping it does not cancel.
#[derive(Debug)]
pub struct CancelHandle(watch::Sender<bool>);

impl Cancel {
    pub fn new() -> (CancelHandle, Self) {
        let (sender, receiver) = watch::channel(false);
        (CancelHandle(sender), Self(receiver))
    }

    /// A call that nobody can cancel from outside.
    pub fn never() -> Self {
        Self::new().1
    }

    /// Resolves when the call is cancelled; for ever pending if it never is.
    pub async fn cancelled(&mut self) {
        if self.0.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl CancelHandle {
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}
