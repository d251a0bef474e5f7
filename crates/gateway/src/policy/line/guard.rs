//! The door to the parser: bounds before it, panics caught behind it.
//!
//! The parser recurses over nested text and tries some branches twice, so depth costs stack and
//! time. Both are bounded here before it runs, on the tokens where that is exact.

use std::panic::{AssertUnwindSafe, catch_unwind};

use brush_parser::ast::Program;
use brush_parser::{Parser, ParserOptions, SourcePosition, Token};
use thiserror::Error;

use super::position::{Position, Source};

/// How much text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub text_bytes_max: usize,
    /// Substitutions inside substitutions, and compound commands inside each other.
    pub nesting_max: usize,
    /// Simple commands in one line.
    pub commands_max: usize,
}

impl Limits {
    pub const STANDARD: Self = Self {
        text_bytes_max: 64 * 1024,
        nesting_max: 12,
        commands_max: 1024,
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

/// Parses the whole text. Extended globs stay off as they are in `bash -c`: with them on, `!(id)`
/// would be a word and not a command.
pub(super) fn parse(text: &str, limits: Limits) -> Result<Program, LineError> {
    if text.len() > limits.text_bytes_max {
        return Err(LineError::TooLong {
            bytes: text.len(),
            max: limits.text_bytes_max,
        });
    }
    if let Some(index) = text.chars().position(|c| c == '\0') {
        return Err(LineError::Nul(Source::new(text).at(index)));
    }
    check_openings(text)?;
    let program = parse_program(text, limits)?;
    if program.complete_commands.is_empty() {
        return Err(LineError::Empty);
    }
    Ok(program)
}

/// Parses a text whose size is known to be in bounds: the whole line or a part of it.
pub(super) fn parse_program(text: &str, limits: Limits) -> Result<Program, LineError> {
    let options = ParserOptions {
        enable_extended_globbing: false,
        tilde_expansion_at_word_start: false,
        ..ParserOptions::default()
    };
    check_descriptors(text)?;
    check_documents(text)?;
    let run = || {
        match brush_parser::uncached_tokenize_str(text, &options.tokenizer_options()) {
            Ok(tokens) => {
                check_depth(&tokens, limits)?;
                brush_parser::parse_tokens(&tokens, &options).map_err(|error| syntax(&error))
            }
            // The parser proper knows where the text went wrong; it stops at the same place.
            Err(_) => Parser::new(text.as_bytes(), &options)
                .parse_program()
                .map_err(|error| syntax(&error)),
        }
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(LineError::Syntax {
        what: "the parser gave up",
        position: Position::START,
    }))
}

fn syntax(error: &brush_parser::ParseError) -> LineError {
    let (what, position) = match error {
        brush_parser::ParseError::ParsingNear(near) => ("unexpected text", Some(near)),
        brush_parser::ParseError::ParsingAtEndOfInput => ("unexpected end", None),
        brush_parser::ParseError::Tokenizing { position, .. } => ("text without its end", position.as_ref()),
    };
    LineError::Syntax {
        what,
        position: position.map_or(Position::START, from_parser),
    }
}

fn from_parser(position: &SourcePosition) -> Position {
    Position {
        line: u32::try_from(position.line).unwrap_or(u32::MAX),
        column: u32::try_from(position.column).unwrap_or(u32::MAX),
    }
}

/// The tokenizer recurses at each of these openings, whatever closes them; a quoted one counts too,
/// since finding out what is quoted is what the tokenizer is for.
const OPENINGS_MAX: usize = 192;

fn check_openings(text: &str) -> Result<(), LineError> {
    let openings = ["$(", "${", "$["];
    let count: usize = openings.iter().map(|o| text.matches(o).count()).sum();
    if count > OPENINGS_MAX {
        return Err(LineError::TooDeep { max: OPENINGS_MAX });
    }
    Ok(())
}

/// The tokenizer takes memory without end over some here-documents inside a substitution. Where one
/// ends cannot be told before reading, so a here-document anywhere behind the start of one counts.
fn check_documents(text: &str) -> Result<(), LineError> {
    let starts = ["$(", "`", "<(", ">(", "${", "$["];
    let Some(start) = starts.iter().filter_map(|opening| text.find(opening)).min() else {
        return Ok(());
    };
    let behind = &text[start..];
    let mut from = 0;
    while let Some(found) = behind[from..].find("<<") {
        let arrows = behind[from + found..].bytes().take_while(|byte| *byte == b'<').count();
        if arrows != 3 {
            let index = text[..start + from + found].chars().count();
            return Err(LineError::Unreadable {
                what: "a here-document behind a substitution",
                position: Source::new(text).at(index),
            });
        }
        from += found + arrows;
    }
    Ok(())
}

/// The parser cannot hold a descriptor of more than 32 bits and would panic.
fn check_descriptors(text: &str) -> Result<(), LineError> {
    let mut digits = 0;
    for (index, c) in text.chars().enumerate() {
        if (c == '<' || c == '>') && digits > 9 {
            return Err(LineError::Syntax {
                what: "a descriptor that does not exist",
                position: Source::new(text).at(index),
            });
        }
        digits = if c.is_ascii_digit() { digits + 1 } else { 0 };
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
