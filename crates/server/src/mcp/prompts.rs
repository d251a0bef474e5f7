//! The prompts we serve: how to act through the gateway, and what to do about a refusal.

use countersign_gateway::error::{ErrorCode, Refusal, brief};
use serde_json::{Map, Value, json};

use super::revision::Era;

/// What every client is told once, in `initialize` or `server/discover`.
pub(crate) const INSTRUCTIONS: &str = "\
Countersign runs commands on this machine under policy, confined by the kernel, and records each of them. \
Use `execute_command` for a shell line and `execute_process` for a program with arguments. \
Every result has `status` and, unless it is `ok` or `running`, `error_code`, `error_message` and `retryable`. \
`rejected` means that nothing ran: read the message, change the call or ask your user, and do not try to reach the \
same end by another command. `running` means that the command goes on: call `command_status` with its `request_id`. \
`pending` means that a person has to decide: repeat the very same call later. \
Say in `justification` why you need more than policy gives. \
The resource `countersign://errors` explains every code.";

struct Prompt {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    arguments: &'static [Argument],
    write: fn(&Map<String, Value>) -> Result<String, Refusal>,
}

struct Argument {
    name: &'static str,
    description: &'static str,
    required: bool,
    /// Values it can have, where they can be counted.
    values: fn() -> Vec<&'static str>,
}

const PROMPTS: [Prompt; 2] = [
    Prompt {
        name: "explain-a-refusal",
        title: "Explain a refusal",
        description: "what an error code means and what to do next",
        arguments: &[Argument {
            name: "error_code",
            description: "the `error_code` of the result, or `data.errorCode` of the error",
            required: true,
            values: codes,
        }],
        write: explain_a_refusal,
    },
    Prompt {
        name: "run-a-command",
        title: "Run a command",
        description: "how to phrase a call for a goal, and how to read what comes back",
        arguments: &[
            Argument {
                name: "goal",
                description: "what the command is for",
                required: true,
                values: Vec::new,
            },
            Argument {
                name: "tool",
                description: "the tool to use; the best one for the goal when left out",
                required: false,
                values: command_tools,
            },
        ],
        write: run_a_command,
    },
];

pub(crate) fn list(era: Era) -> Vec<Value> {
    PROMPTS.iter().map(|prompt| describe(prompt, era)).collect()
}

/// The result of `prompts/get`.
pub(crate) fn get(params: &Map<String, Value>) -> Result<Value, Refusal> {
    let invalid = |message: String| Refusal::new(ErrorCode::InvalidParams, message);
    let prompt = match params.get("name") {
        Some(Value::String(name)) => find(name).ok_or_else(|| {
            let name = brief(name);
            invalid(format!(
                "there is no prompt `{name}`; `prompts/list` names those there are"
            ))
        })?,
        Some(_) => return Err(invalid("`params.name` must be text".to_owned())),
        None => return Err(invalid("`params.name` is missing; it names the prompt".to_owned())),
    };
    let none = Map::new();
    let arguments = match params.get("arguments") {
        None => &none,
        Some(Value::Object(arguments)) => arguments,
        Some(_) => return Err(invalid("`params.arguments` must be an object".to_owned())),
    };
    for Argument { name, required, .. } in prompt.arguments {
        match arguments.get(*name) {
            Some(Value::String(_)) => {}
            Some(_) => return Err(invalid(format!("`arguments.{name}` must be text"))),
            None if *required => return Err(invalid(format!("`arguments.{name}` is missing"))),
            None => {}
        }
    }
    let text = (prompt.write)(arguments)?;
    Ok(json!({
        "description": prompt.description,
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }))
}

/// Values that an argument of a prompt can have; none for one that does not exist.
pub(crate) fn values(prompt: &str, argument: &str) -> Option<Vec<&'static str>> {
    let argument = find(prompt)?.arguments.iter().find(|known| known.name == argument)?;
    Some((argument.values)())
}

/// The names of all error codes.
pub(crate) fn codes() -> Vec<&'static str> {
    ErrorCode::ALL.iter().map(|code| code.name()).collect()
}

fn command_tools() -> Vec<&'static str> {
    vec!["execute_command", "execute_process", "run_command"]
}

fn find(name: &str) -> Option<&'static Prompt> {
    static ALL: [Prompt; 2] = PROMPTS;
    ALL.iter().find(|prompt| prompt.name == name)
}

fn describe(prompt: &Prompt, era: Era) -> Value {
    let argument = |argument: &Argument| {
        json!({
            "name": argument.name,
            "description": argument.description,
            "required": argument.required,
        })
    };
    let mut described = json!({
        "name": prompt.name,
        "description": prompt.description,
        "arguments": prompt.arguments.iter().map(argument).collect::<Vec<_>>(),
    });
    if era.has_structured_content() {
        described["title"] = prompt.title.into();
    }
    described
}

fn run_a_command(arguments: &Map<String, Value>) -> Result<String, Refusal> {
    let goal = arguments["goal"].as_str().unwrap_or_default();
    let tool = match arguments.get("tool").and_then(Value::as_str) {
        Some(tool) => format!("Use the tool `{tool}`."),
        None => "Use `execute_process` when you have one program and its arguments, and `execute_command` when you \
                 need a shell line."
            .to_owned(),
    };
    Ok(format!(
        "Reach this goal on the machine through Countersign: {goal}\n\n\
         {tool} One call does one thing. Prefer plain lines: words, quotes, globs, pipes, `&&`, `||`, `;` and \
         redirections are checked word by word and may run without asking anybody; loops, substitutions and functions \
         need a shell and are asked about more often. Give `cwd` instead of `cd`, and `timeout_ms` if it may take \
         long. If you need the network or full access, ask for it with `network` or `sandbox` and say why in \
         `justification`.\n\n\
         Then read `status`. `ok`: done. `failed`: it ran and `exit_code` and `stderr` say what went wrong. `timeout`: \
         it was ended; `stdout` has what it said until then. `rejected`: nothing ran; `error_code` and \
         `error_message` say why, and repeating the same call helps only if `retryable` is true. `running`: it goes \
         on; call `command_status` with the `request_id`. `pending`: a person is being asked; tell your user, and \
         repeat the very same call later."
    ))
}

fn explain_a_refusal(arguments: &Map<String, Value>) -> Result<String, Refusal> {
    let name = arguments["error_code"].as_str().unwrap_or_default();
    let Some(code) = ErrorCode::parse(name) else {
        let name = brief(name);
        let message = format!("there is no error code `{name}`; the resource `countersign://errors` lists all");
        return Err(Refusal::new(ErrorCode::InvalidParams, message));
    };
    let next = if code.retryable() {
        "The same call may succeed later: wait a little, then repeat it unchanged."
    } else {
        "The same call will be answered the same way: change it as the message says, or tell your user what you \
         wanted to do and why it was not done."
    };
    Ok(format!(
        "Countersign answered `{name}`: {}.\n\n{next} Do not look for another way to the same end: what policy does \
         not allow one command, it does not allow another.",
        code.template()
    ))
}
