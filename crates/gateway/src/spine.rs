//! One call from arrival to record.
//!
//! ```text
//! transport -> session -> catalog -> policy -> approval -> execution -> audit
//! ```
//!
//! [`Gateway::handle`] admits and resolves; [`Gateway::conduct`] takes a command through policy,
//! approval, execution and the record. The record brackets the run: it is opened, durably, before a
//! program may start, and closed before the caller hears anything.

mod acting;
mod adopting;
mod asking;
mod assigning;
mod closing;
mod consulting;
mod dismissing;
mod envelopes;
mod invocations;
mod joining;
mod looking;
mod performing;
mod repeating;
mod submitting;
mod verdicts;
mod waiting;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tracing::{Instrument as _, Span};

use crate::approval::Cleared;
use crate::approval::board::Board;
use crate::approval::request::{ApprovalChange, ApprovalRequest};
use crate::audit::chain;
use crate::audit::command::CommandAuditRecord;
use crate::audit::event::ApprovalState;
use crate::audit::payload::Payload;
use crate::audit::redact::Redactor;
use crate::audit::trace::Trace;
use crate::audit::{Change, Committed, OpenCommand, Pending, Record, RecordError, Recorded};
use crate::call::Step;
use crate::catalog::definition::ToolDefinition;
use crate::catalog::{self, Resolved, Tool};
use crate::clock::Clock;
use crate::commands::Commands;
use crate::delegation::desk::DelegationDesk;
use crate::error::{ErrorCode, Refusal};
use crate::execution::live::Live;
use crate::execution::{Ended, Executor, Gate, How};
use crate::ids::{CorrelationId, IdSource, RequestId};
use crate::job::news::{JobListener, JobNews};
use crate::limits;
use crate::policy::actor::Context;
use crate::policy::again;
use crate::policy::decide::{self, Verdict};
use crate::policy::effective::{EffectivePolicy, Mode};
use crate::policy::explain::{self, Explained, Explains, Supposed};
use crate::policy::plan::Plan;
use crate::service::{Answer, RefusedEnvelope, Service, ToolCall};
use crate::session::{self, Admitted, Caller, Role};
use crate::tools::acts::Toolbox;
use crate::tools::exec::request::{CommandRequest, CommandTool};
pub use adopting::{Adopted, Outlook};
use verdicts::Verdicts;
use waiting::{Asking, Settled};

/// The gateway: policy in force, the ports, and the commands of this process.
pub struct Gateway {
    ports: Ports,
    settings: Settings,
    policy: RwLock<Arc<InForce>>,
    commands: Commands,
    /// Turns at running; the rest wait.
    turns: Arc<Semaphore>,
    is_warm: AtomicBool,
    /// Held for reading while a call is looked up before it enters.
    lookups: tokio::sync::RwLock<()>,
    /// Held for reading by each act that is being done.
    acts: Arc<tokio::sync::RwLock<()>>,
    /// The tools that are no commands.
    toolboxes: OnceLock<Vec<Arc<dyn Toolbox>>>,
    /// This process is about to stop.
    stopping: watch::Sender<bool>,
    /// Where acts go that services outside perform.
    delegations: OnceLock<Arc<DelegationDesk>>,
    /// Counts the policies under which tools are listed otherwise.
    lists: watch::Sender<u64>,
    /// What happens to jobs, where there are any.
    news: OnceLock<Arc<JobNews>>,
    verdicts: Verdicts,
}

/// What the binary joins to the spine.
pub struct Ports {
    pub outlook: Outlook,
    pub board: Arc<Board>,
    pub executor: Arc<dyn Executor>,
    pub record: Arc<dyn Record>,
    pub redactor: Redactor,
    pub clock: Clock,
    pub ids: IdSource,
}

/// How the gateway answers.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub answer_within: Duration,
    pub output_limit: usize,
    /// How long acts under way may go on when the server stops.
    pub acts_end_within: Duration,
}

/// What policy says of a request, and the question that the same request asked before.
struct Considered {
    in_force: Arc<InForce>,
    verdict: Verdict,
    /// It waits in the store: the command goes on where it stood.
    held: Option<ApprovalRequest>,
}

/// A policy with the snapshots that records repeat.
struct InForce {
    policy: EffectivePolicy,
    outlook: Outlook,
    /// Without a caller's keys.
    snapshot: Value,
    /// For callers outside of runs, by role.
    snapshots: Vec<(Role, Arc<Payload>)>,
    digest: String,
    /// What callers outside of runs see, by role; made when the first one looks.
    tools: [(Role, OnceLock<Arc<[ToolDefinition]>>); Role::ALL.len()],
}

impl InForce {
    fn new(policy: EffectivePolicy, outlook: Outlook) -> Self {
        let snapshot = policy.snapshot();
        let of_role = |role: Role| (role, Arc::new(with_keys(&snapshot, &Context::of_role(role))));
        Self {
            snapshots: Role::ALL.into_iter().map(of_role).collect(),
            digest: snapshot["digest"].as_str().unwrap_or_default().to_owned(),
            tools: Role::ALL.map(|role| (role, OnceLock::new())),
            snapshot,
            policy,
            outlook,
        }
    }

    /// What the record of a decision repeats of the policy, with the keys that chose among its parts.
    fn snapshot_for(&self, caller: &Caller) -> Arc<Payload> {
        let context = self.policy.context(caller);
        let known = self.snapshots.iter().find(|(role, _)| *role == context.role);
        match known {
            Some((_, snapshot)) if context.is_plain() => snapshot.clone(),
            _ => Arc::new(with_keys(&self.snapshot, &context)),
        }
    }
}

fn with_keys(snapshot: &Value, context: &Context<'_>) -> Payload {
    let mut snapshot = snapshot.clone();
    snapshot["keys"] = context.recorded();
    Payload::from(&snapshot)
}

impl Gateway {
    pub fn new(policy: EffectivePolicy, settings: Settings, ports: Ports) -> Arc<Self> {
        let in_force = InForce::new(policy, ports.outlook.clone());
        Arc::new(Self {
            ports,
            settings,
            policy: RwLock::new(Arc::new(in_force)),
            commands: Commands::default(),
            turns: Arc::new(Semaphore::new(limits::COMMANDS_RUNNING_MAX)),
            is_warm: AtomicBool::new(false),
            lookups: tokio::sync::RwLock::new(()),
            acts: Arc::default(),
            toolboxes: OnceLock::new(),
            stopping: watch::Sender::new(false),
            delegations: OnceLock::new(),
            lists: watch::Sender::new(0),
            news: OnceLock::new(),
            verdicts: Verdicts::default(),
        })
    }

    /// Brings the news of jobs, once.
    pub fn tell_of_jobs(&self, news: Arc<JobNews>) {
        let first = self.news.set(news).is_ok();
        assert!(first, "a gateway hears of jobs from one place");
    }

    /// Brings tools that are no commands, once, before the first caller looks.
    pub fn equip(&self, toolboxes: Vec<Arc<dyn Toolbox>>) {
        let first = self.toolboxes.set(toolboxes).is_ok();
        assert!(first, "a gateway is equipped once");
    }

    /// Lets tools of files give their work to services outside, once, before the first caller looks.
    pub fn delegate(&self, desk: Arc<DelegationDesk>) {
        let first = self.delegations.set(desk).is_ok();
        assert!(first, "a gateway has one desk");
    }

    /// This process is about to stop: whoever waits for a person hears at once that the question is open, rather
    /// than when the time to stop is over.
    pub fn stop_waiting(&self) {
        self.stopping.send_replace(true);
    }

    /// Resolves when this process is about to stop.
    async fn stops(&self) {
        // The other end is ours as well, so this cannot end in another way.
        let _ = self.stopping.subscribe().wait_for(|stops| *stops).await;
    }

    fn toolboxes(&self) -> &[Arc<dyn Toolbox>] {
        self.toolboxes.get().map_or(&[], Vec::as_slice)
    }

    /// Takes one call from a transport.
    pub async fn handle(self: Arc<Self>, caller: Caller, call: ToolCall) -> Result<Answer, Refusal> {
        let span = tracing::info_span!(
            "call",
            tool = call.tool,
            transport = caller.transport.as_str(),
            correlation_id = tracing::field::Empty,
            status = tracing::field::Empty,
        );
        self.enter(caller, call).instrument(span).await
    }

    async fn enter(self: Arc<Self>, caller: Caller, call: ToolCall) -> Result<Answer, Refusal> {
        let admitted = match session::admit(caller.clone()) {
            Ok(admitted) => admitted,
            Err(refusal) => return Err(self.refuse_call(&caller, &call, refusal, None).await),
        };
        let resolved = match catalog::resolve(&self.in_force().policy, self.toolboxes(), admitted, call) {
            Ok(resolved) => resolved,
            Err(missing) => {
                let hidden_by = missing.hidden_by.as_ref();
                return Err(self
                    .refuse_call(&caller, &missing.call, missing.refusal.clone(), hidden_by)
                    .await);
            }
        };
        let Resolved { admitted, tool, call } = resolved;
        let started = self.ports.clock.now();
        let answer = match tool {
            Tool::Command(kind) => return Ok(self.submit(admitted, kind, call, started).await),
            Tool::Status => self.status(&admitted, &call).await,
            Tool::Cancel => self.cancel(&admitted, &call).await,
            Tool::Act(_) | Tool::Delegated(_) => return Ok(self.act(&admitted, &tool, &call, started).await),
        };
        Ok(self.called(&caller, &call, started, answer).await)
    }

    /// Takes one admitted command through the stations; resolves when its record is closed, or when it
    /// waits in the store for an answer that nobody waits for here.
    async fn conduct(
        self: Arc<Self>,
        admitted: Admitted,
        request: CommandRequest,
        live: Arc<Live>,
        considered: Considered,
    ) {
        let Considered {
            in_force,
            verdict,
            held,
        } = considered;
        let mut trace = self.trace(&admitted, live.correlation_id.clone());
        Span::current().record("correlation_id", trace.correlation_id.as_str());
        let audit = self.audit_record(&admitted, &request, &live, &verdict, &in_force);
        let mut opening = None;
        if held.is_some() {
            trace = trace.waiting();
        } else {
            trace.step(Step::Receive, self.received(&admitted, &request, &live));
            opening = Some(self.opening(&admitted, &request, &live, &trace, &audit));
            if !matches!(verdict, Verdict::Deny(_)) {
                let context = in_force.policy.context(admitted.caller());
                trace.step(
                    Step::Validate,
                    self.validated(&admitted, &verdict, &context, &in_force, &live),
                );
                if matches!(&verdict, Verdict::Allow(permit) if permit.auto_approved) {
                    trace.mark(ApprovalState::AutoApproved);
                }
            }
        }

        let asking = Asking {
            request: &request,
            policy: &in_force,
            opening: &mut opening,
            held,
            parks: true,
        };
        let (cleared, approval) = match self.settle(&admitted, &mut trace, verdict, asking, &live).await {
            Settled::Cleared(cleared, approval) => (cleared, approval),
            Settled::Refused(refusal) => return self.refuse(&admitted, trace, &audit, &live, refusal).await,
            Settled::Unrecorded(error) => return self.unwritten(&admitted, &live, &error),
            Settled::Parked => return,
            Settled::Joined(other) => return self.follow(&admitted, &live, &request, &other).await,
            Settled::Elsewhere => return self.follow_elsewhere(&admitted, &live).await,
        };

        if let CommandTool::Declared(tool) = &request.tool
            && let Err(refusal) = tool.usage.begin(tool.name(), self.ports.clock.now())
        {
            let given = approval.as_deref().filter(|approval| !approval.automatic);
            self.unused(&admitted, given, &refusal.message).await;
            return self.refuse(&admitted, trace, &audit, &live, refusal).await;
        }
        // Given up while it waits, a command does not begin.
        let _turns = tokio::select! {
            biased;
            () = live.cancelled() => {
                let refusal = Refusal::new(ErrorCode::Cancelled, "the command was cancelled before it began");
                let given = approval.as_deref().filter(|approval| !approval.automatic);
                self.unused(&admitted, given, &refusal.message).await;
                return self.refuse(&admitted, trace, &audit, &live, refusal).await;
            }
            turns = self.turns_for(&request) => turns,
        };
        let asks_again =
            in_force.policy.approval.mode == Mode::OnFailure && !in_force.policy.context(admitted.caller()).is_talk();
        let plan = asks_again.then(|| cleared.plan().clone());
        let run = self.run(&admitted, cleared, &mut trace, opening, approval, &live);
        let mut ended = self.heeding(&admitted, &live, run).await;
        if let How::NotRecorded(RecordError::ApprovalMoved | RecordError::RequestIdTaken(_)) = ended.how {
            return self.follow_elsewhere(&admitted, &live).await;
        }
        if let Some(plan) = plan
            && let Some(question) = again::question(&in_force.policy, &plan, &ended.how, &live.text())
        {
            let asking = Asking {
                request: &request,
                policy: &in_force,
                opening: &mut None,
                held: None,
                parks: false,
            };
            if let Settled::Cleared(cleared, approval) = self.ask(&admitted, &mut trace, question, asking, &live).await
            {
                live.restart();
                let run = self.run(&admitted, cleared, &mut trace, None, approval, &live);
                ended = self.heeding(&admitted, &live, run).await;
            }
        }
        self.close(&admitted, trace, &audit, &live, ended).await;
    }

    /// The right to run: one turn of this process, and one of its tool where that has only so many.
    async fn turns_for(
        &self,
        request: &CommandRequest,
    ) -> (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>) {
        let own = match &request.tool {
            CommandTool::Declared(tool) => tool.usage.turn().await,
            CommandTool::ExecuteCommand | CommandTool::ExecuteProcess | CommandTool::RunCommand => None,
        };
        (own, self.turns.clone().acquire_owned().await.ok())
    }

    /// What policy says of a request.
    fn verdict(&self, admitted: &Admitted, request: &CommandRequest, in_force: &InForce) -> Verdict {
        let context = in_force.policy.context(admitted.caller());
        let verdict = tracing::info_span!("policy")
            .in_scope(|| decide::decide(&in_force.policy, &context, request, &in_force.outlook.surroundings()));
        self.verdicts.count(verdict.word());
        verdict
    }

    /// Runs what is cleared; nothing starts before the record of it is durable. An approval is used up in
    /// the same transaction, so it lets an act go once.
    async fn run(
        self: &Arc<Self>,
        admitted: &Admitted,
        cleared: Box<Cleared>,
        trace: &mut Trace,
        opening: Option<OpenCommand>,
        approval: Option<Box<ApprovalRequest>>,
        live: &Arc<Live>,
    ) -> Ended {
        trace.step(Step::Dispatch, self.dispatched(admitted, &cleared, live));
        let mut change = Change {
            events: trace.take(),
            open: opening,
            ..Change::default()
        };
        match &approval {
            // Let go by the whitelist: it is kept beside the command that it opens.
            Some(approval) if approval.automatic => change.approvals.push(ApprovalChange {
                approval: ApprovalRequest::clone(approval),
                from: None,
            }),
            Some(approval) => {
                let applied = self.ports.board.applying(approval, &admitted.caller().actor);
                change.events.extend(applied.events);
                change.approvals.push(applied.change);
                live.begin();
            }
            None => {}
        }
        let approval = approval.filter(|approval| !approval.automatic);
        let let_go = Arc::new(AtomicBool::new(false));
        let (gateway, opened, was_asked) = (self.clone(), let_go.clone(), approval.is_some());
        let gate = Gate::new(Box::pin(async move {
            let receipt = gateway.commit(change).await?;
            opened.store(true, Ordering::Relaxed);
            if was_asked {
                gateway.ports.board.announce();
            }
            Ok(Recorded::by(&receipt))
        }));
        let running = self.ports.executor.run(*cleared, gate, live.clone());
        let ended = running.instrument(tracing::info_span!("execution")).await;
        match (&ended.how, &approval) {
            (_, Some(_)) if let_go.load(Ordering::Relaxed) => {}
            // What could not be recorded was not used; the same call may try again.
            (How::NotRecorded(_), _) | (_, None) => {}
            (_, Some(_)) => {
                self.unused(admitted, approval.as_deref(), "the act could not begin")
                    .await;
            }
        }
        ended
    }

    /// Writes to the record, on this very thread where no other call could be kept waiting by it.
    fn commit(&self, change: Change) -> Pending<Result<Committed, RecordError>> {
        let span = tracing::info_span!("record");
        let written = span.in_scope(|| {
            if self.commands.has_one_at_most() {
                self.ports.record.commit_alone(change)
            } else {
                self.ports.record.commit(change)
            }
        });
        if span.is_disabled() {
            return written;
        }
        Box::pin(written.instrument(span))
    }

    /// Once a client has looked at the tools it will soon call one: what a likely call needs is made
    /// ready meanwhile.
    fn warm(self: &Arc<Self>) {
        if self.is_warm.swap(true, Ordering::Relaxed) {
            return;
        }
        let in_force = self.in_force();
        let likely = in_force
            .policy
            .command
            .allowlist
            .names()
            .first()
            .map_or("ls", String::as_str);
        let request = CommandRequest::of_program(likely);
        let context = Context::of_role(Role::Agent);
        let verdict = decide::decide(&in_force.policy, &context, &request, &in_force.outlook.surroundings());
        if let Some(plan) = verdict.plan() {
            tokio::spawn(self.ports.executor.warm(plan));
        }
    }

    fn in_force(&self) -> Arc<InForce> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn trace(&self, admitted: &Admitted, correlation_id: CorrelationId) -> Trace {
        Trace::new(
            correlation_id,
            admitted.caller().actor.clone(),
            self.ports.ids.clone(),
            self.ports.clock.clone(),
        )
    }

    fn audit_record(
        &self,
        admitted: &Admitted,
        request: &CommandRequest,
        live: &Live,
        verdict: &Verdict,
        in_force: &InForce,
    ) -> CommandAuditRecord {
        let programs: Vec<String> = verdict.plan().map(Plan::program_names).unwrap_or_default();
        let cwd = verdict.plan().map(|plan| plan.place.cwd.path.to_string_lossy());
        let mut record = CommandAuditRecord::of(
            live.request_id.clone(),
            request,
            &programs,
            cwd.as_deref(),
            in_force.snapshot_for(admitted.caller()),
            live.redactor(&self.ports.redactor),
        );
        if let Verdict::Deny(denial) = verdict {
            record.denied_by = Some(denial.rule.clone());
        }
        record
    }
}

impl Service for Arc<Gateway> {
    fn tools(&self, caller: &Caller) -> Arc<[ToolDefinition]> {
        self.warm();
        let in_force = self.in_force();
        let listed = || catalog::listed(&in_force.policy, self.toolboxes(), caller).into();
        let known = in_force.tools.iter().find(|(role, _)| *role == caller.role);
        match known.filter(|_| caller.run.is_none() && caller.job.is_none()) {
            Some((_, tools)) => Arc::clone(tools.get_or_init(listed)),
            None => listed(),
        }
    }

    fn tool_changes(&self) -> watch::Receiver<u64> {
        self.lists.subscribe()
    }

    fn job_news(&self) -> Option<JobListener> {
        self.news.get().map(|news| news.listen())
    }

    fn verdicts(&self) -> Vec<(&'static str, u64)> {
        self.verdicts.counted()
    }

    fn policy(&self, caller: &Caller) -> Value {
        let tools = self.tools(caller);
        self.in_force().policy.shown_to(caller, &tools)
    }

    fn call(&self, caller: Caller, call: ToolCall) -> Pending<Result<Answer, Refusal>> {
        Box::pin(self.clone().handle(caller, call))
    }

    fn recall(
        &self,
        caller: Caller,
        command: RequestId,
        tool: Option<String>,
        patience: Duration,
    ) -> Pending<Result<Answer, Refusal>> {
        let gateway = self.clone();
        Box::pin(async move {
            let admitted = session::admit(caller)?;
            let answer = Gateway::recall(&gateway, &admitted, command, patience).await;
            let tool = tool.and_then(|name| gateway.in_force().policy.tools.command_tool(&name));
            Ok(match tool {
                Some(tool) => tool.presented(answer),
                None => answer,
            })
        })
    }

    fn cancel_command(&self, caller: Caller, command: RequestId) -> Pending<()> {
        let gateway = self.clone();
        Box::pin(async move {
            if let Ok(admitted) = session::admit(caller) {
                Gateway::cancel_one(&gateway, &admitted, &command).await;
            }
        })
    }

    fn refused(&self, envelope: RefusedEnvelope) -> Pending<()> {
        let gateway = self.clone();
        Box::pin(async move { gateway.record_refused(envelope).await })
    }

    fn shutdown(&self) -> Pending<()> {
        let gateway = self.clone();
        Box::pin(async move {
            let running = gateway.commands.close();
            running.iter().for_each(|live| live.cancel());
            for live in running {
                live.ended().await;
            }
            gateway.acts_ended().await;
        })
    }
}

impl Explains for Arc<Gateway> {
    fn explain(&self, call: &Supposed) -> Explained {
        let in_force = self.in_force();
        explain::explain(&in_force.policy, call, &in_force.outlook.surroundings())
    }

    fn effective(&self) -> Value {
        let in_force = self.in_force();
        let content = self.ports.redactor.redact_json(&in_force.policy.content());
        // In the form that the digest is made of.
        let content = serde_json::from_str(&chain::canonical(&content)).unwrap_or(content);
        json!({"digest": in_force.digest, "content": content})
    }
}

/// What a call that never ran says.
fn not_run(ended: &Ended) -> bool {
    matches!(ended.how, How::NotStarted(_) | How::NotRecorded(_))
}
