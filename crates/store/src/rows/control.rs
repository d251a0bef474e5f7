//! Databases of projects, and secrets on their way. The tables hold no other words than these.

use countersign_gateway::ids::{CorrelationId, EventId};
use countersign_gateway::tools::database::keeping::{Hold, ProjectDatabase};
use countersign_gateway::tools::secrets::keeping::{GithubScope, SecretSync, SyncState, SyncTarget, ValuePolicy};

use super::Cells;

/// The columns that [`database`] reads, in its order.
pub(crate) const DATABASE_COLUMNS: &str = "database_name, project_id, environment, hold, mark, version, act_id, \
     correlation_id, created_at_ms, updated_at_ms";
/// The columns that [`sync`] reads, in its order.
pub(crate) const SYNC_COLUMNS: &str = "sync_id, version, state, project_id, idempotency_key, digest, repository, \
     environment, github_scope, github_secret, namespace, kubernetes_secret, kubernetes_key, policy, sealed_value, \
     at_github, at_kubernetes, act_id, correlation_id, approval_id, created_at_ms, updated_at_ms";

pub(crate) fn database<R: Cells>(row: &R) -> Result<ProjectDatabase, R::Error> {
    Ok(ProjectDatabase {
        name: row.text(0)?,
        project: row.text(1)?,
        environment: row.text(2)?,
        hold: Hold::parse(&row.text(3)?).unwrap_or(Hold::Creating),
        mark: row.text(4)?,
        version: row.count(5)?,
        act: EventId::trusted(row.text(6)?),
        correlation_id: CorrelationId::trusted(row.text(7)?),
        created_at: row.time(8)?,
        updated_at: row.time(9)?,
    })
}

pub(crate) fn sync<R: Cells>(row: &R) -> Result<SecretSync, R::Error> {
    Ok(SecretSync {
        id: row.text(0)?,
        version: row.count(1)?,
        state: SyncState::parse(&row.text(2)?).unwrap_or(SyncState::GivenUp),
        project: row.text(3)?,
        idempotency_key: row.any_text(4)?,
        digest: row.text(5)?,
        target: SyncTarget {
            repository: row.text(6)?,
            environment: row.text(7)?,
            scope: GithubScope::parse(&row.text(8)?).unwrap_or(GithubScope::Environment),
            github_secret: row.text(9)?,
            namespace: row.text(10)?,
            kubernetes_secret: row.text(11)?,
            kubernetes_key: row.text(12)?,
        },
        policy: ValuePolicy::parse(&row.text(13)?).unwrap_or(ValuePolicy::Provided),
        sealed: row.any_bytes(14)?,
        is_at_github: row.flag(15)?,
        is_at_kubernetes: row.flag(16)?,
        act: EventId::trusted(row.text(17)?),
        correlation_id: CorrelationId::trusted(row.text(18)?),
        approval: row.any_text(19)?,
        created_at: row.time(20)?,
        updated_at: row.time(21)?,
    })
}
