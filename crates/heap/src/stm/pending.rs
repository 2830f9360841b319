//! Changes that a transaction will make besides the words that it writes.

/// Pointers to an object that a transaction adds or, if negative, removes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PointerDelta {
    pub strong: i64,
    pub weak: i64,
}

impl PointerDelta {
    pub(crate) fn is_any(self) -> bool {
        self.strong != 0 || self.weak != 0
    }
}

/// An object that the transaction allocated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreshObject {
    pub type_number: u16,
    pub is_array: bool,
    /// Pointers to it.
    pub pointers: PointerDelta,
}

/// Records that the commit is going to own. There may be some duplicates, but not many.
#[derive(Debug, Default)]
pub(crate) struct WantedRecords(Vec<u32>);

/// The list grows to this length before duplicates are removed.
const WANTED_MIN: usize = 1024;

impl WantedRecords {
    #[inline(always)]
    pub(super) fn add(&mut self, index: u32) {
        if self.0.last() != Some(&index) {
            if self.0.len() == self.0.capacity() {
                self.make_room();
            }
            self.0.push(index);
        }
    }

    /// Removes duplicates, so that the list stays below about twice the number of records, however often they
    /// are written.
    #[cold]
    fn make_room(&mut self) {
        if self.0.len() >= WANTED_MIN {
            self.0.sort_unstable();
            self.0.dedup();
        }
        self.0.reserve(self.0.len().max(16));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    pub(super) fn at(&self, at: usize) -> u32 {
        self.0[at]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_are_written_by_turns_do_not_pile_up() {
        let mut wanted = WantedRecords::default();
        (0..1_000_000).for_each(|i| wanted.add(i % 3000));
        assert!(wanted.0.capacity() <= 4 * 3000, "{}", wanted.0.capacity());
        assert_eq!(wanted.0.iter().collect::<std::collections::BTreeSet<_>>().len(), 3000);
        wanted.clear();
        wanted.add(5);
        wanted.add(5);
        assert_eq!(wanted.0, [5]);
    }
}
