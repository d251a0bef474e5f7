//! YAML as a tree in which every value knows its line and column.
//!
//! Nothing is judged here. The shapes do that afterwards, over the whole tree, so that one run
//! reports every problem; only a syntax error ends the reading at once. A key that is there twice is one, but what else
//! stands in the file can still be looked at.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value as Json};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Location, Spanned};

use super::origin::Position;
use super::shape::Faults;

/// A value and where it stands; values that no file wrote stand nowhere.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Node {
    pub(super) at: Option<Position>,
    pub(super) value: Value,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Pair>),
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Pair {
    pub(super) at: Option<Position>,
    pub(super) name: String,
    pub(super) node: Node,
}

/// Text that is not YAML.
#[derive(PartialEq, Debug)]
pub(super) struct SyntaxError {
    pub(super) at: Option<Position>,
    pub(super) message: String,
    /// All there is, where keys stand twice: to look for further problems in, never to be used.
    pub(super) rest: Option<Box<Node>>,
}

/// Reads one document; an empty one is null.
pub(super) fn read(text: &str) -> Result<Node, SyntaxError> {
    let nothing = text
        .lines()
        .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    if nothing {
        return Ok(Node {
            at: None,
            value: Value::Null,
        });
    }
    read_by(DuplicateKeyPolicy::Error, text).map_err(|error| {
        let is_twice = matches!(error.without_snippet(), serde_saphyr::Error::DuplicateMappingKey { .. });
        let rest = is_twice.then(|| read_by(DuplicateKeyPolicy::LastWins, text).ok());
        SyntaxError {
            at: error.location().and_then(position),
            message: told(error.without_snippet()),
            rest: rest.flatten().map(Box::new),
        }
    })
}

fn read_by(duplicate_keys: DuplicateKeyPolicy, text: &str) -> Result<Node, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        merge_keys: MergeKeyPolicy::Error,
        // Without this, `no` and `on` in a list of names would turn into truth values.
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options)
}

/// The parser speaks to programmers where these are concerned.
fn told(error: &serde_saphyr::Error) -> String {
    match error {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => twice(key),
        serde_saphyr::Error::MultipleDocuments { .. } => "a second document begins; a file holds one".to_owned(),
        serde_saphyr::Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "an alias stands inside what it repeats, so it would never end; write out what is meant".to_owned()
        }
        serde_saphyr::Error::Budget { breach, .. } => beyond(breach),
        serde_saphyr::Error::AliasReplayCounterOverflow { .. }
        | serde_saphyr::Error::AliasReplayLimitExceeded { .. }
        | serde_saphyr::Error::AliasExpansionLimitExceeded { .. }
        | serde_saphyr::Error::AliasReplayStackDepthExceeded { .. } => ALIASES.to_owned(),
        // Something in what an alias repeats, or that it is repeated so often.
        serde_saphyr::Error::AliasError { error, .. } => match &**error {
            serde_saphyr::Error::Budget { .. } => ALIASES.to_owned(),
            other => told(other),
        },
        other => match one_line(&other.to_string()).as_str() {
            // The scanner counts brackets before the parser does.
            "recursion limit exceeded" => TOO_DEEP.to_owned(),
            text => text.to_owned(),
        },
    }
}

const TOO_DEEP: &str = "it nests deeper than a file may";
const ALIASES: &str = "its anchors and aliases come to more than a file may hold; write out what is meant";

/// The bounds are the parser's own; no file of ours comes near them.
fn beyond(breach: &BudgetBreach) -> String {
    match breach {
        BudgetBreach::Depth { .. } => TOO_DEEP.to_owned(),
        BudgetBreach::Documents { .. } => "a second document begins; a file holds one".to_owned(),
        BudgetBreach::Aliases { .. }
        | BudgetBreach::Anchors { .. }
        | BudgetBreach::AliasAnchorRatio { .. }
        | BudgetBreach::RecordedAnchorEvents { .. }
        | BudgetBreach::RecordedAnchorBytes { .. } => ALIASES.to_owned(),
        BudgetBreach::SequenceUnbalanced => "a list or a map begins or ends where it should not".to_owned(),
        _ => "it holds more than a file may".to_owned(),
    }
}

fn twice(key: &str) -> String {
    format!("`{key}` is there twice; keep one")
}

impl SyntaxError {
    /// What is wrong, each with its place; `look` finds what else is in a file that can be looked at.
    pub(super) fn faults(self, look: impl FnOnce(&Node, &mut Faults)) -> Faults {
        let Self { at, message, rest } = self;
        let Some(mut rest) = rest else {
            return vec![(at, message)];
        };
        let mut faults = Faults::new();
        rest.drop_repeated(&mut faults);
        look(&rest, &mut faults);
        faults
    }
}

impl Node {
    /// Leaves the first of keys that have the same name, here and inside; each of the others is a fault.
    fn drop_repeated(&mut self, faults: &mut Faults) {
        match &mut self.value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
            Value::List(items) => items.iter_mut().for_each(|item| item.drop_repeated(faults)),
            Value::Map(pairs) => {
                let mut seen = HashSet::new();
                pairs.retain_mut(|pair| {
                    pair.node.drop_repeated(faults);
                    let is_first = seen.insert(pair.name.clone());
                    if !is_first {
                        faults.push((pair.at, twice(&pair.name)));
                    }
                    is_first
                });
            }
        }
    }

    pub(super) fn nowhere(value: Value) -> Self {
        Self { at: None, value }
    }

    pub(super) fn from_json(json: &Json) -> Self {
        Self::nowhere(match json {
            Json::Null => Value::Null,
            Json::Bool(it) => Value::Bool(*it),
            Json::Number(it) => Value::Number(it.clone()),
            Json::String(it) => Value::Text(it.clone()),
            Json::Array(items) => Value::List(items.iter().map(Self::from_json).collect()),
            Json::Object(pairs) => {
                let pair = |(name, value): (&String, &Json)| Pair {
                    at: None,
                    name: name.clone(),
                    node: Self::from_json(value),
                };
                Value::Map(pairs.iter().map(pair).collect())
            }
        })
    }

    pub(super) fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(it) => Json::Bool(*it),
            Value::Number(it) => Json::Number(it.clone()),
            Value::Text(it) => Json::String(it.clone()),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(pairs) => Json::Object(
                pairs
                    .iter()
                    .map(|pair| (pair.name.clone(), pair.node.to_json()))
                    .collect(),
            ),
        }
    }

    /// The value under a name, where this is a map that has it.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(pairs) => pairs.iter().find(|pair| pair.name == name).map(|pair| &pair.node),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => None,
        }
    }

    pub(super) fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::Map(_) => &[],
        }
    }

    pub(super) fn pairs(&self) -> &[Pair] {
        match &self.value {
            Value::Map(pairs) => pairs,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => &[],
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            at: position(spanned.referenced),
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
        Ok(Value::Bool(it))
    }

    fn visit_i64<E>(self, it: i64) -> Result<Value, E> {
        Ok(Value::Number(it.into()))
    }

    fn visit_u64<E>(self, it: u64) -> Result<Value, E> {
        Ok(Value::Number(it.into()))
    }

    fn visit_f64<E: de::Error>(self, it: f64) -> Result<Value, E> {
        Number::from_f64(it)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, it: &str) -> Result<Value, E> {
        Ok(Value::Text(it.to_owned()))
    }

    fn visit_string<E>(self, it: String) -> Result<Value, E> {
        Ok(Value::Text(it))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element::<Node>()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(name) = map.next_key::<Spanned<String>>()? {
            pairs.push(Pair {
                at: position(name.referenced),
                name: name.value,
                node: map.next_value()?,
            });
        }
        Ok(Value::Map(pairs))
    }
}

fn position(location: Location) -> Option<Position> {
    (location.line() > 0).then(|| Position {
        line: location.line(),
        column: location.column(),
    })
}

/// The parser's message without its own position, which is given apart, and without line breaks.
fn one_line(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let plain = first.strip_prefix("error: ").unwrap_or(first);
    let plain = match plain.split_once(": ") {
        Some((lead, rest)) if lead.starts_with("line ") => rest,
        _ => plain,
    };
    let plain = plain.split(" at line ").next().unwrap_or(plain);
    plain.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u64, column: u64) -> Option<Position> {
        Some(Position { line, column })
    }

    #[test]
    fn keys_and_values_know_their_place() {
        let tree = read("# head\na: 1\nb:\n  - x\n  - {c: null, d: no}\n").unwrap();
        let pairs = tree.pairs();
        assert_eq!((pairs[0].at, pairs[0].node.at), (at(2, 1), at(2, 4)));
        assert_eq!((pairs[1].at, pairs[1].node.items()[0].at), (at(3, 1), at(4, 5)));
        let inner = &pairs[1].node.items()[1];
        assert_eq!(inner.get("c").unwrap().at, at(5, 9));
        assert_eq!(inner.get("d").unwrap().text(), Some("no"));
        assert_eq!(
            tree.to_json(),
            serde_json::json!({"a": 1, "b": ["x", {"c": null, "d": "no"}]})
        );
    }

    #[test]
    fn nothing_but_comments_is_null() {
        for text in ["", "\n\n", "# only\n  # comments\n"] {
            assert_eq!(read(text).unwrap().value, Value::Null, "{text:?}");
        }
    }

    #[test]
    fn what_is_not_yaml_says_where() {
        for (text, line) in [("a: 1\na: 2\n", 2), ("a: [1\nb: 2\n", 2), ("a: &x 1\nb: {<<: 3}\n", 2)] {
            let error = read(text).unwrap_err();
            assert_eq!(error.at.map(|at| at.line), Some(line), "{text:?}: {error:?}");
            assert!(!error.message.contains('\n'), "{error:?}");
        }
    }

    #[test]
    fn what_a_person_gets_wrong_is_not_told_to_a_programmer() {
        for (text, told) in [
            ("a: 1\na: 2\n", "`a` is there twice; keep one"),
            ("a: 1\n---\na: 2\n", "a second document begins; a file holds one"),
        ] {
            assert_eq!(read(text).unwrap_err().message, told);
        }
        let bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned()
            + &["ba", "cb", "dc", "ed", "fe", "gf"]
                .map(|names| {
                    let (name, of) = names.split_at(1);
                    format!("{name}: &{name} [{}]\n", vec![format!("*{of}"); 9].join(", "))
                })
                .concat();
        let many = format!("a: [{}]\n", vec!["x"; 300_000].join(","));
        let deep = format!("a: {}{}\n", "[".repeat(5_000), "]".repeat(5_000));
        for text in [bomb.as_str(), &many, &deep, "a: &a [*a]\n", "a: &a {b: *a}\n"] {
            let told = read(text).unwrap_err().message;
            let is_plain = !["budget", "breach", "weak", "Nodes", "{"]
                .iter()
                .any(|word| told.contains(word));
            assert!(
                is_plain && told.contains("file may") || told.contains("never end"),
                "{told}"
            );
        }
    }
}
