//! Waiting for a command, and looking at one from outside: the answers of the command tools,
//! `command_status` and `command_cancel`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::asking::unrecorded;
use super::joining::parks;
use super::{Considered, Gateway};
use crate::approval::binding;
use crate::approval::request::ApprovalRequest;
use crate::audit::StoredCommand;
use crate::audit::command::CommandAuditRecord;
use crate::audit::event::ApprovalState;
use crate::audit::payload::Object;
use crate::audit::trace::Trace;
use crate::call::Step;
use crate::clock::Timestamp;
use crate::commands::NotEntered;
use crate::error::{ErrorCode, Refusal, Status};
use crate::execution::live::Live;
use crate::ids::RequestId;
use crate::limits;
use crate::policy::decide::{self, Verdict};
use crate::policy::effective::Mode;
use crate::service::{Answer, ToolCall};
use crate::session::Admitted;
use crate::tools::exec::request::{self, CommandRequest, CommandTool, StatusRequest};
use crate::tools::exec::result::CommandResult;

impl Gateway {
    /// A call to one of the command tools.
    pub(super) async fn submit(
        self: Arc<Self>,
        admitted: Admitted,
        tool: CommandTool,
        call: ToolCall,
        started: Timestamp,
    ) -> Answer {
        let request = match request::read(tool, &call.arguments) {
            Ok(request) => request,
            Err(refusal) => return self.refuse_unreadable(&admitted, tool, &call, refusal).await,
        };
        let request_id = request.request_id.clone().unwrap_or_else(|| self.ports.ids.request());
        let live = Arc::new(Live::new(
            request_id,
            request.digest.clone(),
            started,
            self.settings.output_limit,
            call.progress.clone(),
            call.origin.clone(),
            self.ports.ids.correlation(),
        ));
        let looking = self.lookups.read().await;
        // Only an id that the caller chose can have been used before.
        let mut waits = None;
        if request.request_id.is_some() {
            match self.earlier(&admitted, &request, &live).await {
                Some(Earlier::Repeated(answer)) => return self.called(admitted.caller(), &call, started, answer).await,
                Some(Earlier::Refused(answer)) => return answer,
                Some(Earlier::Waits(question)) => waits = Some(*question),
                None => {}
            }
        }
        let (considered, live) = match self.consider(&admitted, &request, &call, live, waits).await {
            Ok(considered) => considered,
            Err(Considering::Join(known)) => {
                drop(looking);
                let (answer, _) = self.wait(&known, &call).await;
                return self.called(admitted.caller(), &call, started, answer).await;
            }
            Err(Considering::Refused(live, refusal)) => {
                return self.refuse_entered(&admitted, &request, &live, refusal).await;
            }
        };
        let is_repeat = considered.held.is_some();
        let entered = self.commands.enter(&admitted.caller().credential, &live);
        drop(looking);
        match entered {
            Ok(()) => {
                tokio::spawn(
                    self.clone()
                        .conduct(admitted.clone(), request, live.clone(), considered),
                );
                let (answer, reached) = self.wait(&live, &call).await;
                let is_anothers = answer.command.as_ref() != Some(&live.request_id);
                match reached {
                    // The command's own events tell of the call that first asked for it, not of this one.
                    Reached::End | Reached::Patience if is_repeat || is_anothers => {
                        return self.called(admitted.caller(), &call, started, answer).await;
                    }
                    Reached::End if answer.structured["status"] != Status::Pending.as_str() => {}
                    Reached::End | Reached::Patience => {
                        self.answered_early(admitted.caller(), &live, &call, &answer).await;
                    }
                }
                answer
            }
            Err(NotEntered::Known(known)) if known.digest == request.digest => {
                let (answer, _) = self.wait(&known, &call).await;
                self.called(admitted.caller(), &call, started, answer).await
            }
            Err(NotEntered::Known(_)) => {
                self.refuse_entered(&admitted, &request, &live, conflict(&live.request_id))
                    .await
            }
            Err(NotEntered::Full) => {
                let message = format!(
                    "{} calls are already in flight; try again when some have ended",
                    limits::CALLS_IN_FLIGHT_MAX
                );
                self.refuse_entered(&admitted, &request, &live, Refusal::new(ErrorCode::QueueFull, message))
                    .await
            }
            Err(NotEntered::Closing) => {
                let refusal = Refusal::new(ErrorCode::Cancelled, "the server is stopping");
                self.refuse_entered(&admitted, &request, &live, refusal).await
            }
        }
    }

    /// What policy says of a request, and what waits for it already: a command of this process, or one in
    /// the store, whose place `live` then takes.
    async fn consider(
        &self,
        admitted: &Admitted,
        request: &CommandRequest,
        call: &ToolCall,
        live: Arc<Live>,
        waits: Option<ApprovalRequest>,
    ) -> Result<(Considered, Arc<Live>), Considering> {
        let owner = &admitted.caller().credential;
        let in_force = self.in_force();
        let verdict = decide::decide(&in_force.policy, request, &self.surroundings());
        let held = match &verdict {
            Verdict::Ask(question) => {
                let binding = binding::bind(request, question.plan(), owner, &in_force.digest);
                match self.ports.board.held(owner, &binding.digest).await {
                    Ok(held) => held,
                    Err(error) => return Err(Considering::Refused(live, unrecorded(&error))),
                }
            }
            // It runs at once, and may ask afterwards whether to run again; then it is not begun anew.
            Verdict::Allow(_) if in_force.policy.approval.mode == Mode::OnFailure => {
                match self.commands.waiting(owner, &request.digest) {
                    Some(known) => return Err(Considering::Join(known)),
                    None => None,
                }
            }
            Verdict::Allow(_) | Verdict::Deny(_) => None,
        };
        if let Some(waits) = waits
            && held.as_ref().is_none_or(|held| held.id != waits.id)
        {
            let message = format!(
                "request id `{}` belongs to a call that was asked about under another policy or in another place                  (approval `{}`), and that answer does not count here; cancel it, or choose another id",
                live.request_id, waits.id
            );
            return Err(Considering::Refused(live, Refusal::new(ErrorCode::Conflict, message)));
        }
        let live = match &held {
            Some(held) => self.live_of(held, request, call.progress.clone()),
            None => live,
        };
        let considered = Considered {
            in_force,
            verdict,
            held,
        };
        Ok((considered, live))
    }

    /// Waits for the end, as long as a client will: without a limit when a running command is being
    /// streamed to it, else until it must be told to look again later.
    async fn wait(&self, live: &Arc<Live>, call: &ToolCall) -> (Answer, Reached) {
        let mut cancel = call.cancel.clone();
        let (answer, reached) = tokio::select! {
            result = live.ended() => (result.answer(), Reached::End),
            () = self.patience(live, call) => (self.running(live).answer(), Reached::Patience),
            () = cancel.cancelled() => {
                live.cancel();
                (live.ended().await.answer(), Reached::End)
            }
        };
        live.leave();
        // One that joined another has that one's result, under its name.
        let named = answer.structured["request_id"].as_str().map(RequestId::trusted);
        let answer = Answer {
            command: named.or_else(|| Some(live.request_id.clone())),
            ..answer
        };
        (answer, reached)
    }

    /// Resolves when the client must hear something; with a progress token it hears signs of life until then.
    async fn patience(&self, live: &Live, call: &ToolCall) {
        let began = Instant::now();
        loop {
            let left = self.settings.answer_within.saturating_sub(began.elapsed());
            let Some(progress) = &call.progress else {
                return tokio::time::sleep(left).await;
            };
            if left.is_zero() && live.question().is_some() {
                return;
            }
            let pause = if left.is_zero() {
                limits::PROGRESS_EVERY
            } else {
                limits::PROGRESS_EVERY.min(left)
            };
            tokio::time::sleep(pause).await;
            match live.question() {
                Some(question) => progress.report(&format!("waiting for approval {question}")),
                None => progress.report(&format!("running for {} s", live.duration_ms() / 1_000)),
            }
        }
    }

    /// What is to be said of a command that has not ended.
    fn running(&self, live: &Live) -> CommandResult {
        if let Some(question) = live.question() {
            return self.pending(live, &question);
        }
        let (stdout, stderr) = live.streams();
        CommandResult {
            request_id: live.request_id.clone(),
            status: Status::Running,
            exit_code: None,
            stdout,
            stderr,
            error: None,
            duration_ms: live.duration_ms(),
            started_at: live.started_at,
            finished_at: None,
            audit_id: None,
            sandbox: Vec::new(),
            approval_id: None,
            page: None,
        }
    }

    pub(super) async fn status(&self, admitted: &Admitted, call: &ToolCall) -> Answer {
        let status = match request::read_status(&call.arguments) {
            Ok(status) => status,
            Err(refusal) => return self.refused(self.ports.ids.request(), refusal).answer(),
        };
        let owner = &admitted.caller().credential;
        if let Some(live) = self.commands.find(owner, &status.request_id) {
            return self.look(&live, &status).await.answer();
        }
        let stored = self.ports.record.command(owner, &status.request_id).await;
        // A call just ahead of this one may still be looked up; it has entered once that is done.
        drop(self.lookups.write().await);
        if let Some(live) = self.commands.find(owner, &status.request_id) {
            return self.look(&live, &status).await.answer();
        }
        let result = match stored {
            Ok(Some(stored)) => self.stored(admitted, &stored, Some(&status)).await,
            Ok(None) => self.refused(status.request_id.clone(), unknown(&status.request_id)),
            Err(error) => self.refused(status.request_id.clone(), unrecorded(&error)),
        };
        result.answer()
    }

    async fn look(&self, live: &Live, status: &StatusRequest) -> CommandResult {
        // A longer wait is cut to what policy lets any call take.
        let wait = status.wait.min(self.settings.answer_within);
        let end = if wait > Duration::ZERO {
            tokio::time::timeout(wait, live.ended()).await.ok()
        } else {
            live.end()
        };
        let mut result = end.map_or_else(|| self.running(live), |end| CommandResult::clone(&end));
        if let Some(page) = status.page {
            live.fill_page(&mut result, status.stream, page);
        }
        result
    }

    pub(super) async fn cancel(&self, admitted: &Admitted, call: &ToolCall) -> Answer {
        let request_id = match request::read_cancel(&call.arguments) {
            Ok(request_id) => request_id,
            Err(refusal) => return self.refused(self.ports.ids.request(), refusal).answer(),
        };
        let owner = &admitted.caller().credential;
        if let Some(live) = self.commands.find(owner, &request_id) {
            live.cancel();
            return live.ended().await.answer();
        }
        let stored = self.ports.record.command(owner, &request_id).await;
        // A call just ahead of this one may have entered meanwhile.
        if let Some(live) = self.commands.find(owner, &request_id) {
            live.cancel();
            return live.ended().await.answer();
        }
        let result = match stored {
            Ok(Some(stored)) => match self.cancel_stored(admitted, &stored).await {
                Ok(Some(result)) => result,
                Ok(None) => self.stored(admitted, &stored, None).await,
                Err(error) => self.refused(request_id.clone(), unrecorded(&error)),
            },
            Ok(None) => self.refused(request_id.clone(), unknown(&request_id)),
            Err(error) => self.refused(request_id.clone(), unrecorded(&error)),
        };
        result.answer()
    }

    /// What became of a command, for a client that asks again; waits for it like its own call would.
    pub(super) async fn recall(&self, admitted: &Admitted, command: RequestId) -> Answer {
        let owner = &admitted.caller().credential;
        if let Some(live) = self.commands.find(owner, &command) {
            let end = tokio::time::timeout(self.settings.answer_within, live.ended()).await;
            return end.map_or_else(|_| self.running(&live).answer(), |result| result.answer());
        }
        let result = match self.ports.record.command(owner, &command).await {
            Ok(Some(stored)) => self.stored(admitted, &stored, None).await,
            Ok(None) => self.refused(command.clone(), unknown(&command)),
            Err(error) => self.refused(command, unrecorded(&error)),
        };
        result.answer()
    }

    /// The answer a request id already has: from this process, or from the record.
    async fn earlier(&self, admitted: &Admitted, request: &CommandRequest, live: &Arc<Live>) -> Option<Earlier> {
        let owner = &admitted.caller().credential;
        if self.commands.find(owner, &live.request_id).is_some() {
            return None;
        }
        let refusal = match self.ports.record.command(owner, &live.request_id).await {
            Ok(None) => return None,
            Ok(Some(stored)) if stored.digest == request.digest => {
                if stored.end.is_none()
                    && let Ok(Some(question)) = self.ports.board.of_command(owner, &live.request_id).await
                    && parks(&question)
                    && question.state() != ApprovalState::Applied
                {
                    return Some(Earlier::Waits(Box::new(question)));
                }
                let result = self.stored(admitted, &stored, None).await;
                return Some(Earlier::Repeated(result.answer()));
            }
            Ok(Some(_)) => conflict(&live.request_id),
            Err(error) => unrecorded(&error),
        };
        let answer = self.refuse_entered(admitted, request, live, refusal).await;
        Some(Earlier::Refused(answer))
    }

    /// Refuses a request that was read but not entered; recorded, though its id names another.
    async fn refuse_entered(
        &self,
        admitted: &Admitted,
        request: &CommandRequest,
        live: &Arc<Live>,
        refusal: Refusal,
    ) -> Answer {
        let in_force = self.in_force();
        let snapshot = in_force.snapshot.clone();
        let audit = CommandAuditRecord::of(
            live.request_id.clone(),
            request,
            &[],
            None,
            snapshot,
            &self.ports.redactor,
        );
        let mut trace = self.trace(admitted, live.correlation_id.clone());
        trace.step(Step::Receive, self.received(admitted, request, live));
        self.refuse_aside(trace, &audit, live.request_id.clone(), refusal).await
    }

    async fn refuse_unreadable(
        &self,
        admitted: &Admitted,
        tool: CommandTool,
        call: &ToolCall,
        refusal: Refusal,
    ) -> Answer {
        let request_id = self.ports.ids.request();
        let audit = CommandAuditRecord::unreadable(request_id.clone(), tool.name(), self.in_force().snapshot.clone());
        // Names nobody checked: as long as a message may be, and perhaps values that went to the wrong place.
        let shown = |name: &String| {
            self.ports
                .redactor
                .redact_text(name)
                .chars()
                .take(64)
                .collect::<String>()
        };
        let fields: Vec<_> = call.arguments.keys().take(64).map(shown).collect();
        let received = self
            .with_origin(Object::new(), &call.origin)
            .text("request_id", request_id.as_str())
            .text("tool", tool.name())
            .texts("fields", fields.iter().map(String::as_str))
            .text("credential", admitted.caller().credential.as_str())
            .text("transport", admitted.caller().transport.as_str())
            .finish();
        let mut trace = self.trace(admitted, self.ports.ids.correlation());
        trace.step(Step::Receive, received);
        self.refuse_aside(trace, &audit, request_id, refusal).await
    }

    /// Records a refusal that has no row of its own among the commands.
    async fn refuse_aside(
        &self,
        mut trace: Trace,
        audit: &CommandAuditRecord,
        request_id: RequestId,
        refusal: Refusal,
    ) -> Answer {
        let mut result = self.refused(request_id, refusal);
        let audit_id = self.ports.ids.event();
        let payload = {
            let message = result
                .error
                .as_ref()
                .map(|error| self.ports.redactor.redact_text(&error.message));
            let end = crate::audit::command::End {
                status: result.status,
                error_code: result.error.as_ref().map(|error| error.code.name()),
                error_message: message.as_deref(),
                exit_code: None,
                duration_ms: 0,
                sandbox: &[],
            };
            audit.closed(&audit_id, self.ports.clock.now(), &end)
        };
        trace.close(Step::Complete(result.status), audit_id.clone(), payload);
        let change = crate::audit::Change {
            events: trace.take(),
            ..crate::audit::Change::default()
        };
        match self.commit(change).await {
            Ok(_) => result.audit_id = Some(audit_id),
            Err(error) => result.error = Some(unrecorded(&error).into()),
        }
        result.answer()
    }

    pub(super) fn refused(&self, request_id: RequestId, refusal: Refusal) -> CommandResult {
        CommandResult::refused(request_id, self.ports.clock.now(), refusal)
    }

    /// A command that is open in another process of this state directory.
    pub(super) fn elsewhere(&self, stored: &StoredCommand) -> CommandResult {
        let now = self.ports.clock.now();
        let duration = now.as_millis() - stored.opened_at.as_millis();
        CommandResult {
            status: Status::Running,
            error: None,
            duration_ms: u64::try_from(duration).unwrap_or(0),
            started_at: stored.opened_at,
            finished_at: None,
            ..CommandResult::refused(stored.request_id.clone(), now, unknown(&stored.request_id))
        }
    }
}

/// How far waiting for a command came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    End,
    /// The client must hear something; the command goes on.
    Patience,
}

/// What a request id that was used before leads to.
enum Earlier {
    /// The same request again: its first answer.
    Repeated(Answer),
    /// Refused, and recorded as such.
    Refused(Answer),
    /// The same request again, whose question is not settled or whose answer nobody has heard yet.
    Waits(Box<ApprovalRequest>),
}

/// Why a request does not become a command of its own.
enum Considering {
    /// The same is here already.
    Join(Arc<Live>),
    Refused(Arc<Live>, Refusal),
}

fn conflict(id: &RequestId) -> Refusal {
    let message = format!("request id `{id}` was used before with other content; choose another");
    Refusal::new(ErrorCode::Conflict, message)
}

pub(super) fn unknown(id: &RequestId) -> Refusal {
    Refusal::new(
        ErrorCode::NotFound,
        format!("no command of yours has the request id `{id}`"),
    )
}
