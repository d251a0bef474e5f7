//! Every call of a tool leaves exactly one invocation in the record, however it came out.

use std::collections::HashMap;

use countersign_gateway::audit::RecordError;
use countersign_gateway::audit::event::{Draft, EventType};
use countersign_gateway::audit::invocation::{Entry, SETTLING, Sources, derive};
use countersign_gateway::ids::SessionId;
use countersign_gateway::policy::effective::Mode;
use countersign_gateway::service::Origin;
use countersign_gateway::session::{Caller, Role, Transport};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::stage::Stage;

/// The invocations that these events tell of, as a store finds them.
fn invocations(events: &[Draft]) -> Vec<Value> {
    let entry = |draft: &Draft| Entry {
        event_id: draft.event_id.as_str().to_owned(),
        timestamp: draft.timestamp,
        correlation_id: draft.correlation_id.as_str().to_owned(),
        event_type: draft.event_type,
        payload: serde_json::from_str(draft.payload()).unwrap(),
    };
    let of = |draft: &Draft, kind: EventType| {
        let mut all = events.iter();
        all.find(|other| other.correlation_id == draft.correlation_id && other.event_type == kind)
    };
    let counts = |draft: &&Draft| {
        SETTLING.contains(&draft.event_type)
            && (draft.event_type != EventType::CommandCompleted || of(draft, EventType::ToolAnswered).is_none())
    };
    let told = events.iter().filter(counts).map(|draft| {
        derive(Sources {
            settling: entry(draft),
            opening: of(draft, EventType::CommandReceived).map(entry),
            command: None,
            session: None,
        })
    });
    told.map(|told| told.unwrap().to_json()).collect()
}

fn origin(rpc_id: usize) -> Origin {
    Origin {
        session: Some(SessionId::trusted("the-session")),
        rpc_id: Some(rpc_id.to_string()),
        remembered: None,
        reuses_ids: false,
    }
}

fn agent() -> Caller {
    Caller::anonymous_agent(Transport::StreamableHttp)
}

/// What a client may send, sensible or not.
fn calls() -> impl Strategy<Value = (String, Value)> {
    let id = prop_oneof![Just(None), "[ab]".prop_map(Some)];
    let command = (prop_oneof![Just("true"), Just("id")], id.clone()).prop_map(|(file, id)| {
        let mut arguments = json!({"file": file, "args": []});
        if let Some(id) = id {
            arguments["request_id"] = id.into();
        }
        ("execute_process".to_owned(), arguments)
    });
    let look = (prop_oneof![Just("command_status"), Just("command_cancel")], id)
        .prop_map(|(tool, id)| (tool.to_owned(), json!({"request_id": id})));
    let odd = prop_oneof![
        Just(("execute_process".to_owned(), json!({"file": 1}))),
        Just(("run_command".to_owned(), json!({}))),
        Just(("command_status".to_owned(), json!({}))),
        Just(("no_such_tool".to_owned(), json!({"x": [1]}))),
        Just((String::new(), json!({}))),
    ];
    prop_oneof![command, look, odd]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_call_of_any_outcome_leaves_exactly_one_invocation(calls in proptest::collection::vec(calls(), 1..12), holds: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let stage = Stage::new(Mode::Never);
            let stage = if holds { stage.holding() } else { stage };
            let mut answers = HashMap::new();
            for (number, (tool, arguments)) in calls.iter().enumerate() {
                let answer = stage.call_as(agent(), origin(number), tool, arguments.clone()).await;
                answers.insert(number, answer);
            }
            stage.stop().await;
            let told = invocations(&stage.events());
            prop_assert_eq!(told.len(), calls.len());
            for (number, answer) in answers {
                let call = told.iter().find(|call| call["requestId"] == number).unwrap();
                prop_assert_eq!(&call["toolName"], &json!(calls[number].0));
                prop_assert_eq!(&call["sessionId"], &json!(SessionId::trusted("the-session").mark()));
                let (went_well, code) = match &answer {
                    Ok(answer) => (matches!(answer["status"].as_str(), Some("ok" | "running")), answer["error_code"].clone()),
                    Err(refusal) => (false, json!(refusal.code.name())),
                };
                prop_assert_eq!(call["status"] == "ok", went_well, "{}", call);
                prop_assert_eq!(call.get("result").is_some(), went_well);
                prop_assert_eq!(call.get("error").is_some(), !went_well);
                prop_assert_eq!(&call["error"]["data"]["errorCode"], &code);
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_call_answered_early_is_recorded_at_that_moment() {
    let stage = Stage::new(Mode::Never).holding();
    let answer = stage
        .call_as(
            agent(),
            origin(1),
            "execute_process",
            json!({"file": "true", "args": []}),
        )
        .await
        .unwrap();
    assert_eq!(answer["status"], "running");
    let [call] = &invocations(&stage.events())[..] else {
        panic!("one invocation: {:?}", stage.story());
    };
    assert_eq!(
        (&call["status"], &call["result"]["status"]),
        (&json!("ok"), &json!("running"))
    );
    assert_eq!(stage.story().last().unwrap(), "commit tool.answered");
}

#[tokio::test]
async fn a_forbidden_role_leaves_its_call_behind() {
    let stage = Stage::new(Mode::Never);
    let viewer = Caller {
        role: Role::Viewer,
        ..agent()
    };
    let refused = stage
        .call_as(
            viewer,
            origin(1),
            "execute_command",
            json!({"command": "ls", "input": "hunter22"}),
        )
        .await;
    let refused = refused.unwrap_err();
    let [call] = &invocations(&stage.events())[..] else {
        panic!("one invocation: {:?}", stage.story());
    };
    assert_eq!(call["error"]["code"], -32003);
    let told = refused.correlation_id.unwrap();
    assert_eq!(
        call["correlation_id"],
        told.as_str(),
        "the client and the record call it the same"
    );
    assert_eq!(call["arguments"], json!({"command": "ls", "input": "[8 bytes]"}));
}

#[tokio::test]
async fn looking_at_a_command_is_not_answered_unrecorded() {
    let stage = Stage::new(Mode::Never);
    stage
        .call(
            "execute_process",
            json!({"file": "true", "args": [], "request_id": "r1"}),
        )
        .await;
    stage.fail_commits(RecordError::Unavailable("the disk is full".into()));
    for tool in ["command_status", "command_cancel"] {
        let answer = stage.call(tool, json!({"request_id": "r1"})).await;
        assert_eq!(
            (&answer["error_code"], &answer["request_id"]),
            (&json!("AUDIT_UNAVAILABLE"), &json!("r1"))
        );
    }
}

#[tokio::test]
async fn a_person_at_the_terminal_makes_no_invocations_by_looking() {
    let stage = Stage::new(Mode::Never);
    let person = || Caller::person("ana");
    let looked = stage.call_as(
        person(),
        Origin::default(),
        "command_status",
        json!({"request_id": "r1"}),
    );
    assert_eq!(looked.await.unwrap()["error_code"], "NOT_FOUND");
    assert_eq!(stage.events().len(), 0);
}
