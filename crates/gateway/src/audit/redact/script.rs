//! A text that somebody runs, taken apart as a shell would. Whoever reads it must see every command in it: what is
//! hidden stays within one word, and a substitution in that word stays readable. Otherwise
//! `PASSWORD="$(rm -rf .)"` would be asked about, and recorded, as `PASSWORD="[redacted]"`.
//!
//! Quoted words may be scripts themselves (`sh -c '…'`), so they are taken apart in turn, unless their program is known
//! to take them for data. Nothing is refused here: an unfinished quote reaches to the end.

use std::ops::Range;

use super::words;
use crate::policy::interpreters::is_interpreter;

/// Scripts in scripts that are looked into. What lies deeper is shown as it is.
const LEVELS_MAX: usize = 8;

/// Programs that run none of their arguments.
const TAKE_DATA: &[&str] = &[
    "curl", "echo", "egrep", "fgrep", "grep", "grpcurl", "http", "https", "jq", "printf", "rg", "wget", "xh",
];

/// Programs that put their arguments together and run them, besides shells and interpreters.
const RUN_WORDS: &[&str] = &["eval", "make", "parallel", "runuser", "script", "ssh", "su", "watch"];

/// A command of the text: its words in order.
pub(super) type Command = Vec<Word>;

pub(super) struct Script {
    /// For each byte the word that it belongs to; nothing between words.
    owners: Vec<Option<u32>>,
    pub(super) commands: Vec<Command>,
}

/// One word, without its quotes.
#[derive(Default)]
pub(super) struct Word {
    pub(super) text: String,
    /// Its characters, with the bytes that each was written with.
    letters: Vec<Letter>,
    /// The letters between quotes, as indexes.
    quoted: Vec<Range<usize>>,
    /// It is said to a program that takes it for a secret.
    pub(super) is_secret: bool,
}

/// A command that is being read.
#[derive(Default)]
struct Begun {
    words: Command,
    /// Those of its words that it reads, as indexes.
    read: Vec<usize>,
    /// The command before it, whose output it reads.
    fed_by: Option<usize>,
}

#[derive(Clone)]
struct Letter {
    is: char,
    written: Range<usize>,
}

impl Script {
    pub(super) fn read(text: &str) -> Self {
        Self::begun(text, None)
    }

    /// The argument of a program, which is one word of it.
    pub(super) fn of_argument(program: &str, text: &str) -> Self {
        Self::begun(text, Some(program))
    }

    /// Text that nobody runs as it is, in which a program may still find substitutions of its own.
    pub(super) fn of_data(text: &str) -> Self {
        Self::begun(text, Some(TAKE_DATA[0]))
    }

    fn begun(text: &str, program: Option<&str>) -> Self {
        let mut reader = Reader {
            owners: vec![None; text.len()],
            commands: Vec::new(),
            words: 0,
        };
        let letters = text.char_indices().map(|(at, is)| Letter {
            is,
            written: at..at + is.len_utf8(),
        });
        let letters: Vec<_> = letters.collect();
        if program.is_some_and(takes_data) || program.is_some() && !could_be_script(&letters) {
            reader.own(0..text.len(), 0);
            reader.substitutions(&letters, 0);
        } else {
            reader.list(&letters, 0, None, 0);
        }
        Self {
            owners: reader.owners,
            commands: reader.commands,
        }
    }

    /// What of a range belongs to the word that it begins in. Substitutions in it do not.
    pub(super) fn within_word(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let mut kept: Vec<Range<usize>> = Vec::new();
        // A word that begins with a substitution is known by the quote or the name before it.
        let before = range.start.checked_sub(1).and_then(|at| self.owners[at]);
        let Some(owner) = self.owners.get(range.start).copied().flatten().or(before) else {
            return kept;
        };
        for at in range.filter(|&at| self.owners[at] == Some(owner)) {
            match kept.last_mut() {
                Some(last) if last.end == at => last.end = at + 1,
                _ => kept.push(at..at + 1),
            }
        }
        kept
    }
}

/// For each word of a command the byte from which it is a secret, up to its end.
pub(super) fn hidden(command: &Command) -> Vec<Option<usize>> {
    let texts: Vec<&str> = command.iter().map(|word| word.text.as_str()).collect();
    let told = command.iter().map(|word| word.is_secret.then_some(0));
    told.zip(words::hidden(&texts))
        .map(|(told, named)| told.or(named))
        .collect()
}

impl Word {
    /// What was written for its text from this byte on.
    pub(super) fn written(&self, from: usize) -> Range<usize> {
        let mut letters = self.letters.iter().scan(0, |at, letter| {
            let here = *at;
            *at += letter.is.len_utf8();
            Some((here, letter))
        });
        let start = letters
            .find(|(at, _)| *at >= from)
            .map(|(_, letter)| letter.written.start);
        let end = self.letters.last().map_or(0, |letter| letter.written.end);
        start.unwrap_or(end)..end
    }
}

struct Reader {
    owners: Vec<Option<u32>>,
    commands: Vec<Command>,
    words: u32,
}

impl Reader {
    fn own(&mut self, written: Range<usize>, word: u32) {
        self.owners[written].fill(Some(word));
    }

    /// What stands between words belongs to none, also where the whole was a word before it was looked into.
    fn disown(&mut self, letters: &[Letter]) {
        for letter in letters {
            self.owners[letter.written.clone()].fill(None);
        }
    }

    /// Reads commands up to what closes them, and says what comes behind.
    fn list(&mut self, letters: &[Letter], mut at: usize, closer: Option<char>, level: usize) -> usize {
        let mut command = Begun::default();
        let mut documents = Vec::new();
        while let Some(letter) = letters.get(at) {
            self.disown(&letters[at..=at]);
            match letter.is {
                is if Some(is) == closer => {
                    at += 1;
                    break;
                }
                '<' if opens_document(&letters[at..]) => {
                    let dash = usize::from(letters.get(at + 2).is_some_and(|letter| letter.is == '-'));
                    let blank = letters[at + 2 + dash..].iter().take_while(|letter| letter.is == ' ');
                    let begin = at + 2 + dash + blank.count();
                    let (delimiter, next) = self.word(letters, begin, closer, level);
                    documents.push(delimiter.text);
                    at = next.max(begin);
                }
                '<' if begins(&letters[at..], "<<<") => {
                    self.disown(&letters[at..at + 3]);
                    command.read.push(command.words.len());
                    at += 3;
                }
                '\n' if !documents.is_empty() => {
                    let reads_secret = command.reads_secret();
                    self.finish(std::mem::take(&mut command), level);
                    at += 1;
                    for delimiter in documents.drain(..) {
                        at = self.document(letters, at, &delimiter, (level, reads_secret));
                    }
                }
                ' ' | '\t' | '\r' | '<' | '>' => at += 1,
                '|' if !begins(&letters[at..], "||") => {
                    command = Begun {
                        fed_by: self.finish(command, level),
                        ..Begun::default()
                    };
                    at += 1;
                    if begins(&letters[at..], "&") {
                        self.disown(&letters[at..=at]);
                        at += 1;
                    }
                }
                '\n' if command.words.is_empty() => at += 1,
                '\n' | ';' | '&' | '|' | ')' => {
                    self.finish(std::mem::take(&mut command), level);
                    at += 1;
                    if letter.is == '|' {
                        self.disown(&letters[at..=at]);
                        at += 1;
                    }
                }
                '(' if level < LEVELS_MAX => {
                    self.finish(std::mem::take(&mut command), level);
                    at = self.list(letters, at + 1, Some(')'), level + 1);
                }
                '#' => at = self.comment(letters, at),
                _ if level < LEVELS_MAX => {
                    let (word, next) = self.word(letters, at, closer, level);
                    command.words.push(word);
                    at = next.max(at + 1);
                }
                _ => at += 1,
            }
        }
        self.finish(command, level);
        at
    }

    /// What stands between a command and its delimiter may be a script too; its quotes end with it.
    fn document(
        &mut self,
        letters: &[Letter],
        from: usize,
        delimiter: &str,
        (level, is_secret): (usize, bool),
    ) -> usize {
        let mut at = from;
        while at < letters.len() {
            let length = letters[at..].iter().position(|letter| letter.is == '\n');
            let end = length.map_or(letters.len(), |length| at + length);
            let line = letters[at..end].iter().map(|letter| letter.is);
            if line.skip_while(|is| *is == '\t').eq(delimiter.chars()) {
                break;
            }
            at = end + 1;
        }
        let end = at.min(letters.len());
        let said = &letters[from.min(end)..end];
        if is_secret {
            self.secret(said, level);
        } else if level < LEVELS_MAX {
            self.list(said, 0, None, level + 1);
        }
        let line = letters[end..].iter().position(|letter| letter.is == '\n');
        line.map_or(letters.len(), |length| end + length)
    }

    /// What a program takes for a secret, whole but for the end of its last line.
    fn secret(&mut self, said: &[Letter], level: usize) {
        let length = said.iter().rposition(|letter| letter.is != '\n');
        let said = &said[..length.map_or(0, |last| last + 1)];
        self.words += 1;
        let id = self.words;
        let mut word = Word {
            is_secret: true,
            ..Word::default()
        };
        for at in 0..said.len() {
            self.literal(&mut word, said, at, id);
        }
        self.substitutions(said, level);
        self.commands.push(vec![word]);
    }

    /// Substitutions in what the shell leaves as it is: a program may make something of them, as `make` does.
    fn substitutions(&mut self, letters: &[Letter], level: usize) {
        let last = |is: char| letters.iter().rposition(|letter| letter.is == is).unwrap_or(0);
        let (last_bracket, last_tick) = (last(')'), last('`'));
        let mut at = 0;
        while at < letters.len() && level < LEVELS_MAX {
            let next = letters.get(at + 1).map(|letter| letter.is);
            let (from, closer) = match (letters[at].is, next) {
                ('$', Some('(')) if at < last_bracket => (at + 2, ')'),
                ('`', _) if at < last_tick => (at + 1, '`'),
                _ => {
                    at += 1;
                    continue;
                }
            };
            self.disown(&letters[at..from]);
            at = self.list(letters, from, Some(closer), level + 1);
        }
    }

    /// A comment never runs; it is one word.
    fn comment(&mut self, letters: &[Letter], at: usize) -> usize {
        let length = letters[at..].iter().position(|letter| letter.is == '\n');
        let end = length.map_or(letters.len(), |length| at + length);
        self.words += 1;
        self.own(letters[at].written.start..letters[end - 1].written.end, self.words);
        end
    }

    fn word(&mut self, letters: &[Letter], mut at: usize, closer: Option<char>, level: usize) -> (Word, usize) {
        self.words += 1;
        let id = self.words;
        let mut word = Word::default();
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
                    self.disown(&letters[at..at + 2]);
                    at = self.list(letters, at + 2, Some(')'), level + 1);
                }
                (None, '`') if closer == Some('`') => break,
                (None | Some('"'), '`') if closer != Some('`') => {
                    self.disown(&letters[at..=at]);
                    at = self.list(letters, at + 1, Some('`'), level + 1);
                }
                (None, ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>') => break,
                _ => at = self.literal(&mut word, letters, at, id),
            }
        }
        (word, at)
    }

    fn literal(&mut self, word: &mut Word, letters: &[Letter], at: usize, id: u32) -> usize {
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

    /// Looks into what the words of a command may run. A secret is data to most programs, and to none it is a script
    /// where it is assigned before the program. Gives the place of the command.
    fn finish(&mut self, mut begun: Begun, level: usize) -> Option<usize> {
        if begun.words.is_empty() {
            return None;
        }
        if begun.reads_secret() {
            for &at in &begun.read {
                if let Some(word) = begun.words.get_mut(at) {
                    word.is_secret = true;
                }
            }
            let before = begun.fed_by.and_then(|at| self.commands.get_mut(at));
            before.into_iter().for_each(what_it_says_is_secret);
        }
        let command = begun.words;
        let texts: Vec<&str> = command.iter().map(|word| word.text.as_str()).collect();
        let program_at = texts.iter().position(|text| !text.contains('=')).unwrap_or(texts.len());
        let program = texts.get(program_at).copied().unwrap_or_default();
        for (at, (word, secret)) in command.iter().zip(hidden(&command)).enumerate() {
            let is_data = takes_data(program) || secret.is_some() && (at < program_at || !runs_words(program));
            for quoted in &word.quoted {
                let inner = &word.letters[quoted.clone()];
                if is_data || !could_be_script(inner) || level >= LEVELS_MAX {
                    self.substitutions(inner, level);
                } else {
                    self.list(inner, 0, None, level + 1);
                }
            }
        }
        self.commands.push(command);
        Some(self.commands.len() - 1)
    }
}

impl Begun {
    fn reads_secret(&self) -> bool {
        let texts: Vec<&str> = self.words.iter().map(|word| word.text.as_str()).collect();
        words::read_secret(&texts)
    }
}

/// Of a command that prints its arguments: all but its options, and but for the pattern that they are put into.
fn what_it_says_is_secret(command: &mut Command) {
    let Some((program, said)) = command.split_first_mut() else {
        return;
    };
    let patterns = match program.text.as_str() {
        "echo" => 0,
        "printf" => usize::from(said.len() > 1),
        _ => return,
    };
    let said = said.iter_mut().filter(|word| !word.text.starts_with('-'));
    said.skip(patterns).for_each(|word| word.is_secret = true);
}

/// Whether a program runs what it is given as arguments, put together or one of them.
pub(super) fn runs_words(program: &str) -> bool {
    let base = program.rsplit('/').next().unwrap_or_default();
    is_interpreter(program) || RUN_WORDS.contains(&base)
}

/// `<<`, and not `<<<`.
fn opens_document(letters: &[Letter]) -> bool {
    begins(letters, "<<") && !begins(letters, "<<<")
}

fn begins(letters: &[Letter], with: &str) -> bool {
    let mut letters = letters.iter();
    with.chars()
        .all(|is| letters.next().is_some_and(|letter| letter.is == is))
}

fn takes_data(program: &str) -> bool {
    let base = program.rsplit('/').next().unwrap_or_default();
    TAKE_DATA.contains(&base)
}

/// Whether there is more than one word in it.
fn could_be_script(letters: &[Letter]) -> bool {
    letters
        .iter()
        .any(|letter| letter.is.is_whitespace() || ";&|<>()`".contains(letter.is))
}

#[cfg(test)]
mod tests;
