//! Attacks and honest lines, one per row.

mod arithmetic;
mod braces;
mod conditions;
mod continued;
mod documents;
mod enclosed;
mod lost;
mod searches;
mod variables;

use std::path::PathBuf;

use super::{
    Allowlist, AllowlistError, FoundProgram, Programs, Use, check_argv, check_given, check_line, is_guarded_variable,
};
use crate::policy::line::{Limits, read};

/// A machine where `/bin` is a link to `/usr/bin` and every usual program exists.
struct Machine;

const INSTALLED: [&str; 26] = [
    "ls", "git", "find", "id", "env", "xargs", "timeout", "nice", "sudo", "sh", "bash", "cat", "echo", "printf", "[",
    "rm", "grep", "wc", "head", "nohup", "flock", "stdbuf", "busybox", "vi", "chrt", "ssh",
];

impl Programs for Machine {
    fn find(&self, word: &str) -> Option<FoundProgram> {
        let (directory, name) = match word.rsplit_once('/') {
            None => ("/usr/bin", word),
            Some((directory, name)) => (directory, name),
        };
        // A link to the right file in the wrong place.
        let planted = directory == "/tmp" && name == "ls";
        let trusted = matches!(directory, "/usr/bin" | "/bin");
        if !(INSTALLED.contains(&name) && trusted || planted) {
            return None;
        }
        let file = if name == "vi" { "busybox" } else { name };
        Some(FoundProgram {
            version: None,
            path: PathBuf::from(format!("/usr/bin/{file}")),
            requested: PathBuf::from(directory).join(name),
            on_trusted_path: trusted,
            is_script: false,
            interpreter_chain: Vec::new(),
            opened: crate::policy::allowlist::Opened::default(),
        })
    }
}

fn verdict(list: &str, line: &str) -> Result<Vec<Use>, String> {
    let list = Allowlist::from_comma_list(list).expect("the list of the test is valid");
    let line = read(line, Limits::STANDARD).map_err(|error| format!("unreadable: {error}"))?;
    check_line(&line, &list, &Machine).map_err(|refusal| refusal.to_string())
}

#[track_caller]
fn refused(list: &str, line: &str, expected: &str) {
    match verdict(list, line) {
        Ok(uses) => panic!("{line:?} was accepted: {uses:?}"),
        Err(message) => assert!(
            message.contains(expected),
            "{line:?} was refused for another reason: {message}"
        ),
    }
}

#[track_caller]
fn accepted(list: &str, line: &str) {
    if let Err(message) = verdict(list, line) {
        panic!("{line:?}: {message}");
    }
}

#[test]
fn chained_and_nested_commands_are_found_with_their_position() {
    let list = "ls,git,find";
    let not_listed = |column: usize| format!("`id` is not on the allowlist (line 1, column {column})");
    for (line, column) in [
        ("ls && id", 7),
        ("ls || id", 7),
        ("ls | id", 6),
        ("ls |& id", 7),
        ("ls & id", 6),
        ("ls `id`", 5),
        ("ls $(id)", 6),
        ("ls \"$(id)\"", 7),
        ("ls \"`id`\"", 6),
        ("ls ${x:-$(id)}", 11),
        ("ls \"${x:-$(id)}\"", 12),
        ("ls ${x:-`id`}", 10),
        ("ls $(ls $(ls; id))", 15),
        ("ls;id", 4),
        ("ls;\tid", 5),
        ("\"i\"\"d\"", 1),
        ("i\\d", 1),
        ("'id'", 1),
        ("$'\\x69d'", 1),
        ("$'\\151d'", 1),
        ("$'\\u0069d'", 1),
        ("(id)", 2),
        ("((ls); (id))", 9),
        ("{ id; }", 3),
        ("! id", 3),
        ("time id", 6),
        ("time -p id", 9),
        ("if id; then :; fi", 4),
        ("if ls; then id; fi", 13),
        ("if ls; then :; elif id; then :; fi", 21),
        ("if ls; then :; else id; fi", 21),
        ("while id; do :; done", 7),
        ("until id; do :; done", 7),
        ("while ls; do id; done", 14),
        ("for x in a; do id; done", 16),
        ("for x in $(id); do :; done", 12),
        ("for ((i=0; i<1; i++)); do id; done", 27),
        ("case x in x) id;; esac", 14),
        ("case $(id) in x) :;; esac", 8),
        ("case x in $(id)) :;; esac", 13),
        ("f() { id; }; f", 7),
        ("function f { id; }; f", 14),
        ("ls <(id)", 6),
        ("ls >(id)", 6),
        ("ls < <(id)", 8),
        ("ls > >(id)", 8),
        ("ls > $(id)", 8),
        ("ls < \"$(id)\"", 9),
        ("ls <<< $(id)", 10),
        ("[[ $(id) ]]", 6),
        ("[[ -n $(id) ]]", 9),
        ("[[ a == $(id) ]]", 11),
        ("[[ a =~ $(id) ]]", 11),
        ("[[ a == b || $(id) ]]", 16),
        ("x=$(id)", 5),
        ("a=(b $(id))", 8),
        ("((x=$(id)))", 7),
        ("x=$(id) ls", 5),
        ("export x=$(id)", 12),
        ("command id", 9),
        ("exec id", 6),
        ("ls # ; id\nls; id", 0),
    ] {
        let expected = match column {
            0 => "`id` is not on the allowlist (line 2, column 5)".to_owned(),
            column => not_listed(column),
        };
        refused(list, line, &expected);
    }
}

#[test]
fn separators_and_multi_line_positions_are_bash_s_own() {
    let list = "ls,git,find";
    refused(
        list,
        "git status; rm x",
        "`rm` is not on the allowlist (line 1, column 13)",
    );
    refused(list, "ls\nid", "`id` is not on the allowlist (line 2, column 1)");
    // Quoted it is no keyword but the name of a program.
    refused(list, "\"[\"[ a ]]", "`[[` is not on the allowlist (line 1, column 1)");
    refused(
        list,
        "ls \\\n  && \\\n  id",
        "`id` is not on the allowlist (line 3, column 3)",
    );
    refused(
        list,
        "ls \"a\nb\" $(ls;\n  id)",
        "`id` is not on the allowlist (line 3, column 3)",
    );
    refused(
        list,
        "ls \u{e9}\u{1f600}; id",
        "`id` is not on the allowlist (line 1, column 8)",
    );
    refused(list, "ls\rid", "`ls\\rid` is not on the allowlist");
    refused(list, "ls\u{a0}id", "is not on the allowlist");
    refused(
        list,
        "ls <<E\n$(id)\nE",
        "`id` is not on the allowlist (line 2, column 3)",
    );
    refused(list, "ls <<-E\n\t`id`\n\tE", "`id` is not on the allowlist");
    refused(
        list,
        "ls <<E\nx\nE\nid",
        "`id` is not on the allowlist (line 4, column 1)",
    );
    refused(
        list,
        "ls \0 x",
        "unreadable: the line holds a NUL character (line 1, column 4)",
    );
}

#[test]
fn commands_computed_at_run_time_are_refused() {
    let list = "ls,git,find,xargs,env,sudo,timeout,nice,sh";
    for line in [
        "$X", "${X}", "$(ls)", "`ls`", "\"$X\"", "l*", "{ls,id}", "~/ls", "l?", "[l]s", "$X ls", "x=ls; $x", "l$X",
    ] {
        refused(list, line, "is computed at run time");
    }
    for line in [
        "eval id",
        "source x",
        ". x",
        "trap id EXIT",
        "alias ls=id",
        "enable -f x y",
        "builtin eval id",
        "hash -p /tmp/x ls",
        "shopt -s expand_aliases",
        "let x=1",
        "bind -x '\"a\":id'",
        "complete -C id x",
    ] {
        refused(list, line, "is refused under an allowlist");
    }
    refused(list, "command -p ls", "options");
    refused(list, "exec -a x ls", "options");
    refused(list, "command eval id", "`eval` is refused");
}

#[test]
fn what_stands_right_behind_a_closed_descriptor_is_a_command() {
    for line in ["<&-id", ">&-id", "2>&-id ls", "x=1 <&-id", "<&\\\n-id", "ls; >&-rm ls"] {
        refused("ls", line, "a target of `>&`");
    }
    for line in ["ls >&-", "ls 2>&- a", "ls <&-", "ls 2>&1", "<&- ls"] {
        accepted("ls", line);
    }
}

#[test]
fn a_word_goes_on_behind_a_parenthesis_as_in_bash() {
    for line in [
        "ls <(ls)#$(id)",
        "ls > >(ls)#`id`",
        "ls <(ls)\\\n#$(id)",
        "ls <(case x in x) ls;; esac)#$(id)",
        "a=(x)#`id`",
        "ls $(ls id\na=(x)# id\n)",
        "ls \"$(a=(x)#$(id)\n)\"",
        "ls $(a=(x)\\\n# id\n)",
        "ls ${x:-$(a=(x)# id\n)}",
        "ls `a=(x)# id\n`",
        "export a+=(x)#`id`",
        "a=(x)ls id",
        "a=()'ls' id",
        "a[0]=(x)\\\nls id",
        "ls \"$(a=(x)ls id)\"",
    ] {
        refused("ls", line, "");
    }
    for line in [
        "ls <(ls) #$(id)",
        "a=(x) #$(id)",
        "a=(x y) ls",
        "a=(x); ls",
        "a=(x)\nls",
        "f(){ ls; }; f",
        "case x in x)ls;; esac",
        "(ls) # c",
        "ls '<(ls)#'",
        "ls \"a)#b\"",
        "ls $(ls 'a)#b' \"$(ls)#\")",
        "ls $(ls) # $(id)#",
    ] {
        accepted("ls", line);
    }
}

#[test]
fn launchers_are_checked_by_what_they_launch() {
    for line in ["env ls", "xargs ls", "find . -exec ls \\;", "timeout 5 ls", "sudo ls"] {
        let name = line.split(' ').next().unwrap_or_default();
        if name != "find" {
            refused("ls,git,find", line, &format!("`{name}` is not on the allowlist"));
        }
    }
    let list = "ls,git,find,env,xargs,timeout,nice,sudo,nohup,flock,stdbuf,sh,busybox,vi,chrt,ssh";
    for line in [
        "env id",
        "env -i id",
        "env -u X id",
        "env A=b id",
        "env -- id",
        "env -C / id",
        "env env id",
        "xargs id",
        "xargs -0 id",
        "xargs -n 1 id",
        "xargs -I {} id {}",
        "xargs -n1 id",
        "xargs -- id",
        "xargs env id",
        "timeout 5 id",
        "timeout -s KILL 5 id",
        "timeout --signal=KILL 5 id",
        "nice id",
        "nice -n 5 id",
        "nice -5 id",
        "sudo id",
        "sudo -u root id",
        "sudo A=b id",
        "env - id",
        "chrt -o 0 id",
        "nohup id",
        "flock x id",
        "stdbuf -o0 id",
        "find . -exec id \\;",
        "find . -execdir id ';'",
        "find . -ok id \\;",
        "find . -okdir id \\;",
        "find . -exec id {} +",
        "find . -name x -exec ls \\; -exec id \\;",
        "find . -exec env id \\;",
        "env timeout 5 nice id",
        "find . -exec id",
        "command env id",
        "exec env id",
    ] {
        refused(list, line, "`id` is not on the allowlist");
    }
    for line in [
        "env -S id",
        "env --split-string=id",
        "env $X",
        "env \"$X\" ls",
        "env X=$Y id",
        "xargs env",
        "xargs xargs",
        "xargs -I ls ls",
        "xargs --repl id",
        "timeout $T ls",
        "find $X",
        "find *",
        "find . -exec env {} \\;",
        "find . \"$X\" ls \\;",
        "set -- . -exec id ';'; find \"./$@\"",
        "a=(. -exec id ';'); find \"./${a[@]}\"",
        "x=' -exec id ; '; find \".\"$x\"\"",
        "find \"a\"$x\"b\"",
        "timeout --sig KILL 5 ls",
        "busybox id",
        "sudo /tmp/x=1 ls",
        "env ./x=1 ls",
        "chrt -o id ls",
        "ssh - host",
        "xargs --replace=x ls x",
        "find . -exec $X \\;",
        "env -*",
        "nice {ls,id}",
    ] {
        refused(list, line, "cannot be told");
    }
    refused(list, "find . -exec {} \\;", "is computed at run time");
    // Behind these the words are the command, whatever they look like.
    refused(list, "env - -u X ls", "`-u` is not on the allowlist");
    refused(list, "sudo -- A=b ls", "`A=b` is not on the allowlist");
    refused("ls,xargs", "xargs", "`echo` is not on the allowlist");
    refused(list, "find . -exec ./ls \\;", "relative path");
    for line in [
        "find . -name x",
        "find . -name '*.rs' -type f",
        "find . -exec ls {} \\;",
        "find . -exec ls -l {} +",
        "env ls",
        "env A=b ls",
        "env -- A=b ls",
        "env - A=b ls",
        "env",
        "chrt -b 0 ls",
        "xargs -0 ls -l",
        "timeout 5 ls $X",
        "xargs -I {} ls {}",
        "nice -n 5 ls",
        "env timeout 5 ls",
        "find src/*",
        "find \"./$x\" -name y",
        "find \"src/$(ls)\" ./*",
        "sh -c id",
        "nohup ls &",
    ] {
        accepted(list, line);
    }
}

#[test]
fn a_name_means_the_program_on_the_trusted_path() {
    for (line, message) in [
        ("./ls", "`./ls` is a relative path"),
        ("sub/ls", "`sub/ls` is a relative path"),
        ("../ls", "`../ls` is a relative path"),
        ("/tmp/ls", "`/tmp/ls` is not on the allowlist"),
        ("/usr/bin/id", "`/usr/bin/id` is not on the allowlist"),
        ("/bin/../bin/ls", "is not on the allowlist"),
        ("/usr/bin/busybox ls", "`/usr/bin/busybox` is not on the allowlist"),
        ("pwd", "`pwd` is not on the allowlist"),
        ("echo x", "`echo` is not on the allowlist"),
        ("cargo", "`cargo` is not on the allowlist"),
    ] {
        refused("ls,vi", line, message);
    }
    refused("cargo", "cargo", "no such program is installed");
    accepted("ls", "/usr/bin/ls");
    accepted("ls", "/bin/ls -l");
    accepted("/usr/bin/ls", "ls");
    accepted("/usr/bin/ls", "/usr/bin/ls");
    refused("/usr/bin/ls", "/bin/ls", "is not on the allowlist");
    accepted("pwd,echo", "pwd && echo x");
    accepted("vi", "vi id");
    let uses = verdict("ls,env", "env ls | ls").expect("all are listed");
    let words: Vec<&str> = uses.iter().map(|found| found.word.as_str()).collect();
    assert_eq!(words, ["env", "ls", "ls"]);
}

#[test]
fn functions_pass_with_their_bodies_and_shadow_nothing() {
    accepted("ls", "f() { ls; }; f a b");
    accepted("ls", "f() { ls; }; g() { f; }; g");
    for line in [
        "ls() { :; }; ls",
        "id() { ls; }; id",
        "cd() { ls; }",
        "eval() { ls; }",
        "a.b() { ls; }",
        "/bin/ls() { :; }",
        "function if { ls; }",
        "id; id() { ls; }",
    ] {
        refused("ls", line, "");
    }
    refused("ls", "f", "`f` is not on the allowlist");
    refused("ls,env", "f() { ls; }; env f", "`f` is not on the allowlist");
}

#[test]
fn honest_lines_pass() {
    for line in [
        "ls # ; id",
        "ls",
        "ls -la 'a b' \"c;d\"",
        "git log --oneline | head -5",
        "ls \\\n -l",
        "ls *.rs && git status",
        "ls > out.txt 2>&1",
        "ls 'id' \"id\" $'id'",
        "cd src && ls",
        "for f in *.rs; do ls \"$f\"; done",
        "x=$(git log | wc -l); ls \"$x\"",
        "ls $HOME ${x:-y}",
        "if [ -f x ]; then ls; fi",
        "[ \"$x\" = y ] && ls",
        "[[ -f x && a == b* ]]",
        "ls \"${x%.rs}\"",
        "for i in 1 2 3; do ls $((i + 1)); done",
        "for ((i=0;i<3;i++)); do ls; done",
        "true; false; :",
        "while IFS= read -r line; do ls \"$line\"; done < x",
        "ls > x <<'E'\ncout << ((1)) << 2;\nE",
        "while read -r line; do ls \"$line\"; done < x",
        "read -p \"$question\" x",
        "ls <<'E'\n$(id)\nE",
        "ls <<E\n$x\nE",
        "ls {a,b}",
        "printf '%s\\n' \"$x\"",
        "set -euo pipefail; ls",
        "ls &",
        "time ls",
        "! ls",
        "(cd x; ls)",
        "{ ls; git status; } > x",
        "case $1 in a|b) ls;; *) git status;; esac",
        "ls \"$@\"",
        "x=5; ls $((x*2))",
        "f() { local a=1; ls \"$a\"; }; f",
        "export FOO=bar; ls",
        "export 'FOO=bar'; \\export BAZ=x; x=1; ls $((x))",
        "ls <(git log) >(wc -l)",
        "ls ${#x} $# $? $$",
        "command -v git",
        "exec ls",
        "wait",
        "ls & wait $!",
        "ls & pid=$!; ls; wait \"$pid\" $pid",
        "i=0; while [ $i -lt 3 ]; do ls; i=$((i+1)); done",
        "i=0; n=3; until test $i = ${n}; do ((i=i+1)); done",
        "[ $# -gt 1 ] || [ $? -ne 0 ] || [ $((1 % 2)) -eq 0 ]",
        "ls $((RANDOM % 5)) $(($RANDOM % 5)); [[ $RANDOM -gt 9 ]]; x=$((SECONDS / 60)); ls $((LINENO))",
        "exit 0",
        "return 1",
        "shift",
        "git log --format='%h $(id)'",
        "ls \"a\\$(id)\"",
        "ls '`id`'",
        "ls \\`id\\`",
        "git show HEAD@{1}",
        "ls ${x//a/b} ${x^^} ${x:1:2} ${x@Q}",
    ] {
        accepted("ls,git,wc,head", line);
    }
}

#[test]
fn argument_vectors_follow_the_same_rules() {
    let list = Allowlist::from_comma_list("ls,env,find").expect("valid");
    let check = |words: &[&str]| {
        let args: Vec<String> = words[1..].iter().map(|word| (*word).to_owned()).collect();
        check_argv(words[0], &args, &list, &Machine)
            .map(|uses| uses.len())
            .map_err(|refusal| refusal.to_string())
    };
    assert_eq!(check(&["ls", "$(id)", "; id"]), Ok(1));
    assert_eq!(check(&["env", "A=b", "ls"]), Ok(2));
    assert_eq!(check(&["env", "id"]), Err("`id` is not on the allowlist".to_owned()));
    assert_eq!(
        check(&["find", ".", "-exec", "id", ";"]),
        Err("`id` is not on the allowlist".to_owned())
    );
    assert_eq!(check(&["cd", "x"]), Err("`cd` is not on the allowlist".to_owned()));
    assert!(check(&["env", "LD_PRELOAD=x", "ls"]).is_err());
    assert!(check(&["./ls"]).is_err());
}

#[test]
fn lists_are_checked_when_they_are_made() {
    let check = |text: &str, expected: Result<usize, AllowlistError>| {
        let made = Allowlist::from_comma_list(text).map(|list| list.names().len() + list.paths().len());
        assert_eq!(made, expected, "{text:?}");
    };
    check("ls, git ,/usr/bin/id", Ok(3));
    check(" * ", Ok(0));
    check("", Err(AllowlistError::Empty));
    check("ls,,git", Err(AllowlistError::EmptyEntry));
    check("ls, ls", Err(AllowlistError::Twice("ls".to_owned())));
    check("ls,*", Err(AllowlistError::AnyAmongOthers));
    check("./ls", Err(AllowlistError::NeitherNameNorPath("./ls".to_owned())));
    let any = Allowlist::from_comma_list("*").expect("valid");
    let line = read("PATH=. eval id; $x; ls", Limits::STANDARD).expect("readable");
    assert_eq!(check_line(&line, &any, &Machine).map(|uses| uses.len()), Ok(1));
}

#[test]
fn a_refused_command_is_pointed_at_where_it_stands_behind_its_launcher() {
    let list = "ls,find,xargs,env,nice";
    for (line, place) in [
        ("find . -exec id \\;", "line 1, column 14"),
        ("find . -exec ls \\; -exec id \\;", "line 1, column 26"),
        ("ls | xargs -0 id", "line 1, column 15"),
        ("env A=1 nice id", "line 1, column 14"),
        ("ls\nfind . -exec env id \\;", "line 2, column 18"),
    ] {
        refused(list, line, &format!("`id` is not on the allowlist ({place})"));
    }
}

#[test]
fn what_is_invisible_in_a_word_is_shown() {
    refused("ls", "ls\r\nls", "`ls\\r` is not on the allowlist");
    refused("ls", "$'ls\\x0bls'", "`ls\\u{b}ls` is not on the allowlist");
    refused("ls", "ls\u{200b}", "`ls\\u{200b}` is not on the allowlist");
    refused("ls", "'é\"\\x'", "`é\"\\x` is not on the allowlist");
}
