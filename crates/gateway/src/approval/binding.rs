//! What an approval is good for: one digest over the tool, its exact arguments, what they came to on
//! this machine, the caller and the policy. A changed byte in any of them is another act, and another
//! question. The digests are keyed: they are in the record, and what they are made of may hold secrets.

use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Value, json};

use crate::audit::keyed::DigestKey;
use crate::ids::CredentialId;
use crate::policy::allowlist::FoundProgram;
use crate::policy::plan::{ExecRights, Plan, PlannedAct};
use crate::tools::exec::request::CommandRequest;

/// The three digests of an act.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// Over everything; what an approval is found by.
    pub digest: String,
    /// Over the tool, the canonical arguments and what they resolved to.
    pub arguments: String,
    pub policy: String,
}

/// Binds a plan to whoever asks, under the policy that made it.
pub fn bind(key: &DigestKey, request: &CommandRequest, plan: &Plan, caller: &CredentialId, policy: &str) -> Binding {
    let resolved = resolved(key, plan);
    let arguments = key.digest(&json!({
        "tool": request.tool.name(), "arguments": request.digest, "resolved": resolved,
    }));
    let digest = key.digest(&json!({
        "arguments": arguments, "caller": caller.as_str(), "policy": policy,
    }));
    Binding {
        digest,
        arguments,
        policy: policy.to_owned(),
    }
}

/// Binds an act that is no command: the tool, its arguments as they came, and what they resolved to.
pub fn bind_act(
    key: &DigestKey,
    tool: &str,
    arguments: &Value,
    details: &Value,
    caller: &CredentialId,
    policy: &str,
) -> Binding {
    let arguments = key.digest(&json!({"tool": tool, "arguments": arguments, "resolved": details}));
    let digest = key.digest(&json!({
        "arguments": arguments, "caller": caller.as_str(), "policy": policy,
    }));
    Binding {
        digest,
        arguments,
        policy: policy.to_owned(),
    }
}

/// Everything of a plan that could differ between two calls of the same words.
fn resolved(key: &DigestKey, plan: &Plan) -> Value {
    let path = |path: &std::path::Path| hex(path.as_os_str().as_bytes());
    // What lies where commands can write may be another program by the next call.
    let file = |program: &FoundProgram| match &program.version {
        None => json!(path(&program.path)),
        Some(version) => json!([path(&program.path), version]),
    };
    let act = match &plan.act {
        PlannedAct::Process { program, argv } => json!({"program": file(program), "argv": argv}),
        // The words of a line are in the arguments; here is what its names mean.
        PlannedAct::Tree { programs, .. } => {
            let found = programs.iter().map(|program| program.as_ref().map(&file));
            json!({"programs": found.collect::<Vec<_>>()})
        }
        PlannedAct::Shell { bash, line, .. } => json!({"shell": path(&bash.path), "line": line}),
    };
    let env: Vec<_> = plan.env.iter().map(|(name, value)| json!([name, value])).collect();
    let exec = match &plan.exec {
        ExecRights::Any => json!("any"),
        ExecRights::Only { programs, workspace } => {
            json!({"programs": programs.iter().map(|program| path(program)).collect::<Vec<_>>(), "workspace": workspace})
        }
    };
    json!({
        "act": act,
        "cwd": path(&plan.place.cwd.path),
        "root": path(&plan.place.root),
        "env": key.digest(&Value::Array(env)),
        "timeout_ms": plan.timeout.as_millis().to_string(),
        "sandbox": plan.sandbox.as_str(),
        "network": plan.network.as_str(),
        "exec": exec,
    })
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}
