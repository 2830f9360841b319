//! Words stored by line: cheaper than logged words, but loads do not see them, and savepoints do not undo
//! them. So they have handles of their own.

use super::lane::Lane;
use super::{Tx, outside_blocks};
use crate::inner::PoolInner;
use crate::{Error, Result};
use tembo_pmem::LINE_BYTES;

/// Stores of a transaction by line ([`Tx::lines`]).
///
/// The stores gather in lines, which is cheaper than logging each word, and does not check the transaction's
/// other writes. [`Tx::load`] does not return what is stored here, [`StoredLines`] does. Dropping the
/// transaction undoes it; a rollback to a savepoint does not. The words become visible line by line, in the
/// order in which the lines were first stored to; the order within a line is arbitrary.
///
/// The caller ensures that [`Tx::store`] stores none of these words, and that none lies in a block that the
/// transaction allocates.
pub struct LineStores<'a>(&'a mut Lane);

/// The words that a transaction is going to store by line ([`Tx::stored_lines`]).
#[derive(Clone, Copy)]
pub struct StoredLines<'a>(&'a Lane);

impl Tx<'_> {
    /// The handle for a store by line.
    #[inline(always)]
    pub fn lines(&mut self) -> LineStores<'_> {
        LineStores(&mut self.lane)
    }

    /// The words that were stored by line.
    #[inline(always)]
    pub fn stored_lines(&self) -> StoredLines<'_> {
        StoredLines(&self.lane)
    }

    /// Prefetches the owners of the line at `off` for the commit. For a line whose words are going to be
    /// stored.
    #[inline(always)]
    pub fn prefetch_for_store(&self, off: u64) {
        self.lane.pool.inner.log.line_owners.prefetch_early(off);
    }
}

impl LineStores<'_> {
    /// Stores words from `off` on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the offset leads nowhere, to the pool's own
    /// header or lanes, or is not aligned.
    #[inline(always)]
    pub fn store_words(self, off: u64, words: &[u64]) -> Result<()> {
        let inner: &PoolInner = &self.0.pool.inner;
        if off < inner.first_zone_off {
            return Err(outside_blocks(off));
        }
        inner.log.region.check_words(off, words.len() as u64)?;
        let lines = &mut self.0.writes.lines;
        match words {
            // Most changes are of one word, which takes less than a call.
            [word] => lines.set_word(off, *word),
            words => lines.set(off, words),
        }
        Ok(())
    }

    /// Stores all words of the line at `off`.
    ///
    /// # Errors
    ///
    /// As for [`store_words`](Self::store_words); the offset is that of a line.
    #[inline(always)]
    pub fn store_whole_line(self, off: u64, words: &[u64; 8]) -> Result<()> {
        let inner: &PoolInner = &self.0.pool.inner;
        if off < inner.first_zone_off || !off.is_multiple_of(LINE_BYTES) {
            return Err(no_line(off));
        }
        inner.log.region.check_words(off, words.len() as u64)?;
        self.0.writes.lines.set_whole_line(off, words);
        Ok(())
    }

    /// Stores the words of the line at `off` that `mask` chooses, bit i word i. All stores of the transaction
    /// to this line become visible from its first word to its last.
    ///
    /// # Errors
    ///
    /// As for [`store_words`](Self::store_words); the offset is that of a line.
    #[inline]
    pub fn store_line(self, off: u64, mask: u8, words: &[u64; 8]) -> Result<()> {
        let inner: &PoolInner = &self.0.pool.inner;
        if off < inner.first_zone_off || !off.is_multiple_of(LINE_BYTES) {
            return Err(no_line(off));
        }
        inner.log.region.check_words(off, words.len() as u64)?;
        self.0.writes.lines.set_line(off, mask, words);
        Ok(())
    }
}

impl<'a> StoredLines<'a> {
    /// The value of the word at `off`, if it is going to be stored by line.
    #[inline]
    pub fn word(self, off: u64) -> Option<u64> {
        self.0.writes.lines.get(off)
    }

    /// The words of the line at `off` that are going to be stored, if there are any: bit i of the mask stands
    /// for word i.
    #[inline]
    pub fn words_of_line(self, off: u64) -> Option<(u8, &'a [u64; 8])> {
        let line = self.0.writes.lines.at(off)?;
        Some((line.mask, line.from(0)))
    }

    /// Whether no word is going to be stored by line.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0.writes.lines.is_empty()
    }
}

#[cold]
fn no_line(off: u64) -> Error {
    Error::corrupt("a store", off, "a line in a block", "another offset")
}
