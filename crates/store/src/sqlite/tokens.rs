//! Tokens in the database: made, listed, revoked, and recognised by whoever serves.
//!
//! Of a token only the SHA-256 is kept. It is 256 random bits, so nothing slower is needed to keep a
//! stolen copy of the database from telling it. Making and revoking are events, in one transaction with
//! the row.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::audit::payload::Object;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CredentialId, IdSource};
use countersign_gateway::session::Role;
use countersign_gateway::session::credential::{self, Credential, Credentials, TokenName};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteStore;
use super::ledger::{Ledger, Turn};
use super::readers::Readers;
use crate::witness::Witness;
use crate::{Trouble, random};

/// How long a change of another process may go unnoticed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

const COLUMNS: &str = "id, role, name, created_at_ms, revoked_at_ms, run";

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("a token named `{0}` is in force already; revoke it first or choose another name")]
    NameTaken(TokenName),
    #[error("there is no token `{0}`; `tokens list` shows what there is")]
    Unknown(String),
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

    /// Knows the tokens in force, for whoever serves.
    pub fn credentials(&self) -> Tokens {
        Tokens::new(Arc::clone(&self.readers))
    }

    fn find_token(&self, named: &str) -> Result<Option<Credential>, TokenError> {
        self.readers
            .read(|connection| {
                connection
                    .prepare(&format!(
                        "SELECT {COLUMNS} FROM tokens WHERE id = ?1 OR name = ?1
                         ORDER BY id <> ?1, revoked_at_ms IS NOT NULL, created_at_ms DESC LIMIT 1"
                    ))?
                    .query_row([named], read)
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
        .prepare(&format!("SELECT {COLUMNS} FROM tokens ORDER BY created_at_ms, rowid"))?
        .query_map([], read)?
        .collect()
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
    })
}

/// The tokens in force, as this process last saw them.
///
/// A token is recognised without touching the database. At most every quarter of a second one number
/// is read, which every change of a token counts up; only then are the tokens read anew. While that
/// cannot be read, whoever was known stays known and nobody else is let in.
pub struct Tokens {
    readers: Arc<Readers>,
    seen: Mutex<Seen>,
}

struct Seen {
    /// By the digest of the token.
    in_force: HashMap<[u8; 32], Credential>,
    version: Option<i64>,
    looked: Option<Instant>,
    in_trouble: bool,
}

impl Tokens {
    fn new(readers: Arc<Readers>) -> Self {
        Self {
            readers,
            seen: Mutex::new(Seen {
                in_force: HashMap::new(),
                version: None,
                looked: None,
                in_trouble: false,
            }),
        }
    }

    /// The tokens as they stood a moment ago at most.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if seen
            .looked
            .is_none_or(|looked| now.duration_since(looked) >= LOOK_EVERY)
        {
            seen.looked = Some(now);
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
        .prepare(&format!(
            "SELECT {COLUMNS}, digest FROM tokens WHERE revoked_at_ms IS NULL"
        ))?
        .query_map([], |row| Ok((row.get::<_, [u8; 32]>(6)?, read(row)?)))?
        .collect()
}
