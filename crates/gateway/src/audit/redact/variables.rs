//! Variables that a call brings along. By its name a variable may be a secret, and yet hold what the call runs: `eval
//! "$SESSION_TOKEN"` runs whatever that is. What may run is read like a script, whatever it is called; elsewhere a
//! secret's variable is hidden whole.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::name::runs_its_value;
use super::reading::{Reading, looks_made};
use super::script::Script;
use super::{Redactor, compiled, replace};
use crate::limits;

/// What a call makes of its variables.
#[derive(Debug, Default)]
pub struct Variables {
    /// Some program of it runs texts, and may find them in any variable.
    runs_texts: bool,
    /// Those that it runs by name: `eval "$X"`, `$X`, `bash -c "$X"`.
    called: HashSet<String>,
}

impl Variables {
    /// Of a call that runs this line, or a program that would be started by it.
    pub fn of_call<'v>(
        line: &str,
        input: Option<&str>,
        variables: impl IntoIterator<Item = (&'v str, &'v str)>,
    ) -> Self {
        let mut found = Self::default();
        found.look_into(line);
        let short = input.filter(|input| input.len() <= limits::LINE_BYTES_MAX);
        if let Some(input) = short.filter(|input| Reading::of_input_to_line(line, input).runs()) {
            found.look_into(input);
        }
        // `PAGER`, `GIT_SSH_COMMAND`, and what `git` takes for an alias.
        let run = variables.into_iter().filter(|(name, value)| {
            let is_alias = value.starts_with('!');
            is_alias || runs_its_value(name)
        });
        for (_, value) in run {
            found.runs_texts = true;
            found.look_into(value.trim_start_matches('!'));
        }
        found
    }

    fn look_into(&mut self, line: &str) {
        let script = Script::read(line);
        self.runs_texts |= script.runs_texts;
        self.called.extend(script.executed);
    }

    /// Whether the call may run what a variable holds.
    pub fn may_run(&self, name: &str, value: &str) -> bool {
        self.called.contains(name) || self.runs_texts && could_be_code(value)
    }
}

impl Redactor {
    /// The names of variables as they may be shown, in their order and each another one. A name says what is set, whatever
    /// the call calls a secret: of it only what is no name that people give is hidden.
    pub fn redact_names<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
        let mut seen: HashMap<String, usize> = HashMap::new();
        let shown = names.into_iter().map(|name| {
            let given = self.given_values.spans(name).into_iter();
            let mut spans = self.held_spans(name);
            spans.extend(given.filter(|span| looks_made(&name[span.clone()])));
            let clean = replace(name, spans).into_owned();
            let count = seen.entry(clean.clone()).or_default();
            *count += 1;
            match *count {
                1 => clean,
                number => format!("{clean} ({number})"),
            }
        });
        shown.collect()
    }

    /// A variable of a call as it may be shown: by its name, unless it may run.
    pub fn redact_variable(&self, name: &str, value: &str, variables: &Variables) -> String {
        if variables.may_run(name, value) {
            return self.redact_read(value, Reading::Anything).into_owned();
        }
        match self.redact_field(name, &Value::from(value)) {
            Value::String(shown) => shown,
            other => other.to_string(),
        }
    }
}

/// Whether there is more in it than one word, or a word that some language takes for a call. A document of JSON is
/// data, unless it has blanks that may be anything.
fn could_be_code(value: &str) -> bool {
    static CALLS: LazyLock<Regex> =
        LazyLock::new(|| compiled(r#"\$[({]|`|[A-Za-z0-9_\])](?:\([^)]*\)|"[^"]*"|'[^']*')"#));
    let value = value.trim();
    let is_document = || value.starts_with(['{', '[']) && serde_json::from_str::<Value>(value).is_ok();
    value.contains(char::is_whitespace) || CALLS.is_match(value) && !is_document()
}

#[cfg(test)]
mod tests;
