//! What a running call says to its client and asks of it: progress, log messages, questions.
//!
//! All of it leaves where the call's answer will, and nothing after the answer. Progress numbers only
//! grow. Questions are for clients of the legacy era; a modern one is asked by an answer of its own
//! (`rounds`). Where the answer is to be plain JSON a question would never be read there: it is asked on the
//! stream beside the requests, if the client holds one open, and else not at all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::job::event::JobEvent;
use countersign_gateway::job::news::PROGRESS;
use countersign_gateway::service::Progress;
use serde_json::{Value, json};

use super::client::{Client, Level};
use super::jsonrpc::Id;
use super::outlet::{Outgoing, Outlet};
use super::question::Question;
use super::questions::{ConversationKey, OpenQuestion, Questions, Told};
use super::revision::Era;
use super::wire;

pub(crate) struct Conversation {
    client: Client,
    token: Option<Id>,
    questions: Arc<Questions>,
    key: ConversationKey,
    /// The stream beside the requests, where there can be one.
    beside: Option<Weak<dyn Outlet>>,
    stage: Mutex<Stage>,
}

enum Stage {
    Open {
        /// The last number said.
        progress: Option<u64>,
        /// Let go of when the answer leaves: a command may go on, and keep its conversation, long after.
        outlet: Arc<dyn Outlet>,
    },
    Closed,
}

impl Conversation {
    pub(crate) fn new(client: Client, token: Option<Id>, questions: &Arc<Questions>, outlet: &Arc<dyn Outlet>) -> Self {
        Self {
            client,
            token,
            key: questions.conversation(),
            questions: Arc::clone(questions),
            beside: None,
            stage: Mutex::new(Stage::Open {
                progress: None,
                outlet: Arc::clone(outlet),
            }),
        }
    }

    /// Questions may also go this way.
    #[must_use]
    pub(crate) fn beside(self, beside: Option<Weak<dyn Outlet>>) -> Self {
        Self { beside, ..self }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether the client wants to hear how the call gets on.
    pub(crate) fn is_followed(&self) -> bool {
        self.token.is_some()
    }

    /// Whether the client would hear a question.
    pub(crate) fn can_ask(&self) -> bool {
        self.way_to_ask(&self.stage()).is_ok()
    }

    /// Where the client would read a question.
    fn way_to_ask(&self, stage: &Stage) -> Result<Arc<dyn Outlet>, Refusal> {
        let own = match stage {
            Stage::Open { outlet, .. } => Arc::clone(outlet),
            Stage::Closed => return Err(gone()),
        };
        let beside = || self.beside.as_ref().and_then(Weak::upgrade);
        let is_read = |outlet: &Arc<dyn Outlet>| outlet.carries_questions();
        let way = Some(own).filter(is_read).or_else(|| beside().filter(is_read));
        way.ok_or_else(unheard)
    }

    /// Nothing is sent after this returns, and nobody waits for the client any more.
    pub(crate) fn close(&self) {
        let before = std::mem::replace(&mut *self.stage(), Stage::Closed);
        drop(before);
        self.questions.withdraw(self.key);
    }

    /// Says how far the call is; dropped unless it is further than before.
    pub(crate) fn reached(&self, progress: u64, total: u64) {
        let further = |said: Option<u64>| said.is_none_or(|said| progress > said).then_some(progress);
        self.advance(further, |token, progress| {
            wire::progress(token, progress, Some(total), None)
        });
    }

    /// Says something to whoever reads the client's log, if it wants to hear that much.
    pub(crate) fn log(&self, level: Level, data: impl FnOnce() -> Value) {
        if !self.client.logs.wants(level) {
            return;
        }
        let params = json!({"level": level.as_str(), "logger": wire::NAME, "data": data()});
        self.notify(wire::notification("notifications/message", &params));
    }

    /// Says something that the client may miss if it reads too slowly.
    pub(crate) fn notify(&self, notification: Vec<u8>) -> bool {
        match &*self.stage() {
            Stage::Open { outlet, .. } => outlet.offer(Outgoing::notification(notification)),
            Stage::Closed => false,
        }
    }

    /// Says something that must arrive.
    pub(crate) fn announce(&self, notification: Vec<u8>) {
        if let Stage::Open { outlet, .. } = &*self.stage() {
            outlet.send(Outgoing::notification(notification));
        }
    }

    /// Lets the transport end the stream that the client reads now; what is said later is fetched.
    pub(crate) fn let_go(&self) {
        if let Stage::Open { outlet, .. } = &*self.stage() {
            outlet.let_go();
        }
    }

    /// Asks a client of the legacy era and waits for its answer, under an id of ours that was never
    /// used before. The answer fits the question.
    pub(crate) async fn ask(&self, id: String, question: &Question, patience: Duration) -> Result<Value, Refusal> {
        match self.client.era {
            Era::Legacy(_) => question.fits(self.client.era, self.client.capabilities)?,
            Era::Modern => {
                let message = "a client of this revision is not sent requests";
                return Err(Refusal::new(ErrorCode::InternalError, message));
            }
        }
        let open = self.questions.open(self.key, id)?;
        let asked = wire::request(&open.id, question.method(), question.params());
        let way = {
            // Held while sending, so that no question comes after the answer.
            let stage = self.stage();
            let way = self.way_to_ask(&stage)?;
            way.send(Outgoing::question(asked));
            way
        };
        let mut waiting = Waiting {
            conversation: self,
            way,
            open,
        };
        let told = tokio::time::timeout(patience, &mut waiting.open.told).await;
        let told: Told = told
            .map_err(|_| {
                let message = format!("the client did not answer within {} s", patience.as_secs());
                Refusal::new(ErrorCode::Cancelled, message)
            })?
            .map_err(|_| gone())?;
        let answer = told.map_err(|error| {
            let message = format!("the client refused `{}`: {}", question.method(), error.message);
            Refusal::new(ErrorCode::UpstreamError, message).with("client_code", error.code)
        })?;
        question.check(&answer).map(|()| answer)
    }

    fn advance(&self, next: impl Fn(Option<u64>) -> Option<u64>, write: impl Fn(&Id, u64) -> Vec<u8>) {
        let Some(token) = &self.token else {
            return;
        };
        // Held while sending, so that no report from another thread comes after the answer.
        let mut stage = self.stage();
        let Stage::Open { progress, outlet } = &mut *stage else {
            return;
        };
        let Some(next) = next(*progress) else {
            return;
        };
        if outlet.offer(Outgoing::notification(write(token, next))) {
            *progress = Some(next);
        }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Conversation {
    fn report(&self, message: &str) {
        let message = self.client.era.has_progress_messages().then_some(message);
        self.advance(
            |said| Some(said.unwrap_or(0) + 1),
            |token, progress| wire::progress(token, progress, None, message),
        );
    }

    /// A session hears of its jobs on the stream beside its requests; a client without one has only this.
    fn job(&self, event: &JobEvent) {
        if let (Era::Modern, Some(params)) = (self.client.era, event.progress()) {
            self.notify(wire::notification(PROGRESS, &params));
        }
    }
}

/// Someone who waits for an answer. Who gives up tells the client that it need not answer any more.
struct Waiting<'a> {
    conversation: &'a Conversation,
    way: Arc<dyn Outlet>,
    open: OpenQuestion,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.open.withdraw()
            && let Stage::Open { .. } = &*self.conversation.stage()
        {
            let params = json!({"requestId": self.open.id, "reason": "nobody waits for the answer any more"});
            let withdrawn = wire::notification("notifications/cancelled", &params);
            self.way.offer(Outgoing::notification(withdrawn));
        }
    }
}

/// The client takes nothing but the answer.
fn unheard() -> Refusal {
    let message = "the client cannot be asked: this request takes plain JSON only, and the session has no stream open; \
                   accept `text/event-stream` as well, or open a stream by GET, and call again";
    Refusal::new(ErrorCode::MissingClientCapability, message)
}

fn gone() -> Refusal {
    Refusal::new(ErrorCode::Cancelled, "the client went away before it answered")
}
