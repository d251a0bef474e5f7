//! Processes that die and processes that share. The child is this test binary itself, told by its
//! environment what to do; it says `ack N` for each write that was acknowledged.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use countersign_gateway::clock::Clock;
use countersign_store::{Durability, Store};

use super::super::bench::{Bench, commit, options_at, this_test, verify};

const STATE: &str = "COUNTERSIGN_TEST_STATE";
const WRITES: &str = "COUNTERSIGN_TEST_WRITES";

/// Not a test of its own: what the children run.
#[test]
fn child_appends() {
    let Ok(state) = std::env::var(STATE) else {
        return;
    };
    let writes: u64 = std::env::var(WRITES).unwrap().parse().unwrap();
    let bench = Bench::new();
    let options = options_at(Path::new(&state), Durability::Power, Clock::system());
    let store = Store::open(Path::new(&state), options).unwrap();
    for number in 0..writes {
        let request_id = format!("{}-{number}", std::process::id());
        let mut change = bench.opening(&request_id, "d");
        change.events.push(bench.note(number).events.remove(0));
        let receipt = commit(&store, change).unwrap();
        println!("\nack {}", receipt.last_seq);
    }
}

pub(crate) fn child(bench: &Bench, writes: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &this_test(module_path!(), "child_appends"), "--nocapture"])
        .env(STATE, bench.path())
        .env(WRITES, writes.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The places that the child said were written.
fn acknowledged(child: &mut Child) -> impl Iterator<Item = u64> + use<> {
    let output = BufReader::new(child.stdout.take().unwrap());
    output
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix("ack ").map(|seq| seq.parse().unwrap()))
}

#[test]
fn nothing_acknowledged_is_lost_to_a_kill() {
    let bench = Bench::new();
    let mut last = 0;
    // Killed after so many acknowledgements, which falls anywhere in the writes that follow.
    for after in [1, 2, 7, 40, 133, 400, 3] {
        let mut child = child(&bench, u64::MAX);
        let mut acks = acknowledged(&mut child);
        last = acks.by_ref().take(after).last().unwrap();
        child.kill().unwrap();
        last = acks.last().unwrap_or(last);
        child.wait().unwrap();
        let store = bench.open();
        let report = verify(&store).unwrap();
        assert!(report.last_seq >= last, "{} < {last}", report.last_seq);
        assert_eq!(report.last_seq % 2, 0, "half a change was written");
    }
    assert!(last >= 2 * (1 + 2 + 7 + 40 + 133 + 400 + 3));
}

#[test]
fn two_processes_make_one_unbroken_chain() {
    let bench = Bench::new();
    let store = bench.open();
    let mut children = [child(&bench, 700), child(&bench, 700)];
    for number in 0..700 {
        commit(&store, bench.note(number)).unwrap();
    }
    let mut seen: Vec<u64> = children.iter_mut().flat_map(acknowledged).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let report = verify(&store).unwrap();
    assert_eq!(report.rows, 2 * 1_400 + 700);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 1_400);
}

#[test]
fn several_processes_may_create_the_record_at_once() {
    let bench = Bench::new();
    let children: Vec<_> = (0..6).map(|_| child(&bench, 3)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(verify(&bench.open()).unwrap().rows, 36);
}
