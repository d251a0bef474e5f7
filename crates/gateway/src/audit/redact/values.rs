//! Values that are known to be secret, searched for all at once: however many they are and however often they occur, a
//! text is read once.

use std::ops::Range;
use std::sync::Arc;

use aho_corasick::Anchored;
use aho_corasick::automaton::Automaton;
use aho_corasick::nfa::contiguous::NFA;

#[derive(Clone)]
pub(super) enum Values {
    None,
    Some(Arc<NFA>),
    /// More than can be searched for: each text is withheld as a whole.
    TooMany,
}

impl Values {
    pub(super) fn new(values: &[String]) -> Self {
        if values.is_empty() {
            return Self::None;
        }
        NFA::new(values).map_or(Self::TooMany, |automaton| Self::Some(Arc::new(automaton)))
    }

    /// Where they stand, in order; those that overlap are one.
    pub(super) fn spans(&self, text: &str) -> Vec<Range<usize>> {
        let automaton = match self {
            Self::None => return Vec::new(),
            Self::TooMany => return whole(text),
            Self::Some(automaton) => automaton,
        };
        let Ok(mut state) = automaton.start_state(Anchored::No) else {
            return whole(text);
        };
        let mut spans: Vec<Range<usize>> = Vec::new();
        for (at, byte) in text.bytes().enumerate() {
            state = automaton.next_state(Anchored::No, state, byte);
            if automaton.is_match(state) {
                // Of all that end here the first is the longest, and holds the others.
                let length = automaton.pattern_len(automaton.match_pattern(state, 0));
                add(&mut spans, at + 1 - length..at + 1);
            }
        }
        spans
    }
}

fn whole(text: &str) -> Vec<Range<usize>> {
    std::iter::once(0..text.len()).collect()
}

/// None begins before the last one but a longer one that ends behind it.
fn add(spans: &mut Vec<Range<usize>>, mut span: Range<usize>) {
    while let Some(last) = spans.pop_if(|last| span.start < last.end) {
        span.start = span.start.min(last.start);
    }
    spans.push(span);
}

/// Never what they are.
impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Values")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_overlap_are_one_and_others_are_not() {
        let values = ["abcdef", "defghi", "cdefgh", "a", "bcdefghij"].map(str::to_owned);
        let check = |text: &str, expected: &[&str]| {
            let spans = Values::new(&values).spans(text).into_iter();
            let found: Vec<&str> = spans.map(|span| &text[span]).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("xabcdefghiy", &["abcdefghi"]);
        check("xabcdefghijy", &["abcdefghij"]);
        check("bcdefghij", &["bcdefghij"]);
        check("aa ba", &["a", "a", "a"]);
        check("", &[]);
        check("éaé", &["a"]);
        assert!(Values::new(&[]).spans("abcdef").is_empty());
    }

    /// Each of them stands at each place of the text.
    #[test]
    fn many_values_everywhere_are_found_in_one_pass() {
        let values: Vec<String> = (6..256).map(|length| "a".repeat(length)).collect();
        let text = "a".repeat(1 << 20);
        assert_eq!(Values::new(&values).spans(&text), whole(&text));
    }
}
