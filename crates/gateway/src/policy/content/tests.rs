//! A policy that was written down decides as it did before.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::ids::RunId;
use crate::policy::actor::{Context, RunContext};
use crate::policy::allowlist::{FoundProgram, Opened, Programs};
use crate::policy::decide::{Surroundings, Verdict, decide};
use crate::policy::explain::{self, TookPart};
use crate::policy::merge::tests::run;
use crate::policy::places::{Directories, OpenDirectory, OpenFailure};
use crate::policy::tools::tests::layers as any_layers;
use crate::policy::tools::{Ruling, ToolUse};
use crate::session::Role;
use crate::tools::exec::request::{Act as CommandAct, CommandRequest, CommandTool};

struct World;

impl Programs for World {
    fn find(&self, word: &str) -> Option<FoundProgram> {
        let path = PathBuf::from("/usr/bin").join(word);
        ["git", "ls", "rm", "make", "bash"]
            .contains(&word)
            .then(|| FoundProgram {
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

impl Directories for World {
    fn open(&self, path: &Path) -> std::result::Result<OpenDirectory, OpenFailure> {
        let handle = std::fs::File::open("/").map_err(|_| OpenFailure::Refused)?;
        Ok(OpenDirectory {
            path: path.to_owned(),
            handle: Arc::new(handle.into()),
        })
    }

    fn links(&self, path: &Path) -> (Vec<std::path::PathBuf>, std::path::PathBuf) {
        (Vec::new(), path.to_owned())
    }

    fn git_directory(&self, _: &Path) -> Option<std::path::PathBuf> {
        None
    }

    fn names(&self, places: &Arc<[std::path::PathBuf]>) -> std::io::Result<Arc<[std::path::PathBuf]>> {
        Ok(places.clone())
    }
}

fn texts_of(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

fn whitelist() -> impl Strategy<Value = Vec<WhitelistRule>> {
    let rule = |pattern: &'static str, enabled: bool, source: Source| {
        let text = RuleText {
            pattern,
            reason: "said so",
            enabled,
            source,
            matches: &[],
            not_matches: &[],
        };
        WhitelistRule::new(&text)
            .map(|rule| rule.written_in("file f, line 2, column 1"))
            .unwrap()
    };
    let mut all = builtin_rules();
    all.push(rule("^make (check|test)", true, Source::Global));
    all.push(rule("^ls", false, Source::Project));
    all.push(rule("^rm$", true, Source::Task));
    let count = all.len();
    subsequence(all, 0..=count)
}

prop_compose! {
    fn policy()(
        mode in select(Mode::ALL),
        sandbox in select(SandboxMode::ALL),
        network in select(Network::ALL),
        list in prop_oneof![Just(vec!["*"]), subsequence(vec!["git", "ls", "make", "/usr/bin/rm"], 0..4)],
        (timeout, quorum) in (1u64..100_000, 1u32..4),
        waits in option::of(1u64..100_000),
        roots in option::of(subsequence(vec!["/work", "/work/a", "/tmp"], 0..3)),
        workspace in option::of(select(&["/work", "/work/a"][..])),
        require in subsequence(Layer::ALL.to_vec(), 0..5),
        whitelist in whitelist(),
        layers in any_layers(),
        flags in any::<[bool; 4]>(),
    ) -> EffectivePolicy {
        let allowlist = if list.is_empty() { Allowlist::nothing() } else { Allowlist::from_entries(&list).unwrap() };
        let source = |name: &str| format!("operator file c, line 1, column 1 ({name})");
        EffectivePolicy {
            command: CommandPolicy {
                allowlist,
                timeout: Duration::from_millis(timeout),
                timeout_max: Duration::from_secs(60),
                cpu_limit: Millicores::parse("1500m").unwrap(),
                memory_limit: ByteCount::parse("3Mi").unwrap(),
                pids_limit: 256,
                run_as_non_root: flags[0],
                run_as: flags[1].then(|| "nobody".to_owned()),
                audit_retention_days: 90,
                sandbox,
                network,
                env_allow: texts_of(&["LANG"]),
                require,
                path: vec!["/usr/bin".into()],
                read_paths: vec!["/srv".into()],
                helpers: vec![("make".to_owned(), texts_of(&["cc", "workspace"]))],
            },
            approval: ApprovalPolicy { mode, timeout: waits.map(Duration::from_millis), whitelist, self_approval: flags[2], quorum, client_decides: flags[3] },
            places: Places {
                workspace_root: workspace.map(PathBuf::from),
                cwd_roots: roots.map(|roots| roots.iter().map(PathBuf::from).collect()),
                start: "/work".into(),
                hidden: Arc::new(["/home/ana/.ssh".into()]),
            },
            tools: ToolPolicies::new(layers),
            sources: texts_of(&["default", "operator file c"]),
            rule_sources: RuleSources {
                allowlist: source("allowlist"), workspace: source("workspace"), cwd_roots: source("roots"),
                timeout: source("timeout"), mode: source("mode"),
            },
        }
    }
}

/// Requests that meet every rule.
fn corpus() -> Vec<CommandRequest> {
    let mut requests = Vec::new();
    for (tool, act) in [
        (
            CommandTool::ExecuteCommand,
            CommandAct::Line("git status | ls -l".into()),
        ),
        (
            CommandTool::ExecuteCommand,
            CommandAct::Line("for i in 1; do ls; done".into()),
        ),
        (CommandTool::ExecuteCommand, CommandAct::Line("ls; rm".into())),
    ] {
        requests.push(CommandRequest {
            tool,
            act,
            ..CommandRequest::of_program("")
        });
    }
    for (file, cwd, seconds, sandbox, network) in [
        ("ls", None, None, None, None),
        ("rm", Some("a"), None, None, None),
        ("make", Some("/elsewhere"), None, None, None),
        ("git", None, Some(600), None, None),
        ("ls", None, Some(5), Some(SandboxMode::DangerFullAccess), None),
        ("ls", None, None, None, Some(Network::Allow)),
        ("unknown", None, None, None, None),
    ] {
        requests.push(CommandRequest {
            cwd: cwd.map(str::to_owned),
            timeout: seconds.map(Duration::from_secs),
            sandbox,
            network,
            ..CommandRequest::of_program(file)
        });
    }
    requests
}

/// All that a decision says.
fn decided(policy: &EffectivePolicy, context: &Context<'_>, request: &CommandRequest) -> (String, Vec<TookPart>) {
    let environment = BTreeMap::new();
    let around = Surroundings {
        programs: &World,
        directories: &World,
        environment: &environment,
    };
    let verdict = decide(policy, context, request, &around);
    let code = match &verdict {
        Verdict::Deny(denial) => Some(denial.refusal.code),
        Verdict::Allow(_) | Verdict::Ask(_) => None,
    };
    let plan = verdict.plan().map(|plan| {
        let place = (&plan.place.cwd.path, &plan.place.root);
        format!(
            "{:?} {:?} {:?} {:?} {:?}",
            place,
            plan.timeout,
            plan.sandbox,
            plan.network,
            plan.program_names()
        )
    });
    let said = format!("{} {code:?} {:?} {plan:?}", verdict.word(), verdict.rule());
    (said, explain::took_part::of_command(policy, context, request, &around))
}

fn ruled(policy: &EffectivePolicy, context: &Context<'_>, tool: &str) -> Ruling {
    policy.tools.ruling(context, &ToolUse::of(tool))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn a_recorded_policy_decides_as_it_did(
        policy in policy(),
        run in option::of(run()),
        is_known in any::<bool>(),
        role in select(&Role::ALL[..]),
    ) {
        let run = run.map(|run| RunContext {
            run_id: is_known.then(|| RunId::trusted("r")),
            ..run
        });
        let text = chain::canonical(&policy.content());
        let recorded: Value = serde_json::from_str(&text).unwrap();
        let again = EffectivePolicy::from_content(&recorded).unwrap();
        prop_assert_eq!(chain::canonical(&again.content()), text);
        prop_assert_eq!(again.snapshot(), policy.snapshot());

        // The record has the caller as the policy completed it.
        let context = policy.tools.context(role, run.as_ref());
        let keys = context.recorded();
        prop_assert_eq!(keys["role"].as_str(), Some(role.as_str()));
        let run = RunContext::from_recorded(&keys);
        let then = again.tools.context(role, Some(&run));
        for request in corpus() {
            prop_assert_eq!(decided(&policy, &context, &request), decided(&again, &then, &request));
        }
        for tool in &policy.tools.layers().tools {
            prop_assert_eq!(ruled(&policy, &context, &tool.name), ruled(&again, &then, &tool.name));
        }
    }
}

#[test]
fn content_that_is_not_whole_makes_no_policy() {
    assert!(EffectivePolicy::from_content(&json!({})).is_err());
    let rule = json!({"rule": "cat, unless moon", "reason": "", "enabled": true, "source": "built-in"});
    assert_eq!(
        read_whitelist_rule(&rule).map(drop),
        Err(ContentError::BuiltInRule("cat, unless moon".to_owned()))
    );
}
