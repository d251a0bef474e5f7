//! Lines written anew, as they then stand; that they do the same is bash's to judge (`allowlist/oracle/restated.rs`).

use super::*;

fn check(text: &str, expected: &str) {
    let restated = restate(text, Limits::STANDARD).unwrap_or_else(|why| panic!("{text:?}: {why:?}"));
    assert_eq!(restated.text(), expected, "{text:?}");
    if expected.contains(FUNCTION) {
        return;
    }
    let again = restate(expected, Limits::STANDARD).unwrap_or_else(|why| panic!("{expected:?}: {why:?}"));
    assert_eq!(again.text(), expected, "written anew once more");
}

#[test]
fn commands_have_one_plain_form_without_comments_and_continued_lines() {
    for (text, expected) in [
        ("ls # one\n\nls # two", "ls\nls\n"),
        ("ls; ls -a # all\n", "ls; ls -a\n"),
        ("ls \\\n  -a", "ls -a\n"),
        ("ls && git status || ls | ls &", "ls && git status || ls | ls &\n"),
        ("! ls", "! ls\n"),
        (
            "for f in a 'b c'; do ls \"$f\"; done",
            "for f in a 'b c'; do ls \"${f}\"; done\n",
        ),
        (
            "for ((i=0; i<2; i++)); do ls; done",
            "for ((i=0;i<2;i++)); do ls; done\n",
        ),
        (
            "f() { for x; do ls \"$x\"; done; }",
            "f () { for x in \"$@\"; do ls \"${x}\"; done; }\n",
        ),
        ("for x in; do ls; done", "for x in; do ls; done\n"),
        ("x=1 |& ls; ls |& git", "x=1 2>&1 | ls; ls 2>&1 | git\n"),
        ("while ls; do git; done", "while ls; do git; done\n"),
        ("until ls; do git; done", "until ls; do git; done\n"),
        (
            "if ls; then git; elif ls; then :; else ls; fi",
            "if ls; then git; elif ls; then :; else ls; fi\n",
        ),
        (
            "case $x in a|'b') ls;; *) git; esac",
            "case ${x} in (a | 'b') ls; ;; (*) git; ;; esac\n",
        ),
        (
            "case $x in (}|esac) ls done;; esac",
            "case ${x} in ('}' | 'esac') ls 'done'; ;; esac\n",
        ),
        ("{ ls; } >out 2>&1", "{ ls; } > out 2>&1\n"),
        ("(cd x && ls)", "( cd x && ls; )\n"),
        ("f() { ls; }; f", "f () { ls; }; f\n"),
        ("[[ -f x && ! $y == a* ]]", "[[ ( -f x ) && ( ! ( ${y} == a* ) ) ]]\n"),
        ("((x = 1 + 2))", "((x = 1 + 2))\n"),
        ("a=(1 'b c' [5]=d); a[1]+=x", "a=( 1 'b c' [5]=d ); a[1]+=x\n"),
        ("x=1 ls", "x=1 ls\n"),
        (
            "ls <(git log)",
            "__substitution_1 () {\ngit log;\n}\nls <( __substitution_1 )\n",
        ),
        ("ls &>x; ls 2>>y <z", "ls &> x; ls 2>> y < z\n"),
    ] {
        check(text, expected);
    }
}

#[test]
fn words_have_one_plain_form() {
    for (text, expected) in [
        ("ls $x $1 $? ${x:-a} \"${x#a*}\"", "ls ${x} $1 $? ${x:-a} \"${x#a*}\"\n"),
        ("ls \"${x:+$}\" \"${x:-a $ b}\"", "ls \"${x:+$}\" \"${x:-a $ b}\"\n"),
        ("ls $$ \"$$(a)\"", "ls ${$} \"${$}(a)\"\n"),
        ("ls $((1 + 2)) ${#x}", "ls $((1 + 2)) ${#x}\n"),
        (
            "for x in 1; do ls $'a\\'b'; done",
            "for x in 1; do ls 'a'\"'\"'b'; done\n",
        ),
        (
            "for x in 1; do ls $'\\x1b[1m\\'a'; done",
            "for x in 1; do ls $'\\033[1m'\"'\"'a'; done\n",
        ),
        (
            "for x in 1; do ls a\\ b \"a\\b\" \"\\$x\"; done",
            "for x in 1; do ls a' 'b \"a\\\\b\" \"\\$x\"; done\n",
        ),
        (
            "for x in 1; do ls é* ~/a {b,c}; done",
            "for x in 1; do ls 'é'* ~/a {b,c}; done\n",
        ),
    ] {
        check(text, expected);
    }
}

/// Bash writes what stands in a substitution down for itself, and reads that.
#[test]
fn nothing_but_a_name_stands_in_a_substitution() {
    for (text, expected) in [
        (
            "ls `git log`",
            "__substitution_1 () {\ngit log\n}\nls $( __substitution_1 )\n",
        ),
        (
            "ls \"$(a=(\\( 'b'); ls \"$(git 'log')\" # all\ngit)\" ${x:-$(ls)}",
            "__substitution_1 () {\ngit 'log'\n}\n\
             __substitution_2 () {\na=( '(' 'b' ); ls \"$( __substitution_1 )\"\ngit\n}\n\
             __substitution_3 () {\nls\n}\n\
             ls \"$( __substitution_2 )\" ${x:-$( __substitution_3 )}\n",
        ),
        (
            "f() { ls $(ls \"$1\"); }",
            "__substitution_1 () {\nls \"$1\"\n}\nf () { ls $( __substitution_1 \"$@\" ); }\n",
        ),
        ("ls \"$(< 'a b')\" $()", "ls \"$( < 'a b' )\" $( )\n"),
        ("ls $(0< a) $(0<\"$x\")", "ls $( < a ) $( < \"${x}\" )\n"),
        (
            "ls $(1< a)",
            "__substitution_1 () {\n1< a\n}\nls $( __substitution_1 )\n",
        ),
        ("ls \"$(<$x)\" $(< \"$x\")", "ls \"$( < ${x} )\" $( < \"${x}\" )\n"),
        (
            "ls \"$(> ${x:-$'\\n$(id)'})\"",
            "__substitution_1 () {\n> ${x:-$'\\n$(id)'}\n}\nls \"$( __substitution_1 )\"\n",
        ),
        (
            "ls $(x=1 < y)",
            "__substitution_1 () {\nx=1 < y\n}\nls $( __substitution_1 )\n",
        ),
    ] {
        let restated = restate(text, Limits::STANDARD).unwrap_or_else(|why| panic!("{text:?}: {why:?}"));
        assert_eq!(restated.text(), expected, "{text:?}");
    }
}

#[test]
fn documents_become_words() {
    for (text, expected) in [
        (
            "for x in 1; do ls; done <<'E'\n$x 'a'\nE\n",
            "for x in 1; do ls; done <<< '$x '\"'\"'a'\"'\"\n",
        ),
        (
            "x=1; ls \"$x\" <<E\n\"$x\" \\$y\nE\nls",
            "x=1; ls \"${x}\" <<< \"\\\"${x}\\\" \\$y\"\nls\n",
        ),
        (
            "for x in 1; do ls; done <<'E'\na <<< b\nE\n",
            "for x in 1; do ls; done <<< 'a <''<''< b'\n",
        ),
        (
            "x=1; ls \"$x\" <<E\n$x <<F\nE\n",
            "x=1; ls \"${x}\" <<< \"${x} <\"\"<F\"\n",
        ),
        ("x=1; ls \"$x\" <<E\nE\n", "x=1; ls \"${x}\" < /dev/null\n"),
        (
            "git commit -m \"$(cat <<'EOF'\nIt's done. $(id)\n\nMore\nEOF\n)\"",
            "__substitution_1 () {\ncat <<< 'It'\"'\"$'s done. $(id)\\n\\nMore'\n}\n\
             git commit -m \"$( __substitution_1 )\"\n",
        ),
    ] {
        check(text, expected);
    }
}

/// Behind what is no syntax to it bash goes on with the next line, wherever that is to us: no line ends in a word.
#[test]
fn lines_end_between_commands_only() {
    for (text, expected) in [
        (
            "x=1; ls 'a\nid' \"b\nid\" \"$x\"",
            "x=1; ls $'a\\nid' \"b\"$'\\n'\"id\" \"${x}\"\n",
        ),
        (
            "a=( \\( ) && ls \"$x\" 'x\nid\ny'",
            "a=( '(' ) && ls \"${x}\" $'x\\nid\\ny'\n",
        ),
        (
            "a=( \\' $ ) && ls $'it\\'s\\n' '' \"$x\"",
            "a=( \"'\" '$' ) && ls 'it'\"'\"$'s\\n' '' \"${x}\"\n",
        ),
        ("x=1; ls $((1 +\n2)) \"$x\"", "x=1; ls $((1 + 2)) \"${x}\"\n"),
        ("[[ a =~ ^[0-9]\\.é$ ]]", "[[ a =~ ^[0-9]\\.é$ ]]\n"),
        ("my-f() { ls; }; x=#a my-f", "my-f () { ls; }; x=#a my-f\n"),
    ] {
        check(text, expected);
    }
}

/// A line that bash is not given says which part of it is to be written another way, and where it is.
#[test]
fn what_has_no_plain_form_is_named_with_its_place() {
    for (text, what, line, column) in [
        ("ls\nls \"${x:-a\nid}\"", "the end of a line in an expansion", 2, 4),
        (
            "ls\n__substitution_1() { ls; }",
            "a name that begins as those of our own functions do",
            2,
            1,
        ),
        (
            "ls \"$(< ${x:-$'\\n$(id)'})\"",
            "a file that is read by a substitution, and whose name is no plain word",
            1,
            4,
        ),
        ("ls; coproc ls", "`coproc`", 1, 5),
        ("ls\nfor f # all\ndo ls; done", "a loop without its values", 2, 1),
        (
            "ls; x=1 ls \"$(for f; do ls; done)\"",
            "a loop without its values",
            1,
            12,
        ),
    ] {
        let position = Position { line, column };
        assert_eq!(
            restate(text, Limits::STANDARD),
            Err(Unclear { what, position }),
            "{text:?}"
        );
    }
}

#[test]
fn a_long_line_of_variables_has_a_plain_form() {
    let line = "ls \"$x\"; ".repeat(500) + "ls";
    assert!(restate(&line, Limits::STANDARD).is_ok());
}

/// What our reader does not see is not given to bash, whether or not the line is refused as well.
#[test]
fn what_was_not_read_is_not_there() {
    for text in [
        "x=$(ls  # note \\\nid >&2\n)",
        "ls \"${PWD#<(id)}\"; wait",
        "ls <<'E' \"$(ls $(id)\n)\"\nx\nE\n\nls",
        "ls # id\n",
    ] {
        let given = restate(text, Limits::STANDARD)
            .ok()
            .map(|restated| restated.text().to_owned());
        assert!(
            !given.as_deref().unwrap_or_default().contains("id"),
            "{text:?}: {given:?}"
        );
    }
}

/// Bash counts the loops around a substitution, and none around the function that holds its commands.
#[test]
fn a_substitution_leaves_only_loops_of_its_own() {
    for (text, column) in [
        ("for i in 1; do x=$(break; ls); ls \"$x\"; done", 16),
        ("for i in 1; do ls <(continue; ls); done", 21),
        ("for i in 1; do ls < <(break; ls); done", 23),
        ("for i in 1; do ls \"$(\\break)\"; done", 19),
        ("for i in 1; do ls `'continue'`; done", 19),
        ("for i in 1; do ls $(command break); done", 19),
        ("ls $(for j in 1 2; do break 2; ls; done; ls)", 4),
        ("ls $(for j in 1 2; do break 0; done)", 4),
        ("ls $(for j in 1 2; do break \"$n\"; done)", 4),
        ("ls $(for j in 1 2; do break 1 2; done)", 4),
        ("ls $(for j in 1 2; do ls $(continue); done)", 4),
        ("ls $(for j in 1; do f() { break; }; f; done)", 4),
        ("ls $(for j in 1; do :; done; break)", 4),
        ("ls $(for j in $x; do :; done | break)", 4),
    ] {
        let what = "a `break` or `continue` in a substitution, and not in a loop of its own";
        let position = Position { line: 1, column };
        let refused = restate(text, Limits::STANDARD).expect_err(text);
        assert_eq!(refused, Unclear { what, position }, "{text:?}");
    }
    for text in [
        "ls $(for f in *; do [ -f \"$f\" ] || continue; ls \"$f\"; done)",
        "ls $(for a in 1 2; do for b in 1 2; do break 2; done; done)",
        "ls $(while break; do ls; done; until ls; do continue 1; done)",
        "ls $(for ((i=0; i<2; i++)); do if ls; then break; fi; done)",
        "ls <(for f in *; do (continue); done)",
        "ls $(f() { for j in 1; do break; done; }; f)",
        "for i in 1; do break; ls $(ls break); done; f() { continue; }; f",
        "for i in 1; do ls $(command -v break); done",
    ] {
        assert!(restate(text, Limits::STANDARD).is_ok(), "{text:?}");
    }
}

/// A function could be taken away as well as called or defined.
#[test]
fn a_line_that_names_our_own_functions_has_no_plain_form() {
    for (text, line, column) in [
        ("unset __substitution_1; ls $(ls -d .)", 1, 7),
        ("ls\nls \"a __substitution_2\" $(ls)", 2, 7),
        ("ls $(unset -v __substitution_1)", 1, 15),
        ("ls # __substitution_1\nls $(ls)", 1, 6),
        ("ls 'é' <<'E'\n__substitution_1\nE\nls $(ls)", 2, 1),
        ("ls; unset __sub''stitution_1; ls $(ls)", 1, 5),
        ("ls; unset __sub\\\nstitution_1; ls $(ls)", 1, 5),
        ("ls; unset \"__substitution\"_$x; ls $(ls)", 1, 5),
    ] {
        let what = "a name that begins as those of our own functions do";
        let position = Position { line, column };
        let refused = restate(text, Limits::STANDARD).expect_err(text);
        assert_eq!(refused, Unclear { what, position }, "{text:?}");
    }
}

/// Bash expands braces before it looks for the ends of names.
#[test]
fn no_braces_add_to_the_name_of_a_variable() {
    for text in [
        "ls $x{1,2}",
        "ls {a,$x}b",
        "ls {$x,a}b",
        "ls $x{,1}",
        "ls $x{,.a}_b",
        "ls $x{,.a}{b,c}",
        "ls {{$x,a},b}c",
        "ls {{$x,a}/,b}{$x,b}c",
        "ls $x{1..3}",
        "ls $x{-1..3}",
        "ls $x{.,{/,_}}",
        "ls $x{\\\n1,2}",
        "ls $x\\\n{1,2}",
        "ls {$x,${y:-{}}1}",
        "ls {$x,{}}1",
        "ls {a,b}}{$x,c",
        "ls {$x,a}\"\"{b,$x}1",
        "for i in 1 {a,$x}1; do ls; done",
        "ls $(ls $x{1,2})",
    ] {
        let refused = restate(text, Limits::STANDARD).expect_err(text);
        let what = "a variable without braces beside an alternative that may add to its name";
        assert_eq!(refused.what, what, "{text:?}");
    }
    for text in [
        "cp $f{,.bak}",
        "cp \"$f\"{,.bak} ${f}{1,2} $1{1,2} \"$f{1,2}\"",
        "mkdir $d/{a,b}",
        "ls {$a,$b}",
        "ls {$a,$b}/x",
        "ls {$a,$b}/{c,d}e",
        "ls {a,${y:-$x}}b {a,\"$x\"}b",
        "ls {$a,b}''c $x{\"1\",$y}",
        "ls $a,b{c,d} $a$b{.c,$d}",
        "ls $x{a}",
    ] {
        let restated = restate(text, Limits::STANDARD);
        assert!(restated.is_ok(), "{text:?}: {restated:?}");
    }
}

#[test]
fn many_braces_behind_a_name_come_to_an_end() {
    let text = format!("ls $x{}", "{,}".repeat(500));
    assert!(restate(&text, Limits::STANDARD).is_ok());
}

#[test]
fn no_blank_of_an_expansion_is_lost() {
    for text in [
        "ls \"${x:-a  b}\"",
        "ls ${x/  /b}",
        "ls \"${x+\t}\"",
        "x=\"${y:-a  b}\"; ls \"$x\"",
        "x=${y:-a  b}; ls",
        "x=$(ls \"${y:-a  b}\"); ls",
        "y=$(ls \"${x//  /_}\"); ls",
        "export Y=\"${x:-a  b}\"; ls",
        "a=(\"${x:-a  b}\"); ls",
        "a=([0]=\"${x:-a  b}\"); ls",
        "a[0]=\"${x:-a  b}\"; ls",
        "ls <<E\n$(ls \"${x:-a  b}\")\nE\n",
        "ls \"$(ls \"$(ls \"${x:-a  b}\")\")\"",
        "y=${x:-'}'  b}; ls",
        "y=${x:-\\}  b}; ls",
        "ls \"${x:-$(ls })  b}\"",
        "ls \"${x:-`ls }`\tb}\"",
        "ls <<E > \"${x:-a  b}\"\nq\nE\n",
        "ls <<E > \"${TMPDIR}/f\"\nq\nE\n",
    ] {
        let restated = restate(text, Limits::STANDARD);
        assert!(restated.is_err(), "{text:?}: {restated:?}");
    }
    for text in [
        "ls \"${x:-a b}\" ${x/ /b}",
        "ls -l \\\n  \"${x:-a.txt}\"",
        "git log \\\n    --format=\"%h ${x}\" \\\n\t-n 3",
        "ls $(ls ${x}   y)",
        "ls  \"${x}\"   \"a  ${y}  b\"",
        "ls <<E\n  ${x}  y\nE\n",
        "ls > \"${x:-o}.txt\" <<E\nq\nE\nls \"${y}\"",
        "x=$(\n# why\n  ls   \"${d}\"\n); ls",
        "ls <<E > $TMPDIR/f\nq\nE\n",
    ] {
        let restated = restate(text, Limits::STANDARD);
        assert!(restated.is_ok(), "{text:?}: {restated:?}");
    }
}

/// From 5.3 on bash runs `${ ls; }` and `${| ls; }`, in itself. The parser leaves the blank out.
#[test]
fn no_blank_or_bar_begins_an_expansion() {
    for inner in [
        " x", " x; ", "  x", "\tx", "\nx; ", "\\\n x", "| x", "|x", "|x; ", " | x; ", "(x)",
    ] {
        for around in [
            "ls ${IT}",
            "ls \"${IT}\"",
            "ls \"${y:-${IT}}\"",
            "ls $(ls ${IT})",
            "ls \"$(ls \"${IT}\")\" `ls ${IT}`",
            "ls <(ls ${IT})",
            "x=${IT}",
            "x=${IT} ls",
            "a=(1 ${IT})",
            "a[${IT}]=1",
            "x=1; ls $((${IT}))",
            "x=1; ((${IT}))",
            "x=1; for ((i=${IT}; i<1; i++)); do ls; done",
            "[[ ${IT} == a ]]",
            "case ${IT} in a) ls;; esac",
            "case a in ${IT}) ls;; esac",
            "for i in ${IT}; do ls; done",
            "ls <<< ${IT}",
            "ls > ${IT}",
            "ls <<E\n${IT}\nE\n",
            "f() { ls ${IT}; }",
        ] {
            let text = around.replace("IT", inner);
            let line = read(&text, Limits::STANDARD);
            assert!(
                line.is_err() || line.is_ok_and(|line| !line.unclear.is_empty()),
                "{text:?}"
            );
            assert!(restate(&text, Limits::STANDARD).is_err(), "{text:?}");
        }
    }
    for text in [
        "ls '${ x; }' \"$x\"",
        "x=1; ls \"$x\" '${\n x}' \\${\\ x}",
        "ls <<'E' $x\n${ x; }\nE\n",
    ] {
        let restated = restate(text, Limits::STANDARD);
        assert!(restated.is_ok(), "{text:?}: {restated:?}");
    }
}

/// To bash it is no syntax, to the parser a test of a text. It starts nothing, and what stands behind it was checked.
#[test]
fn a_test_of_the_text_of_an_operator_is_left_alone() {
    check("[[ -f && -n x ]]", "[[ ( -n -f ) && ( -n x ) ]]\n");
}
