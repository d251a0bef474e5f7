//! A gateway whose ports write down what they are asked, in one list.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_gateway::approval::ballot::Ballot;
use countersign_gateway::approval::board::{Board, BoardParts};
use countersign_gateway::approval::proof::Told;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::approval::{Alone, ApprovalFilter, Approvals, Approver, Cleared};
use countersign_gateway::audit::act::ActChange;
use countersign_gateway::audit::event::{ApprovalState, Draft};
use countersign_gateway::audit::keyed::DigestKey;
use countersign_gateway::audit::outcome::StoredAct;
use countersign_gateway::audit::redact::{Config, Redactor};
use countersign_gateway::audit::{
    Change, CloseCommand, Committed, Pending, Record, RecordError, StoredCommand, StoredEnd, StoredOpen,
};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::error::Refusal;
use countersign_gateway::execution::live::Live;
use countersign_gateway::execution::{Ended, Executor, Gate, How};
use countersign_gateway::ids::{ApprovalId, CorrelationId, CredentialId, IdSource, RequestId, SessionId};
use countersign_gateway::policy::actor::RunContext;
use countersign_gateway::policy::allowlist::{Allowlist, FoundProgram, Opened, Programs};
use countersign_gateway::policy::effective::{
    ApprovalPolicy, CommandPolicy, EffectivePolicy, Mode, Network, Places, RuleSources, SandboxMode, ToolApproval,
};
use countersign_gateway::policy::merge::{Entry, ToolPolicy};
use countersign_gateway::policy::places::{Directories, OpenDirectory, OpenFailure};
use countersign_gateway::policy::plan::{Plan, PlannedAct};
use countersign_gateway::policy::quantity::{ByteCount, Millicores};
use countersign_gateway::policy::tools::{Hand, Layers, MatrixEntry, ToolPolicies};
use countersign_gateway::service::{Answer, Cancel, Origin, Service, ToolCall};
use countersign_gateway::session::lifetime::{KeptSession, Session, SessionState};
use countersign_gateway::session::{Caller, Transport};
use countersign_gateway::spine::{Gateway, Outlook, Ports, Settings};
use countersign_gateway::tools::exec::request::Stream;
use serde_json::Value;
use tokio::sync::Semaphore;

/// More than any test runs.
const PERMITS: usize = 1_000;

pub(crate) struct Stage {
    pub(crate) policy: EffectivePolicy,
    pub(crate) answer_within: Duration,
    /// Bytes that are kept of each stream.
    pub(crate) output_limit: usize,
    pub(crate) digest_key: [u8; 32],
    pub(crate) clock: Clock,
    caller: Caller,
    script: Arc<Script>,
    gateway: Mutex<Option<Arc<Gateway>>>,
}

struct Script {
    story: Arc<Mutex<Vec<String>>>,
    /// What whoever is asked answers; none leaves it to others.
    answer: Mutex<Option<Ballot>>,
    approvals: Mutex<Vec<ApprovalRequest>>,
    endings: Mutex<VecDeque<(How, String)>>,
    failure: Mutex<Option<RecordError>>,
    /// Whether only ends cannot be written, as where the last room of a disk is too small for them.
    spares_openings: AtomicBool,
    /// Whether a change is written some time before whoever waits for it hears so.
    hesitates: AtomicBool,
    /// How many looks for a question that is there find none, as if it were written a moment later.
    overlooked: AtomicUsize,
    /// Whether commands cannot be looked up.
    is_away: AtomicBool,
    /// How often that was tried.
    vain_looks: AtomicUsize,
    /// What was committed, in order.
    changes: Mutex<Vec<Change>>,
    /// While this is held no program ends by itself.
    hold: Arc<Semaphore>,
    payloads: Mutex<Vec<(String, Value)>>,
    ids: IdSource,
}

fn redactor() -> Redactor {
    Redactor::new(Config {
        patterns: vec![],
        secret_values: vec![],
    })
}

impl Stage {
    pub(crate) fn new(mode: Mode) -> Self {
        let here = std::env::current_dir().unwrap();
        let source = || "test".to_owned();
        let policy = EffectivePolicy {
            command: CommandPolicy {
                allowlist: Allowlist::from_entries(&["true"]).unwrap(),
                timeout: Duration::from_secs(5),
                timeout_max: Duration::from_secs(10),
                cpu_limit: Millicores::parse("1").unwrap(),
                memory_limit: ByteCount::new(1 << 20),
                pids_limit: 8,
                run_as_non_root: true,
                run_as: None,
                audit_retention_days: 1,
                sandbox: SandboxMode::WorkspaceWrite,
                network: Network::Deny,
                env_allow: vec![],
                require: vec![],
                path: vec!["/bin".into()],
                read_paths: vec![],
                helpers: vec![],
            },
            approval: ApprovalPolicy {
                mode,
                timeout: None,
                whitelist: vec![],
                self_approval: false,
                client_decides: false,
                quorum: 1,
            },
            places: Places {
                workspace_root: Some(here.clone()),
                cwd_roots: None,
                start: here,
                hidden: Arc::new([]),
            },
            tools: ToolPolicies::new(Layers::built_in()),
            sources: vec![source()],
            rule_sources: RuleSources {
                allowlist: source(),
                workspace: source(),
                cwd_roots: source(),
                timeout: source(),
                mode: source(),
            },
        };
        let script = Script {
            story: Arc::default(),
            answer: Mutex::default(),
            approvals: Mutex::default(),
            endings: Mutex::default(),
            failure: Mutex::default(),
            spares_openings: AtomicBool::new(false),
            hesitates: AtomicBool::new(false),
            overlooked: AtomicUsize::new(0),
            vain_looks: AtomicUsize::new(0),
            is_away: AtomicBool::new(false),
            changes: Mutex::default(),
            hold: Arc::new(Semaphore::new(PERMITS)),
            payloads: Mutex::default(),
            ids: IdSource::counting(),
        };
        Self {
            policy,
            answer_within: Duration::from_secs(30),
            output_limit: 1 << 10,
            digest_key: [7; 32],
            caller: Caller::anonymous_agent(Transport::Stdio),
            clock: Clock::fixed(Timestamp::from_millis(0)),
            script: Arc::new(script),
            gateway: Mutex::default(),
        }
    }

    pub(crate) fn answering(self, ballot: Ballot) -> Self {
        *self.script.answer.lock().unwrap() = Some(ballot);
        self
    }

    /// Another process on the same store.
    pub(crate) fn beside(&self) -> Self {
        Self {
            policy: self.policy.clone(),
            answer_within: self.answer_within,
            output_limit: self.output_limit,
            digest_key: self.digest_key,
            clock: self.clock.clone(),
            caller: self.caller.clone(),
            script: self.script.clone(),
            gateway: Mutex::default(),
        }
    }

    /// A board of its own, as `countersign approve` has one.
    pub(crate) fn board(&self) -> Arc<Board> {
        Board::new(self.board_parts(vec![]))
    }

    fn board_parts(&self, approvers: Vec<Arc<dyn Approver>>) -> BoardParts {
        BoardParts {
            record: self.script.clone(),
            approvals: self.script.clone(),
            bell: Arc::new(Alone),
            approvers,
            redactor: redactor(),
            clock: self.clock.clone(),
            ids: IdSource::random(),
        }
    }

    /// The questions there are, the newest last.
    pub(crate) fn approvals(&self) -> Vec<ApprovalRequest> {
        self.script.approvals.lock().unwrap().clone()
    }

    /// A question that came from elsewhere.
    pub(crate) fn put(&self, approval: ApprovalRequest) {
        self.script.approvals.lock().unwrap().push(approval);
    }

    /// Changes the newest question past the record, as whoever can write the table does.
    pub(crate) fn forge(&self, forge: impl FnOnce(ApprovalRequest) -> ApprovalRequest) {
        let mut kept = self.script.approvals.lock().unwrap();
        let row = kept.last_mut().unwrap();
        *row = forge(row.clone());
    }

    /// The question that is asked once a call waits.
    pub(crate) async fn asked(&self) -> ApprovalRequest {
        loop {
            let open = self.approvals().into_iter().find(ApprovalRequest::is_pending);
            if let Some(open) = open {
                return open;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// How many programs ran.
    pub(crate) fn runs(&self) -> usize {
        self.story().iter().filter(|line| line.starts_with("run")).count()
    }

    pub(crate) fn ending(self, endings: &[(How, &str)]) -> Self {
        *self.script.endings.lock().unwrap() = endings
            .iter()
            .map(|(how, output)| (how.clone(), (*output).to_owned()))
            .collect();
        self
    }

    /// An entry of the operator's `tools`.
    pub(crate) fn with_tool(mut self, pattern: &str, policy: ToolPolicy) -> Self {
        let mut layers = self.policy.tools.layers().clone();
        layers.matrix.push(MatrixEntry {
            entry: Entry {
                pattern: pattern.into(),
                policy,
                source: "test".into(),
            },
            hand: Hand::Sets,
        });
        self.policy.tools = ToolPolicies::new(layers);
        self
    }

    pub(crate) fn without_tool(self, pattern: &str) -> Self {
        let off = ToolPolicy {
            enabled: Some(false),
            ..ToolPolicy::default()
        };
        self.with_tool(pattern, off)
    }

    pub(crate) fn asking_for(self, pattern: &str, approval: ToolApproval) -> Self {
        let said = ToolPolicy {
            approval: Some(approval),
            ..ToolPolicy::default()
        };
        self.with_tool(pattern, said)
    }

    pub(crate) fn in_run(mut self, run: RunContext) -> Self {
        self.caller.run = Some(Arc::new(run));
        self
    }

    pub(crate) fn tools(&self) -> Vec<String> {
        let listed = self.gateway().tools(&self.caller);
        listed.iter().map(|tool| tool.name.to_string()).collect()
    }

    /// Changes are written a moment before whoever waits for them hears so.
    pub(crate) fn hesitating(self) -> Self {
        self.script.hesitates.store(true, Ordering::Relaxed);
        self
    }

    /// So many looks for a question that is there find none.
    pub(crate) fn overlook(&self, looks: usize) {
        self.script.overlooked.store(looks, Ordering::Relaxed);
    }

    /// Commands cannot be looked up from now on.
    pub(crate) fn fail_lookups(&self) {
        self.script.is_away.store(true, Ordering::Relaxed);
    }

    /// How often somebody tried all the same.
    pub(crate) fn vain_looks(&self) -> usize {
        self.script.vain_looks.load(Ordering::Relaxed)
    }

    pub(crate) fn fail_commits(&self, error: RecordError) {
        *self.script.failure.lock().unwrap() = Some(error);
    }

    /// Ends cannot be written; whatever else can.
    pub(crate) fn fail_closings(&self, error: RecordError) {
        self.script.spares_openings.store(true, Ordering::Relaxed);
        self.fail_commits(error);
    }

    pub(crate) fn mend_commits(&self) {
        *self.script.failure.lock().unwrap() = None;
    }

    /// Programs go on until they are ended, and calls are answered before that.
    pub(crate) fn holding(mut self) -> Self {
        self.answer_within = Duration::from_millis(1);
        self.holding_on()
    }

    /// Programs go on until they are ended.
    pub(crate) fn holding_on(self) -> Self {
        self.script.hold.forget_permits(PERMITS);
        self
    }

    /// Ends what runs, and waits until that is in the record.
    pub(crate) async fn stop(&self) {
        self.gateway().shutdown().await;
    }

    /// What each command is known again by, in the order in which they were opened.
    pub(crate) fn known_by(&self) -> Vec<String> {
        let changes = self.script.changes.lock().unwrap();
        let opened = changes.iter().filter_map(|change| change.open.as_ref());
        opened.map(|open| open.digest.clone()).collect()
    }

    /// Lets every command be known by this, as if another version had written it.
    pub(crate) fn rewrite_known_by(&self, digest: &str) {
        for change in self.script.changes.lock().unwrap().iter_mut() {
            let opened = change.open.as_mut().map(|open| &mut open.digest);
            let closed = change.close.as_mut().map(|close| &mut close.digest);
            opened
                .into_iter()
                .chain(closed)
                .for_each(|known| digest.clone_into(known));
        }
    }

    /// Every event that was committed.
    pub(crate) fn events(&self) -> Vec<Draft> {
        let changes = self.script.changes.lock().unwrap();
        changes.iter().flat_map(|change| change.events.clone()).collect()
    }

    /// The ends of commands, as committed, each with the event that tells of it.
    pub(crate) fn closings(&self) -> Vec<(CloseCommand, Value)> {
        let changes = self.script.changes.lock().unwrap();
        let closing = changes.iter().filter_map(|change| {
            let event = change.events.last()?;
            Some((change.close.clone()?, serde_json::from_str(event.payload()).unwrap()))
        });
        closing.collect()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.try_call(tool, arguments).await.expect("a tool's answer")
    }

    pub(crate) async fn try_call(&self, tool: &str, arguments: Value) -> Result<Value, Refusal> {
        self.call_as(self.caller.clone(), Origin::default(), tool, arguments)
            .await
    }

    pub(crate) async fn call_as(
        &self,
        caller: Caller,
        origin: Origin,
        tool: &str,
        arguments: Value,
    ) -> Result<Value, Refusal> {
        Ok(self.answer_to(caller, origin, tool, arguments).await?.structured)
    }

    /// The whole answer to a call.
    pub(crate) async fn answer_to(
        &self,
        caller: Caller,
        origin: Origin,
        tool: &str,
        arguments: Value,
    ) -> Result<Answer, Refusal> {
        let call = ToolCall {
            tool: tool.to_owned(),
            arguments: arguments.as_object().expect("an object").clone(),
            progress: None,
            cancel: Cancel::never(),
            origin,
            answer_within: None,
            user: None,
        };
        self.gateway().handle(caller, call).await
    }

    /// A call by someone who waits no longer than this.
    pub(crate) async fn call_within(&self, tool: &str, arguments: Value, patience: Duration) -> Answer {
        let call = ToolCall {
            tool: tool.to_owned(),
            arguments: arguments.as_object().expect("an object").clone(),
            progress: None,
            cancel: Cancel::never(),
            origin: Origin::default(),
            answer_within: Some(patience),
            user: None,
        };
        let caller = Caller::anonymous_agent(Transport::Stdio);
        self.gateway().handle(caller, call).await.expect("a tool's answer")
    }

    /// How a command stands, for someone who does not wait.
    pub(crate) async fn glance(&self, command: RequestId) -> Value {
        let caller = Caller::anonymous_agent(Transport::Stdio);
        let looked = Service::recall(&self.gateway(), caller, command, None, Duration::ZERO).await;
        looked.expect("a tool's answer").structured
    }

    /// What the ports were asked, in order.
    pub(crate) fn story(&self) -> Vec<String> {
        self.script.story.lock().unwrap().clone()
    }

    /// What the first event of a kind says.
    pub(crate) fn payload(&self, kind: &str) -> Value {
        let payloads = self.script.payloads.lock().unwrap();
        let found = payloads.iter().find(|(known, _)| known == kind);
        found.expect("such an event").1.clone()
    }

    pub(crate) fn gateway(&self) -> Arc<Gateway> {
        let mut made = self.gateway.lock().unwrap();
        made.get_or_insert_with(|| {
            let ports = Ports {
                outlook: outlook(),
                board: Board::new(self.board_parts(vec![self.script.clone()])),
                executor: self.script.clone(),
                record: self.script.clone(),
                redactor: redactor(),
                digests: DigestKey::new(self.digest_key),
                clock: self.clock.clone(),
                ids: self.script.ids.clone(),
            };
            let settings = Settings {
                answer_within: self.answer_within,
                output_limit: self.output_limit,
                acts_end_within: Duration::from_secs(10),
            };
            Gateway::new(self.policy.clone(), settings, ports)
        })
        .clone()
    }
}

impl Script {
    fn tell(&self, line: String) {
        self.story.lock().unwrap().push(line);
    }
}

impl Record for Script {
    fn commit(&self, change: Change) -> Pending<Result<Committed, RecordError>> {
        let is_spared = change.close.is_none() && self.spares_openings.load(Ordering::Relaxed);
        if let Some(error) = self.failure.lock().unwrap().clone().filter(|_| !is_spared) {
            return Box::pin(async move { Err(error) });
        }
        if !self.advance(&change) {
            return Box::pin(async { Err(RecordError::ApprovalMoved) });
        }
        if let Some(ActChange::Open(open)) = &change.act
            && let Some(asked) = &open.asked
            && self.act_of(&asked.owner, &asked.request_id).is_some()
        {
            let taken = RecordError::RequestIdTaken(asked.request_id.clone());
            return Box::pin(async { Err(taken) });
        }
        if let Some(close) = change.close.as_ref().filter(|_| change.only_if_open)
            && self.closed(&close.owner, &close.request_id).is_some()
        {
            return Box::pin(async {
                Ok(Committed {
                    last_seq: 1,
                    last_event: None,
                })
            });
        }
        let last_event = change.events.last().map(|event| event.event_id.clone());
        let payload = |event: &Draft| {
            (
                event.event_type.as_str().to_owned(),
                serde_json::from_str(event.payload()).unwrap(),
            )
        };
        self.payloads.lock().unwrap().extend(change.events.iter().map(payload));
        let mut words: Vec<&str> = change.events.iter().map(|event| event.event_type.as_str()).collect();
        words.insert(0, "commit");
        words.extend(change.open.as_ref().map(|_| "(open)"));
        words.extend(change.close.as_ref().map(|_| "(close)"));
        self.tell(words.join(" "));
        self.changes.lock().unwrap().push(change);
        let hesitates = self.hesitates.load(Ordering::Relaxed);
        Box::pin(async move {
            if hesitates {
                tokio::task::yield_now().await;
            }
            Ok(Committed {
                last_seq: 1,
                last_event,
            })
        })
    }

    fn act(&self, owner: &CredentialId, request_id: &RequestId) -> Pending<Result<Option<StoredAct>, RecordError>> {
        let found = self.act_of(owner, request_id);
        Box::pin(async move { Ok(found) })
    }

    fn is_end_wanted(&self, _: &CredentialId, _: &RequestId) -> Pending<Result<bool, RecordError>> {
        Box::pin(async { Ok(false) })
    }

    fn session(&self, _: &SessionId) -> Pending<Result<Option<KeptSession>, RecordError>> {
        Box::pin(async { Ok(None) })
    }

    fn sessions(&self, _: Option<SessionState>, _: usize) -> Pending<Result<Vec<Session>, RecordError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn ended_sessions(&self, _among: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, RecordError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn session_counts(&self) -> Pending<Result<Vec<(SessionState, usize)>, RecordError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn idle_sessions(&self, _: Timestamp, _: usize) -> Pending<Result<Vec<Session>, RecordError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn command(
        &self,
        owner: &CredentialId,
        request_id: &RequestId,
    ) -> Pending<Result<Option<StoredCommand>, RecordError>> {
        let found = self
            .closed(owner, request_id)
            .or_else(|| self.opened(owner, request_id));
        let is_away = self.is_away.load(Ordering::Relaxed);
        self.vain_looks.fetch_add(usize::from(is_away), Ordering::Relaxed);
        Box::pin(async move {
            match is_away {
                true => Err(RecordError::Unavailable("the disk is gone".to_owned())),
                false => Ok(found),
            }
        })
    }
}

impl Script {
    fn closed(&self, owner: &CredentialId, request_id: &RequestId) -> Option<StoredCommand> {
        let changes = self.changes.lock().unwrap();
        let close = changes.iter().filter_map(|change| change.close.as_ref());
        let mut close = close.filter(|close| (&close.owner, &close.request_id) == (owner, request_id));
        close.next().map(|close| StoredCommand {
            request_id: close.request_id.clone(),
            digest: close.digest.clone(),
            opened_at: close.opened_at,
            open: None,
            end: Some(StoredEnd {
                result: close.result.clone(),
                stdout: close.stdout.to_vec(),
                stderr: close.stderr.to_vec(),
            }),
        })
    }

    fn opened(&self, owner: &CredentialId, request_id: &RequestId) -> Option<StoredCommand> {
        let changes = self.changes.lock().unwrap();
        let open = changes.iter().filter_map(|change| change.open.as_ref());
        let mut open = open.filter(|open| (&open.owner, &open.request_id) == (owner, request_id));
        open.next().map(|open| StoredCommand {
            request_id: open.request_id.clone(),
            digest: open.digest.clone(),
            opened_at: open.opened_at,
            open: Some(StoredOpen {
                correlation_id: open.correlation_id.clone(),
                abandoned: open.abandoned.clone(),
            }),
            end: None,
        })
    }

    /// What became of the act of a request.
    fn act_of(&self, owner: &CredentialId, request_id: &RequestId) -> Option<StoredAct> {
        let changes = self.changes.lock().unwrap();
        let acts = || changes.iter().filter_map(|change| change.act.as_ref());
        let opened = acts().find_map(|act| match act {
            ActChange::Open(open) => {
                let asked = open.asked.as_ref()?;
                ((&asked.owner, &asked.request_id) == (owner, request_id)).then(|| open.id.clone())
            }
            ActChange::Told { .. } | ActChange::Close { .. } => None,
        })?;
        let ended = acts().find_map(|act| match act {
            ActChange::Close { act, kept } if *act == opened => Some(kept.clone()?),
            ActChange::Open(_) | ActChange::Told { .. } | ActChange::Close { .. } => None,
        });
        Some(ended.map_or(StoredAct::Open, StoredAct::Ended))
    }

    /// The store's compare-and-set.
    fn advance(&self, change: &Change) -> bool {
        let mut kept = self.approvals.lock().unwrap();
        for change in &change.approvals {
            let new = &change.approval;
            let in_force = |it: &ApprovalRequest| {
                matches!(it.state(), ApprovalState::Pending | ApprovalState::Approved)
                    && (&it.owner, &it.binding) == (&new.owner, &new.binding)
            };
            match change.from {
                None if kept.iter().any(in_force) => return false,
                None => kept.push(new.clone()),
                Some(from) => match kept.iter_mut().find(|it| it.id == new.id && it.version == from) {
                    Some(row) => *row = new.clone(),
                    None => return false,
                },
            }
        }
        true
    }

    fn last(&self, wanted: impl Fn(&ApprovalRequest) -> bool) -> Option<ApprovalRequest> {
        let kept = self.approvals.lock().unwrap();
        kept.iter().rev().find(|it| wanted(it)).cloned()
    }
}

type Found<T> = Pending<Result<T, RecordError>>;

impl Approvals for Script {
    fn find(&self, id: &ApprovalId) -> Found<Option<ApprovalRequest>> {
        let found = self.last(|it| it.id == *id);
        Box::pin(async move { Ok(found) })
    }

    fn beginning_with(&self, prefix: &str, limit: usize) -> Found<Vec<ApprovalRequest>> {
        let kept = self.approvals.lock().unwrap();
        let found = kept.iter().filter(|it| it.id.as_str().starts_with(prefix)).take(limit);
        let found = found.cloned().collect();
        Box::pin(async move { Ok(found) })
    }

    fn held(&self, owner: &CredentialId, binding: &str) -> Found<Option<ApprovalRequest>> {
        let is_open = |it: &ApprovalRequest| {
            let command = it.command.as_ref().filter(|command| command.parks);
            command.is_some_and(|command| self.closed(owner, &command.request_id).is_none())
        };
        let used = |it: &ApprovalRequest| matches!(it.state(), ApprovalState::Applied | ApprovalState::Failed);
        let overlooks = |looks: usize| looks.checked_sub(1);
        let is_overlooked = self
            .overlooked
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, overlooks);
        let found = self.last(|it| it.owner == *owner && it.binding == binding && !used(it) && is_open(it));
        let found = found.filter(|_| is_overlooked.is_err());
        Box::pin(async move { Ok(found) })
    }

    fn bound(&self, owner: &CredentialId, binding: &str) -> Found<Option<ApprovalRequest>> {
        let found = self.last(|it| it.owner == *owner && it.binding == binding && it.command.is_none());
        Box::pin(async move { Ok(found) })
    }

    fn of_command(&self, owner: &CredentialId, request_id: &RequestId) -> Found<Option<ApprovalRequest>> {
        let found = self.last(|it| {
            let named = it.command.as_ref().map(|command| &command.request_id);
            it.owner == *owner && named == Some(request_id)
        });
        Box::pin(async move { Ok(found) })
    }

    fn of_correlation(&self, id: &CorrelationId) -> Found<Vec<ApprovalRequest>> {
        let kept = self.approvals.lock().unwrap();
        let found = kept.iter().filter(|it| it.correlation_id == *id).cloned().collect();
        Box::pin(async move { Ok(found) })
    }

    fn list(&self, filter: ApprovalFilter) -> Found<Vec<ApprovalRequest>> {
        let kept = self.approvals.lock().unwrap();
        let states = filter.states;
        let wanted = |it: &&ApprovalRequest| states.is_empty() || states.contains(&it.state());
        let found = kept.iter().filter(wanted).cloned().collect();
        Box::pin(async move { Ok(found) })
    }

    fn open_of(&self, owner: &CredentialId) -> Found<usize> {
        let kept = self.approvals.lock().unwrap();
        let open = kept.iter().filter(|it| it.owner == *owner && it.is_pending()).count();
        Box::pin(async move { Ok(open) })
    }

    fn told_of(&self, question: &ApprovalRequest) -> Found<Vec<Told>> {
        let changes = self.changes.lock().unwrap();
        let events = changes.iter().flat_map(|change| &change.events);
        let of_call = events.filter(|event| event.correlation_id == question.correlation_id);
        let told = of_call.map(|event| Told {
            event_id: event.event_id.as_str().to_owned(),
            event_type: event.event_type.as_str().to_owned(),
            at: event.timestamp,
            payload: event.payload().to_owned(),
        });
        let told = told.collect();
        Box::pin(async move { Ok(told) })
    }

    fn due(&self, now: Timestamp, _: usize) -> Found<Vec<ApprovalRequest>> {
        let kept = self.approvals.lock().unwrap();
        let found = kept.iter().filter(|it| it.is_due(now)).cloned().collect();
        Box::pin(async move { Ok(found) })
    }
}

impl Approver for Script {
    fn ask(&self, question: &ApprovalRequest) -> Pending<Option<Ballot>> {
        let command = question.details.get("command").and_then(Value::as_str);
        self.tell(format!("ask {}", command.unwrap_or(&question.tool)));
        let answer = self.answer.lock().unwrap().clone();
        Box::pin(async move { answer })
    }
}

impl Executor for Script {
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    fn renewals(&self) -> u64 {
        0
    }

    fn run(&self, cleared: Cleared, gate: Gate, live: Arc<Live>) -> Pending<Ended> {
        let plan = cleared.into_plan();
        let PlannedAct::Process { argv, .. } = &plan.act else {
            panic!("a process")
        };
        let how = if plan.sandbox == SandboxMode::DangerFullAccess {
            " unconfined"
        } else {
            ""
        };
        let line = format!("run {}{how}", argv[0]);
        let (ending, output) = self
            .endings
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or((How::Exited(0), String::new()));
        let story = self.story.clone();
        let hold = self.hold.clone();
        Box::pin(async move {
            match gate.open().await {
                Err(error) => Ended {
                    how: How::NotRecorded(error),
                    layers: vec![],
                },
                Ok(_recorded) => {
                    story.lock().unwrap().push(line);
                    live.push(Stream::Stdout, output.as_bytes());
                    if output == GOES_ON {
                        std::future::pending::<()>().await;
                    }
                    assert_ne!(output, BREAKS, "a mistake of ours");
                    tokio::select! {
                        _ = hold.acquire() => {}
                        () = live.cancelled() => return Ended { how: How::Cancelled, layers: vec![] },
                    }
                    Ended {
                        how: ending,
                        layers: vec![],
                    }
                }
            }
        })
    }

    fn warm(&self, _: &Plan) -> Pending<()> {
        Box::pin(async {})
    }
}

/// Output of a command that never ends.
pub(crate) const GOES_ON: &str = "goes on";
/// Output of a command under which the server itself breaks.
pub(crate) const BREAKS: &str = "breaks";

/// Lets every task come to where it waits.
pub(crate) async fn others_turn() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

pub(crate) fn outlook() -> Outlook {
    Outlook {
        programs: Arc::new(OneProgram),
        directories: Arc::new(RealDirectories),
        environment: BTreeMap::new(),
    }
}

struct OneProgram;

impl Programs for OneProgram {
    fn find(&self, word: &str) -> Option<FoundProgram> {
        (word == "true").then(|| FoundProgram {
            version: None,
            path: "/bin/true".into(),
            requested: "/bin/true".into(),
            on_trusted_path: true,
            is_script: false,
            interpreter_chain: vec![],
            opened: Opened::default(),
        })
    }
}

struct RealDirectories;

impl Directories for RealDirectories {
    fn open(&self, path: &Path) -> Result<OpenDirectory, OpenFailure> {
        let path: PathBuf = path.canonicalize().map_err(|_| OpenFailure::Missing)?;
        let handle = std::fs::File::open(&path).map_err(|_| OpenFailure::Refused)?;
        Ok(OpenDirectory {
            path,
            handle: Arc::new(handle.into()),
        })
    }

    fn links(&self, path: &Path) -> (Vec<PathBuf>, PathBuf) {
        (Vec::new(), path.to_owned())
    }

    fn git_directory(&self, _: &Path) -> Option<PathBuf> {
        None
    }

    fn names(&self, places: &Arc<[PathBuf]>) -> std::io::Result<Arc<[PathBuf]>> {
        Ok(places.clone())
    }
}
