//! Which stage a review that asks for changes is about: S4's four steps, the first that knows decides.
//!
//! More than one stage at a step is ambiguous at once: a later step must not settle what an earlier one leaves
//! open. Where no step knows, nobody knows.

use super::vocabulary::{ProfileLabels, TwoOfAGroup, stages};

/// What is known of a pull request when its review comes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Known {
    pub pull_request_labels: Vec<String>,
    /// Issues that it is linked with, by run history or by its body.
    pub issues: Vec<u64>,
    /// Labels of the issue, where there is one.
    pub issue_labels: Vec<String>,
    /// The label of the last run of this repository, issue and pull request.
    pub last_run: Option<String>,
    /// The last stage label that the record saw put on.
    pub last_transition: Option<String>,
}

/// Where a stage was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    PullRequest,
    Issue,
    LastRun,
    Transition,
    /// A person chose it.
    Owner,
}

impl Step {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PullRequest => "pull_request_labels",
            Self::Issue => "issue_labels",
            Self::LastRun => "last_run",
            Self::Transition => "flow_events",
            Self::Owner => "owner_feedback",
        }
    }
}

/// Which stage is to be done over.
#[must_use]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolution {
    Stage {
        stage: String,
        step: Step,
        /// The issue that it is asked for on.
        issue: Option<u64>,
    },
    Unclear(Unclear),
}

/// Why nobody knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unclear {
    /// Several stages at one step.
    Stages { step: Step, stages: Vec<String> },
    /// Several issues.
    Issues(Vec<u64>),
    /// No step knows.
    NotResolved,
}

impl Unclear {
    /// S4's reason codes.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Stages { .. } | Self::Issues(_) => "pull_request_review_stage_ambiguous",
            Self::NotResolved => "pull_request_review_stage_not_resolved",
        }
    }

    /// What is said to people.
    pub fn sentence(&self) -> String {
        match self {
            Self::Stages { step, stages } => {
                let found = match step {
                    Step::PullRequest => "the pull request's labels",
                    Step::Issue => "the issue's labels",
                    Step::LastRun => "the last run",
                    Step::Transition => "the record",
                    Step::Owner => "the answer",
                };
                format!("{found} name several stages: {}", stages.join(", "))
            }
            Self::Issues(issues) => {
                let issues: Vec<String> = issues.iter().map(|number| format!("#{number}")).collect();
                format!("the pull request belongs to several issues: {}", issues.join(", "))
            }
            Self::NotResolved => {
                "neither labels, nor runs, nor the record say which stage this pull request belongs to".to_owned()
            }
        }
    }

    /// The stages to choose from.
    pub fn offered(&self) -> Vec<String> {
        match self {
            Self::Stages { stages, .. } => stages.clone(),
            Self::Issues(_) | Self::NotResolved => Vec::new(),
        }
    }
}

/// The four steps.
pub fn resolve(known: &Known) -> Resolution {
    let issue = match known.issues.as_slice() {
        [] => None,
        [one] => Some(*one),
        [..] => None,
    };
    let texts = |labels: &[String]| -> Vec<String> {
        let found = stages(labels.iter().map(String::as_str));
        found.into_iter().map(str::to_owned).collect()
    };
    let of_one = |label: &Option<String>| texts(&label.iter().cloned().collect::<Vec<_>>());
    if let Some(resolution) = at(Step::PullRequest, texts(&known.pull_request_labels), issue) {
        // Which issue the label goes to must be as clear as the stage.
        return match resolution {
            Resolution::Stage { .. } if known.issues.len() > 1 => ambiguous_issues(known),
            other => other,
        };
    }
    if known.issues.len() > 1 {
        return ambiguous_issues(known);
    }
    let later = [
        (Step::Issue, texts(&known.issue_labels)),
        (Step::LastRun, of_one(&known.last_run)),
        (Step::Transition, of_one(&known.last_transition)),
    ];
    later
        .into_iter()
        .find_map(|(step, stages)| at(step, stages, issue))
        .unwrap_or(Resolution::Unclear(Unclear::NotResolved))
}

/// What one step says; nothing where it does not know.
fn at(step: Step, mut stages: Vec<String>, issue: Option<u64>) -> Option<Resolution> {
    match stages.len() {
        0 => None,
        1 => Some(Resolution::Stage {
            stage: stages.remove(0),
            step,
            issue,
        }),
        _ => Some(Resolution::Unclear(Unclear::Stages { step, stages })),
    }
}

fn ambiguous_issues(known: &Known) -> Resolution {
    Resolution::Unclear(Unclear::Issues(known.issues.clone()))
}

/// Issues that the body of a pull request says it closes: GitHub's own words before a number.
pub fn closes(body: &str) -> Vec<u64> {
    const WORDS: [&str; 9] = [
        "close", "closes", "closed", "fix", "fixes", "fixed", "resolve", "resolves", "resolved",
    ];
    let words: Vec<&str> = body.split_whitespace().collect();
    let mut found = Vec::new();
    for pair in words.windows(2) {
        let word = pair[0].trim_end_matches(':').to_ascii_lowercase();
        let word = word.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        if !WORDS.contains(&word) {
            continue;
        }
        let digits: String = match pair[1].strip_prefix('#') {
            Some(rest) => rest.chars().take_while(char::is_ascii_digit).collect(),
            None => continue,
        };
        if let Ok(number) = digits.parse::<u64>()
            && number > 0
            && !found.contains(&number)
        {
            found.push(number);
        }
    }
    found
}

/// Who configured a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedProfile {
    pub labels: ProfileLabels,
    pub model_by: &'static str,
    pub reasoning_by: &'static str,
}

/// A run's profile: issue labels, then pull request labels, then the last run's, then what is usual.
pub fn profile(issue: &[String], pull_request: &[String], last_run: &[String]) -> Result<ResolvedProfile, TwoOfAGroup> {
    let said = |labels: &[String]| ProfileLabels::of(labels.iter().map(String::as_str).collect::<Vec<_>>().into_iter());
    let sources = [
        ("issue_labels", said(issue)?),
        ("pull_request_labels", said(pull_request)?),
        // What was wrong with an earlier run is not held against this one.
        ("last_run", said(last_run).unwrap_or_default()),
    ];
    let first = |value: fn(&ProfileLabels) -> &Option<String>| {
        let found = sources
            .iter()
            .find_map(|(by, labels)| Some((value(labels).clone()?, *by)));
        found.map_or((None, "default"), |(value, by)| (Some(value), by))
    };
    let (model, model_by) = first(|labels| &labels.model);
    let (reasoning, reasoning_by) = first(|labels| &labels.reasoning);
    Ok(ResolvedProfile {
        labels: ProfileLabels { model, reasoning },
        model_by,
        reasoning_by,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn check(what: &str, known: &Known, expected: &Result<(&str, Step), &str>) {
        let found = resolve(known);
        let found = match &found {
            Resolution::Stage { stage, step, .. } => Ok((stage.as_str(), *step)),
            Resolution::Unclear(unclear) => Err(unclear.code()),
        };
        assert_eq!(found, *expected, "{what}");
    }

    #[test]
    fn the_first_step_that_knows_the_stage_decides() {
        let nothing = Known::default();
        let transition = Known {
            last_transition: Some("run:plan".to_owned()),
            ..nothing.clone()
        };
        let run = Known {
            last_run: Some("run:qa:revise".to_owned()),
            ..transition.clone()
        };
        let issue = Known {
            issues: vec![7],
            issue_labels: words(&["bug", "run:arch"]),
            ..run.clone()
        };
        let pull = Known {
            pull_request_labels: words(&["run:dev", "run:dev:revise"]),
            ..issue.clone()
        };
        check("nothing", &nothing, &Err("pull_request_review_stage_not_resolved"));
        check("the record", &transition, &Ok(("plan", Step::Transition)));
        check("the last run", &run, &Ok(("qa", Step::LastRun)));
        check("the issue", &issue, &Ok(("arch", Step::Issue)));
        check("the pull request", &pull, &Ok(("dev", Step::PullRequest)));
        assert_eq!(
            resolve(&pull),
            Resolution::Stage {
                stage: "dev".to_owned(),
                step: Step::PullRequest,
                issue: Some(7)
            }
        );
    }

    #[test]
    fn two_stages_at_one_step_are_not_settled_by_a_later_one() {
        let ambiguous = Err("pull_request_review_stage_ambiguous");
        let sure = Known {
            last_run: Some("run:dev".to_owned()),
            last_transition: Some("run:dev".to_owned()),
            ..Known::default()
        };
        let pull = Known {
            pull_request_labels: words(&["run:dev", "run:qa"]),
            issues: vec![7],
            issue_labels: words(&["run:dev"]),
            ..sure.clone()
        };
        check("the pull request", &pull, &ambiguous);
        let issue = Known {
            issues: vec![7],
            issue_labels: words(&["run:dev", "run:plan:revise"]),
            ..sure.clone()
        };
        check("the issue", &issue, &ambiguous);
        let issues = Known {
            issues: vec![7, 8],
            ..sure
        };
        check("several issues", &issues, &ambiguous);
        let named = Known {
            pull_request_labels: words(&["run:dev"]),
            ..issues
        };
        check("several issues of a named stage", &named, &ambiguous);
        assert_eq!(
            resolve(&pull),
            Resolution::Unclear(Unclear::Stages {
                step: Step::PullRequest,
                stages: words(&["dev", "qa"])
            })
        );
    }

    #[test]
    fn labels_that_are_never_revised_and_labels_that_are_none_say_nothing() {
        let known = Known {
            pull_request_labels: words(&["run:rethink", "run:nonsense", "state:in-review"]),
            last_run: Some("run:ai-repair".to_owned()),
            ..Known::default()
        };
        check(
            "nothing to revise",
            &known,
            &Err("pull_request_review_stage_not_resolved"),
        );
    }

    #[test]
    fn a_pull_request_closes_what_githubs_words_name() {
        for (body, expected) in [
            ("Closes #7", vec![7]),
            ("This fixes #7, and resolves: #8.", vec![7, 8]),
            ("closes #7 closes #7", vec![7]),
            ("see #7", vec![]),
            ("closes 7", vec![]),
            ("closes #0", vec![]),
            ("discloses #7", vec![]),
            ("- Fixed #12\n", vec![12]),
            ("", vec![]),
        ] {
            assert_eq!(closes(body), expected, "{body}");
        }
    }

    #[test]
    fn a_profile_comes_from_the_issue_then_the_pull_request_then_the_last_run() {
        let resolved = profile(
            &words(&["[ai-model-a]"]),
            &words(&["[ai-model-b]", "[ai-reasoning-low]"]),
            &words(&["[ai-reasoning-high]"]),
        );
        let resolved = resolved.unwrap();
        assert_eq!(
            (resolved.labels.model.as_deref(), resolved.model_by),
            (Some("a"), "issue_labels")
        );
        assert_eq!(
            (resolved.labels.reasoning.as_deref(), resolved.reasoning_by),
            (Some("low"), "pull_request_labels")
        );
        let last = profile(&[], &[], &words(&["[ai-model-c]"])).unwrap();
        assert_eq!((last.labels.model.as_deref(), last.model_by), (Some("c"), "last_run"));
        let usual = profile(&[], &[], &words(&["[ai-model-c]", "[ai-model-d]"])).unwrap();
        assert_eq!((usual.labels.model, usual.model_by), (None, "default"));
        assert!(profile(&words(&["[ai-model-a]", "[ai-model-b]"]), &[], &[]).is_err());
    }
}
