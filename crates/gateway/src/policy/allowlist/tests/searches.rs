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
        "find . -name \"$x\" \"$y\"",
        "find . -name x \"$y\"",
        "find . -empty \"$x\"",
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

#[test]
fn a_search_is_refused_where_a_word_could_be_read_in_another_role() {
    let (unknown, no_value) = ("begins with `-` is not known", "stands where a value is due");
    for (line, because) in [
        ("find . -unknown -name \"$x\"", unknown),
        ("find . -newerXY -name \"$x\"", unknown),
        ("find . -newermtx y", unknown),
        ("find . -capable -exec ls \\; -exec id \\;", unknown),
        ("find -Dexec ls", unknown),
        ("find -dx .", unknown),
        ("find . -exit -exec ls \\;", unknown),
        ("find . -path -name \"$x\"", no_value),
        ("find . -newer -name \"$x\"", no_value),
        ("find . -mtime -print \"$x\"", no_value),
        ("find . -context -name \"$x\"", no_value),
        ("find -D -name \"$x\"", no_value),
        ("find -D -exec ls -maxdepth 0 -exec id {} \\;", no_value),
        ("find f -fprintf -exec ls -exec id {} \\;", no_value),
        ("find f -fprintf x -exec ls -exec id {} \\;", no_value),
        ("find f -files0-from -exec ls -exec id {} \\;", no_value),
        ("find f -fls -exec ls -exec id {} \\;", no_value),
        ("find f -neweraB -exec ls -exec id {} \\;", no_value),
        ("find -fprintf \"$x\" \"$y\" id \\;", "is computed"),
        ("find . -fprintf a* \"$x\" id \\;", "is computed"),
        ("find . -exec ls -exec id \\;", "among its words"),
        ("find . -exec ls ';x' -execdir id \\;", "among its words"),
        ("find . -exec ls + -ok id \\;", "among its words"),
        ("find . -ok ls {} + -name x", "only `;` ends"),
    ] {
        refused("ls,git,find", line, because);
    }
    for line in [
        "find -H -O3 -D tree,exec . -maxdepth 1 -type f -print0",
        "find -- src -mtime -7 -size +10k -perm -u+x -nouser",
        "find src -newerct '1 day ago' -fprintf out '%p\\n' -fls all -o -fprint0 names -quit",
        "find - -files0-from - -context 'a:b' -noleaf -nowarn -printf '-%p'",
        "find . -name a* -exec ls {} + -ok ls {} \\; -okdir ls \\;",
        "find -E . -regex '.*x' -xattrname y -depth",
        "find . ! \\( -name -7 -o -false , -true \\)",
    ] {
        accepted("ls,git,find", line);
    }
}
