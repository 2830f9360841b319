//! Trees that count, against a model: ranks and numbered records after every kind of change.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::ops::Bound;
use tembo_index::{Counting, Error, WbTree, Writers};
use tembo_pool::{Options, Pool, Tx};

type Model = BTreeMap<Vec<u8>, u32>;

fn pool() -> (tempfile::TempDir, Pool) {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::new();
    options.create = true;
    let pool = Pool::open(folder.path().join("pool"), &options).unwrap();
    (folder, pool)
}

fn create(writers: &Writers, name: &str, counting: Counting) -> WbTree {
    let mut tx = writers.begin();
    let tree = WbTree::create_counting(&mut tx, name, counting).unwrap();
    tx.commit().unwrap();
    tree
}

fn weight(counting: Counting, weight: u32) -> u64 {
    if counting == Counting::Weights { weight.into() } else { 1 }
}

/// The rank of some keys, there or not, and the records with their numbers.
fn check_ranks(tree: &WbTree, tx: &Tx<'_>, model: &Model, probes: impl Iterator<Item = Vec<u8>>) {
    let counting = tree.counting();
    let rank = |key: &[u8]| -> u64 {
        let smaller = (Bound::Unbounded, Bound::Excluded(key));
        model.range::<[u8], _>(smaller).map(|(_, its)| weight(counting, *its)).sum()
    };
    let all: u64 = model.values().map(|its| weight(counting, *its)).sum();
    assert_eq!(tree.tally_in(tx).unwrap(), all);
    assert_eq!(tree.nth_in(tx, all).unwrap(), None);
    for probe in probes {
        let expected = rank(&probe);
        assert_eq!(tree.rank_in(tx, &probe).unwrap(), expected, "{probe:?}");
        let next = model.range(probe..).find(|(_, its)| weight(counting, **its) > 0);
        let found = tree.nth_in(tx, expected).unwrap();
        assert_eq!(found.map(|found| (found.key, found.rank)), next.map(|(key, _)| (&key[..], rank(key))));
        let Some((key, its)) = next else { continue };
        let last = tree.nth_in(tx, expected + weight(counting, *its) - 1).unwrap().unwrap();
        assert_eq!((last.key, &last.value[..4]), (&key[..], &its.to_le_bytes()[..]));
    }
}

#[test]
fn ranks_are_those_of_an_ordered_map() {
    for (seed, counting) in [(1, Counting::Records), (2, Counting::Weights), (3, Counting::Weights)] {
        let (_folder, pool) = pool();
        let writers = Writers::new(pool.lane().unwrap());
        let mut tree = create(&writers, "tree", counting);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut model = Model::new();
        for round in 0..120 {
            let mut tx = writers.begin();
            let before = (tx.savepoint(), model.clone());
            change(&tree, &mut tx, &mut model, round, &mut rng);
            check_ranks(&tree, &tx, &model, (0..20).map(|_| random_key(&mut rng)));
            match round % 7 {
                5 => {
                    tx.rollback_to(before.0);
                    model = before.1;
                    check_ranks(&tree, &tx, &model, (0..3).map(|_| random_key(&mut rng)));
                }
                6 => {
                    drop(tx);
                    model = before.1;
                    continue;
                }
                _ => {}
            }
            tx.commit().unwrap();
            check(&pool, &tree);
            tree = WbTree::open(&pool, "tree").unwrap().unwrap();
            assert_eq!(tree.counting(), counting);
        }
        assert!(!model.is_empty());
        ranks_begin_anew_after_clearing(&pool, &writers, &tree);
    }
}

fn random_key(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    rng.random_range(0..20_000u32).to_string().into_bytes()
}

/// A round of changes. The first 60 let the tree grow to three levels, and the others shrink it again.
fn change(tree: &WbTree, tx: &mut Tx<'_>, model: &mut Model, round: usize, rng: &mut Xoshiro256PlusPlus) {
    let inclination = if round < 60 { 0.9 } else { 0.2 };
    for _ in 0..200 {
        let key = random_key(rng);
        if rng.random_bool(inclination) {
            // Some weigh nothing.
            let weight: u32 = rng.random_range(0..5) * rng.random_range(1..100);
            tree.put(tx, &key, &[&weight.to_le_bytes(), &vec![7; round % 40]]).unwrap();
            model.insert(key, weight);
        } else {
            assert_eq!(tree.remove(tx, &key).unwrap(), model.remove(&key).is_some());
        }
    }
    if round % 4 == 3 {
        let mut keys: Vec<_> = (0..rng.random_range(0..400)).map(|_| random_key(rng)).collect();
        keys.sort();
        let weight: u32 = rng.random_range(0..9);
        let names = keys.iter().map(Vec::as_slice);
        tree.put_many_without_undo(tx, names, |_, _| Some(weight.to_le_bytes())).unwrap();
        model.extend(keys.into_iter().map(|key| (key, weight)));
    }
    if round % 10 == 9 {
        let (low, high) = (random_key(rng), random_key(rng));
        let high = if high < low { low.clone() } else { high };
        tree.remove_range::<Vec<u8>>(tx, &low..&high).unwrap();
        model.retain(|key, _| *key < low || *key >= high);
    }
}

fn ranks_begin_anew_after_clearing(pool: &Pool, writers: &Writers, tree: &WbTree) {
    let mut tx = writers.begin();
    tree.clear(&mut tx).unwrap();
    tree.put(&mut tx, b"x", &[&[3, 0, 0, 0]]).unwrap();
    let one = Model::from([(b"x".to_vec(), 3)]);
    check_ranks(tree, &tx, &one, [b"a".to_vec(), b"x".to_vec(), b"z".to_vec()].into_iter());
    while tree.reclaim(&mut tx, 100).unwrap() {}
    tx.commit().unwrap();
    check(pool, tree);
}

fn check(pool: &Pool, tree: &WbTree) {
    let mut marks = pool.marks().unwrap();
    tree.check(&mut marks).unwrap();
    marks.finish().unwrap();
}

#[test]
fn threads_that_write_to_a_tree_that_counts_take_turns() {
    let (_folder, pool) = pool();
    let writers = Writers::new(pool.lane().unwrap());
    let tree = create(&writers, "tree", Counting::Records);
    std::thread::scope(|scope| {
        for start in 0..3u32 {
            let (tree, writers) = (&tree, &writers);
            scope.spawn(move || {
                let tree = tree.concurrent(writers);
                for i in (start..3000).step_by(3) {
                    tree.put(&i.to_be_bytes(), &[b"value"]).unwrap();
                    if i % 2 == 0 {
                        assert!(tree.remove(&i.to_be_bytes()).unwrap());
                    }
                }
            });
        }
    });
    let tx = writers.begin();
    assert_eq!(tree.tally_in(&tx).unwrap(), 1500);
    assert_eq!(tree.rank_in(&tx, &1000u32.to_be_bytes()).unwrap(), 500);
    drop(tx);
    tree.check(&mut pool.marks().unwrap()).unwrap();
}

#[test]
fn errors_say_what_is_missing() {
    let (_folder, pool) = pool();
    let writers = Writers::new(pool.lane().unwrap());
    let plain = create(&writers, "plain", Counting::Nothing);
    let weights = create(&writers, "weights", Counting::Weights);
    let mut tx = writers.begin();
    assert!(matches!(plain.rank_in(&tx, b"a"), Err(Error::CountsNothing)));
    assert!(matches!(plain.nth_in(&tx, 0), Err(Error::CountsNothing)));
    let e = weights.put(&mut tx, b"key", &[b"abc"]).unwrap_err();
    assert!(matches!(e, Error::ValueTooShort { bytes: 3, min_bytes: 4 }), "{e}");
    assert_eq!(weights.tally_in(&tx).unwrap(), 0);
    tx.commit().unwrap();
}
