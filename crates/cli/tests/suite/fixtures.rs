//! Pools that earlier builds made are opened, checked, dumped and written to.
//!
//! `tests/fixtures` has, for each version of the format, pools with every kind of structure, and of each the
//! dump that is expected:
//!
//! | pool | is |
//! |---|---|
//! | `clean` | closed, without dropped maps |
//! | `dropping` | closed, with dropped maps whose space has not all come back |
//! | `killed` | without dropped maps, as `kill -9` left it among changes of everything |
//! | `killed-dropping` | the same of `dropping` |
//! | `unknown` | `clean` with a root of a kind that nobody knows |
//! | `other-heap` | `clean` with a heap of an earlier format |
//!
//! `v1` is from builds that did not announce the word of the opening (`Feature::Opening`), `v2` from those
//! that do.
//!
//! `TEMBO_FIXTURES=v2 cargo test -p tembo-cli --test suite fixtures` makes those of the present build, under
//! the prefix `v2`, which is to be in [`VERSIONS`]. Those of earlier versions stay as they are.

use crate::raw::RawStore;
use crate::serve::Server;
use crate::support::Workspace;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use tembo::heap::collections::{PBox, PBytes, PHashMap, PMap, PString, PVec};
use tembo::heap::{Error, Heap, PArr, PRc, PWeak, Persist, Plain};
use tembo::{Geometry, MapOptions, Options, Pool};

/// The prefixes of the fixtures that there are.
pub(crate) const VERSIONS: [&str; 2] = ["v1", "v2"];
pub(crate) const POOLS: [&str; 6] =
    ["clean", "dropping", "killed", "killed-dropping", "unknown", "other-heap"];
/// 2100-01-01, in seconds since 1970.
const DEADLINE_UNIX_S: u64 = 4_102_444_800;

tembo::heap::brand!(Fixture);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Persist, Plain)]
#[repr(C)]
struct Point {
    x: i64,
    y: i64,
}

#[derive(Default, Persist)]
#[repr(C)]
struct Node {
    value: u64,
    next: PRc<Node>,
}

/// One of every kind of field.
#[derive(Default, Persist)]
#[repr(C)]
struct Everything {
    /// How often it was changed.
    round: u64,
    text: PString,
    bytes: PBytes,
    list: PVec<u64>,
    by_name: PHashMap<PString, u64>,
    by_number: PMap<u64, Point>,
    boxed: PBox<Point>,
    first: PRc<Node>,
    second: PWeak<Node>,
    array: PArr<u64>,
}

/// Changes every field, the round included.
fn change_heap(heap: &Heap<Fixture, Everything>) {
    let outcome = heap.write(|tx, root| -> Result<(), Error> {
        let round = tx.get(root.round())? + 1;
        tx.set(root.round(), round)?;
        root.text().set(tx, &format!("this is the text of round {round}"))?;
        root.bytes().set(tx, &[round as u8; 300])?;
        let node = tx.alloc(Node { value: round, next: PRc::null() })?;
        let first = tx.load(root.first())?;
        tx.link(node.next(), first)?;
        tx.link(root.first(), node)?;
        tx.link_weak(root.second(), first)?;
        let array = tx.alloc_array(20, |i| round * 100 + i as u64)?;
        tx.link_array(root.array(), array)?;
        root.boxed().fill(tx, Point { x: round as i64, y: -1 })?;
        for i in 0..30 {
            root.list().push(tx, round * 1000 + i)?;
            root.by_name().insert(tx, &format!("name {i} of round {round}"), i)?;
            root.by_number().insert(tx, &(round * 1000 + i), Point { x: i as i64, y: round as i64 })?;
        }
        root.by_name().remove(tx, &format!("name 7 of round {round}"))?;
        Ok(())
    });
    outcome.unwrap();
}

/// Compares every field with what its round makes of it; returns the round.
fn read_heap(heap: &Heap<Fixture, Everything>) -> u64 {
    let outcome = heap.read(|tx, root| -> Result<u64, Error> {
        let round = tx.get(root.round())?;
        assert_eq!(root.text().get(tx)?, format!("this is the text of round {round}"));
        assert_eq!(root.bytes().get(tx)?, [round as u8; 300]);
        let numbers = || (1..=round).flat_map(|round| (0..30).map(move |i| (round, i)));
        assert_eq!(root.list().to_vec(tx)?, numbers().map(|(round, i)| round * 1000 + i).collect::<Vec<_>>());
        for (of, i) in numbers() {
            let named = root.by_name().value(tx, &format!("name {i} of round {of}"))?;
            assert_eq!(named, (i != 7).then_some(i));
            let numbered = root.by_number().value(tx, &(of * 1000 + i))?;
            assert_eq!(numbered, Some(Point { x: i as i64, y: of as i64 }));
        }
        assert_eq!(root.by_name().len(tx)? as u64, 29 * round);
        assert_eq!(root.by_number().len(tx)? as u64, 30 * round);
        let boxed = root.boxed().open(tx)?.expect("a box with something in it");
        assert_eq!(tx.get(boxed)?, Point { x: round as i64, y: -1 });
        let mut node = tx.load(root.first())?;
        for expected in (1..=round).rev() {
            let found = node.expect("as many nodes as rounds");
            assert_eq!(tx.get(found.value())?, expected);
            node = tx.load(found.next())?;
        }
        assert!(node.is_none());
        let second = tx.upgrade(root.second())?;
        assert_eq!(
            second.map(|node| tx.get(node.value())).transpose()?,
            round.checked_sub(1).filter(|of| *of > 0)
        );
        let array = tx.array(root.array())?.expect("an array");
        assert_eq!(tx.get(array.at(19))?, round * 100 + 19);
        Ok(round)
    });
    outcome.unwrap()
}

/// Changes every map, and makes those that are not there.
fn change_maps(pool: &Pool, round: u64) {
    let plain = pool.open_map("plain").unwrap();
    let versioned = pool.open_map_with("versioned", MapOptions::new().versioned(true)).unwrap();
    let hash = pool.open_hash_table("hash").unwrap();
    let fixed = pool.open_fixed_map("fixed").unwrap();
    for i in 0..60 {
        let (key, value) = (format!("key {i}"), format!("value {i} of round {round}").repeat(1 + i % 3));
        plain.put(&key, &value).unwrap();
        versioned.put(&key, &value).unwrap();
        hash.put(&key, &value).unwrap();
        fixed.put(i as u64 * round, i as u64).unwrap();
    }
    plain.put(vec![b'k'; 3000], vec![0; 9000]).unwrap();
    versioned.snapshot().unwrap().keep(&format!("after round {round}")).unwrap();
    hash.snapshot().keep(&format!("after round {round}")).unwrap();
    for i in (0..60).step_by(3) {
        let key = format!("key {i}");
        plain.remove(&key).unwrap();
        versioned.remove(&key).unwrap();
        hash.remove(&key).unwrap();
        fixed.remove(i * round).unwrap();
    }
    let mut batch = pool.batch().unwrap();
    batch.put(&plain, b"of a batch", b"1").unwrap();
    batch.put(&versioned, b"of a batch", b"2").unwrap();
    batch.commit().unwrap();
    // Some of it dies as a whole.
    let cleared = pool.open_map("cleared").unwrap();
    (0..40_u64).for_each(|i| _ = cleared.put(i.to_be_bytes(), "x").unwrap());
    cleared.clear().unwrap();
}

/// Makes maps of all kinds and drops them, with some of their space given back.
fn drop_maps(pool: &Pool) {
    let (options, count) = (MapOptions::new().versioned(true), 100_u64);
    let versioned = pool.open_map_with("gone versioned", options).unwrap();
    let (plain, hash) = (pool.open_map("gone plain").unwrap(), pool.open_hash_table("gone hash").unwrap());
    let fixed = pool.open_fixed_map("gone fixed").unwrap();
    for i in 0..count {
        versioned.put(i.to_be_bytes(), "some value").unwrap();
        plain.put(i.to_be_bytes(), "some value").unwrap();
        hash.put(i.to_be_bytes(), "some value").unwrap();
        fixed.put(i, i).unwrap();
    }
    versioned.snapshot().unwrap().keep("kept").unwrap();
    versioned.clear().unwrap();
    drop((versioned, plain, hash, fixed));
    for (name, steps) in [("gone plain", 2), ("gone fixed", 1), ("gone hash", 3), ("gone versioned", 2)] {
        assert!(pool.drop_map(name).unwrap());
        assert!(pool.reclaim_dropped(steps).unwrap());
    }
}

pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Adds a pool to the fixtures, as it is at this moment, with its dump.
fn keep(workspace: &Workspace, version: &str, name: &str, pool: &Path) {
    let copy = workspace.path(&format!("{name}.copy"));
    std::fs::copy(pool, &copy).unwrap();
    let dump = workspace.run(&format!("dump --skip-unknown --accept-unclean {name}.copy")).ok().stdout;
    let base = directory().join(format!("{version}-{name}"));
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&std::fs::read(&copy).unwrap()).unwrap();
    let packed = packed.finish().unwrap();
    println!("{}: {} bytes", base.display(), packed.len());
    std::fs::write(base.with_extension("pool.gz"), packed).unwrap();
    std::fs::write(base.with_extension("jsonl"), dump).unwrap();
}

fn make(version: &str) {
    std::fs::create_dir_all(directory()).unwrap();
    let workspace = Workspace::new();
    let path = workspace.path("fixture.pool");
    let geometry =
        Geometry { chunk_bytes: 4096, zone_chunks: 512, lane_count: 16, lane_bytes: 2048, root_count: 64 };
    let options = Options::new().initial_bytes(512 << 10).geometry(geometry);
    let pool = RawStore::open(&path, &options.create_new(true));
    change_heap(&Heap::open_pool(pool.raw().clone()).unwrap());
    change_maps(&pool, 1);
    drop(pool);
    let server = Server::start(&workspace, "--pool fixture.pool");
    server.ask("SET greeting hello", "+OK\r\n");
    server.ask(&format!("SET late value EXAT {DEADLINE_UNIX_S}"), "+OK\r\n");
    server.ask("APPEND greeting !", ":6\r\n");
    server.stop();
    keep(&workspace, version, "clean", &path);

    let open = || RawStore::open(&path, &Options::new());
    let clean = std::fs::read(&path).unwrap();
    let pool = open();
    let mut lane = pool.raw().lane().unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc_zeroed(500).unwrap();
    tx.set_root("future", u32::from_le_bytes(*b"NEW1"), block).unwrap();
    tx.commit().unwrap();
    drop((lane, pool));
    keep(&workspace, version, "unknown", &path);

    std::fs::write(&path, &clean).unwrap();
    let pool = open();
    let heap = pool.raw().root("heap").unwrap().unwrap().off;
    pool.raw().region().store_u64(heap, u64::from_le_bytes(*b"TMBHEAP2")).unwrap();
    drop(pool);
    keep(&workspace, version, "other-heap", &path);

    std::fs::write(&path, &clean).unwrap();
    keep_killed(&workspace, version, "killed", &path);

    std::fs::write(&path, &clean).unwrap();
    drop_maps(&open());
    keep(&workspace, version, "dropping", &path);
    keep_killed(&workspace, version, "killed-dropping", &path);
}

/// Changes everything, and keeps the pool as it is while all of it is open: this is what the system has of
/// the file when the process is killed.
fn keep_killed(workspace: &Workspace, version: &str, name: &str, path: &Path) {
    let pool = RawStore::open(path, &Options::new());
    let heap = Heap::open_pool(pool.raw().clone()).unwrap();
    change_heap(&heap);
    change_maps(&pool, 2);
    change_heap(&heap);
    keep(workspace, version, name, path);
}

/// A fixture's pool, and its dump.
pub(crate) fn unpack(workspace: &Workspace, version: &str, name: &str) -> (PathBuf, String) {
    let path = unpack_pool(workspace, version, name);
    let dump = directory().join(format!("{version}-{name}.jsonl"));
    (path, std::fs::read_to_string(dump).unwrap())
}

/// A fixture's pool.
pub(crate) fn unpack_pool(workspace: &Workspace, version: &str, name: &str) -> PathBuf {
    let packed = std::fs::read(directory().join(format!("{version}-{name}.pool.gz"))).unwrap();
    let mut pool = Vec::new();
    GzDecoder::new(&*packed).read_to_end(&mut pool).unwrap();
    let path = workspace.path(&format!("{version}-{name}.pool"));
    std::fs::write(&path, pool).unwrap();
    path
}

/// An earlier build dumped 10,000 of 20,666 entries of a later pool, and no pool of an earlier build was kept
/// to be tried.
#[test]
fn pools_of_every_format_are_checked_dumped_and_written_to() {
    if let Some(version) = std::env::var_os("TEMBO_FIXTURES") {
        make(version.to_str().expect("a prefix for the names of files"));
    }
    for (version, name) in VERSIONS.iter().flat_map(|version| POOLS.map(|name| (*version, name))) {
        let workspace = Workspace::new();
        let (path, dump) = unpack(&workspace, version, name);
        let file = path.file_name().unwrap().to_str().unwrap();
        let is_known = !["unknown", "other-heap"].contains(&name);
        let checked = workspace.run(&format!("check {file} --json"));
        assert_eq!(
            (checked.code, &checked.json()["kind"] == "unknown"),
            (Some(if is_known { 0 } else { 6 }), !is_known)
        );
        assert!(!checked.text().contains("damaged"), "{checked:?}");
        assert!(checked.json()["maps"].as_u64() >= Some(6), "{checked:?}");
        let dumped = workspace.run(&format!("dump {file} --skip-unknown --accept-unclean")).ok().text();
        assert!(dumped == dump, "{version}-{name} has another dump");
        workspace.run(&format!("info {file}")).ok();

        let pool = RawStore::open(&path, &Options::new().accept_unclean(true));
        let was_killed = name.starts_with("killed");
        assert_eq!(pool.recovery().records_replayed > 0, was_killed, "{version}-{name}");
        let rounds = if was_killed { 3 } else { 1 };
        if name == "other-heap" {
            let refused = Heap::<Fixture, Everything>::open_pool(pool.raw().clone()).map(drop).unwrap_err();
            assert!(refused.to_string().contains("format 2"), "{refused}");
        } else {
            let heap = Heap::open_pool(pool.raw().clone()).unwrap();
            assert_eq!(read_heap(&heap), rounds, "{version}-{name}");
            change_heap(&heap);
            assert_eq!(read_heap(&heap), rounds + 1);
        }
        let versioned = pool.find_map("versioned").unwrap().unwrap();
        let kept = versioned.open_snapshot("after round 1").unwrap();
        assert_eq!(kept.get("key 3").unwrap().as_deref(), Some(b"value 3 of round 1".as_slice()));
        assert_eq!(pool.hash_tables().unwrap()[0].1.kept[0].length, 60);
        drop((versioned, kept));
        change_maps(&pool, 7);
        assert!(pool.drop_map("hash").unwrap());
        while pool.reclaim_dropped(100).unwrap() {}
        match pool.check() {
            Ok(report) => assert!(is_known && report.dropped_maps == 0, "{version}-{name}"),
            Err(tembo::Error::Unproved { report }) => assert!(!is_known && report.dropped_maps == 0),
            Err(e) => panic!("{version}-{name}: {e}"),
        }
        drop(pool);
        let server = Server::start(&workspace, &format!("--pool {file}"));
        server.ask("GET greeting", "$6\r\nhello!\r\n");
        server.ask("EXPIRETIME late", &format!(":{DEADLINE_UNIX_S}\r\n"));
        server.ask("SET greeting again", "+OK\r\n");
        server.stop();
    }
}
