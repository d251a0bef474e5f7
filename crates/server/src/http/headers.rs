//! Headers that say something about the message: which answers a client takes, which revision it
//! speaks, and the modern era's copies of what the body says, which must not say anything else.

use axum::http::{HeaderMap, HeaderName, header};
use countersign_gateway::error::{ErrorCode, Refusal, brief};
use serde_json::{Map, Value};

use crate::mcp::jsonrpc::Request;
use crate::mcp::modern;
use crate::mcp::revision::{MODERN, SUPPORTED};

pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// What a client takes for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Accepts {
    pub(super) json: bool,
    /// Only who names it can read a stream; `*/*` is what every program says.
    pub(super) events: bool,
}

impl Accepts {
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let mut accepts = Self {
            json: false,
            events: false,
        };
        let mut values = headers.get_all(header::ACCEPT).iter().peekable();
        if values.peek().is_none() {
            accepts.json = true;
        }
        for range in values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|v| v.split(','))
        {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            if parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000")) {
                continue;
            }
            accepts.json |= matches_any(kind, &["*/*", "application/*", "application/json"]);
            accepts.events |= matches_any(kind, &["text/*", "text/event-stream"]);
        }
        accepts
    }

    /// Whether a stream may be opened that cannot be anything else.
    pub(super) fn stream(headers: &HeaderMap) -> bool {
        let accepts = Self::read(headers);
        let anything = headers.get(header::ACCEPT).is_none_or(|value| {
            let ranges = value.to_str().unwrap_or_default();
            ranges.split(',').any(|range| range.trim().starts_with("*/*"))
        });
        accepts.events || anything
    }
}

fn matches_any(kind: &str, kinds: &[&str]) -> bool {
    kinds.iter().any(|known| kind.eq_ignore_ascii_case(known))
}

/// Whether the body is said to be JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"))
}

/// The revision in the header; none when there is no such header.
pub(super) fn version(headers: &HeaderMap) -> Option<&str> {
    text(headers, VERSION.as_str())
}

/// Refuses a revision that we do not speak.
pub(super) fn check_version(headers: &HeaderMap) -> Result<(), Refusal> {
    match version(headers) {
        None => Ok(()),
        Some(version) if SUPPORTED.contains(&version) => Ok(()),
        Some(version) => {
            let version = &*brief(version);
            let message = format!("protocol version `{version}` is not spoken here");
            Err(Refusal::new(ErrorCode::UnsupportedProtocolVersion, message)
                .with("supported", SUPPORTED.to_vec())
                .with("requested", version))
        }
    }
}

pub(super) fn says_modern(headers: &HeaderMap) -> bool {
    version(headers) == Some(MODERN)
}

/// Refuses headers that say two things: whoever passed the request on may have gone by the other one.
/// hyper refuses a `Content-Length` that does.
pub(super) fn check_repeated(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.keys_len() == headers.len() {
        return Ok(());
    }
    let ours = |name: &&HeaderName| name.as_str().starts_with("mcp-") || **name == LAST_EVENT;
    for name in headers.keys().filter(ours) {
        let mut values = headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii());
        let first = values.next();
        if values.any(|value| Some(value) != first) {
            let message = format!("the header `{name}` comes more than once and says different things; send it once");
            return Err(Refusal::new(ErrorCode::HeaderMismatch, message).with("header", name.as_str()));
        }
    }
    Ok(())
}

/// Holds a modern request against the headers it came with.
pub(super) fn check_modern(headers: &HeaderMap, request: &Request) -> Result<(), Refusal> {
    let told = version(headers).ok_or_else(|| missing("MCP-Protocol-Version"))?;
    match modern::version(&request.params) {
        Some(meant) if meant != told => return Err(differs("MCP-Protocol-Version", told, meant)),
        Some(_) | None => {}
    }
    let method = text(headers, METHOD).ok_or_else(|| missing("Mcp-Method"))?;
    if method != request.method {
        return Err(differs("Mcp-Method", method, &request.method));
    }
    let named = match request.method.as_str() {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return Ok(()),
    };
    // A body that names nothing is refused for that, with a better sentence.
    let Some(Value::String(meant)) = request.params.get(named) else {
        return Ok(());
    };
    let name = text(headers, NAME).ok_or_else(|| missing("Mcp-Name"))?;
    if decoded(name).as_deref() != Some(meant.as_str()) {
        return Err(differs("Mcp-Name", name, meant));
    }
    Ok(())
}

/// Holds a tool's arguments against the headers that its schema asks for by `x-mcp-header`.
pub(super) fn check_parameters(
    headers: &HeaderMap,
    schema: &Value,
    arguments: Option<&Map<String, Value>>,
) -> Result<(), Refusal> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Ok(());
    };
    for (property, schema) in properties {
        let Some(suffix) = schema.get("x-mcp-header").and_then(Value::as_str) else {
            continue;
        };
        let header = format!("Mcp-Param-{suffix}");
        let told = text(headers, &header);
        let meant = match arguments.and_then(|arguments| arguments.get(property)) {
            None | Some(Value::Null) => None,
            Some(Value::String(meant)) => Some(meant.clone()),
            Some(other) => Some(other.to_string()),
        };
        match (told, meant) {
            (None, None) => {}
            (None, Some(_)) => return Err(missing(&header)),
            (Some(told), Some(meant)) if decoded(told).as_deref() == Some(meant.as_str()) => {}
            (Some(told), meant) => return Err(differs(&header, told, &meant.unwrap_or_default())),
        }
    }
    Ok(())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

fn missing(header: &str) -> Refusal {
    let message = format!("the header `{header}` is missing; it must repeat what the body says");
    Refusal::new(ErrorCode::HeaderMismatch, message).with("header", header)
}

fn differs(header: &str, told: &str, meant: &str) -> Refusal {
    let (told, meant) = (brief(told), brief(meant));
    let message = format!("the header `{header}` says `{told}` and the body says `{meant}`");
    Refusal::new(ErrorCode::HeaderMismatch, message).with("header", header)
}

/// A header's value, out of `=?base64?…?=` where it is wrapped so. None when that is broken.
fn decoded(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(wrapped) => String::from_utf8(base64(wrapped)?).ok(),
        None => Some(value.to_owned()),
    }
}

/// Standard base64 with its padding, and nothing looser.
fn base64(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let body = text.trim_end_matches('=');
    if text.len() - body.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(body.len());
    let (mut bits, mut count) = (0_u32, 0);
    for byte in body.bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(digit)) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use serde_json::json;

    fn accepts(values: &[&str]) -> (bool, bool) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::ACCEPT, HeaderValue::from_str(value).unwrap());
        }
        let accepts = Accepts::read(&headers);
        (accepts.json, accepts.events)
    }

    #[test]
    fn a_stream_is_only_for_who_names_it() {
        for (values, expected) in [
            (&[][..], (true, false)),
            (&["*/*"], (true, false)),
            (&["application/json"], (true, false)),
            (&["application/*;q=0.5"], (true, false)),
            (&["application/json, text/event-stream"], (true, true)),
            (&["application/json", "Text/Event-Stream"], (true, true)),
            (&["text/event-stream"], (false, true)),
            (&["text/event-stream;q=0, application/json"], (true, false)),
            (&["text/html"], (false, false)),
            (&[""], (false, false)),
        ] {
            assert_eq!(accepts(values), expected, "{values:?}");
        }
    }

    #[test]
    fn wrapped_values_are_unwrapped_and_broken_ones_refused() {
        for (value, expected) in [
            ("Hello", Some("Hello")),
            ("=?base64?SGVsbG8=?=", Some("Hello")),
            ("=?base64?SGVsbG8?=", None),
            ("=?base64?SGVs!!!bG8=?=", None),
            ("SGVsbG8=", Some("SGVsbG8=")),
            ("=?base64?SGVsbG8=", Some("=?base64?SGVsbG8=")),
            ("=?base64??=", Some("")),
            ("=?base64?====?=", None),
            ("=?base64?w6k=?=", Some("é")),
            ("=?base64?/w==?=", None),
        ] {
            assert_eq!(decoded(value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn what_a_client_makes_up_is_not_repeated_at_length() {
        let long = "x".repeat(5_000);
        let mut headers = HeaderMap::new();
        headers.insert(VERSION, HeaderValue::from_str(&long).unwrap());
        let unspoken = check_version(&headers).unwrap_err();
        let schema = json!({"properties": {"region": {"x-mcp-header": "Region"}}});
        headers.insert("mcp-param-region", HeaderValue::from_static("eu"));
        let arguments = json!({"region": long});
        let other = check_parameters(&headers, &schema, arguments.as_object()).unwrap_err();
        for refusal in [unspoken, other] {
            assert!(refusal.message.len() < 1_000, "{}", refusal.message.len());
            assert!(Value::Object(refusal.details).to_string().len() < 1_000);
        }
    }

    #[test]
    fn a_parameter_and_its_header_say_the_same() {
        let schema = json!({"properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "n": {}}});
        let check = |header: Option<&str>, arguments: Value| {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert("mcp-param-region", HeaderValue::from_str(header).unwrap());
            }
            check_parameters(&headers, &schema, arguments.as_object()).is_ok()
        };
        for (header, arguments, fits) in [
            (Some("eu"), json!({"region": "eu", "n": 1}), true),
            (Some("us"), json!({"region": "eu"}), false),
            (None, json!({"region": "eu"}), false),
            (None, json!({"n": 1}), true),
            (Some("eu"), json!({}), false),
            (Some("7"), json!({"region": 7}), true),
        ] {
            assert_eq!(check(header, arguments.clone()), fits, "{header:?} {arguments}");
        }
    }
}
