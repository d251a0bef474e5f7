//! Layers into one value per key, weakest first.
//!
//! A layer either *sets* its keys or may only *tighten* them. Some keys gather instead of replacing:
//! whitelist rules, where a later entry with the same pattern replaces the earlier one, and the tool
//! matrix and the policies of agents, labels and projects, which become lists of which every entry
//! counts.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::file::{Entry, Layer};
use super::keys::KEYS;
use super::origin::{Origin, Source, Warning};
use super::tighten::{Rule, narrow};
use super::tree::{Node, Pair};

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
                // What a credential is may be said where the server is started, not in a file that agents write.
                let rule = match key.rule {
                    Rule::Credential if source.file().is_some() => Rule::Owner,
                    rule => rule,
                };
                let narrowed = narrow(rule, self.value(key.path), &entry.node);
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
            Rule::Whitelist => gather_rules(self.value(key.path), &value, &entry.node, source),
            Rule::Tools => gather_tools(self.value(key.path), &entry.node, source, hand),
            Rule::Policies => gather_policies(self.value(key.path), &entry.node, source, hand),
            _ => value,
        };
        // A hand that only repeats what an operator said is not where the value comes from.
        if hand == Hand::Sets || value != *self.value(key.path) || self.is_default(key.path) {
            self.set(key.path, value, Origin::at(source, entry.at));
        }
    }
}

/// The rules taken over, each with the place where it was written.
fn gather_rules(held: &Json, taken: &Json, written: &Node, source: &Source) -> Json {
    let mut rules = held.as_array().cloned().unwrap_or_default();
    let taken = taken.as_array().map_or(&[][..], Vec::as_slice);
    for item in written.items() {
        let mut rule = item.to_json();
        if !taken.contains(&rule) {
            continue;
        }
        rule["source"] = json!(Origin::at(source, item.at).to_string());
        match rules.iter_mut().find(|earlier| earlier["pattern"] == rule["pattern"]) {
            Some(earlier) => *earlier = rule,
            None => rules.push(rule),
        }
    }
    Json::Array(rules)
}

fn gather_tools(held: &Json, added: &Node, source: &Source, hand: Hand) -> Json {
    let mut rules = held.as_array().cloned().unwrap_or_default();
    for mut rule in tool_entries(added, source) {
        rule["sets"] = json!(hand == Hand::Sets);
        rules.push(rule);
    }
    Json::Array(rules)
}

/// By key: the entries of all sources, and what only a source that sets may say.
fn gather_policies(held: &Json, added: &Node, source: &Source, hand: Hand) -> Json {
    let mut policies = held.clone();
    for pair in added.pairs() {
        let known = &mut policies[&pair.name];
        let mut entries = known["tools"].as_array().cloned().unwrap_or_default();
        entries.extend(
            pair.node
                .get("tools")
                .into_iter()
                .flat_map(|tools| tool_entries(tools, source)),
        );
        known["tools"] = Json::Array(entries);
        if hand == Hand::Sets {
            for field in pair.node.pairs().iter().filter(|field| field.name != "tools") {
                known[&field.name] = field.node.to_json();
                known["source"] = json!(Origin::at(source, pair.at).to_string());
            }
        }
    }
    policies
}

fn tool_entries(tools: &Node, source: &Source) -> Vec<Json> {
    let entry = |pair: &Pair| {
        let mut rule = json!({"pattern": pair.name});
        for field in pair.node.pairs() {
            rule[&field.name] = field.node.to_json();
        }
        rule["source"] = json!(Origin::at(source, pair.at).to_string());
        rule
    };
    tools.pairs().iter().map(entry).collect()
}
