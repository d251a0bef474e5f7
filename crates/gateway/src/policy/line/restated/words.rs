//! Words, the substitutions in them, and here-documents, which become words.

use brush_parser::ast::{
    AndOrList, Command, CommandPrefixOrSuffixItem as Item, CompoundListItem, IoFileRedirectKind, IoHereDocument,
    IoRedirect, Program, Word,
};

use super::loops::Loops;
use super::{Writer, Written};
use crate::policy::line::documents::enclosed_text;
use crate::policy::line::guard;
use crate::policy::line::word::{self, Context, Parts, Restated, single_quoted};

/// Words that mean something to bash where it expects them, and in some places where it does not: a pattern `(})` ends a group.
#[rustfmt::skip]
const RESERVED: [&str; 22] = [
    "!", "{", "}", "[[", "]]", "if", "then", "elif", "else", "fi", "case", "in", "esac", "for", "select", "while", "until", "do", "done",
    "function", "time", "coproc",
];

/// Whether a word with an operator before it is text without quotes inside of quotes, or one variable.
fn is_plain_name(body: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-+,@% ".contains(c);
    let is_variable = |text: &str| {
        let name = text.strip_prefix("${").and_then(|text| text.strip_suffix('}'));
        name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
    };
    let name = body.strip_prefix("< ").unwrap_or_default();
    let quoted = |quote: char| name.strip_prefix(quote).and_then(|name| name.strip_suffix(quote));
    let inner = quoted('"').or_else(|| quoted('\'')).unwrap_or(name);
    !inner.is_empty() && inner.chars().all(is_plain) || quoted('\'').is_none() && is_variable(inner)
}

/// Whether it is `< file`, which stands for its contents in a substitution, and for nothing elsewhere.
fn reads_a_file(program: &Program) -> bool {
    let [list] = program.complete_commands.as_slice() else {
        return false;
    };
    let [CompoundListItem(AndOrList { first, additional }, _)] = list.0.as_slice() else {
        return false;
    };
    let [Command::Simple(simple)] = first.seq.as_slice() else {
        return false;
    };
    let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
    additional.is_empty()
        && simple.word_or_name.is_none()
        && prefix.clone().count() == 1
        && prefix.clone().all(|item| {
            let read = |redirection: &IoRedirect| {
                matches!(
                    redirection,
                    IoRedirect::File(None | Some(0), IoFileRedirectKind::Read, _)
                )
            };
            matches!(item, Item::IoRedirect(redirection) if read(redirection))
        })
}

const UNREAD: &str = "a substitution beside a here-document";

impl Writer<'_> {
    pub(super) fn word(&mut self, word: &Word, context: Context) -> Written {
        self.begin(word);
        if word.value.starts_with('#') {
            return Err("a word that begins as a comment does");
        }
        if RESERVED.contains(&word.value.as_str()) {
            self.put(single_quoted(&word.value));
            return Ok(());
        }
        self.text(&word.value, context, self.start(word))
    }

    /// What fails from here on fails at this word.
    pub(super) fn begin(&mut self, word: &Word) {
        if let Some(start) = self.start(word) {
            self.at = start;
        }
    }

    /// The same for what is no word.
    pub(super) fn begin_at(&mut self, index: usize) {
        if let Some(start) = self.settled(index) {
            self.at = start;
        }
    }

    /// The same for a text that begins at this place of the whole.
    pub(super) fn text(&mut self, text: &str, context: Context, start: Option<usize>) -> Written {
        self.parts(word::parse(text, context), start)
    }

    /// Where a word begins; the parser lets it begin before a continued line that precedes it.
    pub(super) fn start(&self, word: &Word) -> Option<usize> {
        self.settled(word.loc.as_ref()?.start.index)
    }

    fn settled(&self, mut at: usize) -> Option<usize> {
        let visible = &self.whole?.visible;
        loop {
            match visible.get(at..)? {
                ['\\', '\n', ..] => at += 2,
                [' ' | '\t', ..] => at += 1,
                _ => return Some(at),
            }
        }
    }

    /// A document says what a text in quotes says: its lines, the last one with its end.
    pub(super) fn document(&mut self, document: &IoHereDocument) -> Written {
        self.begin(&document.here_end);
        let Some(text) = document.doc.value.strip_suffix('\n') else {
            self.put("< /dev/null");
            return match document.doc.value.is_empty() {
                true => Ok(()),
                false => Err("a here-document without its end"),
            };
        };
        self.put("<<< ");
        if !document.requires_expansion {
            self.put(single_quoted(text));
            return Ok(());
        }
        self.put('"');
        self.parts(word::parse(text, Context::Body), None)?;
        self.put('"');
        Ok(())
    }

    fn parts(&mut self, parts: Parts, start: Option<usize>) -> Written {
        for piece in parts.restated {
            match piece {
                Restated::Text(text) => self.put(text),
                Restated::Program(place) => {
                    let nested = parts.programs.get(place).ok_or(UNREAD)?;
                    let at = start.zip(nested.index).map(|(start, index)| start + index);
                    self.substitution(&nested.text, at)?;
                }
            }
        }
        parts.odd.first().map_or(Ok(()), |odd| Err(*odd))
    }

    fn substitution(&mut self, text: &str, at: Option<usize>) -> Written {
        if self.depth >= self.limits.nesting_max {
            return Err("a substitution that is nested too deep");
        }
        let document = self.enclosed_document(text, at).ok_or(UNREAD)?;
        let program = guard::parse_part(text, self.limits).map_err(|_| UNREAD)?;
        let mut inner = Writer {
            whole: None,
            limits: self.limits,
            depth: self.depth + 1,
            at: 0,
            loops: Loops::Own(0),
            functions: std::mem::take(&mut self.functions),
            out: String::new(),
        };
        inner.program(&program)?;
        self.functions = inner.functions;
        let body = inner.out.trim_end_matches('\n');
        self.put("$");
        match document {
            Some(document) => self.call(&format!("{body} {document}")),
            None if body.is_empty() => self.put("( )"),
            None if !reads_a_file(&program) => self.call(body),
            None => {
                // `0< file` is the same to bash.
                let body = body.strip_prefix('0').unwrap_or(body);
                if !is_plain_name(body) {
                    return Err("a file that is read by a substitution, and whose name is no plain word");
                }
                // It means this in a substitution only, so that it stays there; bash writes it down for itself.
                self.put(format_args!("( {body} )"));
            }
        }
        Ok(())
    }

    /// The document of a substitution, which the parser did not see; nothing at all where it cannot be told whether there is
    /// one.
    fn enclosed_document(&self, text: &str, at: Option<usize>) -> Option<Option<String>> {
        let Some(whole) = self.whole.filter(|whole| whole.written != whole.visible) else {
            return Some(None);
        };
        let at = at?;
        let range = at..at + text.chars().count();
        let (written, visible) = (whole.written.get(range.clone())?, whole.visible.get(range)?);
        if !visible.iter().copied().eq(text.chars()) {
            return None;
        }
        if written == visible {
            return Some(None);
        }
        let lines = enclosed_text(&written.iter().collect::<String>())?;
        Some(Some(match lines.strip_suffix('\n') {
            Some(lines) => format!("<<< {}", single_quoted(lines)),
            None => "< /dev/null".to_owned(),
        }))
    }
}
