//! Small numbers for threads: indexes into arrays with an element for each thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number of threads with an element of their own in such arrays. Further threads share.
pub(crate) const THREADS: usize = 256;

/// Slots of pins that may be sent to other threads.
pub(crate) const SLOTS: usize = 64;

/// A number that no other living thread has.
struct ThreadNumber(usize);

/// Numbers that are reused when their thread has ended: a bit each, set while the number is taken. There is
/// no lock, since a child of `fork` would find it as the parent's other threads left it. In the child the
/// numbers of those threads stay taken.
static NUMBERS: [AtomicU64; 2 * THREADS / 64] = [const { AtomicU64::new(0) }; 2 * THREADS / 64];
/// The lowest other number that was never given.
static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(2 * THREADS);

impl ThreadNumber {
    /// The lowest free number.
    fn take() -> ThreadNumber {
        for (at, word) in NUMBERS.iter().enumerate() {
            let lowest_free = |taken: u64| (taken != u64::MAX).then_some(taken | (taken + 1));
            if let Ok(before) = word.fetch_update(Ordering::Acquire, Ordering::Relaxed, lowest_free) {
                return ThreadNumber(64 * at + before.trailing_ones() as usize);
            }
        }
        ThreadNumber(NEXT_NUMBER.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        // Others of the thread's destructors may still pin.
        KNOWN_NUMBER.set(UNKNOWN);
        if let Some(word) = NUMBERS.get(self.0 / 64) {
            // ORDER: release, with the acquire above: this thread's use of its number comes before the next
            // thread's.
            word.fetch_and(!(1 << (self.0 % 64)), Ordering::Release);
        }
    }
}

static NEXT_START: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    static START: usize = NEXT_START.fetch_add(1, Ordering::Relaxed) % SLOTS;
    static NUMBER: ThreadNumber = ThreadNumber::take();
    /// The number again, without a destructor, so that reading it is one load; [`UNKNOWN`] before the thread
    /// has asked for it, and while the thread ends.
    static KNOWN_NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
}

/// Higher than any number, and unlike the special values in `bias.rs`.
const UNKNOWN: usize = u32::MAX as usize;

/// The place where this thread starts to look for a slot, so that threads do not share lines.
#[inline]
pub(crate) fn first_slot() -> usize {
    START.with(|start| *start)
}

/// The calling thread's number: the lowest that no other living thread has. A number over `u32::MAX / 2`
/// while the thread ends and has none any more. A number that was given up goes to a later thread. Takes one
/// load once it is known.
#[inline(always)]
pub fn thread_number() -> usize {
    match known_thread_number() {
        UNKNOWN => take_thread_number(),
        known => known,
    }
}

/// The number if the thread has asked for it before, else [`UNKNOWN`].
#[inline(always)]
pub(crate) fn known_thread_number() -> usize {
    KNOWN_NUMBER.get()
}

#[cold]
#[inline(never)]
fn take_thread_number() -> usize {
    let number = NUMBER.try_with(|number| number.0).unwrap_or(UNKNOWN);
    KNOWN_NUMBER.set(number);
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::mpsc::channel;

    /// Asks for the number while its thread ends.
    struct Late(std::sync::mpsc::Sender<usize>);

    impl Drop for Late {
        fn drop(&mut self) {
            self.0.send(thread_number()).unwrap();
        }
    }

    thread_local! {
        static BEFORE: Cell<Option<Late>> = const { Cell::new(None) };
        static AFTER: Cell<Option<Late>> = const { Cell::new(None) };
    }

    #[test]
    fn a_thread_that_ends_has_its_number_or_none() {
        for _ in 0..20 {
            let (late, numbers) = channel();
            let number = std::thread::spawn(move || {
                BEFORE.set(Some(Late(late.clone())));
                let number = thread_number();
                assert_eq!(known_thread_number(), number);
                AFTER.set(Some(Late(late)));
                number
            });
            let number = number.join().unwrap();
            let numbers: Vec<usize> = numbers.iter().collect();
            // Destructors run in an unspecified order; one of these runs after the number's.
            assert!(
                numbers.iter().all(|late| *late == number || *late == UNKNOWN),
                "{numbers:?} of {number}"
            );
            assert!(numbers.len() == 2 && numbers.contains(&UNKNOWN) && UNKNOWN > THREADS, "{numbers:?}");
        }
    }

    #[test]
    fn living_threads_have_different_numbers() {
        let barrier = std::sync::Barrier::new(8);
        for _ in 0..20 {
            let numbers: BTreeSet<usize> = std::thread::scope(|scope| {
                let ask = || {
                    let number = thread_number();
                    barrier.wait();
                    number
                };
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(numbers.len(), 8);
        }
    }
}
