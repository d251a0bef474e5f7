//! A `run:*` label of an issue, or `need:reviewer` of a pull request, becomes a run.

use std::collections::BTreeSet;

use super::{Clerk, Outcome, Undone, ended, labels_have, person, unserved};
use crate::audit::event::EventType;
use crate::audit::payload::{Object, Payload};
use crate::audit::{Change, RecordError};
use crate::github::delivery::{Delivery, DeliveryState};
use crate::github::labels::LabelChange;
use crate::github::resolver::{self, ResolvedProfile};
use crate::github::task::LabelTask;
use crate::github::vocabulary::{NEED_INPUT, NEED_REVIEWER, Trigger, TwoOfAGroup};
use crate::github::{IssueRef, Trouble};
use crate::run::keeping::RunChange;
use crate::run::lifecycle::{RunStep, TriggerKind, recorded_as};
use crate::run::profile::{Asked, Profile};
use crate::run::state::{Run, RunOrder};
use crate::run::telling::{self, told};

/// What a run is set off with, whatever set it off.
pub(super) struct Setting<'a> {
    pub(super) target: &'a IssueRef,
    pub(super) issue: Option<u64>,
    pub(super) pull_request: Option<u64>,
    pub(super) kind: TriggerKind,
    pub(super) label: &'a str,
    pub(super) title: &'a str,
    pub(super) instructions: &'a str,
    pub(super) sender: &'a str,
    pub(super) issue_labels: &'a [String],
    pub(super) pull_request_labels: &'a [String],
    pub(super) last_run: Option<&'a Run>,
    /// A run at work that is called back for it, with the reason.
    pub(super) in_place_of: Option<(&'a Run, &'a str)>,
}

impl Clerk {
    pub(super) async fn labelled(&self, delivery: &Delivery, task: &LabelTask) -> Result<Outcome, Undone> {
        let repository = task.issue.repository.as_str();
        if !self.parts.policies.serves(repository) {
            return Ok(Outcome::Nothing(unserved(repository)));
        }
        let trigger = Trigger::of(&task.label);
        let is_review = task.label == NEED_REVIEWER;
        if trigger.is_none() && !is_review && !self.parts.policies.names_label(&task.label) {
            return Ok(Outcome::Nothing(format!(
                "`{}` is no stage, and policy does not name it",
                task.label
            )));
        }
        if let Some(why) = self.unheard(&task.issue.repository, &task.sender).await? {
            return Ok(Outcome::Nothing(why));
        }
        // Deliveries come late and in any order; what is so now counts.
        let labels = match self.parts.github.issue(&task.issue).await {
            Ok(facts) => facts.labels,
            Err(error) if error.kind == Trouble::NotFound => {
                return Ok(Outcome::Nothing(format!("{} is not there any more", task.issue)));
            }
            Err(error) => return Err(error.into()),
        };
        if !labels_have(&labels, &task.label) {
            return Ok(Outcome::Nothing(format!("`{}` has been taken off again", task.label)));
        }
        let history = self.runs_of(repository, Some(task.issue.number), None).await?;
        let pull_request = match is_review {
            true => Some(task.issue.number),
            false => history.iter().find_map(|run| run.pull_request_number),
        };
        if trigger.is_some_and(|it| it.is_revise && it.stage == "dev") && pull_request.is_none() {
            return self.nothing_to_revise(delivery, task).await;
        }
        let pull_request_labels = self.labels_beside(&task.issue, pull_request).await?;
        let setting = Setting {
            target: &task.issue,
            issue: Some(task.issue.number),
            pull_request,
            kind: TriggerKind::Label,
            label: &task.label,
            title: &task.title,
            instructions: &task.body,
            sender: &task.sender,
            issue_labels: &labels,
            pull_request_labels: &pull_request_labels,
            last_run: history.first(),
            in_place_of: None,
        };
        self.set_off(delivery, &setting, Vec::new()).await
    }

    /// Sets a run off together with the end of its delivery, and what else belongs to it.
    pub(super) async fn set_off(
        &self,
        delivery: &Delivery,
        setting: &Setting<'_>,
        more: Vec<(EventType, Object)>,
    ) -> Result<Outcome, Undone> {
        let repository = setting.target.repository.as_str();
        let profile = self.parts.policies.profile(&Asked {
            label: Some(setting.label),
            repository: Some(repository),
            ..Asked::default()
        });
        let last: Vec<String> = setting
            .last_run
            .map_or(Vec::new(), |run| run.labels.iter().cloned().collect());
        let resolved = resolver::profile(setting.issue_labels, setting.pull_request_labels, &last);
        let by = person(setting.sender);
        let order = RunOrder {
            project: profile.project.clone(),
            repository: Some(repository.to_owned()),
            agent_key: profile.agent_key.clone(),
            trigger_kind: setting.kind,
            trigger_label: Some(setting.label.to_owned()),
            runtime: profile.runtime,
            namespace: profile.namespace.clone(),
            issue_number: setting.issue,
            pull_request_number: setting.pull_request,
            labels: labels(setting, resolved.as_ref().ok()),
            title: Some(setting.title.to_owned()).filter(|title| !title.is_empty()),
            instructions: Some(setting.instructions.to_owned()).filter(|text| !text.is_empty()),
            requested_by: by.id.clone(),
            time: self.parts.run_time,
        };
        let (run, mut change) = self.parts.desk.enqueuing(&by, order)?;
        if let Some((before, reason)) = setting.in_place_of {
            let called_back = self.parts.desk.calling_back(&by, before, reason)?;
            change.events.splice(0..0, called_back.events);
            change.runs.splice(0..0, called_back.runs);
        }
        for (kind, payload) in more {
            let payload = payload
                .text("delivery_id", &delivery.id)
                .text("run_id", run.id.as_str());
            change.events.push(self.event(&run.correlation_id, kind, payload));
        }
        match &resolved {
            Ok(resolved) => change
                .events
                .push(self.profile_event(&run, &profile, resolved, &delivery.id)),
            Err(two) => self.fail_at_once(&run, two, &mut change)?,
        }
        change.deliveries.push(ended(delivery, DeliveryState::Done));
        match self.parts.record.commit(change).await {
            Ok(_) => {
                self.parts.board.announce();
                Ok(Outcome::Written)
            }
            Err(RecordError::RunMoved) if setting.in_place_of.is_none() => {
                let reason = format!("a run of `{}` waits for {} already", setting.label, setting.target);
                Ok(Outcome::Nothing(reason))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn profile_event(
        &self,
        run: &Run,
        profile: &Profile,
        resolved: &ResolvedProfile,
        delivery: &str,
    ) -> crate::audit::event::Draft {
        let mut sources = profile.sources();
        sources["model"] = resolved.model_by.into();
        sources["reasoning"] = resolved.reasoning_by.into();
        let payload = told(run)
            .optional_text("agent", profile.agent.as_deref())
            .optional_text("namespace", profile.namespace.as_deref())
            .optional_text("model", resolved.labels.model.as_deref())
            .optional_text("reasoning_effort", resolved.labels.reasoning.as_deref())
            .optional_text("mode", run.is_talk().then_some("discussion"))
            .part("sources", &Payload::from(&sources))
            .text("delivery_id", delivery);
        self.event(&run.correlation_id, EventType::RunProfileResolved, payload)
    }

    /// A run that must not begin is there and has failed, so that whoever asked for it sees why.
    fn fail_at_once(&self, run: &Run, two: &TwoOfAGroup, change: &mut Change) -> Result<(), Undone> {
        let now = self.now();
        let mut failed = run
            .after(RunStep::Fail, now)
            .map_err(|illegal| super::conflict(&illegal.to_string()))?;
        failed.reason = Some(two.to_string());
        let payload = told(&failed)
            .text("reason", &two.to_string())
            .text("error_code", "failed_precondition");
        let id = self.parts.ids.event();
        let kind = recorded_as(RunStep::Fail);
        change.events.push(telling::draft(
            &failed,
            id,
            now,
            super::itself(),
            kind,
            payload.finish(),
        ));
        change.runs.push(RunChange::over(run.version, failed));
        Ok(())
    }

    /// A development that has no pull request cannot be done over.
    async fn nothing_to_revise(&self, delivery: &Delivery, task: &LabelTask) -> Result<Outcome, Undone> {
        let change = LabelChange {
            add: vec![NEED_INPUT.to_owned()],
            remove: vec![task.label.clone()],
        };
        let errand = self.errand(&delivery.correlation_id, None, "run.revise.pr_not_found");
        self.parts.labels.change(&task.issue, &change, &errand).await?;
        let number = i64::try_from(task.issue.number).unwrap_or(i64::MAX);
        let payload = Object::new()
            .text("delivery_id", &delivery.id)
            .text("repository", task.issue.repository.as_str())
            .whole("issue_number", number)
            .text("label", &task.label)
            .text("reason", "no run of this issue has a pull request");
        let event = self.event(&delivery.correlation_id, EventType::RunPullRequestMissing, payload);
        let change = Change {
            events: vec![event],
            deliveries: vec![ended(delivery, DeliveryState::Done)],
            ..Change::default()
        };
        self.parts.record.commit(change).await?;
        Ok(Outcome::Written)
    }
}

/// The other labels, with what its profile came to: that is how a run's agent learns of it.
fn labels(setting: &Setting<'_>, resolved: Option<&ResolvedProfile>) -> BTreeSet<String> {
    let others = setting.issue_labels.iter().filter(|label| *label != setting.label);
    let mut labels: BTreeSet<String> = others.cloned().collect();
    if let Some(resolved) = resolved {
        let model = resolved
            .labels
            .model
            .as_ref()
            .map(|model| format!("[ai-model-{model}]"));
        let reasoning = resolved.labels.reasoning.as_ref();
        labels.extend(model);
        labels.extend(reasoning.map(|effort| format!("[ai-reasoning-{effort}]")));
    }
    labels
}
