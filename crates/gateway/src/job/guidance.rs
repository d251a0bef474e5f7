//! What a caller says to an agent beside the prompt: instructions, and a few settings of the agent's own.
//!
//! Instructions are words, and words open no door: what an agent does is judged as ever. Of settings only
//! those are taken that are known to loosen nothing; an agent's configuration can name programs, servers,
//! sandboxes and policies, so what is not on the list is refused, not passed on.

use serde_json::{Map, Value, json};

use crate::catalog::arguments::Arguments;
use crate::error::brief;
use crate::limits;

/// Settings of Codex that say how it thinks and speaks.
const SETTINGS: [&str; 6] = [
    "hide_agent_reasoning",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_verbosity",
    "personality",
    "show_raw_agent_reasoning",
];

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Guidance {
    /// Instead of the agent's own instructions.
    pub base: Option<String>,
    /// Beside them.
    pub developer: Option<String>,
    pub settings: Map<String, Value>,
}

impl Guidance {
    /// As the MCP server that Codex had took it.
    pub fn take(arguments: &mut Arguments<'_>) -> Self {
        let guidance = Self {
            base: arguments.optional_string("base-instructions"),
            developer: arguments.optional_string("developer-instructions"),
            settings: settings(arguments),
        };
        for (name, text) in [
            ("base-instructions", &guidance.base),
            ("developer-instructions", &guidance.developer),
        ] {
            if text.as_ref().is_some_and(|text| text.len() > limits::PROMPT_BYTES_MAX) {
                arguments.problem(format!("`{name}` must have at most {} bytes", limits::PROMPT_BYTES_MAX));
            }
        }
        guidance
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// As a session's configuration keeps it.
    pub fn to_json(&self) -> Value {
        json!({"base": self.base, "developer": self.developer, "settings": self.settings})
    }

    /// Out of a session's configuration; what is not there was not said.
    pub fn from_json(kept: &Value) -> Self {
        let text = |name: &str| kept[name].as_str().map(str::to_owned);
        Self {
            base: text("base"),
            developer: text("developer"),
            settings: kept["settings"].as_object().cloned().unwrap_or_default(),
        }
    }
}

fn settings(arguments: &mut Arguments<'_>) -> Map<String, Value> {
    let wanted = match arguments.optional_value("config") {
        None => return Map::new(),
        Some(Value::Object(wanted)) => wanted.clone(),
        Some(_) => {
            arguments.problem("`config` must be an object".to_owned());
            return Map::new();
        }
    };
    for (name, value) in &wanted {
        if !SETTINGS.contains(&name.as_str()) {
            let taken: Vec<_> = SETTINGS.iter().map(|name| format!("`{name}`")).collect();
            arguments.problem(format!(
                "`config.{}` is not taken, since it could loosen what policy gives; taken are {}",
                brief(name),
                taken.join(", ")
            ));
        } else if !(value.is_string() || value.is_boolean()) {
            arguments.problem(format!("`config.{name}` must be a string or a boolean"));
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(fields: Value) -> Result<Guidance, String> {
        let fields = fields.as_object().cloned().unwrap();
        let mut arguments = Arguments::new(&fields);
        let guidance = Guidance::take(&mut arguments);
        arguments.finish().map(|()| guidance).map_err(|refusal| refusal.message)
    }

    #[test]
    fn instructions_and_harmless_settings_are_taken_and_read_back() {
        let said = taken(
            json!({"base-instructions": "be brief", "developer-instructions": "use tabs",
            "config": {"model_reasoning_effort": "high"}}),
        );
        let said = said.unwrap();
        assert_eq!(
            (said.base.as_deref(), said.developer.as_deref()),
            (Some("be brief"), Some("use tabs"))
        );
        assert_eq!(Guidance::from_json(&said.to_json()), said);
        assert!(taken(json!({})).unwrap().is_empty());
        assert!(Guidance::from_json(&Value::Null).is_empty());
    }

    #[test]
    fn a_setting_that_could_loosen_is_refused_by_name() {
        for name in [
            "sandbox_mode",
            "approval_policy",
            "mcp_servers",
            "mcp_servers.evil.command",
            "shell_environment_policy",
            "notify",
            "model_provider",
            "profile",
            "features.x",
        ] {
            let refused = taken(json!({"config": {name: "x"}})).unwrap_err();
            assert!(refused.contains(&format!("`config.{name}`")), "{refused}");
        }
        assert!(taken(json!({"config": {"model_verbosity": {"mcp_servers": {}}}})).is_err());
        assert!(taken(json!({"config": "sandbox_mode=x"})).is_err());
    }
}
