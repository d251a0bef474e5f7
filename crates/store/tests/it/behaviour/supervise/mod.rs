//! Jobs under supervision: a scripted agent, the real store, and a supervisor that may vanish at any moment.

mod agent;
mod crash;
mod house;
mod tools;

use std::sync::atomic::Ordering;
use std::time::Duration;

use countersign_gateway::audit::event::{ApprovalState, EventType};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::error::ErrorCode;
use countersign_gateway::job::driver::{AgentAnswer, Hearing, Input};
use countersign_gateway::job::keeping::Jobs;
use countersign_gateway::job::lifecycle::{JobStatus, SessionStatus, SubState};
use countersign_gateway::job::state::Job;
use countersign_gateway::job::supervise::News;
use countersign_gateway::limits;
use countersign_gateway::policy::agents::Judgement;
use serde_json::json;

use agent::{Fake, Step};
use house::{House, rule};

fn types(house: &House) -> Vec<String> {
    house
        .lines()
        .iter()
        .map(|line| line["type"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_job_runs_to_its_end_and_its_file_tells_all_of_it() {
    let house = House::new(Fake::playing(&[Step::Say("hello"), Step::Use(10), Step::Use(25)]));
    house.live(async |life| {
        let job = life.start("Fix it").await;
        let mut news = life.supervisor.news();
        let ended = life.ended(&job).await;
        assert_eq!(
            (ended.status(), ended.result.as_deref()),
            (JobStatus::Completed, Some("done"))
        );
        assert!(matches!(news.recv().await, Ok(News::Event(_))));
        life.at_rest().await;
    });
    assert_eq!(
        types(&house),
        [
            "job-created",
            "process-started",
            "session-created",
            "job-started",
            "session-active",
            "codex-agent-message",
            "agent-usage",
            "agent-usage",
            "codex-task-complete",
            "job-completed",
            "session-idle",
        ]
    );
    let folder = house.folder("fix-it");
    assert_eq!(
        std::fs::read_to_string(folder.join("rollout-ref.txt")).unwrap(),
        "/rollout\n"
    );
    let config: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["approvalPolicy"], "untrusted");
    let metrics: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("metrics.json")).unwrap()).unwrap();
    assert_eq!(
        (&metrics["totalJobs"], &metrics["completedJobs"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(house.tokens(), 25, "totals are told, differences are kept");
    assert_eq!(house.agent.world.lock().unwrap().said, ["Fix it"]);
    house.nothing_is_left();
    house.record_is_sound();
}

#[test]
fn a_session_at_work_is_summed_up_every_hour() {
    let house = House::new(Fake::playing(&[Step::Ask("q1", "rm -rf build"), Step::Say("gone")]));
    house.live(async |life| {
        let job = life.start("Fix it").await;
        let question = life.asked().await;
        let file = house.folder("fix-it").join("metrics.json");
        assert!(!file.exists(), "it is neither over nor an hour old");
        life.pass(Duration::from_secs(3_601)).await;
        while !file.exists() {
            life.pass(Duration::from_millis(100)).await;
        }
        let metrics: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(
            (&metrics["totalJobs"], &metrics["totalApprovals"]),
            (&json!(1), &json!(1))
        );
        life.approve(&question).await;
        life.ended(&job).await;
    });
}

#[test]
fn a_question_waits_for_a_person_while_the_clock_stands_still() {
    let house = House::new(Fake::playing(&[Step::Ask("q1", "rm -rf build"), Step::Say("gone")]));
    house.live(async |life| {
        let job = life.start_within("clean", Duration::from_secs(100)).await;
        let question = life.asked().await;
        assert_eq!(question.job_id.as_deref(), Some(job.as_str()));
        assert_eq!(question.details["command"], "rm -rf build");
        assert_eq!(question.kind.as_str(), "exec-command");
        let waiting = life
            .until(&job, |job| job.sub_state == Some(SubState::WaitingApproval))
            .await;
        assert_eq!(waiting.status(), JobStatus::Running);
        life.pass(Duration::from_secs(1_000)).await;
        assert!(!life.find(&job).await.has_ended(), "its time does not pass");
        life.approve(&question).await;
        let ended = life.ended(&job).await;
        assert_eq!(ended.status(), JobStatus::Completed);
        assert_eq!(ended.metrics.approval_count, 1);
        assert!(ended.metrics.approval_ms >= 1_000_000);
        assert_eq!(life.approval(&question).await.state(), ApprovalState::Applied);
        life.at_rest().await;
    });
    assert_eq!(house.agent.answered("q1"), Some(AgentAnswer::Allow));
    let told = types(&house);
    assert!(told.contains(&"approval-requested".to_owned()) && told.contains(&"approval-approved".to_owned()));
    for kind in [EventType::WaitPaused, EventType::WaitResumed, EventType::ActApplied] {
        assert_eq!(house.count(kind), 1, "{kind:?}");
    }
}

#[test]
fn a_patch_is_shown_with_its_files_and_a_short_preview_and_a_no_reaches_the_agent() {
    let house = House::new(Fake::playing(&[Step::Patch("p1"), Step::Say("well")]));
    house.live(async |life| {
        let job = life.start("edit").await;
        let question = life.asked().await;
        assert_eq!(question.kind.as_str(), "apply-patch");
        let change = &question.details["fileChanges"][0];
        assert_eq!(
            (&change["path"], &change["type"]),
            (&json!("src/a.rs"), &json!("modify"))
        );
        assert_eq!(change["contentPreview"].as_str().unwrap().chars().count(), 500);
        life.deny(&question, "not like this").await;
        assert_eq!(life.ended(&job).await.status(), JobStatus::Completed);
    });
    let reason = "not like this".to_owned();
    assert_eq!(house.agent.answered("p1"), Some(AgentAnswer::Deny { reason }));
}

#[test]
fn what_policy_answers_needs_nobody_and_is_on_record() {
    let script = [
        Step::Ask("q1", "git status"),
        Step::Failed("make"),
        Step::Ask("q2", "make"),
    ];
    let house = House::judging(Fake::playing(&script), |question, has_failed| {
        match question.id.as_str() {
            "q1" => Judgement::Allow(rule("read-only")),
            _ if has_failed => Judgement::Deny(rule("it failed before")),
            _ => Judgement::Ask(rule("asks")),
        }
    });
    house.live(async |life| {
        let job = life.start("look").await;
        let ended = life.ended(&job).await;
        assert_eq!(
            (ended.status(), ended.metrics.approval_count),
            (JobStatus::Completed, 2)
        );
        life.at_rest().await;
    });
    assert_eq!(house.agent.answered("q1"), Some(AgentAnswer::Allow));
    assert!(matches!(house.agent.answered("q2"), Some(AgentAnswer::Deny { .. })));
    let told = types(&house);
    assert!(told.contains(&"approval-auto-approved".to_owned()) && told.contains(&"approval-denied".to_owned()));
    assert_eq!(house.count(EventType::ApprovalDenied), 1);
}

#[test]
fn a_question_that_the_agent_takes_back_disappears() {
    let house = House::new(Fake::playing(&[Step::AskInVain("q1"), Step::Hang]));
    house.live(async |life| {
        let job = life.start("look").await;
        life.pending_count(1, EventType::ApprovalWithdrawn).await;
        assert!(life.open_questions().await.is_empty());
        let resumed = life
            .until(&job, |job| job.sub_state.is_none() && job.metrics.approval_count == 1)
            .await;
        assert!(resumed.clock.since.is_some(), "its clock runs again");
        life.interrupt(&job).await;
        life.ended(&job).await;
    });
}

#[test]
fn a_question_that_only_the_table_calls_approved_lets_no_act_of_an_agent_go() {
    for state in ["approved", "applied"] {
        let house = House::new(Fake::playing(&[Step::Ask("q1", "rm -rf build"), Step::Say("well")]));
        house.live(async |life| {
            let job = life.start("clean").await;
            let question = life.asked().await;
            house.force(&format!(
                "UPDATE approvals SET state = '{state}', version = version + 1, resolved_at_ms = created_at_ms, decided_by = 'ana'"
            ));
            life.ended(&job).await;
            assert_ne!(life.approval(&question).await.state(), ApprovalState::Pending);
            life.at_rest().await;
        });
        let told = house.agent.answered("q1");
        assert!(matches!(told, Some(AgentAnswer::Deny { .. })), "{state}: {told:?}");
        assert_eq!(house.count(EventType::ActApplied), 0, "{state}");
        house.record_is_sound();
    }
}

#[test]
fn one_yes_lets_one_act_of_an_agent_go_however_often_it_asks_by_the_same_name() {
    // Once in the same life, and once in the next, which it chose itself.
    for between in [Step::Say("once more"), Step::Crash] {
        let house = House::new(Fake::playing(&[
            Step::Ask("q1", "make deploy"),
            Step::Forget("q1"),
            between.clone(),
            Step::Ask("q1", "make deploy"),
        ]));
        house.live(async |life| {
            let job = life.start("work").await;
            let first = life.asked().await;
            life.approve(&first).await;
            let second = life.asked_before_its_end(&job).await;
            let second = second.unwrap_or_else(|| panic!("{between:?}: nobody was asked a second time"));
            assert_eq!(
                life.approval(&first).await.state(),
                ApprovalState::Applied,
                "{between:?}"
            );
            life.deny(&second, "once is enough").await;
            life.ended(&job).await;
            life.at_rest().await;
        });
        let told = house.agent.answered("q1");
        assert!(matches!(told, Some(AgentAnswer::Deny { .. })), "{between:?}: {told:?}");
        house.record_is_sound();
    }
}

#[test]
fn interrupting_ends_the_turn_and_withdraws_what_was_asked() {
    for heeds in [true, false] {
        let house = House::new(Fake::playing(&[Step::Ask("q1", "make"), Step::Hang]));
        house.agent.world.lock().unwrap().heeds = heeds;
        house.live(async |life| {
            let job = life.start("work").await;
            let question = life.asked().await;
            life.interrupt(&job).await;
            if !heeds {
                life.until_told_to_end().await;
                assert_eq!(life.find(&job).await.sub_state, Some(SubState::Interrupting));
                life.pass(Duration::from_secs(60)).await;
            }
            let ended = life.ended(&job).await;
            assert_eq!(ended.status(), JobStatus::Cancelled, "heeds: {heeds}");
            assert_eq!(ended.error.unwrap().code, "CANCELLED");
            assert_eq!(life.approval(&question).await.state(), ApprovalState::Withdrawn);
            life.at_rest().await;
        });
        house.nothing_is_left();
    }
}

#[test]
fn a_job_that_was_being_ended_when_the_record_was_away_does_not_go_on_afterwards() {
    let house = House::new(Fake::playing(&[Step::Hang]));
    house.agent.world.lock().unwrap().heeds = false;
    house.live(async |life| {
        let job = life.start("work").await;
        life.until(&job, |job| job.status() == JobStatus::Running).await;
        life.interrupt(&job).await;
        life.until_told_to_end().await;
        assert_eq!(life.find(&job).await.sub_state, Some(SubState::Interrupting));
        life.record.is_away.store(true, Ordering::SeqCst);
        life.pass(Duration::from_secs(60)).await;
        life.until_stopped().await;
        life.record.is_away.store(false, Ordering::SeqCst);
        assert_eq!(life.ended(&job).await.status(), JobStatus::Cancelled);
        life.at_rest().await;
    });
    assert_eq!(house.agent.world.lock().unwrap().said, ["work"]);
}

#[test]
fn a_job_that_waits_for_its_turn_is_cancelled_at_once() {
    let house = House::new(Fake::playing(&[Step::Hang]));
    house.live(async |life| {
        life.supervisor.close();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let job = life.start("work").await;
        life.interrupt(&job).await;
        assert_eq!(life.find(&job).await.status(), JobStatus::Cancelled);
    });
    assert_eq!(house.agent.world.lock().unwrap().spawned, 0);
}

#[test]
fn a_job_that_is_cancelled_while_it_rests_leaves_no_session_that_recovers() {
    let reset = house::noon().after(Duration::from_secs(7_200));
    let stories: [&[Step]; 2] = [
        &[Step::Say("one"), Step::Crash],
        &[
            Step::Say("one"),
            Step::Limit(reset.as_millis()),
            Step::Fail { retryable: false },
        ],
    ];
    for script in stories {
        let house = House::new(Fake::playing(script));
        house.live(async |life| {
            let job = life.start("work").await;
            let resting = life.until(&job, |job| job.not_before.is_some()).await;
            assert!(resting.conversation_id.is_some(), "{script:?}");
            life.supervisor.settled().await;
            life.interrupt(&job).await;
            assert_eq!(life.find(&job).await.status(), JobStatus::Cancelled, "{script:?}");
            let session = Jobs::session(&*life.store, &resting.session_id).await.unwrap().unwrap();
            assert_eq!(session.status(), SessionStatus::Terminated, "{script:?}");
            let refused = life.message("th-1", vec![Input::Text("and now?".to_owned())]).await;
            assert_eq!(refused.unwrap_err().code, ErrorCode::Conflict, "{script:?}");
            life.at_rest().await;
        });
        assert_eq!(house.count(EventType::JobSessionTerminated), 1, "{script:?}");
        assert_eq!(types(&house).last().unwrap(), "session-terminated", "{script:?}");
        house.nothing_is_left();
    }
}

#[test]
fn time_that_is_over_ends_a_job_as_timed_out() {
    let house = House::new(Fake::playing(&[Step::Hang]));
    house.live(async |life| {
        let job = life.start_within("work", Duration::from_secs(30)).await;
        life.until(&job, |job| job.status() == JobStatus::Running).await;
        life.pass(Duration::from_secs(31)).await;
        let ended = life.ended(&job).await;
        assert_eq!(ended.status(), JobStatus::Timeout);
        life.at_rest().await;
    });
    house.nothing_is_left();
    assert_eq!(house.count(EventType::JobTimeout), 1);
}

#[test]
fn an_agent_that_crashes_is_started_again_and_told_to_go_on() {
    let house = House::new(Fake::playing(&[Step::Say("one"), Step::Crash, Step::Say("two")]));
    house.live(async |life| {
        let job = life.start("work").await;
        let resting = life.until(&job, |job| job.retries == 1).await;
        assert_eq!(resting.sub_state, Some(SubState::Recovering));
        life.pass(Duration::from_secs(5)).await;
        let ended = life.ended(&job).await;
        assert_eq!((ended.status(), ended.retries), (JobStatus::Completed, 1));
        life.at_rest().await;
    });
    let world = house.agent.world.lock().unwrap();
    assert_eq!((world.spawned, world.at_work_max), (2, 1));
    assert_eq!(world.said.len(), 2, "{:?}", world.said);
    drop(world);
    for kind in [
        EventType::JobProcessCrashed,
        EventType::JobProcessRestarted,
        EventType::JobSessionRecovered,
    ] {
        assert_eq!(house.count(kind), 1, "{kind:?}");
    }
}

#[test]
fn what_may_pass_is_tried_again_and_then_given_up() {
    let failing = [const { Step::Fail { retryable: true } }; 9];
    let house = House::new(Fake::playing(&failing));
    house.live(async |life| {
        let job = life.start("work").await;
        for retry in 1..=3 {
            life.until(&job, |job| job.retries == retry && job.not_before.is_some())
                .await;
            life.pass(Duration::from_secs(60)).await;
        }
        let ended = life.ended(&job).await;
        assert_eq!(ended.status(), JobStatus::Failed);
        assert!(ended.error.unwrap().message.contains("4 times"));
    });
    let house = House::new(Fake::playing(&[Step::Fail { retryable: false }]));
    house.live(async |life| {
        let job = life.start("work").await;
        let ended = life.ended(&job).await;
        assert_eq!((ended.status(), ended.retries), (JobStatus::Failed, 0));
    });
}

#[test]
fn a_usage_limit_pauses_the_job_until_it_is_reset() {
    let reset = house::noon().after(Duration::from_secs(7_200));
    let script = [
        Step::Limit(reset.as_millis()),
        Step::Fail { retryable: false },
        Step::Say("again"),
    ];
    let house = House::new(Fake::playing(&script));
    house.live(async |life| {
        let job = life.start("work").await;
        let paused = life
            .until(&job, |job| job.sub_state == Some(SubState::PausedLimit))
            .await;
        assert_eq!((paused.not_before, paused.status()), (Some(reset), JobStatus::Running));
        life.pass(Duration::from_secs(3_600)).await;
        assert!(!life.find(&job).await.has_ended());
        life.pass(Duration::from_secs(3_601)).await;
        let ended = life.ended(&job).await;
        assert_eq!((ended.status(), ended.retries), (JobStatus::Completed, 0));
    });
}

#[test]
fn a_clock_that_is_set_neither_ends_a_job_nor_gives_it_time() {
    let house = House::new(Fake::playing(&[Step::Hang]));
    house.live(async |life| {
        let job = life.start_within("work", Duration::from_secs(600)).await;
        life.until(&job, |job| job.status() == JobStatus::Running).await;
        life.pass(Duration::from_secs(100)).await;
        let left = |job: &Job| job.clock.left(life.clock.now()).as_secs();
        for days in [3_650, -3_650] {
            let now = life.clock.now().as_millis();
            life.clock.set(Timestamp::from_millis(now + days * 86_400_000));
            life.board.announce();
            let set = life.until(&job, |job| (490..=500).contains(&left(job))).await;
            assert_eq!((set.status(), set.retries), (JobStatus::Running, 0));
        }
        life.pass(Duration::from_secs(501)).await;
        assert_eq!(life.ended(&job).await.status(), JobStatus::Timeout);
    });
}

#[test]
fn a_clock_that_is_set_ahead_makes_nobody_who_looks_after_a_job_seem_dead() {
    let house = House::new(Fake::playing(&[Step::Hang]));
    house.live(async |life| {
        let job = life.start_within("work", Duration::from_secs(7_200)).await;
        life.until(&job, |job| job.status() == JobStatus::Running).await;
        let other = house.beside();
        other.pass(Duration::from_secs(1)).await;
        life.clock.set(life.clock.now().after(Duration::from_secs(3_600)));
        // It looks before the one who has the job gives its next sign of life, and once more before the next but one.
        for _ in 0..2 {
            other.pass(limits::JOB_BEAT_EVERY).await;
        }
        assert_eq!(house.count(EventType::JobSessionRecovering), 0);
        other.supervisor.close();
        life.interrupt(&job).await;
        assert_eq!(life.ended(&job).await.status(), JobStatus::Cancelled);
        life.at_rest().await;
    });
}

#[test]
fn an_agent_that_says_nothing_is_taken_for_hung() {
    let house = House::new(Fake::playing(&[Step::Hang]));
    house.live(async |life| {
        let job = life.start_within("work", Duration::from_secs(86_400)).await;
        life.until(&job, |job| job.status() == JobStatus::Running).await;
        life.pass(Duration::from_secs(16 * 60)).await;
        let resting = life.until(&job, |job| job.retries == 1).await;
        assert_eq!(resting.sub_state, Some(SubState::Recovering));
        life.until_stopped().await;
    });
}

#[test]
fn a_message_reaches_the_turn_under_way_and_the_next_one_is_a_job_of_its_own() {
    let house = House::new(Fake::playing(&[Step::Ask("q1", "make")]));
    house.live(async |life| {
        let first = life.start("work").await;
        let question = life.asked().await;
        let said = |text: &str| vec![Input::Text(text.to_owned())];
        let job = life.message("th-1", said("be quick")).await.unwrap();
        assert_eq!(job.id, first, "the job that is under way");
        life.until_said("be quick").await;
        life.approve(&question).await;
        life.ended(&first).await;
        let second = life.message("th-1", said("and now this")).await.unwrap();
        assert_ne!(second.id, first);
        let ended = life.ended(&second.id).await;
        assert_eq!(ended.status(), JobStatus::Completed);
        assert_eq!(ended.conversation_id.unwrap().as_str(), "th-1");
        assert!(life.message("th-2", said("who?")).await.is_err());
        life.at_rest().await;
    });
    assert_eq!(
        house.agent.world.lock().unwrap().said,
        ["work", "be quick", "and now this"]
    );
    let jobs: Vec<_> = house.lines().iter().map(|line| line["jobId"].clone()).collect();
    assert_ne!(jobs.first(), jobs.last(), "one file tells of both");
}

#[test]
fn a_message_that_an_agent_does_not_hear_yet_waits_for_the_end_of_its_turn_and_the_job_goes_on_with_it() {
    for hearing in [Hearing::BetweenTurns, Hearing::ByAnotherProcess] {
        let house = House::new(Fake::playing(&[Step::Ask("q1", "make")]));
        house.agent.world.lock().unwrap().hearing = hearing;
        house.live(async |life| {
            let job = life.start("work").await;
            let question = life.asked().await;
            for words in ["be quick", "and tidy"] {
                let said = vec![Input::Text(words.to_owned())];
                assert_eq!(life.message("th-1", said).await.unwrap().id, job);
            }
            life.approve(&question).await;
            let ended = life.ended(&job).await;
            assert_eq!(
                (ended.status(), ended.retries),
                (JobStatus::Completed, 0),
                "{hearing:?}"
            );
            life.at_rest().await;
        });
        let said = house.agent.world.lock().unwrap().said.clone();
        assert_eq!(said, ["work", "be quick", "and tidy"], "{hearing:?}");
        let types = types(&house);
        let count = |kind: &str| types.iter().filter(|it| *it == kind).count();
        assert_eq!(count("codex-task-complete"), 3, "each is a turn: {types:?}");
        assert_eq!(
            (count("process-crashed"), count("process-restarted")),
            (0, 0),
            "{types:?}"
        );
    }
}

#[test]
fn a_message_that_waited_in_vain_is_told_of_when_its_job_is_interrupted() {
    let house = House::new(Fake::playing(&[Step::Ask("q1", "make")]));
    house.agent.world.lock().unwrap().hearing = Hearing::BetweenTurns;
    house.live(async |life| {
        let job = life.start("work").await;
        life.asked().await;
        let said = vec![Input::Text("be quick".to_owned())];
        life.message("th-1", said).await.unwrap();
        life.interrupt(&job).await;
        assert_eq!(life.ended(&job).await.status(), JobStatus::Cancelled);
        life.at_rest().await;
    });
    let lines = house.lines();
    let warned = lines.iter().find(|line| line["type"] == "agent-warning").unwrap();
    let message = warned["data"]["message"].as_str().unwrap();
    assert_eq!(message, "1 message that waited was not sent");
}

#[test]
fn a_message_to_a_job_that_waits_is_told_of_when_the_job_is_cancelled() {
    let house = House::new(Fake::playing(&[Step::Say("one"), Step::Crash]));
    house.live(async |life| {
        let job = life.start("work").await;
        life.until(&job, |job| job.not_before.is_some()).await;
        life.supervisor.settled().await;
        for words in ["be quick", "and tidy"] {
            let said = vec![Input::Text(words.to_owned())];
            assert_eq!(life.message("th-1", said).await.unwrap().id, job);
        }
        life.interrupt(&job).await;
        assert_eq!(life.find(&job).await.status(), JobStatus::Cancelled);
        life.at_rest().await;
    });
    let lines = house.lines();
    let warned = lines.iter().find(|line| line["type"] == "agent-warning");
    let message = warned.map(|line| line["data"]["message"].clone());
    assert_eq!(message, Some(json!("2 messages that waited were not sent")));
}

#[test]
fn a_word_that_misses_the_end_of_a_turn_is_the_next_turn_of_the_same_job() {
    let house = House::new(Fake::playing(&[Step::EndLate, Step::Ask("q1", "make")]));
    house.live(async |life| {
        let job = life.start("work").await;
        life.until(&job, |job| job.status() == JobStatus::Running).await;
        let said = vec![Input::Text("be quick".to_owned())];
        assert_eq!(life.message("th-1", said).await.unwrap().id, job);
        let question = life.asked().await;
        life.approve(&question).await;
        assert_eq!(life.ended(&job).await.result.as_deref(), Some("done"));
        assert_eq!(life.approval(&question).await.state(), ApprovalState::Applied);
        life.at_rest().await;
    });
}

#[test]
fn a_message_begins_no_job_beyond_those_that_a_caller_may_have() {
    let house = House::new(Fake::playing(&[]));
    house.live(async |life| {
        let first = life.start("work").await;
        life.ended(&first).await;
        life.at_rest().await;
        life.supervisor.close();
        tokio::time::sleep(Duration::from_millis(20)).await;
        for number in 0..limits::JOBS_OPEN_PER_CALLER_MAX {
            life.start(&format!("more {number}")).await;
        }
        let said = vec![Input::Text("and this".to_owned())];
        let refused = life.message("th-1", said).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::QueueFull);
    });
}

#[test]
fn no_more_agents_work_at_once_than_may_and_callers_take_turns() {
    let house = House::new(Fake::playing(&[Step::Hang]));
    house.live(async |life| {
        for name in ["a", "b"] {
            life.start(name).await;
        }
        life.others_job("c").await;
        let begun = life.taken(1).await;
        assert_eq!(begun, 1, "one place, one job");
    });
}
