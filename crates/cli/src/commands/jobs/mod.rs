//! `jobs`: agents' work, given and looked after at the machine.
//!
//! Who may open the state directory is an operator. Looking reads the record; giving work, saying something
//! and calling back go through the same tools that agents call, so policy decides and the record tells.

mod acting;
mod logs;
mod show;

use std::process::ExitCode;
use std::sync::Arc;

use countersign_gateway::approval::Alone;
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::error::ErrorCode;
use countersign_gateway::ids::JobId;
use countersign_gateway::job::desk::JobDesk;
use countersign_gateway::job::keeping::JobFilter;
use countersign_gateway::job::lifecycle::JobStatus;
use countersign_gateway::job::state::Job;
use countersign_gateway::session::Caller;
use countersign_store::Durability;

use crate::cli::Jobs;
use crate::commands::approvals::age;
use crate::commands::audit::{self, Form};
use crate::config::Flags;
use crate::start::{self, Started};
use crate::terminal::{Cell, Page, Tone, shortened};
use crate::{jobs, wiring};

const PROMPT_CHARS_MAX: usize = 72;
/// Jobs among which one is found by the beginning of its id.
const NAMED_AMONG: usize = 10_000;

pub(crate) fn run(flags: &Flags, command: &Jobs) -> anyhow::Result<ExitCode> {
    match command {
        Jobs::Start(start) => return acting::start(flags, start),
        Jobs::List { status, limit, json } => list(flags, status.as_deref(), *limit as usize, Form::of(*json))?,
        Jobs::Show { id, follow: true, .. } => show::follow(flags, id)?,
        Jobs::Show { id, json, .. } => show::run(flags, id, Form::of(*json))?,
        Jobs::Logs { id, follow, json } => {
            let until = if *follow { logs::Until::Ended } else { logs::Until::Now };
            logs::run(flags, id, until, Form::of(*json))?;
        }
        Jobs::Send { id, message, json } => acting::send(flags, id, message, Form::of(*json))?,
        Jobs::Interrupt { id, json } => acting::interrupt(flags, id, Form::of(*json))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The jobs of a state directory, for a command that only looks.
struct Window {
    desk: Arc<JobDesk>,
    person: Caller,
}

impl Window {
    fn open(flags: &Flags) -> anyhow::Result<Self> {
        audit::existing_record(flags)?;
        let started = Started::load(flags)?;
        let store = Arc::new(started.store(Durability::Process)?);
        let redactor = started.redactor();
        let board = wiring::board(&store, &redactor, Arc::new(Alone), Vec::new());
        let desk = jobs::desk(&started.settings, &store, &board, &redactor);
        wiring::leave_unsigned(&store);
        Ok(Self {
            desk,
            person: Caller::person(&wiring::user()),
        })
    }

    async fn list(&self, statuses: Vec<JobStatus>, limit: usize) -> anyhow::Result<Vec<Job>> {
        let filter = JobFilter {
            owner: None,
            statuses,
            limit,
        };
        let jobs = self.desk.list(&self.person, filter).await;
        jobs.map_err(|refusal| anyhow::anyhow!(refusal.message))
    }

    /// The job that an id, or its beginning, names.
    async fn named(&self, id: &str) -> anyhow::Result<Job> {
        match self.desk.find(&self.person, &JobId::trusted(id)).await {
            Ok(job) => return Ok(job),
            Err(refusal) if refusal.code == ErrorCode::NotFound => {}
            Err(refusal) => anyhow::bail!(refusal.message),
        }
        let jobs = self.list(Vec::new(), NAMED_AMONG).await?;
        let mut named: Vec<Job> = jobs
            .into_iter()
            .filter(|job| !id.is_empty() && job.id.as_str().starts_with(id))
            .collect();
        match (named.pop(), named.is_empty()) {
            (Some(job), true) => Ok(job),
            (Some(_), false) => anyhow::bail!("`{id}` begins the ids of several jobs; say more of it"),
            (None, _) => anyhow::bail!("there is no job `{id}`; `countersign jobs list` lists them"),
        }
    }
}

fn list(flags: &Flags, status: Option<&str>, limit: usize, form: Form) -> anyhow::Result<()> {
    let window = Window::open(flags)?;
    let statuses = status.and_then(JobStatus::parse).into_iter().collect();
    let jobs = start::runtime()?.block_on(window.list(statuses, limit))?;
    let mut page = Page::stdout();
    match form {
        Form::Json => page.array(&jobs.iter().map(|job| job.to_json().to_string()).collect::<Vec<_>>())?,
        Form::Text => {
            let now = Clock::system().now();
            page.found(&jobs.iter().map(|job| cells(job, now)).collect::<Vec<_>>())?;
        }
    }
    page.flush()
}

/// Id, state, age, agent, how long it worked, what.
fn cells(job: &Job, now: Timestamp) -> Vec<Cell> {
    vec![
        Cell::new(Tone::Strong, job.id.as_str()),
        Cell::new(tone(job), job.standing()),
        Cell::new(Tone::Quiet, age(job.created_at, now)),
        Cell::plain(&job.agent),
        Cell::new(Tone::Quiet, worked(job, now)),
        Cell::plain(shortened(&job.input.prompt, PROMPT_CHARS_MAX)),
    ]
}

/// How long it worked, or has worked so far; a dash before it began.
fn worked(job: &Job, now: Timestamp) -> String {
    let so_far = || job.metrics.start_time.map(|began| now.since(began).as_millis() as u64);
    match job.duration_ms().or_else(so_far) {
        Some(millis) => spoken(millis),
        None => "–".to_owned(),
    }
}

/// A time in the units that it needs.
fn spoken(millis: u64) -> String {
    match (millis / 3_600_000, millis / 60_000 % 60, millis / 1_000 % 60) {
        (0, 0, 0) => format!("{millis} ms"),
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

fn tone(job: &Job) -> Tone {
    match job.status() {
        JobStatus::Pending => Tone::Quiet,
        JobStatus::Running if job.sub_state.is_some() => Tone::Caution,
        JobStatus::Running => Tone::Plain,
        JobStatus::Completed => Tone::Good,
        JobStatus::Failed | JobStatus::Timeout => Tone::Bad,
        JobStatus::Cancelled => Tone::Quiet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_units_that_it_needs() {
        for (millis, text) in [
            (7, "7 ms"),
            (1_900, "1 s"),
            (61_000, "1 min 1 s"),
            (3_660_000, "1 h 1 min"),
        ] {
            assert_eq!(spoken(millis), text);
        }
    }
}
