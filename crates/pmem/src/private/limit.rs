//! The memory that private pages may take.

use std::fs::read_to_string;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The part of the process's memory that private pages may take.
const PART: u64 = 4;
/// The least limit: with fewer pages hardly anything could be stored twice.
const LEAST_BYTES: u64 = 16 << 20;

/// The part of a long region that may be private. Memory has each of these pages twice.
const PART_OF_REGION: u64 = 6;
/// All pages of regions up to this length may be private.
const SMALL_BYTES: u64 = 768 << 20;

/// The bytes of private pages beyond which some are given back.
pub(crate) enum Limit {
    /// As the caller said.
    Fixed(u64),
    /// By the memory that the process may use and by the region's length.
    Usual {
        /// A quarter of that memory: of the machine's, or of its control group's.
        share_bytes: u64,
        /// The length of the region.
        region_bytes: AtomicU64,
    },
}

impl Limit {
    pub(crate) fn new(chosen: Option<u64>) -> Limit {
        let usual = || Limit::Usual {
            share_bytes: (memory_bytes() / PART).max(LEAST_BYTES),
            region_bytes: AtomicU64::new(0),
        };
        chosen.map_or_else(usual, Limit::Fixed)
    }

    /// Notes the length of the region.
    pub(super) fn note_length(&self, bytes: u64) {
        if let Limit::Usual { region_bytes, .. } = self {
            region_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Limit::Fixed(bytes) => *bytes,
            Limit::Usual { share_bytes, region_bytes } => {
                let part = region_bytes.load(Ordering::Relaxed) / PART_OF_REGION;
                (*share_bytes).min(part.max(SMALL_BYTES))
            }
        }
    }
}

/// The memory that the process may use; 4 GiB if the system does not say.
pub(crate) fn memory_bytes() -> u64 {
    machine_bytes().into_iter().chain(group_bytes()).min().unwrap_or(4 << 30)
}

fn machine_bytes() -> Option<u64> {
    let text = read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The least limit of the process's control groups, of either version of them.
fn group_bytes() -> Option<u64> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().filter_map(|line| limit_of(line, Path::new("/sys/fs/cgroup"))).min()
}

/// The least limit of a group, `0::/path` or `4:memory:/path`, and of those above it.
fn limit_of(line: &str, root: &Path) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (kinds, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
    let (root, name) = match kinds {
        "" => (root.to_owned(), "memory.max"),
        _ if kinds.split(',').any(|kind| kind == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
        _ => return None,
    };
    let group = root.join(path);
    let limits = group.ancestors().take_while(|group| group.starts_with(&root));
    limits.filter_map(|group| read_to_string(group.join(name)).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_the_groups_counts() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("a/b/memory.max", "max\n");
        put("a/memory.max", "5000000\n");
        put("memory/c/memory.limit_in_bytes", "700\n");
        put("memory/memory.limit_in_bytes", "9223372036854771712\n");
        for (line, limit) in [
            ("0::/a/b", Some(5_000_000)),
            ("0::/", None),
            ("4:cpu,memory:/c", Some(700)),
            ("4:memory:/elsewhere", Some(9_223_372_036_854_771_712)),
            ("3:cpu:/c", None),
            ("nonsense", None),
        ] {
            assert_eq!(limit_of(line, root), limit, "{line}");
        }
    }

    #[test]
    fn long_regions_have_a_part_of_their_pages_twice() {
        assert_eq!(Limit::new(Some(7)).bytes(), 7);
        let usual = Limit::new(None);
        let at = |bytes| {
            usual.note_length(bytes);
            usual.bytes()
        };
        let share = at(u64::MAX);
        assert!(share >= LEAST_BYTES);
        assert_eq!(at(0), share.min(SMALL_BYTES));
        assert_eq!(at(64 << 30), share.min((64 << 30) / PART_OF_REGION));
    }
}
