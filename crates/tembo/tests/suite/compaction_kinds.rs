//! Compaction of structures of every kind, by counts: the space of what was removed serves everything again,
//! also if the program is killed meanwhile.
//!
//! `TEMBO_KILLS=50 cargo test --release -p tembo --test suite -- whose_program_is_killed --nocapture` is the
//! long form.
#![forbid(unsafe_code)]

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tembo::heap::collections::{PBytes, PHashMap, PMap};
use tembo::heap::{ErrorKind, Heap, NamedBrand, Persist, brand};
use tembo::store::{Keyspace, Store};
use tembo::{Compacted, Durability, Error, FixedMap, HashTable, Map, Options, Pool};

const POOL_BYTES: u64 = 64 << 20;

/// Keys in no order.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// A structure of byte strings.
enum Kind {
    Map(Map),
    Table(HashTable),
    Store(Store, Keyspace),
    Heap(Box<dyn Words>),
}

/// In this order, as a pool with maps gets no heap.
const KINDS: [&str; 5] = ["heap", "map", "versioned", "table", "store"];

/// A pool has one heap, so these are not in one pool.
fn all_kinds() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().chain(["hashed heap"])
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    words: PMap<u64, PBytes>,
}

#[derive(Default, Persist)]
#[repr(C)]
struct HashedRoot {
    words: PHashMap<u64, PBytes>,
}

/// A map in a heap: its nodes are objects, and its values arrays, with one owner each.
trait Words {
    fn put(&self, number: u64, value: &[u8]) -> Result<(), Error>;
    fn remove(&self, number: u64) -> bool;
    fn get(&self, number: u64) -> Option<Vec<u8>>;
}

macro_rules! words {
    ($($root:ty),*) => {$(
        impl<B: NamedBrand> Words for Heap<B, $root> {
            fn put(&self, number: u64, value: &[u8]) -> Result<(), Error> {
                let put = self.write(|tx, root| root.words().insert(tx, &number, PBytes::new())?.set(tx, value));
                Ok(put?)
            }

            fn remove(&self, number: u64) -> bool {
                self.write(|tx, root| root.words().remove(tx, &number)).unwrap()
            }

            fn get(&self, number: u64) -> Option<Vec<u8>> {
                let get = self.read(|tx, root| match root.words().get(tx, &number)? {
                    Some(value) => Ok(Some(value.get(tx)?)),
                    None => Ok(None),
                });
                get.unwrap()
            }
        }
    )*};
}
words!(Root, HashedRoot);

/// The heap of a pool. One with each brand may be open at a time, and tests run at once.
fn open_heap<R: Default + Persist + 'static>(pool: &Pool) -> Box<dyn Words>
where
    Heap<A, R>: Words,
    Heap<B, R>: Words,
    Heap<C, R>: Words,
    Heap<D, R>: Words,
{
    fn open<B: NamedBrand, R: Default + Persist + 'static>(pool: &Pool) -> Option<Box<dyn Words>>
    where
        Heap<B, R>: Words,
    {
        match pool.open_heap::<B, R>() {
            Ok(heap) => Some(Box::new(heap)),
            Err(Error::Heap(e)) if matches!(e.kind(), ErrorKind::BrandInUse { .. }) => None,
            Err(e) => panic!("{e}"),
        }
    }
    let found = open::<A, R>(pool).or_else(|| open::<B, R>(pool)).or_else(|| open::<C, R>(pool));
    found.or_else(|| open::<D, R>(pool)).expect("a brand that is free")
}

brand!(A);
brand!(B);
brand!(C);
brand!(D);

impl Kind {
    fn new(pool: &Pool, kind: &str) -> Kind {
        match kind {
            "map" => Kind::Map(pool.open_map(kind).unwrap()),
            "versioned" => {
                Kind::Map(pool.open_map_with(kind, tembo::MapOptions::new().versioned(true)).unwrap())
            }
            "heap" => Kind::Heap(open_heap::<Root>(pool)),
            "hashed heap" => Kind::Heap(open_heap::<HashedRoot>(pool)),
            "table" => Kind::Table(pool.open_hash_table(kind).unwrap()),
            _ => {
                let store = pool.open_store(kind).unwrap();
                let keyspace = store.keyspace("keys").unwrap();
                Kind::Store(store, keyspace)
            }
        }
    }

    fn put(&self, number: u64, len: usize) -> Result<(), Error> {
        let (key, value) = (key(number), vec![number as u8; len]);
        match self {
            Kind::Heap(heap) => heap.put(number, &value),
            Kind::Map(map) => map.put(key, value).map(drop),
            Kind::Table(table) => table.put(key, value).map(drop),
            Kind::Store(store, keyspace) => store.put(keyspace, key, value).map(drop).map_err(Error::from),
        }
    }

    fn remove(&self, number: u64) {
        let key = key(number);
        match self {
            Kind::Heap(heap) => assert!(heap.remove(number)),
            Kind::Map(map) => assert!(map.remove(key).unwrap()),
            Kind::Table(table) => assert!(table.remove(key).unwrap()),
            Kind::Store(store, keyspace) => _ = store.delete(keyspace, key).unwrap(),
        }
    }

    fn get(&self, number: u64) -> Option<Vec<u8>> {
        let key = key(number);
        match self {
            Kind::Heap(heap) => heap.get(number),
            Kind::Map(map) => map.get(key).unwrap().map(|value| value.to_vec()),
            Kind::Table(table) => table.get(key).unwrap().map(|value| value.to_vec()),
            Kind::Store(store, keyspace) => store.get(keyspace, key).unwrap(),
        }
    }

    /// Frees what only older versions have.
    fn settle(&self) {
        match self {
            Kind::Map(map) if map.is_versioned() => while map.collect(1 << 20).unwrap() {},
            Kind::Map(_) | Kind::Heap(_) => {}
            Kind::Table(table) => while table.collect(1 << 20).unwrap() {},
            Kind::Store(store, _) => while store.collect(1 << 20).unwrap() {},
        }
    }
}

fn new_pool(dir: &tempfile::TempDir, name: &str, max_bytes: u64) -> Pool {
    open_pool(&dir.path().join(name), max_bytes)
}

fn open_pool(path: &Path, max_bytes: u64) -> Pool {
    let options = Options::new()
        .durability(Durability::PageCache)
        .create(true)
        .initial_bytes(1 << 20)
        .max_bytes(max_bytes)
        .count(true);
    options.open(path).unwrap()
}

/// Puts values of this length until the pool is full; returns how many.
fn fill(kind: &Kind, first: u64, len: usize) -> u64 {
    for number in first.. {
        match kind.put(number, len) {
            Ok(()) => {}
            Err(Error::Full { .. }) => return number - first,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

fn used_bytes(pool: &Pool) -> u64 {
    let stats = pool.stats();
    stats.pool_bytes - stats.unused_bytes
}

/// A pool is full of short values, nine tenths of them go, and long ones come: at least three quarters of the
/// pool are keys and values then.
#[test]
fn a_pool_of_any_kind_that_was_full_of_short_values_holds_long_ones() {
    for name in all_kinds() {
        let dir = tempfile::tempdir().unwrap();
        let pool = new_pool(&dir, "full.pool", POOL_BYTES);
        let kind = Kind::new(&pool, name);
        let count = fill(&kind, 0, 100);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut is_kept = |number: &u64| {
            let is_kept = random.random_bool(0.1);
            if !is_kept {
                kind.remove(*number);
            }
            is_kept
        };
        let kept: Vec<u64> = (0..count).filter(|number| is_kept(number)).collect();
        kind.settle();
        let compacted = pool.compact().unwrap();
        let after = fill(&kind, 1 << 32, 1000);
        let payload = after * 1008 + kept.len() as u64 * 108;
        let dense_pool = new_pool(&dir, "dense.pool", POOL_BYTES);
        let dense = 1008 * fill(&Kind::new(&dense_pool, name), 1 << 32, 1000);
        let percent = |bytes: u64| bytes * 100 / POOL_BYTES;
        println!(
            "{name}: {compacted:?}; {}% are alive, {}% in a dense pool",
            percent(payload),
            percent(dense)
        );
        assert!(compacted.freed_bytes > POOL_BYTES / 2, "{name}: {compacted:?}");
        assert!(percent(payload) >= 75, "{name}: {payload}");
        let is_there = |number: &u64| kind.get(*number) == Some(vec![*number as u8; 100]);
        assert!(kept.iter().all(is_there), "{name}");
        drop(kind);
        pool.check().unwrap();
    }
}

/// A pool of fixed length has short values with holes between them, and no room for a further long value: a
/// compaction needs no more. Free then are the 256 KiB that the pool keeps, four times as many where no piece
/// is as long as half of that, and what is too short for a value.
#[test]
fn a_compaction_in_a_full_pool_needs_no_more_than_creation_reserved() {
    const BYTES: u64 = 16 << 20;
    const KEPT_BYTES: u64 = BYTES / 64;
    for name in all_kinds() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new().durability(Durability::PageCache).create(true);
        let options = options.initial_bytes(BYTES).max_bytes(BYTES);
        let pool = options.open(dir.path().join("full.pool")).unwrap();
        pool.set_compact_unasked(false);
        let kind = Kind::new(&pool, name);
        let count = fill(&kind, 0, 100);
        (0..count).filter(|number| number % 10 > 0).for_each(|number| kind.remove(number));
        kind.settle();
        // They take whole chunks, and those that are left slabs of their own.
        let lens = [256 << 10, 64 << 10, 20 << 10, 9 << 10, 5 << 10, 3 << 10];
        let long = lens.map(|len| (len, fill(&kind, (len as u64) << 32, len)));
        let before = pool.stats();
        assert_eq!(before.pool_bytes, BYTES, "{name}");
        assert!(before.unused_bytes <= 4 * KEPT_BYTES + (64 << 10), "{name}: {before:?}");
        let compacted = pool.compact().unwrap_or_else(|e| panic!("{name}: {e}"));
        println!("{name}: {} of {BYTES} bytes unused before, {compacted:?}", before.unused_bytes);
        assert!(compacted.freed_bytes > BYTES / 4, "{name}: {compacted:?}");
        assert!(pool.stats().pool_bytes <= BYTES, "{name}");
        let is_there = |number, len| kind.get(number) == Some(vec![number as u8; len]);
        assert!((0..count).step_by(10).all(|number| is_there(number, 100)), "{name}");
        for (len, count) in long {
            let first = (len as u64) << 32;
            assert!((first..first + count).all(|number| is_there(number, len)), "{name}: {len}");
        }
        drop(kind);
        pool.check().unwrap();
    }
}

/// Puts short values until there are this many, and removes nine tenths of them.
fn thin(map: &Map, count: u64) -> Vec<u64> {
    (0..count).for_each(|number| _ = map.put(key(number), [number as u8; 100]).unwrap());
    let gone = (0..count).filter(|number| number % 10 > 0);
    gone.for_each(|number| assert!(map.remove(key(number)).unwrap()));
    (0..count).step_by(10).collect()
}

/// A change that finds no space compacts the pool, unless that is switched off; so does the next batch.
#[test]
fn a_full_pool_is_compacted_unasked() {
    let fill_over_holes = |is_on: bool| {
        let dir = tempfile::tempdir().unwrap();
        let pool = new_pool(&dir, "full.pool", POOL_BYTES);
        pool.set_compact_unasked(is_on);
        let map = pool.open_map("map").unwrap();
        let kept = thin(&map, 400_000);
        let kind = Kind::Map(map.clone());
        let payload = 1008 * fill(&kind, 1 << 32, 1000) + kept.len() as u64 * 108;
        // Refusals cost no further compaction.
        let before = tembo::snapshot();
        (0..5).for_each(|i| assert!(map.put(key(i + (1 << 40)), [0; 5000]).is_err()));
        println!(
            "{is_on}: {}% are alive; five refusals: {:?}",
            payload * 100 / POOL_BYTES,
            tembo::snapshot() - before
        );
        assert!(kept.iter().all(|number| kind.get(*number) == Some(vec![*number as u8; 100])));
        payload * 100 / POOL_BYTES
    };
    let (with, without) = (fill_over_holes(true), fill_over_holes(false));
    assert!(with >= 75 && without < 30, "{with}% {without}%");
    let dir = tempfile::tempdir().unwrap();
    let pool = new_pool(&dir, "batch.pool", POOL_BYTES);
    let map = pool.open_map("map").unwrap();
    thin(&map, 400_000);
    let put = |i: u64| -> Result<(), Error> {
        let mut batch = pool.batch()?;
        batch.put(&map, &key(i + (1 << 32)), &[7; 1000])?;
        batch.commit()
    };
    let refused = (0..POOL_BYTES / 2 / 1000).filter(|i| put(*i).is_err()).count();
    assert!(refused <= 2, "{refused}");
}

/// Where the pool grows although holes could serve, it is compacted at once and grows no further.
#[test]
fn a_pool_that_grows_over_holes_is_compacted_unasked() {
    let grown = |is_on: bool| {
        let dir = tempfile::tempdir().unwrap();
        let pool = new_pool(&dir, "grows.pool", 1 << 30);
        pool.set_compact_unasked(is_on);
        let map = pool.open_map("map").unwrap();
        thin(&map, 400_000);
        let before = pool.stats().pool_bytes;
        (0..40_000).for_each(|i| _ = map.put(key(i + (1 << 32)), [7; 1000]).unwrap());
        println!("{is_on}: from {before} to {} bytes", pool.stats().pool_bytes);
        pool.stats().pool_bytes - before
    };
    // It grows by at least 16 MiB at a time.
    let (with, without) = (grown(true), grown(false));
    assert!(with <= 17 << 20 && without >= 32 << 20, "{with} {without}");
}

/// Bytes of keys and values that are alive at a time.
const ALIVE: u64 = 8 << 20;
/// The median lengths of the values of five phases.
const MEDIANS: [u64; 5] = [100, 600, 200, 1500, 80];

/// Writes in five phases with values of other lengths, of which always as many bytes are alive. The pool is
/// compacted as a server does it, when a quarter of it is waste.
struct Life<'p> {
    pool: &'p Pool,
    kind: Kind,
    /// Bytes of keys and values that are alive, of these at most.
    bytes: u64,
    alive_bytes: u64,
    /// The numbers of the values that are alive, in the order in which they go.
    alive: BTreeMap<u64, u64>,
    next: u64,
    most_bytes: u64,
}

impl<'p> Life<'p> {
    /// The life of a pool, where the one before ended.
    fn of(pool: &'p Pool, name: &str, alive_bytes: u64) -> Life<'p> {
        let (kind, alive) = (Kind::new(pool, name), BTreeMap::new());
        // The holes of an earlier process are not known before.
        while pool.learn_spare(1 << 20).unwrap() {}
        let mut life = Life { pool, kind, bytes: 0, alive_bytes, alive, next: 0, most_bytes: 0 };
        for number in 0..life.end() {
            if let Some(value) = life.kind.get(number) {
                assert!(value == life.value(number), "{name}: {number}");
                life.note(number);
                life.next = number + 1;
            }
        }
        life
    }

    /// Values of each phase: half as many bytes more than are alive at a time.
    fn count_of(&self, median: u64) -> u64 {
        3 * self.alive_bytes / 2 / (median + 8)
    }

    fn end(&self) -> u64 {
        MEDIANS.iter().map(|median| self.count_of(*median)).sum()
    }

    fn value(&self, number: u64) -> Vec<u8> {
        let mut first = 0;
        let phase = MEDIANS.iter().find(|median| {
            first += self.count_of(**median);
            number < first
        });
        let median = *phase.expect("the number is one of a phase");
        vec![number as u8; (median / 2 + Self::order(number) % median) as usize]
    }

    /// A number for each value, at random.
    fn order(number: u64) -> u64 {
        Xoshiro256PlusPlus::seed_from_u64(number).random()
    }

    fn note(&mut self, number: u64) {
        self.bytes += self.value(number).len() as u64 + 8;
        self.alive.insert(Self::order(number), number);
    }

    fn go_on(&mut self) {
        while self.next < self.end() {
            let number = self.next;
            self.kind.put(number, self.value(number).len()).unwrap();
            self.note(number);
            self.next += 1;
            while self.bytes > self.alive_bytes {
                let (_, number) = self.alive.pop_first().unwrap();
                self.kind.remove(number);
                self.bytes -= self.value(number).len() as u64 + 8;
            }
            if number.is_multiple_of(500) {
                self.look_at_size();
            }
        }
    }

    /// Compacts a pool with much waste, and notes how large it is then.
    fn look_at_size(&mut self) {
        self.kind.settle();
        if self.pool.spare_bytes() > used_bytes(self.pool) / 4 {
            self.pool.compact().unwrap();
        }
        self.most_bytes = self.most_bytes.max(used_bytes(self.pool));
    }

    /// Compares the pool's size with that of a fresh one with the same contents.
    fn assert_small(self, name: &str) {
        self.kind.settle();
        self.pool.compact().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let fresh_pool = new_pool(&dir, "fresh.pool", 256 << 20);
        let fresh = Kind::new(&fresh_pool, name);
        self.alive.values().for_each(|i| fresh.put(*i, self.value(*i).len()).unwrap());
        fresh.settle();
        fresh_pool.trim().unwrap();
        let (now, most, ideal) = (used_bytes(self.pool), self.most_bytes, used_bytes(&fresh_pool));
        let percent = |bytes: u64| bytes * 100 / ideal;
        println!("{name}: {now} bytes, {}% of a fresh pool's, and {}% at most", percent(now), percent(most));
        assert!(percent(now) <= 115 && percent(most) <= 150, "{name}: {now} {most} {ideal}");
        assert!(self.alive.values().all(|i| self.kind.get(*i) == Some(self.value(*i))), "{name}");
    }
}

/// In the end the pool is hardly larger than a fresh one.
#[test]
fn a_pool_follows_what_is_alive_in_it_whatever_its_past() {
    for name in all_kinds() {
        let dir = tempfile::tempdir().unwrap();
        let pool = new_pool(&dir, "old.pool", 256 << 20);
        let mut life = Life::of(&pool, name, ALIVE);
        life.go_on();
        life.assert_small(name);
        pool.check().unwrap();
    }
}

/// Where the program that is killed finds its pool; only it has this.
const PATH: &str = "TEMBO_PHASES_PATH";
const KIND: &str = "TEMBO_PHASES_KIND";

#[test]
fn phases_program() {
    let (Ok(path), Ok(kind)) = (std::env::var(PATH), std::env::var(KIND)) else { return };
    let pool = open_pool(Path::new(&path), 256 << 20);
    Life::of(&pool, &kind, ALIVE).go_on();
}

/// The same with kill -9 in the middle, again and again.
#[test]
fn a_pool_whose_program_is_killed_follows_what_is_alive_in_it() {
    let kills: u64 = std::env::var("TEMBO_KILLS").map_or(4, |text| text.parse::<u64>().unwrap().min(50));
    for name in all_kinds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.pool");
        let (mut most, mut most_at_once, mut reached) = (0, 0, Vec::new());
        for round in 0..kills {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--exact", "compaction_kinds::phases_program", "--test-threads", "1"])
                .env(PATH, &path)
                .env(KIND, name);
            let mut child = command.stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(300 + round * 7919 % 1000));
            child.kill().unwrap();
            child.wait().unwrap();
            let pool = open_pool(&path, 256 << 20);
            pool.check().unwrap();
            most_at_once = most_at_once.max(used_bytes(&pool));
            let mut life = Life::of(&pool, name, ALIVE);
            life.look_at_size();
            most = most.max(life.most_bytes);
            reached.push(life.next);
            if life.next == life.end() {
                break;
            }
        }
        println!("{name}: killed at {reached:?}, at most {most_at_once} bytes as the kills left it");
        let pool = open_pool(&path, 256 << 20);
        let mut life = Life::of(&pool, name, ALIVE);
        life.most_bytes = most;
        life.go_on();
        life.assert_small(name);
        pool.check().unwrap();
    }
}

/// Nothing moves where there is nothing to gain: no word is stored, and nothing is fenced.
#[test]
fn compacted_structures_of_every_kind_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let pool = new_pool(&dir, "golden.pool", POOL_BYTES);
    let kinds = KINDS.map(|name| Kind::new(&pool, name));
    let fixed: FixedMap = pool.open_fixed_map("fixed").unwrap();
    for kind in &kinds {
        (0..4000).for_each(|number| kind.put(number, 60).unwrap());
        (0..4000).filter(|number| number % 8 > 0).for_each(|number| kind.remove(number));
        kind.settle();
    }
    (0..20_000).for_each(|key| _ = fixed.put(key, key).unwrap());
    (0..20_000).filter(|key| key % 2000 > 200).for_each(|key| _ = fixed.remove(key).unwrap());
    let first = pool.compact().unwrap();
    println!("{first:?}");
    assert!(first.moved_bytes > 100_000 && first.freed_bytes > 1 << 19, "{first:?}");
    let calls = (1..5).find(|_| pool.compact().unwrap() == Compacted::default());
    println!("{calls:?} more calls");
    assert!(calls.is_some());
    let versions = |pool: &Pool| pool.find_map("versioned").unwrap().unwrap().version().unwrap();
    let (before, version) = (tembo::snapshot(), versions(&pool));
    assert_eq!(pool.compact().unwrap(), Compacted::default());
    assert_eq!((tembo::snapshot() - before, versions(&pool)), (tembo::Counts::default(), version));
    assert!(
        fixed
            .iter()
            .map(Result::unwrap)
            .eq((0..20_000).filter(|key| key % 2000 <= 200).map(|key| (key, key)))
    );
    drop((kinds, fixed));
    pool.check().unwrap();
}
