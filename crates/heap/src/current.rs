//! The transaction that runs on this thread, so that one begun inside it becomes a part of it.

use crate::core::Core;
use crate::error::Error;
use crate::session::State;
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

    /// Runs a transaction that writes as a part of this one, which it takes with it when it fails, by an error or a panic.
    pub(crate) fn nested_write<O, E: From<Error>>(
        &self,
        body: impl FnOnce(&Running<'_>) -> Result<O, E>,
    ) -> Result<O, E> {
        self.nested_read(|running| {
            let before = self.state().nested_failed.replace(true);
            let outcome = body(running);
            if outcome.is_ok() {
                self.state().nested_failed.set(before);
            }
            outcome
        })
    }

    /// Runs a transaction that reads as a part of this one.
    pub(crate) fn nested_read<O, E: From<Error>>(
        &self,
        body: impl FnOnce(&Running<'_>) -> Result<O, E>,
    ) -> Result<O, E> {
        if self.state().borrowed.get() > 0 {
            return Err(Error::Borrowed.into());
        }
        body(self)
    }
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

/// Calls `body` while `state` is the thread's transaction.
#[inline(always)]
pub(crate) fn enter<T>(core: &Core, state: &State, body: impl FnOnce(&Running<'_>) -> T) -> T {
    struct Restore(*const Entry);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let entry = Entry { core, state, outer: CURRENT.get() };
    let _restore = Restore(entry.outer);
    CURRENT.set(&raw const entry);
    body(&Running { state, of: PhantomData })
}
