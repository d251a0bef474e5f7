//! What can be told of a call whose arguments were refused: the record says what was asked as far as it was text, and no
//! longer than a call that is read may be. Nothing of it is ever run.

use serde_json::{Map, Value};

use super::request::{Act, CommandRequest, CommandTool};
use crate::limits;

/// The parts of a call that its record tells of. What is no text, or longer than it may be, stays empty.
pub fn of(tool: &CommandTool, fields: &Map<String, Value>) -> CommandRequest {
    let argv = |file: &str| Act::Argv {
        file: text(fields, file, limits::ARGUMENT_BYTES_MAX).unwrap_or_default(),
        args: texts(fields, "args"),
    };
    let (act, directory) = match tool {
        CommandTool::ExecuteCommand => {
            let line = text(fields, "command", limits::LINE_BYTES_MAX);
            (Act::Line(line.unwrap_or_default()), Some("cwd"))
        }
        CommandTool::ExecuteProcess => (argv("file"), Some("cwd")),
        CommandTool::RunCommand => (argv("command"), Some("working_directory")),
        // Its arguments have meanings of their own, and become a command only once they are read.
        CommandTool::Declared(_) => (CommandRequest::of_program("").act, None),
    };
    let caller = text(fields, "caller_id", limits::CALLER_CHARS_MAX);
    CommandRequest {
        tool: tool.clone(),
        act,
        cwd: directory.and_then(|name| text(fields, name, limits::DIRECTORY_BYTES_MAX)),
        caller_id: caller.filter(|_| *tool == CommandTool::RunCommand),
        ..CommandRequest::of_program("")
    }
}

fn text(fields: &Map<String, Value>, name: &str, bytes_max: usize) -> Option<String> {
    let text = fields.get(name)?.as_str()?;
    is_fit(text, bytes_max).then(|| text.to_owned())
}

/// Those of a list that are texts; none at all where they are too many.
fn texts(fields: &Map<String, Value>, name: &str) -> Vec<String> {
    let given = fields.get(name).and_then(Value::as_array).into_iter().flatten();
    let texts: Vec<&str> = given.filter_map(Value::as_str).collect();
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if texts.len() > limits::ARGUMENTS_MAX || bytes > limits::ARGUMENTS_BYTES_MAX {
        return Vec::new();
    }
    let fit = texts
        .into_iter()
        .filter(|text| is_fit(text, limits::ARGUMENT_BYTES_MAX));
    fit.map(str::to_owned).collect()
}

/// Not every store keeps a NUL.
fn is_fit(text: &str, bytes_max: usize) -> bool {
    text.len() <= bytes_max && !text.contains('\0')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(tool: &CommandTool, fields: Value, act: Act, cwd: Option<&str>) {
        let seen = of(tool, fields.as_object().expect("an object"));
        assert_eq!((seen.act, seen.cwd.as_deref()), (act, cwd), "{fields}");
    }

    #[test]
    fn what_is_text_is_told_of_a_call_that_cannot_be_read() {
        let argv = |file: &str, args: &[&str]| Act::Argv {
            file: file.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        };
        use CommandTool::{ExecuteCommand, ExecuteProcess, RunCommand};
        let line = |text: &str| Act::Line(text.to_owned());
        check(
            &ExecuteCommand,
            json!({"command": "ls", "cwd": "a", "timeout_ms": 0}),
            line("ls"),
            Some("a"),
        );
        check(&ExecuteCommand, json!({"command": 7, "cwd": []}), line(""), None);
        check(&ExecuteCommand, json!({"command": "a\0b"}), line(""), None);
        check(&ExecuteProcess, json!({"file": "ls"}), argv("ls", &[]), None);
        check(
            &RunCommand,
            json!({"command": "ls", "args": ["a", 5, "b"], "working_directory": "/w"}),
            argv("ls", &["a", "b"]),
            Some("/w"),
        );
        check(
            &RunCommand,
            json!({"command": "ls", "args": "a"}),
            argv("ls", &[]),
            None,
        );
    }

    #[test]
    fn what_is_longer_than_a_call_may_be_is_not_told() {
        let long = |bytes: usize| "x".repeat(bytes);
        let line = |text: String| Act::Line(text);
        let at_most = long(limits::LINE_BYTES_MAX);
        check(
            &CommandTool::ExecuteCommand,
            json!({"command": at_most}),
            line(at_most.clone()),
            None,
        );
        check(
            &CommandTool::ExecuteCommand,
            json!({"command": long(limits::LINE_BYTES_MAX + 1), "cwd": long(limits::DIRECTORY_BYTES_MAX + 1)}),
            line(String::new()),
            None,
        );
        let many = vec!["a"; limits::ARGUMENTS_MAX + 1];
        let nothing = Act::Argv {
            file: String::new(),
            args: Vec::new(),
        };
        check(&CommandTool::ExecuteProcess, json!({"args": many}), nothing, None);
    }
}
