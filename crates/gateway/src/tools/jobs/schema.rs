//! The job tools as clients see them: S1's names, words and schemas, and ours beside them.

use serde_json::{Value, json};

use super::Offered;
use crate::catalog::definition::{Hints, ToolDefinition};
use crate::job::lifecycle::JobStatus;
use crate::limits;
use crate::policy::effective::{Mode, SandboxMode};

const VERSION: &str = "1.0.0";
const STARTS: Hints = Hints {
    read_only: false,
    destructive: true,
    idempotent: false,
    open_world: true,
};
const LOOKS: Hints = Hints {
    read_only: true,
    destructive: false,
    idempotent: true,
    open_world: false,
};

/// What can work with the agents that are there.
pub fn definitions(offered: &Offered) -> Vec<ToolDefinition> {
    if offered.names.is_empty() {
        return Vec::new();
    }
    let mut tools = Vec::new();
    if offered.codex.is_some() {
        tools.extend([start_codex_task(), codex(), codex_reply()]);
    }
    tools.extend([
        start_task(offered),
        send_message(),
        interrupt_task(),
        job_status(),
        list_jobs(),
        job_logs(),
    ]);
    tools
}

fn start_codex_task() -> ToolDefinition {
    ToolDefinition {
        name: "start-codex-task".into(),
        title: "Start a Codex task".into(),
        description:
            "Starts a new Codex task with the given prompt. Answers at once with a jobId; the task runs on, its \
            acts governed by policy and people. job-status tells how it stands."
                .into(),
        input_schema: object(input(), &["prompt"]),
        output_schema: result(),
        version: VERSION.into(),
        hints: STARTS,
    }
}

fn codex() -> ToolDefinition {
    let words =
        |words: &[&str], description: &str| json!({"type": "string", "enum": words, "description": description});
    let modes: Vec<_> = Mode::ALL.iter().map(|mode| mode.as_str()).collect();
    let sandboxes: Vec<_> = SandboxMode::ALL.iter().map(|mode| mode.as_str()).collect();
    ToolDefinition {
        name: "codex".into(),
        title: "Run Codex".into(),
        description:
            "Runs a Codex session and answers with threadId and content once its turn has ended. A turn that takes \
            longer than a call may goes on as a job, which job-status looks at."
                .into(),
        input_schema: object(
            json!({
                "prompt": {"type": "string", "minLength": 1, "maxLength": limits::PROMPT_BYTES_MAX, "description": "What to do."},
                "cwd": {"type": "string", "minLength": 1, "description": "Where to work; the workspace when left out."},
                "model": {"type": "string", "description": "Which model; Codex's own choice when left out."},
                "sandbox": words(&sandboxes, "How far Codex may reach."),
                "approval-policy": words(&modes, "When it asks."),
                "base-instructions": {"type": "string", "maxLength": limits::PROMPT_BYTES_MAX, "description": "Instead of Codex's own instructions."},
                "developer-instructions": {"type": "string", "maxLength": limits::PROMPT_BYTES_MAX, "description": "Beside them."},
                "config": {"type": "object", "description": "How Codex thinks and speaks, such as model_reasoning_effort; what could loosen policy is refused."},
            }),
            &["prompt"],
        ),
        output_schema: turn(),
        version: VERSION.into(),
        hints: STARTS,
    }
}

fn codex_reply() -> ToolDefinition {
    ToolDefinition {
        name: "codex-reply".into(),
        title: "Go on with Codex".into(),
        description: "Continues a Codex conversation by its threadId and answers like codex.".into(),
        input_schema: object(
            json!({
                "threadId": {"type": "string", "minLength": 1, "description": "The conversation, as codex told it."},
                "conversationId": {"type": "string", "minLength": 1, "description": "The same, by its older name."},
                "prompt": {"type": "string", "minLength": 1, "maxLength": limits::PROMPT_BYTES_MAX, "description": "What to say."},
            }),
            &["prompt"],
        ),
        output_schema: turn(),
        version: VERSION.into(),
        hints: STARTS,
    }
}

/// What the old server answered, with the job beside it.
fn turn() -> Value {
    let mut properties = failure();
    properties["status"] = json!({"type": "string", "enum": ["completed", "pending", "running", "rejected"]});
    for name in ["threadId", "content", "jobId"] {
        properties[name] = json!({"type": "string"});
    }
    json!({"type": "object", "properties": properties, "required": ["status"]})
}

fn start_task(offered: &Offered) -> ToolDefinition {
    let mut properties = input();
    properties["agent"] = json!({
        "type": "string", "enum": offered.names,
        "description": "Which agent does it; the first of these when left out.",
    });
    ToolDefinition {
        name: "start-task".into(),
        title: "Start an agent's task".into(),
        description:
            "Starts a task for a coding agent. Answers at once with a jobId; the task runs on, its acts governed \
            by policy and people. job-status tells how it stands."
                .into(),
        input_schema: object(properties, &["prompt"]),
        output_schema: result(),
        version: VERSION.into(),
        hints: STARTS,
    }
}

fn send_message() -> ToolDefinition {
    ToolDefinition {
        name: "send-message".into(),
        title: "Say something to an agent".into(),
        description:
            "Sends a follow-up message to an existing conversation: into the task that is under way, or as the \
            next one. Answers with the jobId that the message belongs to."
                .into(),
        input_schema: object(
            json!({
                "conversationId": {"type": "string", "minLength": 1, "description": "The conversation, as the task's start or job-status told it."},
                "message": {"type": "string", "minLength": 1, "description": "The message; or give items."},
                "items": {
                    "type": "array", "maxItems": limits::MESSAGE_PARTS_MAX,
                    "items": {
                        "type": "object",
                        "properties": {
                            "type": {"type": "string", "enum": ["text", "image"]},
                            "text": {"type": "string", "minLength": 1},
                            "imageUrl": {"type": "string", "minLength": 1},
                        },
                        "required": ["type"],
                    },
                },
            }),
            &["conversationId"],
        ),
        output_schema: result(),
        version: VERSION.into(),
        hints: STARTS,
    }
}

fn interrupt_task() -> ToolDefinition {
    ToolDefinition {
        name: "interrupt-task".into(),
        title: "Interrupt a task".into(),
        description:
            "Interrupts a running task: its turn ends, with everything that it started. One that has not begun is \
            cancelled."
                .into(),
        input_schema: object(json!({"jobId": job_id()}), &["jobId"]),
        output_schema: result(),
        version: VERSION.into(),
        hints: Hints {
            idempotent: true,
            ..STARTS
        },
    }
}

fn job_status() -> ToolDefinition {
    ToolDefinition {
        name: "job-status".into(),
        title: "Look at a task".into(),
        description:
            "Tells how a task stands, with its result, its metrics and its session. Waits up to wait_ms for its end."
                .into(),
        input_schema: object(
            json!({
                "jobId": job_id(),
                "wait_ms": {"type": "integer", "minimum": 0, "description": "Waits this long for the task to end."},
            }),
            &["jobId"],
        ),
        output_schema: looked(json!({"job": {"type": "object"}, "session": {"type": "object"}})),
        version: VERSION.into(),
        hints: LOOKS,
    }
}

fn list_jobs() -> ToolDefinition {
    let statuses: Vec<_> = JobStatus::ALL.iter().map(|status| status.as_str()).collect();
    ToolDefinition {
        name: "list-jobs".into(),
        title: "List tasks".into(),
        description: "Lists the latest tasks that this caller started, the newest last.".into(),
        input_schema: object(
            json!({
                "status": {"type": "string", "enum": statuses},
                "limit": {"type": "integer", "minimum": 1, "description": "How many at most."},
            }),
            &[],
        ),
        output_schema: looked(json!({"jobs": {"type": "array", "items": {"type": "object"}}})),
        version: VERSION.into(),
        hints: LOOKS,
    }
}

fn job_logs() -> ToolDefinition {
    ToolDefinition {
        name: "job-logs".into(),
        title: "Read what an agent did".into(),
        description:
            "Tells what happened in a task, event by event, oldest first. `next` of an answer is `after` of the \
            next call."
                .into(),
        input_schema: object(
            json!({
                "jobId": job_id(),
                "after": {"type": "integer", "minimum": 0, "description": "Behind this place only."},
                "limit": {"type": "integer", "minimum": 1, "description": "How many events at most."},
            }),
            &["jobId"],
        ),
        output_schema: looked(json!({
            "events": {"type": "array", "items": {"type": "object"}},
            "next": {"type": "integer", "minimum": 0},
        })),
        version: VERSION.into(),
        hints: LOOKS,
    }
}

/// S1's Job.input.
fn input() -> Value {
    let modes: Vec<_> = Mode::ALL.iter().map(|mode| mode.as_str()).collect();
    let sandboxes: Vec<_> = SandboxMode::ALL.iter().map(|mode| mode.as_str()).collect();
    json!({
        "prompt": {"type": "string", "minLength": 1, "maxLength": limits::PROMPT_BYTES_MAX, "description": "What to do."},
        "model": {"type": "string", "description": "Which model; the agent's own choice when left out."},
        "cwd": {"type": "string", "minLength": 1, "description": "Where to work; the workspace when left out."},
        "approvalPolicy": {
            "description": "A mode, or an object with mode, whitelist, timeout and autoApprovePatterns. Less strict than \
                policy asks a person, or is denied.",
            "anyOf": [
                {"type": "string", "enum": modes},
                {
                    "type": "object", "additionalProperties": false,
                    "properties": {
                        "mode": {"type": "string", "enum": modes},
                        "timeout": {"type": "integer", "minimum": 1},
                        "autoApprovePatterns": {"type": "array", "items": {"type": "string"}},
                        "whitelist": {"type": "array", "items": {
                            "type": "object", "required": ["pattern"], "additionalProperties": false,
                            "properties": {
                                "pattern": {"type": "string", "minLength": 1},
                                "reason": {"type": "string"},
                                "enabled": {"type": "boolean"},
                            },
                        }},
                    },
                },
            ],
        },
        "sandboxPolicy": {"type": "string", "enum": sandboxes, "description": "How far the agent may reach."},
        "timeout": {"type": "integer", "minimum": 1, "description": "Milliseconds; an hour when left out. Time that a person thinks does not count."},
        "sessionName": {"type": "string", "minLength": 1, "maxLength": limits::SESSION_NAME_CHARS_MAX, "description": "A name for the session's folder."},
    })
}

fn job_id() -> Value {
    json!({"type": "string", "minLength": 1, "description": "The task, as its start told it."})
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// S1's ToolResult.
fn result() -> Value {
    let mut properties = failure();
    properties["status"] = json!({"type": "string", "enum": ["accepted", "rejected", "pending"]});
    properties["jobId"] = json!({"type": "string"});
    properties["conversationId"] = json!({"type": "string"});
    properties["message"] = json!({"type": "string"});
    json!({"type": "object", "properties": properties, "required": ["status", "message"]})
}

fn looked(found: Value) -> Value {
    let mut properties = failure();
    properties["status"] = json!({"type": "string", "enum": ["ok", "rejected", "pending"]});
    for (name, schema) in found.as_object().into_iter().flatten() {
        properties[name] = schema.clone();
    }
    json!({"type": "object", "properties": properties, "required": ["status"]})
}

/// What a result that is an error says besides.
fn failure() -> Value {
    json!({
        "message": {"type": "string"},
        "error": {
            "type": "object", "required": ["code", "message", "retryable"],
            "properties": {
                "code": {"type": "string"}, "message": {"type": "string"},
                "details": {"type": "object"}, "retryable": {"type": "boolean"},
            },
        },
        "error_code": {"type": "string", "description": "One of countersign://errors."},
        "error_message": {"type": "string"},
        "error_details": {"type": "object"},
        "retryable": {"type": "boolean"},
        "approval_id": {"type": "string"},
    })
}
