//! One configuration file: from text to entries that each have a known key and a checked shape.

#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::Path;

use countersign_gateway::policy::whitelist::{self, RuleText, WhitelistRule};
use countersign_integrations::http::Endpoint;

use super::keys::{KEYS, Key};
use super::origin::{Origin, Position, Problem, Source};
use super::shape::{self, Bases, Faults, Shape};
use super::tree::{self, Node, Pair, Value};
use super::{agents, approvers};

/// No sensible configuration is longer, and a file that never ends must not stop the start.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What one source says, in the order in which it says it.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub(super) source: Source,
    pub(super) entries: Vec<Entry>,
}

/// One key that a source sets.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: &'static Key,
    pub(super) at: Option<Position>,
    pub(super) node: Node,
}

impl Layer {
    pub(super) fn entry(&self, path: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key.path == path)
    }
}

/// Reads the bytes of a file that may not be there.
pub(super) fn fetch(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let named = |error: std::io::Error| format!("cannot be read: {error}");
    let facts = match std::fs::metadata(path) {
        Ok(facts) => facts,
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(named(error)),
    };
    // Opening a pipe would wait for a writer.
    if !facts.is_file() {
        return Err("is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(named)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(named)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is longer than {FILE_BYTES_MAX} bytes"));
    }
    Ok(Some(bytes))
}

/// Reads a file's text. Entries with problems are left out; the problems say so.
pub(super) fn parse(bytes: &[u8], source: &Source, bases: &Bases, problems: &mut Vec<Problem>) -> Layer {
    let mut faults = Faults::new();
    let entries = match std::str::from_utf8(bytes) {
        Err(_) => {
            faults.push((None, "is not UTF-8 text".to_owned()));
            Vec::new()
        }
        Ok(text) => match tree::read(text) {
            Err(error) => {
                faults.extend(error.faults(|rest, faults| drop(walk(rest, bases, faults))));
                Vec::new()
            }
            Ok(tree) => walk(&tree, bases, &mut faults),
        },
    };
    faults.sort_by_key(|(at, _)| *at);
    problems.extend(faults.into_iter().map(|(at, message)| Problem {
        origin: Origin::at(source, at),
        message,
    }));
    Layer {
        source: source.clone(),
        entries,
    }
}

fn walk(tree: &Node, bases: &Bases, faults: &mut Faults) -> Vec<Entry> {
    let mut entries = Vec::new();
    match &tree.value {
        Value::Null => {}
        Value::Map(pairs) => {
            for pair in pairs {
                if let Some(key) = named("", &pair.name) {
                    entries.extend(entry(key, pair, bases, faults));
                } else if KEYS.iter().any(|key| key.split().0 == pair.name) {
                    section(pair, bases, faults, &mut entries);
                } else {
                    faults.push((pair.at, shape::unknown(&pair.name, &pair.name, KEYS.iter().map(top))));
                }
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => {
            faults.push((tree.at, "a configuration is a map of keys to values".to_owned()));
        }
    }
    one_form_each(&entries, faults);
    for entry in &entries {
        examine(entry, faults);
    }
    entries
}

fn section(outer: &Pair, bases: &Bases, faults: &mut Faults, entries: &mut Vec<Entry>) {
    let pairs = match &outer.node.value {
        Value::Map(pairs) => pairs.as_slice(),
        // A section whose lines are all commented out.
        Value::Null => &[],
        Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => {
            return faults.push((outer.node.at, format!("`{}` must be a map", outer.name)));
        }
    };
    for pair in pairs {
        match named(&outer.name, &pair.name) {
            Some(key) => entries.extend(entry(key, pair, bases, faults)),
            None => {
                let known = KEYS
                    .iter()
                    .map(Key::split)
                    .filter(|(section, _)| *section == outer.name)
                    .map(|(_, name)| name);
                faults.push((
                    pair.at,
                    shape::unknown(&format!("{}.{}", outer.name, pair.name), &pair.name, known),
                ));
            }
        }
    }
}

fn top(key: &Key) -> &'static str {
    match key.split() {
        ("", name) => name,
        (section, _) => section,
    }
}

/// The key that a name in a section stands for; a secret also answers to `…_env` and `…_file`.
fn named(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| {
        let (inside, plain) = key.split();
        let form = name.strip_prefix(plain);
        inside == section
            && (name == plain || (matches!(key.shape, Shape::Secret) && matches!(form, Some("_env" | "_file"))))
    })
}

fn entry(key: &'static Key, pair: &Pair, bases: &Bases, faults: &mut Faults) -> Option<Entry> {
    let (_, plain) = key.split();
    let shown = format!("{}{}", key.path, pair.name.strip_prefix(plain).unwrap_or_default());
    let (shape, form) = match (&key.shape, pair.name.strip_prefix(plain)) {
        (Shape::Secret, Some("_env")) => (&Shape::Variable, Some("env")),
        (Shape::Secret, Some("_file")) => (&Shape::Path, Some("file")),
        (Shape::Secret, _) => (&key.shape, Some("value")),
        (shape, _) => (shape, None),
    };
    let checked = shape.check(&shown, &pair.node, bases, faults)?;
    let node = match form {
        None => checked,
        Some(form) => {
            let inner = Pair {
                at: checked.at,
                name: form.to_owned(),
                node: checked,
            };
            Node {
                at: inner.at,
                value: Value::Map(vec![inner]),
            }
        }
    };
    Some(Entry { key, at: pair.at, node })
}

fn one_form_each(entries: &[Entry], faults: &mut Faults) {
    for (index, entry) in entries.iter().enumerate() {
        if entries[..index]
            .iter()
            .any(|earlier| earlier.key.path == entry.key.path)
        {
            faults.push((
                entry.at,
                format!(
                    "`{}` is given twice; use one of the value, `_env` and `_file`",
                    entry.key.path
                ),
            ));
        }
    }
}

/// What a shape cannot say.
fn examine(entry: &Entry, faults: &mut Faults) {
    let path = entry.key.path;
    match path {
        "command_policy.allowlist" if entry.node.items().is_empty() => {
            faults.push((entry.node.at, format!("`{path}` must name at least one program")));
        }
        "command_policy.allowlist" if entry.node.items().len() > 1 => {
            for item in entry.node.items().iter().filter(|item| item.text() == Some("*")) {
                faults.push((item.at, format!("`{path}`: `*` is any program and stands alone")));
            }
        }
        "command_policy.helpers" => {
            for pair in entry.node.pairs().iter().filter(|pair| !shape::program(&pair.name)) {
                faults.push((pair.at, format!("`{path}` must name programs, not `{}`", pair.name)));
            }
        }
        "approvers" => {
            for item in entry.node.items() {
                approvers::examine(item, faults);
            }
            unique_names(path, &entry.node, faults);
        }
        "agents" => {
            for item in entry.node.items() {
                agents::examine(item, faults);
            }
            unique_names(path, &entry.node, faults);
        }
        "audit.witness" => {
            if let Some(address) = entry.node.text().filter(|text| text.contains("://"))
                && let Err(error) = Endpoint::parse(address)
            {
                faults.push((entry.node.at, format!("`audit.witness` {error}, or a file")));
            }
        }
        "approval_policy.whitelist" => entry.node.items().iter().for_each(|rule| examples_hold(rule, faults)),
        _ => {}
    }
}

fn unique_names(path: &str, list: &Node, faults: &mut Faults) {
    let name = |item: &Node| item.get("name").and_then(Node::text).map(str::to_owned);
    for (index, item) in list.items().iter().enumerate() {
        if list.items()[..index].iter().any(|earlier| name(earlier) == name(item)) {
            faults.push((
                item.at,
                format!("`{path}` has two entries named `{}`", name(item).unwrap_or_default()),
            ));
        }
    }
}

/// A rule's own examples, each held against the rule the way the policy would.
fn examples_hold(rule: &Node, faults: &mut Faults) {
    let pattern = rule.get("pattern").and_then(Node::text).unwrap_or_default();
    for (field, covered) in [("match", true), ("not_match", false)] {
        for example in rule.get(field).map_or(&[][..], Node::items) {
            let line = [example.text().unwrap_or_default().to_owned()];
            let (matches, not_matches) = if covered {
                (&line[..], &[][..])
            } else {
                (&[][..], &line[..])
            };
            let text = RuleText {
                pattern,
                reason: "",
                enabled: true,
                source: whitelist::Source::Global,
                matches,
                not_matches,
            };
            if let Err(error) = WhitelistRule::new(&text) {
                faults.push((example.at, format!("rule {error}")));
            }
        }
    }
}
