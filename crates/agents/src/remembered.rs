//! What an agent said of acts that are not over yet, by their ids, within a bound: it may begin as many as it likes, and say
//! as much of each.

use std::collections::BTreeMap;

use crate::limits;

#[derive(Debug)]
pub(crate) struct Remembered<T> {
    kept: BTreeMap<String, (T, usize)>,
    // INVARIANT: the sum of what is kept, at most `REMEMBERED_BYTES_MAX`.
    bytes: usize,
}

impl<T> Remembered<T> {
    pub(crate) fn new() -> Self {
        Self {
            kept: BTreeMap::new(),
            bytes: 0,
        }
    }

    pub(crate) fn get(&self, id: &str) -> Option<&T> {
        self.kept.get(id).map(|(value, _)| value)
    }

    /// Keeps what is known of an act in the place of what was; what does not fit is forgotten, and is as if it had not
    /// been said. `bytes` is how much there is of it.
    pub(crate) fn keep(&mut self, id: &str, value: T, bytes: usize) {
        self.take(id);
        let bytes = bytes
            .saturating_add(id.len())
            .saturating_add(limits::REMEMBERED_BYTES_EACH);
        if self.bytes.saturating_add(bytes) <= limits::REMEMBERED_BYTES_MAX {
            self.kept.insert(id.to_owned(), (value, bytes));
            self.bytes += bytes;
        }
    }

    pub(crate) fn take(&mut self, id: &str) -> Option<T> {
        let (value, bytes) = self.kept.remove(id)?;
        self.bytes -= bytes;
        Some(value)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_kept_as_fits_and_what_is_over_makes_room() {
        let mut kept = Remembered::new();
        let most = limits::REMEMBERED_BYTES_MAX - limits::REMEMBERED_BYTES_EACH - 1;
        kept.keep("a", 1, most);
        kept.keep("b", 2, 0);
        assert_eq!((kept.get("a"), kept.get("b")), (Some(&1), None));
        kept.keep("a", 3, 0);
        kept.keep("b", 2, 0);
        assert_eq!(
            (kept.take("a"), kept.take("a"), kept.get("b")),
            (Some(3), None, Some(&2))
        );
        for number in 0.. {
            let id = number.to_string();
            kept.keep(&id, number, 0);
            if kept.get(&id).is_none() {
                break;
            }
        }
        kept.clear();
        kept.keep("a", 1, most);
        assert_eq!(kept.get("a"), Some(&1));
    }
}
