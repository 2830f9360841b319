//! Eviction: when the data in the pool exceed their limit, items that were not used recently are evicted.
//!
//! A clock hand visits the items in the order of their keys. Each item has a counter in memory, which a use
//! raises and the hand lowers. The hand evicts an item whose counter is zero (the GCLOCK algorithm: Smith,
//! "Sequentiality and prefetching in database systems", 1978). The counters are found by a hash of the key,
//! so that two items may share one; both then stay a little longer. They take 2 to 8 bytes for each item, are
//! lost with the process, and no read writes to the pool.
//!
//! Items are evicted between commands, in the batch that the next commands share. In a full pool a command
//! that finds no space has items evicted for it, and is run again.

use foldhash::fast::RandomState;
use std::cell::Cell;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tembo::Pool;

/// Uses that count.
pub(crate) const USES_MAX: u8 = 3;
/// Counters for each item, at least.
const COUNTERS_PER_ITEM: u64 = 2;
const COUNTERS_MIN: usize = 1 << 10;
/// Bytes of the pool that an item takes beside its key and its value, about.
const ENTRY_BYTES: u64 = 49;
/// Measuring the memory may take this share of the time.
const MEASURING_SHARE: u32 = 50;
const MEASURING_PERIOD_MIN: Duration = Duration::from_millis(10);
/// The data are measured again at least this often, however long measuring takes: between two measurements an
/// item that is replaced counts as a new one.
const MEASURING_PERIOD_MAX: Duration = Duration::from_millis(100);
/// Slabs that are looked at in each tick after a start, until all are known.
const SLABS_PER_TICK: usize = 4096;

/// The memory that a pool's data may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes beyond which items are evicted.
    pub bytes: u64,
    /// Only items with a deadline are evicted.
    pub only_with_deadline: bool,
}

/// Returns the present limit; `None`: nothing is evicted. It is called before each turn.
#[derive(Clone)]
pub struct LimitSource(Arc<dyn Fn() -> Option<MemoryLimit> + Send + Sync>);

impl LimitSource {
    /// A limit that is computed each time.
    pub fn new(limit: impl Fn() -> Option<MemoryLimit> + Send + Sync + 'static) -> LimitSource {
        LimitSource(Arc::new(limit))
    }
}

impl fmt::Debug for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LimitSource").field(&self.0()).finish()
    }
}

/// The bytes that an item takes in the pool, about.
pub(crate) fn entry_bytes(key: &[u8], data_bytes: usize) -> u64 {
    (key.len() + data_bytes) as u64 + ENTRY_BYTES
}

/// The uses of items, and the memory of the data.
pub(crate) struct Eviction {
    source: Option<LimitSource>,
    pub(crate) limit: Option<MemoryLimit>,
    hasher: RandomState,
    /// A power of two of counters, or none while nothing is evicted.
    uses: Vec<Cell<u8>>,
    /// The items at the last tick, and those stored since.
    items_max: u64,
    /// The key at which the hand stands.
    pub(crate) hand: Vec<u8>,
    /// The bytes that are alive in the pool, as last measured, and those of new items since, about.
    pub(crate) alive_bytes: u64,
    new_bytes: u64,
    next_measuring: Instant,
    /// All slabs of the pool are known, so that the measured memory is the memory of live data.
    knows_all: bool,
    /// No item may go, so no eviction is tried before this time.
    pub(crate) futile_until: Instant,
    /// A command has found no space.
    pub(crate) lacks_room: bool,
    pub(crate) evicted: u64,
}

impl Eviction {
    pub(crate) fn new(source: Option<LimitSource>, now: Instant) -> Eviction {
        Eviction {
            source,
            limit: None,
            hasher: RandomState::default(),
            uses: Vec::new(),
            items_max: 0,
            hand: Vec::new(),
            alive_bytes: 0,
            new_bytes: 0,
            next_measuring: now,
            knows_all: false,
            futile_until: now,
            lacks_room: false,
            evicted: 0,
        }
    }

    /// Learns the present limit. If there is one, uses count from here on.
    pub(crate) fn begin_turn(&mut self) {
        self.limit = self.source.as_ref().and_then(|source| source.0());
        if self.limit.is_some() && self.uses.is_empty() {
            self.uses.resize(COUNTERS_MIN, Cell::new(0));
            self.grow_counters();
        }
        self.lacks_room = false;
    }

    /// The bytes that the data may have, if items go.
    pub(crate) fn limit(&self) -> Option<MemoryLimit> {
        self.limit
    }

    /// Learns more of the slabs after a start, and has counters for this many items.
    pub(crate) fn tick(&mut self, pool: &Pool, items: u64) {
        if self.limit.is_none() {
            self.uses = Vec::new();
            return;
        }
        if !self.knows_all {
            self.knows_all = pool.learn_spare(SLABS_PER_TICK).is_ok_and(|more| !more);
        }
        self.items_max = items;
        self.grow_counters();
        self.shrink_counters();
    }

    /// Grows the counters with the number of items, unless there are none.
    fn grow_counters(&mut self) {
        while !self.uses.is_empty() && (self.uses.len() as u64) < COUNTERS_PER_ITEM * self.items_max {
            // Each counter's items are found at one of two places from now on.
            self.uses.extend_from_within(..);
        }
    }

    /// Gives counters back if few items are left. Items that share one from now on stay a little longer.
    fn shrink_counters(&mut self) {
        let enough = (2 * COUNTERS_PER_ITEM * self.items_max).max(COUNTERS_MIN as u64);
        while self.uses.len() as u64 / 2 >= enough {
            let upper = self.uses.split_off(self.uses.len() / 2);
            for (counter, other) in self.uses.iter().zip(upper) {
                counter.set(counter.get().max(other.get()));
            }
            self.uses.shrink_to_fit();
        }
    }

    fn counter(&self, key: &[u8]) -> Option<&Cell<u8>> {
        let mask = self.uses.len().checked_sub(1)?;
        self.uses.get(self.hasher.hash_one(key) as usize & mask)
    }

    /// Notes that an item is used.
    #[inline]
    pub(crate) fn touch(&self, key: &[u8]) {
        if !self.uses.is_empty()
            && let Some(counter) = self.counter(key)
        {
            counter.set((counter.get() + 1).min(USES_MAX));
        }
    }

    /// Notes that an item is stored.
    pub(crate) fn note_new(&mut self, key: &[u8], data_bytes: usize) {
        self.new_bytes += entry_bytes(key, data_bytes);
        // Many items between two ticks would share few counters, and be taken for used all the time.
        self.items_max += 1;
        self.grow_counters();
        // A new item does not raise a counter that has uses already. Growth copies counters, so that the sums
        // of others would make new items seem as used as those in use.
        if let Some(counter) = self.counter(key) {
            counter.set(counter.get().max(1));
        }
    }

    /// Lowers an item's counter; tells whether it was zero before.
    pub(crate) fn lower(&self, key: &[u8]) -> bool {
        self.counter(key).is_none_or(|counter| counter.replace(counter.get().saturating_sub(1)) == 0)
    }

    /// The bytes that the data have beyond the limit, about.
    pub(crate) fn surplus_bytes(&mut self, pool: &Pool, now: Instant) -> u64 {
        let Some(limit) = self.limit.filter(|_| self.knows_all) else { return 0 };
        if now >= self.next_measuring {
            let began = Instant::now();
            let gone = pool.spare_bytes() + pool.limbo_bytes();
            self.alive_bytes = pool.stats().used_bytes().saturating_sub(gone);
            self.new_bytes = 0;
            let pause = began.elapsed() * MEASURING_SHARE;
            self.next_measuring = now + pause.clamp(MEASURING_PERIOD_MIN, MEASURING_PERIOD_MAX);
        }
        (self.alive_bytes + self.new_bytes).saturating_sub(limit.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_more_often_survives_more_rounds_of_the_hand() {
        let dir = tempfile::tempdir().unwrap();
        let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool")).unwrap();
        let source = LimitSource::new(|| Some(MemoryLimit { bytes: 1 << 20, only_with_deadline: false }));
        let mut eviction = Eviction::new(Some(source), Instant::now());
        assert!(eviction.lower(b"a"), "without counters everything may go");
        eviction.begin_turn();
        eviction.tick(&pool, 10);
        let rounds = |eviction: &Eviction, key: &[u8]| (0..10).find(|_| eviction.lower(key)).unwrap();
        assert_eq!(rounds(&eviction, b"a"), 0);
        (0..2).for_each(|_| eviction.touch(b"a"));
        (0..9).for_each(|_| eviction.touch(b"b"));
        eviction.tick(&pool, 10_000);
        assert_eq!((rounds(&eviction, b"a"), rounds(&eviction, b"b")), (2, u32::from(USES_MAX)));
        assert_eq!(eviction.uses.len(), 32_768);
        // Few items are left, and they were used as often as before.
        (0..9).for_each(|_| eviction.touch(b"b"));
        eviction.tick(&pool, 3000);
        assert_eq!((eviction.uses.len(), rounds(&eviction, b"b")), (16_384, u32::from(USES_MAX)));
        eviction.tick(&pool, 0);
        assert_eq!(eviction.uses.len(), COUNTERS_MIN);
    }
}
