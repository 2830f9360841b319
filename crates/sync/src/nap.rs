//! A short sleep.

use std::time::Duration;

/// Sleeps about that long, for a thread that waits for another one, which may have been stopped.
///
/// This is the system call itself and no cancellation point of POSIX threads, which `std::thread::sleep` is:
/// a thread of a program in C that is cancelled ends outside of the library only, with no lock held.
#[cold]
pub fn nap(length: Duration) {
    #[cfg(miri)]
    std::thread::sleep(length);
    #[cfg(not(miri))]
    if let Ok(length) = rustix::thread::Timespec::try_from(length) {
        // A signal may end it early; the waiting thread then checks again.
        let _ = rustix::thread::nanosleep(&length);
    }
}
