//! Lines as Claude Code 2.1.325 wrote them, and what was read from them.

use super::*;

fn claude() -> Claude {
    let prompt = vec![Input::Text("hi".to_owned())];
    let mut claude = Claude::new("id".to_owned(), "/w".into(), prompt);
    claude.begin();
    claude
}

fn kinds(steps: Vec<Step>) -> Vec<AgentEventKind> {
    let told = steps.into_iter().filter_map(|step| match step {
        Step::Tell(event) => Some(event.kind),
        Step::Write(_) | Step::Begin | Step::End => None,
    });
    told.collect()
}

fn read(line: Value) -> Vec<AgentEventKind> {
    kinds(claude().hear(&line.to_string()))
}

#[test]
fn a_turn_is_judged_by_its_error_flag_and_reason_never_by_its_subtype() {
    let check = |line: Value, expected: TurnEnd| {
        assert_eq!(read(line).last(), Some(&AgentEventKind::TurnEnded(expected)));
    };
    check(
        json!({"type": "result", "subtype": "success", "is_error": false, "result": "r", "terminal_reason": "completed"}),
        TurnEnd::Completed {
            result: Some("r".to_owned()),
        },
    );
    check(
        json!({"type": "result", "subtype": "success", "is_error": true, "result": "API Error", "terminal_reason": "api_error",
            "api_error_status": 401}),
        TurnEnd::Failed {
            message: "API Error".to_owned(),
            retryable: false,
        },
    );
    check(
        json!({"type": "result", "subtype": "error_during_execution", "is_error": true, "terminal_reason": "aborted_tools"}),
        TurnEnd::Interrupted,
    );
}

#[test]
fn too_many_requests_are_a_limit_and_so_is_a_rejection() {
    let line = json!({"type": "result", "subtype": "success", "is_error": true, "result": "slow down", "api_error_status": 429});
    let limit = |resets_at, message: &str| AgentEventKind::LimitReached {
        resets_at,
        message: message.to_owned(),
    };
    assert!(read(line).contains(&limit(None, "slow down")));
    let info = |status: &str| {
        json!({"type": "rate_limit_event",
            "rate_limit_info": {"status": status, "resetsAt": 1_800_000_000, "rateLimitType": "five_hour"}})
    };
    assert_eq!(
        read(info("rejected")),
        [limit(
            Some(Timestamp::from_millis(1_800_000_000_000)),
            "the five_hour limit of Claude Code is reached"
        )]
    );
    assert_eq!(read(info("allowed_warning")), [AgentEventKind::Unknown]);
}

#[test]
fn unknown_requests_are_refused_and_unknown_lines_are_kept() {
    let line = json!({"type": "control_request", "request_id": "7", "request": {"subtype": "mcp_message"}});
    let steps = claude().hear(&line.to_string());
    let Some(Step::Write(answer)) = steps.first() else {
        panic!("{steps:?}");
    };
    assert_eq!(answer["response"]["subtype"], "error");
    assert_eq!(answer["response"]["request_id"], "7");
    for line in ["{\"type\":\"new\"}", "not json"] {
        let steps = claude().hear(line);
        assert!(
            matches!(&steps[..], [Step::Tell(AgentEvent { kind: AgentEventKind::Unknown, raw })] if !raw.is_null())
        );
    }
}

#[test]
fn a_message_is_taken_between_turns_and_refused_in_the_middle_of_one() {
    let end = json!({"type": "result", "is_error": false, "result": "", "terminal_reason": "completed"}).to_string();
    let next = || vec![Input::Text("next".to_owned())];
    let mut talk = claude();
    assert!(matches!(talk.send(next()), Err(DriverError::Unsupported(_))));
    assert!(!talk.hear(&end).iter().any(|step| matches!(step, Step::Write(_))));
    assert_eq!(talk.send(next()).unwrap().len(), 1);
    assert!(talk.is_busy());
}

#[test]
fn a_process_that_goes_in_the_middle_of_a_turn_ends_it_once() {
    let ending = Ending {
        status: None,
        signal: Some(9),
    };
    let mut talk = claude();
    assert_eq!(talk.gone(ending, "").len(), 1);
    assert_eq!(talk.gone(ending, ""), []);
}
