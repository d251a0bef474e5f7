//! The desk where sessions are entered and signed out: [`Sessions`] on top of the record.
//!
//! Every step of a session is an event, in one transaction with the session's row, and the event
//! calls the session by its mark: who reads the record cannot use the session. What a client says of
//! itself is cut and redacted before either is written.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::lifetime::{ClientInfo, KeptSession, Session, SessionState, SessionStep, Sessions, Touched};
use crate::audit::event::{Actor, ActorType, Draft, EventType};
use crate::audit::invocation::{presentable_id, shallow};
use crate::audit::payload::{Object, Payload};
use crate::audit::redact::Redactor;
use crate::audit::{Change, Pending, Record, RecordError, SessionChange};
use crate::clock::{Clock, Timestamp};
use crate::error::{ErrorCode, Refusal};
use crate::ids::{CorrelationId, IdSource, SessionId};
use crate::limits;

pub struct Desk {
    record: Arc<dyn Record>,
    redactor: Redactor,
    clock: Clock,
    ids: IdSource,
}

impl Desk {
    pub fn new(record: Arc<dyn Record>, redactor: Redactor, clock: Clock, ids: IdSource) -> Self {
        Self {
            record,
            redactor,
            clock,
            ids,
        }
    }

    fn presentable(&self, session: Session) -> Session {
        let client = &session.client;
        let shown = |text: &Option<String>| {
            let text = self.redactor.redact_text(text.as_deref()?).into_owned();
            Some(text.chars().take(limits::CLIENT_CHARS_MAX).collect())
        };
        let client = ClientInfo {
            name: shown(&client.name),
            version: shown(&client.version),
            protocol_version: shown(&client.protocol_version),
            capabilities: self.capabilities(client.capabilities.as_deref()),
            rpc_id: client.rpc_id.as_deref().map(|id| presentable_id(&self.redactor, id)),
        };
        session.of(client)
    }

    /// A client that lists more than anybody reads is taken as one that can do nothing special.
    fn capabilities(&self, said: Option<&str>) -> Option<String> {
        let said: Value = serde_json::from_str(said?).ok()?;
        let text = shallow(self.redactor.redact_json(&said)).to_string();
        Some(if text.len() <= limits::CAPABILITIES_BYTES_MAX {
            text
        } else {
            "{}".to_owned()
        })
    }

    fn draft(&self, kind: EventType, session: &Session, actor: Actor) -> Draft {
        event(kind, session, actor, self.clock.now(), &self.ids)
    }
}

impl Sessions for Desk {
    fn open(&self, session: Session) -> Pending<Result<(), Refusal>> {
        let session = self.presentable(session);
        let mut events = vec![self.draft(EventType::SessionCreated, &session, client(&session))];
        if session.state() != SessionState::Created {
            events.push(self.draft(step_event(session.state()), &session, client(&session)));
        }
        settled(self.record.commit(Change {
            events,
            session: Some(SessionChange { session, from: None }),
            ..Change::default()
        }))
    }

    fn advance(&self, session: Session, from: SessionState) -> Pending<Result<(), Refusal>> {
        let session = self.presentable(session);
        let events = vec![self.draft(step_event(session.state()), &session, client(&session))];
        settled(self.record.commit(Change {
            events,
            session: Some(SessionChange {
                session,
                from: Some(from),
            }),
            ..Change::default()
        }))
    }

    fn find(&self, id: &SessionId) -> Pending<Result<Option<KeptSession>, Refusal>> {
        let found = self.record.session(id);
        Box::pin(async move { found.await.map_err(|error| refusal(&error)) })
    }

    fn touch(&self, touched: Vec<Touched>) -> Pending<Result<(), Refusal>> {
        // Several small transactions: none of them keeps a call waiting for long.
        let changes: Vec<_> = touched
            .chunks(limits::SESSIONS_AT_ONCE)
            .map(|touched| {
                self.record.commit(Change {
                    touched: touched.to_vec(),
                    ..Change::default()
                })
            })
            .collect();
        Box::pin(async move {
            for change in changes {
                change.await.map_err(|error| refusal(&error))?;
            }
            Ok(())
        })
    }

    fn ended(&self, among: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, Refusal>> {
        let ended = self.record.ended_sessions(among);
        Box::pin(async move { ended.await.map_err(|error| refusal(&error)) })
    }

    fn count(&self) -> Pending<Result<Vec<(SessionState, usize)>, Refusal>> {
        let counted = self.record.session_counts();
        Box::pin(async move { counted.await.map_err(|error| refusal(&error)) })
    }

    fn expire(&self, idle_since: Timestamp, busy: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, Refusal>> {
        let record = Arc::clone(&self.record);
        let (clock, ids) = (self.clock.clone(), self.ids.clone());
        Box::pin(async move {
            let busy: HashSet<SessionId> = busy.into_iter().collect();
            // What is left over is found the next time.
            let limit = busy.len() + limits::SESSIONS_AT_ONCE;
            let idle = record.idle_sessions(idle_since, limit).await;
            let idle = idle.map_err(|error| refusal(&error))?;
            let mut waiting = Vec::new();
            for session in idle.into_iter().filter(|session| !busy.contains(&session.id)) {
                let (id, from) = (session.id.clone(), session.state());
                let Ok(session) = session.step(SessionStep::Expire, clock.now()) else {
                    continue;
                };
                let actor = Actor::system("sessions");
                let change = Change {
                    events: vec![event(EventType::SessionExpired, &session, actor, clock.now(), &ids)],
                    session: Some(SessionChange {
                        session,
                        from: Some(from),
                    }),
                    ..Change::default()
                };
                waiting.push((id, record.commit(change)));
            }
            let mut expired = Vec::new();
            for (id, written) in waiting {
                match written.await {
                    Ok(_) => expired.push(id),
                    // Used, closed or expired by somebody else meanwhile.
                    Err(RecordError::SessionMoved) => {}
                    Err(error) => return Err(refusal(&error)),
                }
            }
            Ok(expired)
        })
    }
}

/// A step of a session, as recorded. The session must be presentable already, as every stored one is.
/// Whoever ends a session in its client's place knows it from its row alone, and tells no more than which one it was: the
/// rest stands in the events of its beginning.
pub fn event(kind: EventType, session: &Session, actor: Actor, now: Timestamp, ids: &IdSource) -> Draft {
    let mark = session.id.mark();
    let mut object = Object::new().text("session_id", &mark);
    if actor.kind != ActorType::System {
        object = introduced(object, kind, session);
    }
    if kind == EventType::SessionExpired {
        object = object.text("last_activity_at", &session.last_activity_at.to_string());
    }
    // One thread through the record from a session's beginning to its end.
    let correlation = CorrelationId::trusted(mark);
    Draft::new(ids.event(), now, correlation, actor, kind, object.finish())
}

/// Who the client is and what it says of itself.
fn introduced(object: Object, kind: EventType, session: &Session) -> Object {
    let client = &session.client;
    let mut object = object
        .text("transport", session.transport.as_str())
        .text("credential", session.credential.as_str())
        .optional_text("client_name", client.name.as_deref())
        .optional_text("client_version", client.version.as_deref())
        .optional_text("protocol_version", client.protocol_version.as_deref());
    let capabilities = client.capabilities.as_deref().map(serde_json::from_str::<Value>);
    if let (EventType::SessionInitialized, Some(Ok(capabilities))) = (kind, capabilities) {
        object = object.part("capabilities", &Payload::from(&capabilities));
    }
    if kind == EventType::SessionInitialized {
        object = object.optional_text("rpc_id", client.rpc_id.as_deref());
    }
    object
}

/// The event of the step that led to a state.
fn step_event(state: SessionState) -> EventType {
    match state {
        SessionState::Created => EventType::SessionCreated,
        SessionState::Initialized => EventType::SessionInitialized,
        SessionState::Closed => EventType::SessionClosed,
        SessionState::Expired => EventType::SessionExpired,
    }
}

/// The client, by the credential it came with.
fn client(session: &Session) -> Actor {
    Actor {
        kind: ActorType::Agent,
        id: session.credential.as_str().to_owned(),
    }
}

fn settled<T: 'static>(written: Pending<Result<T, RecordError>>) -> Pending<Result<(), Refusal>> {
    Box::pin(async move { written.await.map(drop).map_err(|error| refusal(&error)) })
}

fn refusal(error: &RecordError) -> Refusal {
    match error {
        RecordError::SessionMoved => Refusal::new(
            ErrorCode::SessionNotFound,
            "this session has meanwhile ended or moved on; begin a new one",
        ),
        RecordError::RequestIdTaken(_)
        | RecordError::ApprovalMoved
        | RecordError::JobMoved
        | RecordError::NoPlace
        | RecordError::RunMoved
        | RecordError::DelegationMoved
        | RecordError::TargetMoved
        | RecordError::LeaseTaken(_)
        | RecordError::DeliveryKnown(_)
        | RecordError::SessionNameTaken
        | RecordError::Unavailable(_) => error.refusal("the session stays as it was, try again later"),
    }
}
