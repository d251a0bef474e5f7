//! What a caller asks of an agent: S1's Job.input, read and checked as S1's schema says.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::driver::Input;
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
    /// What a message that began the job showed besides, by its addresses. S1's tasks have none.
    pub images: Vec<String>,
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
            images: Vec::new(),
            model: None,
            cwd: None,
            approval: None,
            sandbox: None,
            timeout_ms: None,
        }
    }

    /// Takes S1's fields out of a tool's arguments.
    pub fn take(arguments: &mut Arguments<'_>) -> Self {
        let prompt = arguments.words("prompt");
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
            images: Vec::new(),
            model: arguments.optional_string("model"),
            cwd,
            approval: TaskApproval::take(arguments),
            sandbox: arguments.optional_word("sandboxPolicy", SandboxMode::WORDS),
            timeout_ms,
        }
    }

    /// What a store kept. It was checked when it came, by the bounds of that day, and is not checked again: one job that
    /// could not be read would keep all others from being read with it.
    pub fn restored(kept: &Value) -> Self {
        let text = |name: &str| kept[name].as_str().map(str::to_owned);
        let images = kept["images"].as_array().into_iter().flatten();
        Self {
            prompt: text("prompt").unwrap_or_default(),
            images: images.filter_map(Value::as_str).map(str::to_owned).collect(),
            model: text("model"),
            cwd: text("cwd"),
            approval: TaskApproval::from_json(&kept["approvalPolicy"]),
            sandbox: kept["sandboxPolicy"].as_str().and_then(SandboxMode::parse),
            timeout_ms: kept["timeout"].as_u64(),
        }
    }

    /// The same work as a message asks for it.
    #[must_use]
    pub fn asking(&self, message: &[Input]) -> Self {
        let (mut texts, mut images) = (Vec::new(), Vec::new());
        for part in message {
            match part {
                Input::Text(text) => texts.push(text.as_str()),
                Input::Image { url } => images.push(url.clone()),
            }
        }
        let prompt = match texts.is_empty() {
            true => "See the image.".to_owned(),
            false => texts.join("\n"),
        };
        Self {
            prompt,
            images,
            ..self.clone()
        }
    }

    /// What an agent is told first.
    pub fn message(&self) -> Vec<Input> {
        let images = self.images.iter().map(|url| Input::Image { url: url.clone() });
        [Input::Text(self.prompt.clone())].into_iter().chain(images).collect()
    }

    pub fn timeout(&self) -> Duration {
        self.timeout_ms
            .map_or(limits::JOB_TIMEOUT_DEFAULT, Duration::from_millis)
    }

    pub fn to_json(&self) -> Value {
        let mut shown = json!({
            "prompt": self.prompt,
            "images": Some(&self.images).filter(|images| !images.is_empty()),
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
        let mut arguments = Arguments::new(value.as_object().unwrap());
        let input = JobInput::take(&mut arguments);
        arguments.finish().map_err(|refusal| refusal.message)?;
        Ok(input)
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
            let taken = read(&input).unwrap();
            assert_eq!(taken.to_json(), input);
            assert_eq!(JobInput::restored(&input), taken);
        }
    }

    #[test]
    fn what_was_kept_is_read_also_where_it_would_not_be_taken_today() {
        for prompt in ["", "a\0b", &"x".repeat(limits::PROMPT_BYTES_MAX + 1)] {
            let kept = json!({"prompt": prompt, "timeout": u64::MAX, "of a newer program": 1});
            assert!(read(&kept).is_err());
            let restored = JobInput::restored(&kept);
            assert_eq!(
                (restored.prompt.as_str(), restored.timeout_ms),
                (prompt, Some(u64::MAX))
            );
        }
        assert_eq!(JobInput::restored(&Value::Null), JobInput::of_prompt(""));
    }

    #[test]
    fn a_message_that_begins_a_job_keeps_its_images_and_the_rest_of_the_task() {
        let (text, image) = (
            |text: &str| Input::Text(text.to_owned()),
            |url: &str| Input::Image { url: url.to_owned() },
        );
        let mut task = JobInput::of_prompt("before");
        task.model = Some("gpt-5".to_owned());
        let asked = task.asking(&[text("look"), image("data:a"), text("again")]);
        assert_eq!(asked.message(), [text("look\nagain"), image("data:a")]);
        assert_eq!(asked.model.as_deref(), Some("gpt-5"));
        assert_eq!(JobInput::restored(&asked.to_json()), asked);
        assert_eq!(asked.asking(&[text("now")]).message(), [text("now")]);
        assert_eq!(
            task.asking(&[image("u")]).message(),
            [text("See the image."), image("u")]
        );
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
            json!({"prompt": " \t\n"}),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }
}
