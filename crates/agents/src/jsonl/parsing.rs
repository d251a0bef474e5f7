//! Finding events in what an agent writes.

use serde_json::Value;

use crate::limits::LINE_BYTES_MAX;

/// Puts pieces of output together until they are values.
#[derive(Debug)]
pub(super) struct Values {
    line_delimited: bool,
    rest: String,
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
        found
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
}
