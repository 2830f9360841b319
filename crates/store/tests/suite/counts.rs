//! Golden counts: fences and lines of commits. They do not depend on the machine.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use tembo_pmem::{Counts, Region, snapshot};
use tembo_pool::{Geometry, Pool};
use tembo_store::{Audit, Commit, Keyspace, Store};

const KEYS: u64 = 400;

fn filled() -> (Store, Keyspace) {
    filled_with(KEYS)
}

fn filled_with(keys: u64) -> (Store, Keyspace) {
    let region = Region::simulated(&vec![0; 16 << 20], 1 << 30, None).unwrap();
    let geometry = Geometry { zone_chunks: 1 << 12, ..Geometry::default() };
    let store = Store::open(&Pool::create_in(region, &geometry).unwrap(), "store").unwrap();
    let keyspace = store.keyspace("k").unwrap();
    for i in 0..keys {
        store.put(&keyspace, key(i), [1; 8]).unwrap();
    }
    (store, keyspace)
}

fn key(i: u64) -> [u8; 8] {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// The mean cost of an operation, in hundredths.
fn mean(count: u64, mut operation: impl FnMut(u64)) -> [u64; 2] {
    let before = snapshot();
    (0..count).for_each(&mut operation);
    let Counts { lines, fences, .. } = snapshot() - before;
    [100 * fences / count, 100 * lines / count]
}

#[test]
fn reading_costs_no_line_and_no_fence() {
    let (store, keyspace) = filled();
    let cost = mean(KEYS, |i| assert!(store.get(&keyspace, key(i)).unwrap().is_some()));
    assert_eq!(cost, [0, 0]);
    let cost = mean(1, |_| assert_eq!(store.snapshot().iter(&keyspace).unwrap().count() as u64, KEYS));
    assert_eq!(cost, [0, 0]);
}

#[test]
fn a_small_transaction_costs_one_fence() {
    let (store, keyspace) = filled();
    let [fences, lines] = mean(KEYS, |i| _ = store.put(&keyspace, key(i), [2; 8]).unwrap());
    println!("update: {fences} fences, {lines} lines in hundredths");
    assert!(fences <= 102 && lines <= 560, "update: {fences}, {lines}");
    let [fences, lines] = mean(KEYS, |i| _ = store.put(&keyspace, key(KEYS + i), [2; 8]).unwrap());
    println!("insertion: {fences} fences, {lines} lines in hundredths");
    assert!(fences <= 102 && lines <= 1160, "insertion: {fences}, {lines}");
    let [fences, lines] = mean(KEYS, |i| _ = store.delete(&keyspace, key(i)).unwrap());
    println!("deletion: {fences} fences, {lines} lines in hundredths");
    assert!(fences <= 102 && lines <= 560, "deletion: {fences}, {lines}");
}

#[test]
fn two_keys_of_two_keyspaces_cost_one_fence_and_much_data_two() {
    let (store, keyspace) = filled();
    let other = store.keyspace("other").unwrap();
    let [fences, _] = mean(KEYS, |i| {
        let mut tx = store.begin();
        tx.put(&keyspace, key(i), [3; 100]).unwrap();
        tx.put(&other, key(i), [3; 100]).unwrap();
        tx.commit().unwrap();
    });
    assert!(fences <= 103, "{fences}");
    let [fences, _] = mean(50, |i| _ = store.put(&keyspace, key(i), [4; 5000]).unwrap());
    assert!((200..=206).contains(&fences), "{fences}");
}

/// New data is in whole lines: a value with its head, here, of a key that is there.
#[test]
fn two_kib_of_new_data_cost_one_fence_and_a_byte_more_costs_two() {
    const HEAD_BYTES: usize = 8;
    let (store, keyspace) = filled();
    for (len, expected) in [(2048 - HEAD_BYTES, 100), (2049 - HEAD_BYTES, 200)] {
        let value = vec![6; len];
        // Twice, so that the second time finds blocks of this size.
        (0..50).for_each(|i| _ = store.put(&keyspace, key(i), &value).unwrap());
        let [fences, _] = mean(50, |i| _ = store.put(&keyspace, key(i), &value).unwrap());
        assert!((expected..=expected + 6).contains(&fences), "{fences} for a value of {len} bytes");
    }
}

#[test]
fn commits_that_are_asked_for_share_a_fence() {
    let (store, keyspace) = filled();
    let [fences, _] = mean(10, |round| {
        let ask = |i: u64| {
            let mut tx = store.begin();
            tx.put(&keyspace, key(32 * round + i), [5; 8]).unwrap();
            tx.commit_async()
        };
        let commits: Vec<Commit> = (0..32).map(ask).collect();
        commits.into_iter().for_each(|commit| _ = commit.wait().unwrap());
    });
    println!("32 commits that were asked for: {fences} fences in hundredths");
    assert!(fences <= 220, "{fences}");
}

/// Polls commits until all are made, on this thread; returns how many polls had to wait.
fn poll_all(mut commits: Vec<Commit>) -> u64 {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut pending = 0;
    while !commits.is_empty() {
        commits.retain_mut(|commit| match Pin::new(commit).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => {
                outcome.unwrap();
                false
            }
            Poll::Pending => true,
        });
        if !commits.is_empty() {
            pending += commits.len() as u64;
            std::thread::park();
        }
    }
    pending
}

#[test]
fn polling_commits_nothing_beside_a_committer() {
    let (store, keyspace) = filled();
    let ask = |i: u64| {
        let mut tx = store.begin();
        tx.put(&keyspace, key(i), [5; 8]).unwrap();
        tx.commit_async()
    };
    let [fences, _] = mean(10, |round| _ = poll_all((0..32).map(|i| ask(32 * round + i)).collect()));
    assert!((100..=220).contains(&fences), "this thread commits: {fences}");
    let committer = store.committer().unwrap();
    let mut pending = 0;
    let cost = mean(10, |round| pending += poll_all((0..32).map(|i| ask(32 * round + i)).collect()));
    println!("{pending} polls had to wait");
    assert_eq!(cost, [0, 0], "the committer's thread commits");
    assert!(pending >= 10, "nobody had to wait: {pending}");
    drop(committer);
    let [fences, _] = mean(10, |round| _ = poll_all((0..32).map(|i| ask(32 * round + i)).collect()));
    assert!((100..=220).contains(&fences), "this thread commits again: {fences}");
}

#[test]
fn a_logged_commit_costs_one_fence() {
    let (store, keyspace) = filled();
    store.set_audit(Audit::Commits(1 << 30)).unwrap();
    let [fences, lines] = mean(KEYS, |i| _ = store.put(&keyspace, key(i), [2; 8]).unwrap());
    println!("update with a log: {fences} fences, {lines} lines in hundredths");
    assert!(fences <= 104 && lines <= 1160, "update with a log: {fences}, {lines}");
    let [fences, _] = mean(10, |round| {
        let ask = |i: u64| {
            let mut tx = store.begin();
            tx.put(&keyspace, key(32 * round + i), [5; 8]).unwrap();
            tx.commit_async()
        };
        let commits: Vec<Commit> = (0..32).map(ask).collect();
        commits.into_iter().for_each(|commit| _ = commit.wait().unwrap());
    });
    assert!(fences <= 220, "{fences}");
    // Past entries go by one record for many of them.
    store.set_audit(Audit::Commits(100)).unwrap();
    while store.collect(100).unwrap() {}
    let [fences, lines] = mean(KEYS, |i| _ = store.put(&keyspace, key(i), [3; 8]).unwrap());
    println!("update with a log that is full: {fences} fences, {lines} lines in hundredths");
    assert!(fences <= 110, "update with a full log: {fences}, {lines}");
}

#[test]
fn counting_and_watching_cost_no_line_and_no_fence() {
    let (store, keyspace) = filled();
    let base = mean(KEYS, |i| _ = store.put(&keyspace, key(i), [2; 8]).unwrap());
    while store.count_space(100).unwrap() {}
    let watch = store.watch_prefix(&keyspace, "").unwrap();
    let mut limits = store.limits();
    limits.old_bytes = Some(1 << 20);
    store.set_limits(limits);
    let cost = mean(KEYS, |i| _ = store.put(&keyspace, key(i), [3; 8]).unwrap());
    assert!(cost[0] <= base[0] + 1 && cost[1] <= base[1] + 20, "{cost:?}, and {base:?} without");
    assert!(watch.try_recv().unwrap().is_some());
}

/// The bytes of the pool that an overwritten value of 8 bytes costs.
#[test]
fn the_log_and_a_held_version_take_few_bytes() {
    const MANY: u64 = 20_000;
    let used = |store: &Store| store.pool().stats().pool_bytes - store.pool().stats().unused_bytes;
    for is_logged in [false, true] {
        let (store, keyspace) = filled_with(MANY);
        let reader = store.snapshot();
        if is_logged {
            store.set_audit(Audit::Commits(1 << 30)).unwrap();
        }
        let before = used(&store);
        (0..MANY).for_each(|i| _ = store.put(&keyspace, key(i), [2; 8]).unwrap());
        let bytes = (used(&store) - before) / MANY;
        println!("with a log: {is_logged}; {bytes} bytes for an overwritten value");
        assert!(bytes <= if is_logged { 160 } else { 96 }, "{bytes}");
        drop(reader);
    }
}
