//! Lines that go on behind a backslash: bash joins them before it looks at what they hold.

use super::*;

#[test]
fn arithmetic_that_opens_on_two_lines_holds_no_comments() {
    for line in [
        "ls $(\\\n(1 #$(id)\n))",
        "ls $(\\\n\\\n(1 #$(id)\n))",
        "ls \"$(\\\n(1 #$(id)\n))\"",
        "ls <<< $(\\\n(1 #$(id)\n))",
        "ls > $(\\\n(1 #$(id)\n))",
        "x=$(\\\n(1 #$(id)\n))",
        "case $(\\\n(1 #$(id)\n)) in x) ls;; esac",
        "[[ 1 -eq $(\\\n(1 #$(id)\n)) ]]",
        "ls $(ls $(\\\n(1 #$(id)\n)))",
        "ls `ls $(\\\n(1 #$(id)\n))`",
        "ls `ls $(\\\\\n(1 #$(id)\n))`",
        "(\\\n(1 #$(id)\n))",
        "for (\\\n(i=0 #$(id)\n;i<1;i=1)); do ls; done",
        "ls $(\\\n(1 #$(eval 'ls')\n))",
        "ls $(\\\n(1 #$((PATH=5))\n)); ls",
    ] {
        refused("ls", line, "");
    }
}

#[test]
fn an_array_that_is_named_on_two_lines_is_an_array() {
    for line in [
        "f() { local x; : ${x\\\n[0]:=1}; local x='($(id))'; }; f",
        "f() { local x; : \"${x\\\n[0]:=1}\"; local x='($(id))'; }; f",
        "f() { local xyz; ls ${xy\\\nz[0]=1}; local xyz='($(id))'; }; f",
        "f() { local x; ls $((${x\\\n[1]:=5})); local x='($(id))'; }; f",
        "f() { local x; ls `: ${x\\\\\n[0]:=1}`; local x='($(id))'; }; f",
        ": ${x\\\n[0]:=1}; declare x='($(id))'",
    ] {
        refused("ls,declare", line, "");
    }
    accepted("ls", "f() { local x='(none)'; ls \\\n \"[$x]\"; }; f");
}

#[test]
fn other_pieces_of_syntax_on_two_lines_are_what_bash_sees() {
    for line in [
        "ls $\\\n'a\\\nb'",
        "ls $\\\n'\\'; id #'",
        "ls $\\\n(id)",
        "ls $\\\n{x:-$(id)}",
        "ls <\\\n(id)",
        "ls <\\\n<E\n$(id)\nE",
        "ls <<\\\nE\n$(id)\nE",
        "ls $(ls <\\\n<E\n$(id)\nE\n)",
        "ls <<E\n$(ls a\\\n#$(id)\n)\nE",
        "a=\\\n(x)ls id",
        "a\\\n=(x)ls id",
        "ls {\\\nPATH}>x",
        "i\\\nd",
        "P\\\nATH=. ls",
        "ls &\\\n& id",
        "ls;\\\nid",
    ] {
        refused("ls", line, "");
    }
    for line in [
        "ls \\\n  -l \\\n  a",
        "ls a\\\nb \"c\\\nd\" 'e\\\nf'",
        "ls |\\\n ls &&\\\n ls",
        "ls # a comment \\\nls",
        "ls <<'E'\n#define F(x) \\\n  ((x) << 1)\nE\nls",
    ] {
        accepted("ls", line);
    }
}

#[test]
fn a_comment_in_a_substitution_takes_no_line_with_it() {
    for line in [
        "x=$(ls  # note \\\nbash evil.sh >&2\n)",
        "ls $(ls  #\\\nid\n\n)\nwait $!",
        "ls $(ls   #x\\\nid\n)",
        "ls $(ls \t#\\\nid\n)",
        "ls $(ls ;  #\\\nid\n)",
        "ls $(  #\\\nid\n)",
        "ls \"$(ls  #\\\nid\n)\"",
        "ls `ls  #\\\nid\n`",
        "ls ${x:-$(ls  #\\\nid\n)}",
        "a=(\"$(ls  # \\\nid\n)\")",
        "ls \\\n $(ls  #\\\nid\n)",
        "ls <<'E' > a\nx\nE\nls $(ls  #\\\nid\n)",
        "ls <<'E' > $(ls  #\\\nid\n)\nx\nE\n",
    ] {
        refused("ls,wait", line, "");
    }
    refused(
        "ls",
        "ls;\nx=$(ls  # note \\\nid\n)",
        "beside `#` in a substitution (put it on one line, without comments) cannot be read safely (line 2, column 1)",
    );
    for line in [
        "ls \\\n  \"$x#1\" \\\n  'a#b' a#b",
        "ls \"see #1 \\\n and #2\"",
        "ls $(ls \\\n  -l)",
        "ls $(ls  # a comment\nls\n)",
        "ls > a <<'E'\n# all: $(X) \\\n\t`y` #\nE\nls \"$x#\"",
    ] {
        accepted("ls", line);
    }
}
