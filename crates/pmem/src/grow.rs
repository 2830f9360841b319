//! Space: growing the file in place, giving unused ranges back, and taking them again.

use crate::huge_pages::allocate_huge;
use crate::map::{Sharing, round_up};
use crate::region::Region;
use crate::{Access, PAGE_BYTES, RegionError, RegionOptions, SyncError};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Bytes of a growth where it is the file system's time that counts: tmpfs fills them with zeros in a
/// millisecond.
const GROWTH_STEP: u64 = 4 << 20;

impl Region {
    /// The bytes by which a region of this length should grow at least. A domain that waits for its device in
    /// each growth grows by a sixteenth, between 16 MiB and 1 GiB; the others by 4 MiB, so that no store
    /// waits long.
    pub fn growth_step(&self, bytes: u64) -> u64 {
        if self.domain().outlives_boots() { (bytes / 16).clamp(16 << 20, 1 << 30) } else { GROWTH_STEP }
    }

    /// Grows the region (and its file) to `bytes`, rounded up to a page; the new bytes read as zero and have
    /// their space allocated, so that a later store cannot fail. Does nothing if it is that long already.
    ///
    /// The address of the region does not change. A failure leaves the region and the file as they were.
    ///
    /// # Errors
    ///
    /// [`RegionError::NoSpace`], [`RegionError::FileSizeLimit`], [`RegionError::AtMaximum`] or another
    /// failure of the system.
    pub fn grow(&self, bytes: u64) -> Result<(), RegionError> {
        if self.is_empty() {
            return Err(RegionError::Forked);
        }
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
                allocate_file(file, old, new, self.huge_pages)?;
                if self.domain().outlives_boots() {
                    // PERSIST: the file's new length must be durable before the pool counts on it (of a
                    // journal: I7).
                    rustix::fs::fsync(file)
                        .map_err(|e| RegionError::io("synchronising the grown file", e))?;
                }
                self.range.map_file(file, mapped, new, self.sharing)?;
                self.paging.advise(&self.range, (mapped, new), self.sharing);
                if self.prefaults {
                    self.range.populate(mapped, new, self.sharing.population());
                }
            }
            None => {
                if let Some(journal) = self.journal() {
                    journal.extend(old, new).map_err(|e| RegionError::io("growing the file", e))?;
                }
                self.range.map_anonymous(mapped, new)?;
            }
        }
        self.set_len(new);
        if self.domain() == crate::Domain::Simulated {
            self.clear_cut_marks().map_err(|e| RegionError::io("growing", std::io::Error::other(e)))?;
        }
        Ok(())
    }

    /// Removes all contents from `bytes` (a multiple of 4 KiB) on, before the region is shared: a region that
    /// grows again has zeros there.
    pub fn truncate(&mut self, bytes: u64) {
        assert!(bytes.is_multiple_of(PAGE_BYTES), "a region's length is whole pages");
        let old = self.len();
        if bytes < old {
            if self.domain() == crate::Domain::Simulated {
                self.find_cut_marks(bytes);
            }
            if self.file.is_none() {
                self.range.discard(bytes, round_up(old, PAGE_BYTES));
            }
            self.set_len(bytes);
        }
    }

    /// Maps the pages of a range that will be stored to soon, all at once, which takes a fraction of the time
    /// of their page faults. Changes no contents. Does nothing where the system cannot do that.
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

    /// Another descriptor of the file, which has its advisory lock too and keeps it when the region is
    /// dropped: the file can be opened again without a moment at which another process can. `None` if the
    /// region has no file.
    ///
    /// # Errors
    ///
    /// Failures of the system.
    pub fn keep_lock(&self) -> std::io::Result<Option<File>> {
        let Some(file) = &self.file else { return Ok(None) };
        let kept = file.try_clone()?;
        self.keeps_lock.store(true, Ordering::Relaxed);
        Ok(Some(kept))
    }

    /// Releases the advisory lock (`flock`) that the region's descriptor has on the file. Closing the
    /// descriptor does so only if no other process has it: a child that was just forked has it until it runs
    /// its program.
    pub fn unlock_file(&self) {
        // The next holder of the lock must be the only one that writes to the file.
        if let Some(journal) = &self.journal {
            journal.stop();
        }
        if let Some(file) = self.file.as_ref().filter(|_| !self.keeps_lock.load(Ordering::Relaxed)) {
            // If this fails, closing the file releases the lock.
            let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
        }
    }

    /// Writes the pages of a range back to their device, in any domain; with a journal, only fenced lines.
    /// Does nothing without a file.
    ///
    /// # Errors
    ///
    /// [`SyncError`] when the device fails.
    pub fn synchronise_pages(&self, off: u64, bytes: u64) -> Result<(), SyncError> {
        if let Some(journal) = self.journal() {
            return journal.write_all_back();
        }
        let start = off & !(PAGE_BYTES - 1);
        let end = round_up(off.saturating_add(bytes), PAGE_BYTES).min(round_up(self.len(), PAGE_BYTES));
        if self.file.is_none() || start >= end {
            return Ok(());
        }
        self.write_back(start, end).map_err(|e| SyncError { message: e.to_string() })
    }

    /// Writes all pages of the file that any process changed, and its length, back to the device, in any
    /// domain; with a journal, only fenced lines. Takes as long as the device needs. Does nothing without a
    /// file.
    ///
    /// # Errors
    ///
    /// [`SyncError`] when the device fails.
    pub fn synchronise_file(&self) -> Result<(), SyncError> {
        if let Some(journal) = self.journal() {
            return journal.write_all_back();
        }
        let Some(file) = &self.file else { return Ok(()) };
        rustix::fs::fsync(file).map_err(|e| SyncError { message: e.to_string() })
    }

    /// Writes whole pages, which are mapped, to the device.
    pub(crate) fn write_back(&self, start: u64, end: u64) -> Result<(), rustix::io::Errno> {
        // SAFETY: the range is mapped by this region; writing it back changes no contents.
        unsafe {
            rustix::mm::msync(
                self.range.base().add(start as usize).cast(),
                (end - start) as usize,
                rustix::mm::MsyncFlags::SYNC,
            )
        }
    }

    /// Gives the space of whole pages inside ranges (offsets and bytes) back to the file system; they read as
    /// zero afterwards and must be [taken again](Self::reallocate) before it is stored to. Where there is a
    /// journal, all records are written home first: one with lines of the range would fill it again. Where
    /// the file system cannot do this, nothing happens. Returns the bytes given back.
    pub fn punch(&self, ranges: impl IntoIterator<Item = (u64, u64)>) -> u64 {
        if self.file.is_none() && self.journal.is_none() {
            return 0;
        }
        let whole_pages = |(off, bytes): (u64, u64)| {
            let (start, end) = (round_up(off, PAGE_BYTES), (off + bytes) & !(PAGE_BYTES - 1));
            (start < end && end <= self.len()).then(|| (start, end - start))
        };
        let ranges: Vec<_> = ranges.into_iter().filter_map(whole_pages).collect();
        // PERSIST: what freed the ranges is on the device, and no record has lines of them.
        if ranges.is_empty() || self.journal().is_some_and(|journal| journal.vacate(&ranges).is_err()) {
            return 0;
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = |(off, bytes): &(u64, u64)| match (&self.file, self.journal()) {
            (Some(file), _) => rustix::fs::fallocate(file, flags, *off, *bytes).is_ok(),
            (None, journal) => journal.is_some_and(|journal| journal.punch(*off, *bytes)),
        };
        ranges.iter().filter(|range| punched(range)).map(|(_, bytes)| bytes).sum()
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
pub(crate) fn allocate_file(file: &File, old: u64, new: u64, huge_pages: bool) -> Result<(), RegionError> {
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
    if huge_pages {
        allocate_huge(file, old, new);
    }
    let outcome = match rustix::fs::fallocate(file, FallocateFlags::empty(), old, new - old) {
        Err(Errno::OPNOTSUPP) => write_zeros(file, old, new),
        Err(e) => Err(space_error(e, new - old)),
        Ok(()) => Ok(()),
    };
    if outcome.is_err() {
        // The file may have been extended in part; give that space back.
        let _ = file.set_len(old);
    }
    outcome
}

fn write_zeros(file: &File, old: u64, new: u64) -> Result<(), RegionError> {
    let zeros = vec![0; 1 << 20];
    let mut at = old;
    while at < new {
        let piece = (new - at).min(zeros.len() as u64) as usize;
        // The system call itself, which is no cancellation point of POSIX threads.
        match rustix::io::pwrite(file, &zeros[..piece], at) {
            Ok(0) => return Err(space_error(Errno::IO, new - old)),
            Ok(written) => at += written as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(space_error(errno, new - old)),
        }
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
    /// Gives the new, empty `file` an allocated length of `bytes`, before it is mapped; in huge pages if
    /// `options` say so.
    ///
    /// # Errors
    ///
    /// As for [`grow`](Self::grow).
    pub fn allocate_new_file(file: &File, bytes: u64, options: &RegionOptions) -> Result<(), RegionError> {
        allocate_file(file, 0, round_up(bytes, PAGE_BYTES), options.huge_pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    const MIB: u64 = 1 << 20;

    fn shared_memory_file() -> Option<File> {
        tempfile::tempfile_in("/dev/shm").ok()
    }

    fn allocated_bytes(file: &File) -> u64 {
        512 * file.metadata().unwrap().blocks()
    }

    /// With huge pages or without, new space is allocated and zero, and a part of it can be given back.
    #[test]
    fn memory_of_a_file_on_tmpfs_is_there_and_zero_and_can_be_given_back() {
        let Some(file) = shared_memory_file() else { return };
        let options = RegionOptions { huge_pages: true, ..RegionOptions::default() };
        Region::allocate_new_file(&file, 5 * MIB, &options).unwrap();
        assert_eq!((file.metadata().unwrap().len(), allocated_bytes(&file)), (5 * MIB, 5 * MIB));
        let region =
            Region::map_file(file.try_clone().unwrap(), 5 * MIB, &options, Access::ReadWrite).unwrap();
        let store_all =
            |value| (0..region.len()).step_by(4096).for_each(|at| region.store_u64(at, value).unwrap());
        store_all(7);
        region.grow(12 * MIB).unwrap();
        assert_eq!(allocated_bytes(&file), 12 * MIB);
        assert_eq!((region.load_u64(5 * MIB - 4096).unwrap(), region.load_u64(5 * MIB).unwrap()), (7, 0));
        store_all(8);
        assert_eq!(region.punch([(7 * MIB, 2 * MIB)]), 2 * MIB);
        assert_eq!(allocated_bytes(&file), 10 * MIB);
        region.reallocate(7 * MIB, 2 * MIB).unwrap();
        let words = [7 * MIB - 4096, 7 * MIB, 9 * MIB - 4096, 9 * MIB].map(|at| region.load_u64(at).unwrap());
        assert_eq!((words, allocated_bytes(&file)), ([8, 0, 0, 8], 12 * MIB));
    }

    /// A file that a crash left longer than the region reads as zero where the region grows.
    #[test]
    fn what_a_file_on_tmpfs_had_beyond_its_length_in_use_is_gone() {
        let Some(file) = shared_memory_file() else { return };
        file.set_len(8 * MIB).unwrap();
        file.write_all_at(&[9; 4096], 6 * MIB).unwrap();
        allocate_file(&file, 2 * MIB, 8 * MIB, true).unwrap();
        let mut page = [1; 4096];
        file.read_exact_at(&mut page, 6 * MIB).unwrap();
        assert_eq!(page, [0; 4096]);
        assert!(allocated_bytes(&file) >= 6 * MIB);
    }
}
