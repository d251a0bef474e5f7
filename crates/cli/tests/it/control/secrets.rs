//! `secret.sync.github_k8s`: one value in both systems, whatever breaks off in between, and nowhere else.

use std::fs;
use std::path::Path;
use std::time::Duration;

use countersign_doubles::github::faults::Fault;
use serde_json::{Value, json};

use super::world::{NAME, SHOP, TOOL, World, wanted, with};
use super::{act, approve, approved, ends, heard};
use crate::bench::Bench;
use crate::client::Server;
use crate::outside::until;

const VALUE: &str = "pl3ase-tell-nobody-at-all";

/// Whether some file below a folder holds these bytes.
fn found_below(folder: &Path, text: &str) -> Option<String> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = found_below(&path, text) {
                return Some(found);
            }
        } else if let Ok(bytes) = fs::read(&path)
            && bytes.windows(text.len()).any(|window| window == text.as_bytes())
        {
            return Some(path.display().to_string());
        }
    }
    None
}

#[test]
fn a_given_value_is_in_both_systems_and_nowhere_else() {
    Bench::wherever(|bench| {
        let world = World::around(bench);
        let bench = &world.bench;
        let mut server = Server::start(bench);
        let arguments = with(wanted("provided"), "secret_value", VALUE);
        // Refused first, with the value in hand: the arguments are wrong, the answer must not repeat them.
        let (refused, _) = act(&mut server, TOOL, with(arguments.clone(), "repository", "nowhere"));
        assert_eq!(refused["error_code"], "INVALID_ARGUMENTS");
        // Then a failure on the way.
        world
            .kubernetes
            .next("PATCH", "/database", Fault::status(500, "not now"));
        let (failed, _) = approved(bench, &mut server, TOOL, arguments.clone());
        assert_eq!(failed["error_code"], "UPSTREAM_ERROR", "{failed}");
        assert_eq!(found_below(&bench.state(), VALUE), None, "sealed while it waits");
        let id = server.call_later(TOOL, arguments);
        let (question, details) = approve(bench);
        let (done, is_error) = heard(&mut server, id);
        assert!(!is_error, "{done}");
        assert_eq!(
            done,
            json!({
                "status": "ok", "request_id": question, "approval_state": "applied", "environment": "dev",
                "message": "applied", "github_secret": NAME, "kubernetes_ref": "shop-dev/database#value",
                "policy": "provided", "idempotency_key": null, "reused": false, "dry_run": false,
            })
        );
        assert_eq!(details["github"], "octo/shop (dev) DB_PASSWORD");
        assert_eq!(details["kubernetes"], "shop-dev/database#value");
        assert_eq!(world.at_github().as_deref(), Some(VALUE.as_bytes()));
        assert_eq!(world.at_kubernetes().as_deref(), Some(VALUE.as_bytes()));

        let told = [&refused, &failed, &done, &details].map(Value::to_string).join("\n");
        let shown = |arguments: &[&str]| {
            let output = bench.command().args(arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            )
        };
        let record = shown(&["audit", "query", "--kind", "event", "--json"]);
        assert!(record.contains(TOOL) && record.contains("[redacted]"));
        let exported = shown(&["audit", "export"]);
        let approvals = shown(&["approvals", "show", &question, "--json"]);
        assert_eq!(
            found_below(&bench.state(), VALUE),
            None,
            "database and log, while they are in use"
        );
        server.end();
        for text in [told, record, exported, approvals, server.stderr()] {
            assert!(!text.contains(VALUE), "{text}");
        }
        assert_eq!(found_below(&bench.state(), VALUE), None);
        assert_eq!(
            bench.count("SELECT count(*) FROM secret_syncs WHERE sealed_value IS NOT NULL"),
            0
        );
        bench.prove();
    });
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_told_at_the_start_and_the_tool_is_not_offered() {
    let world = World::new();
    for broken in ["clusters: [", ""] {
        if broken.is_empty() {
            fs::remove_file(&world.kubeconfig).unwrap();
        } else {
            fs::write(&world.kubeconfig, broken).unwrap();
        }
        let mut server = Server::start(&world.bench);
        let id = server.request("tools/list", json!({}));
        let listed = server.answer(id)["result"]["tools"].clone();
        let is_offered = listed.as_array().unwrap().iter().any(|tool| tool["name"] == TOOL);
        server.end();
        let told = server.stderr();
        assert!(
            !is_offered && told.contains("no secrets: `kubernetes.kubeconfig` cannot be used: "),
            "{told}"
        );
    }
}

#[test]
fn a_failure_half_way_ends_with_the_same_value_in_both_when_the_call_is_repeated() {
    let world = World::new();
    let mut server = Server::start(&world.bench);
    world
        .kubernetes
        .next("PATCH", "/database", Fault::status(500, "not now"));
    let (failed, _) = approved(&world.bench, &mut server, TOOL, wanted("random"));
    assert_eq!(
        (&failed["status"], &failed["error_code"], &failed["retryable"]),
        (&json!("failed"), &json!("UPSTREAM_ERROR"), &json!(true))
    );
    let first = world.at_github().expect("GitHub has it");
    assert_eq!((first.len(), world.at_kubernetes()), (43, None));
    let (done, is_error) = approved(&world.bench, &mut server, TOOL, wanted("random"));
    assert!(!is_error, "{done}");
    assert_eq!(
        (world.at_github(), world.at_kubernetes()),
        (Some(first.clone()), Some(first.clone()))
    );
    assert_eq!(world.writes(), 1);
    assert_eq!(
        ends(&world.bench),
        [
            "applied github",
            "failed kubernetes UPSTREAM_ERROR",
            "applied github",
            "applied kubernetes"
        ]
    );
    // Whole, it is over: the next one is another value.
    approved(&world.bench, &mut server, TOOL, wanted("random"));
    assert_ne!(world.at_github(), Some(first));
    assert_eq!(world.at_github(), world.at_kubernetes());
}

#[test]
fn what_one_node_left_half_way_another_finishes_with_the_same_value() {
    let Some(bench) = Bench::on_postgres() else { return };
    let mut world = World::around(bench);
    let mut server = Server::start(&world.bench);
    world
        .kubernetes
        .next("PATCH", "/database", Fault::status(500, "not now"));
    let (failed, _) = approved(&world.bench, &mut server, TOOL, wanted("random"));
    assert_eq!(failed["error_code"], "UPSTREAM_ERROR", "{failed}");
    let first = world.at_github().expect("GitHub has it");
    server.end();

    let key = world.bench.state().join("nodes-key");
    let other = world.bench.path("other-state");
    fs::create_dir(&other).unwrap();
    world.bench = world.bench.env("COUNTERSIGN_STATE_DIR", &other);
    let mut server = Server::start(&world.bench);
    let id = server.request("tools/list", json!({}));
    let listed = server.answer(id).to_string();
    assert!(!listed.contains(TOOL), "a node without the key cannot do it right");
    server.end();
    assert!(server.stderr().contains("`nodes-key`"), "{}", server.stderr());

    fs::copy(key, other.join("nodes-key")).unwrap();
    let mut server = Server::start(&world.bench);
    let (done, is_error) = approved(&world.bench, &mut server, TOOL, wanted("random"));
    assert!(!is_error, "{done}");
    assert_eq!(
        (world.at_github(), world.at_kubernetes()),
        (Some(first.clone()), Some(first))
    );
    assert_eq!(world.writes(), 1);
}

#[test]
fn a_server_killed_between_the_two_systems_is_put_right_by_the_next() {
    let world = World::new();
    let mut server = Server::start(&world.bench);
    world
        .kubernetes
        .next("PATCH", "/database", Fault::Slow(Duration::from_secs(120)));
    server.call_later(TOOL, wanted("random"));
    approve(&world.bench);
    until("Kubernetes is not asked", || world.kubernetes.asked("PATCH") == 1);
    assert_eq!(ends(&world.bench), ["applied github"]);
    server.kill();
    let first = world.at_github().expect("GitHub has it");
    assert_eq!(world.at_kubernetes(), None);
    let mut server = Server::start(&world.bench);
    until("it is not put right", || world.at_kubernetes().is_some());
    until("it is not told", || ends(&world.bench).len() == 3);
    assert_eq!(
        (world.at_github(), world.at_kubernetes()),
        (Some(first.clone()), Some(first))
    );
    assert_eq!(world.writes(), 1);
    assert_eq!(
        ends(&world.bench),
        [
            "applied github",
            "failed kubernetes ABANDONED",
            "applied kubernetes repair"
        ]
    );
    assert_eq!(
        world
            .bench
            .count("SELECT count(*) FROM secret_syncs WHERE state = 'applied' AND sealed_value IS NULL"),
        1
    );
    assert_eq!(
        world
            .bench
            .count("SELECT count(DISTINCT correlation_id) FROM flow_events WHERE event_type LIKE 'mcp.tool.%'"),
        1
    );
    server.end();
    world.bench.prove();
}

#[test]
fn a_key_acts_once_and_is_good_for_its_arguments_only() {
    let world = World::new();
    let mut server = Server::start(&world.bench);
    let keyed = with(wanted("random"), "idempotency_key", "run:1/db");
    let (done, _) = approved(&world.bench, &mut server, TOOL, keyed.clone());
    assert_eq!(done["reused"], false, "{done}");
    let (again, is_error) = act(&mut server, TOOL, keyed.clone());
    assert!(!is_error, "nobody is asked: {again}");
    assert_eq!(
        (&again["reused"], &again["message"]),
        (&json!(true), &json!("idempotent_replay"))
    );
    assert_eq!(
        (&again["request_id"], &again["idempotency_key"]),
        (&done["request_id"], &json!("run:1/db"))
    );
    assert_eq!((world.writes(), world.kubernetes.applies()), (1, 1));
    let (other, _) = act(&mut server, TOOL, with(keyed, "kubernetes_secret_key", "other"));
    assert_eq!(other["error_code"], "CONFLICT");
    let bad = with(wanted("random"), "idempotency_key", "no spaces");
    assert_eq!(act(&mut server, TOOL, bad).0["error_code"], "INVALID_ARGUMENTS");
}

#[test]
fn the_same_call_twice_at_once_acts_once() {
    let world = World::new();
    let mut servers = [Server::start(&world.bench), Server::start(&world.bench)];
    let keyed = with(wanted("random"), "idempotency_key", "k");
    let ids: Vec<i64> = servers
        .iter_mut()
        .map(|it| it.call_later(TOOL, keyed.clone()))
        .collect();
    approve(&world.bench);
    let answers: Vec<Value> = servers.iter_mut().zip(ids).map(|(it, id)| heard(it, id).0).collect();
    let applied = answers.iter().filter(|it| it["message"] == "applied").count();
    assert_eq!(applied, 1, "{answers:?}");
    assert_eq!((world.writes(), world.kubernetes.applies()), (1, 1));
    assert_eq!(world.at_github(), world.at_kubernetes());
    assert_eq!(ends(&world.bench), ["applied github", "applied kubernetes"]);
}

#[test]
fn a_deterministic_value_is_the_same_again_and_a_dry_run_does_nothing() {
    let world = World::new();
    let mut server = Server::start(&world.bench);
    let mut dry = wanted("deterministic");
    dry["dry_run"] = json!(true);
    let (dry, _) = act(&mut server, TOOL, dry);
    assert_eq!((&dry["message"], world.writes()), (&json!("dry_run"), 0));
    approved(&world.bench, &mut server, TOOL, wanted("deterministic"));
    let first = world.at_github().expect("GitHub has it");
    approved(&world.bench, &mut server, TOOL, wanted("deterministic"));
    assert_eq!(
        (world.at_github(), world.at_kubernetes()),
        (Some(first.clone()), Some(first))
    );
    let repository = with(wanted("deterministic"), "github_scope", "repository");
    approved(&world.bench, &mut server, TOOL, repository);
    assert_eq!(world.github.secret(SHOP, None, NAME), world.at_kubernetes());
}

#[test]
fn other_keys_of_the_kubernetes_secret_stay_and_another_managers_is_not_taken() {
    let world = World::new();
    let mut server = Server::start(&world.bench);
    world
        .kubernetes
        .apply_by("helm", "shop-dev", "database", "user", "shop");
    approved(&world.bench, &mut server, TOOL, wanted("random"));
    let second = with(wanted("random"), "kubernetes_secret_key", "second");
    approved(
        &world.bench,
        &mut server,
        TOOL,
        with(second, "github_secret_name", "SECOND"),
    );
    let key = |key: &str| world.kubernetes.secret("shop-dev", "database", key);
    assert_eq!(key("value"), world.at_github());
    assert_eq!(key("second"), world.github.secret(SHOP, Some("dev"), "SECOND"));
    assert_eq!(key("user").as_deref(), Some(b"shop".as_slice()));
    let theirs = with(wanted("random"), "kubernetes_secret_key", "user");
    let (refused, _) = approved(&world.bench, &mut server, TOOL, theirs);
    assert_eq!(refused["error_code"], "CONFLICT", "{refused}");
    assert_eq!(key("user").as_deref(), Some(b"shop".as_slice()));
}

#[test]
fn a_system_that_refuses_is_named_with_its_reason() {
    let world = World::new();
    let mut server = Server::start(&world.bench);
    let (refused, _) = approved(
        &world.bench,
        &mut server,
        TOOL,
        with(wanted("random"), "kubernetes_namespace", "nowhere"),
    );
    assert_eq!(refused["error_details"]["system"], "kubernetes", "{refused}");
    assert!(
        refused["error_message"]
            .as_str()
            .unwrap()
            .contains("namespaces \"nowhere\" not found")
    );
    world.kubernetes.forbid("shop-dev");
    let (refused, _) = approved(&world.bench, &mut server, TOOL, wanted("random"));
    assert!(
        refused["error_message"].as_str().unwrap().contains("forbidden"),
        "{refused}"
    );
    let (refused, _) = approved(
        &world.bench,
        &mut server,
        TOOL,
        with(wanted("random"), "repository", "octo/none"),
    );
    assert_eq!(refused["error_details"]["system"], "github", "{refused}");
}

/// With the real client, where it is installed: the stand-in speaks as Kubernetes does, and both keep to their fields.
#[test]
fn kubectl_reads_what_was_put_and_applies_beside_it() {
    let world = World::new();
    let kubeconfig = &world.kubeconfig;
    let kubectl = |arguments: &[&str], input: &str| {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let mut child = Command::new("kubectl")
            .args(["--kubeconfig", kubeconfig.to_str()?, "--namespace", "shop-dev"])
            .args(arguments)
            .env("HOME", kubeconfig.parent()?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        child.stdin.take()?.write_all(input.as_bytes()).ok()?;
        child.wait_with_output().ok()
    };
    let Some(version) = kubectl(&["version", "--client"], "") else {
        println!("kubectl is not installed");
        return;
    };
    assert!(version.status.success(), "{version:?}");
    let mut server = Server::start(&world.bench);
    approved(&world.bench, &mut server, TOOL, wanted("random"));
    let theirs = "apiVersion: v1\nkind: Secret\nmetadata: {name: database}\ndata: {user: c2hvcA==}\n";
    let apply = [
        "apply",
        "--server-side",
        "--field-manager=helm",
        "--validate=false",
        "-f",
        "-",
    ];
    let applied = kubectl(&apply, theirs).unwrap();
    assert!(applied.status.success(), "{applied:?}");
    let read = kubectl(&["get", "secret", "database", "-o", "json"], "").unwrap();
    let read: Value = serde_json::from_slice(&read.stdout).unwrap_or_else(|_| panic!("{read:?}"));
    assert_eq!(read["data"]["user"], "c2hvcA==");
    assert!(read["data"]["value"].is_string());
    approved(&world.bench, &mut server, TOOL, wanted("random"));
    assert_eq!(
        world.kubernetes.secret("shop-dev", "database", "user").as_deref(),
        Some(b"shop".as_slice())
    );
    assert_eq!(world.at_kubernetes(), world.at_github());
}
