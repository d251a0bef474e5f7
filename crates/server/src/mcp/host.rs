//! What all connections of one server share.

use std::sync::Arc;

use countersign_gateway::clock::Clock;
use countersign_gateway::ids::{IdSource, SessionId};
use countersign_gateway::service::Service;
use countersign_gateway::session::Transport;
use countersign_gateway::session::lifetime::Sessions;

use super::memory::Reuse;
use crate::metrics::Metrics;

pub(crate) struct Host {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) sessions: Arc<dyn Sessions>,
    pub(crate) clock: Clock,
    pub(crate) ids: IdSource,
    pub(crate) depth_max: usize,
    pub(crate) metrics: Arc<Metrics>,
}

/// What a connection stands on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// A pair of pipes, which is the session.
    Stdio(SessionId),
    /// One stream for all answers; the session was created with it.
    Sse(SessionId),
    /// Requests that each bring their own way back.
    Streamable(SessionId),
    /// One modern request over HTTP.
    Stateless,
}

impl Link {
    pub(crate) fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Stdio(id) | Self::Sse(id) | Self::Streamable(id) => Some(id),
            Self::Stateless => None,
        }
    }

    pub(crate) fn transport(&self) -> Transport {
        match self {
            Self::Stdio(_) => Transport::Stdio,
            Self::Sse(_) => Transport::Sse,
            Self::Streamable(_) | Self::Stateless => Transport::StreamableHttp,
        }
    }

    pub(crate) fn reuse(&self) -> Reuse {
        match self {
            Self::Stdio(_) | Self::Sse(_) => Reuse::Refused,
            Self::Streamable(_) | Self::Stateless => Reuse::Separate,
        }
    }

    /// Whether the session outlives the connection, and with it what it remembers.
    pub(crate) fn lasts(&self) -> bool {
        matches!(self, Self::Streamable(_))
    }
}
