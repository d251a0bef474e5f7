//! What a session of the legacy era has agreed upon, and the requests that change it: the log level and
//! subscriptions to resources.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use countersign_gateway::error::{ErrorCode, Refusal};
use serde_json::{Map, Value, json};
use tokio::task::AbortHandle;

use super::changes::{Change, Heard, News};
use super::client::{Capabilities, Client, Level};
use super::host::Host;
use super::methods;
use super::outlet::{Outgoing, Outlet};
use super::revision::Legacy;
use super::{resources, wire};
use crate::limits::{SUBSCRIPTIONS_MAX, URI_BYTES_MAX};

pub(crate) struct Agreed {
    pub(crate) revision: Legacy,
    pub(crate) client: Client,
    subscriptions: BTreeSet<String>,
}

impl Agreed {
    pub(crate) fn new(revision: Legacy, capabilities: Capabilities) -> Self {
        Self {
            revision,
            client: Client::of_session(revision, capabilities),
            subscriptions: BTreeSet::new(),
        }
    }

    /// Carries out a request that changes the session; none if it is not one.
    pub(crate) fn change(
        &mut self,
        host: &Host,
        method: &str,
        params: &Map<String, Value>,
    ) -> Option<Result<Value, Refusal>> {
        let changed = match method {
            "logging/setLevel" => self.set_level(params),
            "resources/subscribe" if self.may_subscribe(host) => self.subscribe(host, params),
            "resources/unsubscribe" if self.may_subscribe(host) => self.unsubscribe(params),
            _ => return None,
        };
        Some(changed.map(|()| json!({})))
    }

    fn set_level(&self, params: &Map<String, Value>) -> Result<(), Refusal> {
        let level = Level::read(params.get("level").unwrap_or(&Value::Null))?;
        self.client.logs.set(level);
        Ok(())
    }

    fn may_subscribe(&self, host: &Host) -> bool {
        let declared = methods::capabilities(host, self.client.era);
        declared["resources"]["subscribe"] == Value::Bool(true)
    }

    fn subscribe(&mut self, host: &Host, params: &Map<String, Value>) -> Result<(), Refusal> {
        let uri = resources::uri(params)?;
        if uri.len() > URI_BYTES_MAX || !resources::exists(host, uri) {
            return Err(resources::unknown(uri));
        }
        if self.subscriptions.len() >= SUBSCRIPTIONS_MAX && !self.subscriptions.contains(uri) {
            let message = format!("a session has at most {SUBSCRIPTIONS_MAX} subscriptions; end one first");
            return Err(Refusal::new(ErrorCode::RateLimited, message));
        }
        self.subscriptions.insert(uri.to_owned());
        Ok(())
    }

    fn unsubscribe(&mut self, params: &Map<String, Value>) -> Result<(), Refusal> {
        self.subscriptions.remove(resources::uri(params)?);
        Ok(())
    }

    /// Whether a request has changed anything.
    pub(crate) fn has_settings(&self) -> bool {
        self.client.logs.is_set() || self.has_subscriptions()
    }

    pub(crate) fn has_subscriptions(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    /// The subscribed resources that a change touches.
    pub(crate) fn touched(&self, heard: &Heard) -> Vec<String> {
        let touches = |uri: &&String| match heard {
            Heard::Change(Change::Resource(changed)) => *uri == changed,
            Heard::Change(Change::Tools | Change::Prompts | Change::Resources) => false,
            Heard::Anything => true,
        };
        self.subscriptions.iter().filter(touches).cloned().collect()
    }
}

/// A task that ends with its owner.
pub(crate) struct Watching(AbortHandle);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Something whose subscriptions are watched.
pub(crate) trait Watcher: Send + Sync + 'static {
    /// The resources that a change touches, and where to say so.
    fn touched(&self, heard: &Heard) -> (Vec<String>, Option<Arc<dyn Outlet>>);
}

/// Tells a session of its resources for as long as the session is there.
pub(crate) fn watch<W: Watcher>(watcher: Weak<W>, mut news: News) -> Watching {
    let task = tokio::spawn(async move {
        loop {
            let heard = news.next().await;
            let Some(watcher) = watcher.upgrade() else {
                return;
            };
            let (uris, outlet) = watcher.touched(&heard);
            for uri in uris {
                let updated = wire::notification("notifications/resources/updated", &json!({"uri": uri}));
                if let Some(outlet) = &outlet {
                    outlet.offer(Outgoing::notification(updated));
                }
            }
        }
    });
    Watching(task.abort_handle())
}
