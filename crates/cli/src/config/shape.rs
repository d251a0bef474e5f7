//! The shapes a value may have: what is accepted, what it is turned into, what is said otherwise.
//!
//! One description serves the loader and the JSON Schema, so the two cannot disagree. A checked
//! node is in normal form: paths are absolute, quantities are text, programs and words are known.

use std::path::{Component, Path, PathBuf};

use countersign_gateway::policy::quantity::{ByteCount, Millicores};
use serde_json::Number;

use super::origin::nearest;
use super::tree::{Node, Pair, Value};

/// What a value may be.
#[derive(Debug)]
pub(super) enum Shape {
    Flag,
    /// A whole number, at least this.
    Whole(u64),
    /// A whole number from the first to the second.
    Between(u64, u64),
    /// Whole seconds, at least one and no more than a duration is sure to hold.
    Seconds,
    /// A number above nothing; fractions count.
    Positive,
    Text,
    Words(&'static [&'static str]),
    /// A path, relative to the directory of the file that names it; `~/` is the user's home.
    Path,
    /// Such a path, or an address.
    PathOrAddress,
    /// A path relative to the project, or to the current directory.
    ProjectPath,
    /// Directories joined by colons, or a list of them.
    SearchPath,
    /// A regular expression.
    Pattern,
    Cpu,
    Memory,
    /// HOST:PORT.
    Address,
    /// http or https.
    Url,
    /// A program: a bare name, or an absolute path.
    Program,
    /// The name of an environment variable.
    Variable,
    /// A value that is not shown; also as `…_env` and `…_file`.
    Secret,
    Nullable(&'static Shape),
    List(&'static Shape),
    /// No item twice.
    Unique(&'static Shape),
    /// Any names, values of one shape.
    Map(&'static Shape),
    Fields(&'static [Field]),
    /// The first where the value is text, the second where it is not.
    TextOr(&'static Shape, &'static Shape),
}

/// One name of a fixed set.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) required: bool,
}

/// The directories that relative paths start from.
#[derive(Clone, Debug)]
pub(super) struct Bases {
    pub(super) file: PathBuf,
    pub(super) project: PathBuf,
    pub(super) home: Option<PathBuf>,
}

/// What the check found wrong, and where.
pub(super) type Faults = Vec<(Option<super::origin::Position>, String)>;

impl Shape {
    /// The node in normal form, or nothing and at least one more fault.
    pub(super) fn check(&self, key: &str, node: &Node, bases: &Bases, faults: &mut Faults) -> Option<Node> {
        let before = faults.len();
        let value = match self {
            Self::Nullable(inner) => match &node.value {
                Value::Null => Value::Null,
                _ => return inner.check(key, node, bases, faults),
            },
            Self::TextOr(text, other) => {
                let shape = if node.text().is_some() { text } else { other };
                return shape.check(key, node, bases, faults);
            }
            Self::List(inner) => list(key, node, inner, bases, faults)?,
            Self::Unique(inner) => {
                let value = list(key, node, inner, bases, faults)?;
                repeated(key, &value, faults);
                value
            }
            Self::Map(inner) => map(key, node, inner, bases, faults)?,
            Self::Fields(fields) => record(key, node, fields, bases, faults)?,
            plain => match plain.scalar(node, bases) {
                Ok(value) => value,
                Err(message) => {
                    faults.push((node.at, format!("`{key}` {message}")));
                    return None;
                }
            },
        };
        (faults.len() == before).then_some(Node { at: node.at, value })
    }

    /// A value without parts. The message goes on after the key: "must be …".
    fn scalar(&self, node: &Node, bases: &Bases) -> Result<Value, String> {
        let must = |what: &str| Err(format!("must be {what}, not {}", describe(&node.value)));
        match (self, &node.value) {
            (Self::Flag, Value::Bool(_)) => Ok(node.value.clone()),
            (Self::Flag, Value::Text(text)) if ["true", "false"].contains(&text.as_str()) => {
                Err(format!("must be `true` or `false`, without quotes around `{text}`"))
            }
            (Self::Flag, _) => must("`true` or `false`"),
            (Self::Whole(least), Value::Number(number)) if number.as_u64().is_some_and(|it| it >= *least) => {
                Ok(node.value.clone())
            }
            (Self::Whole(least), _) => must(&format!("a whole number of at least {least}")),
            (Self::Between(least, most), Value::Number(number))
                if number.as_u64().is_some_and(|it| (*least..=*most).contains(&it)) =>
            {
                Ok(node.value.clone())
            }
            (Self::Between(least, most), _) => must(&format!("a whole number from {least} to {most}")),
            (Self::Seconds, Value::Number(number)) if number.is_u64() && seconds(number).is_some() => {
                Ok(node.value.clone())
            }
            (Self::Seconds, _) => must("a whole number of seconds greater than 0"),
            (Self::Positive, Value::Number(number)) if seconds(number).is_some() => Ok(node.value.clone()),
            (Self::Positive, _) => must("a number greater than 0"),
            (Self::Cpu, Value::Text(_) | Value::Number(_)) => {
                let text = scalar_text(&node.value);
                Millicores::parse(&text)
                    .map_err(|_| format!("must be cores such as `2`, `0.5` or `500m`, not `{text}`"))?;
                Ok(Value::Text(text))
            }
            (Self::Memory, Value::Text(_) | Value::Number(_)) => {
                let text = scalar_text(&node.value);
                ByteCount::parse(&text)
                    .map_err(|_| format!("must be bytes such as `1Gi`, `512M` or `1048576`, not `{text}`"))?;
                Ok(Value::Text(text))
            }
            (Self::Cpu, _) => must("cores such as `2` or `500m`"),
            (Self::Memory, _) => must("bytes such as `1Gi` or `512M`"),
            (Self::SearchPath, Value::List(items)) if items.iter().all(|item| item.text().is_some()) => {
                search_path(items.iter().filter_map(Node::text), bases)
            }
            (Self::SearchPath, Value::Text(text)) => search_path(text.split(':'), bases),
            (Self::SearchPath, _) => must("directories joined by `:`, or a list of them"),
            (_, Value::Text(text)) => self.textual(text, bases),
            (Self::Words(words), _) => must(&format!("one of {}", quoted(words))),
            (Self::Path | Self::ProjectPath, _) => must("a path"),
            (Self::PathOrAddress, _) => must("a path or an address"),
            (Self::Pattern, _) => must("a regular expression"),
            (_, _) => must("text"),
        }
    }

    fn textual(&self, text: &str, bases: &Bases) -> Result<Value, String> {
        let kept = || Ok(Value::Text(text.to_owned()));
        let empty = text.trim().is_empty();
        match self {
            Self::Words(words) if words.contains(&text) => kept(),
            Self::Words(words) => {
                let hint = nearest(text, words.iter().copied())
                    .map_or_else(String::new, |word| format!("; did you mean `{word}`?"));
                Err(format!("must be one of {}, not `{text}`{hint}", quoted(words)))
            }
            Self::PathOrAddress if text.contains("://") => kept(),
            Self::Path | Self::PathOrAddress if !empty => absolute(text, &bases.file, bases),
            Self::ProjectPath if !empty => absolute(text, &bases.project, bases),
            Self::Pattern => match regex::Regex::new(text) {
                Ok(_) => kept(),
                Err(error) => Err(format!("is not a regular expression: {}", regex_fault(&error))),
            },
            Self::Address if address(text) => kept(),
            Self::Address => Err(format!("must be an address such as `127.0.0.1:7420`, not `{text}`")),
            Self::Url
                if ["http://", "https://"]
                    .iter()
                    .any(|lead| text.len() > lead.len() && text.starts_with(lead)) =>
            {
                kept()
            }
            Self::Url => Err(format!("must be an http or https address, not `{text}`")),
            Self::Program if program(text) => kept(),
            Self::Program => Err(format!(
                "must name programs by a bare name or an absolute path, not `{text}`"
            )),
            Self::Variable if variable(text) => kept(),
            Self::Variable => Err(format!("must name environment variables, not `{text}`")),
            Self::Text | Self::Secret | Self::Path | Self::ProjectPath | Self::PathOrAddress if empty => {
                Err("must not be empty".to_owned())
            }
            _ => kept(),
        }
    }
}

fn list(key: &str, node: &Node, inner: &Shape, bases: &Bases, faults: &mut Faults) -> Option<Value> {
    let Value::List(items) = &node.value else {
        faults.push((
            node.at,
            format!("`{key}` must be a list, not {}", describe(&node.value)),
        ));
        return None;
    };
    Some(Value::List(
        items
            .iter()
            .filter_map(|item| inner.check(key, item, bases, faults))
            .collect(),
    ))
}

fn repeated(key: &str, value: &Value, faults: &mut Faults) {
    let Value::List(items) = value else { return };
    for (index, item) in items.iter().enumerate() {
        if items[..index].iter().any(|earlier| earlier.value == item.value) {
            faults.push((item.at, format!("`{key}` lists `{}` twice", scalar_text(&item.value))));
        }
    }
}

fn map(key: &str, node: &Node, inner: &Shape, bases: &Bases, faults: &mut Faults) -> Option<Value> {
    let Value::Map(pairs) = &node.value else {
        faults.push((
            node.at,
            format!(
                "`{key}` must be a map of names to values, not {}",
                describe(&node.value)
            ),
        ));
        return None;
    };
    let mut checked: Vec<Pair> = Vec::new();
    for pair in pairs {
        if pair.name.is_empty() {
            faults.push((pair.at, format!("`{key}` has an empty name")));
        }
        if let Shape::Secret = inner {
            if let Some(secret) = secret(key, pair, bases, faults) {
                if checked.iter().any(|earlier| earlier.name == secret.name) {
                    let twice = "is given twice; use one of the value, `_env` and `_file`";
                    faults.push((pair.at, format!("`{key}.{}` {twice}", secret.name)));
                }
                checked.push(secret);
            }
            continue;
        }
        if let Some(node) = inner.check(&format!("{key}.{}", pair.name), &pair.node, bases, faults) {
            checked.push(Pair {
                at: pair.at,
                name: pair.name.clone(),
                node,
            });
        }
    }
    Some(Value::Map(checked))
}

/// One secret of a map of them, in the form that a secret has elsewhere: `name`, `name_env` or `name_file`.
fn secret(key: &str, pair: &Pair, bases: &Bases, faults: &mut Faults) -> Option<Pair> {
    let forms = [("_env", "env", Shape::Variable), ("_file", "file", Shape::Path)];
    let form = forms
        .iter()
        .find_map(|(ending, form, shape)| Some((pair.name.strip_suffix(ending)?, *form, shape)));
    let (name, form, shape) = form.unwrap_or((&pair.name, "value", &Shape::Secret));
    let node = shape.check(&format!("{key}.{}", pair.name), &pair.node, bases, faults)?;
    let at = node.at;
    let inner = Pair {
        at,
        name: form.to_owned(),
        node,
    };
    Some(Pair {
        at: pair.at,
        name: name.to_owned(),
        node: Node {
            at,
            value: Value::Map(vec![inner]),
        },
    })
}

fn record(key: &str, node: &Node, fields: &'static [Field], bases: &Bases, faults: &mut Faults) -> Option<Value> {
    let Value::Map(pairs) = &node.value else {
        faults.push((node.at, format!("`{key}` must be a map, not {}", describe(&node.value))));
        return None;
    };
    let mut checked = Vec::new();
    for pair in pairs {
        match fields.iter().find(|field| field.name == pair.name) {
            None => faults.push((
                pair.at,
                unknown(
                    &format!("{key}.{}", pair.name),
                    &pair.name,
                    fields.iter().map(|field| field.name),
                ),
            )),
            Some(field) => {
                if let Some(node) = field
                    .shape
                    .check(&format!("{key}.{}", field.name), &pair.node, bases, faults)
                {
                    checked.push(Pair {
                        at: pair.at,
                        name: pair.name.clone(),
                        node,
                    });
                }
            }
        }
    }
    for field in fields
        .iter()
        .filter(|field| field.required && node.get(field.name).is_none())
    {
        faults.push((node.at, format!("`{key}` needs `{}`", field.name)));
    }
    Some(Value::Map(checked))
}

/// What is said of a key that nobody knows.
pub(super) fn unknown<'a>(path: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(name, known) {
        Some(word) => format!("`{path}` is not a known key; did you mean `{word}`?"),
        None => format!("`{path}` is not a known key"),
    }
}

/// Seconds that a duration can hold.
pub(super) fn seconds(number: &Number) -> Option<std::time::Duration> {
    let limit = f64::from(u32::MAX);
    number
        .as_f64()
        .filter(|it| *it > 0.0 && *it <= limit)
        .map(std::time::Duration::from_secs_f64)
}

fn absolute(text: &str, base: &Path, bases: &Bases) -> Result<Value, String> {
    let path = match (text.strip_prefix('~'), &bases.home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        (Some(rest), None) if rest.is_empty() || rest.starts_with('/') => {
            return Err(format!("is `{text}`, but there is no home directory"));
        }
        _ => base.join(text),
    };
    let plain: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    Ok(Value::Text(plain.to_string_lossy().into_owned()))
}

fn search_path<'a>(parts: impl Iterator<Item = &'a str>, bases: &Bases) -> Result<Value, String> {
    let mut directories = Vec::new();
    for part in parts {
        // An empty or relative part would mean the working directory, which agents write to.
        let Value::Text(path) = absolute(part, Path::new(""), bases)? else {
            continue;
        };
        if !Path::new(&path).is_absolute() {
            return Err(format!("must hold absolute directories, not `{part}`"));
        }
        directories.push(Node::nowhere(Value::Text(path)));
    }
    Ok(Value::List(directories))
}

pub(super) fn program(text: &str) -> bool {
    let name = !text.contains('/') && !text.contains(char::is_whitespace) && !matches!(text, "" | "." | "..");
    let path = text.starts_with('/') && !text.ends_with('/') && text.trim() == text;
    (name || path) && !text.contains('\0')
}

/// HOST:PORT, without asking the network what the host is.
fn address(text: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok() && !port.starts_with('+');
    let host_and_port = |(host, port): (&str, &str)| !host.is_empty() && !host.contains(':') && is_port(port);
    text.parse::<std::net::SocketAddr>().is_ok() || text.rsplit_once(':').is_some_and(host_and_port)
}

fn variable(text: &str) -> bool {
    let mut letters = text.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn scalar_text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null | Value::List(_) | Value::Map(_) => describe(value),
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => format!("`{flag}`"),
        Value::Number(number) => format!("`{number}`"),
        Value::Text(text) => format!("`{text}`"),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a map".to_owned(),
    }
}

fn quoted(words: &[&str]) -> String {
    words
        .iter()
        .map(|word| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The last line of the regex crate's drawing, which names the fault.
fn regex_fault(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim().strip_prefix("error: ").unwrap_or(last).to_owned()
}
