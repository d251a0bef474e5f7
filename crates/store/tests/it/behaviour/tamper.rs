//! Every way to change a record behind its back is found, and named by place and kind.

use countersign_gateway::audit::Record as _;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::RequestId;
use countersign_store::Store;
use countersign_store::prove::{Fault, Flaw, Voucher};
use countersign_store::sqlite::verify::{Range, VerifyError};

use super::super::bench::{Bench, block_on, commit, fill, later, noon, owner, verify};

const ROWS: u64 = 20;

/// Fills a record, changes it by SQL without its triggers, and gives what verifying finds.
fn flaw_after(statement: &str) -> Option<Flaw> {
    flaw_of(ROWS, statement)
}

fn flaw_of(rows: u64, statement: &str) -> Option<Flaw> {
    let bench = Bench::new();
    fill(&bench, &bench.open(), rows);
    bench.force(statement);
    found(&bench.open())
}

fn found(store: &Store) -> Option<Flaw> {
    match verify(store) {
        Ok(_) => None,
        Err(VerifyError::Flawed(flaw)) => Some(flaw),
        Err(error) => panic!("{error}"),
    }
}

fn at(seq: u64, fault: Fault) -> Option<Flaw> {
    let chain = None;
    Some(Flaw { seq, fault, chain })
}

#[test]
fn an_untouched_record_is_sound() {
    assert_eq!(flaw_after(""), None);
}

#[test]
fn one_changed_byte_in_any_column_is_found() {
    for change in [
        "event_id = replace(event_id, '-', '+')",
        "timestamp = replace(timestamp, '2026', '2025')",
        "correlation_id = correlation_id || 'x'",
        "actor_type = 'human'",
        "actor_id = 'Local'",
        "event_type = 'command.validated'",
        "approval_state = 'approved'",
        "payload = replace(payload, '7', '8')",
        "hash = zeroblob(32)",
    ] {
        let statement = format!("UPDATE flow_events SET {change} WHERE seq = 7");
        assert_eq!(flaw_after(&statement), at(7, Fault::Changed), "{change}");
    }
    let prev = "UPDATE flow_events SET prev_hash = zeroblob(32) WHERE seq = 7";
    assert_eq!(flaw_after(prev), at(7, Fault::Changed));
    // Where chains are apart, the row is missed in its own.
    let flaw = flaw_after("UPDATE flow_events SET chain = 'another' WHERE seq = 7").unwrap();
    assert!(
        flaw == at(7, Fault::Changed).unwrap() || flaw == at(7, Fault::Missing).unwrap(),
        "{flaw}"
    );
}

#[test]
fn a_deleted_row_is_missing() {
    for seq in [1, 7, 19] {
        let statement = format!("DELETE FROM flow_events WHERE seq = {seq}");
        assert_eq!(flaw_after(&statement), at(seq, Fault::Missing));
    }
}

/// A copy of row 3, at another place.
fn copied(place: i64) -> String {
    format!(
        "INSERT INTO flow_events (chain, seq, event_id, timestamp, correlation_id, actor_type, actor_id, event_type,
                                  approval_state, payload, prev_hash, hash)
             SELECT chain, {place}, event_id || 'x', timestamp, correlation_id, actor_type, actor_id, event_type,
                    approval_state, payload, prev_hash, hash FROM flow_events WHERE seq = 3"
    )
}

#[test]
fn a_row_put_before_the_first_is_found() {
    for place in [0, -5] {
        assert_eq!(flaw_after(&copied(place)), at(0, Fault::Added), "{place}");
    }
}

#[test]
fn a_row_put_where_others_were_pruned_is_found_and_one_that_a_prune_left_is_none() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, ROWS);
    let rows = store.tail(0).unwrap();
    store.prune(later(), &bench.ids).unwrap();
    let last_gone = rows.last().unwrap();
    drop(store);
    let put = |row: &countersign_gateway::audit::row::Row, payload: &str| {
        let (prev_hash, hash) = (bench.bytes(&row.prev_hash.to_hex()), bench.bytes(&row.hash.to_hex()));
        let columns = row.as_link().columns;
        bench.force(&format!(
            "INSERT INTO flow_events (chain, seq, event_id, timestamp, correlation_id, actor_type, actor_id, event_type,
                                      approval_state, payload, prev_hash, hash)
                 VALUES ('{}', {}, '{}', '{}', '{}', '{}', '{}', '{}', NULL, '{payload}', {prev_hash}, {hash})",
            columns.chain,
            row.seq,
            columns.event_id,
            columns.timestamp,
            columns.correlation_id,
            columns.actor_type,
            columns.actor_id,
            columns.event_type,
        ));
    };
    put(last_gone, last_gone.as_link().columns.payload);
    let before = &rows[rows.len() - 2];
    put(before, before.as_link().columns.payload);
    assert_eq!(found(&bench.open()), None);
    put(&rows[rows.len() - 3], "{}");
    assert_eq!(found(&bench.open()), at(last_gone.seq - 2, Fault::Changed));
    bench.force(&format!("DELETE FROM flow_events WHERE seq = {}", last_gone.seq - 2));
    put(&rows[4], rows[4].as_link().columns.payload);
    assert_eq!(found(&bench.open()), at(5, Fault::Added));
}

#[test]
fn swapped_rows_are_reordered() {
    let swap = "UPDATE flow_events SET seq = -1 WHERE seq = 7;
                UPDATE flow_events SET seq = 7 WHERE seq = 9;
                UPDATE flow_events SET seq = 9 WHERE seq = -1;";
    let reordered = Fault::Reordered { written_at: 9 };
    assert_eq!(flaw_after(swap), at(7, reordered));
}

#[test]
fn a_row_that_is_linked_again_gives_itself_away_behind() {
    // The hash of row 7 is made to fit; the one behind it still names the old hash.
    let bench = Bench::new();
    fill(&bench, &bench.open(), ROWS);
    let store = bench.open();
    let row = store.tail(6).unwrap().swap_remove(0);
    drop(store);
    let mut columns = row.as_link().columns;
    columns.payload = "{}";
    let hash = countersign_gateway::audit::chain::link(&row.prev_hash, 7, &columns);
    let hash = bench.bytes(&hash.to_hex());
    bench.force(&format!(
        "UPDATE flow_events SET payload = '{{}}', hash = {hash} WHERE seq = 7"
    ));
    assert_eq!(found(&bench.open()), at(8, Fault::Unlinked));
}

#[test]
fn a_cut_tail_is_truncated() {
    let truncated = Fault::Truncated { should_reach: ROWS };
    let rows_only = "DELETE FROM flow_events WHERE seq > 15";
    assert_eq!(flaw_after(rows_only), at(16, truncated));
    let all = "DELETE FROM flow_events";
    assert_eq!(flaw_after(all), at(1, truncated));
}

#[test]
fn a_cut_tail_with_a_fitting_head_runs_into_the_signed_stop() {
    let statement = "DELETE FROM flow_events WHERE seq > 15;
         UPDATE chain_heads SET seq = 15, sealed_seq = 15, hash = (SELECT hash FROM flow_events WHERE seq = 15);";
    let truncated = Fault::Truncated { should_reach: ROWS };
    assert_eq!(flaw_after(statement), at(16, truncated));
}

#[test]
fn a_changed_head_is_found() {
    for change in ["UPDATE chain_heads SET hash = zeroblob(32)", "DELETE FROM chain_heads"] {
        assert_eq!(flaw_after(change), at(ROWS, Fault::HeadChanged), "{change}");
    }
    let longer = "UPDATE chain_heads SET seq = 25, sealed_seq = 25";
    let truncated = Fault::Truncated { should_reach: 25 };
    assert_eq!(flaw_after(longer), at(21, truncated));
    // A head set back: the signed stop lies beyond it.
    let shorter =
        "UPDATE chain_heads SET seq = 15, sealed_seq = 15, hash = (SELECT hash FROM flow_events WHERE seq = 15)";
    let truncated = Fault::Truncated { should_reach: ROWS };
    assert_eq!(flaw_after(shorter), at(16, truncated));
}

/// Rewrites rows from `from` on and links them again, as anybody can; the head follows.
fn rewrite(bench: &Bench, from: u64) {
    let store = bench.open();
    let rows = store.tail(from - 1).unwrap();
    drop(store);
    let mut prev = rows[0].prev_hash;
    let mut statements = String::new();
    for row in &rows {
        let mut columns = row.as_link().columns;
        if row.seq == from {
            columns.payload = "{}";
        }
        let hash = countersign_gateway::audit::chain::link(&prev, row.seq, &columns);
        statements += &format!(
            "UPDATE flow_events SET payload = '{}', prev_hash = {}, hash = {} WHERE seq = {};",
            columns.payload,
            bench.bytes(&prev.to_hex()),
            bench.bytes(&hash.to_hex()),
            row.seq
        );
        prev = hash;
    }
    bench.force(&format!(
        "DELETE FROM checkpoints WHERE seq >= {from}; {statements} UPDATE chain_heads SET hash = {}, checkpointed = 0",
        bench.bytes(&prev.to_hex())
    ));
}

#[test]
fn rows_rewritten_behind_the_last_checkpoint_are_found_by_the_seal_of_the_head() {
    let bench = Bench::new();
    fill(&bench, &bench.open(), ROWS);
    rewrite(&bench, 7);
    assert_eq!(found(&bench.open()), at(ROWS, Fault::HeadForged));
    // Nobody goes on behind them, which would seal and sign them, and no export speaks for them.
    let store = bench.open();
    let refused = commit(&store, bench.note(1)).unwrap_err();
    assert!(refused.to_string().contains("does not have its key"), "{refused}");
    assert!(store.export(&mut Vec::new()).is_err());
    drop(store);
    assert_eq!(found(&bench.open()), at(ROWS, Fault::HeadForged));
}

#[test]
fn rows_cut_off_with_their_checkpoints_are_found_by_the_seal_of_the_head() {
    let cut = "DELETE FROM checkpoints; DELETE FROM flow_events WHERE seq > 15;
         UPDATE chain_heads SET seq = 15, sealed_seq = 15, checkpointed = 0,
             hash = (SELECT hash FROM flow_events WHERE seq = 15)";
    assert_eq!(flaw_after(cut), at(15, Fault::HeadForged));
    let all = "DELETE FROM checkpoints; DELETE FROM flow_events;
         UPDATE chain_heads SET seq = 0, sealed_seq = 0, checkpointed = 0, hash = zeroblob(32)";
    assert_eq!(flaw_after(all), at(0, Fault::HeadForged));
}

#[test]
fn a_seal_that_was_taken_away_is_missed() {
    let unsealed = "UPDATE chain_heads SET seal = NULL, sealed_seq = NULL";
    assert_eq!(flaw_after(unsealed), at(ROWS, Fault::HeadUnsealed));
}

#[test]
fn a_record_of_a_program_that_did_not_seal_is_taken_over_once() {
    let bench = Bench::new();
    fill(&bench, &bench.open(), ROWS);
    let unsealed = "UPDATE chain_heads SET seal = NULL, sealed_seq = NULL";
    bench.force(unsealed);
    let marks = std::fs::read_dir(bench.path()).unwrap().map(|entry| entry.unwrap());
    for mark in marks.filter(|entry| entry.file_name().to_string_lossy().starts_with("record-sealed")) {
        std::fs::remove_file(mark.path()).unwrap();
    }
    let store = bench.open();
    assert_eq!(verify(&store).unwrap().end, Voucher::Seal);
    commit(&store, bench.note(1)).unwrap();
    drop(store);
    bench.force(unsealed);
    let store = bench.open();
    assert!(commit(&store, bench.note(2)).is_err());
    assert_eq!(found(&store), at(ROWS + 1, Fault::HeadUnsealed));
}

#[test]
fn a_program_that_does_not_know_seals_cannot_move_a_sealed_head() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, ROWS);
    let refused = bench
        .run("UPDATE chain_heads SET seq = 21, checkpointed = 20")
        .unwrap_err();
    assert!(refused.contains("start_this_one_anew"), "{refused}");
}

#[test]
fn a_report_says_what_is_signed_and_what_vouches_for_the_rest() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, 5);
    let report = verify(&store).unwrap();
    assert_eq!((report.checkpoints, report.unsigned, report.end), (0, 5, Voucher::Seal));
    drop(store);
    let store = bench.open();
    assert_eq!(verify(&store).unwrap().unsigned, 0);
    commit(&store, bench.note(1)).unwrap();
    let report = verify(&store).unwrap();
    assert_eq!((report.checkpoints, report.unsigned, report.end), (1, 1, Voucher::Seal));
}

#[test]
fn a_forged_checkpoint_is_found() {
    for change in [
        "seq = 19",
        "hash = (SELECT hash FROM flow_events WHERE seq = 3)",
        "timestamp = '2027-01-01T00:00:00.000Z'",
        "kind = 'periodic'",
        "public_key = substr(public_key, 2) || substr(public_key, 1, 1)",
        "signature = substr(signature, 2) || substr(signature, 1, 1)",
    ] {
        let flaw = flaw_after(&format!("UPDATE checkpoints SET {change}")).unwrap();
        assert_eq!(flaw.fault, Fault::BadSignature, "{change}");
    }
}

#[test]
fn rows_that_were_set_back_in_time_are_not_pruned() {
    let earlier = Timestamp::from_millis(noon().as_millis() - 1_000);
    for change in [
        "timestamp = '2020-01-01T00:00:00.000Z' WHERE seq <= 5",
        "payload = '{}', timestamp = '2020-01-01T00:00:00.000Z' WHERE seq = 1",
    ] {
        let bench = Bench::new();
        let store = bench.open();
        fill(&bench, &store, ROWS);
        bench.force(&format!("UPDATE flow_events SET {change}"));
        let refused = store.prune(earlier, &bench.ids).unwrap_err().to_string();
        assert!(refused.contains("a record that is not sound"), "{refused}");
        assert_eq!(bench.run("SELECT count(*) FROM flow_events").unwrap(), ROWS.to_string());
        assert_eq!(found(&store), at(1, Fault::Changed));
    }
}

#[test]
fn a_prune_that_nobody_signed_takes_no_row_along() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, ROWS);
    drop(store);
    bench.force("UPDATE checkpoints SET kind = 'prune', seq = 1000000");
    let store = bench.open();
    let earlier = Timestamp::from_millis(noon().as_millis() - 1_000);
    assert_eq!(store.prune(earlier, &bench.ids).unwrap().rows, 0);
    let left: u64 = bench.run("SELECT count(*) FROM flow_events").unwrap().parse().unwrap();
    assert!(left >= ROWS, "{left}");
}

#[test]
fn a_forged_prune_does_not_excuse_missing_rows() {
    let statement = "INSERT INTO checkpoints (chain, seq, hash, timestamp, kind, public_key, signature)
             SELECT chain, 5, hash, timestamp, 'prune', public_key, signature FROM checkpoints;
         DELETE FROM flow_events WHERE seq <= 5;";
    assert_eq!(flaw_after(statement), at(5, Fault::BadSignature));
}

#[test]
fn a_removed_checkpoint_is_missed() {
    let statement = "DELETE FROM checkpoints WHERE seq = 1000";
    let missing = Fault::CheckpointMissing;
    assert_eq!(flaw_of(2_100, statement), at(1_000, missing));
    assert_eq!(flaw_of(2_100, "DELETE FROM checkpoints"), at(1_000, missing));
}

#[test]
fn long_records_are_proved_by_two_threads_alike() {
    const LONG: u64 = 9_000;
    assert_eq!(flaw_of(LONG, ""), None);
    for seq in [1, 4_400, 4_499, 4_500, 4_501, 8_999] {
        let change = format!("UPDATE flow_events SET payload = '{{}}' WHERE seq = {seq}");
        assert_eq!(flaw_of(LONG, &change), at(seq, Fault::Changed));
        let delete = format!("DELETE FROM flow_events WHERE seq = {seq}");
        assert_eq!(flaw_of(LONG, &delete), at(seq, Fault::Missing));
    }
}

#[test]
fn a_record_is_proved_while_others_write_and_prune() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, 3_000);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for number in 0..1_500 {
                commit(&store, bench.note(number)).unwrap();
                if number % 300 == 0 {
                    store.prune(later(), &bench.ids).unwrap();
                }
            }
        });
        while !writing.is_finished() {
            verify(&store).unwrap();
        }
    });
    verify(&store).unwrap();
}

#[test]
fn a_part_of_the_record_is_proved_alone() {
    let bench = Bench::new();
    fill(&bench, &bench.open(), ROWS);
    bench.force("UPDATE flow_events SET payload = '{}' WHERE seq = 7");
    let store = bench.open();
    let part = |first, last| Range {
        first: Some(first),
        last: Some(last),
    };
    assert_eq!(store.verify(part(8, 12), &|_| ()).unwrap().rows, 5);
    assert_eq!(store.verify(part(1, 6), &|_| ()).unwrap().rows, 6);
    assert!(store.verify(part(5, 8), &|_| ()).is_err());
}

/// Two commands of which something is kept, and one that was refused before it was opened.
fn with_commands(bench: &Bench) {
    let store = bench.open();
    for name in ["one", "two"] {
        commit(&store, bench.opening(name, "d")).unwrap();
        commit(&store, bench.closing(name, "d", "ok")).unwrap();
    }
    commit(&store, bench.refusal("refused", "rejected")).unwrap();
}

/// Puts a result there for the call that was refused.
const PUT_FOR_REFUSED: &str =
    "INSERT INTO commands (owner, request_id, digest, correlation_id, opened_at_ms, closed_at_ms,
         result, stdout, stderr)
     SELECT owner, 'refused', digest, 'call-refused', opened_at_ms, closed_at_ms, replace(result, 'ok', 'rejected'),
         stdout, stderr
     FROM commands WHERE request_id = 'two'";

#[test]
fn what_is_kept_of_a_command_is_held_against_its_closing_event() {
    let bench = Bench::new();
    let forged = bench.bytes("466f72676564");
    for (change, seq) in [
        (format!("stdout = {forged}"), 4),
        (format!("stderr = {forged}"), 4),
        ("result = replace(result, 'ok', 'no')".to_owned(), 4),
        ("owner = 'somebody'".to_owned(), 4),
        ("digest = 'of other content'".to_owned(), 4),
        ("correlation_id = 'nothing'".to_owned(), 4),
        // Only its name is left to say whose it is.
        ("request_id = 'one'".to_owned(), 2),
    ] {
        let bench = Bench::new();
        with_commands(&bench);
        assert_eq!(found(&bench.open()), None);
        let replaced = if seq == 2 { "one" } else { "nobody" };
        bench.force(&format!(
            "DELETE FROM commands WHERE request_id = '{replaced}';
             UPDATE commands SET {change} WHERE request_id = 'two'"
        ));
        assert_eq!(found(&bench.open()), at(seq, Fault::KeptChanged), "{change}");
    }
}

#[test]
fn nothing_is_answered_from_what_was_put_among_kept_results() {
    let forged = Bench::new().bytes("466f72676564");
    for change in [
        format!("stdout = {forged}"),
        "result = replace(result, 'ok', 'no')".to_owned(),
        "digest = 'of other content'".to_owned(),
        "correlation_id = 'nothing'".to_owned(),
        "request_id = 'three'".to_owned(),
    ] {
        let bench = Bench::new();
        with_commands(&bench);
        let store = bench.open();
        let kept = |id: &str| block_on(store.command(&owner(), &RequestId::trusted(id)));
        assert!(kept("two").unwrap().unwrap().end.is_some());
        bench.force(&format!("UPDATE commands SET {change} WHERE request_id = 'two'"));
        let id = if change.starts_with("request_id") {
            "three"
        } else {
            "two"
        };
        let told = kept(id).unwrap_err().to_string();
        assert!(told.contains("`audit verify` tells more"), "{change}: {told}");
        assert!(kept("one").unwrap().unwrap().end.is_some(), "{change}");
    }
}

#[test]
fn what_is_kept_of_a_command_must_be_there_until_it_is_pruned() {
    let bench = Bench::new();
    with_commands(&bench);
    bench.force("DELETE FROM commands WHERE request_id = 'two'");
    assert_eq!(found(&bench.open()), at(4, Fault::KeptMissing));
    let bench = Bench::new();
    with_commands(&bench);
    bench.force("UPDATE commands SET request_id = 'other' WHERE request_id = 'two'");
    assert_eq!(found(&bench.open()), at(4, Fault::KeptMissing));
    let bench = Bench::new();
    with_commands(&bench);
    let store = bench.open();
    store.prune(later(), &bench.ids).unwrap();
    assert_eq!(bench.run("SELECT count(*) FROM commands").unwrap(), "0");
    assert_eq!(found(&store), None);
}

#[test]
fn what_no_event_tells_of_was_added() {
    let put = |request_id: &str, closed_at: &str| {
        format!(
            "INSERT INTO commands (owner, request_id, digest, correlation_id, opened_at_ms, closed_at_ms, result, stdout, stderr)
                 SELECT owner, '{request_id}', digest, 'nothing', opened_at_ms, {closed_at}, result, stdout, stderr
                 FROM commands WHERE request_id = 'two'"
        )
    };
    for (is_pruned, closed_at) in [(false, "0"), (true, "closed_at_ms + 172800000")] {
        let bench = Bench::new();
        with_commands(&bench);
        let store = bench.open();
        bench.force(&put("forged", closed_at));
        if is_pruned {
            let earlier = countersign_gateway::clock::Timestamp::from_millis(later().as_millis() - 1_000);
            store.prune(earlier, &bench.ids).unwrap();
        }
        let told = verify(&store).unwrap_err().to_string();
        assert!(told.contains("`forged` was added"), "{told}");
    }
}

#[test]
fn a_closing_that_tells_no_digest_vouches_for_no_kept_result() {
    let bench = Bench::new();
    with_commands(&bench);
    let store = bench.open();
    let refused = || block_on(store.command(&owner(), &RequestId::trusted("refused")));
    assert_eq!(refused().unwrap(), None);
    bench.force(PUT_FOR_REFUSED);
    let told = refused().unwrap_err().to_string();
    assert!(told.contains("`audit verify` tells more"), "{told}");
    assert_eq!(found(&store), at(6, Fault::KeptAdded));
}

#[test]
fn what_is_kept_must_be_there_as_long_as_its_event_is_which_an_open_command_may_hold() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, 1);
    commit(&store, bench.opening("waits", "d")).unwrap();
    drop(store);
    with_commands(&bench);
    let store = bench.open();
    assert_eq!(store.prune(later(), &bench.ids).unwrap().up_to, 1);
    assert_eq!(found(&store), None);
    bench.force("DELETE FROM commands WHERE request_id = 'two'");
    assert_eq!(found(&store), at(6, Fault::KeptMissing));
}

#[test]
fn plain_sql_cannot_change_delete_or_replace() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, ROWS);
    for statement in [
        "UPDATE flow_events SET payload = '{}' WHERE seq = 7",
        "DELETE FROM flow_events WHERE seq = 7",
        "DELETE FROM flow_events",
    ] {
        let refused = bench.run(statement).unwrap_err();
        assert!(refused.contains("append-only"), "{refused}");
    }
    for statement in bench.replacements() {
        let refused = bench.run(statement).unwrap_err();
        assert!(refused.contains("append-only"), "{refused}");
    }
    drop(store);
    for statement in ["UPDATE checkpoints SET seq = 1", "DELETE FROM checkpoints"] {
        let refused = bench.run(statement).unwrap_err();
        assert!(refused.contains("append-only"), "{refused}");
    }
}

#[test]
fn a_head_set_back_stops_writing() {
    let bench = Bench::new();
    fill(&bench, &bench.open(), ROWS);
    bench
        .run("UPDATE chain_heads SET seq = 5, sealed_seq = 5, hash = (SELECT hash FROM flow_events WHERE seq = 5)")
        .unwrap();
    let store = bench.open();
    assert!(commit(&store, bench.note(1)).is_err());
}

#[test]
fn a_process_does_not_go_on_behind_what_others_wrote_after_the_record_was_set_back() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, 5);
    bench.force("CREATE TABLE saved AS SELECT * FROM chain_heads");
    fill(&bench, &store, 3);
    bench.force(OLDER_COPY);
    let another = bench.open();
    fill(&bench, &another, 6);
    let refused = commit(&store, bench.note(1)).unwrap_err();
    assert!(refused.to_string().contains("set back to an older copy"), "{refused}");
    commit(&another, bench.note(2)).unwrap();
    // Nor is it in the way that others write, or prune what was known.
    let third = bench.open();
    commit(&third, bench.note(3)).unwrap();
    commit(&another, bench.note(4)).unwrap();
    third.prune(later(), &bench.ids).unwrap();
    commit(&another, bench.note(5)).unwrap();
}

/// Rows and head as they were when the head was saved, sealed as it was.
const OLDER_COPY: &str = "DELETE FROM flow_events WHERE seq > 5;
     UPDATE chain_heads SET seq = (SELECT seq FROM saved), sealed_seq = (SELECT seq FROM saved),
         hash = (SELECT hash FROM saved), seal = (SELECT seal FROM saved), checkpointed = 0;
     DROP TABLE saved;";

#[test]
fn a_process_does_not_go_on_behind_a_record_that_was_set_back_below_what_it_wrote() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, 5);
    bench.force("CREATE TABLE saved AS SELECT * FROM chain_heads");
    fill(&bench, &store, 3);
    bench.force(OLDER_COPY);
    for _ in 0..2 {
        let refused = commit(&store, bench.note(1)).unwrap_err();
        assert!(refused.to_string().contains("set back to an older copy"), "{refused}");
    }
    assert!(store.ready().is_err());
    // Who comes later cannot know.
    drop(store);
    let store = bench.open();
    assert_eq!(verify(&store).unwrap().rows, 5);
    commit(&store, bench.note(2)).unwrap();
}
