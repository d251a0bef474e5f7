//! Variables that decide which code runs: loaders, interpreters, pagers, editors, search paths.

/// Guarded names. A `*` at the end or at the start stands for any text.
///
/// `TMPDIR` is missing on purpose: it moves files, and where files may be written the kernel says.
/// `LANGUAGE` is here because the C library opens `/usr/share/locale/$LANGUAGE/…`, dots and all, and prints by the
/// formats that it finds there. The last rows are shell variables that bash treats in a special way when they are set;
/// what the last three hold stands wherever a tilde does.
#[rustfmt::skip]
pub const GUARDED_VARIABLES: [&str; 251] = [
    "LD_*", "DYLD_*", "LIBPATH", "SHLIB_PATH", "GCONV_PATH", "LOCPATH", "NLSPATH", "MALLOC_*",
    "LANGUAGE", "TEXTDOMAIN*", "GLIBC_TUNABLES", "GETCONF_DIR", "HOSTALIASES", "RES_OPTIONS",
    "LOCALDOMAIN", "TERMINFO*", "TERMCAP", "OPENSSL_*", "PATH", "CDPATH", "HOME", "XDG_*", "SHELL",
    "ENV", "EXECIGNORE", "GIT_*", "GNUPGHOME", "SSH_*", "*_SSH", "*_RSH", "*_ASKPASS", "SUDO_*",
    "DOAS_*", "*PAGER", "*EDITOR", "VISUAL", "BROWSER", "LESS*", "MAN*", "FCEDIT", "INPUTRC", "PYTHON*",
    "PIP_*", "PIPX_*", "POETRY_*", "PYENV_*", "PYTEST_*", "COVERAGE_PROCESS_START", "COVERAGE_RCFILE",
    "JUPYTER_*", "IPYTHONDIR", "UV_*", "VIRTUAL_ENV", "CONDA_*", "NODE_*", "NPM_*", "npm_*", "YARN_*",
    "PNPM_*", "BUN_*", "NVM_*", "VOLTA_*", "COREPACK_*", "ASDF_*", "MISE_*", "DENO_*", "ELECTRON_*",
    "PERL*", "RUBY*", "GEM_*", "RBENV_*", "IRBRC", "BUNDLE_*", "LUA_*", "TCLLIBPATH", "PHP*",
    "COMPOSER*", "R_*", "JAVA*", "*_JAVA_OPTIONS", "JDK_*", "CLASSPATH", "MAVEN_*", "GRADLE_*", "SBT_*",
    "ANT_*", "*JVM_OPTS", "JRUBY*", "GROOVY*", "KOTLIN*", "DOTNET_*", "COREHOST_*", "GOPATH", "GOROOT",
    "GOFLAGS", "GOENV", "GOTOOL*", "GOPROXY", "GOCACHEPROG", "GOAUTH", "GOVCS", "CGO_*", "RUSTC*",
    "RUSTFLAGS", "RUSTDOC*", "RUSTUP_*", "CARGO_*", "*_WRAPPER", "CC", "CC_*", "CXX", "CXX_*",
    "HOST_CC", "HOST_CXX", "TARGET_CC", "TARGET_CXX", "CCACHE_*", "SCCACHE_*", "DISTCC_*",
    "LIBCLANG_PATH", "CLANG_PATH", "LLVM_CONFIG*", "PROTOC", "CPP", "LD", "AR", "AS", "CFLAGS",
    "CXXFLAGS", "LDFLAGS", "CPATH", "*_INCLUDE_PATH", "GCC_*", "COMPILER_PATH", "LIBRARY_PATH",
    "PKG_CONFIG*", "CMAKE_*", "MAKEFLAGS", "MAKEFILES", "MAKEOVERRIDES", "MFLAGS", "GNUMAKEFLAGS",
    "TAR_OPTIONS", "RSYNC_*", "FZF_*", "AWKPATH", "AWKLIBPATH", "VIM*", "EXINIT", "EMACS*", "PSQL*",
    "HG*", "JJ_*", "ERL_*", "ELIXIR_*", "MIX_HOME", "MIX_ARCHIVES", "HEX_HOME", "REBAR_*", "JULIA_*",
    "GHC_*", "GUILE_*", "OCAML*", "OPAM*", "CABAL_*", "SWIFT_EXEC", "NIX_*", "BAZEL*", "GTK_*", "QT_*",
    "KRB5*", "RIPGREP_CONFIG_PATH", "CURL_HOME", "WGETRC", "KUBECONFIG", "KUBECTL_*", "HELM_*",
    "DOCKER_*", "CONTAINERS_*", "REGISTRY_AUTH_FILE", "ANSIBLE_*", "TF_CLI_*", "TF_PLUGIN_*",
    "TERRAFORM_CONFIG", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "CLOUDSDK_*",
    "AZURE_CONFIG_DIR", "AZURE_EXTENSION_*", "GOOGLE_EXTERNAL_ACCOUNT_*", "GH_CONFIG_DIR", "GH_PATH",
    "GLAB_CONFIG_DIR", "BAT_CONFIG_*", "ACKRC", "MAGICK_*", "GST_PLUGIN_*", "GST_REGISTRY*", "GIO_*",
    "ODBC*", "LIBMYSQL_*", "SASL_PATH", "ZDOTDIR", "FPATH",
    "APT_CONFIG", "GDK_PIXBUF_MODULE*", "GDAL_DRIVER_PATH", "HDF5_PLUGIN_PATH", "LADSPA_PATH",
    "LIBVA_DRIVERS_PATH", "VK_*", "OCL_ICD_*", "ALSA_CONFIG_*", "XTABLES_LIBDIR", "VALGRIND_*",
    "SPEC_OPTS", "HARNESS_*", "PYLINTRC", "GUNICORN_CMD_ARGS", "MPLBACKEND", "TS_NODE_*", "MONO_*",
    "VAGRANT_*", "shell_escape", "GCCGO", "FC", "P4*", "ZIPOPT", "PRYRC",
    "BASH*", "SHELLOPTS", "POSIXLY_CORRECT", "PS0", "PS1", "PS2", "PS4", "PROMPT_*", "IFS",
    "GLOBIGNORE", "HIST*", "COMP_*", "SECONDS", "RANDOM", "SRANDOM", "LINENO", "OPTIND", "UID", "EUID",
    "PWD", "OLDPWD", "DIRSTACK",
];

/// Names that are guarded by a pattern only, and that say nothing about which code runs.
#[rustfmt::skip]
const HARMLESS: [&str; 12] = [
    "NODE_ENV", "CARGO_TERM_COLOR", "DOCKER_BUILDKIT", "PIP_NO_CACHE_DIR", "PIP_DISABLE_PIP_VERSION_CHECK",
    "GIT_TERMINAL_PROMPT", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE", "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE",
];

/// The one value of a guarded variable that leads nowhere: a program that everybody has, and that shows or does nothing
/// of its own.
const HARMLESS_VALUES: [(&str, &str); 3] = [("PAGER", "cat"), ("GIT_PAGER", "cat"), ("GIT_EDITOR", "true")];

/// Whether a line, a launcher or the `env` of a call may not give this variable this value. Nothing stands for a value
/// that is not known.
pub fn is_guarded_value(name: &str, value: Option<&str>) -> bool {
    let is_harmless = value.is_some_and(|value| HARMLESS_VALUES.contains(&(name, value)));
    is_guarded_variable(name) && !is_harmless
}

/// Whether a line, a launcher or the `env` of a call may not set this variable to any value.
pub fn is_guarded_variable(name: &str) -> bool {
    !HARMLESS.contains(&name)
        && GUARDED_VARIABLES
            .iter()
            .any(|pattern| match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
                (Some(start), _) => name.starts_with(start),
                (None, Some(end)) => name.ends_with(end),
                (None, None) => name == *pattern,
            })
}
