//! One line of a region, for who loads, stores and flushes it: what has to be checked is checked once.

use super::{Flusher, OutOfBounds, Region, line_number};
use crate::{LINE_BYTES, WORD_BYTES};
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = (LINE_BYTES / WORD_BYTES) as usize;

/// A line of a region.
#[derive(Debug, Clone, Copy)]
pub struct Line<'r> {
    region: &'r Region,
    off: u64,
    words: &'r [AtomicU64; WORDS],
}

/// A line of a region that may be stored to.
#[derive(Debug, Clone, Copy)]
pub struct WritableLine<'r>(Line<'r>);

impl Region {
    /// The line at `off`.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when it is not inside the region, or `off` is not the start of a line.
    #[inline(always)]
    pub fn line(&self, off: u64) -> Result<Line<'_>, OutOfBounds> {
        let region_bytes = self.len();
        if line_number(off) >= region_bytes / LINE_BYTES {
            return Err(OutOfBounds { off, bytes: LINE_BYTES, region_bytes });
        }
        // SAFETY: in bounds and aligned (checked), and mapped for as long as the region lives. All racing accesses are atomic by the
        // contract of the unsafe bulk methods.
        let words = unsafe { &*self.range.base().add(off as usize).cast() };
        Ok(Line { region: self, off, words })
    }

    /// The same, to be stored to.
    ///
    /// # Errors
    ///
    /// As for [`line`](Self::line).
    ///
    /// # Panics
    ///
    /// If the region was opened read-only.
    #[inline(always)]
    pub fn writable_line(&self, off: u64) -> Result<WritableLine<'_>, OutOfBounds> {
        let line = self.line(off)?;
        self.assert_writable();
        Ok(WritableLine(line))
    }
}

impl Line<'_> {
    /// As [`Region::load_u64`], of one of the line's words.
    #[inline(always)]
    pub fn load(&self, word: usize) -> u64 {
        self.region.note_load(self.off_of(word), WORD_BYTES);
        self.words[word].load(Ordering::Acquire)
    }

    /// As [`load`](Self::load), in a region that [reports no loads](Region::reports_loads): spares the look whether it does.
    #[inline(always)]
    pub fn load_quietly(&self, word: usize) -> u64 {
        debug_assert!(!self.region.reports_loads(), "a load that is not reported");
        self.words[word].load(Ordering::Acquire)
    }

    #[inline(always)]
    fn off_of(&self, word: usize) -> u64 {
        self.off + WORD_BYTES * word as u64
    }
}

impl WritableLine<'_> {
    /// As [`Line::load`].
    #[inline(always)]
    pub fn load(&self, word: usize) -> u64 {
        self.0.load(word)
    }

    /// As [`Region::store_u64`], to one of the line's words.
    #[inline(always)]
    pub fn store(&self, word: usize, value: u64) {
        let Line { region, words, .. } = self.0;
        if region.instrumented {
            region.note_store(self.0.off_of(word), &value.to_le_bytes());
        }
        words[word].store(value, Ordering::Release);
    }

    /// As [`Region::flush`], of the line.
    #[inline(always)]
    pub fn flush(&self) {
        let Line { region, words, off } = self.0;
        if let Flusher::Instruction(instruction) = region.flusher
            && !region.instrumented
        {
            // SAFETY: the line is mapped; the instruction was detected or forced by the user, who then vouches for it.
            unsafe { instruction.flush_line(words.as_ptr().cast()) };
        } else {
            region.flush(off, LINE_BYTES);
        }
    }
}
