//! The escapes of `$'…'`.

/// The text, or nothing where an escape is unknown, ends the string early or is no character.
pub(super) fn decode(chars: &[char]) -> Option<String> {
    let mut text = String::new();
    let mut rest = chars.iter().copied().peekable();
    while let Some(c) = rest.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        let escape = rest.next()?;
        let mut number = |radix: u32, digits: usize, first: u32| {
            let mut value = first;
            for _ in 0..digits {
                match rest.peek().and_then(|c| c.to_digit(radix)) {
                    Some(digit) => {
                        value = value * radix + digit;
                        rest.next();
                    }
                    None => break,
                }
            }
            value
        };
        let decoded = match escape {
            'a' => '\x07',
            'b' => '\x08',
            'e' | 'E' => '\x1b',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '\\' | '\'' | '"' | '?' => escape,
            'x' => ascii(number(16, 2, 0))?,
            // Beyond ASCII it depends on the locale.
            'u' => ascii(number(16, 4, 0))?,
            '0'..='7' => ascii(number(8, 2, escape.to_digit(8)?))?,
            _ => return None,
        };
        // A NUL ends the string in bash, and what follows it disappears.
        if decoded == '\0' {
            return None;
        }
        text.push(decoded);
    }
    Some(text)
}

/// Whether a character ends a line or steers a terminal.
fn steers(c: char) -> bool {
    c.is_ascii_control() && !"\t\r".contains(c)
}

/// A text that holds ends of lines, or characters which steer a terminal, as `$'…'` again; other texts need no escapes.
pub(super) fn encode(text: &str) -> Option<String> {
    if !text.contains(steers) {
        return None;
    }
    let mut escaped = String::from("$'");
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            // Two of them would be looked at for a here-document.
            '<' => escaped.push_str("\\074"),
            c if steers(c) => escaped.push_str(&format!("\\{:03o}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped.push('\'');
    Some(escaped)
}

/// Most escapes give bytes; above ASCII a byte alone is no character.
fn ascii(value: u32) -> Option<char> {
    u8::try_from(value).ok().filter(u8::is_ascii).map(char::from)
}
