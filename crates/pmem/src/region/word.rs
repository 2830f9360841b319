//! Loading and storing aligned words.

use super::{Region, word_number};
use crate::{OutOfBounds, WORD_BYTES};
use std::sync::atomic::{AtomicU64, Ordering};

impl Region {
    #[inline(always)]
    fn word(&self, off: u64) -> Result<&AtomicU64, OutOfBounds> {
        let region_bytes = self.len();
        if word_number(off) >= region_bytes / WORD_BYTES {
            return Err(OutOfBounds { off, bytes: WORD_BYTES, region_bytes });
        }
        // SAFETY: the word is in bounds (checked), mapped for as long as the region lives, and aligned
        // (checked; the base is page-aligned). All racing accesses to it are atomic by the contract of the
        // unsafe bulk methods.
        Ok(unsafe { AtomicU64::from_ptr(self.range.base().add(off as usize).cast()) })
    }

    /// Whether an aligned word lies at `off`.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when the word is not inside the region or not aligned.
    #[inline(always)]
    pub fn check_word(&self, off: u64) -> Result<(), OutOfBounds> {
        self.word(off).map(drop)
    }

    /// Loads an aligned word, with acquire ordering.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when the word is not inside the region or not aligned.
    #[inline(always)]
    pub fn load_u64(&self, off: u64) -> Result<u64, OutOfBounds> {
        if word_number(off) < self.loadable_words.load(Ordering::Acquire) {
            // SAFETY: as in `word`; there are never more loadable words than the region has.
            let word = unsafe { AtomicU64::from_ptr(self.range.base().add(off as usize).cast()) };
            return Ok(word.load(Ordering::Acquire));
        }
        self.load_u64_and_report(off)
    }

    #[cold]
    #[inline(never)]
    fn load_u64_and_report(&self, off: u64) -> Result<u64, OutOfBounds> {
        let word = self.word(off)?;
        self.note_load(off, WORD_BYTES);
        Ok(word.load(Ordering::Acquire))
    }

    /// Stores an aligned word atomically, with release ordering: stores to the same line stay in program
    /// order. Visible at once, durable after a flush and a fence.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when the word is not inside the region or not aligned.
    #[inline(always)]
    pub fn store_u64(&self, off: u64, value: u64) -> Result<(), OutOfBounds> {
        let word = self.word(off)?;
        self.assert_writable();
        if self.instrumented {
            self.store_with_care(word, off, value);
        } else {
            word.store(value, Ordering::Release);
        }
        Ok(())
    }

    /// Stores a word of the region at `off`, which is counted, or in a page that may be private.
    #[cold]
    #[inline(never)]
    pub(super) fn store_with_care(&self, word: &AtomicU64, off: u64, value: u64) {
        self.note_store(off, &value.to_le_bytes());
        let _inside = self.enter(off, WORD_BYTES);
        word.store(value, Ordering::Release);
    }

    /// Words of the region, to be loaded while other threads may store to them.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when they are not all inside the region, or not aligned.
    #[inline]
    pub fn words(&self, off: u64, count: u64) -> Result<&[AtomicU64], OutOfBounds> {
        let words = self.unread_words(off, count)?;
        self.note_load(off, count * WORD_BYTES);
        Ok(words)
    }

    /// As [`words`](Self::words), without a report of a load.
    #[inline]
    fn unread_words(&self, off: u64, count: u64) -> Result<&[AtomicU64], OutOfBounds> {
        let bytes = count.saturating_mul(WORD_BYTES);
        self.check(off, bytes)?;
        if !off.is_multiple_of(WORD_BYTES) {
            return Err(OutOfBounds { off, bytes, region_bytes: self.len() });
        }
        // SAFETY: in bounds and aligned (checked), and mapped for as long as the region lives. The shared
        // slice claims nothing about the words' values, and all racing accesses are atomic by the contract of
        // the unsafe bulk methods.
        Ok(unsafe {
            core::slice::from_raw_parts(
                self.range.base().add(off as usize).cast::<AtomicU64>(),
                count as usize,
            )
        })
    }

    /// Whether `count` aligned words lie at `off`.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when they are not all inside the region, or not aligned.
    #[inline]
    pub fn check_words(&self, off: u64, count: u64) -> Result<(), OutOfBounds> {
        self.unread_words(off, count).map(drop)
    }

    /// Stores aligned words one after another, each as by [`store_u64`](Self::store_u64).
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when they are not all inside the region, or not aligned; nothing is stored then.
    #[inline]
    pub fn store_words(&self, off: u64, values: &[u64]) -> Result<(), OutOfBounds> {
        let words = self.unread_words(off, values.len() as u64)?;
        self.assert_writable();
        if self.instrumented {
            self.store_words_with_care(words, off, values);
            return Ok(());
        }
        for (word, value) in words.iter().zip(values) {
            word.store(*value, Ordering::Release);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn store_words_with_care(&self, words: &[AtomicU64], off: u64, values: &[u64]) {
        let places = words.iter().zip((off..).step_by(WORD_BYTES as usize)).zip(values);
        if self.is_counted {
            places.for_each(|((word, off), value)| self.store_with_care(word, off, *value));
            return;
        }
        let _inside = self.enter(off, WORD_BYTES * values.len() as u64);
        places.for_each(|((word, _), value)| word.store(*value, Ordering::Release));
    }

    /// Sets (`set`) or clears the bits of `mask` in an aligned word atomically.
    ///
    /// `alone`: no other thread stores to the word meanwhile. That saves a locked instruction, which would
    /// wait for all pending write-backs.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when the word is not inside the region or not aligned.
    #[inline]
    pub fn change_bits(&self, off: u64, mask: u64, set: bool, alone: bool) -> Result<(), OutOfBounds> {
        let word = self.word(off)?;
        let changed = |old| if set { old | mask } else { old & !mask };
        if alone {
            return self.store_u64(off, changed(word.load(Ordering::Acquire)));
        }
        self.assert_writable();
        let change = || {
            if set { word.fetch_or(mask, Ordering::AcqRel) } else { word.fetch_and(!mask, Ordering::AcqRel) }
        };
        if self.instrumented {
            self.note_update(off, || changed(word.load(Ordering::Acquire)));
            self.update_with_care(off, &change);
        } else {
            change();
        }
        Ok(())
    }

    /// An update of the word at `off` in one atomic step, in a page that may be private.
    #[cold]
    #[inline(never)]
    fn update_with_care(&self, off: u64, update: &dyn Fn() -> u64) -> u64 {
        let _inside = self.enter(off, WORD_BYTES);
        update()
    }

    /// Raises an aligned word to `value` atomically, if it is smaller; returns the old word.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when the word is not inside the region or not aligned.
    pub fn raise_u64(&self, off: u64, value: u64) -> Result<u64, OutOfBounds> {
        let word = self.word(off)?;
        self.assert_writable();
        let raise = || word.fetch_max(value, Ordering::AcqRel);
        if self.instrumented {
            self.note_update(off, || word.load(Ordering::Acquire).max(value));
            return Ok(self.update_with_care(off, &raise));
        }
        Ok(raise())
    }
}
