//! `find`: its expression may run commands for the files it finds.

use super::{Failure, Launched, replace};
use crate::policy::line::Arg;

pub(super) fn launched(args: &[Arg]) -> Result<Vec<Launched>, Failure> {
    let mut found = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg {
            Arg::Static(text) => {
                if matches!(text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
                    found.push(command(&mut rest)?);
                }
            }
            // A word from elsewhere could be `-exec` itself, unless it visibly begins as a path.
            Arg::Pattern { prefix, .. } | Arg::Computed { prefix, .. } => {
                let path = prefix.starts_with(|c: char| c.is_alphanumeric() || "/._".contains(c));
                // The files of a pattern all begin as it does; of what is computed only the first word need.
                let many = matches!(arg, Arg::Computed { .. }) && !arg.is_one_word();
                if !path || many {
                    return Err(Failure::Unclear("a word of its expression is computed"));
                }
            }
            Arg::Number { .. } => return Err(Failure::Unclear("a word of its expression is computed")),
        }
    }
    Ok(found)
}

/// The words up to `;` or `+`; those with `{}` become file names.
fn command<'a>(rest: &mut impl Iterator<Item = &'a Arg>) -> Result<Launched, Failure> {
    let mut words = Vec::new();
    for arg in rest {
        let ends = match arg.known() {
            Some(";") => true,
            Some("+") => words.last().is_some_and(|last: &Arg| last.shown() == "{}"),
            Some(_) => false,
            None => return Err(Failure::Unclear("a word of its expression is computed")),
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
        args: args.into_iter().map(|arg| replace(arg, "{}")).collect(),
    })
}
