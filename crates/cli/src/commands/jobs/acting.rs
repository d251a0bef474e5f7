//! `jobs start`, `send` and `interrupt`: a call of the tool, from a terminal.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::job::lifecycle::JobStatus;
use countersign_gateway::job::state::Job;
use countersign_gateway::service::{Cancel, Origin, Service as _, ToolCall};
use countersign_gateway::session::Caller;
use countersign_gateway::tools::jobs::JobTools;
use serde_json::{Map, Value, json};

use super::{Window, logs};
use crate::approvers::{self, Approvers};
use crate::cli::JobStart;
use crate::commands::audit::Form;
use crate::commands::exec::TellTerminal;
use crate::config::Flags;
use crate::start::{self, BadUsage, Started};
use crate::terminal::Page;
use crate::wiring::{self, Launchpad};
use crate::{jobs, whereabouts};

/// The exit code of a job that was followed says how the job came out.
pub(super) fn start(flags: &Flags, start: &JobStart) -> anyhow::Result<ExitCode> {
    let mut arguments = json!({"prompt": start.prompt});
    let wanted = [
        ("agent", start.agent.as_ref().map(|it| json!(it))),
        ("sessionName", start.name.as_ref().map(|it| json!(it))),
        ("cwd", start.cwd.as_ref().map(|it| json!(it))),
        ("model", start.model.as_ref().map(|it| json!(it))),
        ("timeout", start.timeout_ms.map(|it| json!(it))),
        ("approvalPolicy", start.mode.as_ref().map(|it| json!(it))),
        ("sandboxPolicy", start.sandbox.as_ref().map(|it| json!(it))),
    ];
    for (name, value) in wanted {
        if let Some(value) = value {
            arguments[name] = value;
        }
    }
    let accepted = call(flags, "start-task", arguments)?;
    let job = accepted["jobId"].as_str().unwrap_or_default().to_owned();
    if start.follow {
        let ended = logs::run(flags, &job, logs::Until::Ended, Form::Text)?;
        return Ok(match ended.status() {
            JobStatus::Completed => ExitCode::SUCCESS,
            JobStatus::Pending | JobStatus::Running | JobStatus::Failed | JobStatus::Cancelled | JobStatus::Timeout => {
                ExitCode::FAILURE
            }
        });
    }
    tell(&accepted, Form::of(start.json), &format!("job {job} is accepted"))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn send(flags: &Flags, id: &str, message: &str, form: Form) -> anyhow::Result<()> {
    let job = named(flags, id)?;
    let Some(conversation) = &job.conversation_id else {
        anyhow::bail!("job `{}` has not begun to talk yet; try again in a moment", job.id);
    };
    let arguments = json!({"conversationId": conversation.as_str(), "message": message});
    let accepted = call(flags, "send-message", arguments)?;
    let next = accepted["jobId"].as_str().unwrap_or_default();
    let line = match next == job.id.as_str() {
        true => "the message is on its way".to_owned(),
        false => format!("the message begins the next turn, job {next}"),
    };
    tell(&accepted, form, &line)
}

pub(super) fn interrupt(flags: &Flags, id: &str, form: Form) -> anyhow::Result<()> {
    let job = named(flags, id)?;
    let accepted = call(flags, "interrupt-task", json!({"jobId": job.id.as_str()}))?;
    let line = match job.status() {
        JobStatus::Pending => "the job is called back",
        JobStatus::Running | JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled | JobStatus::Timeout => {
            "the job is being interrupted; `countersign jobs show` tells when it has ended"
        }
    };
    tell(&accepted, form, line)
}

fn named(flags: &Flags, id: &str) -> anyhow::Result<Job> {
    let window = Window::open(flags)?;
    start::runtime()?.block_on(window.named(id))
}

fn tell(accepted: &Value, form: Form, line: &str) -> anyhow::Result<()> {
    let mut page = Page::stdout();
    match form {
        Form::Json => page.json(accepted)?,
        Form::Text => page.line(line)?,
    }
    page.flush()
}

/// Calls a tool of jobs in the name of whoever sits here, through policy, approval and record. The server
/// of the state directory does the rest.
fn call(flags: &Flags, tool: &str, arguments: Value) -> anyhow::Result<Value> {
    let launchpad = Launchpad::prepare()?;
    let homes = launchpad.directories.homes.clone();
    let started = Started::load(flags)?;
    start::warn(&started);
    let directory = &started.settings.state_dir;
    anyhow::ensure!(
        whereabouts::find(directory).is_some(),
        "no server looks after jobs in `{}`; start one with `countersign serve`",
        directory.display()
    );
    let Some(agents) = jobs::installed(&started, &homes) else {
        anyhow::bail!(
            "there is no agent; list one under `agents` in the configuration, or install `codex` or `claude` in a \
             directory of `command_policy.path`"
        );
    };
    let approvers = Approvers {
        here: vec![Arc::new(TellTerminal)],
        outside: approvers::outside(&started.settings, &started.surroundings, None)?,
    };
    let call = ToolCall {
        tool: tool.to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_else(Map::new),
        progress: None,
        cancel: Cancel::never(),
        origin: Origin::default(),
        answer_within: None,
        user: None,
    };
    start::runtime()?.block_on(async {
        // Whoever sits here waits as long as it takes.
        let joined = started.joined(launchpad, approvers, Duration::MAX).await?;
        let desk = jobs::desk(&started.settings, &joined.record, &joined.board, &started.redactor());
        joined.gateway.equip(vec![JobTools::new(desk, agents.offered())]);
        let answer = joined.gateway.call(Caller::person(&wiring::user()), call).await;
        joined.gateway.shutdown().await;
        let answer = answer.map_err(|refusal| anyhow::anyhow!(refusal.message))?;
        let told = |name: &str| answer.structured[name].as_str().unwrap_or_default();
        match told("error_code") {
            _ if !answer.is_error => Ok(answer.structured),
            "INVALID_ARGUMENTS" => Err(BadUsage(told("message").to_owned()).into()),
            _ => Err(anyhow::anyhow!("refused: {}", told("message"))),
        }
    })
}
