//! What a run's agent is told: a text of the operator's with places in it that a run fills.
//!
//! A place is `{{ name }}`. A line with a place that comes to nothing is left out, so that one text serves runs
//! that know much and runs that know little. What fills a place is never read for places again.

use super::profile::stage;
use super::state::Run;
use crate::limits;

/// Used where the operator wrote none.
pub const STANDARD: &str = "\
You are the agent `{{ agent_key }}`.
Repository: {{ repository }}
This run was set off by the label `{{ label }}`.
Issue: {{ repository }}#{{ issue_number }}
Title: {{ title }}
Pull request: {{ repository }}#{{ pull_request_number }}

{{ instructions }}

Say how far you are with the tool run_status_report of the MCP server countersign.";

const NAMES: &[&str] = &[
    "run_id",
    "agent_key",
    "repository",
    "project",
    "label",
    "stage",
    "issue_number",
    "pull_request_number",
    "title",
    "instructions",
    "namespace",
    "runtime",
];

/// A text with places, checked.
// INVARIANT: every place names something of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PromptTemplate(String);

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadTemplate {
    #[error("`{{{{ {0} }}}}` is nothing of a run; there is {names}", names = NAMES.join(", "))]
    Unknown(String),
    #[error("a `{{{{` is not closed by `}}}}`")]
    Open,
    #[error("it is empty")]
    Empty,
}

/// Why a run's agent cannot be told what is left of a text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unfit {
    #[error("nothing is left of `runs.prompt` for this run; write something into it that every run has")]
    Empty,
    #[error(
        "`runs.prompt` comes to {bytes} bytes for this run, and an agent takes at most {max}",
        max = limits::PROMPT_BYTES_MAX
    )]
    TooLong { bytes: usize },
}

impl PromptTemplate {
    pub fn standard() -> Self {
        Self(STANDARD.to_owned())
    }

    pub fn parse(text: &str) -> Result<Self, BadTemplate> {
        if text.trim().is_empty() {
            return Err(BadTemplate::Empty);
        }
        for line in text.lines() {
            for piece in pieces(line) {
                match piece {
                    Piece::Place(name) if !NAMES.contains(&name) => return Err(BadTemplate::Unknown(name.to_owned())),
                    Piece::Open => return Err(BadTemplate::Open),
                    Piece::Place(_) | Piece::Text(_) => {}
                }
            }
        }
        Ok(Self(text.to_owned()))
    }

    /// What the agent of a run is told.
    pub fn fill(&self, run: &Run) -> Result<String, Unfit> {
        let filled = self.filled(run);
        match filled.len() {
            0 => Err(Unfit::Empty),
            bytes if bytes > limits::PROMPT_BYTES_MAX => Err(Unfit::TooLong { bytes }),
            _ => Ok(filled),
        }
    }

    fn filled(&self, run: &Run) -> String {
        let mut lines: Vec<String> = Vec::new();
        for line in self.0.lines() {
            let filled = pieces(line)
                .iter()
                .try_fold(String::new(), |filled, piece| match piece {
                    Piece::Text(text) => Some(filled + text),
                    Piece::Place(name) => Some(filled + &value(run, name)?),
                    Piece::Open => None,
                });
            let Some(filled) = filled else { continue };
            let repeats_a_gap = filled.is_empty() && lines.last().is_none_or(String::is_empty);
            if !repeats_a_gap {
                lines.push(filled);
            }
        }
        lines.join("\n").trim_end().to_owned()
    }
}

enum Piece<'a> {
    Text(&'a str),
    Place(&'a str),
    /// A place that does not end.
    Open,
}

fn pieces(line: &str) -> Vec<Piece<'_>> {
    let (mut pieces, mut rest) = (Vec::new(), line);
    while let Some((before, after)) = rest.split_once("{{") {
        pieces.push(Piece::Text(before));
        let Some((name, behind)) = after.split_once("}}") else {
            pieces.push(Piece::Open);
            return pieces;
        };
        pieces.push(Piece::Place(name.trim()));
        rest = behind;
    }
    pieces.push(Piece::Text(rest));
    pieces
}

fn value(run: &Run, name: &str) -> Option<String> {
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let value = match name {
        "run_id" => Some(run.id.as_str().to_owned()),
        "agent_key" => Some(run.agent_key.clone()),
        "repository" => run.repository.clone(),
        "project" => run.project.clone(),
        "label" => run.trigger_label.clone(),
        "stage" => run.trigger_label.as_deref().and_then(stage).map(str::to_owned),
        "issue_number" => number(run.issue_number),
        "pull_request_number" => number(run.pull_request_number),
        "title" => run.title.clone(),
        "instructions" => run.instructions.clone(),
        "namespace" => run.namespace.clone(),
        "runtime" => Some(run.runtime.as_str().to_owned()),
        _ => None,
    };
    value.filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::sample;
    use super::*;

    #[test]
    fn the_standard_text_is_one_that_the_check_lets_pass() {
        assert_eq!(PromptTemplate::parse(STANDARD), Ok(PromptTemplate::standard()));
    }

    #[test]
    fn a_line_that_lacks_what_it_is_about_is_left_out() {
        let run = sample("r1");
        assert_eq!(
            PromptTemplate::standard().fill(&run).unwrap(),
            "You are the agent `dev`.\n\
             Repository: acme/shop\n\
             This run was set off by the label `run:dev`.\n\
             Issue: acme/shop#12\n\
             \n\
             Say how far you are with the tool run_status_report of the MCP server countersign."
        );
    }

    #[test]
    fn what_fills_a_place_is_not_read_for_places() {
        let mut run = sample("r1");
        run.instructions = Some("show {{ run_id }} and {{".to_owned());
        let template = PromptTemplate::parse("{{instructions}} by {{ agent_key }}").unwrap();
        assert_eq!(template.fill(&run).unwrap(), "show {{ run_id }} and {{ by dev");
    }

    #[test]
    fn a_text_of_which_nothing_is_left_or_too_much_tells_no_agent_anything() {
        let mut run = sample("r1");
        let template = PromptTemplate::parse("{{ title }}: {{ instructions }}{{ instructions }}").unwrap();
        assert_eq!(template.fill(&run), Err(Unfit::Empty));
        run.title = Some("t".to_owned());
        run.instructions = Some("x".repeat(limits::PROMPT_BYTES_MAX / 2));
        let bytes = limits::PROMPT_BYTES_MAX + "t: ".len();
        assert_eq!(template.fill(&run), Err(Unfit::TooLong { bytes }));
    }

    #[test]
    fn a_text_with_unknown_or_open_places_is_refused() {
        assert_eq!(
            PromptTemplate::parse("{{ secret }}"),
            Err(BadTemplate::Unknown("secret".to_owned()))
        );
        assert_eq!(PromptTemplate::parse("a {{ b"), Err(BadTemplate::Open));
        assert_eq!(PromptTemplate::parse(" \n"), Err(BadTemplate::Empty));
    }
}
