//! Measures one database as its nodes use it: taking jobs from a queue, and questions to a long record.
//!
//!     cargo run --release -p countersign-store --example nodes_bench -- template URL DIR 1
//!     cargo run --release -p countersign-store --example nodes_bench -- claims URL DIR TURNS
//!     cargo run --release -p countersign-store --example nodes_bench -- queries URL DIR TURNS
//!
//! `bench/nodes` fills the database before; DIR becomes the state directory of a node.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use countersign_gateway::audit::event::EventType;
use countersign_gateway::audit::reading::{Filter, Pick};
use countersign_gateway::audit::{Change, Record as _};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::ids::{CorrelationId, CredentialId, JobId, JobSessionId};
use countersign_gateway::job::input::JobInput;
use countersign_gateway::job::keeping::{Hold, JobChange, Jobs as _};
use countersign_gateway::job::state::{Job, Order};
use countersign_gateway::limits;
use countersign_store::{Durability, Options, Store};
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [measure, url, directory, turns] = arguments.as_slice() else {
        return Err("usage: nodes_bench claims|queries|template URL DIR TURNS".into());
    };
    let options = Options::new(Durability::Power, Clock::system()).on(Some(url.clone()));
    let store = Store::open(Path::new(directory), options)?;
    let turns = turns.parse()?;
    let results = match measure.as_str() {
        "template" => template(&store)?,
        "claims" => claims(&store, turns)?,
        "queries" => queries(&store, turns)?,
        other => return Err(format!("`{other}` is none of `template`, `claims` and `queries`").into()),
    };
    println!("{results}");
    Ok(())
}

/// One queued job, for the filler to make others like it.
fn template(store: &Store) -> Outcome<Value> {
    let order = Order {
        request_id: "1".to_owned(),
        correlation_id: CorrelationId::trusted("c"),
        session_id: JobSessionId::trusted("s"),
        agent: "script".to_owned(),
        owner: CredentialId::trusted("local"),
        started_by: countersign_gateway::audit::event::Actor::system("bench"),
        run_id: None,
        input: JobInput::restored(&json!({"prompt": "say hello", "approvalPolicy": {"mode": "never"}})),
    };
    let job = Job::new(JobId::trusted("template"), order, Clock::system().now());
    let change = Change {
        jobs: vec![JobChange::new(job)],
        ..Change::default()
    };
    runtime()?.block_on(store.commit(change))?;
    Ok(json!({"measure": "template"}))
}

/// What a node does for every job that it takes: look at the head of the queue, take one, durably.
fn claims(store: &Store, turns: usize) -> Outcome<Value> {
    let runtime = runtime()?;
    let (mut looked, mut taken) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        let now = Clock::system().now();
        let start = Instant::now();
        let waiting = runtime.block_on(store.waiting(now, limits::JOBS_AT_ONCE))?;
        looked.push(start.elapsed());
        let job = waiting.first().ok_or("the queue is empty")?;
        let mut change = JobChange::over(job.version, job.changed(now));
        change.hold = Hold::Take { places: usize::MAX };
        let change = Change {
            jobs: vec![change],
            ..Change::default()
        };
        runtime.block_on(store.commit(change))?;
        taken.push(start.elapsed());
    }
    Ok(json!({"measure": "claims", "turns": turns, "look": spread(looked), "claim": spread(taken)}))
}

/// Questions that people and pages ask, each by another index; over rows spread through the whole record.
fn queries(store: &Store, turns: usize) -> Outcome<Value> {
    let last = store.query_events(&Filter {
        limit: 1,
        pick: Pick::Newest,
        ..Filter::everything()
    })?;
    let last = last.first().ok_or("the record is empty")?.place;
    let mut results = serde_json::Map::new();
    let mut ask = |name: &str, filter: &dyn Fn(u64) -> Filter, commands: bool| -> Outcome<()> {
        let (mut took, mut rows) = (Vec::new(), 0);
        for turn in 0..turns as u64 {
            // A large prime: places all over the record, the same in every run.
            let filter = filter(1 + (turn * 7_919_000_003) % last);
            let start = Instant::now();
            rows += if commands {
                store.query_commands(&filter)?.len()
            } else {
                store.query_events(&filter)?.len()
            };
            took.push(start.elapsed());
        }
        let mut result = spread(took);
        result["rows"] = (rows / turns).into();
        results.insert(name.to_owned(), result);
        Ok(())
    };
    let limit = 100;
    ask(
        "by correlation",
        &|at| Filter {
            correlation_id: Some(format!("c-{}", at / 4)),
            limit,
            ..Filter::everything()
        },
        false,
    )?;
    ask(
        "a command by its request id",
        &|at| Filter {
            request_id: Some(format!("r-{}", at / 4)),
            limit,
            ..Filter::everything()
        },
        true,
    )?;
    ask(
        "all of a command by its request id",
        &|at| Filter {
            request_id: Some(format!("r-{}", at / 4)),
            limit,
            ..Filter::everything()
        },
        false,
    )?;
    ask(
        "a page behind a place",
        &|at| Filter {
            after: Some(at),
            limit,
            ..Filter::everything()
        },
        false,
    )?;
    ask(
        "the last page",
        &|_| Filter {
            limit,
            pick: Pick::Newest,
            ..Filter::everything()
        },
        false,
    )?;
    ask(
        "the last of a rare kind",
        &|_| Filter {
            event_type: Some(EventType::TokenCreated),
            limit,
            pick: Pick::Newest,
            ..Filter::everything()
        },
        false,
    )?;
    ask(
        "a minute",
        &|at| {
            // The filler puts a row on every tenth of a second.
            let from = FIRST_MS + i64::try_from(at).unwrap_or(0) * 100;
            Filter {
                from: Some(Timestamp::from_millis(from)),
                to: Some(Timestamp::from_millis(from + 60_000)),
                limit,
                ..Filter::everything()
            }
        },
        false,
    )?;
    Ok(Value::from(results))
}

/// The moment of the filler's first row: 2026-01-01.
const FIRST_MS: i64 = 1_767_225_600_000;

fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_time().build()?)
}

fn spread(mut took: Vec<Duration>) -> Value {
    took.sort_unstable();
    let at = |per_mille: usize| (took[(took.len() - 1) * per_mille / 1_000].as_secs_f64() * 1e5).round() / 1e2;
    json!({"p50_ms": at(500), "p99_ms": at(990)})
}
