//! In the text of a program, code is seen and literals are not.

use crate::audit::redact::{Config, REPLACEMENT, Reading, Redactor, named};

fn plain() -> Redactor {
    Redactor::new(Config::default())
}

/// As the line is shown where the call's own secrets are known.
fn question(line: &str) -> String {
    let given = named::in_line(line);
    let known = plain().hiding(given.iter().map(String::as_str));
    known.unwrap_or_else(plain).redact_line(line).into_owned()
}

/// How interpreters are given their text, each with ways to start a program in it. `NAME` is called a secret, and the
/// command is `CMD`.
const INTERPRETERS: &[(&[&str], &[&str])] = &[
    (
        &["perl", "-e"],
        &[
            "$NAME=qx{CMD}",
            "$NAME=`CMD`",
            "$NAME=system(\"CMD\")",
            "my $NAME = \"CMD\"; system $NAME",
            "$NAME=\"CMD\".\"\"; exec($NAME)",
            "s/NAME=.*/`CMD`/e",
        ],
    ),
    (
        &["python3", "-c"],
        &[
            "NAME=__import__(\"os\").system(\"CMD\")",
            "import os; NAME = \"CMD\"; os.system(NAME)",
            "NAME=[\"CMD\"]; import subprocess as s; s.run(NAME)",
            "NAME={\"a\":\"CMD\"}",
            "import os\nNAME=os.popen; NAME(\"CMD\")",
        ],
    ),
    (
        &["ruby", "-e"],
        &[
            "NAME=%x(CMD)",
            "NAME=%x{CMD}",
            "NAME=`CMD`",
            "NAME=\"CMD\"; system(NAME)",
        ],
    ),
    (
        &["node", "-e"],
        &[
            "NAME=require(\"child_process\").execSync(\"CMD\")",
            "o={NAME:\"CMD\"}; require(\"child_process\").execSync(o.NAME)",
            "NAME=x`CMD`",
        ],
    ),
    (
        &["php", "-r"],
        &[
            "$NAME=`CMD`;",
            "$NAME=shell_exec(\"CMD\");",
            "$NAME=\"CMD\"; system($NAME);",
        ],
    ),
    (
        &["awk"],
        &[
            "BEGIN{NAME=\"CMD\"; system(NAME)}",
            "BEGIN{NAME=\"CMD\"; NAME | getline x}",
            "BEGIN{NAME=system(\"CMD\")}",
        ],
    ),
    (&["sed"], &["s/NAME=.*/CMD/e", "s|NAME=.*|CMD|e"]),
    (
        &["sh", "-c"],
        &["NAME=$(CMD)", "NAME='CMD'; $NAME", "NAME=\"`CMD`\" true"],
    ),
];

const NAMES: &[&str] = &["password", "token", "API_KEY", "db_password", "client_secret", "pass"];

const COMMANDS: &[&str] = &[
    "touch x",
    "touch${IFS}x",
    "touch\\tx",
    "touch;halt",
    "reboot",
    "{touch,x}",
    "cat</etc/x",
];

/// Written for a shell as one word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[test]
fn a_command_planted_in_the_text_of_a_program_is_always_seen() {
    for (program, texts) in INTERPRETERS {
        for text in *texts {
            for (name, command) in NAMES
                .iter()
                .flat_map(|name| COMMANDS.iter().map(move |cmd| (name, cmd)))
            {
                if text.contains("NAME=$(") && command.starts_with('{') {
                    continue;
                }
                let text = text.replace("NAME", name).replace("CMD", command);
                let line = format!("{} {}", program.join(" "), quoted(&text));
                let seen = command.replace('\'', "'\\''");
                let shown = question(&line);
                assert!(shown.contains(&seen), "{line}\n{shown}");
                let mut args: Vec<String> = program[1..].iter().map(|&word| word.to_owned()).collect();
                args.push(text.clone());
                let shown = plain().redact_args(program[0], &args).concat();
                assert!(shown.contains(*command), "{program:?} {text}\n{shown}");
                if program[0] != "sed" {
                    let shown = plain().redact_read(&text, Reading::of_input_to_line(program[0], &text));
                    assert!(shown.contains(*command), "{program:?} < {text}\n{shown}");
                }
            }
        }
    }
}

/// Each holds `hunter2x` as a secret.
#[test]
fn literals_in_the_text_of_a_program_stay_hidden() {
    for line in [
        "python3 -c 'login(password=\"hunter2x\")'",
        "python3 -c 'password = \"hunter2x\"'",
        "python3 -c 'token=\"hunter2x\"; get(u, headers={\"X-Api-Key\": token})'",
        "python3 -c 'import os; os.system(\"deploy --token hunter2x\")'",
        "python3 -c \"import os; os.system('PASSWORD=hunter2x deploy')\"",
        "python3 -c 'get(\"https://ann:hunter2x@host/\")'",
        "python3 -c 'h = {\"Authorization\": \"Bearer hunter2x\"}'",
        "node -e 'fetch(u, {Authorization: \"Basic hunter2x==\"})'",
        "python3 -c 'h = {\"Cookie\": \"a=hunter2x; b=1\"}'",
        "node -e 'fetch(u, {apiKey: \"hunter2x\", n: 1})'",
        "perl -e '$password=\"hunter2x\"; print 1'",
        "ruby -e 'Client.new(token: \"hunter2x\")'",
        "php -r '$password = \"hunter2x\";'",
        "awk -v 'token=hunter2x' '{print token}'",
        "awk 'BEGIN{token=\"hunter2x\"; print token}'",
        "sed -i 's/password=.*/password=hunter2x/' .env",
        "sed -i 's|password=.*|password=hunter2x|' .env",
        "sed -i -E 's/(DB_PASSWORD=).*/\\1hunter2x/' .env",
        "sed -i \"s/^API_KEY=.*/API_KEY=hunter2x/\" .env",
        "python3 <<E\npassword = \"hunter2x\"\nE",
        "python3 app.py --token 'hunt$er-hunter2x'",
        "make TOKEN='hunter2x' deploy",
        "ansible all -e 'token=hunter2x'",
        "bash -c \"python3 -c 'password=\\\"hunter2x\\\"'\"",
    ] {
        let shown = plain().redact_line(line);
        assert!(
            !shown.contains("hunter2x") && shown.contains(REPLACEMENT),
            "{line}\n{shown}"
        );
    }
}

/// A file may be of any language; most that name secrets are settings, in which values have any characters.
#[test]
fn values_in_files_stay_hidden_unless_they_are_calls() {
    let shown = |text: &str| plain().redact_field("content", &text.into()).to_string();
    for text in [
        "DB_PASSWORD=\"p$w;hunter2x\"\n",
        "password: 'a&hunter2x)'\n",
        "TOKEN=hunter2x\n",
    ] {
        assert!(!shown(text).contains("hunter2x"), "{}", shown(text));
    }
    for text in [
        "$password=qx{reboot};",
        "password=__import__('os').system('reboot')",
        "token=`reboot`",
        "TOKEN=\"$(reboot)\"",
    ] {
        assert!(shown(text).contains("reboot"), "{}", shown(text));
    }
}

/// What was called a secret once is seen where it is acted upon.
#[test]
fn a_word_that_was_called_a_secret_is_seen_where_it_is_a_target() {
    for (line, expected) in [
        ("TOKEN=deploy.sh; bash deploy.sh", "bash deploy.sh"),
        ("TOKEN=deploy.sh; ./deploy.sh", "./deploy.sh"),
        ("true --password main-db; rm -rf main-db", "rm -rf main-db"),
        ("true --password main-db; rm -rf work/main-db/x", "work/main-db/x"),
        ("TOKEN=main-db true; git push origin :main-db", "origin :main-db"),
        ("TOKEN=main-db true; sh -c 'dropdb main-db'", "dropdb main-db"),
        ("TOKEN=delete-all true; kubectl delete-all", "kubectl delete-all"),
        (
            "TOKEN=main-db true; python3 -c 'shutil.rmtree(\"main-db\")'",
            "rmtree(\"main-db\")",
        ),
    ] {
        let shown = question(line);
        assert!(
            shown.contains(expected) && shown.contains(REPLACEMENT),
            "{line}\n{shown}"
        );
    }
    for (line, hidden) in [
        ("deploy --password main-db; echo main-db", "main-db"),
        ("deploy --password main-db; curl -d main-db u", "main-db"),
        ("deploy --password main-db; other --token main-db", "main-db"),
        ("deploy --password main-db; docker login -u ann main-db", "main-db"),
        ("export TOKEN=aB30hunter2x; deploy aB30hunter2x", "hunter2x"),
        ("export TOKEN=main-db; git clone https://host/main-db", "main-db"),
    ] {
        let shown = question(line);
        assert!(!shown.contains(hidden), "{line}\n{shown}");
    }
}

#[test]
fn a_file_whose_content_is_sent_is_seen() {
    for line in [
        "curl -F token=@file u",
        "curl -F 'token=@file' u",
        "curl -Ftoken=@file u",
        "curl --form token=@file u",
        "curl -F 'token=</etc/passwd' u",
        "curl -d password=@/etc/passwd u",
        "curl --data-urlencode password=@./a u",
        "http POST u token=@file",
    ] {
        assert_eq!(question(line), line);
        let words: Vec<String> = line.replace('\'', "").split(' ').map(str::to_owned).collect();
        assert_eq!(plain().redact_args(&words[0], &words[1..]), words[1..]);
    }
    for line in [
        "curl -d password=@hunter2x u",
        "deploy token=@hunter2x",
        "curl -F token=hunter2x u",
    ] {
        assert!(!question(line).contains("hunter2x"), "{line}");
    }
}
