//! What does the same by the client's own program, as a line for a shell.

use serde_json::{Map, Value};

use super::Plan;
use super::server::{Server, TOKEN_VARIABLE};
use crate::cli::{Client, Scope};

/// The line, where the client has such a command.
pub(super) fn command(plan: &Plan<'_>) -> Option<String> {
    let words = match (plan.asked.client, plan.asked.scope) {
        (Client::ClaudeCode, Scope::User) => by_claude(plan, "user"),
        (Client::ClaudeCode, Scope::Project) => by_claude(plan, "project"),
        (Client::Codex, Scope::User) => by_codex(plan),
        (Client::Vscode, Scope::User) => by_code(plan),
        (Client::Codex | Client::Vscode, Scope::Project) | (Client::ClaudeDesktop | Client::Cursor, _) => return None,
    };
    Some(line(&words))
}

/// Options that take several values eat up what follows them, so the name comes before those.
fn by_claude(plan: &Plan<'_>, scope: &str) -> Vec<String> {
    let mut words = owned(&["claude", "mcp", "add", "--scope", scope]);
    let name = &plan.asked.name;
    match &plan.server {
        Server::Started { command, args, env, .. } => {
            words.push(name.clone());
            for (variable, value) in env {
                words.extend(["-e".to_owned(), format!("{variable}={value}")]);
            }
            words.extend(["--".to_owned(), command.clone()]);
            words.extend(args.iter().cloned());
        }
        Server::Running { url, .. } => {
            words.extend(owned(&["--transport", "http", name, url]));
            if let Some(value) = authorization(&plan.entry) {
                words.extend(["--header".to_owned(), format!("Authorization: {value}")]);
            }
        }
    }
    words
}

fn by_codex(plan: &Plan<'_>) -> Vec<String> {
    let mut words = owned(&["codex", "mcp", "add", &plan.asked.name]);
    match &plan.server {
        Server::Started { command, args, env, .. } => {
            for (variable, value) in env {
                words.extend(["--env".to_owned(), format!("{variable}={value}")]);
            }
            words.extend(["--".to_owned(), command.clone()]);
            words.extend(args.iter().cloned());
        }
        Server::Running { url, sends_token } => {
            words.extend(owned(&["--url", url]));
            if *sends_token {
                words.extend(owned(&["--bearer-token-env-var", TOKEN_VARIABLE]));
            }
        }
    }
    words
}

fn by_code(plan: &Plan<'_>) -> Vec<String> {
    let mut named = Map::from_iter([("name".to_owned(), Value::from(plan.asked.name.as_str()))]);
    named.extend(plan.entry.clone());
    owned(&["code", "--add-mcp", &Value::Object(named).to_string()])
}

fn authorization(entry: &Map<String, Value>) -> Option<&str> {
    entry.get("headers")?.get("Authorization")?.as_str()
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Words as a shell reads them back.
pub(super) fn line(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+".contains(c);
    let quoted = words.iter().map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_words_back() {
        let words = owned(&["/opt/my tools/it's", "stdio", "", "Bearer ${X}", "a=b"]);
        assert_eq!(line(&words), r"'/opt/my tools/it'\''s' stdio '' 'Bearer ${X}' a=b");
        let script = format!("printf '%s\\n' {}", line(&words));
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), words.join("\n") + "\n");
    }
}
