//! Methods that are answered at once: listings, resources, discovery, and whatever does not exist.

use std::sync::Arc;

use countersign_gateway::error::{ErrorCode, Refusal, brief};
use countersign_gateway::session::Caller;
use countersign_gateway::session::lifetime::ClientInfo;
use serde_json::{Map, Value, json};

use super::client::{Capabilities, TASKS};
use super::host::Host;
use super::prompts::{self, INSTRUCTIONS};
use super::revision::{Era, Legacy, SUPPORTED};
use super::wire::{self, millis};
use super::{completion, resources, tools};
use crate::limits::{CACHE_TTL, CAPABILITIES_BYTES_MAX, CLIENT_NAME_CHARS_MAX};

/// What the modern era has, with `server/discover`, which every client may begin with.
const MODERN_METHODS: [&str; 13] = [
    "completion/complete",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "server/discover",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/update",
    "tools/call",
    "tools/list",
];

/// Refuses what the modern era does not have. A client that calls what was removed learns that before it
/// learns what else is wrong with its request.
pub(crate) fn require_modern(method: &str) -> Result<(), Refusal> {
    match MODERN_METHODS.contains(&method) {
        true => Ok(()),
        false => Err(unknown_method(method)),
    }
}

/// Answers a request that is no job and changes nothing.
pub(crate) fn answer(
    host: &Host,
    caller: &Caller,
    era: Era,
    method: &str,
    params: &Map<String, Value>,
) -> Result<Value, Refusal> {
    match (method, era) {
        ("tools/list", era) => {
            refuse_cursor(params)?;
            Ok(tool_list(list_tools(host, caller, era), era))
        }
        ("prompts/list", era) => list(host, method, "prompts", prompts::list(era), params, era),
        ("prompts/get", era) => Ok(wire::completed(prompts::get(params)?, era)),
        ("resources/list", era) => list(host, method, "resources", resources::list(era), params, era),
        ("resources/templates/list", era) => list(
            host,
            method,
            "resourceTemplates",
            resources::templates(era),
            params,
            era,
        ),
        ("resources/read", era) => {
            let contents = resources::read(host, caller, params)?;
            // What is read may depend on the credential.
            Ok(listed("contents", contents, era, CacheScope::Private))
        }
        ("completion/complete", era) => Ok(wire::completed(completion::complete(host, params)?, era)),
        ("ping", Era::Legacy(_)) => Ok(json!({})),
        ("server/discover", Era::Modern) => {
            let mut result = listed("supportedVersions", json!(SUPPORTED), era, CacheScope::Public);
            result["capabilities"] = capabilities(host, era);
            result["instructions"] = INSTRUCTIONS.into();
            Ok(result)
        }
        (unknown, _) => Err(unknown_method(unknown)),
    }
}

/// What we say we can do. What is not declared does not exist.
pub(crate) fn capabilities(host: &Host, era: Era) -> Value {
    let mut declared = Map::new();
    let mut declare = |name: &str, value: Value| declared.insert(name.to_owned(), value);
    declare("tools", json!({"listChanged": true}));
    declare("resources", json!({}));
    declare("prompts", json!({}));
    declare("logging", json!({}));
    if era.knows(Legacy::R2025_03_26) {
        declare("completions", json!({}));
    }
    if era == Era::Modern {
        declare("extensions", json!({TASKS: {}}));
    }
    if let Some(extras) = &host.features.extras {
        extras.declare(era, &mut declared);
    }
    Value::Object(declared)
}

/// What a tool of this caller's list wants for arguments.
pub(crate) fn input_schema(host: &Host, caller: &Caller, name: &str) -> Option<Value> {
    let tools = host.service.tools(caller);
    let own = tools.iter().find(|tool| tool.name == name);
    own.map(|tool| tool.input_schema.clone()).or_else(|| {
        let extras = host.features.listed("tools/list", Era::Modern);
        let extra = extras.into_iter().find(|tool| tool["name"] == name)?;
        Some(extra["inputSchema"].clone())
    })
}

/// The result of `tools/list` as it stands on the wire, if that is what is asked and nothing can be wrong
/// with it.
pub(crate) fn written(
    host: &Host,
    caller: &Caller,
    era: Era,
    method: &str,
    params: &Map<String, Value>,
) -> Option<Arc<[u8]>> {
    let plain = method == "tools/list" && host.features.extras.is_none() && !params.contains_key("cursor");
    plain.then(|| {
        let tools = host.service.tools(caller);
        host.features.lists.of(&tools, era, || {
            let result = tool_list(tools::list(&tools, era).into(), era);
            wire::bytes(&result)
        })
    })
}

/// What is listed depends on the credential.
fn tool_list(tools: Value, era: Era) -> Value {
    listed("tools", tools, era, CacheScope::Private)
}

/// The tools this caller may call, as a revision knows them.
pub(crate) fn list_tools(host: &Host, caller: &Caller, era: Era) -> Value {
    let mut tools = tools::list(&host.service.tools(caller), era);
    tools.extend(host.features.listed("tools/list", era));
    Value::Array(tools)
}

/// A session that may begin.
pub(crate) struct Opening {
    /// What is spoken from now on.
    pub(crate) revision: Legacy,
    pub(crate) client: ClientInfo,
    pub(crate) capabilities: Capabilities,
    pub(crate) result: Value,
}

/// Reads a handshake; the answer names the revision that is spoken from now on.
pub(crate) fn initialize(host: &Host, params: &Map<String, Value>) -> Result<Opening, Refusal> {
    let Some(Value::String(version)) = params.get("protocolVersion") else {
        let message = "`params.protocolVersion` must be text that names a protocol version";
        return Err(Refusal::new(ErrorCode::InvalidParams, message));
    };
    let revision = Legacy::negotiate(version);
    let result = json!({
        "protocolVersion": revision.as_str(),
        "capabilities": capabilities(host, Era::Legacy(revision)),
        "serverInfo": wire::server_info(Era::Legacy(revision)),
        "instructions": INSTRUCTIONS,
    });
    let told = |name: &str| {
        let text = params.get("clientInfo")?.get(name)?.as_str()?;
        Some(text.chars().take(CLIENT_NAME_CHARS_MAX).collect())
    };
    let declared = params.get("capabilities").and_then(Value::as_object);
    let client = ClientInfo {
        name: told("name"),
        version: told("version"),
        protocol_version: Some(revision.as_str().to_owned()),
        capabilities: declared
            .map(|declared| Value::Object(declared.clone()).to_string())
            .filter(|text| text.len() <= CAPABILITIES_BYTES_MAX),
        rpc_id: None,
    };
    Ok(Opening {
        revision,
        client,
        capabilities: declared.map_or_else(Capabilities::default, Capabilities::read),
        result,
    })
}

pub(crate) fn unknown_method(method: &str) -> Refusal {
    Refusal::new(
        ErrorCode::MethodNotFound,
        format!("there is no method `{}` here", brief(method)),
    )
}

/// Who may share what a client keeps of a result.
enum CacheScope {
    Private,
    Public,
}

/// A list that is the same for all callers.
fn list(
    host: &Host,
    method: &str,
    name: &str,
    mut own: Vec<Value>,
    params: &Map<String, Value>,
    era: Era,
) -> Result<Value, Refusal> {
    refuse_cursor(params)?;
    own.extend(host.features.listed(method, era));
    Ok(listed(name, own.into(), era, CacheScope::Public))
}

fn listed(name: &str, value: Value, era: Era, scope: CacheScope) -> Value {
    let mut result = Map::new();
    result.insert(name.to_owned(), value);
    if era == Era::Modern {
        let scope = match scope {
            CacheScope::Private => "private",
            CacheScope::Public => "public",
        };
        result.insert("ttlMs".to_owned(), millis(CACHE_TTL).into());
        result.insert("cacheScope".to_owned(), scope.into());
    }
    wire::completed(Value::Object(result), era)
}

/// Our lists fit on one page, so no cursor is ours.
fn refuse_cursor(params: &Map<String, Value>) -> Result<(), Refusal> {
    match params.get("cursor") {
        None | Some(Value::Null) => Ok(()),
        Some(_) => {
            let message = "this cursor is not known; lists here have one page, leave `cursor` out";
            Err(Refusal::new(ErrorCode::InvalidParams, message))
        }
    }
}
