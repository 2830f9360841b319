//! The tree of fixed-size keys: against a model, by counts, and by several threads.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use tembo_index::{Error, U64Tree};
use tembo_pmem::{Region, snapshot};
use tembo_pool::{Geometry, Pool};

fn pool() -> Pool {
    let bytes = 8 << 20;
    let region = Region::simulated(&vec![0; bytes], 1 << 30, None).unwrap();
    Pool::create_in(region, &Geometry { zone_chunks: 1 << 12, ..Geometry::default() }).unwrap()
}

fn check(pool: &Pool, tree: &U64Tree) -> u64 {
    let mut marks = pool.marks().unwrap();
    let records = tree.check(&mut marks).unwrap();
    marks.finish().unwrap();
    records
}

/// Keys with the edges among them, and neighbours of each other.
fn random_key(rng: &mut Xoshiro256PlusPlus, spread: u64) -> u64 {
    match rng.random_range(0..20) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::MAX - 1,
        3 => 1,
        _ => rng.random_range(0..spread) << (rng.random_range(0..2) * 40),
    }
}

#[test]
fn agrees_with_a_model() {
    for seed in 0..6 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let pool = pool();
        let mut tree = U64Tree::create(&pool, "tree").unwrap();
        let mut model = BTreeMap::new();
        let spread = [300, 3000, 100_000][seed as usize % 3];
        for round in 0..40_000 {
            // Growing and shrinking by turns, so that nodes are divided and joined.
            let growing = round / 8000 % 2 == 0;
            let (key, value) = (random_key(&mut rng, spread), rng.random_range(0..4));
            match rng.random_range(0..if growing { 10 } else { 16 }) {
                0..4 => assert_eq!(tree.put(key, value).unwrap(), model.insert(key, value)),
                4..6 => {
                    let absent = !model.contains_key(&key);
                    assert_eq!(tree.insert(key, value).unwrap(), absent);
                    model.entry(key).or_insert(value);
                }
                6 => {
                    let old = model.get(&key).copied();
                    assert_eq!(tree.update(key, value).unwrap(), old);
                    model.entry(key).and_modify(|v| *v = value);
                }
                7 => {
                    let old = model.get(&key).copied();
                    assert_eq!(tree.compare_and_swap(key, 1, value).unwrap(), old);
                    model.entry(key).and_modify(|v| *v = if *v == 1 { value } else { *v });
                }
                _ => {
                    let victim = model.range(key..).next().map_or(key, |(key, _)| *key);
                    assert_eq!(tree.remove(victim).unwrap(), model.remove(&victim));
                }
            }
            assert_eq!(tree.get(key).unwrap(), model.get(&key).copied());
            if round % 200 == 0 {
                let limit = rng.random_range(0..300);
                let (mut up, mut down) = (Vec::new(), Vec::new());
                tree.scan(key, limit, &mut up).unwrap();
                assert!(up.iter().copied().eq(model.range(key..).take(limit).map(|(k, v)| (*k, *v))));
                tree.scan_back(key, limit, &mut down).unwrap();
                assert!(
                    down.iter().copied().eq(model.range(..=key).rev().take(limit).map(|(k, v)| (*k, *v)))
                );
            }
            if round % 4000 == 3999 {
                assert_eq!(check(&pool, &tree), model.len() as u64);
                assert!(tree.iter().map(Result::unwrap).eq(model.iter().map(|(k, v)| (*k, *v))));
                assert!(tree.iter().rev().map(Result::unwrap).eq(model.iter().rev().map(|(k, v)| (*k, *v))));
                assert_eq!(tree.first().unwrap(), model.first_key_value().map(|(k, v)| (*k, *v)));
                assert_eq!(tree.last().unwrap(), model.last_key_value().map(|(k, v)| (*k, *v)));
                drop(tree);
                tree = U64Tree::open(&pool, "tree").unwrap().unwrap();
            }
        }
    }
}

#[test]
fn ranges_keep_to_their_bounds_from_both_ends() {
    let pool = pool();
    let tree = U64Tree::create(&pool, "tree").unwrap();
    let keys: Vec<u64> = (0..1000).map(|i| i * 10).chain([u64::MAX - 1, u64::MAX]).collect();
    keys.iter().for_each(|key| assert!(tree.insert(*key, !key).unwrap()));
    let bounds = |key| [Bound::Included(key), Bound::Excluded(key), Bound::Unbounded];
    for low in [0, 5, 10, 5000, 9990, u64::MAX - 1, u64::MAX].into_iter().flat_map(bounds) {
        for high in [0, 1, 10, 4999, 5000, u64::MAX - 1, u64::MAX].into_iter().flat_map(bounds) {
            let range = (low, high);
            let expected: Vec<u64> =
                keys.iter().copied().filter(|key| std::ops::RangeBounds::contains(&range, key)).collect();
            let found: Vec<u64> = tree.range(range).map(|record| record.unwrap().0).collect();
            assert_eq!(found, expected, "{range:?}");
            // Taking turns at both ends meets every record once.
            let (mut both, mut records) = (Vec::new(), tree.range(range));
            while let Some(record) = if both.len() % 3 == 0 { records.next_back() } else { records.next() } {
                both.push(record.unwrap().0);
            }
            both.sort_unstable();
            assert_eq!(both, expected, "{range:?} from both ends");
        }
    }
    assert_eq!(tree.remove_range(100..200).unwrap(), 10);
    assert_eq!(tree.remove_range(..).unwrap(), keys.len() as u64 - 10);
    assert_eq!(tree.count().unwrap(), 0);
}

#[test]
fn a_tree_is_open_once_and_a_name_is_taken_once() {
    let pool = pool();
    assert!(U64Tree::open(&pool, "tree").unwrap().is_none());
    let tree = U64Tree::create(&pool, "tree").unwrap();
    assert!(matches!(U64Tree::open(&pool, "tree"), Err(Error::InUse)));
    assert!(matches!(U64Tree::create(&pool, "tree"), Err(Error::Exists { .. })));
    let clone = tree.clone();
    drop(tree);
    assert!(matches!(U64Tree::open(&pool, "tree"), Err(Error::InUse)));
    drop(clone);
    assert!(U64Tree::open(&pool, "tree").unwrap().is_some());
    assert_eq!(U64Tree::names(&pool).unwrap(), ["tree"]);
}

fn mix(i: u64) -> u64 {
    let i = (i ^ i >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (i ^ i >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

#[test]
fn golden_counts() {
    let pool = pool();
    let tree = U64Tree::create(&pool, "tree").unwrap();
    let (n, start) = (100_000, snapshot());
    (0..n).for_each(|i| assert!(tree.insert(mix(i), i).unwrap()));
    let inserts = snapshot() - start;
    let (lines, fences) = (inserts.lines as f64 / n as f64, inserts.fences as f64 / n as f64);
    println!("insert: {lines} lines, {fences} fences, {} words", inserts.words as f64 / n as f64);
    assert!(
        lines <= 1.3 && fences <= 1.03,
        "{lines} lines, {fences} fences per insertion, divisions included"
    );
    let before = snapshot();
    (0..n).for_each(|i| assert_eq!(tree.get(mix(i)).unwrap(), Some(i)));
    tree.iter().for_each(|record| _ = record.unwrap());
    assert!(!tree.insert(mix(7), 1).unwrap());
    assert_eq!(tree.remove(7).unwrap(), None);
    let free = snapshot() - before;
    assert_eq!((free.lines, free.fences, free.words), (0, 0, 0), "reading, and changing nothing");
    let before = snapshot();
    (0..n).for_each(|i| assert_eq!(tree.put(mix(i), 1).unwrap(), Some(i)));
    let updates = snapshot() - before;
    assert_eq!((updates.lines, updates.fences, updates.words), (n, n, n), "one of each per update");
    let before = snapshot();
    // Few enough that no leaf becomes sparse.
    (0..n / 3).for_each(|i| assert_eq!(tree.remove(mix(i)).unwrap(), Some(1)));
    let removals = snapshot() - before;
    assert_eq!(
        (removals.lines, removals.fences, removals.words),
        (n / 3, n / 3, n / 3),
        "one of each per removal"
    );
}

/// Every thread changes keys of its own among everybody's, and keeps a model of them; readers scan meanwhile.
#[test]
fn threads_do_not_disturb_each_other() {
    let pool = pool();
    let tree = U64Tree::create(&pool, "tree").unwrap();
    let threads = 4;
    let models: Vec<BTreeMap<u64, u64>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let tree = tree.clone();
                scope.spawn(move || {
                    let mut rng = Xoshiro256PlusPlus::seed_from_u64(thread);
                    let mut model = BTreeMap::new();
                    for round in 0..60_000u64 {
                        let key = rng.random_range(0..2000) * threads + thread;
                        let remove = if round / 15_000 % 2 == 0 { 0.2 } else { 0.8 };
                        if rng.random_bool(remove) {
                            assert_eq!(tree.remove(key).unwrap(), model.remove(&key));
                        } else {
                            assert_eq!(tree.put(key, round).unwrap(), model.insert(key, round));
                        }
                        let key = rng.random_range(0..2000) * threads + thread;
                        assert_eq!(tree.get(key).unwrap(), model.get(&key).copied());
                    }
                    model
                })
            })
            .collect();
        let reader = tree.clone();
        scope.spawn(move || {
            for round in 0..2000 {
                let mut records = Vec::new();
                reader.scan(round * 3, 200, &mut records).unwrap();
                assert!(records.is_sorted_by(|a, b| a.0 < b.0) && records.iter().all(|r| r.0 >= round * 3));
            }
        });
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let merged: BTreeMap<u64, u64> = models.into_iter().flatten().collect();
    assert_eq!(check(&pool, &tree), merged.len() as u64);
    assert!(tree.iter().map(Result::unwrap).eq(merged));
}

/// Leaves below many nodes and below one are divided at once, and nodes above are made anew now and then.
#[test]
fn threads_divide_leaves_beside_each_other() {
    const THREADS: u64 = 4;
    const EACH: u64 = 40_000;
    let key_of: [fn(u64, u64) -> u64; 3] = [
        |thread, i| (i * THREADS + thread).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        |thread, i| i * THREADS + thread,
        |thread, i| (thread << 32) - i,
    ];
    for key_of in key_of {
        let pool = pool();
        let tree = U64Tree::create(&pool, "tree").unwrap();
        std::thread::scope(|scope| {
            for thread in 1..=THREADS {
                let tree = &tree;
                scope.spawn(move || {
                    for i in 0..EACH {
                        assert!(tree.insert(key_of(thread, i), i).unwrap());
                        // Others divide leaves to the left and to the right of it.
                        let before = key_of(thread, i / 2);
                        assert_eq!(tree.get(before).unwrap(), Some(i / 2), "{before} after {i}");
                    }
                });
            }
        });
        assert_eq!(check(&pool, &tree), THREADS * EACH);
        let mut expected: Vec<(u64, u64)> =
            (1..=THREADS).flat_map(|thread| (0..EACH).map(move |i| (key_of(thread, i), i))).collect();
        expected.sort_unstable();
        assert!(tree.iter().map(Result::unwrap).eq(expected));
    }
}

/// A writer raises all values by one, over and over, in the order of the keys. So at any moment the values
/// descend, by one in all. It goes on until long scans have ended, however many tries they take.
#[test]
fn long_scans_end_although_writers_never_rest_and_show_one_moment() {
    const KEYS: u64 = 3000;
    let pool = pool();
    let tree = U64Tree::create(&pool, "tree").unwrap();
    (0..KEYS).for_each(|key| assert_eq!(tree.put(key, 0).unwrap(), None));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                for key in 0..KEYS {
                    assert_eq!(tree.put(key, round).unwrap(), Some(round - 1));
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        });
        while tree.get(0).unwrap() == Some(0) {
            std::thread::yield_now();
        }
        for scan in 0..40 {
            let mut records = Vec::new();
            let all = KEYS as usize;
            if scan % 2 == 0 {
                tree.scan(0, all, &mut records).unwrap();
            } else {
                tree.scan_back(KEYS, all, &mut records).unwrap();
                records.reverse();
            }
            assert!(records.iter().map(|(key, _)| *key).eq(0..KEYS));
            let values: Vec<u64> = records.iter().map(|(_, value)| *value).collect();
            assert!(values.is_sorted_by(|a, b| a >= b), "{values:?}");
            assert!(values[0] - values[all - 1] <= 1);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(check(&pool, &tree), KEYS);
}
