//! Which of the hidden places are there. There are dozens, and nearly none is, so each call does not look at all of them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use countersign_sandbox::directory;

/// How old a look may be. What it is for is what commands cannot read anyway.
const LOOK_AGE_MAX: Duration = Duration::from_secs(1);

/// The last look.
#[derive(Debug, Default)]
pub(crate) struct Existing {
    last: Mutex<Option<Look>>,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    among: Arc<[PathBuf]>,
    found: Arc<[PathBuf]>,
}

impl Existing {
    pub(crate) fn of(&self, places: &Arc<[PathBuf]>) -> Arc<[PathBuf]> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(look) = &*last
            && look.at.elapsed() < LOOK_AGE_MAX
            && (Arc::ptr_eq(&look.among, places) || look.among == *places)
        {
            return look.found.clone();
        }
        // One that a link leads to has another name among them, and is covered by that.
        let is_there = |place: &&PathBuf| directory::is_unlinked(place);
        let found: Arc<[PathBuf]> = places.iter().filter(is_there).cloned().collect();
        *last = Some(Look {
            at: Instant::now(),
            among: places.clone(),
            found: found.clone(),
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found_and_other_places_are_looked_at_anew() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (made, link, missing) = (base.join("made"), base.join("link"), base.join("missing"));
        std::fs::write(&made, "").unwrap();
        std::os::unix::fs::symlink(&made, &link).unwrap();
        let existing = Existing::default();
        let places: Arc<[PathBuf]> = [made.clone(), link, missing.clone()].into();
        assert_eq!(*existing.of(&places), [made]);
        let others: Arc<[PathBuf]> = [missing].into();
        assert!(existing.of(&others).is_empty());
    }
}
