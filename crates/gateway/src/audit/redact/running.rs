//! What programs make of the words they are given and of what they read: most take both for data, some run them.
//! Where nothing runs a text, secrets in it are hidden whole, blanks and all; where something may, no more than a word.

use super::name::runs_its_value;
use crate::policy::interpreters::is_interpreter;

/// What becomes of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// A program is known to run none of its words.
    Data,
    /// Nobody runs it here, though it may be written as a command: a message, a document, a file to be.
    Text,
    /// A shell may run it.
    Script,
    /// Something may run it that has quotes, and ways to start a program, of its own.
    Code,
}

/// Programs that run none of their arguments, whatever the option before them is called.
const TAKE_DATA: &[&str] = &[
    "curl", "echo", "egrep", "fgrep", "grep", "grpcurl", "http", "https", "jq", "printf", "rg", "wget", "xh",
];

/// Of these, such as say their arguments, which somebody else may run.
const SAY_IT: &[&str] = &["echo", "jq", "printf"];

/// Shells, and programs that hand a text to one.
const RUN_SCRIPTS: &[&str] = &[
    "ash",
    "at",
    "bash",
    "batch",
    "concurrently",
    "crontab",
    "csh",
    "dash",
    "entr",
    "fish",
    "flock",
    "hyperfine",
    "ksh",
    "mksh",
    "mosh",
    "nodemon",
    "parallel",
    "pdsh",
    "pssh",
    "rbash",
    "rsh",
    "runuser",
    "screen",
    "script",
    "sh",
    "ssh",
    "su",
    "systemd-run",
    "tcsh",
    "tmux",
    "watch",
    "watchexec",
    "xargs",
    "xterm",
    "yash",
    "zsh",
];

/// Programs with a language of their own in which others are started, besides interpreters.
const RUN_CODE: &[&str] = &["ansible", "gmake", "lftp", "make", "salt", "sed", "socat"];

/// Interpreters whose program is the first word that is no option.
const TAKE_PROGRAMS: &[&str] = &["awk", "gawk", "mawk", "nawk", "sed"];

/// Builtins of the shell that run what they are given. To all others these are words like any.
const BUILTINS: &[&str] = &[".", "alias", "bind", "complete", "eval", "mapfile", "source", "trap"];

/// Programs in whose language only what is written like this starts another.
const CLIENTS: &[&str] = &["mariadb", "mysql", "psql", "sqlite3"];
const ESCAPES: &[&str] = &["\\!", "system", ".shell"];

/// Programs that start what stands behind them.
const LAUNCHERS: &[&str] = &[
    "builtin", "chroot", "command", "doas", "env", "exec", "ionice", "nice", "nohup", "nsenter", "setsid", "stdbuf",
    "sudo", "time", "timeout", "unshare",
];

/// Short options behind which a script stands, for most who have them.
const RUN_OPTIONS: &[&str] = &["-c", "-C", "-e", "-E", "-ex", "-x"];

/// With these programs they mean something else: a container, a variable.
pub(super) const CONTAINERS: &[&str] = &[
    "ansible-playbook",
    "docker",
    "docker-compose",
    "helm",
    "kubectl",
    "nerdctl",
    "oc",
    "podman",
];

/// Words of `git` behind which a script stands.
const GIT_RUNS: &[&str] = &["bisect", "filter-branch", "foreach", "rebase"];

/// A command as it runs.
pub(super) struct Running<'w> {
    words: &'w [&'w str],
    program: &'w str,
    /// Where that stands.
    program_at: usize,
    /// Where the first of its words stands that runs others.
    runner: Option<usize>,
    /// Where the first of its words stands that a launcher may start.
    started: Option<usize>,
    /// Where `env` stands.
    env_at: Option<usize>,
    /// Where `git` is told to run what follows.
    git_runs_at: Option<usize>,
    /// What it makes of all its words, and of what it reads.
    pub(super) all: Use,
}

impl<'w> Running<'w> {
    pub(super) fn new(words: &'w [&'w str]) -> Self {
        let program_at = words.iter().position(|word| !word.contains('='));
        let program_at = program_at.unwrap_or(words.len());
        let program = words.get(program_at).copied().unwrap_or_default();
        let may_be_git = || words.iter().any(|word| base(word) == "git");
        let git_runs_at = words.iter().position(|word| GIT_RUNS.contains(word));
        let git_runs_at = git_runs_at.filter(|_| may_be_git());
        // Any of them may be the program that those before it start.
        let all = words.iter().map(|word| of_started(word)).max().unwrap_or(Use::Text);
        let all = match all {
            _ if git_runs_at.is_some() => Use::Code,
            Use::Data | Use::Text if BUILTINS.contains(&program) => Use::Script,
            all => all,
        };
        let runner = words.iter().position(|word| of_started(word) != Use::Text);
        Self {
            words,
            program,
            program_at,
            runner,
            started: words.iter().position(|word| is_plain(word)),
            env_at: words.iter().position(|word| base(word) == "env"),
            git_runs_at,
            all,
        }
    }

    /// What one of its words is used for.
    pub(super) fn of_word(&self, at: usize) -> Use {
        if self.takes_data() {
            return Use::Data;
        }
        let by_option = || !self.is_client() && self.is_run_by_option(at);
        match self.all {
            Use::Data | Use::Text if self.escapes(self.words[at]) || by_option() => Use::Code,
            all => all,
        }
    }

    pub(super) fn runs(&self) -> bool {
        !matches!(self.all, Use::Data | Use::Text)
    }

    /// Whether it may run a text that it reads, or a part of it.
    pub(super) fn may_run(&self, text: &str) -> bool {
        self.runs() || self.escapes(text)
    }

    /// Whether it runs what another command says to it. An interpreter that was given its code reads data.
    pub(super) fn runs_its_input(&self) -> bool {
        let mut words = self.words.iter();
        match words.find_map(|word| Some(of_program(word)).filter(|used| *used != Use::Text)) {
            Some(Use::Code) => words.all(|word| word.starts_with('-') || word.is_empty()),
            Some(Use::Script) => true,
            Some(Use::Data | Use::Text) | None => false,
        }
    }

    /// Whether it, by itself or through what it starts, runs its arguments put together or one of them.
    pub(super) fn runs_words(&self) -> bool {
        let is_builtin = BUILTINS.contains(&self.program);
        let starts_it = self.launches() && self.runs();
        is_builtin || starts_it || of_program(self.program) != Use::Text
    }

    /// Whether a word may be run from the byte on where it is a secret by its name, whatever the name says: it stands
    /// behind something that runs texts, or where a text is expected. What only follows the option of a shell's script
    /// is given to that.
    pub(super) fn may_run_named(&self, at: usize, from: usize) -> bool {
        if self.takes_data() || at < self.program_at {
            return false;
        }
        let runs_it = |by: usize| {
            let hands_on = from > 0 || !is_interpreter(self.words[by]) || is_script_option(self.before(at));
            by < at && hands_on
        };
        // `-c` of `git`, and `-e` of many.
        let is_setting = || base(self.program) == "git" || from > 0 && self.before(at).eq_ignore_ascii_case("-e");
        self.runs_words()
            || self.runner.is_some_and(runs_it)
            || self.git_runs_at.is_some_and(|by| by < at)
            || !self.is_client() && (self.is_run_by_name(at) || !is_setting() && self.is_run_by_letter(at))
    }

    /// Whether a word sets a variable of what is started.
    pub(super) fn sets_variable(&self, at: usize) -> bool {
        let is_before_program = || self.started.is_none_or(|started| at < started);
        at <= self.program_at || self.launches() && is_before_program()
    }

    pub(super) fn program_is(&self, one_of: &[&str]) -> bool {
        one_of.contains(&base(self.program))
    }

    pub(super) fn word(&self, at: usize) -> &'w str {
        self.words[at]
    }

    /// The word before another, if there is one.
    pub(super) fn before(&self, at: usize) -> &'w str {
        at.checked_sub(1).map_or("", |before| self.words[before])
    }

    /// Whether what stands behind it is what it starts.
    pub(super) fn launches(&self) -> bool {
        LAUNCHERS.contains(&base(self.program))
    }

    /// Words that are run as they are, rather than given to what runs. `bash deploy.sh "$TOKEN"` hands a secret on, and so
    /// do options that are named after one.
    pub(super) fn executed(&self, is_named: impl Fn(usize) -> bool) -> Vec<usize> {
        if BUILTINS.contains(&self.program) {
            return (0..self.words.len()).collect();
        }
        let script_at = self.behind_runner(is_script_option);
        let plain_at = self.behind_runner(|word| !word.starts_with('-'));
        let is_run = |at: usize| match self.runner {
            Some(by) if at <= by => false,
            Some(by) if !is_interpreter(self.words[by]) => of_program(self.words[by]) == Use::Script,
            Some(by) if of_program(self.words[by]) == Use::Script => {
                script_at.is_some_and(|script| script < at) || plain_at == Some(at)
            }
            Some(by) => at == by + 1 || self.words[at - 1].starts_with('-'),
            None => self.launches() && self.started == Some(at) || self.of_word(at) == Use::Code,
        };
        let takes_data = self.takes_data();
        let executed =
            (0..self.words.len()).filter(|&at| at == self.program_at || !takes_data && !is_named(at) && is_run(at));
        executed.collect()
    }

    /// The file that an interpreter runs.
    pub(super) fn file(&self) -> Option<usize> {
        let is_started = |by: usize| std::ptr::eq(self.words[by], self.program) || self.launches();
        let by = self
            .runner
            .filter(|&by| is_interpreter(self.words[by]) && is_started(by))?;
        let at = self.behind_runner(|word| !word.starts_with('-'))?;
        let is_shell = of_program(self.words[by]) == Use::Script;
        let gives_code = |word: &&str| is_script_option(word) || !is_shell && word.ends_with(['e', 'E', 'x']);
        (!self.words[by + 1..at].iter().any(gives_code)).then_some(at)
    }

    /// Whether a word is itself the script, rather than given to one: `bash -c X`, `eval X`, `ssh host X`.
    pub(super) fn is_script(&self, at: usize, is_named: bool) -> bool {
        let before = self.before(at);
        let is_behind_option = is_script_option(before) || RUN_OPTIONS.contains(&before);
        let hands_on = |by: usize| by < at && !is_interpreter(self.words[by]);
        is_behind_option || BUILTINS.contains(&self.program) || !is_named && self.runner.is_some_and(hands_on)
    }

    /// Whether a word is the text of a program that an interpreter runs, and not what such a program is given. What is
    /// named after a secret is that only where the text is expected.
    pub(super) fn is_program(&self, at: usize, is_named: bool) -> bool {
        if self.all != Use::Code || self.of_word(at) != Use::Code {
            return false;
        }
        let before = self.before(at);
        let is_first = || {
            let by = self.runner.filter(|&by| TAKE_PROGRAMS.contains(&base(self.words[by])));
            by.is_some() && self.behind_runner(|word| !word.starts_with('-')) == Some(at)
        };
        !is_named || gives_program(before) || is_first()
    }

    /// Whether it says its words, or sends them to somebody.
    pub(super) fn takes_data(&self) -> bool {
        TAKE_DATA.contains(&base(self.program))
    }

    fn behind_runner(&self, is: impl Fn(&str) -> bool) -> Option<usize> {
        let from = self.runner? + 1;
        let at = self.words[from..].iter().position(|word| is(word))?;
        Some(from + at)
    }

    /// Whether what it does may be written elsewhere, in a shell's words.
    pub(super) fn may_have_aliases(&self) -> bool {
        self.words.iter().any(|word| base(word) == "git")
    }

    /// Whether its words are said to whoever reads them.
    pub(super) fn says_it(&self) -> bool {
        SAY_IT.contains(&base(self.program))
    }

    pub(super) fn program(&self) -> &'w str {
        self.program
    }

    /// Whether its language can start others by a sign.
    pub(super) fn is_client(&self) -> bool {
        CLIENTS.contains(&base(self.program))
    }

    fn escapes(&self, text: &str) -> bool {
        self.is_client() && escapes(text)
    }

    /// Whether the word, or the one before it, is named after what runs: `-c`, `--exec`, `core.pager=…`.
    fn is_run_by_option(&self, at: usize) -> bool {
        self.is_run_by_letter(at) || self.is_run_by_name(at)
    }

    fn is_run_by_letter(&self, at: usize) -> bool {
        let is_pager = || self.before(at) == "-P" && self.program_is(&["man"]);
        let is_script = || RUN_OPTIONS.contains(&self.before(at)) && !self.program_is(CONTAINERS);
        is_script() || is_pager() || self.is_split(at)
    }

    fn is_run_by_name(&self, at: usize) -> bool {
        let (before, word) = (self.before(at), self.words[at]);
        let own_name = word.split_once('=').map(|(name, _)| name);
        let is_alias = word.starts_with('!') || word.contains("=!");
        is_alias || before.starts_with('-') && runs_its_value(before) || own_name.is_some_and(runs_its_value)
    }

    /// Whether `env` takes a word apart and starts what is in it: `env -S 'A=b sh -c …'`.
    fn is_split(&self, at: usize) -> bool {
        let is_short = |word: &str| word.starts_with('-') && !word.starts_with("--") && word.contains('S');
        let (before, word) = (self.before(at), self.words[at]);
        let is_told = before == "--split-string" || is_short(before) && before.ends_with('S');
        let tells = word.starts_with("--split-string=") || is_short(word);
        (is_told || tells) && self.env_at.is_some_and(|env| env < at)
    }
}

/// Whether a text for one of [`CLIENTS`] starts another program.
pub(super) fn escapes(text: &str) -> bool {
    ESCAPES.iter().any(|escape| text.contains(escape))
}

/// An option behind which the text of a program stands, also among other letters.
fn gives_program(option: &str) -> bool {
    const LONG: &[&str] = &[
        "--command",
        "--eval",
        "--execute",
        "--expression",
        "--print",
        "--run",
        "--source",
    ];
    let is_cluster = || !option.starts_with("--") && option.ends_with(['c', 'e', 'E', 'p', 'r', 'x']);
    option.starts_with('-') && (LONG.contains(&option) || is_cluster())
}

/// `-c`, also among other letters.
fn is_script_option(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
}

/// Neither an option, nor a variable, nor a time, nor a program that starts others.
fn is_plain(word: &str) -> bool {
    let is_time = word.starts_with(|c: char| c.is_ascii_digit());
    !is_time && !word.starts_with('-') && !word.contains('=') && !LAUNCHERS.contains(&base(word))
}

fn of_program(program: &str) -> Use {
    let name = base(program);
    if RUN_SCRIPTS.contains(&name) {
        Use::Script
    } else if RUN_CODE.contains(&name) || is_interpreter(program) {
        Use::Code
    } else {
        Use::Text
    }
}

/// The same, also of what is named as a program to start: `ProxyCommand=sh`.
fn of_started(word: &str) -> Use {
    match word.split_once('=') {
        Some((name, program)) if runs_its_value(name) => of_program(program).max(of_program(word)),
        Some(_) | None => of_program(word),
    }
}

pub(super) fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_scripts_only_for_those_who_run_them() {
        let check = |line: &str, expected: Use| {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(Running::new(&words).of_word(words.len() - 1), expected, "{line}");
        };
        for line in [
            "touch x",
            "kubectl patch secret x -p x",
            "git commit -m x",
            "docker run -e x",
            "psql -c x",
        ] {
            check(line, Use::Text);
        }
        for line in ["curl -d x", "/usr/bin/printf x", "A=b echo x"] {
            check(line, Use::Data);
        }
        for line in [
            "sh -c x",
            "/bin/bash -lc x",
            "sudo env A=b sh -c x",
            "ssh host x",
            "docker exec db sh -c x",
        ] {
            check(line, Use::Script);
        }
        for line in [
            "python3 -c x",
            "make x",
            "git -c x",
            "git rebase x",
            "tar --to-command x",
            "PAGER=x",
            "git -c alias.a=!x",
            "psql -c \\!x",
            "rsync --rsh=x",
        ] {
            check(line, Use::Code);
        }
    }

    #[test]
    fn an_interpreter_that_has_its_code_reads_data() {
        for line in [
            "sh",
            "bash -s",
            "sh -c cat",
            "sudo sh",
            "python3",
            "python3 -",
            "xargs sh -c",
            "ssh host",
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(Running::new(&words).runs_its_input(), "{line}");
        }
        for line in ["python3 -m json.tool", "node x.js", "perl -ne x", "cat", "tee x"] {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(!Running::new(&words).runs_its_input(), "{line}");
        }
    }
}
