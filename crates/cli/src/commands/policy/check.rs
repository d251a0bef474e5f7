//! `policy check`: one file, read as if it were the operator's, with nothing else around it but the variables that
//! it takes secrets from.

use std::path::Path;

use crate::absent;
use crate::config::{self, Flags, Problem, Problems, Settings, Source, Surroundings};
use crate::idle;
use crate::policy;
use crate::start::{self, BadConfiguration};
use crate::terminal::Page;

/// A directory that cannot hold a file, so that no operator's file is found.
const NO_DIRECTORY: &str = "/dev/null";

/// Variables that would speak in the file's place.
const SPEAKING: [&str; 3] = ["ALLOWED_COMMANDS", "ALLOWED_CWD_ROOTS", "COUNTERSIGN_DATABASE"];

pub(super) fn run(flags: &Flags, file: &Path) -> anyhow::Result<()> {
    for warning in check(flags, file)? {
        start::say(&format!("warning: {warning}"));
    }
    let mut page = Page::stdout();
    page.line(format_args!("`{}` has no problems", file.display()))?;
    page.flush()
}

/// What is worth knowing of a file that has no problems; one that has is an error.
pub(crate) fn check(flags: &Flags, file: &Path) -> anyhow::Result<Vec<String>> {
    let mut surroundings = Surroundings::of_this_process()?;
    let path = surroundings.current_dir.join(file);
    // What the environment says is not the file's fault.
    surroundings
        .variables
        .retain(|name, _| !SPEAKING.contains(&name.as_str()));
    surroundings
        .variables
        .insert("XDG_CONFIG_HOME".to_owned(), NO_DIRECTORY.to_owned());
    let alone = Flags {
        config: Some(path.clone()),
        state_dir: flags.state_dir.clone(),
        ..Flags::default()
    };

    let (problems, warnings) = match config::problems_of_tool_file(&path, &surroundings) {
        Some(problems) => (problems, Vec::new()),
        None => match config::load(&surroundings, &alone) {
            Ok(settings) => match policy::effective(&settings) {
                Ok(policy) => {
                    // Where it is used the variables may be set, and the files there.
                    let missing = settings.missing_secrets(&surroundings).into_iter();
                    let missing = missing.map(|(_, problem)| problem.to_string());
                    let absent = absent::places(&settings, &policy.command).into_iter();
                    let absent = absent.chain(absent::programs(&settings, &policy.command));
                    let warnings = idle::entries(&policy).into_iter().chain(missing).chain(absent);
                    (Vec::new(), warnings.collect())
                }
                Err(error) => (of_policy(&settings, &error), Vec::new()),
            },
            // A project's file in the workspace and the environment take part in loading, but were not asked about.
            Err(Problems(all)) => {
                let asked_about = all.into_iter().filter(|problem| !is_elsewhere(problem));
                (asked_about.collect(), Vec::new())
            }
        },
    };
    match problems.is_empty() {
        true => Ok(warnings),
        false => Err(BadConfiguration(Problems(problems)).into()),
    }
}

/// What only the policy itself can judge.
fn of_policy(settings: &Settings, error: &anyhow::Error) -> Vec<Problem> {
    let problem = settings.held("command_policy.allowlist").map(|held| Problem {
        origin: held.origin.clone(),
        message: format!("{error:#}"),
    });
    problem.into_iter().collect()
}

fn is_elsewhere(problem: &Problem) -> bool {
    match problem.origin.source {
        Source::Project { .. } | Source::Environment(_) => true,
        Source::Default | Source::Operator(_) | Source::Named { .. } | Source::Flag(_) => false,
    }
}
