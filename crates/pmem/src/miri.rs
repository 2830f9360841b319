//! The system calls of a region, as far as Miri supports them.
//!
//! Miri runs a program in the language's own model of memory and finds undefined behaviour. It supports few
//! system calls and no processor instructions. Under it, reserved memory is an allocation without contents
//! until it is made accessible, so loads from inaccessible memory are reported. No file can be mapped, so
//! only the simulated domain can be tested, and not the instructions that the others use.

use crate::PAGE_BYTES;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::fs::File;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, PAGE_BYTES as usize).expect("a length that an address space has")
}

/// Reserves anonymous memory anywhere.
///
/// # Safety
///
/// As for [`rustix::mm::mmap_anonymous`].
pub(crate) unsafe fn mmap_anonymous(
    at: *mut c_void,
    bytes: usize,
    _: ProtFlags,
    _: MapFlags,
) -> Result<*mut c_void, Errno> {
    assert!(at.is_null() && bytes > 0);
    // SAFETY: the length is not 0.
    Ok(unsafe { alloc(layout(bytes)) }.cast())
}

/// Refuses to map a file.
///
/// # Safety
///
/// As for [`rustix::mm::mmap`].
pub(crate) unsafe fn mmap(
    _: *mut c_void,
    _: usize,
    _: ProtFlags,
    _: MapFlags,
    _: &File,
    _: u64,
) -> Result<*mut c_void, Errno> {
    Err(Errno::NOTSUP)
}

/// Gives memory back.
///
/// # Safety
///
/// It is all that one call of [`mmap_anonymous`] reserved.
pub(crate) unsafe fn munmap(at: *mut c_void, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { dealloc(at.cast(), layout(bytes)) };
    Ok(())
}

/// Makes memory accessible, with zeros in it.
///
/// # Safety
///
/// It was reserved, and is not accessible yet.
pub(crate) unsafe fn mprotect(at: *mut c_void, bytes: usize, _: MprotectFlags) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<u8>().write_bytes(0, bytes) };
    Ok(())
}

/// Makes memory read as zero again, if the advice is to do so.
///
/// # Safety
///
/// As for [`rustix::mm::madvise`].
pub(crate) unsafe fn madvise(at: *mut c_void, bytes: usize, advice: Advice) -> Result<(), Errno> {
    if advice == Advice::LinuxDontNeed {
        // SAFETY: the caller's promise.
        unsafe { at.cast::<u8>().write_bytes(0, bytes) };
    }
    Ok(())
}
