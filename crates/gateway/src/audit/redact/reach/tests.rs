//! What follows a secret is seen wherever it may be a command.

use crate::audit::redact::{Config, REPLACEMENT, Redactor};

/// Programs that run a text, each with `{}` for it between quotes, and a few that nobody knows.
const LAUNCHERS: &[&str] = &[
    "sh -c '{}'",
    "find . -exec sh -c '{}' \\;",
    "find . -execdir bash -c '{}' \\;",
    "env -S \"sh -c '{}'\"",
    "env -i -S \"sh -c '{}'\"",
    "sudo env --split-string=\"sh -c '{}'\"",
    "fd -x sh -c '{}'",
    "git bisect run sh -c '{}'",
    "git submodule foreach '{}'",
    "sudo git submodule foreach --recursive '{}'",
    "git filter-branch --tree-filter '{}'",
    "git filter-branch --env-filter '{}' HEAD",
    "git rebase -x '{}' HEAD~2",
    "git rebase --exec '{}' HEAD~2",
    "git -c alias.x='!{}' x",
    "git -c core.sshCommand='{}' fetch",
    "npm exec -c '{}'",
    "npm exec --call '{}'",
    "npx -c '{}'",
    "npx -p a -c '{}'",
    "ssh -o \"ProxyCommand=sh -c '{}'\" h",
    "ssh -o ProxyCommand='{}' h",
    "ssh h '{}'",
    "rsync -e \"sh -c '{}'\" a h:b",
    "tar --to-command='{}' -xf a",
    "script -c '{}' /dev/null",
    "flock f -c '{}'",
    "su -c '{}'",
    "watch '{}'",
    "xargs sh -c '{}'",
    "timeout 5 sh -c '{}'",
    "strace -f sh -c '{}'",
    "docker run -e A=b image sh -c '{}'",
    "kubectl exec p -- sh -c '{}'",
    "unheard-of '{}'",
    "unheard-of -c '{}'",
    "unheard-of run \"sh -c '{}'\"",
    "kubectl exec p -- unheard-of run '{}'",
    "man -P '{}' ls",
    "unheard-of \"{}\"",
    "unheard-of $'{}'",
];

/// Ways to give a secret, and what may follow the value.
const SECRETS: &[&str] = &[
    "TOKEN=x",
    "PASSWORD=x",
    "export API_KEY=x",
    "DB_PASS=x",
    "app --token x",
    "app --password=x",
    "mysql -px",
    "curl -u a:x h",
    "curl -H Authorization:x h",
    "echo Authorization: Bearer x",
    "echo token: x",
    "echo Cookie: x",
    "Cookie: x",
];
const SEPARATORS: &[&str] = &[
    "; ", ";", " && ", "&&", " & ", " | ", "|", " || ", "\n", " > ", ">", " $(", " `", "$(", "`",
];

#[test]
fn what_follows_a_secret_is_seen_behind_every_launcher() {
    let plain = Redactor::new(Config::default());
    for launcher in LAUNCHERS {
        for secret in SECRETS {
            for separator in SEPARATORS {
                // Between double quotes the shell that reads the line runs these first.
                if launcher.contains('"') && separator.ends_with(['(', '`']) {
                    continue;
                }
                let closer = match separator.trim_start() {
                    "$(" => ")",
                    "`" => "`",
                    _ => "",
                };
                let text = format!("{secret}{separator}touch PAYLOAD{closer}");
                let line = launcher.replace("{}", &text);
                let shown = plain.redact_line(&line);
                assert!(shown.contains("touch PAYLOAD"), "{line}\n{shown}");
                if let Some((program, args)) = words_of(launcher, &text) {
                    let shown = plain.redact_args(&program, &args).concat();
                    assert!(shown.contains("touch PAYLOAD"), "{program} {args:?}\n{shown}");
                }
            }
        }
    }
}

/// The words of a launcher that has its text in one of its own.
fn words_of(launcher: &str, text: &str) -> Option<(String, Vec<String>)> {
    let mut words = launcher.split(' ').filter(|_| !launcher.contains('"'));
    let program = words.next()?.to_owned();
    let args = words.map(|word| word.replace('\'', "").replace("{}", text));
    Some((program, args.collect()))
}

#[test]
fn commands_behind_variables_are_seen_where_a_shell_is_known() {
    let plain = Redactor::new(Config::default());
    let is_known = |it: &&&str| !it.contains("unheard-of") || it.contains("-c");
    let known = LAUNCHERS.iter().filter(is_known);
    for launcher in known {
        for name in ["TOKEN", "PASSWORD", "API_KEY", "DB_PASS"] {
            let line = launcher.replace("{}", &format!("{name}=x touch PAYLOAD"));
            let shown = plain.redact_line(&line);
            assert!(shown.contains("touch PAYLOAD"), "{line}\n{shown}");
        }
    }
}

#[test]
fn a_value_ends_where_a_shell_or_a_form_ends_it() {
    let plain = Redactor::new(Config::default());
    for (line, shown) in [
        ("curl -d 'token=x2&b47=1' h", "curl -d 'token=[redacted]&b47=1' h"),
        ("curl -d 'b=1&token=x2&c=1' h", "curl -d 'b=1&token=[redacted]&c=1' h"),
        ("app 'TOKEN=x2; touch b'", "app 'TOKEN=[redacted]; touch b'"),
        ("app 'TOKEN=\"x2; a\"; touch b'", "app 'TOKEN=[redacted]; touch b'"),
        ("app 'TOKEN=x2\\;a; touch b'", "app 'TOKEN=[redacted]; touch b'"),
        ("app \"TOKEN='x2; touch b\"", "app \"TOKEN=[redacted]; touch b\""),
        (
            "app \"TOKEN='x2; touch b\" 'c'",
            "app \"TOKEN=[redacted]; touch b\" 'c'",
        ),
        ("app -cTOKEN='x2; touch b'", "app -cTOKEN='[redacted]; touch b'"),
        ("app TOKEN='x2; touch b'", "app TOKEN='[redacted]; touch b'"),
        ("app TOKEN=$'x2; touch b'", "app TOKEN=$'[redacted]; touch b'"),
        (
            "app echo\\ cookie:\\ x2\\;\\ touch\\ b",
            "app echo\\ cookie:[redacted]\\;\\ touch\\ b",
        ),
        ("app $'TOKEN=x2\\ntouch b'", "app $'TOKEN=[redacted]\\ntouch b'"),
        ("app TOKEN=x2\\;\\ touch\\ b", "app TOKEN=[redacted]\\;\\ touch\\ b"),
    ] {
        assert_eq!(plain.redact_line(line), shown);
    }
}

#[test]
fn what_is_no_text_of_a_shell_is_hidden_to_its_end() {
    let plain = Redactor::new(Config::default());
    let args = ["-e".to_owned(), "PASSWORD=a;b 2x".to_owned()];
    assert_eq!(plain.redact_args("docker", &args), ["-e", "PASSWORD=[redacted]"]);
    for line in [
        "PASSWORD='a;b c&2x' deploy",
        "export PASSWORD='a;b c&2x'",
        "env PASSWORD='a;b c&2x' deploy",
        "deploy --password 'a;b c&2x'",
        "deploy --password='a;b c&2x'",
        "docker run -e PASSWORD='a;b c&2x' image",
        "docker run -e PASSWORD='a;b c&2x' image sh -c ls",
        "docker run --env 'PASSWORD=a;b c&2x' image",
        "vault kv put secret/x v='a;b c&2x'",
        "kubectl create secret generic x --from-literal 'password=a;b c&2x'",
        "curl -F 'password=a;b c&2x' h",
        "curl -H 'Cookie: a=1; b=2x' h",
        "app 'Cookie: a=1; b=2x'",
        "docker exec db sh deploy.sh --password 'a;b c&2x'",
    ] {
        let shown = plain.redact_line(line);
        assert!(!shown.contains("2x") && shown.contains(REPLACEMENT), "{line}\n{shown}");
    }
}
