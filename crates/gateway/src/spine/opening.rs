//! What the record says about a call before it runs: what was asked, and what policy found.

use std::time::Duration;

use serde_json::{Map, Value};

use super::Gateway;
use super::in_force::InForce;
use crate::approval::Cleared;
use crate::audit::command::{CommandAuditRecord, End};
use crate::audit::invocation::presentable_arguments;
use crate::audit::payload::{Object, Payload};
use crate::audit::redact::Redactor;
use crate::audit::trace::Trace;
use crate::audit::{OpenCommand, RecordError, opened};
use crate::error::{ErrorCode, Refusal, Status};
use crate::execution::live::Live;
use crate::policy::actor::Context;
use crate::policy::decide::{Rule, Verdict};
use crate::policy::effective::{Network, SandboxMode};
use crate::policy::plan::{Plan, PlannedAct};
use crate::policy::sought::Sought;
use crate::session::Admitted;
use crate::tools::exec::request::{Act, CommandRequest, CommandTool};

impl Gateway {
    /// What the record will say of the command in the end, as far as it is known before it runs.
    pub(super) fn audit_record(
        &self,
        admitted: &Admitted,
        request: &CommandRequest,
        live: &Live,
        verdict: &Verdict,
        in_force: &InForce,
    ) -> CommandAuditRecord {
        let Sought { programs, cwd } = match verdict.plan() {
            Some(plan) => Sought {
                programs: plan.program_names(),
                cwd: plan.place.cwd.path.clone(),
            },
            None => in_force.sought(request),
        };
        let mut record = CommandAuditRecord::of(
            live.request_id.clone(),
            request,
            &programs,
            &cwd,
            in_force.snapshot_for(admitted.caller()),
            live.redactor(&self.ports.redactor),
        );
        if let Verdict::Deny(denial) = verdict {
            record.denied_by = Some(denial.rule.clone());
        }
        record
    }

    /// What was asked; `open` is the row that it is open with, if it gets so far.
    pub(super) fn received(
        &self,
        admitted: &Admitted,
        request: &CommandRequest,
        live: &Live,
        open: Option<&OpenCommand>,
    ) -> Payload {
        let redactor = live.redactor(&self.ports.redactor);
        let clean = |text: &Option<String>| text.as_deref().map(|text| redactor.redact_text(text).into_owned());
        let (command, arguments) = match &request.act {
            Act::Line(line) => (redactor.redact_line(line), Vec::new()),
            Act::Argv { file, args } => (redactor.redact_text(file), redactor.redact_args(file, args)),
        };
        let is_all_shown = match &request.act {
            Act::Line(line) => command == line.as_str(),
            Act::Argv { file, args } => command == file.as_str() && arguments == *args,
        };
        // Whoever knows the rest could try out what is not shown until the digest fits.
        let can_be_guessed = !is_all_shown || request.input.is_some() || request.is_fed || !request.env.is_empty();
        // S0: filled in when absent. The other tools have no such argument.
        let requested_at = match &request.tool {
            CommandTool::RunCommand => Some(request.requested_at.unwrap_or(live.started_at)),
            CommandTool::ExecuteCommand | CommandTool::ExecuteProcess | CommandTool::Declared(_) => {
                request.requested_at
            }
        };
        let mut object = self
            .with_origin(Object::new(), &live.origin)
            .text("request_id", live.request_id.as_str())
            .text("tool", request.tool.name())
            .text("command", &command)
            .texts("arguments", arguments.iter().map(String::as_str))
            .text("credential", admitted.caller().credential.as_str())
            .optional_text("job_id", admitted.caller().job_id())
            .optional_text("run_id", admitted.caller().run_id())
            .text("transport", admitted.caller().transport.as_str())
            .optional_text(
                opened::FIELD,
                open.map(|open| open.opened().digest().to_hex()).as_deref(),
            )
            .optional_text("digest", (!can_be_guessed).then_some(&request.digest))
            .optional_text("cwd", clean(&request.cwd).as_deref())
            .optional_text("justification", clean(&request.justification).as_deref())
            .optional_text("caller_id", clean(&request.caller_id).as_deref())
            .optional_text("sandbox", request.sandbox.map(SandboxMode::as_str))
            .optional_text("network", request.network.map(Network::as_str))
            .optional_text("requested_at", requested_at.map(|at| at.to_string()).as_deref());
        if let Some(timeout) = request.timeout {
            object = object.whole("timeout_ms", millis(timeout));
        }
        if let CommandTool::Declared(_) = &request.tool {
            let given = presentable_arguments(redactor, &request.given);
            object = object.part("tool_arguments", &Payload::from(&given));
        }
        // Of what may hold secrets only the shape is kept.
        if let Some(input) = &request.input {
            object = object.whole("input_bytes", i64::try_from(input.len()).unwrap_or(i64::MAX));
        }
        if request.is_fed {
            object = object.flag("input_streamed", true);
        }
        with_env(object, request, redactor).finish()
    }

    pub(super) fn validated(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
        context: &Context<'_>,
        in_force: &InForce,
        live: &Live,
    ) -> Payload {
        let Rule { name, source, reason } = verdict.rule();
        let auto_approved = matches!(verdict, Verdict::Allow(permit) if permit.auto_approved);
        let shares = admitted.caller().shares_correlation();
        let mut object = Object::new().optional_text("request_id", shares.then(|| live.request_id.as_str()));
        if !context.is_plain() {
            object = object.part("policy_keys", &Payload::from(&context.recorded()));
        }
        object
            .text("verdict", verdict.word())
            .text("rule", name)
            .text("source", source)
            .text("reason", reason)
            .flag("auto_approved", auto_approved)
            .text("policy_digest", &in_force.digest)
            .texts("sources", in_force.policy.sources.iter().map(String::as_str))
            .finish()
    }

    pub(super) fn dispatched(&self, admitted: &Admitted, cleared: &Cleared, live: &Live) -> Payload {
        let shares = admitted.caller().shares_correlation();
        let plan = cleared.plan();
        let redactor = live.redactor(&self.ports.redactor);
        let names = plan.program_names();
        let programs: Vec<_> = names.iter().map(|name| redactor.redact_text(name)).collect();
        Object::new()
            .optional_text("request_id", shares.then(|| live.request_id.as_str()))
            .texts("programs", programs.iter().map(|name| &**name))
            .text("how", how(plan))
            .text("cwd", &redactor.redact_text(&plan.place.cwd.path.to_string_lossy()))
            .text("root", &redactor.redact_text(&plan.place.root.to_string_lossy()))
            .whole("timeout_ms", millis(plan.timeout))
            .text("sandbox", plan.sandbox.as_str())
            .text("network", plan.network.as_str())
            .finish()
    }

    /// The row of the open command, and what its record says if nobody ever closes it.
    pub(super) fn opening(
        &self,
        admitted: &Admitted,
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
            kept_digest: None,
        };
        OpenCommand {
            owner: admitted.caller().credential.clone(),
            request_id: live.request_id.clone(),
            digest: live.digest.clone(),
            opened_at: live.started_at,
            abandoned: audit.ending(&end).into_string(),
            correlation_id: trace.correlation_id.clone(),
            asked: live.asked(),
        }
    }
}

/// The variables that a call brings along: their names, and of those that run what they hold.
fn with_env(mut object: Object, request: &CommandRequest, redactor: &Redactor) -> Object {
    if request.env.is_empty() {
        return object;
    }
    let names = redactor.redact_names(request.env.keys().map(String::as_str));
    object = object.texts("env_names", names.iter().map(String::as_str));
    // What runs is no less a command for standing in a variable.
    let variables = request.variables();
    let all = request.env.iter().zip(names);
    let run = all.filter(|((name, value), _)| variables.may_run(name, value));
    let run: Map<String, Value> = run
        .map(|((name, value), shown)| (shown, redactor.redact_variable(name, value, &variables).into()))
        .collect();
    match run.is_empty() {
        true => object,
        false => object.part("env_run", &Payload::from(&Value::Object(run))),
    }
}

/// The refusal of a call whose record could not be written.
pub(super) fn unrecorded(error: &RecordError) -> Refusal {
    match error {
        RecordError::RequestIdTaken(id) => Refusal::new(
            ErrorCode::Conflict,
            format!("request id `{id}` was used before; choose another"),
        ),
        RecordError::SessionMoved
        | RecordError::ApprovalMoved
        | RecordError::JobMoved
        | RecordError::NoPlace
        | RecordError::RunMoved
        | RecordError::DelegationMoved
        | RecordError::TargetMoved
        | RecordError::LeaseTaken(_)
        | RecordError::DeliveryKnown(_)
        | RecordError::SessionNameTaken
        | RecordError::Unavailable(_) => error.refusal("nothing was run, try again later"),
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn how(plan: &Plan) -> &'static str {
    match plan.act {
        PlannedAct::Process { .. } => "process",
        PlannedAct::Tree { .. } => "line",
        PlannedAct::Shell { .. } => "shell",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::redact::Config;

    /// Two of them are two variables in the record too.
    #[test]
    fn a_token_that_is_the_name_of_a_variable_is_not_recorded() {
        let tokens = [
            "ghp_hunter2hunter2hunter2hunter2hunter2h",
            "ghp_hunter3hunter3hunter3hunter3hunter3h",
        ];
        let mut request = CommandRequest::of_program("bash");
        let line = format!("eval \"${}\"; eval \"${}\"", tokens[0], tokens[1]);
        request.act = Act::Line(line);
        let scripts = ["rm -rf work", "reboot now"];
        let tokens = tokens.into_iter().zip(scripts);
        let all = tokens.chain([("PATH", "/bin")]);
        request.env = all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let payload = with_env(Object::new(), &request, &Redactor::new(Config::default())).finish();
        let recorded: Value = serde_json::from_str(payload.as_str()).unwrap();
        assert_eq!(
            recorded,
            serde_json::json!({
                "env_names": ["PATH", "[redacted]", "[redacted] (2)"],
                "env_run": {"[redacted]": "rm -rf work", "[redacted] (2)": "reboot now"},
            })
        );
    }
}
