//! One line of a region, for who loads, stores and flushes it: what has to be checked is checked once.

use super::{Flusher, OutOfBounds, Region, line_number};
use crate::{LINE_BYTES, WORD_BYTES};
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = (LINE_BYTES / WORD_BYTES) as usize;

/// A line of a region that may be stored to.
#[derive(Debug, Clone, Copy)]
pub struct WritableLine<'r> {
    region: &'r Region,
    off: u64,
    words: &'r [AtomicU64; WORDS],
}

impl Region {
    /// The line at `off`.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when it is not inside the region, or `off` is not the start of a line.
    ///
    /// # Panics
    ///
    /// If the region was opened read-only.
    #[inline(always)]
    pub fn writable_line(&self, off: u64) -> Result<WritableLine<'_>, OutOfBounds> {
        let region_bytes = self.len();
        if line_number(off) >= region_bytes / LINE_BYTES {
            return Err(OutOfBounds { off, bytes: LINE_BYTES, region_bytes });
        }
        self.assert_writable();
        // SAFETY: in bounds and aligned (checked), and mapped for as long as the region lives. All racing accesses are atomic by the
        // contract of the unsafe bulk methods.
        let words = unsafe { &*self.range.base().add(off as usize).cast() };
        Ok(WritableLine { region: self, off, words })
    }
}

impl WritableLine<'_> {
    /// As [`Region::load_u64`], of one of the line's words.
    #[inline(always)]
    pub fn load(&self, word: usize) -> u64 {
        self.region.note_load(self.off_of(word), WORD_BYTES);
        self.words[word].load(Ordering::Acquire)
    }

    /// As [`Region::store_u64`], to one of the line's words.
    #[inline(always)]
    pub fn store(&self, word: usize, value: u64) {
        if self.region.instrumented {
            self.region.note_store(self.off_of(word), &value.to_le_bytes());
        }
        self.words[word].store(value, Ordering::Release);
    }

    /// As [`Region::flush`], of the line.
    #[inline(always)]
    pub fn flush(&self) {
        if let Flusher::Instruction(instruction) = self.region.flusher
            && !self.region.instrumented
        {
            // SAFETY: the line is mapped; the instruction was detected or forced by the user, who then vouches for it.
            unsafe { instruction.flush_line(self.words.as_ptr().cast()) };
        } else {
            self.region.flush(self.off, LINE_BYTES);
        }
    }

    #[inline(always)]
    fn off_of(&self, word: usize) -> u64 {
        self.off + WORD_BYTES * word as u64
    }
}
