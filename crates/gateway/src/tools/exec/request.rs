//! What a caller asks of the command tools, read from the tool's arguments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::audit::chain;
use crate::audit::redact::Variables;
use crate::catalog::arguments::Arguments;
use crate::clock::Timestamp;
use crate::error::{ErrorCode, Refusal, brief};
use crate::ids::RequestId;
use crate::limits;
use crate::policy::decide::spoken;
use crate::policy::effective::{Network, SandboxMode};
use crate::service::Answer;
use crate::tools::declared::DeclaredTool;

/// Which of the tools was called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandTool {
    ExecuteCommand,
    ExecuteProcess,
    RunCommand,
    /// One that a file declares.
    Declared(Arc<DeclaredTool>),
}

impl CommandTool {
    /// Those that are always there.
    pub const ALL: [Self; 3] = [Self::ExecuteCommand, Self::ExecuteProcess, Self::RunCommand];

    pub fn name(&self) -> &str {
        match self {
            Self::ExecuteCommand => "execute_command",
            Self::ExecuteProcess => "execute_process",
            Self::RunCommand => "run_command",
            Self::Declared(tool) => tool.name(),
        }
    }

    /// The answer as the tool promises it.
    pub(crate) fn presented(&self, answer: Answer) -> Answer {
        match self {
            Self::Declared(tool) => tool.presented(answer),
            Self::ExecuteCommand | Self::ExecuteProcess | Self::RunCommand => answer,
        }
    }
}

/// What to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// A shell line.
    Line(String),
    /// A program with its arguments, never a shell.
    Argv { file: String, args: Vec<String> },
}

impl Act {
    /// The words a reader of the record would recognise.
    pub fn command(&self) -> &str {
        match self {
            Self::Line(line) => line,
            Self::Argv { file, .. } => file,
        }
    }
}

/// S0's CommandExecutionRequest, however it was asked.
#[derive(Clone, PartialEq, Debug)]
pub struct CommandRequest {
    pub tool: CommandTool,
    pub act: Act,
    pub cwd: Option<String>,
    pub timeout: Option<Duration>,
    pub input: Option<String>,
    /// It reads what its caller passes on while it runs, which is no part of the call.
    pub is_fed: bool,
    pub env: BTreeMap<String, String>,
    pub request_id: Option<RequestId>,
    pub justification: Option<String>,
    pub sandbox: Option<SandboxMode>,
    pub network: Option<Network>,
    /// When the caller says it asked.
    pub requested_at: Option<Timestamp>,
    /// A claim; the credential is the actor.
    pub caller_id: Option<String>,
    /// What a declared tool was called with; what it became stands in `act`.
    pub given: Map<String, Value>,
    /// Digest of the content: tool and arguments, less the id and the time of asking. Without a key: it is kept where
    /// nothing of the content is hidden, and nowhere else.
    pub digest: String,
}

impl CommandRequest {
    /// A program without arguments, asked for by nobody: for questions about policy.
    pub fn of_program(file: &str) -> Self {
        Self {
            tool: CommandTool::ExecuteProcess,
            act: Act::Argv {
                file: file.to_owned(),
                args: Vec::new(),
            },
            cwd: None,
            timeout: None,
            input: None,
            is_fed: false,
            env: BTreeMap::new(),
            request_id: None,
            justification: None,
            sandbox: None,
            network: None,
            requested_at: None,
            caller_id: None,
            given: Map::new(),
            digest: String::new(),
        }
    }

    /// What it makes of its variables. Of a declared tool the operator wrote what it runs, and what it may show.
    pub fn variables(&self) -> Variables {
        let variables = self.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        match &self.tool {
            CommandTool::Declared(_) => Variables::default(),
            CommandTool::ExecuteCommand | CommandTool::ExecuteProcess | CommandTool::RunCommand => {
                Variables::of_call(&spoken(&self.act), self.input.as_deref(), variables)
            }
        }
    }
}

/// What a call to `command_status` asks.
#[derive(Clone, PartialEq, Debug)]
pub struct StatusRequest {
    pub request_id: RequestId,
    pub wait: Duration,
    pub stream: Stream,
    pub page: Option<PageRequest>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRequest {
    pub offset: u64,
    pub limit: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Reads the arguments of one of the command tools.
pub fn read(tool: CommandTool, fields: &Map<String, Value>) -> Result<CommandRequest, Refusal> {
    if let CommandTool::Declared(declared) = &tool {
        return declared.command(fields);
    }
    let mut arguments = Arguments::new(fields);
    let a = &mut arguments;
    let act = match tool {
        CommandTool::ExecuteCommand => Act::Line(line(a)),
        CommandTool::ExecuteProcess | CommandTool::Declared(_) => Act::Argv {
            file: a.string("file"),
            args: a.strings("args"),
        },
        CommandTool::RunCommand => Act::Argv {
            file: a.string("command"),
            args: a.optional_strings("args").unwrap_or_default(),
        },
    };
    check_size(a, &act);
    let request_id = request_id(a);
    let mut request = CommandRequest {
        digest: digest(&tool, fields),
        tool: tool.clone(),
        act,
        request_id,
        ..CommandRequest::of_program("")
    };
    match tool {
        CommandTool::RunCommand => {
            request.cwd = Some(a.string("working_directory"));
            request.timeout = a.optional_time("requested_timeout_seconds").map(Duration::from_secs);
            request.requested_at = requested_at(a);
            request.caller_id = a.optional_string("caller_id");
        }
        CommandTool::ExecuteCommand | CommandTool::ExecuteProcess | CommandTool::Declared(_) => {
            request.cwd = a.optional_string("cwd");
            request.timeout = a.optional_time("timeout_ms").map(Duration::from_millis);
            request.input = input(a);
            request.env = a.optional_string_map("env");
            check_env(a, &request.env);
            request.justification = justification(a);
            request.sandbox = a.optional_word("sandbox", SandboxMode::WORDS);
            request.network = a.optional_word("network", Network::WORDS);
        }
    }
    if request.cwd.as_deref() == Some("") && tool != CommandTool::RunCommand {
        a.problem("`cwd` must not be empty; leave it out for the default".to_owned());
    }
    if request
        .cwd
        .as_ref()
        .is_some_and(|cwd| cwd.len() > limits::DIRECTORY_BYTES_MAX)
    {
        a.problem(format!(
            "the working directory is longer than {} bytes",
            limits::DIRECTORY_BYTES_MAX
        ));
    }
    if request
        .caller_id
        .as_ref()
        .is_some_and(|caller| caller.chars().count() > limits::CALLER_CHARS_MAX)
    {
        a.problem(format!(
            "`caller_id` is longer than {} characters",
            limits::CALLER_CHARS_MAX
        ));
    }
    arguments.finish()?;
    Ok(request)
}

/// The id that a caller chose, where it is one, whatever else is wrong with the arguments.
pub fn chosen_id(fields: &Map<String, Value>) -> Option<RequestId> {
    RequestId::parse(fields.get("request_id")?.as_str()?).ok()
}

/// Reads the arguments of `command_status`.
pub fn read_status(fields: &Map<String, Value>) -> Result<StatusRequest, Refusal> {
    let mut arguments = Arguments::new(fields);
    let a = &mut arguments;
    let request_id = a.string("request_id");
    let wait = Duration::from_millis(a.optional_natural("wait_ms").unwrap_or(0)).min(limits::STATUS_WAIT_MAX);
    let stream = a.optional_word("stream", &[("stdout", Stream::Stdout), ("stderr", Stream::Stderr)]);
    let offset = a.optional_natural("offset");
    let limit = a.optional_positive("limit");
    arguments.finish()?;
    let page = (offset.is_some() || limit.is_some() || stream.is_some()).then(|| PageRequest {
        offset: offset.unwrap_or(0),
        limit: limit
            .unwrap_or(limits::OUTPUT_PAGE_BYTES_MAX)
            .min(limits::OUTPUT_PAGE_BYTES_MAX),
    });
    Ok(StatusRequest {
        request_id: known_id(&request_id)?,
        wait,
        stream: stream.unwrap_or(Stream::Stdout),
        page,
    })
}

/// Reads the arguments of `command_cancel`.
pub fn read_cancel(fields: &Map<String, Value>) -> Result<RequestId, Refusal> {
    let mut arguments = Arguments::new(fields);
    let request_id = arguments.string("request_id");
    arguments.finish()?;
    known_id(&request_id)
}

fn known_id(text: &str) -> Result<RequestId, Refusal> {
    RequestId::parse(text).map_err(|error| Refusal::new(ErrorCode::InvalidArguments, error.to_string()))
}

fn line(a: &mut Arguments<'_>) -> String {
    let line = a.string("command");
    if !line.is_empty() && line.trim().is_empty() {
        a.problem("`command` must not be empty".to_owned());
    }
    if line.len() > limits::LINE_BYTES_MAX {
        a.problem(format!("`command` is longer than {} bytes", limits::LINE_BYTES_MAX));
    }
    line
}

fn check_size(a: &mut Arguments<'_>, act: &Act) {
    let Act::Argv { file, args } = act else { return };
    if args.len() > limits::ARGUMENTS_MAX {
        a.problem(format!(
            "`args` has {} entries, more than {}",
            args.len(),
            limits::ARGUMENTS_MAX
        ));
    }
    if file.len() > limits::ARGUMENT_BYTES_MAX || args.iter().any(|arg| arg.len() > limits::ARGUMENT_BYTES_MAX) {
        a.problem(format!(
            "one argument is longer than {} bytes; pass long data as `input`",
            limits::ARGUMENT_BYTES_MAX
        ));
    }
    let all: usize = args.iter().map(String::len).sum();
    if all > limits::ARGUMENTS_BYTES_MAX {
        let max = limits::ARGUMENTS_BYTES_MAX;
        a.problem(format!(
            "all arguments together are longer than {max} bytes; pass long data as `input`"
        ));
    }
}

fn check_env(a: &mut Arguments<'_>, env: &BTreeMap<String, String>) {
    if env.len() > limits::ENVIRONMENT_MAX {
        a.problem(format!(
            "`env` has {} variables, more than {}",
            env.len(),
            limits::ENVIRONMENT_MAX
        ));
    }
    for name in env.keys() {
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts_well || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            a.problem(format!("`env` names `{name}`, which is not a variable name"));
        }
    }
    // The kernel takes a variable as one text, `NAME=value`.
    let too_long = |(name, value): &(&String, &String)| name.len() + 1 + value.len() > limits::ARGUMENT_BYTES_MAX;
    if let Some((name, _)) = env.iter().find(too_long) {
        a.problem(format!(
            "`env` gives `{}` a value that is too long; name and value have {} bytes together; pass long data as `input`",
            brief(name),
            limits::ARGUMENT_BYTES_MAX - 1
        ));
    }
    let all: usize = env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    if all > limits::ARGUMENTS_BYTES_MAX {
        a.problem(format!("`env` is longer than {} bytes", limits::ARGUMENTS_BYTES_MAX));
    }
}

fn input(a: &mut Arguments<'_>) -> Option<String> {
    let input = a.optional_text("input")?;
    if input.len() > limits::INPUT_BYTES_MAX {
        a.problem(format!("`input` is longer than {} bytes", limits::INPUT_BYTES_MAX));
    }
    Some(input)
}

fn justification(a: &mut Arguments<'_>) -> Option<String> {
    let text = a.optional_string("justification")?;
    if text.chars().count() > limits::JUSTIFICATION_CHARS_MAX {
        a.problem(format!(
            "`justification` is longer than {} characters",
            limits::JUSTIFICATION_CHARS_MAX
        ));
    }
    Some(text)
}

fn request_id(a: &mut Arguments<'_>) -> Option<RequestId> {
    let text = a.optional_string("request_id")?;
    match RequestId::parse(&text) {
        Ok(id) => Some(id),
        Err(error) => {
            a.problem(error.to_string());
            None
        }
    }
}

fn requested_at(a: &mut Arguments<'_>) -> Option<Timestamp> {
    let text = a.optional_string("requested_at")?;
    match Timestamp::parse(&text) {
        Ok(moment) => Some(moment),
        Err(error) => {
            a.problem(format!("`requested_at`: {error}"));
            None
        }
    }
}

fn digest(tool: &CommandTool, fields: &Map<String, Value>) -> String {
    let mut content = fields.clone();
    content.remove("request_id");
    content.remove("requested_at");
    content.retain(|_, value| !value.is_null());
    chain::digest(&json!({"tool": tool.name(), "arguments": content}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    fn problem(tool: CommandTool, value: Value) -> String {
        let refusal = read(tool, &fields(value)).expect_err("refused");
        assert_eq!(refusal.code, ErrorCode::InvalidArguments);
        refusal.message
    }

    #[test]
    fn all_three_tools_become_one_request() {
        let line = read(
            CommandTool::ExecuteCommand,
            &fields(json!({"command": "ls -l", "timeout_ms": 1500})),
        )
        .unwrap();
        assert_eq!(line.act, Act::Line("ls -l".into()));
        assert_eq!(line.timeout, Some(Duration::from_millis(1500)));
        let argv = read(
            CommandTool::ExecuteProcess,
            &fields(json!({"file": "ls", "args": ["-l"]})),
        )
        .unwrap();
        let run = json!({"command": "ls", "args": ["-l"], "working_directory": "/w", "requested_timeout_seconds": 2});
        let run = read(CommandTool::RunCommand, &fields(run)).unwrap();
        assert_eq!(argv.act, run.act);
        assert_eq!(
            (run.cwd.as_deref(), run.timeout),
            (Some("/w"), Some(Duration::from_secs(2)))
        );
    }

    #[test]
    fn bad_requests_are_refused_with_the_reason() {
        use CommandTool::{ExecuteCommand, ExecuteProcess, RunCommand};
        let cases = [
            (
                ExecuteCommand,
                json!({"command": " \t\n"}),
                "`command` must not be empty",
            ),
            (
                ExecuteCommand,
                json!({"command": "x".repeat(200_000)}),
                "`command` is longer than 131072 bytes",
            ),
            (
                ExecuteCommand,
                json!({"command": "ls", "cwd": ""}),
                "`cwd` must not be empty; leave it out for the default",
            ),
            (
                ExecuteCommand,
                json!({"command": "ls", "env": {"A=B": "x"}}),
                "`env` names `A=B`, which is not a variable name",
            ),
            (
                ExecuteProcess,
                json!({"file": "ls", "args": [], "env": {"A": "x".repeat(200_000)}}),
                "`env` gives `A` a value that is too long; name and value have 131070 bytes together; pass long data as `input`",
            ),
            (
                ExecuteCommand,
                json!({"command": "ls", "network": "maybe"}),
                "`network` must be one of `deny`, `allow`, not `maybe`",
            ),
            (
                ExecuteProcess,
                json!({"file": "ls"}),
                "`args` is missing; give `[]` for none",
            ),
            (RunCommand, json!({"command": "ls"}), "`working_directory` is missing"),
            (
                RunCommand,
                json!({"command": "ls", "working_directory": ".", "requested_at": "noon"}),
                "`requested_at`: `noon` is not an RFC 3339 time such as `2026-11-15T10:00:00Z`",
            ),
            (
                RunCommand,
                json!({"command": "ls", "working_directory": ".", "requested_at": "2026-01-01T00:00:00+25:00"}),
                "`requested_at`: `2026-01-01T00:00:00+25:00` is not an RFC 3339 time such as `2026-11-15T10:00:00Z`",
            ),
        ];
        for (tool, value, expected) in cases {
            assert_eq!(problem(tool, value), expected);
        }
    }

    #[test]
    fn a_variable_may_be_as_long_as_the_kernel_takes_it() {
        for (bytes, fits) in [(131_070 - 4, true), (131_071 - 4, false)] {
            let call = json!({"command": "ls", "env": {"LONG": "x".repeat(bytes)}});
            assert_eq!(
                read(CommandTool::ExecuteCommand, &fields(call)).is_ok(),
                fits,
                "{bytes}"
            );
        }
    }

    #[test]
    fn the_digest_covers_the_content_but_not_the_id() {
        let of = |value| read(CommandTool::ExecuteCommand, &fields(value)).unwrap().digest;
        let plain = of(json!({"command": "ls"}));
        assert_eq!(plain, of(json!({"command": "ls", "request_id": "a", "cwd": null})));
        assert_ne!(plain, of(json!({"command": "ls "})));
        assert_ne!(plain, of(json!({"command": "ls", "cwd": "/"})));
    }

    #[test]
    fn status_pages_are_bounded() {
        let status = read_status(&fields(
            json!({"request_id": "r", "limit": 99_999_999_999u64, "wait_ms": 9_999_999}),
        ))
        .unwrap();
        assert_eq!(status.page.unwrap().limit, limits::OUTPUT_PAGE_BYTES_MAX);
        assert_eq!(status.wait, limits::STATUS_WAIT_MAX);
        assert!(read_status(&fields(json!({"request_id": "r"}))).unwrap().page.is_none());
    }
}
