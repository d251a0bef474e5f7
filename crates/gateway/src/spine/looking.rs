//! Looking at a command from outside: the answers of `command_status` and `command_cancel`, and what a
//! request id already has.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::Gateway;
use super::answering::fitted;
use super::joining::{LOOK_EVERY, parks};
use super::opening::unrecorded;
use crate::approval::request::ApprovalRequest;
use crate::audit::command::CommandAuditRecord;
use crate::audit::event::ApprovalState;
use crate::audit::payload::Object;
use crate::audit::redact::Redactor;
use crate::audit::trace::Trace;
use crate::audit::{RecordError, StoredCommand};
use crate::call::Step;
use crate::error::{ErrorCode, Refusal, Status};
use crate::execution::live::Live;
use crate::ids::RequestId;
use crate::policy::places;
use crate::policy::sought::Sought;
use crate::policy::tools::{Ruling, ToolUse};
use crate::service::{Answer, ToolCall};
use crate::session::Admitted;
use crate::tools::exec::glimpse;
use crate::tools::exec::request::{self, CommandRequest, CommandTool, StatusRequest};
use crate::tools::exec::result::CommandResult;

impl Gateway {
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
            return self.look(&live, &status).await;
        }
        let room = self.room_for_kept().await;
        let stored = self.ports.record.command(owner, &status.request_id).await;
        // A call just ahead of this one may still be looked up; it has entered once that is done.
        drop(self.lookups.write().await);
        if let Some(live) = self.commands.find(owner, &status.request_id) {
            drop(room);
            return self.look(&live, &status).await;
        }
        let result = match stored {
            Ok(Some(stored)) => self.stored(admitted, &stored, Some(&status)).await,
            Ok(None) => self.refused(status.request_id.clone(), unknown(&status.request_id)),
            Err(error) => self.refused(status.request_id.clone(), unrecorded(&error)),
        };
        fitted(result, room)
    }

    async fn look(&self, live: &Live, status: &StatusRequest) -> Answer {
        // A longer wait is cut to what policy lets any call take.
        let wait = status.wait.min(self.settings.answer_within);
        let end = if wait > Duration::ZERO {
            tokio::time::timeout(wait, live.ended()).await.ok()
        } else {
            live.end()
        };
        let told = live.output_bytes().max(end.as_ref().map_or(0, |end| end.text_bytes()));
        let room = self.room_for(told).await;
        let mut result = end.map_or_else(|| self.running(live), |end| live.told(&end));
        if let Some(page) = status.page {
            live.fill_page(&mut result, status.stream, page);
        }
        fitted(result, room)
    }

    pub(super) async fn cancel(&self, admitted: &Admitted, call: &ToolCall) -> Answer {
        let request_id = match self
            .held_back(admitted, call)
            .and_then(|()| request::read_cancel(&call.arguments))
        {
            Ok(request_id) => request_id,
            Err(refusal) => return self.refused(self.ports.ids.request(), refusal).answer(),
        };
        let result = self.cancel_one(admitted, &request_id).await;
        let room = self.room_for(result.text_bytes()).await;
        fitted(result, room)
    }

    /// Ends a command and gives what it came to.
    pub(super) async fn cancel_one(&self, admitted: &Admitted, request_id: &RequestId) -> CommandResult {
        if let Some(live) = self.commands.find(&admitted.caller().credential, request_id) {
            live.cancel();
            let end = live.ended().await;
            return live.told(&end);
        }
        let cancelled = self.cancel_kept(admitted, request_id).await;
        cancelled.unwrap_or_else(|error| self.refused(request_id.clone(), unrecorded(&error)))
    }

    /// The same for one that is not at work here: it waits in the store, or another process works on it.
    async fn cancel_kept(&self, admitted: &Admitted, request_id: &RequestId) -> Result<CommandResult, RecordError> {
        let owner = &admitted.caller().credential;
        let stored = self.ports.record.command(owner, request_id).await?;
        // A call just ahead of this one may have entered meanwhile.
        if let Some(live) = self.commands.find(owner, request_id) {
            live.cancel();
            let end = live.ended().await;
            return Ok(live.told(&end));
        }
        let Some(stored) = stored else {
            return Ok(self.refused(request_id.clone(), unknown(request_id)));
        };
        if let Some(result) = self.cancel_stored(admitted, &stored).await? {
            return Ok(result);
        }
        if stored.open.is_none() {
            return Ok(self.stored(admitted, &stored, None).await);
        }
        self.cancel_elsewhere(admitted, request_id).await
    }

    /// What became of a command, for a client that asks again; waits for it like its own call would.
    pub(super) async fn recall(&self, admitted: &Admitted, command: RequestId, patience: Duration) -> Answer {
        let owner = &admitted.caller().credential;
        if let Some(live) = self.commands.find(owner, &command) {
            let end = tokio::time::timeout(patience.min(self.settings.answer_within), live.ended()).await;
            return match end {
                Ok(end) => self.answer_of_end(&live, &end).await,
                Err(_) => Answer {
                    command: Some(live.request_id.clone()),
                    ..self.answer_of_running(&live).await
                },
            };
        }
        let deadline = tokio::time::Instant::now() + patience.min(self.settings.answer_within);
        loop {
            let room = self.room_for_kept().await;
            let stored = match self.ports.record.command(owner, &command).await {
                Ok(Some(stored)) => stored,
                Ok(None) => return self.refused(command.clone(), unknown(&command)).answer(),
                Err(error) => return self.refused(command, unrecorded(&error)).answer(),
            };
            let result = self.stored(admitted, &stored, None).await;
            // It runs in another process, perhaps on another node, or waits there; nobody tells us when it ends.
            let goes_on = matches!(result.status, Status::Running | Status::Pending);
            if !goes_on || tokio::time::Instant::now() + LOOK_EVERY > deadline {
                return fitted(result, room);
            }
            drop(room);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// What the same request is known again by: its content, and the directory that it means. Servers of several
    /// workspaces may share a record, and `ls` in one is not `ls` in the other.
    pub(super) fn known_by(&self, request: &CommandRequest) -> String {
        let directory = places::wanted(&self.in_force().policy.places, request.cwd.as_deref());
        let content = json!({"request": request.digest, "directory": directory.to_string_lossy()});
        self.ports.digests.digest(&content)
    }

    /// The answer a request id already has: from this process, or from the record, where one of an earlier version is
    /// known by a digest without a key.
    pub(super) async fn earlier(
        &self,
        admitted: &Admitted,
        request: &CommandRequest,
        live: &Arc<Live>,
    ) -> Option<Earlier> {
        let owner = &admitted.caller().credential;
        if self.commands.find(owner, &live.request_id).is_some() {
            return None;
        }
        let refusal = match self.ports.record.command(owner, &live.request_id).await {
            Ok(None) => return None,
            Ok(Some(stored)) if stored.digest == live.digest || stored.digest == request.digest => {
                if stored.end.is_none()
                    && let Ok(Some(question)) = self.ports.board.of_command(owner, &live.request_id).await
                    && parks(&question)
                    && question.state() != ApprovalState::Applied
                {
                    return Some(Earlier::Waits(Box::new(question)));
                }
                let result = self.stored(admitted, &stored, None).await;
                return Some(Earlier::Repeated(Box::new(result)));
            }
            Ok(Some(_)) => conflict(&live.request_id),
            Err(error) => unrecorded(&error),
        };
        let answer = self.refuse_entered(admitted, request, live, refusal).await;
        Some(Earlier::Refused(answer))
    }

    /// Refuses a request that was read but not entered; recorded, though its id names another.
    pub(super) async fn refuse_entered(
        &self,
        admitted: &Admitted,
        request: &CommandRequest,
        live: &Arc<Live>,
        refusal: Refusal,
    ) -> Answer {
        let in_force = self.in_force();
        let snapshot = in_force.snapshot_for(admitted.caller());
        let Sought { programs, cwd } = in_force.sought(request);
        let audit = CommandAuditRecord::of(
            live.request_id.clone(),
            request,
            &programs,
            &cwd,
            snapshot,
            live.redactor(&self.ports.redactor),
        );
        let mut trace = self.trace(admitted, live.correlation_id.clone());
        trace.step(Step::Receive, self.received(admitted, request, live, None));
        let redactor = live.redactor(&self.ports.redactor);
        self.refuse_aside(trace, &audit, live.request_id.clone(), refusal, redactor)
            .await
    }

    pub(super) async fn refuse_unreadable(
        &self,
        admitted: &Admitted,
        tool: &CommandTool,
        call: &ToolCall,
        refusal: Refusal,
    ) -> Answer {
        // A declared tool may have an argument of that name and another meaning.
        let chosen = match tool {
            CommandTool::Declared(_) => None,
            CommandTool::ExecuteCommand | CommandTool::ExecuteProcess | CommandTool::RunCommand => {
                request::chosen_id(&call.arguments)
            }
        };
        let request_id = chosen.unwrap_or_else(|| self.ports.ids.request());
        // Names nobody checked: as long as a message may be, and perhaps values that went to the wrong place.
        let own = self.redactor_of(call);
        let redactor = own.as_ref().unwrap_or(&self.ports.redactor);
        let in_force = self.in_force();
        let seen = glimpse::of(tool, &call.arguments);
        let Sought { programs, cwd } = in_force.sought(&seen);
        let snapshot = in_force.snapshot_for(admitted.caller());
        let audit = CommandAuditRecord::of(request_id.clone(), &seen, &programs, &cwd, snapshot, redactor);
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
        let mut trace = self.trace(admitted, admitted.caller().correlation(&self.ports.ids));
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
                kept_digest: None,
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

/// What a request id that was used before leads to.
pub(super) enum Earlier {
    /// The same request again: its first result.
    Repeated(Box<CommandResult>),
    /// Refused, and recorded as such.
    Refused(Answer),
    /// The same request again, whose question is not settled or whose answer nobody has heard yet.
    Waits(Box<ApprovalRequest>),
}

pub(super) fn conflict(id: &RequestId) -> Refusal {
    let message = format!("request id `{id}` was used before with other content; choose another");
    Refusal::new(ErrorCode::Conflict, message)
}

pub(super) fn unknown(id: &RequestId) -> Refusal {
    Refusal::new(
        ErrorCode::NotFound,
        format!("no command of yours has the request id `{id}`"),
    )
}
