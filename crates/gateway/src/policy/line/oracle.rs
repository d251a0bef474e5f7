//! Bash itself as judge of plain lines: it must start what the tree says, with the same words and the same input, no
//! more and no less. What is read here as plain runs without a shell, and is what a whitelist is held against.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::select;

use super::tree::{Action, Command, Joint, Pipeline, Tree};
use super::{Limits, Shape, read};
use crate::policy::allowlist::oracle::{BASH, cases, shell};

/// Programs of the bench, and how each ends.
const STUBS: [(&str, i32); 2] = [("ok", 0), ("no", 1)];
/// The variable by which they know where to write down that they ran.
const LOG: &str = "LOG";
/// A file that is there.
const FILE: &str = "f";

/// Pieces of lines: mostly plain ones, and some of everything that needs a shell.
#[rustfmt::skip]
const FRAGMENTS: [&str; 108] = [
    "ok", "ok", "ok ", "ok a", "no", "no ", "no b", " ", " ", " c", "a", ";", "; ", "\n", " && ", "&&", " || ", "||", " | ", "|", "\"", "'", "\\", "\\\n",
    "\\ ", "\\;", "\\\"", "\\'", "''", "\"\"", "'a b'", "\"a b\"", "'a'\"b\"c", "$'", "$'a\\'b'", "$'\\x41\\n'", "$\"a\"", "\"\\$a\"", "\"\\a\"", "\"a\\\nb\"",
    "#", " #", " # a", "a#b", "\r", "\t", "\u{a0}", "\u{2028}", "é", " > g", ">>g", " <f", "< f", " 2>&1", ">&2", "2>", " <<E\n", "<<'E'\n", "<<-E\n", "\tx\n", "\nE\n",
    "E", " <<< ", "<<<a", ":", ": a", "true", "false", "command ", "=", "-", "~",
    "*", "?", "[a", "]", "{a,b}", "{", "}", "(", ")", "!", "! ", "&", " & ", "$", "`", "time ", "coproc ", "if ", "then ", "fi", "[[ ", " ]]", "a=b ", "x[", "-- ", "\u{b}",
    "\u{c}", "\u{85}", "\u{feff}", "\u{7f}", "ok <<'E'\na\nE\n", "no <<E\n'b\nE\n", "ok a <<-E\n\tc\n\tE\n", "ok <<'E' | no\n<<E\nE\n", "# it's\n", "ok \"a\nb\" ",
];

/// Pieces of words, with everything that quotes, escapes or divides.
#[rustfmt::skip]
const WORDS: [&str; 64] = [
    "a", "b", "é", " ", " ", "  ", "\t", "\\", "\\\\", "\\\n", "\n", "'", "'", "\"", "\"", "$'", "\\'", "\\\"", "$", "$$", "\\$", "\\`", "`", "#",
    " #", "a#", "=", "x=", "a=~", "~", ":~", "{", "}", "{a,b}", "{1..2}", ",", "..", "!", "^", "%", "+", "-", "--", "&", ";", "|", "(", "<", ">", "[", "]",
    "[]", "\\x41", "\\101", "\\u00e9", "\\n", "\\e", "\\c", "\\0", "\r", "\u{a0}", "''", "\"\"", "@",
];

struct Bench {
    place: tempfile::TempDir,
}

static BENCH: LazyLock<Bench> = LazyLock::new(Bench::new);

/// One program that ran.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Ran {
    words: Vec<String>,
    /// Nothing where the line gives it something that is not followed here.
    input: Option<String>,
}

impl Bench {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let bench = Self { place };
        fs::create_dir(bench.bin()).expect("a directory for stubs");
        for (name, status) in STUBS {
            // All in one write: programs of a pipeline run side by side.
            let text = format!(
                "#!/bin/sh\ninput=$(/bin/cat 2>/dev/null; printf .)\n\
                 printf '%s\\0' '\u{1}' {name} \"$@\" \"$input\" >> \"${LOG}\"\nexit {status}\n"
            );
            let path = bench.bin().join(name);
            fs::write(&path, text).expect("a stub");
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a stub");
        }
        bench
    }

    fn bin(&self) -> PathBuf {
        self.place.path().join("bin")
    }

    fn run(&self, program: &[&str], line: &str) -> Vec<Ran> {
        let made = tempfile::tempdir_in(self.place.path()).expect("a directory to work in");
        let work = made.path();
        fs::write(work.join(FILE), "").expect("a file");
        // Beside the directory, where no line writes.
        let at = work.with_extension("log");
        let mut command = shell(program, self.place.path(), work);
        command.args(["-c", "--", line]).env("PATH", self.bin()).env(LOG, &at);
        command.status().expect("a shell runs");
        let log = fs::read_to_string(&at).unwrap_or_default();
        let _ = fs::remove_file(at);
        let ran = log.split('\u{1}').skip(1).map(|ran| {
            let mut words: Vec<String> = ran.split('\0').skip(1).map(str::to_owned).collect();
            words.pop();
            let input = words.pop().map(|input| input.trim_end_matches('.').to_owned());
            Ran { words, input }
        });
        ran.collect()
    }
}

/// What a tree starts; nothing where it does what is not followed here.
#[derive(Default)]
struct Expected {
    ran: Vec<Ran>,
}

impl Expected {
    fn of(tree: &Tree) -> Option<Vec<Ran>> {
        let mut expected = Self::default();
        for list in &tree.lists {
            let mut status = expected.pipeline(&list.first)?;
            for (joint, pipeline) in &list.rest {
                let goes_on = match joint {
                    Joint::And => status == 0,
                    Joint::Or => status != 0,
                };
                if goes_on {
                    status = expected.pipeline(pipeline)?;
                }
            }
        }
        Some(expected.ran)
    }

    fn pipeline(&mut self, pipeline: &Pipeline) -> Option<i32> {
        let mut status = None;
        // What the one before complains about may come through a pipe.
        let mut input = Some(String::new());
        for command in &pipeline.commands {
            status = Some(self.command(command, input.take())?);
        }
        status
    }

    fn command(&mut self, command: &Command, mut input: Option<String>) -> Option<i32> {
        for redirection in &command.redirections {
            let path = match &redirection.action {
                Action::Text(text) => {
                    input = (redirection.fd == 0).then(|| text.clone());
                    continue;
                }
                Action::CopyOf(1 | 2) if redirection.fd > 0 => continue,
                Action::Read(path) if path == FILE => path,
                Action::Write(path) | Action::Append(path) if path != FILE => path,
                _ => return None,
            };
            let is_simple = Path::new(path).components().count() == 1 && !path.contains('/') && path.len() < 200;
            if !is_simple || path == "." || path == ".." || redirection.fd > 2 {
                return None;
            }
            if redirection.fd == 0 {
                input = None;
            }
        }
        let words: Option<Vec<String>> = command.args.iter().map(super::tree::Word::literal).collect();
        match command.name.as_str() {
            ":" | "true" => return Some(0),
            "false" => return Some(1),
            "cd" => return None,
            _ => {}
        }
        let Some((_, status)) = STUBS.iter().find(|(name, _)| *name == command.name) else {
            // What is not found runs nothing.
            return (!command.name.contains('/') && !BUILTINS.contains(&command.name.as_str())).then_some(127);
        };
        let mut all = vec![command.name.clone()];
        all.extend(words?);
        self.ran.push(Ran { words: all, input });
        Some(*status)
    }
}

/// Programs that a shell has within itself, as far as the pieces of lines give them.
const BUILTINS: [&str; 1] = ["command"];

fn same(line: &str, mut expected: Vec<Ran>, mut ran: Vec<Ran>) -> Result<(), TestCaseError> {
    let words = |ran: &mut Vec<Ran>| {
        ran.sort();
        ran.iter().map(|ran| ran.words.clone()).collect::<Vec<_>>()
    };
    prop_assert_eq!(words(&mut expected), words(&mut ran), "{:?}", line);
    let known = expected.iter().all(|expected| expected.input.is_some());
    if known {
        prop_assert_eq!(expected, ran, "{:?}", line);
    }
    Ok(())
}

fn line() -> impl Strategy<Value = String> {
    prop::collection::vec(select(&FRAGMENTS[..]), 1..12).prop_map(|parts| parts.concat())
}

fn words() -> impl Strategy<Value = String> {
    prop::collection::vec(select(&WORDS[..]), 1..9).prop_map(|parts| format!("ok {}", parts.concat()))
}

fn plain(line: &str) -> Option<Tree> {
    match read(line, Limits::STANDARD).ok()?.shape {
        Shape::Plain(tree) => Some(tree),
        Shape::NeedsShell(_) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bash_runs_a_plain_line_as_the_tree_says(line in line()) {
        let Some(expected) = plain(&line).as_ref().and_then(Expected::of) else { return Ok(()) };
        same(&line, expected, BENCH.run(&BASH, &line))?;
    }

    #[test]
    fn a_plain_command_has_the_words_that_bash_gives_it(line in words()) {
        let Some(tree) = plain(&line) else { return Ok(()) };
        let Some(expected) = Expected::of(&tree) else { return Ok(()) };
        same(&line, expected.clone(), BENCH.run(&BASH, &line))?;
        // So does any shell, where an agent hands such a line to it.
        let is_alone = tree.commands().count() == 1 && tree.commands().all(|command| command.redirections.is_empty());
        if is_alone && !line.contains('$') {
            same(&line, expected, BENCH.run(&["/bin/sh"], &line))?;
        }
    }
}
