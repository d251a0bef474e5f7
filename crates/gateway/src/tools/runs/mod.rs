//! The tools of runs: an agent says how far it is, and one that improves the house looks at what others did.
//!
//! They are for callers with a run's token. A look reaches the runs of the caller's own repository unless its
//! policy lets it see another.

mod schema;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::approval::ClearedAct;
use crate::audit::event::Actor;
use crate::audit::{Pending, RecordError};
use crate::catalog::arguments::Arguments;
use crate::catalog::definition::ToolDefinition;
use crate::error::{ErrorCode, Refusal};
use crate::ids::RunId;
use crate::job::keeping::Jobs;
use crate::limits;
use crate::policy::actor::{RunContext, Target};
use crate::run::desk::RunDesk;
use crate::run::keeping::RunFilter;
use crate::run::state::Run;
use crate::run::view;
use crate::tools::acts::{Act, Asked, Toolbox};

/// Where the reference keeps what an agent looks at.
const SESSIONS: &str = "/tmp/codex-sessions";
/// Runs in one answer, and pages of them.
const ITEMS_MAX: u64 = 50;
const PAGES_MAX: u64 = 10_000;

pub struct RunTools {
    parts: Parts,
}

#[derive(Clone)]
struct Parts {
    desk: Arc<RunDesk>,
    jobs: Arc<dyn Jobs>,
}

impl RunTools {
    pub fn new(desk: Arc<RunDesk>, jobs: Arc<dyn Jobs>) -> Arc<Self> {
        Arc::new(Self {
            parts: Parts { desk, jobs },
        })
    }
}

impl Toolbox for RunTools {
    fn definitions(&self) -> Vec<ToolDefinition> {
        schema::definitions()
    }

    fn read(&self, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
        let tool = asked.call.tool.as_str();
        let missing = || Refusal::new(ErrorCode::UnknownTool, format!("there is no tool `{tool}`"));
        let run = asked.caller.run.as_deref().ok_or_else(missing)?;
        let mut arguments = Arguments::new(&asked.call.arguments);
        let wish = match tool {
            "run_status_report" => report(&mut arguments, run),
            "self_improve_runs_list" => list(&mut arguments, run),
            "self_improve_run_lookup" => lookup(&mut arguments, run),
            "self_improve_session_get" => Wish::Session(RunId::trusted(arguments.string("run_id"))),
            _ => return Err(missing()),
        };
        arguments.finish()?;
        Ok(Box::new(RunAct {
            parts: self.parts.clone(),
            repository: match &wish {
                Wish::List { filter, .. } | Wish::Lookup(filter) => filter.repository.clone(),
                Wish::Report { .. } | Wish::Session(_) => run.repository.clone(),
            },
            project: run.project.clone(),
            wish,
        }))
    }
}

enum Wish {
    Report { run: Option<RunId>, status: String },
    List { filter: RunFilter, page: u64, limit: u64 },
    Lookup(RunFilter),
    Session(RunId),
}

fn report(arguments: &mut Arguments<'_>, run: &RunContext) -> Wish {
    let status = arguments.string("status");
    let length = status.chars().count();
    if status.trim().is_empty() || length > limits::RUN_STATUS_CHARS_MAX {
        let max = limits::RUN_STATUS_CHARS_MAX;
        arguments.problem(format!("`status` must have 1 to {max} characters, not {length}"));
    }
    Wish::Report {
        run: run.run_id.clone(),
        status,
    }
}

fn list(arguments: &mut Arguments<'_>, run: &RunContext) -> Wish {
    let repository = repository(arguments, run);
    let page = arguments.optional_positive("page").unwrap_or(1).min(PAGES_MAX);
    let limit = items(arguments);
    let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Wish::List {
        filter: RunFilter {
            repository,
            offset: whole((page - 1) * limit),
            // One more tells whether there is a next page.
            limit: whole(limit + 1),
            ..RunFilter::default()
        },
        page,
        limit,
    }
}

fn lookup(arguments: &mut Arguments<'_>, run: &RunContext) -> Wish {
    let repository = repository(arguments, run);
    let issue_number = arguments.optional_positive("issue_number");
    let pull_request_number = arguments.optional_positive("pull_request_number");
    if issue_number.is_none() && pull_request_number.is_none() {
        arguments.problem("one of `issue_number` and `pull_request_number` is needed".to_owned());
    }
    Wish::Lookup(RunFilter {
        repository,
        issue_number,
        pull_request_number,
        limit: usize::try_from(items(arguments)).unwrap_or(usize::MAX),
        ..RunFilter::default()
    })
}

fn repository(arguments: &mut Arguments<'_>, run: &RunContext) -> Option<String> {
    let named = arguments.optional_string("repository_full_name");
    named.or_else(|| run.repository.clone())
}

fn items(arguments: &mut Arguments<'_>) -> u64 {
    let limit = arguments.optional_positive("limit").unwrap_or(ITEMS_MAX);
    if limit > ITEMS_MAX {
        arguments.problem(format!("`limit` must be at most {ITEMS_MAX}"));
    }
    limit.min(ITEMS_MAX)
}

struct RunAct {
    parts: Parts,
    wish: Wish,
    /// Whose runs are looked at.
    repository: Option<String>,
    project: Option<String>,
}

impl Act for RunAct {
    fn target(&self) -> Target<'_> {
        Target {
            repository: self.repository.as_deref(),
            ..Target::default()
        }
    }

    fn only_looks(&self) -> bool {
        match self.wish {
            Wish::Report { .. } => false,
            Wish::List { .. } | Wish::Lookup(_) | Wish::Session(_) => true,
        }
    }

    fn details(&self) -> Map<String, Value> {
        let shown = match &self.wish {
            Wish::Report { status, .. } => json!({"status": status}),
            Wish::List { page, limit, .. } => json!({"repository": self.repository, "page": page, "limit": limit}),
            Wish::Lookup(filter) => json!({
                "repository": self.repository, "issue_number": filter.issue_number,
                "pull_request_number": filter.pull_request_number,
            }),
            Wish::Session(run) => json!({"run_id": run.as_str()}),
        };
        shown.as_object().cloned().unwrap_or_default()
    }

    fn perform(self: Box<Self>, cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>> {
        Box::pin(async move {
            let by = cleared.caller().actor.clone();
            let shown = match &self.wish {
                Wish::Report { run, status } => self.report(&by, run.as_ref(), status).await?,
                Wish::List { filter, page, limit } => {
                    let mut runs = self.parts.desk.list(filter.clone()).await?;
                    let has_next = runs.len() as u64 > *limit;
                    runs.truncate(usize::try_from(*limit).unwrap_or(usize::MAX));
                    let items: Vec<Value> = self.own(&runs).map(view::item).collect();
                    json!({"status": "ok", "page": page, "limit": limit, "has_next": has_next, "items": items})
                }
                Wish::Lookup(filter) => {
                    let runs = self.parts.desk.list(filter.clone()).await?;
                    json!({"status": "ok", "items": self.own(&runs).map(view::item).collect::<Vec<_>>()})
                }
                Wish::Session(run) => self.session(run).await?,
            };
            Ok(shown.as_object().cloned().unwrap_or_default())
        })
    }
}

impl RunAct {
    async fn report(&self, by: &Actor, run: Option<&RunId>, status: &str) -> Result<Value, Refusal> {
        let Some(run) = run else {
            let message = "only the agent of a run reports on it; call with the run's token";
            return Err(Refusal::new(ErrorCode::Conflict, message));
        };
        let run = self.parts.desk.report(by, run, status).await?;
        Ok(json!({"status": "ok", "reported_status": run.reported_status}))
    }

    /// A run with what its agent did, as far as it is kept.
    async fn session(&self, id: &RunId) -> Result<Value, Refusal> {
        let found = self.parts.desk.find(id).await?;
        // One of another house is not there.
        let run = self.own(std::slice::from_ref(&found)).next().cloned();
        let run = match run.filter(|run| run.repository == self.repository) {
            Some(run) => run,
            None => {
                let message = format!("there is no run `{}`", crate::error::brief(id.as_str()));
                return Err(Refusal::new(ErrorCode::NotFound, message));
            }
        };
        let unread = |error: RecordError| error.refusal("try again later");
        let kept = self
            .parts
            .desk
            .parts()
            .runs
            .agent_session(&run.id)
            .await
            .map_err(unread)?;
        let mut session = json!({});
        if let Some(kept) = kept {
            session = serde_json::from_str(&kept.session_json).unwrap_or(session);
            session["agent_session"] = view::agent_session(&kept);
        }
        if let Some(job) = &run.job_id
            && let Some(job) = self.parts.jobs.find(job).await.map_err(unread)?
        {
            let events = self.parts.jobs.events(&job.session_id, 0, limits::JOB_EVENTS_AT_ONCE);
            let events = events.await.map_err(unread)?;
            session["events"] = events.iter().map(|stored| stored.event.to_json()).collect();
            session["has_more_events"] = json!(events.len() == limits::JOB_EVENTS_AT_ONCE);
        }
        let directory = format!("{SESSIONS}/{}", run.id);
        Ok(json!({
            "status": "ok", "run": view::item(&run), "tmp_directory": directory,
            "tmp_file_path": format!("{directory}/codex-session.json"), "codex_session_json": session,
        }))
    }

    /// Runs of the caller's project; a caller that has none sees those that have none.
    fn own<'r>(&self, runs: &'r [Run]) -> impl Iterator<Item = &'r Run> {
        let project = self.project.clone();
        runs.iter().filter(move |run| run.project == project)
    }
}
