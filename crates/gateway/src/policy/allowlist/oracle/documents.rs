//! Texts with several here-documents, whose lines run what is not listed wherever they are no text, and what may stand
//! around them.

use proptest::prelude::*;
use proptest::sample::select;

/// Whole commands, so that many texts are in order.
#[rustfmt::skip]
const COMMANDS: [&str; 20] = [
    "ls", "ls", "ls\nls ", "ls; ls", "x=$(ls)\nls ", "ls $(ls -a 'b') && ls", "ls \"$(ls \"$x\")\" && ls", "# it's `<<E (\nls", "ls # \"\nls", "ls \"a\n<<E\n\"; ls", "ls 'a\nE\n'; ls",
    "ls \\\n -l", "ls <<< a; ls", "x=1; ls $((x + 1))\nls", "ls \"$x\" '(' \\; \\( && ls", "[ a ] && ls", "ls | ls", "ls \"\\\"$?\" *.[ch] {a,b}; ls", "ls \"$(ls <<'E'\nid ' )\nE\n)\"; ls",
    "if ls; then ls; fi\nls",
];

/// Commands, openings and other pieces that stand before a document or between two of them.
#[rustfmt::skip]
const AROUND: [&str; 84] = [
    "ls", "ls ", "ls a ", "ls\n", "; ls ", " && ", "&&", " | ls", "|", " || ", "\n", "\n", " ", " ", "\t", "x=", "x=$(ls)\n", "ls $(ls) ", "ls \"$(ls -a 'b')\" ",
    "$(ls", ")", "\"$(ls \"$x\")\"", "$(case x in x", "$x", "${x}", "${x#a}", "${x", "$((1 + 1))", "$((", "((", "))", "$'", "$$'", "$\"", "'a b'", "'", "\"", "\"a\nb\"", "'a\nb'",
    "\\", "\\\n", " \\\n", "\\'", "\\\"", "\\ ", "\\#", "#", " #", "\n# it's <<E\n", " # `\n", "x#", "`", "`ls`", "(", ") ", "{ ", "; }", "if ls; then ", "; fi", "for f in a; do ",
    "; done", "f() { ", "case x in x) ", ";; esac", "[ a ] ", "[[ a ]]", "[[ ", "x[", "*.[ch]", "a=(", ">", "<", "> o", "2>&1", "< x", "<<<", "<<< a", "<(ls", "!", "~", "{a,b}", "é", "&", "\r",
];

#[rustfmt::skip]
const OPENINGS: [&str; 31] = [
    "<<'E'\n", "<<'E'\n", "<<'E'\n", " <<E\n", "<<E\n", " <<\"E\"\n", "<<-E\n", "<<-'E'\n", " <<'E' > o\n", " <<'E' | ls\n", " <<E && ls\n", " <<'E' \"a\"\n", " <<'E' \"$x\"; ls\n",
    "<<'E' <<'F'\n", "<<'E' \\\n", "<<'E' #\n", "<<E \"\n", "<<\\E\n", "<<E'F'\n", "\"$(ls <<'E'\n",
    " <<E; ls <<'F'\n", " <<'E' <<E\n", " <<'F' > o && ls <<-E\n", " <<F | ls <<'E'; ls\n", " 3<<'E' <<\"F\" x\n", "<<'E'<<F\n",
    " <<'E' \"$(ls $(id)\n)\"\n", " <<E \"$(ls $(ls)\nid)\"\n", " <<'E' $(ls `id`\n)\n", " <<E \"$(ls ${x}\nid\n)\"\n", " <<'E' <(ls $((1))\nid\n)\n",
];

#[rustfmt::skip]
const LINES: [&str; 24] = [
    "id\n", "id\n", "; id\n", "$(id)\n", "`id`\n", "\\$(id)\n", "$(ls)\n", "'", "\"", "'\n", "\"\n", "(\n", ")\n", "\\\n", "x\\\n", "E\n", "E", " E\n", "\tE\n", "EE\n", "<<E\n", "<<'F'\n", "F\n", "#",
];

const ENDS: [&str; 13] = [
    "\nE\n",
    "\nE\n",
    "\nE\n",
    "E\n",
    "\n\tE\n",
    "\nE",
    "E\n)\"",
    "\nE\n)\"\n",
    "\nE\nF\n",
    "\nE\nid\nF\n",
    "\nF\n; id\nE\n",
    "\nE\nid\nE\n",
    "\nE\n\n",
];

pub(super) fn line() -> impl Strategy<Value = String> {
    let around = || prop::collection::vec(select(&AROUND[..]), 0..4).prop_map(|parts| parts.concat());
    let before = prop_oneof![4 => select(&COMMANDS[..]).prop_map(str::to_owned), 1 => around()];
    let lines = prop::collection::vec(select(&LINES[..]), 0..3).prop_map(|parts| parts.concat());
    let document = (before, select(&OPENINGS[..]), lines, select(&ENDS[..]))
        .prop_map(|(before, opening, lines, end)| format!("{before}{opening}{lines}{end}"));
    let documents = prop::collection::vec(document, 1..4).prop_map(|parts| parts.concat());
    let after = prop_oneof![2 => Just("ls".to_owned()), 1 => around()];
    (documents, after).prop_map(|(documents, after)| documents + &after)
}
