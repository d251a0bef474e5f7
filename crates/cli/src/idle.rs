//! Entries about tools that there are none of: a mistyped name decides nothing, and whoever wrote it believes otherwise.

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
    idle.map(|entry| said(&entry.pattern, &entry.source)).collect()
}
