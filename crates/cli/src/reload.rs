//! Another policy without a new start: on SIGHUP, after a rule was written here, and when another process
//! of the state directory rang and the files are not as they were.
//!
//! What policy decides is taken over, and the agents of jobs; where to listen, limits of transports, tokens of
//! others and patterns of redaction are read at the start. A configuration that cannot be used changes nothing: the policy in
//! force stays, and the log and the record say why.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use countersign_gateway::approval::board::Board;
use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::audit::redact::Redactor;
use countersign_gateway::audit::{Change, Record as _};
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::IdSource;
use countersign_gateway::spine::{Adopted, Gateway};
use countersign_store::Store;
use serde_json::json;
use tokio::sync::Mutex;

use crate::config::{Flags, Surroundings};
use crate::start::{self, Started};
use crate::wiring;

/// Time between two looks at the files that declare tools.
const LOOK: Duration = Duration::from_secs(2);

/// The policy of a process that stays.
pub(crate) struct Reload {
    parts: ReloadParts,
    /// One at a time; holds the files as they were when they were last read.
    seen: Mutex<Vec<Stamp>>,
    /// Those among them that declare tools, with their directories: people edit them by hand.
    tool_files: Mutex<Vec<PathBuf>>,
    /// What else follows from another configuration.
    then: OnceLock<Box<Then>>,
}

type Then = dyn Fn(&Started) + Send + Sync;

pub(crate) struct ReloadParts {
    pub(crate) flags: Flags,
    pub(crate) surroundings: Surroundings,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) board: Arc<Board>,
    pub(crate) record: Arc<Store>,
    pub(crate) redactor: Redactor,
}

/// A file as it was: device and inode, length, and when it was last changed. None where there is none.
type Stamp = (PathBuf, Option<(u64, u64, u64, i64, i64)>);

impl Reload {
    pub(crate) fn new(parts: ReloadParts, files: Vec<PathBuf>, tool_files: Vec<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            parts,
            seen: Mutex::new(stamps(files)),
            tool_files: Mutex::new(tool_files),
            then: OnceLock::new(),
        })
    }

    /// Does this too, with every configuration that is taken over.
    pub(crate) fn then(&self, then: impl Fn(&Started) + Send + Sync + 'static) {
        let first = self.then.set(Box::new(then)).is_ok();
        assert!(first, "one follows from a configuration");
    }

    /// Reads the configuration again and puts it in force. The error is for people, and told already.
    pub(crate) async fn now(&self, by: Actor) -> Result<(), String> {
        let mut seen = self.seen.lock().await;
        self.take(&mut seen, by).await
    }

    /// Looks at the files whenever another process rings, and at those that declare tools from time to time,
    /// for as long as this process lives.
    pub(crate) fn listen(self: &Arc<Self>) {
        let reload = Arc::downgrade(self);
        let mut changes = self.parts.board.changes();
        tokio::spawn(async move {
            loop {
                let rung = tokio::select! {
                    rung = changes.changed() => match rung {
                        Ok(()) => true,
                        Err(_) => return,
                    },
                    () = tokio::time::sleep(LOOK) => false,
                };
                let Some(reload) = reload.upgrade() else { return };
                let mut seen = reload.seen.lock().await;
                let declares = reload.tool_files.lock().await.clone();
                let known = seen.iter().filter(|(path, _)| rung || declares.contains(path));
                let known: Vec<Stamp> = known.cloned().collect();
                let files = known.iter().map(|(path, _)| path.clone()).collect();
                if known != stamps(files) {
                    // Why it failed is in the log and in the record.
                    let _ = reload.take(&mut seen, Actor::system("policy")).await;
                }
            }
        });
    }

    async fn take(&self, seen: &mut Vec<Stamp>, by: Actor) -> Result<(), String> {
        let (flags, surroundings) = (self.parts.flags.clone(), self.parts.surroundings.clone());
        // Looked at before it is read: what changes in between is read again.
        let files: Vec<PathBuf> = seen.iter().map(|(path, _)| path.clone()).collect();
        let mut now = stamps(files);
        let loaded = tokio::task::spawn_blocking(move || Started::of(surroundings, &flags)).await;
        let loaded = loaded.unwrap_or_else(|_| Err(anyhow::anyhow!("reading it was stopped")));
        let started = match loaded {
            Ok(started) => started,
            Err(error) => {
                *seen = now;
                return Err(self.refused(&by, &format!("{error:#}")).await);
            }
        };
        for path in started.files() {
            if !now.iter().any(|(known, _)| *known == path) {
                now.extend(stamps(vec![path]));
            }
        }
        let outlook = wiring::outlook(&started.policy);
        match self.parts.gateway.adopt(started.policy.clone(), outlook, &by).await {
            Ok(adopted) => {
                *seen = now;
                self.tool_files
                    .lock()
                    .await
                    .clone_from(&started.settings.tool_files.watched);
                start::warn(&started);
                if let Some(then) = self.then.get() {
                    then(&started);
                }
                match adopted {
                    Adopted::Now => tracing::info!(
                        digest = self.parts.gateway.policy_digest(),
                        "another policy is in force"
                    ),
                    Adopted::Same => tracing::info!("the configuration was read again; the policy is the same"),
                }
                Ok(())
            }
            // Nothing was seen, so the next ring tries again.
            Err(error) => {
                let reason = format!("the policy could not be recorded, so the old one stays in force: {error}");
                tracing::error!("{reason}");
                Err(reason)
            }
        }
    }

    async fn refused(&self, by: &Actor, problem: &str) -> String {
        let reason = format!("the configuration cannot be used, so the old policy stays in force: {problem}");
        let payload = self.parts.redactor.redact_json(&json!({
            "reason": reason,
            "digest": self.parts.gateway.policy_digest(),
        }));
        let (ids, now) = (IdSource::random(), Clock::system().now());
        let event = Draft::new(
            ids.event(),
            now,
            ids.correlation(),
            by.clone(),
            EventType::PolicyRefused,
            &payload,
        );
        let change = Change {
            events: vec![event],
            ..Change::default()
        };
        if let Err(error) = self.parts.record.commit(change).await {
            tracing::error!(%error, "that the configuration cannot be used could not be recorded");
        }
        tracing::error!("{reason}");
        reason
    }
}

fn stamps(files: Vec<PathBuf>) -> Vec<Stamp> {
    let stamp = |path: PathBuf| {
        let facts = fs::metadata(&path).ok();
        let facts = facts.map(|facts| (facts.dev(), facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()));
        (path, facts)
    };
    files.into_iter().map(stamp).collect()
}
