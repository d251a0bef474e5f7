//! A client's session: S2's McpSession, from `created` to its end.
//!
//! The states are a pure table; a store keeps them and guards the same arrows. What is idle for too
//! long expires, but never while one of its calls runs or one of its streams is open: the transport
//! that holds them says so by touching the session.

use std::time::Duration;

use super::{Caller, Transport};
use crate::audit::Pending;
use crate::clock::Timestamp;
use crate::error::Refusal;
use crate::ids::{CredentialId, RequestId, SessionId};

/// Where a session stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SessionState {
    /// A stream is open; nobody has said `initialize` yet.
    Created,
    Initialized,
    Closed,
    Expired,
}

/// What can happen to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionStep {
    Initialize,
    Close,
    Expire,
}

/// A step that does not follow from the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a session that is {from:?} cannot {step:?}")]
pub struct IllegalSessionStep {
    pub from: SessionState,
    pub step: SessionStep,
}

impl SessionState {
    pub const ALL: [Self; 4] = [Self::Created, Self::Initialized, Self::Closed, Self::Expired];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Initialized => "initialized",
            Self::Closed => "closed",
            Self::Expired => "expired",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    pub fn is_open(self) -> bool {
        match self {
            Self::Created | Self::Initialized => true,
            Self::Closed | Self::Expired => false,
        }
    }
}

/// The one transition function.
pub fn transition(state: SessionState, step: SessionStep) -> Result<SessionState, IllegalSessionStep> {
    match (state, step) {
        (SessionState::Created, SessionStep::Initialize) => Ok(SessionState::Initialized),
        (SessionState::Created | SessionState::Initialized, SessionStep::Close) => Ok(SessionState::Closed),
        (SessionState::Created | SessionState::Initialized, SessionStep::Expire) => Ok(SessionState::Expired),
        (SessionState::Initialized, SessionStep::Initialize) | (SessionState::Closed | SessionState::Expired, _) => {
            Err(IllegalSessionStep { from: state, step })
        }
    }
}

/// What a client says of itself in `initialize`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientInfo {
    pub name: Option<String>,
    pub version: Option<String>,
    /// The revision agreed upon.
    pub protocol_version: Option<String>,
    /// What the client can do, as it said so: JSON.
    pub capabilities: Option<String>,
    /// Its id of the request that said so: JSON. Told by the event of the handshake, not kept with the session.
    pub rpc_id: Option<String>,
}

/// One client's session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    pub id: SessionId,
    pub transport: Transport,
    // INVARIANT: changed by `step` only, along the table's arrows.
    state: SessionState,
    pub client: ClientInfo,
    /// Who made it; nobody else may use it.
    pub credential: CredentialId,
    pub created_at: Timestamp,
    // INVARIANT: not before `created_at`.
    pub last_activity_at: Timestamp,
    /// The client was caught using one id for two requests, so none of its ended calls is replayed.
    pub reuses_ids: bool,
}

impl Session {
    /// A session nobody has initialized yet.
    pub fn new(id: SessionId, caller: &Caller, now: Timestamp) -> Self {
        Self {
            id,
            transport: caller.transport,
            state: SessionState::Created,
            client: ClientInfo::default(),
            credential: caller.credential.clone(),
            created_at: now,
            last_activity_at: now,
            reuses_ids: false,
        }
    }

    #[must_use]
    pub fn of(self, client: ClientInfo) -> Self {
        Self { client, ..self }
    }

    /// A session as a store kept it.
    pub fn restored(state: SessionState, session: Self) -> Self {
        Self { state, ..session }
    }

    pub fn state(&self) -> SessionState {
        self.state
    }

    /// The session after a step.
    pub fn step(mut self, step: SessionStep, now: Timestamp) -> Result<Self, IllegalSessionStep> {
        self.state = transition(self.state, step)?;
        match step {
            SessionStep::Initialize | SessionStep::Close => self.last_activity_at = self.last_activity_at.max(now),
            // Running out of time is nothing the client did.
            SessionStep::Expire => {}
        }
        Ok(self)
    }

    /// When it ends if nothing more happens; none once it has ended.
    pub fn expires_at(&self, ttl: Duration) -> Option<Timestamp> {
        let ttl = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let at = self.last_activity_at.as_millis().saturating_add(ttl);
        self.state.is_open().then(|| Timestamp::from_millis(at))
    }

    pub fn has_expired(&self, ttl: Duration, now: Timestamp) -> bool {
        self.state == SessionState::Expired || self.expires_at(ttl).is_some_and(|at| at <= now)
    }

    /// Whether this caller made it. A session id alone opens nothing.
    pub fn belongs_to(&self, caller: &Caller) -> bool {
        self.credential == caller.credential
    }
}

/// A session out of the store, with the requests it must know again.
#[derive(Clone, PartialEq, Debug)]
pub struct KeptSession {
    pub session: Session,
    /// Its last calls that acted, oldest first.
    pub requests: Vec<KeptRequest>,
}

/// A request that had an effect, as the store remembers it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptRequest {
    /// The client's id, as JSON.
    pub rpc_id: String,
    /// Digest of its content.
    pub digest: [u8; 32],
    /// The command it became; its result is read back from the record. None for another act: the same request made
    /// again is answered with what that came to.
    pub command: Option<RequestId>,
    /// Whether it waits for an answer of somebody: sent again it is to go on, not to be told what it was told before.
    pub waits: bool,
}

/// Sessions that outlive this process. Every change is an event of the record, in one transaction
/// with the session's row.
pub trait Sessions: Send + Sync + 'static {
    /// Enters a new session, `created` or already `initialized`.
    fn open(&self, session: Session) -> Pending<Result<(), Refusal>>;

    /// Writes a session after a step; refused when it no longer stands at `from`.
    fn advance(&self, session: Session, from: SessionState) -> Pending<Result<(), Refusal>>;

    /// The session by its id, in whatever state.
    fn find(&self, id: &SessionId) -> Pending<Result<Option<KeptSession>, Refusal>>;

    /// Notes activity, and which clients reuse ids. Not an event; a crash may lose the last of it.
    fn touch(&self, touched: Vec<Touched>) -> Pending<Result<(), Refusal>>;

    /// Which of these sessions have ended, here or in another process.
    fn ended(&self, among: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, Refusal>>;

    /// How many sessions stand at each state.
    fn count(&self) -> Pending<Result<Vec<(SessionState, usize)>, Refusal>>;

    /// Expires what has been idle since before `idle_since`; gives the ids. Sessions in `busy` stay.
    fn expire(&self, idle_since: Timestamp, busy: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, Refusal>>;
}

/// Sessions that end with their connections, for a server without a store.
#[derive(Clone, Copy, Debug)]
pub struct Unkept;

impl Sessions for Unkept {
    fn open(&self, _session: Session) -> Pending<Result<(), Refusal>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn advance(&self, _session: Session, _from: SessionState) -> Pending<Result<(), Refusal>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn find(&self, _id: &SessionId) -> Pending<Result<Option<KeptSession>, Refusal>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn touch(&self, _touched: Vec<Touched>) -> Pending<Result<(), Refusal>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn ended(&self, _among: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, Refusal>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn count(&self) -> Pending<Result<Vec<(SessionState, usize)>, Refusal>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn expire(&self, _idle_since: Timestamp, _busy: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, Refusal>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

/// A session that was used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Touched {
    pub id: SessionId,
    pub at: Timestamp,
    pub reuses_ids: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [SessionStep; 3] = [SessionStep::Initialize, SessionStep::Close, SessionStep::Expire];

    #[test]
    fn the_table_of_legal_steps() {
        let legal = |state| -> Vec<SessionStep> {
            STEPS
                .into_iter()
                .filter(|step| transition(state, *step).is_ok())
                .collect()
        };
        assert_eq!(legal(SessionState::Created), STEPS);
        assert_eq!(
            legal(SessionState::Initialized),
            [SessionStep::Close, SessionStep::Expire]
        );
        assert_eq!(legal(SessionState::Closed), []);
        assert_eq!(legal(SessionState::Expired), []);
    }

    #[test]
    fn a_session_expires_only_when_idle_for_its_whole_time() {
        let ttl = Duration::from_secs(10);
        let at = Timestamp::from_millis;
        let caller = Caller::anonymous_agent(Transport::StreamableHttp);
        let session = Session::new(SessionId::trusted("s"), &caller, at(1_000));
        assert!(!session.has_expired(ttl, at(10_999)));
        assert!(session.has_expired(ttl, at(11_000)));
        let used = session.step(SessionStep::Initialize, at(5_000)).unwrap();
        assert!(!used.has_expired(ttl, at(11_000)));
        assert_eq!(used.expires_at(ttl), Some(at(15_000)));
        assert_eq!(used.step(SessionStep::Close, at(6_000)).unwrap().expires_at(ttl), None);
    }

    #[test]
    fn activity_never_goes_back_in_time() {
        let caller = Caller::anonymous_agent(Transport::Sse);
        let session = Session::new(SessionId::trusted("s"), &caller, Timestamp::from_millis(1_000));
        let stepped = session
            .step(SessionStep::Initialize, Timestamp::from_millis(1))
            .unwrap();
        assert_eq!(stepped.last_activity_at, stepped.created_at);
    }

    #[test]
    fn only_the_credential_that_made_it_owns_a_session() {
        let maker = Caller::anonymous_agent(Transport::StreamableHttp);
        let session = Session::new(SessionId::trusted("s"), &maker, Timestamp::from_millis(0));
        assert!(session.belongs_to(&maker));
        assert!(!session.belongs_to(&Caller::person("ana")));
    }
}
