//! What a run comes to under the policy in force: its profile, and the job that does its work.

use serde_json::json;

use super::Gateway;
use crate::error::{ErrorCode, Refusal};
use crate::github::clerk::Policies;
use crate::github::vocabulary::ProfileLabels;
use crate::job::desk::Assignment;
use crate::job::effort::Effort;
use crate::job::input::JobInput;
use crate::job::session::SessionName;
use crate::policy::effective::SandboxMode;
use crate::policy::places;
use crate::run::manual::Profiles;
use crate::run::profile::{Asked, Profile};
use crate::run::prompt::PromptTemplate;
use crate::run::state::Run;
use crate::run::steward::Work;
use crate::session::Role;

/// What an agent is told besides where its issue is only talked about. It could change nothing either.
const TALK: &str = "\
This is a discussion (`mode:discussion`). Look at whatever you need; your last message is put under the issue as your \
answer. Nothing here can be changed, committed or pushed.";

impl Policies for Gateway {
    /// Where no project names a repository, all that may deliver are served.
    fn serves(&self, repository: &str) -> bool {
        let in_force = self.in_force();
        let projects = &in_force.policy.tools.layers().projects;
        let mut named = projects.values().flat_map(|project| &project.repositories).peekable();
        named.peek().is_none() || named.any(|name| name.eq_ignore_ascii_case(repository))
    }

    fn names_label(&self, label: &str) -> bool {
        self.in_force().policy.tools.layers().labels.contains_key(label)
    }
}

impl Profiles for Gateway {
    fn profile(&self, asked: &Asked<'_>) -> Profile {
        Profile::resolve(self.in_force().policy.tools.layers(), asked)
    }
}

impl Gateway {
    /// The job of a run: for the agent that its label's policy names, else for one that is called like its
    /// key; a run that neither names is done by an agent from outside.
    pub fn assign(&self, run: &Run, agents: &[String], template: &PromptTemplate) -> Result<Work, Refusal> {
        let in_force = self.in_force();
        let labels = &in_force.policy.tools.layers().labels;
        let label = run.trigger_label.as_ref().and_then(|label| labels.get(label));
        let named = label.and_then(|label| label.agent.clone());
        let agent = match named {
            Some(agent) if agents.contains(&agent) => agent,
            Some(agent) => {
                let message = format!(
                    "the agent `{agent}`, which policy names for this label, is not there; \
                     install it or add it to `agents`"
                );
                return Err(Refusal::new(ErrorCode::ConfigurationError, message));
            }
            None => match agents.iter().find(|agent| **agent == run.agent_key) {
                Some(agent) => agent.clone(),
                None => return Ok(Work::Outside),
            },
        };
        let policy = &in_force.policy;
        let directories = in_force.outlook.surroundings().directories;
        let place = places::settle(&policy.places, None, directories)?;
        let timeout = u64::try_from(run.timer.remaining.as_millis()).unwrap_or(u64::MAX);
        let chosen = chosen(run)?;
        let is_talk = run.is_talk();
        let told = template
            .fill(run)
            .map_err(|unfit| Refusal::new(ErrorCode::ConfigurationError, unfit.to_string()))?;
        let (prompt, sandbox) = match is_talk {
            true => (format!("{told}\n\n{TALK}"), SandboxMode::ReadOnly),
            false => (told, place.narrow(policy.command.sandbox)),
        };
        if sandbox != SandboxMode::ReadOnly {
            places::check_writable(&place, directories)?;
        }
        let input = JobInput {
            timeout_ms: Some(timeout.max(1)),
            model: chosen.model.clone(),
            ..JobInput::of_prompt(&prompt)
        };
        let context = run.context();
        let source = template_source(template);
        let config = json!({
            // Whom policy looks at when the agent itself asks.
            "run": policy.tools.context(Role::Agent, Some(&context)).recorded(),
            "model": chosen.model, "reasoningEffort": chosen.effort.map(Effort::as_str), "cwd": place.cwd.path.to_string_lossy(),
            "approvalPolicy": policy.approval.mode.as_str(), "sandboxPolicy": sandbox.as_str(),
            "timeout": timeout, "run_id": run.id.as_str(), "discussion": is_talk,
            "template": {"kind": template_kind(run), "source": source, "locale": (source == BUILT_IN).then_some(OUR_LOCALE)},
        });
        Ok(Work::Job(Box::new(Assignment {
            request_id: run.id.as_str().to_owned(),
            correlation_id: run.correlation_id.clone(),
            agent,
            input,
            name: name(run),
            config,
            run_id: Some(run.id.as_str().to_owned()),
        })))
    }
}

/// Words of our own, and their language.
const BUILT_IN: &str = "built-in";
const OUR_LOCALE: &str = "en";

/// What its agent is asked for.
fn template_kind(run: &Run) -> &'static str {
    let is_revise = run
        .trigger_label
        .as_deref()
        .is_some_and(|label| label.ends_with(":revise"));
    match (run.is_talk(), is_revise) {
        (true, _) => "discussion",
        (false, true) => "revise",
        (false, false) => "work",
    }
}

/// Whose words it is asked in.
fn template_source(template: &PromptTemplate) -> &'static str {
    match *template == PromptTemplate::standard() {
        true => BUILT_IN,
        false => "configured",
    }
}

/// What the labels of a run's issue say of its agent.
struct Chosen {
    model: Option<String>,
    effort: Option<Effort>,
}

fn chosen(run: &Run) -> Result<Chosen, Refusal> {
    let labels: Vec<&str> = run.labels.iter().map(String::as_str).collect();
    let bad = |message: String| Refusal::new(ErrorCode::InvalidArguments, message);
    let said = ProfileLabels::of(labels.into_iter()).map_err(|two| bad(two.to_string()))?;
    let effort = match said.reasoning.as_deref() {
        None => None,
        Some(value) => Some(Effort::of_label(value).ok_or_else(|| {
            bad(format!(
                "failed_precondition: `[ai-reasoning-{value}]` is no effort; there are low, medium, high and extra-high"
            ))
        })?),
    };
    Ok(Chosen {
        model: said.model,
        effort,
    })
}

/// `run-dev-12`: what a session of a run is called.
fn name(run: &Run) -> Option<SessionName> {
    let label = run.trigger_label.as_deref().unwrap_or("run");
    let plain: String = label
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    let number = run.issue_number.or(run.pull_request_number);
    let text = number.map_or(plain.clone(), |number| format!("{plain}-{number}"));
    SessionName::parse(&text).ok()
}
