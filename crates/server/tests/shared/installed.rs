//! What `tests/interop/setup` installs. A test that misses it says so and passes; in continuous
//! integration, and with COUNTERSIGN_REQUIRE_INTEROP=1, it fails.

use std::path::{Path, PathBuf};

/// Something below the folder of installed things, if it is there.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = home().join(name);
    // The stamp is written last: without it an installation was cut short.
    if home().join("stamp").exists() && path.exists() {
        return Some(path);
    }
    assert!(
        !is_required(),
        "{} is not there; run tests/interop/setup",
        path.display()
    );
    eprintln!("skipped: {} is not there; run tests/interop/setup", path.display());
    None
}

fn home() -> PathBuf {
    match std::env::var_os("COUNTERSIGN_INTEROP") {
        Some(home) => home.into(),
        None => root().join(".cache/interop"),
    }
}

/// The repository.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.join("../..").canonicalize().expect("the workspace")
}

fn is_required() -> bool {
    let is = |name: &str, value: &str| std::env::var_os(name).is_some_and(|found| found == value);
    is("CI", "true") || is("COUNTERSIGN_REQUIRE_INTEROP", "1")
}
