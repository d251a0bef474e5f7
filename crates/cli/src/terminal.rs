//! Standard output for people and programs: colours only where a person looks at a terminal, control
//! characters of recorded text never, and a reader that goes away ends the command quietly.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal as _, StdoutLock, Write};
use std::os::fd::AsFd;

use anyhow::Context as _;
use clap::builder::styling::{AnsiColor, Effects, Style};
use countersign_gateway::approval::unseen::is_unseen;
use serde_json::Value;

use crate::start;

/// What is being printed.
pub(crate) struct Page {
    out: BufWriter<StdoutLock<'static>>,
    coloured: bool,
    is_terminal: bool,
    /// A line is shown that the next one takes the place of.
    has_passing: bool,
}

/// What a word means to the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tone {
    Plain,
    Strong,
    Quiet,
    Good,
    Caution,
    Bad,
}

/// One field of a table. Its text is clean: no control character reaches the terminal.
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

/// One thing worth knowing, under a name of ours. Its text is clean.
pub(crate) struct Fact {
    name: &'static str,
    text: String,
    tone: Tone,
}

impl Fact {
    pub(crate) fn new(name: &'static str, tone: Tone, text: &str) -> Self {
        Self {
            name,
            text: clean(text),
            tone,
        }
    }

    /// Its text in lines that fit beside names of this width.
    fn lines(&self, name: usize, columns: usize) -> Vec<String> {
        wrapped(&self.text, columns.saturating_sub(name + 2).max(1))
    }

    /// The whole of it without colours, none of its lines wider than this, for whoever draws by themselves.
    pub(crate) fn drawn(&self, name: usize, columns: usize) -> Vec<String> {
        let lines = self.lines(name, columns);
        let line = |(index, text): (usize, &String)| {
            let named = if index == 0 { self.name } else { "" };
            format!("{named:name$}  {text}")
        };
        lines.iter().enumerate().map(line).collect()
    }
}

/// Nobody reads standard output any more; no reason to complain.
#[derive(Debug)]
pub(crate) struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for ReaderGone {}

impl Page {
    pub(crate) fn stdout() -> Self {
        let stdout = io::stdout();
        let coloured = stdout.is_terminal() && wants_colour(|name| std::env::var_os(name));
        Self {
            is_terminal: stdout.is_terminal(),
            out: BufWriter::new(stdout.lock()),
            coloured,
            has_passing: false,
        }
    }

    pub(crate) fn line(&mut self, text: impl fmt::Display) -> anyhow::Result<()> {
        told(writeln!(self.out, "{text}"))
    }

    /// Shows a line that the next one takes the place of, to a person who looks on.
    pub(crate) fn passing(&mut self, text: &str) -> anyhow::Result<()> {
        if !self.is_terminal {
            return Ok(());
        }
        let text = self.paint(Tone::Quiet, &shortened(text, columns().saturating_sub(1)));
        told(write!(self.out, "\r\x1b[K{text}"))?;
        self.has_passing = true;
        self.flush()
    }

    /// Takes away what was only passing.
    pub(crate) fn wipe(&mut self) -> anyhow::Result<()> {
        if std::mem::replace(&mut self.has_passing, false) {
            told(write!(self.out, "\r\x1b[K"))?;
        }
        Ok(())
    }

    pub(crate) fn json(&mut self, value: &Value) -> anyhow::Result<()> {
        self.line(harmless(&format!("{value:#}")))
    }

    /// One value on one line.
    pub(crate) fn json_line(&mut self, text: impl fmt::Display) -> anyhow::Result<()> {
        self.line(harmless(&text.to_string()))
    }

    /// Objects that are JSON text already, one a line, as one array.
    pub(crate) fn array(&mut self, items: &[String]) -> anyhow::Result<()> {
        match items {
            [] => self.line("[]"),
            items => self.line(format_args!("[\n{}\n]", harmless(&items.join(",\n")))),
        }
    }

    /// The same, of items that are made one at a time.
    pub(crate) fn array_of(&mut self, items: impl Iterator<Item = anyhow::Result<String>>) -> anyhow::Result<()> {
        let mut before = "[\n";
        for item in items {
            told(write!(self.out, "{before}{}", harmless(&item?)))?;
            before = ",\n";
        }
        self.line(if before == "[\n" { "[]" } else { "\n]" })
    }

    /// A table of what was found. That nothing was is said on standard error, where no program takes it for a row.
    pub(crate) fn found(&mut self, rows: &[Vec<Cell>]) -> anyhow::Result<()> {
        if rows.is_empty() {
            start::say("there are none");
        }
        self.table(rows)
    }

    /// Columns as wide as their widest field; the last one ends where its text does.
    pub(crate) fn table(&mut self, rows: &[Vec<Cell>]) -> anyhow::Result<()> {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(Cell::width)
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        rows.iter().try_for_each(|row| self.row(row, &widths))
    }

    /// One row of columns that are at least as wide as told.
    pub(crate) fn row(&mut self, cells: &[Cell], widths: &[usize]) -> anyhow::Result<()> {
        let mut line = String::new();
        for (index, cell) in cells.iter().enumerate() {
            line.push_str(&self.paint(cell.tone, &cell.text));
            if index + 1 < cells.len() {
                let width = widths.get(index).copied().unwrap_or(0);
                line.push_str(&" ".repeat(width.saturating_sub(cell.width()) + 2));
            }
        }
        self.line(line.trim_end())
    }

    /// Facts, a name and a text each. On a terminal a long text goes on below its own beginning: what an agent
    /// wrote never comes to stand where a name stands.
    pub(crate) fn facts(&mut self, facts: &[Fact]) -> anyhow::Result<()> {
        let name = facts.iter().map(|fact| fact.name.chars().count()).max().unwrap_or(0);
        let columns = match self.is_terminal {
            true => columns().saturating_sub(1),
            false => usize::MAX,
        };
        for fact in facts {
            for (index, text) in fact.lines(name, columns).iter().enumerate() {
                let named = if index == 0 { fact.name } else { "" };
                let named = self.paint(Tone::Quiet, &format!("{named:name$}"));
                let text = self.paint(fact.tone, text);
                self.line(format!("{named}  {text}").trim_end())?;
            }
        }
        Ok(())
    }

    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        let style = match tone {
            Tone::Plain => Style::new(),
            Tone::Strong => Style::new().effects(Effects::BOLD),
            Tone::Quiet => Style::new().effects(Effects::DIMMED),
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Caution => AnsiColor::Yellow.on_default(),
            Tone::Bad => AnsiColor::Red.on_default(),
        };
        if self.coloured && tone != Tone::Plain {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }

    /// Where bytes go that are not ours to shape.
    pub(crate) fn raw(&mut self) -> &mut dyn Write {
        &mut self.out
    }

    /// Hands everything over. What was not handed over before the end is lost without a word.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        told(self.out.flush())
    }
}

impl Cell {
    pub(crate) fn new(tone: Tone, text: impl AsRef<str>) -> Self {
        Self {
            text: clean(text.as_ref()),
            tone,
        }
    }

    pub(crate) fn plain(text: impl AsRef<str>) -> Self {
        Self::new(Tone::Plain, text)
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// Whether the person at the terminal has nothing against colours.
pub(crate) fn wants_colour(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let refused = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && variable("TERM").is_none_or(|term| term != "dumb")
}

/// Whether the terminal can do no more than add lines, so that nothing can be drawn on it.
pub(crate) fn only_adds_lines() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Turns a failed write into the error that says what to do about it.
pub(crate) fn told(written: io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        written => written.context("cannot write standard output"),
    }
}

/// Text as it may be shown: what would steer the terminal, turn the direction of reading or not be seen
/// at all is written out. Recorded commands come from agents, who could otherwise draw over the line.
pub(crate) fn clean(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut clean, c| {
        match c {
            '\n' => clean.push_str("\\n"),
            '\r' => clean.push_str("\\r"),
            '\t' => clean.push_str("\\t"),
            _ if is_unseen(c) => clean.extend(c.escape_unicode()),
            _ => clean.push(c),
        }
        clean
    })
}

/// JSON that says the same and steers no terminal: JSON itself writes out only what is below a blank, and some terminals
/// take what lies behind DEL for orders too.
fn harmless(json: &str) -> Cow<'_, str> {
    let steers = |c: char| c != '\n' && is_unseen(c);
    if !json.contains(steers) {
        return Cow::Borrowed(json);
    }
    let mut written = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if steers(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                // Writing to a string cannot fail.
                let _ = fmt::Write::write_fmt(&mut written, format_args!("\\u{unit:04x}"));
            }
        } else {
            written.push(c);
        }
    }
    Cow::Owned(written)
}

/// A number of things, in words.
pub(crate) fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// How wide the terminal is, or is taken to be.
fn columns() -> usize {
    columns_of(io::stdout())
}

/// How wide a terminal is; what is none is as wide as they used to be.
pub(crate) fn columns_of(terminal: impl AsFd) -> usize {
    let size = rustix::termios::tcgetwinsize(terminal).ok();
    size.filter(|size| size.ws_col > 0)
        .map_or(80, |size| usize::from(size.ws_col.max(20)))
}

/// A text in lines of so many columns, every character of it; one empty line where there is none.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut taken = 0;
    for c in text.chars() {
        let width = width(c);
        if taken + width > columns
            && let Some(last) = lines.last()
            && !last.is_empty()
        {
            lines.push(String::new());
            taken = 0;
        }
        if let Some(last) = lines.last_mut() {
            last.push(c);
        }
        taken += width;
    }
    lines
}

/// How many columns a character takes, at most.
fn width(c: char) -> usize {
    match u32::from(c) {
        0x1100..=0x115F
        | 0x2E80..=0xA4CF
        | 0xA960..=0xA97F
        | 0xAC00..=0xD7A3
        | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F
        | 0xFF00..=0xFF60
        | 0xFFE0..=0xFFE6
        | 0x1_6FE0..=0x1_B2FF
        | 0x1_F000..=0x1_FAFF
        | 0x2_0000..=0x3_FFFD => 2,
        _ => 1,
    }
}

/// The beginning of a text that is too long for a line.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_written_out() {
        assert_eq!(
            clean("ls \u{1b}[2J\r\n\u{202e}x\u{2028} é 日"),
            "ls \\u{1b}[2J\\r\\n\\u{202e}x\\u{2028} é 日"
        );
    }

    #[test]
    fn what_cannot_be_seen_is_written_out() {
        assert_eq!(
            clean("rm a\u{200b}b\u{a0}c\u{e0041}\u{feff}"),
            "rm a\\u{200b}b\\u{a0}c\\u{e0041}\\u{feff}"
        );
    }

    #[test]
    fn json_steers_no_terminal_and_says_the_same() {
        let value = serde_json::json!({"title": "a\u{9b}2J\u{7f}\u{202e}b\u{e0041}\u{1b}\n日", "n": [1]});
        for text in [value.to_string(), format!("{value:#}")] {
            let written = harmless(&text);
            assert!(!written.contains(|c: char| c != '\n' && is_unseen(c)), "{written}");
            assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), value);
        }
        assert!(matches!(harmless("{\n  \"a\": \"é\"\n}"), Cow::Borrowed(_)));
    }

    #[test]
    fn colours_can_be_refused() {
        let with =
            |name: &'static str, value: &'static str| wants_colour(move |asked| (asked == name).then(|| value.into()));
        assert!(with("TERM", "xterm"));
        assert!(with("NO_COLOR", ""));
        assert!(!with("NO_COLOR", "1"));
        assert!(!with("TERM", "dumb"));
    }

    #[test]
    fn a_long_text_goes_on_below_its_own_beginning() {
        assert_eq!(wrapped("abcdef", 3), ["abc", "def"]);
        assert_eq!(wrapped("日本語", 5), ["日本", "語"]);
        assert_eq!(
            (wrapped("", 3), wrapped("日", 1)),
            (vec![String::new()], vec!["日".to_owned()])
        );
        let fact = Fact::new("runs", Tone::Plain, "true          state  approved");
        let drawn = fact.drawn(5, 21);
        assert_eq!(drawn, ["runs   true          ", "       state  approve", "       d"]);
        assert!(
            Fact::new("in", Tone::Plain, "a\nb")
                .drawn(2, 40)
                .concat()
                .contains("a\\nb")
        );
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened("日本語", 2), "日本…");
        assert_eq!(shortened("日本", 2), "日本");
    }
}
