//! What redaction takes and what it leaves.

use super::*;
use serde_json::json;

fn plain() -> Redactor {
    Redactor::new(Config::default())
}

#[test]
fn names_of_secrets_are_known_and_others_left() {
    let secret = [
        "PASSWORD",
        "password",
        "PGPASSWORD",
        "DB_PASSWORD",
        "dbPassword",
        "MYSQL_PWD",
        "GITHUB_TOKEN",
        "accessToken",
        "access_token",
        "apiKey",
        "API_KEY",
        "api-key",
        "APIKey",
        "apikey",
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "client_secret",
        "private_key",
        "SSH_PRIVATE_KEY",
        "--token",
        "x-api-key",
        "Authorization",
        "Cookie",
        "Set-Cookie",
        "REDISCLI_AUTH",
        "_auth",
        "npm_config__auth",
        "credentials",
        "AZURE_STORAGE_KEY",
        "GH_PAT",
        "passphrase",
        "MY_SECRETS",
        "DB_PASS",
        "--pass",
        "storepass",
        "STRIPE_KEY",
        "DD_APP_KEY",
        "pw",
        "session_key",
        "hmacKey",
        "webhook_key",
        "admin_key",
        "aes-key",
        "decryption_key",
        "subscription_key",
        "consumer_key",
        "Ocp-Apim-Subscription-Key",
        "X-Functions-Key",
        "tokens",
        "sshkey",
        "otp",
        "apikeys",
        "privkey",
        "pswd",
        "wifi_psk",
        "totp",
        "sharedAccessSignature",
        "PHPSESSID",
    ];
    for name in secret {
        assert!(is_secret_name(name), "{name}");
    }
    let harmless = [
        "",
        "PATH",
        "PWD",
        "OLDPWD",
        "HOME",
        "max_tokens",
        "tokenizer",
        "TOKEN_FILE",
        "token_url",
        "author",
        "authority",
        "key",
        "keyboard",
        "primary_key",
        "KEYMAP",
        "SSH_AUTH_SOCK",
        "passed",
        "compass",
        "password_length",
        "monkey",
        "secretary",
        "path",
        "pattern",
        "pass",
        "render_pass",
        "bypass",
        "PRIMARY_KEY",
        "PUBLIC_KEY",
        "credential.helper",
        "RESTIC_PASSWORD_COMMAND",
        "--password-stdin",
        "total_tokens",
        "foreign_key",
        "public_key",
        "sort-key",
        "key_file",
        "--key-file",
        "OTP_VERSION",
        "signature",
        "access",
        "session_id",
    ];
    for name in harmless {
        assert!(!is_secret_name(name), "{name}");
    }
}

#[test]
fn secrets_leave_a_text_and_their_names_stay() {
    let aws = format!("{}{}", "AKIA", "IOSFODNN7EXAMPLE");
    let github = format!("ghp_{}", "a1B2".repeat(9));
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";
    let cases = [
        ("password=hunter2", "password=[redacted]"),
        (
            "deploy --password hunter2 --to x",
            "deploy --password [redacted] --to x",
        ),
        ("deploy --token 'a b' | x", "deploy --token '[redacted]' | x"),
        ("deploy --token --dry-run", "deploy --token --dry-run"),
        ("curl -u me:hunter2 x", "curl -u me:[redacted] x"),
        ("docker run -u 1000:1000 x", "docker run -u 1000:1000 x"),
        (
            "export DB_PASSWORD='a b c' && x",
            "export DB_PASSWORD='[redacted]' && x",
        ),
        ("password: hunter2\nuser: ann", "password: [redacted]\nuser: ann"),
        (r#"{"api_key": "a\"b", "n": 1}"#, r#"{"api_key": "[redacted]", "n": 1}"#),
        (
            r#"{\"token\":\"abc\",\"n\":1}"#,
            r#"{\"token\":\"[redacted]\",\"n\":1}"#,
        ),
        (
            "curl -H 'Authorization: Bearer abc.def' u",
            "curl -H 'Authorization: Bearer [redacted]' u",
        ),
        ("Authorization: Basic dXNlcjpwdw==", "Authorization: Basic [redacted]"),
        ("Authorization: abc", "Authorization: [redacted]"),
        ("Cookie: a=1; b=2\r\nHost: x", "Cookie: [redacted]\r\nHost: x"),
        ("a bearer abcdef here", "a bearer [redacted] here"),
        (
            "git clone https://ann:pw@host/x.git",
            "git clone https://ann:[redacted]@host/x.git",
        ),
        ("postgres://u:p%40ss@db:5432/x", "postgres://u:[redacted]@db:5432/x"),
        ("https://0123456789abcdef0123@host", "https://[redacted]@host"),
        ("?q=1&access_token=abc&b=2", "?q=1&access_token=[redacted]&b=2"),
        ("token => abc, x", "token => [redacted], x"),
        (&format!("key {aws} end"), "key [redacted] end"),
        (&format!("push {github}"), "push [redacted]"),
        (&format!("t {jwt}"), "t [redacted]"),
        ("xoxb-1234567890-abcdef", "[redacted]"),
        (&format!("sk-ant-api03-{}", "a1B2".repeat(6)), "[redacted]"),
        ("sk-proj-abcdefghijklmnop", "[redacted]"),
        (&format!("AIza{}", "x".repeat(35)), "[redacted]"),
        (&format!("npm_{}", "x".repeat(36)), "[redacted]"),
        (&format!("glpat-{}", "x".repeat(20)), "[redacted]"),
        (
            "a\n-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nb",
            "a\n[redacted]\nb",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMII", "[redacted]"),
        ("password=[redacted]", "password=[redacted]"),
        ("{ user: 'a', pass: 'b c' }", "{ user: 'a', pass: '[redacted]' }"),
        (
            "machine h login ann password hunter2",
            "machine h login ann password [redacted]",
        ),
        ("IDENTIFIED BY 'hunter2'", "IDENTIFIED BY '[redacted]'"),
        ("https://ann:pa/ss@host/x", "https://ann:[redacted]@host/x"),
        ("https://0123456789abcdef0123:@host", "https://[redacted]:@host"),
        (
            "\u{1b}[34mapiKey\u{1b}[0m: \u{1b}[32mabc\u{1b}[0m",
            "\u{1b}[34mapiKey\u{1b}[0m: \u{1b}[32m[redacted]\u{1b}[0m",
        ),
        (&format!("\u{1b}[31m{github}\u{1b}[0m"), "\u{1b}[31m[redacted]\u{1b}[0m"),
        (&format!("a\\n{github}"), "a\\n[redacted]"),
        (&format!("a%20{github}"), "a%20[redacted]"),
        (&format!("hvs.{}", "a1B2".repeat(8)), "[redacted]"),
        (&format!("dckr_pat_{}", "a1B2".repeat(8)), "[redacted]"),
        (
            &format!("123456789:AA{}", "a1B2_".repeat(7).split_at(33).0),
            "[redacted]",
        ),
        ("DB_PASSWORD=a b c\nUSER=ann", "DB_PASSWORD=[redacted]\nUSER=ann"),
        (
            "  password: a b, c # old\nn: 1",
            "  password: [redacted], c # old\nn: 1",
        ),
        ("password=a user=ann", "password=[redacted] user=ann"),
        (
            "- password: |\n    a b\n\n    c\n  user: ann",
            "- password: [redacted]\n  user: ann",
        ),
        ("token: >-\n  a\nn: 1", "token: [redacted]\nn: 1"),
        ("db:5432:app:ann:a\\:b\n", "db:5432:app:ann:[redacted]\n"),
        ("*:*:*:ann:a", "*:*:*:ann:[redacted]"),
        ("id       | 1\npassword | a b", "id       | 1\npassword | [redacted]"),
        ("API_TOKEN\ta\nHOME\t/root", "API_TOKEN\t[redacted]\nHOME\t/root"),
        ("\"password\",\"a\"", "\"password\",\"[redacted]\""),
        (
            "TOKENS=(a 'b c' d) ls",
            "TOKENS=([redacted] '[redacted]' [redacted]) ls",
        ),
        (
            "os.environ[\"API_TOKEN\"] = \"a b\"",
            "os.environ[\"API_TOKEN\"] = \"[redacted]\"",
        ),
        (
            r#"{\\\"token\\\":\\\"a b\\\"}"#,
            r#"{\\\"token\\\":\\\"[redacted]\\\"}"#,
        ),
        (
            "token&quot;: &quot;a b&quot;, x",
            "token&quot;: &quot;[redacted]&quot;, x",
        ),
        (
            "?a=%7B%22token%22%3A%22a%22%7D",
            "?a=%7B%22token%22%3A%22[redacted]%22%7D",
        ),
        ("token%3Da", "token%3D[redacted]"),
        ("https://Zq001hunTer0@host", "https://[redacted]@host"),
        (
            "\u{1b}[01;31m\u{1b}[KDB_PASSWORD\u{1b}[m\u{1b}[K=a b\n",
            "\u{1b}[01;31m\u{1b}[KDB_PASSWORD\u{1b}[m\u{1b}[K=[redacted]\n",
        ),
        (
            "1:DB_\u{1b}[31mPASS\u{1b}[m\u{1b}[KWORD=é\u{1b}[1mb\u{1b}[0m c=d",
            "1:DB_\u{1b}[31mPASS\u{1b}[m\u{1b}[KWORD=[redacted]\u{1b}[0m c=d",
        ),
        (
            "FROM x\nENV TOKEN a\nENV LANG C",
            "FROM x\nENV TOKEN [redacted]\nENV LANG C",
        ),
        (
            "setenv API_TOKEN a\nsetenv EDITOR vi",
            "setenv API_TOKEN [redacted]\nsetenv EDITOR vi",
        ),
        ("API_TOKEN ?= a\nCC ?= gcc", "API_TOKEN ?= [redacted]\nCC ?= gcc"),
        (
            "API_TOKEN?=a\nTOKEN:=b\nTOKEN ::= c\nTOKEN += d",
            "API_TOKEN?=[redacted]\nTOKEN:=[redacted]\nTOKEN ::= [redacted]\nTOKEN += [redacted]",
        ),
        (
            "db:\n  user: ann\n  pass: a\n  n: 1",
            "db:\n  user: ann\n  pass: [redacted]\n  n: 1",
        ),
        ("user=ann\npass=a\n", "user=ann\npass=[redacted]\n"),
        (
            "https://h/?user=ann&pass=a&b=c",
            "https://h/?user=ann&pass=[redacted]&b=c",
        ),
        (
            "PASSWORD = \"\"\"a b\"\"\"\nn = 1",
            "PASSWORD = \"\"\"[redacted]\"\"\"\nn = 1",
        ),
        (
            r#"{\"token\": \"\"\"a\"\"\"}"#,
            r#"{\"token\": \"\"\"[redacted]\"\"\"}"#,
        ),
        (
            "db:\n  password:\n    a\n  n: 1",
            "db:\n  password:\n    [redacted]\n  n: 1",
        ),
        (
            "\"password\":\n  \"a b\",\nn: 1",
            "\"password\":\n  \"[redacted]\",\nn: 1",
        ),
        (
            "secret:\n- a\n- 'b c'\nn: 1",
            "secret:\n- [redacted]\n- '[redacted]'\nn: 1",
        ),
        (
            r#"{"password": ["a", "b c"], "n": ["d"]}"#,
            r#"{"password": ["[redacted]", "[redacted]"], "n": ["d"]}"#,
        ),
        ("tokens = [\n  'a',\n]", "tokens = [\n  '[redacted]',\n]"),
        (
            r#"{"token": {"type": "b", "value": "a"}, "n": {"value": "c"}}"#,
            r#"{"token": {"type": "b", "value": "[redacted]"}, "n": {"value": "c"}}"#,
        ),
        (
            r#"{"credentials": {"value": "a"}}"#,
            r#"{"credentials": {"value": "[redacted]"}}"#,
        ),
        ("tokens: a1\nn: 1", "tokens: [redacted]\nn: 1"),
        ("{\"tokens\": \"a\"}", "{\"tokens\": \"[redacted]\"}"),
        (
            "psk=a otp: b PHPSESSID=c",
            "psk=[redacted] otp: [redacted] PHPSESSID=[redacted]",
        ),
        ("sharedAccessSignature=a", "sharedAccessSignature=[redacted]"),
        ("x --otp a", "x --otp [redacted]"),
        (
            "A temporary password is generated for root@localhost: a;b>c,d\nn",
            "A temporary password is generated for root@localhost: [redacted]\nn",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(plain().redact_text(text), expected, "{text}");
    }
}

#[test]
fn the_shortest_text_of_each_kind_is_not_passed_over() {
    for (text, redacted) in [
        ("xapp-0123456789", "[redacted]"),
        ("xoxb-0123456789", "[redacted]"),
        ("://a:b@", "://a:[redacted]@"),
        ("bearer x", "bearer [redacted]"),
        ("--token x", "--token [redacted]"),
        ("-u a:b", "-u a:[redacted]"),
        ("pat=x", "pat=[redacted]"),
        ("jwt:x", "jwt:[redacted]"),
    ] {
        assert_eq!(plain().redact_text(text), redacted, "{text}");
    }
}

#[test]
fn a_text_without_secrets_is_handed_back_as_it_came() {
    for text in [
        "",
        "ls -la /home/ann",
        "test result: ok. 12 passed; 0 failed",
        "max_tokens: 100, tokenizer=fast, primary key: id",
        "https://example.org/a:b@c",
        "ssh://git@github.com/a/b.git",
        "cd $PWD && PWD=/tmp",
        "wörter: größe=3",
        "sk-short",
        "password=",
        "--- PASS: TestToken (0.00s)",
        "PASS: keys.test",
        "pass: 12, fail: 0",
        "http://localhost:4873/@scope/pkg",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "id 123e4567-e89b-12d3-a456-426614174000",
        "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "task-0123456789abcdef0123 risk-0123456789abcdef01",
        "the password is wrong",
        "rails credentials:edit -e production",
        "gcloud secrets versions access latest --secret=billing --secret billing",
        "docker build --secret id=npm,src=npmrc .",
        "ffmpeg -i a.mov -pass 1 b.mp4",
        "00:11:22:33:44:55",
        "src/main.rs:120:14:error:x y",
        "NAME | TOKEN | AGE",
        "TOKEN\tNAME\tAGE",
        "https://bitbucketuser@bitbucket.org/a",
        "tokens: 512, total_tokens: 93, tokens=1,024 of 4096",
        "{\"tokens\": 512, \"total_tokens\": 93}",
        "let tokens: Vec<Token> = lex(text); let tokens = lex(text);",
        "tokens: keep them no longer",
        "x --tokens 512 --max-tokens=512 --tokens=512",
        "  pass: 12\n  fail: 0\n",
        "  pass: true",
        "  pass: TestToken in time",
        "pass: keys.test",
        "pass=12 fail=0",
        "pass=true fail=$((fail + 1)) pass=$((pass + 1))",
        "bypass: x compass=y",
        "token:\n  The token to use.\n",
        "credentials:\n  user: ann\n",
        "password:\nuser",
        "\u{1b}[0mPWD=/tmp",
        "\u{1b}[1mkeyboard\u{1b}[0m: us",
        "ENV PATH /bin\nENVIRONMENT token x",
        "{\"password\": {\"type\": \"string\", \"description\": \"of a user\"}}",
        "--key-file path token_count: 3",
        "the signature: x",
    ] {
        let redacted = plain().redact_text(text);
        assert!(matches!(redacted, Cow::Borrowed(_)), "{text} -> {redacted}");
    }
}

#[test]
fn arguments_are_read_with_the_ones_before_them() {
    let check = |args: &[&str], expected: &[&str]| {
        let args: Vec<_> = args.iter().map(|&it| it.to_owned()).collect();
        assert_eq!(plain().redact_args("deploy", &args), expected);
    };
    check(&["--password", "x", "y"], &["--password", "[redacted]", "y"]);
    check(&["--password", "-x"], &["--password", "[redacted]"]);
    check(&["--password", "--verbose"], &["--password", "--verbose"]);
    check(&["--token=a b", "c"], &["--token=[redacted]", "c"]);
    check(&["-e", "API_KEY=a b"], &["-e", "API_KEY=[redacted]"]);
    check(&["-u", "ann:pw"], &["-u", "ann:[redacted]"]);
    check(&["-u", "1000:1000"], &["-u", "1000:1000"]);
    check(&["-u", "origin"], &["-u", "origin"]);
    check(
        &["-H", "Authorization: Bearer abc", "-p80:80"],
        &["-H", "Authorization: Bearer [redacted]", "-p80:80"],
    );
    check(&["--token-file", "/run/t"], &["--token-file", "/run/t"]);
    check(&["--token"], &["--token"]);
}

#[test]
fn json_is_redacted_by_name_and_by_content() {
    let given = json!({
        "login": {"pass": "x"}, "report": {"pass": 12, "tokens": 512}, "tokens": ["x"],
        "command": "curl", "args": ["--token", "abc", "https://a:b@c"],
        "env": {"API_KEY": "abc", "HOME": "/root", "COUNT": 3},
        "password": 1234, "secret": {"a": ["b", null, true]}, "token": null,
        "list": [{"text": "password=x"}, 1],
    });
    let expected = json!({
        "login": {"pass": "[redacted]"}, "report": {"pass": 12, "tokens": 512}, "tokens": ["[redacted]"],
        "command": "curl", "args": ["--token", "[redacted]", "https://a:[redacted]@c"],
        "env": {"API_KEY": "[redacted]", "HOME": "/root", "COUNT": 3},
        "password": "[redacted]", "secret": {"a": ["[redacted]", null, true]}, "token": null,
        "list": [{"text": "password=[redacted]"}, 1],
    });
    assert_eq!(plain().redact_json(&given), expected);
}

#[test]
fn values_and_patterns_of_the_installation_are_found_anywhere() {
    let redactor = Redactor::new(Config {
        patterns: vec![Regex::new("ACME-[0-9]+").unwrap()],
        secret_values: ["s3cr3t", "s3cr3t-and-more", "short", "a.b*c(d", "tail\n"]
            .map(str::to_owned)
            .to_vec(),
    });
    for (text, expected) in [
        ("x s3cr3t y", "x [redacted] y"),
        ("s3cr3t-and-more", "[redacted]"),
        ("short stays", "short stays"),
        ("a.b*c(d axb*c(d", "[redacted] axb*c(d"),
        ("no ACME-12 here", "no [redacted] here"),
        ("tail stays", "tail stays"),
    ] {
        assert_eq!(redactor.redact_text(text), expected);
    }
}

/// Chance with a seed: the same cases every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }

    fn noise(&mut self) -> String {
        const PIECES: &[&str] = &[
            " ",
            "\n",
            "\"",
            "'",
            "=",
            ":",
            "@",
            "://",
            "é",
            "日本",
            "token",
            "key",
            "--",
            "{",
            "}",
            "a",
            "Z",
            "9",
            "_",
            "-",
            "\\",
            "&",
            ";",
            "password",
            "Bearer ",
            ".",
            "/",
            "[redacted]",
            "-----BEGIN ",
        ];
        (0..self.roll(12)).map(|_| self.pick(PIECES)).collect()
    }

    fn letters(&mut self, count: usize) -> String {
        const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        (0..count)
            .map(|_| char::from(ALPHABET[self.roll(ALPHABET.len())]))
            .collect()
    }
}

#[test]
fn a_planted_secret_never_survives() {
    let mut dice = Dice(0x5eed);
    for round in 0..20_000 {
        let secret = dice.letters(32);
        let shaped = match dice.roll(14) {
            0 => format!(" ghp_{secret}"),
            1 => format!(" sk-{secret}"),
            2 => format!(" DB_PASSWORD={secret}"),
            3 => format!("\n\"apiKey\": \"{secret}\""),
            4 => format!(" https://ann:{secret}@host"),
            5 => format!("\nAuthorization: Bearer {secret}"),
            6 => format!(" xoxb-{secret}"),
            7 => format!(" define('DB_PASSWORD', '{secret}')"),
            8 => format!("\n- name: DB_PASSWORD\n  value: {secret}"),
            9 => format!(" {{\"name\":\"API_TOKEN\",\"value\":\"{secret}\"}}"),
            10 => format!(" <add key='Password' value='{secret}'/>"),
            11 => format!("\n---\nkind: Secret\ndata:\n  a: {secret}\n---\n"),
            12 => format!(" bot123456789:AAx{secret}"),
            _ => format!(" eyJ{secret}.{secret}.{secret}"),
        };
        let text = format!("{}{shaped} {}", dice.noise(), dice.noise());
        let redacted = plain().redact_text(&text).into_owned();
        assert!(!redacted.contains(&secret), "round {round}: {text:?} -> {redacted:?}");
        let again = plain().redact_json(&json!({"a": [{"b": text}, 1]})).to_string();
        assert!(!again.contains(&secret), "round {round}: {text:?} -> {again}");
    }
}

#[test]
fn a_value_of_the_environment_never_survives() {
    let mut dice = Dice(7);
    for round in 0..2_000 {
        let length = 6 + dice.roll(20);
        let secret = dice.letters(length);
        let redactor = Redactor::new(Config {
            patterns: Vec::new(),
            secret_values: vec![secret.clone(), dice.letters(8)],
        });
        let text = format!("{}{secret}{}{secret}", dice.noise(), dice.noise());
        let redacted = redactor.redact_text(&text).into_owned();
        assert!(!redacted.contains(&secret), "round {round}: {text:?} -> {redacted:?}");
    }
}

#[test]
fn secrets_among_a_calls_variables_are_known_and_others_are_not() {
    let usual = Redactor::new(Config::default());
    let plain = [("COLOUR", "ultramarine"), ("TOKEN", "short")];
    assert!(usual.hiding(named::in_variables(plain)).is_none(), "nothing to know");
    let redactor = usual
        .hiding(named::in_variables([
            ("TOKEN", "a.b*c+d\n"),
            ("API_KEY", "a.b*c+d/more"),
            ("COLOUR", "ultramarine"),
        ]))
        .expect("two secrets");
    let text = "a.b*c+d and a.b*c+d/more, ultramarine, aXb*c+d";
    assert_eq!(
        redactor.redact_text(text),
        "[redacted] and [redacted], ultramarine, aXb*c+d"
    );
}

#[test]
fn how_many_tokens_a_model_took_is_no_secret() {
    let counts = json!({"total": {"totalTokens": 107, "inputTokens": 100}, "last": [{"outputTokens": 7}],
        "modelContextWindow": null});
    for name in ["tokenUsage", "token_usage", "TokenUsage", "tokens-usage"] {
        let said = json!({"params": {(name): counts}});
        assert_eq!(plain().redact_json(&said), said, "{name}");
    }
    for name in ["token", "usageToken", "token_usage_key", "myTokenUsage", "secretUsage"] {
        let redacted = plain().redact_json(&json!({(name): {"total": 107}}));
        assert!(!redacted.to_string().contains("107"), "{name}: {redacted}");
    }
}

#[test]
fn nothing_but_numbers_survives_where_tokens_are_counted() {
    let mut dice = Dice(0xc0de);
    for round in 0..5_000 {
        let secret = dice.letters(24);
        let pin = 1_000_000_000 + dice.roll(1_000_000_000);
        let hidden = match dice.roll(5) {
            0 => json!(secret),
            1 => json!([1, secret]),
            2 => json!({"total": secret}),
            3 => json!({"total": {"note": [secret]}, "n": 2}),
            _ => json!({"last": {"accessToken": secret, "password": pin}}),
        };
        let name = ["tokenUsage", "token_usage"][dice.roll(2)];
        let said = json!({"raw": {"method": "thread/tokenUsage/updated", (name): {"count": 42, "more": hidden}}});
        let redacted = plain().redact_json(&said).to_string();
        assert!(!redacted.contains(&secret), "round {round}: {redacted}");
        assert!(!redacted.contains(&pin.to_string()), "round {round}: {redacted}");
        assert!(redacted.contains("42"), "round {round}: {redacted}");
    }
}

#[test]
fn what_a_call_gives_by_name_is_known_without_the_name() {
    let line = "export API_KEY='correct horse' && curl --token abcdef0123 https://bob:sesame@host $x; password=$PW";
    let values: Vec<_> = named::in_text(line).collect();
    assert_eq!(values, ["sesame", "abcdef0123", "correct horse"]);
    let args = [
        "--password",
        "open sesame",
        "-u",
        "bob:swordfish",
        "TOKEN=a b",
        "--user=1000:1000",
        "plain",
        "--key",
    ];
    assert_eq!(named::in_args(&args), ["open sesame", "swordfish", "a b"]);
}

#[test]
fn a_known_value_is_found_encoded_too() {
    let redactor = Redactor::new(Config {
        patterns: Vec::new(),
        secret_values: vec!["S3cr3t/Value 9f8e".to_owned()],
    });
    for text in [
        "UzNjcjN0L1ZhbHVlIDlmOGU=",
        "UzNjcjN0L1ZhbHVlIDlmOGUK",
        "dXNlcjpTM2NyM3QvVmFsdWUgOWY4ZQ==",
        "5333637233742f56616c75652039663865",
        "S3cr3t%2FValue%209f8e",
        "S3cr3t%2FValue+9f8e",
    ] {
        let shown = redactor.redact_text(text);
        assert!(
            shown.contains(REPLACEMENT) && shown.len() <= REPLACEMENT.len() + 10,
            "{text}: {shown}"
        );
    }
}

#[test]
fn half_a_secret_does_not_stand_where_a_text_was_cut() {
    let redactor = Redactor::new(Config::default());
    for (head, shown) in [
        ("a line\nghp_AbCd", "a line\n[redacted]"),
        ("password=hun", "[redacted]"),
        ("password: hun", "password: [redacted]"),
        ("a line\n", "a line\n"),
        ("", ""),
        ("x -----BEGIN PRIVATE KEY-----\nMIIE\nab", "x [redacted][redacted]"),
    ] {
        assert_eq!(redactor.redact_head(head), shown, "{head:?}");
    }
    for (tail, shown) in [
        ("EfGh\na line", "[redacted]\na line"),
        ("\na line", "\na line"),
        ("", ""),
        ("é", "[redacted]"),
        ("MIIE\nab\n-----END PRIVATE KEY-----\nnext", "[redacted]\nnext"),
        (
            "a b\n-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\nc",
            "[redacted] b\n[redacted]\nc",
        ),
    ] {
        assert_eq!(redactor.redact_tail(tail), shown, "{tail:?}");
    }
    let long = "é".repeat(5000);
    assert_eq!(redactor.redact_head(&long).len(), 10000 - 4096 + REPLACEMENT.len());
    assert_eq!(redactor.redact_tail(&long).len(), 10000 - 4096 + REPLACEMENT.len());
}
