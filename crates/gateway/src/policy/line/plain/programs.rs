//! Builtins that run as the program of the same name: where the two take the same words in different ways, a shell
//! is needed. `[ b \> a ]` is true in bash, and an error to the program of that name on many machines.

use crate::policy::line::tree::Word;

/// Escapes that `echo -e` and its program read alike.
const OF_ECHO: &str = "abcefnrtv\\0";
/// Escapes in the format of `printf` that its program reads alike.
const OF_FORMAT: &str = "abefnrtv\\\"01234567";
/// Conversions of `printf` that its program makes alike.
const CONVERSIONS: &str = "sdiouxXfeEgGcb";

/// Whether the program might do something else than the builtin.
pub(super) fn differ(name: &str, args: &[Word]) -> bool {
    let words: Vec<String> = args.iter().map(Word::unmatched).collect();
    match name {
        "test" | "[" => test(&words),
        "echo" => is_help(&words) || echo(&words),
        "printf" => is_help(&words) || printf(&words),
        "pwd" => is_help(&words),
        _ => false,
    }
}

fn is_help(words: &[String]) -> bool {
    matches!(words, [word] if word == "--help" || word == "--version")
}

fn test(words: &[String]) -> bool {
    let of_bash = |word: &String| matches!(word.as_str(), "<" | ">" | "-v" | "-R");
    let first = words.iter().find(|word| *word != "!");
    words.iter().any(of_bash) || first.is_some_and(|word| word == "-a" || word == "-o")
}

fn echo(words: &[String]) -> bool {
    let is_option = |word: &&String| {
        let letters = word.strip_prefix('-').unwrap_or_default();
        !letters.is_empty() && letters.chars().all(|c| "neE".contains(c))
    };
    let (options, texts) = words.split_at(words.iter().take_while(is_option).count());
    let options = options.concat();
    let last = options.chars().rfind(|c| "eE".contains(*c));
    last == Some('e') && texts.iter().any(|text| has_other_escape(text, OF_ECHO))
}

fn printf(words: &[String]) -> bool {
    let words = if words.first().is_some_and(|word| word == "--") {
        &words[1..]
    } else if words.first().is_none_or(|word| word.starts_with('-')) {
        return true;
    } else {
        words
    };
    let Some((format, values)) = words.split_first() else {
        return true;
    };
    has_other_escape(format, OF_FORMAT)
        || has_other_conversion(format)
        || format.contains('b') && values.iter().any(|value| has_other_escape(value, OF_ECHO))
}

fn has_other_escape(text: &str, known: &str) -> bool {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            continue;
        }
        let is_known = match chars.next() {
            Some('x') => chars.peek().is_some_and(char::is_ascii_hexdigit),
            Some(escape) => known.contains(escape),
            None => true,
        };
        if !is_known {
            return true;
        }
    }
    false
}

fn has_other_conversion(format: &str) -> bool {
    let format = format.replace("%%", "");
    format.split('%').skip(1).any(|conversion| {
        let letter = conversion.trim_start_matches(|c: char| c.is_ascii_digit() || "-+ #.".contains(c));
        !letter.starts_with(|c| CONVERSIONS.contains(c))
    })
}
