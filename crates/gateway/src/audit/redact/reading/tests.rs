//! What is hidden whole: keys anywhere, and secrets with blanks where nobody runs them.

use crate::audit::redact::{Config, REPLACEMENT, Reading, Redactor};

fn plain() -> Redactor {
    Redactor::new(Config::default())
}

const KEY: &str = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF\n\n\
    MIIEowhunterAAKCAQEA7bq3Zk2x8Jt0fXvGm5w9R1yQn4LsPpHdUeKcTiVaYoBg\n\
    /q3Zk2x8Jt0fXvGm5w9R1yQn4LsPpHdUeKcTiVaYoBgFjXhhunterAAKCAQEA7b/\nhunterX=\n-----END RSA PRIVATE KEY-----";

/// Whoever runs it, nothing of a key is shown.
#[test]
fn a_key_is_hidden_whole_in_lines_arguments_and_scripts() {
    for line in [
        "cat > key.pem <<'EOF'\nKEY\nEOF\nchmod 600 key.pem",
        "cat <<EOF\nKEY\nEOF",
        "tee k <<< 'KEY'",
        "cat <<< \"KEY\" | sh",
        "python3 -c \"k='''KEY'''\nprint(len(k))\"",
        "python3 - <<'E'\nk = \"\"\"KEY\"\"\"\nE",
        "bash <<E\nssh-add k - <<F\nKEY\nF\nE",
        "SSH_KEY='KEY' deploy",
        "true 'KEY'",
        "KEY",
    ] {
        for key in [KEY.to_owned(), KEY.replace('\n', "\\n"), KEY.replace('\n', "\n    ")] {
            let text = line.replace("KEY", &key);
            for shown in [plain().redact_line(&text), plain().redact_script(&text)] {
                let is_shown = |part| shown.contains(part);
                assert!(
                    !["hunter", "MII", "0123456789", "PRIVATE"].into_iter().any(is_shown),
                    "{shown}"
                );
            }
        }
    }
    let putty = "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: a\nPublic-Lines: 1\n\
        AAAAC3NzaC1lZDI1NTE5AAAAIJ7bq3Zk2x8Jt0fXvGm5w9R1\nPrivate-Lines: 1\n\
        AAAAIhunterZk2x8Jt0fXvGm5w9R1yQn4LsPpHdUeKcTiVaY\nPrivate-MAC: 0123456789abcdef0123456789abcdef0123";
    for (program, before) in [
        ("true", &[][..]),
        ("ls", &["-l"]),
        ("python3", &["-c"]),
        ("sh", &["-c"]),
    ] {
        for key in [KEY, putty] {
            let args: Vec<String> = before.iter().copied().chain([key]).map(str::to_owned).collect();
            let shown = plain().redact_args(program, &args).concat();
            assert!(
                !shown.contains("hunter") && !shown.contains("0123456789"),
                "{program}: {shown}"
            );
        }
    }
}

#[test]
fn no_program_is_hidden_as_a_part_of_a_key() {
    let body = "MIIEowIBAAKCAQEA7bq3Zk2x8Jt0fXvGm5w9R1yQn4LsPpHd";
    for name in [
        "reboot",
        "halt",
        "rm -rf work",
        "/sbin/reboot",
        "/usr/local/lib/some/long/path/to/a/program/there",
    ] {
        let text = format!("sh -c '-----BEGIN PRIVATE KEY-----\n{body}\n{name}\n-----END PRIVATE KEY-----'");
        let shown = plain().redact_line(&text);
        assert!(shown.contains(name) && !shown.contains(body), "{shown}");
    }
}

#[test]
fn long_texts_that_look_like_keys_come_to_an_end() {
    for piece in [
        "\\n",
        "\n",
        "a1 ",
        "-----BEGIN PRIVATE KEY-----",
        "MIIEowIBAAKCAQEA7bq3Zk2x8Jt0fXvGm5w9R1 a1== ",
    ] {
        let text = format!(
            "-----BEGIN PRIVATE KEY-----{}a1 a1",
            piece.repeat(256 * 1024 / piece.len())
        );
        let _ = plain().redact_line(&text);
        let text = format!(
            "-----BEGIN PRIVATE KEY-----{}{}",
            "\\n".repeat(128 * 1024),
            piece.repeat(32 * 1024)
        );
        let _ = plain().redact_line(&text);
    }
}

/// Each holds `correct pony battery`, of which nothing is to be seen.
#[test]
fn a_secret_with_blanks_is_hidden_whole_where_nobody_runs_it() {
    let check = |line: &str, shown: &str| {
        let parts = ["correct", "pony", "battery"];
        assert!(!parts.into_iter().any(|part| shown.contains(part)), "{line}\n{shown}");
    };
    for line in [
        r#"kubectl patch secret x -p '{"stringData":{"password":"correct pony battery"}}'"#,
        "cat > a.ini <<E\npassword = \"correct pony battery\"\nE",
        "cat > a.json <<E && ls\n{\"password\": \"correct pony battery\"}\nE\nls",
        r#"tee a <<< '{"password": "correct pony battery"}'"#,
        r#"docker run -e 'CONFIG={"token":"correct pony battery"}' image"#,
        r#"sh -c 'kubectl patch secret x -p "{\"password\":\"correct pony battery\"}"'"#,
        r#"psql -c "ALTER USER ann WITH PASSWORD 'correct pony battery'""#,
        r#"echo '{"password":"correct pony battery"}' | python3 -m json.tool"#,
    ] {
        check(line, &plain().redact_line(line));
    }
    let json = r#"{"password":"correct pony battery"}"#;
    for program in ["kubectl", "touch"] {
        let shown = plain().redact_args(program, &["-p".to_owned(), json.to_owned()]);
        assert_eq!(shown[1], r#"{"password":"[redacted]"}"#);
    }
    assert_eq!(
        plain().redact_read(json, Reading::of_input_to_line("tee a", json)),
        r#"{"password":"[redacted]"}"#
    );
}

#[test]
fn what_the_operator_names_is_hidden_whole_between_quotes() {
    let pattern = |text: &str| regex::Regex::new(text).unwrap();
    let redactor = Redactor::new(Config {
        patterns: vec![pattern(r"\b(\d{4} ){3}\d{4}\b"), pattern("ACME[^'\"]*")],
        secret_values: vec!["correct pony battery".to_owned()],
    });
    for (line, shown) in [
        ("touch '4111 1111 1111 1234'", "touch '[redacted]'"),
        ("touch \"correct pony battery\"", "touch \"[redacted]\""),
        ("touch correct pony battery", "touch [redacted]"),
        (
            "python3 -c 'print(\"correct pony battery\")'",
            "python3 -c 'print(\"[redacted]\")'",
        ),
        (
            "python3 -c 'print(\"4111 1111 1111 1234\")'",
            "python3 -c 'print(\"[redacted]\")'",
        ),
        ("sh -c 'ls ACME; rm -rf work'", "sh -c 'ls [redacted]; rm -rf work'"),
        (
            "docker exec db sh -c 'ls ACME; rm -rf work'",
            "docker exec db sh -c 'ls [redacted]; rm -rf work'",
        ),
        (
            "echo 'ls ACME; rm -rf work' | sh",
            "echo 'ls [redacted]; rm -rf work' | sh",
        ),
        ("touch \"ACME$(rm -rf work)\"", "touch \"[redacted]$(rm -rf work)\""),
        (
            "python3 -c \"x('ACME $(rm -rf work)')\"",
            "python3 -c \"x('[redacted] $(rm -rf work)')\"",
        ),
    ] {
        assert_eq!(redactor.redact_line(line), shown, "{line}");
    }
    for arg in ["4111 1111 1111 1234", "correct pony battery"] {
        assert_eq!(redactor.redact_args("touch", &[arg.to_owned()]), [REPLACEMENT]);
    }
}

#[test]
fn input_that_a_program_takes_for_a_secret_is_withheld_whole() {
    let check = |line: &str, expected: Reading| {
        let input = "root:hunter2 x";
        assert_eq!(Reading::of_input_to_line(line, input), expected, "{line}");
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(
            Reading::of_input_to_program(&words[0], &words[1..], input),
            expected,
            "{words:?}"
        );
    };
    for line in [
        "chpasswd",
        "sudo chpasswd",
        "docker login -u ann --password-stdin",
        "sudo -n docker login --password-stdin",
        "gh auth login --with-token",
        "passwd --stdin ann",
        "sudo -S ls",
        "sudo -kS -p x ls",
        "gpg --batch --passphrase-fd 0 -d a",
        "openssl enc -aes-256-cbc -pass stdin",
        "/sbin/cryptsetup open /dev/sda1 x",
        "ssh-add -",
    ] {
        check(line, Reading::Secret);
    }
    for line in ["cat", "ls -S", "openssl dgst", "gpg --passphrase-fd 3 a", "ssh-add k"] {
        check(line, Reading::Data);
    }
    for line in ["sh", "sudo -S sh", "ssh host chpasswd"] {
        check(line, Reading::Code);
    }
    check("sudo -S python3", Reading::Program);
    let shown = plain().redact_read("root:hunter2 x\n", Reading::Secret);
    assert_eq!(shown, "[redacted]\n");
    assert_eq!(plain().withheld_chars("root:hunter2 x\n", Reading::Secret), 14);
    for line in [
        "echo hunter2 | sudo -S ls",
        "gpg --passphrase-fd 0 x <<< hunter2",
        "ssh-add - <<E\nhunter2 x\nE",
    ] {
        let shown = plain().redact_line(line);
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

/// Whoever pastes a token alone, or calls it by mistake, has not made a program of it.
#[test]
fn a_token_in_the_place_of_a_program_is_hidden() {
    let tokens = [
        "ghp_hunter2hunter2hunter2hunter2hunter2h",
        "glpat-hunter2hunter2hunter2",
        "sk-ant-api03-hunter2hunter2hunter2-hunter2",
        "AKIAHUNTERHUNTERHUNT",
        "eyJhunter2hunter2.eyJhunter2hunter2.hunter2-hunter2",
    ];
    for token in tokens {
        for line in [
            "@@",
            "@@ a",
            "ls && @@",
            "ls; @@; ls",
            "echo a | @@",
            "export GITHUB_TOKEN=$(@@)",
            "GITHUB_TOKEN= @@ ls",
            "ls \"$(@@)\" `@@`",
            "'@@' a",
            "sudo @@",
            "sh -c @@",
            "if @@; then ls; fi",
            "{ @@; }",
            "@@/a",
        ] {
            let text = line.replace("@@", token);
            for reading in [
                Reading::Line,
                Reading::Code,
                Reading::Program,
                Reading::Anything,
                Reading::Data,
            ] {
                let shown = plain().redact_read(&text, reading);
                let is_shown = shown.to_lowercase().contains("hunter");
                assert!(!is_shown, "{reading:?} {text}: {shown}");
                let others = ["ls", "export GITHUB_TOKEN=", "sudo", "sh -c"];
                let is_lost = |other: &&str| line.contains(*other) && !shown.contains(*other);
                assert!(!others.iter().any(is_lost), "{text}: {shown}");
            }
        }
    }
}

#[test]
fn a_secret_of_the_call_in_the_place_of_a_program_is_hidden_and_no_program_is() {
    for secret in ["Zq001hunTer0", "hunter2hunter2hunter2"] {
        let redactor = plain().hiding([secret]).unwrap();
        for line in ["@@", "ls && @@", "echo a | @@ b", "x=$(@@)", "TOKEN= @@ ls"] {
            let text = line.replace("@@", secret);
            let shown = redactor.redact_line(&text);
            assert!(
                !shown.contains(secret) && shown.contains(REPLACEMENT),
                "{text}: {shown}"
            );
        }
    }
    for program in [
        "resize2fs",
        "sha256sum",
        "fusermount3",
        "shutdown",
        "./Zq001hunTer0",
        "/tmp/ghp_hunter2hunter2hunter2hunter2/rm",
        "update-alternatives",
        "x86_64-linux-gnu-gcc-12",
        "NetworkManager",
    ] {
        let redactor = plain().hiding([program]).unwrap();
        let visible = program.rsplit('/').next().unwrap();
        for line in ["@@ a", "ls && @@", "x=$(@@)", "TOKEN= @@ ls"] {
            let text = line.replace("@@", program);
            let shown = redactor.redact_line(&text);
            assert!(shown.contains(visible), "{text}: {shown}");
        }
    }
}
