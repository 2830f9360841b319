//! Threads that change a tree of byte strings beside each other.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_index::{WbTree, Writers};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

struct Trees {
    pool: Pool,
    writers: Writers,
    tree: WbTree,
}

impl Trees {
    /// A tree with this many writers.
    fn new(writers: usize) -> Trees {
        let region = Region::simulated(&vec![0; 8 << 20], 1 << 30, None).unwrap();
        let geometry = Geometry { zone_chunks: 1 << 12, ..Geometry::default() };
        let pool = Pool::create_in(region, &geometry).unwrap();
        let writers = {
            let first = Writers::new(pool.lane().unwrap());
            (1..writers).for_each(|_| assert!(first.add().unwrap()));
            first
        };
        let mut tx = writers.begin();
        let tree = WbTree::create(&mut tx, "tree").unwrap();
        tx.commit().unwrap();
        Trees { pool, writers, tree }
    }

    fn contents(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.tree.iter().map(|entry| entry.map(|e| (e.key().to_vec(), e.value().to_vec())).unwrap()).collect()
    }

    fn check(&self) {
        check(&self.pool, &[&self.tree]);
    }
}

fn check(pool: &Pool, trees: &[&WbTree]) {
    let mut marks = pool.marks().unwrap();
    trees.iter().for_each(|tree| tree.check(&mut marks).unwrap());
    marks.finish().unwrap();
}

/// Lanes 0 and 16 count in the same part of the length, which two writers must not do at once.
#[test]
fn lanes_that_share_a_part_of_the_length_lose_no_count() {
    let region = Region::simulated(&vec![0; 8 << 20], 1 << 30, None).unwrap();
    let geometry = Geometry { zone_chunks: 1 << 12, ..Geometry::default() };
    let pool = Pool::create_in(region, &geometry).unwrap();
    let writers = Writers::new(pool.lane().unwrap());
    let between: Vec<_> = (1..16).map(|_| pool.lane().unwrap()).collect();
    assert!(writers.add().unwrap());
    drop(between);
    let mut tx = writers.begin();
    let tree = WbTree::create(&mut tx, "tree").unwrap();
    // Many leaves, so that the writers seldom meet in one.
    (0..2000).for_each(|i| _ = tree.put(&mut tx, &key(i), &[]).unwrap());
    tx.commit().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let tree = tree.concurrent(&writers);
            scope.spawn(move || {
                for i in 0..40_000 {
                    let mine = key(2 * (i * 7 % 1000) + thread);
                    if i / 1000 % 2 == 0 {
                        tree.remove(&mine).unwrap()
                    } else {
                        tree.put(&mine, &[]).unwrap()
                    };
                }
            });
        }
    });
    assert_eq!(tree.len().unwrap(), tree.iter().count() as u64);
    check(&pool, &[&tree]);
}

/// The pool as it would be found after the process was killed now.
fn reopened(pool: &Pool) -> Pool {
    let region = pool.region();
    let words = (0..region.len() / 8).map(|i| region.load_u64(8 * i).unwrap());
    let image: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    Pool::open_in(Region::simulated(&image, image.len() as u64, None).unwrap()).unwrap()
}

/// Numbers that come in another order, so that neighbours belong to different threads.
fn key(i: u64) -> Vec<u8> {
    let mixed = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let long = if i.is_multiple_of(7) { 40 } else { 0 };
    [&b"k"[..], &mixed.to_be_bytes()[..3], &[b'x'; 40][..long], &i.to_be_bytes()].concat()
}

fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

const THREADS: u64 = 4;
const SHARED: u64 = 40;

/// The work of one thread: changes of its own keys, each compared with a model, and of keys that all share,
/// in which they count.
fn work(trees: &Trees, thread: u64, steps: u64, counted: &AtomicU64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let tree = trees.tree.concurrent(&trees.writers);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(thread);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for step in 0..steps {
        // Waves, so that leaves are filled, divided, emptied and joined.
        let grows = (step / 3000 + thread).is_multiple_of(2);
        let mine = key(random.random_range(0..1500) * THREADS + thread + SHARED);
        let value = random.random_range(0..1u64 << 40).to_le_bytes().to_vec();
        let old = model.get(&mine).cloned();
        match random.random_range(0..12) {
            0..4 if grows => {
                assert_eq!(tree.put(&mine, &[&value[..3], &value[3..]]).unwrap(), old.is_some());
                model.insert(mine, value);
            }
            0..4 => {
                assert_eq!(tree.remove(&mine).unwrap(), old.is_some());
                model.remove(&mine);
            }
            4 => {
                assert_eq!(tree.insert(&mine, &value).unwrap(), old.is_none());
                model.entry(mine).or_insert(value);
            }
            5 => {
                assert_eq!(tree.update(&mine, &value).unwrap(), old.is_some());
                model.entry(mine).and_modify(|v| *v = value);
            }
            6 => {
                let new = (grows || random.random_bool(0.3)).then_some(&value[..]);
                assert!(tree.compare_and_swap(&mine, old.as_deref(), new).unwrap());
                assert!(!tree.compare_and_swap(&mine, Some(b"never"), new).unwrap());
                match new {
                    Some(_) => _ = model.insert(mine, value),
                    None => _ = model.remove(&mine),
                }
            }
            7 => {
                let mut calls = 0;
                let change = |found: Option<&[u8]>| {
                    calls += 1;
                    assert_eq!(found, old.as_deref());
                    grows.then_some(&value[..])
                };
                assert_eq!(tree.modify(&mine, change).unwrap(), old.is_some());
                assert_eq!(calls, 1);
                if grows { _ = model.insert(mine, value) } else { _ = model.remove(&mine) }
            }
            8 => {
                let found = trees.tree.get_pinned(&mine).unwrap();
                assert_eq!(found.as_deref(), old.as_deref());
            }
            _ => {
                let shared = key(random.random_range(0..SHARED));
                tree.modify(&shared, |old| Some((number(old) + 1).to_le_bytes())).unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    model
}

#[test]
fn threads_with_keys_of_their_own_and_shared_ones_lose_nothing() {
    for writers in [4, 3] {
        let trees = Trees::new(writers);
        let counted = AtomicU64::new(0);
        let models: Vec<_> = std::thread::scope(|scope| {
            let (trees, counted) = (&trees, &counted);
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| scope.spawn(move || work(trees, thread, 30_000, counted)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        trees.check();
        let mut contents = trees.contents();
        let shared: u64 = (0..SHARED).map(|i| number(contents.remove(&key(i)).as_deref())).sum();
        assert_eq!(shared, counted.into_inner());
        assert_eq!(contents, models.into_iter().flatten().collect());
        assert_eq!(trees.tree.len().unwrap(), contents.len() as u64 + SHARED);
        // As it is on media after a crash, and after more changes by a single writer.
        let again = reopened(&trees.pool);
        let tree = WbTree::open(&again, "tree").unwrap().unwrap();
        check(&again, &[&tree]);
        let mut lane = again.lane().unwrap();
        for key in contents.keys() {
            let mut tx = lane.begin();
            assert!(tree.remove(&mut tx, key).unwrap());
            tx.commit().unwrap();
        }
        check(&again, &[&tree]);
        assert_eq!(tree.len().unwrap(), SHARED);
    }
}

#[test]
fn a_closure_that_writes_by_the_same_writers_is_refused_however_many_there_are() {
    // With several writers it got another lane, and waited for its own leaf or for the structure for ever.
    for writers in [1, 3] {
        let trees = Trees::new(writers);
        let beside = trees.tree.concurrent(&trees.writers);
        beside.put(b"k", &[b"1"]).unwrap();
        let refused = |outcome: tembo_index::Result<bool>| {
            assert!(matches!(outcome, Err(tembo_index::Error::WouldWait { .. })), "{outcome:?}");
        };
        beside
            .modify(b"k", |_| {
                for key in [&b"k"[..], b"another"] {
                    refused(beside.put(key, &[b"2"]));
                    refused(beside.insert(b"new", b"2"));
                    refused(beside.update(key, b"2"));
                    refused(beside.remove(key));
                    refused(beside.compare_and_swap(key, None, Some(b"2")));
                    refused(beside.modify(key, |_| Some(b"2")));
                    assert!(trees.writers.expect_other("the turn").is_err());
                }
                Some(b"3")
            })
            .unwrap();
        beside.put(b"k", &[b"4"]).unwrap();
        trees.check();
    }
}
