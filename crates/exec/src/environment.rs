//! The environment of a command, built from nothing: a fixed PATH, private HOME and TMPDIR, what
//! policy passes on, and settings that keep git from stumbling over the change of user.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use countersign_gateway::policy::plan::Plan;

/// Settings every git gets: the workspace may belong to another user than the command runs as.
const GIT_ALWAYS: [(&str, &str); 1] = [("safe.directory", "*")];

/// Settings of a git that runs unasked: nothing the workspace configured starts a program. Converters and programs for
/// differences cannot be turned off this way. The list of programs holds them: git may start itself and its loader, which
/// can map nothing from the workspace.
const GIT_NEUTRAL: [(&str, &str); 7] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("log.showSignature", "false"),
    ("protocol.ext.allow", "never"),
    // A directory that merely looks like a repository is no configuration: a clone can bring one along.
    ("safe.bareRepository", "explicit"),
    ("submodule.recurse", "false"),
];

/// `NAME=value` for everything the command sees.
pub(crate) fn build(plan: &Plan, home: &Path, tmp: &Path) -> Vec<CString> {
    let search: Vec<_> = plan.search_path.iter().map(|dir| dir.as_os_str().as_bytes()).collect();
    let mut env = Variables(Vec::with_capacity(16));
    env.put("PATH", &search.join(&b':'));
    env.put("HOME", home.as_os_str().as_bytes());
    env.put("TMPDIR", tmp.as_os_str().as_bytes());
    env.put("PWD", plan.place.cwd.path.as_os_str().as_bytes());
    let neutral: &[_] = if plan.neutral_git { &GIT_NEUTRAL } else { &[] };
    let settings = GIT_ALWAYS.iter().chain(neutral);
    let count = GIT_ALWAYS.len() + neutral.len();
    env.put("GIT_CONFIG_COUNT", count.to_string().as_bytes());
    for (index, (key, value)) in settings.enumerate() {
        env.put(&format!("GIT_CONFIG_KEY_{index}"), key.as_bytes());
        env.put(&format!("GIT_CONFIG_VALUE_{index}"), value.as_bytes());
    }
    if plan.neutral_git {
        env.put("GIT_OPTIONAL_LOCKS", b"0");
        // The home lasts from call to call, and an earlier command may have written to it.
        env.put("GIT_CONFIG_GLOBAL", b"/dev/null");
        env.put("GIT_PAGER", b"cat");
    }
    env.put("GIT_TERMINAL_PROMPT", b"0");
    for (name, value) in &plan.env {
        env.put(name, value.as_bytes());
    }
    env.0
}

struct Variables(Vec<CString>);

impl Variables {
    /// Names and values hold no NUL: they were checked when the call was read.
    fn put(&mut self, name: &str, value: &[u8]) {
        let entry = [name.as_bytes(), b"=", value].concat();
        self.0.extend(CString::new(entry).ok());
    }
}
