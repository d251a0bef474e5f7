//! Secrets among the words of a command: behind the options that take them, and where single programs are known to
//! expect them, as `mysql -pX` and `sshpass -p X` do. `-p` alone means nothing; `-p` of `mysql` does.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;

use super::name::is_secret_name;
use super::running::Running;
use super::spans::is_scheme;
use super::{compiled, is_group, is_name};

/// Whether any word of a text could hold a secret; most texts say no at once.
pub(super) fn may_hold_any(text: &str) -> bool {
    static SIGNS: LazyLock<Regex> = LazyLock::new(|| {
        let programs = HABITS.iter().flat_map(|habits| habits.programs).copied();
        let names: Vec<&str> = programs.chain(OTHERS.iter().copied()).collect();
        compiled(&format!(
            "(?i-u:pass|pwd|secret|token|key|cred|auth|cookie|bearer|jwt|pat|pw)|{}",
            names.join("|")
        ))
    });
    SIGNS.is_match(text)
}

/// What else a secret may be given by: programs that read one, and an option.
const OTHERS: &[&str] = &["--from-literal", "cryptsetup", "ssh-add", "sudo"];

/// For each word the byte from which it is a secret, up to its end.
pub(super) fn hidden(words: &[&str]) -> Vec<Option<usize>> {
    let mut asked = Vec::new();
    let mut habits: &'static Habits = &NONE;
    let mut expected = Expected::Anything;
    let mut sets = false;
    let mut given = Vec::with_capacity(words.len());
    for &word in words {
        let from = match expected {
            Expected::Secret if !word.starts_with("--") => Some(0),
            Expected::UserAnd(separator) => password_from(word, separator).or_else(|| own(word, habits)),
            Expected::Pair => word.split_once('=').map(|(name, _)| name.len() + 1),
            Expected::Secret | Expected::Anything => own(word, habits),
        };
        given.push(from);
        let name = word.rsplit('/').next().unwrap_or_default();
        habits = PROGRAMS.get(name).map_or(habits, |several| {
            let applies = several.iter().find(|habits| habits.apply_to(words, &mut asked));
            applies.copied().unwrap_or(habits)
        });
        expected = after(word, habits, sets);
        sets |= matches!(word, "set" | "config" | "configure");
    }
    if let Some(last) = given.last_mut()
        && habits.ends_with_it
    {
        *last = Some(0);
    }
    given
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
    match program.rsplit('/').next().unwrap_or_default() {
        "buildah" | "crane" | "docker" | "helm" | "nerdctl" | "oras" | "podman" | "regctl" | "skopeo" => {
            by(&["--password-stdin", "--pass-stdin"])
        }
        "gh" => by(&["--with-token"]),
        "glab" => by(&["--stdin"]),
        "chpasswd" | "cryptsetup" => true,
        "passwd" => has(&["--stdin"]),
        "gpg" | "gpg2" => {
            let is_first = |pair: &[&str]| pair == ["--passphrase-fd", "0"];
            has(&["--passphrase-fd=0"]) || words.windows(2).any(is_first)
        }
        "openssl" => has(&["stdin", "fd:0"]),
        "ssh-add" => has(&["-"]),
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
    /// A name that need not be a secret's, `=`, and the secret.
    Pair,
}

/// How a program takes secrets.
struct Habits {
    programs: &'static [&'static str],
    /// Words of which one must follow, or the program takes none.
    when: &'static [&'static str],
    /// Behind these words.
    next: &'static [&'static str],
    /// In the same word, behind these letters.
    glued: &'static [&'static str],
    /// A user and the password, in the same word or in the next.
    user: &'static [(&'static str, char)],
    /// All pairs behind one of `when`.
    pairs: bool,
    ends_with_it: bool,
}

static NONE: Habits = Habits {
    programs: &[],
    when: &[],
    next: &[],
    glued: &[],
    user: &[],
    pairs: false,
    ends_with_it: false,
};

static HABITS: &[Habits] = &[
    Habits {
        programs: &[
            "mariadb",
            "mariadb-admin",
            "mariadb-check",
            "mariadb-dump",
            "mariadb-import",
            "mariadb-show",
            "mysql",
            "mysqlbinlog",
            "mysqlcheck",
            "mysqldump",
            "mysqlimport",
            "mysqlpump",
            "mysqlshow",
            "mysqlslap",
        ],
        glued: &["-p"],
        ..NONE
    },
    Habits {
        programs: &["mysqladmin"],
        next: &["password"],
        glued: &["-p"],
        ..NONE
    },
    Habits {
        programs: &[
            "couchbase-cli",
            "cqlsh",
            "cypher-shell",
            "mongo",
            "mongodump",
            "mongoexport",
            "mongofiles",
            "mongoimport",
            "mongorestore",
            "mongosh",
            "mongostat",
            "mongotop",
            "ncftp",
            "ncftpget",
            "ncftpput",
            "racadm",
            "rdesktop",
            "sshpass",
            "twine",
            "useradd",
            "usermod",
        ],
        next: &["-p"],
        glued: &["-p"],
        ..NONE
    },
    Habits {
        programs: &["7z", "7za", "7zr", "7zz", "rar", "unrar"],
        glued: &["-p", "-hp"],
        ..NONE
    },
    Habits {
        programs: &[
            "az", "buildah", "cf", "crane", "docker", "helm", "ibmcloud", "nerdctl", "oc", "oras", "podman", "skopeo",
        ],
        when: &["login"],
        next: &["-p"],
        glued: &["-p"],
        ..NONE
    },
    Habits {
        programs: &["keydb-cli", "redis-cli", "valkey-cli"],
        next: &["-a", "AUTH", "auth", "requirepass"],
        ..NONE
    },
    Habits {
        programs: &[
            "ldapadd",
            "ldapcompare",
            "ldapdelete",
            "ldapexop",
            "ldapmodify",
            "ldapmodrdn",
            "ldappasswd",
            "ldapsearch",
            "ldapwhoami",
        ],
        next: &["-w"],
        glued: &["-w"],
        ..NONE
    },
    Habits {
        programs: &[
            "bcp",
            "ipmitool",
            "mosquitto_pub",
            "mosquitto_rr",
            "mosquitto_sub",
            "osql",
            "sqlcmd",
            "tsql",
            "unzip",
            "zip",
        ],
        next: &["-P"],
        glued: &["-P"],
        ..NONE
    },
    Habits {
        programs: &["curl"],
        user: &[("-u", ':'), ("-U", ':'), ("-E", ':'), ("--cert", ':')],
        next: &["-b", "--pass"],
        glued: &["-b"],
        ..NONE
    },
    Habits {
        programs: &["http", "https", "xh", "xhs"],
        user: &[("-a", ':')],
        ..NONE
    },
    Habits {
        programs: &["net", "rpcclient", "smbclient", "smbget"],
        user: &[("-U", '%'), ("--user", '%')],
        ..NONE
    },
    Habits {
        programs: &["lftp"],
        user: &[("-u", ',')],
        ..NONE
    },
    Habits {
        programs: &["openssl"],
        next: &["-k", "-K", "-pass", "-passin", "-passout"],
        ..NONE
    },
    Habits {
        programs: &["plink", "pscp", "psftp"],
        next: &["-pw"],
        ..NONE
    },
    Habits {
        programs: &["snmpbulkwalk", "snmpget", "snmpset", "snmptrap", "snmpwalk"],
        next: &["-A", "-X"],
        ..NONE
    },
    Habits {
        programs: &["nmcli"],
        next: &["password"],
        ..NONE
    },
    Habits {
        programs: &["ssh-keygen"],
        next: &["-N", "-P"],
        ..NONE
    },
    Habits {
        programs: &["cargo", "wandb"],
        when: &["login"],
        next: &["login"],
        ..NONE
    },
    Habits {
        programs: &["ngrok"],
        next: &["add-authtoken", "authtoken"],
        ..NONE
    },
    Habits {
        programs: &["doctl"],
        when: &["auth"],
        next: &["-t"],
        ..NONE
    },
    Habits {
        programs: &["dotnet"],
        when: &["push"],
        next: &["-k"],
        ..NONE
    },
    Habits {
        programs: &["pulumi"],
        when: &["--secret"],
        ends_with_it: true,
        ..NONE
    },
    Habits {
        programs: &["htpasswd"],
        when: &[
            "-b", "-bc", "-cb", "-nb", "-bn", "-bB", "-Bb", "-nbB", "-nBb", "-cbB", "-bcB",
        ],
        ends_with_it: true,
        ..NONE
    },
    Habits {
        programs: &["rabbitmqctl"],
        when: &["add_user", "authenticate_user", "change_password"],
        ends_with_it: true,
        ..NONE
    },
    Habits {
        programs: &["wpa_passphrase"],
        ends_with_it: true,
        ..NONE
    },
    Habits {
        programs: &["gh"],
        when: &["secret"],
        next: &["-b", "--body"],
        glued: &["-b", "--body="],
        ..NONE
    },
    Habits {
        programs: &["vault"],
        when: &["patch", "put", "write"],
        pairs: true,
        ..NONE
    },
    Habits {
        programs: &["vault"],
        next: &["login"],
        ..NONE
    },
    Habits {
        programs: &["fly", "flyctl", "heroku", "supabase"],
        when: &["config:set", "secrets"],
        pairs: true,
        ..NONE
    },
];

/// The habits of a program by its name.
static PROGRAMS: LazyLock<HashMap<&str, Vec<&Habits>>> = LazyLock::new(|| {
    let mut programs: HashMap<&str, Vec<&Habits>> = HashMap::new();
    for habits in HABITS {
        for name in habits.programs {
            programs.entry(name).or_default().push(habits);
        }
    }
    programs
});

impl Habits {
    /// Whether the words say so; they are searched once.
    fn apply_to(&'static self, words: &[&str], asked: &mut Vec<(&'static Habits, bool)>) -> bool {
        if self.when.is_empty() {
            return true;
        }
        if let Some((_, applies)) = asked.iter().find(|(habits, _)| std::ptr::eq(*habits, self)) {
            return *applies;
        }
        let applies = words.iter().any(|word| self.when.contains(word));
        asked.push((self, applies));
        applies
    }
}

/// The secret in a word that names what it holds.
fn own(word: &str, habits: &Habits) -> Option<usize> {
    if let Some((name, value)) = word.split_once('=')
        && !value.is_empty()
        && is_name(name)
    {
        if is_secret_name(name) || habits.pairs {
            return Some(name.len() + 1);
        }
        // A pair whose name need not be a secret's.
        if name == "--from-literal" {
            return value.find('=').map(|at| name.len() + 1 + at + 1);
        }
    }
    if let Some(from) = header(word) {
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

/// A header in one word; its scheme stays.
fn header(word: &str) -> Option<usize> {
    let (name, value) = word.split_once(':')?;
    let value = value.strip_prefix(' ')?.trim_start_matches(' ');
    if value.is_empty() || !is_name(name) || !is_secret_name(name) {
        return None;
    }
    let from = word.len() - value.len();
    let scheme = value.split_once(' ').filter(|(scheme, _)| is_scheme(scheme));
    Some(scheme.map_or(from, |(scheme, _)| from + scheme.len() + 1))
}

/// What comes behind a word, of a program that sets something where one of the words before says so.
fn after(word: &str, habits: &Habits, sets: bool) -> Expected {
    if let Some((_, separator)) = habits
        .user
        .iter()
        .find(|(option, _)| behind_cluster(word, option) == Some(word.len()))
    {
        return Expected::UserAnd(*separator);
    }
    let is_option = word.starts_with('-') && word.len() > 2 && is_name(word) && is_secret_name(word);
    let is_header = || {
        word.strip_suffix(':')
            .is_some_and(|name| is_name(name) && is_secret_name(name))
    };
    // `aws configure set aws_secret_access_key X`, `git config http.password X`.
    let is_setting = || {
        let name = word.rsplit([':', '/']).next().unwrap_or_default();
        sets && is_name(name) && is_secret_name(name)
    };
    match word {
        "-u" | "--user" | "--proxy-user" => Expected::UserAnd(':'),
        "--from-literal" => Expected::Pair,
        _ if habits.next.contains(&word) || is_option || is_header() || is_setting() => Expected::Secret,
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
