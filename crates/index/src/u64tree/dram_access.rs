//! The words of DRAM that an operation reads and stores, for models of memory. A region reports accesses to
//! the pool to such a model, but not accesses to DRAM.

use super::U64Tree;
use super::group::GROUP;
use super::inner::{Inner, place};
use super::node::simd::GROUPS;
use super::node::{Child, Leaf};
use tembo_pmem::LINE_BYTES;

/// An operation on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DramAccess {
    /// The key is looked up.
    Get,
    /// The key is put, and was absent.
    Insert,
    /// The key is removed.
    Remove,
}

/// A node in DRAM that an operation visits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DramNode {
    /// 0 of a leaf.
    pub level: u64,
    /// Its address. Another node may lie there later.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// The places of the words that the search reads, in steps. A step's words depend only on earlier steps,
    /// or their lines are prefetched.
    pub reads: Vec<Vec<u64>>,
    /// The places of the words that a change of the key's record stores. In an inner node: those that adding
    /// a child beside the visited one stores, if that is done in place. (Taking a child out stores less.)
    pub stores: Vec<u64>,
    /// The number of children; 0 for a leaf.
    pub children: usize,
}

impl U64Tree {
    /// The nodes in DRAM on the path to a key, the root first, up to the first cold one.
    pub fn dram_way(&self, key: u64, access: DramAccess) -> Vec<DramNode> {
        let pin = self.tree.pool.pin_briefly();
        let (mut way, mut word) = (Vec::new(), &self.tree.root);
        loop {
            match word.follow(&pin) {
                Child::Inner(inner) => {
                    let at = inner.position(key);
                    way.push(of_inner(inner, at));
                    word = inner.child(at);
                }
                Child::Leaf(leaf) => {
                    way.push(of_leaf(leaf, access));
                    return way;
                }
                Child::Cold(_) | Child::None => return way,
            }
        }
    }
}

/// The accesses to an inner node whose child at `at` is visited. The search reads the level and the first
/// separators of the groups, then the separators of one group and the child; the child's lines are prefetched
/// during the search. (A binary search stands for the vector search, which reads whole lines; it reads at
/// least one word of each line.) Adding a child to the right of `at` moves those behind it, with their slots,
/// up to the first free place, and stores the new child's slot.
fn of_inner(inner: &Inner, at: usize) -> DramNode {
    let address = address(inner);
    let mut reads = vec![vec![place::level(), place::first(1)]];
    if !inner.has_one_group() {
        // The first step of the search is the level's; the next may be in the other line.
        let mut firsts = probes(GROUPS, at / GROUP).map(|group| place::first(group as usize));
        reads[0].extend(firsts.next());
        reads.push(firsts.collect());
    }
    let group = at - at % GROUP;
    let separators = probes(GROUP, at % GROUP).map(|i| place::separator(group + i as usize));
    reads.push(separators.chain([place::child(at)]).collect());
    let free = (at + 1..GROUPS * GROUP).find(|at| inner.separator(*at) == u64::MAX).unwrap_or(at);
    let words = (at + 1..=free).flat_map(|at| [place::child_off(at), place::child(at), place::separator(at)]);
    let firsts = (at / GROUP + 1..=free / GROUP).map(place::first);
    let slots = (at / GROUP..=free / GROUP).map(|group| place::slot(GROUP * group) & !7);
    let stores = words.chain(firsts).chain(slots).collect();
    let bytes = size_of::<Inner>() as u64;
    DramNode { level: inner.level, address, bytes, reads, stores, children: inner.len() }
}

/// The accesses to a leaf. The search reads its version, its fingerprints and its floor. A change stores the
/// version twice, the length, and a fingerprint: its byte and, if the key may be absent, its nibble.
fn of_leaf(leaf: &Leaf, access: DramAccess) -> DramNode {
    let address = address(leaf);
    let at = |off: u64| off - address;
    let (version, len) = (at(self::address(&leaf.version)), at(self::address(&leaf.len)));
    let bytes = at(self::address(&leaf.fingerprints));
    let nibbles = bytes + 2 * LINE_BYTES;
    let mut reads = vec![version, bytes, bytes + LINE_BYTES];
    if access != DramAccess::Remove {
        reads.push(nibbles);
    }
    reads.extend([at(self::address(&leaf.floor)), version]);
    let stores = match access {
        DramAccess::Get => Vec::new(),
        DramAccess::Insert => vec![version, nibbles, bytes, len, version],
        DramAccess::Remove => vec![version, bytes, len, version],
    };
    DramNode { level: 0, address, bytes: size_of::<Leaf>() as u64, reads: vec![reads], stores, children: 0 }
}

fn address<T>(of: &T) -> u64 {
    std::ptr::from_ref(of).addr() as u64
}

/// The words that a binary search among `count` ascending words reads if it ends at `last`.
fn probes(count: usize, last: usize) -> impl Iterator<Item = u64> {
    let (mut found, mut half) = (0, count / 2);
    std::iter::from_fn(move || {
        let next = (half > 0).then_some(found + half)?;
        if next <= last {
            found = next;
        }
        half /= 2;
        Some(next as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tembo_pmem::Region;
    use tembo_pool::{Geometry, Pool};

    #[test]
    fn the_way_to_a_key_is_in_dram_from_the_root_to_the_leaf() {
        let region = Region::simulated(&vec![0; 8 << 20], 8 << 20, None).unwrap();
        let geometry = Geometry { zone_chunks: 1 << 12, ..Geometry::default() };
        let tree = U64Tree::create(&Pool::create_in(region, &geometry).unwrap(), "tree").unwrap();
        (0..20_000).for_each(|key| assert_eq!(tree.put(key * 3, key).unwrap(), None));
        for key in [0, 1, 30_000, 59_997] {
            let way = tree.dram_way(key, DramAccess::Insert);
            let levels: Vec<u64> = way.iter().map(|node| node.level).collect();
            assert_eq!(levels, (0..way.len() as u64).rev().collect::<Vec<_>>());
            assert!(way.len() > 1);
            for node in &way {
                assert!(
                    node.reads
                        .iter()
                        .flatten()
                        .chain(&node.stores)
                        .all(|off| off % 8 == 0 && *off < node.bytes)
                );
                assert_eq!((node.children > 0, node.address % 64), (node.level > 0, 0));
            }
        }
        let [one, same, other] = [5, 6, 59_997].map(|key| tree.dram_way(key, DramAccess::Get));
        assert_eq!(one.last().unwrap().address, same.last().unwrap().address);
        assert_ne!(one.last().unwrap().address, other.last().unwrap().address);
        assert_eq!(one[0].address, other[0].address);
    }

    #[test]
    fn a_search_by_halves_looks_at_a_word_of_each_step() {
        assert_eq!(probes(16, 5).collect::<Vec<_>>(), [8, 4, 6, 5]);
        assert_eq!(probes(8, 0).collect::<Vec<_>>(), [4, 2, 1]);
    }
}
