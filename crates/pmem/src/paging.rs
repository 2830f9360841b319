//! How the kernel brings the pages of a file into memory.
//!
//! The kernel may use huge pages for a file in memory, and for one on a disk that fits into memory, and may
//! read the neighbours of a missing page. For a file on a disk that is larger than half of the memory that
//! the process may use, most of these neighbours would be evicted before they are needed, and would evict
//! pages in use. Such a file is read page by page, and pages that are needed soon can be read together
//! ([`Region::ask_for`](crate::Region::ask_for)).
//!
//! A request for a page that is in memory costs microseconds for nothing, and the pages in use may fit into
//! memory although the file does not. Therefore the first of many calls check whether their pages are in
//! memory, and the others request pages only if some were missing.

use crate::Domain;
use crate::map::{AddressRange, Sharing};
use crate::private::memory_bytes;
use rustix::fs::fstatfs;
use rustix::mm::Advice;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The part of the memory beyond which a file on a disk is larger than memory.
const PART: u64 = 2;

/// The calls of a cycle: the first ones look, and the others do as these have found.
const CALLS: u64 = 4096;
const LOOKS: u64 = 64;
/// The other calls of a cycle request pages if the first ones found this many missing.
const MISSING_MIN: u64 = 2;

/// The paging of a region.
#[derive(Debug)]
pub(crate) struct Paging {
    /// Beyond this length pages are read one by one.
    limit_bytes: u64,
    is_single: AtomicBool,
    calls: AtomicU64,
    /// Pages that the last calls found missing.
    missing: AtomicU64,
}

/// The part of a call in the count of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Look,
    Ask,
    Pass,
}

impl Paging {
    pub(crate) fn of(file: &File, domain: Domain) -> Paging {
        let is_on_disk =
            is_in_memory(file) == Ok(false) && !matches!(domain, Domain::Dax | Domain::DaxCpuCache);
        Paging::beyond(if is_on_disk { memory_bytes() / PART } else { u64::MAX })
    }

    /// The paging of memory.
    pub(crate) fn of_memory() -> Paging {
        Paging::beyond(u64::MAX)
    }

    fn beyond(limit_bytes: u64) -> Paging {
        Paging {
            limit_bytes,
            is_single: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            missing: AtomicU64::new(0),
        }
    }

    /// The part of the next call. ORDER: the counts are estimates, so that all is relaxed.
    pub(crate) fn turn(&self) -> Turn {
        match self.calls.fetch_add(1, Ordering::Relaxed) % CALLS {
            0 => {
                self.missing.store(0, Ordering::Relaxed);
                Turn::Look
            }
            1..LOOKS => Turn::Look,
            _ if self.missing.load(Ordering::Relaxed) >= MISSING_MIN => Turn::Ask,
            _ => Turn::Pass,
        }
    }

    /// Whether pages are requested, or it is time to look again.
    pub(crate) fn is_asking(&self) -> bool {
        let lacks = self.missing.load(Ordering::Relaxed) >= MISSING_MIN;
        lacks || self.calls.load(Ordering::Relaxed) % CALLS < LOOKS
    }

    pub(crate) fn note_missing(&self) {
        self.missing.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether pages are read one by one.
    #[inline(always)]
    pub(crate) fn is_single(&self) -> bool {
        self.is_single.load(Ordering::Relaxed)
    }

    /// Advises the kernel, once `[from, to)` of a range is mapped. A refusal is no error.
    pub(crate) fn advise(&self, range: &AddressRange, (from, to): (u64, u64), sharing: Sharing) {
        if to <= self.limit_bytes {
            // Pages of a private mapping that are stored to would be copied in huge pages.
            if sharing != Sharing::Private {
                range.advise(from, to, Advice::LinuxHugepage);
            }
            return;
        }
        let from = if self.is_single.swap(true, Ordering::Relaxed) { from } else { 0 };
        range.advise(from, to, Advice::LinuxNoHugepage);
        range.advise(from, to, Advice::Random);
    }
}

/// Whether a file lies in a file system in memory.
///
/// # Errors
///
/// Failures of the system to say.
pub fn is_in_memory(file: &File) -> rustix::io::Result<bool> {
    // The magic numbers of tmpfs, ramfs and hugetlbfs.
    const IN_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58F6, 0x9584_58F6];
    Ok(IN_MEMORY.contains(&(fstatfs(file)?.f_type as u64 & 0xFFFF_FFFF)))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::{Access, Durability, Region, RegionOptions};

    /// The advice that the kernel has for a mapping of `file`, by the flags of its line in `smaps`.
    fn flags(file: &std::path::Path) -> Vec<String> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = smaps.lines().skip_while(|line| !line.ends_with(file.to_str().unwrap()));
        let line = lines.find_map(|line| line.strip_prefix("VmFlags: ")).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn pages_are_asked_for_only_where_some_are_not_there() {
        let paging = Paging::of_memory();
        let turns = |missing: u64| {
            let turn_of = |call| {
                let turn = paging.turn();
                (call < missing).then(|| paging.note_missing());
                turn
            };
            let turns: Vec<_> = (0..CALLS).map(turn_of).collect();
            let count = |wanted| turns.iter().filter(|turn| **turn == wanted).count() as u64;
            (count(Turn::Look), count(Turn::Ask), count(Turn::Pass))
        };
        assert!(paging.is_asking());
        assert_eq!(turns(0), (LOOKS, 0, CALLS - LOOKS));
        (0..LOOKS).for_each(|_| _ = paging.turn());
        assert!(!paging.is_asking());
        (LOOKS..CALLS).for_each(|_| _ = paging.turn());
        assert_eq!(turns(MISSING_MIN), (LOOKS, CALLS - LOOKS, 0));
        assert_eq!(turns(MISSING_MIN - 1), (LOOKS, 0, CALLS - LOOKS));
    }

    #[test]
    fn pages_come_one_by_one_once_a_file_is_larger_than_memory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let options = RegionOptions { durability: Durability::PageCache, ..RegionOptions::default() };
        let opened = file.reopen().unwrap();
        let mut region = Region::map_file(opened, 1 << 20, &options, Access::ReadWrite).unwrap();
        assert!(!region.is_larger_than_memory() && !flags(file.path()).contains(&"rr".to_owned()));
        // Nothing is asked for here.
        region.ask_for(0, u64::MAX);
        region.paging = Paging::beyond(3 << 20);
        region.grow(2 << 20).unwrap();
        assert!(!region.is_larger_than_memory());
        region.grow(4 << 20).unwrap();
        assert!(region.is_larger_than_memory());
        let flags = flags(file.path());
        assert!(flags.contains(&"rr".to_owned()) && flags.contains(&"nh".to_owned()), "{flags:?}");
        for (off, bytes) in
            [(0, 1), (4000, 5000), ((4 << 20) - 1, 1), ((4 << 20) - 1, 2), (u64::MAX, u64::MAX)]
        {
            region.ask_for(off, bytes);
        }
    }
}
