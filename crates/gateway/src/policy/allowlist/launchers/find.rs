//! `find`: its expression may run commands for the files it finds.

use super::{Failure, Launched, replace};
use crate::policy::line::Arg;

/// What stands alone in an expression or before it.
#[rustfmt::skip]
const ALONE: [&str; 49] = [
    "-a", "-and", "-o", "-or", "-not", "-print", "-print0", "-ls", "-prune", "-delete", "-quit", "-true", "-false",
    "-empty", "-readable", "-writable", "-executable", "-nouser", "-nogroup", "-sparse", "-acl", "-xattr",
    "-d", "-depth", "-xdev", "-mount", "-follow", "-daystart", "-noleaf", "-warn", "-nowarn",
    "-ignore_readdir_race", "-noignore_readdir_race", "-help", "--help", "-version", "--version", "--",
    "-H", "-L", "-P", "-E", "-X", "-s", "-x", "-O0", "-O1", "-O2", "-O3",
];

/// What takes one value, whatever that looks like. `-newerXY` takes one too.
#[rustfmt::skip]
const WITH_VALUE: [&str; 49] = [
    "-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex", "-lname", "-ilname",
    "-type", "-xtype", "-maxdepth", "-mindepth", "-size", "-perm", "-user", "-group", "-uid", "-gid", "-links", "-inum",
    "-amin", "-atime", "-anewer", "-cmin", "-ctime", "-cnewer", "-mmin", "-mtime", "-mnewer", "-newer", "-used",
    "-Bmin", "-Btime", "-Bnewer", "-samefile", "-fstype", "-flags", "-xattrname", "-context", "-regextype",
    "-printf", "-fprint", "-fprint0", "-fls", "-files0-from", "-D", "-f",
];

const WITH_TWO_VALUES: [&str; 1] = ["-fprintf"];

const LAUNCHING: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];

const COMPUTED: Failure = Failure::Unclear(
    "a word of its expression is computed; quote it behind `-name` and the like, begin a path with `./`, or `cd` there and search `.`",
);
const UNKNOWN: Failure = Failure::Unclear("a word of its expression that begins with `-` is not known");
const NO_VALUE: Failure = Failure::Unclear("another word of its expression stands where a value is due");

pub(super) fn launched(args: &[Arg]) -> Result<Vec<Launched>, Failure> {
    let mut found = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg {
            Arg::Static(text) if LAUNCHING.contains(&text.as_str()) => {
                let index = args.len() - rest.len();
                found.push(command(text, index, &mut rest)?);
            }
            // A dash alone is the name of a file.
            Arg::Static(text) if text.starts_with('-') && text != "-" => {
                values(values_of(text).ok_or(UNKNOWN)?, &mut rest)?;
            }
            Arg::Static(_) | Arg::Path { .. } => {}
            // A word from elsewhere could be `-exec` itself, unless it visibly begins as a path.
            Arg::Pattern { .. } | Arg::Computed { .. } | Arg::Number { .. } => {
                if !are_paths(arg) {
                    return Err(COMPUTED);
                }
            }
        }
    }
    Ok(found)
}

/// How many values a word of an expression takes. The GNU, BSD and BusyBox programs agree wherever more than one of
/// them knows a word, and the others then fail before they search.
fn values_of(word: &str) -> Option<usize> {
    let compares_times = |kinds: &str| {
        let mut kinds = kinds.chars();
        let one_of = |kind: Option<char>, known: &str| kind.is_some_and(|kind| known.contains(kind));
        one_of(kinds.next(), "aBcm") && one_of(kinds.next(), "aBcmt") && kinds.next().is_none()
    };
    if ALONE.contains(&word) {
        return Some(0);
    }
    if WITH_VALUE.contains(&word) || word.strip_prefix("-newer").is_some_and(compares_times) {
        return Some(1);
    }
    WITH_TWO_VALUES.contains(&word).then_some(2)
}

/// Steps over values. What looks like another word of an expression is none: some program may read it as that.
fn values<'a>(count: usize, rest: &mut impl Iterator<Item = &'a Arg>) -> Result<(), Failure> {
    for value in rest.take(count) {
        match value.known() {
            Some(text) if values_of(text).is_some() || LAUNCHING.contains(&text) => return Err(NO_VALUE),
            Some(_) => {}
            // To BSD a leading `-fprintf` is `-f printf`, which takes no more words.
            None if count == 1 && (value.is_one_word() || are_paths(value)) => {}
            None => return Err(COMPUTED),
        }
    }
    Ok(())
}

/// Whether a word that is computed becomes nothing but words that begin as paths. The files of a pattern all begin as
/// it does; of what is computed only the first word need.
fn are_paths(word: &Arg) -> bool {
    let is_whole = matches!(word, Arg::Pattern { .. }) || word.is_one_word();
    is_whole && word.prefix().starts_with(Arg::begins_path)
}

/// The words up to `;` or `+`; those with `{}` become file names. Programs differ over other words that may end it.
fn command<'a>(launching: &str, index: usize, rest: &mut impl Iterator<Item = &'a Arg>) -> Result<Launched, Failure> {
    let mut words: Vec<Arg> = Vec::new();
    for arg in rest {
        let is_behind_files = words.last().is_some_and(|last| last.shown() == "{}");
        match arg.known() {
            Some(";") => break,
            Some("+") if is_behind_files && launching.starts_with("-exec") => break,
            Some("+") if is_behind_files => return Err(Failure::Unclear("only `;` ends what `-ok` runs")),
            Some(word) if LAUNCHING.contains(&word) => {
                return Err(Failure::Unclear(
                    "a command in it has `-exec` or the like among its words",
                ));
            }
            Some(_) => words.push(arg.clone()),
            None => return Err(Failure::Unclear("a word of the command in it is computed")),
        }
    }
    if words.is_empty() {
        return Err(Failure::Unclear("its command is missing"));
    }
    let args = words.split_off(1);
    let name = words
        .pop()
        .map(|name| replace(name, "{}"))
        .ok_or(Failure::Unclear("its command is missing"))?;
    Ok(Launched {
        name,
        index: Some(index),
        args: args.into_iter().map(|arg| replace(arg, "{}")).collect(),
    })
}
