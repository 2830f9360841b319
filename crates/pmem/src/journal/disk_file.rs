//! The file of an open journal: its ring is synchronised apart from the rest.
//!
//! `fdatasync` writes every changed page of the file, those of a write-back included, which takes a hundred
//! times as long as the ring's own. `msync` writes those of a range: the ring is mapped for that.
//!
//! # Stores
//!
//! Where no fence waits for the device, records are stored to that mapping: a call of the kernel for each
//! costs more than the rest of a short commit. Pages are made ready before, some at once ([`Window`]): they
//! are mapped anew, as a page that was written back would cost a fault of its own, and the kernel says that a
//! page cannot be had, where a store would end the process. In file systems that may allocate at a store to a
//! page that has space (btrfs, ZFS, XFS after a copy by reference, and others), and where pages cannot be
//! made ready, records are written by calls.
//!
//! A write-back loads short pieces of records from the mapping. If the device fails to read a page that the
//! kernel has dropped, the process ends, with a message (`bus_error.rs`).
//!
//! A killed process loses no store to a shared mapping. A page that is written back while a record is stored
//! may have a part of it: that record is not complete, so nobody waited for its synchronisation, and the next
//! one writes the page again.
//!
//! # Failures
//!
//! The kernel reports a failed write once for each open file description. Commits and write-backs
//! synchronise at the same time, and each has to learn of its failures, so each has a description of its own.
//! Where the system gives none, one synchronisation follows the other, and a failure is remembered for both.

use super::Medium;
use crate::fork::Entry;
use rustix::fs::fstatfs;
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The file of a journal.
pub(crate) struct DiskFile {
    file: Arc<File>,
    /// The description with which everything is synchronised.
    whole: Option<File>,
    /// The description with which the ring is.
    ring: Option<File>,
    mapped: OnceLock<Mapped>,
    /// The file's name in messages.
    path: PathBuf,
    /// The part of the mapping that is ready for stores; `None` where records are written by calls.
    window: Option<Mutex<Window>>,
    /// Where the descriptions are one: held during a synchronisation; the first failure.
    shared: Mutex<Option<Errno>>,
}

/// A mapped range of the file, for its synchronisation.
struct Mapped {
    off: u64,
    bytes: u64,
    at: *mut c_void,
    /// Keeps children of this process away, and names the file in the message of a bus error.
    entry: Option<&'static Entry>,
}

/// A range of the file whose pages were made ready for stores.
#[derive(Default)]
struct Window {
    off: u64,
    end: u64,
    /// A page could not be had. Calls report why.
    is_refused: bool,
}

/// Bytes that are made ready at once.
const WINDOW_BYTES: u64 = 256 << 10;

/// Bytes that are loaded from the mapping, and not read by a call.
const LOADED_BYTES_MAX: usize = 4096;

// SAFETY: stores to the mapping are made by `Mapped::store` only, under the lock of the window.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn has(&self, off: u64, bytes: u64) -> bool {
        self.off <= off && off + bytes <= self.off + self.bytes
    }

    fn at(&self, off: u64) -> *mut c_void {
        self.at.wrapping_byte_add((off - self.off) as usize)
    }

    /// Stores bytes, if their pages are ready, or can be made so. `room` bytes from there on have space in
    /// the file.
    fn store(&self, window: &mut Window, off: u64, bytes: &[u8], room: u64) -> bool {
        let count = bytes.len() as u64;
        if window.is_refused || room < count || !self.has(off, room) {
            return false;
        }
        if off < window.off || off + count > window.end {
            let start = off & !4095;
            let end = (off + room).min(start + WINDOW_BYTES.max(off + count - start));
            if !self.make_ready(start, end) {
                window.is_refused = true;
                return false;
            }
            (window.off, window.end) = (start, end);
        }
        // SAFETY: the range is in the mapping, which is writable where a window was made ready; no other
        // thread stores there, under the lock of the window, and nothing borrows from it.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(off).cast(), bytes.len()) };
        true
    }

    /// Loads bytes, if they are few and lie in the mapping: a call would cost more than they do.
    fn load(&self, off: u64, into: &mut [u8]) -> bool {
        if into.len() > LOADED_BYTES_MAX || !self.has(off, into.len() as u64) {
            return false;
        }
        // SAFETY: the range is in the mapping, which is readable. Nobody stores to it meanwhile: its records
        // are complete, and only the thread that reads them gives their space back.
        unsafe { core::ptr::copy_nonoverlapping(self.at(off).cast(), into.as_mut_ptr(), into.len()) };
        true
    }

    /// Maps pages anew and writable. Whether the system has done that.
    fn make_ready(&self, start: u64, end: u64) -> bool {
        let bytes = (end - start) as usize;
        let advise = |advice| {
            // SAFETY: the range lies in the mapping. Its pages are those of the file afterwards, as before.
            unsafe { rustix::mm::madvise(self.at(start), bytes, advice) }
        };
        advise(Advice::LinuxDontNeed).is_ok() && advise(Advice::LinuxPopulateWrite).is_ok()
    }
}

/// Whether a store to a page that has space in the file needs no other.
fn keeps_space(file: &File) -> bool {
    // The magic number of ext2 to ext4.
    const KEEPING: u64 = 0xEF53;
    fstatfs(file).is_ok_and(|found| found.f_type as u64 & 0xFFFF_FFFF == KEEPING)
}

impl DiskFile {
    /// `stores`: records are stored to the mapping, where that can be done.
    pub(crate) fn new(file: &Arc<File>, path: &Path, stores: bool) -> DiskFile {
        let again = || {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            File::options().read(true).write(true).open(path).ok()
        };
        let (whole, ring) = (again(), again());
        let window = (stores && keeps_space(file)).then(Mutex::default);
        DiskFile {
            file: file.clone(),
            whole,
            ring,
            mapped: OnceLock::new(),
            path: path.to_owned(),
            window,
            shared: Mutex::default(),
        }
    }

    /// Synchronises through a file description. If ring and pages share one, their synchronisations follow
    /// each other.
    fn all(&self, own: Option<&File>) -> io::Result<()> {
        if let Some(file) = own {
            return file.synchronise();
        }
        let mut failure = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = match *failure {
            Some(errno) => Err(errno),
            None => retry_on_intr(|| rustix::fs::fdatasync(&*self.file)),
        };
        *failure = outcome.err();
        Ok(outcome?)
    }
}

impl Medium for DiskFile {
    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn read(&self, off: u64, into: &mut [u8]) -> io::Result<()> {
        match self.mapped.get().filter(|_| self.window.is_some()) {
            Some(mapped) if mapped.load(off, into) => Ok(()),
            _ => self.file.read(off, into),
        }
    }

    fn write(&self, off: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write(off, bytes)
    }

    fn append(&self, off: u64, bytes: &[u8], room: u64) -> io::Result<()> {
        if let (Some(window), Some(mapped)) = (&self.window, self.mapped.get()) {
            let mut window = window.lock().unwrap_or_else(PoisonError::into_inner);
            if mapped.store(&mut window, off, bytes, room) {
                return Ok(());
            }
        }
        self.write(off, bytes)
    }

    fn synchronise(&self) -> io::Result<()> {
        self.all(self.whole.as_ref())
    }

    /// Where the system cannot synchronise a range, all is.
    fn prepare_range(&self, off: u64, bytes: u64) {
        let Some(file) = &self.ring else { return };
        let null = core::ptr::null_mut();
        let write = if self.window.is_some() { ProtFlags::WRITE } else { ProtFlags::empty() };
        let (bytes_mapped, protection) = (bytes as usize, ProtFlags::READ | write);
        // SAFETY: a mapping at an address of the kernel's choice replaces nothing.
        let mapped = unsafe { rustix::mm::mmap(null, bytes_mapped, protection, MapFlags::SHARED, file, off) };
        if let Ok(at) = mapped {
            let entry = Entry::arm(at, bytes as usize, file.as_raw_fd(), &self.path).ok();
            if entry.is_none() {
                // SAFETY: mapped just now. A child of the process does not need it; a refusal is no error.
                let _ = unsafe { rustix::mm::madvise(at, bytes as usize, Advice::LinuxDontFork) };
            }
            let _ = self.mapped.set(Mapped { off, bytes, at, entry });
        }
    }

    fn synchronise_range(&self, off: u64, bytes: u64) -> io::Result<()> {
        let (start, end) = (off & !4095, off + bytes);
        match self.mapped.get() {
            Some(mapped) if mapped.has(start, end - start) => {
                // SAFETY: the range lies in the mapping; its contents do not change.
                let outcome = retry_on_intr(|| unsafe {
                    rustix::mm::msync(mapped.at(start), (end - start) as usize, MsyncFlags::SYNC)
                });
                match outcome {
                    // Pages are larger than that.
                    Err(Errno::INVAL) => self.all(self.ring.as_ref()),
                    outcome => Ok(outcome?),
                }
            }
            _ => self.all(self.ring.as_ref()),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.entry.iter().for_each(|entry| entry.disarm());
        // SAFETY: mapped by this object, and no other code has its address.
        let _ = unsafe { rustix::mm::munmap(self.at, self.bytes as usize) };
        self.entry.iter().for_each(|entry| entry.give_back());
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    const ROOM: u64 = 3 * WINDOW_BYTES + 4096;

    /// A file whose records are stored, whatever the file system.
    fn storing(file_bytes: u64) -> DiskFile {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.set_len(file_bytes).unwrap();
        let disk = DiskFile { window: Some(Mutex::default()), ..DiskFile::new(&file, Path::new(""), false) };
        disk.prepare_range(4096, ROOM);
        disk
    }

    /// The bytes that a call writes are those that a store writes, in every window and over their borders.
    #[test]
    fn stored_records_are_in_the_file() {
        let disk = storing(4096 + ROOM);
        let (mut off, mut expected) = (4096, vec![0; 4096]);
        for length in (0..).map(|i| 1 + i * 7919 % 30_000).take(60) {
            let room = 4096 + ROOM - off;
            if room < length {
                break;
            }
            let bytes: Vec<u8> = (0..length).map(|i| (off + i) as u8 | 1).collect();
            disk.append(off, &bytes, room).unwrap();
            if length % 3 == 0 {
                disk.synchronise_range(off, length).unwrap();
                disk.synchronise().unwrap();
            }
            expected.extend_from_slice(&bytes);
            off += length;
        }
        let window = disk.window.as_ref().unwrap().lock().unwrap();
        assert!(off > 2 * WINDOW_BYTES && window.off > WINDOW_BYTES && !window.is_refused);
        let mut found = vec![0; expected.len()];
        disk.read(0, &mut found).unwrap();
        assert!(found == expected);
        // Few bytes are loaded from the mapping; many, and those before it, are read by a call.
        for (start, length) in
            [(4096, 1), (5000, 4096), (WINDOW_BYTES as usize, 777), (4000, 200), (4096, 9000)]
        {
            let mut found = vec![0; length];
            disk.read(start as u64, &mut found).unwrap();
            assert!(found == expected[start..start + length], "{length} bytes at {start}");
            let is_loaded = disk.mapped.get().unwrap().load(start as u64, &mut found);
            assert_eq!(is_loaded, start >= 4096 && length <= LOADED_BYTES_MAX, "{length} bytes at {start}");
        }
    }

    /// The file has no pages there: a store would end the process.
    #[test]
    fn where_pages_cannot_be_made_ready_records_are_written_by_calls() {
        let disk = storing(0);
        for off in [4096, 4096 + 5000] {
            disk.append(off, &[7; 5000], ROOM - 5000).unwrap();
        }
        assert!(disk.window.as_ref().unwrap().lock().unwrap().is_refused);
        let mut found = [0; 10_000];
        disk.read(4096, &mut found).unwrap();
        assert_eq!(found, [7; 10_000]);
        // Nor outside the mapping.
        disk.append(4096 + ROOM, &[8; 10], 10).unwrap();
        assert_eq!(disk.bytes().unwrap(), 4096 + ROOM + 10);
    }
}
