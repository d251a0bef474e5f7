//! Here-documents whose place is certain.
//!
//! Where a document begins depends on all that stands before it, and shells and parsers differ over that. So this reader
//! goes over the text from its start, and over nothing that could be read in two ways: plain words, closed quotes,
//! comments, simple expansions and substitutions. The documents that it meets on its way are where it says. Where it
//! meets anything else it stops, and what follows is *unread*: a document there is held against stricter rules by
//! [`super::guard`] and [`super::walk`].

mod enclosed;

use std::borrow::Cow;
use std::collections::HashSet;

use enclosed::{Around, Enclosed};

pub(super) use enclosed::enclosed_text;

pub(super) struct Documents<'a> {
    /// The text without the documents that stand in substitutions: of as many characters, on as many lines.
    visible: Cow<'a, str>,
    /// Where the line begins in which the reader stopped, in bytes of what is visible.
    unread: usize,
    /// The tags of documents whose place is certain, by the index of their first character.
    tags: HashSet<usize>,
}

impl<'a> Documents<'a> {
    pub(super) fn read(text: &'a str) -> Self {
        let mut reader = Reader {
            text,
            at: 0,
            line: 0,
            is_between: true,
            tags: Vec::new(),
            enclosed: Vec::new(),
        };
        let mut unread = text.len();
        while reader.at < text.len() {
            if reader.step().is_none() {
                unread = reader.line;
                break;
            }
        }
        // A line begins in no document, so that each lies before this place or behind it.
        let before = reader.enclosed.iter().take_while(|part| part.end <= unread).count();
        Self {
            visible: without(text, &reader.enclosed),
            unread: without(&text[..unread], &reader.enclosed[..before]).len(),
            tags: indexes(text, &reader.tags),
        }
    }

    pub(super) fn visible(&self) -> &str {
        &self.visible
    }

    pub(super) fn unread(&self) -> usize {
        self.unread
    }

    /// Whether a document with its tag at this character of the whole text is where it seems to be.
    pub(super) fn is_certain(&self, tag: usize) -> bool {
        self.tags.contains(&tag)
    }
}

/// The text with these parts of it blanked.
fn without<'a>(text: &'a str, parts: &[Enclosed]) -> Cow<'a, str> {
    if parts.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut visible = String::with_capacity(text.len());
    let mut kept = 0;
    for part in parts {
        visible.push_str(&text[kept..part.start]);
        let document = text[part.start..part.end].chars();
        visible.extend(document.map(|c| if c == '\n' { '\n' } else { ' ' }));
        kept = part.end;
    }
    visible.push_str(&text[kept..]);
    Cow::Owned(visible)
}

/// Places in bytes, which go up, as places in characters.
fn indexes(text: &str, places: &[usize]) -> HashSet<usize> {
    let (mut from, mut index) = (0, 0);
    let counted = places.iter().map(|place| {
        index += text[from..*place].chars().count();
        from = *place;
        index
    });
    counted.collect()
}

/// What stands for itself outside of quotes, or divides words without saying anything about documents.
const PLAIN: &str = " \t\n-_./,:=+@%&|;<>~^*?{}!]";
/// What may stand in a substitution beside letters and digits.
const PLAIN_INSIDE: &str = " \t-_./,:=+@%&|;<>~^*?{}!";
/// What may stand in arithmetic beside letters and digits.
const PLAIN_IN_ARITHMETIC: &str = " \t_+-*/%=!?:,";

/// Always outside of quotes between two steps.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Where the line begins that is being read.
    line: usize,
    /// Whether a word would begin here, or a comment.
    is_between: bool,
    tags: Vec<usize>,
    enclosed: Vec<Enclosed>,
}

impl Reader<'_> {
    /// Steps over whatever comes next, if that is certain.
    fn step(&mut self) -> Option<()> {
        let rest = &self.text[self.at..];
        let c = rest.chars().next()?;
        let was_between = std::mem::replace(&mut self.is_between, false);
        match c {
            '\'' => self.at += 2 + rest[1..].find('\'')?,
            '"' => self.double_quoted()?,
            '$' => self.at += self.enclosed_at(self.at, Around::Nothing).or_else(|| expansion(rest))?,
            '\\' => {
                let next = rest[1..].chars().next()?;
                self.is_between = next == '\n';
                if !next.is_ascii() || self.is_between && !was_between {
                    return None;
                }
                self.at += 2;
            }
            '#' if was_between => {
                self.at += rest.find('\n').unwrap_or(rest.len());
                self.is_between = true;
            }
            // Behind other operators it may be a comment too.
            '#' if self.text[..self.at].ends_with(['&', '|', '<', '>']) => return None,
            '<' if rest.starts_with("<<<") => {
                self.at += rest.len() - rest.trim_start_matches('<').len();
                return (!rest.starts_with("<<<<")).then_some(());
            }
            '<' if rest.starts_with("<<") => self.document()?,
            // To bash `x[` goes on to its bracket, over blanks and ends of lines.
            '[' if self.text[..self.at].ends_with(is_name_part) => return None,
            _ if c.is_ascii_alphanumeric() || c == '#' || c == '[' || PLAIN.contains(c) => {
                self.at += 1;
                self.is_between = matches!(c, ' ' | '\t' | '\n' | ';');
                if c == '\n' {
                    self.line = self.at;
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn double_quoted(&mut self) -> Option<()> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            let rest = &self.text[at..];
            match rest.chars().next()? {
                '"' => break,
                '`' => return None,
                '\\' if rest[1..].starts_with(['\\', '"', '$', '`']) => at += 2,
                '\\' => return None,
                '$' if at == start => match self.enclosed_at(at, Around::Quotes) {
                    Some(length) => {
                        self.at = at + length;
                        return Some(());
                    }
                    None => at += expansion(rest)?,
                },
                '$' => at += expansion(rest)?,
                c => at += c.len_utf8(),
            }
        }
        self.at = at + 1;
        Some(())
    }

    /// The length of a substitution with a document in it, which is noted.
    fn enclosed_at(&mut self, at: usize, around: Around) -> Option<usize> {
        let found = Enclosed::read(self.text, at, around)?;
        let length = found.behind - at;
        self.enclosed.push(found);
        Some(length)
    }

    /// `<<TAG`, the rest of its line, and the lines up to the tag; the same for each tag of that line, in their order.
    fn document(&mut self) -> Option<()> {
        let mut tags = vec![self.tag()?];
        self.rest_of_line(&mut tags)?;
        for tag in &tags {
            self.lines_up_to(tag)?;
        }
        self.tags.extend(tags.iter().map(|tag| tag.place));
        self.line = self.at;
        self.is_between = true;
        Some(())
    }

    fn tag(&mut self) -> Option<Tag> {
        let rest = &self.text[self.at + 2..];
        let (strips_tabs, rest) = rest.strip_prefix('-').map_or((false, rest), |rest| (true, rest));
        let rest = rest.trim_start_matches([' ', '\t']);
        let place = self.text.len() - rest.len();
        let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let written = rest.strip_prefix(['\'', '"']).unwrap_or(rest);
        let behind = written.trim_start_matches(is_name_part);
        let name = &written[..written.len() - behind.len()];
        let behind = match quote {
            Some(quote) => behind.strip_prefix(quote)?,
            None => behind,
        };
        if name.is_empty() || !behind.starts_with([' ', '\t', '\n', ';', '|', '&', '>']) {
            return None;
        }
        self.at = self.text.len() - behind.len();
        Some(Tag {
            name: name.to_owned(),
            place,
            is_quoted: quote.is_some(),
            strips_tabs,
        })
    }

    fn lines_up_to(&mut self, tag: &Tag) -> Option<()> {
        loop {
            let (line, rest) = self.text[self.at..]
                .split_once('\n')
                .unwrap_or((&self.text[self.at..], ""));
            self.at = self.text.len() - rest.len();
            let found = match tag.strips_tabs {
                true => line.trim_start_matches('\t'),
                false => line,
            };
            if found == tag.name {
                return Some(());
            }
            // Bash joins the lines of a document that expands while it looks for the end.
            if rest.is_empty() || !tag.is_quoted && line.ends_with('\\') {
                return None;
            }
        }
    }

    /// Reads up to the line behind a tag, where the document begins if nothing is open at the end of this one.
    fn rest_of_line(&mut self, tags: &mut Vec<Tag>) -> Option<()> {
        loop {
            let start = self.at;
            let rest = &self.text[start..];
            if rest.starts_with("<<") && !rest.starts_with("<<<") {
                if tags.len() == TAGS_MAX {
                    return None;
                }
                tags.push(self.tag()?);
                continue;
            }
            if rest.starts_with("<<") {
                return None;
            }
            self.step()?;
            match &self.text[start..self.at] {
                "\n" => return Some(()),
                unit if unit.contains(['\n', '\\', '#', '(']) => return None,
                _ => {}
            }
        }
    }
}

/// Documents that one line may begin.
const TAGS_MAX: usize = 8;

/// What a document ends with.
struct Tag {
    name: String,
    /// Where it is written.
    place: usize,
    is_quoted: bool,
    strips_tabs: bool,
}

fn is_name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The length of `$x`, `$?`, `${x…}`, `$((…))` or `$(…)` at the start of the text, if nothing in it opens anything else.
fn expansion(text: &str) -> Option<usize> {
    let after = text.strip_prefix('$')?;
    let inner = if let Some(inner) = after.strip_prefix("((") {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || PLAIN_IN_ARITHMETIC.contains(c);
        inner.trim_start_matches(is_plain).strip_prefix("))")?
    } else if let Some(inner) = after.strip_prefix('(') {
        substitution(inner)?
    } else if let Some(inner) = after.strip_prefix('{') {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_:-=+?./%#,@*^".contains(c);
        inner.trim_start_matches(is_plain).strip_prefix('}')?
    } else if after.starts_with(is_name_part) {
        after.trim_start_matches(is_name_part)
    } else {
        after.strip_prefix(['?', '!', '#', '@', '*'])?
    };
    Some(text.len() - inner.len())
}

/// What follows a substitution of plain words and closed quotes; the text begins behind its parenthesis.
fn substitution(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        let c = rest.chars().next()?;
        let after = &rest[c.len_utf8()..];
        rest = match c {
            ')' => break,
            '\'' | '"' => {
                let (quoted, after) = after.split_once(c)?;
                let is_plain = |c: char| !c.is_control() && !"'\"\\`#()$".contains(c);
                let expands = |c: char| {
                    c == '"'
                        && quoted
                            .strip_prefix('$')
                            .is_some_and(|name| name.chars().all(is_name_part))
                };
                if !quoted.chars().all(is_plain) && !expands(c) {
                    return None;
                }
                after
            }
            '$' if after.starts_with(is_name_part) => after.trim_start_matches(is_name_part),
            '<' if after.starts_with('<') => return None,
            _ if c.is_ascii_alphanumeric() || PLAIN_INSIDE.contains(c) => after,
            _ => return None,
        };
    }
    // The parenthesis behind one of its patterns would end nothing.
    if text[..text.len() - rest.len()].contains("case") {
        return None;
    }
    rest.strip_prefix(')')
}
