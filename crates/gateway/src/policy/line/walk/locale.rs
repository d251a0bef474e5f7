//! Changes of bash's own locale.
//!
//! Bash reads by the characters of its locale. In some of them a byte beyond ASCII takes the next one along, so that the
//! backslash in `ls Á\;id` quotes nothing and `id` runs. We read UTF-8; a line with such bytes must be read by a locale in
//! which they say nothing about their neighbours.

use super::arguments::DECLARING;
use super::numbers::SETTING;
use crate::policy::line::Arg;

/// Whether a variable says what the locale is.
pub(in crate::policy) fn decides(name: &str) -> bool {
    name == "LANG" || name.starts_with("LC_")
}

/// Whether bytes beyond ASCII stand for themselves in this locale, or are UTF-8.
pub(in crate::policy) fn is_harmless(locale: &str) -> bool {
    let codeset = locale.split('.').nth(1).unwrap_or_default();
    let codeset = codeset.split('@').next().unwrap_or_default().to_ascii_lowercase();
    matches!(locale, "" | "C" | "POSIX")
        || matches!(codeset.as_str(), "utf-8" | "utf8")
        || codeset.starts_with("iso8859")
}

/// Whether an assignment certainly gives a harmless one.
pub(super) fn is_kept(name: &str, value: Option<&str>) -> bool {
    decides(name) && value.is_some_and(is_harmless)
}

/// Whether a builtin may set one by its arguments.
pub(super) fn is_given(command: &Arg, args: &[Arg]) -> bool {
    let Some(command) = command.known() else {
        return false;
    };
    let sets = SETTING.contains(&command);
    let declares = DECLARING.contains(&command) || command == "command";
    args.iter().filter_map(Arg::known).any(|text| {
        let names_one = decides(text) || text.starts_with('-') && (text.contains("LC_") || text.contains("LANG"));
        let is_declared = text
            .split_once('=')
            .is_some_and(|(name, _)| decides(name.trim_end_matches('+')));
        sets && names_one || declares && is_declared
    })
}
