//! From settings to the policy the gateway decides by.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use countersign_gateway::policy::allowlist::Allowlist;
use countersign_gateway::policy::content::layers as written;
use countersign_gateway::policy::effective::{
    ApprovalPolicy, CommandPolicy, EffectivePolicy, Layer, Mode, Network, Places, RuleSources, SandboxMode,
};
use countersign_gateway::policy::quantity::{ByteCount, Millicores};
use countersign_gateway::policy::tools::{Layers, ToolPolicies};
use countersign_gateway::policy::whitelist::{RuleText, Source, WhitelistError, WhitelistRule, builtin_rules};

use serde_json::Value;

use crate::config::{PlaceSettings, Settings, WhitelistEntry};
use crate::real::RealNames;

/// Gives checked settings their types. What fails here is something only the policy itself can
/// judge, such as a whitelist rule that does not meet its own examples.
pub(crate) fn effective(settings: &Settings) -> anyhow::Result<EffectivePolicy> {
    let command = &settings.command;
    Ok(EffectivePolicy {
        command: CommandPolicy {
            allowlist: allowlist(&command.allowlist)?,
            timeout: command.timeout,
            timeout_max: command.timeout_max,
            cpu_limit: Millicores::parse(&command.cpu_limit)?,
            memory_limit: ByteCount::parse(&command.memory_limit)?,
            pids_limit: command.pids_limit,
            run_as_non_root: command.run_as_non_root,
            run_as: command.run_as.clone(),
            audit_retention_days: command.audit_retention_days,
            sandbox: word(SandboxMode::parse, &command.sandbox)?,
            network: word(Network::parse, &command.network)?,
            env_allow: command.env_allow.clone(),
            require: command
                .require
                .iter()
                .map(|layer| word(Layer::parse, layer))
                .collect::<Result<_, _>>()?,
            path: command.path.clone(),
            read_paths: canonical(&command.read_paths),
            helpers: command.helpers.clone(),
        },
        approval: ApprovalPolicy {
            mode: word(Mode::parse, &settings.approval.mode)?,
            timeout: settings.approval.timeout,
            whitelist: whitelist(&settings.approval.whitelist)?,
            self_approval: settings.approval.self_approval,
            client_decides: settings.approval.client_decides,
            quorum: u32::try_from(settings.approval.quorum).unwrap_or(u32::MAX),
        },
        places: Places {
            workspace_root: settings.places.workspace_root.clone(),
            cwd_roots: settings.places.cwd_roots.clone(),
            start: settings.places.start.clone(),
            hidden: both_names(&settings.places).into(),
        },
        tools: ToolPolicies::with_declared(layers(settings)?, settings.tool_files.tools.clone()),
        sources: settings.sources.clone(),
        rule_sources: RuleSources {
            allowlist: set_by(settings, "command_policy.allowlist"),
            workspace: set_by(settings, "workspace_root"),
            cwd_roots: "environment ALLOWED_CWD_ROOTS".to_owned(),
            timeout: set_by(settings, "command_policy.timeout_seconds_max"),
            mode: set_by(settings, "approval_policy.mode"),
        },
    })
}

/// The built-in layers and those that the configuration adds, each entry with its place.
fn layers(settings: &Settings) -> anyhow::Result<Layers> {
    let nothing = Value::Null;
    let held = |key: &str| settings.held(key).map_or(&nothing, |held| &held.value);
    let matrix = held("tools").as_array().map_or(&[][..], Vec::as_slice);
    Ok(Layers {
        matrix: matrix
            .iter()
            .map(written::read_matrix_entry)
            .collect::<Result<_, _>>()
            .context("`tools` cannot be used")?,
        agents: written::read_section(held("policies.agents"), written::read_entries)
            .context("`policies.agents` cannot be used")?,
        labels: written::read_section(held("policies.labels"), written::read_label)
            .context("`policies.labels` cannot be used")?,
        projects: written::read_section(held("policies.projects"), written::read_project)
            .context("`policies.projects` cannot be used")?,
        ..Layers::built_in()
    })
}

fn canonical(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut names = RealNames::default();
    paths.iter().map(|path| names.of(path)).collect()
}

/// A secret place that is reached through a link is hidden under both names, once and for all here,
/// so that no call has to resolve links again. Who may write a home can make such a link too: it hides nothing that every
/// command needs, nor where they work.
fn both_names(places: &PlaceSettings) -> Vec<PathBuf> {
    let worked_in: Vec<PathBuf> = places.workspace_root.iter().chain([&places.start]).cloned().collect();
    let worked_in = canonical(&worked_in);
    let is_needed = |given: &Path, real: &Path| {
        let needed = NEEDED_BY_ALL.iter().map(Path::new);
        let needed = needed.chain(worked_in.iter().map(PathBuf::as_path)).chain([given]);
        PROGRAMS_AND_LIBRARIES
            .iter()
            .any(|directory| real.starts_with(directory))
            || needed.into_iter().any(|needed| needed.starts_with(real))
    };
    let real = canonical(&places.hidden);
    let led = places.hidden.iter().zip(&real);
    let led = led.filter(|(given, real)| given == real || !is_needed(given, real));
    let mut names: Vec<PathBuf> = led.map(|(_, real)| real.clone()).collect();
    names.extend(places.hidden.iter().cloned());
    names.sort();
    names.dedup();
    names
}

/// What no command could do without.
const NEEDED_BY_ALL: [&str; 8] = ["/usr", "/etc", "/opt", "/tmp", "/dev", "/proc", "/sys", "/home"];
/// The same with all that lies in it.
#[rustfmt::skip]
pub(crate) const PROGRAMS_AND_LIBRARIES: [&str; 14] = [
    "/bin", "/sbin", "/lib", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/share", "/usr/games",
    "/usr/local/bin", "/usr/local/sbin", "/usr/local/lib",
];

fn set_by(settings: &Settings, key: &str) -> String {
    settings
        .held(key)
        .map_or_else(|| "default".to_owned(), |held| held.origin.to_string())
}

fn allowlist(entries: &[String]) -> anyhow::Result<Allowlist> {
    if entries.is_empty() {
        return Ok(Allowlist::nothing());
    }
    Allowlist::from_entries(entries).context("`allowlist` cannot be used")
}

/// The built-in rules first; an entry that names one of them takes its place.
fn whitelist(entries: &[WhitelistEntry]) -> anyhow::Result<Vec<WhitelistRule>> {
    let mut rules = builtin_rules();
    for entry in entries {
        let rule = whitelist_rule(entry).context("a rule of `whitelist` cannot be used")?;
        rules.retain(|known| known.name() != entry.pattern);
        rules.push(rule);
    }
    Ok(rules)
}

fn whitelist_rule(entry: &WhitelistEntry) -> Result<WhitelistRule, WhitelistError> {
    let file = entry.source.strip_prefix("trusted ").unwrap_or(&entry.source);
    let source = if file.starts_with("project file ") {
        Source::Project
    } else {
        Source::Global
    };
    WhitelistRule::new(&RuleText {
        pattern: &entry.pattern,
        reason: entry.reason.as_deref().unwrap_or("configured"),
        enabled: entry.enabled,
        source,
        matches: &entry.matching,
        not_matches: &entry.not_matching,
    })
    .map(|rule| rule.written_in(&entry.source))
}

fn word<T>(parse: impl Fn(&str) -> Option<T>, text: &str) -> anyhow::Result<T> {
    parse(text).with_context(|| format!("`{text}` is not a word of the policy"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_in_a_home_hides_what_it_leads_to_but_nothing_that_commands_need() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for made in ["home", "work/inner", "secrets"] {
            std::fs::create_dir_all(base.join(made)).unwrap();
        }
        let link = base.join("home/.azure");
        let places = PlaceSettings {
            workspace_root: Some(base.join("work/inner")),
            cwd_roots: None,
            start: base.join("work"),
            hidden: vec![link.clone()],
        };
        let secrets = base.join("secrets");
        for (target, hides) in [
            (secrets.clone(), true),
            (base.join("work/other"), true),
            (base.join("work"), false),
            (base.join("work/inner"), false),
            (base.join("home"), false),
            ("/usr".into(), false),
            ("/usr/bin".into(), false),
            ("/etc".into(), false),
            ("/".into(), false),
        ] {
            std::fs::create_dir_all(base.join("work/other")).unwrap();
            symlink(&target, &link).unwrap();
            let names = both_names(&places);
            assert!(names.contains(&link));
            assert_eq!(names.len() == 2, hides, "{}: {names:?}", target.display());
            std::fs::remove_file(&link).unwrap();
        }
    }
}
