//! Giving private pages back, so that a pool may be larger than memory (`private/mod.rs`).

use super::Journal;
use super::home::Writer;
use crate::SyncError;
use crate::private::{Candidate, PrivatePages};
use std::sync::{Arc, PoisonError};

/// Pages are given back until so many of 8 parts of the limit are left.
const PARTS_KEPT: u64 = 7;

impl Journal {
    /// Says which pages of its region are private. Once, before the first record.
    pub(crate) fn set_pages(&self, pages: Arc<PrivatePages>) {
        assert!(self.pages.set(pages).is_ok(), "a journal has one region");
    }

    /// Gives private pages back that are at home and were not stored to since, until at most `keep` are left.
    /// Returns how many it gave back.
    ///
    /// # Errors
    ///
    /// [`SyncError`] when the device has failed.
    pub fn give_back(&self, keep: u64) -> Result<u64, SyncError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pages) = self.pages.get() else { return Ok(0) };
        let tail = {
            let state = self.lock();
            state.check()?;
            state.tail
        };
        let (mut left, mut count) = (pages.end(), 0);
        while left > 0 && pages.count() > keep {
            let candidates = pages.candidates(&mut writer.hand, &mut left, tail);
            let (candidates, contents) = self.read_home(pages, &mut writer, candidates);
            count += pages.give_back(candidates, &contents);
        }
        Ok(count)
    }

    /// Writes everything home that was recorded, and drops the private pages of ranges of free space: offsets
    /// and bytes. The file may lose them from then on: no record has lines of them, and no thread stores to
    /// them.
    ///
    /// # Errors
    ///
    /// [`SyncError`] when the device fails.
    pub(crate) fn vacate(&self, ranges: &[(u64, u64)]) -> Result<(), SyncError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_back_until_now(&mut writer)?;
        if let Some(pages) = self.pages.get() {
            ranges.iter().for_each(|(off, bytes)| pages.forget(*off, *bytes));
        }
        Ok(())
    }

    /// Reads the candidates' pages from the file, as far as it has whole pages of them. A page that cannot be
    /// read stays private.
    fn read_home(
        &self,
        pages: &PrivatePages,
        _: &mut Writer,
        candidates: Vec<Candidate>,
    ) -> (Vec<Candidate>, Vec<u8>) {
        let page_bytes = pages.page_bytes();
        let whole_pages = self.medium.bytes().unwrap_or(0) / page_bytes;
        let (mut read, mut contents) = (Vec::with_capacity(candidates.len()), Vec::new());
        for run in candidates.chunk_by(|one, next| one.page + 1 == next.page) {
            let count = run.iter().filter(|found| found.page < whole_pages).count();
            let start = contents.len();
            contents.resize(start + count * page_bytes as usize, 0);
            match self.medium.read(run[0].page * page_bytes, &mut contents[start..]) {
                Ok(()) => read.extend_from_slice(&run[..count]),
                Err(_) => contents.truncate(start),
            }
        }
        (read, contents)
    }

    /// Whether there are more private pages than there should be.
    pub(super) fn has_too_many_pages(&self) -> bool {
        self.pages.get().is_some_and(|pages| pages.count() > pages.limit())
    }

    /// Gives so many pages back that commits are not slowed, if need be after a write-back. Returns whether
    /// it came to that.
    pub(super) fn relieve(&self) -> Result<bool, SyncError> {
        let Some(pages) = self.pages.get() else { return Ok(true) };
        let keep = pages.limit() / 8 * PARTS_KEPT;
        self.give_back(keep)?;
        if pages.count() > keep {
            // The remaining pages have records, or were stored to and not flushed.
            self.write_some_back()?;
            self.give_back(keep)?;
        }
        Ok(pages.count() <= pages.limit())
    }
}
