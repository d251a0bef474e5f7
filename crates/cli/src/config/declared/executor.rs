//! Who does the work of a declared tool, as its file says.

use countersign_gateway::audit::redact::is_secret_name;
use countersign_gateway::policy::effective::{Network, SandboxMode};
use countersign_gateway::tools::declared::schema::Schema;
use countersign_gateway::tools::declared::template::{Document, TemplateError, Text};
use countersign_gateway::tools::declared::{Argv, Element, Executor, Http, Method, Url, asks_a_shell};
use countersign_integrations::http::{Endpoint, Header};

use super::{Desk, flag, keys, text, word};
use crate::config::secret::Secret;
use crate::config::shape::{self, Faults};
use crate::config::tree::{Node, Value};

const ARGV: &[&str] = &["type", "command", "cwd", "env", "sandbox", "network"];
const HTTP: &[&str] = &["type", "url", "method", "headers", "async", "spec"];

#[derive(Clone, Copy)]
enum Kind {
    Argv,
    Http,
}

pub(super) fn read(node: &Node, input: Option<&Schema>, desk: &mut Desk<'_>, faults: &mut Faults) -> Option<Executor> {
    let Some(kind) = node.get("type") else {
        faults.push((node.at, "`executor.type` is missing; it is `argv` or `http`".to_owned()));
        return None;
    };
    match word(
        kind,
        "executor.type",
        &[("argv", Kind::Argv), ("http", Kind::Http)],
        faults,
    )? {
        Kind::Argv => argv(node, input, faults).map(Executor::Argv),
        Kind::Http => http(node, input, desk, faults).map(Executor::Http),
    }
}

/// A text with room for one argument, which the schema must describe.
fn template(node: &Node, field: &str, input: Option<&Schema>, faults: &mut Faults) -> Option<Text> {
    let parsed = Text::parse(text(node, field, faults)?);
    let checked = parsed.and_then(|parsed| match (parsed.argument(), input) {
        (Some(name), Some(schema)) => described(name, schema).map(|()| parsed),
        (Some(_), None) | (None, _) => Ok(parsed),
    });
    match checked {
        Ok(parsed) => Some(parsed),
        Err(error) => {
            faults.push((node.at, format!("`{field}`: {error}")));
            None
        }
    }
}

/// An argument that fills one text must be one.
fn described(name: &str, schema: &Schema) -> Result<(), TemplateError> {
    has(name, schema)?;
    match schema.is_scalar(name) {
        true => Ok(()),
        false => Err(TemplateError::NotScalar(name.to_owned())),
    }
}

fn has(name: &str, schema: &Schema) -> Result<(), TemplateError> {
    match schema.properties().any(|(known, _)| known == name) {
        true => Ok(()),
        false => Err(TemplateError::NoProperty(name.to_owned())),
    }
}

fn argv(node: &Node, input: Option<&Schema>, faults: &mut Faults) -> Option<Argv> {
    let before = faults.len();
    keys(node, "executor", ARGV, faults);
    let command = node.get("command");
    let items = command.map_or(&[][..], Node::items);
    let Some((first, rest)) = items.split_first() else {
        let at = command.map_or(node.at, |command| command.at);
        faults.push((
            at,
            "`executor.command` must be a list: a program and its arguments".to_owned(),
        ));
        return None;
    };
    let program = text(first, "executor.command", faults).unwrap_or_default();
    if program.contains("{{") {
        faults.push((
            first.at,
            "`executor.command`: the program itself is never filled".to_owned(),
        ));
    } else if !shape::program(program) {
        let message = "`executor.command` begins with a program: a bare name, or an absolute path";
        faults.push((first.at, message.to_owned()));
    }
    let mut elements = Vec::new();
    for item in rest {
        match &item.value {
            Value::List(group) if !group.is_empty() => {
                let texts: Vec<Text> = group
                    .iter()
                    .filter_map(|it| template(it, "executor.command", input, faults))
                    .collect();
                elements.push(Element::Together(texts));
            }
            _ => elements.extend(template(item, "executor.command", input, faults).map(Element::One)),
        }
    }
    if asks_a_shell(program, &elements) {
        let message = format!(
            "`executor.command`: an argument would become text that `{program}` runs; write the script into the file \
             and give arguments behind it"
        );
        faults.push((first.at, message));
    }
    let cwd = node
        .get("cwd")
        .and_then(|it| template(it, "executor.cwd", input, faults));
    let mut env = Vec::new();
    if let Some(given) = node.get("env") {
        if !matches!(given.value, Value::Map(_)) {
            faults.push((given.at, "`executor.env` must be a map of variables".to_owned()));
        }
        for pair in given.pairs() {
            let is_name = pair.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && pair.name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            if !is_name || matches!(&*pair.name, "PATH" | "HOME") || is_guarded(&pair.name) {
                let message = format!("`executor.env.{}` is no variable that may be set", pair.name);
                faults.push((pair.at, message));
            }
            let value = template(&pair.node, "executor.env", input, faults);
            env.extend(value.map(|value| (pair.name.clone(), value)));
        }
    }
    let sandbox = node
        .get("sandbox")
        .and_then(|it| word(it, "executor.sandbox", SandboxMode::WORDS, faults));
    let network = node
        .get("network")
        .and_then(|it| word(it, "executor.network", Network::WORDS, faults));
    (faults.len() == before).then(|| Argv {
        program: program.to_owned(),
        elements,
        cwd,
        env,
        sandbox,
        network,
    })
}

fn is_guarded(name: &str) -> bool {
    countersign_gateway::policy::allowlist::is_guarded_variable(name)
}

fn http(node: &Node, input: Option<&Schema>, desk: &mut Desk<'_>, faults: &mut Faults) -> Option<Http> {
    let before = faults.len();
    keys(node, "executor", HTTP, faults);
    let url = url(node, input, faults);
    let method = match node.get("method") {
        Some(it) => word(it, "executor.method", Method::WORDS, faults),
        None => Some(Method::Post),
    };
    let answers_later = node
        .get("async")
        .and_then(|it| flag(it, "executor.async", faults))
        .unwrap_or(false);
    let at = node.get("async").and_then(|it| it.at);
    if answers_later && method.is_some_and(|method| !method.has_body()) {
        let message = "`executor.async`: a request without a body cannot say where to call back; use POST";
        faults.push((at, message.to_owned()));
    }
    if answers_later && !desk.has_callbacks {
        let message = "`executor.async` needs `callbacks: {token: …}` or `COUNTERSIGN_CALLBACK_TOKEN`";
        faults.push((at, message.to_owned()));
    }
    let headers = headers(node, input, desk, faults);
    let spec = spec(node, input, faults);
    let (url, method, spec) = (url?, method?, spec?);
    (faults.len() == before).then_some(Http {
        method,
        url,
        headers,
        answers_later,
        spec,
    })
}

fn url(node: &Node, input: Option<&Schema>, faults: &mut Faults) -> Option<Url> {
    let Some(written) = node.get("url") else {
        faults.push((node.at, "`executor.url` is missing".to_owned()));
        return None;
    };
    let mut wrong = |message: String| faults.push((written.at, format!("`executor.url`: {message}")));
    let url = match Url::parse(written.text().unwrap_or_default()) {
        Ok(url) => url,
        Err(error) => {
            wrong(error.to_string());
            return None;
        }
    };
    if let Err(error) = Endpoint::parse(&url.example()) {
        wrong(error.to_string());
        return None;
    }
    for name in url.arguments() {
        if let Some(Err(error)) = input.map(|schema| described(name, schema)) {
            wrong(error.to_string());
        }
    }
    Some(url)
}

/// Names and values; `NAME_env` and `NAME_file` say where a secret value is.
fn headers(node: &Node, input: Option<&Schema>, desk: &mut Desk<'_>, faults: &mut Faults) -> Vec<(String, Text)> {
    let mut headers: Vec<(String, Text)> = Vec::new();
    let Some(given) = node.get("headers") else {
        return headers;
    };
    if !matches!(given.value, Value::Map(_)) {
        faults.push((given.at, "`executor.headers` must be a map of headers".to_owned()));
    }
    for pair in given.pairs() {
        let secret = |name: &str, make: fn(String) -> Secret| {
            let place = pair.node.text().unwrap_or_default().to_owned();
            (name.to_owned(), Some(make(place)))
        };
        let (name, secret) = match (pair.name.strip_suffix("_env"), pair.name.strip_suffix("_file")) {
            (Some(name), _) => secret(name, Secret::Variable),
            (None, Some(name)) => secret(name, |place| Secret::File(place.into())),
            (None, None) => (pair.name.clone(), None),
        };
        let value = match secret {
            Some(secret) => match secret.read(desk.surroundings) {
                Ok(value) => {
                    desk.secrets.push(value.clone());
                    Some(Text::Plain(value))
                }
                Err(error) => {
                    faults.push((pair.at, format!("`executor.headers.{}`: {error:#}", pair.name)));
                    None
                }
            },
            None => template(&pair.node, "executor.headers", input, faults),
        };
        let Some(value) = value else { continue };
        if let Text::Plain(plain) = &value {
            if let Err(error) = Header::new(&name, plain) {
                faults.push((pair.at, format!("`executor.headers`: {error}")));
            }
            if is_secret_name(&name) || name.eq_ignore_ascii_case("authorization") {
                desk.secrets.push(plain.clone());
            }
        } else if let Err(error) = Header::name(&name) {
            faults.push((pair.at, format!("`executor.headers`: {error}")));
        }
        if headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
            faults.push((pair.at, format!("`executor.headers`: `{name}` is given twice")));
        }
        headers.push((name, value));
    }
    headers
}

fn spec(node: &Node, input: Option<&Schema>, faults: &mut Faults) -> Option<Document> {
    let nothing = Document::parse(serde_json::Value::Null).map(|(document, _)| document);
    let Some(written) = node.get("spec") else {
        return nothing.ok();
    };
    let parsed = Document::parse(written.to_json()).and_then(|(document, named)| {
        if let Some(schema) = input {
            named.iter().try_for_each(|name| has(name, schema))?;
        }
        Ok(document)
    });
    match parsed {
        Ok(document) => Some(document),
        Err(error) => {
            faults.push((written.at, format!("`executor.spec`: {error}")));
            None
        }
    }
}
