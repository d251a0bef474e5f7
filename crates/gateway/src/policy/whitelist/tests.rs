//! What runs without a question, and what never does.

use super::{
    Asked, Candidate, Environment, Input, RuleText, Source, TaskHand, WhitelistError, WhitelistRule, builtin_rules,
    covers, with_task,
};
use crate::policy::line::{Limits, read};

fn rule(pattern: &str) -> WhitelistRule {
    WhitelistRule::new(&text(pattern)).expect("a pattern")
}

fn text(pattern: &str) -> RuleText<'_> {
    RuleText {
        pattern,
        reason: "test",
        enabled: true,
        source: Source::Global,
        matches: &[],
        not_matches: &[],
    }
}

fn covered(rules: &[WhitelistRule], line: &str) -> bool {
    read(line, Limits::STANDARD).is_ok_and(|line| {
        let candidate = Candidate {
            command: Asked::Line(&line),
            environment: Environment::Built,
            input: Input::Absent,
        };
        covers(rules, candidate).is_some()
    })
}

#[test]
fn a_pattern_covers_each_command_or_the_line_is_asked_about() {
    let rules = [rule("^git status")];
    for line in [
        "git status",
        "git status -s",
        "git  'status'",
        "git status; git status -s | git status",
        "git status 2>/dev/null",
        "git status 2>&1",
        "git --no-pager status",
    ] {
        assert_eq!(covered(&rules, line), line != "git --no-pager status", "{line:?}");
    }
    for line in [
        "git status; rm -rf x",
        "git status $(id)",
        "git status > ../x",
        "git status >> x",
        "git status && id",
        "git status | sh",
        "git status &",
        "X=1 git status",
        "(git status)",
        "git status `id`",
        "git status \"$x\"",
        "git statusx",
        "git status-x",
        "'git status'",
        "./git status",
        "git status < x",
        "git status <> x",
        "git status 2> x",
        "git status &> x",
        "! git status",
        "id; git status",
        "git status *",
        "git status --output=x",
        "git status --out x",
        "git status --ext-diff",
        "git status\nid",
        "env git status",
        "time git status",
        "git -c core.fsmonitor=id status",
        "git status {a,b}",
        "git status ~",
    ] {
        assert!(!covered(&rules, line), "{line:?}");
    }
}

#[test]
fn patterns_begin_with_the_command_and_end_with_a_word() {
    for (pattern, line, expected) in [
        ("^ls", "lsof", false),
        ("^ls", "ls -l", true),
        ("^ls ", "ls -l", true),
        ("^ls ", "ls", false),
        ("ls", "rm ls", false),
        ("^cargo (test|build)", "cargo test --all", true),
        ("^cargo (test|build)", "cargo tests", false),
        ("^cargo (b|build)", "cargo build --all", true),
        ("^cargo (b|build)", "cargo bui", false),
        ("^ls|^lsblk", "lsblk", true),
        ("(?x) ^ls # comment", "ls -l", true),
        ("x?", "ls", false),
        ("^npm run test:.*", "npm run test:unit", true),
        ("^git", "git -c alias.x='!id' x", false),
        ("^git", "git --exec-path=. status", false),
        ("^git", "git -p log", false),
        ("^git", "git grep -Oid x", false),
        ("^git", "git grep --open-files=id x", false),
        ("^git", "git bisect run id", false),
        ("^git log", "git log --format=%G?", false),
        ("^git log", "git log --te", false),
        ("^find", "find . -exec id \\;", false),
        ("^find", "find . -delete", false),
        ("^find", "find . -fprint x", false),
        ("^find", "find src -name '*.rs'", true),
        ("^rg", "rg --pre id x", false),
        ("^rg", "rg --pretty x", true),
        ("^sort", "sort -o x y", false),
        ("^sort", "sort --out=x y", false),
        ("^sort", "sort -ro x", false),
        ("^sed", "sed 5q x", true),
        ("^sed", "sed '2,$d' x", true),
        ("^sed", "sed s/a/b/g x", true),
        ("^sed", r"sed -u 's|a\|w|b|2' x", true),
        ("^sed", "sed 's/a/b/w y' x", false),
        ("^sed", "sed s/a/b/e x", false),
        ("^sed", "sed 1wy x", false),
        ("^sed", "sed 1e x", false),
        ("^sed", "sed 's/a/b/;w y' x", false),
        ("^sed", "sed 's/a/b/\nw y' x", false),
        ("^sed", "sed -e p -e wy x", false),
        ("^sed", "sed -l 5 wy x", false),
        ("^sed", "sed -- wy x", false),
        ("^sed", "sed s,*,b, x", false),
        ("^tar", "tar tf x", true),
        ("^tar", "tar -tf x", true),
        ("^tar", "tar xf x", false),
        ("^tar", "tar cf x y", false),
        ("^tar", "tar -xf x", false),
        ("^tar", "tar tvf x --index-file=y", false),
        ("^curl", "curl -s http://x", true),
        ("^curl", "curl -w '%output{y}' http://x", false),
        ("^curl", "curl --etag-save y http://x", false),
        ("^curl", "curl --engine ./y.so http://x", false),
        ("^curl", "curl --eng=y http://x", false),
        ("^curl", "curl --expand-output y http://x", false),
        ("^wget", "wget -q http://x", true),
        ("^wget", "wget -e output_document=y http://x", false),
        ("^wget", "wget --save-cookies y http://x", false),
        ("^rsync", "rsync -a a b", true),
        ("^rsync", "rsync --log-file=y a b", false),
        ("^git rebase", "git rebase main", true),
        ("^git rebase", "git rebase -x id main", false),
        ("^git rebase", "git rebase -ixid main", false),
        ("^git clone", "git clone -q a b", true),
        ("^git clone", "git clone -u id a b", false),
        ("^git clone", "git clone -qc core.fsmonitor=id a b", false),
        ("^git archive", "git archive HEAD", true),
        ("^git archive", "git archive -oy HEAD", false),
        ("^git format-patch", "git format-patch -o y main", false),
        ("^git ls-files", "git ls-files -o", true),
        ("^env", "env id", false),
        ("^xargs", "xargs id", false),
        ("^sudo", "sudo id", false),
        (".*", "timeout 5 id", false),
        ("^git diff --output=x$", "git diff --output=x", true),
        ("^git diff --output=.$", "git diff --output=x", false),
        ("^ls src/.*", "ls src/*.rs", true),
        ("^ls .*", "ls *.rs", false),
        ("^ls .*", "ls [-]x", false),
    ] {
        assert_eq!(covered(&[rule(pattern)], line), expected, "{pattern} and {line:?}");
    }
}

#[test]
fn a_glob_is_covered_only_where_no_name_of_a_file_changes_the_command() {
    for (pattern, line, expected) in [
        ("^tar", "tar f* a.tar", false),
        ("^tar", "tar t?f a.tar", false),
        ("^tar", "tar tf src/a*", true),
        ("^git", "git ta? v1", false),
        ("^git", "git t[a]g v2", false),
        ("^git", "git --no-pager ta?", false),
        ("^git", "git bisec* run", false),
        ("^git", "git x bisec*", false),
        ("^git add", "git add src/*.txt", true),
        ("^git add", "git add t*.txt a?", true),
        ("^git add", "git add -v -- src/*.txt", true),
        ("^git add", "git add -v src/*.txt", false),
        ("^git for-each-ref", "git for-each-ref --format a*", false),
        ("^git fetch", "git fetch e*", false),
        ("^git fetch", "git fetch ext::*", false),
        ("^curl", "curl -w a* http://x", false),
        ("^make", "make S*", false),
        ("^less", "less src/*", false),
        ("^sed", "sed s/a/b/ src/*", false),
        ("^cargo", "cargo t*", false),
        ("^cargo", "cargo --offline t?st", false),
        ("^cargo", "cargo test t*", true),
        (r"^cargo t\*$", "cargo t*", true),
        ("^ls", "ls src/*.rs", true),
        ("^ls", "ls -l a*.rs", true),
        ("^grep", "grep x src/*.log a*", true),
        ("^find", "find src/* -name x", true),
    ] {
        assert_eq!(covered(&[rule(pattern)], line), expected, "{pattern} and {line:?}");
    }
    let builtin = builtin_rules();
    for line in [
        "ls a*",
        "cat src/*",
        "wc -l a*.md",
        "grep x a*.log",
        "git diff src/*",
        "git log -- a*",
    ] {
        assert!(covered(&builtin, line), "{line:?}");
    }
    for line in ["git log --format a*", "git sho? x", "git stash l*", "uniq a*"] {
        assert!(!covered(&builtin, line), "{line:?}");
    }
}

#[test]
fn a_rule_that_is_off_takes_away_what_a_glob_may_become() {
    let off = |pattern| WhitelistRule {
        enabled: false,
        ..rule(pattern)
    };
    for (pattern, line, expected) in [
        ("^cargo publish", "cargo build src/*", true),
        ("^cargo publish", "cargo p/*", true),
        ("^cargo publish", "cargo publis*.x", false),
        ("^cargo publish", "cargo -q p/*", true),
        ("^cargo (publish|login)", "cargo build a*", false),
        ("^cargo .*x", "cargo build a*", false),
        ("^cargo build axe$", "cargo build a*", false),
        ("^cargo build axe$", "cargo build b*", true),
        ("^cargo build 'a b", "cargo build a*", false),
        ("^rm", "cargo build b*", true),
    ] {
        let rules = [rule("^cargo"), off(pattern)];
        assert_eq!(covered(&rules, line), expected, "{pattern} and {line:?}");
    }
    let rules = [rule("^git"), off("^git tag")];
    for line in ["git tag v1", "git ta? v1", "git t[a]g v2"] {
        assert!(!covered(&rules, line), "{line:?}");
    }
    assert!(covered(&rules, "git add src/*"));
    // Nor is it a way around a rule that git works elsewhere, nor does a rule for here cover that.
    let mut rules = builtin_rules();
    assert!(covered(&rules, "git -C src log"));
    rules.push(off("^git log"));
    assert!(!covered(&rules, "git -C src log") && covered(&rules, "git -C src status"));
    assert!(!covered(&[rule("^git")], "git -C src status") && !covered(&[rule("^git status")], "git -C src status"));
    assert!(covered(&[rule("^git -C src status$")], "git -C src status"));
    let mut rules = builtin_rules();
    for rule in &mut rules {
        rule.enabled = rule.name() != "git";
    }
    rules.push(rule("^git"));
    assert!(!covered(&rules, "git add src/*"));
    assert!(covered(&rules, "cat src/*"));
}

#[test]
fn the_built_in_list_only_reads() {
    let rules = builtin_rules();
    for line in [
        "ls",
        "ls -l",
        "git status",
        "git diff HEAD~1 -- src",
        "git log --oneline -5",
        "git show HEAD",
        "git log -p",
        "cat a b | head -5 | wc -l",
        "grep -rn x src",
        "rg x",
        "find . -name '*.rs'",
        "pwd",
        "echo hi",
        "git branch -a",
        "git branch",
        "git remote -v",
        "git stash list",
        "sort x | uniq -c",
        "git --no-pager log",
        "git grep -n x",
        "tail -F x",
        "date",
        "date +%s",
        "ls 2>/dev/null",
        "which git",
        "git status || true",
        "git blame x",
        "uniq x",
        "git diff --no-ext-diff",
        "git log --grep='a; id'",
    ] {
        assert!(covered(&rules, line), "{line:?}");
    }
    for line in [
        "lsof",
        "git",
        "git push",
        "git commit",
        "git branch x",
        "git branch -D x",
        "git tag x",
        "git stash",
        "git stash drop",
        "git remote add x y",
        "git -c a=b status",
        "git diff --output=x",
        "git diff --outpu x",
        "git log --ext-diff",
        "git show --textconv",
        "git show --t",
        "git -p log",
        "git grep -O x",
        "git grep -nO x",
        "git cat-file --filters x",
        "find . -exec id \\;",
        "find . -ok id \\;",
        "find . -delete",
        "find . -fls x",
        "rg --pre=id x",
        "rg --p id",
        "rg -z x",
        "rg --hostname-bin id",
        "sort -o x",
        "sort --compress-program=id",
        "uniq a b",
        "uniq -- a -b",
        "uniq -- -a -b",
        "uniq a*",
        "tree -o x",
        "date -s x",
        "date 0101",
        "file -C x",
        "rm x",
        "sed -i s/a/b/ x",
        "awk 1 x",
        "/usr/bin/ls",
        "./ls",
        "ls > x",
        "cat < x",
        "ls *",
        "ls $HOME",
        "env",
        "env ls",
        "xargs ls",
        "git worktree add x",
        "git remote update",
        "tee x",
        "diff -l a b",
        "git log --show-signature",
        "git for-each-ref --format='%(signature)'",
        "git for-each-ref --format='%(*signature:grade)'",
        "git for-each-ref --sort=signature",
        "git for-each-ref --sort=-signature:grade",
        "git for-each-ref --sort signature",
        "git for-each-ref --sor=v:*signature",
        "git branch --sort=signature",
        "git tag --sort=signature",
        "git show --remerge-diff",
        "git log -p --diff-merges=remerge",
        "git log -p --diff-merges r",
        "git diff-tree --remerge-diff HEAD",
        "git show -m",
        "git log -p -m",
        "git log --format=%+GG",
        "git show '--pretty=format:%-G?'",
        "git log '--format=% GK'",
        "git config -l",
        "time ls",
        "git ls-files --exec x",
        "ls; id x; rm y",
    ] {
        assert!(!covered(&rules, line), "{line:?}");
    }
}

#[test]
fn a_built_in_rule_with_a_closed_form_covers_nothing_else() {
    let rules = builtin_rules();
    for line in [
        "cd src && git status",
        "cd /srv/app && ls -la | head",
        "cd .. ; pwd",
        "[ -f Makefile ] && cat Makefile",
        "sed -n 5p x",
        "sed -n '1,20p' a b",
        "sed -n '10,$p;3p' x",
        "sed -n '/^fn/,/^}/p' x",
        "sed 's/a/b/g' x",
        "cat x | sed -n p",
        "python3 --version",
        "node --version && gcc --version",
        "git -C src status",
        "git -C /srv/app --no-pager log -5 | head",
    ] {
        assert!(covered(&rules, line), "{line:?}");
    }
    for line in [
        "git -C src",
        "git -C src push",
        "git -C -c status",
        "git -C a -C b status",
        "git -C s* status",
        "git -C src -c core.pager=id log",
        "git -C src log --output=x",
        "git --no-pager -C src status",
        "cd",
        "cd -",
        "cd -P x",
        "cd a b",
        "cd s*",
        "cd src && make",
        "[ -f x ] && rm x",
        "sed",
        "sed -n",
        "sed -i 5p x",
        "sed -n -i 5p x",
        "sed -n 5p -i",
        "sed -n 5p --in-place x",
        "sed -ni 5p x",
        "sed -n '5w y' x",
        "sed -n '1,5p;w y' x",
        "sed -n '/a/w y' x",
        "sed -n '/a/ep' x",
        r"sed -n '/a\/p;w y;\/p' x",
        "sed -n '1~2p' x",
        "sed -n '5p\nw y' x",
        "sed -n 's/a/b/w y' x",
        "sed -n 's/a/id/e' x",
        "sed -e 5p x",
        "sed -n 5p x*",
        "python3 --version x",
        "python3 -V -c 1",
        "node --version -e 1",
        "./node --version",
        "make",
    ] {
        assert!(!covered(&rules, line), "{line:?}");
    }
}

#[test]
fn calls_with_an_environment_are_asked_about() {
    let rules = builtin_rules();
    let args = ["status".to_owned()];
    let asked = Asked::Argv {
        file: "git",
        args: &args,
    };
    let with = |environment| {
        covers(
            &rules,
            Candidate {
                command: asked,
                environment,
                input: Input::Absent,
            },
        )
    };
    assert_eq!(with(Environment::Built), Some(vec![0]));
    assert_eq!(with(Environment::GivenByCall), None);
    let odd = ["status; id".to_owned()];
    let asked = Asked::Argv {
        file: "git",
        args: &odd,
    };
    let candidate = Candidate {
        command: asked,
        environment: Environment::Built,
        input: Input::Absent,
    };
    assert_eq!(covers(&[rule("^git status")], candidate), None);
}

#[test]
fn a_rule_for_one_command_does_not_answer_for_what_the_command_reads() {
    let mut rules = builtin_rules();
    rules.push(rule(r"^tee notes\.txt$"));
    for line in [
        "tee notes.txt",
        "tee notes.txt 2>&1 >/dev/null",
        "ls && tee notes.txt",
        "tee notes.txt | wc -l",
    ] {
        assert!(covered(&rules, line), "{line:?}");
    }
    for line in [
        "echo text | tee notes.txt",
        "ls; cat a | sort | tee notes.txt",
        "tee notes.txt <<'END'\ntext\nEND",
        "tee notes.txt <<< text",
    ] {
        assert!(!covered(&rules, line), "{line:?}");
    }
    let args = ["notes.txt".to_owned()];
    let with = |rules: &[WhitelistRule], input| {
        let candidate = Candidate {
            command: Asked::Argv {
                file: "tee",
                args: &args,
            },
            environment: Environment::Built,
            input,
        };
        covers(rules, candidate).is_some()
    };
    assert!(with(&rules, Input::Absent));
    assert!(!with(&rules, Input::Given));
    // Whoever writes a wider pattern meant the program, and one that is off takes all of it away.
    assert!(with(&[rule("^tee")], Input::Given));
    let off = WhitelistRule {
        enabled: false,
        ..rule(r"^tee notes\.txt$")
    };
    assert!(!with(&[rule("^tee"), off], Input::Given));
}

#[test]
fn rules_are_checked_against_their_examples() {
    let covers = ["git status".to_owned()];
    let leaves = ["git push".to_owned()];
    let examples = |pattern| {
        WhitelistRule::new(&RuleText {
            matches: &covers,
            not_matches: &leaves,
            ..text(pattern)
        })
        .map(|rule| rule.explained())
        .map_err(|error| error.to_string())
    };
    assert_eq!(examples("^git status"), Ok("^git status".to_owned()));
    assert_eq!(
        examples("^git diff"),
        Err("`^git diff` does not cover its example `git status`".to_owned())
    );
    assert_eq!(
        examples("^git"),
        Err("`^git` covers `git push`, which it must not".to_owned())
    );
    let broken = WhitelistRule::new(&text("(")).expect_err("no pattern");
    assert!(matches!(broken, WhitelistError::Pattern { .. }), "{broken}");
    let mut disabled = rule("^git status");
    disabled.enabled = false;
    assert!(!covered(std::slice::from_ref(&disabled), "git status"));
    let mut rules = builtin_rules();
    assert!(covered(&rules, "git status"));
    rules.push(disabled);
    assert!(!covered(&rules, "git status"), "turned off for every rule");
    assert!(covered(&rules, "git log"));
    // With options to be careful with, which only a rule that spells them out covers.
    let exact = rule(r"^git diff --output=x$");
    let off = WhitelistRule {
        enabled: false,
        ..rule("^git diff")
    };
    assert!(covered(std::slice::from_ref(&exact), "git diff --output=x"));
    assert!(!covered(&[exact, off], "git diff --output=x"));
    let off = WhitelistRule {
        enabled: false,
        ..rule("^(git d|git diff)")
    };
    assert!(!covered(&[rule("^git"), off], "git diff"));
}

#[test]
fn built_in_rules_explain_themselves() {
    let rules = builtin_rules();
    let find = rules
        .iter()
        .map(WhitelistRule::explained)
        .find(|text| text.starts_with("find"));
    assert_eq!(
        find.as_deref(),
        Some("find without -exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls")
    );
}

#[test]
fn a_task_of_an_agent_may_only_ask_to_be_asked() {
    let on = text("^make test");
    let off = RuleText {
        enabled: false,
        ..text("^ls")
    };
    let rules = builtin_rules();
    let agents = with_task(&rules, &[on.clone(), off.clone()], TaskHand::Tightens).expect("rules");
    assert_eq!(agents.ignored, ["^make test"]);
    assert!(!covered(&agents.rules, "make test"));
    assert!(!covered(&agents.rules, "ls -l"), "it asked to be asked");
    assert!(covered(&agents.rules, "cat x"));
    let operators = with_task(&rules, &[on, off], TaskHand::Sets).expect("rules");
    assert!(operators.ignored.is_empty() && covered(&operators.rules, "make test"));
    assert!(operators.rules.iter().any(|rule| rule.source == Source::Task));
    // What was switched off for all stays so.
    let again = with_task(&agents.rules, &[text("^ls")], TaskHand::Sets).expect("rules");
    assert!(!covered(&again.rules, "ls -l"));
    let bad = RuleText {
        matches: &["make x".to_owned()],
        ..text("^ls")
    };
    let errors = with_task(&rules, &[text("("), bad], TaskHand::Tightens).expect_err("two errors");
    assert_eq!(errors.len(), 2);
}

#[test]
fn an_exact_pattern_matches_its_text_and_nothing_else() {
    for text in [
        "touch made",
        r"printf '%s\n' 'a (b) [c] {d} ^e$ f|g' x.y+z*?",
        "grep -c 'line\none'",
        "rm *.o",
    ] {
        let pattern = super::exactly(text);
        assert!(super::is_exact(&pattern), "{pattern}");
        let regex = regex::Regex::new(&pattern).unwrap();
        assert!(regex.is_match(text), "{pattern}");
        for other in [
            format!("{text} x"),
            format!("x {text}"),
            format!("{text}\n"),
            text.replace('.', "q") + "q",
        ] {
            assert!(!regex.is_match(&other), "{pattern} matches {other:?}");
        }
    }
    assert!(!super::is_exact("^git status"));
    assert!(!super::is_exact("^git .*$"));
}
