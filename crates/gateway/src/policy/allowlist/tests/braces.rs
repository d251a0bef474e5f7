//! Braces, which bash expands before it reads anything else in a word.

use super::*;

#[test]
fn braces_in_a_declaration_hide_no_value_and_no_name() {
    let list = "ls,declare,typeset,readonly";
    for line in [
        "f() { local a; a=(1); local a={x,'($(id))'}; }; f",
        "f() { local a; a=(1); local a={'($(id))',x}; }; f",
        "f() { local a; a=(1); local a=''{'($(id))',}; }; f",
        "f() { local a; a=(1); local a=\"$x\"{'($(id))',}; }; f",
        "f() { local a; a=(1); local a+={x,'($(id))'}; }; f",
        "f() { local a; read -a a; local a={x,'(ls $(id))'}; }; f",
        "a=(1); export a={x,'($(id))'}",
        "declare -a a; declare a={1..2}'($(id))'",
        "typeset a={x,y}",
        "readonly a={x,y}",
        "export LC_ALL={a.UTF-8@,ja_JP.SJIS}; ls Á",
    ] {
        refused(list, line, "braces in a declaration");
    }
    for line in [
        "declare {a,b}='($(id))'",
        "export {PATH,x}=.",
        "export {PATH,x}",
        "declare a[{0,1}]=x",
        "declare a[{0]=x,1}]=y",
        "command export a={x,'($(id))'}",
        "\\export a={x,'($(id))'}",
        "read {a,PATH}",
        "read -p {a,PATH}",
        "printf -v {a,PATH} x",
        "printf -v{a,PATH} x",
        "printf {-v,PATH} x",
        "unset {a,PATH}",
        "[ {-v,'a[$(id)]'} ]",
        "a=([{0,1}]=x)",
        "a=([0]={1,2}); ((a))",
    ] {
        refused(list, line, "");
    }
    for line in [
        "export a=\"{x,y}\" b='{x,y}' c={x} d=${x:-y}",
        "a={x,'($(id))'}; ls $a",
        "a={x,y} ls",
        "declare -a a=({x,y})",
        "f() { local a=(1 {2..5}); ls \"${a[@]}\"; }; f",
        "for x in {1..3} {a,b}; do ls {x,y}; done",
        "a=([0]=1 [1]=2); ((a))",
    ] {
        accepted(list, line);
    }
}

#[test]
fn braces_put_no_expansion_together() {
    let dollar = "a dollar sign at the end of an alternative in braces";
    let letters = "a sequence of letters in braces that goes over other characters";
    for (line, because) in [
        ("y='$(id)'; ls {$,}{y@P}", dollar),
        ("y='$(id)'; ls {x,a$}{y@P}", dollar),
        ("y='$(id)'; ls {{x,$},z}{y@P}", dollar),
        ("a='b[$(id)]'; ls {$,}[a]", dollar),
        ("a='b[$(id)]'; for x in {$,}[a]; do :; done", dollar),
        ("a='b[$(id)]'; x=({$,}[a])", dollar),
        ("ls {Z..a..6}id{Z..a..6}'`'", letters),
        ("ls {Y..d..3}'$(id)'", letters),
        ("ls {x,{d..Y..3}}'$(id)'", letters),
        ("ls {A..\\\nz}'$(id)'", letters),
        ("ls {A..é}", letters),
    ] {
        refused("ls", line, because);
    }
    for line in [
        "ls {a..z} {A..F..2} {1..10} {-3..3} {01..10..2}",
        "ls ../{a,b}/..c {$x,b} {\"$\",b} a$ '{$,}' \"{Z..a}\"",
        "ls {src,tests}/*.rs {}",
    ] {
        accepted("ls", line);
    }
}
