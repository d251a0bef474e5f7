//! What a server removes from its record by itself, and what it leaves whatever the clock says.

use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::audit::{Change, Record as _};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::ids::IdSource;
use countersign_store::{Durability, Options, Store};
use serde_json::json;

use crate::bench::Bench;
use crate::client::{Server, eventually};

const DAY_MILLIS: i64 = 86_400_000;

/// Writes a row as a server did so many days ago.
fn write(bench: &Bench, days_ago: i64) {
    let at = Timestamp::from_millis(Clock::system().now().as_millis() - days_ago * DAY_MILLIS);
    let database = bench.variable("COUNTERSIGN_DATABASE").map(str::to_owned);
    let options = Options::new(Durability::Process, Clock::fixed(at)).on(database);
    let store = Store::open(&bench.state(), options).unwrap();
    let ids = IdSource::random();
    let (kind, payload) = (EventType::PolicyChanged, json!({"days_ago": days_ago}));
    let event = Draft::new(
        ids.event(),
        at,
        ids.correlation(),
        Actor::system("test"),
        kind,
        &payload,
    );
    let change = Change {
        events: vec![event],
        ..Change::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.commit(change)).unwrap();
}

fn is_there(bench: &Bench, days_ago: i64) -> bool {
    let query = format!("SELECT count(*) FROM flow_events WHERE payload LIKE '%\"days_ago\":{days_ago}}}%'");
    bench.count(&query) == 1
}

#[test]
fn a_clock_that_jumped_ahead_does_not_make_the_record_old() {
    Bench::wherever(|bench| {
        // By the clock all of these are older than the ninety days that a record is kept. For all that the record can tell, the
        // clock was set since the last of them.
        for days_ago in [400, 280, 200] {
            write(&bench, days_ago);
        }
        let mut server = Server::start(&bench);
        server.ping();
        eventually("what was old when the record was last written goes", || {
            !is_there(&bench, 400)
        });
        assert!(is_there(&bench, 280) && is_there(&bench, 200));
        server.end();
        assert!(is_there(&bench, 280) && is_there(&bench, 200));
        bench.prove();
    });
}

#[test]
fn a_record_that_is_written_to_every_day_keeps_what_it_must_and_no_more() {
    let bench = Bench::new();
    for days_ago in [100, 92, 88, 2] {
        write(&bench, days_ago);
    }
    let mut server = Server::start(&bench);
    server.ping();
    eventually("what is old goes", || !is_there(&bench, 100));
    assert!(is_there(&bench, 88) && is_there(&bench, 2));
    server.end();
    bench.prove();
}
