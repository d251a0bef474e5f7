//! Bash itself as judge: what the checker accepts is run by a real bash whose path holds nothing but
//! stubs that write down their names. No stub that is not listed may ever appear, whatever the line
//! looks like. `PROPTEST_CASES` asks for more lines than the few thousand of an ordinary run.

mod continued;
mod documents;
mod made;
mod nested;
mod restated;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::select;

use super::{Allowlist, FoundProgram, Programs, check_given, check_line};
use crate::policy::line::{Limits, Shape, read, restate};

const LISTED: [&str; 9] = [
    "ls", "git", "env", "xargs", "find", "timeout", "declare", "mapfile", "getopts",
];
const STUBS: [&str; 6] = ["ls", "git", "id", "rm", "cat", "echo"];
const REAL: [&str; 5] = ["env", "xargs", "find", "timeout", "nice"];

/// Pieces that lines are glued together from, with every construct that has fooled a reader before.
#[rustfmt::skip]
const FRAGMENTS: [&str; 253] = [
    "ls", "id", "id", " ", " ", ";", "\n", " && ", " | ", " || ", " & ", "$(", ")", "`", "\"",
    "'", "\\", "${x:-", "}", "$x", "x=", "a=(", " <(", "(", "{ ", "; }", "#", " #", "<<E\n",
    "\nE\n", "<<'E'\n", "((", "))", "$((", "[[ ", " ]]", "case x in x) ", " ;; esac", "if ",
    "; then ", "; fi", "for x in ", "; do ", "; done", "f() { ", "f", "env ", "xargs ",
    "find . -exec ", " \\;", " {} +", "! ", "time ", "coproc ", "eval ", "export ",
    "printf -v ", "PATH=.", "PATH", "read ", "$'", "\\'", "\\x69d", "$\"", "<", ">", " 2>&1",
    "&", "~", "*", "{ls,id}", "a[", "]", "=", "${!x}", "${x@P}", "$[", "'$(id)'", "'a[$(id)]'",
    "-v ", "test ", "[ ", " ]", "declare ", "set -- ", "set -k", "local ", "function f ",
    "\\\n", "\r", "\t", "timeout 5 ", "command ", "exec ", "$$", "\\$", "<<-E\n\t", "<<\\E\n",
    "|&", "&>", "<<<", "{x}>y", "$@", "trap id EXIT", ".", "source ", "/dev/stdin", "<<E", "E",
    "shopt -s extglob", "@(", "!(", "+(", "$(<", "${#", "${x#", "${x/", "/", ":", "${x:", "x",
    "\"$(", ")\"", "\"${x:-", "}\"", "$((x", "((x=", "-eq ", "x='a[$(id)]'", "read x", "in",
    "do", "{", "\n#", "''", "\"\"", "`ls`", "$(ls)", "while ", "until ", "; else ", "esac",
    ";;", "\\\"", "\\`", "}'", "unset ", "wait ", "-p ", "${x:=",
    "declare -n r=", "r", "-n ", "wait -n -p ", "getopts x ", "mapfile -C id -c 1 a", "hash -p ./ls ls", "enable -f ./x ls",
    "${ id; }", "${| id; }", "select x in a; do ", "exec {x}>y", "{a[$(id)]}>y", "${x@A}", "${x@E}", "${!a@}", "${a[@]@P}",
    "set -o posix", "shopt -s ", "lastpipe", "expand_aliases", "alias ls=id", "$BASH_COMMAND", "${PS4}", "set -x", "PS4='$(id)'",
    "command -v ", "builtin ", "let ", "'x=$(id)'", "\\\\", "\u{2028}", "\u{a0}", "\u{feff}", "\u{85}", "\u{b}", "%", "^", "!", "-eq 'a[$(id)]'",
    "( (", ") )", "((i*", "i*", "?d", " #$(id)\n", "((1", "$((1", "\\export ", "'declare' ", "y='1 PATH=.'", "x=$y", "read -p x$y ",
    "mapfile -d x$y ", "{a[x]}>y", "getopts $y ", "<&-", ">&-", "<(ls)", "a=(x)", "#$(id)", "#`id`",
    "\"$(ls <<'E'\n", "\nE\n)\"", "$(ls <<E\n", "\nE\n)", "\nE )", "\"./$@\"", "\"a\"$x\"b\"", "\".\"$x\"\"",
    "printf -v a -v ", "-vPATH ", "%n ", "-exec id ';'", "getopts -- ", "find ",
    " -name ", " -path ", "\"$y\"", "-exec", "$", "\\\n(", "\\\n[", "${x\\\n[0]:=1}", "$(\\\n(1",
    "~-", "~+", "~+", "${x/1/~+}", "${x:+~+}", "${x@a}", "${x/1/a}", "${x//1/a}", "${x#1}", "${x:1}", "${#x}", "+=", "+=~-", "=~+", "d=-", "d+=exec", "x=11", "unset x",
];

/// Lines to start from; each is changed in a few places.
#[rustfmt::skip]
const SEEDS: [&str; 58] = [
    "ls # ; id", "ls 'id;id' \"id;id\"", "ls \"a\\$(id)\" '`id`'", "ls \\`id\\` \\$\\(id\\)",
    "ls <<'E'\n$(id)\nE\nls", "ls <<E\n\\$(id) id\nE\nls", "ls <<E\nid\nE",
    "ls <<-E\n\tid\n\tE\nls", "ls <<E <<'F'\nid\nE\n$(id)\nF\nls", "ls <<E; ls <<-'F'\nid\nE\n\tid\n\tF\nls", "for f in id; do ls \"$f\"; done",
    "case id in id) ls;; 'id') git;; esac", "f() { ls id; }; f id", "x='id'; ls $x",
    "a=(id 'id' [3]=id); ls ${a[1]}", "ls $'id\\'id' id", "ls \\$'a' 'id'", "ls $$'a' 'id'",
    "ls \"${x:-id}\" ${x:-'id'}", "ls \"${x:-a b}\"; ls 'id'", "[[ id == i* && -n id ]]",
    "[[ id =~ (a|id) ]]", "((1 + 2)); ls id", "ls $((1 + 2)) id",
    "for ((i=0;i<2;i++)); do ls id; done", "if [ id = id ]; then ls id; fi", "env A=id ls id",
    "find . -name id -exec ls id {} \\;", "ls | xargs ls id", "timeout 5 ls id",
    "ls $(ls id # id)\n)", "ls $(ls id\n# id\n)", "ls `ls id`", "ls \"$(ls \"id\")\"",
    "{ ls id; } > id", "ls > id 2>&1; ls < id", "ls {id,id}", "export A=id B; ls id",
    "printf '%s' id; ls", "ls <(ls id)", "set -- id; ls \"$@\" $1",
    "x=1; while ((x<3)); do ((x=x+1)); ls id; done",
    "((ls; ls '$(id)'))", "((ls '`id`'); ls)", "((if ls; then ls '$(id)'; fi))", "((f() { ls '$(id)'; }; f))",
    "ls \"$(ls <<'E'\nid ' ) $(id)\nE\n)\"; ls", "x=$(ls <<E\n; id \" 'id'\nE\n)\nls \"$x\"",
    "ls \"$(ls <<'E'\n' id\nE\n)\" -m \"$(ls <<'F'\n\" id; id\nF\n)\"\nls",
    "set -- . -maxdepth 0 -exec id ';'; find \"./$@\"", "x=' -exec id ; '; find \".\"$x\"\"",
    "find \"./$x\" -name id -exec ls {} +", "printf -v a -v x %s id; ls",
    "i=0; while [ $i -lt 2 ]; do ls id; i=$((i+1)); done", "ls & wait $!; ls $((RANDOM % 5))",
    "x=$(ls  # id\nls id\n)", "ls \"$(ls  # id \\\nls id\n)\"", "ls <<'E' \"$(ls $(ls id)\n)\"\nid\nE\n\nls",
];

/// Steps that set variables, and steps whose arithmetic evaluates them. The environment holds one more text.
#[rustfmt::skip]
const STEPS: [&str; 174] = [
    "x=1", "x=5", "a=1", "a5='b[$(id)]'", "a0='b[$(id)]'", "_=1", "REPLY=1", "PWD=1", "g=1",
    "FUNCNAME=1", "f='b[$(id)]'", "a=(1 2)", "x+=1", "x+='b[$(id)]'", "export x='b[$(id)]'",
    "export x=1", "read x <<< 'b[$(id)]'", "read <<< 'b[$(id)]'", "read -ra a <<< 'b[$(id)]'",
    "command read x <<< 'b[$(id)]'", "printf -v x %s 'b[$(id)]'", "printf -vx %s 'b[$(id)]'",
    "printf '%s' x", ": 'b[$(id)]'", "cd 'd[$(id)]'", "set -- 'b[$(id)]'", "false && g=1",
    "false && x=1", "x=1 ls", "(x=1)", "for x in 1 2; do ((x)); done", "for x in 'b[$(id)]'; do :; done",
    "for x; do :; done", "f() { ((FUNCNAME)); }", "f() { local x='b[$(id)]'; ((x)); }", "f() { local x; ((x)); }",
    "f", "((x))", "((_))", "((REPLY))", "((PWD))", "((1/$PWD))", "((g))", "((a))", "((a$x))", "((a$#))",
    "((a${x}))", "((x=a))", "((x=$1))", "ls $((a$((0))))", "ls $((x))", "ls ${a[x]}", "ls ${x:x}",
    "ls ${x:=b}", "[[ x -eq 1 ]]", "[[ a$x -eq 1 ]]", "a[x]=1", "while ((x < 1)); do x=1; done",
    "declare -a a", "declare a='($(id))'", "declare x=\"$f\"", "f='($(id))'", "declare a=\"$f\"", "declare a+='($(id))'",
    "f() { local a=(1); local a='($(id))'; }", "f() { local a=\"$f\"; }",
    "linux='b[$(id)]'", "false && OSTYPE=1", "((OSTYPE))", "OSTYPE=1",
    "((${f:-1}))", "((${f:0}))", "((${f,}))", "((${@:1}))", "((${z:-a}5))", "((${x:-1}))", "[[ ${f@E} -eq 1 ]]",
    "ls ${x:${f:-1}}",
    "export 'x=b[$(id)]'", "command export x='b[$(id)]'", "\\export x='b[$(id)]'", "f() { local 'x=b[$(id)]'; ((x)); }",
    "y='1 PATH=.'", "y='1 PATH'", "y='x -C id -c 1'", "\\export x=$y", "'export' x=$y", "export x=$y", "\\declare x=$y",
    "declare $y", "export $y", "read -p x$y <<< .", "read -d x$y <<< .", "mapfile -d x$y a <<< xx", "getopts $y x", "getopts \"$y\" x",
    "ls", "ls {a[x]}>y", "ls {PATH[0]}>y", "{ ls; } {a[x]}<x", "((1 #$(id)\n))", "ls $((1 #$(id)\n))", "( (i*) )", "((i*) )",
    "printf -v a -v 'b[$(id)]' %s 1", "printf -va -vPATH %s .", "printf -v a -v x %s 1", "printf %n PATH",
    "printf %n x", "printf \"a$y\" PATH", "printf \"a$y\" x", "declare DIRSTACK='($(id))'", "declare DIRSTACK=\"$f\"",
    "mapfile <<< x", "declare MAPFILE='($(id))'", "declare MAPFILE=\"$f\"", "getopts -- a PATH -a",
    "getopts -- a x -a", "set -- . -exec id ';'", "y=' -exec id ; '", "a=(. -exec id ';')", "find \"./$@\"",
    "find \"./${a[@]}\"", "find \".\"$y\"\"", "find \"./$y\"", "y=-v", "[ $x -eq 1 ]", "[ $a = $x ]",
    "[ \"$f\" = $x ]", "[ \"$y\" = $x ]", "[ \"$y\" -lt $g ]", "[ $g = 1 ]", "wait $x", "wait $!", "ls & x=$!",
    "y=--", "((x $y))", "((a $y))", "ls $((RANDOM))",
    "d=src", "d=-exec", "d+=x", "d=x$y", "d=\"$y\"", "read d <<< -exec", "false && d=./x", "for d in . x; do find \"$d\" id ';'; done", "for d in *; do find \"$d\" id ';'; done",
    "find \"$d\" id ';'", "find \"$d\" -name x", "find \"${d}/\" id ';'", "find . \"$PWD\" id ';'", "y=-exec", "find . -name \"$y\" id ';'", "find . -path -name \"$y\" id ';'",
    "find . -name x \"$y\" id ';'", "find . -name \"$y\" -print", "find . -mtime -name \"$y\" id ';'", "find . -name x -exec ls ';' -name \"$y\" id ';'",
    "x=${f//[^0-9]/}", "g=${g//[^0-9]/}", "((${f//[^0-9]/}))", "((${g//[^0-9]/} + 1))", "[ ${f//[^0-9]/} -eq 1 ]", "declare a=${f//[^0-9]/}'($(id))'",
    "((a${x//[^0-9]/}))", "for x in {1..3}; do ((x)); done", "for x in {1,5} 2; do ls ${a[x]}; done", "for x in {1..$f}; do ((x)); done", "a=(${f//[^0-9]/})",
    ": ${x\\\n[0]:=1}", "ls ${a\\\n[0]=1}", "declare x='($(id))'", "f() { local x; : ${x\\\n[0]:=1}; local x='($(id))'; }",
];

/// A bash that reads nothing before the line.
pub(in crate::policy) const BASH: [&str; 3] = ["/bin/bash", "--norc", "--noprofile"];

const NOBODY: u32 = 65534;

/// A text that runs a program when arithmetic evaluates it.
const GIVEN: (&str, &str) = ("g", "b[$(id)]");

/// What a tilde stands for, as a text of arithmetic and as a list. No line may set these; nor may one rely on that.
const BEFORE: &str = "PWD='b[$(id)]' OLDPWD='($(id))'";

struct Bench {
    directory: tempfile::TempDir,
}

static BENCH: LazyLock<Bench> = LazyLock::new(Bench::new);

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory for stubs");
        let bench = Self { directory };
        fs::create_dir(bench.bin()).expect("a directory for stubs");
        for name in STUBS {
            bench.stub(&bench.bin().join(name), name);
        }
        for name in REAL {
            std::os::unix::fs::symlink(format!("/usr/bin/{name}"), bench.bin().join(name))
                .expect("a link to a launcher");
        }
        bench
    }

    fn bin(&self) -> PathBuf {
        self.directory.path().join("bin")
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// A program that writes down its name, and prints the name of a program that is not listed.
    fn stub(&self, path: &Path, name: &str) {
        let log = self.log();
        let text = format!("#!/bin/sh\necho {name} >> {}\necho id\n", log.display());
        fs::write(path, text).expect("a stub");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a stub");
    }

    /// The names of the stubs that a line ran.
    fn run(&self, line: &str) -> Vec<String> {
        let run = |work: &Path| {
            let mut started = shell(&BASH, self.directory.path(), work);
            started
                .args(["-c", &format!("{BEFORE}\n{line}")])
                .env("PATH", self.bin())
                .env("FUNCNEST", "20")
                .env(GIVEN.0, GIVEN.1);
            started.status().expect("a shell runs")
        };
        self.observed(run).0
    }

    /// The names of the stubs that ran, and what came of it.
    fn observed<T>(&self, run: impl FnOnce(&Path) -> T) -> (Vec<String>, T) {
        // Its own each time: what an earlier line left in the background may still write.
        let made = tempfile::tempdir_in(self.directory.path()).expect("a directory to work in");
        let work = made.path();
        // A planted program, and file names that are words of commands.
        self.stub(&work.join("ls"), "planted");
        for name in ["-exec", "id", ";", "x"] {
            fs::write(work.join(name), "id\n").expect("a file");
        }
        fs::create_dir(work.join("d[$(id)]")).expect("a directory");
        let _ = fs::remove_file(self.log());
        let came_of_it = run(work);
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        (log.lines().map(str::to_owned).collect(), came_of_it)
    }
}

/// A shell that works in a directory of this place, with nothing in its environment and not for long.
pub(in crate::policy) fn shell(program: &[&str], place: &Path, work: &Path) -> Command {
    let mut shell = Command::new("/usr/bin/timeout");
    // Lines are made by chance, and write where they like: not as root.
    if fs::metadata(place).expect("a directory for stubs").uid() == 0 {
        chown(work, Some(NOBODY), Some(NOBODY)).expect("a directory to work in");
        fs::set_permissions(place, fs::Permissions::from_mode(0o777)).expect("a directory for stubs");
        shell.uid(NOBODY).gid(NOBODY);
    }
    shell.args(["-k", "1", "2"]).args(program).env_clear().current_dir(work);
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell
}

impl Programs for Bench {
    fn find(&self, word: &str) -> Option<FoundProgram> {
        let requested = self.bin().join(word);
        let name = requested.file_name()?.to_str()?;
        let known = STUBS.contains(&name) || REAL.contains(&name);
        let here = requested.parent() == Some(&self.bin());
        (known && here).then(|| FoundProgram {
            version: None,
            path: requested.clone(),
            on_trusted_path: true,
            requested,
            is_script: false,
            interpreter_chain: Vec::new(),
            opened: crate::policy::allowlist::Opened::default(),
        })
    }
}

fn glued() -> impl Strategy<Value = String> {
    prop::collection::vec(select(&FRAGMENTS[..]), 1..10).prop_map(|parts| parts.concat())
}

fn stepped() -> impl Strategy<Value = String> {
    prop::collection::vec(select(&STEPS[..]), 2..7).prop_map(|steps| steps.join("; "))
}

/// Here-documents in substitutions, with lines that could end them, or could be read where they do not end.
fn enclosed() -> impl Strategy<Value = String> {
    #[rustfmt::skip]
    let parts = (
        select(&["ls ", "ls 'a' ", "x=", "ls -m", "ls \"\"", "ls '\"' ", "ls \"a ", "ls # ", "ls \\", "(ls ", "a=(", "ls <<F ", ""][..]),
        select(&["\"$(ls <<'E'\n", "\"$(ls <<'E'\n", "$(ls <<E\n", "\"$(ls - << \"E\"\n", "\"$(ls <<'E' id\n", "$(ls 3<<'E'\n", "\"$(ls <<-E\n"][..]),
        prop::collection::vec(
            select(&["id\n", "'", "\"", ")", ")\"\n", "\n", "E", "E\n", "\tE\n", "E )", "$(id)", "`id`", "\\", "\\\n", "; id; ", "<<E\n", "F\n", "#", "é"][..]),
            0..7,
        ),
        select(&["\nE\n)\"", "\nE\n)\"", "\nE\n)", "\nE\n )\"", "\nE)\"", "\n)\"", "\nE\nid)\"", "\nE"][..]),
        select(&["", "; ls", "\nls \"$x\"", " -m \"$(ls <<'F'\n'; id\nF\n)\"; ls", "\"; id", "' id", "\nF\n", ")"][..]),
    );
    parts.prop_map(|(before, open, lines, close, after)| format!("{before}{open}{}{close}{after}", lines.concat()))
}

#[derive(Clone, Debug)]
enum Edit {
    Insert(prop::sample::Index, &'static str),
    Remove(prop::sample::Index),
    Swap(prop::sample::Index, prop::sample::Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => (index(), select(&FRAGMENTS[..])).prop_map(|(at, text)| Edit::Insert(at, text)),
        2 => index().prop_map(Edit::Remove),
        1 => (index(), index()).prop_map(|(from, to)| Edit::Swap(from, to)),
    ]
}

fn changed() -> impl Strategy<Value = String> {
    let seed = prop::collection::vec(select(&SEEDS[..]), 1..3);
    let glue = select(&["; ", "\n", " ", "", " && "][..]);
    (seed, glue, prop::collection::vec(edit(), 0..4)).prop_map(|(seeds, glue, edits)| {
        let mut chars: Vec<char> = seeds.join(glue).chars().collect();
        for edit in edits {
            if chars.is_empty() {
                break;
            }
            match edit {
                Edit::Insert(at, text) => {
                    let at = at.index(chars.len() + 1);
                    chars.splice(at..at, text.chars());
                }
                Edit::Remove(at) => drop(chars.remove(at.index(chars.len()))),
                Edit::Swap(from, to) => {
                    let (from, to) = (from.index(chars.len()), to.index(chars.len()));
                    chars.swap(from, to);
                }
            }
        }
        chars.into_iter().collect()
    })
}

/// How many lines are tried.
pub(in crate::policy) fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(1_500)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bash_runs_only_listed_programs(
        line in prop_oneof![2 => glued(), 3 => changed(), 2 => stepped(), 3 => made::line(), 1 => enclosed(), 1 => continued::line(), 2 => documents::line(), 3 => nested::line()]
    ) {
        if let Some(name) = unlisted(&line) {
            prop_assert!(false, "{:?} ran `{}`", line, name);
        }
    }
}

/// A program that an accepted line started and that is not listed.
fn unlisted(line: &str) -> Option<String> {
    let list = Allowlist::from_entries(&LISTED).expect("valid");
    let read = read(line, Limits::STANDARD).ok()?;
    let given = [(GIVEN.0.to_owned(), GIVEN.1.to_owned())];
    check_line(&read, &list, &*BENCH).ok()?;
    check_given(&read, &list, &given).ok()?;
    // Bash is given the line anew; a line for bash that has no plain form is refused.
    let restated = match (restate(line, Limits::STANDARD), &read.shape) {
        (Ok(restated), _) => restated.text().to_owned(),
        (Err(_), Shape::Plain(_)) => line.to_owned(),
        (Err(_), Shape::NeedsShell(_)) => return None,
    };
    let mut ran = BENCH.run(&restated).into_iter();
    ran.find(|name| !LISTED.contains(&name.as_str()))
}
