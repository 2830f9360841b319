//! Space: growing the file in place, giving unused ranges back, and taking them again.

use crate::map::{PAGE_BYTES, Sharing, round_up};
use crate::region::Region;
use crate::{Access, Domain, RegionError};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::PoisonError;

impl Region {
    /// Grows the region (and its file) to `bytes`, rounded up to a page; the new bytes read as zero and have
    /// their space allocated, so that a later store cannot fail. Does nothing if it is that long already.
    ///
    /// The address of the region does not change. A failure leaves the region and the file as they were.
    ///
    /// # Errors
    ///
    /// [`RegionError::NoSpace`], [`RegionError::FileSizeLimit`], [`RegionError::AtMaximum`] or another failure
    /// of the system.
    pub fn grow(&self, bytes: u64) -> Result<(), RegionError> {
        let _one_at_a_time = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.len();
        let new = round_up(bytes, PAGE_BYTES);
        if new <= old {
            return Ok(());
        }
        if new > self.max_bytes() {
            return Err(RegionError::AtMaximum { max_bytes: self.max_bytes(), wanted_bytes: new });
        }
        let mapped = round_up(old, PAGE_BYTES);
        match &self.file {
            Some(file) => {
                allocate_file(file, old, new)?;
                if matches!(self.domain(), Domain::Synced | Domain::Dax | Domain::DaxCpuCache) {
                    // PERSIST: the file's new length must be durable before the pool counts on it.
                    rustix::fs::fsync(file)
                        .map_err(|e| RegionError::io("synchronising the grown file", e))?;
                }
                self.range.map_file(file, mapped, new, self.sharing)?;
                self.range.advise_huge(mapped, new);
                if self.prefaults {
                    self.range.populate(mapped, new, Access::ReadWrite);
                }
            }
            None => self.range.map_anonymous(mapped, new)?,
        }
        self.set_len(new);
        Ok(())
    }

    /// Forgets everything from `bytes` (a multiple of 4 KiB) on, before anyone else has the region; growing again
    /// brings zeros.
    pub fn truncate(&mut self, bytes: u64) {
        assert!(bytes.is_multiple_of(PAGE_BYTES), "a region's length is whole pages");
        let old = self.len();
        if bytes < old {
            if self.file.is_none() {
                self.range.discard(bytes, round_up(old, PAGE_BYTES));
            }
            self.set_len(bytes);
        }
    }

    /// Maps the pages of a range that will be stored to soon, all at once, which takes a fraction of the time that their page faults
    /// would take. Changes no contents. Where that cannot be done, nothing happens.
    pub fn populate(&self, off: u64, bytes: u64) {
        let end = off.saturating_add(bytes).min(self.len()) & !(PAGE_BYTES - 1);
        let start = off & !(PAGE_BYTES - 1);
        if matches!(self.sharing, Sharing::Shared | Sharing::SharedSync)
            && self.file.is_some()
            && !self.prefaults
            && start < end
        {
            self.range.populate(start, end, Access::ReadWrite);
        }
    }

    /// Gives up the advisory lock (`flock`) that the region's descriptor has on the file. Closing the descriptor does so only when
    /// nobody else has it: a child of this process that was just forked has, until it runs its program.
    pub fn unlock_file(&self) {
        if let Some(file) = &self.file {
            // A failure leaves it to the closing.
            let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
        }
    }

    /// Gives the space of whole pages inside a range back to the file system; the range reads as zero
    /// afterwards and must be [taken again](Self::reallocate) before it is stored to. Where the file system
    /// cannot do this, nothing happens. Returns the bytes given back.
    pub fn punch(&self, off: u64, bytes: u64) -> u64 {
        let start = round_up(off, PAGE_BYTES);
        let end = (off + bytes) & !(PAGE_BYTES - 1);
        let Some(file) = &self.file else { return 0 };
        if start >= end || end > self.len() {
            return 0;
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(file, flags, start, end - start) {
            Ok(()) => end - start,
            Err(_) => 0,
        }
    }

    /// Allocates file space for a range that may have been given back, so that stores to it cannot fail.
    ///
    /// # Errors
    ///
    /// [`RegionError::NoSpace`] when the file system is full.
    pub fn reallocate(&self, off: u64, bytes: u64) -> Result<(), RegionError> {
        let Some(file) = &self.file else { return Ok(()) };
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, off, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(e) => Err(space_error(e, bytes)),
        }
    }
}

/// Extends `file` from `old` to `new` bytes with allocated zeros. A failure leaves the file `old` bytes long.
///
/// # Errors
///
/// As for [`Region::grow`].
pub(crate) fn allocate_file(file: &File, old: u64, new: u64) -> Result<(), RegionError> {
    // A file beyond this limit raises a signal that kills the process, so the limit is read first.
    if let Some(limit_bytes) = getrlimit(Resource::Fsize).current
        && new > limit_bytes
    {
        return Err(RegionError::FileSizeLimit { limit_bytes, wanted_bytes: new });
    }
    // A file that is longer than the region, after a crash while it grew, must read as zero there.
    let length = file.metadata().map_err(|e| RegionError::io("reading the file's length", e))?.len();
    if length > old {
        file.set_len(old).map_err(|e| RegionError::io("cutting the file to its length in use", e))?;
    }
    let outcome = match rustix::fs::fallocate(file, FallocateFlags::empty(), old, new - old) {
        Err(Errno::OPNOTSUPP) => write_zeros(file, old, new),
        Err(e) => Err(space_error(e, new - old)),
        Ok(()) => Ok(()),
    };
    if outcome.is_err() {
        // The file may have been extended in part; give that back so that nothing is held in vain.
        let _ = file.set_len(old);
    }
    outcome
}

fn write_zeros(file: &File, old: u64, new: u64) -> Result<(), RegionError> {
    let zeros = vec![0; 1 << 20];
    let mut at = old;
    while at < new {
        let piece = (new - at).min(zeros.len() as u64) as usize;
        file.write_all_at(&zeros[..piece], at).map_err(|e| {
            match e.raw_os_error().map(Errno::from_raw_os_error) {
                Some(errno) => space_error(errno, new - old),
                None => RegionError::io("writing zeros to the pool file", e),
            }
        })?;
        at += piece as u64;
    }
    Ok(())
}

fn space_error(errno: Errno, needed_bytes: u64) -> RegionError {
    match errno {
        Errno::NOSPC | Errno::DQUOT => RegionError::NoSpace { needed_bytes },
        other => RegionError::io("allocating space for the pool file", other),
    }
}

impl Region {
    /// Gives the new, empty `file` an allocated length of `bytes`, before it is mapped.
    ///
    /// # Errors
    ///
    /// As for [`grow`](Self::grow).
    pub fn allocate_new_file(file: &File, bytes: u64) -> Result<(), RegionError> {
        allocate_file(file, 0, round_up(bytes, PAGE_BYTES))
    }
}
