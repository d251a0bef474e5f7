//! What a service says, without what it was given and may not tell.
//!
//! The one that sent an act and the one that hears of it may be different processes, and either may have been
//! started anew. So the values are kept with the act, sealed, until it ends. Where they cannot be looked for any
//! more, nothing of what the service says in its own words is kept.

use serde_json::{Value, json};

use super::desk::DelegationDesk;
use super::{Confided, Delegation};
use crate::approval::callback::{Callback, Meant};
use crate::approval::question::Given;
use crate::audit::RecordError;
use crate::audit::redact::{REPLACEMENT, Redactor};
use crate::error::{ErrorCode, Refusal};
use crate::ids::{CorrelationId, DelegationId};
use crate::tools::secrets::keeping::SecretValue;

impl DelegationDesk {
    /// What an act confides, sealed for it. An act whose values cannot be kept is not begun.
    pub(crate) fn confiding(&self, id: &DelegationId, secrets: &[String]) -> Result<Confided, Refusal> {
        if secrets.is_empty() {
            return Ok(Confided::Nothing);
        }
        let written = SecretValue::new(json!(secrets).to_string());
        let sealed = self.parts().vault.seal(id.as_str(), &written);
        sealed.map(Confided::Sealed).ok_or_else(|| {
            let message = "what this call confides cannot be sealed now; try again later";
            Refusal::new(ErrorCode::AuditUnavailable, message)
        })
    }

    /// A callback as it may be kept and told.
    pub async fn heard(&self, mut callback: Callback) -> Result<Callback, RecordError> {
        for delegation in self.all_meant(&callback.meant).await? {
            match self.ear(&delegation) {
                Some(redactor) => redact(&mut callback, &redactor),
                None => silence(&mut callback),
            }
        }
        Ok(callback)
    }

    /// What hears a service of an act; none where nobody knows any more what it may not tell.
    fn ear(&self, delegation: &Delegation) -> Option<Redactor> {
        let parts = self.parts();
        let sealed = match &delegation.confided {
            Confided::Nothing => return Some(parts.redactor.clone()),
            Confided::Sealed(sealed) => sealed,
            Confided::Erased => return None,
        };
        let opened = parts.vault.open(delegation.id.as_str(), sealed)?;
        let secrets: Vec<String> = serde_json::from_str(opened.reveal()).ok()?;
        Some(parts.redactor.confiding(secrets.iter().map(String::as_str)))
    }

    /// Every act that somebody may speak of: the one that is named, or all of the call.
    async fn all_meant(&self, meant: &Meant) -> Result<Vec<Delegation>, RecordError> {
        let parts = self.parts();
        let correlation = match meant {
            Meant::Act { id, .. } => {
                let found = parts.delegations.find_delegation(id).await?;
                return Ok(found.into_iter().collect());
            }
            Meant::Call(correlation) => correlation.clone(),
            Meant::Question { id, .. } => match parts.board.find(id).await? {
                Some(question) => question.correlation_id,
                None => return Ok(Vec::new()),
            },
        };
        parts.delegations.delegations_of(&correlation).await
    }
}

/// Takes out of a callback what it may not tell, wherever it can tell something.
fn redact(callback: &mut Callback, redactor: &Redactor) {
    let text = |text: &mut String| *text = redactor.redact_text(text).into_owned();
    let texts = [
        &mut callback.reason,
        &mut callback.actor_id,
        &mut callback.tool,
        &mut callback.request_id,
    ];
    texts.into_iter().flatten().for_each(text);
    // What is named besides, and may be anything.
    if let Meant::Act { correlation_id, .. } | Meant::Question { correlation_id, .. } = &mut callback.meant
        && let Some(named) = correlation_id
    {
        *named = CorrelationId::trusted(redactor.redact_text(named.as_str()));
    }
    match &mut callback.answer {
        Some(Given::Option(said) | Given::Custom(said)) => text(said),
        None => {}
    }
    for value in [&mut callback.metadata, &mut callback.result].into_iter().flatten() {
        *value = redactor.redact_json(value);
    }
}

/// Leaves of a callback what it means.
fn silence(callback: &mut Callback) {
    let blank = |text: &mut String| REPLACEMENT.clone_into(text);
    // Names are held against what they name; one that is another says something.
    let texts = [&mut callback.reason, &mut callback.actor_id, &mut callback.request_id];
    texts.into_iter().flatten().for_each(blank);
    callback.answer = None;
    for value in [&mut callback.metadata, &mut callback.result].into_iter().flatten() {
        *value = Value::from(REPLACEMENT);
    }
}
