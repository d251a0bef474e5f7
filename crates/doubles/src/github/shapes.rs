//! The answers in full, as GitHub writes them.

use serde_json::{Value, json};

use super::state::{Comment, LabelEvent, State};

const MOMENT: &str = "2026-11-01T12:00:00Z";
const API: &str = "https://api.github.com";
const SITE: &str = "https://github.com";

pub(super) fn user(login: &str) -> Value {
    // The names of bots have brackets, which addresses write by their codes.
    let place = login.replace('[', "%5B").replace(']', "%5D");
    let url = format!("{API}/users/{place}");
    let kind = if login.ends_with("[bot]") { "Bot" } else { "User" };
    json!({
        "login": login, "id": 1, "node_id": "MDQ6VXNlcjE=", "avatar_url": format!("{SITE}/{place}.png"),
        "gravatar_id": "", "url": url, "html_url": format!("{SITE}/{place}"),
        "followers_url": format!("{url}/followers"), "following_url": format!("{url}/following{{/other_user}}"),
        "gists_url": format!("{url}/gists{{/gist_id}}"), "starred_url": format!("{url}/starred{{/owner}}{{/repo}}"),
        "subscriptions_url": format!("{url}/subscriptions"), "organizations_url": format!("{url}/orgs"),
        "repos_url": format!("{url}/repos"), "events_url": format!("{url}/events{{/privacy}}"),
        "received_events_url": format!("{url}/received_events"), "type": kind, "site_admin": false,
    })
}

/// Whoever the token belongs to.
pub(super) fn account(login: &str) -> Value {
    let mut account = user(login);
    for (name, value) in [
        ("name", json!(login)),
        ("company", Value::Null),
        ("blog", json!("")),
        ("location", Value::Null),
        ("email", Value::Null),
        ("hireable", Value::Null),
        ("bio", Value::Null),
        ("public_repos", json!(0)),
        ("public_gists", json!(0)),
        ("followers", json!(0)),
        ("following", json!(0)),
        ("created_at", json!(MOMENT)),
        ("updated_at", json!(MOMENT)),
        ("user_view_type", json!("private")),
        ("private_gists", json!(0)),
        ("total_private_repos", json!(0)),
        ("owned_private_repos", json!(0)),
        ("disk_usage", json!(0)),
        ("collaborators", json!(0)),
        ("two_factor_authentication", json!(true)),
        // What tells this form from the one for everybody.
        ("business_plus", json!(false)),
    ] {
        account[name] = value;
    }
    account
}

pub(super) fn label(repository: &str, name: &str) -> Value {
    json!({
        "id": 208_045_946, "node_id": "MDU6TGFiZWwyMDgwNDU5NDY=", "url": format!("{API}/repos/{repository}/labels/x"),
        "name": name, "description": Value::Null, "color": "ededed", "default": false,
    })
}

pub(super) fn labels(repository: &str, names: &[String]) -> Vec<Value> {
    names.iter().map(|name| label(repository, name)).collect()
}

pub(super) fn issue(state: &State, repository: &str, number: u64) -> Value {
    let url = format!("{API}/repos/{repository}/issues/{number}");
    let known = state.issue(repository, number).unwrap();
    let page = if known.is_pull_request { "pull" } else { "issues" };
    let html_url = format!("{SITE}/{repository}/{page}/{number}");
    let mut issue = json!({
        "id": number, "node_id": "MDU6SXNzdWUx", "url": url, "repository_url": format!("{API}/repos/{repository}"),
        "labels_url": format!("{url}/labels{{/name}}"), "comments_url": format!("{url}/comments"),
        "events_url": format!("{url}/events"), "html_url": html_url, "number": number, "state": "open",
        "title": format!("Number {number}"), "body": known.body, "user": user("ana"),
        "labels": labels(repository, &known.labels), "assignee": Value::Null, "assignees": [], "milestone": Value::Null,
        "locked": false, "comments": state.comments(repository, number).len(), "closed_at": Value::Null,
        "created_at": MOMENT, "updated_at": MOMENT, "author_association": "OWNER",
    });
    if known.is_pull_request {
        let pull = format!("{API}/repos/{repository}/pulls/{number}");
        issue["pull_request"] = json!({
            "url": pull, "html_url": html_url, "diff_url": format!("{html_url}.diff"),
            "patch_url": format!("{html_url}.patch"), "merged_at": Value::Null,
        });
    }
    issue
}

pub(super) fn event(event: &LabelEvent) -> Value {
    json!({
        "id": event.id, "node_id": "MDEyOkxhYmVsZWRFdmVudDE=",
        "url": format!("{API}/repos/{}/issues/events/{}", event.repository, event.id), "actor": user(&event.login),
        "event": if event.added { "labeled" } else { "unlabeled" }, "commit_id": Value::Null, "commit_url": Value::Null,
        "created_at": MOMENT, "performed_via_github_app": Value::Null,
        "label": {"name": event.label, "color": "ededed"},
    })
}

pub(super) fn comment(comment: &Comment) -> Value {
    let Comment {
        id, repository, number, ..
    } = comment;
    json!({
        "id": id, "node_id": "MDEyOklzc3VlQ29tbWVudDE=", "url": format!("{API}/repos/{repository}/issues/comments/{id}"),
        "html_url": format!("{SITE}/{repository}/issues/{number}#issuecomment-{id}"), "body": comment.body,
        "user": user(&comment.login), "created_at": MOMENT, "updated_at": MOMENT,
        "issue_url": format!("{API}/repos/{repository}/issues/{number}"), "author_association": "COLLABORATOR",
    })
}

pub(super) fn environment(repository: &str, name: &str) -> Value {
    json!({
        "id": 1, "node_id": "MDExOkVudmlyb25tZW50MQ==", "name": name,
        "url": format!("{API}/repos/{repository}/environments/{name}"),
        "html_url": format!("{SITE}/{repository}/deployments/activity_log?environments_filter={name}"),
        "created_at": MOMENT, "updated_at": MOMENT,
    })
}

pub(super) fn permission(login: &str, permission: &str) -> Value {
    let mut user = user(login);
    user["role_name"] = json!(permission);
    json!({"permission": permission, "role_name": permission, "user": user})
}

pub(super) fn file(repository: &str, path: &str) -> Value {
    let place = format!("{SITE}/{repository}/blob/main/{path}");
    json!({
        "sha": "bbcd538c8e72b8c175046e27cc8f907076331401", "filename": path, "status": "added", "additions": 1,
        "deletions": 0, "changes": 1, "blob_url": place, "raw_url": place,
        "contents_url": format!("{API}/repos/{repository}/contents/{path}"),
    })
}

pub(super) fn secret(name: &str) -> Value {
    json!({"name": name.to_uppercase(), "created_at": MOMENT, "updated_at": MOMENT})
}
