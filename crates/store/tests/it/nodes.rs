//! Several nodes on one database, and what becomes of them when the database or the way to it goes.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use countersign_gateway::audit::{Record as _, RecordError};
use countersign_gateway::clock::Clock;
use countersign_store::export::verify_file;
use countersign_store::prove::Fault;
use countersign_store::sqlite::verify::VerifyError;
use countersign_store::{Durability, OpenError, Options, Store};

use crate::bench::{Bench, Postgres, block_on, commit, fill, later, noon, open_at, options_at, verify};
use crate::postgres::{Cluster, cluster};

/// A workbench on PostgreSQL; none where that is not installed.
fn bench() -> Option<Bench<Postgres>> {
    let bench = Bench::new();
    bench.postgres().is_some().then_some(bench)
}

fn open(state: &Path) -> Store {
    open_at(state).unwrap()
}

fn impatient(state: &Path) -> Options {
    Options {
        busy_timeout: Duration::from_millis(500),
        ..options_at(state, Durability::Power, Clock::fixed(noon()))
    }
}

fn flaw(store: &Store) -> (u64, Fault, Option<String>) {
    match verify(store) {
        Err(VerifyError::Flawed(flaw)) => (flaw.seq, flaw.fault, flaw.chain),
        other => panic!("{other:?}"),
    }
}

/// The chain of a node, by its state directory.
fn chain(state: &Path) -> String {
    std::fs::read_to_string(state.join("record-node"))
        .unwrap()
        .trim()
        .to_owned()
}

#[test]
fn nodes_that_write_at_once_make_one_record_that_each_can_prove() {
    let Some(bench) = bench() else { return };
    let other = bench.another_node();
    let stores = [open(bench.path()), open(other.path())];
    thread::scope(|scope| {
        for store in &stores {
            scope.spawn(|| {
                let waiting: Vec<_> = (0..300).map(|number| store.commit(bench.note(number))).collect();
                for outcome in waiting {
                    block_on(outcome).unwrap();
                }
            });
        }
    });
    for store in &stores {
        let report = verify(store).unwrap();
        let rows: Vec<u64> = report.chains().map(|chain| chain.rows).collect();
        assert_eq!(rows, [300, 300]);
        assert_eq!(store.tail(0).unwrap().len(), 600);
    }
    let keys = stores.each_ref().map(|store| store.public_key().to_owned());
    assert_ne!(keys[0], keys[1]);
    // A file tells of both, and is signed by whoever wrote it.
    let [first, second] = stores;
    drop(second);
    fill(&bench, &first, 1_000);
    let mut file = Vec::new();
    first.export(&mut file).unwrap();
    let report = verify_file(file.as_slice(), Some(&keys[0])).unwrap();
    let chains: Vec<_> = report.chains().map(|it| (it.rows, it.public_key.clone())).collect();
    assert_eq!(chains, [(1_300, keys[0].clone()), (300, keys[1].clone())]);
    // Without its second chain it is no longer whole, nor with a row of it changed.
    let text = String::from_utf8(file).unwrap();
    let second = text.rfind("\"format\"");
    let cut = text[..second.unwrap()].rfind('\n').unwrap();
    assert!(verify_file(&text.as_bytes()[..=cut], None).is_err());
    let changed = format!(
        "{}{}",
        &text[..cut],
        text[cut..].replace("{\"number\":7}", "{\"number\":8}")
    );
    assert!(verify_file(changed.as_bytes(), None).is_err());
}

#[test]
fn a_chain_cannot_be_rewritten_behind_what_another_node_signed() {
    let Some(bench) = bench() else { return };
    let other = bench.another_node();
    let store = open(other.path());
    fill(&bench, &store, 20);
    drop(store);
    // This node signs where the other one stood.
    fill(&bench, &open(bench.path()), 3);
    let theirs = chain(other.path());
    verify(&open(bench.path())).unwrap();

    // The tail goes, with head and checkpoints: whoever has the database and the other node's key.
    bench.force(&format!(
        "DELETE FROM checkpoints WHERE chain = '{theirs}';
         DELETE FROM flow_events WHERE chain = '{theirs}' AND seq > 15;
         UPDATE chain_heads SET seq = 15, sealed_seq = 15, hash = (SELECT hash FROM flow_events WHERE chain = '{theirs}' AND seq = 15),
             checkpointed = 0 WHERE chain = '{theirs}'"
    ));
    let truncated = Fault::Truncated { should_reach: 20 };
    assert_eq!(flaw(&open(bench.path())), (16, truncated, Some(theirs.clone())));
    // All of it goes.
    bench.force(&format!(
        "DELETE FROM flow_events WHERE chain = '{theirs}'; DELETE FROM chain_heads WHERE chain = '{theirs}'"
    ));
    assert_eq!(flaw(&open(bench.path())), (1, truncated, Some(theirs)));
}

#[test]
fn another_nodes_key_cannot_be_replaced() {
    let Some(bench) = bench() else { return };
    let other = bench.another_node();
    fill(&bench, &open(other.path()), 20);
    fill(&bench, &open(bench.path()), 3);
    let theirs = chain(other.path());
    bench.force(&format!(
        "UPDATE chain_heads SET public_key = repeat('0', 64) WHERE chain = '{theirs}';
         DELETE FROM checkpoints WHERE chain = '{theirs}'"
    ));
    assert_eq!(flaw(&open(bench.path())), (20, Fault::OtherKey, Some(theirs)));
    // And a node whose own key was replaced does not go on as if nothing were.
    std::fs::remove_file(bench.path().join("record-key")).unwrap();
    let refused = open_at(bench.path()).err().unwrap();
    assert!(matches!(refused, OpenError::Postgres(_)));
    assert!(refused.to_string().contains("another key"), "{refused}");
}

#[test]
fn a_chain_of_another_node_is_proved_whatever_its_head_says() {
    let Some(bench) = bench() else { return };
    let other = bench.another_node();
    fill(&bench, &open(other.path()), 20);
    fill(&bench, &open(bench.path()), 3);
    let theirs = chain(other.path());
    // As if the node had written nothing, and then a row of it changed.
    bench.force(&format!(
        "UPDATE chain_heads SET seq = 0, sealed_seq = 0, hash = decode(repeat('00', 32), 'hex') WHERE chain = '{theirs}';
         UPDATE flow_events SET payload = '{{\"number\": 8}}' WHERE chain = '{theirs}' AND seq = 7"
    ));
    let (_, fault, found) = flaw(&open(bench.path()));
    assert!(
        matches!(fault, Fault::HeadChanged | Fault::Truncated { .. }),
        "{fault:?}"
    );
    assert_eq!(found, Some(theirs));
}

#[test]
fn a_row_of_no_chain_is_found() {
    let Some(bench) = bench() else { return };
    fill(&bench, &open(bench.path()), 3);
    bench.force(
        "INSERT INTO flow_events (chain, seq, event_id, timestamp, correlation_id, actor_type, actor_id, event_type,
             payload, prev_hash, hash)
         SELECT 'nobody', seq, event_id || 'x', timestamp, correlation_id, actor_type, actor_id, event_type, payload,
             prev_hash, hash FROM flow_events WHERE seq = 2",
    );
    let stray = (2, Fault::HeadChanged, Some("nobody".to_owned()));
    assert_eq!(flaw(&open(bench.path())), stray);
}

#[test]
fn whoever_follows_all_nodes_misses_nothing() {
    const EACH: u64 = 200;
    let Some(bench) = bench() else { return };
    let others = [bench.another_node(), bench.another_node()];
    let reader = open(bench.path());
    let done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let following = scope.spawn(|| {
            let (mut after, mut seen) = (0, Vec::new());
            loop {
                let is_last = done.load(Ordering::Acquire);
                let rows = reader.tail(after).unwrap();
                after = rows.last().map_or(after, |row| row.place);
                let is_over = rows.is_empty() && is_last;
                seen.extend(rows.into_iter().map(|row| (row.place, row.event_id)));
                if is_over {
                    return seen;
                }
            }
        });
        let writers = others.each_ref().map(|state| {
            scope.spawn(|| {
                let store = open(state.path());
                for number in 0..EACH {
                    commit(&store, bench.note(number)).unwrap();
                }
            })
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Release);
        following.join().unwrap()
    });
    assert!(seen.is_sorted(), "in the order of their places");
    assert_eq!(seen.len() as u64, 2 * EACH);
    let mut ids: Vec<_> = seen.into_iter().map(|(_, id)| id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len() as u64, 2 * EACH);
}

#[test]
fn a_row_that_is_not_committed_yet_holds_back_those_behind_it() {
    let Some(bench) = bench() else { return };
    let (cluster, database) = bench.postgres().unwrap();
    let store = open(bench.path());
    commit(&store, bench.note(1)).unwrap();
    // A slow writer of another node: it has taken its place and not committed.
    let claim = "SELECT pg_advisory_xact_lock_shared((1::bigint << 62) | (SELECT last_value FROM flow_places))";
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let text = format!("BEGIN; {claim}; SELECT nextval('flow_places'); SELECT pg_sleep(2); COMMIT");
            cluster.run(database, &text).unwrap();
        });
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint >> 30 = 1";
        while cluster.run(database, waits).unwrap() != "1" {
            assert!(!slow.is_finished());
        }
        commit(&store, bench.note(2)).unwrap();
        if !slow.is_finished() {
            assert_eq!(store.tail(1).unwrap(), [], "not before the other one is settled");
        }
        let everything = countersign_gateway::audit::reading::Filter::everything();
        assert_eq!(
            store.query_events(&everything).unwrap().len(),
            2,
            "who looks at once sees it"
        );
    });
    assert_eq!(store.tail(1).unwrap().len(), 1);
}

#[test]
fn what_a_living_process_of_another_node_does_is_left_alone_and_a_silent_one_is_swept() {
    let Some(bench) = bench() else { return };
    let other = bench.another_node();
    let theirs = open(other.path());
    commit(&theirs, bench.opening("r1", "d")).unwrap();
    let ours = open(bench.path());
    assert_eq!(ours.sweep_abandoned(later(), &bench.ids).unwrap(), 0);
    // Its node was lost: no more signs of life, and nobody there to say that it ended.
    std::mem::forget(theirs);
    let silent = format!(
        "UPDATE open_commands SET process = 'lost/1/2/3';
         INSERT INTO processes VALUES ('lost/1/2/3', 'lost', now() - interval '{}')",
        "1 hour"
    );
    bench.run(&silent).unwrap();
    assert_eq!(ours.sweep_abandoned(later(), &bench.ids).unwrap(), 1);
    assert_eq!(ours.sweep_abandoned(later(), &bench.ids).unwrap(), 0);
    verify(&ours).unwrap();
}

#[test]
fn agents_of_a_node_that_never_came_back_are_forgotten_after_a_day() {
    let Some(bench) = bench() else { return };
    let store = open(bench.path());
    let own = chain(bench.path());
    let (now, day) = ("extract(epoch FROM now()) * 1000", 86_400_000);
    let long_ago = format!("{now} - {}", 2 * day);
    let recently = format!("{now} - {}", day / 2);
    for (node, since) in [("gone", &long_ago), ("away", &recently), (own.as_str(), &long_ago)] {
        let insert = format!("INSERT INTO agent_processes VALUES ('{node}', 7, 99, 's', 'j', 'a', NULL, {since})");
        bench.run(&insert).unwrap();
    }
    store.sweep_abandoned(later(), &bench.ids).unwrap();
    let left = bench.run("SELECT node FROM agent_processes ORDER BY node").unwrap();
    let mut expected = vec!["away", own.as_str()];
    expected.sort_unstable();
    assert_eq!(left.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_connection_that_was_cut_is_made_anew() {
    let Some(bench) = bench() else { return };
    let (cluster, database) = bench.postgres().unwrap();
    let store = open(bench.path());
    let mut acknowledged = 0;
    for round in 0..5 {
        cluster.cut_connections(database);
        let start = Instant::now();
        // The first may meet the loss; it is then refused, and nothing of it is written.
        while let Err(error) = commit(&store, bench.note(round)) {
            assert!(matches!(error, RecordError::Unavailable(_)), "{error}");
            assert!(start.elapsed() < Duration::from_secs(60), "{error}");
            thread::sleep(Duration::from_millis(20));
        }
        acknowledged += 1;
    }
    assert_eq!(verify(&store).unwrap().rows, acknowledged);
}

#[test]
fn while_the_database_is_away_changes_are_refused_and_nothing_is_half_done() {
    let Some(cluster) = Cluster::start() else { return };
    let database = cluster.database();
    let state = tempfile::tempdir().unwrap();
    let bench = Bench::<crate::bench::Sqlite>::new();
    let options = impatient(state.path()).on(Some(database.url.clone()));
    let store = Store::open(state.path(), options).unwrap();
    commit(&store, bench.opening("before", "d")).unwrap();
    cluster.stop();
    let start = Instant::now();
    for number in 0..20 {
        let refused = commit(&store, bench.opening(&format!("r{number}"), "d")).unwrap_err();
        assert!(matches!(refused, RecordError::Unavailable(_)), "{refused}");
    }
    assert!(
        start.elapsed() < Duration::from_secs(30),
        "each waits only for its own attempt"
    );
    assert!(store.ready().is_err());
    assert!(store.tail(0).is_err());
    cluster.start_again();
    let start = Instant::now();
    while let Err(error) = commit(&store, bench.closing("before", "d", "ok")) {
        assert!(start.elapsed() < Duration::from_secs(60), "{error}");
        thread::sleep(Duration::from_millis(50));
    }
    store.ready().unwrap();
    assert_eq!(verify(&store).unwrap().rows, 2, "what was refused is not there");
    assert_eq!(
        cluster.run(&database, "SELECT count(*) FROM open_commands").unwrap(),
        "0"
    );
}

/// A way to the database that can swallow the answer to a commit.
struct Proxy {
    port: u16,
    swallow: Arc<AtomicBool>,
    swallowed: Arc<AtomicBool>,
}

impl Proxy {
    fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            swallow: Arc::default(),
            swallowed: Arc::default(),
        };
        let (swallow, swallowed) = (Arc::clone(&proxy.swallow), Arc::clone(&proxy.swallowed));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let (swallow, swallowed) = (Arc::clone(&swallow), Arc::clone(&swallowed));
                thread::spawn(move || relay(client, server, &swallow, &swallowed));
            }
        });
        proxy
    }
}

/// Passes bytes on both ways. Told to swallow, it passes a commit on and then lets the connection go, unanswered.
fn relay(client: TcpStream, server: TcpStream, swallow: &AtomicBool, swallowed: &AtomicBool) {
    let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let is_cut = Arc::new(AtomicBool::new(false));
    let cut = Arc::clone(&is_cut);
    thread::spawn(move || {
        let mut bytes = [0; 65_536];
        while let Ok(count) = back_from.read(&mut bytes) {
            if count == 0 || cut.load(Ordering::Acquire) || back_to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = back_to.shutdown(Shutdown::Both);
    });
    let (mut client, mut server) = (client, server);
    let mut bytes = [0; 65_536];
    while let Ok(count) = client.read(&mut bytes) {
        if count == 0 {
            break;
        }
        let commits = bytes[..count].windows(6).any(|window| window == b"COMMIT");
        if commits && swallow.swap(false, Ordering::AcqRel) {
            is_cut.store(true, Ordering::Release);
            swallowed.store(true, Ordering::Release);
        }
        if server.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}

#[test]
fn a_commit_whose_answer_was_lost_is_looked_up_and_not_repeated() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let (before, rest) = database.url.rsplit_once(':').unwrap();
    let (port, name) = rest.split_once('/').unwrap();
    let proxy = Proxy::to(port.parse().unwrap());
    let state = tempfile::tempdir().unwrap();
    let bench = Bench::<crate::bench::Sqlite>::new();
    let url = format!("{before}:{}/{name}", proxy.port);
    let options = options_at(state.path(), Durability::Power, Clock::fixed(noon())).on(Some(url));
    let store = Store::open(state.path(), options).unwrap();
    commit(&store, bench.note(1)).unwrap();
    proxy.swallow.store(true, Ordering::Release);
    let receipt = commit(&store, bench.opening("r1", "d")).unwrap();
    assert!(proxy.swallowed.load(Ordering::Acquire), "the answer was lost");
    assert_eq!(receipt.last_seq, 2);
    commit(&store, bench.closing("r1", "d", "ok")).unwrap();
    assert_eq!(verify(&store).unwrap().rows, 3);
}
