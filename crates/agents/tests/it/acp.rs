//! Agents that speak the Agent Client Protocol: the adapter for Codex, and opencode, which needs none.

use std::sync::Arc;

use countersign_agents::Acp;
use countersign_gateway::job::driver::{
    AgentAnswer, AgentDriver, AgentEventKind, Conversation, QuestionAbout, Terms, TurnEnd,
};
use countersign_gateway::policy::effective::SandboxMode;

use crate::codex::configure;
use crate::house::{Heard, House, eventually, if_cut_off, kill, text};
use crate::shared::fakes::{Server, messages, responses};
use crate::shared::installed::{self, have};
use crate::shared::marked::is_sleeping;

struct Scene {
    house: House,
    model: Server,
    driver: Acp,
    terms: Terms,
}

impl Scene {
    fn set() -> Option<Scene> {
        have("codex-acp").then(|| {
            let (house, model) = (House::new(), responses::start());
            configure(&house, &model);
            let mut terms = house.terms(&installed::codex_acp_environment(&house.path("home")));
            // Where every command is a question.
            terms.sandbox = SandboxMode::ReadOnly;
            Scene {
                driver: Acp::new(house.launcher(), vec!["codex-acp".to_owned()]),
                house,
                model,
                terms,
            }
        })
    }

    /// opencode, which speaks the protocol itself.
    fn set_opencode() -> Option<Scene> {
        have("opencode").then(|| {
            let (house, model) = (House::new(), messages::start());
            let terms = house.terms(&installed::opencode_environment(&model, &house.path("home")));
            Scene {
                driver: Acp::new(house.launcher(), vec!["opencode".to_owned(), "acp".to_owned()]),
                house,
                model,
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

/// The adapter puts its warnings before what the model said.
fn said(end: &TurnEnd, text: &str) -> bool {
    matches!(end, TurnEnd::Completed { result: Some(result) } if result.ends_with(text))
}

#[tokio::test]
async fn a_conversation_goes_on_from_turn_to_turn() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[say hello]]").await;
    assert!(matches!(heard.next().await, AgentEventKind::Spawned(_)));
    heard.started().await;
    assert!(said(&heard.turn_end().await, "hello"));
    let first = heard.usage().unwrap();
    talk.send(text("[[say again]]")).await.unwrap();
    assert!(said(&heard.turn_end().await, "again"));
    let both = heard.usage().unwrap();
    assert_eq!((first.total_tokens, both.total_tokens), (107, 214));
    assert_eq!(first.prompt_tokens + first.completion_tokens, first.total_tokens);
    talk.stop().await;
    heard.exited().await;
    scene.house.nothing_is_left().await;
}

#[tokio::test]
async fn a_command_runs_when_it_is_allowed_and_not_when_it_is_denied() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[shell! touch allowed]]").await;
    let question = heard.question().await;
    let QuestionAbout::Command { command, .. } = &question.about else {
        panic!("{question:?}");
    };
    assert!(command.contains("touch allowed"), "{command}");
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    assert!(matches!(heard.turn_end().await, TurnEnd::Completed { .. }));
    assert!(scene.terms.cwd.join("allowed").exists());
    talk.send(text("[[shell! touch denied]]")).await.unwrap();
    let question = heard.question().await;
    let no = AgentAnswer::Deny {
        reason: "not today".to_owned(),
    };
    talk.answer(&question.id, no).await.unwrap();
    heard.turn_end().await;
    assert!(!scene.terms.cwd.join("denied").exists());
    talk.stop().await;
    scene.house.nothing_is_left().await;
}

#[tokio::test]
async fn an_interrupt_ends_the_turn_and_what_it_started_and_the_conversation_goes_on() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[shell! setsid sleep 3075 & sleep 3075]]").await;
    let question = heard.question().await;
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    eventually("both commands run", || scene.sleeping() == 2).await;
    talk.interrupt().await.unwrap();
    assert_eq!(scene.sleeping(), 0);
    assert_eq!(heard.turn_end().await, TurnEnd::Interrupted);
    talk.send(text("[[say still here]]")).await.unwrap();
    assert!(said(&heard.turn_end().await, "still here"));
    talk.stop().await;
    scene.house.nothing_is_left().await;
}

#[tokio::test]
async fn a_killed_agent_is_told_of_leaves_nothing_and_is_taken_up_again() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[shell! setsid sleep 3076 & sleep 3076]]").await;
    let mark = heard.spawned().await;
    let id = heard.started().await;
    let question = heard.question().await;
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
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
    let talk = scene.driver.resume(resume, sink).await.unwrap();
    assert_eq!(heard.started().await, id);
    assert!(said(&heard.turn_end().await, "back"));
    talk.stop().await;
    scene.house.nothing_is_left().await;
}

#[tokio::test]
async fn opencode_is_spoken_with_asks_before_it_acts_and_is_taken_up_again() {
    let Some(scene) = Scene::set_opencode() else { return };
    let (talk, mut heard) = scene.start("[[say hello]]").await;
    let mark = heard.spawned().await;
    let id = heard.started().await;
    assert!(said(&heard.turn_end().await, "hello"));
    assert!(heard.usage().is_some_and(|usage| usage.total_tokens >= 107));
    for (answer, name) in [
        (AgentAnswer::Allow, "allowed"),
        (
            AgentAnswer::Deny {
                reason: "not today".to_owned(),
            },
            "denied",
        ),
    ] {
        talk.send(text(&format!("[[shell touch {name}]]"))).await.unwrap();
        let question = heard.question().await;
        let QuestionAbout::Command { command, .. } = &question.about else {
            panic!("{question:?}");
        };
        assert_eq!(command, &format!("touch {name}"));
        assert!(!scene.terms.cwd.join(name).exists(), "it asks first");
        talk.answer(&question.id, answer.clone()).await.unwrap();
        heard.turn_end().await;
        assert_eq!(scene.terms.cwd.join(name).exists(), answer == AgentAnswer::Allow);
    }
    kill(mark.pid);
    assert_eq!(heard.exited().await, (None, Some(9)));
    let (sink, mut heard) = Heard::new();
    let resume = scene
        .house
        .resume(&id, Some(mark), if_cut_off("[[say back]]"), &scene.terms);
    let talk = scene.driver.resume(resume, sink).await.unwrap();
    assert_eq!(heard.started().await, id);
    assert!(said(&heard.turn_end().await, "back"));
    assert!(!scene.model.seen.lock().unwrap().is_empty());
    talk.stop().await;
    scene.house.nothing_is_left().await;
}

#[tokio::test]
async fn agents_introduce_themselves_and_a_missing_one_is_said_how_to_install() {
    let Some(scene) = Scene::set() else { return };
    let probed = scene.driver.probe().await.unwrap();
    assert!(probed.known && probed.asks && probed.resumes, "{probed:?}");
    if have("opencode") {
        let opencode = Acp::new(scene.house.launcher(), vec!["opencode".to_owned(), "acp".to_owned()]);
        let probed = opencode.probe().await.unwrap();
        assert!(probed.known && probed.version.starts_with("1."), "{probed:?}");
    }
    let missing = Acp::new(scene.house.launcher(), vec!["gemini".to_owned(), "--acp".to_owned()]);
    let error = missing.probe().await.unwrap_err().to_string();
    assert!(error.contains("npm install -g @google/gemini-cli"), "{error}");
}
