//! A region: mapped persistent memory and the verbs store, flush, fence, persist.

mod bulk;
mod journaled;
mod line;
mod map;
mod options;
mod paging;
mod persist;
mod prefetch;
mod report;
mod word;

pub use line::{Line, LineStores, LoadableWords, WritableLine};
pub use options::RegionOptions;
pub use prefetch::prefetch_for_store;

use crate::flush::FlushInstruction;
use crate::map::{AddressRange, Sharing};
use crate::observer::Observer;
use crate::paging::Paging;
use crate::private::Inside;
use crate::{Domain, LINE_BYTES, OutOfBounds, WORD_BYTES};
use journaled::Journaled;
use persist::{DirtyPages, Flusher};
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A mapped file (or, for the simulator, anonymous memory), addressed by byte offsets.
///
/// A region is shared between threads. Racing words are only reached by [`load_u64`](Self::load_u64) and
/// [`store_u64`](Self::store_u64); the `unsafe` methods move bulk data that no other thread touches.
pub struct Region {
    pub(crate) range: AddressRange,
    /// Bytes in use. Shrinks only by an unused part (`shrink.rs`).
    len: AtomicU64,
    /// The whole words of `len`; 0 where loads are reported, so that the bounds check of a load fails and
    /// leads to the report, which costs other regions nothing.
    loadable_words: AtomicU64,
    pub(crate) file: Option<Arc<File>>,
    pub(crate) journal: Option<Journaled>,
    pub(crate) paging: Paging,
    /// Whether new pages are mapped at once when the region grows.
    pub(crate) prefaults: bool,
    /// Whether the region grows in huge pages.
    pub(crate) huge_pages: bool,
    pub(crate) sharing: Sharing,
    domain: Domain,
    flusher: Flusher,
    /// Whether large copies bypass the caches.
    non_temporal: bool,
    /// Whether small copies that begin at a line bypass the caches, too.
    streams_single_lines: bool,
    max_bytes: u64,
    /// Whether stores take a longer way: they are counted or observed, or there is a journal.
    instrumented: bool,
    /// Whether stores, flushes and fences are counted or observed.
    is_counted: bool,
    /// Whether chosen words of a line are stored with one instruction.
    stores_masked: bool,
    /// Whether the observer wants loads and prefetches, too.
    reports_loads: bool,
    observer: Option<Arc<dyn Observer>>,
    /// The number of reported lines whose words arrive in any order.
    disorder: AtomicU64,
    dirty: Mutex<DirtyPages>,
    /// Held while dirty pages are written, so that a fence waits for another thread's write-back.
    syncing: Mutex<()>,
    sync_failed: AtomicBool,
    /// Another descriptor of the file has taken over the lock.
    pub(crate) keeps_lock: AtomicBool,
    pub(crate) growing: Mutex<()>,
    /// In a simulated region, where each [`CUT_MARK`](crate::CUT_MARK) lies.
    pub(crate) marked_at: Mutex<Vec<u64>>,
}

impl Region {
    /// Length in bytes. [Shrinks](Self::shrink) only on request.
    #[inline(always)]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Makes the region empty in children of this process, so that every access by offset fails there
    /// ([`OutOfBounds::was_left_behind`]). Without this an access ends the child. Does nothing for a region
    /// without a file: the child has a copy of it.
    ///
    /// # Safety
    ///
    /// The region must not move until it is dropped; or it is leaked.
    pub unsafe fn be_empty_in_children(&self) {
        if let Some(entry) = self.range.entry() {
            // SAFETY: the words are in the region, whose range disarms the entry when it is dropped.
            unsafe { entry.clear_too([&self.len, &self.loadable_words]) };
        }
    }

    /// Makes the first `bytes` bytes accessible, which are mapped.
    pub(crate) fn set_len(&self, bytes: u64) {
        // ORDER: pairs with the loads in `len` and `load_u64`; the mapping was made before.
        self.len.store(bytes, Ordering::Release);
        self.journal.iter().for_each(|journaled| journaled.pages.note_length(bytes));
        if !self.reports_loads {
            self.loadable_words.store(bytes / WORD_BYTES, Ordering::Release);
        }
    }

    /// Whether an observer wants to know of loads and prefetches.
    #[inline(always)]
    pub fn reports_loads(&self) -> bool {
        self.reports_loads
    }

    /// Whether a file is persistent memory, so that [`Durability::Auto`](crate::Durability::Auto) is
    /// [`Dax`](crate::Durability::Dax).
    pub fn is_dax(file: &File) -> bool {
        AddressRange::maps_sync(file)
    }

    /// Its file, if it has one.
    pub fn file(&self) -> Option<&File> {
        self.file.as_deref()
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The length up to which the region may grow.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// The durability domain.
    #[inline(always)]
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// The flush instruction in use, if the domain needs one.
    pub fn flush_instruction(&self) -> Option<FlushInstruction> {
        match self.flusher {
            Flusher::Instruction(i) => Some(i),
            _ => None,
        }
    }

    /// Whether large copies bypass the caches.
    pub fn non_temporal(&self) -> bool {
        self.non_temporal
    }

    /// Whether [`write_and_flush`](Self::write_and_flush) takes even a single line past the caches.
    #[inline(always)]
    pub fn streams_single_lines(&self) -> bool {
        self.streams_single_lines
    }

    #[inline(always)]
    fn check(&self, off: u64, bytes: u64) -> Result<(), OutOfBounds> {
        let region_bytes = self.len();
        if off <= region_bytes && bytes <= region_bytes - off {
            Ok(())
        } else {
            Err(OutOfBounds { off, bytes, region_bytes })
        }
    }

    /// Enters the pages of a range, to store there, where there is a journal (`private/mod.rs`, P1).
    #[inline]
    fn enter(&self, off: u64, bytes: u64) -> Option<Inside> {
        self.journal.as_ref().map(|journaled| journaled.pages.enter(off, bytes))
    }

    #[inline(always)]
    fn assert_writable(&self) {
        assert!(self.sharing != Sharing::SharedReadOnly, "a store to a region opened read-only");
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // The journal's threads drop pages of the range, which is about to be unmapped.
        if let Some(journal) = &self.journal {
            journal.stop();
        }
        // Under Miri the memory is freed at once, so that a use after free is found.
        if self.file.is_none() && !cfg!(miri) {
            self.range.keep_idle();
        }
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region")
            .field("bytes", &self.len())
            .field("domain", &self.domain)
            .field("flusher", &self.flusher)
            .finish_non_exhaustive()
    }
}

/// The number of the word at `off`; if `off` is not aligned, a number beyond the end of any region.
#[inline(always)]
fn word_number(off: u64) -> u64 {
    off.rotate_right(WORD_BYTES.trailing_zeros())
}

/// The number of the line at `off`; if `off` is not aligned, a number beyond the end of any region.
#[inline(always)]
fn line_number(off: u64) -> u64 {
    off.rotate_right(LINE_BYTES.trailing_zeros())
}
