//! A pull request is tied to the run that made it, to the issue that it closes, and to the documents in it.

use std::path::Path;

use serde_json::Map;

use super::{Clerk, Outcome, Undone, ended, itself, maker, person, unserved};
use crate::audit::Change;
use crate::audit::event::EventType;
use crate::github::delivery::{Delivery, DeliveryState};
use crate::github::labels::LabelChange;
use crate::github::resolver::closes;
use crate::github::task::PullRequestTask;
use crate::github::vocabulary::{IN_REVIEW, Trigger};
use crate::github::{IssueRef, Trouble};
use crate::run::desk::end;
use crate::run::keeping::{HeadChange, Link, LinkEnd, LinkKind, LinkType, RunChange};
use crate::run::lifecycle::RunStatus;
use crate::run::state::Run;
use crate::run::telling::told;

/// Documents of one pull request that are linked.
const DOCUMENTS_MAX: usize = 100;

impl Clerk {
    pub(super) async fn pulled(&self, delivery: &Delivery, task: &PullRequestTask) -> Result<Outcome, Undone> {
        let repository = task.pull_request.repository.as_str();
        if !self.parts.policies.serves(repository) {
            return Ok(Outcome::Nothing(unserved(repository)));
        }
        let makers = self.makers(task).await?;
        if makers.is_empty() {
            return Ok(Outcome::Nothing("no run belongs to this pull request".to_owned()));
        }
        if task.is_closed {
            let by = match task.sender.ends_with("[bot]") {
                true => itself(),
                false => person(&task.sender),
            };
            let number = task.pull_request.number;
            for run in self.runs_of(repository, None, Some(number)).await? {
                self.note_review(&run, false, &by).await?;
            }
        }
        self.name_branch(&makers, task).await?;
        let documents = self.documents(&task.pull_request).await?;
        let mut change = Change {
            deliveries: vec![ended(delivery, DeliveryState::Done)],
            ..Change::default()
        };
        for run in &makers {
            self.tie(run, task, &documents, delivery, &mut change).await?;
        }
        if change.links.is_empty() {
            return Ok(Outcome::Nothing("all that is linked already".to_owned()));
        }
        self.parts.record.commit(change).await?;
        self.parts.board.announce();
        Ok(Outcome::Written)
    }

    /// Their agents worked on the branch that it comes from.
    async fn name_branch(&self, makers: &[Run], task: &PullRequestTask) -> Result<(), Undone> {
        let Some(branch) = &task.branch else { return Ok(()) };
        let heads = makers.iter().map(|run| HeadChange {
            run_id: run.id.clone(),
            branch: branch.clone(),
        });
        let change = Change {
            heads: heads.collect(),
            ..Change::default()
        };
        self.parts.record.commit(change).await?;
        Ok(())
    }

    /// The runs that it is of: the last one that names it, and for each issue that it closes the last that has
    /// begun, where that has no pull request yet.
    async fn makers(&self, task: &PullRequestTask) -> Result<Vec<Run>, Undone> {
        let repository = task.pull_request.repository.as_str();
        let number = task.pull_request.number;
        let known = self.runs_of(repository, None, Some(number)).await?;
        let mut makers: Vec<Run> = maker(known).into_iter().collect();
        for issue in closes(&task.body) {
            let runs = self.runs_of(repository, Some(issue), None).await?;
            let last = runs.into_iter().find(|run| run.started_at.is_some());
            makers.extend(last.filter(|run| run.pull_request_number.is_none()));
        }
        Ok(makers)
    }

    /// What is not linked yet, with the event that tells of it.
    async fn tie(
        &self,
        run: &Run,
        task: &PullRequestTask,
        documents: &[LinkEnd],
        delivery: &Delivery,
        change: &mut Change,
    ) -> Result<(), Undone> {
        let pull_request = LinkEnd {
            kind: LinkKind::PullRequest,
            id: task.pull_request.to_string(),
        };
        let link = |source: &LinkEnd, target: &LinkEnd, link_type| Link {
            source: source.clone(),
            target: target.clone(),
            link_type,
            metadata: Map::new(),
            created_at: self.now(),
        };
        let mut wanted = vec![link(&end(run), &pull_request, LinkType::References)];
        wanted.extend(documents.iter().map(|it| link(&end(run), it, LinkType::References)));
        let closed = closes(&task.body).into_iter().map(|number| LinkEnd {
            kind: LinkKind::Issue,
            id: IssueRef {
                number,
                ..task.pull_request.clone()
            }
            .to_string(),
        });
        wanted.extend(closed.map(|issue| link(&pull_request, &issue, LinkType::Implements)));
        let runs = &self.parts.runs;
        let mut known = runs.links_of(end(run)).await?;
        known.extend(runs.links_of(pull_request).await?);
        let is_new = |link: &Link| {
            !known
                .iter()
                .any(|it| (&it.source, &it.target, it.link_type) == (&link.source, &link.target, link.link_type))
        };
        wanted.retain(is_new);
        if wanted.is_empty() {
            return Ok(());
        }
        let mut next = run.clone();
        if run.pull_request_number.is_none() {
            next = run.changed(self.now());
            next.pull_request_number = Some(task.pull_request.number);
            self.put_up_for_review(run, task).await?;
            change.runs.push(RunChange::over(run.version, next.clone()));
        }
        let names = documents.iter().map(|it| it.id.as_str());
        let payload = told(&next)
            .texts("documents", names)
            .text("sender", &task.sender)
            .text("delivery_id", &delivery.id);
        let kind = EventType::RunPullRequestLinked;
        change.events.push(self.event(&run.correlation_id, kind, payload));
        change.links.extend(wanted);
        Ok(())
    }

    /// A development that ended before its pull request was known of could not put it up for review.
    async fn put_up_for_review(&self, run: &Run, task: &PullRequestTask) -> Result<(), Undone> {
        let trigger = run.trigger_label.as_deref().and_then(Trigger::of);
        let is_done = run.status == RunStatus::Succeeded && !run.is_talk() && !task.is_closed;
        if !is_done || trigger.is_none_or(|trigger| trigger.stage != "dev") {
            return Ok(());
        }
        let change = LabelChange {
            add: vec![IN_REVIEW.to_owned()],
            ..LabelChange::default()
        };
        let errand = self.errand(&run.correlation_id, Some(run), "run.pull_request.linked");
        self.parts.labels.change(&task.pull_request, &change, &errand).await?;
        self.note_review(run, true, &itself()).await
    }

    async fn documents(&self, pull_request: &IssueRef) -> Result<Vec<LinkEnd>, Undone> {
        let files = match self.parts.github.changed_files(pull_request).await {
            Ok(files) => files,
            Err(error) if error.kind == Trouble::NotFound => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let documents = files.into_iter().filter_map(document);
        Ok(documents.take(DOCUMENTS_MAX).collect())
    }
}

/// Text that people read is a document; one in a folder of decisions is a decision.
fn document(path: String) -> Option<LinkEnd> {
    const ENDINGS: [&str; 4] = ["md", "adoc", "rst", "mdx"];
    const DECISIONS: [&str; 4] = ["adr", "adrs", "decisions", "decision"];
    let place = Path::new(&path);
    let ending = place.extension()?.to_str()?.to_ascii_lowercase();
    if !ENDINGS.contains(&ending.as_str()) {
        return None;
    }
    let folders = place.parent().into_iter().flat_map(Path::components);
    let is_decision = folders
        .filter_map(|folder| folder.as_os_str().to_str())
        .any(|folder| DECISIONS.contains(&folder.to_ascii_lowercase().as_str()));
    let kind = match is_decision {
        true => LinkKind::Decision,
        false => LinkKind::Document,
    };
    Some(LinkEnd { kind, id: path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_people_read_is_a_document_and_in_a_folder_of_decisions_a_decision() {
        for (path, kind) in [
            ("docs/guide.md", Some(LinkKind::Document)),
            ("README.MD", Some(LinkKind::Document)),
            ("docs/adr/0001-x.md", Some(LinkKind::Decision)),
            ("docs/decisions/0001-x.rst", Some(LinkKind::Decision)),
            ("decisions.md", Some(LinkKind::Document)),
            ("src/main.rs", None),
            ("md", None),
        ] {
            assert_eq!(document(path.to_owned()).map(|it| it.kind), kind, "{path}");
        }
    }
}
