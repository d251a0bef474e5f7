//! Words that become the names of files. Rules see such a word as it is written, and the program sees what it became:
//! `git ta?` is `git tag` where a file of that name lies. So a rule covers only what no name of a file can change.

use super::Words;
use crate::policy::line::canonical_argv;
use crate::policy::line::tree::{Piece, Word};

/// A word among the arguments that may become others.
#[derive(Debug)]
pub(super) struct Glob {
    pub(super) index: usize,
    /// Every name begins and ends so.
    start: String,
    end: String,
    /// Whether it holds what stands in names of files and not in those of subcommands.
    is_path: bool,
}

impl Glob {
    pub(super) fn of(index: usize, word: &Word) -> Option<Self> {
        let literal = |piece: Option<&Piece>| match piece {
            Some(Piece::Literal(text)) => text.clone(),
            Some(Piece::AnyText | Piece::AnyChar | Piece::OneOf { .. }) | None => String::new(),
        };
        let is_path = |piece: &Piece| matches!(piece, Piece::Literal(text) if text.contains(['/', '.']));
        word.literal().is_none().then(|| Self {
            index,
            start: literal(word.pieces.first()),
            end: literal(word.pieces.last()),
            is_path: word.pieces.iter().any(is_path),
        })
    }

    pub(super) fn may_become(&self, text: &str) -> bool {
        text.starts_with(&self.start) && text.ends_with(&self.end)
    }

    pub(super) fn may_begin_with(&self, text: &str) -> bool {
        agree(&self.start, text)
    }
}

impl Words {
    /// Whether a name of a file may stand where many programs take a subcommand.
    pub(super) fn may_change_subcommand(&self) -> bool {
        let first = self.args.iter().position(|arg| !arg.starts_with('-'));
        self.globs.iter().any(|glob| Some(glob.index) == first && !glob.is_path)
    }

    /// Whether the command may begin with this text once its words are names of files. Nothing is certain behind the
    /// first of these; one that needs quotes begins with one.
    pub(super) fn may_begin_with(&self, text: &str) -> bool {
        self.globs.first().is_some_and(|glob| {
            let before = canonical_argv(&self.name, &self.args[..glob.index]);
            let start = &glob.start;
            agree(&format!("{before} {start}"), text) || agree(&format!("{before} '{start}"), text)
        })
    }
}

/// Whether one text can begin as both do.
fn agree(one: &str, other: &str) -> bool {
    one.starts_with(other) || other.starts_with(one)
}
