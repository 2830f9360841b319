//! `store import --from-map`: maps of every kind, of every format so far, become keyspaces, with their named
//! snapshots; also when the command is killed again and again.

use crate::fixtures::{POOLS, VERSIONS, unpack};
use crate::support::Workspace;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tembo::store::{Keyspace, Snapshot, Store};
use tembo::{MapOptions, Options, Pool};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// The contents of a map now, and by the names of its snapshots.
fn contents(pool: &Pool, name: &str) -> BTreeMap<Option<String>, Contents> {
    let pair = |entry: tembo::Entry<'_>| (entry.key().to_vec(), entry.value().to_vec());
    let mut all = BTreeMap::new();
    if let Ok(Some(map)) = pool.find_map(name) {
        all.insert(None, map.iter().map(|entry| pair(entry.unwrap())).collect());
        let kept = if map.is_versioned() { map.snapshots().unwrap() } else { Vec::new() };
        for kept in kept {
            let snapshot = map.open_snapshot(&kept.name).unwrap();
            all.insert(Some(kept.name), snapshot.iter().map(|entry| pair(entry.unwrap())).collect());
        }
    } else if let Ok(Some(table)) = pool.find_hash_table(name) {
        all.insert(None, table.snapshot().iter().map(|entry| pair(entry.unwrap())).collect());
        for kept in table.snapshots() {
            let snapshot = table.open_snapshot(&kept.name).unwrap();
            all.insert(Some(kept.name), snapshot.iter().map(|entry| pair(entry.unwrap())).collect());
        }
    } else {
        let map = pool.find_fixed_map(name).unwrap().unwrap();
        let bytes = |number: u64| number.to_be_bytes().to_vec();
        let pairs = map.iter().map(|pair| pair.map(|(key, value)| (bytes(key), bytes(value))).unwrap());
        all.insert(None, pairs.collect());
    }
    all
}

fn of_snapshot(snapshot: &Snapshot, keyspace: &Keyspace) -> Contents {
    snapshot.iter(keyspace).unwrap().collect::<Result<_, _>>().unwrap()
}

/// A keyspace has what the map has, in the present and in each of its snapshots.
fn assert_converted(pool: &Pool, store: &Store, name: &str) {
    let keyspace = store.find_keyspace(name).unwrap().unwrap();
    for (snapshot, expected) in contents(pool, name) {
        let then = match &snapshot {
            None => store.snapshot(),
            Some(snapshot) => store.at_name(&format!("{name}@{snapshot}")).unwrap(),
        };
        assert!(of_snapshot(&then, &keyspace) == expected, "{name} in {snapshot:?}");
    }
    assert!(store.keyspaces().unwrap().iter().all(|name| !name.starts_with("converting")));
}

#[test]
fn maps_of_every_kind_and_format_become_keyspaces() {
    for (version, name) in VERSIONS.iter().flat_map(|version| POOLS.map(|name| (*version, name))) {
        let workspace = Workspace::new();
        let (path, _) = unpack(&workspace, version, name);
        let file = path.file_name().unwrap().to_str().unwrap();
        for map in ["plain", "versioned", "hash", "fixed"] {
            let run = format!("store import {file} --from-map {map} --accept-unclean --json");
            let copied = workspace.run(&run).ok().json();
            let has_snapshots = ["versioned", "hash"].contains(&map);
            assert_eq!(
                copied["snapshots"].as_array().unwrap().contains(&json!(format!("{map}@after round 1"))),
                has_snapshots,
                "{version}-{name}: {copied}"
            );
        }
        let pool = Options::new().accept_unclean(true).open(&path).unwrap();
        let store = pool.open_store("store").unwrap();
        ["plain", "versioned", "hash", "fixed"].iter().for_each(|map| assert_converted(&pool, &store, map));
        let before = store.at_name("versioned@after round 1").unwrap();
        let keyspace = store.find_keyspace("versioned").unwrap().unwrap();
        assert_eq!(before.get(&keyspace, "key 3").unwrap().as_deref(), Some(&b"value 3 of round 1"[..]));
        drop((store, before, keyspace, pool));
        let checked = workspace.run(&format!("check {file}"));
        assert!([Some(0), Some(6)].contains(&checked.code), "{checked:?}");
        for map in ["plain", "versioned", "hash", "fixed"] {
            workspace.run(&format!("drop {file} {map}")).ok();
        }
    }
}

/// A map with versions, and a table, of the same contents.
fn make(path: &Path, keys: u32) {
    let pool = Options::new().create(true).open(path).unwrap();
    let map = pool.open_map_with("stock", MapOptions::new().versioned(true)).unwrap();
    let table = pool.open_hash_table("table").unwrap();
    for round in 0..3_u32 {
        let mut batch = pool.batch().unwrap();
        for key in (0..keys).filter(|key| round == 0 || key % 3 == round) {
            let value = format!("value of round {round}").repeat(1 + key as usize % 4);
            batch.put(&map, &key.to_be_bytes(), value.as_bytes()).unwrap();
        }
        batch.commit().unwrap();
        table
            .batch(|batch| {
                for key in (0..keys).filter(|key| round == 0 || key % 3 == round) {
                    batch.put(key.to_le_bytes(), format!("round {round}"))?;
                }
                batch.remove(round.to_le_bytes()).map(drop)
            })
            .unwrap();
        map.snapshot().unwrap().keep(&format!("round {round}")).unwrap();
        table.snapshot().keep(&format!("round {round}")).unwrap();
        map.remove(round.to_be_bytes()).unwrap();
    }
}

#[test]
fn a_conversion_that_is_killed_goes_on_where_it_was() {
    let workspace = Workspace::new();
    let path = workspace.path("a.pool");
    make(&path, 10_000);
    let (mut kills, mut resumed) = (0_u32, 0);
    for map in ["stock", "table"] {
        let run = format!("store import a.pool --from-map {map} --json");
        for attempt in 0..10_u64 {
            let mut child = workspace.command(&run).stdout(std::process::Stdio::null()).spawn().unwrap();
            // From before the first commit to past the last one, whatever the machine's speed.
            std::thread::sleep(Duration::from_millis(7 + 23 * attempt));
            child.kill().unwrap();
            if child.wait().unwrap().success() {
                break;
            }
            kills += 1;
            let pool = Options::new().open(&path).unwrap();
            pool.check().unwrap();
            let store = pool.find_store("store").unwrap();
            let is_begun = store.is_some_and(|store| {
                store.keyspaces().unwrap().iter().any(|name| name.starts_with("converting"))
            });
            resumed += u32::from(is_begun);
        }
        let last = workspace.run(&run);
        // It may have been done by then.
        assert!(last.code == Some(0) || last.stderr.contains("has keys already"), "{last:?}");
        let pool = Options::new().open(&path).unwrap();
        let store = pool.open_store("store").unwrap();
        assert_converted(&pool, &store, map);
    }
    println!("{kills} kills, {resumed} in the middle");
    assert!(kills >= 2 && resumed > 0, "{kills} kills, {resumed} in the middle");
    workspace.run("check a.pool").ok();
}

#[test]
fn a_conversion_is_refused_where_it_would_mix_things() {
    let workspace = Workspace::new();
    make(&workspace.path("a.pool"), 50);
    let copied = workspace.run("store import a.pool --from-map stock --keyspace goods").ok().text();
    let expected = "47 keys of the map stock in the keyspace goods, in";
    assert!(copied.starts_with(expected) && copied.contains("kept snapshot stock@round 2\n"), "{copied}");
    workspace.run("store import a.pool --from-map stock --keyspace goods").fails_with("has keys already");
    workspace.run("store import a.pool --from-map stock").fails_with("stock@round 0");
    workspace.run("store import a.pool --from-map shop").fails_with("no map \"shop\"; there is stock");
    workspace.run("store import a.pool --from-map store").fails_with("is a store, not a map");
    workspace.run("store import a.pool --keyspace goods").ends_with(2, "--from-map");
    let pool = Options::new().open(workspace.path("a.pool")).unwrap();
    let store = pool.open_store("store").unwrap();
    // As a conversion of another map leaves it when it is killed.
    store.put(&store.keyspace("converting table").unwrap(), "map", "other").unwrap();
    drop((store, pool));
    workspace.run("store import a.pool --from-map table").fails_with("the map \"other\" is being converted");
}
