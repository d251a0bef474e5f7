//! `find`: its expression may run commands for the files it finds.

use super::{Failure, Launched, replace};
use crate::policy::line::Arg;

/// Words of an expression whose next word is their value, whatever that looks like.
#[rustfmt::skip]
const WITH_VALUE: [&str; 38] = [
    "-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex", "-lname", "-ilname",
    "-type", "-xtype", "-maxdepth", "-mindepth", "-size", "-perm", "-user", "-group", "-uid", "-gid", "-links", "-inum",
    "-amin", "-atime", "-anewer", "-cmin", "-ctime", "-cnewer", "-mmin", "-mtime", "-newer", "-used", "-samefile",
    "-fstype", "-regextype", "-printf", "-fprint", "-newermt",
];

/// Words of an expression that stand alone.
#[rustfmt::skip]
const ALONE: [&str; 25] = [
    "-a", "-and", "-o", "-or", "-not", "-print", "-print0", "-prune", "-delete", "-empty", "-depth", "-xdev", "-mount",
    "-follow", "-quit", "-true", "-false", "-ls", "-readable", "-writable", "-executable", "-daystart", "-H", "-L", "-P",
];

const LAUNCHING: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];

const COMPUTED: Failure = Failure::Unclear(
    "a word of its expression is computed; quote it behind `-name` and the like, begin a path with `./`, or `cd` there and search `.`",
);

pub(super) fn launched(args: &[Arg]) -> Result<Vec<Launched>, Failure> {
    let mut found = Vec::new();
    let mut rest = args.iter();
    // Whether every word so far is known for what it is, so that the next one is where it seems to be.
    let mut is_followed = true;
    while let Some(arg) = rest.next() {
        match arg {
            Arg::Static(text) if LAUNCHING.contains(&text.as_str()) => {
                let index = args.len() - rest.len();
                found.push(command(index, &mut rest)?);
            }
            Arg::Static(text) if is_followed && WITH_VALUE.contains(&text.as_str()) => {
                if rest.as_slice().first().is_some_and(is_value) {
                    rest.next();
                } else {
                    is_followed = false;
                }
            }
            Arg::Static(text) => is_followed &= !text.starts_with('-') || ALONE.contains(&text.as_str()),
            // A word from elsewhere could be `-exec` itself, unless it visibly begins as a path.
            Arg::Pattern { prefix, .. } | Arg::Computed { prefix, .. } => {
                // The files of a pattern all begin as it does; of what is computed only the first word need.
                let many = matches!(arg, Arg::Computed { .. }) && !arg.is_one_word();
                if !prefix.starts_with(Arg::begins_path) || many {
                    return Err(COMPUTED);
                }
            }
            Arg::Path { .. } => {}
            Arg::Number { .. } => return Err(COMPUTED),
        }
    }
    Ok(found)
}

/// Whether a word is certainly taken for a value where one is due. What looks like another part of the expression is
/// looked at as such, as if there were no value.
fn is_value(word: &Arg) -> bool {
    match word.known() {
        Some(text) => ![&WITH_VALUE[..], &ALONE[..], &LAUNCHING[..]].concat().contains(&text),
        None => word.is_one_word(),
    }
}

/// The words up to `;` or `+`; those with `{}` become file names.
fn command<'a>(index: usize, rest: &mut impl Iterator<Item = &'a Arg>) -> Result<Launched, Failure> {
    let mut words = Vec::new();
    for arg in rest {
        let ends = match arg.known() {
            Some(";") => true,
            Some("+") => words.last().is_some_and(|last: &Arg| last.shown() == "{}"),
            Some(_) => false,
            None => return Err(Failure::Unclear("a word of the command in it is computed")),
        };
        if ends {
            break;
        }
        words.push(arg.clone());
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
