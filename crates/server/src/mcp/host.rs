//! What all connections of one server share.

use std::sync::Arc;

use countersign_gateway::clock::Clock;
use countersign_gateway::ids::{IdSource, SessionId};
use countersign_gateway::service::Service;
use countersign_gateway::session::Transport;
use countersign_gateway::session::lifetime::Sessions;

use super::changes::Changes;
use super::extras::Extras;
use super::fixtures::Fixtures;
use super::lists::Lists;
use super::memory::Reuse;
use super::revision::Era;
use super::seal::{Seal, SealKey};
use crate::metrics::Metrics;

pub(crate) struct Host {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) sessions: Arc<dyn Sessions>,
    pub(crate) clock: Clock,
    pub(crate) ids: IdSource,
    pub(crate) depth_max: usize,
    pub(crate) features: Features,
    pub(crate) metrics: Arc<Metrics>,
}

/// What the protocol layer keeps for all connections.
pub(crate) struct Features {
    pub(crate) seal: Seal,
    pub(crate) changes: Changes,
    pub(crate) extras: Option<Arc<dyn Extras>>,
    pub(crate) lists: Lists,
}

/// Whether the names that the conformance suite calls are served beside the product's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConformanceFixtures {
    Absent,
    Served,
}

impl Features {
    pub(crate) fn new(clock: &Clock, fixtures: ConformanceFixtures, key: SealKey) -> Self {
        let extras: Option<Arc<dyn Extras>> = match fixtures {
            ConformanceFixtures::Absent => None,
            ConformanceFixtures::Served => Some(Arc::new(Fixtures::new())),
        };
        Self {
            seal: Seal::new(key, clock.clone()),
            changes: Changes::new(),
            extras,
            lists: Lists::default(),
        }
    }

    /// What extras add to a list.
    pub(crate) fn listed(&self, method: &str, era: Era) -> Vec<serde_json::Value> {
        self.extras
            .as_ref()
            .map_or_else(Vec::new, |extras| extras.listed(method, era))
    }

    pub(crate) fn extra_prompt(&self, name: &str) -> bool {
        let prompts = self.listed("prompts/list", Era::Modern);
        prompts.iter().any(|prompt| prompt["name"] == name)
    }

    pub(crate) fn extra_resource(&self, uri: &str) -> bool {
        let resources = self.listed("resources/list", Era::Modern);
        resources.iter().any(|resource| resource["uri"] == uri)
    }
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
