//! Leases in a file, whose processes are all on this machine: those of a process that is gone are free at once.

use std::time::Duration;

use countersign_gateway::audit::Change;
use countersign_gateway::lease::LeaseChange;

use crate::bench::{commit, noon};
use crate::on_sqlite::bench::Bench;

#[test]
fn a_lease_of_a_process_that_is_gone_is_nobodys() {
    let bench = Bench::new();
    let store = bench.open();
    let take = |holder: &str| Change {
        leases: vec![LeaseChange::Take {
            name: "delivery:d-1".to_owned(),
            holder: holder.to_owned(),
            now: noon(),
            time: Duration::from_secs(20),
        }],
        ..bench.note(1)
    };
    commit(&store, take("one")).unwrap();
    assert!(commit(&store, take("two")).is_err(), "its process lives");
    let gone = "UPDATE leases SET holder = 'another-boot/1/1 one'";
    bench.sql().execute(gone, []).unwrap();
    commit(&store, take("two")).unwrap();
    assert!(commit(&store, take("one")).is_err());
}
