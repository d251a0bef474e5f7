//! Messages as Codex 0.166.0 wrote them, and what was read from them.

use super::*;

fn reading() -> Reading {
    Reading::new("t".to_owned(), None, true)
}

fn notified(reading: &mut Reading, method: &str, params: Value) -> Vec<Step> {
    reading.hear(Said::Notification {
        method: method.to_owned(),
        raw: params.clone(),
        params,
    })
}

fn asked(reading: &mut Reading, id: Value, method: &str, params: Value) -> Vec<Step> {
    reading.hear(Said::Request {
        id,
        method: method.to_owned(),
        raw: params.clone(),
        params,
    })
}

fn kinds(steps: Vec<Step>) -> Vec<AgentEventKind> {
    let kinds = steps.into_iter().filter_map(|step| match step {
        Step::Tell(event) | Step::TurnEnded(event) => Some(event.kind),
        Step::Refuse { .. } => None,
    });
    kinds.collect()
}

#[test]
fn an_edit_is_asked_about_with_the_diff_of_its_item() {
    let mut reading = reading();
    let item = json!({"type": "fileChange", "id": "i", "status": "inProgress",
        "changes": [{"path": "/w/a", "kind": {"type": "add"}, "diff": "hello\n"}]});
    notified(&mut reading, "item/started", json!({"threadId": "t", "item": item}));
    let question = kinds(asked(
        &mut reading,
        json!(0),
        "item/fileChange/requestApproval",
        json!({"threadId": "t", "itemId": "i", "grantRoot": "/"}),
    ));
    let AgentEventKind::ApprovalRequested(question) = &question[0] else {
        panic!("{question:?}");
    };
    let change = FileChange {
        path: "/w/a".to_owned(),
        kind: FileChangeKind::Create,
        diff: Some("hello\n".to_owned()),
    };
    assert_eq!(
        question.about,
        QuestionAbout::Patch {
            changes: vec![change],
            grant_root: true
        }
    );
    // A request numbered zero is one.
    assert_eq!(reading.answered(&question.id), Some(json!(0)));
}

#[test]
fn an_edit_that_nobody_was_told_of_is_not_shown_as_one_of_nothing() {
    let params = json!({"threadId": "t", "itemId": "i", "reason": "to write"});
    let question = kinds(asked(
        &mut reading(),
        json!(0),
        "item/fileChange/requestApproval",
        params.clone(),
    ));
    let AgentEventKind::ApprovalRequested(question) = &question[0] else {
        panic!("{question:?}");
    };
    let name = "fileChange".to_owned();
    assert_eq!(question.about, QuestionAbout::Tool { name, input: params });
}

#[test]
fn a_resolved_request_withdraws_its_question_unless_it_was_answered() {
    let command = json!({"threadId": "t", "itemId": "i", "command": "ls"});
    let mut reading = reading();
    asked(
        &mut reading,
        json!(0),
        "item/commandExecution/requestApproval",
        command.clone(),
    );
    let resolved = json!({"threadId": "t", "requestId": 0});
    assert_eq!(
        kinds(notified(&mut reading, "serverRequest/resolved", resolved.clone())),
        [AgentEventKind::ApprovalWithdrawn("i#0".to_owned())]
    );
    asked(&mut reading, json!(1), "item/commandExecution/requestApproval", command);
    reading.answered("i#1");
    let resolved = json!({"threadId": "t", "requestId": 1});
    assert_eq!(
        kinds(notified(&mut reading, "serverRequest/resolved", resolved)),
        [AgentEventKind::Unknown]
    );
}

#[test]
fn requests_that_nobody_knows_are_refused() {
    for method in [
        "item/permissions/requestApproval",
        "item/tool/call",
        "mcpServer/elicitation/request",
        "new/request",
    ] {
        let steps = asked(&mut reading(), json!(3), method, json!({"threadId": "t"}));
        assert!(
            matches!(&steps[0], Step::Refuse { id, .. } if *id == json!(3)),
            "{steps:?}"
        );
    }
}

#[test]
fn what_is_said_of_another_conversation_is_not_told() {
    let delta = json!({"threadId": "other", "itemId": "i", "delta": "x"});
    assert_eq!(notified(&mut reading(), "item/agentMessage/delta", delta), []);
}

#[test]
fn a_used_up_limit_is_told_with_the_time_of_its_reset() {
    let mut reading = reading();
    let limits = json!({"primary": {"usedPercent": 100, "resetsAt": 1_800_000_000}, "secondary": {"usedPercent": 20, "resetsAt": 1}});
    notified(
        &mut reading,
        "account/rateLimits/updated",
        json!({"rateLimits": limits}),
    );
    let turn = |info: Value| {
        json!({"threadId": "t", "turn": {"id": "u", "status": "failed", "items": [],
        "error": {"message": "no more", "codexErrorInfo": info}}})
    };
    let told = kinds(notified(
        &mut reading,
        "turn/completed",
        turn(json!("usageLimitExceeded")),
    ));
    assert_eq!(
        told,
        [
            AgentEventKind::LimitReached {
                resets_at: Some(Timestamp::from_millis(1_800_000_000_000)),
                message: "no more".to_owned()
            },
            AgentEventKind::TurnEnded(TurnEnd::Failed {
                message: "no more".to_owned(),
                retryable: true
            })
        ]
    );
    let told = kinds(notified(
        &mut reading,
        "turn/completed",
        turn(json!({"responseTooManyFailedAttempts": {"httpStatusCode": 429}})),
    ));
    assert!(matches!(told[0], AgentEventKind::LimitReached { .. }));
    let told = kinds(notified(&mut reading, "turn/completed", turn(json!("badRequest"))));
    assert!(matches!(
        &told[..],
        [AgentEventKind::TurnEnded(TurnEnd::Failed { retryable: false, .. })]
    ));
}

#[test]
fn a_turn_that_ended_while_nobody_listened_is_told_of_when_it_is_taken_up() {
    let turns = |status: &str| json!([{"id": "u", "status": status, "items": [{"type": "agentMessage", "id": "m", "text": "done"}]}]);
    let told: Vec<AgentEventKind> = reading()
        .take_up(&turns("completed"))
        .into_iter()
        .map(|event| event.kind)
        .collect();
    assert_eq!(
        told,
        [
            AgentEventKind::Message("done".to_owned()),
            AgentEventKind::TurnEnded(TurnEnd::Completed {
                result: Some("done".to_owned())
            })
        ]
    );
    let mut running = reading();
    running.take_up(&turns("inProgress"));
    assert_eq!(running.turn_id(), Some("u".to_owned()));
}

#[test]
fn a_lost_app_server_ends_the_turn_once_and_withdraws_its_questions() {
    let mut reading = reading();
    reading.turn_runs("u");
    asked(
        &mut reading,
        json!(0),
        "item/commandExecution/requestApproval",
        json!({"threadId": "t", "itemId": "i", "command": "ls"}),
    );
    assert_eq!(reading.cut_off(TurnEnd::Interrupted).len(), 2);
    assert_eq!(reading.cut_off(TurnEnd::Interrupted), []);
}
