//! Following jobs: each runs in a task of its own under a key of ours, and its end is told to whoever
//! waits for it. However a task ends, its call settles.

use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use countersign_gateway::error::{ErrorCode, Refusal, Status};
use countersign_gateway::ids::CorrelationId;
use countersign_gateway::service::{Answer, Cancel, Origin, Room};
use serde_json::Value;

use super::call::{CallKey, Recipient, Running};
use super::client::Client;
use super::connection::{Connection, Shared, State};
use super::conversation::Conversation;
use super::dispatch::too_many;
use super::host::Host;
use super::job::{Job, Outcome, Said, Talk};
use super::jsonrpc::{Id, Request};
use super::memory::{Asked, Kept};
use super::outlet::{Outgoing, Outlet, Reply};
use super::refusing::Envelope;
use super::revision::Era;
use super::tools;
use super::wire::{self, Occasion};
use crate::limits::ANSWERS_AWAITED_MAX;
use crate::logged::logged;

/// A job to begin.
pub(super) struct Beginning {
    pub(super) request: Request,
    /// What the session remembers it by; none for a request without a session.
    pub(super) asked: Option<Asked>,
    pub(super) client: Client,
    pub(super) job: Job,
}

impl Connection {
    /// Begins a job. It goes on in a task of its own and settles by its key.
    pub(super) fn start(
        &self,
        mut state: MutexGuard<'_, State>,
        beginning: Beginning,
        reply: Reply,
        outlet: &Arc<dyn Outlet>,
    ) {
        let Beginning {
            request,
            asked,
            client,
            job,
        } = beginning;
        let era = client.era;
        let token = match tools::progress_token(&request.params) {
            Ok(_) if state.calls.awaited() >= ANSWERS_AWAITED_MAX => Err(too_many()),
            token => token,
        };
        let token = match token {
            Ok(token) => token,
            Err(refusal) => {
                drop(state);
                return self.refuse(Envelope::of(&request), Some(era), refusal, reply);
            }
        };
        let shared = &self.0;
        let origin = shared.origin(&request.id, asked.as_ref(), state.memory.reuses_ids());
        let (handle, cancel) = Cancel::new();
        let conversation = Conversation::new(client, token, &shared.questions, outlet);
        let conversation = Arc::new(conversation.beside(state.standing.clone()));
        let occasion = Occasion::First;
        let open = Open::count(shared, &mut state);
        let called = Called::of(&shared.host, &request);
        let key = state.calls.start(Running {
            id: request.id,
            called,
            asked: asked.clone(),
            era,
            recipients: vec![Recipient { reply, occasion }],
            cancel: handle,
            conversation: Arc::clone(&conversation),
        });
        if let Some(asked) = &asked {
            state.memory.begin(asked, key);
        }
        drop(state);
        let talk = Talk {
            host: Arc::clone(&shared.host),
            caller: shared.caller.clone(),
            conversation,
            cancel,
            origin,
        };
        let followed = Followed {
            open,
            key,
            outcome: None,
        };
        tokio::spawn(async move {
            let outcome = job(talk).await;
            followed.end(outcome);
        });
    }
}

/// A tool call as the metrics see it.
pub(crate) struct Called {
    tool: String,
    began: Instant,
}

impl Called {
    fn of(host: &Host, request: &Request) -> Option<Self> {
        let name = request.params.get("name").filter(|_| request.method == "tools/call");
        let tool = name.and_then(Value::as_str)?.to_owned();
        host.metrics.call_began();
        Some(Self {
            tool,
            began: Instant::now(),
        })
    }

    fn ended(&self, host: &Host, outcome: &Outcome) {
        let ended = match outcome {
            Ok(Said::Answer(answer)) => Ok(host.metrics.answered(answer)),
            Ok(Said::Result(result)) if result["resultType"] == "input_required" => Ok(Status::Pending),
            Ok(Said::Result(_)) => Ok(Status::Ok),
            Err(refusal) => Err(refusal.code),
        };
        host.metrics.call_ended(&self.tool, ended, self.began.elapsed());
    }
}

/// Counts as open until it is dropped.
pub(super) struct Open(Arc<Shared>);

impl Open {
    pub(super) fn count(shared: &Arc<Shared>, state: &mut State) -> Self {
        state.open += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open -= 1;
        if state.open == 0 {
            self.0.settled.notify_waiters();
        }
    }
}

/// A call in its task. However the task ends, also by a panic, the call settles.
struct Followed {
    open: Open,
    key: CallKey,
    outcome: Option<Outcome>,
}

impl Followed {
    fn end(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let outcome = self.outcome.take().unwrap_or_else(|| {
            tracing::error!("a call ended without an outcome");
            Err(Refusal::new(
                ErrorCode::InternalError,
                "the call ended without an answer; whether it acted is in the record",
            ))
        });
        self.open.0.end(self.key, outcome);
    }
}

impl Shared {
    fn end(&self, key: CallKey, mut outcome: Outcome) {
        // The session may keep the outcome for longer than it takes to tell it.
        let room = room_of(&mut outcome);
        let outcome = Arc::new(outcome);
        let mut state = self.state();
        let Some(running) = state.calls.end(key) else {
            return;
        };
        if let Some(called) = &running.called {
            called.ended(&self.host, &outcome);
        }
        if let Some(asked) = &running.asked {
            let kept = self.kept(&outcome);
            state.memory.end(asked, key, kept);
        }
        drop(state);
        running.conversation.close();
        for Recipient { reply, occasion } in running.recipients {
            let message = self.render(&running.id, running.era, &outcome, occasion);
            reply.send(message.in_room(room.clone()));
        }
    }

    /// What the session keeps of an ended call. A session that lasts holds no results: the record does.
    fn kept(&self, outcome: &Arc<Outcome>) -> Kept {
        match &**outcome {
            // The client is told to repeat the call, which may well be under the same id.
            Ok(Said::Answer(answer)) if answer.structured["status"] == Status::Pending.as_str() => Kept::Nothing,
            // Nothing was done for want of a record, and the client is told to try again.
            Ok(Said::Answer(answer)) if is_to_try_again_for_want_of_a_record(answer) => Kept::Nothing,
            Ok(Said::Answer(answer)) if self.link.lasts() => {
                answer.command.clone().map_or(Kept::Nothing, Kept::InRecord)
            }
            Ok(Said::Result(_)) | Err(_) if self.link.lasts() => Kept::Nothing,
            Ok(_) | Err(_) => Kept::Here(Arc::clone(outcome), weight(outcome)),
        }
    }

    fn origin(&self, id: &Id, asked: Option<&Asked>, reuses_ids: bool) -> Origin {
        // A modern request has no session, whatever connection it came on.
        let session = asked.and_then(|_| self.link.session().cloned());
        Origin {
            remembered: asked.filter(|_| self.link.lasts()).map(|asked| asked.digest),
            session,
            rpc_id: Some(id.to_json()),
            reuses_ids,
        }
    }

    pub(super) fn render(&self, id: &Id, era: Era, outcome: &Outcome, occasion: Occasion) -> Outgoing {
        match outcome {
            Ok(Said::Answer(answer)) => {
                let occasion = if answer.is_repeat {
                    Occasion::Duplicate
                } else {
                    occasion
                };
                Outgoing::answer(wire::answer(id, answer, era, occasion))
            }
            Ok(Said::Result(result)) => {
                let result = wire::marked(wire::completed(result.clone(), era), occasion);
                Outgoing::answer(wire::result(id, &result))
            }
            Err(refusal) => self.error(Some(id), refusal, Some(era)),
        }
    }

    pub(super) fn error(&self, id: Option<&Id>, refusal: &Refusal, era: Option<Era>) -> Outgoing {
        self.error_named(id, refusal, era, &self.host.ids.correlation())
    }

    pub(super) fn error_named(
        &self,
        id: Option<&Id>,
        refusal: &Refusal,
        era: Option<Era>,
        correlation: &CorrelationId,
    ) -> Outgoing {
        let code = match (refusal.code, era) {
            // The modern era gave this case another number.
            (ErrorCode::ResourceNotFound, Some(Era::Modern)) => ErrorCode::InvalidParams.json_rpc(),
            (code, _) => code.json_rpc(),
        };
        tracing::debug!(%correlation, code = refusal.code.name(), reason = logged(&refusal.message), "refused");
        Outgoing::error(wire::error(id, code, refusal, correlation), refusal.code)
    }
}

/// Takes the room out of an outcome that was told in words.
pub(super) fn room_of(outcome: &mut Outcome) -> Room {
    match outcome {
        Ok(Said::Answer(answer)) => std::mem::take(&mut answer.room),
        Ok(Said::Result(_)) | Err(_) => Room::default(),
    }
}

/// One that was done, and whose end alone is missing in the record, says that it is not to be tried again.
fn is_to_try_again_for_want_of_a_record(answer: &Answer) -> bool {
    let facts = &answer.structured;
    facts["error_code"] == ErrorCode::AuditUnavailable.name() && facts["retryable"] == true
}

/// Roughly the bytes an outcome holds.
fn weight(outcome: &Outcome) -> usize {
    fn of(value: &Value) -> usize {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => size_of::<Value>(),
            Value::String(text) => size_of::<Value>() + text.len(),
            Value::Array(items) => items.iter().map(of).sum(),
            Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + of(value)).sum(),
        }
    }
    match outcome {
        Ok(Said::Answer(answer)) => answer.text.len() + of(&answer.structured),
        Ok(Said::Result(result)) => of(result),
        Err(refusal) => refusal.message.len() + refusal.details.values().map(of).sum::<usize>(),
    }
}
