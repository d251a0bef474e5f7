//! Waiting for a command, and looking at one from outside: the answers of the command tools,
//! `command_status` and `command_cancel`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::Gateway;
use super::asking::unrecorded;
use crate::audit::StoredCommand;
use crate::audit::command::CommandAuditRecord;
use crate::audit::payload::{Object, Payload};
use crate::call::Step;
use crate::clock::Timestamp;
use crate::commands::NotEntered;
use crate::error::{ErrorCode, Refusal, Status};
use crate::execution::live::Live;
use crate::execution::output::Output;
use crate::ids::{EventId, RequestId};
use crate::limits;
use crate::policy::effective::Layer;
use crate::policy::tools::{Ruling, ToolUse};
use crate::service::{Answer, ToolCall};
use crate::session::Admitted;
use crate::tools::exec::request::{self, CommandRequest, CommandTool, StatusRequest, Stream};
use crate::tools::exec::result::{CommandResult, ResultError, StreamResult};

impl Gateway {
    /// A call to one of the command tools.
    pub(super) async fn submit(
        self: Arc<Self>,
        admitted: Admitted,
        tool: CommandTool,
        call: ToolCall,
    ) -> Result<Answer, Refusal> {
        let request = match request::read(tool, &call.arguments) {
            Ok(request) => request,
            Err(refusal) => return Ok(self.refuse_unreadable(&admitted, tool, &call, refusal).await),
        };
        let request_id = request.request_id.clone().unwrap_or_else(|| self.ports.ids.request());
        let live = Arc::new(Live::new(
            request_id,
            request.digest.clone(),
            self.ports.clock.now(),
            self.settings.output_limit,
            call.progress.clone(),
        ));
        let looking = self.lookups.read().await;
        // Only an id that the caller chose can have been used before.
        if request.request_id.is_some()
            && let Some(answer) = self.earlier(&admitted, &request, &live).await
        {
            return Ok(answer);
        }
        let entered = self.commands.enter(&admitted.caller().credential, &live);
        drop(looking);
        match entered {
            Ok(()) => {
                tokio::spawn(self.clone().conduct(admitted, request, live.clone()));
                Ok(self.wait(&live, call).await)
            }
            Err(NotEntered::Known(known)) if known.digest == request.digest => Ok(self.wait(&known, call).await),
            Err(NotEntered::Known(_)) => Ok(self
                .refuse_entered(&admitted, &request, &live, conflict(&live.request_id))
                .await),
            Err(NotEntered::Full) => {
                let message = format!(
                    "{} calls are already in flight; try again when some have ended",
                    limits::CALLS_IN_FLIGHT_MAX
                );
                Ok(self
                    .refuse_entered(&admitted, &request, &live, Refusal::new(ErrorCode::QueueFull, message))
                    .await)
            }
            Err(NotEntered::Closing) => {
                let refusal = Refusal::new(ErrorCode::Cancelled, "the server is stopping");
                Ok(self.refuse_entered(&admitted, &request, &live, refusal).await)
            }
        }
    }

    /// Waits for the end, as long as a client will: without a limit when it is being streamed to,
    /// else until it must be told to look again later.
    async fn wait(&self, live: &Arc<Live>, call: ToolCall) -> Answer {
        let mut cancel = call.cancel.clone();
        let patience = async {
            if live.is_streamed() {
                loop {
                    tokio::time::sleep(limits::PROGRESS_EVERY).await;
                    live.report(&format!("running for {} s", live.duration_ms() / 1_000));
                }
            }
            tokio::time::sleep(self.settings.answer_within).await;
        };
        tokio::select! {
            result = live.ended() => return result.answer(),
            () = patience => return self.running(live).answer(),
            () = cancel.cancelled() => live.cancel(),
        }
        live.ended().await.answer()
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

    pub(super) async fn status(&self, admitted: &Admitted, call: &ToolCall) -> Result<Answer, Refusal> {
        let status = match self
            .held_back(admitted, call)
            .and_then(|()| request::read_status(&call.arguments))
        {
            Ok(status) => status,
            Err(refusal) => return Ok(self.refused(self.ports.ids.request(), refusal).answer()),
        };
        let owner = &admitted.caller().credential;
        if let Some(live) = self.commands.find(owner, &status.request_id) {
            return Ok(self.look(&live, &status).await.answer());
        }
        let stored = self.ports.record.command(owner, &status.request_id).await;
        // A call just ahead of this one may still be looked up; it has entered once that is done.
        drop(self.lookups.write().await);
        if let Some(live) = self.commands.find(owner, &status.request_id) {
            return Ok(self.look(&live, &status).await.answer());
        }
        let result = match stored {
            Ok(Some(stored)) => restore(&stored, Some(&status)).unwrap_or_else(|| self.elsewhere(&stored)),
            Ok(None) => self.refused(status.request_id.clone(), unknown(&status.request_id)),
            Err(error) => self.refused(status.request_id.clone(), unrecorded(&error)),
        };
        Ok(result.answer())
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

    pub(super) async fn cancel(&self, admitted: &Admitted, call: &ToolCall) -> Result<Answer, Refusal> {
        let request_id = match self
            .held_back(admitted, call)
            .and_then(|()| request::read_cancel(&call.arguments))
        {
            Ok(request_id) => request_id,
            Err(refusal) => return Ok(self.refused(self.ports.ids.request(), refusal).answer()),
        };
        let owner = &admitted.caller().credential;
        if let Some(live) = self.commands.find(owner, &request_id) {
            live.cancel();
            return Ok(live.ended().await.answer());
        }
        let stored = self.ports.record.command(owner, &request_id).await;
        // A call just ahead of this one may have entered meanwhile.
        if let Some(live) = self.commands.find(owner, &request_id) {
            live.cancel();
            return Ok(live.ended().await.answer());
        }
        let result = match stored {
            Ok(Some(stored)) => restore(&stored, None).unwrap_or_else(|| self.elsewhere(&stored)),
            Ok(None) => self.refused(request_id.clone(), unknown(&request_id)),
            Err(error) => self.refused(request_id.clone(), unrecorded(&error)),
        };
        Ok(result.answer())
    }

    /// The answer a request id already has: from this process, or from the record.
    async fn earlier(&self, admitted: &Admitted, request: &CommandRequest, live: &Arc<Live>) -> Option<Answer> {
        let owner = &admitted.caller().credential;
        if self.commands.find(owner, &live.request_id).is_some() {
            return None;
        }
        let refusal = match self.ports.record.command(owner, &live.request_id).await {
            Ok(None) => return None,
            Ok(Some(stored)) if stored.digest == request.digest => {
                return Some(
                    restore(&stored, None)
                        .unwrap_or_else(|| self.elsewhere(&stored))
                        .answer(),
                );
            }
            Ok(Some(_)) => conflict(&live.request_id),
            Err(error) => unrecorded(&error),
        };
        Some(self.refuse_entered(admitted, request, live, refusal).await)
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
            &self.ports.redactor,
        );
        let received = self.received(admitted, request, live);
        self.refuse_aside(admitted, &audit, received, live.request_id.clone(), refusal)
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
        let shown = |name: &String| {
            self.ports
                .redactor
                .redact_text(name)
                .chars()
                .take(64)
                .collect::<String>()
        };
        let fields: Vec<_> = call.arguments.keys().take(64).map(shown).collect();
        let received = Object::new()
            .text("request_id", request_id.as_str())
            .text("tool", tool.name())
            .texts("fields", fields.iter().map(String::as_str))
            .text("credential", admitted.caller().credential.as_str())
            .text("transport", admitted.caller().transport.as_str())
            .finish();
        self.refuse_aside(admitted, &audit, received, request_id, refusal).await
    }

    /// Records a refusal that has no row of its own among the commands.
    async fn refuse_aside(
        &self,
        admitted: &Admitted,
        audit: &CommandAuditRecord,
        received: Payload,
        request_id: RequestId,
        refusal: Refusal,
    ) -> Answer {
        let mut trace = self.trace(admitted);
        trace.step(Step::Receive, received);
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
            open: None,
            close: None,
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

/// A result put together from what the store kept; none while the command is open.
fn restore(stored: &StoredCommand, status: Option<&StatusRequest>) -> Option<CommandResult> {
    let end = stored.end.as_ref()?;
    let facts: Value = serde_json::from_str(&end.result).unwrap_or(Value::Null);
    let text = |name: &str| facts[name].as_str();
    let stream = |name: &str, kept: &[u8]| {
        let head = usize::try_from(facts["kept"][format!("{name}_head")].as_u64().unwrap_or(0))
            .unwrap_or(0)
            .min(kept.len());
        let total = facts[format!("{name}_bytes")]
            .as_u64()
            .unwrap_or(0)
            .max(kept.len() as u64);
        Output::restored(kept[..head].to_vec(), kept[head..].to_vec(), total)
    };
    let outputs = (stream("stdout", &end.stdout), stream("stderr", &end.stderr));
    let time = |name: &str| text(name).and_then(|text| Timestamp::parse(text).ok());
    let mut result = CommandResult {
        request_id: stored.request_id.clone(),
        status: text("status").and_then(Status::parse).unwrap_or(Status::Failed),
        exit_code: facts["exit_code"].as_i64().and_then(|code| i32::try_from(code).ok()),
        stdout: StreamResult::of(&outputs.0),
        stderr: StreamResult::of(&outputs.1),
        error: text("error_code").and_then(ErrorCode::parse).map(|code| ResultError {
            code,
            message: text("error_message").unwrap_or_default().to_owned(),
            details: facts["error_details"].as_object().cloned().unwrap_or_default(),
        }),
        duration_ms: facts["duration_ms"].as_u64().unwrap_or(0),
        started_at: time("started_at").unwrap_or(stored.opened_at),
        // What the sweeper closed has no end of its own but the moment it was closed.
        finished_at: time("finished_at").or_else(|| time("timestamp")),
        audit_id: text("audit_id").map(EventId::trusted),
        sandbox: facts["sandbox"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|name| Layer::parse(name.as_str()?))
            .map(Layer::as_str)
            .collect(),
        page: None,
    };
    if let Some((status, page)) = status.and_then(|status| Some((status, status.page?))) {
        let output = match status.stream {
            Stream::Stdout => &outputs.0,
            Stream::Stderr => &outputs.1,
        };
        result.show_page(output, status.stream, page);
    }
    Some(result)
}
