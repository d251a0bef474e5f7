//! `subscriptions/listen`: a request that stays open and tells what changes. The first thing it says is
//! which of the changes it was asked about it will tell; it ends when the client goes, cancels it, or
//! the server stops. A client that asks for `codex-father/progress` also hears of the jobs that its
//! credential started.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::job::news::{JobListener, JobTold, PROGRESS};
use serde_json::{Map, Value, json};

use super::changes::{Change, Heard};
use super::conversation::Conversation;
use super::host::Host;
use super::job::{Job, Outcome, Said, Talk};
use super::jsonrpc::{Id, Request};
use super::revision::Era;
use super::{resources, wire};
use crate::limits::{SUBSCRIPTIONS_MAX, URI_BYTES_MAX};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Which changes are told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Filter {
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: BTreeSet<String>,
    jobs: bool,
}

pub(crate) fn job(request: &Request) -> Result<Job, Refusal> {
    let asked = Filter::read(&request.params)?;
    let id = request.id.clone();
    Ok(Box::new(move |talk| Box::pin(listen(talk, asked, id))))
}

async fn listen(mut talk: Talk, asked: Filter, id: Id) -> Outcome {
    // Listened to before it is acknowledged, so that nothing falls between.
    let mut news = talk.host.features.changes.listen();
    let mut jobs = asked.jobs.then(|| talk.host.service.job_news()).flatten();
    let filter = Filter {
        jobs: jobs.is_some(),
        ..asked.limited_to_declared(&talk.host)
    };
    let meta = json!({SUBSCRIPTION: id});
    let params = json!({"_meta": meta, "notifications": filter.write()});
    talk.conversation
        .announce(wire::notification("notifications/subscriptions/acknowledged", &params));
    loop {
        tokio::select! {
            () = talk.cancel.cancelled() => return Ok(Said::Result(json!({"_meta": meta}))),
            heard = news.next() => filter.tell(&talk.conversation, &meta, &heard),
            told = next(&mut jobs) => tell_of_job(&talk, &meta, &told),
        }
    }
}

/// What happened to any job; for ever pending where nobody can tell.
async fn next(jobs: &mut Option<JobListener>) -> Arc<JobTold> {
    if let Some(listener) = jobs
        && let Some(told) = listener.next().await
    {
        return told;
    }
    std::future::pending().await
}

/// Nobody hears of another's jobs.
fn tell_of_job(talk: &Talk, meta: &Value, told: &JobTold) {
    if told.owner != talk.caller.credential {
        return;
    }
    if let Some(mut params) = told.event.progress() {
        params["_meta"] = meta.clone();
        talk.conversation.notify(wire::notification(PROGRESS, &params));
    }
}

impl Filter {
    fn read(params: &Map<String, Value>) -> Result<Self, Refusal> {
        let invalid = |message: String| Refusal::new(ErrorCode::InvalidParams, message);
        let Some(Value::Object(asked)) = params.get("notifications") else {
            return Err(invalid("`params.notifications` must be an object".to_owned()));
        };
        let wants = |name: &str| match asked.get(name) {
            None => Ok(false),
            Some(Value::Bool(wants)) => Ok(*wants),
            Some(_) => Err(invalid(format!("`notifications.{name}` must be true or false"))),
        };
        let uris = match asked.get("resourceSubscriptions") {
            None => BTreeSet::new(),
            Some(Value::Array(uris)) if uris.len() <= SUBSCRIPTIONS_MAX => uris
                .iter()
                .map(|uri| uri.as_str().filter(|uri| uri.len() <= URI_BYTES_MAX).map(str::to_owned))
                .collect::<Option<_>>()
                .ok_or_else(|| invalid("`notifications.resourceSubscriptions` must hold addresses".to_owned()))?,
            Some(_) => {
                let message = format!(
                    "`notifications.resourceSubscriptions` must be a list of at most {SUBSCRIPTIONS_MAX} addresses"
                );
                return Err(invalid(message));
            }
        };
        Ok(Self {
            tools: wants("toolsListChanged")?,
            prompts: wants("promptsListChanged")?,
            resources: wants("resourcesListChanged")?,
            uris,
            jobs: wants(PROGRESS)?,
        })
    }

    /// What is left of a wish: changes that were never promised are not told.
    fn limited_to_declared(self, host: &Host) -> Self {
        let declared = super::methods::capabilities(host, Era::Modern);
        let promised = |list: &str, what: &str| declared[list][what] == Value::Bool(true);
        let subscribes = promised("resources", "subscribe");
        Self {
            tools: self.tools && promised("tools", "listChanged"),
            prompts: self.prompts && promised("prompts", "listChanged"),
            resources: self.resources && promised("resources", "listChanged"),
            uris: self
                .uris
                .into_iter()
                .filter(|uri| subscribes && resources::exists(host, uri))
                .collect(),
            jobs: self.jobs,
        }
    }

    fn write(&self) -> Value {
        let mut filter = Map::new();
        for (name, wanted) in [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
            (PROGRESS, self.jobs),
        ] {
            if wanted {
                filter.insert(name.to_owned(), true.into());
            }
        }
        if !self.uris.is_empty() {
            filter.insert("resourceSubscriptions".to_owned(), json!(self.uris));
        }
        Value::Object(filter)
    }

    fn tell(&self, conversation: &Conversation, meta: &Value, heard: &Heard) {
        let all = *heard == Heard::Anything;
        let is = |change: &Change| all || *heard == Heard::Change(change.clone());
        for (method, wanted, change) in [
            ("notifications/tools/list_changed", self.tools, Change::Tools),
            ("notifications/prompts/list_changed", self.prompts, Change::Prompts),
            (
                "notifications/resources/list_changed",
                self.resources,
                Change::Resources,
            ),
        ] {
            if wanted && is(&change) {
                conversation.notify(wire::notification(method, &json!({"_meta": meta})));
            }
        }
        for uri in &self.uris {
            if is(&Change::Resource(uri.clone())) {
                let params = json!({"_meta": meta, "uri": uri});
                conversation.notify(wire::notification("notifications/resources/updated", &params));
            }
        }
    }
}
