//! Who calls. A transport hands over a [`Caller`]; [`admit`] turns it into [`Admitted`], the first
//! link of the proof chain, or refuses. A client that comes back is recognised by its session
//! ([`lifetime`], kept by the [`desk`]) and by its token ([`credential`]); a person's browser by its
//! login ([`login`]). What is shown of all that is in [`view`].

pub mod credential;
pub mod desk;
pub mod kinship;
pub mod lifetime;
pub mod login;
pub mod view;

use std::sync::Arc;

use crate::audit::event::{Actor, ActorType};
use crate::error::{ErrorCode, Refusal};
use crate::ids::{CorrelationId, CredentialId, IdSource, JobId};
use crate::policy::actor::RunContext;

/// What a credential may do in general; policy decides the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Role {
    Agent,
    Operator,
    Approver,
    Viewer,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Agent, Self::Operator, Self::Approver, Self::Viewer];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Operator => "operator",
            Self::Approver => "approver",
            Self::Viewer => "viewer",
        }
    }

    fn may_call_tools(self) -> bool {
        match self {
            Self::Agent | Self::Operator => true,
            Self::Approver | Self::Viewer => false,
        }
    }
}

/// How the call reached us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    Stdio,
    StreamableHttp,
    Sse,
    Terminal,
    Rest,
    Console,
}

impl Transport {
    pub const ALL: [Self; 6] = [
        Self::Stdio,
        Self::StreamableHttp,
        Self::Sse,
        Self::Terminal,
        Self::Rest,
        Self::Console,
    ];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|transport| transport.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::StreamableHttp => "streamable-http",
            Self::Sse => "sse",
            Self::Terminal => "terminal",
            Self::Rest => "rest",
            Self::Console => "console",
        }
    }
}

/// A caller as the transport knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    pub credential: CredentialId,
    pub role: Role,
    pub actor: Actor,
    pub transport: Transport,
    /// The run whose token it is, where it is one's.
    pub run: Option<Arc<RunContext>>,
    /// The job of ours whose agent it is, where it came with that job's token.
    pub job: Option<Arc<JobContext>>,
}

/// The job behind a call. What its agent does through us belongs to the same story.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobContext {
    pub job_id: JobId,
    pub correlation_id: CorrelationId,
}

impl Caller {
    /// The agent at the other end of our standard input. All anonymous agents on this machine are
    /// one credential: they share request ids and results.
    pub fn anonymous_agent(transport: Transport) -> Self {
        Self {
            credential: CredentialId::trusted("local"),
            role: Role::Agent,
            actor: Actor {
                kind: ActorType::Agent,
                id: "local".to_owned(),
            },
            transport,
            run: None,
            job: None,
        }
    }

    /// The person at this terminal.
    pub fn person(user: &str) -> Self {
        Self {
            credential: CredentialId::trusted(format!("user:{user}")),
            role: Role::Operator,
            actor: Actor {
                kind: ActorType::Human,
                id: user.to_owned(),
            },
            transport: Transport::Terminal,
            run: None,
            job: None,
        }
    }

    /// What ties its calls together: the id of the job or the run that its bearer works in, else each call has
    /// its own.
    pub fn correlation(&self, ids: &IdSource) -> CorrelationId {
        let of_job = self.job.as_ref().map(|job| job.correlation_id.clone());
        let of_run = || self.run.as_ref()?.correlation_id.clone();
        of_job.or_else(of_run).unwrap_or_else(|| ids.correlation())
    }

    /// Whether several of its calls go by one correlation id, so that each of their events must say which call
    /// it tells of.
    pub fn shares_correlation(&self) -> bool {
        let of_run = self.run.as_ref().is_some_and(|run| run.correlation_id.is_some());
        self.job.is_some() || of_run
    }

    pub fn job_id(&self) -> Option<&str> {
        self.job.as_ref().map(|job| job.job_id.as_str())
    }

    pub fn run_id(&self) -> Option<&str> {
        self.run.as_ref()?.run_id.as_ref().map(|id| id.as_str())
    }
}

/// A caller who may call tools.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admitted {
    // INVARIANT: the role may call tools; only `admit` makes one.
    caller: Caller,
}

impl Admitted {
    pub fn caller(&self) -> &Caller {
        &self.caller
    }
}

/// Lets a caller in.
pub fn admit(caller: Caller) -> Result<Admitted, Refusal> {
    if caller.role.may_call_tools() {
        Ok(Admitted { caller })
    } else {
        let message = format!(
            "a token of role `{}` reads and decides, it does not call tools",
            caller.role.as_str()
        );
        Err(Refusal::new(ErrorCode::Forbidden, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_agents_and_operators_call_tools() {
        for role in Role::ALL {
            let caller = Caller {
                role,
                ..Caller::person("ana")
            };
            let admitted = admit(caller).is_ok();
            assert_eq!(admitted, matches!(role, Role::Agent | Role::Operator), "{role:?}");
        }
    }
}
