//! The launchers and the options that are understood.

/// How a launcher differs from "options, operands, command".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy::allowlist) enum Manner {
    Plain,
    /// `NAME=VALUE` words may stand before the command.
    SetsVariables,
    /// Runs `echo` without a command, and adds words from its input to any command.
    RunsEchoWithout,
    /// Runs a shell without a command.
    RunsShellWithout,
}

pub(in crate::policy::allowlist) struct Launcher {
    pub(super) name: &'static str,
    /// Letters without a value.
    pub(super) flags: &'static str,
    /// Letters with a value, attached or as the next word.
    pub(super) values: &'static str,
    pub(super) long_flags: &'static [&'static str],
    pub(super) long_values: &'static [&'static str],
    /// Words between the options and the command.
    pub(super) operands: usize,
    pub(super) manner: Manner,
}

/// Launchers whose command is text for a shell, or is found in another place than ours.
#[rustfmt::skip]
pub(super) const REFUSED_LAUNCHERS: [&str; 44] = [
    "su", "runuser", "chroot", "nsenter", "parallel", "script", "watch", "systemd-run", "at",
    "batch", "crontab", "bwrap", "firejail", "busybox", "toybox", "coreutils", "setpriv",
    "pkexec", "machinectl", "start-stop-daemon", "capsh", "proot", "fakeroot",
    "dbus-run-session", "expect", "unbuffer", "gdb", "ltrace", "prlimit", "setarch", "linux32",
    "linux64", "choom", "numactl", "cgexec", "chpst", "xvfb-run", "torsocks", "proxychains",
    "proxychains4", "rlwrap", "dtach", "screen", "tmux",
];

/// Files that hold many programs under many names.
pub(super) const MANY_IN_ONE: [&str; 3] = ["busybox", "toybox", "coreutils"];

const PLAIN: Launcher = Launcher {
    name: "",
    flags: "",
    values: "",
    long_flags: &[],
    long_values: &[],
    operands: 0,
    manner: Manner::Plain,
};

pub(super) const LAUNCHERS: [Launcher; 16] = [
    Launcher {
        name: "env",
        flags: "i0v",
        values: "uC",
        long_flags: &["ignore-environment", "null", "debug"],
        long_values: &["unset", "chdir"],
        manner: Manner::SetsVariables,
        ..PLAIN
    },
    Launcher {
        name: "xargs",
        flags: "0rtxo",
        values: "nLPsIdEa",
        long_flags: &["null", "no-run-if-empty", "verbose", "exit", "open-tty"],
        long_values: &["max-args", "max-procs", "max-chars", "delimiter", "arg-file"],
        manner: Manner::RunsEchoWithout,
        ..PLAIN
    },
    Launcher {
        name: "timeout",
        flags: "v",
        values: "ks",
        long_flags: &["foreground", "preserve-status", "verbose"],
        long_values: &["kill-after", "signal"],
        operands: 1,
        ..PLAIN
    },
    Launcher {
        name: "nice",
        values: "n",
        long_values: &["adjustment"],
        ..PLAIN
    },
    Launcher { name: "nohup", ..PLAIN },
    Launcher {
        name: "setsid",
        flags: "cfw",
        long_flags: &["ctty", "fork", "wait"],
        ..PLAIN
    },
    Launcher {
        name: "stdbuf",
        values: "ioe",
        long_values: &["input", "output", "error"],
        ..PLAIN
    },
    Launcher {
        name: "ionice",
        flags: "t",
        values: "cn",
        long_flags: &["ignore"],
        long_values: &["class", "classdata"],
        ..PLAIN
    },
    Launcher {
        name: "chrt",
        flags: "bfior",
        long_flags: &["batch", "fifo", "idle", "other", "rr"],
        operands: 1,
        ..PLAIN
    },
    Launcher {
        name: "taskset",
        flags: "c",
        long_flags: &["cpu-list"],
        operands: 1,
        ..PLAIN
    },
    Launcher {
        name: "time",
        flags: "pvaq",
        values: "of",
        long_flags: &["portability", "verbose", "append", "quiet"],
        long_values: &["output", "format"],
        ..PLAIN
    },
    Launcher {
        name: "sudo",
        flags: "nHkE",
        values: "ugpC",
        long_flags: &["non-interactive", "set-home", "preserve-env"],
        long_values: &["user", "group"],
        manner: Manner::SetsVariables,
        ..PLAIN
    },
    Launcher {
        name: "doas",
        flags: "n",
        values: "u",
        manner: Manner::RunsShellWithout,
        ..PLAIN
    },
    Launcher {
        name: "unshare",
        flags: "muinpUCTfr",
        long_flags: &["fork", "map-root-user"],
        manner: Manner::RunsShellWithout,
        ..PLAIN
    },
    Launcher {
        name: "strace",
        flags: "fqvtTycirxzZkC",
        values: "esoaX",
        long_flags: &["follow-forks", "summary-only", "summary"],
        ..PLAIN
    },
    Launcher {
        name: "flock",
        flags: "sxeunoF",
        values: "wE",
        long_flags: &["shared", "exclusive", "unlock", "nonblock", "close", "no-fork"],
        long_values: &["timeout", "conflict-exit-code"],
        operands: 1,
        ..PLAIN
    },
];
