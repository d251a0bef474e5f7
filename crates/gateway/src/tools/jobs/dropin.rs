//! `codex` and `codex-reply`, for clients of the MCP server that Codex once had: the call waits for the turn
//! and answers with `threadId` and `content`. A turn that takes longer than a client waits goes on as a job.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::starting;
use crate::approval::ClearedAct;
use crate::audit::Pending;
use crate::catalog::arguments::Arguments;
use crate::error::{ErrorCode, Refusal};
use crate::job::desk::JobDesk;
use crate::job::driver::Input;
use crate::job::guidance::Guidance;
use crate::job::input::{JobInput, TaskApproval};
use crate::job::lifecycle::JobStatus;
use crate::job::state::Job;
use crate::limits;
use crate::policy::effective::{Mode, SandboxMode};
use crate::service::Progress;
use crate::tools::acts::{Act, Asked};

/// A field of the old server that is not passed on. Ignoring it would run something else than was asked.
const NOT_TAKEN: &str = "compact-prompt";

/// `codex {prompt, cwd, model, sandbox, approval-policy, config, base-instructions, developer-instructions}`.
pub(super) fn codex(desk: Arc<JobDesk>, codex: &str, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
    let mut arguments = Arguments::new(&asked.call.arguments);
    let mut input = JobInput::of_prompt(&arguments.words("prompt"));
    input.model = arguments.optional_string("model");
    input.cwd = arguments.optional_string("cwd");
    input.sandbox = arguments.optional_word("sandbox", SandboxMode::WORDS);
    input.approval = arguments
        .optional_word("approval-policy", Mode::WORDS)
        .map(TaskApproval::of_mode);
    let guidance = Guidance::take(&mut arguments);
    if arguments.optional_value(NOT_TAKEN).is_some() {
        arguments.problem(format!("`{NOT_TAKEN}` is not taken here; leave it out"));
    }
    if input.prompt.len() > limits::PROMPT_BYTES_MAX {
        arguments.problem(format!("`prompt` must have at most {} bytes", limits::PROMPT_BYTES_MAX));
    }
    arguments.finish()?;
    let begin = starting::begin(desk.clone(), codex.to_owned(), input, None, asked)?.guided(&guidance);
    let patience = patience(asked);
    let progress = asked.call.progress.clone();
    Ok(Box::new(Turn {
        desk,
        begin,
        patience,
        progress,
    }))
}

struct Turn {
    desk: Arc<JobDesk>,
    begin: starting::Begin,
    patience: Duration,
    progress: Option<Arc<dyn Progress>>,
}

impl Act for Turn {
    fn wants_more(&self) -> Option<String> {
        self.begin.wants_more()
    }

    fn details(&self) -> Map<String, Value> {
        self.begin.details()
    }

    fn perform(self: Box<Self>, cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>> {
        Box::pin(async move {
            let job = self.begin.start(&cleared).await?;
            let progress = self.progress.as_deref();
            let waited = self.desk.accompany(cleared.caller(), &job.id, self.patience, progress);
            let job = waited.await?;
            told(&job)
        })
    }
}

/// `codex-reply {threadId | conversationId, prompt}`.
pub(super) fn reply(desk: Arc<JobDesk>, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
    let mut arguments = Arguments::new(&asked.call.arguments);
    let (thread, conversation) = (
        arguments.optional_string("threadId"),
        arguments.optional_string("conversationId"),
    );
    let prompt = arguments.words("prompt");
    let thread = thread.or(conversation).unwrap_or_default();
    if thread.is_empty() {
        arguments.problem("`threadId` is missing".to_owned());
    }
    if prompt.len() > limits::PROMPT_BYTES_MAX {
        arguments.problem(format!("`prompt` must have at most {} bytes", limits::PROMPT_BYTES_MAX));
    }
    arguments.finish()?;
    Ok(Box::new(Reply {
        desk,
        thread,
        prompt,
        request_id: starting::request_id(asked),
        patience: patience(asked),
        progress: asked.call.progress.clone(),
    }))
}

struct Reply {
    desk: Arc<JobDesk>,
    thread: String,
    prompt: String,
    request_id: String,
    patience: Duration,
    progress: Option<Arc<dyn Progress>>,
}

impl Act for Reply {
    fn details(&self) -> Map<String, Value> {
        Map::from_iter([
            ("threadId".to_owned(), json!(self.thread)),
            ("prompt".to_owned(), json!(self.prompt)),
        ])
    }

    fn perform(self: Box<Self>, cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>> {
        Box::pin(async move {
            let (caller, words) = (cleared.caller(), vec![Input::Text(self.prompt)]);
            let job = self.desk.message(caller, &self.thread, words, &self.request_id).await?;
            let progress = self.progress.as_deref();
            let job = self.desk.accompany(caller, &job.id, self.patience, progress).await?;
            told(&job)
        })
    }
}

/// As long as every call may take.
fn patience(asked: &Asked<'_>) -> Duration {
    let usual = limits::ANSWER_WITHIN_DEFAULT;
    asked.call.answer_within.unwrap_or(usual).min(usual)
}

/// What the old server answered, with the job beside it.
fn told(job: &Job) -> Result<Map<String, Value>, Refusal> {
    let content = match job.status() {
        JobStatus::Completed => job.result.clone().unwrap_or_default(),
        JobStatus::Pending | JobStatus::Running => format!(
            "the task goes on as job `{}`; `job-status` tells when it has ended, with its result",
            job.id
        ),
        JobStatus::Failed | JobStatus::Cancelled | JobStatus::Timeout => {
            let error = job.error.as_ref();
            let code = error.and_then(|error| ErrorCode::parse(&error.code));
            let message = error.map_or("the task did not complete", |error| error.message.as_str());
            let refusal = Refusal::new(code.unwrap_or(ErrorCode::UpstreamError), message);
            return Err(refusal.with("jobId", job.id.as_str()));
        }
    };
    let thread = job.conversation_id.as_ref().map(|id| id.as_str());
    let mut answer = Map::new();
    answer.insert("status".to_owned(), json!(job.status().as_str()));
    answer.insert("threadId".to_owned(), json!(thread.unwrap_or_default()));
    answer.insert("content".to_owned(), json!(content));
    answer.insert("jobId".to_owned(), json!(job.id.as_str()));
    Ok(answer)
}
