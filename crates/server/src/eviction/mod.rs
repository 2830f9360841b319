//! Eviction: when the data have more memory than `maxmemory` allows, or the pool is full, keys go by Redis's
//! policies.
//!
//! The memory in question is that of what is alive in the pool: what is in use, less the holes between
//! records, what waits to be free and the backlog for replicas. It is measured as often as that costs little,
//! and estimated from the sizes of new keys in between.
//!
//! Keys are evicted between batches, in the batch that the next commands share, so that an eviction costs no
//! fence of its own; replicas are told a DEL. In a full pool a command that finds no space has keys evicted
//! for it, and is run again.

pub(crate) mod access;
mod candidates;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use access::Accesses;
pub(crate) use candidates::Candidate;
use candidates::Candidates;
use tembo::Pool;

use crate::cluster::ranges::Ranges;
use crate::cluster::slot::slot_of;
use crate::executor::Executor;
use crate::fault::Answer;
use crate::keyspace::Keyspace;
use crate::state::State;

/// The holes of slabs that are not known after a start are looked for in steps of so many slabs, in each
/// tick.
const SLABS_PER_TICK: usize = 4096;
/// Measuring the memory may take this share of the time.
const MEASURING_SHARE: u32 = 50;
const MEASURING_PERIOD_MIN: Duration = Duration::from_millis(10);
/// A command that found no space has keys evicted for it at most so often.
pub(crate) const TRIES_MAX: u32 = 64;
/// How long each of these may take.
const FULL_TIME_MAX: Duration = Duration::from_millis(20);
/// The share of the memory that is evicted for it each time.
const SHARE_PER_TRY: u64 = 512;
/// The share of what is in use that has to lie in holes, so that a compaction brings something.
const HOLES_PERCENT: u64 = 25;
/// The percentage of the pool's length that the data may have where keys are evicted and `maxmemory` says
/// nothing.
const DATA_PERCENT: u64 = 75;
/// Bytes of the pool that a key takes beside its own and its value's, about.
const ENTRY_BYTES: u64 = 32;
/// Keys evicted in one batch.
const VICTIMS_MAX: usize = 1024;

/// The measure by which a policy ranks keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The time of the last use.
    Recency,
    /// How often they are used.
    Frequency,
}

/// `maxmemory-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    VolatileLru,
    AllKeysLru,
    VolatileLfu,
    AllKeysLfu,
    VolatileRandom,
    AllKeysRandom,
    VolatileTtl,
    NoEviction,
}

impl Policy {
    /// All, with Redis's names.
    pub(crate) const ALL: [(&'static str, Policy); 8] = [
        ("volatile-lru", Policy::VolatileLru),
        ("allkeys-lru", Policy::AllKeysLru),
        ("volatile-lfu", Policy::VolatileLfu),
        ("allkeys-lfu", Policy::AllKeysLfu),
        ("volatile-random", Policy::VolatileRandom),
        ("allkeys-random", Policy::AllKeysRandom),
        ("volatile-ttl", Policy::VolatileTtl),
        ("noeviction", Policy::NoEviction),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, policy)| *policy == self).map_or("", |(name, _)| name)
    }

    /// The measure for which uses of keys are noted, if the policy goes by one.
    pub(crate) fn kind(self) -> Option<Kind> {
        match self {
            Policy::VolatileLru | Policy::AllKeysLru => Some(Kind::Recency),
            Policy::VolatileLfu | Policy::AllKeysLfu => Some(Kind::Frequency),
            _ => None,
        }
    }

    /// Only keys with a deadline go.
    fn is_volatile(self) -> bool {
        !matches!(self, Policy::AllKeysLru | Policy::AllKeysLfu | Policy::AllKeysRandom)
    }
}

/// The settings of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvictionSettings {
    /// Bytes that the data may have, *settable* as `maxmemory`; 0 for as many as the pool.
    pub(crate) memory_bytes: u64,
    pub(crate) policy: Policy,
    /// Keys that are looked at for each that goes.
    pub(crate) samples: usize,
    /// How long an eviction may take at a time: Redis's `maxmemory-eviction-tenacity`.
    pub(crate) tenacity: u64,
    pub(crate) frequency: access::Frequency,
}

impl Default for EvictionSettings {
    fn default() -> Self {
        EvictionSettings {
            memory_bytes: 0,
            policy: Policy::NoEviction,
            samples: 5,
            tenacity: 10,
            frequency: access::Frequency { log_factor: 10, decay_minutes: 1 },
        }
    }
}

impl EvictionSettings {
    /// The longest time of one eviction: Redis's.
    fn time_limit(&self) -> Duration {
        let micros = match self.tenacity {
            0..=10 => 50.0 * self.tenacity as f64,
            11..100 => 500.0 * 1.15_f64.powi(self.tenacity as i32 - 10),
            _ => return Duration::from_secs(60),
        };
        Duration::from_micros(micros as u64)
    }
}

/// The limit of a [`Server`](crate::Server)'s data, for others that evict theirs from the same pool.
#[derive(Clone, Debug, Default)]
pub struct EvictionLimit(Arc<Limit>);

#[derive(Debug, Default)]
struct Limit {
    /// 0: nothing is evicted.
    bytes: AtomicU64,
    only_with_deadline: AtomicBool,
}

impl EvictionLimit {
    /// The bytes that all data in the pool may have, as `maxmemory` and `maxmemory-policy` say now, and
    /// whether only what has a deadline may go; `None` with `noeviction`.
    pub fn get(&self) -> Option<(u64, bool)> {
        // ORDER: relaxed; what others see a moment later is evicted a moment later.
        let bytes = self.0.bytes.load(Ordering::Relaxed);
        (bytes > 0).then(|| (bytes, self.0.only_with_deadline.load(Ordering::Relaxed)))
    }

    fn set(&self, bytes: u64, only_with_deadline: bool) {
        self.0.only_with_deadline.store(only_with_deadline, Ordering::Relaxed);
        self.0.bytes.store(bytes, Ordering::Relaxed);
    }
}

/// The memory of the data, and what goes next.
#[derive(Debug)]
pub(crate) struct Eviction {
    /// The limit as others see it.
    pub(crate) limit: EvictionLimit,
    candidates: Candidates,
    /// The bytes that are alive, as last measured.
    alive_bytes: u64,
    next_measuring: Instant,
    /// All slabs of the pool are known, so that what is measured is what is alive.
    knows_all: bool,
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
    fn alive_bytes(&mut self, keys: &mut Keyspace<'_>, now: Instant) -> u64 {
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
/// backlog: to keep a slow replica from losing its place, no key goes. Nor does one for what a copy keeps,
/// which would keep that key, too.
fn measure(keys: &Keyspace<'_>) -> u64 {
    let (pool, replication) = (keys.pool(), &keys.replication);
    let stats = pool.stats();
    let end = replication.position.map_or(0, |position| position.offset);
    let backlog = end.saturating_sub(replication.backlog.first());
    let spare = pool.spare_bytes() + pool.limbo_bytes() + backlog + keys.old_bytes();
    stats.used_bytes().saturating_sub(spare)
}

/// The bytes that an entry takes in the pool, about.
pub(crate) fn entry_bytes(key: &[u8], value_bytes: usize) -> i64 {
    (key.len() + value_bytes) as i64 + ENTRY_BYTES as i64
}

impl State {
    /// The bytes that the data may have.
    pub(crate) fn memory_bytes_max(&self) -> u64 {
        self.memory_limit().unwrap_or(self.pool_bytes_max)
    }

    /// The bytes that the data may have, if that is less than the pool.
    fn memory_limit(&self) -> Option<u64> {
        let EvictionSettings { memory_bytes, policy, .. } = self.config.eviction;
        if memory_bytes == 0 && policy != Policy::NoEviction {
            return Some(self.pool_bytes_max / 100 * DATA_PERCENT);
        }
        Some(memory_bytes).filter(|&bytes| bytes > 0 && bytes < self.pool_bytes_max)
    }
}

/// Takes over the settings of eviction, as they are now.
pub(crate) fn begin(keys: &mut Keyspace<'_>, state: &mut State) {
    let settings = state.config.eviction;
    let kind = settings.policy.kind();
    if keys.accesses.as_ref().map(|accesses| accesses.kind()) != kind {
        let now_ms = crate::clock::unix_ms();
        keys.accesses = kind.map(|kind| Box::new(Accesses::new(kind, settings.frequency, now_ms)));
        keys.fit_accesses();
    }
    if let Some(accesses) = &mut keys.accesses {
        accesses.frequency = settings.frequency;
    }
    let bytes = if settings.policy == Policy::NoEviction { 0 } else { state.memory_bytes_max() };
    state.eviction.limit.set(bytes, settings.policy.is_volatile());
    state.eviction.candidates = Candidates::new();
    state.eviction.next_measuring = state.now;
    state.eviction.is_refusing = false;
}

impl Executor<'_, '_> {
    /// Does what is due every now and then.
    pub(crate) fn tend_eviction(&mut self) {
        if self.state.memory_limit().is_some() {
            self.state.eviction.tick(self.keys.pool());
        }
        self.keys.fit_accesses();
    }

    /// Evicts keys if the data have more memory than they may, unless there is a batch; this may begin one.
    #[inline]
    pub(crate) fn hold_to_maxmemory(&mut self) {
        if let Some(limit) = self.state.memory_limit()
            && !self.keys.has_batch()
        {
            self.hold_to(limit);
        }
    }

    #[cold]
    fn hold_to(&mut self, limit_bytes: u64) {
        let now = self.state.now;
        if !self.state.eviction.knows_all {
            return;
        }
        let alive = self.state.eviction.alive_bytes(&mut self.keys, now);
        if alive > limit_bytes && self.keys.has_kept() {
            return self.give_up_for_memory(now);
        }
        self.state.eviction.is_refusing = alive > limit_bytes && !self.evicts();
        if alive <= limit_bytes || !self.evicts() {
            return;
        }
        self.keys.let_go_beside_copy();
        let until = Instant::now() + self.state.config.eviction.time_limit();
        // The space of large collections and cleared databases comes back in steps.
        while self.keys.is_reclaiming() && Instant::now() < until {
            if self.keys.reclaim().is_err() {
                break;
            }
            self.state.eviction.next_measuring = now;
        }
        if !self.keys.is_reclaiming() {
            let evicted = self.evict(alive - limit_bytes, until);
            // With nothing that may go, writes that need memory are refused.
            self.state.eviction.is_refusing = evicted.is_ok_and(|count| count == 0);
        }
    }

    /// Gives up what was replaced longest ago, before a key goes and before a write is refused.
    #[cold]
    fn give_up_for_memory(&mut self, now: Instant) {
        let until = Instant::now() + self.state.config.eviction.time_limit();
        let mut given_up = self.keys.give_up_kept();
        while given_up.is_ok() && self.keys.is_reclaiming() && Instant::now() < until {
            given_up = self.keys.reclaim();
        }
        self.state.eviction.next_measuring = now;
    }

    /// Whether keys go when there is no memory. A replica's go by its master's word.
    pub(crate) fn evicts(&self) -> bool {
        self.state.config.eviction.policy != Policy::NoEviction
            && self.state.role.master.is_none()
            && !self.state.is_fenced()
            && !self.keys.replication.is_arriving
            && self.state.pause().is_none()
    }

    /// Evicts keys for a command that found no space; tells whether it is worth another try. There is no
    /// batch.
    ///
    /// It may need a longer piece than those that go leave behind: where there are many holes, the pool is
    /// compacted first.
    pub(crate) fn evict_for(&mut self, needed_bytes: u64) -> Answer<bool> {
        let pool = self.keys.pool();
        let stats = pool.stats();
        let used = stats.used_bytes();
        let is_scattered = pool.spare_bytes() >= (used / 100 * HOLES_PERCENT).max(needed_bytes);
        let State { compactor, config, now, .. } = &mut *self.state;
        if is_scattered && compactor.make_room(pool, &config.compaction, *now) {
            return Ok(true);
        }
        let evicted = self.evict((used / SHARE_PER_TRY).max(needed_bytes), Instant::now() + FULL_TIME_MAX)?;
        self.commit_batch(None);
        if self.keys.is_reclaiming() {
            self.reclaim_now()?;
        }
        Ok(evicted > 0)
    }

    /// Evicts keys of so many bytes, in a batch that this begins, until a time; returns how many keys.
    fn evict(&mut self, bytes: u64, until: Instant) -> Answer<usize> {
        let State { eviction, config, random, cluster, .. } = &mut *self.state;
        let importing = cluster.as_ref().and_then(|cluster| cluster.moves().importing());
        let coming = importing.map(|moving| &moving.slots);
        let settings = (config.eviction.policy, config.eviction.samples);
        let mut victims = Vec::new();
        let mut left = i64::try_from(bytes).unwrap_or(i64::MAX);
        eviction.candidates.begin(&self.keys, config.eviction.policy)?;
        while left > 0 && victims.len() < VICTIMS_MAX {
            let Some(victim) = eviction.candidates.pick(&self.keys, random, settings)? else { break };
            // A key that is on its way to here is as it is at its source: what changes it there is run here.
            let comes = |slots: &Ranges| victim.database == 0 && slots.contains(slot_of(&victim.key));
            if !coming.is_some_and(comes) {
                left -= entry_bytes(&victim.key, victim.value_bytes);
                victims.push(victim);
            }
            if Instant::now() >= until {
                break;
            }
        }
        let count = self.keys.evict(&victims)?;
        eviction.evicted += count as u64;
        Ok(count)
    }
}
