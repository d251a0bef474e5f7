//! One row of the record before it is linked into the chain.

use super::payload::Payload;
use crate::clock::Timestamp;
use crate::ids::{CorrelationId, EventId};

macro_rules! names {
    ($(#[$doc:meta])* $kind:ident { $($variant:ident $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum $kind { $($variant,)* }

        impl $kind {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.as_str() == text)
            }
        }
    };
}

names! {
    /// Who did it.
    ActorType {
        Human "human",
        Agent "agent",
        System "system",
    }
}

names! {
    /// What happened. The set is closed; a new kind of event is a new variant.
    EventType {
        CommandReceived "command.received",
        CommandValidated "command.validated",
        CommandDispatched "command.dispatched",
        CommandCompleted "command.completed",
        ApprovalRequested "approval.requested",
        ApprovalApproved "approval.approved",
        ApprovalDenied "approval.denied",
        ApprovalExpired "approval.expired",
        ApprovalWithdrawn "approval.withdrawn",
        ApproverAsked "approver.asked",
        ApproverUnreachable "approver.unreachable",
        CallbackReceived "callback.received",
        ActRequested "mcp.tool.requested",
        ActApplied "mcp.tool.applied",
        ActFailed "mcp.tool.failed",
        WaitPaused "run.wait.paused",
        WaitResumed "run.wait.resumed",
        LabelRequested "label.requested",
        LabelApplied "label.applied",
        LabelRejected "label.rejected",
        RunEnqueued "run.enqueued",
        RunStarted "run.started",
        RunFinished "run.finished",
        RunCanceled "run.canceled",
        RunAgentReady "run.agent.ready",
        RunStatusReported "run.agent.status_reported",
        RunChangesRequested "run.review.changes_requested.received",
        RunStageResolved "run.revise.stage_resolved",
        RunStageAmbiguous "run.revise.stage_ambiguous",
        RunPullRequestMissing "run.revise.pr_not_found",
        RunPullRequestLinked "run.pull_request.linked",
        RunProfileResolved "run.profile.resolved",
        RunServiceMessage "run.service_message.updated",
        WebhookReceived "webhook.received",
        WebhookDuplicate "webhook.duplicate",
        WebhookIgnored "webhook.ignored",
        WebhookRefused "webhook.refused",
        ToolsChanged "tools.changed",
        ToolCalled "tool.called",
        ToolAnswered "tool.answered",
        RequestRefused "request.refused",
        SessionCreated "session.created",
        SessionInitialized "session.initialized",
        SessionClosed "session.closed",
        SessionExpired "session.expired",
        AuthRefused "auth.refused",
        AuthLogin "auth.login",
        AuthLogout "auth.logout",
        TokenCreated "token.created",
        TokenRevoked "token.revoked",
        PolicyChanged "policy.changed",
        JobCreated "job.created",
        JobStarted "job.started",
        JobCompleted "job.completed",
        JobFailed "job.failed",
        JobCancelled "job.cancelled",
        JobTimeout "job.timeout",
        JobMessage "job.message",
        JobInterrupt "job.interrupt",
        JobProcessStarted "job.process.started",
        JobProcessCrashed "job.process.crashed",
        JobProcessRestarted "job.process.restarted",
        JobSessionCreated "job.session.created",
        JobSessionActive "job.session.active",
        JobSessionIdle "job.session.idle",
        JobSessionRecovering "job.session.recovering",
        JobSessionRecovered "job.session.recovered",
        JobSessionTerminated "job.session.terminated",
        PolicyRefused "policy.refused",
        AuditCheckpoint "audit.checkpoint",
        AuditPruned "audit.pruned",
    }
}

names! {
    /// Where an approval stands.
    ApprovalState {
        Pending "pending",
        Approved "approved",
        Denied "denied",
        Expired "expired",
        Withdrawn "withdrawn",
        AutoApproved "auto-approved",
        Applied "applied",
        Failed "failed",
    }
}

impl EventType {
    /// Whether every command leaves one; all other kinds are rare beside them.
    pub fn is_of_every_command(self) -> bool {
        matches!(
            self,
            Self::CommandReceived | Self::CommandValidated | Self::CommandDispatched | Self::CommandCompleted
        )
    }
}

/// An actor, as recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Actor {
    pub kind: ActorType,
    pub id: String,
}

impl Actor {
    pub fn system(id: &str) -> Self {
        Self {
            kind: ActorType::System,
            id: id.to_owned(),
        }
    }
}

/// An event ready to be linked and written.
#[derive(Clone, PartialEq, Debug)]
pub struct Draft {
    pub event_id: EventId,
    pub timestamp: Timestamp,
    pub correlation_id: CorrelationId,
    pub actor: Actor,
    pub event_type: EventType,
    pub approval_state: Option<ApprovalState>,
    payload: Payload,
}

impl Draft {
    /// The payload must already be free of secrets (see [`super::redact`]).
    pub fn new(
        event_id: EventId,
        timestamp: Timestamp,
        correlation_id: CorrelationId,
        actor: Actor,
        event_type: EventType,
        payload: impl Into<Payload>,
    ) -> Self {
        Self {
            event_id,
            timestamp,
            correlation_id,
            actor,
            event_type,
            approval_state: None,
            payload: payload.into(),
        }
    }

    #[must_use]
    pub fn in_state(mut self, state: ApprovalState) -> Self {
        self.approval_state = Some(state);
        self
    }

    pub fn payload(&self) -> &str {
        self.payload.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_to_the_record_knows_every_event() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/read-the-record.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let told = |kind: &EventType| rows.iter().any(|row| row.contains(&format!("`{}`", kind.as_str())));
        let missing: Vec<&str> = EventType::ALL
            .iter()
            .filter(|kind| !told(kind))
            .map(|kind| kind.as_str())
            .collect();
        assert!(
            missing.is_empty(),
            "docs/guides/read-the-record.md does not tell of {missing:?}"
        );
    }
}
