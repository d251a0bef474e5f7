//! A state directory, an agent, and lives of supervisors one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_gateway::approval::ballot::{Ballot, Choice, Decider, OwnRequests};
use countersign_gateway::approval::board::{Board, BoardParts};
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::approval::{Alone, ApprovalFilter};
use countersign_gateway::audit::event::EventType;
use countersign_gateway::audit::keyed::DigestKey;
use countersign_gateway::audit::outcome::StoredAct;
use countersign_gateway::audit::reading::Filter;
use countersign_gateway::audit::redact::{Config, Redactor};
use countersign_gateway::audit::{Change, Committed, Pending, Record, RecordError, StoredCommand};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::error::Refusal;
use countersign_gateway::ids::{CredentialId, IdSource, JobId, RequestId, SessionId};
use countersign_gateway::job::desk::{Assignment, DeskParts, JobDesk};
use countersign_gateway::job::driver::{AgentQuestion, Input};
use countersign_gateway::job::input::JobInput;
use countersign_gateway::job::keeping::{JobFilter, Jobs};
use countersign_gateway::job::session::JobSession;
use countersign_gateway::job::state::Job;
use countersign_gateway::job::supervise::{
    Agent, Agents, Judge, NoWayBack, Supervisor, SupervisorParts, SupervisorSettings,
};
use countersign_gateway::policy::agents::{Judged, Judgement};
use countersign_gateway::policy::decide::Rule;
use countersign_gateway::session::lifetime::{KeptSession, Session, SessionState};
use countersign_gateway::session::{Caller, Transport};
use countersign_store::session_files::SessionFiles;
use countersign_store::{Durability, Store};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::super::super::bench::{Bench, block_on, options_at, verify};
use super::agent::{Driver, Fake};

pub(crate) fn noon() -> Timestamp {
    super::super::super::bench::noon()
}

pub(crate) fn rule(reason: &str) -> Rule {
    Rule {
        name: "test".to_owned(),
        source: "test".to_owned(),
        reason: reason.to_owned(),
    }
}

type Answers = Arc<dyn Fn(&AgentQuestion, bool) -> Judgement + Send + Sync>;

pub(crate) struct House {
    bench: Bench,
    pub(crate) agent: Arc<Fake>,
    clock: Clock,
    store: Arc<Store>,
    answers: Answers,
    person: bool,
    impatient: bool,
}

/// Whether the last thing that a supervisor wanted to write was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    BeforeWriting,
    AfterWriting,
}

impl House {
    /// SQL past the store.
    pub(crate) fn force(&self, statement: &str) {
        self.bench.force(statement);
    }

    /// Every question is a person's.
    pub(crate) fn new(agent: Arc<Fake>) -> Self {
        Self::judging(agent, |_, _| Judgement::Ask(rule("asks")))
    }

    pub(crate) fn judging(
        agent: Arc<Fake>,
        answers: impl Fn(&AgentQuestion, bool) -> Judgement + Send + Sync + 'static,
    ) -> Self {
        let bench = Bench::new();
        let clock = Clock::fixed(noon());
        let options = options_at(bench.path(), Durability::Process, clock.clone());
        Self {
            store: Arc::new(Store::open(bench.path(), options).unwrap()),
            bench,
            agent,
            clock,
            answers: Arc::new(answers),
            person: false,
            impatient: false,
        }
    }

    /// Somebody says yes to everything.
    pub(crate) fn with_a_person(mut self) -> Self {
        self.person = true;
        self
    }

    /// Somebody calls every job back as soon as its agent asks something.
    pub(crate) fn with_somebody_impatient(mut self) -> Self {
        self.impatient = true;
        self
    }

    /// Those who are there besides, for a life.
    fn surround(&self, life: &Life) {
        if self.person {
            tokio::spawn(say_yes(life.board.clone()));
        }
        if self.impatient {
            tokio::spawn(call_back(life.desk.clone(), life.board.clone()));
        }
    }

    /// Accepts a job that no supervisor has seen.
    pub(crate) fn accept(&self, prompt: &str) -> JobId {
        let mortal = Mortal::immortal(&self.store);
        runtime().block_on(async { self.life(mortal).start(prompt).await })
    }

    /// One life of a supervisor, to its peaceful end.
    pub(crate) fn live(&self, story: impl AsyncFnOnce(&Life)) {
        // Whoever was there before has given no sign of life for a while.
        self.clock.advance(Duration::from_secs(61));
        let runtime = runtime();
        runtime.block_on(async {
            let life = self.life(Mortal::immortal(&self.store));
            tokio::spawn(life.supervisor.clone().run());
            self.surround(&life);
            let limit = Duration::from_secs(60);
            let told = tokio::time::timeout(limit, story(&life)).await;
            if told.is_err() {
                let filter = JobFilter {
                    owner: None,
                    statuses: vec![],
                    limit: 9,
                };
                panic!("the story does not end: {:#?}", self.store.list(filter).await);
            }
        });
        runtime.shutdown_background();
    }

    /// Another supervisor beside the one that lives.
    pub(crate) fn beside(&self) -> Life {
        let life = self.life(Mortal::immortal(&self.store));
        tokio::spawn(life.supervisor.clone().run());
        life
    }

    /// A life that ends as by SIGKILL at the nth write; false when the job's story is over before that.
    pub(crate) fn live_until_death(&self, nth: usize, when: When) -> bool {
        let runtime = runtime();
        let died = runtime.block_on(async {
            let mortal = Arc::new(Mortal {
                store: self.store.clone(),
                left: AtomicUsize::new(nth),
                when,
                death: Arc::default(),
                is_away: AtomicBool::new(false),
            });
            let life = self.life(mortal.clone());
            tokio::spawn(life.supervisor.clone().run());
            self.surround(&life);
            let limit = Duration::from_secs(60);
            let story = async {
                tokio::select! {
                    biased;
                    () = mortal.death.notified() => true,
                    () = life.over() => false,
                }
            };
            tokio::time::timeout(limit, story)
                .await
                .expect("it dies, or the story ends")
        });
        runtime.shutdown_background();
        self.agent.supervisor_died();
        died
    }

    fn life(&self, record: Arc<Mortal>) -> Life {
        let redactor = || Redactor::new(Config::default());
        let board = Board::new(BoardParts {
            record: record.clone(),
            approvals: self.store.clone(),
            bell: Arc::new(Alone),
            approvers: vec![],
            redactor: redactor(),
            clock: self.clock.clone(),
            ids: IdSource::random(),
        });
        let files = Arc::new(SessionFiles::below(self.bench.path()));
        let judge = Arc::new(Scripted {
            answers: self.answers.clone(),
            real: Mutex::default(),
        });
        let supervisor = Supervisor::new(SupervisorParts {
            jobs: self.store.clone(),
            record: record.clone(),
            files: files.clone(),
            board: board.clone(),
            agents: Arc::new(OneAgent(self.agent.clone())),
            endpoints: Arc::new(NoWayBack),
            judge: judge.clone(),
            redactor: redactor(),
            digests: DigestKey::new([7; 32]),
            clock: self.clock.clone(),
            ids: IdSource::random(),
            settings: SupervisorSettings {
                processes_max: 1,
                idle_max: Duration::from_secs(15 * 60),
            },
        });
        let desk = JobDesk::new(DeskParts {
            jobs: self.store.clone(),
            record: record.clone(),
            files,
            board: board.clone(),
            redactor: redactor(),
            clock: self.clock.clone(),
            ids: IdSource::random(),
        });
        Life {
            supervisor,
            desk,
            board,
            store: self.store.clone(),
            clock: self.clock.clone(),
            record,
            agent: self.agent.clone(),
            judge,
        }
    }

    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.bench.path().join("sessions").join(format!("{name}-2026-11-15"))
    }

    /// The lines of the one session's file.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let mut folders = std::fs::read_dir(self.bench.path().join("sessions")).unwrap();
        let folder = folders.next().unwrap().unwrap().path();
        let text = std::fs::read_to_string(folder.join("events.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn file_tells_what_is_kept(&self) {
        let kept: Vec<Value> = block_on(async {
            let filter = JobFilter {
                owner: None,
                statuses: vec![],
                limit: 9,
            };
            let job = self.store.list(filter).await.unwrap().pop().unwrap();
            let events = self.store.events(&job.session_id, 0, 9_999).await.unwrap();
            assert!(self.store.unfiled(9).await.unwrap().is_empty());
            events.iter().map(|stored| stored.event.to_json()).collect()
        });
        assert_eq!(self.lines(), kept);
    }

    pub(crate) fn count(&self, kind: EventType) -> usize {
        let filter = Filter {
            event_type: Some(kind),
            ..Filter::everything()
        };
        self.store.query_events(&filter).unwrap().len()
    }

    pub(crate) fn tokens(&self) -> u64 {
        let sum = self.bench.run("SELECT sum(total_tokens) FROM token_usage").unwrap();
        sum.parse().unwrap()
    }

    pub(crate) fn nothing_is_left(&self) {
        assert!(self.agent.world.lock().unwrap().alive.is_none(), "a process is left");
        assert!(
            block_on(self.store.processes()).unwrap().is_empty(),
            "a process is on record"
        );
    }

    pub(crate) fn record_is_sound(&self) {
        verify(&self.store).unwrap();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// One process, as far as jobs are concerned.
pub(crate) struct Life {
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) desk: Arc<JobDesk>,
    pub(crate) board: Arc<Board>,
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Clock,
    pub(crate) record: Arc<Mortal>,
    agent: Arc<Fake>,
    judge: Arc<Scripted>,
}

impl Life {
    pub(crate) fn judged_by(&self, judge: Arc<dyn Judge>) {
        *self.judge.real.lock().unwrap() = Some(judge);
    }

    pub(crate) async fn start(&self, prompt: &str) -> JobId {
        self.start_within(prompt, Duration::from_secs(3_600)).await
    }

    pub(crate) async fn start_within(&self, prompt: &str, timeout: Duration) -> JobId {
        self.start_as(&caller(), prompt, timeout).await
    }

    pub(crate) async fn others_job(&self, prompt: &str) -> JobId {
        let mut other = caller();
        other.credential = CredentialId::trusted("other");
        self.start_as(&other, prompt, Duration::from_secs(3_600)).await
    }

    async fn start_as(&self, caller: &Caller, prompt: &str, timeout: Duration) -> JobId {
        let mut input = JobInput::of_prompt(prompt);
        input.timeout_ms = Some(u64::try_from(timeout.as_millis()).unwrap());
        let assignment = Assignment {
            request_id: "1".to_owned(),
            correlation_id: IdSource::random().correlation(),
            agent: "fake".to_owned(),
            input,
            name: None,
            config: json!({"cwd": "/w", "approvalPolicy": "untrusted", "sandboxPolicy": "workspace-write"}),
            run_id: None,
        };
        self.desk.start(caller, assignment).await.unwrap().id
    }

    pub(crate) async fn message(&self, conversation: &str, message: Vec<Input>) -> Result<Job, Refusal> {
        self.desk.message(&caller(), conversation, message, "2").await
    }

    pub(crate) async fn interrupt(&self, job: &JobId) {
        self.desk.interrupt(&caller(), job).await.unwrap();
    }

    pub(crate) async fn find(&self, job: &JobId) -> Job {
        Jobs::find(&*self.store, job).await.unwrap().unwrap()
    }

    /// The job, once it is as wanted. Meanwhile a little time passes, as for everybody.
    pub(crate) async fn until(&self, job: &JobId, wanted: impl Fn(&Job) -> bool) -> Job {
        loop {
            let found = self.find(job).await;
            if wanted(&found) {
                return found;
            }
            self.breathe().await;
        }
    }

    pub(crate) async fn ended(&self, job: &JobId) -> Job {
        loop {
            let found = self.find(job).await;
            if found.has_ended() {
                return found;
            }
            // What waits for its next try gets there.
            if found.not_before.is_some_and(|at| at > self.clock.now()) {
                self.clock.advance(Duration::from_millis(100));
                self.board.announce();
            }
            self.breathe().await;
        }
    }

    /// Resolves when every job has ended and everything about it is done.
    pub(crate) async fn over(&self) {
        loop {
            let filter = JobFilter {
                owner: None,
                statuses: vec![],
                limit: 9,
            };
            let jobs = self.store.list(filter).await.unwrap();
            if jobs.iter().all(Job::has_ended) {
                return self.at_rest().await;
            }
            self.breathe().await;
        }
    }

    /// Resolves when no process runs, no file is behind and no question is open.
    pub(crate) async fn at_rest(&self) {
        loop {
            let processes = self.store.processes().await.unwrap();
            let unfiled = self.store.unfiled(9).await.unwrap();
            if processes.is_empty() && unfiled.is_empty() && self.open_questions().await.is_empty() {
                return;
            }
            self.clock.advance(Duration::from_millis(100));
            self.board.announce();
            self.breathe().await;
        }
    }

    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.board.announce();
        tokio::time::sleep(Duration::from_millis(30)).await;
    }

    async fn breathe(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    pub(crate) async fn open_questions(&self) -> Vec<ApprovalRequest> {
        self.board.list(ApprovalFilter::open()).await.unwrap()
    }

    pub(crate) async fn asked(&self) -> ApprovalRequest {
        loop {
            if let Some(question) = self.open_questions().await.pop() {
                return question;
            }
            self.breathe().await;
        }
    }

    /// The next question, or none where the job ends without one.
    pub(crate) async fn asked_before_its_end(&self, job: &JobId) -> Option<ApprovalRequest> {
        loop {
            if let Some(question) = self.open_questions().await.pop() {
                return Some(question);
            }
            if self.find(job).await.has_ended() {
                return None;
            }
            self.pass(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn approval(&self, approval: &ApprovalRequest) -> ApprovalRequest {
        self.board.find(&approval.id).await.unwrap().unwrap()
    }

    pub(crate) async fn approve(&self, question: &ApprovalRequest) {
        self.board
            .decide(&question.id, ballot(Choice::Allow, "fine"))
            .await
            .unwrap();
    }

    pub(crate) async fn deny(&self, question: &ApprovalRequest, reason: &str) {
        self.board
            .decide(&question.id, ballot(Choice::Deny, reason))
            .await
            .unwrap();
    }

    pub(crate) async fn until_said(&self, words: &str) {
        while !self.agent.world.lock().unwrap().said.iter().any(|said| said == words) {
            self.breathe().await;
        }
    }

    /// The supervisor's patience runs from here on. The record says a moment earlier that the turn is being ended, and a
    /// clock that is moved within that moment moves nothing.
    pub(crate) async fn until_told_to_end(&self) {
        while !self.agent.world.lock().unwrap().told_to_end {
            self.breathe().await;
        }
    }

    pub(crate) async fn until_stopped(&self) {
        while self.agent.world.lock().unwrap().alive.is_some() {
            self.breathe().await;
        }
    }

    pub(crate) async fn pending_count(&self, count: usize, kind: EventType) {
        let filter = Filter {
            event_type: Some(kind),
            ..Filter::everything()
        };
        while self.store.query_events(&filter).unwrap().len() < count {
            self.breathe().await;
        }
    }

    /// How many jobs have begun once as many have as are expected, and a while longer.
    pub(crate) async fn taken(&self, expected: usize) -> usize {
        let begun = || self.agent.world.lock().unwrap().spawned as usize;
        while begun() < expected {
            self.breathe().await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        begun()
    }
}

pub(crate) fn caller() -> Caller {
    Caller::anonymous_agent(Transport::Stdio)
}

fn ballot(choice: Choice, reason: &str) -> Ballot {
    Ballot {
        choice,
        by: Decider::person("ana", OwnRequests::Refused),
        reason: reason.to_owned(),
        answer: None,
    }
}

/// Somebody who looks at the board from time to time.
async fn say_yes(board: Arc<Board>) {
    loop {
        for question in board.list(ApprovalFilter::open()).await.unwrap() {
            // It may be settled already.
            let _ = board.decide(&question.id, ballot(Choice::Allow, "fine")).await;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Somebody who wants no job that asks.
async fn call_back(desk: Arc<JobDesk>, board: Arc<Board>) {
    let mut called = BTreeSet::new();
    loop {
        let open = board.list(ApprovalFilter::open()).await.unwrap();
        for job in open.into_iter().filter_map(|question| question.job_id) {
            // It may have ended already.
            if called.insert(job.clone()) {
                let _ = desk.interrupt(&caller(), &JobId::trusted(job)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

struct OneAgent(Arc<Fake>);

impl Agents for OneAgent {
    fn find(&self, name: &str) -> Option<Agent> {
        (name == "fake").then(|| Agent {
            driver: Arc::new(Driver(self.0.clone())),
            environment: BTreeMap::new(),
        })
    }

    fn grants(&self, _job: &Job) -> Pending<BTreeMap<String, String>> {
        Box::pin(async { BTreeMap::new() })
    }
}

struct Scripted {
    answers: Answers,
    /// Real policy, where a test brings it.
    real: Mutex<Option<Arc<dyn Judge>>>,
}

impl Judge for Scripted {
    fn judge(&self, job: &Job, session: &JobSession, question: &AgentQuestion, has_failed: bool) -> Judged {
        let real = self.real.lock().unwrap().clone();
        if let Some(real) = real {
            return real.judge(job, session, question, has_failed);
        }
        Judged {
            judgement: (self.answers)(question, has_failed),
            policy_digest: "p".to_owned(),
            quorum: 1,
            timeout: None,
        }
    }
}

/// A record that stops answering at some write, as a process does that is killed.
pub(crate) struct Mortal {
    store: Arc<Store>,
    left: AtomicUsize,
    when: When,
    death: Arc<Notify>,
    /// Nothing can be written now.
    pub(crate) is_away: AtomicBool,
}

impl Mortal {
    fn immortal(store: &Arc<Store>) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            left: AtomicUsize::new(FOR_EVER),
            when: When::BeforeWriting,
            death: Arc::default(),
            is_away: AtomicBool::new(false),
        })
    }
}

const FOR_EVER: usize = usize::MAX;
const DEAD: usize = usize::MAX - 1;

/// Serialises the deaths: only one write is the last.
static LAST: Mutex<()> = Mutex::new(());

impl Record for Mortal {
    fn commit(&self, change: Change) -> Pending<Result<Committed, RecordError>> {
        if self.is_away.load(Ordering::SeqCst) {
            return Box::pin(async { Err(RecordError::Unavailable("away".to_owned())) });
        }
        let _one = LAST.lock().unwrap();
        let left = self.left.load(Ordering::SeqCst);
        match left {
            FOR_EVER => return self.store.commit(change),
            DEAD => return Box::pin(std::future::pending()),
            _ => {}
        }
        if left > 0 {
            self.left.store(left - 1, Ordering::SeqCst);
            return self.store.commit(change);
        }
        self.left.store(DEAD, Ordering::SeqCst);
        let death = self.death.clone();
        match self.when {
            When::BeforeWriting => {
                death.notify_one();
                Box::pin(std::future::pending())
            }
            When::AfterWriting => {
                let written = self.store.commit(change);
                Box::pin(async move {
                    let _ = written.await;
                    death.notify_one();
                    std::future::pending().await
                })
            }
        }
    }

    fn command(&self, owner: &CredentialId, id: &RequestId) -> Pending<Result<Option<StoredCommand>, RecordError>> {
        self.store.command(owner, id)
    }

    fn act(&self, owner: &CredentialId, id: &RequestId) -> Pending<Result<Option<StoredAct>, RecordError>> {
        self.store.act(owner, id)
    }

    fn is_end_wanted(&self, owner: &CredentialId, id: &RequestId) -> Pending<Result<bool, RecordError>> {
        self.store.is_end_wanted(owner, id)
    }

    fn session(&self, id: &SessionId) -> Pending<Result<Option<KeptSession>, RecordError>> {
        Record::session(&*self.store, id)
    }

    fn sessions(&self, state: Option<SessionState>, limit: usize) -> Pending<Result<Vec<Session>, RecordError>> {
        self.store.sessions(state, limit)
    }

    fn session_counts(&self) -> Pending<Result<Vec<(SessionState, usize)>, RecordError>> {
        self.store.session_counts()
    }

    fn idle_sessions(&self, since: Timestamp, limit: usize) -> Pending<Result<Vec<Session>, RecordError>> {
        self.store.idle_sessions(since, limit)
    }

    fn ended_sessions(&self, among: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, RecordError>> {
        self.store.ended_sessions(among)
    }
}
