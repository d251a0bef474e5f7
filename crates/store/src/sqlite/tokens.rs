//! Tokens in the database: made, listed, revoked, and recognised by whoever serves.
//!
//! Of a token only the SHA-256 is kept. It is 256 random bits, or signed with a secret of the state directory
//! where it is a run's ([`run_token`]), so nothing slower is needed to keep a stolen copy of the database from
//! telling it. Making and revoking are events, in one transaction with the row.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::ids::{CredentialId, IdSource, RunId};
use countersign_gateway::job::state::Job;
use countersign_gateway::session::Role;
use countersign_gateway::session::credential::{self, Credential, Credentials, TokenName};
use rusqlite::{Connection, OptionalExtension, params};

use super::ledger::{Ledger, Turn};
use super::readers::Readers;
use super::{SqliteStore, runs};
use crate::process::Process;
use crate::rows::Cells as _;
use crate::rows::tokens::{
    self, DIGEST, HOLDER, InForce, Known, SELECT, any_of_job, event, is_in_force, made, recognise, run_under_way, token,
};
use crate::{Trouble, run_token};

/// How long a token that another process revoked may still be taken for one in force.
pub const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Time between two looks for tokens that nobody knows, so that whoever guesses does not keep the database busy.
const LOOK_FOR_NEW: Duration = Duration::from_millis(5);

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("a token named `{0}` is in force already; revoke it first or choose another name")]
    NameTaken(TokenName),
    #[error("there is no token `{0}`; `tokens list` shows what there is")]
    Unknown(String),
    #[error("there is no run `{0}`; `runs list` shows what there is")]
    UnknownRun(String),
    #[error("the run `{0}` has ended, and with it all its tokens")]
    RunEnded(RunId),
    #[error("no random numbers can be had from the system")]
    Random { source: io::Error },
    #[error("the token cannot be written: {source}")]
    Write { source: Trouble },
    #[error("tokens cannot be read: {source}")]
    Read { source: Trouble },
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
        let now = self.site.options.clock.now();
        let credential = Credential {
            run,
            ..tokens::new(role, name, now, ids)
        };
        self.keep_token(name, made(credential)?, by, ids)
    }

    /// Makes the token of a job's agent, the only one of this job that is in force afterwards. Blocks.
    pub fn create_job_token(&self, job: &Job, by: &Actor, ids: &IdSource) -> Result<Made, TokenError> {
        let name = TokenName::of_job(&job.id);
        match self.revoke_token(name.as_str(), by.clone(), ids) {
            Ok(_) | Err(TokenError::Unknown(_)) => {}
            Err(error) => return Err(error),
        }
        let now = self.site.options.clock.now();
        let credential = tokens::of_job(job, &name, now, ids);
        self.keep_token(&name, made(credential)?, by.clone(), ids)
    }

    /// Makes a token for the agent of a run: it says whose it is, ends by itself and with its run. Blocks.
    pub fn create_run_token(
        &self,
        name: &TokenName,
        run: &str,
        lives: Duration,
        by: Actor,
        ids: &IdSource,
    ) -> Result<Made, TokenError> {
        let found = self.readers.read(|connection| runs::find(connection, run));
        let found = found.map_err(|source| TokenError::Read { source: source.into() })?;
        let run = run_under_way(found, run)?;
        let key = self.shared_key(run_token::PURPOSE);
        let made = run_token::make(&key, &run, name, (self.site.options.clock.now(), lives), ids);
        self.keep_token(name, made, by, ids)
    }

    fn keep_token(&self, name: &TokenName, made: Made, by: Actor, ids: &IdSource) -> Result<Made, TokenError> {
        let credential = &made.credential;
        let event = event(EventType::TokenCreated, credential, by, credential.created_at, ids);
        let digest = credential::digest(&made.token);
        let written = self.write_token(&event, |connection| {
            let rows = connection.execute(
                "INSERT INTO tokens (id, role, name, digest, created_at_ms, run, expires_at_ms)
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
                     WHERE ?6 IS NULL OR NOT EXISTS
                         (SELECT 1 FROM runs WHERE run_id = ?6 AND finished_at_ms IS NOT NULL)
                 ON CONFLICT DO NOTHING",
                params![
                    credential.id.as_str(),
                    credential.role.as_str(),
                    credential.name,
                    digest,
                    credential.created_at.as_millis(),
                    credential.run,
                    credential.expires_at.map(Timestamp::as_millis),
                ],
            )?;
            Ok(rows == 1)
        })?;
        if written {
            Ok(made)
        } else {
            Err(TokenError::NameTaken(name.clone()))
        }
    }

    /// All tokens, the newest last. Blocks.
    pub fn tokens(&self) -> Result<Vec<Credential>, TokenError> {
        self.readers
            .read(all)
            .map_err(|source| TokenError::Read { source: source.into() })
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
                .query_map([], |row| Ok((row.get::<_, Option<String>>(HOLDER)?, token(row)?)))?
                .collect::<rusqlite::Result<Vec<_>>>()
        });
        let mut found = found.map_err(|source| TokenError::Read { source: source.into() })?;
        // A job that has ended has no holder; a token that people named so before that was reserved has no job.
        found.retain(|(holder, token)| token.job.is_some() && !holder.as_deref().is_some_and(Process::is_alive));
        Ok(found.into_iter().map(|(_, token)| token).collect())
    }

    /// Knows the tokens in force, for whoever serves.
    pub fn credentials(&self) -> Tokens {
        Tokens {
            readers: Arc::clone(&self.readers),
            key: self.shared_key(run_token::PURPOSE),
            clock: self.site.options.clock.clone(),
            changed: Arc::clone(&self.tokens_changed),
            seen: Mutex::new(Seen {
                known: Known::default(),
                looked: None,
                changed: 0,
            }),
        }
    }

    fn find_token(&self, named: &str) -> Result<Option<Credential>, TokenError> {
        self.readers
            .read(|connection| {
                connection
                    .prepare(&format!(
                        "{SELECT} WHERE id = ?1 OR name = ?1
                         ORDER BY id <> ?1, revoked_at_ms IS NOT NULL, tokens.created_at_ms DESC LIMIT 1"
                    ))?
                    .query_row([named], |row| token(row))
                    .optional()
            })
            .map_err(|source| TokenError::Read { source: source.into() })
    }

    /// Writes a row and its event; nothing of either when `work` says that there is nothing to write.
    fn write_token(
        &self,
        event: &Draft,
        work: impl FnOnce(&Connection) -> rusqlite::Result<bool>,
    ) -> Result<bool, TokenError> {
        let failed = |source: rusqlite::Error| TokenError::Write { source: source.into() };
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
                self.site.witness.tell(signed);
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
        .query_map([], |row| token(row))?
        .collect()
}

/// The tokens in force, as this process last saw them.
///
/// A token is recognised without touching the database. Every quarter of a second, and before a token is refused, one
/// number is read, which every change of a token counts up; only then are the tokens read anew. What this process
/// changes itself it knows at once. While that cannot be read, whoever was known stays known and nobody else is let in.
pub struct Tokens {
    readers: Arc<Readers>,
    /// What tokens of runs are signed with.
    key: [u8; 32],
    clock: Clock,
    /// Counts the changes that this process made, which it knows of at once.
    changed: Arc<AtomicU64>,
    seen: Mutex<Seen>,
}

struct Seen {
    known: Known,
    looked: Option<Instant>,
    /// As far as our own changes were counted then.
    changed: u64,
}

impl Tokens {
    /// The tokens as they stood at most so long ago.
    fn seen(&self, age_max: Duration) -> MutexGuard<'_, Seen> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let changed = self.changed.load(Ordering::Acquire);
        let is_old = seen.looked.is_none_or(|looked| now.duration_since(looked) >= age_max);
        if is_old || seen.changed != changed {
            seen.looked = Some(now);
            seen.changed = changed;
            self.look(&mut seen.known);
        }
        seen
    }

    fn look(&self, known: &mut Known) {
        let read = self.readers.read(|connection| {
            let version = connection
                .prepare_cached("SELECT version FROM tokens_version")?
                .query_row([], |row| row.get::<_, i64>(0))?;
            let changed = known.version != Some(version);
            Ok((version, if changed { Some(in_force(connection)?) } else { None }))
        });
        known.learn(read);
    }
}

impl Credentials for Tokens {
    fn authenticate(&self, token: &str) -> Option<Credential> {
        let known = |age_max| recognise(&self.seen(age_max).known.in_force, &self.key, token, self.clock.now());
        known(LOOK_EVERY).or_else(|| known(LOOK_FOR_NEW))
    }

    fn is_in_force(&self, id: &CredentialId) -> bool {
        is_in_force(&self.seen(LOOK_EVERY).known.in_force, id, self.clock.now())
    }

    fn any_of_job(&self) -> bool {
        any_of_job(&self.seen(LOOK_EVERY).known.in_force)
    }
}

/// Those that are not revoked. One of a run that is unknown here, or has ended, counts for nothing.
fn in_force(connection: &Connection) -> rusqlite::Result<InForce> {
    let found = connection
        .prepare(&format!("{SELECT} WHERE revoked_at_ms IS NULL"))?
        .query_map([], |row| Ok((row.bytes(DIGEST)?, token(row)?)))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut in_force = InForce::with_capacity(found.len());
    for (digest, mut credential) in found {
        if let Some(run) = &credential.run {
            let Some(run) = runs::find(connection, run)?.filter(|run| !run.has_ended()) else {
                continue;
            };
            credential.run_context = Some(Arc::new(run.context()));
        }
        in_force.insert(digest, credential);
    }
    Ok(in_force)
}
