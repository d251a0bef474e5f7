//! Tests: `[[ … ]]` over several lines, and the words of `[ … ]`.

use super::*;

#[test]
fn a_test_over_several_lines_is_read_where_bash_reads_it() {
    for line in [
        "ls; [[ a\n&& b ]] ; ls",
        "[[ a\n]]; ls",
        "[[ ! a\n|| b ]]; ls",
        "[[ -n x && a\n\n&& b ]]; ls",
        "ls $([[ a\n&& b ]] ; ls)",
        "if [[ a # x\n&& b ]]; then ls; fi",
    ] {
        refused("ls", line, "`[[` with a line that ends behind a word");
    }
    for line in [
        "[[ a &&\n b ]]; ls",
        "[[\n -n a || # why\n\n b ]]; ls",
        "[[ a \\\n && b ]]; ls",
        "[[ $x == \"a\nb\" && 'c\n' ]]; ls",
        "ls; [[ -n $(ls\nls) ]] &&\nls",
    ] {
        accepted("ls", line);
    }
}

#[test]
fn what_a_substitution_prints_in_quotes_is_one_word_whatever_it_runs() {
    for line in [
        r#"[ "$(cat "f")" = x ]"#,
        r#"[ "$(cat "$f")" = "$(cat "g" "h")" ]"#,
        r#"[ -n "a $(cat "$@") b" ]"#,
        r#"test "$(cat "$(cat "f")")" = x"#,
        r#"[ "${x:-$(cat f)}" = x ]"#,
    ] {
        accepted("cat", line);
    }
    let unclear = "quote what is computed, and compare one thing at a time";
    for line in [
        r#"[ "$(cat "f")""$x" = x ]"#,
        r#"[ "$(cat "f")"$x"" = x ]"#,
        r#"[ "$(cat "f")$@" = x ]"#,
        r#"[ "$@$(cat "f")" = x ]"#,
        r#"[ "$(cat f) ${a[@]}" = x ]"#,
        r#"[ $(cat "f") = x ]"#,
        r#"[ "a"$(cat "f")"b" = x ]"#,
        r#"[ "$(cat "f")" "$o" x ]"#,
    ] {
        refused("cat", line, unclear);
    }
}
