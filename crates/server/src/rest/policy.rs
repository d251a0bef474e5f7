//! `/policy`: what is in force, and what it would say to a call that nobody makes.

use axum::Json;
use axum::response::{IntoResponse, Response};
use countersign_gateway::policy::explain::Supposed;
use countersign_gateway::session::Role;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::asked::Asked;
use super::failure::Failure;

pub(super) async fn show(asked: Asked) -> Result<Response, Failure> {
    Ok(Json(asked.api.office.policy.effective()).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    role: Option<String>,
    #[serde(default)]
    run: Option<Map<String, Value>>,
}

pub(super) async fn explain(asked: Asked) -> Result<Response, Failure> {
    let question: Question = asked.body()?;
    let role = match question.role.as_deref() {
        None => Role::Agent,
        Some(word) => {
            let role = Role::parse(word).filter(|role| matches!(role, Role::Agent | Role::Operator));
            role.ok_or_else(|| Failure::malformed("`role` is `agent` or `operator`: nobody else calls tools"))?
        }
    };
    let call = Supposed {
        tool: question.tool,
        arguments: question.arguments,
        role,
        run: Supposed::run_of(&question.run.unwrap_or_default())?,
    };
    Ok(Json(asked.api.office.policy.explain(&call).to_json()).into_response())
}
