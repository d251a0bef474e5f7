//! Agents by their definition. The agent is a shell script, so these need nothing installed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use countersign_agents::{Definition, EventFormat, Health, HealthMethod, InputMode, Jsonl, Parsing};
use countersign_gateway::job::driver::{
    AgentAnswer, AgentDriver, AgentEventKind, Conversation, DriverError, QuestionAbout, TurnEnd,
};

use crate::house::{Heard, House, completed, eventually, kill, text};

struct Scene {
    house: House,
    definition: Definition,
}

impl Scene {
    /// An agent that is this script; the prompt is its first argument.
    fn set(script: &str) -> Scene {
        let house = House::new();
        let path = Scene::program(&house, "agent", script);
        Scene {
            definition: Definition {
                name: "tester".to_owned(),
                command: vec![path],
                env: BTreeMap::new(),
                input: InputMode::Closed,
                parsing: Parsing {
                    format: EventFormat::Jsonl,
                    line_delimited: true,
                    event_type_field: "type".to_owned(),
                },
                health: None,
            },
            house,
        }
    }

    fn program(house: &House, name: &str, script: &str) -> String {
        let path = house.path("home").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    async fn start(&self, prompt: &str) -> (Arc<dyn Conversation>, Heard) {
        let (sink, heard) = Heard::new();
        let driver = Jsonl::new(self.house.launcher(), self.definition.clone());
        let talk = driver
            .start(self.house.start(prompt, &self.house.terms(&[])), sink)
            .await
            .unwrap();
        (talk, heard)
    }
}

#[tokio::test]
async fn the_prompt_is_the_last_argument_and_the_five_events_are_understood() {
    let scene = Scene::set(
        r#"echo '{"type":"TaskStarted"}'; echo "{\"type\":\"AgentMessage\",\"message\":\"$1\"}"
           echo '{"type":"Other","x":1}'; echo 'plain words'; echo '{"type":"TaskComplete","result":"done"}'"#,
    );
    let (talk, mut heard) = scene.start("hello there").await;
    assert!(matches!(heard.next().await, AgentEventKind::Spawned(_)));
    heard.started().await;
    assert_eq!(heard.next().await, AgentEventKind::TurnStarted { turn_id: None });
    assert_eq!(heard.next().await, AgentEventKind::Message("hello there".to_owned()));
    assert_eq!(heard.next().await, AgentEventKind::Unknown);
    assert_eq!(heard.all.last().unwrap().raw["x"], 1);
    assert_eq!(heard.next().await, AgentEventKind::Unknown);
    assert_eq!(heard.all.last().unwrap().raw, "plain words");
    assert_eq!(heard.turn_end().await, completed("done"));
    assert_eq!(heard.exited().await, (Some(0), None));
    talk.send(text("once more")).await.unwrap();
    assert!(matches!(heard.turn_end().await, TurnEnd::Completed { .. }));
    heard.exited().await;
}

#[tokio::test]
async fn a_task_is_not_done_where_a_link_leads_that_was_put_in_place_of_its_directory() {
    let scene = Scene::set("touch here; echo '{\"type\":\"TaskComplete\"}'");
    let (place, elsewhere) = (scene.house.path("workspace"), scene.house.path("tmp"));
    fs::remove_dir(&place).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &place).unwrap();
    let driver = Jsonl::new(scene.house.launcher(), scene.definition.clone());
    let (sink, _heard) = Heard::new();
    let started = driver
        .start(scene.house.start("x", &scene.house.terms(&[])), sink)
        .await;
    let Err(DriverError::Process(reason)) = started else {
        panic!("it was started");
    };
    assert!(reason.contains("is not where the task was to be done"), "{reason}");
    assert!(!elsewhere.join("here").exists());
}

#[tokio::test]
async fn a_prompt_that_is_no_argument_is_refused_at_once_and_one_that_just_fits_is_not() {
    let scene = Scene::set("echo \"{\\\"type\\\":\\\"TaskComplete\\\",\\\"result\\\":\\\"${#1}\\\"}\"");
    let most = (128 << 10) - 1;
    let (_talk, mut heard) = scene.start(&"x".repeat(most)).await;
    assert_eq!(heard.turn_end().await, completed(&most.to_string()));
    let driver = Jsonl::new(scene.house.launcher(), scene.definition.clone());
    let (sink, _heard) = Heard::new();
    let long = scene.house.start(&"x".repeat(most + 1), &scene.house.terms(&[]));
    let Err(DriverError::Unsupported(reason)) = driver.start(long, sink).await else {
        panic!("it was started");
    };
    assert!(reason.contains("put the rest into a file"), "{reason}");
}

#[tokio::test]
async fn the_end_of_the_process_is_the_end_of_the_turn() {
    let check = |script: &'static str| async move {
        let scene = Scene::set(script);
        let (_talk, mut heard) = scene.start("x").await;
        let end = heard.turn_end().await;
        heard.exited().await;
        end
    };
    assert_eq!(check("exit 0").await, TurnEnd::Completed { result: None });
    let failed = |message: &str, retryable| TurnEnd::Failed {
        message: message.to_owned(),
        retryable,
    };
    assert_eq!(
        check("echo oh no >&2; exit 3").await,
        failed("tester ended with status 3: oh no", false)
    );
    assert_eq!(
        check(r#"echo '{"type":"TaskError","error":"broken"}'; exit 1"#).await,
        failed("broken", false)
    );
}

#[tokio::test]
async fn a_question_is_answered_on_an_open_input() {
    let mut scene = Scene::set(
        r#"echo '{"type":"ApprovalRequired","requestId":"q1","command":"rm x","cwd":"/w","reason":"why not"}'
           read -r answer; echo "{\"type\":\"TaskComplete\",\"result\":$(printf %s "$answer" | sed 's/"/\\"/g;s/.*/"&"/')}""#,
    );
    scene.definition.input = InputMode::Open;
    for (answer, expected) in [
        (
            AgentAnswer::Allow,
            r#"{"type":"ApprovalDecision","requestId":"q1","decision":"allow","reason":null}"#,
        ),
        (
            AgentAnswer::Deny {
                reason: "no".to_owned(),
            },
            r#"{"type":"ApprovalDecision","requestId":"q1","decision":"deny","reason":"no"}"#,
        ),
    ] {
        let (talk, mut heard) = scene.start("x").await;
        let question = heard.question().await;
        assert_eq!(
            question.about,
            QuestionAbout::Command {
                command: "rm x".to_owned(),
                cwd: Some("/w".into())
            }
        );
        talk.answer(&question.id, answer).await.unwrap();
        assert_eq!(heard.turn_end().await, completed(expected));
        heard.exited().await;
    }
}

#[tokio::test]
async fn an_agent_that_asks_without_an_open_input_is_warned_about_and_gets_no_yes() {
    let scene =
        Scene::set(r#"echo '{"type":"ApprovalRequired","requestId":"q1","command":"rm x"}'; read -r answer; exit 7"#);
    let (_talk, mut heard) = scene.start("x").await;
    assert!(matches!(heard.turn_end().await, TurnEnd::Failed { .. }));
    assert!(
        heard
            .kinds()
            .iter()
            .any(|kind| matches!(kind, AgentEventKind::Warning(_)))
    );
    assert!(
        !heard
            .kinds()
            .iter()
            .any(|kind| matches!(kind, AgentEventKind::ApprovalRequested(_)))
    );
}

#[tokio::test]
async fn json_rpc_and_values_without_lines_are_read() {
    let mut scene = Scene::set(
        r#"printf '{"method":"AgentMessage","params":{"text":"hi"}}{"method":"TaskComplete",'; printf '"params":{}}'"#,
    );
    scene.definition.parsing = Parsing {
        format: EventFormat::JsonRpc,
        line_delimited: false,
        event_type_field: "method".to_owned(),
    };
    let (_talk, mut heard) = scene.start("x").await;
    assert_eq!(heard.turn_end().await, completed("hi"));
}

#[tokio::test]
async fn a_program_may_make_events_of_what_the_agent_writes() {
    let mut scene = Scene::set("echo one; echo two; echo end");
    let parser = Scene::program(
        &scene.house,
        "parser",
        r#"while read -r line; do case $line in end) echo '{"type":"TaskComplete"}';; *) echo "{\"type\":\"AgentMessage\",\"text\":\"$line\"}";; esac; done"#,
    );
    scene.definition.parsing.format = EventFormat::Custom { parser: vec![parser] };
    let (_talk, mut heard) = scene.start("x").await;
    assert_eq!(heard.turn_end().await, completed("two"));
    heard.exited().await;
    assert!(
        !heard
            .kinds()
            .iter()
            .any(|kind| matches!(kind, AgentEventKind::Warning(_)))
    );
}

#[tokio::test]
async fn an_agent_without_a_heartbeat_is_ended_with_all_it_started() {
    let mut scene = Scene::set("setsid sleep 3069 & sleep 3069");
    scene.definition.health = Some(Health {
        method: HealthMethod::Heartbeat,
        interval: Duration::from_millis(100),
        timeout: Duration::from_millis(400),
    });
    let (_talk, mut heard) = scene.start("x").await;
    let end = heard.turn_end().await;
    assert!(
        matches!(&end, TurnEnd::Failed { message, retryable: true } if message.contains("said nothing")),
        "{end:?}"
    );
    heard.exited().await;
    scene.house.nothing_is_left().await;
}

#[tokio::test]
async fn an_agent_that_talks_or_waits_for_an_answer_is_well() {
    let mut scene = Scene::set(
        r#"for i in $(seq 20); do echo '{"type":"AgentMessage","text":"still here"}'; sleep 0.2; done
           echo '{"type":"ApprovalRequired","requestId":"q1","command":"x"}'; read -r answer; echo '{"type":"TaskComplete","result":"well"}'"#,
    );
    scene.definition.input = InputMode::Open;
    scene.definition.health = Some(Health {
        method: HealthMethod::Heartbeat,
        interval: Duration::from_millis(100),
        timeout: Duration::from_secs(3),
    });
    let (talk, mut heard) = scene.start("x").await;
    let question = heard.question().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    assert_eq!(heard.turn_end().await, completed("well"));
}

#[tokio::test]
async fn a_check_of_its_own_says_whether_an_agent_is_well() {
    let mut scene = Scene::set("sleep 3070");
    let sick = scene.house.path("workspace/sick");
    let check = Scene::program(&scene.house, "check", &format!("test ! -e {}", sick.display()));
    scene.definition.health = Some(Health {
        method: HealthMethod::Custom { command: vec![check] },
        interval: Duration::from_millis(100),
        timeout: Duration::from_secs(10),
    });
    let (_talk, mut heard) = scene.start("x").await;
    heard.spawned().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!scene.house.left().is_empty(), "a good check ends nothing");
    fs::write(&sick, "").unwrap();
    let end = heard.turn_end().await;
    assert!(
        matches!(&end, TurnEnd::Failed { message, .. } if message.contains("check ended with status 1")),
        "{end:?}"
    );
    scene.house.nothing_is_left().await;
}

#[tokio::test]
async fn an_interrupt_ends_everything_also_what_ignores_being_told() {
    let scene = Scene::set("trap '' INT TERM; (trap '' TERM; setsid env -i sleep 3071 &); sleep 3071 & wait; wait");
    let (talk, mut heard) = scene.start("x").await;
    let mark = heard.spawned().await;
    eventually("its children run", || scene.house.left().len() >= 2).await;
    talk.interrupt().await.unwrap();
    assert_eq!(heard.turn_end().await, TurnEnd::Interrupted);
    assert_eq!(heard.exited().await.1, Some(9));
    scene.house.nothing_is_left().await;
    assert!(!crate::house::runs(&mark));
}

#[tokio::test]
async fn a_killed_agent_that_leaves_a_child_with_its_output_is_told_of() {
    let scene = Scene::set("(setsid sleep 3072 &); exec sleep 3072");
    let (_talk, mut heard) = scene.start("x").await;
    let mark = heard.spawned().await;
    eventually("both run", || scene.house.left().len() == 2).await;
    kill(mark.pid);
    assert!(matches!(
        heard.turn_end().await,
        TurnEnd::Crashed { signal: Some(9), .. }
    ));
    assert_eq!(heard.exited().await, (None, Some(9)));
    scene.house.nothing_is_left().await;
}

#[tokio::test]
async fn a_turn_begins_only_when_the_process_of_the_last_one_is_gone() {
    let scene = Scene::set(
        r#"echo '{"type":"TaskComplete","result":"done"}'
           case $1 in first) trap '' INT TERM; sleep 3073; sleep 3073;; esac"#,
    );
    let (talk, mut heard) = scene.start("first").await;
    let first = heard.spawned().await;
    assert_eq!(heard.turn_end().await, completed("done"));
    talk.send(text("second")).await.unwrap();
    assert!(!crate::house::runs(&first), "two would write to one conversation");
    assert_eq!(heard.turn_end().await, completed("done"));
}

#[tokio::test]
async fn a_second_message_into_a_running_turn_is_refused_not_lost() {
    let scene = Scene::set("sleep 3073");
    let (talk, mut heard) = scene.start("x").await;
    heard.spawned().await;
    assert!(matches!(talk.send(text("y")).await, Err(DriverError::Unsupported(_))));
    talk.stop().await;
    scene.house.nothing_is_left().await;
}

#[tokio::test]
async fn the_environment_is_built_from_nothing() {
    let scene = Scene::set("env | cut -d= -f1 | sort | tr '\\n' ' ' >names; echo \"$HOME\" >home");
    let (_talk, mut heard) = scene.start("x").await;
    heard.exited().await;
    let read = |name: &str| fs::read_to_string(scene.house.path("workspace").join(name)).unwrap();
    assert_eq!(read("names").trim(), "COUNTERSIGN_JOB HOME LANG PATH PWD SHELL TMPDIR");
    assert_eq!(read("home").trim(), scene.house.path("home").display().to_string());
}

#[tokio::test]
async fn what_a_dead_supervisor_left_is_found_by_its_mark() {
    let scene = Scene::set("(setsid sleep 3074 &); exec sleep 3074");
    let (talk, mut heard) = scene.start("x").await;
    let mark = heard.spawned().await;
    eventually("both run", || scene.house.left().len() == 2).await;
    drop(talk);
    let driver = Jsonl::new(scene.house.launcher(), scene.definition.clone());
    driver.reap(scene.house.job_id.clone(), Some(mark)).await;
    assert_eq!(scene.house.left(), Vec::<u32>::new());
}
