//! Validation: reads by ownership records, and the check that everything read is still the last version.

use crate::error::Result;
use crate::objects::place::FRESH;
use crate::stm::active_tx::ActiveTx;
use crate::stm::hazards::ReadHazards;
use crate::stm::read_list::COUNT_RECORD;
use crate::stm::shared::HeapShared;
use crate::stm::writer::WriterContext;
use std::sync::atomic::{AtomicU64, Ordering};

impl ActiveTx {
    /// Advances the transaction's clock, provided that everything it has read is unchanged.
    #[cold]
    pub(crate) fn extend(&self, shared: &HeapShared, version: u64) -> Result<()> {
        shared.clock.raise(version);
        let now = shared.clock.now().count();
        if !self.reads_hold(shared) {
            return self.conflict();
        }
        self.set_rv(now);
        // Commits numbered up to this value may still be storing.
        self.add_hazard(ReadHazards::RECORDS);
        Ok(())
    }

    /// Whether the transaction has a list of its reads, every record in it still has its version, and no
    /// other transaction is storing there.
    pub(crate) fn reads_hold(&self, shared: &HeapShared) -> bool {
        let number = self.number.get();
        self.has(ReadHazards::NOTES)
            && self.reads.borrow().iter().flat_map(|reads| reads.iter()).all(|(index, version)| {
                let now = shared.records(*index).load(index & !COUNT_RECORD);
                now.version() <= *version && (!now.is_committing() || now.owner() == number)
            })
    }

    /// Makes the writer the owner of every data record that it wants.
    #[inline]
    pub(crate) fn own_wanted(&self, shared: &HeapShared, writer: &mut WriterContext) -> Result<()> {
        for at in 0..writer.wanted.len() {
            self.own(shared, writer, writer.wanted.at(at))?;
        }
        writer.wanted.clear();
        Ok(())
    }

    /// Makes the writer the owner of a data record.
    #[inline(always)]
    pub(crate) fn own(&self, shared: &HeapShared, writer: &mut WriterContext, index: u32) -> Result<()> {
        let mut round = 0;
        loop {
            let seen = shared.orecs.load(index);
            if seen.owner() == writer.number {
                return Ok(());
            }
            if seen.owner() != 0 {
                self.wait(&mut round)?;
                continue;
            }
            if seen.version() > self.rv() {
                self.extend(shared, seen.version())?;
                continue;
            }
            if shared.orecs.try_own(index, seen, writer.number) {
                writer.owned.push(index);
                return Ok(());
            }
        }
    }
}

/// Reads a word of an older object by its ownership record. `None` if the record does not allow it now, or if
/// the transaction may have written there. Most reads take this path while other threads commit. The result
/// fits in registers.
#[inline(never)]
pub(crate) fn word_by_record(shared: &HeapShared, active: &ActiveTx, key: u64, off: u64) -> Option<u64> {
    if !active.reads_records() || key == FRESH || active.may_have_written(off, 1) {
        return None;
    }
    let index = shared.orecs.index(key);
    let seen = shared.orecs.load_idle(index, active.rv())?;
    let word = shared.region().loadable_words().load(off)?;
    let holds = shared.orecs.load_again(index) == seen && active.try_note_read(index, seen.version());
    holds.then_some(word)
}

/// As [`word_by_record`], for several words. Returns whether `out` holds them.
#[inline(never)]
pub(crate) fn words_by_record(
    shared: &HeapShared,
    active: &ActiveTx,
    key: u64,
    off: u64,
    out: &mut [u64],
) -> bool {
    if !active.reads_records() || key == FRESH || active.may_have_written(off, out.len()) {
        return false;
    }
    let index = shared.orecs.index(key);
    let Some(seen) = shared.orecs.load_idle(index, active.rv()) else { return false };
    let Some(words) = shared.region().loadable_words().words(off, out.len() as u64) else { return false };
    load_all(words, out);
    shared.orecs.load_again(index) == seen && active.try_note_read(index, seen.version())
}

#[inline(always)]
pub(crate) fn load_all(words: &[AtomicU64], out: &mut [u64]) {
    for (out, word) in out.iter_mut().zip(words) {
        // ORDER: acquire, paired with the release of a commit's stores: a thread that sees one sees the
        // record marked.
        *out = word.load(Ordering::Acquire);
    }
}
