//! What runs out of a variable is seen, and what only stands in one is hidden by its name.

use super::*;
use crate::audit::redact::{Config, REPLACEMENT, named};

fn shown(line: &str, name: &str, value: &str) -> String {
    shown_beside(line, None, &[], name, value)
}

/// As it is shown by a redactor that knows the value, as that of a call does.
fn shown_beside(line: &str, input: Option<&str>, others: &[(&str, &str)], name: &str, value: &str) -> String {
    let usual = Redactor::new(Config::default());
    let all = || others.iter().copied().chain([(name, value)]);
    let own = usual.hiding(named::in_variables(all())).unwrap_or(usual);
    own.redact_variable(name, value, &Variables::of_call(line, input, all()))
}

const SCRIPT: &str =
    "mkdir -p Q1/deep && cd Q1 && for i in 1 2 3; do echo \"stolen $i\" > loot$i; done; rm -rf ../work";

#[test]
fn no_script_is_hidden_as_the_secret_of_a_variable() {
    for line in [
        "bash -c 'eval \"$SESSION_TOKEN\"'",
        "bash -c '$0 -c \"$SESSION_TOKEN\"' bash",
        "bash -c '$SESSION_TOKEN'",
        "bash -c \"$SESSION_TOKEN\"",
        "sh -c 'printenv SESSION_TOKEN | sh'",
        "sh run.sh",
        "python3 -c 'import os;exec(os.environ[\"SESSION_TOKEN\"])'",
        "perl -e 'eval $ENV{SESSION_TOKEN}'",
        "node -e 'eval(process.env.SESSION_TOKEN)'",
        "git -c 'alias.x=!$SESSION_TOKEN' x",
        "git x",
        "eval \"$SESSION_TOKEN\"",
        "$SESSION_TOKEN",
        "ls; . <(echo \"$SESSION_TOKEN\")",
        "echo \"$SESSION_TOKEN\" | sh",
        "sudo -E bash -c 'eval \"$SESSION_TOKEN\"'",
        "env \"$SESSION_TOKEN\"",
        "nohup $SESSION_TOKEN",
        "timeout 5 $SESSION_TOKEN",
        "find . -exec sh -c 'eval \"$SESSION_TOKEN\"' ';'",
        "awk 'BEGIN { system(ENVIRON[\"SESSION_TOKEN\"]) }'",
        "make",
        "tar --to-command='$SESSION_TOKEN' -xf a",
        "xargs -I{} sh -c '$SESSION_TOKEN'",
    ] {
        assert_eq!(shown(line, "SESSION_TOKEN", SCRIPT), SCRIPT, "{line}");
        let without_blanks = "touch${IFS}hidden";
        assert_eq!(shown(line, "SESSION_TOKEN", without_blanks), without_blanks, "{line}");
        let code = "import os\nfor i in range(3): os.makedirs(\"Q3/%d\" % i)\nprint(open(\"/etc/passwd\").read()[:20])";
        assert_eq!(shown(line, "API_KEY", code), code, "{line}");
    }
}

#[test]
fn what_a_line_calls_is_shown_though_it_is_one_word() {
    for line in [
        "eval \"$TOKEN\"",
        "$TOKEN",
        "\"${TOKEN}\" --all",
        "bash -c \"$TOKEN\"",
        "bash -c '$TOKEN'",
        "bash -lc 'exec $TOKEN'",
        "bash -c '\"$@\"' sh \"$TOKEN\"",
        "bash \"$TOKEN\"",
        "python3 -c \"$TOKEN\"",
        "ssh host \"$TOKEN\"",
        "echo $TOKEN | sh",
        "git -c alias.x='!$TOKEN' x",
        "nohup \"$TOKEN\"",
        "$0 -c \"$TOKEN\"",
    ] {
        assert_eq!(shown(line, "TOKEN", "./reboot-it"), "./reboot-it", "{line}");
    }
    for value in [
        "__import__('os').system('rm\\x20-rf\\x20work')",
        "system\"reboot\"",
        "`reboot`",
        "$(reboot)",
    ] {
        let line = "python3 -c 'import os; exec(os.environ[\"API_KEY\"])'";
        assert_eq!(shown(line, "API_KEY", value), value);
    }
    assert_eq!(
        shown_beside("bash -s", Some("eval \"$TOKEN\""), &[], "TOKEN", "./reboot-it"),
        "./reboot-it"
    );
    for other in [("PAGER", "sh -c \"$TOKEN\""), ("GIT_CONFIG_VALUE_0", "!$TOKEN")] {
        assert_eq!(
            shown_beside("less a", None, &[other], "TOKEN", "./reboot-it"),
            "./reboot-it"
        );
    }
}

#[test]
fn a_variable_that_nothing_runs_is_hidden_whole_by_its_name() {
    for (line, value) in [
        ("touch a", "correct pony battery"),
        ("psql -c 'select 1'", "correct pony battery"),
        ("curl -H \"X: $API_TOKEN\" https://host", "correct pony battery"),
        ("grep bash notes", "correct pony battery"),
        ("git commit -m x", "hunter2x"),
        ("bash deploy.sh", "hunter2x"),
        ("bash deploy.sh \"$API_TOKEN\"", "hunter2x"),
        ("python3 deploy.py --token \"$API_TOKEN\"", "hunter2x"),
        ("sshpass -p \"$API_TOKEN\" ssh host ls", "hunter2x"),
        ("sh -c 'echo $API_TOKEN'", "hunter2x"),
        (
            "bash -c 'curl -H \"Authorization: Bearer $API_TOKEN\" https://host'",
            "hunter2x",
        ),
        ("echo \"$API_TOKEN\" | docker login --password-stdin", "hunter2x"),
        ("python3 app.py", "hunter2x\n"),
        ("python3 app.py", "{\"login\":\"ann\",\"k\":\"hunter2x\"}"),
        ("bash deploy.sh", "aB3/x+9==!&%"),
    ] {
        assert_eq!(shown(line, "API_TOKEN", value), REPLACEMENT, "{line}");
    }
    assert_eq!(shown("bash a", "COLOUR", "blue"), "blue");
}

#[test]
fn secrets_in_a_variable_that_may_run_stay_hidden() {
    let github = format!("ghp_{}", "a1B2".repeat(9));
    let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowhunterAAKCAQEA7bq3Zk2x8Jt0fXvGm5w9R1yQn4LsPpHdUeKcTiVaYoBg\n\
        -----END RSA PRIVATE KEY-----\n";
    for (value, expected) in [
        (github.as_str(), "[redacted]"),
        (key, "[redacted]\n"),
        ("deploy --token hunter2x; ls", "deploy --token [redacted]; ls"),
        ("mysql -phunter2x app", "mysql -p[redacted] app"),
        ("password: hunter2x\nuser: ann", "password: [redacted]\nuser: ann"),
    ] {
        assert_eq!(shown("bash -c \"$API_TOKEN\"", "API_TOKEN", value), expected);
    }
    let script = format!("git push https://x:{github}@host && rm -rf work");
    let shown = shown("eval \"$API_TOKEN\"", "API_TOKEN", &script);
    assert!(
        !shown.contains("ghp_") && shown.ends_with("@host && rm -rf work"),
        "{shown}"
    );
}

/// A command survives whatever stands around it.
#[test]
fn a_command_planted_in_a_variable_is_always_seen() {
    const PIECES: &[&str] = &[
        "token=",
        "password: ",
        "'",
        "\"",
        ";",
        " ",
        "\n",
        "$(",
        ")",
        "cookie: x",
        "&&",
        "--token ",
        "a",
        "|",
        "(",
        "#",
        "Authorization: Basic ",
        "ghp_",
        "-----BEGIN PRIVATE KEY-----\n",
        "é",
    ];
    let mut seed = 0xfeed_u64;
    let mut roll = |sides: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed >> 33).unwrap() % sides
    };
    for _ in 0..3_000 {
        let mut around = || (0..roll(6)).map(|_| PIECES[roll(PIECES.len())]).collect::<String>();
        let value = format!("{}\nrm -rf work\n{}", around(), around());
        let line = ["eval \"$TOKEN\"", "python3 a.py", "git x"][roll(3)];
        let shown = shown(line, "TOKEN", &value);
        // Between quotes of one word it is one word: at most its own first goes with them.
        assert!(
            shown.contains("-rf work") || value.matches(['\'', '"']).count() > 0,
            "{value:?}\n{shown:?}"
        );
    }
}

/// What is set is seen, whatever the call calls a secret.
#[test]
fn a_token_that_is_the_name_of_a_variable_is_hidden_and_no_other_name_is() {
    let tokens = [
        "ghp_hunter2hunter2hunter2hunter2hunter2h",
        "ghp_hunter3hunter3hunter3hunter3hunter3h",
        "AKIAHUNTERHUNTERHUNT",
    ];
    let names = [
        tokens[0],
        "LD_PRELOAD",
        tokens[1],
        "GITHUB_TOKEN",
        tokens[2],
        "Zq001hunTer0",
        "PATH",
    ];
    let redactor = Redactor::new(Config::default())
        .hiding(["LD_PRELOAD", "GITHUB_TOKEN", "Zq001hunTer0"])
        .unwrap();
    let shown = redactor.redact_names(names);
    let expected = [
        "[redacted]",
        "LD_PRELOAD",
        "[redacted] (2)",
        "GITHUB_TOKEN",
        "[redacted] (3)",
        "[redacted] (4)",
        "PATH",
    ];
    assert_eq!(shown, expected);
}
