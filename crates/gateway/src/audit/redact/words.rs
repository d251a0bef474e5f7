//! Secrets among the words of a command: behind the options that take them, and where single programs are known to
//! expect them, as `mysql -pX` and `sshpass -p X` do. `-p` alone means nothing; `-p` of `mysql` does.

mod habits;

use std::ops::Range;
use std::sync::LazyLock;

use habits::{HABITS, Habits, NONE, PROGRAMS};
use regex::Regex;

use super::name::{PARTS, is_header_name, is_secret_name, tells_count};
use super::reach::Reach;
use super::running::{Running, base};
use super::spans::{credential_from, is_sentence, names_another};
use super::{compiled, files, is_group, is_name};

/// Whether any word of a text could hold a secret; most texts say no at once.
pub(super) fn may_hold_any(text: &str) -> bool {
    static SIGNS: LazyLock<Regex> = LazyLock::new(|| {
        let programs = HABITS.iter().flat_map(|habits| habits.programs).copied();
        let names: Vec<&str> = programs.chain(OTHERS.iter().copied()).collect();
        compiled(&format!("(?i-u:{PARTS})|{}", names.join("|")))
    });
    SIGNS.is_match(text)
}

/// What else a secret may be given by: programs that read one, and an option.
const OTHERS: &[&str] = &["--from-literal", "cryptsetup", "gcloud", "ssh-add", "sudo", "wrangler"];

/// For each word what of it is a secret.
pub(super) fn hidden(words: &[&str]) -> Vec<Option<Range<usize>>> {
    let begin = begin(words);
    if begin.iter().all(Option::is_none) {
        return vec![None; words.len()];
    }
    let running = Running::new(words);
    let begin = begin.into_iter().enumerate();
    let spans = begin.map(|(at, from)| {
        let from = from?;
        let length = Reach::of(&running, at, from).end(&words[at][from..]);
        Some(from..from + length)
    });
    spans.collect()
}

/// For each word the byte from which it is a secret.
fn begin(words: &[&str]) -> Vec<Option<usize>> {
    let mut asked = Vec::new();
    let mut habits: &'static Habits = &NONE;
    let mut expected = Expected::Anything;
    let mut sets = false;
    let mut given = Vec::with_capacity(words.len());
    for (at, &word) in words.iter().enumerate() {
        let before = &words[..at];
        let own = |word| own(word, habits, before);
        let is_count = || before.last().is_some_and(|name| tells_count(name, word));
        let from = match expected {
            Expected::Secret if !word.starts_with("--") && !is_count() => Some(0),
            Expected::UserAnd(separator) => password_from(word, separator).or_else(|| own(word)),
            Expected::Cookie => word.contains('=').then_some(0),
            Expected::Proxy => proxy_password_from(word).or_else(|| own(word)),
            Expected::Header => header(word, Place::BehindItsOption).or_else(|| own(word)),
            Expected::Pair => word.split_once('=').map(|(name, _)| name.len() + 1),
            Expected::Secret | Expected::Anything => own(word),
        };
        given.push(from);
        let name = word.rsplit('/').next().unwrap_or_default();
        habits = PROGRAMS.get(name).map_or(habits, |several| {
            let applies = several.iter().find(|habits| habits.apply_to(words, &mut asked));
            applies.copied().unwrap_or(habits)
        });
        expected = after(words.split_at(at + 1), habits, sets);
        sets |= matches!(word, "set" | "env:set" | "setenv" | "setx" | "config" | "configure");
    }
    if habits.ends_with_it {
        // `pulumi config set name X --secret`.
        let said = words.iter().rposition(|word| !habits.when.contains(word));
        let is_program = |at: &usize| habits.programs.contains(&base(words[*at]));
        if let Some(last) = said.filter(|at| !is_program(at)) {
            given[last] = Some(0);
        }
    }
    given
}

/// Whether secrets are expected among the words of this program.
pub(super) fn take_secrets(program: &str, words: &[&str]) -> bool {
    let habits = PROGRAMS.get(base(program)).into_iter().flatten();
    habits.into_iter().any(|habits| habits.apply_to(words, &mut Vec::new()))
}

/// Whether a program takes what it reads for a secret. Only such as run nothing of it: what is said to them is hidden.
pub(super) fn read_secret(words: &[&str]) -> bool {
    let Some(at) = words.iter().position(|word| !word.contains('=')) else {
        return false;
    };
    let behind = words[at + 1..].iter().enumerate();
    match Running::new(words) {
        running if running.runs() => false,
        running if running.launches() => {
            asks_for_password(&words[at..])
                || behind
                    .into_iter()
                    .any(|(next, word)| takes_it(word, &words[at + 1 + next..]))
        }
        running => takes_it(running.program(), words),
    }
}

fn takes_it(program: &str, words: &[&str]) -> bool {
    let has = |options: &[&str]| words.iter().any(|word| options.contains(word));
    let by = |options: &[&str]| words.contains(&"login") && has(options);
    // What is started elsewhere may be anything.
    let starts_other = || has(&["--", "exec", "run"]);
    let stores = |acts: &[&str]| words.contains(&"secret") && has(acts) && !starts_other();
    let reads_file = |word: &str| word.starts_with("--from-file=") && word.ends_with("/dev/stdin");
    match program.rsplit('/').next().unwrap_or_default() {
        "buildah" | "crane" | "docker" | "helm" | "nerdctl" | "oras" | "podman" | "regctl" | "skopeo" => {
            by(&["--password-stdin", "--pass-stdin"]) || stores(&["create"]) && has(&["-"])
        }
        "gh" => by(&["--with-token"]) || stores(&["set"]),
        "gcloud" => has(&["secrets"]) && (has(&["--data-file=-"]) || words.ends_with(&["--data-file", "-"])),
        "kubectl" | "oc" => stores(&["create"]) && words.iter().any(|word| reads_file(word)),
        "vault" => by(&["-"]),
        "vercel" => has(&["env"]) && has(&["add"]),
        "glab" => by(&["--stdin"]),
        "chpasswd" | "cryptsetup" => true,
        "passwd" => has(&["--stdin"]),
        "wrangler" => words.contains(&"secret") && has(&["put"]),
        "gpg" | "gpg2" => {
            let is_first = |pair: &[&str]| pair == ["--passphrase-fd", "0"];
            has(&["--passphrase-fd=0"]) || words.windows(2).any(is_first)
        }
        "openssl" => has(&["stdin", "fd:0"]),
        "ssh-add" => has(&["-"]),
        "read" => words.iter().skip(1).any(|word| is_name(word) && is_secret_name(word)),
        _ => false,
    }
}

/// `sudo -S`, also among other letters.
fn asks_for_password(words: &[&str]) -> bool {
    let is_sudo = words[0].rsplit('/').next() == Some("sudo");
    let mut options = words[1..].iter().take_while(|word| word.starts_with('-'));
    let has_letter = |word: &str| !word.starts_with("--") && word.contains('S');
    is_sudo && options.any(|word| *word == "--stdin" || has_letter(word))
}

/// What the word behind holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Anything,
    Secret,
    /// A user, this, and the password.
    UserAnd(char),
    /// Cookies, unless it is a file of them.
    Cookie,
    /// A machine, and perhaps the password for it.
    Proxy,
    Header,
    /// A name that need not be a secret's, `=`, and the secret.
    Pair,
}

/// The secret in a word that names what it holds.
fn own(word: &str, habits: &Habits, before: &[&str]) -> Option<usize> {
    if let Some((name, value)) = word.split_once('=')
        && !value.is_empty()
        && is_name(name.trim_end_matches('+'))
    {
        if habits.cookies && name == "--cookie" {
            return value.contains('=').then_some(name.len() + 1);
        }
        let before = || before.iter().copied();
        let is_other =
            || tells_count(name, value) || names_another(name, before()) || files::is_sent(name, value, before());
        let is_secret = || is_secret_name(name) && !is_other();
        if habits.pairs || is_secret() {
            return Some(name.len() + 1);
        }
        // A pair whose name need not be a secret's.
        if name == "--from-literal" {
            return value.find('=').map(|at| name.len() + 1 + at + 1);
        }
    }
    if let Some(from) = header(word, Place::Anywhere) {
        return Some(from);
    }
    if habits.cookies && word.starts_with("-b") && word.contains('=') {
        return Some(2);
    }
    if let Some(user) = login(word).filter(|_| habits.logins) {
        return Some(user.len() + 1);
    }
    let is_address = || !word.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '{'));
    if habits.cookies
        && !word.starts_with('-')
        && is_address()
        && let Some(from) = proxy_password_from(word)
    {
        return Some(from);
    }
    let glued = habits
        .glued
        .iter()
        .find(|option| word.len() > option.len() && word.starts_with(**option));
    if let Some(option) = glued {
        return Some(option.len());
    }
    habits.user.iter().find_map(|(option, separator)| {
        let from = behind_cluster(word, option)?;
        password_from(&word[from..], *separator).map(|at| from + at)
    })
}

/// Where a header stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    BehindItsOption,
    Anywhere,
}

/// A header in one word; its scheme stays. Elsewhere than behind the option for headers, what only might be one
/// is a sentence if there are blanks in it: `auth: drop all sessions`.
fn header(word: &str, place: Place) -> Option<usize> {
    let is_one = place == Place::BehindItsOption;
    let (before, value) = word.split_once(':')?;
    let name = before.rsplit('=').next().unwrap_or(before);
    let name = name.strip_prefix("-H").unwrap_or(name);
    let value = value
        .strip_prefix(' ')
        .unwrap_or(if is_one { value } else { "" })
        .trim_start_matches(' ');
    if value.is_empty() || !is_name(name) || !is_secret_name(name) || tells_count(name, value) {
        return None;
    }
    if !is_one && !is_header_name(name) && value.contains(' ') {
        return None;
    }
    let from = word.len() - value.len();
    Some(from + credential_from(name, value))
}

/// The user of `user/password@host`, which is no path.
fn login(word: &str) -> Option<&str> {
    let (user, password) = word.split_once('/')?;
    let is_user = is_name(user) && !user.starts_with(['-', '.']);
    (is_user && !password.is_empty() && !password.starts_with('/')).then_some(user)
}

/// The password of `user:password@host`, where no scheme stands before it.
fn proxy_password_from(word: &str) -> Option<usize> {
    let (user_info, _) = word.rsplit_once('@').filter(|_| !word.contains("://"))?;
    let (user, _) = user_info.split_once(':').filter(|(user, _)| is_name(user))?;
    Some(user.len() + 1)
}

/// Whether `-u` names somebody who owns or runs something, maybe with a group, and no password.
pub(super) fn names_user<'w>(before: impl DoubleEndedIterator<Item = &'w str>) -> bool {
    const NEARBY: usize = 64;
    for word in before.rev().take(NEARBY) {
        match word.rsplit('/').next().unwrap_or_default() {
            "docker" | "docker-compose" | "doas" | "journalctl" | "nerdctl" | "podman" | "runuser" | "sudo"
            | "systemctl" => return true,
            "login" => return false,
            name if PROGRAMS.contains_key(name) => return false,
            _ => {}
        }
    }
    false
}

/// What comes behind a word, of a program that sets something where one of the words before says so.
fn after((words, behind): (&[&str], &[&str]), habits: &Habits, sets: bool) -> Expected {
    let Some((&word, before)) = words.split_last() else {
        return Expected::Anything;
    };
    if let Some((_, separator)) = habits
        .user
        .iter()
        .find(|(option, _)| behind_cluster(word, option) == Some(word.len()))
    {
        return Expected::UserAnd(*separator);
    }
    let is_secret = || is_name(word) && is_secret_name(word) && !names_another(word, before.iter().copied());
    let is_option = word.starts_with('-') && word.len() > 2 && is_secret();
    let is_header = || {
        word.strip_suffix(':')
            .is_some_and(|name| is_name(name) && is_secret_name(name) && !is_sentence(name, behind.iter().copied()))
    };
    // `aws configure set aws_secret_access_key X`, `git config http.password X`.
    let is_setting = || {
        let name = word.rsplit([':', '/']).next().unwrap_or_default();
        sets && is_name(name) && is_secret_name(name)
    };
    // `jq --arg password X`.
    let is_argument = || {
        let names_it = matches!(before.last(), Some(&("--arg" | "--argjson" | "--argstr")));
        names_it && is_name(word) && is_secret_name(word)
    };
    let is_later = || {
        let mut later = habits.later.iter();
        later.any(|(begin, behind)| {
            words
                .iter()
                .rev()
                .nth(behind - 1)
                .is_some_and(|word| word.starts_with(begin))
        })
    };
    match word {
        "-u" | "--user" if names_user(before.iter().copied()) => Expected::Anything,
        "-u" | "--user" | "--proxy-user" => Expected::UserAnd(':'),
        "-b" | "--cookie" if habits.cookies => Expected::Cookie,
        "-x" | "--proxy" | "--preproxy" if habits.cookies => Expected::Proxy,
        "-H" | "--header" | "--proxy-header" => Expected::Header,
        "--from-literal" => Expected::Pair,
        _ if is_later() || habits.next.contains(&word) || is_option || is_header() => Expected::Secret,
        _ if is_setting() || is_argument() => Expected::Secret,
        _ => Expected::Anything,
    }
}

/// Where the value of a short option begins, which may stand behind others in one word: `-sSu`.
fn behind_cluster(word: &str, option: &str) -> Option<usize> {
    if option.starts_with("--") {
        return (word == option).then_some(word.len());
    }
    let letter = option.strip_prefix('-')?;
    let cluster = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'))?;
    let at = cluster.find(letter)?;
    // Options that take nothing themselves.
    let alone = |c: char| "fgikjlnsSvLNIGq#0123456".contains(c);
    cluster[..at].chars().all(alone).then_some(1 + at + letter.len())
}

/// Where the password begins. A long name without one is a token.
fn password_from(word: &str, separator: char) -> Option<usize> {
    const TOKEN_BYTES_MIN: usize = 16;
    let (user, password) = word.split_once(separator)?;
    match password {
        "" | "x-oauth-basic" if user.len() >= TOKEN_BYTES_MIN => Some(0),
        _ if is_group(password) => None,
        _ => Some(user.len() + separator.len_utf8()),
    }
}

#[cfg(test)]
mod tests;
