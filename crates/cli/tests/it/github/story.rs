//! S4's minimal set of events, each written by a real path of one afternoon's work, with its obligatory fields.

use std::collections::BTreeMap;

use countersign_doubles::github::GitHub;
use countersign_doubles::github::deliveries::Delivery;
use countersign_doubles::github::faults::Fault;
use serde_json::{Value, json};

use super::{SECRET, SHOP, events, with_agent};
use crate::bench::Bench;
use crate::outside::until;
use crate::runs::{Agent, bearer, shown, token};
use crate::web::Web;

/// What there must be, by whom it is written, and a field that its payload cannot do without.
const MINIMAL: [(&str, &str, &str); 20] = [
    (
        "label.requested",
        "the desk of labels, before it calls GitHub",
        "issue_number",
    ),
    ("approval.requested", "a question of the run's agent", "approval_id"),
    ("approval.approved", "the owner's answer", "approval_id"),
    ("approval.denied", "the owner's refusal", "approval_id"),
    ("label.applied", "the desk of labels, behind the exchange", "after"),
    ("label.rejected", "the desk of labels, when GitHub refuses", "reason"),
    (
        "mcp.tool.requested",
        "a tool of the run's agent, before it acts",
        "tool",
    ),
    ("mcp.tool.applied", "the same, done", "tool"),
    ("mcp.tool.failed", "the same, refused by GitHub", "tool"),
    ("run.enqueued", "a person's label", "trigger_label"),
    ("run.started", "the steward", "run_id"),
    ("run.agent.status_reported", "the run's agent", "reported_status"),
    ("run.finished", "the steward, with the end of the job", "reason"),
    ("run.wait.paused", "the store, with the question", "remaining_ms"),
    ("run.wait.resumed", "the store, with the answer", "remaining_ms"),
    (
        "run.review.changes_requested.received",
        "a delivery of a review",
        "reviewer",
    ),
    ("run.revise.stage_resolved", "the resolver", "stage"),
    ("run.revise.stage_ambiguous", "the resolver, which asks", "approval_id"),
    ("run.profile.resolved", "whoever sets a run off", "sources"),
    (
        "run.service_message.updated",
        "the clerk, behind the comment",
        "comment_id",
    ),
];

fn deliver(web: &Web, delivery: &Delivery) {
    let url = web.url();
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp");
    assert_eq!(delivery.send(address, SECRET).0, 202, "{}", delivery.id);
}

/// An issue whose run an agent of ours does and ends.
fn a_development(github: &GitHub, bench: &Bench, web: &Web) {
    github.issue(SHOP, 7, &["run:dev"]);
    deliver(web, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("the development does not end", || events(bench, "run.finished") == 1);
}

/// A run whose agent comes from outside, changes labels, reports and asks.
fn an_operation(github: &GitHub, bench: &Bench, web: &Web) -> String {
    github.issue(SHOP, 9, &["run:ops"]);
    deliver(web, &github.labeled("d-2", SHOP, 9, "run:ops", "ana"));
    let listed = || shown(bench, &["runs", "list", "--issue", "9", "--repository", SHOP, "--json"]);
    let running = |runs: &Value| {
        let runs = runs.as_array().cloned().unwrap_or_default();
        runs.into_iter().find(|run| run["status"] == "running")
    };
    until("the operation does not begin", || running(&listed()).is_some());
    let run = running(&listed()).unwrap();
    let agent = Agent::come(web, &token(bench, &run, "operator-agent"));
    agent.call("run_status_report", json!({"status": "half way"}));
    agent.call("github_labels_add", json!({"labels": ["state:blocked"]}));
    github.next("POST", "/labels", Fault::status(422, "no"));
    agent.call("github_labels_add", json!({"labels": ["state:approved"]}));
    let owner = shown(
        bench,
        &["tokens", "create", "--role", "operator", "--name", "owner", "--json"],
    );
    let owner = bearer(owner["token"].as_str().unwrap());
    for answer in [
        json!({"decision": "approve", "selected_option": "yes"}),
        json!({"decision": "deny", "reason": "not now"}),
    ] {
        let question = format!("go on, {}?", answer["decision"]);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let arguments = json!({"question": question, "options": ["yes", "no"]});
                agent.call("owner.feedback.request", arguments)
            });
            let (asked, _) = bench.question();
            let path = format!("/api/v1/approvals/{asked}/decision");
            let (status, said) = web.rest(&path, &owner, &answer);
            assert_eq!(status, 200, "{said}");
            asking.join().unwrap();
        });
    }
    run["correlation_id"].as_str().unwrap().to_owned()
}

/// A review whose stage is clear, and one whose stage is not.
fn two_reviews(github: &GitHub, bench: &Bench, web: &Web) {
    github.pull_request(SHOP, 8, "Closes #7", &["run:dev"]);
    deliver(web, &github.reviewed("r-1", SHOP, 8, "changes_requested", "ana"));
    until("no stage is found", || events(bench, "run.revise.stage_resolved") == 1);
    github.pull_request(SHOP, 10, "", &["run:dev", "run:qa"]);
    deliver(web, &github.reviewed("r-2", SHOP, 10, "changes_requested", "ana"));
    until("nobody is asked", || events(bench, "run.revise.stage_ambiguous") == 1);
}

#[test]
fn every_event_of_the_minimal_set_is_written_by_a_real_path_with_all_its_fields() {
    let github = GitHub::start();
    let bench = with_agent(Bench::new(), &github, "dev");
    let web = Web::serve(&bench);
    a_development(&github, &bench, &web);
    let correlation = an_operation(&github, &bench, &web);
    two_reviews(&github, &bench, &web);
    until("no comment is told of", || {
        events(&bench, "run.service_message.updated") > 0
    });

    let mut rows: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for row in shown(
        &bench,
        &["audit", "query", "--kind", "event", "--limit", "10000", "--json"],
    )
    .as_array()
    .unwrap()
    {
        let kind = row["event_type"].as_str().unwrap().to_owned();
        rows.entry(kind).or_default().push(row.clone());
    }
    for (kind, by, field) in MINIMAL {
        let written = rows.get(kind).map_or(&[][..], Vec::as_slice);
        assert!(!written.is_empty(), "{kind} is not written by {by}");
        for row in written {
            for name in ["correlation_id", "actor_id", "timestamp", "event_id"] {
                assert!(
                    row[name].as_str().is_some_and(|text| !text.is_empty()),
                    "{name} of {row}"
                );
            }
            let actor = row["actor_type"].as_str().unwrap();
            assert!(["human", "agent", "system"].contains(&actor), "{row}");
            if kind.starts_with("approval.") {
                assert!(row["approval_state"].is_string(), "{row}");
            }
        }
        let is_whole = |row: &Value| !row["payload"][field].is_null();
        assert!(written.iter().any(is_whole), "{field} of {kind}: {written:?}");
    }
    // All that happens in a run is told under its one id, from the label to the answer.
    let of_run = |kind: &str| {
        let written = rows.get(kind).map_or(&[][..], Vec::as_slice);
        written.iter().any(|row| row["correlation_id"] == correlation.as_str())
    };
    for kind in [
        "run.enqueued",
        "run.profile.resolved",
        "run.started",
        "run.agent.status_reported",
        "label.requested",
        "label.applied",
        "label.rejected",
        "mcp.tool.requested",
        "mcp.tool.applied",
        "mcp.tool.failed",
        "approval.requested",
        "approval.approved",
        "approval.denied",
        "run.wait.paused",
        "run.wait.resumed",
    ] {
        assert!(of_run(kind), "{kind} is not under the run's id");
    }
    // The unclear review waits for its answer; nothing else does.
    until("a delivery stays", || {
        bench.count("SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'") == 1
    });
    web.stop();
    let verified = bench.command().args(["audit", "verify"]).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
}
