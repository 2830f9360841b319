//! Every solution is an ordered map: against `BTreeMap`, with all node sizes and kinds of keys.

mod common;

use common::{Draw, memory};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use tembo_bench::mem::Mem;
use tembo_bench::trees::{
    Config, Fixed, KeyKind, Scheme, Solution, Text, Tree, TreeError, Visitor, all, named,
};

const MEMORY_BYTES: u64 = 2 << 20;

/// Random operations on a tree and a model.
struct Conform<K> {
    config: Config,
    seed: u64,
    ops: u64,
    keys: PhantomData<K>,
}

struct Pair<K: KeyKind, S> {
    tree: Tree<tembo_bench::mem::RealMem, K, S>,
    model: BTreeMap<K::Owned, u64>,
    rng: Xoshiro256PlusPlus,
}

impl<K: Draw, S: Scheme> Pair<K, S> {
    /// One operation; `inclination` is the share of insertions among changes.
    fn step(&mut self, range: u64, inclination: f64) {
        let key = K::draw(&mut self.rng, range);
        let value = self.rng.random();
        match self.rng.random_range(0..10) {
            0 => assert_eq!(self.tree.get(K::key(&key)), self.model.get(&key).copied(), "get {key:?}"),
            1 => {
                let old = self.tree.update(K::key(&key), value).unwrap();
                assert_eq!(old, self.model.get(&key).copied(), "update {key:?}");
                self.model.entry(key).and_modify(|v| *v = value);
            }
            2 => self.scan(&key),
            _ if self.rng.random_bool(inclination) => {
                let is_new = !self.model.contains_key(&key);
                assert_eq!(self.tree.insert(K::key(&key), value).unwrap(), is_new, "insert {key:?}");
                self.model.entry(key).or_insert(value);
            }
            _ => {
                let old = self.tree.remove(K::key(&key)).unwrap();
                assert_eq!(old, self.model.remove(&key), "remove {key:?}");
            }
        }
    }

    fn scan(&mut self, from: &K::Owned) {
        let limit = self.rng.random_range(0..40);
        let mut found = Vec::new();
        let visited = self.tree.scan(K::key(from), limit, |mem, key, value| {
            found.push((K::owned(mem, key), value));
            true
        });
        let expected: Vec<_> =
            self.model.range(from.clone()..).take(limit).map(|(k, v)| (k.clone(), *v)).collect();
        assert_eq!((visited, found), (expected.len(), expected), "scan from {from:?}");
    }

    fn compare(&self) {
        let reached = self.tree.check().unwrap();
        assert_eq!(reached.entry_count, self.model.len() as u64);
        let expected: Vec<_> = self.model.iter().map(|(k, v)| (k.clone(), *v)).collect();
        assert_eq!(self.tree.entries(), expected);
    }
}

impl<K: Draw> Visitor for Conform<K> {
    type Output = ();

    fn visit<S: Scheme>(self) {
        let Conform { config, seed, ops, .. } = self;
        println!("{}, {config:?}, seed {seed}", S::NAME);
        let tree = Tree::<_, K, S>::create(memory(MEMORY_BYTES), config).unwrap();
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pair = Pair { tree, model: BTreeMap::new(), rng };
        // Grow, stay, shrink to nothing, grow again.
        for (range, inclination) in [(600, 0.9), (600, 0.5), (600, 0.1), (40, 0.1), (40, 0.6), (900, 0.8)] {
            for _ in 0..ops / 6 {
                pair.step(range, inclination);
            }
            pair.compare();
            if S::PERSISTENT {
                let mem = pair.tree.into_mem();
                pair.tree = Tree::open(mem, config).unwrap();
                pair.compare();
            }
        }
        for key in pair.model.keys().cloned().collect::<Vec<_>>() {
            assert_eq!(pair.tree.remove(K::key(&key)).unwrap(), pair.model.remove(&key));
        }
        pair.compare();
        assert_eq!(pair.tree.levels(), 0, "an empty tree is a leaf");
    }
}

fn conform<K: Draw>(solution: &Solution, node_lines: u64, seed: u64, ops: u64) {
    let config = Config { node_lines, log_bytes: Some(64 << 10) };
    solution.visit(Conform::<K> { config, seed, ops, keys: PhantomData });
}

#[test]
fn every_solution_is_an_ordered_map_with_every_node_size() {
    for solution in all() {
        // The paper has wB+-Trees of 2 lines with slots only, and those with no other size; here they all
        // have any.
        for lines in 2..=16 {
            conform::<Fixed<u64>>(solution, lines, lines, 6000);
        }
    }
}

#[test]
fn every_solution_takes_byte_strings() {
    for solution in all() {
        for lines in [2, 3, 8, 16].into_iter().filter(|lines| solution.supports(*lines)) {
            conform::<Text>(solution, lines, 100 + lines, 4000);
        }
    }
}

#[test]
fn every_solution_takes_fixed_keys_of_other_types() {
    for solution in all() {
        for lines in [2, 3, 8, 16].into_iter().filter(|lines| solution.supports(*lines)) {
            conform::<Fixed<i64>>(solution, lines, 200 + lines, 2000);
            // Entries of such keys fill nodes of more lines.
            let lines = if solution.supports(3) { lines } else { 4 };
            conform::<Fixed<u128>>(solution, lines, 300 + lines, 2000);
            conform::<Fixed<[u8; 24]>>(solution, lines, 400 + lines, 2000);
        }
    }
}

/// Bulk loads, then compares.
struct Load {
    count: u64,
    fill: f64,
    lines: u64,
}

impl Visitor for Load {
    type Output = ();

    fn visit<S: Scheme>(self) {
        let sorted: Vec<(u64, u64)> = (0..self.count).map(|i| (3 * i, i)).collect();
        let tree = Tree::<_, Fixed<u64>, S>::bulk_load(
            memory(MEMORY_BYTES),
            Config::lines(self.lines),
            self.fill,
            sorted.iter().copied(),
        );
        let mut tree = tree.unwrap();
        let reached = tree.check().unwrap();
        assert_eq!(tree.entries(), sorted);
        let per_leaf = ((tree.leaf_capacity() as f64 * self.fill) as u64).max(1);
        assert_eq!(reached.leaves.len() as u64, self.count.div_ceil(per_leaf).max(1), "{}", S::NAME);
        for (key, value) in [(1, 7), (0, 8)] {
            let was_absent = self.count == 0 || key % 3 != 0;
            assert_eq!(tree.insert(key, value).unwrap(), was_absent);
        }
        tree.check().unwrap();
    }
}

#[test]
fn bulk_loading_fills_leaves_as_asked() {
    for solution in all() {
        for lines in [2, 8].into_iter().filter(|lines| solution.supports(*lines)) {
            for (count, fill) in [(0, 1.0), (1, 0.7), (1000, 1.0), (1000, 0.7), (999, 0.01)] {
                solution.visit(Load { count, fill, lines });
            }
        }
    }
}

/// Fills a small memory, empties it, and fills it again as far.
struct Fill;

impl Visitor for Fill {
    type Output = ();

    fn visit<S: Scheme>(self) {
        let config = Config {
            node_lines: if S::NAME.contains("slot-only") { 2 } else { 4 },
            log_bytes: Some(24 << 10),
        };
        let mut tree = Tree::<_, Text, S>::create(memory(96 << 10), config).unwrap();
        let key = |i: u64| format!("key {:016x}", i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes();
        let mut counts = Vec::new();
        for _ in 0..3 {
            let fits = |i: &u64| match tree.insert(&key(*i), *i) {
                Ok(is_new) => is_new,
                Err(error) => {
                    assert_eq!(error, TreeError::Full);
                    false
                }
            };
            let count = (0..10_000).take_while(fits).count() as u64;
            tree.check().unwrap();
            assert_eq!(tree.get(&key(count)), None);
            for i in 0..count {
                assert_eq!(tree.remove(&key(i)), Ok(Some(i)), "{} {i} of {count}", S::NAME);
            }
            tree.check().unwrap();
            counts.push(count);
        }
        assert!(counts[0] > 100, "{}: {counts:?}", S::NAME);
        assert!(counts[2] * 10 >= counts[0] * 9, "{}: space is lost: {counts:?}", S::NAME);
    }
}

#[test]
fn a_full_memory_is_an_error_and_space_comes_back() {
    all().iter().for_each(|solution| solution.visit(Fill));
}

#[test]
fn what_is_not_this_tree_is_told_apart() {
    type Wb = Tree<tembo_bench::mem::RealMem, Fixed<u64>, tembo_bench::trees::WbTree>;
    type Log = Tree<tembo_bench::mem::RealMem, Fixed<u64>, tembo_bench::trees::BtreeLog>;
    let tree = Wb::create(memory(1 << 20), Config::lines(8)).unwrap();
    let is_other = |error: TreeError| matches!(error, TreeError::NotThisTree { .. });
    let mem = tree.into_mem();
    let copy = || {
        let copy = memory(1 << 20);
        (0..1 << 17).for_each(|i| copy.store_u64(8 * i, mem.load_u64(8 * i)));
        copy
    };
    Wb::open(copy(), Config::lines(8)).unwrap();
    assert!(is_other(Wb::open(copy(), Config::lines(4)).unwrap_err()));
    assert!(is_other(Log::open(copy(), Config::lines(8)).unwrap_err()));
    assert!(is_other(Wb::open(memory(1 << 20), Config::lines(8)).unwrap_err()));
    assert!(matches!(
        Wb::create(memory(1 << 20), Config::lines(1)),
        Err(TreeError::NodeSize { node_lines: 1, .. })
    ));
    let unsorted = Wb::bulk_load(memory(1 << 20), Config::lines(8), 1.0, [(2, 0), (1, 0)]);
    assert_eq!(unsorted.err(), Some(TreeError::NotAscending { number: 1 }));
    let small =
        Log::create(memory(1 << 20), Config { node_lines: 8, log_bytes: Some(1024) }).unwrap().insert(1, 1);
    assert!(matches!(small, Err(TreeError::LogTooSmall { needed_bytes, .. }) if needed_bytes > 1024));
}

#[test]
fn names_are_unique_and_found() {
    for solution in all() {
        assert_eq!(named(solution.name), Some(solution));
    }
    assert_eq!((all().len(), named("no such tree")), (10, None));
}
