//! Measures the record: appends by 1, 8 and 64 callers, and at each size filling, appending, proving
//! and opening.
//!
//!     cargo run --release -p countersign-store --example record_bench -- [--json] [--process] [--rows=N,N…] [DIR]
//!
//! DIR decides which disk is measured; the numbers mean little on a memory file system. With `--database=URL` the record is
//! in an empty PostgreSQL database; only appending is measured then, by one node, two and three.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_gateway::audit::event::{Actor, ActorType, Draft, EventType};
use countersign_gateway::audit::{Change, Record};
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::IdSource;
use countersign_store::sqlite::verify::Range;
use countersign_store::{Durability, Options, Store};
use serde_json::{Value, json};

const SLOT: Duration = Duration::from_millis(1_500);
const FILL_BATCH: usize = 500;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut durability = Durability::Power;
    let mut as_json = false;
    let mut sizes = vec![1_000, 10_000, 100_000];
    let mut place = std::env::temp_dir();
    let mut database = None;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--json" => as_json = true,
            "--process" => durability = Durability::Process,
            other => match other.split_once('=') {
                Some(("--rows", list)) => sizes = list.split(',').map(str::parse).collect::<Result<_, _>>()?,
                Some(("--database", url)) => database = Some(url.to_owned()),
                _ => place = other.into(),
            },
        }
    }
    let options = Options::new(durability, Clock::system()).on(database);
    let mut results = vec![memory(&place, &options)?];
    for callers in [1, 8, 64] {
        results.push(appends(&place, &options, callers, 1)?);
    }
    if options.database.is_some() {
        for nodes in [2, 3] {
            results.push(appends(&place, &options, 64 * nodes, nodes)?);
        }
        sizes.clear();
    } else {
        results.push(appends(&place, &options, 2, 2)?);
    }
    for rows in sizes {
        results.extend(at_size(&place, &options, rows)?);
    }
    if as_json {
        println!("{}", Value::from(results));
        return Ok(());
    }
    for result in &results {
        let numbers = result.as_object().into_iter().flatten();
        let cells: Vec<_> = numbers.map(|(name, value)| format!("{name} {value}")).collect();
        println!("{}", cells.join("  "));
    }
    Ok(())
}

/// What a process that opened the record and waits holds in memory. Asked first, before the others
/// leave their traces.
fn memory(place: &Path, options: &Options) -> Outcome<Value> {
    let directory = tempfile::tempdir_in(place)?;
    let store = Store::open(directory.path(), options.clone())?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    drop(store);
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = line.unwrap_or_default().trim().to_owned();
    Ok(json!({"measure": "memory", "resident": resident}))
}

/// One event per append, each acknowledged before the caller sends the next. Several stores on one
/// file contend as several processes do; on one database each is a node.
fn appends(place: &Path, options: &Options, callers: usize, stores: usize) -> Outcome<Value> {
    let directory = tempfile::tempdir_in(place)?;
    let stores = (0..stores)
        .map(|number| {
            let is_node = options.database.is_some();
            let own = is_node.then(|| directory.path().join(number.to_string()));
            Store::open(own.as_deref().unwrap_or(directory.path()), options.clone()).map(Arc::new)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let latencies = call_all(&stores, callers)?;
    Ok(summary("append", callers, stores.len(), latencies))
}

fn call_all(stores: &[Arc<Store>], callers: usize) -> Outcome<Vec<Duration>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let tasks: Vec<_> = (0..callers)
            .map(|caller| {
                let store = Arc::clone(&stores[caller % stores.len()]);
                tokio::spawn(async move {
                    let ids = IdSource::random();
                    let mut taken = Vec::new();
                    let start = Instant::now();
                    while start.elapsed() < SLOT {
                        let change = change(&ids, 1);
                        let sent = Instant::now();
                        store.commit(change).await?;
                        taken.push(sent.elapsed());
                    }
                    Ok::<_, countersign_gateway::audit::RecordError>(taken)
                })
            })
            .collect();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await??);
        }
        Outcome::Ok(all)
    })
}

/// Fills a record, proves it, appends to it and opens it again.
fn at_size(place: &Path, options: &Options, rows: usize) -> Outcome<Vec<Value>> {
    let directory = tempfile::tempdir_in(place)?;
    let store = Store::open(directory.path(), options.clone())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let ids = IdSource::random();
    let start = Instant::now();
    for _ in 0..rows / FILL_BATCH {
        runtime.block_on(store.commit(change(&ids, FILL_BATCH)))?;
    }
    let filled = start.elapsed();
    let start = Instant::now();
    let report = store.verify(Range::ALL, &|_| ())?;
    let took = start.elapsed();
    let fill = json!({
        "measure": "fill", "rows": report.rows, "batch": FILL_BATCH,
        "rows_per_second": whole(report.rows as f64 / filled.as_secs_f64()),
    });
    let verify = json!({
        "measure": "verify", "rows": report.rows, "ms": millis(took),
        "rows_per_second": whole(report.rows as f64 / took.as_secs_f64()),
    });
    let stores = [Arc::new(store)];
    let mut append = summary("append at size", 8, 1, call_all(&stores, 8)?);
    append["rows"] = rows.into();
    let mut results = vec![fill, verify, append];
    drop(stores);
    let mut opened = Vec::new();
    for _ in 0..30 {
        let start = Instant::now();
        let store = Store::open(directory.path(), options.clone())?;
        opened.push(start.elapsed());
        drop(store);
    }
    opened.sort_unstable();
    results.push(json!({"measure": "open", "rows": rows, "p50_ms": millis(opened[15])}));
    Ok(results)
}

/// Events of about the size that a command leaves.
fn change(ids: &IdSource, events: usize) -> Change {
    let draft = |_| {
        let payload = json!({
            "request_id": ids.request().as_str(), "command": "cargo test --workspace --all-features",
            "status": "ok", "working_directory": "/home/somebody/projects/countersign",
            "policy_snapshot": {"mode": "untrusted", "rules": ["git status", "ls", "cat"], "note": "x".repeat(340)},
        });
        let actor = Actor {
            kind: ActorType::Agent,
            id: "local".to_owned(),
        };
        let kind = EventType::CommandReceived;
        Draft::new(
            ids.event(),
            Clock::system().now(),
            ids.correlation(),
            actor,
            kind,
            &payload,
        )
    };
    Change {
        events: (0..events).map(draft).collect(),
        ..Change::default()
    }
}

fn summary(measure: &str, callers: usize, stores: usize, mut latencies: Vec<Duration>) -> Value {
    latencies.sort_unstable();
    let at = |per_mille: usize| millis(latencies[(latencies.len() - 1) * per_mille / 1_000]);
    json!({
        "measure": measure, "callers": callers, "stores": stores,
        "per_second": whole(latencies.len() as f64 / SLOT.as_secs_f64()),
        "p50_ms": at(500), "p99_ms": at(990), "p999_ms": at(999),
    })
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e5).round() / 1e2
}

fn whole(number: f64) -> u64 {
    number.round() as u64
}
