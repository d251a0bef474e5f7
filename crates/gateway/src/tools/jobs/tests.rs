//! Which tools are offered, and with which fields.

use super::*;
use crate::policy::matrix;

fn offered(codex: bool) -> Offered {
    Offered {
        names: vec!["codex".to_owned(), "claude".to_owned()],
        codex: codex.then(|| "codex".to_owned()),
    }
}

#[test]
fn no_tool_is_offered_that_nobody_could_do() {
    let nobody = Offered {
        names: Vec::new(),
        codex: None,
    };
    assert!(schema::definitions(&nobody).is_empty());
    let names =
        |offered: &Offered| -> Vec<_> { schema::definitions(offered).into_iter().map(|tool| tool.name).collect() };
    let rest = [
        "start-task",
        "send-message",
        "interrupt-task",
        "job-status",
        "list-jobs",
        "job-logs",
    ];
    assert_eq!(names(&offered(false)), rest);
    assert_eq!(names(&offered(true))[..3], ["start-codex-task", "codex", "codex-reply"]);
}

#[test]
fn policy_knows_every_tool_of_jobs() {
    let known = matrix::tools();
    for tool in schema::definitions(&offered(true)) {
        assert!(known.iter().any(|known| known.name == tool.name), "{}", tool.name);
    }
}

#[test]
fn the_inputs_are_those_of_s1() {
    let tools = schema::definitions(&offered(true));
    let fields = |name: &str| -> Vec<String> {
        let tool = tools.iter().find(|tool| tool.name == name).unwrap();
        tool.input_schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    for (tool, expected) in [
        (
            "start-codex-task",
            vec!["prompt", "model", "cwd", "approvalPolicy", "sandboxPolicy"],
        ),
        ("send-message", vec!["conversationId", "message", "items"]),
        ("interrupt-task", vec!["jobId"]),
        ("job-status", vec!["jobId", "wait_ms"]),
        ("codex", vec!["prompt", "cwd", "model", "sandbox", "approval-policy"]),
        ("codex-reply", vec!["threadId", "conversationId", "prompt"]),
    ] {
        for field in expected {
            assert!(fields(tool).iter().any(|name| name == field), "{tool}: {field}");
        }
    }
}
