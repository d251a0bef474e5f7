//! What `connect --write` does to a file that was there before, and where it cannot write.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::{BINARY, CLIENTS, args, given, mode, names, write};
use crate::stage::{Stage, ran};

#[test]
fn everything_else_in_a_json_file_stays_as_it_is_written() {
    let stage = Stage::new();
    let before = r#"{
    "zeta": 1.50e3,   "alpha": "\u00e9",
    "mcpServers": {
        "other": {"command": "x", "args": [ ]}
    },
    "projects": {"/a": {"mcpServers": {"countersign": {"command": "nested"}}}}
}"#;
    let path = given(&stage, ".claude.json", before);
    let ran = write(&stage, "claude-code", &[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let expected = before.replace(
        "\"args\": [ ]}\n",
        &format!(
            "\"args\": [ ]}},\n        \"countersign\": {{\n            \"type\": \"stdio\",\n            \"command\": \
             \"{BINARY}\",\n            \"args\": [\"--state-dir\", \"{}\", \"stdio\"]\n        }}\n",
            stage.state().display()
        ),
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
}

#[test]
fn comments_in_the_file_survive() {
    let stage = Stage::new();
    let before = "// mine\n{\n\t\"inputs\": [], // none\n\t\"servers\": {\n\t\t/* old */\n\t\t\"a\": {\"url\": \"http://a\"}, // a\n\t},\n}\n";
    let path = given(&stage, ".config/Code/User/mcp.json", before);
    let ran = write(&stage, "vscode", &[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let after = fs::read_to_string(&path).unwrap();
    let kept: Vec<&str> = after
        .lines()
        .filter(|line| before.lines().any(|old| old == *line))
        .collect();
    assert_eq!(kept.len(), before.lines().count(), "{after}");
    assert!(
        after.contains("\n\t\t\"countersign\": {\n\t\t\t\"type\": \"stdio\",\n"),
        "{after}"
    );
    assert!(write(&stage, "vscode", &[]).stdout.starts_with("already connected: "));

    let before = "# mine\nmodel = \"m\" # chosen\n\n[mcp_servers.a] # a\ncommand = \"a\"\n\n[tui]\n# quiet\nnotifications = false\n";
    let path = given(&stage, ".codex/config.toml", before);
    assert_eq!(write(&stage, "codex", &[]).code, 0);
    let entry = format!(
        "[mcp_servers.countersign]\ncommand = \"{BINARY}\"\nargs = [\"--state-dir\", \"{}\", \"stdio\"]\n\n[tui]\n",
        stage.state().display()
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), before.replace("[tui]\n", &entry));
}

#[test]
fn the_same_entry_again_changes_nothing() {
    let stage = Stage::new();
    for client in CLIENTS {
        let first = write(&stage, client, &["--json"]).json();
        let path = PathBuf::from(first["file"].as_str().unwrap());
        let before = fs::metadata(&path).unwrap();
        let again = write(&stage, client, &["--json"]).json();
        assert_eq!((&again["written"], &again["backup"]), (&json!(false), &Value::Null));
        assert_eq!(again["entry"], first["entry"]);
        let told = write(&stage, client, &[]);
        let expected = format!("already connected: `{}` has the entry `countersign`\n", path.display());
        assert_eq!((told.code, told.stdout), (0, expected));
        let after = fs::metadata(&path).unwrap();
        assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
        assert_eq!(names(path.parent().unwrap()).len(), 1, "{client}");
    }
}

#[test]
fn an_older_entry_of_ours_is_brought_up_to_date_and_keeps_what_was_added() {
    let stage = Stage::new();
    let cursor = given(
        &stage,
        ".cursor/mcp.json",
        r#"{"mcpServers": {"countersign": {"command": "/old/countersign", "args": ["stdio"], "env": {"ALLOWED_COMMANDS": "git"}}}}"#,
    );
    let told = write(&stage, "cursor", &[]).stdout;
    assert!(
        told.starts_with("connected: brought the entry `countersign` in "),
        "{told}"
    );
    let now: Value = serde_json::from_str(&fs::read_to_string(&cursor).unwrap()).unwrap();
    assert_eq!(
        now["mcpServers"]["countersign"],
        json!({"command": BINARY, "args": args(&stage), "env": {"ALLOWED_COMMANDS": "git"}})
    );

    let codex = given(
        &stage,
        ".codex/config.toml",
        "[mcp_servers.countersign]\ncommand = \"/old/countersign\" # mine\nargs = [\"stdio\"]\ntool_timeout_sec = 90\n",
    );
    assert_eq!(write(&stage, "codex", &[]).code, 0);
    assert_eq!(
        fs::read_to_string(&codex).unwrap(),
        format!(
            "[mcp_servers.countersign]\ncommand = \"{BINARY}\" # mine\nargs = [\"--state-dir\", \"{}\", \
             \"stdio\"]\ntool_timeout_sec = 90\n",
            stage.state().display()
        )
    );
    assert_eq!(write(&stage, "codex", &["--http", "--with-token"]).code, 0);
    assert_eq!(
        fs::read_to_string(&codex).unwrap(),
        "[mcp_servers.countersign]\ntool_timeout_sec = 90\nurl = \"http://127.0.0.1:7420/mcp\"\nbearer_token_env_var = \
         \"COUNTERSIGN_TOKEN\"\n"
    );
}

#[test]
fn somebody_elses_entry_is_left_alone_unless_forced() {
    let stage = Stage::new();
    let json = r#"{"mcpServers": {"countersign": {"command": "npx", "args": ["theirs"], "cwd": "/x"}}}"#;
    let toml = "[mcp_servers.countersign]\ncommand = \"npx\"\nargs = [\"theirs\"]\n";
    for (client, name, before) in [
        ("cursor", ".cursor/mcp.json", json),
        ("codex", ".codex/config.toml", toml),
    ] {
        let path = given(&stage, name, before);
        write(&stage, client, &[]).failed(
            1,
            &format!(
                "countersign: `{}` has an entry `countersign` that is not ours; `--force` replaces it, `--name` takes \
                 another name\n",
                path.display()
            ),
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
        assert_eq!(names(path.parent().unwrap()).len(), 1);
        assert_eq!(write(&stage, client, &["--name", "second"]).code, 0);
        let forced = write(&stage, client, &["--force", "--json"]).json();
        assert_eq!(forced["entry"], json!({"command": BINARY, "args": args(&stage)}));
        let after = fs::read_to_string(&path).unwrap();
        assert!(after.contains("second") && !after.contains("npx"), "{after}");
    }
}

#[test]
fn a_copy_of_the_old_file_is_kept_with_its_permissions() {
    let stage = Stage::new();
    let path = given(&stage, ".cursor/mcp.json", "{}");
    for (round, wanted) in [(1, 0o640), (2, 0o400)] {
        fs::set_permissions(&path, Permissions::from_mode(wanted)).unwrap();
        let before = fs::read_to_string(&path).unwrap();
        let name = format!("name-{round}");
        let told = write(&stage, "cursor", &["--json", "--name", &name]).json();
        let backup = PathBuf::from(told["backup"].as_str().unwrap());
        let start = format!("{}.bak-2", path.display());
        assert!(backup.to_str().unwrap().starts_with(&start), "{backup:?}");
        assert_eq!(fs::read_to_string(&backup).unwrap(), before);
        assert_eq!((mode(&path), mode(&backup)), (wanted, wanted));
        assert_eq!(names(path.parent().unwrap()).len(), 1 + round);
    }
}

#[test]
fn a_file_that_does_not_parse_is_reported_with_its_place_and_left_alone() {
    let stage = Stage::new();
    for (client, name, text, problem) in [
        (
            "claude-code",
            ".claude.json",
            "{\n  \"a\": 1,\n",
            "line 1, column 1: unterminated object",
        ),
        (
            "claude-code",
            ".claude.json",
            "{} // mine\n",
            "line 1, column 4: trailing characters",
        ),
        (
            "cursor",
            ".cursor/mcp.json",
            "{\n  \"é\": tru\n}",
            "line 2, column 8: unexpected word",
        ),
        ("cursor", ".cursor/mcp.json", "[]", "it does not hold a JSON object"),
        (
            "cursor",
            ".cursor/mcp.json",
            "{\"mcpServers\": []}",
            "`mcpServers` is not an object",
        ),
        (
            "cursor",
            ".cursor/mcp.json",
            "{\"mcpServers\": {}, \"mcpServers\": {}}",
            "`mcpServers` is there twice",
        ),
        (
            "codex",
            ".codex/config.toml",
            "a = 1\nb = [1, 2\n",
            "line 2, column 10: unclosed array, expected `]`",
        ),
        (
            "codex",
            ".codex/config.toml",
            "mcp_servers = 1\n",
            "`mcp_servers` is not a table",
        ),
    ] {
        let path = given(&stage, name, text);
        let ran = write(&stage, client, &[]);
        ran.failed(
            1,
            &format!(
                "countersign: cannot edit `{}`: {problem}; nothing was changed, and `countersign connect {client}` \
                 prints what belongs there\n",
                path.display()
            ),
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let beside = names(path.parent().unwrap());
        assert!(
            !beside
                .iter()
                .any(|name| name.contains(".bak-") || name.contains(".new-")),
            "{beside:?}"
        );
    }
    let path = given(&stage, ".claude.json", "");
    fs::write(&path, b"\xff\xfe{\0}\0").unwrap();
    let told = format!("countersign: `{}` is not UTF-8 text\n", path.display());
    write(&stage, "claude-code", &[]).failed(1, &told);
}

#[test]
fn an_empty_file_is_filled() {
    let stage = Stage::new();
    for text in ["", "\n", "{}"] {
        let path = given(&stage, ".cursor/mcp.json", text);
        assert_eq!(write(&stage, "cursor", &[]).code, 0);
        let now: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(now["mcpServers"]["countersign"]["command"], BINARY);
    }
    let path = given(&stage, ".codex/config.toml", "# nothing yet\n");
    assert_eq!(write(&stage, "codex", &[]).code, 0);
    let now = fs::read_to_string(&path).unwrap();
    assert!(
        now.contains("# nothing yet\n") && now.contains("[mcp_servers.countersign]\n"),
        "{now}"
    );
}

#[test]
fn a_byte_order_mark_and_the_kind_of_line_ends_stay() {
    let stage = Stage::new();
    for (client, name, text) in [
        ("claude-code", ".claude.json", "\u{feff}{\r\n  \"a\": 1\r\n}\r\n"),
        (
            "vscode",
            ".config/Code/User/mcp.json",
            "\u{feff}{\r\n  // b\r\n  \"a\": 1\r\n}\r\n",
        ),
        ("codex", ".codex/config.toml", "\u{feff}a = 1\r\n\r\n[b]\r\nc = 2\r\n"),
    ] {
        let path = given(&stage, name, text);
        let ran = write(&stage, client, &[]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let now = fs::read_to_string(&path).unwrap();
        assert!(
            now.starts_with('\u{feff}') && now.matches('\u{feff}').count() == 1,
            "{now:?}"
        );
        assert_eq!(now.matches("\r\n").count(), now.matches('\n').count(), "{now:?}");
        assert!(now.contains("countersign"), "{now:?}");
        assert!(
            write(&stage, client, &[]).stdout.starts_with("already connected"),
            "{client}"
        );
    }
}

#[test]
fn a_link_is_followed_and_stays_a_link() {
    let stage = Stage::new();
    let real = given(&stage, "dotfiles/mcp.json", "{}");
    let link = stage.home().join(".cursor/mcp.json");
    fs::create_dir(link.parent().unwrap()).unwrap();
    symlink("../dotfiles/mcp.json", &link).unwrap();
    assert_eq!(write(&stage, "cursor", &[]).code, 0);
    assert!(link.is_symlink() && fs::read_to_string(&real).unwrap().contains("countersign"));
    assert_eq!(
        names(real.parent().unwrap()).len(),
        2,
        "the copy is beside the file itself"
    );
    // The same where the file is still to come.
    fs::remove_file(&real).unwrap();
    assert_eq!(write(&stage, "cursor", &[]).code, 0);
    assert!(link.is_symlink() && real.exists());
    fs::remove_file(&link).unwrap();
    symlink("mcp.json", &link).unwrap();
    let told = format!("countersign: `{}` is a link that leads nowhere\n", link.display());
    write(&stage, "cursor", &[]).failed(1, &told);
}

#[test]
fn a_link_out_of_the_project_is_not_followed() {
    let stage = Stage::new();
    let target = given(&stage, "precious.json", "{}");
    symlink(&target, stage.work().join(".mcp.json")).unwrap();
    symlink(stage.home(), stage.work().join(".vscode")).unwrap();
    for client in ["claude-code", "vscode"] {
        let ran = write(&stage, client, &["--scope", "project"]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.contains(", out of the project; "), "{ran:?}");
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "{}");
    assert_eq!(names(&stage.home()), ["precious.json"]);
}

#[test]
fn a_projects_file_is_readable_by_others() {
    let stage = Stage::new();
    for (client, name) in [
        ("claude-code", ".mcp.json"),
        ("codex", ".codex/config.toml"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json"),
    ] {
        assert_eq!(write(&stage, client, &["--scope", "project"]).code, 0);
        assert_ne!(mode(&stage.work().join(name)), 0o600, "{client}");
    }
    assert!(names(&stage.home()).is_empty());
}

#[test]
fn a_place_that_cannot_be_written_is_told() {
    let stage = Stage::new();
    let path = stage.home().join(".claude.json");
    fs::create_dir(&path).unwrap();
    let told = format!("countersign: `{}` is a directory, not a file\n", path.display());
    write(&stage, "claude-code", &[]).failed(1, &told);

    given(&stage, ".cursor", "a file");
    let refused = write(&stage, "cursor", &[]);
    let told = format!(
        "countersign: cannot look at `{}/.cursor/mcp.json`: ",
        stage.home().display()
    );
    assert!(refused.code == 1 && refused.stderr.starts_with(&told), "{refused:?}");

    // Not even root can make files there.
    let mut command = stage.command(&["connect", "claude-code", "--write"]);
    command.env("HOME", "/proc");
    let refused = ran(command);
    assert!(
        refused.code == 1
            && refused
                .stderr
                .starts_with("countersign: cannot write `/proc/.claude.json.new-"),
        "{refused:?}"
    );
    let mut command = stage.command(&["connect", "claude-code"]);
    command.env("HOME", "not/absolute");
    ran(command).failed(
        2,
        "countersign: there is no home directory to find Claude Code's file in; set `HOME`\n",
    );
}
