//! A text that somebody runs, taken apart as a shell would. Whoever reads it must see every command in it: what is
//! hidden stays within one word, and a substitution in that word stays readable. Otherwise
//! `PASSWORD="$(rm -rf .)"` would be asked about, and recorded, as `PASSWORD="[redacted]"`.
//!
//! Quoted words may be scripts themselves (`sh -c '…'`), so they are taken apart in turn where their program may run
//! them. Elsewhere they are read for the secrets in them and stay one word, as documents and other texts do that nobody
//! runs. Where one command may run what another says or writes, no text is taken for such a one. Nothing is refused
//! here: an unfinished quote reaches to the end.

mod command;
mod document;
mod reader;
mod variables;
mod word;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use reader::Reader;

use super::code::Kind;
use super::reach::Reach;
use super::running::Use;
use super::{is_name, is_secret_name, reach, words};

/// A command of the text: its words in order.
pub(super) type Command = Vec<Word>;

pub(super) struct Script {
    /// For each byte the word that it belongs to; nothing between words.
    owners: Vec<Option<u32>>,
    pub(super) commands: Vec<Command>,
    /// What stands between quotes without any in it, and is not itself a program's script, in order.
    quoted: Vec<Range<usize>>,
    /// Words that nobody runs, nor a part of them.
    data: HashSet<u32>,
    /// Words of which nobody knows that they are run, nor that they are not.
    unsure: HashSet<u32>,
    /// Words that run, though they look like what a name stands for: `TOKEN= rm`, and `TOKEN=rm` where `$TOKEN` is a
    /// command.
    shown: HashSet<u32>,
    /// Where words begin that say what is done: programs, and the files that interpreters run.
    verbs: HashSet<usize>,
    /// Those of them that are programs, which are looked for by their names.
    programs: HashSet<usize>,
    /// Words that are acted upon: what a command is given, and what it is to do.
    targets: HashSet<u32>,
    /// For each byte of which kind of code it is a part.
    code: Vec<Option<Kind>>,
    /// A program in it runs texts, wherever it has them from.
    pub(super) runs_texts: bool,
    /// Variables that hold what is run, whatever they are called.
    pub(super) executed: HashSet<String>,
}

/// One word, without its quotes.
#[derive(Default)]
pub(super) struct Word {
    pub(super) text: String,
    /// What its bytes are marked with.
    id: u32,
    /// Its characters, with the bytes that each was written with.
    letters: Vec<Letter>,
    /// The letters between quotes, as indexes.
    quoted: Vec<Range<usize>>,
    /// A variable or a substitution is part of it.
    varies: bool,
    /// The commands of its substitutions, by their places.
    substituted: Vec<Range<usize>>,
    /// It is said to a program that takes it for a secret.
    pub(super) is_secret: bool,
}

#[derive(Clone)]
struct Letter {
    is: char,
    written: Range<usize>,
}

impl Script {
    /// A line that a shell runs.
    pub(super) fn read(text: &str) -> Self {
        Self::begun(text, Use::Script)
    }

    /// Text in any language, of which any part may run.
    pub(super) fn of_code(text: &str, kind: Kind) -> Self {
        let mut script = Self::begun(text, Use::Code);
        script.code.fill(Some(kind));
        script
    }

    /// One of the words of a command.
    pub(super) fn of_argument(text: &str, used: Use) -> Self {
        let mut script = Self::begun(text, used);
        script.unsure.extend((used == Use::Text).then_some(0));
        script
    }

    /// One of the words of a command that holds a secret by its name. A program may still find substitutions of its own.
    pub(super) fn of_named(text: &str, reach: Reach) -> Self {
        let mut script = Self::begun(text, Use::Data);
        script.unsure.extend(reach.may_be_command().then_some(0));
        script
    }

    /// Text that nobody runs, where secrets may stand among the words of commands.
    pub(super) fn of_text(text: &str) -> Self {
        Self::begun(text, Use::Text)
    }

    fn begun(text: &str, used: Use) -> Self {
        let letters = text.char_indices().map(|(at, is)| Letter {
            is,
            written: at..at + is.len_utf8(),
        });
        let letters: Vec<_> = letters.collect();
        let mut reader = Reader::new(text.len(), false);
        reader.whole(&letters, used);
        if reader.may_run_what_it_says() {
            reader = Reader::new(text.len(), true);
            reader.whole(&letters, used);
        }
        reader.show_what_is_called();
        reader.quoted.sort_unstable_by_key(|quoted| quoted.start);
        Self {
            owners: reader.owners,
            commands: reader.commands,
            quoted: reader.quoted,
            data: reader.data,
            unsure: reader.unsure,
            shown: reader.shown,
            verbs: reader.verbs,
            programs: reader.programs,
            targets: reader.targets,
            code: reader.code,
            runs_texts: reader.runs_texts,
            executed: reader.executed,
        }
    }

    /// Whether the word here runs, whatever it is given to.
    pub(super) fn runs_at(&self, at: usize) -> bool {
        let owner = self.owners.get(at).copied().flatten();
        owner.is_some_and(|owner| self.shown.contains(&owner))
    }

    /// Whether what stands here is part of a word that nobody runs.
    pub(super) fn is_data_at(&self, at: usize) -> bool {
        let owner = self.owners.get(at).copied().flatten();
        owner.is_some_and(|owner| self.data.contains(&owner))
    }

    /// The same values, but where a command may follow one, for all that is known, only what stands before that.
    pub(super) fn before_commands(&self, text: &str, values: Vec<Range<usize>>) -> Vec<Range<usize>> {
        if self.unsure.is_empty() {
            return values;
        }
        let words = self.commands.iter().flatten();
        let words = words.filter(|word| self.unsure.contains(&word.id));
        let words: HashMap<u32, &Word> = words.map(|word| (word.id, word)).collect();
        let owner = |at: usize| self.owners.get(at).copied().flatten();
        let values = values.into_iter().map(|value| match owner(value.start) {
            Some(id) if !self.unsure.contains(&id) => value,
            Some(id) if words.contains_key(&id) => words[&id].before_command(value),
            Some(_) => reach::before_command(text, value),
            None => value,
        });
        values.collect()
    }

    /// Whether the word that begins here says what is done.
    pub(super) fn is_verb_at(&self, at: usize) -> bool {
        self.verbs.contains(&at)
    }

    /// Whether the word that begins here is a program, and no file that another one runs.
    pub(super) fn is_program_at(&self, at: usize) -> bool {
        self.programs.contains(&at)
    }

    /// Of which kind of code this is a part.
    pub(super) fn code_at(&self, at: usize) -> Option<Kind> {
        self.code.get(at).copied().flatten()
    }

    /// Whether the word here is acted upon, rather than said or sent to somebody.
    pub(super) fn is_target_at(&self, at: usize) -> bool {
        let owner = self.owners.get(at).copied().flatten();
        self.is_verb_at(at) || owner.is_some_and(|owner| self.targets.contains(&owner))
    }

    /// The same, of what is given to a script rather than one itself.
    #[must_use]
    pub(super) fn without_verbs(mut self) -> Self {
        self.verbs.clear();
        self
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

    /// Whether all of a range stands between the same quotes, with nothing in it that runs before.
    pub(super) fn is_quoted(&self, range: &Range<usize>) -> bool {
        let behind = self.quoted.partition_point(|quoted| quoted.start <= range.start);
        let before = behind.checked_sub(1).map(|at| &self.quoted[at]);
        before.is_some_and(|quoted| range.end <= quoted.end)
    }
}

/// For each word of a command what of it is a secret.
pub(super) fn hidden(command: &Command) -> Vec<Option<Range<usize>>> {
    let texts: Vec<&str> = command.iter().map(|word| word.text.as_str()).collect();
    let told = command.iter().map(|word| word.is_secret.then_some(0..word.text.len()));
    told.zip(words::hidden(&texts))
        .map(|(told, named)| told.or(named))
        .collect()
}

impl Word {
    /// Whether it is `NAME=` and no more.
    fn sets_nothing(&self) -> bool {
        !self.varies && self.quoted.is_empty() && self.text.strip_suffix('=').is_some_and(is_name)
    }

    /// The commands that say what a secret's variable is set to.
    fn substituted_secret(&self) -> Option<Range<usize>> {
        let (name, _) = self.text.split_once('=')?;
        let (first, last) = (self.substituted.first()?, self.substituted.last()?);
        (is_name(name) && is_secret_name(name)).then_some(first.start..last.end)
    }

    /// What of a value in it stands before the next command, if the word is a shell's text. The quotes around the word
    /// are none of that.
    fn before_command(&self, value: Range<usize>) -> Range<usize> {
        const NEARBY: usize = 4;
        let first = self
            .letters
            .partition_point(|letter| letter.written.start < value.start);
        let last = self.letters.partition_point(|letter| letter.written.start < value.end);
        let (from, to) = (first.saturating_sub(NEARBY), (last + NEARBY).min(self.letters.len()));
        let text: String = self.letters[from..to].iter().map(|letter| letter.is).collect();
        let bytes = |letters: &[Letter]| -> usize { letters.iter().map(|letter| letter.is.len_utf8()).sum() };
        let start = bytes(&self.letters[from..first]);
        let end = start + bytes(&self.letters[first..last]);
        let kept = reach::before_command(&text, start..end);
        let letters = text[kept].chars().count();
        match self.letters[first..first + letters].last() {
            Some(last) => value.start..last.written.end,
            None => value.start..value.start,
        }
    }

    /// What was written for these bytes of its text.
    pub(super) fn written(&self, bytes: Range<usize>) -> Range<usize> {
        let letters = self.letters.iter().scan(0, |at, letter| {
            let here = *at;
            *at += letter.is.len_utf8();
            Some((here, letter))
        });
        let mut letters = letters.skip_while(|(at, _)| *at < bytes.start);
        let end = self.letters.last().map_or(0, |letter| letter.written.end);
        let Some((_, first)) = letters.next().filter(|(at, _)| *at < bytes.end) else {
            return end..end;
        };
        let last = letters.take_while(|(at, _)| *at < bytes.end).last();
        first.written.start..last.map_or(first, |(_, letter)| letter).written.end
    }
}

#[cfg(test)]
mod tests;
