//! A server that stops in the middle of an act. Told to stop, it ends what is under way; killed, it leaves what the
//! next one puts right. In either case there is one effect, and the record tells of it.

use std::process::Command;
use std::time::Duration;

use countersign_doubles::github::faults::Fault;
use serde_json::{Value, json};

use super::nowhere::session;
use super::proxy::{Dead, Proxy};
use super::world::{TOOL, World, wanted};
use super::{act, approve, approved, ends, heard};
use crate::bench::Bench;
use crate::client::Server;
use crate::outside::until;
use crate::postgres::cluster;
use crate::rest::office::{Office, Who};

const DATABASES: &str = "database.lifecycle";

fn terminate(pid: u32) {
    let ended = Command::new("kill").args(["-TERM", &pid.to_string()]).status();
    assert!(ended.unwrap().success());
}

#[test]
fn an_act_under_way_ends_before_a_server_that_is_told_to_stop() {
    let world = World::new();
    let mut server = Server::start(&world.bench);
    world
        .kubernetes
        .next("PATCH", "/database", Fault::Slow(Duration::from_secs(2)));
    let id = server.call_later(TOOL, wanted("random"));
    let (question, _) = approve(&world.bench);
    until("Kubernetes is not asked", || world.kubernetes.asked("PATCH") == 1);
    terminate(server.pid());
    let (done, is_error) = heard(&mut server, id);
    assert!(!is_error, "{done}");
    assert!(server.gone().success());
    assert_eq!(world.at_github(), world.at_kubernetes());
    assert_eq!(ends(&world.bench), ["applied github", "applied kubernetes"]);
    assert_eq!(world.bench.approval_state(&question), "applied");
    assert_eq!(world.bench.count("SELECT count(*) FROM open_acts"), 0);
    world.bench.prove();
}

#[test]
fn an_act_whose_caller_has_gone_ends_before_the_server_that_is_told_to_stop() {
    let world = World::new();
    let office = Office::open(&world.bench);
    world
        .kubernetes
        .next("PATCH", "/database", Fault::Slow(Duration::from_secs(2)));
    let agent = session(&office);
    let params = json!({"name": TOOL, "arguments": wanted("random")});
    let message = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}).to_string();
    let headers = format!("Accept: application/json, text/event-stream\r\n{agent}");
    let caller = office.send(Who::Role("agent"), "POST", "/mcp", &headers, Some(&message));
    approve(&world.bench);
    until("Kubernetes is not asked", || world.kubernetes.asked("PATCH") == 1);
    drop(caller);
    office.close();
    assert_eq!(world.at_github(), world.at_kubernetes());
    assert_eq!(ends(&world.bench), ["applied github", "applied kubernetes"]);
    world.bench.prove();
}

#[test]
fn a_server_that_stops_waits_no_longer_for_an_act_than_it_may() {
    let world = World::with("shutdown_grace_ms: 300\n");
    let mut server = Server::start(&world.bench);
    world
        .kubernetes
        .next("PATCH", "/database", Fault::Slow(Duration::from_secs(120)));
    server.call_later(TOOL, wanted("random"));
    approve(&world.bench);
    until("Kubernetes is not asked", || world.kubernetes.asked("PATCH") == 1);
    terminate(server.pid());
    assert!(server.gone().success());
    let first = world.at_github();
    let mut server = Server::start(&world.bench);
    until("it is not put right", || world.at_kubernetes().is_some());
    assert_eq!(world.at_kubernetes(), first);
    server.end();
    world.bench.prove();
}

#[test]
fn a_server_killed_when_github_has_the_value_and_nobody_knows_puts_the_same_there() {
    let world = World::new();
    let mut server = Server::start(&world.bench);
    world
        .github
        .next("PUT", "/DB_PASSWORD", Fault::SlowBehind(Duration::from_secs(120)));
    server.call_later(TOOL, wanted("random"));
    let (question, _) = approve(&world.bench);
    until("GitHub has nothing", || world.writes() == 1);
    server.kill();
    let first = world.at_github();
    let mut server = Server::start(&world.bench);
    until("it is not put right", || world.at_kubernetes().is_some());
    until("it is not told", || ends(&world.bench).len() == 4);
    assert_eq!((world.at_github(), world.at_kubernetes()), (first.clone(), first));
    assert_eq!(
        ends(&world.bench),
        [
            "failed github ABANDONED",
            "failed kubernetes ABANDONED",
            "applied github repair",
            "applied kubernetes repair"
        ]
    );
    assert_eq!(world.bench.approval_state(&question), "failed");
    server.end();
    world.bench.prove();
}

fn lifecycle(action: &str, name: &str) -> Value {
    json!({"environment": "dev", "action": action, "database_name": name, "confirm_delete": true})
}

#[test]
fn a_server_killed_at_any_point_of_making_or_dropping_a_database_leaves_what_the_next_one_puts_right() {
    let Some(cluster) = cluster() else { return };
    let home = cluster.database();
    let proxy = Proxy::to(&home);
    let bench = Bench::new().config(&format!("database_lifecycle: {{url: '{}'}}\n", proxy.url));
    // The action, the statement at which the line goes dead, and what there is when all is put right.
    let cases = [
        ("create", "CREATE DATABASE countersign_", Dead::Before, false),
        ("create", "CREATE DATABASE countersign_", Dead::Behind, false),
        ("create", "COMMENT ON DATABASE countersign_", Dead::Behind, false),
        ("create", "ALTER DATABASE countersign_", Dead::Before, false),
        ("create", "ALTER DATABASE countersign_", Dead::Behind, true),
        ("delete", "DROP DATABASE", Dead::Before, true),
        ("delete", "DROP DATABASE", Dead::Behind, false),
    ];
    for (number, (action, statement, when, is_there)) in cases.into_iter().enumerate() {
        let context = format!("{action}, {when:?} {statement}");
        let name = format!("broken_{number}_{}", home.name);
        let mut server = Server::start(&bench);
        if action == "delete" {
            approved(&bench, &mut server, DATABASES, lifecycle("create", &name));
        }
        let before = ends(&bench).len();
        proxy.dies_at(statement, when);
        server.call_later(DATABASES, lifecycle(action, &name));
        let (question, _) = approve(&bench);
        until(&context, || proxy.is_dead());
        server.kill();

        let mut server = Server::start(&bench);
        until(&context, || ends(&bench).len() == before + 2);
        assert_eq!(
            ends(&bench)[before..],
            ["failed ABANDONED", "applied repair"],
            "{context}"
        );
        assert_eq!(bench.approval_state(&question), "failed", "{context}");
        let count = |query: String| cluster.run(&home, &query).unwrap();
        let there = count(format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'"));
        assert_eq!(there == "1", is_there, "{context}");
        let drafts = "SELECT count(*) FROM pg_database WHERE datname LIKE 'countersign\\_%'";
        assert_eq!(count(drafts.to_owned()), "0", "{context}");
        let owned = format!("SELECT count(*) FROM project_databases WHERE database_name = '{name}' AND hold = 'owned'");
        assert_eq!(bench.count(&owned) == 1, is_there, "{context}");
        // What was wanted is still to be had, once.
        let (again, is_error) = match (action, is_there) {
            ("create", true) => act(&mut server, DATABASES, lifecycle(action, &name)),
            ("delete", false) => act(&mut server, DATABASES, lifecycle("describe", &name)),
            _ => approved(&bench, &mut server, DATABASES, lifecycle(action, &name)),
        };
        assert!(!is_error, "{context}: {again}");
        assert_eq!(again["exists"], action == "create", "{context}: {again}");
        server.end();
    }
    bench.prove();
}
