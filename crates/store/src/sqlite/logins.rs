//! Logins in the database: codes that let a browser in once, and browsers that are in.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::audit::event::{Draft, EventType};
use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::session::Caller;
use countersign_gateway::session::credential::{self, Credential};
use countersign_gateway::session::login::{BROWSER_LIVES, CODE_LIVES, Entered, Logins};
use rusqlite::{Connection, OptionalExtension, params};

use super::ledger::{Ledger, Turn};
use super::site::Site;
use super::{SqliteStore, trouble};
use crate::rows::logins::{BROWSER, CODE, Whose, event, secret, whose};
use crate::waiting::aside;

impl Logins for SqliteStore {
    fn issue(&self, person: &Caller) -> Pending<Result<String, RecordError>> {
        let whose = Whose::person(person);
        self.write_login(move |connection, now| {
            // Whoever came with a token hands on no more than that token gives.
            let token = connection
                .query_row(
                    "SELECT id FROM tokens WHERE id = ?1",
                    [whose.credential.as_str()],
                    |row| row.get(0),
                )
                .optional()?;
            let whose = Whose { token, ..whose };
            let code = secret(CODE).map_err(no_random)?;
            sweep(connection, now)?;
            insert(connection, &code, "code", &whose, now, CODE_LIVES)?;
            Ok((code, None))
        })
    }

    fn redeem(&self, code: &str) -> Pending<Result<Option<Entered>, RecordError>> {
        let code = code.to_owned();
        self.write_login(move |connection, now| {
            let digest = credential::digest(&code);
            let found = connection
                .query_row(
                    "DELETE FROM logins WHERE digest = ?1 AND kind = 'code' AND expires_at_ms > ?2 AND NOT EXISTS (
                         SELECT 1 FROM tokens WHERE id = logins.token AND revoked_at_ms IS NOT NULL)
                     RETURNING credential, role, name, token",
                    params![digest, now.as_millis()],
                    |row| whose(row),
                )
                .optional()?;
            let Some(whose) = found else {
                return Ok((None, None));
            };
            let (entered, event) = enter(connection, whose, now, "code")?;
            Ok((Some(entered), Some(event)))
        })
    }

    fn enter(&self, credential: &Credential) -> Pending<Result<Entered, RecordError>> {
        let whose = Whose::token(credential);
        self.write_login(move |connection, now| {
            let (entered, event) = enter(connection, whose, now, "token")?;
            Ok((entered, Some(event)))
        })
    }

    fn who(&self, secret: &str) -> Pending<Result<Option<Caller>, RecordError>> {
        let digest = credential::digest(secret);
        let now = self.site.options.clock.now();
        self.read(move |readers| {
            let found = readers.read(|connection| {
                connection
                    .prepare_cached(
                        "SELECT credential, role, name, token FROM logins
                         WHERE digest = ?1 AND kind = 'browser' AND expires_at_ms > ?2 AND NOT EXISTS (
                             SELECT 1 FROM tokens WHERE id = logins.token AND revoked_at_ms IS NOT NULL)",
                    )?
                    .query_row(params![digest, now.as_millis()], |row| whose(row))
                    .optional()
            });
            let found = found.map_err(|error| trouble::unavailable(&error))?;
            Ok(found.map(Whose::caller))
        })
    }

    fn leave(&self, secret: &str) -> Pending<Result<(), RecordError>> {
        let digest = credential::digest(secret);
        self.write_login(move |connection, now| {
            let found = connection
                .query_row(
                    "DELETE FROM logins WHERE digest = ?1 AND kind = 'browser' RETURNING credential, role, name, token",
                    params![digest],
                    |row| whose(row),
                )
                .optional()?;
            let event = found.map(|whose| event(EventType::AuthLogout, &whose, now, "logout"));
            Ok(((), event))
        })
    }
}

impl SqliteStore {
    /// Writes rows and their event as one durable transaction, off the async threads.
    fn write_login<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, Timestamp) -> rusqlite::Result<(T, Option<Draft>)> + Send + 'static,
    ) -> Pending<Result<T, RecordError>> {
        let site = Arc::clone(&self.site);
        aside("the writer was stopped", move || written(&site, work))
    }
}

fn written<T>(
    site: &Site,
    work: impl FnOnce(&Connection, Timestamp) -> rusqlite::Result<(T, Option<Draft>)>,
) -> Result<T, RecordError> {
    let failed = |error: rusqlite::Error| trouble::unavailable(&error);
    let connection = site.connect().map_err(failed)?;
    let mut ledger = Ledger::over(&connection, site);
    let outcome = ledger.begin(Turn::Wait).and_then(|mut head| {
        let (value, event) = work(&connection, site.options.clock.now())?;
        if let Some(event) = &event {
            ledger.append(&mut head, event, &event.timestamp.to_string())?;
        }
        Ok((value, ledger.commit(&head)?))
    });
    match outcome {
        Ok((value, signed)) => {
            site.witness.tell(signed);
            Ok(value)
        }
        Err(error) => {
            ledger.roll_back();
            Err(failed(error))
        }
    }
}

fn enter(
    connection: &Connection,
    whose: Whose,
    now: Timestamp,
    by: &'static str,
) -> rusqlite::Result<(Entered, Draft)> {
    let secret = secret(BROWSER).map_err(no_random)?;
    insert(connection, &secret, "browser", &whose, now, BROWSER_LIVES)?;
    Ok(whose.entered(secret, now, by))
}

fn insert(
    connection: &Connection,
    secret: &str,
    kind: &str,
    whose: &Whose,
    now: Timestamp,
    lives: Duration,
) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO logins (digest, kind, credential, role, name, token, created_at_ms, expires_at_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            credential::digest(secret),
            kind,
            whose.credential.as_str(),
            whose.role.as_str(),
            whose.name,
            whose.token,
            now.as_millis(),
            now.after(lives).as_millis(),
        ],
    )?;
    Ok(())
}

/// What has ended need not be kept.
fn sweep(connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    connection
        .execute("DELETE FROM logins WHERE expires_at_ms <= ?1", [now.as_millis()])
        .map(drop)
}

fn no_random(error: io::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(error.into())
}
