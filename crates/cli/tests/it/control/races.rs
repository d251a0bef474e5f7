//! Several who decide, call or change something at once: one effect, and everybody is told how it stands.

use std::process::Output;
use std::thread;

use countersign_doubles::github::faults::Fault;
use serde_json::{Value, json};

use super::world::{TOOL, World, wanted, with};
use super::{act, approve, approved, ends, heard};
use crate::bench::Bench;
use crate::client::Server;
use crate::postgres::cluster;

/// Several people decide the same question at the same moment.
fn decide(bench: &Bench, question: &str, decisions: &[&[&str]]) -> Vec<Output> {
    thread::scope(|scope| {
        let deciding: Vec<_> = decisions
            .iter()
            .map(|words| scope.spawn(move || bench.command().arg(words[0]).arg(question).args(&words[1..]).output()))
            .collect();
        deciding.into_iter().map(|it| it.join().unwrap().unwrap()).collect()
    })
}

#[test]
fn of_many_who_decide_a_secret_at_once_one_counts_and_it_is_written_once() {
    let world = World::new();
    let mut server = Server::start(&world.bench);
    for round in 0..3 {
        let before = (world.writes(), world.kubernetes.applies(), ends(&world.bench).len());
        // A no counts for the same call again.
        let arguments = with(wanted("random"), "kubernetes_secret_name", &format!("database-{round}"));
        let id = server.call_later(TOOL, arguments);
        let (question, _) = world.bench.question();
        let no: &[&str] = &["deny", "--reason", "no"];
        let said = decide(
            &world.bench,
            &question,
            &[&["approve"], no, &["approve"], no, &["approve"]],
        );
        let (answer, _) = heard(&mut server, id);
        let done = usize::from(answer["message"] == "applied");
        let denied = usize::from(answer["error_code"] == "APPROVAL_DENIED");
        assert_eq!(done + denied, 1, "round {round}: {answer} {said:?}");
        assert_eq!(world.writes(), before.0 + done);
        assert_eq!(world.kubernetes.applies(), before.1 + done);
        assert_eq!(ends(&world.bench).len(), before.2 + 2 * done);
        let decided = format!(
            "SELECT count(*) FROM flow_events WHERE event_type IN ('approval.approved', 'approval.denied')
             AND payload ->> '$.approval_id' = '{question}'"
        );
        assert_eq!(world.bench.count(&decided), 1);
    }
}

#[test]
fn a_key_whose_call_failed_goes_on_with_its_value_and_takes_no_other_arguments() {
    let world = World::new();
    let mut server = Server::start(&world.bench);
    let keyed = with(wanted("random"), "idempotency_key", "k");
    world
        .kubernetes
        .next("PATCH", "/database", Fault::status(500, "not now"));
    let (failed, _) = approved(&world.bench, &mut server, TOOL, keyed.clone());
    assert_eq!(failed["error_code"], "UPSTREAM_ERROR", "{failed}");
    let first = world.at_github();
    // Nobody is asked about what cannot be done.
    let (other, _) = act(
        &mut server,
        TOOL,
        with(keyed.clone(), "kubernetes_secret_name", "other"),
    );
    assert_eq!(other["error_code"], "CONFLICT", "{other}");
    let (done, is_error) = approved(&world.bench, &mut server, TOOL, keyed.clone());
    assert!(!is_error, "{done}");
    assert_eq!((world.at_github(), world.at_kubernetes()), (first.clone(), first));
    let (again, _) = act(&mut server, TOOL, keyed);
    assert_eq!((&again["message"], world.writes()), (&json!("idempotent_replay"), 1));
}

#[test]
fn one_key_for_two_different_calls_at_once_is_good_for_one() {
    let world = World::new();
    let mut servers = [Server::start(&world.bench), Server::start(&world.bench)];
    let keyed = with(wanted("random"), "idempotency_key", "k");
    let other = with(keyed.clone(), "kubernetes_secret_name", "other");
    let ids: Vec<i64> = servers
        .iter_mut()
        .zip([keyed, other])
        .map(|(server, arguments)| server.call_later(TOOL, arguments))
        .collect();
    let asked = "SELECT count(*) FROM approvals WHERE state = 'pending'";
    crate::outside::until("not both are asked", || world.bench.count(asked) == 2);
    approve(&world.bench);
    approve(&world.bench);
    let answers: Vec<Value> = servers.iter_mut().zip(ids).map(|(it, id)| heard(it, id).0).collect();
    let mut outcomes: Vec<&str> = answers
        .iter()
        .map(|it| it["error_code"].as_str().or(it["message"].as_str()).unwrap())
        .collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["CONFLICT", "applied"], "{answers:?}");
    assert_eq!((world.writes(), world.kubernetes.applies()), (1, 1));
}

#[test]
fn a_database_that_came_to_another_project_meanwhile_is_not_dropped_by_an_approval_given_before() {
    let Some(cluster) = cluster() else { return };
    let home = cluster.database();
    let bench = Bench::new().config(&format!("database_lifecycle: {{url: '{}'}}\n", home.url));
    let mut server = Server::start(&bench);
    let name = format!("handed_{}", home.name);
    let tool = "database.lifecycle";
    let wanted =
        |action: &str| json!({"environment": "dev", "action": action, "database_name": name, "confirm_delete": true});
    approved(&bench, &mut server, tool, wanted("create"));
    let exists = || {
        let query = format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'");
        cluster.run(&home, &query).unwrap() == "1"
    };
    let force = |statement: &str| {
        let path = bench.state().join("record.db");
        rusqlite::Connection::open(path)
            .unwrap()
            .execute_batch(statement)
            .unwrap();
    };
    let id = server.call_later(tool, wanted("delete"));
    let _ = bench.question();
    force("UPDATE project_databases SET project_id = 'theirs', version = version + 1");
    let (question, _) = approve(&bench);
    let (refused, _) = heard(&mut server, id);
    assert_eq!(refused["error_code"], "POLICY_DENIED", "{refused}");
    assert!(exists() && !refused.to_string().contains("theirs"), "{refused}");
    assert_eq!(bench.approval_state(&question), "failed");
    assert_eq!(ends(&bench), ["applied", "failed POLICY_DENIED"]);
    // The approval was used: it lets nothing go when the database comes back.
    force("UPDATE project_databases SET project_id = 'default', version = version + 1");
    let id = server.call_later(tool, wanted("delete"));
    let (other, _) = bench.question();
    assert_ne!(other, question);
    // And one that somebody replaces while the question is open is not ours any more.
    cluster.run(&home, &format!("DROP DATABASE \"{name}\"")).unwrap();
    cluster.run(&home, &format!("CREATE DATABASE \"{name}\"")).unwrap();
    approve(&bench);
    let (refused, _) = heard(&mut server, id);
    assert_eq!(refused["error_code"], "POLICY_DENIED", "{refused}");
    assert!(exists());
}

#[test]
fn a_key_that_another_put_into_a_secret_while_it_was_made_stays() {
    let world = World::new();
    let mut server = Server::start(&world.bench);
    world
        .kubernetes
        .apply_meanwhile("countersign", "shop-dev", "database", "user", "shop");
    approved(&world.bench, &mut server, TOOL, wanted("random"));
    let key = |key: &str| world.kubernetes.secret("shop-dev", "database", key);
    assert_eq!(key("user").as_deref(), Some(b"shop".as_slice()));
    assert_eq!(key("value"), world.at_github());
    assert!(key("value").is_some());
}
