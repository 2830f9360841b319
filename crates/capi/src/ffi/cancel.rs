//! Cancellation of POSIX threads, which must not end a thread inside the library.
//!
//! A cancelled thread ends at the next call of the system that is a cancellation point, by unwinding; through
//! Rust's frames that would end the process. So the calls that open and close files keep cancellation off,
//! and all others make no call that is a cancellation point (`tembo_pmem::nap`, and system calls without the
//! C library). `tests/c/cancelled.c` holds both to it.

use crate::status::{Outcome, call};
use std::ffi::c_int;
use std::ptr::null_mut;

const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// Keeps the calling thread from being cancelled while it lives; a cancellation waits.
struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    fn begin() -> Uncancelled {
        let mut before = 0;
        // SAFETY: the state is one of the two that exist, and the place for the previous one is ours.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before) };
        Uncancelled { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the previous state, as the system returned it; null, as the other is not wanted.
        unsafe { pthread_setcancelstate(self.before, null_mut()) };
    }
}

/// As [`call`], for work with cancellation points; costs about ten nanoseconds more.
pub(super) fn call_uncancelled(body: impl FnOnce() -> Outcome) -> c_int {
    let _uncancelled = Uncancelled::begin();
    call(body)
}
