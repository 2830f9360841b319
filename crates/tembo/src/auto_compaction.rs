//! When a pool is compacted unasked.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// When a pool is compacted unasked.
#[derive(Debug, Default)]
pub(crate) struct AutoCompaction {
    pub(crate) is_off: AtomicBool,
    /// After a compaction that has made no room: the bytes in holes, plus one. 0 if there was no such
    /// compaction.
    pub(crate) futile_at: AtomicU64,
    pub(crate) run: Mutex<MissedRun>,
}

impl AutoCompaction {
    pub(crate) fn switch(&self, is_on: bool) {
        self.is_off.store(!is_on, Ordering::Relaxed);
    }
}

/// The run of free space that a compaction could not make, for a program that compacts the pool itself when a
/// change finds no space. It prevents futile attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MissedRun {
    pub(crate) bytes: u64,
    /// The pool's unused bytes when the run was missed.
    pub(crate) unused_bytes: u64,
    /// The compaction that was to make the run was called off, so that the run was still missed.
    pub(crate) was_called_off: bool,
}
