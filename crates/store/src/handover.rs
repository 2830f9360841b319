//! The seat of the threads that make commits for those who poll (`committer.rs`).
//!
//! Whoever has polled a commit asks, under the lock, and is told whether a thread is there. A thread that
//! leaves looks under the same lock whether it was asked since it last looked. So nobody who was told so is
//! forgotten.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub(crate) struct Handover {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    threads: usize,
    is_asked: bool,
}

impl Handover {
    /// Whether a thread is there.
    pub(crate) fn is_there(&self) -> bool {
        self.state.lock().threads > 0
    }

    /// Asks for a commit of all that waits; returns whether a thread is there, which will make it.
    pub(crate) fn ask(&self) -> bool {
        let mut state = self.state.lock();
        if state.threads == 0 {
            return false;
        }
        state.is_asked = true;
        self.changed.notify_one();
        true
    }

    pub(crate) fn enter(&self) {
        self.state.lock().threads += 1;
    }

    /// Waits until somebody asks; false if the thread was [dismissed](Self::dismiss).
    pub(crate) fn wait(&self, is_dismissed: &AtomicBool) -> bool {
        let mut state = self.state.lock();
        loop {
            if std::mem::take(&mut state.is_asked) {
                return true;
            }
            if is_dismissed.load(Ordering::Relaxed) {
                return false;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Has a thread leave.
    pub(crate) fn dismiss(&self, is_dismissed: &AtomicBool) {
        // Under the lock: the thread waits, or has yet to look.
        let _state = self.state.lock();
        is_dismissed.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// A thread leaves; returns whether somebody has asked whom no thread serves now.
    pub(crate) fn leave(&self) -> bool {
        let mut state = self.state.lock();
        state.threads -= 1;
        // One that panicked may not have done what it was asked for.
        let has_asked = std::mem::take(&mut state.is_asked) || std::thread::panicking();
        if has_asked && state.threads > 0 {
            state.is_asked = true;
            self.changed.notify_one();
            return false;
        }
        has_asked
    }
}
