//! Trees as parts of a transaction: all or nothing, changes that fail, and savepoints, against a
//! `BTreeMap`; and what clearing costs.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use tembo_index::{Error, VersionedPart, VersionedSnapshot, VersionedTree};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Lane, Pool, Tx};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn new_pool(bytes: usize) -> Pool {
    let region = Region::simulated(&vec![0; bytes], 1 << 30, None).unwrap();
    Pool::create_in(region, &Geometry { zone_chunks: 1 << 12, ..Geometry::default() }).unwrap()
}

fn check(pool: &Pool, trees: &[&VersionedTree]) {
    let mut marks = pool.marks().unwrap();
    trees.iter().for_each(|tree| _ = tree.check(&mut marks).unwrap());
    marks.finish().unwrap();
}

fn contents(snapshot: &VersionedSnapshot) -> Model {
    let entries = snapshot.iter().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.key().to_vec(), entry.value().to_vec())).collect()
}

fn random_key(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    match rng.random_range(0..300) {
        i @ 0..100 => format!("a longer key {i}").into_bytes(),
        i => vec![i as u8; 1 + i as usize % 3],
    }
}

/// A change of a part and its model, which has to say the same.
fn change(
    part: &mut VersionedPart,
    tx: &mut Tx<'_>,
    savepoint: u64,
    model: &mut Model,
    rng: &mut Xoshiro256PlusPlus,
) {
    let key = random_key(rng);
    let bytes = [3, 8, 40, 900][rng.random_range(0..4)];
    let value = vec![rng.random(); bytes];
    assert_eq!(part.get(tx, &key).unwrap(), model.get(&key).map(Vec::as_slice));
    match rng.random_range(0..40) {
        0..16 => {
            let parts = [&value[..1], &value[1..]];
            let was_there = part.put(tx, savepoint, &key, &parts).unwrap();
            assert_eq!(was_there, model.insert(key, value).is_some());
        }
        16..26 => {
            let was_there = part.remove(tx, savepoint, &key).unwrap();
            assert_eq!(was_there, model.remove(&key).is_some());
        }
        kind @ 26..34 => change_what_is_there(part, tx, savepoint, model, (key, value), kind),
        34 => assert_eq!(part.pop_first(tx, savepoint).unwrap(), model.pop_first()),
        35 => assert_eq!(part.pop_last(tx, savepoint).unwrap(), model.pop_last()),
        36 => {
            let mut end = key.clone();
            end.push(9);
            let gone: Vec<_> = model.range(key.clone()..=end.clone()).map(|(key, _)| key.clone()).collect();
            gone.iter().for_each(|key| _ = model.remove(key));
            assert_eq!(part.remove_range(tx, savepoint, key..=end).unwrap(), gone.len() as u64);
        }
        37 => _ = part.reclaim(tx, savepoint, 5).unwrap(),
        38 if rng.random_bool(0.5) => {
            part.clear(tx, savepoint).unwrap();
            model.clear();
        }
        _ => {
            let long = vec![0; tembo_index::MAX_KEY_BYTES as usize + 1];
            assert!(matches!(part.put(tx, savepoint, &long, &[b""]), Err(Error::KeyTooLong { .. })));
        }
    }
    assert_eq!(part.len().unwrap(), model.len() as u64);
}

/// The changes that depend on what the key has.
fn change_what_is_there(
    part: &mut VersionedPart,
    tx: &mut Tx<'_>,
    savepoint: u64,
    model: &mut Model,
    (key, value): (Vec<u8>, Vec<u8>),
    kind: u32,
) {
    match kind {
        26..28 => {
            let inserts = part.insert(tx, savepoint, &key, &value).unwrap();
            assert_eq!(inserts, !model.contains_key(&key));
            model.entry(key).or_insert(value);
        }
        28..30 => {
            let updates = part.update(tx, savepoint, &key, &value).unwrap();
            assert_eq!(updates, model.contains_key(&key));
            model.entry(key).and_modify(|old| *old = value);
        }
        30..32 => {
            let old = model.get(&key).cloned();
            assert!(part.compare_and_swap(tx, savepoint, &key, old.as_deref(), Some(&value)).unwrap());
            model.insert(key, value);
        }
        _ => {
            let longer = |old: Option<&[u8]>| Some([old.unwrap_or_default(), b"!"].concat());
            part.modify(tx, savepoint, &key, longer).unwrap();
            model.entry(key).or_default().push(b'!');
        }
    }
}

/// Changes both parts, and takes some of it back.
fn change_both(
    parts: &mut [VersionedPart; 2],
    tx: &mut Tx<'_>,
    models: &mut [Model; 2],
    rng: &mut Xoshiro256PlusPlus,
) {
    // The models at each savepoint, which is numbered by the changes before it.
    let mut savepoints: Vec<(tembo_pool::Savepoint, u64, [Model; 2])> = Vec::new();
    let (mut changes, mut last) = (0, 0);
    for _ in 0..rng.random_range(0..80) {
        match rng.random_range(0..20) {
            0 => {
                savepoints.push((tx.savepoint(), changes, models.clone()));
                last = changes + 1;
            }
            1 if !savepoints.is_empty() => {
                let at = rng.random_range(0..savepoints.len());
                savepoints.truncate(at + 1);
                let (of_tx, number, then) = &savepoints[at];
                parts.iter_mut().for_each(|part| part.roll_back_to(number + 1));
                tx.rollback_to(*of_tx);
                models.clone_from(then);
                changes += 1;
                last = changes + 1;
            }
            _ => {
                let i = rng.random_range(0..2);
                changes += 1;
                change(&mut parts[i], tx, last, &mut models[i], rng);
            }
        }
    }
}

/// One transaction on both trees, which commits or is given up.
fn transact(
    trees: &[VersionedTree; 2],
    lane: &mut Lane,
    models: &mut [Model; 2],
    rng: &mut Xoshiro256PlusPlus,
) {
    let before = models.clone();
    let versions = trees.each_ref().map(VersionedTree::version);
    let mut tx = lane.begin();
    let mut parts = trees.each_ref().map(|tree| tree.part().unwrap());
    change_both(&mut parts, &mut tx, models, rng);
    for (tree, before) in trees.iter().zip(&before) {
        assert!(contents(&tree.snapshot()) == *before, "others see nothing yet");
    }
    if rng.random_bool(0.7) {
        parts.iter_mut().for_each(|part| part.finish(&mut tx).unwrap());
        tx.commit().unwrap();
        parts.into_iter().for_each(VersionedPart::show);
    } else {
        drop((tx, parts));
        *models = before;
        assert_eq!(trees.each_ref().map(VersionedTree::version), versions);
    }
}

fn run(seed: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let pool = new_pool(8 << 20);
    let trees = ["a", "b"].map(|name| VersionedTree::create(&pool, name).unwrap());
    let mut models = [Model::new(), Model::new()];
    let mut lane = pool.lane().unwrap();
    let mut held: Vec<(VersionedSnapshot, Model)> = Vec::new();
    for _ in 0..120 {
        transact(&trees, &mut lane, &mut models, &mut rng);
        for (tree, model) in trees.iter().zip(&models) {
            let snapshot = tree.snapshot();
            assert!(contents(&snapshot) == *model);
            if rng.random_bool(0.2) {
                held.push((snapshot, model.clone()));
            }
        }
        check(&pool, &trees.each_ref());
        if rng.random_bool(0.1) {
            held.iter().for_each(|(snapshot, model)| assert!(contents(snapshot) == *model));
            held.clear();
        }
        _ = trees[0].collect(rng.random_range(0..20)).unwrap();
    }
    drop(held);
    for tree in &trees {
        while tree.collect(100).unwrap() {}
        let stats = tree.stats().unwrap();
        assert_eq!((stats.young_blocks, stats.old_blocks), (0, 0), "{stats:?}");
    }
    check(&pool, &trees.each_ref());
}

#[test]
fn parts_are_made_as_a_whole_and_go_back_to_savepoints() {
    let rounds = std::env::var("TEMBO_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(12);
    for seed in 0..rounds {
        println!("seed {seed}");
        run(seed);
    }
}

/// A pool with little room: whatever fails changes nothing, and the transaction goes on.
#[test]
fn a_change_that_finds_no_room_leaves_the_transaction_as_it_was() {
    let region = Region::simulated(&vec![0; 512 << 10], 512 << 10, None).unwrap();
    let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let tree = VersionedTree::create(&pool, "tree").unwrap();
    let mut lane = pool.lane().unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let (mut model, mut failures) = (Model::new(), 0);
    for _ in 0..60 {
        let (mut tx, mut part, before) = (lane.begin(), tree.part().unwrap(), model.clone());
        for _ in 0..20 {
            let (key, value) = (random_key(&mut rng), vec![7; rng.random_range(1..6000)]);
            if model.len() > 40 && rng.random_bool(0.3) {
                // Joined leaves may need room, too.
                match part.remove(&mut tx, 0, &key) {
                    Ok(was_there) => assert_eq!(was_there, model.remove(&key).is_some()),
                    Err(_) => assert!(part.get(&tx, &key).unwrap().is_some()),
                }
                continue;
            }
            match part.put(&mut tx, 0, &key, &[&value]) {
                Ok(was_there) => assert_eq!(was_there, model.insert(key, value).is_some()),
                Err(Error::Pool(e)) if e.is_full() => {
                    failures += 1;
                    assert_eq!(part.get(&tx, &key).unwrap(), model.get(&key).map(Vec::as_slice));
                }
                Err(e) => panic!("{e}"),
            }
        }
        match part.finish(&mut tx).and_then(|()| Ok(tx.commit()?)) {
            Ok(()) => part.show(),
            Err(Error::Pool(e)) if e.is_full() => {
                drop(part);
                model = before;
                failures += 1;
            }
            Err(e) => panic!("{e}"),
        }
        assert!(contents(&tree.snapshot()) == model);
        check(&pool, &[&tree]);
        // Dead blocks go into a queue, which may need room.
        if failures % 7 == 6 && tree.clear().is_ok() {
            model.clear();
            while tree.collect(1000).unwrap() {}
        }
    }
    assert!(failures > 20, "{failures}");
}

/// The words that a transaction stores follow neither the size of the tree nor its versions.
#[test]
fn clearing_costs_the_same_in_any_tree() {
    let costs = [10_u64, 1000, 20_000].map(|size| {
        let pool = new_pool(32 << 20);
        let tree = VersionedTree::create(&pool, "tree").unwrap();
        let first = tree.snapshot();
        for from in (0..size).step_by(500) {
            let numbers = from..(from + 500).min(size);
            let put = |i: u64, batch: &mut tembo_index::VersionedBatch<'_, '_>| {
                batch.put(&i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes(), &[7; 20]).map(drop)
            };
            tree.batch(|batch| numbers.into_iter().try_for_each(|i| put(i, batch))).unwrap();
        }
        let full = tree.snapshot();
        while tree.collect(1000).unwrap() {}
        let before = tembo_pmem::snapshot();
        tree.clear().unwrap();
        let cost = tembo_pmem::snapshot() - before;
        assert_eq!((tree.len(), full.len(), first.len()), (0, size, 0));
        check(&pool, &[&tree]);
        // As long as a version has all of it, it is one item; then pauses are bounded while it comes apart.
        tree.put(b"new", b"").unwrap();
        while tree.collect(1000).unwrap() {}
        assert_eq!(tree.stats().unwrap().old_blocks, 1);
        assert_eq!(full.iter().count() as u64, size);
        drop((full, first));
        while tree.collect(1000).unwrap() {}
        let stats = tree.stats().unwrap();
        assert_eq!((stats.young_blocks, stats.old_blocks), (0, 0));
        check(&pool, &[&tree]);
        assert_eq!(
            pool.marks().unwrap().usage().allocated_blocks,
            4,
            "the head, a leaf and a chunk of each queue"
        );
        cost
    });
    assert!(costs.iter().all(|cost| cost.fences == 1 && cost.words <= costs[0].words + 40), "{costs:?}");
}
