//! The tools of agent jobs: S1's three, those to start any agent and to look after what was started, and
//! two for clients of the MCP server that Codex once had.
//!
//! They are offered only where an agent is there to do the work. All of them come to the
//! [desk](crate::job::desk); what happens afterwards is the supervisor's business.

mod dropin;
mod looking;
pub mod schema;
mod starting;
mod talking;

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::{Map, Value, json};

use crate::catalog::definition::ToolDefinition;
use crate::error::{ErrorCode, Refusal, Status};
use crate::job::desk::JobDesk;
use crate::job::state::Job;
use crate::tools::acts::{Act, Asked, Toolbox};

/// Agents that can be started here, by their names; the first is the one for whoever names none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offered {
    pub names: Vec<String>,
    /// The one that `start-codex-task` starts.
    pub codex: Option<String>,
}

pub struct JobTools {
    desk: Arc<JobDesk>,
    offered: RwLock<Offered>,
}

impl JobTools {
    pub fn new(desk: Arc<JobDesk>, offered: Offered) -> Arc<Self> {
        Arc::new(Self {
            desk,
            offered: RwLock::new(offered),
        })
    }

    /// Offers these agents from now on; whoever listed the tools is told by the gateway.
    pub fn offer(&self, offered: Offered) {
        *self.offered.write().unwrap_or_else(PoisonError::into_inner) = offered;
    }

    fn offered(&self) -> Offered {
        self.offered.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Toolbox for JobTools {
    /// S1's ToolResult knows no other word for what was not accepted.
    fn failed(&self) -> &'static str {
        Status::Rejected.as_str()
    }

    fn definitions(&self) -> Vec<ToolDefinition> {
        schema::definitions(&self.offered())
    }

    fn read(&self, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
        let (desk, offered) = (self.desk.clone(), self.offered());
        match (asked.call.tool.as_str(), &offered.codex) {
            ("start-codex-task", Some(codex)) => starting::codex_task(desk, codex, asked),
            ("codex", Some(codex)) => dropin::codex(desk, codex, asked),
            ("codex-reply", Some(_)) => dropin::reply(desk, asked),
            ("start-task", _) => starting::task(desk, &offered, asked),
            ("send-message", _) => talking::send(desk, asked),
            ("interrupt-task", _) => talking::interrupt(desk, asked),
            ("job-status", _) => looking::status(desk, asked),
            ("list-jobs", _) => looking::list(desk, asked),
            ("job-logs", _) => looking::logs(desk, asked),
            (other, _) => Err(Refusal::new(
                ErrorCode::UnknownTool,
                format!("there is no tool `{other}`"),
            )),
        }
    }
}

/// S1's ToolResult of what was accepted.
fn accepted(job: &Job, message: &str) -> Map<String, Value> {
    let mut result = Map::new();
    result.insert("status".to_owned(), json!("accepted"));
    result.insert("jobId".to_owned(), json!(job.id.as_str()));
    if let Some(conversation) = &job.conversation_id {
        result.insert("conversationId".to_owned(), json!(conversation.as_str()));
    }
    result.insert("message".to_owned(), json!(message));
    result
}

#[cfg(test)]
mod tests;
