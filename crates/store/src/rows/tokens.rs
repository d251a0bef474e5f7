//! Tokens: what a row says, what is written of one, and whose a token is that somebody shows.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::audit::payload::Object;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CorrelationId, CredentialId, IdSource, JobId};
use countersign_gateway::job::state::Job;
use countersign_gateway::run::state::Run;
use countersign_gateway::session::credential::{self, Credential, TokenName};
use countersign_gateway::session::{JobContext, Role};

use super::Cells;
use crate::sqlite::tokens::{Made, TokenError};
use crate::{random, run_token};

/// A token of a job has the job's name; what ties the job's acts together is looked up with it.
pub(crate) const SELECT: &str = "SELECT id, role, name, tokens.created_at_ms, revoked_at_ms, run, expires_at_ms, \
    jobs.job_id, jobs.correlation_id, jobs.holder, digest FROM tokens \
    LEFT JOIN jobs ON role = 'agent' AND name LIKE 'job-%' AND jobs.job_id = substr(name, 5)";
/// Where [`SELECT`] tells who looks after a token's job, and the token's digest.
pub(crate) const HOLDER: usize = 9;
pub(crate) const DIGEST: usize = 10;

pub(crate) fn token<R: Cells>(row: &R) -> Result<Credential, R::Error> {
    let job = row
        .any_text(7)?
        .zip(row.any_text(8)?)
        .map(|(job_id, correlation_id)| JobContext {
            job_id: JobId::trusted(job_id),
            correlation_id: CorrelationId::trusted(correlation_id),
        });
    Ok(Credential {
        id: CredentialId::trusted(row.text(0)?),
        role: Role::parse(&row.text(1)?).ok_or_else(|| R::damaged(1))?,
        name: row.text(2)?,
        created_at: row.time(3)?,
        revoked_at: row.any_time(4)?,
        run: row.any_text(5)?,
        expires_at: row.any_time(6)?,
        run_context: None,
        job: job.map(Arc::new),
    })
}

/// A token that was never used, of nobody's run and nobody's job.
pub(crate) fn new(role: Role, name: &TokenName, now: Timestamp, ids: &IdSource) -> Credential {
    Credential {
        id: ids.credential(),
        role,
        name: name.as_str().to_owned(),
        created_at: now,
        revoked_at: None,
        expires_at: None,
        run: None,
        run_context: None,
        job: None,
    }
}

/// A token of a job's agent, before anybody has it.
pub(crate) fn of_job(job: &Job, name: &TokenName, now: Timestamp, ids: &IdSource) -> Credential {
    let context = JobContext {
        job_id: job.id.clone(),
        correlation_id: job.correlation_id.clone(),
    };
    Credential {
        run: job.run_id.clone(),
        job: Some(Arc::new(context)),
        ..new(Role::Agent, name, now, ids)
    }
}

pub(crate) fn event(kind: EventType, credential: &Credential, by: Actor, now: Timestamp, ids: &IdSource) -> Draft {
    let payload = Object::new()
        .text("id", credential.id.as_str())
        .text("role", credential.role.as_str())
        .text("name", &credential.name)
        .optional_text("run", credential.run.as_deref())
        .optional_text("job_id", credential.job.as_ref().map(|job| job.job_id.as_str()))
        .optional_text("expires_at", credential.expires_at.map(|at| at.to_string()).as_deref())
        .finish();
    // A token of a job or a run is a part of its story.
    let of_job = credential.job.as_ref().map(|job| job.correlation_id.clone());
    let of_run = || {
        credential
            .run_context
            .as_ref()
            .and_then(|run| run.correlation_id.clone())
    };
    let correlation = of_job.or_else(of_run).unwrap_or_else(|| ids.correlation());
    Draft::new(ids.event(), now, correlation, by, kind, payload)
}

/// A credential with a token that nobody can guess.
pub(crate) fn made(credential: Credential) -> Result<Made, TokenError> {
    let random = random::secret().map_err(|source| TokenError::Random { source })?;
    let token = credential::token(credential.role, &random);
    Ok(Made { credential, token })
}

/// The run that somebody named, where it may still be given tokens.
pub(crate) fn run_under_way(found: Option<Run>, named: &str) -> Result<Run, TokenError> {
    let run = found.ok_or_else(|| TokenError::UnknownRun(named.to_owned()))?;
    if run.has_ended() {
        return Err(TokenError::RunEnded(run.id));
    }
    Ok(run)
}

/// Tokens in force, by their digests.
pub(crate) type InForce = HashMap<[u8; 32], Credential>;

/// What was last read of the tokens.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) in_force: InForce,
    /// Every change of a token counts it up.
    pub(crate) version: Option<i64>,
    in_trouble: bool,
}

impl Known {
    /// Takes over the version, and the tokens where those changed. While they cannot be read, whoever was known stays
    /// known.
    pub(crate) fn learn(&mut self, read: Result<(i64, Option<InForce>), impl Display>) {
        match read {
            Ok((version, changed)) => {
                self.in_trouble = false;
                self.version = Some(version);
                if let Some(in_force) = changed {
                    self.in_force = in_force;
                }
            }
            Err(error) => {
                // Said once, not four times a second.
                if !std::mem::replace(&mut self.in_trouble, true) {
                    tracing::warn!(%error, "tokens cannot be read; nobody new is let in");
                }
            }
        }
    }
}

/// Whose a token is. One of a run must besides be signed by us, and say of itself what is kept of it.
pub(crate) fn recognise(in_force: &InForce, key: &[u8; 32], token: &str, now: Timestamp) -> Option<Credential> {
    let claims = match run_token::is_signed(token) {
        true => Some(run_token::verify(key, token, now)?),
        false => None,
    };
    let found = in_force.get(&credential::digest(token)).cloned()?;
    let is_its_own = claims
        .is_none_or(|claims| claims.jti == found.id.as_str() && Some(claims.run_id.as_str()) == found.run.as_deref());
    (is_its_own && !found.has_expired(now)).then_some(found)
}

pub(crate) fn is_in_force(in_force: &InForce, id: &CredentialId, now: Timestamp) -> bool {
    let found = in_force.values().find(|credential| credential.id == *id);
    found.is_some_and(|credential| !credential.has_expired(now))
}

pub(crate) fn any_of_job(in_force: &InForce) -> bool {
    in_force.values().any(|credential| credential.job.is_some())
}
