//! `approval_prompt`: Claude Code asks here before it uses a tool of its own.
//!
//! Nothing is done by us. The answer says whether Claude may do what it wants, in the one form that its
//! `--permission-prompt-tool` understands, also where the call itself is refused: whatever is no clear yes is
//! a no with a reason. What it wants is judged as the same wish of an agent in a job would be.

pub mod reading;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::approval::ClearedAct;
use crate::approval::request::ApprovalType;
use crate::audit::Pending;
use crate::audit::redact::Redactor;
use crate::catalog::arguments::Arguments;
use crate::catalog::definition::{Hints, ToolDefinition};
use crate::error::{ErrorCode, Refusal};
use crate::job::driver::QuestionAbout;
use crate::job::supervise::shown;
use crate::limits;
use crate::policy::agents::{self, Judgement};
use crate::policy::effective::Places;
use crate::tools::acts::{Act, Asked, Form, Toolbox};

pub const NAME: &str = "approval_prompt";

pub struct PromptTools {
    redactor: Redactor,
    /// Whether a file is there, which tells a new one from a changed one.
    exists: fn(&Path) -> bool,
}

impl PromptTools {
    pub fn new(redactor: Redactor, exists: fn(&Path) -> bool) -> Arc<Self> {
        Arc::new(Self { redactor, exists })
    }
}

impl Toolbox for PromptTools {
    fn definitions(&self) -> Vec<ToolDefinition> {
        vec![definition()]
    }

    fn read(&self, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
        let mut arguments = Arguments::new(&asked.call.arguments);
        let tool = arguments.string("tool_name");
        let input = arguments.optional_value("input").cloned();
        // An id of Claude's own, new for every try.
        arguments.optional_string("tool_use_id");
        let cwd = arguments.optional_string("cwd").map(PathBuf::from);
        let wait = arguments.optional_natural("wait_ms").map(Duration::from_millis);
        if !input.as_ref().is_some_and(Value::is_object) {
            arguments.problem("`input` must be an object".to_owned());
        }
        arguments.finish()?;
        let input = input.unwrap_or_default();
        let place = cwd.clone().unwrap_or_else(|| workplace(&asked.policy.places));
        let mut question = reading::question(&tool, &input, "", &place, self.exists);
        if let QuestionAbout::Command { cwd: at, .. } = &mut question.about {
            // Where nobody said where, it is judged for the workspace.
            at.clone_from(&cwd);
        }
        question.wants_more |= reading::reaches_out(&question.about, &workplace(&asked.policy.places));
        let context = asked.policy.context(asked.caller);
        let judgement = agents::judge(asked.policy, &context, &question, false, asked.around);
        Ok(Box::new(Wish {
            kind: match question.about {
                QuestionAbout::Command { .. } => ApprovalType::ExecCommand,
                QuestionAbout::Patch { .. } => ApprovalType::ApplyPatch,
                QuestionAbout::Tool { .. } => ApprovalType::ToolCall,
            },
            details: shown(&question, &self.redactor),
            judgement,
            input,
            wait: wait.map(|wait| wait.min(limits::PROMPT_WAIT_MAX)),
        }))
    }

    fn form(&self) -> Form {
        Form::Json
    }

    fn refusal(&self, refusal: &Refusal) -> Option<Map<String, Value>> {
        let message = match (refusal.code, refusal.details.get("approval_id").and_then(Value::as_str)) {
            (ErrorCode::ApprovalPending, Some(id)) => format!(
                "nobody has answered yet; a person decides with `countersign approve {id}`. Go on with other work or \
                 wait, then try exactly the same again: once it is approved it goes through"
            ),
            _ => refusal.message.clone(),
        };
        Some(Map::from_iter([
            ("behavior".to_owned(), json!("deny")),
            ("message".to_owned(), json!(message)),
        ]))
    }
}

/// Where commands work that do not say where.
fn workplace(places: &Places) -> PathBuf {
    places.workspace_root.as_ref().unwrap_or(&places.start).clone()
}

/// What Claude wants to do with one of its own tools.
struct Wish {
    kind: ApprovalType,
    details: Map<String, Value>,
    judgement: Judgement,
    input: Value,
    wait: Option<Duration>,
}

impl Act for Wish {
    fn kind(&self) -> ApprovalType {
        self.kind
    }

    fn judgement(&self) -> Option<&Judgement> {
        Some(&self.judgement)
    }

    fn patience(&self) -> Option<Duration> {
        self.wait
    }

    fn details(&self) -> Map<String, Value> {
        self.details.clone()
    }

    /// The same wish is the same question, however often it is tried.
    fn bound_arguments(&self, given: &Map<String, Value>) -> Value {
        let mut given = given.clone();
        given.retain(|name, _| name != "tool_use_id" && name != "wait_ms");
        Value::Object(given)
    }

    fn perform(self: Box<Self>, _cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>> {
        let allowed = Map::from_iter([
            ("behavior".to_owned(), json!("allow")),
            // Exactly what was asked for.
            ("updatedInput".to_owned(), self.input),
        ]);
        Box::pin(async move { Ok(allowed) })
    }
}

fn definition() -> ToolDefinition {
    ToolDefinition {
        name: NAME.into(),
        title: "Ask before a tool is used".into(),
        description:
            "For Claude Code's --permission-prompt-tool: says whether a tool of the client's own may be used, by \
            policy or by a person. Models do not call it."
                .into(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "tool_name": {"type": "string", "minLength": 1, "maxLength": limits::TOOL_NAME_CHARS_SHOWN},
                "input": {"type": "object"},
                "tool_use_id": {"type": "string"},
                "cwd": {"type": "string", "minLength": 1, "description": "The workspace when left out."},
                "wait_ms": {"type": "integer", "minimum": 0, "description": "How long to wait for a person."},
            },
            "required": ["tool_name", "input"],
        }),
        // Its result is a text and nothing else.
        output_schema: Value::Null,
        version: "1.0.0".into(),
        hints: Hints {
            read_only: false,
            destructive: false,
            idempotent: true,
            open_world: false,
        },
    }
}

#[cfg(test)]
mod tests;
