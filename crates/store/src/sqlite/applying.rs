//! One change, applied in the transaction under way: whole, or refused and nothing of it.

use countersign_gateway::audit::act::ActChange;
use countersign_gateway::audit::{Committed, RecordError};

use super::ledger::{Head, Ledger};
use super::trouble;
use crate::receipt;
use crate::waiting::{Job, Outcome};

/// Writes one change, or nothing of it when it is refused.
pub(super) fn apply(ledger: &mut Ledger<'_>, head: &mut Head, job: &Job) -> rusqlite::Result<Outcome> {
    if !job.change.is_conditional() {
        return apply_rows(ledger, head, job);
    }
    // Rare beside commands, so only these pay for being able to take a part back.
    ledger.save()?;
    let mut is_void = false;
    let outcome = match moved(ledger, job)? {
        None if ends_nothing(ledger, job)? => {
            is_void = true;
            Ok(Committed {
                last_seq: head.seq,
                last_event: None,
            })
        }
        None => apply_with_runs(ledger, head, job)?,
        Some(moved) => already_written(ledger, job)?.ok_or(moved),
    };
    match &outcome {
        // Somebody else has closed the command or the act: then nothing of the change is written.
        Ok(receipt) if is_void || receipt::closes_nothing(&job.change, receipt) => ledger.undo()?,
        Ok(_) => ledger.release()?,
        Err(_) => ledger.undo()?,
    }
    Ok(outcome)
}

/// All the rest, and what follows from it for runs, told behind the change's own events.
fn apply_with_runs(ledger: &mut Ledger<'_>, head: &mut Head, job: &Job) -> rusqlite::Result<Outcome> {
    let told = ledger.follow_runs(&job.change)?;
    let mut outcome = apply_rows(ledger, head, job)?;
    if let Ok(receipt) = &mut outcome
        && (receipt.last_event.is_some() || !job.change.only_if_open)
    {
        for draft in &told {
            ledger.append(head, draft, &draft.timestamp.to_string())?;
        }
        receipt.last_seq = head.seq;
    }
    Ok(outcome)
}

/// Writes sessions, approvals, jobs and runs, each only where it stands as the change expects; tells the first
/// that does not.
fn moved(ledger: &Ledger<'_>, job: &Job) -> rusqlite::Result<Option<RecordError>> {
    if let Some(taken) = ledger.write_leases(&job.change.leases)? {
        return Ok(Some(taken));
    }
    if let Some(known) = ledger.write_deliveries(&job.change.deliveries)? {
        return Ok(Some(known));
    }
    if let Some(session) = &job.change.session
        && !ledger.write_session(session)?
    {
        return Ok(Some(RecordError::SessionMoved));
    }
    for approval in &job.change.approvals {
        if !ledger.write_approval(approval)? {
            return Ok(Some(RecordError::ApprovalMoved));
        }
    }
    for delegation in &job.change.delegations {
        if !ledger.write_delegation(delegation)? {
            return Ok(Some(RecordError::DelegationMoved));
        }
    }
    if let Some(ActChange::Open(act)) = &job.change.act
        && let Some(asked) = &act.asked
        && !ledger.enter_act(&act.id, asked, act.opened_at)?
    {
        return Ok(Some(RecordError::RequestIdTaken(asked.request_id.clone())));
    }
    if let Some(act @ ActChange::Open(_)) = &job.change.act
        && !ledger.write_act(act)?
    {
        return Ok(Some(RecordError::ApprovalMoved));
    }
    for change in &job.change.jobs {
        if let Some(refused) = ledger.write_job(change)? {
            return Ok(Some(refused));
        }
    }
    for run in &job.change.runs {
        if !ledger.write_run(run)? {
            return Ok(Some(RecordError::RunMoved));
        }
    }
    for database in &job.change.databases {
        if !ledger.write_database(database)? {
            return Ok(Some(RecordError::TargetMoved));
        }
    }
    for sync in &job.change.syncs {
        if !ledger.write_sync(sync)? {
            return Ok(Some(RecordError::TargetMoved));
        }
    }
    for note in &job.change.notes {
        if !ledger.add_note(note)? {
            return Ok(Some(RecordError::JobMoved));
        }
    }
    Ok(None)
}

/// Writes that an act went on or ended; whether it closes one that somebody else has closed.
fn ends_nothing(ledger: &Ledger<'_>, job: &Job) -> rusqlite::Result<bool> {
    match &job.change.act {
        Some(act @ (ActChange::Told { .. } | ActChange::Close { .. })) => {
            Ok(!ledger.write_act(act)? && job.change.only_if_open)
        }
        Some(ActChange::Open(_)) | None => Ok(false),
    }
}

/// All but sessions, approvals, jobs and runs. A taken request id is found before anything of it is written, and so is a
/// change that came before: all of it was written then, so one event tells.
fn apply_rows(ledger: &mut Ledger<'_>, head: &mut Head, job: &Job) -> rusqlite::Result<Outcome> {
    if let Some(first) = job.change.events.first()
        && ledger.is_written(first)?
    {
        return Err(trouble::written_before());
    }
    if let Some(open) = &job.change.open
        && !ledger.open_command(open)?
    {
        let taken = open.request_id.clone();
        return Ok(Err(RecordError::RequestIdTaken(taken)));
    }
    if let Some(close) = &job.change.close {
        let closed = ledger.close_command(close)?;
        if !closed && job.change.only_if_open {
            return Ok(Ok(Committed {
                last_seq: head.seq,
                last_event: None,
            }));
        }
    }
    if let Some((owner, request_id)) = &job.change.end_wanted {
        ledger.want_end(owner, request_id)?;
    }
    ledger.touch_sessions(&job.change.touched)?;
    ledger.write_beats(&job.change.beats)?;
    ledger.write_gone(&job.change.gone)?;
    ledger.write_filed(&job.change.filed)?;
    ledger.write_links(&job.change.links)?;
    ledger.write_reviews(&job.change.reviews)?;
    ledger.write_heads(&job.change.heads)?;
    ledger.write_messages(&job.change.messages)?;
    for (draft, timestamp) in job.change.events.iter().zip(&job.timestamps) {
        ledger.append(head, draft, timestamp)?;
    }
    Ok(Ok(receipt::of(&job.change, head.seq)))
}

/// A change may come twice, when its caller did not wait for the answer; its events then stand
/// in the record under the same ids.
pub(super) fn already_written(ledger: &mut Ledger<'_>, job: &Job) -> rusqlite::Result<Option<Committed>> {
    let mut last = None;
    for draft in &job.change.events {
        match ledger.find(draft)? {
            Some(seq) => last = Some(seq),
            None => return Ok(None),
        }
    }
    Ok(last.map(|seq| receipt::of(&job.change, seq)))
}
