//! Variables by which commands are told what to run.

use std::collections::HashSet;

use super::command::Begun;
use super::reader::Reader;
use super::{Word, hidden};
use crate::audit::redact::is_secret_name;
use crate::audit::redact::running::{Running, Use};

impl Reader {
    /// What a command makes of variables that others set: those of the call, and of whoever started it.
    pub(super) fn note_variables(&mut self, begun: &Begun, running: &Running<'_>, varies: bool) {
        let hidden = hidden(&begun.words);
        let is_named = |at: usize| hidden[at].is_some();
        let executed = running.executed(is_named).into_iter().map(|at| &begun.words[at]);
        let mut executed: HashSet<String> = executed.filter_map(Word::given_variable).map(str::to_owned).collect();
        let is_run = |at: usize| matches!(running.of_word(at), Use::Script | Use::Code);
        self.runs_texts |= (0..begun.words.len()).any(is_run);
        if begun.is_fed && running.runs_its_input() {
            let before = begun.fed_by.and_then(|at| self.commands.get(at));
            let said = before.into_iter().flatten();
            executed.extend(said.filter_map(Word::variable).map(str::to_owned));
        }
        self.runs_texts |= varies || !executed.is_empty() || running.may_have_aliases();
        self.executed.extend(executed);
    }
}

impl Word {
    /// The variable that it begins with.
    fn variable(&self) -> Option<&str> {
        variable(&self.text)
    }

    /// The same, also behind a name that it is given to: `alias.x=!$X`.
    fn given_variable(&self) -> Option<&str> {
        let given = self.text.split_once('=').map(|(_, given)| given);
        self.variable()
            .or_else(|| variable(given.unwrap_or(&self.text).trim_start_matches('!')))
    }

    /// The same, if it is a secret's.
    pub(super) fn secret_variable(&self) -> Option<String> {
        let is_secret = |name: &&str| {
            // The value of what is named beside it may be one.
            let others = ["parametervalue", "pass", "value"];
            let is_one = is_secret_name(name) || others.iter().any(|it| name.eq_ignore_ascii_case(it));
            is_one || is_secret_name(name.trim_end_matches(['s', 'S']))
        };
        self.variable().filter(is_secret).map(str::to_owned)
    }
}

/// The variable that a text begins with.
fn variable(text: &str) -> Option<&str> {
    let behind = text.strip_prefix('$')?;
    let behind = behind.strip_prefix('{').unwrap_or(behind);
    let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    Some(&behind[..end.unwrap_or(behind.len())])
}
