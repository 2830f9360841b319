//! The locks that a thread holds while foreign code, such as a caller's closure, runs under them. A thread
//! that asks for one of them again gets an error instead of a deadlock with itself.
//!
//! Only locks under which a caller of this library may do something else are noted: those of batches, and of
//! operations that call a closure. The list is read only when a thread is about to wait, and costs nothing
//! otherwise.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::MutexGuard;

/// The thread already holds the lock that it asks for: waiting would be a deadlock.
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

/// While this lives, its thread is noted as the holder of a lock.
#[derive(Debug)]
pub struct HeldHere {
    lock: usize,
    thread: usize,
    /// Must not leave its thread, like the guard of a lock.
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
        // When a thread ends, its list may have been dropped already.
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
        // The turns are not given back in the order in which they were noted.
        drop(outer);
        assert!(expect_other(1, "x").is_ok() && expect_other(2, "x").is_err());
        drop(inner);
        assert!(expect_other(2, "x").is_ok());
    }
}
