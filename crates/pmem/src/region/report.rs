//! Reports of loads, stores, flushes and fences, to the counters and to an observer.

use super::Region;
use crate::observer::ThreadTag;
use crate::{LINE_BYTES, WORD_BYTES, counters};
use std::sync::atomic::Ordering;

impl Region {
    /// Reports a load of bytes that the caller read through [`bytes`](Self::bytes), which cannot know which
    /// of them are read. Costs a predictable branch where loads are not reported.
    #[inline(always)]
    pub fn note_load(&self, off: u64, bytes: u64) {
        if self.reports_loads {
            self.report_load(off, bytes);
        }
    }

    #[cold]
    #[inline(never)]
    fn report_load(&self, off: u64, bytes: u64) {
        if let Some(observer) = &self.observer {
            observer.load(ThreadTag::current(), off, bytes);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn report_prefetch(&self, off: u64) {
        if let Some(observer) = &self.observer {
            observer.prefetch(ThreadTag::current(), off / LINE_BYTES);
        }
    }

    #[cold]
    pub(super) fn note_store(&self, off: u64, new: &[u8]) {
        if !self.is_counted {
            return;
        }
        counters::add(1, 0, 0);
        if let Some(observer) = &self.observer {
            observer.store(ThreadTag::current(), off, new);
        }
    }

    /// As `note_store`, for a value that is computed from the word's old value in the same atomic step.
    #[cold]
    pub(super) fn note_update(&self, off: u64, new: impl FnOnce() -> u64) {
        if let Some(observer) = &self.observer {
            observer.update(ThreadTag::current());
        }
        self.note_store(off, &new().to_le_bytes());
    }

    #[cold]
    pub(super) fn note_write(&self, off: u64, data: &[u8]) {
        let mut at = if self.is_counted { 0 } else { data.len() };
        while at < data.len() {
            let word_left = (WORD_BYTES - (off + at as u64) % WORD_BYTES) as usize;
            let piece = word_left.min(data.len() - at);
            self.note_store(off + at as u64, &data[at..at + piece]);
            at += piece;
        }
    }

    /// As `note_write`, for lines whose words may arrive in any order: reports them in an order that differs
    /// from line to line.
    #[cold]
    pub(super) fn note_disorderly_write(&self, off: u64, data: &[u8]) {
        let mut at = if self.is_counted { 0 } else { data.len() };
        while at < data.len() {
            let line_left = (LINE_BYTES - (off + at as u64) % LINE_BYTES) as usize;
            let (start, end) = (at, data.len().min(at + line_left));
            let mut pieces = Vec::with_capacity((LINE_BYTES / WORD_BYTES) as usize);
            while at < end {
                let word_left = (WORD_BYTES - (off + at as u64) % WORD_BYTES) as usize;
                pieces.push(at..end.min(at + word_left));
                at += word_left;
            }
            at = end;
            debug_assert_eq!(pieces.first().map(|piece| piece.start), Some(start));
            let mut chance = self.disorder.fetch_add(1, Ordering::Relaxed);
            for left in (2..=pieces.len()).rev() {
                chance = chance.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                pieces.swap(left - 1, ((chance >> 33) % left as u64) as usize);
            }
            pieces.into_iter().for_each(|piece| self.note_store(off + piece.start as u64, &data[piece]));
        }
    }

    #[cold]
    pub(super) fn note_flush(&self, off: u64, bytes: u64) {
        if !self.is_counted || bytes == 0 || self.check(off, bytes).is_err() {
            return;
        }
        let lines = off / LINE_BYTES..=(off + bytes - 1) / LINE_BYTES;
        counters::add(0, lines.end() - lines.start() + 1, 0);
        if let Some(observer) = &self.observer {
            lines.for_each(|line| observer.flush(ThreadTag::current(), line));
        }
    }

    #[cold]
    pub(super) fn note_fence(&self) {
        if !self.is_counted {
            return;
        }
        counters::add(0, 0, 1);
        if let Some(observer) = &self.observer {
            observer.fence(ThreadTag::current());
        }
    }
}
