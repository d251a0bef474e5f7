//! GitHub and the real binary: labels that tools change, deliveries that set off runs, reviews that lead to a
//! revise or to a question, and the one comment of each run.

mod discussion;
mod order;
mod pulls;
mod reviews;
mod story;

use std::fs;
use std::path::Path;

use countersign_doubles::github::deliveries::Delivery;
use countersign_doubles::github::faults::Fault;
use countersign_doubles::github::{GitHub, LOGIN, TOKEN};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::Server;
use crate::outside::{Serving, until};

pub(crate) const SHOP: &str = "octo/shop";
pub(crate) const SECRET: &str = "webhook-s3cret-of-this-test";
const WEBHOOKS: &str = "/api/v1/webhooks/github";

/// An agent that does its work at once.
const AGENT: &str =
    "#!/bin/sh\necho '{\"event\": \"TaskStarted\"}'\necho '{\"event\": \"TaskComplete\", \"result\": \"done\"}'\n";

fn bench(github: &GitHub) -> Bench {
    configured(Bench::new(), github, "")
}

/// The same with an agent of this key.
pub(crate) fn with_agent(bench: Bench, github: &GitHub, key: &str) -> Bench {
    let agent = bench.program("agent.sh", AGENT);
    let more = format!(
        "agents:\n  - name: {key}\n    type: exec\n    command: ['{}']\n    \
         eventParsing: {{format: jsonl, lineDelimited: true, eventTypeField: event}}\n",
        agent.display()
    );
    configured(bench, github, &more)
}

fn configured(bench: Bench, github: &GitHub, more: &str) -> Bench {
    bench.config(&format!(
        "listen: 127.0.0.1:0\ngithub: {{api_url: '{}', token: {TOKEN}, webhook_secret: {SECRET}}}\n\
         policies: {{projects: {{shop: {{repositories: [{SHOP}]}}}}}}\n{more}",
        github.url()
    ))
}

fn deliver(serving: &Serving, delivery: &Delivery) -> (u16, String) {
    let (status, said) = delivery.send(&serving.address, SECRET);
    (status, said["status"].as_str().unwrap_or_default().to_owned())
}

fn events(bench: &Bench, kind: &str) -> i64 {
    bench.count(&format!("SELECT count(*) FROM flow_events WHERE event_type = '{kind}'"))
}

/// The payloads of a kind of event, oldest first.
fn told(bench: &Bench, kind: &str) -> Vec<Value> {
    let query = format!("SELECT payload FROM flow_events WHERE event_type = '{kind}' ORDER BY seq");
    let rows = bench.column(&query).into_iter();
    rows.map(|payload| serde_json::from_str(&payload).unwrap()).collect()
}

fn runs(bench: &Bench) -> i64 {
    bench.count("SELECT count(*) FROM runs")
}

/// Waits until nothing is left to be worked off.
#[track_caller]
fn until_worked_off(bench: &Bench) {
    until("a delivery stays", || {
        bench.count("SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'") == 0
    });
}

/// A tool that is no command: its result, and whether it is an error.
fn act(server: &mut Server, tool: &str, arguments: Value) -> (Value, bool) {
    let id = server.call_later(tool, arguments);
    let answer = server.answer(id);
    let result = &answer["result"];
    (
        result["structuredContent"].clone(),
        result["isError"].as_bool().unwrap_or(false),
    )
}

#[test]
fn labels_change_in_one_exchange_and_the_record_tells_before_and_behind() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev", "bug"]);
    let bench = bench(&github);
    let mut server = Server::start(&bench);
    let (listed, _) = act(&mut server, "github_labels_list", json!({"issue_number": 7}));
    assert_eq!(listed, json!({"status": "ok", "labels": ["bug", "run:dev"]}));
    let change = json!({"issue_number": 7, "remove_labels": ["run:dev"], "add_labels": ["state:in-review"]});
    let (changed, is_error) = act(&mut server, "github_labels_transition", change.clone());
    assert!(!is_error, "{changed}");
    assert_eq!(changed["labels"], json!(["bug", "state:in-review"]));
    assert_eq!(github.labels(SHOP, 7), ["bug", "state:in-review"]);
    assert_eq!(github.count("PUT", "/labels"), 1);
    // What is so already is not done again.
    let (again, _) = act(&mut server, "github_labels_transition", change);
    assert!(again["message"].as_str().unwrap().contains("so already"), "{again}");
    assert_eq!(github.count("PUT", "/labels"), 1);
    let (added, _) = act(
        &mut server,
        "github_labels_add",
        json!({"issue_number": 7, "labels": ["urgent"]}),
    );
    assert_eq!(added["labels"], json!(["bug", "state:in-review", "urgent"]));
    let all = json!({"issue_number": 7, "labels": ["bug", "state:in-review", "urgent"]});
    let (none, _) = act(&mut server, "github_labels_remove", all);
    assert_eq!(none["labels"], json!([]));
    assert_eq!(
        (events(&bench, "label.requested"), events(&bench, "label.applied")),
        (4, 4)
    );
    let applied = &told(&bench, "label.applied")[0];
    assert_eq!(applied["before"], json!(["bug", "run:dev"]));
    assert_eq!(applied["after"], json!(["bug", "state:in-review"]));
    assert_eq!(applied["cause"], "github_labels_transition");
}

#[test]
fn what_somebody_else_does_to_labels_meanwhile_is_kept() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev", "stale"]);
    let bench = bench(&github);
    let mut server = Server::start(&bench);
    // Behind our look and before our exchange.
    github.meanwhile("PUT", "/labels", |github| {
        github.label_by("ana", SHOP, 7, &["urgent"], &["stale"]);
    });
    let change = json!({"issue_number": 7, "remove_labels": ["run:dev"], "add_labels": ["state:in-review"]});
    let (changed, is_error) = act(&mut server, "github_labels_transition", change);
    assert!(!is_error, "{changed}");
    assert_eq!(github.labels(SHOP, 7), ["state:in-review", "urgent"]);
    assert_eq!(told(&bench, "label.applied")[0]["rounds"], 1);
}

#[test]
fn two_processes_that_change_the_same_labels_take_turns() {
    Bench::wherever(|bench| {
        let github = GitHub::start();
        github.issue(SHOP, 7, &["a"]);
        let bench = configured(bench, &github, "");
        let (mut one, mut other) = (Server::start(&bench), Server::start(&bench));
        let change = |add: &str| json!({"issue_number": 7, "remove_labels": ["a"], "add_labels": [add]});
        let first = one.call_later("github_labels_transition", change("b"));
        let second = other.call_later("github_labels_transition", change("c"));
        for answer in [one.answer(first), other.answer(second)] {
            assert_eq!(answer["result"]["isError"], json!(false), "{answer}");
        }
        assert_eq!(github.labels(SHOP, 7), ["b", "c"]);
        assert_eq!(bench.count("SELECT count(*) FROM leases"), 0);
    });
}

#[test]
fn trouble_with_github_is_told_and_recorded_without_the_token() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["a"]);
    let bench = bench(&github);
    let mut server = Server::start(&bench);
    github.next("PUT", "/labels", Fault::status(422, &format!("no, {TOKEN}")));
    let change = json!({"issue_number": 7, "remove_labels": ["a"], "add_labels": ["b"]});
    let (refused, is_error) = act(&mut server, "github_labels_transition", change);
    assert!(is_error && refused["error_code"] == "UPSTREAM_ERROR", "{refused}");
    assert_eq!(events(&bench, "label.rejected"), 1);
    let (missing, _) = act(&mut server, "github_labels_list", json!({"issue_number": 99}));
    assert_eq!(missing["error_code"], "UPSTREAM_ERROR");
    for wrong in [
        json!({"issue_number": 7}),
        json!({"issue_number": 7, "add_labels": [" x "]}),
        json!({"issue_number": 0, "add_labels": ["x"]}),
        json!({"add_labels": ["x"]}),
    ] {
        let (refused, _) = act(&mut server, "github_labels_transition", wrong.clone());
        assert_eq!(refused["error_code"], "INVALID_ARGUMENTS", "{wrong}");
    }
    server.end();
    let said = server.stderr();
    assert!(!said.contains(TOKEN), "{said}");
    no_secret_below(&bench.state());
}

fn no_secret_below(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            no_secret_below(&path);
        } else if let Ok(bytes) = fs::read(&path) {
            for secret in [TOKEN, SECRET] {
                let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
                assert!(!found, "{} holds a secret", path.display());
            }
        }
    }
}

#[test]
fn a_delivery_that_comes_five_times_sets_off_one_run() {
    Bench::wherever(|bench| {
        let github = GitHub::start();
        github.issue(SHOP, 7, &["run:dev", "bug", "[ai-model-gpt-5]"]);
        let bench = configured(bench, &github, "");
        let serving = Serving::start(&bench);
        let labeled = github.labeled("d-1", SHOP, 7, "run:dev", "ana");
        assert_eq!(deliver(&serving, &labeled), (202, "accepted".to_owned()));
        for _ in 0..4 {
            assert_eq!(deliver(&serving, &labeled), (200, "duplicate".to_owned()));
        }
        until("no run is set off", || events(&bench, "run.enqueued") == 1);
        until_worked_off(&bench);
        assert_eq!(runs(&bench), 1);
        assert_eq!(events(&bench, "webhook.received"), 1);
        assert_eq!(events(&bench, "webhook.duplicate"), 4);
        let run =
            "SELECT count(*) FROM runs WHERE trigger_label = 'run:dev' AND trigger_kind = 'label' AND issue_number = 7
            AND repository = 'octo/shop' AND project = 'shop' AND agent_key = 'dev' AND requested_by = 'github:ana'";
        assert_eq!(bench.count(run), 1);
        let profile = &told(&bench, "run.profile.resolved")[0];
        assert_eq!(
            (&profile["model"], &profile["sources"]["model"]),
            (&json!("gpt-5"), &json!("issue_labels"))
        );
        // The same label once more, while the run waits or works, is another delivery of the same wish.
        let again = github.labeled("d-2", SHOP, 7, "bug", "ana");
        assert_eq!(deliver(&serving, &again), (200, "ignored".to_owned()));
        assert_eq!(
            deliver(&serving, &github.pinged("d-3", SHOP)),
            (200, "ignored".to_owned())
        );
        serving.stop();
        no_secret_below(&bench.state());
    });
}

#[test]
fn only_githubs_signature_is_taken_and_without_a_secret_there_is_no_route() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    let labeled = github.labeled("d-1", SHOP, 7, "run:dev", "ana");
    let other = github.labeled("d-2", SHOP, 7, "run:qa", "ana");
    let signed = countersign_doubles::github::deliveries::signature(SECRET, other.payload.to_string().as_bytes());
    for signature in ["", "sha256=", "sha256=00", &signed, &signed.replace("sha256", "sha1")] {
        let (status, _) = labeled.send_signed(&serving.address, signature);
        assert_eq!(status, 401, "{signature}");
    }
    let (status, _) = labeled.send(&serving.address, "another secret");
    assert_eq!(status, 401);
    assert_eq!((events(&bench, "webhook.refused"), runs(&bench)), (6, 0));
    assert_eq!(events(&bench, "auth.refused"), 0);
    // What was refused is not taken for having come.
    assert_eq!(deliver(&serving, &labeled).0, 202);
    let (status, _) = serving.post(WEBHOOKS, "", &json!({}));
    assert_eq!(status, 401);
    drop(serving);

    let without = Bench::new().config(&format!("listen: 127.0.0.1:0\ngithub: {{token: {TOKEN}}}\n"));
    let serving = Serving::start(&without);
    let (status, _) = labeled.send(&serving.address, SECRET);
    assert_eq!(status, 404);
}

#[test]
fn labels_of_bots_of_ourselves_and_of_strange_repositories_set_off_nothing() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev"]);
    github.issue("octo/other", 7, &["run:dev"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    for (number, (repository, label, sender, status)) in [
        (SHOP, "run:dev", "helper[bot]", 200),
        (SHOP, "run:dev", LOGIN, 202),
        (SHOP, "run:nonsense", "ana", 202),
        ("octo/other", "run:dev", "ana", 202),
    ]
    .into_iter()
    .enumerate()
    {
        let delivery = github.labeled(&format!("d-{number}"), repository, 7, label, sender);
        assert_eq!(deliver(&serving, &delivery).0, status, "{repository} {label} {sender}");
    }
    until_worked_off(&bench);
    assert_eq!((runs(&bench), events(&bench, "webhook.ignored")), (0, 4));
    let reasons: Vec<Value> = told(&bench, "webhook.ignored");
    let said = |text: &str| reasons.iter().any(|it| it["reason"].as_str().unwrap().contains(text));
    assert!(
        said("a bot") && said("own account") && said("no stage") && said("policies.projects"),
        "{reasons:?}"
    );
}

#[test]
fn two_configuration_labels_of_a_group_fail_the_run_before_it_begins() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev", "[ai-model-a]", "[ai-model-b]"]);
    let bench = with_agent(Bench::new(), &github, "dev");
    let serving = Serving::start(&bench);
    deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("no run fails", || {
        bench.count("SELECT count(*) FROM runs WHERE status = 'failed' AND reason LIKE 'failed_precondition%'") == 1
    });
    assert_eq!(bench.count("SELECT count(*) FROM jobs"), 0);
    until("it is not told", || {
        github
            .comments(SHOP, 7)
            .iter()
            .any(|it| it.body.contains("failed_precondition"))
    });
}

#[test]
fn a_development_that_went_well_is_put_up_for_review_and_told_of_in_one_comment() {
    Bench::wherever(|bench| {
        let github = GitHub::start();
        github.issue(SHOP, 7, &["run:dev", "bug"]);
        let bench = with_agent(bench, &github, "dev");
        let serving = Serving::start(&bench);
        // The answer to the comment is lost, and with it the comment's id.
        github.next("POST", "/comments", Fault::CutBehind);
        assert_eq!(
            deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana")).0,
            202
        );
        until("the run does not end well", || {
            bench.count("SELECT count(*) FROM runs WHERE status = 'succeeded'") == 1
        });
        until("the labels stay", || {
            github.labels(SHOP, 7) == ["bug", "state:in-review"]
        });
        until("the comment does not say so", || {
            github
                .comments(SHOP, 7)
                .iter()
                .any(|it| it.body.contains("is succeeded"))
        });
        let comments = github.comments(SHOP, 7);
        assert_eq!(comments.len(), 1, "{comments:?}");
        assert!(comments[0].body.contains("run:dev:revise"), "{}", comments[0].body);
        until("it is not recorded", || {
            events(&bench, "run.service_message.updated") > 0
        });
        // Our own change of labels comes back as a delivery, and nothing follows from it.
        deliver(&serving, &github.labeled("d-2", SHOP, 7, "run:qa", LOGIN));
        until_worked_off(&bench);
        assert_eq!(runs(&bench), 1);
        serving.stop();
        bench.prove();
    });
}
