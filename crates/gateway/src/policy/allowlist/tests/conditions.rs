//! `[[ … ]]` over several lines.

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
