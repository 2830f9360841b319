//! A forked process can do nothing, and no harm, with the handles of its parent.
//!
//! (A child that returned from `main` unlocked its parent's pool, after which another process got in; one
//! that wrote once damaged it.)

#[path = "fork/child.rs"]
mod child;

use child::{begin, exec_true, panic_text};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tembo::heap::collections::PVec;
use tembo::heap::{self, Heap, brand};
use tembo::{
    Cursor, Entry, Error, FixedMap, HashTable, Map, MapOptions, Options, Pool, PoolErrorKind, Snapshot,
};

const REFUSED: &str = "this process was forked from the one that opened the pool";

/// A pool with something of each kind, and the directory that it lies in.
struct World {
    _dir: tempfile::TempDir,
    path: PathBuf,
    pool: Pool,
    map: Map,
    versioned: Map,
    fixed: FixedMap,
    table: HashTable,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pool");
        let pool = Options::new().create(true).initial_bytes(4 << 20).open(&path).unwrap();
        let map = pool.open_map("map").unwrap();
        let versioned = pool.open_map_with("versioned", MapOptions::new().versioned(true)).unwrap();
        let fixed = pool.open_fixed_map("fixed").unwrap();
        let table = pool.open_hash_table("table").unwrap();
        for i in 0..500u64 {
            let (key, value) = (format!("the key {i:04}"), "v".repeat(i as usize));
            map.put(&key, &value).unwrap();
            versioned.put(&key, &value).unwrap();
            table.put(&key, &value).unwrap();
            fixed.put(i, i).unwrap();
        }
        versioned.snapshot().unwrap().keep("kept").unwrap();
        World { _dir: dir, path, pool, map, versioned, fixed, table }
    }

    /// The pool is this process's alone, and undamaged.
    fn assert_whole(&self) {
        let opened = Options::new().open(&self.path);
        assert!(
            matches!(&opened, Err(Error::Pool(e)) if matches!(e.kind(), PoolErrorKind::Locked { .. })),
            "somebody else got in: {opened:?}"
        );
        self.map.put("after", "it").unwrap();
        self.fixed.put(1, 1).unwrap();
        self.pool.check().unwrap();
    }
}

/// The outcome of an attempt: nothing if it was refused, by an error or by a panic that says why.
fn refusal<T>(name: &str, attempt: impl FnOnce() -> tembo::Result<T>) -> String {
    match catch_unwind(AssertUnwindSafe(attempt)) {
        Ok(Err(Error::Pool(e))) if matches!(e.kind(), PoolErrorKind::Forked) => String::new(),
        Ok(Err(error)) => format!("{name}: {error}\n"),
        Ok(Ok(_)) => format!("{name} was done\n"),
        Err(panic) if panic_text(&*panic).contains(REFUSED) => String::new(),
        Err(panic) => format!("{name} panicked: {}\n", panic_text(&*panic)),
    }
}

macro_rules! refusals {
    ($($attempt:expr;)*) => {
        [$(refusal(stringify!($attempt), || $attempt)),*].concat()
    };
}

fn changes(map: &Map) -> String {
    refusals! {
        map.put("the key 0001", "new");
        map.put("new", "x".repeat(9000));
        map.insert("other", "new");
        map.update("the key 0001", "new");
        map.compare_and_swap("the key 0002", Some(b"vv"), None);
        map.modify("the key 0003", |_| Some("new"));
        map.remove("the key 0004");
        map.pop_first();
        map.pop_last();
        map.remove_range("the key 0005".."the key 0009");
        map.clear();
    }
}

fn reads(map: &Map) -> String {
    refusals! {
        map.get("the key 0100").map(|value| value.map(|value| value.len()));
        map.contains_key("the key 0100");
        map.len();
        map.is_empty();
        map.first().map(drop);
        map.last().map(drop);
        map.iter().next().unwrap().map(drop);
        map.range("the key 0007"..).next_back().unwrap().map(drop);
        map.prefix("the key").next().unwrap().map(drop);
        map.scan("the key 0007".., 10);
        map.cursor().seek_first();
        map.cursor().seek("the key 0300");
    }
}

fn calls_of_fixed_map(fixed: &FixedMap) -> String {
    refusals! {
        fixed.get(7);
        fixed.put(7, 8);
        fixed.insert(1000, 8);
        fixed.update(7, 8);
        fixed.compare_and_swap(7, 7, 8);
        fixed.remove(7);
        fixed.remove_range(..);
        fixed.scan(0, 10, &mut Vec::new());
        fixed.scan_back(500, 10, &mut Vec::new());
        fixed.first();
        fixed.last();
        fixed.count();
    }
}

fn calls_of_table(table: &HashTable) -> String {
    refusals! {
        table.get("the key 0001").map(drop);
        table.put("the key 0001", "new");
        table.insert("new", "new");
        table.remove("the key 0001");
        table.modify("the key 0001", |_| Some("new"));
        table.clear();
        table.batch(|batch| batch.put("key", "value"));
        Ok(table.snapshot());
        Ok(table.snapshots());
        table.open_snapshot("kept");
        table.collect(10);
    }
}

fn calls_of_versions(versioned: &Map, snapshot: &Snapshot) -> String {
    refusals! {
        versioned.snapshot();
        versioned.snapshot_at(1);
        versioned.version();
        versioned.snapshots();
        versioned.open_snapshot("kept");
        versioned.drop_snapshot("kept");
        versioned.rollback_to(snapshot);
        versioned.collect(10);
        versioned.version_stats();
        snapshot.get("the key 0001").map(drop);
        snapshot.iter().next().unwrap().map(drop);
        snapshot.keep("again");
        snapshot.diff(snapshot);
        Ok(snapshot.clone());
    }
}

fn calls_of_pool(pool: &Pool) -> String {
    refusals! {
        pool.open_map("map");
        pool.open_map("new");
        pool.find_map("versioned");
        pool.open_fixed_map("new");
        pool.find_fixed_map("fixed");
        pool.open_hash_table("new");
        pool.map_names();
        pool.fixed_map_names();
        pool.hash_tables();
        pool.describe_heap();
        pool.batch().map(drop);
        pool.trim();
        pool.check();
        Ok(pool.stats());
    }
}

fn calls_of_entry(at: usize, entry: &Entry<'_>) -> String {
    let key = refusal(&format!("key of entry {at}"), || Ok(entry.key()[0]));
    key + &refusal(&format!("value of entry {at}"), || Ok(entry.value().first().copied()))
}

fn calls_of_cursor(at: usize, cursor: &mut Cursor<'_>) -> String {
    let mut said = refusal(&format!("key at cursor {at}"), || Ok(cursor.key().map(|key| key[0])));
    said += &refusal(&format!("value at cursor {at}"), || Ok(cursor.value().map(|value| value[0])));
    said += &refusal(&format!("next of cursor {at}"), || cursor.next());
    said + &refusal(&format!("prev of cursor {at}"), || cursor.prev())
}

#[test]
fn a_child_is_refused_every_operation() {
    let world = World::new();
    let World { pool, map, versioned, fixed, table, .. } = &world;
    let (value, newest) =
        (map.get("the key 0100").unwrap().unwrap(), versioned.get("the key 0100").unwrap().unwrap());
    let snapshot = versioned.snapshot().unwrap();
    let held = snapshot.get("the key 0100").unwrap().unwrap();
    let entries = [
        map.first().unwrap().unwrap(),
        versioned.first().unwrap().unwrap(),
        snapshot.first().unwrap().unwrap(),
    ];
    let mut walks = [map.iter(), versioned.iter(), snapshot.iter()];
    let mut fixed_walk = fixed.iter();
    let mut cursors = [map.cursor(), versioned.cursor()];
    walks.iter_mut().for_each(|walk| drop(walk.next().unwrap().unwrap()));
    fixed_walk.next().unwrap().unwrap();
    cursors.iter_mut().for_each(|cursor| assert!(cursor.seek("the key 0200").unwrap()));
    let mut batch = pool.batch().unwrap();
    batch.put(map, b"in a batch", b"new").unwrap();
    let said = begin(true, || {
        let mut said = [changes(map), changes(versioned), reads(map), reads(versioned)].concat();
        said += &[calls_of_fixed_map(fixed), calls_of_table(table)].concat();
        said += &[calls_of_versions(versioned, &snapshot), calls_of_pool(pool)].concat();
        said += &refusals! {
            batch.put(map, b"key", b"value").map(drop);
            batch.get(map, b"the key 0001").map(drop);
            batch.commit();
            fixed_walk.next().unwrap();
            Ok(value[0]);
            Ok(newest[0]);
            Ok(held[0]);
        };
        for (at, entry) in entries.iter().enumerate() {
            said += &calls_of_entry(at, entry);
        }
        for (at, walk) in walks.iter_mut().enumerate() {
            said += &refusal(&format!("step of walk {at}"), || walk.next().unwrap().map(drop));
        }
        for (at, cursor) in cursors.iter_mut().enumerate() {
            said += &calls_of_cursor(at, cursor);
        }
        said
    });
    assert_eq!(said.end(), "");
    batch_is_ours(&world);
}

/// After what the child has done.
fn batch_is_ours(world: &World) {
    world.assert_whole();
    assert_eq!(world.map.get("the key 0001").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!((world.fixed.get(7).unwrap(), world.table.len()), (Some(7), 500));
}

/// The child has its own copies of all handles, and its end drops them: what `main` has on its stack, and
/// what threads keep.
#[test]
fn a_child_that_drops_everything_and_returns_leaves_lock_and_pool_alone() {
    for at_once in [false, true] {
        let world = World::new();
        let other = World { _dir: tempfile::tempdir().unwrap(), path: world.path.clone(), ..clones(&world) };
        let snapshot = other.versioned.snapshot().unwrap();
        let said = begin(at_once, move || {
            drop(snapshot);
            drop(other);
            String::new()
        });
        for i in 0..200u64 {
            world.map.put(format!("meanwhile {i}"), "x").unwrap();
        }
        assert_eq!(said.end(), "");
        world.assert_whole();
    }
    let world = World::new();
    assert_eq!(begin(true, exec_true).end(), "");
    world.assert_whole();
}

fn clones(world: &World) -> World {
    World {
        _dir: tempfile::tempdir().unwrap(),
        path: world.path.clone(),
        pool: world.pool.clone(),
        map: world.map.clone(),
        versioned: world.versioned.clone(),
        fixed: world.fixed.clone(),
        table: world.table.clone(),
    }
}

#[test]
fn a_child_opens_the_pool_itself_when_its_parent_has_closed_it() {
    let world = World::new();
    let (path, closed) = (world.path.clone(), world.path.with_extension("closed"));
    let said = begin(true, || {
        let early = Options::new().open(&path).unwrap_err();
        if !matches!(&early, Error::Pool(e) if matches!(e.kind(), PoolErrorKind::Locked { .. })) {
            return format!("while the parent had it: {early}");
        }
        while !closed.exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let pool = Options::new().open(&path).unwrap();
        let (map, fixed) = (pool.open_map("map").unwrap(), pool.open_fixed_map("fixed").unwrap());
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (map, fixed) = (&map, &fixed);
                scope.spawn(move || {
                    for i in 0..300 {
                        map.put(format!("child {thread} {i}"), "x").unwrap();
                        fixed.put(1000 + 3 * i + thread, i).unwrap();
                    }
                });
            }
        });
        pool.check().unwrap();
        String::new()
    });
    let (_dir, path) = (world._dir, world.path);
    drop((world.map, world.versioned, world.fixed, world.table, world.pool));
    std::fs::write(path.with_extension("closed"), "").unwrap();
    assert_eq!(said.end(), "");
    let pool = Options::new().open(&path).unwrap();
    assert_eq!(pool.open_map("map").unwrap().len().unwrap(), 500 + 900);
    pool.check().unwrap();
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Locks that other threads have at that moment are never released in the child.
#[test]
fn a_child_waits_for_nothing_that_a_thread_of_its_parent_had() {
    let world = World::new();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (World { map, versioned, fixed, table, pool, .. }, stop, written) = (&world, &stop, &written);
            scope.spawn(move || {
                for i in (thread..).step_by(4).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let key = format!("thread {}", i % 997);
                    match i / 4 % 6 {
                        0 => _ = map.put(&key, &key).unwrap(),
                        1 => _ = versioned.put(&key, &key).unwrap(),
                        2 => _ = table.put(&key, &key).unwrap(),
                        3 => _ = fixed.put(i % 997, i).unwrap(),
                        4 => drop(versioned.snapshot().unwrap()),
                        _ => {
                            let mut batch = pool.batch().unwrap();
                            batch.put(map, key.as_bytes(), b"batch").unwrap();
                            batch.commit().unwrap();
                        }
                    }
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // The threads end with the rounds, also when one of these fails.
        let _stop = StopOnDrop(&stop);
        for round in 0..20 {
            let begun = written.load(Ordering::Relaxed);
            while written.load(Ordering::Relaxed) < begun + 20 {
                std::thread::yield_now();
            }
            let own = clones(&world);
            let said = begin(round % 2 == 0, move || {
                let World { map, versioned, fixed, table, pool, .. } = &own;
                let said = refusals! {
                    map.put("a", "b");
                    map.get("a").map(drop);
                    map.scan::<&str>(.., 10);
                    versioned.put("a", "b");
                    versioned.snapshot();
                    fixed.put(3, 4);
                    fixed.count();
                    table.put("a", "b");
                    pool.batch().map(drop);
                    pool.open_map("new");
                    Ok(pool.stats());
                };
                drop(own);
                said
            });
            assert_eq!(said.end(), "", "round {round}");
        }
    });
    world.assert_whole();
}

brand!(Forked);

#[test]
fn a_child_is_refused_a_heap_and_may_fork_in_a_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.heap");
    let mut options = tembo_pool::Options::new();
    (options.create, options.initial_bytes) = (true, 4 << 20);
    let heap = Heap::<Forked, PVec<u64>>::open(&path, &options).unwrap();
    heap.write(|tx, root| (0..100).try_for_each(|i| root.push(tx, i).map(drop))).unwrap();
    let forked = |outcome: Result<(), heap::Error>| match outcome {
        Err(e) if matches!(e.pool_error().map(tembo_pool::Error::kind), Some(PoolErrorKind::Forked)) => {
            String::new()
        }
        other => format!("{other:?}\n"),
    };
    let said = begin(false, || {
        let said = [
            forked(heap.read(|tx, root| root.len(tx).map(drop))),
            forked(heap.write(|tx, root| root.push(tx, 1).map(drop))),
            forked(heap.collect()),
        ];
        said.concat()
    });
    assert_eq!(said.end(), "");
    heap.write(|tx, root| {
        root.push(tx, 100)?;
        let said = begin(true, || {
            let written = (0..10_000).try_for_each(|i| root.push(tx, i).map(drop));
            forked(written)
        });
        // A transaction reads without a look whether its process is another by now, and such a read ends the
        // child.
        let (said, status) = said.end_somehow();
        assert!(said.is_empty() && [0, libc::SIGSEGV].contains(&status), "{said:?}, {status}");
        root.push(tx, 101).map(drop)
    })
    .unwrap();
    let length = heap.read(|tx, root| root.len(tx)).unwrap();
    assert_eq!(length, 102);
    let opened = tembo_pool::Pool::open(&path, &tembo_pool::Options::new());
    assert!(
        matches!(opened, Err(e) if matches!(e.kind(), PoolErrorKind::Locked { .. })),
        "somebody else got in"
    );
    drop(heap);
    Options::new().open(&path).unwrap().check().unwrap();
}
