//! A cleared command on its way through the executor, and the record that lets it begin.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument as _;

use super::Gateway;
use super::in_force::InForce;
use super::waiting::{Asking, Settled};
use crate::approval::Cleared;
use crate::approval::request::{ApprovalChange, ApprovalRequest};
use crate::audit::trace::Trace;
use crate::audit::{Change, Committed, OpenCommand, Pending, RecordError, Recorded};
use crate::call::Step;
use crate::error::{ErrorCode, Refusal};
use crate::execution::live::Live;
use crate::execution::{Ended, Gate, How};
use crate::policy::decide::Question;
use crate::session::Admitted;
use crate::tools::exec::request::{CommandRequest, CommandTool};

/// Held while a command runs: its tool's turn, where that has only so many, and this process's.
pub(super) type Turns = (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>);

impl Gateway {
    /// The right to run: one turn of this process, and one of its tool where that has only so many. A use of the tool
    /// counts once it has its turn, so that one which is given up while it waits takes nothing from the others.
    pub(super) async fn turns_for(&self, request: &CommandRequest, live: &Live) -> Result<Turns, Refusal> {
        let waiting = async {
            let own = match &request.tool {
                CommandTool::Declared(tool) => tool.usage.turn().await,
                CommandTool::ExecuteCommand | CommandTool::ExecuteProcess | CommandTool::RunCommand => None,
            };
            (own, self.turns.clone().acquire_owned().await.ok())
        };
        // Given up while it waits, a command does not begin.
        let turns = tokio::select! {
            biased;
            () = live.cancelled() => {
                let message = "the command was cancelled before it began";
                return Err(Refusal::new(ErrorCode::Cancelled, message));
            }
            turns = waiting => turns,
        };
        if let CommandTool::Declared(tool) = &request.tool {
            tool.usage.begin(tool.name(), self.ports.clock.now())?;
        }
        Ok(turns)
    }

    /// Runs what is cleared; nothing starts before the record of it is durable. An approval is used up in
    /// the same transaction, so it lets an act go once.
    pub(super) async fn run(
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
        let stepped = change.events.len();
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
        let unwritten = Arc::new(Mutex::new(Some(change)));
        let (gateway, opened, was_asked) = (self.clone(), let_go.clone(), approval.is_some());
        let written = unwritten.clone();
        let gate = Gate::new(Box::pin(async move {
            let change = written.lock().unwrap_or_else(PoisonError::into_inner).take();
            let receipt = gateway.commit_opening(change.unwrap_or_default()).await?;
            opened.store(true, Ordering::Relaxed);
            if was_asked {
                gateway.ports.board.announce();
            }
            Ok(Recorded::by(&receipt))
        }));
        let running = self.ports.executor.run(*cleared, gate, live.clone());
        let ended = running.instrument(tracing::info_span!("execution")).await;
        // One that is refused before it could be opened has a beginning all the same, which is told with its end.
        if let Some(change) = unwritten.lock().unwrap_or_else(PoisonError::into_inner).take() {
            trace.put_back(change.events.into_iter().take(stepped).collect());
        }
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

    /// Asks whether a command that its confinement seems to have made fail is to run without it, and lets it; none
    /// where the answer is no.
    pub(super) async fn run_again(
        self: &Arc<Self>,
        admitted: &Admitted,
        request: &CommandRequest,
        in_force: &InForce,
        trace: &mut Trace,
        question: Question,
        live: &Arc<Live>,
    ) -> Option<Ended> {
        let asking = Asking {
            request,
            policy: in_force,
            opening: &mut None,
            held: None,
            parks: false,
        };
        let Settled::Cleared(cleared, approval) = self.ask(admitted, trace, question, asking, live).await else {
            return None;
        };
        live.restart();
        let run = self.run(admitted, cleared, trace, None, approval, live);
        Some(self.heeding(admitted, live, run).await)
    }

    /// Writes to the record, on this very thread where no other call could be kept waiting by it.
    pub(super) fn commit(&self, change: Change) -> Pending<Result<Committed, RecordError>> {
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
}
