//! Programs that only read, as data. The options to be careful with stand in [`super::cautions`].

use std::path::Path;

use super::cautions::{CAUTIONS, git_subcommand, only_prints};
use super::{Matcher, Source, WhitelistRule, Words};

/// A program that only reads when used in one of these ways.
#[derive(Debug)]
pub struct ReadOnly {
    pub program: &'static str,
    pub usage: Usage,
}

#[derive(Debug)]
pub enum Usage {
    /// Any arguments but those to be careful with.
    Any,
    /// No argument that is no option: with one, the program changes something.
    OptionsOnly,
    /// Git with one of these subcommands.
    Subcommands(&'static [Subcommand]),
    /// All arguments are of one closed form, so that there is no option to be careful with.
    Closed(&'static Form),
}

/// Arguments of which every one is known.
#[derive(Debug)]
pub struct Form {
    /// How it is written, for explanations.
    written: &'static str,
    is_met: fn(&[String]) -> bool,
}

/// A directory to go on in.
const DIRECTORY: Form = Form {
    written: "DIRECTORY",
    is_met: |args| matches!(args, [directory] if !directory.starts_with('-')),
};

/// What many ask first of a program, which then reads nothing at all.
const VERSION: Form = Form {
    written: "--version",
    is_met: |args| args == ["--version"],
};

/// Lines by their numbers or by what stands in them, from files.
const PRINTED_LINES: Form = Form {
    written: "[-n] SCRIPT [FILE]…, where the script only prints",
    is_met: |args| {
        let (script, files) = match args {
            [quiet, script, files @ ..] if quiet == "-n" => (script, files),
            [script, files @ ..] => (script, files),
            [] => return false,
        };
        (only_prints(script) || script.split(';').all(prints_lines)) && !files.iter().any(|file| file.starts_with('-'))
    },
};

#[derive(Debug)]
pub struct Subcommand {
    pub name: &'static str,
    /// The arguments it may have; nothing for any.
    pub args: Option<&'static [&'static str]>,
}

const fn any(name: &'static str) -> Subcommand {
    Subcommand { name, args: None }
}

const fn only(name: &'static str, args: &'static [&'static str]) -> Subcommand {
    Subcommand { name, args: Some(args) }
}

const fn reads(program: &'static str) -> ReadOnly {
    ReadOnly {
        program,
        usage: Usage::Any,
    }
}

const fn closed(program: &'static str, form: &'static Form) -> ReadOnly {
    ReadOnly {
        program,
        usage: Usage::Closed(form),
    }
}

const GIT: [Subcommand; 24] = [
    any("status"),
    any("diff"),
    any("log"),
    any("show"),
    any("rev-parse"),
    any("rev-list"),
    any("ls-files"),
    any("ls-tree"),
    any("cat-file"),
    any("blame"),
    any("shortlog"),
    any("describe"),
    any("show-ref"),
    any("for-each-ref"),
    any("merge-base"),
    any("name-rev"),
    any("grep"),
    any("diff-tree"),
    any("count-objects"),
    only(
        "branch",
        &[
            "--list",
            "-l",
            "-a",
            "--all",
            "-r",
            "--remotes",
            "-v",
            "-vv",
            "--show-current",
        ],
    ),
    only("tag", &["--list", "-l"]),
    only("remote", &["-v", "--verbose"]),
    only("stash", &["list"]),
    only("worktree", &["list", "--porcelain"]),
];

pub const READ_ONLY: [ReadOnly; 58] = [
    ReadOnly {
        program: "git",
        usage: Usage::Subcommands(&GIT),
    },
    reads("ls"),
    reads("cat"),
    reads("head"),
    reads("tail"),
    reads("wc"),
    reads("grep"),
    reads("egrep"),
    reads("fgrep"),
    reads("rg"),
    reads("find"),
    reads("echo"),
    reads("printf"),
    reads("pwd"),
    reads("which"),
    reads("true"),
    reads("false"),
    reads("test"),
    reads("["),
    reads("stat"),
    reads("file"),
    reads("du"),
    reads("df"),
    reads("basename"),
    reads("dirname"),
    reads("realpath"),
    reads("readlink"),
    reads("uname"),
    reads("whoami"),
    reads("id"),
    reads("nproc"),
    reads("sort"),
    reads("uniq"),
    reads("cut"),
    reads("tr"),
    reads("comm"),
    reads("diff"),
    reads("cmp"),
    reads("nl"),
    reads("tac"),
    reads("seq"),
    reads("od"),
    reads("md5sum"),
    reads("sha1sum"),
    reads("sha256sum"),
    reads("tree"),
    reads("jq"),
    ReadOnly {
        program: "date",
        usage: Usage::OptionsOnly,
    },
    closed("cd", &DIRECTORY),
    closed("sed", &PRINTED_LINES),
    closed("node", &VERSION),
    closed("python3", &VERSION),
    closed("python", &VERSION),
    closed("gcc", &VERSION),
    closed("g++", &VERSION),
    closed("clang", &VERSION),
    closed("make", &VERSION),
    closed("cmake", &VERSION),
];

/// The whitelist without any configuration.
pub fn builtin_rules() -> Vec<WhitelistRule> {
    READ_ONLY
        .iter()
        .map(|program| WhitelistRule {
            matcher: Matcher::ReadOnly(program),
            reason: "only reads".to_owned(),
            enabled: true,
            source: Source::BuiltIn,
            origin: Source::BuiltIn.as_str().to_owned(),
        })
        .collect()
}

/// What a known program starts to do its work: these two are scripts around `grep`.
pub fn started_by(program: &Path) -> &'static [&'static str] {
    match program.file_name().and_then(|name| name.to_str()) {
        Some("egrep" | "fgrep") => &["grep"],
        _ => &[],
    }
}

impl ReadOnly {
    /// Git starts filters, converters and helpers that its configuration names.
    pub(super) fn starts_nothing(&self) -> bool {
        match self.usage {
            Usage::Any | Usage::OptionsOnly | Usage::Closed(_) => true,
            Usage::Subcommands(_) => false,
        }
    }

    /// Whether what comes behind it works somewhere else.
    pub(super) fn moves(&self) -> bool {
        self.program == "cd"
    }

    /// Whether its own form leaves nothing to be careful with.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.usage, Usage::Closed(_))
    }

    pub(super) fn covers(&self, words: &Words) -> bool {
        if words.name != self.program {
            return false;
        }
        match &self.usage {
            Usage::Any => true,
            Usage::Closed(form) => words.globs.is_empty() && (form.is_met)(&words.args),
            Usage::OptionsOnly => words
                .args
                .iter()
                .all(|arg| arg.starts_with('-') || arg.starts_with('+')),
            Usage::Subcommands(known) => {
                let Some((name, args)) = git_subcommand(&words.args) else {
                    return false;
                };
                known.iter().any(|subcommand| {
                    subcommand.name == name
                        && subcommand
                            .args
                            .is_none_or(|allowed| args.iter().all(|arg| allowed.contains(&arg.as_str())))
                        && (name != "stash" && name != "worktree" || args.first().is_some_and(|a| a == "list"))
                })
            }
        }
    }

    /// The rule in words: program, subcommands, and the options it leaves out.
    pub(super) fn explained(&self) -> String {
        let mut text = self.program.to_owned();
        match &self.usage {
            Usage::Any => {}
            Usage::Closed(form) => return format!("{text} {}", form.written),
            Usage::OptionsOnly => text.push_str(" with options only"),
            Usage::Subcommands(known) => {
                let names: Vec<&str> = known.iter().map(|subcommand| subcommand.name).collect();
                text.push_str(&format!(" ({})", names.join(", ")));
            }
        }
        if let Some(caution) = CAUTIONS.iter().find(|c| c.program == self.program) {
            let mut left_out: Vec<String> = caution.letters.chars().map(|c| format!("-{c}")).collect();
            left_out.extend(caution.long.iter().map(|long| format!("--{long}")));
            left_out.extend(caution.words.iter().map(|word| (*word).to_owned()));
            if !left_out.is_empty() {
                text.push_str(&format!(" without {}", left_out.join(" ")));
            }
        }
        text
    }
}

/// Whether a command of `sed` only prints the lines that are numbered or marked by a plain text: `5p`, `1,20p`, `/fn/,/^}/p`.
fn prints_lines(command: &str) -> bool {
    let Some(addresses) = command.strip_suffix('p') else {
        return false;
    };
    let from = address_end(addresses);
    let to = match from.and_then(|end| addresses[end..].strip_prefix(',')) {
        Some(second) => address_end(second).is_some_and(|end| end == second.len()),
        None => from == Some(addresses.len()),
    };
    addresses.is_empty() || to
}

/// Where the address ends that a text begins with. A backslash could hide the end of one.
fn address_end(text: &str) -> Option<usize> {
    if let Some(marked) = text.strip_prefix('/') {
        let end = marked.find(['/', '\\', '\n'])?;
        return marked[end..].starts_with('/').then_some(end + 2);
    }
    if text.starts_with('$') {
        return Some(1);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then_some(digits)
}
