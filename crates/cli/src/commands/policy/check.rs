//! `policy check`: one file, read as if it were the operator's, with nothing else around it but the variables that
//! it takes secrets from.

use std::path::Path;

use crate::config::{self, Flags, Problem, Problems, Settings, Source, Surroundings};
use crate::policy;
use crate::start::BadConfiguration;
use crate::terminal::Page;

/// A directory that cannot hold a file, so that no operator's file is found.
const NO_DIRECTORY: &str = "/dev/null";

/// Variables that would speak in the file's place.
const SPEAKING: [&str; 3] = ["ALLOWED_COMMANDS", "ALLOWED_CWD_ROOTS", "COUNTERSIGN_DATABASE"];

pub(super) fn run(flags: &Flags, file: &Path) -> anyhow::Result<()> {
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

    let problems = match config::problems_of_tool_file(&path, &surroundings) {
        Some(problems) => problems,
        None => match config::load(&surroundings, &alone) {
            Ok(settings) => of_policy(&settings),
            // A project's file in the workspace and the environment take part in loading, but were not asked about.
            Err(Problems(all)) => all.into_iter().filter(|problem| !is_elsewhere(problem)).collect(),
        },
    };
    if !problems.is_empty() {
        return Err(BadConfiguration(Problems(problems)).into());
    }
    let mut page = Page::stdout();
    page.line(format_args!("`{}` has no problems", file.display()))?;
    page.flush()
}

/// What only the policy itself can judge.
fn of_policy(settings: &Settings) -> Vec<Problem> {
    let error = policy::effective(settings).err();
    let origin = settings
        .held("command_policy.allowlist")
        .map(|held| held.origin.clone());
    let problem = origin.zip(error).map(|(origin, error)| Problem {
        origin,
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
