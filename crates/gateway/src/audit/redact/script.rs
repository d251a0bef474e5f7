//! A text that somebody runs, taken apart as a shell would. Whoever reads it must see every command in it: what is
//! hidden stays within one word, and a substitution in that word stays readable. Otherwise
//! `PASSWORD="$(rm -rf .)"` would be asked about, and recorded, as `PASSWORD="[redacted]"`.
//!
//! Quoted words may be scripts themselves (`sh -c '…'`), so they are taken apart in turn where their program may run
//! them. Elsewhere they are read for the secrets in them and stay one word, as documents and other texts do that nobody
//! runs. Where one command may run what another says or writes, no text is taken for such a one. Nothing is refused
//! here: an unfinished quote reaches to the end.

mod document;
mod variables;
mod word;

use std::collections::HashSet;
use std::ops::Range;

use document::{Line, what_it_says_is_secret, what_it_sets_is_secret};

use super::running::{Running, Use};
use super::{is_name, is_secret_name, words};

/// Scripts in scripts that are looked into. What lies deeper is shown as it is.
const LEVELS_MAX: usize = 8;

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
    /// Words that run, though they look like what a name stands for: `TOKEN= rm`, and `TOKEN=rm` where `$TOKEN` is a
    /// command.
    shown: HashSet<u32>,
    /// Where words begin that say what is done: programs, and the files that interpreters run.
    verbs: HashSet<usize>,
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

/// A command that is being read.
#[derive(Default)]
struct Begun {
    words: Command,
    /// Those of its words that it reads, as indexes.
    read: Vec<usize>,
    /// It reads what another one writes.
    is_fed: bool,
    /// The command before it, whose output it reads.
    fed_by: Option<usize>,
    /// The next word is a file that it writes.
    writes: bool,
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
    pub(super) fn of_code(text: &str) -> Self {
        Self::begun(text, Use::Code)
    }

    /// One of the words of a command.
    pub(super) fn of_argument(text: &str, used: Use) -> Self {
        Self::begun(text, used)
    }

    /// Text that nobody runs as it is, in which a program may still find substitutions of its own.
    pub(super) fn of_data(text: &str) -> Self {
        Self::begun(text, Use::Data)
    }

    /// The same, where secrets may stand among the words of commands.
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
            shown: reader.shown,
            verbs: reader.verbs,
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

    /// Whether the word that begins here says what is done.
    pub(super) fn is_verb_at(&self, at: usize) -> bool {
        self.verbs.contains(&at)
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

/// For each word of a command the byte from which it is a secret, up to its end.
pub(super) fn hidden(command: &Command) -> Vec<Option<usize>> {
    let texts: Vec<&str> = command.iter().map(|word| word.text.as_str()).collect();
    let told = command.iter().map(|word| word.is_secret.then_some(0));
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
    quoted: Vec<Range<usize>>,
    data: HashSet<u32>,
    shown: HashSet<u32>,
    /// Variables that are used as commands.
    called: HashSet<String>,
    /// Variables whose text itself is run, and whether anything runs texts.
    executed: HashSet<String>,
    runs_texts: bool,
    /// Variables that are set to lists, with the places of the commands that the lists were read as.
    lists: Vec<(String, Range<usize>)>,
    words: u32,
    verbs: HashSet<usize>,
    /// What is read is a value, or a list of them: no word of it is a program.
    is_value: bool,
    /// What is read stands between quotes of another language.
    is_string: bool,
    /// All is part of this word, which nobody runs.
    within: Option<u32>,
    /// What is read may have been written for something else than a shell.
    is_code: bool,
    /// Commands may run what others say.
    is_strict: bool,
    /// The same, of what was read so far.
    says_what_runs: bool,
    /// Names of files that are written, and of such as may be run.
    written: HashSet<String>,
    run: HashSet<String>,
}

impl Reader {
    fn new(bytes: usize, is_strict: bool) -> Self {
        Self {
            owners: vec![None; bytes],
            commands: Vec::new(),
            quoted: Vec::new(),
            data: HashSet::new(),
            shown: HashSet::new(),
            called: HashSet::new(),
            executed: HashSet::new(),
            runs_texts: false,
            lists: Vec::new(),
            words: 0,
            verbs: HashSet::new(),
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

    fn whole(&mut self, letters: &[Letter], used: Use) {
        match used {
            Use::Script => {
                self.list(letters, 0, None, 0);
            }
            Use::Code => {
                self.is_code = true;
                self.list(letters, 0, None, 0);
            }
            Use::Data | Use::Text => {
                self.own(0..letters.last().map_or(0, |last| last.written.end), 0);
                self.inner(letters, used, 0, 0);
            }
        }
    }

    /// What stands in a word, by what becomes of it.
    fn inner(&mut self, letters: &[Letter], used: Use, word: u32, level: usize) {
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

    fn own(&mut self, written: Range<usize>, word: u32) {
        self.owners[written].fill(Some(self.within.unwrap_or(word)));
    }

    /// What stands between words belongs to none, also where the whole was a word before it was looked into.
    fn disown(&mut self, letters: &[Letter]) {
        for letter in letters {
            self.owners[letter.written.clone()].fill(self.within);
        }
    }

    /// Commands that run before what they stand in: they are part of no word.
    fn substitution(&mut self, letters: &[Letter], opener: Range<usize>, closer: char, level: usize) -> usize {
        let within = self.within.take();
        let is_value = std::mem::take(&mut self.is_value);
        self.disown(&letters[opener.clone()]);
        let end = self.list(letters, opener.end, Some(closer), level + 1);
        (self.within, self.is_value) = (within, is_value);
        end
    }

    /// Whether one command may run what another one says, or writes to a file.
    fn may_run_what_it_says(&self) -> bool {
        self.says_what_runs || self.written.iter().any(|file| self.run.contains(file))
    }

    /// Reads commands up to what closes them, and says what comes behind.
    fn list(&mut self, letters: &[Letter], mut at: usize, closer: Option<char>, level: usize) -> usize {
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
            at = self.substitution(letters, at..from, closer, level);
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

    /// Looks into what the words of a command may run. A secret is data to most programs, and to none it is a script
    /// where it is assigned before the program. Gives the place of the command.
    fn finish(&mut self, mut begun: Begun, line: &mut Line, level: usize) -> Option<usize> {
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
        let runs_words = running.runs_words();
        if self.within.is_none() && !self.is_code && !self.is_value {
            let verbs = [Some(program_at), running.file()].into_iter().flatten();
            let begin = |at: usize| Some(begun.words.get(at)?.letters.first()?.written.start);
            self.verbs.extend(verbs.filter_map(begin));
        }
        for (at, (word, secret)) in begun.words.iter().zip(hidden(&begun.words)).enumerate() {
            let may_be_run = runs_words || self.is_strict && running.says_it();
            let is_named = secret.is_some() && (at < program_at || !may_be_run);
            let used = if is_named { Use::Data } else { self.used(&running, at) };
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
    fn used(&self, running: &Running<'_>, at: usize) -> Use {
        let may_run = self.is_strict || self.is_code;
        match running.of_word(at) {
            Use::Text if may_run => Use::Script,
            Use::Data if may_run && running.says_it() => Use::Script,
            used => used,
        }
    }

    /// What a variable holds that is used as a command is no secret, whatever the variable is called.
    fn show_what_is_called(&mut self) {
        if self.called.is_empty() {
            return;
        }
        for word in self.commands.iter_mut().flatten() {
            word.is_secret = false;
            let name = word.text.split_once('=').map(|(name, _)| name.trim_end_matches('+'));
            if name.is_some_and(|name| self.called.contains(name)) {
                self.shown.insert(word.id);
            }
        }
        let lists = self.lists.iter().filter(|(name, _)| self.called.contains(name));
        let listed = lists.flat_map(|(_, commands)| self.commands[commands.clone()].iter().flatten());
        self.shown.extend(listed.map(|word| word.id));
    }

    /// Whether a command may run what another one says.
    fn note(&mut self, begun: &Begun, running: &Running<'_>) {
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
    fn texts(&self) -> Vec<&str> {
        self.words.iter().map(|word| word.text.as_str()).collect()
    }

    fn reads_secret(&self) -> bool {
        words::read_secret(&self.texts())
    }
}

/// Whether a word, or what is assigned in it, is called: what stands behind it are its arguments.
fn calls(word: &Word, behind: &[Letter]) -> bool {
    let name = word.text.rsplit('=').next().unwrap_or_default();
    // With figures, and nothing that it belongs to, it may be a password with a bracket in it.
    let is_part =
        |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '.' | ':') || c.is_ascii_digit() && name.contains('.');
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_part);
    is_name && word.quoted.is_empty() && behind.first().is_some_and(|letter| letter.is == '(')
}

/// Of a file, however it is reached.
fn name_of(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
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

/// Where letters were written that stand side by side and hold neither quotes nor substitutions.
fn between(letters: &[Letter]) -> Option<Range<usize>> {
    let (start, end) = (letters.first()?.written.start, letters.last()?.written.end);
    let bytes: usize = letters.iter().map(|letter| letter.written.len()).sum();
    let is_plain = letters.iter().all(|letter| !"'\"`$".contains(letter.is));
    (is_plain && bytes == end - start).then_some(start..end)
}

/// Whether there is more than one word in it.
fn could_be_script(letters: &[Letter]) -> bool {
    letters
        .iter()
        .any(|letter| letter.is.is_whitespace() || ";&|<>()`".contains(letter.is))
}

#[cfg(test)]
mod tests;
