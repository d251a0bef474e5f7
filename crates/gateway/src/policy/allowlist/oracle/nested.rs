//! Substitutions, lists, tests and loops inside each other, around words whose quotes are hard to write down: bash writes what
//! stands in a substitution down for itself, and reads that once more at every level.

use proptest::prelude::*;
use proptest::sample::select;

#[rustfmt::skip]
const WORDS: [&str; 88] = [
    "x", "'x'", "\"x\"", "''", "\"\"", "\\'", "\\(", "\\)", "\\;", "\\&", "\\\"", "\\\\", "\\$", "\\`", "\\ ", "\\#", "$", "\"$\"", "'$'id",
    "$'\\n'", "$'\\''", "$'\\' $\\' ); id; b=( \\'C\\n'", "$'\\n$(id)'", "$'\\t'", "$'\\e[0m'", "$'\\\\'", "$'; id; '", "$'\\n; id; \\n'", "\"$'\\n'id\"",
    "'x\nid\ny'", "\"x\nid\ny\"", "'; id; '", "\"; id; \"", "'$(id)'", "\"'\"", "'\"'", "'\"; id; \"'", "\"'; id; '\"", "'`id`'", "\"\\$(id)\"", "\"\\`id\\`\"", "\"\\\\\"",
    "${x:-'}'}", "${x:-$'\\n$(id)'}", "${x:-$'\\''}", "${x/a/'b c'}", "${x#\"$y\"}", "${x:-\"; id; \"}", "${x:-\\}id}", "${x:-'; id; '}", "${x//\\//_}", "${x/\\'/\\\"}",
    "\"${x:-; id}\"", "\"${x#; id}\"", "${x:-{}", "\"${x:-a}b\"'; id'", "${x:+\"$(ls)\"}", "$((1 + 2))", "${#x}",
    "#", "a#b", "{a,b}", "*", "~", "a=b", "é", "!", "[", "]", "esac", "done", "}", "=~", "$x",
    "\"$$(')\"')$(id)\"\\'", "\"$$(a)\"", "$$", "(a|b)",
    "b(${v:-)}", "(${v:-(}b)", "(a|\"(\")", "[(]", "(a b)",
    "$(( ${#x} | ( id", "${x:)}", "$(( ${x:(} 1 ))", "${x:(1)}", "))",
];

pub(super) fn line() -> impl Strategy<Value = String> {
    made_of(WORDS.to_vec(), "<")
}

/// Those that bash reads as they are written, and that leave nothing behind which it does not wait for.
pub(super) fn clear_line() -> impl Strategy<Value = String> {
    let is_misread = |word: &str| word.contains('\\') || word.contains("$'") || word == "esac";
    let words = WORDS.iter().copied().filter(|word| !is_misread(word));
    made_of(words.collect(), "$")
}

fn made_of(words: Vec<&'static str>, process: &'static str) -> impl Strategy<Value = String> {
    let plain = prop::collection::vec(select(words.clone()), 0..3).prop_map(|words| format!("ls {}", words.join(" ")));
    plain.prop_recursive(5, 24, 3, move |inner| {
        let word = || {
            let c = || inner.clone();
            prop_oneof![
                6 => select(words.clone()).prop_map(str::to_owned),
                3 => c().prop_map(|c| format!("\"$( {c} )\"")),
                2 => c().prop_map(|c| format!("$( {c} )")),
                1 => c().prop_map(move |c| format!("{process}( {c} )")),
                1 => c().prop_map(|c| format!("${{x:-$( {c} )}}")),
                1 => c().prop_map(|c| format!("\"${{x:-$( {c} )}}\"")),
                1 => c().prop_map(|c| format!("\"a$( {c} )b\"")),
                1 => (select(&["<", "<<<", ">>", "0<"][..]), select(words.clone())).prop_map(|(by, w)| format!("\"$( {by} {w} )\"")),
            ]
        };
        let several = || prop::collection::vec(word(), 1..4).prop_map(|words| words.join(" "));
        let c = || inner.clone();
        prop_oneof![
            4 => several().prop_map(|w| format!("ls {w}")),
            4 => several().prop_map(|w| format!("a=( {w} )")),
            1 => (several(), c()).prop_map(|(w, c)| format!("a=( {w} ); {c}")),
            1 => several().prop_map(|w| format!("declare -a a=( {w} )")),
            1 => several().prop_map(|w| format!("a=( [0]={w} ) ls")),
            2 => (word(), c()).prop_map(|(w, c)| format!("x={w}; {c}")),
            1 => (word(), word(), c()).prop_map(|(w, p, c)| format!("case {w} in ({p}) {c};; esac")),
            1 => (word(), word()).prop_map(|(w, p)| format!("[[ {w} == {p} ]]")),
            1 => (word(), word()).prop_map(|(w, p)| format!("[[ {w} =~ {p} ]]")),
            1 => (several(), c()).prop_map(|(w, c)| format!("for x in {w}; do {c}; done")),
            1 => c().prop_map(|c| format!("f() {{ {c}; }}; f")),
            1 => c().prop_map(|c| format!("( {c} )")),
            1 => c().prop_map(|c| format!("{{ {c}; }} 2>&1")),
            1 => (c(), word()).prop_map(|(c, w)| format!("{c} <<< {w}")),
            1 => (c(), c()).prop_map(|(one, other)| format!("if {one}; then {other}; fi")),
            2 => (c(), select(&["; ", " && ", " | ", "\n", " || "][..]), c()).prop_map(|(one, by, other)| format!("{one}{by}{other}")),
        ]
    })
}
