//! One word of a script, with its quotes, escapes and substitutions.

use std::ops::Range;

use super::reader::Reader;
use super::{Letter, Word};

impl Reader {
    pub(super) fn word(
        &mut self,
        letters: &[Letter],
        mut at: usize,
        closer: Option<char>,
        level: usize,
    ) -> (Word, usize) {
        self.words += 1;
        let id = self.words;
        let mut word = Word { id, ..Word::default() };
        let mut quote = None;
        let mut opened = 0;
        while let Some(letter) = letters.get(at) {
            let next = letters.get(at + 1).map(|letter| letter.is);
            let ends_quote = match quote {
                Some('$') => '\'',
                Some(other) => other,
                None => '\0',
            };
            match (quote, letter.is) {
                (Some(_), is) if is == ends_quote => {
                    word.quoted.push(opened..word.letters.len());
                    quote = None;
                    self.own(letter.written.clone(), id);
                    at += 1;
                }
                (Some('\''), _) => at = self.literal(&mut word, letters, at, id),
                (None, '"' | '\'') => {
                    (quote, opened) = (Some(letter.is), word.letters.len());
                    self.own(letter.written.clone(), id);
                    at += 1;
                }
                // The shell's own number: a quote behind it is an ordinary one.
                (None, '$') if next == Some('$') => {
                    at = self.literal(&mut word, letters, at, id);
                    at = self.literal(&mut word, letters, at, id);
                }
                (None, '$') if matches!(next, Some('\'' | '"')) => {
                    self.own(letter.written.start..letters[at + 1].written.end, id);
                    quote = if next == Some('"') { next } else { Some('$') };
                    opened = word.letters.len();
                    at += 2;
                }
                (_, '\\') if next.is_some() => {
                    self.own(letter.written.clone(), id);
                    at = self.escaped(&mut word, letters, at, (quote, id));
                }
                (None | Some('"'), '$') if next == Some('(') => {
                    at = self.substituted(&mut word, letters, at..at + 2, (')', level));
                }
                (None, '`') if closer == Some('`') => break,
                (None | Some('"'), '`') if closer != Some('`') => {
                    at = self.substituted(&mut word, letters, at..at + 1, ('`', level));
                }
                (None, ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>') => break,
                (_, is) => {
                    word.varies |= is == '$';
                    at = self.literal(&mut word, letters, at, id);
                }
            }
        }
        (word, at)
    }

    fn substituted(
        &mut self,
        word: &mut Word,
        letters: &[Letter],
        opener: Range<usize>,
        (closer, level): (char, usize),
    ) -> usize {
        let first = self.commands.len();
        let end = self.substitution(letters, opener, closer, level);
        word.varies = true;
        word.substituted.push(first..self.commands.len());
        end
    }

    pub(super) fn literal(&mut self, word: &mut Word, letters: &[Letter], at: usize, id: u32) -> usize {
        self.own(letters[at].written.clone(), id);
        word.text.push(letters[at].is);
        word.letters.push(letters[at].clone());
        at + 1
    }

    /// What stands behind a backslash. Between double quotes most characters keep theirs.
    fn escaped(&mut self, word: &mut Word, letters: &[Letter], at: usize, (quote, id): (Option<char>, u32)) -> usize {
        let is = letters[at + 1].is;
        let written = letters[at].written.start..letters[at + 1].written.end;
        self.own(letters[at + 1].written.clone(), id);
        let mut put = |is: char| {
            word.text.push(is);
            word.letters.push(Letter {
                is,
                written: written.clone(),
            });
        };
        match (quote, is) {
            (Some('$'), 'n') => put('\n'),
            (Some('$'), 't') => put('\t'),
            (None | Some('"'), '\n') => {}
            (Some('"'), is) if !matches!(is, '"' | '\\' | '$' | '`') => {
                put('\\');
                put(is);
            }
            (_, is) => put(is),
        }
        at + 2
    }
}
