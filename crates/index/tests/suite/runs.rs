//! Many keys that are put together, against a model.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use tembo_index::{Error, WbTree};
use tembo_pmem::{Region, snapshot};
use tembo_pool::{Geometry, Lane, Pool, Tx};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

struct Bench {
    pool: Pool,
    lane: Lane,
    tree: WbTree,
}

impl Bench {
    fn new() -> Bench {
        let region = Region::simulated(&vec![0; 1 << 20], 1 << 28, None).unwrap();
        let geometry = Geometry { zone_chunks: 1 << 10, lane_count: 2, ..Geometry::default() };
        let pool = Pool::create_in(region, &geometry).unwrap();
        let mut lane = pool.lane().unwrap();
        let mut tx = lane.begin();
        let tree = WbTree::create(&mut tx, "tree").unwrap();
        tx.commit().unwrap();
        Bench { pool, lane, tree }
    }

    fn compare(&self, model: &Model) {
        let mut marks = self.pool.marks().unwrap();
        self.tree.check(&mut marks).unwrap();
        marks.finish().unwrap();
        let mut walk = self.tree.iter();
        for (key, value) in model {
            assert_eq!(walk.advance().unwrap(), Some((&key[..], &value[..])));
        }
        assert_eq!(walk.advance().unwrap(), None);
        assert_eq!(self.tree.len().unwrap(), model.len() as u64);
    }
}

/// Keys of a family: short ones, ones that share long prefixes, ones that need blocks for separators, and
/// ones that begin with each other.
fn random_key(rng: &mut Xoshiro256PlusPlus, family: usize) -> Vec<u8> {
    let number: u32 = rng.random_range(0..6000);
    match family {
        0 => number.to_be_bytes().to_vec(),
        1 => [vec![b'x'; 40], number.wrapping_mul(2_654_435_761).to_be_bytes().to_vec()].concat(),
        2 => {
            [vec![(number % 7) as u8; 30], (number % 3).to_be_bytes().to_vec(), number.to_be_bytes().to_vec()]
                .concat()
        }
        _ => vec![b'k'; number as usize % 90].into_iter().chain((number / 90).to_be_bytes()).collect(),
    }
}

/// Puts many keys, in order or not, and lets some of them be as they are.
fn put_many(tree: &WbTree, tx: &mut Tx<'_>, model: &mut Model, rng: &mut Xoshiro256PlusPlus, family: usize) {
    let count = [3, 40, 600][rng.random_range(0..3)];
    let mut keys: Vec<_> = (0..count).map(|_| random_key(rng, family)).collect();
    if rng.random_bool(0.8) {
        keys.sort();
    }
    let values: Vec<_> = (0..count).map(|i| (i % 5 > 0).then(|| vec![i as u8; i % 30])).collect();
    let mut next = 0;
    let names = keys.iter().map(Vec::as_slice);
    let decide = |number: usize, old: Option<&[u8]>| {
        assert_eq!(number, next);
        next += 1;
        assert_eq!(old, model.get(&keys[number]).map(Vec::as_slice));
        let value = values[number].clone()?;
        model.insert(keys[number].clone(), value.clone());
        Some(value)
    };
    tree.put_many_without_undo(tx, names, decide).unwrap();
    assert_eq!(next, keys.len());
}

#[test]
fn many_keys_get_what_single_ones_would() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut bench, mut model) = (Bench::new(), Model::new());
        for round in 0..40 {
            let mut tx = bench.lane.begin();
            let before = (tx.savepoint(), model.clone());
            for _ in 0..rng.random_range(1..4) {
                put_many(&bench.tree, &mut tx, &mut model, &mut rng, seed as usize % 4);
                for _ in 0..rng.random_range(0..[10, 300][round % 2]) {
                    let key = random_key(&mut rng, seed as usize % 4);
                    assert_eq!(bench.tree.remove(&mut tx, &key).unwrap(), model.remove(&key).is_some());
                }
            }
            match round % 6 {
                3 => {
                    tx.rollback_to(before.0);
                    model = before.1;
                    put_many(&bench.tree, &mut tx, &mut model, &mut rng, seed as usize % 4);
                    tx.commit().unwrap();
                }
                4 => {
                    drop(tx);
                    model = before.1;
                }
                _ => tx.commit().unwrap(),
            }
            bench.compare(&model);
        }
        assert!(model.len() > 100);
    }
}

/// One call makes 125 leaves, and two levels over them.
#[test]
fn a_run_makes_as_many_levels_as_it_takes() {
    for family in 1..3 {
        let (mut bench, mut rng) = (Bench::new(), Xoshiro256PlusPlus::seed_from_u64(7));
        let model: Model = (0..5000).map(|_| (random_key(&mut rng, family), vec![])).collect();
        assert!(model.len() > 3000);
        for _ in 0..2 {
            let mut tx = bench.lane.begin();
            let names = model.keys().map(Vec::as_slice);
            bench.tree.put_many_without_undo(&mut tx, names, |_, _| Some([])).unwrap();
            tx.commit().unwrap();
            bench.compare(&model);
        }
    }
}

#[test]
fn a_key_that_is_too_long_ends_the_call_and_the_caller_rolls_back() {
    let mut bench = Bench::new();
    let mut tx = bench.lane.begin();
    tx.commit_and_begin().unwrap();
    let (before, long) = (tx.savepoint(), vec![b'k'; 70_000]);
    let keys = [&b"a"[..], b"b", &long];
    let outcome = bench.tree.put_many_without_undo(&mut tx, keys, |_, _| Some(b"v"));
    assert!(matches!(outcome, Err(Error::KeyTooLong { .. })), "{outcome:?}");
    tx.rollback_to(before);
    tx.commit().unwrap();
    bench.compare(&Model::new());
}

/// Counts, not times: neighbours share the words of their leaf.
#[test]
fn neighbours_write_fewer_lines_together_than_one_by_one() {
    let key = |i: u32| [vec![b'x'; 12], i.to_be_bytes().to_vec()].concat();
    let lines = |together: bool, extra: std::ops::Range<u32>| {
        let mut bench = Bench::new();
        let mut tx = bench.lane.begin();
        (0..3000).for_each(|i| _ = bench.tree.put(&mut tx, &key(10 * i), &[]).unwrap());
        tx.commit().unwrap();
        let keys: Vec<_> = extra.map(key).collect();
        let before = snapshot();
        let mut tx = bench.lane.begin();
        if together {
            let names = keys.iter().map(Vec::as_slice);
            bench.tree.put_many_without_undo(&mut tx, names, |_, _| Some([])).unwrap();
        } else {
            keys.iter().for_each(|key| _ = bench.tree.put(&mut tx, key, &[]).unwrap());
        }
        tx.commit().unwrap();
        (snapshot() - before).lines
    };
    let (one_by_one, together) = (lines(false, 10_000..12_000), lines(true, 10_000..12_000));
    assert!(together * 10 < one_by_one * 9, "{together} lines together, {one_by_one} one by one");
    println!("{together} lines together, {one_by_one} one by one");
}
