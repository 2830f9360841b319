//! Stores of many words, gathered by line.

use super::Tx;
use crate::log::lane::Lane;
use crate::pool::PoolInner;
use crate::{Error, Result};
use tembo_pmem::LINE_BYTES;

impl Tx<'_> {
    /// Stores words from `off` on, without looking at what the transaction did otherwise: for structures that know what is whose. They are
    /// gathered by line, which is cheaper than storing each by itself, and become visible line by line, in the order in which lines were first
    /// stored to, and in a line in any order.
    ///
    /// None of them is stored by [`store`](Self::store), or in a block that the transaction allocates;
    /// [`stored_word`](Self::stored_word) tells of them, [`load`](Self::load) does not. They are taken back with the whole transaction, but not
    /// by going back to a savepoint.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the offset leads nowhere, to the pool's own header or lanes, or is not aligned.
    #[inline(always)]
    pub fn store_words(&mut self, off: u64, words: &[u64]) -> Result<()> {
        let lane: &mut Lane = &mut self.lane;
        let inner: &PoolInner = &lane.pool.inner;
        if off < inner.first_zone_off {
            return Err(outside_blocks(off));
        }
        inner.region.check_words(off, words.len() as u64)?;
        match words {
            // Most changes are of one, which is less than a call.
            [word] => lane.work.stored_lines.set_word(off, *word),
            words => lane.work.stored_lines.set(off, words),
        }
        Ok(())
    }

    /// Says that words of the line at `off` are going to be stored, so that what the commit looks up about that line is in the cache by then. Changes
    /// nothing else.
    #[inline(always)]
    pub fn expect_store(&self, off: u64) {
        self.lane.pool.inner.touches.prefetch_early(off);
    }

    /// As [`store_words`](Self::store_words), of all words of the line at `off`.
    ///
    /// # Errors
    ///
    /// As for [`store_words`](Self::store_words); the offset is that of a line.
    #[inline(always)]
    pub fn store_whole_line(&mut self, off: u64, words: &[u64; 8]) -> Result<()> {
        let lane: &mut Lane = &mut self.lane;
        let inner: &PoolInner = &lane.pool.inner;
        if off < inner.first_zone_off || !off.is_multiple_of(LINE_BYTES) {
            return Err(no_line(off));
        }
        inner.region.check_words(off, words.len() as u64)?;
        lane.work.stored_lines.set_whole_line(off, words);
        Ok(())
    }

    /// Stores the words of the line at `off` that `mask` chooses, bit i word i, as [`store_words`](Self::store_words) does. All that is stored to
    /// this line in the transaction becomes visible from its first word to its last.
    ///
    /// # Errors
    ///
    /// As for [`store_words`](Self::store_words); the offset is that of a line.
    #[inline]
    pub fn store_line(&mut self, off: u64, mask: u8, words: &[u64; 8]) -> Result<()> {
        let lane: &mut Lane = &mut self.lane;
        let inner: &PoolInner = &lane.pool.inner;
        if off < inner.first_zone_off || !off.is_multiple_of(LINE_BYTES) {
            return Err(no_line(off));
        }
        inner.region.check_words(off, words.len() as u64)?;
        lane.work.stored_lines.set_line(off, mask, words);
        Ok(())
    }

    /// The word at `off`, if [`store_words`](Self::store_words) is going to store it.
    #[inline]
    pub fn stored_word(&self, off: u64) -> Option<u64> {
        self.lane.work.stored_lines.get(off)
    }

    /// The words of the line at `off` that [`store_words`](Self::store_words) is going to store, if there are any: bit i of the mask stands for
    /// word i.
    #[inline]
    pub fn stored_line(&self, off: u64) -> Option<(u8, &[u64; 8])> {
        let line = self.lane.work.stored_lines.at(off)?;
        Some((line.mask, line.from(0)))
    }

    /// Whether [`store_words`](Self::store_words) is going to store anything.
    #[inline]
    pub fn has_stored_words(&self) -> bool {
        !self.lane.work.stored_lines.is_empty()
    }
}

#[cold]
pub(super) fn outside_blocks(off: u64) -> Error {
    Error::corrupt("a store", off, "an offset in a block", "the pool's own structures")
}

#[cold]
fn no_line(off: u64) -> Error {
    Error::corrupt("a store", off, "a line in a block", "another offset")
}
