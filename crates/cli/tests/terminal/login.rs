//! How a person's browser gets in: the line that `serve` prints, and `tokens login`.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::stage::Stage;

struct Serving {
    server: Child,
    said: Lines<BufReader<ChildStderr>>,
}

impl Serving {
    fn start(stage: &Stage) -> Self {
        let mut server = stage
            .command(&["serve", "--listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(server.stderr.take().unwrap()).lines();
        Self { server, said }
    }

    fn line(&mut self) -> String {
        self.said.next().expect("one more line").unwrap()
    }

    fn end(mut self, signal: &str) {
        let pid = self.server.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        self.server.wait().unwrap();
    }
}

/// The address and the code of a line.
fn read(line: &str) -> (String, String) {
    let (address, code) = line.strip_prefix("console: ").unwrap().split_once("/#token=").unwrap();
    assert!(code.starts_with("cs_login_") && code.len() == 73, "{line}");
    (address.to_owned(), code.to_owned())
}

#[test]
fn a_server_prints_a_login_and_tokens_login_prints_another() {
    let stage = Stage::new();
    let nobody = stage.run(&["tokens", "login"]);
    assert_eq!(nobody.code, 1, "{nobody:?}");
    assert!(nobody.stderr.contains("no server runs on"), "{nobody:?}");

    let mut serving = Serving::start(&stage);
    let first = serving.line();
    let address = first
        .strip_prefix("serving on ")
        .unwrap()
        .trim_end_matches('/')
        .to_owned();
    let (console, code) = read(&serving.line());
    assert_eq!(console, address);
    // What is printed is found by the file beside the record, which only its owner may read.
    let text = stage.run(&["tokens", "login"]);
    let (other_console, other) = read(text.stdout.trim_end());
    assert_eq!((text.code, other_console), (0, console.clone()), "{text:?}");
    let json = stage.json(&["tokens", "login", "--json"]);
    assert_eq!(
        json["url"],
        format!("{console}/#token={}", json["token"].as_str().unwrap())
    );
    let codes = [code, other, json["token"].as_str().unwrap().to_owned()];
    assert!(codes[0] != codes[1] && codes[1] != codes[2]);
    serving.end("-TERM");
    assert_eq!(stage.run(&["tokens", "login"]).code, 1, "nobody serves any more");
    assert!(!stage.state().join("server.json").exists());
    // Codes are printed, and kept nowhere.
    let export = stage.run(&["audit", "export"]).stdout;
    for code in codes {
        assert!(!export.contains(&code), "{export}");
    }
}

#[test]
fn a_server_that_was_killed_is_not_taken_for_one_that_runs() {
    let stage = Stage::new();
    let mut serving = Serving::start(&stage);
    serving.line();
    serving.line();
    serving.end("-KILL");
    assert!(stage.state().join("server.json").exists());
    let ran = stage.run(&["tokens", "login"]);
    assert!(ran.code == 1 && ran.stderr.contains("no server runs on"), "{ran:?}");
}
