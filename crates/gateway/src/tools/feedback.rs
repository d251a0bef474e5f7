//! `owner.feedback.request`: an agent asks the owner something, and goes on with the answer.
//!
//! The question is the act: it lies on the board with its options, and whoever may decide answers it, at
//! the console, a terminal, by REST, or as a service that was asked. An agent's question is never answered by
//! policy.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::approval::ClearedAct;
use crate::approval::question::Offer;
use crate::approval::request::ApprovalType;
use crate::audit::Pending;
use crate::catalog::arguments::Arguments;
use crate::catalog::definition::{Hints, ToolDefinition, unless_refused};
use crate::error::{ErrorCode, Refusal};
use crate::limits::{ANSWER_CHARS_MAX, QUESTION_CHARS_MAX};
use crate::tools::acts::{Act, Asked, Toolbox};

const NAME: &str = "owner.feedback.request";
/// What services that ask people take.
const ASKED_CHARS_MAX: usize = 1_000;
const ASKED_CHARS_MIN: usize = 10;

/// The one tool.
pub struct FeedbackTool;

impl FeedbackTool {
    pub fn new() -> Arc<Self> {
        Arc::new(Self)
    }
}

impl Toolbox for FeedbackTool {
    fn definitions(&self) -> Vec<ToolDefinition> {
        vec![definition()]
    }

    fn offers(&self, name: &str) -> bool {
        name == NAME
    }

    fn read(&self, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
        let mut arguments = Arguments::new(&asked.call.arguments);
        let question = arguments.string("question");
        let options = arguments.some_strings("options");
        let allow_custom = arguments.optional_flag("allow_custom").unwrap_or(false);
        let dry_run = arguments.optional_flag("dry_run").unwrap_or(false);
        let length = question.trim().chars().count();
        if !question.is_empty() && !(ASKED_CHARS_MIN..=ASKED_CHARS_MAX).contains(&length) {
            arguments.problem(format!(
                "`question` has between {ASKED_CHARS_MIN} and {ASKED_CHARS_MAX} characters, not {length}"
            ));
        }
        arguments.finish()?;
        let offer = Offer::new(&question, &options, allow_custom)
            .map_err(|error| Refusal::new(ErrorCode::InvalidArguments, error.to_string()))?;
        Ok(Box::new(Ask { offer, dry_run }))
    }
}

struct Ask {
    offer: Offer,
    dry_run: bool,
}

impl Ask {
    fn fields(&self, state: Option<&str>, message: &str) -> Map<String, Value> {
        let fields = json!({
            "request_id": null, "approval_state": state, "question": self.offer.question(),
            "options": self.offer.options(), "dry_run": self.dry_run, "message": message,
            "selected_option": null, "selected_index": null, "custom": null,
        });
        fields.as_object().cloned().unwrap_or_default()
    }
}

impl Act for Ask {
    fn details(&self) -> Map<String, Value> {
        self.offer.details()
    }

    fn kind(&self) -> ApprovalType {
        ApprovalType::Question
    }

    fn foresee(&self) -> Pending<Result<Option<Map<String, Value>>, Refusal>> {
        let rehearsed = self.dry_run.then(|| self.fields(None, "dry_run"));
        Box::pin(std::future::ready(Ok(rehearsed)))
    }

    fn perform(self: Box<Self>, cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>> {
        let mut fields = self.fields(Some("applied"), "applied");
        fields.insert(
            "request_id".to_owned(),
            json!(cleared.approval().map(|approval| approval.as_str())),
        );
        let answered = match cleared.answer().map(crate::approval::question::Answered::to_json) {
            Some(Value::Object(answer)) => {
                fields.extend(answer);
                Ok(fields)
            }
            _ => Err(Refusal::new(
                ErrorCode::ApprovalDenied,
                "the question was let pass without an answer; ask again",
            )),
        };
        Box::pin(std::future::ready(answered))
    }
}

fn definition() -> ToolDefinition {
    let optional = |kind: &str| json!({"type": [kind, "null"]});
    ToolDefinition {
        name: NAME.into(),
        title: "Ask the owner".into(),
        description:
            "Asks the person who owns this work a question with two to five options, and waits for the answer. \
            While nobody has answered it says APPROVAL_PENDING; make the same call again to learn the answer."
                .into(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "question": {"type": "string", "minLength": ASKED_CHARS_MIN, "maxLength": ASKED_CHARS_MAX.min(QUESTION_CHARS_MAX), "description": "With what the owner must know to decide."},
                "options": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": ANSWER_CHARS_MAX}, "minItems": 2, "maxItems": 5, "uniqueItems": true},
                "allow_custom": {"type": "boolean", "description": "Lets the owner answer in own words."},
                "dry_run": {"type": "boolean", "description": "Asks nobody."},
            },
            "required": ["question", "options"],
            "additionalProperties": false,
        }),
        output_schema: unless_refused(&json!({
            "type": "object",
            "properties": {
                "request_id": optional("string"), "approval_state": optional("string"),
                "question": {"type": "string"}, "options": {"type": "array", "items": {"type": "string"}},
                "dry_run": {"type": "boolean"}, "message": {"type": "string"},
                "selected_option": optional("string"), "selected_index": optional("integer"), "custom": optional("string"),
            },
            "required": ["request_id", "approval_state", "question", "options", "dry_run", "message"],
        })),
        version: "1.0.0".into(),
        hints: Hints {
            read_only: false,
            destructive: false,
            idempotent: false,
            open_world: true,
        },
    }
}
