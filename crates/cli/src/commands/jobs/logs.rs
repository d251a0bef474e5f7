//! `jobs logs`: what happened in a job, one line per event.

use std::time::Duration;

use countersign_gateway::error::Refusal;
use countersign_gateway::job::event::{JobEvent, JobEventType, StoredEvent};
use countersign_gateway::job::state::Job;
use countersign_gateway::limits;

use super::Window;
use crate::commands::audit::Form;
use crate::config::Flags;
use crate::start;
use crate::terminal::{Page, Tone, clean};

/// How long a new event may wait to be seen.
const POLL: Duration = Duration::from_millis(200);
/// The longest name of an event that is at all frequent; what follows stands in a column.
const KIND_CHARS: usize = 22;

/// When to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Until {
    Now,
    Ended,
}

/// Gives the job as it was when the last event was read.
pub(super) fn run(flags: &Flags, id: &str, until: Until, form: Form) -> anyhow::Result<Job> {
    let window = Window::open(flags)?;
    let mut page = Page::stdout();
    start::runtime()?.block_on(async {
        let job = window.named(id).await?.id;
        let refused = |refusal: Refusal| anyhow::anyhow!(refusal.message);
        let session = window.desk.session(&window.person, &job).await.map_err(refused)?;
        let mut after = 0;
        loop {
            // Asked before its events are read: those of a job that has ended are all there.
            let now = window.named(job.as_str()).await?;
            let read = window
                .desk
                .logs(&window.person, &job, after, limits::JOB_EVENTS_AT_ONCE);
            let (events, next) = read.await.map_err(refused)?;
            let is_whole = next == after;
            after = next;
            if !events.is_empty() {
                page.wipe()?;
            }
            for stored in &events {
                print(&mut page, stored, form)?;
            }
            page.flush()?;
            match (is_whole, until) {
                (false, _) => {}
                (true, Until::Now) => return Ok(now),
                (true, Until::Ended) if now.has_ended() => return Ok(now),
                (true, Until::Ended) => {
                    // What the agent is at, which is a line of its own once it is whole.
                    match window.desk.unfinished(&session).await.filter(|_| form == Form::Text) {
                        Some(unfinished) => page.passing(&format!("… {}", clean(end_of(&unfinished))))?,
                        None => page.wipe()?,
                    }
                    page.flush()?;
                    tokio::time::sleep(POLL).await;
                }
            }
        }
    })
}

fn print(page: &mut Page, stored: &StoredEvent, form: Form) -> anyhow::Result<()> {
    let event = &stored.event;
    if form == Form::Json {
        return page.json_line(event.to_json());
    }
    let time = page.paint(Tone::Quiet, &event.timestamp.to_string());
    let kind = page.paint(tone(event.kind), event.kind.as_str());
    let gap = " ".repeat(KIND_CHARS.saturating_sub(event.kind.as_str().len()));
    page.line(format!("{time}  {kind}{gap}  {}", words(event)).trim_end())
}

/// The line that is being written.
fn end_of(unfinished: &str) -> &str {
    let mut lines = unfinished.lines().map(str::trim);
    lines.rfind(|line| !line.is_empty()).unwrap_or_default()
}

/// What an event says to a person, in a line.
pub(super) fn words(event: &JobEvent) -> String {
    clean(&event.words())
}

fn tone(kind: JobEventType) -> Tone {
    use JobEventType as Type;
    match kind {
        Type::JobCompleted | Type::CodexTaskComplete | Type::ApprovalApproved | Type::ApprovalAutoApproved => {
            Tone::Good
        }
        Type::JobFailed | Type::JobTimeout | Type::CodexTaskError | Type::ApprovalDenied | Type::ProcessCrashed => {
            Tone::Bad
        }
        Type::ApprovalRequested
        | Type::AgentWarning
        | Type::AgentRetrying
        | Type::AgentLimit
        | Type::SessionRecovering
        | Type::ProcessRestarted => Tone::Caution,
        Type::CodexAgentMessage | Type::UserMessage => Tone::Strong,
        Type::JobCreated
        | Type::JobStarted
        | Type::JobCancelled
        | Type::SessionCreated
        | Type::SessionActive
        | Type::SessionIdle
        | Type::SessionTerminated
        | Type::ProcessStarted
        | Type::CodexTaskStarted
        | Type::AgentItem
        | Type::AgentDiff
        | Type::AgentUsage
        | Type::AgentEvent => Tone::Plain,
    }
}
