//! GitHub as labels, comments and accounts: the port of the gateway on GitHub's REST API.

mod client;

use std::sync::Arc;

use countersign_gateway::audit::Pending;
use countersign_gateway::clock::Clock;
use countersign_gateway::github::{
    GitHub, GitHubError, IssueFacts, IssueRef, LabelEvent, Permission, Repository, Trouble,
};
use hyper::header::{HeaderMap, LINK};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

pub use client::{API_DEFAULT, Access, BadAccess};
pub(crate) use client::{Call, Client, Method, Repeat};

/// Entries of a page, and pages that are read of a list.
const PAGE: usize = 100;
const PAGES_MAX: usize = 50;

/// GitHub with the control token.
#[derive(Clone)]
pub struct RestGitHub(Arc<Parts>);

struct Parts {
    client: Client,
    login: OnceCell<Option<String>>,
}

impl RestGitHub {
    /// Nothing is asked yet.
    pub fn new(access: Access, clock: Clock) -> Self {
        Self(Arc::new(Parts {
            client: Client::new(access, clock),
            login: OnceCell::new(),
        }))
    }
}

impl GitHub for RestGitHub {
    fn login(&self) -> Pending<Result<Option<String>, GitHubError>> {
        let parts = self.0.clone();
        Box::pin(async move { parts.login.get_or_try_init(|| parts.who()).await.cloned() })
    }

    fn permission(&self, of: &Repository, login: &str) -> Pending<Result<Permission, GitHubError>> {
        let (parts, login) = (self.0.clone(), login.to_owned());
        let path = format!("/repos/{}/collaborators/{login}/permission", of.as_str());
        Box::pin(async move {
            // It goes into an address, and GitHub gives nobody another name.
            if login.is_empty()
                || !login
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            {
                return Ok(Permission::None);
            }
            let said = match parts.client.get(&path).await {
                Ok(answer) => answer.body["permission"].as_str().map(str::to_owned),
                Err(error) if error.kind == Trouble::NotFound => None,
                Err(error) => return Err(error),
            };
            // GitHub tells finer roles as the next of these below them.
            Ok(match said.as_deref() {
                Some("admin") => Permission::Admin,
                Some("write") => Permission::Write,
                Some("read") => Permission::Read,
                Some(_) | None => Permission::None,
            })
        })
    }

    fn changed_files(&self, pull_request: &IssueRef) -> Pending<Result<Vec<String>, GitHubError>> {
        let parts = self.0.clone();
        let repository = pull_request.repository.as_str();
        let path = format!("/repos/{repository}/pulls/{}/files", pull_request.number);
        Box::pin(async move {
            let files = parts.all(&path).await?;
            let name = |file: &Value| file["filename"].as_str().map(str::to_owned);
            Ok(files.iter().filter_map(name).collect())
        })
    }

    fn issue(&self, of: &IssueRef) -> Pending<Result<IssueFacts, GitHubError>> {
        let (parts, path) = (self.0.clone(), place(of, ""));
        Box::pin(async move {
            let body = parts.client.get(&path).await?.body;
            let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
            Ok(IssueFacts {
                title: text("title"),
                body: text("body"),
                labels: names(&body["labels"]),
                is_pull_request: body["pull_request"].is_object(),
            })
        })
    }

    fn labels(&self, of: &IssueRef) -> Pending<Result<Vec<String>, GitHubError>> {
        let (parts, path) = (self.0.clone(), place(of, "/labels"));
        Box::pin(async move { Ok(names(&Value::Array(parts.all(&path).await?))) })
    }

    fn add_labels(&self, of: &IssueRef, labels: Vec<String>) -> Pending<Result<Vec<String>, GitHubError>> {
        let (parts, path) = (self.0.clone(), place(of, "/labels"));
        Box::pin(async move {
            let body = json!({"labels": labels});
            // A label that is there already stays, so twice is once.
            let answer = parts.send(Method::Post, &path, Some(&body), Repeat::Safe).await?;
            Ok(names(&answer))
        })
    }

    fn replace_labels(&self, of: &IssueRef, labels: Vec<String>) -> Pending<Result<Vec<String>, GitHubError>> {
        let (parts, path) = (self.0.clone(), place(of, "/labels"));
        Box::pin(async move {
            // GitHub has another word for leaving none.
            if labels.is_empty() {
                parts.send(Method::Delete, &path, None, Repeat::Safe).await?;
                return Ok(labels);
            }
            let body = json!({"labels": labels});
            let answer = parts.send(Method::Put, &path, Some(&body), Repeat::Safe).await?;
            Ok(names(&answer))
        })
    }

    fn label_events(&self, of: &IssueRef) -> Pending<Result<Vec<LabelEvent>, GitHubError>> {
        let (parts, path) = (self.0.clone(), place(of, "/events"));
        Box::pin(async move {
            let events = parts.newest(&path).await?;
            Ok(events.iter().filter_map(label_event).collect())
        })
    }

    fn create_comment(&self, of: &IssueRef, body: String) -> Pending<Result<u64, GitHubError>> {
        let (parts, path) = (self.0.clone(), place(of, "/comments"));
        Box::pin(async move {
            let body = json!({"body": body});
            let answer = parts.send(Method::Post, &path, Some(&body), Repeat::Never).await?;
            answer["id"].as_u64().ok_or_else(|| strange(&path))
        })
    }

    fn update_comment(&self, of: &Repository, id: u64, body: String) -> Pending<Result<(), GitHubError>> {
        let parts = self.0.clone();
        let path = format!("/repos/{}/issues/comments/{id}", of.as_str());
        Box::pin(async move {
            let body = json!({"body": body});
            parts
                .send(Method::Patch, &path, Some(&body), Repeat::Safe)
                .await
                .map(drop)
        })
    }

    fn find_comment(&self, of: &IssueRef, first_line: &str) -> Pending<Result<Option<u64>, GitHubError>> {
        let (this, path, wanted) = (self.clone(), place(of, "/comments"), first_line.to_owned());
        Box::pin(async move {
            // Anybody can write such a line; only a comment of our own counts, where we know who we are.
            let own = this.login().await?;
            let is_ours = |comment: &Value| match &own {
                Some(own) => comment["user"]["login"]
                    .as_str()
                    .is_some_and(|login| login.eq_ignore_ascii_case(own)),
                None => comment["user"]["type"] == "Bot",
            };
            let comments = this.0.all(&path).await?;
            let mut ours = comments.iter().filter(|comment| is_ours(comment));
            let found = ours.find(|comment| {
                let body = comment["body"].as_str().unwrap_or_default();
                body.lines().next().is_some_and(|line| line.trim_end() == wanted)
            });
            Ok(found.and_then(|comment| comment["id"].as_u64()))
        })
    }
}

impl Parts {
    /// An app's token belongs to nobody whom GitHub would name.
    async fn who(&self) -> Result<Option<String>, GitHubError> {
        match self.client.get("/user").await {
            Ok(answer) => Ok(answer.body["login"].as_str().map(str::to_owned)),
            Err(error) if error.kind == Trouble::NotFound => Ok(None),
            Err(error) if error.kind == Trouble::Refused && !error.message.contains("accept") => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        repeat: Repeat,
    ) -> Result<Value, GitHubError> {
        let call = Call {
            method,
            path,
            body,
            repeat,
        };
        Ok(self.client.call(&call).await?.body)
    }

    /// A whole list, page by page.
    async fn all(&self, path: &str) -> Result<Vec<Value>, GitHubError> {
        let mut found = Vec::new();
        for page in 1..=PAGES_MAX {
            let (items, last) = self.page(path, page).await?;
            found.extend(items);
            if page >= last {
                break;
            }
        }
        Ok(found)
    }

    /// The end of a list that grows at its end: its last page, and the one before where that is short.
    async fn newest(&self, path: &str) -> Result<Vec<Value>, GitHubError> {
        let (mut items, last) = self.page(path, 1).await?;
        if last > 1 {
            let mut found = if last > 2 {
                self.page(path, last - 1).await?.0
            } else {
                std::mem::take(&mut items)
            };
            found.extend(self.page(path, last).await?.0);
            return Ok(found);
        }
        Ok(items)
    }

    /// One page, and which the last is.
    async fn page(&self, path: &str, page: usize) -> Result<(Vec<Value>, usize), GitHubError> {
        let answer = self.client.get(&format!("{path}?per_page={PAGE}&page={page}")).await?;
        let last = last_page(&answer.headers).unwrap_or(page);
        match answer.body {
            Value::Array(items) => Ok((items, last)),
            _ => Err(strange(path)),
        }
    }
}

fn place(of: &IssueRef, rest: &str) -> String {
    format!("/repos/{}/issues/{}{rest}", of.repository.as_str(), of.number)
}

fn names(labels: &Value) -> Vec<String> {
    let all = labels.as_array().into_iter().flatten();
    all.filter_map(|label| label["name"].as_str().or_else(|| label.as_str()).map(str::to_owned))
        .collect()
}

fn label_event(event: &Value) -> Option<LabelEvent> {
    let added = match event["event"].as_str()? {
        "labeled" => true,
        "unlabeled" => false,
        _ => return None,
    };
    Some(LabelEvent {
        id: event["id"].as_u64()?,
        login: event["actor"]["login"].as_str()?.to_owned(),
        label: event["label"]["name"].as_str()?.to_owned(),
        added,
    })
}

/// The number of the last page, as GitHub links it.
fn last_page(headers: &HeaderMap) -> Option<usize> {
    let links = headers.get(LINK)?.to_str().ok()?;
    let link = links.split(',').find(|link| link.contains("rel=\"last\""))?;
    let address = link.split(['<', '>']).nth(1)?;
    let query = address.split_once('?')?.1;
    let page = query.split('&').find_map(|pair| pair.strip_prefix("page="))?;
    page.parse().ok()
}

fn strange(path: &str) -> GitHubError {
    GitHubError {
        kind: Trouble::Invalid,
        message: format!("GitHub's answer at `{path}` is not what its description says"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_page_is_read_from_the_link() {
        let mut headers = HeaderMap::new();
        let link = "<https://api.github.com/x?per_page=100&page=2>; rel=\"next\", <https://api.github.com/x?per_page=100&page=7>; rel=\"last\"";
        headers.insert(LINK, link.parse().unwrap());
        assert_eq!(last_page(&headers), Some(7));
        assert_eq!(last_page(&HeaderMap::new()), None);
    }
}
