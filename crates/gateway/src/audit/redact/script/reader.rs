//! Goes through a text as a shell would: words, lists, substitutions, comments and documents, and what stands in words
//! that are scripts themselves.

use std::collections::HashSet;
use std::ops::Range;

use super::command::{Begun, calls, name_of};
use super::document::Line;
use super::{Command, Letter};
use crate::audit::redact::code::Kind;
use crate::audit::redact::running::Use;

/// Scripts in scripts that are looked into. What lies deeper is shown as it is.
pub(super) const LEVELS_MAX: usize = 8;

pub(super) struct Reader {
    pub(super) owners: Vec<Option<u32>>,
    pub(super) commands: Vec<Command>,
    pub(super) quoted: Vec<Range<usize>>,
    pub(super) data: HashSet<u32>,
    pub(super) unsure: HashSet<u32>,
    pub(super) shown: HashSet<u32>,
    /// Variables that are used as commands.
    pub(super) called: HashSet<String>,
    /// Variables whose text itself is run, and whether anything runs texts.
    pub(super) executed: HashSet<String>,
    pub(super) runs_texts: bool,
    /// Variables that are set to lists, with the places of the commands that the lists were read as.
    pub(super) lists: Vec<(String, Range<usize>)>,
    pub(super) words: u32,
    pub(super) verbs: HashSet<usize>,
    pub(super) programs: HashSet<usize>,
    pub(super) targets: HashSet<u32>,
    pub(super) code: Vec<Option<Kind>>,
    /// What is read is a value, or a list of them: no word of it is a program.
    pub(super) is_value: bool,
    /// What is read stands between quotes of another language.
    pub(super) is_string: bool,
    /// All is part of this word, which nobody runs.
    pub(super) within: Option<u32>,
    /// What is read may have been written for something else than a shell.
    pub(super) is_code: bool,
    /// Commands may run what others say.
    pub(super) is_strict: bool,
    /// The same, of what was read so far.
    pub(super) says_what_runs: bool,
    /// Names of files that are written, and of such as may be run.
    pub(super) written: HashSet<String>,
    pub(super) run: HashSet<String>,
}

impl Reader {
    pub(super) fn new(bytes: usize, is_strict: bool) -> Self {
        Self {
            owners: vec![None; bytes],
            commands: Vec::new(),
            quoted: Vec::new(),
            data: HashSet::new(),
            unsure: HashSet::new(),
            shown: HashSet::new(),
            called: HashSet::new(),
            executed: HashSet::new(),
            runs_texts: false,
            lists: Vec::new(),
            words: 0,
            verbs: HashSet::new(),
            programs: HashSet::new(),
            targets: HashSet::new(),
            code: vec![None; bytes],
            is_value: false,
            is_string: false,
            within: None,
            is_code: false,
            is_strict,
            says_what_runs: false,
            written: HashSet::new(),
            run: HashSet::new(),
        }
    }

    pub(super) fn whole(&mut self, letters: &[Letter], used: Use) {
        match used {
            Use::Script => {
                self.list(letters, 0, None, 0);
            }
            Use::Code => {
                self.is_code = true;
                self.mark(letters, Kind::Program);
                self.list(letters, 0, None, 0);
            }
            Use::Data | Use::Text => {
                self.own(0..letters.last().map_or(0, |last| last.written.end), 0);
                self.inner(letters, used, 0, 0);
            }
        }
    }

    /// What stands in a word, by what becomes of it.
    pub(super) fn inner(&mut self, letters: &[Letter], used: Use, word: u32, level: usize) {
        let (within, is_code) = (self.within, self.is_code);
        if !is_code && matches!(used, Use::Data | Use::Text) {
            self.data.insert(within.unwrap_or(word));
        }
        match used {
            _ if !could_be_script(letters) => self.substitutions(letters, level),
            Use::Data => self.substitutions(letters, level),
            Use::Text => {
                self.within = within.or(Some(word));
                self.list(letters, 0, None, level + 1);
            }
            Use::Script => {
                self.list(letters, 0, None, level + 1);
            }
            Use::Code => {
                self.is_code = true;
                self.list(letters, 0, None, level + 1);
            }
        }
        (self.within, self.is_code) = (within, is_code);
    }

    /// These are code, and stay what they were marked as first.
    pub(super) fn mark(&mut self, letters: &[Letter], kind: Kind) {
        for code in letters.iter().flat_map(|letter| letter.written.clone()) {
            self.code[code].get_or_insert(kind);
        }
    }

    pub(super) fn own(&mut self, written: Range<usize>, word: u32) {
        self.owners[written].fill(Some(self.within.unwrap_or(word)));
    }

    /// What stands between words belongs to none, also where the whole was a word before it was looked into.
    pub(super) fn disown(&mut self, letters: &[Letter]) {
        for letter in letters {
            self.owners[letter.written.clone()].fill(self.within);
        }
    }

    /// Commands that run before what they stand in: they are part of no word.
    pub(super) fn substitution(
        &mut self,
        letters: &[Letter],
        opener: Range<usize>,
        closer: char,
        level: usize,
    ) -> usize {
        let within = self.within.take();
        let is_value = std::mem::take(&mut self.is_value);
        self.disown(&letters[opener.clone()]);
        let end = self.list(letters, opener.end, Some(closer), level + 1);
        (self.within, self.is_value) = (within, is_value);
        end
    }

    /// Whether one command may run what another one says, or writes to a file.
    pub(super) fn may_run_what_it_says(&self) -> bool {
        self.says_what_runs || self.written.iter().any(|file| self.run.contains(file))
    }

    /// Reads commands up to what closes them, and says what comes behind.
    pub(super) fn list(&mut self, letters: &[Letter], mut at: usize, closer: Option<char>, level: usize) -> usize {
        let mut command = Begun::default();
        let mut documents = Vec::new();
        let mut line = Line::default();
        let within = self.within;
        if level >= LEVELS_MAX {
            self.within = None;
        }
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
                    self.finish(std::mem::take(&mut command), &mut line, level);
                    at += 1;
                    for delimiter in documents.drain(..) {
                        at = self.document(letters, at, &delimiter, &line, level);
                    }
                    line = Line::default();
                }
                '>' => {
                    command.writes = true;
                    at += 1;
                }
                ' ' | '\t' | '\r' | '<' => at += 1,
                '|' if !begins(&letters[at..], "||") => {
                    command = Begun {
                        fed_by: self.finish(command, &mut line, level),
                        is_fed: true,
                        ..Begun::default()
                    };
                    at += 1;
                    if begins(&letters[at..], "&") {
                        self.disown(&letters[at..=at]);
                        at += 1;
                    }
                }
                '\n' if command.words.is_empty() => {
                    line = Line::default();
                    at += 1;
                }
                '\n' | ';' | '&' | '|' | ')' => {
                    self.finish(std::mem::take(&mut command), &mut line, level);
                    at += 1;
                    if letter.is == '\n' {
                        line = Line::default();
                    }
                    if letter.is == '|' {
                        self.disown(&letters[at..=at]);
                        at += 1;
                    }
                }
                '(' if level < LEVELS_MAX => {
                    // It may read them: `sh <(…)`.
                    command.is_fed = true;
                    let set = command.words.last().filter(|word| word.sets_nothing());
                    let set = set.map(|word| word.text.trim_end_matches('=').to_owned());
                    self.finish(std::mem::take(&mut command), &mut line, level);
                    let first = self.commands.len();
                    let is_value = std::mem::replace(&mut self.is_value, set.is_some());
                    at = self.list(letters, at + 1, Some(')'), level + 1);
                    self.is_value = is_value;
                    self.lists.extend(set.map(|name| (name, first..self.commands.len())));
                }
                '#' => at = self.comment(letters, at),
                _ if level < LEVELS_MAX => {
                    let (word, next) = self.word(letters, at, closer, level);
                    if std::mem::take(&mut command.writes) && self.within.is_none() {
                        self.written.insert(name_of(&word.text));
                    }
                    if self.is_code && !self.is_string && calls(&word, &letters[next..]) {
                        self.shown.insert(word.id);
                    }
                    command.words.push(word);
                    at = next.max(at + 1);
                }
                _ => at += 1,
            }
        }
        self.finish(command, &mut line, level);
        self.within = within;
        at
    }

    /// Substitutions in what the shell leaves as it is: a program may make something of them, as `make` does.
    pub(super) fn substitutions(&mut self, letters: &[Letter], level: usize) {
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
            at = self.substitution(letters, at..from, closer, level);
        }
    }

    /// A comment never runs; it is one word.
    pub(super) fn comment(&mut self, letters: &[Letter], at: usize) -> usize {
        let length = letters[at..].iter().position(|letter| letter.is == '\n');
        let end = length.map_or(letters.len(), |length| at + length);
        self.words += 1;
        self.own(letters[at].written.start..letters[end - 1].written.end, self.words);
        end
    }
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

/// Whether there is more than one word in it.
fn could_be_script(letters: &[Letter]) -> bool {
    letters
        .iter()
        .any(|letter| letter.is.is_whitespace() || ";&|<>()`".contains(letter.is))
}
