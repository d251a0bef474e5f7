//! `runs show`: how a run stands, what it belongs to, and what was asked in it.

use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::clock::Clock;
use countersign_gateway::run::desk::end;
use countersign_gateway::run::keeping::Link;
use countersign_gateway::run::session::AgentSession;
use countersign_gateway::run::state::Run;
use countersign_gateway::run::view;
use serde_json::Value;

use super::{Window, standing, tone};
use crate::commands::audit::Form;
use crate::config::Flags;
use crate::start;
use crate::terminal::{Cell, Page, Tone};

pub(super) fn run(flags: &Flags, id: &str, form: Form) -> anyhow::Result<()> {
    let window = Window::open(flags)?;
    let (run, links, session, approvals) = start::runtime()?.block_on(async {
        let run = window.named(id).await?;
        let runs = &window.desk.parts().runs;
        let links = runs.links_of(end(&run)).await?;
        let session = runs.agent_session(&run.id).await?;
        let approvals = window.board.of_correlation(&run.correlation_id).await?;
        Ok::<_, anyhow::Error>((run, links, session, approvals))
    })?;
    let mut page = Page::stdout();
    match form {
        Form::Json => {
            let mut shown = view::trace(&run, &links, session.as_ref(), Clock::system().now());
            shown["approvals"] = approvals
                .iter()
                .map(ApprovalRequest::to_json)
                .collect::<Vec<Value>>()
                .into();
            page.json(&shown)?;
        }
        Form::Text => page.table(&rows(&run, &links, session.as_ref(), &approvals))?,
    }
    page.flush()
}

fn rows(run: &Run, links: &[Link], session: Option<&AgentSession>, approvals: &[ApprovalRequest]) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    let mut put = |name: &str, tone: Tone, text: &str| {
        if !text.is_empty() {
            rows.push(vec![Cell::new(Tone::Quiet, name), Cell::new(tone, text)]);
        }
    };
    let optional = |text: Option<&str>| text.unwrap_or_default().to_owned();
    put("run", Tone::Strong, run.id.as_str());
    put("state", tone(run.status), &standing(run));
    put("reason", Tone::Plain, &optional(run.reason.as_deref()));
    put("said", Tone::Plain, &optional(run.reported_status.as_deref()));
    put("label", Tone::Plain, &optional(run.trigger_label.as_deref()));
    put("title", Tone::Plain, &optional(run.title.as_deref()));
    put("issue", Tone::Plain, &run.issue().unwrap_or_default());
    put("pull request", Tone::Plain, &run.pull_request().unwrap_or_default());
    put("agent", Tone::Plain, &run.agent_key);
    put("runtime", Tone::Plain, run.runtime.as_str());
    put("mode", Tone::Plain, if run.is_talk() { "discussion" } else { "" });
    put("project", Tone::Plain, &optional(run.project.as_deref()));
    put(
        "set off",
        Tone::Plain,
        &format!("{} by {}", run.created_at, run.requested_by),
    );
    let left = run.timer.left(Clock::system().now()).as_secs();
    let clock = match run.timer.deadline() {
        Some(at) => format!("{left} s left, until {at}"),
        None => format!("{left} s left, standing still"),
    };
    put("clock", Tone::Plain, if run.has_ended() { "" } else { &clock });
    put(
        "ended",
        Tone::Plain,
        &run.finished_at.map(|at| at.to_string()).unwrap_or_default(),
    );
    put("job", Tone::Quiet, &optional(run.job_id.as_ref().map(|id| id.as_str())));
    if let Some(session) = session {
        put("conversation", Tone::Quiet, &optional(session.session_id.as_deref()));
        put("model", Tone::Plain, &optional(session.model.as_deref()));
        put("effort", Tone::Plain, &optional(session.reasoning_effort.as_deref()));
        put("branch", Tone::Plain, &optional(session.branch_name.as_deref()));
        put("waits for", Tone::Plain, &optional(session.wait_state.as_deref()));
    }
    for link in links {
        let other = if link.source == end(run) {
            &link.target
        } else {
            &link.source
        };
        let text = format!("{} {} {}", link.link_type.as_str(), other.kind.as_str(), other.id);
        put("linked", Tone::Plain, &text);
    }
    for approval in approvals.iter().filter(|approval| !approval.automatic) {
        let text = format!("{} {}: {}", approval.id, approval.tool, approval.state().as_str());
        put("asked", Tone::Plain, &text);
    }
    put("correlation", Tone::Quiet, run.correlation_id.as_str());
    rows
}
