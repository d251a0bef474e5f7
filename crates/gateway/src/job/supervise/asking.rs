//! An agent asks before it acts: policy answers, or a person does.
//!
//! A question goes the way of every other: written before anybody sees it, bound to this very act, decided
//! once. While somebody thinks the job's clock stands still. An agent that is taken up again asks with the
//! same words; it finds the question, or the answer, that is there.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::driver::{AgentAnswer, AgentQuestion, FileChange, FileChangeKind, QuestionAbout};
use super::super::event::{JobEvent, JobEventType};
use super::super::lifecycle::SubState;
use super::following::Follower;
use super::writing::{Lost, Writing, told};
use crate::approval::board::VouchError;
use crate::approval::proof::{self, Unproved, Use};
use crate::approval::request::{ApprovalChange, ApprovalRequest, ApprovalType};
use crate::approval::{ApprovalFilter, withheld};
use crate::audit::event::{Actor, ActorType, ApprovalState, EventType};
use crate::audit::redact::{Reading, Redactor};
use crate::ids::ApprovalId;
use crate::limits;
use crate::policy::agents::{Judged, Judgement};
use crate::policy::decide::Rule;

/// A question of an agent on the board.
pub(super) struct Asked {
    id: ApprovalId,
    /// Of the act that it was asked for.
    binding: String,
}

impl Follower {
    pub(super) async fn ask(&mut self, question: &AgentQuestion) -> Result<(), Lost> {
        let binding = self.binding(question);
        let before = self.supervisor.parts.board.bound(&self.job.owner, &binding).await;
        let has_failed = match &question.about {
            QuestionAbout::Command { command, .. } => self.failed.contains(command),
            QuestionAbout::Patch { .. } | QuestionAbout::Tool { .. } => false,
        };
        let parts = &self.supervisor.parts;
        let judged = parts.judge.judge(&self.job, &self.session, question, has_failed);
        if let Some(before) = before.map_err(Lost::Unrecorded)? {
            if self.still_counts(&before, &judged.policy_digest) {
                return self.asked_again(question, before, binding).await;
            }
            self.withdraw(&before.id, "it was given under another policy, or too long ago")
                .await;
        }
        let parts = &self.supervisor.parts;
        match &judged.judgement {
            Judgement::Allow(rule) => {
                let reason = rule.reason.clone();
                let approval = self
                    .about(question, &judged, rule, &binding)
                    .answered_by_whitelist(&reason);
                self.let_go(question, approval).await
            }
            Judgement::Deny(rule) => {
                let rule = rule.clone();
                self.refuse(question, &rule).await
            }
            Judgement::Ask(rule) => {
                let has_room = parts.board.has_room(&self.job.owner).await;
                if !has_room.map_err(Lost::Unrecorded)? {
                    let full = Rule {
                        reason: "too many questions of this caller are open".to_owned(),
                        ..rule.clone()
                    };
                    return self.refuse(question, &full).await;
                }
                let approval = self.about(question, &judged, rule, &binding);
                self.show(question, approval).await
            }
        }
    }

    /// Whether what became of the same question is the answer to this one. A yes is good for one act: it is told
    /// again only to an agent that worked on while its server was gone, and perhaps never heard it. What was taken
    /// back is a new question when it is asked again.
    fn still_counts(&self, before: &ApprovalRequest, policy: &str) -> bool {
        let now = self.supervisor.parts.clock.now();
        let age = now.since(before.resolved_at.unwrap_or(now));
        let is_fresh = before.policy_digest == policy && age < limits::APPROVAL_USABLE_FOR;
        match before.state() {
            ApprovalState::Pending | ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Failed => true,
            ApprovalState::Approved => is_fresh,
            ApprovalState::Applied | ApprovalState::AutoApproved => {
                is_fresh && self.is_attached && !self.answered.contains(&before.id)
            }
            ApprovalState::Withdrawn => false,
        }
    }

    /// The same question, from an agent that was taken up again.
    async fn asked_again(
        &mut self,
        question: &AgentQuestion,
        before: ApprovalRequest,
        binding: String,
    ) -> Result<(), Lost> {
        self.unasked.remove(&before.id);
        let asked = Asked {
            id: before.id.clone(),
            binding,
        };
        if !before.is_pending() {
            self.questions.insert(question.id.clone(), asked);
            return self.decided(before).await;
        }
        if self.questions.values().any(|asked| asked.id == before.id) {
            return Ok(());
        }
        let mut writing = Writing::of(self.job.changed(self.supervisor.parts.clock.now()));
        self.pause(&mut writing);
        self.write(writing).await?;
        self.wait_for(question, asked);
        Ok(())
    }

    /// The whitelist, or the mode, answers for a person.
    async fn let_go(&mut self, question: &AgentQuestion, approval: ApprovalRequest) -> Result<(), Lost> {
        let mut writing = Writing::of(self.job.changed(self.supervisor.parts.clock.now()));
        writing.job.metrics.approval_count += 1;
        let payload = told(&writing.job)
            .text("approval_id", approval.id.as_str())
            .text("type", approval.kind.as_str())
            .text("rule", approval.details["rule"].as_str().unwrap_or_default())
            .text("reason", approval.decision_reason.as_deref().unwrap_or_default())
            .flag("automatic", true)
            .text(proof::FIELD, &proof::digest(&approval).to_hex())
            .finish();
        let event = self
            .supervisor
            .draft(&writing.job, EventType::ApprovalApproved, payload);
        writing.drafts.push(event.in_state(ApprovalState::AutoApproved));
        writing
            .events
            .push(self.line(JobEventType::ApprovalAutoApproved, &approval));
        self.answered.insert(approval.id.clone());
        writing.approvals.push(ApprovalChange { approval, from: None });
        self.write(writing).await?;
        self.answer(question.id.clone(), AgentAnswer::Allow);
        Ok(())
    }

    async fn refuse(&mut self, question: &AgentQuestion, rule: &Rule) -> Result<(), Lost> {
        let mut writing = Writing::of(self.job.changed(self.supervisor.parts.clock.now()));
        writing.job.metrics.approval_count += 1;
        let details = self.details(question, rule);
        let payload = told(&writing.job)
            .text("rule", &rule.name)
            .text("source", &rule.source)
            .text("reason", &rule.reason)
            .part("details", &(&Value::Object(details.clone())).into())
            .finish();
        let event = self.supervisor.draft(&writing.job, EventType::ApprovalDenied, payload);
        writing.drafts.push(event.in_state(ApprovalState::Denied));
        let mut data = Value::Object(details);
        data["decision"] = json!("deny");
        let line = self
            .supervisor
            .event(&self.job, &self.session, JobEventType::ApprovalDenied, data);
        writing.events.push(line);
        self.write(writing).await?;
        let reason = rule.reason.clone();
        self.answer(question.id.clone(), AgentAnswer::Deny { reason });
        Ok(())
    }

    /// Puts the question before people.
    async fn show(&mut self, question: &AgentQuestion, approval: ApprovalRequest) -> Result<(), Lost> {
        let mut writing = Writing::of(self.job.changed(self.supervisor.parts.clock.now()));
        writing.job.metrics.approval_count += 1;
        self.pause(&mut writing);
        let board = self.supervisor.parts.board.clone();
        let opening = board.opening(approval.clone(), &self.agent());
        writing.drafts.extend(opening.events);
        writing.approvals.push(opening.change);
        writing
            .events
            .push(self.line(JobEventType::ApprovalRequested, &approval));
        self.write(writing).await?;
        board.show(&approval);
        let ApprovalRequest { id, binding, .. } = approval;
        self.wait_for(question, Asked { id, binding });
        Ok(())
    }

    fn wait_for(&mut self, question: &AgentQuestion, asked: Asked) {
        let id = asked.id.clone();
        self.questions.insert(question.id.clone(), asked);
        let board = self.supervisor.parts.board.clone();
        self.decisions.spawn(async move { board.settled(&id).await });
    }

    fn pause(&self, writing: &mut Writing) {
        let now = self.supervisor.parts.clock.now();
        writing.job.clock = writing.job.clock.paused(now);
        if writing.job.sub_state != Some(SubState::Interrupting) {
            writing.job.sub_state = Some(SubState::WaitingApproval);
        }
    }

    /// Lets the clock run again where it stood for a question.
    fn unpause(&self, writing: &mut Writing) {
        if self.job.sub_state == Some(SubState::WaitingApproval) {
            writing.job.sub_state = None;
            writing.job.clock = writing.job.clock.running(self.supervisor.parts.clock.now());
        }
    }

    /// A question was settled, by whomever: the act is let go, or refused, and the clock runs again.
    pub(super) async fn decided(&mut self, approval: ApprovalRequest) -> Result<(), Lost> {
        let asked = self.questions.iter().find(|(_, asked)| asked.id == approval.id);
        let Some(question) = asked.map(|(question, _)| question.clone()) else {
            return Ok(());
        };
        let Some(asked) = self.questions.remove(&question) else {
            return Ok(());
        };
        let unproved = self.unproved(&approval, &asked).await?;
        let now = self.supervisor.parts.clock.now();
        let mut writing = Writing::of(self.job.changed(now));
        let waits = !self.questions.is_empty() || self.calls_wait;
        if !waits {
            self.unpause(&mut writing);
        }
        let state = approval.state();
        // What was let go before is answered again, not counted again.
        let is_new = !matches!(state, ApprovalState::Applied);
        if is_new {
            writing.job.metrics.approval_ms += approval.waiting_ms().unwrap_or(0);
        }
        let answer = match state {
            ApprovalState::Approved | ApprovalState::Applied | ApprovalState::AutoApproved => Some(match unproved {
                None => AgentAnswer::Allow,
                Some(unproved) => AgentAnswer::Deny {
                    reason: unproved.to_string(),
                },
            }),
            ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Failed => {
                let reason = approval
                    .decision_reason
                    .clone()
                    .unwrap_or_else(|| "it was not approved".to_owned());
                Some(AgentAnswer::Deny { reason })
            }
            ApprovalState::Withdrawn | ApprovalState::Pending => None,
        };
        if state == ApprovalState::Approved && unproved.is_none() {
            let applied = self.supervisor.parts.board.applying(&approval, &self.job.started_by);
            writing.drafts.extend(applied.events);
            writing.approvals.push(applied.change);
        }
        if is_new {
            let kind = match state {
                ApprovalState::Approved | ApprovalState::Applied | ApprovalState::AutoApproved
                    if unproved.is_none() =>
                {
                    JobEventType::ApprovalApproved
                }
                ApprovalState::Approved | ApprovalState::Applied | ApprovalState::AutoApproved => {
                    JobEventType::ApprovalDenied
                }
                ApprovalState::Denied
                | ApprovalState::Expired
                | ApprovalState::Failed
                | ApprovalState::Withdrawn
                | ApprovalState::Pending => JobEventType::ApprovalDenied,
            };
            writing.events.push(self.line(kind, &approval));
        }
        self.write(writing).await?;
        if let Some(answer) = answer {
            self.answered.insert(approval.id);
            self.answer(question, answer);
        }
        Ok(())
    }

    /// Why the record does not prove a yes that the question says; none where it does, and for any other answer. Such a one
    /// is given up, or it would be found again.
    async fn unproved(&self, approval: &ApprovalRequest, asked: &Asked) -> Result<Option<Unproved>, Lost> {
        let wanted = match approval.state() {
            ApprovalState::Approved => Use::First,
            ApprovalState::Applied | ApprovalState::AutoApproved => Use::Again,
            ApprovalState::Pending
            | ApprovalState::Denied
            | ApprovalState::Expired
            | ApprovalState::Withdrawn
            | ApprovalState::Failed => return Ok(None),
        };
        let board = &self.supervisor.parts.board;
        match board.vouch(approval, &asked.binding, wanted).await {
            Ok(_) => Ok(None),
            Err(VouchError::Record(error)) => Err(Lost::Unrecorded(error)),
            Err(VouchError::Unproved(unproved)) => {
                self.withdraw(&approval.id, &unproved.to_string()).await;
                Ok(Some(unproved))
            }
        }
    }

    /// A call that the agent makes through us may wait for a person too: the job's clock stands still for it
    /// as for a question of its own.
    pub(super) async fn look_at_calls(&mut self) -> Result<(), Lost> {
        let board = &self.supervisor.parts.board;
        let open = board.list(ApprovalFilter::open()).await.map_err(Lost::Unrecorded)?;
        let of_a_call = |approval: &ApprovalRequest| {
            approval.job_id.as_deref() == Some(self.job.id.as_str()) && approval.owner != self.job.owner
        };
        let waits = open.iter().any(of_a_call);
        if std::mem::replace(&mut self.calls_wait, waits) == waits {
            return Ok(());
        }
        let now = self.supervisor.parts.clock.now();
        self.heard_at = self.supervisor.parts.clock.steady();
        let mut writing = Writing::of(self.job.changed(now));
        if waits {
            self.pause(&mut writing);
        } else if self.questions.is_empty() {
            self.unpause(&mut writing);
        }
        self.write(writing).await
    }

    /// The agent no longer asks.
    pub(super) async fn withdrawn(&mut self, question: &str) {
        if let Some(id) = self.questions.get(question).map(|asked| asked.id.clone()) {
            self.withdraw(&id, "the agent no longer asks").await;
        }
    }

    /// Nobody waits for any of them.
    pub(super) async fn withdraw_all(&mut self, why: &str) {
        let unasked = std::mem::take(&mut self.unasked);
        let asked = self.questions.values().map(|asked| asked.id.clone());
        let all: BTreeSet<ApprovalId> = asked.chain(unasked).collect();
        for id in all {
            self.withdraw(&id, why).await;
        }
    }

    async fn withdraw(&self, id: &ApprovalId, why: &str) {
        if let Err(error) = self.supervisor.parts.board.withdraw(id, &self.agent(), why).await {
            tracing::warn!(%error, "a question could not be withdrawn");
        }
    }

    /// Who asks, as the record calls it.
    fn agent(&self) -> Actor {
        Actor {
            kind: ActorType::Agent,
            id: self.job.agent.clone(),
        }
    }

    fn line(&self, kind: JobEventType, approval: &ApprovalRequest) -> JobEvent {
        let mut data = Value::Object(approval.details.clone());
        data["requestId"] = json!(approval.id.as_str());
        if let Some(decision) = approval.decision() {
            data["decision"] = json!(decision.as_str());
            data["decisionReason"] = json!(approval.decision_reason);
            data["approval_state"] = json!(approval.state().as_str());
            data["waitingDuration"] = json!(approval.waiting_ms());
        }
        self.supervisor.event(&self.job, &self.session, kind, data)
    }

    /// An agent that does not say where means where it works.
    fn details(&self, question: &AgentQuestion, rule: &Rule) -> Map<String, Value> {
        let mut details = details(question, rule, &self.supervisor.parts.redactor);
        if details.get("cwd").is_some_and(Value::is_null) {
            details.insert("cwd".to_owned(), self.session.config["cwd"].clone());
        }
        details
    }

    /// One digest over the job, the agent's id of the question and what it is about.
    fn binding(&self, question: &AgentQuestion) -> String {
        self.supervisor.parts.digests.digest(&json!({
            "job": self.job.id.as_str(), "question": question.id, "about": about(&question.about),
            "wants_more": question.wants_more,
        }))
    }

    fn about(&self, question: &AgentQuestion, judged: &Judged, rule: &Rule, binding: &str) -> ApprovalRequest {
        let parts = &self.supervisor.parts;
        let kind = match &question.about {
            QuestionAbout::Command { .. } => ApprovalType::ExecCommand,
            QuestionAbout::Patch { .. } => ApprovalType::ApplyPatch,
            QuestionAbout::Tool { .. } => ApprovalType::ToolCall,
        };
        let now = parts.clock.now();
        let (correlation, owner) = (self.job.correlation_id.clone(), self.job.owner.clone());
        let mut request = ApprovalRequest::new(parts.ids.approval(), kind, correlation, owner, now);
        request.job_id = Some(self.job.id.as_str().to_owned());
        request.run_id.clone_from(&self.job.run_id);
        request.requested_by.clone_from(&self.job.started_by.id);
        request.tool = match &question.about {
            QuestionAbout::Tool { name, .. } => name.clone(),
            QuestionAbout::Command { .. } | QuestionAbout::Patch { .. } => self.job.agent.clone(),
        };
        binding.clone_into(&mut request.binding);
        request.arguments_digest = parts.digests.digest(&about(&question.about));
        request.policy_digest.clone_from(&judged.policy_digest);
        request.details = self.details(question, rule);
        request.quorum = judged.quorum;
        request.expires_at = judged.timeout.map(|timeout| now.after(timeout));
        request.remaining_ms = u64::try_from(self.job.clock.left(now).as_millis()).unwrap_or(u64::MAX);
        request
    }
}

/// Everything of a question that an answer is good for.
fn about(about: &QuestionAbout) -> Value {
    match about {
        QuestionAbout::Command { command, cwd } => json!({"command": command, "cwd": cwd}),
        QuestionAbout::Patch { changes, grant_root } => {
            let change = |change: &FileChange| json!([change.path, kind_word(change.kind), change.diff]);
            json!({"changes": changes.iter().map(change).collect::<Vec<_>>(), "grantRoot": grant_root})
        }
        QuestionAbout::Tool { name, input } => json!({"tool": name, "input": input}),
    }
}

/// What a person sees: S1's ExecCommandApproval or ApplyPatchApproval, with why it is asked.
fn details(question: &AgentQuestion, rule: &Rule, redactor: &Redactor) -> Map<String, Value> {
    let mut details = shown(question, redactor);
    let mut put = |name: &str, value: Value| {
        details.insert(name.to_owned(), value);
    };
    // S1's `reason` is the agent's own; why it is asked at all stands beside it.
    let reason = question.reason.as_deref().unwrap_or(&rule.reason);
    put("reason", json!(redactor.redact_text(reason)));
    put("rule", json!(rule.name));
    put("rule_reason", json!(rule.reason));
    put("source", json!(rule.source));
    details
}

/// What an agent wants to do, as a person sees it.
pub(crate) fn shown(question: &AgentQuestion, redactor: &Redactor) -> Map<String, Value> {
    let clean = |text: &str| redactor.redact_text(text).into_owned();
    let mut details = Map::new();
    let mut put = |name: &str, value: Value| {
        details.insert(name.to_owned(), value);
    };
    let mut unseen = Vec::new();
    match &question.about {
        QuestionAbout::Command { command, cwd } => {
            unseen.extend(withheld::secret("the command", command, Reading::Line, redactor));
            put("command", json!(redactor.redact_line(command)));
            put("cwd", json!(cwd.as_ref().map(|cwd| clean(&cwd.to_string_lossy()))));
        }
        QuestionAbout::Patch { changes, grant_root } => {
            let shown: Vec<Value> = changes
                .iter()
                .take(limits::FILES_SHOWN_MAX)
                .map(|change| file_change(change, redactor))
                .collect();
            unseen.extend(unshown(changes, redactor));
            put("fileChanges", json!(shown));
            put("files", json!(changes.len()));
            put("grantRoot", json!(grant_root));
        }
        QuestionAbout::Tool { name, input } => {
            put("tool", json!(clean(name)));
            let shown = super::super::event::presentable(redactor, input.clone());
            unseen.extend(withheld::in_values(input, &shown));
            put("input", shown);
        }
    }
    if question.wants_more {
        put("wants_more", json!(true));
    }
    withheld::note(&mut details, unseen);
    details
}

/// What nobody sees of a patch.
fn unshown(changes: &[FileChange], redactor: &Redactor) -> Vec<String> {
    let (shown, hidden) = changes.split_at(changes.len().min(limits::FILES_SHOWN_MAX));
    let diffs = shown.iter().filter_map(|change| change.diff.as_deref());
    let diffs: Vec<(&str, Cow<'_, str>)> = diffs.map(|diff| (diff, redactor.redact_script(diff))).collect();
    let most = limits::PREVIEW_CHARS_MAX;
    let cut = diffs.iter().filter(|(_, clean)| clean.chars().count() > most).count();
    let mut notes: Vec<String> = diffs
        .iter()
        .filter_map(|(diff, _)| withheld::secret("a change", diff, Reading::Code, redactor))
        .collect();
    match cut {
        0 => {}
        1 => notes.push(format!("of one change only the first {most} characters are shown")),
        cut => notes.push(format!("of {cut} changes only the first {most} characters are shown")),
    }
    if !hidden.is_empty() {
        notes.push(format!(
            "only the first {} of {} files are shown",
            shown.len(),
            changes.len()
        ));
    }
    notes
}

fn file_change(change: &FileChange, redactor: &Redactor) -> Value {
    let preview = change.diff.as_deref().map(|diff| {
        let clean = redactor.redact_script(diff);
        clean.chars().take(limits::PREVIEW_CHARS_MAX).collect::<String>()
    });
    let mut shown = json!({"path": redactor.redact_text(&change.path), "type": kind_word(change.kind)});
    if let Some(preview) = preview {
        shown["contentPreview"] = json!(preview);
    }
    shown
}

fn kind_word(kind: FileChangeKind) -> &'static str {
    match kind {
        FileChangeKind::Create => "create",
        FileChangeKind::Modify => "modify",
        FileChangeKind::Delete => "delete",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::redact::Config;

    #[test]
    fn more_is_mentioned_where_it_is_wanted() {
        let told = |wants_more: bool| {
            let question = AgentQuestion {
                id: "1".to_owned(),
                about: QuestionAbout::Command {
                    command: "ls".to_owned(),
                    cwd: None,
                },
                reason: None,
                wants_more,
            };
            shown(&question, &Redactor::new(Config::default()))
                .get("wants_more")
                .cloned()
        };
        assert_eq!((told(false), told(true)), (None, Some(json!(true))));
    }
}
