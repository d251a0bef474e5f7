//! A word to an agent at work, and calling it back.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::accepted;
use super::starting::request_id;
use crate::approval::ClearedAct;
use crate::audit::Pending;
use crate::catalog::arguments::Arguments;
use crate::error::Refusal;
use crate::ids::JobId;
use crate::job::desk::JobDesk;
use crate::job::driver::Input;
use crate::job::keeping::parts_json;
use crate::limits;
use crate::tools::acts::{Act, Asked};

/// S1's send-message: `message`, or `items`.
pub(super) fn send(desk: Arc<JobDesk>, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
    let mut arguments = Arguments::new(&asked.call.arguments);
    let conversation = arguments.string("conversationId");
    let message = arguments.optional_string("message");
    let mut parts = items(&mut arguments);
    match (message, parts.is_empty()) {
        (Some(text), true) if text.is_empty() => arguments.problem("`message` must not be empty".to_owned()),
        (Some(text), true) => parts.push(Input::Text(text)),
        // S1 takes the items where both are given; a message that nobody hears would be worse.
        (Some(text), false) => parts.insert(0, Input::Text(text)),
        (None, true) => arguments.problem("give `message`, or `items` with at least one".to_owned()),
        (None, false) => {}
    }
    let is_blank = |part: &Input| matches!(part, Input::Text(text) if text.trim().is_empty());
    if !parts.is_empty() && parts.iter().all(is_blank) {
        arguments.problem("a message must say something, not blanks only".to_owned());
    }
    if parts_json(&parts).to_string().len() > limits::PROMPT_BYTES_MAX {
        arguments.problem(format!(
            "a message must have at most {} bytes",
            limits::PROMPT_BYTES_MAX
        ));
    }
    arguments.finish()?;
    Ok(Box::new(Say {
        desk,
        conversation,
        parts,
        request_id: request_id(asked),
    }))
}

fn items(arguments: &mut Arguments<'_>) -> Vec<Input> {
    let items = match arguments.optional_value("items") {
        None => return Vec::new(),
        Some(Value::Array(items)) => items,
        Some(_) => {
            arguments.problem("`items` must be an array".to_owned());
            return Vec::new();
        }
    };
    if items.len() > limits::MESSAGE_PARTS_MAX {
        arguments.problem(format!(
            "`items` must have at most {} entries",
            limits::MESSAGE_PARTS_MAX
        ));
    }
    let mut parts = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let (part, said) = match (item["type"].as_str(), item["text"].as_str(), item["imageUrl"].as_str()) {
            (Some("text"), Some(text), None) => (Input::Text(text.to_owned()), text),
            (Some("image"), None, Some(url)) => (Input::Image { url: url.to_owned() }, url),
            _ => {
                arguments.problem(format!(
                    "`items[{index}]` must be {{type: text, text}} or {{type: image, imageUrl}}"
                ));
                continue;
            }
        };
        if said.is_empty() {
            arguments.problem(format!("`items[{index}]` must not be empty"));
        } else if said.contains('\0') {
            arguments.problem(format!("`items[{index}]` must not contain a NUL byte"));
        }
        parts.push(part);
    }
    parts
}

struct Say {
    desk: Arc<JobDesk>,
    conversation: String,
    parts: Vec<Input>,
    request_id: String,
}

impl Act for Say {
    fn details(&self) -> Map<String, Value> {
        Map::from_iter([
            ("conversationId".to_owned(), json!(self.conversation)),
            ("items".to_owned(), parts_json(&self.parts)),
        ])
    }

    fn perform(self: Box<Self>, cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>> {
        Box::pin(async move {
            let job = self
                .desk
                .message(cleared.caller(), &self.conversation, self.parts, &self.request_id)
                .await?;
            Ok(accepted(&job, "the message is on its way"))
        })
    }
}

/// S1's interrupt-task.
pub(super) fn interrupt(desk: Arc<JobDesk>, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
    let mut arguments = Arguments::new(&asked.call.arguments);
    let job = JobId::trusted(arguments.string("jobId"));
    arguments.finish()?;
    Ok(Box::new(Interrupt { desk, job }))
}

struct Interrupt {
    desk: Arc<JobDesk>,
    job: JobId,
}

impl Act for Interrupt {
    fn details(&self) -> Map<String, Value> {
        Map::from_iter([("jobId".to_owned(), json!(self.job.as_str()))])
    }

    fn perform(self: Box<Self>, cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>> {
        Box::pin(async move {
            let job = self.desk.interrupt(cleared.caller(), &self.job).await?;
            let message = if job.has_ended() {
                "the task had not begun and is cancelled"
            } else {
                "the task is being interrupted; `job-status` tells when it has ended"
            };
            Ok(accepted(&job, message))
        })
    }
}
