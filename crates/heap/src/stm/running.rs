//! The transactions that run on a thread: a transaction that begins inside another one of its heap becomes
//! part of it.

use crate::error::{ErrorKind, Result};
use crate::stm::active_tx::ActiveTx;
use crate::stm::hazards::ReadHazards;
use crate::stm::shared::HeapShared;
use std::cell::Cell;
use std::marker::PhantomData;

/// The entry by which nested transactions find a running one.
struct RunningEntry {
    shared: *const HeapShared,
    active: *const ActiveTx,
    /// The transaction of another heap in which this one runs, or null.
    outer: *const RunningEntry,
}

thread_local! {
    static CURRENT: Cell<*const RunningEntry> = const { Cell::new(std::ptr::null()) };
}

/// A transaction that is running.
pub(crate) struct Running<'s> {
    active: *const ActiveTx,
    of: PhantomData<&'s ActiveTx>,
}

impl Running<'_> {
    pub(crate) fn active(&self) -> &ActiveTx {
        // SAFETY: `enter` keeps the state borrowed while the entry exists. The result of `of` is used within
        // the call that looked, which happens inside the call of `enter`. If that panics, the entry is
        // removed first.
        unsafe { &*self.active }
    }

    /// Refuses to run another transaction as part of this one while a value is borrowed.
    pub(crate) fn check_nested(&self) -> Result<()> {
        if self.active().borrowed.get() > 0 { Err(ErrorKind::Borrowed.into()) } else { Ok(()) }
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

/// Dooms all transactions that run on this thread, so that they are retried when they end.
#[cold]
pub(crate) fn doom_all() {
    let mut at = CURRENT.get();
    // SAFETY: every entry that can be found lies in a call of `enter` that has not returned, which keeps its
    // state borrowed.
    while let Some(entry) = unsafe { at.as_ref() } {
        // SAFETY: as above.
        unsafe { (*entry.active).add_hazard(ReadHazards::DOOMED) };
        at = entry.outer;
    }
}

/// Calls `body` with `active` as the thread's transaction.
#[inline(always)]
pub(crate) fn enter<T>(shared: &HeapShared, active: &ActiveTx, body: &impl Fn(&Running<'_>) -> T) -> T {
    struct Restore<'c>(&'c Cell<*const RunningEntry>, *const RunningEntry);
    impl Drop for Restore<'_> {
        #[inline(always)]
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let current = CURRENT.with(std::ptr::from_ref);
    // SAFETY: the thread-local has no destructor, and lives as long as the thread, hence as this call. (The
    // compiler would not inline the body into a closure of `with`.)
    let current = unsafe { &*current };
    let entry = RunningEntry { shared, active, outer: current.get() };
    let _restore = Restore(current, entry.outer);
    current.set(&raw const entry);
    body(&Running { active, of: PhantomData })
}
