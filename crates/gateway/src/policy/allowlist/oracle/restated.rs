//! Bash as judge of lines that were written anew: they do what the line did, and start nothing that is not listed.

use std::io::{Read, Seek};

use proptest::prelude::*;

use super::{BASH, BEFORE, BENCH, Bench, GIVEN, LISTED, SEEDS, STEPS};
use super::{cases, changed, enclosed, glued, made, nested, shell, stepped};
use crate::policy::allowlist::{Allowlist, check_given, check_line};
use crate::policy::line::{Limits, read, restate};

/// What a line printed, how it ended and which stubs it started.
#[derive(PartialEq, Eq, Debug)]
struct Done {
    printed: String,
    status: Option<i32>,
    ran: Vec<String>,
}

impl Bench {
    fn done(&self, line: &str) -> Done {
        // A file and no pipe: what the line left in the background may keep it open for ever.
        let mut file = tempfile::tempfile().expect("a file to print to");
        let (ran, status) = self.observed(|work| {
            let mut started = shell(&BASH, self.directory.path(), work);
            let line = format!("{BEFORE}\n{line}");
            started
                .args(["-c", &line])
                .env("PATH", self.bin())
                .env("FUNCNEST", "20");
            started
                .env(GIVEN.0, GIVEN.1)
                .stdout(file.try_clone().expect("a file to print to"));
            started.status().expect("a shell runs").code()
        });
        let mut printed = Vec::new();
        file.rewind()
            .and_then(|()| file.read_to_end(&mut printed))
            .expect("what was printed");
        // What `find` sees of the machine is another thing each time.
        let text = String::from_utf8_lossy(&printed);
        let printed = text
            .split_inclusive('\n')
            .filter(|line| !line.starts_with('/'))
            .collect();
        Done { printed, status, ran }
    }
}

/// How a line ends that was ended.
const TIMED_OUT: i32 = 124;
/// How a line ends that is no shell syntax to bash.
const UNREAD: i32 = 2;

/// What differs from one run to the next, or runs beside the line.
const PASSING: [&str; 8] = ["RANDOM", "&", "$$", "SECONDS", "BASH", "LINENO", "time", "<("];

proptest! {
    #![proptest_config(ProptestConfig { cases: cases() / 2, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_line_that_was_written_anew_does_the_same(
        line in prop_oneof![1 => glued(), 3 => changed(), 2 => stepped(), 2 => made::line(), 1 => enclosed(), 3 => nested::clear_line()]
    ) {
        let list = Allowlist::from_entries(&LISTED).expect("valid");
        let Some(read) = read(&line, Limits::STANDARD).ok().filter(|read| check_line(read, &list, &*BENCH).is_ok()) else {
            return Ok(());
        };
        let given = [(GIVEN.0.to_owned(), GIVEN.1.to_owned())];
        let Some(restated) = restate(&line, Limits::STANDARD).ok().filter(|_| check_given(&read, &list, &given).is_ok()) else {
            return Ok(());
        };
        let after = BENCH.done(restated.text());
        let unlisted = after.ran.iter().find(|name| !LISTED.contains(&name.as_str()));
        prop_assert!(unlisted.is_none(), "{:?} as {:?} ran {:?}", line, restated.text(), unlisted);
        if !PASSING.iter().any(|passing| line.contains(passing)) {
            // What an earlier line left in the background may write meanwhile.
            let is_same = || BENCH.done(&line) == BENCH.done(restated.text());
            let before = BENCH.done(&line);
            // All variables, among them the line itself and the number of the process; or a loop that went on. Or bash could
            // not read the line, and can read what we made of it.
            let is_told_apart = before.status == Some(TIMED_OUT) || before.status == Some(UNREAD);
            if before.printed.contains("PWD=") || is_told_apart {
                return Ok(());
            }
            prop_assert!(before == after || is_same() || is_same(), "{:?} as {:?}: {:?}, {:?}", line, restated.text(), before, after);
        }
    }
}

#[test]
fn what_is_accepted_can_be_written_anew() {
    let list = Allowlist::from_entries(&LISTED).expect("valid");
    let accepts = |line: &str| read(line, Limits::STANDARD).is_ok_and(|read| check_line(&read, &list, &*BENCH).is_ok());
    let accepted: Vec<_> = SEEDS.into_iter().chain(STEPS).filter(|line| accepts(line)).collect();
    assert!(accepted.len() > 60, "{}", accepted.len());
    let more = [
        "[ -n \"$(ls)\" ] && ls",
        "[ \"$(ls | git)\" = \"a$(ls)b\" ]",
        "if [ -z \"$(git status --porcelain)\" ]; then ls; fi",
        "test \"$(ls)\" = x",
    ];
    for line in accepted.into_iter().chain(more) {
        let restated = restate(line, Limits::STANDARD).unwrap_or_else(|why| panic!("{line:?}: {why:?}"));
        let again = check_line(restated.line(), &list, &*BENCH);
        assert!(again.is_ok(), "{line:?} as {:?}: {again:?}", restated.text());
    }
}

/// Bash writes a substitution down for itself and reads that: from a list in it it takes quotes away, `$'…'` in an expansion it
/// leaves without any, a pattern loses its parenthesis. It goes on in the middle of what was text.
#[test]
fn what_bash_writes_down_for_itself_holds_no_text_of_the_line() {
    for (line, ran) in [
        ("ls $( a=( \\( ) && ls 'x\nid\ny' )", 2),
        ("ls \"$( a=( \\; ) && ls 'x\nid\ny' )\"", 2),
        ("ls <( a=( \\& ) && ls 'x\nid\ny' ); wait $!", 2),
        ("ls $( a=( \\' ) && ls 'x; id; y'; a=( \\' ) )", 2),
        ("ls $( a=( 'b'\\''c' ) && ls 'x; id; y'; a=( \\' ) )", 2),
        ("ls \"$( ls \"$( a=( $'\\' $\\' ); id; b=( \\'C\\n' ); ls )\" )\"", 3),
        ("ls $( ls $( a=( $'\\' $\\' ); id; b=( \\'C\\n' ); ls ) )", 3),
        ("ls \"$( ls ${x:-$'\\n$(id)'} )\"", 2),
        ("x=1; ls \"${x:+$(ls ${y:-$'\\n$(id)'})}\"", 2),
        ("ls \"$( case x in (esac) ls '$(id)' ;; esac )\"", 1),
        ("ls \"$( case x in (esac | id) : ;; esac )\"", 1),
        ("ls \"$$(')\"')$(id)\"\\'", 1),
        ("x=\"$$(')\"')$(id)\"\\'; ls \"$x\"", 1),
    ] {
        let restated = restate(line, Limits::STANDARD).unwrap_or_else(|why| panic!("{line:?}: {why:?}"));
        let done = BENCH.done(restated.text());
        assert_eq!(done.ran, vec!["ls"; ran], "{line:?}: {done:?}");
    }
}

/// What looks like a text of ours is the agent's.
#[test]
fn words_that_look_as_ours_do_are_read_as_any_other() {
    let list = Allowlist::from_entries(&LISTED).expect("valid");
    for line in [
        "set -- a -o -v 'x[$(id)]' -o b; [ -n \"\\$( __substitution_ \"$@\" )\" ]",
        "set -- a PATH b; read -r -p \"\\$( __substitution_1 \"$@\" )\" x <<< '/nope y'; ls",
        "set -- '' -o -exec id ';'; find . -path \"\\$( __substitution_ \"$@\" )\"",
    ] {
        let read = read(line, Limits::STANDARD).expect("a line");
        let checked = check_line(&read, &list, &*BENCH).is_ok();
        assert!(!checked || restate(line, Limits::STANDARD).is_err(), "{line:?}");
    }
}

/// Bash counts the parentheses of expressions and of arithmetic, and does not know of what stands around some.
#[test]
fn parentheses_that_bash_counts_otherwise_are_not_given_to_it() {
    for line in [
        "[[ a =~ b(${v:-)} ]] || id || [[ a =~ (${v:-(} b)) ]]",
        "[[ a =~ b(${v:-) ]] || id || [[ a =~ (} b) ]]",
        "ls \"$( [[ x =~ ($'\\n$(id)') ]]; ls )\"",
        "[[ a =~ (a|$(ls)) ]]",
        "[[ a =~ ('(') ]]",
        "[[ a =~ (a b) ]]",
        "a=1; id=1; ls=1; ls $(( ${a:)}${a:)} | ( id | ( ls $(( ${a:(}${a:(} 1 )) )) ))",
        "a=1; ls $(( ${a:)} ))",
        "a=1; ls ${a[)]}",
    ] {
        assert!(restate(line, Limits::STANDARD).is_err(), "{line:?}");
    }
    for line in [
        "[[ $x =~ ^([0-9]+)\\.(a|\"b\")$ ]]",
        "[[ $x =~ ^(${v}|\\(b)?$ ]] && ls",
        "[[ $x =~ ${v:-a} ]]",
        "a=1; ls $(( (a + 1) * ${a:(1)} )) ${a:(0):1}",
    ] {
        assert!(restate(line, Limits::STANDARD).is_ok(), "{line:?}");
    }
}
