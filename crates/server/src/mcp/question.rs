//! What a client can be asked, in both eras: a form for its user, a completion of its model, its roots.
//!
//! A [`Question`] knows which answers fit it. Whatever comes back was written by the client, which may
//! answer in its user's name: an answer proves what the client said, not who said it.

use countersign_gateway::error::{ErrorCode, Refusal};
use serde_json::{Map, Value};

use super::client::{Ability, Capabilities};
use super::revision::{Era, Legacy};

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Question {
    kind: Kind,
    params: Value,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Form,
    Message,
    Roots,
}

impl Question {
    /// A question in the protocol's own words; none for a method that is not one.
    pub(crate) fn new(method: &str, params: Value) -> Option<Self> {
        let kind = match method {
            "elicitation/create" => Kind::Form,
            "sampling/createMessage" => Kind::Message,
            "roots/list" => Kind::Roots,
            _ => return None,
        };
        Some(Self { kind, params })
    }

    pub(crate) fn method(&self) -> &'static str {
        match self.kind {
            Kind::Form => "elicitation/create",
            Kind::Message => "sampling/createMessage",
            Kind::Roots => "roots/list",
        }
    }

    pub(crate) fn params(&self) -> &Value {
        &self.params
    }

    /// Refuses a question that this client has not said it can answer.
    pub(crate) fn fits(&self, era: Era, capabilities: Capabilities) -> Result<(), Refusal> {
        let ability = match self.kind {
            // A client of a revision without forms cannot mean ours, whatever it declares.
            Kind::Form if !era.knows(Legacy::R2025_06_18) => {
                return Capabilities::default().require(Ability::Elicitation);
            }
            Kind::Form => Ability::Elicitation,
            Kind::Message => Ability::Sampling,
            Kind::Roots => Ability::Roots,
        };
        capabilities.require(ability)
    }

    /// Checks an answer's shape, and for a form also that what was required is there.
    pub(crate) fn check(&self, answer: &Value) -> Result<(), Refusal> {
        let fits = match self.kind {
            Kind::Form => self.is_filled_in(answer),
            Kind::Message => {
                answer["role"].is_string()
                    && answer["model"].is_string()
                    && (answer["content"].is_object() || answer["content"].is_array())
            }
            Kind::Roots => answer["roots"]
                .as_array()
                .is_some_and(|roots| roots.iter().all(|root| root["uri"].is_string())),
        };
        if fits {
            return Ok(());
        }
        let message = format!("the answer to `{}` does not fit the question", self.method());
        Err(Refusal::new(ErrorCode::InvalidParams, message))
    }

    fn is_filled_in(&self, answer: &Value) -> bool {
        match answer["action"].as_str() {
            Some("decline" | "cancel") => true,
            Some("accept") => {
                let schema = &self.params["requestedSchema"];
                let empty = Map::new();
                let content = match &answer["content"] {
                    Value::Object(content) => content,
                    Value::Null => &empty,
                    _ => return false,
                };
                let required = schema["required"].as_array().into_iter().flatten();
                let has_all = required
                    .filter_map(Value::as_str)
                    .all(|name| content.contains_key(name));
                has_all
                    && content
                        .iter()
                        .all(|(name, value)| is_of_type(value, &schema["properties"][name]))
            }
            Some(_) | None => false,
        }
    }
}

/// Whether a field of a form has the type that was asked for. Fields nobody asked for are not looked at.
fn is_of_type(value: &Value, asked: &Value) -> bool {
    match asked["type"].as_str() {
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("array") => value.is_array(),
        Some(_) | None => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form() -> Question {
        let schema = json!({
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            "required": ["name"],
        });
        let params = json!({"message": "who?", "requestedSchema": schema});
        Question::new("elicitation/create", params).unwrap()
    }

    #[test]
    fn only_a_filled_in_form_is_an_answer() {
        for (answer, fits) in [
            (json!({"action": "accept", "content": {"name": "Alice"}}), true),
            (
                json!({"action": "accept", "content": {"name": "Alice", "age": 3, "x": []}}),
                true,
            ),
            (
                json!({"action": "accept", "content": {"name": "Alice", "age": "3"}}),
                false,
            ),
            (json!({"action": "accept", "content": {"age": 3}}), false),
            (json!({"action": "accept"}), false),
            (json!({"action": "accept", "content": 5}), false),
            (json!({"action": "decline"}), true),
            (json!({"action": "cancel"}), true),
            (json!({"action": "approve"}), false),
            (json!({"content": {"name": "Alice"}}), false),
            (json!(12345), false),
            (json!(null), false),
        ] {
            assert_eq!(form().check(&answer).is_ok(), fits, "{answer}");
        }
    }

    #[test]
    fn the_other_answers_have_their_shapes() {
        let message = Question::new("sampling/createMessage", json!({})).unwrap();
        assert!(
            message
                .check(&json!({"role": "assistant", "model": "m", "content": {"type": "text"}}))
                .is_ok()
        );
        assert!(message.check(&json!({"role": "assistant", "content": {}})).is_err());
        let roots = Question::new("roots/list", json!({})).unwrap();
        assert!(roots.check(&json!({"roots": [{"uri": "file:///a"}]})).is_ok());
        assert!(roots.check(&json!({"roots": [5]})).is_err());
        assert!(roots.check(&json!({})).is_err());
        assert_eq!(Question::new("tools/call", json!({})), None);
    }

    #[test]
    fn a_revision_without_forms_is_not_shown_one() {
        let all = Capabilities::read(json!({"elicitation": {}}).as_object().unwrap());
        assert!(form().fits(Era::Legacy(Legacy::R2025_03_26), all).is_err());
        assert!(form().fits(Era::Legacy(Legacy::R2025_06_18), all).is_ok());
        assert!(form().fits(Era::Modern, all).is_ok());
        assert!(form().fits(Era::Modern, Capabilities::default()).is_err());
    }
}
