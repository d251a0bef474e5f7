//! `audit prune`: what a server does every hour, for a moment that a person names.

use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::ids::IdSource;
use countersign_store::Durability;
use serde_json::json;

use super::{Form, existing_record};
use crate::config::Flags;
use crate::start::{BadUsage, Started};
use crate::terminal::{Page, count};

pub(super) fn run(flags: &Flags, before: &str, form: Form) -> anyhow::Result<()> {
    let before = Timestamp::parse(before).map_err(|error| BadUsage(format!("`--before`: {error}")))?;
    if before > Clock::system().now() {
        return Err(BadUsage(format!(
            "`--before`: {before} is still to come, and every row is older; name a time that has passed"
        ))
        .into());
    }
    let started = Started::load(flags)?;
    existing_record(flags)?;
    let record = started.store(Durability::Power)?;
    let pruned = record.prune(before, &IdSource::random())?;
    let mut page = Page::stdout();
    match form {
        Form::Json => page.json(&json!({
            "before": before.to_string(),
            "up_to_seq": pruned.up_to,
            "rows": pruned.rows,
            "commands": pruned.commands,
            "held": pruned.is_held,
        }))?,
        Form::Text if pruned.rows == 0 && pruned.is_held => page.line(format_args!(
            "nothing was removed: a command that is open, or waits for an answer, holds the rows since it came, though they are \
             older than {before}; they go when it has ended"
        ))?,
        Form::Text if pruned.rows == 0 => {
            page.line(format_args!("nothing to remove: no row is older than {before}"))?
        }
        Form::Text => page.line(format_args!(
            "removed {} up to row {}, and the results of {}, behind a signed checkpoint",
            count(pruned.rows, "row"),
            pruned.up_to,
            count(pruned.commands, "command")
        ))?,
    }
    page.flush()
}
