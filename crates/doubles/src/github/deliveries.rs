//! Deliveries as GitHub sends them, with its signature. Their bodies are the examples that GitHub publishes
//! (`@octokit/webhooks-examples`, MIT), with the names of the test in them and the fields that have since been added.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::{GitHub, contract, shapes};
use crate::http;

/// One delivery, which may be sent any number of times.
#[derive(Clone, PartialEq, Debug)]
pub struct Delivery {
    pub id: String,
    pub event: &'static str,
    pub payload: Value,
}

impl Delivery {
    /// Sends it, signed with this secret; the status and what was answered.
    pub fn send(&self, to: &str, secret: &str) -> (u16, Value) {
        let body = self.payload.to_string();
        self.send_signed(to, &signature(secret, body.as_bytes()))
    }

    /// Sends it under any signature.
    pub fn send_signed(&self, to: &str, signature: &str) -> (u16, Value) {
        let body = self.payload.to_string();
        let headers = [
            ("Content-Type", "application/json"),
            ("User-Agent", "GitHub-Hookshot/test"),
            ("X-GitHub-Delivery", self.id.as_str()),
            ("X-GitHub-Event", self.event),
            ("X-GitHub-Hook-ID", "1"),
            ("X-Hub-Signature-256", signature),
        ];
        let (status, said) = http::send(to, "POST", "/api/v1/webhooks/github", &headers, body.as_bytes());
        (status, serde_json::from_str(&said).unwrap_or(Value::Null))
    }
}

/// What GitHub puts into `X-Hub-Signature-256`.
pub fn signature(secret: &str, body: &[u8]) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())
        .unwrap()
        .chain_update(body);
    let digest = mac.finalize().into_bytes();
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={digits}")
}

impl GitHub {
    /// Somebody has put a label on an issue of this GitHub.
    pub fn labeled(&self, id: &str, repository: &str, number: u64, label: &str, sender: &str) -> Delivery {
        let mut payload = example(include_str!("issues_labeled.json"), repository);
        payload["issue"]["number"] = json!(number);
        payload["issue"]["title"] = json!(format!("Number {number}"));
        payload["issue"]["labels"] = json!(shapes::labels(repository, &self.labels(repository, number)));
        payload["label"] = shapes::label(repository, label);
        payload["sender"] = shapes::user(sender);
        checked("issues$labeled", "issues", id, payload)
    }

    /// Somebody has taken a label off an issue of this GitHub.
    pub fn unlabeled(&self, id: &str, repository: &str, number: u64, label: &str, sender: &str) -> Delivery {
        let mut payload = self.labeled(id, repository, number, label, sender).payload;
        payload["action"] = json!("unlabeled");
        checked("issues$unlabeled", "issues", id, payload)
    }

    /// Somebody has deleted an issue of this GitHub.
    pub fn deleted(&self, id: &str, repository: &str, number: u64, sender: &str) -> Delivery {
        let mut payload = self.labeled(id, repository, number, "x", sender).payload;
        payload["action"] = json!("deleted");
        payload.as_object_mut().unwrap().remove("label");
        checked("issues$deleted", "issues", id, payload)
    }

    /// A pull request of this GitHub was `opened`, `closed`, or `labeled` with `need:reviewer`; from a branch of
    /// the repository `from`.
    pub fn pulled(&self, id: &str, repository: &str, number: u64, action: &str, from: &str, sender: &str) -> Delivery {
        let mut payload = example(include_str!("pull_request_opened.json"), repository);
        payload["action"] = json!(action);
        payload["number"] = json!(number);
        payload["sender"] = shapes::user(sender);
        let pull = &mut payload["pull_request"];
        pull["number"] = json!(number);
        let known = self
            .state()
            .issue(repository, number)
            .and_then(|issue| issue.body.clone());
        pull["body"] = json!(known);
        pull["labels"] = json!(shapes::labels(repository, &self.labels(repository, number)));
        pull["head"]["repo"]["full_name"] = json!(from);
        if action == "closed" {
            pull["state"] = json!("closed");
            pull["closed_at"] = pull["created_at"].clone();
        }
        if action == "labeled" {
            payload["label"] = shapes::label(repository, "need:reviewer");
        }
        checked(&format!("pull_request${action}"), "pull_request", id, payload)
    }

    /// Somebody has reviewed a pull request of this GitHub: `approved`, `commented`, `changes_requested`.
    pub fn reviewed(&self, id: &str, repository: &str, number: u64, verdict: &str, sender: &str) -> Delivery {
        let mut payload = example(include_str!("review_submitted.json"), repository);
        let pull = &mut payload["pull_request"];
        pull["number"] = json!(number);
        let known = self
            .state()
            .issue(repository, number)
            .and_then(|issue| issue.body.clone());
        pull["body"] = json!(known.unwrap_or_default());
        pull["labels"] = json!(shapes::labels(repository, &self.labels(repository, number)));
        payload["review"]["state"] = json!(verdict);
        payload["review"]["user"] = shapes::user(sender);
        payload["sender"] = shapes::user(sender);
        checked("pull_request_review$submitted", "pull_request_review", id, payload)
    }

    /// What GitHub sends when a webhook is set up.
    pub fn pinged(&self, id: &str, repository: &str) -> Delivery {
        checked("ping$event", "ping", id, example(include_str!("ping.json"), repository))
    }
}

fn example(text: &str, repository: &str) -> Value {
    let mut payload: Value = serde_json::from_str(text).unwrap();
    let (owner, name) = repository.split_once('/').unwrap();
    payload["repository"]["full_name"] = json!(repository);
    payload["repository"]["name"] = json!(name);
    payload["repository"]["owner"] = shapes::user(owner);
    payload
}

fn checked(definition: &str, event: &'static str, id: &str, payload: Value) -> Delivery {
    if let Err(error) = contract::check_delivery(definition, &payload) {
        panic!("this is no delivery of GitHub's: {error}");
    }
    Delivery {
        id: id.to_owned(),
        event,
        payload,
    }
}
