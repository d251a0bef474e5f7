//! Claude Code.

use countersign_agents::ClaudeStream;
use countersign_gateway::job::driver::{
    AgentAnswer, AgentDriver, AgentEventKind, Endpoint, FileChangeKind, ItemKind, ItemPhase, QuestionAbout, Terms,
    TurnEnd,
};

use crate::house::{Heard, House, completed, eventually, if_cut_off, kill, next, text};
use crate::shared::fakes::{Server, messages};
use crate::shared::installed::{self, have};
use crate::shared::marked::is_sleeping;

struct Scene {
    house: House,
    _model: Server,
    driver: ClaudeStream,
    terms: Terms,
}

impl Scene {
    fn set() -> Option<Scene> {
        have("claude").then(|| {
            let (house, model) = (House::new(), messages::start());
            let terms = house.terms(&installed::claude_environment(&model, &house.path("home")));
            Scene {
                driver: ClaudeStream::new(house.launcher(), vec!["claude".to_owned()]),
                house,
                _model: model,
                terms,
            }
        })
    }

    async fn start(
        &self,
        prompt: &str,
    ) -> (
        std::sync::Arc<dyn countersign_gateway::job::driver::Conversation>,
        Heard,
    ) {
        let (sink, heard) = Heard::new();
        let talk = self
            .driver
            .start(self.house.start(prompt, &self.terms), sink)
            .await
            .unwrap();
        (talk, heard)
    }
}

#[tokio::test]
async fn a_conversation_has_its_id_before_its_first_turn_and_goes_on_after_it() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[say hello]]").await;
    assert!(matches!(heard.next().await, AgentEventKind::Spawned(_)));
    let id = heard.started().await;
    assert_eq!(heard.turn_end().await, completed("hello"));
    let first = heard.usage().unwrap();
    assert!(heard.kinds().contains(&&AgentEventKind::TextDelta("hello".to_owned())));
    assert!(heard.kinds().contains(&&AgentEventKind::Message("hello".to_owned())));
    talk.send(text("[[say again]]")).await.unwrap();
    assert_eq!(heard.turn_end().await, completed("again"));
    let second = heard.usage().unwrap();
    assert!(
        second.total_tokens > first.total_tokens && second.cost_usd > first.cost_usd,
        "{first:?} {second:?}"
    );
    talk.stop().await;
    heard.exited().await;
    scene.house.nothing_is_left().await;
    assert!(!id.is_empty());
}

#[tokio::test]
async fn a_command_runs_when_it_is_allowed_and_not_when_it_is_denied() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[shell touch allowed]]").await;
    let question = heard.question().await;
    assert_eq!(
        question.about,
        QuestionAbout::Command {
            command: "touch allowed".to_owned(),
            cwd: Some(scene.house.path("workspace")),
        }
    );
    assert!(!scene.house.path("workspace/allowed").exists());
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    assert!(matches!(heard.turn_end().await, TurnEnd::Completed { .. }));
    assert!(scene.house.path("workspace/allowed").exists());
    assert!(
        heard
            .kinds()
            .iter()
            .any(|kind| matches!(kind, AgentEventKind::Item(item)
        if item.kind == ItemKind::Command && item.phase == ItemPhase::Completed && item.title == "touch allowed"))
    );

    talk.send(text("[[shell touch denied]]")).await.unwrap();
    let question = heard.question().await;
    let no = AgentAnswer::Deny {
        reason: "not today".to_owned(),
    };
    talk.answer(&question.id, no).await.unwrap();
    assert!(matches!(heard.turn_end().await, TurnEnd::Completed { .. }));
    assert!(!scene.house.path("workspace/denied").exists());
    // An answer that comes too late is no error.
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    talk.stop().await;
    scene.house.nothing_is_left().await;
}

#[tokio::test]
async fn an_edit_is_asked_for_with_its_file_and_text() {
    let Some(scene) = Scene::set() else { return };
    let path = scene.house.path("workspace/new.txt");
    let (talk, mut heard) = scene.start(&format!("[[write {} some words]]", path.display())).await;
    let question = heard.question().await;
    let QuestionAbout::Patch { changes, grant_root } = &question.about else {
        panic!("{question:?}");
    };
    assert_eq!(
        (changes[0].kind, changes[0].diff.as_deref(), *grant_root),
        (FileChangeKind::Create, Some("+some words\n"), false)
    );
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    heard.turn_end().await;
    assert_eq!(std::fs::read_to_string(path).unwrap(), "some words");
    talk.stop().await;
}

#[tokio::test]
async fn an_interrupt_ends_the_turn_and_what_it_started_and_the_conversation_goes_on() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[shell setsid sleep 3061 & sleep 3061]]").await;
    let question = heard.question().await;
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    let sleeping = || {
        crate::shared::marked::of_job(&scene.house.job_id)
            .iter()
            .filter(|pid| is_sleeping(**pid))
            .count()
    };
    eventually("both commands run", || sleeping() == 2).await;
    talk.interrupt().await.unwrap();
    assert_eq!(sleeping(), 0);
    assert_eq!(heard.turn_end().await, TurnEnd::Interrupted);
    talk.send(text("[[say still here]]")).await.unwrap();
    assert_eq!(heard.turn_end().await, completed("still here"));
    talk.stop().await;
    scene.house.nothing_is_left().await;
}

#[tokio::test]
async fn an_interrupt_withdraws_the_open_question() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[shell touch never]]").await;
    let question = heard.question().await;
    talk.interrupt().await.unwrap();
    assert_eq!(heard.turn_end().await, TurnEnd::Interrupted);
    assert!(heard.kinds().contains(&&AgentEventKind::ApprovalWithdrawn(question.id)));
    talk.stop().await;
}

#[tokio::test]
async fn a_killed_agent_is_told_of_leaves_nothing_and_is_taken_up_again() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[shell setsid sleep 3062 & sleep 3062]]").await;
    let mark = heard.spawned().await;
    let id = heard.started().await;
    let question = heard.question().await;
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    eventually("both commands run", || {
        scene.house.left().iter().filter(|pid| is_sleeping(**pid)).count() == 2
    })
    .await;
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
    assert_eq!(heard.turn_end().await, completed("back"));
    talk.stop().await;
    scene.house.nothing_is_left().await;
}

#[tokio::test]
async fn a_conversation_that_is_not_there_cannot_be_taken_up() {
    let Some(scene) = Scene::set() else { return };
    let (sink, mut heard) = Heard::new();
    let id = "6f9ecc5e-1111-4222-8333-000000000000";
    let _talk = scene
        .driver
        .resume(scene.house.resume(id, None, next("hello"), &scene.terms), sink)
        .await
        .unwrap();
    let end = heard.turn_end().await;
    assert!(matches!(&end, TurnEnd::Failed { retryable: false, .. }), "{end:?}");
    heard.exited().await;
}

#[tokio::test]
async fn an_error_of_the_model_is_a_failed_turn_although_it_is_called_success() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[http 500]]").await;
    let end = heard.turn_end().await;
    assert!(matches!(&end, TurnEnd::Failed { retryable: true, .. }), "{end:?}");
    talk.stop().await;
}

#[tokio::test]
async fn the_agent_cannot_see_the_state_directory_and_is_not_root() {
    let Some(scene) = Scene::set() else { return };
    let state = scene.house.path("state/key");
    let line = format!("[[shell cat {} > seen; id -u > who]]", state.display());
    let (talk, mut heard) = scene.start(&line).await;
    let question = heard.question().await;
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    heard.turn_end().await;
    let read = |name: &str| std::fs::read_to_string(scene.house.path("workspace").join(name)).unwrap();
    assert_eq!(read("seen"), "");
    assert_ne!(read("who").trim(), "0");
    talk.stop().await;
}

#[tokio::test]
async fn an_agent_reaches_us_as_its_server_with_a_token_that_its_arguments_do_not_show() {
    let Some(mut scene) = Scene::set() else { return };
    let endpoint = Server::start(|request, reply| {
        let id = request.body["id"].clone();
        reply.json(
            200,
            &serde_json::json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}),
        );
    });
    scene.terms.endpoint = Some(Endpoint {
        url: format!("http://{}/mcp", endpoint.address),
        token: "the-jobs-token".to_owned(),
    });
    let (talk, mut heard) = scene.start("[[say hello]]").await;
    let mark = heard.spawned().await;
    assert_eq!(heard.turn_end().await, completed("hello"));
    let wanted = ("authorization".to_owned(), "Bearer the-jobs-token".to_owned());
    let is_asked = || {
        endpoint
            .seen
            .lock()
            .unwrap()
            .iter()
            .any(|request| request.headers.contains(&wanted))
    };
    eventually("the endpoint was asked with the job's token", is_asked).await;
    let arguments = std::fs::read(format!("/proc/{}/cmdline", mark.pid)).unwrap();
    assert!(!String::from_utf8_lossy(&arguments).contains("the-jobs-token"));
    talk.stop().await;
}

#[tokio::test]
async fn a_projects_own_settings_do_not_allow_anything() {
    let Some(scene) = Scene::set() else { return };
    let settings = scene.terms.cwd.join(".claude");
    std::fs::create_dir(&settings).unwrap();
    std::fs::write(
        settings.join("settings.json"),
        r#"{"permissions": {"allow": ["Bash(*)"]}}"#,
    )
    .unwrap();
    let (talk, mut heard) = scene.start("[[shell touch asked-for]]").await;
    heard.question().await;
    assert!(!scene.terms.cwd.join("asked-for").exists());
    talk.stop().await;
}

#[tokio::test]
async fn its_version_is_found_and_a_missing_one_is_said_how_to_install() {
    let Some(scene) = Scene::set() else { return };
    let probed = scene.driver.probe().await.unwrap();
    assert!(probed.known && probed.asks && probed.resumes, "{probed:?}");
    let missing = ClaudeStream::new(scene.house.launcher(), vec!["no-such-claude".to_owned()]);
    let error = missing.probe().await.unwrap_err().to_string();
    assert!(error.contains("npm install -g @anthropic-ai/claude-code"), "{error}");
}

#[tokio::test]
async fn an_agent_lost_before_it_kept_anything_begins_again_under_the_same_name() {
    let Some(scene) = Scene::set() else { return };
    let id = uuid::Uuid::new_v4().to_string();
    let (sink, mut heard) = Heard::new();
    let resume = scene
        .house
        .resume(&id, None, if_cut_off("[[say not this]]"), &scene.terms);
    let talk = scene.driver.resume(resume, sink).await.unwrap();
    assert_eq!(heard.started().await, id);
    assert_eq!(heard.turn_end().await, completed("from the beginning"));
    talk.stop().await;
    scene.house.nothing_is_left().await;
}
