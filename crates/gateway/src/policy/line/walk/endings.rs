//! Texts that are asked about by how they end. A line may hold thousands of them, and be asked as often.

use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Endings {
    /// Each from its last character to its first, so that those with the same end stand side by side.
    reversed: BTreeSet<String>,
}

impl Endings {
    pub(super) fn add(&mut self, text: &str) {
        self.reversed.insert(text.chars().rev().collect());
    }

    /// Whether any of them ends so.
    pub(super) fn any_ends_with(&self, end: &str) -> bool {
        let end: String = end.chars().rev().collect();
        let first = self.reversed.range(end.clone()..).next();
        first.is_some_and(|text| text.starts_with(&end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_by_every_end_of_it() {
        let mut endings = Endings::default();
        assert!(!endings.any_ends_with(""));
        for text in ["-vx", "-rax", "é"] {
            endings.add(text);
        }
        for end in ["", "x", "vx", "-vx", "ax", "é"] {
            assert!(endings.any_ends_with(end), "{end}");
        }
        for end in ["v", "-v", "y", "--vx", "a", "e"] {
            assert!(!endings.any_ends_with(end), "{end}");
        }
    }
}
