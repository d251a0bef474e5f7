//! The inspector, which people hold against a server that does not do what they expect.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::foreign::{self, Node, Said};
use crate::server::{Listening, bench, on_stdio};

const PATIENCE: Duration = Duration::from_secs(60);
/// How the inspector ends when a tool's result is an error.
const TOOL_ERROR: i32 = 5;

/// The inspector, pointed at one server.
struct Inspector<'a> {
    program: Node,
    bench: &'a Bench,
    target: Vec<String>,
}

impl Inspector<'_> {
    fn ask(&self, method: &[&str]) -> Said {
        let mut command: Command = self.program.command(&self.bench.path("home"));
        command.arg("--cli").args(&self.target).arg("--method").args(method);
        foreign::run(command.args(["--format", "json", "-q"]), PATIENCE)
    }

    fn result(&self, method: &[&str]) -> Value {
        let said = self.ask(method).ok();
        let answer: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
        answer["result"].clone()
    }

    fn call(&self, arguments: &Value) -> Said {
        let arguments = arguments.to_string();
        self.ask(&[
            "tools/call",
            "--tool-name",
            "execute_process",
            "--tool-args-json",
            &arguments,
        ])
    }

    /// Looks at everything once.
    fn look(&self) {
        let tools = self.result(&["tools/list", "--strict"]);
        assert!(tools["tools"].as_array().unwrap().len() >= 5, "{tools}");
        let table = self.result(&["resources/read", "--uri", "countersign://errors"]);
        assert!(table.to_string().contains("COMMAND_NOT_ALLOWED"), "{table}");

        let echo = self.call(&json!({"file": "echo", "args": ["hi"]})).ok();
        let answer: Value = serde_json::from_str(&echo.stdout).unwrap();
        assert_eq!(answer["result"]["structuredContent"]["stdout"], "hi\n", "{echo}");
        let refused = self.call(&json!({"file": "id", "args": []}));
        assert_eq!(refused.code(), Some(TOOL_ERROR), "{refused}");
        assert!(refused.stdout.contains("COMMAND_NOT_ALLOWED"), "{refused}");
    }
}

fn inspector() -> Option<Node> {
    Node::of_package("@modelcontextprotocol/inspector/clients/launcher/build/index.js")
}

fn look_on_stdio(era: &str) {
    let (Some(program), bench) = (inspector(), bench()) else {
        return;
    };
    let server = on_stdio(&bench, era);
    let mut target = vec!["--protocol-era".to_owned(), era.to_owned()];
    for (name, value) in server["env"].as_object().unwrap() {
        target.extend(["-e".to_owned(), format!("{name}={}", value.as_str().unwrap())]);
    }
    target.extend(["--cwd".to_owned(), server["cwd"].as_str().unwrap().to_owned()]);
    target.push(server["command"].as_str().unwrap().to_owned());
    let args = server["args"].as_array().unwrap();
    target.extend(args.iter().map(|arg| arg.as_str().unwrap().to_owned()));
    let bench = &bench;
    Inspector { program, bench, target }.look();
}

fn look_over(transport: &str, era: &str) {
    let (Some(program), bench) = (inspector(), bench()) else {
        return;
    };
    let server = Listening::start(&bench, &[]);
    let url = server.target(transport, era)["url"].as_str().unwrap().to_owned();
    let words = ["--transport", transport, "--server-url", &url, "--protocol-era", era];
    let target = words.map(str::to_owned).to_vec();
    let bench = &bench;
    Inspector { program, bench, target }.look();
    server.stop();
}

#[test]
fn the_inspector_works_on_stdio() {
    look_on_stdio("legacy");
    look_on_stdio("modern");
}

#[test]
fn the_inspector_works_over_streamable_http() {
    for era in ["legacy", "auto", "modern"] {
        look_over("http", era);
    }
}

#[test]
fn the_inspector_works_over_sse() {
    look_over("sse", "legacy");
}
