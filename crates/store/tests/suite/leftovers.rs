//! Space that no queue in memory leads to comes back with commits, and without a call of `collect`: what an
//! earlier process left, what a deleted snapshot held, what time has passed over, and dropped keyspaces.

use std::time::{Duration, Instant};
use tembo_pmem::{Region, snapshot};
use tembo_pool::{Geometry, Pool};
use tembo_store::{Keyspace, Retention, Store};

fn pool_of(bytes: usize) -> Pool {
    let region = Region::simulated(&vec![0; bytes], bytes as u64, None).unwrap();
    Pool::create_in(region, &Geometry::tiny()).unwrap()
}

/// Proves the store, and returns the bytes that are allocated.
fn prove(store: &Store) -> u64 {
    let mut marks = store.pool().marks().unwrap();
    store.check(&mut marks).unwrap();
    marks.finish().unwrap().allocated_bytes
}

/// Small commits of new keys, which leave nothing to collect themselves.
fn commit_others(store: &Store, count: u32) {
    let others = store.keyspace("others").unwrap();
    (0..count).for_each(|i| _ = store.put(&others, i.to_be_bytes(), "").unwrap());
}

fn fill(store: &Store, keyspace: &Keyspace, keys: u32, fill: u8) {
    (0..keys).for_each(|i| _ = store.put(keyspace, i.to_be_bytes(), [fill; 2000]).unwrap());
}

/// The least space of 100 keys with values of 2000 bytes.
const HUNDRED: u64 = 200_000;

#[test]
fn what_an_earlier_process_left_goes_with_commits() {
    let pool = pool_of(8 << 20);
    let store = Store::open(&pool, "store").unwrap();
    let k = store.keyspace("k").unwrap();
    commit_others(&store, 400);
    let empty = prove(&store);
    fill(&store, &k, 100, 1);
    let reader = store.snapshot();
    (0..100u32).for_each(|i| _ = store.delete(&k, i.to_be_bytes()).unwrap());
    drop((reader, k, store));
    let store = Store::open(&pool, "store").unwrap();
    assert!(prove(&store) > empty + HUNDRED);
    commit_others(&store, 400);
    assert!(prove(&store) < empty + 20_000, "{} after {empty}", prove(&store));
    let k = store.find_keyspace("k").unwrap().unwrap();
    assert_eq!(store.snapshot().iter(&k).unwrap().count(), 0);
}

#[test]
fn what_a_deleted_snapshot_held_goes_with_commits() {
    let store = Store::open(&pool_of(8 << 20), "store").unwrap();
    let k = store.keyspace("k").unwrap();
    commit_others(&store, 100);
    fill(&store, &k, 100, 1);
    let before = prove(&store);
    store.keep(store.snapshot().number(), "kept").unwrap();
    fill(&store, &k, 100, 2);
    fill(&store, &k, 100, 3);
    let held = store.at_name("kept").unwrap();
    store.delete_kept("kept").unwrap();
    // Its readers can go on, and then the space comes back.
    (0..10).for_each(|_| commit_others(&store, 100));
    assert!(held.iter(&k).unwrap().all(|entry| entry.unwrap().1 == [1; 2000]));
    assert!(prove(&store) > before + HUNDRED);
    drop(held);
    (0..10).for_each(|_| commit_others(&store, 100));
    assert!(prove(&store) < before + 20_000, "{} after {before}", prove(&store));
}

#[test]
fn what_time_has_passed_over_goes_with_commits() {
    let pool = pool_of(8 << 20);
    let retention = Retention::For(Duration::from_millis(40));
    let mut store = Store::open(&pool, "store").unwrap();
    store.keyspace_with("k", retention).unwrap();
    commit_others(&store, 400);
    let empty = prove(&store);
    for reopened in [false, true] {
        let k = store.find_keyspace("k").unwrap().unwrap();
        fill(&store, &k, 100, 1);
        (0..100u32).for_each(|i| _ = store.delete(&k, i.to_be_bytes()).unwrap());
        drop(k);
        if reopened {
            drop(store);
            store = Store::open(&pool, "store").unwrap();
        }
        // Nobody opens the keyspace, or writes into it.
        let end = Instant::now() + Duration::from_secs(20);
        while prove(&store) > empty + 20_000 {
            assert!(Instant::now() < end, "{} after {empty}, reopened: {reopened}", prove(&store));
            std::thread::sleep(Duration::from_millis(20));
            commit_others(&store, 400);
        }
    }
}

#[test]
fn dropped_keyspaces_go_with_commits() {
    let pool = pool_of(8 << 20);
    let mut store = Store::open(&pool, "store").unwrap();
    commit_others(&store, 400);
    let empty = prove(&store);
    for reopened in [false, true] {
        let k = store.keyspace("k").unwrap();
        fill(&store, &k, 100, 1);
        drop(k);
        assert!(prove(&store) > empty + HUNDRED);
        store.drop_keyspace("k").unwrap();
        if reopened {
            drop(store);
            store = Store::open(&pool, "store").unwrap();
        }
        commit_others(&store, 400);
        assert!(prove(&store) <= empty, "{} after {empty}, reopened: {reopened}", prove(&store));
    }
}

/// A commit that finds the pool full looks for all that before it is refused.
#[test]
fn a_full_pool_takes_commits_when_something_is_left_to_collect() {
    let fill_up = |store: &Store, k: &Keyspace| {
        let mut keys = 0u32;
        while store.put(k, keys.to_be_bytes(), [1; 2000]).is_ok() {
            keys += 1;
        }
        keys
    };
    let retake = |store: &Store, count: u32| {
        let others = store.keyspace("others").unwrap();
        (0..count).for_each(|i| _ = store.put(&others, i.to_be_bytes(), [2; 2000]).unwrap());
        prove(store);
    };
    // A dropped keyspace.
    let pool = pool_of(1 << 20);
    let store = Store::open(&pool, "store").unwrap();
    store.keyspace("others").unwrap();
    let keys = fill_up(&store, &store.keyspace("k").unwrap());
    assert!(keys > 200, "{keys}");
    store.drop_keyspace("k").unwrap();
    retake(&store, keys * 9 / 10);
    // Keys that an earlier process deleted, and had no time to collect.
    let k = store.find_keyspace("others").unwrap().unwrap();
    let reader = store.snapshot();
    (0..keys).for_each(|i| _ = store.delete(&k, i.to_be_bytes()).unwrap());
    drop((reader, k, store));
    let store = Store::open(&pool, "store").unwrap();
    retake(&store, keys * 9 / 10);
    // A kept snapshot: deleting in the full pool, and then one large value.
    store.keep(store.snapshot().number(), "kept").unwrap();
    let k = store.find_keyspace("others").unwrap().unwrap();
    (0..keys).for_each(|i| _ = store.delete(&k, i.to_be_bytes()).unwrap());
    fill_up(&store, &k);
    store.delete_kept("kept").unwrap();
    store.put(&k, "large", vec![3; 100_000]).unwrap();
    prove(&store);
}

/// The work of a commit is bounded, and there is none where nothing is left to walk for.
#[test]
fn a_commit_takes_small_steps_and_only_while_there_is_a_reason() {
    let pool = pool_of(64 << 20);
    let store = Store::open(&pool, "store").unwrap();
    let k = store.keyspace("k").unwrap();
    commit_others(&store, 2000);
    fill(&store, &k, 2000, 1);
    let reader = store.snapshot();
    (0..2000u32).for_each(|i| _ = store.delete(&k, i.to_be_bytes()).unwrap());
    drop((reader, k, store));
    let store = Store::open(&pool, "store").unwrap();
    let others = store.keyspace("others").unwrap();
    let mut steps = 0;
    for i in 0..16_000u32 {
        let before = snapshot();
        store.put(&others, (i % 2000).to_be_bytes(), "").unwrap();
        let fences = (snapshot() - before).fences;
        assert!(fences <= 4, "{fences} at {i}");
        steps += u64::from(fences > 1);
    }
    assert!((100..1000).contains(&steps), "{steps}");
    let before = snapshot();
    (0..2000u32).for_each(|i| _ = store.put(&others, i.to_be_bytes(), "").unwrap());
    let fences = (snapshot() - before).fences;
    assert!(fences <= 2040, "{fences}: the walk is over");
    prove(&store);
}
