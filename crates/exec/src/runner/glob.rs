//! Expansion of patterns to file names, as bash does it by default: `*` and `?` do not match a leading
//! dot or a slash, results are sorted, and a pattern that matches nothing stands for itself.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use countersign_gateway::policy::line::tree::{Piece, Word};

/// Files one pattern may become. The kernel takes six megabytes of arguments at most, and so many names that differ
/// are longer than that: what is refused here could not have been started either.
const MATCHES_MAX: usize = 1 << 19;

/// A pattern stands for more files than a program can be given.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

/// The arguments that words become: all of them, or none.
pub(super) fn expand_all(words: &[Word]) -> Result<Vec<Vec<u8>>, TooMany> {
    let mut all = Vec::with_capacity(words.len());
    for word in words {
        all.append(&mut expand(word, MATCHES_MAX)?);
    }
    Ok(all)
}

fn expand(word: &Word, matches_max: usize) -> Result<Vec<Vec<u8>>, TooMany> {
    if let Some(text) = word.literal() {
        return Ok(vec![text.into_bytes()]);
    }
    let pattern = split(&word.pieces);
    let mut search = Search {
        found: Vec::new(),
        matches_max,
    };
    let start = if pattern.absolute { b"/".to_vec() } else { Vec::new() };
    search.descend(start, &pattern.components)?;
    let mut found = search.found;
    if found.is_empty() {
        return Ok(vec![word.unmatched().into_bytes()]);
    }
    found.sort();
    Ok(found)
}

struct Pattern {
    absolute: bool,
    components: Vec<Component>,
}

/// One name between slashes; `slashes` are those written behind it.
#[derive(Default)]
struct Component {
    parts: Vec<Part>,
    slashes: usize,
}

enum Part {
    Char(char),
    AnyText,
    AnyChar,
    OneOf { negated: bool, ranges: Vec<(char, char)> },
}

fn split(pieces: &[Piece]) -> Pattern {
    let mut pattern = Pattern {
        absolute: false,
        components: vec![Component::default()],
    };
    for piece in pieces {
        let parts: Vec<Part> = match piece {
            Piece::Literal(text) => text.chars().map(Part::Char).collect(),
            Piece::AnyText => vec![Part::AnyText],
            Piece::AnyChar => vec![Part::AnyChar],
            Piece::OneOf { negated, ranges, .. } => vec![Part::OneOf {
                negated: *negated,
                ranges: ranges.clone(),
            }],
        };
        for part in parts {
            add(&mut pattern, part);
        }
    }
    pattern
}

fn add(pattern: &mut Pattern, part: Part) {
    let first = pattern.components.len() == 1;
    let Some(last) = pattern.components.last_mut() else {
        return;
    };
    match part {
        Part::Char('/') if first && last.parts.is_empty() => pattern.absolute = true,
        Part::Char('/') => last.slashes += 1,
        part if last.slashes > 0 => pattern.components.push(Component {
            parts: vec![part],
            slashes: 0,
        }),
        part => last.parts.push(part),
    }
}

struct Search {
    found: Vec<Vec<u8>>,
    matches_max: usize,
}

impl Search {
    fn descend(&mut self, base: Vec<u8>, components: &[Component]) -> Result<(), TooMany> {
        let Some((component, rest)) = components.split_first() else {
            if self.found.len() == self.matches_max {
                return Err(TooMany);
            }
            self.found.push(base);
            return Ok(());
        };
        if let Some(name) = component.literal() {
            return self.proceed(&base, name.as_bytes(), component, rest);
        }
        let directory = if base.is_empty() {
            Path::new(".")
        } else {
            as_path(&base)
        };
        let Ok(entries) = std::fs::read_dir(directory) else {
            return Ok(());
        };
        for name in entries.flatten().map(|entry| entry.file_name().into_vec()) {
            if matches(&component.parts, &String::from_utf8_lossy(&name)) {
                self.proceed(&base, &name, component, rest)?;
            }
        }
        Ok(())
    }

    /// Goes on with a name that fits, if there is such a file.
    fn proceed(&mut self, base: &[u8], name: &[u8], component: &Component, rest: &[Component]) -> Result<(), TooMany> {
        let mut path = [base, name].concat();
        // Links are followed only where something must lie behind them.
        let fits = if rest.is_empty() && component.slashes == 0 {
            std::fs::symlink_metadata(as_path(&path)).is_ok()
        } else {
            as_path(&path).is_dir()
        };
        if !fits {
            return Ok(());
        }
        path.extend(std::iter::repeat_n(b'/', component.slashes));
        self.descend(path, rest)
    }
}

impl Component {
    fn literal(&self) -> Option<String> {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Char(c) => Some(*c),
                Part::AnyText | Part::AnyChar | Part::OneOf { .. } => None,
            })
            .collect()
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

fn matches(parts: &[Part], name: &str) -> bool {
    if name.starts_with('.') && !matches!(parts.first(), Some(Part::Char('.'))) {
        return false;
    }
    let name: Vec<char> = name.chars().collect();
    // The last `*` and where it began to match: enough to go back to, so matching stays quadratic.
    let (mut at, mut part, mut star) = (0, 0, None);
    while at < name.len() {
        match parts.get(part) {
            Some(Part::AnyText) => {
                star = Some((part, at));
                part += 1;
            }
            Some(one) if one.takes(name[at]) => {
                at += 1;
                part += 1;
            }
            _ => match star {
                Some((star_part, began)) => {
                    star = Some((star_part, began + 1));
                    (part, at) = (star_part + 1, began + 1);
                }
                None => return false,
            },
        }
    }
    parts[part..].iter().all(|part| matches!(part, Part::AnyText))
}

impl Part {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Char(own) => *own == c,
            Self::AnyChar => true,
            Self::AnyText => false,
            Self::OneOf { negated, ranges } => ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_gateway::policy::line::{self, Limits, Shape};

    /// The first argument of `ls WORD`, in a directory.
    fn word(dir: &Path, word: &str) -> Word {
        let line = line::read(&format!("ls {}/{word}", dir.display()), Limits::STANDARD).expect("a line");
        let Shape::Plain(tree) = line.shape else {
            panic!("a plain line: {word}")
        };
        tree.commands().next().expect("a command").args[0].clone()
    }

    /// Expands it in a directory with known files.
    fn check(dir: &Path, pattern: &str, expected: &[&str]) {
        let prefix = format!("{}/", dir.display());
        let found: Vec<String> = expand(&word(dir, pattern), MATCHES_MAX)
            .unwrap()
            .into_iter()
            .map(|path| {
                String::from_utf8(path)
                    .unwrap()
                    .strip_prefix(&prefix)
                    .expect("in the directory")
                    .to_owned()
            })
            .collect();
        assert_eq!(found, expected, "{pattern}");
    }

    #[test]
    fn patterns_become_the_files_bash_would_name() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["a.txt", "b.txt", ".hidden.txt", "sub/c.txt", "sub/d", "x*y"] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let dir = dir.path();
        check(dir, "*.txt", &["a.txt", "b.txt"]);
        check(dir, ".*.txt", &[".hidden.txt"]);
        check(dir, "?.txt", &["a.txt", "b.txt"]);
        check(dir, "[b-z].txt", &["b.txt"]);
        check(dir, "[!a].txt", &["b.txt"]);
        check(dir, "*/*.txt", &["sub/c.txt"]);
        check(dir, "*/", &["sub/"]);
        check(dir, "sub/*", &["sub/c.txt", "sub/d"]);
        check(dir, "*.none", &["*.none"]);
        check(dir, "'*'.txt", &["*.txt"]);
        check(dir, "x'*'y", &["x*y"]);
        check(dir, "*b*t*", &["b.txt"]);
    }

    #[test]
    fn a_pattern_for_too_many_files_is_refused_and_never_cut() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["a", "b", "c", "sub/d", "sub/e"] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        for (pattern, count) in [("*", 4), ("?", 3), ("*/*", 2)] {
            let word = word(dir.path(), pattern);
            assert_eq!(expand(&word, count).map(|found| found.len()), Ok(count), "{pattern}");
            assert_eq!(expand(&word, count - 1), Err(TooMany), "{pattern}");
        }
    }
}
