//! `completion/complete`: values for arguments of prompts and of resource templates.

use countersign_gateway::error::{ErrorCode, Refusal, brief};
use serde_json::{Map, Value, json};

use super::host::Host;
use super::{prompts, resources};
use crate::limits::COMPLETIONS_MAX;

/// The result of a completion.
pub(crate) fn complete(host: &Host, params: &Map<String, Value>) -> Result<Value, Refusal> {
    let invalid = |message: String| Refusal::new(ErrorCode::InvalidParams, message);
    let text = |object: &str, name: &str| {
        let value = params.get(object).and_then(|object| object.get(name));
        value
            .and_then(Value::as_str)
            .ok_or_else(|| invalid(format!("`params.{object}.{name}` must be text")))
    };
    let argument = text("argument", "name")?;
    let shown = brief(argument);
    let begun = text("argument", "value")?;
    let values = match text("ref", "type")? {
        "ref/prompt" => {
            let name = text("ref", "name")?;
            let known = host.features.extra_prompt(name).then(Vec::new);
            prompts::values(name, argument).or(known).ok_or_else(|| {
                invalid(format!(
                    "there is no prompt `{}` with an argument `{shown}`",
                    brief(name)
                ))
            })?
        }
        "ref/resource" => {
            let uri = text("ref", "uri")?;
            resources::values(uri, argument)
                .ok_or_else(|| invalid(format!("there is no template `{}` with a part `{shown}`", brief(uri))))?
        }
        other => {
            return Err(invalid(format!(
                "`{}` cannot be completed; use `ref/prompt` or `ref/resource`",
                brief(other)
            )));
        }
    };
    Ok(matching(&values, begun))
}

/// What begins as the client wrote, then what contains it, in whatever case.
fn matching(values: &[&str], begun: &str) -> Value {
    let begun = begun.to_lowercase();
    let (begins, others): (Vec<&str>, Vec<&str>) = values
        .iter()
        .copied()
        .filter(|value| value.to_lowercase().contains(&begun))
        .partition(|value| value.to_lowercase().starts_with(&begun));
    let total = begins.len() + others.len();
    let shown: Vec<_> = begins.into_iter().chain(others).take(COMPLETIONS_MAX).collect();
    json!({"completion": {"values": shown, "total": total, "hasMore": total > COMPLETIONS_MAX}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_come_before_parts_and_the_list_is_bounded() {
        let found = matching(&["NOT_FOUND", "UNKNOWN", "FOUND"], "found");
        assert_eq!(
            found,
            json!({"completion": {"values": ["FOUND", "NOT_FOUND"], "total": 2, "hasMore": false}})
        );
        let many: Vec<_> = std::iter::repeat_n("x", COMPLETIONS_MAX + 1).collect();
        let found = &matching(&many, "")["completion"];
        assert_eq!(found["values"].as_array().unwrap().len(), COMPLETIONS_MAX);
        assert_eq!(
            (&found["total"], &found["hasMore"]),
            (&json!(COMPLETIONS_MAX + 1), &json!(true))
        );
    }
}
