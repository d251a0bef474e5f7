//! Which label means what: S4's stages and the groups of the other labels.

/// Stages that have a `run:<stage>` and a `run:<stage>:revise`.
pub const STAGES: &[&str] = &[
    "intake",
    "vision",
    "prd",
    "arch",
    "design",
    "plan",
    "dev",
    "doc-audit",
    "qa",
    "release",
    "postdeploy",
    "ops",
    "self-improve",
];
/// Runs that are never revised.
const ONCE: &[&str] = &["ai-repair", "rethink"];

pub const NEED_INPUT: &str = "need:input";
/// Sets off a reviewer's run, on a pull request.
pub const NEED_REVIEWER: &str = "need:reviewer";
pub const IN_REVIEW: &str = "state:in-review";
pub const APPROVED: &str = "state:approved";
/// What is run for an issue with this label is talk: nothing is changed, and nothing is put up for review.
pub const DISCUSSION: &str = "mode:discussion";

/// Groups of which an issue carries one label at most, by how their labels begin.
const PROFILE_GROUPS: &[(&str, &str)] = &[("model", "[ai-model-"), ("reasoning", "[ai-reasoning-")];

/// Characters that GitHub takes in the name of a label.
pub const LABEL_CHARS_MAX: usize = 50;
/// Labels that GitHub takes on one issue.
pub const LABELS_MAX: usize = 100;

/// What a `run:*` label asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trigger<'a> {
    pub stage: &'a str,
    pub is_revise: bool,
}

impl<'a> Trigger<'a> {
    /// None for a label that sets off nothing.
    pub fn of(label: &'a str) -> Option<Self> {
        let rest = label.strip_prefix("run:")?;
        match rest.strip_suffix(":revise") {
            Some(stage) if STAGES.contains(&stage) => Some(Self { stage, is_revise: true }),
            Some(_) => None,
            None if STAGES.contains(&rest) || ONCE.contains(&rest) => Some(Self {
                stage: rest,
                is_revise: false,
            }),
            None => None,
        }
    }
}

/// The stage that somebody means, by its name or by a label of it.
pub fn stage_meant(words: &str) -> Option<&'static str> {
    let words = words.trim().to_ascii_lowercase();
    let name = words.strip_prefix("run:").unwrap_or(&words);
    let name = name.strip_suffix(":revise").unwrap_or(name);
    STAGES.iter().copied().find(|stage| *stage == name)
}

/// The label that asks for a stage to be done over.
pub fn revise(stage: &str) -> String {
    format!("run:{stage}:revise")
}

/// The stages that labels name, each once; a stage and its revise are one. Only stages that can be revised
/// are told, since that is what they are looked for.
pub fn stages<'a>(labels: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for label in labels {
        if let Some(trigger) = Trigger::of(label)
            && STAGES.contains(&trigger.stage)
            && !found.contains(&trigger.stage)
        {
            found.push(trigger.stage);
        }
    }
    found
}

/// Stages at the end of the list that belong to no flow.
const BESIDES: usize = 2;

/// What comes behind a stage, where the stages follow each other.
pub fn next(stage: &str) -> Option<&'static str> {
    let flow = &STAGES[..STAGES.len() - BESIDES];
    let place = flow.iter().position(|known| *known == stage)?;
    flow.get(place + 1).copied()
}

/// Whether this can be the name of a label.
pub fn is_label(name: &str) -> bool {
    let chars = name.chars().count();
    (1..=LABEL_CHARS_MAX).contains(&chars) && name.trim() == name && !name.chars().any(char::is_control)
}

/// The labels that configure a run, by group.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ProfileLabels {
    pub model: Option<String>,
    pub reasoning: Option<String>,
}

/// Two labels of a group of which there may be one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("failed_precondition: the labels {} are of one group; leave one of them", .labels.join(" and "))]
pub struct TwoOfAGroup {
    pub group: &'static str,
    pub labels: Vec<String>,
}

impl ProfileLabels {
    /// What some labels say; a group that they do not name stays open.
    pub fn of<'a>(labels: impl Iterator<Item = &'a str> + Clone) -> Result<Self, TwoOfAGroup> {
        let one = |group: &'static str, prefix: &str| {
            let of = |label: &&str| label.starts_with(prefix) && label.ends_with(']');
            let mut found: Vec<String> = labels.clone().filter(of).map(str::to_owned).collect();
            found.sort();
            found.dedup();
            if found.len() > 1 {
                return Err(TwoOfAGroup { group, labels: found });
            }
            let value = |label: String| label[prefix.len()..label.len() - 1].to_owned();
            Ok(found.pop().map(value).filter(|value| !value.is_empty()))
        };
        let [model, reasoning] = PROFILE_GROUPS else {
            unreachable!("there are two groups");
        };
        Ok(Self {
            model: one(model.0, model.1)?,
            reasoning: one(reasoning.0, reasoning.1)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_meant_by_its_name_or_by_a_label_of_it() {
        for words in ["qa", "QA", " Qa ", "run:qa", "run:QA:revise", "qa:revise"] {
            assert_eq!(stage_meant(words), Some("qa"), "{words}");
        }
        for words in ["", "run:", "qa or dev", "run:run:qa", "ai-repair", "later"] {
            assert_eq!(stage_meant(words), None, "{words}");
        }
    }

    #[test]
    fn a_run_label_names_a_stage_and_perhaps_its_revise() {
        let check = |label: &str, expected: Option<(&str, bool)>| {
            let found = Trigger::of(label).map(|it| (it.stage, it.is_revise));
            assert_eq!(found, expected, "{label}");
        };
        check("run:dev", Some(("dev", false)));
        check("run:self-improve:revise", Some(("self-improve", true)));
        check("run:ai-repair", Some(("ai-repair", false)));
        check("run:rethink:revise", None);
        check("run:nonsense", None);
        check("run:", None);
        check("Run:dev", None);
        check("state:in-review", None);
    }

    #[test]
    fn a_stage_and_its_revise_are_one() {
        assert_eq!(stages(["run:dev", "bug", "run:dev:revise", "run:ai-repair"]), ["dev"]);
        assert_eq!(stages(["run:dev", "run:qa:revise"]), ["dev", "qa"]);
    }

    #[test]
    fn stages_that_follow_each_other_lead_on_to_operations() {
        assert_eq!(next("dev"), Some("doc-audit"));
        assert_eq!(next("release"), Some("postdeploy"));
        for last in ["postdeploy", "ops", "self-improve", "ai-repair"] {
            assert_eq!(next(last), None, "{last}");
        }
    }

    #[test]
    fn two_labels_of_a_group_are_no_profile() {
        let of = |labels: &[&'static str]| ProfileLabels::of(labels.iter().copied());
        let both = of(&["[ai-model-gpt-5]", "bug", "[ai-reasoning-high]"]).unwrap();
        assert_eq!(
            (both.model.as_deref(), both.reasoning.as_deref()),
            (Some("gpt-5"), Some("high"))
        );
        assert_eq!(of(&["bug"]).unwrap(), ProfileLabels::default());
        let two = of(&["[ai-model-b]", "[ai-model-a]"]).unwrap_err();
        assert_eq!(two.group, "model");
        assert!(two.to_string().contains("[ai-model-a] and [ai-model-b]"), "{two}");
        assert!(of(&["[ai-model-a]", "[ai-model-a]"]).is_ok(), "one label is no two");
    }

    #[test]
    fn a_label_has_up_to_fifty_characters_on_one_line() {
        let long = "x".repeat(LABEL_CHARS_MAX);
        for good in ["bug", "run:dev:revise", "good first issue", &long] {
            assert!(is_label(good), "{good}");
        }
        for bad in ["", " bug", "a\nb", &format!("{long}x")] {
            assert!(!is_label(bad), "{bad}");
        }
    }
}
