//! Arithmetic runs what a value says: attacks by values, and by what looks like arithmetic and is not.

use super::*;

#[test]
fn arithmetic_is_not_led_to_a_text_that_runs_commands() {
    let list = "ls,mapfile,getopts";
    for line in [
        "_=1; : 'a[$(id)]'; ((_))",
        "REPLY=1; read <<< 'a[$(id)]'; ((REPLY))",
        "cd 'a[$(id)]'; ((1/$PWD))",
        "ls $((1/$OLDPWD))",
        "f='a[$(id)]'; FUNCNAME=1; f() { ((FUNCNAME)); }; f",
        "linux='a[$(id)]'; if false; then OSTYPE=1; fi; ((OSTYPE))",
        "xterm='a[$(id)]'; if false; then TERM=1; fi; ls $((TERM))",
        "x='a[$(id)]'; ls $((${x:-1}))",
        "x='a[$(id)]'; ((${x:0}))",
        "x='a[$(id)]'; ((${x,}))",
        "x='a[$(id)]'; ((${x@E}))",
        "x=('a[$(id)]'); ((${x[@]:0}))",
        "set -- 'a[$(id)]'; ((${@:1}))",
        "x=1; read x <<< 'a[$(id)]'; ((x))",
        "x=1; read -r y x <<< 'a[$(id)]'; ((x))",
        "x=(1); read -rax <<< 'a[$(id)]'; ((x))",
        "x=1; command read x <<< 'a[$(id)]'; [[ x -eq 1 ]]",
        "x=1; while read -r x; do ((x)); done",
        "x=1; printf -v x %s 'a[$(id)]'; ((x))",
        "x=1; printf -vx %s 'a[$(id)]'; ls $((x))",
        "x=(1); mapfile x < y; ((x))",
        "x=1; getopts a x; ((x))",
        "x=1; export 'x=a[$(id)]'; ((x))",
        "x=1; export \"x=a[\\$(id)]\"; ls $((x))",
        "x=1; command export x='a[$(id)]'; ((x))",
        "x=1; \\export x='a[$(id)]'; ((x))",
        "f() { local x=1; local 'x+=a[$(id)]'; ((x)); }; f",
    ] {
        refused(list, line, "arithmetic over a value that may be no number");
    }
    for line in [
        "a=1; x=5; a5='b[$(id)]'; ((a$x))",
        "a=1; a0='b[$(id)]'; ((a$#))",
        "a=1; a1='b[$(id)]'; ls $((a$((1))))",
        "a=1; x=''; ab='c[$(id)]'; ((a${x}b))",
        "a=1; a1='b[$(id)]'; [[ a$((1)) -eq 0 ]]",
    ] {
        refused(list, line, "a name in arithmetic that is put together");
    }
    for line in [
        "x=1; read y; ls $((x + 1))",
        "x=5; ls $((2 * $x))",
        "x=1; ((x = x * 10 + $#))",
    ] {
        accepted(list, line);
    }
    // It is read only, so nobody is told that it may not be set.
    for line in [
        "ls $((PATH))",
        "ls $((PATH + 1))",
        "ls $(($PATH))",
        "[[ $PATH -eq 1 ]]",
        "((EUID > 0))",
    ] {
        refused(list, line, "arithmetic over a value that may be no number");
    }
}

#[test]
fn an_expansion_in_arithmetic_leaves_nothing_but_a_number() {
    for line in [
        // A letter, which is a name.
        "a='b[$(id)]'; x=(1); ls $(( ${x@a} ))",
        "r='b[$(id)]'; f() { local -r x=1; ((${x@a})); }; f",
        "a='b[$(id)]'; x=(1); [[ ${x@a} -eq 1 ]]; ls",
        "a='b[$(id)]'; x=(1); ls \"${x[${x@a}]}\"",
        "x=1; ((${x@Q}))",
        "x=1; ((${x@K}))",
        "x=1; ((${x^^}))",
        "x=1; ((${x,}))",
        // A name that is put together of the value and the word behind the operator.
        "aa='b[$(id)]'; a=1; x=11; ls $(( ${x//1/a} ))",
        "a2='b[$(id)]'; a=1; x=12; ((${x/1/a})); ls",
        "a1='b[$(id)]'; a=1; x=1; ls $(( ${x/1/a&} ))",
        "aa='b[$(id)]'; a=1; x=11; y=(1); ls \"${y[${x//1/a}]}\"",
        "x=12; ((${x/#1/a}))",
        "x=12; ((${x/%2/a}))",
        "x=12; for ((i=${x/1/a}; i<3; i++)); do ls; done",
        "x=12; ((${x//[^0-9]/a}))",
        "a=1; a5='b[$(id)]'; ((${x:-a}5))",
        "a=1; x=1; ((${x:+a}))",
        "a=1; ((${x-a}))",
        "x=1; ((${x:+~-}))",
        "x=1; ((${x:+-}))",
        "x=1; ((${x:+\"5\"}))",
        "x=1; ((${x:?a}))",
        "x=1; ((${x#a}))",
        "x=1; ((${x#$y}))",
        "x=1; ((${x%~-}))",
        // A directory, in the place of a tilde.
        "x=1; ls $(( ${x/1/~-} ))",
        "x=1; (( ${x/1/~-} )); ls",
        "x=1; ls ${a[${x/1/~-}]}",
        "x=1; [[ ${x:+~-} -eq 1 ]]; ls",
        // Many words, and names of names.
        "x=(1 2); ((${x[@]}))",
        "x=(1 2); ((${x[*]}))",
        "x=1; ((${!x}))",
        "x=1; ((${x:0:$y}))",
        "((${@}))",
        "(($*))",
        "(($-))",
    ] {
        refused("ls", line, "cannot be checked against the allowlist");
    }
    for line in [
        "[[ ~- -eq 1 ]]; ls",
        "[[ ~+ -eq 1 ]]; ls",
        "[[ 1 -eq ~- ]]",
        "[[ ~5 -lt 1 || 1 -gt 2 ]]",
        "[[ x=~- -eq 1 ]]",
        "x=1; [[ x=~+ -ne 1 ]]",
    ] {
        refused("ls", line, "a tilde in a comparison of numbers");
    }
    for line in [
        "x=5; ls $(( ${x:-0} + 1 )) $(( ${x-0x1f} )) $(( ${x:+7} )) $(( ${x:-} + 1 )) $(( ${x:--1} ))",
        "x=5; y=1; ls $(( ${x:-$y} )) $(( ${x:-${y}} )) $(( ${x:-${y:-$((2 * y))}} ))",
        "x=08; ls $(( ${x#0} )) $(( ${x##*0} )) $(( 10#$x )) $(( 10#${x%%8} ))",
        "x=123; n=1; ls $(( ${x:1} + ${x:0:2} )) $(( ${x: -n} )) $(( ~x ))",
        "a=(1 2 3); i=1; ls $(( ${a[$i]} + ${a[i + 1]} + ${#a[@]} + ${#a[*]} + ${#a} + ${#} + $# ))",
        "s=text; n=${#s}; ls $((n + 1)) $(( ${#s} * 2 )) $(( ${#1} ))",
        "((${1//[^0-9]/} > 2)) && ls",
        "x=5; ls $(( $((x + 1)) * (2 + $(( ${x} )) ) ))",
        "x=5; [[ ${x:-0} -gt 3 && \"$x\" -lt 9 && x -ge 0 ]]",
    ] {
        accepted("ls", line);
    }
}

#[test]
fn everyday_arithmetic_is_read() {
    for line in [
        "i=0; while ((i < 3)); do i=$((i+1)); done",
        "i=0; while [[ $i -lt 3 ]]; do ((i++)); ls \"$i\"; done",
        "x=3; ls $(( ${x:-0} + 1 ))",
        "arr=(a b c); for i in 0 1 2; do ls \"${arr[$i]}\" ${arr[i]}; done",
        "n=3; for ((i=0;i<n;i++)); do ls $i; done",
        "n=4; [[ $n -gt 3 ]] && ls",
        "x=5; ls $((x*2)) $((x % 2 == 0 ? 1 : 0)) $((x | 0xff & ~x)) $((x > 2 && x < 9))",
        "total=0; for f in 1 2; do total=$((total + f)); ((total += 2, total -= 1)); done; ls $total",
        "x=-5; ls $((x + 1))",
        "x=1; x+=2; ls $((x))",
        "a=(1 2); a+=(3); ls $((a[0] + a[2]))",
    ] {
        accepted("ls", line);
    }
}

#[test]
fn a_value_with_something_behind_it_is_still_looked_at() {
    for line in [
        "x=-; x+=5; ((x))",
        "x=1; x+=-; ((x))",
        "x=1; x+=-5; ((x))",
        "x=1; x+=$((1 - 2)); ((x))",
        "x=1; x+=a; ((x))",
        "for x in -; do ((x)); done",
        "x=(1 -); ((x))",
        "x=--5; ((x))",
        "x=5-; ((x))",
    ] {
        refused("ls", line, "arithmetic over a value that may be no number");
    }
    for line in ["x=1; x+=5; ((x)); ls", "x=1; x+=${y//[^0-9]/}; ((x)); ls"] {
        accepted("ls", line);
    }
}

#[test]
fn arithmetic_counts_with_what_is_certainly_a_number() {
    for line in [
        "for i in {1..3}; do ls $((i * 2)); done",
        "for i in 0 {01..10..2} {5,7}; do ((i > 2)) && ls; done",
        "n=$(ls); ls $((${n//[^0-9]/} + 1))",
        "n=$(ls); m=${n//[^0-9]/}; ls $((m + 1)); ((m > 2)); [[ $m -gt 3 ]]; [ $m -gt 3 ]",
        "f() { local n=${1//[^0-9]/}; ls \"$((n + 1))\"; }; f 5",
        "[ ${x//[^0-9]/} -gt 2 ]",
    ] {
        accepted("ls", line);
    }
    for line in [
        "for i in {a..c}; do ((i)); done",
        "for i in {1..$x}; do ((i)); done",
        "for i in {1..3}x; do ((i)); done",
        "for i in {1,'a[$(id)]'}; do ((i)); done",
        "for i in $(ls); do ((i)); done",
        "x=$y; x=${x//[^0-9]/}; ((x))",
        "((${x//[^0-9]/a[0]}))",
        "((${x//[^0-9a]/}))",
        "((${x/[^0-9]/}))",
        "((${x//[^0-9]/}y))",
    ] {
        refused("ls", line, "");
    }
    refused(
        "ls",
        "x=$(ls); ((x))",
        "`n=${x//[^0-9]/}` gives its digits another name",
    );
    accepted("ls", "x=$(ls); n=${x//[^0-9]/}; ls $((n + 1))");
    refused(
        "ls",
        "f() { local a=(1); local a=${x//[^0-9]/}'($(id))'; }; f",
        "a value that bash reads again as a list",
    );
}

#[test]
fn what_looks_like_a_comment_in_arithmetic_is_seen() {
    for line in [
        "((1 #$(id)\n))",
        "((1\n#$(id)\n))",
        "((1 \\\n#$(id)\n))",
        "( (ls); ((1 + #$(id)\n2)))",
        "case x in x) ((1 #$(id)\n));; esac",
        "for ((i=0 #$(id)\n; i<1; i++)); do ls; done",
        "ls $((1 #$(id)\n))",
        "ls \"$((1 #$(id)\n))\"",
        "ls ${x:-$((1 #$(id)\n))}",
        "x=$((1 #$(id)\n))",
        "a=($((1 #$(id)\n)))",
        "ls $( ((1 #$(id)\n)) )",
        "ls `((1 #$(id)\n))`",
        "ls <<< $((1 #$(id)\n)) # $(id)",
    ] {
        let message = verdict("ls", line).expect_err(line);
        let is_told = ["a comment in arithmetic cannot be", "no shell syntax cannot be checked"];
        assert!(is_told.iter().any(|told| message.contains(told)), "{line:?}: {message}");
    }
    refused("ls", "ls <<E\n$((1 #$(id)\n))\nE", "`id` is not on the allowlist");
    for line in [
        "# one\n((1 + 16#ff)) # two\nls $((2#11 + $#)) # three",
        "ls $((1)) # $(id)",
        "(ls # one\n); ls $(ls # two\n)",
        "ls > x <<'E'\n# a ((1)) # b\nE\nls",
        "ls <<'E' | ls\n# ((d))\nE",
    ] {
        accepted("ls", line);
    }
}

#[test]
fn only_parentheses_side_by_side_are_arithmetic() {
    for line in [
        "( (*) )",
        "((?) )",
        "( (1))",
        "f() ((*) ); f",
        "if ( ([!a]*) ); then :; fi",
        "ls $( ( (*) ) )",
    ] {
        refused("ls", line, "parentheses that are no arithmetic");
    }
    for line in ["((1 * 2))", " ((1)) && ls", "ls $( ((1)) )", "(ls)", "((ls); (ls))"] {
        accepted("ls", line);
    }
}

#[test]
fn two_parentheses_are_no_subshells_where_bash_takes_them_for_arithmetic() {
    for line in [
        "((ls; ls '$(id)'))",
        "(\\\n(ls; ls '$(id)'))",
        "ls | ((if ls; then ls '`id`'; fi))",
        "((for x in a; do ls '$(id)'; done))",
        "f() ((ls; ls '$(id)')); f",
        "((f() { ls '$(id)'; }))",
        "ls <(((ls; ls '$(id)')))",
        "((ls; ls ')' '$(id)'))",
        "((ls '$(id)'; ls); ls)",
    ] {
        refused("ls", line, "parentheses");
    }
    for line in [
        "( (ls; ls '$(id)'))",
        "((ls; ls) ; ls '$(id)')",
        "(ls; (ls '$(id)'))",
        "(((ls); ls); ls)",
    ] {
        accepted("ls", line);
    }
}

#[test]
fn no_value_is_read_again_as_a_list() {
    let list = "ls,declare,typeset,readonly,mapfile";
    for line in [
        "f() { local a=(1); local a='($(id))'; }; f",
        "f() { local a=(1); local a+='($(id))'; }; f",
        "f() { local a=(1); local 'a=($(id))'; }; f",
        "f() { local a=(1); x='($(id))'; local a=\"$x\"; }; f",
        "f() { local a=(1); command local a='($(id))'; }; f",
        "f() { local a; a[0]=1; local a=\"\"'($(id))'; }; f",
        "f() { local a; read -ra a <<< x; local a='($(id))'; }; f",
        "f() { local a; read -raa <<< x; local a='($(id))'; }; f",
        "f() { local a; mapfile a < x; local a='($(id))'; }; f",
        "f() { local a; ls ${a[0]:=x}; local a='($(id))'; }; f",
        "declare -a a='($(id))'",
        "declare -A a='([$(id)]=1)'",
        "declare -x -a a='($(id))'",
        "a=(1); declare a='($(id))'",
        "readonly -a a='($(id))'",
        "f() { local a; a=(1); local a=~-; }; f",
        "f() { local a; read -a a <<< x; local a+=~+; }; f",
        "declare -a a=~/x",
        "declare PIPESTATUS='($(id))'",
        "typeset -x MAPFILE='($(id))'",
        "declare GROUPS=\"$x\"",
        "declare 'COMPREPLY+=($(id))'",
        "mapfile <<< x; declare MAPFILE='($(id))'",
        "f() { local FUNCNAME='($(id))'; }; f",
    ] {
        refused(list, line, "a value that bash reads again as a list");
    }
    for line in [
        "f() { local a='(none)' b=\"$1\" c=$(ls); ls \"$a\"; }; f",
        "f() { local a=(1 2); local b=\"$1\" c=~/x; ls \"${a[0]}\"; }; f",
        "f() { local a=(1 2); local a='~-'; }; f",
        "a=(1 2); a='(x)'; ls \"${a[0]}\"",
        "export a='(x)'; ls",
    ] {
        accepted(list, line);
    }
    refused("ls,jobs", "jobs -x id", "`jobs`");
    refused("ls,jobs", "jobs -lx id", "`jobs`");
    accepted("ls,jobs", "jobs -lr %1");
}

#[test]
fn a_word_of_a_test_needs_quotes_unless_it_is_certainly_a_number() {
    for line in [
        "[ $x -lt 3 ]",
        "x=1; read x; [ $x -lt 3 ]",
        "x=1; x=$(ls); [ $x -lt 3 ]",
        "x=-v; [ $x y ]",
        "x=1; [ $x \"$y\" ]",
        "x=1; [ $x$y -lt 3 ]",
        "for x; do [ $x -eq 1 ]; done",
        "[ $_ -eq 1 ]",
        "[ $1 -eq 1 ]",
        "[ $@ -eq 1 ]",
        "wait $x",
        "x=1; x+=' -p PATH'; wait $x",
        "wait \"$x\"",
        "wait $(ls)",
        "wait -p PATH $!",
    ] {
        refused("ls", line, "is refused: ");
    }
    let list = Allowlist::from_comma_list("ls").expect("a list");
    let line = read("if false; then x=1; fi; [ $x = 1 ]", Limits::STANDARD).expect("a line");
    check_line(&line, &list, &Machine).expect("the line itself is allowed");
    let given = |value: &str| check_given(&line, &list, &[("x".to_owned(), value.to_owned())]).is_ok();
    assert!(given("17"));
    assert!(!given("-v a[$(id)] -o x"));
    let line = read("if false; then x=1; fi; [ \"$x\" = 1 ]", Limits::STANDARD).expect("a line");
    assert!(check_given(&line, &list, &[("x".to_owned(), "text".to_owned())]).is_ok());
}

#[test]
fn arithmetic_does_not_evaluate_what_a_call_brings_along() {
    let list = Allowlist::from_comma_list("ls").expect("a list");
    let check = |text: &str, list: &Allowlist, value: &str| {
        let line = read(text, Limits::STANDARD).expect("a line");
        check_line(&line, list, &Machine).expect("the line itself is allowed");
        check_given(&line, list, &[("x".to_owned(), value.to_owned())]).map_err(|refusal| refusal.to_string())
    };
    for line in ["if false; then x=1; fi; ((x))", "x=1 ls; ((x))", "(x=1); ls $((x))"] {
        let message = check(line, &list, "a[$(id)]").expect_err(line);
        assert!(
            message.contains("arithmetic or a search over a variable of the environment"),
            "{message}"
        );
        assert_eq!(check(line, &list, "17"), Ok(()));
        assert_eq!(check(line, &Allowlist::Any, "a[$(id)]"), Ok(()));
    }
    assert_eq!(check("x=1; ls \"$x\"", &list, "a[$(id)]"), Ok(()));
}
