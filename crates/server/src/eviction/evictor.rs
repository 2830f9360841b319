//! Evicting keys, between batches and for commands that find no space.

use std::time::{Duration, Instant};

use super::access::Accesses;
use super::candidate::entry_bytes;
use super::candidates::Candidates;
use super::policy::{EvictionSettings, Policy};
use crate::cluster::ranges::Ranges;
use crate::cluster::slot::slot_of;
use crate::executor::Executor;
use crate::fault::Answer;
use crate::keyspace::Keyspace;
use crate::state::State;

/// The most evictions for one command that found no space.
pub(crate) const TRIES_MAX: u32 = 64;

/// How long each of these may take.
const FULL_TIME_MAX: Duration = Duration::from_millis(20);

/// The share of the memory that each of these evictions frees.
const SHARE_PER_TRY: u64 = 512;

/// The share of the used space that must lie in holes to make a compaction worthwhile.
const HOLES_PERCENT: u64 = 25;

/// The percentage of the pool's length that the data may have where keys are evicted and `maxmemory` says
/// nothing.
const DATA_PERCENT: u64 = 75;

/// Keys evicted in one batch.
const VICTIMS_MAX: usize = 1024;

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
    /// Does the periodic work.
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

    /// Gives up the data that were replaced longest ago, before a key is evicted or a write refused.
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

    /// Evicts keys of this many bytes, in a batch that this begins, until a time; returns how many keys.
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
