//! Advice about a workspace that commands cannot write, given only where a command complains of something that may lie
//! there.

use std::path::{Path, PathBuf};

/// What to do about a workspace that is not writable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    pub text: String,
    /// The workspace it is about.
    pub root: PathBuf,
}

/// What the C library calls it, and with it nearly every program.
const DENIED: &str = "Permission denied";

impl Advice {
    /// Whether what a command said may be about the workspace.
    pub(super) fn fits(&self, said: &str) -> bool {
        said.lines().any(|line| self.is_meant(line))
    }

    /// Programs name what they were denied right before the words (`cat: /etc/shadow: Permission denied`) or behind
    /// them (`Permission denied: '/etc/shadow'`). What stands further in front is the program itself.
    fn is_meant(&self, line: &str) -> bool {
        let Some((before, behind)) = line.split_once(DENIED) else {
            return false;
        };
        let before = before.trim_end_matches([':', ' ', '(']);
        let denied = before.rsplit(": ").next().unwrap_or(before);
        let mut named = paths(denied).chain(paths(behind));
        named.all(|path| path.starts_with(&self.root))
    }
}

/// The absolute paths in a text.
fn paths(text: &str) -> impl Iterator<Item = &Path> {
    let words = text.split(|c: char| c.is_whitespace() || "'\"`\u{2018}\u{2019}()[]<>,;:".contains(c));
    words.filter(|word| word.starts_with('/')).map(Path::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_about_the_workspace_is_not_given_for_what_lies_outside_of_it() {
        let advice = Advice {
            text: "do".to_owned(),
            root: PathBuf::from("/work/a"),
        };
        for (said, fits) in [
            ("touch: cannot touch 'x': Permission denied", true),
            ("/usr/bin/touch: cannot touch 'x': Permission denied", true),
            ("touch: cannot touch '/work/a/x': Permission denied", true),
            ("bash: line 1: x: Permission denied\n", true),
            ("PermissionError: [Errno 13] Permission denied: 'x'", true),
            ("PermissionError: [Errno 13] Permission denied: '/work/a/x'", true),
            (
                "cat: /etc/shadow: Permission denied\ntouch: cannot touch 'x': Permission denied",
                true,
            ),
            ("bash: line 1: /usr/bin/sleep: Permission denied", false),
            ("/usr/bin/sleep: Permission denied", false),
            ("cat: /etc/shadow: Permission denied", false),
            ("cp: cannot create regular file '/work/ab/x': Permission denied", false),
            (
                "cp: cannot create regular file \u{2018}/etc/x\u{2019}: Permission denied",
                false,
            ),
            ("PermissionError: [Errno 13] Permission denied: '/etc/x'", false),
            ("cannot open /etc/x (Permission denied)", false),
            ("no such file", false),
        ] {
            assert_eq!(advice.fits(said), fits, "{said}");
        }
    }
}
