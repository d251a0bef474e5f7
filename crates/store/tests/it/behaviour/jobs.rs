//! Jobs as the store keeps them: every step over the version it was made from, in one transaction with its
//! events, by whoever holds the job.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::audit::{Change, RecordError};
use countersign_gateway::error::ErrorCode;
use countersign_gateway::ids::{ConversationId, CorrelationId, CredentialId, EventId, JobId, JobSessionId, NoteId};
use countersign_gateway::job::driver::{Input, ProcessMark, Usage};
use countersign_gateway::job::event::{JobEvent, JobEventType};
use countersign_gateway::job::input::JobInput;
use countersign_gateway::job::keeping::{
    Beat, Errand, Filed, GoneProcess, Hold, JobChange, JobFilter, JobSessionChange, Jobs, Note,
};
use countersign_gateway::job::lifecycle::{JobStatus, JobStep, SessionStep, SubState, recorded_as};
use countersign_gateway::job::session::{JobSession, SessionName};
use countersign_gateway::job::state::{ErrorDetails, Job, Order};
use countersign_store::Store;
use serde_json::json;

use super::super::bench::{Bench, agent, block_on, commit, noon, open_at, this_test, verify};

fn job(name: &str, owner: &str) -> Job {
    let order = Order {
        request_id: "7".to_owned(),
        correlation_id: CorrelationId::trusted(format!("c-{name}")),
        session_id: JobSessionId::trusted(format!("s-{name}")),
        agent: "codex".to_owned(),
        owner: CredentialId::trusted(owner),
        started_by: agent(),
        run_id: None,
        input: JobInput::restored(&json!({"prompt": "fix it", "approvalPolicy": {"mode": "never"}})),
    };
    Job::new(JobId::trusted(name), order, noon())
}

fn session(job: &Job, name: &str) -> JobSession {
    JobSession::new(
        job.session_id.clone(),
        SessionName::parse(name).unwrap(),
        job.id.clone(),
        job.agent.clone(),
        job.owner.clone(),
        noon(),
    )
}

fn said(bench: &Bench, job: &Job, kind: JobEventType) -> JobEvent {
    JobEvent {
        event_id: bench.ids.event(),
        timestamp: noon(),
        job_id: job.id.clone(),
        session_id: None,
        kind,
        data: json!({"n": 1}),
    }
}

fn with(bench: &Bench, kind: EventType, change: JobChange) -> Change {
    let correlation = change.job.correlation_id.clone();
    let payload = json!({"job_id": change.job.id.as_str()});
    let event = Draft::new(
        bench.ids.event(),
        noon(),
        correlation,
        Actor::system("jobs"),
        kind,
        &payload,
    );
    Change {
        events: vec![event],
        jobs: vec![change],
        ..Change::default()
    }
}

/// A new job with its session, named like it.
fn start(bench: &Bench, store: &Store, job: &Job) {
    let mut change = JobChange::new(job.clone());
    change.session = Some(JobSessionChange {
        session: session(job, job.id.as_str()),
        from: None,
    });
    change.events.push(said(bench, job, JobEventType::JobCreated));
    commit(store, with(bench, EventType::JobCreated, change)).unwrap();
}

fn step(bench: &Bench, store: &Store, job: &Job, step: JobStep) -> Result<Job, RecordError> {
    let next = job.step(step, noon()).unwrap();
    let mut change = JobChange::over(job.version, next.clone());
    change.events.push(said(bench, job, JobEventType::of_step(step)));
    commit(store, with(bench, recorded_as(step), change))?;
    Ok(next)
}

fn take(bench: &Bench, store: &Store, job: &Job) -> Result<Job, RecordError> {
    take_of(bench, store, job, usize::MAX)
}

fn take_of(bench: &Bench, store: &Store, job: &Job, places: usize) -> Result<Job, RecordError> {
    let mut change = JobChange::over(job.version, job.changed(noon()));
    change.hold = Hold::Take { places };
    let next = change.job.clone();
    commit(store, with(bench, EventType::JobStarted, change))?;
    Ok(next)
}

fn names(jobs: &[Job]) -> Vec<&str> {
    jobs.iter().map(|job| job.id.as_str()).collect()
}

#[test]
fn a_job_is_read_back_as_it_was_written() {
    let bench = Bench::new();
    let store = bench.open();
    let created = job("j1", "local");
    start(&bench, &store, &created);
    assert_eq!(block_on(store.find(&created.id)).unwrap().unwrap(), created);
    let mut running = created.step(JobStep::Start, noon()).unwrap();
    running.sub_state = Some(SubState::WaitingApproval);
    running.conversation_id = Some(ConversationId::trusted("th-1"));
    running.metrics.approval_count = 3;
    running.clock = running.clock.running(noon());
    running.error = Some(ErrorDetails::new(ErrorCode::UpstreamError, "away"));
    running.not_before = Some(noon());
    running.retries = 2;
    let mut active = session(&created, "j1").step(SessionStep::Activate).unwrap();
    active.conversation_id = running.conversation_id.clone();
    active.process = Some(ProcessMark {
        pid: 7,
        started: 99,
        socket: Some("/run/x".into()),
    });
    active.rollout = Some("/r".to_owned());
    active.config = json!({"model": "m"});
    let mut change = JobChange::over(1, running.clone());
    change.session = Some(JobSessionChange {
        session: active.clone(),
        from: Some(1),
    });
    change.process = active.process.clone();
    commit(&store, with(&bench, EventType::JobStarted, change)).unwrap();
    assert_eq!(block_on(store.find(&created.id)).unwrap().unwrap(), running);
    let found = block_on(store.session_of(&ConversationId::trusted("th-1"))).unwrap();
    assert_eq!(found.unwrap(), active);
    let processes = block_on(store.processes()).unwrap();
    assert_eq!(processes.len(), 1);
    assert_eq!(processes[0].mark, active.process.clone().unwrap());

    let gone = GoneProcess {
        mark: active.process.unwrap(),
        session: active.id,
    };
    let change = Change {
        gone: vec![gone],
        ..Change::default()
    };
    commit(&store, change).unwrap();
    assert!(block_on(store.processes()).unwrap().is_empty());
    verify(&store).unwrap();
}

#[test]
fn of_two_steps_from_one_version_one_is_taken_and_nothing_of_the_other_is_written() {
    let bench = Bench::new();
    let store = bench.open();
    let created = job("j1", "local");
    start(&bench, &store, &created);
    step(&bench, &store, &created, JobStep::Start).unwrap();
    let late = step(&bench, &store, &created, JobStep::Cancel);
    assert_eq!(late, Err(RecordError::JobMoved));
    let kept = block_on(store.find(&created.id)).unwrap().unwrap();
    assert_eq!((kept.status(), kept.version), (JobStatus::Running, 2));
    assert_eq!(block_on(store.event_ids(&created.session_id)).unwrap().len(), 2);
    assert_eq!(verify(&store).unwrap().rows, 2, "the record tells of two steps");
}

#[test]
fn the_database_refuses_a_step_that_is_none() {
    let bench = Bench::new();
    let store = bench.open();
    let created = job("j1", "local");
    start(&bench, &store, &created);
    let running = step(&bench, &store, &created, JobStep::Start).unwrap();
    let done = step(&bench, &store, &running, JobStep::Complete).unwrap();
    // Past the state machine, through the port.
    let again = JobChange::over(done.version, Job::restored(JobStatus::Running, done.changed(noon())));
    let refused = commit(&store, with(&bench, EventType::JobStarted, again));
    assert_eq!(refused, Err(RecordError::JobMoved));
    // Past the store, at a SQL prompt.
    for statement in [
        "UPDATE jobs SET status = 'running', ended_at_ms = NULL",
        "UPDATE jobs SET input = '{}'",
        "UPDATE jobs SET owner = 'other'",
        "UPDATE job_sessions SET status = 'idle'",
        "UPDATE job_events SET data = '{}'",
        "DELETE FROM job_events",
    ] {
        assert!(bench.run(statement).is_err(), "{statement}");
    }
}

#[test]
fn a_name_is_taken_once_a_day_and_said_to_be() {
    let bench = Bench::new();
    let store = bench.open();
    start(&bench, &store, &job("j1", "local"));
    let second = job("j2", "local");
    let named = |name: &str| {
        let mut change = JobChange::new(second.clone());
        change.session = Some(JobSessionChange {
            session: session(&second, name),
            from: None,
        });
        commit(&store, with(&bench, EventType::JobCreated, change))
    };
    assert_eq!(named("j1"), Err(RecordError::SessionNameTaken));
    assert!(
        block_on(store.find(&second.id)).unwrap().is_none(),
        "nothing of it was written"
    );
    named("j1-2").unwrap();
}

#[test]
fn only_so_many_jobs_are_looked_after_at_once() {
    let bench = Bench::new();
    let store = bench.open();
    let [first, second] = ["j1", "j2"].map(|id| job(id, "local"));
    for job in [&first, &second] {
        start(&bench, &store, job);
    }
    let first = take_of(&bench, &store, &first, 1).unwrap();
    assert_eq!(take_of(&bench, &store, &second, 1), Err(RecordError::NoPlace));
    let second = take_of(&bench, &store, &second, 2).unwrap();
    for (job, ends) in [(first, JobStep::Fail), (second, JobStep::Cancel)] {
        step(&bench, &store, &job, ends).unwrap();
    }
    let third = job("j3", "local");
    start(&bench, &store, &third);
    take_of(&bench, &store, &third, 1).expect("those that ended hold no place");
}

#[test]
fn whoever_holds_a_job_writes_it_and_a_dead_holder_is_found() {
    let bench = Bench::new();
    let store = bench.open();
    let created = job("j1", "local");
    start(&bench, &store, &created);
    drop(store);
    let taken = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &this_test(module_path!(), "child_takes")])
        .env(STATE, bench.path())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(taken.success());

    let store = bench.open();
    let held = block_on(store.find(&created.id)).unwrap().unwrap();
    assert!(
        block_on(store.waiting(noon(), 9)).unwrap().is_empty(),
        "somebody has it"
    );
    assert_eq!(step(&bench, &store, &held, JobStep::Start), Err(RecordError::JobMoved));
    let found = block_on(store.abandoned(noon())).unwrap();
    assert_eq!((found.len(), found[0].seen_at), (1, noon()));
    let mut change = JobChange::over(held.version, held.changed(noon()));
    change.hold = Hold::Free { silent_since: noon() };
    let free = change.job.clone();
    commit(&store, with(&bench, EventType::JobSessionRecovering, change)).unwrap();
    assert!(block_on(store.abandoned(noon())).unwrap().is_empty());
    let ours = take(&bench, &store, &free).unwrap();
    let running = step(&bench, &store, &ours, JobStep::Start).unwrap();
    let mut change = JobChange::over(running.version, running.changed(noon()));
    change.hold = Hold::Free { silent_since: noon() };
    let refused = commit(&store, with(&bench, EventType::JobSessionRecovering, change));
    assert_eq!(refused, Err(RecordError::JobMoved), "its holder lives");

    // One that lives and gives no sign of life is taken for dead as well, but not before its time.
    let later = noon().after(Duration::from_secs(60));
    assert_eq!(block_on(store.abandoned(later)).unwrap().len(), 1);
    let beat = Change {
        beats: vec![Beat {
            job: running.id.clone(),
            at: later,
        }],
        ..Change::default()
    };
    commit(&store, beat).unwrap();
    assert!(block_on(store.abandoned(later)).unwrap().is_empty());
}

#[test]
fn a_node_whose_clock_is_off_takes_no_job_of_a_living_node_and_leaves_none_of_a_dead_one() {
    let bench = Bench::new();
    if bench.postgres().is_none() {
        return;
    }
    let store = bench.open();
    for seen_at in [noon().as_millis() - 3_600_000, noon().as_millis() + 3_600_000] {
        let created = job(&format!("j{seen_at}"), "local");
        start(&bench, &store, &created);
        let held = take(&bench, &store, &created).unwrap();
        let elsewhere = format!(
            "UPDATE jobs SET holder = 'other/boot/1/1', seen_at_ms = {seen_at} WHERE job_id = '{}'",
            created.id
        );
        bench.run(&elsewhere).unwrap();
        let free = || {
            let mut change = JobChange::over(held.version, held.changed(noon()));
            change.hold = Hold::Free { silent_since: noon() };
            commit(&store, with(&bench, EventType::JobSessionRecovering, change))
        };
        for (signed, is_abandoned) in [("0 seconds", false), ("30 seconds", true)] {
            let sign = format!(
                "INSERT INTO processes (process, node, seen_at)
                     VALUES ('other/boot/1/1', 'other', clock_timestamp() - interval '{signed}')
                 ON CONFLICT (process) DO UPDATE SET seen_at = excluded.seen_at"
            );
            bench.run(&sign).unwrap();
            let found = block_on(store.abandoned(noon())).unwrap();
            assert_eq!(!found.is_empty(), is_abandoned, "{seen_at}, last sign {signed} ago");
            assert_eq!(free().is_ok(), is_abandoned, "{seen_at}, last sign {signed} ago");
        }
    }
}

const STATE: &str = "COUNTERSIGN_TEST_JOBS";

/// Not a test of its own: a process that takes a job and ends.
#[test]
fn child_takes() {
    let Ok(state) = std::env::var(STATE) else {
        return;
    };
    let bench = Bench::new();
    let store = open_at(Path::new(&state)).unwrap();
    let waiting = block_on(store.waiting(noon(), 9)).unwrap();
    take(&bench, &store, &waiting[0]).unwrap();
}

#[test]
fn lists_are_by_owner_and_status_and_what_waits_is_in_order() {
    let bench = Bench::new();
    let store = bench.open();
    for (name, owner) in [("a", "ana"), ("b", "ben"), ("c", "ana")] {
        start(&bench, &store, &job(name, owner));
    }
    let list = |owner: Option<&str>, statuses: &[JobStatus]| {
        let filter = JobFilter {
            owner: owner.map(CredentialId::trusted),
            statuses: statuses.to_vec(),
            limit: 9,
        };
        block_on(store.list(filter)).unwrap()
    };
    assert_eq!(names(&list(None, &[])), ["a", "b", "c"]);
    assert_eq!(names(&list(Some("ana"), &[])), ["a", "c"]);
    assert_eq!(block_on(store.open_of(&CredentialId::trusted("ana"))).unwrap(), 2);
    step(&bench, &store, &job("a", "ana"), JobStep::Cancel).unwrap();
    assert_eq!(names(&list(Some("ana"), &[JobStatus::Cancelled])), ["a"]);
    let mut resting = job("b", "ben").changed(noon());
    let until = noon().after(Duration::from_secs(5));
    resting.not_before = Some(until);
    commit(&store, with(&bench, EventType::JobFailed, JobChange::over(1, resting))).unwrap();
    assert_eq!(names(&block_on(store.waiting(noon(), 9)).unwrap()), ["c"]);
    assert_eq!(block_on(store.next_wake(noon())).unwrap(), Some(until));
    assert_eq!(names(&block_on(store.waiting(until, 9)).unwrap()), ["b", "c"]);
}

#[test]
fn everybodys_jobs_are_seen_to_wait_however_many_somebody_else_has() {
    let bench = Bench::new();
    let store = bench.open();
    for (name, owner) in [("a1", "ana"), ("a2", "ana"), ("a3", "ana"), ("b1", "ben")] {
        start(&bench, &store, &job(name, owner));
    }
    assert_eq!(names(&block_on(store.waiting(noon(), 2)).unwrap()), ["a1", "b1"]);
    assert_eq!(
        names(&block_on(store.waiting(noon(), 9)).unwrap()),
        ["a1", "b1", "a2", "a3"]
    );
}

/// A session whose first job has ended while its agent is not stopped yet, and whose next job waits.
fn served(bench: &Bench, store: &Store) -> GoneProcess {
    let first = job("j1", "local");
    start(bench, store, &first);
    let mark = ProcessMark {
        pid: 7,
        started: 99,
        socket: None,
    };
    let running = step(bench, store, &first, JobStep::Start).unwrap();
    let mut change = JobChange::over(running.version, running.changed(noon()));
    change.process = Some(mark.clone());
    let served = change.job.clone();
    commit(store, with(bench, EventType::JobProcessStarted, change)).unwrap();
    step(bench, store, &served, JobStep::Complete).unwrap();
    let mut next = job("j2", "local");
    next.session_id = first.session_id.clone();
    commit(store, with(bench, EventType::JobCreated, JobChange::new(next))).unwrap();
    GoneProcess {
        mark,
        session: first.session_id,
    }
}

#[test]
fn what_a_silent_node_had_at_work_stands_in_nobodys_way() {
    let bench = Bench::new();
    let store = bench.open();
    let gone = served(&bench, &store);
    let waits = || {
        let waiting = block_on(store.waiting(noon(), 9)).unwrap();
        !names(&waiting).is_empty()
    };
    assert!(!waits(), "its agent is known to run");
    if bench.postgres().is_some() {
        let other = "UPDATE agent_processes SET node = 'other';
             INSERT INTO processes (process, node, seen_at) VALUES ('other/boot/1/1', 'other', clock_timestamp())";
        for (what, statement, expected) in [
            ("a node that gives signs of life", other, false),
            (
                "one that is silent, but not for long enough",
                "UPDATE processes SET seen_at = clock_timestamp() - interval '10 seconds' WHERE node = 'other'",
                false,
            ),
            (
                "one that is taken for dead",
                "UPDATE processes SET seen_at = clock_timestamp() - interval '30 seconds' WHERE node = 'other'",
                true,
            ),
            (
                "one that has another process",
                "INSERT INTO processes (process, node, seen_at) VALUES ('other/boot/2/2', 'other', clock_timestamp())",
                false,
            ),
            (
                "one that nothing is known of",
                "DELETE FROM processes WHERE node = 'other'",
                true,
            ),
        ] {
            bench.run(statement).unwrap();
            assert_eq!(waits(), expected, "{what}");
        }
        return;
    }
    // Whoever shares a file is on this machine, where nobody is taken for dead who is not.
    let change = Change {
        gone: vec![gone],
        ..Change::default()
    };
    commit(&store, change).unwrap();
    assert!(waits());
}

#[test]
fn a_conversation_that_is_still_served_has_no_second_writer() {
    let bench = Bench::new();
    let store = bench.open();
    let gone = served(&bench, &store);
    assert!(block_on(store.waiting(noon(), 9)).unwrap().is_empty());
    let change = Change {
        gone: vec![gone],
        ..Change::default()
    };
    commit(&store, change).unwrap();
    assert_eq!(names(&block_on(store.waiting(noon(), 9)).unwrap()), ["j2"]);
}

#[test]
fn what_is_said_to_a_job_reaches_it_and_it_does_not_complete_meanwhile() {
    let bench = Bench::new();
    let store = bench.open();
    let created = job("j1", "local");
    start(&bench, &store, &created);
    let running = step(&bench, &store, &created, JobStep::Start).unwrap();
    let note = |id: &str| Note {
        id: NoteId::trusted(id),
        job_id: created.id.clone(),
        errand: Errand::Message,
        message: vec![
            Input::Text("go on".to_owned()),
            Input::Image {
                url: "data:x".to_owned(),
            },
        ],
        by: "local".to_owned(),
        at: noon(),
        delivered: false,
    };
    let say = |id: &str| {
        commit(
            &store,
            Change {
                notes: vec![note(id)],
                ..Change::default()
            },
        )
    };
    say("n1").unwrap();
    assert_eq!(block_on(store.notes(&created.id)).unwrap(), [note("n1")]);
    assert_eq!(
        step(&bench, &store, &running, JobStep::Complete),
        Err(RecordError::JobMoved)
    );
    let mut change = JobChange::over(running.version, running.changed(noon()));
    change.delivered.push(NoteId::trusted("n1"));
    let heard = change.job.clone();
    commit(&store, with(&bench, EventType::JobMessage, change)).unwrap();
    assert!(block_on(store.notes(&created.id)).unwrap()[0].delivered);
    step(&bench, &store, &heard, JobStep::Complete).unwrap();
    assert_eq!(say("n2"), Err(RecordError::JobMoved), "it has ended");
}

#[test]
fn events_are_numbered_without_a_gap_and_unfiled_sessions_are_found() {
    let bench = Bench::new();
    let store = bench.open();
    let created = job("j1", "local");
    start(&bench, &store, &created);
    let running = step(&bench, &store, &created, JobStep::Start).unwrap();
    step(&bench, &store, &running, JobStep::Fail).unwrap();
    let events = block_on(store.events(&created.session_id, 0, 99)).unwrap();
    let seqs: Vec<u64> = events.iter().map(|stored| stored.seq).collect();
    assert_eq!(seqs, [1, 2, 3]);
    let ids: Vec<EventId> = events.iter().map(|stored| stored.event.event_id.clone()).collect();
    assert_eq!(block_on(store.event_ids(&created.session_id)).unwrap(), ids);
    assert_eq!(block_on(store.events(&created.session_id, 2, 99)).unwrap(), events[2..]);
    assert_eq!(block_on(store.unfiled(9)).unwrap().len(), 1);
    let filed = |seq| {
        let filed = vec![Filed {
            session: created.session_id.clone(),
            seq,
        }];
        commit(
            &store,
            Change {
                filed,
                ..Change::default()
            },
        )
        .unwrap();
        block_on(store.unfiled(9)).unwrap().len()
    };
    assert_eq!((filed(2), filed(3), filed(1)), (1, 0, 0));
}

#[test]
fn usage_is_only_added_to() {
    let bench = Bench::new();
    let store = bench.open();
    let mut current = job("j1", "local");
    start(&bench, &store, &current);
    for tokens in [10, 5] {
        let mut change = JobChange::over(current.version, current.changed(noon()));
        change.usage = Some(Usage {
            model: Some("m".to_owned()),
            prompt_tokens: tokens,
            completion_tokens: 1,
            total_tokens: tokens + 1,
            cost_usd: Some(0.25),
        });
        current = change.job.clone();
        commit(&store, with(&bench, EventType::JobMessage, change)).unwrap();
    }
    let used = block_on(store.usage(&current.session_id)).unwrap();
    assert_eq!(
        (used.prompt_tokens, used.completion_tokens, used.total_tokens),
        (15, 2, 17)
    );
    assert_eq!(used.cost_usd, Some(0.5));
    for statement in ["UPDATE token_usage SET cost_usd = 0", "DELETE FROM token_usage"] {
        assert!(bench.run(statement).is_err(), "{statement}");
    }
}

#[test]
fn ended_sessions_are_pruned_with_the_rest_and_open_ones_stay() {
    let bench = Bench::new();
    let store = bench.open();
    for name in ["open", "done"] {
        start(&bench, &store, &job(name, "local"));
    }
    step(&bench, &store, &job("done", "local"), JobStep::Cancel).unwrap();
    let filed = vec![Filed {
        session: JobSessionId::trusted("s-done"),
        seq: 2,
    }];
    commit(
        &store,
        Change {
            filed,
            ..Change::default()
        },
    )
    .unwrap();
    store
        .prune(noon().after(Duration::from_secs(86_400 * 400)), &bench.ids)
        .unwrap();
    let filter = JobFilter {
        owner: None,
        statuses: Vec::new(),
        limit: 9,
    };
    assert_eq!(names(&block_on(store.list(filter)).unwrap()), ["open"]);
    assert!(
        block_on(store.event_ids(&JobSessionId::trusted("s-done")))
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        block_on(store.event_ids(&JobSessionId::trusted("s-open")))
            .unwrap()
            .len(),
        1
    );
    verify(&store).unwrap();
}

#[test]
fn what_an_interrupted_prune_left_of_a_session_goes_with_the_next_however_much_it_is() {
    let bench = Bench::new();
    let store = bench.open();
    for name in ["a", "z"] {
        start(&bench, &store, &job(name, "local"));
    }
    bench
        .run(
            "INSERT INTO job_events (session_id, seq, event_id, timestamp_ms, job_id, type, data)
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4500)
                 SELECT 's-gone', i, 'gone-' || i, 0, 'gone', 'message', '{}' FROM n",
        )
        .unwrap();
    let said = |session: &str| {
        block_on(store.event_ids(&JobSessionId::trusted(session)))
            .unwrap()
            .len()
    };
    assert_eq!(said("s-gone"), 4_500);
    store.prune(noon(), &bench.ids).unwrap();
    assert_eq!([said("s-a"), said("s-gone"), said("s-z")], [1, 0, 1]);
}
