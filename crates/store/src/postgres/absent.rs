//! What is kept in a file only, so far: runs and their links, GitHub's deliveries, leases, databases of projects,
//! secrets on their way, acts of services outside, and tokens of runs and jobs.
//!
//! Nothing of it can be written here, and that is said at once ([`refusal`]); so whoever asks finds none.

use std::future::ready;
use std::time::Duration;

use countersign_gateway::audit::event::Actor;
use countersign_gateway::audit::{Change, Pending, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::delegation::{Delegation, Delegations};
use countersign_gateway::github::delivery::{Deliveries, Delivery};
use countersign_gateway::github::message::{Messages, Untold};
use countersign_gateway::ids::{CorrelationId, CredentialId, DelegationId, IdSource, JobId, RunId};
use countersign_gateway::job::state::Job;
use countersign_gateway::run::keeping::{Link, LinkEnd, RunFilter, Runs};
use countersign_gateway::run::session::AgentSession;
use countersign_gateway::run::state::Run;
use countersign_gateway::session::credential::{Credential, TokenName};
use countersign_gateway::tools::database::keeping::{Databases, Kept};
use countersign_gateway::tools::secrets::keeping::{KeptSync, SecretSyncs, SyncTarget};

use super::PgStore;
use super::trouble::Trouble;
use crate::sqlite::tokens::{Made, TokenError};

/// Why a change cannot be written here, where it cannot.
pub(super) fn refusal(change: &Change) -> Option<RecordError> {
    let what = [
        (
            !change.runs.is_empty() || !change.links.is_empty() || !change.reviews.is_empty(),
            "runs",
        ),
        (!change.leases.is_empty(), "leases"),
        (
            !change.deliveries.is_empty() || !change.messages.is_empty(),
            "deliveries of GitHub",
        ),
        (!change.databases.is_empty(), "databases of projects"),
        (!change.delegations.is_empty(), "acts of services outside"),
        (!change.syncs.is_empty(), "secrets on their way"),
    ];
    let (_, what) = what.into_iter().find(|(is_there, _)| *is_there)?;
    Some(RecordError::Unavailable(Trouble::NotHere(what).to_string()))
}

fn none<T: Default + Send + 'static>() -> Pending<Result<T, RecordError>> {
    Box::pin(ready(Ok(T::default())))
}

impl Runs for PgStore {
    fn find_run(&self, _: &RunId) -> Pending<Result<Option<Run>, RecordError>> {
        none()
    }

    fn list_runs(&self, _: RunFilter) -> Pending<Result<Vec<Run>, RecordError>> {
        none()
    }

    fn runs_due(&self, _: usize) -> Pending<Result<Vec<Run>, RecordError>> {
        none()
    }

    fn jobs_left(&self, _: usize) -> Pending<Result<Vec<(JobId, RunId)>, RecordError>> {
        none()
    }

    fn agent_session(&self, _: &RunId) -> Pending<Result<Option<AgentSession>, RecordError>> {
        none()
    }

    fn links_of(&self, _: LinkEnd) -> Pending<Result<Vec<Link>, RecordError>> {
        none()
    }
}

impl Deliveries for PgStore {
    fn pending_deliveries(&self, _: Timestamp, _: usize) -> Pending<Result<Vec<Delivery>, RecordError>> {
        none()
    }
}

impl Messages for PgStore {
    fn untold(&self, _: Timestamp, _: usize) -> Pending<Result<Vec<Untold>, RecordError>> {
        none()
    }
}

impl Delegations for PgStore {
    fn find_delegation(&self, _: &DelegationId) -> Pending<Result<Option<Delegation>, RecordError>> {
        none()
    }

    fn delegations_of(&self, _: &CorrelationId) -> Pending<Result<Vec<Delegation>, RecordError>> {
        none()
    }

    fn untold(&self, _: &CredentialId, _: &str) -> Pending<Result<Option<Delegation>, RecordError>> {
        none()
    }

    fn overdue(&self, _: Timestamp, _: usize) -> Pending<Result<Vec<Delegation>, RecordError>> {
        none()
    }
}

impl Databases for PgStore {
    fn find_database(&self, _: &str) -> Pending<Result<Option<Kept>, RecordError>> {
        none()
    }

    fn unsettled_databases(&self) -> Pending<Result<Vec<Kept>, RecordError>> {
        none()
    }
}

impl SecretSyncs for PgStore {
    fn sync_by_key(&self, _: &str, _: &str) -> Pending<Result<Option<KeptSync>, RecordError>> {
        none()
    }

    fn unfinished_sync_to(&self, _: &SyncTarget) -> Pending<Result<Option<KeptSync>, RecordError>> {
        none()
    }

    fn unfinished_syncs(&self) -> Pending<Result<Vec<KeptSync>, RecordError>> {
        none()
    }
}

impl PgStore {
    pub fn create_job_token(&self, _: &Job, _: &Actor, _: &IdSource) -> Result<Made, TokenError> {
        Err(absent("tokens of jobs"))
    }

    pub fn create_run_token(
        &self,
        _: &TokenName,
        _: &str,
        _: Duration,
        _: Actor,
        _: &IdSource,
    ) -> Result<Made, TokenError> {
        Err(absent("tokens of runs"))
    }

    pub fn stray_job_tokens(&self) -> Result<Vec<Credential>, TokenError> {
        Ok(Vec::new())
    }
}

pub(super) fn absent(what: &'static str) -> TokenError {
    let source = Trouble::NotHere(what).into();
    TokenError::Write { source }
}
