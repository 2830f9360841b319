//! Savepoints, changes and backups through the socket: each is as at the owner's.

use super::{open, place, prove, wait_until};
use std::io::Write;
use tembo_store::remote::{RemoteStore, ServeOptions, Serving, serve, socket_of};
use tembo_store::{Error, Store};

#[test]
fn a_savepoint_takes_back_what_was_written_after_it_and_its_bytes() {
    let (_directory, path) = place();
    let store = open(&path);
    let serving = store.serve(socket_of(&path)).unwrap();
    let remote = RemoteStore::connect(serving.path(), "bank").unwrap();
    let keyspace = remote.keyspace("k").unwrap();
    remote.put(&keyspace, "old", "0").unwrap();
    let mut tx = remote.begin();
    tx.put(&keyspace, "a", "1").unwrap();
    let first = tx.savepoint();
    tx.put(&keyspace, "a", "2").unwrap();
    tx.delete(&keyspace, "old").unwrap();
    tx.put(&keyspace, "large", vec![1; 40 << 20]).unwrap();
    let second = tx.savepoint();
    assert_eq!(tx.delete_range::<Vec<u8>>(&keyspace, ..).unwrap(), 2);
    tx.rollback_to(second);
    assert_eq!(tx.get(&keyspace, "a").unwrap().unwrap(), b"2");
    assert_eq!((tx.get(&keyspace, "old").unwrap(), tx.range(&keyspace, "a"..).unwrap().count()), (None, 2));
    tx.rollback_to(first);
    let all: Vec<_> = tx.range(&keyspace, "a"..).unwrap().map(Result::unwrap).collect();
    assert_eq!(all, [(b"a".to_vec(), b"1".to_vec()), (b"old".to_vec(), b"0".to_vec())]);
    // Two of these would not fit a message.
    tx.put(&keyspace, "large", vec![2; 40 << 20]).unwrap();
    tx.rollback_to(first);
    tx.put(&keyspace, "b", "3").unwrap();
    tx.commit().unwrap();
    let here = store.keyspace("k").unwrap();
    let keys: Vec<_> = store.snapshot().iter(&here).unwrap().map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, [b"a".to_vec(), b"b".to_vec(), b"old".to_vec()]);
    // One all of whose writes were taken back commits nothing.
    let (mut tx, before) = (remote.begin(), store.snapshot().number());
    let start = tx.savepoint();
    tx.put(&keyspace, "a", "4").unwrap();
    tx.rollback_to(start);
    assert_eq!((tx.commit().unwrap(), store.snapshot().number()), (before, before));
    let mut tx = remote.begin();
    let void = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tx.rollback_to(second)));
    assert!(void.is_err(), "a savepoint of another transaction");
}

#[test]
fn changes_between_two_snapshots_are_those_that_the_owner_finds() {
    let (_directory, path) = place();
    let store = open(&path);
    let serving = store.serve(socket_of(&path)).unwrap();
    let connect = || RemoteStore::connect(serving.path(), "bank").unwrap();
    let (remote, other) = (connect(), connect());
    let (here, there) = (store.keyspace("k").unwrap(), remote.keyspace("k").unwrap());
    let put = |keys: std::ops::Range<u32>, value: &[u8]| {
        store.transact(|tx| keys.clone().try_for_each(|i| tx.put(&here, i.to_be_bytes(), value))).unwrap().1
    };
    put(0..20_000, b"first");
    let (local, first) = (store.snapshot(), remote.snapshot().unwrap());
    // Few among many, pages of many, and pages of long ones; one is written, and has what it had.
    put(0..2000, b"other");
    put(9000..9020, &[7; 50_000]);
    put(15_000..15_001, b"first");
    store.transact(|tx| tx.delete_range(&here, 19_990u32.to_be_bytes()..)).unwrap();
    store.put(&here, "new", "1").unwrap();
    let (local_last, last) = (store.snapshot(), remote.snapshot().unwrap());
    let expect = |from, to| store.changes(from, to, &here).unwrap().map(Result::unwrap).collect::<Vec<_>>();
    let find = |from, to| remote.changes(from, to, &there).unwrap().map(Result::unwrap).collect::<Vec<_>>();
    let forwards = find(&first, &last);
    assert_eq!(forwards.len(), 2000 + 20 + 10 + 1);
    assert!(forwards == expect(&local, &local_last));
    assert!(find(&last, &first) == expect(&local_last, &local));
    assert!(find(&last, &last).is_empty());
    assert!(matches!(other.changes(&first, &last, &there), Err(Error::OtherStore { .. })));
    let of_other = other.snapshot().unwrap();
    assert!(matches!(remote.changes(&first, &of_other, &there), Err(Error::OtherStore { .. })));
    // A walk that began goes on after the snapshots were dropped, and hears that the keyspace was.
    let mut walk = remote.changes(&first, &last, &there).unwrap();
    drop((first, last));
    assert!(walk.next().unwrap().unwrap() == forwards[0]);
    remote.drop_keyspace("k").unwrap();
    let rest: Vec<_> = walk.collect();
    assert!(matches!(rest.last(), Some(Err(Error::KeyspaceDropped { .. }))));
    assert!(rest.len() < forwards.len());
}

#[test]
fn a_backup_through_the_socket_is_the_owners() {
    let (_directory, path) = place();
    let store = open(&path);
    let serving = store.serve(socket_of(&path)).unwrap();
    let remote = RemoteStore::connect(serving.path(), "bank").unwrap();
    let (k, large) = (store.keyspace("k").unwrap(), store.keyspace("large").unwrap());
    store
        .transact(|tx| (0..9000u32).try_for_each(|i| tx.put(&k, i.to_be_bytes(), vec![i as u8; 200])))
        .unwrap();
    // It fits no message.
    store.put(&large, "large", vec![3; 65 << 20]).unwrap();
    let (local, first) = (store.snapshot(), remote.snapshot().unwrap());
    let (mut whole, mut expected) = (Vec::new(), Vec::new());
    let summary = first.backup(&mut whole).unwrap();
    assert_eq!(summary, local.backup(&mut expected).unwrap());
    assert!(whole == expected, "the same bytes");
    store.put(&k, "later", "1").unwrap();
    store.drop_keyspace("large").unwrap();
    let last = remote.snapshot().unwrap();
    let mut difference = Vec::new();
    assert_eq!(last.backup_since(&first, &mut difference).unwrap().changes, 1);
    let copy = Store::restore(store.pool(), "copy", [&whole[..], &difference[..]]).unwrap();
    assert_eq!(copy.snapshot().iter(&copy.keyspace("k").unwrap()).unwrap().count(), 9001);
    assert!(matches!(first.backup_since(&last, Vec::new()), Err(Error::BackupOrder { .. })));

    assert!(copy.find_keyspace("large").unwrap().is_none());
}

#[test]
fn a_backup_that_ends_early_says_why_and_leaves_the_connection() {
    let (_directory, path) = place();
    let store = open(&path);
    let mut options = ServeOptions::default();
    options.clients_max = 2;
    let serving = serve(socket_of(&path), store.clone(), options).unwrap();
    let remote = RemoteStore::connect(serving.path(), "bank").unwrap();
    let keyspace = remote.keyspace("k").unwrap();
    // More than the buffers of a socket.
    remote
        .transact(|tx| (0..9000u32).try_for_each(|i| tx.put(&keyspace, i.to_be_bytes(), vec![7; 200])))
        .unwrap();
    let first = remote.snapshot().unwrap();
    // A writer that fails ends the backup, and this connection goes on; so it does while there is no place.
    struct Broken;
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    assert!(matches!(first.backup(Broken), Err(Error::Io { .. })));
    wait_until("its connection is gone", || serving.clients() == 1);
    let second = RemoteStore::connect(serving.path(), "bank").unwrap();
    assert!(matches!(first.backup(Vec::new()), Err(Error::Refused { .. })));
    drop(second);
    assert_eq!(remote.get(&keyspace, 5u32.to_be_bytes()).unwrap().unwrap(), vec![7; 200]);
    wait_until("a place is free", || serving.clients() == 1);

    // The owner stops while parts are on their way.
    struct Stops(Option<Serving>);
    impl Write for Stops {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            drop(self.0.take());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let outcome = first.backup(Stops(Some(serving)));
    assert!(matches!(outcome, Err(Error::Disconnected { .. })), "{outcome:?}");
    prove(&store);
}
