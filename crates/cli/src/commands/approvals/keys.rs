//! A terminal that is drawn upon and answers with single keys.

use std::io::{Read as _, Write as _};

use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use tokio::sync::mpsc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Key {
    Text(char),
    Up,
    Down,
    Enter,
    Erase,
    Escape,
    Quit,
}

/// The terminal without echo and line editing, on a screen of its own; as it was when this is dropped.
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    pub(crate) fn enter() -> std::io::Result<Self> {
        let stdin = std::io::stdin();
        let before = termios::tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        termios::tcsetattr(&stdin, OptionalActions::Flush, &raw)?;
        let entered = Self { before };
        let mut out = std::io::stdout().lock();
        out.write_all(b"\x1b[?1049h\x1b[?25l")?;
        out.flush()?;
        Ok(entered)
    }

    /// Shows lines that are made for the size of the terminal.
    pub(crate) fn draw(&self, drawn: impl FnOnce(usize, usize) -> Vec<String>) -> anyhow::Result<()> {
        let size = termios::tcgetwinsize(std::io::stdout()).ok();
        // Some terminals do not know their size and say 0.
        let known = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        let (columns, rows) = known.map_or((80, 24), |size| (size.ws_col.max(20), size.ws_row.max(6)));
        let lines = drawn(columns.into(), rows.into());
        let text = format!(
            "\x1b[H{}\x1b[J",
            lines
                .iter()
                .map(|line| format!("{line}\x1b[K\r\n"))
                .collect::<String>()
                .trim_end_matches("\r\n")
        );
        let mut out = std::io::stdout().lock();
        crate::terminal::told(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(b"\x1b[?25h\x1b[?1049l").and_then(|()| out.flush());
        let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// The terminal as it stands, but for lines: every key is heard at once, and the one that interrupts still
/// does. As it was when this is dropped.
pub(crate) struct SingleKeys {
    before: Termios,
}

impl SingleKeys {
    pub(crate) fn enter() -> std::io::Result<Self> {
        let stdin = std::io::stdin();
        let before = termios::tcgetattr(&stdin)?;
        let mut single = before.clone();
        single.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        single.special_codes[SpecialCodeIndex::VMIN] = 1;
        single.special_codes[SpecialCodeIndex::VTIME] = 0;
        termios::tcsetattr(&stdin, OptionalActions::Now, &single)?;
        Ok(Self { before })
    }
}

impl Drop for SingleKeys {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// What is typed, read on a thread that ends with the process.
pub(crate) fn keys() -> mpsc::UnboundedReceiver<Key> {
    let (sender, keys) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut bytes = [0; 64];
        while let Ok(count @ 1..) = stdin.read(&mut bytes) {
            if understood(&bytes[..count])
                .into_iter()
                .any(|key| sender.send(key).is_err())
            {
                return;
            }
        }
    });
    keys
}

/// The keys in what a terminal sent at once.
fn understood(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let mut rest = text.as_ref();
    let mut keys = Vec::new();
    while let Some(first) = rest.chars().next() {
        let known = [
            ("\x1b[A", Key::Up),
            ("\x1bOA", Key::Up),
            ("\x1b[B", Key::Down),
            ("\x1bOB", Key::Down),
        ];
        if let Some((sequence, key)) = known.into_iter().find(|(sequence, _)| rest.starts_with(sequence)) {
            keys.push(key);
            rest = &rest[sequence.len()..];
            continue;
        }
        if rest.starts_with("\x1b[") {
            // Another key that sends a sequence; all of it is left out.
            let end = rest[2..].find(|c: char| c.is_ascii_alphabetic() || c == '~');
            rest = end.map_or("", |end| &rest[end + 3..]);
            continue;
        }
        rest = &rest[first.len_utf8()..];
        keys.push(match first {
            '\r' | '\n' => Key::Enter,
            '\x7f' | '\x08' => Key::Erase,
            '\x1b' => Key::Escape,
            // Interrupt and end of input.
            '\x03' | '\x04' => Key::Quit,
            c if c.is_control() => continue,
            c => Key::Text(c),
        });
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_understood_in_any_company() {
        assert_eq!(
            understood(b"a\x1b[B\x1b[1;5Cd\r\x7f\x1b\x03\xc3\xa9"),
            [
                Key::Text('a'),
                Key::Down,
                Key::Text('d'),
                Key::Enter,
                Key::Erase,
                Key::Escape,
                Key::Quit,
                Key::Text('é')
            ]
        );
    }
}
