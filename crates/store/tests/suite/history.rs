//! The history of a store: changes between snapshots, the log of commits, watching.

use std::collections::BTreeMap;
use std::time::Duration;
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use tembo_store::{
    Audit, AuditedChange, Change, Error, Event, Keyspace, LoggedCommit, Retention, Snapshot, Store,
};

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

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn contents(snapshot: &Snapshot, keyspace: &Keyspace) -> Contents {
    snapshot.iter(keyspace).unwrap().map(Result::unwrap).collect()
}

/// The changes between two states, found without the store.
fn difference(from: &Contents, to: &Contents) -> Vec<Change> {
    let mut keys: Vec<_> = from.keys().chain(to.keys()).cloned().collect();
    keys.sort();
    keys.dedup();
    let changes = keys.into_iter().map(|key| Change {
        before: from.get(&key).cloned(),
        after: to.get(&key).cloned(),
        key,
    });
    changes.filter(|change| change.before != change.after).collect()
}

#[test]
fn changes_between_any_two_snapshots_are_what_differs() {
    let store = store_of(8 << 20);
    let k = store.keyspace("k").unwrap();
    let mut snapshots = vec![store.snapshot()];
    for round in 0..8u32 {
        let mut tx = store.begin();
        for i in 0..400u32 {
            let key = (i * 7 % 400).to_be_bytes();
            match (i * 31 + round * 17) % 11 {
                0 | 1 => tx.delete(&k, key).unwrap(),
                // Some get the value that they have.
                2 => tx.put(&k, key, "same").unwrap(),
                3 | 4 => tx.put(&k, key, vec![round as u8; i as usize % 90]).unwrap(),
                _ => {}
            }
        }
        tx.commit().unwrap();
        snapshots.push(store.snapshot());
    }
    collect_all(&store);
    for from in &snapshots {
        for to in &snapshots {
            let found: Vec<Change> = store.changes(from, to, &k).unwrap().map(Result::unwrap).collect();
            let expected = difference(&contents(from, &k), &contents(to, &k));
            assert_eq!(found, expected, "from {} to {}", from.number(), to.number());
            assert!((from.number() == to.number()) == found.is_empty());
        }
    }
    // It owns what it needs.
    let mut changes = store.changes(&snapshots[0], &snapshots[8], &k).unwrap();
    let expected = difference(&Contents::new(), &contents(&snapshots[8], &k));
    let (first, store_of_thread) = (changes.next().unwrap().unwrap(), store.clone());
    drop(snapshots);
    for i in 0..400u32 {
        store.put(&k, i.to_be_bytes(), "later").unwrap();
    }
    collect_all(&store_of_thread);
    let rest = std::thread::spawn(move || changes.map(Result::unwrap).collect::<Vec<_>>()).join().unwrap();
    assert_eq!([vec![first], rest].concat(), expected);
}

#[test]
fn changes_need_snapshots_that_are_there() {
    let store = store_of(2 << 20);
    let other = store_of(2 << 20);
    let (k, kept) = (store.keyspace("k").unwrap(), store.keyspace_with("all", Retention::All).unwrap());
    let first = store.put(&k, "a", "1").unwrap();
    store.put(&kept, "a", "1").unwrap();
    store.put(&k, "a", "2").unwrap();
    let (now, early) = (store.snapshot(), store.at(first).unwrap());
    assert!(matches!(store.changes(&early, &now, &k).unwrap_err(), Error::NotRetained { .. }));
    assert_eq!(store.changes(&early, &now, &kept).unwrap().count(), 1);
    assert!(matches!(store.changes(&other.snapshot(), &now, &k).unwrap_err(), Error::OtherStore { .. }));
    store.drop_keyspace("k").unwrap();
    assert!(matches!(store.changes(&now, &now, &k).unwrap_err(), Error::KeyspaceDropped { .. }));
}

fn log(store: &Store) -> Vec<LoggedCommit> {
    store.log(..).map(Result::unwrap).collect()
}

/// A commit as the log is to have it: its number, the number of its snapshot, and its keys.
type Expected = (u64, u64, Vec<(u64, Vec<u8>, bool)>);

/// Commits that put, or delete, up to three keys.
fn commit_with_keys(store: &Store, [k, l]: [&Keyspace; 2], i: u64) -> Expected {
    let mut tx = store.begin();
    let begin = tx.snapshot().number();
    tx.put(l, i.to_be_bytes(), [1; 100]).unwrap();
    tx.put(k, "key", i.to_be_bytes()).unwrap();
    if i % 3 == 1 {
        tx.delete(k, "before").unwrap();
    } else if i % 3 == 2 {
        tx.put(k, "before", "again").unwrap();
    }
    let before_unix = std::time::SystemTime::now();
    let number = tx.commit().unwrap();
    let mut keys = vec![(k.id(), b"key".to_vec(), false)];
    if !i.is_multiple_of(3) {
        keys.insert(0, (k.id(), b"before".to_vec(), i % 3 == 1));
    }
    keys.push((l.id(), i.to_be_bytes().to_vec(), false));
    let last = store.log(number..).next().unwrap().unwrap();
    assert!(last.time() >= before_unix && last.time() <= std::time::SystemTime::now());
    (number, begin, keys)
}

#[test]
fn the_log_has_each_commit_with_its_keys() {
    let store = store_of(4 << 20);
    let [k, l] = ["k", "l"].map(|name| store.keyspace(name).unwrap());
    store.put(&k, "before", "there was a log").unwrap();
    assert_eq!((log(&store), store.logged_after().unwrap()), (vec![], None));
    store.set_audit(Audit::Commits(1000)).unwrap();
    let start = store.snapshot().number();
    assert_eq!(store.logged_after().unwrap(), Some(start));
    let expected: Vec<_> = (0..150).map(|i| commit_with_keys(&store, [&k, &l], i)).collect();
    let found: Vec<_> = log(&store)
        .into_iter()
        .map(|one| {
            let keys = one.keys.into_iter().map(|key| (key.keyspace, key.key, key.is_deleted)).collect();
            (one.number, one.begin, keys)
        })
        .collect();
    assert_eq!(found, expected);
    let mut backwards: Vec<_> = store.log(..).rev().map(|one| one.unwrap().number).collect();
    backwards.reverse();
    let numbers: Vec<u64> = expected.iter().map(|one| one.0).collect();
    assert_eq!(backwards, numbers);
    let part: Vec<_> = store.log(numbers[20]..numbers[120]).map(|one| one.unwrap().number).collect();
    assert_eq!(part, &numbers[20..120]);
    prove(&store);
    // Nothing is logged that was not committed, and nothing that changes nothing.
    let mut tx = store.begin();
    tx.put(&k, "key", "late").unwrap();
    store.put(&k, "key", "first").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    store.delete(&k, "no such key").unwrap();
    assert_eq!(log(&store).len(), 151);
    prove(&store);
    let pool = store.pool().clone();
    let entries = log(&store);
    drop((k, l, store));
    let store = Store::open(&pool, "store").unwrap();
    assert_eq!((store.audit_policy(), log(&store)), (Audit::Commits(1000), entries));
    the_log_ends_and_begins_again(&store);
}

fn the_log_ends_and_begins_again(store: &Store) {
    store.set_audit(Audit::Off).unwrap();
    assert_eq!((log(store), store.audit_policy()), (vec![], Audit::Off));
    prove(store);
    collect_all(store);
    prove(store);
    let k = store.keyspace("k").unwrap();
    store.put(&k, "unlogged", "").unwrap();
    store.set_audit(Audit::For(Duration::from_secs(1000))).unwrap();
    store.put(&k, "logged", "").unwrap();
    assert_eq!(log(store).len(), 1);
    prove(store);
}

#[test]
fn an_audit_trail_has_the_values_that_are_retained() {
    let store = store_of(4 << 20);
    let all = store.keyspace_with("all", Retention::All).unwrap();
    let none = store.keyspace("none").unwrap();
    store.set_audit(Audit::Commits(1 << 20)).unwrap();
    for i in 0..90u32 {
        for keyspace in [&all, &none] {
            if i % 10 == 9 {
                store.delete(keyspace, "a").unwrap();
            } else {
                store.put(keyspace, "a", i.to_string()).unwrap();
            }
            store.put(keyspace, "b", "other").unwrap();
        }
    }
    collect_all(&store);
    let trail = |keyspace: &Keyspace| -> Vec<AuditedChange> {
        store.audit(keyspace, "a").unwrap().map(|record| record.unwrap().change).collect()
    };
    for (i, change) in trail(&all).into_iter().rev().enumerate() {
        let put = AuditedChange::Put(i.to_string().into_bytes());
        assert_eq!(change, if i % 10 == 9 { AuditedChange::Deleted } else { put });
    }
    let of_none = trail(&none);
    assert_eq!(of_none.len(), 90);
    assert_eq!(of_none[0], AuditedChange::Deleted);
    assert_eq!(of_none[50], AuditedChange::Deleted);
    assert!(of_none[51..59].iter().all(|change| *change == AuditedChange::PutCollected));
    let numbers: Vec<u64> = store.audit(&all, "a").unwrap().map(|record| record.unwrap().number).collect();
    assert!(numbers.is_sorted_by(|a, b| a > b), "from the newest to the oldest");
    prove(&store);
}

#[test]
fn past_entries_of_the_log_go_in_bounded_steps() {
    let store = store_of(4 << 20);
    let k = store.keyspace("k").unwrap();
    store.set_audit(Audit::Commits(100)).unwrap();
    for i in 0..1000u64 {
        store.put(&k, (i % 10).to_be_bytes(), i.to_be_bytes()).unwrap();
        let len = log(&store).len();
        assert!(len <= 164, "{len} entries after {i} commits, without a call of collect");
    }
    prove(&store);
    collect_all(&store);
    let entries = log(&store);
    assert_eq!(entries.len(), 100);
    assert!(entries[0].number > store.logged_after().unwrap().unwrap());
    prove(&store);
    store.set_audit(Audit::For(Duration::from_millis(200))).unwrap();
    collect_all(&store);
    assert!(!log(&store).is_empty());
    std::thread::sleep(Duration::from_millis(220));
    collect_all(&store);
    assert_eq!(log(&store), []);
    assert_eq!(prove(&store).keys, 10);
}

fn changed(event: Event) -> (Vec<u8>, Option<Vec<u8>>) {
    match event {
        Event::Changed(change) => (change.key, change.value),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_watch_tells_of_each_commit_of_its_keys_in_order() {
    let store = store_of(4 << 20);
    let [k, l] = ["k", "l"].map(|name| store.keyspace(name).unwrap());
    store.put(&k, "a1", "before").unwrap();
    let one = store.watch(&k, "a1").unwrap();
    let many = store.watch_prefix(&k, "a").unwrap();
    assert_eq!((one.try_recv().unwrap(), one.from()), (None, store.snapshot().number()));
    let mut tx = store.begin();
    tx.put(&k, "a2", "x").unwrap();
    tx.put(&k, "a1", "y").unwrap();
    tx.put(&k, "b", "not watched").unwrap();
    tx.put(&l, "a1", "of another keyspace").unwrap();
    let number = tx.commit().unwrap();
    store.delete(&k, "a1").unwrap();
    let mut late = store.begin_at(&store.snapshot()).unwrap();
    // Its first key has no conflict.
    late.put(&k, "a0", "late").unwrap();
    late.put(&k, "a2", "late").unwrap();
    store.put(&k, "a2", "first").unwrap();
    // In one group with another.
    let late = late.commit_async();
    store.put(&k, "a3", "beside it").unwrap();
    assert!(late.wait().unwrap_err().is_conflict());
    let first = one.recv().unwrap();
    assert!(matches!(&first, Event::Changed(change) if change.number == number));
    assert_eq!(changed(first), (b"a1".to_vec(), Some(b"y".to_vec())));
    assert_eq!(changed(one.recv().unwrap()), (b"a1".to_vec(), None));
    assert_eq!(one.try_recv().unwrap(), None);
    let all: Vec<_> = (0..5).map(|_| changed(many.recv().unwrap())).collect();
    let text = |value: &str| Some(value.as_bytes().to_vec());
    let expected = [
        ("a1", text("y")),
        ("a2", text("x")),
        ("a1", None),
        ("a2", text("first")),
        ("a3", text("beside it")),
    ];
    assert_eq!(all, expected.map(|(key, value)| (key.as_bytes().to_vec(), value)));
    assert_eq!(many.recv_timeout(Duration::from_millis(5)).unwrap(), None);
    store.drop_keyspace("k").unwrap();
    assert!(matches!(one.recv().unwrap_err(), Error::KeyspaceDropped { .. }));
}

#[test]
fn a_watch_is_told_by_other_threads_and_sees_what_it_is_told_of() {
    let store = store_of(4 << 20);
    let k = store.keyspace("k").unwrap();
    let watch = store.watch_prefix(&k, "").unwrap();
    let writers: Vec<_> = (0..4u32)
        .map(|thread| {
            let (store, k) = (store.clone(), k.clone());
            std::thread::spawn(move || {
                for i in 0..200u32 {
                    store.put(&k, thread.to_be_bytes(), i.to_be_bytes()).unwrap();
                }
            })
        })
        .collect();
    let (mut last, mut next) = (watch.from(), [0u32; 4]);
    for _ in 0..800 {
        let Event::Changed(change) = watch.recv().unwrap() else { panic!("it lags") };
        assert!(change.number > last);
        last = change.number;
        let thread = u32::from_be_bytes(change.key.clone().try_into().unwrap()) as usize;
        assert_eq!(change.value.as_deref(), Some(&next[thread].to_be_bytes()[..]));
        next[thread] += 1;
        assert!(store.snapshot().number() >= change.number, "it is visible");
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(watch.try_recv().unwrap(), None);
}

#[test]
fn a_watch_that_nobody_reads_lags_and_goes_on() {
    let store = store_of(4 << 20);
    let k = store.keyspace("k").unwrap();
    let watch = store.watch(&k, "a").unwrap();
    let numbers: Vec<u64> = (0..5000u32).map(|i| store.put(&k, "a", i.to_be_bytes()).unwrap()).collect();
    let Event::Lagged { from, to } = watch.recv().unwrap() else { panic!("it kept 5000 changes") };
    assert_eq!(from, numbers[0]);
    let mut after = numbers.iter().skip_while(|number| **number <= to).peekable();
    assert!(after.peek().is_some());
    for number in after {
        assert!(matches!(watch.recv().unwrap(), Event::Changed(change) if change.number == *number));
    }
    assert_eq!(watch.try_recv().unwrap(), None);
    drop(watch);
    store.put(&k, "a", "nobody watches").unwrap();
}
