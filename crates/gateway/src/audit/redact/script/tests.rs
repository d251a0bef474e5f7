//! What runs is seen, and what is secret is not.

use crate::audit::redact::{Config, REPLACEMENT, Redactor, named};

fn plain() -> Redactor {
    Redactor::new(Config::default())
}

/// Each text holds the command `rm -rf work`, where a shell or a program would run it.
#[test]
fn no_command_is_hidden_as_a_secret() {
    for text in [
        r#"PASSWORD="$(rm -rf work)" true"#,
        "PASSWORD=$(rm -rf work) true",
        "PASSWORD=`rm -rf work` true",
        r#"PASSWORD="a`rm -rf work`b" true"#,
        "PASSWORD='a\\' ; rm -rf work ; echo ''",
        "PASSWORD='a\\' rm -rf work ''",
        r#"TOKEN=\"a; rm -rf work; echo \""#,
        r#"TOKEN=\"a rm -rf work \""#,
        r#"echo "token='" ; rm -rf work ; echo "'""#,
        ": '-----BEGIN PRIVATE KEY-----'; rm -rf work",
        "-----BEGIN PRIVATE KEY-----\nrm -rf work\n-----END PRIVATE KEY-----",
        "echo Cookie: x; rm -rf work",
        "echo Authorization: Basic x; rm -rf work",
        "sh -c 'TOKEN=x; rm -rf work'",
        "sh -c 'echo cookie: x; rm -rf work'",
        "sh -c 'echo Authorization: Digest x; rm -rf work'",
        "sh -c 'true --token \"$(rm -rf work)\"'",
        "sh -c \"true --token '$(rm -rf work)'\"",
        "sh -c \"echo \\\"token='\\\" ; rm -rf work ; echo \\\"'\\\"\"",
        "sh -c \": '-----BEGIN PRIVATE KEY-----'; rm -rf work\"",
        "sh -c $': PRIVATE\\n-----BEGIN PRIVATE KEY-----\\nrm -rf work'",
        "bash -lc 'sh -c \"PASSWORD=x; rm -rf work\"'",
        "ssh host true --password '; rm -rf work'",
        "eval true --password '; rm -rf work'",
        "make TOKEN='$(shell rm -rf work)'",
        "git -c credential.helper='!rm -rf work' fetch",
        "restic --password-command 'rm -rf work' backup",
        "RESTIC_PASSWORD_COMMAND='rm -rf work' restic backup",
        "curl x <<E\n'\nE\necho cookie: x; rm -rf work #'",
        "cat <<E\nit's\nE\necho cookie: x; rm -rf work\n: 'x'",
        "curl -H \"Cookie: $(rm -rf work)\" u",
        "curl $$'\\'; echo cookie: x; rm -rf work; echo '",
        "curl a # it's\necho cookie: x; rm -rf work # '",
        "curl \\$'\\'; echo cookie: x; rm -rf work; echo '",
        "sh <<'E'\necho cookie: x; rm -rf work\nE",
        "mysql -p\"$(rm -rf work)\"",
        "sshpass -p '' true -p; rm -rf work",
        "echo 'rm -rf work' | sh -s login --password-stdin",
        "echo 'rm -rf work' | sudo -S sh",
        "echo 'rm -rf work' | sh; docker login --password-stdin",
        "echo 'rm -rf work' | sh | docker login --password-stdin",
        "echo \"$(rm -rf work)\" | docker login --password-stdin",
        "echo x || rm -rf work | docker login --password-stdin",
        "docker login --password-stdin <<< \"$(rm -rf work)\"",
        "docker login --password-stdin <<E\n$(rm -rf work)\nE",
        "docker login --password-stdin <<E\nx\nE\nrm -rf work",
        "cargo login; rm -rf work",
        "echo 'rm -rf work' | sh; chpasswd",
        // What is said or written here is run there.
        "echo 'echo cookie: x; rm -rf work' | sh",
        "(echo 'echo cookie: x; rm -rf work') | sudo sh",
        "cat <<< 'echo cookie: x; rm -rf work' | sh",
        "cat <<E | sh\necho cookie: x; rm -rf work\nE",
        "cat > x.sh <<E\necho cookie: x; rm -rf work\nE\nsh x.sh",
        "tee x.sh <<E\necho cookie: x; rm -rf work\nE\n./x.sh",
        "touch 'echo cookie: x; rm -rf work' | xargs sh -c",
        "sh <(echo 'echo cookie: x; rm -rf work')",
        "eval \"$(echo 'echo cookie: x; rm -rf work')\"",
        "X='echo cookie: x; rm -rf work'; eval \"$X\"",
        "X='echo cookie: x; rm -rf work'; $X",
        "python3 -c 'import os; os.system(\"echo cookie: x; rm -rf work\")'",
        "python3 <<E\nos.system(\"echo cookie: x; rm -rf work\")\nE",
        "docker exec db sh -c 'echo cookie: x; rm -rf work'",
        "sudo -u ann bash -c 'echo cookie: x; rm -rf work'",
        "git -c alias.x='!echo cookie: x; rm -rf work' x",
        "git submodule foreach 'echo cookie: x; rm -rf work'",
        "tar --to-command='echo cookie: x; rm -rf work' -xf a",
        "GIT_SSH_COMMAND='echo cookie: x; rm -rf work' git fetch",
        "psql -c '\\! echo cookie: x; rm -rf work'",
        "psql <<E\n\\! echo cookie: x; rm -rf work\nE",
        "sed '1e echo cookie: x; rm -rf work' a",
        "trap 'echo cookie: x; rm -rf work' EXIT",
        "touch 'cookie: $(rm -rf work)'",
        "cat <<E\ncookie: $(rm -rf work)\nE",
        "PASSWORD= rm -rf work",
        "true; if API_TOKEN=\trm -rf work; then :; fi",
        "sh -c 'PASSWORD= rm -rf work'",
        "echo password: |\n  rm -rf work",
        "password: |\n  rm -rf work",
        "password: x rm -rf work",
        "PASSWORD=x rm -rf work",
        "TOKENS=(a b) && rm -rf work",
        "TOKENS=(a $(rm -rf work))",
        "TOKEN=$(rm -rf work; echo x)",
        "TOKEN='rm -rf work'; $TOKEN",
        "TOKEN='rm -rf work'; eval \"$TOKEN\"",
        "TOKEN='rm -rf work'; sudo sh -c \"${TOKEN}\"",
        "TOKENS=('rm -rf work'); \"${TOKENS[@]}\"",
        "read -r TOKEN <<< 'rm -rf work'; $TOKEN",
        "printf -v TOKEN %s 'rm -rf work'; $TOKEN",
        "TOKEN=$(echo 'rm -rf work'); $TOKEN",
    ] {
        for shown in [plain().redact_line(text), plain().redact_script(text)] {
            assert!(shown.contains("rm -rf work"), "{text}\n{shown}");
        }
    }
}

#[test]
fn no_argument_that_runs_is_hidden_as_a_secret() {
    for (program, args) in [
        ("sh", &["-c", "TOKEN=x; rm -rf work"][..]),
        ("bash", &["-c", "echo cookie: x; rm -rf work"]),
        ("bash", &["-c", "PASSWORD=\"$(rm -rf work)\""]),
        ("/bin/sh", &["-c", ": '-----BEGIN PRIVATE KEY-----'; rm -rf work"]),
        ("make", &["TOKEN=$(shell rm -rf work)"]),
        ("git", &["-c", "credential.helper=!rm -rf work", "fetch"]),
        ("ssh", &["host", "true", "--password", "; rm -rf work"]),
    ] {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let shown = plain().redact_args(program, &args);
        assert!(shown.concat().contains("rm -rf work"), "{program} {args:?}\n{shown:?}");
    }
}

/// Each text holds `hunter2x` or the end of it, as a secret.
#[test]
fn secrets_of_a_line_are_hidden_in_every_way_of_writing_them() {
    for text in [
        "deploy --password hunter2x",
        "deploy --password $'hunter2x'",
        "deploy --password $'hunter\\'2x'",
        "deploy --password=$'hunter2x'",
        "deploy --password 'hunter'2x",
        "deploy --password hunter\"2x\"",
        "deploy --password hunter\\ 2x",
        "deploy --password 'it'\\''s hunter2x'",
        "deploy --password ab,hunter2x",
        "deploy -password hunter2x",
        "deploy -token hunter2x",
        "DB_PASS=hunter2x deploy",
        "PASS=hunter2x deploy",
        "PASSWORD=a\\;hunter2x deploy",
        "export STRIPE_KEY=hunter2x",
        "mysql -u root -phunter2x app",
        "mysql -uroot '-phunter2x' app",
        "/usr/bin/mysqldump -phunter2x app > dump",
        "sudo mysql -phunter2x",
        "docker exec db mysql -phunter2x",
        "sh -c 'mysql -phunter2x app'",
        "mysqladmin -u root password hunter2x",
        "sshpass -p hunter2x ssh host",
        "sshpass -phunter2x ssh host",
        "docker login -u ann -p hunter2x registry",
        "redis-cli -a hunter2x ping",
        "ldapsearch -x -w hunter2x",
        "zip -P hunter2x a.zip b",
        "7z a -phunter2x a.7z b",
        "mongosh -u ann -p hunter2x",
        "curl -u ann:hunter2x u",
        "curl -uann:hunter2x u",
        "curl -sSu ann:hunter2x u",
        "curl -U ann:hunter2x u",
        "curl -H 'Cookie: a=1; b=hunter2x' u",
        "curl -H 'X-Api-Key: hunter2x' u",
        "other -H 'Cookie: a=1; b=hunter2x' u",
        "curl -d '{\"password\":\"a;hunter2x\"}' u",
        "http -a ann:hunter2x u",
        "smbclient -U ann%hunter2x //h/s",
        "lftp -u ann,hunter2x h",
        "openssl enc -k hunter2x",
        "openssl rsa -passin pass:hunter2x",
        "keytool -storepass hunter2x -keypass hunter2x",
        "htpasswd -b file ann hunter2x",
        "twine upload -u ann -p hunter2x dist/a",
        "cqlsh -u ann -p hunter2x host",
        "cypher-shell -u ann -p hunter2x",
        "ssh-keygen -t ed25519 -N hunter2x -f key",
        "ssh-keygen -p -P hunter2x -f key",
        "useradd -m -p hunter2x ann",
        "cargo login hunter2x",
        "ngrok config add-authtoken hunter2x",
        "doctl auth init -t hunter2x",
        "dotnet nuget push a.nupkg -k hunter2x",
        "pulumi config set --secret name hunter2x",
        "curl -bid=hunter2x u",
        "echo 'ann:hunter2x' | chpasswd",
        "chpasswd <<< 'ann:hunter2x'",
        "echo hunter2x | passwd --stdin ann",
        "gh secret set NAME --body hunter2x",
        "gh secret set NAME -b hunter2x",
        "vault kv put secret/x v=hunter2x",
        "vault login hunter2x",
        "kubectl create secret generic x --from-literal=v=hunter2x",
        "fly secrets set V=hunter2x",
        "aws configure set aws_secret_access_key hunter2x",
        "git config http.password hunter2x",
        "npm config set //r/:_authToken hunter2x",
        "psql -c \"ALTER USER ann WITH PASSWORD 'hunter2x'\"",
        "mysql -e \"CREATE USER a IDENTIFIED BY 'hunter2x'\"",
        "git clone https://ann:pa/hunter2x@host/x.git",
        "git clone https://ann:hunter2x@host/x.git",
        "curl 'https://h/b?sv=1&sig=hunter2x'",
        "PASSWORD=\"hunter2x$(date)\" deploy",
        "cat <<E\npassword=hunter2x\nE",
        "# password=hunter2x",
    ] {
        let shown = plain().redact_line(text);
        assert!(!shown.contains("2x") && shown.contains(REPLACEMENT), "{text}\n{shown}");
    }
}

#[test]
fn options_of_other_programs_are_left_alone() {
    for text in [
        "mkdir -p work/deep",
        "docker run -p 8080:80 image",
        "ssh -p 2222 host",
        "cp -pr a b",
        "mysql -p app",
        "grep -P '[0-9]+' file",
        "git push -u origin main",
        "git log -p -- path/to/file",
        "tar -k -xf keys.tar",
        "cargo test -p gateway pass",
        "echo pass: 12 fail: 0",
        "git diff -U5 HEAD~1",
        "curl -sSL https://localhost:4873/@scope/pkg",
        "sort -k 2 file",
        "PARTITION_KEY=id deploy",
        "gh issue create --body 'see the key in docs'",
    ] {
        assert_eq!(plain().redact_line(text), text);
    }
}

#[test]
fn a_secret_is_known_as_it_is_without_its_quotes() {
    let known = named::in_line("mysql -p'hunter 2x'; x --token $'ab\\'cdef' API_KEY=\"a b\"c");
    for value in ["hunter 2x", "ab'cdef", "a bc"] {
        assert!(known.iter().any(|it| it == value), "{value}: {known:?}");
    }
}

#[test]
fn what_is_said_to_a_program_that_takes_it_for_a_secret_is_hidden() {
    for (text, shown) in [
        (
            "echo hunter22x | docker login -u bob --password-stdin",
            "echo [redacted] | docker login -u bob --password-stdin",
        ),
        (
            "printf '%s' \"hunter22x\" |& podman login --password-stdin r.example",
            "printf '%s' \"[redacted]\" |& podman login --password-stdin r.example",
        ),
        (
            "echo -n hunter22x |\n  helm registry login --password-stdin",
            "echo -n [redacted] |\n  helm registry login --password-stdin",
        ),
        (
            "gh auth login --with-token <<< hunter22x; ls",
            "gh auth login --with-token <<< [redacted]; ls",
        ),
        (
            "glab auth login --stdin <<E\nhunter22x\nE\nls",
            "glab auth login --stdin <<E\n[redacted]\nE\nls",
        ),
        (
            "bash -c 'echo hunter22x | docker login --password-stdin'",
            "bash -c 'echo [redacted] | docker login --password-stdin'",
        ),
    ] {
        assert_eq!(plain().redact_line(text), shown);
        assert!(named::in_line(text).iter().any(|it| it == "hunter22x"), "{text}");
    }
}

/// Lists and lines below a name hold commands as well as secrets.
#[test]
fn no_command_is_hidden_below_a_name_or_in_its_list() {
    for text in [
        "password:\n  reboot",
        "token:\n- reboot\n",
        "python3 -c 'import subprocess; password = [\"rm\",\"-rf\",\"work\"]; subprocess.run(password)'",
        "python3 <<E\ntoken = [ \"rm\", \"-rf\", \"work\" ]\nE",
        "node -e 'x({token: {value: \"rm -rf work\"}})'",
    ] {
        for shown in [plain().redact_line(text), plain().redact_script(text)] {
            let commands = ["reboot", "-rf"].into_iter().filter(|it| text.contains(it));
            commands.for_each(|command| assert!(shown.contains(command), "{text}\n{shown}"));
        }
    }
}

/// What another command says, or a variable holds, runs whatever it is called.
#[test]
fn no_command_is_hidden_where_it_is_said_or_called() {
    for line in [
        "printf '%.0s%s' --password 'rm -rf work' | sh",
        "jq -rn --arg token 'rm -rf work' '$token' | sh",
        "jq -rn '{token:\"rm -rf work\"}|.token' | sh",
    ] {
        let shown = plain().redact_line(line);
        assert!(shown.contains("-rf work"), "{line}\n{shown}");
    }
    for line in [
        "name=TOKEN value=rm; $value -rf work",
        "pass=rm; $pass -rf work",
        "DB_PASS=rm; \"$DB_PASS\" -rf work",
    ] {
        assert_eq!(plain().redact_line(line), line);
    }
}

/// What is done is not hidden for looking like a secret.
#[test]
fn no_verb_is_hidden_as_a_secret() {
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U";
    for text in [
        format!("bash {jwt}"),
        format!("sudo bash -x {jwt} a"),
        format!("python3 {jwt}"),
        "python3 -c 'import os; token = os.mkdir(\"P2\")'".to_owned(),
        "python3 -c 'from os import*\npassword=mkdir(\"P3\")'".to_owned(),
        "python3 <<E\nimport shutil\ntoken = shutil.rmtree(\"work\")\nE".to_owned(),
        "node -e 'const apiKey = fs.rmSync(\"work\")'".to_owned(),
    ] {
        assert_eq!(plain().redact_line(&text), text);
    }
    assert_eq!(plain().redact_args("bash", &[jwt.to_owned()]), [jwt]);
    let known = plain().hiding(["reboot-it"]).expect("one value");
    assert_eq!(
        known.redact_line("reboot-it; echo reboot-it"),
        "reboot-it; echo [redacted]"
    );
    for text in [
        format!("deploy {jwt}"),
        format!("bash deploy.sh {jwt}"),
        format!("bash -c deploy {jwt}"),
        format!("bash deploy.sh '{jwt} a'"),
        format!("sh -c 'echo \"$2\"' sh --password '{jwt} a'"),
        format!("TOKENS=({jwt} b)"),
        "python3 -c 'login(password=\"eyJhbGciOiJIUzI1NiJ9(a)\")'".to_owned(),
    ] {
        let shown = plain().redact_line(&text);
        assert!(!shown.contains("eyJ"), "{shown}");
    }
    for args in [
        &["deploy.sh", jwt][..],
        &["-c", "echo \"$1\"", "sh", "-token", "eyJhunter2x"],
        &["-c", "echo \"$1\"", "sh", "--password", "eyJargued secret"],
        &["-c", "echo \"$1\"", "sh", jwt],
    ] {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let shown = plain().redact_args("sh", &args).concat();
        assert!(!shown.contains("eyJ"), "{shown}");
    }
}

#[test]
fn what_an_alias_stands_for_is_shown_whatever_it_is_called() {
    for name in ["password", "token", "api-key"] {
        let line = format!("git -c 'alias.{name}=!touch hidden; echo done' {name}");
        assert_eq!(plain().redact_line(&line), line);
        let args = ["-c".to_owned(), format!("alias.{name}=!touch hidden; echo done")];
        assert_eq!(plain().redact_args("git", &args).concat(), args.concat());
    }
}

#[test]
fn any_text_can_be_taken_apart() {
    const PIECES: &[&str] = &[
        "'",
        "\"",
        "\\",
        "$(",
        ")",
        "`",
        "$'",
        "<<E\n",
        "E\n",
        "\n",
        " ",
        "#",
        "é",
        "token=",
        "--password ",
        "(",
        ";",
        "a",
        "${",
        "}",
        "|",
        "mysql -p",
        "curl -u a:",
        "日",
        "<<< ",
        "docker login --password-stdin ",
    ];
    let mut seed = 0x5eed_u64;
    for _ in 0..5_000 {
        let mut text = String::new();
        for _ in 0..16 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            text.push_str(PIECES[usize::try_from(seed >> 33).unwrap() % PIECES.len()]);
        }
        let shown = plain().redact_line(&text).into_owned();
        assert_eq!(
            plain().redact_line(&shown).matches(REPLACEMENT).count() == 0,
            !shown.contains(REPLACEMENT)
        );
        let _ = plain().redact_args("sh", &[text.clone()]);
        let _ = named::in_line(&text);
    }
}

#[test]
fn deep_and_long_texts_come_to_an_end() {
    for piece in [
        "--token \"",
        "token='",
        "password '",
        "a=\"$(",
        "-u a:b@://",
        "$(",
        "`",
        "(",
        "'",
        "\"$(",
        "sh -c '",
        "<<E\n",
        "token=\"$(",
        "token:[\"",
        "\u{1b}[mtoken=",
    ] {
        let text = format!("token={}", piece.repeat(128 * 1024 / piece.len()));
        let _ = plain().redact_line(&text);
    }
}
