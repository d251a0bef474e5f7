//! Rules that stand: written into the operator's file by whoever says "allow from now on".
//!
//! The file is the operator's own, so a rule is there to be read, changed and taken out by hand like every
//! other, and it holds in every process that reads the file. What is proposed is shown first; what is
//! written must change the policy by that one rule and by nothing else. The record has it before the file
//! does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use countersign_exec::Machine;
use countersign_gateway::approval::board::Board;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::audit::reading::{Filter, Pick};
use countersign_gateway::audit::{Change, Pending, Record as _};
use countersign_gateway::clock::Clock;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::IdSource;
use countersign_gateway::policy::decide::Surroundings as Around;
use countersign_gateway::policy::effective::EffectivePolicy;
use countersign_gateway::policy::standing::{self, Exact, ProposedRule, StandingRules};
use countersign_gateway::policy::whitelist;
use countersign_gateway::session::{Caller, Role};
use countersign_store::Store;
use serde_json::{Value, json};

use super::insert::{self, NewRule};
use super::settings::Settings;
use super::surroundings::{Flags, Surroundings};
use crate::edited::Found;
use crate::policy;
use crate::reload::Reload;

/// How many earlier policies are looked through for the one that a question was asked under.
const POLICIES_SEARCHED: usize = 200;
/// The day, at the beginning of a time.
const DATE_CHARS: usize = 10;

/// The operator's configuration file.
pub(crate) struct OperatorsFile {
    parts: Arc<Parts>,
}

/// What rules are made and kept with.
pub(crate) struct Parts {
    pub(crate) flags: Flags,
    pub(crate) surroundings: Surroundings,
    pub(crate) record: Arc<Store>,
    pub(crate) board: Arc<Board>,
    /// None in a process that serves nobody; those that do hear of the change.
    pub(crate) reload: Option<Arc<Reload>>,
}

impl OperatorsFile {
    pub(crate) fn new(parts: Parts) -> Self {
        Self { parts: Arc::new(parts) }
    }
}

impl StandingRules for OperatorsFile {
    fn propose(&self, question: &ApprovalRequest) -> Result<ProposedRule, Refusal> {
        let policy = self.parts.asked_under(question)?;
        let machine = Machine::new(policy.command.path.clone());
        // Which variables are passed on decides nothing.
        let environment = BTreeMap::new();
        let around = Around {
            programs: &machine,
            directories: &machine,
            environment: &environment,
        };
        let exact = standing::exact(&policy, question, &around)?;
        let file = self.parts.file().map_err(|error| unusable(&error))?;
        let today: String = Clock::system().now().to_string().chars().take(DATE_CHARS).collect();
        let reason = format!("allowed from now on, {today}, by the answer to {}", question.id);
        Ok(ProposedRule {
            yaml: new_rule(&exact, &reason).alone(),
            pattern: exact.pattern,
            reason,
            file: file.to_string_lossy().into_owned(),
        })
    }

    fn adopt(&self, rule: ProposedRule, by: &Caller) -> Pending<Result<(), Refusal>> {
        let (parts, by) = (self.parts.clone(), by.clone());
        Box::pin(async move { parts.adopt(rule, &by).await })
    }
}

impl Parts {
    async fn adopt(self: Arc<Self>, rule: ProposedRule, by: &Caller) -> Result<(), Refusal> {
        match by.role {
            Role::Operator => {}
            Role::Approver | Role::Viewer | Role::Agent => {
                let message = format!(
                    "a token of role `{}` changes no policy; an operator writes rules",
                    by.role.as_str()
                );
                return Err(Refusal::new(ErrorCode::Forbidden, message));
            }
        }
        if !whitelist::is_exact(&rule.pattern) {
            let message = format!("`{}` is no rule for one exact command", rule.pattern);
            return Err(Refusal::new(ErrorCode::InvalidArguments, message));
        }
        self.note(EventType::PolicyChanged, &by.actor, said(&rule, None))
            .await?;
        let (parts, written) = (self.clone(), rule.clone());
        let done = tokio::task::spawn_blocking(move || parts.write(&written)).await;
        let done = done.unwrap_or_else(|_| Err(anyhow::anyhow!("writing was stopped")));
        if let Err(error) = done {
            let refusal = unusable(&error);
            self.note(EventType::PolicyRefused, &by.actor, said(&rule, Some(&refusal.message)))
                .await?;
            return Err(refusal.with("yaml", rule.yaml));
        }
        if let Some(reload) = &self.reload {
            reload
                .now(by.actor.clone())
                .await
                .map_err(|reason| Refusal::new(ErrorCode::ConfigurationError, reason))?;
        }
        // The other processes of the state directory look at the file again.
        self.board.announce();
        Ok(())
    }

    /// Puts the rule into the file, if the policy then says what it said and the rule.
    fn write(&self, rule: &ProposedRule) -> anyhow::Result<()> {
        let by_hand = || {
            format!(
                "`{}` cannot be edited safely; put these lines in by hand:\n{}",
                rule.file, rule.yaml
            )
        };
        let file = PathBuf::from(&rule.file);
        ensure!(
            file == self.file()?,
            "the rule was proposed for another file, `{}`",
            rule.file
        );
        let before = self.policy(&self.flags)?;
        ensure!(
            !before
                .approval
                .whitelist
                .iter()
                .any(|known| known.name() == rule.pattern),
            "there is a rule `{}` already",
            rule.pattern
        );
        let found = Found::look(&file)?;
        let new = insert::with_rule(found.text(), &rule_of(rule)?).with_context(by_hand)?;
        found.extend(&new, |draft| {
            self.check(draft, &before, &rule.pattern).with_context(by_hand)
        })
    }

    /// The policy under the new text must be the old one and the rule.
    fn check(&self, draft: &Path, before: &EffectivePolicy, pattern: &str) -> anyhow::Result<()> {
        let flags = Flags {
            config: Some(draft.to_owned()),
            ..self.flags.clone()
        };
        let mut after = self.policy(&flags)?;
        let rules = after.approval.whitelist.len();
        after.approval.whitelist.retain(|rule| rule.name() != pattern);
        ensure!(
            after.approval.whitelist.len() + 1 == rules,
            "the rule would not be in force"
        );
        ensure!(
            bare(before.content()) == bare(after.content()),
            "with this file the policy would change in more than the rule: where there is an operator's file, \
             variables and flags only tighten"
        );
        Ok(())
    }

    fn policy(&self, flags: &Flags) -> anyhow::Result<EffectivePolicy> {
        policy::effective(&self.settings(flags)?)
    }

    fn settings(&self, flags: &Flags) -> anyhow::Result<Settings> {
        super::load(&self.surroundings, flags).map_err(|problems| anyhow::anyhow!("{problems}"))
    }

    /// The file that rules go into: the operator's, or where it would be.
    fn file(&self) -> anyhow::Result<PathBuf> {
        self.settings(&self.flags)?
            .operator_file
            .or_else(|| self.surroundings.operator_file())
            .context("there is no home directory for a configuration file; give `--config`")
    }

    /// The policy that asked, as the record has it: another process may have another workspace.
    fn asked_under(&self, question: &ApprovalRequest) -> Result<EffectivePolicy, Refusal> {
        let changed = Filter {
            event_type: Some(EventType::PolicyChanged),
            limit: POLICIES_SEARCHED,
            pick: Pick::Newest,
            ..Filter::everything()
        };
        let rows = self.record.query_events(&changed).map_err(|error| {
            Refusal::new(
                ErrorCode::AuditUnavailable,
                format!("the policies cannot be looked up: {error}"),
            )
        })?;
        let found = rows.iter().rev().find_map(|row| {
            let payload: Value = serde_json::from_str(&row.payload).ok()?;
            let is_it = payload["digest"] == question.policy_digest.as_str();
            is_it.then(|| EffectivePolicy::from_content(&payload["content"]).ok())?
        });
        found.ok_or_else(|| {
            Refusal::new(
                ErrorCode::NotFound,
                "the policy that this was asked under is no longer in the record",
            )
        })
    }

    async fn note(&self, kind: EventType, by: &Actor, payload: Value) -> Result<(), Refusal> {
        let ids = IdSource::random();
        let now = Clock::system().now();
        let event = Draft::new(ids.event(), now, ids.correlation(), by.clone(), kind, &payload);
        let change = Change {
            events: vec![event],
            ..Change::default()
        };
        let written = self.record.commit(change).await;
        written
            .map(drop)
            .map_err(|error| Refusal::new(ErrorCode::AuditUnavailable, error.to_string()))
    }
}

fn new_rule(exact: &Exact, reason: &str) -> NewRule {
    NewRule {
        fields: vec![
            ("pattern", json!(exact.pattern)),
            ("reason", json!(reason)),
            ("match", json!([exact.command])),
            ("not_match", json!(exact.not_matches)),
        ],
        remarks: exact.remarks.clone(),
    }
}

/// The rule as its own lines tell it, so that what a person saw is what is written.
fn rule_of(rule: &ProposedRule) -> anyhow::Result<NewRule> {
    let unread = || "the lines of the rule cannot be read".to_owned();
    let tree = super::tree::read(&rule.yaml)
        .map_err(|_| anyhow::anyhow!(unread()))?
        .to_json();
    let item = &tree["approval_policy"]["whitelist"][0];
    ensure!(
        item["pattern"] == rule.pattern.as_str() && item["reason"] == rule.reason.as_str(),
        "the lines of the rule say something else than the rule"
    );
    let field = |name: &'static str| (name, item[name].clone());
    let remarks = rule
        .yaml
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("# "));
    Ok(NewRule {
        fields: ["pattern", "reason", "match", "not_match"].map(field).to_vec(),
        remarks: remarks.map(str::to_owned).collect(),
    })
}

/// What decides, without the places where it was written.
fn bare(content: Value) -> Value {
    match content {
        Value::Object(fields) => {
            let places = ["source", "sources", "origin", "rule_sources", "hidden"];
            let kept = fields.into_iter().filter(|(name, _)| !places.contains(&name.as_str()));
            Value::Object(kept.map(|(name, value)| (name, bare(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(bare).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => content,
    }
}

fn said(rule: &ProposedRule, refused: Option<&str>) -> Value {
    let mut said = json!({
        "file": rule.file,
        "rule": {"pattern": rule.pattern, "reason": rule.reason},
    });
    if let Some(reason) = refused {
        said["reason"] = json!(reason);
    }
    said
}

fn unusable(error: &anyhow::Error) -> Refusal {
    Refusal::new(ErrorCode::ConfigurationError, format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use countersign_gateway::approval::Alone;
    use countersign_gateway::audit::redact::{Config, Redactor};
    use countersign_gateway::session::Transport;
    use countersign_store::{Durability, Options};

    use super::*;
    use crate::wiring;

    /// A home without a file, and a rule for it.
    fn stage(variables: &[(&str, &str)]) -> (tempfile::TempDir, OperatorsFile, ProposedRule) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["home", "work"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        let options = Options::new(Durability::Process, Clock::system());
        let record = Arc::new(Store::open(&root.join("state"), options).unwrap());
        let board = wiring::board(&record, &Redactor::new(Config::default()), Arc::new(Alone), Vec::new());
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let rules = OperatorsFile::new(Parts {
            flags: Flags {
                state_dir: Some(root.join("state")),
                ..Flags::default()
            },
            surroundings: Surroundings {
                variables: variables.collect(),
                current_dir: root.join("work"),
                home: Some(root.join("home")),
                other_homes: Vec::new(),
            },
            record,
            board,
            reload: None,
        });
        let exact = Exact {
            pattern: "^touch made$".to_owned(),
            command: "touch made".to_owned(),
            not_matches: vec!["touch made more".to_owned()],
            remarks: vec!["Touches.".to_owned()],
        };
        let rule = ProposedRule {
            yaml: new_rule(&exact, "said so").alone(),
            pattern: exact.pattern,
            reason: "said so".to_owned(),
            file: root
                .join("home/.config/countersign/config.yaml")
                .to_string_lossy()
                .into_owned(),
        };
        (dir, rules, rule)
    }

    fn file(rule: &ProposedRule) -> Option<String> {
        fs::read_to_string(&rule.file).ok()
    }

    #[tokio::test]
    async fn only_an_operator_writes_rules_and_only_exact_ones() {
        let (_dir, rules, rule) = stage(&[]);
        for role in [Role::Agent, Role::Approver, Role::Viewer] {
            let by = Caller {
                role,
                ..Caller::person("ana")
            };
            let refusal = rules.adopt(rule.clone(), &by).await.unwrap_err();
            assert_eq!(refusal.code, ErrorCode::Forbidden, "{role:?}");
        }
        let agent = Caller::anonymous_agent(Transport::Stdio);
        assert!(rules.adopt(rule.clone(), &agent).await.is_err());
        let wide = ProposedRule {
            pattern: "^touch".to_owned(),
            yaml: rule.yaml.replace("^touch made$", "^touch"),
            ..rule.clone()
        };
        let other = ProposedRule {
            yaml: rule.yaml.replace("^touch made$", "^rm"),
            ..rule.clone()
        };
        let elsewhere = ProposedRule {
            file: rule.file.replace("config.yaml", "other.yaml"),
            ..rule.clone()
        };
        for bad in [wide, other, elsewhere] {
            assert!(rules.adopt(bad, &Caller::person("ana")).await.is_err());
        }
        assert_eq!(file(&rule), None);
        rules.adopt(rule.clone(), &Caller::person("ana")).await.unwrap();
        assert_eq!(
            file(&rule).as_deref(),
            Some(rule.yaml.as_str()),
            "what was shown is what is written"
        );
        let again = rules.adopt(rule.clone(), &Caller::person("ana")).await.unwrap_err();
        assert!(again.message.contains("there is a rule"), "{}", again.message);
        assert_eq!(file(&rule).as_deref(), Some(rule.yaml.as_str()));
    }

    /// A first operator's file turns variables from setting to tightening.
    #[tokio::test]
    async fn a_rule_that_would_change_more_of_the_policy_is_not_written() {
        let (_dir, rules, rule) = stage(&[("ALLOWED_COMMANDS", "touch,ls")]);
        let refusal = rules.adopt(rule.clone(), &Caller::person("ana")).await.unwrap_err();
        assert!(
            refusal.message.contains("would change in more than the rule"),
            "{}",
            refusal.message
        );
        assert_eq!(refusal.details["yaml"], rule.yaml);
        assert_eq!(file(&rule), None);
    }
}
