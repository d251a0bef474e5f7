//! Here-documents. Where one ends is told by its tag, and readers differ over unusual tags and places, so only usual
//! ones are clear unless [`Documents`](crate::policy::line::documents::Documents) knows where they are.

use brush_parser::ast::IoHereDocument;

use super::Walker;
use crate::policy::line::guard::{LineError, is_closed};
use crate::policy::line::joined::joined;
use crate::policy::line::word::Context;

impl Walker<'_> {
    pub(super) fn here_document(&mut self, document: &IoHereDocument) -> Result<(), LineError> {
        let position = self.word_position(&document.here_end);
        if self.is_certain(document) {
            if document.requires_expansion {
                self.word(&document.doc, Context::Body)?;
            }
            return Ok(());
        }
        if !is_usual(&document.here_end.value) {
            self.unclear("the tag of a here-document", position);
        }
        self.facts.documents += 1;
        if self.facts.documents > 1 {
            self.unclear("more than one here-document", position);
        } else if let Some(what) = self.unusual_place(&document.doc.value) {
            self.unclear(what, position);
        }
        if document.requires_expansion {
            // Bash joins them while it looks for the end, also inside substitutions.
            if document.doc.value.contains("\\\n") {
                self.unclear("a continued line in a here-document", position);
            }
            self.word(&document.doc, Context::Body)?;
        }
        Ok(())
    }

    fn is_certain(&self, document: &IoHereDocument) -> bool {
        let tag = document.here_end.loc.as_ref().map(|span| self.settle(span.start.index));
        self.depth == 0 && tag.is_some_and(|tag| self.documents.is_certain(tag))
    }

    /// A second document, or a word that goes over the end of the line, moves the place where the
    /// body begins. What stands in the body itself does not count.
    fn unusual_place(&self, body: &str) -> Option<&'static str> {
        let text: String = match self.depth {
            0 => self.documents.visible()[self.documents.unread()..].to_owned(),
            _ => self.local.iter().collect(),
        };
        let (whole, body) = (joined(&text), joined(body));
        if openings(&whole) > openings(&body) + 1 {
            return Some("more than one here-document");
        }
        // Bash falls back from `((` to nested subshells, and finds the document accordingly.
        if whole.matches("((").count() > body.matches("((").count() {
            return Some("`((` together with `<<`");
        }
        let first = text.lines().find(|line| line.contains("<<"));
        if first.is_none_or(|line| !is_closed(line)) {
            return Some("the line a here-document begins on");
        }
        None
    }
}

/// Operators of here-documents, wherever they stand.
fn openings(text: &str) -> usize {
    text.replace("<<<", "").matches("<<").count()
}

fn is_usual(tag: &str) -> bool {
    let inner = [('\'', '\''), ('"', '"')]
        .iter()
        .find_map(|(open, close)| tag.strip_prefix(*open)?.strip_suffix(*close))
        .or_else(|| tag.strip_prefix('\\'))
        .unwrap_or(tag);
    !inner.is_empty() && inner.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}
