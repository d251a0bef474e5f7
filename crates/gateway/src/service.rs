//! What a transport sees of the gateway: tools to list, calls to make.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};

use crate::approval::client::ClientUser;
use crate::audit::{Asked, Pending};
use crate::catalog::definition::ToolDefinition;
use crate::clock::Timestamp;
use crate::error::{ErrorCode, Refusal};
use crate::ids::{CorrelationId, RequestId, SessionId};
use crate::job::event::JobEvent;
use crate::job::news::JobListener;
use crate::limits;
use crate::session::{Caller, Transport};
use crate::tools::exec::request::Stream;

/// The gateway, as transports use it.
pub trait Service: Send + Sync + 'static {
    /// The tools this caller may call, in a stable order. The same list is the same allocation, so that
    /// what was made of it can be found again.
    fn tools(&self, caller: &Caller) -> Arc<[ToolDefinition]>;

    /// Changes whenever somebody's list of tools may be another one. Its end says that it never will.
    fn tool_changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }

    /// What happens to jobs from now on, everybody's; none where there are no jobs.
    fn job_news(&self) -> Option<JobListener> {
        None
    }

    /// What policy said since the start, by its word: `allow`, `ask`, `deny`.
    fn verdicts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// How often what confines commands died since the start, and was made anew.
    fn sandbox_renewals(&self) -> u64 {
        0
    }

    /// The policy in force, as this caller may read it.
    fn policy(&self, caller: &Caller) -> Value;

    /// Makes one call. The call goes on when the future is dropped; `call.cancel` ends it.
    /// `Err` is a protocol error; everything a tool has to say is an [`Answer`].
    fn call(&self, caller: Caller, call: ToolCall) -> Pending<Result<Answer, Refusal>>;

    /// The answer that a command of this caller has by now, for a client that asks again after the
    /// connection, or this server, was replaced, or that polls. Waits for its end no longer than `patience`. It has the
    /// form that the tool promises where `tool` names what was called.
    fn recall(
        &self,
        caller: Caller,
        command: RequestId,
        tool: Option<String>,
        patience: Duration,
    ) -> Pending<Result<Answer, Refusal>>;

    /// Ends a command of this caller, in whichever process it runs. Resolves when it has ended, or soon will.
    fn cancel_command(&self, _caller: Caller, _command: RequestId) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }

    /// Ends what callers began whose tokens are no longer in force, and takes back what they asked.
    fn dismiss_revoked(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }

    /// Writes down a message that was refused before it could become a call. Resolves when that is
    /// durable, or has failed: a refusal is answered either way.
    fn refused(&self, envelope: RefusedEnvelope) -> Pending<()>;

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
    pub origin: Origin,
    /// When the caller wants an answer even if the command goes on, if sooner than everybody gets one.
    pub answer_within: Option<Duration>,
    /// The user of the client that calls, where the client can ask them.
    pub user: Option<Arc<dyn ClientUser>>,
}

/// The request a call came in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// None for callers without a session.
    pub session: Option<SessionId>,
    /// The client's id of the request, as JSON; none when there was no such request.
    pub rpc_id: Option<String>,
    /// Digest of the request's content, where the session remembers its ids beyond this process.
    pub remembered: Option<[u8; 32]>,
    /// Whether its client is known to use an id for several requests: then the same words may be another request.
    pub reuses_ids: bool,
}

impl Origin {
    /// The request, as every process calls it that it may come to: sent to two of them, it is done by one. It has another
    /// id for each time that it is tried after the record says it was refused for want of a record.
    pub(crate) fn request_id(&self, attempt: u8) -> Option<RequestId> {
        let (session, rpc_id) = (self.session.as_ref()?, self.rpc_id.as_ref()?);
        let content = self.remembered.filter(|_| !self.reuses_ids)?;
        Some(RequestId::of(session, rpc_id, &content, attempt))
    }

    /// What its session knows it again by after a restart.
    pub(crate) fn asked(&self) -> Option<Asked> {
        let rpc_id = self.rpc_id.clone();
        Some(Asked {
            session: self.session.clone()?,
            rpc_id: rpc_id.filter(|id| id.len() <= limits::RPC_ID_BYTES_REMEMBERED)?,
            digest: self.remembered?,
        })
    }
}

/// S2's McpRequestEnvelope, of a message that went no further.
#[derive(Clone, PartialEq, Debug)]
pub struct RefusedEnvelope {
    pub caller: Option<Caller>,
    pub transport: Transport,
    pub session: Option<SessionId>,
    /// The client's id, as JSON; none is S2's null.
    pub rpc_id: Option<String>,
    /// Empty when the message could not be read so far.
    pub method: String,
    pub params: Option<Map<String, Value>>,
    pub received_at: Timestamp,
    pub code: ErrorCode,
    pub message: String,
    /// What the client was told to name this refusal by.
    pub correlation_id: CorrelationId,
}

/// Takes progress of a call that is being streamed.
pub trait Progress: Send + Sync + 'static {
    /// A piece of output, or a sign of life when there is none. Must not block.
    fn report(&self, message: &str);

    /// What a command wrote, byte for byte and all of it. Must not block.
    fn wrote(&self, _stream: Stream, _bytes: &[u8]) {}

    /// Resolves when there is room for more of that. Until then the command waits, as for a pipe that nobody reads.
    fn room(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }

    /// Whether whoever follows a command also passes on what it reads: then that is no part of the call, and nobody knows
    /// it before.
    fn feeds(&self) -> bool {
        false
    }

    /// The next piece of that, once it is there; an empty one is its end.
    fn fed(&self) -> Pending<Vec<u8>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Something that happened to a job that the call waits for. Must not block.
    fn job(&self, _event: &JobEvent) {}
}

/// A tool's answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    pub structured: Value,
    pub text: String,
    pub is_error: bool,
    /// The command this call became; asked again, the same answer is found under it.
    pub command: Option<RequestId>,
    /// Nothing was done: this is what the same request came to before.
    pub is_repeat: bool,
    /// What a long one takes of the room there is for those; to be kept for as long as its words are.
    pub room: Room,
}

/// Room that a long answer takes, until the last copy of this is gone. A short one takes none.
#[derive(Clone, Default)]
pub struct Room(Option<Arc<Taken>>);

struct Taken {
    permit: OwnedSemaphorePermit,
    /// Told when it is gone.
    left: Arc<Notify>,
}

impl Room {
    pub fn new(permit: OwnedSemaphorePermit, left: Arc<Notify>) -> Self {
        Self(Some(Arc::new(Taken { permit, left })))
    }

    pub fn is_taken(&self) -> bool {
        self.0.is_some()
    }

    /// Gives back all but so many permits.
    pub(crate) fn shrink_to(&mut self, permits: usize) {
        if let Some(taken) = self.0.as_mut().and_then(Arc::get_mut) {
            let excess = taken.permit.num_permits().saturating_sub(permits);
            drop(taken.permit.split(excess));
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.left.notify_one();
    }
}

/// Answers are compared by what they say.
impl PartialEq for Room {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Room {}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let permits = self.0.as_ref().map_or(0, |taken| taken.permit.num_permits());
        write!(f, "Room({permits})")
    }
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
