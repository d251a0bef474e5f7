//! What happens to sessions while nobody looks: activity reaches the store, idle ones are put away,
//! and those that were idle for too long end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::clock::Timestamp;
use countersign_gateway::job::news::{JobListener, JobTold};
use countersign_gateway::session::lifetime::Touched;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::limits::{EXPIRE_EVERY_MAX, PUT_AWAY_AFTER, REVOKED_EVERY, TOUCH_EVERY};
use crate::mcp::changes::Change;

use super::Server;
use super::registry::Registry;

/// Runs until it is dropped.
pub(super) async fn run(server: Arc<Server>) {
    let registry = &server.registry;
    let expire_every = (registry.ttl / 4).clamp(Duration::from_millis(100), EXPIRE_EVERY_MAX);
    let mut looking = ticks(REVOKED_EVERY);
    registry.take_stock().await;
    let mut touching = ticks(TOUCH_EVERY.min(expire_every));
    let mut expiring = ticks(expire_every);
    let mut tools = server.host.service.tool_changes();
    let mut may_change = true;
    let mut jobs = server.host.service.job_news();
    loop {
        tokio::select! {
            _ = touching.tick() => {
                note_activity(registry).await;
                put_away(registry);
                server.doorman.report(&server.host).await;
            }
            _ = expiring.tick() => {
                expire(registry).await;
                registry.take_stock().await;
            }
            _ = looking.tick() => {
                end_revoked(&server).await;
                server.host.service.dismiss_revoked().await;
                notice_ended(registry).await;
            }
            changed = tools.changed(), if may_change => match changed {
                Ok(()) => tell_of_tools(&server),
                Err(_) => may_change = false,
            },
            told = next(&mut jobs) => match told {
                Some(told) => registry.all().iter().for_each(|live| live.connection.tell_of_job(&told)),
                None => jobs = None,
            },
        }
    }
}

/// What happened to a job next; for ever pending where there are none.
async fn next(jobs: &mut Option<JobListener>) -> Option<Arc<JobTold>> {
    match jobs {
        Some(jobs) => jobs.next().await,
        None => std::future::pending().await,
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Tells the store which sessions were used. What is busy is being used.
pub(super) async fn note_activity(registry: &Registry) {
    let now = registry.host.clock.now();
    let mut touched = Vec::new();
    for live in registry.all() {
        if live.is_busy() {
            live.use_at(now);
        }
        if let Some(at) = live.news() {
            let id = live.id.clone();
            let reuses_ids = live.connection.reuses_ids();
            touched.push(Touched { id, at, reuses_ids });
        }
    }
    if touched.is_empty() {
        return;
    }
    if let Err(refusal) = registry.host.sessions.touch(touched).await {
        tracing::warn!(reason = refusal.message, "the activity of sessions could not be noted");
    }
}

/// Ends the sessions of tokens that are no longer in force, with all that runs in them.
async fn end_revoked(server: &Server) {
    let (registry, credentials) = (&server.registry, &server.options.credentials);
    let mut known = HashMap::new();
    for live in registry.all() {
        let is_revoked = !live.is_anonymous()
            && !*known
                .entry(live.credential.clone())
                .or_insert_with(|| credentials.is_in_force(&live.credential));
        if is_revoked {
            registry.close(&live).await;
            live.close();
        }
    }
}

/// Tells everybody who listens that tools may have come or gone.
fn tell_of_tools(server: &Server) {
    server.host.features.changes.announce(Change::Tools);
    for live in server.registry.all() {
        live.connection.tell_of_tools();
    }
}

/// Finds out which of the sessions that are used here were ended by another process.
async fn notice_ended(registry: &Registry) {
    let used: Vec<_> = registry.all().into_iter().filter(|live| live.was_used()).collect();
    if used.is_empty() {
        return;
    }
    let ids = used.iter().map(|live| live.id.clone()).collect();
    match registry.host.sessions.ended(ids).await {
        Ok(ended) => {
            let ended: HashSet<_> = ended.into_iter().collect();
            let ended = used.iter().filter(|live| ended.contains(&live.id));
            ended.for_each(|live| registry.ended_elsewhere(live));
        }
        Err(refusal) => tracing::warn!(reason = refusal.message, "the ends of sessions could not be read"),
    }
}

fn put_away(registry: &Registry) {
    let now = registry.host.clock.now();
    for live in registry.all() {
        let in_store_only = live.prune() && !live.connection.has_settings();
        if in_store_only && live.idle_for(now) >= PUT_AWAY_AFTER && !live.is_busy() {
            registry.put_away(&live);
        }
    }
}

async fn expire(registry: &Registry) {
    // First the store hears of everything that was used, so that it ends nothing else.
    note_activity(registry).await;
    let now = registry.host.clock.now();
    let ttl = i64::try_from(registry.ttl.as_millis()).unwrap_or(i64::MAX);
    let idle_since = Timestamp::from_millis(now.as_millis().saturating_sub(ttl));
    let busy = registry.all().into_iter().filter(|live| live.is_busy());
    let busy = busy.map(|live| live.id.clone()).collect();
    match registry.host.sessions.expire(idle_since, busy).await {
        Ok(ended) => {
            for id in ended {
                registry.expired(id.as_str());
            }
        }
        Err(refusal) => tracing::warn!(reason = refusal.message, "idle sessions could not be ended"),
    }
}
