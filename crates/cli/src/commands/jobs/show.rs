//! `jobs show`: how a job stands, where its session is, and what was said last.

use countersign_gateway::error::Refusal;
use countersign_gateway::job::event::{JobEventType, StoredEvent};
use countersign_gateway::job::session::JobSession;
use countersign_gateway::job::state::Job;
use countersign_gateway::limits;

use super::{Window, logs, standing, tone};
use crate::commands::audit::Form;
use crate::config::Flags;
use crate::start;
use crate::terminal::{Cell, Page, Tone};

pub(super) fn run(flags: &Flags, id: &str, form: Form) -> anyhow::Result<()> {
    let window = Window::open(flags)?;
    let (desk, person) = (&window.desk, &window.person);
    let (job, session, last) = start::runtime()?.block_on(async {
        let job = window.named(id).await?;
        let told = |refusal: Refusal| anyhow::anyhow!(refusal.message);
        let session = desk.session(person, &job.id).await.map_err(told)?;
        let (mut after, mut last) = (0, None);
        loop {
            let (events, next) = desk
                .logs(person, &job.id, after, limits::JOB_EVENTS_AT_ONCE)
                .await
                .map_err(told)?;
            last = events.into_iter().rfind(is_said).or(last);
            if next == after {
                return Ok::<_, anyhow::Error>((job, session, last));
            }
            after = next;
        }
    })?;
    let mut page = Page::stdout();
    match form {
        Form::Json => {
            let mut shown = job.to_json();
            shown["session"] = session.to_json(&desk.directory(&session));
            page.json(&shown)?;
        }
        Form::Text => {
            let directory = desk.directory(&session).display().to_string();
            page.table(&rows(&job, &session, &directory, last.as_ref()))?;
        }
    }
    page.flush()
}

fn is_said(stored: &StoredEvent) -> bool {
    matches!(
        stored.event.kind,
        JobEventType::CodexAgentMessage | JobEventType::AgentItem | JobEventType::ApprovalRequested
    )
}

fn rows(job: &Job, session: &JobSession, directory: &str, last: Option<&StoredEvent>) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    let mut put = |name: &str, tone: Tone, text: &str| {
        if !text.is_empty() {
            rows.push(vec![Cell::new(Tone::Quiet, name), Cell::new(tone, text)]);
        }
    };
    put("job", Tone::Strong, job.id.as_str());
    put("state", tone(job.status()), standing(job));
    put("task", Tone::Plain, &job.input.prompt);
    put("agent", Tone::Plain, &job.agent);
    put("by", Tone::Plain, &job.started_by.id);
    put("in", Tone::Plain, session.config["cwd"].as_str().unwrap_or_default());
    put("created", Tone::Plain, &job.created_at.to_string());
    let took = job.duration_ms().map(|millis| format!("{} s", millis as f64 / 1_000.0));
    put("took", Tone::Plain, &took.unwrap_or_default());
    put(
        "last",
        Tone::Plain,
        &last.map(|stored| logs::words(&stored.event.data)).unwrap_or_default(),
    );
    put("result", Tone::Good, job.result.as_deref().unwrap_or_default());
    let error = job
        .error
        .as_ref()
        .map(|error| format!("{} ({})", error.message, error.code));
    put("error", Tone::Bad, &error.unwrap_or_default());
    let conversation = job.conversation_id.as_ref().map(|id| id.as_str());
    put("conversation", Tone::Quiet, conversation.unwrap_or_default());
    put("session", Tone::Quiet, directory);
    put("correlation", Tone::Quiet, job.correlation_id.as_str());
    rows
}
