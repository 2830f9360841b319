//! Regions are out of reach for children of `fork`.
//!
//! A child has its parent's memory, and so every handle of the parent, but none of its threads: locks that
//! these held stay locked, and their unfinished changes stay unfinished. It shares the mapped file, and the
//! descriptor that has the file's lock. Parent and child cannot both use an object that the parent has open.
//!
//! So a handler runs in every child before `fork` returns (`pthread_atfork`). It makes each region's address
//! range inaccessible, so that no store reaches the file. It sets the lengths of regions that asked for it to
//! zero, so that every checked access fails
//! ([`OutOfBounds::was_left_behind`](crate::OutOfBounds::was_left_behind)) at no cost elsewhere. And it
//! replaces the file's descriptor by another, so that the child does not hold the lock for its parent. Values
//! that are dropped there later are left as they are ([`OfProcess`]).
//!
//! The handler allocates nothing and takes no lock. It finds regions in a list to which entries are only
//! added; entries of dropped regions are reused. An entry is armed after its range is mapped, and disarmed
//! before it is unmapped, so a handler that runs while another thread maps or unmaps replaces only mappings
//! of regions.
//!
//! A child that is made without these handlers (`_Fork`, `vfork`, or the system call itself) may do no more
//! than run another program.

use crate::error::{FORKED, RegionError};
use rustix::io::{Errno, FdFlags};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

/// Bytes of a file's name that are kept.
pub(crate) const PATH_BYTES: usize = 512;

/// The number of this process's ancestors that had opened a region.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The last entry that was added.
static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(null_mut());
static HAS_HANDLER: AtomicBool = AtomicBool::new(false);

/// A number that differs in every child process.
#[inline(always)]
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Panics if the bytes lie in a region of the process that this one was forked from, where a read would end
/// it. One load elsewhere.
#[inline(always)]
#[track_caller]
pub fn assert_not_left_behind(bytes: &[u8]) {
    if forks() != 0 {
        refuse_left_behind(bytes.as_ptr());
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn refuse_left_behind(at: *const u8) {
    let mut entries = ENTRIES.load(Ordering::Acquire);
    // SAFETY: entries are never freed.
    while let Some(entry) = unsafe { entries.as_ref() } {
        let raw = entry.raw.load(Ordering::Relaxed).addr();
        let is_in = (raw..raw + entry.raw_bytes.load(Ordering::Relaxed)).contains(&at.addr());
        assert!(!(is_in && entry.is_left_behind.load(Ordering::Relaxed)), "{FORKED}");
        entries = entry.next.load(Ordering::Relaxed);
    }
}

/// A value that is dropped only in the process that made it. In a child it is left as it is: other threads of
/// the parent may have been changing it, or have held its locks.
pub struct OfProcess<T> {
    forks: u32,
    value: ManuallyDrop<T>,
}

impl<T> OfProcess<T> {
    /// A value of this process.
    pub fn new(value: T) -> OfProcess<T> {
        OfProcess { forks: forks(), value: ManuallyDrop::new(value) }
    }

    /// Whether this process was forked from the one that made the value.
    pub fn was_left_behind(&self) -> bool {
        self.forks != forks()
    }
}

impl<T> Deref for OfProcess<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.forks == forks() {
            // SAFETY: it is dropped once, here, and not used after that.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for OfProcess<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}

/// Facts of a region, or of its journal's mapping, that the handlers of forks and of bus errors need.
pub(crate) struct Entry {
    is_taken: AtomicBool,
    /// Whether the other fields are valid.
    is_armed: AtomicBool,
    /// Whether the region belongs to the parent of this process.
    is_left_behind: AtomicBool,
    /// The reserved range.
    raw: AtomicPtr<c_void>,
    raw_bytes: AtomicUsize,
    descriptor: AtomicI32,
    /// The end of the file's path, and zeros.
    path: [AtomicU8; PATH_BYTES],
    /// Words that become zero in a child, or null.
    lengths: [AtomicPtr<AtomicU64>; 2],
    /// The entry that was added before this one. Not changed once this one is in the list.
    next: AtomicPtr<Entry>,
}

impl Entry {
    /// An entry for a range and the file that is mapped there. `path` is its name in messages.
    pub(crate) fn arm(
        raw: *mut c_void,
        raw_bytes: usize,
        file: RawFd,
        path: &Path,
    ) -> Result<&'static Entry, RegionError> {
        install_handler()?;
        let entry = Entry::take();
        entry.raw.store(raw, Ordering::Relaxed);
        entry.raw_bytes.store(raw_bytes, Ordering::Relaxed);
        entry.descriptor.store(file, Ordering::Relaxed);
        let path = path.as_os_str().as_bytes();
        let path = &path[path.len().saturating_sub(PATH_BYTES)..];
        for (at, place) in entry.path.iter().enumerate() {
            place.store(path.get(at).copied().unwrap_or(0), Ordering::Relaxed);
        }
        entry.is_left_behind.store(false, Ordering::Relaxed);
        entry.lengths.iter().for_each(|length| length.store(null_mut(), Ordering::Relaxed));
        // ORDER: release, with the acquire in the handler.
        entry.is_armed.store(true, Ordering::Release);
        Ok(entry)
    }

    /// Lets the handler set these words to zero, too.
    ///
    /// # Safety
    ///
    /// The words stay where they are until the entry is disarmed.
    pub(crate) unsafe fn clear_too(&self, lengths: [&AtomicU64; 2]) {
        for (place, length) in self.lengths.iter().zip(lengths) {
            place.store(std::ptr::from_ref(length).cast_mut(), Ordering::Release);
        }
    }

    /// From here on the handler leaves the range alone.
    pub(crate) fn disarm(&self) {
        // ORDER: sequentially consistent, so that a thread that forks meanwhile sees this before the
        // unmapping.
        self.is_armed.store(false, Ordering::SeqCst);
    }

    /// Frees the entry, which is disarmed, for another region.
    pub(crate) fn give_back(&self) {
        self.is_left_behind.store(false, Ordering::Relaxed);
        self.is_taken.store(false, Ordering::Release);
    }

    fn take() -> &'static Entry {
        let mut at = ENTRIES.load(Ordering::Acquire);
        // SAFETY: entries are never freed.
        while let Some(entry) = unsafe { at.as_ref() } {
            if !entry.is_taken.swap(true, Ordering::Acquire) {
                return entry;
            }
            at = entry.next.load(Ordering::Relaxed);
        }
        let new: &'static Entry = Box::leak(Box::new(Entry {
            is_taken: AtomicBool::new(true),
            is_armed: AtomicBool::new(false),
            is_left_behind: AtomicBool::new(false),
            raw: AtomicPtr::new(null_mut()),
            raw_bytes: AtomicUsize::new(0),
            descriptor: AtomicI32::new(-1),
            path: std::array::from_fn(|_| AtomicU8::new(0)),
            lengths: Default::default(),
            next: AtomicPtr::new(null_mut()),
        }));
        let place = std::ptr::from_ref(new).cast_mut();
        let mut next = ENTRIES.load(Ordering::Relaxed);
        loop {
            new.next.store(next, Ordering::Relaxed);
            // ORDER: release, for threads that reach the entry through the list.
            match ENTRIES.compare_exchange(next, place, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return new,
                Err(found) => next = found,
            }
        }
    }

    /// In the child.
    fn leave_behind(&self) {
        // In a child of a child, everything was taken away before; the descriptor's number may be another
        // file's by now, and the words another object's.
        if !self.is_armed.load(Ordering::Acquire) || self.is_left_behind.load(Ordering::Relaxed) {
            return;
        }
        for length in &self.lengths {
            // SAFETY: null, or a word that is where it was when the entry was armed, by the contract of
            // `clear_too`.
            if let Some(length) = unsafe { length.load(Ordering::Acquire).as_ref() } {
                length.store(0, Ordering::Relaxed);
            }
        }
        self.is_left_behind.store(true, Ordering::Relaxed);
        hide(self.raw.load(Ordering::Relaxed), self.raw_bytes.load(Ordering::Relaxed));
        let descriptor = self.descriptor.load(Ordering::Relaxed);
        if let Ok(nothing) = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC) {
            // SAFETY: the number is that of the region's open file, which is not closed here but replaced; it
            // is not dropped.
            let mut file = unsafe { ManuallyDrop::new(OwnedFd::from_raw_fd(descriptor)) };
            // If it fails, the child shares the file's lock until it ends.
            if rustix::io::dup2(&nothing, &mut file).is_ok() {
                let _ = rustix::io::fcntl_setfd(&*file, FdFlags::CLOEXEC);
            }
        }
    }
}

/// The name of the file that is mapped around an address, and zeros; a long one without its beginning.
/// Allocates nothing and takes no lock.
pub(crate) fn file_at(address: usize) -> Option<[u8; PATH_BYTES]> {
    let mut at = ENTRIES.load(Ordering::Acquire);
    // SAFETY: entries are never freed.
    while let Some(entry) = unsafe { at.as_ref() } {
        let is_ours = entry.is_armed.load(Ordering::Acquire) && !entry.is_left_behind.load(Ordering::Relaxed);
        let raw = entry.raw.load(Ordering::Relaxed).addr();
        if is_ours && (raw..raw + entry.raw_bytes.load(Ordering::Relaxed)).contains(&address) {
            return Some(std::array::from_fn(|at| entry.path[at].load(Ordering::Relaxed)));
        }
        at = entry.next.load(Ordering::Relaxed);
    }
    None
}

/// Makes a reserved range inaccessible, and keeps it.
fn hide(raw: *mut c_void, bytes: usize) {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let reserved = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: the range is the region's, of which an armed entry says so; nothing but the region's own
    // mappings is replaced. References into it are of the parent's handles, and a use of them ends the child.
    let _ = unsafe { mmap_anonymous(raw, bytes, ProtFlags::empty(), reserved) };
}

/// Runs in every child.
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    let mut at = ENTRIES.load(Ordering::Acquire);
    // SAFETY: entries are never freed.
    while let Some(entry) = unsafe { at.as_ref() } {
        entry.leave_behind();
        at = entry.next.load(Ordering::Relaxed);
    }
}

/// Threads that run this at once install the handler more than once, which does no harm: it is idempotent.
fn install_handler() -> Result<(), RegionError> {
    // Miri has no such call.
    if cfg!(miri) || HAS_HANDLER.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: the handler calls nothing that must not be called in a child.
    match unsafe { libc::pthread_atfork(None, None, Some(in_child)) } {
        0 => HAS_HANDLER.store(true, Ordering::Release),
        error => return Err(RegionError::io("preparing for forks", Errno::from_raw_os_error(error))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use std::os::fd::AsRawFd as _;

    /// In a grandchild the handler replaced a file that had got the descriptor's number by then, and stored
    /// into words that had been freed.
    #[test]
    fn nothing_is_taken_away_a_second_time() {
        const BYTES: usize = 4096;
        // SAFETY: a new range, which only this test knows.
        let raw = unsafe { mmap_anonymous(null_mut(), BYTES, ProtFlags::READ, MapFlags::PRIVATE) }.unwrap();
        let mut file = OwnedFd::from(tempfile::tempfile().unwrap());
        let entry = Entry::arm(raw, BYTES, file.as_raw_fd(), Path::new("")).unwrap();
        let lengths = [AtomicU64::new(5), AtomicU64::new(6)];
        // SAFETY: they live until the entry is disarmed.
        unsafe { entry.clear_too([&lengths[0], &lengths[1]]) };
        entry.leave_behind();
        assert_eq!(lengths.each_ref().map(|length| length.load(Ordering::Relaxed)), [0, 0]);
        // The number of the descriptor, and the words, are used for something else by now.
        let other = tempfile::tempfile().unwrap();
        rustix::io::dup2(&other, &mut file).unwrap();
        lengths[1].store(7, Ordering::Relaxed);
        entry.leave_behind();
        assert_eq!(fstat(&file).unwrap().st_ino, fstat(&other).unwrap().st_ino);
        assert_eq!(lengths[1].load(Ordering::Relaxed), 7);
        entry.disarm();
        entry.give_back();
        // SAFETY: the range of this test.
        unsafe { munmap(raw, BYTES) }.unwrap();
    }
}
