//! GitHub, where work is asked for and told of: labels that set off runs, reviews that ask for changes, one
//! comment that says how a run stands.
//!
//! What is needed of GitHub is the port [`GitHub`]. Labels change at one desk ([`labels`]), whoever wants it.
//! Deliveries are taken at the [`reception`] and worked off by the [`clerk`], who also keeps each run's
//! [`message`]. Which label means what is said in [`vocabulary`], which stage a review is about in
//! [`resolver`]; both are pure.

pub mod vocabulary;

pub mod resolver;

pub mod labels;

pub mod delivery;
pub mod reception;
pub mod task;

pub mod clerk;
pub mod message;

use crate::audit::Pending;
use crate::error::{ErrorCode, Refusal};

/// An issue or a pull request; on GitHub they share their numbers and most of what can be done to them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct IssueRef {
    pub repository: Repository,
    pub number: u64,
}

impl std::fmt::Display for IssueRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}#{}", self.repository.as_str(), self.number)
    }
}

/// `owner/name`.
// INVARIANT: two parts of letters, digits, `.`, `_` and `-`, neither `.` nor `..`: it goes into addresses.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Repository(String);

impl Repository {
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |part: &str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !part.is_empty() && part.len() <= 100 && part.bytes().all(known) && part != "." && part != ".."
        };
        let (owner, name) = text.split_once('/')?;
        (plain(owner) && plain(name)).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What an issue or a pull request is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IssueFacts {
    pub title: String,
    pub body: String,
    pub labels: Vec<String>,
    pub is_pull_request: bool,
}

/// Somebody put a label on, or took it off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelEvent {
    pub id: u64,
    pub login: String,
    pub label: String,
    pub added: bool,
}

/// What somebody may do with a repository, from nothing up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Permission {
    None,
    Read,
    Write,
    Admin,
}

/// Port: GitHub with the control token. Limits and passing trouble are dealt with behind it, within bounds.
pub trait GitHub: Send + Sync + 'static {
    /// Whose token it is; none where GitHub does not say, as of an app's token.
    fn login(&self) -> Pending<Result<Option<String>, GitHubError>>;

    /// What somebody may do with a repository.
    fn permission(&self, of: &Repository, login: &str) -> Pending<Result<Permission, GitHubError>>;

    fn issue(&self, of: &IssueRef) -> Pending<Result<IssueFacts, GitHubError>>;

    /// The paths of the files that a pull request changes.
    fn changed_files(&self, pull_request: &IssueRef) -> Pending<Result<Vec<String>, GitHubError>>;

    fn labels(&self, of: &IssueRef) -> Pending<Result<Vec<String>, GitHubError>>;

    /// Puts labels on; the labels behind it.
    fn add_labels(&self, of: &IssueRef, labels: Vec<String>) -> Pending<Result<Vec<String>, GitHubError>>;

    /// Exchanges all labels at once; the labels behind it.
    fn replace_labels(&self, of: &IssueRef, labels: Vec<String>) -> Pending<Result<Vec<String>, GitHubError>>;

    /// The latest changes of labels, the newest last.
    fn label_events(&self, of: &IssueRef) -> Pending<Result<Vec<LabelEvent>, GitHubError>>;

    /// Comments; the id of the comment.
    fn create_comment(&self, of: &IssueRef, body: String) -> Pending<Result<u64, GitHubError>>;

    fn update_comment(&self, of: &Repository, id: u64, body: String) -> Pending<Result<(), GitHubError>>;

    /// The first comment of our own that begins with this line.
    fn find_comment(&self, of: &IssueRef, first_line: &str) -> Pending<Result<Option<u64>, GitHubError>>;
}

/// Why GitHub did not do it. The message says what to do; it never holds the token.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct GitHubError {
    pub kind: Trouble,
    pub message: String,
}

/// What kind of trouble it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// There is no such thing, or the token may not see it.
    NotFound,
    /// The token is not let in, or may not do this.
    Refused,
    /// GitHub does not take it as it is.
    Invalid,
    /// Too much was asked for now.
    Limited,
    /// It cannot be reached, or fails.
    Unavailable,
}

impl Trouble {
    /// Whether the same may work later, without anybody doing anything.
    pub fn passes(self) -> bool {
        match self {
            Self::Limited | Self::Unavailable => true,
            Self::NotFound | Self::Refused | Self::Invalid => false,
        }
    }
}

impl From<GitHubError> for Refusal {
    fn from(error: GitHubError) -> Self {
        Self::new(ErrorCode::UpstreamError, error.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_an_owner_and_a_name_that_fit_into_an_address() {
        for good in ["octo/shop", "a/b.c", "A-1/x_y"] {
            assert!(Repository::parse(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "octo",
            "octo/",
            "/shop",
            "octo/shop/x",
            "octo/..",
            "../x",
            "octo/a b",
            "octo/a?b",
            "o%2f/x",
        ] {
            assert_eq!(Repository::parse(bad), None, "{bad}");
        }
    }
}
