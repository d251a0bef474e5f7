//! `config`: writes a first file, shows what is in force, describes the keys, trusts a project's file.

use crate::cli::Config;
use crate::commands::policy;
use crate::config::init::{self, Existing};
use crate::config::{self, Flags, Surroundings, schema, show};
use crate::start::{BadConfiguration, BadUsage, Started};
use crate::terminal::{Page, told};

pub(crate) fn run(flags: &Flags, command: &Config) -> anyhow::Result<()> {
    let mut page = Page::stdout();
    match command {
        Config::Init { force } => {
            let existing = if *force { Existing::Replace } else { Existing::Keep };
            page.line(write(flags, existing)?)?;
        }
        Config::Show { json: true } => page.json(&show::as_json(&Started::load(flags)?.settings))?,
        Config::Show { json: false } => {
            let text = show::as_yaml(&Started::load(flags)?.settings);
            told(page.raw().write_all(text.as_bytes()))?;
        }
        Config::Schema => page.json(&schema::json_schema())?,
        Config::Trust { file } => {
            let surroundings = Surroundings::of_this_process()?;
            let state_dir = config::find_state_dir(&surroundings, flags).map_err(BadConfiguration)?;
            // What would not be taken anyway is told now, not when the next server does not start.
            if file.is_file() {
                policy::check(flags, file)?;
            }
            let (path, digest) = config::trust(&state_dir, file)?;
            page.line(format_args!(
                "trusted `{}` as it is now (sha256 {digest}); a change ends that",
                path.display()
            ))?;
        }
    }
    page.flush()
}

/// Writes the named file, else the operator's.
fn write(flags: &Flags, existing: Existing) -> anyhow::Result<String> {
    let surroundings = Surroundings::of_this_process()?;
    let path = flags.config.clone().or_else(|| surroundings.operator_file());
    let path = path
        .ok_or_else(|| BadUsage("there is no home directory for the file; name one by `--config FILE`".to_owned()))?;
    let copy = init::write(&path, &init::text(&surroundings), existing)?;
    let copy = copy.map_or_else(String::new, |copy| {
        format!("\nthe file as it was is `{}`", copy.display())
    });
    Ok(format!(
        "wrote `{}`; edit it, then `countersign config show` prints what is in force{copy}",
        path.display()
    ))
}
