//! Pools with a store that earlier builds made are opened, checked, read and written to.
//!
//! `tests/fixtures` has `v3-store`, which was closed, and `v3-store-killed`, which is how the file was while
//! the pool was open: each with a store of several keyspaces with history, kept snapshots, a log of commits,
//! and a dropped keyspace whose space has not come back.
//!
//! `TEMBO_STORE_FIXTURES=v3 cargo test -p tembo-cli --test suite store_fixtures` makes those of the present
//! build under that prefix, which is to be in [`VERSIONS`]. Those of earlier versions stay as they are.

use crate::fixtures::{directory, unpack_pool};
use crate::support::Workspace;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use tembo::store::{Audit, Keyspace, Retention, Store};
use tembo::{Geometry, Options, Pool};

/// The prefixes of the fixtures that there are.
const VERSIONS: [&str; 1] = ["v3"];
const POOLS: [&str; 2] = ["store", "store-killed"];
const KEYSPACES: [(&str, Retention); 3] =
    [("all", Retention::All), ("few", Retention::Versions(2)), ("none", Retention::None)];
const KEYS: u32 = 40;
/// Rounds of changes; the snapshots after the first two are kept by their names, that after the third by its
/// number.
const ROUNDS: u32 = 4;

type History = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

/// The value that a round gives a key, or takes off it.
fn value(round: u32, key: u32) -> Option<Vec<u8>> {
    let len = [0, 5, 8, 30, 300, 3000][(round + key) as usize % 6];
    (!(round + key).is_multiple_of(7)).then(|| vec![round as u8; len])
}

/// The versions of each key, from the oldest on, after this many rounds.
fn history(rounds: u32) -> History {
    let mut all = History::new();
    for (round, key) in (1..=rounds).flat_map(|round| (0..KEYS).map(move |key| (round, key))) {
        let versions = all.entry(key.to_be_bytes().to_vec()).or_default();
        // Nothing is deleted twice, or before it was there.
        match value(round, key) {
            None if !matches!(versions.last(), Some(Some(_))) => {}
            value => versions.push(value),
        }
    }
    all.retain(|_, versions| !versions.is_empty());
    all
}

fn change(store: &Store, round: u32) {
    for (name, retention) in KEYSPACES {
        let keyspace = store.keyspace_with(name, retention).unwrap();
        for key in 0..KEYS {
            match value(round, key) {
                Some(value) => store.put(&keyspace, key.to_be_bytes(), value),
                None => store.delete(&keyspace, key.to_be_bytes()),
            }
            .unwrap();
        }
    }
    let number = store.snapshot().number();
    match round {
        1 | 2 => store.keep(number, &format!("after round {round}")).unwrap(),
        3 => assert!(store.keep_number(number).unwrap()),
        _ => {}
    }
}

/// Compares everything with what this many rounds make of it.
fn read(store: &Store, rounds: u32) {
    let keyspace = |name: &str| store.find_keyspace(name).unwrap().unwrap();
    let contents = |number: u64, of: &Keyspace| -> Vec<(Vec<u8>, Vec<u8>)> {
        store.at(number).unwrap().iter(of).unwrap().map(Result::unwrap).collect()
    };
    let expected = |rounds: u32| -> Vec<(Vec<u8>, Vec<u8>)> {
        let last = |(key, mut versions): (Vec<u8>, Vec<Option<Vec<u8>>>)| Some((key, versions.pop()??));
        history(rounds).into_iter().filter_map(last).collect()
    };
    let mut kept = store.kept().unwrap();
    kept.sort_by_key(|kept| kept.number);
    let names: Vec<_> = kept.iter().map(|kept| kept.name.as_deref()).collect();
    assert_eq!(names, [Some("after round 1"), Some("after round 2"), None]);
    let current = store.snapshot().number();
    for (name, retention) in KEYSPACES {
        let of = keyspace(name);
        assert_eq!(of.retention(), retention);
        for (number, rounds) in kept.iter().map(|kept| kept.number).zip(1..).chain([(current, rounds)]) {
            assert_eq!(contents(number, &of), expected(rounds), "{name} after {rounds} rounds");
        }
    }
    for (key, versions) in history(rounds) {
        let found = store.versions(&keyspace("all"), &key).unwrap();
        assert!(found.into_iter().rev().map(|version| version.value).eq(versions), "key {key:?}");
    }
    assert_eq!(store.audit_policy(), Audit::Commits(50));
    assert!((50..150).contains(&store.log(..).count()));
    let last = store.log(..).next_back().unwrap().unwrap();
    assert_eq!(last.number, current);
}

fn make(version: &str) {
    let workspace = Workspace::new();
    let path = workspace.path("fixture.pool");
    let geometry =
        Geometry { chunk_bytes: 4096, zone_chunks: 512, lane_count: 16, lane_bytes: 2048, root_count: 64 };
    let options = Options::new().initial_bytes(512 << 10).geometry(geometry);
    let pool = options.create_new(true).open(&path).unwrap();
    let store = pool.open_store("store").unwrap();
    store.set_audit(Audit::Commits(50)).unwrap();
    (1..=ROUNDS).for_each(|round| change(&store, round));
    drop_a_keyspace(&store);
    keep(version, "store-killed", &path);
    drop((store, pool));
    keep(version, "store", &path);
}

/// Its space comes back with later commits.
fn drop_a_keyspace(store: &Store) {
    let gone = store.keyspace("gone").unwrap();
    let mut tx = store.begin();
    (0..50u32).for_each(|key| tx.put(&gone, key.to_be_bytes(), [1; 50]).unwrap());
    tx.commit().unwrap();
    assert!(store.drop_keyspace("gone").unwrap());
}

/// Adds a pool to the fixtures, as it is at this moment.
fn keep(version: &str, name: &str, pool: &Path) {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&std::fs::read(pool).unwrap()).unwrap();
    let packed = packed.finish().unwrap();
    println!("{version}-{name}: {} bytes", packed.len());
    std::fs::write(directory().join(format!("{version}-{name}.pool.gz")), packed).unwrap();
}

#[test]
fn pools_with_a_store_are_checked_read_and_written_to() {
    if let Some(version) = std::env::var_os("TEMBO_STORE_FIXTURES") {
        make(version.to_str().expect("a prefix for the names of files"));
    }
    for (version, name) in VERSIONS.iter().flat_map(|version| POOLS.map(|name| (*version, name))) {
        let workspace = Workspace::new();
        let path = unpack_pool(&workspace, version, name);
        let file = path.file_name().unwrap().to_str().unwrap();
        let check = || workspace.run(&format!("check {file} --json")).ok().json();
        let before = check();
        assert_eq!((&before["stores"]["stores"], &before["stores"]["keyspaces"]), (&1.into(), &3.into()));
        let pool = Options::new().read_only(true).accept_unclean(true).open(&path).unwrap();
        read(&pool.find_store("store").unwrap().unwrap(), ROUNDS);
        drop(pool);

        let pool: Pool = Options::new().accept_unclean(true).open(&path).unwrap();
        let store = pool.find_store("store").unwrap().unwrap();
        read(&store, ROUNDS);
        change(&store, ROUNDS + 1);
        read(&store, ROUNDS + 1);
        store.delete_kept("after round 1").unwrap();
        while store.collect(100).unwrap() {}
        drop((store, pool));
        let after = check();
        let bytes = |report: &serde_json::Value| report["allocated_bytes"].as_u64().unwrap();
        assert!(bytes(&after) < bytes(&before) + (40 << 10), "{before}\n{after}");
    }
}
