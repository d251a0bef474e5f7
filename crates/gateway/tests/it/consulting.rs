//! The user of the client that waits, as the spine asks them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use countersign_gateway::approval::ballot::Choice;
use countersign_gateway::approval::client::{ClientUser, Heard, Word};
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::Pending;
use countersign_gateway::audit::event::ApprovalState;
use countersign_gateway::ids::{CorrelationId, JobId};
use countersign_gateway::policy::actor::RunContext;
use countersign_gateway::policy::effective::Mode;
use countersign_gateway::service::{Answer, Cancel, Origin, ToolCall};
use countersign_gateway::session::{Caller, JobContext, Transport};
use serde_json::json;

use crate::stage::Stage;

/// A user who says the same to everything, and counts.
struct Says {
    heard: Heard,
    asked: AtomicUsize,
}

impl Says {
    fn this(heard: Heard) -> Arc<Self> {
        Arc::new(Self {
            heard,
            asked: AtomicUsize::new(0),
        })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl ClientUser for Says {
    fn ask(&self, _question: &ApprovalRequest) -> Pending<Heard> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let heard = self.heard.clone();
        Box::pin(async move { heard })
    }
}

fn yes() -> Heard {
    Heard::Said(Word {
        choice: Choice::Allow,
        reason: "fine".to_owned(),
        answer: None,
    })
}

fn stage(client_decides: bool) -> Stage {
    let mut stage = Stage::new(Mode::Untrusted);
    stage.policy.approval.client_decides = client_decides;
    stage.answer_within = Duration::from_millis(200);
    stage
}

async fn call(stage: &Stage, caller: Caller, user: &Arc<Says>) -> Answer {
    let call = ToolCall {
        tool: "execute_process".to_owned(),
        arguments: json!({"file": "true", "args": ["x"]}).as_object().unwrap().clone(),
        progress: None,
        cancel: Cancel::never(),
        origin: Origin::default(),
        answer_within: None,
        user: Some(user.clone()),
    };
    stage.gateway().handle(caller, call).await.expect("a tool's answer")
}

fn agent() -> Caller {
    Caller::anonymous_agent(Transport::Stdio)
}

#[tokio::test]
async fn a_listed_clients_yes_lets_the_act_go() {
    let (stage, user) = (stage(true), Says::this(yes()));
    let answer = call(&stage, agent(), &user).await;
    assert_eq!(
        (&answer.structured["status"], user.asked(), stage.runs()),
        (&json!("ok"), 1, 1)
    );
    let approval = stage.approvals().remove(0);
    assert_eq!(
        (approval.state(), approval.decided_by.as_deref()),
        (ApprovalState::Applied, Some("client:local"))
    );
    let told = stage.payload("approval.approved");
    assert_eq!(
        (&told["self_approved"], &told["credential"]),
        (&json!(true), &json!("local"))
    );
}

#[tokio::test]
async fn a_client_that_is_not_listed_is_not_asked_nor_is_the_agent_of_a_run_or_a_job() {
    let run = Caller {
        run: Some(Arc::new(RunContext::default())),
        ..agent()
    };
    let job = Caller {
        job: Some(Arc::new(JobContext {
            job_id: JobId::trusted("j"),
            correlation_id: CorrelationId::trusted("c"),
        })),
        ..agent()
    };
    for (listed, caller) in [(false, agent()), (true, run), (true, job)] {
        let (stage, user) = (stage(listed), Says::this(yes()));
        let answer = call(&stage, caller, &user).await;
        assert_eq!(
            (&answer.structured["status"], user.asked(), stage.runs()),
            (&json!("pending"), 0, 0)
        );
    }
}

#[tokio::test]
async fn a_user_who_says_nothing_is_asked_once_by_each_call() {
    let (stage, user) = (stage(true), Says::this(Heard::Nothing));
    for asked in 1..=2 {
        let answer = call(&stage, agent(), &user).await;
        assert_eq!((&answer.structured["status"], user.asked()), (&json!("pending"), asked));
    }
    assert_eq!((stage.approvals().len(), stage.runs()), (1, 0));
}

#[tokio::test]
async fn a_user_who_is_asked_by_the_answer_is_answered_at_once() {
    let mut stage = stage(true);
    stage.answer_within = Duration::from_secs(600);
    let user = Says::this(Heard::ByAnswer);
    let answer = call(&stage, agent(), &user).await;
    assert_eq!(answer.structured["status"], "pending");
    assert!(stage.approvals()[0].is_pending());
    // The command is parked, so the next round finds it by its binding.
    let user = Says::this(yes());
    assert_eq!(call(&stage, agent(), &user).await.structured["status"], "ok");
    assert_eq!((stage.approvals().len(), stage.runs()), (1, 1));
}
