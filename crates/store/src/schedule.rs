//! When commits are to collect, as they look at it without a lock.

use crate::garbage::Left;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// Commits between two steps of one of them.
const PAUSE: u32 = 16;
/// Commits between two looks whether the snapshots are closed that a walk waits for.
const LONG_PAUSE: u32 = 256;
const NEVER: u64 = u64::MAX;

/// When a commit collects what was noted, and when it takes a step of what the notes do not lead to.
pub(crate) struct Schedule {
    is_due: AtomicBool,
    /// The time from which on commits take steps, in nanoseconds after `began`.
    step_at: AtomicU64,
    /// Commits that are still to come before the next step.
    pause: AtomicU32,
    began: Instant,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule {
            is_due: AtomicBool::new(false),
            step_at: NEVER.into(),
            pause: AtomicU32::new(0),
            began: Instant::now(),
        }
    }
}

impl Schedule {
    /// Whether the next commit is to collect what was noted.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }

    /// Whether a commit is to take a step before it. Costs a load while there is no reason for any. Once it
    /// has said so it says so until somebody has taken the step.
    #[inline]
    pub(crate) fn is_step_due(&self) -> bool {
        let at = self.step_at.load(Ordering::Relaxed);
        at != NEVER && self.has_come(at)
    }

    #[cold]
    fn has_come(&self, at: u64) -> bool {
        if at != 0 && nanos(self.began, Instant::now()) < at {
            return false;
        }
        // Two threads may count one commit: what matters is that some are between the steps.
        let pause = self.pause.load(Ordering::Relaxed);
        if pause > 0 {
            self.pause.store(pause - 1, Ordering::Relaxed);
        }
        pause == 0
    }

    /// Notes that a commit has taken a step.
    pub(crate) fn note_step(&self, left: &Left) {
        let pause = if left.has_step() { PAUSE } else { LONG_PAUSE };
        self.pause.store(if left.walks.is_held_back() { pause } else { PAUSE }, Ordering::Relaxed);
    }

    /// Takes over what is left to do. The caller has the lock of `left`.
    pub(crate) fn set(&self, left: &Left) {
        self.is_due.store(left.is_due(), Ordering::Relaxed);
        let step_at = match left.walks.next_window() {
            _ if left.has_step() || left.walks.is_held_back() => 0,
            Some(at) => nanos(self.began, at),
            None => NEVER,
        };
        self.step_at.store(step_at, Ordering::Relaxed);
    }
}

fn nanos(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(NEVER - 1)
}
