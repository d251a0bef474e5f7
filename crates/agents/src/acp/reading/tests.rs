//! What is said and not said to an agent, by what it answered.

use countersign_gateway::job::guidance::Guidance;
use countersign_gateway::policy::effective::Mode;

use super::*;

fn client() -> Client {
    client_of(None)
}

fn client_of(known: Option<Known>) -> Client {
    let terms = Terms {
        job_id: "job".to_owned(),
        caller: "tester".to_owned(),
        cwd: "/work".into(),
        model: None,
        effort: None,
        mode: Mode::Untrusted,
        sandbox: SandboxMode::WorkspaceWrite,
        keeps_still: false,
        environment: BTreeMap::new(),
        endpoint: None,
        guidance: Guidance::default(),
    };
    let mut client = Client::new("agent".to_owned(), known, &terms, vec![Input::Text("hello".to_owned())]);
    client.begin();
    client
}

/// Answers the request with this number; gives the methods of what is written then, and how a turn ended.
fn answer(client: &mut Client, mut message: Value, id: u64) -> (Vec<String>, Option<TurnEnd>) {
    message["id"] = json!(id);
    let (mut written, mut end) = (Vec::new(), None);
    for step in client.hear(&message.to_string()) {
        match step {
            Step::Write(value) => written.push(text_at(&value, &["method"]).unwrap_or_default().to_owned()),
            Step::Tell(event) => {
                if let AgentEventKind::TurnEnded(how) = event.kind {
                    end = Some(how);
                }
            }
            Step::Begin | Step::End => {}
        }
    }
    (written, end)
}

fn opened(mode: &str) -> Value {
    json!({"result": {"sessionId": "s",
        "modes": {"currentModeId": mode, "availableModes": [{"id": "default"}, {"id": "bypass"}]}}})
}

#[test]
fn nothing_is_said_before_an_agent_is_in_a_mode_in_which_it_asks() {
    let mut asking = client();
    assert_eq!(answer(&mut asking, json!({"result": {}}), 0).0, ["session/new"]);
    assert_eq!(answer(&mut asking, opened("default"), 1).0, ["session/prompt"]);

    let mut another = client();
    answer(&mut another, json!({"result": {}}), 0);
    assert_eq!(answer(&mut another, opened("bypass"), 1).0, ["session/set_mode"]);
    assert!(another.is_busy());
    // There is no turn to cancel yet.
    assert_eq!(another.interrupt(), Interruption::Signals);

    let mut another = client();
    answer(&mut another, json!({"result": {}}), 0);
    answer(&mut another, opened("bypass"), 1);
    assert_eq!(answer(&mut another, json!({"result": {}}), 2).0, ["session/prompt"]);
}

#[test]
fn an_agent_that_does_not_take_the_mode_in_which_it_asks_is_told_nothing() {
    let mut client = client();
    answer(&mut client, json!({"result": {}}), 0);
    answer(&mut client, opened("bypass"), 1);
    let (written, end) = answer(&mut client, json!({"error": {"code": 1, "message": "no"}}), 2);
    assert_eq!(written, Vec::<String>::new());
    assert!(matches!(end, Some(TurnEnd::Failed { message, .. }) if message.ends_with("asks: no")));
    let more = client.send(vec![Input::Text("more".to_owned())]);
    assert!(matches!(more, Err(DriverError::Unsupported(_))));
}

#[test]
fn an_error_that_is_null_is_none() {
    let mut client = client();
    let introduced = json!({"result": {}, "error": null});
    assert_eq!(answer(&mut client, introduced, 0).0, ["session/new"]);
}

#[test]
fn a_message_without_end_and_numbers_without_measure_are_borne() {
    let mut client = client();
    answer(&mut client, json!({"result": {}}), 0);
    answer(&mut client, opened("default"), 1);
    let part = "x".repeat(limits::MESSAGE_BYTES_MAX / 4);
    let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": part}});
    let line = json!({"method": "session/update", "params": {"sessionId": "s", "update": update}}).to_string();
    for _ in 0..10 {
        client.hear(&line);
    }
    assert_eq!(client.message.len(), limits::MESSAGE_BYTES_MAX);
    let usage = json!({"inputTokens": u64::MAX, "cachedReadTokens": 7, "totalTokens": u64::MAX});
    let end = answer(
        &mut client,
        json!({"result": {"stopReason": "end_turn", "usage": usage}}),
        2,
    )
    .1;
    assert!(matches!(end, Some(TurnEnd::Completed { .. })));
    assert_eq!(client.used.prompt_tokens, u64::MAX);
}

#[test]
fn what_a_conversation_used_before_it_was_taken_up_is_in_its_totals() {
    let known = Known {
        session_id: "s".to_owned(),
        used: Usage {
            total_tokens: 1_000,
            ..Usage::default()
        },
    };
    let mut client = client_of(Some(known));
    answer(
        &mut client,
        json!({"result": {"agentCapabilities": {"loadSession": true}}}),
        0,
    );
    answer(&mut client, json!({"result": {}}), 1);
    let ended = json!({"id": 2, "result": {"stopReason": "end_turn", "usage": {"totalTokens": 30}}});
    let told = client.hear(&ended.to_string()).into_iter().find_map(|step| match step {
        Step::Tell(AgentEvent {
            kind: AgentEventKind::Usage(usage),
            ..
        }) => Some(usage.total_tokens),
        _ => None,
    });
    assert_eq!(told, Some(1_030));
}

#[test]
fn of_a_call_that_is_over_nothing_is_remembered() {
    let mut client = client();
    answer(&mut client, json!({"result": {}}), 0);
    answer(&mut client, opened("default"), 1);
    let mut say = |update: Value| {
        let line = json!({"method": "session/update", "params": {"sessionId": "s", "update": update}});
        client.hear(&line.to_string());
        client.calls.get("c").cloned()
    };
    let known = say(json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "ls", "status": "pending"}));
    assert_eq!(known.unwrap()["title"], "ls");
    let known = say(json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}));
    assert_eq!(known, None);
}
