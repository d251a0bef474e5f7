//! Who took part in a decision, beside the rule that made it.
//!
//! Not on the way of a call: it plans the request once more and asks each rule what it says.

use super::super::actor::Context;
use super::super::decide::{self, Rule, Surroundings};
use super::super::effective::{EffectivePolicy, Mode};
use super::super::matrix;
use super::super::planning;
use super::super::remembered::Remembered;
use super::super::tools::ToolUse;
use super::super::{talk, whitelist};
use crate::tools::exec::request::{CommandRequest, CommandTool};

/// A rule that was looked at, and what it said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TookPart {
    pub rule: String,
    pub source: String,
    pub effect: String,
}

/// The rules about a tool, for one caller.
pub(super) fn of_tool(policy: &EffectivePolicy, context: &Context<'_>, used: &ToolUse<'_>) -> Vec<TookPart> {
    let outcome = policy.tools.outcome(context, used.tool);
    let parts = outcome.iter().flat_map(|outcome| outcome.took_part());
    parts
        .map(|part| TookPart {
            rule: part.rule.clone(),
            source: part.source.clone(),
            effect: part.effect.clone(),
        })
        .collect()
}

/// The rule that lets a use pass: the one that says `none`, or none at all.
pub(super) fn allowing(policy: &EffectivePolicy, context: &Context<'_>, used: &ToolUse<'_>) -> Rule {
    let outcome = policy.tools.outcome(context, used.tool);
    let by = outcome
        .as_ref()
        .and_then(|outcome| outcome.level(policy.tools.act(used)).decided_by());
    let (name, source) = by.map_or(("catalog", matrix::SOURCE), |by| (&by.rule, &by.source));
    Rule {
        name: name.to_owned(),
        source: source.to_owned(),
        reason: format!("nothing asks about the tool `{}`", used.tool),
    }
}

/// The rules about a command: those about its tool, then the ones that planning and mode look at.
pub(in crate::policy) fn of_command(
    policy: &EffectivePolicy,
    context: &Context<'_>,
    request: &CommandRequest,
    around: &Surroundings<'_>,
) -> Vec<TookPart> {
    let mut parts = of_tool(policy, context, &ToolUse::of(request.tool.name()));
    let mut add = |rule: &str, source: &str, effect: &str| {
        parts.push(TookPart {
            rule: rule.to_owned(),
            source: source.to_owned(),
            effect: effect.to_owned(),
        });
    };
    let programs = Remembered::new(around.programs, &policy.command);
    let around = &Surroundings {
        programs: &programs,
        ..*around
    };
    let stilled = context.is_talk().then(|| talk::stilled(policy));
    let policy = stilled.as_ref().unwrap_or(policy);
    let (plan, reading) = match planning::plan(policy, request, around) {
        Ok(planned) => planned,
        Err(unplanned) => {
            let rule = decide::refusing(policy, &unplanned);
            add(&rule.name, &rule.source, "deny");
            return parts;
        }
    };
    if let Some(why) = stilled.is_some().then(|| talk::objection(&plan, &reading)).flatten() {
        let rule = talk::rule(&why);
        add(&rule.name, &rule.source, "deny");
        return parts;
    }
    // Allowlist, mode and whitelist have no say about a declared tool.
    if let CommandTool::Declared(_) = &request.tool {
        return parts;
    }
    let sources = &policy.rule_sources;
    add("allowlist", &sources.allowlist, "allow");
    let more = plan.sandbox > policy.command.sandbox || plan.network > policy.command.network;
    let mode = policy.approval.mode;
    let name = format!("mode {}", mode.as_str());
    match (mode, more) {
        (Mode::Never, true) => add(&name, &sources.mode, "deny"),
        (Mode::Untrusted | Mode::OnRequest | Mode::OnFailure, true) => add("request for more", &sources.mode, "ask"),
        (Mode::Never | Mode::OnRequest | Mode::OnFailure, false) => add(&name, &sources.mode, "allow"),
        (Mode::Untrusted, false) => {
            add(&name, &sources.mode, "ask");
            let covered = decide::covering(policy, request, &reading, &plan.act);
            let mut rules: Vec<_> = covered.into_iter().flat_map(|covered| covered.rules).collect();
            rules.dedup_by_key(|rule| rule.explained());
            for rule in rules {
                add(&format!("whitelist `{}`", rule.explained()), &rule.origin, "allow");
            }
            let off = reading
                .asked()
                .map(|asked| whitelist::turned_off(&policy.approval.whitelist, asked));
            for rule in off.into_iter().flatten() {
                add(
                    &format!("whitelist `{}`, turned off,", rule.explained()),
                    &rule.origin,
                    "ask",
                );
            }
        }
    }
    parts
}
