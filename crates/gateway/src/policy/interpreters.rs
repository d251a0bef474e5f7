//! Programs whose name says little about what they do: shells and interpreters run whatever text they
//! are given, builders whatever the workspace says.

/// Shells and interpreters by the name without a version.
const INTERPRETERS: &[&str] = &[
    "sh", "ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "mksh", "nu", "pwsh", "rbash", "tcsh", "xonsh",
    "yash", "zsh", "awk", "bun", "deno", "ed", "elixir", "emacs", "erl", "ex", "expect", "gawk", "gdb", "groovy",
    "guile", "iex", "irb", "jjs", "jshell", "julia", "lua", "luajit", "m4", "mawk", "nawk", "node", "nodejs", "ocaml",
    "octave", "perl", "php", "pypy", "python", "racket", "ruby", "Rscript", "scala", "swipl", "tclsh", "ts-node", "vi",
    "vim", "wish",
];

/// Programs that do what files of the workspace tell them, mostly by starting others.
const BUILDERS: &[&str] = &[
    "ansible-playbook",
    "ant",
    "bazel",
    "bundle",
    "cabal",
    "cargo",
    "cmake",
    "composer",
    "ctest",
    "docker",
    "dotnet",
    "gmake",
    "go",
    "gradle",
    "gradlew",
    "just",
    "make",
    "meson",
    "mix",
    "mvn",
    "ninja",
    "nox",
    "npm",
    "npx",
    "pip",
    "pipx",
    "pnpm",
    "podman",
    "poetry",
    "pre-commit",
    "pytest",
    "rake",
    "sbt",
    "stack",
    "swift",
    "terraform",
    "tox",
    "uv",
    "uvx",
    "yarn",
];

/// Whether a program, by name or path, runs any text it is given.
pub fn is_interpreter(program: &str) -> bool {
    is_among(INTERPRETERS, program)
}

/// Whether what a program does stands in files rather than in its arguments.
pub fn follows_files(program: &str) -> bool {
    is_interpreter(program) || is_among(BUILDERS, program)
}

fn is_among(names: &[&str], program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    let unversioned = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    names.contains(&name) || names.contains(&unversioned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_and_interpreters_are_known_by_name_path_and_version() {
        for program in ["bash", "/usr/bin/python3.12", "perl5.36", "lua5.4", "m4"] {
            assert!(is_interpreter(program), "{program}");
        }
        for program in ["git", "ls", "sha256sum", "nodemon", "make"] {
            assert!(!is_interpreter(program), "{program}");
        }
        for program in ["make", "/opt/cargo", "pip3", "bash"] {
            assert!(follows_files(program), "{program}");
        }
        assert!(!follows_files("cp"));
    }
}
