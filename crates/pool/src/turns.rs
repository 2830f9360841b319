//! The locks that a thread holds while code of others runs under them. A thread that asks for one of them
//! again gets an error instead of waiting for itself for ever.
//!
//! Noted is what the callers of this library may do something else under: a batch, and what calls a
//! closure. It is read only where a thread is about to wait, so that it costs nothing elsewhere.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::MutexGuard;

/// The thread holds the lock that it asks for, and would wait for itself for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this thread holds {holds}, and asks for {asks}, for which it would wait for ever")]
pub struct WouldWait {
    /// The object that it holds, in words.
    pub holds: &'static str,
    /// The object that it asks for, in words.
    pub asks: &'static str,
}

thread_local! {
    /// Locks, each by its address and its purpose.
    static HELD: RefCell<Vec<(usize, &'static str)>> = const { RefCell::new(Vec::new()) };
}

/// As long as this lives, its thread is known to hold a lock.
#[derive(Debug)]
pub struct HeldHere {
    lock: usize,
    thread: usize,
    /// Stays in its thread, as the guards of locks do.
    _stays: PhantomData<MutexGuard<'static, ()>>,
}

impl HeldHere {
    /// The number of the thread that holds the lock, whichever thread asks.
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// Notes that the calling thread holds the lock at this address, for a purpose in words.
    pub fn note(lock: usize, holds: &'static str) -> HeldHere {
        HELD.with_borrow_mut(|held| held.push((lock, holds)));
        HeldHere { lock, thread: this_thread(), _stays: PhantomData }
    }
}

impl Drop for HeldHere {
    fn drop(&mut self) {
        // At the very end of a thread there is nothing left to take it out of.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|(lock, _)| *lock == self.lock) {
                held.remove(at);
            }
        });
    }
}

/// The number of the calling thread, unique among running threads; never 0.
pub fn this_thread() -> usize {
    tembo_sync::thread_number() + 1
}

/// Refuses to let a thread wait for a lock that it holds itself.
///
/// # Errors
///
/// [`WouldWait`].
pub fn expect_other(lock: usize, asks: &'static str) -> Result<(), WouldWait> {
    let found = HELD.try_with(|held| held.borrow().iter().rfind(|(held, _)| *held == lock).copied());
    match found.ok().flatten() {
        Some((_, holds)) => Err(WouldWait { holds, asks }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_told_of_what_it_holds_and_of_nothing_else() {
        let outer = HeldHere::note(1, "one");
        let inner = HeldHere::note(2, "two");
        assert!(matches!(expect_other(1, "x"), Err(WouldWait { holds: "one", asks: "x" })));
        std::thread::scope(|scope| {
            scope.spawn(|| expect_other(1, "x").unwrap());
        });
        // Not in the order in which they were noted.
        drop(outer);
        assert!(expect_other(1, "x").is_ok() && expect_other(2, "x").is_err());
        drop(inner);
        assert!(expect_other(2, "x").is_ok());
    }
}
