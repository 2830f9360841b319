//! A region: mapped persistent memory and the verbs store, flush, fence, persist.

mod line;

pub use line::{Line, LineStores, LoadableWords, WritableLine};

use crate::flush::{self, FlushInstruction};
use crate::map::{AddressRange, PAGE_BYTES, Sharing, round_up};
use crate::observer::{Observer, ThreadTag};
use crate::{
    Domain, Durability, LINE_BYTES, OutOfBounds, RegionError, SyncError, WORD_BYTES, counters, domain,
};
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Names the instruction to flush with: `clwb`, `clflushopt`, `clflush` or `dc-cvap`.
pub(crate) const ENV_FLUSH: &str = "TEMBO_FLUSH";
/// `0` switches non-temporal stores off, `1` on.
pub(crate) const ENV_NON_TEMPORAL: &str = "TEMBO_NON_TEMPORAL";

/// Address space reserved when no maximum is given: 4 TiB (less where the system refuses that).
const DEFAULT_MAX_BYTES: u64 = 4 << 40;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Stores go to the file.
    ReadWrite,
    /// The memory cannot be stored to.
    ReadOnly,
    /// Stores are kept in this process and lost when the region is dropped; the file is not changed.
    Private,
}

/// How a region is mapped.
#[derive(Debug, Clone, Default)]
pub struct RegionOptions {
    /// The durability asked for.
    pub durability: Durability,
    /// The flush instruction to use whatever the processor reports; tools that run the program may hide
    /// instructions that they support. The variable `TEMBO_FLUSH` comes before this.
    pub flush_instruction: Option<FlushInstruction>,
    /// Whether copies may bypass the caches. By default large ones do, and small ones where that is faster; this decides for both.
    /// `TEMBO_NON_TEMPORAL` comes before this.
    pub non_temporal: Option<bool>,
    /// The length up to which the region may grow, in bytes.
    pub max_bytes: Option<u64>,
    /// Whether to map every page when the region is opened, and when it grows, rather than at the first access. Takes time then (some
    /// 0.3 s per GiB of pages of 4 KiB), and saves each page's fault later.
    pub prefault: bool,
    /// Whether a file on tmpfs lies in huge pages, of 2 MiB, if the system can do that (Linux from 6.1 on); other files are not concerned. What the
    /// file has already is gathered in them when it is opened, which takes some 0.5 s per GiB if it is not there yet.
    pub huge_pages: bool,
    /// Whether to count words, lines and fences ([`snapshot`](crate::snapshot)).
    pub count: bool,
}

/// What a flush does in this region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flusher {
    Nothing,
    Instruction(FlushInstruction),
    Pages,
    Record,
}

/// Pages flushed since the last synchronisation, as byte ranges.
#[derive(Default)]
struct DirtyPages {
    ranges: Vec<(u64, u64)>,
}

/// A mapped file (or, for the simulator, anonymous memory), addressed by byte offsets.
///
/// A region is shared between threads. Racing words are only reached by [`load_u64`](Self::load_u64) and
/// [`store_u64`](Self::store_u64); the `unsafe` methods move bulk data that no other thread touches.
pub struct Region {
    pub(crate) range: AddressRange,
    /// Bytes mapped so far. Only grows.
    len: AtomicU64,
    /// The whole words of `len`, where loads are reported to nobody; else 0, so that the bounds check of a load fails and leads to
    /// the report, and no other load pays for it.
    loadable_words: AtomicU64,
    pub(crate) file: Option<File>,
    /// Whether what the region grows by is mapped at once.
    pub(crate) prefaults: bool,
    /// Whether it grows in huge pages.
    pub(crate) huge_pages: bool,
    pub(crate) sharing: Sharing,
    domain: Domain,
    flusher: Flusher,
    /// Whether large copies bypass the caches.
    non_temporal: bool,
    /// Whether small ones do that begin with a line.
    streams_single_lines: bool,
    max_bytes: u64,
    /// Whether stores, flushes and fences are counted or observed.
    instrumented: bool,
    /// Whether chosen words of a line are stored with one instruction.
    stores_masked: bool,
    /// Whether the observer wants loads and prefetches, too.
    reports_loads: bool,
    observer: Option<Arc<dyn Observer>>,
    /// How many lines were reported whose words arrive in any order.
    disorder: AtomicU64,
    dirty: Mutex<DirtyPages>,
    /// Held while dirty pages are being written, so that a fence waits for another thread's.
    syncing: Mutex<()>,
    sync_failed: AtomicBool,
    pub(crate) growing: Mutex<()>,
}

impl Region {
    /// Maps the first `bytes` bytes of `file`, which is at least that long.
    ///
    /// # Errors
    ///
    /// [`RegionError::NotDax`] when DAX was asked for and is not there, and failures of the system.
    pub fn map_file(
        file: File,
        bytes: u64,
        options: &RegionOptions,
        access: Access,
    ) -> Result<Region, RegionError> {
        let max_bytes = options.max_bytes.unwrap_or(DEFAULT_MAX_BYTES).max(bytes);
        let mapped_bytes = round_up(bytes, PAGE_BYTES);
        let wanted = if access == Access::ReadWrite { max_bytes } else { mapped_bytes };
        let mut range = AddressRange::reserve(wanted, mapped_bytes)?;
        range.keep_children_away(&file)?;
        let max_bytes = max_bytes.min(range.bytes());
        let (sharing, domain) = map_first(&range, &file, mapped_bytes, options.durability, access)?;
        if access == Access::ReadWrite && matches!(domain, Domain::Synced | Domain::Dax | Domain::DaxCpuCache)
        {
            // PERSIST: what is there already may have been written in a weaker domain, and be in the page cache or
            // a processor's cache only; what is written from now on refers to it.
            rustix::fs::fsync(&file).map_err(|e| RegionError::io("synchronising the pool file", e))?;
        }
        range.advise_huge(0, mapped_bytes);
        if options.huge_pages && access == Access::ReadWrite {
            crate::grow::gather_into_huge(&file, &range, mapped_bytes);
        }
        if options.prefault {
            range.populate(0, mapped_bytes, access);
        }
        let flusher = choose_flusher(domain, access, options)?;
        let asked = env_non_temporal()?.or(options.non_temporal);
        let (non_temporal, streams_single_lines) = match flusher {
            Flusher::Instruction(_) => {
                (asked.unwrap_or(true), asked.unwrap_or_else(flush::streams_single_lines))
            }
            _ => (false, false),
        };
        Ok(Region {
            range,
            len: AtomicU64::new(bytes),
            loadable_words: AtomicU64::new(bytes / WORD_BYTES),
            file: Some(file),
            prefaults: options.prefault,
            huge_pages: options.huge_pages,
            sharing,
            domain,
            flusher,
            non_temporal,
            streams_single_lines,
            max_bytes,
            instrumented: options.count,
            stores_masked: !options.count && line::has_masked_stores(),
            reports_loads: false,
            observer: None,
            disorder: AtomicU64::new(0),
            dirty: Mutex::default(),
            syncing: Mutex::default(),
            sync_failed: AtomicBool::new(false),
            growing: Mutex::default(),
        })
    }

    /// Anonymous memory with the contents of `image`, whose stores, flushes and fences are counted and
    /// reported to `observer`.
    ///
    /// # Errors
    ///
    /// Failures of the system to provide memory.
    pub fn simulated(
        image: &[u8],
        max_bytes: u64,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Region, RegionError> {
        let bytes = image.len() as u64;
        let max_bytes = max_bytes.max(bytes);
        let mapped_bytes = round_up(bytes, PAGE_BYTES);
        let range = AddressRange::reserve_dirty(max_bytes, mapped_bytes)?;
        // SAFETY: the destination is mapped writable for `mapped_bytes`, at least `image.len()`, nobody else
        // has it, and it cannot overlap the caller's slice.
        unsafe {
            core::ptr::copy_nonoverlapping(image.as_ptr(), range.base(), image.len());
            core::ptr::write_bytes(range.base().add(image.len()), 0, mapped_bytes as usize - image.len());
        }
        let reports_loads = observer.as_ref().is_some_and(|observer| observer.wants_loads());
        Ok(Region {
            range,
            len: AtomicU64::new(bytes),
            loadable_words: AtomicU64::new(if reports_loads { 0 } else { bytes / WORD_BYTES }),
            reports_loads,
            file: None,
            prefaults: false,
            huge_pages: false,
            sharing: Sharing::Private,
            domain: Domain::Simulated,
            flusher: Flusher::Record,
            non_temporal: false,
            streams_single_lines: false,
            max_bytes,
            instrumented: true,
            stores_masked: false,
            observer,
            disorder: AtomicU64::new(0),
            dirty: Mutex::default(),
            syncing: Mutex::default(),
            sync_failed: AtomicBool::new(false),
            growing: Mutex::default(),
        })
    }

    /// Length in bytes. Grows, never shrinks.
    #[inline(always)]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Has the region be empty in children of this process, so that every access by offset fails there
    /// ([`OutOfBounds::was_left_behind`]). Without this it ends them. Does nothing where there is no file: such a region belongs to the child, too.
    ///
    /// # Safety
    ///
    /// The region stays where it is until it is dropped, or, as memory that is not used again, for ever.
    pub unsafe fn be_empty_in_children(&self) {
        if let Some(entry) = self.range.entry() {
            // SAFETY: the words are in the region, whose range disarms the entry when it is dropped.
            unsafe { entry.clear_too([&self.len, &self.loadable_words]) };
        }
    }

    /// Makes the first `bytes` bytes accessible, which are mapped.
    pub(crate) fn set_len(&self, bytes: u64) {
        // ORDER: pairs with the loads in `len` and `load_u64`; the mapping comes before.
        self.len.store(bytes, Ordering::Release);
        if !self.reports_loads {
            self.loadable_words.store(bytes / WORD_BYTES, Ordering::Release);
        }
    }

    /// Whether an observer wants to know of loads and prefetches.
    #[inline(always)]
    pub fn reports_loads(&self) -> bool {
        self.reports_loads
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

    /// Tells an observer that wants loads of bytes that were read through [`bytes`](Self::bytes), which itself cannot
    /// know which of them are. Costs a predictable branch elsewhere.
    #[inline(always)]
    pub fn note_load(&self, off: u64, bytes: u64) {
        if self.reports_loads {
            self.report_load(off, bytes);
        }
    }

    #[cold]
    #[inline(never)]
    fn report_load(&self, off: u64, bytes: u64) {
        if let Some(observer) = &self.observer {
            observer.load(ThreadTag::current(), off, bytes);
        }
    }

    #[cold]
    #[inline(never)]
    fn report_prefetch(&self, off: u64) {
        if let Some(observer) = &self.observer {
            observer.prefetch(ThreadTag::current(), off / LINE_BYTES);
        }
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
            self.note_store(off, &value.to_le_bytes());
        }
        word.store(value, Ordering::Release);
        Ok(())
    }

    /// Words of the region, to be loaded from while others may store to them.
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

    /// As [`words`](Self::words), of which nobody is told that they are loaded.
    #[inline]
    fn unread_words(&self, off: u64, count: u64) -> Result<&[AtomicU64], OutOfBounds> {
        let bytes = count.saturating_mul(WORD_BYTES);
        self.check(off, bytes)?;
        if !off.is_multiple_of(WORD_BYTES) {
            return Err(OutOfBounds { off, bytes, region_bytes: self.len() });
        }
        // SAFETY: in bounds and aligned (checked), and mapped for as long as the region lives. The shared slice claims nothing of
        // the words' values, and who loads keeps to what the unsafe bulk methods ask for.
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
            return self.store_and_note_words(off, values);
        }
        for (word, value) in words.iter().zip(values) {
            word.store(*value, Ordering::Release);
        }
        Ok(())
    }

    #[cold]
    fn store_and_note_words(&self, off: u64, values: &[u64]) -> Result<(), OutOfBounds> {
        let offs = (off..).step_by(WORD_BYTES as usize);
        offs.zip(values).try_for_each(|(off, value)| self.store_u64(off, *value))
    }

    /// Sets (`set`) or clears the bits of `mask` in an aligned word atomically.
    ///
    /// `alone`: no other thread stores to the word meanwhile. That saves a locked instruction, which would wait
    /// for all write-backs under way.
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
        if self.instrumented {
            self.note_update(off, || changed(word.load(Ordering::Acquire)));
        }
        if set {
            word.fetch_or(mask, Ordering::AcqRel);
        } else {
            word.fetch_and(!mask, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Raises an aligned word to `value` atomically, if it is smaller; returns the old word.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when the word is not inside the region or not aligned.
    pub fn raise_u64(&self, off: u64, value: u64) -> Result<u64, OutOfBounds> {
        let word = self.word(off)?;
        self.assert_writable();
        if self.instrumented {
            self.note_update(off, || word.load(Ordering::Acquire).max(value));
        }
        Ok(word.fetch_max(value, Ordering::AcqRel))
    }

    /// Borrows bytes of the region.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when they are not all inside the region.
    ///
    /// # Safety
    ///
    /// Nobody stores to the range while the slice lives.
    #[inline(always)]
    pub unsafe fn bytes(&self, off: u64, bytes: u64) -> Result<&[u8], OutOfBounds> {
        self.check(off, bytes)?;
        // SAFETY: in bounds (checked), mapped and initialised for the life of the region; no concurrent store
        // by the caller's promise.
        Ok(unsafe { core::slice::from_raw_parts(self.range.base().add(off as usize), bytes as usize) })
    }

    /// Copies bytes into memory that nobody else looks at. Not flushed.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when they would not all be inside the region.
    ///
    /// # Safety
    ///
    /// No other thread accesses the range during the call, and no slice of it is borrowed.
    #[inline(always)]
    pub unsafe fn write(&self, off: u64, data: &[u8]) -> Result<(), OutOfBounds> {
        self.check(off, data.len() as u64)?;
        self.assert_writable();
        if self.instrumented {
            self.note_write(off, data);
        }
        // SAFETY: in bounds (checked); exclusive by the caller's promise; `data` is a live slice, hence not in
        // the range.
        unsafe {
            core::ptr::copy_nonoverlapping(data.as_ptr(), self.range.base().add(off as usize), data.len())
        };
        Ok(())
    }

    /// As [`write_and_flush`](Self::write_and_flush), of a region that the caller has alone.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when they would not all be inside the region.
    pub fn write_and_flush_alone(&mut self, off: u64, data: &[u8]) -> Result<(), OutOfBounds> {
        // SAFETY: `&mut self` means that nobody accesses the region, and that nothing borrows from it.
        unsafe { self.write_and_flush(off, data) }
    }

    /// Copies bytes into memory that nobody else looks at, and starts their write-back, past the caches
    /// where that is faster. The words of a line may reach media in any order.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when they would not all be inside the region.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    #[inline]
    pub unsafe fn write_and_flush(&self, off: u64, data: &[u8]) -> Result<(), OutOfBounds> {
        let bytes = data.len() as u64;
        self.check(off, bytes)?;
        self.assert_writable();
        if self.instrumented {
            self.note_disorderly_write(off, data);
        }
        #[cfg(target_arch = "x86_64")]
        if self.streams_single_lines && (off % LINE_BYTES) | (bytes % WORD_BYTES) == 0 {
            // What a log writes: all of it goes past the caches.
            // SAFETY: in bounds (checked), exclusive by the caller's promise, and aligned.
            unsafe { flush::copy_non_temporal(self.range.base().add(off as usize), data) };
            if self.instrumented {
                self.note_flush(off, bytes);
            }
            return Ok(());
        }
        // Past the caches: from where on, and how much.
        let (head, body) = if self.streams_single_lines && off.is_multiple_of(LINE_BYTES) {
            (0, data.len() & !(WORD_BYTES as usize - 1))
        } else if self.non_temporal && bytes >= 4 * LINE_BYTES {
            let head = (off.wrapping_neg() % LINE_BYTES) as usize;
            (head, (data.len() - head) & !(LINE_BYTES as usize - 1))
        } else {
            (data.len(), 0)
        };
        let (head_data, rest) = data.split_at(head);
        let (body_data, tail_data) = rest.split_at(body);
        let body_off = off + head as u64;
        let tail_off = body_off + body as u64;
        // SAFETY: all three parts are in bounds (checked as a whole) and exclusive by the caller's
        // promise; the body, where there is one, begins with a line and consists of whole words.
        unsafe {
            let base = self.range.base();
            // Mostly one of the parts is all.
            if !head_data.is_empty() {
                copy(base.add(off as usize), head_data);
            }
            if !tail_data.is_empty() {
                copy(base.add(tail_off as usize), tail_data);
            }
            #[cfg(target_arch = "x86_64")]
            if body > 0 {
                flush::copy_non_temporal(base.add(body_off as usize), body_data);
            }
            #[cfg(not(target_arch = "x86_64"))]
            copy(base.add(body_off as usize), body_data);
        }
        if self.instrumented {
            self.note_flush(off, bytes);
        }
        self.start_write_back(off, head as u64);
        self.start_write_back(tail_off, tail_data.len() as u64);
        #[cfg(not(target_arch = "x86_64"))]
        self.start_write_back(body_off, body as u64);
        Ok(())
    }

    /// Starts the write-back of the lines (or pages) of a range. A range outside the region is ignored.
    #[inline(always)]
    pub fn flush(&self, off: u64, bytes: u64) {
        if self.instrumented {
            self.note_flush(off, bytes);
        }
        self.start_write_back(off, bytes);
    }

    /// As [`flush`](Self::flush) of whole lines, by their numbers: offsets divided by [`LINE_BYTES`].
    #[inline]
    pub fn flush_lines(&self, lines: &[u64]) {
        if !lines.is_empty() {
            self.flush_some_lines(lines);
        }
    }

    fn flush_some_lines(&self, lines: &[u64]) {
        match self.flusher {
            Flusher::Nothing if !self.instrumented => {}
            Flusher::Instruction(instruction) if !self.instrumented => {
                let line_count = self.len() / LINE_BYTES;
                for line in lines.iter().filter(|line| **line < line_count) {
                    // SAFETY: as in `start_write_back`.
                    unsafe { instruction.flush_line(self.range.base().add((line * LINE_BYTES) as usize)) };
                }
            }
            _ => lines.iter().for_each(|line| self.flush(line.saturating_mul(LINE_BYTES), LINE_BYTES)),
        }
    }

    #[inline(always)]
    fn start_write_back(&self, off: u64, bytes: u64) {
        match self.flusher {
            Flusher::Nothing | Flusher::Record => {}
            Flusher::Instruction(instruction) => {
                if bytes != 0 && self.check(off, bytes).is_ok() {
                    // SAFETY: the range is mapped (checked); the instruction was detected or forced by the
                    // user, who then vouches for it.
                    unsafe { instruction.flush_range(self.range.base().add(off as usize), bytes as usize) };
                }
            }
            Flusher::Pages => self.collect_pages(off, bytes),
        }
    }

    /// Waits until everything this thread flushed is durable.
    ///
    /// # Errors
    ///
    /// [`SyncError`] in the `Synced` domain when the device fails; the region is then failed for good.
    #[inline(always)]
    pub fn fence(&self) -> Result<(), SyncError> {
        if self.instrumented {
            self.note_fence();
        }
        match self.flusher {
            Flusher::Instruction(_) => flush::fence_stores(),
            Flusher::Pages => return self.sync_pages(),
            Flusher::Nothing if self.domain == Domain::DaxCpuCache => flush::fence_stores(),
            Flusher::Nothing | Flusher::Record => std::sync::atomic::compiler_fence(Ordering::SeqCst),
        }
        Ok(())
    }

    /// A flush and a fence.
    ///
    /// # Errors
    ///
    /// As for [`fence`](Self::fence).
    pub fn persist(&self, off: u64, bytes: u64) -> Result<(), SyncError> {
        self.flush(off, bytes);
        self.fence()
    }

    /// Asks the processor to bring the line of `off` into its cache. Never faults.
    #[inline(always)]
    pub fn prefetch(&self, off: u64) {
        self.prefetch_lines::<1>(off);
    }

    /// As [`prefetch`](Self::prefetch) of so many lines from the one of `off` on.
    #[inline(always)]
    pub fn prefetch_lines<const LINES: usize>(&self, off: u64) {
        if self.reports_loads {
            (0..LINES as u64).for_each(|line| self.report_prefetch(off.wrapping_add(line * LINE_BYTES)));
        }
        let first = self.range.base().wrapping_add(off as usize);
        for line in 0..LINES {
            prefetch_line(first.wrapping_add(line * LINE_BYTES as usize));
        }
    }

    /// As [`prefetch`](Self::prefetch), in a region that [reports no loads](Self::reports_loads): spares the look whether it does.
    #[inline(always)]
    pub fn prefetch_quietly(&self, off: u64) {
        debug_assert!(!self.reports_loads, "a prefetch that is not reported");
        prefetch_line(self.range.base().wrapping_add(off as usize));
    }

    /// Asks the processor to bring the line of `off` into its cache, to be stored to. Never faults.
    #[inline(always)]
    pub fn prefetch_for_store(&self, off: u64) {
        if self.reports_loads {
            self.report_prefetch(off);
        }
        prefetch_line_for_store(self.range.base().wrapping_add(off as usize));
    }

    #[inline(always)]
    fn assert_writable(&self) {
        assert!(self.sharing != Sharing::SharedReadOnly, "a store to a region opened read-only");
    }

    #[cold]
    fn note_store(&self, off: u64, new: &[u8]) {
        counters::add(1, 0, 0);
        if let Some(observer) = &self.observer {
            observer.store(ThreadTag::current(), off, new);
        }
    }

    /// As `note_store`, of a value that is worked out from the word's old one in the same atomic step.
    #[cold]
    fn note_update(&self, off: u64, new: impl FnOnce() -> u64) {
        if let Some(observer) = &self.observer {
            observer.update(ThreadTag::current());
        }
        self.note_store(off, &new().to_le_bytes());
    }

    #[cold]
    fn note_write(&self, off: u64, data: &[u8]) {
        let mut at = 0;
        while at < data.len() {
            let word_left = (WORD_BYTES - (off + at as u64) % WORD_BYTES) as usize;
            let piece = word_left.min(data.len() - at);
            self.note_store(off + at as u64, &data[at..at + piece]);
            at += piece;
        }
    }

    /// As `note_write`, of lines whose words may arrive in any order: in one that differs from line to line.
    #[cold]
    fn note_disorderly_write(&self, off: u64, data: &[u8]) {
        let mut at = 0;
        while at < data.len() {
            let line_left = (LINE_BYTES - (off + at as u64) % LINE_BYTES) as usize;
            let (start, end) = (at, data.len().min(at + line_left));
            let mut pieces = Vec::with_capacity((LINE_BYTES / WORD_BYTES) as usize);
            while at < end {
                let word_left = (WORD_BYTES - (off + at as u64) % WORD_BYTES) as usize;
                pieces.push(at..end.min(at + word_left));
                at += word_left;
            }
            at = end;
            debug_assert_eq!(pieces.first().map(|piece| piece.start), Some(start));
            let mut chance = self.disorder.fetch_add(1, Ordering::Relaxed);
            for left in (2..=pieces.len()).rev() {
                chance = chance.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                pieces.swap(left - 1, ((chance >> 33) % left as u64) as usize);
            }
            pieces.into_iter().for_each(|piece| self.note_store(off + piece.start as u64, &data[piece]));
        }
    }

    #[cold]
    fn note_flush(&self, off: u64, bytes: u64) {
        if bytes == 0 || self.check(off, bytes).is_err() {
            return;
        }
        let lines = off / LINE_BYTES..=(off + bytes - 1) / LINE_BYTES;
        counters::add(0, lines.end() - lines.start() + 1, 0);
        if let Some(observer) = &self.observer {
            lines.for_each(|line| observer.flush(ThreadTag::current(), line));
        }
    }

    #[cold]
    fn note_fence(&self) {
        counters::add(0, 0, 1);
        if let Some(observer) = &self.observer {
            observer.fence(ThreadTag::current());
        }
    }

    fn collect_pages(&self, off: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let start = off & !(PAGE_BYTES - 1);
        let end = round_up(off + bytes, PAGE_BYTES);
        let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
        match dirty.ranges.last_mut() {
            Some(last) if start >= last.0 && start <= last.1 => last.1 = last.1.max(end),
            _ => dirty.ranges.push((start, end)),
        }
    }

    /// Writes the collected pages to the device: one range by `msync`, several by one `fdatasync`.
    fn sync_pages(&self) -> Result<(), SyncError> {
        let _one_at_a_time = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ranges =
            std::mem::take(&mut self.dirty.lock().unwrap_or_else(PoisonError::into_inner).ranges);
        if self.sync_failed.load(Ordering::Relaxed) {
            return Err(SyncError { message: "an earlier synchronisation failed".to_owned() });
        }
        ranges.sort_unstable();
        ranges.dedup_by(|next, kept| {
            let touching = next.0 <= kept.1;
            if touching {
                kept.1 = kept.1.max(next.1);
            }
            touching
        });
        let outcome = match (ranges.as_slice(), &self.file) {
            ([], _) | (_, None) => Ok(()),
            (&[(start, end)], Some(_)) => {
                let end = end.min(round_up(self.len(), PAGE_BYTES));
                self.write_back(start, end)
            }
            (_, Some(file)) => rustix::fs::fdatasync(file),
        };
        outcome.map_err(|e| {
            self.sync_failed.store(true, Ordering::Relaxed);
            SyncError { message: e.to_string() }
        })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Under Miri it goes back at once, so that a use of it after this is found.
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

/// The number of the word at `off`; of one that is not aligned, more than any region has.
#[inline(always)]
fn word_number(off: u64) -> u64 {
    off.rotate_right(WORD_BYTES.trailing_zeros())
}

/// The number of the line at `off`; of what is no line, more than any region has.
#[inline(always)]
fn line_number(off: u64) -> u64 {
    off.rotate_right(LINE_BYTES.trailing_zeros())
}

/// Copies bytes.
///
/// # Safety
///
/// `dst` is valid for writes of as many bytes, which are not among them.
#[inline(always)]
unsafe fn copy(dst: *mut u8, src: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(src.as_ptr(), dst, src.len()) };
}

/// Maps the file for the first time, which shows whether it is on a DAX file system.
fn map_first(
    range: &AddressRange,
    file: &File,
    bytes: u64,
    durability: Durability,
    access: Access,
) -> Result<(Sharing, Domain), RegionError> {
    let plain = match access {
        Access::ReadWrite => Sharing::Shared,
        Access::ReadOnly => Sharing::SharedReadOnly,
        Access::Private => Sharing::Private,
    };
    let may_be_dax = access == Access::ReadWrite && matches!(durability, Durability::Auto | Durability::Dax);
    if may_be_dax && AddressRange::maps_sync(file) {
        range.map_file(file, 0, bytes, Sharing::SharedSync)?;
        let domain = if domain::has_persistent_cpu_cache(file) { Domain::DaxCpuCache } else { Domain::Dax };
        return Ok((Sharing::SharedSync, domain));
    }
    if durability == Durability::Dax && access == Access::ReadWrite {
        return Err(RegionError::NotDax);
    }
    range.map_file(file, 0, bytes, plain)?;
    let domain = match durability {
        Durability::Synced => Domain::Synced,
        Durability::Emulated => Domain::Emulated,
        Durability::Auto | Durability::Dax | Durability::PageCache => Domain::PageCache,
    };
    Ok((plain, domain))
}

fn choose_flusher(domain: Domain, access: Access, options: &RegionOptions) -> Result<Flusher, RegionError> {
    let forced = env_flush_instruction()?.or(options.flush_instruction);
    if access != Access::ReadWrite {
        return Ok(Flusher::Nothing);
    }
    match domain {
        Domain::Dax | Domain::Emulated => forced
            .or_else(FlushInstruction::detect)
            .map(Flusher::Instruction)
            .ok_or(RegionError::NoFlushInstruction),
        Domain::DaxCpuCache | Domain::PageCache => Ok(Flusher::Nothing),
        Domain::Synced => Ok(Flusher::Pages),
        Domain::Simulated => Ok(Flusher::Record),
    }
}

fn env_flush_instruction() -> Result<Option<FlushInstruction>, RegionError> {
    let Ok(value) = std::env::var(ENV_FLUSH) else { return Ok(None) };
    value.parse().map(Some).map_err(|_| RegionError::Environment {
        name: ENV_FLUSH,
        value,
        expected: "clwb, clflushopt or clflush on x86-64, dc-cvap on AArch64",
    })
}

fn env_non_temporal() -> Result<Option<bool>, RegionError> {
    match std::env::var(ENV_NON_TEMPORAL) {
        Err(_) => Ok(None),
        Ok(v) if v == "0" => Ok(Some(false)),
        Ok(v) if v == "1" => Ok(Some(true)),
        Ok(value) => Err(RegionError::Environment { name: ENV_NON_TEMPORAL, value, expected: "0 or 1" }),
    }
}
/// Asks the processor to bring the line where a value in ordinary memory begins into its cache, to be stored to.
#[inline(always)]
pub fn prefetch_for_store<T>(value: &T) {
    prefetch_line_for_store(std::ptr::from_ref(value).cast());
}

#[inline(always)]
fn prefetch_line(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is without effect on the program's state.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.cast::<i8>())
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, preserves_flags))
    };
}

/// Processors without such an instruction take it for none. The compiler's own way to ask for it makes it one that fetches to load.
#[inline(always)]
fn prefetch_line_for_store(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address is without effect on the program's state.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags))
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, preserves_flags))
    };
    #[cfg(miri)]
    let _ = line;
}
