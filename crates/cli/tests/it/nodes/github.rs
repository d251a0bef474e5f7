//! GitHub and runs with several nodes: whatever is delivered, to whichever of them and how often, is worked off once, and
//! so are runs and their time.

use std::thread;

use countersign_doubles::github::GitHub;
use serde_json::Value;

use super::field::{A, B, C, Field};
use crate::bench::Bench;
use crate::client::eventually;
use crate::github::{SECRET, SHOP, with_agent};
use crate::runs;

fn events(field: &Field, kind: &str) -> i64 {
    field.count(&format!("SELECT count(*) FROM flow_events WHERE event_type = '{kind}'"))
}

#[test]
fn deliveries_that_come_to_two_nodes_at_once_have_one_effect_each() {
    let github = GitHub::start();
    let issues = 1..=4;
    for issue in issues.clone() {
        github.issue(SHOP, issue, &["run:dev", "bug"]);
    }
    let Some(field) = Field::of(3, with_agent(Bench::new(), &github, "dev")) else {
        return;
    };
    for issue in issues.clone() {
        let delivery = github.labeled(&format!("d-{issue}"), SHOP, issue, "run:dev", "ana");
        let said: Vec<u16> = thread::scope(|scope| {
            let sent: Vec<_> = [A, B, C, A, B]
                .into_iter()
                .map(|node| {
                    let (address, delivery) = (&field.web(node).address, &delivery);
                    scope.spawn(move || delivery.send(address, SECRET).0)
                })
                .collect();
            sent.into_iter().map(|it| it.join().unwrap()).collect()
        });
        assert_eq!(said.iter().filter(|status| **status == 202).count(), 1, "{said:?}");
        assert!(said.iter().all(|status| matches!(status, 200 | 202)), "{said:?}");
    }
    eventually("every run ends well", || {
        field.count("SELECT count(*) FROM runs WHERE status = 'succeeded'") == 4
    });
    eventually("every label is changed", || {
        issues
            .clone()
            .all(|issue| github.labels(SHOP, issue) == ["bug", "state:in-review"])
    });
    eventually("every comment says so", || {
        let says_so = |issue| {
            github
                .comments(SHOP, issue)
                .iter()
                .any(|it| it.body.contains("is succeeded"))
        };
        issues.clone().all(says_so)
    });
    eventually("nothing is left to do", || {
        field.count("SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'") == 0
    });
    for issue in issues {
        let comments = github.comments(SHOP, issue);
        assert_eq!(comments.len(), 1, "issue {issue}: {comments:?}");
    }
    assert_eq!(field.count("SELECT count(*) FROM runs"), 4);
    assert_eq!(field.count("SELECT count(*) FROM jobs"), 4);
    for (kind, count) in [
        ("webhook.received", 4),
        ("webhook.duplicate", 16),
        ("run.enqueued", 4),
        ("run.started", 4),
        ("run.finished", 4),
    ] {
        assert_eq!(events(&field, kind), count, "{kind}");
    }
    field.prove();
}

#[test]
fn runs_begin_and_run_out_of_time_once_however_many_nodes_look_after_them() {
    let Some(field) = Field::of(3, runs::bench()) else {
        return;
    };
    let start = |node: usize, more: &[&str]| {
        let words = [&["runs", "start", "--label", "run:dev", "--json"], more].concat();
        let run: Value = serde_json::from_str(&field.told(node, &words)).unwrap();
        run["run_id"].as_str().unwrap().to_owned()
    };
    for node in [A, B, C] {
        start(node, &["greet"]);
        start(node, &["--timeout-ms", "500", "hang"]);
    }
    eventually("every run is over", || {
        field.count("SELECT count(*) FROM runs WHERE status IN ('succeeded', 'failed')") == 6
    });
    let over = "SELECT count(*) FROM runs WHERE status = 'failed' AND reason LIKE 'timeout%'";
    assert_eq!(field.count(over), 3);
    assert_eq!(field.count("SELECT count(*) FROM jobs"), 6);
    for kind in ["run.enqueued", "run.started", "run.finished"] {
        assert_eq!(events(&field, kind), 6, "{kind}");
        let whose = "SELECT count(DISTINCT correlation_id) FROM flow_events WHERE event_type";
        assert_eq!(field.count(&format!("{whose} = '{kind}'")), 6, "{kind}");
    }
    eventually("no agent is left", || {
        field.count("SELECT count(*) FROM agent_processes") == 0
    });
    field.prove();
}
