//! The issue map: which runs worked on which issue, as Markdown.

use std::collections::BTreeMap;

use super::keeping::{Link, LinkKind};
use super::state::Run;

/// A run with what it is tied to.
type Entry = (Run, Vec<Link>);

/// One table for each issue, the issues in order, each with its runs from the first to the last. What people
/// wrote is set so that it stays text.
pub fn markdown(runs: &[Entry]) -> String {
    let mut issues: BTreeMap<(Option<&str>, Option<u64>), Vec<&Entry>> = BTreeMap::new();
    for entry in runs {
        let run = &entry.0;
        let repository = run.repository.as_deref();
        issues.entry((repository, run.issue_number)).or_default().push(entry);
    }
    let mut text = "# Issue map\n".to_owned();
    if runs.is_empty() {
        text.push_str("\nThere are no runs.\n");
    }
    for ((repository, number), mut entries) in issues {
        entries.sort_by(|(one, _), (other, _)| {
            (one.created_at, one.id.as_str()).cmp(&(other.created_at, other.id.as_str()))
        });
        let heading = match (repository, number) {
            (Some(repository), Some(number)) => {
                format!("[{repository}#{number}](https://github.com/{repository}/issues/{number})")
            }
            (Some(repository), None) => format!("{repository}, no issue"),
            (None, _) => "No repository".to_owned(),
        };
        let title = entries.iter().rev().find_map(|(run, _)| run.title.as_deref());
        let title = title.map(|title| format!(": {}", plain(title))).unwrap_or_default();
        text.push_str(&format!("\n## {heading}{title}\n\n"));
        text.push_str("| Run | Label | Agent | Status | Pull request | Sessions and documents | Set off | Ended |\n");
        text.push_str("|---|---|---|---|---|---|---|---|\n");
        for (run, links) in entries {
            text.push_str(&row(run, links));
        }
    }
    text
}

fn row(run: &Run, links: &[Link]) -> String {
    let linked: Vec<String> = links
        .iter()
        .flat_map(|link| [&link.source, &link.target])
        .filter(|end| matches!(end.kind, LinkKind::Session | LinkKind::Document | LinkKind::Decision))
        .map(|end| format!("{} `{}`", end.kind.as_str(), plain(&end.id)))
        .collect();
    let ended = run.finished_at.map(|at| at.to_string()).unwrap_or_default();
    let status = match run.wait_state {
        Some(state) => format!("{} (waits: {})", run.status.as_str(), state.as_str()),
        None => run.status.as_str().to_owned(),
    };
    let cells = [
        format!("`{}`", run.id),
        run.trigger_label.as_deref().map(plain).unwrap_or_default(),
        plain(&run.agent_key),
        status,
        run.pull_request().unwrap_or_default(),
        linked.join(", "),
        run.created_at.to_string(),
        ended,
    ];
    format!("| {} |\n", cells.join(" | "))
}

/// Text that means nothing to Markdown, on one line.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => plain.push(' '),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' => {
                plain.push('\\');
                plain.push(c);
            }
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::sample;
    use super::*;

    #[test]
    fn a_map_has_a_table_for_each_issue_and_takes_no_markup_from_outside() {
        let mut first = sample("r1");
        first.title = Some("Fix | the <b>shop\nnow".to_owned());
        let mut other = sample("r2");
        other.issue_number = Some(3);
        let text = markdown(&[(first, Vec::new()), (other, Vec::new())]);
        assert_eq!(
            text,
            "# Issue map\n\
             \n## [acme/shop#3](https://github.com/acme/shop/issues/3)\n\n\
             | Run | Label | Agent | Status | Pull request | Sessions and documents | Set off | Ended |\n\
             |---|---|---|---|---|---|---|---|\n\
             | `r2` | run:dev | dev | pending |  |  | 1970-01-01T00:00:00.000Z |  |\n\
             \n## [acme/shop#12](https://github.com/acme/shop/issues/12): Fix \\| the \\<b\\>shop now\n\n\
             | Run | Label | Agent | Status | Pull request | Sessions and documents | Set off | Ended |\n\
             |---|---|---|---|---|---|---|---|\n\
             | `r1` | run:dev | dev | pending |  |  | 1970-01-01T00:00:00.000Z |  |\n"
        );
    }
}
