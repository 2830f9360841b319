//! A reserved address range, of which a growing front is mapped.

use crate::RegionError;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::cell::RefCell;
use std::ffi::c_void;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

/// Alignment of a range's base, so that huge pages can back the mapping.
const BASE_ALIGN: usize = 2 << 20;

/// More than any address space has.
const MAX_RANGE_BYTES: u64 = 1 << 60;

/// The page size that file lengths are rounded to.
pub(crate) const PAGE_BYTES: u64 = 4096;

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

/// A reserved range of addresses; unmapped when dropped.
pub(crate) struct AddressRange {
    raw: *mut c_void,
    raw_bytes: usize,
    base: *mut u8,
    bytes: usize,
    /// Where the anonymous part ends, if there is one. Only grows.
    anonymous_end: AtomicU64,
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
                rustix::mm::mmap_anonymous(
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
                    });
                }
                Err(_) if bytes as u64 / 2 >= round_up(least, BASE_ALIGN as u64) => bytes /= 2,
                Err(e) => return Err(RegionError::io("reserving address space for the pool", e)),
            }
        }
    }

    /// A range of at least `wanted` bytes of which the first `mapped`, whole pages, are anonymous memory with
    /// *any* contents; what is mapped behind them later reads as zero.
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
        };
        let idle = std::mem::replace(self, empty);
        // At the end of a thread there is no next range, and this one is given back.
        let _ = IDLE.try_with(|slot| slot.replace(Some(idle)));
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
        // SAFETY: the target lies in the range this object reserved (asserted above) where nothing has been
        // mapped at these offsets yet, so MAP_FIXED replaces only the reservation.
        unsafe {
            rustix::mm::mmap(
                self.base.add(from as usize).cast(),
                (to - from) as usize,
                prot,
                flags | MapFlags::FIXED,
                file,
                from,
            )
        }
        .map_err(|e| RegionError::io("mapping the pool file", e))?;
        Ok(())
    }

    /// Makes bytes `[from, to)` anonymous zeroed memory.
    pub(crate) fn map_anonymous(&self, from: u64, to: u64) -> Result<(), RegionError> {
        assert!(from.is_multiple_of(PAGE_BYTES) && from <= to && to <= self.bytes());
        if from == to {
            return Ok(());
        }
        // SAFETY: the target lies in the range this object reserved; only its protection changes.
        unsafe {
            rustix::mm::mprotect(
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
            rustix::mm::madvise(
                self.base.add(from as usize).cast(),
                (to - from) as usize,
                Advice::LinuxDontNeed,
            )
        };
    }

    /// Asks for huge pages in `[from, to)`; a refusal is no error.
    pub(crate) fn advise_huge(&self, from: u64, to: u64) {
        // SAFETY: the advice changes no contents, and the range is mapped by this object.
        let _ = unsafe {
            rustix::mm::madvise(
                self.base.add(from as usize).cast(),
                (to - from) as usize,
                Advice::LinuxHugepage,
            )
        };
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        if self.raw_bytes == 0 {
            return;
        }
        // SAFETY: this object reserved exactly this range, and nothing borrowed from the region outlives it.
        let _ = unsafe { rustix::mm::munmap(self.raw, self.raw_bytes) };
    }
}

/// `value` rounded up to a multiple of `unit`, a power of two.
pub(crate) fn round_up(value: u64, unit: u64) -> u64 {
    value.saturating_add(unit - 1) & !(unit - 1)
}
