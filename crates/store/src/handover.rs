//! The seat of the threads that make commits for those who poll (`committer.rs`).
//!
//! Whoever has polled a commit asks, under the lock, and is told whether a thread is there. A thread that
//! leaves looks under the same lock whether it was asked since it last looked. So nobody who was told so is
//! forgotten.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

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
    fn is_there(&self) -> bool {
        self.state.lock().threads > 0
    }

    /// Asks a thread for a commit, unless that has an `outcome`; `None` if no thread is there. `outcome`
    /// notes whom to wake, and comes first: the thread may be done as soon as it is asked.
    pub(crate) fn hand_over<T>(&self, outcome: impl FnOnce() -> Option<T>) -> Option<Poll<T>> {
        if !self.is_there() {
            return None;
        }
        match outcome() {
            Some(outcome) => Some(Poll::Ready(outcome)),
            None => self.ask().then_some(Poll::Pending),
        }
    }

    /// Asks for a commit of all that waits; returns whether a thread is there, which will make it.
    fn ask(&self) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    static STAYS: AtomicBool = AtomicBool::new(false);

    #[test]
    fn nobody_who_was_told_that_a_thread_is_there_is_forgotten() {
        let handover = Handover::default();
        assert!(!handover.is_there() && !handover.ask(), "no thread is there");
        handover.enter();
        assert!(handover.is_there() && handover.ask());
        assert!(handover.wait(&STAYS));
        // Asked before it looks whether it is dismissed.
        let is_dismissed = AtomicBool::new(false);
        assert!(handover.ask());
        handover.dismiss(&is_dismissed);
        assert!(handover.wait(&is_dismissed) && !handover.wait(&is_dismissed));
        // Asked after it has looked: the thread that leaves has to tell.
        assert!(handover.ask());
        assert!(handover.leave(), "the last thread leaves somebody behind");
        assert!(!handover.ask());
    }

    #[test]
    fn whom_to_wake_is_noted_before_a_thread_is_asked() {
        let handover = Handover::default();
        assert_eq!(handover.hand_over(|| -> Option<u64> { panic!("no thread is there") }), None);
        handover.enter();
        assert_eq!(handover.hand_over(|| Some(7)), Some(Poll::Ready(7)));
        assert!(!handover.state.lock().is_asked, "nothing is left to do");
        let note = || {
            assert!(!handover.state.lock().is_asked, "a thread may be done before it knows whom to wake");
            None::<u64>
        };
        assert_eq!(handover.hand_over(note), Some(Poll::Pending));
        assert!(handover.wait(&STAYS));
        // The last thread leaves between the two looks.
        assert_eq!(handover.hand_over(|| (handover.leave(), None::<u64>).1), None);
    }

    #[test]
    fn a_thread_that_leaves_or_panics_passes_on_what_it_was_asked() {
        let handover = Handover::default();
        (0..3).for_each(|_| handover.enter());
        assert!(handover.ask());
        assert!(!handover.leave(), "others are there");
        assert!(handover.wait(&STAYS), "and were asked");
        let leave_in_a_panic = || {
            struct Seat<'h>(&'h Handover, &'h AtomicBool);
            impl Drop for Seat<'_> {
                fn drop(&mut self) {
                    self.1.store(self.0.leave(), Ordering::Relaxed);
                }
            }
            let is_left = AtomicBool::new(false);
            let commit = || {
                let _seat = Seat(&handover, &is_left);
                panic!("while it commits");
            };
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(commit));
            assert!(panicked.is_err());
            is_left.into_inner()
        };
        assert!(!leave_in_a_panic(), "another is there");
        assert!(handover.wait(&STAYS), "and makes what was not made");
        assert!(leave_in_a_panic(), "the last one leaves somebody behind");
    }
}
