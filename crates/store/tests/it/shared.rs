//! What several nodes do to the same things at the same moment, which the nodes' own chains do not keep apart.

use std::path::Path;
use std::thread;
use std::time::Duration;

use countersign_gateway::approval::lifecycle::ApprovalStep;
use countersign_gateway::audit::event::{Actor, EventType};
use countersign_gateway::audit::{Change, RecordError};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::ids::IdSource;
use countersign_gateway::lease::LeaseChange;
use countersign_gateway::run::lifecycle::{RunStep, WaitState};
use countersign_gateway::session::credential::TokenName;
use countersign_store::{Durability, Options, Store};
use tempfile::TempDir;

use crate::bench::{commit, noon, options_at, verify};
use crate::on_postgres::behaviour::runs::{answer, ask, enqueue, find, question, run, step, told};
use crate::on_postgres::behaviour::tokens::comes_to_be;
use crate::on_postgres::bench::Bench;

/// Rounds of each race.
const ROUNDS: usize = 12;

/// Two nodes on one database; none where PostgreSQL is not installed.
fn nodes() -> Option<(Bench, TempDir, [Store; 2])> {
    let bench = Bench::new();
    bench.postgres()?;
    let other = bench.another_node();
    let stores = [node(bench.path(), noon()), node(other.path(), noon())];
    Some((bench, other, stores))
}

/// A node by whose clock it is this time.
fn node(state: &Path, now: Timestamp) -> Store {
    Store::open(state, options_at(state, Durability::Process, Clock::fixed(now))).unwrap()
}

/// What both say when they do the same at once.
fn at_once<T: Send>(stores: &[Store; 2], work: impl Fn(&Store, usize) -> T + Sync) -> [T; 2] {
    thread::scope(|scope| {
        let both = [0, 1].map(|number| {
            let work = &work;
            scope.spawn(move || work(&stores[number], number))
        });
        both.map(|thread| thread.join().unwrap())
    })
}

#[test]
fn answers_on_two_nodes_at_once_let_their_run_go_on() {
    let Some((bench, _other, stores)) = nodes() else { return };
    let it = run("r1", "run:dev", Some(12));
    enqueue(&bench, &stores[0], &it).unwrap();
    step(&bench, &stores[0], &it, RunStep::Start).unwrap();
    for round in 0..ROUNDS {
        let questions = [0, 1].map(|number| question(&format!("a{round}-{number}"), &it, 10));
        questions.iter().for_each(|asked| ask(&bench, &stores[0], asked));
        assert_eq!(find(&stores[1], &it).wait_state, Some(WaitState::Mcp));
        at_once(&stores, |store, number| {
            answer(&bench, store, &questions[number], ApprovalStep::Deny, 20);
        });
        assert_eq!(find(&stores[0], &it).wait_state, None, "neither waited for the other");
    }
    assert_eq!(told(&stores[0], EventType::WaitResumed).len(), ROUNDS);
    verify(&stores[0]).unwrap();
}

#[test]
fn of_two_nodes_one_starts_the_run_of_an_issue_and_the_other_hears_that_it_moved() {
    let Some((bench, _other, stores)) = nodes() else { return };
    for round in 0..ROUNDS {
        let issue = u64::try_from(round).unwrap() + 1;
        let runs = [0, 1].map(|number| run(&format!("r{round}-{number}"), &format!("run:{number}"), Some(issue)));
        for it in &runs {
            enqueue(&bench, &stores[0], it).unwrap();
        }
        let mut said = at_once(&stores, |store, number| {
            step(&bench, store, &runs[number], RunStep::Start).map(drop)
        });
        said.sort_by_key(Result::is_err);
        assert_eq!(said, [Ok(()), Err(RecordError::RunMoved)]);
    }
}

fn take(store: &Store, holder: &str, now: Timestamp) -> Result<(), RecordError> {
    let change = Change {
        leases: vec![LeaseChange::Take {
            name: "labels:octo/shop#7".to_owned(),
            holder: holder.to_owned(),
            now,
            time: Duration::from_secs(3_600),
        }],
        ..Change::default()
    };
    commit(store, change).map(drop)
}

#[test]
fn of_nodes_that_want_a_lease_at_once_one_has_it() {
    let Some((bench, _other, stores)) = nodes() else { return };
    for round in 0..ROUNDS {
        let taken = at_once(&stores, |store, number| {
            take(store, &format!("holder-{round}-{number}"), noon()).is_ok()
        });
        assert_eq!(taken.into_iter().filter(|taken| *taken).count(), 1);
        bench.run("UPDATE leases SET until_ms = 1").unwrap();
    }
}

#[test]
fn a_lease_of_a_process_that_is_gone_is_free_to_its_own_node_at_once_and_to_others_when_it_is_over() {
    let Some((bench, _other, [own, other])) = nodes() else {
        return;
    };
    take(&own, "one", noon()).unwrap();
    assert!(take(&own, "two", noon()).is_err(), "its process lives");
    // The node was killed and has come back: the same state directory, another process.
    bench
        .run("UPDATE leases SET holder = regexp_replace(holder, '/.* ', '/another-boot/1/1 ')")
        .unwrap();
    assert!(take(&other, "three", noon()).is_err(), "who is silent may be at it");
    take(&own, "two", noon()).unwrap();
    assert!(take(&other, "three", noon()).is_err());
    bench.run("UPDATE leases SET until_ms = 1").unwrap();
    take(&other, "three", noon()).unwrap();
    assert!(take(&own, "two", noon()).is_err());
}

#[test]
fn a_node_whose_clock_is_wrong_takes_no_lease_away_and_has_none_for_longer() {
    let Some(bench) = Some(Bench::new()).filter(|bench| bench.postgres().is_some()) else {
        return;
    };
    let other = bench.another_node();
    let tomorrow = noon().after(Duration::from_secs(24 * 3_600));
    let (right, wrong) = (node(bench.path(), noon()), node(other.path(), tomorrow));
    take(&right, "right", noon()).unwrap();
    assert!(matches!(
        take(&wrong, "wrong", tomorrow),
        Err(RecordError::LeaseTaken(_))
    ));
    bench.run("UPDATE leases SET until_ms = 1").unwrap();
    take(&wrong, "wrong", tomorrow).unwrap();
    let left = bench
        .run("SELECT until_ms - clock_ms() <= 3600000 FROM leases")
        .unwrap();
    assert_eq!(left, "t");
}

#[test]
fn a_runs_token_of_one_node_is_known_on_every_other() {
    let Some((bench, _other, [here, there])) = nodes() else {
        return;
    };
    let it = run("r1", "run:dev", Some(12));
    enqueue(&bench, &here, &it).unwrap();
    let known = there.credentials();
    let name = TokenName::parse("agent-of-r1").unwrap();
    let lives = Duration::from_secs(60);
    let made = here
        .create_run_token(&name, "r1", lives, Actor::system("test"), &IdSource::random())
        .unwrap();
    comes_to_be(|| known.authenticate(&made.token).is_some());
    step(&bench, &there, &it, RunStep::Cancel).unwrap();
    comes_to_be(|| here.credentials().authenticate(&made.token).is_none());
}

#[test]
fn what_nodes_seal_is_the_same_on_all_that_were_given_the_key_and_stands_in_no_table() {
    let Some((bench, other, [here, there])) = nodes() else {
        return;
    };
    let ours = here.guarded_key("sealing").unwrap();
    let refused = there.guarded_key("sealing").unwrap_err().to_string();
    assert!(refused.contains("`nodes-key`") && refused.contains("copy"), "{refused}");
    drop(there);
    std::fs::copy(bench.path().join("nodes-key"), other.path().join("nodes-key")).unwrap();
    let there = node(other.path(), noon());
    assert_eq!(there.guarded_key("sealing").unwrap(), ours);
    assert_ne!(there.shared_key("sealing"), ours);
    assert_ne!(there.guarded_key("values").unwrap(), ours);
    // A record that moves from a file to a database keeps it, with its state directory.
    let in_file = Store::open(bench.path(), Options::new(Durability::Process, Clock::fixed(noon()))).unwrap();
    assert_eq!(in_file.guarded_key("sealing").unwrap(), ours);
}
