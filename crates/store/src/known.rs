//! The end of the chain as this process saw it last. What is found later must go on from there: an older copy does not, nor does
//! what others wrote behind one.

use std::sync::{Mutex, PoisonError};

use countersign_gateway::audit::chain::Hash;

#[derive(Default)]
pub(crate) struct KnownEnd(Mutex<Option<(u64, Hash)>>);

/// How a head stands to the one that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// It goes on from there.
    Continued,
    /// It does where the row at this place has this hash.
    If(u64, Hash),
    SetBack,
}

impl KnownEnd {
    pub(crate) fn find(&self, head: u64, hash: Hash) -> Found {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Found::Continued,
            Some(known) if known == (head, hash) => Found::Continued,
            Some((seq, known)) if seq < head => Found::If(seq, known),
            Some(_) => Found::SetBack,
        }
    }

    /// Several connections write, and the later one may tell first.
    pub(crate) fn is_now(&self, head: u64, hash: Hash) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none_or(|(seq, _)| seq <= head) {
            *known = Some((head, hash));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_goes_on_from_the_one_before_it() {
        let hash = |byte| Hash::from_bytes([byte; 32]);
        let known = KnownEnd::default();
        assert_eq!(known.find(3, hash(1)), Found::Continued);
        known.is_now(3, hash(1));
        assert_eq!(known.find(3, hash(1)), Found::Continued);
        assert_eq!(known.find(4, hash(2)), Found::If(3, hash(1)));
        assert_eq!(known.find(3, hash(2)), Found::SetBack);
        assert_eq!(known.find(2, hash(1)), Found::SetBack);
    }
}
