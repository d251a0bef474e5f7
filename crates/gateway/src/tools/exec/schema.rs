//! The command tools as clients see them: names, words and schemas.

use serde_json::{Value, json};

use crate::catalog::definition::{Hints, ToolDefinition};
use crate::error::Status;
use crate::limits;
use crate::policy::effective::{Network, SandboxMode};

const VERSION: &str = "1.0.0";
const RUNS: Hints = Hints {
    read_only: false,
    destructive: true,
    idempotent: false,
    open_world: true,
};

/// The five tools, in the order clients list them.
pub fn definitions() -> Vec<ToolDefinition> {
    vec![
        execute_command(),
        execute_process(),
        run_command(),
        command_status(),
        command_cancel(),
    ]
}

fn execute_command() -> ToolDefinition {
    ToolDefinition {
        name: "execute_command".into(),
        title: "Run a shell line".into(),
        description:
            "Runs a shell line, as far as policy allows: every command in it is checked before anything starts, \
            and the line runs confined to the workspace. Answers with exit_code, stdout and stderr; a long command \
            answers `running` with a request_id for command_status."
                .into(),
        input_schema: object(
            json!({
                "command": {"type": "string", "minLength": 1, "maxLength": limits::LINE_BYTES_MAX, "description": "The shell line."},
                "cwd": cwd(), "timeout_ms": timeout(), "input": input(), "env": env(), "request_id": request_id(),
                "justification": justification(), "sandbox": sandbox(), "network": network(),
            }),
            &["command"],
        ),
        output_schema: output(),
        version: VERSION.into(),
        hints: RUNS,
    }
}

fn execute_process() -> ToolDefinition {
    ToolDefinition {
        name: "execute_process".into(),
        title: "Run a program".into(),
        description:
            "Runs one program with an argument list, never through a shell, as far as policy allows and confined \
            to the workspace. Answers like execute_command."
                .into(),
        input_schema: object(
            json!({
                "file": {"type": "string", "minLength": 1, "description": "The program: a name, or an absolute path."},
                "args": args(),
                "input": input(), "cwd": cwd(), "timeout_ms": timeout(), "env": env(), "request_id": request_id(),
                "justification": justification(), "sandbox": sandbox(), "network": network(),
            }),
            &["file", "args"],
        ),
        output_schema: output(),
        version: VERSION.into(),
        hints: RUNS,
    }
}

fn run_command() -> ToolDefinition {
    ToolDefinition {
        name: "run_command".into(),
        title: "Run a listed command".into(),
        description: "Runs a command of the allowlist with arguments in a directory of the workspace. \
            Answers like execute_command."
            .into(),
        input_schema: object(
            json!({
                "command": {"type": "string", "minLength": 1, "description": "The command, by its name on the allowlist."},
                "args": args(),
                "working_directory": {"type": "string", "minLength": 1, "description": "Where to run, inside the workspace."},
                "requested_timeout_seconds": timeout(),
                "request_id": request_id(),
                "requested_at": {"type": "string", "format": "date-time", "description": "Filled in when absent."},
                "caller_id": {"type": "string", "description": "A claim, recorded as such."},
            }),
            &["command", "working_directory"],
        ),
        output_schema: output(),
        version: VERSION.into(),
        hints: RUNS,
    }
}

fn command_status() -> ToolDefinition {
    ToolDefinition {
        name: "command_status".into(),
        title: "Look at a command".into(),
        description:
            "Tells how an earlier or still running command stands, by its request_id. Waits up to wait_ms for its \
            end; offset and limit page through long output."
                .into(),
        input_schema: object(
            json!({
                "request_id": known_id(),
                "wait_ms": {"type": "integer", "minimum": 0, "description": "How long to wait for its end; never longer than answer_within_ms of the server."},
                "offset": {"type": "integer", "minimum": 0, "description": "First byte of the page."},
                "limit": {"type": "integer", "minimum": 1, "description": "Bytes of the page."},
                "stream": {"type": "string", "enum": ["stdout", "stderr"], "description": "Which stream to page."},
            }),
            &["request_id"],
        ),
        output_schema: output(),
        version: VERSION.into(),
        hints: Hints {
            read_only: true,
            destructive: false,
            idempotent: true,
            open_world: false,
        },
    }
}

fn command_cancel() -> ToolDefinition {
    ToolDefinition {
        name: "command_cancel".into(),
        title: "End a command".into(),
        description: "Ends a running command and every process it started, and answers with what it left.".into(),
        input_schema: object(json!({"request_id": known_id()}), &["request_id"]),
        output_schema: output(),
        version: VERSION.into(),
        hints: Hints {
            read_only: false,
            destructive: true,
            idempotent: true,
            open_world: false,
        },
    }
}

/// The result that all commands share. Every list carries it five times and models read their lists, so it says what
/// is there and of which type, and no more: what a field means, its name says. Lists of words would have a client that
/// keeps this schema refuse codes and layers, and a closed object fields, that came later.
pub(crate) fn output() -> Value {
    let of = |kind: &str| json!({"type": kind});
    let optional = |kind: &str| json!({"type": [kind, "null"]});
    let (text, count, flag) = (of("string"), of("integer"), of("boolean"));
    let properties = json!({
        "request_id": text, "status": {"enum": Status::ALL.map(Status::as_str)},
        "exit_code": optional("integer"), "stdout": text, "stderr": text,
        "error_code": optional("string"), "error_message": optional("string"), "error_details": of("object"),
        "retryable": flag, "duration_ms": count, "started_at": text, "finished_at": optional("string"),
        "stdout_bytes": count, "stderr_bytes": count, "stdout_truncated": flag, "stderr_truncated": flag,
        "stdout_lossy": flag, "stderr_lossy": flag, "audit_id": optional("string"), "approval_id": text,
        "sandbox": {"type": "array", "items": text}, "offset": count, "next_offset": optional("integer"),
        "next": text,
    });
    let required = [
        "request_id",
        "status",
        "exit_code",
        "stdout",
        "stderr",
        "error_code",
        "error_message",
        "retryable",
        "duration_ms",
        "started_at",
        "finished_at",
        "stdout_bytes",
        "stderr_bytes",
        "stdout_truncated",
        "stderr_truncated",
        "stdout_lossy",
        "stderr_lossy",
        "audit_id",
        "sandbox",
    ];
    json!({"type": "object", "properties": properties, "required": required})
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn args() -> Value {
    json!({"type": "array", "items": {"type": "string"}, "maxItems": limits::ARGUMENTS_MAX, "description": "Its arguments, one per entry."})
}

fn cwd() -> Value {
    json!({"type": "string", "minLength": 1, "description": "Where to run; the workspace when left out."})
}

fn timeout() -> Value {
    json!({"type": "integer", "minimum": 1, "description": "The policy's when left out."})
}

fn input() -> Value {
    json!({"type": "string", "description": "Standard input."})
}

fn env() -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}, "description": "Variables to add."})
}

fn request_id() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 128, "description": "Names the command; called again, it gives the first result."})
}

/// The name of a command that there is.
fn known_id() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 128})
}

fn justification() -> Value {
    json!({"type": "string", "maxLength": limits::JUSTIFICATION_CHARS_MAX, "description": "Why, for the person who may be asked."})
}

fn sandbox() -> Value {
    let words: Vec<_> = SandboxMode::ALL.iter().map(|mode| mode.as_str()).collect();
    json!({"type": "string", "enum": words, "description": "A narrower one; a wider one asks or is denied."})
}

fn network() -> Value {
    let words: Vec<_> = Network::ALL.iter().map(|network| network.as_str()).collect();
    json!({"type": "string", "enum": words, "description": "`allow` asks or is denied."})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::exec::request::{self, CommandTool};

    #[test]
    fn schemas_and_readers_know_the_same_fields() {
        for tool in CommandTool::ALL {
            let definition = definitions().into_iter().find(|it| it.name == tool.name()).unwrap();
            let surprise = json!({"surprise": 1});
            let refusal = request::read(tool.clone(), surprise.as_object().unwrap()).unwrap_err();
            for name in definition.input_schema["properties"].as_object().unwrap().keys() {
                assert!(
                    refusal.message.contains(&format!("`{name}`")),
                    "{}: {name}",
                    tool.name()
                );
            }
        }
    }

    /// Every client reads the list, and most put it before their model each time.
    #[test]
    fn the_list_stays_short() {
        let bytes = |schema: &Value| schema.to_string().len();
        for tool in definitions() {
            let (takes, gives) = (bytes(&tool.input_schema), bytes(&tool.output_schema));
            assert!(
                takes <= 1_150 && gives <= 1_200,
                "{}: {takes} and {gives} bytes",
                tool.name
            );
        }
    }

    #[test]
    fn tool_names_and_descriptions_fit_the_protocol() {
        for tool in definitions() {
            assert!((1..=64).contains(&tool.name.len()) && !tool.description.is_empty());
        }
    }
}
