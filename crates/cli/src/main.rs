//! The binary: reads the command line and the configuration, joins the parts, runs.
#![forbid(unsafe_code)]

#[expect(dead_code, unused_imports, reason = "the commands read it")]
mod config;
mod private;
mod wiring;

use std::sync::Arc;
use std::time::Duration;
use countersign_gateway::policy::{allowlist::Allowlist, effective::*, quantity::*};

fn main() -> anyhow::Result<()> {
    let launchpad = wiring::Launchpad::prepare()?;
    let state = std::path::PathBuf::from(std::env::var("COUNTERSIGN_STATE_DIR")?);
    let allow = std::env::var("ALLOWED_COMMANDS").unwrap_or("*".into());
    let cwd = std::env::current_dir()?;
    let policy = EffectivePolicy {
        command: CommandPolicy {
            allowlist: Allowlist::from_comma_list(&allow)?, timeout: Duration::from_secs(30), timeout_max: Duration::from_secs(600),
            cpu_limit: Millicores::parse("1")?, memory_limit: ByteCount::parse("1Gi")?, pids_limit: 256, run_as_non_root: true, run_as: None, audit_retention_days: 90,
            sandbox: SandboxMode::WorkspaceWrite, network: Network::Deny, env_allow: vec!["LANG".into(), "TERM".into()],
            require: vec![Layer::Landlock, Layer::Seccomp, Layer::NoNewPrivs, Layer::Rlimits],
            path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".split(':').map(Into::into).collect(), read_paths: vec![], helpers: vec![],
        },
        approval: ApprovalPolicy { mode: Mode::Never, timeout: None, whitelist: vec![], self_approval: true },
        places: Places { workspace_root: Some(cwd.clone()), cwd_roots: None, start: cwd, hidden: vec![state.clone()] },
        tools: vec![], sources: vec!["defaults".into()],
    };
    let store = wiring::record(&state, countersign_store::sqlite::Options::new(countersign_store::sqlite::Durability::Power, countersign_gateway::clock::Clock::system()))?;
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    rt.block_on(async {
        let gw = wiring::gateway(wiring::Parts { policy, settings: countersign_gateway::spine::Settings { answer_within: Duration::from_secs(45), output_limit: 1<<20 }, redactor: countersign_gateway::audit::redact::Redactor, approver: Arc::new(countersign_gateway::approval::NobodyToAsk), record: Arc::new(store) }, launchpad);
        countersign_server::stdio::serve_stdio(Arc::new(gw), countersign_gateway::session::Caller::anonymous_agent(countersign_gateway::session::Transport::Stdio), countersign_server::stdio::StdioOptions::standard(), std::future::pending::<()>()).await
    })?;
    Ok(())
}
