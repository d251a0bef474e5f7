//! Requests that take a while: each is a [`Job`] that runs in a task of its own, may talk to its client
//! meanwhile and ends with what is to be said.

use std::sync::Arc;

use countersign_gateway::audit::Pending;
use countersign_gateway::error::Refusal;
use countersign_gateway::service::{Answer, Cancel, Origin, Progress, ToolCall};
use countersign_gateway::session::Caller;
use serde_json::{Map, Value, json};

use super::approving::{Asking, Round};
use super::client::{Ability, Client, Level};
use super::conversation::Conversation;
use super::host::Host;
use super::jsonrpc::Request;
use super::question::Question;
use super::revision::Era;
use super::tools::CallRequest;
use super::{listening, tasks};
use crate::limits::{QUESTION_PATIENCE, TASK_AFTER};

/// How a job ended.
pub(crate) type Outcome = Result<Said, Refusal>;

/// What is answered.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Said {
    /// What a tool of the gateway answered; each revision renders it its own way.
    Answer(Answer),
    /// A result in the protocol's words. What every result of an era carries is added.
    Result(Value),
}

pub(crate) type Job = Box<dyn FnOnce(Talk) -> Pending<Outcome> + Send>;

/// What a job works with.
pub(crate) struct Talk {
    pub(crate) host: Arc<Host>,
    pub(crate) caller: Caller,
    pub(crate) conversation: Arc<Conversation>,
    pub(crate) cancel: Cancel,
    pub(crate) origin: Origin,
}

impl Talk {
    /// Asks a client of the legacy era.
    pub(crate) async fn ask(&self, question: &Question) -> Result<Value, Refusal> {
        let id = self.host.ids.correlation().as_str().to_owned();
        self.conversation.ask(id, question, QUESTION_PATIENCE).await
    }
}

/// The job a request is; none for a request that is answered at once.
pub(crate) fn of(
    host: &Arc<Host>,
    caller: &Caller,
    client: &Client,
    request: &Request,
) -> Result<Option<Job>, Refusal> {
    if let Some(extras) = &host.features.extras
        && let Some(job) = extras.job(client, request)?
    {
        return Ok(Some(job));
    }
    match (request.method.as_str(), client.era) {
        ("tools/call", Era::Legacy(_)) => CallRequest::read(&request.params).map(|call| Some(tool(call, None))),
        ("tools/call", Era::Modern) => {
            let call = CallRequest::read(&request.params)?;
            let round = Round::read(host, caller, &request.params)?;
            Ok(Some(tool(call, Some(round))))
        }
        ("subscriptions/listen", Era::Modern) => listening::job(request).map(Some),
        ("tasks/get" | "tasks/update" | "tasks/cancel", Era::Modern) => tasks::job(client, request).map(Some),
        _ => Ok(None),
    }
}

/// Calls a tool of the gateway.
fn tool(call: CallRequest, round: Option<Round>) -> Job {
    Box::new(move |talk| Box::pin(call_tool(talk, call, round)))
}

async fn call_tool(talk: Talk, call: CallRequest, round: Option<Round>) -> Outcome {
    let Talk {
        host,
        caller,
        conversation,
        cancel,
        origin,
    } = talk;
    let client = conversation.client();
    // A client that follows the call hears how it gets on; one that does not and knows tasks need not
    // hold its request open.
    let becomes_task =
        client.era == Era::Modern && client.capabilities.has(Ability::Tasks) && !conversation.is_followed();
    let tool = call.tool.clone();
    let asking = Asking::of(&host, &conversation, round);
    let progress = conversation
        .is_followed()
        .then(|| Arc::clone(&conversation) as Arc<dyn Progress>);
    let answer = host.service.call(
        caller,
        ToolCall {
            tool: call.tool,
            arguments: call.arguments,
            progress,
            cancel,
            origin,
            answer_within: becomes_task.then_some(TASK_AFTER),
            user: asking.user(),
        },
    );
    let answer = answer.await?;
    let level = if answer.is_error { Level::Warning } else { Level::Info };
    conversation.log(level, || told(&tool, &answer));
    let rounds = match &asking {
        Asking::ByRounds(rounds) => Some(rounds),
        Asking::ByRequest(_) | Asking::Nobody => None,
    };
    // A task could not show its client's user a form, so the form goes first.
    let task = (becomes_task && rounds.is_none_or(|rounds| !rounds.has_form()))
        .then(|| tasks::created(&answer, host.clock.now()))
        .flatten();
    if let Some(task) = task {
        return Ok(Said::Result(task));
    }
    let again = match rounds {
        Some(rounds) => rounds.again(&host, &conversation, &answer)?,
        None => None,
    };
    Ok(again.map_or(Said::Answer(answer), Said::Result))
}

/// What the client's log says of a call that was answered.
fn told(tool: &str, answer: &Answer) -> Value {
    let mut told = Map::new();
    told.insert("tool".to_owned(), tool.into());
    for name in ["request_id", "status", "error_code", "error_message", "duration_ms"] {
        match &answer.structured[name] {
            Value::Null => {}
            value => {
                told.insert(name.to_owned(), value.clone());
            }
        }
    }
    json!(told)
}
