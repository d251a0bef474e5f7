//! Which agent does a run's work, and in which surroundings: from what was asked for, else from what policy
//! says of its label and its project, else from what a stage usually is.

use serde_json::{Value, json};

use super::lifecycle::Runtime;
use crate::github::vocabulary::NEED_REVIEWER;
use crate::policy::tools::{Layers, ProjectPolicy};

/// Whose work a stage is, where no policy says otherwise.
#[rustfmt::skip]
const STAGES: &[(&str, &str)] = &[
    ("intake", "pm"), ("vision", "pm"), ("prd", "pm"),
    ("arch", "sa"), ("design", "sa"),
    ("plan", "em"),
    ("dev", "dev"), ("rethink", "dev"),
    ("doc-audit", "km"), ("self-improve", "km"),
    ("qa", "qa"), ("release", "em"), ("postdeploy", "qa"),
    ("ops", "sre"), ("ai-repair", "sre"),
];
/// For whatever is no stage that anybody knows.
const ANY: &str = "dev";

/// What is known of a run before it has a profile. What is named here is not looked up.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Asked<'a> {
    pub label: Option<&'a str>,
    pub repository: Option<&'a str>,
    pub project: Option<&'a str>,
    pub agent_key: Option<&'a str>,
    pub runtime: Option<Runtime>,
    pub namespace: Option<&'a str>,
}

/// What it came to, and who said so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    pub agent_key: String,
    /// The agent of the configuration, where the label's policy names one.
    pub agent: Option<String>,
    pub runtime: Runtime,
    pub project: Option<String>,
    /// As policy spells it, where policy names it: to GitHub large and small letters are the same.
    pub repository: Option<String>,
    pub namespace: Option<String>,
    agent_key_by: &'static str,
    runtime_by: &'static str,
    project_by: &'static str,
}

impl Profile {
    pub fn resolve(layers: &Layers, asked: &Asked<'_>) -> Self {
        let owned = |text: &str| text.to_owned();
        let label = asked.label.and_then(|label| layers.labels.get(label));
        let named = asked.repository.and_then(|repository| {
            let names = |(key, it): (&String, &ProjectPolicy)| {
                let name = it
                    .repositories
                    .iter()
                    .find(|name| name.eq_ignore_ascii_case(repository));
                name.map(|name| (key.clone(), name.clone()))
            };
            layers.projects.iter().find_map(names)
        });
        let repository = named.as_ref().map(|(_, name)| name.clone());
        let (project, project_by) = match (asked.project, named) {
            (Some(project), _) => (Some(owned(project)), "asked"),
            (None, Some((project, _))) => (Some(project), "project"),
            (None, None) => (None, "none"),
        };
        let (agent_key, agent_key_by) = match (asked.agent_key, label.and_then(|it| it.agent_key.clone())) {
            (Some(key), _) => (owned(key), "asked"),
            (None, Some(key)) => (key, "label"),
            (None, None) => (owned(usual(asked.label)), "default"),
        };
        let of_label = label.and_then(|it| Runtime::parse(it.runtime.as_deref()?));
        // What nobody gives is not given.
        let (runtime, runtime_by) = match (asked.runtime, of_label) {
            (Some(runtime), _) => (runtime, "asked"),
            (None, Some(runtime)) => (runtime, "label"),
            (None, None) => (Runtime::CodeOnly, "default"),
        };
        let of_project = project.as_ref().and_then(|key| layers.projects.get(key));
        Self {
            agent: label.and_then(|it| it.agent.clone()),
            namespace: asked
                .namespace
                .map(owned)
                .or_else(|| of_project.and_then(|it| it.namespace.clone())),
            agent_key,
            runtime,
            project,
            repository: repository.or_else(|| asked.repository.map(owned)),
            agent_key_by,
            runtime_by,
            project_by,
        }
    }

    /// Who said what.
    pub fn sources(&self) -> Value {
        json!({"agent_key": self.agent_key_by, "runtime": self.runtime_by, "project": self.project_by})
    }
}

/// The stage of a label: `dev` of `run:dev` and of `run:dev:revise`.
pub fn stage(label: &str) -> Option<&str> {
    let rest = label.strip_prefix("run:")?;
    Some(rest.strip_suffix(":revise").unwrap_or(rest))
}

fn usual(label: Option<&str>) -> &'static str {
    if label == Some(NEED_REVIEWER) {
        return "reviewer";
    }
    let stage = label.and_then(stage);
    let known = STAGES.iter().find(|(name, _)| Some(*name) == stage);
    known.map_or(ANY, |(_, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tools::LabelPolicy;

    fn layers() -> Layers {
        let mut layers = Layers::built_in();
        let label = LabelPolicy {
            agent_key: Some("sre".to_owned()),
            agent: Some("codex".to_owned()),
            runtime: Some("full-env".to_owned()),
            ..LabelPolicy::default()
        };
        layers.labels.insert("run:ops".to_owned(), label);
        let project = ProjectPolicy {
            repositories: vec!["acme/shop".to_owned()],
            namespace: Some("shop-dev".to_owned()),
            ..ProjectPolicy::default()
        };
        layers.projects.insert("shop".to_owned(), project);
        layers
    }

    #[test]
    fn a_profile_takes_what_is_asked_then_what_policy_says_then_what_is_usual() {
        let layers = layers();
        let ops = Asked {
            label: Some("run:ops"),
            repository: Some("acme/shop"),
            ..Asked::default()
        };
        let profile = Profile::resolve(&layers, &ops);
        assert_eq!(
            (profile.agent_key.as_str(), profile.agent.as_deref()),
            ("sre", Some("codex"))
        );
        assert_eq!(
            (profile.runtime, profile.project.as_deref()),
            (Runtime::FullEnv, Some("shop"))
        );
        assert_eq!(profile.namespace.as_deref(), Some("shop-dev"));
        assert_eq!(
            profile.sources(),
            json!({"agent_key": "label", "runtime": "label", "project": "project"})
        );
        let asked = Asked {
            agent_key: Some("dev"),
            runtime: Some(Runtime::CodeOnly),
            ..ops
        };
        let profile = Profile::resolve(&layers, &asked);
        assert_eq!(
            (profile.agent_key.as_str(), profile.runtime),
            ("dev", Runtime::CodeOnly)
        );
        let usual = |label| {
            let asked = Asked {
                label,
                ..Asked::default()
            };
            Profile::resolve(&layers, &asked)
        };
        for (label, key) in [
            (Some("run:qa:revise"), "qa"),
            (Some("run:arch"), "sa"),
            (Some("need:reviewer"), "reviewer"),
            (Some("run:nonsense"), "dev"),
            (None, "dev"),
        ] {
            assert_eq!(usual(label).agent_key, key, "{label:?}");
            assert_eq!(usual(label).runtime, Runtime::CodeOnly, "nothing is given unsaid");
        }
    }

    #[test]
    fn a_repository_is_its_projects_in_large_and_in_small_letters() {
        let layers = layers();
        let of = |repository| {
            let asked = Asked {
                repository: Some(repository),
                ..Asked::default()
            };
            let profile = Profile::resolve(&layers, &asked);
            (profile.project, profile.repository)
        };
        let shop = (Some("shop".to_owned()), Some("acme/shop".to_owned()));
        assert_eq!((of("acme/shop"), of("ACME/Shop")), (shop.clone(), shop));
        assert_eq!(of("acme/shops"), (None, Some("acme/shops".to_owned())));
    }

    #[test]
    fn a_stage_and_its_revise_are_one() {
        assert_eq!(stage("run:dev"), Some("dev"));
        assert_eq!(stage("run:dev:revise"), Some("dev"));
        assert_eq!(stage("state:blocked"), None);
    }
}
