//! What the gateway expects of a record, whatever keeps it. A backend gives a [`Fixture`]; each
//! behaviour is a function over it, run by `on_every_backend!`.

use std::sync::Arc;

use countersign_gateway::audit::row::Row;
use countersign_gateway::audit::{Change, Record, RecordError, StoredEnd};
use countersign_gateway::ids::RequestId;
use serde_json::json;

use super::super::bench::{Bench, block_on, commit, events, noon, owner, verify};

/// A backend under test.
trait Fixture: Sync {
    fn bench(&self) -> &Bench;
    fn open(&self) -> Arc<dyn Record>;
    /// All rows, proved.
    fn rows(&self) -> Vec<Row>;
}

struct Kept(Bench);

impl Fixture for Kept {
    fn bench(&self) -> &Bench {
        &self.0
    }
    fn open(&self) -> Arc<dyn Record> {
        Arc::new(self.0.open())
    }
    fn rows(&self) -> Vec<Row> {
        let store = self.0.open();
        verify(&store).unwrap();
        store.tail(0).unwrap()
    }
}

macro_rules! on_every_backend {
    ($($name:ident)*) => {
        mod kept {$(
            #[test]
            fn $name() {
                super::$name(&super::Kept(super::Bench::new()));
            }
        )*}
    };
}

on_every_backend! {
    events_stand_in_the_order_they_were_acknowledged
    events_of_one_change_stay_together
    an_empty_record_verifies
    a_write_goes_on_when_nobody_waits
    a_taken_request_id_is_refused_and_writes_nothing
    a_refused_change_does_not_fail_its_neighbours
    a_command_is_found_open_and_then_closed
    the_end_of_a_command_is_wanted_while_it_is_open
    a_refusal_opens_and_closes_at_once
    a_close_without_an_opening_is_kept
    the_first_end_of_a_command_stands
    a_change_that_comes_twice_is_written_once
    what_was_acknowledged_is_there_after_reopening
    many_callers_make_one_chain
}

fn events_stand_in_the_order_they_were_acknowledged(fixture: &dyn Fixture) {
    let record = fixture.open();
    for number in 1..=5 {
        let change = fixture.bench().note(number);
        let event = change.events[0].event_id.clone();
        let receipt = commit(&*record, change).unwrap();
        assert_eq!((receipt.last_seq, receipt.last_event), (number, Some(event)));
    }
    drop(record);
    let rows = fixture.rows();
    let payloads: Vec<_> = rows.iter().map(|row| row.payload.as_str()).collect();
    let expected = [1, 2, 3, 4, 5].map(|number| format!("{{\"number\":{number}}}"));
    assert_eq!(payloads, expected);
}

fn events_of_one_change_stay_together(fixture: &dyn Fixture) {
    let record = fixture.open();
    let bench = fixture.bench();
    let drafts: Vec<_> = (0..3).map(|part| bench.draft(&json!({"part": part}))).collect();
    let last = drafts[2].event_id.clone();
    let receipt = commit(&*record, events(drafts)).unwrap();
    assert_eq!((receipt.last_seq, receipt.last_event), (3, Some(last)));
    drop(record);
    assert_eq!(fixture.rows().len(), 3);
}

fn an_empty_record_verifies(fixture: &dyn Fixture) {
    drop(fixture.open());
    assert_eq!(fixture.rows(), []);
}

fn a_write_goes_on_when_nobody_waits(fixture: &dyn Fixture) {
    let record = fixture.open();
    drop(record.commit(fixture.bench().note(1)));
    drop(record);
    assert_eq!(fixture.rows().len(), 1);
}

fn a_taken_request_id_is_refused_and_writes_nothing(fixture: &dyn Fixture) {
    let record = fixture.open();
    commit(&*record, fixture.bench().opening("r1", "d1")).unwrap();
    let refused = commit(&*record, fixture.bench().opening("r1", "d2"));
    assert!(matches!(refused, Err(RecordError::RequestIdTaken(id)) if id.as_str() == "r1"));
    drop(record);
    assert_eq!(fixture.rows().len(), 1);
}

fn a_refused_change_does_not_fail_its_neighbours(fixture: &dyn Fixture) {
    let record = fixture.open();
    let bench = fixture.bench();
    let first = bench.note(1);
    commit(&*record, first.clone()).unwrap();
    // An event id that is taken by another event of its call: no database can take this one.
    let mut clash = bench.note(99);
    clash.events[0].event_id = first.events[0].event_id.clone();
    clash.events[0].correlation_id = first.events[0].correlation_id.clone();
    let taken = bench.opening("r1", "d1");
    commit(&*record, taken.clone()).unwrap();
    let changes = [
        bench.note(2),
        clash,
        bench.note(3),
        bench.opening("r1", "d1"),
        bench.note(4),
    ];
    let pending: Vec<_> = changes.into_iter().map(|it| record.commit(it)).collect();
    let outcomes: Vec<_> = pending.into_iter().map(block_on).collect();
    let good: Vec<_> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(good, [true, false, true, false, true], "{outcomes:?}");
    drop(record);
    assert_eq!(fixture.rows().len(), 5);
}

fn a_command_is_found_open_and_then_closed(fixture: &dyn Fixture) {
    let record = fixture.open();
    let id = RequestId::trusted("r1");
    let find = || block_on(record.command(&owner(), &id)).unwrap();
    assert_eq!(find(), None);
    commit(&*record, fixture.bench().opening("r1", "d1")).unwrap();
    let open = find().unwrap();
    assert_eq!((open.digest.as_str(), open.opened_at), ("d1", noon()));
    assert_eq!(open.end, None);
    commit(&*record, fixture.bench().closing("r1", "d1", "ok")).unwrap();
    let end = StoredEnd {
        result: r#"{"status":"ok"}"#.to_owned(),
        stdout: b"out".to_vec(),
        stderr: b"err".to_vec(),
    };
    assert_eq!(find().unwrap().end, Some(end));
    let stranger = countersign_gateway::ids::CredentialId::trusted("stranger");
    assert_eq!(block_on(record.command(&stranger, &id)).unwrap(), None);
}

fn the_end_of_a_command_is_wanted_while_it_is_open(fixture: &dyn Fixture) {
    let (bench, record) = (fixture.bench(), fixture.open());
    let is_wanted = |id: &str| block_on(record.is_end_wanted(&owner(), &RequestId::trusted(id))).unwrap();
    let want = |id: &str| {
        let change = Change {
            end_wanted: Some((owner(), RequestId::trusted(id))),
            ..Change::default()
        };
        block_on(record.commit(change)).unwrap();
    };
    for id in ["r1", "r2"] {
        block_on(record.commit(bench.opening(id, "d"))).unwrap();
    }
    want("r1");
    want("never");
    assert_eq!(["r1", "r2", "never"].map(is_wanted), [true, false, false]);
    block_on(record.commit(bench.closing("r1", "d", "failed"))).unwrap();
    assert!(!is_wanted("r1"));
}

fn a_refusal_opens_and_closes_at_once(fixture: &dyn Fixture) {
    let record = fixture.open();
    let opening = fixture.bench().opening("r1", "d1");
    let closing = fixture.bench().closing("r1", "d1", "rejected");
    let both = Change {
        events: [opening.events, closing.events].concat(),
        open: opening.open,
        close: closing.close,
        ..Change::default()
    };
    commit(&*record, both).unwrap();
    let found = block_on(record.command(&owner(), &RequestId::trusted("r1"))).unwrap();
    assert!(found.unwrap().end.is_some());
}

fn a_close_without_an_opening_is_kept(fixture: &dyn Fixture) {
    let record = fixture.open();
    commit(&*record, fixture.bench().closing("r1", "d1", "rejected")).unwrap();
    let found = block_on(record.command(&owner(), &RequestId::trusted("r1"))).unwrap();
    assert!(found.unwrap().end.is_some());
}

fn the_first_end_of_a_command_stands(fixture: &dyn Fixture) {
    let record = fixture.open();
    let bench = fixture.bench();
    commit(&*record, bench.opening("r1", "d1")).unwrap();
    for (digest, status) in [("other", "rejected"), ("d1", "ok"), ("d1", "failed")] {
        commit(&*record, bench.closing("r1", digest, status)).unwrap();
    }
    let found = block_on(record.command(&owner(), &RequestId::trusted("r1"))).unwrap();
    assert_eq!(found.unwrap().end.unwrap().result, r#"{"status":"ok"}"#);
}

fn a_change_that_comes_twice_is_written_once(fixture: &dyn Fixture) {
    let record = fixture.open();
    commit(&*record, fixture.bench().opening("r1", "d1")).unwrap();
    let closing = fixture.bench().closing("r1", "d1", "ok");
    let first = commit(&*record, closing.clone()).unwrap();
    commit(&*record, fixture.bench().note(1)).unwrap();
    assert_eq!(commit(&*record, closing).unwrap(), first);
    drop(record);
    assert_eq!(fixture.rows().len(), 3);
}

fn what_was_acknowledged_is_there_after_reopening(fixture: &dyn Fixture) {
    for number in 1..=3 {
        commit(&*fixture.open(), fixture.bench().note(number)).unwrap();
    }
    assert_eq!(fixture.rows().len(), 3);
}

fn many_callers_make_one_chain(fixture: &dyn Fixture) {
    let record = fixture.open();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for number in 0..25 {
                    commit(&*record, fixture.bench().note(number)).unwrap();
                }
            });
        }
    });
    drop(record);
    assert_eq!(fixture.rows().len(), 200);
}
