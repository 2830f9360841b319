//! Which versions a keyspace retains, beside those that snapshots need.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Which versions a keyspace retains, beside those of snapshots that are open or kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retention {
    /// No others.
    #[default]
    None,
    /// This many of the newest of each key, at least one.
    Versions(u32),
    /// The versions that were current at any moment within this time, to the microsecond.
    For(Duration),
    /// Every version, as long as those that are not the last of their keys take at most so many bytes
    /// together; else the newest that do. What kept snapshots hold is not counted.
    Within(u64),
    /// Every version.
    All,
}

impl Retention {
    const VERSIONS: u64 = 1;
    const FOR: u64 = 2;
    const ALL: u64 = 3;
    const WITHIN: u64 = 4;
    const KIND_BITS: u32 = 8;

    /// Its word in `PmKeyspace`.
    pub(crate) fn encode(self) -> u64 {
        let with = |kind: u64, number: u64| kind | number << Retention::KIND_BITS;
        match self {
            Retention::None => 0,
            Retention::Versions(count) => with(Retention::VERSIONS, count.into()),
            Retention::For(time) => with(Retention::FOR, (time.as_micros() as u64).min(u64::MAX >> 8)),
            Retention::Within(bytes) => with(Retention::WITHIN, bytes.min(u64::MAX >> 8)),
            Retention::All => Retention::ALL,
        }
    }

    /// `None` if no retention is encoded so.
    pub(crate) fn decode(word: u64) -> Option<Retention> {
        let (kind, number) = (word & 0xFF, word >> Retention::KIND_BITS);
        match kind {
            0 if number == 0 => Some(Retention::None),
            Retention::VERSIONS => u32::try_from(number).ok().map(Retention::Versions),
            Retention::FOR => Some(Retention::For(Duration::from_micros(number))),
            Retention::WITHIN => Some(Retention::Within(number)),
            Retention::ALL if number == 0 => Some(Retention::All),
            _ => None,
        }
    }
}

/// The first number within the last so much time.
pub(crate) fn window_start(time: Duration, now_unix_ns: u64) -> u64 {
    now_unix_ns.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The latest of all times that windows were cut by, and of this one: the clock of the system may be set
/// back, and what was past stays so.
pub(crate) fn steady(now_unix_ns: u64) -> u64 {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    // ORDER: whoever finds a version collected finds the time, too; with the release of what was collected.
    LATEST.fetch_max(now_unix_ns, Ordering::AcqRel).max(now_unix_ns)
}

/// As [`now_unix_ns`], and never earlier than a time that a window was cut by.
pub(crate) fn steady_unix_ns() -> u64 {
    steady(now_unix_ns())
}

/// The time, in nanoseconds since 1970.
pub(crate) fn now_unix_ns() -> u64 {
    unix_ns(SystemTime::now())
}

pub(crate) fn unix_ns(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |past| u64::try_from(past.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_retention_is_read_as_it_was_written() {
        let times = [0, 1, 999_999, 3_600_000_000].map(|us| Retention::For(Duration::from_micros(us)));
        let others = [
            Retention::None,
            Retention::All,
            Retention::Within(0),
            Retention::Within(1 << 50),
            Retention::Versions(0),
            Retention::Versions(u32::MAX),
        ];
        for retention in times.into_iter().chain(others) {
            assert_eq!(Retention::decode(retention.encode()), Some(retention));
        }
        for wrong in [5, 0x0103, 0x0100, 1 | 1 << 40] {
            assert_eq!(Retention::decode(wrong), None, "{wrong:#x}");
        }
    }
}
