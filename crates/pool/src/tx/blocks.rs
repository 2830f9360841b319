//! Blocks: allocating, writing and freeing them in a transaction.

use super::Tx;
use super::fresh::not_fresh;
use super::lane::{KeptSpace, Lane};
use super::steps::Step;
use super::write_set::LARGE_BYTES;
use crate::alloc::Wanted;
use crate::layout::tag_off;
use crate::{Error, Result};
use tembo_pmem::LINE_BYTES;

/// Writes of new data from this length on are flushed immediately, with non-temporal stores if possible.
const WRITE_THROUGH_BYTES: usize = 1024;

impl Tx<'_> {
    /// Reserves a block of at least `bytes` and returns its offset: a multiple of 16, of 64 if the block's
    /// size is. Its contents are arbitrary. The commit publishes it, at the cost of at most one line and no
    /// fence.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Full`](crate::ErrorKind::Full) if there is no room,
    /// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge).
    #[inline]
    pub fn alloc(&mut self, bytes: u64) -> Result<u64> {
        self.alloc_wanted(Wanted::Bytes(bytes))
    }

    /// As [`alloc`](Self::alloc), but the offset may be any multiple of 8, so that less is wasted on small
    /// blocks of odd numbers of words.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_words(&mut self, bytes: u64) -> Result<u64> {
        self.alloc_wanted(Wanted::Words(bytes))
    }

    #[inline(always)]
    fn alloc_wanted(&mut self, wanted: Wanted) -> Result<u64> {
        let Lane { pool, arena, writes, .. } = &mut *self.lane;
        match pool.inner.alloc.reserve_held(arena, wanted) {
            Some(block) => Ok(writes.fresh.add(block)),
            None => self.alloc_slowly(wanted),
        }
    }

    #[cold]
    fn alloc_slowly(&mut self, wanted: Wanted) -> Result<u64> {
        let block = self.lane.reserve(wanted)?;
        Ok(self.lane.writes.fresh.add(block))
    }

    /// Allocates a line and its tag: two words elsewhere, at [`tag_off`]. For a value of 64 bytes with a
    /// head: a change of the value then changes one line, not two.
    ///
    /// Otherwise as [`alloc`](Self::alloc). The tag is allocated and freed with the line. In this transaction
    /// only [`set_tag_word`](Self::set_tag_word) may change the tag, because the record covers it; later it
    /// is changed like any other words.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_tagged(&mut self, tag: [u64; 2]) -> Result<u64> {
        let off = self.alloc_wanted(Wanted::Tagged)?;
        self.inner().log.region.store_words(tag_off(off), &tag)?;
        Ok(off)
    }

    /// Changes a word of the tag, 0 or 1, of a line that this transaction has
    /// [allocated](Self::alloc_tagged). A rollback to a savepoint does not undo this.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) if it has allocated no such line.
    ///
    /// # Panics
    ///
    /// If the tag has no such word.
    pub fn set_tag_word(&mut self, line_off: u64, word: usize, value: u64) -> Result<()> {
        assert!(word < 2, "word {word} of a tag");
        let fresh = self.lane.writes.fresh.with(line_off, line_off.saturating_add(LINE_BYTES))?;
        let tag_off = fresh.block.tag_off().ok_or_else(|| not_fresh(line_off))?;
        Ok(self.inner().log.region.store_u64(tag_off + 8 * word as u64, value)?)
    }

    /// As [`alloc`](Self::alloc), but the block's contents are zero, durably after this thread's next fence.
    /// A block that was never in use reads as zero already; any other is written.
    ///
    /// The record does not cover the zeros. A structure that changes the block directly later, so that no
    /// record may cover it, writes to it and fences before it commits.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc).
    pub fn alloc_zeroed(&mut self, bytes: u64) -> Result<u64> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let off = self.alloc(bytes)?;
        if self.lane.writes.fresh.last().is_none_or(|fresh| !fresh.block.is_zero) {
            for at in (0..bytes).step_by(ZEROS.len()) {
                let part = &ZEROS[..(bytes - at).min(ZEROS.len() as u64) as usize];
                // SAFETY: the block is this transaction's own.
                unsafe { self.inner().log.region.write_and_flush(off + at, part)? };
            }
        }
        Ok(off)
    }

    /// Sets how much of the kept space the transaction may use. This holds until the next call, or until the
    /// lane [begins](Lane::begin) another transaction. A copy-on-write structure calls it before it allocates
    /// for a removal. (The record of a transaction that frees anything may use the kept space in any case.)
    #[inline(always)]
    pub fn use_kept_space(&mut self, use_of_it: KeptSpace) {
        self.lane.kept_space = use_of_it;
    }

    /// Frees the block at `off` with the commit. Its memory is reused only when no reader that is pinned now
    /// and no live record can look at it. That includes the record of another lane's open, pinned transaction
    /// that stores to the block.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if no allocated block starts there.
    pub fn free(&mut self, off: u64) -> Result<()> {
        let Lane { pool, writes, .. } = &mut *self.lane;
        if let Some(number) = writes.fresh.at(off) {
            let fresh = writes.fresh.get_mut(number);
            if fresh.block.off != off || fresh.cancelled {
                return Err(Error::corrupt("a block", off, "a block of this transaction", "something else"));
            }
            fresh.cancelled = true;
            writes.steps.push(Step::Cancel { fresh: number });
            return Ok(());
        }
        let block = pool.inner.alloc.find_block(pool.region(), off)?;
        let is_large = block.bytes >= LARGE_BYTES;
        writes.freed.push(block);
        if is_large && let Err(e) = writes.reserve_lines() {
            writes.freed.pop();
            return Err(e);
        }
        Ok(())
    }

    /// Writes bytes into a block that was allocated in this transaction. An empty range is allowed anywhere,
    /// so that the last part of a write that fills its block may be empty.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) if the range does not lie in such a block.
    pub fn write_fresh(&mut self, off: u64, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let end = off.saturating_add(data.len() as u64);
        let lane: &mut Lane = &mut self.lane;
        let (region, fresh) = (lane.pool.region(), lane.writes.fresh.with(off, end)?);
        fresh.note_written(off, end);
        if data.len() >= WRITE_THROUGH_BYTES {
            if data.len() as u64 >= LARGE_BYTES {
                lane.writes.reserve_lines()?;
            }
            // SAFETY: the block is this transaction's own (found above); no other thread knows of it.
            unsafe { region.write_and_flush(off, data)? };
        } else {
            fresh.note_unflushed(off, end);
            // SAFETY: as above.
            unsafe { region.write(off, data)? };
        }
        Ok(())
    }

    /// As [`write_fresh`](Self::write_fresh), for words in two parts; the offset is a multiple of 8. The
    /// words are loaded one by one, because they have probably just been stored one by one: a wider load
    /// would have to wait until those stores have left the store buffer.
    ///
    /// # Errors
    ///
    /// As for [`write_fresh`](Self::write_fresh), and if the offset is no multiple of 8.
    #[inline]
    pub fn write_fresh_words(&mut self, off: u64, head: &[u64], body: &[u64]) -> Result<()> {
        if 8 * body.len() >= WRITE_THROUGH_BYTES {
            self.write_fresh(off, bytemuck::cast_slice(head))?;
            return self.write_fresh(off.saturating_add(8 * head.len() as u64), bytemuck::cast_slice(body));
        }
        if head.is_empty() && body.is_empty() {
            return Ok(());
        }
        let end = off.saturating_add(8 * (head.len() + body.len()) as u64);
        let lane: &mut Lane = &mut self.lane;
        let (region, fresh) = (lane.pool.region(), lane.writes.fresh.with(off, end)?);
        fresh.note_written(off, end);
        fresh.note_unflushed(off, end);
        region.store_words(off, head).map_err(|_| not_fresh(off))?;
        region.store_words(off + 8 * head.len() as u64, body).map_err(|_| not_fresh(off))
    }
}
