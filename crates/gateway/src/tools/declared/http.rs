//! A declared tool whose work a service does: what is sent to it, and how its answer comes back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::DeclaredTool;
use super::template::{Document, Text};
use super::url::Url;
use crate::approval::ClearedAct;
use crate::audit::act::EXECUTOR;
use crate::audit::{Pending, chain};
use crate::delegation::desk::{DelegationDesk, Sent};
use crate::delegation::{Confided, Delegation, Order};
use crate::error::{ErrorCode, Refusal};
use crate::ids::{CorrelationId, CredentialId, DelegationId};
use crate::tools::acts::{Act, Asked};

/// Where and how a service is asked.
#[derive(Clone)]
pub struct Http {
    pub method: Method,
    pub url: Url,
    /// Values may be secret.
    pub headers: Vec<(String, Text)>,
    /// The service may answer later, by a callback.
    pub answers_later: bool,
    pub spec: Document,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Http({} {})", self.method.as_str(), self.url)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    pub const WORDS: &[(&str, Self)] = &[
        ("GET", Self::Get),
        ("POST", Self::Post),
        ("PUT", Self::Put),
        ("PATCH", Self::Patch),
        ("DELETE", Self::Delete),
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Whether a request of this kind carries what the contract says.
    pub fn has_body(self) -> bool {
        match self {
            Self::Post | Self::Put | Self::Patch => true,
            Self::Get | Self::Delete => false,
        }
    }
}

impl DeclaredTool {
    /// The fields of the answer: the result as the file promises it, or as it came.
    pub(crate) fn delivered(&self, result: Value, correlation: &CorrelationId) -> Result<Map<String, Value>, Refusal> {
        let Some(promised) = &self.output else {
            return Ok(Map::from_iter([
                ("status".to_owned(), json!("success")),
                ("result".to_owned(), result),
                ("correlation_id".to_owned(), json!(correlation.as_str())),
            ]));
        };
        let problems = promised.problems(&result);
        match result {
            Value::Object(fields) if problems.is_empty() => Ok(fields),
            _ => {
                let message = format!(
                    "the service did its work, but its result does not fit the tool's schema: {}",
                    problems.join("; ")
                );
                Err(Refusal::new(ErrorCode::UpstreamError, message).with("correlation_id", correlation.as_str()))
            }
        }
    }
}

/// What may be seen of a call.
struct Seen {
    arguments: Map<String, Value>,
    url: String,
    spec: Value,
    /// The texts that may not.
    secrets: Vec<String>,
}

impl Seen {
    fn of(tool: &DeclaredTool, http: &Http, arguments: &Map<String, Value>) -> Result<Self, Refusal> {
        let (shown, _) = tool.masked(arguments);
        Ok(Self {
            url: http.url.fill(&shown)?,
            spec: http.spec.fill(&shown),
            secrets: tool.secrets(arguments),
            arguments: shown,
        })
    }
}

/// A call of such a tool.
pub struct HttpAct {
    tool: Arc<DeclaredTool>,
    desk: Arc<DelegationDesk>,
    id: DelegationId,
    owner: CredentialId,
    arguments: Map<String, Value>,
    seen: Seen,
    /// What the caller must be known again by: secrets among it by a keyed digest.
    bound: Value,
    url: String,
    headers: Vec<(String, String)>,
    answers_later: bool,
    method: Method,
    spec: Value,
    patience: Duration,
    confided: Confided,
}

impl HttpAct {
    pub(crate) fn read(
        tool: &Arc<DeclaredTool>,
        http: &Http,
        desk: &Arc<DelegationDesk>,
        asked: &Asked<'_>,
    ) -> Result<Self, Refusal> {
        let arguments = tool.take(&asked.call.arguments)?;
        let mut headers = Vec::new();
        for (name, value) in &http.headers {
            let Some(value) = value.fill(&arguments) else { continue };
            if value.chars().any(|c| c.is_control() || !c.is_ascii()) {
                let message = format!("the value of the header `{name}` holds characters that no header may hold");
                return Err(Refusal::new(ErrorCode::InvalidArguments, message));
            }
            headers.push((name.clone(), value));
        }
        let seen = Seen::of(tool, http, &arguments)?;
        let id = desk.fresh();
        let bound = match seen.secrets.is_empty() {
            true => Value::Object(arguments.clone()),
            false => json!({"seen": seen.arguments, "keyed": desk.keyed(&Value::Object(arguments.clone()))}),
        };
        Ok(Self {
            confided: desk.confiding(&id, &seen.secrets)?,
            id,
            seen,
            bound,
            url: http.url.fill(&arguments)?,
            spec: http.spec.fill(&arguments),
            tool: tool.clone(),
            desk: desk.clone(),
            owner: asked.caller.credential.clone(),
            headers,
            answers_later: http.answers_later,
            method: http.method,
            arguments,
            patience: desk.patience(asked.call.answer_within),
        })
    }

    fn binding(&self, owner: &CredentialId) -> String {
        chain::digest(&json!({
            "tool": self.tool.name(), "declared": self.tool.digest, "arguments": self.bound,
            "owner": owner.as_str(),
        }))
    }

    /// What the service is told, to the letter of the contract.
    fn body(&self, correlation: &str, left: Duration) -> Value {
        let definition = &self.tool.definition;
        let mut body = json!({
            "correlation_id": correlation,
            "request_id": self.id.as_str(),
            "tool": {
                "name": definition.name, "title": definition.title, "description": definition.description,
                "input_schema": self.tool.input.written(),
                "output_schema": self.tool.output.as_ref().map(|schema| schema.written()),
            },
            "arguments": self.arguments,
            "lang": "en",
            "markup": "markdown",
            "timeout_sec": left.as_secs().max(1),
        });
        if !self.spec.is_null() {
            body["spec"] = self.spec.clone();
        }
        if self.answers_later {
            body["callback"] = json!({"url": self.desk.callback_url(&self.id)});
        }
        body
    }
}

impl Act for HttpAct {
    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        details.insert("arguments".to_owned(), Value::Object(self.seen.arguments.clone()));
        details.insert("method".to_owned(), json!(self.method.as_str()));
        details.insert("url".to_owned(), json!(self.seen.url));
        if !self.seen.spec.is_null() {
            details.insert("spec".to_owned(), self.seen.spec.clone());
        }
        details
    }

    fn bound_arguments(&self, _given: &Map<String, Value>) -> Value {
        self.bound.clone()
    }

    fn systems(&self) -> &'static [&'static str] {
        &[EXECUTOR]
    }

    fn begins(&self) -> Result<(), Refusal> {
        self.tool.usage.begin(self.tool.name(), self.desk.clock().now())
    }

    fn delegation(&self, cleared: &ClearedAct) -> Option<Delegation> {
        let now = self.desk.clock().now();
        let owner = &cleared.caller().credential;
        Some(Delegation {
            id: self.id.clone(),
            version: 0,
            correlation_id: cleared.correlation_id().clone(),
            owner: owner.clone(),
            binding: self.binding(owner),
            tool: self.tool.name().to_owned(),
            created_at: now,
            deadline: now.after(self.tool.timeout),
            end: None,
            told: false,
            confided: self.confided.clone(),
        })
    }

    fn foresee(&self) -> Pending<Result<Option<Map<String, Value>>, Refusal>> {
        let (desk, owner, patience) = (self.desk.clone(), self.owner.clone(), self.patience);
        let (binding, tool) = (self.binding(&owner), self.tool.clone());
        Box::pin(async move {
            match desk.before(&owner, &binding).await {
                Ok(Some(id)) => desk.told(&tool, &id, patience).await.map(Some),
                // Nobody is asked about what could not begin.
                Ok(None) => tool.usage.has_room(tool.name(), desk.clock().now()).map(|()| None),
                Err(error) => Err(error.refusal("try again later")),
            }
        })
    }

    fn resume(&self, came_to: Result<Map<String, Value>, Refusal>) -> Pending<Result<Map<String, Value>, Refusal>> {
        let (desk, tool, patience) = (self.desk.clone(), self.tool.clone(), self.patience);
        let (owner, binding, answers_later) = (self.owner.clone(), self.binding(&self.owner), self.answers_later);
        Box::pin(async move {
            let promised = match &came_to {
                Ok(answered) => desk.promised(answered).await,
                // This server stopped, and the service may answer all the same.
                Err(refusal) if refusal.code == ErrorCode::Abandoned && answers_later => {
                    desk.before(&owner, &binding).await
                }
                Err(_) => Ok(None),
            };
            match promised {
                Ok(Some(id)) => desk.told(&tool, &id, patience).await,
                Ok(None) => came_to,
                Err(error) => Err(error.refusal("try again later")),
            }
        })
    }

    fn perform(self: Box<Self>, cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>> {
        let body = self.body(cleared.correlation_id().as_str(), self.tool.timeout);
        let mut headers = self.headers.clone();
        headers.push(("X-Correlation-Id".to_owned(), cleared.correlation_id().to_string()));
        let order = Order {
            method: self.method.as_str(),
            url: self.url.clone(),
            headers,
            body: self.method.has_body().then_some(body),
            patience: self.tool.timeout,
        };
        let sent = Sent {
            tool: self.tool.clone(),
            id: self.id.clone(),
            answers_later: self.answers_later,
            secrets: self.seen.secrets.clone(),
        };
        self.desk.send(sent, order);
        Box::pin(async move { self.desk.told(&self.tool, &self.id, self.patience).await })
    }
}
