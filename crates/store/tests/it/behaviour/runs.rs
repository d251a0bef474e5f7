//! Runs in the database: one of an issue under way, others in turn; what follows from questions and jobs is
//! written with them.

mod life;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::approval::lifecycle::ApprovalStep;
use countersign_gateway::approval::request::{ApprovalChange, ApprovalRequest, ApprovalType};
use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::audit::reading::Filter;
use countersign_gateway::audit::{Change, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{ApprovalId, CorrelationId, JobId, JobSessionId, RunId};
use countersign_gateway::job::event::{JobEvent, JobEventType};
use countersign_gateway::job::input::JobInput;
use countersign_gateway::job::keeping::{JobChange, JobSessionChange};
use countersign_gateway::job::lifecycle::{JobStep, SubState};
use countersign_gateway::job::session::{JobSession, SessionName};
use countersign_gateway::job::state::{Job, Order};
use countersign_gateway::run::keeping::{Link, LinkEnd, LinkKind, LinkType, RunChange, RunFilter, Runs as _};
use countersign_gateway::run::lifecycle::{RunStatus, RunStep, Runtime, TriggerKind, WaitState, recorded_as};
use countersign_gateway::run::state::{Run, RunOrder};
use countersign_store::Store;
use serde_json::{Value, json};

use super::super::bench::{Bench, agent, block_on, commit, noon, owner, verify};

pub(crate) fn run(name: &str, label: &str, issue: Option<u64>) -> Run {
    let order = RunOrder {
        project: Some("shop".to_owned()),
        repository: Some("acme/shop".to_owned()),
        agent_key: "dev".to_owned(),
        trigger_kind: TriggerKind::Label,
        trigger_label: Some(label.to_owned()),
        runtime: Runtime::FullEnv,
        namespace: Some("shop-dev".to_owned()),
        issue_number: issue,
        pull_request_number: None,
        labels: BTreeSet::from(["bug".to_owned(), "é".to_owned()]),
        title: Some("It breaks".to_owned()),
        instructions: Some("mend it".to_owned()),
        requested_by: "ana".to_owned(),
        time: Duration::from_secs(60),
    };
    Run::new(
        RunId::trusted(name),
        CorrelationId::trusted(format!("c-{name}")),
        order,
        noon(),
    )
}

fn at(seconds: u64) -> Timestamp {
    noon().after(Duration::from_secs(seconds))
}

fn change(bench: &Bench, kind: EventType, change: RunChange) -> Change {
    let payload = json!({"run_id": change.run.id.as_str()});
    let correlation = change.run.correlation_id.clone();
    let event = Draft::new(
        bench.ids.event(),
        noon(),
        correlation,
        Actor::system("runs"),
        kind,
        &payload,
    );
    Change {
        events: vec![event],
        runs: vec![change],
        ..Change::default()
    }
}

pub(crate) fn enqueue(bench: &Bench, store: &Store, run: &Run) -> Result<(), RecordError> {
    let new = RunChange::new(run.clone());
    commit(store, change(bench, EventType::RunEnqueued, new)).map(drop)
}

pub(crate) fn step(bench: &Bench, store: &Store, run: &Run, step: RunStep) -> Result<Run, RecordError> {
    let next = run.after(step, noon()).unwrap();
    let over = RunChange::over(run.version, next.clone());
    commit(store, change(bench, recorded_as(step), over))?;
    Ok(next)
}

pub(crate) fn find(store: &Store, run: &Run) -> Run {
    block_on(store.find_run(&run.id)).unwrap().unwrap()
}

fn due(store: &Store) -> Vec<String> {
    let due = block_on(store.runs_due(9)).unwrap();
    due.iter().map(|run| run.id.as_str().to_owned()).collect()
}

pub(crate) fn told(store: &Store, kind: EventType) -> Vec<Value> {
    let filter = Filter {
        event_type: Some(kind),
        ..Filter::everything()
    };
    let rows = store.query_events(&filter).unwrap();
    rows.iter()
        .map(|row| serde_json::from_str(&row.payload).unwrap())
        .collect()
}

#[test]
fn a_run_is_read_back_as_it_was_written() {
    let bench = Bench::new();
    let store = bench.open();
    let created = run("r1", "run:dev", Some(12));
    enqueue(&bench, &store, &created).unwrap();
    assert_eq!(find(&store, &created), created);
    let mut ended = step(&bench, &store, &created, RunStep::Start).unwrap();
    ended = ended.after(RunStep::Fail, at(7)).unwrap();
    ended.reason = Some("it broke".to_owned());
    ended.reported_status = Some("мёд".to_owned());
    ended.pull_request_number = Some(9);
    let over = RunChange::over(2, ended.clone());
    commit(&store, change(&bench, EventType::RunFinished, over)).unwrap();
    assert_eq!(find(&store, &created), ended);
    let filter = RunFilter {
        repository: Some("acme/shop".to_owned()),
        pull_request_number: Some(9),
        statuses: vec![RunStatus::Failed],
        limit: 5,
        ..RunFilter::default()
    };
    assert_eq!(block_on(store.list_runs(filter)).unwrap(), [ended]);
    verify(&store).unwrap();
}

#[test]
fn one_run_of_an_issue_is_under_way_and_the_others_wait_for_their_turn() {
    let bench = Bench::new();
    let store = bench.open();
    let dev = run("r1", "run:dev", Some(12));
    let mut revise = run("r2", "run:dev:revise", Some(12));
    revise.created_at = at(1);
    let other = run("r3", "run:dev", Some(13));
    for it in [&dev, &revise, &other] {
        enqueue(&bench, &store, it).unwrap();
    }
    assert_eq!(due(&store), ["r1", "r3"], "the first of each issue");
    let dev = step(&bench, &store, &dev, RunStep::Start).unwrap();
    assert_eq!(due(&store), ["r3"]);
    let refused = step(&bench, &store, &revise, RunStep::Start);
    assert_eq!(refused, Err(RecordError::RunMoved), "its issue has a run under way");
    assert_eq!(find(&store, &revise), revise);
    step(&bench, &store, &dev, RunStep::Succeed).unwrap();
    assert_eq!(due(&store), ["r3", "r2"]);
    step(&bench, &store, &revise, RunStep::Start).unwrap();
}

#[test]
fn racing_enqueues_of_one_label_leave_one_run_and_racing_starts_start_one() {
    let bench = Arc::new(Bench::new());
    let store = Arc::new(bench.open());
    let racing = |count: usize, work: Arc<dyn Fn(usize) -> bool + Send + Sync>| {
        let threads: Vec<_> = (0..count)
            .map(|number| {
                let work = work.clone();
                std::thread::spawn(move || work(number))
            })
            .collect();
        let won = threads.into_iter().map(|thread| thread.join().unwrap());
        won.filter(|won| *won).count()
    };
    let enqueued = {
        let (bench, store) = (bench.clone(), store.clone());
        racing(
            16,
            Arc::new(move |number| {
                let it = run(&format!("same-{number}"), "run:dev", Some(12));
                enqueue(&bench, &store, &it).is_ok()
            }),
        )
    };
    assert_eq!(enqueued, 1);
    for number in 0..8 {
        let it = run(&format!("r{number}"), &format!("run:stage-{number}"), Some(20));
        enqueue(&bench, &store, &it).unwrap();
    }
    let started = {
        let (bench, store) = (bench.clone(), store.clone());
        racing(
            8,
            Arc::new(move |number| {
                let it = run(&format!("r{number}"), &format!("run:stage-{number}"), Some(20));
                step(&bench, &store, &it, RunStep::Start).is_ok()
            }),
        )
    };
    assert_eq!(started, 1);
    let forced = bench.run("UPDATE runs SET status = 'running' WHERE issue_number = 20 AND status = 'pending'");
    assert!(forced.is_err(), "nor by somebody with a SQL prompt");
}

#[test]
fn the_database_guards_the_arrows_and_what_a_run_is_about() {
    let bench = Bench::new();
    let store = bench.open();
    let it = run("r1", "run:dev", Some(12));
    enqueue(&bench, &store, &it).unwrap();
    for statement in [
        "UPDATE runs SET status = 'succeeded', finished_at_ms = 1",
        "UPDATE runs SET trigger_label = 'run:ops'",
        "UPDATE runs SET agent_key = 'sre'",
        "UPDATE runs SET runtime = 'code-only'",
        "UPDATE runs SET issue_number = 0",
    ] {
        assert!(bench.run(statement).is_err(), "{statement}");
    }
    let stale = RunChange::over(7, it.after(RunStep::Start, noon()).unwrap());
    let refused = commit(&store, change(&bench, EventType::RunStarted, stale));
    assert_eq!(refused, Err(RecordError::RunMoved));
    assert_eq!(
        told(&store, EventType::RunStarted),
        Vec::<Value>::new(),
        "nothing of it"
    );
}

#[test]
fn the_other_labels_of_an_issue_change_while_its_run_waits_and_no_more_once_it_works() {
    let bench = Bench::new();
    let store = bench.open();
    let waiting = run("r1", "run:dev", Some(12));
    enqueue(&bench, &store, &waiting).unwrap();
    let mut turned = waiting.changed(at(1));
    turned.labels.insert("mode:discussion".to_owned());
    let over = RunChange::over(waiting.version, turned.clone());
    commit(&store, change(&bench, EventType::RunProfileResolved, over)).unwrap();
    assert_eq!(find(&store, &waiting), turned);
    step(&bench, &store, &turned, RunStep::Start).unwrap();
    assert!(bench.run("UPDATE runs SET labels = '[]'").is_err());
}

pub(crate) fn question(name: &str, run: &Run, seconds: u64) -> ApprovalRequest {
    let mut approval = ApprovalRequest::new(
        ApprovalId::trusted(name),
        ApprovalType::ToolCall,
        run.correlation_id.clone(),
        owner(),
        at(seconds),
    );
    approval.run_id = Some(run.id.as_str().to_owned());
    approval.tool = "secret.sync.github_k8s".to_owned();
    approval.binding = name.to_owned();
    approval
}

pub(crate) fn ask(bench: &Bench, store: &Store, approval: &ApprovalRequest) {
    write(bench, store, EventType::ApprovalRequested, approval, None);
}

pub(crate) fn answer(bench: &Bench, store: &Store, approval: &ApprovalRequest, step: ApprovalStep, seconds: u64) {
    let next = approval.clone().step(step, at(seconds)).unwrap();
    write(bench, store, EventType::ApprovalApproved, &next, Some(approval.version));
}

fn write(bench: &Bench, store: &Store, kind: EventType, approval: &ApprovalRequest, from: Option<u64>) {
    let event = Draft::new(
        bench.ids.event(),
        noon(),
        approval.correlation_id.clone(),
        agent(),
        kind,
        &json!({"approval_id": approval.id.as_str()}),
    );
    let change = Change {
        events: vec![event],
        approvals: vec![ApprovalChange {
            approval: approval.clone(),
            from,
        }],
        ..Change::default()
    };
    commit(store, change).unwrap();
}

#[test]
fn a_question_stops_its_runs_clock_in_its_own_transaction_and_the_last_answer_lets_it_go_on() {
    let bench = Bench::new();
    let store = bench.open();
    let it = run("r1", "run:dev", Some(12));
    enqueue(&bench, &store, &it).unwrap();
    step(&bench, &store, &it, RunStep::Start).unwrap();
    let (first, second) = (question("a1", &it, 10), question("a2", &it, 20));
    ask(&bench, &store, &first);
    let waits = find(&store, &it);
    assert_eq!(waits.wait_state, Some(WaitState::Mcp));
    assert_eq!(
        (waits.timer.remaining, waits.timer.since),
        (Duration::from_secs(50), None)
    );
    ask(&bench, &store, &second);
    answer(&bench, &store, &first, ApprovalStep::Deny, 30);
    assert_eq!(find(&store, &it), waits, "one is still open");
    answer(&bench, &store, &second, ApprovalStep::Withdraw, 1_000);
    let on = find(&store, &it);
    assert_eq!((on.wait_state, on.timer.deadline()), (None, Some(at(1_050))));
    let paused = told(&store, EventType::WaitPaused);
    let resumed = told(&store, EventType::WaitResumed);
    assert_eq!((paused.len(), resumed.len()), (1, 1));
    assert_eq!(paused[0]["remaining_ms"], 50_000);
    assert_eq!(resumed[0]["deadline"], at(1_050).to_string());
    assert_eq!(
        (&resumed[0]["run_id"], &resumed[0]["wait_state"]),
        (&json!("r1"), &json!("mcp"))
    );
    verify(&store).unwrap();
}

#[test]
fn links_are_kept_once_and_found_from_either_end() {
    let bench = Bench::new();
    let store = bench.open();
    let end = |kind, id: &str| LinkEnd {
        kind,
        id: id.to_owned(),
    };
    let link = Link {
        source: end(LinkKind::Run, "r1"),
        target: end(LinkKind::Issue, "acme/shop#12"),
        link_type: LinkType::Implements,
        metadata: json!({"by": "ana"}).as_object().unwrap().clone(),
        created_at: noon(),
    };
    for _ in 0..2 {
        let mut change = bench.note(1);
        change.links.push(link.clone());
        commit(&store, change).unwrap();
    }
    for end in [&link.source, &link.target] {
        assert_eq!(
            block_on(store.links_of(end.clone())).unwrap(),
            std::slice::from_ref(&link)
        );
    }
    enqueue(&bench, &store, &run("r1", "run:dev", Some(12))).unwrap();
    for statement in ["UPDATE links SET target_id = 'x'", "DELETE FROM links"] {
        assert!(bench.run(statement).is_err(), "{statement}");
    }
}

pub(crate) fn job_of(it: &Run) -> (Job, JobSession) {
    let order = Order {
        request_id: "7".to_owned(),
        correlation_id: it.correlation_id.clone(),
        session_id: JobSessionId::trusted("s1"),
        agent: "codex".to_owned(),
        owner: owner(),
        started_by: agent(),
        run_id: Some(it.id.as_str().to_owned()),
        input: JobInput::restored(&json!({"prompt": "fix it"})),
    };
    let job = Job::new(JobId::trusted("j1"), order, noon());
    let session = JobSession::new(
        job.session_id.clone(),
        SessionName::parse("fix-it").unwrap(),
        job.id.clone(),
        job.agent.clone(),
        job.owner.clone(),
        noon(),
    );
    (job, session)
}

#[test]
fn a_runs_job_tells_its_steps_in_the_agents_session() {
    let bench = Bench::new();
    let store = bench.open();
    let it = run("r1", "run:dev", Some(12));
    enqueue(&bench, &store, &it).unwrap();
    let (job, session) = job_of(&it);
    let line = |job: &Job, kind| JobEvent {
        event_id: bench.ids.event(),
        timestamp: noon(),
        job_id: job.id.clone(),
        session_id: None,
        kind,
        data: json!({"n": 1}),
    };
    let draft = |kind| {
        Draft::new(
            bench.ids.event(),
            noon(),
            it.correlation_id.clone(),
            agent(),
            kind,
            &json!({}),
        )
    };
    let mut started = it.after(RunStep::Start, noon()).unwrap();
    started.job_id = Some(job.id.clone());
    let mut begun = JobChange::new(job.clone());
    begun.session = Some(JobSessionChange { session, from: None });
    begun.events.push(line(&job, JobEventType::JobCreated));
    let both = Change {
        events: vec![draft(EventType::JobCreated), draft(EventType::RunStarted)],
        jobs: vec![begun],
        runs: vec![RunChange::over(1, started)],
        ..Change::default()
    };
    commit(&store, both).unwrap();
    let kept = || block_on(store.agent_session(&it.id)).unwrap().unwrap();
    let first = kept();
    assert_eq!((first.status.as_str(), first.snapshot_version), ("running", 1));
    assert_eq!((first.agent_key.as_str(), first.issue_number), ("dev", Some(12)));

    let mut limited = job.step(JobStep::Start, at(5)).unwrap();
    limited.sub_state = Some(SubState::PausedLimit);
    let mut writing = JobChange::over(1, limited.clone());
    writing.events.push(line(&job, JobEventType::of_step(JobStep::Start)));
    let change = |change: JobChange| Change {
        events: vec![draft(EventType::JobStarted)],
        jobs: vec![change],
        ..Change::default()
    };
    commit(&store, change(writing)).unwrap();
    let second = kept();
    assert_eq!(second.wait_state.as_deref(), Some("backpressure"));
    assert!(second.timeout_guard_disabled);
    assert_eq!(told(&store, EventType::RunAgentReady).len(), 1);
    assert_ne!(second.snapshot_checksum, first.snapshot_checksum);
    assert_eq!(find(&store, &it).timer.since, None, "a limit stops the clock");

    let ended = limited.step(JobStep::Complete, at(9)).unwrap();
    commit(&store, change(JobChange::over(2, ended))).unwrap();
    let last = kept();
    assert_eq!((last.status.as_str(), last.finished_at), ("succeeded", Some(at(9))));
    assert_eq!(
        (last.wait_state, last.snapshot_checksum),
        (None, second.snapshot_checksum)
    );
    assert_eq!(told(&store, EventType::RunAgentReady).len(), 1, "once");
    assert_eq!(block_on(store.jobs_left(9)).unwrap(), []);
}
