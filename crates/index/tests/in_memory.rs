//! Every index once, in few steps, with threads beside each other: what Miri can run (docs/testing.md).

use std::collections::BTreeMap;
use tembo_index::{HashStructure, TreeStructure, U64Tree, VersionedMap, VersionedStructure, WbTree, Writers};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Marks, Pool};

/// As few as show something under Miri.
const fn few(under_miri: u64, else_: u64) -> u64 {
    if cfg!(miri) { under_miri } else { else_ }
}

fn pool() -> Pool {
    let region = Region::simulated(&[0; 128 << 10], 2 << 20, None).unwrap();
    Pool::create_in(region, &Geometry::tiny()).unwrap()
}

/// Nothing is leaked, and what `check` looks at is sound.
fn prove(pool: &Pool, check: impl FnOnce(&mut Marks)) {
    let mut marks = pool.marks().unwrap();
    check(&mut marks);
    marks.finish().unwrap();
}

/// Keys of all lengths, some with a long common prefix.
fn key(i: u64) -> Vec<u8> {
    let head: &[u8] = if i.is_multiple_of(3) { b"a beginning of some length, " } else { b"" };
    [head, &i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()[..(i % 8 + 1) as usize], &i.to_be_bytes()]
        .concat()
}

fn value(i: u64) -> Vec<u8> {
    vec![i as u8; (i * 13 % 90) as usize]
}

#[test]
fn a_tree_of_byte_strings_is_as_it_was_left() {
    let pool = pool();
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let tree = WbTree::create(&mut tx, "tree").unwrap();
    tx.commit().unwrap();
    let mut model = BTreeMap::new();
    for part in (0..few(48, 600)).collect::<Vec<_>>().chunks(12) {
        let mut tx = lane.begin();
        for &i in part {
            assert_eq!(
                tree.put(&mut tx, &key(i), &[&value(i)]).unwrap(),
                model.insert(key(i), value(i)).is_some()
            );
            if i % 4 == 3 {
                assert!(tree.remove(&mut tx, &key(i - 2)).unwrap());
                model.remove(&key(i - 2));
            }
        }
        assert_eq!(tree.get_in(&tx, &key(part[0])).unwrap(), Some(&value(part[0])[..]));
        tx.commit().unwrap();
    }
    let pin = pool.pin();
    assert!(
        tree.iter()
            .map(|entry| entry.map(|e| (e.key().to_vec(), e.value().to_vec())).unwrap())
            .eq(model.clone())
    );
    let mut cursor = tree.cursor();
    for (key, value) in model.iter().step_by(7) {
        assert_eq!(tree.get(&pin, key).unwrap(), Some(&value[..]));
        assert!(cursor.seek(key).unwrap() && cursor.value() == Some(value));
        let before = model.range(..key.clone()).next_back();
        assert_eq!(
            (cursor.prev().unwrap(), cursor.key()),
            (before.is_some(), before.map(|(key, _)| &key[..]))
        );
    }
    drop(pin);
    let mut tx = lane.begin();
    let middle = model.keys().nth(model.len() / 2).unwrap().clone();
    tree.remove_range::<&[u8]>(&mut tx, ..&middle[..]).unwrap();
    tx.commit().unwrap();
    assert_eq!(tree.len().unwrap(), model.range(middle..).count() as u64);
    prove(&pool, |marks| tree.check(marks).unwrap());
}

/// Two threads put and remove keys of their own, and one looks and scans.
#[test]
fn writers_of_a_tree_of_byte_strings_go_beside_each_other() {
    let pool = pool();
    let writers = Writers::new(pool.lane().unwrap());
    assert!(writers.add().unwrap());
    let mut tx = writers.begin();
    let tree = WbTree::create(&mut tx, "tree").unwrap();
    tx.commit().unwrap();
    let rounds = few(20, 2000);
    let write = |me: u64| {
        let tree = tree.concurrent(&writers);
        for i in 0..rounds {
            tree.put(&key(2 * i + me), &[&value(i)]).unwrap();
            if i % 3 == 2 {
                assert!(tree.remove(&key(2 * (i - 2) + me)).unwrap());
            }
        }
    };
    let look = || {
        for i in 0..rounds {
            let pin = pool.pin();
            let found = tree.get(&pin, &key(2 * i)).unwrap();
            assert!(found.is_none_or(|found| found == value(i)));
            if i % 8 == 0 {
                let found = tree.scan::<&[u8]>(Some(&writers), .., usize::MAX).unwrap();
                assert!(found.is_sorted());
                tree.iter().for_each(|entry| assert!(!entry.unwrap().key().is_empty()));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(0));
        scope.spawn(|| write(1));
        scope.spawn(look);
    });
    assert_eq!(tree.len().unwrap(), 2 * (rounds - rounds / 3));
    prove(&pool, |marks| tree.check(marks).unwrap());
}

/// As above, of the tree of 8-byte keys.
#[test]
fn writers_of_a_tree_of_8_byte_keys_go_beside_each_other() {
    let pool = pool();
    let tree = U64Tree::create(&pool, "tree").unwrap();
    let rounds = few(60, 4000);
    let write = |me: u64| {
        for i in 0..rounds {
            assert_eq!(tree.put(2 * i + me, i).unwrap(), None);
            if i % 3 == 2 {
                assert_eq!(tree.remove(2 * (i - 2) + me).unwrap(), Some(i - 2));
            }
        }
    };
    let look = || {
        let mut found = Vec::new();
        for i in 0..rounds {
            assert!(tree.get(2 * i).unwrap().is_none_or(|found| found == i));
            if i % 16 == 0 {
                found.clear();
                tree.scan(i, 40, &mut found).unwrap();
                assert!(found.is_sorted() && found.iter().all(|(key, value)| *value == key / 2));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(0));
        scope.spawn(|| write(1));
        scope.spawn(look);
    });
    assert_eq!(tree.count().unwrap(), 2 * (rounds - rounds / 3));
    // Nodes are joined.
    (0..2 * rounds).for_each(|key| _ = tree.remove(key).unwrap());
    prove(&pool, |marks| assert_eq!(tree.check(marks).unwrap(), 0));
}

/// A thread makes versions, and another holds some: they stay what they were.
fn versions_stay<S: VersionedStructure + Send + Sync>() {
    let pool = pool();
    let map = VersionedMap::<S>::create(&pool, "map").unwrap();
    let rounds = few(16, 1000);
    let sum = |snapshot: &tembo_index::VersionedSnapshot<S>| {
        let entries = snapshot.iter().map(|entry| entry.unwrap().value().len());
        entries.fold((0, 0), |(count, bytes), len| (count + 1, bytes + len))
    };
    let write = || {
        for i in 0..rounds {
            map.put(&key(i), &value(i)).unwrap();
            if i % 3 == 2 {
                assert!(map.remove(&key(i - 2)).unwrap());
            }
            if i % 5 == 4 {
                map.collect(8).unwrap();
            }
        }
    };
    let look = || {
        for i in 0..rounds / 2 {
            let snapshot = map.snapshot();
            let before = sum(&snapshot);
            assert_eq!(before.0, snapshot.len());
            assert!(snapshot.get(&key(i)).unwrap().is_none_or(|found| *found == value(i)));
            assert_eq!(sum(&snapshot), before);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(write);
        scope.spawn(look);
    });
    let kept = map.snapshot();
    map.keep(&kept, "kept").unwrap();
    map.clear().unwrap();
    assert_eq!(kept.len(), rounds - rounds / 3);
    assert_eq!(sum(&map.kept_snapshot("kept").unwrap()), sum(&kept));
    drop(kept);
    assert!(map.drop_kept("kept").unwrap());
    while map.collect(64).unwrap() {}
    prove(&pool, |marks| _ = map.check(marks).unwrap());
}

#[test]
fn versions_of_a_cdds_tree_stay() {
    versions_stay::<TreeStructure>();
}

#[test]
fn versions_of_a_cdds_table_stay() {
    versions_stay::<HashStructure>();
}
