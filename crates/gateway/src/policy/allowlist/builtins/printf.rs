//! `printf` of bash, which sets variables in two ways: by `-v NAME`, and by a conversion such as `%n`, which puts the
//! number of characters so far into the variable that the next word names.

use super::{Stop, name_allowed, names};
use crate::policy::allowlist::is_guarded_variable;
use crate::policy::line::Arg;

pub(super) fn check(args: &[Arg]) -> Result<(), Stop> {
    let Some((format, values)) = format_and_values(args)? else {
        return Ok(());
    };
    match format {
        Arg::Static(text) if !may_set(text) => Ok(()),
        Arg::Static(_) => values.iter().try_for_each(named),
        Arg::Computed { .. } if format.is_one_word() => values.iter().try_for_each(named),
        // What becomes several words brings its own names along.
        Arg::Pattern { .. } | Arg::Computed { .. } | Arg::Number { .. } | Arg::Path { .. } => Err(COMPUTED),
    }
}

const COMPUTED: Stop = Stop::Unclear("its format is computed at run time");

/// Steps over the options as bash does: there may be more than one `-v`, and the last one is used.
fn format_and_values(args: &[Arg]) -> Result<Option<(&Arg, &[Arg])>, Stop> {
    let mut rest = args;
    while let Some((first, after)) = rest.split_first() {
        let Some(text) = first.known() else {
            if first.prefix().is_empty() || first.prefix().starts_with('-') {
                return Err(COMPUTED);
            }
            return Ok(Some((first, after)));
        };
        rest = match text.strip_prefix('-') {
            None | Some("") => return Ok(Some((first, after))),
            Some("-") => return Ok(after.split_first()),
            Some("v") => {
                names(after.get(..1).unwrap_or_default())?;
                after.get(1..).unwrap_or_default()
            }
            Some(option) => match option.strip_prefix('v') {
                Some(name) => {
                    name_allowed(name)?;
                    after
                }
                // It is no option of `printf`: bash says so, and does nothing.
                None => return Ok(None),
            },
        };
    }
    Ok(None)
}

/// Whether a format may have a conversion that sets a variable. What bash does behind a conversion that it does not
/// know is not followed: there every `%…n` counts.
fn may_set(format: &str) -> bool {
    let mut rest = format;
    while let Some((_, after)) = rest.split_once('%') {
        if let Some(behind) = after.strip_prefix('%') {
            rest = behind;
            continue;
        }
        let conversion = after.trim_start_matches(of_conversion);
        if !conversion.starts_with(|c| "diouxXeEfFgGaAcsbqQ".contains(c)) {
            return rest
                .split('%')
                .skip(1)
                .any(|part| part.trim_start_matches(of_conversion).starts_with('n'));
        }
        rest = conversion;
    }
    false
}

/// Flags, width, precision and size, in any order.
fn of_conversion(c: char) -> bool {
    c.is_ascii_digit() || "#'-+ *.hjlLtz".contains(c)
}

/// Whether a word that may be taken for the name of a variable is surely not that of a guarded one.
fn named(value: &Arg) -> Result<(), Stop> {
    const UNCLEAR: Stop = Stop::Unclear("its format may set a variable; write it out in single quotes");
    match value {
        Arg::Static(text) if is_guarded_variable(text) => Err(Stop::Guarded(text.clone())),
        Arg::Static(_) | Arg::Number { .. } => Ok(()),
        Arg::Pattern { prefix, .. } | Arg::Computed { prefix, .. } => {
            let is_no_name = prefix.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let is_whole = matches!(value, Arg::Pattern { .. }) || value.is_one_word();
            if is_no_name && is_whole {
                return Ok(());
            }
            Err(UNCLEAR)
        }
        Arg::Path { .. } => Err(UNCLEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_that_set_variables_are_known() {
        for format in [
            "%n", "abc%n", "% n", "%hhn", "%-5n", "%.3n", "%*n", "%s%n", "%%%n", "%5%n", "%5%%n", "%(%Y)T%n", "%(%n)T",
            "100% new", "%y%%n", "\\%n",
        ] {
            assert!(may_set(format), "{format}");
        }
        for format in [
            "",
            "n",
            "%s\n",
            "%s\\n",
            "%%n",
            "%d%%\\n",
            "%5.2f %s name",
            "%(%Y-%m-%d)T\\n",
            "100%\\n",
            "%",
            "%-10s|",
        ] {
            assert!(!may_set(format), "{format}");
        }
    }
}
