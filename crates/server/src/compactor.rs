//! Compaction of the pool, a step at a time between the turns of clients.
//!
//! It begins when at least a quarter of the bytes in use, and 16 MiB, lie in holes between records, or when a
//! client asks for it. A step takes a millisecond or a little more, and a pause of three follows.

use std::time::{Duration, Instant};
use tembo::{Compaction, Pool};

/// The least bytes in holes for which a compaction begins.
const LEAST_SPARE_BYTES: u64 = 16 << 20;
/// The least share of the bytes in use that lies in holes.
const LEAST_SPARE_PERCENT: u64 = 25;
const STEP: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_millis(3);
/// The holes are looked at this often. That takes time in proportion to the number of slabs.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// The compaction that is under way, and what the ones before it did.
#[derive(Debug)]
pub(crate) struct Compactor {
    running: Option<Compaction>,
    /// The unused bytes when the running one began.
    unused_before: u64,
    /// A client has asked for a compaction.
    is_wanted: bool,
    next: Instant,
    /// After a compaction that gained nothing: it is not repeated before this much lies in holes.
    not_below: u64,
    /// Bytes that finished compactions have moved.
    moved_bytes: u64,
    /// How many have finished.
    finished: u64,
}

impl Compactor {
    pub(crate) fn new() -> Compactor {
        Compactor {
            running: None,
            unused_before: 0,
            is_wanted: false,
            next: Instant::now() + LOOK_PERIOD,
            not_below: 0,
            moved_bytes: 0,
            finished: 0,
        }
    }

    /// Begins as soon as possible, whatever there is to gain.
    pub(crate) fn ask(&mut self, now: Instant) {
        (self.is_wanted, self.next) = (true, now);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Bytes of records and nodes that were moved since the start.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.moved_bytes + self.running.as_ref().map_or(0, Compaction::moved_bytes)
    }

    pub(crate) fn finished(&self) -> u64 {
        self.finished
    }

    /// When [`run`](Self::run) has something to do.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Does what is due. No batch is open. A pool that refuses is asked again later.
    pub(crate) fn run(&mut self, pool: &Pool, now: Instant) {
        if now < self.next {
            return;
        }
        self.next = now + LOOK_PERIOD;
        if self.running.is_none() && !self.begin(pool) {
            return;
        }
        let Some(running) = &mut self.running else { return };
        match running.step(STEP) {
            Ok(true) => self.next = Instant::now() + PAUSE,
            Ok(false) => self.finish(pool),
            Err(_) => self.running = None,
        }
    }

    /// Compacts for so long, whatever there is to gain.
    pub(crate) fn hurry(&mut self, pool: &Pool, budget: Duration) {
        let until = Instant::now() + budget;
        self.is_wanted |= self.running.is_none();
        if self.running.is_none() && !self.begin(pool) {
            return;
        }
        while let Some(running) = &mut self.running
            && Instant::now() < until
        {
            match running.step(STEP) {
                Ok(true) => {}
                Ok(false) => self.finish(pool),
                Err(_) => self.running = None,
            }
        }
    }

    fn begin(&mut self, pool: &Pool) -> bool {
        let (stats, spare) = (pool.stats(), pool.spare_bytes());
        let used = stats.pool_bytes - stats.unused_bytes;
        let least = LEAST_SPARE_BYTES.max(used / 100 * LEAST_SPARE_PERCENT).max(self.not_below);
        if spare < least && !std::mem::take(&mut self.is_wanted) {
            return false;
        }
        self.is_wanted = false;
        self.running = pool.compaction().ok().flatten();
        self.unused_before = pool.stats().unused_bytes;
        if self.running.is_none() {
            self.not_below = spare + LEAST_SPARE_BYTES;
        }
        self.running.is_some()
    }

    fn finish(&mut self, pool: &Pool) {
        let Some(running) = self.running.take() else { return };
        self.moved_bytes += running.moved_bytes();
        self.finished += 1;
        let gained = running.finish().is_ok() && pool.stats().unused_bytes > self.unused_before;
        self.not_below = if gained { 0 } else { pool.spare_bytes() + LEAST_SPARE_BYTES };
    }
}
