//! Words of the tree: what they run, set and compute.

use brush_parser::SourceSpan;
use brush_parser::ast::Word;

use super::Walker;
use super::numbers::Certain;
use crate::policy::line::arithmetic::{self, Place};
use crate::policy::line::guard::LineError;
use crate::policy::line::position::{Origin, Position};
use crate::policy::line::word::{self, Context, Nested, Part};

impl Walker<'_> {
    /// Walks everything a word runs, and gives its parts.
    pub(super) fn word(&mut self, word: &Word, context: Context) -> Result<Vec<Part>, LineError> {
        let origin = self.word_origin(word);
        self.text(&word.value, origin, context)
    }

    pub(super) fn text(&mut self, text: &str, origin: Origin, context: Context) -> Result<Vec<Part>, LineError> {
        let parts = word::parse(text, context);
        let here = self.whole.at(origin.fallback);
        for what in parts.odd {
            self.unclear(what, here);
        }
        for name in parts.assigned {
            self.assign(&name, here);
            self.facts.numbers.assigned(&name, Certain::NOTHING);
        }
        self.programs(&parts.programs, origin)?;
        for text in parts.arithmetic {
            self.arithmetic_text(&text, Place::Expression, here)?;
        }
        Ok(parts.parts)
    }

    pub(super) fn arithmetic(&mut self, text: &str, place: Place, span: &SourceSpan) -> Result<(), LineError> {
        let here = self.span(span);
        self.arithmetic_text(text, place, here)
    }

    pub(super) fn arithmetic_text(&mut self, text: &str, place: Place, here: Position) -> Result<(), LineError> {
        let found = arithmetic::parse(text, place);
        for what in found.odd {
            self.unclear(what, here);
        }
        for name in found.set {
            self.assign(&name, here);
            self.facts.numbers.assigned(&name, Certain::NUMBER);
        }
        for name in found.expanded {
            self.facts.numbers.read(name, here);
        }
        for name in found.read {
            if !found.only_reads {
                self.assign(&name, here);
            }
            self.facts.numbers.read(name, here);
        }
        let index = self.whole.index(here);
        let origin = Origin {
            base: None,
            fallback: index,
        };
        self.programs(&found.programs, origin)
    }

    fn programs(&mut self, programs: &[Nested], origin: Origin) -> Result<(), LineError> {
        for program in programs {
            let inside = match program.index {
                Some(index) => origin.inside(index, true),
                None => Origin {
                    base: None,
                    fallback: origin.fallback,
                },
            };
            self.nested(&program.text, inside)?;
        }
        Ok(())
    }

    pub(super) fn word_position(&self, word: &Word) -> Position {
        self.whole.at(self.word_origin(word).fallback)
    }

    /// Where a word begins, and whether its text stands in the source letter by letter.
    pub(super) fn word_origin(&self, word: &Word) -> Origin {
        let Some(span) = &word.loc else {
            return Origin {
                base: None,
                fallback: self.origin.map(0),
            };
        };
        let start = self.settle(span.start.index);
        let verbatim = self
            .local
            .get(start..)
            .is_some_and(|rest| starts_with(rest, &word.value));
        self.origin.inside(start, verbatim)
    }
}

fn starts_with(chars: &[char], text: &str) -> bool {
    let mut rest = chars.iter();
    text.chars().all(|c| rest.next() == Some(&c))
}
