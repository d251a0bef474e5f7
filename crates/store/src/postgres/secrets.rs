//! Secrets on their way: each change over the version it was made from, values only sealed.

use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::tools::secrets::keeping::{KeptSync, SecretSyncs, SyncChange, SyncTarget};

use super::ledger::Ledger;
use super::link::Values;
use super::readers::Readers;
use super::trouble::{self, Trouble};
use super::{PgStore, acts};
use crate::rows::control::{SYNC_COLUMNS, sync};

const INSERT: &str = "INSERT INTO secret_syncs (sync_id, version, state, project_id, idempotency_key, digest,
         repository, environment, github_scope, github_secret, namespace, kubernetes_secret, kubernetes_key, policy,
         sealed_value, at_github, at_kubernetes, act_id, correlation_id, approval_id, created_at_ms, updated_at_ms)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
     ON CONFLICT DO NOTHING";
/// Another act on the same Kubernetes Secret that begins at this moment is met by the index, and by this when the
/// change is tried again alone.
const ADVANCE: &str = "UPDATE secret_syncs SET version = $3, state = $4, idempotency_key = $5,
         sealed_value = $6, at_github = $7, at_kubernetes = $8, act_id = $9, correlation_id = $10, approval_id = $11,
         updated_at_ms = $12
     WHERE sync_id = $1 AND version = $2 AND ($4 <> 'open' OR NOT EXISTS
         (SELECT 1 FROM secret_syncs AS other WHERE other.state = 'open' AND other.sync_id <> secret_syncs.sync_id
             AND other.namespace = secret_syncs.namespace
             AND other.kubernetes_secret = secret_syncs.kubernetes_secret))";

impl Ledger<'_> {
    /// False when the row does not stand where the change expects it, when its key is used, or when another act
    /// works on the same Kubernetes Secret.
    pub(super) fn write_sync(&self, change: &SyncChange) -> Result<bool, Trouble> {
        let (it, target) = (&change.sync, &change.sync.target);
        let version = it.version.cast_signed();
        let rows = match change.from {
            Some(from) => self.link.execute(
                ADVANCE,
                &[
                    &it.id,
                    &from.cast_signed(),
                    &version,
                    &it.state.as_str(),
                    &it.idempotency_key,
                    &it.sealed,
                    &it.is_at_github,
                    &it.is_at_kubernetes,
                    &it.act.as_str(),
                    &it.correlation_id.as_str(),
                    &it.approval,
                    &it.updated_at.as_millis(),
                ],
            )?,
            None => self.link.execute(
                INSERT,
                &[
                    &it.id,
                    &version,
                    &it.state.as_str(),
                    &it.project,
                    &it.idempotency_key,
                    &it.digest,
                    &target.repository,
                    &target.environment,
                    &target.scope.as_str(),
                    &target.github_secret,
                    &target.namespace,
                    &target.kubernetes_secret,
                    &target.kubernetes_key,
                    &it.policy.as_str(),
                    &it.sealed,
                    &it.is_at_github,
                    &it.is_at_kubernetes,
                    &it.act.as_str(),
                    &it.correlation_id.as_str(),
                    &it.approval,
                    &it.created_at.as_millis(),
                    &it.updated_at.as_millis(),
                ],
            )?,
        };
        Ok(rows == 1)
    }
}

impl Readers {
    fn syncs(&self, rest: &str, values: Values<'_>) -> Result<Vec<KeptSync>, RecordError> {
        let sql = format!("SELECT {SYNC_COLUMNS} FROM secret_syncs {rest}");
        // Of one moment: an act that ends meanwhile would else look like one that was left.
        let found = self.read_at_once(|link| {
            link.all(&sql, values, |row| {
                let sync = sync(row)?;
                let is_under_way = acts::is_under_way(link, &self.site.node, sync.act.as_str())?;
                Ok(KeptSync { sync, is_under_way })
            })
        });
        found.map_err(|error| trouble::unavailable(&error))
    }
}

impl SecretSyncs for PgStore {
    fn sync_by_key(&self, project: &str, key: &str) -> Pending<Result<Option<KeptSync>, RecordError>> {
        let (project, key) = (project.to_owned(), key.to_owned());
        self.read(move |readers| {
            let rest = "WHERE project_id = $1 AND idempotency_key = $2 AND state <> 'given-up'";
            Ok(readers.syncs(rest, &[&project, &key])?.pop())
        })
    }

    fn unfinished_sync_to(&self, target: &SyncTarget) -> Pending<Result<Option<KeptSync>, RecordError>> {
        let target = target.clone();
        self.read(move |readers| {
            let rest = "WHERE state IN ('open', 'left') AND repository = $1 AND environment = $2 AND github_scope = $3
                     AND github_secret = $4 AND namespace = $5 AND kubernetes_secret = $6 AND kubernetes_key = $7
                 ORDER BY updated_at_ms DESC LIMIT 1";
            let found = readers.syncs(
                rest,
                &[
                    &target.repository,
                    &target.environment,
                    &target.scope.as_str(),
                    &target.github_secret,
                    &target.namespace,
                    &target.kubernetes_secret,
                    &target.kubernetes_key,
                ],
            );
            Ok(found?.pop())
        })
    }

    fn unfinished_syncs(&self) -> Pending<Result<Vec<KeptSync>, RecordError>> {
        self.read(|readers| {
            let rest = "WHERE state IN ('open', 'left') ORDER BY updated_at_ms LIMIT 500";
            readers.syncs(rest, &[])
        })
    }
}
