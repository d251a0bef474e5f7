//! Environment and flags, with and without an operator's file.

use super::*;

#[test]
fn without_configuration_it_is_useful_and_safe() {
    let world = World::new();
    let settings = world.settings();
    assert_eq!(settings.command.allowlist, ["*"]);
    assert_eq!(
        (settings.command.sandbox.as_str(), settings.command.network.as_str()),
        ("workspace-write", "deny")
    );
    assert_eq!(settings.approval.mode, "untrusted");
    assert!(is(&settings.places.workspace_root, &world.path("work")));
    assert_eq!(settings.places.cwd_roots, None);
    assert_eq!(settings.state_dir, world.state_dir());
    assert_eq!(settings.listen, "127.0.0.1:7420");
    assert!(settings.warnings.is_empty() && settings.command.run_as_non_root && settings.approval.self_approval);
    assert_eq!(settings.sources, ["default"]);
    for hidden in [
        "home/.ssh",
        "home/.aws",
        "home/.cargo/credentials.toml",
        "home/.config/countersign",
        "home/.local/state/countersign",
    ] {
        assert!(settings.places.hidden.contains(&world.path(hidden)), "{hidden}");
    }
}

#[test]
fn credentials_are_hidden_in_the_homes_of_all_whom_commands_may_run_as() {
    let mut world = World::new();
    world.surroundings.other_homes = vec!["/home/ana".into(), "/home/ben".into()];
    let hidden = world.settings().places.hidden;
    for place in ["/home/ana/.ssh", "/home/ben/.aws", "/home/ben/.cargo/credentials.toml"] {
        assert!(hidden.contains(&PathBuf::from(place)), "{place}");
    }
    assert!(hidden.contains(&world.path("home/.ssh")));
}

#[test]
fn allowed_commands_makes_a_policy_of_its_own() {
    for (list, expected) in [
        ("ls,cat", &["ls", "cat"][..]),
        (" ls , ,cat,ls,", &["ls", "cat"]),
        ("*", &["*"]),
        ("ls,*", &["*"]),
        ("/usr/bin/git", &["/usr/bin/git"]),
        ("", &[]),
        (" , ", &[]),
    ] {
        let world = World::new().variable("ALLOWED_COMMANDS", list);
        let settings = world.settings();
        assert_eq!(settings.command.allowlist, expected, "{list:?}");
        assert_eq!(settings.approval.mode, "never");
        assert_eq!(settings.places.workspace_root, None);
        assert_eq!(settings.places.start, world.path("work"));
        assert_eq!(
            origin(&settings, "approval_policy.mode"),
            "environment ALLOWED_COMMANDS"
        );
        let said = if expected.is_empty() {
            vec!["`ALLOWED_COMMANDS`: `command_policy.allowlist`: nothing is left of the list, so no program may run"]
        } else {
            vec![]
        };
        assert_eq!(warnings(&world, &settings), said, "{list:?}");
    }
    assert_eq!(
        World::new().variable("ALLOWED_COMMANDS", "./ls,ls").problems(),
        ["`ALLOWED_COMMANDS`: must name programs by a bare name or an absolute path, not `./ls`"]
    );
}

#[test]
fn what_is_configured_stays_beside_allowed_commands() {
    let project = "workspace_root: inner\napproval_policy: {mode: untrusted}\n";
    let world = World::new().project(project).variable("ALLOWED_COMMANDS", "ls");
    let settings = world.settings();
    assert_eq!(
        (settings.approval.mode.as_str(), &settings.command.allowlist[..]),
        ("untrusted", &["ls".to_owned()][..])
    );
    assert!(is(&settings.places.workspace_root, &world.path("work/inner")));
}

#[test]
fn where_an_operators_file_exists_the_environment_only_tightens() {
    let world = World::new()
        .operator("command_policy: {allowlist: [git, ls]}\n")
        .variable("ALLOWED_COMMANDS", "ls,rm");
    let settings = world.settings();
    assert_eq!(settings.command.allowlist, ["ls"]);
    assert_eq!(settings.approval.mode, "untrusted");
    assert!(is(&settings.places.workspace_root, &world.path("work")));
    assert_eq!(
        warnings(&world, &settings),
        [
            "`ALLOWED_COMMANDS`: `command_policy.allowlist`: `rm` is not in the list it may narrow",
            "`ALLOWED_COMMANDS`: `approval_policy.mode`: it does not imply `never` where an operator's file exists; write the mode there",
        ]
    );
    let open = World::new()
        .operator("command_policy: {allowlist: [git]}\napproval_policy: {mode: never}\n")
        .variable("ALLOWED_COMMANDS", "*");
    let settings = open.settings();
    assert_eq!(
        (settings.approval.mode.as_str(), &settings.command.allowlist[..]),
        ("never", &["git".to_owned()][..])
    );
    assert_eq!(
        warnings(&open, &settings),
        ["`ALLOWED_COMMANDS`: `command_policy.allowlist`: `*` would allow any program"]
    );
}

#[test]
fn cwd_roots_are_kept_as_written() {
    for (list, expected) in [
        ("", None),
        ("  ", None),
        ("/a, b ,", Some(vec!["/a", "b"])),
        (",", Some(vec![])),
    ] {
        let settings = World::new().variable("ALLOWED_CWD_ROOTS", list).settings();
        let expected = expected.map(|roots| roots.into_iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(settings.places.cwd_roots, expected, "{list:?}");
        assert_eq!(settings.approval.mode, "untrusted");
    }
}

#[test]
fn flags_beat_variables_beat_defaults() {
    let mut world = World::new()
        .variable("COUNTERSIGN_STATE_DIR", "/s/env")
        .variable("COUNTERSIGN_DATABASE", "postgres://localhost/env");
    let settings = world.settings();
    assert_eq!(
        (settings.state_dir.to_str(), settings.state_dir_origin.to_string()),
        (Some("/s/env"), "environment COUNTERSIGN_STATE_DIR".to_owned())
    );
    assert_eq!(
        settings.database.map(|(url, _)| url).as_deref(),
        Some("postgres://localhost/env")
    );
    world.flags = Flags {
        state_dir: Some("st".into()),
        database: Some("postgres://localhost/flag".into()),
        ..Flags::default()
    };
    let settings = world.settings();
    assert_eq!(settings.state_dir, world.path("work/st"));
    assert_eq!(
        settings.database.map(|(url, _)| url).as_deref(),
        Some("postgres://localhost/flag")
    );
    let [warning] = settings.warnings.as_slice() else {
        panic!("a state directory inside the workspace is pointed out")
    };
    let told = warning.to_string();
    assert!(
        told.starts_with("`--state-dir`: the state directory is inside"),
        "{told}"
    );
    let xdg = World::new()
        .variable("XDG_STATE_HOME", "/x/state")
        .variable("XDG_CONFIG_HOME", "relative");
    assert_eq!(xdg.settings().state_dir, Path::new("/x/state/countersign"));
}

#[test]
fn the_listen_flag_holds_unless_the_operator_named_an_address() {
    for (file, flag, expected, warned) in [
        (None, "0.0.0.0:1", "0.0.0.0:1", 0),
        (Some("quorum: 1\n"), "0.0.0.0:1", "0.0.0.0:1", 0),
        (Some("listen: 127.0.0.1:5\n"), "127.0.0.1:0", "127.0.0.1:0", 0),
        (Some("listen: 127.0.0.1:5\n"), "0.0.0.0:1", "127.0.0.1:5", 1),
        (Some("listen: 10.0.0.1:5\n"), "10.0.0.1:6", "10.0.0.1:6", 0),
        (Some("listen: 10.0.0.1:5\n"), "[::1]:6", "[::1]:6", 0),
    ] {
        let mut world = World::new();
        world.flags.listen = Some(flag.to_owned());
        let world = match file {
            Some(text) => world.operator(text),
            None => world,
        };
        let settings = world.settings();
        assert_eq!(
            (settings.listen.as_str(), settings.warnings.len()),
            (expected, warned),
            "{file:?} {flag}"
        );
    }
    let mut world = World::new();
    world.flags.listen = Some("nowhere".to_owned());
    assert_eq!(
        world.problems(),
        ["`--listen`: `listen` must be an address such as `127.0.0.1:7420`, not `nowhere`"]
    );
}

#[test]
fn the_callback_token_comes_from_the_environment_or_the_file_and_is_never_empty() {
    let world = World::new()
        .operator("quorum: 1\n")
        .variable("COUNTERSIGN_CALLBACK_TOKEN", "s3cret");
    let settings = world.settings();
    let token = settings.callback_token.clone().unwrap();
    assert_eq!(token.read(&world.surroundings).unwrap(), "s3cret");
    assert!(!format!("{settings:?}").contains("s3cret"));
    let both = World::new()
        .operator("callbacks: {token: mine}\n")
        .variable("COUNTERSIGN_CALLBACK_TOKEN", "other");
    assert_eq!(
        both.settings().callback_token,
        Some(crate::config::secret::Secret::Value("mine".to_owned()))
    );
    assert_eq!(both.settings().warnings.len(), 1);
    assert_eq!(
        World::new()
            .variable("COUNTERSIGN_CALLBACK_TOKEN", " ")
            .problems()
            .len(),
        1
    );
    assert_eq!(World::new().settings().callback_token, None);
}

#[test]
fn without_a_home_the_state_directory_must_be_given() {
    let mut world = World::new();
    world.surroundings.home = None;
    assert_eq!(
        world.problems(),
        ["built-in default: there is no home directory for the state directory; give `--state-dir`"]
    );
    world.flags.state_dir = Some("/s".into());
    assert!(world.problems().is_empty());
}
