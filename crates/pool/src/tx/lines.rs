//! Words stored by line: cheaper than logged words, but loads do not see them, and savepoints do not undo
//! them.

use super::lane::Lane;
use super::{Tx, outside_blocks};
use crate::inner::PoolInner;
use crate::{Error, Result};
use tembo_pmem::LINE_BYTES;

impl Tx<'_> {
    /// Stores words from `off` on by line, without checking the transaction's other writes. Gathering words
    /// by line is cheaper than logging each. The words become visible line by line, in the order in which the
    /// lines were first stored to; the order within a line is arbitrary.
    ///
    /// The caller ensures that [`store`](Self::store) stores none of these words, and that none lies in a
    /// block that the transaction allocates. [`line_word`](Self::line_word) returns them,
    /// [`load`](Self::load) does not. Dropping the transaction undoes them; a rollback to a savepoint does
    /// not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the offset leads nowhere, to the pool's own
    /// header or lanes, or is not aligned.
    #[inline(always)]
    pub fn store_line_words(&mut self, off: u64, words: &[u64]) -> Result<()> {
        let lane: &mut Lane = &mut self.lane;
        let inner: &PoolInner = &lane.pool.inner;
        if off < inner.first_zone_off {
            return Err(outside_blocks(off));
        }
        inner.log.region.check_words(off, words.len() as u64)?;
        match words {
            // Most changes are of one word, which takes less than a call.
            [word] => lane.writes.lines.set_word(off, *word),
            words => lane.writes.lines.set(off, words),
        }
        Ok(())
    }

    /// As [`store_line_words`](Self::store_line_words), of all words of the line at `off`.
    ///
    /// # Errors
    ///
    /// As for [`store_line_words`](Self::store_line_words); the offset is that of a line.
    #[inline(always)]
    pub fn store_whole_line(&mut self, off: u64, words: &[u64; 8]) -> Result<()> {
        let lane: &mut Lane = &mut self.lane;
        let inner: &PoolInner = &lane.pool.inner;
        if off < inner.first_zone_off || !off.is_multiple_of(LINE_BYTES) {
            return Err(no_line(off));
        }
        inner.log.region.check_words(off, words.len() as u64)?;
        lane.writes.lines.set_whole_line(off, words);
        Ok(())
    }

    /// Stores the words of the line at `off` that `mask` chooses, bit i word i, as
    /// [`store_line_words`](Self::store_line_words) does. All stores of the transaction to this line become
    /// visible from its first word to its last.
    ///
    /// # Errors
    ///
    /// As for [`store_line_words`](Self::store_line_words); the offset is that of a line.
    #[inline]
    pub fn store_line(&mut self, off: u64, mask: u8, words: &[u64; 8]) -> Result<()> {
        let lane: &mut Lane = &mut self.lane;
        let inner: &PoolInner = &lane.pool.inner;
        if off < inner.first_zone_off || !off.is_multiple_of(LINE_BYTES) {
            return Err(no_line(off));
        }
        inner.log.region.check_words(off, words.len() as u64)?;
        lane.writes.lines.set_line(off, mask, words);
        Ok(())
    }

    /// The value of the word at `off`, if it is going to be stored by line.
    #[inline]
    pub fn line_word(&self, off: u64) -> Option<u64> {
        self.lane.writes.lines.get(off)
    }

    /// The words of the line at `off` to be stored by line, if any: bit i of the mask stands for word i.
    #[inline]
    pub fn line_words(&self, off: u64) -> Option<(u8, &[u64; 8])> {
        let line = self.lane.writes.lines.at(off)?;
        Some((line.mask, line.from(0)))
    }

    /// Whether any word is going to be stored by line.
    #[inline]
    pub fn has_line_words(&self) -> bool {
        !self.lane.writes.lines.is_empty()
    }

    /// Prefetches the owners of the line at `off` for the commit. For a line whose words are going to be
    /// stored.
    #[inline(always)]
    pub fn prefetch_for_store(&self, off: u64) {
        self.lane.pool.inner.log.line_owners.prefetch_early(off);
    }
}

#[cold]
fn no_line(off: u64) -> Error {
    Error::corrupt("a store", off, "a line in a block", "another offset")
}
