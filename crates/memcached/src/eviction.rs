//! Eviction: when the data in the pool have more memory than they may, items go that were not used lately.
//!
//! A clock hand goes through the items in the order of their keys. Each item has a counter in memory, which a
//! use raises and the hand lowers, and goes when the hand finds it at zero (the GCLOCK algorithm: Smith,
//! "Sequentiality and prefetching in database systems", 1978). The counters are found by a hash of the key,
//! so that two items may share one; both then stay a little longer. They take 2 to 8 bytes for each item, are
//! lost with the process, and no read writes to the pool.
//!
//! Items go between commands, in the batch that the next commands share. In a full pool a command that finds
//! no space has items evicted for it, and is run again.

use crate::item::{Item, STATE_KEY};
use crate::items::{Failure, Items, Result};
use foldhash::fast::RandomState;
use std::cell::Cell;
use std::fmt;
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tembo::Pool;

/// Uses that count.
const USES_MAX: u8 = 3;
/// Counters for each item, at least.
const COUNTERS_PER_ITEM: u64 = 2;
const COUNTERS_MIN: usize = 1 << 10;
/// Items that are looked at between two looks at the time.
const LOOKS: usize = 64;
/// Items evicted in one batch, and in one in a full pool, which has little room for the record of a commit.
const VICTIMS_MAX: usize = 1024;
const FULL_VICTIMS_MAX: usize = 32;
/// The longest time of one eviction between commands, and of one for a command that found no space.
const TIME_MAX: Duration = Duration::from_micros(500);
const FULL_TIME_MAX: Duration = Duration::from_millis(20);
/// The share of the memory that is evicted for such a command at first, and at last: twice as much each time.
const FIRST_SHARE: u64 = 512;
const LAST_SHARE: u64 = 8;
/// Such a command has items evicted at most so often.
pub(crate) const TRIES_MAX: u32 = 64;
/// With so much of the memory in holes between items, the pool is compacted for such a command.
const HOLES_PERCENT: u64 = 10;
/// After a hand that went round in vain, none goes for so long.
const FUTILE_PERIOD: Duration = Duration::from_millis(100);
/// Bytes of the pool that an item takes beside its key and its value, about.
const ENTRY_BYTES: u64 = 49;
/// Measuring the memory may take this share of the time.
const MEASURING_SHARE: u32 = 50;
const MEASURING_PERIOD_MIN: Duration = Duration::from_millis(10);
/// It is measured again after so long, whatever that took: between two measurements an item that is replaced
/// counts as a new one.
const MEASURING_PERIOD_MAX: Duration = Duration::from_millis(100);
/// Slabs that are looked at in each tick after a start, until all are known.
const SLABS_PER_TICK: usize = 4096;

/// The memory that a pool's data may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes beyond which items go.
    pub bytes: u64,
    /// Only items with a deadline go.
    pub only_with_deadline: bool,
}

/// Tells the present limit; `None`: nothing is evicted. It is asked before each turn.
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

/// An item that may go.
struct Victim {
    key: Vec<u8>,
    bytes: u64,
    /// Its time has come.
    is_over: bool,
}

/// The bytes that an item takes in the pool, about.
pub(crate) fn entry_bytes(key: &[u8], data_bytes: usize) -> u64 {
    (key.len() + data_bytes) as u64 + ENTRY_BYTES
}

/// The uses of items, and the memory of the data.
pub(crate) struct Eviction {
    source: Option<LimitSource>,
    limit: Option<MemoryLimit>,
    hasher: RandomState,
    /// A power of two of counters, or none while nothing is evicted.
    uses: Vec<Cell<u8>>,
    /// The items at the last tick, and those stored since.
    items_max: u64,
    /// The key at which the hand stands.
    hand: Vec<u8>,
    /// The bytes that are alive in the pool, as last measured, and those of new items since, about.
    alive_bytes: u64,
    new_bytes: u64,
    next_measuring: Instant,
    /// All slabs of the pool are known, so that what is measured is what is alive.
    knows_all: bool,
    /// No item may go: this is not tried again before then.
    futile_until: Instant,
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

    /// Learns the present limit.
    pub(crate) fn begin_turn(&mut self) {
        self.limit = self.source.as_ref().and_then(|source| source.0());
        self.lacks_room = false;
    }

    /// The bytes that the data may have, if items go.
    pub(crate) fn limit(&self) -> Option<MemoryLimit> {
        self.limit
    }

    /// Learns more of the slabs after a start, and has counters for so many items.
    pub(crate) fn tick(&mut self, pool: &Pool, items: u64) {
        if self.limit.is_none() {
            self.uses = Vec::new();
            return;
        }
        if !self.knows_all {
            self.knows_all = pool.learn_spare(SLABS_PER_TICK).is_ok_and(|more| !more);
        }
        self.uses.resize(self.uses.len().max(COUNTERS_MIN), Cell::new(0));
        self.items_max = items;
        self.grow_counters();
        self.shrink_counters();
    }

    /// Has counters for all items, if it has any.
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
        self.touch(key);
    }

    /// Lowers an item's counter; tells whether it was zero before.
    fn lower(&self, key: &[u8]) -> bool {
        self.counter(key).is_none_or(|counter| counter.replace(counter.get().saturating_sub(1)) == 0)
    }

    /// The bytes that the data have beyond the limit, about.
    fn surplus_bytes(&mut self, pool: &Pool, now: Instant) -> u64 {
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

impl Items<'_> {
    /// Evicts items if the data have more memory than they may, unless there is a batch; this may begin one.
    pub(crate) fn hold_to_limit(&mut self, now: Instant) -> Result<()> {
        let surplus = self.eviction.surplus_bytes(self.pool(), now);
        if surplus == 0 || self.has_batch() {
            return Ok(());
        }
        self.evict(surplus, VICTIMS_MAX, Instant::now() + TIME_MAX).map(drop)
    }

    /// Evicts items for a command of so many bytes that found no space, and makes that durable; returns
    /// whether it is worth another try. There is no batch.
    ///
    /// It may need a longer piece than those that go leave behind, or one of another size: then the pool is
    /// compacted for a while. `tries` is how often this was done for it before.
    pub(crate) fn evict_for(&mut self, needed_bytes: u64, tries: u32) -> Result<bool> {
        let pool = self.pool();
        let used = pool.stats().used_bytes();
        let share = (used / FIRST_SHARE).saturating_mul(1 << tries.min(16)).min(used / LAST_SHARE);
        let (mut left, until) = (share.max(needed_bytes), Instant::now() + FULL_TIME_MAX);
        let mut may_help = true;
        while may_help && left > 0 && Instant::now() < until {
            let before = (self.eviction.alive_bytes, self.eviction.evicted);
            let freed = self.evict(left, FULL_VICTIMS_MAX, until)?;
            match self.commit() {
                // The items are there again, and the next try takes others.
                Err(Failure::NoRoom) => {
                    (self.eviction.alive_bytes, self.eviction.evicted) = before;
                    break;
                }
                outcome => outcome?,
            }
            may_help = freed.is_some();
            left = left.saturating_sub(freed.unwrap_or(0));
        }
        let is_scattered = pool.spare_bytes() >= (used / 100 * HOLES_PERCENT).max(needed_bytes);
        if is_scattered || pool.missed_run_bytes() > 0 {
            pool.compact_for(Some(FULL_TIME_MAX))?;
        }
        Ok(may_help)
    }

    /// Evicts items of so many bytes, or about so many items, until a time; returns the bytes of those that
    /// went, or `None` if none may go.
    fn evict(&mut self, bytes: u64, victims_max: usize, until: Instant) -> Result<Option<u64>> {
        if Instant::now() < self.eviction.futile_until {
            return Ok(None);
        }
        let (mut count, mut freed, mut rounds) = (0, 0, 0);
        // After as many rounds every counter is zero.
        while freed < bytes && count < victims_max && rounds <= u32::from(USES_MAX) + 1 {
            let (found, is_at_end) = self.look()?;
            rounds += u32::from(is_at_end);
            for victim in found {
                // In a later round it is still seen where it was.
                let removed = match self.remove_from_map(&victim.key) {
                    // The batch has no room for more. Its commit gives the space of the others back.
                    Err(Failure::NoRoom) => return Ok(Some(freed)),
                    removed => removed?,
                };
                if removed {
                    (count, freed) = (count + 1, freed + victim.bytes);
                    self.eviction.alive_bytes = self.eviction.alive_bytes.saturating_sub(victim.bytes);
                    self.eviction.evicted += u64::from(!victim.is_over);
                }
            }
            if Instant::now() >= until {
                return Ok(Some(freed));
            }
        }
        if count == 0 {
            self.eviction.futile_until = Instant::now() + FUTILE_PERIOD;
            return Ok(None);
        }
        Ok(Some(freed))
    }

    /// Moves the hand over some items: those that may go, and whether it came to the end.
    fn look(&mut self) -> Result<(Vec<Victim>, bool)> {
        let hand = std::mem::take(&mut self.eviction.hand);
        let only_with_deadline = self.eviction.limit.is_some_and(|limit| limit.only_with_deadline);
        let (mut found, mut last, mut looks) = (Vec::new(), None, 0);
        // The state has the empty key, which no item has.
        let from = if hand.is_empty() { STATE_KEY } else { &hand };
        for entry in self.map().range::<&[u8]>((Bound::Excluded(from), Bound::Unbounded)) {
            let entry = entry?;
            let (key, value) = (entry.key(), entry.value());
            let item = Item::decode(value);
            let may_go = item.is_some_and(|item| !only_with_deadline || item.head.deadline != 0);
            let is_over = item.is_some_and(|item| item.head.is_over(self.now));
            if is_over || may_go && self.eviction.lower(key) {
                found.push(Victim { key: key.to_vec(), bytes: entry_bytes(key, value.len()), is_over });
            }
            looks += 1;
            if looks == LOOKS {
                last = Some(key.to_vec());
                break;
            }
        }
        let is_at_end = last.is_none();
        self.eviction.hand = last.unwrap_or_default();
        Ok((found, is_at_end))
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
        eviction.begin_turn();
        assert!(eviction.lower(b"a"), "without counters everything may go");
        eviction.tick(&pool, 10);
        let rounds = |eviction: &Eviction, key: &[u8]| (0..10).find(|_| eviction.lower(key)).unwrap();
        assert_eq!(rounds(&eviction, b"a"), 0);
        (0..2).for_each(|_| eviction.touch(b"a"));
        (0..9).for_each(|_| eviction.touch(b"b"));
        eviction.tick(&pool, 10_000);
        assert_eq!((rounds(&eviction, b"a"), rounds(&eviction, b"b")), (2, u32::from(USES_MAX)));
        assert_eq!(eviction.uses.len(), 32_768);
        // Few items are left, which were used as often as before.
        (0..9).for_each(|_| eviction.touch(b"b"));
        eviction.tick(&pool, 3000);
        assert_eq!((eviction.uses.len(), rounds(&eviction, b"b")), (16_384, u32::from(USES_MAX)));
        eviction.tick(&pool, 0);
        assert_eq!(eviction.uses.len(), COUNTERS_MIN);
    }
}
