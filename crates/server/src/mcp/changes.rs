//! What may change while a client looks on: the lists, and resources. Whoever changes something
//! announces it here; whoever asked to hear of it does.

use tokio::sync::broadcast;

use crate::limits::CHANGES_KEPT;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Tools,
    Prompts,
    Resources,
    /// The resource at this address.
    Resource(String),
}

pub(crate) struct Changes(broadcast::Sender<Change>);

/// What one subscriber has not heard yet.
pub(crate) struct News(broadcast::Receiver<Change>);

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    Change(Change),
    /// So much changed that some of it was missed.
    Anything,
}

impl Changes {
    pub(crate) fn new() -> Self {
        Self(broadcast::channel(CHANGES_KEPT).0)
    }

    pub(crate) fn announce(&self, change: Change) {
        // Nobody listening is not an error.
        let _ = self.0.send(change);
    }

    pub(crate) fn listen(&self) -> News {
        News(self.0.subscribe())
    }
}

impl News {
    /// The next change; for ever pending once there can be none.
    pub(crate) async fn next(&mut self) -> Heard {
        match self.0.recv().await {
            Ok(change) => Heard::Change(change),
            Err(broadcast::error::RecvError::Lagged(_)) => Heard::Anything,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
