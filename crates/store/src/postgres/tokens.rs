//! Tokens in the database: made, listed, revoked, and recognised by whoever serves.
//!
//! Of a token only the SHA-256 is kept. It is 256 random bits, so nothing slower is needed to keep a
//! stolen copy of the database from telling it. Making and revoking are events, in one transaction with
//! the row.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::audit::payload::Object;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CredentialId, IdSource};
use countersign_gateway::session::Role;
use countersign_gateway::session::credential::{self, Credential, Credentials, TokenName};
use tokio_postgres::Row;

use super::absent::absent;
use super::ledger::Ledger;
use super::link::Link;
use super::readers::Readers;
use super::trouble::Trouble;
use super::{PgStore, sessions, writer};
use crate::random;
use crate::sqlite::tokens::{Made, Revoked, TokenError};
use crate::witness::Witness;

/// How long a change of another process may go unnoticed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

const COLUMNS: &str = "id, role, name, created_at_ms, revoked_at_ms, run";

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
        if run.is_some() {
            return Err(absent("tokens of runs"));
        }
        let random = random::secret().map_err(|source| TokenError::Random { source })?;
        let token = credential::token(role, &random);
        let now = self.site.options.clock.now();
        let credential = Credential {
            id: ids.credential(),
            role,
            name: name.as_str().to_owned(),
            created_at: now,
            revoked_at: None,
            run: None,
            expires_at: None,
            run_context: None,
            job: None,
        };
        let event = event(EventType::TokenCreated, &credential, by, now, ids);
        let digest = credential::digest(&token);
        let written = self.write_token(&event, |link| {
            let rows = link.execute(
                "INSERT INTO tokens (id, role, name, digest, created_at_ms, run) VALUES ($1, $2, $3, $4, $5, $6)
                 ON CONFLICT DO NOTHING",
                &[
                    &credential.id.as_str(),
                    &role.as_str(),
                    &credential.name,
                    &digest.as_slice(),
                    &now.as_millis(),
                    &credential.run,
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
        Tokens::new(&self.readers)
    }

    fn find_token(&self, named: &str) -> Result<Option<Credential>, TokenError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM tokens WHERE id = $1 OR name = $1
             ORDER BY id <> $1, revoked_at_ms IS NOT NULL, created_at_ms DESC, arrival DESC LIMIT 1"
        );
        self.readers
            .read(|link| link.first(&sql, &[&named], read))
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
                Witness::new(self.site.options.witness.clone()).tell(signed);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(source) => Err(TokenError::Write { source: source.into() }),
        }
    }
}

fn unread(source: Trouble) -> TokenError {
    TokenError::Read { source: source.into() }
}

pub(super) fn all(link: &Link) -> Result<Vec<Credential>, Trouble> {
    let sql = format!("SELECT {COLUMNS} FROM tokens ORDER BY created_at_ms, arrival");
    link.all(&sql, &[], read)
}

fn event(kind: EventType, credential: &Credential, by: Actor, now: Timestamp, ids: &IdSource) -> Draft {
    let payload = Object::new()
        .text("id", credential.id.as_str())
        .text("role", credential.role.as_str())
        .text("name", &credential.name)
        .optional_text("run", credential.run.as_deref())
        .finish();
    Draft::new(ids.event(), now, ids.correlation(), by, kind, payload)
}

fn read(row: &Row) -> Result<Credential, Trouble> {
    let role =
        Role::parse(&row.try_get::<_, String>(1)?).ok_or_else(|| Trouble::damaged(1, "a role that is not known"))?;
    Ok(Credential {
        id: CredentialId::trusted(row.try_get::<_, String>(0)?),
        role,
        name: row.try_get(2)?,
        created_at: Timestamp::from_millis(row.try_get(3)?),
        revoked_at: row.try_get::<_, Option<_>>(4)?.map(Timestamp::from_millis),
        run: row.try_get(5)?,
        expires_at: None,
        run_context: None,
        job: None,
    })
}

/// The tokens in force, as this process last saw them.
///
/// A token is recognised without touching the database, whose answer may be a network away. Every quarter of a second
/// a thread reads one number, which every change of a token counts up; only then are the tokens read anew. While that
/// cannot be read, whoever was known stays known and nobody else is let in.
pub struct Tokens {
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// By the digest of the token.
    in_force: HashMap<[u8; 32], Credential>,
    version: Option<i64>,
    in_trouble: bool,
}

impl Tokens {
    pub(super) fn new(readers: &Arc<Readers>) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        look(readers, &seen);
        let (watched, readers) = (Arc::downgrade(&seen), Arc::downgrade(readers));
        let watching = thread::Builder::new()
            .name("record-tokens".to_owned())
            .spawn(move || watch(&readers, &watched));
        if let Err(error) = watching {
            tracing::error!(%error, "changes of tokens will not be noticed");
        }
        Self { seen }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks again and again, while there is somebody to look for.
fn watch(readers: &Weak<Readers>, seen: &Weak<Mutex<Seen>>) {
    loop {
        thread::sleep(LOOK_EVERY);
        let (Some(readers), Some(seen)) = (readers.upgrade(), seen.upgrade()) else {
            return;
        };
        look(&readers, &seen);
    }
}

fn look(readers: &Readers, seen: &Mutex<Seen>) {
    let lock = || seen.lock().unwrap_or_else(PoisonError::into_inner);
    let known = lock().version;
    let read = readers.read_at_once(|link| {
        let version = link
            .query_one("SELECT version FROM tokens_version", &[])?
            .try_get::<_, i64>(0)?;
        let changed = known != Some(version);
        Ok((version, if changed { Some(in_force(link)?) } else { None }))
    });
    let mut seen = lock();
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

impl Credentials for Tokens {
    fn authenticate(&self, token: &str) -> Option<Credential> {
        self.seen().in_force.get(&credential::digest(token)).cloned()
    }

    fn is_in_force(&self, id: &CredentialId) -> bool {
        self.seen().in_force.values().any(|credential| credential.id == *id)
    }
}

fn in_force(link: &Link) -> Result<HashMap<[u8; 32], Credential>, Trouble> {
    let sql = format!("SELECT {COLUMNS}, digest FROM tokens WHERE revoked_at_ms IS NULL");
    let found = link.all(&sql, &[], |row| Ok((sessions::bytes(row.try_get(6)?, 6)?, read(row)?)))?;
    Ok(found.into_iter().collect())
}
