//! What this GitHub knows.

use std::collections::{BTreeMap, BTreeSet};

use super::LOGIN;
use super::secrets::Safe;

/// Issues and pull requests, which share their numbers, and secrets.
#[derive(Default)]
pub(super) struct State {
    pub(super) issues: BTreeMap<(String, u64), Issue>,
    pub(super) comments: Vec<Comment>,
    pub(super) events: Vec<LabelEvent>,
    pub(super) environments: BTreeSet<(String, String)>,
    /// What somebody may do, where it is not to write.
    pub(super) permissions: BTreeMap<String, String>,
    /// By repository and environment.
    pub(super) safes: BTreeMap<(String, Option<String>), Safe>,
    next_id: u64,
}

pub(super) struct Issue {
    /// In the order they were given.
    pub(super) labels: Vec<String>,
    pub(super) body: Option<String>,
    pub(super) is_pull_request: bool,
    /// The paths of what a pull request changes.
    pub(super) files: Vec<String>,
}

/// A comment of an issue or a pull request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comment {
    pub id: u64,
    pub repository: String,
    pub number: u64,
    pub login: String,
    pub body: String,
    /// How often it was changed.
    pub edits: usize,
}

/// Somebody labeled or unlabeled something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelEvent {
    pub id: u64,
    pub repository: String,
    pub number: u64,
    pub login: String,
    pub label: String,
    pub added: bool,
}

impl State {
    pub(super) fn create(&mut self, repository: &str, number: u64, body: Option<&str>, labels: &[&str]) {
        let issue = Issue {
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            body: body.map(str::to_owned),
            is_pull_request: body.is_some(),
            files: Vec::new(),
        };
        self.issues.insert((repository.to_owned(), number), issue);
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn issue(&self, repository: &str, number: u64) -> Option<&Issue> {
        self.issues.get(&(repository.to_owned(), number))
    }

    pub(super) fn delete(&mut self, repository: &str, number: u64) {
        self.issues.remove(&(repository.to_owned(), number));
    }

    pub(super) fn change_files(&mut self, repository: &str, number: u64, files: &[&str]) {
        if let Some(issue) = self.issues.get_mut(&(repository.to_owned(), number)) {
            issue.files = files.iter().map(|file| (*file).to_owned()).collect();
        }
    }

    pub(super) fn permission(&self, login: &str) -> &str {
        self.permissions.get(login).map_or("write", String::as_str)
    }

    pub(super) fn labels(&self, repository: &str, number: u64) -> Vec<String> {
        let mut labels = self
            .issue(repository, number)
            .map_or(Vec::new(), |issue| issue.labels.clone());
        labels.sort();
        labels
    }

    pub(super) fn relabel(&mut self, login: &str, repository: &str, number: u64, add: &[&str], remove: &[&str]) {
        for label in remove {
            self.change(login, repository, number, label, false);
        }
        for label in add {
            self.change(login, repository, number, label, true);
        }
    }

    /// Labels are told apart without regard to case, as GitHub does.
    fn change(&mut self, login: &str, repository: &str, number: u64, label: &str, added: bool) {
        let Some(issue) = self.issues.get_mut(&(repository.to_owned(), number)) else {
            return;
        };
        let place = issue.labels.iter().position(|known| known.eq_ignore_ascii_case(label));
        match (place, added) {
            (None, true) => issue.labels.push(label.to_owned()),
            (Some(place), false) => drop(issue.labels.remove(place)),
            (Some(_), true) | (None, false) => return,
        }
        let event = LabelEvent {
            id: self.id(),
            repository: repository.to_owned(),
            number,
            login: login.to_owned(),
            label: label.to_owned(),
            added,
        };
        self.events.push(event);
    }

    /// What replacing all labels comes to, one event for each that differs.
    pub(super) fn replace(&mut self, repository: &str, number: u64, labels: &[String]) {
        let before = self.labels(repository, number);
        let has = |all: &[String], label: &str| all.iter().any(|known| known.eq_ignore_ascii_case(label));
        for label in before.iter().filter(|label| !has(labels, label)) {
            self.change(LOGIN, repository, number, label, false);
        }
        for label in labels {
            self.change(LOGIN, repository, number, label, true);
        }
    }

    pub(super) fn comments(&self, repository: &str, number: u64) -> Vec<Comment> {
        let of = |comment: &&Comment| comment.repository == repository && comment.number == number;
        self.comments.iter().filter(of).cloned().collect()
    }

    pub(super) fn delete_comment(&mut self, id: u64) {
        self.comments.retain(|comment| comment.id != id);
    }

    pub(super) fn environment(&mut self, repository: &str, name: &str) {
        self.environments.insert((repository.to_owned(), name.to_owned()));
    }

    pub(super) fn safe(&mut self, repository: &str, environment: Option<&str>) -> &mut Safe {
        let key = (repository.to_owned(), environment.map(str::to_owned));
        self.safes.entry(key).or_default()
    }

    pub(super) fn secret(&mut self, repository: &str, environment: Option<&str>, name: &str) -> Option<Vec<u8>> {
        self.safe(repository, environment).open(name)
    }

    pub(super) fn secret_writes(&mut self, repository: &str, environment: Option<&str>, name: &str) -> usize {
        self.safe(repository, environment).writes(name)
    }
}
