//! A reserved address range, of which a growing front is mapped.

use crate::PAGE_BYTES;
use crate::access::Access;
use crate::error::RegionError;
use crate::fork::Entry;
#[cfg(miri)]
use crate::miri as mm;
use rustix::io::Errno;
#[cfg(not(miri))]
use rustix::mm;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::cell::RefCell;
use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The size of huge pages.
pub(crate) const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Alignment of a range's base, so that huge pages can back the mapping.
const BASE_ALIGN: usize = HUGE_PAGE_BYTES as usize;

/// More than any address space has.
const MAX_RANGE_BYTES: u64 = 1 << 60;

/// How a file is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// Stores go to the file; `MAP_SYNC`.
    SharedSync,
    /// Stores go to the file.
    Shared,
    /// The file may not be stored to.
    SharedReadOnly,
    /// Stores stay in this process.
    Private,
}

impl Sharing {
    /// The access for which pages are mapped ahead. Private pages are not mapped for stores: this would copy
    /// the file.
    pub(crate) fn population(self) -> Access {
        match self {
            Sharing::Private => Access::Private,
            Sharing::SharedReadOnly => Access::ReadOnly,
            Sharing::Shared | Sharing::SharedSync => Access::ReadWrite,
        }
    }
}

/// A reserved range of addresses; unmapped when dropped.
pub(crate) struct AddressRange {
    raw: *mut c_void,
    raw_bytes: usize,
    base: *mut u8,
    bytes: usize,
    /// The end of the anonymous part, if the range has one.
    anonymous_end: AtomicU64,
    /// Whether a foreign mapping may lie in the range. Then nothing more is mapped there, and the range is
    /// not unmapped.
    has_hole: AtomicBool,
    /// The entry that keeps children of this process away, where a file is mapped.
    entry: Option<&'static Entry>,
}

thread_local! {
    /// The anonymous range that this thread used last. The crash simulator needs one per image, and the page
    /// faults of a new one cost several times what filling it with the image does.
    static IDLE: RefCell<Option<AddressRange>> = const { RefCell::new(None) };
}

// SAFETY: the range is plain address space; every access goes through Region's own synchronisation.
unsafe impl Send for AddressRange {}
// SAFETY: as above.
unsafe impl Sync for AddressRange {}

impl AddressRange {
    /// Reserves `wanted` bytes, or half of that and so on, but at least `least`.
    pub(crate) fn reserve(wanted: u64, least: u64) -> Result<AddressRange, RegionError> {
        let mut bytes = round_up(wanted.max(least).min(MAX_RANGE_BYTES), BASE_ALIGN as u64) as usize;
        loop {
            // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing.
            let mapped = unsafe {
                mm::mmap_anonymous(
                    core::ptr::null_mut(),
                    bytes + BASE_ALIGN,
                    ProtFlags::empty(),
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )
            };
            match mapped {
                Ok(raw) => {
                    let base = raw.cast::<u8>().map_addr(|a| (a + BASE_ALIGN - 1) & !(BASE_ALIGN - 1));
                    let anonymous_end = AtomicU64::new(0);
                    return Ok(AddressRange {
                        raw,
                        raw_bytes: bytes + BASE_ALIGN,
                        base,
                        bytes,
                        anonymous_end,
                        has_hole: AtomicBool::new(false),
                        entry: None,
                    });
                }
                Err(_) if bytes as u64 / 2 >= round_up(least, BASE_ALIGN as u64) => bytes /= 2,
                Err(e) => return Err(RegionError::io("reserving address space for the pool", e)),
            }
        }
    }

    /// A range of at least `wanted` bytes of which the first `mapped`, whole pages, are anonymous memory with
    /// *any* contents; pages that are mapped behind them later read as zero.
    pub(crate) fn reserve_dirty(wanted: u64, mapped: u64) -> Result<AddressRange, RegionError> {
        let range = match IDLE.take() {
            Some(idle) if idle.bytes() == round_up(wanted, BASE_ALIGN as u64) => idle,
            _ => AddressRange::reserve(wanted, wanted)?,
        };
        let anonymous_end = range.anonymous_end.load(Ordering::Relaxed);
        if anonymous_end > mapped {
            range.discard(mapped, anonymous_end);
        } else {
            range.map_anonymous(anonymous_end, mapped)?;
        }
        Ok(range)
    }

    /// Keeps an anonymous range that is no longer used for the next [`reserve_dirty`](Self::reserve_dirty) of
    /// this thread, and leaves an empty one.
    pub(crate) fn keep_idle(&mut self) {
        let empty = AddressRange {
            raw: core::ptr::null_mut(),
            raw_bytes: 0,
            base: core::ptr::null_mut(),
            bytes: 0,
            anonymous_end: AtomicU64::new(0),
            has_hole: AtomicBool::new(false),
            entry: None,
        };
        let idle = std::mem::replace(self, empty);
        // When a thread ends there is no next range, and this one is unmapped.
        let _ = IDLE.try_with(|slot| slot.replace(Some(idle)));
    }

    /// Keeps children of this process away from the range, and from the file that is mapped there.
    pub(crate) fn keep_children_away(&mut self, file: &File, path: &Path) -> Result<(), RegionError> {
        assert!(self.entry.is_none(), "a range has one file");
        self.entry = Some(Entry::arm(self.raw, self.raw_bytes, file.as_raw_fd(), path)?);
        Ok(())
    }

    /// The entry that keeps children away.
    pub(crate) fn entry(&self) -> Option<&'static Entry> {
        self.entry
    }

    /// The first address.
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// The length of the range.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Maps bytes `[from, to)` of `file` at the same offsets of the range.
    pub(crate) fn map_file(
        &self,
        file: &File,
        from: u64,
        to: u64,
        sharing: Sharing,
    ) -> Result<(), RegionError> {
        assert!(from.is_multiple_of(PAGE_BYTES) && from <= to && to <= self.bytes());
        if from == to {
            return Ok(());
        }
        let prot = match sharing {
            Sharing::SharedReadOnly => ProtFlags::READ,
            _ => ProtFlags::READ | ProtFlags::WRITE,
        };
        let flags = match sharing {
            Sharing::SharedSync => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            Sharing::Shared | Sharing::SharedReadOnly => MapFlags::SHARED,
            Sharing::Private => MapFlags::PRIVATE,
        };
        if self.has_hole.load(Ordering::Relaxed) {
            return Err(RegionError::io("mapping the pool file", Errno::NOMEM));
        }
        // SAFETY: the target lies in the range this object reserved (asserted above) where nothing has been
        // mapped at these offsets yet, so MAP_FIXED replaces only the reservation.
        unsafe {
            mm::mmap(
                self.base.add(from as usize).cast(),
                (to - from) as usize,
                prot,
                flags | MapFlags::FIXED,
                file,
                from,
            )
        }
        .map_err(|e| {
            self.reserve_again(from, to);
            RegionError::io("mapping the pool file", e)
        })?;
        Ok(())
    }

    /// Reserves a part again: a failed mapping at a fixed address may already have removed the reservation,
    /// and then a foreign mapping may get the address.
    fn reserve_again(&self, from: u64, to: u64) {
        let reserved = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: this replaces nothing.
        let outcome = unsafe {
            mm::mmap_anonymous(
                self.base.add(from as usize).cast(),
                (to - from) as usize,
                ProtFlags::empty(),
                reserved,
            )
        };
        match outcome {
            Ok(at) if at.cast() == self.base.wrapping_add(from as usize) => return,
            // An old kernel took the address for a hint.
            // SAFETY: it was mapped just now.
            Ok(elsewhere) => _ = unsafe { mm::munmap(elsewhere, (to - from) as usize) },
            Err(_) => {}
        }
        // Either the whole reservation still exists, or a foreign mapping has a part of it. The two cannot be
        // distinguished.
        self.has_hole.store(true, Ordering::Relaxed);
        // A child then keeps the region's pages, and has nothing else of the file.
        self.entry.iter().for_each(|entry| entry.disarm());
    }

    /// Makes the range a reservation again from `from` on, whatever is mapped there.
    pub(crate) fn reserve_from(&self, from: u64) -> Result<(), RegionError> {
        assert!(from.is_multiple_of(PAGE_BYTES) && from <= self.bytes());
        if from == self.bytes() {
            return Ok(());
        }
        if self.has_hole.load(Ordering::Relaxed) {
            return Err(RegionError::io("unmapping the end of the pool file", Errno::NOMEM));
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the target lies in the range this object reserved, and no reference into it from `from` on
        // exists: the region was made shorter before.
        let outcome = unsafe {
            mm::mmap_anonymous(
                self.base.add(from as usize).cast(),
                (self.bytes() - from) as usize,
                ProtFlags::empty(),
                flags,
            )
        };
        match outcome {
            Ok(_) => self.anonymous_end.fetch_min(from, Ordering::Relaxed),
            Err(e) => {
                self.reserve_again(from, self.bytes());
                return Err(RegionError::io("unmapping the end of the pool file", e));
            }
        };
        Ok(())
    }

    /// Whether a file can be mapped with `MAP_SYNC`, as on a DAX file system. Tried with a mapping at any
    /// address, since one at a fixed address removes the mapping there even if it fails.
    pub(crate) fn maps_sync(file: &File) -> bool {
        let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this replaces nothing, and the address is not given out.
        match unsafe { mm::mmap(core::ptr::null_mut(), PAGE_BYTES as usize, prot, flags, file, 0) } {
            // SAFETY: it was mapped just now.
            Ok(at) => unsafe { mm::munmap(at, PAGE_BYTES as usize) }.is_ok(),
            Err(_) => false,
        }
    }

    /// Makes bytes `[from, to)` anonymous zeroed memory.
    pub(crate) fn map_anonymous(&self, from: u64, to: u64) -> Result<(), RegionError> {
        assert!(from.is_multiple_of(PAGE_BYTES) && from <= to && to <= self.bytes());
        if from == to {
            return Ok(());
        }
        // SAFETY: the target lies in the range this object reserved; only its protection changes.
        unsafe {
            mm::mprotect(
                self.base.add(from as usize).cast(),
                (to - from) as usize,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }
        .map_err(|e| RegionError::io("mapping anonymous memory", e))?;
        self.anonymous_end.fetch_max(to, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the anonymous bytes `[from, to)` read as zero again.
    pub(crate) fn discard(&self, from: u64, to: u64) {
        // SAFETY: the range is anonymous memory mapped by this object, of which nothing is borrowed.
        let _ = unsafe {
            mm::madvise(self.base.add(from as usize).cast(), (to - from) as usize, Advice::LinuxDontNeed)
        };
    }

    /// Maps the pages of `[from, to)`, as a load or a store of each of them would; a refusal is no error.
    pub(crate) fn populate(&self, from: u64, to: u64, access: Access) {
        let advice = match access {
            Access::ReadWrite => Advice::LinuxPopulateWrite,
            Access::ReadOnly | Access::Private => Advice::LinuxPopulateRead,
        };
        // SAFETY: the advice changes no contents, and the range is mapped by this object.
        let _ = unsafe { mm::madvise(self.base.add(from as usize).cast(), (to - from) as usize, advice) };
    }

    /// Makes the pages of the file behind the huge page at `at` that one, if the system can; whether it did.
    pub(crate) fn collapse(&self, at: u64) -> bool {
        assert!(at.is_multiple_of(HUGE_PAGE_BYTES) && at + HUGE_PAGE_BYTES <= self.bytes());
        // Since Linux 6.1. Not in rustix.
        const MADV_COLLAPSE: libc::c_int = 25;
        // SAFETY: the advice changes no contents, and the range is mapped by this object.
        unsafe {
            libc::madvise(self.base.add(at as usize).cast(), HUGE_PAGE_BYTES as usize, MADV_COLLAPSE) == 0
        }
    }

    /// Whether the page at an offset is in memory; true if the system does not say.
    pub(crate) fn has_page(&self, off: u64) -> bool {
        let mut is_there = 1_u8;
        #[cfg(not(miri))]
        // SAFETY: the page is in the range, and the call writes one byte.
        unsafe {
            libc::mincore(self.base.add(off as usize).cast(), 1, &raw mut is_there)
        };
        is_there & 1 == 1
    }

    /// Gives advice about the paging of `[from, to)`; a refusal is no error.
    pub(crate) fn advise(&self, from: u64, to: u64, advice: Advice) {
        debug_assert!(advice != Advice::LinuxDontNeed, "advice that changes contents");
        // SAFETY: the advice changes no contents, and the range is mapped by this object.
        let _ = unsafe { mm::madvise(self.base.add(from as usize).cast(), (to - from) as usize, advice) };
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        self.entry.iter().for_each(|entry| entry.disarm());
        self.unmap();
        self.entry.iter().for_each(|entry| entry.give_back());
    }
}

impl AddressRange {
    fn unmap(&self) {
        if self.raw_bytes == 0 || self.has_hole.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: this object reserved exactly this range, and nothing borrowed from the region outlives it.
        let _ = unsafe { mm::munmap(self.raw, self.raw_bytes) };
    }
}

/// `value` rounded up to a multiple of `unit`, a power of two.
pub(crate) fn round_up(value: u64, unit: u64) -> u64 {
    value.saturating_add(unit - 1) & !(unit - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Region, RegionOptions};

    /// Threads that open, use and close files at once: no mapping of one may come to lie where another's is.
    /// (It did when the attempt to map with `MAP_SYNC` was made at the fixed address.)
    #[test]
    fn files_that_threads_map_at_once_do_not_meet() {
        const ROUNDS: u64 = 300;
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let file = tempfile::tempfile().unwrap();
                        file.set_len(4 << 20).unwrap();
                        let region =
                            Region::map_file(file, 4 << 20, &RegionOptions::default(), Access::ReadWrite)
                                .unwrap();
                        for off in (0..4 << 20).step_by(1 << 18) {
                            region.store_u64(off, thread << 32 | round).unwrap();
                        }
                        std::thread::yield_now();
                        for off in (0..4 << 20).step_by(1 << 18) {
                            assert_eq!(region.load_u64(off).unwrap(), thread << 32 | round);
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn a_mapping_that_failed_is_reserved_again_or_given_up() {
        let range = AddressRange::reserve(64 << 20, 1 << 20).unwrap();
        let base = range.base();
        // As if a failed mapping had taken the reservation away.
        // SAFETY: nothing is mapped there but the reservation.
        unsafe { mm::munmap(base.cast(), 1 << 20).unwrap() };
        range.reserve_again(0, 1 << 20);
        assert!(!range.has_hole.load(Ordering::Relaxed));
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        range.map_file(&file, 0, 1 << 20, Sharing::Shared).unwrap();
        // As if a foreign mapping had got the address.
        range.reserve_again(0, 1 << 20);
        assert!(range.map_file(&file, 1 << 20, 2 << 20, Sharing::Shared).is_err());
    }
}
