//! Whether the app-server of the installed Codex still knows what we rely on, by the schema that it prints.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::shared::installed::{self, have};

/// Requests of ours: their method, and the fields that we send.
const REQUESTS: &[(&str, &[&str])] = &[
    ("initialize", &["clientInfo", "capabilities"]),
    (
        "thread/start",
        &[
            "cwd",
            "model",
            "approvalPolicy",
            "approvalsReviewer",
            "sandbox",
            "config",
            "baseInstructions",
            "developerInstructions",
        ],
    ),
    (
        "thread/resume",
        &[
            "threadId",
            "cwd",
            "model",
            "approvalPolicy",
            "approvalsReviewer",
            "sandbox",
            "config",
            "baseInstructions",
            "developerInstructions",
        ],
    ),
    ("thread/name/set", &["threadId", "name"]),
    ("thread/unsubscribe", &["threadId"]),
    ("thread/loaded/list", &[]),
    ("thread/read", &["threadId", "includeTurns"]),
    ("thread/backgroundTerminals/list", &["threadId"]),
    ("thread/backgroundTerminals/clean", &["threadId"]),
    ("turn/start", &["threadId", "input", "sandboxPolicy"]),
    ("turn/steer", &["threadId", "expectedTurnId", "input"]),
    ("turn/interrupt", &["threadId", "turnId"]),
];

/// What it says: the method, and the fields that we read.
const NOTIFICATIONS: &[(&str, &[&str])] = &[
    ("turn/started", &["threadId", "turn"]),
    ("turn/completed", &["threadId", "turn"]),
    ("turn/diff/updated", &["threadId", "diff"]),
    ("item/started", &["threadId", "item"]),
    ("item/completed", &["threadId", "item"]),
    ("item/agentMessage/delta", &["threadId", "itemId", "delta"]),
    ("thread/tokenUsage/updated", &["threadId", "tokenUsage"]),
    ("account/rateLimits/updated", &["rateLimits"]),
    ("serverRequest/resolved", &["threadId", "requestId"]),
    ("error", &["error", "willRetry"]),
    ("warning", &["message"]),
];

/// What it asks, and the fields that we read.
const QUESTIONS: &[(&str, &[&str])] = &[
    (
        "item/commandExecution/requestApproval",
        &[
            "threadId",
            "itemId",
            "command",
            "cwd",
            "reason",
            "networkApprovalContext",
            "additionalPermissions",
        ],
    ),
    (
        "item/fileChange/requestApproval",
        &["threadId", "itemId", "reason", "grantRoot"],
    ),
];

/// Every request that it can make. One that is new here is refused by the driver; whether it should be is for
/// a person to decide.
const ASKS: &[&str] = &[
    "account/chatgptAuthTokens/refresh",
    "applyPatchApproval",
    "attestation/generate",
    "currentTime/read",
    "execCommandApproval",
    "item/commandExecution/requestApproval",
    "item/fileChange/requestApproval",
    "item/permissions/requestApproval",
    "item/tool/call",
    "item/tool/requestUserInput",
    "mcpServer/elicitation/request",
];

#[test]
fn the_fields_we_rely_on_are_in_the_schema_of_the_installed_version() {
    if !have("codex") {
        return;
    }
    let (home, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let printed = Command::new(installed::program("codex"))
        .args(["app-server", "generate-json-schema", "--experimental", "--out"])
        .arg(out.path())
        .env("CODEX_HOME", home.path())
        .status()
        .unwrap();
    assert!(printed.success());
    let mut faults = Vec::new();
    for (file, wanted) in [
        ("ClientRequest.json", REQUESTS),
        ("ServerNotification.json", NOTIFICATIONS),
        ("ServerRequest.json", QUESTIONS),
    ] {
        let schema = Schema::read(&out.path().join(file));
        for (method, fields) in wanted {
            match schema.fields(method) {
                None => faults.push(format!("{file}: `{method}` is gone")),
                Some(known) => {
                    let missing = fields.iter().filter(|field| !known.contains(**field));
                    faults.extend(missing.map(|field| format!("{file}: `{method}` has no `{field}`")));
                }
            }
        }
    }
    assert_eq!(faults, Vec::<String>::new());

    let asks = Schema::read(&out.path().join("ServerRequest.json")).methods();
    assert_eq!(asks, ASKS.iter().map(|method| (*method).to_owned()).collect());

    let text = |file: &str| fs::read_to_string(out.path().join(file)).unwrap();
    for (file, words) in [
        (
            "CommandExecutionRequestApprovalResponse.json",
            &["accept", "decline"][..],
        ),
        ("FileChangeRequestApprovalResponse.json", &["accept", "decline"]),
        (
            "v2/TurnStartParams.json",
            &["untrusted", "on-request", "never", "externalSandbox"],
        ),
        (
            "v2/ThreadStartParams.json",
            &["read-only", "workspace-write", "danger-full-access"],
        ),
        (
            "v2/TurnCompletedNotification.json",
            &[
                "completed",
                "interrupted",
                "failed",
                "usageLimitExceeded",
                "codexErrorInfo",
            ],
        ),
        (
            "v2/ThreadTokenUsageUpdatedNotification.json",
            &["inputTokens", "outputTokens", "totalTokens"],
        ),
        (
            "v2/AccountRateLimitsUpdatedNotification.json",
            &["primary", "secondary", "usedPercent", "resetsAt"],
        ),
    ] {
        let found = text(file);
        let missing: Vec<_> = words
            .iter()
            .filter(|word| !found.contains(&format!("\"{word}\"")))
            .collect();
        assert!(missing.is_empty(), "{file} knows no {missing:?}");
    }
}

struct Schema(Value);

impl Schema {
    fn read(path: &Path) -> Schema {
        Schema(serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
    }

    fn variants(&self) -> impl Iterator<Item = (&str, &Value)> {
        let variants = self.0["oneOf"].as_array().into_iter().flatten();
        variants.filter_map(|variant| Some((variant.pointer("/properties/method/enum/0")?.as_str()?, variant)))
    }

    fn methods(&self) -> BTreeSet<String> {
        self.variants().map(|(method, _)| method.to_owned()).collect()
    }

    /// The fields of a method's parameters; none for a method that is not there.
    fn fields(&self, method: &str) -> Option<BTreeSet<String>> {
        let (_, variant) = self.variants().find(|(found, _)| *found == method)?;
        let reference = variant.pointer("/properties/params/$ref").and_then(Value::as_str);
        let definition = reference.and_then(|reference| self.0.pointer(reference.trim_start_matches('#')));
        let properties = definition.and_then(|definition| definition["properties"].as_object());
        Some(properties.into_iter().flatten().map(|(name, _)| name.clone()).collect())
    }
}
