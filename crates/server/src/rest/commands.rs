//! `/commands`: a command through the whole pipeline, as its caller; what became of it; its end.
//!
//! What a call comes to is S0's CommandExecutionResult. A command that ran is answered with 200 however it
//! ended, one that has not ended with 202, and one that was refused with the status of its code and the
//! result beside the error.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::service::Answer;
use countersign_gateway::tools::exec::request::CommandTool;
use serde_json::{Map, Value, json};

use super::asked::Asked;
use super::endpoint::BASE;
use super::failure::{self, Failure};

/// Runs it. A client that goes away does not cancel it: the route for that is another.
pub(super) async fn run(asked: Asked) -> Result<Response, Failure> {
    let mut arguments: Map<String, Value> = asked.body()?;
    let tool = match arguments.remove("tool") {
        None => tool_of(&arguments),
        Some(named) => {
            let known = CommandTool::ALL.into_iter().find(|tool| named == tool.name());
            known.ok_or_else(|| {
                let names = CommandTool::ALL.map(|tool| format!("`{}`", tool.name()));
                Failure::malformed(format!("`tool` is one of {}", names.join(", ")))
            })?
        }
    };
    let wait = asked.values.whole("wait_ms").map(Duration::from_millis);
    let answer = asked.api.call(&asked.caller, tool.name(), arguments, wait).await?;
    ran(answer)
}

/// Which tool takes such fields.
fn tool_of(arguments: &Map<String, Value>) -> CommandTool {
    if arguments.contains_key("file") {
        CommandTool::ExecuteProcess
    } else if arguments.contains_key("working_directory") {
        CommandTool::RunCommand
    } else {
        CommandTool::ExecuteCommand
    }
}

pub(super) async fn show(asked: Asked) -> Result<Response, Failure> {
    let mut arguments = named(&asked);
    for name in ["wait_ms", "offset", "limit"] {
        if let Some(value) = asked.values.whole(name) {
            arguments.insert(name.to_owned(), json!(value));
        }
    }
    if let Some(stream) = asked.values.text("stream") {
        arguments.insert("stream".to_owned(), json!(stream));
    }
    let answer = asked.api.call(&asked.caller, "command_status", arguments, None).await?;
    looked_at(answer)
}

pub(super) async fn cancel(asked: Asked) -> Result<Response, Failure> {
    let answer = asked
        .api
        .call(&asked.caller, "command_cancel", named(&asked), None)
        .await?;
    looked_at(answer)
}

fn named(asked: &Asked) -> Map<String, Value> {
    let id = asked.values.text("request_id").unwrap_or_default();
    Map::from_iter([("request_id".to_owned(), json!(id))])
}

/// What a command came to, for whoever asked for it.
fn ran(answer: Answer) -> Result<Response, Failure> {
    let result = answer.structured;
    match result["status"].as_str() {
        Some("rejected") => Err(refused(result)),
        Some("running" | "pending") => {
            let location = HeaderValue::from_str(&place_of(result["request_id"].as_str().unwrap_or_default())).ok();
            let mut response = (StatusCode::ACCEPTED, Json(result)).into_response();
            if let Some(location) = location {
                response.headers_mut().insert(header::LOCATION, location);
            }
            Ok(response)
        }
        _ => Ok(Json(result).into_response()),
    }
}

/// Where a command is found. Its caller may have named it with what means something else in an address.
fn place_of(id: &str) -> String {
    let mut place = format!("{BASE}/commands/");
    for byte in id.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => place.push(char::from(byte)),
            _ => place.push_str(&format!("%{byte:02X}")),
        }
    }
    place
}

/// A command that was refused was found all the same; only looking may be refused here.
fn looked_at(answer: Answer) -> Result<Response, Failure> {
    let result = answer.structured;
    let is_refusal = result["status"] == "rejected" && result["audit_id"].is_null();
    match is_refusal {
        true => Err(refused(result)),
        false => Ok(Json(result).into_response()),
    }
}

fn refused(result: Value) -> Failure {
    let code = result["error_code"].as_str().and_then(ErrorCode::parse);
    let code = code.unwrap_or(ErrorCode::InternalError);
    let mut refusal = Refusal::new(code, result["error_message"].as_str().unwrap_or_default());
    refusal.details = result["error_details"].as_object().cloned().unwrap_or_default();
    refusal
        .details
        .insert("request_id".to_owned(), result["request_id"].clone());
    Failure::of(failure::status(code), refusal).with_result(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_command_is_called_its_place_is_one_address() {
        for (id, place) in [
            ("01JD-a_b.c~d", "/api/v1/commands/01JD-a_b.c~d"),
            ("a/../b?c#d%e", "/api/v1/commands/a%2F..%2Fb%3Fc%23d%25e"),
            ("é", "/api/v1/commands/%C3%A9"),
        ] {
            assert_eq!(place_of(id), place);
            assert!(HeaderValue::from_str(place).is_ok());
        }
    }
}
