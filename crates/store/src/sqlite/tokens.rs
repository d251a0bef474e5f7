//! Tokens in the database: made, listed, revoked, and recognised by whoever serves.
//!
//! Of a token only the SHA-256 is kept. It is 256 random bits, so nothing slower is needed to keep a
//! stolen copy of the database from telling it. Making and revoking are events, in one transaction with
//! the row.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::audit::payload::Object;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CorrelationId, CredentialId, IdSource, JobId};
use countersign_gateway::job::state::Job;
use countersign_gateway::session::credential::{self, Credential, Credentials, TokenName};
use countersign_gateway::session::{JobContext, Role};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::ledger::{Ledger, Turn};
use super::readers::Readers;
use super::{SqliteStore, trouble};
use crate::process::Process;
use crate::random;
use crate::witness::Witness;

/// How long a change of another process may go unnoticed.
pub const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A token of a job has the job's name; what ties the job's acts together is looked up with it.
const SELECT: &str = "SELECT id, role, name, tokens.created_at_ms, revoked_at_ms, run, jobs.job_id, jobs.correlation_id, \
    jobs.holder, digest FROM tokens LEFT JOIN jobs ON role = 'agent' AND name = 'job-' || jobs.job_id";

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("a token named `{0}` is in force already; revoke it first or choose another name")]
    NameTaken(TokenName),
    #[error("there is no token `{0}`; `tokens list` shows what there is")]
    Unknown(String),
    #[error("no random numbers can be had from the system")]
    Random { source: io::Error },
    #[error("the token cannot be written: {}", trouble::sentence(.source))]
    Write { source: rusqlite::Error },
    #[error("tokens cannot be read: {}", trouble::sentence(.source))]
    Read { source: rusqlite::Error },
}

/// A token that was just made: the only moment at which it can be read.
#[derive(Debug)]
pub struct Made {
    pub credential: Credential,
    pub token: String,
}

/// What revoking found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Revoked {
    Now(Credential),
    /// It was revoked before, at the time it says.
    Before(Credential),
}

impl SqliteStore {
    /// Makes a token. Blocks.
    pub fn create_token(
        &self,
        role: Role,
        name: &TokenName,
        run: Option<String>,
        by: Actor,
        ids: &IdSource,
    ) -> Result<Made, TokenError> {
        self.make_token(role, name, run, None, by, ids)
    }

    /// Makes the token of a job's agent, the only one of this job that is in force afterwards. Blocks.
    pub fn create_job_token(&self, job: &Job, by: &Actor, ids: &IdSource) -> Result<Made, TokenError> {
        let name = TokenName::of_job(&job.id);
        match self.revoke_token(name.as_str(), by.clone(), ids) {
            Ok(_) | Err(TokenError::Unknown(_)) => {}
            Err(error) => return Err(error),
        }
        let context = JobContext {
            job_id: job.id.clone(),
            correlation_id: job.correlation_id.clone(),
        };
        let run = job.run_id.clone();
        self.make_token(Role::Agent, &name, run, Some(Arc::new(context)), by.clone(), ids)
    }

    fn make_token(
        &self,
        role: Role,
        name: &TokenName,
        run: Option<String>,
        job: Option<Arc<JobContext>>,
        by: Actor,
        ids: &IdSource,
    ) -> Result<Made, TokenError> {
        let random = random::secret().map_err(|source| TokenError::Random { source })?;
        let token = credential::token(role, &random);
        let now = self.site.options.clock.now();
        let credential = Credential {
            id: ids.credential(),
            role,
            name: name.as_str().to_owned(),
            created_at: now,
            revoked_at: None,
            run,
            job,
        };
        let event = event(EventType::TokenCreated, &credential, by, now, ids);
        let digest = credential::digest(&token);
        let written = self.write_token(&event, |connection| {
            let rows = connection.execute(
                "INSERT INTO tokens (id, role, name, digest, created_at_ms, run) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT DO NOTHING",
                params![
                    credential.id.as_str(),
                    role.as_str(),
                    credential.name,
                    digest,
                    now.as_millis(),
                    credential.run,
                ],
            )?;
            Ok(rows == 1)
        })?;
        if written {
            Ok(Made { credential, token })
        } else {
            Err(TokenError::NameTaken(name.clone()))
        }
    }

    /// All tokens, the newest last. Blocks.
    pub fn tokens(&self) -> Result<Vec<Credential>, TokenError> {
        self.readers.read(all).map_err(|source| TokenError::Read { source })
    }

    /// Revokes a token, named by its id or, while it is in force, by its name. Blocks.
    pub fn revoke_token(&self, named: &str, by: Actor, ids: &IdSource) -> Result<Revoked, TokenError> {
        let found = self.find_token(named)?;
        let mut credential = found.ok_or_else(|| TokenError::Unknown(named.to_owned()))?;
        if credential.revoked_at.is_some() {
            return Ok(Revoked::Before(credential));
        }
        let now = self.site.options.clock.now();
        credential.revoked_at = Some(now);
        let event = event(EventType::TokenRevoked, &credential, by, now, ids);
        let written = self.write_token(&event, |connection| {
            let rows = connection.execute(
                "UPDATE tokens SET revoked_at_ms = ?2 WHERE id = ?1 AND revoked_at_ms IS NULL",
                params![credential.id.as_str(), now.as_millis()],
            )?;
            Ok(rows == 1)
        })?;
        // Somebody else may have been first.
        Ok(if written {
            Revoked::Now(credential)
        } else {
            Revoked::Before(self.find_token(credential.id.as_str())?.unwrap_or(credential))
        })
    }

    /// Tokens in force of jobs that no living process looks after, or that have ended. Blocks.
    pub fn stray_job_tokens(&self) -> Result<Vec<Credential>, TokenError> {
        let found = self.readers.read(|connection| {
            connection
                .prepare(&format!(
                    "{SELECT} WHERE revoked_at_ms IS NULL AND role = 'agent' AND name LIKE 'job-%'"
                ))?
                .query_map([], |row| Ok((row.get::<_, Option<String>>(8)?, read(row)?)))?
                .collect::<rusqlite::Result<Vec<_>>>()
        });
        let mut found = found.map_err(|source| TokenError::Read { source })?;
        // A job that has ended has no holder; a token that people named so before that was reserved has no job.
        found.retain(|(holder, token)| token.job.is_some() && !holder.as_deref().is_some_and(Process::is_alive));
        Ok(found.into_iter().map(|(_, token)| token).collect())
    }

    /// Knows the tokens in force, for whoever serves.
    pub fn credentials(&self) -> Tokens {
        Tokens::new(Arc::clone(&self.readers), Arc::clone(&self.tokens_changed))
    }

    fn find_token(&self, named: &str) -> Result<Option<Credential>, TokenError> {
        self.readers
            .read(|connection| {
                connection
                    .prepare(&format!(
                        "{SELECT} WHERE id = ?1 OR name = ?1
                         ORDER BY id <> ?1, revoked_at_ms IS NOT NULL, tokens.created_at_ms DESC LIMIT 1"
                    ))?
                    .query_row([named], read)
                    .optional()
            })
            .map_err(|source| TokenError::Read { source })
    }

    /// Writes a row and its event; nothing of either when `work` says that there is nothing to write.
    fn write_token(
        &self,
        event: &Draft,
        work: impl FnOnce(&Connection) -> rusqlite::Result<bool>,
    ) -> Result<bool, TokenError> {
        let failed = |source| TokenError::Write { source };
        let connection = self.site.connect().map_err(failed)?;
        let mut ledger = Ledger::over(&connection, &self.site);
        let written = ledger.begin(Turn::Wait).and_then(|mut head| {
            if !work(&connection)? {
                return Ok(None);
            }
            ledger.append(&mut head, event, &event.timestamp.to_string())?;
            ledger.commit(&head).map(Some)
        });
        match written {
            Ok(Some(signed)) => {
                self.tokens_changed.fetch_add(1, Ordering::Release);
                Witness::new(self.site.options.witness.clone()).tell(signed);
                Ok(true)
            }
            Ok(None) => {
                ledger.roll_back();
                Ok(false)
            }
            Err(source) => {
                ledger.roll_back();
                Err(failed(source))
            }
        }
    }
}

pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<Credential>> {
    connection
        .prepare(&format!("{SELECT} ORDER BY tokens.created_at_ms, tokens.rowid"))?
        .query_map([], read)?
        .collect()
}

fn event(kind: EventType, credential: &Credential, by: Actor, now: Timestamp, ids: &IdSource) -> Draft {
    let payload = Object::new()
        .text("id", credential.id.as_str())
        .text("role", credential.role.as_str())
        .text("name", &credential.name)
        .optional_text("run", credential.run.as_deref())
        .optional_text("job_id", credential.job.as_ref().map(|job| job.job_id.as_str()))
        .finish();
    // A job's token is a part of the job's story.
    let correlation = credential.job.as_ref().map(|job| job.correlation_id.clone());
    let correlation = correlation.unwrap_or_else(|| ids.correlation());
    Draft::new(ids.event(), now, correlation, by, kind, payload)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Credential> {
    let role = Role::parse(&row.get::<_, String>(1)?)
        .ok_or_else(|| rusqlite::Error::InvalidColumnType(1, "role".to_owned(), rusqlite::types::Type::Text))?;
    Ok(Credential {
        id: CredentialId::trusted(row.get::<_, String>(0)?),
        role,
        name: row.get(2)?,
        created_at: Timestamp::from_millis(row.get(3)?),
        revoked_at: row.get::<_, Option<_>>(4)?.map(Timestamp::from_millis),
        run: row.get(5)?,
        job: job(row)?,
    })
}

fn job(row: &Row<'_>) -> rusqlite::Result<Option<Arc<JobContext>>> {
    let (job_id, correlation_id): (Option<String>, Option<String>) = (row.get(6)?, row.get(7)?);
    let job = job_id.zip(correlation_id).map(|(job_id, correlation_id)| JobContext {
        job_id: JobId::trusted(job_id),
        correlation_id: CorrelationId::trusted(correlation_id),
    });
    Ok(job.map(Arc::new))
}

/// The tokens in force, as this process last saw them.
///
/// A token is recognised without touching the database. At most every quarter of a second one number
/// is read, which every change of a token counts up; only then are the tokens read anew. What this process
/// changes itself it knows at once. While that
/// cannot be read, whoever was known stays known and nobody else is let in.
pub struct Tokens {
    readers: Arc<Readers>,
    /// Counts the changes that this process made, which it knows of at once.
    changed: Arc<AtomicU64>,
    seen: Mutex<Seen>,
}

struct Seen {
    /// By the digest of the token.
    in_force: HashMap<[u8; 32], Credential>,
    version: Option<i64>,
    looked: Option<Instant>,
    /// As far as our own changes were counted then.
    changed: u64,
    in_trouble: bool,
}

impl Tokens {
    fn new(readers: Arc<Readers>, changed: Arc<AtomicU64>) -> Self {
        Self {
            readers,
            changed,
            seen: Mutex::new(Seen {
                in_force: HashMap::new(),
                version: None,
                looked: None,
                changed: 0,
                in_trouble: false,
            }),
        }
    }

    /// The tokens as they stood a moment ago at most.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let changed = self.changed.load(Ordering::Acquire);
        let is_old = seen
            .looked
            .is_none_or(|looked| now.duration_since(looked) >= LOOK_EVERY);
        if is_old || seen.changed != changed {
            seen.looked = Some(now);
            seen.changed = changed;
            self.look(&mut seen);
        }
        seen
    }

    fn look(&self, seen: &mut Seen) {
        let read = self.readers.read(|connection| {
            let version = connection
                .prepare_cached("SELECT version FROM tokens_version")?
                .query_row([], |row| row.get::<_, i64>(0))?;
            let changed = seen.version != Some(version);
            Ok((version, if changed { Some(in_force(connection)?) } else { None }))
        });
        match read {
            Ok((version, changed)) => {
                seen.in_trouble = false;
                seen.version = Some(version);
                if let Some(in_force) = changed {
                    seen.in_force = in_force;
                }
            }
            Err(error) => {
                // Said once, not four times a second.
                if !std::mem::replace(&mut seen.in_trouble, true) {
                    tracing::warn!(%error, "tokens cannot be read; nobody new is let in");
                }
            }
        }
    }
}

impl Credentials for Tokens {
    fn authenticate(&self, token: &str) -> Option<Credential> {
        self.seen().in_force.get(&credential::digest(token)).cloned()
    }

    fn is_in_force(&self, id: &CredentialId) -> bool {
        self.seen().in_force.values().any(|credential| credential.id == *id)
    }
}

fn in_force(connection: &Connection) -> rusqlite::Result<HashMap<[u8; 32], Credential>> {
    connection
        .prepare(&format!("{SELECT} WHERE revoked_at_ms IS NULL"))?
        .query_map([], |row| Ok((row.get::<_, [u8; 32]>(9)?, read(row)?)))?
        .collect()
}
