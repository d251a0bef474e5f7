//! Options that write files or run programs, for programs that are otherwise harmless.
//!
//! Long options may be abbreviated in most of these programs, so any beginning of a listed name
//! counts. A word that only looks like such an option, being the value of another, counts as well:
//! then a person is asked, which is the safe side.

use std::path::Path;

use super::Words;
use super::globs::Glob;

/// What is not covered for one program.
#[derive(Debug)]
pub struct Caution {
    pub program: &'static str,
    /// Letters after a single dash, also in a cluster.
    pub letters: &'static str,
    /// Long options without their dashes.
    pub long: &'static [&'static str],
    /// Whole words, wherever they stand.
    pub words: &'static [&'static str],
    /// Text that must not stand inside any word.
    pub inside: &'static [&'static str],
    /// How many words may be no options; the next one would be written to.
    pub operands_max: Option<usize>,
    /// Whether the first word is letters also without a dash: `tar xf`.
    pub dashless: bool,
    /// What says whether the first word that is no option is harmless.
    pub first_operand: Option<fn(&str) -> bool>,
}

const NONE: Caution = Caution {
    program: "",
    letters: "",
    long: &[],
    words: &[],
    inside: &[],
    operands_max: None,
    dashless: false,
    first_operand: None,
};

/// Options of git before the subcommand that change nothing that matters here.
const GIT_GLOBAL: [&str; 3] = ["--no-pager", "-P", "--no-optional-locks"];
/// Letters that are short for an option to be careful with in one subcommand of git, and harmless in others.
const GIT_LETTERS: [(&str, &str); 4] = [
    ("archive", "o"),
    ("clone", "cu"),
    ("format-patch", "o"),
    ("rebase", "x"),
];

#[rustfmt::skip]
pub const CAUTIONS: [Caution; 20] = [
    Caution {
        program: "git",
        letters: "O",
        long: &[
            "output", "output-directory", "ext-diff", "textconv", "paginate", "pager", "exec-path",
            "exec", "config", "config-env", "git-dir", "work-tree", "namespace", "upload-pack",
            "receive-pack", "open-files-in-pager", "ext-grep", "filters", "show-signature",
            "recurse-submodules", "run", "extcmd", "tool", "template", "edit", "mailmap-file",
            "contents", "attr-source", "remerge-diff", "diff-merges",
        ],
        words: &[
            "bisect", "difftool", "mergetool", "filter-branch", "submodule", "send-email",
            "instaweb", "web--browse", "gui", "citool", "hook", "maintenance", "daemon", "shell",
        ],
        // Signatures are checked by a program that the configuration names. A sign may stand in front of either.
        inside: &["%G", "%+G", "%-G", "% G", "%(signature", "%(*signature", "ext::"],
        ..NONE
    },
    Caution {
        program: "find",
        words: &[
            "-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls",
        ],
        ..NONE
    },
    Caution { program: "fd", letters: "xX", long: &["exec", "exec-batch"], ..NONE },
    Caution {
        program: "rg",
        letters: "z",
        long: &["pre", "hostname-bin", "search-zip"],
        ..NONE
    },
    Caution {
        program: "sort",
        letters: "oTS",
        long: &["output", "compress-program", "temporary-directory", "buffer-size"],
        ..NONE
    },
    Caution { program: "uniq", operands_max: Some(1), ..NONE },
    Caution { program: "tree", letters: "oR", long: &["output"], ..NONE },
    Caution { program: "diff", letters: "l", long: &["paginate"], ..NONE },
    Caution { program: "date", letters: "s", long: &["set"], ..NONE },
    Caution {
        program: "file",
        letters: "CmzZS",
        long: &["compile", "magic-file", "uncompress", "uncompress-noreport", "no-sandbox"],
        ..NONE
    },
    Caution {
        program: "sed",
        letters: "insfEel",
        long: &["in-place", "file", "expression", "quiet", "silent", "separate", "line-length"],
        first_operand: Some(only_prints),
        ..NONE
    },
    Caution {
        program: "tar",
        letters: "IFxcruAg",
        long: &[
            "to-command", "checkpoint-action", "use-compress-program", "info-script",
            "new-volume-script", "rsh-command", "rmt-command", "extract", "get", "create", "append",
            "update", "delete", "catenate", "concatenate", "index-file", "volno-file",
            "listed-incremental",
        ],
        dashless: true,
        ..NONE
    },
    Caution {
        program: "rsync",
        letters: "e",
        long: &["rsh", "rsync-path", "log-file", "write-batch", "only-write-batch"],
        ..NONE
    },
    Caution {
        program: "curl",
        letters: "oOKTDc",
        long: &[
            "output", "remote-name", "remote-name-all", "config", "upload-file", "dump-header",
            "cookie-jar", "output-dir", "trace", "trace-ascii", "stderr", "etag-save", "hsts", "alt-svc",
            "libcurl", "ssl-sessions", "engine",
        ],
        // `--expand-output` is `--output`, with variables in its value.
        inside: &["%output{", "--expand-"],
        ..NONE
    },
    Caution {
        program: "wget",
        letters: "OoaPie",
        long: &[
            "output-document", "output-file", "append-output", "directory-prefix", "use-askpass", "execute", "config",
            "save-cookies", "hsts-file", "rejected-log", "warc-file", "warc-cdx", "warc-tempdir",
        ],
        ..NONE
    },
    Caution { program: "man", letters: "PpHC", long: &["pager", "preprocessor", "html", "config-file"], ..NONE },
    Caution { program: "less", letters: "oO", long: &["log-file"], inside: &["!", "|"], ..NONE },
    Caution {
        program: "cargo",
        long: &["config", "manifest-path", "target-dir"],
        letters: "Z",
        ..NONE
    },
    Caution { program: "make", letters: "fCEI", long: &["file", "makefile", "directory", "eval", "include-dir"], inside: &["="], ..NONE },
    Caution { program: "xxd", operands_max: Some(1), letters: "r", ..NONE },
];

/// Whether nothing in the command is an option to be careful with.
pub(super) fn allow(words: &Words) -> bool {
    let name = base_name(&words.name);
    let Some(caution) = of(name) else {
        return true;
    };
    let mut more_letters = "";
    if name == "git" {
        let Some((subcommand, rest)) = git_subcommand(&words.args) else {
            return false;
        };
        if !words.globs.iter().all(|glob| is_git_operand(words, rest.len(), glob)) {
            return false;
        }
        if !git_allows_together(subcommand, rest) {
            return false;
        }
        let of_it = GIT_LETTERS.iter().find(|(name, _)| *name == subcommand);
        more_letters = of_it.map_or("", |(_, letters)| letters);
    }
    // Behind `--` everything is an operand, a dash or not.
    let options_end = words.args.iter().position(|arg| arg == "--");
    let operands = words
        .args
        .iter()
        .enumerate()
        .filter(|(index, arg)| options_end.is_some_and(|end| *index > end) || !arg.starts_with('-') || *arg == "-");
    let is_operand_harmless = caution.first_operand.is_none_or(|is_harmless| {
        let first = operands.clone().next();
        words.globs.is_empty() && first.is_none_or(|(_, word)| is_harmless(word))
    });
    let in_bounds = caution
        .operands_max
        .is_none_or(|max| words.globs.is_empty() && operands.count() <= max);
    let first = words
        .args
        .first()
        .filter(|word| caution.dashless && !word.starts_with('-'));
    let is_first_harmless = first.is_none_or(|letters| !letters.contains(|c| caution.letters.contains(c)));
    in_bounds
        && words.globs.iter().all(|glob| caution.allows_glob(glob))
        && is_first_harmless
        && is_operand_harmless
        && words.args.iter().all(|arg| caution.allows(arg, more_letters))
}

/// Whether a word may stand among the arguments of a program, whatever else does.
pub(super) fn allow_word(program: &str, word: &str) -> bool {
    of(base_name(program)).is_none_or(|caution| caution.allows(word, ""))
}

fn of(name: &str) -> Option<&'static Caution> {
    CAUTIONS.iter().find(|caution| caution.program == name)
}

fn base_name(program: &str) -> &str {
    let name = Path::new(program).file_name().and_then(|name| name.to_str());
    name.unwrap_or(program)
}

/// Whether a script of `sed` is one command that certainly only prints: lines by their number, or what a plain `s` makes
/// of them. Others may write files (`w`) or run programs (`e`), in places that only `sed` knows to find.
pub(super) fn only_prints(script: &str) -> bool {
    let command = script.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ',' | '$'));
    let Some(substitution) = command.strip_prefix('s') else {
        return matches!(command, "p" | "d" | "q" | "=");
    };
    let mut rest = substitution.chars();
    let Some(mark) = rest.next().filter(|c| c.is_ascii_punctuation() && *c != '\\') else {
        return false;
    };
    let mut marks = 0;
    while marks < 2 {
        match rest.next() {
            Some('\\') => drop(rest.next()),
            Some(c) if c == mark => marks += 1,
            Some(c) if c != '\n' => {}
            Some(_) | None => return false,
        }
    }
    rest.all(|flag| flag.is_ascii_digit() || matches!(flag, 'g' | 'i' | 'I' | 'p'))
}

/// The subcommand of git and what follows it, if only harmless options stand before.
pub(super) fn git_subcommand(args: &[String]) -> Option<(&str, &[String])> {
    let index = args.iter().position(|arg| !GIT_GLOBAL.contains(&arg.as_str()))?;
    let subcommand = args.get(index)?;
    (!subcommand.starts_with('-')).then(|| (subcommand.as_str(), &args[index + 1..]))
}

/// Whether the words of a subcommand of git are harmless beside each other. To sort by a signature is to check it, and `-m`
/// shows a merge in the way that the configuration names, which may be to merge once more with drivers of its own.
fn git_allows_together(subcommand: &str, args: &[String]) -> bool {
    let sorts = args.iter().any(|arg| arg.starts_with("--so"));
    let checks = sorts && args.iter().any(|arg| arg.contains("signature"));
    let merges = matches!(subcommand, "log" | "show" | "whatchanged") && args.iter().any(|arg| arg == "-m");
    !checks && !merges
}

/// Whether the names of files that stand for a word are certainly operands of the subcommand: the value of an option
/// may be a format, and what looks like the address of a helper starts it.
fn is_git_operand(words: &Words, behind_subcommand: usize, glob: &Glob) -> bool {
    let subcommand = words.args.len() - behind_subcommand - 1;
    let Some(before) = glob.index.checked_sub(1).map(|index| &words.args[index]) else {
        return false;
    };
    let is_ended = words.args[..glob.index].iter().any(|arg| arg == "--");
    glob.index > subcommand && (is_ended || !before.starts_with('-')) && !glob.may_begin_with("ext::")
}

impl Caution {
    /// Whether no name of a file that stands for a word is one to be careful with. Of those of git more is known.
    fn allows_glob(&self, glob: &Glob) -> bool {
        let is_searched = !self.inside.is_empty() && self.program != "git";
        let is_letters = self.dashless && glob.index == 0;
        !is_searched && !is_letters && !self.words.iter().any(|word| glob.may_become(word))
    }

    fn allows(&self, arg: &str, more_letters: &str) -> bool {
        if self.words.contains(&arg) || self.inside.iter().any(|text| arg.contains(text)) {
            return false;
        }
        if let Some(long) = arg.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or_default();
            return name.is_empty() || !self.long.iter().any(|listed| listed.starts_with(name));
        }
        match arg.strip_prefix('-') {
            Some(letters) => !letters.contains(|c| self.letters.contains(c) || more_letters.contains(c)),
            None => true,
        }
    }
}
