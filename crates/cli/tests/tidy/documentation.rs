//! The documentation as far as a machine can check it: links lead somewhere, and tests that are named exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{root, sources};

/// Every page of the repository, in the folders where pages are.
fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![(root(), Depth::Top)];
    while let Some((directory, depth)) = todo.pop() {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                if depth == Depth::Below
                    || path
                        .file_name()
                        .is_some_and(|name| name == "docs" || name == "examples")
                {
                    todo.push((path, Depth::Below));
                }
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(found.len() > 10, "the pages were not found: {found:?}");
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Top,
    Below,
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("readable")
}

/// The text outside of fenced and indented blocks, where links are links.
fn prose(page: &str) -> String {
    let mut fenced = false;
    let mut indented = false;
    let mut before = "";
    let mut text = String::new();
    for line in page.lines() {
        // Indented lines are a block behind an empty line, and belong to a list item behind its text.
        indented = line.starts_with("    ") && (indented || before.is_empty());
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !indented {
            text.push_str(line);
            text.push('\n');
        }
        before = line;
    }
    text
}

/// Where a page's links and pictures lead.
fn targets(prose: &str) -> Vec<&str> {
    let links = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let pictures = prose.split(" src=\"").skip(1).filter_map(|rest| rest.split('"').next());
    links.chain(pictures).collect()
}

/// The anchors that headings of a page get: lower case, words joined by hyphens, the rest dropped.
fn anchors(page: &str) -> BTreeSet<String> {
    let heading = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    page.lines().filter(|line| line.starts_with('#')).map(heading).collect()
}

#[test]
fn every_link_inside_the_repository_leads_somewhere() {
    let mut dead = Vec::new();
    for page in pages() {
        for target in targets(&prose(&read(&page))) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() {
                page.clone()
            } else {
                page.parent().expect("a folder").join(file)
            };
            let leads = path.exists() && (anchor.is_empty() || anchors(&read(&path)).contains(anchor));
            if !leads {
                dead.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

/// Names of tests: functions behind a `#[test]`, and those of a `tests` folder, where a suite for several
/// stores lists its functions in a macro.
fn test_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for path in sources() {
        let source = read(&path);
        let functions: Vec<&str> = if path.components().any(|part| part.as_os_str() == "tests") {
            source.split("fn ").skip(1).collect()
        } else {
            let marked = source
                .split("#[test]")
                .skip(1)
                .chain(source.split("#[tokio::test").skip(1));
            marked.filter_map(|behind| behind.split("fn ").nth(1)).collect()
        };
        names.extend(
            functions
                .into_iter()
                .filter_map(|behind| behind.split('(').next())
                .map(str::to_owned),
        );
    }
    names
}

/// Words in backticks that can only be names of tests: long, lower case, with underscores, and no metrics.
fn named_tests(text: &str) -> BTreeSet<&str> {
    let is_name = |word: &&str| {
        word.len() > 20
            && !word.starts_with("countersign_")
            && word.matches('_').count() > 2
            && word
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    text.split('`').skip(1).step_by(2).filter(is_name).collect()
}

#[test]
fn every_test_that_the_documentation_names_exists() {
    let known = test_names();
    let mut unknown = Vec::new();
    for page in pages() {
        let text = prose(&read(&page));
        let missing = named_tests(&text).into_iter().filter(|name| !known.contains(*name));
        unknown.extend(missing.map(|name| format!("{}: {name}", page.display())));
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn every_attack_in_the_threat_model_names_its_test() {
    let page = read(&root().join("docs/threat-model.md"));
    let (_, attacks) = page.split_once("\n## Attacks\n").expect("the attacks");
    let (attacks, _) = attacks.split_once("\n## ").expect("what comes behind");
    let known = test_names();
    let rows: Vec<&str> = attacks
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| attack |"))
        .collect();
    assert!(rows.len() > 40, "{}", rows.len());
    for row in rows {
        let proof = row
            .trim_end_matches(['|', ' '])
            .rsplit(" | ")
            .next()
            .unwrap_or_default();
        let names: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test is named: {row}");
        for name in names {
            assert!(known.contains(name), "there is no test `{name}`: {row}");
        }
    }
}

#[test]
fn every_file_that_the_threat_model_names_exists() {
    let page = read(&root().join("docs/threat-model.md"));
    let is_path = |word: &&str| word.contains("/src/");
    for word in page.split('`').skip(1).step_by(2).filter(is_path) {
        assert!(root().join("crates").join(word).exists(), "crates/{word}");
    }
}
