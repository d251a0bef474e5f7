//! Variables that lead programs elsewhere, by every way to set one.

use super::*;

#[test]
fn loader_and_interpreter_variables_cannot_be_set() {
    let list = "ls,git,find,env,sudo,declare,readonly,typeset,unset,getopts,mapfile,echo";
    for line in [
        "PATH=. ls",
        "PATH=.",
        "PATH+=:. ls",
        "LANGUAGE=../../../work ls",
        "TEXTDOMAINDIR=. ls",
        "RSYNC_CONNECT_PROG=id ls",
        "FZF_DEFAULT_COMMAND=id ls",
        "VIMINIT=x ls",
        "AWKLIBPATH=. ls",
        "LD_PRELOAD=x ls",
        "export PATH=.",
        "export LD_PRELOAD",
        "export \"PATH=.\"",
        "export 'PA'TH=.",
        "read PATH",
        "read -r x PATH",
        "read -a PATH",
        "read -p x PATH",
        "printf -v PATH .",
        "printf -vPATH .",
        "printf -v a -v PATH %s .",
        "printf -va -vPATH %s .",
        "printf -v a -vPATH %s .",
        "command printf -v a -v b -v PATH %s .",
        "printf -v a -- %n PATH",
        "printf %n PATH",
        "printf 'abc%n' POSIXLY_CORRECT",
        "printf '%s% -5hhn' x IFS",
        "printf -- '%%%n' PATH",
        "printf \"a$x\" PATH",
        "getopts -- a PATH -a",
        "getopts -- -- PATH",
        "for PATH in .; do ls; done",
        ": ${PATH:=.}",
        ": ${PATH=.}",
        ": \"${PATH:=.}\"",
        "env PATH=. ls",
        "sudo PATH=. ls",
        "declare PATH=.",
        "declare -x PATH=.",
        "readonly PATH=.",
        "typeset PATH=.",
        "unset PATH",
        "f() { local PATH=.; ls; }; f",
        "getopts ab PATH",
        "mapfile PATH",
        "mapfile -t PATH",
        "((PATH=1))",
        "ls $((PATH=1))",
        "PATH[0]=. ls",
        "PATH=(.)",
        "P\\\nATH=. ls",
        "git_x=1 GIT_SSH_COMMAND=id git fetch",
        "BASH_ENV=x ls",
        "IFS=x ls",
        "IFS=x; ls",
        "IFS=x; read x",
        "PS4=x ls",
        "PYTHONSTARTUP=x ls",
        "NODE_OPTIONS=x ls",
        "PAGER=id git log",
        "GIT_PAGER=id git log",
        "EDITOR=id git commit",
        "HOME=. git log",
        "SECONDS=1",
        "RANDOM=1; ls $((RANDOM))",
        "((RANDOM++))",
        "((PATH --))",
        "((--PATH))",
        "x=--; ((PATH $x))",
        "GOCACHEPROG=x ls",
        "GOAUTH='command x' ls",
        "ANT_OPTS=x ls",
        "JVM_OPTS=x ls",
        "LEIN_JVM_OPTS=x ls",
        "IBM_JAVA_OPTIONS=x ls",
        "AWS_CONFIG_FILE=x ls",
        "AWS_SHARED_CREDENTIALS_FILE=x ls",
        "KUBECTL_EXTERNAL_DIFF=id ls",
        "CCACHE_PREFIX=id ls",
        "PYTEST_ADDOPTS=x ls",
        "ZDOTDIR=. ls",
        "APT_CONFIG=x ls",
        "GDK_PIXBUF_MODULE_FILE=x ls",
        "GDK_PIXBUF_MODULEDIR=x ls",
        "GDAL_DRIVER_PATH=. ls",
        "HDF5_PLUGIN_PATH=. ls",
        "LADSPA_PATH=. ls",
        "LIBVA_DRIVERS_PATH=. ls",
        "VK_ICD_FILENAMES=x ls",
        "OCL_ICD_FILENAMES=x ls",
        "ALSA_CONFIG_PATH=x ls",
        "XTABLES_LIBDIR=. ls",
        "VALGRIND_LIB=. ls",
        "SPEC_OPTS=-r./x ls",
        "HARNESS_PERL=x ls",
        "PYLINTRC=x ls",
        "GUNICORN_CMD_ARGS=x ls",
        "MPLBACKEND=module://x ls",
        "TS_NODE_COMPILER=./x ls",
        "MONO_ENV_OPTIONS=x ls",
        "VAGRANT_VAGRANTFILE=x ls",
        "shell_escape=t ls",
        "GCCGO=x ls",
        "FC=x ls",
        "P4DIFF=x ls",
        "ZIPOPT=x ls",
        "PRYRC=x ls",
        "POSIXLY_CORRECT=1",
        "PWD=.",
        "PWD=-exec; find \"$PWD\"",
        "OLDPWD='b[$(id)]'; [[ ~- -eq 1 ]]; ls",
        "PWD='b[$(id)]'; [[ ~+ -eq 1 ]]; ls",
        "read -r OLDPWD <<< 'b[$(id)]'; [[ ~- -eq 1 ]]; ls",
        "read -raPWD; find \"$PWD\"",
        "f() { local a; a=(1); OLDPWD='($(id))'; local a=~-; }; f",
        "OLDPWD+=x",
        "printf -vOLDPWD x",
        "for OLDPWD in x; do ls; done",
        "unset OLDPWD",
        "env OLDPWD=x ls",
        "declare DIRSTACK='($(id))'",
        "typeset -x DIRSTACK='($(id))'",
        "DIRSTACK[1]=x; ls ~1",
    ] {
        refused(list, line, "may not be set");
    }
    for line in [
        "read \"$x\"",
        "read $x",
        "printf \"$x\" y",
        "printf $x PATH .",
        "printf -v a -v \"$x\" %s 1",
        "printf -v a \"$x\" PATH",
        "printf -v a -v 'x[$(id)]' %s 1",
        "printf -va -v'x[0]' %s 1",
        "printf a$x",
        "printf a*",
        "printf %n \"$x\"",
        "printf %n $x",
        "printf \"a$x\" \"$y\"",
        "printf -- \"$x\" \"a$y\"",
        "getopts \"$x\" a PATH",
        "getopts -a b PATH",
        "export \"$x\"",
        "export $x",
        "declare \"$x\"",
        "declare -n x=y",
        "declare -i x",
        "set -k",
        "set -o posix",
        "set $x",
        "read 'a[x]'",
        "export 'a[x]=1'",
        "unset 'a[x]'",
        "printf -v 'a[x]' y",
        "test -v x",
        "[ -v x ]",
        "[ $x y ]",
        "[ $x ]",
        "[ \"$x\" \"$y\" ]",
        "mapfile -C id x",
        "wait -p x",
        "export -f f",
        "read -p x$y",
        "read -d x* y",
        "mapfile -d x$y z",
        "getopts $x y",
        "getopts x* y",
        "\\export x=$y",
        "'export' x=$y",
        "\"declare\" x=$y",
        "ex\\\nport x=1; rea\"d\"only x=$y",
    ] {
        refused(list, line, "is refused: ");
    }
    for line in [
        "printf -v a -v b %s 1",
        "printf '%d%%n\\n' 5 PATH",
        "printf '%s\\n' \"$PATH\" $x PATH",
        "printf 'x%n' n",
        "printf \"a$x\" b",
        "printf \"a$x\" 5 \"./$y\" ./*",
        "printf -- \"$x\"",
        "getopts ab: o",
        "getopts -- ab o",
        "getopts \"a$x\" o",
    ] {
        accepted(list, line);
    }
    for line in [
        "ls >&1\\$\\(id\\)",
        "ls >& 'x$(id)'",
        "ls <&$x",
        "ls {PATH}>x",
        "ls {fd}<x",
        "ls {PATH[0]}>x",
        "x='b[$(id)]'; ls {a[x]}<y",
        "coproc ls",
        "ls ${!x}",
        "ls ${x@P}",
        "ls $[1]",
        "[[ -v x ]]",
        "ls \"${x:-'}\"; id; \"'}\"",
        "x='a[$(id)]'; ((x))",
        "((x))",
        "ls $((x))",
        "ls ${a[x]}",
        "ls ${a:x}",
        "[[ $x -eq 1 ]]",
        "read x; ((x++))",
        "((x=$(ls)))",
        "ls \u{1}",
        "ls $((1+`ls`))",
        "b=([ # ]=1)\nls\n)",
        "cat <<$E\nx\n$E",
        "ls $((ls); (ls))",
        "ls ${ id; }",
        "ls ${| id; }",
    ] {
        let message = verdict(list, line).expect_err(line);
        assert!(!message.contains("unreadable: the line holds"), "{line:?}: {message}");
    }
    refused(list, "for ((;;)); do id; done", "");
    refused(list, "select x in $(id); do :; done", "");
    refused(list, "a[$(id)]=1", "`id` is not on the allowlist");
    refused(list, "ls $((1+$(id)))", "`id` is not on the allowlist");
    assert!(is_guarded_variable("LD_LIBRARY_PATH"));
    assert!(is_guarded_variable("SYSTEMD_PAGER"));
    assert!(!is_guarded_variable("LANG"));
    assert!(!is_guarded_variable("x"));
}

#[test]
fn a_plain_name_may_be_unset() {
    for line in [
        "unset FOO; ls",
        "unset -v a b",
        "x=1; unset x; ls \"$x\"",
        "f() { ls; }; f; unset f",
    ] {
        accepted("ls", line);
    }
    for line in [
        "unset -f f",
        "unset -n x",
        "unset 'a[$(id)]'",
        "unset a[0]",
        "unset \"$x\"",
        "unset $x",
    ] {
        refused("ls", line, "`unset` is refused");
    }
    for line in ["unset PATH", "unset IFS x", "unset -v RANDOM"] {
        refused("ls", line, "may not be set");
    }
    refused("ls", "x=1; unset x; ((x))", "may be no number");
    refused("ls,find", "d=src; unset d; find \"$d\"", "is computed");
    refused("ls", "unset LC_ALL; ls é", "beyond ASCII");
}

#[test]
fn variables_that_lead_to_no_code_may_be_set() {
    let list = "ls,git,env";
    for line in [
        "NODE_ENV=test ls",
        "CARGO_TERM_COLOR=never ls",
        "DOCKER_BUILDKIT=1 ls",
        "PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 ls",
        "GIT_AUTHOR_NAME='A B' GIT_AUTHOR_EMAIL=a@b GIT_AUTHOR_DATE=\"$x\" git commit",
        "export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_COMMITTER_DATE=now",
        "GIT_TERMINAL_PROMPT=0 git fetch",
        "PAGER=cat GIT_PAGER='cat' git log",
        "GIT_EDITOR=true git rebase --continue",
        "env GIT_PAGER=cat git log",
    ] {
        accepted(list, line);
    }
    for line in [
        "GIT_PAGER=cats git log",
        "GIT_PAGER='cat x' git log",
        "GIT_PAGER=$x git log",
        "GIT_PAGER=ca$x git log",
        "GIT_PAGER=cat; GIT_PAGER+=s; git log",
        "GIT_PAGER[0]=cat git log",
        "GIT_PAGER=(cat) git log",
        "GIT_PAGER=cat; read GIT_PAGER; git log",
        "for GIT_PAGER in cat; do git log; done",
        "GIT_EDITOR=cat git commit",
        "GIT_SEQUENCE_EDITOR=true git rebase",
        "EDITOR=true git commit",
        "LESS_PAGER=cat git log",
        "env GIT_PAGER=id git log",
        "GIT_AUTHOR=x git log",
        "NODE_ENVX=1 ls",
    ] {
        refused(list, line, "may not be set");
    }
}

#[test]
fn the_locale_does_not_change_where_text_beyond_ascii_is_read() {
    let list = "ls,declare,env";
    for line in [
        "LC_ALL=ja_JP.SJIS\nls Á\\;id",
        "LANG=zh_TW\nls 中",
        "export LC_CTYPE=zh_CN.GB18030; ls 中",
        "export 'LC_ALL=zh_CN.GB18030'; ls 中",
        "declare -x LC_ALL=\"$x\"; ls 中",
        "read LC_ALL <<< zh_TW\nls 中",
        "printf -vLC_ALL zh_TW\nls 中",
        "command read -raLC_ALL <<< zh_TW\nls 中",
        "for LC_ALL in zh_TW; do\nls 中\ndone",
        ": ${LC_ALL:=zh_TW}; ls 中",
        "LC_ALL=C; LC_ALL+=x; ls 中",
        "LC_ALL=en_US.utf8x; ls é",
    ] {
        refused(list, line, "beyond ASCII");
    }
    for line in [
        "LC_ALL=ja_JP.SJIS\nls a\\;id",
        "LC_ALL=C ls é",
        "LC_ALL='C.UTF-8'; ls é",
        "export LANG=de_DE.utf8@euro; ls é",
        "LC_ALL=de_DE.ISO8859-15 ls é",
        "env LC_ALL=zh_TW ls 中",
        "x=LANG; ls é",
    ] {
        accepted(list, line);
    }
    let given = |line: &str, locale: &str| {
        let list = Allowlist::from_comma_list(list).expect("a list");
        let line = read(line, Limits::STANDARD).expect("a line");
        check_given(&line, &list, &[("LANG".to_owned(), locale.to_owned())]).is_ok()
    };
    assert!(!given("x=1; ls Á\\;id", "ja_JP.SJIS"));
    assert!(given("x=1; ls Á\\;id", "ja_JP.UTF-8"));
    assert!(given("x=1; ls a\\;id", "ja_JP.SJIS"));
    // Without a shell there is nobody to read it again.
    assert!(given("ls Á\\;id", "ja_JP.SJIS"));
}
