//! When, or how often, each key was used lately: in memory, approximately, and lost with the process.
//!
//! A table of hashes, not of keys: buckets of one cache line with eight entries, each 16 bits of the key's
//! hash and 48 bits of use. A key that is not in the table was used before all that are; so is every key
//! after a start. A bucket that overflows forgets its oldest entry. A key that shares the tag of one in its
//! bucket, one in 8,000, shares its use. The table is in segments, which double one by one when they have
//! more than [`KEYS_PER_BUCKET`] keys a bucket: no command waits for all of it. Both halves of a bucket get
//! its entries, of which those in the wrong half are never found and grow old.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use tembo_pmem::prefetch_for_store;

use super::policy::{Frequency, UseMeasure};
use crate::random::Random;

/// Entries of a bucket: a cache line.
const BUCKET_LEN: usize = 8;
/// Keys for each bucket at which a segment doubles.
const KEYS_PER_BUCKET: u64 = 5;
const SEGMENTS: usize = 256;
/// The bits of a hash that choose the segment begin here; those that choose the bucket are below.
const SEGMENT_SHIFT: u32 = 40;
const TAG_SHIFT: u32 = 48;
const USE_MASK: u64 = (1 << TAG_SHIFT) - 1;
/// The count of a new key, so that it is not the first to go (Redis's).
const COUNT_AT_FIRST: u8 = 5;
const MS_PER_MINUTE: u64 = 60_000;

/// Entries that lie in one line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket([u64; BUCKET_LEN]);

#[derive(Clone, Debug)]
struct Segment {
    /// The buckets. Their number is a power of two.
    buckets: Vec<Bucket>,
    /// The number of keys in the table, about.
    keys: u64,
}

impl Segment {
    fn fit(&mut self) {
        while self.buckets.len() as u64 * KEYS_PER_BUCKET < self.keys {
            self.buckets.extend_from_within(..);
        }
    }

    fn bucket(&mut self, hash: u64) -> &mut [u64; BUCKET_LEN] {
        let mask = self.buckets.len() - 1;
        &mut self.buckets[hash as usize & mask].0
    }
}

#[derive(Debug)]
pub(crate) struct Accesses {
    segments: Vec<Segment>,
    kind: UseMeasure,
    pub(crate) frequency: Frequency,
    hasher: RandomState,
    random: Random,
    /// Milliseconds since the Unix epoch at which the table began.
    began_ms: u64,
    now_ms: u64,
    /// The command under way only looks at keys.
    only_looks: bool,
    /// The key that the command under way used last: it counts once for each command.
    last: Option<u64>,
}

impl Accesses {
    pub(crate) fn new(kind: UseMeasure, frequency: Frequency, now_ms: u64) -> Accesses {
        Accesses {
            segments: vec![Segment { buckets: vec![Bucket([0; BUCKET_LEN])], keys: 0 }; SEGMENTS],
            kind,
            frequency,
            hasher: RandomState::default(),
            random: Random::new(),
            began_ms: now_ms,
            now_ms,
            only_looks: false,
            last: None,
        }
    }

    pub(crate) fn kind(&self) -> UseMeasure {
        self.kind
    }

    /// Notes that a command begins, at this time, which uses the keys that it finds or only looks at them.
    #[inline]
    pub(crate) fn begin_command(&mut self, now_ms: u64, only_looks: bool) {
        (self.last, self.now_ms, self.only_looks) = (None, now_ms, only_looks);
    }

    /// Makes room for the uses of this many keys.
    pub(crate) fn fit(&mut self, keys: u64) {
        for segment in &mut self.segments {
            segment.keys = keys / SEGMENTS as u64;
            segment.fit();
        }
    }

    fn hash(&self, database: usize, key: &[u8]) -> u64 {
        self.hasher.hash_one((database as u8, key))
    }

    /// Has the entries brought to the processor among which the key's will be.
    #[inline]
    pub(crate) fn prefetch(&self, database: usize, key: &[u8]) {
        let hash = self.hash(database, key);
        let buckets = &self.segments[segment_of(hash)].buckets;
        prefetch_for_store(&buckets[hash as usize & (buckets.len() - 1)]);
    }

    /// The key's entry: where it is, and its use.
    fn find(&self, hash: u64) -> Option<(usize, u64)> {
        let segment = &self.segments[segment_of(hash)];
        let bucket = &segment.buckets[hash as usize & (segment.buckets.len() - 1)];
        let at = bucket.0.iter().position(|entry| entry >> TAG_SHIFT == tag(hash))?;
        Some((at, bucket.0[at] & USE_MASK))
    }

    /// Notes that a key is used.
    #[inline]
    pub(crate) fn touch(&mut self, database: usize, key: &[u8]) {
        let hash = self.hash(database, key);
        if self.only_looks || self.last.replace(hash) == Some(hash) {
            return;
        }
        let found = self.find(hash);
        let value = match self.kind {
            UseMeasure::Recency => self.recency(),
            UseMeasure::Frequency => {
                let count = found.map_or(COUNT_AT_FIRST, |(_, value)| self.decayed(value));
                self.minutes() << 8 | u64::from(self.increased(count))
            }
        };
        self.store(hash, found.map(|(at, _)| at), value);
    }

    /// Notes a new key, and forgets the uses of an older key with its name.
    pub(crate) fn create(&mut self, database: usize, key: &[u8]) {
        let hash = self.hash(database, key);
        self.last = Some(hash);
        let segment = &mut self.segments[segment_of(hash)];
        segment.keys += 1;
        segment.fit();
        let value = match self.kind {
            UseMeasure::Recency => self.recency(),
            UseMeasure::Frequency => self.minutes() << 8 | u64::from(COUNT_AT_FIRST),
        };
        self.store(hash, self.find(hash).map(|(at, _)| at), value);
    }

    fn store(&mut self, hash: u64, at: Option<usize>, value: u64) {
        let bucket = self.segments[segment_of(hash)].bucket(hash);
        let oldest = || (0..BUCKET_LEN).min_by_key(|&at| bucket[at] & USE_MASK).unwrap_or(0);
        let at = at.unwrap_or_else(oldest);
        bucket[at] = tag(hash) << TAG_SHIFT | value & USE_MASK;
    }

    /// The present time as the time of a key's use. It is never zero: zero stands for an empty entry.
    fn recency(&self) -> u64 {
        self.now_ms.saturating_sub(self.began_ms) + 1
    }

    fn minutes(&self) -> u64 {
        // One more minute than has passed, for the same reason.
        (self.now_ms.saturating_sub(self.began_ms)) / MS_PER_MINUTE + 1
    }

    /// How little a key is worth keeping: the larger, the sooner it is evicted.
    pub(crate) fn rank(&self, database: usize, key: &[u8]) -> u64 {
        let found = self.find(self.hash(database, key));
        match self.kind {
            UseMeasure::Recency => self.recency() - found.map_or(0, |(_, value)| value.min(self.recency())),
            UseMeasure::Frequency => u64::from(u8::MAX - found.map_or(0, |(_, value)| self.decayed(value))),
        }
    }

    /// How long a key has not been used, in milliseconds; at the most since the table began.
    pub(crate) fn idle_ms(&self, database: usize, key: &[u8]) -> u64 {
        self.rank(database, key)
    }

    /// The count of a key.
    pub(crate) fn count(&self, database: usize, key: &[u8]) -> u8 {
        self.find(self.hash(database, key)).map_or(0, |(_, value)| self.decayed(value))
    }

    /// Notes that a key was last used this long ago. A use from before the table began counts as one at its
    /// beginning.
    pub(crate) fn set_idle(&mut self, database: usize, key: &[u8], seconds: u64) {
        let hash = self.hash(database, key);
        let value = self.recency().saturating_sub(seconds.saturating_mul(1000)).max(1);
        self.store(hash, self.find(hash).map(|(at, _)| at), value);
    }

    /// Gives a key a count.
    pub(crate) fn set_count(&mut self, database: usize, key: &[u8], count: u8) {
        let hash = self.hash(database, key);
        let value = self.minutes() << 8 | u64::from(count);
        self.store(hash, self.find(hash).map(|(at, _)| at), value);
    }

    fn decayed(&self, value: u64) -> u8 {
        let (then, count) = (value >> 8, value as u8);
        let elapsed = self.minutes().saturating_sub(then);
        let periods = elapsed.checked_div(self.frequency.decay_minutes).unwrap_or(0);
        count.saturating_sub(u8::try_from(periods).unwrap_or(u8::MAX))
    }

    /// The count after one more use: it grows by chance, the slower the larger it is.
    fn increased(&mut self, count: u8) -> u8 {
        let above = u64::from(count.saturating_sub(COUNT_AT_FIRST));
        let grows = count < u8::MAX && self.random.below(above * self.frequency.log_factor + 1) == 0;
        count + u8::from(grows)
    }
}

fn segment_of(hash: u64) -> usize {
    (hash >> SEGMENT_SHIFT) as usize % SEGMENTS
}

/// The part of the hash that an entry has: other bits than those that choose the bucket. Never zero.
fn tag(hash: u64) -> u64 {
    (hash >> TAG_SHIFT).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREQUENCY: Frequency = Frequency { log_factor: 10, decay_minutes: 1 };

    fn key(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    #[test]
    fn the_order_of_uses_is_known_while_the_table_grows() {
        let mut accesses = Accesses::new(UseMeasure::Recency, FREQUENCY, 1000);
        for number in 0..10_000 {
            accesses.begin_command(1000 + u64::from(number), false);
            accesses.create(0, &key(number));
        }
        accesses.begin_command(20_000, false);
        accesses.touch(0, &key(0));
        assert_eq!(accesses.idle_ms(0, &key(0)), 0);
        let wrong =
            (1..10_000).filter(|&number| accesses.idle_ms(0, &key(number)) != 19_000 - u64::from(number));
        // The number of keys that a bucket forgot for newer ones: they count as never used.
        let wrong = wrong.count();
        assert!(wrong < 2000, "{wrong}");
        assert_eq!(accesses.idle_ms(1, &key(0)), 19_001, "a key of another database was never used");
    }

    #[test]
    fn a_count_grows_by_the_logarithm_and_decays_by_time() {
        let mut accesses = Accesses::new(UseMeasure::Frequency, FREQUENCY, 0);
        accesses.random = Random::seeded(7);
        accesses.create(0, b"a");
        assert_eq!(accesses.count(0, b"a"), COUNT_AT_FIRST);
        let use_often = |accesses: &mut Accesses, times| {
            for _ in 0..times {
                accesses.begin_command(0, false);
                accesses.touch(0, b"a");
            }
            accesses.count(0, b"a")
        };
        // Redis's table for this factor: 10 after 100 hits, 18 after 1,000, 142 after 100,000.
        let counts = [100, 900, 99_000].map(|times| use_often(&mut accesses, times));
        assert!((7..16).contains(&counts[0]) && (14..26).contains(&counts[1]), "{counts:?}");
        assert!((130..170).contains(&counts[2]), "{counts:?}");
        accesses.touch(0, b"a");
        accesses.touch(0, b"a");
        accesses.begin_command(10 * MS_PER_MINUTE, false);
        assert_eq!(accesses.count(0, b"a"), counts[2] - 10);
        accesses.create(0, b"a");
        assert_eq!(accesses.count(0, b"a"), COUNT_AT_FIRST, "a new key of that name begins anew");
    }

    #[test]
    fn a_use_counts_once_for_each_command() {
        let frequency = Frequency { log_factor: 0, decay_minutes: 0 };
        let mut accesses = Accesses::new(UseMeasure::Frequency, frequency, 0);
        accesses.create(0, b"a");
        for expected in [COUNT_AT_FIRST + 1, COUNT_AT_FIRST + 2] {
            accesses.begin_command(0, false);
            (0..3).for_each(|_| accesses.touch(0, b"a"));
            assert_eq!(accesses.count(0, b"a"), expected);
        }
    }
}
