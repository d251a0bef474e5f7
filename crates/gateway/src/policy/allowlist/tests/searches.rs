//! Words of `find` that are computed: where they can be no `-exec`.

use super::*;

#[test]
fn a_search_takes_values_and_places_that_can_launch_nothing() {
    for line in [
        "find . -name \"$x*\"",
        "find . -type f -iname \"*$x*\" -not -path \"./$y/*\" -print",
        "find . \\( -name \"$a\" -o -name \"$b\" \\) -mtime -7 -name \"$c\"",
        "find . -newermt \"$(ls)\" -size -10k -maxdepth \"$n\"",
        "find . -name \"$x\" -exec ls {} +",
        "d=src; find \"$d\" -name '*.py'",
        "d=src/a; d=./b; d='/c d'; find \"${d}\" \"$d/e$x\"",
        "for d in src tests ./*; do find \"$d\" -name x; done",
        "a=(src tests); find \"$a\"",
        "d=src; d+=/a; d+=-b; find . \"./$d\"",
        "d=src; d+=/a; d+=5; find \"$d\"",
        "f() { local d=src$1; find \"$d\"; }; f",
        "n=$((1 + 1)); find \"$n\"",
        "find \"$PWD\" -maxdepth 1; cd src; find \"$PWD/a\" \"$HOME\"",
    ] {
        accepted("ls,find", line);
    }
}

#[test]
fn a_search_is_refused_where_a_word_could_launch_something() {
    let because = "a word of its expression is computed; quote it";
    for line in [
        "find . -name $x",
        "find . -name *",
        "find . -name \"a\"$x\"b\"",
        "find . -name \"$@\"",
        "find . -name \"${a[@]}\"",
        "find . -path -name \"$x\"",
        "find . -newer -name \"$x\"",
        "find . -mtime -print \"$x\"",
        "find -D -name \"$x\"",
        "find . -newerXY -name \"$x\"",
        "find . -context -name \"$x\"",
        "find . -name \"$x\" \"$y\"",
        "find . -name x \"$y\"",
        "find . -empty \"$x\"",
        "find . -unknown -name \"$x\"",
        "find \"$d\"",
        "d=-exec; find \"$d\" ls \\;",
        "d=src; d=$(ls); find \"$d\"",
        "d=src; read d; find \"$d\"",
        "d=src; printf -vd %s -exec; find \"$d\"",
        "d=src; export 'd=-exec'; find \"$d\"",
        "d=src; : ${d:=-exec}; find \"$d\"",
        "d=src; find $d",
        "d=src; find \"$d-x\"",
        "d=src; find \"$d$x\"",
        "d=src; find \"${d#src}\"",
        "d=\"$x/src\"; find \"$d\"",
        "d=\"\"$x; find \"$d\"",
        "d=${x//[^0-9]/}-exec; find \"$d\"",
        "for d in *; do find \"$d\"; done",
        "for d in src$x; do find \"$d\"; done",
        "for d in {-exec,src}; do find \"$d\"; done",
        "for d; do find \"$d\"; done",
        "a=(src $x); find \"$a\"",
        "find \"$OLDPWD\"",
        "d=-; d+=exec; find . -maxdepth 0 \"$d\" bash -c '. ./x' \\;",
        "for d in -; do d+=exec; find . \"$d\" ls \\;; done",
        "d=(-); d+=exec; find . \"$d\" ls \\;",
        "d=''-; d+=exec; find . \"$d\" ls \\;",
        "d=; d+=-; d+=exec; find . \"$d\" ls \\;",
        "d=--; find . \"$d\"",
        "d=-$((1)); find . \"$d\"",
        "d=${x//[^0-9]/}; d+=-exec; find . \"$d\" ls \\;",
        "d=-${x//[^0-9]/}; d+=exec; find . \"$d\" ls \\;",
        "d[0]=-; d[0]+=exec; find . \"$d\" ls \\;",
        "d=src; d+=(-exec); find . \"$d\"",
        "d=~-; find . \"$d\"",
        "d=~-; d+=/x; find . \"$d\"",
        "find ~- -name x",
        "_=src; find \"$_\"",
    ] {
        refused("ls,find", line, because);
    }
    let list = Allowlist::from_comma_list("ls,find").expect("a list");
    let line = read("false && d=src; find \"$d\" -name \"$x\"", Limits::STANDARD).expect("a line");
    check_line(&line, &list, &Machine).expect("the line itself is allowed");
    let given = |name: &str| check_given(&line, &list, &[(name.to_owned(), "-exec".to_owned())]).is_ok();
    assert!(!given("d"));
    assert!(given("x"));
}
