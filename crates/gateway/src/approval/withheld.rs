//! What a person is not shown of an act: secrets are withheld and long texts are cut, and all of it is done the
//! same. A question says how much that is: what is hidden for looking like a key may still matter.

use serde_json::{Map, Value, json};

use crate::audit::redact::{Reading, Redactor};

/// Says how much of a text is withheld; nothing where all of it is shown.
pub(crate) fn secret(what: &str, text: &str, reading: Reading, redactor: &Redactor) -> Option<String> {
    match redactor.withheld_chars(text, reading) {
        0 => None,
        count => Some(unseen(count, what)),
    }
}

/// Says that a text is withheld for its name; nothing where it is shown.
pub(crate) fn named(what: &str, text: &str, shown: &str) -> Option<String> {
    (shown != text).then(|| unseen(text.chars().count(), what))
}

/// Says that only the beginning of a text is shown; nothing where that is all of it.
pub(crate) fn rest(what: &str, text: &str, chars_shown: usize) -> Option<String> {
    let count = text.chars().count();
    (count > chars_shown).then(|| format!("only the first {chars_shown} of {count} characters of {what} are shown"))
}

/// The same act as it is and as it is shown: says how many of its texts are not shown as they are.
pub(crate) fn in_values(act: &Value, shown: &Value) -> Option<String> {
    match changed(act, shown) {
        0 => None,
        1 => Some("one of its texts is not shown as it is: what looks like a secret is withheld".to_owned()),
        count => Some(format!(
            "{count} of its texts are not shown as they are: what looks like a secret is withheld"
        )),
    }
}

/// Puts notes among what is worth a second look.
pub(crate) fn note(details: &mut Map<String, Value>, notes: impl IntoIterator<Item = String>) {
    let mut notes = notes.into_iter().peekable();
    if notes.peek().is_none() {
        return;
    }
    let risks = details.entry("risks").or_insert_with(|| json!([]));
    if let Value::Array(risks) = risks {
        risks.extend(notes.map(Value::from));
    }
}

fn unseen(count: usize, what: &str) -> String {
    match count {
        1 => format!("one character of {what} is withheld as a secret, and counts all the same"),
        count => format!("{count} characters of {what} are withheld as secrets, and count all the same"),
    }
}

fn changed(act: &Value, shown: &Value) -> usize {
    match (act, shown) {
        (Value::Array(act), Value::Array(shown)) => act.iter().zip(shown).map(|(act, shown)| changed(act, shown)).sum(),
        (Value::Object(act), Value::Object(shown)) => {
            let of = |name| shown.get(name).unwrap_or(&Value::Null);
            act.iter().map(|(name, value)| changed(value, of(name))).sum()
        }
        (act, shown) => usize::from(act != shown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::redact::Config;

    #[test]
    fn what_is_withheld_is_counted() {
        let redactor = Redactor::new(Config::default());
        let hidden = "deploy --token hunter2hunter2";
        assert_eq!(
            secret("the command", hidden, Reading::Line, &redactor).as_deref(),
            Some("14 characters of the command are withheld as secrets, and count all the same")
        );
        assert_eq!(secret("the command", "rm -rf ~", Reading::Line, &redactor), None);
        assert_eq!(
            secret("the command", "echo [redacted]", Reading::Line, &redactor),
            None,
            "a word like ours hides nothing"
        );
    }

    #[test]
    fn what_is_cut_says_so_from_the_first_character_on() {
        assert_eq!(rest("its input", "abc", 3), None);
        assert_eq!(
            rest("its input", "abcd", 3).as_deref(),
            Some("only the first 3 of 4 characters of its input are shown")
        );
    }

    #[test]
    fn texts_that_are_not_shown_as_they_are_are_counted_however_deep() {
        let act = json!({"script": "a", "more": [{"text": "b"}, 1], "name": "c"});
        assert_eq!(in_values(&act, &act), None);
        let shown = json!({"script": "[redacted]", "more": [{"text": "[redacted]"}, 1], "name": "c"});
        let note = in_values(&act, &shown).unwrap();
        assert!(note.starts_with("2 of its texts"), "{note}");
    }
}
