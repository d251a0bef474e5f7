//! JSON-RPC frames: bytes in, a checked [`Incoming`] out.
//!
//! Whatever is wrong with a frame is a [`Malformed`], which knows the id to answer with. Methods and
//! their parameters are not looked at here.

use std::sync::Arc;

use countersign_gateway::error::{ErrorCode, Refusal};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Number, Value};

use super::questions::{ClientError, Told};
use crate::limits::{CLIENT_MESSAGE_CHARS_MAX, ID_BYTES_MAX, VALUES_MAX};
use crate::strict::Strict;

/// One message, or several.
#[derive(Debug, PartialEq)]
pub(crate) enum Incoming {
    One(Message),
    /// Members are checked one by one, so that one bad member does not spoil the rest.
    Batch(Vec<Value>),
}

#[derive(Debug, PartialEq)]
pub(crate) enum Message {
    Request(Request),
    Notification { method: String, params: Map<String, Value> },
    Response(Response),
}

/// What a client says to a question of ours, or makes up.
#[derive(Debug, PartialEq)]
pub(crate) struct Response {
    /// None when it cannot be one of ours: we use text.
    pub(crate) id: Option<String>,
    pub(crate) told: Told,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) id: Id,
    pub(crate) method: String,
    pub(crate) params: Map<String, Value>,
}

/// A request id as the client wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    Number(Number),
    Text(Arc<str>),
}

/// A frame that is not a message.
#[derive(Debug, PartialEq)]
pub(crate) struct Malformed {
    /// None is answered with a null id.
    pub(crate) id: Option<Id>,
    pub(crate) refusal: Box<Refusal>,
}

/// Reads one frame.
pub(crate) fn parse(bytes: &[u8], depth_max: usize) -> Result<Incoming, Malformed> {
    match measure(bytes, depth_max) {
        Measured::Fits => {}
        Measured::TooDeep => {
            let message = format!("the message nests deeper than {depth_max} levels");
            return Err(Malformed::unreadable(None, message));
        }
        Measured::TooMany => {
            let message = format!("the message holds more than {VALUES_MAX} values; split it, or send a text");
            return Err(Malformed::unreadable(salvaged_id(bytes), message));
        }
    }
    // The depth is known to be small, so the parser's own guard, which stops one level short of
    // what we promise and cannot be set, is not needed.
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    reader.disable_recursion_limit();
    let value = Strict::deserialize(&mut reader)
        .and_then(|Strict(value)| reader.end().map(|()| value))
        .map_err(|error| {
            let message = format!("the message is not valid JSON: {error}");
            Malformed::unreadable(salvaged_id(bytes), message)
        })?;
    match value {
        Value::Array(members) => Ok(Incoming::Batch(members)),
        other => message(other).map(Incoming::One),
    }
}

/// Checks one JSON value that should be a message.
pub(crate) fn message(value: Value) -> Result<Message, Malformed> {
    let Value::Object(mut fields) = value else {
        return Err(Malformed::invalid(None, "a message is a JSON object"));
    };
    if !fields.contains_key("method") && (fields.contains_key("result") || fields.contains_key("error")) {
        return response(fields);
    }
    let id = match fields.remove("id") {
        None => None,
        Some(value) => Some(Id::read(value)?),
    };
    if fields.contains_key("result") || fields.contains_key("error") {
        let message = "a message with `method` is a request and has no `result` or `error`";
        return Err(Malformed::invalid(id, message));
    }
    if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(Malformed::invalid(id, "`jsonrpc` must be \"2.0\""));
    }
    let method = match fields.remove("method") {
        Some(Value::String(method)) if !method.is_empty() => method,
        Some(_) => return Err(Malformed::invalid(id, "`method` must be text that is not empty")),
        None => return Err(Malformed::invalid(id, "`method` is missing")),
    };
    let params = match fields.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) if id.is_some() => {
            let refusal = Refusal::new(ErrorCode::InvalidParams, "`params` must be an object");
            return Err(Malformed::new(id, refusal));
        }
        // A bad notification gets no answer, and none of ours needs what it carries.
        Some(_) => Map::new(),
    };
    Ok(match id {
        Some(id) => Message::Request(Request { id, method, params }),
        None => Message::Notification { method, params },
    })
}

/// The id of a request whose text is not what we take, where the message can be made out around that: half of a pair of
/// surrogates, say, or a name that stands twice. Who sent it waits for an answer with its own id. Nothing is kept of the
/// rest, so this costs no memory.
fn salvaged_id(bytes: &[u8]) -> Option<Id> {
    #[derive(Deserialize)]
    struct Outline {
        id: Value,
        #[serde(rename = "method")]
        _method: IgnoredAny,
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let Outline { id, .. } = serde_json::from_str(text).ok()?;
    Id::try_from(id).ok()
}

/// An answer is never answered, however it looks: two that find fault with one another never end.
fn response(mut fields: Map<String, Value>) -> Result<Message, Malformed> {
    let id = match fields.remove("id") {
        Some(Value::String(id)) => Some(id),
        _ => None,
    };
    let told = match (fields.remove("result"), fields.remove("error")) {
        (Some(result), None) => Ok(result),
        (_, error) => {
            let error = error.unwrap_or_default();
            let message = error["message"].as_str().unwrap_or("no reason given");
            Err(ClientError {
                code: error["code"].as_i64().unwrap_or(0),
                message: message.chars().take(CLIENT_MESSAGE_CHARS_MAX).collect(),
            })
        }
    };
    Ok(Message::Response(Response { id, told }))
}

impl Id {
    /// The id as JSON text.
    pub(crate) fn to_json(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => Value::from(&**text).to_string(),
        }
    }

    fn read(value: Value) -> Result<Self, Malformed> {
        Self::try_from(value).map_err(|_| {
            let message = format!("`id` must be an integer, or text of at most {ID_BYTES_MAX} bytes");
            Malformed::invalid(None, &message)
        })
    }
}

/// A value that cannot be an id.
#[derive(Debug)]
pub(crate) struct NotAnId;

impl TryFrom<Value> for Id {
    type Error = NotAnId;

    fn try_from(value: Value) -> Result<Self, NotAnId> {
        match value {
            Value::Number(number) if number.is_i64() || number.is_u64() => Ok(Self::Number(number)),
            Value::String(text) if text.len() <= ID_BYTES_MAX => Ok(Self::Text(text.into())),
            _ => Err(NotAnId),
        }
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl Malformed {
    pub(crate) fn new(id: Option<Id>, refusal: Refusal) -> Self {
        let refusal = Box::new(refusal);
        Self { id, refusal }
    }

    pub(crate) fn invalid(id: Option<Id>, message: &str) -> Self {
        Self::new(id, Refusal::new(ErrorCode::InvalidRequest, message))
    }

    fn unreadable(id: Option<Id>, message: String) -> Self {
        Self::new(id, Refusal::new(ErrorCode::ParseError, message))
    }
}

/// How a message compares with what one may hold.
#[derive(Debug, PartialEq)]
enum Measured {
    Fits,
    /// Arrays and objects stand inside one another more often than they may.
    TooDeep,
    /// It holds more than [`VALUES_MAX`] values.
    TooMany,
}

/// Measures a message before anything is made of it: a value takes many times the memory of its text.
///
/// Runs over the bytes without recursion. For as long as the text is valid JSON it sees the same
/// strings and brackets as the parser, and the parser stops at the first byte that is not.
fn measure(bytes: &[u8], depth_max: usize) -> Measured {
    let mut depth = 0_usize;
    // The message itself, one behind each comma, and the first in each array or object that has one.
    let mut values = 1_usize;
    let mut just_opened = false;
    let mut in_text = false;
    let mut escaped = false;
    for byte in bytes {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        if just_opened && !byte.is_ascii_whitespace() {
            just_opened = false;
            values += usize::from(!matches!(byte, b']' | b'}'));
        }
        match byte {
            b'"' => in_text = true,
            b',' => values += 1,
            b'[' | b'{' => {
                just_opened = true;
                depth += 1;
                if depth > depth_max {
                    return Measured::TooDeep;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if values > VALUES_MAX {
            return Measured::TooMany;
        }
    }
    Measured::Fits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        let arrays = levels - 2;
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":{}{}}}}}"#,
            "[".repeat(arrays),
            "]".repeat(arrays)
        )
    }

    #[test]
    fn the_depth_limit_holds_exactly() {
        for (levels, fits) in [(127, true), (128, true), (129, false), (100_000, false)] {
            let parsed = parse(nested(levels).as_bytes(), 128);
            assert_eq!(parsed.is_ok(), fits, "{levels} levels");
            if let Err(malformed) = parsed {
                assert_eq!(malformed.refusal.code, ErrorCode::ParseError);
            }
        }
    }

    #[test]
    fn a_message_holds_so_many_values_and_no_more() {
        // The message, its id, its method, its params and an array are five values themselves.
        let holding = |values: usize| {
            let numbers = vec!["0"; values - 6].join(", ");
            format!(r#"{{"id":"a,b","method":"ping","params":{{"a":[{{}}, {numbers}]}},"jsonrpc":"2.0"}}"#)
        };
        let parsed = |values: usize| parse(holding(values - 1).as_bytes(), 128);
        assert!(parsed(VALUES_MAX).is_ok());
        let refused = parsed(VALUES_MAX + 1).unwrap_err();
        assert_eq!(refused.id, Some(Id::Text("a,b".into())));
        assert_eq!(refused.refusal.code, ErrorCode::ParseError);
        assert!(refused.refusal.message.contains("200000 values"));
        let keys: Vec<String> = (0..VALUES_MAX).map(|number| format!(r#""{number}":1"#)).collect();
        assert_eq!(
            measure(format!("{{{}}}", keys.join(",")).as_bytes(), 128),
            Measured::TooMany
        );
    }

    #[test]
    fn the_id_of_a_message_that_cannot_be_read_is_found_where_the_message_can_be_made_out() {
        let number = |id: i64| Some(Id::Number(id.into()));
        for (text, id) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":"\ud83d"}}"#,
                number(7),
            ),
            (
                r#"{"jsonrpc":"2.0","params":{"a":["\udc00x"]},"method":"ping","id":7}"#,
                number(7),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"x","method":"\ud83d"}"#,
                Some(Id::Text("x".into())),
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":1,"a":2}}"#,
                number(7),
            ),
            // It is said twice, not said, or no id.
            (r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}"#, None),
            (r#"{"jsonrpc":"2.0","id":"\ud83d","method":"ping"}"#, None),
            (r#"{"jsonrpc":"2.0","id":[7],"method":"\ud83d"}"#, None),
            (r#"{"jsonrpc":"2.0","id":null,"method":"\ud83d"}"#, None),
            (r#"{"jsonrpc":"2.0","method":"\ud83d"}"#, None),
            // An answer, whose id is one of ours.
            (r#"{"jsonrpc":"2.0","id":"x","result":"\ud83d"}"#, None),
            // The rest is no message.
            (r#"{"jsonrpc":"2.0","id":7,"method":"\ud83d"} x"#, None),
            (r#"{"jsonrpc":"2.0","id":7,"method":"\ud83d""#, None),
            (r#"[{"jsonrpc":"2.0","id":7,"method":"\ud83d"}]"#, None),
        ] {
            let malformed = parse(text.as_bytes(), 128).unwrap_err();
            assert_eq!(
                (malformed.id, malformed.refusal.code),
                (id, ErrorCode::ParseError),
                "{text}"
            );
        }
    }

    #[test]
    fn what_asks_and_answers_at_once_is_no_message() {
        for answer in [r#""result":{}"#, r#""error":{"code":1,"message":"x"}"#] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"ping",{answer}}}"#);
            let malformed = parse(text.as_bytes(), 128).unwrap_err();
            assert_eq!(malformed.id, Some(Id::Number(7.into())));
            assert_eq!(malformed.refusal.code, ErrorCode::InvalidRequest);
        }
    }

    #[test]
    fn brackets_inside_text_do_not_nest() {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":"\"{}\\"}}}}"#,
            "[".repeat(500)
        );
        assert!(parse(text.as_bytes(), 128).is_ok());
    }

    #[test]
    fn only_integers_and_text_are_ids() {
        for (id, fits) in [
            ("1", true),
            ("-1", true),
            ("0", true),
            ("18446744073709551615", true),
            (r#""a""#, true),
            (r#""""#, true),
            ("null", false),
            ("1.5", false),
            ("1.0", false),
            ("1e3", false),
            ("18446744073709551616", false),
            ("true", false),
            ("[1]", false),
            ("{}", false),
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            match parse(text.as_bytes(), 128) {
                Ok(_) => assert!(fits, "{id} was taken"),
                Err(malformed) => {
                    assert!(!fits, "{id} was refused");
                    assert_eq!(
                        (malformed.id, malformed.refusal.code),
                        (None, ErrorCode::InvalidRequest)
                    );
                }
            }
        }
    }

    #[test]
    fn a_long_id_is_refused() {
        for (length, fits) in [(ID_BYTES_MAX, true), (ID_BYTES_MAX + 1, false)] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(length));
            assert_eq!(parse(text.as_bytes(), 128).is_ok(), fits, "{length}");
        }
    }

    #[test]
    fn no_object_has_a_name_twice() {
        let text = |params: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{params}}}"#);
        for (params, fits) in [
            (r#"{"a":1,"b":1}"#, true),
            (r#"{"a":{"a":[{"a":1}]}}"#, true),
            (r#"{"a":1,"a":1}"#, false),
            (r#"{"a":1,"\u0061":2}"#, false),
            (r#"{"x":[{"a":1,"b":2,"a":3}]}"#, false),
        ] {
            assert_eq!(parse(text(params).as_bytes(), 128).is_ok(), fits, "{params}");
        }
        let twice = br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#;
        assert_eq!(parse(twice, 128).unwrap_err().refusal.code, ErrorCode::ParseError);
    }

    #[test]
    fn a_strict_value_is_the_same_value() {
        let text = r#"[null,true,false,0,-1,1.5,1e300,18446744073709551615,-9223372036854775808,"x\u00e9",[],{},{"a":[{"b":null}]}]"#;
        let Strict(strict) = serde_json::from_str(text).unwrap();
        assert_eq!(strict, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn an_answer_is_never_answered() {
        for text in [
            r#"{"jsonrpc":"2.0","id":"a","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}"#,
            r#"{"id":[],"error":5}"#,
            r#"{"result":1,"error":2}"#,
        ] {
            let parsed = parse(text.as_bytes(), 128);
            assert!(matches!(parsed, Ok(Incoming::One(Message::Response(_)))), "{text}");
        }
    }
}
