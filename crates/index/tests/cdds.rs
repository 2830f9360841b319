//! The CDDS tree against a `BTreeMap` for each version.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_index::{CddsReader, CddsSnapshot, CddsTree, Error, MAX_KEY_BYTES};
use tembo_pmem::{Observer, Region, ThreadTag};
use tembo_pool::{Geometry, Pool};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn new_pool(bytes: usize) -> Pool {
    let region = Region::simulated(&vec![0; bytes], 1 << 30, None).unwrap();
    Pool::create_in(region, &Geometry { zone_chunks: 1 << 12, ..Geometry::default() }).unwrap()
}

fn new_tree() -> CddsTree {
    CddsTree::create(&new_pool(8 << 20), "tree").unwrap()
}

/// The pool as it is on media, opened again.
fn reopened(tree: CddsTree) -> CddsTree {
    let region = tree.pool().region();
    let words = (0..region.len()).step_by(8).map(|off| region.load_u64(off).unwrap());
    let image: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
    drop(tree);
    let pool = Pool::open_in(Region::simulated(&image, 1 << 30, None).unwrap()).unwrap();
    CddsTree::open(&pool, "tree").unwrap().unwrap()
}

fn check(tree: &CddsTree) {
    let mut marks = tree.pool().marks().unwrap();
    tree.check(&mut marks).unwrap();
    marks.finish().unwrap();
}

fn contents(snapshot: &CddsSnapshot) -> Model {
    let entries = snapshot.iter().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.key().to_vec(), entry.value().to_vec())).collect()
}

/// Reads a version in every way and compares.
fn compare(snapshot: &CddsSnapshot, model: &Model, rng: &mut Xoshiro256PlusPlus) {
    assert_eq!(snapshot.len(), model.len() as u64);
    assert!(contents(snapshot) == *model, "version {}", snapshot.version());
    let backward: Vec<_> = snapshot.iter().rev().map(|entry| entry.unwrap().key().to_vec()).collect();
    assert!(backward.iter().eq(model.keys().rev()));
    let keys: Vec<_> = model.keys().collect();
    for _ in 0..8 {
        let mut pick = || match rng.random_range(0..4) {
            0 => vec![rng.random(); rng.random_range(0..3)],
            _ if keys.is_empty() => Vec::new(),
            _ => keys[rng.random_range(0..keys.len())].clone(),
        };
        let (low, high) = (pick(), pick());
        assert_eq!(snapshot.get(&low).unwrap().as_deref(), model.get(&low).map(Vec::as_slice));
        let bound = |key: &Vec<u8>, kind: u32| match kind {
            0 => Bound::Included(key.clone()),
            1 => Bound::Excluded(key.clone()),
            _ => Bound::Unbounded,
        };
        let range = (bound(&low, rng.random_range(0..3)), bound(&high, rng.random_range(0..3)));
        let is_inverted = match &range {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Excluded(low), Bound::Excluded(high)) => low >= high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
                low > high
            }
        };
        let expected: Vec<_> = if is_inverted {
            Vec::new()
        } else {
            model.range(range.clone()).map(|(key, _)| key.clone()).collect()
        };
        let mut walk = snapshot.range(range);
        let (mut front, mut back) = (Vec::new(), Vec::new());
        loop {
            let (entry, end) =
                if rng.random() { (walk.next(), &mut front) } else { (walk.next_back(), &mut back) };
            let Some(entry) = entry else { break };
            end.push(entry.unwrap().key().to_vec());
        }
        front.extend(back.into_iter().rev());
        assert_eq!(front, expected);
        let prefix = &low[..rng.random_range(0..=low.len())];
        let expected: Vec<_> = model.keys().filter(|key| key.starts_with(prefix)).collect();
        let found: Vec<_> = snapshot.prefix(prefix).map(|entry| entry.unwrap().key().to_vec()).collect();
        assert!(found.iter().eq(expected.iter().copied()));
    }
}

fn key(rng: &mut Xoshiro256PlusPlus, family: u32, range: u32) -> Vec<u8> {
    let number = rng.random_range(0..range);
    match family {
        0 => format!("key{number:05}").into_bytes(),
        1 => [vec![b'x'; 40], number.wrapping_mul(2_654_435_761).to_be_bytes().to_vec()].concat(),
        2 => u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec(),
        3 => number.to_be_bytes()[3 - (number % 4) as usize..].to_vec(),
        4 => vec![0; number as usize % 40],
        _ => [vec![(number % 7) as u8; 12], number.to_be_bytes().to_vec()].concat(),
    }
}

fn value(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let bytes = match rng.random_range(0..20) {
        0 => rng.random_range(100..3000),
        1..8 => rng.random_range(0..60),
        _ => rng.random_range(0..9),
    };
    vec![rng.random(); bytes]
}

fn difference(from: &Model, to: &Model) -> Vec<(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>)> {
    let keys: std::collections::BTreeSet<_> = from.keys().chain(to.keys()).collect();
    let changed = keys.into_iter().filter(|key| from.get(*key) != to.get(*key));
    changed.map(|key| (key.clone(), from.get(key).cloned(), to.get(key).cloned())).collect()
}

/// Changes that depend on what there is, each of them.
fn edit_in_other_ways(
    tree: &CddsTree,
    model: &mut Model,
    rng: &mut Xoshiro256PlusPlus,
    mut key: impl FnMut(&mut Xoshiro256PlusPlus) -> Vec<u8>,
) {
    for _ in 0..10 {
        let (key, new, version) = (key(rng), value(rng), tree.version());
        let old = model.get(&key).cloned();
        let is_changed = match rng.random_range(0..7) {
            0 => {
                let inserts = tree.insert(&key, &new).unwrap();
                assert_eq!(inserts, old.is_none());
                if inserts {
                    model.insert(key, new);
                }
                inserts
            }
            1 => {
                let updates = tree.update(&key, &new).unwrap();
                assert_eq!(updates, old.is_some());
                let is_new = updates && old.as_ref() != Some(&new);
                if updates {
                    model.insert(key, new);
                }
                is_new
            }
            2 => {
                let expected = if rng.random() { old.clone() } else { Some(value(rng)) };
                let wanted = rng.random_bool(0.7).then_some(new);
                let swaps = tree.compare_and_swap(&key, expected.as_deref(), wanted.as_deref()).unwrap();
                assert_eq!(swaps, expected == old);
                if swaps {
                    match &wanted {
                        Some(new) => _ = model.insert(key, new.clone()),
                        None => _ = model.remove(&key),
                    }
                }
                swaps && wanted != old
            }
            3 => {
                let longer = |old: Option<&[u8]>| Some([old.unwrap_or_default(), b"!"].concat());
                assert_eq!(tree.modify(&key, longer).unwrap(), old.is_some());
                model.insert(key, longer(old.as_deref()).unwrap());
                true
            }
            4 => {
                let popped = tree.pop_first().unwrap();
                assert_eq!(popped, model.pop_first());
                popped.is_some()
            }
            5 => {
                let popped = tree.pop_last().unwrap();
                assert_eq!(popped, model.pop_last());
                popped.is_some()
            }
            _ => {
                let mut end = key.clone();
                end.push(rng.random());
                let gone: Vec<_> =
                    model.range(key.clone()..end.clone()).map(|(key, _)| key.clone()).collect();
                gone.iter().for_each(|key| _ = model.remove(key));
                assert_eq!(tree.remove_range_in_groups(key..end).unwrap(), gone.len() as u64);
                !gone.is_empty()
            }
        };
        assert!(is_changed == (tree.version() != version), "a version for every change, and only for these");
    }
}

struct Held {
    snapshot: CddsSnapshot,
    model: Model,
    name: Option<String>,
}

fn run(seed: u64, steps: usize) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let family = rng.random_range(0..6);
    let range = [20, 200, 2000][rng.random_range(0..3)];
    let mut inclination = 0.7;
    let mut tree = new_tree();
    let mut model = Model::new();
    let mut held: Vec<Held> = Vec::new();
    for step in 0..steps {
        let version = tree.version();
        match rng.random_range(0..100) {
            0..70 => {
                let (key, value) = (key(&mut rng, family, range), value(&mut rng));
                if rng.random_bool(inclination) {
                    assert_eq!(tree.put(&key, &value).unwrap(), model.insert(key, value).is_some());
                    assert_eq!(tree.version(), version + 1);
                } else {
                    assert_eq!(tree.remove(&key).unwrap(), model.remove(&key).is_some());
                }
            }
            70..80 => {
                let count = rng.random_range(0..200);
                tree.batch(|batch| {
                    for _ in 0..count {
                        let (key, value) = (key(&mut rng, family, range), value(&mut rng));
                        assert_eq!(batch.get(&key)?, model.get(&key).cloned());
                        if rng.random_bool(inclination) {
                            assert_eq!(batch.put(&key, &value)?, model.insert(key, value).is_some());
                        } else {
                            assert_eq!(batch.remove(&key)?, model.remove(&key).is_some());
                        }
                        assert_eq!(batch.len(), model.len() as u64);
                    }
                    Ok(())
                })
                .unwrap();
                assert!(tree.version() <= version + 1);
            }
            80..86 => held.push(Held { snapshot: tree.snapshot(), model: model.clone(), name: None }),
            86..90 if !held.is_empty() => {
                let at = rng.random_range(0..held.len());
                let gone = held.swap_remove(at);
                if let Some(name) = gone.name {
                    assert!(tree.drop_kept(&name).unwrap());
                }
            }
            90 if !held.is_empty() => {
                let at = rng.random_range(0..held.len());
                if held[at].name.is_none() {
                    let name = format!("at step {step}");
                    tree.keep(&held[at].snapshot, &name).unwrap();
                    held[at].name = Some(name);
                }
            }
            91 if !held.is_empty() => {
                let to = &held[rng.random_range(0..held.len())];
                let new = tree.rollback_to(to.snapshot.version()).unwrap();
                assert_eq!(new, if to.model == model { version } else { version + 1 });
                model = to.model.clone();
            }
            92..94 if held.len() > 1 => {
                let (a, b) = (&held[rng.random_range(0..held.len())], &held[rng.random_range(0..held.len())]);
                let changes = tree.diff(a.snapshot.version(), b.snapshot.version()).unwrap();
                let changes: Vec<_> = changes.into_iter().map(|c| (c.key, c.before, c.after)).collect();
                assert!(
                    changes == difference(&a.model, &b.model),
                    "from {:?} to {:?}",
                    a.snapshot,
                    b.snapshot
                );
            }
            94 => _ = tree.collect(rng.random_range(0..100)).unwrap(),
            95 => inclination = rng.random_range(0.1..0.9),
            96 if rng.random_bool(0.2) => {
                held.retain(|held| held.name.is_some());
                let names: Vec<_> =
                    held.drain(..).map(|held| (held.name, held.model, held.snapshot.version())).collect();
                tree = reopened(tree);
                assert_eq!(tree.kept().len(), names.len());
                for (name, model, version) in names {
                    let snapshot = tree.kept_snapshot(name.as_deref().unwrap()).unwrap();
                    assert_eq!(snapshot.version(), version);
                    held.push(Held { snapshot, model, name });
                }
            }
            98 => edit_in_other_ways(&tree, &mut model, &mut rng, |rng| key(rng, family, range)),
            99 if rng.random_bool(0.3) => {
                tree.clear().unwrap();
                model.clear();
                assert!(tree.is_empty());
            }
            97 => {
                check(&tree);
                compare(&tree.snapshot(), &model, &mut rng);
                held.iter().for_each(|held| compare(&held.snapshot, &held.model, &mut rng));
            }
            _ => {}
        }
    }
    check(&tree);
    compare(&tree.snapshot(), &model, &mut rng);
    for held in held.drain(..) {
        compare(&held.snapshot, &held.model, &mut rng);
        if let Some(name) = held.name {
            tree.drop_kept(&name).unwrap();
        }
    }
    while tree.collect(1000).unwrap() {}
    let stats = tree.stats().unwrap();
    assert_eq!((stats.held.len(), stats.young_blocks, stats.old_blocks), (0, 0, 0), "{stats:?}");
    check(&tree);
}

#[test]
fn every_version_is_what_it_was() {
    let seed = std::env::var("TEMBO_SEED").ok().and_then(|seed| seed.parse().ok());
    let rounds = std::env::var("TEMBO_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(24);
    for seed in seed.map_or(0..rounds, |seed| seed..seed + 1) {
        println!("TEMBO_SEED={seed}");
        run(seed, 1500);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let tree = new_tree();
    let long = vec![0; MAX_KEY_BYTES as usize + 1];
    assert!(matches!(tree.put(&long, b""), Err(Error::KeyTooLong { .. })));
    assert!(!tree.remove(&long).unwrap() && tree.get(&long).unwrap().is_none());
    assert!(matches!(CddsTree::open(tree.pool(), "tree"), Err(Error::InUse)));
    assert!(matches!(CddsTree::create(tree.pool(), "tree"), Err(Error::Exists { .. })));
    assert!(matches!(tree.rollback_to(77), Err(Error::NoSuchVersion { version: 77 })));
    assert!(matches!(tree.keep(&tree.snapshot(), ""), Err(Error::SnapshotName { .. })));
    tree.keep(&tree.snapshot(), "a").unwrap();
    assert!(matches!(tree.keep(&tree.snapshot(), "a"), Err(Error::Exists { .. })));
    assert!(!tree.drop_kept("b").unwrap());
    check(&tree);
}

#[test]
fn a_batch_that_fails_changes_nothing() {
    let pool = new_pool(4 << 20);
    let tree = CddsTree::create(&pool, "tree").unwrap();
    tree.put(b"a", b"1").unwrap();
    let before = tree.version();
    let refused: Result<(), Error> = tree.batch(|batch| {
        batch.put(b"a", b"2")?;
        batch.put(b"b", &[3; 100])?;
        Err(Error::NoSuchVersion { version: 0 })
    });
    assert!(refused.is_err());
    // More than a zone of this pool.
    let too_large = vec![7; 70 << 20];
    let abandoned = tree.batch(|batch| {
        batch.put(b"a", b"2")?;
        assert!(batch.put(b"b", &too_large).is_err());
        Ok(())
    });
    assert!(matches!(abandoned, Err(Error::Abandoned)), "{abandoned:?}");
    assert_eq!((tree.version(), tree.len()), (before, 1));
    assert_eq!(tree.get(b"a").unwrap().unwrap(), b"1");
    check(&tree);
}

#[test]
fn a_reader_may_stay_while_others_write() {
    let tree = new_tree();
    let mut readers: Vec<(CddsReader<'_>, u64)> = Vec::new();
    for i in 0..400u64 {
        tree.put(&(i % 40).to_be_bytes(), &i.to_be_bytes()).unwrap();
        if i % 2 == 0 {
            readers.push((tree.reader(), i));
        }
        if readers.len() > 150 {
            readers.remove((i % 150) as usize);
        }
    }
    for (reader, last) in &readers {
        for i in 0..40u64 {
            let expected = (0..=*last).rev().find(|put| put % 40 == i);
            let found = reader
                .get(&i.to_be_bytes())
                .unwrap()
                .map(|value| u64::from_be_bytes(*value.first_chunk().unwrap()));
            assert_eq!(found, expected);
        }
    }
    drop(readers);
    while tree.collect(64).unwrap() {}
    assert_eq!(tree.stats().unwrap().old_blocks, 0);
    check(&tree);
}

/// After ten times the data in random changes, with no snapshot, a tree takes at most twice what it takes when it is freshly loaded.
#[test]
fn space_follows_what_is_there() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let keys = 20_000u64;
    let key = |i: u64| format!("user{:016x}", i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes();
    for value_bytes in [4, 100] {
        let allocated = |tree: &CddsTree| tree.pool().marks().unwrap().usage().allocated_bytes;
        let load = |order: &dyn Fn(u64) -> Vec<u8>| {
            let tree = new_tree();
            (0..keys).for_each(|i| _ = tree.put(&order(i), &vec![1; value_bytes]).unwrap());
            while tree.collect(1000).unwrap() {}
            tree
        };
        let mut sorted: Vec<_> = (0..keys).map(key).collect();
        sorted.sort_unstable();
        let fresh = allocated(&load(&|i| sorted[i as usize].clone()));
        let tree = load(&key);
        let loaded = allocated(&tree);
        for i in 0..10 * keys {
            tree.put(&key(rng.random_range(0..keys)), &vec![i as u8; value_bytes]).unwrap();
        }
        let churned = allocated(&tree);
        println!("values of {value_bytes}: {fresh} in order, {loaded} at random, {churned} after changes");
        assert!(churned <= 2 * fresh && churned <= 2 * loaded);
        // Two thirds removed, at random: the live-entry bound holds what is left together.
        for i in 0..keys {
            if rng.random_range(0..3) > 0 {
                tree.remove(&key(i)).unwrap();
            }
        }
        while tree.collect(1000).unwrap() {}
        let thinned = allocated(&tree);
        println!("{thinned} with a third left");
        assert!(thinned * 5 <= churned * 4);
        check(&tree);
    }
}

/// Counts nodes that are opened.
#[derive(Default)]
struct Opened(AtomicU64);

impl Observer for Opened {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
    fn flush(&self, _: ThreadTag, _: u64) {}
    fn fence(&self, _: ThreadTag) {}
    fn wants_loads(&self) -> bool {
        true
    }
    fn load(&self, _: ThreadTag, _: u64, bytes: u64) {
        self.0.fetch_add(u64::from(bytes == 960), Ordering::Relaxed);
    }
}

/// Differences and rollback follow what changed, not the size of the tree.
#[test]
fn what_did_not_change_is_not_read() {
    let opened = Arc::new(Opened::default());
    let region = Region::simulated(&vec![0; 8 << 20], 1 << 30, Some(opened.clone())).unwrap();
    let pool = Pool::create_in(region, &Geometry { zone_chunks: 1 << 12, ..Geometry::default() }).unwrap();
    let tree = CddsTree::create(&pool, "tree").unwrap();
    let key = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
    (0..30_000).for_each(|i| _ = tree.put(&key(i), b"before").unwrap());
    let nodes_read = |work: &mut dyn FnMut()| {
        let before = opened.0.load(Ordering::Relaxed);
        work();
        opened.0.load(Ordering::Relaxed) - before
    };
    let all = nodes_read(&mut || assert_eq!(tree.snapshot().iter().count(), 30_000));
    let old = tree.snapshot();
    (0..10).for_each(|i| _ = tree.put(&key(i * 997), b"after").unwrap());
    let new = tree.snapshot();
    let differences =
        nodes_read(&mut || assert_eq!(tree.diff(old.version(), new.version()).unwrap().len(), 10));
    let rollback = nodes_read(&mut || _ = tree.rollback_to(old.version()).unwrap());
    println!("{all} nodes in all; {differences} for the differences, {rollback} for the rollback");
    assert!(differences < all / 4 && rollback < all / 3);
    assert_eq!(tree.diff(old.version(), tree.version()).unwrap(), []);
}

/// Changes that wait for a writer are one version.
#[test]
fn changes_that_wait_are_made_together() {
    let tree = new_tree();
    for round in 0..50u64 {
        let start = tree.version();
        std::thread::scope(|scope| {
            tree.batch(|batch| {
                for thread in 0..6u64 {
                    let tree = &tree;
                    scope.spawn(move || {
                        assert!(!tree.put(&(6 * round + thread).to_be_bytes(), b"value").unwrap())
                    });
                }
                // They may get to the lock while it is held.
                std::thread::sleep(std::time::Duration::from_millis(20));
                batch.put(b"batch", &round.to_be_bytes()).map(drop)
            })
            .unwrap();
        });
        assert_eq!(tree.len(), 6 * (round + 1) + 1);
        if tree.version() == start + 2 {
            return;
        }
    }
    panic!("six changes that waited at once never became one version");
}
