//! Acts of services outside.

use countersign_gateway::clock::Timestamp;
use countersign_gateway::delegation::{Confided, Delegation, Finished, Outcome};
use countersign_gateway::ids::{CorrelationId, CredentialId, DelegationId};

use super::Cells;

/// The columns that [`delegation`] reads, in its order.
pub(crate) const COLUMNS: &str = "delegation_id, version, correlation_id, owner, binding, tool, created_at_ms, \
     deadline_ms, outcome, detail, ended_at_ms, told, confided";

pub(crate) fn delegation<R: Cells>(row: &R) -> Result<Delegation, R::Error> {
    let detail = row.any_text(9)?.unwrap_or_default();
    let outcome = row.any_text(8)?.map(|word| match word.as_str() {
        "applied" => Outcome::Applied(serde_json::from_str(&detail).unwrap_or_default()),
        "failed" => Outcome::Failed(detail),
        _ => Outcome::TimedOut,
    });
    let ended_at = row.any_time(10)?;
    Ok(Delegation {
        id: DelegationId::trusted(row.text(0)?),
        version: row.count(1)?,
        correlation_id: CorrelationId::trusted(row.text(2)?),
        owner: CredentialId::trusted(row.text(3)?),
        binding: row.text(4)?,
        tool: row.text(5)?,
        created_at: row.time(6)?,
        deadline: row.time(7)?,
        end: outcome.zip(ended_at).map(|(outcome, at)| Finished { outcome, at }),
        told: row.flag(11)?,
        confided: match row.any_bytes(12)? {
            None => Confided::Nothing,
            Some(none) if none.is_empty() => Confided::Erased,
            Some(sealed) => Confided::Sealed(sealed),
        },
    })
}

/// The column of what an act confides: none where it confides nothing, empty once it is erased.
pub(crate) fn confided(delegation: &Delegation) -> Option<&[u8]> {
    match &delegation.confided {
        Confided::Nothing => None,
        Confided::Sealed(sealed) => Some(sealed),
        Confided::Erased => Some(&[]),
    }
}

/// The columns of an end: its word, what it says, and when.
pub(crate) fn ending(delegation: &Delegation) -> (Option<&'static str>, Option<String>, Option<i64>) {
    let Some(Finished { outcome, at }) = &delegation.end else {
        return (None, None, None);
    };
    let detail = match outcome {
        Outcome::Applied(result) => Some(result.to_string()),
        Outcome::Failed(reason) => Some(reason.clone()),
        Outcome::TimedOut => None,
    };
    (Some(outcome.word()), detail, Some(Timestamp::as_millis(*at)))
}
