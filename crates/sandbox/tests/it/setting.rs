//! Under which circumstances a test runs.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Who the server is and what it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Root that runs commands as another user, in namespaces.
    Root,
    /// The same without namespaces.
    RootPlain,
    /// An ordinary user, in user namespaces.
    User,
    /// An ordinary user on a machine without them.
    UserPlain,
}

/// The ordinary user of these tests; it needs no entry anywhere.
pub(crate) const USER: u32 = 1234;
const VARIABLE: &str = "COUNTERSIGN_TEST_SETTING";

impl Setting {
    pub(crate) fn namespaces(self) -> bool {
        matches!(self, Setting::Root | Setting::User)
    }

    pub(crate) fn is_root(self) -> bool {
        matches!(self, Setting::Root | Setting::RootPlain)
    }
}

fn watch() {
    std::thread::spawn(|| {
        std::thread::sleep(std::time::Duration::from_secs(180));
        eprintln!("the test hangs");
        std::process::abort();
    });
}

/// Whether these tests run as root.
pub(crate) fn am_root() -> bool {
    own_uid() == 0
}

pub(crate) fn own_uid() -> u32 {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap())
}

/// Runs a test in these settings. `name` is the test's full name: for an ordinary user this binary runs
/// itself again as one.
/// A survivor that holds a stream would hang its test for ever; this ends it, and with it the survivor.
pub(crate) fn in_settings(name: &str, settings: &[Setting], body: fn(Setting)) {
    watch();
    let am_root = am_root();
    if let Ok(word) = std::env::var(VARIABLE) {
        return match word.as_str() {
            "user" => body(Setting::User),
            _ => body(Setting::UserPlain),
        };
    }
    for setting in settings {
        match (setting.is_root(), am_root) {
            (true, true) | (false, false) => body(*setting),
            (true, false) => skip(name, "not running as root"),
            (false, true) => again_as_user(name, *setting),
        }
    }
}

pub(crate) const ALL: &[Setting] = &[Setting::Root, Setting::RootPlain, Setting::User, Setting::UserPlain];
pub(crate) const WITH_NAMESPACES: &[Setting] = &[Setting::Root, Setting::User];

fn again_as_user(name: &str, setting: Setting) {
    let word = if setting == Setting::User { "user" } else { "user-plain" };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(VARIABLE, word)
        .env("HOME", "/tmp")
        .uid(USER)
        .gid(USER)
        .current_dir("/tmp")
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "as {setting:?}:\n{text}");
    assert!(
        text.contains("1 passed"),
        "`{name}` is not the name of this test:\n{text}"
    );
}

/// Says that something was not tested; a failure where everything is required.
pub(crate) fn skip(what: &str, why: &str) {
    eprintln!("\n*** SKIPPED: {what}: {why} ***\n");
    assert!(
        std::env::var("COUNTERSIGN_REQUIRE_LAYERS").as_deref() != Ok("all"),
        "{what}: {why}"
    );
}
