//! The volatile state of a slab: which blocks are allocated, reserved, or freed and still in limbo.

use super::classes::Class;
use super::primitives::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::layout::{ChunkWord, PmSlab, SLAB_TAG};
use crate::{Error, Result};
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use tembo_pmem::{Region, prefetch_for_store, size_of};

/// A slab that this process uses. The fields that are loaded when a block is freed are first, in other lines
/// than the fields that change.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slab {
    /// Offset of the slab on media.
    pub off: u64,
    /// Where its blocks begin.
    first_off: u64,
    words: Box<[SlabWord]>,
    pub class: Class,
    /// Class number.
    pub class_number: usize,
    /// The zone that the slab lies in; `chunk` is its first chunk there.
    pub zone: u64,
    pub chunk: u64,
    /// Whether the chunk table on media names this slab. A new slab is published together with the first
    /// block allocated from it.
    published: AtomicBool,
    /// Blocks from this one on have never been handed out and read as zero on media.
    zero_from: AtomicU64,
    /// The bitmap word at which the search for a free block begins; mostly the first word that has one.
    first_free: AtomicUsize,
    /// Whether a lane allocates from the slab, or the partial list has it, or a thread is about to put it
    /// there.
    held: AtomicBool,
}

/// A word of a slab's bitmap, in DRAM.
#[derive(Debug, Default)]
struct SlabWord {
    /// Bits of blocks that cannot be taken: those of the media bitmap, of blocks that a transaction has
    /// reserved, and of freed blocks that readers or live records may still look at. Only the lane that owns
    /// the slab sets bits; any thread may clear them.
    busy: AtomicU64,
    /// The media bitmap without the blocks that open transactions free. Copied to DRAM because a load from a
    /// line that has just been flushed takes as long as the flush.
    media: AtomicU64,
}

/// A reference to a slab that stays in the table because one of its blocks is not free.
///
/// The allocator keeps a slab in its table until all its blocks are free, and a block is not free from its
/// reservation until its release. The holder of a block may therefore refer to its slab without a reference
/// count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlabRef {
    slab: NonNull<Slab>,
}

// SAFETY: threads share slabs (all parts that change are atomic), and the reference is valid on every thread.
unsafe impl Send for SlabRef {}
// SAFETY: as above.
unsafe impl Sync for SlabRef {}

impl SlabRef {
    /// # Safety
    ///
    /// `slab` comes from an [`Arc`] of which the table has a share. The reference is not used after the last
    /// block for which it is kept was released. If it is kept for no block, it is not used after the table
    /// may have dropped its share.
    pub(crate) unsafe fn new(slab: NonNull<Slab>) -> SlabRef {
        SlabRef { slab }
    }

    /// A counted reference, which keeps the slab alive after the block is released.
    pub(crate) fn counted(&self) -> Arc<Slab> {
        let slab = self.slab.as_ptr();
        // SAFETY: the pointer comes from an `Arc`, as `new` requires; the table has a share of it, as below.
        unsafe {
            Arc::increment_strong_count(slab);
            Arc::from_raw(slab)
        }
    }

    pub(crate) fn is(&self, other: &SlabRef) -> bool {
        self.slab == other.slab
    }
}

impl Deref for SlabRef {
    type Target = Slab;
    #[inline(always)]
    fn deref(&self) -> &Slab {
        // SAFETY: the table keeps the slab alive as long as one of its blocks is not free or a thread is
        // pinned there; the creator promised not to use the reference longer.
        unsafe { self.slab.as_ref() }
    }
}

/// Where a block's bit is on media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BitPlace {
    pub word_off: u64,
    /// The number of the word in the bitmap.
    pub word: usize,
    pub mask: u64,
}

impl Slab {
    /// A new slab: all blocks are free, and it is not published. `is_zero` says that its chunks read as zero
    /// on media.
    pub(crate) fn fresh(
        off: u64,
        zone: u64,
        chunk: u64,
        class_number: usize,
        class: Class,
        is_zero: bool,
    ) -> Slab {
        Slab {
            off,
            first_off: class.first_off(off),
            class,
            words: (0..class.words()).map(|_| SlabWord::default()).collect(),
            class_number,
            zone,
            chunk,
            published: AtomicBool::new(false),
            zero_from: AtomicU64::new(if is_zero { 0 } else { u64::MAX }),
            first_free: AtomicUsize::new(0),
            held: AtomicBool::new(true),
        }
    }

    /// The slab that media has at `off`.
    pub(crate) fn load(
        region: &Region,
        (off, zone, chunk): (u64, u64, u64),
        class_number: usize,
        class: Class,
    ) -> Result<Slab> {
        let tag = region.load_u64(off)?;
        if tag != SLAB_TAG | class_number as u64 {
            let expected = format!("{:#x}", SLAB_TAG | class_number as u64);
            return Err(Error::corrupt("a slab's head", off, expected, format!("{tag:#x}")));
        }
        let slab = Slab::fresh(off, zone, chunk, class_number, class, false);
        for (i, word) in slab.words.iter().enumerate() {
            let bits = region.load_u64(slab.word_off(i))?;
            if bits & !slab.valid_bits(i) != 0 {
                return Err(Error::corrupt(
                    "a slab's bitmap",
                    slab.word_off(i),
                    "no bits past the last block",
                    format!("{bits:#x}"),
                ));
            }
            word.busy.store(bits, Ordering::Relaxed);
            word.media.store(bits, Ordering::Relaxed);
        }
        slab.published.store(true, Ordering::Relaxed);
        slab.held.store(false, Ordering::Relaxed);
        Ok(slab)
    }

    fn word_off(&self, word: usize) -> u64 {
        self.off + size_of::<PmSlab>() as u64 + 8 * word as u64
    }

    /// The bits of a bitmap word that stand for blocks.
    fn valid_bits(&self, word: usize) -> u64 {
        let left = self.class.blocks - 64 * word as u64;
        if left >= 64 { u64::MAX } else { (1 << left) - 1 }
    }

    /// Takes a free block. Returns its number, and whether it reads as zero. The caller owns the slab.
    pub(crate) fn take(&self) -> Option<(u64, bool)> {
        let first = self.first_free.load(Ordering::Relaxed);
        // A block that another thread releases at this moment may be missed.
        let (word, free) = self.free_from(first).or_else(|| self.free_from(0))?;
        if word != first {
            self.first_free.store(word, Ordering::Relaxed);
        }
        let bit = u64::from(free.trailing_zeros());
        self.words[word].busy.fetch_or(1 << bit, Ordering::AcqRel);
        let index = 64 * word as u64 + bit;
        let is_zero = index >= self.zero_from.load(Ordering::Relaxed);
        if is_zero {
            self.zero_from.store(index + 1, Ordering::Relaxed);
        }
        Some((index, is_zero))
    }

    /// Where the block with this number starts.
    pub(crate) fn block_off(&self, index: u64) -> u64 {
        self.class.block_off(self.first_off, index)
    }

    /// The first bitmap word with free blocks, from word `first` on, and the bits of these blocks.
    #[inline]
    fn free_from(&self, first: usize) -> Option<(usize, u64)> {
        let last = self.words.len() - 1;
        (first..=last).find_map(|word| {
            let used = self.words[word].busy.load(Ordering::SeqCst);
            let free = if word < last { !used } else { !used & self.valid_bits(word) };
            (free != 0).then_some((word, free))
        })
    }

    /// Whether a block is available. Reads the bitmap.
    pub(crate) fn has_free_block(&self) -> bool {
        self.free_from(0).is_some()
    }

    /// The range of its blocks.
    pub(crate) fn blocks_span(&self) -> Range<u64> {
        self.class.blocks_span(self.first_off)
    }

    /// The number of the block at `off`.
    #[inline]
    pub(crate) fn block_at(&self, off: u64) -> Result<u64> {
        self.class.index_of(self.first_off, off).ok_or_else(|| {
            Error::corrupt(
                "a block",
                off,
                format!("the start of a {}-byte block", self.class.block_bytes),
                "another offset",
            )
        })
    }

    /// Where the bit of the block with this number is.
    #[inline]
    pub(crate) fn bit(&self, index: u64) -> BitPlace {
        let word = (index / 64) as usize;
        BitPlace { word_off: self.word_off(word), word, mask: 1 << (index % 64) }
    }

    /// Makes the block with this number available again.
    pub(crate) fn release(&self, index: u64) {
        let word = (index / 64) as usize;
        let old = self.words[word].busy.fetch_and(!(1 << (index % 64)), Ordering::SeqCst);
        debug_assert!(old & (1 << (index % 64)) != 0, "a block released twice");
        if word < self.first_free.load(Ordering::Relaxed) {
            self.first_free.store(word, Ordering::Relaxed);
        }
    }

    /// How many blocks are available. Reads the bitmap.
    pub(crate) fn free_blocks(&self) -> u64 {
        let used: u32 = self.words.iter().map(|word| word.busy.load(Ordering::SeqCst).count_ones()).sum();
        self.class.blocks - u64::from(used)
    }

    /// The bytes of the blocks that are free.
    pub(super) fn spare_bytes(&self) -> u64 {
        self.free_blocks() * self.class.block_bytes
    }

    /// The bits of the blocks that are not free.
    pub(super) fn busy_words(&self) -> Vec<u64> {
        self.words.iter().map(|word| word.busy.load(Ordering::SeqCst)).collect()
    }

    /// Whether all blocks that are not free are allocated on media, and no thread is freeing one.
    pub(super) fn has_no_waiting_block(&self) -> bool {
        let mut words = self.words.iter();
        words.all(|word| word.busy.load(Ordering::SeqCst) == word.media.load(Ordering::Acquire))
    }

    /// Whether all of these blocks are still not free.
    pub(super) fn keeps_busy(&self, words: &[u64]) -> bool {
        let mut pairs = self.words.iter().zip(words);
        pairs.all(|(word, busy)| word.busy.load(Ordering::SeqCst) & busy == *busy)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free_blocks() == self.class.blocks
    }

    pub(crate) fn is_published(&self) -> bool {
        self.published.load(Ordering::Acquire)
    }

    pub(crate) fn set_published(&self) {
        self.published.store(true, Ordering::Release);
    }

    /// Claims the slab for a lane or a list; false if another lane or list holds it.
    pub(crate) fn hold(&self) -> bool {
        !self.held.load(Ordering::SeqCst) && !self.held.swap(true, Ordering::AcqRel)
    }

    /// Gives the slab up. ORDER: sequentially consistent, as are the other three accesses of this protocol:
    /// this swap is visible before the caller looks at the bitmap. A thread that has cleared a bit and found
    /// the slab still held is then seen by that look.
    pub(crate) fn let_go(&self) {
        self.held.swap(false, Ordering::SeqCst);
    }

    /// Claims the block of this bit in order to free it. False if media does not have it allocated, or
    /// another transaction is about to free it: a block is released once, whatever its owners do.
    pub(crate) fn claim(&self, bit: BitPlace) -> bool {
        self.words[bit.word].media.fetch_and(!bit.mask, Ordering::AcqRel) & bit.mask != 0
    }

    /// Prefetches the word that [`release`](Self::release) changes.
    pub(crate) fn prefetch_for_release(&self, index: u64) {
        prefetch_for_store(&self.words[(index / 64) as usize].busy);
    }

    /// Prefetches the word that [`claim`](Self::claim) loads.
    pub(crate) fn prefetch(&self, bit: BitPlace) {
        prefetch_for_store(&self.words[bit.word].media);
    }

    /// Withdraws a claim.
    pub(crate) fn unclaim(&self, bit: BitPlace) {
        self.words[bit.word].media.fetch_or(bit.mask, Ordering::AcqRel);
    }

    /// Sets or clears bits in the bitmap on media.
    #[inline(always)]
    pub(crate) fn change_media(
        &self,
        region: &Region,
        bits: BitPlace,
        set: bool,
        is_only_lane: bool,
    ) -> Result<()> {
        let (mirror, mask) = (&self.words[bits.word].media, bits.mask);
        if is_only_lane {
            let old = mirror.load(Ordering::Relaxed);
            let new = if set { old | mask } else { old & !mask };
            mirror.store(new, Ordering::Release);
            region.store_u64(bits.word_off, new)?;
            return Ok(());
        }
        if set {
            mirror.fetch_or(mask, Ordering::AcqRel);
        } else {
            mirror.fetch_and(!mask, Ordering::AcqRel);
        }
        Ok(region.change_bits(bits.word_off, mask, set, false)?)
    }

    /// Notes that the slab's new head on media shows the block of this bit as allocated.
    pub(crate) fn note_allocated(&self, bit: BitPlace) {
        self.words[bit.word].media.fetch_or(bit.mask, Ordering::AcqRel);
    }

    /// The bytes of a new slab's head and bitmap, with the blocks `taken` allocated.
    pub(crate) fn new_head(&self, taken: impl Iterator<Item = u64>) -> Vec<u8> {
        let mut head = vec![0; 8 + 8 * self.class.words()];
        head[..8].copy_from_slice(&(SLAB_TAG | self.class_number as u64).to_le_bytes());
        for bit in taken.map(|index| self.bit(index)) {
            let at = (bit.word_off - self.off) as usize;
            let word = u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes")) | bit.mask;
            head[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        head
    }

    /// The chunk words that name the slab on media, by chunk number.
    pub(crate) fn chunk_words(&self) -> impl Iterator<Item = (u64, ChunkWord)> {
        let (first, class) = (self.chunk, self.class_number);
        (0..self.class.chunks).map(move |back| {
            let word = if back == 0 { ChunkWord::Slab { class } } else { ChunkWord::SlabRest { back } };
            (first + back, word)
        })
    }
}
