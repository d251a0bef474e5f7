//! Starting an agent: what was asked becomes where it works, under which policy, and a question where that
//! is more than policy gives.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Offered, accepted};
use crate::approval::ClearedAct;
use crate::audit::Pending;
use crate::catalog::arguments::Arguments;
use crate::error::{ErrorCode, Refusal, brief};
use crate::job::desk::{Assignment, JobDesk};
use crate::job::guidance::Guidance;
use crate::job::input::JobInput;
use crate::job::session::SessionName;
use crate::job::state::Job;
use crate::policy::effective::{EffectivePolicy, Mode, SandboxMode};
use crate::policy::places;
use crate::policy::whitelist::{TaskHand, with_task};
use crate::session::Role;
use crate::tools::acts::{Act, Asked};

/// How long a call waits for the conversation's id, which is nice to have in the answer.
const ID_PATIENCE: Duration = Duration::from_secs(2);

/// S1's start-codex-task.
pub(super) fn codex_task(desk: Arc<JobDesk>, codex: &str, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
    let mut arguments = Arguments::new(&asked.call.arguments);
    let input = JobInput::take(&mut arguments);
    let name = session_name(&mut arguments);
    arguments.finish()?;
    Ok(Box::new(begin(desk, codex.to_owned(), input, name, asked)?))
}

/// The same for any agent.
pub(super) fn task(desk: Arc<JobDesk>, offered: &Offered, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
    let mut arguments = Arguments::new(&asked.call.arguments);
    let agent = arguments.optional_string("agent");
    let input = JobInput::take(&mut arguments);
    let name = session_name(&mut arguments);
    let agent = match (agent, offered.names.first()) {
        (Some(agent), _) if offered.names.contains(&agent) => agent,
        (Some(agent), _) => {
            let known: Vec<_> = offered.names.iter().map(|name| format!("`{name}`")).collect();
            arguments.problem(format!(
                "there is no agent `{}`; there is {}",
                brief(&agent),
                known.join(", ")
            ));
            String::new()
        }
        (None, Some(first)) => first.clone(),
        (None, None) => String::new(),
    };
    arguments.finish()?;
    Ok(Box::new(begin(desk, agent, input, name, asked)?))
}

fn session_name(arguments: &mut Arguments<'_>) -> Option<SessionName> {
    let text = arguments.optional_string("sessionName")?;
    match SessionName::parse(&text) {
        Ok(name) => Some(name),
        Err(error) => {
            arguments.problem(error.to_string());
            None
        }
    }
}

pub(super) fn begin(
    desk: Arc<JobDesk>,
    agent: String,
    mut input: JobInput,
    name: Option<SessionName>,
    asked: &Asked<'_>,
) -> Result<Begin, Refusal> {
    let policy = asked.policy;
    let place = places::settle(&policy.places, input.cwd.as_deref(), asked.around.directories)?;
    places::check_hidden(&place, &policy.places.hidden, asked.around.directories)?;
    let sandbox = place.narrow(input.sandbox.unwrap_or(policy.command.sandbox));
    if sandbox != SandboxMode::ReadOnly {
        places::check_cwd(&place, asked.around.directories)?;
    }
    let cwd = place.cwd.path.to_string_lossy().into_owned();
    let mode = input.approval.as_ref().and_then(|approval| approval.mode);
    let ignored = hold_rules(&mut input, policy, asked.caller.role)?;
    let approval = match &input.approval {
        Some(approval) => approval.to_json(),
        None => json!(policy.approval.mode.as_str()),
    };
    let config = json!({
        "model": input.model, "cwd": cwd, "approvalPolicy": approval, "sandboxPolicy": sandbox.as_str(),
        "timeout": u64::try_from(input.timeout().as_millis()).unwrap_or(u64::MAX),
    });
    Ok(Begin {
        wants_more: more(policy, sandbox, mode),
        request_id: request_id(asked),
        desk,
        agent,
        input,
        name,
        config,
        ignored,
    })
}

/// The client's id of the request; S1 has one in every job.
pub(super) fn request_id(asked: &Asked<'_>) -> String {
    asked.call.origin.rpc_id.clone().unwrap_or_else(|| "none".to_owned())
}

/// What a task's own rules come to: an operator's are taken, an agent's may only take away.
fn hold_rules(input: &mut JobInput, policy: &EffectivePolicy, role: Role) -> Result<Vec<String>, Refusal> {
    let Some(approval) = &mut input.approval else {
        return Ok(Vec::new());
    };
    let hand = match role {
        Role::Operator => TaskHand::Sets,
        Role::Agent | Role::Approver | Role::Viewer => TaskHand::Tightens,
    };
    let with = with_task(&policy.approval.whitelist, &approval.rules(), hand).map_err(|errors| {
        let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
        Refusal::new(ErrorCode::InvalidArguments, told.join("; "))
    })?;
    approval.whitelist.retain(|rule| !with.ignored.contains(&rule.pattern));
    approval.auto_approve.retain(|pattern| !with.ignored.contains(pattern));
    Ok(with.ignored)
}

/// What a task asks for beyond what policy gives. Asking for more questions is never more.
fn more(policy: &EffectivePolicy, sandbox: SandboxMode, mode: Option<Mode>) -> Option<String> {
    let mut wanted = Vec::new();
    if sandbox > policy.command.sandbox {
        wanted.push(format!("sandbox `{}`", sandbox.as_str()));
    }
    match mode {
        Some(mode) if mode != policy.approval.mode && mode != Mode::Untrusted => {
            wanted.push(format!("approval mode `{}`", mode.as_str()));
        }
        Some(_) | None => {}
    }
    (!wanted.is_empty()).then(|| wanted.join(" and "))
}

pub(super) struct Begin {
    desk: Arc<JobDesk>,
    agent: String,
    input: JobInput,
    name: Option<SessionName>,
    config: Value,
    wants_more: Option<String>,
    request_id: String,
    /// Rules that were left out, since an agent cannot let itself off.
    ignored: Vec<String>,
}

impl Act for Begin {
    fn wants_more(&self) -> Option<String> {
        self.wants_more.clone()
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = self.config.as_object().cloned().unwrap_or_default();
        details.retain(|_, value| !value.is_null());
        details.insert("agent".to_owned(), json!(self.agent));
        details.insert("prompt".to_owned(), json!(self.input.prompt));
        details
    }

    fn perform(self: Box<Self>, cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>> {
        Box::pin(async move {
            let (desk, ignored) = (self.desk.clone(), self.ignored.clone());
            let job = self.start(&cleared).await?;
            let job = desk.begun(cleared.caller(), &job.id, ID_PATIENCE).await?;
            let mut message = "the task is accepted; `job-status` tells how it stands".to_owned();
            if !ignored.is_empty() {
                let patterns: Vec<_> = ignored.iter().map(|pattern| format!("`{pattern}`")).collect();
                message = format!(
                    "{message}. Left out, since an agent does not let itself off: {}",
                    patterns.join(", ")
                );
            }
            Ok(accepted(&job, &message))
        })
    }
}

impl Begin {
    /// With what is said to the agent beside the prompt, kept where its conversation is.
    pub(super) fn guided(mut self, guidance: &Guidance) -> Self {
        if !guidance.is_empty() {
            self.config["guidance"] = guidance.to_json();
        }
        self
    }

    /// Hands it in at the desk.
    pub(super) async fn start(self, cleared: &ClearedAct) -> Result<Job, Refusal> {
        let assignment = Assignment {
            request_id: self.request_id,
            correlation_id: cleared.correlation_id().clone(),
            agent: self.agent,
            input: self.input,
            name: self.name,
            config: self.config,
            run_id: None,
        };
        self.desk.start(cleared.caller(), assignment).await
    }
}
