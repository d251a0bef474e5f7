//! One more rule in a configuration file that a person wrote: every byte of theirs stays.
//!
//! Lines are put in where the file's own style suggests; what comes of it is read again and must say what
//! the file said before, and the rule. Where no place does, nothing is changed and the person gets the
//! lines to put in by hand.

use serde_json::{Value as Json, json};

use super::origin::Position;
use super::tree::{self, Node, Value};
use super::yaml::flow;

const SECTION: &str = "approval_policy";
const LIST: &str = "whitelist";

/// A rule as it is written, with what a reader of the file should know about it.
pub(super) struct NewRule {
    pub(super) fields: Vec<(&'static str, Json)>,
    pub(super) remarks: Vec<String>,
}

impl NewRule {
    fn value(&self) -> Json {
        let fields = self
            .fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        Json::Object(fields.collect())
    }

    /// As an item of a list in block style.
    fn block(&self, indent: usize) -> String {
        let pad = " ".repeat(indent);
        let mut text = String::new();
        for remark in &self.remarks {
            text += &format!("{pad}# {remark}\n");
        }
        for (index, (name, value)) in self.fields.iter().enumerate() {
            let lead = if index == 0 { "- " } else { "  " };
            text += &format!("{pad}{lead}{name}: {}\n", written(value));
        }
        text
    }

    /// As an item of a list in flow style.
    fn flow(&self) -> String {
        let fields: Vec<_> = self
            .fields
            .iter()
            .map(|(name, value)| format!("{name}: {}", written(value)))
            .collect();
        format!("{{{}}}", fields.join(", "))
    }

    /// The whole, as it would stand in an empty file.
    pub(super) fn alone(&self) -> String {
        format!("{SECTION}:\n  {LIST}:\n{}", self.block(4))
    }
}

/// Patterns are quoted always: half of them would mean something to YAML.
fn written(value: &Json) -> String {
    match value {
        Json::String(text) => Json::String(text.clone()).to_string(),
        Json::Array(items) => format!("[{}]", items.iter().map(written).collect::<Vec<_>>().join(", ")),
        other => flow(other),
    }
}

/// The text with the rule in it; none where no place for it is safe.
pub(super) fn with_rule(text: &str, rule: &NewRule) -> Option<String> {
    let before = tree::read(text).ok()?;
    let newlines = |new: String| {
        let crlf = text.matches("\r\n").count();
        let only = crlf > 0 && crlf == text.matches('\n').count();
        if only { new.replace('\n', "\r\n") } else { new }
    };
    let candidates = places(text, &before, rule);
    candidates.into_iter().find_map(|Insertion { at, new }| {
        let whole = [&text[..at], &newlines(new), &text[at..]].concat();
        let after = tree::read(&whole).ok()?;
        adds_only(&before.to_json(), &after.to_json(), &rule.value()).then_some(whole)
    })
}

/// Text at a byte of the file.
struct Insertion {
    at: usize,
    new: String,
}

/// Where the rule could stand, the best place first.
fn places(text: &str, tree: &Node, rule: &NewRule) -> Vec<Insertion> {
    let lines = Lines::of(text);
    let pair = |node: &Node, name: &str| match &node.value {
        Value::Map(pairs) => pairs.iter().find(|pair| pair.name == name).cloned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => None,
    };
    let mut places = Vec::new();
    let Some(section) = pair(tree, SECTION) else {
        let mut new = rule.alone();
        if !text.is_empty() && !text.ends_with('\n') {
            new.insert(0, '\n');
        }
        places.push(Insertion { at: text.len(), new });
        return places;
    };
    match pair(&section.node, LIST) {
        Some(list) => {
            places.extend(lines.opening(list.node.at, '[').map(|at| Insertion {
                at,
                new: rule.flow() + if list.node.items().is_empty() { "" } else { ", " },
            }));
            if let Some(first) = list.node.items().first().and_then(|item| item.at)
                && let Some(indent) = lines.dash(first)
            {
                let new = rule.block(indent);
                let last = list.node.items().iter().map(last_line).max().unwrap_or(first.line);
                places.extend(lines.after(last).map(|(at, lead)| Insertion {
                    at,
                    new: lead.to_owned() + &new,
                }));
                places.extend(lines.start(first.line).map(|at| Insertion { at, new }));
            }
            if let Some(name) = list.at {
                let indent = usize::try_from(name.column).unwrap_or(1) + 1;
                places.extend(lines.after(name.line).map(|(at, lead)| Insertion {
                    at,
                    new: lead.to_owned() + &rule.block(indent),
                }));
            }
        }
        None => {
            places.extend(lines.opening(section.node.at, '{').map(|at| Insertion {
                at,
                new: format!("{LIST}: [{}]", rule.flow()) + if section.node.pairs().is_empty() { "" } else { ", " },
            }));
            let in_block = |indent: usize| format!("{}{LIST}:\n{}", " ".repeat(indent), rule.block(indent + 2));
            if let Some(first) = section.node.pairs().first().and_then(|pair| pair.at) {
                let indent = usize::try_from(first.column).unwrap_or(1).saturating_sub(1);
                let last = last_line(&section.node);
                places.extend(lines.after(last).map(|(at, lead)| Insertion {
                    at,
                    new: lead.to_owned() + &in_block(indent),
                }));
                places.extend(lines.start(first.line).map(|at| Insertion {
                    at,
                    new: in_block(indent),
                }));
            }
            if let Some(name) = section.at {
                places.extend(lines.after(name.line).map(|(at, lead)| Insertion {
                    at,
                    new: lead.to_owned() + &in_block(2),
                }));
            }
        }
    }
    places
}

/// The last line on which something of a value begins.
fn last_line(node: &Node) -> u64 {
    let own = node.at.map_or(0, |at| at.line);
    let inner = match &node.value {
        Value::List(items) => items.iter().map(last_line).max(),
        Value::Map(pairs) => pairs
            .iter()
            .map(|pair| last_line(&pair.node).max(pair.at.map_or(0, |at| at.line)))
            .max(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => None,
    };
    own.max(inner.unwrap_or(0))
}

/// Whether two trees differ by one more item of the list and by nothing else.
fn adds_only(before: &Json, after: &Json, rule: &Json) -> bool {
    let empty = |value: &Json| value.is_null() || *value == json!([]) || *value == json!({});
    let (mut before, mut after) = (before.clone(), after.clone());
    let take = |whole: &mut Json| -> Option<Vec<Json>> {
        if whole.is_null() {
            *whole = json!({});
        }
        let section = whole.as_object_mut()?.entry(SECTION).or_insert(Json::Null);
        if empty(section) {
            *section = json!({});
        }
        match section.as_object_mut()?.shift_remove(LIST) {
            Some(Json::Array(items)) => Some(items),
            Some(Json::Null) | None => Some(Vec::new()),
            Some(_) => None,
        }
    };
    let (Some(old), Some(mut new)) = (take(&mut before), take(&mut after)) else {
        return false;
    };
    let Some(place) = new.iter().position(|item| item == rule) else {
        return false;
    };
    new.remove(place);
    old == new && before == after
}

/// The lines of a text, by their numbers.
struct Lines<'a> {
    text: &'a str,
    /// Where each begins.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            starts: std::iter::once(0).chain(ends).collect(),
        }
    }

    fn start(&self, line: u64) -> Option<usize> {
        let index = usize::try_from(line).ok()?.checked_sub(1)?;
        self.starts.get(index).copied()
    }

    /// Where the next line begins, and what must come first where there is none.
    fn after(&self, line: u64) -> Option<(usize, &'static str)> {
        match self.start(line + 1) {
            Some(at) => Some((at, "")),
            None => Some((self.text.len(), "\n")),
        }
    }

    /// Just behind a bracket that stands at a position.
    fn opening(&self, at: Option<Position>, bracket: char) -> Option<usize> {
        let at = at?;
        let line = self.start(at.line)?;
        let column = usize::try_from(at.column).ok()?.checked_sub(1)?;
        let (offset, found) = self.text[line..].char_indices().nth(column)?;
        (found == bracket).then_some(line + offset + bracket.len_utf8())
    }

    /// How far the dash of a list's item on this line is indented.
    fn dash(&self, at: Position) -> Option<usize> {
        let line = self.text[self.start(at.line)?..].lines().next()?;
        let indent = line.len() - line.trim_start_matches(' ').len();
        line[indent..].starts_with('-').then_some(indent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> NewRule {
        NewRule {
            fields: vec![("pattern", json!("^touch made$")), ("reason", json!("said so"))],
            remarks: vec!["Touches.".to_owned()],
        }
    }

    const BLOCK: &str = "# Touches.\n- pattern: \"^touch made$\"\n  reason: \"said so\"\n";
    const FLOW: &str = "{pattern: \"^touch made$\", reason: \"said so\"}";

    fn block(indent: usize) -> String {
        let pad = " ".repeat(indent);
        BLOCK.lines().map(|line| format!("{pad}{line}\n")).collect()
    }

    /// The file with the rule, where the mark says.
    #[track_caller]
    fn check(marked: &str, new: &str) {
        let text = marked.replace('@', "");
        let expected = marked.replace('@', new);
        assert_eq!(
            with_rule(&text, &rule()).as_deref(),
            Some(expected.as_str()),
            "in:\n{text}"
        );
    }

    #[test]
    fn a_file_without_rules_gets_a_list() {
        let alone = format!("approval_policy:\n  whitelist:\n{}", block(4));
        check("@", &alone);
        check("# mine\n@", &alone);
        check("quorum: 2 # two\n@", &alone);
        check("quorum: 2@", &format!("\n{alone}"));
        let list = |indent: usize| format!("{}whitelist:\n{}", " ".repeat(indent), block(indent + 2));
        check("approval_policy:\n@quorum: 2\n", &list(2));
        check(
            "approval_policy:\n    mode: untrusted # asks\n@# next\nquorum: 2\n",
            &list(4),
        );
        check(
            "approval_policy: {@mode: untrusted}\n",
            &format!("whitelist: [{FLOW}], "),
        );
        check("approval_policy: {@}\n", &format!("whitelist: [{FLOW}]"));
    }

    #[test]
    fn a_list_gets_one_more_and_nothing_else_moves() {
        check(
            "approval_policy:\n  whitelist:\n    # mine\n    - {pattern: \"^a\"} # one\n    - pattern: \"^b\"\n      reason: x\n@  mode: untrusted\n",
            &block(4),
        );
        // Not indented, as many write it.
        check(
            "approval_policy:\n  whitelist:\n  - {pattern: \"^a\"}\n@quorum: 2\n",
            &block(2),
        );
        check(
            "approval_policy:\n  whitelist: [@{pattern: \"^a\"}]\nquorum: 2\n",
            &format!("{FLOW}, "),
        );
        check("approval_policy: {mode: untrusted, whitelist: [@]}\n", FLOW);
        check("approval_policy:\n  whitelist:\n@  mode: untrusted\n", &block(4));
        check(
            "approval_policy:\n  whitelist:\n    - {pattern: \"^é\", reason: \"ü\"}@",
            &format!("\n{}", block(4)),
        );
    }

    #[test]
    fn an_item_that_goes_on_over_lines_is_not_cut() {
        let text = "approval_policy:\n  whitelist:\n    - pattern: \"^a\"\n      reason: >\n        long\n        words\nquorum: 2\n";
        let new = with_rule(text, &rule()).unwrap();
        assert_eq!(new.replace(&block(4), ""), text);
    }

    #[test]
    fn line_ends_stay_of_one_kind() {
        let text = "approval_policy:\r\n  whitelist:\r\n    - {pattern: \"^a\"}\r\n";
        let new = with_rule(text, &rule()).unwrap();
        assert_eq!(new.matches("\r\n").count(), new.matches('\n').count());
        assert!(new.starts_with(text), "{new}");
    }

    #[test]
    fn what_cannot_be_edited_safely_is_left_alone() {
        for text in [
            "{quorum: 2}\n",
            "approval_policy: null\n",
            "approval_policy: &a {mode: untrusted}\nquorum: 2\n...\n",
            "a: [1\n",
            "- 1\n",
            "approval_policy: 3\n",
        ] {
            if let Some(new) = with_rule(text, &rule()) {
                let (before, after) = (tree::read(text).unwrap(), tree::read(&new).unwrap());
                assert!(adds_only(&before.to_json(), &after.to_json(), &rule().value()), "{new}");
            }
        }
        assert_eq!(with_rule("{quorum: 2}\n", &rule()), None);
        assert_eq!(with_rule("approval_policy: null\n", &rule()), None);
        assert_eq!(with_rule("a: [1\n", &rule()), None);
    }
}
