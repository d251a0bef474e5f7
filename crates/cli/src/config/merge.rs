//! Layers into one value per key, weakest first.
//!
//! A layer either *sets* its keys or may only *tighten* them. Two keys gather instead of replacing:
//! whitelist rules, where a later entry with the same pattern replaces the earlier one, and the tool
//! matrix, which becomes a list of which every entry counts.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::file::{Entry, Layer};
use super::keys::KEYS;
use super::origin::{Origin, Source, Warning};
use super::tighten::{Rule, narrow};
use super::tree::Node;

/// What a layer may do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Hand {
    Sets,
    Tightens,
}

/// One value in force and who set it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Held {
    pub(crate) value: Json,
    pub(crate) origin: Origin,
}

/// Every key with its value in force.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Effective {
    // INVARIANT: holds every key of the table.
    held: BTreeMap<&'static str, Held>,
}

impl Effective {
    pub(super) fn defaults() -> Self {
        let held = |key: &super::keys::Key| {
            let value = match key.rule {
                Rule::Tools => json!([]),
                _ => serde_json::from_str(key.default).expect("a test reads every default of the table"),
            };
            (
                key.path,
                Held {
                    value,
                    origin: Origin::of(Source::Default),
                },
            )
        };
        Self {
            held: KEYS.iter().map(held).collect(),
        }
    }

    pub(super) fn held(&self, path: &str) -> &Held {
        &self.held[path]
    }

    pub(super) fn value(&self, path: &str) -> &Json {
        &self.held(path).value
    }

    pub(super) fn is_default(&self, path: &str) -> bool {
        self.held(path).origin.source == Source::Default
    }

    pub(super) fn set(&mut self, path: &'static str, value: Json, origin: Origin) {
        self.held.insert(path, Held { value, origin });
    }

    /// Keys and values in the order of the table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &Held)> {
        KEYS.iter().map(|key| (key.path, self.held(key.path)))
    }

    pub(super) fn apply(&mut self, layer: &Layer, hand: Hand, warnings: &mut Vec<Warning>) {
        for entry in &layer.entries {
            self.apply_entry(entry, &layer.source, hand, warnings);
        }
    }

    pub(super) fn apply_entry(&mut self, entry: &Entry, source: &Source, hand: Hand, warnings: &mut Vec<Warning>) {
        let key = entry.key;
        let taken = match hand {
            Hand::Sets => Some(entry.node.to_json()),
            Hand::Tightens => {
                let narrowed = narrow(key.rule, self.value(key.path), &entry.node);
                let warn = |(at, reason)| Warning {
                    origin: Origin::at(source, at),
                    key: key.path.to_owned(),
                    reason,
                };
                warnings.extend(narrowed.refused.into_iter().map(warn));
                narrowed.value
            }
        };
        let Some(value) = taken else { return };
        let value = match key.rule {
            Rule::Whitelist => gather_rules(self.value(key.path), &value, source),
            Rule::Tools => gather_tools(self.value(key.path), &entry.node, source),
            _ => value,
        };
        // A hand that only repeats what an operator said is not where the value comes from.
        if hand == Hand::Sets || value != *self.value(key.path) || self.is_default(key.path) {
            self.set(key.path, value, Origin::at(source, entry.at));
        }
    }
}

fn gather_rules(held: &Json, added: &Json, source: &Source) -> Json {
    let mut rules = held.as_array().cloned().unwrap_or_default();
    let added = added.as_array().map_or(&[][..], Vec::as_slice);
    for rule in added {
        let mut rule = rule.clone();
        rule["source"] = json!(source.to_string());
        match rules.iter_mut().find(|earlier| earlier["pattern"] == rule["pattern"]) {
            Some(earlier) => *earlier = rule,
            None => rules.push(rule),
        }
    }
    Json::Array(rules)
}

fn gather_tools(held: &Json, added: &Node, source: &Source) -> Json {
    let mut rules = held.as_array().cloned().unwrap_or_default();
    for pair in added.pairs() {
        let mut rule = json!({"pattern": pair.name});
        for field in pair.node.pairs() {
            rule[&field.name] = field.node.to_json();
        }
        rule["source"] = json!(source.to_string());
        rules.push(rule);
    }
    Json::Array(rules)
}
