//! Shapes, trees and bounds of reading.

use proptest::prelude::*;

use super::tree::{Action, Piece, Tree, Word};
use super::{Limits, Line, LineError, Shape, canonical, canonical_argv, read};

fn line(text: &str) -> Line {
    read(text, Limits::STANDARD).expect(text)
}

fn plain(text: &str) -> Tree {
    match line(text).shape {
        Shape::Plain(tree) => tree,
        Shape::NeedsShell(reason) => panic!("{text:?} needs a shell: {reason}"),
    }
}

#[track_caller]
fn words(text: &str, expected: &[&str]) {
    let tree = plain(text);
    let command = tree.commands().next().expect("one command");
    let mut found = vec![command.name.clone()];
    found.extend(command.args.iter().map(Word::unmatched));
    assert_eq!(found, expected, "{text:?}");
}

#[test]
fn quotes_are_removed_as_bash_removes_them() {
    words("ls 'a b' \"c d\" e\\ f", &["ls", "a b", "c d", "e f"]);
    words("ls \"\" ''", &["ls", "", ""]);
    words("ls \"a\\$b\\n\\\"c\"", &["ls", "a$b\\n\"c"]);
    words("ls $'a\\tb\\x41\\101\\u0041'", &["ls", "a\tbAAA"]);
    words("\"l\"s -'l'\\a", &["ls", "-la"]);
    words("ls a\\\nb \\\n c", &["ls", "ab", "c"]);
    words("ls # comment", &["ls"]);
    words("ls a#b", &["ls", "a#b"]);
    words("ls \r", &["ls", "\r"]);
    words("ls {} HEAD@{1} a{b", &["ls", "{}", "HEAD@{1}", "a{b"]);
    words("find . -exec x \\;", &["find", ".", "-exec", "x", ";"]);
    words("ls a=b --x=$'y'", &["ls", "a=b", "--x=y"]);
    words("[ -f x ]", &["[", "-f", "x", "]"]);
    words("ls $ a$", &["ls", "$", "a$"]);
    words(
        "grep \"<<<<<<< HEAD\" 'it''s' \"it's <<\"",
        &["grep", "<<<<<<< HEAD", "its", "it's <<"],
    );
}

#[test]
fn quoted_patterns_are_text() {
    let tree = plain("ls *'*'\\*?[a-c!]\"[x]\"");
    let command = tree.commands().next().expect("one command");
    assert_eq!(
        command.args[0].pieces,
        [
            Piece::AnyText,
            Piece::Literal("**".to_owned()),
            Piece::AnyChar,
            Piece::OneOf {
                negated: false,
                ranges: vec![('a', 'c'), ('!', '!')],
                written: "[a-c!]".to_owned(),
            },
            Piece::Literal("[x]".to_owned()),
        ]
    );
}

#[test]
fn redirections_keep_their_order() {
    let check = |text: &str, expected: &[(u32, Action)]| {
        let tree = plain(text);
        let command = tree.commands().next().expect("one command");
        let found: Vec<(u32, Action)> = command
            .redirections
            .iter()
            .map(|redirection| (redirection.fd, redirection.action.clone()))
            .collect();
        assert_eq!(found, expected, "{text:?}");
    };
    let file = || "f".to_owned();
    check("ls > f", &[(1, Action::Write(file()))]);
    check(">f ls", &[(1, Action::Write(file()))]);
    check("ls >| f", &[(1, Action::Write(file()))]);
    check("ls >> f", &[(1, Action::Append(file()))]);
    check("ls < f", &[(0, Action::Read(file()))]);
    check("ls <> f", &[(0, Action::ReadWrite(file()))]);
    check("ls 2> f 1>&2", &[(2, Action::Write(file())), (1, Action::CopyOf(2))]);
    check("ls > f 2>&1", &[(1, Action::Write(file())), (2, Action::CopyOf(1))]);
    check(
        "ls >& f-",
        &[(1, Action::Write("f-".to_owned())), (2, Action::CopyOf(1))],
    );
    check("ls &> f", &[(1, Action::Write(file())), (2, Action::CopyOf(1))]);
    check("ls &>> f", &[(1, Action::Append(file())), (2, Action::CopyOf(1))]);
    check("ls 2>&-", &[(2, Action::Close)]);
    check("ls <<< 'a b'", &[(0, Action::Text("a b\n".to_owned()))]);
    check("ls <<E\na\nE", &[(0, Action::Text("a\n".to_owned()))]);
    check("ls <<'E'\n$a\nE", &[(0, Action::Text("$a\n".to_owned()))]);
    check("ls <<-E\n\ta\n\tE", &[(0, Action::Text("a\n".to_owned()))]);
    check("ls |& wc", &[(2, Action::CopyOf(1))]);
}

#[test]
fn plain_lines_keep_their_structure_and_travel() {
    let tree = plain("a | b && c || d; e\nf");
    assert_eq!(tree.lists.len(), 3);
    assert_eq!(tree.lists[0].first.commands.len(), 2);
    assert_eq!(tree.lists[0].rest.len(), 2);
    let names: Vec<&str> = tree.commands().map(|command| command.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e", "f"]);
    let position = tree.lists[2].first.commands[0].position.to_string();
    assert_eq!(position, "line 2, column 1");
    let bytes = postcard::to_stdvec(&tree).expect("serializable");
    let back: Tree = postcard::from_bytes(&bytes).expect("readable");
    assert_eq!(back, tree);
}

#[test]
fn everything_else_needs_a_shell() {
    for text in [
        "ls $x",
        "ls \"$x\"",
        "ls >2>x",
        "ls <<<2>x",
        "ls >&2--",
        "x[ls a",
        "ls $(id)",
        "ls `id`",
        "x=1",
        "x=1 ls",
        "ls &",
        "(ls)",
        "{ ls; }",
        "! ls",
        "time ls",
        "[[ a ]]",
        "((1))",
        "if ls; then ls; fi",
        "for x in a; do ls; done",
        "f() { ls; }",
        "ls {a,b}",
        "ls {1..3}",
        "ls ~",
        "ls ~/x",
        "ls a=~/x",
        "export x",
        "cd",
        "cd -",
        "cd a b",
        "cd a | ls",
        "eval ls",
        "exec ls",
        "ls <(id)",
        "ls > *.txt",
        "ls 12> f",
        "ls >&3-",
        "unalias x",
        "ls <<E\n$x\nE",
        "ls [[:alpha:]]",
        "ls $'\\c'",
        "ls $'\\u00e9'",
        "ls $\"x\"",
        "> f",
        "read x",
        "set -e",
        "ls a[\"b\"c]*",
    ] {
        let shape = line(text).shape;
        assert!(matches!(shape, Shape::NeedsShell(_)), "{text:?}: {shape:?}");
    }
}

#[test]
fn words_that_only_a_builtin_understands_need_a_shell() {
    let needs = |text: &str| matches!(line(text).shape, Shape::NeedsShell(_));
    for text in [
        "[ a \\< b ]",
        "[ ! a '>' b ]",
        "test -v x",
        "test -R x",
        "[ -a x ]",
        "[ ! -o x ]",
        "echo --help",
        "echo --version | cat",
        "echo -e '\\u2713'",
        "echo -ne a '\\1'",
        "echo -Ee '\\x'",
        "printf",
        "printf -v x a",
        "printf --help",
        "printf '\\u00e9'",
        "printf '\\c'",
        "printf %q a",
        "printf '%(%Y)T' 0",
        "printf '%*d' 1 2",
        "printf %b '\\u00e9'",
        "printf -- %Q a",
        "pwd --help",
    ] {
        assert!(needs(text), "{text}");
    }
    for text in [
        "[ a = b ]",
        "[ -f a -a -f b ]",
        "test a -ot b",
        "echo a --help",
        "echo -e 'a\\tb\\x41\\0101'",
        "echo -eE '\\u2713'",
        "echo -n '\\u2713'",
        "printf '%-5s|%05d %.2f%%\\n' a 1 2",
        "printf '\\101\\x41\\e[0m'",
        "printf -- '%s\\n' -v",
        "printf %b 'a\\n'",
        "pwd -P",
    ] {
        assert!(!needs(text), "{text}");
    }
}

#[test]
fn text_that_cannot_be_read_is_refused() {
    let check = |text: &str, expected: &str| {
        let error = read(text, Limits::STANDARD).expect_err(text).to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    };
    check("", "no command");
    check("  \n# only\n", "no command");
    check("ls 'a", "no shell syntax");
    check("ls |", "no shell syntax");
    check("ls (", "no shell syntax");
    check("ls )", "no shell syntax");
    check("if ls", "no shell syntax");
    check("ls (", "unexpected end (line 1, column 5)");
    check("ls\nif wc", "unexpected end (line 2, column 6)");
    // Bash knows more than the parser does.
    check(
        "select x in a b; do ls; done",
        "`select` cannot be read safely (line 1, column 8)",
    );
    check("for x in a; { ls; }", "`for` with braces cannot be read safely");
    check(
        "ls $(for x in 1; do case $x in 1) ls;; esac; done)",
        "`case` inside parentheses (in `$(…)` write its patterns as `(a)`, and `{ …; }` for `(…)`) cannot be read safely (line 1, column",
    );
    check("(case x in x) ls;; esac)", "`case` inside parentheses");
    for advised in [
        "ls $(case x in (a) ls;; (b|c) ls;; esac)",
        "{ case x in x) ls;; esac; }",
    ] {
        assert!(read(advised, Limits::STANDARD).is_ok(), "{advised}");
    }
    check(
        "cat <<A $(cat <<B\nx\nA\nid\nB\n)",
        "this here-document (write `<<'END'`, then its text from the next line on, and `END` alone on a line) cannot be read safely (line 1, column 5)",
    );
    check("f() [[ a ]]", "`[[` with these parentheses cannot be read");
    check("[[ a == @(a|b) ]]", "`[[` with these parentheses cannot be read");
    check("99999999999999999999>x ls", "a descriptor that does not exist");
    check("a\nls\0", "NUL character (line 2, column 3)");
    check(&"a".repeat(65_537), "65537 bytes long, at most 65536");
    check(&format!("ls {}", "$(".repeat(10_000)), "nests deeper");
    check(&"(".repeat(5_000), "nests deeper");
    check(&"ls <(".repeat(30), "nests deeper");
    check(&"{ ".repeat(5_000), "nests deeper");
    check(&"if ".repeat(5_000), "nests deeper");
    check(&"case x in x) ".repeat(20), "nests deeper");
    check(&format!("[[ {}a ]]", "! ".repeat(20_000)), "nests deeper");
    check(&format!("[[ a{} ]]", " || a".repeat(10_000)), "nests deeper");
    check(&"((".repeat(8), "nests deeper");
    check(&format!("{}ls;{}", "(".repeat(12), ")".repeat(12)), "nests deeper");
    check(&"coproc ".repeat(5_000), "nests deeper");
    check(&"ls;".repeat(2_000), "more than 1024 commands");
    let nested = |depth: usize| format!("ls {}ls{}", "\"$(ls ".repeat(depth), ")\"".repeat(depth));
    assert!(read(&nested(12), Limits::STANDARD).is_ok());
    assert_eq!(read(&nested(13), Limits::STANDARD), Err(LineError::TooDeep { max: 12 }));
    // A tilde or brace range beyond the integers of the parser is text like any other.
    for text in ["ls ~99999999999999999999", "ls {1..99999999999999999999}"] {
        assert!(read(text, Limits::STANDARD).is_ok(), "{text:?}");
    }
}

#[test]
fn openings_at_the_bound_fit_the_stack() {
    for opening in ["$(", "${x:-", "$[", "\"$(", "\"${x:-"] {
        let text = format!("ls {}", opening.repeat(190));
        assert!(read(&text, Limits::STANDARD).is_err() || !line(&text).unclear.is_empty());
        let text = format!("ls {}", "${x:-".repeat(190) + &"}".repeat(190));
        assert!(read(&text, Limits::STANDARD).is_ok());
    }
}

proptest! {
    #[test]
    fn reading_never_panics(text in "[ -~\\n\\t\\r\u{e9}\u{0}]{0,40}") {
        let _ = read(&text, Limits::STANDARD);
    }

    #[test]
    fn reading_shell_like_text_never_panics(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "ls", " ", "$(", ")", "`", "\"", "'", "${", "}", "((", "))", "<<E\n", "E\n", "\n", ";", "&", "|",
                "<(", ">", "[[", "]]", "{", "case", "esac", "in", "x", "=", "\\", "#", "$", "~9", "if", "then", "fi",
                "for", "do", "done", "[", "]", "!", "*", "$'", "$[", "99999999999>",
            ]),
            0..24,
        )
    ) {
        let _ = read(&parts.concat(), Limits::STANDARD);
    }

    #[test]
    fn canonical_form_reads_back_to_the_same_words(
        args in prop::collection::vec("[ -~\\n\\t\u{e9}]{0,8}", 0..5)
    ) {
        let text = canonical_argv("ls", &args);
        // Among other quotes what looks like a here-document is not read.
        prop_assume!(!text.contains("<<"));
        let tree = plain(&text);
        let command = tree.commands().next().expect("one command");
        let read_back: Vec<String> = command.args.iter().map(Word::unmatched).collect();
        prop_assert_eq!(&read_back, &args);
        prop_assert!(command.args.iter().all(|word| word.literal().is_some()));
        prop_assert_eq!(canonical(command), text);
    }
}

/// Each of these once cost the parser or the walk more than its length.
#[test]
fn the_largest_texts_come_to_an_end() {
    let full = |unit: &str| unit.repeat(65_000 / unit.len());
    let half = |unit: &str| unit.repeat(32_000 / unit.len());
    for text in [
        full("a "),
        full("a;"),
        full("a=b "),
        full("a <<E\nE\n"),
        full("((a "),
        full("f() { a; };"),
        format!("a {}", full(">a ")),
        format!("a=({})", full("b ")),
        format!("ls {}", full("[a")),
        format!("ls '{}'", full("<< ")),
        format!("ls {}", full("'<<' ")),
        format!("export {}", full("a='(' ")),
        format!("a=1; read {}; (({}1))", half("-ab "), half("a+")),
        format!("ls {}", full("`\\a`")),
        format!("{}{}", "((".repeat(12), full("a ")),
        format!("{}{}", "case a in b) ".repeat(4), full("a;")),
        format!("{}{}", "ls <(".repeat(4), full("a;")),
        format!("ls {}{}{}", "$(".repeat(12), full("a "), ")".repeat(12)),
    ] {
        let _ = read(&text, Limits::STANDARD);
    }
}

#[test]
fn only_ordinary_here_documents_are_read() {
    for text in [
        "\"$(<$-\n2~ (e\t<<\tz\t)",
        "x=$(cat <<z\n$a\nz\n)",
        "`cat <<z`",
        "echo $((1<<2))",
        "ls \"a\" <<z",
        "ls \"it's\" <<z 'x'",
    ] {
        assert!(
            matches!(read(text, Limits::STANDARD), Err(super::LineError::Unreadable { .. })),
            "{text}"
        );
    }
    for text in [
        "cat <<z\n$(date)\nz",
        "cat <<-'z' | wc\na\n\tz\n",
        "x=$(cat <<z\na\nz\n)",
        "x=\"$(cat <<'z'\nit's $(date)\nz\n)\"",
        "cat <<< $(date)",
        "x=$(date); cat <<< a",
    ] {
        assert!(read(text, Limits::STANDARD).is_ok(), "{text}");
    }
}

#[test]
fn subscripts_that_the_parser_would_try_without_end_are_not_read() {
    for text in [
        "fileumd[qnt\"]\"i..${umntfileumd[qnt\"]\"i..${umntim[t1\n:i>\x0b(}qnt\"]\"i:im[t1\n:i>\x0b(}qnt\"]\"i:md[qnt\"]\"i",
        "a=([k[long[long[long[long[long[long[\"]\"]=v)",
    ] {
        assert!(
            matches!(read(text, Limits::STANDARD), Err(super::LineError::Unreadable { .. })),
            "{text}"
        );
    }
    for text in [
        "a[1]=2",
        "a[$i]=\"${b} ${c} ${d} ${e} ${f} ${g} ${h}\"",
        "a[\"some key\"]=2",
        "a[b[c[1]]]=2",
        "ls file[[:alpha:]]*.txt name[0-9][a-z]",
    ] {
        assert!(read(text, Limits::STANDARD).is_ok(), "{text}");
    }
}

#[test]
fn a_line_that_goes_on_in_a_quoted_text_with_escapes_is_not_read() {
    for text in ["ls$'\\\n'", "ls $'a\\\nb'", "ls 'a' b$'\\\n'"] {
        assert!(
            matches!(read(text, Limits::STANDARD), Err(super::LineError::Unreadable { .. })),
            "{text:?}"
        );
    }
    words("ls $'a' \\\n b", &["ls", "a", "b"]);
    words("ls '\\\n$'", &["ls", "\\\n$"]);
}
