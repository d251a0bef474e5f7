//! Where deliveries are taken: each once, written down before it is answered, worked off afterwards by the
//! [clerk](super::clerk).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;

use super::delivery::{Delivery, DeliveryChange, DeliveryState, Meaning, read};
use super::task::Task;
use crate::audit::event::{Actor, ActorType, Draft, EventType};
use crate::audit::payload::Object;
use crate::audit::{Change, Record, RecordError};
use crate::clock::Clock;
use crate::error::brief;
use crate::ids::{CorrelationId, IdSource};

/// Refusals that are written down in a minute; the rest of them are counted.
const REFUSALS_TOLD_MAX: u64 = 30;
const REFUSALS_TIME: Duration = Duration::from_secs(60);

pub struct Reception {
    record: Arc<dyn Record>,
    clock: Clock,
    ids: IdSource,
    arrived: Notify,
    refusals: AtomicU64,
    refusals_since: AtomicI64,
}

/// A delivery whose signature is GitHub's.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    pub id: &'a str,
    pub event: &'a str,
    pub payload: &'a Value,
}

/// What became of a delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    /// Its work is written down and will be done.
    Accepted,
    /// It came before.
    Duplicate,
    /// Nothing follows from it.
    Ignored(&'static str),
}

impl Received {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::Ignored(_) => "ignored",
        }
    }
}

/// Why a delivery was not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotReceived {
    #[error("this is no delivery of GitHub's: {0}")]
    Malformed(String),
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl Reception {
    pub fn new(record: Arc<dyn Record>, clock: Clock, ids: IdSource) -> Arc<Self> {
        Arc::new(Self {
            record,
            clock,
            ids,
            arrived: Notify::new(),
            refusals: AtomicU64::new(0),
            refusals_since: AtomicI64::new(0),
        })
    }

    /// Takes a delivery. When this returns it is durable, and will not be taken again.
    pub async fn take(&self, incoming: Incoming<'_>) -> Result<Received, NotReceived> {
        let meaning = match read(incoming.event, incoming.payload) {
            Ok(meaning) => meaning,
            Err(wrong) => {
                self.refused(Some(incoming.id), &wrong).await?;
                return Err(NotReceived::Malformed(wrong));
            }
        };
        let correlation_id = self.ids.correlation();
        let now = self.clock.now();
        let told = || told(&incoming);
        let sender = incoming.payload["sender"]["login"].as_str().unwrap_or("github");
        let by = Actor {
            kind: match incoming.payload["sender"]["type"] == "User" {
                true => ActorType::Human,
                false => ActorType::Agent,
            },
            id: format!("github:{}", brief(sender)),
        };
        let (received, state, task, events) = match meaning {
            Meaning::Task(task) => {
                let arrived = self.event(&correlation_id, by.clone(), EventType::WebhookReceived, told());
                let mut events = vec![arrived];
                if let Task::Review(review) = &task {
                    let number = i64::try_from(review.pull_request.number).unwrap_or(i64::MAX);
                    let payload = told()
                        .whole("pull_request_number", number)
                        .text("reviewer", &review.sender);
                    events.push(self.event(&correlation_id, by, EventType::RunChangesRequested, payload));
                }
                (Received::Accepted, DeliveryState::Pending, Some(task), events)
            }
            Meaning::Nothing(reason) => {
                let payload = told().text("reason", reason);
                let ignored = self.event(
                    &correlation_id,
                    Actor::system("github"),
                    EventType::WebhookIgnored,
                    payload,
                );
                (Received::Ignored(reason), DeliveryState::Ignored, None, vec![ignored])
            }
        };
        let delivery = Delivery {
            id: incoming.id.to_owned(),
            version: 1,
            event: incoming.event.to_owned(),
            correlation_id: correlation_id.clone(),
            state,
            task,
            tries: 0,
            not_before: now,
            received_at: now,
        };
        let change = Change {
            events,
            deliveries: vec![DeliveryChange { delivery, from: None }],
            ..Change::default()
        };
        match self.record.commit(change).await {
            Ok(_) => {
                if received == Received::Accepted {
                    self.arrived.notify_one();
                }
                Ok(received)
            }
            Err(RecordError::DeliveryKnown(_)) => {
                let again = self.event(
                    &correlation_id,
                    Actor::system("github"),
                    EventType::WebhookDuplicate,
                    told(),
                );
                self.write(again).await?;
                Ok(Received::Duplicate)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes down that something was not taken, unless a flood of it would fill the record.
    pub async fn refused(&self, id: Option<&str>, reason: &str) -> Result<(), RecordError> {
        let now = self.clock.now().as_millis();
        let since = self.refusals_since.load(Ordering::Relaxed);
        let over = now.saturating_sub(since) >= i64::try_from(REFUSALS_TIME.as_millis()).unwrap_or(i64::MAX);
        if over {
            self.refusals_since.store(now, Ordering::Relaxed);
            self.refusals.store(0, Ordering::Relaxed);
        }
        if self.refusals.fetch_add(1, Ordering::Relaxed) >= REFUSALS_TOLD_MAX {
            return Ok(());
        }
        let payload = Object::new()
            .text("reason", reason)
            .optional_text("delivery_id", id.map(brief).as_deref());
        let by = Actor::system("github");
        let event = self.event(&self.ids.correlation(), by, EventType::WebhookRefused, payload);
        self.write(event).await
    }

    /// Resolves when something has been taken since this was last asked.
    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }

    async fn write(&self, event: Draft) -> Result<(), RecordError> {
        let change = Change {
            events: vec![event],
            ..Change::default()
        };
        self.record.commit(change).await.map(drop)
    }

    fn event(&self, correlation_id: &CorrelationId, by: Actor, kind: EventType, payload: Object) -> Draft {
        let (id, now) = (self.ids.event(), self.clock.now());
        Draft::new(id, now, correlation_id.clone(), by, kind, payload.finish())
    }
}

fn told(incoming: &Incoming<'_>) -> Object {
    let part = |place: &str| {
        let found = incoming.payload.pointer(place).and_then(Value::as_str);
        found.map(|text| brief(text).into_owned())
    };
    let number = ["/issue/number", "/pull_request/number"];
    let number = number
        .iter()
        .find_map(|place| incoming.payload.pointer(place)?.as_i64());
    let object = Object::new()
        .text("delivery_id", &brief(incoming.id))
        .text("event", &brief(incoming.event))
        .optional_text("action", part("/action").as_deref())
        .optional_text("repository", part("/repository/full_name").as_deref())
        .optional_text("label", part("/label/name").as_deref())
        .optional_text("sender", part("/sender/login").as_deref());
    match number {
        Some(number) => object.whole("number", number),
        None => object,
    }
}
