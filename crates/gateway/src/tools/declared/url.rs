//! An address that arguments are filled into, and cannot leave their places in.

use std::fmt;

use serde_json::{Map, Value};

use super::template::{TemplateError, Text};
use crate::error::{ErrorCode, Refusal};

/// An address with places for arguments, each a whole segment of the path or a whole value of the query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    // INVARIANT: scheme, host and port are in the first part, which is plain.
    parts: Vec<Text>,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("a placeholder stands for one segment of the path or one value of the query, never for a part of the host")]
    Host,
    #[error(
        "a placeholder must be a whole segment of the path (`/{{{{ args.x }}}}/`) or a whole value of the query (`?a={{{{ args.x }}}}`)"
    )]
    Segment,
}

impl Url {
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(begin) = rest.find("{{") {
            let end = rest[begin..].find("}}").ok_or(UrlError::Segment)? + begin + 2;
            let (before, slot, after) = (&rest[..begin], &rest[begin..end], &rest[end..]);
            let so_far: String = parts.iter().map(plain).collect::<String>() + before;
            let path_begins = so_far.find("://").and_then(|at| so_far[at + 3..].find('/'));
            if path_begins.is_none() {
                return Err(UrlError::Host);
            }
            if !before.ends_with(['/', '=']) || !(after.is_empty() || after.starts_with(['/', '?', '&'])) {
                return Err(UrlError::Segment);
            }
            parts.push(Text::Plain(before.to_owned()));
            parts.push(Text::parse(slot)?);
            rest = after;
        }
        if rest.contains("}}") {
            return Err(UrlError::Segment);
        }
        parts.push(Text::Plain(rest.to_owned()));
        Ok(Self { parts })
    }

    /// The arguments it waits for.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(Text::argument)
    }

    /// An address of the same form, for whoever checks what kind of address it is.
    pub fn example(&self) -> String {
        self.parts.iter().map(plain).collect()
    }

    pub(super) fn fill(&self, arguments: &Map<String, Value>) -> Result<String, Refusal> {
        let mut filled = String::new();
        for part in &self.parts {
            match part {
                Text::Plain(text) => filled.push_str(text),
                Text::Argument(name) => {
                    let value = part.fill(arguments).unwrap_or_default();
                    // A service would take these for another path.
                    if matches!(value.as_str(), "" | "." | "..") && filled.ends_with('/') {
                        let message = format!("`{name}` must not be empty, `.` or `..`: it is a part of an address");
                        return Err(Refusal::new(ErrorCode::InvalidArguments, message));
                    }
                    encode(&value, &mut filled);
                }
            }
        }
        Ok(filled)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Text::Plain(text) => f.write_str(text),
            Text::Argument(name) => write!(f, "{{{{ args.{name} }}}}"),
        })
    }
}

fn plain(part: &Text) -> String {
    match part {
        Text::Plain(text) => text.clone(),
        Text::Argument(_) => "x".to_owned(),
    }
}

/// Everything but unreserved characters, so that a value stays inside its segment.
fn encode(value: &str, into: &mut String) {
    use fmt::Write as _;
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(into, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled(url: &str, arguments: Value) -> Result<String, String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        url.fill(arguments.as_object().unwrap())
            .map_err(|refusal| refusal.message)
    }

    #[test]
    fn a_value_stays_inside_its_segment_of_an_address() {
        let at = "https://api.example.org/v1/{{ args.id }}/log?q={{ args.q }}&n=1";
        assert_eq!(
            filled(at, json!({"id": "a/../b?x#y", "q": "1&admin=true"})).unwrap(),
            "https://api.example.org/v1/a%2F..%2Fb%3Fx%23y/log?q=1%26admin%3Dtrue&n=1"
        );
        assert_eq!(
            filled(at, json!({"id": "a\r\nHost: evil", "q": "ü"})).unwrap(),
            "https://api.example.org/v1/a%0D%0AHost%3A%20evil/log?q=%C3%BC&n=1"
        );
        for id in ["..", ".", ""] {
            assert!(filled(at, json!({"id": id, "q": ""})).is_err(), "{id:?}");
        }
    }

    #[test]
    fn a_placeholder_never_names_a_host() {
        for url in [
            "{{ args.url }}",
            "https://{{ args.host }}/x",
            "https://{{ args.host }}",
            "https://api.{{ args.host }}/x",
            "https://host:{{ args.port }}/x",
            "{{ args.scheme }}://host/x",
        ] {
            assert_eq!(Url::parse(url), Err(UrlError::Host), "{url}");
        }
        for url in [
            "https://host/x{{ args.a }}",
            "https://host/{{ args.a }}.json",
            "https://host/{{ args.a }}{{ args.b }}",
            "https://host/{{ args.a",
            "https://host/a }}",
        ] {
            assert_eq!(Url::parse(url), Err(UrlError::Segment), "{url}");
        }
    }
}
