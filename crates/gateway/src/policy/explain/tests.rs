//! Which rule an explanation names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::*;
use crate::policy::places::{Directories, OpenDirectory, OpenFailure};
use crate::policy::standing::tests::{World, policy};

/// A machine without some directories.
struct Without(&'static str);

impl Directories for Without {
    fn open(&self, path: &Path) -> Result<OpenDirectory, OpenFailure> {
        match path == Path::new(self.0) {
            true => Err(OpenFailure::Missing),
            false => World.open(path),
        }
    }
}

fn explained(policy: &EffectivePolicy, directories: &dyn Directories, arguments: Value) -> Explained {
    let environment = BTreeMap::new();
    let around = Surroundings {
        programs: &World,
        directories,
        environment: &environment,
    };
    let Value::Object(arguments) = arguments else {
        panic!("arguments are an object")
    };
    let call = Supposed {
        tool: "execute_command".to_owned(),
        arguments,
        role: Role::Agent,
        run: None,
    };
    explain(policy, &call, &around)
}

#[test]
fn whoever_refuses_a_place_a_time_or_a_variable_is_named() {
    let mut policy = policy();
    policy.places.hidden = vec![PathBuf::from("/work/.ssh")];
    policy.places.cwd_roots = Some(vec![PathBuf::from("/work"), PathBuf::from("/gone")]);
    policy.rule_sources.workspace = "who set the workspace".to_owned();
    policy.rule_sources.cwd_roots = "who set the roots".to_owned();
    policy.rule_sources.timeout = "who set the timeout".to_owned();
    let check = |missing: &'static str, arguments: Value, expected: (&str, &str)| {
        let explained = explained(&policy, &Without(missing), arguments);
        let rule = &explained.rule;
        assert_eq!((rule.name.as_str(), rule.source.as_str()), expected, "{rule:?}");
        let last = explained.took_part.last().expect("the rule took part");
        assert_eq!((last.rule.as_str(), last.effect.as_str()), (expected.0, "deny"));
    };
    check(
        "",
        json!({"command": "ls", "cwd": "/else"}),
        ("allowed working directories", "who set the roots"),
    );
    check(
        "/gone",
        json!({"command": "ls", "cwd": "a"}),
        ("allowed working directories", "who set the roots"),
    );
    check(
        "",
        json!({"command": "ls", "cwd": "/gone"}),
        ("workspace", "who set the workspace"),
    );
    check(
        "/work",
        json!({"command": "ls"}),
        ("workspace", "who set the workspace"),
    );
    check(
        "/work/a",
        json!({"command": "ls", "cwd": "a"}),
        ("workspace", "who set the workspace"),
    );
    check(
        "",
        json!({"command": "ls", "cwd": ".ssh"}),
        ("hidden places", "built-in"),
    );
    check(
        "",
        json!({"command": "ls", "timeout_ms": 11_000}),
        ("timeout_seconds_max", "who set the timeout"),
    );
    check(
        "",
        json!({"command": "ls", "env": {"PATH": "."}}),
        ("guarded variables", "built-in"),
    );
}
