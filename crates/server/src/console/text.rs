//! Text of strangers, made safe to look at.
//!
//! What an agent wrote is shown so that a person sees every character of it: HTML means nothing, and what
//! is invisible, reorders its neighbours or only looks like a letter gets a mark. The order on the screen
//! is the order in memory.

use std::fmt::{self, Write as _};

use countersign_gateway::approval::unseen::is_unseen;

/// Markup that is ours throughout; the only text that templates do not escape.
// INVARIANT: made in this file, or by a template, from escaped parts only.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Html(String);

impl Html {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Says how much of a text is not shown.
    fn cut(&mut self, text: &str, chars_max: usize) {
        let rest = text.chars().count().saturating_sub(chars_max);
        if rest > 0 {
            let _ = write!(self.0, "<span class=\"cut\">… {rest} more characters</span>");
        }
    }
}

impl fmt::Display for Html {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Every character visible, up to a bound; says how much is not shown.
pub(super) fn shown(text: &str, chars_max: usize) -> Html {
    let mut html = Html::default();
    for character in text.chars().take(chars_max) {
        push(&mut html.0, character);
    }
    html.cut(text, chars_max);
    html
}

/// The same for text whose line breaks are ours.
pub(super) fn lines(text: &str, chars_max: usize) -> Html {
    let mut html = Html::default();
    for character in text.chars().take(chars_max) {
        match character {
            '\n' => html.0.push('\n'),
            other => push(&mut html.0, other),
        }
    }
    if !html.is_empty() && !html.0.ends_with('\n') {
        html.0.push('\n');
    }
    html.cut(text, chars_max);
    html
}

/// A command line in which the programs that policy found stand out where a command begins.
pub(super) fn command(line: &str, programs: &[String], chars_max: usize) -> Html {
    let mut html = Html::default();
    let end = line.char_indices().nth(chars_max).map_or(line.len(), |(end, _)| end);
    for piece in pieces(&line[..end]) {
        let shown = self::shown(piece.text, chars_max);
        let is_program = |program: &String| program == piece.text || program.rsplit('/').next() == Some(piece.text);
        match piece.begins_command && programs.iter().any(is_program) {
            true => write!(html.0, "<strong class=\"program\">{shown}</strong>").unwrap_or_default(),
            false => html.0.push_str(&shown.0),
        }
    }
    html.cut(line, chars_max);
    html
}

/// Whether a text holds anything that is marked when it is shown.
pub(super) fn is_odd(text: &str) -> bool {
    text.chars()
        .any(|character| !matches!(character, '\n' | '\t') && mark(character).is_some())
}

struct Piece<'a> {
    text: &'a str,
    /// Stands where a shell would look for a program.
    begins_command: bool,
}

/// Cuts a line into words, blanks and operators. A reading aid: what runs was decided by the parser.
fn pieces(line: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut start, mut quote, mut escaped) = (0, None, false);
    let mut at_beginning = true;
    for (index, character) in line.char_indices() {
        if escaped {
            escaped = false;
            continue;
        }
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some('"') | None, '\\') => escaped = true,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, ' ' | '\t' | '\n' | ';' | '|' | '&' | '(' | ')') => {
                pieces.extend(word(&line[start..index], &mut at_beginning));
                start = index + character.len_utf8();
                pieces.push(Piece {
                    text: &line[index..start],
                    begins_command: false,
                });
                at_beginning |= !matches!(character, ' ' | '\t');
            }
            (None, _) => {}
        }
    }
    pieces.extend(word(&line[start..], &mut at_beginning));
    pieces
}

/// A word, which is a program where a command begins; assignments may stand before it.
fn word<'a>(text: &'a str, at_beginning: &mut bool) -> Option<Piece<'a>> {
    if text.is_empty() {
        return None;
    }
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_assignment = text.split_once('=').is_some_and(|(name, _)| is_name(name));
    let begins_command = *at_beginning && !is_assignment;
    *at_beginning = *at_beginning && is_assignment;
    Some(Piece { text, begins_command })
}

fn push(html: &mut String, character: char) {
    match character {
        '&' => html.push_str("&amp;"),
        '<' => html.push_str("&lt;"),
        '>' => html.push_str("&gt;"),
        '"' => html.push_str("&quot;"),
        '\'' => html.push_str("&#39;"),
        '\n' => html.push_str("<span class=\"mark\" title=\"line break\">↵</span>\n"),
        '\t' => html.push_str("<span class=\"mark\" title=\"tab\">⇥</span>\t"),
        other => match mark(other) {
            None => html.push(other),
            Some(Mark::Hidden(name)) => {
                let code = u32::from(other);
                let _ = write!(html, "<span class=\"odd\" title=\"{name}\">U+{code:04X}</span>");
            }
            Some(Mark::Foreign) => {
                let code = u32::from(other);
                let _ = write!(
                    html,
                    "<span class=\"foreign\" title=\"U+{code:04X}, not ASCII\">{other}</span>"
                );
            }
        },
    }
}

enum Mark {
    /// Shows as nothing, or moves others about; its code is shown instead.
    Hidden(&'static str),
    /// A letter that may look like another one.
    Foreign,
}

fn mark(character: char) -> Option<Mark> {
    use Mark::{Foreign, Hidden};
    let code = u32::from(character);
    match code {
        0x20..=0x7E => None,
        0x00..=0x1F | 0x7F..=0x9F => Some(Hidden("control character")),
        0x202A..=0x202E | 0x2066..=0x2069 | 0x200E | 0x200F | 0x061C => Some(Hidden("changes the direction of text")),
        0x00AD | 0x200B..=0x200D | 0x2060..=0x2064 | 0x206A..=0x206F | 0xFEFF | 0x180B..=0x180F => {
            Some(Hidden("invisible character"))
        }
        0x115F | 0x1160 | 0x3164 | 0xFFA0 | 0x2800 => Some(Hidden("looks like a space")),
        0x00A0 | 0x1680 | 0x2000..=0x200A | 0x202F | 0x205F | 0x3000 => Some(Hidden("unusual space")),
        0x2028 | 0x2029 => Some(Hidden("line separator")),
        0xFE00..=0xFE0F | 0xE0000..=0xE0FFF => Some(Hidden("invisible character")),
        0x0300..=0x036F | 0x1AB0..=0x1AFF | 0x1DC0..=0x1DFF | 0x20D0..=0x20FF | 0xFE20..=0xFE2F => {
            Some(Hidden("changes the character before it"))
        }
        0xE000..=0xF8FF | 0xF0000..=0x10FFFF | 0xFFF0..=0xFFFB => Some(Hidden("has no agreed meaning")),
        _ if is_unseen(character) => Some(Hidden("invisible character")),
        _ if character.is_alphanumeric() => Some(Foreign),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_means_nothing() {
        let html = shown("<b onload='x'>&\"</b>", 100).to_string();
        assert_eq!(html, "&lt;b onload=&#39;x&#39;&gt;&amp;&quot;&lt;/b&gt;");
    }

    #[test]
    fn what_cannot_be_seen_is_named() {
        for (text, code) in [
            ("a\u{202e}b", "U+202E"),
            ("a\u{200b}b", "U+200B"),
            ("a\u{0}b", "U+0000"),
            ("a\u{1b}[2Jb", "U+001B"),
            ("a\u{a0}b", "U+00A0"),
            ("a\u{e0041}b", "U+E0041"),
            ("a\u{fe0f}b", "U+FE0F"),
            ("a\u{3164}b", "U+3164"),
            ("a\u{301}b", "U+0301"),
            ("a\rb", "U+000D"),
        ] {
            let html = shown(text, 100).to_string();
            let hidden = text.chars().nth(1).unwrap();
            assert!(
                html.contains(code) && !html.contains(hidden),
                "{text:?} is shown as {html}"
            );
            assert!(is_odd(text), "{text:?}");
        }
        assert!(shown("p\u{430}ypal", 10).to_string().contains("U+0430, not ASCII"));
        assert!(!is_odd("a plain line\nand another\t— done…"));
    }

    #[test]
    fn no_character_that_other_doors_write_out_is_unmarked() {
        let unmarked: Vec<char> = ('\0'..=char::MAX)
            .filter(|character| is_unseen(*character) && mark(*character).is_none())
            .collect();
        assert!(unmarked.is_empty(), "{unmarked:?}");
        assert!(shown("a\u{1d173}b", 10).to_string().contains("U+1D173"));
    }

    #[test]
    fn lines_that_are_left_out_are_counted() {
        for (text, said) in [
            ("abcd\nefgh", "abcd\n<span class=\"cut\">… 4 more characters</span>"),
            ("ab\ncdef\ngh", "ab\ncd\n<span class=\"cut\">… 5 more characters</span>"),
            ("ab\ncd", "ab\ncd\n"),
            ("abcd\n", "abcd\n"),
            ("", ""),
        ] {
            assert_eq!(lines(text, 5).to_string(), said, "{text:?}");
        }
        let html = command("echo aaaaaaaaaa; rm -rf x", &[], 10).to_string();
        assert!(html.contains("… 15 more characters"), "{html}");
        assert_eq!(html.matches("class=\"cut\"").count(), 1, "{html}");
    }

    #[test]
    fn long_texts_say_what_is_left_out() {
        assert!(
            shown("abcdef", 4)
                .to_string()
                .contains("abcd<span class=\"cut\">… 2 more")
        );
        assert_eq!(shown("abcd", 4).to_string(), "abcd");
        let line = format!("echo {}", "x".repeat(100));
        let html = command(&line, &["echo".to_owned()], 10).to_string();
        assert!(
            html.contains("… 95 more characters") && !html.contains(&"x".repeat(6)),
            "{html}"
        );
    }

    #[test]
    fn programs_stand_out_where_a_command_begins() {
        let programs: Vec<String> = ["/usr/bin/git", "wc", "rm"].map(str::to_owned).into();
        let found = |line: &str| {
            let html = command(line, &programs, 1_000).to_string();
            html.matches("<strong").count()
        };
        for (line, count) in [
            ("git log | wc -l", 2),
            ("git status; rm -rf x", 2),
            ("git rm x", 1),
            ("git commit -m 'x; rm y'", 1),
            ("A=1 git status && rm x", 2),
            ("(git status)", 1),
            ("git log \\; rm", 1),
            ("echo git", 0),
            ("git a\nrm b", 2),
        ] {
            assert_eq!(found(line), count, "{line}");
        }
    }
}
