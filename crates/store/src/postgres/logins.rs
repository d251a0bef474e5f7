//! Logins in the database: codes that let a browser in once, and browsers that are in.

use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::audit::event::{Draft, EventType};
use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::session::Caller;
use countersign_gateway::session::credential::{self, Credential};
use countersign_gateway::session::login::{BROWSER_LIVES, CODE_LIVES, Entered, Logins};

use super::ledger::Ledger;
use super::link::Link;
use super::site::Site;
use super::trouble::{self, Trouble};
use super::{PgStore, writer};
use crate::rows::logins::{BROWSER, CODE, Whose, event, secret, whose};
use crate::waiting::aside;

impl Logins for PgStore {
    fn issue(&self, person: &Caller) -> Pending<Result<String, RecordError>> {
        let whose = Whose::person(person);
        self.write_login(move |link, now| {
            // Whoever came with a token hands on no more than that token gives.
            let sql = "SELECT id FROM tokens WHERE id = $1";
            let token = link.first(sql, &[&whose.credential.as_str()], |row| Ok(row.try_get(0)?))?;
            let whose = Whose { token, ..whose };
            let code = secret(CODE).map_err(Trouble::Random)?;
            sweep(link, now)?;
            insert(link, &code, "code", &whose, now, CODE_LIVES)?;
            Ok((code, None))
        })
    }

    fn redeem(&self, code: &str) -> Pending<Result<Option<Entered>, RecordError>> {
        let code = code.to_owned();
        self.write_login(move |link, now| {
            let digest = credential::digest(&code);
            let found = link.first(
                "DELETE FROM logins WHERE digest = $1 AND kind = 'code' AND expires_at_ms > $2 AND NOT EXISTS (
                     SELECT 1 FROM tokens WHERE id = logins.token AND revoked_at_ms IS NOT NULL)
                 RETURNING credential, role, name, token",
                &[&digest.as_slice(), &now.as_millis()],
                whose,
            )?;
            let Some(whose) = found else {
                return Ok((None, None));
            };
            let (entered, event) = enter(link, whose, now, "code")?;
            Ok((Some(entered), Some(event)))
        })
    }

    fn enter(&self, credential: &Credential) -> Pending<Result<Entered, RecordError>> {
        let whose = Whose::token(credential);
        self.write_login(move |link, now| {
            let (entered, event) = enter(link, whose, now, "token")?;
            Ok((entered, Some(event)))
        })
    }

    fn who(&self, secret: &str) -> Pending<Result<Option<Caller>, RecordError>> {
        let digest = credential::digest(secret);
        let now = self.site.options.clock.now();
        self.read(move |readers| {
            let found = readers.read(|link| {
                link.first(
                    "SELECT credential, role, name, token FROM logins
                     WHERE digest = $1 AND kind = 'browser' AND expires_at_ms > $2 AND NOT EXISTS (
                         SELECT 1 FROM tokens WHERE id = logins.token AND revoked_at_ms IS NOT NULL)",
                    &[&digest.as_slice(), &now.as_millis()],
                    whose,
                )
            });
            let found = found.map_err(|error| trouble::unavailable(&error))?;
            Ok(found.map(Whose::caller))
        })
    }

    fn leave(&self, secret: &str) -> Pending<Result<(), RecordError>> {
        let digest = credential::digest(secret);
        self.write_login(move |link, now| {
            let sql =
                "DELETE FROM logins WHERE digest = $1 AND kind = 'browser' RETURNING credential, role, name, token";
            let found = link.first(sql, &[&digest.as_slice()], whose)?;
            let event = found.map(|whose| event(EventType::AuthLogout, &whose, now, "logout"));
            Ok(((), event))
        })
    }
}

impl PgStore {
    /// Writes rows and their event as one durable transaction, off the async threads.
    fn write_login<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Link, Timestamp) -> Result<(T, Option<Draft>), Trouble> + Send + 'static,
    ) -> Pending<Result<T, RecordError>> {
        let site = Arc::clone(&self.site);
        aside("the writer was stopped", move || written(&site, work))
    }
}

fn written<T>(
    site: &Site,
    work: impl FnOnce(&Link, Timestamp) -> Result<(T, Option<Draft>), Trouble>,
) -> Result<T, RecordError> {
    // A connection of its own: whatever goes wrong, the transaction goes with it.
    let outcome = site.connect().and_then(|link| {
        let mut ledger = Ledger::begin(&link, site)?;
        let (value, event) = work(&link, site.options.clock.now())?;
        if let Some(event) = &event {
            ledger.append(event, &event.timestamp.to_string())?;
        }
        Ok((value, writer::commit(ledger)?))
    });
    let (value, signed) = outcome.map_err(|error| trouble::unavailable(&error))?;
    site.witness.tell(signed);
    Ok(value)
}

fn enter(link: &Link, whose: Whose, now: Timestamp, by: &'static str) -> Result<(Entered, Draft), Trouble> {
    let secret = secret(BROWSER).map_err(Trouble::Random)?;
    insert(link, &secret, "browser", &whose, now, BROWSER_LIVES)?;
    Ok(whose.entered(secret, now, by))
}

fn insert(
    link: &Link,
    secret: &str,
    kind: &str,
    whose: &Whose,
    now: Timestamp,
    lives: Duration,
) -> Result<(), Trouble> {
    link.execute(
        "INSERT INTO logins (digest, kind, credential, role, name, token, created_at_ms, expires_at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        &[
            &credential::digest(secret).as_slice(),
            &kind,
            &whose.credential.as_str(),
            &whose.role.as_str(),
            &whose.name,
            &whose.token,
            &now.as_millis(),
            &now.after(lives).as_millis(),
        ],
    )?;
    Ok(())
}

/// What has ended need not be kept.
fn sweep(link: &Link, now: Timestamp) -> Result<(), Trouble> {
    link.execute("DELETE FROM logins WHERE expires_at_ms <= $1", &[&now.as_millis()])
        .map(drop)
}
