//! What a person sees of a command before they decide: the words, the programs they mean, where, under
//! which rule, and what is worth a second look. Everything is redacted; nothing is summarised away, and what is
//! withheld or cut is said to be.

use serde_json::{Map, Value, json};

use super::request::ApprovalRequest;
use super::withheld;
use crate::audit::redact::{Reading, Redactor};
use crate::limits;
use crate::policy::decide::{Rule, spoken};
use crate::policy::effective::{Network, SandboxMode};
use crate::policy::plan::{ExecRights, Plan, PlannedAct};
use crate::tools::exec::request::{Act, CommandRequest};

/// S1's ExecCommandApproval (`command`, `cwd`, `reason`) and what policy knows beyond it.
pub fn of_command(plan: &Plan, rule: &Rule, request: &CommandRequest, redactor: &Redactor) -> Map<String, Value> {
    let clean = |text: &str| redactor.redact_text(text).into_owned();
    // Whatever the call calls a secret, what it acts with and where is seen.
    let target = |text: &str| redactor.redact_target(text).into_owned();
    let programs: Vec<String> = plan.program_names().iter().map(|name| target(name)).collect();
    let mut details = Map::new();
    let mut put = |name: &str, value: Value| {
        details.insert(name.to_owned(), value);
    };
    let command = spoken(&request.act);
    let mut unseen: Vec<String> = withheld::secret("the command", &command, Reading::Line, redactor)
        .into_iter()
        .collect();
    put("command", json!(redactor.redact_line(&command)));
    put("programs", json!(programs));
    put("how", json!(how(plan)));
    put("cwd", json!(target(&plan.place.cwd.path.to_string_lossy())));
    put("reason", json!(rule.reason));
    put("rule", json!(rule.name));
    put("source", json!(rule.source));
    put("sandbox", json!(plan.sandbox.as_str()));
    put("network", json!(plan.network.as_str()));
    put(
        "timeout_ms",
        json!(u64::try_from(plan.timeout.as_millis()).unwrap_or(u64::MAX)),
    );
    if let Some(justification) = &request.justification {
        put("justification", json!(clean(justification)));
    }
    if let Some(input) = &request.input {
        put("input_bytes", json!(input.len()));
        let reading = match &request.act {
            Act::Line(line) => Reading::of_input_to_line(line, input),
            Act::Argv { file, args } => Reading::of_input_to_program(file, args, input),
        };
        let shown = redactor.redact_read(input, reading);
        unseen.extend(withheld::secret("its input", input, reading, redactor));
        unseen.extend(withheld::rest("its input", &shown, limits::INPUT_CHARS_SHOWN));
        put("input", json!(cut(&shown, limits::INPUT_CHARS_SHOWN)));
    }
    if request.is_fed {
        put("input_streamed", json!(true));
        unseen.push("it reads what is piped into it while it runs, and nobody sees that before".to_owned());
    }
    if !request.env.is_empty() {
        let variables = request.variables();
        let mut env = Map::new();
        let names = redactor.redact_names(request.env.keys().map(String::as_str));
        for ((name, value), shown_name) in request.env.iter().zip(names) {
            let (what, shown) = (
                format!("`{shown_name}`"),
                redactor.redact_variable(name, value, &variables),
            );
            let (note, chars_max) = match variables.may_run(name, value) {
                true => (
                    withheld::secret(&what, value, Reading::Anything, redactor),
                    limits::INPUT_CHARS_SHOWN,
                ),
                false => (withheld::named(&what, value, &shown), limits::VARIABLE_CHARS_SHOWN),
            };
            unseen.extend(note);
            unseen.extend(withheld::rest(&what, &shown, chars_max));
            env.insert(shown_name, json!(cut(&shown, chars_max)));
        }
        put("env", Value::Object(env));
    }
    // What nobody sees comes first: it is what hints cannot be read from.
    unseen.extend(risks(plan, request));
    put("risks", json!(unseen));
    details
}

impl ApprovalRequest {
    /// Why somebody is asked, in the words of policy. Never the agent's.
    pub fn because(&self) -> Option<&str> {
        self.word("rule_reason").or_else(|| self.word("reason"))
    }

    /// What the agent says for itself.
    pub fn agents_words(&self) -> Option<&str> {
        let own = || self.word("reason").filter(|own| Some(*own) != self.word("rule_reason"));
        let asked_by_itself = self.details.contains_key("rule_reason");
        self.word("justification").or_else(|| own().filter(|_| asked_by_itself))
    }

    fn word(&self, name: &str) -> Option<&str> {
        let word = self.details.get(name).and_then(Value::as_str);
        word.filter(|word| !word.is_empty())
    }
}

fn how(plan: &Plan) -> &'static str {
    match plan.act {
        PlannedAct::Process { .. } => "process",
        PlannedAct::Tree { .. } => "line",
        PlannedAct::Shell { .. } => "shell",
    }
}

/// What is worth a second look. Hints, not a judgement: an empty list promises nothing.
fn risks(plan: &Plan, request: &CommandRequest) -> Vec<String> {
    let mut risks = Vec::new();
    match plan.sandbox {
        SandboxMode::DangerFullAccess => risks.push("runs without confinement".to_owned()),
        SandboxMode::WorkspaceWrite => risks.push("may change files below the workspace".to_owned()),
        SandboxMode::ReadOnly => {}
    }
    match plan.network {
        Network::Allow => risks.push("may use the network".to_owned()),
        Network::Deny => {}
    }
    match (&plan.act, &plan.exec) {
        (PlannedAct::Shell { .. }, _) => risks.push("a shell works out parts of it while it runs".to_owned()),
        (PlannedAct::Process { .. } | PlannedAct::Tree { .. }, ExecRights::Any) => {
            risks.push("may start any program".to_owned());
        }
        (PlannedAct::Process { .. } | PlannedAct::Tree { .. }, ExecRights::Only { .. }) => {}
    }
    for name in plan.program_names() {
        let base = name.rsplit('/').next().unwrap_or_default();
        if let Some((_, hint)) = NOTED.iter().find(|(noted, _)| *noted == base) {
            let hint = format!("`{base}` {hint}");
            if !risks.contains(&hint) {
                risks.push(hint);
            }
        }
    }
    if !request.env.is_empty() {
        risks.push("sets variables of its own".to_owned());
    }
    risks
}

/// Programs whose name alone says something.
const NOTED: [(&str, &str); 18] = [
    ("rm", "deletes"),
    ("shred", "deletes"),
    ("dd", "writes raw data"),
    ("mv", "may overwrite"),
    ("chmod", "changes permissions"),
    ("chown", "changes owners"),
    ("sh", "runs any text it is given"),
    ("bash", "runs any text it is given"),
    ("dash", "runs any text it is given"),
    ("zsh", "runs any text it is given"),
    ("python", "runs any text it is given"),
    ("python3", "runs any text it is given"),
    ("perl", "runs any text it is given"),
    ("node", "runs any text it is given"),
    ("curl", "talks to other machines"),
    ("wget", "talks to other machines"),
    ("ssh", "talks to other machines"),
    ("sudo", "changes who runs it"),
];

fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
