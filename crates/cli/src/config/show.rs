//! `config show`: every value in force with its source, as YAML or JSON. Secrets are not shown.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::keys::{self, KEYS};
use super::settings::Settings;
use super::shape::Shape;
use super::yaml::flow;

const HIDDEN: &str = "(hidden)";

/// One line per key, with its source behind it; warnings come last.
pub(crate) fn as_yaml(settings: &Settings) -> String {
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut section = "";
    for key in KEYS {
        let held = settings.effective().held(key.path);
        let (inside, name) = key.split();
        if inside != section && !inside.is_empty() {
            lines.push((format!("{inside}:"), String::new()));
        }
        section = inside;
        let indent = if inside.is_empty() { "" } else { "  " };
        lines.push((
            format!("{indent}{name}: {}", flow(&shown(key.path, &held.value))),
            held.origin.to_string(),
        ));
    }
    let mut text = String::from("# The configuration in force; behind each value, where it comes from.\n");
    for (line, origin) in outside(settings) {
        append(&mut text, &format!("# {line}"), &origin);
    }
    for (line, origin) in lines {
        append(&mut text, &line, &origin);
    }
    if !settings.warnings.is_empty() {
        text.push_str("\n# Left out, or to know:\n");
    }
    for warning in &settings.warnings {
        append(&mut text, &format!("# {warning}"), "");
    }
    text
}

/// `{values: {KEY: {value, source}}, sources, warnings, state_dir, database, allowed_cwd_roots}`.
pub(crate) fn as_json(settings: &Settings) -> Json {
    let value = |(path, held): (&'static str, &super::Held)| {
        (
            path.to_owned(),
            json!({"value": shown(path, &held.value), "source": held.origin.to_string()}),
        )
    };
    let values: serde_json::Map<_, _> = settings.effective().iter().map(value).collect();
    let warning = |warning: &super::Warning| {
        json!({
            "source": warning.origin.source.to_string(),
            "line": warning.origin.at.map(|at| at.line),
            "column": warning.origin.at.map(|at| at.column),
            "key": warning.key,
            "reason": warning.reason,
        })
    };
    json!({
        "values": values,
        "state_dir": {"value": settings.state_dir, "source": settings.state_dir_origin.to_string()},
        "database": settings.database.as_ref().map(|(url, origin)| json!({"value": without_password(url), "source": origin.to_string()})),
        "allowed_cwd_roots": settings.places.cwd_roots,
        "sources": settings.sources,
        "warnings": settings.warnings.iter().map(warning).collect::<Vec<_>>(),
    })
}

fn append(text: &mut String, line: &str, origin: &str) {
    // Writing to a string cannot fail.
    let _ = match origin {
        "" => writeln!(text, "{line}"),
        origin => writeln!(text, "{line}  # {origin}"),
    };
}

/// What has no key in files.
fn outside(settings: &Settings) -> Vec<(String, String)> {
    let mut lines = vec![(
        format!("state directory: {}", settings.state_dir.display()),
        settings.state_dir_origin.to_string(),
    )];
    if let Some((url, origin)) = &settings.database {
        lines.push((format!("database: {}", without_password(url)), origin.to_string()));
    }
    if let Some(roots) = &settings.places.cwd_roots {
        lines.push((
            format!("allowed directories: {}", flow(&json!(roots))),
            "environment ALLOWED_CWD_ROOTS".to_owned(),
        ));
    }
    lines
}

/// A value without what must not be on a screen.
fn shown(path: &str, value: &Json) -> Json {
    let mut value = value.clone();
    let is_address = keys::find(path).is_some_and(|key| matches!(key.shape, Shape::Url));
    if let Some(address) = value.as_str().filter(|_| is_address).and_then(without_user) {
        return json!(address);
    }
    if let Some(secret) = value.get_mut("value") {
        *secret = json!(HIDDEN);
    }
    let secret_map = match path {
        "approvers" => Some("headers"),
        "agents" => Some("env"),
        _ => None,
    };
    for item in value.as_array_mut().into_iter().flatten() {
        let secrets = secret_map
            .and_then(|name| item.get_mut(name))
            .and_then(Json::as_object_mut);
        for (_, secret) in secrets.into_iter().flatten() {
            match secret.as_object_mut() {
                // By the name of a variable or a file, which is no secret.
                Some(form) if !form.contains_key("value") => {}
                Some(_) | None => *secret = json!(HIDDEN),
            }
        }
    }
    value
}

/// An address without the password of its user; none where it has none.
fn without_user(address: &str) -> Option<String> {
    let (scheme, rest) = address.split_once("://")?;
    let (user, host) = rest.rsplit_once('@')?;
    let (name, _) = user.split_once(':')?;
    Some(format!("{scheme}://{name}:{HIDDEN}@{host}"))
}

/// Options of a database's address that hold no secret. What is not among them may be the password under another spelling.
const PLAIN_OPTIONS: &[&str] = &[
    "application_name",
    "connect_timeout",
    "dbname",
    "host",
    "port",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "user",
];

pub(crate) fn without_password(url: &str) -> String {
    let (place, options) = match url.split_once('?') {
        Some((place, options)) => (place, Some(options)),
        None => (url, None),
    };
    let place = without_user(place).unwrap_or_else(|| place.to_owned());
    let option = |option: &str| match option.split_once('=') {
        Some((name, _)) if PLAIN_OPTIONS.contains(&name) => option.to_owned(),
        Some((name, _)) => format!("{name}={HIDDEN}"),
        None => HIDDEN.to_owned(),
    };
    match options {
        Some(options) => format!(
            "{place}?{}",
            options.split('&').map(option).collect::<Vec<_>>().join("&")
        ),
        None => place,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, Surroundings, load};

    fn settings(text: &str) -> (tempfile::TempDir, Settings) {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("c.yaml");
        std::fs::write(&config, text).unwrap();
        let surroundings = Surroundings {
            variables: Default::default(),
            current_dir: "/".into(),
            home: Some(dir.path().into()),
            other_homes: Vec::new(),
        };
        let flags = Flags {
            config: Some(config),
            database: Some("postgres://u:pass@h/d".into()),
            ..Flags::default()
        };
        let settings = load(&surroundings, &flags).unwrap();
        (dir, settings)
    }

    const TEXT: &str = "command_policy:\n  sandbox: read-only\ncallbacks: {token: s3cret}\n\
                        approvers: [{name: a, type: http, url: 'http://x', headers: {Authorization: s3cret}}]\n\
                        agents: [{name: a, command: [x], env: {KEY: s3cret}}]\ngithub: {token_env: GH}\n\
                        telemetry: {otlp_endpoint: 'http://ana:s3cret@127.0.0.1:4318'}\n";

    #[test]
    fn each_value_stands_with_its_source() {
        let (dir, settings) = settings(TEXT);
        let file = dir.path().join("c.yaml");
        let yaml = as_yaml(&settings);
        assert!(yaml.contains("\ncommand_policy:\n"), "{yaml}");
        assert!(
            yaml.contains(&format!(
                "\n  sandbox: read-only  # operator file {}, line 2, column 3\n",
                file.display()
            )),
            "{yaml}"
        );
        assert!(yaml.contains("\n  network: deny  # default\n"), "{yaml}");
        let json = as_json(&settings);
        assert_eq!(json["values"]["command_policy.sandbox"]["value"], "read-only");
        assert_eq!(json["values"]["github.token"]["value"], json!({"env": "GH"}));
        assert_eq!(json["values"].as_object().unwrap().len(), KEYS.len());
    }

    #[test]
    fn the_yaml_is_yaml() {
        let (_dir, settings) = settings(TEXT);
        let tree = crate::config::tree::read(&as_yaml(&settings)).unwrap();
        assert_eq!(
            tree.get("command_policy")
                .and_then(|it| it.get("sandbox"))
                .and_then(|it| it.text()),
            Some("read-only")
        );
    }

    #[test]
    fn an_address_is_shown_without_its_password_wherever_that_stands() {
        for (url, shown) in [
            ("postgres://u:s3cret@h/d", "postgres://u:(hidden)@h/d"),
            ("postgres://u@h/d?sslmode=require", "postgres://u@h/d?sslmode=require"),
            (
                "postgres://h/d?user=u&password=s3cret&sslmode=require",
                "postgres://h/d?user=u&password=(hidden)&sslmode=require",
            ),
            ("postgres://h/d?pass%77ord=s3cret", "postgres://h/d?pass%77ord=(hidden)"),
            (
                "postgres://u:s3cret@h/d?user=a:b@c",
                "postgres://u:(hidden)@h/d?user=a:b@c",
            ),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let (_dir, settings) = settings(TEXT);
        for text in [as_yaml(&settings), as_json(&settings).to_string()] {
            assert!(!text.contains("s3cret") && !text.contains("pass@"), "{text}");
            assert!(text.contains(HIDDEN), "{text}");
        }
    }
}
