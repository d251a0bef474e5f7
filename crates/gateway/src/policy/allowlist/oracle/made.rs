//! Lines that make something out of pieces which are harmless alone: a name in arithmetic, a list, a word of `find`.
//! Steps of one kind stand together, since by chance alone those that work together seldom meet.

use proptest::prelude::*;
use proptest::sample::select;

/// How a line begins, steps that set something, and steps that use it. `~+` and `~-` stand for texts that run commands.
type Kind = (&'static str, &'static [&'static str], &'static [&'static str]);

#[rustfmt::skip]
const KINDS: [Kind; 7] = [
    // Letters that are names.
    (
        "a='b[$(id)]'; r='b[$(id)]'",
        &["x=(1)", "x=1", "x=5", "export x", "x+=1", "x=${#y}", "y=1"],
        &[
            "((${x@a}))", "ls $((${x@a}))", "[[ ${x@a} -eq 1 ]]", "ls ${x[${x@a}]}", "f() { local -r x=1; ((${x@a})); }; f", "((${x@A}))", "((${x@K}))",
            "((${x@Q}))", "((${x^}))", "((${x,,}))", "((${x:+a}))", "((${z-a}))", "((${x:?a}))", "((${x/%/a}))", "((${x/#1/a}))", "((${!x}))", "((${!a}))", "((${!a@}))",
            "ls ${x:${x@a}}", "x[${x@a}]=1", "((x[${x@a}]))", "((${x[${x@a}]}))", "for ((${x@a}; 0;)); do :; done", "((${x:-${x@a}}))", "((${x:${x@a}}))",
        ],
    ),
    // Names that are put together.
    (
        "a=1; aa='b[$(id)]'; a1='b[$(id)]'; a2='b[$(id)]'",
        &["x=1", "x=11", "x=12", "x=-5", "x=", "x=''", "x+=1", "x+=2", "x=${#a}", "unset x", "for x in 1 11; do :; done"],
        &[
            "((${x/1/a}))", "ls $((${x//1/a}))", "((${x/1/a&}))", "[[ ${x/1/a} -eq 1 ]]", "ls ${x[${x//1/a}]}", "((${x:+a}1))", "((${x#1}a))", "((a${x:1}))", "((a${x#1}))",
            "((a${x%%*}a))", "((${x:-a}1))", "((${x:+0x5}a))", "((${x##*}a))", "((a$x))", "((a${x}))", "((a$((x))))", "((a ${x%5}${x%5}))", "((${x:0:1}a))", "((a+$x))", "((a${#x}))",
            "((a${x//[^0-9]/}))", "((${x//[^0-9]/}a))", "((${x//[^0-9]/a}))", "((a#$x))", "((1$x))", "((${x:+$x}))", "((${x:-${a}1}))", "((${x:+${a}a}))",
        ],
    ),
    // What a tilde stands for.
    (
        ":",
        &["x=1", "x=(1)", "x=~+", "x+=~+", "x=1:~+", "x=5", "x=(~+)", "x=''", "for x in ~+; do :; done"],
        &[
            "[[ ~+ -eq 1 ]]", "[[ 1 -lt ~+ ]]", "[[ x=~+ -eq 1 ]]", "[[ x -eq ~+ ]]", "[[ \"~+\" -eq 1 ]]", "[[ 1+~+ -eq 1 ]]", "((~+))", "ls $((~+))", "((${x/1/~+}))", "ls $((${x/1/~+}))",
            "[[ ${x:+~+} -eq 1 ]]", "((${x:+~+}))", "((${x:-~+}))", "((${x#~+}))", "ls ${x[${x/1/~+}]}", "ls ${x[${x:+~+}]}", "ls ${x:~+}", "ls ${x: ~+}", "x[~+]=1", "x=([~+]=1)", "x=([${x:+~+}]=1)",
            "((x))", "ls $((x))", "ls ${x[x]}", "[[ $x -eq 1 ]]", "[[ ${x/1/~+} -eq 1 ]]", "((${x:+$x}))", "for ((~+; 0;)); do :; done", "((x = ~+))", "[ ~+ -eq 1 ]",
        ],
    ),
    // Values that are read again as lists.
    (
        ":",
        &["a=(1)", "a[0]=1", "read -ra a <<< 1", "mapfile a <<< 1", "declare -a a", "a=1", "unset a", "x=~-", ": ${a[0]:=1}"],
        &[
            "declare a=~-", "declare a+=~-", "declare a=\"\"~-", "declare a=x:~-", "declare a=:~-", "declare a='~-'", "declare a=\\~-", "declare a=~-/x", "export a=~-", "export a+=~-", "declare a=${#a}",
            "declare a=$((1))~-", "declare a=\"$x\"", "f() { local a=(1); local a=~-; }; f", "f() { local a; a=(1); local a+=~-; }; f", "declare -x a=~-", "command declare a=~-", "a=~-", "a+=~-", "a=(~-)",
            "declare MAPFILE=~-", "declare PIPESTATUS=~-", "declare \"a=~-\"", "declare a[0]=~-", "declare -A a=~-",
        ],
    ),
    // The same behind braces.
    (
        ":",
        &["a=(1)", "a[0]=1", "read -ra a <<< 1", "mapfile a <<< 1", "declare -a a", "a=1", "unset a", "x='($(id))'"],
        &[
            "declare a={x,'($(id))'}", "declare a={'($(id))',x}", "declare a=''{'($(id))',}", "declare a=x{'($(id))',}", "declare a+={x,'($(id))'}", "declare a={1..2}'($(id))'", "export a={x,'($(id))'}",
            "declare {a,b}='($(id))'", "declare {a,b}={x,'($(id))'}", "declare a={x,\"$x\"}", "declare a={,~-}", "declare a='{x,($(id))}'", "declare a=({x,'($(id))'})", "declare a[{0,1}]='($(id))'",
            "f() { local a; a=(1); local a={x,'($(id))'}; }; f", "f() { local a; a=(1); local a={,'($(id))'}; }; f", "a={x,'($(id))'}", "a={x,'($(id))'} ls", "a=({x,'[$(id)]=1'})", "a=([0]={x,'($(id))'})",
            "command declare a={x,'($(id))'}", "\\declare a={x,'($(id))'}", "declare \"a={x,($(id))}\"", "read {a,b} <<< '($(id))'", "printf -v {a,b} %s 1", "mapfile {-t,a} <<< 1",
        ],
    ),
    // What braces put together.
    (
        "a='b[$(id)]'; y='$(id)'",
        &["x=1", "x='$'", "x=(1)", "set -- 1"],
        &[
            "ls {$,}{y@P}", "ls {x,$}{y@P}", "ls {$,}[a]", "ls {a$,b}[a]", "ls {{$,x},y}[a]", "for x in {$,}[a]; do :; done", "x=({$,}[a])", "x=({x,$}{y@P})", "x={$,}[a]", "x={$,}{y@P}", "ls <<< {$,}[a]",
            "ls > {$,}[a]", "case {$,}[a] in x) :;; esac", "[[ {$,}[a] == x ]]", "ls \"{$,}[a]\"", "ls {'$',}[a]", "ls {\\$,}[a]", "ls {$x,}[a]", "ls {\"$x\",}[a]", "ls {$#,}[a]", "ls {$,}'(id)'", "ls {$,}'a'",
            "ls {Z..a..6}id{Z..a..6}'`'", "ls {a..Z}id", "ls {Y..d..3}'$(id)'", "ls {d..Y..-3}'$(id)'", "ls {A..z}'$(id)'", "ls {a..d}'$(id)'", "ls {A..D..2}'`id`'", "ls {1..3}'$(id)'", "x=({Y..d..3}'$(id)')",
            "for x in {Y..d..3}'$(id)'; do :; done", "find . -name {$,}[a]", "[ {$,}[a] = x ]", "printf %s {$,}[a]", "export z={Y..d..3}'$(id)'", "z={Y..d..3}'$(id)'", "ls {\"Y\"..d..3}'$(id)'", "ls {Y..\\d..3}'$(id)'",
        ],
    ),
    // Words of a search.
    (
        ":",
        &[
            "d=-", "d=''-", "d=\\-", "d=(-)", "d=''", "d=5", "d=$((1-2))", "d=-5", "d=src", "d=-${x//[^0-9]/}", "d=${x//[^0-9]/}", "d=${#d}", "d[0]=-", "d+=exec", "d+=exec", "d+=-exec", "d+=-", "d+=5",
            "d[0]+=exec", "d+=(-exec)", "d+=${x//[^0-9]/}", "for d in -; do d+=exec; done", "for d in {-,}; do :; done", "unset d", "x=5", "((d=5))", "export d+=exec", "d+=~-", "d=~-",
        ],
        &["find . \"$d\" id ';'", "find . -maxdepth 0 \"$d\" id ';'", "find . \"${d}\" id ';'", "find \"$d/x\" id ';'", "find . -name \"$d\" id ';'", "find . \"$d\"exec id ';'", "find . \"$d$d\" id ';'",
            "find x -fprintf -ok ls -exec id ';'", "find x -fprintf y -ok ls -exec id ';'", "find -D -ok ls -maxdepth 0 -exec id ';'", "find x -fls -ok ls -exec id ';'", "find x -files0-from -ok ls -exec id ';'",
            "find x -exec ls + -exec id ';'", "find x -ok ls {} + -exec id ';'", "find x -unknown -exec ls -exec id ';'", "find x -newermt -ok ls -exec id ';'"],
    ),
];

pub(super) fn line() -> impl Strategy<Value = String> {
    select(&KINDS[..]).prop_flat_map(|(first, settings, uses)| {
        let steps = (
            Just(vec![first]),
            prop::collection::vec(select(settings), 1..5),
            prop::collection::vec(select(uses), 1..3),
        );
        steps.prop_map(|(first, settings, uses)| [first, settings, uses].concat().join("; "))
    })
}
