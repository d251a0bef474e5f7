//! Where secrets stand in a text, by the names before them.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::name::{PARTS, counts_tokens, ends_with, is_figure, is_secret_name, tells_count};
use super::running::base;
use super::{colours, compiled, files, is_group, is_name_char, lines, manifests, pairs, structures, words};

/// Values that stand behind a name that is a secret's.
pub(super) fn named_spans(text: &str) -> Vec<Range<usize>> {
    colours::through(text, spans_in)
}

fn spans_in(text: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    // Each of these needs a character that most texts do not have; to look for that is quicker.
    let has = |one: u8, other: u8| text.bytes().any(|byte| byte == one || byte == other);
    if has(b'@', b'@') {
        spans.extend(
            USER_INFO
                .find_iter(text)
                .filter_map(|it| password(it.as_str(), it.start())),
        );
    }
    if has(b' ', b'\t') {
        spans.extend(BEARER.find_iter(text).map(|it| it.end()..token_end(text, it.end())));
    }
    if has(b'-', b'-') {
        spans.extend(OPTION.find_iter(text).filter_map(|it| optional(text, it.range())));
        spans.extend(
            USER_OPTION
                .find_iter(text)
                .filter_map(|it| user_option(text, it.range())),
        );
    }
    if has(b' ', b'\t') {
        let stated = STATED.find_iter(text).map(|it| {
            let is_quoted = it.as_str().ends_with(['"', '\'']);
            assigned(text, it.start()..it.end() - usize::from(is_quoted))
        });
        spans.extend(stated);
        let set = SET.captures_iter(text).filter(|it| is_secret_name(&it[1]));
        spans.extend(set.map(|it| assigned(text, it.get_match().range())));
        let generated = GENERATED.captures_iter(text);
        spans.extend(generated.filter_map(|it| Some(it.get(1)?.range())));
    }
    if has(b'=', b'=') {
        let users = USER_SETTING.find_iter(text);
        spans.extend(users.filter_map(|it| user_option(text, it.start()..it.end() - 1)));
    }
    if has(b'<', b'<') {
        let elements = ELEMENT.captures_iter(text).filter(|it| is_secret_name(&it[1]));
        spans.extend(elements.filter_map(|it| Some(it.get(2)?.range())));
    }
    if has(b'?', b'&') {
        spans.extend(SIGNED.find_iter(text).map(|it| it.end()..token_end(text, it.end())));
        let keys = KEY_OF_ADDRESS.captures_iter(text);
        spans.extend(keys.filter_map(|it| Some(it.get(1)?.range())));
    }
    if has(b'\t', b'|') || has(b',', b',') {
        spans.extend(lines::cells(text));
    }
    if has(b':', b':') {
        spans.extend(lines::logins(text));
        spans.extend(lines::blocks(text));
        spans.extend(manifests::spans(text));
    }
    if has(b'=', b':') || has(b'(', b'(') {
        spans.extend(pairs::spans(text));
    }
    if has(b'=', b':') || has(b'%', b'%') {
        let mut resume = 0;
        while let Some(found) = ASSIGNMENT.find_at(text, resume) {
            resume = found.end();
            if names_secret(text, &found.range()) {
                let values = values(text, found.range());
                resume = values.last().map_or(resume, |last| resume.max(last.end));
                spans.extend(values);
            }
        }
    }
    spans
}

/// Whether what [`ASSIGNMENT`] found is a secret's name.
fn names_secret(text: &str, found: &Range<usize>) -> bool {
    let written = &text[found.clone()];
    let before = &text[..found.start];
    let name = name_in(written);
    let value = &text[found.end..];
    // What an alias of git stands for is run.
    if before.ends_with("alias.") {
        return false;
    }
    // `Server=h;Pwd=X`.
    if name.eq_ignore_ascii_case("pwd") && before.ends_with(';') {
        return !is_place(value);
    }
    // `createUser({user: "a", pwd: "X"})`.
    if let Some(quote) = opening(value).filter(|_| name == "pwd" && written.trim_end().ends_with(':')) {
        return !is_place(&value[quote.len()..]);
    }
    if written.ends_with(": ") && is_sentence(name, value.split(' ')) {
        return false;
    }
    if written.ends_with(':') && names_task(name, &value[..token_end(value, 0)])
        || names_another(name, command_before(before))
        || value.starts_with(['@', '<'])
            && files::is_sent(name, &value[..1 + token_end(&value[1..], 0)], command_before(before))
    {
        return false;
    }
    if name.eq_ignore_ascii_case("pass") {
        return name == "PASS" && written.ends_with('=') || is_given_pass(before, written, value);
    }
    if counts_tokens(name) {
        return is_given_tokens(value);
    }
    let is_several = value.starts_with('(') && is_secret_name(name.trim_end_matches(['s', 'S']));
    is_secret_name(name) || is_several
}

/// Whether a value is where a shell stands.
fn is_place(value: &str) -> bool {
    value.starts_with(['/', '$', '~', '.', '%']) || value[..value.len().min(3)].contains(":\\")
}

/// Whether `pass` is given a password. Elsewhere it says how a test went, or how many did: `pass: 12`.
fn is_given_pass(before: &str, written: &str, value: &str) -> bool {
    const TELL: &[&str] = &["false", "no", "none", "null", "ok", "true", "yes"];
    if opening(value).is_some() {
        return true;
    }
    let word = &value[..token_end(value, 0)];
    let tells = word.starts_with(['$', '=']) || TELL.iter().any(|it| word.eq_ignore_ascii_case(it));
    if word.is_empty() || tells || is_figure(word) {
        return false;
    }
    // Below the name of what it is for, and alone in its line.
    let is_below = || before.ends_with([' ', '\t']) && lines::is_begun(before);
    let is_alone = || {
        value[word.len()..]
            .lines()
            .next()
            .is_none_or(|rest| rest.trim().is_empty())
    };
    let sign = written.trim_end();
    let is_first = || lines::is_begun(before) && written.starts_with("pass") && looks_chosen(word);
    sign.ends_with('=') || sign.ends_with(':') && (is_below() || is_first()) && is_alone()
}

/// Whether a word has figures among its letters, and is no file and no test.
pub(super) fn looks_chosen(word: &str) -> bool {
    const CHARS_MIN: usize = 8;
    let has = |test: fn(&u8) -> bool| word.bytes().any(|byte| test(&byte));
    let is_name = word.contains(['/', '.', '_', ':', '(']);
    word.len() >= CHARS_MIN && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic) && !is_name
}

/// Whether `tokens` are given as such. They are counted as well, and in many languages they are parts of a text.
fn is_given_tokens(value: &str) -> bool {
    if value.starts_with('(') {
        return true;
    }
    let quote = opening(value).map_or(0, str::len);
    let word = &value[quote..token_end(value, quote)];
    let has_figures = word.bytes().any(|byte| byte.is_ascii_digit());
    (quote > 0 || has_figures) && !is_figure(word)
}

/// What people also write about.
const SUBJECTS: &[&str] = &[
    "auth",
    "credential",
    "credentials",
    "secret",
    "secrets",
    "token",
    "tokens",
];

/// Whether a name, a colon and a word are what some program is to do: `rails credentials:edit`.
fn names_task(name: &str, word: &str) -> bool {
    const TASKS: &[&str] = &[
        "create", "delete", "diff", "edit", "export", "fetch", "generate", "import", "install", "list", "new",
        "remove", "rotate", "set", "show", "unset",
    ];
    SUBJECTS.contains(&name) && TASKS.contains(&word)
}

/// Options that say which secret is meant, or nothing about one at all, with the program and a word of it.
const NAME_ANOTHER: &[(&str, &str, &str)] = &[
    ("--secret", "buildah", "build"),
    ("--secret", "docker", "build"),
    ("--secret", "docker", "service"),
    ("--secret", "gcloud", "secrets"),
    ("--secret", "podman", "build"),
    ("-pass", "ffmpeg", "-i"),
];

pub(super) fn names_another<'w>(option: &str, before: impl Iterator<Item = &'w str> + Clone) -> bool {
    let has = |wanted: &str| before.clone().any(|word| base(word) == wanted);
    let mut same = NAME_ANOTHER.iter().filter(|(name, ..)| *name == option);
    same.any(|(_, program, word)| has(program) && has(word))
}

/// Whether words behind a name and a colon make a sentence: `auth: drop all sessions` says what was done. A password of
/// several words stands behind other names.
pub(super) fn is_sentence<'w>(name: &str, behind: impl Iterator<Item = &'w str>) -> bool {
    const WORDS_MIN: usize = 3;
    const WORD_BYTES_MAX: usize = 12;
    let is_word = |word: &&str| {
        let is_plain = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
        is_plain && word.len() <= WORD_BYTES_MAX
    };
    SUBJECTS.contains(&name) && behind.take(WORDS_MIN).filter(is_word).count() == WORDS_MIN
}

/// A name that may be a secret's, and what stands between it and the value.
static ASSIGNMENT: LazyLock<Regex> = LazyLock::new(|| {
    compiled(&format!(
        r#"[A-Za-z0-9_.\-]*(?i-u:{PARTS})[A-Za-z0-9_.\-]*(?:\\*["']|&quot;|&#34;|%22)?\]?[ \t]*(?:=>|:{{1,3}}=|[?+]=|[=:]|%3[AaDd])[ \t]*"#
    ))
});

/// An option that may be a secret's, as in a shell line; the value is the next word.
static OPTION: LazyLock<Regex> = LazyLock::new(|| {
    compiled(&format!(
        r"(?:--|(?:\A|[^A-Za-z0-9_.\-])-)[A-Za-z0-9_.\-]*(?i-u:{PARTS})[A-Za-z0-9_.\-]*(?:[ \t]|\\\n)+"
    ))
});

/// `password` and a value behind it, where a language puts no sign between: SQL, and the file of logins that `curl`
/// and `git` read.
static STATED: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r#"(?i:(?-u:\b)(?:password|passwd|identified[ \t]+by|identified[ \t]+by[ \t]+password|identified[ \t]+with[ \t]+[^ \t\r\n]+[ \t]+(?:as|by)|with[ \t]+password)[ \t]+['"]|(?-u:\b)(?:set[ \t]+password(?:[ \t]+for[ \t]+[^=;\r\n]+)?|pragma[ \t]+(?:hex)?(?:re)?key)[ \t]*=[ \t]*(?:password[ \t]*\([ \t]*)?['"]|(?:(?-u:\b)|\\[nrt])login[ \t]+[^ \t\r\n\\]+(?:[ \t\r\n]|\\[nrt])+password[ \t]+|(?-u:\b)(?:requirepass|masterauth)[ \t]+)"#,
    )
});

/// What sets a variable without a sign: the line of a Dockerfile, and `csh`.
static SET: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"(?m)(?:^[ \t]*ENV|(?-u:\b)setenv)[ \t]+([A-Za-z0-9_.\-]+)[ \t]+"));

/// The password that MySQL begins with.
static GENERATED: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"(?i:password is generated for) [^ \t\r\n]+: ([^ \t\r\n]+)"));

/// An element of XML, its name and what stands in it.
static ELEMENT: LazyLock<Regex> = LazyLock::new(|| compiled(r"<([A-Za-z0-9_.\-]+)(?:[ \t][^<>]*)?>([^<>]+)</"));

/// What signs an address, and opens it to whoever has it.
static SIGNED: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"[?&;](?i-u:sig|signature|x-amz-signature|x-goog-signature)="));

/// A key in an address, which is one where it is long enough.
static KEY_OF_ADDRESS: LazyLock<Regex> = LazyLock::new(|| compiled(r"[?&]key=([A-Za-z0-9_\-]{15,})"));

/// The option by which programs take `user:password`.
static USER_OPTION: LazyLock<Regex> = LazyLock::new(|| compiled(r"(?:\A|\s)(?:-u|--user|--proxy-user)(?:[ \t]+|=)"));

/// The same in the file of options that `curl` reads.
static USER_SETTING: LazyLock<Regex> = LazyLock::new(|| compiled(r#"(?:\A|[\s'"])(?:proxy-)?user[ \t]+=[ \t]+""#));

/// `user:password@` of an address.
static USER_INFO: LazyLock<Regex> =
    LazyLock::new(|| compiled(r#"://(?:[^ \t\r\n/?#"'<>]*@|[^ \t\r\n/?#"'<>:@]+:[^ \t\r\n"'<>@]+@)"#));

static BEARER: LazyLock<Regex> = LazyLock::new(|| compiled(r"(?-u:\b)(?i-u:bearer)[ \t]+"));

/// Words in front of a credential in a header.
const SCHEMES: &[&str] = &[
    "bearer",
    "basic",
    "token",
    "digest",
    "negotiate",
    "apikey",
    "aws4-hmac-sha256",
];

pub(super) fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|it| word.eq_ignore_ascii_case(it))
}

/// Where the credential begins in the value of a header: behind the word that says of which kind it is.
pub(super) fn credential_from(name: &str, value: &str) -> usize {
    const SCHEME_BYTES_MAX: usize = 20;
    let Some((scheme, behind)) = value.split_once([' ', '\t']) else {
        return 0;
    };
    let is_word = || scheme.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
    let may_be_any = ends_with(name, "authorization") && scheme.len() <= SCHEME_BYTES_MAX && is_word();
    match (is_scheme(scheme) || may_be_any) && !behind.trim().is_empty() {
        true => value.len() - behind.trim_start_matches([' ', '\t']).len(),
        false => 0,
    }
}

/// Where a header ends: with its line, or with the quotes around it. What it gives in quotes belongs to it.
fn header_end(value: &str) -> usize {
    let mut at = 0;
    while let Some(next) = value[at..].find(['\n', '\r', '"', '\'']) {
        let end = at + next;
        let opens = value[..end].ends_with('=') && value[end..].starts_with('"');
        if !opens {
            return end;
        }
        let inner = value[end + 1..].find(['\n', '\r', '"']);
        at = inner.map_or(value.len(), |length| end + 1 + length);
        at += usize::from(value[at..].starts_with('"'));
    }
    value.len()
}

/// The name at the start of what [`ASSIGNMENT`] found.
fn name_in(found: &str) -> &str {
    let end = found.find(|c: char| !is_name_char(c)).unwrap_or(found.len());
    &found[..end]
}

/// All that follows a name and its separator: one value, or a list of them.
fn values(text: &str, found: Range<usize>) -> Vec<Range<usize>> {
    if structures::begin(&text[found.end..]) {
        return Vec::new();
    }
    let list = text[found.end..].strip_prefix('(');
    match list.filter(|_| text[found.clone()].ends_with('=')) {
        Some(items) => listed(text, found.end + 1, items),
        None => vec![assigned(text, found)],
    }
}

/// The value that follows a name and its separator.
fn assigned(text: &str, found: Range<usize>) -> Range<usize> {
    let is_quote = |rest: &str| rest.starts_with("$'") || rest.starts_with("$\"");
    let start = found.end + usize::from(is_quote(&text[found.end..]));
    let rest = &text[start..];
    if let Some(quote) = opening(rest) {
        let from = start + quote.len();
        return from..from + closing(&text[from..], quote);
    }
    let name = name_in(&text[found.clone()]);
    if ends_with(name, "cookie") {
        let end = rest.find(['\n', '\r', '"', '\'']).unwrap_or(rest.len());
        return start..start + end;
    }
    if ends_with(name, "authorization") && text[found.clone()].contains(':') {
        let end = header_end(rest);
        return start + credential_from(name, &rest[..end])..start + end;
    }
    let first = token_end(text, start);
    let behind = text[first..].trim_start_matches([' ', '\t']);
    if is_scheme(&text[start..first]) && !behind.is_empty() {
        // What a scheme needs may be several words; all of them up to the end of the header.
        let from = text.len() - behind.len();
        let end = behind.find(['\n', '\r', '"', '\'']).unwrap_or(behind.len());
        return from..from + end;
    }
    if is_phrase(name) && lines::is_begun(&text[..found.start]) && text[found].contains(['=', ':']) {
        return start..lines::phrase_end(text, first);
    }
    start..first
}

/// Whether what has this name may be several words.
fn is_phrase(name: &str) -> bool {
    const PHRASES: &[&str] = &["pass", "passphrase", "password", "passwd", "pwd", "secret"];
    PHRASES.iter().any(|it| ends_with(name, it))
}

/// Each of the words of a list, `TOKENS=(a b)`, up to one that a command is to say.
fn listed(text: &str, from: usize, items: &str) -> Vec<Range<usize>> {
    let end = from + items.find([')', '\n']).unwrap_or(items.len());
    let mut spans = Vec::new();
    let mut at = from;
    while at < end {
        let blank = text[at..end].len() - text[at..end].trim_start_matches([' ', '\t']).len();
        let quote = opening(&text[at + blank..end]).map_or(0, str::len);
        let start = at + blank + quote;
        let stop = match quote {
            0 => token_end(&text[..end], start),
            _ => start + closing(&text[start..end], &text[at + blank..start]),
        };
        if quote == 0 && text[start..stop].contains("$(") {
            break;
        }
        spans.push(start..stop);
        at = (stop + quote).max(start + 1);
    }
    spans
}

/// The quote that a value begins with, escaped as it is written.
pub(super) fn opening(rest: &str) -> Option<&str> {
    let escapes = rest.len() - rest.trim_start_matches('\\').len();
    let quotes = ["\"", "'", "&quot;", "&#34;", "%22"];
    let quote = quotes.into_iter().find(|quote| rest[escapes..].starts_with(quote))?;
    let length = escapes + quote.len();
    let (one, behind) = rest.split_at(length);
    // Some languages put three around a text.
    let has_three = behind.strip_prefix(one).is_some_and(|behind| behind.starts_with(one));
    Some(&rest[..if has_three { 3 * length } else { length }])
}

/// The word behind an option, if the option is a secret's and the word is not an option itself.
fn optional(text: &str, found: Range<usize>) -> Option<Range<usize>> {
    let option = text[found.clone()].trim_start_matches(|c| c != '-');
    let name = name_in(option);
    let before = || command_before(&text[..found.start]);
    let takes_it = is_secret_name(name) && !text[found.end..].starts_with("--") && !names_another(name, before());
    let may_be_file = name == "--cookie" && before().any(|word| word == "curl");
    let value = takes_it.then(|| assigned(text, found))?;
    let is_other = may_be_file && !text[value.clone()].contains('=') || tells_count(name, &text[value.clone()]);
    (!is_other).then_some(value)
}

/// The password in the word behind an option.
fn user_option(text: &str, found: Range<usize>) -> Option<Range<usize>> {
    if words::names_user(command_before(&text[..found.start])) && !text[found.clone()].contains("proxy") {
        return None;
    }
    let word = assigned(text, found);
    let (user, password) = text[word.clone()].split_once(':')?;
    (!is_group(password)).then(|| word.start + user.len() + 1..word.end)
}

/// The words of the command that is begun here, or the last of them.
fn command_before(text: &str) -> impl DoubleEndedIterator<Item = &str> + Clone {
    const NEARBY_CHARS: usize = 1024;
    let from = text.char_indices().rev().nth(NEARBY_CHARS).map_or(0, |(at, _)| at);
    let line = text[from..].rsplit(['\n', ';', '|', '&']).next();
    line.unwrap_or_default().split_ascii_whitespace()
}

/// Where a quoted value ends; an escaped quote does not end it.
pub(super) fn closing(inner: &str, quote: &str) -> usize {
    let mut from = 0;
    while let Some(at) = inner[from..].find(quote) {
        let end = from + at;
        let escapes = inner[..end].bytes().rev().take_while(|byte| *byte == b'\\').count();
        if quote.starts_with('\\') || escapes % 2 == 0 {
            return end;
        }
        from = end + quote.len();
    }
    inner.len()
}

/// Where a word ends. A comma belongs to it unless something is listed behind it.
pub(super) fn token_end(text: &str, start: usize) -> usize {
    let mut is_escaped = false;
    let stops = |(at, c): (usize, char)| {
        let is_free = std::mem::replace(&mut is_escaped, c == '\\');
        let ends = match c {
            ',' => {
                text[start + at + 1..].starts_with(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '{' | '['))
                    || text.len() == start + at + 1
            }
            '"' | '\'' | '`' => true,
            '&' | ';' | '|' | '<' | '>' => !is_free,
            '\u{1b}' | '\n' | '\r' => true,
            c => c.is_whitespace() && !is_free,
        };
        ends.then_some(start + at)
    };
    text[start..].char_indices().find_map(stops).unwrap_or(text.len())
}

/// The secret part of `://user:password@`; without a colon the user may be a token.
fn password(found: &str, at: usize) -> Option<Range<usize>> {
    const TOKEN_CHARS_MIN: usize = 20;
    let inner = &found[3..found.len() - 1];
    let is_port = |password: &str| password.split(['/', '?', '#']).next().is_some_and(is_group);
    let range = match inner.split_once(':') {
        // What looks like a password is the path behind a port.
        Some((_, password)) if password.contains(['/', '?', '#']) && is_port(password) => return None,
        Some((user, "" | "x-oauth-basic")) if user.len() >= TOKEN_CHARS_MIN => 3..3 + user.len(),
        Some((user, password)) if !password.is_empty() => 3 + user.len() + 1..found.len() - 1,
        None if inner.len() >= TOKEN_CHARS_MIN || is_mixed(inner) => 3..found.len() - 1,
        Some(_) | None => return None,
    };
    Some(at + range.start..at + range.end)
}

/// Whether it is a user that nobody would be called.
pub(super) fn is_mixed(user: &str) -> bool {
    const CHARS_MIN: usize = 12;
    let has = |test: fn(&u8) -> bool| user.bytes().any(|byte| test(&byte));
    user.len() >= CHARS_MIN && has(u8::is_ascii_digit) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase)
}
