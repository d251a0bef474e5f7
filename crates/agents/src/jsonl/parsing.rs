//! Finding events in what an agent writes.

use serde_json::Value;

use crate::limits::LINE_BYTES_MAX;

/// Puts pieces of output together until they are values.
#[derive(Debug)]
pub(super) struct Values {
    line_delimited: bool,
    rest: String,
    nesting: Nesting,
    /// From this length on the rest is looked at even though nothing was closed: it may be no value at all. Twice what it
    /// was the last time, so that a long value is not read anew with each of its lines.
    look_at: usize,
}

/// How deep in a value the text is that was seen so far.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    in_text: bool,
    escaped: bool,
}

/// Something that was found.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    Event(Value),
    /// Text that is no event.
    Words(String),
}

impl Values {
    pub(super) fn new(line_delimited: bool) -> Values {
        Values {
            line_delimited,
            rest: String::new(),
            nesting: Nesting::default(),
            look_at: 0,
        }
    }

    pub(super) fn read(&mut self, line: &str) -> Vec<Found> {
        if self.line_delimited {
            return vec![match serde_json::from_str(line) {
                Ok(value @ Value::Object(_)) => Found::Event(value),
                Ok(_) | Err(_) => Found::Words(line.to_owned()),
            }];
        }
        self.rest.push_str(line);
        self.rest.push('\n');
        if !self.nesting.closes_in(line) && self.rest.len() < self.look_at {
            return Vec::new();
        }
        self.look()
    }

    /// Takes what is whole from the rest.
    fn look(&mut self) -> Vec<Found> {
        let mut found = Vec::new();
        let mut values = serde_json::Deserializer::from_str(&self.rest).into_iter::<Value>();
        let mut taken = 0;
        let is_broken = loop {
            match values.next() {
                Some(Ok(value)) => {
                    taken = values.byte_offset();
                    found.push(match value {
                        Value::Object(_) => Found::Event(value),
                        other => Found::Words(other.to_string()),
                    });
                }
                Some(Err(error)) => break !error.is_eof(),
                None => break false,
            }
        };
        self.rest.drain(..taken);
        // What can never become a value, or becomes too long for one, is handed on as it is.
        if is_broken || self.rest.len() > LINE_BYTES_MAX {
            found.push(Found::Words(std::mem::take(&mut self.rest).trim().to_owned()));
        }
        self.nesting = Nesting::default();
        self.nesting.closes_in(&self.rest);
        self.look_at = (2 * self.rest.len()).min(LINE_BYTES_MAX);
        found
    }
}

impl Nesting {
    /// Goes on by a text; whether some value may have come to its end in it.
    fn closes_in(&mut self, text: &str) -> bool {
        let mut closes = false;
        for byte in text.bytes() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_text => self.escaped = true,
                b'"' => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    closes |= self.depth == 0;
                }
                _ => {}
            }
        }
        closes || self.depth == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_without_lines_are_found_where_they_end() {
        let mut values = Values::new(false);
        assert_eq!(values.read("{\"a\":1}{\"b\":"), [Found::Event(json!({"a": 1}))]);
        assert_eq!(values.read("2}"), [Found::Event(json!({"b": 2}))]);
        assert_eq!(values.read("oops"), [Found::Words("oops".to_owned())]);
        assert_eq!(values.read("{\"c\":3}"), [Found::Event(json!({"c": 3}))]);
    }

    #[test]
    fn a_line_that_is_no_event_is_kept_as_words() {
        let mut values = Values::new(true);
        assert_eq!(values.read("loading..."), [Found::Words("loading...".to_owned())]);
        assert_eq!(values.read("{\"a\":1}"), [Found::Event(json!({"a": 1}))]);
    }

    #[test]
    fn a_long_value_is_not_read_anew_with_each_of_its_lines() {
        let mut values = Values::new(false);
        let lines = 200_000;
        assert_eq!(values.read("{\"a\": ["), []);
        for number in 0..lines {
            assert_eq!(values.read(&format!("\"}} [ \\\" {number}\",")), [], "{number}");
        }
        assert_eq!(values.read("0]"), []);
        let [Found::Event(event)] = &values.read("}{")[..] else {
            panic!("one event");
        };
        assert_eq!(event["a"].as_array().unwrap().len(), lines + 1);
        assert_eq!(values.read("}"), [Found::Event(json!({}))]);
    }

    #[test]
    fn what_is_no_value_inside_of_one_is_handed_on_soon() {
        let mut values = Values::new(false);
        assert_eq!(values.read("{"), []);
        let found: Vec<Found> = (0..3).flat_map(|_| values.read("loading [")).collect();
        assert!(matches!(&found[..], [Found::Words(words), ..] if words.starts_with('{')));
    }
}
