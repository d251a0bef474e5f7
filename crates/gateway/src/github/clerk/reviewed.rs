//! A review that asks for changes becomes the revise of a stage, or a question where the stage is not clear.

use serde_json::json;

use super::labelled::Setting;
use super::{AT_ONCE, Clerk, Outcome, Undone, itself, labels_have, maker, person, unserved};
use crate::approval::question::{Answered, Offer};
use crate::approval::request::{ApprovalRequest, ApprovalType};
use crate::audit::Change;
use crate::audit::event::{ApprovalState, EventType};
use crate::audit::payload::Object;
use crate::audit::reading::{Filter, Pick};
use crate::github::IssueRef;
use crate::github::delivery::{Delivery, DeliveryChange};
use crate::github::labels::LabelChange;
use crate::github::resolver::{Known, Resolution, Step, Unclear, closes, resolve};
use crate::github::task::{ReviewTask, Task};
use crate::github::vocabulary::{IN_REVIEW, NEED_INPUT, STAGES, Trigger, revise, stage_meant};
use crate::ids::{ApprovalId, CredentialId};
use crate::run::lifecycle::TriggerKind;
use crate::run::state::Run;

/// How many events are looked through for the last stage.
const EVENTS_LOOKED_AT: usize = 500;
/// What is offered when nothing is known, and how one says that nothing is to be done.
const USUAL: [&str; 4] = ["dev", "design", "qa", "doc-audit"];
const NO_REVISE: &str = "no revise";

/// What was found out about a pull request.
struct Gathered {
    known: Known,
    last_run: Option<Run>,
}

impl Clerk {
    pub(super) async fn reviewed(&self, delivery: &Delivery, task: &ReviewTask) -> Result<Outcome, Undone> {
        let repository = task.pull_request.repository.as_str();
        if !self.parts.policies.serves(repository) {
            return Ok(Outcome::Nothing(unserved(repository)));
        }
        // On a public repository anybody may review, and what a review says is what an agent is told.
        if let Some(why) = self.unheard(&task.pull_request.repository, &task.sender).await? {
            return Ok(Outcome::Nothing(why));
        }
        let answer = match &task.question {
            None => None,
            Some(question) => match self.answered(question).await? {
                Reply::None => return Ok(Outcome::Waits),
                Reply::Lapsed(why) => return Ok(Outcome::Nothing(why)),
                Reply::Declined(why) => {
                    self.no_input_needed(delivery, task, None).await?;
                    return Ok(Outcome::Nothing(why));
                }
                Reply::Said(text) => Some(text),
            },
        };
        let mut task = task.clone();
        let chosen = answer.as_deref().and_then(|text| text.strip_prefix('#')?.parse().ok());
        task.chosen_issue = chosen.or(task.chosen_issue);
        let gathered = self.gather(&task).await?;
        let resolution = match answer.as_deref().filter(|text| STAGES.contains(text)) {
            Some(stage) => Resolution::Stage {
                stage: stage.to_owned(),
                step: Step::Owner,
                issue: match gathered.known.issues.as_slice() {
                    [one] => Some(*one),
                    [..] => None,
                },
            },
            None => resolve(&gathered.known),
        };
        match resolution {
            Resolution::Stage { stage, step, issue } => {
                self.revise(delivery, &task, &gathered, &stage, step, issue).await
            }
            Resolution::Unclear(unclear) => self.ask(delivery, &task, &gathered, &unclear).await,
        }
    }

    async fn gather(&self, task: &ReviewTask) -> Result<Gathered, Undone> {
        let of = &task.pull_request;
        let repository = of.repository.as_str();
        let pull_request_labels = self.parts.github.labels(of).await?;
        let history = self.runs_of(repository, None, Some(of.number)).await?;
        // A run that was asked for on the pull request itself does not say to which issue that belongs.
        let others = |run: &Run| run.issue_number.filter(|issue| *issue != of.number);
        let mut issues: Vec<u64> = history.iter().filter_map(others).collect();
        issues.sort_unstable();
        issues.dedup();
        if issues.is_empty() {
            issues = closes(&task.body);
        }
        if let Some(chosen) = task.chosen_issue {
            issues = vec![chosen];
        }
        let mut known = Known {
            pull_request_labels,
            issues,
            ..Known::default()
        };
        let mut last_run = maker(history);
        if let [issue] = known.issues.as_slice() {
            let number = *issue;
            let issue = IssueRef { number, ..of.clone() };
            known.issue_labels = self.parts.github.labels(&issue).await?;
            if last_run.is_none() {
                last_run = self.runs_of(repository, Some(number), None).await?.into_iter().next();
            }
        }
        known.last_run = last_run.as_ref().and_then(|run| run.trigger_label.clone());
        known.last_transition = self.last_transition(of, &known.issues).await?;
        Ok(Gathered { known, last_run })
    }

    /// The last stage label that the record saw put on this pull request or its issue.
    async fn last_transition(&self, of: &IssueRef, issues: &[u64]) -> Result<Option<String>, Undone> {
        let filter = Filter {
            event_type: Some(EventType::LabelApplied),
            limit: EVENTS_LOOKED_AT,
            pick: Pick::Newest,
            ..Filter::everything()
        };
        let rows = self.parts.records.events(filter).await?;
        let of_these = |number: Option<u64>| number.is_some_and(|it| it == of.number || issues.contains(&it));
        Ok(rows.iter().rev().find_map(|row| {
            let payload = row.payload().ok()?;
            let repository = payload["repository"].as_str().unwrap_or_default();
            let is_it = repository.eq_ignore_ascii_case(of.repository.as_str());
            let same = is_it && of_these(payload["issue_number"].as_u64());
            let added = payload["add"].as_array().filter(|_| same)?;
            let mut added = added.iter().filter_map(|label| label.as_str());
            added.find(|label| Trigger::of(label).is_some()).map(str::to_owned)
        }))
    }

    async fn revise(
        &self,
        delivery: &Delivery,
        task: &ReviewTask,
        gathered: &Gathered,
        stage: &str,
        step: Step,
        issue: Option<u64>,
    ) -> Result<Outcome, Undone> {
        if let Some(reviewed) = &gathered.last_run {
            let by = person(&task.sender);
            self.note_review(reviewed, false, &by).await?;
        }
        let label = revise(stage);
        let target = IssueRef {
            number: issue.unwrap_or(task.pull_request.number),
            ..task.pull_request.clone()
        };
        let change = LabelChange {
            add: vec![label.clone()],
            remove: vec![format!("run:{stage}"), NEED_INPUT.to_owned(), IN_REVIEW.to_owned()],
        };
        // Our own account puts it on, which sets off nothing; the run is enqueued below.
        let errand = self.errand(&delivery.correlation_id, None, "run.revise.stage_resolved");
        self.parts.labels.change(&target, &change, &errand).await?;
        self.no_input_needed(delivery, task, Some(&target)).await?;
        self.settle_earlier(delivery, task, &target).await?;
        let is_up = labels_have(&gathered.known.pull_request_labels, IN_REVIEW);
        if is_up && target != task.pull_request {
            let change = LabelChange {
                remove: vec![IN_REVIEW.to_owned()],
                ..LabelChange::default()
            };
            self.parts.labels.change(&task.pull_request, &change, &errand).await?;
        }
        let resolved = self
            .told(task, issue)
            .text("stage", stage)
            .text("step", step.as_str())
            .text("label", &label);
        let instructions = format!(
            "A review of pull request #{} by {} asks for changes:\n\n{}",
            task.pull_request.number, task.sender, task.review
        );
        let setting = Setting {
            target: &target,
            issue: Some(target.number),
            pull_request: Some(task.pull_request.number),
            kind: TriggerKind::Review,
            label: &label,
            title: &task.title,
            instructions: &instructions,
            sender: &task.sender,
            issue_labels: &gathered.known.issue_labels,
            pull_request_labels: &gathered.known.pull_request_labels,
            last_run: gathered.last_run.as_ref(),
            in_place_of: None,
        };
        self.set_off(delivery, &setting, vec![(EventType::RunStageResolved, resolved)])
            .await
    }

    /// Nobody knows which stage: says so where people look, and asks.
    async fn ask(
        &self,
        delivery: &Delivery,
        task: &ReviewTask,
        gathered: &Gathered,
        unclear: &Unclear,
    ) -> Result<Outcome, Undone> {
        let issue = match gathered.known.issues.as_slice() {
            [one] => Some(*one),
            [..] => None,
        };
        let target = IssueRef {
            number: issue.unwrap_or(task.pull_request.number),
            ..task.pull_request.clone()
        };
        let change = LabelChange {
            add: vec![NEED_INPUT.to_owned()],
            ..LabelChange::default()
        };
        let errand = self.errand(&delivery.correlation_id, None, unclear.code());
        self.parts.labels.change(&target, &change, &errand).await?;
        self.no_input_needed(delivery, task, Some(&target)).await?;
        self.remedy(delivery, &target, unclear).await?;
        let question = self.question(delivery, task, unclear)?;
        let opening = self.parts.board.opening(question, &itself());
        let posted = opening.change.approval.clone();
        let ambiguous = self
            .told(task, issue)
            .text("delivery_id", &delivery.id)
            .text("reason", unclear.code())
            .text("message", &unclear.sentence())
            .text("approval_id", posted.id.as_str());
        let mut events = vec![self.event(&delivery.correlation_id, EventType::RunStageAmbiguous, ambiguous)];
        events.extend(opening.events);
        let mut next = delivery.clone();
        next.version += 1;
        next.task = Some(Task::Review(ReviewTask {
            question: Some(posted.id.clone()),
            asked_on: Some(target.number),
            ..task.clone()
        }));
        let change = Change {
            events,
            approvals: vec![opening.change],
            deliveries: vec![DeliveryChange {
                delivery: next,
                from: Some(delivery.version),
            }],
            ..Change::default()
        };
        self.parts.record.commit(change).await?;
        self.parts.board.show(&posted);
        Ok(Outcome::Waits)
    }

    /// The question was answered: what it was asked on needs no input any longer. Its labels may be settled already, where
    /// the answer leads to the same place.
    async fn no_input_needed(
        &self,
        delivery: &Delivery,
        task: &ReviewTask,
        settled: Option<&IssueRef>,
    ) -> Result<(), Undone> {
        let Some(number) = task
            .asked_on
            .filter(|number| settled.is_none_or(|it| it.number != *number))
        else {
            return Ok(());
        };
        let asked_on = IssueRef {
            number,
            ..task.pull_request.clone()
        };
        let change = LabelChange {
            remove: vec![NEED_INPUT.to_owned()],
            ..LabelChange::default()
        };
        let errand = self.errand(&delivery.correlation_id, None, Step::Owner.as_str());
        self.parts.labels.change(&asked_on, &change, &errand).await?;
        Ok(())
    }

    /// Whoever reviewed it asked again, and now it is clear: nobody needs to answer what was unclear before.
    async fn settle_earlier(&self, delivery: &Delivery, task: &ReviewTask, target: &IssueRef) -> Result<(), Undone> {
        let of = &task.pull_request;
        let is_earlier = |other: &Delivery| other.id != delivery.id && other.received_at <= delivery.received_at;
        for other in self.pending().await?.into_iter().filter(is_earlier) {
            let Some(Task::Review(asked)) = &other.task else {
                continue;
            };
            let is_same = asked.pull_request.number == of.number
                && asked
                    .pull_request
                    .repository
                    .as_str()
                    .eq_ignore_ascii_case(of.repository.as_str())
                && asked.sender.eq_ignore_ascii_case(&task.sender);
            let Some(question) = asked.question.as_ref().filter(|_| is_same) else {
                continue;
            };
            let why = "its reviewer asked for changes again";
            self.parts.board.withdraw(question, &itself(), why).await?;
            self.no_input_needed(&other, asked, Some(target)).await?;
        }
        Ok(())
    }

    /// All deliveries whose work is still to be done.
    async fn pending(&self) -> Result<Vec<Delivery>, Undone> {
        let mut limit = AT_ONCE;
        loop {
            let found = self.parts.deliveries.pending_deliveries(self.now(), limit).await?;
            if found.len() < limit {
                return Ok(found);
            }
            limit *= 2;
        }
    }

    /// One comment that says what to do.
    async fn remedy(&self, delivery: &Delivery, target: &IssueRef, unclear: &Unclear) -> Result<(), Undone> {
        let mark = format!("<!-- countersign:review:{} -->", delivery.id);
        if self.parts.github.find_comment(target, &mark).await?.is_some() {
            return Ok(());
        }
        let body = format!(
            "{mark}\n### Which stage is to be done over?\n\nA review asks for changes, but {} (`{}`).\n\n**Next steps**\n\n\
             - **Answer the question**: in the console, or with `countersign approvals list`\n\
             - **Or leave one stage**: take off all `run:*` labels but the one that is meant, and ask for changes again\n",
            unclear.sentence(),
            unclear.code()
        );
        self.parts.github.create_comment(target, body).await?;
        Ok(())
    }

    fn question(&self, delivery: &Delivery, task: &ReviewTask, unclear: &Unclear) -> Result<ApprovalRequest, Undone> {
        let mut options = match unclear {
            Unclear::Issues(issues) => issues.iter().map(|number| format!("#{number}")).collect(),
            Unclear::Stages { .. } | Unclear::NotResolved => unclear.offered(),
        };
        if options.is_empty() {
            options = USUAL.map(str::to_owned).to_vec();
        }
        options.truncate(4);
        options.push(NO_REVISE.to_owned());
        let asked = format!(
            "A review of {} asks for changes, but {}. Which is meant?",
            task.pull_request,
            unclear.sentence()
        );
        let offer = Offer::new(&asked, &options, true).map_err(|error| super::conflict(&error.to_string()))?;
        let mut request = ApprovalRequest::new(
            self.parts.ids.approval(),
            ApprovalType::Question,
            delivery.correlation_id.clone(),
            CredentialId::trusted("system:github"),
            self.now(),
        );
        request.requested_by = itself().id;
        request.tool = "owner.feedback.request".to_owned();
        request.binding = format!("review:{}:{}", delivery.id, delivery.version);
        request.details = offer.details();
        request.details.insert("reason".to_owned(), json!(unclear.code()));
        request
            .details
            .insert("repository".to_owned(), json!(task.pull_request.repository.as_str()));
        request
            .details
            .insert("pull_request_number".to_owned(), json!(task.pull_request.number));
        Ok(request)
    }

    async fn answered(&self, question: &ApprovalId) -> Result<Reply, Undone> {
        let Some(found) = self.parts.board.find(question).await? else {
            return Ok(Reply::Lapsed("its question is gone".to_owned()));
        };
        let unanswered = || "its question was not answered with a stage".to_owned();
        let said = match (found.state(), found.answer()) {
            (ApprovalState::Pending, _) => return Ok(Reply::None),
            (ApprovalState::Expired | ApprovalState::Withdrawn, _) => return Ok(Reply::Lapsed(unanswered())),
            (
                ApprovalState::Approved | ApprovalState::AutoApproved | ApprovalState::Applied | ApprovalState::Failed,
                Some(Answered::Option { text, .. } | Answered::Custom(text)),
            ) => text.trim().to_owned(),
            (
                ApprovalState::Approved
                | ApprovalState::AutoApproved
                | ApprovalState::Applied
                | ApprovalState::Failed
                | ApprovalState::Denied,
                _,
            ) => return Ok(Reply::Declined(unanswered())),
        };
        Ok(match stage_meant(&said) {
            Some(stage) => Reply::Said(stage.to_owned()),
            None if said.starts_with('#') => Reply::Said(said),
            None if said == NO_REVISE => Reply::Declined("the owner wants no revise".to_owned()),
            None => Reply::Declined("the owner's answer is no stage".to_owned()),
        })
    }

    fn told(&self, task: &ReviewTask, issue: Option<u64>) -> Object {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let object = Object::new()
            .text("repository", task.pull_request.repository.as_str())
            .whole("pull_request_number", whole(task.pull_request.number))
            .text("reviewer", &task.sender);
        match issue {
            Some(issue) => object.whole("issue_number", whole(issue)),
            None => object,
        }
    }
}

/// What became of a question.
enum Reply {
    None,
    /// Nobody answered, for this reason; whoever looks at GitHub is still to say something.
    Lapsed(String),
    /// Somebody did, and nothing follows from it, for this reason.
    Declined(String),
    Said(String),
}
