//! The file of an open journal: its ring is synchronised apart from the rest.
//!
//! `fdatasync` writes every changed page of the file, those of a write-back included, which takes a hundred
//! times as long as the ring's own. `msync` writes those of a range: the ring is mapped for that only, and is
//! never read or stored to there.
//!
//! The kernel reports a failed write once for each open file description. Commits and write-backs
//! synchronise at the same time, and each has to learn of its failures, so each has a description of its own.
//! Where the system gives none, one synchronisation follows the other, and a failure is remembered for both.

use super::Medium;
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The file of a journal.
pub(crate) struct DiskFile {
    file: Arc<File>,
    /// The description with which everything is synchronised.
    whole: Option<File>,
    /// The description with which the ring is.
    ring: Option<File>,
    mapped: OnceLock<Mapped>,
    /// Where the descriptions are one: held during a synchronisation; the first failure.
    shared: Mutex<Option<Errno>>,
}

/// A mapped range of the file, for its synchronisation.
struct Mapped {
    off: u64,
    bytes: u64,
    at: *mut c_void,
}

// SAFETY: the mapping is never read or stored to.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl DiskFile {
    pub(crate) fn new(file: &Arc<File>) -> DiskFile {
        let again = || {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            File::options().read(true).write(true).open(path).ok()
        };
        let (whole, ring) = (again(), again());
        DiskFile { file: file.clone(), whole, ring, mapped: OnceLock::new(), shared: Mutex::default() }
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
        self.file.read(off, into)
    }

    fn write(&self, off: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write(off, bytes)
    }

    fn synchronise(&self) -> io::Result<()> {
        self.all(self.whole.as_ref())
    }

    /// Where the system cannot synchronise a range, all is.
    fn prepare_range(&self, off: u64, bytes: u64) {
        let Some(file) = &self.ring else { return };
        let null = core::ptr::null_mut();
        // SAFETY: a mapping at an address of the kernel's choice replaces nothing.
        let mapped =
            unsafe { rustix::mm::mmap(null, bytes as usize, ProtFlags::READ, MapFlags::SHARED, file, off) };
        if let Ok(at) = mapped {
            // SAFETY: mapped just now. A child of the process does not need it; a refusal is no error.
            let _ = unsafe { rustix::mm::madvise(at, bytes as usize, Advice::LinuxDontFork) };
            let _ = self.mapped.set(Mapped { off, bytes, at });
        }
    }

    fn synchronise_range(&self, off: u64, bytes: u64) -> io::Result<()> {
        let (start, end) = (off & !4095, off + bytes);
        match self.mapped.get() {
            Some(mapped) if mapped.off <= start && end <= mapped.off + mapped.bytes => {
                let at = mapped.at.wrapping_byte_add((start - mapped.off) as usize);
                // SAFETY: the range lies in the mapping; its contents do not change.
                let outcome = retry_on_intr(|| unsafe {
                    rustix::mm::msync(at, (end - start) as usize, MsyncFlags::SYNC)
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
        // SAFETY: mapped by this object, and no other code has its address.
        let _ = unsafe { rustix::mm::munmap(self.at, self.bytes as usize) };
    }
}
