//! `runs`: set off, looked at and called back at the machine.
//!
//! Who may open the state directory is an operator. A run that is set off waits in the record; whichever
//! server runs on the state directory gives it its turn.

mod show;

use std::process::ExitCode;
use std::sync::Arc;

use countersign_gateway::approval::board::Board;
use countersign_gateway::clock::Clock;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::RunId;
use countersign_gateway::policy::effective::EffectivePolicy;
use countersign_gateway::run::desk::{Enqueued, RunDesk, end};
use countersign_gateway::run::keeping::RunFilter;
use countersign_gateway::run::lifecycle::{RunStatus, Runtime};
use countersign_gateway::run::manual::{ManualOrder, ManualRuns, Profiles};
use countersign_gateway::run::profile::{Asked, Profile};
use countersign_gateway::run::state::Run;
use countersign_gateway::run::{map, view};
use countersign_store::{Durability, Store};

use crate::cli::{RunStart, Runs};
use crate::commands::audit::{self, Form};
use crate::config::Flags;
use crate::start::{self, BadUsage, Started};
use crate::terminal::{Cell, Page, Tone, shortened};
use crate::{runs, whereabouts, wiring};

const TITLE_CHARS_MAX: usize = 60;
/// Runs on a map.
const MAP_MAX: usize = 10_000;

pub(crate) fn run(flags: &Flags, command: &Runs) -> anyhow::Result<ExitCode> {
    match command {
        Runs::Start(asked) => begin(flags, asked)?,
        Runs::List {
            status,
            repository,
            issue,
            pull_request,
            limit,
            json,
        } => {
            let filter = RunFilter {
                repository: repository.clone(),
                issue_number: *issue,
                pull_request_number: *pull_request,
                statuses: status.as_deref().and_then(RunStatus::parse).into_iter().collect(),
                limit: *limit as usize,
                ..RunFilter::default()
            };
            list(flags, filter, Form::of(*json))?;
        }
        Runs::Show { id, json } => show::run(flags, id, Form::of(*json))?,
        Runs::Cancel { id, reason, json } => cancel(flags, id, reason, Form::of(*json))?,
        Runs::Map { repository, json } => map_of(flags, repository.clone(), Form::of(*json))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The runs of a state directory.
struct Window {
    store: Arc<Store>,
    desk: Arc<RunDesk>,
    board: Arc<Board>,
}

impl Window {
    /// For a command that only looks.
    fn open(flags: &Flags) -> anyhow::Result<Self> {
        audit::existing_record(flags)?;
        let window = Self::of(&Started::load(flags)?, Durability::Process)?;
        wiring::leave_unsigned(&window.store);
        Ok(window)
    }

    fn of(started: &Started, durability: Durability) -> anyhow::Result<Self> {
        let store = Arc::new(started.store(durability)?);
        let redactor = started.redactor();
        let bell = store.knock(&started.settings.state_dir);
        let board = wiring::board(&store, &redactor, bell, Vec::new());
        let desk = runs::desk(&store, &board, &redactor);
        Ok(Self { store, desk, board })
    }

    /// The run that an id, or its beginning, names.
    async fn named(&self, id: &str) -> anyhow::Result<Run> {
        match self.desk.find(&RunId::trusted(id)).await {
            Ok(run) => return Ok(run),
            Err(refusal) if refusal.code == ErrorCode::NotFound => {}
            Err(refusal) => return Err(told(refusal)),
        }
        let filter = RunFilter {
            limit: MAP_MAX,
            ..RunFilter::default()
        };
        let runs = self.desk.list(filter).await.map_err(told)?;
        let mut named: Vec<Run> = runs
            .into_iter()
            .filter(|run| !id.is_empty() && run.id.as_str().starts_with(id))
            .collect();
        match (named.pop(), named.is_empty()) {
            (Some(run), true) => Ok(run),
            (Some(_), false) => anyhow::bail!("`{id}` begins the ids of several runs; say more of it"),
            (None, _) => anyhow::bail!("there is no run `{id}`; `countersign runs list` lists them"),
        }
    }
}

fn told(refusal: Refusal) -> anyhow::Error {
    match refusal.code {
        ErrorCode::InvalidArguments => BadUsage(refusal.message).into(),
        _ => anyhow::anyhow!(refusal.message),
    }
}

fn begin(flags: &Flags, asked: &RunStart) -> anyhow::Result<()> {
    let started = Started::load(flags)?;
    let window = Window::of(&started, Durability::Power)?;
    let manual = ManualRuns {
        desk: window.desk.clone(),
        profiles: Arc::new(OfPolicy(started.policy.clone())),
        time: started.settings.run_time,
    };
    let order = ManualOrder {
        repository: asked.repository.clone(),
        project: asked.project.clone(),
        issue_number: asked.issue,
        pull_request_number: asked.pull_request,
        label: asked.label.clone(),
        agent_key: asked.agent_key.clone(),
        runtime: asked.runtime.as_deref().and_then(Runtime::parse),
        namespace: asked.namespace.clone(),
        labels: asked.labels.iter().cloned().collect(),
        title: asked.title.clone(),
        instructions: asked.instructions.clone().filter(|words| !words.trim().is_empty()),
        timeout_ms: asked.timeout_ms,
    };
    let enqueued = start::runtime()?
        .block_on(manual.start(&wiring::person(), order))
        .map_err(told)?;
    let run = enqueued.run();
    let mut page = Page::stdout();
    match Form::of(asked.json) {
        Form::Json => page.json(&view::whole(run, Clock::system().now()))?,
        Form::Text => {
            page.line(run.id.as_str())?;
            page.flush()?;
            start::say(match enqueued {
                Enqueued::New(_) => "the run is set off and waits for its turn",
                Enqueued::Waiting(_) => "one with this label waits for this issue already; this is it",
            });
            if whereabouts::find(&started.settings.state_dir).is_none() {
                start::say("no server runs on this state directory; `countersign serve` gives runs their turns");
            }
        }
    }
    page.flush()
}

fn list(flags: &Flags, filter: RunFilter, form: Form) -> anyhow::Result<()> {
    let window = Window::open(flags)?;
    let runs = start::runtime()?.block_on(window.desk.list(filter)).map_err(told)?;
    let now = Clock::system().now();
    let mut page = Page::stdout();
    match form {
        Form::Json => {
            let shown: Vec<_> = runs.iter().map(|run| view::whole(run, now).to_string()).collect();
            page.array(&shown)?;
        }
        Form::Text => page.found(&runs.iter().map(cells).collect::<Vec<_>>())?,
    }
    page.flush()
}

fn cancel(flags: &Flags, id: &str, reason: &str, form: Form) -> anyhow::Result<()> {
    audit::existing_record(flags)?;
    let window = Window::of(&Started::load(flags)?, Durability::Power)?;
    let run = start::runtime()?.block_on(async {
        let run = window.named(id).await?;
        window
            .desk
            .cancel(&wiring::person(), &run.id, reason)
            .await
            .map_err(told)
    })?;
    let mut page = Page::stdout();
    match form {
        Form::Json => page.json(&view::whole(&run, Clock::system().now()))?,
        Form::Text => page.line(format_args!(
            "the run {} is called back, and its tokens with it",
            run.id
        ))?,
    }
    page.flush()
}

fn map_of(flags: &Flags, repository: Option<String>, form: Form) -> anyhow::Result<()> {
    let window = Window::open(flags)?;
    let found = start::runtime()?.block_on(async {
        let filter = RunFilter {
            repository,
            limit: MAP_MAX,
            ..RunFilter::default()
        };
        let mut found = Vec::new();
        for run in window.desk.list(filter).await.map_err(told)? {
            let links = window.desk.parts().runs.links_of(end(&run)).await?;
            found.push((run, links));
        }
        Ok::<_, anyhow::Error>(found)
    })?;
    let mut page = Page::stdout();
    match form {
        Form::Text => page.line(map::markdown(&found).trim_end())?,
        Form::Json => {
            let now = Clock::system().now();
            let shown = found
                .iter()
                .map(|(run, links)| view::trace(run, links, None, now).to_string());
            page.array(&shown.collect::<Vec<_>>())?;
        }
    }
    page.flush()
}

/// Id, state, what set it off, for what, whose work, what was said last.
fn cells(run: &Run) -> Vec<Cell> {
    let about = run
        .pull_request()
        .or_else(|| run.issue())
        .or_else(|| run.repository.clone());
    let said = run
        .reported_status
        .as_deref()
        .or(run.title.as_deref())
        .unwrap_or_default();
    vec![
        Cell::new(Tone::Strong, run.id.as_str()),
        Cell::new(tone(run.status), standing(run)),
        Cell::plain(run.trigger_label.as_deref().unwrap_or("by hand")),
        Cell::plain(about.as_deref().unwrap_or_default()),
        Cell::plain(&run.agent_key),
        Cell::new(Tone::Quiet, run.created_at.to_string()),
        Cell::plain(shortened(said, TITLE_CHARS_MAX)),
    ]
}

/// The state, and what it waits for.
fn standing(run: &Run) -> String {
    match run.wait_state {
        Some(state) => format!("{} (waits: {})", run.status.as_str(), state.as_str()),
        None => run.status.as_str().to_owned(),
    }
}

fn tone(status: RunStatus) -> Tone {
    match status {
        RunStatus::Pending => Tone::Caution,
        RunStatus::Running => Tone::Plain,
        RunStatus::Succeeded => Tone::Good,
        RunStatus::Failed => Tone::Bad,
        RunStatus::Cancelled => Tone::Quiet,
    }
}

/// The policy as this command read it.
struct OfPolicy(EffectivePolicy);

impl Profiles for OfPolicy {
    fn profile(&self, asked: &Asked<'_>) -> Profile {
        Profile::resolve(self.0.tools.layers(), asked)
    }
}
