//! Whatever is killed, whenever: the job goes on or ends with a reason, exactly once, and nothing is left of
//! it, lost or told twice.

use serde_json::Value;

use super::stage::{Player, Stage, count, kill};
use crate::bench::Bench;
use crate::client::eventually;
use crate::web::Web;

const NEVER: &str = "approval_policy: {mode: never}\n";

/// What an agent is at when something is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    Message,
    Command,
    Question,
}

/// What is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Agent,
    Server,
    /// Both, the server first.
    Both,
}

/// Brings a job to the moment, kills, and serves again.
fn cut(player: Player, moment: Moment, victim: Victim) -> Option<(Stage, String)> {
    let more = if player == Player::CodexExec { NEVER } else { "" };
    let mut stage = Stage::set_with(player, more)?;
    let asks = player != Player::CodexExec;
    let job = match moment {
        Moment::Message => {
            let job = stage.start("[[slow 60]]");
            eventually("the model is asked", || !stage.model.seen.lock().unwrap().is_empty());
            stage.until(&job, "running");
            job
        }
        Moment::Command => {
            let job = stage.start("[[shell sleep 8; touch done]]");
            if asks {
                stage.decide("approve");
            }
            eventually("the command runs", || stage.sleeping() > 0);
            job
        }
        Moment::Question => {
            let job = stage.start("[[shell touch done]]");
            stage.bench.question();
            job
        }
    };
    let agent = stage.agent().unwrap();
    if victim != Victim::Agent {
        stage.kill_server();
    }
    if victim != Victim::Server {
        kill(agent);
    }
    if victim != Victim::Agent {
        stage.serve();
    }
    Some((stage, job))
}

/// The job ends well, and what must hold holds.
fn ends(stage: Stage, job: &str) -> Vec<Value> {
    let ended = stage.until_ended(job);
    assert_eq!(ended["status"], "completed", "{ended}");
    stage.close(&ended)
}

#[test]
fn a_lost_agent_is_taken_up_where_it_was() {
    for player in [Player::CodexAppServer, Player::CodexExec, Player::Claude] {
        for moment in [Moment::Message, Moment::Command] {
            println!("{player:?} {moment:?}");
            let Some((stage, job)) = cut(player, moment, Victim::Agent) else {
                return;
            };
            eventually("the loss is recorded", || stage.recorded("job.process.crashed") > 0);
            let crashes = stage.recorded("job.process.crashed");
            let lines = ends(stage, &job);
            assert_eq!(count(&lines, "session-recovering"), 1, "{lines:?}");
            let kinds: Vec<_> = lines.iter().filter_map(|line| line["type"].as_str()).collect();
            let crashed = kinds.iter().position(|kind| *kind == "process-crashed");
            let restarted = kinds.iter().position(|kind| *kind == "process-restarted");
            assert!(crashed.is_some() && crashed < restarted, "{kinds:?}");
            assert_eq!((crashes, count(&lines, "process-crashed")), (1, 1), "{kinds:?}");
        }
    }
}

#[test]
fn a_turn_of_the_app_server_runs_on_without_a_server_and_is_told_once() {
    let Some((stage, job)) = cut(Player::CodexAppServer, Moment::Message, Victim::Server) else {
        return;
    };
    let lines = ends(stage, &job);
    assert_eq!(count(&lines, "codex-agent-message"), 1, "{lines:?}");
    let said = lines.iter().find(|line| line["type"] == "codex-agent-message").unwrap();
    assert!(
        said.to_string().contains("part 59"),
        "it is the message that was under way: {said}"
    );
    assert_eq!(count(&lines, "process-restarted"), 0, "its process was never lost");
}

#[test]
fn a_command_of_the_app_server_runs_on_without_a_server_and_runs_once() {
    let Some((stage, job)) = cut(Player::CodexAppServer, Moment::Command, Victim::Server) else {
        return;
    };
    eventually("the command ended by itself", || {
        stage.bench.work().join("done").exists()
    });
    let lines = ends(stage, &job);
    assert_eq!(count(&lines, "process-crashed") + count(&lines, "process-restarted"), 0);
}

#[test]
fn an_agent_that_ends_with_its_server_is_taken_up_by_the_next() {
    for player in [Player::CodexExec, Player::Claude] {
        for moment in [Moment::Message, Moment::Command] {
            println!("{player:?} {moment:?}");
            let Some((stage, job)) = cut(player, moment, Victim::Server) else {
                return;
            };
            ends(stage, &job);
        }
    }
}

#[test]
fn a_job_whose_server_and_agent_are_both_lost_is_taken_up() {
    for player in [Player::CodexAppServer, Player::Claude] {
        for moment in [Moment::Message, Moment::Command] {
            println!("{player:?} {moment:?}");
            let Some((stage, job)) = cut(player, moment, Victim::Both) else {
                return;
            };
            ends(stage, &job);
        }
    }
}

#[test]
fn a_question_whose_server_was_lost_is_asked_once_and_its_answer_reaches_codex() {
    let Some((stage, job)) = cut(Player::CodexAppServer, Moment::Question, Victim::Server) else {
        return;
    };
    stage.until(&job, "running");
    stage.decide("approve");
    eventually("the command ran", || stage.bench.work().join("done").exists());
    let asked = stage.bench.count("SELECT count(*) FROM approvals");
    assert_eq!(asked, 1, "the same question is not asked again");
    ends(stage, &job);
}

#[test]
fn an_answer_given_while_no_server_runs_reaches_codex() {
    let Some(mut stage) = Stage::set(Player::CodexAppServer) else {
        return;
    };
    let job = stage.start("[[shell touch done]]");
    stage.bench.question();
    stage.kill_server();
    stage.decide("approve");
    stage.serve();
    eventually("the command ran", || stage.bench.work().join("done").exists());
    assert_eq!(stage.bench.count("SELECT count(*) FROM approvals"), 1);
    ends(stage, &job);
}

#[test]
fn a_question_of_a_lost_agent_is_taken_back() {
    for player in [Player::CodexAppServer, Player::Claude] {
        for victim in [Victim::Agent, Victim::Both] {
            println!("{player:?} {victim:?}");
            let Some((stage, job)) = cut(player, Moment::Question, victim) else {
                return;
            };
            let withdrawn = "SELECT count(*) FROM approvals WHERE state = 'withdrawn'";
            eventually("the question is taken back", || stage.bench.count(withdrawn) == 1);
            // The agent is told that it was cut off, and this model does not ask again then; one that was lost
            // before it had kept anything begins again, and asks anew.
            let pending = "SELECT count(*) FROM approvals WHERE state = 'pending'";
            let open = "SELECT count(*) FROM jobs WHERE status IN ('pending', 'running')";
            let (mut asks_anew, is_over) = (false, || stage.bench.count(open) == 0);
            eventually("it ends, or asks anew", || {
                asks_anew = stage.bench.count(pending) == 1;
                asks_anew || is_over()
            });
            if asks_anew {
                stage.decide("deny");
            }
            let ended = stage.until_ended(&job);
            assert!(
                !stage.bench.work().join("done").exists(),
                "what nobody allowed was done"
            );
            stage.close(&ended);
        }
    }
}

#[test]
fn a_job_that_rests_at_a_limit_outlives_its_server_and_goes_on_when_the_limit_is_reset() {
    let Some(mut stage) = Stage::set(Player::CodexAppServer) else {
        return;
    };
    let job = stage.start("[[limit 8]]");
    let rests = |stage: &Stage| super::shown(&stage.bench, &["jobs", "show", &job, "--json"])["subState"].clone();
    eventually("the job rests", || rests(&stage) == "paused_limit");
    stage.kill_server();
    stage.serve();
    let lines = ends(stage, &job);
    assert_eq!(count(&lines, "agent-limit"), 1, "{lines:?}");
}

#[test]
fn a_job_in_the_queue_outlives_its_server_and_has_its_turn_once() {
    let bench = super::with_agent(Bench::new(), "jobs: {maxProcesses: 1}\n");
    let mut web = Web::serve(&bench);
    let first = super::start(&bench, "work", &[]);
    super::until(&bench, &first, "running");
    let second = super::start(&bench, "greet", &[]);
    web.kill();
    let web = Web::serve(&bench);
    // The first is taken up, and ends; then there is a place.
    assert_eq!(
        super::until(&bench, &first, "completed")["output"]["result"],
        "taken up"
    );
    let ended = super::until(&bench, &second, "completed");
    assert_eq!(ended["output"]["result"], "greeted");
    let kinds = super::until_filed(&ended, "job-completed");
    for kind in ["job-created", "job-started", "process-started", "job-completed"] {
        assert_eq!(kinds.iter().filter(|it| *it == kind).count(), 1, "{kind}: {kinds:?}");
    }
    web.stop();
    bench.prove();
}
