//! Secrets of Kubernetes, as they are written down and as `kubectl` prints them: whatever their fields are called, the
//! values below `data` and `stringData` are secret.

use std::collections::HashMap;
use std::ops::Range;

/// Values of secrets in manifests, YAML and JSON.
pub(super) fn spans(text: &str) -> Vec<Range<usize>> {
    let has_kind = text.contains("Secret") && text.contains("kind");
    if !has_kind && !text.contains("\"stringData\"") {
        return Vec::new();
    }
    let mut spans = in_yaml(text);
    spans.extend(in_json(text));
    spans
}

/// A line of YAML.
struct Line<'t> {
    /// Where it says something.
    at: usize,
    /// How deep that stands. The sign of an item counts as depth.
    column: usize,
    is_item: bool,
    says: &'t str,
}

fn in_yaml(text: &str) -> Vec<Range<usize>> {
    let lines = lines(text);
    let mut spans = Vec::new();
    // Up to where the lines of each depth were looked at: what stands there belongs together.
    let mut done: HashMap<usize, usize> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        let is_done = done.get(&line.column).is_some_and(|end| at < *end);
        if is_done || !is_kind(line.says) {
            continue;
        }
        let object = object(&lines, at);
        done.insert(line.column, object.end);
        spans.extend(values(&lines[object], line.column));
    }
    spans
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut at = 0;
    let lines = text.split_inclusive('\n').map(|line| {
        let indented = line.trim_start_matches(' ');
        let is_item = indented.starts_with("- ");
        let says = if is_item {
            indented[2..].trim_start_matches(' ')
        } else {
            indented
        };
        let column = line.len() - says.len();
        let start = at + column;
        at += line.len();
        Line {
            at: start,
            column,
            is_item,
            says: says.trim_end(),
        }
    });
    lines.collect()
}

fn is_kind(says: &str) -> bool {
    let kind = says.strip_prefix("kind:").and_then(|kind| kind.split(" #").next());
    let kind = kind.map(str::trim);
    kind.is_some_and(|kind| matches!(kind, "Secret" | "\"Secret\"" | "'Secret'"))
}

/// The lines of the object that one of its own belongs to.
fn object(lines: &[Line<'_>], at: usize) -> Range<usize> {
    let column = lines[at].column;
    let is_part = |line: &Line<'_>| line.says.is_empty() || line.column >= column && line.says != "---";
    let begins = |line: &Line<'_>| line.is_item && line.column == column;
    let mut start = at;
    while start > 0 && !begins(&lines[start]) && is_part(&lines[start - 1]) {
        start -= 1;
    }
    let behind = lines[at + 1..].iter();
    let length = behind.take_while(|line| is_part(line) && !begins(line)).count();
    start..at + 1 + length
}

fn values<'l>(object: &'l [Line<'_>], column: usize) -> impl Iterator<Item = Range<usize>> + 'l {
    let mut is_data = false;
    object.iter().filter_map(move |line| {
        if line.column == column && !line.says.is_empty() {
            let rest = ["data:", "stringData:"]
                .iter()
                .find_map(|name| line.says.strip_prefix(name));
            is_data = rest.is_some();
            let rest = rest.map(str::trim_start).filter(|rest| !rest.is_empty())?;
            return Some(line.at + line.says.len() - rest.len()..line.at + line.says.len());
        }
        let value = is_data.then(|| value(line.says)).filter(|value| !value.is_empty())?;
        Some(line.at + line.says.len() - value.len()..line.at + line.says.len())
    })
}

/// What a line gives to a name; all of it where there is none.
fn value(says: &str) -> &str {
    match says.split_once(':') {
        Some((name, value)) if !name.contains(' ') && (value.is_empty() || value.starts_with(' ')) => {
            value.trim_start()
        }
        _ => says,
    }
}

/// An object of JSON that is being read.
#[derive(Default)]
struct Object<'t> {
    field: &'t str,
    is_secret: bool,
    /// It is the `data` of the one around it.
    is_data: bool,
    /// How many values were found before it.
    before: usize,
}

fn in_json(text: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let mut open = vec![Object::default()];
    // What is below `data` of objects of which the kind is not known yet.
    let mut values = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let Some(object) = open.last_mut() else { break };
        match bytes[at] {
            b'"' => {
                let end = string_end(bytes, at + 1);
                let said = &text[at + 1..end];
                let behind = text[(end + 1).min(text.len())..].trim_start_matches([' ', '\t']);
                match behind.starts_with(':') {
                    true => object.field = said,
                    false if object.is_data => values.push(at + 1..end),
                    false => object.is_secret |= object.field == "kind" && said == "Secret",
                }
                at = end;
            }
            b'{' => {
                let is_data = object.is_data || matches!(object.field, "data" | "stringData");
                open.push(Object {
                    is_data,
                    before: values.len(),
                    ..Object::default()
                });
            }
            b'}' if open.len() > 1 => {
                let closed = open.pop().unwrap_or_default();
                // Nothing else has `stringData`, also where only a part of it is written down.
                let field = open.last().map_or("", |object| object.field);
                if closed.is_secret || closed.is_data && field == "stringData" {
                    spans.extend(values.drain(closed.before..));
                } else if !closed.is_data {
                    values.truncate(closed.before);
                }
            }
            _ => {}
        }
        at += 1;
    }
    spans
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && bytes[at] != b'"' {
        at += 1 + usize::from(bytes[at] == b'\\');
    }
    at.min(bytes.len())
}
