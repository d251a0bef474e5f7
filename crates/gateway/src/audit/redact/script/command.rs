//! What a command tells once its words are read: what it runs of them, what others say to it, and which variables it
//! takes for commands.

use std::ops::Range;

use super::document::{Line, what_it_puts_behind_a_name_is_secret, what_it_says_is_secret, what_it_sets_is_secret};
use super::reader::Reader;
use super::{Command, Letter, Word, hidden};
use crate::audit::redact::code::Kind;
use crate::audit::redact::reach::Reach;
use crate::audit::redact::running::{Running, Use};
use crate::audit::redact::words;

/// A command that is being read.
#[derive(Default)]
pub(super) struct Begun {
    pub(super) words: Command,
    /// Those of its words that it reads, as indexes.
    pub(super) read: Vec<usize>,
    /// It reads what another one writes.
    pub(super) is_fed: bool,
    /// The command before it, whose output it reads.
    pub(super) fed_by: Option<usize>,
    /// The next word is a file that it writes.
    pub(super) writes: bool,
}

impl Reader {
    /// Looks into what the words of a command may run. A secret is data to most programs, and to none it is a script
    /// where it is assigned before the program. Gives the place of the command.
    pub(super) fn finish(&mut self, mut begun: Begun, line: &mut Line, level: usize) -> Option<usize> {
        if begun.words.is_empty() {
            return None;
        }
        if begun.reads_secret() {
            line.reads_secret = true;
            for &at in &begun.read {
                if let Some(word) = begun.words.get_mut(at) {
                    word.is_secret = true;
                }
            }
            let before = begun.fed_by.and_then(|at| self.commands.get_mut(at));
            before.into_iter().for_each(what_it_says_is_secret);
        }
        what_it_sets_is_secret(&mut begun.words);
        if !self.is_strict {
            what_it_puts_behind_a_name_is_secret(&mut begun.words);
        }
        for substituted in begun.words.iter().filter_map(Word::substituted_secret) {
            self.commands[substituted].iter_mut().for_each(what_it_says_is_secret);
        }
        // What has quotes in another language is a value there, and not what a shell would start.
        let starts = |word: &&Word| !self.is_code || word.quoted.is_empty();
        let behind = begun.words.windows(2).filter(|pair| pair[0].sets_nothing());
        let started: Vec<u32> = behind.map(|pair| &pair[1]).filter(starts).map(|word| word.id).collect();
        self.shown.extend(started);
        let texts = begun.texts();
        let running = Running::new(&texts);
        line.used = line.used.max(Some(running.all));
        line.escapes |= running.is_client();
        self.note(&begun, &running);
        let program_at = texts.iter().position(|text| !text.contains('=')).unwrap_or(texts.len());
        if self.within.is_none() && !self.is_code && !self.is_value {
            let verbs = [Some(program_at), running.file()].into_iter().flatten();
            let begin = |at: usize| Some(begun.words.get(at)?.letters.first()?.written.start);
            self.verbs.extend(verbs.filter_map(begin));
            self.programs.extend(begin(program_at));
            if !running.takes_data() && !words::take_secrets(running.program(), &texts) {
                self.targets.extend(targets(&begun.words, program_at));
            }
        }
        for (at, (word, secret)) in begun.words.iter().zip(hidden(&begun.words)).enumerate() {
            let from = secret.as_ref().map_or(0, |secret| secret.start);
            let may_be_run = running.may_run_named(at, from) || self.is_strict && running.says_it();
            let is_named = secret.is_some() && (at < program_at || !may_be_run);
            let used = match is_named && !running.is_program(at, true) {
                true => Use::Data,
                false => self.used(&running, at),
            };
            match used {
                Use::Code if running.is_program(at, secret.is_some()) => self.mark(&word.letters, Kind::Program),
                Use::Script if running.of_word(at) != Use::Script => self.mark(&word.letters, Kind::File),
                Use::Data | Use::Text | Use::Script | Use::Code => {}
            }
            let is_unsure = match &secret {
                Some(secret) => Reach::of(&running, at, secret.start).may_be_command(),
                None => used == Use::Text,
            };
            if is_unsure && self.within.is_none() {
                self.unsure.insert(word.id);
            }
            let is_said = !self.is_strict && matches!(running.of_word(at), Use::Data | Use::Text);
            for quoted in &word.quoted {
                let inner = &word.letters[quoted.clone()];
                self.quoted.extend(between(inner).filter(|_| is_said));
                let (is_string, is_value) = (self.is_string, self.is_value);
                self.is_value |= !running.is_script(at, secret.is_some());
                self.is_string |= self.is_code && matches!(running.of_word(at), Use::Data | Use::Text);
                self.inner(inner, used, word.id, level);
                (self.is_string, self.is_value) = (is_string, is_value);
            }
        }
        self.commands.push(begun.words);
        Some(self.commands.len() - 1)
    }

    /// What becomes of a word, here.
    pub(super) fn used(&self, running: &Running<'_>, at: usize) -> Use {
        let may_run = self.is_strict || self.is_code;
        match running.of_word(at) {
            Use::Text if may_run => Use::Script,
            Use::Data if may_run && running.says_it() => Use::Script,
            used => used,
        }
    }

    /// What a variable holds that is used as a command is no secret, whatever the variable is called.
    pub(super) fn show_what_is_called(&mut self) {
        if self.called.is_empty() {
            return;
        }
        for word in self.commands.iter_mut().flatten() {
            word.is_secret = false;
            let name = word.text.split_once('=').map(|(name, _)| name.trim_end_matches('+'));
            if name.is_some_and(|name| self.called.contains(name)) {
                self.shown.insert(word.id);
                // Also where it was looked into.
                for letter in &word.letters {
                    self.owners[letter.written.clone()].fill(Some(word.id));
                }
            }
        }
        let lists = self.lists.iter().filter(|(name, _)| self.called.contains(name));
        let listed = lists.flat_map(|(_, commands)| self.commands[commands.clone()].iter().flatten());
        self.shown.extend(listed.map(|word| word.id));
    }

    /// Whether a command may run what another one says.
    pub(super) fn note(&mut self, begun: &Begun, running: &Running<'_>) {
        // Of what nobody runs nothing follows.
        if self.within.is_some() {
            return;
        }
        let program = running.program();
        let is_program = |word: &&Word| word.text == program;
        let varies = begun.words.iter().find(is_program).is_some_and(|word| word.varies);
        self.says_what_runs |= varies
            || running.runs() && begun.words.iter().any(|word| word.varies)
            || begun.is_fed && running.runs_its_input();
        let called = begun.words.iter().filter(|word| running.runs() || is_program(word));
        self.called.extend(called.filter_map(Word::secret_variable));
        self.note_variables(begun, running, varies);
        if running.runs() {
            self.run.extend(begun.words.iter().map(|word| name_of(&word.text)));
        } else {
            self.run.insert(name_of(program));
        }
        if program.ends_with("tee") {
            self.written
                .extend(begun.words.iter().skip(1).map(|word| name_of(&word.text)));
        }
    }
}

impl Begun {
    pub(super) fn texts(&self) -> Vec<&str> {
        self.words.iter().map(|word| word.text.as_str()).collect()
    }

    fn reads_secret(&self) -> bool {
        words::read_secret(&self.texts())
    }
}

/// Words that a command is given to act upon: neither options, nor secrets, nor addresses, in which secrets stand.
fn targets(words: &Command, program_at: usize) -> Vec<u32> {
    let given = words.iter().zip(hidden(words)).skip(program_at);
    let is_target = |(word, secret): &(&Word, Option<Range<usize>>)| {
        let is_option = word.text.starts_with('-');
        secret.is_none() && !is_option && !word.text.contains("://")
    };
    given.filter(is_target).map(|(word, _)| word.id).collect()
}

/// Whether a word, or what is assigned in it, is called: what stands behind it are its arguments.
pub(super) fn calls(word: &Word, behind: &[Letter]) -> bool {
    let name = word.text.rsplit('=').next().unwrap_or_default();
    // With figures, and nothing that it belongs to, it may be a password with a bracket in it.
    let is_part =
        |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '.' | ':') || c.is_ascii_digit() && name.contains('.');
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_part);
    is_name && word.quoted.is_empty() && behind.first().is_some_and(|letter| letter.is == '(')
}

/// Of a file, however it is reached.
pub(super) fn name_of(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Where letters were written that stand side by side and hold neither quotes nor substitutions.
fn between(letters: &[Letter]) -> Option<Range<usize>> {
    let (start, end) = (letters.first()?.written.start, letters.last()?.written.end);
    let bytes: usize = letters.iter().map(|letter| letter.written.len()).sum();
    let is_plain = letters.iter().all(|letter| !"'\"`$".contains(letter.is));
    (is_plain && bytes == end - start).then_some(start..end)
}
