//! The gateway as transports and readers of policy see it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Gateway;
use crate::audit::{Pending, chain};
use crate::catalog;
use crate::catalog::definition::ToolDefinition;
use crate::error::Refusal;
use crate::ids::RequestId;
use crate::job::news::JobListener;
use crate::policy::actor::Context;
use crate::policy::decide;
use crate::policy::explain::{self, Explained, Explains, Supposed};
use crate::service::{Answer, RefusedEnvelope, Service, ToolCall};
use crate::session::{self, Caller, Role};
use crate::tools::exec::request::CommandRequest;

impl Service for Arc<Gateway> {
    fn tools(&self, caller: &Caller) -> Arc<[ToolDefinition]> {
        self.warm();
        let in_force = self.in_force();
        let listed = || catalog::listed(&in_force.policy, self.toolboxes(), caller).into();
        let known = in_force.tools.iter().find(|(role, _)| *role == caller.role);
        match known.filter(|_| caller.run.is_none() && caller.job.is_none()) {
            Some((_, tools)) => Arc::clone(tools.get_or_init(listed)),
            None => listed(),
        }
    }

    fn tool_changes(&self) -> watch::Receiver<u64> {
        self.lists.subscribe()
    }

    fn job_news(&self) -> Option<JobListener> {
        self.news.get().map(|news| news.listen())
    }

    fn verdicts(&self) -> Vec<(&'static str, u64)> {
        self.verdicts.counted()
    }

    fn sandbox_renewals(&self) -> u64 {
        self.ports.executor.renewals()
    }

    fn policy(&self, caller: &Caller) -> Value {
        let tools = self.tools(caller);
        self.in_force().policy.shown_to(caller, &tools)
    }

    fn call(&self, caller: Caller, call: ToolCall) -> Pending<Result<Answer, Refusal>> {
        Box::pin(self.clone().handle(caller, call))
    }

    fn recall(
        &self,
        caller: Caller,
        command: RequestId,
        tool: Option<String>,
        patience: Duration,
    ) -> Pending<Result<Answer, Refusal>> {
        let gateway = self.clone();
        Box::pin(async move {
            let admitted = session::admit(caller)?;
            let answer = Gateway::recall(&gateway, &admitted, command, patience).await;
            let tool = tool.and_then(|name| gateway.in_force().policy.tools.command_tool(&name));
            Ok(match tool {
                Some(tool) => tool.presented(answer),
                None => answer,
            })
        })
    }

    fn cancel_command(&self, caller: Caller, command: RequestId) -> Pending<()> {
        let gateway = self.clone();
        Box::pin(async move {
            if let Ok(admitted) = session::admit(caller) {
                Gateway::cancel_one(&gateway, &admitted, &command).await;
            }
        })
    }

    fn dismiss_revoked(&self) -> Pending<()> {
        let gateway = self.clone();
        Box::pin(async move { Gateway::dismiss_revoked(&gateway).await })
    }

    fn refused(&self, envelope: RefusedEnvelope) -> Pending<()> {
        let gateway = self.clone();
        Box::pin(async move { gateway.record_refused(envelope).await })
    }

    fn shutdown(&self) -> Pending<()> {
        let gateway = self.clone();
        Box::pin(async move {
            let deadline = Instant::now() + gateway.settings.acts_end_within;
            let running = gateway.commands.close();
            running.iter().for_each(|live| live.cancel());
            for live in running {
                // One whose end cannot be written is among those that wait for that.
                let _ = tokio::time::timeout_at(deadline, live.ended()).await;
            }
            gateway.acts_ended(deadline).await;
            gateway.ends_written(deadline).await;
        })
    }
}

impl Explains for Arc<Gateway> {
    fn explain(&self, call: &Supposed) -> Explained {
        let in_force = self.in_force();
        explain::explain(&in_force.policy, call, &in_force.outlook.surroundings())
    }

    fn effective(&self) -> Value {
        let in_force = self.in_force();
        let content = self.ports.redactor.redact_json(&in_force.policy.content());
        // In the form that the digest is made of.
        let content = serde_json::from_str(&chain::canonical(&content)).unwrap_or(content);
        json!({"digest": in_force.digest, "content": content})
    }
}

impl Gateway {
    /// Once a client has looked at the tools it will soon call one: what a likely call needs is made
    /// ready meanwhile.
    fn warm(self: &Arc<Self>) {
        if self.is_warm.swap(true, Ordering::Relaxed) {
            return;
        }
        let in_force = self.in_force();
        let likely = in_force
            .policy
            .command
            .allowlist
            .names()
            .first()
            .map_or("ls", String::as_str);
        let request = CommandRequest::of_program(likely);
        let context = Context::of_role(Role::Agent);
        let verdict = decide::decide(&in_force.policy, &context, &request, &in_force.outlook.surroundings());
        if let Some(plan) = verdict.plan() {
            tokio::spawn(self.ports.executor.warm(plan));
        }
    }
}
