//! Durability domains: the meaning of a flush and a fence, and the failures that a write survives.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

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
    /// An ordinary file, with the flushes and fences that persistent memory would need. For measuring.
    Emulated,
    /// Anonymous memory whose stores, flushes and fences are recorded. For the crash simulator.
    Simulated,
}

impl Domain {
    /// The failures that an acknowledged write survives, in words.
    pub fn survives(self) -> &'static str {
        match self {
            Domain::Dax | Domain::DaxCpuCache => {
                "a crash of the process (kill -9), of the operating system, and a power failure"
            }
            Domain::PageCache => {
                "a crash of the process (kill -9); not a crash of the operating system or a power failure"
            }
            Domain::Synced => {
                "a crash of the process (kill -9), of the operating system, and a power failure (as far as the device keeps its promises)"
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

    /// The name used in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Domain::Dax => "dax",
            Domain::DaxCpuCache => "dax-cpu-cache",
            Domain::PageCache => "page-cache",
            Domain::Synced => "synced",
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
    /// `Dax` where the file supports it, else the page cache.
    #[default]
    Auto,
    /// Persistent memory, or an error.
    Dax,
    /// The page cache, even on persistent memory.
    PageCache,
    /// Synchronise to the device at every commit.
    Synced,
    /// Flush and fence as on persistent memory, on any file.
    Emulated,
}

impl Durability {
    /// Every value with its name.
    pub const ALL: [(Durability, &'static str); 5] = [
        (Durability::Auto, "auto"),
        (Durability::PageCache, "page-cache"),
        (Durability::Synced, "synced"),
        (Durability::Emulated, "emulated"),
        (Durability::Dax, "dax"),
    ];
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Durability::ALL.iter().find(|(d, _)| d == self).map_or("", |(_, n)| n);
        f.write_str(name)
    }
}

impl FromStr for Durability {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Durability::ALL.iter().find(|(_, name)| *name == s).map(|(d, _)| *d).ok_or_else(|| {
            format!("unknown durability {s:?}; expected auto, page-cache, synced, emulated or dax")
        })
    }
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
}
