//! Claude Code, and an agent that speaks the Agent Client Protocol, behind the whole product.

use serde_json::json;

use super::stage::{Player, Stage, count};
use crate::client::eventually;

#[test]
fn a_task_of_claude_is_told_with_its_tokens_and_its_cost() {
    let Some(mut stage) = Stage::set(Player::Claude) else {
        return;
    };
    let job = stage.start("[[say hello]]");
    let ended = stage.until(&job, "completed");
    assert_eq!(ended["output"]["result"], "hello", "{ended}");
    let (tokens, dollars) = stage.usage();
    assert!(tokens >= 147 && dollars > 0.0, "{tokens} tokens, {dollars} dollars");
    let lines = stage.close(&ended);
    assert_eq!(count(&lines, "codex-agent-message"), 1, "{lines:?}");
}

#[test]
fn what_claude_wants_to_run_or_to_write_is_decided_at_the_terminal() {
    for (answer, is_file) in [("approve", false), ("deny", false), ("approve", true), ("deny", true)] {
        let Some(mut stage) = Stage::set(Player::Claude) else {
            return;
        };
        let made = stage.bench.work().join("made");
        let prompt = if is_file {
            format!("[[write {} some words]]", made.display())
        } else {
            "[[shell touch made]]".to_owned()
        };
        let job = stage.start(&prompt);
        let details = stage.decide(answer);
        if is_file {
            let preview = details["fileChanges"][0]["contentPreview"].as_str().unwrap();
            assert!(
                preview.contains("some words") && preview.chars().count() <= 500,
                "{details}"
            );
        } else {
            assert!(details["command"].as_str().unwrap().contains("touch made"), "{details}");
        }
        let ended = stage.until(&job, "completed");
        assert_eq!(made.exists(), answer == "approve", "{answer} {prompt}");
        stage.close(&ended);
    }
}

#[test]
fn an_interrupt_ends_what_claude_started_and_takes_back_what_it_asked() {
    let Some(mut stage) = Stage::set(Player::Claude) else {
        return;
    };
    let job = stage.start("[[shell setsid sleep 3073 & sleep 3073]]");
    stage.decide("approve");
    eventually("both commands run", || stage.sleeping() == 2);
    stage.interrupt(&job);
    let ended = stage.until(&job, "cancelled");
    stage.until_nothing_is_left();
    let job = stage.start("[[shell touch never]]");
    let (question, _) = stage.bench.question();
    stage.interrupt(&job);
    stage.until(&job, "cancelled");
    stage.bench.until(&question, "withdrawn");
    stage.close(&ended);
}

#[test]
fn a_limit_of_claude_pauses_the_job() {
    let Some(mut stage) = Stage::set(Player::Claude) else {
        return;
    };
    let job = stage.start("[[limit 5]]");
    eventually("the job rests", || {
        super::shown(&stage.bench, &["jobs", "show", &job, "--json"])["subState"] == "paused_limit"
    });
    stage.until_nothing_is_left();
    stage.interrupt(&job);
    let ended = stage.until(&job, "cancelled");
    stage.close(&ended);
}

#[test]
fn an_agent_behind_the_client_protocol_asks_is_answered_and_interrupted() {
    let Some(mut stage) = Stage::set_with(Player::Acp, "command_policy: {sandbox: read-only}\n") else {
        return;
    };
    for (answer, name) in [("approve", "allowed"), ("deny", "denied")] {
        let job = stage.start(&format!("[[shell! touch {name}]]"));
        stage.decide(answer);
        let ended = stage.until_ended(&job);
        assert!(
            ["completed", "cancelled"].contains(&ended["status"].as_str().unwrap()),
            "{ended}"
        );
        assert_eq!(stage.bench.work().join(name).exists(), answer == "approve");
    }
    let job = stage.start("[[shell! sleep 3074]]");
    stage.decide("approve");
    eventually("the command runs", || stage.sleeping() > 0);
    stage.interrupt(&job);
    let ended = stage.until(&job, "cancelled");
    assert_eq!(ended["output"]["error"]["code"], json!("CANCELLED"));
    stage.close(&ended);
}

#[test]
fn what_opencode_wants_to_run_is_decided_at_the_terminal() {
    let Some(mut stage) = Stage::set(Player::Opencode) else {
        return;
    };
    let mut last = json!(null);
    for (answer, name) in [("approve", "allowed"), ("deny", "denied")] {
        let job = stage.start(&format!("[[shell touch {name}]]"));
        // It takes its time to begin.
        stage.until(&job, "running");
        let details = stage.decide(answer);
        assert_eq!(details["command"], format!("touch {name}"), "{details}");
        last = stage.until_ended(&job);
        assert_eq!(stage.bench.work().join(name).exists(), answer == "approve", "{last}");
    }
    stage.close(&last);
}
