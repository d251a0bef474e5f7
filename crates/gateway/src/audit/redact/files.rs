//! Files whose content is sent: `curl -F token=@FILE`. Which file that is matters, and it is no secret.

/// The name that a word gives a file to, if that is what it does.
pub(super) fn sent_by<'w>(word: &'w str, before: &[&str]) -> Option<&'w str> {
    let (name, value) = word.split_once('=')?;
    is_sent(name, value, before.iter().copied()).then_some(name)
}

/// Whether the value of a name is a file, for the program whose words stand before it.
pub(super) fn is_sent<'w>(name: &str, value: &str, before: impl DoubleEndedIterator<Item = &'w str>) -> bool {
    let Some(file) = value.strip_prefix(['@', '<']).filter(|file| !file.is_empty()) else {
        return false;
    };
    // The quote that a word is begun with stands alone before it.
    let mut before = before
        .map(|word| word.trim_matches(['"', '\'']))
        .filter(|word| !word.is_empty());
    let option = before.next_back().unwrap_or_default();
    let is_form = name.starts_with("-F") || matches!(option, "-F" | "--form" | "--form=");
    let mut programs = std::iter::once(option)
        .chain(before)
        .map(|word| word.rsplit('/').next().unwrap_or_default());
    match programs.find(|program| matches!(*program, "curl" | "http" | "https" | "xh" | "xhs")) {
        Some("curl") => is_form || value.starts_with('@') && file.starts_with(['/', '.', '~']),
        Some(_) => value.starts_with('@'),
        None => false,
    }
}
