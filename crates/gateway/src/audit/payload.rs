//! The payload of an event: canonical JSON (RFC 8785) of an object, written once.
//!
//! Every call writes several of these, so they are put together from fields rather than from a tree of
//! values, and what many payloads share (the policy's snapshot) is made canonical once.

use std::fmt::Write as _;
use std::ops::Range;

use serde_json::Value;

use super::chain::{canonical, quote};

/// Whole numbers up to here, and down to its negative, are written digit by digit.
const WHOLE_MAX: u64 = (1 << 53) - 1;

/// Canonical JSON of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payload(String);

impl Payload {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

impl From<&Value> for Payload {
    fn from(value: &Value) -> Self {
        Self(canonical(value))
    }
}

/// A payload that is being put together. A field that has nothing to say is left out.
#[derive(Clone, Default)]
pub struct Object {
    /// The values, one behind the other.
    values: String,
    fields: Vec<(&'static str, Range<usize>)>,
}

impl Object {
    pub fn new() -> Self {
        Self {
            values: String::with_capacity(512),
            fields: Vec::with_capacity(16),
        }
    }

    #[must_use]
    pub fn text(self, name: &'static str, text: &str) -> Self {
        self.field(name, |values| quote(values, text))
    }

    #[must_use]
    pub fn optional_text(self, name: &'static str, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.text(name, text),
            None => self,
        }
    }

    #[must_use]
    pub fn text_or_null(self, name: &'static str, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.text(name, text),
            None => self.null(name),
        }
    }

    #[must_use]
    pub fn texts<'t>(self, name: &'static str, texts: impl IntoIterator<Item = &'t str>) -> Self {
        self.field(name, |values| {
            values.push('[');
            for (index, text) in texts.into_iter().enumerate() {
                if index > 0 {
                    values.push(',');
                }
                quote(values, text);
            }
            values.push(']');
        })
    }

    #[must_use]
    pub fn whole(self, name: &'static str, number: i64) -> Self {
        self.field(name, |values| {
            if number.unsigned_abs() <= WHOLE_MAX {
                write!(values, "{number}").expect("writing to a string does not fail");
            } else {
                values.push_str(&canonical(&Value::from(number)));
            }
        })
    }

    #[must_use]
    pub fn flag(self, name: &'static str, flag: bool) -> Self {
        self.field(name, |values| values.push_str(if flag { "true" } else { "false" }))
    }

    /// What is canonical already.
    #[must_use]
    pub fn part(self, name: &'static str, part: &Payload) -> Self {
        self.field(name, |values| values.push_str(&part.0))
    }

    /// Where the contract wants the field, said or not.
    #[must_use]
    pub fn null(self, name: &'static str) -> Self {
        self.field(name, |values| values.push_str("null"))
    }

    pub fn finish(mut self) -> Payload {
        // Our names are ASCII, whose byte order is the order RFC 8785 asks for.
        self.fields.sort_unstable_by_key(|(name, _)| *name);
        let is_twice = |pair: &[(&str, _)]| pair[0].0 == pair[1].0;
        debug_assert!(!self.fields.windows(2).any(is_twice), "a field is written twice");
        let names: usize = self.fields.iter().map(|(name, _)| name.len() + 4).sum();
        let mut text = String::with_capacity(names + self.values.len() + 2);
        text.push('{');
        for (index, (name, value)) in self.fields.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push('"');
            text.push_str(name);
            text.push_str("\":");
            text.push_str(&self.values[value.clone()]);
        }
        text.push('}');
        Payload(text)
    }

    fn field(mut self, name: &'static str, write: impl FnOnce(&mut String)) -> Self {
        let start = self.values.len();
        write(&mut self.values);
        self.fields.push((name, start..self.values.len()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn fields_put_together_are_what_the_canonicaliser_writes(text: String, list: Vec<String>, number in -9_007_199_254_740_991i64..=9_007_199_254_740_991, flag: bool) {
            let shared = Payload::from(&json!({"z": 1, "a": [text.clone()]}));
            let payload = Object::new()
                .whole("number", number)
                .texts("list", list.iter().map(String::as_str))
                .part("shared", &shared)
                .text("text", &text)
                .optional_text("absent", None)
                .flag("flag", flag)
                .null("nothing")
                .finish();
            let value = json!({
                "text": text, "list": list, "number": number, "flag": flag, "nothing": null,
                "shared": {"a": [text], "z": 1},
            });
            prop_assert_eq!(payload, Payload::from(&value));
        }
    }
}
