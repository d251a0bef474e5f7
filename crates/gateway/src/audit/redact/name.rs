//! Names that hold secrets: of variables, options, headers and fields.

/// What a name has in it that may be a secret's, for the patterns that look for names in a text.
pub(super) const PARTS: &str =
    r"pass|pwd|pswd|secret|token|key|cred|auth|cookie|bearer|jwt|pat|pw|otp|psk|phpsessid|access[_.\-]?signature";

/// Whether a variable, option or field of this name holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    // What an alias of git stands for is run, whatever the alias is called.
    if name.starts_with("alias.") {
        return false;
    }
    let (mut owner, mut before) = ("", "");
    let mut words = 0;
    let mut found = false;
    let is_option = name.starts_with('-');
    if is_option && Words(name).next().is_some_and(|first| is_among(TAKE_NOTHING, first)) {
        return false;
    }
    for word in Words(name) {
        words += 1;
        let is = |list: &[&str]| list.iter().any(|it| word.eq_ignore_ascii_case(it));
        found = if is(&["key", "keys"]) {
            let has_owner = |owners: &[&str]| owners.iter().any(|it| before.eq_ignore_ascii_case(it));
            // Variables that hold keys say of which service; fields and columns say so of anything.
            let is_variable = words > 1 && !name.bytes().any(|byte| byte.is_ascii_lowercase());
            found || has_owner(KEY_OWNERS) || is_variable && !has_owner(PLAIN_KEYS)
        } else if is(&["pwd"]) {
            // `PWD` itself is where a shell stands.
            found || words > 1 || is_option || word == "Pwd"
        } else if is(&["pass"]) {
            // Alone it is what a test says of itself.
            let is_plain = PLAIN_PASSES.iter().any(|it| before.eq_ignore_ascii_case(it));
            found || words > 1 && !is_plain || is_option || name == "PASS"
        } else if is(&["signature"]) {
            // Others are there to be looked at.
            found || before.eq_ignore_ascii_case("access")
        } else if is(&["id"]) && before.eq_ignore_ascii_case("secret") {
            // An option names a secret by it; elsewhere it is one half of a login.
            found && !is_option
        } else if is(DESCRIPTIONS) {
            false
        } else {
            found || is(SECRET_WORDS) || SECRET_ENDINGS.iter().any(|it| ends_with(word, it))
        };
        (owner, before) = (before, word);
    }
    // Behind most words they are counted: `max_tokens`.
    let are_tokens = before.eq_ignore_ascii_case("tokens") && (words == 1 || is_among(KEY_OWNERS, owner));
    found || are_tokens || before.eq_ignore_ascii_case("auth")
}

/// Whether a secret's name is that of a header rather than any word with a colon behind it.
pub(super) fn is_header_name(name: &str) -> bool {
    name.contains('-') || is_among(&["authorization", "cookie"], name)
}

fn is_among(list: &[&str], word: &str) -> bool {
    list.iter().any(|it| word.eq_ignore_ascii_case(it))
}

/// Whether a field of this name may tell how many tokens a model took, as `tokenUsage`, `token_usage` and `tokens` do. It
/// is a secret's name all the same: only its numbers are harmless.
pub(super) fn counts_tokens(name: &str) -> bool {
    let mut words = Words(name);
    let mut is = |list: &[&str]| {
        words
            .next()
            .is_some_and(|word| list.iter().any(|it| word.eq_ignore_ascii_case(it)))
    };
    let is_usage = is(&["token", "tokens"]) && is(&["usage"]) && Words(name).count() == 2;
    let are_tokens = || Words(name).last().is_some_and(|last| is_among(&["tokens"], last));
    is_usage || are_tokens() && is_secret_name(name)
}

/// Whether a name and its value tell no more than that.
pub(super) fn tells_count(name: &str, value: &str) -> bool {
    counts_tokens(name) && is_figure(value)
}

/// Whether a value is a number, or more than one: `512`, `1,024`, `512/4096`.
pub(super) fn is_figure(value: &str) -> bool {
    let value = value.trim_end_matches([',', '.', ')', ']', '}']);
    let is_part = |byte: u8| byte.is_ascii_digit() || b",._/%".contains(&byte);
    value.starts_with(|c: char| c.is_ascii_digit()) && value.bytes().all(is_part)
}

/// Whether what is given under this name runs, as with `--exec` and `core.pager`.
pub(super) fn runs_its_value(name: &str) -> bool {
    is_among(RUN_NAMES, Words(name).last().unwrap_or_default())
}

const RUN_NAMES: &[&str] = &[
    "action", "askpass", "call", "cmd", "command", "commands", "editor", "eval", "exec", "execute", "filter", "helper",
    "hook", "lessopen", "pager", "process", "program", "rsh", "run", "script", "shell", "visual",
];

const SECRET_WORDS: &[&str] = &[
    "secrets",
    "credential",
    "credentials",
    "authorization",
    "cookie",
    "bearer",
    "jwt",
    "pat",
    "passcode",
    "passin",
    "passout",
    "pw",
    "creds",
    "storepass",
    "srcstorepass",
    "deststorepass",
    "keypass",
    "srckeypass",
    "destkeypass",
    "dbpass",
    "userpass",
    "otp",
    "totp",
    "psk",
    "phpsessid",
];
/// Also at the end of a longer word, as in `PGPASSWORD`.
const SECRET_ENDINGS: &[&str] = &[
    "password",
    "passwd",
    "passwort",
    "pswd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "apikeys",
    "accesskey",
    "accesssignature",
    "privatekey",
    "privkey",
    "sshkey",
    "secretkey",
    "authkey",
];
/// `key` is a secret behind one of these.
const KEY_OWNERS: &[&str] = &[
    "api",
    "access",
    "account",
    "admin",
    "aes",
    "app",
    "auth",
    "client",
    "consumer",
    "crypto",
    "decryption",
    "deploy",
    "encryption",
    "functions",
    "hmac",
    "host",
    "license",
    "master",
    "private",
    "recovery",
    "secret",
    "server",
    "service",
    "session",
    "shared",
    "signing",
    "ssh",
    "storage",
    "subscription",
    "token",
    "vault",
    "webhook",
];
/// `pass` is none behind one of these.
const PLAIN_PASSES: &[&str] = &[
    "band", "by", "final", "first", "high", "last", "low", "multi", "one", "render", "second", "single", "two",
];
/// `KEY` is none behind one of these.
const PLAIN_KEYS: &[&str] = &[
    "cache",
    "foreign",
    "group",
    "index",
    "partition",
    "primary",
    "public",
    "range",
    "row",
    "sort",
    "unique",
];
/// A name that ends like this speaks about a secret without holding it, as in `TOKEN_FILE`. Some of them hold a
/// command that prints it, `credential.helper` and `--password-command`: it runs, and must be seen.
const DESCRIPTIONS: &[&str] = &[
    "arn",
    "askpass",
    "authentication",
    "id",
    "ids",
    "jar",
    "ref",
    "version",
    "cmd",
    "command",
    "count",
    "enabled",
    "eval",
    "exec",
    "expires",
    "file",
    "helper",
    "hook",
    "length",
    "limit",
    "max",
    "min",
    "mode",
    "name",
    "path",
    "policy",
    "process",
    "program",
    "provider",
    "required",
    "script",
    "size",
    "stdin",
    "ttl",
    "type",
    "url",
];

/// Options that begin like this say what to do about a secret and take none: `--no-password`, `--ask-become-pass`.
const TAKE_NOTHING: &[&str] = &["ask", "disable", "no", "prompt", "skip", "without"];

pub(super) fn ends_with(word: &str, ending: &str) -> bool {
    word.len()
        .checked_sub(ending.len())
        .and_then(|at| word.get(at..))
        .is_some_and(|tail| tail.eq_ignore_ascii_case(ending))
}

/// The words of a name: `apiKey`, `API_KEY` and `api-key` are two each.
struct Words<'n>(&'n str);

impl<'n> Iterator for Words<'n> {
    type Item = &'n str;

    fn next(&mut self) -> Option<&'n str> {
        let name = self.0.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        if name.is_empty() {
            return None;
        }
        let bytes = name.as_bytes();
        let ends = |at: usize| {
            let (before, here) = (bytes[at - 1], bytes[at]);
            !here.is_ascii_alphanumeric()
                || before.is_ascii_lowercase() && here.is_ascii_uppercase()
                || before.is_ascii_uppercase()
                    && here.is_ascii_uppercase()
                    && bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase)
        };
        let end = (1..bytes.len()).find(|&at| ends(at)).unwrap_or(bytes.len());
        let (word, rest) = name.split_at(end);
        self.0 = rest;
        Some(word)
    }
}
