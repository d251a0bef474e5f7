//! The supervisor vanishes at every step it takes, just before it writes or just after.

use countersign_gateway::audit::event::EventType;
use countersign_gateway::job::lifecycle::JobStatus;

use super::agent::{Fake, Step};
use super::house::{House, When};

/// More than a whole life writes.
const COMMITS_MAX: usize = 60;

#[test]
fn a_supervisor_lost_at_any_step_leaves_a_job_that_ends_once_and_is_told_once() {
    let script = [
        Step::Say("one"),
        Step::Ask("q1", "make"),
        Step::Say("two"),
        Step::Use(5),
    ];
    for survives in [true, false] {
        for when in [When::BeforeWriting, When::AfterWriting] {
            for nth in 0.. {
                assert!(nth < COMMITS_MAX, "it never ends");
                let house = House::new(Fake::playing(&script)).with_a_person();
                house.agent.world.lock().unwrap().survives = survives;
                let job = house.accept("work");
                if !house.live_until_death(nth, when) {
                    break;
                }
                println!("survives {survives}, {when:?}, commit {nth}");
                house.live(async |life| {
                    let ended = life.ended(&job).await;
                    assert_eq!(
                        ended.status(),
                        JobStatus::Completed,
                        "{survives} {when:?} {nth}: {:?}",
                        ended.error
                    );
                    life.at_rest().await;
                });
                check(&house, &format!("survives {survives}, {when:?}, commit {nth}"));
            }
        }
    }
}

#[test]
fn a_supervisor_lost_while_it_ends_a_job_leaves_a_job_that_ends_once_and_no_question_open() {
    for when in [When::BeforeWriting, When::AfterWriting] {
        for nth in 0.. {
            assert!(nth < COMMITS_MAX, "it never ends");
            let house = House::new(Fake::playing(&[Step::Ask("q1", "make")])).with_somebody_impatient();
            let job = house.accept("work");
            if !house.live_until_death(nth, when) {
                break;
            }
            let case = format!("{when:?}, commit {nth}");
            println!("{case}");
            house.live(async |life| {
                let ended = life.ended(&job).await;
                assert_eq!(ended.status(), JobStatus::Cancelled, "{case}: {:?}", ended.error);
                life.at_rest().await;
            });
            assert_eq!(house.count(EventType::JobCancelled), 1, "{case}");
            let requested = house.count(EventType::ApprovalRequested);
            assert_eq!(requested, house.count(EventType::ApprovalWithdrawn), "{case}");
            house.nothing_is_left();
            house.record_is_sound();
        }
    }
}

fn check(house: &House, case: &str) {
    let lines = house.lines();
    let count = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    for kind in ["job-created", "session-created", "job-started", "job-completed"] {
        assert_eq!(count(kind), 1, "{case}: {kind} in {lines:#?}");
    }
    for text in ["one", "two"] {
        let said = lines.iter().filter(|line| line["data"]["message"] == text).count();
        assert!(said <= 1, "{case}: `{text}` is told {said} times");
    }
    // An agent that goes on asks again with the same words, and finds what was asked and answered.
    assert!(count("approval-approved") <= count("approval-requested"), "{case}");
    for kind in [EventType::JobCreated, EventType::JobStarted, EventType::JobCompleted] {
        assert_eq!(house.count(kind), 1, "{case}: {kind:?}");
    }
    let requested = house.count(EventType::ApprovalRequested);
    let settled = house.count(EventType::ApprovalApproved) + house.count(EventType::ApprovalWithdrawn);
    assert_eq!(requested, settled, "{case}: no question is left open");
    house.file_tells_what_is_kept();
    house.nothing_is_left();
    house.record_is_sound();
}
