//! Entries that decide nothing, and whoever wrote them believes otherwise: about tools that there are none of, by a
//! mistyped name, and rules of the whitelist for what is always asked about.

use countersign_gateway::policy::effective::EffectivePolicy;

use crate::config::nearest;

/// What is said of each of them.
pub(crate) fn entries(policy: &EffectivePolicy) -> Vec<String> {
    let said = |pattern: &str, source: &str| {
        let meant = nearest(pattern, policy.tools.names());
        let hint = meant.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
        format!("{source}: no tool is called `{pattern}`, so that this entry decides nothing{hint}")
    };
    let idle = policy.tools.idle();
    let tools = idle.map(|entry| said(&entry.pattern, &entry.source));
    let rules = policy.approval.whitelist.iter().filter_map(|rule| {
        let word = rule.idle()?;
        let (origin, pattern) = (&rule.origin, rule.name());
        Some(format!(
            "{origin}: `{pattern}` covers no command, since `{word}` is always asked about; a pattern may name one whole command"
        ))
    });
    tools.chain(rules).collect()
}
