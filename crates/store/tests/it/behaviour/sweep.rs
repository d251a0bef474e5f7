//! Commands that a dead process left open are closed; a living one keeps its own.

use countersign_gateway::audit::Record;
use countersign_gateway::audit::opened::Opened;
use countersign_gateway::audit::reading::Filter;
use countersign_gateway::ids::RequestId;
use serde_json::{Value, json};

use super::super::bench::{Bench, NOON, block_on, commit, fill, noon, owner, verify};
use super::crash;

#[test]
fn a_command_of_a_dead_process_is_closed_as_abandoned() {
    let bench = Bench::new();
    // The child opens three commands, closes none and ends.
    assert!(crash::child(&bench, 3).wait().unwrap().success());
    let store = bench.open();
    assert_eq!(store.sweep_abandoned(noon(), &bench.ids).unwrap(), 3);
    assert_eq!(store.sweep_abandoned(noon(), &bench.ids).unwrap(), 0);
    verify(&store).unwrap();
    let records = store.query_commands(&Filter::everything()).unwrap();
    let records: Vec<_> = records.into_iter().map(Result::unwrap).collect();
    assert_eq!(records.len(), 3);
    let events = store.query_events(&Filter::everything()).unwrap();
    for (record, event) in records.iter().zip(&events[6..]) {
        let expected = json!({
            "request_id": record["request_id"], "status": "failed", "error_code": "ABANDONED",
            "audit_id": event.event_id, "timestamp": NOON,
        });
        let mut told = record.clone();
        assert!(told.as_object_mut().unwrap().remove("kept_digest").is_some());
        assert_eq!(told, expected);
        let id = RequestId::trusted(record["request_id"].as_str().unwrap());
        let stored = block_on(store.command(&owner(), &id)).unwrap().unwrap();
        let result: Value = serde_json::from_str(&stored.end.unwrap().result).unwrap();
        assert_eq!(result, expected);
    }
}

#[test]
fn an_open_command_of_a_living_process_is_left_alone() {
    let bench = Bench::new();
    let store = bench.open();
    commit(&store, bench.opening("r1", "d1")).unwrap();
    let other = bench.open();
    assert_eq!(other.sweep_abandoned(noon(), &bench.ids).unwrap(), 0);
    commit(&store, bench.closing("r1", "d1", "ok")).unwrap();
}

#[test]
fn what_a_dead_process_left_is_found_behind_however_much_a_living_one_has_open() {
    let bench = Bench::new();
    let store = bench.open();
    for number in 0..501 {
        commit(&store, bench.opening(&format!("living-{number}"), "d")).unwrap();
    }
    assert!(crash::child(&bench, 3).wait().unwrap().success());
    assert_eq!(store.sweep_abandoned(noon(), &bench.ids).unwrap(), 3);
}

#[test]
fn two_sweepers_close_a_command_once() {
    let bench = Bench::new();
    assert!(crash::child(&bench, 20).wait().unwrap().success());
    let stores = [bench.open(), bench.open(), bench.open()];
    let closed: usize = std::thread::scope(|scope| {
        let sweeps = stores
            .each_ref()
            .map(|store| scope.spawn(|| store.sweep_abandoned(noon(), &bench.ids).unwrap()));
        sweeps.into_iter().map(|sweep| sweep.join().unwrap()).sum()
    });
    assert_eq!(closed, 20);
    assert_eq!(verify(&stores[0]).unwrap().rows, 60);
}

#[test]
fn nothing_is_signed_that_somebody_put_among_open_commands() {
    let bench = Bench::new();
    assert!(crash::child(&bench, 1).wait().unwrap().success());
    bench.force(
        "INSERT INTO open_commands (owner, request_id, digest, correlation_id, opened_at_ms, process, abandoned)
             SELECT owner, 'forged', digest, correlation_id, opened_at_ms, process, '{\"command\":\"rm\",\"status\":\"ok\"}'
             FROM open_commands",
    );
    let store = bench.open();
    assert_eq!(store.sweep_abandoned(noon(), &bench.ids).unwrap(), 1);
    let records = store.query_commands(&Filter::everything()).unwrap();
    let records: Vec<_> = records.into_iter().map(Result::unwrap).collect();
    assert!(
        records.iter().all(|record| record["request_id"] != "forged"),
        "{records:?}"
    );
    let told = verify(&store).unwrap_err().to_string();
    assert!(told.contains("an open command `forged` was added"), "{told}");
}

/// What an opening would say of a row that somebody puts among the open commands.
fn forged_opening(abandoned: &str) -> String {
    let owner = owner();
    let row = Opened {
        owner: owner.as_str(),
        request_id: "forged",
        digest: "d",
        correlation_id: "call-forged",
        opened_at: noon(),
        abandoned,
    };
    json!({"request_id": "forged", "opening_digest": row.digest().to_hex()}).to_string()
}

#[test]
fn an_opening_that_was_put_among_the_events_vouches_for_nothing() {
    let abandoned = r#"{"command":"rm","request_id":"forged","status":"ok"}"#;
    let opening = forged_opening(abandoned);
    let row = format!(
        "INSERT INTO open_commands (owner, request_id, digest, correlation_id, opened_at_ms, process, abandoned)
             SELECT owner, 'forged', 'd', 'call-forged', opened_at_ms, process, '{abandoned}' FROM open_commands"
    );
    for opening in [
        format!(
            "INSERT INTO flow_events (chain, seq, event_id, timestamp, correlation_id, actor_type, actor_id, event_type,
                     payload, prev_hash, hash)
                 SELECT chain, -7, 'forged', timestamp, 'call-forged', actor_type, actor_id, event_type,
                     '{opening}', prev_hash, hash
                 FROM flow_events WHERE seq = 1"
        ),
        format!("UPDATE flow_events SET correlation_id = 'call-forged', payload = '{opening}' WHERE seq = 1"),
    ] {
        let bench = Bench::new();
        assert!(crash::child(&bench, 1).wait().unwrap().success());
        bench.force(&format!("{row}; {opening}"));
        let store = bench.open();
        store.sweep_abandoned(noon(), &bench.ids).unwrap();
        let records = store.query_commands(&Filter::everything()).unwrap();
        let records: Vec<_> = records.into_iter().map(Result::unwrap).collect();
        assert!(
            records.iter().all(|record| record["request_id"] != "forged"),
            "{records:?}"
        );
    }
}

#[test]
fn an_opening_is_believed_however_much_was_written_since() {
    let bench = Bench::new();
    assert!(crash::child(&bench, 1).wait().unwrap().success());
    let store = bench.open();
    fill(&bench, &store, 2_500);
    assert!(crash::child(&bench, 1).wait().unwrap().success());
    assert_eq!(store.sweep_abandoned(noon(), &bench.ids).unwrap(), 2);
    verify(&store).unwrap();
}

#[test]
fn a_command_that_has_ended_is_not_ended_again_by_its_open_row_put_back() {
    let bench = Bench::new();
    let store = bench.open();
    commit(&store, bench.opening("r1", "d1")).unwrap();
    bench.force("CREATE TABLE saved AS SELECT * FROM open_commands");
    commit(&store, bench.closing("r1", "d1", "ok")).unwrap();
    bench.force(
        "DELETE FROM commands; INSERT INTO open_commands SELECT * FROM saved; DROP TABLE saved;
         UPDATE open_commands SET process = ''",
    );
    assert_eq!(store.sweep_abandoned(noon(), &bench.ids).unwrap(), 0);
    let records = store.query_commands(&Filter::everything()).unwrap();
    assert_eq!(records.len(), 1);
}

#[test]
fn an_end_without_a_beginning_is_told() {
    let bench = Bench::new();
    let store = bench.open();
    commit(&store, bench.opening("r1", "d1")).unwrap();
    commit(&store, bench.closing("r1", "d1", "ok")).unwrap();
    verify(&store).unwrap();
    commit(&store, bench.closing("r2", "d2", "ok")).unwrap();
    let told = verify(&store).unwrap_err().to_string();
    assert!(told.contains("no row tells of its beginning"), "{told}");
}

#[test]
fn a_command_whose_stored_end_was_changed_is_closed_by_what_its_opening_says() {
    let bench = Bench::new();
    assert!(crash::child(&bench, 1).wait().unwrap().success());
    bench.force("UPDATE open_commands SET abandoned = '{\"request_id\":\"r0\",\"command\":\"ls\",\"status\":\"ok\"}'");
    let store = bench.open();
    let told = verify(&store).unwrap_err().to_string();
    assert!(told.contains("is to be closed with was changed"), "{told}");
    assert_eq!(store.sweep_abandoned(noon(), &bench.ids).unwrap(), 1);
    let records = store.query_commands(&Filter::everything()).unwrap();
    let record = records.into_iter().next().unwrap().unwrap();
    assert_eq!(
        (&record["status"], &record["error_code"], &record["command"]),
        (&json!("failed"), &json!("ABANDONED"), &Value::Null)
    );
    verify(&store).unwrap();
}

#[test]
fn a_command_that_was_opened_is_open_or_closed() {
    let bench = Bench::new();
    let store = bench.open();
    commit(&store, bench.opening("r1", "d1")).unwrap();
    commit(&store, bench.opening("r2", "d2")).unwrap();
    commit(&store, bench.closing("r1", "d1", "ok")).unwrap();
    verify(&store).unwrap();
    bench.force("DELETE FROM open_commands WHERE request_id = 'r2'");
    let told = verify(&store).unwrap_err().to_string();
    assert!(told.contains("neither open nor closed"), "{told}");
}
