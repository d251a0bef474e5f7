//! Reviews that ask for changes.

use countersign_doubles::github::GitHub;
use countersign_doubles::github::faults::Fault;
use serde_json::{Value, json};
use std::time::Duration;

use super::{SHOP, bench, deliver, events, runs, told, until_worked_off, with_agent};
use crate::bench::Bench;
use crate::outside::{Serving, until};

fn run(bench: &Bench, stage: &str) -> i64 {
    bench.count(&format!(
        "SELECT count(*) FROM runs WHERE trigger_label = 'run:{stage}:revise' AND trigger_kind = 'review'
             AND issue_number = 7 AND pull_request_number = 8"
    ))
}

#[test]
fn a_review_that_asks_for_changes_sets_off_the_revise_of_its_stage() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["state:in-review"]);
    github.pull_request(SHOP, 8, "Closes #7", &["run:dev"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    let review = github.reviewed("r-1", SHOP, 8, "changes_requested", "ana");
    assert_eq!(deliver(&serving, &review).0, 202);
    assert_eq!(deliver(&serving, &review).0, 200);
    until("no revise is set off", || run(&bench, "dev") == 1);
    until_worked_off(&bench);
    assert_eq!(github.labels(SHOP, 7), ["run:dev:revise"]);
    assert_eq!(
        (runs(&bench), events(&bench, "run.review.changes_requested.received")),
        (1, 1)
    );
    let resolved = &told(&bench, "run.revise.stage_resolved")[0];
    assert_eq!(
        (&resolved["stage"], &resolved["step"], &resolved["issue_number"]),
        (&json!("dev"), &json!("pull_request_labels"), &json!(7))
    );
    // What is being done over is not approved meanwhile, and a comment is no verdict.
    deliver(&serving, &github.reviewed("r-2", SHOP, 8, "approved", "ana"));
    let comment = github.reviewed("r-3", SHOP, 8, "commented", "ana");
    assert_eq!(deliver(&serving, &comment), (200, "ignored".to_owned()));
    until_worked_off(&bench);
    assert_eq!(github.labels(SHOP, 7), ["run:dev:revise"]);
    assert_eq!(runs(&bench), 1);
}

/// A development that went well, whose pull request waits for its review.
fn put_up_for_review(github: &GitHub, bench: &Bench, serving: &Serving) {
    github.issue(SHOP, 7, &["run:dev"]);
    github.pull_request(SHOP, 8, "Closes #7", &[]);
    deliver(serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("the labels stay", || github.labels(SHOP, 7) == ["state:in-review"]);
    deliver(serving, &github.pulled("p-1", SHOP, 8, "opened", SHOP, "agent[bot]"));
    until("nothing waits for a review", || waiting(bench) == 1);
    until_worked_off(bench);
}

fn waiting(bench: &Bench) -> i64 {
    bench.count("SELECT count(*) FROM agent_sessions WHERE wait_state = 'owner_review'")
}

/// Who ended the wait for a review.
fn ended_by(bench: &Bench) -> Vec<String> {
    bench.column(
        "SELECT actor_id FROM flow_events WHERE event_type = 'run.wait.resumed'
             AND json_extract(payload, '$.wait_state') = 'owner_review' ORDER BY seq",
    )
}

#[test]
fn an_approving_review_of_somebody_who_may_write_ends_the_wait_for_it() {
    let github = GitHub::start();
    let bench = with_agent(Bench::new(), &github, "dev");
    let serving = Serving::start(&bench);
    put_up_for_review(&github, &bench, &serving);
    github.permit("rita", "read");
    deliver(&serving, &github.reviewed("r-1", SHOP, 8, "approved", "rita"));
    deliver(&serving, &github.reviewed("r-2", SHOP, 8, "commented", "ana"));
    until_worked_off(&bench);
    assert_eq!((waiting(&bench), ended_by(&bench).len()), (1, 0));
    let approved = github.reviewed("r-3", SHOP, 8, "approved", "ana");
    for _ in 0..5 {
        deliver(&serving, &approved);
    }
    until("it waits for ever", || waiting(&bench) == 0);
    until_worked_off(&bench);
    assert_eq!(ended_by(&bench), ["github:ana"]);
    for number in [7, 8] {
        assert_eq!(github.labels(SHOP, number), ["state:approved"], "{number}");
    }
    assert_eq!(runs(&bench), 1);
}

#[test]
fn what_is_in_review_is_known_as_the_repository_spells_it() {
    let github = GitHub::start();
    let bench = with_agent(Bench::new(), &github, "dev");
    let serving = Serving::start(&bench);
    github.issue(SHOP, 7, &["run:dev", "State:In-Review"]);
    github.pull_request(SHOP, 8, "Closes #7", &["State:In-Review"]);
    deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev", "ana"));
    until("the labels stay", || github.labels(SHOP, 7) == ["State:In-Review"]);
    deliver(&serving, &github.pulled("p-1", SHOP, 8, "opened", SHOP, "agent[bot]"));
    until("nothing waits for a review", || waiting(&bench) == 1);
    deliver(&serving, &github.reviewed("r-1", SHOP, 8, "approved", "ana"));
    until("it waits for ever", || waiting(&bench) == 0);
    until_worked_off(&bench);
    for number in [7, 8] {
        assert_eq!(github.labels(SHOP, number), ["state:approved"], "{number}");
    }
}

#[test]
fn a_review_that_asks_for_changes_ends_the_wait_and_the_revise_is_put_up_again() {
    let github = GitHub::start();
    let bench = with_agent(Bench::new(), &github, "dev");
    let serving = Serving::start(&bench);
    put_up_for_review(&github, &bench, &serving);
    deliver(&serving, &github.reviewed("r-1", SHOP, 8, "changes_requested", "ana"));
    until("no revise ends", || {
        let ended = "SELECT count(*) FROM runs WHERE trigger_label = 'run:dev:revise' AND status = 'succeeded'";
        bench.count(ended) == 1
    });
    until("the revise is not put up", || {
        github.labels(SHOP, 7) == ["state:in-review"] && github.labels(SHOP, 8) == ["state:in-review"]
    });
    until("the revise does not wait", || waiting(&bench) == 1);
    assert_eq!(ended_by(&bench), ["github:ana"]);
    let of_revise = "SELECT count(*) FROM agent_sessions JOIN runs USING (run_id)
        WHERE agent_sessions.wait_state = 'owner_review' AND trigger_label = 'run:dev:revise'";
    assert_eq!(bench.count(of_revise), 1);
}

/// Somebody asks for a reviewer of the pull request.
fn ask_for_a_reviewer(github: &GitHub, bench: &Bench, serving: &Serving) {
    github.label_by("ana", SHOP, 8, &["need:reviewer"], &[]);
    deliver(serving, &github.pulled("p-2", SHOP, 8, "labeled", SHOP, "ana"));
    until("no reviewer comes", || {
        bench.count("SELECT count(*) FROM runs WHERE agent_key = 'reviewer' AND pull_request_number = 8") == 1
    });
}

#[test]
fn a_reviewers_run_in_between_hides_neither_the_issue_nor_the_stage() {
    let github = GitHub::start();
    let bench = with_agent(Bench::new(), &github, "dev");
    let serving = Serving::start(&bench);
    put_up_for_review(&github, &bench, &serving);
    ask_for_a_reviewer(&github, &bench, &serving);
    deliver(&serving, &github.reviewed("r-1", SHOP, 8, "changes_requested", "ana"));
    until("no revise is set off", || run(&bench, "dev") == 1);
    until_worked_off(&bench);
    assert_eq!(told(&bench, "run.revise.stage_resolved")[0]["step"], "last_run");
    assert_eq!(ended_by(&bench), ["github:ana"]);
}

#[test]
fn closing_a_pull_request_ends_the_wait_for_its_review_also_behind_a_reviewers_run() {
    let github = GitHub::start();
    let bench = with_agent(Bench::new(), &github, "dev");
    let serving = Serving::start(&bench);
    put_up_for_review(&github, &bench, &serving);
    ask_for_a_reviewer(&github, &bench, &serving);
    deliver(&serving, &github.pulled("p-3", SHOP, 8, "closed", SHOP, "ana"));
    until("it waits for ever", || waiting(&bench) == 0);
    assert_eq!(ended_by(&bench), ["github:ana"]);
}

#[test]
fn the_stage_comes_from_the_issue_or_from_the_last_run_where_the_pull_request_says_nothing() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:design"]);
    github.pull_request(SHOP, 8, "Closes #7", &[]);
    let bench = with_agent(Bench::new(), &github, "sa");
    let serving = Serving::start(&bench);
    deliver(&serving, &github.reviewed("r-1", SHOP, 8, "changes_requested", "ana"));
    until("no revise is set off", || run(&bench, "design") == 1);
    assert_eq!(told(&bench, "run.revise.stage_resolved")[0]["step"], "issue_labels");
    // Once it is done the labels are gone; the history knows the stage, and the issue too when the text is gone.
    until("the labels stay", || github.labels(SHOP, 7).is_empty());
    github.pull_request(SHOP, 8, "", &[]);
    deliver(&serving, &github.reviewed("r-2", SHOP, 8, "changes_requested", "ana"));
    until("the history is not asked", || run(&bench, "design") == 2);
    assert_eq!(told(&bench, "run.revise.stage_resolved")[1]["step"], "last_run");
}

#[test]
fn an_unclear_stage_asks_and_goes_on_with_the_answer() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &[]);
    github.pull_request(SHOP, 8, "Closes #7", &["run:dev", "run:qa"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    deliver(&serving, &github.reviewed("r-1", SHOP, 8, "changes_requested", "ana"));
    let (question, details) = bench.question();
    assert_eq!(details["options"], json!(["dev", "qa", "no revise"]));
    assert_eq!(details["reason"], "pull_request_review_stage_ambiguous");
    assert_eq!(
        (runs(&bench), github.labels(SHOP, 7)),
        (0, vec!["need:input".to_owned()])
    );
    let comments = github.comments(SHOP, 7);
    assert!(
        comments[0].body.contains("pull_request_review_stage_ambiguous"),
        "{comments:?}"
    );
    assert_eq!(events(&bench, "run.revise.stage_ambiguous"), 1);
    let made = bench
        .command()
        .args(["tokens", "create", "--role", "approver", "--name", "ana", "--json"])
        .output()
        .unwrap();
    let token: Value = serde_json::from_slice(&made.stdout).unwrap();
    let header = format!("Authorization: Bearer {}\r\n", token["token"].as_str().unwrap());
    let path = format!("/api/v1/approvals/{question}/decision");
    let body = json!({"decision": "approve", "selected_option": "qa"});
    let (status, said) = serving.post(&path, &header, &body);
    assert_eq!(status, 200, "{said}");
    until("the answer is not heard", || run(&bench, "qa") == 1);
    until_worked_off(&bench);
    assert_eq!(github.labels(SHOP, 7), ["run:qa:revise"]);
    assert_eq!(told(&bench, "run.revise.stage_resolved")[0]["step"], "owner_feedback");
}

/// Answers the open question of a review.
fn answer(bench: &Bench, option: &str) {
    let (question, _) = bench.question();
    let said = bench
        .command()
        .args(["approve", &question, "--option", option])
        .env("USER", "ana")
        .output()
        .unwrap();
    assert!(said.status.success(), "{said:?}");
}

#[test]
fn nobody_is_waited_for_once_a_review_is_answered_with_no_revise() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["bug"]);
    github.pull_request(SHOP, 8, "Closes #7", &["run:dev", "run:qa"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    deliver(&serving, &github.reviewed("r-1", SHOP, 8, "changes_requested", "ana"));
    bench.question();
    assert_eq!(github.labels(SHOP, 7), ["bug", "need:input"]);
    answer(&bench, "no revise");
    until_worked_off(&bench);
    assert_eq!((runs(&bench), github.labels(SHOP, 7)), (0, vec!["bug".to_owned()]));
    assert_eq!(github.labels(SHOP, 8), ["run:dev", "run:qa"]);
    assert_eq!(
        told(&bench, "webhook.ignored")[0]["reason"],
        "the owner wants no revise"
    );
}

#[test]
fn a_question_about_a_review_is_taken_back_when_its_reviewer_asks_again_and_the_stage_is_clear() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &[]);
    github.pull_request(SHOP, 8, "Closes #7", &["run:dev", "run:qa"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    for (delivery, reviewer) in [("r-1", "ana"), ("r-2", "ben")] {
        deliver(
            &serving,
            &github.reviewed(delivery, SHOP, 8, "changes_requested", reviewer),
        );
        until("nobody is asked", || events(&bench, "run.revise.stage_ambiguous") > 0);
    }
    until("the second is not asked", || {
        events(&bench, "run.revise.stage_ambiguous") == 2
    });
    github.label_by("ana", SHOP, 8, &[], &["run:qa"]);
    deliver(&serving, &github.reviewed("r-3", SHOP, 8, "changes_requested", "ana"));
    until("no revise is set off", || run(&bench, "dev") == 1);
    until("the first question stays", || events(&bench, "approval.withdrawn") == 1);
    let pending = "SELECT count(*) FROM approvals WHERE state = 'pending'";
    assert_eq!(
        bench.count(pending),
        1,
        "what the other reviewer wants is still to be said"
    );
    assert_eq!(github.labels(SHOP, 7), ["run:dev:revise"]);
}

#[test]
fn a_stage_may_be_named_in_ones_own_words() {
    for (words, stage) in [("QA", "qa"), ("run:dev", "dev"), ("run:Doc-Audit:revise", "doc-audit")] {
        let github = GitHub::start();
        github.issue(SHOP, 7, &[]);
        github.pull_request(SHOP, 8, "Closes #7", &["run:plan", "run:ops"]);
        let bench = bench(&github);
        let serving = Serving::start(&bench);
        deliver(&serving, &github.reviewed("r-1", SHOP, 8, "changes_requested", "ana"));
        let (question, _) = bench.question();
        let said = bench
            .command()
            .args(["approve", &question, "--custom", words])
            .env("USER", "ana")
            .output()
            .unwrap();
        assert!(said.status.success(), "{said:?}");
        until_worked_off(&bench);
        assert_eq!(run(&bench, stage), 1, "{words}: {:?}", told(&bench, "webhook.ignored"));
    }
}

#[test]
fn a_pull_request_of_two_issues_needs_no_input_once_one_is_chosen() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev"]);
    github.issue(SHOP, 9, &[]);
    github.pull_request(SHOP, 8, "Closes #7, closes #9", &[]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    deliver(&serving, &github.reviewed("r-1", SHOP, 8, "changes_requested", "ana"));
    bench.question();
    assert_eq!(github.labels(SHOP, 8), ["need:input"]);
    answer(&bench, "#7");
    until("the answer is not heard", || run(&bench, "dev") == 1);
    until_worked_off(&bench);
    assert_eq!(github.labels(SHOP, 7), ["run:dev:revise"]);
    assert!(github.labels(SHOP, 8).is_empty(), "{:?}", github.labels(SHOP, 8));
}

#[test]
fn a_stage_that_nobody_knows_is_asked_for_and_a_denial_ends_it() {
    let github = GitHub::start();
    github.pull_request(SHOP, 8, "no issue", &[]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    deliver(&serving, &github.reviewed("r-1", SHOP, 8, "changes_requested", "ana"));
    let (question, details) = bench.question();
    assert_eq!(details["reason"], "pull_request_review_stage_not_resolved");
    assert_eq!(github.labels(SHOP, 8), ["need:input"]);
    let denied = bench
        .command()
        .args(["deny", &question, "--reason", "it is finished"])
        .env("USER", "ana")
        .output()
        .unwrap();
    assert!(denied.status.success(), "{denied:?}");
    until_worked_off(&bench);
    assert_eq!(runs(&bench), 0);
    assert_eq!(events(&bench, "webhook.ignored"), 1);
    assert!(github.labels(SHOP, 8).is_empty(), "{:?}", github.labels(SHOP, 8));
}

#[test]
fn the_revise_of_a_development_without_a_pull_request_asks_for_input() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev:revise"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    deliver(&serving, &github.labeled("d-1", SHOP, 7, "run:dev:revise", "ana"));
    until("it is not told", || events(&bench, "run.revise.pr_not_found") == 1);
    until_worked_off(&bench);
    assert_eq!(
        (runs(&bench), github.labels(SHOP, 7)),
        (0, vec!["need:input".to_owned()])
    );
}

#[test]
fn a_server_that_is_killed_at_its_work_leaves_it_to_the_next_and_there_is_one_run() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &[]);
    github.pull_request(SHOP, 8, "Closes #7", &["run:dev"]);
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    // It is still looking when it is killed, however slow this machine is.
    github.next("GET", "/issues/8/labels", Fault::Slow(Duration::from_secs(600)));
    assert_eq!(
        deliver(&serving, &github.reviewed("r-1", SHOP, 8, "changes_requested", "ana")).0,
        202
    );
    until("it is not written down", || events(&bench, "webhook.received") == 1);
    drop(serving);
    assert_eq!(runs(&bench), 0);
    let _serving = Serving::start(&bench);
    until("nobody goes on", || run(&bench, "dev") == 1);
    until_worked_off(&bench);
    assert_eq!(
        (runs(&bench), github.labels(SHOP, 7)),
        (1, vec!["run:dev:revise".to_owned()])
    );
}
