//! What the record says about a call before it runs: what was asked, what policy found, who was
//! asked and what they answered.

use serde_json::{Value, json};

use super::Gateway;
use crate::approval::{Cleared, Decision, Settled};
use crate::audit::command::{CommandAuditRecord, End};
use crate::audit::event::{Actor, ActorType, ApprovalState};
use crate::audit::trace::Trace;
use crate::audit::{Change, OpenCommand, RecordError, chain};
use crate::call::Step;
use crate::error::{ErrorCode, Refusal, Status};
use crate::execution::live::Live;
use crate::policy::decide::{Question, Rule, Verdict};
use crate::policy::plan::{Plan, PlannedAct};
use crate::session::Admitted;
use crate::tools::exec::request::{Act, CommandRequest};

impl Gateway {
    pub(super) fn received(&self, admitted: &Admitted, request: &CommandRequest, live: &Live) -> Value {
        let redactor = &self.ports.redactor;
        let (command, arguments) = match &request.act {
            Act::Line(line) => (redactor.redact_text(line), Vec::new()),
            Act::Argv { file, args } => (redactor.redact_text(file), redactor.redact_args(args)),
        };
        let mut payload = json!({
            "request_id": live.request_id.as_str(),
            "tool": request.tool.name(),
            "command": command,
            "arguments": arguments,
            "credential": admitted.caller().credential.as_str(),
            "transport": admitted.caller().transport.as_str(),
            "digest": request.digest,
        });
        let mut note = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                payload[name] = value;
            }
        };
        note("cwd", request.cwd.as_deref().map(|cwd| json!(redactor.redact_text(cwd))));
        note("timeout_ms", request.timeout.map(|timeout| json!(timeout.as_millis() as u64)));
        // Of what may hold secrets only the shape is kept.
        note("input_bytes", request.input.as_ref().map(|input| json!(input.len())));
        note("env_names", (!request.env.is_empty()).then(|| json!(request.env.keys().collect::<Vec<_>>())));
        note("justification", request.justification.as_deref().map(|text| json!(redactor.redact_text(text))));
        note("sandbox", request.sandbox.map(|mode| json!(mode.as_str())));
        note("network", request.network.map(|network| json!(network.as_str())));
        note("requested_at", request.requested_at.map(|at| json!(at.to_string())));
        note("caller_id", request.caller_id.as_deref().map(|id| json!(redactor.redact_text(id))));
        payload
    }

    pub(super) fn validated(&self, verdict: &Verdict, snapshot: &Value) -> Value {
        let Rule { name, source, reason } = verdict.rule();
        let auto_approved = matches!(verdict, Verdict::Allow(permit) if permit.auto_approved);
        json!({
            "verdict": verdict.word(), "rule": name, "source": source, "reason": reason,
            "auto_approved": auto_approved, "policy_digest": snapshot["digest"], "sources": snapshot["sources"],
        })
    }

    pub(super) fn dispatched(&self, cleared: &Cleared) -> Value {
        let plan = cleared.plan();
        json!({
            "programs": program_paths(plan),
            "how": how(plan),
            "cwd": plan.place.cwd.path.to_string_lossy(),
            "root": plan.place.root.to_string_lossy(),
            "timeout_ms": plan.timeout.as_millis() as u64,
            "sandbox": plan.sandbox.as_str(),
            "network": plan.network.as_str(),
        })
    }

    /// The row of the open command, and what its record says if nobody ever closes it.
    pub(super) fn opening(
        &self,
        admitted: &Admitted,
        request: &CommandRequest,
        live: &Live,
        trace: &Trace,
        audit: &CommandAuditRecord,
    ) -> OpenCommand {
        let end = End {
            status: Status::Failed,
            error_code: Some(ErrorCode::Abandoned.name()),
            error_message: Some(ErrorCode::Abandoned.template()),
            exit_code: None,
            duration_ms: 0,
            sandbox: &[],
        };
        OpenCommand {
            owner: admitted.caller().credential.clone(),
            request_id: live.request_id.clone(),
            digest: request.digest.clone(),
            opened_at: live.started_at,
            abandoned: chain::canonical(&audit.ending(&end)),
            correlation_id: trace.correlation_id.clone(),
        }
    }

    /// Writes the question, durably, before anybody is asked.
    pub(super) async fn record_question(
        &self,
        trace: &mut Trace,
        question: &Question,
        opening: OpenCommand,
    ) -> Result<(), Refusal> {
        let redactor = &self.ports.redactor;
        let payload = json!({
            "type": "exec-command",
            "command": redactor.redact_text(&question.command),
            "rule": question.rule.name, "source": question.rule.source, "reason": question.rule.reason,
            "cwd": question.plan().place.cwd.path.to_string_lossy(),
            "arguments_digest": opening.digest,
            "justification": question.justification.as_deref().map(|text| redactor.redact_text(text)),
        });
        trace.approval(Step::Ask, ApprovalState::Pending, None, &payload);
        let change = Change { events: trace.take(), open: Some(opening), close: None };
        self.ports.record.commit(change).await.map(drop).map_err(|error| unrecorded(&error))
    }

    /// Notes the decision; it is written with the next step of the call.
    pub(super) fn record_decision(
        &self,
        admitted: &Admitted,
        trace: &mut Trace,
        settled: Settled,
    ) -> Result<Box<Cleared>, Refusal> {
        let requester = &admitted.caller().actor.id;
        let note = |trace: &mut Trace, step: Step, state: ApprovalState, decision: &Decision| {
            let (by, reason) = match decision {
                Decision::Approved { by, reason } | Decision::Denied { by, reason } => (by, reason),
            };
            let payload = json!({"decided_by": by, "reason": self.ports.redactor.redact_text(reason), "self_approved": by == requester});
            let kind = if by == "nobody" { ActorType::System } else { ActorType::Human };
            trace.approval(step, state, Some(Actor { kind, id: by.clone() }), &payload);
        };
        match settled {
            Settled::Cleared { cleared, decision } => {
                if let Some(decision) = &decision {
                    note(trace, Step::Approve, ApprovalState::Approved, decision);
                }
                Ok(cleared)
            }
            Settled::Refused { refusal, decision } => {
                if let Some(decision) = &decision {
                    note(trace, Step::Deny, ApprovalState::Denied, decision);
                }
                Err(refusal)
            }
        }
    }
}

/// The refusal of a call whose record could not be written.
pub(super) fn unrecorded(error: &RecordError) -> Refusal {
    match error {
        RecordError::RequestIdTaken(id) => {
            Refusal::new(ErrorCode::Conflict, format!("request id `{id}` was used before; choose another"))
        }
        RecordError::Unavailable(_) => {
            Refusal::new(ErrorCode::AuditUnavailable, format!("{error}; nothing was run, try again later"))
        }
    }
}

/// The files that will run, as resolved.
pub(super) fn program_paths(plan: &Plan) -> Vec<String> {
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    match &plan.act {
        PlannedAct::Process { program, .. } => vec![text(&program.path)],
        PlannedAct::Tree { tree, programs } => tree
            .commands()
            .zip(programs)
            .map(|(command, program)| program.as_ref().map_or_else(|| command.name.clone(), |found| text(&found.path)))
            .collect(),
        PlannedAct::Shell { bash, .. } => vec![text(&bash.path)],
    }
}

fn how(plan: &Plan) -> &'static str {
    match plan.act {
        PlannedAct::Process { .. } => "process",
        PlannedAct::Tree { .. } => "line",
        PlannedAct::Shell { .. } => "shell",
    }
}
