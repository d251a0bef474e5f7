//! What a tool file leaves open for the arguments of a call.
//!
//! `{{ args.x }}` stands for one whole value: one element of an argument vector, one value of a JSON
//! document, one segment of an address. It never stands for a part of one, so there is nothing to quote and
//! nothing to escape, and no language of templates is needed.

use serde_json::{Map, Value};

/// Why a text is no template.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TemplateError {
    #[error("`{0}` fills only a part of this value; `{{{{ args.NAME }}}}` must be all of it")]
    Half(String),
    #[error("`{0}` is no placeholder; write `{{{{ args.NAME }}}}`")]
    Unreadable(String),
    #[error("there is no property `{0}` in `input_schema`")]
    NoProperty(String),
    #[error("`{0}` may be a list or a map, and only text, a number or a truth value fits here")]
    NotScalar(String),
}

/// One text: as it stands, or the name of the argument whose value takes its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Text {
    Plain(String),
    Argument(String),
}

impl Text {
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if !text.contains("{{") && !text.contains("}}") {
            return Ok(Self::Plain(text.to_owned()));
        }
        let whole = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        let Some(inner) = whole.filter(|inner| !inner.contains("{{") && !inner.contains("}}")) else {
            return Err(TemplateError::Half(crate::error::brief(text).into_owned()));
        };
        if text.trim() != text {
            return Err(TemplateError::Half(crate::error::brief(text).into_owned()));
        }
        let name = inner.trim().strip_prefix("args.").map(str::trim);
        match name.filter(|name| is_name(name)) {
            Some(name) => Ok(Self::Argument(name.to_owned())),
            None => Err(TemplateError::Unreadable(crate::error::brief(text).into_owned())),
        }
    }

    /// The argument it waits for.
    pub fn argument(&self) -> Option<&str> {
        match self {
            Self::Plain(_) => None,
            Self::Argument(name) => Some(name),
        }
    }

    /// The text it becomes; none where the argument was not given.
    pub fn fill(&self, arguments: &Map<String, Value>) -> Option<String> {
        match self {
            Self::Plain(text) => Some(text.clone()),
            Self::Argument(name) => match arguments.get(name)? {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other @ (Value::Bool(_) | Value::Number(_)) => Some(other.to_string()),
                // The schema was held against it: only one that says nothing of types lets these pass.
                other @ (Value::Array(_) | Value::Object(_)) => Some(other.to_string()),
            },
        }
    }
}

pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// A JSON document with places for arguments.
#[derive(Clone, PartialEq, Debug)]
pub struct Document(Value);

impl Document {
    /// Takes a document whose texts are all templates; the arguments that they name come back.
    pub fn parse(value: Value) -> Result<(Self, Vec<String>), TemplateError> {
        let mut named = Vec::new();
        look(&value, &mut named)?;
        Ok((Self(value), named))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_null()
    }

    /// The document with the arguments in their places, types and all; one that was not given is null.
    pub fn fill(&self, arguments: &Map<String, Value>) -> Value {
        filled(&self.0, arguments)
    }
}

fn look(value: &Value, named: &mut Vec<String>) -> Result<(), TemplateError> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        Value::String(text) => {
            named.extend(Text::parse(text)?.argument().map(str::to_owned));
            Ok(())
        }
        Value::Array(items) => items.iter().try_for_each(|item| look(item, named)),
        Value::Object(fields) => fields.values().try_for_each(|field| look(field, named)),
    }
}

fn filled(value: &Value, arguments: &Map<String, Value>) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => match Text::parse(text) {
            Ok(Text::Argument(name)) => arguments.get(&name).cloned().unwrap_or(Value::Null),
            Ok(Text::Plain(_)) | Err(_) => value.clone(),
        },
        Value::Array(items) => items.iter().map(|item| filled(item, arguments)).collect(),
        Value::Object(fields) => {
            let pairs = fields.iter();
            Value::Object(
                pairs
                    .map(|(name, field)| (name.clone(), filled(field, arguments)))
                    .collect(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_placeholder_is_a_whole_value_or_a_mistake() {
        for (text, expected) in [
            ("plain", Ok(Text::Plain("plain".into()))),
            ("{{ args.x }}", Ok(Text::Argument("x".into()))),
            ("{{args.a-b_1}}", Ok(Text::Argument("a-b_1".into()))),
        ] {
            assert_eq!(Text::parse(text), expected, "{text}");
        }
        for half in [
            "--x={{ args.x }}",
            "{{ args.x }}y",
            " {{ args.x }}",
            "{{ args.x }}{{ args.y }}",
            "{{ args.x",
            "}}",
        ] {
            assert!(matches!(Text::parse(half), Err(TemplateError::Half(_))), "{half}");
        }
        for other in [
            "{{ x }}",
            "{{ args. }}",
            "{{ args.a.b }}",
            "{{ args.x | shell }}",
            "{{ env.HOME }}",
            "{{}}",
        ] {
            assert!(
                matches!(Text::parse(other), Err(TemplateError::Unreadable(_))),
                "{other}"
            );
        }
    }

    #[test]
    fn a_document_keeps_the_types_of_what_fills_it() {
        let written = json!({"a": "{{ args.n }}", "b": ["{{ args.list }}", "text", 1], "c": "{{ args.none }}"});
        let (document, named) = Document::parse(written).unwrap();
        assert_eq!(named, ["n", "list", "none"]);
        let arguments = json!({"n": 3, "list": [1, {"x": "{{ args.n }}"}]});
        assert_eq!(
            document.fill(arguments.as_object().unwrap()),
            json!({"a": 3, "b": [[1, {"x": "{{ args.n }}"}], "text", 1], "c": null}),
            "what a caller says is never read as a template"
        );
    }
}
