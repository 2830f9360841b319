//! Durability domains: the meaning of a flush and a fence, and the failures that a write survives.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// The durability domain of an open region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Domain {
    /// A DAX mapping (`MAP_SYNC`): cache lines are flushed to persistent memory.
    Dax,
    /// As `Dax`, and the processor's caches are themselves persistent (eADR): a fence is enough.
    DaxCpuCache,
    /// An ordinary file: the kernel's page cache holds the data until it writes it back.
    PageCache,
    /// An ordinary file whose changed pages are synchronised to the device at every fence.
    Synced,
    /// An ordinary file with a [journal](crate::journal): a fence waits until its record is on the device.
    Journaled,
    /// An ordinary file with a [journal](crate::journal), which is synchronised with the device in intervals.
    Relaxed,
    /// An ordinary file, with the flushes and fences that persistent memory would need. For measuring.
    Emulated,
    /// Anonymous memory whose stores, flushes and fences are recorded. For the crash simulator.
    Simulated,
}

impl Domain {
    /// Whether durable stores outlive this boot.
    pub(crate) fn outlives_boots(self) -> bool {
        matches!(self, Domain::Synced | Domain::Dax | Domain::DaxCpuCache) || self.has_journal()
    }

    /// The failures that an acknowledged write survives, in words.
    pub fn survives(self) -> &'static str {
        match self {
            Domain::Dax | Domain::DaxCpuCache => {
                "a crash of the process (kill -9), of the operating system, and a power failure"
            }
            Domain::PageCache => {
                "a crash of the process (kill -9); not a crash of the operating system or a power failure"
            }
            Domain::Synced | Domain::Journaled => {
                "a crash of the process (kill -9), of the operating system, and a power failure (as far as the device keeps its promises)"
            }
            Domain::Relaxed => {
                "a crash of the process (kill -9); after a crash of the operating system or a power failure, the pool is as it was after some commit, at most the interval earlier (as far as the device keeps its promises)"
            }
            Domain::Emulated => {
                "a crash of the process (kill -9); not a power failure: it only costs what persistent memory would"
            }
            Domain::Simulated => "what the crash simulator decides",
        }
    }

    /// Whether a store that was executed survives every failure of the domain in the order of
    /// execution, without any flush: a killed process loses none of its stores.
    pub fn keeps_program_order(self) -> bool {
        matches!(self, Domain::PageCache)
    }

    /// Whether flushed lines go to a [journal](crate::journal) in the file.
    pub fn has_journal(self) -> bool {
        matches!(self, Domain::Journaled | Domain::Relaxed)
    }

    /// Whether a fence waits for a storage device, which takes a thousand times as long as persistent memory.
    pub fn waits_for_device(self) -> bool {
        matches!(self, Domain::Synced | Domain::Journaled)
    }

    /// The name used in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Domain::Dax => "dax",
            Domain::DaxCpuCache => "dax-cpu-cache",
            Domain::PageCache => "page-cache",
            Domain::Synced => "synced",
            Domain::Journaled => "journaled",
            Domain::Relaxed => "relaxed",
            Domain::Emulated => "emulated",
            Domain::Simulated => "simulated",
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The durability asked for when a pool is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// `Dax` where the file supports it; else, on a disk, [`ON_DISK`](Durability::ON_DISK); the page cache in
    /// a file system in memory, and on a disk where the pool has no room for a journal. A region that is
    /// mapped without a pool is in the page cache.
    #[default]
    Auto,
    /// Persistent memory, or an error.
    Dax,
    /// The page cache, even on persistent memory.
    PageCache,
    /// Synchronise to the device at every commit.
    Synced,
    /// Synchronise a journal with the device at every commit.
    Journaled,
    /// Write a journal at every commit, and synchronise it with the device so often that a power failure
    /// costs at most this much.
    Relaxed {
        /// The interval in milliseconds, at least 1.
        interval_ms: u32,
    },
    /// Flush and fence as on persistent memory, on any file.
    Emulated,
}

impl Durability {
    /// Every value with its name; of `relaxed`, the usual one.
    pub const ALL: [(Durability, &'static str); 7] = [
        (Durability::Auto, "auto"),
        (Durability::PageCache, "page-cache"),
        (Durability::Synced, "synced"),
        (Durability::Journaled, "journaled"),
        (Durability::Relaxed { interval_ms: RELAXED_MS }, "relaxed"),
        (Durability::Emulated, "emulated"),
        (Durability::Dax, "dax"),
    ];

    /// The durability of a pool on a disk for which [`Auto`](Durability::Auto) was asked.
    pub const ON_DISK: Durability = Durability::Relaxed { interval_ms: RELAXED_MS };

    /// Whether this durability needs a [journal](crate::journal) in the file.
    pub fn needs_journal(self) -> bool {
        matches!(self, Durability::Journaled | Durability::Relaxed { .. })
    }

    /// The most that a power failure may cost, where that is not nothing.
    pub(crate) fn interval(self) -> Option<Duration> {
        match self {
            Durability::Relaxed { interval_ms } => Some(Duration::from_millis(u64::from(interval_ms.max(1)))),
            _ => None,
        }
    }
}

/// The usual interval of `relaxed`.
const RELAXED_MS: u32 = 1000;

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Durability::ALL.iter().find(|(d, _)| d == self) {
            Some((_, name)) => f.write_str(name),
            None => match self.interval().map(|interval| interval.as_millis()) {
                Some(ms) if ms % 1000 == 0 => write!(f, "relaxed={}s", ms / 1000),
                Some(ms) => write!(f, "relaxed={ms}ms"),
                None => Ok(()),
            },
        }
    }
}

impl FromStr for Durability {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        if let Some(interval) = s.strip_prefix("relaxed=") {
            return parse_interval(interval)
                .map(|interval_ms| Durability::Relaxed { interval_ms })
                .ok_or_else(|| {
                    format!("{s:?} is not understood; expected relaxed=1s or relaxed=200ms, up to an hour")
                });
        }
        Durability::ALL.iter().find(|(_, name)| *name == s).map(|(d, _)| *d).ok_or_else(|| {
            format!(
                "unknown durability {s:?}; expected auto, page-cache, synced, journaled, relaxed, relaxed=1s, \
                 emulated or dax"
            )
        })
    }
}

/// Reads `2s` or `200ms`.
fn parse_interval(text: &str) -> Option<u32> {
    let (digits, unit_ms) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (text.strip_suffix('s')?, 1000),
    };
    let count: u32 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    count.checked_mul(unit_ms).filter(|ms| (1..=3_600_000).contains(ms))
}

/// Whether the persistent-memory region behind `file` reports that the processor's caches are
/// persistent. Anything that cannot be read counts as no.
pub(crate) fn has_persistent_cpu_cache(file: &File) -> bool {
    let Ok(meta) = file.metadata() else { return false };
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let block = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    persistence_domain_above(&block).is_some_and(|d| d == "cpu_cache")
}

/// Looks for `persistence_domain` in the device directory of `block` and in its ancestors.
fn persistence_domain_above(block: &Path) -> Option<String> {
    let real = std::fs::canonicalize(block).ok()?;
    real.ancestors()
        .take_while(|dir| dir.starts_with("/sys/devices"))
        .find_map(|dir| std::fs::read_to_string(dir.join("persistence_domain")).ok())
        .map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_names_round_trip_and_others_are_refused() {
        for (durability, name) in Durability::ALL {
            assert_eq!(name.parse::<Durability>().unwrap(), durability);
            assert_eq!(durability.to_string(), name);
        }
        assert!("DAX".parse::<Durability>().unwrap_err().contains("page-cache"));
    }

    #[test]
    fn intervals_are_read_and_written() {
        for (text, interval_ms) in [("relaxed=2s", 2000), ("relaxed=250ms", 250), ("relaxed", 1000)] {
            let durability: Durability = text.parse().unwrap();
            assert_eq!(
                (durability, durability.to_string().as_str()),
                (Durability::Relaxed { interval_ms }, text)
            );
        }
        assert_eq!("relaxed=1000ms".parse(), Ok(Durability::Relaxed { interval_ms: 1000 }));
        for wrong in ["", "1", "s", "0s", "-1s", "+1s", "1m", "4000s", "99999999999s", "1.5s"] {
            let refused = format!("relaxed={wrong}").parse::<Durability>();
            assert!(refused.unwrap_err().contains("relaxed=200ms"), "{wrong}");
        }
    }
}
