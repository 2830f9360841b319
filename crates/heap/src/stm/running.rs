//! The transaction that runs on this thread, so that one begun inside it becomes a part of it.

use crate::error::{Error, Result};
use crate::stm::active_tx::ActiveTx;
use crate::stm::hazards::ReadHazards;
use crate::stm::shared::HeapShared;
use std::cell::Cell;
use std::marker::PhantomData;

/// A running transaction, as nested ones find it.
struct Entry {
    shared: *const HeapShared,
    active: *const ActiveTx,
    /// The transaction of another heap in which this one runs, or null.
    outer: *const Entry,
}

thread_local! {
    static CURRENT: Cell<*const Entry> = const { Cell::new(std::ptr::null()) };
}

/// A transaction that is running.
pub(crate) struct Running<'s> {
    active: *const ActiveTx,
    of: PhantomData<&'s ActiveTx>,
}

impl Running<'_> {
    pub(crate) fn active(&self) -> &ActiveTx {
        // SAFETY: `enter` keeps the state borrowed for as long as the entry is there, and what `of` found is used within the call that looked,
        // which happens inside the call of `enter` (or not at all, as the entry is taken back even by a panic).
        unsafe { &*self.active }
    }

    /// Whether another can run as a part of this one.
    pub(crate) fn check_nested(&self) -> Result<()> {
        if self.active().borrowed.get() > 0 { Err(Error::Borrowed) } else { Ok(()) }
    }
}

/// Whether a transaction of any heap runs on this thread.
#[inline(always)]
pub(crate) fn is_any() -> bool {
    !CURRENT.get().is_null()
}

/// The transaction of the heap that runs on this thread.
#[inline]
pub(crate) fn of(shared: &HeapShared) -> Option<Running<'_>> {
    let mut at = CURRENT.get();
    // SAFETY: every entry that can be found lies in a call of `enter` that has not returned.
    while let Some(entry) = unsafe { at.as_ref() } {
        if std::ptr::eq(entry.shared, shared) {
            return Some(Running { active: entry.active, of: PhantomData });
        }
        at = entry.outer;
    }
    None
}

/// Has all transactions that run on this thread made again, once they end.
#[cold]
pub(crate) fn doom_all() {
    let mut at = CURRENT.get();
    // SAFETY: every entry that can be found lies in a call of `enter` that has not returned, which keeps its state borrowed.
    while let Some(entry) = unsafe { at.as_ref() } {
        // SAFETY: as above.
        unsafe { (*entry.active).add_hazard(ReadHazards::DOOMED) };
        at = entry.outer;
    }
}

/// Calls `body` while `state` is the thread's transaction.
#[inline(always)]
pub(crate) fn enter<T>(shared: &HeapShared, active: &ActiveTx, body: &impl Fn(&Running<'_>) -> T) -> T {
    struct Restore<'c>(&'c Cell<*const Entry>, *const Entry);
    impl Drop for Restore<'_> {
        #[inline(always)]
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let current = CURRENT.with(std::ptr::from_ref);
    // SAFETY: the thread's own, which has no destructor, and is there as long as the thread, hence this call. (In a closure of `with` the
    // body would be compiled by itself.)
    let current = unsafe { &*current };
    let entry = Entry { shared, active, outer: current.get() };
    let _restore = Restore(current, entry.outer);
    current.set(&raw const entry);
    body(&Running { active, of: PhantomData })
}
