//! Programs that run whatever text they are given. Listing one is the operator's choice; being told
//! what it means is the operator's right.

use countersign_gateway::policy::allowlist::Allowlist;
use countersign_gateway::policy::interpreters::is_interpreter;

/// The entries of the list that are shells or interpreters, as written.
pub(crate) fn listed(list: &Allowlist) -> Vec<String> {
    let paths = list.paths().iter().map(|path| path.to_string_lossy().into_owned());
    list.names()
        .iter()
        .cloned()
        .chain(paths)
        .filter(|entry| is_interpreter(entry))
        .collect()
}

/// The warning about one of them.
pub(crate) fn caution(entry: &str) -> String {
    format!(
        "the allowlist names `{entry}`, which runs any text it is given; only the sandbox limits what that text does"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_list_gives_away_is_told_of() {
        let list = ["bash", "/usr/bin/python3.12", "perl5.36", "git", "ls"];
        let list = Allowlist::from_entries(&list).unwrap();
        assert_eq!(listed(&list), ["bash", "perl5.36", "/usr/bin/python3.12"]);
        assert!(listed(&Allowlist::Any).is_empty());
    }
}
