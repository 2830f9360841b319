//! Cutting the end of a region, and of its file.
//!
//! The region becomes shorter first ([`Region::shrink`]): no access reaches the part that is cut off from
//! then on. Then its addresses are reserved as they were before the region grew, and at last the file is cut
//! ([`Region::cut_file`]): a load from a mapping behind the end of its file would end the process. The caller
//! makes the shorter length durable before the region becomes shorter. A file that a crash has left longer
//! than that is cut when it is opened next, or before it grows.
//!
//! Records of a journal may have lines of the part that is cut off. Replay would write them behind the end of
//! the file, and they would reappear in space that has to read as zero. So everything is written home before
//! the region becomes shorter, the record of the shorter length too, and replay begins behind all that.

use crate::map::{Sharing, round_up};
use crate::region::Region;
use crate::{Domain, PAGE_BYTES, RegionError};
use std::sync::PoisonError;

/// After a cut, the first word behind the end of a simulated region has this value. A crash image with this
/// word in front of its end stands for a file that is shorter than it should be.
pub const CUT_MARK: u64 = 0x7e3b_0c07_d00d_1e55;

impl Region {
    /// Whether [`shrink`](Self::shrink) can be used.
    pub fn can_shrink(&self) -> bool {
        let is_of_file = matches!(self.sharing, Sharing::Shared | Sharing::SharedSync);
        let has_journal = self.journal().is_some_and(|journal| {
            // A simulator may keep the ring behind the region.
            self.file.is_some() || journal.ends_with_region(self.len())
        });
        is_of_file || has_journal || self.domain() == Domain::Simulated
    }

    /// Shortens the region to `bytes`, whole pages, if it is longer. The part that is cut off is unused, and
    /// its contents may be lost. Lines of it that were noted are left out of later fences. The file keeps its
    /// length until [`cut_file`](Self::cut_file).
    ///
    /// # Errors
    ///
    /// Where there is a journal, those of its device; those of a simulator's fences.
    ///
    /// # Panics
    ///
    /// If the region [cannot shrink](Self::can_shrink), or `bytes` are not whole pages.
    pub fn shrink(&self, bytes: u64) -> Result<(), crate::SyncError> {
        assert!(self.can_shrink() && bytes.is_multiple_of(PAGE_BYTES), "a region is cut by whole pages");
        let _one_at_a_time = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes >= self.len() || self.is_empty() {
            return Ok(());
        }
        if self.domain() == Domain::Simulated {
            self.mark_cut(bytes)?;
        }
        let cut_bytes = self.len() - bytes;
        // Before the records are written home: later records have no lines behind the end.
        self.set_len(bytes);
        if let Some(journal) = self.journal() {
            // PERSIST: no record has lines of the part that is cut off; the record of the shorter length is
            // at home.
            journal.vacate(&[(bytes, cut_bytes)])?;
        }
        Ok(())
    }

    /// Cuts the file, and the mapping, to the length of the region. Returns the bytes by which the file
    /// became shorter. Takes as long as the file system needs to free them.
    ///
    /// # Errors
    ///
    /// Failures of the system. The file is then as long as it was.
    pub fn cut_file(&self) -> Result<u64, RegionError> {
        if self.is_empty() {
            return Err(RegionError::Forked);
        }
        if !self.can_shrink() {
            return Ok(0);
        }
        let _one_at_a_time = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = round_up(self.len(), PAGE_BYTES);
        let length = match (&self.file, self.journal()) {
            (Some(file), _) => file.metadata().map(|found| found.len()),
            (None, Some(journal)) => journal.file_bytes(),
            (None, None) => return Ok(0),
        }
        .map_err(|e| RegionError::io("reading the file's length", e))?;
        if length <= bytes {
            return Ok(0);
        }
        if let Some(journal) = self.journal() {
            // PERSIST: after a kill in a cut, records found in the ring may have lines of the part that is
            // cut off.
            let vacated = journal.vacate(&[(bytes, length - bytes)]);
            vacated.map_err(|e| RegionError::io("cutting the file", std::io::Error::other(e)))?;
        }
        self.range.reserve_from(bytes)?;
        match (&self.file, self.journal()) {
            (Some(file), _) => file.set_len(bytes),
            (None, journal) => journal.map_or(Ok(()), |journal| journal.cut(bytes)),
        }
        .map_err(|e| RegionError::io("cutting the file", e))?;
        Ok(length - bytes)
    }

    /// For the simulator: see [`CUT_MARK`].
    fn mark_cut(&self, bytes: u64) -> Result<(), crate::SyncError> {
        // The word is in the region, so the store cannot fail.
        let _ = self.store_u64(bytes, CUT_MARK);
        self.marked_at.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        // PERSIST: as a file that was cut may be short on the device at once.
        self.persist(bytes, 8)
    }

    /// For the simulator: an image has marks from this byte on.
    pub(crate) fn find_cut_marks(&self, from: u64) {
        let is_mark = |at: &u64| self.load_u64(*at) == Ok(CUT_MARK);
        let found = (from..self.len()).step_by(PAGE_BYTES as usize).filter(is_mark);
        self.marked_at.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
    }

    /// For the simulator: the region has grown over the ends of these cuts.
    pub(crate) fn clear_cut_marks(&self) -> Result<(), crate::SyncError> {
        let mut marks = self.marked_at.lock().unwrap_or_else(PoisonError::into_inner);
        for mark in marks.extract_if(.., |mark| *mark < self.len()) {
            let _ = self.store_u64(mark, 0);
            // PERSIST: as the length of a file that has grown.
            self.persist(mark, 8)?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::journal::JournalPlace;
    use crate::{Access, Durability, RegionOptions};
    use std::fs::File;

    const MIB: u64 = 1 << 20;

    fn region_of(file: &File, durability: Durability) -> Region {
        let options = RegionOptions { durability, max_bytes: Some(64 * MIB), ..RegionOptions::default() };
        Region::allocate_new_file(file, 4 * MIB, &options).unwrap();
        Region::map_file(file.try_clone().unwrap(), 4 * MIB, &options, Access::ReadWrite).unwrap()
    }

    /// A region is cut and grows again, at the same addresses, and the new part is zero.
    #[test]
    fn what_was_cut_is_out_of_reach_and_comes_back_as_zeros() {
        for durability in [Durability::PageCache, Durability::Synced] {
            let file = tempfile::tempfile().unwrap();
            let region = region_of(&file, durability);
            let words = [MIB - 8, MIB, 4 * MIB - 8];
            for round in 0..3 {
                words.iter().for_each(|off| region.store_u64(*off, 7 + round).unwrap());
                region.flush(2 * MIB, 64);
                region.shrink(MIB).unwrap();
                assert_eq!((region.len(), file.metadata().unwrap().len()), (MIB, 4 * MIB));
                assert!(region.load_u64(MIB).is_err() && region.store_u64(MIB, 1).is_err());
                // A line that was flushed lies behind the end by now.
                region.fence().unwrap();
                assert_eq!(region.cut_file().unwrap(), 3 * MIB);
                assert_eq!(region.cut_file().unwrap(), 0);
                assert_eq!(file.metadata().unwrap().len(), MIB);
                region.grow(4 * MIB).unwrap();
                let found = words.map(|off| region.load_u64(off).unwrap());
                assert_eq!(found, [7 + round, 0, 0]);
            }
        }
    }

    /// Records of a journal, and lines that were noted and not fenced, do not come back behind the end.
    #[test]
    fn what_a_journal_has_of_the_part_that_goes_does_not_come_back() {
        let file = tempfile::tempfile().unwrap();
        let place = JournalPlace { off: MIB / 2, seed: 7 };
        region_of(&file, Durability::PageCache).format_journal(place, 64 << 10, 64 << 10).unwrap();
        let durability = Durability::Relaxed { interval_ms: 3_600_000 };
        let options = RegionOptions {
            durability,
            max_bytes: Some(64 * MIB),
            journal: Some(place),
            ..RegionOptions::default()
        };
        let region =
            Region::map_file(file.try_clone().unwrap(), 4 * MIB, &options, Access::ReadWrite).unwrap();
        let put = |off: u64| {
            region.store_u64(off, 7).unwrap();
            region.flush(off, 8);
        };
        for _ in 0..2 {
            put(3 * MIB);
            region.fence().unwrap();
            put(2 * MIB);
            region.shrink(MIB).unwrap();
            assert_eq!(region.cut_file().unwrap(), 3 * MIB);
            put(8);
            region.fence().unwrap();
            region.synchronise_file().unwrap();
            assert_eq!(file.metadata().unwrap().len(), MIB);
            region.grow(4 * MIB).unwrap();
            let found = [8, 2 * MIB, 3 * MIB].map(|off| region.load_u64(off).unwrap());
            assert_eq!(found, [7, 0, 0]);
        }
    }

    /// Growth between the two steps of a cut leaves the file as long as the region.
    #[test]
    fn growth_may_come_before_the_file_is_cut() {
        let file = tempfile::tempfile().unwrap();
        let region = region_of(&file, Durability::PageCache);
        region.store_u64(3 * MIB, 7).unwrap();
        region.shrink(MIB).unwrap();
        region.grow(2 * MIB).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 2 * MIB);
        assert_eq!((region.cut_file().unwrap(), region.len()), (0, 2 * MIB));
        region.grow(4 * MIB).unwrap();
        assert_eq!(region.load_u64(3 * MIB).unwrap(), 0);
    }

    #[test]
    fn a_region_that_nobody_may_store_to_is_not_cut() {
        let file = tempfile::tempfile().unwrap();
        drop(region_of(&file, Durability::PageCache));
        for access in [Access::ReadOnly, Access::Private] {
            let region =
                Region::map_file(file.try_clone().unwrap(), MIB, &RegionOptions::default(), access).unwrap();
            assert!(!region.can_shrink());
            assert_eq!(region.cut_file().unwrap(), 0);
        }
        assert_eq!(file.metadata().unwrap().len(), 4 * MIB);
    }
}
