//! Quiet detection: whether a thread may skip validation, because no other thread seems to commit.

use crate::stm::clock::ClockReading;
use crate::stm::hazards::ValidationMode;
use crate::stm::shared::HeapShared;
use std::cell::Cell;

// A thread with several heaps has the same counters for all. They are then less useful, but harmless. Those
// that each transaction changes are changed within `with`: `LocalKey::set` is a call.
thread_local! {
    /// Transactions that this thread still runs with validation from the start.
    static VALIDATED_LEFT: Cell<u32> = const { Cell::new(0) };
    /// The clock at the end of the thread's last transaction.
    static LAST_SEEN: Cell<u64> = const { Cell::new(0) };
    /// Transactions that this thread still begins before it may take the heap for quiet.
    static BUSY_LEFT: Cell<u32> = const { Cell::new(0) };
    /// Transactions that this thread still begins, while the clock is shared, before it probes for other
    /// commits.
    static UNTIL_PROBE: Cell<u32> = const { Cell::new(0) };
    /// The number of other threads' commits at the last probe.
    static SEEN_COMMITS: Cell<u64> = const { Cell::new(0) };
}

/// A thread takes the heap for quiet after this many transactions in a row that found the clock where the one
/// before left it. Where others commit as often as this thread, some transactions see an unchanged clock by
/// chance. Most of them conflict and retry.
const BUSY_FOR: u32 = 16;

/// Transactions between two probes for other commits. A probe misses the cache once for each other writer.
pub(super) const PROBE_EVERY: u32 = 255;

/// After a failed optimistic attempt, a thread runs this many transactions with validation. One retry costs
/// little compared with these.
const VALIDATED_FOR: u32 = 64;

/// Whether no other thread has committed for a while, as far as the clock of a beginning transaction shows.
#[inline(always)]
pub(super) fn seems_quiet(shared: &HeapShared, now: ClockReading) -> bool {
    if !now.is_alone() {
        match UNTIL_PROBE.get() {
            0 => probe_other_commits(shared),
            left => UNTIL_PROBE.with(|until_probe| until_probe.set(left - 1)),
        }
        return false;
    }
    let now = now.count();
    if LAST_SEEN.get() != now {
        BUSY_LEFT.set(BUSY_FOR);
        return false;
    }
    let busy = BUSY_LEFT.get();
    if busy > 0 {
        BUSY_LEFT.set(busy - 1);
    }
    busy == 0
}

/// Ends the sharing of the clock if no other thread has committed since the last probe.
#[cold]
fn probe_other_commits(shared: &HeapShared) {
    UNTIL_PROBE.set(PROBE_EVERY);
    let commits = shared.commits_of_others();
    if SEEN_COMMITS.replace(commits) == commits {
        shared.clock.end_sharing(&shared.storing);
    }
}

/// Keeps the clock of a transaction that ends.
#[inline(always)]
pub(super) fn note_clock(rv: u64) {
    LAST_SEEN.with(|last_seen| last_seen.set(rv));
}

/// The mode of a transaction's first attempt to write.
#[inline(always)]
pub(super) fn first_mode(is_first_attempt: bool) -> ValidationMode {
    if VALIDATED_LEFT.get() == 0 { ValidationMode::Optimistic } else { validated_mode(is_first_attempt) }
}

#[cold]
fn validated_mode(is_first_attempt: bool) -> ValidationMode {
    if is_first_attempt {
        VALIDATED_LEFT.set(VALIDATED_LEFT.get() - 1);
    }
    ValidationMode::Validated
}

/// Makes the thread's next transactions validate from the start.
pub(super) fn distrust_quiet() {
    VALIDATED_LEFT.set(VALIDATED_FOR);
}
