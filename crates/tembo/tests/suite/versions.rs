//! Maps that keep versions: snapshots against a `BTreeMap` for each, batches over both kinds of maps, and
//! readers beside writers.
#![forbid(unsafe_code)]

#[path = "../../examples/snapshots.rs"]
#[allow(dead_code)]
mod example;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tembo::{Batch, Error, IndexError, Iter, Map, MapOptions, Options, Pool, Savepoint, Snapshot};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(path: &Path) -> Pool {
    Options::new().create(true).initial_bytes(4 << 20).open(path).unwrap()
}

fn versioned(pool: &Pool, name: &str) -> Map {
    pool.open_map_with(name, MapOptions::new().versioned(true)).unwrap()
}

fn pairs(records: Iter<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    records.map(|entry| entry.map(|e| (e.key().to_vec(), e.value().to_vec())).unwrap()).collect()
}

fn has(model: &Model, records: Iter<'_>) -> bool {
    pairs(records).into_iter().eq(model.clone())
}

fn compare(snapshot: &Snapshot, model: &Model, rng: &mut Xoshiro256PlusPlus) {
    assert_eq!((snapshot.len(), snapshot.is_empty()), (model.len() as u64, model.is_empty()));
    assert!(has(model, snapshot.iter()));
    assert!(pairs(snapshot.iter()).into_iter().rev().eq(
        snapshot.iter().rev().map(|entry| entry.map(|e| (e.key().to_vec(), e.value().to_vec())).unwrap())
    ));
    assert_eq!(snapshot.first().unwrap().as_ref().map(|e| e.key()), model.keys().next().map(Vec::as_slice));
    assert_eq!(
        snapshot.last().unwrap().as_ref().map(|e| e.value()),
        model.values().last().map(Vec::as_slice)
    );
    for _ in 0..5 {
        let key = key(rng);
        assert_eq!(snapshot.get(&key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice));
        assert_eq!(snapshot.contains_key(&key).unwrap(), model.contains_key(&key));
        let prefix = &key[..key.len().min(4)];
        let of_prefix = model.iter().filter(|(key, _)| key.starts_with(prefix)).count();
        assert_eq!(snapshot.prefix(prefix).count(), of_prefix);
        assert_eq!(snapshot.range(key.clone()..).rev().count(), model.range(key.clone()..).count());
    }
}

fn key(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    match rng.random_range(0..120) {
        i @ 0..60 => format!("key {i:03}").into_bytes(),
        i => vec![i as u8; i % 5],
    }
}

fn difference(from: &Model, to: &Model) -> Vec<Vec<u8>> {
    let keys: std::collections::BTreeSet<_> = from.keys().chain(to.keys()).collect();
    keys.into_iter().filter(|key| from.get(*key) != to.get(*key)).cloned().collect()
}

/// A random change of one map of a batch, and of its model.
fn change_in(batch: &mut Batch<'_>, map: &Map, model: &mut Model, rng: &mut Xoshiro256PlusPlus) {
    let key = key(rng);
    let value = vec![rng.random(); [2, 8, 30, 400][rng.random_range(0..4)]];
    assert_eq!(batch.get(map, &key).unwrap(), model.get(&key).map(Vec::as_slice));
    match rng.random_range(0..24) {
        0..10 => {
            let was_there = batch.put_parts(map, &key, &[&value[..1], &value[1..]]).unwrap();
            assert_eq!(was_there, model.insert(key, value).is_some());
        }
        10..15 => assert_eq!(batch.remove(map, &key).unwrap(), model.remove(&key).is_some()),
        15 => {
            assert_eq!(batch.insert(map, &key, &value).unwrap(), !model.contains_key(&key));
            model.entry(key).or_insert(value);
        }
        16 => {
            assert_eq!(batch.update(map, &key, &value).unwrap(), model.contains_key(&key));
            model.entry(key).and_modify(|old| *old = value);
        }
        17 => {
            let old = model.insert(key.clone(), value.clone());
            assert!(batch.compare_and_swap(map, &key, old.as_deref(), Some(&value)).unwrap());
        }
        18 => {
            batch.modify(map, &key, |old| Some([old.unwrap_or_default(), b"!"].concat())).unwrap();
            model.entry(key).or_default().push(b'!');
        }
        19 => assert_eq!(batch.pop_first(map).unwrap(), model.pop_first()),
        20 => assert_eq!(batch.pop_last(map).unwrap(), model.pop_last()),
        21 => {
            let gone: Vec<_> = model.range(key.clone()..).take(3).map(|(key, _)| key.clone()).collect();
            let Some(last) = gone.last() else { return };
            assert_eq!(batch.remove_range(map, key..=last.clone()).unwrap(), gone.len() as u64);
            gone.iter().for_each(|key| _ = model.remove(key));
        }
        22 => _ = batch.reclaim(map, 3).unwrap(),
        _ => {
            batch.prefetch(map, [&key[..]]);
            if rng.random_bool(0.3) {
                batch.clear(map).unwrap();
                model.clear();
            }
        }
    }
    assert_eq!(batch.len(map).unwrap(), model.len() as u64);
}

/// Two maps that keep no versions, "a" and "b", and two that do, "c" and "d"; and what each has to hold.
struct Run {
    rng: Xoshiro256PlusPlus,
    pool: Pool,
    maps: [Map; 4],
    models: [Model; 4],
    /// Versions of "c": those that snapshots hold, and those that are kept by name.
    held: Vec<(Snapshot, Model)>,
    kept: BTreeMap<String, Model>,
}

impl Run {
    fn new(path: &Path, seed: u64) -> Run {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let pool = open(path);
        let maps = open_maps(&pool);
        Run { rng, pool, maps, models: Default::default(), held: Vec::new(), kept: BTreeMap::new() }
    }

    /// A batch over all maps, with savepoints, which is committed or not.
    fn change_in_a_batch(&mut self) {
        let Self { rng, pool, maps, models, .. } = self;
        let before = models.clone();
        let mut batch = pool.batch().unwrap();
        let mut savepoints: Vec<(Savepoint, [Model; 4])> = Vec::new();
        for _ in 0..rng.random_range(0..50) {
            match rng.random_range(0..16) {
                0 => savepoints.push((batch.savepoint(), models.clone())),
                1 if !savepoints.is_empty() => {
                    savepoints.truncate(rng.random_range(0..savepoints.len()) + 1);
                    let (to, then) = &savepoints[savepoints.len() - 1];
                    batch.rollback_to(*to);
                    models.clone_from(then);
                }
                _ => {
                    let i = rng.random_range(0..4);
                    change_in(&mut batch, &maps[i], &mut models[i], rng);
                }
            }
        }
        for (map, before) in maps.iter().zip(&before) {
            assert!(has(before, map.iter()), "others see nothing yet");
        }
        if rng.random_bool(0.8) {
            batch.commit().unwrap();
        } else {
            drop(batch);
            *models = before;
        }
        maps.iter().zip(&*models).for_each(|(map, model)| assert!(has(model, map.iter())));
    }

    /// Makes, uses or drops a version of "c", or closes all.
    fn change_versions(mut self, path: &Path, round: u32) -> Run {
        let (map, model) = (&self.maps[2], &mut self.models[2]);
        match self.rng.random_range(0..8) {
            0 => self.held.push((map.snapshot().unwrap(), model.clone())),
            1 => {
                map.snapshot().unwrap().keep(&format!("at {round}")).unwrap();
                self.kept.insert(format!("at {round}"), model.clone());
            }
            2 if !self.kept.is_empty() => {
                let (name, then) = self.kept.iter().nth(self.rng.random_range(0..self.kept.len())).unwrap();
                let to = map.open_snapshot(name).unwrap();
                let newest = map.snapshot().unwrap();
                let changes: Vec<_> =
                    newest.diff(&to).unwrap().into_iter().map(|change| change.key).collect();
                assert_eq!(changes, difference(model, then));
                map.rollback_to(&to).unwrap();
                model.clone_from(then);
            }
            3 => drop(self.held.pop()),
            4 if self.kept.len() > 2 => {
                let (name, _) = self.kept.pop_first().unwrap();
                assert!(map.drop_snapshot(&name).unwrap() && !map.drop_snapshot(&name).unwrap());
            }
            5 => _ = map.collect(self.rng.random_range(1..40)).unwrap(),
            6 if self.rng.random_bool(0.3) => return self.reopened(path),
            _ => {}
        }
        self
    }

    fn reopened(self, path: &Path) -> Run {
        let Run { rng, pool, maps, models, held, kept } = self;
        drop((held, maps, pool));
        let pool = open(path);
        let maps = open_maps(&pool);
        Run { rng, pool, maps, models, held: Vec::new(), kept }
    }

    fn compare_versions(&mut self) {
        let Self { rng, maps, held, kept, .. } = self;
        held.iter().for_each(|(snapshot, model)| compare(snapshot, model, rng));
        for (name, model) in &*kept {
            compare(&maps[2].open_snapshot(name).unwrap(), model, rng);
        }
        let names = maps[2].snapshots().unwrap().into_iter().map(|named| named.name);
        assert_eq!(names.collect::<std::collections::BTreeSet<_>>(), kept.keys().cloned().collect());
    }

    /// Beside the open handles.
    fn check(&self) {
        let report = self.pool.check().unwrap();
        assert_eq!((report.maps.len(), report.versioned_maps.len()), (2, 2));
        let (_, versions) = report.versioned_maps.iter().find(|(name, _)| name == "c").unwrap();
        assert_eq!((versions.length, versions.kept.len()), (self.models[2].len() as u64, self.kept.len()));
    }
}

/// Batches over two maps of each kind, with savepoints, beside what is kept of the versions.
fn run(seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let mut run = Run::new(&path, seed);
    for round in 0..60 {
        run.change_in_a_batch();
        run = run.change_versions(&path, round);
        run.compare_versions();
    }
    run.check();
}

fn open_maps(pool: &Pool) -> [Map; 4] {
    let map = |name| pool.open_map_with(name, MapOptions::new().versioned(name > "b")).unwrap();
    ["a", "b", "c", "d"].map(map)
}

#[test]
fn batches_over_both_kinds_and_snapshots_are_what_they_were() {
    let rounds = std::env::var("TEMBO_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(10);
    for seed in 0..rounds {
        println!("seed {seed}");
        run(seed);
    }
}

#[test]
fn a_batch_over_both_kinds_costs_one_fence() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().create(true).durability(tembo::Durability::Emulated).count(true);
    let pool = options.open(dir.path().join("a.pool")).unwrap();
    let maps = [pool.open_map("plain").unwrap(), versioned(&pool, "x"), versioned(&pool, "y")];
    maps.iter().for_each(|map| _ = map.put("k", "v").unwrap());
    // The first ones also make slabs and queues.
    let costs = [1, 2, 3, 4].map(|i: u8| {
        let before = tembo::snapshot();
        let mut batch = pool.batch().unwrap();
        maps.iter().for_each(|map| _ = batch.put(map, b"k", &[i; 20]).unwrap());
        batch.commit().unwrap();
        tembo::snapshot() - before
    });
    assert_eq!(costs[3].fences, 1, "{costs:?}");
}

#[test]
fn what_cannot_be_is_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = open(&path);
    let (plain, stock) = (pool.open_map("plain").unwrap(), versioned(&pool, "stock"));
    assert!(!plain.is_versioned() && stock.is_versioned() && pool.open_map("stock").unwrap().is_versioned());
    for (name, asked) in [("plain", true), ("stock", false)] {
        let wrong = pool.open_map_with(name, MapOptions::new().versioned(asked));
        assert!(
            matches!(wrong, Err(Error::MapKind { is_versioned, .. }) if is_versioned != asked),
            "{wrong:?}"
        );
    }
    assert!(matches!(plain.snapshot(), Err(Error::NotVersioned)));
    assert!(plain.snapshot().unwrap_err().to_string().contains("versioned(true)"));
    assert!(matches!(stock.open_snapshot("none"), Err(Error::NoSuchSnapshot { .. })));
    let snapshot = stock.snapshot().unwrap();
    snapshot.keep("a").unwrap();
    assert!(matches!(snapshot.keep("a"), Err(Error::Index(IndexError::Exists { .. }))));
    assert!(matches!(snapshot.keep(""), Err(Error::Index(IndexError::SnapshotName { .. }))));
    assert!(matches!(stock.snapshot_at(999), Err(Error::Index(IndexError::NoSuchVersion { version: 999 }))));
    let other = versioned(&pool, "other");
    assert!(matches!(other.rollback_to(&snapshot), Err(Error::ForeignSnapshot)));
    assert!(matches!(snapshot.diff(&other.snapshot().unwrap()), Err(Error::ForeignSnapshot)));
    let mut names = pool.map_names().unwrap();
    names.sort();
    assert_eq!(names, ["other", "plain", "stock"]);
    drop((plain, stock, other, snapshot, pool));
    let pool = Options::new().read_only(true).open(&path).unwrap();
    let stock = pool.find_map("stock").unwrap().unwrap();
    assert_eq!(stock.snapshots().unwrap()[0].name, "a");
    assert!(matches!(stock.snapshot().unwrap().keep("b"), Err(Error::ReadOnly)));
    assert!(matches!(stock.put("k", "v"), Err(Error::ReadOnly)));
    assert!(matches!(stock.collect(1), Err(Error::ReadOnly)));
}

/// A snapshot keeps its map open, so that the map can be opened beside it, and closed before it.
#[test]
fn handles_come_and_go_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(&dir.path().join("a.pool"));
    let snapshot = {
        let map = versioned(&pool, "m");
        map.put("k", "1").unwrap();
        map.snapshot().unwrap()
    };
    let map = pool.open_map("m").unwrap();
    map.put("k", "2").unwrap();
    let mut batch = pool.batch().unwrap();
    batch.put(&map, b"k", b"3").unwrap();
    drop(map);
    let again = pool.find_map("m").unwrap().unwrap();
    assert_eq!(again.get("k").unwrap().as_deref(), Some(&b"2"[..]));
    batch.commit().unwrap();
    assert_eq!(again.get("k").unwrap().as_deref(), Some(&b"3"[..]));
    assert_eq!(snapshot.get("k").unwrap().as_deref(), Some(&b"1"[..]));
    // A value and a walk stay what they were.
    let (value, mut walk) = (again.get("k").unwrap().unwrap(), again.iter());
    (0..500).for_each(|i: u32| _ = again.put(i.to_be_bytes(), [7; 50]).unwrap());
    again.put("k", "4").unwrap();
    again.clear().unwrap();
    while again.collect(1000).unwrap() {}
    (0..500).for_each(|i: u32| _ = again.put(i.to_le_bytes(), [8; 50]).unwrap());
    assert_eq!(&*value, b"3");
    assert_eq!(walk.next().unwrap().unwrap().value(), b"3");
    assert!(walk.next().is_none());
    drop((walk, value));
    drop(again);
    assert_eq!(snapshot.get("k").unwrap().as_deref(), Some(&b"1"[..]));
    drop((snapshot, pool));
}

const ACCOUNTS: u32 = 40;
const START: u64 = 1000;

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// The sum of the accounts, which have keys of four bytes.
fn sum(records: Iter<'_>) -> u64 {
    records.map(|entry| entry.unwrap()).filter(|e| e.key().len() == 4).map(|e| number(e.value())).sum()
}

/// Accounts in two maps that keep versions and one that does not, and a map that others change meanwhile.
struct Bank {
    pool: Pool,
    maps: [Map; 3],
    noise: Map,
}

impl Bank {
    fn new(path: &Path) -> Bank {
        let pool = open(path);
        let maps = [versioned(&pool, "x"), versioned(&pool, "y"), pool.open_map("z").unwrap()];
        let noise = versioned(&pool, "noise");
        let mut batch = pool.batch().unwrap();
        for i in 0..ACCOUNTS {
            maps.iter().for_each(|map| _ = batch.put(map, &i.to_be_bytes(), &START.to_le_bytes()).unwrap());
        }
        batch.commit().unwrap();
        Bank { pool, maps, noise }
    }

    /// Inside one map nothing is gained or lost: transfers are batches or take place in one map.
    fn read(&self, rng: &mut Xoshiro256PlusPlus) {
        assert_eq!(sum(self.maps[0].iter()), u64::from(ACCOUNTS) * START);
        let snapshot = self.maps[1].snapshot().unwrap();
        assert_eq!(sum(snapshot.iter()), sum(snapshot.iter()));
        let from = rng.random_range(0..ACCOUNTS).to_be_bytes();
        let forward: Vec<_> = self.noise.range(from..).map(|e| e.unwrap().key().to_vec()).collect();
        assert!(forward.is_sorted());
    }

    /// Transfers in a batch, beside single changes of the maps.
    fn write(&self, i: u32, seed: u64, rng: &mut Xoshiro256PlusPlus) {
        let accounts = [0, 1].map(|_| rng.random_range(0..ACCOUNTS).to_be_bytes());
        self.noise.put((1000 * i + seed as u32).to_be_bytes(), [seed as u8; 30]).unwrap();
        if i % 100 == 99 {
            self.noise.clear().unwrap();
        }
        let mut batch = self.pool.batch().unwrap();
        self.transfer(&mut batch, accounts);
        if i.is_multiple_of(5) {
            drop(batch)
        } else {
            batch.commit().unwrap()
        }
        self.maps[1].modify("count", |old| Some((old.map_or(0, number) + 1).to_le_bytes())).unwrap();
    }

    /// From one account to another of the same map, and from the second map to the third.
    fn transfer(&self, batch: &mut Batch<'_>, [a, b]: [[u8; 4]; 2]) {
        let maps = &self.maps;
        for (from, to) in [(&maps[0], &maps[0]), (&maps[1], &maps[2])] {
            let is_poor = number(batch.get(from, &a).unwrap().unwrap()) == 0;
            if is_poor || (a == b && std::ptr::eq(from, to)) {
                continue;
            }
            let less = |old: Option<&[u8]>| Some((number(old.unwrap()) - 1).to_le_bytes());
            let more = |old: Option<&[u8]>| Some((number(old.unwrap()) + 1).to_le_bytes());
            batch.modify(from, &a, less).unwrap();
            batch.modify(to, &b, more).unwrap();
        }
    }
}

/// Transfers between accounts in two maps that keep versions and one that does not: every version of one map,
/// and all three in a batch, have what they should.
#[test]
fn readers_see_whole_versions_beside_batches_and_single_changes() {
    let dir = tempfile::tempdir().unwrap();
    let bank = Bank::new(&dir.path().join("a.pool"));
    let (done, walks) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (bank, done, walks) = (&bank, &done, &walks);
        for seed in 0..2 {
            scope.spawn(move || {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
                while !done.load(Ordering::Relaxed) {
                    bank.read(&mut rng);
                    walks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let write = move |seed| {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            (0..400).for_each(|i| bank.write(i, seed, &mut rng));
        };
        let writers: Vec<_> = (2..5).map(|seed| scope.spawn(move || write(seed))).collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    let [x, y, z] = &bank.maps;
    assert_eq!(number(&y.get("count").unwrap().unwrap()), 1200);
    assert_eq!(sum(x.iter()), u64::from(ACCOUNTS) * START);
    assert_eq!(sum(y.iter()) + sum(z.iter()), 2 * u64::from(ACCOUNTS) * START);
    assert!(sum(z.iter()) > u64::from(ACCOUNTS) * START);
    assert!(walks.into_inner() > 3);
    bank.pool.check().unwrap();
}

#[test]
fn the_example_goes_on_where_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stock.pool");
    (0..5).for_each(|_| example::run(&path).unwrap());
    let pool = open(&path);
    let stock = pool.find_map("stock").unwrap().unwrap();
    let names: Vec<_> = stock.snapshots().unwrap().into_iter().map(|kept| kept.name).collect();
    assert_eq!(names, ["sale 3", "sale 4", "sale 5"]);
    assert_eq!(stock.get("apples").unwrap().as_deref(), Some(&15_u64.to_le_bytes()[..]));
    pool.check().unwrap();
}
