//! Files in huge pages, which only tmpfs has.

use crate::PAGE_BYTES;
use crate::map::{AddressRange, HUGE_PAGE_BYTES, Sharing, round_up};
use rustix::fs::FallocateFlags;
use std::fs::File;

fn is_on_tmpfs(file: &File) -> bool {
    const MAGIC: u64 = 0x0102_1994;
    rustix::fs::fstatfs(file).is_ok_and(|stat| stat.f_type as u64 == MAGIC)
}

/// Moves the first `bytes` bytes of a mapped file into huge pages, where that is possible: on tmpfs, if the
/// system has huge pages, and only allocated parts.
pub(crate) fn gather_into_huge(file: &File, range: &AddressRange, bytes: u64) {
    /// After this many failures without a success, the rest is not tried.
    const FAILURES_MAX: u64 = 8;
    if !is_on_tmpfs(file) {
        return;
    }
    let mut gathered = 0;
    for page in 0..bytes / HUGE_PAGE_BYTES {
        gathered += u64::from(range.collapse(page * HUGE_PAGE_BYTES));
        if gathered == 0 && page + 1 == FAILURES_MAX {
            return;
        }
    }
}

/// Allocates the bytes from `old` to `new` in huge pages, where that is possible: on tmpfs, if the system has
/// huge pages.
pub(crate) fn allocate_huge(file: &File, old: u64, new: u64) {
    let (from, to) = (round_up(old, HUGE_PAGE_BYTES), new & !(HUGE_PAGE_BYTES - 1));
    if from >= to || !is_on_tmpfs(file) || file.set_len(new).is_err() {
        return;
    }
    let Ok(range) = AddressRange::reserve(to, to) else { return };
    if range.map_file(file, from, to, Sharing::Shared).is_err() {
        return;
    }
    for at in (from..to).step_by(HUGE_PAGE_BYTES as usize) {
        // The system makes a huge page only where there is a page already.
        let first = rustix::fs::fallocate(file, FallocateFlags::empty(), at, PAGE_BYTES);
        if first.is_err() || !range.collapse(at) {
            return;
        }
    }
}
