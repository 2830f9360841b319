//! Lines of a region, and its words, for callers that load, store or flush many: bounds are checked once.

use super::persist::Flusher;
use super::{Region, line_number, word_number};
use crate::{LINE_BYTES, OutOfBounds, WORD_BYTES, counters};
use std::hint::{black_box, select_unpredictable};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = (LINE_BYTES / WORD_BYTES) as usize;

/// A line of a region.
#[derive(Debug, Clone, Copy)]
pub struct Line<'r> {
    region: &'r Region,
    off: u64,
    words: &'r [AtomicU64; WORDS],
}

/// The words that a region had at the time of [`Region::loadable_words`], for callers that load many: base
/// and length are loaded once for all of them.
#[derive(Debug, Clone, Copy)]
pub struct LoadableWords<'r> {
    base: *const u8,
    count: u64,
    of: PhantomData<&'r Region>,
}

impl<'r> LoadableWords<'r> {
    /// The words of an empty region, so that the caller falls back for each load.
    #[inline(always)]
    pub fn none() -> LoadableWords<'r> {
        LoadableWords { base: core::ptr::null(), count: 0, of: PhantomData }
    }

    /// As [`Region::load_u64`]; `None` where that has more to do than to load a word, or fails.
    #[inline(always)]
    pub fn load(self, off: u64) -> Option<u64> {
        if word_number(off) >= self.count {
            return None;
        }
        // SAFETY: as in `Region::load_u64`; the region lives, and does not shrink.
        let word = unsafe { AtomicU64::from_ptr(self.base.add(off as usize).cast_mut().cast()) };
        Some(word.load(Ordering::Acquire))
    }

    /// As [`Region::words`]; `None` where that has more to do than to find them, or fails.
    #[inline(always)]
    pub fn words(self, off: u64, count: u64) -> Option<&'r [AtomicU64]> {
        let first = word_number(off);
        if first >= self.count || count > self.count - first {
            return None;
        }
        // SAFETY: in bounds and aligned (checked); else as in `Region::words`.
        Some(unsafe { core::slice::from_raw_parts(self.base.add(off as usize).cast(), count as usize) })
    }
}

/// A line of a region that may be stored to.
#[derive(Debug, Clone, Copy)]
pub struct WritableLine<'r>(Line<'r>);

impl Region {
    /// The words that the region has now; none if loads are reported.
    #[inline(always)]
    pub fn loadable_words(&self) -> LoadableWords<'_> {
        let count = self.loadable_words.load(Ordering::Acquire);
        LoadableWords { base: self.range.base(), count, of: PhantomData }
    }

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
        // SAFETY: in bounds and aligned (checked), and mapped for as long as the region lives. All racing
        // accesses are atomic by the contract of the unsafe bulk methods.
        let words = unsafe { &*self.range.base().add(off as usize).cast() };
        Ok(Line { region: self, off, words })
    }

    /// The line at `off`, to be stored to.
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

    /// Stores the words of `mask` (bit i: word i) of the line at `off`, one after another, each as by
    /// [`store_u64`](Self::store_u64).
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when the line is not inside the region, or its offset is not aligned; nothing is
    /// stored then.
    #[inline(always)]
    pub fn store_line(&self, off: u64, mask: u8, values: &[u64; 8]) -> Result<(), OutOfBounds> {
        let words = self.writable_line(off)?.0.words;
        if self.instrumented {
            self.store_line_with_care(words, off, mask, values);
            return Ok(());
        }
        if mask.is_power_of_two() {
            let word = mask.trailing_zeros() as usize;
            words[word].store(values[word], Ordering::Release);
            return Ok(());
        }
        // The mask differs from line to line, so branches on it would be mispredicted. Words outside it go to
        // a dummy.
        let nowhere = AtomicU64::new(0);
        // Without this the compiler would drop the stores to the dummy.
        let nowhere = black_box(&nowhere);
        for (i, (word, value)) in words.iter().zip(values).enumerate() {
            select_unpredictable(mask >> i & 1 != 0, word, nowhere).store(*value, Ordering::Release);
        }
        Ok(())
    }

    /// A handle that stores words of many lines: base and length are loaded once for all of them.
    ///
    /// # Panics
    ///
    /// If the region was opened read-only.
    #[inline(always)]
    pub fn line_stores(&self) -> LineStores<'_> {
        self.assert_writable();
        let lines = if self.instrumented { 0 } else { self.len() / LINE_BYTES };
        LineStores { region: self, base: self.range.base(), lines }
    }

    #[cold]
    #[inline(never)]
    fn store_line_with_care(&self, words: &[AtomicU64; WORDS], off: u64, mask: u8, values: &[u64; WORDS]) {
        let chosen = (0..WORDS).filter(|word| mask >> word & 1 != 0);
        if self.is_counted {
            let off_of = |word: usize| off + WORD_BYTES * word as u64;
            chosen.for_each(|word| self.store_with_care(&words[word], off_of(word), values[word]));
            return;
        }
        let _inside = self.enter(off, LINE_BYTES);
        chosen.for_each(|word| words[word].store(values[word], Ordering::Release));
    }

    #[inline(never)]
    fn store_line_in_some_order(&self, off: u64, mask: u8, values: &[u64; WORDS]) -> Result<(), OutOfBounds> {
        if self.is_counted && self.disorder.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            self.line(off)?;
            let chosen = (0..WORDS).rev().filter(|word| mask >> word & 1 != 0);
            return chosen
                .into_iter()
                .try_for_each(|word| self.store_u64(off + WORD_BYTES * word as u64, values[word]));
        }
        self.store_line(off, mask, values)
    }
}

/// Stores words of many lines of a region ([`Region::line_stores`]).
#[derive(Debug, Clone, Copy)]
pub struct LineStores<'r> {
    region: &'r Region,
    base: *mut u8,
    /// The number of the region's lines; 0 where stores are counted or observed.
    lines: u64,
}

impl LineStores<'_> {
    /// Stores the words of `mask` (bit i: word i) of the line at `off`, each as by [`Region::store_u64`], but
    /// in any order. Uses one masked store where the processor has it, which saves instructions and
    /// store-buffer entries.
    ///
    /// # Errors
    ///
    /// As for [`Region::store_line`].
    #[inline(always)]
    pub fn store_in_any_order(self, off: u64, mask: u8, values: &[u64; WORDS]) -> Result<(), OutOfBounds> {
        if line_number(off) >= self.lines {
            return self.region.store_line_in_some_order(off, mask, values);
        }
        // SAFETY: in bounds and aligned (checked), and mapped for as long as the region lives.
        let line = unsafe { self.base.add(off as usize).cast::<u64>() };
        if mask.is_power_of_two() {
            // A plain store forwards to later loads, which a masked one does not.
            let word = mask.trailing_zeros() as usize % WORDS;
            // SAFETY: a word of the line.
            let place = unsafe { AtomicU64::from_ptr(line.add(word)) };
            place.store(values[word], Ordering::Release);
            return Ok(());
        }
        if !self.region.stores_masked {
            return self.region.store_line(off, mask, values);
        }
        // SAFETY: the line is mapped, and the processor has masked stores.
        unsafe { store_masked(line, mask, values) };
        Ok(())
    }
}

/// Whether the processor stores chosen words of a line with one instruction.
pub(super) fn has_masked_stores() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return is_x86_feature_detected!("avx512f");
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    false
}

/// Stores the words of `mask` with one instruction. The processor must [support that](has_masked_stores).
///
/// ORDER: each word is stored as a whole, since processors do not split aligned elements of eight bytes, and
/// after all earlier stores, as every store on x86-64 is (release). The words may become visible in any order
/// among themselves.
///
/// # Safety
///
/// `words` is a mapped line that may be stored to.
#[inline(always)]
unsafe fn store_masked(words: *mut u64, mask: u8, values: &[u64; WORDS]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: stores to words of the line only, by the caller's promise; all values are readable, and the
    // changed registers are declared. No SSE or AVX instruction names a part of zmm16, so no upper half has
    // to be cleared.
    unsafe {
        core::arch::asm!(
            "kmovw k1, {mask:e}",
            "vmovdqu64 zmm16, [{values}]",
            "vmovdqu64 [{words}]{{k1}}, zmm16",
            mask = in(reg) u32::from(mask),
            values = in(reg) values.as_ptr(),
            words = in(reg) words,
            out("k1") _,
            out("zmm16") _,
            options(nostack, preserves_flags)
        )
    };
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    unreachable!("{words:?} {mask} {values:?}: a processor that cannot do it");
}

impl Line<'_> {
    /// As [`Region::load_u64`], of one of the line's words.
    #[inline(always)]
    pub fn load(&self, word: usize) -> u64 {
        self.region.note_load(self.off_of(word), WORD_BYTES);
        self.words[word].load(Ordering::Acquire)
    }

    /// As [`load`](Self::load), without the check whether the region [reports loads](Region::reports_loads):
    /// it must not.
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
            region.store_with_care(&words[word], self.0.off_of(word), value);
        } else {
            words[word].store(value, Ordering::Release);
        }
    }

    /// As [`Region::flush`], of the line.
    #[inline(always)]
    pub fn flush(&self) {
        let Line { region, words, off } = self.0;
        if let Flusher::Instruction(instruction) = region.flusher
            && !region.instrumented
        {
            counters::note_write_back(1);
            // SAFETY: the line is mapped; the instruction was detected or forced by the user, who then
            // vouches for it.
            unsafe { instruction.flush_line(words.as_ptr().cast()) };
        } else {
            region.flush(off, LINE_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::{Observer, ThreadTag};
    use crate::{Access, RegionOptions};
    use std::sync::{Arc, Mutex};

    fn mapped() -> Region {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        Region::map_file(file, 4096, &RegionOptions::default(), Access::ReadWrite).unwrap()
    }

    fn line_of(region: &Region, off: u64) -> [u64; WORDS] {
        std::array::from_fn(|word| region.load_u64(off + WORD_BYTES * word as u64).unwrap())
    }

    /// With masked stores, where the processor has them, and without.
    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn chosen_words_are_stored_and_no_others() {
        let mut region = mapped();
        let before = [[0x1111; WORDS], [0x2222; WORDS], [0x3333; WORDS]];
        for masked in [has_masked_stores(), false] {
            region.stores_masked = masked;
            for mask in 0..=255_u8 {
                before
                    .iter()
                    .zip([0, 64, 128])
                    .for_each(|(line, off)| region.store_words(off, line).unwrap());
                let values: [u64; WORDS] = std::array::from_fn(|word| u64::from(mask) << 8 | word as u64);
                region.line_stores().store_in_any_order(64, mask, &values).unwrap();
                let expected: [u64; WORDS] =
                    std::array::from_fn(
                        |word| {
                            if mask >> word & 1 != 0 { values[word] } else { before[1][word] }
                        },
                    );
                let found = [0, 64, 128].map(|off| line_of(&region, off));
                assert_eq!(found, [before[0], expected, before[2]], "{mask:#b}, masked: {masked}");
            }
            for off in [1, 8, 4096, 4096 - 8, !63, u64::MAX] {
                let stores = region.line_stores();
                assert!(stores.store_in_any_order(off, 0xFF, &[9; WORDS]).is_err(), "{off:#x}");
                assert!(stores.store_in_any_order(off, 0x10, &[9; WORDS]).is_err(), "{off:#x}");
            }
        }
    }

    #[derive(Default)]
    struct Stored(Mutex<Vec<u64>>);

    impl Observer for Stored {
        fn store(&self, _: ThreadTag, off: u64, _: &[u8]) {
            self.0.lock().unwrap().push(off);
        }
        fn flush(&self, _: ThreadTag, _: u64) {}
        fn fence(&self, _: ThreadTag) {}
    }

    /// The crash simulator has to find code that relies on an order.
    #[test]
    fn an_observer_is_told_of_words_in_either_order() {
        let stored = Arc::new(Stored::default());
        let region = Region::simulated(&[0; 4096], 4096, Some(stored.clone())).unwrap();
        (0..2).for_each(|_| region.line_stores().store_in_any_order(64, 0b1010, &[7; WORDS]).unwrap());
        assert_eq!(*stored.0.lock().unwrap(), [72, 88, 88, 72]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn words_that_are_not_there_are_not_loaded() {
        let region = mapped();
        region.store_words(4096 - 16, &[5, 6]).unwrap();
        let words = region.loadable_words();
        assert_eq!([4096 - 16, 4096 - 8].map(|off| words.load(off)), [Some(5), Some(6)]);
        for off in [4096, 4096 - 4, 1, u64::MAX - 7, u64::MAX] {
            assert_eq!(words.load(off), None, "{off:#x}");
            assert!(words.words(off, 1).is_none(), "{off:#x}");
        }
        for (off, count) in [(4096 - 16, 3), (8, 512), (8, u64::MAX), (0, u64::MAX / 8 + 1)] {
            assert!(words.words(off, count).is_none(), "{count} words at {off}");
        }
        assert_eq!(words.words(4096 - 16, 2).map(<[_]>::len), Some(2));
        region.grow(8192).unwrap();
        assert_eq!((words.load(4096), region.loadable_words().load(4096)), (None, Some(0)));
    }

    struct Loads;

    impl Observer for Loads {
        fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
        fn flush(&self, _: ThreadTag, _: u64) {}
        fn fence(&self, _: ThreadTag) {}
        fn wants_loads(&self) -> bool {
            true
        }
    }

    #[test]
    fn where_loads_are_reported_none_goes_by() {
        let region = Region::simulated(&[0; 4096], 4096, Some(Arc::new(Loads))).unwrap();
        assert_eq!(region.loadable_words().load(0), None);
        assert!(region.loadable_words().words(0, 1).is_none());
    }
}
