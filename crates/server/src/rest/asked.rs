//! A request whose parameters were checked against the table.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::Query;
use axum::http::{Extensions, HeaderMap, Uri};
use countersign_gateway::audit::summary::Period;
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::error::{ErrorCode, Refusal, brief};
use countersign_gateway::session::Caller;
use serde::de::DeserializeOwned;

use super::Api;
use super::failure::Failure;
use crate::strict::Strict;

pub(super) struct Asked {
    pub(super) api: Arc<Api>,
    /// May do what the table says; what else it may is the handler's to ask.
    pub(super) caller: Caller,
    pub(super) values: Values,
    pub(super) body: Bytes,
    pub(super) headers: HeaderMap,
    pub(super) extensions: Extensions,
}

/// Something that may be named beside the body.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) form: Form,
    pub(super) about: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Path,
    Query,
    Header,
}

/// What a parameter may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// At least one character, and at most so many.
    Text {
        chars_max: usize,
    },
    /// The same of printable characters without spaces, such as ids have.
    Id {
        chars_max: usize,
    },
    Whole {
        least: u64,
        most: u64,
    },
    /// RFC 3339, or a time ago.
    Moment,
    Flag,
    /// One word of a closed list.
    Word(fn() -> Vec<&'static str>),
    /// Several words of a closed list, with commas between them.
    Words(fn() -> Vec<&'static str>),
}

/// A parameter as it was given.
#[derive(Clone, PartialEq, Debug)]
enum Value {
    Text(String),
    Whole(u64),
    Moment(Timestamp),
    Flag(bool),
    Words(Vec<String>),
}

/// What was given, each at most once.
#[derive(Default)]
pub(super) struct Values(Vec<(&'static str, Value)>);

impl Asked {
    /// The body, as the schema says.
    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        object(&self.body).map_err(Failure::malformed)
    }
}

/// Reads a JSON object. A list with the right values in the right order could be read as one too, and is none.
pub(super) fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err("the body must be a JSON object".to_owned());
    }
    let wrong = |error: serde_json::Error| format!("the body: {error}");
    // Somebody on the way, or a person who looks at what was sent, may have read the other of two.
    serde_json::from_slice::<Strict>(body).map_err(wrong)?;
    serde_json::from_slice(body).map_err(wrong)
}

impl Values {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.find(name)? {
            Value::Text(text) => Some(text),
            Value::Whole(_) | Value::Moment(_) | Value::Flag(_) | Value::Words(_) => None,
        }
    }

    pub(super) fn whole(&self, name: &str) -> Option<u64> {
        match self.find(name)? {
            Value::Whole(whole) => Some(*whole),
            Value::Text(_) | Value::Moment(_) | Value::Flag(_) | Value::Words(_) => None,
        }
    }

    fn moment(&self, name: &str) -> Option<Timestamp> {
        match self.find(name)? {
            Value::Moment(moment) => Some(*moment),
            Value::Text(_) | Value::Whole(_) | Value::Flag(_) | Value::Words(_) => None,
        }
    }

    /// What `from` and `to` say together.
    pub(super) fn period(&self) -> Result<Period, Refusal> {
        Period::between(self.moment("from"), self.moment("to")).map_err(|error| wrong(error.to_string()))
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        match self.find(name)? {
            Value::Flag(flag) => Some(*flag),
            Value::Text(_) | Value::Whole(_) | Value::Moment(_) | Value::Words(_) => None,
        }
    }

    pub(super) fn words(&self, name: &str) -> Option<&[String]> {
        match self.find(name)? {
            Value::Words(words) => Some(words),
            Value::Text(_) | Value::Whole(_) | Value::Moment(_) | Value::Flag(_) => None,
        }
    }

    fn find(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub(super) fn read_query(&mut self, known: &'static [Parameter], uri: &Uri, clock: &Clock) -> Result<(), Refusal> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
        let Query(pairs) = pairs.map_err(|_| wrong("what follows the `?` cannot be read".to_owned()))?;
        for (name, value) in pairs {
            self.read(known, Place::Query, &name, &value, clock)?;
        }
        Ok(())
    }

    /// Only headers that the table names; there are always others.
    pub(super) fn read_headers(
        &mut self,
        known: &'static [Parameter],
        headers: &HeaderMap,
        clock: &Clock,
    ) -> Result<(), Refusal> {
        for parameter in known.iter().filter(|parameter| parameter.place == Place::Header) {
            if let Some(value) = headers.get(parameter.name) {
                let value = value.to_str().map_err(|_| parameter.refused("text"))?;
                self.read(known, Place::Header, parameter.name, value, clock)?;
            }
        }
        Ok(())
    }

    /// Takes one value, if there is such a parameter and it may be that.
    pub(super) fn read(
        &mut self,
        known: &'static [Parameter],
        place: Place,
        name: &str,
        value: &str,
        clock: &Clock,
    ) -> Result<(), Refusal> {
        let found = known.iter().find(|it| it.place == place && it.name == name);
        let Some(parameter) = found else {
            let names: Vec<_> = known.iter().filter(|it| it.place == place).map(|it| it.name).collect();
            let message = match names.as_slice() {
                [] => format!("there is no parameter `{}`; this takes none", brief(name)),
                names => format!("there is no parameter `{}`; there is {}", brief(name), quoted(names)),
            };
            return Err(wrong(message));
        };
        if self.find(parameter.name).is_some() {
            return Err(wrong(format!("`{name}` is given twice")));
        }
        self.0.push((parameter.name, parameter.parse(value, clock)?));
        Ok(())
    }
}

impl Parameter {
    fn parse(&self, text: &str, clock: &Clock) -> Result<Value, Refusal> {
        match self.form {
            Form::Text { chars_max } => {
                let fits = !text.is_empty() && text.chars().count() <= chars_max && !text.contains('\0');
                let expected = format!("a text of 1 to {chars_max} characters");
                fits.then(|| Value::Text(text.to_owned()))
                    .ok_or_else(|| self.refused(&expected))
            }
            Form::Id { chars_max } => {
                let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
                let fits = (1..=chars_max).contains(&text.chars().count()) && text.chars().all(is_plain);
                let expected = format!("1 to {chars_max} printable characters without spaces");
                fits.then(|| Value::Text(text.to_owned()))
                    .ok_or_else(|| self.refused(&expected))
            }
            Form::Whole { least, most } => {
                let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let whole = text
                    .parse()
                    .ok()
                    .filter(|whole| plain && (least..=most).contains(whole));
                whole
                    .map(Value::Whole)
                    .ok_or_else(|| self.refused(&format!("a whole number from {least} to {most}")))
            }
            Form::Moment => {
                let moment = Timestamp::parse_or_ago(text, clock.now());
                moment
                    .map(Value::Moment)
                    .map_err(|error| wrong(format!("`{}`: {error}", self.name)))
            }
            Form::Flag => match text {
                "true" => Ok(Value::Flag(true)),
                "false" => Ok(Value::Flag(false)),
                _ => Err(self.refused("`true` or `false`")),
            },
            Form::Word(words) => {
                let words = words();
                let is_known = words.contains(&text);
                let expected = || format!("one of {}", quoted(&words));
                is_known
                    .then(|| Value::Text(text.to_owned()))
                    .ok_or_else(|| self.refused(&expected()))
            }
            Form::Words(words) => {
                let words = words();
                let given: Vec<String> = text.split(',').map(str::to_owned).collect();
                let are_known = given.iter().all(|word| words.contains(&word.as_str()));
                let expected = || format!("one or more of {}, with commas between them", quoted(&words));
                are_known
                    .then_some(Value::Words(given))
                    .ok_or_else(|| self.refused(&expected()))
            }
        }
    }

    fn refused(&self, expected: &str) -> Refusal {
        wrong(format!("`{}` is {expected}", self.name))
    }
}

fn quoted(words: &[&str]) -> String {
    words
        .iter()
        .map(|word| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn wrong(message: String) -> Refusal {
    Refusal::new(ErrorCode::InvalidArguments, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Parameter] = &[
        parameter("limit", Form::Whole { least: 1, most: 10 }),
        parameter("name", Form::Text { chars_max: 3 }),
        parameter("all", Form::Flag),
        parameter("state", Form::Words(|| vec!["open", "shut"])),
        parameter("from", Form::Moment),
    ];

    const fn parameter(name: &'static str, form: Form) -> Parameter {
        Parameter {
            name,
            place: Place::Query,
            form,
            about: "",
        }
    }

    fn read(query: &str) -> Result<Values, Refusal> {
        let uri: Uri = format!("/x?{query}").parse().unwrap();
        let clock = Clock::fixed(Timestamp::from_millis(7_200_000));
        let mut values = Values::default();
        values.read_query(KNOWN, &uri, &clock)?;
        Ok(values)
    }

    #[test]
    fn what_the_table_names_is_read() {
        let values = read("limit=10&name=%C3%A9t%C3%A9&all=true&state=open,shut&from=1h").unwrap();
        assert_eq!((values.whole("limit"), values.text("name")), (Some(10), Some("été")));
        assert_eq!(values.flag("all"), Some(true));
        assert_eq!(values.words("state"), Some(&["open".to_owned(), "shut".to_owned()][..]));
        assert_eq!(values.moment("from"), Some(Timestamp::from_millis(3_600_000)));
        assert_eq!(values.whole("other"), None);
    }

    #[test]
    fn everything_else_is_refused_with_what_is_expected() {
        for (query, said) in [
            ("limt=1", "there is no parameter `limt`; there is `limit`"),
            ("limit=0", "`limit` is a whole number from 1 to 10"),
            ("limit=11", "`limit` is a whole number from 1 to 10"),
            ("limit=+1", "`limit` is a whole number from 1 to 10"),
            ("limit=", "`limit` is a whole number from 1 to 10"),
            ("limit=1&limit=1", "`limit` is given twice"),
            ("name=", "`name` is a text of 1 to 3 characters"),
            ("name=abcd", "`name` is a text of 1 to 3 characters"),
            ("name=%00", "`name` is a text of 1 to 3 characters"),
            ("all=yes", "`all` is `true` or `false`"),
            ("state=open,ajar", "`state` is one or more of `open`, `shut`"),
            ("from=yesterday", "`from`: `yesterday` is neither"),
        ] {
            let refusal = read(query).err().unwrap_or_else(|| panic!("{query}"));
            assert!(refusal.message.starts_with(said), "{query}: {}", refusal.message);
        }
    }
}
