//! One run: how it stands, what it belongs to, what was asked and what happened; and an operator's calling it back.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use countersign_gateway::audit::reading::Filter;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::RunId;
use countersign_gateway::run::desk::end;
use countersign_gateway::run::keeping::{Link, LinkKind};
use countersign_gateway::run::session::AgentSession;
use countersign_gateway::run::state::Run;

use super::Console;
use super::access::Reader;
use super::event::{self, Told};
use super::page::{self, Failure, Frame, Place};
use super::runs::{standing, tone};
use super::text::{self, Html};
use super::time::{Moment, spoken_millis};
use crate::limits::TEXT_CHARS_SHOWN;

const EVENTS_MAX: usize = 200;
/// What the record says of a run that is called back here.
const REASON: &str = "called back in the console";

#[derive(Template)]
#[template(path = "run.html")]
struct Page {
    frame: Frame,
    id: String,
    title: Html,
    parts: Parts,
    /// Whether the reader may call it back.
    may_act: bool,
}

/// What changes while a page is open.
#[derive(Template)]
#[template(path = "run_parts.html")]
struct Parts {
    tone: &'static str,
    state: String,
    facts: Vec<Fact>,
    instructions: Option<Html>,
    clock: String,
    stands_still: bool,
    is_open: bool,
    story: String,
    trace: Vec<Step>,
    approvals: Vec<Question>,
    events: Vec<Told>,
    is_cut: bool,
}

struct Fact {
    name: &'static str,
    is_code: bool,
    value: Html,
}

/// A thing that the run belongs to.
struct Step {
    kind: &'static str,
    how: &'static str,
    name: Html,
    /// Where it can be looked at, in this house or at GitHub.
    address: Option<String>,
}

struct Question {
    id: String,
    tool: Html,
    state: &'static str,
    tone: &'static str,
    asked: Moment,
}

pub(super) async fn page(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let run = find(&console, id).await?;
    let title = run.title.as_deref().or(run.trigger_label.as_deref());
    let page = Page {
        frame: Frame::of(&console, &reader, Some(Place::Runs)).await?,
        id: event::path_part(run.id.as_str()).to_owned(),
        title: shown(title.unwrap_or("A run by hand")),
        parts: parts(&console, &run).await?,
        may_act: reader.may_rule(),
    };
    Ok(page::html(StatusCode::OK, &page))
}

/// How it stands now, for a page that is open.
pub(super) async fn news(
    State(console): State<Arc<Console>>,
    _: Reader,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let run = find(&console, id).await?;
    Ok(page::html(StatusCode::OK, &parts(&console, &run).await?))
}

pub(super) async fn cancel(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    if !reader.may_rule() {
        let message = "only an operator calls runs back";
        return Err(Failure::new(StatusCode::FORBIDDEN, message));
    }
    let desk = &console.office.runs.desk;
    let run = desk.cancel(&reader.0.actor, &RunId::trusted(id), REASON).await?;
    Ok(Redirect::to(&format!("/runs/{}", event::path_part(run.id.as_str()))).into_response())
}

async fn find(console: &Console, id: String) -> Result<Run, Failure> {
    Ok(console.office.runs.desk.find(&RunId::trusted(id)).await?)
}

async fn parts(console: &Console, run: &Run) -> Result<Parts, Failure> {
    let runs = &console.office.runs.desk.parts().runs;
    let links = runs.links_of(end(run)).await?;
    let session = runs.agent_session(&run.id).await?;
    let approvals = console.office.board.of_correlation(&run.correlation_id).await?;
    let filter = Filter {
        correlation_id: Some(run.correlation_id.as_str().to_owned()),
        limit: EVENTS_MAX + 1,
        ..Filter::everything()
    };
    let mut rows = console.office.records.events(filter).await?;
    let is_cut = rows.len() > EVENTS_MAX;
    rows.truncate(EVENTS_MAX);
    let now = console.clock.now();
    let left = u64::try_from(run.timer.left(now).as_millis()).unwrap_or(u64::MAX);
    Ok(Parts {
        tone: tone(run),
        state: standing(run),
        facts: facts(run, session.as_ref(), now),
        instructions: run.instructions.as_deref().map(shown),
        clock: spoken_millis(left - left % 1_000),
        stands_still: run.timer.since.is_none(),
        is_open: !run.has_ended(),
        story: format!("/calls/{}", event::path_part(run.correlation_id.as_str())),
        trace: trace(run, &links),
        approvals: approvals
            .iter()
            .filter(|approval| !approval.automatic)
            .map(|approval| Question {
                id: approval.id.as_str().to_owned(),
                tool: shown(&approval.tool),
                state: approval.state().as_str(),
                tone: event::tone_of(approval.state().as_str()),
                asked: Moment::of(approval.created_at, now),
            })
            .collect(),
        events: rows.iter().map(|row| Told::of(row, now)).collect(),
        is_cut,
    })
}

fn shown(text: &str) -> Html {
    text::shown(text, TEXT_CHARS_SHOWN)
}

fn facts(run: &Run, session: Option<&AgentSession>, now: Timestamp) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut put = |name, is_code, text: Option<&str>| {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            facts.push(Fact {
                name,
                is_code,
                value: shown(text),
            });
        }
    };
    put("Said last", false, run.reported_status.as_deref());
    put("Reason", false, run.reason.as_deref());
    put("Label", true, run.trigger_label.as_deref());
    put("Set off by", false, Some(&run.requested_by));
    put("Agent", true, Some(&run.agent_key));
    put("Runtime", true, Some(run.runtime.as_str()));
    put("Mode", false, run.is_talk().then_some("discussion"));
    put("Project", false, run.project.as_deref());
    put("Namespace", true, run.namespace.as_deref());
    put("Set off", false, Some(&Moment::of(run.created_at, now).away));
    let ended = run.finished_at.map(|at| Moment::of(at, now).away);
    put("Ended", false, ended.as_deref());
    let of_session = |field: fn(&AgentSession) -> Option<&String>| session.and_then(field).map(String::as_str);
    put("Model", true, of_session(|it| it.model.as_ref()));
    put("Effort", true, of_session(|it| it.reasoning_effort.as_ref()));
    put("Branch", true, of_session(|it| it.branch_name.as_ref()));
    put("Waits for", false, of_session(|it| it.wait_state.as_ref()));
    put("Conversation", true, of_session(|it| it.session_id.as_ref()));
    put("Run", true, Some(run.id.as_str()));
    facts
}

/// Issue, pull request, job, session, documents, in the order of their links.
fn trace(run: &Run, links: &[Link]) -> Vec<Step> {
    let mut steps: Vec<Step> = links
        .iter()
        .map(|link| {
            let other = if link.source == end(run) {
                &link.target
            } else {
                &link.source
            };
            Step {
                kind: match other.kind {
                    LinkKind::Issue => "Issue",
                    LinkKind::PullRequest => "Pull request",
                    LinkKind::Run => "Run",
                    LinkKind::Session => "Session",
                    LinkKind::Document => "Document",
                    LinkKind::Decision => "Decision",
                },
                how: link.link_type.as_str(),
                name: shown(&other.id),
                address: match other.kind {
                    LinkKind::Issue => github(&other.id, "issues"),
                    LinkKind::PullRequest => github(&other.id, "pull"),
                    LinkKind::Run => Some(format!("/runs/{}", event::path_part(&other.id))),
                    LinkKind::Session | LinkKind::Document | LinkKind::Decision => None,
                },
            }
        })
        .collect();
    if let Some(job) = &run.job_id {
        steps.push(Step {
            kind: "Job",
            how: "does its work",
            name: shown(job.as_str()),
            address: Some(format!("/jobs/{}", event::path_part(job.as_str()))),
        });
    }
    steps
}

/// `owner/name#12` at GitHub; nothing for what is none.
fn github(id: &str, what: &str) -> Option<String> {
    let (repository, number) = id.split_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let (owner, name) = repository.split_once('/')?;
    let is_plain = |part: &str| event::path_part(part) == part && !part.is_empty();
    (is_number && is_plain(owner) && is_plain(name))
        .then(|| format!("https://github.com/{owner}/{name}/{what}/{number}"))
}
