//! The client's user as an approver, and how a modern client waits.
//!
//! A client of the legacy era is sent the form while its call waits. A modern one gets it as the answer to
//! its call, with a sealed state, and makes the same call again with what its user said. The state alone is
//! how a modern client waits for somebody else: it says which question the next round goes on with.

use std::sync::{Arc, Mutex, PoisonError};

use countersign_gateway::approval::client::{ClientUser, Heard, Resumed};
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::Pending;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::{ApprovalId, RequestId};
use countersign_gateway::service::Answer;
use countersign_gateway::session::Caller;
use serde_json::{Map, Value, json};

use super::client::Ability;
use super::conversation::Conversation;
use super::form;
use super::host::Host;
use super::revision::Era;
use super::rounds::{Inputs, input_required};
use super::seal::Bound;
use crate::limits::{APPROVAL_STATE_TTL, QUESTION_PATIENCE, ROUNDS_MAX};
use crate::logged::logged;

/// What the form is called among the questions of an answer.
const FORM: &str = "approval";

/// Who is asked when a call waits for an approval.
pub(crate) enum Asking {
    Nobody,
    ByRequest(Arc<ByRequest>),
    ByRounds(Arc<ByRounds>),
}

impl Asking {
    /// How the client of a conversation can be asked.
    pub(crate) fn of(host: &Arc<Host>, conversation: &Arc<Conversation>, round: Option<Round>) -> Self {
        let client = conversation.client();
        let has_forms = client.capabilities.has(Ability::Elicitation);
        match (client.era, round) {
            (Era::Modern, Some(round)) => Self::ByRounds(Arc::new(ByRounds {
                round,
                has_forms,
                stands: Mutex::default(),
            })),
            (Era::Legacy(_), _) if has_forms && conversation.can_ask() => Self::ByRequest(Arc::new(ByRequest {
                host: Arc::clone(host),
                conversation: Arc::clone(conversation),
            })),
            (Era::Legacy(_) | Era::Modern, _) => Self::Nobody,
        }
    }

    pub(crate) fn user(&self) -> Option<Arc<dyn ClientUser>> {
        match self {
            Self::Nobody => None,
            Self::ByRequest(user) => Some(Arc::clone(user) as Arc<dyn ClientUser>),
            Self::ByRounds(user) => Some(Arc::clone(user) as Arc<dyn ClientUser>),
        }
    }
}

/// The user of a client that is sent requests.
pub(crate) struct ByRequest {
    host: Arc<Host>,
    conversation: Arc<Conversation>,
}

impl ClientUser for ByRequest {
    fn ask(&self, question: &ApprovalRequest) -> Pending<Heard> {
        let id = self.host.ids.correlation().as_str().to_owned();
        let (conversation, question) = (Arc::clone(&self.conversation), question.clone());
        Box::pin(async move {
            match conversation.ask(id, &form::of(&question), QUESTION_PATIENCE).await {
                Ok(answer) => form::word(&question, &answer).map_or(Heard::Nothing, Heard::Said),
                Err(refusal) => {
                    tracing::debug!(reason = logged(&refusal.message), "the client's user did not answer");
                    Heard::Nothing
                }
            }
        })
    }
}

/// One round of a modern call.
pub(crate) struct Round {
    bound: Bound,
    inputs: Inputs,
    earlier: Option<Earlier>,
}

/// What the state of an earlier round says.
#[derive(Clone, Debug)]
struct Earlier {
    question: Resumed,
    rounds: u64,
    /// Whether the form went out with it, and waits for an answer.
    form: bool,
}

impl Round {
    /// Reads what a call brings of earlier rounds. A state that is not this caller's, for this very call,
    /// or that came back before is refused.
    pub(crate) fn read(host: &Host, caller: &Caller, params: &Map<String, Value>) -> Result<Self, Refusal> {
        let bound = Bound::to(&caller.credential, "tools/call", params);
        let inputs = Inputs::read(params)?;
        let earlier = match inputs.state() {
            None => None,
            Some(state) => {
                let content = host.features.seal.redeem(&bound, state)?;
                Some(Earlier::read(&content).ok_or_else(|| {
                    let message = "`params.requestState` is of another kind of request";
                    Refusal::new(ErrorCode::InvalidParams, message)
                })?)
            }
        };
        Ok(Self { bound, inputs, earlier })
    }
}

impl Earlier {
    fn read(content: &Value) -> Option<Self> {
        Some(Self {
            question: Resumed {
                approval: ApprovalId::trusted(content["approval"].as_str()?),
                command: RequestId::trusted(content["command"].as_str()?),
            },
            rounds: content["rounds"].as_u64()?,
            form: content["form"].as_bool()?,
        })
    }

    fn written(&self) -> Value {
        json!({
            "approval": self.question.approval.as_str(),
            "command": self.question.command.as_str(),
            "rounds": self.rounds,
            "form": self.form,
        })
    }
}

/// The user of a client that makes its call again.
pub(crate) struct ByRounds {
    round: Round,
    has_forms: bool,
    /// The question whose form the next answer carries.
    stands: Mutex<Option<ApprovalRequest>>,
}

impl ByRounds {
    /// What the user says to a question in this round. Their answer counts for the question it was given
    /// to; who closed the form is not shown it again by the rounds that follow.
    fn heard(&self, question: &ApprovalRequest) -> Heard {
        if !self.has_forms {
            return Heard::Nothing;
        }
        match self
            .round
            .earlier
            .as_ref()
            .filter(|earlier| earlier.question.approval == question.id)
        {
            Some(earlier) if !earlier.form => Heard::Nothing,
            Some(_) => match self.round.inputs.answer(FORM, &form::of(question)) {
                Some(answer) if answer["action"] == "cancel" => Heard::Nothing,
                Some(answer) => form::word(question, answer).map_or(Heard::ByAnswer, Heard::Said),
                None => Heard::ByAnswer,
            },
            None => Heard::ByAnswer,
        }
    }

    /// The form that the answer must carry, if there is one.
    pub(crate) fn has_form(&self) -> bool {
        self.stands().is_some()
    }

    /// The answer to a call that waits for an approval: make it again. None when the client has done that
    /// so often that its SDK would give up; it then hears in plain words that the approval is pending.
    pub(crate) fn again(
        &self,
        host: &Host,
        conversation: &Conversation,
        answer: &Answer,
    ) -> Result<Option<Value>, Refusal> {
        let waits_for = answer.structured["approval_id"]
            .as_str()
            .filter(|_| answer.structured["status"] == "pending");
        let (Some(approval), Some(command)) = (waits_for, answer.command.clone()) else {
            return Ok(None);
        };
        let rounds = self.round.earlier.as_ref().map_or(0, |earlier| earlier.rounds) + 1;
        if rounds > ROUNDS_MAX {
            return Ok(None);
        }
        let form = self.stands().filter(|question| question.id.as_str() == approval);
        let state = Earlier {
            question: Resumed {
                approval: ApprovalId::trusted(approval),
                command,
            },
            rounds,
            form: form.is_some(),
        };
        let seal = &host.features.seal;
        let state = seal.issue_for(&self.round.bound, &state.written(), APPROVAL_STATE_TTL)?;
        let questions: Vec<_> = form
            .iter()
            .map(|question| (FORM.to_owned(), form::of(question)))
            .collect();
        input_required(conversation.client(), &questions, Some(state)).map(Some)
    }

    fn stands(&self) -> Option<ApprovalRequest> {
        self.stands.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ClientUser for ByRounds {
    fn ask(&self, question: &ApprovalRequest) -> Pending<Heard> {
        let heard = self.heard(question);
        if heard == Heard::ByAnswer {
            *self.stands.lock().unwrap_or_else(PoisonError::into_inner) = Some(question.clone());
        }
        Box::pin(async move { heard })
    }

    fn resumes(&self) -> Option<Resumed> {
        self.round.earlier.as_ref().map(|earlier| earlier.question.clone())
    }
}
