//! Where a conversation's events go, one at a time, each answered once it is taken care of.
//!
//! [`EventSink::send`] resolves when whoever follows has written down what must survive a crash. So a
//! driver that awaits it after telling of a process, and only then speaks to that process, leaves none
//! behind that nobody knows of. Nothing an agent said is dropped: a driver waits while nobody listens yet.

use tokio::sync::{mpsc, oneshot};

use super::driver::AgentEvent;

/// The driver's end.
#[derive(Clone, Debug)]
pub struct EventSink {
    events: mpsc::Sender<Heard>,
}

/// The follower's end.
#[derive(Debug)]
pub struct EventSource {
    events: mpsc::Receiver<Heard>,
}

/// An event that its driver waits to be rid of. Dropping it says that it is taken care of.
#[derive(Debug)]
pub struct Heard {
    pub event: AgentEvent,
    /// Nothing is ever sent: the driver is told by its end.
    _done: oneshot::Sender<()>,
}

/// Nobody follows this conversation any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("nobody follows this conversation any more")]
pub struct NobodyListens;

impl EventSink {
    pub fn new(waiting_max: usize) -> (Self, EventSource) {
        let (sender, receiver) = mpsc::channel(waiting_max);
        (Self { events: sender }, EventSource { events: receiver })
    }

    /// Tells of an event, and waits until it is taken care of.
    pub async fn send(&self, event: AgentEvent) -> Result<(), NobodyListens> {
        let (done, taken) = oneshot::channel();
        let heard = Heard { event, _done: done };
        self.events.send(heard).await.map_err(|_| NobodyListens)?;
        // An error is what tells: the other end was dropped with the event.
        let _ = taken.await;
        Ok(())
    }
}

impl EventSource {
    /// The next event; none once no driver can tell of any.
    pub async fn next(&mut self) -> Option<Heard> {
        self.events.recv().await
    }

    /// The next event for whoever has nothing to write down.
    pub async fn recv(&mut self) -> Option<AgentEvent> {
        self.next().await.map(|heard| heard.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::driver::AgentEventKind;

    fn warning(text: &str) -> AgentEvent {
        AgentEvent {
            kind: AgentEventKind::Warning(text.to_owned()),
            raw: serde_json::Value::Null,
        }
    }

    #[tokio::test]
    async fn a_driver_waits_until_its_event_is_taken_care_of() {
        let (sink, mut source) = EventSink::new(8);
        let mut telling = Box::pin(sink.send(warning("one")));
        let heard = tokio::select! {
            biased;
            _ = &mut telling => unreachable!("nobody has heard it"),
            heard = source.next() => heard.unwrap(),
        };
        let early = tokio::time::timeout(std::time::Duration::from_millis(20), &mut telling).await;
        assert!(early.is_err(), "it was heard, not taken care of");
        drop(heard);
        assert_eq!(telling.await, Ok(()));
        drop(source);
        assert_eq!(sink.send(warning("two")).await, Err(NobodyListens));
    }
}
