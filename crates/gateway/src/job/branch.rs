//! The branch that is checked out where an agent works, as git keeps it. The agent can write what is read here, so a
//! name is taken only where it looks like one.

/// Characters of a branch's name that are kept.
const NAME_CHARS_MAX: usize = 255;

/// The branch that git's `HEAD` names; none where a commit is checked out by itself.
pub fn of_head(text: &str) -> Option<String> {
    let name = text.strip_prefix("ref: refs/heads/")?.trim_end_matches(['\r', '\n']);
    is_branch(name).then(|| name.to_owned())
}

/// Whether this can be the name of a branch, by git's own rules as far as they matter to readers.
pub fn is_branch(name: &str) -> bool {
    let is_odd = |c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c);
    !name.is_empty()
        && name.chars().count() <= NAME_CHARS_MAX
        && !name.chars().any(is_odd)
        && !name.contains("..")
        && !name.starts_with(['/', '-'])
        && !name.ends_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_branch_of_git_is_one() {
        assert_eq!(
            of_head("ref: refs/heads/agent/issue-7\n").as_deref(),
            Some("agent/issue-7")
        );
        for none in [
            "",
            "4b825dc642cb6eb9a060e54bf8d69288fbee4904\n",
            "ref: refs/remotes/origin/main\n",
            "ref: refs/heads/\n",
            "ref: refs/heads/a b\n",
            "ref: refs/heads/a\nroot:x:0:0",
            "ref: refs/heads/../../etc",
        ] {
            assert_eq!(of_head(none), None, "{none}");
        }
        assert!(!is_branch(&"x".repeat(NAME_CHARS_MAX + 1)));
    }
}
