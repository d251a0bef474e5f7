//! The canonical form of a command: its words joined by single spaces, quoted where a word needs it.
//! Patterns of the whitelist are matched against this form and never against the raw text.

use super::tree::{Command, Piece, Word};

/// The canonical form of one command of a plain line, without its redirections.
pub fn canonical(command: &Command) -> String {
    let mut words = vec![quote(&command.name)];
    words.extend(command.args.iter().map(word));
    words.join(" ")
}

/// The canonical form of a program and its arguments.
pub fn canonical_argv(file: &str, args: &[String]) -> String {
    let mut words = vec![quote(file)];
    words.extend(args.iter().map(|arg| quote(arg)));
    words.join(" ")
}

fn word(word: &Word) -> String {
    if let Some(text) = word.literal() {
        return quote(&text);
    }
    word.pieces
        .iter()
        .map(|piece| match piece {
            Piece::Literal(text) => quote(text),
            Piece::AnyText => "*".to_owned(),
            Piece::AnyChar => "?".to_owned(),
            Piece::OneOf { written, .. } => written.clone(),
        })
        .collect()
}

fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
