//! What a card shows of each kind of question, and to whom it offers buttons.

use countersign_gateway::approval::ballot::{Ballot, Decider, OwnRequests};
use countersign_gateway::approval::question::Offer;
use countersign_gateway::ids::{ApprovalId, CorrelationId, CredentialId};
use countersign_gateway::session::{Caller, Role};
use serde_json::json;

use super::*;

const NOW: i64 = 1_000_000;

fn question(kind: ApprovalType, details: Value) -> ApprovalRequest {
    let mut question = ApprovalRequest::new(
        ApprovalId::trusted("a-1"),
        kind,
        CorrelationId::trusted("c-1"),
        CredentialId::trusted("local"),
        Timestamp::from_millis(NOW - 5_000),
    );
    question.tool = "execute_command".to_owned();
    question.details = details.as_object().cloned().unwrap();
    question
}

fn reader(name: &str, role: Role) -> Reader {
    Reader(Caller {
        role,
        ..Caller::person(name)
    })
}

fn html(question: &ApprovalRequest, reader: &Reader) -> String {
    let card = Card::of(
        question,
        Some("claude-code 1 over stdio"),
        reader,
        Timestamp::from_millis(NOW),
    );
    card.render().unwrap()
}

fn offers_buttons(html: &str) -> bool {
    html.contains(">Approve</button>") && html.contains(">Deny</button>")
}

#[test]
fn a_command_is_shown_with_everything_that_was_said_of_it() {
    let details = json!({
        "command": "git push", "programs": ["/usr/bin/git"], "how": "line", "cwd": "/w", "reason": "no rule covers it",
        "rule": "mode untrusted", "source": "default", "sandbox": "workspace-write", "network": "deny",
        "timeout_ms": 30_000, "risks": ["may <b>change</b> files"], "justification": "to <i>publish</i>",
        "input": "y\n", "input_bytes": 2, "env": {"A": "<1>"}, "newer": {"than": "this page"},
    });
    let html = html(
        &question(ApprovalType::ExecCommand, details),
        &reader("ana", Role::Operator),
    );
    for seen in [
        "<strong class=\"program\">git</strong> push",
        "claude-code 1 over stdio",
        "no rule covers it",
        "from default",
        "may &lt;b&gt;change&lt;/b&gt; files",
        "to &lt;i&gt;publish&lt;/i&gt;",
        "30 s",
        "&lt;1&gt;",
        "newer",
        "&quot;than&quot;: &quot;this page&quot;",
        "5 s ago",
        "Allow from now on",
    ] {
        assert!(html.contains(seen), "{seen} is not in {html}");
    }
    assert!(offers_buttons(&html));
    assert!(!html.contains("<b>change") && !html.contains("<i>publish"));
}

#[test]
fn an_agents_reason_is_told_as_its_own_and_never_as_policys() {
    let details = json!({
        "command": "rm x", "reason": "policy only wants a formal yes", "rule_reason": "no rule covers it",
        "rule": "mode untrusted",
    });
    let html = html(
        &question(ApprovalType::ExecCommand, details),
        &reader("ana", Role::Operator),
    );
    let policy = "<dt>Why you are asked</dt><dd>no rule covers it</dd>";
    let agent = "<blockquote>policy only wants a formal yes</blockquote>";
    assert!(html.contains(policy) && html.contains(agent), "{html}");
    assert_eq!(html.matches("formal yes").count(), 1, "{html}");
}

#[test]
fn a_patch_is_shown_line_by_line() {
    let details = json!({"reason": "wants to write", "fileChanges": [
        {"path": "src/a.rs", "type": "modify", "diff": "@@ -1 +1 @@\n-old <x>\n+new"},
        {"path": "b", "type": "create", "contentPreview": "hello"},
    ]});
    let html = html(
        &question(ApprovalType::ApplyPatch, details),
        &reader("ana", Role::Approver),
    );
    assert!(html.contains("<span class=\"removed\">-old &lt;x&gt;</span>"), "{html}");
    assert!(html.contains("<span class=\"added\">+new</span>") && html.contains("<span class=\"added\">+hello</span>"));
    assert!(offers_buttons(&html) && !html.contains("Allow from now on"));
}

#[test]
fn a_question_offers_its_answers() {
    let options = ["main".to_owned(), "<next>".to_owned()];
    let offer = Offer::new("Which branch?", &options, true).unwrap();
    let question = question(ApprovalType::Question, Value::Object(offer.details()));
    let html = html(&question, &reader("ana", Role::Operator));
    assert!(html.contains("Which branch?") && html.contains("name=\"custom\""));
    assert_eq!(html.matches("type=\"radio\"").count(), 2);
    assert!(!html.contains("<next>") && offers_buttons(&html));
}

#[test]
fn only_whoever_may_decide_now_has_buttons() {
    let mut open = question(ApprovalType::ExecCommand, json!({"command": "touch x"}));
    open.quorum = 2;
    assert!(offers_buttons(&html(&open, &reader("ana", Role::Approver))));
    let viewer = html(&open, &reader("vic", Role::Viewer));
    assert!(!offers_buttons(&viewer) && viewer.contains("does not decide"));
    let mut own = open.clone();
    own.owner = reader("ana", Role::Operator).0.credential;
    let own = html(&own, &reader("ana", Role::Operator));
    assert!(!offers_buttons(&own) && own.contains("asked for this yourself"));

    let says = |name: &str, choice| Ballot {
        choice,
        by: Decider::person(name, OwnRequests::Refused),
        reason: "<looks> fine".to_owned(),
        answer: None,
    };
    let now = Timestamp::from_millis(NOW);
    let once = open.with(&says("ana", Choice::Allow), None, now).unwrap();
    let agreed = html(&once, &reader("ana", Role::Operator));
    assert!(!offers_buttons(&agreed) && agreed.contains("1 of 2 people agree"));
    assert!(offers_buttons(&html(&once, &reader("ben", Role::Operator))));
    let denied = once.with(&says("ben", Choice::Deny), None, now).unwrap();
    let denied = html(&denied, &reader("cleo", Role::Operator));
    assert!(
        !offers_buttons(&denied) && denied.contains("Denied</b> by ben"),
        "{denied}"
    );
    assert!(denied.contains("&lt;looks&gt; fine") && !denied.contains("<looks>"));
}
