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
mod answering;
mod asking;
mod assigning;
mod closing;
mod consulting;
mod dismissing;
mod envelopes;
mod in_force;
mod invocations;
mod joining;
mod keeping;
mod looking;
mod opening;
mod performing;
mod repeating;
mod running;
mod serving;
mod submitting;
mod unclosed;
mod verdicts;
mod waiting;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tracing::{Instrument as _, Span};

use crate::approval::board::Board;
use crate::approval::request::ApprovalRequest;
use crate::audit::event::ApprovalState;
use crate::audit::keyed::DigestKey;
use crate::audit::redact::Redactor;
use crate::audit::trace::Trace;
use crate::audit::{Record, RecordError};
use crate::call::Step;
use crate::catalog::{self, Resolved, Tool};
use crate::clock::Clock;
use crate::commands::Commands;
use crate::delegation::desk::DelegationDesk;
use crate::error::Refusal;
use crate::execution::live::Live;
use crate::execution::{Executor, How};
use crate::ids::{CorrelationId, IdSource};
use crate::job::news::JobNews;
use crate::limits;
use crate::policy::again;
use crate::policy::decide::{self, Verdict};
use crate::policy::effective::{EffectivePolicy, Mode};
use crate::service::{Answer, ToolCall};
use crate::session::credential::Credentials;
use crate::session::{self, Admitted, Caller};
use crate::tools::acts::Toolbox;
use crate::tools::exec::request::CommandRequest;
pub use adopting::{Adopted, Outlook};
use answering::Rooms;
use in_force::InForce;
use unclosed::Unclosed;
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
    /// Room for looking after records of which nobody knows whether they were written.
    unsure: Arc<Semaphore>,
    /// Room for long answers.
    rooms: Rooms,
    /// Ends that wait to be written.
    unclosed: Arc<Unclosed>,
    /// Turns at taking secrets out of long outputs.
    redacting: Semaphore,
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
    /// The tokens that callers come with, where they do.
    credentials: OnceLock<Arc<dyn Credentials>>,
    verdicts: Verdicts,
}

/// What the binary joins to the spine.
pub struct Ports {
    pub outlook: Outlook,
    pub board: Arc<Board>,
    pub executor: Arc<dyn Executor>,
    pub record: Arc<dyn Record>,
    pub redactor: Redactor,
    /// Makes what calls are known again by.
    pub digests: DigestKey,
    pub clock: Clock,
    pub ids: IdSource,
}

/// How the gateway answers.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub answer_within: Duration,
    pub output_limit: usize,
    /// How long acts under way may go on when the server stops, and ends be tried to be written.
    pub acts_end_within: Duration,
}

/// What policy says of a request, and the question that the same request asked before.
struct Considered {
    in_force: Arc<InForce>,
    verdict: Verdict,
    /// It waits in the store: the command goes on where it stood.
    held: Option<ApprovalRequest>,
}

impl Gateway {
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
        let _settles = self.settling(&admitted, &live);
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
            let open = self.opening(&admitted, &live, &trace, &audit);
            trace.step(Step::Receive, self.received(&admitted, &request, &live, Some(&open)));
            opening = Some(open);
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

        let _turns = match self.turns_for(&request, &live).await {
            Ok(turns) => turns,
            Err(refusal) => {
                let given = approval.as_deref().filter(|approval| !approval.automatic);
                self.unused(&admitted, given, &refusal.message).await;
                return self.refuse(&admitted, trace, &audit, &live, refusal).await;
            }
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
            && let Some(second) = self
                .run_again(&admitted, &request, &in_force, &mut trace, question, &live)
                .await
        {
            ended = second;
        }
        self.close(&admitted, trace, &audit, &live, ended).await;
    }

    /// What policy says of a request.
    fn verdict(&self, admitted: &Admitted, request: &CommandRequest, in_force: &InForce) -> Verdict {
        let context = in_force.policy.context(admitted.caller());
        let verdict = tracing::info_span!("policy")
            .in_scope(|| decide::decide(&in_force.policy, &context, request, &in_force.outlook.surroundings()));
        self.verdicts.count(verdict.word());
        verdict
    }
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
            unsure: Arc::new(Semaphore::new(limits::UNSURE_RECORDS_MAX)),
            rooms: Rooms::new(),
            unclosed: Arc::default(),
            redacting: Semaphore::new(limits::REDACTING_THREADS_MAX),
            is_warm: AtomicBool::new(false),
            lookups: tokio::sync::RwLock::new(()),
            acts: Arc::default(),
            toolboxes: OnceLock::new(),
            stopping: watch::Sender::new(false),
            delegations: OnceLock::new(),
            lists: watch::Sender::new(0),
            news: OnceLock::new(),
            credentials: OnceLock::new(),
            verdicts: Verdicts::default(),
        })
    }

    /// Brings the news of jobs, once.
    pub fn tell_of_jobs(&self, news: Arc<JobNews>) {
        let first = self.news.set(news).is_ok();
        assert!(first, "a gateway hears of jobs from one place");
    }

    /// Brings the tokens that callers come with, once.
    pub fn recognise(&self, credentials: Arc<dyn Credentials>) {
        let first = self.credentials.set(credentials).is_ok();
        assert!(first, "a gateway knows one set of tokens");
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

    /// Whether commands can be run at all; `Err` says in one sentence what is missing.
    pub fn can_run(&self) -> Result<(), String> {
        self.ports.executor.ready()
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
}
