//! The command tools as clients see them: names, words and schemas.

use serde_json::{Value, json};

use crate::catalog::definition::{Hints, ToolDefinition};
use crate::error::Status;
use crate::limits;
use crate::policy::effective::{Layer, Network, SandboxMode};

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
                "cwd": cwd(), "timeout_ms": timeout_ms(), "input": input(), "env": env(), "request_id": request_id(),
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
                "input": input(), "cwd": cwd(), "timeout_ms": timeout_ms(), "env": env(), "request_id": request_id(),
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
                "requested_timeout_seconds": {"type": "integer", "minimum": 1, "description": "Ends the command after this time."},
                "request_id": request_id(),
                "requested_at": {"type": "string", "format": "date-time", "description": "When the caller asked; filled in when absent."},
                "caller_id": {"type": "string", "description": "Who the caller says it is; recorded as a claim."},
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
                "request_id": request_id(),
                "wait_ms": {"type": "integer", "minimum": 0, "description": "Waits this long for the command to end."},
                "offset": {"type": "integer", "minimum": 0, "description": "First byte of the page."},
                "limit": {"type": "integer", "minimum": 1, "description": "Bytes of the page."},
                "stream": {"type": "string", "enum": ["stdout", "stderr"], "description": "Which stream to page; the page stands in its field."},
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
        input_schema: object(json!({"request_id": request_id()}), &["request_id"]),
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

/// The result that all commands share. Every list carries it five times, so it says no more than it must.
pub(crate) fn output() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    let optional = |kind: &str| json!({"type": [kind, "null"]});
    let count = json!({"type": "integer", "minimum": 0});
    let flag = json!({"type": "boolean"});
    object(
        json!({
            "request_id": text("Names this command in command_status and command_cancel."),
            "status": {"type": "string", "enum": Status::ALL.map(Status::as_str)},
            "exit_code": optional("integer"),
            "stdout": text("Standard output; head and tail when it was too long."),
            "stderr": text("Standard error; head and tail when it was too long."),
            // No list of them: a client that keeps this schema must not refuse a code that came later.
            "error_code": {"type": ["string", "null"], "description": "One of countersign://errors."},
            "error_message": optional("string"),
            "error_details": {"type": "object"},
            "retryable": flag,
            "duration_ms": count,
            "started_at": {"type": "string", "format": "date-time"},
            "finished_at": {"type": ["string", "null"], "format": "date-time"},
            "stdout_bytes": count, "stderr_bytes": count,
            "stdout_truncated": flag, "stderr_truncated": flag,
            "stdout_lossy": flag, "stderr_lossy": flag,
            "audit_id": optional("string"),
            "approval_id": text("The question this waits for; repeat the same call to learn the answer."),
            "sandbox": {"type": "array", "items": {"type": "string", "enum": Layer::ALL.iter().map(|layer| layer.as_str()).collect::<Vec<_>>()}},
            "offset": count, "next_offset": {"type": ["integer", "null"]},
        }),
        &[
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
        ],
    )
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn args() -> Value {
    json!({"type": "array", "items": {"type": "string"}, "maxItems": limits::ARGUMENTS_MAX, "description": "Its arguments, one per entry."})
}

fn cwd() -> Value {
    json!({"type": "string", "minLength": 1, "description": "Where to run; the workspace when left out. Relative paths start there."})
}

fn timeout_ms() -> Value {
    json!({"type": "integer", "minimum": 1, "description": "Ends the command, with all it started, after this time."})
}

fn input() -> Value {
    json!({"type": "string", "description": "Given to the command on standard input."})
}

fn env() -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}, "description": "Variables added to the command's environment."})
}

fn request_id() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 128, "description": "A name for this command; the same name and content never run twice."})
}

fn justification() -> Value {
    json!({"type": "string", "maxLength": limits::JUSTIFICATION_CHARS_MAX, "description": "Why, for the person who may be asked."})
}

fn sandbox() -> Value {
    let words: Vec<_> = SandboxMode::ALL.iter().map(|mode| mode.as_str()).collect();
    json!({"type": "string", "enum": words, "description": "A narrower sandbox, or a request for a wider one, which asks or is denied."})
}

fn network() -> Value {
    let words: Vec<_> = Network::ALL.iter().map(|network| network.as_str()).collect();
    json!({"type": "string", "enum": words, "description": "A request for network access, which asks or is denied."})
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

    #[test]
    fn tool_names_and_descriptions_fit_the_protocol() {
        for tool in definitions() {
            assert!((1..=64).contains(&tool.name.len()) && !tool.description.is_empty());
        }
    }
}
