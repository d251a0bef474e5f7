//! `jobs show`: how a job stands, where its session is, and what was said last.

use countersign_gateway::clock::Clock;
use countersign_gateway::error::Refusal;
use countersign_gateway::job::desk::WholeJob;
use countersign_gateway::job::event::{JobEventType, StoredEvent};
use countersign_gateway::limits;

use super::{Window, logs, spoken, tone, worked};
use crate::commands::audit::Form;
use crate::config::Flags;
use crate::start;
use crate::terminal::{Cell, Page, Tone};

pub(super) fn run(flags: &Flags, id: &str, form: Form) -> anyhow::Result<()> {
    let window = Window::open(flags)?;
    let (desk, person) = (&window.desk, &window.person);
    let (whole, last) = start::runtime()?.block_on(async {
        let job = window.named(id).await?;
        let told = |refusal: Refusal| anyhow::anyhow!(refusal.message);
        let whole = desk.whole(person, &job.id).await.map_err(told)?;
        let (mut after, mut last) = (0, None);
        loop {
            let (events, next) = desk
                .logs(person, &job.id, after, limits::JOB_EVENTS_AT_ONCE)
                .await
                .map_err(told)?;
            last = events.into_iter().rfind(is_said).or(last);
            if next == after {
                return Ok::<_, anyhow::Error>((whole, last));
            }
            after = next;
        }
    })?;
    let mut page = Page::stdout();
    match form {
        Form::Json => page.json(&whole.to_json())?,
        Form::Text => page.table(&rows(&whole, last.as_ref()))?,
    }
    page.flush()
}

/// How it stands, then what happens, then how it came out.
pub(super) fn follow(flags: &Flags, id: &str) -> anyhow::Result<()> {
    run(flags, id, Form::Text)?;
    start::say("");
    logs::run(flags, id, logs::Until::Ended, Form::Text)?;
    start::say("");
    run(flags, id, Form::Text)
}

fn is_said(stored: &StoredEvent) -> bool {
    matches!(
        stored.event.kind,
        JobEventType::CodexAgentMessage | JobEventType::AgentItem | JobEventType::ApprovalRequested
    )
}

fn rows(whole: &WholeJob, last: Option<&StoredEvent>) -> Vec<Vec<Cell>> {
    let WholeJob {
        job,
        session,
        directory,
        usage,
    } = whole;
    let now = Clock::system().now();
    let mut rows = Vec::new();
    let mut put = |name: &str, tone: Tone, text: &str| {
        if !text.is_empty() {
            rows.push(vec![Cell::new(Tone::Quiet, name), Cell::new(tone, text)]);
        }
    };
    put("job", Tone::Strong, job.id.as_str());
    put("state", tone(job), job.standing());
    put("task", Tone::Plain, &job.input.prompt);
    put("agent", Tone::Plain, &job.agent);
    put("by", Tone::Plain, &job.started_by.id);
    put("in", Tone::Plain, session.config["cwd"].as_str().unwrap_or_default());
    put("created", Tone::Plain, &job.created_at.to_string());
    put("worked", Tone::Plain, &worked(job, now));
    if !job.has_ended() {
        let left = job.clock.left(now).as_millis() as u64;
        let stands = if job.clock.since.is_none() {
            ", standing still"
        } else {
            ""
        };
        put("time left", Tone::Plain, &format!("{}{stands}", spoken(left)));
    }
    if usage.total_tokens > 0 {
        let cost = usage.cost_usd.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
        put("tokens", Tone::Plain, &format!("{}{cost}", usage.total_tokens));
    }
    put(
        "last",
        Tone::Plain,
        &last.map(|stored| logs::words(&stored.event)).unwrap_or_default(),
    );
    put("result", Tone::Good, job.result.as_deref().unwrap_or_default());
    let error = job
        .error
        .as_ref()
        .map(|error| format!("{} ({})", error.message, error.code));
    put("error", Tone::Bad, &error.unwrap_or_default());
    let conversation = job.conversation_id.as_ref().map(|id| id.as_str());
    put("conversation", Tone::Quiet, conversation.unwrap_or_default());
    put("session", Tone::Quiet, &directory.display().to_string());
    put("correlation", Tone::Quiet, job.correlation_id.as_str());
    rows
}
