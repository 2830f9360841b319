//! Both CDDS structures against a `BTreeMap` for each version.

use crate::structures::{
    Model, Structure, check, contents, equal_hash_key, for_each_structure, image, near_hash_key, new_map,
    new_pool,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::any::Any;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_index::{
    Error, HashStructure, MAX_KEY_BYTES, TreeStructure, VersionedHash, VersionedMap, VersionedReader,
    VersionedSnapshot, VersionedTree,
};
use tembo_pmem::{Observer, Region, ThreadTag};
use tembo_pool::{Geometry, Pool};

for_each_structure!(
    every_version_is_what_it_was,
    what_cannot_be_is_refused,
    a_batch_that_fails_changes_nothing,
    a_reader_may_stay_while_others_write,
    space_follows_what_is_there,
    what_did_not_change_is_not_read,
    what_a_batch_makes_and_gives_up_takes_no_room,
    records_of_joined_leaves_are_freed_with_their_entries,
);

/// The map of a pool that is so on media.
fn reopened<S: Structure>(image: &[u8]) -> VersionedMap<S> {
    let pool = Pool::open_in(Region::simulated(image, 1 << 30, None).unwrap()).unwrap();
    VersionedMap::open(&pool, "map").unwrap().unwrap()
}

/// Reads a version and compares.
fn compare<S: Structure>(snapshot: &VersionedSnapshot<S>, model: &Model, rng: &mut Xoshiro256PlusPlus) {
    assert_eq!(snapshot.len(), model.len() as u64);
    assert!(contents(snapshot) == *model, "version {}", snapshot.version());
    let keys: Vec<_> = model.keys().collect();
    for _ in 0..8 {
        let key = pick(&keys, rng);
        assert_eq!(snapshot.get(&key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice));
    }
    let ordered: Option<&VersionedSnapshot<TreeStructure>> = (snapshot as &dyn Any).downcast_ref();
    assert_eq!(ordered.is_some(), S::IS_ORDERED);
    if let Some(ordered) = ordered {
        compare_order(ordered, model, rng);
    }
}

fn pick(keys: &[&Vec<u8>], rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    match rng.random_range(0..4) {
        0 => vec![rng.random(); rng.random_range(0..3)],
        _ if keys.is_empty() => Vec::new(),
        _ => keys[rng.random_range(0..keys.len())].clone(),
    }
}

/// Reads a version of a tree in every order.
fn compare_order(snapshot: &VersionedSnapshot, model: &Model, rng: &mut Xoshiro256PlusPlus) {
    let forward: Vec<_> = snapshot.iter().map(|entry| entry.unwrap().key().to_vec()).collect();
    assert!(forward.iter().eq(model.keys()));
    let backward: Vec<_> = snapshot.iter().rev().map(|entry| entry.unwrap().key().to_vec()).collect();
    assert!(backward.iter().eq(model.keys().rev()));
    let keys: Vec<_> = model.keys().collect();
    for _ in 0..8 {
        let (low, high) = (pick(&keys, rng), pick(&keys, rng));
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
        5 => equal_hash_key(number % 100),
        6 => near_hash_key(number),
        7 if number.is_multiple_of(2) => equal_hash_key(number % 20),
        7 => near_hash_key(number),
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
fn edit_in_other_ways<S: Structure>(
    map: &VersionedMap<S>,
    model: &mut Model,
    rng: &mut Xoshiro256PlusPlus,
    mut key: impl FnMut(&mut Xoshiro256PlusPlus) -> Vec<u8>,
) {
    for _ in 0..10 {
        let (key, new, version) = (key(rng), value(rng), map.version());
        let tree: Option<&VersionedTree> = (map as &dyn Any).downcast_ref();
        let is_changed = match (rng.random_range(0..7), tree) {
            (0, _) => insert(map, model, key, new),
            (1, _) => update(map, model, key, new),
            (2, _) => compare_and_swap(map, model, rng, key, new),
            (3, _) => modify(map, model, key),
            (4, Some(tree)) => is_popped(tree.pop_first().unwrap(), model.pop_first()),
            (5, Some(tree)) => is_popped(tree.pop_last().unwrap(), model.pop_last()),
            (_, Some(tree)) => remove_what_begins_with(tree, model, rng, key),
            (_, None) => false,
        };
        assert!(is_changed == (map.version() != version), "a version for every change, and only for these");
    }
}

/// Inserts; whether that changed the map, as all of these say.
fn insert<S: Structure>(map: &VersionedMap<S>, model: &mut Model, key: Vec<u8>, new: Vec<u8>) -> bool {
    let inserts = map.insert(&key, &new).unwrap();
    assert_eq!(inserts, !model.contains_key(&key));
    if inserts {
        model.insert(key, new);
    }
    inserts
}

fn update<S: Structure>(map: &VersionedMap<S>, model: &mut Model, key: Vec<u8>, new: Vec<u8>) -> bool {
    let updates = map.update(&key, &new).unwrap();
    assert_eq!(updates, model.contains_key(&key));
    updates && model.insert(key, new.clone()) != Some(new)
}

fn compare_and_swap<S: Structure>(
    map: &VersionedMap<S>,
    model: &mut Model,
    rng: &mut Xoshiro256PlusPlus,
    key: Vec<u8>,
    new: Vec<u8>,
) -> bool {
    let old = model.get(&key).cloned();
    let expected = if rng.random() { old.clone() } else { Some(value(rng)) };
    let wanted = rng.random_bool(0.7).then_some(new);
    let swaps = map.compare_and_swap(&key, expected.as_deref(), wanted.as_deref()).unwrap();
    assert_eq!(swaps, expected == old);
    if swaps {
        match &wanted {
            Some(new) => _ = model.insert(key, new.clone()),
            None => _ = model.remove(&key),
        }
    }
    swaps && wanted != old
}

fn modify<S: Structure>(map: &VersionedMap<S>, model: &mut Model, key: Vec<u8>) -> bool {
    let old = model.get(&key).cloned();
    let longer = |old: Option<&[u8]>| Some([old.unwrap_or_default(), b"!"].concat());
    assert_eq!(map.modify(&key, longer).unwrap(), old.is_some());
    model.insert(key, longer(old.as_deref()).unwrap());
    true
}

fn is_popped(popped: Option<(Vec<u8>, Vec<u8>)>, expected: Option<(Vec<u8>, Vec<u8>)>) -> bool {
    assert_eq!(popped, expected);
    popped.is_some()
}

/// Removes the key and some of those that are longer by a byte or more.
fn remove_what_begins_with(
    tree: &VersionedTree,
    model: &mut Model,
    rng: &mut Xoshiro256PlusPlus,
    key: Vec<u8>,
) -> bool {
    let mut end = key.clone();
    end.push(rng.random());
    let gone: Vec<_> = model.range(key.clone()..end.clone()).map(|(key, _)| key.clone()).collect();
    gone.iter().for_each(|key| _ = model.remove(key));
    assert_eq!(tree.remove_range_in_groups(key..end).unwrap(), gone.len() as u64);
    !gone.is_empty()
}

struct Held<S> {
    snapshot: VersionedSnapshot<S>,
    model: Model,
    name: Option<String>,
}

/// A map, what each version that is held has to be, and the draws that change them.
struct Run<S: Structure> {
    rng: Xoshiro256PlusPlus,
    family: u32,
    range: u32,
    /// How often a change puts, and does not remove.
    inclination: f64,
    map: VersionedMap<S>,
    model: Model,
    held: Vec<Held<S>>,
}

impl<S: Structure> Run<S> {
    fn new(seed: u64) -> Run<S> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let family = rng.random_range(0..9);
        let range = [20, 200, 2000][rng.random_range(0..3)];
        let (map, model, held) = (new_map(), Model::new(), Vec::new());
        Run { rng, family, range, inclination: 0.7, map, model, held }
    }

    fn step(&mut self, step: usize) {
        match self.rng.random_range(0..100) {
            0..70 => self.change(),
            70..80 => self.change_in_a_batch(),
            80..86 => self.hold(),
            86..90 if !self.held.is_empty() => self.let_go(),
            90 if !self.held.is_empty() => self.keep(step),
            91 if !self.held.is_empty() => self.roll_back(),
            92..94 if self.held.len() > 1 => self.compare_two_versions(),
            94 => _ = self.map.collect(self.rng.random_range(0..100)).unwrap(),
            95 => self.inclination = self.rng.random_range(0.1..0.9),
            96 if self.rng.random_bool(0.2) => self.reopen(),
            97 => {
                check(&self.map);
                self.compare_all();
            }
            98 => {
                let Self { rng, family, range, map, model, .. } = self;
                edit_in_other_ways(map, model, rng, |rng| key(rng, *family, *range));
            }
            99 if self.rng.random_bool(0.3) => {
                self.map.clear().unwrap();
                self.model.clear();
                assert!(self.map.is_empty());
            }
            _ => {}
        }
    }

    fn change(&mut self) {
        let Self { rng, family, range, inclination, map, model, .. } = self;
        let version = map.version();
        let (key, value) = (key(rng, *family, *range), value(rng));
        if rng.random_bool(*inclination) {
            assert_eq!(map.put(&key, &value).unwrap(), model.insert(key, value).is_some());
            assert_eq!(map.version(), version + 1);
        } else {
            assert_eq!(map.remove(&key).unwrap(), model.remove(&key).is_some());
        }
    }

    fn change_in_a_batch(&mut self) {
        let Self { rng, family, range, inclination, map, model, held } = self;
        let version = map.version();
        let count = rng.random_range(0..200);
        let before = rng.random_bool(0.3).then(|| model.clone());
        map.batch(|batch| {
            // Nobody may have held this version when the batch was begun.
            held.extend(before.map(|model| Held { snapshot: map.snapshot(), model, name: None }));
            for _ in 0..count {
                let (key, value) = (key(rng, *family, *range), value(rng));
                assert_eq!(batch.get(&key)?, model.get(&key).cloned());
                if rng.random_bool(0.002) {
                    batch.clear()?;
                    model.clear();
                }
                if rng.random_bool(*inclination) {
                    assert_eq!(batch.put(&key, &value)?, model.insert(key, value).is_some());
                } else {
                    assert_eq!(batch.remove(&key)?, model.remove(&key).is_some());
                }
                assert_eq!(batch.len(), model.len() as u64);
            }
            Ok(())
        })
        .unwrap();
        assert!(map.version() <= version + 1);
    }

    fn hold(&mut self) {
        self.held.push(Held { snapshot: self.map.snapshot(), model: self.model.clone(), name: None });
    }

    fn let_go(&mut self) {
        let at = self.rng.random_range(0..self.held.len());
        let gone = self.held.swap_remove(at);
        if let Some(name) = gone.name {
            assert!(self.map.drop_kept(&name).unwrap());
        }
    }

    /// Keeps a version by name, which is to be found again after the map was reopened.
    fn keep(&mut self, step: usize) {
        let at = self.rng.random_range(0..self.held.len());
        if self.held[at].name.is_none() {
            let name = format!("at step {step}");
            self.map.keep(&self.held[at].snapshot, &name).unwrap();
            self.held[at].name = Some(name);
        }
    }

    fn roll_back(&mut self) {
        let version = self.map.version();
        let to = &self.held[self.rng.random_range(0..self.held.len())];
        let new = self.map.rollback_to(to.snapshot.version()).unwrap();
        assert_eq!(new, if to.model == self.model { version } else { version + 1 });
        self.model = to.model.clone();
    }

    fn compare_two_versions(&mut self) {
        let Self { rng, map, held, .. } = self;
        let (a, b) = (&held[rng.random_range(0..held.len())], &held[rng.random_range(0..held.len())]);
        let changes = map.diff(a.snapshot.version(), b.snapshot.version()).unwrap();
        let mut changes: Vec<_> = changes.into_iter().map(|c| (c.key, c.before, c.after)).collect();
        if !S::IS_ORDERED {
            changes.sort_unstable();
        }
        let expected = difference(&a.model, &b.model);
        assert!(changes == expected, "from {:?} to {:?}", a.snapshot, b.snapshot);
    }

    /// Opens the pool again, after which the map has the versions that were kept by name.
    fn reopen(&mut self) {
        self.held.retain(|held| held.name.is_some());
        let names: Vec<_> =
            self.held.drain(..).map(|held| (held.name, held.model, held.snapshot.version())).collect();
        let image = image(self.map.pool());
        self.map = reopened(&image);
        assert_eq!(self.map.kept().len(), names.len());
        for (name, model, version) in names {
            let snapshot = self.map.kept_snapshot(name.as_deref().unwrap()).unwrap();
            assert_eq!(snapshot.version(), version);
            self.held.push(Held { snapshot, model, name });
        }
    }

    fn compare_all(&mut self) {
        compare(&self.map.snapshot(), &self.model, &mut self.rng);
        self.held.iter().for_each(|held| compare(&held.snapshot, &held.model, &mut self.rng));
    }

    /// Lets all versions go, after which nothing is left of them.
    fn finish(mut self) {
        check(&self.map);
        compare(&self.map.snapshot(), &self.model, &mut self.rng);
        for held in self.held.drain(..) {
            compare(&held.snapshot, &held.model, &mut self.rng);
            if let Some(name) = held.name {
                self.map.drop_kept(&name).unwrap();
            }
        }
        while self.map.collect(1000).unwrap() {}
        let stats = self.map.stats().unwrap();
        assert_eq!((stats.held.len(), stats.young_blocks, stats.old_blocks), (0, 0, 0), "{stats:?}");
        check(&self.map);
    }
}

fn every_version_is_what_it_was<S: Structure>() {
    let seed = std::env::var("TEMBO_SEED").ok().and_then(|seed| seed.parse().ok());
    let rounds = std::env::var("TEMBO_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(24);
    for seed in seed.map_or(0..rounds, |seed| seed..seed + 1) {
        println!("TEMBO_SEED={seed}");
        let mut run = Run::<S>::new(seed);
        (0..1500).for_each(|step| run.step(step));
        run.finish();
    }
}

fn what_cannot_be_is_refused<S: Structure>() {
    let map = new_map::<S>();
    let long = vec![0; MAX_KEY_BYTES as usize + 1];
    assert!(matches!(map.put(&long, b""), Err(Error::KeyTooLong { .. })));
    assert!(!map.remove(&long).unwrap() && map.get(&long).unwrap().is_none());
    assert!(matches!(VersionedMap::<S>::open(map.pool(), "map"), Err(Error::InUse)));
    assert!(matches!(VersionedMap::<S>::create(map.pool(), "map"), Err(Error::Exists { .. })));
    assert!(matches!(map.rollback_to(77), Err(Error::NoSuchVersion { version: 77 })));
    assert!(matches!(map.keep(&map.snapshot(), ""), Err(Error::SnapshotName { .. })));
    map.keep(&map.snapshot(), "a").unwrap();
    assert!(matches!(map.keep(&map.snapshot(), "a"), Err(Error::Exists { .. })));
    assert!(!map.drop_kept("b").unwrap());
    check(&map);
}

fn a_batch_that_fails_changes_nothing<S: Structure>() {
    let pool = new_pool(4 << 20);
    let map = S::create(&pool, "map");
    map.put(b"a", b"1").unwrap();
    let before = map.version();
    let refused: Result<(), Error> = map.batch(|batch| {
        batch.put(b"a", b"2")?;
        batch.put(b"b", &[3; 100])?;
        Err(Error::NoSuchVersion { version: 0 })
    });
    assert!(refused.is_err());
    // More than a zone of this pool.
    let too_large = vec![7; 70 << 20];
    let abandoned = map.batch(|batch| {
        batch.put(b"a", b"2")?;
        assert!(batch.put(b"b", &too_large).is_err());
        let after = [batch.put(b"c", b"3"), batch.remove(b"a")];
        assert!(after.iter().all(|outcome| matches!(outcome, Err(Error::Abandoned))), "{after:?}");
        Ok(())
    });
    assert!(matches!(abandoned, Err(Error::Abandoned)), "{abandoned:?}");
    assert_eq!((map.version(), map.len()), (before, 1));
    assert_eq!(map.get(b"a").unwrap().unwrap(), b"1");
    check(&map);
}

fn a_reader_may_stay_while_others_write<S: Structure>() {
    let map = new_map::<S>();
    let mut readers: Vec<(VersionedReader<'_, S>, u64)> = Vec::new();
    for i in 0..400u64 {
        map.put(&(i % 40).to_be_bytes(), &i.to_be_bytes()).unwrap();
        if i % 2 == 0 {
            readers.push((map.reader(), i));
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
    while map.collect(64).unwrap() {}
    assert_eq!(map.stats().unwrap().old_blocks, 0);
    check(&map);
}

/// After ten times the data in random changes, with no snapshot, a tree takes at most twice what it takes
/// when it is freshly loaded.
fn space_follows_what_is_there<S: Structure>() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let keys = 20_000u64;
    let key = |i: u64| format!("user{:016x}", i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes();
    for value_bytes in [4, 100] {
        let allocated = |map: &VersionedMap<S>| map.pool().marks().unwrap().usage().allocated_bytes;
        let load = |order: &dyn Fn(u64) -> Vec<u8>| {
            let map = new_map::<S>();
            (0..keys).for_each(|i| _ = map.put(&order(i), &vec![1; value_bytes]).unwrap());
            while map.collect(1000).unwrap() {}
            map
        };
        let mut sorted: Vec<_> = (0..keys).map(key).collect();
        sorted.sort_unstable();
        let fresh = allocated(&load(&|i| sorted[i as usize].clone()));
        let map = load(&key);
        let loaded = allocated(&map);
        for i in 0..10 * keys {
            map.put(&key(rng.random_range(0..keys)), &vec![i as u8; value_bytes]).unwrap();
        }
        let churned = allocated(&map);
        println!("values of {value_bytes}: {fresh} in order, {loaded} at random, {churned} after changes");
        assert!(churned <= 2 * fresh && churned <= 2 * loaded);
        // Two thirds removed, at random: the live-entry bound holds what is left together.
        for i in 0..keys {
            if rng.random_range(0..3) > 0 {
                map.remove(&key(i)).unwrap();
            }
        }
        while map.collect(1000).unwrap() {}
        let thinned = allocated(&map);
        println!("{thinned} with a third left");
        assert!(thinned * 5 <= churned * 4);
        check(&map);
    }
}

/// Counts nodes that are opened.
struct Opened {
    count: AtomicU64,
    is_node_load: fn(u64) -> bool,
}

impl Observer for Opened {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
    fn flush(&self, _: ThreadTag, _: u64) {}
    fn fence(&self, _: ThreadTag) {}
    fn wants_loads(&self) -> bool {
        true
    }
    fn load(&self, _: ThreadTag, _: u64, bytes: u64) {
        self.count.fetch_add(u64::from((self.is_node_load)(bytes)), Ordering::Relaxed);
    }
}

/// Differences and rollback follow what changed, not the size of the map.
fn what_did_not_change_is_not_read<S: Structure>() {
    let opened = Arc::new(Opened { count: AtomicU64::new(0), is_node_load: S::is_node_load });
    let region = Region::simulated(&vec![0; 8 << 20], 1 << 30, Some(opened.clone())).unwrap();
    let pool = Pool::create_in(region, &Geometry { zone_chunks: 1 << 12, ..Geometry::default() }).unwrap();
    let map = S::create(&pool, "map");
    let key = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
    (0..30_000).for_each(|i| _ = map.put(&key(i), b"before").unwrap());
    let nodes_read = |work: &mut dyn FnMut()| {
        let before = opened.count.load(Ordering::Relaxed);
        work();
        opened.count.load(Ordering::Relaxed) - before
    };
    let all = nodes_read(&mut || assert_eq!(map.snapshot().iter().count(), 30_000));
    let old = map.snapshot();
    (0..10).for_each(|i| _ = map.put(&key(i * 997), b"after").unwrap());
    let new = map.snapshot();
    let differences =
        nodes_read(&mut || assert_eq!(map.diff(old.version(), new.version()).unwrap().len(), 10));
    let rollback = nodes_read(&mut || _ = map.rollback_to(old.version()).unwrap());
    println!("{all} nodes in all; {differences} for the differences, {rollback} for the rollback");
    assert!(differences < all / 4 && rollback < all / 3);
    assert_eq!(map.diff(old.version(), map.version()).unwrap(), []);
}

/// Nodes and records that a batch made and gave up again are never allocated, and a node that it changes
/// often is copied once.
fn what_a_batch_makes_and_gives_up_takes_no_room<S: Structure>() {
    let map = new_map::<S>();
    (0..3000_u32).for_each(|i| _ = map.put(&i.to_be_bytes(), b"inline").unwrap());
    while map.collect(1000).unwrap() {}
    let blocks = || map.pool().marks().unwrap().usage().allocated_blocks;
    let before = blocks();
    let _held = map.snapshot();
    map.batch(|batch| {
        for i in 3000..6000_u32 {
            batch.put(&i.to_be_bytes(), &[1; 100])?;
        }
        for i in 3000..6000_u32 {
            assert!(batch.remove(&i.to_be_bytes())?);
        }
        Ok(())
    })
    .unwrap();
    // At most every node once more, and the queue's chunks.
    let nodes = before - 1;
    println!("{before} blocks before, {} after", blocks());
    assert!(blocks() <= before + nodes + nodes / 42 + 2);
    check(&map);
}

/// The form of a table depends on its keys and not on their history.
#[test]
fn the_form_of_a_table_is_canonical() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    for family in [2, 5, 6, 7] {
        let keys: Vec<_> = (0..400).map(|_| key(&mut rng, family, 2000)).collect();
        let straight = new_map::<HashStructure>();
        keys.iter().for_each(|key| _ = straight.put(key, b"v").unwrap());
        let winding = new_map::<HashStructure>();
        for _ in 0..4000 {
            let key = key(&mut rng, family, 2000);
            if rng.random() {
                winding.put(&key, &[1; 50]).map(drop).unwrap()
            } else {
                _ = winding.remove(&key).unwrap()
            }
        }
        let others: Vec<_> = winding.snapshot().iter().map(|entry| entry.unwrap().key().to_vec()).collect();
        others.iter().filter(|key| !keys.contains(key)).for_each(|key| assert!(winding.remove(key).unwrap()));
        keys.iter().rev().for_each(|key| _ = winding.put(key, b"v").unwrap());
        let order = |map: &VersionedHash| -> Vec<Vec<u8>> {
            map.reader().iter().map(|entry| entry.unwrap().key().to_vec()).collect()
        };
        let blocks = |map: &VersionedHash| {
            while map.collect(1000).unwrap() {}
            check(map);
            map.pool().marks().unwrap().usage().allocated_blocks
        };
        if family != 5 && family != 7 {
            assert_eq!(order(&straight), order(&winding));
        }
        // The winding one has a queue, and chunks of it.
        let difference = blocks(&winding).abs_diff(blocks(&straight));
        println!("family {family}: {} and {} blocks", blocks(&straight), blocks(&winding));
        assert!(difference <= 1);
        // Nothing is left of it when nothing is in it.
        keys.iter().for_each(|key| _ = winding.remove(key).unwrap());
        assert_eq!(winding.reader().iter().count(), 0);
        assert!(blocks(&winding) <= 2);
    }
}

/// The structures keep apart, and their names too.
#[test]
fn one_structure_is_not_opened_as_the_other() {
    let pool = new_pool(4 << 20);
    VersionedTree::create(&pool, "tree").unwrap().put(b"a", b"b").unwrap();
    VersionedHash::create(&pool, "hash").unwrap().put(b"a", b"b").unwrap();
    assert!(VersionedTree::open(&pool, "hash").is_err() && VersionedHash::open(&pool, "tree").is_err());
    assert_eq!(VersionedTree::names(&pool).unwrap(), ["tree"]);
    assert_eq!(VersionedHash::names(&pool).unwrap(), ["hash"]);
    let hash = VersionedHash::open(&pool, "hash").unwrap().unwrap();
    assert_eq!(hash.get(b"a").unwrap().unwrap(), b"b");
}

#[test]
fn a_map_of_another_format_version_is_refused_by_its_number() {
    let pool = new_pool(4 << 20);
    drop(VersionedTree::create(&pool, "tree").unwrap());
    let head = pool.root("tree").unwrap().unwrap().off;
    let format = pool.region().load_u64(head).unwrap();
    pool.region().store_u64(head, format ^ (1 ^ 2) << 48).unwrap();
    let is_told = |e: Error| matches!(e, Error::FormatVersion { found: 1, supported: 2 });
    assert!(is_told(VersionedTree::open(&pool, "tree").unwrap_err()));
    assert!(is_told(VersionedTree::check_at(&pool, head, &mut pool.marks().unwrap()).unwrap_err()));
    // A word that is no version of the format is damage.
    pool.region().store_u64(head, format ^ 1).unwrap();
    assert!(matches!(VersionedTree::open(&pool, "tree").unwrap_err(), Error::Pool(_)));
}

/// Entries that cannot hold what their keys no longer share get records when leaves are joined. These
/// belong to the version that is made, though the entries are older.
fn records_of_joined_leaves_are_freed_with_their_entries<S: Structure>() {
    for survivors in 1..6u32 {
        let map = new_map::<S>();
        let key = |group: u8, i: u32| [vec![group; 8], format!("{i:04}").into_bytes()].concat();
        let all = || [b'a', b'b'].into_iter().flat_map(|group| (0..60).map(move |i| (group, i)));
        all().for_each(|(group, i)| _ = map.put(&key(group, i), b"v").unwrap());
        // Those that are put now find leaves whose keys share enough for them to lie in their entries.
        all().for_each(|(group, i)| _ = map.put(&key(group, i), b"w").unwrap());
        let step = 60 / survivors;
        map.batch(|batch| {
            for (group, i) in all().filter(|(_, i)| i % step != 0) {
                batch.remove(&key(group, i))?;
            }
            for (group, i) in all().filter(|(_, i)| i % step == 0) {
                batch.put(&key(group, i), b"x")?;
            }
            if survivors % 2 == 0 { batch.clear() } else { Ok(()) }
        })
        .unwrap();
        while map.collect(1000).unwrap() {}
        check(&map);
    }
}
