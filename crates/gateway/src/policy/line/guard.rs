//! The door to the parser: bounds before it, panics caught behind it.
//!
//! The parser recurses over nested text and tries some branches twice, so depth costs stack and
//! time. Both are bounded here before it runs, on the tokens where that is exact.

mod lost;

use std::panic::{AssertUnwindSafe, catch_unwind};

use brush_parser::ast::Program;
use brush_parser::{Parser, ParserOptions, SourcePosition, Token};
use thiserror::Error;

use super::documents::Documents;
use super::joined::joined;
use super::position::{Position, Source};

/// How much text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub text_bytes_max: usize,
    /// Substitutions inside substitutions, and compound commands inside each other.
    pub nesting_max: usize,
    /// Simple commands in one line.
    pub commands_max: usize,
    /// Expansions and substitutions. The tokenizer recurses at each, whatever closes them; a quoted one counts too, since
    /// finding out what is quoted is what the tokenizer is for.
    pub openings_max: usize,
}

impl Limits {
    pub const STANDARD: Self = Self {
        text_bytes_max: 64 * 1024,
        nesting_max: 12,
        commands_max: 1024,
        openings_max: 192,
    };
}

/// Why a text could not be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LineError {
    #[error("the line holds no command")]
    Empty,
    #[error("the line is {bytes} bytes long, at most {max} are read")]
    TooLong { bytes: usize, max: usize },
    #[error("the line holds a NUL character ({0})")]
    Nul(Position),
    #[error("the line nests deeper than {max} levels")]
    TooDeep { max: usize },
    #[error("the line holds more than {max} commands")]
    TooMany { max: usize },
    #[error("{what} cannot be read safely ({position})")]
    Unreadable { what: &'static str, position: Position },
    #[error("the line is no shell syntax: {what} ({position})")]
    Syntax { what: &'static str, position: Position },
}

/// Whether a text can be looked at.
pub(super) fn check_size(text: &str, limits: Limits) -> Result<(), LineError> {
    if text.len() > limits.text_bytes_max {
        return Err(LineError::TooLong {
            bytes: text.len(),
            max: limits.text_bytes_max,
        });
    }
    if let Some(index) = text.chars().position(|c| c == '\0') {
        return Err(LineError::Nul(Source::new(text).at(index)));
    }
    Ok(())
}

/// Parses the whole text, whose size was checked. Extended globs stay off as they are in `bash -c`: with them on,
/// `!(id)` would be a word and not a command.
pub(super) fn parse(documents: &Documents<'_>, limits: Limits) -> Result<Program, LineError> {
    let text = documents.visible();
    check_openings(text, limits)?;
    uncertain(documents)?;
    let program = parse_checked(text, limits)?;
    if program.complete_commands.is_empty() {
        return Err(LineError::Empty);
    }
    Ok(program)
}

/// The here-document whose place is not certain. A program without it has lost it, and what stands beside it.
pub(super) fn uncertain(documents: &Documents<'_>) -> Result<Option<Position>, LineError> {
    check_documents(documents.visible(), documents.unread())
}

/// Parses a part of a text whose size was checked.
pub(super) fn parse_part(text: &str, limits: Limits) -> Result<Program, LineError> {
    check_documents(text, 0)?;
    parse_checked(text, limits)
}

/// How every text is read.
pub(super) fn options() -> ParserOptions {
    ParserOptions {
        enable_extended_globbing: false,
        tilde_expansion_at_word_start: false,
        ..ParserOptions::default()
    }
}

fn parse_checked(text: &str, limits: Limits) -> Result<Program, LineError> {
    let options = options();
    check_descriptors(text)?;
    let run = || {
        match brush_parser::uncached_tokenize_str(text, &options.tokenizer_options()) {
            Ok(tokens) => {
                check_depth(&tokens, limits)?;
                lost::check(text, &tokens)?;
                brush_parser::parse_tokens(&tokens, &options).map_err(|error| syntax(text, &error))
            }
            // The parser proper knows where the text went wrong; it stops at the same place.
            Err(_) => Parser::new(text.as_bytes(), &options)
                .parse_program()
                .map_err(|error| syntax(text, &error)),
        }
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(LineError::Unreadable {
        what: "this line",
        position: Position::START,
    }))
}

fn syntax(text: &str, error: &brush_parser::ParseError) -> LineError {
    let end = || Source::new(text).at(text.chars().count());
    let (what, position) = match error {
        brush_parser::ParseError::ParsingNear(near) => ("unexpected text", from_parser(near)),
        brush_parser::ParseError::ParsingAtEndOfInput => ("unexpected end", end()),
        brush_parser::ParseError::Tokenizing { position, .. } => {
            ("text without its end", position.as_ref().map_or_else(end, from_parser))
        }
    };
    match beyond_the_parser(text) {
        Some(what) => LineError::Unreadable { what, position },
        None => LineError::Syntax { what, position },
    }
}

/// What stands in a text that the parser gave up on and that it does not know all of: such a text may be in order.
fn beyond_the_parser(text: &str) -> Option<&'static str> {
    let has = |wanted: &str| {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .any(|word| word == wanted)
    };
    if has("select") {
        Some("`select`")
    } else if has("case") {
        // Its `)` is taken for the end of a substitution or subshell around it.
        Some("`case` inside parentheses (in `$(…)` write its patterns as `(a)`, and `{ …; }` for `(…)`)")
    } else if has("for") && text.contains('{') {
        Some("`for` with braces")
    } else if text.contains("[[") && text.contains(')') {
        // A pattern like `@(a|b)`, or a test that is the body of a function.
        Some("`[[` with these parentheses")
    } else {
        None
    }
}

fn from_parser(position: &SourcePosition) -> Position {
    Position {
        line: u32::try_from(position.line).unwrap_or(u32::MAX),
        column: u32::try_from(position.column).unwrap_or(u32::MAX),
    }
}

fn check_openings(text: &str, limits: Limits) -> Result<(), LineError> {
    let text = joined(text);
    let openings = ["$(", "${", "$["];
    let count: usize = openings.iter().map(|o| text.matches(o).count()).sum();
    if count > limits.openings_max {
        return Err(LineError::TooDeep {
            max: limits.openings_max,
        });
    }
    Ok(())
}

/// The tokenizer takes memory without end over here-documents that do not end, or that stand inside a
/// substitution. So where they are not certain, which is from `unread` on, only the ordinary form is read: one
/// here-document, not behind the start of a substitution, with a plain word as its tag and a line of its own that ends it.
/// It begins on a line that is closed: the parser loses a substitution that goes over the end of it.
fn check_documents(whole: &str, unread: usize) -> Result<Option<Position>, LineError> {
    let text = &whole[unread..];
    let position = |byte: usize| Source::new(whole).at(whole[..unread + byte].chars().count());
    let unreadable = |byte: usize, what: &'static str| LineError::Unreadable {
        what,
        position: position(byte),
    };
    let starts = ["$(", "`", "<(", ">(", "${", "$["];
    let as_one = joined(text);
    let is_cut = |operator: &str| as_one.matches(operator).count() != text.matches(operator).count();
    if as_one.contains("<<") && starts.iter().chain(&["<<"]).any(|operator| is_cut(operator)) {
        return Err(unreadable(0, "a here-document beside an operator on two lines"));
    }
    let start = starts.iter().filter_map(|opening| text.find(opening)).min();
    let mut document = None;
    let mut from = 0;
    let mut before = Before::START;
    while let Some(found) = text[from..].find("<<") {
        let at = from + found;
        before.read_on(&text[from..at]);
        let arrows = text[at..].bytes().take_while(|byte| *byte == b'<').count();
        from = at + arrows;
        // Only where nothing but quotes could mislead us is a quoted one told from a real one.
        if arrows == 3 || before.is_plain && before.open.is_some() {
            continue;
        }
        let is_first = document.is_none();
        document.get_or_insert(at);
        if start.is_some_and(|start| start < at) {
            return Err(unreadable(
                at,
                "a here-document behind a substitution (write it to a file first)",
            ));
        }
        let end = if arrows == 2 && is_first {
            end_of_document(&text[from..])
        } else {
            None
        };
        let Some(end) = end else {
            return Err(unreadable(
                at,
                "this here-document (write `<<'END'`, then its text from the next line on, and `END` alone on a line)",
            ));
        };
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        if !text[line..].lines().next().is_some_and(is_closed) {
            return Err(unreadable(
                at,
                "the line a here-document begins on (put nothing but plain words on it)",
            ));
        }
        // What stands in a quoted document is text.
        let tag = text[from..].trim_start_matches(['-', ' ', '\t']);
        if before.is_plain && !before.has_quotes && tag.starts_with('\'') {
            before.read_on(&text[from..from + end]);
            from += end;
        }
    }
    Ok(document.map(position))
}

/// No quote, substitution or continuation is open at the end of the line.
pub(super) fn is_closed(line: &str) -> bool {
    let line = line.replace("<<\\", "<<").replace("<<-\\", "<<-");
    let even = |quote: char| line.matches(quote).count().is_multiple_of(2);
    even('\'') && even('"') && !line.contains(['`', '\\', '#']) && !line.contains("$(")
}

/// What is known of the text before a place, read once from its start.
struct Before {
    /// Nothing in it but quotes changes what a quote means.
    is_plain: bool,
    has_quotes: bool,
    /// The quote that is open at its end.
    open: Option<char>,
}

impl Before {
    const START: Self = Self {
        is_plain: true,
        has_quotes: false,
        open: None,
    };

    fn read_on(&mut self, text: &str) {
        for c in text.chars() {
            match (c, self.open) {
                ('\\' | '`' | '#' | '$', _) => self.is_plain = false,
                ('\'' | '"', None) => {
                    self.has_quotes = true;
                    self.open = Some(c);
                }
                (c, Some(open)) if c == open => self.open = None,
                (_, Some(_) | None) => {}
            }
        }
    }
}

/// Where a here-document with a plain tag ends, if a line ends it; the text begins behind `<<`.
fn end_of_document(text: &str) -> Option<usize> {
    let (tabs, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (first, body) = rest.trim_start_matches([' ', '\t']).split_once('\n')?;
    let word = first.split([' ', '\t', ';', '|', '&', '>', '<', ')']).next()?;
    let quotes = ['\'', '"'];
    let unquoted = quotes
        .iter()
        .find_map(|quote| word.strip_prefix(*quote)?.strip_suffix(*quote));
    let tag = unquoted.unwrap_or(word);
    if tag.is_empty() || !tag.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return None;
    }
    let mut offset = text.len() - body.len();
    for line in body.split_inclusive('\n') {
        offset += line.len();
        let line = line.strip_suffix('\n').unwrap_or(line);
        if (if tabs { line.trim_start_matches('\t') } else { line }) == tag {
            return Some(offset);
        }
    }
    None
}

/// The parser cannot hold a descriptor of more than 32 bits and would panic.
fn check_descriptors(text: &str) -> Result<(), LineError> {
    let text = joined(text);
    let mut digits = 0;
    for (index, c) in text.chars().enumerate() {
        if (c == '<' || c == '>') && digits > 9 {
            return Err(LineError::Syntax {
                what: "a descriptor that does not exist",
                position: Source::new(&text).at(index),
            });
        }
        digits = if c.is_ascii_digit() { digits + 1 } else { 0 };
    }
    Ok(())
}

/// Times the parser may go over the same subscript.
const SUBSCRIPT_WORK_MAX: u64 = 1 << 14;

/// A word like `name[…` is tried as an assignment. Inside the brackets the parser begins anew at every
/// letter that could be a name with brackets of its own, and at every quote and `$`, so that a few of
/// them inside each other cost minutes. A subscript that opens nothing is read once, whatever follows it.
fn check_subscript(token: &Token) -> Result<(), LineError> {
    let Token::Word(word, location) = token else {
        return Ok(());
    };
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let Some(subscript) = word.trim_start_matches(of_name).strip_prefix('[') else {
        return Ok(());
    };
    let inside = subscript.split(']').next().unwrap_or_default();
    let opens = inside.contains(['[', '"', '\'', '`', '(', '\\']);
    if !opens && !inside.contains("${") {
        return Ok(());
    }
    let (mut work, mut name) = (1_u64, 0_u64);
    for c in subscript.chars() {
        work = work.saturating_mul(match c {
            '[' => 1 + name,
            '$' => 4,
            '"' | '\'' | '`' | '(' | '\\' => 2,
            _ => 1,
        });
        name = if of_name(c) { name + 1 } else { 0 };
    }
    if work > SUBSCRIPT_WORK_MAX {
        return Err(LineError::Unreadable {
            what: "this subscript",
            position: from_parser(&location.start),
        });
    }
    Ok(())
}

/// Operators in one `[[ … ]]`.
const TESTS_MAX: usize = 64;

/// Parentheses that are open at a `;`. The parser tries each of them as arithmetic and as a
/// subshell, which doubles its work every time.
const UNCLOSED_MAX: usize = 4;

/// Depth as the grammar sees it. A `case` without its last `;;` and a process substitution are
/// tried twice by the parser, so four of them inside each other already cost sixteen times.
fn check_depth(tokens: &[Token], limits: Limits) -> Result<(), LineError> {
    let too_deep = LineError::TooDeep {
        max: limits.nesting_max,
    };
    let mut open: Vec<bool> = Vec::new();
    let mut words = 0_usize;
    let mut cases = 0_usize;
    let mut tested: Option<usize> = None;
    let mut before = "";
    for token in tokens {
        check_subscript(token)?;
        let text = match token {
            Token::Operator(text, _) => {
                match text.as_str() {
                    "(" => open.push(before == "<" || before == ">"),
                    ")" => drop(open.pop()),
                    ";" if open.len() > UNCLOSED_MAX => return Err(too_deep),
                    _ => {}
                }
                text
            }
            Token::Word(text, _) => {
                match text.as_str() {
                    "{" | "if" | "for" | "while" | "until" | "coproc" => words += 1,
                    "}" | "fi" | "done" => words = words.saturating_sub(1),
                    "case" => cases += 1,
                    "esac" => cases = cases.saturating_sub(1),
                    "[[" => tested = Some(0),
                    "]]" => tested = None,
                    _ => {}
                }
                text
            }
        };
        before = text;
        // Inside `[[ … ]]` every operator is one more level of the tree.
        if let Some(operators) = &mut tested {
            *operators += usize::from(matches!(text.as_str(), "!" | "&&" | "||"));
        }
        let twice = cases + open.iter().filter(|process| **process).count();
        if open.len() + words + cases > 2 * limits.nesting_max || twice > 4 || tested > Some(TESTS_MAX) {
            return Err(too_deep);
        }
    }
    if open.len() > UNCLOSED_MAX {
        return Err(too_deep);
    }
    Ok(())
}
