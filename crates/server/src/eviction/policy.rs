//! Policies of eviction, and its settings.

use std::time::Duration;

/// How the counts of the LFU policies grow and decay: Redis's `lfu-log-factor` and `lfu-decay-time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frequency {
    /// The larger, the more uses a count of 255 takes.
    pub(crate) log_factor: u64,
    /// Minutes without use after which a count is one less; 0 for never.
    pub(crate) decay_minutes: u64,
}

/// The measure by which a policy ranks keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UseMeasure {
    /// The time of the last use.
    Recency,
    /// How often keys are used.
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

    /// The measure for which uses of keys are noted, if the policy needs one.
    pub(crate) fn kind(self) -> Option<UseMeasure> {
        match self {
            Policy::VolatileLru | Policy::AllKeysLru => Some(UseMeasure::Recency),
            Policy::VolatileLfu | Policy::AllKeysLfu => Some(UseMeasure::Frequency),
            _ => None,
        }
    }

    /// Whether only keys with a deadline may be evicted.
    pub(super) fn is_volatile(self) -> bool {
        !matches!(self, Policy::AllKeysLru | Policy::AllKeysLfu | Policy::AllKeysRandom)
    }
}

/// The settings of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvictionSettings {
    /// Bytes that the data may have, *settable* as `maxmemory`; 0 for as many as the pool.
    pub(crate) memory_bytes: u64,
    pub(crate) policy: Policy,
    /// Keys that are visited for each evicted one.
    pub(crate) samples: usize,
    /// How long an eviction may take at a time: Redis's `maxmemory-eviction-tenacity`.
    pub(crate) tenacity: u64,
    pub(crate) frequency: Frequency,
}

impl Default for EvictionSettings {
    fn default() -> Self {
        EvictionSettings {
            memory_bytes: 0,
            policy: Policy::NoEviction,
            samples: 5,
            tenacity: 10,
            frequency: Frequency { log_factor: 10, decay_minutes: 1 },
        }
    }
}

impl EvictionSettings {
    /// The longest time of one eviction: Redis's.
    pub(super) fn time_limit(&self) -> Duration {
        let micros = match self.tenacity {
            0..=10 => 50.0 * self.tenacity as f64,
            11..100 => 500.0 * 1.15_f64.powi(self.tenacity as i32 - 10),
            _ => return Duration::from_secs(60),
        };
        Duration::from_micros(micros as u64)
    }
}
