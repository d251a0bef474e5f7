//! Unquoted text to pieces: which characters of a word are patterns.

use crate::policy::line::tree::Piece;
use crate::policy::line::word::Part;

/// The pieces, or nothing where a bracket holds more than characters and ranges.
pub(super) fn pieces(parts: &[Part]) -> Option<Vec<Piece>> {
    let live: Vec<(char, bool)> = parts.iter().flat_map(live).collect();
    let last_close = live.iter().rposition(|live| *live == (']', true));
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some((c, unquoted)) = live.get(at) {
        match (c, unquoted) {
            ('*', true) => pieces.push(Piece::AnyText),
            ('?', true) => pieces.push(Piece::AnyChar),
            ('[', true) if last_close.is_some_and(|close| close > at) => match bracket(&live[at..])? {
                Some((length, piece)) => {
                    pieces.push(piece);
                    at += length;
                    continue;
                }
                None => literal(&mut pieces, '['),
            },
            (c, _) => literal(&mut pieces, *c),
        }
        at += 1;
    }
    Some(pieces)
}

fn live(part: &Part) -> Vec<(char, bool)> {
    match part {
        Part::Text(text) => text.chars().map(|c| (c, true)).collect(),
        Part::Quoted(text) => text.chars().map(|c| (c, false)).collect(),
        Part::Expansion(_) => Vec::new(),
    }
}

fn literal(pieces: &mut Vec<Piece>, c: char) {
    match pieces.last_mut() {
        Some(Piece::Literal(text)) => text.push(c),
        Some(Piece::AnyText | Piece::AnyChar | Piece::OneOf { .. }) | None => {
            pieces.push(Piece::Literal(c.to_string()));
        }
    }
}

/// A bracket expression at the start of the text and its length. `Some(None)`: an ordinary bracket;
/// `None`: one that only a shell understands.
#[expect(clippy::option_option, reason = "three answers, spelled out above")]
fn bracket(live: &[(char, bool)]) -> Option<Option<(usize, Piece)>> {
    let mut at = 1;
    let negated = matches!(live.get(at), Some(('!' | '^', true)));
    at += usize::from(negated);
    let first = at;
    let mut ranges = Vec::new();
    loop {
        let Some((c, unquoted)) = live.get(at) else {
            return Some(None);
        };
        match c {
            ']' if at > first && *unquoted => break,
            _ if !unquoted => return None,
            '/' => return None,
            '[' if matches!(live.get(at + 1), Some((':' | '.' | '=', _))) => return None,
            _ => {}
        }
        let upper = match (live.get(at + 1), live.get(at + 2)) {
            (Some(('-', true)), Some((']', true))) => None,
            (Some(('-', true)), Some((upper, _))) => Some(*upper),
            (Some(_), Some(_) | None) | (None, _) => None,
        };
        ranges.push((*c, upper.unwrap_or(*c)));
        at += if upper.is_some() { 3 } else { 1 };
    }
    let written = live[..=at].iter().map(|(c, _)| *c).collect();
    Some(Some((
        at + 1,
        Piece::OneOf {
            negated,
            ranges,
            written,
        },
    )))
}
