//! Ports of the secret sync: what a store keeps of it, the two systems that a secret goes to, and the vault
//! that makes values and keeps them sealed until both have them.

use crate::audit::{Pending, RecordError};
use crate::clock::Timestamp;
use crate::ids::{CorrelationId, EventId};
use crate::job::lifecycle::words;

/// Port: syncs as a store keeps them. Rows change through the record only.
pub trait SecretSyncs: Send + Sync + 'static {
    /// The one under an idempotency key of a project.
    fn sync_by_key(&self, project: &str, key: &str) -> Pending<Result<Option<KeptSync>, RecordError>>;

    /// The newest to the same places that is not whole.
    fn unfinished_sync_to(&self, target: &SyncTarget) -> Pending<Result<Option<KeptSync>, RecordError>>;

    /// All that are not whole, and may hold a value.
    fn unfinished_syncs(&self) -> Pending<Result<Vec<KeptSync>, RecordError>>;
}

/// A row, and whether its act is being done at this moment.
#[derive(Clone, PartialEq, Debug)]
pub struct KeptSync {
    pub sync: SecretSync,
    pub is_under_way: bool,
}

words! {
    /// How a sync stands.
    SyncState {
        /// An act works on it, or broke off over it.
        Open "open",
        /// Its act failed; the same call again goes on with the same value.
        Left "left",
        Applied "applied",
        /// Another took its place, or it lay too long; its value is erased.
        GivenUp "given-up",
    }
}

words! {
    /// Where the value comes from.
    ValuePolicy {
        /// From the places it goes to and a key of this record: the same again for the same places.
        Deterministic "deterministic",
        Random "random",
        /// The caller brings it.
        Provided "provided",
    }
}

words! {
    /// Whose secret it is at GitHub.
    GithubScope {
        Environment "environment",
        Repository "repository",
    }
}

/// Where a secret goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncTarget {
    /// `owner/name`.
    pub repository: String,
    pub environment: String,
    pub scope: GithubScope,
    pub github_secret: String,
    pub namespace: String,
    pub kubernetes_secret: String,
    pub kubernetes_key: String,
}

impl SyncTarget {
    /// `namespace/name#key`.
    pub fn kubernetes_ref(&self) -> String {
        format!("{}/{}#{}", self.namespace, self.kubernetes_secret, self.kubernetes_key)
    }
}

/// One sync as it is kept.
#[derive(Clone, PartialEq, Debug)]
pub struct SecretSync {
    pub id: String,
    /// Counts its changes; a change is made over the version it was made from.
    pub version: u64,
    pub state: SyncState,
    pub project: String,
    pub idempotency_key: Option<String>,
    /// Over everything that was asked for; keyed where a value is among it.
    pub digest: String,
    pub target: SyncTarget,
    pub policy: ValuePolicy,
    /// The value, sealed, until both systems have it; none where it can be made again.
    pub sealed: Option<Vec<u8>>,
    pub is_at_github: bool,
    pub is_at_kubernetes: bool,
    pub act: EventId,
    pub correlation_id: CorrelationId,
    pub approval: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A row after a change.
#[derive(Clone, PartialEq, Debug)]
pub struct SyncChange {
    pub sync: SecretSync,
    /// The version that it was made from; none for a new one, which is refused where its key is used or
    /// another act works on the same Kubernetes Secret.
    pub from: Option<u64>,
}

impl SecretSync {
    /// The next version of the row. Whoever is whole or given up holds no value.
    #[must_use]
    pub fn after(&self, now: Timestamp, change: impl FnOnce(&mut Self)) -> SyncChange {
        let mut next = self.clone();
        change(&mut next);
        next.version += 1;
        next.updated_at = now;
        match next.state {
            SyncState::Applied | SyncState::GivenUp => next.sealed = None,
            SyncState::Open | SyncState::Left => {}
        }
        SyncChange {
            sync: next,
            from: Some(self.version),
        }
    }
}

/// A secret value: never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

impl SecretValue {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// For whoever hands it to a system, and nobody else.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// A text in which it does not occur, in none of the forms that it travels in.
    pub fn hidden_in(&self, text: &str) -> String {
        super::hiding::hidden(&self.0, text)
    }
}

impl std::fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretValue(hidden)")
    }
}

/// Port: makes values, and keeps one sealed for as long as it is needed.
pub trait Vault: Send + Sync + 'static {
    /// 256 random bits as text; none where the system has none to give.
    fn random(&self) -> Option<SecretValue>;

    /// The same for the same words, and to be guessed by nobody without the record's key.
    fn derived(&self, words: &[&str]) -> SecretValue;

    /// What a value is known again by, without telling it.
    fn digest(&self, value: &SecretValue) -> String;

    /// Sealed for the sync of this id; none where it cannot be done.
    fn seal(&self, id: &str, value: &SecretValue) -> Option<Vec<u8>>;

    /// What was sealed for this id, and nothing else.
    fn open(&self, id: &str, sealed: &[u8]) -> Option<SecretValue>;
}

/// Port: a system that keeps secrets.
pub trait SecretKeeper: Send + Sync + 'static {
    /// Puts the value where the target says. The same value again changes nothing.
    fn put(&self, target: &SyncTarget, value: SecretValue) -> Pending<Result<(), KeeperError>>;
}

/// Why a system did not take a secret; free of the value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeeperError {
    /// It may work later.
    #[error("{0}")]
    Unreachable(String),
    /// It said no, and will again.
    #[error("{0}")]
    Refused(String),
    /// Somebody else keeps the same key.
    #[error("{0}")]
    Conflict(String),
}
