//! Whether an agent is there, and which version of it.

use std::path::Path;

use countersign_gateway::job::driver::DriverError;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::limits;
use crate::process::{Launch, Launcher, Streams};

/// How Codex is installed.
pub(crate) const INSTALL_CODEX: &str = "npm install -g @openai/codex";

/// The version that a program says it is. It is started as agents are, and ended if it does not say.
pub(crate) async fn version(
    launcher: &Launcher,
    command: &[String],
    agent: &str,
    install: &str,
) -> Result<String, DriverError> {
    let program = command.first().cloned().unwrap_or_default();
    if launcher.find(&program).is_none() {
        return Err(DriverError::Missing {
            agent: agent.to_owned(),
            install: install.to_owned(),
        });
    }
    let mut process = launcher.start(Launch {
        command: vec![program, "--version".to_owned()],
        cwd: Path::new("/").to_owned(),
        environment: Default::default(),
        mark: format!("probe-{}", uuid::Uuid::now_v7().simple()),
        streams: Streams::Spoken,
        still: None,
    })?;
    let mut said = Vec::new();
    let read = async {
        if let Some(stdout) = process.stdout.take() {
            let _ = stdout.take(4096).read_to_end(&mut said).await;
        }
    };
    let answered = timeout(limits::PROBE_WAIT, read).await;
    process.end().await;
    if answered.is_err() {
        return Err(DriverError::Silent(limits::PROBE_WAIT));
    }
    let said = String::from_utf8_lossy(&said);
    number_in(&said)
        .map(str::to_owned)
        .ok_or_else(|| DriverError::Unusable {
            agent: agent.to_owned(),
            version: said.trim().chars().take(80).collect(),
            reason: "it does not say which version it is".to_owned(),
        })
}

/// The first word that looks like a version.
fn number_in(said: &str) -> Option<&str> {
    said.split_whitespace()
        .map(|word| word.trim_start_matches('v'))
        .find(|word| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit()))
}

/// Whether a version is at least the first and below the second.
pub(crate) fn is_between(version: &str, from: &str, below: &str) -> bool {
    let numbers = |text: &str| -> Vec<u64> {
        let plain = text.split(['-', '+']).next().unwrap_or_default();
        plain.split('.').map(|part| part.parse().unwrap_or(0)).collect()
    };
    let version = numbers(version);
    version >= numbers(from) && version < numbers(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_among_other_words() {
        assert_eq!(number_in("codex-cli 0.166.0\n"), Some("0.166.0"));
        assert_eq!(number_in("2.1.325 (Claude Code)"), Some("2.1.325"));
        assert_eq!(number_in("v1.18.33"), Some("1.18.33"));
        assert_eq!(number_in("no idea"), None);
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert!(is_between("0.166.0", "0.160.0", "0.200.0"));
        assert!(!is_between("0.99.9", "0.160.0", "0.200.0"));
        assert!(!is_between("0.200.0", "0.160.0", "0.200.0"));
        assert!(is_between("2.1.325-beta", "2.1.325", "2.2.0"));
    }
}
