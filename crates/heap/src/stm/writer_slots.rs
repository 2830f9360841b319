//! Slots for writers that no thread uses.

use crate::stm::writer::WriterContext;
use crossbeam_utils::CachePadded;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A slot for one writer. Putting it back is a plain store: a locked instruction there would wait for all
/// stores of the commit before.
pub(crate) struct WriterSlot {
    /// The idle writer, which the slot owns, or null. In a cache line of its own, because every transaction
    /// changes it.
    idle: CachePadded<AtomicPtr<WriterContext>>,
    /// Whether the writer exists.
    pub exists: AtomicBool,
}

impl WriterSlot {
    pub(crate) fn new() -> WriterSlot {
        WriterSlot { idle: CachePadded::new(AtomicPtr::new(ptr::null_mut())), exists: AtomicBool::new(false) }
    }

    /// Takes the writer, if no other thread has it.
    #[inline]
    pub(crate) fn take(&self) -> Option<Box<WriterContext>> {
        // ORDER: acquire, paired with the release in `put`.
        let writer = self.idle.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: the pointer in the slot came from a box (`put`), and the thread that swaps it out is its
        // only owner.
        (!writer.is_null()).then(|| unsafe { Box::from_raw(writer) })
    }

    /// Puts back the writer that was taken from here, or the slot's first.
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
