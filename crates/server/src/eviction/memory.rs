//! The memory of the data, as it is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tembo::Pool;

use super::candidates::Candidates;
use crate::keyspace::Keyspace;

/// The holes of slabs that are not known after a start are looked for in steps of this many slabs, in each
/// tick.
const SLABS_PER_TICK: usize = 4096;

/// Measuring the memory may take this share of the time.
const MEASURING_SHARE: u32 = 50;

const MEASURING_PERIOD_MIN: Duration = Duration::from_millis(10);

/// The limit of a [`Server`](crate::Server)'s data, for another server that evicts its own data from the same
/// pool.
#[derive(Clone, Debug, Default)]
pub struct EvictionLimit(Arc<Limit>);

#[derive(Debug, Default)]
struct Limit {
    /// 0: nothing is evicted.
    bytes: AtomicU64,
    only_with_deadline: AtomicBool,
}

impl EvictionLimit {
    /// The bytes that all data in the pool may have, by the present `maxmemory` and `maxmemory-policy`, and
    /// whether only keys with a deadline may be evicted; `None` with `noeviction`.
    pub fn get(&self) -> Option<(u64, bool)> {
        // ORDER: relaxed; what others see a moment later is evicted a moment later.
        let bytes = self.0.bytes.load(Ordering::Relaxed);
        (bytes > 0).then(|| (bytes, self.0.only_with_deadline.load(Ordering::Relaxed)))
    }

    pub(super) fn set(&self, bytes: u64, only_with_deadline: bool) {
        self.0.only_with_deadline.store(only_with_deadline, Ordering::Relaxed);
        self.0.bytes.store(bytes, Ordering::Relaxed);
    }
}

/// The memory of the data, and the next candidates for eviction.
#[derive(Debug)]
pub(crate) struct Eviction {
    /// The limit, as another server on the same pool reads it.
    pub(crate) limit: EvictionLimit,
    pub(super) candidates: Candidates,
    /// The bytes that are alive, as last measured.
    alive_bytes: u64,
    pub(super) next_measuring: Instant,
    /// All slabs of the pool are known, so that the measure is that of live data.
    pub(super) knows_all: bool,
    /// The data have more than they may, and no key may go.
    pub(crate) is_refusing: bool,
    /// Keys that were evicted since the start, or since CONFIG RESETSTAT.
    pub(crate) evicted: u64,
}

impl Eviction {
    pub(crate) fn new(now: Instant) -> Eviction {
        Eviction {
            limit: EvictionLimit::default(),
            candidates: Candidates::new(),
            alive_bytes: 0,
            next_measuring: now,
            knows_all: false,
            is_refusing: false,
            evicted: 0,
        }
    }

    /// Learns more of the slabs after a start.
    pub(crate) fn tick(&mut self, pool: &Pool) {
        if !self.knows_all {
            self.knows_all = pool.learn_spare(SLABS_PER_TICK).is_ok_and(|more| !more);
        }
    }

    /// The bytes that the data have, about.
    pub(super) fn alive_bytes(&mut self, keys: &mut Keyspace<'_>, now: Instant) -> u64 {
        if now >= self.next_measuring {
            let began = Instant::now();
            self.alive_bytes = measure(keys);
            keys.new_bytes = 0;
            let took = began.elapsed();
            self.next_measuring = now + (took * MEASURING_SHARE).max(MEASURING_PERIOD_MIN);
        }
        self.alive_bytes.saturating_add_signed(keys.new_bytes)
    }
}

/// The bytes of the pool that are in use, less those in holes, those that will be free, and those of the
/// backlog: no key is evicted to keep a slow replica's place in the backlog. Nor is one evicted for the data
/// that a copy retains: the copy would retain that key, too.
fn measure(keys: &Keyspace<'_>) -> u64 {
    let (pool, replication) = (keys.pool(), &keys.replication);
    let stats = pool.stats();
    let end = replication.position.map_or(0, |position| position.offset);
    let backlog = replication.backlog.bytes_in_pool(end);
    let spare = pool.spare_bytes() + pool.limbo_bytes() + backlog + keys.old_bytes();
    stats.used_bytes().saturating_sub(spare)
}
