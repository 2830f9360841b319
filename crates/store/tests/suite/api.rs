//! The calls of a store, one by one.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Options, Pool};
use tembo_store::{Commit, Error, Store};

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

fn poll(commit: Commit) -> Poll<Result<u64, Error>> {
    let mut commit = pin!(commit);
    commit.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn values_of_every_length_are_read_as_they_were_put() {
    let store = store_of(8 << 20);
    let keyspace = store.keyspace("k").unwrap();
    for len in (0..40).chain([63, 64, 65, 511, 512, 513, 4095, 4096, 100_000, 1_000_000]) {
        let value: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
        store.put(&keyspace, len.to_string(), &value).unwrap();
        assert_eq!(store.get(&keyspace, len.to_string()).unwrap().unwrap(), value, "{len} bytes");
        let key = vec![b'k'; len.min(65_536)];
        store.put(&keyspace, &key, "of a long key").unwrap();
        assert_eq!(store.get(&keyspace, &key).unwrap().unwrap(), b"of a long key");
    }
    prove(&store);
    let too_long = vec![0; 65_537];
    let error = store.put(&keyspace, &too_long, "").unwrap_err();
    assert!(error.to_string().contains("the key has 65537 bytes; keys have at most 65536"), "{error}");
}

#[test]
fn commits_that_were_asked_for_together_are_made_together() {
    let store = store_of(2 << 20);
    let keyspace = store.keyspace("k").unwrap();
    let ask = |i: u32| {
        let mut tx = store.begin();
        tx.put(&keyspace, i.to_be_bytes(), "v").unwrap();
        tx.commit_async()
    };
    let before = store.snapshot().number();
    let commits: Vec<Commit> = (0..32).map(ask).collect();
    assert_eq!(store.snapshot().number(), before, "nothing is visible before it is durable");
    let numbers: Vec<u64> = commits.into_iter().map(|commit| commit.wait().unwrap()).collect();
    assert!(
        numbers[0] > before && numbers.is_sorted_by(|a, b| a < b),
        "in the order in which they were asked for"
    );
    // Polled, and dropped.
    assert!(matches!(poll(ask(40)), Poll::Ready(Ok(_))));
    drop(ask(41));
    assert!(store.get(&keyspace, 41u32.to_be_bytes()).unwrap().is_none());
    store.put(&keyspace, "other", "v").unwrap();
    assert!(store.get(&keyspace, 41u32.to_be_bytes()).unwrap().is_some(), "committed with the next");
    // One that wrote nothing, and two that conflict.
    assert_eq!(store.begin().commit_async().wait().unwrap(), store.snapshot().number());
    let (first, second) = (ask(50), ask(50));
    assert!(second.wait().unwrap_err().is_conflict());
    first.wait().unwrap();
    drop(ask(60));
    let pool = store.pool().clone();
    drop((keyspace, store));
    let store = Store::open(&pool, "store").unwrap();
    let keyspace = store.find_keyspace("k").unwrap().unwrap();
    assert!(
        store.get(&keyspace, 60u32.to_be_bytes()).unwrap().is_some(),
        "committed when the store was closed"
    );
    prove(&store);
}

/// Polls a future until it is ready; fails if nobody wakes it.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Flag(std::thread::Thread, AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.1.store(true, Ordering::SeqCst);
            self.0.unpark();
        }
    }
    let flag = Arc::new(Flag(std::thread::current(), AtomicBool::new(false)));
    let waker = flag.clone().into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return outcome;
        }
        let start = Instant::now();
        while !flag.1.swap(false, Ordering::SeqCst) {
            assert!(start.elapsed() < Duration::from_secs(60), "nobody wakes the task");
            std::thread::park_timeout(Duration::from_secs(1));
        }
    }
}

/// Tasks of several threads, while committers come and go, one or two at a time: every task is woken, every
/// commit is made once, and who conflicts is told.
#[test]
fn polled_commits_are_made_while_committers_come_and_go() {
    const TASKS: u64 = 4;
    const COMMITS: u64 = 1500;
    let directory = tempfile::tempdir().unwrap();
    let mut options = Options::new();
    (options.create, options.initial_bytes) = (true, 1 << 20);
    let store =
        Store::open(&Pool::open(directory.path().join("a.pool"), &options).unwrap(), "store").unwrap();
    let keyspace = store.keyspace("k").unwrap();
    let (is_done, conflicts) = (AtomicBool::new(false), AtomicU64::new(0));
    let number_in =
        |value: Option<Vec<u8>>| value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
    std::thread::scope(|scope| {
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                scope.spawn(|| {
                    for i in 0..COMMITS {
                        loop {
                            let mut tx = store.begin();
                            let count = number_in(tx.get(&keyspace, "count").unwrap()) + 1;
                            tx.put(&keyspace, "count", count.to_le_bytes()).unwrap();
                            match block_on(tx.commit_async()) {
                                Ok(number) => break assert!(number <= store.snapshot().number()),
                                Err(e) => assert!(e.is_conflict(), "{e}"),
                            }
                            conflicts.fetch_add(1, Ordering::Relaxed);
                        }
                        // Some commits have no waker at all, and are made with the next.
                        if i % 50 == 0 {
                            drop(store.begin().commit_async());
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut committers = VecDeque::new();
            for round in 0.. {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                committers.push_back(store.committer().unwrap());
                std::thread::sleep(Duration::from_micros(200));
                // The oldest goes, and sometimes all.
                let left = if round % 4 == 3 { 0 } else { 1 };
                while committers.len() > left {
                    drop(committers.pop_front());
                }
            }
        });
        let outcomes: Vec<_> = tasks.into_iter().map(|task| task.join()).collect();
        is_done.store(true, Ordering::Relaxed);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    assert_eq!(number_in(store.get(&keyspace, "count").unwrap()), TASKS * COMMITS);
    assert!(conflicts.load(Ordering::Relaxed) > 0, "the tasks did not meet");
    prove(&store);
}

/// The pending task is woken, though the thread that was to commit is gone.
#[test]
fn a_commit_that_was_handed_over_is_made_when_the_committer_goes() {
    let store = store_of(1 << 20);
    let keyspace = store.keyspace("k").unwrap();
    for i in 0..200u32 {
        let committer = store.committer().unwrap();
        let mut tx = store.begin();
        tx.put(&keyspace, i.to_be_bytes(), "v").unwrap();
        let mut commit = tx.commit_async();
        let first = pin!(&mut commit).poll(&mut Context::from_waker(Waker::noop()));
        assert!(first.is_pending(), "it is handed over");
        drop(committer);
        block_on(commit).unwrap();
        assert!(store.get(&keyspace, i.to_be_bytes()).unwrap().is_some());
    }
}

#[test]
fn a_transaction_goes_back_to_its_savepoints() {
    let store = store_of(1 << 20);
    let [a, b] = ["a", "b"].map(|name| store.keyspace(name).unwrap());
    store.put(&a, "old", "1").unwrap();
    let mut tx = store.begin();
    tx.put(&a, "x", "1").unwrap();
    let first = tx.savepoint();
    tx.put(&a, "x", "2").unwrap();
    tx.delete(&a, "old").unwrap();
    tx.put(&b, "y", "2").unwrap();
    let second = tx.savepoint();
    tx.put(&b, "y", "3").unwrap();
    tx.put(&b, "y", "4").unwrap();
    tx.rollback_to(second);
    assert_eq!(tx.get(&b, "y").unwrap().as_deref(), Some(b"2".as_slice()));
    tx.rollback_to(first);
    assert_eq!(tx.get(&a, "x").unwrap().as_deref(), Some(b"1".as_slice()));
    assert!(tx.get(&a, "old").unwrap().is_some() && tx.get(&b, "y").unwrap().is_none());
    let void = second;
    tx.commit().unwrap();
    let keys: Vec<_> = store.snapshot().iter(&a).unwrap().map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, [b"old".to_vec(), b"x".to_vec()]);
    let mut other = store.begin();
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| other.rollback_to(void)));
    assert!(refused.is_err());
}

#[test]
fn conditional_writes_look_at_the_transactions_view() {
    let store = store_of(1 << 20);
    let k = store.keyspace("k").unwrap();
    let (outcomes, _) = store
        .transact(|tx| {
            Ok([
                tx.insert(&k, "a", "1")?,
                tx.insert(&k, "a", "2")?,
                tx.compare_and_swap(&k, "a", Some(b"1"), Some(b"3"))?,
                tx.compare_and_swap(&k, "a", Some(b"1"), None)?,
                tx.compare_and_swap(&k, "b", None, Some(b"4"))?,
                tx.compare_and_swap(&k, "b", Some(b"4"), None)?,
            ])
        })
        .unwrap();
    assert_eq!(outcomes, [true, false, true, false, true, true]);
    assert_eq!(store.get(&k, "a").unwrap().as_deref(), Some(b"3".as_slice()));
    assert_eq!(store.get(&k, "b").unwrap(), None);
}

#[test]
fn the_versions_of_a_key_are_those_that_somebody_needs() {
    let store = store_of(1 << 20);
    let k = store.keyspace("k").unwrap();
    let mut numbers = Vec::new();
    for i in 0..10u64 {
        let number =
            if i == 4 { store.delete(&k, "a") } else { store.put(&k, "a", i.to_be_bytes()) }.unwrap();
        numbers.push(number);
        if i % 2 == 0 {
            assert!(store.keep_number(number).unwrap() && !store.keep_number(number).unwrap());
        }
    }
    collect_all(&store);
    let found: Vec<_> = store.versions(&k, "a").unwrap();
    assert_eq!(
        found.iter().map(|version| version.number).collect::<Vec<_>>(),
        [9, 8, 6, 4, 2, 0].map(|i| numbers[i]),
        "{found:?}"
    );
    assert_eq!(found[3].value, None, "a deletion is a version");
    assert_eq!(store.kept().unwrap().len(), 5);
    for i in [0, 2, 4, 6] {
        assert!(store.delete_number(numbers[i]).unwrap() && !store.delete_number(numbers[i]).unwrap());
    }
    collect_all(&store);
    assert_eq!(store.versions(&k, "a").unwrap().len(), 2);
    assert_eq!(store.at(numbers[8]).unwrap().get(&k, "a").unwrap().unwrap(), 8u64.to_be_bytes());
    let gone = store.at(numbers[6]).unwrap().get(&k, "a").unwrap_err();
    assert!(matches!(gone, Error::NotRetained { .. }), "{gone}");
    assert!(store.versions(&k, "none").unwrap().is_empty());
    prove(&store);
}

#[test]
fn a_dropped_keyspace_is_gone_at_once_and_its_space_comes_back() {
    let store = store_of(4 << 20);
    let kept = store.keyspace("kept").unwrap();
    store.put(&kept, "a", "1").unwrap();
    let pool = store.pool().clone();
    let blocks = |store: &Store| {
        let mut marks = pool.marks().unwrap();
        store.check(&mut marks).unwrap();
        marks.finish().unwrap().allocated_blocks
    };
    let before = blocks(&store);
    let gone = store.keyspace("gone").unwrap();
    for i in 0..300u32 {
        store.put(&gone, i.to_be_bytes(), vec![1; i as usize]).unwrap();
    }
    let snapshot = store.snapshot();
    let mut late = store.begin();
    late.put(&gone, "late", "1").unwrap();
    let mut walk = snapshot.iter(&gone).unwrap();
    walk.next().unwrap().unwrap();
    assert!(store.drop_keyspace("gone").unwrap() && !store.drop_keyspace("gone").unwrap());
    let is_dropped = |e: Error| assert!(matches!(e, Error::KeyspaceDropped { .. }), "{e}");
    is_dropped(store.put(&gone, "a", "1").unwrap_err());
    is_dropped(snapshot.get(&gone, 7u32.to_be_bytes()).unwrap_err());
    is_dropped(late.commit().unwrap_err());
    is_dropped(walk.find_map(Result::err).unwrap());
    assert_eq!(store.keyspaces().unwrap(), ["kept"]);
    // The name is free at once.
    let again = store.keyspace("gone").unwrap();
    assert_eq!(store.snapshot().iter(&again).unwrap().count(), 0);
    assert!(store.drop_keyspace("gone").unwrap());
    assert_eq!(prove(&store).dropped_keyspaces, 2);
    assert!(store.collect(100).unwrap());
    prove(&store);
    collect_all(&store);
    assert_eq!(blocks(&store), before);
    assert_eq!(store.get(&kept, "a").unwrap().as_deref(), Some(b"1".as_slice()));
}

#[test]
fn a_full_pool_refuses_writes_whole_and_lets_deletions_and_reads_go_on() {
    let store = store_of(1 << 20);
    let k = store.keyspace("k").unwrap();
    let mut count = 0u64;
    let full = loop {
        let writes = store
            .transact(|tx| (0..3).try_for_each(|i| tx.put(&k, (3 * count + i).to_be_bytes(), vec![7; 700])));
        match writes {
            Ok(_) => count += 1,
            Err(e) => break e,
        }
    };
    assert!(full.is_full() && count > 100, "{full} after {count}");
    assert_eq!(store.snapshot().iter(&k).unwrap().count() as u64, 3 * count, "in full or not at all");
    prove(&store);
    // The same keys over and over: what is replaced makes room.
    for round in 0..20u8 {
        store.delete(&k, 0u64.to_be_bytes()).unwrap_or_else(|e| panic!("{round}: {e}"));
    }
    for i in 0..count {
        store.delete(&k, (3 * i).to_be_bytes()).unwrap_or_else(|e| panic!("{i} of {count}: {e}"));
    }
    collect_all(&store);
    for i in 0..count / 2 {
        store.put(&k, (3 * i).to_be_bytes(), vec![8; 700]).unwrap_or_else(|e| panic!("{i} of {count}: {e}"));
    }
    prove(&store);
}

#[test]
fn a_store_is_open_once_and_its_handles_are_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new();
    options.create = true;
    let pool = Pool::open(dir.path().join("a.pool"), &options).unwrap();
    let store = Store::open(&pool, "one").unwrap();
    assert!(matches!(Store::open(&pool, "one").unwrap_err(), Error::InUse { .. }));
    let other = Store::open(&pool, "two").unwrap();
    let k = store.keyspace("k").unwrap();
    assert!(matches!(other.put(&k, "a", "1").unwrap_err(), Error::OtherStore { .. }));
    assert!(matches!(other.begin_at(&store.snapshot()).unwrap_err(), Error::OtherStore { .. }));
    assert!(matches!(store.keyspace("").unwrap_err(), Error::Name { .. }));
    assert!(matches!(store.keep(99, "x").unwrap_err(), Error::SnapshotGone { number: 99, .. }));
    store.keep(0, "empty").unwrap();
    assert!(matches!(store.keep(0, "empty").unwrap_err(), Error::SnapshotExists { .. }));
    assert!(matches!(store.at_name("none").unwrap_err(), Error::NoSuchSnapshot { .. }));
}
