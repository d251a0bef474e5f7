//! A run that a person sets off: what they leave open is filled in from policy.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::desk::{Enqueued, RunDesk};
use super::lifecycle::{Runtime, TriggerKind};
use super::profile::{Asked, Profile};
use super::state::RunOrder;
use crate::audit::event::Actor;
use crate::error::{ErrorCode, Refusal};
use crate::limits;

/// Port: profiles under the policy in force.
pub trait Profiles: Send + Sync + 'static {
    fn profile(&self, asked: &Asked<'_>) -> Profile;
}

/// What a person says of a run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ManualOrder {
    pub repository: Option<String>,
    pub project: Option<String>,
    pub issue_number: Option<u64>,
    pub pull_request_number: Option<u64>,
    /// A `run:*` label, whose policy is then the run's.
    pub label: Option<String>,
    pub agent_key: Option<String>,
    pub runtime: Option<Runtime>,
    pub namespace: Option<String>,
    pub labels: BTreeSet<String>,
    pub title: Option<String>,
    pub instructions: Option<String>,
    pub timeout_ms: Option<u64>,
}

/// Labels of an issue that are told.
pub const LABELS_MAX: usize = 100;
/// Characters of a label, and of the name of a project or a repository.
pub const NAME_CHARS_MAX: usize = 128;
/// Characters of an agent's key, and of a namespace.
pub const KEY_CHARS_MAX: usize = 64;
/// Characters of `owner/name`.
pub const REPOSITORY_CHARS_MAX: usize = 140;

/// What an agent can find its work by; a run that is set off has at least one of them.
pub const OCCASIONS: [&str; 5] = ["issue_number", "pull_request_number", "label", "title", "instructions"];

impl ManualOrder {
    /// Whether there is any of [`OCCASIONS`].
    fn has_an_occasion(&self) -> bool {
        let number = self.issue_number.or(self.pull_request_number);
        let words = [&self.label, &self.title, &self.instructions];
        number.is_some() || words.into_iter().any(Option::is_some)
    }

    /// What says nothing, or is longer than may be, with how long it may be.
    fn too_long(&self) -> Option<(&'static str, usize)> {
        let texts = [
            ("repository", self.repository.as_deref(), REPOSITORY_CHARS_MAX),
            ("project", self.project.as_deref(), NAME_CHARS_MAX),
            ("label", self.label.as_deref(), NAME_CHARS_MAX),
            ("agent_key", self.agent_key.as_deref(), KEY_CHARS_MAX),
            ("namespace", self.namespace.as_deref(), KEY_CHARS_MAX),
            ("title", self.title.as_deref(), limits::RUN_TITLE_CHARS_MAX),
            (
                "instructions",
                self.instructions.as_deref(),
                limits::RUN_INSTRUCTIONS_CHARS_MAX,
            ),
        ];
        let labels = self
            .labels
            .iter()
            .map(|label| ("labels", Some(label.as_str()), NAME_CHARS_MAX));
        let is_off = |text: &str, max: usize| text.trim().is_empty() || text.chars().count() > max;
        texts
            .into_iter()
            .chain(labels)
            .find(|(_, text, max)| text.is_some_and(|text| is_off(text, *max)))
            .map(|(name, _, max)| (name, max))
    }
}

/// Where people set runs off.
#[derive(Clone)]
pub struct ManualRuns {
    pub desk: Arc<RunDesk>,
    pub profiles: Arc<dyn Profiles>,
    /// How long a run may work when nobody says.
    pub time: Duration,
}

impl ManualRuns {
    pub async fn start(&self, by: &Actor, order: ManualOrder) -> Result<Enqueued, Refusal> {
        let bad = |message: String| Err(Refusal::new(ErrorCode::InvalidArguments, message));
        if let Some(label) = order.label.as_deref().filter(|label| !label.starts_with("run:")) {
            return bad(format!("`{label}` sets off no run; such labels begin with `run:`"));
        }
        if !order.has_an_occasion() {
            return bad(
                "there is nothing to do; say it, or name an issue, a pull request or a `run:*` label, or give a title"
                    .to_owned(),
            );
        }
        if let Some((name, max)) = order.too_long() {
            return bad(format!("`{name}` has 1 to {max} characters, and not blanks only"));
        }
        if order.labels.len() > LABELS_MAX {
            return bad(format!("an issue has at most {LABELS_MAX} labels"));
        }
        let time = order.timeout_ms.map_or(self.time, Duration::from_millis);
        if time.is_zero() || time > limits::RUN_TIME_MAX {
            let max = limits::RUN_TIME_MAX.as_millis();
            return bad(format!("a run may work from 1 to {max} milliseconds"));
        }
        let profile = self.profiles.profile(&Asked {
            label: order.label.as_deref(),
            repository: order.repository.as_deref(),
            project: order.project.as_deref(),
            agent_key: order.agent_key.as_deref(),
            runtime: order.runtime,
            namespace: order.namespace.as_deref(),
        });
        let order = RunOrder {
            project: profile.project.clone(),
            repository: profile.repository.clone(),
            agent_key: profile.agent_key.clone(),
            trigger_kind: TriggerKind::Manual,
            trigger_label: order.label,
            runtime: profile.runtime,
            namespace: profile.namespace.clone(),
            issue_number: order.issue_number,
            pull_request_number: order.pull_request_number,
            labels: order.labels,
            title: order.title,
            instructions: order.instructions,
            requested_by: by.id.clone(),
            time,
        };
        self.desk.enqueue(by, order, Some(&profile)).await
    }
}
