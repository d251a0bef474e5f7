//! A server in a client's own words; whether an entry is ours; what an update of one keeps.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::clients::{Entries, Profile, Urls};
use super::server::{Server, TOKEN_VARIABLE};
use crate::start::BadUsage;

/// Keys that mean something for a server the client starts, and for one it reaches.
const OF_STARTED: &[&str] = &["command", "args", "env", "cwd"];
const OF_RUNNING: &[&str] = &[
    "url",
    "headers",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
];

pub(super) fn of(server: &Server, profile: &Profile) -> Result<Map<String, Value>, BadUsage> {
    let mut entry = Map::new();
    let mut set = |key: &str, value: Value| entry.insert(key.to_owned(), value);
    match server {
        Server::Started { command, args, env, .. } => {
            if profile.entries == Entries::Typed {
                set("type", json!("stdio"));
            }
            set("command", json!(command));
            set("args", json!(args));
            if !env.is_empty() {
                set(
                    "env",
                    env.iter().map(|(name, value)| (name.clone(), json!(value))).collect(),
                );
            }
        }
        Server::Running { url, sends_token } => {
            if profile.entries == Entries::Typed {
                set("type", json!("http"));
            }
            match profile.urls {
                Urls::None => {
                    return Err(BadUsage(format!(
                        "{} takes no address in its file, it starts servers itself; leave `--http` and `--url` out",
                        profile.title
                    )));
                }
                Urls::Header(token) => {
                    set("url", json!(url));
                    if *sends_token {
                        set("headers", json!({"Authorization": format!("Bearer {token}")}));
                    }
                }
                Urls::TokenVariable => {
                    set("url", json!(url));
                    if *sends_token {
                        set("bearer_token_env_var", json!(TOKEN_VARIABLE));
                    }
                }
            }
        }
    }
    Ok(entry)
}

/// Whether an entry starts a server of ours, of whatever version and place, or reaches one.
pub(super) fn is_ours(entry: &Value, server: &Server) -> bool {
    let program = entry["command"]
        .as_str()
        .and_then(|command| Path::new(command).file_name());
    let serves = entry["args"]
        .as_array()
        .is_some_and(|args| args.iter().any(|arg| arg == "stdio"));
    let wanted = match server {
        Server::Started { .. } => false,
        Server::Running { url, .. } => entry["url"] == url.as_str(),
    };
    (program.is_some_and(|name| name == "countersign") && serves) || wanted || sends_our_token(entry)
}

fn sends_our_token(entry: &Value) -> bool {
    entry["bearer_token_env_var"] == TOKEN_VARIABLE || is_our_header(&entry["headers"]["Authorization"])
}

fn is_our_header(value: &Value) -> bool {
    value.as_str().is_some_and(|value| value.contains(TOKEN_VARIABLE))
}

/// An entry of ours as it should be now. What somebody added stays, such as a variable, a timeout or
/// a switch; what belongs to the other kind of server goes.
pub(super) fn update(present: &Value, wanted: &Map<String, Value>) -> Map<String, Value> {
    let mut entry = present.as_object().cloned().unwrap_or_default();
    let other = if wanted.contains_key("url") {
        OF_STARTED
    } else {
        OF_RUNNING
    };
    entry.retain(|key, _| !other.contains(&key.as_str()) && key != "bearer_token_env_var");
    if let Some(Value::Object(headers)) = entry.get_mut("headers") {
        headers.retain(|_, value| !is_our_header(value));
        if headers.is_empty() {
            entry.remove("headers");
        }
    }
    for (key, value) in wanted {
        match (entry.get_mut(key), value) {
            (Some(Value::Object(present)), Value::Object(value)) => present.extend(value.clone()),
            _ => drop(entry.insert(key.clone(), value.clone())),
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> Server {
        Server::Started {
            command: "/new/countersign".to_owned(),
            args: vec!["stdio".to_owned()],
            env: Vec::new(),
            left_out: Vec::new(),
        }
    }

    fn running() -> Server {
        Server::Running {
            url: "http://127.0.0.1:7420/mcp".to_owned(),
            sends_token: true,
        }
    }

    #[test]
    fn ours_is_what_starts_or_reaches_this_program() {
        for ours in [
            json!({"command": "/old/place/countersign", "args": ["--config", "/c.yaml", "stdio"]}),
            json!({"command": "countersign", "args": ["stdio"], "env": {"A": "b"}}),
            json!({"url": "https://elsewhere/mcp", "headers": {"Authorization": "Bearer ${env:COUNTERSIGN_TOKEN}"}}),
            json!({"url": "https://elsewhere/mcp", "bearer_token_env_var": "COUNTERSIGN_TOKEN"}),
        ] {
            assert!(is_ours(&ours, &started()), "{ours}");
        }
        let bare = json!({"url": "http://127.0.0.1:7420/mcp"});
        assert!(is_ours(&bare, &running()) && !is_ours(&bare, &started()));
        for other in [
            json!({"command": "npx", "args": ["countersign", "stdio"]}),
            json!({"command": "/bin/countersign", "args": ["serve"]}),
            json!({"command": "/bin/countersigner", "args": ["stdio"]}),
            json!({"url": "https://elsewhere/mcp"}),
            json!("countersign"),
            json!(null),
        ] {
            assert!(!is_ours(&other, &running()), "{other}");
        }
    }

    #[test]
    fn an_update_keeps_what_somebody_added() {
        let present = json!({"command": "/old/countersign", "args": ["stdio"], "env": {"ALLOWED_COMMANDS": "git", "X": "1"}, "disabled": true});
        let wanted = json!({"command": "/new/countersign", "args": ["stdio"], "env": {"X": "2"}});
        assert_eq!(
            Value::Object(update(&present, wanted.as_object().unwrap())),
            json!({"command": "/new/countersign", "args": ["stdio"], "env": {"ALLOWED_COMMANDS": "git", "X": "2"}, "disabled": true})
        );
    }

    #[test]
    fn an_update_to_the_other_kind_leaves_nothing_of_the_first() {
        let stdio =
            json!({"type": "stdio", "command": "/countersign", "args": ["stdio"], "env": {"A": "b"}, "timeout": 5});
        let http =
            json!({"type": "http", "url": "http://h/mcp", "headers": {"Authorization": "Bearer ${COUNTERSIGN_TOKEN}"}});
        assert_eq!(
            Value::Object(update(&stdio, http.as_object().unwrap())),
            json!({"type": "http", "timeout": 5, "url": "http://h/mcp", "headers": {"Authorization": "Bearer ${COUNTERSIGN_TOKEN}"}})
        );
        let wanted = json!({"type": "stdio", "command": "/countersign", "args": ["stdio"]});
        assert_eq!(Value::Object(update(&http, wanted.as_object().unwrap())), wanted);
    }

    #[test]
    fn a_token_that_is_not_wanted_any_more_goes_and_other_headers_stay() {
        let present =
            json!({"url": "http://h/mcp", "headers": {"X": "1", "Authorization": "Bearer ${COUNTERSIGN_TOKEN}"}});
        let wanted = json!({"url": "http://h/mcp"});
        assert_eq!(
            Value::Object(update(&present, wanted.as_object().unwrap())),
            json!({"url": "http://h/mcp", "headers": {"X": "1"}})
        );
    }
}
