//! Sessions that wait for a thread.

use crate::stm::writer::WriterContext;
use crossbeam_utils::CachePadded;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A place for a session. Putting one back is a plain store: a locked instruction would wait there for everything that the
/// commit has just stored.
pub(crate) struct WriterSlot {
    /// Owned by this slot, or null. Every transaction changes it, so that it lies beside no other thread's.
    idle: CachePadded<AtomicPtr<WriterContext>>,
    /// Whether there is a session.
    pub exists: AtomicBool,
}

impl WriterSlot {
    pub(crate) fn new() -> WriterSlot {
        WriterSlot { idle: CachePadded::new(AtomicPtr::new(ptr::null_mut())), exists: AtomicBool::new(false) }
    }

    /// Takes the session, if it is there.
    #[inline]
    pub(crate) fn take(&self) -> Option<Box<WriterContext>> {
        // ORDER: acquire, with the release of `put`.
        let writer = self.idle.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: what is in the slot came from a box (`put`), and whoever swaps it out is its only owner.
        (!writer.is_null()).then(|| unsafe { Box::from_raw(writer) })
    }

    /// Puts the session back that was taken from here, or is this slot's first.
    #[inline]
    pub(crate) fn put(&self, writer: Box<WriterContext>) {
        debug_assert!(self.idle.load(Ordering::Relaxed).is_null());
        self.idle.store(Box::into_raw(writer), Ordering::Release);
    }
}

impl Drop for WriterSlot {
    fn drop(&mut self) {
        drop(self.take());
    }
}
