//! Lines that an attacker tries under a short allowlist. All are refused by reading, before anything
//! starts, with what is wrong and where.

use serde_json::json;

use crate::bench::Bench;
use crate::client::Server;

/// Each line, what its refusal names, and where.
const LINES: &[(&str, &str, &str)] = &[
    ("git status; touch canary", "`touch`", "line 1, column 13"),
    ("ls && touch canary", "`touch`", "line 1, column 7"),
    ("ls || touch canary", "`touch`", "line 1, column 7"),
    ("ls & touch canary", "`touch`", "line 1, column 6"),
    ("ls | touch canary", "`touch`", "line 1, column 6"),
    ("ls `touch canary`", "`touch`", "line 1, column 5"),
    ("ls $(touch canary)", "`touch`", "line 1, column 6"),
    ("ls \"$(touch canary)\"", "`touch`", "line 1, column 7"),
    ("ls <(touch canary)", "`touch`", "line 1, column"),
    ("ls ${x:-$(touch canary)}", "`touch`", "line 1, column"),
    ("ls $((`touch canary`))", "`touch`", "line 1, column"),
    ("ls\ntouch canary", "`touch`", "line 2, column 1"),
    ("ls\n\ttouch\tcanary", "`touch`", "line 2, column 2"),
    ("\ttouch\tcanary", "`touch`", "line 1, column 2"),
    ("(touch canary)", "`touch`", "line 1, column 2"),
    ("{ touch canary; }", "`touch`", "line 1, column 3"),
    ("if ls; then touch canary; fi", "`touch`", "line 1, column 13"),
    ("while touch canary; do ls; done", "`touch`", "line 1, column 7"),
    ("for x in a; do touch canary; done", "`touch`", "line 1, column 16"),
    ("ls() { touch canary; }; ls", "", "line 1, column"),
    ("! touch canary", "`touch`", "line 1, column 3"),
    ("\"to\"\"uch\" canary", "`touch`", "line 1, column 1"),
    ("t\\ouch canary", "`touch`", "line 1, column 1"),
    ("$'\\x74ouch' canary", "`touch`", "line 1, column 1"),
    ("{touch,canary}", "", "line 1, column 1"),
    ("/???/???/touc? canary", "", "line 1, column 1"),
    ("$X canary", "", "line 1, column 1"),
    ("X=touch; $X canary", "", "line 1, column 10"),
    ("eval 'touch canary'", "`eval`", "line 1, column 1"),
    ("source ./script", "`source`", "line 1, column 1"),
    (". ./script", "`.`", "line 1, column 1"),
    ("exec touch canary", "", "line 1, column"),
    ("command touch canary", "", "line 1, column"),
    ("builtin eval 'touch canary'", "", "line 1, column"),
    ("trap 'touch canary' EXIT", "`trap`", "line 1, column 1"),
    ("alias ls='touch canary'", "`alias`", "line 1, column 1"),
    ("env touch canary", "", "line 1, column"),
    ("xargs touch canary", "", "line 1, column"),
    ("ls | xargs touch", "", "line 1, column"),
    ("timeout 5 touch canary", "", "line 1, column"),
    ("nice touch canary", "", "line 1, column"),
    ("find . -exec touch canary \\;", "`touch`", "line 1, column"),
    ("find . -execdir touch canary {} +", "`touch`", "line 1, column"),
    ("find . -ok touch canary \\;", "`touch`", "line 1, column"),
    ("PATH=. ls", "`PATH`", "line 1, column 1"),
    ("LD_PRELOAD=x ls", "`LD_PRELOAD`", "line 1, column 1"),
    ("GIT_PAGER='touch canary' git -p log", "`GIT_PAGER`", "line 1, column 1"),
    ("export PATH=.; ls", "`PATH`", "line 1, column"),
    ("read PATH; ls", "`PATH`", "line 1, column"),
    ("printf -v PATH .; ls", "`PATH`", "line 1, column"),
    ("for PATH in .; do ls; done", "`PATH`", "line 1, column"),
    ("ls ${PATH:=.}", "`PATH`", "line 1, column"),
    ("./ls", "`./ls`", "line 1, column 1"),
    ("/usr/bin/touch canary", "`/usr/bin/touch`", "line 1, column 1"),
    ("sudo touch canary", "", "line 1, column"),
    ("ls; <<E touch canary\nE", "`touch`", "line 1, column"),
    ("ls <<E\n$(touch canary)\nE", "`touch`", "line 2, column"),
    ("[[ -v x[$(touch canary)] ]]", "`touch`", "line 1, column"),
    ("test -v 'x[$(touch canary)]'", "", "line 1, column"),
    ("time touch canary", "`touch`", "line 1, column"),
    ("coproc touch canary", "", "line 1, column"),
    ("_=1; : 'a[$(touch canary)]'; ((_))", "arithmetic", "line 1, column 30"),
    (
        "x=1; read x <<< 'a[$(touch canary)]'; ((x))",
        "arithmetic",
        "line 1, column",
    ),
    (
        "x=1; printf -vx %s 'a[$(touch canary)]'; ls $((x))",
        "arithmetic",
        "line 1, column",
    ),
    (
        "a=1; x=5; a5='b[$(touch canary)]'; ((a$x))",
        "arithmetic",
        "line 1, column",
    ),
    (
        "f='a[$(touch canary)]'; FUNCNAME=1; f() { ((FUNCNAME)); }; f",
        "arithmetic",
        "line 1, column",
    ),
];

#[test]
fn what_is_not_on_the_list_is_refused_before_anything_starts() {
    let bench = Bench::allowing("ls,git,find");
    bench.program("ls", "#!/bin/sh\ntouch canary\n");
    bench.program("script", "touch canary\n");
    let mut server = Server::start(&bench);
    for (line, named, place) in LINES {
        let outcome = server.line(line);
        assert_eq!(outcome.code(), "COMMAND_NOT_ALLOWED", "{line:?}: {}", outcome.text);
        outcome.refused("COMMAND_NOT_ALLOWED");
        assert!(
            outcome.message().contains(named),
            "{line:?} does not name {named}: {}",
            outcome.message()
        );
        assert!(
            outcome.message().contains(place),
            "{line:?} is not at {place}: {}",
            outcome.message()
        );
        assert_eq!(
            bench.states(outcome.id()),
            ["command.received", "command.completed"],
            "{line:?}"
        );
        assert_eq!(bench.recorded(&outcome)["command"], *line);
    }
    assert!(!bench.work().join("canary").exists());
}

#[test]
fn a_calls_own_variable_is_not_evaluated_by_its_line() {
    let bench = Bench::allowing("ls");
    let mut server = Server::start(&bench);
    let line = "if false; then x=1; fi; ls -d . && ((x))";
    let call = |value: &str| json!({"command": line, "env": {"x": value}});
    let outcome = server.call("execute_command", call("a[$(ls >canary)]"));
    outcome.refused("COMMAND_NOT_ALLOWED");
    assert!(outcome.message().contains("line 1, column 36"), "{}", outcome.message());
    assert!(!bench.work().join("canary").exists());
    assert_eq!(server.call("execute_command", call("7")).ok(), ".\n");
}

#[test]
fn a_path_over_a_link_is_not_the_listed_program_wherever_it_leads_now() {
    let bench = Bench::allowing("ls,git,find");
    // Where the server looks it is the listed program, and where bash will stand it is bash itself.
    std::os::unix::fs::symlink("/usr/bin", bench.work().join("l")).unwrap();
    bench.dir("sub/l");
    std::os::unix::fs::symlink("/bin/bash", bench.work().join("sub/l/ls")).unwrap();
    let mut server = Server::start(&bench);
    let over = bench.work().join("l/ls");
    for path in [
        "/proc/self/cwd/l/ls",
        "/proc/self/root/usr/bin/ls",
        over.to_str().unwrap(),
    ] {
        for line in [
            format!("cd sub; for i in 1; do {path} -c 'touch canary'; done"),
            format!("find sub -maxdepth 0 -exec {path} {{}} \\;"),
            path.to_owned(),
        ] {
            server.line(&line).refused("COMMAND_NOT_ALLOWED");
        }
        server.process(path, &[]).refused("COMMAND_NOT_ALLOWED");
    }
    server.line("for i in 1; do /usr/bin/ls; /bin/ls; done").ok();
}

#[test]
fn a_program_elsewhere_is_not_the_listed_one() {
    let bench = Bench::allowing("ls");
    let copy = bench.program("ls", std::fs::read("/bin/ls").unwrap());
    let link = bench.work().join("linked");
    std::os::unix::fs::symlink("/bin/ls", &link).unwrap();
    bench.dir("bin");
    let mut server = Server::start(&bench);
    for file in [
        "./ls",
        copy.to_str().unwrap(),
        link.to_str().unwrap(),
        "bin/../ls",
        "work/ls",
        "ls/",
        " ls",
        "LS",
    ] {
        let outcome = server.process(file, &[]);
        outcome.refused("COMMAND_NOT_ALLOWED");
        let run = server.call("run_command", json!({"command": file, "working_directory": "."}));
        run.refused("COMMAND_NOT_ALLOWED");
    }
    // Its own path is the listed program, however it is written.
    assert!(server.process("/usr/bin/ls", &[]).ok().contains("linked"));
}

#[test]
fn argv_of_launchers_is_read_too() {
    let bench = Bench::allowing("find,env,xargs,ls,nice,timeout");
    let mut server = Server::start(&bench);
    for (file, args) in [
        ("find", &[".", "-exec", "touch", "canary", ";"][..]),
        ("env", &["touch", "canary"]),
        ("env", &["-S", "touch canary"]),
        ("env", &["PATH=.", "ls"]),
        ("xargs", &["touch", "canary"]),
        ("nice", &["-n", "5", "touch", "canary"]),
        ("timeout", &["5", "touch", "canary"]),
    ] {
        let outcome = server.process(file, args);
        outcome.refused("COMMAND_NOT_ALLOWED");
    }
    assert_eq!(server.process("nice", &["ls", "-d", "."]).ok(), ".\n");
    assert!(!bench.work().join("canary").exists());
}

#[test]
fn a_line_of_listed_programs_runs_whatever_its_shape() {
    let bench = Bench::allowing("ls,cat,echo,wc");
    bench.file("a.txt", "one\n");
    bench.file("b.txt", "two\n");
    let mut server = Server::start(&bench);
    for (line, expected) in [
        ("ls *.txt", "a.txt\nb.txt\n"),
        ("cat a.txt b.txt | wc -l", "2\n"),
        ("cat < a.txt > c.out && cat c.out", "one\n"),
        ("cat missing 2>/dev/null || echo none", "none\n"),
        ("for x in a b; do cat $x.txt; done", "one\ntwo\n"),
        ("echo \"$(cat a.txt)\" ; echo 'id; rm'", "one\nid; rm\n"),
        ("cd /usr && cat bin/nothing 2>&1 | wc -l", "1\n"),
        ("cat <<E\ntext\nE", "text\n"),
    ] {
        assert_eq!(server.line(line).ok(), expected, "{line}");
    }
}

#[test]
fn a_plain_line_means_what_it_means_to_bash() {
    let bench = Bench::allowing("ls,echo,printf,test");
    std::fs::create_dir_all(bench.work().join("deep/inner")).expect("directories");
    bench.file("deep/inner/here", "");
    bench.file("top", "");
    std::os::unix::fs::symlink("deep/inner", bench.work().join("link")).expect("a link");
    let mut server = Server::start(&bench);
    for (line, expected) in [
        // The way back from a link is the way there.
        ("cd link && ls", "here\n"),
        ("cd link && cd .. && ls", "deep\nlink\ntop\n"),
        ("cd link/.. && ls", "deep\nlink\ntop\n"),
        ("cd link; cd ../deep && ls", "inner\n"),
        ("cd nowhere/.. || echo none", "none\n"),
        // What the program of a builtin's name does not know.
        ("[ b \\> a ] || echo wrong", ""),
        ("test a \\< b && echo right", "right\n"),
        ("echo --version", "--version\n"),
        ("echo -e '\\101'", "\\101\n"),
        ("printf '%q\\n' 'a b'", "a\\ b\n"),
    ] {
        assert_eq!(server.line(line).ok(), expected, "{line}");
    }
}

/// Bash gets what was read, written anew, and it means what was written.
/// Bash does not wait for them, and what they print belongs to the line.
#[test]
fn processes_that_a_line_writes_to_come_to_their_end() {
    for list in ["cat,tee,sort,sleep", "*"] {
        let bench = Bench::allowing(list);
        bench.file("list", "b\na\n");
        let mut server = Server::start(&bench);
        for (line, printed) in [
            ("cat list > >(sleep 0.05; sort)", "a\nb\n"),
            ("cat list | tee >(sleep 0.05; sort > sorted) > /dev/null", ""),
            ("cat sorted", "a\nb\n"),
        ] {
            assert_eq!(server.line(line).ok(), printed, "{list}: {line}");
        }
        // Not for ever.
        assert_eq!(server.line("sleep 600 & cat list").ok(), "b\na\n");
    }
}

#[test]
fn a_line_for_bash_runs_as_it_was_read() {
    let bench = Bench::allowing("cat,echo,printf,sort,tr");
    bench.file("a b", "one\n");
    bench.file("c", "two\n");
    let mut server = Server::start(&bench);
    for (line, expected) in [
        ("for f in *; do # each\n  cat \"$f\"\ndone | sort -r", "two\none\n"),
        ("x=$(cat c); echo \"got: ${x:-none}\" 'and $x'", "got: two and $x\n"),
        (
            "cat <<E | tr a-z A-Z\n$((1 + 2)) \"quoted\" \\$x <<\nE\necho behind",
            "3 \"QUOTED\" $X <<\nbehind\n",
        ),
        (
            "cat <<-'E'\n\t\tdeep $x\n\tE\nfor i in 1 2; do printf '%s;' $i; done",
            "deep $x\n1;2;",
        ),
        (
            "echo \"$(cat <<'EOF'\nIt's $(id)\n\n\"more\"\nEOF\n)\"",
            "It's $(id)\n\n\"more\"\n",
        ),
        ("f() { echo \"$1-$#\"; }; f $'a\\tb' c", "a\tb-2\n"),
        ("case \"$(cat c)\" in t*|x) echo yes;; *) echo no;; esac", "yes\n"),
        ("if [[ -f c && ! -e d ]]; then echo here; fi", "here\n"),
        (
            "a=(x 'y z'); for e in \"${a[@]}\"; do echo \"<$e>\"; done",
            "<x>\n<y z>\n",
        ),
        ("i=0; while ((i < 2)); do echo $i; ((i = i + 1)); done", "0\n1\n"),
        ("{ echo out; echo err >&2; } 2>&1 | sort", "err\nout\n"),
        ("cat <(echo sub) c", "sub\ntwo\n"),
        ("x=12; if [[ $x =~ ^[0-9]+$ ]]; then echo number; fi", "number\n"),
        ("echo 'a\nb' \"c\n$(cat c)\"", "a\nb c\ntwo\n"),
    ] {
        assert_eq!(server.line(line).ok(), expected, "{line}");
    }
    // Behind what is no syntax to it bash goes on with the next line, which to us stands in quotes.
    bench.file("planted", "echo PLANTED\n");
    let hidden = server.line("echo $( a=( \\( ) && echo 'x\n. ./planted\ny' )");
    assert_eq!(hidden.ok(), "x . ./planted y\n");
}

#[test]
fn a_command_that_cannot_be_run_is_told_as_bash_tells_it() {
    let bench = Bench::allowing("*");
    bench.file("plain.sh", "#!/bin/sh\n");
    bench.dir("folder");
    bench.program("other-lines.sh", "#!/bin/sh\r\necho ran\n");
    bench.program("no-first-line.sh", "echo ran\n");
    let mut server = Server::start(&bench);
    for (line, code, says) in [
        ("./plain.sh", 126, "./plain.sh: Permission denied"),
        ("./folder", 126, "./folder: Is a directory"),
        ("./nothing.sh", 127, "./nothing.sh: No such file or directory"),
        ("no-such-program", 127, "no-such-program: command not found"),
        ("./other-lines.sh", 126, "its interpreter is missing"),
        ("cat /dev/null | ./no-first-line.sh", 126, "such as `#!/bin/sh`"),
    ] {
        let outcome = server.line(line);
        outcome.failed("COMMAND_EXIT_NON_ZERO");
        assert_eq!(outcome.structured["exit_code"], code, "{line}");
        assert!(outcome.stderr().contains(says), "{line}: {}", outcome.stderr());
    }
    let alone = server.line("./no-first-line.sh");
    alone.failed("COMMAND_EXECUTION_FAILED");
    assert!(alone.message().contains("such as `#!/bin/sh`"), "{}", alone.message());
    let told = server.line("cat 2>told <nowhere || cat told");
    assert!(told.ok().contains("nowhere: No such file"), "{}", told.stdout());
    assert_eq!(told.stderr(), "");
}

#[test]
fn a_program_that_a_line_makes_or_changes_runs_as_it_is_then() {
    let bench = Bench::configured("'*'", "");
    bench.program("tool", "#!/bin/sh\necho one\n");
    let mut server = Server::start(&bench);
    for (line, said) in [
        ("cp /bin/echo made && ./made new", "new\n"),
        (
            "printf '#!/bin/sh\\necho made\\n' > script; chmod +x script; ./script",
            "made\n",
        ),
        ("chmod +x tool && ./tool", "one\n"),
        ("sed -i s/one/two/ tool && ./tool", "two\n"),
        ("./tool && ./tool", "two\ntwo\n"),
    ] {
        assert_eq!(server.line(line).ok(), said, "{line}");
    }
}
