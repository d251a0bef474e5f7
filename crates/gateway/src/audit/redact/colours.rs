//! Texts with colours in them. What a program puts between its letters for a terminal is no part of what it says:
//! `grep --color` puts it between a name and its sign, and into the middle of names.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::compiled;

/// What a terminal obeys and does not show: colours and the like, and links.
static SEQUENCES: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))"));

/// What is found in a text without its colours, by its place in the text as it is.
pub(super) fn through(text: &str, find: impl Fn(&str) -> Vec<Range<usize>>) -> Vec<Range<usize>> {
    match Uncoloured::of(text) {
        Some(plain) => find(&plain.text).into_iter().map(|span| plain.written(span)).collect(),
        None => find(text),
    }
}

struct Uncoloured {
    text: String,
    /// Places of the text, each with the bytes that were left out before it.
    cuts: Vec<(usize, usize)>,
}

impl Uncoloured {
    fn of(coloured: &str) -> Option<Self> {
        if !coloured.contains('\u{1b}') {
            return None;
        }
        let mut text = String::with_capacity(coloured.len());
        let mut cuts = Vec::new();
        let mut done = 0;
        for found in SEQUENCES.find_iter(coloured) {
            text.push_str(&coloured[done..found.start()]);
            done = found.end();
            cuts.push((text.len(), done - text.len()));
        }
        text.push_str(&coloured[done..]);
        Some(Self { text, cuts })
    }

    /// Where a span was written; colours at its ends are no part of it.
    fn written(&self, span: Range<usize>) -> Range<usize> {
        let start = self.place(span.start);
        match span.is_empty() {
            true => start..start,
            false => start..self.place(span.end - 1) + 1,
        }
    }

    fn place(&self, at: usize) -> usize {
        let behind = self.cuts.partition_point(|(place, _)| *place <= at);
        at + behind.checked_sub(1).map_or(0, |last| self.cuts[last].1)
    }
}
