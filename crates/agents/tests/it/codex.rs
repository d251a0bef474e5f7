//! Codex by its app-server.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersign_agents::CodexAppServer;
use countersign_gateway::job::driver::{
    AgentAnswer, AgentDriver, AgentEventKind, Conversation, DriverError, Endpoint, FileChangeKind, ItemKind, ItemPhase,
    QuestionAbout, Terms, TurnEnd,
};
use countersign_gateway::policy::effective::{Mode, SandboxMode};

use crate::house::{Heard, House, completed, eventually, if_cut_off, kill, next, runs, text};
use crate::shared::fakes::{Server, responses};
use crate::shared::installed::{self, have};
use crate::shared::marked::{is_sleeping, of_job as marked};

pub(crate) struct Scene {
    pub(crate) house: House,
    model: Server,
    pub(crate) driver: CodexAppServer,
    pub(crate) terms: Terms,
}

/// Configuration that leads Codex to our model.
pub(crate) fn configure(house: &House, model: &Server) {
    let home = house.path("home");
    let config = installed::codex_configuration(model);
    std::fs::write(home.join("config.toml"), config).unwrap();
}

impl Scene {
    fn set() -> Option<Scene> {
        have("codex").then(|| {
            let (house, model) = (House::new(), responses::start());
            configure(&house, &model);
            let terms = house.terms(&[("CODEX_HOME", house.path("home").display().to_string())]);
            Scene {
                driver: Scene::driver(&house),
                house,
                model,
                terms,
            }
        })
    }

    /// As after a restart: nothing is remembered.
    fn driver(house: &House) -> CodexAppServer {
        CodexAppServer::new(house.launcher(), vec!["codex".to_owned()])
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
        marked(&self.terms.job_id)
            .iter()
            .filter(|pid| is_sleeping(**pid))
            .count()
    }
}

#[tokio::test]
async fn a_conversation_goes_on_from_turn_to_turn_and_its_server_ends_with_it() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[say hello]]").await;
    let mark = heard.spawned().await;
    assert!(mark.socket.is_some());
    heard.started().await;
    assert_eq!(heard.turn_end().await, completed("hello"));
    let first = heard.usage().unwrap();
    assert!(heard.kinds().contains(&&AgentEventKind::Message("hello".to_owned())));
    talk.send(text("[[say again]]")).await.unwrap();
    assert_eq!(heard.turn_end().await, completed("again"));
    assert!(heard.usage().unwrap().total_tokens > first.total_tokens);
    talk.stop().await;
    assert!(!runs(&mark));
    heard.exited().await;
}

#[tokio::test]
async fn a_command_runs_when_it_is_allowed_and_not_when_it_is_denied() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[shell touch allowed]]").await;
    let question = heard.question().await;
    let QuestionAbout::Command { command, cwd } = &question.about else {
        panic!("{question:?}");
    };
    assert!(command.contains("touch allowed"), "{command}");
    assert!(!question.wants_more);
    assert_eq!(cwd.as_deref(), Some(scene.terms.cwd.as_path()));
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    assert!(matches!(heard.turn_end().await, TurnEnd::Completed { .. }));
    assert!(scene.terms.cwd.join("allowed").exists());

    talk.send(text("[[shell touch denied]]")).await.unwrap();
    let question = heard.question().await;
    let no = AgentAnswer::Deny {
        reason: "not today".to_owned(),
    };
    talk.answer(&question.id, no).await.unwrap();
    assert!(matches!(heard.turn_end().await, TurnEnd::Completed { .. }));
    assert!(!scene.terms.cwd.join("denied").exists());
    let told = || {
        scene
            .model
            .seen
            .lock()
            .unwrap()
            .iter()
            .any(|request| request.body.to_string().contains("declined: not today"))
    };
    eventually("the model hears the reason", told).await;
    assert!(
        heard
            .kinds()
            .iter()
            .any(|kind| matches!(kind, AgentEventKind::Item(item)
        if item.kind == ItemKind::Command && item.phase == ItemPhase::Declined))
    );
    // What was answered is not withdrawn as well.
    assert!(
        !heard
            .kinds()
            .iter()
            .any(|kind| matches!(kind, AgentEventKind::ApprovalWithdrawn(_)))
    );
    talk.stop().await;
}

#[tokio::test]
async fn an_edit_is_asked_for_with_its_file_and_diff() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[patch new.txt some words]]").await;
    let question = heard.question().await;
    let QuestionAbout::Patch { changes, grant_root } = &question.about else {
        panic!("{question:?}");
    };
    assert_eq!(
        (changes.len(), changes[0].kind, *grant_root),
        (1, FileChangeKind::Create, false)
    );
    assert!(
        changes[0]
            .diff
            .as_deref()
            .is_some_and(|diff| diff.contains("some words")),
        "{changes:?}"
    );
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    heard.turn_end().await;
    assert_eq!(
        std::fs::read_to_string(scene.terms.cwd.join("new.txt")).unwrap(),
        "some words\n"
    );
    talk.stop().await;
}

#[tokio::test]
async fn an_interrupt_ends_the_turn_and_what_it_started_and_the_conversation_goes_on() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[shell! setsid sleep 3063 & sleep 3063]]").await;
    let question = heard.question().await;
    assert!(question.wants_more, "it asks to be let out of its sandbox");
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    eventually("both commands run", || scene.sleeping() == 2).await;
    talk.interrupt().await.unwrap();
    assert_eq!(marked(&scene.terms.job_id), Vec::<u32>::new());
    assert_eq!(heard.turn_end().await, TurnEnd::Interrupted);
    talk.send(text("[[say still here]]")).await.unwrap();
    assert_eq!(heard.turn_end().await, completed("still here"));
    talk.stop().await;
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
async fn a_word_into_a_running_turn_reaches_it() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[slow 20]]").await;
    heard
        .until(|kind| matches!(kind, AgentEventKind::TextDelta(_)).then_some(()))
        .await;
    talk.send(text("[[say steered]]")).await.unwrap();
    assert_eq!(heard.turn_end().await, completed("steered"));
    let starts = heard
        .kinds()
        .iter()
        .filter(|kind| matches!(kind, AgentEventKind::TurnStarted { .. }))
        .count();
    assert_eq!(starts, 1);
    talk.stop().await;
}

#[tokio::test]
async fn a_turn_is_not_over_while_a_command_of_it_runs_in_the_background() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[shell! sleep 17; touch done]]").await;
    let question = heard.question().await;
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    assert!(matches!(heard.turn_end().await, TurnEnd::Completed { .. }));
    assert!(scene.terms.cwd.join("done").exists());
    talk.stop().await;
}

#[tokio::test]
async fn one_process_serves_many_conversations_and_an_interrupt_spares_the_neighbours() {
    let Some(scene) = Scene::set() else { return };
    let (first, mut one) = scene.start("[[shell! sleep 3064]]").await;
    let (sink, mut two) = Heard::new();
    let terms = Terms {
        job_id: format!("{}_b", scene.terms.job_id),
        ..scene.terms.clone()
    };
    let second = scene
        .driver
        .start(scene.house.start("[[shell! sleep 3064]]", &terms), sink)
        .await
        .unwrap();
    let marks = BTreeSet::from([one.spawned().await.pid, two.spawned().await.pid]);
    assert_eq!(marks.len(), 1, "they share one process");
    for (talk, heard) in [(&first, &mut one), (&second, &mut two)] {
        let question = heard.question().await;
        talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    }
    let both = || [&scene.terms.job_id, &terms.job_id].map(|job| marked(job).len());
    eventually("both commands run", || both().iter().all(|count| *count > 0)).await;
    first.interrupt().await.unwrap();
    assert_eq!(one.turn_end().await, TurnEnd::Interrupted);
    assert!(both()[0] == 0 && both()[1] > 0, "{:?}", both());
    first.stop().await;
    assert!(both()[1] > 0, "the neighbour's command goes on");
    second.stop().await;
    assert_eq!(both(), [0, 0]);
    eventually("the process has ended", || {
        marks
            .iter()
            .all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
    })
    .await;
}

#[tokio::test]
async fn callers_and_directories_do_not_share_a_process() {
    let Some(scene) = Scene::set() else { return };
    let (first, mut one) = scene.start("[[say one]]").await;
    let (sink, mut two) = Heard::new();
    let terms = Terms {
        caller: "somebody else".to_owned(),
        ..scene.terms.clone()
    };
    let second = scene
        .driver
        .start(scene.house.start("[[say two]]", &terms), sink)
        .await
        .unwrap();
    assert_ne!(one.spawned().await.pid, two.spawned().await.pid);
    for talk in [first, second] {
        talk.stop().await;
    }
}

#[tokio::test]
async fn a_turn_runs_on_without_us_and_its_open_question_is_asked_again() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[shell touch later]]").await;
    let mark = heard.spawned().await;
    let id = heard.started().await;
    let question = heard.question().await;
    // As when we die: nobody listens, nothing is said.
    drop(heard);
    drop(talk);

    let (sink, mut heard) = Heard::new();
    let after = Scene::driver(&scene.house);
    let resume = scene
        .house
        .resume(&id, Some(mark.clone()), if_cut_off("[[say not this]]"), &scene.terms);
    let talk = after.resume(resume, sink).await.unwrap();
    assert_eq!(heard.started().await, id);
    let again = heard.question().await;
    assert_eq!(again.id, question.id);
    talk.answer(&again.id, AgentAnswer::Allow).await.unwrap();
    assert_eq!(heard.turn_end().await, completed("done after 1 result(s)"));
    assert!(scene.terms.cwd.join("later").exists());
    talk.stop().await;
    assert!(!runs(&mark));
}

#[tokio::test]
async fn a_hung_turn_whose_supervisor_died_is_ended_with_its_process() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[hang]]").await;
    let mark = heard.spawned().await;
    heard
        .until(|kind| matches!(kind, AgentEventKind::TurnStarted { .. }).then_some(()))
        .await;
    // As when we die: nobody listens, nothing is said.
    drop(heard);
    drop(talk);
    let after = Scene::driver(&scene.house);
    after.reap(scene.terms.job_id.clone(), Some(mark.clone())).await;
    assert!(!runs(&mark));
}

#[tokio::test]
async fn an_app_server_that_nobody_recorded_is_ended_with_its_job() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[hang]]").await;
    let mark = heard.spawned().await;
    drop(heard);
    drop(talk);
    let after = Scene::driver(&scene.house);
    after.reap("another job".to_owned(), None).await;
    assert!(runs(&mark), "it was not started for that one");
    after.reap(scene.terms.job_id.clone(), None).await;
    assert!(!runs(&mark));
}

#[tokio::test]
async fn a_turn_that_ended_while_we_were_away_is_told_of() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[slow 10]]").await;
    let mark = heard.spawned().await;
    let id = heard.started().await;
    heard
        .until(|kind| matches!(kind, AgentEventKind::TextDelta(_)).then_some(()))
        .await;
    drop(heard);
    drop(talk);
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let (sink, mut heard) = Heard::new();
    let after = Scene::driver(&scene.house);
    let talk = after
        .resume(
            scene
                .house
                .resume(&id, Some(mark), if_cut_off("[[say not this]]"), &scene.terms),
            sink,
        )
        .await
        .unwrap();
    assert!(matches!(heard.turn_end().await, TurnEnd::Completed { .. }));
    talk.stop().await;
}

#[tokio::test]
async fn a_command_that_runs_while_we_are_away_is_found_running_and_ends_well() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[shell! sleep 4; touch after]]").await;
    let mark = heard.spawned().await;
    let id = heard.started().await;
    let question = heard.question().await;
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    eventually("the command runs", || scene.sleeping() == 1).await;
    drop(heard);
    drop(talk);
    let (sink, mut heard) = Heard::new();
    let after = Scene::driver(&scene.house);
    let talk = after
        .resume(
            scene
                .house
                .resume(&id, Some(mark), if_cut_off("[[say not this]]"), &scene.terms),
            sink,
        )
        .await
        .unwrap();
    assert!(matches!(heard.turn_end().await, TurnEnd::Completed { .. }));
    assert!(scene.terms.cwd.join("after").exists());
    talk.stop().await;
}

#[tokio::test]
async fn a_killed_app_server_is_told_of_leaves_nothing_and_its_conversation_is_taken_up_again() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[shell! setsid sleep 3065 & sleep 3065]]").await;
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
    assert_eq!(heard.turn_end().await, completed("back"));
    talk.stop().await;
}

#[tokio::test]
async fn a_conversation_that_is_not_there_cannot_be_taken_up() {
    let Some(scene) = Scene::set() else { return };
    let (sink, _heard) = Heard::new();
    let id = "01a1e047-755e-7529-9218-180cba7159b3";
    let refused = scene
        .driver
        .resume(scene.house.resume(id, None, next("hello"), &scene.terms), sink)
        .await;
    assert!(matches!(refused.err(), Some(DriverError::Lost(_))));
    scene.house.nothing_is_left().await;
}

#[tokio::test]
async fn an_error_of_the_model_is_a_failed_turn_and_too_many_requests_are_a_limit() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[http 500]]").await;
    let end = heard.turn_end().await;
    assert!(matches!(&end, TurnEnd::Failed { retryable: true, .. }), "{end:?}");
    talk.send(text("[[http 429]]")).await.unwrap();
    heard.turn_end().await;
    assert!(
        heard
            .kinds()
            .iter()
            .any(|kind| matches!(kind, AgentEventKind::LimitReached { .. }))
    );
    talk.stop().await;
}

#[tokio::test]
async fn what_a_dead_supervisor_left_is_ended_and_nothing_else() {
    let Some(scene) = Scene::set() else { return };
    let (talk, mut heard) = scene.start("[[shell! sleep 3066]]").await;
    let mark = heard.spawned().await;
    let question = heard.question().await;
    talk.answer(&question.id, AgentAnswer::Allow).await.unwrap();
    eventually("the command runs", || scene.sleeping() == 1).await;
    drop(heard);
    drop(talk);
    let after = Scene::driver(&scene.house);
    // A record of another process with this number must not end this one.
    let mut other = mark.clone();
    other.started += 1;
    after.reap("job_other".to_owned(), Some(other)).await;
    assert!(runs(&mark) && scene.sleeping() == 1);
    after.reap(scene.terms.job_id.clone(), Some(mark.clone())).await;
    scene.house.nothing_is_left().await;
    eventually("the app-server has ended", || !runs(&mark)).await;
}

#[tokio::test]
async fn an_agent_that_never_asks_runs_confined_and_reaches_us_as_its_server() {
    let Some(mut scene) = Scene::set() else { return };
    let endpoint = Server::start(|request, reply| {
        let id = request.body["id"].clone();
        reply.json(
            200,
            &serde_json::json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}),
        );
    });
    scene.terms.mode = Mode::Never;
    scene.terms.endpoint = Some(Endpoint {
        url: format!("http://{}/mcp", endpoint.address),
        token: "the-jobs-token".to_owned(),
    });
    let (talk, mut heard) = scene
        .start("[[shell touch inside; touch /var/tmp/countersign-outside; env > seen]]")
        .await;
    assert!(matches!(heard.turn_end().await, TurnEnd::Completed { .. }));
    assert!(scene.terms.cwd.join("inside").exists());
    assert!(!std::path::Path::new("/var/tmp/countersign-outside").exists());
    let seen = std::fs::read_to_string(scene.terms.cwd.join("seen")).unwrap();
    assert!(
        seen.contains(&format!("COUNTERSIGN_JOB={}", scene.terms.job_id)),
        "{seen}"
    );
    let authorised = || {
        endpoint.seen.lock().unwrap().iter().any(|request| {
            request
                .headers
                .contains(&("authorization".to_owned(), "Bearer the-jobs-token".to_owned()))
        })
    };
    eventually("the endpoint was asked with the job's token", authorised).await;
    talk.stop().await;
}

#[tokio::test]
async fn a_command_cannot_speak_to_the_app_server_even_without_a_sandbox() {
    let Some(mut scene) = Scene::set() else { return };
    (scene.terms.mode, scene.terms.sandbox) = (Mode::Never, SandboxMode::DangerFullAccess);
    // All that could be a socket of it: where it was told to make one, where that leads, where we took it.
    let connect = "for (glob(\"$ARGV[0]/rooms/*/* $ARGV[0]/sockets/*\")) { \
        print \"$_ \" if IO::Socket::UNIX->new(Peer => readlink($_) // $_) }";
    let runtime = scene.house.path("runtime");
    let prompt = format!(
        "[[shell perl -MIO::Socket::UNIX -e '{connect}' {} > reached]]",
        runtime.display()
    );
    let (talk, mut heard) = scene.start(&prompt).await;
    let mark = heard.spawned().await;
    heard.turn_end().await;
    assert!(mark.socket.is_some_and(|socket| socket.exists()));
    let reached = std::fs::read_to_string(scene.terms.cwd.join("reached")).unwrap();
    assert_eq!(reached, "");
    talk.stop().await;
}

#[tokio::test]
async fn an_app_server_that_does_not_start_says_why() {
    let Some(scene) = Scene::set() else { return };
    let command = vec!["codex".to_owned(), "--no-such-option".to_owned()];
    let driver = CodexAppServer::new(scene.house.launcher(), command);
    let (sink, _heard) = Heard::new();
    let refused = driver.start(scene.house.start("[[say x]]", &scene.terms), sink).await;
    let Some(DriverError::Process(reason)) = refused.err() else {
        panic!("it was started");
    };
    assert!(reason.starts_with("the app-server ended with status 2: "), "{reason}");
}

#[tokio::test]
async fn its_version_is_found_and_a_missing_one_is_said_how_to_install() {
    let Some(scene) = Scene::set() else { return };
    let probed = scene.driver.probe().await.unwrap();
    assert!(probed.known && probed.asks && probed.resumes, "{probed:?}");
    let missing = CodexAppServer::new(scene.house.launcher(), vec!["no-such-codex".to_owned()]);
    let error = missing.probe().await.unwrap_err().to_string();
    assert!(error.contains("npm install -g @openai/codex"), "{error}");
}
