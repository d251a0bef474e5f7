//! Codex behind the whole product: by its app-server, and one process a turn.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::stage::{Player, Stage, count};
use crate::client::eventually;

#[test]
fn a_task_is_accepted_at_once_and_its_message_usage_and_end_are_kept() {
    let Some(mut stage) = Stage::set(Player::CodexAppServer) else {
        return;
    };
    let accepted = stage.call("start-codex-task", json!({"prompt": "[[say hello]]"}));
    assert_eq!(accepted["status"], "accepted", "{accepted}");
    let job = accepted["jobId"].as_str().unwrap().to_owned();
    let status = stage.call("job-status", json!({"jobId": job, "wait_ms": 40_000}));
    assert_eq!(
        (&status["job"]["status"], &status["job"]["output"]["result"]),
        (&json!("completed"), &json!("hello")),
        "{status}"
    );
    let shown = stage.until(&job, "completed");
    assert_eq!(stage.usage().0, 107, "what the model says that it used");
    let lines = stage.close(&shown);
    let said = lines.iter().find(|line| line["type"] == "codex-agent-message").unwrap();
    assert!(said.to_string().contains("hello"), "{said}");
    assert_eq!(count(&lines, "codex-agent-message"), 1);
}

#[test]
fn what_codex_wants_to_run_or_to_change_is_decided_at_the_terminal() {
    for (answer, prompt, kind, is_there) in [
        ("approve", "[[shell touch made]]", "exec-command", true),
        ("deny", "[[shell touch made]]", "exec-command", false),
        ("approve", "[[patch made some words]]", "apply-patch", true),
        ("deny", "[[patch made some words]]", "apply-patch", false),
    ] {
        let Some(mut stage) = Stage::set(Player::CodexAppServer) else {
            return;
        };
        let job = stage.start(prompt);
        let (question, details) = stage.bench.question();
        assert!(!stage.bench.work().join("made").exists());
        let shown = super::shown(&stage.bench, &["approvals", "show", &question, "--json"]);
        assert_eq!(
            (&shown["type"], &shown["jobId"]),
            (&json!(kind), &json!(job)),
            "{shown}"
        );
        if kind == "apply-patch" {
            let change = &details["fileChanges"][0];
            let preview = change["contentPreview"].as_str().unwrap();
            assert!(
                preview.contains("some words") && preview.chars().count() <= 500,
                "{details}"
            );
            assert_eq!(change["type"], "create", "{details}");
        } else {
            assert!(details["command"].as_str().unwrap().contains("touch made"), "{details}");
        }
        assert_eq!(stage.until(&job, "running")["subState"], "waiting_approval");
        super::told(&stage.bench, &[answer, &question, "--reason", "because"]);
        let ended = stage.until(&job, "completed");
        assert_eq!(stage.bench.work().join("made").exists(), is_there, "{answer} {prompt}");
        let lines = stage.close(&ended);
        let resolved = if is_there {
            "approval-approved"
        } else {
            "approval-denied"
        };
        assert_eq!(
            (count(&lines, "approval-requested"), count(&lines, resolved)),
            (1, 1),
            "{lines:?}"
        );
    }
}

#[test]
fn a_long_change_is_shown_in_at_most_500_characters() {
    let Some(mut stage) = Stage::set(Player::CodexAppServer) else {
        return;
    };
    let job = stage.start(&format!("[[patch made {}]]", "word ".repeat(400)));
    let (_, details) = stage.bench.question();
    let preview = details["fileChanges"][0]["contentPreview"].as_str().unwrap();
    assert!(preview.chars().count() <= 500, "{} characters", preview.chars().count());
    stage.decide("deny");
    let ended = stage.until(&job, "completed");
    stage.close(&ended);
}

#[test]
fn an_interrupt_takes_back_the_open_question() {
    let Some(mut stage) = Stage::set(Player::CodexAppServer) else {
        return;
    };
    let job = stage.start("[[shell touch never]]");
    let (question, _) = stage.bench.question();
    stage.interrupt(&job);
    let ended = stage.until(&job, "cancelled");
    stage.bench.until(&question, "withdrawn");
    assert!(!stage.bench.work().join("never").exists());
    stage.close(&ended);
}

#[test]
fn an_interrupt_during_a_command_leaves_no_process() {
    let Some(mut stage) = Stage::set(Player::CodexAppServer) else {
        return;
    };
    let job = stage.start("[[shell! setsid sleep 3071 & sleep 3071]]");
    stage.decide("approve");
    eventually("both commands run", || stage.sleeping() == 2);
    stage.interrupt(&job);
    let ended = stage.until(&job, "cancelled");
    stage.close(&ended);
}

#[test]
fn a_client_of_the_server_that_codex_had_finds_its_two_tools() {
    let Some(mut stage) = Stage::set(Player::CodexAppServer) else {
        return;
    };
    let first = stage.call("codex", json!({"prompt": "[[say one]]"}));
    assert_eq!(first["content"], "one", "{first}");
    let second = stage.call(
        "codex-reply",
        json!({"threadId": first["threadId"], "prompt": "[[say two]]"}),
    );
    assert_eq!(
        (&second["content"], &second["threadId"]),
        (&json!("two"), &first["threadId"])
    );
    let third = stage.call(
        "codex-reply",
        json!({"conversationId": first["threadId"], "prompt": "[[say three]]"}),
    );
    assert_eq!(third["content"], "three", "{third}");
    stage.until_nothing_is_left();
}

#[test]
fn instructions_beside_the_prompt_reach_codex_and_settings_that_could_loosen_do_not() {
    let Some(mut stage) = Stage::set(Player::CodexAppServer) else {
        return;
    };
    let said = json!({"prompt": "[[say one]]", "base-instructions": "answer in verse",
        "developer-instructions": "indent by tabs", "config": {"model_reasoning_effort": "high"}});
    assert_eq!(stage.call("codex", said)["content"], "one");
    let heard = stage.model.seen.lock().unwrap().last().unwrap().body.to_string();
    for words in ["answer in verse", "indent by tabs"] {
        assert!(heard.contains(words), "the model does not hear `{words}`");
    }
    let refused = stage.call(
        "codex",
        json!({"prompt": "[[say two]]", "config": {"sandbox_mode": "danger-full-access"}}),
    );
    assert_eq!(refused["error_code"], "INVALID_ARGUMENTS", "{refused}");
    let why = refused["error_message"].as_str().unwrap();
    assert!(why.contains("sandbox_mode") && why.contains("model_verbosity"), "{why}");
    assert_eq!(stage.bench.count("SELECT count(*) FROM jobs"), 1);
}

#[test]
fn a_usage_limit_pauses_the_job_until_it_is_reset() {
    let Some(mut stage) = Stage::set(Player::CodexAppServer) else {
        return;
    };
    let job = stage.start("[[limit 5]]");
    eventually("the job rests", || {
        super::shown(&stage.bench, &["jobs", "show", &job, "--json"])["subState"] == "paused_limit"
    });
    let ended = stage.until(&job, "completed");
    assert_eq!(
        (stage.recorded("run.wait.paused"), stage.recorded("run.wait.resumed")),
        (1, 1)
    );
    assert_eq!(ended["output"]["error"], json!(null), "a limit is no failure: {ended}");
    stage.close(&ended);
}

#[test]
fn codex_without_questions_takes_tasks_that_need_none() {
    let Some(mut stage) = Stage::set_with(Player::CodexExec, "approval_policy: {mode: never}\n") else {
        return;
    };
    let job = stage.start("[[shell touch made]]");
    let ended = stage.until(&job, "completed");
    assert!(stage.bench.work().join("made").exists());
    assert_eq!(stage.usage().0, 214, "two answers of the model");
    stage.close(&ended);
}

#[test]
fn codex_without_questions_refuses_a_task_that_needs_them() {
    let Some(mut stage) = Stage::set(Player::CodexExec) else {
        return;
    };
    let job = stage.start("[[shell touch made]]");
    let failed = stage.until(&job, "failed");
    let said = failed["output"]["error"]["message"].as_str().unwrap();
    assert!(said.contains("never"), "it says which tasks it takes: {said}");
    assert!(!stage.bench.work().join("made").exists());
}

#[test]
fn an_interrupt_ends_codex_without_questions_and_its_commands() {
    let Some(mut stage) = Stage::set_with(Player::CodexExec, "approval_policy: {mode: never}\n") else {
        return;
    };
    let job = stage.start("[[shell setsid sleep 3072 & sleep 3072]]");
    eventually("a command runs", || stage.sleeping() > 0);
    stage.interrupt(&job);
    let ended = stage.until(&job, "cancelled");
    stage.close(&ended);
}

#[test]
fn a_message_is_seen_while_it_is_written_and_kept_once() {
    let Some(mut stage) = Stage::set(Player::CodexAppServer) else {
        return;
    };
    let job = stage.start("[[slow 60]]");
    let shown = stage.until(&job, "running");
    let file = Path::new(shown["session"]["sessionDir"].as_str().unwrap()).join("writing.txt");
    eventually("its beginning is there", || {
        fs::read_to_string(&file).is_ok_and(|text| text.starts_with("part 0. part 1. "))
    });
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // Somebody at a terminal sees it grow.
    let command = stage.bench.command();
    let line = format!("{} jobs logs -f {job}", command.get_program().to_str().unwrap());
    let terminal = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env_clear()
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("SHELL", "/bin/sh")
        .current_dir(stage.bench.work())
        .stdin(Stdio::null())
        .output();
    let screen = String::from_utf8_lossy(&terminal.unwrap().stdout).into_owned();
    assert!(screen.contains("… part 0. part 1."), "{screen}");
    let ended = stage.until(&job, "completed");
    assert!(!file.exists(), "it is kept nowhere but in the message");
    let lines = stage.close(&ended);
    let messages = lines.iter().filter(|line| line.to_string().contains("part 5. "));
    let kinds: Vec<_> = messages.map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds.iter().filter(|kind| **kind == "codex-agent-message").count(),
        1,
        "{kinds:?}"
    );
}

#[test]
fn a_caller_who_waits_hears_what_is_being_written() {
    let Some(mut stage) = Stage::set(Player::CodexAppServer) else {
        return;
    };
    let job = stage.start("[[slow 60]]");
    let said = stage.wait_aloud(&job);
    assert!(said.iter().any(|it| it.starts_with("writing: part 0.")), "{said:?}");
    let ended = stage.until(&job, "completed");
    stage.close(&ended);
}
