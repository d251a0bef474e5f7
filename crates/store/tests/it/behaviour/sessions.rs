//! Sessions: written with their events or not at all, on either way into the database, by however many.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use countersign_gateway::audit::event::EventType;
use countersign_gateway::audit::reading::Filter;
use countersign_gateway::audit::redact::{Config, Redactor};
use countersign_gateway::audit::{Asked, Change, Pending, Record, RecordError, SessionChange};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::error::ErrorCode;
use countersign_gateway::ids::{IdSource, RequestId, SessionId};
use countersign_gateway::limits::{REQUESTS_REMEMBERED, SESSIONS_AT_ONCE};
use countersign_gateway::session::desk::Desk;
use countersign_gateway::session::lifetime::{ClientInfo, Session, SessionState, SessionStep, Sessions, Touched};
use countersign_gateway::session::{Caller, Transport};
use countersign_store::{Durability, Store};
use serde_json::json;

use super::super::bench::{Bench, block_on, commit, later, noon, open_at, options_at, this_test, verify};

type Lane = fn(&Store, Change) -> Pending<Result<countersign_gateway::audit::Committed, RecordError>>;

/// Both ways into the database.
const LANES: [Lane; 2] = [
    |store, change| store.commit(change),
    |store, change| store.commit_alone(change),
];

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(noon().as_millis() + millis)
}

fn session(id: &str) -> Session {
    let caller = Caller::anonymous_agent(Transport::StreamableHttp);
    Session::new(SessionId::trusted(id), &caller, noon()).of(ClientInfo {
        name: Some("client".to_owned()),
        version: Some("1".to_owned()),
        protocol_version: Some("2025-11-25".to_owned()),
        capabilities: Some("{}".to_owned()),
        rpc_id: None,
    })
}

fn initialized(id: &str) -> Session {
    session(id).step(SessionStep::Initialize, noon()).unwrap()
}

fn desk(store: &Arc<Store>) -> Desk {
    let redactor = Redactor::new(Config::default());
    Desk::new(store.clone(), redactor, Clock::fixed(noon()), IdSource::random())
}

fn entering(bench: &Bench, session: Session, from: Option<SessionState>) -> Change {
    Change {
        session: Some(SessionChange { session, from }),
        ..bench.note(1)
    }
}

fn state(store: &Store, id: &str) -> SessionState {
    let found = block_on(store.session(&SessionId::trusted(id))).unwrap();
    found.unwrap().session.state()
}

/// The types of the events that belong to sessions.
fn events(store: &Store) -> Vec<String> {
    let rows = store.tail(0).unwrap().into_iter().map(|row| row.event_type);
    rows.filter(|kind| kind.starts_with("session.")).collect()
}

#[test]
fn a_session_reads_back_as_it_was_written() {
    for lane in LANES {
        let bench = Bench::new();
        let store = bench.open();
        assert_eq!(block_on(store.session(&SessionId::trusted("s1"))).unwrap(), None);
        let mut session = session("s1");
        session.reuses_ids = true;
        block_on(lane(&store, entering(&bench, session.clone(), None))).unwrap();
        let found = block_on(store.session(&session.id)).unwrap().unwrap();
        assert_eq!((found.session, found.requests), (session, Vec::new()));
    }
}

#[test]
fn a_session_that_has_moved_on_takes_the_whole_change_down() {
    for lane in LANES {
        let bench = Bench::new();
        let store = bench.open();
        block_on(lane(&store, entering(&bench, session("s1"), None))).unwrap();
        let closed = initialized("s1").step(SessionStep::Close, noon()).unwrap();
        let stale = Change {
            events: bench.opening("r1", "d").events,
            open: bench.opening("r1", "d").open,
            ..entering(&bench, closed.clone(), Some(SessionState::Initialized))
        };
        let moved = block_on(lane(&store, stale));
        assert_eq!(moved, Err(RecordError::SessionMoved));
        let again = block_on(lane(&store, entering(&bench, session("s1"), None)));
        assert_eq!(again, Err(RecordError::SessionMoved), "an id is entered once");
        // And the other way round: a refused command takes its session's step along.
        commit(&store, bench.opening("taken", "d")).unwrap();
        let taken = Change {
            open: bench.opening("taken", "d").open,
            ..entering(&bench, initialized("s1"), Some(SessionState::Created))
        };
        assert!(matches!(
            block_on(lane(&store, taken)),
            Err(RecordError::RequestIdTaken(_))
        ));
        assert_eq!(state(&store, "s1"), SessionState::Created);
        assert_eq!(store.tail(0).unwrap().len(), 2, "one session and one command");
        verify(&store).unwrap();
    }
}

#[test]
fn a_step_that_comes_twice_is_written_once() {
    for lane in LANES {
        let bench = Bench::new();
        let store = bench.open();
        let change = entering(&bench, session("s1"), None);
        block_on(lane(&store, change.clone())).unwrap();
        block_on(lane(&store, change)).unwrap();
        assert_eq!(store.tail(0).unwrap().len(), 1);
    }
}

#[test]
fn the_database_itself_knows_the_arrows() {
    let bench = Bench::new();
    let store = bench.open();
    commit(&store, entering(&bench, initialized("s1"), None)).unwrap();
    assert!(bench.run("UPDATE mcp_sessions SET state = 'created'").is_err());
    bench.run("UPDATE mcp_sessions SET state = 'closed'").unwrap();
    assert!(bench.run("UPDATE mcp_sessions SET state = 'initialized'").is_err());
    assert!(bench.run("UPDATE mcp_sessions SET state = 'lost'").is_err());
}

#[test]
fn every_step_at_the_desk_is_an_event_without_the_id() {
    let bench = Bench::new();
    let store = Arc::new(bench.open());
    let desk = desk(&store);
    let id = SessionId::trusted("0123456789abcdef0123456789abcdef");
    block_on(desk.open(session(id.as_str()))).unwrap();
    let entered = initialized(id.as_str());
    block_on(desk.advance(entered.clone(), SessionState::Created)).unwrap();
    let closed = entered.step(SessionStep::Close, later()).unwrap();
    block_on(desk.advance(closed.clone(), SessionState::Initialized)).unwrap();
    let refused = block_on(desk.advance(closed, SessionState::Initialized)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::SessionNotFound);
    assert_eq!(
        events(&store),
        ["session.created", "session.initialized", "session.closed"]
    );
    for row in store.tail(0).unwrap() {
        let payload: serde_json::Value = serde_json::from_str(&row.payload).unwrap();
        assert_eq!(payload["session_id"], id.mark());
        assert_eq!(row.correlation_id, id.mark(), "one thread through the record");
        assert!(!row.to_json().unwrap().contains(id.as_str()));
    }
}

#[test]
fn what_a_client_says_of_itself_is_cut_and_redacted() {
    let bench = Bench::new();
    let store = Arc::new(bench.open());
    let boastful = session("s1").of(ClientInfo {
        name: Some("n".repeat(10_000)),
        version: Some("password=hunter22".to_owned()),
        protocol_version: Some("2025-11-25".to_owned()),
        capabilities: Some(json!({"x": "y".repeat(10_000)}).to_string()),
        rpc_id: None,
    });
    block_on(desk(&store).open(boastful)).unwrap();
    let kept = block_on(store.session(&SessionId::trusted("s1")))
        .unwrap()
        .unwrap()
        .session
        .client;
    assert_eq!(kept.name.unwrap().len(), 256);
    assert_eq!(kept.version.as_deref(), Some("password=[redacted]"));
    assert_eq!(kept.capabilities.as_deref(), Some("{}"));
}

#[test]
fn a_handshake_is_told_with_the_clients_id_of_it() {
    let bench = Bench::new();
    let store = Arc::new(bench.open());
    for (id, rpc_id) in [("s1", json!(7)), ("s2", json!("Bearer abcdefgh")), ("s3", json!(null))] {
        let entered = initialized(id);
        let client = ClientInfo {
            rpc_id: Some(rpc_id.to_string()),
            ..entered.client.clone()
        };
        block_on(desk(&store).open(entered.of(client))).unwrap();
    }
    let found = store.find_envelopes(&Filter::everything()).unwrap();
    let told = |found| store.read_envelope(found).unwrap().unwrap()["requestId"].clone();
    assert_eq!(
        found.iter().map(told).collect::<Vec<_>>(),
        [json!(7), json!("Bearer [redacted]"), json!(null)]
    );
}

#[test]
fn a_lasting_session_knows_its_last_requests_again() {
    let bench = Bench::new();
    let store = bench.open();
    commit(&store, entering(&bench, initialized("s1"), None)).unwrap();
    let asked = |number: usize| {
        Some(Asked {
            session: SessionId::trusted("s1"),
            rpc_id: number.to_string(),
            digest: [u8::try_from(number % 256).unwrap(); 32],
        })
    };
    let count = REQUESTS_REMEMBERED + 10;
    for number in 0..count {
        let mut change = bench.opening(&format!("r{number:05}"), "d");
        let open = change.open.as_mut().unwrap();
        open.asked = asked(number);
        open.opened_at = at(i64::try_from(number).unwrap() / 3);
        commit(&store, change).unwrap();
    }
    // One of another session, one of none, and one that was refused at once.
    commit(&store, bench.opening("other", "d")).unwrap();
    let mut refused = bench.closing("refused", "d", "rejected");
    refused.close.as_mut().unwrap().asked = asked(count);
    refused.close.as_mut().unwrap().opened_at = at(100_000);
    commit(&store, refused).unwrap();
    let kept = block_on(store.session(&SessionId::trusted("s1"))).unwrap().unwrap();
    let ids: Vec<usize> = kept
        .requests
        .iter()
        .map(|request| request.rpc_id.parse().unwrap())
        .collect();
    assert_eq!(ids, (count + 1 - REQUESTS_REMEMBERED..=count).collect::<Vec<_>>());
    assert_eq!(
        kept.requests.last().unwrap().command,
        Some(RequestId::trusted("refused"))
    );
    assert_eq!(kept.requests[0].digest, asked(ids[0]).unwrap().digest);
}

#[test]
fn a_command_without_a_lasting_session_enters_no_index() {
    let bench = Bench::new();
    let store = bench.open();
    commit(&store, bench.closing("r1", "d", "ok")).unwrap();
    let empty = "SELECT count(*) FROM commands WHERE session_id IS NULL AND rpc_id IS NULL AND rpc_digest IS NULL";
    assert_eq!(bench.run(empty).unwrap(), "1");
}

#[test]
fn touching_never_goes_back_in_time_nor_wakes_the_dead() {
    let bench = Bench::new();
    let store = Arc::new(bench.open());
    let desk = desk(&store);
    block_on(desk.open(initialized("s1"))).unwrap();
    let touch = |id: &str, millis: i64, reuses_ids: bool| {
        let id = SessionId::trusted(id);
        let at = at(millis);
        block_on(desk.touch(vec![Touched { id, at, reuses_ids }])).unwrap();
    };
    let read = |id: &str| {
        let found = block_on(store.session(&SessionId::trusted(id)))
            .unwrap()
            .unwrap()
            .session;
        (found.last_activity_at, found.reuses_ids)
    };
    touch("s1", 500, true);
    touch("s1", 200, false);
    touch("nobody", 1, true);
    assert_eq!(read("s1"), (at(500), true));
    let events_before = store.tail(0).unwrap().len();
    let found = block_on(desk.find(&SessionId::trusted("s1"))).unwrap().unwrap().session;
    let closed = found.step(SessionStep::Close, at(600)).unwrap();
    block_on(desk.advance(closed, SessionState::Initialized)).unwrap();
    touch("s1", 9_000, true);
    assert_eq!(read("s1").0, at(600));
    assert_eq!(store.tail(0).unwrap().len(), events_before + 1, "a touch is no event");
    // More than go into one transaction.
    let many = (0..1_000).map(|number| Touched {
        id: SessionId::trusted(number.to_string()),
        at: noon(),
        reuses_ids: false,
    });
    block_on(desk.touch(many.collect())).unwrap();
}

#[test]
fn only_idle_sessions_expire_and_busy_ones_stay() {
    let bench = Bench::new();
    let store = Arc::new(bench.open());
    let desk = desk(&store);
    for id in ["idle", "busy", "young", "ended"] {
        block_on(desk.open(initialized(id))).unwrap();
    }
    let used = |id: &str, at| Touched {
        id: SessionId::trusted(id),
        at,
        reuses_ids: false,
    };
    block_on(desk.touch(vec![used("young", at(2_000))])).unwrap();
    let ended = initialized("ended").step(SessionStep::Close, noon()).unwrap();
    block_on(desk.advance(ended, SessionState::Initialized)).unwrap();
    let expired = block_on(desk.expire(at(1_000), vec![SessionId::trusted("busy")])).unwrap();
    assert_eq!(expired, [SessionId::trusted("idle")]);
    let states = ["idle", "busy", "young", "ended"].map(|id| state(&store, id));
    use SessionState::{Closed, Expired, Initialized};
    assert_eq!(states, [Expired, Initialized, Initialized, Closed]);
    assert_eq!(events(&store).last().unwrap(), EventType::SessionExpired.as_str());
    assert_eq!(
        block_on(desk.expire(noon(), Vec::new())).unwrap(),
        [],
        "idle since exactly then is not before"
    );
}

#[test]
fn a_session_used_since_it_was_found_idle_does_not_expire() {
    let bench = Bench::new();
    let store = bench.open();
    let other = bench.open();
    commit(&store, entering(&bench, initialized("s1"), None)).unwrap();
    let [idle] = &block_on(store.idle_sessions(at(1), 10)).unwrap()[..] else {
        panic!("one idle session");
    };
    let touched = vec![Touched {
        id: idle.id.clone(),
        at: at(5),
        reuses_ids: false,
    }];
    block_on(other.commit(Change {
        touched,
        ..Change::default()
    }))
    .unwrap();
    let expired = idle.clone().step(SessionStep::Expire, at(9)).unwrap();
    let late = commit(&store, entering(&bench, expired, Some(SessionState::Initialized)));
    assert_eq!(late, Err(RecordError::SessionMoved));
    assert_eq!(state(&store, "s1"), SessionState::Initialized);
}

#[test]
fn of_racing_ends_exactly_one_wins() {
    for lane in LANES {
        let bench = Bench::new();
        let stores = [bench.open(), bench.open()];
        for round in 0..20 {
            let id = format!("s{round}");
            commit(&stores[0], entering(&bench, initialized(&id), None)).unwrap();
            let end = |store: &Store, step: SessionStep| {
                let ended = initialized(&id).step(step, noon()).unwrap();
                block_on(lane(store, entering(&bench, ended, Some(SessionState::Initialized))))
            };
            let outcomes: Vec<_> = std::thread::scope(|scope| {
                let racers: Vec<_> = stores
                    .iter()
                    .zip([SessionStep::Close, SessionStep::Expire])
                    .map(|(store, step)| scope.spawn(move || end(store, step)))
                    .collect();
                racers.into_iter().map(|racer| racer.join().unwrap()).collect()
            });
            assert_eq!(
                outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
                1,
                "{outcomes:?}"
            );
            assert!(outcomes.contains(&Err(RecordError::SessionMoved)), "{outcomes:?}");
        }
        assert_eq!(
            verify(&stores[1]).unwrap().rows,
            40,
            "one event for each beginning and each end"
        );
    }
}

#[test]
fn two_who_expire_at_once_write_each_end_once() {
    let bench = Bench::new();
    let stores = [Arc::new(bench.open()), Arc::new(bench.open())];
    for number in 0..50 {
        block_on(desk(&stores[0]).open(initialized(&format!("s{number}")))).unwrap();
    }
    let expired: usize = std::thread::scope(|scope| {
        let racers = stores
            .each_ref()
            .map(|store| scope.spawn(|| block_on(desk(store).expire(at(1), Vec::new()))));
        racers
            .into_iter()
            .map(|racer| racer.join().unwrap().unwrap().len())
            .sum()
    });
    assert_eq!(expired, 50);
    let ends = events(&stores[0]).into_iter().filter(|kind| kind == "session.expired");
    assert_eq!(ends.count(), 50);
}

#[test]
fn sessions_are_listed_with_the_newest_last() {
    let bench = Bench::new();
    let store = bench.open();
    for (number, id) in ["a", "b", "c"].into_iter().enumerate() {
        let caller = Caller::anonymous_agent(Transport::Sse);
        let created = at(i64::try_from(number).unwrap());
        let session = Session::new(SessionId::trusted(id), &caller, created);
        commit(&store, entering(&bench, session, None)).unwrap();
    }
    let closed = session("b").step(SessionStep::Close, at(9)).unwrap();
    commit(&store, entering(&bench, closed, Some(SessionState::Created))).unwrap();
    let listed = |state, limit| {
        let sessions = store.query_sessions(state, limit).unwrap();
        sessions
            .iter()
            .map(|session| session.id.as_str().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(None, 10), ["a", "b", "c"]);
    assert_eq!(listed(None, 2), ["b", "c"]);
    assert_eq!(listed(Some(SessionState::Created), 10), ["a", "c"]);
    assert_eq!(listed(Some(SessionState::Closed), 10), ["b"]);
}

#[test]
fn ended_sessions_go_with_the_record_and_open_ones_stay() {
    let bench = Bench::new();
    let store = bench.open();
    for id in ["open", "ended"] {
        commit(&store, entering(&bench, initialized(id), None)).unwrap();
    }
    let ended = initialized("ended").step(SessionStep::Close, noon()).unwrap();
    commit(&store, entering(&bench, ended, Some(SessionState::Initialized))).unwrap();
    store.prune(noon(), &bench.ids).unwrap();
    assert_eq!(store.query_sessions(None, 10).unwrap().len(), 2, "not older yet");
    store.prune(later(), &bench.ids).unwrap();
    let left = store.query_sessions(None, 10).unwrap();
    assert_eq!(
        left.iter().map(|session| session.id.as_str()).collect::<Vec<_>>(),
        ["open"]
    );
}

const STATE: &str = "COUNTERSIGN_TEST_SESSION_STATE";

/// Not a test of its own: a process that enters sessions and dies without a word.
#[test]
fn child_enters_a_session() {
    let Ok(state) = std::env::var(STATE) else {
        return;
    };
    let options = options_at(Path::new(&state), Durability::Power, Clock::system());
    let store = Arc::new(Store::open(Path::new(&state), options).unwrap());
    for (id, transport) in [
        ("pipes", Transport::Stdio),
        ("stream", Transport::Sse),
        ("http", Transport::StreamableHttp),
    ] {
        let session = Session::new(SessionId::trusted(id), &Caller::anonymous_agent(transport), noon());
        let session = session.step(SessionStep::Initialize, noon()).unwrap();
        block_on(desk(&store).open(session)).unwrap();
    }
    println!("\nentered");
    std::process::abort();
}

#[test]
fn a_session_of_a_dead_process_is_closed_and_a_lasting_one_lives_on() {
    let bench = Bench::new();
    let store = bench.open();
    let mine = Session::new(
        SessionId::trusted("mine"),
        &Caller::anonymous_agent(Transport::Stdio),
        noon(),
    );
    commit(&store, entering(&bench, mine, None)).unwrap();
    let ran = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &this_test(module_path!(), "child_enters_a_session"),
            "--nocapture",
        ])
        .env(STATE, bench.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&ran.stdout).contains("entered"), "{ran:?}");
    assert_eq!(
        block_on(store.idle_sessions(at(1), 10)).unwrap().len(),
        1,
        "those over pipes and on event streams are nobody's to expire"
    );
    store.sweep_abandoned(later(), &bench.ids).unwrap();
    store.sweep_abandoned(later(), &bench.ids).unwrap();
    use SessionState::{Closed, Created, Initialized};
    assert_eq!(
        ["pipes", "stream", "http", "mine"].map(|id| state(&store, id)),
        [Closed, Closed, Initialized, Created]
    );
    let closed: Vec<_> = store
        .tail(0)
        .unwrap()
        .into_iter()
        .filter(|row| row.event_type == "session.closed")
        .collect();
    assert_eq!(closed.len(), 2);
    for row in closed {
        // What its row says besides nobody vouches for.
        let mark = json!({"session_id": row.correlation_id});
        assert_eq!(row.payload().unwrap(), mark);
    }
    verify(&store).unwrap();
}

#[test]
fn every_session_of_a_dead_process_is_closed_however_many_there_are() {
    let bench = Bench::new();
    let store = bench.open();
    let many = 2 * SESSIONS_AT_ONCE + 1;
    let caller = Caller::anonymous_agent(Transport::Sse);
    for number in 0..many {
        let session = Session::new(SessionId::trusted(format!("s{number}")), &caller, noon());
        commit(&store, entering(&bench, session, None)).unwrap();
    }
    bench.run("UPDATE mcp_sessions SET process = '1/1'").unwrap();
    store.sweep_abandoned(later(), &bench.ids).unwrap();
    assert_eq!(
        store
            .query_sessions(Some(SessionState::Closed), 2 * many)
            .unwrap()
            .len(),
        many
    );
}

#[test]
fn a_request_whose_server_died_is_known_again_by_its_session() {
    let bench = Bench::new();
    let store = Arc::new(bench.open());
    block_on(desk(&store).open(initialized("s1"))).unwrap();
    let mut opening = bench.opening("r1", "d");
    opening.open.as_mut().unwrap().asked = Some(Asked {
        session: SessionId::trusted("s1"),
        rpc_id: "7".to_owned(),
        digest: [7; 32],
    });
    commit(&*store, opening).unwrap();
    let known = |store: &Store| {
        let kept = block_on(store.session(&SessionId::trusted("s1"))).unwrap().unwrap();
        let request = kept.requests.into_iter().next().expect("one request");
        (request.rpc_id, request.digest, request.command)
    };
    let expected = ("7".to_owned(), [7; 32], Some(RequestId::trusted("r1")));
    assert_eq!(known(&store), expected, "while it runs");
    // Of a process that is no more.
    bench.run("UPDATE open_commands SET process = '1/1'").unwrap();
    assert_eq!(store.sweep_abandoned(at(1_000), &bench.ids).unwrap(), 1);
    assert_eq!(known(&store), expected, "after the sweep");
}

#[test]
fn an_end_in_one_process_is_known_in_another() {
    let bench = Bench::new();
    let first = Arc::new(open_at(bench.path()).unwrap());
    let second = Arc::new(open_at(bench.path()).unwrap());
    let (here, there) = (desk(&first), desk(&second));
    for id in ["a", "b"] {
        block_on(here.open(initialized(id))).unwrap();
    }
    let ids = || ["a", "b", "never"].map(SessionId::trusted).to_vec();
    assert_eq!(block_on(there.ended(ids())).unwrap(), [SessionId::trusted("never")]);
    let closed = initialized("a").step(SessionStep::Close, at(1)).unwrap();
    block_on(there.advance(closed, SessionState::Initialized)).unwrap();
    let ended = ["a", "never"].map(SessionId::trusted);
    assert_eq!(block_on(here.ended(ids())).unwrap(), ended);
}
