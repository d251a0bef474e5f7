//! What commands are told: documents between delimiters, and what others say to them.

use super::reader::{LEVELS_MAX, Reader};
use super::{Command, Letter, Word};
use crate::audit::redact::code::Kind;
use crate::audit::redact::reach::Reach;
use crate::audit::redact::running::{self, Use};
use crate::audit::redact::{is_name_char, is_secret_name};

/// What the commands of one line do with the documents below it.
#[derive(Default)]
pub(super) struct Line {
    /// What the worst of them makes of what it reads.
    pub(super) used: Option<Use>,
    /// One of them runs what is written in a certain way.
    pub(super) escapes: bool,
    pub(super) reads_secret: bool,
}

impl Reader {
    /// What stands between a command and its delimiter may be a script too; its quotes end with it.
    pub(super) fn document(
        &mut self,
        letters: &[Letter],
        from: usize,
        delimiter: &str,
        line: &Line,
        level: usize,
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
        let used = match line.used(said) {
            Use::Data | Use::Text if self.is_strict || self.is_code => {
                self.mark(said, Kind::File);
                Use::Script
            }
            Use::Code => {
                self.mark(said, Kind::Program);
                Use::Code
            }
            used => used,
        };
        if line.reads_secret && used == Use::Text {
            self.secret(said, level);
        } else if level < LEVELS_MAX {
            self.words += 1;
            self.inner(said, used, self.words, level);
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
}

impl Line {
    /// What becomes of a document.
    fn used(&self, said: &[Letter]) -> Use {
        let escapes = || running::escapes(&said.iter().map(|letter| letter.is).collect::<String>());
        match self.used {
            None | Some(Use::Data | Use::Text) if self.escapes && escapes() => Use::Code,
            used => used.unwrap_or(Use::Text),
        }
    }
}

/// `printf -v TOKEN %s X`: what is put into a secret's variable.
pub(super) fn what_it_sets_is_secret(command: &mut Command) {
    if let [program, option, name, said @ ..] = command.as_mut_slice()
        && (program.text.as_str(), option.text.as_str()) == ("printf", "-v")
        && is_secret_name(&name.text)
    {
        let patterns = usize::from(said.len() > 1);
        said.iter_mut().skip(patterns).for_each(|word| word.is_secret = true);
    }
}

/// `printf 'SECRET_KEY=%s' X`: what is put behind a secret's name, unless a shell that reads it would find a command.
pub(super) fn what_it_puts_behind_a_name_is_secret(command: &mut Command) {
    let [program, pattern, said @ ..] = command.as_mut_slice() else {
        return;
    };
    if program.text != "printf" {
        return;
    }
    let before: Vec<&str> = pattern.text.split("%s").collect();
    let places = before.len() - 1;
    for at in 0..said.len() {
        let Some(named) = at.checked_rem(places).map(|place| before[place].trim_end()) else {
            return;
        };
        // `%s=%s` is told the name as well.
        let name = match named.strip_suffix(['=', ':']) {
            Some("") => at.checked_sub(1).map_or("", |name| said[name].text.as_str()),
            Some(name) => name.rsplit(|c| !is_name_char(c)).next().unwrap_or_default(),
            None => continue,
        };
        let is_word = Reach::Argument.end(&said[at].text) == said[at].text.len();
        said[at].is_secret |= is_word && is_secret_name(name);
    }
}

/// Of a command that prints its arguments: all but its options, and but for the pattern that they are put into.
pub(super) fn what_it_says_is_secret(command: &mut Command) {
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
