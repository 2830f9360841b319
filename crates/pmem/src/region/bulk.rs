//! Borrowing and copying bytes that no other thread touches.

use super::Region;
#[cfg(target_arch = "x86_64")]
use super::persist::lines_of;
use crate::PAGE_BYTES;
use crate::{LINE_BYTES, OutOfBounds, WORD_BYTES};
#[cfg(target_arch = "x86_64")]
use crate::{counters, flush};

impl Region {
    /// Borrows bytes of the region.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when they are not all inside the region.
    ///
    /// # Safety
    ///
    /// No thread stores to the range while the slice lives.
    #[inline(always)]
    pub unsafe fn bytes(&self, off: u64, bytes: u64) -> Result<&[u8], OutOfBounds> {
        self.check(off, bytes)?;
        // SAFETY: in bounds (checked), mapped and initialised for the life of the region; no concurrent store
        // by the caller's promise.
        Ok(unsafe { core::slice::from_raw_parts(self.range.base().add(off as usize), bytes as usize) })
    }

    /// Whether this many bytes lie at `off`.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when they are not all inside the region.
    #[inline]
    pub fn check_bytes(&self, off: u64, bytes: u64) -> Result<(), OutOfBounds> {
        self.check(off, bytes)
    }

    /// Copies bytes into memory that no other thread accesses. Does not flush.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when they would not all be inside the region.
    ///
    /// # Safety
    ///
    /// No other thread accesses the range during the call, and no slice of it is borrowed.
    #[inline(always)]
    pub unsafe fn write(&self, off: u64, data: &[u8]) -> Result<(), OutOfBounds> {
        self.check(off, data.len() as u64)?;
        self.assert_writable();
        if self.instrumented {
            self.note_write(off, data);
            // SAFETY: in bounds (checked); exclusive by the caller's promise.
            unsafe { self.copy_with_care(off, data) };
            return Ok(());
        }
        // SAFETY: in bounds (checked); exclusive by the caller's promise; `data` is a live slice, hence not
        // in the range.
        unsafe {
            core::ptr::copy_nonoverlapping(data.as_ptr(), self.range.base().add(off as usize), data.len())
        };
        Ok(())
    }

    /// Copies bytes into pages that may be private.
    ///
    /// # Safety
    ///
    /// The range is in the region; else as for [`write`](Self::write).
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn copy_with_care(&self, off: u64, data: &[u8]) {
        // Copied page by page, so that a long copy occupies no page for long.
        let (mut off, mut rest) = (off, data);
        while !rest.is_empty() {
            let (part, others) = rest.split_at(rest.len().min((PAGE_BYTES - off % PAGE_BYTES) as usize));
            let _inside = self.enter(off, part.len() as u64);
            // SAFETY: a part of the range, exclusive by the caller's promise.
            unsafe { copy(self.range.base().add(off as usize), part) };
            (off, rest) = (off + part.len() as u64, others);
        }
    }

    /// Copies bytes into pages that no thread can give back yet.
    ///
    /// # Safety
    ///
    /// As for [`copy_with_care`](Self::copy_with_care), and the journal's threads have not started.
    pub(super) unsafe fn copy_alone(&self, off: u64, data: &[u8]) {
        // SAFETY: the caller's promise.
        unsafe { copy(self.range.base().add(off as usize), data) };
    }

    /// As [`write_and_flush`](Self::write_and_flush), with a journal.
    ///
    /// # Safety
    ///
    /// As for [`copy_with_care`](Self::copy_with_care).
    unsafe fn write_and_note(&self, off: u64, data: &[u8]) -> Result<(), OutOfBounds> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_with_care(off, data) };
        self.flush(off, data.len() as u64);
        Ok(())
    }

    /// As [`write_and_flush`](Self::write_and_flush), for a caller that has the region for itself.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when they would not all be inside the region.
    pub fn write_and_flush_alone(&mut self, off: u64, data: &[u8]) -> Result<(), OutOfBounds> {
        // SAFETY: `&mut self` means that no other thread accesses the region, and that nothing borrows from
        // it.
        unsafe { self.write_and_flush(off, data) }
    }

    /// Copies bytes into memory that no other thread accesses, and starts their write-back, past the caches
    /// where that is faster. The words of a line may reach media in any order.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] when they would not all be inside the region.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    #[inline]
    pub unsafe fn write_and_flush(&self, off: u64, data: &[u8]) -> Result<(), OutOfBounds> {
        let bytes = data.len() as u64;
        self.check(off, bytes)?;
        self.assert_writable();
        if self.instrumented {
            self.note_disorderly_write(off, data);
            if self.journal.is_some() {
                // SAFETY: in bounds (checked); exclusive by the caller's promise.
                return unsafe { self.write_and_note(off, data) };
            }
        }
        #[cfg(target_arch = "x86_64")]
        if self.streams_single_lines && (off % LINE_BYTES) | (bytes % WORD_BYTES) == 0 {
            // A log record: all of it is stored past the caches.
            // SAFETY: in bounds (checked), exclusive by the caller's promise, and aligned.
            unsafe { self.stream(off, data) };
            if self.instrumented {
                self.note_flush(off, bytes);
            }
            return Ok(());
        }
        // The part that is stored past the caches: its start and its length.
        let (head, body) = if self.streams_single_lines && off.is_multiple_of(LINE_BYTES) {
            (0, data.len() & !(WORD_BYTES as usize - 1))
        } else if self.non_temporal && bytes >= 4 * LINE_BYTES {
            let head = (off.wrapping_neg() % LINE_BYTES) as usize;
            (head, (data.len() - head) & !(LINE_BYTES as usize - 1))
        } else {
            (data.len(), 0)
        };
        let (head_data, rest) = data.split_at(head);
        let (body_data, tail_data) = rest.split_at(body);
        let body_off = off + head as u64;
        let tail_off = body_off + body as u64;
        // SAFETY: all three parts are in bounds (checked as a whole) and exclusive by the caller's
        // promise; the body, where there is one, begins with a line and consists of whole words.
        unsafe {
            let base = self.range.base();
            if !head_data.is_empty() {
                copy(base.add(off as usize), head_data);
            }
            if !tail_data.is_empty() {
                copy(base.add(tail_off as usize), tail_data);
            }
            #[cfg(target_arch = "x86_64")]
            if body > 0 {
                self.stream(body_off, body_data);
            }
            #[cfg(not(target_arch = "x86_64"))]
            copy(base.add(body_off as usize), body_data);
        }
        if self.instrumented {
            self.note_flush(off, bytes);
        }
        self.start_write_back(off, head as u64);
        self.start_write_back(tail_off, tail_data.len() as u64);
        #[cfg(not(target_arch = "x86_64"))]
        self.start_write_back(body_off, body as u64);
        Ok(())
    }
}

#[cfg(target_arch = "x86_64")]
impl Region {
    /// Copies bytes past the caches, whose lines count as written back.
    ///
    /// # Safety
    ///
    /// As for [`write_and_flush`](Self::write_and_flush), which has checked the bounds; the range begins at a
    /// word and has whole words.
    #[inline(always)]
    unsafe fn stream(&self, off: u64, data: &[u8]) {
        counters::note_write_back(lines_of(off, data.len() as u64));
        // SAFETY: as the caller promises.
        unsafe { flush::copy_non_temporal(self.range.base().add(off as usize), data) };
    }
}

/// Copies bytes.
///
/// # Safety
///
/// `dst` is valid for writes of `src.len()` bytes, and does not overlap with `src`.
#[inline(always)]
unsafe fn copy(dst: *mut u8, src: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(src.as_ptr(), dst, src.len()) };
}
