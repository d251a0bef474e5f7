//! Lines that would run what is not listed, taken apart by a continued line wherever one can be put.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::unlisted;

/// What stands where a line goes on. Behind two backslashes it does so in backquotes only.
const BREAKS: [&str; 3] = ["\\\n", "\\\\\n", "\\\n\\\n"];

/// Lines that are refused, each for its own reason.
#[rustfmt::skip]
const REFUSED: [&str; 49] = [
    "ls $((1 #$(id)\n))", "ls \"$((1 #$(id)\n))\"", "((1 #$(id)\n))", "for ((i=0 #$(id)\n;i<1;i=1)); do ls; done",
    "x=$((1 #$(id)\n))", "ls `ls $((1 #$(id)\n))`", "ls $(ls $((1 #`id`\n)))", "ls <<< $((1 #$(id)\n))",
    "f() { local x; : ${x[0]:=1}; local x='($(id))'; }; f", "f() { local x=1; : $((x[1]=5)); local x='($(id))'; }; f",
    ": ${x[0]:=1}; declare x='($(id))'", "x=(1); declare x='($(id))'", "declare -a x='($(id))'", "mapfile x <<< a; declare x='($(id))'",
    "ls $(id)", "ls `id`", "ls \"${x:-$(id)}\"", "ls <(id)", "ls $'a\\'$(id)'$(id)", "ls $'\\'' ; id '", "ls ${x#$(id)}",
    "ls <<E\n$(id)\nE\n", "ls <<'E'\nx\nE\nid", "ls \"$(ls <<'E'\nx\nE\nid)\"", "ls $(ls <<E\n$(id)\nE\n)", "ls <<-E\n\t$(id)\n\tE\n",
    "x='a[$(id)]'; ((x))", "x='a[$(id)]'; ls ${a[x]}", "a=1; x=5; a5='b[$(id)]'; ((a$x))", "x='a[$(id)]'; [[ x -eq 1 ]]",
    "a=(x)ls id", "a=(x)#`id`", "ls <(ls)#$(id)", ">&-id", "ls {PATH}>x", "PATH=. ls", "export PATH=.; ls", "read PATH <<< .; ls",
    "((ls; ls '$(id)'))", "( (i*) )", "find . -exec id ';'", "env id", "case x in x) id;; esac", "ls # x\nid",
    "ls $(ls  # x\nid\n)", "x=$(ls \t#\nid\n\n)\nwait $!", "ls \"$(ls   # x\nid\n)\"", "ls `ls  # x\nid\n`", "ls ${x:-$(ls ;  # x\nid\n)}",
];

pub(super) fn line() -> impl Strategy<Value = String> {
    let cuts = prop::collection::vec((any::<Index>(), select(&BREAKS[..])), 1..4);
    (select(&REFUSED[..]), cuts).prop_map(|(line, cuts)| {
        let mut chars: Vec<char> = line.chars().collect();
        for (at, cut) in cuts {
            let at = at.index(chars.len() + 1);
            chars.splice(at..at, cut.chars());
        }
        chars.into_iter().collect()
    })
}

#[test]
fn a_refused_line_runs_nothing_unlisted_wherever_it_is_continued() {
    for line in REFUSED {
        assert_eq!(unlisted(line), None, "{line:?}");
        for cut in BREAKS {
            for (at, _) in line.char_indices() {
                let line = format!("{}{cut}{}", &line[..at], &line[at..]);
                assert_eq!(unlisted(&line), None, "{line:?}");
            }
        }
    }
}
