//! The programs of one decision.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;

use super::allowlist::{FoundProgram, Programs};
use super::effective::CommandPolicy;

/// Programs as they were found when first asked for: within one decision a name means one file.
pub(super) struct Remembered<'a> {
    programs: &'a dyn Programs,
    command: &'a CommandPolicy,
    found: RefCell<HashMap<String, Option<FoundProgram>>>,
    /// How many paths were looked up that policy does not name itself.
    paths: Cell<usize>,
}

/// How many of those are looked up for one decision. A command can lay out links that take milliseconds to follow.
const PATHS_SOUGHT_MAX: usize = 32;

impl<'a> Remembered<'a> {
    pub(super) fn new(programs: &'a dyn Programs, command: &'a CommandPolicy) -> Self {
        Self {
            programs,
            command,
            found: RefCell::default(),
            paths: Cell::new(0),
        }
    }

    fn is_policys_own(&self, word: &str) -> bool {
        let listed = || {
            self.command
                .allowlist
                .paths()
                .iter()
                .any(|path| path == Path::new(word))
        };
        let mut helpers = self.command.helpers.iter().flat_map(|(_, helpers)| helpers);
        let mut helps = || helpers.any(|helper| helper == word);
        listed() || helps()
    }
}

impl Programs for Remembered<'_> {
    fn find(&self, word: &str) -> Option<FoundProgram> {
        if let Some(found) = self.found.borrow().get(word) {
            return found.clone();
        }
        if word.contains('/') && !self.is_policys_own(word) {
            if self.paths.get() >= PATHS_SOUGHT_MAX {
                return None;
            }
            self.paths.set(self.paths.get() + 1);
        }
        let found = self.programs.find(word);
        self.found.borrow_mut().insert(word.to_owned(), found.clone());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::allowlist::Allowlist;
    use crate::policy::standing::tests::{World, policy};

    #[test]
    fn a_line_brings_so_many_paths_and_policys_own_do_not_count() {
        let path = |number: usize| format!("/work/p{number}");
        let listed: Vec<String> = (0..2 * PATHS_SOUGHT_MAX).map(path).collect();
        let mut command = policy().command;
        command.allowlist = Allowlist::from_entries(&listed).unwrap();
        command.helpers = vec![("p0".to_owned(), vec!["/work/helper".to_owned()])];
        let remembered = Remembered::new(&World, &command);
        for number in 0..PATHS_SOUGHT_MAX {
            assert!(remembered.find(&format!("/work/of-the-line-{number}")).is_some());
        }
        assert!(remembered.find("/work/one-too-many").is_none());
        let known = ["/work/helper", "/work/of-the-line-0", "ls"];
        for word in listed.iter().map(String::as_str).chain(known) {
            assert!(remembered.find(word).is_some(), "{word}");
        }
    }
}
