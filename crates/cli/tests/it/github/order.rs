//! Deliveries in any order, late, more than once, from whoever: what is so on GitHub counts, and there is one
//! effect of each wish.

use countersign_doubles::github::GitHub;
use countersign_doubles::github::deliveries::Delivery;
use serde_json::json;

use super::{SHOP, bench, deliver, events, runs, told, until_worked_off, with_agent};
use crate::bench::Bench;
use crate::outside::{Serving, until};
use crate::runs::shown;

/// Sends it five times: the first is taken, the others came before.
fn deliver_often(serving: &Serving, delivery: &Delivery) {
    assert_eq!(deliver(serving, delivery).0, 202);
    for _ in 0..4 {
        assert_eq!(deliver(serving, delivery), (200, "duplicate".to_owned()));
    }
}

fn run(bench: &Bench, label: &str, status: &str) -> i64 {
    bench.count(&format!(
        "SELECT count(*) FROM runs WHERE trigger_label = '{label}' AND status = '{status}'"
    ))
}

/// Whether a delivery came to nothing, for a reason like this.
fn ignored(bench: &Bench, delivery: &str, reason: &str) -> bool {
    let said = told(bench, "webhook.ignored");
    said.iter()
        .any(|it| it["delivery_id"] == delivery && it["reason"].as_str().unwrap().contains(reason))
}

#[test]
fn labels_and_reviews_of_people_who_may_not_write_set_off_nothing() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev"]);
    github.pull_request(SHOP, 8, "Closes #7", &["run:dev"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    for (login, permission) in [("rita", "read"), ("nora", "none")] {
        github.permit(login, permission);
        let (label, review) = (format!("d-{login}"), format!("r-{login}"));
        deliver(&serving, &github.labeled(&label, SHOP, 7, "run:dev", login));
        deliver(&serving, &github.reviewed(&review, SHOP, 8, "changes_requested", login));
        until_worked_off(&bench);
        for delivery in [&label, &review] {
            assert!(ignored(&bench, delivery, "may not write"), "{delivery}");
        }
    }
    assert_eq!((runs(&bench), events(&bench, "label.requested")), (0, 0));
    github.permit("rita", "admin");
    deliver(&serving, &github.labeled("d-admin", SHOP, 7, "run:dev", "rita"));
    until("an admin's label sets off nothing", || runs(&bench) == 1);
}

#[test]
fn a_label_that_was_taken_off_before_its_delivery_came_sets_off_nothing() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["bug"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    deliver_often(&serving, &github.unlabeled("d-1", SHOP, 7, "run:dev", "ana"));
    until_worked_off(&bench);
    deliver_often(&serving, &github.labeled("d-2", SHOP, 7, "run:dev", "ana"));
    until_worked_off(&bench);
    assert!(ignored(&bench, "d-1", "no run waits"));
    assert!(ignored(&bench, "d-2", "taken off again"));
    // A label that has another name by now is another label.
    github.label_by("ana", SHOP, 7, &["run:development"], &[]);
    deliver(&serving, &github.labeled("d-3", SHOP, 7, "run:dev", "ana"));
    until_worked_off(&bench);
    assert!(ignored(&bench, "d-3", "taken off again"));
    assert_eq!((runs(&bench), github.labels(SHOP, 7).len()), (0, 2));
}

#[test]
fn a_label_that_is_taken_off_calls_back_the_run_that_waits_and_none_at_work() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev", "run:qa"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("the first does not begin", || run(&bench, "run:dev", "running") == 1);
    deliver(&serving, &github.labeled("d-2", SHOP, 7, "run:qa", "ana"));
    until("the second does not wait", || run(&bench, "run:qa", "pending") == 1);
    // One that comes late, while the label is on again, takes nothing back.
    deliver(&serving, &github.unlabeled("d-3", SHOP, 7, "run:qa", "ana"));
    until_worked_off(&bench);
    assert!(ignored(&bench, "d-3", "is on again"));
    github.label_by("ana", SHOP, 7, &[], &["run:dev", "run:qa"]);
    github.permit("rita", "read");
    deliver(&serving, &github.unlabeled("d-4", SHOP, 7, "run:qa", "rita"));
    until_worked_off(&bench);
    assert_eq!(run(&bench, "run:qa", "pending"), 1, "she may not write");
    deliver_often(&serving, &github.unlabeled("d-5", SHOP, 7, "run:qa", "ana"));
    deliver_often(&serving, &github.unlabeled("d-6", SHOP, 7, "run:dev", "ana"));
    until("it waits all the same", || run(&bench, "run:qa", "cancelled") == 1);
    until_worked_off(&bench);
    assert_eq!((run(&bench, "run:dev", "running"), runs(&bench)), (1, 2));
    assert_eq!(events(&bench, "run.canceled"), 1);
}

#[test]
fn an_issue_that_is_deleted_takes_back_what_waits_for_it_and_sets_off_nothing_more() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev", "run:qa", "run:ops"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("the first does not begin", || run(&bench, "run:dev", "running") == 1);
    deliver(&serving, &github.labeled("d-2", SHOP, 7, "run:qa", "ana"));
    until("the second does not wait", || run(&bench, "run:qa", "pending") == 1);
    let (deleted, late) = (
        github.deleted("d-3", SHOP, 7, "ana"),
        github.labeled("d-4", SHOP, 7, "run:ops", "ana"),
    );
    github.delete_issue(SHOP, 7);
    deliver_often(&serving, &deleted);
    deliver_often(&serving, &late);
    until("it waits all the same", || run(&bench, "run:qa", "cancelled") == 1);
    until_worked_off(&bench);
    assert!(ignored(&bench, "d-4", "not there any more"));
    assert_eq!(runs(&bench), 2);
}

#[test]
fn what_somebody_else_does_to_labels_while_a_run_is_put_up_for_review_is_kept() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev", "stale"]);
    let bench = with_agent(Bench::new(), &github, "dev");
    let serving = Serving::start(&bench);
    github.meanwhile("PUT", "/labels", |github| {
        github.label_by("ana", SHOP, 7, &["urgent"], &["stale"]);
    });
    deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("the labels are not put right", || {
        github.labels(SHOP, 7) == ["state:in-review", "urgent"]
    });
    until("it is not told", || events(&bench, "label.applied") == 1);
    assert_eq!(told(&bench, "label.applied")[0]["cause"], "run.finished");
}

#[test]
fn a_delivery_and_a_person_who_spell_a_repository_differently_mean_one_issue() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    deliver(&serving, &github.labeled("d-1", "Octo/Shop", 7, "run:dev", "ana"));
    until("it does not begin", || run(&bench, "run:dev", "running") == 1);
    let words = [
        "runs",
        "start",
        "--repository",
        "OCTO/shop",
        "--issue",
        "7",
        "--label",
        "run:dev",
        "--json",
    ];
    let by_hand = shown(&bench, &words);
    assert_eq!(
        (&by_hand["repository"], &by_hand["status"]),
        (&json!(SHOP), &json!("pending"))
    );
    assert_eq!(bench.count("SELECT count(DISTINCT repository) FROM runs"), 1);
}

#[test]
fn questions_that_nobody_answers_stand_in_no_other_deliverys_way() {
    // More than are taken up at once.
    const QUESTIONS: u64 = 33;
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    for number in 100..100 + QUESTIONS {
        github.pull_request(SHOP, number, "", &["run:dev", "run:qa"]);
        let review = github.reviewed(&format!("r-{number}"), SHOP, number, "changes_requested", "ana");
        assert_eq!(deliver(&serving, &review).0, 202);
    }
    until("not all is asked", || {
        bench.count("SELECT count(*) FROM approvals WHERE state = 'pending'") == QUESTIONS as i64
    });
    deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("nobody gets round to it", || runs(&bench) == 1);
}
