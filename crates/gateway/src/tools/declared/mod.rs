//! Tools that files declare: a name, schemas, an approval, limits, and who does the work.
//!
//! The files are the operator's, so what they say is permission for exactly what stands in them; a caller
//! fills places that were left open and nothing else. An [`Argv`] tool becomes a command like any other,
//! with its bracket in the record; an [`Http`] tool becomes an act that is given to a service outside.
//! Reading the files is the binary's business.

mod argv;
mod hiding;
mod http;
pub mod schema;
pub mod template;
mod url;
pub mod usage;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::audit::chain;
use crate::catalog::definition::{ToolDefinition, unless_refused};
use crate::error::{ErrorCode, Refusal};
use crate::policy::effective::ToolApproval;
use crate::policy::matrix::KnownTool;
use crate::policy::merge::{Act, Entry, ToolPolicy};
use schema::Schema;
use usage::Usage;

pub use argv::{Argv, Element, asks_a_shell};
pub use http::{Http, HttpAct, Method};
pub use url::{Url, UrlError};

/// One tool of a file.
pub struct DeclaredTool {
    pub definition: ToolDefinition,
    pub approval: ToolApproval,
    pub timeout: Duration,
    pub executor: Executor,
    pub input: Schema,
    /// What the author promises of the result.
    pub output: Option<Schema>,
    pub usage: Usage,
    /// `tool file …, line 3, column 5`.
    pub source: String,
    /// Over everything that the file says of it.
    pub digest: String,
}

/// Who does the work.
#[derive(Debug)]
pub enum Executor {
    Argv(Argv),
    Http(Http),
}

/// What a tool's answer looks like to clients: what the author promises, or what it has without a promise;
/// and in either case an answer that comes before the end, or instead of one.
pub fn published_output(executor: &Executor, promised: Option<&Schema>) -> Value {
    match (promised, executor) {
        (Some(promised), _) => unless_refused(promised.written()),
        (None, Executor::Argv(_)) => crate::tools::exec::schema::output(),
        (None, Executor::Http(_)) => json!({
            "type": "object",
            "properties": {
                "status": {"type": "string", "enum": ["success", "pending", "rejected", "failed"]}, "result": {},
                "request_id": {"type": "string"}, "correlation_id": {"type": "string"}, "message": {"type": "string"},
            },
            "required": ["status"],
        }),
    }
}

impl Executor {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Argv(_) => "argv",
            Self::Http(_) => "http",
        }
    }
}

impl DeclaredTool {
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// The arguments of a call, held against the schema; what was left out has the schema's default.
    pub(crate) fn take(&self, given: &Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
        // Clients send null for what they leave out.
        let mut arguments: Map<String, Value> = given.clone();
        arguments.retain(|name, value| !value.is_null() || self.takes_null(name));
        for (name, described) in self.input.properties() {
            if let Some(default) = described.get("default").filter(|_| !arguments.contains_key(name)) {
                arguments.insert(name.clone(), default.clone());
            }
        }
        let problems = self.input.problems(&Value::Object(arguments.clone()));
        if problems.is_empty() {
            return Ok(arguments);
        }
        let list: Vec<Value> = problems.iter().map(|problem| json!(problem)).collect();
        Err(Refusal::new(ErrorCode::InvalidArguments, problems.join("; ")).with("problems", list))
    }

    fn takes_null(&self, property: &str) -> bool {
        let kind = &self.input.written()["properties"][property]["type"];
        match kind {
            Value::Array(kinds) => kinds.contains(&json!("null")),
            kind => kind == "null",
        }
    }

    /// The arguments as they may be seen, and what was taken out of them.
    pub(crate) fn masked(&self, given: &Map<String, Value>) -> (Map<String, Value>, Vec<Value>) {
        hiding::masked(self.input.written(), given)
    }

    /// The texts that must not be seen in the record.
    pub(crate) fn secrets(&self, given: &Map<String, Value>) -> Vec<String> {
        let (_, taken) = self.masked(given);
        taken.iter().flat_map(hiding::texts).collect()
    }

    /// What policy knows of it before anybody configures more.
    fn known(&self) -> KnownTool {
        KnownTool {
            name: self.name().to_owned(),
            act: if self.definition.hints.read_only {
                Act::Read
            } else {
                Act::Write
            },
            acts: Vec::new(),
        }
    }

    fn entry(&self) -> Entry {
        Entry {
            pattern: self.name().to_owned(),
            policy: ToolPolicy {
                approval: Some(self.approval),
                ..ToolPolicy::default()
            },
            source: self.source.clone(),
        }
    }

    fn told(&self) -> Value {
        json!({
            "name": self.name(), "approval": self.approval.as_str(), "executor": self.executor.kind(),
            "version": self.definition.version, "source": self.source, "digest": self.digest,
        })
    }
}

/// As one that is compared by what its file says.
impl PartialEq for DeclaredTool {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.digest == other.digest
    }
}

impl Eq for DeclaredTool {}

impl fmt::Debug for DeclaredTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeclaredTool({}, {})", self.name(), self.source)
    }
}

/// All declared tools, in the order of their files.
#[derive(Clone, Default, Debug)]
pub struct DeclaredTools {
    tools: Vec<Arc<DeclaredTool>>,
}

impl DeclaredTools {
    pub fn new(tools: Vec<DeclaredTool>) -> Self {
        Self {
            tools: tools.into_iter().map(Arc::new).collect(),
        }
    }

    pub fn find(&self, name: &str) -> Option<&Arc<DeclaredTool>> {
        self.tools.iter().find(|tool| tool.name() == name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<DeclaredTool>> {
        self.tools.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// What the layers of policy say of them.
    pub(crate) fn layered(&self) -> (Vec<KnownTool>, Vec<Entry>) {
        let tools = self.tools.iter();
        tools.map(|tool| (tool.known(), tool.entry())).unzip()
    }

    /// Over all of them.
    pub fn digest(&self) -> String {
        let each: Vec<_> = self
            .tools
            .iter()
            .map(|tool| json!([tool.name(), tool.digest]))
            .collect();
        chain::digest(&Value::Array(each))
    }

    /// The same tools, going on with what was counted of those that were there before.
    #[must_use]
    pub(crate) fn after(&self, before: &Self) -> Self {
        let continued = |tool: &Arc<DeclaredTool>| match before.find(tool.name()) {
            Some(known) if known.digest == tool.digest => known.clone(),
            Some(known) => {
                known.usage.hand_over(&tool.usage);
                tool.clone()
            }
            None => tool.clone(),
        };
        Self {
            tools: self.tools.iter().map(continued).collect(),
        }
    }

    /// What the record says when these take the place of others.
    pub fn changes(&self, before: &Self) -> Value {
        let names = |tools: &Self| -> BTreeMap<String, String> {
            let pair = |tool: &Arc<DeclaredTool>| (tool.name().to_owned(), tool.digest.clone());
            tools.tools.iter().map(pair).collect()
        };
        let (now, then) = (names(self), names(before));
        let added: Vec<_> = now.keys().filter(|name| !then.contains_key(*name)).collect();
        let removed: Vec<_> = then.keys().filter(|name| !now.contains_key(*name)).collect();
        let differs = |(name, digest): &(&String, &String)| then.get(*name).is_some_and(|before| before != *digest);
        let changed: Vec<_> = now.iter().filter(differs).map(|(name, _)| name).collect();
        let tools: Vec<_> = self.tools.iter().map(|tool| tool.told()).collect();
        json!({"added": added, "removed": removed, "changed": changed, "tools": tools, "digest": self.digest()})
    }
}

/// What [`DeclaredTools::changes`] says, in a line: which tools came, went and changed.
pub fn told_changes(changes: &Value) -> String {
    let of = |name: &str| {
        let names: Vec<&str> = changes[name]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        (!names.is_empty()).then(|| format!("{name} {}", names.join(", ")))
    };
    let said: Vec<_> = ["added", "removed", "changed"].into_iter().filter_map(of).collect();
    said.join("; ")
}
