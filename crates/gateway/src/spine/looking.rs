//! Waiting for a command, and looking at one from outside: the answers of the command tools,
//! `command_status` and `command_cancel`.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument as _;

use super::Gateway;
use super::asking::unrecorded;
use crate::audit::StoredCommand;
use crate::audit::command::CommandAuditRecord;
use crate::audit::payload::Object;
use crate::audit::redact::Redactor;
use crate::audit::trace::Trace;
use crate::call::Step;
use crate::clock::Timestamp;
use crate::commands::NotEntered;
use crate::error::{ErrorCode, Refusal, Status};
use crate::execution::live::Live;
use crate::ids::RequestId;
use crate::limits;
use crate::policy::tools::{Ruling, ToolUse};
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
        let live = Live::new(
            request_id,
            request.digest.clone(),
            started,
            self.settings.output_limit,
            call.progress.clone(),
            call.origin.clone(),
            self.ports.ids.correlation(),
        );
        let live = Arc::new(live.redacted_by(self.redactor_of(&call)));
        let looking = self.lookups.read().await;
        // Only an id that the caller chose can have been used before.
        if request.request_id.is_some()
            && let Some(earlier) = self.earlier(&admitted, &request, &live).await
        {
            return match earlier {
                Earlier::Repeated(answer) => self.called(admitted.caller(), &call, started, answer).await,
                Earlier::Refused(answer) => answer,
            };
        }
        let entered = self.commands.enter(&admitted.caller().credential, &live);
        drop(looking);
        match entered {
            Ok(()) => {
                tokio::spawn(
                    self.clone()
                        .conduct(admitted.clone(), request, live.clone())
                        .in_current_span(),
                );
                let (answer, reached) = self.wait(&live, &call).await;
                match reached {
                    Reached::End => {}
                    Reached::Patience => self.answered_early(admitted.caller(), &live, &call, &answer).await,
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

    /// Waits for the end, as long as a client will: without a limit when it is being streamed to,
    /// else until it must be told to look again later.
    async fn wait(&self, live: &Arc<Live>, call: &ToolCall) -> (Answer, Reached) {
        let mut cancel = call.cancel.clone();
        let patience = async {
            if live.is_streamed() {
                loop {
                    tokio::time::sleep(limits::PROGRESS_EVERY).await;
                    live.report(&format!("running for {} s", live.duration_ms() / 1_000));
                }
            }
            let within = self.settings.answer_within;
            tokio::time::sleep(call.answer_within.map_or(within, |sooner| sooner.min(within))).await;
        };
        let (answer, reached) = tokio::select! {
            result = live.ended() => (result.answer(), Reached::End),
            () = patience => (self.running(live).answer(), Reached::Patience),
            () = cancel.cancelled() => {
                live.cancel();
                (live.ended().await.answer(), Reached::End)
            }
        };
        let answer = Answer {
            command: Some(live.request_id.clone()),
            ..answer
        };
        (answer, reached)
    }

    /// What is to be said of a command that has not ended.
    fn running(&self, live: &Live) -> CommandResult {
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
            page: None,
        }
    }

    /// What keeps a caller from looking at its commands or ending them. Nobody can be asked about
    /// that, so a tool that needs approval is refused.
    fn held_back(&self, admitted: &Admitted, call: &ToolCall) -> Result<(), Refusal> {
        let in_force = self.in_force();
        let context = in_force.policy.context(admitted.caller());
        let message = match in_force.policy.tools.ruling(&context, &ToolUse::of(&call.tool)) {
            Ruling::Allow => return Ok(()),
            Ruling::Ask(rule) => format!("{}, and nobody can be asked about it", rule.reason),
            Ruling::Deny(rule) | Ruling::Absent(rule) => rule.reason,
        };
        Err(Refusal::new(ErrorCode::PolicyDenied, message))
    }

    pub(super) async fn status(&self, admitted: &Admitted, call: &ToolCall) -> Answer {
        let status = match self
            .held_back(admitted, call)
            .and_then(|()| request::read_status(&call.arguments))
        {
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
            Ok(Some(stored)) => {
                CommandResult::restored(&stored, Some(&status)).unwrap_or_else(|| self.elsewhere(&stored))
            }
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
        let request_id = match self
            .held_back(admitted, call)
            .and_then(|()| request::read_cancel(&call.arguments))
        {
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
            Ok(Some(stored)) => CommandResult::restored(&stored, None).unwrap_or_else(|| self.elsewhere(&stored)),
            Ok(None) => self.refused(request_id.clone(), unknown(&request_id)),
            Err(error) => self.refused(request_id.clone(), unrecorded(&error)),
        };
        result.answer()
    }

    /// What became of a command, for a client that asks again; waits for it like its own call would.
    pub(super) async fn recall(&self, admitted: &Admitted, command: RequestId, patience: Duration) -> Answer {
        let owner = &admitted.caller().credential;
        if let Some(live) = self.commands.find(owner, &command) {
            let end = tokio::time::timeout(patience.min(self.settings.answer_within), live.ended()).await;
            return end.map_or_else(|_| self.running(&live).answer(), |result| result.answer());
        }
        let result = match self.ports.record.command(owner, &command).await {
            Ok(Some(stored)) => CommandResult::restored(&stored, None).unwrap_or_else(|| self.elsewhere(&stored)),
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
                let result = CommandResult::restored(&stored, None).unwrap_or_else(|| self.elsewhere(&stored));
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
        let snapshot = in_force.snapshot_for(admitted.caller());
        let audit = CommandAuditRecord::of(
            live.request_id.clone(),
            request,
            &[],
            None,
            snapshot,
            live.redactor(&self.ports.redactor),
        );
        let mut trace = self.trace(admitted, live.correlation_id.clone());
        trace.step(Step::Receive, self.received(admitted, request, live));
        let redactor = live.redactor(&self.ports.redactor);
        self.refuse_aside(trace, &audit, live.request_id.clone(), refusal, redactor)
            .await
    }

    async fn refuse_unreadable(
        &self,
        admitted: &Admitted,
        tool: CommandTool,
        call: &ToolCall,
        refusal: Refusal,
    ) -> Answer {
        let request_id = self.ports.ids.request();
        let audit = CommandAuditRecord::unreadable(
            request_id.clone(),
            tool.name(),
            self.in_force().snapshot_for(admitted.caller()),
        );
        // Names nobody checked: as long as a message may be, and perhaps values that went to the wrong place.
        let own = self.redactor_of(call);
        let redactor = own.as_ref().unwrap_or(&self.ports.redactor);
        let shown = |name: &String| redactor.redact_text(name).chars().take(64).collect::<String>();
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
        self.refuse_aside(trace, &audit, request_id, refusal, redactor).await
    }

    /// Records a refusal that has no row of its own among the commands.
    async fn refuse_aside(
        &self,
        mut trace: Trace,
        audit: &CommandAuditRecord,
        request_id: RequestId,
        refusal: Refusal,
        redactor: &Redactor,
    ) -> Answer {
        let mut result = self.refused(request_id, refusal);
        let audit_id = self.ports.ids.event();
        let payload = {
            let message = result.error.as_ref().map(|error| redactor.redact_text(&error.message));
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

    fn refused(&self, request_id: RequestId, refusal: Refusal) -> CommandResult {
        CommandResult::refused(request_id, self.ports.clock.now(), refusal)
    }

    /// A command that is open in another process of this state directory.
    fn elsewhere(&self, stored: &StoredCommand) -> CommandResult {
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
}

fn conflict(id: &RequestId) -> Refusal {
    let message = format!("request id `{id}` was used before with other content; choose another");
    Refusal::new(ErrorCode::Conflict, message)
}

fn unknown(id: &RequestId) -> Refusal {
    Refusal::new(
        ErrorCode::NotFound,
        format!("no command of yours has the request id `{id}`"),
    )
}
