//! Finds the end of a nested text without reading it: quotes, comments and further nesting are
//! stepped over. The text is read as a program of its own afterwards, so an end found in the wrong
//! place shows as a syntax error or as odd text behind it.

use super::Reader;

impl Reader<'_> {
    /// The index of the parenthesis that closes the one at `open`.
    pub(super) fn skip_parenthesis(&self, open: usize) -> Option<usize> {
        let mut at = open + 1;
        let mut depth = 1_usize;
        loop {
            match *self.chars.get(at)? {
                ')' if depth == 1 => return Some(at),
                ')' => depth -= 1,
                '(' => depth += 1,
                '#' if self.starts_word(at) => {
                    at += self.chars[at..].iter().position(|c| *c == '\n')?;
                }
                _ => at = self.skip_quotes(at)?,
            }
            at += 1;
        }
    }

    fn starts_word(&self, at: usize) -> bool {
        at.checked_sub(1)
            .and_then(|before| self.chars.get(before))
            .is_some_and(|c| " \t\n;&|()".contains(*c))
    }

    /// Steps over what begins at `at` outside of quotes; gives the index of its last character.
    fn skip_quotes(&self, at: usize) -> Option<usize> {
        match *self.chars.get(at)? {
            '\\' => Some(at + 1),
            '\'' => self.find('\'', at + 1),
            '"' => self.skip_double(at),
            '`' => self.skip_backquotes(at),
            '$' => self.skip_dollar(at),
            _ => Some(at),
        }
    }

    fn skip_dollar(&self, at: usize) -> Option<usize> {
        match self.chars.get(at + 1) {
            Some('(') => self.skip_parenthesis(at + 1),
            Some('{') => self.skip_brace(at + 1),
            Some('\'') => {
                let mut end = at + 2;
                while *self.chars.get(end)? != '\'' {
                    end += if self.chars[end] == '\\' { 2 } else { 1 };
                }
                Some(end)
            }
            // `$$` is a parameter of its own and no start of what follows.
            Some('$') => Some(at + 1),
            Some(_) | None => Some(at),
        }
    }

    fn skip_double(&self, open: usize) -> Option<usize> {
        let mut at = open + 1;
        loop {
            match *self.chars.get(at)? {
                '"' => return Some(at),
                '\\' => at += 1,
                '`' => at = self.skip_backquotes(at)?,
                '$' => match self.chars.get(at + 1) {
                    Some('(') => at = self.skip_parenthesis(at + 1)?,
                    Some('{') => at = self.skip_brace(at + 1)?,
                    Some(_) | None => {}
                },
                _ => {}
            }
            at += 1;
        }
    }

    fn skip_brace(&self, open: usize) -> Option<usize> {
        let mut at = open + 1;
        while *self.chars.get(at)? != '}' {
            at = self.skip_quotes(at)? + 1;
        }
        Some(at)
    }

    fn skip_backquotes(&self, open: usize) -> Option<usize> {
        let mut at = open + 1;
        while *self.chars.get(at)? != '`' {
            at += if self.chars[at] == '\\' { 2 } else { 1 };
        }
        Some(at)
    }

    fn find(&self, wanted: char, from: usize) -> Option<usize> {
        (from..self.chars.len()).find(|i| self.chars[*i] == wanted)
    }
}
