//! One job: what was asked, what the agent says and does as it happens, what it changed, what it used; and
//! an operator's word to it.

mod acting;
mod entry;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use countersign_gateway::approval::ApprovalFilter;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::JobId;
use countersign_gateway::job::desk::WholeJob;
use countersign_gateway::job::event::{JobEventType, StoredEvent};
use countersign_gateway::job::state::Job;
use countersign_gateway::limits::JOB_EVENTS_AT_ONCE;
use serde::Deserialize;

use super::Console;
use super::access::Reader;
use super::jobs::{cost, grouped, standing, tone, worked};
use super::page::{self, Failure, Frame, Place};
use super::patch::{self, Change};
use super::text::{self, Html};
use super::time::{Moment, spoken_millis};
use crate::limits::TEXT_CHARS_SHOWN;
pub(super) use acting::{interrupt, send};
use entry::Entry;

/// Events that are looked through, and entries of the transcript that are shown: the latest.
const EVENTS_MAX: usize = 5_000;
const ENTRIES_MAX: usize = 500;

#[derive(Deserialize)]
pub(super) struct Wanted {
    /// What is newer than this.
    #[serde(default)]
    after: u64,
    /// Every step of the job.
    #[serde(default)]
    steps: String,
}

#[derive(Template)]
#[template(path = "job.html")]
struct Page {
    frame: Frame,
    id: String,
    agent: Html,
    by: Html,
    task: Html,
    steps: bool,
    parts: Parts,
    facts: Vec<Fact>,
    story: String,
    /// Whether the reader may speak to the agent.
    may_act: bool,
}

/// What changes while a page is open.
#[derive(Template)]
#[template(path = "job_parts.html")]
struct Parts {
    head: u64,
    now: String,
    state: &'static str,
    tone: &'static str,
    is_open: bool,
    /// Whether its conversation has begun, so that it can be spoken to.
    can_talk: bool,
    worked: String,
    clock: Clock,
    tokens: String,
    prompt_tokens: String,
    completion_tokens: String,
    cost: String,
    approvals: u64,
    waited: String,
    questions: Vec<Waiting>,
    error: Option<Html>,
    entries: Vec<Entry>,
    /// The message that the agent is at.
    writing: Option<Html>,
    is_cut: bool,
    changes: Vec<Change>,
    added: usize,
    removed: usize,
}

/// What is left of its time.
enum Clock {
    Runs(Moment),
    Stands(String),
    Over,
}

/// A question that holds it up.
struct Waiting {
    id: String,
    about: Html,
}

struct Fact {
    name: &'static str,
    is_code: bool,
    value: Html,
}

pub(super) async fn page(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Path(id): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Failure> {
    let whole = console.office.jobs.whole(&reader.0, &JobId::trusted(id)).await?;
    let job = &whole.job;
    let page = Page {
        frame: Frame::of(&console, &reader, Some(Place::Jobs)).await?,
        id: super::event::path_part(job.id.as_str()).to_owned(),
        agent: shown(&job.agent),
        by: shown(&job.started_by.id),
        task: text::lines(&job.input.prompt, TEXT_CHARS_SHOWN),
        steps: !wanted.steps.is_empty(),
        parts: parts(&console, &reader, &whole, &wanted).await?,
        facts: facts(&whole),
        story: format!("/calls/{}", super::event::path_part(job.correlation_id.as_str())),
        may_act: reader.may_rule(),
    };
    Ok(page::html(StatusCode::OK, &page))
}

/// How it stands now and what is newer, for a page that is open.
pub(super) async fn news(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Path(id): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Failure> {
    let whole = console.office.jobs.whole(&reader.0, &JobId::trusted(id)).await?;
    let parts = parts(&console, &reader, &whole, &wanted).await?;
    Ok(page::html(StatusCode::OK, &parts))
}

async fn parts(console: &Console, reader: &Reader, whole: &WholeJob, wanted: &Wanted) -> Result<Parts, Failure> {
    let (job, usage, now) = (&whole.job, &whole.usage, console.clock.now());
    let (events, is_long) = events(console, reader, job).await?;
    let mut entries = entry::transcript(&events, !wanted.steps.is_empty(), now);
    entries.retain(|entry| entry.seq > wanted.after);
    let is_cut = is_long || entries.len() > ENTRIES_MAX;
    entries.drain(..entries.len().saturating_sub(ENTRIES_MAX));
    let unfinished = match job.has_ended() {
        false => console.office.jobs.unfinished(&whole.session).await,
        true => None,
    };
    let diff = events
        .iter()
        .rfind(|stored| stored.event.kind == JobEventType::AgentDiff);
    let changes = match diff.and_then(|stored| stored.event.data["diff"].as_str()) {
        Some(diff) => patch::files(diff),
        // An agent that tells no diff of its turn tells of each edit.
        None => entry::edited(&events),
    };
    Ok(Parts {
        head: events.last().map_or(0, |stored| stored.seq),
        now: now.to_string(),
        state: standing(job),
        tone: tone(job),
        is_open: !job.has_ended(),
        can_talk: job.conversation_id.is_some(),
        worked: worked(job, now),
        clock: Clock::of(job, now),
        tokens: told(usage.total_tokens, grouped),
        prompt_tokens: grouped(usage.prompt_tokens),
        completion_tokens: grouped(usage.completion_tokens),
        cost: cost(usage),
        approvals: job.metrics.approval_count,
        waited: told(job.metrics.approval_ms, spoken_millis),
        questions: questions(console, job).await?,
        error: job.error.as_ref().map(|error| shown(&error.message)),
        entries,
        writing: unfinished.map(|text| text::lines(&text, TEXT_CHARS_SHOWN)),
        is_cut,
        added: changes.iter().map(|change| change.added).sum(),
        removed: changes.iter().map(|change| change.removed).sum(),
        changes,
    })
}

/// A job's latest events, and whether there are more than are looked through.
async fn events(console: &Console, reader: &Reader, job: &Job) -> Result<(Vec<StoredEvent>, bool), Failure> {
    let (mut latest, mut after) = (Latest::default(), 0);
    loop {
        let read = console.office.jobs.logs(&reader.0, &job.id, after, JOB_EVENTS_AT_ONCE);
        let (events, next) = read.await?;
        if next == after {
            return Ok((latest.events, latest.is_cut));
        }
        after = next;
        latest.add(events);
    }
}

/// The events that came last, however many there were.
#[derive(Default)]
struct Latest {
    events: Vec<StoredEvent>,
    is_cut: bool,
}

impl Latest {
    fn add(&mut self, mut more: Vec<StoredEvent>) {
        self.events.append(&mut more);
        let over = self.events.len().saturating_sub(EVENTS_MAX);
        self.events.drain(..over);
        self.is_cut |= over > 0;
    }
}

async fn questions(console: &Console, job: &Job) -> Result<Vec<Waiting>, Failure> {
    let open = console.office.board.list(ApprovalFilter::open()).await?;
    let own = open.iter().filter(|it| it.job_id.as_deref() == Some(job.id.as_str()));
    let waiting = own.map(|it| Waiting {
        id: it.id.as_str().to_owned(),
        about: shown(it.details["command"].as_str().unwrap_or(it.kind.as_str())),
    });
    Ok(waiting.collect())
}

impl Clock {
    fn of(job: &Job, now: Timestamp) -> Self {
        let left = u64::try_from(job.clock.left(now).as_millis()).unwrap_or(u64::MAX);
        match (job.has_ended(), job.clock.ends_at()) {
            (true, _) => Self::Over,
            (false, Some(ends)) => Self::Runs(Moment::of(ends, now)),
            (false, None) => Self::Stands(spoken_millis(left - left % 1_000)),
        }
    }
}

fn facts(whole: &WholeJob) -> Vec<Fact> {
    let WholeJob {
        job,
        session,
        directory,
        usage,
    } = whole;
    let config = |name: &str| session.config[name].as_str().unwrap_or_default().to_owned();
    let mut facts = Vec::new();
    let mut add = |name: &'static str, is_code: bool, value: &str| {
        if !value.is_empty() {
            facts.push(Fact {
                name,
                is_code,
                value: shown(value),
            });
        }
    };
    add("Where", true, &config("cwd"));
    let model = usage.model.clone().or(job.input.model.clone());
    add("Model", false, &model.unwrap_or_default());
    add("Sandbox", false, &config("sandboxPolicy"));
    let policy = &session.config["approvalPolicy"];
    let mode = policy.as_str().or(policy["mode"].as_str());
    add("Asks", false, mode.unwrap_or_default());
    add("Session", false, session.name.as_str());
    add(
        "Conversation",
        true,
        job.conversation_id.as_ref().map_or("", |id| id.as_str()),
    );
    add("Session files", true, &directory.to_string_lossy());
    add("Run", true, job.run_id.as_deref().unwrap_or_default());
    add("Job", true, job.id.as_str());
    facts
}

/// Empty where there is nothing to tell.
fn told(number: u64, words: fn(u64) -> String) -> String {
    if number == 0 { String::new() } else { words(number) }
}

fn shown(text: &str) -> Html {
    text::shown(text, TEXT_CHARS_SHOWN)
}

#[cfg(test)]
mod tests {
    use countersign_gateway::ids::EventId;
    use countersign_gateway::job::event::JobEvent;
    use serde_json::Value;

    use super::*;

    fn stored(seq: u64) -> StoredEvent {
        StoredEvent {
            seq,
            event: JobEvent {
                event_id: EventId::trusted(seq.to_string()),
                timestamp: Timestamp::from_millis(0),
                job_id: JobId::trusted("j"),
                session_id: None,
                kind: JobEventType::AgentEvent,
                data: Value::Null,
            },
        }
    }

    #[test]
    fn of_a_long_job_the_latest_events_are_looked_through() {
        let mut latest = Latest::default();
        let max = EVENTS_MAX as u64;
        latest.add((1..=max).map(stored).collect());
        assert!(!latest.is_cut, "they are all there");
        latest.add(vec![stored(max + 1)]);
        assert!(latest.is_cut);
        let ends = (latest.events[0].seq, latest.events[EVENTS_MAX - 1].seq);
        assert_eq!((ends, latest.events.len()), ((2, max + 1), EVENTS_MAX));
    }
}
