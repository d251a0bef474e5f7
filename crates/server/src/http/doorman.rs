//! What is refused at the door (credentials, rates, foreign pages), recorded without letting a flood of
//! it fill the record: the first of an address at once, the others together, once in a while.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::service::RefusedEnvelope;
use countersign_gateway::session::Transport;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::limits::{AUTH_REFUSALS_ADDRESSES_MAX, AUTH_REFUSALS_EVERY};
use crate::mcp::host::Host;

#[derive(Default)]
pub(super) struct Doorman(Mutex<HashMap<Key, Count>>);

/// An address, or all beyond the most we tell apart; and what was refused there.
type Key = (Option<IpAddr>, ErrorCode);

struct Count {
    since: Instant,
    /// Refusals that are not in the record yet.
    untold: u64,
    transport: Transport,
}

impl Doorman {
    /// Counts a refusal. It is in the record when this resolves, or will be with others.
    pub(super) async fn refused(&self, host: &Host, address: IpAddr, transport: Transport, refusal: &Refusal) {
        if self.count(address, refusal.code, transport, Instant::now()) {
            let key = (Some(address), refusal.code);
            record(host, key, transport, 1, &refusal.message).await;
        }
    }

    /// True for the first of an address in its time.
    fn count(&self, address: IpAddr, code: ErrorCode, transport: Transport, now: Instant) -> bool {
        let mut counts = self.counts();
        // Beyond so many addresses they share one count.
        let known = counts.contains_key(&(Some(address), code)) || counts.len() < AUTH_REFUSALS_ADDRESSES_MAX;
        let key = (known.then_some(address), code);
        match counts.get_mut(&key) {
            Some(count) => {
                count.untold += 1;
                false
            }
            None => {
                let count = Count {
                    since: now,
                    untold: 0,
                    transport,
                };
                counts.insert(key, count);
                true
            }
        }
    }

    /// Records what has been counted for long enough, and begins anew.
    pub(super) async fn report(&self, host: &Host) {
        self.report_after(host, AUTH_REFUSALS_EVERY).await;
    }

    /// Records everything that is not in the record yet.
    pub(super) async fn report_all(&self, host: &Host) {
        self.report_after(host, Duration::ZERO).await;
    }

    async fn report_after(&self, host: &Host, age: Duration) {
        let now = Instant::now();
        let mut due = Vec::new();
        self.counts().retain(|key, count| {
            let over = now.duration_since(count.since) >= age;
            if over && count.untold > 0 {
                due.push((*key, count.transport, std::mem::take(&mut count.untold)));
                count.since = now;
                return true;
            }
            !over
        });
        for (key, transport, untold) in due {
            let message = "more requests were refused at the door for the same reason";
            record(host, key, transport, untold, message).await;
        }
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Key, Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn record(host: &Host, (address, code): Key, transport: Transport, count: u64, message: &str) {
    let mut params = Map::new();
    let address = address.map_or_else(|| "several".to_owned(), |address| address.to_string());
    params.insert("address".to_owned(), address.into());
    params.insert("count".to_owned(), Value::from(count));
    let written = host.service.refused(RefusedEnvelope {
        caller: None,
        transport,
        session: None,
        rpc_id: None,
        method: String::new(),
        params: Some(params),
        received_at: host.clock.now(),
        code,
        message: message.to_owned(),
        correlation_id: host.ids.correlation(),
    });
    written.await;
}
