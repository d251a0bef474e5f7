//! What the demo's agent asks for, and why a person might want to see it.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::place::Place;

/// One thing that the agent asks for.
pub(super) struct Step {
    /// As a person would type it.
    pub(super) command: String,
    pub(super) tool: &'static str,
    pub(super) arguments: Value,
    /// What to look at.
    pub(super) point: &'static str,
}

pub(super) fn steps(place: &Place, server: SocketAddr) -> Vec<Step> {
    let look: &[&str] = if place.looks == "git" {
        &["status", "--short"]
    } else {
        &["-l"]
    };
    let health = format!("http://{server}/healthz");
    let fetch: Vec<&str> = match place.fetches {
        "curl" => vec!["-sS", &health],
        "wget" => vec!["-qO-", &health],
        _ => vec!["hosts", "localhost"],
    };
    let trick = format!("{} {}; rm -rf src", place.looks, look[0]);
    vec![
        process(
            place.looks,
            look,
            json!({}),
            "It only reads, so the built-in whitelist answers for you.",
        ),
        process(
            "cp",
            &["README.md", "NOTES.md"],
            json!({"justification": "to keep notes beside the code"}),
            "It writes a file, so a person is asked.",
        ),
        process(
            "ssh",
            &["production.example"],
            json!({}),
            "It is not on the allowlist: refused before anybody is bothered.",
        ),
        process(
            place.fetches,
            &fetch,
            json!({"network": "allow", "justification": "to see whether the service answers"}),
            "It wants the network, which policy denies: more than policy gives is a question, never a grant.",
        ),
        Step {
            arguments: json!({"command": trick}),
            command: trick,
            tool: "execute_command",
            point: "It begins like an allowed command. Every command of the line is looked at, so you are asked.",
        },
    ]
}

fn process(file: &str, args: &[&str], more: Value, point: &'static str) -> Step {
    let mut arguments = json!({"file": file, "args": args});
    if let (Value::Object(all), Value::Object(more)) = (&mut arguments, more) {
        all.extend(more);
    }
    Step {
        command: format!("{file} {}", args.join(" ")),
        tool: "execute_process",
        arguments,
        point,
    }
}
