//! What the tool matrix and the policies of runs do to calls.

use std::collections::BTreeSet;

use countersign_gateway::audit::RecordError;
use countersign_gateway::audit::event::{Actor, ActorType, ApprovalState};
use countersign_gateway::policy::actor::RunContext;
use countersign_gateway::policy::effective::EffectivePolicy;
use countersign_gateway::policy::effective::{Mode, ToolApproval};
use countersign_gateway::policy::merge::{Action, ToolPolicy};
use countersign_gateway::policy::whitelist::{RuleText, Source, WhitelistRule};
use countersign_gateway::service::Service;
use countersign_gateway::session::{Caller, Role, Transport};
use countersign_gateway::spine::Adopted;
use serde_json::{Value, json};

use crate::stage::{Stage, outlook};
use crate::yes;

fn code(answer: &Value) -> &str {
    answer["error_code"].as_str().unwrap_or("none")
}

#[tokio::test]
async fn the_matrix_asks_in_every_mode_and_the_strictest_wins() {
    use ToolApproval::{Deny, None, Required};
    let asked = |stage: &Stage| stage.story().iter().any(|line| line.starts_with("ask"));
    for mode in Mode::ALL.iter().copied() {
        for (approval, more, expected) in [
            (None, false, (mode == Mode::Untrusted, "none")),
            (Required, false, (true, "none")),
            (Deny, false, (false, "POLICY_DENIED")),
            (Deny, true, (false, "POLICY_DENIED")),
            (
                Required,
                true,
                match mode {
                    Mode::Never => (false, "POLICY_DENIED"),
                    _ => (true, "none"),
                },
            ),
        ] {
            let stage = Stage::new(mode).answering(yes()).asking_for("execute_*", approval);
            let mut call = json!({"file": "true", "args": ["x"]});
            if more {
                call["network"] = json!("allow");
            }
            let answer = stage.call("execute_process", call).await;
            assert_eq!(
                (asked(&stage), code(&answer)),
                expected,
                "{mode:?} {approval:?} more: {more}: {answer}"
            );
        }
    }
}

#[tokio::test]
async fn a_tool_that_only_may_read_runs_no_commands() {
    let reading = ToolPolicy {
        actions: Some(BTreeSet::from([Action::Read])),
        ..ToolPolicy::default()
    };
    let stage = Stage::new(Mode::Never).with_tool("*", reading);
    assert_eq!(stage.tools(), ["command_status"]);
    let answer = stage.call("execute_process", json!({"file": "true", "args": []})).await;
    assert_eq!(code(&answer), "POLICY_DENIED");
    let answer = stage.call("command_cancel", json!({"request_id": "r"})).await;
    assert_eq!(code(&answer), "POLICY_DENIED");
    let answer = stage.call("command_status", json!({"request_id": "r"})).await;
    assert_eq!(code(&answer), "NOT_FOUND");
}

/// There is no question about looking at one's own commands, so what needs one is refused.
#[tokio::test]
async fn what_cannot_be_asked_about_is_refused() {
    let stage = Stage::new(Mode::Never).asking_for("command_status", ToolApproval::Required);
    let answer = stage.call("command_status", json!({"request_id": "r"})).await;
    assert_eq!(code(&answer), "POLICY_DENIED");
}

#[tokio::test]
async fn a_tool_for_others_is_unknown_and_not_listed() {
    let for_sre = ToolPolicy {
        roles: Some(BTreeSet::from(["sre".to_owned()])),
        ..ToolPolicy::default()
    };
    let run = |agent: &str| RunContext {
        agent_key: Some(agent.to_owned()),
        label: Some("run:ops".to_owned()),
        ..RunContext::default()
    };
    let call = json!({"command": "true", "working_directory": "."});
    let dev = Stage::new(Mode::Never)
        .with_tool("run_command", for_sre.clone())
        .in_run(run("dev"));
    assert!(!dev.tools().contains(&"run_command".to_owned()));
    let refusal = dev.try_call("run_command", call.clone()).await.unwrap_err();
    assert_eq!(refusal.code.name(), "UNKNOWN_TOOL");
    let sre = Stage::new(Mode::Never)
        .with_tool("run_command", for_sre)
        .in_run(run("sre"));
    assert!(sre.tools().contains(&"run_command".to_owned()));
    assert_eq!(sre.call("run_command", call).await["status"], "ok");
}

/// What was decided can be decided again: the digest names the policy, the keys the caller.
#[tokio::test]
async fn every_decision_is_recorded_with_digest_sources_and_keys() {
    let run = RunContext {
        agent_key: Some("sre".to_owned()),
        label: Some("run:ops".to_owned()),
        labels: BTreeSet::from(["bug".to_owned()]),
        ..RunContext::default()
    };
    let keys = json!({"role": "agent", "agent_key": "sre", "label": "run:ops", "labels": ["bug", "run:ops"]});
    for (file, rule) in [("true", None), ("id", Some("allowlist"))] {
        let stage = Stage::new(Mode::Never).in_run(run.clone());
        stage.call("execute_process", json!({"file": file, "args": []})).await;
        let closing = stage.payload("command.completed");
        let snapshot = &closing["policy_snapshot"];
        assert_eq!(snapshot["keys"], keys);
        assert_eq!(snapshot["sources"], json!(["test"]));
        assert_eq!(snapshot["digest"].as_str().unwrap().len(), 64);
        assert_eq!(closing["rule"].as_str(), rule);
        if rule.is_none() {
            let validated = stage.payload("command.validated");
            assert_eq!(validated["policy_digest"], snapshot["digest"]);
            assert_eq!(validated["policy_keys"], keys);
        }
    }
    let outside = Stage::new(Mode::Never);
    outside
        .call("execute_process", json!({"file": "true", "args": []}))
        .await;
    let keys = &outside.payload("command.completed")["policy_snapshot"]["keys"];
    assert_eq!(*keys, json!({"role": "agent"}));
}

pub(crate) fn ana() -> Actor {
    Actor {
        kind: ActorType::Human,
        id: "ana".to_owned(),
    }
}

/// The same policy with one more rule in its whitelist.
pub(crate) fn allowing(policy: &EffectivePolicy, pattern: &str) -> EffectivePolicy {
    let text = RuleText {
        pattern,
        reason: "test",
        enabled: true,
        source: Source::Global,
        matches: &[],
        not_matches: &[],
    };
    let mut policy = policy.clone();
    policy.approval.whitelist.push(WhitelistRule::new(&text).unwrap());
    policy
}

#[tokio::test]
async fn another_policy_is_in_the_record_before_it_is_in_force() {
    let stage = Stage::new(Mode::Untrusted).answering(yes());
    let asked = || stage.approvals().iter().filter(|approval| !approval.automatic).count();
    let call = json!({"file": "true", "args": ["x"]});
    let next = allowing(&stage.policy, "^true x$");
    assert_eq!(stage.call("execute_process", call.clone()).await["status"], "ok");
    stage.fail_commits(RecordError::Unavailable("full".to_owned()));
    let refused = stage.gateway().adopt(next.clone(), outlook(), &ana()).await;
    assert!(refused.is_err(), "no record, no change");
    stage.mend_commits();
    assert_eq!(stage.call("execute_process", call.clone()).await["status"], "ok");
    assert_eq!(asked(), 2, "the old policy holds");

    let before = stage.gateway().policy_digest();
    assert_eq!(
        stage.gateway().adopt(next.clone(), outlook(), &ana()).await,
        Ok(Adopted::Now)
    );
    assert_eq!(stage.gateway().adopt(next, outlook(), &ana()).await, Ok(Adopted::Same));
    assert_eq!(stage.call("execute_process", call).await["status"], "ok");
    assert_eq!(asked(), 2, "nobody is asked under the new one");
    let written: Vec<_> = stage
        .events()
        .into_iter()
        .filter(|event| event.event_type.as_str() == "policy.changed")
        .collect();
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].actor, ana());
    let payload: Value = serde_json::from_str(written[0].payload()).unwrap();
    assert_eq!(
        (&payload["digest"], &payload["before"]),
        (&json!(stage.gateway().policy_digest()), &json!(before))
    );
}

#[tokio::test]
async fn a_call_that_waits_goes_on_when_the_policy_changes() {
    let stage = Stage::new(Mode::Untrusted);
    let gateway = stage.gateway();
    let deciding = async {
        let question = stage.asked().await;
        let next = allowing(&stage.policy, "^nothing$");
        gateway.adopt(next, outlook(), &ana()).await.unwrap();
        stage.board().decide(&question.id, yes()).await.unwrap();
    };
    let (answer, ()) = tokio::join!(
        stage.call("execute_process", json!({"file": "true", "args": ["x"]})),
        deciding
    );
    assert_eq!(answer["status"], "ok", "{answer}");
}

#[tokio::test]
async fn what_the_policy_in_force_denies_is_not_done_though_somebody_says_yes() {
    let stage = Stage::new(Mode::Untrusted);
    let gateway = stage.gateway();
    let deciding = async {
        let question = stage.asked().await;
        let denies = Stage::new(Mode::Untrusted).asking_for("execute_process", ToolApproval::Deny);
        gateway.adopt(denies.policy.clone(), outlook(), &ana()).await.unwrap();
        stage.board().decide(&question.id, yes()).await.unwrap();
        question
    };
    let (answer, question) = tokio::join!(
        stage.call("execute_process", json!({"file": "true", "args": ["x"]})),
        deciding
    );
    assert_eq!((code(&answer), stage.runs()), ("POLICY_DENIED", 0), "{answer}");
    let given_up = stage.board().find(&question.id).await.unwrap().unwrap();
    assert_eq!(given_up.state(), ApprovalState::Failed);
}

#[tokio::test]
async fn an_approval_of_the_old_policy_does_not_count_under_the_new_one() {
    let mut stage = Stage::new(Mode::Untrusted);
    stage.answer_within = std::time::Duration::from_millis(1);
    let call = || stage.call("execute_process", json!({"file": "true", "args": ["x"]}));
    assert_eq!(code(&call().await), "APPROVAL_PENDING");
    let question = stage.asked().await;
    let next = allowing(&stage.policy, "^nothing$");
    stage.gateway().adopt(next, outlook(), &ana()).await.unwrap();
    stage.board().decide(&question.id, yes()).await.unwrap();
    let again = call().await;
    assert_eq!(code(&again), "APPROVAL_PENDING", "{again}");
    assert_eq!(stage.runs(), 0);
    assert_ne!(stage.asked().await.id, question.id, "it is another question");
}

#[tokio::test]
async fn clients_hear_of_it_when_tools_come_or_go_and_only_then() {
    let stage = Stage::new(Mode::Untrusted);
    let gateway = stage.gateway();
    let mut changes = gateway.tool_changes();
    let rule = allowing(&stage.policy, "^true x$");
    gateway.adopt(rule, outlook(), &ana()).await.unwrap();
    assert!(!changes.has_changed().unwrap());
    let less = Stage::new(Mode::Untrusted).without_tool("run_command").policy.clone();
    gateway.adopt(less, outlook(), &ana()).await.unwrap();
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    assert!(!stage.tools().contains(&"run_command".to_owned()));
    gateway.adopt(stage.policy.clone(), outlook(), &ana()).await.unwrap();
    assert!(changes.has_changed().unwrap() && stage.tools().contains(&"run_command".to_owned()));
}

#[tokio::test]
async fn an_agent_reads_its_own_policy_and_others_read_all_of_it() {
    let mut stage = Stage::new(Mode::Untrusted);
    stage.policy.places.hidden = std::sync::Arc::new(["/home/ana/.ssh".into()]);
    let stage = stage.without_tool("execute_command");
    let gateway = stage.gateway();
    let agent = Caller::anonymous_agent(Transport::Stdio);
    let agents = gateway.policy(&agent);
    assert_eq!(agents["content"]["approval_mode"], "untrusted");
    assert!(agents["content"]["timeout_seconds_max"].is_number());
    assert!(!agents["tools"].as_array().unwrap().contains(&json!("execute_command")));
    assert!(agents["tools"].as_array().unwrap().contains(&json!("execute_process")));
    // Not where secrets are, nor what holds for others.
    for absent in ["hidden", "sources", "rule_sources", "policies", "catalog", "whitelist"] {
        assert_eq!(agents["content"][absent], Value::Null, "{absent}");
    }
    let operator = Caller {
        role: Role::Operator,
        ..agent
    };
    let all = gateway.policy(&operator);
    assert_eq!(all["content"]["hidden"], json!(["/home/ana/.ssh"]));
    assert_eq!(all["digest"], agents["digest"]);
}
