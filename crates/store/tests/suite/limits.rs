//! Space: accounting, budgets, limits, the collector, and dropping stores.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use tembo_store::{Audit, CollectorOptions, Error, Keyspace, Limits, Retention, Space, Store};

fn store_of(bytes: usize) -> Store {
    let region = Region::simulated(&vec![0; bytes], bytes as u64, None).unwrap();
    Store::open(&Pool::create_in(region, &Geometry::tiny()).unwrap(), "store").unwrap()
}

fn prove(store: &Store) -> tembo_store::Report {
    let mut marks = store.pool().marks().unwrap();
    let report = store.check(&mut marks).unwrap();
    marks.finish().unwrap();
    report
}

fn collect_all(store: &Store) {
    while store.collect(50).unwrap() {}
}

fn counted(store: &Store) -> Space {
    while store.count_space(100).unwrap() {}
    let space = store.space().unwrap();
    assert!(space.is_counted);
    space
}

/// Live, old and kept bytes.
fn sums(space: Space) -> [u64; 3] {
    [space.live_bytes, space.old_bytes, space.kept_bytes]
}

/// A put of a value of this length makes a version of so many bytes.
fn version(len: u64) -> u64 {
    if len <= 8 { 16 } else { 16 + (8 + len).next_multiple_of(16) }
}

#[test]
fn space_is_what_versions_take() {
    let store = store_of(8 << 20);
    let k = store.keyspace("k").unwrap();
    for i in 0..100u64 {
        store.put(&k, i.to_be_bytes(), [1; 40]).unwrap();
    }
    collect_all(&store);
    let live = 100 * (40 + 8 + version(40));
    assert_eq!(sums(counted(&store)), [live, 0, 0]);
    store.keep(store.snapshot().number(), "kept").unwrap();
    for i in 0..100u64 {
        store.put(&k, i.to_be_bytes(), [2; 8]).unwrap();
    }
    let (live, old) = (100 * (40 + 8 + version(8)), 100 * version(40));
    assert_eq!(sums(store.space().unwrap()), [live, old, old], "each commit notes what it changes");
    assert_eq!(sums(store.space_of(&k).unwrap()), [live, old, old]);
    // Old ones that the kept snapshot has not.
    let reader = store.snapshot();
    for i in 0..100u64 {
        store.delete(&k, i.to_be_bytes()).unwrap();
    }
    let space = store.space().unwrap();
    assert_eq!((space.live_bytes, space.kept_bytes), (0, old));
    assert_eq!(space.old_bytes, old + 100 * version(8) + 100 * (16 + 40 + 8));
    drop(reader);
    store.delete_kept("kept").unwrap();
    collect_all(&store);
    assert_eq!(sums(counted(&store)), [0, 0, 0]);
    assert_eq!(prove(&store).keys, 0);
}

#[test]
fn an_old_version_is_kept_by_a_snapshot_that_has_it_and_by_no_other() {
    let store = store_of(2 << 20);
    let k = store.keyspace("k").unwrap();
    store.put(&k, "a", [1; 8]).unwrap();
    let reader = store.snapshot();
    let next = store.put(&k, "a", [2; 8]).unwrap();
    store.keep(next, "has the second").unwrap();
    assert_eq!(sums(counted(&store))[1..], [version(8), 0], "only the reader holds the first");
    store.put(&k, "a", [3; 8]).unwrap();
    assert_eq!(sums(store.space().unwrap())[1..], [2 * version(8), version(8)]);
    // An older snapshot is kept: the store counts anew, and again when it is deleted.
    store.keep(reader.number(), "has the first").unwrap();
    assert_eq!(sums(store.space().unwrap())[2], version(8), "until then the former count is shown");
    collect_all(&store);
    assert_eq!(sums(counted(&store))[1..], [2 * version(8), 2 * version(8)]);
    store.delete_kept("has the first").unwrap();
    collect_all(&store);
    assert_eq!(sums(counted(&store))[1..], [2 * version(8), version(8)], "the reader still holds it");
}

/// Each commit notes what a count finds, whatever is committed while it counts.
#[test]
fn a_count_in_steps_among_commits_finds_what_is_there() {
    let store = store_of(16 << 20);
    let [k, l] = [("k", Retention::Versions(3)), ("l", Retention::None)]
        .map(|(name, retention)| store.keyspace_with(name, retention).unwrap());
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut reader = None;
    for round in 0..3000u64 {
        let keyspace = if random(3) == 0 { &l } else { &k };
        let key = random(200).to_be_bytes();
        if random(4) == 0 {
            store.delete(keyspace, key).unwrap();
        } else {
            store.put(keyspace, key, vec![1; random(60) as usize]).unwrap();
        }
        match round % 100 {
            10 => reader = Some(store.snapshot()),
            30 => store.keep(store.snapshot().number(), &format!("at {round}")).unwrap(),
            40 => reader = None,
            50 => _ = store.delete_kept(&format!("at {}", round.saturating_sub(120))),
            60 => _ = store.collect(20).unwrap(),
            _ if round > 500 => _ = store.count_space(1).unwrap(),
            _ => {}
        }
    }
    drop(reader);
    let noted = counted(&store);
    assert!(noted.kept_bytes > 0 && noted.old_bytes > noted.kept_bytes);
    let by_keyspace = [&k, &l].map(|keyspace| store.space_of(keyspace).unwrap());
    assert_eq!(by_keyspace.iter().map(|space| space.old_bytes).sum::<u64>(), noted.old_bytes);
    // A store that was just opened counts everything.
    let pool = store.pool().clone();
    drop((k, l, store));
    let store = Store::open(&pool, "store").unwrap();
    assert_eq!(counted(&store), noted);
}

fn set(store: &Store, change: impl FnOnce(&mut Limits)) {
    let mut limits = store.limits();
    change(&mut limits);
    store.set_limits(limits);
}

#[test]
fn a_keyspace_keeps_the_newest_history_within_its_budget() {
    let store = store_of(8 << 20);
    let k = store.keyspace_with("k", Retention::Within(100_000)).unwrap();
    let mut history = BTreeMap::new();
    for i in 0..20_000u64 {
        let number = store.put(&k, (i % 50).to_be_bytes(), i.to_be_bytes()).unwrap();
        history.insert(number, i);
        if i > 2000 && i % 100 == 0 {
            let old = store.space_of(&k).unwrap().old_bytes;
            assert!(old <= 150_000, "{old} bytes after {i} commits");
        }
    }
    collect_all(&store);
    let space = counted(&store);
    assert!((50_000..=100_000).contains(&space.old_bytes), "{space:?}");
    prove(&store);
    let (mut retained, mut gone) = (0, 0);
    for (number, i) in history.iter().rev() {
        let found = store.at(*number).unwrap().get(&k, (i % 50).to_be_bytes());
        match found {
            Ok(value) if gone == 0 => {
                assert_eq!(value.unwrap(), i.to_be_bytes());
                retained += 1;
            }
            Err(Error::NotRetained { .. }) => gone += 1,
            other => panic!("{other:?} after {gone} were gone"),
        }
    }
    println!("{retained} commits are retained in {} bytes", space.old_bytes);
    assert!(retained > 1200 && gone > 10_000, "{retained}, {gone}");
    // The cut is kept in the pool.
    let first = *history.keys().next().unwrap();
    let pool = store.pool().clone();
    drop((k, store));
    let store = Store::open(&pool, "store").unwrap();
    let k = store.keyspace("k").unwrap();
    assert!(matches!(store.at(first).unwrap().get(&k, "").unwrap_err(), Error::NotRetained { .. }));
}

#[test]
fn a_reader_that_stays_is_revoked_and_never_reads_wrong_data() {
    let store = store_of(8 << 20);
    let k = store.keyspace("k").unwrap();
    for i in 0..1000u64 {
        store.put(&k, i.to_be_bytes(), 0u64.to_be_bytes()).unwrap();
    }
    store.keep(store.snapshot().number(), "kept").unwrap();
    for i in 0..1000u64 {
        store.put(&k, i.to_be_bytes(), 0u64.to_be_bytes()).unwrap();
    }
    set(&store, |limits| limits.old_bytes = Some(1000 * version(8) * 3 / 2));
    let reader = store.snapshot();
    let mut walk = reader.iter(&k).unwrap();
    let mut late = store.begin();
    late.put(&k, "late", "").unwrap();
    let mut gone_after = None;
    for i in 1..5000u64 {
        store.put(&k, (i % 1000).to_be_bytes(), i.to_be_bytes()).unwrap();
        match reader.get(&k, 3u64.to_be_bytes()) {
            Ok(value) => assert!(value.unwrap() == 0u64.to_be_bytes() && gone_after.is_none()),
            Err(Error::SnapshotGone { .. }) => gone_after = gone_after.or(Some(i)),
            Err(other) => panic!("{other}"),
        }
        let old = store.space().unwrap().old_bytes;
        assert!(old <= 1000 * version(8) * 8 / 5, "{old} bytes of old versions after {i} commits");
    }
    let gone_after = gone_after.expect("it is revoked");
    println!("revoked after {gone_after} commits");
    assert!((400..600).contains(&gone_after));
    assert!(matches!(walk.next().unwrap().unwrap_err(), Error::SnapshotGone { .. }));
    assert!(walk.next().is_none());
    let now = store.snapshot();
    let error = store.changes(&reader, &now, &k).unwrap().next().unwrap().unwrap_err();
    assert!(matches!(error, Error::SnapshotGone { .. }));
    // A transaction at it may have missed what it conflicts with.
    assert!(matches!(late.commit().unwrap_err(), Error::SnapshotGone { .. }));
    assert!(matches!(store.keep(reader.number(), "too late").unwrap_err(), Error::SnapshotGone { .. }));
    let kept = store.at_name("kept").unwrap();
    assert!(kept.iter(&k).unwrap().all(|entry| entry.unwrap().1 == 0u64.to_be_bytes()));
    prove(&store);
}

#[test]
fn kept_snapshots_that_hold_the_budget_leave_only_deletions() {
    let store = store_of(8 << 20);
    let k = store.keyspace("k").unwrap();
    for i in 0..1000u64 {
        store.put(&k, i.to_be_bytes(), [0; 40]).unwrap();
    }
    store.keep(store.snapshot().number(), "kept").unwrap();
    set(&store, |limits| limits.old_bytes = Some(20_000));
    counted(&store);
    let mut refused = None;
    for i in 0..1000u64 {
        if let Err(e) = store.put(&k, i.to_be_bytes(), [1; 40]) {
            assert!(matches!(e, Error::HistoryFull { .. }), "{e}");
            assert!(e.is_full());
            refused = Some(i);
            break;
        }
    }
    let refused = refused.expect("the budget is exceeded");
    assert!((250..400).contains(&refused), "{refused}");
    assert!(store.put(&k, "new", "").is_err());
    store.delete(&k, 999u64.to_be_bytes()).unwrap();
    assert_eq!(store.get(&k, 999u64.to_be_bytes()).unwrap(), None);
    assert_eq!(store.at_name("kept").unwrap().iter(&k).unwrap().count(), 1000);
    store.delete_kept("kept").unwrap();
    collect_all(&store);
    store.put(&k, "new", "").unwrap();
    prove(&store);
}

#[test]
fn an_old_snapshot_is_revoked_when_it_is_past_the_age() {
    let store = store_of(2 << 20);
    let k = store.keyspace("k").unwrap();
    let all = store.keyspace_with("all", Retention::All).unwrap();
    store.put(&k, "a", [1; 40]).unwrap();
    store.put(&all, "a", "1").unwrap();
    set(&store, |limits| limits.snapshot_age = Some(Duration::from_millis(80)));
    let old = store.snapshot();
    std::thread::sleep(Duration::from_millis(200));
    collect_all(&store);
    assert!(old.get(&k, "a").is_ok(), "the current snapshot has no age, how long ever it was opened");
    store.put(&k, "a", [2; 40]).unwrap();
    store.put(&all, "a", "2").unwrap();
    let young = store.snapshot();
    assert!(old.get(&k, "a").is_ok());
    let start = Instant::now();
    while old.get(&k, "a").is_ok() {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
        store.collect(10).unwrap();
    }
    assert!(start.elapsed() >= Duration::from_millis(70), "{:?}", start.elapsed());
    assert!(matches!(old.get(&k, "a").unwrap_err(), Error::SnapshotGone { .. }));
    assert_eq!(old.get(&all, "a").unwrap().as_deref(), Some(b"1".as_slice()), "this keyspace retains it");
    assert_eq!(young.get(&k, "a").unwrap().as_deref(), Some([2; 40].as_slice()), "it is current");
    collect_all(&store);
    assert_eq!(store.versions(&k, "a").unwrap().len(), 1);
}

#[test]
fn a_transaction_is_limited_in_memory_and_age() {
    let store = store_of(2 << 20);
    let k = store.keyspace("k").unwrap();
    set(&store, |limits| limits.transaction_bytes = Some(1000));
    let mut tx = store.begin();
    tx.put(&k, "a", [0; 900]).unwrap();
    let error = tx.put(&k, "b", [0; 100]).unwrap_err();
    assert!(matches!(error, Error::TransactionTooLarge { bytes: 1002, max_bytes: 1000 }), "{error}");
    tx.put(&k, "c", [0; 98]).unwrap();
    tx.commit().unwrap();
    assert_eq!(store.snapshot().iter(&k).unwrap().count(), 2);
    // Writes that were taken back count no more; earlier ones do, also where they were written over.
    let mut tx = store.begin();
    tx.put(&k, "a", [0; 499]).unwrap();
    let savepoint = tx.savepoint();
    for _ in 0..10 {
        tx.put(&k, "a", [0; 299]).unwrap();
        tx.delete(&k, "a").unwrap();
        tx.put(&k, "b", [0; 198]).unwrap();
        assert!(tx.put(&k, "d", "").is_err());
        tx.rollback_to(savepoint);
    }
    tx.put(&k, "b", [0; 499]).unwrap();
    assert!(tx.put(&k, "d", "").is_err());
    tx.commit().unwrap();
    set(&store, |limits| {
        limits.transaction_bytes = None;
        limits.transaction_age = Some(Duration::from_millis(30));
    });
    let mut tx = store.begin();
    tx.put(&k, "d", [0; 2000]).unwrap();
    std::thread::sleep(Duration::from_millis(40));
    assert!(matches!(tx.get(&k, "a").unwrap_err(), Error::TransactionTooOld { .. }));
    assert!(matches!(tx.put(&k, "a", "").unwrap_err(), Error::TransactionTooOld { .. }));
    assert!(matches!(tx.commit().unwrap_err(), Error::TransactionTooOld { .. }));
    assert_eq!(store.get(&k, "d").unwrap(), None);
}

#[test]
fn space_comes_back_after_a_release_without_further_calls() {
    let store = store_of(8 << 20);
    let k = store.keyspace("k").unwrap();
    store.put(&k, "a", "0").unwrap();
    let collector = store.collector(CollectorOptions::default()).unwrap();
    let reader = store.snapshot();
    for i in 0..500u64 {
        store.put(&k, i.to_be_bytes(), [1; 100]).unwrap();
    }
    let second = store.snapshot();
    for i in 0..500u64 {
        store.put(&k, i.to_be_bytes(), [2; 100]).unwrap();
    }
    let wait_for = |what: &str, is_so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for("it counts", &|| store.space().unwrap().is_counted);
    assert_eq!(store.space().unwrap().old_bytes, 500 * version(100));
    drop((reader, second));
    wait_for("it collects", &|| store.space().unwrap().old_bytes == 0);
    assert!(store.drop_keyspace("k").unwrap());
    // A check beside the collector may find what is half freed.
    let is_freed = || {
        let mut marks = store.pool().marks().unwrap();
        store.check(&mut marks).is_ok_and(|report| report.dropped_keyspaces == 0)
    };
    wait_for("it frees dropped keyspaces", &is_freed);
    assert!(collector.take_error().is_none());
    drop(collector);
    prove(&store);
    // Nothing is left of it that would keep the store open.
    let pool = store.pool().clone();
    drop((k, store));
    Store::open(&pool, "store").unwrap();
}

#[test]
fn garbage_beyond_a_limit_is_collected_before_commits_go_on() {
    let store = store_of(32 << 20);
    let k = store.keyspace("k").unwrap();
    let put_all = |from: u64, value: u8| {
        let mut tx = store.begin();
        (from..from + 2000).for_each(|i| tx.put(&k, i.to_be_bytes(), [value; 100]).unwrap());
        tx.commit().unwrap();
    };
    (0..20).for_each(|part| put_all(2000 * part, 0));
    collect_all(&store);
    assert_eq!(counted(&store).old_bytes, 0);
    // Each transaction leaves 2000 tables, of which it collects two by itself.
    let mut most = 0;
    for part in 0..20 {
        put_all(2000 * part, 1);
        most = most.max(store.space().unwrap().old_bytes);
    }
    println!("{} old versions at most", most / version(100));
    assert!(most <= 6200 * version(100), "{most}");
}

fn stores_of(pool: &Pool, names: [&str; 2]) -> [(Store, Keyspace); 2] {
    names.map(|name| {
        let store = Store::open(pool, name).unwrap();
        let keyspace = store.keyspace_with("k", Retention::All).unwrap();
        store.set_audit(Audit::Commits(100)).unwrap();
        for i in 0..60u64 {
            store.put(&keyspace, (i % 20).to_be_bytes(), vec![1; i as usize]).unwrap();
        }
        store.keyspace("empty").unwrap();
        store.keep(store.snapshot().number(), "kept").unwrap();
        (store, keyspace)
    })
}

#[test]
fn a_store_can_be_dropped_in_a_full_pool() {
    let store = store_of(512 << 10);
    let k = store.keyspace("k").unwrap();
    let mut last = None;
    for i in 0..100_000u64 {
        if let Err(e) = store.put(&k, i.to_be_bytes(), [0; 300]) {
            assert!(e.is_full(), "{e}");
            last = Some(i);
            break;
        }
    }
    assert!(last.is_some_and(|last| last > 100), "{last:?}");
    let pool = store.pool().clone();
    drop((k, store));
    assert!(Store::drop(&pool, "store").unwrap());
    while Store::reclaim_dropped(&pool, 50).unwrap() {}
    assert_eq!(pool.roots().unwrap(), []);
    let mut marks = pool.marks().unwrap();
    assert_eq!(Store::check_dropped(&pool, &mut marks).unwrap(), 0);
    marks.finish().unwrap();
    let store = Store::open(&pool, "another").unwrap();
    store.put(&store.keyspace("k").unwrap(), "a", [0; 3000]).unwrap();
}

#[test]
fn a_dropped_store_leaves_nothing_behind() {
    let bytes = 4 << 20;
    let region = Region::simulated(&vec![0; bytes], bytes as u64, None).unwrap();
    let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let keeper = Store::open(&pool, "keeper").unwrap();
    let used = |pool: &Pool| {
        let mut marks = pool.marks().unwrap();
        keeper.check(&mut marks).unwrap();
        let dropped = Store::check_dropped(pool, &mut marks).unwrap();
        let left = marks.finish().unwrap();
        (dropped, left.allocated_bytes, left.allocated_blocks)
    };
    let before = used(&pool);
    let [(a, of_a), (b, of_b)] = stores_of(&pool, ["a", "b"]);
    assert!(matches!(Store::drop(&pool, "a").unwrap_err(), Error::InUse { .. }));
    let snapshot = a.snapshot();
    drop((a, of_a));
    assert!(matches!(Store::drop(&pool, "a").unwrap_err(), Error::InUse { .. }), "a snapshot is there");
    drop(snapshot);
    assert!(b.drop_keyspace("k").unwrap());
    drop((b, of_b));
    assert!(Store::drop(&pool, "a").unwrap());
    assert!(Store::drop(&pool, "b").unwrap());
    assert!(!Store::drop(&pool, "b").unwrap());
    assert_eq!(used(&pool).0, 2);
    // The name is free.
    let again = Store::open(&pool, "a").unwrap();
    assert_eq!(again.keyspaces().unwrap(), Vec::<String>::new());
    drop(again);
    assert!(Store::drop(&pool, "a").unwrap());
    let mut steps = 0;
    while Store::reclaim_dropped(&pool, 3).unwrap() {
        steps += 1;
        used(&pool);
    }
    println!("{steps} times three steps");
    assert!(steps >= 15);
    assert_eq!(used(&pool), before, "nothing is left");
    assert!(pool.roots().unwrap().iter().all(|root| root.name == "keeper"));
}

/// All keys have one value in every snapshot. Readers that are revoked while they read get an error, and
/// never a mixture.
#[test]
fn readers_of_many_threads_are_revoked_between_two_reads_and_see_no_mixture() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    const KEYS: u64 = 40;
    let store = store_of(8 << 20);
    let k = store.keyspace("k").unwrap();
    let put_all = |value: u64| {
        let mut tx = store.begin();
        (0..KEYS).for_each(|i| tx.put(&k, i.to_be_bytes(), [value.to_be_bytes(); 2].concat()).unwrap());
        tx.commit().unwrap();
    };
    put_all(0);
    // Less than two snapshots hold.
    set(&store, |limits| limits.old_bytes = Some(KEYS * version(16) * 3 / 2));
    let collector = store.collector(CollectorOptions::default()).unwrap();
    let (is_over, whole, gone) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let read = || {
        while !is_over.load(Ordering::Relaxed) {
            let snapshot = store.snapshot();
            let first = match snapshot.get(&k, 0u64.to_be_bytes()) {
                Ok(value) => value.unwrap(),
                Err(e) => {
                    assert!(matches!(e, Error::SnapshotGone { .. }), "{e}");
                    continue;
                }
            };
            std::thread::sleep(Duration::from_micros(200));
            let all: Result<Vec<_>, Error> = snapshot.iter(&k).unwrap().collect();
            match all {
                Ok(all) => {
                    assert_eq!(all.len() as u64, KEYS);
                    assert!(all.iter().all(|(_, value)| *value == first));
                    whole.fetch_add(1, Ordering::Relaxed);
                }
                Err(e) => {
                    assert!(matches!(e, Error::SnapshotGone { .. }), "{e}");
                    gone.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|_| _ = scope.spawn(read));
        let start = Instant::now();
        let mut value = 0;
        let is_enough = || [&whole, &gone].iter().all(|count| count.load(Ordering::Relaxed) > 100);
        while value < 3000 || !is_enough() && start.elapsed() < Duration::from_secs(60) {
            value += 1;
            put_all(value);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{whole:?} snapshots were read in full, {gone:?} were revoked");
    assert!(gone.into_inner() > 100 && whole.into_inner() > 100);
    assert!(collector.take_error().is_none());
    drop(collector);
    prove(&store);
}

/// Bytes of chunks that something lies in, or has lain in.
fn used(store: &Store) -> u64 {
    store.pool().stats().pool_bytes - store.pool().stats().unused_bytes
}

/// Two snapshots are held while every key is overwritten three times. The bar is 96 bytes for each value.
/// When they are gone, the chunks of the vectors are free as a whole, for values of any size.
#[test]
fn a_held_snapshot_costs_little_and_its_space_comes_back_by_whole_chunks() {
    const KEYS: u64 = 8000;
    let store = store_of(16 << 20);
    let k = store.keyspace("k").unwrap();
    let overwrite = |round: u64| {
        (0..KEYS).for_each(|i| _ = store.put(&k, i.to_be_bytes(), round.to_be_bytes()).unwrap());
        used(&store)
    };
    let mut before = overwrite(0);
    let mut held = Vec::new();
    let mut costs = Vec::new();
    for round in 1..=4 {
        if round <= 2 {
            held.push(store.snapshot());
        }
        let after = overwrite(round);
        costs.push(after.saturating_sub(before) as f64 / KEYS as f64);
        before = after;
    }
    println!("bytes for each value of four rounds: {costs:.1?}");
    let bars = [1.0, 70.0, 90.0, 1.0];
    assert!(costs.iter().zip(bars).all(|(cost, bar)| *cost <= bar), "{costs:.1?}");
    drop(held);
    overwrite(5);
    collect_all(&store);
    store.pool().trim().unwrap();
    let after = used(&store);
    let control = {
        let store = store_of(16 << 20);
        let k = store.keyspace("k").unwrap();
        (0..KEYS).for_each(|i| _ = store.put(&k, i.to_be_bytes(), [0; 8]).unwrap());
        store.pool().trim().unwrap();
        used(&store)
    };
    println!("used: {before} with both held, {after} without, {control} if there never was one");
    assert!(after <= control + control / 10, "{after}, {control}");
    prove(&store);
}
