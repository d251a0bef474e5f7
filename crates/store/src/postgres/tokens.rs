//! Tokens in the database: made, listed, revoked, and recognised by whoever serves.
//!
//! Of a token only the SHA-256 is kept. It is 256 random bits, or signed with the nodes' common secret where it is a
//! run's ([`run_token`]), so nothing slower is needed to keep a stolen copy of the database from telling it. Making and
//! revoking are events, in one transaction with the row.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::ids::{CredentialId, IdSource};
use countersign_gateway::job::state::Job;
use countersign_gateway::session::Role;
use countersign_gateway::session::credential::{self, Credential, Credentials, TokenName};

use super::ledger::Ledger;
use super::link::Link;
use super::readers::Readers;
use super::trouble::Trouble;
use super::{PgStore, runs, writer};
use crate::rows::Cells as _;
use crate::rows::tokens::{
    self, DIGEST, HOLDER, InForce, Known, SELECT, any_of_job, event, is_in_force, made, recognise, run_under_way, token,
};
use crate::run_token;
use crate::sqlite::tokens::{Made, Revoked, TokenError};

/// How long a change of another process may go unnoticed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

const LOCK_RUN: &str = "SELECT 1 FROM runs WHERE run_id = $1 FOR SHARE";
const INSERT: &str = "INSERT INTO tokens (id, role, name, digest, created_at_ms, run, expires_at_ms)
     SELECT $1, $2, $3, $4, $5, $6, $7
         WHERE $6::text IS NULL OR NOT EXISTS
             (SELECT 1 FROM runs WHERE run_id = $6 AND finished_at_ms IS NOT NULL)
     ON CONFLICT DO NOTHING";

impl PgStore {
    /// Makes a token. Blocks.
    pub fn create_token(
        &self,
        role: Role,
        name: &TokenName,
        run: Option<String>,
        by: Actor,
        ids: &IdSource,
    ) -> Result<Made, TokenError> {
        let credential = Credential {
            run,
            ..tokens::new(role, name, self.site.options.clock.now(), ids)
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
        let credential = tokens::of_job(job, &name, self.site.options.clock.now(), ids);
        self.keep_token(&name, made(credential)?, by.clone(), ids)
    }

    /// Makes a token for the agent of a run: it says whose it is, ends by itself and with its run. Every node knows
    /// it. Blocks.
    pub fn create_run_token(
        &self,
        name: &TokenName,
        run: &str,
        lives: Duration,
        by: Actor,
        ids: &IdSource,
    ) -> Result<Made, TokenError> {
        let found = self.readers.read(|link| runs::find(link, run)).map_err(unread)?;
        let run = run_under_way(found, run)?;
        let key = self.shared_key(run_token::PURPOSE);
        let made = run_token::make(&key, &run, name, (self.site.options.clock.now(), lives), ids);
        self.keep_token(name, made, by, ids)
    }

    fn keep_token(&self, name: &TokenName, made: Made, by: Actor, ids: &IdSource) -> Result<Made, TokenError> {
        let credential = &made.credential;
        let event = event(EventType::TokenCreated, credential, by, credential.created_at, ids);
        let digest = credential::digest(&made.token);
        let written = self.write_token(&event, |link| {
            // A run that ends at this moment ends before or after this, and then with this token.
            link.exists(LOCK_RUN, &[&credential.run])?;
            let rows = link.execute(
                INSERT,
                &[
                    &credential.id.as_str(),
                    &credential.role.as_str(),
                    &credential.name,
                    &digest.as_slice(),
                    &credential.created_at.as_millis(),
                    &credential.run,
                    &credential.expires_at.map(Timestamp::as_millis),
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

    /// Tokens in force of jobs that no living process looks after, or that have ended. Blocks.
    pub fn stray_job_tokens(&self) -> Result<Vec<Credential>, TokenError> {
        let sql = format!("{SELECT} WHERE revoked_at_ms IS NULL AND role = 'agent' AND name LIKE 'job-%'");
        let found = self.readers.read(|link| {
            let mut stray = Vec::new();
            for row in link.query(&sql, &[])? {
                // A job that has ended has no holder; a token that people named so before that was reserved has no job.
                let is_held = match row.try_get::<_, Option<String>>(HOLDER)? {
                    Some(holder) => self.site.node.is_alive(link, &holder)?,
                    None => false,
                };
                let token = token(&row)?;
                if token.job.is_some() && !is_held {
                    stray.push(token);
                }
            }
            Ok(stray)
        });
        found.map_err(unread)
    }

    /// All tokens, the newest last. Blocks.
    pub fn tokens(&self) -> Result<Vec<Credential>, TokenError> {
        self.readers.read(all).map_err(unread)
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
        let written = self.write_token(&event, |link| {
            let rows = link.execute(
                "UPDATE tokens SET revoked_at_ms = $2 WHERE id = $1 AND revoked_at_ms IS NULL",
                &[&credential.id.as_str(), &now.as_millis()],
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

    /// Knows the tokens in force, for whoever serves.
    pub fn credentials(&self) -> Tokens {
        let seen = Tokens::new(&self.readers, self.shared_key(run_token::PURPOSE));
        let mut watched = self.tokens_seen.lock().unwrap_or_else(PoisonError::into_inner);
        watched.push(Arc::downgrade(&seen.seen));
        seen
    }

    fn find_token(&self, named: &str) -> Result<Option<Credential>, TokenError> {
        let sql = format!(
            "{SELECT} WHERE id = $1 OR name = $1
             ORDER BY id <> $1, revoked_at_ms IS NOT NULL, tokens.created_at_ms DESC, tokens.arrival DESC LIMIT 1"
        );
        self.readers
            .read(|link| link.first(&sql, &[&named], token))
            .map_err(unread)
    }

    /// Writes a row and its event; nothing of either when `work` says that there is nothing to write.
    fn write_token(
        &self,
        event: &Draft,
        work: impl FnOnce(&Link) -> Result<bool, Trouble>,
    ) -> Result<bool, TokenError> {
        let written = self.site.connect().and_then(|link| {
            let mut ledger = Ledger::begin(&link, &self.site)?;
            if !work(&link)? {
                ledger.roll_back();
                return Ok(None);
            }
            ledger.append(event, &event.timestamp.to_string())?;
            writer::commit(ledger).map(Some)
        });
        match written {
            Ok(Some(signed)) => {
                self.site.witness.tell(signed);
                self.look_at_tokens();
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(source) => Err(TokenError::Write { source: source.into() }),
        }
    }

    /// What this process changes itself it knows at once: a job's agent comes back sooner than the next look.
    fn look_at_tokens(&self) {
        let mut watched = self.tokens_seen.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|seen| seen.strong_count() > 0);
        let watched: Vec<_> = watched.iter().filter_map(Weak::upgrade).collect();
        watched.iter().for_each(|seen| look(&self.readers, seen));
    }
}

fn unread(source: Trouble) -> TokenError {
    TokenError::Read { source: source.into() }
}

pub(super) fn all(link: &Link) -> Result<Vec<Credential>, Trouble> {
    let sql = format!("{SELECT} ORDER BY tokens.created_at_ms, tokens.arrival");
    link.all(&sql, &[], token)
}

/// The tokens in force, as this process last saw them.
///
/// A token is recognised without touching the database, whose answer may be a network away. Every quarter of a second
/// a thread reads one number, which every change of a token counts up; only then are the tokens read anew. What this
/// process changes itself it knows at once. While that cannot be read, whoever was known stays known and nobody else is let in.
pub struct Tokens {
    /// What tokens of runs are signed with.
    key: [u8; 32],
    clock: Clock,
    seen: Arc<Mutex<Known>>,
}

impl Tokens {
    fn new(readers: &Arc<Readers>, key: [u8; 32]) -> Self {
        let clock = readers.site.options.clock.clone();
        let seen = Arc::new(Mutex::new(Known::default()));
        look(readers, &seen);
        let (watched, readers) = (Arc::downgrade(&seen), Arc::downgrade(readers));
        let watching = thread::Builder::new()
            .name("record-tokens".to_owned())
            .spawn(move || watch(&readers, &watched));
        if let Err(error) = watching {
            tracing::error!(%error, "changes of tokens will not be noticed");
        }
        Self { key, clock, seen }
    }

    fn seen(&self) -> MutexGuard<'_, Known> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks again and again, while there is somebody to look for.
fn watch(readers: &Weak<Readers>, seen: &Weak<Mutex<Known>>) {
    loop {
        thread::sleep(LOOK_EVERY);
        let (Some(readers), Some(seen)) = (readers.upgrade(), seen.upgrade()) else {
            return;
        };
        look(&readers, &seen);
    }
}

fn look(readers: &Readers, seen: &Mutex<Known>) {
    let lock = || seen.lock().unwrap_or_else(PoisonError::into_inner);
    let known = lock().version;
    let read = readers.read_at_once(|link| {
        let version = link
            .query_one("SELECT version FROM tokens_version", &[])?
            .try_get::<_, i64>(0)?;
        let changed = known != Some(version);
        Ok((version, if changed { Some(in_force(link)?) } else { None }))
    });
    lock().learn(read);
}

impl Credentials for Tokens {
    fn authenticate(&self, token: &str) -> Option<Credential> {
        recognise(&self.seen().in_force, &self.key, token, self.clock.now())
    }

    fn is_in_force(&self, id: &CredentialId) -> bool {
        is_in_force(&self.seen().in_force, id, self.clock.now())
    }

    fn any_of_job(&self) -> bool {
        any_of_job(&self.seen().in_force)
    }
}

/// Those that are not revoked. One of a run that is unknown here, or has ended, counts for nothing.
fn in_force(link: &Link) -> Result<InForce, Trouble> {
    let sql = format!("{SELECT} WHERE revoked_at_ms IS NULL");
    let found = link.all(&sql, &[], |row| Ok((row.bytes(DIGEST)?, token(row)?)))?;
    let runs = runs::under_way(link)?;
    let mut in_force = InForce::with_capacity(found.len());
    for (digest, mut credential) in found {
        if let Some(run) = &credential.run {
            let Some(run) = runs.get(run) else { continue };
            credential.run_context = Some(Arc::new(run.context()));
        }
        in_force.insert(digest, credential);
    }
    Ok(in_force)
}
