//! What GitHub delivers, read into what it means for us, and as it is kept until that is done.
//!
//! Reading is pure and takes nothing on trust but the signature that was checked before: what is missing or
//! misshapen is said, and what concerns nobody here is nothing.

use serde_json::Value;

use super::task::{ApprovalTask, LabelTask, ModeTask, PullRequestTask, ReviewTask, Task, WithdrawalTask};
use super::vocabulary::{DISCUSSION, NEED_REVIEWER};
use super::{IssueRef, Repository};
use crate::audit::{Pending, RecordError};
use crate::clock::Timestamp;
use crate::ids::CorrelationId;
use crate::job::branch::is_branch;
use crate::job::lifecycle::words;
use crate::limits;

/// What a delivery comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Meaning {
    Task(Task),
    /// Nothing is to be done, for this reason.
    Nothing(&'static str),
}

/// Reads a delivery by the name of its event; the error says what is wrong with it.
pub fn read(event: &str, payload: &Value) -> Result<Meaning, String> {
    let action = payload["action"].as_str().unwrap_or_default();
    match (event, action) {
        ("ping", _) => Ok(Meaning::Nothing("it is a ping")),
        ("issues", "labeled") => labeled(payload),
        ("issues", "unlabeled") => unlabeled(payload),
        ("issues", "deleted") => deleted(payload),
        ("pull_request", "labeled") => reviewer_wanted(payload),
        ("pull_request", "opened" | "edited" | "reopened" | "synchronize" | "closed") => pull_request(payload, action),
        ("pull_request_review", "submitted") => reviewed(payload),
        _ => Ok(Meaning::Nothing("nothing follows from this kind of event")),
    }
}

fn labeled(payload: &Value) -> Result<Meaning, String> {
    let label = text(payload, "/label/name")?;
    if label.eq_ignore_ascii_case(DISCUSSION) {
        return mode(payload, true);
    }
    if !label.starts_with("run:") {
        return Ok(Meaning::Nothing("the label sets off no run"));
    }
    if is_bot(payload) {
        return Ok(Meaning::Nothing("a bot put the label on"));
    }
    Ok(Meaning::Task(Task::Label(LabelTask {
        issue: reference(payload, "/issue/number")?,
        title: optional(payload, "/issue/title"),
        body: optional(payload, "/issue/body"),
        label,
        sender: text(payload, "/sender/login")?,
    })))
}

/// On a pull request one label alone sets off a run; stages there only say what it belongs to.
fn reviewer_wanted(payload: &Value) -> Result<Meaning, String> {
    let label = text(payload, "/label/name")?;
    if label != NEED_REVIEWER {
        return Ok(Meaning::Nothing("the label sets off no run"));
    }
    if is_bot(payload) {
        return Ok(Meaning::Nothing("a bot put the label on"));
    }
    Ok(Meaning::Task(Task::Label(LabelTask {
        issue: reference(payload, "/pull_request/number")?,
        title: optional(payload, "/pull_request/title"),
        body: optional(payload, "/pull_request/body"),
        label,
        sender: text(payload, "/sender/login")?,
    })))
}

fn mode(payload: &Value, is_talk: bool) -> Result<Meaning, String> {
    if is_bot(payload) {
        return Ok(Meaning::Nothing("a bot changed the mode"));
    }
    Ok(Meaning::Task(Task::Mode(ModeTask {
        issue: reference(payload, "/issue/number")?,
        sender: text(payload, "/sender/login")?,
        is_talk,
    })))
}

fn unlabeled(payload: &Value) -> Result<Meaning, String> {
    let label = text(payload, "/label/name")?;
    if label.eq_ignore_ascii_case(DISCUSSION) {
        return mode(payload, false);
    }
    if !label.starts_with("run:") {
        return Ok(Meaning::Nothing("the label sets off no run"));
    }
    withdrawn(payload, Some(label))
}

fn deleted(payload: &Value) -> Result<Meaning, String> {
    withdrawn(payload, None)
}

fn withdrawn(payload: &Value, label: Option<String>) -> Result<Meaning, String> {
    if is_bot(payload) {
        return Ok(Meaning::Nothing("a bot took the label off"));
    }
    Ok(Meaning::Task(Task::Withdrawal(WithdrawalTask {
        issue: reference(payload, "/issue/number")?,
        label,
        sender: text(payload, "/sender/login")?,
    })))
}

/// Bots open pull requests too: agents do. Who could push a branch to the repository may; a fork is anybody's.
fn pull_request(payload: &Value, action: &str) -> Result<Meaning, String> {
    let of = reference(payload, "/pull_request/number")?;
    let from = payload
        .pointer("/pull_request/head/repo/full_name")
        .and_then(Value::as_str);
    if !from.is_some_and(|from| from.eq_ignore_ascii_case(of.repository.as_str())) {
        return Ok(Meaning::Nothing("the pull request comes from a fork"));
    }
    Ok(Meaning::Task(Task::PullRequest(PullRequestTask {
        pull_request: of,
        body: optional(payload, "/pull_request/body"),
        sender: text(payload, "/sender/login")?,
        is_closed: action == "closed",
        branch: text(payload, "/pull_request/head/ref")
            .ok()
            .filter(|name| is_branch(name)),
    })))
}

fn reviewed(payload: &Value) -> Result<Meaning, String> {
    let verdict = text(payload, "/review/state")?.to_ascii_lowercase();
    if !["changes_requested", "approved"].contains(&verdict.as_str()) {
        return Ok(Meaning::Nothing("the review neither asks for changes nor approves"));
    }
    if is_bot(payload) {
        return Ok(Meaning::Nothing("a bot wrote the review"));
    }
    if verdict == "approved" {
        return Ok(Meaning::Task(Task::Approval(ApprovalTask {
            pull_request: reference(payload, "/pull_request/number")?,
            sender: text(payload, "/sender/login")?,
        })));
    }
    Ok(Meaning::Task(Task::Review(ReviewTask {
        pull_request: reference(payload, "/pull_request/number")?,
        title: optional(payload, "/pull_request/title"),
        body: optional(payload, "/pull_request/body"),
        review: optional(payload, "/review/body"),
        sender: text(payload, "/sender/login")?,
        question: None,
        asked_on: None,
        chosen_issue: None,
    })))
}

/// Whoever is no user is a bot, and so is whoever is called like one.
fn is_bot(payload: &Value) -> bool {
    let sender = &payload["sender"];
    sender["type"] != "User" || sender["login"].as_str().is_some_and(|login| login.ends_with("[bot]"))
}

fn reference(payload: &Value, number: &str) -> Result<IssueRef, String> {
    let repository = text(payload, "/repository/full_name")?;
    let repository = Repository::parse(&repository).ok_or("`repository.full_name` is no `owner/name`")?;
    let found = payload
        .pointer(number)
        .and_then(Value::as_u64)
        .filter(|found| *found > 0);
    let number = found.ok_or_else(|| format!("`{}` is no number", dotted(number)))?;
    Ok(IssueRef { repository, number })
}

fn text(payload: &Value, place: &str) -> Result<String, String> {
    let found = payload.pointer(place).and_then(Value::as_str);
    found
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
        .ok_or_else(|| format!("`{}` is missing", dotted(place)))
}

fn optional(payload: &Value, place: &str) -> String {
    let found = payload.pointer(place).and_then(Value::as_str).unwrap_or_default();
    found.chars().take(limits::RUN_INSTRUCTIONS_CHARS_MAX).collect()
}

fn dotted(place: &str) -> String {
    place.trim_start_matches('/').replace('/', ".")
}

words! {
    /// Where a delivery stands.
    DeliveryState {
        /// Its work is still to be done.
        Pending "pending",
        Done "done",
        /// Nothing was to be done.
        Ignored "ignored",
    }
}

/// A delivery as it is kept.
#[derive(Clone, PartialEq, Debug)]
pub struct Delivery {
    /// GitHub's own id of it.
    pub id: String,
    pub version: u64,
    pub event: String,
    pub correlation_id: CorrelationId,
    pub state: DeliveryState,
    /// What is to be done; none once it is.
    pub task: Option<Task>,
    /// How often doing it failed, and when it is tried next.
    pub tries: u32,
    pub not_before: Timestamp,
    pub received_at: Timestamp,
}

/// A delivery that came, or that moved on.
#[derive(Clone, PartialEq, Debug)]
pub struct DeliveryChange {
    pub delivery: Delivery,
    /// The version that it was made from; none for a new one, which is refused with
    /// [`RecordError::DeliveryKnown`] where it came before.
    pub from: Option<u64>,
}

/// Port: deliveries as a store keeps them.
pub trait Deliveries: Send + Sync + 'static {
    /// Those whose work may be done now, oldest first.
    fn pending_deliveries(&self, now: Timestamp, limit: usize) -> Pending<Result<Vec<Delivery>, RecordError>>;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labeled(label: &str, sender: &str, kind: &str) -> Value {
        json!({
            "action": "labeled", "label": {"name": label}, "repository": {"full_name": "octo/shop"},
            "issue": {"number": 7, "title": "T", "body": null, "labels": [{"name": "run:dev"}, {"name": "bug"}]},
            "sender": {"login": sender, "type": kind},
        })
    }

    #[test]
    fn a_run_label_of_a_person_is_a_task_and_one_of_a_bot_is_none() {
        let Ok(Meaning::Task(Task::Label(task))) = read("issues", &labeled("run:dev", "ana", "User")) else {
            panic!("no task");
        };
        assert_eq!(task.issue.to_string(), "octo/shop#7");
        assert_eq!(
            (task.label.as_str(), task.title.as_str(), task.body.as_str()),
            ("run:dev", "T", "")
        );
        for (label, sender, kind) in [
            ("bug", "ana", "User"),
            ("run:dev", "helper[bot]", "User"),
            ("run:dev", "app", "Bot"),
            ("run:dev", "org", "Organization"),
        ] {
            let read = read("issues", &labeled(label, sender, kind));
            assert!(matches!(read, Ok(Meaning::Nothing(_))), "{label} {sender}: {read:?}");
        }
    }

    #[test]
    fn a_review_that_asks_for_changes_or_approves_is_a_task_and_a_comment_is_none() {
        let review = |verdict: &str| {
            json!({
                "action": "submitted", "review": {"state": verdict, "body": "again"},
                "pull_request": {"number": 8, "title": "T", "body": "Closes #7"},
                "repository": {"full_name": "octo/shop"}, "sender": {"login": "ana", "type": "User"},
            })
        };
        let asked = read("pull_request_review", &review("changes_requested"));
        assert!(matches!(asked, Ok(Meaning::Task(Task::Review(_)))), "{asked:?}");
        let approved = read("pull_request_review", &review("approved"));
        assert!(matches!(approved, Ok(Meaning::Task(Task::Approval(_)))), "{approved:?}");
        let mut by_bot = review("approved");
        by_bot["sender"]["type"] = json!("Bot");
        for nothing in [review("commented"), by_bot] {
            let read = read("pull_request_review", &nothing);
            assert!(matches!(read, Ok(Meaning::Nothing(_))), "{nothing}");
        }
    }

    #[test]
    fn a_label_that_is_taken_off_and_an_issue_that_is_deleted_withdraw_what_they_asked_for() {
        let mut payload = labeled("run:dev", "ana", "User");
        for (action, label) in [("unlabeled", Some("run:dev")), ("deleted", None)] {
            payload["action"] = json!(action);
            let Ok(Meaning::Task(Task::Withdrawal(task))) = read("issues", &payload) else {
                panic!("no task of {action}");
            };
            assert_eq!((task.label.as_deref(), task.issue.number), (label, 7));
        }
        payload["action"] = json!("unlabeled");
        payload["label"]["name"] = json!("bug");
        assert!(matches!(read("issues", &payload), Ok(Meaning::Nothing(_))));
    }

    fn pull(action: &str, from: &Value) -> Value {
        json!({
            "action": action, "label": {"name": "need:reviewer"}, "repository": {"full_name": "octo/shop"},
            "pull_request": {"number": 8, "title": "T", "body": "Closes #7", "head": {"repo": from}},
            "sender": {"login": "agent[bot]", "type": "Bot"},
        })
    }

    #[test]
    fn a_pull_request_of_the_repository_itself_is_a_task_and_one_of_a_fork_is_none() {
        let own = json!({"full_name": "octo/shop"});
        for (action, is_closed) in [("opened", false), ("edited", false), ("closed", true)] {
            let Ok(Meaning::Task(Task::PullRequest(task))) = read("pull_request", &pull(action, &own)) else {
                panic!("no task of {action}");
            };
            assert_eq!((task.is_closed, task.body.as_str()), (is_closed, "Closes #7"));
        }
        for from in [json!({"full_name": "mallory/shop"}), Value::Null] {
            let read = read("pull_request", &pull("opened", &from));
            assert!(matches!(read, Ok(Meaning::Nothing(_))), "{from}: {read:?}");
        }
    }

    #[test]
    fn a_person_asks_for_a_reviewer_on_a_pull_request_and_a_bot_does_not() {
        let mut payload = pull("labeled", &Value::Null);
        let by_bot = read("pull_request", &payload);
        assert!(matches!(by_bot, Ok(Meaning::Nothing(_))), "{by_bot:?}");
        payload["sender"] = json!({"login": "ana", "type": "User"});
        let Ok(Meaning::Task(Task::Label(task))) = read("pull_request", &payload) else {
            panic!("no task");
        };
        assert_eq!((task.label.as_str(), task.issue.number), ("need:reviewer", 8));
        payload["label"]["name"] = json!("run:dev");
        assert!(matches!(read("pull_request", &payload), Ok(Meaning::Nothing(_))));
    }

    #[test]
    fn what_a_delivery_lacks_is_said() {
        let mut payload = labeled("run:dev", "ana", "User");
        payload["repository"]["full_name"] = json!("../etc");
        assert!(read("issues", &payload).unwrap_err().contains("owner/name"));
        payload = labeled("run:dev", "ana", "User");
        payload["issue"]["number"] = json!(0);
        assert!(read("issues", &payload).unwrap_err().contains("issue.number"));
        assert!(read("issues", &json!({"action": "labeled"})).is_err());
        assert_eq!(
            read("push", &json!({})),
            Ok(Meaning::Nothing("nothing follows from this kind of event"))
        );
    }
}
