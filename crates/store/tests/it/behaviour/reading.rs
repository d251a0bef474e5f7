//! The record as the port [`Records`] reads it: by page and size, summed up, followed, and written out.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use countersign_gateway::audit::event::{Draft, EventType};
use countersign_gateway::audit::reading::{Entity, Filter, Pick, Records};
use countersign_gateway::audit::summary::{Period, Tally};
use countersign_gateway::clock::Timestamp;
use countersign_store::Store;
use countersign_store::export::verify_file;
use serde_json::json;

use super::super::bench::{Bench, agent, block_on, commit, events, fill, noon};

fn seqs(store: &Store, filter: Filter) -> Vec<u64> {
    let rows = block_on(store.events(filter)).unwrap();
    rows.iter().map(|row| row.seq).collect()
}

#[test]
fn a_page_ends_at_its_places_and_at_its_size() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, 10);
    let all = Filter::everything();
    let between = Filter {
        after: Some(3),
        before: Some(8),
        ..all.clone()
    };
    assert_eq!(seqs(&store, between), [4, 5, 6, 7]);
    // One byte is room for nothing, yet the first is always given.
    let small = Filter {
        bytes_max: Some(1),
        ..all.clone()
    };
    assert_eq!(seqs(&store, small.clone()), [1]);
    let newest = Filter {
        pick: Pick::Newest,
        ..small
    };
    assert_eq!(seqs(&store, newest), [10]);
    let size = block_on(store.events(all.clone())).unwrap()[0].payload.len();
    let three = Filter {
        bytes_max: Some(3 * size + 1),
        pick: Pick::Newest,
        ..all
    };
    assert_eq!(seqs(&store, three), [8, 9, 10]);
}

#[test]
fn entities_have_places_to_go_on_from() {
    let bench = Bench::new();
    let store = bench.open();
    for name in ["r1", "r2", "r3"] {
        commit(&store, bench.opening(name, name)).unwrap();
        commit(&store, bench.closing(name, name, "ok")).unwrap();
    }
    let page = |after: u64, bytes_max: Option<usize>| {
        let filter = Filter {
            after: Some(after),
            bytes_max,
            ..Filter::everything()
        };
        block_on(store.entities(Entity::Command, filter)).unwrap()
    };
    let whole = page(0, None);
    assert_eq!(whole.len(), 3);
    let first = page(0, Some(1));
    assert_eq!(first, whole[..1]);
    assert_eq!(page(first[0].place, None), whole[1..]);
}

#[test]
fn a_summary_counts_what_lies_in_its_period_and_nothing_else() {
    let bench = Bench::new();
    let store = bench.open();
    let kinds = [
        EventType::ApprovalRequested,
        EventType::ApprovalDenied,
        EventType::CommandReceived,
    ];
    // More rows than a span has, so that places are found by it as well.
    for number in 0..700_i64 {
        let at = Timestamp::from_millis(noon().as_millis() + number * 1_000);
        let kind = kinds[usize::try_from(number).unwrap() % kinds.len()];
        let draft = Draft::new(
            bench.ids.event(),
            at,
            bench.ids.correlation(),
            agent(),
            kind,
            &json!({}),
        );
        commit(&store, events(vec![draft])).unwrap();
    }
    let at = |second: i64| Some(Timestamp::from_millis(noon().as_millis() + second * 1_000));
    for (from, to) in [(None, None), (at(100), None), (None, at(100)), (at(50), at(600))] {
        let period = Period::between(from, to).unwrap();
        let summary = block_on(store.summary(period)).unwrap();
        let mut naive = Tally::default();
        let rows = block_on(store.events(Filter {
            limit: 10_000,
            from,
            to,
            ..Filter::everything()
        }))
        .unwrap();
        rows.iter().for_each(|row| naive.add(row));
        let expected = naive.finish(summary.period_start, summary.period_end);
        assert_eq!(summary, expected, "{period:?}");
        assert_eq!(summary, store.summarize(period).unwrap());
        assert_eq!(from.unwrap_or(noon()).min(summary.period_start), summary.period_start);
    }
}

#[test]
fn whoever_follows_hears_of_each_commit() {
    let bench = Bench::new();
    let store = bench.open();
    assert_eq!(block_on(store.head()).unwrap(), 0);
    let mut grown = store.grown();
    grown.mark_unchanged();
    fill(&bench, &store, 3);
    assert!(grown.has_changed().unwrap());
    assert_eq!(block_on(store.head()).unwrap(), 3);
    grown.mark_unchanged();
    fill(&bench, &store, 1);
    assert!(grown.has_changed().unwrap());
}

/// Keeps what is written, up to a bound.
#[derive(Clone)]
struct Kept(Arc<Mutex<Vec<u8>>>, usize);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().unwrap();
        if kept.len() >= self.1 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        kept.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_export_verifies_and_ends_when_nobody_takes_it() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, 1_500);
    let whole = Kept(Arc::default(), usize::MAX);
    block_on(Records::export(&store, Box::new(whole.clone()))).unwrap();
    let report = verify_file(whole.0.lock().unwrap().as_slice(), Some(store.public_key())).unwrap();
    assert!(report.rows >= 1_500);
    let gone = Kept(Arc::default(), 1);
    assert!(block_on(Records::export(&store, Box::new(gone))).is_err());
}
