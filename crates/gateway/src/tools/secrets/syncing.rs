//! How a value comes into both systems, and stays the same when something breaks off in between.
//!
//! ```text
//! nothing -> open -> applied
//! open -> left -> open (the same call again), or -> given-up (another in its place, or too old)
//! ```

use serde_json::{Map, Value, json};

use super::SecretParts;
use super::keeping::{KeeperError, KeptSync, SecretSync, SecretValue, SyncChange, SyncState, ValuePolicy};
use super::reading::Wanted;
use super::schema::{GITHUB, KUBERNETES, NAME};
use crate::approval::ClearedAct;
use crate::audit::Change;
use crate::audit::act::{ActJournal, Ending, Mended};
use crate::error::{ErrorCode, Refusal};
use crate::limits;
use crate::tools::control::{answered, unkept};

type Fields = Map<String, Value>;

impl SecretParts {
    /// An answer that needs no act, or a refusal that needs no question.
    pub(super) async fn foresee(&self, wanted: &Wanted) -> Result<Option<Fields>, Refusal> {
        if let Some(kept) = self.same_key(wanted).await?
            && kept.sync.state == SyncState::Applied
        {
            let mut fields = told(wanted, None, "idempotent_replay");
            fields.insert("request_id".to_owned(), json!(kept.sync.approval));
            fields.insert("approval_state".to_owned(), json!("applied"));
            fields.insert("reused".to_owned(), json!(true));
            return Ok(Some(fields));
        }
        Ok(wanted.dry_run.then(|| told(wanted, None, "dry_run")))
    }

    pub(super) async fn perform(&self, wanted: &Wanted, cleared: &ClearedAct) -> Result<Fields, Refusal> {
        if let Some(answer) = self.foresee(wanted).await? {
            return Ok(answer);
        }
        let journal = cleared
            .journal()
            .expect("an act that changes something is opened first");
        let (sync, value) = self.begin(wanted, cleared, journal).await?;
        let sync = self.at_github(sync, &value, journal).await?;
        self.at_kubernetes(sync, &value, journal).await?;
        Ok(told(wanted, Some(cleared), "applied"))
    }

    /// The sync under this call's key; one for other arguments is a conflict.
    async fn same_key(&self, wanted: &Wanted) -> Result<Option<KeptSync>, Refusal> {
        let Some(key) = &wanted.idempotency_key else {
            return Ok(None);
        };
        let found = self.syncs.sync_by_key(&wanted.project, key).await;
        let found = found.map_err(|error| unkept(&error))?;
        if found.as_ref().is_some_and(|kept| kept.sync.digest != wanted.digest) {
            let message = format!("the idempotency key `{key}` was used before with other arguments; choose another");
            return Err(Refusal::new(ErrorCode::Conflict, message));
        }
        Ok(found)
    }

    /// Writes down what is going to be done, with its value sealed, or goes on with what was left.
    async fn begin(
        &self,
        wanted: &Wanted,
        cleared: &ClearedAct,
        journal: &ActJournal,
    ) -> Result<(SecretSync, SecretValue), Refusal> {
        let now = self.clock.now();
        let mut before = self.same_key(wanted).await?;
        if before.is_none() {
            let found = self.syncs.unfinished_sync_to(&wanted.target).await;
            before = found.map_err(|error| unkept(&error))?;
        }
        if before.as_ref().is_some_and(|kept| kept.is_under_way) {
            let message = "the same places are being written at this moment; call again";
            return Err(Refusal::new(ErrorCode::Conflict, message));
        }
        let (act, correlation) = (journal.act().id.clone(), journal.act().correlation_id.clone());
        let approval = cleared.approval().map(|id| id.as_str().to_owned());
        let mut changes = Vec::new();
        if let Some(KeptSync { sync: left, .. }) = before {
            let same = left.digest == wanted.digest && left.project == wanted.project;
            let value = if same { self.value_of(&left) } else { None };
            if let Some(value) = value {
                let resumed = left.after(now, |next| {
                    next.state = SyncState::Open;
                    next.act = act;
                    next.correlation_id = correlation;
                    next.approval = approval;
                    next.idempotency_key = next.idempotency_key.take().or_else(|| wanted.idempotency_key.clone());
                });
                let sync = resumed.sync.clone();
                self.keep(vec![resumed]).await?;
                return Ok((sync, value));
            }
            changes.push(left.after(now, |next| next.state = SyncState::GivenUp));
        }
        let id = self.ids.event().as_str().to_owned();
        let sync = SecretSync {
            id,
            version: 1,
            state: SyncState::Open,
            project: wanted.project.clone(),
            idempotency_key: wanted.idempotency_key.clone(),
            digest: wanted.digest.clone(),
            target: wanted.target.clone(),
            policy: wanted.policy,
            sealed: None,
            is_at_github: false,
            is_at_kubernetes: false,
            act,
            correlation_id: correlation,
            approval,
            created_at: now,
            updated_at: now,
        };
        let (sync, value) = self.with_value(sync, wanted)?;
        changes.push(SyncChange {
            sync: sync.clone(),
            from: None,
        });
        self.keep(changes).await?;
        Ok((sync, value))
    }

    /// The value of a new sync, sealed where it could not be made again.
    fn with_value(&self, sync: SecretSync, wanted: &Wanted) -> Result<(SecretSync, SecretValue), Refusal> {
        let broken = |what: &str| Refusal::new(ErrorCode::InternalError, what.to_owned());
        let value = match (wanted.policy, &wanted.value) {
            (ValuePolicy::Deterministic, _) => return Ok((sync.clone(), self.derived(&sync))),
            (ValuePolicy::Provided, Some(value)) => value.clone(),
            (ValuePolicy::Random | ValuePolicy::Provided, _) => self
                .vault
                .random()
                .ok_or_else(|| broken("this machine gives no random numbers"))?,
        };
        let sealed = self.vault.seal(&sync.id, &value);
        let sealed = sealed.ok_or_else(|| broken("the value could not be sealed"))?;
        let sync = SecretSync {
            sealed: Some(sealed),
            ..sync
        };
        Ok((sync, value))
    }

    fn derived(&self, sync: &SecretSync) -> SecretValue {
        let target = &sync.target;
        self.vault.derived(&[
            "v1",
            &sync.project,
            &target.repository,
            &target.environment,
            &target.namespace,
            &target.kubernetes_secret,
            &target.kubernetes_key,
        ])
    }

    fn value_of(&self, sync: &SecretSync) -> Option<SecretValue> {
        match sync.policy {
            ValuePolicy::Deterministic => Some(self.derived(sync)),
            ValuePolicy::Random | ValuePolicy::Provided => self.vault.open(&sync.id, sync.sealed.as_deref()?),
        }
    }

    async fn at_github(
        &self,
        sync: SecretSync,
        value: &SecretValue,
        journal: &ActJournal,
    ) -> Result<SecretSync, Refusal> {
        let put = match sync.is_at_github {
            true => Ok(()),
            false => self.github.put(&sync.target, value.clone()).await,
        };
        self.note(sync, GITHUB, put, value, journal, |next| next.is_at_github = true)
            .await
    }

    async fn at_kubernetes(
        &self,
        sync: SecretSync,
        value: &SecretValue,
        journal: &ActJournal,
    ) -> Result<SecretSync, Refusal> {
        let put = self.kubernetes.put(&sync.target, value.clone()).await;
        self.note(sync, KUBERNETES, put, value, journal, |next| {
            next.is_at_kubernetes = true;
            next.state = SyncState::Applied;
        })
        .await
    }

    /// Writes down how it went in one system, with the event of it.
    async fn note(
        &self,
        sync: SecretSync,
        system: &str,
        put: Result<(), KeeperError>,
        value: &SecretValue,
        journal: &ActJournal,
        done: impl FnOnce(&mut SecretSync),
    ) -> Result<SecretSync, Refusal> {
        let now = self.clock.now();
        let outcome = put.map_err(|error| refusal(system, &error, value));
        let change = match &outcome {
            Ok(()) => sync.after(now, done),
            Err(_) => sync.after(now, |next| next.state = SyncState::Left),
        };
        let next = change.sync.clone();
        let with = Change {
            syncs: vec![change],
            ..Change::default()
        };
        let told = journal.tell(system, Ending::of(&outcome), with).await;
        outcome?;
        told.map_err(|error| unkept(&error))?;
        Ok(next)
    }

    async fn keep(&self, changes: Vec<SyncChange>) -> Result<(), Refusal> {
        let change = Change {
            syncs: changes,
            ..Change::default()
        };
        self.record
            .commit(change)
            .await
            .map(drop)
            .map_err(|error| unkept(&error))
    }

    /// Finishes what acts left whose process is gone: a person approved them whole. What failed is left to the
    /// caller, who was told, and what lies too long is erased.
    pub(super) async fn repair_all(&self) {
        let unfinished = match self.syncs.unfinished_syncs().await {
            Ok(unfinished) => unfinished,
            Err(error) => return tracing::warn!(%error, "unfinished secrets could not be looked up"),
        };
        let now = self.clock.now();
        for KeptSync { sync, is_under_way } in unfinished {
            let is_old = now.since(sync.updated_at) >= limits::APPROVAL_USABLE_FOR;
            let mended = match (is_under_way, sync.state) {
                (true, _) | (_, SyncState::Applied | SyncState::GivenUp) => continue,
                (false, _) if is_old => {
                    let given_up = sync.after(now, |next| next.state = SyncState::GivenUp);
                    self.keep(vec![given_up]).await
                }
                (false, SyncState::Left) => continue,
                (false, SyncState::Open) => self.mend(sync).await,
            };
            if let Err(refusal) = mended {
                tracing::warn!(
                    reason = refusal.message,
                    "a secret that is in one system only could not be put right"
                );
            }
        }
    }

    async fn mend(&self, sync: SecretSync) -> Result<(), Refusal> {
        let Some(value) = self.value_of(&sync) else {
            let given_up = sync.after(self.clock.now(), |next| next.state = SyncState::GivenUp);
            return self.keep(vec![given_up]).await;
        };
        let mut sync = sync;
        if !sync.is_at_github {
            let put = self.github.put(&sync.target, value.clone()).await;
            sync = self
                .mended(sync, GITHUB, put, &value, |next| next.is_at_github = true)
                .await?;
        }
        let put = self.kubernetes.put(&sync.target, value.clone()).await;
        let whole = |next: &mut SecretSync| {
            next.is_at_kubernetes = true;
            next.state = SyncState::Applied;
        };
        self.mended(sync, KUBERNETES, put, &value, whole).await.map(drop)
    }

    async fn mended(
        &self,
        sync: SecretSync,
        system: &str,
        put: Result<(), KeeperError>,
        value: &SecretValue,
        done: impl FnOnce(&mut SecretSync),
    ) -> Result<SecretSync, Refusal> {
        let now = self.clock.now();
        if let Err(error) = put {
            let left = sync.after(now, |next| next.state = SyncState::Left);
            self.keep(vec![left]).await?;
            return Err(refusal(system, &error, value));
        }
        let change = sync.after(now, done);
        let next = change.sync.clone();
        let mended = Mended {
            correlation_id: &sync.correlation_id,
            tool: NAME,
            action: None,
            system: Some(system),
            outcome: "the value was put there after a stop of the server",
        };
        let change = Change {
            events: vec![mended.event(now, &self.ids)],
            syncs: vec![change],
            ..Change::default()
        };
        let written = self.record.commit(change).await;
        written.map_err(|error| unkept(&error))?;
        Ok(next)
    }
}

fn refusal(system: &str, error: &KeeperError, value: &SecretValue) -> Refusal {
    let (code, advice) = match error {
        KeeperError::Unreachable(_) => (
            ErrorCode::UpstreamError,
            "; the same call again goes on where this stopped",
        ),
        KeeperError::Refused(_) => (ErrorCode::UpstreamError, ""),
        KeeperError::Conflict(_) => (ErrorCode::Conflict, ""),
    };
    // Shortened when the value is out of it: half a value would not be known.
    let said = value.hidden_in(&error.to_string());
    let said: String = said.chars().take(limits::REASON_CHARS_MAX).collect();
    let message = format!("{system}: {said}{advice}");
    Refusal::new(code, message).with("system", system)
}

fn told(wanted: &Wanted, cleared: Option<&ClearedAct>, message: &str) -> Fields {
    let mut fields = answered(cleared, &wanted.target.environment, message);
    for (name, value) in [
        ("github_secret", json!(wanted.target.github_secret)),
        ("kubernetes_ref", json!(wanted.target.kubernetes_ref())),
        ("policy", json!(wanted.policy.as_str())),
        ("idempotency_key", json!(wanted.idempotency_key)),
        ("reused", json!(false)),
        ("dry_run", json!(wanted.dry_run)),
    ] {
        fields.insert(name.to_owned(), value);
    }
    fields
}
