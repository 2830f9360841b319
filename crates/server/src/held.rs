//! Replies that wait for the device.
//!
//! In the domain `journaled` a commit of the event loop does not wait: its record is written, and a thread of
//! the pool synchronises it. All output that a client gets from then on is *held* until the device has that
//! record: its own replies, and those that may show others' writes. (Those that say nothing of the data are
//! sent.) Meanwhile the loop receives and runs
//! further requests, whose commits ride in the next synchronisation. A client's output keeps its order, so a
//! read behind a write waits too.
//!
//! Waking two threads takes longer than a fast device does. The loop waits for the device itself while a
//! synchronisation usually takes less than [`WAITED_MAX`], and where all connected clients have been served:
//! no client could send anything meanwhile.
//!
//! If the device fails, clients with held output are disconnected without it: whether their writes survive is
//! not known.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mio::Waker;
use tembo::{Domain, Pool};

/// The usual duration of a synchronisation up to which the loop waits for it.
const WAITED_MAX: Duration = Duration::from_micros(300);

/// A client's output that is held.
#[derive(Debug, Default)]
pub(crate) struct HeldOutput {
    /// Where parts of the output end, in bytes since the client came, and the position in the journal that
    /// each waits for. Both ascend.
    parts: VecDeque<(u64, u64)>,
    /// Output before this place is not held.
    free: u64,
    /// Output before this place is held, or was.
    noted: u64,
    /// Bytes that the client was sent.
    sent: u64,
}

impl HeldOutput {
    /// Notes the end of a round, with this many bytes left. New ones wait for `pos`, if there is one.
    pub(crate) fn note(&mut self, unsent: usize, pos: Option<u64>) {
        let end = self.sent + unsent as u64;
        if let Some(pos) = pos.filter(|_| end > self.noted) {
            if self.parts.is_empty() {
                self.free = self.noted;
            }
            match self.parts.back_mut() {
                Some(last) if last.1 == pos => last.0 = end,
                _ => self.parts.push_back((end, pos)),
            }
        }
        self.noted = end;
    }

    /// Frees the parts that wait for a position up to `durable`; whether there were any.
    pub(crate) fn release(&mut self, durable: u64) -> bool {
        let before = self.parts.len();
        while let Some((end, _)) = self.parts.pop_front_if(|(_, pos)| *pos <= durable) {
            self.free = end;
        }
        self.parts.len() < before
    }

    /// How many of the bytes that are left may be sent.
    pub(crate) fn sendable(&self, unsent: usize) -> usize {
        if self.parts.is_empty() { unsent } else { unsent.min(self.free.saturating_sub(self.sent) as usize) }
    }

    pub(crate) fn note_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Whether something is held.
    pub(crate) fn is_holding(&self) -> bool {
        !self.parts.is_empty()
    }
}

/// The facts about the device for which the event loop holds output.
pub(crate) struct Device<'p> {
    pool: &'p Pool,
    puts_off: bool,
    has_failed: bool,
    /// The position behind the last commit.
    committed: u64,
    /// The position up to which the device has everything.
    durable: u64,
    /// Clients with held output: their slots and numbers.
    holding: Vec<(usize, u64)>,
}

impl<'p> Device<'p> {
    /// Defers the wait of commits for a device. `waker` wakes the loop at its end.
    pub(crate) fn new(pool: &'p Pool, waker: Arc<Waker>) -> Self {
        let puts_off = pool.domain() == Domain::Journaled;
        // A loop that has ended is not woken; the next event is a tenth of a second away at most.
        let wake = move || _ = waker.wake();
        if puts_off {
            pool.put_off_durability(wake);
        } else {
            pool.wake_when_durable(wake);
        }
        let committed = pool.commit_position();
        Device { pool, puts_off, has_failed: false, committed, durable: committed, holding: Vec::new() }
    }

    /// Notes the commits of a round; `waits_alone`: no other client could send anything meanwhile.
    pub(crate) fn note_commits(&mut self, waits_alone: bool) {
        if !self.puts_off || self.has_failed {
            return;
        }
        let end = self.pool.commit_position();
        if end == self.committed {
            return;
        }
        self.committed = end;
        let waits = waits_alone || self.pool.typical_synchronisation() <= WAITED_MAX;
        if waits && self.pool.make_durable().is_ok() {
            self.durable = end;
        } else {
            self.pool.want_durable(end);
        }
    }

    /// The position that output waits for, if it waits.
    pub(crate) fn awaited(&self) -> Option<u64> {
        (self.durable < self.committed).then_some(self.committed)
    }

    /// Notes a client with held output.
    pub(crate) fn note_holding(&mut self, slot: usize, client: u64) {
        self.holding.push((slot, client));
    }

    /// The clients with held output, each to be noted again if some of it still is, and the position up to
    /// which it is released: `None` if the device has failed.
    pub(crate) fn take_holding(&mut self) -> (Vec<(usize, u64)>, Option<u64>) {
        let durable = self.pool.durable_position().ok();
        match durable {
            Some(durable) => self.durable = durable,
            // Every later commit fails, and its replies are errors.
            None => (self.committed, self.has_failed) = (self.durable, true),
        }
        (std::mem::take(&mut self.holding), durable)
    }

    /// Whether no output is held.
    pub(crate) fn is_holding(&self) -> bool {
        !self.holding.is_empty()
    }

    /// Waits until everything committed is durable, or the device has failed.
    pub(crate) fn wait(&self) {
        if self.puts_off {
            let _ = self.pool.make_durable();
        }
    }
}

impl Drop for Device<'_> {
    fn drop(&mut self) {
        self.pool.wait_for_durability();
    }
}

#[cfg(test)]
#[path = "held_tests.rs"]
mod stalled_device;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_sent_up_to_the_first_part_that_waits() {
        let mut held = HeldOutput::default();
        held.note(5, None);
        held.note(9, Some(100));
        held.note(12, Some(100));
        held.note(12, Some(150));
        held.note(20, Some(200));
        assert_eq!(held.sendable(20), 5);
        held.note_sent(5);
        assert_eq!((held.sendable(15), held.release(99), held.is_holding()), (0, false, true));
        assert!(held.release(100));
        assert_eq!(held.sendable(15), 7);
        // The client takes less than it might.
        held.note_sent(4);
        held.note(11, Some(300));
        assert_eq!(held.sendable(11), 3);
        assert!(held.release(250));
        assert_eq!((held.sendable(11), held.is_holding()), (11, false));
        held.note_sent(11);
        held.note(3, Some(300));
        assert_eq!((held.sendable(3), held.release(300), held.sendable(3)), (0, true, 3));
    }
}
