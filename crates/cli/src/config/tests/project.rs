//! The project's file: it tightens, and sets once it is trusted.

use super::*;

const LOOSE: &str = "command_policy:\n  network: allow\n  sandbox: danger-full-access\n  timeout_seconds: 5\napproval_policy:\n  \
                     mode: never\n  whitelist: [{pattern: ^rm, enabled: true}, {pattern: '^git log', enabled: false}]\n";

#[test]
fn a_project_tightens_and_what_would_loosen_is_named() {
    let world = World::new().project(LOOSE);
    let settings = world.settings();
    assert_eq!(
        (settings.command.network.as_str(), settings.command.sandbox.as_str()),
        ("deny", "workspace-write")
    );
    assert_eq!(
        (settings.command.timeout.as_secs(), settings.approval.mode.as_str()),
        (5, "untrusted")
    );
    let rules: Vec<_> = settings
        .approval
        .whitelist
        .iter()
        .map(|rule| (rule.pattern.as_str(), rule.enabled))
        .collect();
    assert_eq!(rules, [("^git log", false)]);
    let file = "/work/.countersign/config.yaml";
    assert_eq!(
        warnings(&world, &settings),
        [
            format!("{file}: line 2, column 12: `command_policy.network`: `allow` is wider than `deny`"),
            format!(
                "{file}: line 3, column 12: `command_policy.sandbox`: `danger-full-access` is wider than `workspace-write`"
            ),
            format!(
                "{file}: line 6, column 9: `approval_policy.mode`: `never` is not stricter than `untrusted` for every request"
            ),
            format!(
                "{file}: line 7, column 15: `approval_policy.whitelist`: rule `^rm` would run commands unasked; a rule here can only be switched off"
            ),
        ]
    );
}

#[test]
fn a_trusted_file_sets_until_it_changes() {
    let world = World::new()
        .operator("approval_policy: {mode: on-request}\n")
        .project(LOOSE);
    assert_eq!(world.settings().command.network, "deny");
    let world = world.trusting("work/.countersign/config.yaml");
    let settings = world.settings();
    assert_eq!(
        (settings.command.network.as_str(), settings.approval.mode.as_str()),
        ("allow", "never")
    );
    assert!(settings.warnings.is_empty());
    assert!(origin(&settings, "command_policy.network").starts_with("trusted project file "));
    let world = world.project(&format!("{LOOSE}# one more line\n"));
    assert_eq!(world.settings().command.network, "deny");
}

#[test]
fn trust_is_not_believed_from_inside_the_workspace() {
    let mut world = World::new().project(LOOSE);
    world.flags.state_dir = Some("state".into());
    trust(&world.path("work/state"), &world.path("work/.countersign/config.yaml")).unwrap();
    let settings = world.settings();
    assert_eq!(settings.command.network, "deny");
    assert!(
        warnings(&world, &settings)
            .iter()
            .any(|warning| warning.contains("trusted files are not believed"))
    );
}

#[test]
fn the_project_is_that_of_the_workspace() {
    let world = World::new()
        .operator("workspace_root: ../elsewhere\n")
        .project("quorum: 5\n");
    world.write("elsewhere/.countersign/config.yaml", "quorum: 3\nworkspace_root: .\n");
    let settings = world.settings();
    assert_eq!(settings.approval.quorum, 3);
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
}

#[test]
fn a_project_cannot_leave_the_workspace() {
    let world = World::new().project("workspace_root: ../elsewhere\n");
    let settings = world.settings();
    assert!(is(&settings.places.workspace_root, &world.path("work")));
    assert_eq!(settings.warnings.len(), 1);
}

#[test]
fn a_project_does_not_move_the_workspace_into_what_steers_git_and_ourselves() {
    for name in [".git", ".git/hooks", ".countersign", "bare", "bare/hooks", "link"] {
        for operator in ["approval_policy: {mode: on-request}\n", "workspace_root: .\n"] {
            let world = World::new()
                .operator(operator)
                .project(&format!("workspace_root: {name}\n"));
            for part in [".git/hooks", "bare/hooks", "bare/objects", "bare/refs"] {
                std::fs::create_dir_all(world.path("work").join(part)).unwrap();
            }
            world.write("work/bare/HEAD", "ref: refs/heads/main\n");
            std::os::unix::fs::symlink(".git", world.path("work/link")).unwrap();
            let settings = world.settings();
            let workspace = settings.places.workspace_root.as_ref().unwrap();
            assert_eq!(workspace.canonicalize().unwrap(), world.path("work"), "{name}");
            let warned = warnings(&world, &settings).concat();
            assert!(warned.contains("column 17: `workspace_root`: "), "{name}: {warned}");
        }
    }
}

#[test]
fn tool_entries_of_all_sources_count() {
    let world = World::new()
        .operator("tools: {a: {approval: required}}\n")
        .project("tools: {a: {approval: none}, b: {enabled: false}}\n");
    let settings = world.settings();
    let tools = settings.held("tools").unwrap().value.as_array().unwrap();
    let entries: Vec<_> = tools
        .iter()
        .map(|it| {
            (
                it["pattern"].as_str().unwrap(),
                it["approval"].as_str(),
                it["enabled"].as_bool(),
            )
        })
        .collect();
    assert_eq!(
        entries,
        [
            ("a", Some("required"), None),
            ("a", Some("none"), None),
            ("b", None, Some(false))
        ]
    );
    assert_eq!(
        warnings(&world, &settings),
        ["/work/.countersign/config.yaml: line 1, column 9: `tools`: `a` stays at `required`, the stricter"]
    );
    let source = tools[2]["source"].as_str().unwrap();
    assert!(
        source.starts_with("project file ") && source.ends_with(", line 1, column 30"),
        "{source}"
    );
}

#[test]
fn a_later_rule_with_the_same_pattern_takes_the_place_of_the_earlier() {
    let world = World::new()
        .operator("approval_policy: {whitelist: [{pattern: ^make, reason: r}, {pattern: ^ls}]}\n")
        .project("approval_policy: {whitelist: [{pattern: ^make, enabled: false}]}\n");
    let rules: Vec<_> = world
        .settings()
        .approval
        .whitelist
        .into_iter()
        .map(|rule| (rule.pattern, rule.enabled))
        .collect();
    assert_eq!(rules, [("^make".to_owned(), false), ("^ls".to_owned(), true)]);
}

#[test]
fn policies_of_all_sources_count_and_only_the_operator_maps() {
    let world = World::new()
        .operator("policies:\n  labels:\n    'run:dev': {agent_key: dev, tools: {run_command: {approval: required}}}\n")
        .project(
            "policies:\n  labels:\n    'run:dev': {agent_key: root, tools: {run_command: {approval: deny}}}\n  projects:\n    shop: {namespace: shop, tools: {'*': {scope: namespace}}}\n",
        );
    let settings = world.settings();
    let label = &settings.held("policies.labels").unwrap().value["run:dev"];
    assert_eq!(label["agent_key"], "dev");
    let said: Vec<_> = label["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["approval"])
        .collect();
    assert_eq!(said, ["required", "deny"]);
    assert!(
        label["tools"][1]["source"]
            .as_str()
            .unwrap()
            .starts_with("project file ")
    );
    assert!(settings.held("policies.projects").unwrap().value["shop"]["namespace"].is_null());
    let file = "/work/.countersign/config.yaml";
    assert_eq!(
        warnings(&world, &settings),
        [
            format!(
                "{file}: line 3, column 17: `policies.labels`: only the operator's file or a trusted file may set `agent_key` of `run:dev`"
            ),
            format!(
                "{file}: line 5, column 12: `policies.projects`: only the operator's file or a trusted file may set `namespace` of `shop`"
            ),
        ]
    );
}

#[test]
fn a_repository_belongs_to_one_project() {
    let world = World::new().operator("policies: {projects: {a: {repositories: [r, s]}, b: {repositories: [R]}}}\n");
    assert_eq!(
        world.problems(),
        ["/home/.config/countersign/config.yaml: line 1, column 12: repository `R` is in two projects, `a` and `b`"]
    );
}
