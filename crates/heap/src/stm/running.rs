//! The transaction that runs on this thread, so that one begun inside it becomes a part of it.

use crate::error::{Error, Result};
use crate::stm::active_tx::{Care, State};
use crate::stm::shared::Core;
use std::cell::Cell;
use std::marker::PhantomData;

/// A running transaction, as nested ones find it.
struct Entry {
    core: *const Core,
    state: *const State,
    /// The transaction of another heap in which this one runs, or null.
    outer: *const Entry,
}

thread_local! {
    static CURRENT: Cell<*const Entry> = const { Cell::new(std::ptr::null()) };
}

/// A transaction that is running.
pub(crate) struct Running<'s> {
    state: *const State,
    of: PhantomData<&'s State>,
}

impl Running<'_> {
    pub(crate) fn state(&self) -> &State {
        // SAFETY: `enter` keeps the state borrowed for as long as the entry is there, and what `of` found is used within the call that looked,
        // which happens inside the call of `enter` (or not at all, as the entry is taken back even by a panic).
        unsafe { &*self.state }
    }

    /// Whether another can run as a part of this one.
    pub(crate) fn check_nested(&self) -> Result<()> {
        if self.state().borrowed.get() > 0 { Err(Error::Borrowed) } else { Ok(()) }
    }
}

/// Whether a transaction of any heap runs on this thread.
#[inline(always)]
pub(crate) fn is_any() -> bool {
    !CURRENT.get().is_null()
}

/// The transaction of the heap that runs on this thread.
#[inline]
pub(crate) fn of(core: &Core) -> Option<Running<'_>> {
    let mut at = CURRENT.get();
    // SAFETY: every entry that can be found lies in a call of `enter` that has not returned.
    while let Some(entry) = unsafe { at.as_ref() } {
        if std::ptr::eq(entry.core, core) {
            return Some(Running { state: entry.state, of: PhantomData });
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
        unsafe { (*entry.state).care_for(Care::DOOMED) };
        at = entry.outer;
    }
}

/// Calls `body` while `state` is the thread's transaction.
#[inline(always)]
pub(crate) fn enter<T>(core: &Core, state: &State, body: &impl Fn(&Running<'_>) -> T) -> T {
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
    let entry = Entry { core, state, outer: current.get() };
    let _restore = Restore(current, entry.outer);
    current.set(&raw const entry);
    body(&Running { state, of: PhantomData })
}
