//! How jobs stand, and what their agents said.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::approval::ClearedAct;
use crate::audit::Pending;
use crate::catalog::arguments::Arguments;
use crate::error::Refusal;
use crate::ids::JobId;
use crate::job::desk::JobDesk;
use crate::job::keeping::JobFilter;
use crate::job::lifecycle::JobStatus;
use crate::limits;
use crate::service::Progress;
use crate::tools::acts::{Act, Asked};

/// Jobs, or events, in an answer that names no number.
const SHOWN: u64 = 100;

enum Look {
    Status { job: JobId, wait: Duration },
    List { status: Option<JobStatus>, limit: usize },
    Logs { job: JobId, after: u64, limit: usize },
}

struct Looking {
    desk: Arc<JobDesk>,
    look: Look,
    /// Where a caller hears what happens while it waits.
    progress: Option<Arc<dyn Progress>>,
}

pub(super) fn status(desk: Arc<JobDesk>, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
    let mut arguments = Arguments::new(&asked.call.arguments);
    let job = JobId::trusted(arguments.string("jobId"));
    let wait = Duration::from_millis(arguments.optional_natural("wait_ms").unwrap_or(0));
    arguments.finish()?;
    let wait = wait.min(limits::STATUS_WAIT_MAX);
    let look = Look::Status { job, wait };
    Ok(Box::new(Looking::new(desk, look, asked)))
}

pub(super) fn list(desk: Arc<JobDesk>, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
    let mut arguments = Arguments::new(&asked.call.arguments);
    let words: Vec<_> = JobStatus::ALL.iter().map(|status| (status.as_str(), *status)).collect();
    let status = arguments.optional_word("status", &words);
    let limit = arguments.optional_positive("limit").unwrap_or(SHOWN);
    arguments.finish()?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(limits::JOBS_AT_ONCE);
    let look = Look::List { status, limit };
    Ok(Box::new(Looking::new(desk, look, asked)))
}

pub(super) fn logs(desk: Arc<JobDesk>, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
    let mut arguments = Arguments::new(&asked.call.arguments);
    let job = JobId::trusted(arguments.string("jobId"));
    let after = arguments.optional_natural("after").unwrap_or(0);
    let limit = arguments.optional_positive("limit").unwrap_or(SHOWN);
    arguments.finish()?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let look = Look::Logs { job, after, limit };
    Ok(Box::new(Looking::new(desk, look, asked)))
}

impl Looking {
    fn new(desk: Arc<JobDesk>, look: Look, asked: &Asked<'_>) -> Self {
        let progress = asked.call.progress.clone();
        Self { desk, look, progress }
    }
}

impl Act for Looking {
    fn only_looks(&self) -> bool {
        true
    }

    fn details(&self) -> Map<String, Value> {
        match &self.look {
            Look::Status { job, .. } | Look::Logs { job, .. } => {
                Map::from_iter([("jobId".to_owned(), json!(job.as_str()))])
            }
            Look::List { .. } => Map::new(),
        }
    }

    fn perform(self: Box<Self>, cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>> {
        Box::pin(async move {
            let (desk, caller) = (&self.desk, cleared.caller());
            let shown = match &self.look {
                Look::Status { job, wait } => {
                    let job = desk.accompany(caller, job, *wait, self.progress.as_deref()).await?;
                    let session = desk.session(caller, &job.id).await?;
                    let session = session.to_json(&desk.directory(&session));
                    json!({"status": "ok", "job": job.to_json(), "session": session})
                }
                Look::List { status, limit } => {
                    let filter = JobFilter {
                        owner: None,
                        statuses: status.iter().copied().collect(),
                        limit: *limit,
                    };
                    let jobs = desk.list(caller, filter).await?;
                    json!({"status": "ok", "jobs": jobs.iter().map(|job| job.to_json()).collect::<Vec<_>>()})
                }
                Look::Logs { job, after, limit } => {
                    let (events, next) = desk.logs(caller, job, *after, *limit).await?;
                    let events: Vec<_> = events.iter().map(|stored| stored.event.to_json()).collect();
                    json!({"status": "ok", "events": events, "next": next})
                }
            };
            Ok(shown.as_object().cloned().unwrap_or_default())
        })
    }
}
