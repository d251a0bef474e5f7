//! Every configuration that the repository ships loads, in `examples/` and in the documentation.

use super::*;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files_below(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_below(&path, ending, found);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
}

/// A document is a configuration when its first key is one of ours.
fn is_configuration(text: &str) -> bool {
    let first = text
        .lines()
        .find(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .unwrap_or_default();
    let name = first.split(':').next().unwrap_or_default();
    let tops = crate::config::schema::json_schema();
    // A list of tools is a file of declared tools, a map of tools is ours.
    let mut below = text.lines().skip_while(|line| !line.starts_with("tools:")).skip(1);
    let first_tool = below.find(|line| !line.trim().is_empty() && !line.trim().starts_with('#'));
    tops["properties"].get(name).is_some()
        && first.contains(':')
        && !first_tool.is_some_and(|line| line.trim_start().starts_with("- "))
        && !text.contains("tools: [")
}

#[track_caller]
fn check(name: &str, text: &str) {
    let mut world = World::new();
    world.flags.config = Some(world.write("elsewhere/shipped.yaml", text));
    match world.load() {
        Err(problems) => panic!("{name}:\n{problems}"),
        Ok(settings) => drop(crate::policy::effective(&settings).expect(name)),
    }
    let written = crate::config::tree::read(text).expect(name).to_json();
    if let Err(error) = jsonschema::validate(&crate::config::schema::json_schema(), &written) {
        panic!("{name}: an editor would complain: {error}");
    }
}

#[test]
fn every_example_loads_as_an_operators_file() {
    let mut files = Vec::new();
    files_below(&repository().join("examples"), "yaml", &mut files);
    let mut checked = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        if is_configuration(&text) {
            check(&path.display().to_string(), &text);
            checked.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    for expected in [
        "minimal.yaml",
        "read-only-review.yaml",
        "rust-developer.yaml",
        "ci.yaml",
        "team-server.yaml",
        "runs.yaml",
        "countersign.yaml",
    ] {
        assert!(checked.iter().any(|name| name == expected), "{expected}");
    }
}

#[test]
fn every_configuration_in_the_documentation_loads() {
    let mut pages = vec![repository().join("README.md")];
    files_below(&repository().join("docs"), "md", &mut pages);
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap_or_default();
        for block in text
            .split("```yaml\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next())
        {
            if is_configuration(block) {
                check(&page.display().to_string(), block);
            }
        }
    }
}

#[test]
fn the_example_of_the_contract_loads() {
    check(
        "section 1",
        r#"
workspace_root: .                      # S0; commands read and write file contents here, not outside
command_policy:                        # S0 CommandPolicy
  allowlist: ["git", "ls", "cargo"]    # names or absolute paths; "*" = any; non-empty, unique
  timeout_seconds: 30
  cpu_limit: "1"
  memory_limit: "1Gi"
  run_as_non_root: true
  audit_retention_days: 90
  sandbox: workspace-write
  network: deny
  env_allow: [LANG, TERM]
approval_policy:
  mode: untrusted
  timeout_ms: null
  whitelist: [{pattern: "^git status", reason: "read-only", enabled: true}]
tools: {"secret.sync.*": {approval: required}}
approvers: []
agents: []
policies: {agents: {}, labels: {}, projects: {}}
"#,
    );
}
