//! A call to one of the command tools: what it becomes, and how long its caller waits.

use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use serde_json::json;
use tracing::Instrument as _;

use super::answering::fitted;
use super::looking::{Earlier, conflict};
use super::opening::unrecorded;
use super::{Considered, Gateway};
use crate::approval::binding;
use crate::approval::request::ApprovalRequest;
use crate::audit::chain;
use crate::clock::Timestamp;
use crate::commands::NotEntered;
use crate::error::{ErrorCode, Refusal, Status};
use crate::execution::live::Live;
use crate::ids::{ApprovalId, RequestId};
use crate::limits;
use crate::policy::decide::Verdict;
use crate::policy::effective::{Layer, Mode};
use crate::service::{Answer, ToolCall};
use crate::session::{Admitted, Caller, Transport};
use crate::tools::exec::request::{self, CommandRequest, CommandTool};
use crate::tools::exec::result::CommandResult;

/// Time between two looks whether a person is asked by now.
const LOOK: Duration = Duration::from_millis(100);
/// How often a request is tried again that the record calls unrecorded.
const ATTEMPTS_MAX: u8 = 8;

/// A call to one of the command tools, as its caller made it.
struct Submitted {
    admitted: Admitted,
    call: ToolCall,
    started: Timestamp,
}

impl Gateway {
    /// A call to one of the command tools, answered as its tool promises.
    pub(super) async fn submit(
        self: Arc<Self>,
        admitted: Admitted,
        tool: CommandTool,
        call: ToolCall,
        started: Timestamp,
    ) -> Answer {
        let asked = Submitted {
            admitted,
            call,
            started,
        };
        let mut attempt = 0;
        let answer = loop {
            let answer = self.submit_command(&asked, &tool, attempt).await;
            attempt += 1;
            if !is_worth_another(&answer, &asked.call) || attempt > ATTEMPTS_MAX {
                break answer;
            }
        };
        tool.presented(answer)
    }

    async fn submit_command(self: &Arc<Self>, asked: &Submitted, tool: &CommandTool, attempt: u8) -> Answer {
        let Submitted { admitted, call, .. } = asked;
        let mut request = match request::read(tool.clone(), &call.arguments) {
            Ok(request) => request,
            Err(refusal) => return self.refuse_unreadable(admitted, tool, call, refusal).await,
        };
        request.is_fed = request.input.is_none() && call.progress.as_ref().is_some_and(|progress| progress.feeds());
        let live = self.live_for(asked, &request, attempt);
        if request.is_fed {
            // Two that read from somewhere are never the same call, and an answer to one is none to the other.
            request.digest = chain::digest(&json!([request.digest, live.request_id.as_str()]));
        }
        let looking = self.lookups.read().await;
        // Only an id that the caller chose can have been used before.
        let mut waits = None;
        if request.request_id.is_some() {
            match self.earlier(admitted, &request, &live).await {
                Some(Earlier::Repeated(result)) => {
                    drop(looking);
                    let room = self.room_for(result.text_bytes()).await;
                    return self.answered(asked, fitted(*result, room)).await;
                }
                Some(Earlier::Refused(answer)) => return answer,
                Some(Earlier::Waits(question)) => waits = Some(*question),
                None => {}
            }
        }
        let (considered, live) = match self.consider(admitted, &request, call, live, waits).await {
            Ok(considered) => considered,
            Err(Considering::Join(known)) => {
                drop(looking);
                return self.join(asked, &known).await;
            }
            Err(Considering::Refused(live, refusal)) => {
                return self.refuse_entered(admitted, &request, &live, refusal).await;
            }
        };
        // A later round goes on with the question it began with. Once that is settled by another call, this
        // one hears what came of it instead of asking again.
        if let Some(resumed) = call.user.as_ref().and_then(|user| user.resumes())
            && considered.held.as_ref().is_none_or(|held| held.id != resumed.approval)
            && self.went_on(admitted, &resumed).await
        {
            drop(looking);
            let patience = self.settings.answer_within;
            let answer = self.recall(admitted, resumed.command, patience).await;
            return self.answered(asked, answer).await;
        }
        let entered = self.commands.enter(&admitted.caller().credential, &live);
        drop(looking);
        let refusal = match entered {
            Ok(()) => return self.attend(asked, request, &live, considered).await,
            Err(NotEntered::Known(known)) if known.digest == live.digest => return self.join(asked, &known).await,
            Err(NotEntered::Known(_)) => conflict(&live.request_id),
            Err(NotEntered::Full) => full(),
            Err(NotEntered::Closing) => Refusal::new(ErrorCode::Cancelled, "the server is stopping"),
        };
        self.refuse_entered(admitted, &request, &live, refusal).await
    }

    /// A command that nothing is known of yet.
    fn live_for(&self, asked: &Submitted, request: &CommandRequest, attempt: u8) -> Arc<Live> {
        let call = &asked.call;
        let named = request.request_id.clone().or_else(|| call.origin.request_id(attempt));
        let live = Live::new(
            named.unwrap_or_else(|| self.ports.ids.request()),
            self.known_by(request),
            asked.started,
            self.settings.output_limit,
            call.progress.clone(),
            call.origin.clone(),
            asked.admitted.caller().correlation(&self.ports.ids),
        );
        Arc::new(live.redacted_by(self.redactor_of(call)))
    }

    /// Lets a command take its way, and waits for it.
    async fn attend(
        self: &Arc<Self>,
        asked: &Submitted,
        request: CommandRequest,
        live: &Arc<Live>,
        considered: Considered,
    ) -> Answer {
        let Submitted { admitted, call, .. } = asked;
        let is_repeat = considered.held.is_some();
        let conducted = self
            .clone()
            .conduct(admitted.clone(), request, live.clone(), considered);
        tokio::spawn(conducted.in_current_span());
        let (answer, reached) = self.wait(admitted.caller(), live, call).await;
        let is_anothers = answer.command.as_ref() != Some(&live.request_id);
        match reached {
            // The command's own events tell of the call that first asked for it, not of this one.
            Reached::End | Reached::Patience | Reached::Question if is_repeat || is_anothers => {
                return self.answered(asked, answer).await;
            }
            Reached::End if answer.structured["status"] != Status::Pending.as_str() => {}
            Reached::End | Reached::Patience | Reached::Question => {
                self.answered_early(admitted.caller(), live, call, &answer).await;
            }
        }
        answer
    }

    /// Waits for a command that another call asked for.
    async fn join(&self, asked: &Submitted, known: &Arc<Live>) -> Answer {
        let (answer, _) = self.wait(asked.admitted.caller(), known, &asked.call).await;
        self.answered(asked, answer).await
    }

    /// The answer to a call that leaves no command of its own; the record has the call.
    async fn answered(&self, asked: &Submitted, answer: Answer) -> Answer {
        self.called(asked.admitted.caller(), &asked.call, asked.started, answer)
            .await
    }

    /// What policy says of a request, and what waits for it already: a command of this process, or one in
    /// the store, whose place `live` then takes.
    async fn consider(
        &self,
        admitted: &Admitted,
        request: &CommandRequest,
        call: &ToolCall,
        live: Arc<Live>,
        waits: Option<ApprovalRequest>,
    ) -> Result<(Considered, Arc<Live>), Considering> {
        let owner = &admitted.caller().credential;
        let in_force = self.in_force();
        // Nobody is asked about what could not begin.
        if let CommandTool::Declared(tool) = &request.tool
            && let Err(refusal) = tool.usage.has_room(tool.name(), self.ports.clock.now())
        {
            return Err(Considering::Refused(live, refusal));
        }
        let verdict = self.verdict(admitted, request, &in_force);
        let held = match &verdict {
            Verdict::Ask(question) => {
                let binding = binding::bind(&self.ports.digests, request, question.plan(), owner, &in_force.digest);
                match self.ports.board.held(owner, &binding.digest).await {
                    Ok(held) => held,
                    Err(error) => return Err(Considering::Refused(live, unrecorded(&error))),
                }
            }
            // It runs at once, and may ask afterwards whether to run again; then it is not begun anew.
            Verdict::Allow(_) if in_force.policy.approval.mode == Mode::OnFailure => {
                match self.commands.waiting(owner, &live.digest) {
                    Some(known) => return Err(Considering::Join(known)),
                    None => None,
                }
            }
            Verdict::Allow(_) | Verdict::Deny(_) => None,
        };
        if let Some(waits) = waits
            && held.as_ref().is_none_or(|held| held.id != waits.id)
        {
            let refusal = asked_otherwise(&live.request_id, &waits.id);
            return Err(Considering::Refused(live, refusal));
        }
        let live = match &held {
            Some(held) => self.live_of(held, request, call.progress.clone()),
            None => live,
        };
        let considered = Considered {
            in_force,
            verdict,
            held,
        };
        Ok((considered, live))
    }

    /// Waits for the end, as long as a client will: without a limit when a running command is being
    /// streamed to it, else until it must be told to look again later.
    async fn wait(&self, caller: &Caller, live: &Arc<Live>, call: &ToolCall) -> (Answer, Reached) {
        let mut attending = Attending { live, stays: false };
        let mut cancel = call.cancel.clone();
        let (answer, reached) = tokio::select! {
            end = live.ended() => (self.answer_of_end(live, &end).await, Reached::End),
            () = self.patience(live, call) => (self.answer_of_running(live).await, Reached::Patience),
            () = self.stops_at_question(live) => (self.answer_of_running(live).await, Reached::Patience),
            () = self.consult(caller, live, call) => (self.answer_of_running(live).await, Reached::Question),
            () = cancel.cancelled() => {
                live.cancel();
                let end = live.ended().await;
                (self.answer_of_end(live, &end).await, Reached::End)
            }
        };
        // A client that was promised an answer within a time goes on watching: for it the question stays
        // attended, and the command begins once somebody says yes. Over REST it sends the same again.
        let is_watched = call.answer_within.is_some() && caller.transport != Transport::Rest;
        let watches = reached == Reached::Patience && is_watched && !self.commands.is_crowded();
        attending.stays = watches && live.question().is_some();
        // One that joined another has that one's result, under its name.
        let named = answer.structured["request_id"].as_str().map(RequestId::trusted);
        let answer = Answer {
            command: named.or_else(|| Some(live.request_id.clone())),
            ..answer
        };
        (answer, reached)
    }

    /// Resolves when the client must hear something; with a progress token it hears signs of life until then.
    async fn patience(&self, live: &Live, call: &ToolCall) {
        let began = Instant::now();
        let within = self.settings.answer_within;
        let within = call.answer_within.map_or(within, |sooner| sooner.min(within));
        loop {
            let left = within.saturating_sub(began.elapsed());
            let Some(progress) = &call.progress else {
                return tokio::time::sleep(left).await;
            };
            if left.is_zero() && live.question().is_some() {
                return;
            }
            let pause = if left.is_zero() {
                limits::PROGRESS_EVERY
            } else {
                limits::PROGRESS_EVERY.min(left)
            };
            tokio::time::sleep(pause).await;
            match live.question() {
                Some(question) => progress.report(&format!("waiting for approval {question}")),
                None => progress.report(&format!("running for {} s", live.duration_ms() / 1_000)),
            }
        }
    }

    /// Resolves when this process is about to stop while a person is asked about the command. One that runs has
    /// until the end of the grace.
    async fn stops_at_question(&self, live: &Live) {
        self.stops().await;
        while live.question().is_none() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What is to be said of a command that has not ended.
    pub(super) fn running(&self, live: &Live) -> CommandResult {
        if let Some(question) = live.question() {
            return self.pending(live, &question);
        }
        let (stdout, stderr) = live.streams();
        CommandResult {
            request_id: live.request_id.clone(),
            status: Status::Running,
            exit_code: None,
            stdout,
            stderr,
            error: None,
            duration_ms: live.duration_ms(),
            started_at: live.started_at,
            finished_at: None,
            audit_id: None,
            sandbox: live.layers().into_iter().map(Layer::as_str).collect(),
            approval_id: None,
            page: None,
        }
    }
}

fn full() -> Refusal {
    let message = format!(
        "{} calls are already in flight; try again when some have ended",
        limits::CALLS_IN_FLIGHT_MAX
    );
    Refusal::new(ErrorCode::QueueFull, message)
}

/// Whether the record tells of this request that nothing was run because nothing could be written. It can now.
fn is_worth_another(answer: &Answer, call: &ToolCall) -> bool {
    let facts = &answer.structured;
    let was_unrecorded = facts["error_code"] == ErrorCode::AuditUnavailable.name();
    was_unrecorded && facts["audit_id"].is_string() && call.origin.request_id(0).is_some()
}

/// The same words, asked about under other circumstances: what is answered there does not count here.
pub(super) fn asked_otherwise(request_id: &RequestId, question: &ApprovalId) -> Refusal {
    let message = format!(
        "request id `{request_id}` belongs to a call that was asked about under another policy or in another place \
         (approval `{question}`), and that answer does not count here; cancel it, or choose another id"
    );
    Refusal::new(ErrorCode::Conflict, message)
}

/// A caller who waits for a command. It goes when it was answered, or when its transport drops the call: one that
/// counted for ever would keep the command's place, and its question from waiting in the store.
struct Attending<'a> {
    live: &'a Live,
    stays: bool,
}

impl Drop for Attending<'_> {
    fn drop(&mut self) {
        if !self.stays {
            self.live.leave();
        }
    }
}

/// How far waiting for a command came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    End,
    /// The client must hear something; the command goes on.
    Patience,
    /// The client's user is asked by the answer.
    Question,
}

/// Why a request does not become a command of its own.
enum Considering {
    /// The same is here already.
    Join(Arc<Live>),
    Refused(Arc<Live>, Refusal),
}
