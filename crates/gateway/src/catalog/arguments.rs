//! Reads a tool's arguments field by field. All problems are collected, so a caller hears of every
//! mistake at once; unknown fields are mistakes too.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::error::{ErrorCode, Refusal};
use crate::limits;

/// The arguments of one call, while they are being read.
pub struct Arguments<'a> {
    fields: &'a Map<String, Value>,
    known: BTreeSet<&'static str>,
    problems: Vec<String>,
    /// Problems that are counted and not told.
    more: usize,
}

impl<'a> Arguments<'a> {
    pub fn new(fields: &'a Map<String, Value>) -> Self {
        Self {
            fields,
            known: BTreeSet::new(),
            problems: Vec::new(),
            more: 0,
        }
    }

    /// A field that must be there; an empty text when it is not, with the problem noted.
    pub fn string(&mut self, name: &'static str) -> String {
        match self.optional_string(name) {
            Some(text) if text.is_empty() => {
                self.problem(format!("`{name}` must not be empty"));
                text
            }
            Some(text) => text,
            None => {
                if self.is_absent(name) {
                    self.problem(format!("`{name}` is missing"));
                }
                String::new()
            }
        }
    }

    /// Words for somebody who reads them; blanks say nothing.
    pub fn words(&mut self, name: &'static str) -> String {
        let text = self.string(name);
        if !text.is_empty() && text.trim().is_empty() {
            self.problem(format!("`{name}` must say something, not blanks only"));
        }
        text
    }

    pub fn optional_string(&mut self, name: &'static str) -> Option<String> {
        match self.take(name)? {
            Value::String(text) if text.contains('\0') => {
                self.problem(format!("`{name}` must not contain a NUL byte"));
                None
            }
            Value::String(text) => Some(text.clone()),
            other => self.wrong_type(name, "a string", other),
        }
    }

    /// Text that may hold any character, NUL included.
    pub fn optional_text(&mut self, name: &'static str) -> Option<String> {
        match self.take(name)? {
            Value::String(text) => Some(text.clone()),
            other => self.wrong_type(name, "a string", other),
        }
    }

    /// A list that may be empty, and must be there.
    pub fn strings(&mut self, name: &'static str) -> Vec<String> {
        self.required_strings(name, "; give `[]` for none")
    }

    /// A list that must be there, with something in it; how much, whoever asks for it says.
    pub fn some_strings(&mut self, name: &'static str) -> Vec<String> {
        self.required_strings(name, "")
    }

    fn required_strings(&mut self, name: &'static str, instead: &str) -> Vec<String> {
        if self.is_absent(name) {
            self.known.insert(name);
            self.problem(format!("`{name}` is missing{instead}"));
            return Vec::new();
        }
        self.optional_strings(name).unwrap_or_default()
    }

    pub fn optional_strings(&mut self, name: &'static str) -> Option<Vec<String>> {
        let value = self.take(name)?;
        let Value::Array(items) = value else {
            return self.wrong_type(name, "an array of strings", value);
        };
        let mut texts = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            match item {
                Value::String(text) if text.contains('\0') => {
                    self.problem(format!("`{name}[{index}]` must not contain a NUL byte"));
                }
                Value::String(text) => texts.push(text.clone()),
                other => self.problem(format!("`{name}[{index}]` must be a string, not {}", kind(other))),
            }
        }
        Some(texts)
    }

    pub fn optional_positive(&mut self, name: &'static str) -> Option<u64> {
        let value = self.take(name)?;
        match whole(value) {
            Some(number) if number > 0 => Some(number),
            _ if value.is_number() => {
                self.problem(format!("`{name}` must be a whole number above 0, not {value}"));
                None
            }
            _ => self.wrong_type(name, "a whole number above 0", value),
        }
    }

    /// A time in whole units. One that is longer than any number tells is beyond every limit too, and refused for that by
    /// whoever knows the limit.
    pub fn optional_time(&mut self, name: &'static str) -> Option<u64> {
        let value = self.fields.get(name);
        if value.is_some_and(|value| whole(value).is_none() && value.as_f64().is_some_and(|number| number > WHOLE_MAX))
        {
            self.take(name);
            return Some(u64::MAX);
        }
        self.optional_positive(name)
    }

    pub fn optional_natural(&mut self, name: &'static str) -> Option<u64> {
        let value = self.take(name)?;
        match whole(value) {
            Some(number) => Some(number),
            None if value.is_number() => {
                self.problem(format!("`{name}` must be a whole number, 0 or more, not {value}"));
                None
            }
            None => self.wrong_type(name, "a whole number", value),
        }
    }

    pub fn optional_string_map(&mut self, name: &'static str) -> BTreeMap<String, String> {
        let Some(value) = self.take(name) else {
            return BTreeMap::new();
        };
        let Value::Object(fields) = value else {
            self.wrong_type::<()>(name, "an object of strings", value);
            return BTreeMap::new();
        };
        let mut map = BTreeMap::new();
        for (key, value) in fields {
            match value {
                Value::String(text) if text.contains('\0') => {
                    self.problem(format!("`{name}.{key}` must not contain a NUL byte"));
                }
                Value::String(text) => {
                    map.insert(key.clone(), text.clone());
                }
                other => self.problem(format!("`{name}.{key}` must be a string, not {}", kind(other))),
            }
        }
        map
    }

    pub fn optional_flag(&mut self, name: &'static str) -> Option<bool> {
        let value = self.take(name)?;
        match value.as_bool() {
            Some(flag) => Some(flag),
            None => self.wrong_type(name, "a boolean", value),
        }
    }

    /// Whatever stands there, for whoever reads on by themselves.
    pub fn optional_value(&mut self, name: &'static str) -> Option<&'a Value> {
        self.take(name)
    }

    /// One of a closed list of words.
    pub fn optional_word<T: Copy>(&mut self, name: &'static str, words: &[(&str, T)]) -> Option<T> {
        let text = self.optional_string(name)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let list: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            self.problem(format!("`{name}` must be one of {}, not `{text}`", list.join(", ")));
        }
        found
    }

    pub fn problem(&mut self, sentence: String) {
        // What is wrong is repeated in an answer and in the record, and the caller says how much of it there is.
        if self.problems.len() == limits::PROBLEMS_TOLD_MAX {
            self.more += 1;
            return;
        }
        self.problems
            .push(match sentence.char_indices().nth(limits::PROBLEM_CHARS_MAX) {
                None => sentence,
                Some((end, _)) => format!("{}…", &sentence[..end]),
            });
    }

    /// Ends the reading: every field must have been asked for, and nothing may have been wrong.
    pub fn finish(mut self) -> Result<(), Refusal> {
        let unknown: Vec<_> = self
            .fields
            .keys()
            .filter(|name| !self.known.contains(name.as_str()))
            .cloned()
            .collect();
        let known: Vec<_> = self.known.iter().map(|name| format!("`{name}`")).collect();
        let known = known.join(", ");
        for name in unknown {
            self.problem(format!("unknown field `{name}` (this tool takes {known})"));
        }
        if self.more > 0 {
            self.problems.push(format!("and {} more", self.more));
        }
        if self.problems.is_empty() {
            return Ok(());
        }
        let list: Vec<Value> = self
            .problems
            .iter()
            .map(|problem| Value::from(problem.as_str()))
            .collect();
        Err(Refusal::new(ErrorCode::InvalidArguments, self.problems.join("; ")).with("problems", list))
    }

    fn is_absent(&self, name: &str) -> bool {
        matches!(self.fields.get(name), None | Some(Value::Null))
    }

    fn take(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.insert(name);
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn wrong_type<T>(&mut self, name: &str, wanted: &str, got: &Value) -> Option<T> {
        self.problem(format!("`{name}` must be {wanted}, not {}", kind(got)));
        None
    }
}

/// JSON knows one kind of number: `30.0` is a whole number too.
/// Up to here every whole number is one of JSON's.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        (number.fract() == 0.0 && (0.0..=WHOLE_MAX).contains(&number)).then_some(number as u64)
    })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems(value: Value) -> Vec<String> {
        let Value::Object(fields) = value else {
            panic!("an object")
        };
        let mut arguments = Arguments::new(&fields);
        arguments.string("command");
        arguments.optional_strings("args");
        arguments.optional_time("timeout_ms");
        arguments.optional_string_map("env");
        match arguments.finish() {
            Ok(()) => Vec::new(),
            Err(refusal) => {
                assert_eq!(refusal.code, ErrorCode::InvalidArguments);
                refusal.message.split("; ").map(str::to_owned).collect()
            }
        }
    }

    #[test]
    fn good_arguments_pass() {
        assert!(problems(json!({"command": "ls", "args": ["-l"], "timeout_ms": 1, "env": {"A": "b"}})).is_empty());
        assert!(problems(json!({"command": "ls", "args": null, "timeout_ms": 5.0})).is_empty());
    }

    #[test]
    fn a_time_beyond_all_numbers_is_the_longest() {
        let cases = [
            ("7", 7),
            ("18446744073709551615", u64::MAX),
            ("18446744073709551616", u64::MAX),
            ("1e30", u64::MAX),
        ];
        for (text, expected) in cases {
            let fields = serde_json::from_str(&format!("{{\"timeout_ms\": {text}}}")).unwrap();
            let mut arguments = Arguments::new(&fields);
            assert_eq!(arguments.optional_time("timeout_ms"), Some(expected), "{text}");
            assert!(arguments.finish().is_ok(), "{text}");
        }
    }

    #[test]
    fn each_mistake_is_named() {
        let cases = [
            (json!({}), "`command` is missing"),
            (json!({"command": ""}), "`command` must not be empty"),
            (json!({"command": 1}), "`command` must be a string, not a number"),
            (json!({"command": "a\0b"}), "`command` must not contain a NUL byte"),
            (
                json!({"command": "ls", "args": "x"}),
                "`args` must be an array of strings, not a string",
            ),
            (
                json!({"command": "ls", "args": [1]}),
                "`args[0]` must be a string, not a number",
            ),
            (
                json!({"command": "ls", "timeout_ms": 0}),
                "`timeout_ms` must be a whole number above 0, not 0",
            ),
            (
                json!({"command": "ls", "timeout_ms": -1}),
                "`timeout_ms` must be a whole number above 0, not -1",
            ),
            (
                json!({"command": "ls", "timeout_ms": 1.5}),
                "`timeout_ms` must be a whole number above 0, not 1.5",
            ),
            (
                json!({"command": "ls", "env": {"A": 1}}),
                "`env.A` must be a string, not a number",
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(problems(value), [expected]);
        }
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let found = problems(json!({"args": 1, "surprise": 2}));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[2].starts_with("unknown field `surprise`"), "{found:?}");
    }

    #[test]
    fn endless_mistakes_are_cut_short() {
        let mut many: Map<String, Value> = (0..5000).map(|n| (format!("surprise{n}"), Value::Null)).collect();
        many.insert("a".repeat(1 << 20), Value::Null);
        let found = problems(Value::Object(many));
        assert_eq!(found.len(), limits::PROBLEMS_TOLD_MAX + 1);
        assert!(
            found
                .iter()
                .all(|problem| problem.chars().count() <= limits::PROBLEM_CHARS_MAX + 1)
        );
        assert!(found.last().unwrap().starts_with("and "), "{found:?}");
    }
}
