//! Any text: reading it and holding it against a small allowlist must come to an end without a panic,
//! and what runs without a shell must start listed programs only.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use countersign_gateway::policy::allowlist::{Allowlist, FoundProgram, Opened, Programs, check_line};
use countersign_gateway::policy::line::{Limits, Shape, read};
use countersign_gateway::policy::whitelist::{
    Asked, Candidate, Environment, Input, WhitelistRule, builtin_rules, covers,
};
use libfuzzer_sys::fuzz_target;

const LISTED: [&str; 5] = ["ls", "git", "find", "env", "xargs"];
const FREE: [&str; 8] = ["cd", ":", "true", "false", "test", "[", "printf", "command"];

static LIST: LazyLock<Allowlist> = LazyLock::new(|| Allowlist::from_entries(&LISTED).expect("the list is valid"));
static RULES: LazyLock<Vec<WhitelistRule>> = LazyLock::new(builtin_rules);

struct Machine;

impl Programs for Machine {
    fn find(&self, word: &str) -> Option<FoundProgram> {
        let path = PathBuf::from("/usr/bin").join(word);
        (path.parent()?.to_str() == Some("/usr/bin")).then(|| FoundProgram {
            version: None,
            path: path.clone(),
            requested: path,
            on_trusted_path: true,
            interpreter_chain: Vec::new(),
            is_script: false,
            opened: Opened::default(),
        })
    }
}

fuzz_target!(
    init: {
        // The parser's own panics are caught where it is called; the fuzzer still sees all others.
        std::panic::set_hook(Box::new(|_| {}));
    },
    |text: &str| {
        let Ok(line) = read(text, Limits::STANDARD) else {
            return;
        };
        let candidate = Candidate {
            command: Asked::Line(&line),
            environment: Environment::Built,
            input: Input::Absent,
        };
        let covered = covers(&RULES, candidate);
        if let (Ok(uses), Shape::Plain(tree)) = (check_line(&line, &LIST, &Machine), &line.shape) {
            for command in tree.commands() {
                let name = command.name.rsplit('/').next().unwrap_or_default();
                assert!(LISTED.contains(&name) || FREE.contains(&name), "{name}");
            }
            assert!(uses.iter().all(|found| !found.word.is_empty()));
        }
        assert!(covered.is_none_or(|rules| !rules.is_empty()));
    }
);
