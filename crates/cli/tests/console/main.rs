//! The console as a person meets it: the real binary, and a real browser that clicks and types.
//!
//! `tests/console/setup` installs what drives the browser; the cases themselves are in `tests/console`,
//! in the browser's own language. Here is the server they meet, and the list of what must hold.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test says what it found by failing"
)]

#[path = "../../../server/tests/shared/mod.rs"]
mod shared;

#[allow(dead_code, reason = "the product's tests use the rest")]
#[path = "../it/bench.rs"]
mod bench;
#[allow(dead_code, reason = "the tests with other clients use the rest")]
#[path = "../interop/foreign.rs"]
mod foreign;
#[allow(dead_code, reason = "the tests with other clients use the rest")]
#[path = "../interop/server.rs"]
mod server;

mod browser;

use browser::Site;

#[test]
fn a_token_logs_in_and_out() {
    Site::new().case("a_token_logs_in_and_out");
}

#[test]
fn a_login_code_works_once() {
    Site::new().case("a_login_code_works_once");
}

#[test]
fn approving_by_mouse_lets_the_call_run() {
    Site::new().case("approving_by_mouse_lets_the_call_run");
}

#[test]
fn denying_by_keyboard_tells_the_agent_why() {
    Site::new().case("denying_by_keyboard_tells_the_agent_why");
}

#[test]
fn a_second_browser_sees_the_decision_live() {
    Site::new().case("a_second_browser_sees_the_decision_live");
}

#[test]
fn a_decision_of_somebody_who_is_logged_out_leads_to_the_login() {
    Site::new().case("a_decision_of_somebody_who_is_logged_out_leads_to_the_login");
}

#[test]
fn activity_brings_what_happened_while_it_was_fetching() {
    Site::new().case("activity_brings_what_happened_while_it_was_fetching");
}

#[test]
fn a_failed_login_is_in_the_record() {
    Site::new().case("a_failed_login_is_in_the_record");
}

#[test]
fn a_question_that_has_just_appeared_takes_no_click() {
    Site::new().case("a_question_that_has_just_appeared_takes_no_click");
}

#[test]
fn allowing_from_now_on_shows_the_rule_first() {
    Site::new().case("allowing_from_now_on_shows_the_rule_first");
}

#[test]
fn hostile_text_is_only_text() {
    Site::new().case("hostile_text_is_only_text");
}

#[test]
fn pages_of_other_sites_decide_nothing() {
    Site::new().case("pages_of_other_sites_decide_nothing");
}

#[test]
fn whoever_may_not_decide_has_no_buttons() {
    Site::new().case("whoever_may_not_decide_has_no_buttons");
}

#[test]
fn it_works_without_scripts() {
    Site::new().case("it_works_without_scripts");
}

#[test]
fn every_place_is_accessible_and_fits_a_phone() {
    Site::new().case("every_place_is_accessible_and_fits_a_phone");
}

#[test]
fn a_job_is_followed_from_its_task_to_its_end() {
    Site::with_agent().case("a_job_is_followed_from_its_task_to_its_end");
}

#[test]
fn operators_speak_to_agents_and_call_them_back_and_nobody_else_does() {
    Site::with_agent().case("operators_speak_to_agents_and_call_them_back_and_nobody_else_does");
}

#[test]
fn the_record_tells_the_story_and_proves_itself() {
    Site::new().case("the_record_tells_the_story_and_proves_itself");
}

#[test]
fn a_run_is_traced_from_its_issue_to_the_job_that_does_it() {
    Site::with_agent().case("a_run_is_traced_from_its_issue_to_the_job_that_does_it");
}

#[test]
fn a_run_is_called_back_by_an_operator_and_every_open_page_sees_it() {
    Site::with_agent().case("a_run_is_called_back_by_an_operator_and_every_open_page_sees_it");
}
