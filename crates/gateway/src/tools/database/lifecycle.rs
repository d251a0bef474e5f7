//! What is done with a database, and how a broken-off act is put right.
//!
//! ```text
//! nothing -> creating -> owned -> deleting -> nothing
//! creating: made and marked -> owned; else -> nothing
//! deleting: gone -> nothing; still there -> owned
//! ```

use serde_json::{Map, Value, json};

use super::keeping::{DatabaseChange, Hold, Kept, Made, ProjectDatabase, Seen, ServerError};
use super::{DatabaseAction, DatabaseParts, Wanted, schema};
use crate::approval::ClearedAct;
use crate::audit::Change;
use crate::audit::act::Mended;
use crate::audit::event::Draft;
use crate::error::{ErrorCode, Refusal};
use crate::ids::{CorrelationId, EventId};
use crate::tools::control::{answered, unkept};

type Fields = Map<String, Value>;

/// How a database stands on both sides.
struct Standing {
    seen: Seen,
    row: Option<ProjectDatabase>,
}

impl Standing {
    /// There, and the one that the row tells of.
    fn is_ours(&self) -> bool {
        let mark = self.row.as_ref().map(|row| row.mark.as_str());
        self.seen.exists && mark.is_some() && self.seen.mark.as_deref() == mark
    }
}

impl DatabaseParts {
    /// An answer that needs no act, or a refusal that needs no question.
    pub(super) async fn foresee(&self, wanted: &Wanted) -> Result<Option<Fields>, Refusal> {
        if wanted.action == DatabaseAction::Describe {
            return Ok(None);
        }
        let standing = self.settled(wanted).await?;
        let is_there = self.check(wanted, &standing)?;
        let is_done = is_there && wanted.action == DatabaseAction::Create;
        let message = match (is_done, wanted.dry_run) {
            (true, _) => "idempotent_replay",
            (false, true) => "dry_run",
            (false, false) => return Ok(None),
        };
        Ok(Some(told(None, wanted, &standing, message)))
    }

    pub(super) async fn perform(&self, wanted: &Wanted, cleared: &ClearedAct) -> Result<Fields, Refusal> {
        let standing = self.settled(wanted).await?;
        if wanted.action == DatabaseAction::Describe {
            return Ok(told(None, wanted, &standing, "described"));
        }
        // It may stand otherwise than when the question was asked.
        let is_there = self.check(wanted, &standing)?;
        match (wanted.action, &standing.row) {
            (DatabaseAction::Create, _) if is_there => {
                return Ok(told(Some(cleared), wanted, &standing, "idempotent_replay"));
            }
            (DatabaseAction::Delete, Some(row)) => self.delete(wanted, row, cleared).await?,
            (DatabaseAction::Create, row) => self.create(wanted, row.as_ref(), cleared).await?,
            (DatabaseAction::Delete | DatabaseAction::Describe, _) => {}
        }
        let after = self.standing(&wanted.name).await?;
        Ok(told(Some(cleared), wanted, &after, "applied"))
    }

    /// Whether the project has the database; refuses to touch what is not its own.
    fn check(&self, wanted: &Wanted, standing: &Standing) -> Result<bool, Refusal> {
        let refuse = |message: String| Err(Refusal::new(ErrorCode::PolicyDenied, message));
        let name = &wanted.name;
        if standing.seen.is_reserved {
            return refuse(format!("`{name}` belongs to the server itself and is not touched"));
        }
        match &standing.row {
            Some(row) if !row.belongs_to(&wanted.project, &wanted.environment) => refuse(format!(
                "`{name}` belongs to another project or environment; choose another name"
            )),
            Some(_) if standing.seen.exists && !standing.is_ours() => refuse(format!(
                "`{name}` is not the database that was created here under this name; it is not touched"
            )),
            Some(_) => Ok(standing.seen.exists),
            None if standing.seen.exists => {
                refuse(format!("`{name}` exists and was not created here; it is not touched"))
            }
            None if wanted.action == DatabaseAction::Delete => Err(Refusal::new(
                ErrorCode::NotFound,
                format!("the project has no database `{name}` in `{}`", wanted.environment),
            )),
            None => Ok(false),
        }
    }

    /// `before` is a database of the project's that somebody else has dropped.
    async fn create(
        &self,
        wanted: &Wanted,
        before: Option<&ProjectDatabase>,
        cleared: &ClearedAct,
    ) -> Result<(), Refusal> {
        let now = self.clock.now();
        let (act, correlation) = identity(cleared);
        let row = ProjectDatabase {
            name: wanted.name.clone(),
            project: wanted.project.clone(),
            environment: wanted.environment.clone(),
            hold: Hold::Creating,
            mark: self.ids.approval().as_str().replace('-', ""),
            version: before.map_or(1, |before| before.version + 1),
            act: act.clone(),
            correlation_id: correlation.clone(),
            created_at: now,
            updated_at: now,
        };
        let intent = DatabaseChange {
            database: row.clone(),
            from: before.map(|before| before.version),
            is_gone: false,
        };
        self.keep(intent, Vec::new()).await?;
        match self.server.create(&row.name, &row.mark).await {
            Ok(Made::Now) => {
                let owned = row.turned(Hold::Owned, &act, &correlation, self.clock.now());
                self.keep(owned, Vec::new()).await
            }
            Ok(Made::Taken) => {
                self.keep(row.gone(), Vec::new()).await?;
                let message = format!(
                    "`{}` was created by somebody else meanwhile; it is not touched",
                    row.name
                );
                Err(Refusal::new(ErrorCode::Conflict, message))
            }
            // What became of it is found out by the next call, or at the next start.
            Err(error) => Err(upstream(&error)),
        }
    }

    async fn delete(&self, wanted: &Wanted, row: &ProjectDatabase, cleared: &ClearedAct) -> Result<(), Refusal> {
        let (act, correlation) = identity(cleared);
        let intent = row.turned(Hold::Deleting, &act, &correlation, self.clock.now());
        let row = intent.database.clone();
        self.keep(intent, Vec::new()).await?;
        if let Err(error) = self.server.delete(&wanted.name, &row.mark).await {
            let seen = match self.server.finished(&row.mark).await {
                Ok(()) => self.server.look(&wanted.name).await,
                // Found out by the next call, or at the next start.
                Err(error) => Err(error),
            };
            if seen.is_ok_and(|seen| seen.exists) {
                let back = row.turned(Hold::Owned, &act, &correlation, self.clock.now());
                self.keep(back, Vec::new()).await?;
            }
            return Err(upstream(&error));
        }
        self.keep(row.gone(), Vec::new()).await
    }

    /// How a database stands, once what an earlier act left half done is put right.
    async fn settled(&self, wanted: &Wanted) -> Result<Standing, Refusal> {
        let kept = self.databases.find_database(&wanted.name).await;
        let kept = kept.map_err(|error| unkept(&error))?;
        if let Some(kept) = kept.filter(|kept| kept.database.hold != Hold::Owned)
            && wanted.action != DatabaseAction::Describe
        {
            if kept.is_under_way {
                let message = format!(
                    "`{}` is being created or deleted at this moment; call again",
                    wanted.name
                );
                return Err(Refusal::new(ErrorCode::Conflict, message));
            }
            self.mend(&kept.database).await?;
        }
        self.standing(&wanted.name).await
    }

    async fn standing(&self, name: &str) -> Result<Standing, Refusal> {
        let seen = self.server.look(name).await.map_err(|error| upstream(&error))?;
        let kept = self.databases.find_database(name).await;
        let kept = kept.map_err(|error| unkept(&error))?;
        Ok(Standing {
            seen,
            row: kept.map(|kept| kept.database),
        })
    }

    /// Puts right what acts left whose process is gone.
    pub(super) async fn repair_all(&self) {
        let unsettled = match self.databases.unsettled_databases().await {
            Ok(unsettled) => unsettled,
            Err(error) => return tracing::warn!(%error, "unfinished databases could not be looked up"),
        };
        for Kept { database, is_under_way } in unsettled {
            if is_under_way {
                continue;
            }
            if let Err(refusal) = self.mend(&database).await {
                let reason = refusal.message;
                tracing::warn!(
                    database = database.name,
                    reason,
                    "an unfinished database could not be put right"
                );
            }
        }
    }

    /// Finishes or takes back what an act left half done, whichever is nearer to how it stands.
    async fn mend(&self, row: &ProjectDatabase) -> Result<(), Refusal> {
        let finished = self.server.finished(&row.mark).await;
        finished.map_err(|error| upstream(&error))?;
        let seen = self.server.look(&row.name).await.map_err(|error| upstream(&error))?;
        let is_ours = seen.exists && seen.mark.as_deref() == Some(row.mark.as_str());
        let owned = || row.turned(Hold::Owned, &row.act, &row.correlation_id, self.clock.now());
        let (change, outcome) = match (row.hold, is_ours) {
            (Hold::Owned, _) => return Ok(()),
            (Hold::Creating, true) => (owned(), "the database had been created and is the project's"),
            (Hold::Creating, false) => {
                let cleared = self.server.clear(&row.mark).await;
                cleared.map_err(|error| upstream(&error))?;
                (row.gone(), "the database had not been created; nothing is left of it")
            }
            (Hold::Deleting, true) => (owned(), "the database had not been deleted and stays the project's"),
            (Hold::Deleting, false) => (row.gone(), "the database had been deleted"),
        };
        let action = match row.hold {
            Hold::Deleting => DatabaseAction::Delete,
            Hold::Creating | Hold::Owned => DatabaseAction::Create,
        };
        let mended = Mended {
            correlation_id: &row.correlation_id,
            tool: schema::NAME,
            action: Some(action.as_str()),
            system: None,
            outcome,
        };
        let event = mended.event(self.clock.now(), &self.ids);
        match self.keep(change, vec![event]).await {
            // Another process was first with the same.
            Err(refusal) if refusal.code == ErrorCode::Conflict => Ok(()),
            outcome => outcome,
        }
    }

    async fn keep(&self, change: DatabaseChange, events: Vec<Draft>) -> Result<(), Refusal> {
        let change = Change {
            events,
            databases: vec![change],
            ..Change::default()
        };
        self.record
            .commit(change)
            .await
            .map(drop)
            .map_err(|error| unkept(&error))
    }
}

/// The act that rows are written for.
fn identity(cleared: &ClearedAct) -> (EventId, CorrelationId) {
    let journal = cleared
        .journal()
        .expect("an act that changes something is opened first");
    (journal.act().id.clone(), journal.act().correlation_id.clone())
}

fn told(cleared: Option<&ClearedAct>, wanted: &Wanted, standing: &Standing, message: &str) -> Fields {
    let mut fields = answered(cleared, &wanted.environment, message);
    let row = standing.row.as_ref();
    let is_ours = row.is_some_and(|row| row.belongs_to(&wanted.project, &wanted.environment));
    // Whose a database is, is not told to others.
    let owner = row.filter(|_| is_ours).map(|row| row.project.as_str());
    for (name, value) in [
        ("action", json!(wanted.action.as_str())),
        ("database_name", json!(wanted.name)),
        ("applied", json!(message == "applied")),
        ("exists", json!(standing.seen.exists)),
        (
            "owned_by_project",
            json!(is_ours && (!standing.seen.exists || standing.is_ours())),
        ),
        ("owner_project_id", json!(owner)),
        ("dry_run", json!(wanted.dry_run)),
    ] {
        fields.insert(name.to_owned(), value);
    }
    fields
}

fn upstream(error: &ServerError) -> Refusal {
    Refusal::new(ErrorCode::UpstreamError, format!("the database server: {error}"))
}
