//! `approvals list`.

use countersign_gateway::approval::ApprovalFilter;
use countersign_gateway::approval::lifecycle::{self, ApprovalStatus};
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::event::ApprovalState;
use countersign_gateway::clock::{Clock, Timestamp};

use super::{Office, act, age, detail, short, tone};
use crate::commands::audit::Form;
use crate::config::Flags;
use crate::start;
use crate::terminal::{Cell, Page, Tone, shortened};

const COMMAND_CHARS_MAX: usize = 80;

/// What is asked for: a status of S1's, one state by its own name, or what is open.
pub(super) fn filter(all: bool, status: Option<&str>, limit: usize) -> ApprovalFilter {
    let mut filter = ApprovalFilter {
        limit,
        ..ApprovalFilter::open()
    };
    match status {
        // A status of its own, whatever became of the act.
        Some(word) if word == ApprovalStatus::AutoApproved.as_str() => {
            filter.states = Vec::new();
            filter.automatic = Some(true);
        }
        Some(word) => {
            let named = |state: &ApprovalState| lifecycle::status(*state).as_str() == word || state.as_str() == word;
            filter.states = ApprovalState::ALL.iter().copied().filter(named).collect();
            let approved = word == ApprovalStatus::Approved.as_str();
            filter.automatic = approved.then_some(false);
        }
        None if all => filter.states = Vec::new(),
        None => {}
    }
    filter
}

pub(super) fn run(flags: &Flags, filter: ApprovalFilter, form: Form) -> anyhow::Result<()> {
    let office = Office::look(flags)?;
    let only_open = filter.states == [ApprovalState::Pending];
    let approvals = start::runtime()?.block_on(office.board.list(filter))?;
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
    let mut cells = vec![
        Cell::new(Tone::Strong, short(approval)),
        Cell::new(tone(approval.state()), approval.state().as_str()),
        Cell::new(Tone::Quiet, age(approval.created_at, now)),
        Cell::plain(&approval.requested_by),
        Cell::plain(shortened(act(approval), COMMAND_CHARS_MAX)),
    ];
    // Not every act happens at a place.
    if !detail(approval, "cwd").is_empty() {
        cells.push(Cell::new(Tone::Quiet, format!("in {}", detail(approval, "cwd"))));
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_s1_names_all_its_states() {
        let words = |all, status| -> Vec<_> {
            let states = filter(all, status, 9).states;
            states.iter().map(|state| state.as_str()).collect()
        };
        assert_eq!(words(false, None), ["pending"]);
        assert!(words(true, None).is_empty());
        assert_eq!(words(true, Some("denied")), ["denied", "expired", "withdrawn"]);
        assert_eq!(words(false, Some("approved")), ["approved", "applied", "failed"]);
        assert_eq!(words(false, Some("expired")), ["expired"]);
        assert_eq!(filter(false, Some("auto-approved"), 9).automatic, Some(true));
        assert_eq!(filter(false, Some("approved"), 9).automatic, Some(false));
        assert_eq!(filter(false, Some("applied"), 9).automatic, None);
    }
}
