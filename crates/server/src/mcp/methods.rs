//! Methods that are answered at once: listings, resources, discovery, and whatever does not exist.

use std::time::Duration;

use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::session::Caller;
use countersign_gateway::session::lifetime::ClientInfo;
use serde_json::{Map, Value, json};

use super::host::Host;
use super::revision::{Era, Legacy, SUPPORTED};
use super::{resources, tools, wire};
use crate::limits::{CACHE_TTL, CAPABILITIES_BYTES_MAX, CLIENT_NAME_CHARS_MAX};

/// Answers a request other than `initialize` and `tools/call`.
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
            let tools = tools::list(&host.service.tools(caller), era);
            // What is listed depends on the credential.
            Ok(listed("tools", tools, era, CacheScope::Private))
        }
        ("resources/list", era) => {
            refuse_cursor(params)?;
            Ok(listed("resources", resources::list(era), era, CacheScope::Public))
        }
        ("resources/templates/list", era) => {
            refuse_cursor(params)?;
            Ok(listed("resourceTemplates", json!([]), era, CacheScope::Public))
        }
        ("resources/read", era) => Ok(listed("contents", resources::read(params)?, era, CacheScope::Public)),
        ("ping", Era::Legacy(_)) => Ok(json!({})),
        ("server/discover", Era::Modern) => {
            let mut result = listed("supportedVersions", json!(SUPPORTED), era, CacheScope::Public);
            result["capabilities"] = wire::capabilities();
            Ok(result)
        }
        (unknown, _) => Err(unknown_method(unknown)),
    }
}

/// A session that may begin.
pub(crate) struct Opening {
    /// What is spoken from now on.
    pub(crate) revision: Legacy,
    pub(crate) client: ClientInfo,
    pub(crate) result: Value,
}

/// Reads a handshake; the answer names the revision that is spoken from now on.
pub(crate) fn initialize(params: &Map<String, Value>) -> Result<Opening, Refusal> {
    let Some(Value::String(version)) = params.get("protocolVersion") else {
        let message = "`params.protocolVersion` must be text that names a protocol version";
        return Err(Refusal::new(ErrorCode::InvalidParams, message));
    };
    let revision = Legacy::negotiate(version);
    let result = json!({
        "protocolVersion": revision.as_str(),
        "capabilities": wire::capabilities(),
        "serverInfo": wire::server_info(Era::Legacy(revision)),
    });
    let told = |name: &str| {
        let text = params.get("clientInfo")?.get(name)?.as_str()?;
        Some(text.chars().take(CLIENT_NAME_CHARS_MAX).collect())
    };
    let capabilities = params
        .get("capabilities")
        .filter(|capabilities| capabilities.is_object());
    let client = ClientInfo {
        name: told("name"),
        version: told("version"),
        protocol_version: Some(revision.as_str().to_owned()),
        capabilities: capabilities
            .map(Value::to_string)
            .filter(|text| text.len() <= CAPABILITIES_BYTES_MAX),
    };
    Ok(Opening {
        revision,
        client,
        result,
    })
}

fn unknown_method(method: &str) -> Refusal {
    Refusal::new(ErrorCode::MethodNotFound, format!("there is no method `{method}` here"))
}

/// Who may share what a client keeps of a result.
enum CacheScope {
    Private,
    Public,
}

fn listed(name: &str, value: Value, era: Era, scope: CacheScope) -> Value {
    let mut result = Map::new();
    result.insert(name.to_owned(), value);
    if era == Era::Modern {
        let scope = match scope {
            CacheScope::Private => "private",
            CacheScope::Public => "public",
        };
        result.insert("resultType".to_owned(), "complete".into());
        result.insert("ttlMs".to_owned(), millis(CACHE_TTL).into());
        result.insert("cacheScope".to_owned(), scope.into());
        result.insert("_meta".to_owned(), wire::modern_meta().into());
    }
    Value::Object(result)
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
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
