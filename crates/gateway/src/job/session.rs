//! S1's Session: a conversation with an agent, over one job or several, and the folder that tells of it.

use std::path::Path;

use serde_json::{Value, json};

use super::driver::ProcessMark;
use super::lifecycle::{IllegalSessionStep, SessionStatus, SessionStep, session_transition};
use super::state::without_nulls;
use crate::clock::Timestamp;
use crate::ids::{ConversationId, CredentialId, JobId, JobSessionId};
use crate::limits;

#[derive(Clone, PartialEq, Debug)]
pub struct JobSession {
    pub id: JobSessionId,
    /// Counts its changes, as a job's.
    pub version: u64,
    // INVARIANT: changed by `step` only, along the arrows of `lifecycle`.
    status: SessionStatus,
    /// The agent's own id, once it has one.
    pub conversation_id: Option<ConversationId>,
    /// Unique on its day.
    pub name: SessionName,
    /// The job that it works for, or worked for last.
    pub job_id: JobId,
    pub agent: String,
    pub owner: CredentialId,
    pub created_at: Timestamp,
    /// Where the agent keeps the conversation, if it said so.
    pub rollout: Option<String>,
    /// The process that it runs in, as it can be told from any other.
    pub process: Option<ProcessMark>,
    /// S1's config: `model`, `cwd`, `approvalPolicy`, `sandboxPolicy`, `timeout`, as they came to be.
    pub config: Value,
}

impl JobSession {
    pub fn new(
        id: JobSessionId,
        name: SessionName,
        job_id: JobId,
        agent: String,
        owner: CredentialId,
        created_at: Timestamp,
    ) -> Self {
        Self {
            id,
            version: 1,
            status: SessionStatus::Initializing,
            conversation_id: None,
            name,
            job_id,
            agent,
            owner,
            created_at,
            rollout: None,
            process: None,
            config: json!({}),
        }
    }

    /// A session as a store kept it.
    pub fn restored(status: SessionStatus, session: Self) -> Self {
        Self { status, ..session }
    }

    pub fn status(&self) -> SessionStatus {
        self.status
    }

    #[must_use]
    pub fn changed(&self) -> Self {
        Self {
            version: self.version + 1,
            ..self.clone()
        }
    }

    pub fn step(&self, step: SessionStep) -> Result<Self, IllegalSessionStep> {
        let mut next = self.changed();
        next.status = session_transition(self.status, step)?;
        Ok(next)
    }

    /// Its folder below `sessions/`.
    pub fn folder(&self) -> String {
        self.name.folder(self.created_at)
    }

    /// S1's fields under S1's names; `directory` is where its folder is.
    pub fn to_json(&self, directory: &Path) -> Value {
        let mut shown = json!({
            "conversationId": self.conversation_id.as_ref().map(ConversationId::as_str),
            "sessionName": self.name.as_str(),
            "jobId": self.job_id.as_str(),
            "createdAt": self.created_at.to_string(),
            "sessionDir": directory.to_string_lossy(),
            "rolloutRef": self.rollout,
            "processId": self.process.as_ref().map(|process| process.pid),
            "status": self.status.as_str(),
            "config": self.config,
            "agent": self.agent,
        });
        without_nulls(&mut shown);
        shown
    }
}

/// A name that is safe as part of a folder's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionName(String);

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`sessionName` must be 1 to {max} letters, digits, `-`, `_` or `.`, and begin with a letter or a digit",
    max = limits::SESSION_NAME_CHARS_MAX
)]
pub struct BadSessionName;

impl SessionName {
    pub fn parse(text: &str) -> Result<Self, BadSessionName> {
        let fits = (1..=limits::SESSION_NAME_CHARS_MAX).contains(&text.len());
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if fits && begins && text.chars().all(good) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadSessionName)
        }
    }

    /// A name for whoever gave none: the first words of what was asked.
    pub fn from_prompt(prompt: &str) -> Self {
        const CHARS: usize = 32;
        let mut name = String::new();
        for c in prompt.chars().take(4 * CHARS) {
            if name.len() >= CHARS {
                break;
            }
            if c.is_ascii_alphanumeric() {
                name.push(c.to_ascii_lowercase());
            } else if !name.is_empty() && !name.ends_with('-') {
                name.push('-');
            }
        }
        let name = name.trim_end_matches('-');
        Self(if name.is_empty() { "task" } else { name }.to_owned())
    }

    /// What a store kept.
    pub fn trusted(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The same name once more on one day: the second is `name-2`.
    #[must_use]
    pub fn again(&self, count: usize) -> Self {
        if count < 2 {
            return self.clone();
        }
        Self(format!("{}-{count}", self.0))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `<name>-<date>`, the date in UTC.
    pub fn folder(&self, created_at: Timestamp) -> String {
        let moment = created_at.to_string();
        let date = moment.split_once('T').map_or(moment.as_str(), |(date, _)| date);
        format!("{}-{date}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_shows_the_fields_of_s1_under_their_names() {
        let mut session = JobSession::new(
            JobSessionId::trusted("s1"),
            SessionName::parse("fix-bug").unwrap(),
            JobId::trusted("j1"),
            "codex".to_owned(),
            CredentialId::trusted("local"),
            Timestamp::parse("2025-09-30T10:00:00Z").unwrap(),
        );
        session.conversation_id = Some(ConversationId::trusted("th-1"));
        session.rollout = Some("/home/a/rollout.jsonl".to_owned());
        session.process = Some(ProcessMark {
            pid: 41,
            started: 7,
            socket: None,
        });
        assert_eq!(session.folder(), "fix-bug-2025-09-30");
        let shown = session
            .step(SessionStep::Activate)
            .unwrap()
            .to_json(Path::new("/s/fix-bug-2025-09-30"));
        assert_eq!(
            shown,
            json!({
                "conversationId": "th-1", "sessionName": "fix-bug", "jobId": "j1",
                "createdAt": "2025-09-30T10:00:00.000Z", "sessionDir": "/s/fix-bug-2025-09-30",
                "rolloutRef": "/home/a/rollout.jsonl", "processId": 41, "status": "active", "config": {},
                "agent": "codex",
            })
        );
    }

    #[test]
    fn a_name_stays_inside_its_folder() {
        for good in ["a", "fix-bug_2.1", "9", &"x".repeat(limits::SESSION_NAME_CHARS_MAX)] {
            assert!(SessionName::parse(good).is_ok(), "{good}");
        }
        let long = "x".repeat(limits::SESSION_NAME_CHARS_MAX + 1);
        for bad in ["", ".", "..", "../x", "a/b", "-x", ".hidden", "a b", "ä", "a\0", &long] {
            assert_eq!(SessionName::parse(bad), Err(BadSessionName), "{bad:?}");
        }
    }

    #[test]
    fn a_name_is_made_from_what_was_asked() {
        for (prompt, name) in [
            ("Fix the bug in main.rs!", "fix-the-bug-in-main-rs"),
            ("../../etc/passwd", "etc-passwd"),
            ("修复错误", "task"),
            ("  ", "task"),
        ] {
            let made = SessionName::from_prompt(prompt);
            assert_eq!(made.as_str(), name, "{prompt}");
            assert!(SessionName::parse(made.as_str()).is_ok());
        }
        assert!(SessionName::from_prompt(&"wörd ".repeat(99)).as_str().len() <= 33);
        assert_eq!(SessionName::from_prompt("x").again(1).as_str(), "x");
        assert_eq!(SessionName::from_prompt("x").again(2).as_str(), "x-2");
    }
}
