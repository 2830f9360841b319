//! The steps of a transaction in their order, so that they can be undone: logged stores, stores to the
//! transaction's own blocks, and frees of these blocks.

use tembo_sync::hash_u64_to_bits;

/// Up to this many steps are searched one by one; beyond, an index is kept.
const SEARCH_MAX: usize = 16;

/// A step of the transaction.
#[derive(Debug)]
pub(super) enum Step {
    /// A word that the record will change. `previous` is an earlier step for the same word.
    Redo { off: u64, value: u64, previous: Option<u32>, superseded: bool },
    /// A word of this transaction's own memory, changed in place.
    Direct { off: u64, old: u64 },
    /// A block of this transaction was freed in it.
    Cancel { fresh: usize },
}

/// The steps, and the last one for each word that the record will change.
#[derive(Debug, Default)]
pub(super) struct Steps {
    list: Vec<Step>,
    /// A bit for each logged word, by hash. A clear bit means that no step logs the word.
    redo_filter: u64,
    /// From a word to its last step; complete only beyond [`SEARCH_MAX`] steps.
    index: hashbrown::HashMap<u64, u32, foldhash::fast::FixedState>,
}

/// The bit of a word in [`Steps::redo_filter`].
#[inline(always)]
fn redo_bit(off: u64) -> u64 {
    1 << hash_u64_to_bits(off, 6)
}

impl Steps {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the state is that of a new list, with no trace of rolled-back steps.
    #[inline]
    pub(super) fn is_as_new(&self) -> bool {
        self.list.is_empty() && self.redo_filter == 0
    }

    /// Forgets all steps. Stores no value that is already there: after a commit, stores wait for its fence.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        if !self.list.is_empty() {
            self.list.clear();
        }
        if self.redo_filter != 0 {
            self.redo_filter = 0;
        }
        if !self.index.is_empty() {
            self.index.clear();
        }
    }

    /// The logged words and their values, in the order in which they are to become visible.
    #[inline(always)]
    pub(super) fn redo_words(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        self.list.iter().filter_map(|step| match step {
            Step::Redo { off, value, superseded: false, .. } => Some((*off, *value)),
            _ => None,
        })
    }

    /// The last step that logs the word at `off`.
    #[inline(always)]
    pub(super) fn redo_step(&self, off: u64) -> Option<usize> {
        if self.redo_filter & redo_bit(off) == 0 { None } else { self.search_redo_step(off) }
    }

    #[inline(never)]
    fn search_redo_step(&self, off: u64) -> Option<usize> {
        if self.list.len() > SEARCH_MAX {
            return self.index.get(&off).map(|step| *step as usize);
        }
        self.list.iter().rposition(|s| matches!(s, Step::Redo { off: o, superseded: false, .. } if *o == off))
    }

    /// The value that such a step stores.
    #[inline]
    pub(super) fn redo_value(&self, step: usize) -> u64 {
        match self.list[step] {
            Step::Redo { value, .. } => value,
            Step::Direct { .. } | Step::Cancel { .. } => {
                unreachable!("not a step that changes a word by the record")
            }
        }
    }

    #[inline]
    pub(super) fn push_redo(&mut self, off: u64, value: u64) {
        let is_first = self.redo_filter & redo_bit(off) == 0;
        self.redo_filter |= redo_bit(off);
        if is_first && self.list.len() < SEARCH_MAX {
            self.list.push(Step::Redo { off, value, previous: None, superseded: false });
        } else {
            self.push_another_redo(off, value);
        }
    }

    /// As [`push_redo`](Self::push_redo), if the word may have a step already or there are many steps.
    fn push_another_redo(&mut self, off: u64, value: u64) {
        let number = self.list.len() as u32;
        let previous = self.search_redo_step(off).map(|step| step as u32);
        if let Some(step) = previous
            && let Step::Redo { superseded, .. } = &mut self.list[step as usize]
        {
            *superseded = true;
        }
        self.push(Step::Redo { off, value, previous, superseded: false });
        if self.list.len() > SEARCH_MAX {
            self.index.insert(off, number);
        }
    }

    /// Adds a step, and fills the index when the steps have just become too many to search.
    #[inline(always)]
    pub(super) fn push(&mut self, step: Step) {
        self.list.push(step);
        if self.list.len() == SEARCH_MAX + 1 {
            self.index_all();
        }
    }

    #[cold]
    fn index_all(&mut self) {
        self.index.clear();
        for (i, step) in self.list.iter().enumerate() {
            if let Step::Redo { off, superseded: false, .. } = step {
                self.index.insert(*off, i as u32);
            }
        }
    }

    /// Removes the last step.
    pub(super) fn pop(&mut self) -> Option<Step> {
        let step = self.list.pop();
        if let Some(Step::Redo { off, previous, .. }) = step {
            self.unpush_redo(off, previous);
        }
        step
    }

    fn unpush_redo(&mut self, off: u64, previous: Option<u32>) {
        self.index.remove(&off);
        if let Some(step) = previous {
            if let Step::Redo { superseded, .. } = &mut self.list[step as usize] {
                *superseded = false;
            }
            if self.list.len() > SEARCH_MAX {
                self.index.insert(off, step);
            }
        }
    }
}
