//! Tools that are no commands pass the same stations: policy, a person where it says so, the record first.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_gateway::approval::ClearedAct;
use countersign_gateway::approval::lifecycle::ApprovalStep;
use countersign_gateway::audit::act::Ending;
use countersign_gateway::audit::{Change, Pending, RecordError};
use countersign_gateway::catalog::definition::{Hints, ToolDefinition};
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::RunId;
use countersign_gateway::policy::actor::RunContext;
use countersign_gateway::policy::effective::{Mode, ToolApproval};
use countersign_gateway::tools::acts::{Act, Asked, Toolbox};
use serde_json::{Map, Value, json};

use crate::stage::{Stage, others_turn};
use crate::{no, yes};

const TOOLS: [&str; 3] = ["github_labels_add", "secret.sync.github_k8s", "github_labels_list"];

/// Writes down what it does.
struct Box3 {
    done: Arc<Mutex<Vec<String>>>,
}

impl Toolbox for Box3 {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let definition = |name: &'static str| ToolDefinition {
            name: name.into(),
            title: name.into(),
            description: name.into(),
            input_schema: json!({"type": "object"}),
            output_schema: json!({"type": "object"}),
            version: "1".into(),
            hints: Hints {
                read_only: false,
                destructive: false,
                idempotent: false,
                open_world: false,
            },
        };
        TOOLS.into_iter().map(definition).collect()
    }

    fn read(&self, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
        let label = asked.call.arguments.get("label").and_then(Value::as_str);
        let Some(label) = label else {
            return Err(Refusal::new(ErrorCode::InvalidArguments, "`label` is missing"));
        };
        Ok(Box::new(Put {
            label: label.to_owned(),
            looks: asked.call.tool == "github_labels_list",
            done: self.done.clone(),
        }))
    }
}

struct Put {
    label: String,
    looks: bool,
    done: Arc<Mutex<Vec<String>>>,
}

impl Act for Put {
    fn wants_more(&self) -> Option<String> {
        (self.label == "more").then(|| "everything".to_owned())
    }

    fn only_looks(&self) -> bool {
        self.looks
    }

    fn details(&self) -> Map<String, Value> {
        Map::from_iter([("label".to_owned(), json!(self.label))])
    }

    fn systems(&self) -> &'static [&'static str] {
        match self.label.as_str() {
            "both" | "half" => &["here", "there"],
            _ => &[],
        }
    }

    fn foresee(&self) -> Pending<Result<Option<Map<String, Value>>, Refusal>> {
        let known = (self.label == "known").then(|| Map::from_iter([("status".to_owned(), json!("as before"))]));
        Box::pin(async move { Ok(known) })
    }

    fn perform(self: Box<Self>, cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>> {
        let by = cleared.approval().map_or("policy", |_| "a person");
        self.done.lock().unwrap().push(format!("{} by {by}", self.label));
        Box::pin(async move {
            match self.label.as_str() {
                "broken" => panic!("a mistake of ours"),
                "slow" => tokio::time::sleep(Duration::from_millis(50)).await,
                "fails" => {
                    return Err(Refusal::new(
                        ErrorCode::UpstreamError,
                        "they said password=hunter2hunter2",
                    ));
                }
                "half" => {
                    let journal = cleared.journal().expect("an act that is open");
                    let told = journal.tell("here", Ending::Applied, Change::default()).await;
                    told.expect("recorded");
                    return Err(Refusal::new(ErrorCode::UpstreamError, "nobody is there"));
                }
                _ => {}
            }
            Ok(Map::from_iter([("status".to_owned(), json!("ok"))]))
        })
    }
}

pub(crate) fn equipped(stage: &Stage) -> Arc<Mutex<Vec<String>>> {
    let done: Arc<Mutex<Vec<String>>> = Arc::default();
    stage.gateway().equip(vec![Arc::new(Box3 { done: done.clone() })]);
    done
}

pub(crate) fn done(list: &Arc<Mutex<Vec<String>>>) -> Vec<String> {
    list.lock().unwrap().clone()
}

#[tokio::test]
async fn an_act_that_was_recorded_is_done_whoever_goes_away() {
    let stage = Arc::new(Stage::new(Mode::Untrusted).hesitating());
    let list = equipped(&stage);
    let waiting = tokio::spawn({
        let stage = stage.clone();
        async move { stage.call("github_labels_add", json!({"label": "x"})).await }
    });
    while stage.story().is_empty() {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    others_turn().await;
    assert_eq!(done(&list), ["x by policy"]);
    assert_eq!(
        stage.story(),
        ["commit mcp.tool.requested", "commit mcp.tool.applied"],
        "nobody was answered"
    );
}

#[tokio::test]
async fn an_act_is_recorded_before_it_is_done_and_its_call_before_it_is_answered() {
    let stage = Stage::new(Mode::Untrusted);
    let list = equipped(&stage);
    let answer = stage.call("github_labels_add", json!({"label": "x"})).await;
    assert_eq!(
        (answer["status"].as_str(), done(&list)),
        (Some("ok"), vec!["x by policy".to_owned()])
    );
    assert_eq!(
        stage.story(),
        [
            "commit mcp.tool.requested",
            "commit mcp.tool.applied",
            "commit tool.called"
        ]
    );
    assert_eq!(stage.payload("mcp.tool.requested")["details"], json!({"label": "x"}));
    let events = stage.events();
    assert!(
        events
            .iter()
            .all(|event| event.correlation_id == events[0].correlation_id)
    );
}

#[tokio::test]
async fn looking_leaves_one_event() {
    let stage = Stage::new(Mode::Untrusted);
    equipped(&stage);
    stage.call("github_labels_list", json!({"label": "x"})).await;
    assert_eq!(stage.story(), ["commit tool.called"]);
}

#[tokio::test]
async fn without_a_record_nothing_is_done() {
    let stage = Stage::new(Mode::Untrusted);
    let list = equipped(&stage);
    stage.fail_commits(RecordError::Unavailable("the disk is full".to_owned()));
    let answer = stage.call("github_labels_add", json!({"label": "x"})).await;
    assert_eq!(
        (answer["error_code"].as_str(), done(&list).len()),
        (Some("AUDIT_UNAVAILABLE"), 0)
    );
}

#[tokio::test]
async fn a_question_that_only_the_table_calls_approved_lets_no_act_go() {
    let mut stage = Stage::new(Mode::Never);
    stage.answer_within = Duration::from_millis(1);
    let list = equipped(&stage);
    let call = || stage.call("secret.sync.github_k8s", json!({"label": "x"}));
    assert_eq!(call().await["error_code"], "APPROVAL_PENDING");
    stage.forge(|asked| {
        let at = asked.created_at;
        asked.step(ApprovalStep::Approve, at).unwrap()
    });
    let refused = call().await;
    assert_eq!(refused["error_code"], "APPROVAL_DENIED", "{refused}");
    assert_eq!(done(&list).len(), 0);
    assert_eq!(stage.approvals()[0].state().as_str(), "failed");
    assert_eq!(call().await["error_code"], "APPROVAL_PENDING", "it is asked anew");
    assert_eq!(stage.approvals().len(), 2);
}

#[tokio::test]
async fn an_act_that_asks_is_done_once_and_only_after_a_yes() {
    let stage = Stage::new(Mode::Never).answering(yes());
    let list = equipped(&stage);
    let call = || stage.call("secret.sync.github_k8s", json!({"label": "x"}));
    assert_eq!(call().await["status"], "ok");
    assert_eq!(done(&list), ["x by a person"]);
    assert_eq!(
        stage.story(),
        [
            "commit approval.requested run.wait.paused",
            "ask secret.sync.github_k8s",
            "commit approval.approved run.wait.resumed",
            "commit mcp.tool.requested",
            "commit mcp.tool.applied",
            "commit tool.called",
        ]
    );
    assert_eq!(stage.approvals()[0].state().as_str(), "applied");
    // The yes is used up: the same again is another question.
    call().await;
    assert_eq!(stage.approvals().len(), 2);
}

#[tokio::test]
async fn a_question_that_takes_long_is_answered_by_the_same_call_again() {
    let stage = Stage::new(Mode::Untrusted);
    let list = equipped(&stage);
    let soon = Duration::from_millis(5);
    let call = |label: &str| stage.call_within("secret.sync.github_k8s", json!({"label": label}), soon);
    let pending = call("x").await.structured;
    assert_eq!(
        (&pending["error_code"], &pending["status"]),
        (&json!("APPROVAL_PENDING"), &json!("pending"))
    );
    let question = stage.asked().await;
    assert_eq!(pending["approval_id"], question.id.as_str());
    assert_eq!(question.kind.as_str(), "tool-call");
    assert_eq!(
        call("x").await.structured["approval_id"],
        question.id.as_str(),
        "not asked twice"
    );
    assert_ne!(
        call("y").await.structured["approval_id"],
        question.id.as_str(),
        "another act"
    );
    stage.board().decide(&question.id, yes()).await.unwrap();
    assert_eq!(call("x").await.structured["status"], "ok");
    assert_eq!(done(&list), ["x by a person"]);
}

#[tokio::test]
async fn a_no_is_told_and_nothing_is_done() {
    let stage = Stage::new(Mode::Untrusted).answering(no());
    let list = equipped(&stage);
    let answer = stage.call("secret.sync.github_k8s", json!({"label": "x"})).await;
    assert_eq!(
        (answer["error_code"].as_str(), done(&list).len()),
        (Some("APPROVAL_DENIED"), 0)
    );
    assert_eq!(answer["error"]["code"], "APPROVAL_DENIED");
}

#[tokio::test]
async fn more_than_policy_gives_is_asked_for_or_denied() {
    let stage = Stage::new(Mode::Untrusted).answering(yes());
    let list = equipped(&stage);
    stage.call("github_labels_add", json!({"label": "more"})).await;
    assert_eq!(done(&list), ["more by a person"]);
    let stage = Stage::new(Mode::Never).answering(yes());
    let list = equipped(&stage);
    let answer = stage.call("github_labels_add", json!({"label": "more"})).await;
    assert_eq!(
        (answer["error_code"].as_str(), done(&list).len()),
        (Some("POLICY_DENIED"), 0)
    );
}

#[tokio::test]
async fn what_policy_denies_or_hides_is_not_done() {
    let stage = Stage::new(Mode::Untrusted).asking_for("github_labels_add", ToolApproval::Deny);
    let list = equipped(&stage);
    let answer = stage.call("github_labels_add", json!({"label": "x"})).await;
    assert_eq!(
        (answer["error_code"].as_str(), done(&list).len()),
        (Some("POLICY_DENIED"), 0)
    );
    assert!(!stage.tools().contains(&"github_labels_add".to_owned()));
    let stage = Stage::new(Mode::Untrusted).without_tool("github_labels_add");
    equipped(&stage);
    let refused = stage
        .try_call("github_labels_add", json!({"label": "x"}))
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::UnknownTool);
    // Nobody brought this one.
    let refused = stage.try_call("run_status_report", json!({})).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::UnknownTool);
}

#[tokio::test]
async fn arguments_that_cannot_be_read_are_refused_and_recorded() {
    let stage = Stage::new(Mode::Untrusted);
    equipped(&stage);
    let answer = stage.call("github_labels_add", json!({})).await;
    assert_eq!(answer["error_code"], "INVALID_ARGUMENTS");
    assert_eq!(stage.story(), ["commit tool.called"]);
}

/// The ends of acts in the record: the event, its system and its code.
fn ends(stage: &Stage) -> Vec<String> {
    let events = stage.events();
    let ends = events
        .iter()
        .filter(|event| matches!(event.event_type.as_str(), "mcp.tool.applied" | "mcp.tool.failed"));
    ends.map(|event| {
        let payload: Value = serde_json::from_str(event.payload()).unwrap();
        let said = [&payload["system"], &payload["code"]].map(|it| it.as_str().unwrap_or_default().to_owned());
        let state = event.approval_state.map_or("", |state| state.as_str());
        format!("{} {} {} {state}", event.event_type.as_str(), said[0], said[1])
    })
    .collect()
}

#[tokio::test]
async fn an_act_that_fails_leaves_its_code_and_no_secret_and_uses_its_approval_up() {
    let stage = Stage::new(Mode::Untrusted).answering(yes());
    equipped(&stage);
    let answer = stage.call("secret.sync.github_k8s", json!({"label": "fails"})).await;
    assert_eq!(answer["error_code"], "UPSTREAM_ERROR");
    assert_eq!(ends(&stage), ["mcp.tool.failed  UPSTREAM_ERROR failed"]);
    assert_eq!(
        stage.payload("mcp.tool.failed")["reason"],
        "they said password=[redacted]"
    );
    assert_eq!(stage.approvals()[0].state().as_str(), "failed");
}

#[tokio::test]
async fn an_act_that_went_wrong_has_failed_and_one_that_was_not_let_go_is_rejected() {
    let stage = Stage::new(Mode::Untrusted).answering(yes());
    equipped(&stage);
    let answer = stage.call("github_labels_add", json!({"label": "fails"})).await;
    assert_eq!(
        (&answer["error_code"], &answer["status"]),
        (&json!("UPSTREAM_ERROR"), &json!("failed"))
    );
    let stage = Stage::new(Mode::Untrusted).answering(no());
    equipped(&stage);
    let answer = stage.call("secret.sync.github_k8s", json!({"label": "fails"})).await;
    assert_eq!(
        (&answer["error_code"], &answer["status"]),
        (&json!("APPROVAL_DENIED"), &json!("rejected"))
    );
}

#[tokio::test]
async fn an_act_upon_two_systems_leaves_one_end_of_each() {
    let stage = Stage::new(Mode::Untrusted);
    equipped(&stage);
    stage.call("github_labels_add", json!({"label": "both"})).await;
    assert_eq!(ends(&stage), ["mcp.tool.applied here  ", "mcp.tool.applied there  "]);
    let stage = Stage::new(Mode::Untrusted).answering(yes());
    equipped(&stage);
    stage.call("secret.sync.github_k8s", json!({"label": "half"})).await;
    assert_eq!(
        ends(&stage),
        [
            "mcp.tool.applied here  applied",
            "mcp.tool.failed there UPSTREAM_ERROR failed"
        ]
    );
}

#[tokio::test]
async fn an_act_that_breaks_off_inside_is_ended_all_the_same() {
    let stage = Stage::new(Mode::Untrusted);
    equipped(&stage);
    let answer = stage.call("github_labels_add", json!({"label": "broken"})).await;
    assert_eq!(answer["error_code"], "INTERNAL_ERROR");
    assert_eq!(ends(&stage), ["mcp.tool.failed  INTERNAL_ERROR "]);
}

#[tokio::test]
async fn an_act_goes_on_to_its_end_when_nobody_waits_for_it() {
    let stage = Stage::new(Mode::Untrusted);
    equipped(&stage);
    let call = stage.call("github_labels_add", json!({"label": "slow"}));
    assert!(tokio::time::timeout(Duration::from_millis(10), call).await.is_err());
    while ends(&stage).is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(ends(&stage), ["mcp.tool.applied   "]);
}

#[tokio::test]
async fn where_there_is_nothing_to_do_nobody_is_asked() {
    let stage = Stage::new(Mode::Untrusted);
    let list = equipped(&stage);
    let answer = stage.call("secret.sync.github_k8s", json!({"label": "known"})).await;
    assert_eq!((answer["status"].as_str(), done(&list).len()), (Some("as before"), 0));
    assert_eq!(stage.story(), ["commit tool.called"]);
    let stage = Stage::new(Mode::Untrusted).asking_for("secret.sync.*", ToolApproval::Deny);
    equipped(&stage);
    let answer = stage.call("secret.sync.github_k8s", json!({"label": "known"})).await;
    assert_eq!(answer["error_code"], "POLICY_DENIED", "policy comes first");
}

#[tokio::test]
async fn what_is_asked_and_done_in_a_run_says_so() {
    let run = RunContext {
        run_id: Some(RunId::trusted("run-1")),
        agent_key: Some("sre".to_owned()),
        label: Some("run:ops".to_owned()),
        ..RunContext::default()
    };
    let stage = Stage::new(Mode::Untrusted).answering(yes()).in_run(run);
    equipped(&stage);
    stage.call("secret.sync.github_k8s", json!({"label": "x"})).await;
    assert_eq!(stage.approvals()[0].run_id.as_deref(), Some("run-1"));
    for kind in ["approval.requested", "mcp.tool.requested", "mcp.tool.applied"] {
        assert_eq!(stage.payload(kind)["run_id"], "run-1", "{kind}");
    }
}
