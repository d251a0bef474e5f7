//! The job tools through the whole gateway: from a call to an agent at work and back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::approval::Cleared;
use countersign_gateway::audit::Pending;
use countersign_gateway::audit::event::EventType;
use countersign_gateway::audit::keyed::DigestKey;
use countersign_gateway::audit::redact::{Config, Redactor};
use countersign_gateway::execution::live::Live;
use countersign_gateway::execution::{Ended, Executor, Gate};
use countersign_gateway::ids::{CredentialId, IdSource};
use countersign_gateway::job::driver::AgentAnswer;
use countersign_gateway::job::lifecycle::JobStatus;
use countersign_gateway::policy::allowlist::{Allowlist, FoundProgram, Opened, Programs};
use countersign_gateway::policy::effective::{
    ApprovalPolicy, CommandPolicy, EffectivePolicy, Mode, Network, Places, RuleSources, SandboxMode,
};
use countersign_gateway::policy::places::{Directories, OpenDirectory, OpenFailure};
use countersign_gateway::policy::plan::Plan;
use countersign_gateway::policy::quantity::{ByteCount, Millicores};
use countersign_gateway::policy::tools::{Layers, ToolPolicies};
use countersign_gateway::policy::whitelist::builtin_rules;
use countersign_gateway::service::{Cancel, Origin, Service, ToolCall};
use countersign_gateway::session::{Caller, Role};
use countersign_gateway::spine::{Gateway, Outlook, Ports, Settings};
use countersign_gateway::tools::jobs::{JobTools, Offered};
use serde_json::{Value, json};

use super::agent::{Fake, Step};
use super::house::{House, Life, caller};

fn policy(workspace: &Path, mode: Mode) -> EffectivePolicy {
    let source = || "test".to_owned();
    EffectivePolicy {
        command: CommandPolicy {
            allowlist: Allowlist::from_entries(&["*"]).unwrap(),
            timeout: Duration::from_secs(5),
            timeout_max: Duration::from_secs(10),
            cpu_limit: Millicores::parse("1").unwrap(),
            memory_limit: ByteCount::new(1 << 20),
            pids_limit: 8,
            run_as_non_root: true,
            run_as: None,
            audit_retention_days: 1,
            sandbox: SandboxMode::WorkspaceWrite,
            network: Network::Deny,
            env_allow: vec![],
            require: vec![],
            path: vec!["/bin".into()],
            read_paths: vec![],
            helpers: vec![],
        },
        approval: ApprovalPolicy {
            mode,
            timeout: None,
            whitelist: builtin_rules(),
            self_approval: false,
            quorum: 1,
            client_decides: false,
        },
        places: Places {
            workspace_root: Some(workspace.to_owned()),
            cwd_roots: None,
            start: workspace.to_owned(),
            hidden: Arc::new([]),
        },
        tools: ToolPolicies::new(Layers::built_in()),
        sources: vec![source()],
        rule_sources: RuleSources {
            allowlist: source(),
            workspace: source(),
            cwd_roots: source(),
            timeout: source(),
            mode: source(),
        },
    }
}

/// Every word names a program.
struct AnyProgram;

impl Programs for AnyProgram {
    fn find(&self, word: &str) -> Option<FoundProgram> {
        let path: PathBuf = Path::new("/bin").join(word);
        Some(FoundProgram {
            version: None,
            requested: path.clone(),
            path,
            on_trusted_path: true,
            is_script: false,
            interpreter_chain: vec![],
            opened: Opened::default(),
        })
    }
}

struct RealDirectories;

impl Directories for RealDirectories {
    fn open(&self, path: &Path) -> Result<OpenDirectory, OpenFailure> {
        let path = path.canonicalize().map_err(|_| OpenFailure::Missing)?;
        let handle = std::fs::File::open(&path).map_err(|_| OpenFailure::Refused)?;
        Ok(OpenDirectory {
            path,
            handle: Arc::new(handle.into()),
        })
    }

    fn links(&self, path: &Path) -> (Vec<PathBuf>, PathBuf) {
        (Vec::new(), path.to_owned())
    }

    fn git_directory(&self, _: &Path) -> Option<PathBuf> {
        None
    }

    fn names(&self, places: &Arc<[PathBuf]>) -> std::io::Result<Arc<[PathBuf]>> {
        Ok(places.clone())
    }
}

/// No command runs in these tests.
struct NoCommands;

impl Executor for NoCommands {
    fn run(&self, _: Cleared, _: Gate, _: Arc<Live>) -> Pending<Ended> {
        unreachable!("no command is called here")
    }

    fn warm(&self, _: &Plan) -> Pending<()> {
        Box::pin(async {})
    }

    fn ready(&self) -> Result<(), String> {
        Err("no command runs here".to_owned())
    }

    fn renewals(&self) -> u64 {
        0
    }
}

/// A gateway over the house's store.
pub(super) fn gateway(life: &Life, workspace: &Path, mode: Mode) -> Arc<Gateway> {
    let ports = Ports {
        outlook: Outlook {
            programs: Arc::new(AnyProgram),
            directories: Arc::new(RealDirectories),
            environment: BTreeMap::new(),
        },
        board: life.board.clone(),
        executor: Arc::new(NoCommands),
        record: life.store.clone(),
        redactor: Redactor::new(Config::default()),
        digests: DigestKey::new([7; 32]),
        clock: life.clock.clone(),
        ids: IdSource::random(),
    };
    let settings = Settings {
        answer_within: Duration::from_millis(200),
        output_limit: 1 << 10,
        acts_end_within: Duration::from_secs(10),
    };
    let gateway = Gateway::new(policy(workspace, mode), settings, ports);
    let offered = Offered {
        names: vec!["fake".to_owned()],
        codex: Some("fake".to_owned()),
    };
    gateway.equip(vec![JobTools::new(life.desk.clone(), offered)]);
    gateway
}

async fn call_as(gateway: &Arc<Gateway>, caller: Caller, tool: &str, arguments: Value) -> Value {
    let call = ToolCall {
        tool: tool.to_owned(),
        arguments: arguments.as_object().unwrap().clone(),
        progress: None,
        cancel: Cancel::never(),
        origin: Origin::default(),
        answer_within: None,
        user: None,
    };
    gateway.clone().handle(caller, call).await.unwrap().structured
}

async fn call(gateway: &Arc<Gateway>, tool: &str, arguments: Value) -> Value {
    call_as(gateway, caller(), tool, arguments).await
}

#[test]
fn a_task_is_started_followed_messaged_and_read_through_the_tools() {
    let house = House::new(Fake::playing(&[
        Step::Say("hello"),
        Step::Ask("q1", "bash -lc 'git status'"),
    ]));
    let workspace = tempfile::tempdir().unwrap();
    house.live(async |life| {
        let gateway = gateway(life, workspace.path(), Mode::Untrusted);
        life.judged_by(gateway.clone());
        let listed: Vec<_> = gateway.tools(&caller()).iter().map(|tool| tool.name.clone()).collect();
        assert!(listed.contains(&"start-codex-task".into()) && listed.contains(&"job-logs".into()));
        let started = call(
            &gateway,
            "start-codex-task",
            json!({"prompt": "Fix it", "sessionName": "fix"}),
        )
        .await;
        assert_eq!(
            (&started["status"], &started["conversationId"]),
            (&json!("accepted"), &json!("th-1"))
        );
        let job = started["jobId"].clone();
        let looked = call(&gateway, "job-status", json!({"jobId": job, "wait_ms": 20_000})).await;
        assert_eq!(looked["job"]["status"], "completed");
        assert_eq!(looked["job"]["output"]["result"], "done");
        assert_eq!(looked["session"]["sessionName"], "fix");
        assert_eq!(
            looked["session"]["config"]["cwd"],
            json!(workspace.path().canonicalize().unwrap())
        );
        let logs = call(&gateway, "job-logs", json!({"jobId": job})).await;
        let types: Vec<_> = logs["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["type"].clone())
            .collect();
        assert!(types.contains(&json!("codex-agent-message")) && types.contains(&json!("approval-auto-approved")));
        let again = call(
            &gateway,
            "send-message",
            json!({"conversationId": "th-1", "message": "more"}),
        )
        .await;
        assert_eq!(again["status"], "accepted");
        assert_ne!(again["jobId"], job, "the job that the message is");
        let next = call(
            &gateway,
            "job-status",
            json!({"jobId": again["jobId"], "wait_ms": 20_000}),
        )
        .await;
        assert_eq!(next["job"]["status"], "completed");
        for empty in [
            json!([{"type": "text", "text": ""}]),
            json!([{"type": "text", "text": "a\0"}]),
            json!([{"type": "text", "text": " \n"}]),
        ] {
            let arguments = json!({"conversationId": "th-1", "items": empty});
            let refused = call(&gateway, "send-message", arguments).await;
            assert_eq!(refused["error_code"], "INVALID_ARGUMENTS", "{refused}");
        }
        let blank = call(
            &gateway,
            "send-message",
            json!({"conversationId": "th-1", "message": " "}),
        )
        .await;
        assert_eq!(blank["error_code"], "INVALID_ARGUMENTS", "{blank}");
        let list = call(&gateway, "list-jobs", json!({})).await;
        assert_eq!(list["jobs"].as_array().unwrap().len(), 2);
        let done = call(&gateway, "interrupt-task", json!({"jobId": job})).await;
        assert_eq!(
            (&done["status"], &done["error_code"]),
            (&json!("rejected"), &json!("CONFLICT"))
        );
    });
    assert_eq!(
        house.agent.answered("q1"),
        Some(AgentAnswer::Allow),
        "the whitelist covers it"
    );
    assert_eq!(house.count(EventType::ActRequested), 3);
}

#[test]
fn clients_of_the_server_that_codex_had_are_answered_as_before() {
    let house = House::new(Fake::playing(&[Step::Say("hello")]));
    let workspace = tempfile::tempdir().unwrap();
    house.live(async |life| {
        let gateway = gateway(life, workspace.path(), Mode::Untrusted);
        let first = call(
            &gateway,
            "codex",
            json!({"prompt": "p", "approval-policy": "untrusted", "sandbox": "read-only"}),
        )
        .await;
        assert_eq!(
            (&first["threadId"], &first["content"]),
            (&json!("th-1"), &json!("done"))
        );
        for name in ["threadId", "conversationId"] {
            let next = call(&gateway, "codex-reply", json!({name: "th-1", "prompt": "more"})).await;
            assert_eq!(
                (&next["threadId"], &next["content"]),
                (&json!("th-1"), &json!("done")),
                "{next}"
            );
        }
        for (tool, blank) in [
            ("codex", json!({"prompt": " "})),
            ("codex-reply", json!({"threadId": "th-1", "prompt": "\n"})),
        ] {
            let refused = call(&gateway, tool, blank).await;
            assert_eq!(refused["error_code"], "INVALID_ARGUMENTS", "{tool}");
            assert!(
                refused["message"].as_str().unwrap().contains("must say something"),
                "{refused}"
            );
        }
        let refused = call(
            &gateway,
            "codex",
            json!({"prompt": "p", "config": {"model_provider": "x"}}),
        )
        .await;
        assert_eq!(refused["error_code"], "INVALID_ARGUMENTS");
        let refused = call(&gateway, "codex-reply", json!({"threadId": "th-9", "prompt": "p"})).await;
        assert_eq!(refused["error_code"], "NOT_FOUND");
    });
}

#[test]
fn a_job_belongs_to_whoever_started_it_and_to_operators() {
    let house = House::new(Fake::playing(&[Step::Hang]));
    let workspace = tempfile::tempdir().unwrap();
    house.live(async |life| {
        let gateway = gateway(life, workspace.path(), Mode::Untrusted);
        let started = call(&gateway, "start-task", json!({"prompt": "work"})).await;
        let job = json!({"jobId": started["jobId"]});
        let mut other = caller();
        other.credential = CredentialId::trusted("other");
        for (tool, arguments) in [
            ("job-status", job.clone()),
            ("job-logs", job.clone()),
            ("interrupt-task", job.clone()),
            ("send-message", json!({"conversationId": "th-1", "message": "psst"})),
        ] {
            let refused = call_as(&gateway, other.clone(), tool, arguments).await;
            assert_eq!(refused["error_code"], "NOT_FOUND", "{tool}");
        }
        let seen = call_as(&gateway, other.clone(), "list-jobs", json!({})).await;
        assert_eq!(seen["jobs"], json!([]));
        other.role = Role::Operator;
        let seen = call_as(&gateway, other.clone(), "list-jobs", json!({})).await;
        assert_eq!(seen["jobs"].as_array().unwrap().len(), 1);
        let stopped = call_as(&gateway, other, "interrupt-task", job.clone()).await;
        assert_eq!(stopped["status"], "accepted");
        let looked = call(
            &gateway,
            "job-status",
            json!({"jobId": job["jobId"], "wait_ms": 20_000}),
        )
        .await;
        assert_eq!(looked["job"]["status"], JobStatus::Cancelled.as_str());
    });
}

#[test]
fn a_task_that_wants_more_than_policy_gives_asks_or_is_denied() {
    let house = House::new(Fake::playing(&[Step::Say("hi")]));
    let workspace = tempfile::tempdir().unwrap();
    house.live(async |life| {
        let asking = gateway(life, workspace.path(), Mode::Untrusted);
        let free = json!({"prompt": "p", "sandboxPolicy": "danger-full-access"});
        let pending = call(&asking, "start-task", free.clone()).await;
        assert_eq!(
            (&pending["status"], &pending["error_code"]),
            (&json!("pending"), &json!("APPROVAL_PENDING"))
        );
        let question = life.asked().await;
        assert_eq!(question.details["sandboxPolicy"], "danger-full-access");
        assert_eq!(question.details["prompt"], "p");
        life.approve(&question).await;
        assert_eq!(call(&asking, "start-task", free.clone()).await["status"], "accepted");
        let mode = json!({"prompt": "p", "approvalPolicy": "never"});
        assert_eq!(call(&asking, "start-task", mode).await["status"], "pending");

        let never = gateway(life, workspace.path(), Mode::Never);
        assert_eq!(call(&never, "start-task", free).await["error_code"], "POLICY_DENIED");
        let stricter = json!({"prompt": "p", "approvalPolicy": "untrusted"});
        assert_eq!(call(&never, "start-task", stricter).await["status"], "accepted");
        for (bad, code) in [
            (json!({"prompt": ""}), "INVALID_ARGUMENTS"),
            (json!({"prompt": "p", "agent": "nobody"}), "INVALID_ARGUMENTS"),
            (json!({"prompt": "p", "sessionName": "../x"}), "INVALID_ARGUMENTS"),
            (json!({"prompt": "p", "cwd": "/"}), "WORKSPACE_ISOLATION_VIOLATION"),
        ] {
            assert_eq!(
                call(&never, "start-task", bad.clone()).await["error_code"],
                code,
                "{bad}"
            );
        }
    });
}

#[test]
fn an_agent_that_starts_a_task_cannot_let_it_off() {
    let house = House::new(Fake::playing(&[Step::Ask("q1", "make all")]));
    let workspace = tempfile::tempdir().unwrap();
    house.live(async |life| {
        let gateway = gateway(life, workspace.path(), Mode::Untrusted);
        life.judged_by(gateway.clone());
        let task = json!({"prompt": "p", "approvalPolicy": {"autoApprovePatterns": ["^make"]}});
        let started = call(&gateway, "start-task", task.clone()).await;
        assert!(started["message"].as_str().unwrap().contains("`^make`"), "{started}");
        let question = life.asked().await;
        life.deny(&question, "no").await;
        call(
            &gateway,
            "job-status",
            json!({"jobId": started["jobId"], "wait_ms": 20_000}),
        )
        .await;

        {
            let mut world = house.agent.world.lock().unwrap();
            world.answers.clear();
            world.position = 0;
        }
        let mut operator = caller();
        operator.role = Role::Operator;
        let started = call_as(&gateway, operator, "start-task", task).await;
        let looked = call(
            &gateway,
            "job-status",
            json!({"jobId": started["jobId"], "wait_ms": 20_000}),
        )
        .await;
        assert_eq!(looked["job"]["status"], "completed");
        assert_eq!(house.agent.answered("q1"), Some(AgentAnswer::Allow));
    });
    assert_eq!(
        house.count(EventType::ApprovalRequested),
        1,
        "the operator's rule answered"
    );
}
