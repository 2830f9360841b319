//! Set-associative caches of line numbers, and a hierarchy of them.
//!
//! Caches hold no data: what a line contains is known elsewhere, and only whether it is there and whether it
//! is dirty decides about costs.

use super::params::CacheLevel;
use tembo_pmem::LINE_BYTES;

#[derive(Debug, Clone, Copy)]
struct Way {
    line: u64,
    /// When it was last used; larger is later.
    used: u64,
    dirty: bool,
}

const EMPTY: Way = Way { line: u64::MAX, used: 0, dirty: false };

/// One cache.
#[derive(Debug)]
struct Cache {
    ways: Vec<Way>,
    ways_per_set: usize,
    set_count: u64,
    clock: u64,
}

impl Cache {
    fn new(level: &CacheLevel) -> Cache {
        let set_count = level.bytes / (level.ways as u64 * LINE_BYTES);
        let ways = vec![EMPTY; set_count as usize * level.ways];
        Cache { ways, ways_per_set: level.ways, set_count, clock: 0 }
    }

    fn set(&mut self, line: u64) -> &mut [Way] {
        let start = (line % self.set_count) as usize * self.ways_per_set;
        &mut self.ways[start..start + self.ways_per_set]
    }

    fn find(&mut self, line: u64) -> Option<&mut Way> {
        self.set(line).iter_mut().find(|way| way.line == line)
    }

    /// Whether the line is here; if so it is the most recently used now.
    fn touch(&mut self, line: u64) -> bool {
        self.clock += 1;
        let now = self.clock;
        self.find(line).map(|way| way.used = now).is_some()
    }

    fn set_dirty(&mut self, line: u64) {
        if let Some(way) = self.find(line) {
            way.dirty = true;
        }
    }

    /// Takes the line out; whether it was dirty.
    fn remove(&mut self, line: u64) -> bool {
        self.find(line).map(|way| std::mem::replace(way, EMPTY)).is_some_and(|old| old.dirty)
    }

    /// Marks the line clean; whether it was dirty.
    fn clean(&mut self, line: u64) -> bool {
        self.find(line).is_some_and(|way| std::mem::take(&mut way.dirty))
    }

    /// Puts the line in place of the least recently used of its set, which is returned if there was one.
    fn insert(&mut self, line: u64) -> Option<Way> {
        self.clock += 1;
        let used = self.clock;
        let victim = self.set(line).iter_mut().min_by_key(|way| way.used)?;
        let old = std::mem::replace(victim, Way { line, used, dirty: false });
        (old.line != EMPTY.line).then_some(old)
    }
}

/// Where a line was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// In this cache, 0 being the nearest.
    Level(usize),
    /// In none.
    Nowhere,
}

/// Caches, nearest first; a line in one is in all farther ones.
#[derive(Debug)]
pub(super) struct Hierarchy {
    levels: Vec<Cache>,
}

impl Hierarchy {
    pub(super) fn new(levels: &[CacheLevel]) -> Hierarchy {
        Hierarchy { levels: levels.iter().map(Cache::new).collect() }
    }

    /// Whether the line is in the nearest cache.
    pub(super) fn has_nearest(&mut self, line: u64) -> bool {
        self.levels[0].find(line).is_some()
    }

    /// Brings the line into the nearest cache. Says where it was, and which dirty line had to leave.
    pub(super) fn access(&mut self, line: u64) -> (Found, Option<u64>) {
        let hit = self.levels.iter_mut().position(|cache| cache.touch(line));
        let missed = hit.unwrap_or(self.levels.len());
        let mut written_back = None;
        for level in (0..missed).rev() {
            if let Some(dirty) = self.insert(level, line) {
                written_back = Some(dirty);
            }
        }
        (hit.map_or(Found::Nowhere, Found::Level), written_back)
    }

    /// Inserts the line into one cache; a dirty victim moves outwards, or is returned when there is no
    /// farther cache.
    fn insert(&mut self, level: usize, line: u64) -> Option<u64> {
        let victim = self.levels[level].insert(line)?;
        let nearer_dirty =
            self.levels[..level].iter_mut().fold(false, |dirty, near| near.remove(victim.line) | dirty);
        if !victim.dirty && !nearer_dirty {
            return None;
        }
        match self.levels.get_mut(level + 1) {
            Some(farther) => {
                farther.set_dirty(victim.line);
                None
            }
            None => Some(victim.line),
        }
    }

    /// Notes a store to a line that was just brought in.
    pub(super) fn set_dirty(&mut self, line: u64) {
        self.levels[0].set_dirty(line);
    }

    /// Cleans the line everywhere, and with `evict` takes it out; whether it was dirty anywhere.
    pub(super) fn flush(&mut self, line: u64, evict: bool) -> bool {
        self.levels
            .iter_mut()
            .fold(false, |dirty, cache| dirty | if evict { cache.remove(line) } else { cache.clean(line) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One set of `ways` lines.
    fn level(sets: u64, ways: usize) -> CacheLevel {
        CacheLevel { bytes: sets * ways as u64 * LINE_BYTES, ways, latency_cycles: 1 }
    }

    #[test]
    fn the_least_recently_used_line_of_the_set_leaves() {
        let mut caches = Hierarchy::new(&[level(2, 2)]);
        // Even lines share a set; 1 is in the other one.
        for line in [0, 1, 2, 0] {
            caches.access(line);
        }
        caches.access(4);
        assert_eq!(caches.access(0).0, Found::Level(0));
        assert_eq!(caches.access(1).0, Found::Level(0));
        assert_eq!(caches.access(2).0, Found::Nowhere);
    }

    #[test]
    fn a_dirty_line_moves_outwards_before_it_is_written_back() {
        // The near cache holds one line, the far one two.
        let mut caches = Hierarchy::new(&[level(1, 1), level(1, 2)]);
        caches.access(7);
        caches.set_dirty(7);
        assert_eq!(caches.access(8), (Found::Nowhere, None), "7 moves to the far cache");
        assert_eq!(caches.access(9), (Found::Nowhere, Some(7)), "7 is the oldest of the far cache");
        assert_eq!(caches.access(10), (Found::Nowhere, None), "8 leaves clean");
    }

    #[test]
    fn what_leaves_the_far_cache_leaves_the_near_one_with_its_dirt() {
        let mut caches = Hierarchy::new(&[level(1, 2), level(1, 2)]);
        caches.access(1);
        caches.set_dirty(1);
        caches.access(2);
        assert_eq!(caches.access(3), (Found::Nowhere, Some(1)));
        assert_eq!(caches.access(2).0, Found::Level(0));
        assert_eq!(caches.access(1).0, Found::Nowhere);
    }

    #[test]
    fn a_flush_cleans_and_evicts_only_if_told() {
        let mut caches = Hierarchy::new(&[level(1, 2), level(1, 4)]);
        caches.access(1);
        caches.set_dirty(1);
        assert!(caches.flush(1, false));
        assert!(!caches.flush(1, false), "it is clean now");
        assert_eq!(caches.access(1).0, Found::Level(0));
        caches.set_dirty(1);
        assert!(caches.flush(1, true));
        assert_eq!(caches.access(1).0, Found::Nowhere);
    }
}
