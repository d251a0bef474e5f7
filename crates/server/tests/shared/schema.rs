//! Holds what the server says against the published schema of the revision that was spoken.
//!
//! A [`Wire`] sees both directions of one connection. It remembers what was asked under which id, so that
//! an answer is held against the result of its own method. It knows nothing of transports.

use std::collections::HashMap;
use std::fs;
use std::sync::{Mutex, OnceLock, PoisonError};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::installed;

const MODERN: &str = "2026-07-28";
const LINE_KEPT_MAX: usize = 1 << 20;

/// One connection, as far as its messages must fit together.
#[derive(Default)]
pub(crate) struct Wire {
    /// Agreed upon by `initialize`.
    session: Option<String>,
    /// Whether a request without a session was made.
    modern: bool,
    /// What was asked, by id. Clients that use an id twice are tested too.
    asked: HashMap<String, Vec<Asked>>,
    /// The beginning of a line.
    line: Vec<u8>,
}

#[derive(PartialEq)]
struct Asked {
    method: String,
    modern: bool,
}

impl Wire {
    /// A connection that continues a session, as each request of an HTTP client does.
    pub(crate) fn of(revision: &str) -> Self {
        Self {
            session: (revision != MODERN).then(|| revision.to_owned()),
            modern: revision == MODERN,
            ..Self::default()
        }
    }

    /// Remembers what the client said in lines, which may come in pieces. Lines that are no message, or
    /// too long to be one of ours, are not remembered.
    pub(crate) fn sent_bytes(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() <= LINE_KEPT_MAX {
                let room = LINE_KEPT_MAX + 1 - self.line.len();
                self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                if let Ok(message) = serde_json::from_slice(&line) {
                    self.sent(&message);
                }
            }
        }
    }

    pub(crate) fn sent(&mut self, message: &Value) {
        if let Value::Array(members) = message {
            return members.iter().for_each(|member| self.sent(member));
        }
        let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else {
            return;
        };
        let envelope = &message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        let modern = method == "server/discover" || !envelope.is_null();
        self.modern |= modern;
        let method = method.to_owned();
        let asked = self.asked.entry(id.to_string()).or_default();
        let new = Asked { method, modern };
        if !asked.contains(&new) {
            asked.push(new);
        }
    }

    /// Checks what the server said.
    #[track_caller]
    pub(crate) fn received(&mut self, message: &Value) {
        if let Err(faults) = self.check(message) {
            panic!("the server said what its revision does not know:\n{faults}\n{message}");
        }
    }

    /// Checks the messages of an HTTP body, which is JSON or a stream of events, and returns them.
    #[track_caller]
    pub(crate) fn received_body(&mut self, body: &str) -> Vec<Value> {
        let messages = messages(body);
        for message in &messages {
            self.received(message);
        }
        messages
    }

    /// What is wrong with it, if anything.
    pub(crate) fn check(&mut self, message: &Value) -> Result<(), String> {
        if let Value::Array(members) = message {
            let batches = self.session.as_deref() == Some("2025-03-26");
            return match members.iter().find_map(|member| self.check(member).err()) {
                Some(faults) => Err(faults),
                None if batches && !members.is_empty() => Ok(()),
                None => Err("  a batch, which this revision has not".to_owned()),
            };
        }
        if let Some(method) = message["method"].as_str() {
            return any(self.spoken(), |revision| {
                fits(revision, schema_of(revision)?.named(method), message)
            });
        }
        // JSON-RPC wants a null id where none could be read; the schemas have no words for that.
        if message["id"].is_null() {
            let mut answer = message.clone();
            answer["id"] = json!(0);
            return any(self.spoken(), |revision| {
                fits(revision, schema_of(revision)?.error(), &answer)
            });
        }
        let id = message["id"].to_string();
        let Some(asked) = self.asked.get(&id) else {
            return any(self.spoken(), |revision| fits(revision, "JSONRPCMessage", message));
        };
        let hello = |asked: &Asked| asked.method == "initialize" && !asked.modern;
        if self.session.is_none() && asked.iter().any(hello) {
            self.session = message["result"]["protocolVersion"].as_str().map(str::to_owned);
        }
        // Before a session there is no revision; the newest one with sessions is as good as any.
        let session = self.session.as_deref().unwrap_or("2025-11-25");
        any(asked.iter(), |asked| {
            let revision = if asked.modern { MODERN } else { session };
            fits_request(revision, &asked.method, message)
        })
    }

    /// The revisions spoken on this connection, for messages that name none.
    fn spoken(&self) -> impl Iterator<Item = &str> {
        let modern = self.modern.then_some(MODERN);
        let session = self.session.as_deref().or(modern.xor(Some("2025-11-25")));
        session.into_iter().chain(modern)
    }
}

/// The messages of a body. Events without data, such as the one that primes a stream, and comments have none;
/// the event that names an endpoint is not a message.
fn messages(body: &str) -> Vec<Value> {
    let json = |text: &str| serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    if body.trim_start().starts_with(['{', '[']) {
        return vec![json(body)];
    }
    let body = body.replace("\r\n", "\n");
    let events = body.split("\n\n").filter_map(|event| {
        let field = |name: &str| {
            let lines = event.lines().filter_map(|line| line.strip_prefix(name));
            lines
                .map(|value| value.strip_prefix(' ').unwrap_or(value))
                .collect::<Vec<_>>()
        };
        let data = field("data:").join("\n");
        let is_message = field("event:").first().is_none_or(|kind| *kind == "message");
        (is_message && !data.is_empty()).then_some(data)
    });
    events.map(|data| json(&data)).collect()
}

/// Whether one of several ways to understand a message fits; the first one's faults, if none does.
fn any<T>(mut ways: impl Iterator<Item = T>, fits: impl Fn(T) -> Result<(), String>) -> Result<(), String> {
    let first = match ways.next().map(&fits) {
        Some(Err(faults)) => faults,
        Some(Ok(())) | None => return Ok(()),
    };
    if ways.any(|way| fits(way).is_ok()) {
        Ok(())
    } else {
        Err(first)
    }
}

/// Whether an answer is one to a method.
fn fits_request(revision: &str, method: &str, answer: &Value) -> Result<(), String> {
    let schema = schema_of(revision)?;
    if answer.get("error").is_some() {
        return fits(revision, schema.error_of(&answer["error"]["code"]), answer);
    }
    fits(revision, "JSONRPCMessage", answer)?;
    let result = &answer["result"];
    fits(revision, schema.result_of(method, result), result)
}

/// The schema of one revision, and which of its definitions stands for what.
struct Schema {
    document: Value,
    /// `definitions` or `$defs`.
    section: &'static str,
    methods: HashMap<String, String>,
    validators: Mutex<HashMap<String, &'static Validator>>,
}

/// No schema is installed: there is nothing to hold a message against.
const NO_SCHEMA: &str = "";

fn schema_of(revision: &str) -> Result<&'static Schema, String> {
    static SCHEMAS: OnceLock<HashMap<String, Schema>> = OnceLock::new();
    let schemas = SCHEMAS.get_or_init(|| match installed::find("schemas") {
        None => HashMap::from([(NO_SCHEMA.to_owned(), Schema::of(json!({"$defs": {}})))]),
        Some(folder) => fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| {
                let path = entry.expect("an entry").path();
                let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
                let text = fs::read(path).expect("readable");
                (name, Schema::of(serde_json::from_slice(&text).expect("JSON")))
            })
            .collect(),
    });
    let schema = schemas.get(NO_SCHEMA).or_else(|| schemas.get(revision));
    schema.ok_or_else(|| format!("there is no schema of `{revision}`"))
}

/// Whether a value is what a definition of a revision says.
fn fits(revision: &str, definition: &str, value: &Value) -> Result<(), String> {
    let schema = schema_of(revision)?;
    if schema.definitions().is_empty() {
        return Ok(());
    }
    let faults: Vec<String> = schema
        .validator(definition)
        .iter_errors(value)
        .map(|fault| {
            // A fault prints the whole value, which may be a megabyte.
            let said: String = fault.to_string().chars().take(400).collect();
            format!("  {revision} {definition} at `{}`: {said}", fault.instance_path())
        })
        .collect();
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("\n"))
    }
}

impl Schema {
    fn of(document: Value) -> Self {
        let section = if document.get("$defs").is_some() {
            "$defs"
        } else {
            "definitions"
        };
        let mut schema = Self {
            document,
            section,
            methods: HashMap::new(),
            validators: Mutex::default(),
        };
        let unions = |name: &str| name.starts_with("Client") || name.starts_with("Server");
        let methods = schema
            .definitions()
            .iter()
            .filter(|(name, _)| !unions(name))
            .filter_map(|(name, body)| {
                let method = body["properties"]["method"]["const"].as_str()?;
                Some((method.to_owned(), name.clone()))
            })
            .collect();
        schema.methods = methods;
        schema
    }

    fn definitions(&self) -> &Map<String, Value> {
        self.document[self.section].as_object().expect("definitions")
    }

    /// The definition of a request or a notification.
    fn named(&self, method: &str) -> &str {
        self.methods.get(method).map_or("JSONRPCMessage", String::as_str)
    }

    /// The definition of what a method results in. Extensions have none beyond that of a result.
    fn result_of(&self, method: &str, result: &Value) -> &str {
        if result["resultType"] == "input_required" {
            return "InputRequiredResult";
        }
        let core = matches!(result["resultType"].as_str(), None | Some("complete"));
        let request = self.methods.get(method).filter(|_| core);
        let name = request.map(|request| request.replace("Request", "Result"));
        let known = name.and_then(|name| self.definitions().get_key_value(&name));
        known.map_or("Result", |(name, _)| name)
    }

    /// The definition of an error with this code.
    fn error_of(&self, code: &Value) -> &str {
        let has_code = |body: &Value| {
            let parts = body["properties"]["error"]["allOf"].as_array();
            parts.is_some_and(|parts| parts.iter().any(|part| part["properties"]["code"]["const"] == *code))
        };
        let named = self.definitions().iter().find(|(_, body)| has_code(body));
        named.map_or_else(|| self.error(), |(name, _)| name)
    }

    fn error(&self) -> &str {
        let known = |name: &&&str| self.definitions().contains_key(**name);
        ["JSONRPCErrorResponse", "JSONRPCError"]
            .iter()
            .find(known)
            .copied()
            .unwrap_or("JSONRPCMessage")
    }

    fn validator(&self, definition: &str) -> &'static Validator {
        let mut validators = self.validators.lock().unwrap_or_else(PoisonError::into_inner);
        validators.entry(definition.to_owned()).or_insert_with(|| {
            let mut document = self.document.clone();
            document["$ref"] = format!("#/{}/{definition}", self.section).into();
            let validator = jsonschema::options().should_validate_formats(true).build(&document);
            // Compiled once in the life of a test process.
            Box::leak(Box::new(
                validator.unwrap_or_else(|fault| panic!("{definition}: {fault}")),
            ))
        })
    }
}
