//! Calls that meet a command which is already there: the same question asked twice at once, and commands
//! that another process has taken on.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Instrument as _;

use super::waiting::waits;
use super::{Considered, Gateway};
use crate::approval::board;
use crate::approval::request::ApprovalRequest;
use crate::audit::command::closed_later;
use crate::audit::event::{ApprovalState, Draft, EventType};
use crate::audit::redact::named;
use crate::audit::{Change, CloseCommand, Pending, RecordError, StoredCommand, kept};
use crate::commands::NotEntered;
use crate::error::{ErrorCode, Refusal};
use crate::execution::live::Live;
use crate::ids::{CredentialId, RequestId};
use crate::policy::decide::Verdict;
use crate::service::{Origin, Progress};
use crate::session::Admitted;
use crate::tools::exec::request::{Act, CommandRequest, StatusRequest};
use crate::tools::exec::result::CommandResult;

/// How often a command that runs in another process is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often a command that takes its time looks whether another process was asked to end it.
const HEED_EVERY: Duration = Duration::from_secs(1);

impl Gateway {
    /// Waits for the command that was a moment faster, and takes its result.
    pub(super) async fn follow(
        self: &Arc<Self>,
        admitted: &Admitted,
        live: &Arc<Live>,
        request: &CommandRequest,
        other: &ApprovalRequest,
    ) {
        let owner = &admitted.caller().credential;
        // The same request came to another process, which asked: it goes on here under the same id.
        self.commands.forget(owner, live);
        let first = match self.resumed(admitted, request, other) {
            Ok(first) => first,
            Err(refusal) => {
                live.finish(self.refused(live.request_id.clone(), refusal));
                return self.commands.forget(owner, live);
            }
        };
        live.waits_for(Some(other.id.clone()));
        let end = tokio::select! {
            end = first.ended() => Some(end),
            () = live.unattended() => None,
            () = live.cancelled() => {
                if !self.commands.is_closing() {
                    first.cancel();
                }
                Some(first.ended().await)
            }
        };
        first.leave();
        let result = end.map_or_else(|| self.pending(&first, &other.id), |end| first.told(&end));
        live.finish(result);
        self.commands.forget(owner, live);
    }

    /// The command of a question, going on in this process; attended. Refused when policy no longer asks about it, and
    /// when there is no room for it.
    pub(super) fn resumed(
        self: &Arc<Self>,
        admitted: &Admitted,
        request: &CommandRequest,
        held: &ApprovalRequest,
    ) -> Result<Arc<Live>, Refusal> {
        let in_force = self.in_force();
        let verdict = self.verdict(admitted, request, &in_force);
        if !matches!(verdict, Verdict::Ask(_)) {
            let message = format!(
                "the policy changed while this was asked (approval `{}`), and no longer asks about it; send the call again",
                held.id
            );
            return Err(Refusal::new(ErrorCode::Conflict, message));
        }
        let live = self.live_of(held, request, None);
        match self.commands.enter(&admitted.caller().credential, &live) {
            Ok(()) => {}
            Err(NotEntered::Known(known)) => return Ok(known),
            Err(NotEntered::Full) => {
                let message = "too many calls are in flight; try again";
                return Err(Refusal::new(ErrorCode::QueueFull, message));
            }
            Err(NotEntered::Closing) => {
                return Err(Refusal::new(ErrorCode::Cancelled, "the server is stopping"));
            }
        }
        let considered = Considered {
            in_force,
            verdict,
            held: Some(held.clone()),
        };
        self.go_on(admitted.clone(), request.clone(), live.clone(), considered);
        Ok(live)
    }

    /// Conducting may lead here again; a type of its own keeps the future from containing itself.
    fn go_on(self: &Arc<Self>, admitted: Admitted, request: CommandRequest, live: Arc<Live>, considered: Considered) {
        let conducted: Pending<()> = Box::pin(self.clone().conduct(admitted, request, live, considered));
        tokio::spawn(conducted.in_current_span());
    }

    /// A command that waits in the store, as this process goes on with it.
    pub(super) fn live_of(
        &self,
        held: &ApprovalRequest,
        request: &CommandRequest,
        progress: Option<Arc<dyn Progress>>,
    ) -> Arc<Live> {
        let named = held.command.as_ref().map(|command| command.request_id.clone());
        let live = Live::new(
            named.unwrap_or_else(|| self.ports.ids.request()),
            self.known_by(request),
            held.created_at,
            self.settings.output_limit,
            progress,
            Origin::default(),
            held.correlation_id.clone(),
        );
        live.waits_for(Some(held.id.clone()));
        let variables = request.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut secrets: Vec<String> = named::in_variables(variables).map(str::to_owned).collect();
        match &request.act {
            Act::Line(line) => secrets.extend(named::in_line(line)),
            Act::Argv { file, args } => {
                let words: Vec<&str> = [file].into_iter().chain(args).map(String::as_str).collect();
                secrets.extend(named::in_args(&words).into_iter().map(str::to_owned));
            }
        }
        Arc::new(live.redacted_by(self.ports.redactor.hiding(secrets.iter().map(String::as_str))))
    }

    /// Waits for the end that another process writes.
    pub(super) async fn follow_elsewhere(&self, admitted: &Admitted, live: &Arc<Live>) {
        let owner = &admitted.caller().credential;
        live.waits_for(None);
        let parked = self.ports.board.of_command(owner, &live.request_id).await;
        if let Ok(Some(question)) = parked
            && parks(&question)
            && question.state() != ApprovalState::Applied
            && board::refusal(&question).is_none()
        {
            let refusal = super::submitting::asked_otherwise(&live.request_id, &question.id);
            live.finish(self.refused(live.request_id.clone(), refusal));
            return self.commands.forget(owner, live);
        }
        let mut is_told = false;
        let result = loop {
            let is_given_up = !live.is_attended() || live.is_cancelled();
            match self.ports.record.command(owner, &live.request_id).await {
                Ok(Some(stored)) if stored.digest != live.digest => {
                    break self.refused(live.request_id.clone(), super::looking::conflict(&live.request_id));
                }
                Ok(Some(stored)) => {
                    if let Some(result) = CommandResult::restored(&stored, None) {
                        break result;
                    }
                    if is_given_up {
                        break self.elsewhere(&stored);
                    }
                }
                Ok(None) => break self.refused(live.request_id.clone(), super::looking::unknown(&live.request_id)),
                Err(error) if is_given_up => break self.refused(live.request_id.clone(), unread(&error)),
                Err(_) if is_told => {}
                Err(error) => {
                    is_told = true;
                    tracing::warn!(%error, "a command cannot be looked at, trying again");
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        live.finish(result);
        self.commands.forget(owner, live);
    }

    /// What the store knows of a command that is not this process's; waits for the answer to its question
    /// as long as the caller wants to.
    pub(super) async fn stored(
        &self,
        admitted: &Admitted,
        stored: &StoredCommand,
        status: Option<&StatusRequest>,
    ) -> CommandResult {
        if let Some(result) = CommandResult::restored(stored, status) {
            return result;
        }
        let owner = &admitted.caller().credential;
        let mut question = match self.ports.board.of_command(owner, &stored.request_id).await {
            Ok(question) => question.filter(parks),
            Err(error) => return self.refused(stored.request_id.clone(), super::opening::unrecorded(&error)),
        };
        let wait = status.map_or(Duration::ZERO, |status| status.wait.min(self.settings.answer_within));
        if let Some(open) = question.as_ref().filter(|question| question.is_pending())
            && wait > Duration::ZERO
            && let Ok(settled) = tokio::time::timeout(wait, self.ports.board.settled(&open.id)).await
        {
            question = Some(settled);
        }
        let Some(question) = question else {
            return self.elsewhere(stored);
        };
        let pending = |message: String| {
            CommandResult::pending(
                stored.request_id.clone(),
                stored.opened_at,
                question.id.clone(),
                message,
            )
        };
        match (question.state(), board::refusal(&question)) {
            (_, Some(refusal)) => self.refused(stored.request_id.clone(), refusal),
            (ApprovalState::Pending, None) => pending(waits(&question.id)),
            (ApprovalState::Approved, None) => {
                let by = question.decided_by.as_deref().unwrap_or("somebody");
                pending(format!("`{by}` approved this; repeat the same call to run it"))
            }
            (_, None) => self.elsewhere(stored),
        }
    }

    /// Takes back the question of a command that waits in the store, and closes the command. Gives what the
    /// command came to; none when it does not wait.
    pub(super) async fn cancel_stored(
        &self,
        admitted: &Admitted,
        stored: &StoredCommand,
    ) -> Result<Option<CommandResult>, RecordError> {
        let owner = &admitted.caller().credential;
        if stored.open.is_none() {
            return Ok(None);
        }
        let question = self.ports.board.of_command(owner, &stored.request_id).await?;
        let Some(question) = question.filter(parks) else {
            return Ok(None);
        };
        let actor = &admitted.caller().actor;
        let withdrawn = self
            .ports
            .board
            .withdraw(&question.id, actor, "the caller cancelled it")
            .await?;
        let Some(refusal) = withdrawn.as_ref().and_then(board::refusal) else {
            return Ok(None);
        };
        let Some((change, result)) = self.closing_stored(admitted, stored, refusal) else {
            return Ok(None);
        };
        let receipt = self.ports.record.commit(change).await?;
        if receipt.last_event.is_some() {
            return Ok(Some(result));
        }
        let stored = self.ports.record.command(owner, &stored.request_id).await?;
        Ok(stored.and_then(|stored| CommandResult::restored(&stored, None)))
    }

    /// Says that the end of a command is wanted, and waits for the process that works on it as long as a client would.
    pub(super) async fn cancel_elsewhere(
        &self,
        admitted: &Admitted,
        request_id: &RequestId,
    ) -> Result<CommandResult, RecordError> {
        let owner = &admitted.caller().credential;
        let change = Change {
            end_wanted: Some((owner.clone(), request_id.clone())),
            ..Change::default()
        };
        self.ports.record.commit(change).await?;
        let deadline = Instant::now() + self.settings.answer_within;
        loop {
            let stored = self.ports.record.command(owner, request_id).await?;
            let Some(stored) = stored else {
                return Ok(self.refused(request_id.clone(), super::looking::unknown(request_id)));
            };
            match CommandResult::restored(&stored, None) {
                Some(result) => return Ok(result),
                None if Instant::now() + LOOK_EVERY > deadline => return Ok(self.elsewhere(&stored)),
                None => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Does the work of a command, and ends it when its caller asked another process to.
    pub(super) async fn heeding<T>(&self, admitted: &Admitted, live: &Live, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = self.end_wanted(&admitted.caller().credential, live) => live.cancel(),
        }
        work.await
    }

    async fn end_wanted(&self, owner: &CredentialId, live: &Live) {
        loop {
            tokio::time::sleep(HEED_EVERY).await;
            match self.ports.record.is_end_wanted(owner, &live.request_id).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "whether a command's end is wanted cannot be read"),
            }
        }
    }

    /// How a command ends that lies open in the store and never ran; none when it is not open.
    pub(super) fn closing_stored(
        &self,
        admitted: &Admitted,
        stored: &StoredCommand,
        refusal: Refusal,
    ) -> Option<(Change, CommandResult)> {
        let (open, caller) = (stored.open.as_ref()?, admitted.caller());
        let now = self.ports.clock.now();
        let audit_id = self.ports.ids.event();
        let mut payload = closed_later(&open.abandoned, &audit_id, now, Some(&refusal));
        let result = CommandResult {
            audit_id: Some(audit_id.clone()),
            started_at: stored.opened_at,
            ..CommandResult::refused(stored.request_id.clone(), now, refusal)
        };
        let close = CloseCommand {
            owner: caller.credential.clone(),
            request_id: stored.request_id.clone(),
            digest: stored.digest.clone(),
            opened_at: stored.opened_at,
            correlation_id: open.correlation_id.clone(),
            result: serde_json::Value::Object(result.facts()).to_string(),
            stdout: Arc::default(),
            stderr: Arc::default(),
            asked: None,
        };
        payload[kept::FIELD] = close.kept().digest().to_hex().into();
        let change = Change {
            events: vec![Draft::new(
                audit_id,
                now,
                open.correlation_id.clone(),
                caller.actor.clone(),
                EventType::CommandCompleted,
                &payload,
            )],
            close: Some(close),
            only_if_open: true,
            ..Change::default()
        };
        Some((change, result))
    }
}

/// Another process has the command, and the record that would tell of it is away.
fn unread(error: &RecordError) -> Refusal {
    error.refusal("another process has this command; look at it with `command_status` when the record is back")
}

/// A question whose command waits in the store for it.
pub(super) fn parks(question: &ApprovalRequest) -> bool {
    question.command.as_ref().is_some_and(|command| command.parks)
}
