//! `database.lifecycle`: what is a project's is made and dropped by approval, what is not is never touched, and a
//! crash in between is put right.

use serde_json::{Value, json};

use super::{act, approve, approved, ends, heard};
use crate::bench::Bench;
use crate::client::Server;
use crate::outside::until;
use crate::postgres::{Cluster, Database, cluster};
use crate::runs::{Agent, shown, token};
use crate::web::Web;

const TOOL: &str = "database.lifecycle";

/// A bench with a server of databases. The name of a database is the test's own: all tests share one cluster.
fn bench(home: &Database) -> Bench {
    serving(Bench::new(), home)
}

fn serving(bench: Bench, home: &Database) -> Bench {
    bench.config(&format!("database_lifecycle: {{url: '{}'}}\n", home.url))
}

fn wanted(action: &str, name: &str) -> Value {
    json!({"environment": "dev", "action": action, "database_name": name, "confirm_delete": true})
}

fn own(home: &Database, name: &str) -> String {
    format!("{name}_{}", home.name)
}

fn exists(cluster: &Cluster, home: &Database, name: &str) -> bool {
    let query = format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'");
    cluster.run(home, &query).unwrap() == "1"
}

fn rows(bench: &Bench) -> i64 {
    bench.count("SELECT count(*) FROM project_databases")
}

/// SQL past the server, as a crash leaves the record.
fn force(bench: &Bench, statement: &str) {
    let path = bench.state().join("record.db");
    rusqlite::Connection::open(path)
        .unwrap()
        .execute_batch(statement)
        .unwrap();
}

#[test]
fn a_database_is_made_and_dropped_by_approval_and_described_without() {
    let Some(cluster) = cluster() else { return };
    Bench::wherever(|bench| {
        let home = cluster.database();
        let bench = serving(bench, &home);
        let name = own(&home, "Shop-1");
        let mut server = Server::start(&bench);

        let id = server.call_later(TOOL, wanted("create", &name));
        let (question, details) = approve(&bench);
        assert_eq!(details["command"], format!("create database {name} of default in dev"));
        let (made, is_error) = heard(&mut server, id);
        assert!(!is_error, "{made}");
        let mut expected = json!({
            "status": "ok", "request_id": question, "approval_state": "applied", "environment": "dev", "message": "applied",
            "action": "create", "database_name": name, "applied": true, "exists": true, "owned_by_project": true,
            "owner_project_id": "default", "dry_run": false,
        });
        assert_eq!(made, expected);
        assert!(exists(cluster, &home, &name));
        assert_eq!(bench.approval_state(&question), "applied");

        // Looking asks nobody, and the same again finds nothing to do.
        let (described, _) = act(&mut server, TOOL, wanted("describe", &name));
        for (field, value) in [
            ("request_id", Value::Null),
            ("approval_state", Value::Null),
            ("message", json!("described")),
            ("action", json!("describe")),
            ("applied", json!(false)),
        ] {
            expected[field] = value;
        }
        assert_eq!(described, expected);
        let (again, _) = act(&mut server, TOOL, wanted("create", &name));
        assert_eq!(
            (&again["message"], &again["applied"]),
            (&json!("idempotent_replay"), &json!(false))
        );

        let mut dry = wanted("delete", &name);
        dry["dry_run"] = json!(true);
        let (dry, _) = act(&mut server, TOOL, dry);
        assert_eq!((&dry["message"], &dry["dry_run"]), (&json!("dry_run"), &json!(true)));
        assert!(exists(cluster, &home, &name));

        let (dropped, is_error) = approved(&bench, &mut server, TOOL, wanted("delete", &name));
        assert!(!is_error, "{dropped}");
        assert_eq!((&dropped["applied"], &dropped["exists"]), (&json!(true), &json!(false)));
        assert!(!exists(cluster, &home, &name));
        assert_eq!((ends(&bench), rows(&bench)), (vec!["applied".to_owned(); 2], 0));
        let (gone, _) = act(&mut server, TOOL, wanted("delete", &name));
        assert_eq!(gone["error_code"], "NOT_FOUND");
        server.end();
        bench.prove();
    });
}

#[test]
fn what_is_not_the_projects_is_refused_before_anybody_is_asked() {
    let Some(cluster) = cluster() else { return };
    let home = cluster.database();
    let bench = bench(&home);
    let name = own(&home, "theirs");
    cluster.run(&home, &format!("CREATE DATABASE \"{name}\"")).unwrap();
    let mut server = Server::start(&bench);
    let mut refused = |arguments: Value| act(&mut server, TOOL, arguments).0["error_code"].clone();
    for (name, code) in [
        (name.as_str(), "POLICY_DENIED"),
        ("template1", "POLICY_DENIED"),
        ("postgres", "POLICY_DENIED"),
        (home.name.as_str(), "POLICY_DENIED"),
        ("x\"; DROP DATABASE postgres; --", "INVALID_ARGUMENTS"),
        ("1x", "INVALID_ARGUMENTS"),
    ] {
        assert_eq!(refused(wanted("create", name)), code, "create {name}");
        assert_eq!(refused(wanted("delete", name)), code, "delete {name}");
    }
    let mut elsewhere = wanted("create", "fresh");
    elsewhere["environment"] = json!("staging");
    assert_eq!(refused(elsewhere), "POLICY_DENIED");
    let unconfirmed = json!({"environment": "dev", "action": "delete", "database_name": "fresh"});
    assert_eq!(refused(unconfirmed), "INVALID_ARGUMENTS");
    assert!(exists(cluster, &home, &name));
    assert_eq!(bench.count("SELECT count(*) FROM approvals"), 0);
}

#[test]
fn a_database_of_another_project_or_environment_is_not_touched() {
    let Some(cluster) = cluster() else { return };
    let home = cluster.database();
    let bench = Bench::new().config(&format!(
        "database_lifecycle: {{url: '{}'}}\n\
         policies: {{projects: {{shop: {{repositories: [octo/shop]}}}}}}\n",
        home.url
    ));
    let name = own(&home, "kept");
    let web = Web::serve(&bench);
    let mut server = Server::start(&bench);
    let (made, is_error) = approved(&bench, &mut server, TOOL, wanted("create", &name));
    assert!(!is_error, "{made}");
    let mut elsewhere = wanted("delete", &name);
    elsewhere["environment"] = json!("production");
    let (refused, _) = act(&mut server, TOOL, elsewhere);
    assert_eq!(refused["error_code"], "POLICY_DENIED", "{refused}");
    let run = shown(
        &bench,
        &[
            "runs",
            "start",
            "--repository",
            "octo/shop",
            "--issue",
            "7",
            "--label",
            "run:ops",
            "--json",
            "tidy up",
        ],
    );
    assert_eq!(run["project"], "shop", "{run}");
    let agent = Agent::come(&web, &token(&bench, &run, "of-the-shop"));
    for action in ["create", "delete"] {
        let refused = agent.call(TOOL, wanted(action, &name));
        let code = &refused["result"]["structuredContent"]["error_code"];
        assert_eq!(code, "POLICY_DENIED", "{action}: {refused}");
    }
    let described = agent.call(TOOL, wanted("describe", &name));
    let described = &described["result"]["structuredContent"];
    assert_eq!(
        (&described["owned_by_project"], &described["owner_project_id"]),
        (&json!(false), &Value::Null),
        "{described}"
    );
    assert!(exists(cluster, &home, &name));
    assert_eq!((bench.count("SELECT count(*) FROM approvals"), rows(&bench)), (1, 1));
    server.end();
    web.stop();
}

#[test]
fn the_environments_are_those_that_the_operator_lists() {
    let Some(cluster) = cluster() else { return };
    let home = cluster.database();
    let bench = bench(&home).env("CODEXK8S_PROJECT_DB_LIFECYCLE_ALLOWED_ENVS", "staging");
    let mut server = Server::start(&bench);
    let (refused, _) = act(&mut server, TOOL, wanted("describe", "x"));
    assert_eq!(refused["error_code"], "POLICY_DENIED");
    let mut there = wanted("describe", "x");
    there["environment"] = json!("staging");
    let (described, is_error) = act(&mut server, TOOL, there);
    assert!(!is_error, "{described}");
}

#[test]
fn where_no_environment_is_listed_the_tool_is_not_offered_and_the_start_says_why() {
    let bench = Bench::new()
        .config("database_lifecycle: {url: 'postgres://nobody@127.0.0.1:1/x'}\n")
        .env("CODEXK8S_PROJECT_DB_LIFECYCLE_ALLOWED_ENVS", " , ");
    let mut server = Server::start(&bench);
    let id = server.request("tools/list", json!({}));
    let listed = server.answer(id)["result"]["tools"].to_string();
    server.end();
    let told = server.stderr();
    assert!(
        !listed.contains(TOOL) && told.contains("no databases: `CODEXK8S_PROJECT_DB_LIFECYCLE_ALLOWED_ENVS` names no"),
        "{told}"
    );
}

#[test]
fn a_database_that_somebody_else_put_in_place_of_ours_is_not_dropped() {
    let Some(cluster) = cluster() else { return };
    let home = cluster.database();
    let bench = bench(&home);
    let name = own(&home, "swapped");
    let mut server = Server::start(&bench);
    approved(&bench, &mut server, TOOL, wanted("create", &name));
    cluster.run(&home, &format!("DROP DATABASE \"{name}\"")).unwrap();
    cluster.run(&home, &format!("CREATE DATABASE \"{name}\"")).unwrap();
    let (refused, _) = act(&mut server, TOOL, wanted("delete", &name));
    assert_eq!(refused["error_code"], "POLICY_DENIED", "{refused}");
    let (described, _) = act(&mut server, TOOL, wanted("describe", &name));
    assert_eq!(
        (&described["exists"], &described["owned_by_project"]),
        (&json!(true), &json!(false))
    );
    assert!(exists(cluster, &home, &name));
}

#[test]
fn a_crash_between_the_database_and_its_row_is_put_right_at_the_next_start() {
    let Some(cluster) = cluster() else { return };
    let home = cluster.database();
    let bench = bench(&home);
    let (made, begun) = (own(&home, "made"), own(&home, "begun"));
    let mut server = Server::start(&bench);
    approved(&bench, &mut server, TOOL, wanted("create", &made));
    server.kill();
    // One was made and named, the other has no name yet; of neither is the row finished.
    force(
        &bench,
        &format!(
            "UPDATE project_databases SET hold = 'creating';
             INSERT INTO project_databases SELECT '{begun}', project_id, environment, hold, 'feed', version, act_id,
                 correlation_id, created_at_ms, updated_at_ms FROM project_databases"
        ),
    );
    cluster.run(&home, "CREATE DATABASE countersign_feed").unwrap();
    let mut server = Server::start(&bench);
    until("it is not put right", || {
        bench.count("SELECT count(*) FROM project_databases WHERE hold <> 'owned'") == 0
    });
    assert_eq!(rows(&bench), 1);
    assert!(exists(cluster, &home, &made) && !exists(cluster, &home, "countersign_feed"));
    assert_eq!(ends(&bench), ["applied", "applied repair", "applied repair"]);
    let (again, _) = act(&mut server, TOOL, wanted("create", &made));
    assert_eq!(again["message"], "idempotent_replay");
    server.end();
    bench.prove();
}

#[test]
fn a_crash_between_the_drop_and_its_row_is_put_right_by_the_next_call() {
    let Some(cluster) = cluster() else { return };
    let home = cluster.database();
    let bench = bench(&home);
    let name = own(&home, "dropped");
    let mut server = Server::start(&bench);
    approved(&bench, &mut server, TOOL, wanted("create", &name));
    force(&bench, "UPDATE project_databases SET hold = 'deleting'");
    let mut dry = wanted("delete", &name);
    dry["dry_run"] = json!(true);
    act(&mut server, TOOL, dry.clone());
    assert_eq!(
        bench.count("SELECT count(*) FROM project_databases WHERE hold = 'owned'"),
        1
    );
    force(&bench, "UPDATE project_databases SET hold = 'deleting'");
    cluster.run(&home, &format!("DROP DATABASE \"{name}\"")).unwrap();
    let (gone, _) = act(&mut server, TOOL, dry);
    assert_eq!((gone["error_code"].as_str(), rows(&bench)), (Some("NOT_FOUND"), 0));
}

#[test]
fn of_two_who_create_the_same_at_once_one_does() {
    let Some(cluster) = cluster() else { return };
    let home = cluster.database();
    let bench = bench(&home);
    let name = own(&home, "raced");
    let mut servers = [Server::start(&bench), Server::start(&bench)];
    // The same words join one question, and one approval lets one act go.
    let ids: Vec<i64> = servers
        .iter_mut()
        .map(|server| server.call_later(TOOL, wanted("create", &name)))
        .collect();
    approve(&bench);
    let answers: Vec<Value> = servers
        .iter_mut()
        .zip(ids)
        .map(|(server, id)| heard(server, id).0)
        .collect();
    let applied = answers.iter().filter(|answer| answer["applied"] == true).count();
    let others = answers
        .iter()
        .filter(|answer| answer["error_code"] == "CONFLICT")
        .count();
    assert_eq!((applied, others), (1, 1), "{answers:?}");
    assert!(exists(cluster, &home, &name));
    assert_eq!((ends(&bench), rows(&bench)), (vec!["applied".to_owned()], 1));
}

#[test]
fn a_server_that_is_away_is_said_to_be_and_the_tool_is_there_only_where_it_is_configured() {
    let bench = Bench::new().config("database_lifecycle: {url: 'postgres://u:pw-nobody-may-read@127.0.0.1:1/x'}\n");
    let mut server = Server::start(&bench);
    let (refused, is_error) = act(&mut server, TOOL, wanted("describe", "x"));
    assert!(is_error);
    assert_eq!(refused["error_code"], "UPSTREAM_ERROR", "{refused}");
    assert!(!refused.to_string().contains("pw-nobody-may-read"));
    let bench = Bench::new();
    let mut server = Server::start(&bench);
    let id = server.request("tools/list", json!({}));
    let listed = server.answer(id)["result"]["tools"].clone();
    let names: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert!(
        !names.contains(&TOOL) && !names.contains(&"secret.sync.github_k8s"),
        "{names:?}"
    );
}

#[test]
fn a_statement_that_the_database_server_is_still_at_is_waited_for_before_anything_is_put_right() {
    let Some(cluster) = cluster() else { return };
    let home = cluster.database();
    let bench = bench(&home);
    let name = own(&home, "slow");
    let count = |query: &str| cluster.run(&home, query).unwrap().parse::<i64>().unwrap();
    let waiting = || {
        count(
            "SELECT count(*) FROM pg_stat_activity
             WHERE application_name = 'countersign' AND wait_event_type = 'Lock'",
        )
    };
    let holder = "FROM pg_stat_activity WHERE query LIKE 'BEGIN; LOCK%' AND wait_event = 'PgSleep'";
    std::thread::scope(|scope| {
        // Nobody makes or drops a database for now.
        scope.spawn(|| {
            let held = "BEGIN; LOCK TABLE pg_database IN SHARE MODE; SELECT pg_sleep(3600)";
            cluster.run(&home, held).unwrap_err();
        });
        until("nobody holds it", || count(&format!("SELECT count(*) {holder}")) == 1);
        let mut server = Server::start(&bench);
        server.call_later(TOOL, wanted("create", &name));
        approve(&bench);
        until("it is not being made", || waiting() == 1);
        server.kill();
        let server = Server::start(&bench);
        until("it is not put right", || waiting() == 2);
        count(&format!("SELECT count(pg_terminate_backend(pid)) {holder}"));
        until("it is not put right", || rows(&bench) == 0);
        until("the statement goes on", || waiting() == 0);
        drop(server);
    });
    until("the statement goes on", || {
        count("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'countersign'") == 0
    });
    assert_eq!(
        count("SELECT count(*) FROM pg_database WHERE datname LIKE 'countersign\\_%'"),
        0
    );
    assert!(!exists(cluster, &home, &name));
    bench.prove();
}
