//! Whose turn it is. Pure: what waits and what runs goes in, the next job comes out.
//!
//! Callers take turns: whoever has the fewest jobs running is next, and among equals the one behind whoever
//! was served last. So one caller's hundred jobs do not keep another's one waiting.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::CredentialId;

/// The place in `waiting`, where each owner's are oldest first, of the job whose turn it is.
pub fn next(
    waiting: &[CredentialId],
    running: &BTreeMap<CredentialId, usize>,
    served_last: Option<&CredentialId>,
) -> Option<usize> {
    let owners: BTreeSet<&CredentialId> = waiting.iter().collect();
    let busy = |owner: &CredentialId| running.get(owner).copied().unwrap_or(0);
    // In a circle that begins behind whoever was served last.
    let has_passed = |owner: &CredentialId| served_last.is_some_and(|last| owner <= last);
    let owner = owners
        .into_iter()
        .min_by_key(|owner| (busy(owner), has_passed(owner), (*owner).clone()))?;
    waiting.iter().position(|waits| waits == owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(name: &str) -> CredentialId {
        CredentialId::trusted(name)
    }

    /// Lets everything run, `places` at a time, oldest ending first; gives the order of beginning.
    fn order(waiting: &[&str], places: usize) -> Vec<String> {
        let mut waiting: Vec<_> = waiting.iter().map(|name| id(name)).collect();
        let mut running: Vec<CredentialId> = Vec::new();
        let (mut begun, mut last) = (Vec::new(), None);
        loop {
            while running.len() < places {
                let mut counts = BTreeMap::new();
                running
                    .iter()
                    .for_each(|owner| *counts.entry(owner.clone()).or_insert(0) += 1);
                let Some(place) = next(&waiting, &counts, last.as_ref()) else {
                    break;
                };
                let owner = waiting.remove(place);
                begun.push(owner.to_string());
                last = Some(owner.clone());
                running.push(owner);
            }
            if running.is_empty() {
                return begun;
            }
            running.remove(0);
        }
    }

    #[test]
    fn callers_take_turns_and_each_ones_jobs_run_in_order() {
        assert_eq!(order(&["a", "a", "a", "b", "c"], 1), ["a", "b", "c", "a", "a"]);
        assert_eq!(order(&["a", "a", "a", "b", "b"], 2), ["a", "b", "a", "b", "a"]);
        assert_eq!(order(&[], 3), Vec::<String>::new());
    }

    proptest! {
        /// A caller with one job waits for no more than one job of each other caller.
        #[test]
        fn nobody_waits_behind_a_crowd(others in proptest::collection::vec(0..4_u8, 0..40)) {
            let mut waiting: Vec<String> = others.iter().map(|n| format!("o{n}")).collect();
            waiting.push("me".to_owned());
            let names: Vec<&str> = waiting.iter().map(String::as_str).collect();
            let begun = order(&names, 1);
            let mine = begun.iter().position(|owner| owner == "me").unwrap();
            let crowd: BTreeSet<_> = others.iter().collect();
            prop_assert!(mine <= crowd.len());
            prop_assert_eq!(begun.len(), waiting.len());
        }
    }
}
