//! Which questions become rules, and that a rule lets go what was seen and nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::approval::details;
use crate::audit::redact::{Config, Redactor};
use crate::clock::Timestamp;
use crate::ids::{ApprovalId, CorrelationId, CredentialId};
use crate::policy::allowlist::{Allowlist, FoundProgram, Opened, Programs};
use crate::policy::effective::{
    ApprovalPolicy, CommandPolicy, Mode, Network, Places, RuleSources, SandboxMode, ToolApproval,
};
use crate::policy::merge::{Entry, ToolPolicy};
use crate::policy::places::{Directories, OpenDirectory, OpenFailure};
use crate::policy::quantity::{ByteCount, Millicores};
use crate::policy::tools::{Hand, Layers, MatrixEntry, ToolPolicies};
use crate::policy::whitelist::builtin_rules;
use crate::tools::exec::request;

pub(in crate::policy) struct World;

impl Programs for World {
    fn find(&self, word: &str) -> Option<FoundProgram> {
        let path = match word.strip_prefix("/work/") {
            Some(_) => PathBuf::from(word),
            None if word.contains('/') => return None,
            None => PathBuf::from("/usr/bin").join(word),
        };
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

impl Directories for World {
    fn open(&self, path: &Path) -> Result<OpenDirectory, OpenFailure> {
        let handle = std::fs::File::open("/").map_err(|_| OpenFailure::Refused)?;
        Ok(OpenDirectory {
            path: path.to_owned(),
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

pub(in crate::policy) fn policy() -> EffectivePolicy {
    let source = || "test".to_owned();
    EffectivePolicy {
        command: CommandPolicy {
            allowlist: Allowlist::Any,
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
            path: vec!["/usr/bin".into()],
            read_paths: vec![],
            helpers: vec![("helped".to_owned(), vec!["cc".to_owned()])],
        },
        approval: ApprovalPolicy {
            mode: Mode::Untrusted,
            timeout: None,
            whitelist: builtin_rules(),
            self_approval: false,
            quorum: 1,
            client_decides: false,
        },
        places: Places {
            workspace_root: Some("/work".into()),
            cwd_roots: None,
            start: "/work".into(),
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

fn around<'a>(environment: &'a BTreeMap<String, String>) -> Surroundings<'a> {
    Surroundings {
        programs: &World,
        directories: &World,
        environment,
    }
}

/// The question that a call leads to.
fn question(policy: &EffectivePolicy, tool: CommandTool, arguments: Value) -> ApprovalRequest {
    let request = request::read(tool.clone(), arguments.as_object().unwrap()).unwrap();
    let nothing = BTreeMap::new();
    let context = policy.tools.context(Role::Agent, None);
    let verdict = decide::decide(policy, &context, &request, &around(&nothing));
    let Verdict::Ask(asked) = verdict else {
        panic!("not asked about: {arguments} {verdict:?}");
    };
    let redactor = Redactor::new(Config::default());
    let mut question = ApprovalRequest::new(
        ApprovalId::trusted("a"),
        ApprovalType::ExecCommand,
        CorrelationId::trusted("c"),
        CredentialId::trusted("local"),
        Timestamp::from_millis(0),
    );
    question.tool = tool.name().to_owned();
    question.details = details::of_command(asked.plan(), &asked.rule, &request, &redactor);
    question
}

fn of_line(line: &str) -> ApprovalRequest {
    question(
        &policy(),
        CommandTool::ExecuteCommand,
        serde_json::json!({"command": line}),
    )
}

fn of_argv(file: &str, args: &[&str]) -> ApprovalRequest {
    let arguments = serde_json::json!({"file": file, "args": args});
    question(&policy(), CommandTool::ExecuteProcess, arguments)
}

fn rule(question: &ApprovalRequest) -> Result<Exact, Refusal> {
    let nothing = BTreeMap::new();
    exact(&policy(), question, &around(&nothing))
}

#[test]
fn a_plain_command_becomes_a_rule_for_exactly_itself() {
    for (question, command, pattern) in [
        (of_argv("touch", &["made"]), "touch made", "^touch made$"),
        (of_line("touch   'made'"), "touch made", "^touch made$"),
        (
            of_line("cp a.txt b.txt 2>/dev/null"),
            "cp a.txt b.txt",
            r"^cp a\.txt b\.txt$",
        ),
        (of_line("rm a*.o"), "rm a*.o", r"^rm a\*\.o$"),
        (of_argv("rm", &["*.o"]), "rm '*.o'", r"^rm '\*\.o'$"),
        (
            of_argv("touch", &["it's (1)"]),
            r"touch 'it'\''s (1)'",
            r"^touch 'it'\\''s \(1\)'$",
        ),
        (of_line("git commit -m fix"), "git commit -m fix", "^git commit -m fix$"),
    ] {
        let rule = rule(&question).unwrap();
        assert_eq!((rule.command.as_str(), rule.pattern.as_str()), (command, pattern));
        assert_eq!(rule.not_matches.len(), 2);
    }
}

#[test]
fn a_rule_that_was_made_without_input_lets_none_go() {
    let exact = rule(&of_argv("tee", &["notes.txt"])).unwrap();
    let mut with = policy();
    let text = RuleText {
        pattern: &exact.pattern,
        reason: "",
        enabled: true,
        source: Source::Global,
        matches: &[],
        not_matches: &[],
    };
    with.approval.whitelist.push(WhitelistRule::new(&text).unwrap());
    let nothing = BTreeMap::new();
    let word = |arguments: serde_json::Value| {
        let request = request::read(CommandTool::ExecuteProcess, arguments.as_object().unwrap()).unwrap();
        let context = with.tools.context(Role::Agent, None);
        decide::decide(&with, &context, &request, &around(&nothing)).word()
    };
    assert_eq!(word(serde_json::json!({"file": "tee", "args": ["notes.txt"]})), "allow");
    assert_eq!(
        word(serde_json::json!({"file": "tee", "args": ["notes.txt"], "input": "text"})),
        "ask"
    );
}

#[test]
fn what_a_rule_would_widen_gets_none() {
    let env = serde_json::json!({"file": "touch", "args": ["x"], "env": {"A": "b"}});
    let input = serde_json::json!({"file": "tee", "args": ["x"], "input": "text"});
    let more = serde_json::json!({"file": "touch", "args": ["x"], "network": "allow"});
    let less = serde_json::json!({"file": "touch", "args": ["x"], "sandbox": "read-only"});
    let process = |arguments| question(&policy(), CommandTool::ExecuteProcess, arguments);
    for (question, why) in [
        (of_line("touch $(id)"), "a shell works out parts"),
        (of_line("for f in a b; do touch $f; done"), "a shell works out parts"),
        (of_line("touch a && touch b"), "several commands"),
        (of_line("git status; rm -rf x"), "several commands"),
        (of_line("touch a > b"), "redirection"),
        (of_line("tee x <<E\nany\nE"), "redirection"),
        (process(env), "variables of its own"),
        (process(input), "without any"),
        (process(more), "more than policy gives"),
        (process(less), "what policy gives now"),
        (of_line("git -c alias.x=!id x"), "writes files or runs programs"),
        (of_line("find . -delete"), "writes files or runs programs"),
        (of_argv("python3", &["x.py"]), "stands in files"),
        (of_argv("bash", &["x.sh"]), "stands in files"),
        (of_argv("cargo", &["build"]), "stands in files"),
        (of_argv("make", &[]), "stands in files"),
        (of_argv("helped", &["x"]), "needs its `helpers`"),
        (of_argv("/work/tool", &["x"]), "lies where commands may write"),
        (of_argv("xargs", &["rm"]), "launches other programs"),
        (of_line("rm *.o"), "could become an option"),
        (
            of_line("curl -H 'Authorization: Bearer abcdefghijklmnop' x"),
            "holds a secret",
        ),
    ] {
        let refusal = rule(&question).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::PolicyDenied);
        let begin = "no rule can be made of this: ";
        assert!(
            refusal.message.starts_with(begin) && refusal.message.contains(why),
            "{}: {}",
            detail(&question, "command"),
            refusal.message
        );
    }
}

#[test]
fn a_question_that_the_mode_did_not_ask_gets_no_rule() {
    let mut strict = policy();
    let mut layers = strict.tools.layers().clone();
    layers.matrix.push(MatrixEntry {
        entry: Entry {
            pattern: "execute_process".into(),
            policy: ToolPolicy {
                approval: Some(ToolApproval::Required),
                ..ToolPolicy::default()
            },
            source: "test".into(),
        },
        hand: Hand::Sets,
    });
    strict.tools = ToolPolicies::new(layers);
    let arguments = serde_json::json!({"file": "touch", "args": ["x"]});
    let asked = question(&strict, CommandTool::ExecuteProcess, arguments);
    let nothing = BTreeMap::new();
    let refusal = exact(&strict, &asked, &around(&nothing)).unwrap_err();
    assert!(
        refusal.message.contains("the whitelist does not answer for"),
        "{}",
        refusal.message
    );
    let mut of_many = of_argv("touch", &["x"]);
    of_many.quorum = 2;
    let refusal = rule(&of_many).unwrap_err();
    assert!(refusal.message.contains("2 people must agree"), "{}", refusal.message);
    let mut other = of_argv("touch", &["x"]);
    other.kind = ApprovalType::ToolCall;
    let refusal = rule(&other).unwrap_err();
    assert!(
        refusal.message.contains("rules are for commands"),
        "{}",
        refusal.message
    );
}

#[test]
fn what_is_allowed_already_needs_no_rule() {
    let nothing = BTreeMap::new();
    let asked = of_argv("touch", &["x"]);
    let mut later = policy();
    let text = RuleText {
        pattern: "^touch",
        reason: "",
        enabled: true,
        source: Source::Global,
        matches: &[],
        not_matches: &[],
    };
    later.approval.whitelist.push(WhitelistRule::new(&text).unwrap());
    let refusal = exact(&later, &asked, &around(&nothing)).unwrap_err();
    assert!(
        refusal.message.contains("policy lets it run already"),
        "{}",
        refusal.message
    );
    // A rule that was turned off takes what it covers away from every other.
    let off = RuleText { enabled: false, ..text };
    later.approval.whitelist = vec![WhitelistRule::new(&off).unwrap()];
    let refusal = exact(&later, &asked, &around(&nothing)).unwrap_err();
    assert!(
        refusal.message.contains("would still be asked about"),
        "{}",
        refusal.message
    );
}
