//! A call of a tool that is no command, from its arguments to its record.
//!
//! The stations are the same: policy decides, a person is asked where it says so, and before anything is
//! done the record says that it will be. A question that nobody waits for any longer lies in the store; the
//! same call, repeated, learns the answer, and a yes is used once.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Gateway;
use super::in_force::InForce;
use super::opening::unrecorded;
use super::performing::{Leave, Performed};
use super::repeating::given_up;
use crate::approval::allow_act;
use crate::approval::request::ApprovalType;
use crate::audit::payload::{Object, Payload};
use crate::catalog::Tool;
use crate::clock::Timestamp;
use crate::error::{ErrorCode, Refusal, Status};
use crate::ids::CorrelationId;
use crate::job::driver::AgentQuestion;
use crate::job::input::TaskApproval;
use crate::job::session::JobSession;
use crate::job::state::{ErrorDetails, Job};
use crate::job::supervise::Judge;
use crate::policy::actor::RunContext;
use crate::policy::acts::{self, ActVerdict};
use crate::policy::agents::{self, Judged};
use crate::policy::tools::ToolUse;
use crate::service::{Answer, Room, ToolCall};
use crate::session::{Admitted, Role};
use crate::tools::acts::{Act, Asked, Form, Toolbox};
use crate::tools::declared::{Executor, HttpAct};
use crate::tools::exec::yaml;

impl Gateway {
    pub(super) async fn act(
        self: &Arc<Self>,
        admitted: &Admitted,
        tool: &Tool,
        call: &ToolCall,
        started: Timestamp,
    ) -> Answer {
        let mut course = Course {
            correlation: admitted.caller().correlation(&self.ports.ids),
            is_repeat: false,
        };
        let outcome = self.conduct_act(admitted, tool, call, &mut course).await;
        let Course { correlation, is_repeat } = course;
        let toolbox = self.toolbox_of(tool);
        let form = toolbox.map_or(Form::Yaml, Toolbox::form);
        let answer = match outcome {
            Ok(fields) => answered(fields, form),
            Err(refusal) => refused(&refusal, toolbox),
        };
        let caller = admitted.caller();
        let told = Ok(answer.clone());
        let answer = match self.record_call(caller, call, started, &told, &correlation).await {
            Ok(()) => answer,
            Err(error) => refused(&unrecorded(&error), toolbox),
        };
        let answer = Answer { is_repeat, ..answer };
        match form {
            Form::Yaml => answer,
            Form::Json => Answer {
                structured: Value::Null,
                ..answer
            },
        }
    }

    async fn conduct_act(
        self: &Arc<Self>,
        admitted: &Admitted,
        tool: &Tool,
        call: &ToolCall,
        course: &mut Course,
    ) -> Result<Map<String, Value>, Refusal> {
        let in_force = self.in_force();
        let act = self.read_act(
            tool,
            &Asked {
                caller: admitted.caller(),
                call,
                policy: &in_force.policy,
                around: &in_force.outlook.surroundings(),
            },
        )?;
        let verdict = Self::act_verdict(admitted, call, &*act, &in_force);
        // Looking is done again, unless somebody had to be asked for it.
        if (!act.only_looks() || matches!(verdict, ActVerdict::Ask(_)))
            && let Some(came_to) = self.came_to(admitted.caller(), call, &*act).await?
        {
            course.is_repeat = true;
            return came_to;
        }
        let correlation = &mut course.correlation;
        self.verdicts.count(verdict.word());
        let requested = self.requested(admitted, call, &*act, &verdict, &in_force);
        let may_be_done = !matches!(verdict, ActVerdict::Deny(_));
        if may_be_done && let Some(answer) = act.foresee().await? {
            return Ok(answer);
        }
        let verdict = match verdict {
            // What is nothing but a question is asked, also where policy would let it pass.
            ActVerdict::Allow(permit) if act.kind() == ApprovalType::Question => {
                ActVerdict::Ask(permit.into_question())
            }
            verdict @ (ActVerdict::Allow(_) | ActVerdict::Ask(_) | ActVerdict::Deny(_)) => verdict,
        };
        let (cleared, approval) = match verdict {
            ActVerdict::Deny(denial) => return Err(denial.refusal),
            ActVerdict::Allow(permit) => (allow_act(permit, admitted, correlation.clone()), None),
            ActVerdict::Ask(question) => {
                let asked = self.ask_about(admitted, call, &*act, question, &in_force, correlation);
                let (cleared, approval) = asked.await?;
                (cleared, Some(approval))
            }
        };
        let leave = Leave {
            tool: call.tool.clone(),
            asked: Self::asked_act(admitted.caller(), call),
            cleared,
            approval,
            requested,
            redactor: self
                .redactor_of_act(call)
                .unwrap_or_else(|| self.ports.redactor.clone()),
        };
        let act = match self.perform(act, leave).await {
            Performed::Ended(outcome) => return outcome,
            Performed::Elsewhere(act) => act,
        };
        course.is_repeat = true;
        let came_to = self.came_to(admitted.caller(), call, &*act).await?;
        came_to.unwrap_or_else(|| Err(given_up()))
    }

    /// What policy says of an act.
    pub(super) fn act_verdict(admitted: &Admitted, call: &ToolCall, act: &dyn Act, in_force: &InForce) -> ActVerdict {
        let used = ToolUse {
            tool: &call.tool,
            action: act.action(),
            target: act.target(),
        };
        let context = in_force.policy.context(admitted.caller());
        let verdict = acts::decide(&in_force.policy, &context, &used, act.wants_more().as_deref());
        acts::judged(verdict, act.judgement())
    }

    /// What the record says before an act is done.
    fn requested(
        &self,
        admitted: &Admitted,
        call: &ToolCall,
        act: &dyn Act,
        verdict: &ActVerdict,
        in_force: &InForce,
    ) -> Object {
        let rule = verdict.rule();
        let own = self.redactor_of_act(call);
        let redactor = own.as_ref().unwrap_or(&self.ports.redactor);
        let details = redactor.redact_json(&Value::Object(act.details()));
        Object::new()
            .text("tool", &call.tool)
            .optional_text("action", act.action())
            .text("credential", admitted.caller().credential.as_str())
            .optional_text("job_id", admitted.caller().job_id())
            .optional_text("run_id", admitted.caller().run_id())
            .text("verdict", verdict.word())
            .text("rule", &rule.name)
            .text("source", &rule.source)
            .text("reason", &rule.reason)
            .part("details", &Payload::from(&details))
            .part("policy", &in_force.snapshot_for(admitted.caller()))
    }

    fn toolbox_of(&self, tool: &Tool) -> Option<&dyn Toolbox> {
        match tool {
            Tool::Act(place) => Some(&*self.toolboxes()[*place]),
            Tool::Delegated(_) | Tool::Command(_) | Tool::Status | Tool::Cancel => None,
        }
    }

    fn read_act(&self, tool: &Tool, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
        match tool {
            Tool::Act(place) => self.toolboxes()[*place].read(asked),
            Tool::Delegated(tool) => match (&tool.executor, self.delegations.get()) {
                (Executor::Http(http), Some(desk)) => Ok(Box::new(HttpAct::read(tool, http, desk, asked)?)),
                (Executor::Http(_) | Executor::Argv(_), _) => Err(Refusal::new(
                    ErrorCode::ConfigurationError,
                    format!("nothing here sends what the tool `{}` is called with", tool.name()),
                )),
            },
            Tool::Command(_) | Tool::Status | Tool::Cancel => Err(Refusal::new(
                ErrorCode::InternalError,
                "a command is no act of a toolbox",
            )),
        }
    }
}

/// What is learned of an act while it is conducted.
struct Course {
    correlation: CorrelationId,
    /// It was done before, for the same request.
    is_repeat: bool,
}

impl Judge for Gateway {
    fn judge(&self, _job: &Job, session: &JobSession, question: &AgentQuestion, has_failed: bool) -> Judged {
        let in_force = self.in_force();
        let task = TaskApproval::from_json(&session.config["approvalPolicy"]);
        let policy = agents::for_task(&in_force.policy, task.as_ref());
        let run = session.config.get("run").map(RunContext::from_recorded);
        let context = policy.tools.context(Role::Agent, run.as_ref());
        let judgement = agents::judge(
            &policy,
            &context,
            question,
            has_failed,
            &in_force.outlook.surroundings(),
        );
        self.verdicts.count(judgement.word());
        Judged {
            judgement,
            policy_digest: in_force.digest.clone(),
            quorum: policy.approval.quorum,
            timeout: policy.approval.timeout,
        }
    }
}

fn answered(fields: Map<String, Value>, form: Form) -> Answer {
    let structured = Value::Object(fields);
    Answer {
        text: match form {
            Form::Yaml => yaml::write(&structured),
            Form::Json => structured.to_string(),
        },
        structured,
        is_error: false,
        command: None,
        is_repeat: false,
        room: Room::default(),
    }
}

/// S1's ToolResult of a call that was not accepted, with what every error says; or what the tool itself has
/// to say of it.
fn refused(refusal: &Refusal, toolbox: Option<&dyn Toolbox>) -> Answer {
    if let Some((toolbox, fields)) = toolbox.and_then(|it| Some((it, it.refusal(refusal)?))) {
        return answered(fields, toolbox.form());
    }
    let error = ErrorDetails::of(refusal);
    let status = match refusal.status() {
        Status::Pending => Status::Pending.as_str(),
        Status::Failed | Status::Timeout => toolbox.map_or(Status::Failed.as_str(), Toolbox::failed),
        Status::Ok | Status::Rejected | Status::Running => Status::Rejected.as_str(),
    };
    let mut structured = json!({
        "status": status, "message": refusal.message, "error": error.to_json(),
        "error_code": error.code, "error_message": refusal.message, "retryable": error.retryable,
    });
    if !refusal.details.is_empty() {
        structured["error_details"] = Value::Object(refusal.details.clone());
    }
    if let Some(approval) = refusal.details.get("approval_id") {
        structured["approval_id"] = approval.clone();
    }
    Answer {
        text: yaml::write(&structured),
        structured,
        is_error: true,
        command: None,
        is_repeat: false,
        room: Room::default(),
    }
}
