//! What a caller asks of an agent: S1's Job.input, read and checked as S1's schema says.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::lifecycle::words;
use super::state::without_nulls;
use crate::catalog::arguments::Arguments;
use crate::error::{ErrorCode, Refusal};
use crate::limits;
use crate::policy::effective::{Mode, SandboxMode};
use crate::policy::whitelist::{RuleText, Source};

/// S1's Job.input.
#[derive(Clone, PartialEq, Debug)]
pub struct JobInput {
    pub prompt: String,
    pub model: Option<String>,
    pub cwd: Option<String>,
    pub approval: Option<TaskApproval>,
    pub sandbox: Option<SandboxMode>,
    pub timeout_ms: Option<u64>,
}

/// S1's ApprovalPolicy as a task brings it.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskApproval {
    pub mode: Option<Mode>,
    pub whitelist: Vec<TaskRule>,
    /// How long a question may wait; none for ever.
    pub timeout_ms: Option<u64>,
    /// Patterns without more; they are whitelist rules.
    pub auto_approve: Vec<String>,
    form: Form,
}

words! {
    /// How it was written, which is how it is shown.
    Form {
        Word "word",
        Object "object",
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskRule {
    pub pattern: String,
    pub reason: String,
    pub enabled: bool,
}

impl JobInput {
    pub fn of_prompt(prompt: &str) -> Self {
        Self {
            prompt: prompt.to_owned(),
            model: None,
            cwd: None,
            approval: None,
            sandbox: None,
            timeout_ms: None,
        }
    }

    /// Takes S1's fields out of a tool's arguments.
    pub fn take(arguments: &mut Arguments<'_>) -> Self {
        let prompt = arguments.string("prompt");
        if prompt.len() > limits::PROMPT_BYTES_MAX {
            let max = limits::PROMPT_BYTES_MAX;
            arguments.problem(format!("`prompt` must have at most {max} bytes, not {}", prompt.len()));
        }
        let cwd = arguments.optional_string("cwd");
        if cwd.as_ref().is_some_and(|cwd| cwd.len() > limits::DIRECTORY_BYTES_MAX) {
            arguments.problem(format!("`cwd` must have at most {} bytes", limits::DIRECTORY_BYTES_MAX));
        }
        let timeout_ms = arguments.optional_positive("timeout");
        if timeout_ms.is_some_and(|ms| Duration::from_millis(ms) > limits::JOB_TIMEOUT_MAX) {
            let max = limits::JOB_TIMEOUT_MAX.as_millis();
            arguments.problem(format!("`timeout` must be at most {max} milliseconds"));
        }
        Self {
            prompt,
            model: arguments.optional_string("model"),
            cwd,
            approval: TaskApproval::take(arguments),
            sandbox: arguments.optional_word("sandboxPolicy", SandboxMode::WORDS),
            timeout_ms,
        }
    }

    /// What a store kept, which was checked when it came.
    pub fn restored(kept: &Value) -> Result<Self, Refusal> {
        let empty = Map::new();
        let mut arguments = Arguments::new(kept.as_object().unwrap_or(&empty));
        let input = Self::take(&mut arguments);
        arguments.finish()?;
        Ok(input)
    }

    pub fn timeout(&self) -> Duration {
        self.timeout_ms
            .map_or(limits::JOB_TIMEOUT_DEFAULT, Duration::from_millis)
    }

    pub fn to_json(&self) -> Value {
        let mut shown = json!({
            "prompt": self.prompt,
            "model": self.model,
            "cwd": self.cwd,
            "approvalPolicy": self.approval.as_ref().map(TaskApproval::to_json),
            "sandboxPolicy": self.sandbox.map(SandboxMode::as_str),
            "timeout": self.timeout_ms,
        });
        without_nulls(&mut shown);
        shown
    }
}

impl TaskApproval {
    pub fn of_mode(mode: Mode) -> Self {
        Self {
            mode: Some(mode),
            whitelist: Vec::new(),
            timeout_ms: None,
            auto_approve: Vec::new(),
            form: Form::Word,
        }
    }

    /// What a store kept; none where it is none.
    pub fn from_json(kept: &Value) -> Option<Self> {
        let fields = Map::from_iter([("approvalPolicy".to_owned(), kept.clone())]);
        Self::take(&mut Arguments::new(&fields))
    }

    fn take(arguments: &mut Arguments<'_>) -> Option<Self> {
        const NAME: &str = "approvalPolicy";
        match arguments.optional_value(NAME)? {
            Value::Object(fields) => {
                let mut inner = Arguments::new(fields);
                let policy = Self::inside(&mut inner);
                match inner.finish() {
                    Ok(()) => Some(policy),
                    Err(refusal) => {
                        arguments.problem(format!("`{NAME}`: {}", refusal.message));
                        None
                    }
                }
            }
            _ => arguments.optional_word(NAME, Mode::WORDS).map(Self::of_mode),
        }
    }

    fn inside(fields: &mut Arguments<'_>) -> Self {
        let mode = fields.optional_word("mode", Mode::WORDS);
        let timeout_ms = fields.optional_positive("timeout");
        let auto_approve = fields.optional_strings("autoApprovePatterns").unwrap_or_default();
        let mut whitelist = Vec::new();
        match fields.optional_value("whitelist") {
            None => {}
            Some(Value::Array(rules)) => {
                for (index, rule) in rules.iter().enumerate() {
                    match TaskRule::read(rule) {
                        Ok(rule) => whitelist.push(rule),
                        Err(refusal) => fields.problem(format!("`whitelist[{index}]`: {}", refusal.message)),
                    }
                }
            }
            Some(_) => fields.problem("`whitelist` must be an array of rules".to_owned()),
        }
        if whitelist.len() + auto_approve.len() > limits::TASK_RULES_MAX {
            fields.problem(format!(
                "at most {} rules are taken from a task",
                limits::TASK_RULES_MAX
            ));
        }
        let policy = Self {
            mode,
            whitelist,
            timeout_ms,
            auto_approve,
            form: Form::Object,
        };
        for pattern in policy.rules().into_iter().map(|rule| rule.pattern) {
            if let Err(error) = regex::Regex::new(pattern) {
                let why = error.to_string();
                let why = why.lines().last().unwrap_or_default();
                fields.problem(format!("`{pattern}` is no regular expression: {why}"));
            }
        }
        policy
    }

    /// All its rules; `autoApprovePatterns` are rules without a reason of their own.
    pub fn rules(&self) -> Vec<RuleText<'_>> {
        let text = |pattern, reason, enabled| RuleText {
            pattern,
            reason,
            enabled,
            source: Source::Task,
            matches: &[],
            not_matches: &[],
        };
        let listed = self
            .whitelist
            .iter()
            .map(|rule| text(rule.pattern.as_str(), rule.reason.as_str(), rule.enabled));
        let bare = self
            .auto_approve
            .iter()
            .map(|pattern| text(pattern, "the task says so (autoApprovePatterns)", true));
        listed.chain(bare).collect()
    }

    pub fn to_json(&self) -> Value {
        match (self.form, self.mode) {
            (Form::Word, Some(mode)) => json!(mode.as_str()),
            (Form::Word, None) | (Form::Object, _) => {
                let rule =
                    |rule: &TaskRule| json!({"pattern": rule.pattern, "reason": rule.reason, "enabled": rule.enabled});
                let mut shown = json!({
                    "mode": self.mode.map(Mode::as_str),
                    "timeout": self.timeout_ms,
                    "whitelist": self.whitelist.iter().map(rule).collect::<Vec<_>>(),
                    "autoApprovePatterns": self.auto_approve,
                });
                without_nulls(&mut shown);
                shown
            }
        }
    }
}

impl TaskRule {
    fn read(value: &Value) -> Result<Self, Refusal> {
        let Value::Object(fields) = value else {
            return Err(Refusal::new(ErrorCode::InvalidArguments, "a rule must be an object"));
        };
        let mut fields = Arguments::new(fields);
        let rule = Self {
            pattern: fields.string("pattern"),
            reason: fields.optional_string("reason").unwrap_or_default(),
            enabled: fields.optional_flag("enabled").unwrap_or(true),
        };
        fields.finish()?;
        Ok(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &Value) -> Result<JobInput, String> {
        JobInput::restored(value).map_err(|refusal| refusal.message)
    }

    #[test]
    fn what_s1_writes_is_taken_and_shown_again() {
        for input in [
            json!({"prompt": "Fix bug"}),
            json!({"prompt": "p", "model": "gpt-5", "cwd": "/w", "approvalPolicy": "on-failure",
                   "sandboxPolicy": "read-only", "timeout": 1}),
            json!({"prompt": "p", "approvalPolicy": {"mode": "untrusted", "timeout": 500,
                   "whitelist": [{"pattern": "^git status", "reason": "reads", "enabled": false}],
                   "autoApprovePatterns": ["^npm test$"]}}),
        ] {
            assert_eq!(read(&input).unwrap().to_json(), input);
        }
    }

    #[test]
    fn an_hour_where_nothing_is_said() {
        assert_eq!(JobInput::of_prompt("p").timeout(), Duration::from_millis(3_600_000));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_all_of_it_is_told() {
        let problems = read(&json!({
            "prompt": "", "timeout": 0, "approvalPolicy": "sometimes", "sandboxPolicy": 7, "extra": 1,
        }))
        .unwrap_err();
        for told in [
            "`prompt` must not be empty",
            "`timeout` must be a whole number above 0",
            "`approvalPolicy` must be one of",
            "`sandboxPolicy` must be a string",
            "unknown field `extra`",
        ] {
            assert!(problems.contains(told), "{told}: {problems}");
        }
        for bad in [
            json!({}),
            json!({"prompt": 1}),
            json!({"prompt": "p", "timeout": -1}),
            json!({"prompt": "p", "timeout": limits::JOB_TIMEOUT_MAX.as_millis() as u64 + 1}),
            json!({"prompt": "p", "approvalPolicy": {"mode": "x"}}),
            json!({"prompt": "p", "approvalPolicy": {"whitelist": [{"pattern": "("}]}}),
            json!({"prompt": "p", "approvalPolicy": {"autoApprovePatterns": ["("]}}),
            json!({"prompt": "x".repeat(limits::PROMPT_BYTES_MAX + 1)}),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }
}
