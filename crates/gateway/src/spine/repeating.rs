//! A request whose act is there already: it is answered with what that came to, and nothing is done again.
//!
//! A client that lost its answer sends the request once more, perhaps to another process or after a restart. The
//! row that opens an act has the request's id for its key, so one of all those requests does it.

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::Gateway;
use super::joining::LOOK_EVERY;
use super::opening::unrecorded;
use crate::audit::outcome::{AskedAct, StoredAct};
use crate::error::{ErrorCode, Refusal};
use crate::ids::RequestId;
use crate::service::ToolCall;
use crate::session::Caller;
use crate::tools::acts::Act;

type Fields = Map<String, Value>;

impl Gateway {
    /// What an act of this call is known by, where its session could send it again.
    pub(super) fn asked_act(caller: &Caller, call: &ToolCall) -> Option<Box<AskedAct>> {
        Some(Box::new(AskedAct {
            owner: caller.credential.clone(),
            request_id: call.origin.request_id(0)?,
            asked: call.origin.asked(),
        }))
    }

    /// What the same request came to before; none where it is new. Waits for whoever is still at it, as long as a
    /// client will.
    pub(super) async fn came_to(
        &self,
        caller: &Caller,
        call: &ToolCall,
        act: &dyn Act,
    ) -> Result<Option<Result<Fields, Refusal>>, Refusal> {
        let Some(request_id) = call.origin.request_id(0) else {
            return Ok(None);
        };
        let mut cancel = call.cancel.clone();
        let deadline = Instant::now() + self.settings.answer_within;
        loop {
            let stored = self.ports.record.act(&caller.credential, &request_id).await;
            match stored.map_err(|error| unrecorded(&error))? {
                None => return Ok(None),
                Some(StoredAct::Ended(kept)) => return Ok(Some(act.resume(kept.read()).await)),
                Some(StoredAct::Open) if Instant::now() + LOOK_EVERY > deadline => return Err(under_way(&request_id)),
                Some(StoredAct::Open) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = cancel.cancelled() => return Err(under_way(&request_id)),
                () = self.stops() => return Err(under_way(&request_id)),
            }
        }
    }
}

fn under_way(request_id: &RequestId) -> Refusal {
    let message = "the same request is being done; send it again to learn what it comes to";
    Refusal::new(ErrorCode::Conflict, message).with("request_id", request_id.as_str())
}

/// Another process had the same request at this moment and gave it up.
pub(super) fn given_up() -> Refusal {
    let message = "the same request came elsewhere at this moment and was not done there; send it again";
    Refusal::new(ErrorCode::Conflict, message)
}
