//! Programs that run whatever text they are given. Listing one is the operator's choice; being told
//! what it means is the operator's right.

use countersign_gateway::policy::allowlist::Allowlist;

/// Shells and interpreters by the name without a version.
const NAMES: &[&str] = &[
    "sh", "ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "mksh", "nu", "pwsh", "rbash", "tcsh", "xonsh",
    "yash", "zsh", "awk", "bun", "deno", "ed", "elixir", "emacs", "erl", "ex", "expect", "gawk", "gdb", "groovy",
    "guile", "iex", "irb", "jjs", "jshell", "julia", "lua", "luajit", "m4", "mawk", "nawk", "node", "nodejs", "ocaml",
    "octave", "perl", "php", "pypy", "python", "racket", "ruby", "Rscript", "scala", "swipl", "tclsh", "ts-node", "vi",
    "vim", "wish",
];

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

fn is_interpreter(entry: &str) -> bool {
    let name = entry.rsplit('/').next().unwrap_or(entry);
    let unversioned = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    NAMES.contains(&name) || NAMES.contains(&unversioned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_and_interpreters_are_known_by_name_path_and_version() {
        let list = [
            "bash",
            "/usr/bin/python3.12",
            "perl5.36",
            "lua5.4",
            "m4",
            "git",
            "ls",
            "sha256sum",
            "nodemon",
        ];
        let list = Allowlist::from_entries(&list).unwrap();
        assert_eq!(
            listed(&list),
            ["bash", "perl5.36", "lua5.4", "m4", "/usr/bin/python3.12"]
        );
        assert!(listed(&Allowlist::Any).is_empty());
    }
}
