//! What a transaction that writes needs beyond its reads: a lane of the pool, and buffers.

use crate::error::Error;
use crate::handles::NewHandle;
use crate::stm::commit_buffers::CommitBuffers;
use crate::stm::orec::Orecs;
use crate::stm::pending::{FreshObject, PointerDelta, WantedRecords};
use tembo_sync::SmallMap;

/// What writing needs: a lane, and the buffers of one transaction after the other. A thread has it as long as its transaction
/// lasts.
#[derive(Debug)]
pub(crate) struct WriterContext {
    /// Its number, from 1 on: the owner in ownership records.
    pub number: u64,
    pub ptx: tembo_pool::Tx<'static>,
    /// Data records of what it is going to write, some of them perhaps more than once: the commit becomes their owner.
    pub wanted: WantedRecords,
    /// Data records that it owns.
    pub owned: Vec<u32>,
    /// Of objects that were there before.
    pub deltas: SmallMap<PointerDelta>,
    pub fresh: SmallMap<FreshObject>,
    /// Objects for which handles were made.
    pub held: Vec<NewHandle>,
    /// Where the head of its list of dying objects lies, and the head.
    pub dying_off: u64,
    pub dying_first: u64,
    pub buffers: CommitBuffers,
    /// Maps that nested transactions have inserted into or removed from, by what each begins with, and how many transactions had been nested then:
    /// iterators of outer ones look here.
    pub reshaped: Vec<(u64, u64)>,
    /// Why a borrowed value could not be written when the borrow ended, where nobody could be told.
    pub lost: Option<Error>,
}

impl WriterContext {
    pub(crate) fn has_work(&self) -> bool {
        self.ptx.has_stored_words()
            || !(self.deltas.is_empty() && self.fresh.is_empty() && self.held.is_empty())
    }

    /// Whether nothing is to be done but to store what was written.
    pub(crate) fn only_writes(&self) -> bool {
        self.deltas.is_empty() && self.fresh.is_empty() && self.held.is_empty()
    }

    /// Whether it is going to change anything that was there before.
    pub(crate) fn wants_any(&self) -> bool {
        !(self.wanted.is_empty() && self.owned.is_empty())
    }

    /// What is noted of pointers to an object.
    #[inline(always)]
    pub(crate) fn pointers_to(&mut self, object: u64) -> &mut PointerDelta {
        match self.fresh.get_mut(object) {
            Some(fresh) => &mut fresh.pointers,
            None => self.deltas.get_or_insert_with(object, Default::default),
        }
    }

    /// Notes that what a record stands for is going to be written.
    #[inline(always)]
    pub(crate) fn want(&mut self, index: u32) {
        self.wanted.add(index);
    }

    /// Gives the records that it owns to all, with a new version.
    #[inline]
    pub(crate) fn release_owned(&mut self, orecs: &Orecs, version: u64) {
        for index in &self.owned {
            orecs.release(*index, version);
        }
        self.owned.clear();
    }

    /// Forgets the transaction. The records that it owns are given back.
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

    /// Forgets what the transaction was going to do.
    #[inline(always)]
    pub(crate) fn forget(&mut self) {
        self.deltas.clear();
        self.fresh.clear();
        if !self.held.is_empty() {
            self.held.clear();
        }
        self.forget_reshaped();
        if self.lost.is_some() {
            self.lost = None;
        }
    }
}
