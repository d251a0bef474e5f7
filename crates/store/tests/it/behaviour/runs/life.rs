//! The life of a run: set off at the desk, given its turn by the steward, ended with its job, its time or a
//! word, whatever vanishes when.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use countersign_gateway::approval::Alone;
use countersign_gateway::approval::board::{Board, BoardParts};
use countersign_gateway::audit::event::{Actor, EventType};
use countersign_gateway::audit::outcome::StoredAct;
use countersign_gateway::audit::redact::{Config, Redactor};
use countersign_gateway::audit::{Change, Committed, Pending, Record, RecordError, StoredCommand};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::{CredentialId, IdSource, RequestId, SessionId};
use countersign_gateway::job::desk::{Assignment, DeskParts, JobDesk};
use countersign_gateway::job::input::JobInput;
use countersign_gateway::job::keeping::{JobChange, JobFilter, Jobs as _};
use countersign_gateway::job::lifecycle::{JobStatus, JobStep, recorded_as};
use countersign_gateway::job::state::Job;
use countersign_gateway::limits;
use countersign_gateway::run::desk::{Enqueued, RunDesk, RunDeskParts};
use countersign_gateway::run::keeping::{LinkEnd, LinkKind, Runs as _};
use countersign_gateway::run::lifecycle::{RunStatus, Runtime, TriggerKind};
use countersign_gateway::run::prompt::PromptTemplate;
use countersign_gateway::run::state::{Run, RunOrder};
use countersign_gateway::run::steward::{Planner, Steward, StewardParts, Work};
use countersign_gateway::session::lifetime::{KeptSession, Session, SessionState};
use countersign_store::session_files::SessionFiles;
use countersign_store::{Durability, Store};
use serde_json::json;

use super::super::super::bench::{Bench, block_on, commit, noon, options_at, verify};
use super::{find, told};

/// A record that dies at its n-th commit, before or after it is written.
struct Mortal {
    inner: Arc<Store>,
    left: AtomicUsize,
    last_is_written: bool,
}

impl Record for Mortal {
    fn commit(&self, change: Change) -> Pending<Result<Committed, RecordError>> {
        let gone = || RecordError::Unavailable("gone".to_owned());
        match self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
        {
            Err(_) => Box::pin(async move { Err(gone()) }),
            Ok(1) if !self.last_is_written => Box::pin(async move { Err(gone()) }),
            Ok(1) => {
                let written = self.inner.commit(change);
                Box::pin(async move {
                    written.await?;
                    Err(gone())
                })
            }
            Ok(_) => self.inner.commit(change),
        }
    }

    fn command(&self, owner: &CredentialId, id: &RequestId) -> Pending<Result<Option<StoredCommand>, RecordError>> {
        self.inner.command(owner, id)
    }

    fn act(&self, owner: &CredentialId, id: &RequestId) -> Pending<Result<Option<StoredAct>, RecordError>> {
        self.inner.act(owner, id)
    }

    fn is_end_wanted(&self, owner: &CredentialId, id: &RequestId) -> Pending<Result<bool, RecordError>> {
        self.inner.is_end_wanted(owner, id)
    }

    fn session(&self, id: &SessionId) -> Pending<Result<Option<KeptSession>, RecordError>> {
        Record::session(&*self.inner, id)
    }

    fn sessions(&self, state: Option<SessionState>, limit: usize) -> Pending<Result<Vec<Session>, RecordError>> {
        self.inner.sessions(state, limit)
    }

    fn ended_sessions(&self, among: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, RecordError>> {
        self.inner.ended_sessions(among)
    }

    fn session_counts(&self) -> Pending<Result<Vec<(SessionState, usize)>, RecordError>> {
        self.inner.session_counts()
    }

    fn idle_sessions(&self, since: Timestamp, limit: usize) -> Pending<Result<Vec<Session>, RecordError>> {
        self.inner.idle_sessions(since, limit)
    }
}

/// An agent for every run but those that ask for the key `outside` or `missing`.
struct Plan;

impl Planner for Plan {
    fn plan(&self, run: &Run) -> Result<Work, Refusal> {
        match run.agent_key.as_str() {
            "outside" => Ok(Work::Outside),
            "missing" => Err(Refusal::new(ErrorCode::ConfigurationError, "the agent is not there")),
            _ => Ok(Work::Job(Box::new(Assignment {
                request_id: run.id.as_str().to_owned(),
                correlation_id: run.correlation_id.clone(),
                agent: "codex".to_owned(),
                input: JobInput::of_prompt(&PromptTemplate::standard().fill(run).unwrap()),
                name: None,
                config: json!({}),
                run_id: Some(run.id.as_str().to_owned()),
            }))),
        }
    }
}

struct House {
    bench: Bench,
    store: Arc<Store>,
    clock: Clock,
}

impl House {
    fn new() -> Self {
        let bench = Bench::new();
        let clock = Clock::fixed(noon());
        let options = options_at(bench.path(), Durability::Process, clock.clone());
        let store = Arc::new(Store::open(bench.path(), options).unwrap());
        Self { bench, store, clock }
    }

    /// Everything of one process, which lives for so many commits.
    fn process(&self, commits: usize, last_is_written: bool) -> (Arc<RunDesk>, Arc<Steward>) {
        let record = Arc::new(Mortal {
            inner: self.store.clone(),
            left: AtomicUsize::new(commits),
            last_is_written,
        });
        let redactor = Redactor::new(Config::default());
        let ids = IdSource::random();
        let board = Board::new(BoardParts {
            record: record.clone(),
            approvals: self.store.clone(),
            bell: Arc::new(Alone),
            approvers: Vec::new(),
            redactor: redactor.clone(),
            clock: self.clock.clone(),
            ids: ids.clone(),
        });
        let job_desk = JobDesk::new(DeskParts {
            jobs: self.store.clone(),
            record: record.clone(),
            files: Arc::new(SessionFiles::below(self.bench.path())),
            board: board.clone(),
            redactor: redactor.clone(),
            clock: self.clock.clone(),
            ids: ids.clone(),
        });
        let desk = RunDesk::new(RunDeskParts {
            runs: self.store.clone(),
            record,
            board,
            redactor,
            clock: self.clock.clone(),
            ids,
        });
        let steward = Steward::new(StewardParts {
            desk: desk.clone(),
            jobs: self.store.clone(),
            job_desk,
            planner: Arc::new(Plan),
        });
        (desk, steward)
    }

    fn living(&self) -> (Arc<RunDesk>, Arc<Steward>) {
        self.process(usize::MAX, true)
    }

    fn jobs(&self) -> Vec<Job> {
        let filter = JobFilter {
            owner: None,
            statuses: Vec::new(),
            limit: 99,
        };
        block_on(self.store.list(filter)).unwrap()
    }

    /// What a supervisor does: a job takes a step.
    fn step(&self, job: &Job, step: JobStep) -> Job {
        let next = job.step(step, self.clock.now()).unwrap();
        let event = countersign_gateway::audit::event::Draft::new(
            self.bench.ids.event(),
            self.clock.now(),
            job.correlation_id.clone(),
            Actor::system("jobs"),
            recorded_as(step),
            &json!({}),
        );
        let change = Change {
            events: vec![event],
            jobs: vec![JobChange::over(job.version, next.clone())],
            ..Change::default()
        };
        commit(&*self.store, change).unwrap();
        next
    }
}

fn ana() -> Actor {
    Actor::system("ana")
}

fn order(agent_key: &str, label: &str, issue: u64) -> RunOrder {
    RunOrder {
        project: None,
        repository: Some("acme/shop".to_owned()),
        agent_key: agent_key.to_owned(),
        trigger_kind: TriggerKind::Label,
        trigger_label: Some(label.to_owned()),
        runtime: Runtime::CodeOnly,
        namespace: None,
        issue_number: Some(issue),
        pull_request_number: None,
        labels: std::collections::BTreeSet::new(),
        title: None,
        instructions: None,
        requested_by: "ana".to_owned(),
        time: Duration::from_secs(60),
    }
}

fn enqueue(desk: &RunDesk, order: RunOrder) -> Run {
    block_on(desk.enqueue(&ana(), order, None)).unwrap().run().clone()
}

#[test]
fn a_run_becomes_a_job_and_ends_with_it_and_the_next_one_has_its_turn() {
    let house = House::new();
    let (desk, steward) = house.living();
    let dev = enqueue(&desk, order("dev", "run:dev", 12));
    house.clock.advance(Duration::from_secs(1));
    let revise = enqueue(&desk, order("dev", "run:dev:revise", 12));
    let again = block_on(desk.enqueue(&ana(), order("dev", "run:dev:revise", 12), None)).unwrap();
    assert_eq!(again, Enqueued::Waiting(revise.clone()), "one waits already");
    block_on(steward.round()).unwrap();
    let jobs = house.jobs();
    assert_eq!(jobs.len(), 1, "one run of an issue at a time");
    assert_eq!(jobs[0].run_id.as_deref(), Some(dev.id.as_str()));
    assert_eq!(jobs[0].correlation_id, dev.correlation_id);
    let kept = find(&house.store, &dev);
    assert_eq!(
        (kept.status, kept.job_id.as_ref()),
        (RunStatus::Running, Some(&jobs[0].id))
    );
    let end = LinkEnd {
        kind: LinkKind::Run,
        id: dev.id.as_str().to_owned(),
    };
    let links = block_on(house.store.links_of(end)).unwrap();
    let kinds: Vec<_> = links.iter().map(|link| link.target.kind).collect();
    assert_eq!(kinds, [LinkKind::Issue, LinkKind::Session]);
    let job = house.step(&jobs[0], JobStep::Start);
    house.step(&job, JobStep::Complete);
    block_on(steward.round()).unwrap();
    assert_eq!(find(&house.store, &dev).status, RunStatus::Succeeded);
    assert_eq!(find(&house.store, &revise).status, RunStatus::Running);
    for (kind, count) in [
        (EventType::RunEnqueued, 2),
        (EventType::RunStarted, 2),
        (EventType::RunAgentReady, 1),
        (EventType::RunFinished, 1),
    ] {
        assert_eq!(told(&house.store, kind).len(), count, "{kind:?}");
    }
    verify(&house.store).unwrap();
}

#[test]
fn a_steward_that_dies_at_any_commit_leaves_one_job_and_one_end() {
    for last_is_written in [false, true] {
        for commits in 1..=4 {
            let house = House::new();
            let (desk, _) = house.living();
            let run = enqueue(&desk, order("dev", "run:dev", 12));
            let (_, mortal) = house.process(commits, last_is_written);
            // It lives through none, some or all of this.
            let _ = block_on(mortal.round());
            if let Some(job) = house.jobs().first().cloned() {
                let job = house.step(&job, JobStep::Start);
                house.step(&job, JobStep::Fail);
            }
            let _ = block_on(mortal.round());
            let (_, next) = house.living();
            for _ in 0..3 {
                block_on(next.round()).unwrap();
                if let Some(job) = house.jobs().first().filter(|job| job.status() == JobStatus::Pending) {
                    let job = house.step(job, JobStep::Start);
                    house.step(&job, JobStep::Fail);
                }
            }
            let place = format!("{commits} commits, the last written: {last_is_written}");
            assert_eq!(house.jobs().len(), 1, "{place}");
            assert_eq!(find(&house.store, &run).status, RunStatus::Failed, "{place}");
            assert_eq!(told(&house.store, EventType::RunStarted).len(), 1, "{place}");
            assert_eq!(told(&house.store, EventType::RunFinished).len(), 1, "{place}");
            verify(&house.store).unwrap();
        }
    }
}

#[test]
fn a_run_whose_time_is_over_ends_and_its_job_is_called_back_whoever_died_between() {
    let house = House::new();
    let (desk, steward) = house.living();
    let run = enqueue(&desk, order("dev", "run:dev", 12));
    block_on(steward.round()).unwrap();
    house.clock.advance(Duration::from_secs(59));
    block_on(steward.round()).unwrap();
    assert_eq!(find(&house.store, &run).status, RunStatus::Running);
    house.clock.advance(Duration::from_secs(1));
    // One that dies behind the run's end.
    let (_, mortal) = house.process(1, true);
    let _ = block_on(mortal.round());
    let ended = find(&house.store, &run);
    assert_eq!(
        (ended.status, ended.timer.remaining),
        (RunStatus::Failed, Duration::ZERO)
    );
    assert!(ended.reason.unwrap().starts_with("timeout"));
    assert_eq!(house.jobs()[0].status(), JobStatus::Pending);
    block_on(steward.round()).unwrap();
    assert_eq!(house.jobs()[0].status(), JobStatus::Cancelled);
}

#[test]
fn a_clock_that_is_set_neither_ends_a_run_nor_gives_it_time_however_many_look_after_it() {
    let house = House::new();
    let (desk, steward) = house.living();
    let (_, second) = house.living();
    let rounds = || [&steward, &second].map(|it| block_on(it.round()).unwrap());
    let run = enqueue(&desk, order("dev", "run:dev", 12));
    rounds();
    house.clock.advance(Duration::from_secs(20));
    rounds();
    for days in [3_650, -3_650] {
        let now = house.clock.now().as_millis();
        house.clock.set(Timestamp::from_millis(now + days * 86_400_000));
        // One that began in between takes its time by the clock as it stands now.
        let later = enqueue(&desk, order("outside", "run:dev", 13));
        block_on(second.start(&later)).unwrap();
        rounds();
        rounds();
        let left = |run: &Run| find(&house.store, run).timer.left(house.clock.now()).as_secs();
        assert_eq!((left(&run), left(&later)), (40, 60), "{days} days");
        block_on(desk.cancel(&ana(), &later.id, "seen")).unwrap();
    }
    house.clock.advance(Duration::from_secs(39));
    rounds();
    assert_eq!(find(&house.store, &run).status, RunStatus::Running);
    house.clock.advance(Duration::from_secs(1));
    rounds();
    assert_eq!(find(&house.store, &run).status, RunStatus::Failed);
}

#[test]
fn a_run_ends_with_its_job_however_many_others_work_meanwhile() {
    let house = House::new();
    let (desk, steward) = house.living();
    let run = enqueue(&desk, order("dev", "run:dev", 1));
    block_on(steward.round()).unwrap();
    for issue in 0..limits::RUNS_AT_ONCE as u64 {
        enqueue(&desk, order("outside", "run:dev", 2 + issue));
    }
    block_on(steward.round()).unwrap();
    let job = house.step(&house.jobs()[0], JobStep::Start);
    house.step(&job, JobStep::Complete);
    block_on(steward.round()).unwrap();
    assert_eq!(find(&house.store, &run).status, RunStatus::Succeeded);
}

#[test]
fn a_run_that_is_called_back_takes_its_job_along_and_says_why() {
    let house = House::new();
    let (desk, steward) = house.living();
    let run = enqueue(&desk, order("dev", "run:dev", 12));
    block_on(steward.round()).unwrap();
    let cancelled = block_on(desk.cancel(&ana(), &run.id, "not needed")).unwrap();
    assert_eq!(cancelled.status, RunStatus::Cancelled);
    block_on(steward.round()).unwrap();
    assert_eq!(house.jobs()[0].status(), JobStatus::Cancelled);
    let told = told(&house.store, EventType::RunCanceled);
    assert_eq!((told.len(), &told[0]["reason"]), (1, &json!("not needed")));
    let again = block_on(desk.cancel(&ana(), &run.id, "again")).unwrap_err();
    assert_eq!(again.code, ErrorCode::Conflict);
}

#[test]
fn a_run_without_an_agent_of_ours_starts_and_one_whose_agent_is_missing_fails_with_the_reason() {
    let house = House::new();
    let (desk, steward) = house.living();
    let outside = enqueue(&desk, order("outside", "run:dev", 12));
    let missing = enqueue(&desk, order("missing", "run:dev", 13));
    block_on(steward.round()).unwrap();
    assert_eq!(house.jobs(), []);
    let kept = find(&house.store, &outside);
    assert_eq!((kept.status, kept.job_id), (RunStatus::Running, None));
    let kept = find(&house.store, &missing);
    assert_eq!(
        (kept.status, kept.reason.as_deref()),
        (RunStatus::Failed, Some("the agent is not there"))
    );
}

#[test]
fn what_an_agent_reports_is_kept_and_told_until_the_run_ends() {
    let house = House::new();
    let (desk, steward) = house.living();
    let run = enqueue(&desk, order("outside", "run:dev", 12));
    block_on(steward.round()).unwrap();
    let reported = block_on(desk.report(&ana(), &run.id, "проверяю тесты")).unwrap();
    assert_eq!(reported.reported_status.as_deref(), Some("проверяю тесты"));
    let said = told(&house.store, EventType::RunStatusReported);
    assert_eq!(said[0]["reported_status"], "проверяю тесты");
    block_on(desk.cancel(&ana(), &run.id, "enough")).unwrap();
    assert!(block_on(desk.report(&ana(), &run.id, "late")).is_err());
}

#[test]
fn an_order_that_makes_no_sense_is_refused() {
    let house = House::new();
    let (desk, _) = house.living();
    for change in [
        (|order: &mut RunOrder| order.repository = None) as fn(&mut RunOrder),
        |order| order.repository = Some("no-slash".to_owned()),
        |order| order.repository = Some("a/b/c".to_owned()),
        |order| order.issue_number = Some(0),
        |order| order.agent_key = String::new(),
    ] {
        let mut bad = order("dev", "run:dev", 12);
        change(&mut bad);
        let refused = block_on(desk.enqueue(&ana(), bad, None)).unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidArguments);
    }
}
