//! Which files are read, and that all their problems come together.

use super::*;

#[test]
fn the_operators_file_sets_what_it_says() {
    let world = World::new().operator(
        "workspace_root: inner\ncommand_policy: {allowlist: [git], sandbox: danger-full-access, network: allow, timeout_seconds: 2}\n\
         approval_policy: {mode: on-failure, whitelist: [{pattern: '^make$', reason: build}]}\ntools: {'secret.*': {approval: required}}\n\
         audit: {redact_patterns: ['tok_[a-z]+'], durability: process}\nlimits: {requests_per_second: 2.5}\n",
    );
    let settings = world.settings();
    assert!(is(&settings.places.workspace_root, &world.path("work/inner")));
    assert_eq!(
        (settings.command.sandbox.as_str(), settings.command.network.as_str()),
        ("danger-full-access", "allow")
    );
    assert_eq!(settings.command.timeout.as_secs(), 2);
    assert_eq!(settings.approval.mode, "on-failure");
    assert_eq!(
        (
            settings.approval.whitelist[0].pattern.as_str(),
            settings.approval.whitelist[0].enabled
        ),
        ("^make$", true)
    );
    assert_eq!(settings.held("tools").unwrap().value[0]["approval"], "required");
    assert!(settings.audit.redact_patterns[0].is_match("x tok_abc"));
    assert_eq!(
        (settings.audit.durability.as_str(), settings.limits.requests_per_second),
        ("process", Some(2.5))
    );
    let file = world.path("home/.config/countersign/config.yaml");
    assert_eq!(
        origin(&settings, "command_policy.network"),
        format!("operator file {}, line 2, column 65", file.display())
    );
    assert_eq!(origin(&settings, "command_policy.pids_limit"), "default");
    assert!(settings.warnings.is_empty());
}

#[test]
fn all_files_are_checked_before_anything_is_said() {
    let world = World::new()
        .operator("quorum: none\ncommand_policy: {pids: 3}\n")
        .project("mode: never\n")
        .variable("ALLOWED_COMMANDS", "a/b");
    assert_eq!(
        world.problems(),
        [
            "/home/.config/countersign/config.yaml: line 1, column 9: `quorum` must be a whole number of at least 1, not `none`",
            "/home/.config/countersign/config.yaml: line 2, column 18: `command_policy.pids` is not a known key",
            "/work/.countersign/config.yaml: line 1, column 1: `mode` is not a known key",
            "`ALLOWED_COMMANDS`: must name programs by a bare name or an absolute path, not `a/b`",
        ]
    );
}

#[test]
fn a_named_file_takes_the_place_of_the_operators() {
    let mut world = World::new()
        .operator("not even known: 1\n")
        .variable("COUNTERSIGN_CONFIG", "/nowhere.yaml");
    world.flags.config = Some(world.write("elsewhere/c.yaml", "command_policy: {network: allow}\n"));
    let settings = world.settings();
    assert_eq!(settings.command.network, "allow");
    assert!(settings.places.hidden.contains(&world.path("elsewhere/c.yaml")));
    world.flags.config = None;
    assert_eq!(
        world.problems(),
        ["/nowhere.yaml: does not exist; `countersign --config FILE config init` writes one"]
    );
    let relative = World::new().variable("COUNTERSIGN_CONFIG", "c.yaml");
    relative.write("work/c.yaml", "command_policy: {network: allow}\n");
    assert_eq!(relative.settings().command.network, "allow");
}

#[test]
fn a_named_file_that_agents_can_write_does_not_replace_the_operators() {
    let loose = "command_policy: {network: allow, sandbox: read-only}\n";
    let mut world = World::new().operator("quorum: 2\n");
    world.flags.config = Some(world.write("work/c.yaml", loose));
    let settings = world.settings();
    assert_eq!(
        (settings.command.network.as_str(), settings.command.sandbox.as_str()),
        ("deny", "read-only")
    );
    assert_eq!((settings.approval.quorum, settings.warnings.len()), (2, 1));
    assert_eq!(world.trusting("work/c.yaml").settings().command.network, "allow");
}

#[test]
fn a_timeout_follows_a_lowered_maximum_but_not_its_own() {
    let max = "command_policy: {timeout_seconds_max: 10}\n";
    assert_eq!(World::new().operator(max).settings().command.timeout.as_secs(), 10);
    let project = World::new()
        .operator("command_policy: {timeout_seconds: 20}\n")
        .project(max)
        .settings();
    assert_eq!(
        (project.command.timeout.as_secs(), project.command.timeout_max.as_secs()),
        (10, 10)
    );
    for text in [
        "command_policy: {timeout_seconds: 20, timeout_seconds_max: 10}\n",
        "command_policy: {timeout_seconds: 900}\n",
    ] {
        assert_eq!(World::new().operator(text).problems().len(), 1, "{text}");
    }
}

#[test]
fn a_certificate_needs_its_key() {
    assert_eq!(
        World::new().operator("tls: {cert: a.pem}\n").problems(),
        ["/home/.config/countersign/config.yaml: line 1, column 7: `tls.cert` needs `tls.key` too"]
    );
    let settings = World::new().operator("tls: {cert: a.pem, key: /k.pem}\n").settings();
    assert!(
        settings
            .tls
            .is_some_and(|tls| tls.key == Path::new("/k.pem") && tls.cert.ends_with("countersign/a.pem"))
    );
}

#[test]
fn what_is_not_a_plain_file_is_a_problem() {
    let world = World::new();
    std::fs::create_dir_all(world.path("work/.countersign/config.yaml")).unwrap();
    assert_eq!(world.problems(), ["/work/.countersign/config.yaml: is not a file"]);
    let mut world = World::new();
    world.flags.config = Some(world.path("elsewhere"));
    assert_eq!(world.problems(), ["/elsewhere: is not a file"]);
}

#[test]
fn keys_that_nothing_reads_yet_are_kept() {
    let text = "approvers: [{name: a, type: client}]\ngithub: {token_env: GH_TOKEN}\npolicies: {labels: {'run:dev': {agent_key: dev, tools: {'*': {approval: deny}}}}}\n";
    let settings = World::new().operator(text).settings();
    assert_eq!(settings.held("approvers").unwrap().value[0]["type"], "client");
    assert_eq!(
        settings.held("policies.labels").unwrap().value["run:dev"]["agent_key"],
        "dev"
    );
    assert_eq!(
        settings.secret("github.token"),
        Some(crate::config::secret::Secret::Variable("GH_TOKEN".to_owned()))
    );
    assert!(settings.held("no.such.key").is_none());
}
