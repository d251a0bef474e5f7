//! What a delivery asks for, and how it is kept until it is done.

use serde_json::{Value, json};

use super::{IssueRef, Repository};
use crate::ids::ApprovalId;

/// What a delivery asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Task {
    /// Somebody put a label on that sets off a run.
    Label(LabelTask),
    /// What set off a run is gone: its label was taken off, or its issue deleted.
    Withdrawal(WithdrawalTask),
    /// A pull request is there, or was changed.
    PullRequest(PullRequestTask),
    /// Somebody asked for changes to a pull request.
    Review(ReviewTask),
    /// Somebody is content with a pull request.
    Approval(ApprovalTask),
    /// An issue is only to be talked about from now on, or no longer.
    Mode(ModeTask),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelTask {
    /// The issue, or for [`NEED_REVIEWER`] the pull request.
    pub issue: IssueRef,
    pub title: String,
    pub body: String,
    pub label: String,
    pub sender: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WithdrawalTask {
    pub issue: IssueRef,
    /// None where all of them went with the issue.
    pub label: Option<String>,
    pub sender: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PullRequestTask {
    pub pull_request: IssueRef,
    /// Its own text, which may name the issue that it closes.
    pub body: String,
    pub sender: String,
    /// Nobody needs to review it any longer.
    pub is_closed: bool,
    /// The branch that it comes from.
    pub branch: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReviewTask {
    pub pull_request: IssueRef,
    pub title: String,
    /// The pull request's own text, which may name the issue that it closes.
    pub body: String,
    /// What the review says.
    pub review: String,
    pub sender: String,
    /// The question that waits for an answer, and what answers said so far.
    pub question: Option<ApprovalId>,
    /// The issue or the pull request that needs input until then.
    pub asked_on: Option<u64>,
    pub chosen_issue: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApprovalTask {
    pub pull_request: IssueRef,
    pub sender: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModeTask {
    pub issue: IssueRef,
    pub sender: String,
    /// Whether it is to be talked about.
    pub is_talk: bool,
}

impl Task {
    /// The issue or the pull request that it is about.
    pub fn about_mut(&mut self) -> &mut IssueRef {
        match self {
            Self::Label(LabelTask { issue, .. })
            | Self::Withdrawal(WithdrawalTask { issue, .. })
            | Self::Mode(ModeTask { issue, .. }) => issue,
            Self::PullRequest(PullRequestTask { pull_request, .. })
            | Self::Review(ReviewTask { pull_request, .. })
            | Self::Approval(ApprovalTask { pull_request, .. }) => pull_request,
        }
    }

    pub fn to_json(&self) -> Value {
        match self {
            Self::Label(task) => json!({
                "kind": "label", "repository": task.issue.repository.as_str(), "number": task.issue.number,
                "title": task.title, "body": task.body, "label": task.label, "sender": task.sender,
            }),
            Self::Withdrawal(task) => json!({
                "kind": "withdrawal", "repository": task.issue.repository.as_str(), "number": task.issue.number,
                "label": task.label, "sender": task.sender,
            }),
            Self::PullRequest(task) => json!({
                "kind": "pull_request", "repository": task.pull_request.repository.as_str(),
                "number": task.pull_request.number, "body": task.body, "sender": task.sender,
                "is_closed": task.is_closed, "branch": task.branch,
            }),
            Self::Review(task) => json!({
                "kind": "review", "repository": task.pull_request.repository.as_str(),
                "number": task.pull_request.number, "title": task.title, "body": task.body, "review": task.review,
                "sender": task.sender, "question": task.question.as_ref().map(ApprovalId::as_str),
                "asked_on": task.asked_on, "chosen_issue": task.chosen_issue,
            }),
            Self::Approval(task) => json!({
                "kind": "approval", "repository": task.pull_request.repository.as_str(),
                "number": task.pull_request.number, "sender": task.sender,
            }),
            Self::Mode(task) => json!({
                "kind": "mode", "repository": task.issue.repository.as_str(), "number": task.issue.number,
                "sender": task.sender, "is_talk": task.is_talk,
            }),
        }
    }

    pub fn from_json(kept: &Value) -> Option<Self> {
        let text = |name: &str| kept[name].as_str().map(str::to_owned);
        let of = IssueRef {
            repository: Repository::parse(kept["repository"].as_str()?)?,
            number: kept["number"].as_u64()?,
        };
        match kept["kind"].as_str()? {
            "label" => Some(Self::Label(LabelTask {
                issue: of,
                title: text("title")?,
                body: text("body")?,
                label: text("label")?,
                sender: text("sender")?,
            })),
            "withdrawal" => Some(Self::Withdrawal(WithdrawalTask {
                issue: of,
                label: text("label"),
                sender: text("sender")?,
            })),
            "pull_request" => Some(Self::PullRequest(PullRequestTask {
                pull_request: of,
                body: text("body")?,
                sender: text("sender")?,
                is_closed: kept["is_closed"].as_bool()?,
                branch: text("branch"),
            })),
            "review" => Some(Self::Review(ReviewTask {
                pull_request: of,
                title: text("title")?,
                body: text("body")?,
                review: text("review")?,
                sender: text("sender")?,
                question: text("question").map(ApprovalId::trusted),
                asked_on: kept["asked_on"].as_u64(),
                chosen_issue: kept["chosen_issue"].as_u64(),
            })),
            "mode" => Some(Self::Mode(ModeTask {
                issue: of,
                sender: text("sender")?,
                is_talk: kept["is_talk"].as_bool()?,
            })),
            "approval" => Some(Self::Approval(ApprovalTask {
                pull_request: of,
                sender: text("sender")?,
            })),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_read_back() {
        let repository = Repository::parse("octo/shop").unwrap();
        let of = |number| IssueRef {
            repository: repository.clone(),
            number,
        };
        let label = Task::Label(LabelTask {
            issue: of(7),
            title: "T".to_owned(),
            body: "B".to_owned(),
            label: "run:dev".to_owned(),
            sender: "ana".to_owned(),
        });
        let review = Task::Review(ReviewTask {
            pull_request: of(8),
            title: "T".to_owned(),
            body: String::new(),
            review: "again".to_owned(),
            sender: "ana".to_owned(),
            question: Some(ApprovalId::trusted("q")),
            asked_on: Some(8),
            chosen_issue: Some(7),
        });
        let withdrawal = |label: Option<&str>| {
            Task::Withdrawal(WithdrawalTask {
                issue: of(7),
                label: label.map(str::to_owned),
                sender: "ana".to_owned(),
            })
        };
        let pull = Task::PullRequest(PullRequestTask {
            pull_request: of(8),
            body: "Closes #7".to_owned(),
            sender: "ana".to_owned(),
            is_closed: true,
            branch: Some("agent/7".to_owned()),
        });
        let approval = Task::Approval(ApprovalTask {
            pull_request: of(8),
            sender: "ana".to_owned(),
        });
        let mode = Task::Mode(ModeTask {
            issue: of(7),
            sender: "ana".to_owned(),
            is_talk: true,
        });
        let withdrawals = [withdrawal(Some("run:dev")), withdrawal(None)];
        for task in [label, review, pull, approval, mode].into_iter().chain(withdrawals) {
            assert_eq!(Task::from_json(&task.to_json()), Some(task));
        }
        assert_eq!(Task::from_json(&json!({"kind": "other"})), None);
    }
}
