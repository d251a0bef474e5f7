//! What "tighter" means, key by key, and how far a hand that may only tighten gets.
//!
//! `narrow` joins what is in force with what such a source wants. The result is never wider than
//! what is in force; lists are met item by item, so the part that tightens counts even when another
//! part is refused. Everything refused comes back with its place and the reason.
//!
//! Which order a key has stands in the table of keys; what the orders mean stands here:
//!
//! | rule | tighter is |
//! |---|---|
//! | `Owner` | nothing: only the operator, or a file the operator trusted, sets it |
//! | `Credential` | as `Owner`, but the server's environment may give it where no file does |
//! | `Lower`, `LowerCpu`, `LowerMemory` | the smaller amount |
//! | `LowerOrNone` | the smaller amount; unset is no bound and so the widest |
//! | `Higher` | the larger amount |
//! | `Order` | the earlier word of the list |
//! | `True`, `False` | that truth value |
//! | `Programs` | fewer programs; `*` is the widest |
//! | `Subset` / `Superset` | fewer / more items |
//! | `Inside` | fewer or deeper paths, by canonical components |
//! | `Workspace` | the same directory or one inside it, but not in `.git` and the like |
//! | `Helpers` | fewer programs, fewer helpers of each |
//! | `Mode` | see `mode_is_tighter` |
//! | `Whitelist` | rules switched off |
//! | `Tools` | every entry counts and the strictest wins, so adding one can only tighten |
//! | `Policies` | likewise for their tools; what maps labels and projects is the operator's |
//! | `Address` | a loopback address, or another port of the same host |

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use countersign_exec::git_directory;
use countersign_gateway::policy::places::Steering;
use countersign_gateway::policy::quantity::{ByteCount, Millicores};
use serde_json::{Value as Json, json};

use super::origin::Position;
use super::tree::Node;

/// How a key is compared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Rule {
    Owner,
    Credential,
    Lower,
    LowerCpu,
    LowerMemory,
    LowerOrNone,
    Higher,
    Order(&'static [&'static str]),
    True,
    False,
    Programs,
    Subset,
    Superset,
    Inside,
    Workspace,
    Helpers,
    Mode,
    Whitelist,
    Tools,
    Policies,
    Address,
}

/// The outcome: the value to hold from now on, if it changes, and what was refused.
#[derive(Default, PartialEq, Debug)]
pub(super) struct Narrowed {
    pub(super) value: Option<Json>,
    pub(super) refused: Vec<(Option<Position>, String)>,
}

/// Joins what is in force with what a source that may only tighten wants.
pub(super) fn narrow(rule: Rule, held: &Json, wanted: &Node) -> Narrowed {
    let new = wanted.to_json();
    if new == *held && !matches!(rule, Rule::Whitelist | Rule::Tools | Rule::Policies) {
        return Narrowed {
            value: Some(new),
            refused: Vec::new(),
        };
    }
    match rule {
        Rule::Owner => Narrowed::refuse(wanted, "only the operator's file or a trusted file may set it"),
        Rule::Credential if held.is_null() => Narrowed::take(new),
        Rule::Credential => Narrowed::refuse(wanted, "the operator's file sets it already"),
        Rule::Lower => Narrowed::when(number(&new) <= number(held), new, wanted, || {
            format!("only {held} or less is tighter")
        }),
        Rule::LowerOrNone => {
            let tighter = held.is_null() || (!new.is_null() && number(&new) <= number(held));
            Narrowed::when(tighter, new, wanted, || format!("only {held} or less is tighter"))
        }
        Rule::Higher => Narrowed::when(number(&new) >= number(held), new, wanted, || {
            format!("only {held} or more is tighter")
        }),
        Rule::LowerCpu => amounts(
            |text| Millicores::parse(text).map(Millicores::get).ok(),
            held,
            new,
            wanted,
        ),
        Rule::LowerMemory => amounts(
            |text| ByteCount::parse(text).map(ByteCount::get).ok(),
            held,
            new,
            wanted,
        ),
        Rule::Order(words) => {
            let rank = |word: &Json| {
                words
                    .iter()
                    .position(|known| Some(*known) == word.as_str())
                    .unwrap_or(words.len())
            };
            let why = || format!("`{}` is wider than `{}`", text(&new), text(held));
            Narrowed::when(rank(&new) <= rank(held), new.clone(), wanted, why)
        }
        Rule::True => Narrowed::when(new == json!(true), new, wanted, || "only `true` is tighter".to_owned()),
        Rule::False => Narrowed::when(new == json!(false), new, wanted, || {
            "only `false` is tighter".to_owned()
        }),
        Rule::Programs if contains(held, "*") => Narrowed::take(new),
        Rule::Programs if contains(&new, "*") => Narrowed::refuse(wanted, "`*` would allow any program"),
        Rule::Programs | Rule::Subset => subset(held, wanted),
        Rule::Superset => superset(held, wanted),
        Rule::Inside => inside(held, wanted),
        Rule::Workspace => workspace(held, wanted),
        Rule::Helpers => helpers(held, wanted),
        Rule::Mode => {
            let tighter = mode_is_tighter(text(&new), text(held));
            Narrowed::when(tighter, new.clone(), wanted, || {
                format!(
                    "`{}` is not stricter than `{}` for every request",
                    text(&new),
                    text(held)
                )
            })
        }
        Rule::Whitelist => whitelist(wanted),
        Rule::Tools => tools(held, wanted),
        Rule::Policies => policies(wanted),
        Rule::Address => {
            let why = || format!("`{}` is neither loopback nor the host of `{}`", text(&new), text(held));
            Narrowed::when(
                is_loopback(text(&new)) || host(text(&new)) == host(text(held)),
                new.clone(),
                wanted,
                why,
            )
        }
    }
}

/// Whether mode `new` refuses or asks wherever mode `held` does, for every kind of request.
///
/// | request | untrusted | on-request | on-failure | never |
/// |---|---|---|---|---|
/// | on the whitelist | runs | runs | runs | runs |
/// | allowed, not on the whitelist | asks | runs | runs | runs |
/// | wants more than policy gives | asks | asks | asks | denied |
/// | failed by the confinement | fails | fails | asks to run without | fails |
///
/// Denied is stricter than asks, asks than runs; a question that could end in an unconfined run is
/// milder than a plain failure. So `untrusted` and `never` are each stricter than `on-request`, and
/// that is stricter than `on-failure`, but neither of the two is stricter than the other: `never`
/// runs what `untrusted` asks about, and `untrusted` asks about what `never` denies. A change
/// between them is refused in both directions.
fn mode_is_tighter(new: &str, held: &str) -> bool {
    match held {
        "on-failure" => true,
        "on-request" => new != "on-failure",
        _ => new == held,
    }
}

impl Narrowed {
    fn take(value: Json) -> Self {
        Self {
            value: Some(value),
            refused: Vec::new(),
        }
    }

    fn refuse(wanted: &Node, reason: impl Into<String>) -> Self {
        Self {
            value: None,
            refused: vec![(wanted.at, reason.into())],
        }
    }

    fn when(tighter: bool, value: Json, wanted: &Node, reason: impl FnOnce() -> String) -> Self {
        if tighter {
            Self::take(value)
        } else {
            Self::refuse(wanted, reason())
        }
    }
}

fn amounts(read: fn(&str) -> Option<u64>, held: &Json, new: Json, wanted: &Node) -> Narrowed {
    let tighter = matches!((read(text(&new)), read(text(held))), (Some(new), Some(held)) if new <= held);
    Narrowed::when(tighter, new, wanted, || {
        format!("only `{}` or less is tighter", text(held))
    })
}

fn subset(held: &Json, wanted: &Node) -> Narrowed {
    let mut narrowed = Narrowed::default();
    let mut kept = Vec::new();
    for item in wanted.items() {
        let value = item.to_json();
        if array(held).contains(&value) {
            kept.push(value);
        } else {
            narrowed
                .refused
                .push((item.at, format!("`{}` is not in the list it may narrow", text(&value))));
        }
    }
    narrowed.value = Some(Json::Array(kept));
    narrowed
}

fn superset(held: &Json, wanted: &Node) -> Narrowed {
    let new = wanted.to_json();
    let missing: Vec<_> = array(held)
        .iter()
        .filter(|item| !array(&new).contains(item))
        .cloned()
        .collect();
    let mut narrowed = Narrowed::default();
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|item| format!("`{}`", text(item))).collect();
        narrowed.refused.push((
            wanted.at,
            format!("{} cannot be left out and is kept", names.join(", ")),
        ));
    }
    narrowed.value = Some(Json::Array(
        missing.into_iter().chain(array(&new).iter().cloned()).collect(),
    ));
    narrowed
}

fn inside(held: &Json, wanted: &Node) -> Narrowed {
    let mut narrowed = Narrowed::default();
    let mut kept = Vec::new();
    for item in wanted.items() {
        let value = item.to_json();
        match array(held)
            .iter()
            .find_map(|outer| contained(text(outer), text(&value)))
        {
            Some(path) => kept.push(json!(path.to_string_lossy())),
            None => narrowed.refused.push((
                item.at,
                format!("`{}` is not inside a path that is readable already", text(&value)),
            )),
        }
    }
    narrowed.value = Some(Json::Array(kept));
    narrowed
}

fn workspace(held: &Json, wanted: &Node) -> Narrowed {
    let new = wanted.to_json();
    let path = match held.as_str().map(|outer| contained(outer, text(&new))) {
        None => PathBuf::from(text(&new)),
        Some(Some(path)) => path,
        Some(None) => return Narrowed::refuse(wanted, format!("`{}` is not inside `{}`", text(&new), text(held))),
    };
    // Deeper and yet wider: from above, hooks and configuration cannot be changed.
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    match Steering::around(&real, git_directory) {
        Some(steering) => Narrowed::refuse(wanted, steering.reason()),
        None if held.is_null() => Narrowed::take(new),
        None => Narrowed::take(json!(path.to_string_lossy())),
    }
}

/// The canonical inner path, where it lies inside the outer one. The canonical form is what is kept:
/// a link that is turned elsewhere afterwards must not carry the permission along.
fn contained(outer: &str, inner: &str) -> Option<PathBuf> {
    if outer == inner {
        return Some(PathBuf::from(inner));
    }
    let real = Path::new(inner).canonicalize().ok()?;
    real.starts_with(Path::new(outer).canonicalize().ok()?).then_some(real)
}

fn helpers(held: &Json, wanted: &Node) -> Narrowed {
    let mut narrowed = Narrowed::default();
    let mut kept = serde_json::Map::new();
    for pair in wanted.pairs() {
        match held.get(&pair.name) {
            None => narrowed
                .refused
                .push((pair.at, format!("`{}` has no helpers to narrow", pair.name))),
            Some(known) => {
                let mut inner = subset(known, &pair.node);
                narrowed.refused.append(&mut inner.refused);
                kept.insert(pair.name.clone(), inner.value.unwrap_or_else(|| json!([])));
            }
        }
    }
    narrowed.value = Some(Json::Object(kept));
    narrowed
}

/// The entries that may be added: those that switch a rule off.
fn whitelist(wanted: &Node) -> Narrowed {
    let mut narrowed = Narrowed::default();
    let mut kept = Vec::new();
    for item in wanted.items() {
        let rule = item.to_json();
        if rule["enabled"] == json!(false) {
            kept.push(rule);
        } else {
            let reason = format!(
                "rule `{}` would run commands unasked; a rule here can only be switched off",
                text(&rule["pattern"])
            );
            narrowed.refused.push((item.at, reason));
        }
    }
    narrowed.value = Some(Json::Array(kept));
    narrowed
}

/// All entries count; those that a stricter entry of the same name makes pointless are pointed out.
fn tools(held: &Json, wanted: &Node) -> Narrowed {
    let strictness = |approval: &Json| {
        super::keys::TOOL_APPROVALS
            .iter()
            .position(|word| Some(*word) == approval.as_str())
            .unwrap_or(0)
    };
    let mut narrowed = Narrowed::take(wanted.to_json());
    for pair in wanted.pairs() {
        let new = pair.node.to_json();
        for rule in array(held).iter().filter(|rule| rule["pattern"] == json!(pair.name)) {
            if new["approval"].is_string() && strictness(&new["approval"]) < strictness(&rule["approval"]) {
                let reason = format!("`{}` stays at `{}`, the stricter", pair.name, text(&rule["approval"]));
                narrowed.refused.push((pair.at, reason));
            }
            if new["enabled"] == json!(true) && rule["enabled"] == json!(false) {
                narrowed
                    .refused
                    .push((pair.at, format!("`{}` stays disabled", pair.name)));
            }
        }
    }
    narrowed
}

/// All tool entries count. Which agent a label starts, or which repositories a project has, has no
/// stricter side.
fn policies(wanted: &Node) -> Narrowed {
    let mut narrowed = Narrowed::take(wanted.to_json());
    for pair in wanted.pairs() {
        for field in pair.node.pairs().iter().filter(|field| field.name != "tools") {
            let reason = format!(
                "only the operator's file or a trusted file may set `{}` of `{}`",
                field.name, pair.name
            );
            narrowed.refused.push((field.at, reason));
        }
    }
    narrowed
}

pub(super) fn is_loopback(address: &str) -> bool {
    let host = host(address);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

fn contains(list: &Json, word: &str) -> bool {
    array(list).iter().any(|item| item.as_str() == Some(word))
}

fn array(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Json) -> f64 {
    value.as_f64().unwrap_or(f64::INFINITY)
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}
