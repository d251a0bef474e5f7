//! The end of a call: its result, and the record of it, which is closed before anybody hears.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::Gateway;
use super::keeping::KeptOutput;
use super::opening::unrecorded;
use crate::audit::command::{CommandAuditRecord, End};
use crate::audit::event::ApprovalState;
use crate::audit::trace::Trace;
use crate::audit::{Change, CloseCommand, Committed, RecordError};
use crate::call::Step;
use crate::error::{ADVICE, ErrorCode, Refusal, Status};
use crate::execution::live::Live;
use crate::execution::{Ended, How};
use crate::policy::effective::Layer;
use crate::session::Admitted;
use crate::tools::exec::result::{CommandResult, ResultError};

/// Said of a command whose end waits to be written. The same id finds it afterwards.
const RAN_UNRECORDED: &str = "the command ran, but its end could not be recorded; `command_status` with this `request_id` \
                              tells how it ended once the record can be written";

impl Gateway {
    /// Ends a call that never ran.
    pub(super) async fn refuse(
        self: &Arc<Self>,
        admitted: &Admitted,
        trace: Trace,
        audit: &CommandAuditRecord,
        live: &Arc<Live>,
        refusal: Refusal,
    ) {
        let ended = Ended {
            how: How::NotStarted(refusal),
            layers: Vec::new(),
        };
        self.close(admitted, trace, audit, live, ended).await;
    }

    /// Writes the closing event and publishes the result. When the record cannot be closed the
    /// caller hears that instead: an answer is never ahead of the record.
    pub(super) async fn close(
        self: &Arc<Self>,
        admitted: &Admitted,
        mut trace: Trace,
        audit: &CommandAuditRecord,
        live: &Arc<Live>,
        ended: Ended,
    ) {
        if let How::NotRecorded(error) = &ended.how {
            return self.unwritten(admitted, live, error);
        }
        let mut result = self.result(live, &ended);
        let audit_id = self.ports.ids.event();
        let at = self.ports.clock.now();
        result.audit_id = Some(audit_id.clone());
        let kept = self.kept(live).await;
        let close = self.closing_row(admitted, &trace, live, &result, kept);
        let kept_digest = close.kept().digest().to_hex();
        let message = result
            .error
            .as_ref()
            .map(|error| live.redactor(&self.ports.redactor).redact_text(&error.message));
        let end = End {
            status: result.status,
            error_code: result.error.as_ref().map(|error| error.code.name()),
            error_message: message.as_deref(),
            exit_code: result.exit_code,
            duration_ms: result.duration_ms,
            sandbox: &result.sandbox,
            kept_digest: Some(&kept_digest),
        };
        trace.close(
            Step::Complete(result.status),
            audit_id.clone(),
            audit.closed(&audit_id, at, &end),
        );
        let change = Change {
            events: trace.take(),
            close: Some(close),
            // Another process may have closed it: its question was taken back there, or this one was taken for dead.
            only_if_open: true,
            ..Change::default()
        };
        let closed = self.commit_patiently(change).await;
        if let Ok(Committed { last_event: None, .. }) = closed {
            return self.follow_elsewhere(admitted, live).await;
        }
        if let Err(error) = closed {
            let refusal = match not_run(&ended) {
                true => unrecorded(&error),
                false => error.refusal(RAN_UNRECORDED).of_done(),
            };
            // Whoever asks again learns from the record what it came to, once that can be written.
            live.finish(CommandResult::refused(live.request_id.clone(), at, refusal));
            return self.commands.forget(&admitted.caller().credential, live);
        }
        self.publish(admitted, live, result);
    }

    /// Held for as long as a command is conducted: however that ends, also by a panic, the command ends, its place is
    /// free and its record is closed.
    pub(super) fn settling(self: &Arc<Self>, admitted: &Admitted, live: &Arc<Live>) -> Settling {
        Settling {
            gateway: self.clone(),
            admitted: admitted.clone(),
            live: live.clone(),
        }
    }

    /// Nothing ran, because nothing could be written. A question of it lies in the store as before; the same call goes on
    /// with that, or begins anew.
    pub(super) fn unwritten(self: &Arc<Self>, admitted: &Admitted, live: &Arc<Live>, error: &RecordError) {
        live.finish(self.refused(live.request_id.clone(), unrecorded(error)));
        self.commands.forget(&admitted.caller().credential, live);
        if let RecordError::Unavailable(_) = error
            && let Some(room) = self.room_to_look_after()
        {
            let unrun = self
                .clone()
                .close_unrun(admitted.clone(), live.clone(), unrecorded(error));
            tokio::spawn(async move {
                unrun.await;
                drop(room);
            });
        }
    }

    /// Room for looking after one more record that may have been written. Without a bound a client that tries again and
    /// again while the record is away would fill the memory with what is to be looked at.
    pub(super) fn room_to_look_after(&self) -> Option<OwnedSemaphorePermit> {
        let room = self.unsure.clone().try_acquire_owned().ok();
        if room.is_none() {
            tracing::warn!("too many records may be open that nothing runs for; the next start closes them");
        }
        room
    }

    /// It may have been written after all, and only the answer was lost. Then it is open, nothing runs, and nobody else
    /// closes it while this process lives.
    async fn close_unrun(self: Arc<Self>, admitted: Admitted, live: Arc<Live>, refusal: Refusal) {
        let owner = &admitted.caller().credential;
        let stored = loop {
            tokio::time::sleep(crate::limits::RECORD_CLOSE_PATIENCE).await;
            match self.ports.record.command(owner, &live.request_id).await {
                Ok(Some(stored)) => break stored,
                Ok(None) => return,
                Err(_) => {}
            }
        };
        let open = stored.open.as_ref();
        // The same request may have been opened by another process, or goes on here.
        if open.is_none_or(|open| open.correlation_id != live.correlation_id)
            || self.commands.find(owner, &live.request_id).is_some()
        {
            return;
        }
        let question = self.ports.board.of_command(owner, &live.request_id).await;
        if !matches!(&question, Ok(question) if question.as_ref().is_none_or(|it| it.state() == ApprovalState::Applied))
        {
            return;
        }
        if let Some((change, _)) = self.closing_stored(&admitted, &stored, refusal) {
            drop(self.close_later(change));
        }
    }

    fn publish(&self, admitted: &Admitted, live: &Arc<Live>, result: CommandResult) {
        tracing::Span::current().record("status", result.status.as_str());
        live.finish(result);
        self.commands.ended(&admitted.caller().credential, live);
    }

    fn result(&self, live: &Live, ended: &Ended) -> CommandResult {
        let (status, exit_code, error) = outcome(&ended.how, live);
        let (stdout, stderr) = live.facts();
        CommandResult {
            request_id: live.request_id.clone(),
            status,
            exit_code,
            stdout,
            stderr,
            error,
            duration_ms: if not_run(ended) { 0 } else { live.duration_ms() },
            started_at: live.started_at,
            finished_at: Some(self.ports.clock.now().max(live.started_at)),
            audit_id: None,
            sandbox: ended.layers.iter().map(|layer| Layer::as_str(*layer)).collect(),
            approval_id: None,
            page: None,
        }
    }

    fn closing_row(
        &self,
        admitted: &Admitted,
        trace: &Trace,
        live: &Live,
        result: &CommandResult,
        kept: KeptOutput,
    ) -> CloseCommand {
        let heads = (kept.stdout_head, kept.stderr_head);
        let facts = result.kept_facts(heads, &self.ports.ids.salt(), live.redactor(&self.ports.redactor));
        CloseCommand {
            owner: admitted.caller().credential.clone(),
            request_id: live.request_id.clone(),
            digest: live.digest.clone(),
            opened_at: live.started_at,
            correlation_id: trace.correlation_id.clone(),
            result: facts.into_string(),
            stdout: Arc::new(kept.stdout),
            stderr: Arc::new(kept.stderr),
            asked: live.asked(),
        }
    }
}

pub(super) struct Settling {
    gateway: Arc<Gateway>,
    admitted: Admitted,
    live: Arc<Live>,
}

impl Drop for Settling {
    fn drop(&mut self) {
        if !std::thread::panicking() || self.live.end().is_some() {
            return;
        }
        let message = "the command broke off inside the server, and with it whatever it started; see the server's log";
        let refusal = Refusal::new(ErrorCode::InternalError, message);
        let (admitted, live) = (&self.admitted, &self.live);
        live.finish(self.gateway.refused(live.request_id.clone(), refusal.clone()));
        self.gateway.commands.forget(&admitted.caller().credential, live);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let unrun = self
                .gateway
                .clone()
                .close_unrun(admitted.clone(), live.clone(), refusal);
            runtime.spawn(unrun);
        }
    }
}

/// Whether no program was started.
fn not_run(ended: &Ended) -> bool {
    matches!(ended.how, How::NotStarted(_) | How::NotRecorded(_))
}

fn outcome(how: &How, live: &Live) -> (Status, Option<i32>, Option<ResultError>) {
    let failed = |code: ErrorCode, exit: Option<i32>, message: String| {
        let refusal = Refusal::new(code, message);
        (refusal.status(), exit, Some(refusal.into()))
    };
    let limit = |code: ErrorCode, exit: &Option<i32>, more: &str| {
        let message = format!("{}; {more}", code.template());
        failed(code, *exit, message)
    };
    match how {
        How::Exited(0) => (Status::Ok, Some(0), None),
        How::Exited(code) => {
            let message = format!("the command ended with status {code}");
            let refusal = match live.advice() {
                None => Refusal::new(ErrorCode::CommandExitNonZero, message),
                Some(advice) => {
                    let message = format!("{message}; {advice}");
                    Refusal::new(ErrorCode::CommandExitNonZero, message).with(ADVICE, advice)
                }
            };
            (refusal.status(), Some(*code), Some(refusal.into()))
        }
        How::Signalled(signal) => {
            let message = format!("the command was ended by {}", signal_name(*signal));
            let refusal = Refusal::new(ErrorCode::CommandExecutionFailed, message).with("signal", *signal);
            (refusal.status(), None, Some(refusal.into()))
        }
        How::TimedOut => {
            let message = format!(
                "the command ran past its time limit and was ended after {} ms, with everything it started; \
                 ask for more time if it needs it",
                live.duration_ms()
            );
            failed(ErrorCode::CommandTimeout, None, message)
        }
        How::Cancelled => failed(ErrorCode::Cancelled, None, ErrorCode::Cancelled.template().to_owned()),
        How::MemoryLimit(exit) => limit(
            ErrorCode::MemoryLimitExceeded,
            exit,
            "it was ended, or a part of it; the limit is `command_policy.memory_limit`",
        ),
        How::ProcessLimit(exit) => limit(
            ErrorCode::ProcessLimitExceeded,
            exit,
            "those beyond the limit were not started; it is `command_policy.pids_limit`",
        ),
        How::CpuLimit(exit) => limit(
            ErrorCode::CpuLimitExceeded,
            exit,
            "it was ended; the limit is the time it may take on each core of `command_policy.cpu_limit`",
        ),
        How::Lost(refusal) | How::NotStarted(refusal) => (refusal.status(), None, Some(refusal.clone().into())),
        How::NotRecorded(error) => {
            let refusal = unrecorded(error);
            (refusal.status(), None, Some(refusal.into()))
        }
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal} ({name})")
}
