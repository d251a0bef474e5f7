//! `approvals list`.

use countersign_gateway::approval::lifecycle;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::event::ApprovalState;
use countersign_gateway::clock::{Clock, Timestamp};

use super::{Office, act, age, detail, short, tone};
use crate::commands::audit::Form;
use crate::config::Flags;
use crate::start;
use crate::terminal::{Cell, Page, Tone, shortened};

const COMMAND_CHARS_MAX: usize = 80;

/// The states that are asked for: those of a status of S1's, one state by its own name, or what is open.
pub(super) fn states(all: bool, status: Option<&str>) -> Vec<ApprovalState> {
    match status {
        Some(word) => {
            let named = |state: &ApprovalState| lifecycle::status(*state).as_str() == word || state.as_str() == word;
            ApprovalState::ALL.iter().copied().filter(named).collect()
        }
        None if all => Vec::new(),
        None => vec![ApprovalState::Pending],
    }
}

pub(super) fn run(flags: &Flags, states: Vec<ApprovalState>, limit: usize, form: Form) -> anyhow::Result<()> {
    let office = Office::look(flags)?;
    let only_open = states == [ApprovalState::Pending];
    let approvals = start::runtime()?.block_on(office.board.list(states, limit))?;
    let mut page = Page::stdout();
    match form {
        Form::Json => {
            let shown = approvals.iter().map(|approval| approval.to_json().to_string());
            page.array(&shown.collect::<Vec<_>>())?;
        }
        Form::Text => {
            let now = Clock::system().now();
            page.table(
                &approvals
                    .iter()
                    .map(|approval| cells(approval, now))
                    .collect::<Vec<_>>(),
            )?;
        }
    }
    page.flush()?;
    if approvals.is_empty() && form == Form::Text {
        start::say(if only_open {
            "nothing waits for a decision"
        } else {
            "there are none"
        });
    }
    Ok(())
}

/// Id, state, age, who asked, what, where.
pub(super) fn cells(approval: &ApprovalRequest, now: Timestamp) -> Vec<Cell> {
    vec![
        Cell::new(Tone::Strong, short(approval)),
        Cell::new(tone(approval.state()), approval.state().as_str()),
        Cell::new(Tone::Quiet, age(approval.created_at, now)),
        Cell::plain(&approval.requested_by),
        Cell::plain(shortened(act(approval), COMMAND_CHARS_MAX)),
        Cell::new(Tone::Quiet, format!("in {}", detail(approval, "cwd"))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_s1_names_all_its_states() {
        let words = |all, status| -> Vec<_> { states(all, status).iter().map(|state| state.as_str()).collect() };
        assert_eq!(words(false, None), ["pending"]);
        assert!(words(true, None).is_empty());
        assert_eq!(words(true, Some("denied")), ["denied", "expired", "withdrawn"]);
        assert_eq!(words(false, Some("approved")), ["approved", "applied", "failed"]);
        assert_eq!(words(false, Some("expired")), ["expired"]);
        assert_eq!(words(false, Some("auto-approved")), ["auto-approved"]);
    }
}
