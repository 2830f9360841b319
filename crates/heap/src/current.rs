//! The transaction that runs on this thread, so that one begun inside it becomes a part of it.

use crate::core::Core;
use crate::session::State;
use std::cell::Cell;
use std::marker::PhantomData;

/// A running transaction, as nested ones find it.
#[derive(Clone, Copy)]
struct Entry {
    core: *const Core,
    state: *const State,
}

thread_local! {
    static CURRENT: Cell<Entry> = const { Cell::new(Entry { core: std::ptr::null(), state: std::ptr::null() }) };
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
}

/// The transaction of the heap that runs on this thread.
#[inline]
pub(crate) fn of(core: &Core) -> Option<Running<'_>> {
    let entry = CURRENT.get();
    std::ptr::eq(entry.core, core).then_some(Running { state: entry.state, of: PhantomData })
}

/// Calls `body` while `state` is the thread's transaction.
#[inline]
pub(crate) fn enter<T>(core: &Core, state: &State, body: impl FnOnce(&Running<'_>) -> T) -> T {
    struct Restore(Entry);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _restore = Restore(CURRENT.replace(Entry { core, state }));
    body(&Running { state, of: PhantomData })
}
