//! Codex by `codex exec`.

use std::sync::Arc;

use countersign_agents::CodexExec;
use countersign_gateway::job::driver::{AgentDriver, Conversation, DriverError, Terms, TurnEnd};
use countersign_gateway::policy::effective::{Mode, SandboxMode};

use crate::codex::configure;
use crate::house::{Heard, House, completed, eventually, if_cut_off, kill, next, text};
use crate::shared::fakes::{Server, responses};
use crate::shared::installed::have;
use crate::shared::marked::is_sleeping;

struct Scene {
    house: House,
    _model: Server,
    driver: CodexExec,
    terms: Terms,
}

impl Scene {
    fn set() -> Option<Scene> {
        have("codex").then(|| {
            let (house, model) = (House::new(), responses::start());
            configure(&house, &model);
            let mut terms = house.terms(&[("CODEX_HOME", house.path("home").display().to_string())]);
            terms.mode = Mode::Never;
            Scene {
                driver: CodexExec::new(house.launcher(), vec!["codex".to_owned()]),
                house,
                _model: model,
                terms,
            }
        })
    }

    async fn start(&self, prompt: &str) -> (Arc<dyn Conversation>, Heard) {
        let (sink, heard) = Heard::new();
        let talk = self
            .driver
            .start(self.house.start(prompt, &self.terms), sink)
            .await
            .unwrap();
        (talk, heard)
    }

    fn sleeping(&self) -> usize {
        self.house.left().iter().filter(|pid| is_sleeping(**pid)).count()
    }
}

#[tokio::test]
async fn each_turn_is_a_process_of_the_same_conversation_and_usage_adds_up() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[say - hello]]").await;
    let first = heard.spawned().await;
    let id = heard.started().await;
    assert_eq!(heard.turn_end().await, completed("- hello"));
    let used = heard.usage().unwrap().total_tokens;
    heard.exited().await;
    talk.send(text("[[say again]]")).await.unwrap();
    assert_ne!(heard.spawned().await, first);
    assert_eq!(heard.started().await, id);
    assert_eq!(heard.turn_end().await, completed("again"));
    assert!(heard.usage().unwrap().total_tokens > used);
    heard.exited().await;
    scene.house.nothing_is_left().await;
}

#[tokio::test]
async fn jobs_that_ask_are_refused() {
    let Some(scene) = Scene::set() else { return };
    for mode in [Mode::Untrusted, Mode::OnRequest, Mode::OnFailure] {
        let terms = Terms {
            mode,
            ..scene.terms.clone()
        };
        let (sink, _heard) = Heard::new();
        let refused = scene.driver.start(scene.house.start("[[say x]]", &terms), sink).await;
        assert!(matches!(refused.err(), Some(DriverError::Unsupported(_))));
    }
}

#[tokio::test]
async fn the_sandbox_is_said_again_when_a_conversation_is_taken_up() {
    let Some(mut scene) = Scene::set() else { return };
    scene.terms.sandbox = SandboxMode::ReadOnly;
    let (_talk, mut heard) = scene.start("[[say hello]]").await;
    let id = heard.started().await;
    heard.exited().await;
    let (sink, mut heard) = Heard::new();
    let resume = scene
        .house
        .resume(&id, None, next("[[shell touch written]]"), &scene.terms);
    let _talk = scene.driver.resume(resume, sink).await.unwrap();
    assert_eq!(heard.started().await, id);
    heard.exited().await;
    assert!(!scene.terms.cwd.join("written").exists());
}

#[tokio::test]
async fn an_interrupt_ends_the_turn_and_all_of_its_processes() {
    let Some(mut scene) = Scene::set() else { return };
    scene.terms.sandbox = SandboxMode::DangerFullAccess;
    let (talk, mut heard) = scene.start("[[shell setsid sleep 3067 & sleep 3067]]").await;
    eventually("both commands run", || scene.sleeping() == 2).await;
    talk.interrupt().await.unwrap();
    assert_eq!(scene.house.left(), Vec::<u32>::new());
    assert_eq!(heard.turn_end().await, TurnEnd::Interrupted);
    heard.exited().await;
    talk.send(text("[[say on]]")).await.unwrap();
    assert_eq!(heard.turn_end().await, completed("on"));
    talk.stop().await;
}

#[tokio::test]
async fn a_killed_turn_is_told_of_leaves_nothing_and_its_conversation_is_taken_up_again() {
    let Some(mut scene) = Scene::set() else { return };
    scene.terms.sandbox = SandboxMode::DangerFullAccess;
    let (_talk, mut heard) = scene.start("[[shell setsid sleep 3068 & sleep 3068]]").await;
    let mark = heard.spawned().await;
    let id = heard.started().await;
    eventually("both commands run", || scene.sleeping() == 2).await;
    kill(mark.pid);
    assert!(matches!(
        heard.turn_end().await,
        TurnEnd::Crashed { signal: Some(9), .. }
    ));
    assert_eq!(heard.exited().await, (None, Some(9)));
    scene.house.nothing_is_left().await;
    let (sink, mut heard) = Heard::new();
    let resume = scene
        .house
        .resume(&id, Some(mark), if_cut_off("[[say back]]"), &scene.terms);
    let _talk = scene.driver.resume(resume, sink).await.unwrap();
    assert_eq!(heard.turn_end().await, completed("back"));
    heard.exited().await;
}

#[tokio::test]
async fn a_conversation_that_is_not_there_cannot_be_taken_up() {
    let Some(scene) = Scene::set() else { return };
    let (sink, _heard) = Heard::new();
    let refused = scene
        .driver
        .resume(scene.house.resume("no-uuid", None, next("x"), &scene.terms), sink)
        .await;
    assert!(matches!(refused.err(), Some(DriverError::Lost(_))));
    let (sink, mut heard) = Heard::new();
    let id = "01a1e047-755e-7529-9218-180cba7159b3";
    let _talk = scene
        .driver
        .resume(scene.house.resume(id, None, next("x"), &scene.terms), sink)
        .await
        .unwrap();
    let end = heard.turn_end().await;
    assert!(matches!(&end, TurnEnd::Crashed { status: Some(1), .. }), "{end:?}");
}

#[tokio::test]
async fn an_error_of_the_model_is_a_failed_turn() {
    let Some(scene) = Scene::set() else { return };
    let (_talk, mut heard) = scene.start("[[http 500]]").await;
    let end = heard.turn_end().await;
    assert!(matches!(&end, TurnEnd::Failed { retryable: true, .. }), "{end:?}");
    assert_eq!(heard.exited().await, (Some(1), None));
}
