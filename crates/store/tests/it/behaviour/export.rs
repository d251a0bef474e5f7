//! An exported file proves itself, and stops doing so when it is touched.

use std::fs;

use countersign_gateway::audit::chain::Hash;
use countersign_store::checkpoint::{Checkpoint, Kind};
use countersign_store::export::{FileError, verify_against, verify_file};
use countersign_store::key::Key;
use countersign_store::prove::{Fault, Report, Voucher};
use countersign_store::witness::{self, WitnessAt, WitnessError};
use countersign_store::{Options, Store};

use super::super::bench::{Bench, fill, later, verify};

fn exported(store: &Store) -> String {
    let mut bytes = Vec::new();
    store.export(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn read(text: &str) -> Result<Report, FileError> {
    verify_file(text.as_bytes(), None)
}

/// Twenty rows behind a head line, then the stop checkpoint and the end.
fn sample() -> Vec<String> {
    let bench = Bench::new();
    fill(&bench, &bench.open(), 20);
    let text = exported(&bench.open());
    text.lines().map(str::to_owned).collect()
}

fn fault_of(lines: &[String]) -> Fault {
    match read(&lines.join("\n")) {
        Err(FileError::Flawed(flaw)) => flaw.fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_proves_what_the_live_record_proves() {
    let bench = Bench::new();
    fill(&bench, &bench.open(), 2_100);
    let store = bench.open();
    let report = read(&exported(&store)).unwrap();
    let live = verify(&store).unwrap();
    assert_eq!((report.end, live.end), (Voucher::Signature, Voucher::Seal));
    let end = report.end;
    assert_eq!(report, Report { end, ..live });
    assert_eq!((report.rows, report.checkpoints), (2_100, 3));
}

#[test]
fn an_empty_and_a_pruned_record_export_too() {
    let bench = Bench::new();
    let store = bench.open();
    assert_eq!(read(&exported(&store)).unwrap().rows, 0);
    fill(&bench, &store, 30);
    store.prune(later(), &bench.ids).unwrap();
    let report = read(&exported(&store)).unwrap();
    assert_eq!((report.first_seq, report.rows), (31, 1));
}

#[test]
fn the_key_can_be_pinned() {
    let text = sample().join("\n");
    let key = read(&text).unwrap().public_key;
    assert!(verify_file(text.as_bytes(), Some(&key)).is_ok());
    let other = verify_file(text.as_bytes(), Some("00"));
    assert!(matches!(other, Err(FileError::OtherKey { .. })));
}

#[test]
fn a_changed_row_is_found() {
    let mut lines = sample();
    lines[7] = lines[7].replace("\"number\":7", "\"number\":8");
    assert_eq!(fault_of(&lines), Fault::Changed);
}

#[test]
fn a_missing_row_is_found() {
    let mut lines = sample();
    lines.remove(7);
    assert_eq!(fault_of(&lines), Fault::Missing);
}

#[test]
fn a_reordered_row_is_found() {
    let mut lines = sample();
    lines.swap(7, 8);
    assert_eq!(fault_of(&lines), Fault::Reordered { written_at: 8 });
}

#[test]
fn a_repeated_row_is_found() {
    let mut lines = sample();
    lines.insert(8, lines[7].clone());
    assert_eq!(fault_of(&lines), Fault::Reordered { written_at: 7 });
}

#[test]
fn a_cut_file_is_truncated_wherever_it_is_cut() {
    let lines = sample();
    for kept in 1..lines.len() {
        let cut = read(&lines[..kept].join("\n"));
        assert!(matches!(cut, Err(FileError::EndMissing)), "{kept}: {cut:?}");
    }
    assert!(matches!(read(""), Err(FileError::Line { line: 1 })));
}

#[test]
fn rows_cut_from_the_end_are_missed_by_the_signed_line() {
    let mut lines = sample();
    lines.remove(20);
    assert_eq!(fault_of(&lines), Fault::Truncated { should_reach: 20 });
}

#[test]
fn without_any_checkpoint_the_signed_line_alone_holds_the_rows() {
    // Two running records under one key: their files differ in their rows and last lines only.
    let [one, other] = [Bench::new(), Bench::new()];
    drop(one.open());
    std::fs::copy(one.path().join("record-key"), other.path().join("record-key")).unwrap();
    if one.postgres().is_some() {
        std::fs::copy(one.path().join("record-node"), other.path().join("record-node")).unwrap();
    }
    let [one, other] = [one, other].map(|bench| {
        let store = bench.open();
        fill(&bench, &store, 5);
        let text = exported(&store);
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    assert_eq!((one.len(), &one[0]), (7, &other[0]));
    let cut = [&one[..5], &one[6..]].concat();
    assert_eq!(fault_of(&cut), Fault::Truncated { should_reach: 5 });
    let swapped = [&one[..1], &other[1..6], &one[6..]].concat();
    assert_eq!(fault_of(&swapped), Fault::CheckpointMismatch);
}

#[test]
fn the_first_and_last_line_are_under_a_signature() {
    for (line, from, to) in [
        (0, "\"last_seq\":20", "\"last_seq\":19"),
        (0, "\"chain\":\"", "\"chain\":\"s"),
        (22, "\"last_seq\":20", "\"last_seq\":19"),
        (22, "\"checkpoints\":1", "\"checkpoints\":0"),
    ] {
        let mut lines = sample();
        assert!(lines[line].contains(from), "{}", lines[line]);
        lines[line] = lines[line].replace(from, to);
        let forged = read(&lines.join("\n"));
        assert!(matches!(forged, Err(FileError::EndSignature { .. })), "{forged:?}");
    }
}

#[test]
fn a_removed_or_forged_checkpoint_is_found() {
    let mut lines = sample();
    lines[21] = lines[21].replace("\"kind\":\"stop\"", "\"kind\":\"prune\"");
    assert_eq!(fault_of(&lines), Fault::BadSignature);
    let mut lines = sample();
    lines.remove(21);
    assert_eq!(fault_of(&lines), Fault::CheckpointMissing);
}

#[test]
fn lines_that_do_not_belong_are_refused() {
    for (place, line) in [(0, "{}"), (5, "not json"), (5, "{\"seq\":5}"), (23, "{}")] {
        let mut lines = sample();
        lines.insert(place, line.to_owned());
        let refused = read(&lines.join("\n"));
        assert!(matches!(refused, Err(FileError::Line { .. })), "{refused:?}");
    }
}

#[test]
fn nothing_is_added_to_a_line_that_is_no_row() {
    for (line, from, to) in [
        (0, "{\"format\":", "{\"note\":\"x\",\"format\":"),
        (0, "\"last_seq\":20", "\"last_seq\":99,\"last_seq\":20"),
        (21, "{\"checkpoint\":{", "{\"checkpoint\":{\"note\":\"x\","),
        (21, "\"kind\":\"stop\"", "\"kind\":\"prune\",\"kind\":\"stop\""),
        (22, "{\"end\":{", "{\"end\":{\"note\":\"x\","),
        (22, "{\"end\":{", "{\"end\":{\"last_seq\":99,"),
    ] {
        let mut lines = sample();
        assert!(lines[line].contains(from), "{}", lines[line]);
        lines[line] = lines[line].replace(from, to);
        let number = line as u64 + 1;
        let refused = read(&lines.join("\n"));
        assert!(
            matches!(refused, Err(FileError::Line { line }) if line == number),
            "{to}: {refused:?}"
        );
    }
}

#[test]
fn a_record_that_was_made_anew_contradicts_its_witness() {
    let bench = Bench::new();
    let file = bench.path().join("witness.jsonl");
    let options = Options {
        witness: Some(WitnessAt::File(file.clone())),
        ..bench.options()
    };
    let store = Store::open(bench.path(), options).unwrap();
    fill(&bench, &store, 20);
    drop(store);
    let told = witness::read(fs::read(&file).unwrap().as_slice()).unwrap();
    assert_eq!(told.len(), 1);
    let store = bench.open();
    fill(&bench, &store, 10);
    let sound = exported(&store);
    assert_eq!(verify_against(sound.as_bytes(), None, &told).unwrap().rows, 30);
    // What was pruned since is not held against it.
    store.prune(later(), &bench.ids).unwrap();
    assert!(verify_against(exported(&store).as_bytes(), None, &told).is_ok());

    let fault = |told: &[Checkpoint]| match verify_against(sound.as_bytes(), None, told) {
        Err(FileError::Flawed(flaw)) => flaw.fault,
        other => panic!("{other:?}"),
    };
    // The owner of the key writes another history, a shorter one, or takes another key.
    let other = Bench::new();
    fill(&other, &other.open(), 20);
    let anew = exported(&other.open());
    assert!(matches!(
        verify_against(anew.as_bytes(), None, &told),
        // Where every node names its own chain, the chain that was witnessed is not there at all.
        Err(FileError::Flawed(flaw)) if matches!(flaw.fault, Fault::WitnessKey | Fault::Truncated { .. })
    ));
    let key = Key::from_seed(&[9; 32]);
    let signed = |seq, hash| {
        let mut forged = Checkpoint::sign(&key, Kind::Stop, &told[0].chain, seq, hash, String::new());
        forged.public_key.clone_from(&told[0].public_key);
        forged
    };
    assert_eq!(fault(&[signed(20, told[0].hash)]), Fault::BadSignature);
    let ours = |seq, hash| {
        let key = Key::load_or_create(bench.path()).unwrap();
        Checkpoint::sign(&key, Kind::Stop, &told[0].chain, seq, hash, String::new())
    };
    assert_eq!(fault(&[ours(20, Hash::from_bytes([1; 32]))]), Fault::CheckpointMismatch);
    assert_eq!(fault(&[ours(99, told[0].hash)]), Fault::Truncated { should_reach: 99 });
}

#[test]
fn a_witness_file_with_anything_else_in_it_is_refused_by_line() {
    let refused = witness::read("{}\n".as_bytes());
    assert!(matches!(refused, Err(WitnessError::Line { line: 1 })), "{refused:?}");
}
