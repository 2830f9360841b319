//! The writer context: a lane of the pool, and buffers that successive transactions reuse.

use crate::error::Error;
use crate::handles::NewHandle;
use crate::stm::commit_buffers::CommitBuffers;
use crate::stm::orec::Orecs;
use crate::stm::pending::{FreshObject, PointerDelta, WantedRecords};
use tembo_sync::SmallMap;

/// A lane, and buffers that successive transactions reuse. A thread has it for the length of its transaction.
#[derive(Debug)]
pub(crate) struct WriterContext {
    /// The owner number in ownership records, from 1 on.
    pub number: u64,
    pub ptx: tembo_pool::Tx<'static>,
    /// Data records that the commit will own. Some may appear more than once.
    pub wanted: WantedRecords,
    /// Data records that it owns.
    pub owned: Vec<u32>,
    /// Pointers to older objects that the transaction adds or removes.
    pub deltas: SmallMap<PointerDelta>,
    pub fresh: SmallMap<FreshObject>,
    /// Handles that the transaction has made.
    pub held: Vec<NewHandle>,
    /// Objects of which it has made copies in the place of their only pointers: the commit frees each, and
    /// the copy has the pointers that it had.
    pub moved: Vec<u64>,
    /// The offset of the head of its list of dying objects, and the head.
    pub dying_off: u64,
    pub dying_first: u64,
    pub buffers: CommitBuffers,
    /// Maps that nested transactions have inserted into or removed from: the offset of their first object,
    /// and the number of nested transactions at that time. Iterators of outer transactions check it.
    pub reshaped: Vec<(u64, u64)>,
    /// The error of a borrowed value that could not be written when its borrow ended.
    pub lost: Option<Error>,
}

impl WriterContext {
    pub(crate) fn has_work(&self) -> bool {
        let has_stored = !self.ptx.stored_lines().is_empty();
        has_stored || !(self.deltas.is_empty() && self.fresh.is_empty() && self.held.is_empty())
    }

    /// Whether the transaction only stores words.
    pub(crate) fn only_writes(&self) -> bool {
        self.deltas.is_empty() && self.fresh.is_empty() && self.held.is_empty()
    }

    /// Whether it is going to change older objects.
    pub(crate) fn wants_any(&self) -> bool {
        !(self.wanted.is_empty() && self.owned.is_empty())
    }

    /// The noted changes of pointers to an object.
    #[inline(always)]
    pub(crate) fn pointers_to(&mut self, object: u64) -> &mut PointerDelta {
        match self.fresh.get_mut(object) {
            Some(fresh) => &mut fresh.pointers,
            None => self.deltas.get_or_insert_with(object, Default::default),
        }
    }

    /// Notes that the commit has to own a record.
    #[inline(always)]
    pub(crate) fn want(&mut self, index: u32) {
        self.wanted.add(index);
    }

    /// Releases the records that it owns, with a new version.
    #[inline]
    pub(crate) fn release_owned(&mut self, orecs: &Orecs, version: u64) {
        for index in &self.owned {
            orecs.release(*index, version);
        }
        self.owned.clear();
    }

    /// Drops the transaction, and releases its records unchanged.
    pub(crate) fn abort(&mut self, orecs: &Orecs) {
        self.ptx.roll_back();
        self.wanted.clear();
        self.owned.drain(..).for_each(|index| orecs.give_back(index));
        self.forget();
    }

    #[inline(always)]
    pub(crate) fn forget_reshaped(&mut self) {
        if !self.reshaped.is_empty() {
            self.reshaped.clear();
        }
    }

    /// Drops the changes that the transaction was going to make.
    #[inline(always)]
    pub(crate) fn forget(&mut self) {
        self.deltas.clear();
        self.fresh.clear();
        if !self.held.is_empty() {
            self.held.clear();
        }
        if !self.moved.is_empty() {
            self.moved.clear();
        }
        self.forget_reshaped();
        if self.lost.is_some() {
            self.lost = None;
        }
    }
}
