//! A declared tool whose work a program does: the file's argument vector, filled, becomes a command.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::template::Text;
use super::{DeclaredTool, Executor};
use crate::audit::chain;
use crate::error::{ErrorCode, Refusal};
use crate::limits;
use crate::policy::effective::{Network, SandboxMode};
use crate::policy::interpreters;
use crate::service::Answer;
use crate::tools::exec::request::{Act, CommandRequest, CommandTool};
use crate::tools::exec::yaml;

/// What runs. The first element is the program, and is never filled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argv {
    pub program: String,
    pub elements: Vec<Element>,
    pub cwd: Option<Text>,
    pub env: Vec<(String, Text)>,
    pub sandbox: Option<SandboxMode>,
    pub network: Option<Network>,
}

/// One element, or several that are there together or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Element {
    One(Text),
    Together(Vec<Text>),
}

impl Element {
    pub fn texts(&self) -> &[Text] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Together(texts) => texts,
        }
    }
}

/// Whether an argument would become the text that a shell or an interpreter runs: it stands where `-c` or
/// `-e` expects a program. Behind that text it is a parameter, and safe.
pub fn asks_a_shell(program: &str, elements: &[Element]) -> bool {
    if !interpreters::is_interpreter(program) {
        return false;
    }
    let texts: Vec<&Text> = elements.iter().flat_map(Element::texts).collect();
    let runs_text = |option: &str| {
        let letters = option.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        letters.is_some_and(|letters| letters.contains(['c', 'e', 'E', 'r']))
            || matches!(option, "--eval" | "--command" | "--exec")
    };
    // Before the first plain word everything may be an option, or the name of what is run.
    let first_word = texts
        .iter()
        .position(|text| matches!(text, Text::Plain(word) if !word.starts_with('-')))
        .unwrap_or(texts.len());
    texts.iter().enumerate().any(|(index, text)| {
        let behind_option = index > 0 && matches!(texts[index - 1], Text::Plain(option) if runs_text(option));
        text.argument().is_some() && (index < first_word || behind_option)
    })
}

impl DeclaredTool {
    /// The command that a call of this tool is.
    pub(crate) fn command(self: &Arc<Self>, given: &Map<String, Value>) -> Result<CommandRequest, Refusal> {
        let Executor::Argv(argv) = &self.executor else {
            let message = format!("the tool `{}` is no command", self.name());
            return Err(Refusal::new(ErrorCode::InternalError, message));
        };
        let arguments = self.take(given)?;
        let mut args = Vec::new();
        for element in &argv.elements {
            let filled: Option<Vec<String>> = element.texts().iter().map(|text| text.fill(&arguments)).collect();
            args.extend(filled.into_iter().flatten());
        }
        let env: BTreeMap<String, String> = argv
            .env
            .iter()
            .filter_map(|(name, text)| Some((name.clone(), text.fill(&arguments)?)))
            .collect();
        let cwd = argv.cwd.as_ref().and_then(|text| text.fill(&arguments));
        check(&args, &env, cwd.as_deref())?;
        Ok(CommandRequest {
            tool: CommandTool::Declared(self.clone()),
            act: Act::Argv {
                file: argv.program.clone(),
                args,
            },
            cwd,
            timeout: Some(self.timeout),
            env,
            sandbox: argv.sandbox,
            network: argv.network,
            given: given.clone(),
            digest: chain::digest(&json!({"tool": self.name(), "declared": self.digest, "arguments": arguments})),
            ..CommandRequest::of_program("")
        })
    }

    /// The answer in the form that the file promises, where it promises one: what the program wrote, read as
    /// JSON. A program that does not keep the promise has failed.
    pub(crate) fn presented(&self, answer: Answer) -> Answer {
        let Some(promised) = &self.output else { return answer };
        if answer.is_error || answer.structured["status"] != "ok" {
            return answer;
        }
        let facts = &answer.structured;
        let problem = match serde_json::from_str::<Value>(facts["stdout"].as_str().unwrap_or_default()) {
            _ if facts["stdout_truncated"] == true => "its output is longer than what is kept of it".to_owned(),
            Err(error) => format!("its output is not JSON: {error}"),
            Ok(result) => match promised.problems(&result) {
                problems if problems.is_empty() => {
                    return Answer {
                        text: yaml::write(&result),
                        structured: result,
                        ..answer
                    };
                }
                problems => format!("its output does not fit the tool's schema: {}", problems.join("; ")),
            },
        };
        let code = ErrorCode::CommandExecutionFailed;
        let mut structured = answer.structured;
        structured["status"] = json!("failed");
        structured["error_code"] = json!(code.name());
        structured["error_message"] = json!(format!("the program ended well, but {problem}"));
        structured["retryable"] = json!(code.retryable());
        Answer {
            text: yaml::write(&structured),
            structured,
            is_error: true,
            command: answer.command,
            is_repeat: answer.is_repeat,
            room: answer.room,
        }
    }
}

/// What no program can be given.
fn check(args: &[String], env: &BTreeMap<String, String>, cwd: Option<&str>) -> Result<(), Refusal> {
    let invalid = |message: String| Err(Refusal::new(ErrorCode::InvalidArguments, message));
    if args
        .iter()
        .chain(env.values())
        .map(String::as_str)
        .chain(cwd)
        .any(|text| text.contains('\0'))
    {
        return invalid("an argument must not contain a NUL byte".to_owned());
    }
    let longest = args.iter().chain(env.values()).map(String::len).max().unwrap_or(0);
    if longest > limits::ARGUMENT_BYTES_MAX {
        return invalid(format!(
            "one argument is longer than {} bytes",
            limits::ARGUMENT_BYTES_MAX
        ));
    }
    let all: usize = args.iter().chain(env.values()).map(String::len).sum();
    if all > limits::ARGUMENTS_BYTES_MAX {
        return invalid(format!(
            "all arguments together are longer than {} bytes",
            limits::ARGUMENTS_BYTES_MAX
        ));
    }
    match cwd {
        Some("") => invalid("the working directory must not be empty".to_owned()),
        Some(cwd) if cwd.len() > limits::DIRECTORY_BYTES_MAX => invalid(format!(
            "the working directory is longer than {} bytes",
            limits::DIRECTORY_BYTES_MAX
        )),
        Some(_) | None => Ok(()),
    }
}
