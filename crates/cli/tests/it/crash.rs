//! A server that is killed at any moment: what it answered is in the record, what it left open is
//! closed by the next one, and the chain holds.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::bench::Bench;
use crate::client::{Outcome, Server};

/// A small generator, so that a failure can be repeated from its seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn nothing_answered_is_lost_when_the_server_is_killed_under_load() {
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64;
    println!("seed: {seed}");
    let mut dice = Dice(seed);
    let bench = Bench::allowing("true,false,sleep");
    let mut answered: HashMap<String, Outcome> = HashMap::new();
    for round in 0..6 {
        let mut server = Server::start(&bench);
        let mut waiting = Vec::new();
        for number in 0..8 + dice.roll(40) {
            let (file, args) = [
                ("true", vec![]),
                ("false", vec![]),
                ("sleep", vec!["0.02"]),
                ("nosuch", vec![]),
            ][dice.roll(4) as usize]
                .clone();
            let arguments = json!({"file": file, "args": args, "request_id": format!("r{round}-{number}")});
            waiting.push(server.call_later("execute_process", arguments));
            // Eight at a time.
            if waiting.len() >= 8 {
                let outcome = server.result(waiting.remove(0));
                answered.insert(outcome.id().to_owned(), outcome);
            }
        }
        std::thread::sleep(Duration::from_micros(dice.roll(30_000)));
        server.kill();
        for answer in server
            .rest()
            .into_values()
            .filter(|answer| answer["result"].is_object())
        {
            let outcome = Outcome::read(&answer);
            answered.insert(outcome.id().to_owned(), outcome);
        }
    }
    let mut server = Server::start(&bench);
    for (id, outcome) in &answered {
        let records = bench.records(id);
        assert_eq!(records.len(), 1, "{id}: {records:?}");
        assert_eq!(records[0]["status"], outcome.structured["status"], "{id}");
        let again = server.call("command_status", json!({"request_id": id}));
        assert_eq!(again.structured, outcome.structured, "{id}");
    }
    assert!(answered.len() > 6);
    assert_eq!(
        bench.count("SELECT count(*) FROM open_commands"),
        0,
        "a record stayed open"
    );
    let twice = "SELECT count(*) FROM (SELECT payload ->> '$.request_id' AS id FROM flow_events WHERE event_type = 'command.completed' GROUP BY id HAVING count(*) > 1)";
    assert_eq!(bench.count(twice), 0, "a command ended twice");
    server.end();
    bench.prove();
}

#[test]
fn what_a_crash_left_open_is_closed_as_abandoned() {
    let bench = Bench::allowing("sleep,sh");
    let mut server = Server::start(&bench);
    for number in 0..4 {
        server.call_later(
            "execute_process",
            json!({"file": "sleep", "args": ["600"], "request_id": format!("open-{number}")}),
        );
    }
    let open = "SELECT count(*) FROM open_commands";
    while bench.count(open) < 4 {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.kill();
    let mut server = Server::start(&bench);
    for number in 0..4 {
        let id = format!("open-{number}");
        let outcome = server.call("command_status", json!({"request_id": id}));
        outcome.failed("ABANDONED");
        let record = bench.recorded(&outcome);
        assert_eq!(
            (record["command"].as_str(), record["status"].as_str()),
            (Some("sleep"), Some("failed"))
        );
        // The same call does not start it again behind the caller's back.
        let again = server.call(
            "execute_process",
            json!({"file": "sleep", "args": ["600"], "request_id": id}),
        );
        again.failed("ABANDONED");
    }
    server.end();
    bench.prove();
}

#[test]
fn what_a_killed_server_ran_is_closed_by_one_that_lives_and_no_other() {
    let bench = Bench::allowing("sleep");
    let (mut dies, mut lives) = (Server::start(&bench), Server::start(&bench));
    for (server, id) in [(&mut dies, "its"), (&mut lives, "ours")] {
        let arguments = json!({"file": "sleep", "args": ["600"], "request_id": id});
        server.call_later("execute_process", arguments);
    }
    while bench.count("SELECT count(*) FROM open_commands") < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    dies.kill();
    let killed = Instant::now();
    let outcome = loop {
        let outcome = lives.call("command_status", json!({"request_id": "its"}));
        if outcome.structured["status"] != "running" {
            break outcome;
        }
        assert!(killed.elapsed() < Duration::from_secs(40), "it is still said to run");
        std::thread::sleep(Duration::from_millis(200));
    };
    outcome.failed("ABANDONED");
    let ours = lives.call("command_status", json!({"request_id": "ours"}));
    assert_eq!(ours.structured["status"], "running");
    lives.end();
    bench.prove();
}

#[test]
fn two_servers_share_one_record() {
    let bench = Bench::allowing("echo,sleep");
    let mut servers = [Server::start(&bench), Server::start(&bench)];
    for number in 0..20 {
        let calls: Vec<i64> = servers
            .iter_mut()
            .map(|server| server.call_later("execute_process", json!({"file": "echo", "args": [number.to_string()]})))
            .collect();
        for (server, call) in servers.iter_mut().zip(calls) {
            assert_eq!(server.result(call).ok(), format!("{number}\n"));
        }
    }
    // A start does not close what another server still works on.
    let call = servers[0].call_later(
        "execute_process",
        json!({"file": "sleep", "args": ["600"], "request_id": "mine"}),
    );
    while bench.count("SELECT count(*) FROM open_commands") == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(Server::start(&bench));
    assert_eq!(
        servers[1]
            .call("command_status", json!({"request_id": "mine"}))
            .status(),
        "running"
    );
    servers[0].call("command_cancel", json!({"request_id": "mine"}));
    servers[0].result(call).failed("CANCELLED");
    servers.iter_mut().for_each(|server| assert!(server.end().success()));
    assert_eq!(
        bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'command.completed'"),
        41
    );
    bench.prove();
}
