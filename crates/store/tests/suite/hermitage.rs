//! Hermitage's cases: transactions in an order that shows an anomaly where it can happen. Each runs with
//! snapshot isolation and serializable, with commits one after the other and with commits of one group.
//!
//! | case | snapshot isolation | serializable |
//! |---|---|---|
//! | G0 write cycles, G1a, G1b, G1c, OTV, PMP, P4, G-single in all forms | prevented | prevented |
//! | G2-item: write skew; G2: cycles of predicates, of two and of three | allowed | prevented |
//!
//! A case that snapshot isolation allows is shown to happen, as the documentation says that it does.

use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use tembo_store::{Error, Keyspace, Result, Store, Transaction};

/// The promises of a case's transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Snapshot,
    Serializable,
}
use Level::{Serializable, Snapshot};

/// Whether two commits are made one after the other, or are both asked for before one is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Commits {
    Apart,
    Together,
}

/// Keys `1` and `2` with the values 10 and 20.
struct Case {
    store: Store,
    test: Keyspace,
    level: Level,
    commits: Commits,
}

/// Runs a case in every form.
fn each(case: impl Fn(&Case)) {
    for level in [Snapshot, Serializable] {
        for commits in [Commits::Apart, Commits::Together] {
            let region = Region::simulated(&vec![0; 4 << 20], 4 << 20, None).unwrap();
            let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
            let store = Store::open(&pool, "store").unwrap();
            let test = store.keyspace("test").unwrap();
            let new = Case { store, test, level, commits };
            let mut tx = new.store.begin();
            new.set(&mut tx, "1", 10);
            new.set(&mut tx, "2", 20);
            tx.commit().unwrap();
            println!("{level:?}, {commits:?}");
            case(&new);
            let mut marks = pool.marks().unwrap();
            new.store.check(&mut marks).unwrap();
            marks.finish().unwrap();
        }
    }
}

fn as_number(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().unwrap())
}

impl Case {
    fn begin(&self) -> Transaction {
        match self.level {
            Snapshot => self.store.begin(),
            Serializable => self.store.begin_serializable(),
        }
    }

    fn two(&self) -> (Transaction, Transaction) {
        (self.begin(), self.begin())
    }

    fn get(&self, tx: &mut Transaction, key: &str) -> i64 {
        as_number(&tx.get(&self.test, key).unwrap().unwrap())
    }

    fn set(&self, tx: &mut Transaction, key: &str, value: i64) {
        tx.put(&self.test, key, value.to_le_bytes()).unwrap();
    }

    /// The keys and values for which a predicate holds, found by a walk over all keys.
    fn select(&self, tx: &mut Transaction, holds: impl Fn(i64) -> bool) -> Vec<(String, i64)> {
        let entries = tx.range::<&str>(&self.test, ..).unwrap().map(|entry| {
            let (key, value) = entry.unwrap();
            (String::from_utf8(key).unwrap(), as_number(&value))
        });
        entries.filter(|(_, value)| holds(*value)).collect()
    }

    /// Commits both, the first first.
    fn commit(&self, first: Transaction, second: Transaction) -> (Result<u64>, Result<u64>) {
        match self.commits {
            Commits::Apart => (first.commit(), second.commit()),
            Commits::Together => {
                let (first, second) = (first.commit_async(), second.commit_async());
                let second = second.wait();
                (first.wait(), second)
            }
        }
    }

    /// Commits both, of which the second must conflict.
    fn commit_one_of(&self, first: Transaction, second: Transaction) -> u64 {
        let (first, second) = self.commit(first, second);
        let error = second.unwrap_err();
        assert!(error.is_conflict(), "{error}");
        first.unwrap()
    }

    /// Commits both: the second conflicts if they are serializable.
    fn commit_cycle(&self, first: Transaction, second: Transaction) {
        match self.level {
            Snapshot => {
                let (first, second) = self.commit(first, second);
                assert!(first.unwrap() < second.unwrap());
            }
            Serializable => _ = self.commit_one_of(first, second),
        }
    }

    fn contents(&self) -> Vec<(String, i64)> {
        self.select(&mut self.store.begin(), |_| true)
    }

    fn assert_contents<const N: usize>(&self, expected: [(&str, i64); N]) {
        assert_eq!(self.contents(), owned(expected));
    }
}

fn owned<const N: usize>(entries: [(&str, i64); N]) -> Vec<(String, i64)> {
    entries.map(|(key, value)| (key.to_owned(), value)).to_vec()
}

#[test]
fn g0_writes_of_two_transactions_are_not_mixed() {
    each(|case| {
        let (mut a, mut b) = case.two();
        case.set(&mut a, "1", 11);
        case.set(&mut b, "1", 12);
        case.set(&mut a, "2", 21);
        case.set(&mut b, "2", 22);
        case.commit_one_of(a, b);
        case.assert_contents([("1", 11), ("2", 21)]);
    });
}

#[test]
fn g1a_aborted_writes_are_not_read() {
    each(|case| {
        let (mut a, mut b) = case.two();
        case.set(&mut a, "1", 101);
        assert_eq!(case.get(&mut b, "1"), 10);
        a.abort();
        assert_eq!(case.get(&mut b, "1"), 10);
        b.commit().unwrap();
        // One that conflicts is as good as aborted.
        let (mut a, mut b) = case.two();
        case.set(&mut a, "1", 11);
        case.set(&mut b, "1", 102);
        case.set(&mut b, "2", 202);
        case.commit_one_of(a, b);
        case.assert_contents([("1", 11), ("2", 20)]);
    });
}

#[test]
fn g1b_intermediate_writes_are_not_read() {
    each(|case| {
        let (mut a, mut b) = case.two();
        case.set(&mut a, "1", 101);
        assert_eq!(case.get(&mut b, "1"), 10);
        case.set(&mut a, "1", 11);
        a.commit().unwrap();
        assert_eq!(case.get(&mut b, "1"), 10, "its snapshot is older");
        b.commit().unwrap();
        assert_eq!(case.get(&mut case.begin(), "1"), 11);
    });
}

#[test]
fn g1c_information_does_not_flow_in_circles() {
    each(|case| {
        let (mut a, mut b) = case.two();
        case.set(&mut a, "1", 11);
        case.set(&mut b, "2", 22);
        assert_eq!((case.get(&mut a, "2"), case.get(&mut b, "1")), (20, 10));
        // Neither saw the other. That both are committed is write skew, and not a circle of information.
        case.commit_cycle(a, b);
        let second = if case.level == Snapshot { 22 } else { 20 };
        case.assert_contents([("1", 11), ("2", second)]);
    });
}

#[test]
fn otv_a_transaction_that_was_seen_does_not_vanish() {
    each(|case| {
        let (mut a, mut b) = case.two();
        case.set(&mut a, "1", 11);
        case.set(&mut a, "2", 19);
        case.set(&mut b, "1", 12);
        a.commit().unwrap();
        let mut reader = case.begin();
        assert_eq!(case.get(&mut reader, "1"), 11);
        case.set(&mut b, "2", 18);
        assert!(b.commit().unwrap_err().is_conflict());
        case.store.transact(|tx| tx.put(&case.test, "2", 17i64.to_le_bytes())).unwrap();
        assert_eq!((case.get(&mut reader, "2"), case.get(&mut reader, "1")), (19, 11));
        reader.commit().unwrap();
    });
}

#[test]
fn pmp_a_predicate_is_read_in_one_snapshot() {
    each(|case| {
        let (mut a, mut b) = case.two();
        assert_eq!(case.select(&mut a, |value| value == 30), []);
        case.set(&mut b, "3", 30);
        b.commit().unwrap();
        assert_eq!(case.select(&mut a, |value| value % 3 == 0), []);
        a.commit().unwrap();
    });
}

#[test]
fn pmp_a_predicate_of_writes_conflicts_with_what_changed_under_it() {
    each(|case| {
        let (mut a, mut b) = case.two();
        // All grow by 10, and whatever is 20 is deleted.
        for (key, value) in case.select(&mut a, |_| true) {
            case.set(&mut a, &key, value + 10);
        }
        for (key, _) in case.select(&mut b, |value| value == 20) {
            b.delete(&case.test, key).unwrap();
        }
        case.commit_one_of(a, b);
        case.assert_contents([("1", 20), ("2", 30)]);
        // A range that is deleted.
        let mut b = case.begin();
        assert_eq!(b.delete_range::<&str>(&case.test, "2"..).unwrap(), 1);
        let mut a = case.begin();
        case.set(&mut a, "2", 31);
        case.commit_one_of(a, b);
        case.assert_contents([("1", 20), ("2", 31)]);
    });
}

#[test]
fn p4_updates_are_not_lost() {
    each(|case| {
        let before = case.store.snapshot().number();
        let (mut a, mut b) = case.two();
        for tx in [&mut a, &mut b] {
            let value = case.get(tx, "1");
            case.set(tx, "1", value + 1);
        }
        let (first, second) = case.commit(a, b);
        let first = first.unwrap();
        match second.unwrap_err() {
            Error::Conflict { keyspace, key, by, snapshot } => {
                assert_eq!((keyspace.as_str(), key.as_slice()), ("test", b"1".as_slice()));
                assert_eq!((by, snapshot), (first, before));
            }
            other => panic!("{other}"),
        }
        case.assert_contents([("1", 11), ("2", 20)]);
    });
}

/// As P4, where one of both deletes, or the key is new.
#[test]
fn p4_insertions_and_deletions_are_not_lost() {
    each(|case| {
        let (mut a, mut b) = case.two();
        a.delete(&case.test, "1").unwrap();
        case.set(&mut b, "1", 12);
        case.commit_one_of(a, b);
        let (mut a, mut b) = case.two();
        case.set(&mut a, "2", 21);
        b.delete(&case.test, "2").unwrap();
        case.commit_one_of(a, b);
        let (mut a, mut b) = case.two();
        assert!(a.insert(&case.test, "3", 31i64.to_le_bytes()).unwrap());
        assert!(b.insert(&case.test, "3", 32i64.to_le_bytes()).unwrap());
        case.commit_one_of(a, b);
        // A key that came and went since.
        let mut b = case.begin();
        assert!(b.insert(&case.test, "4", 42i64.to_le_bytes()).unwrap());
        case.store.put(&case.test, "4", 41i64.to_le_bytes()).unwrap();
        case.store.delete(&case.test, "4").unwrap();
        while case.store.collect(100).unwrap() {}
        assert!(b.commit().unwrap_err().is_conflict());
        case.assert_contents([("2", 21), ("3", 31)]);
    });
}

#[test]
fn g_single_reads_are_not_skewed() {
    each(|case| {
        let (mut a, mut b) = case.two();
        assert_eq!(case.get(&mut a, "1"), 10);
        assert_eq!((case.get(&mut b, "1"), case.get(&mut b, "2")), (10, 20));
        case.set(&mut b, "1", 12);
        case.set(&mut b, "2", 18);
        b.commit().unwrap();
        assert_eq!(case.get(&mut a, "2"), 20);
        a.commit().unwrap();
    });
}

#[test]
fn g_single_reads_of_predicates_are_not_skewed() {
    each(|case| {
        let (mut a, mut b) = case.two();
        assert_eq!(case.select(&mut a, |value| value % 5 == 0), owned([("1", 10), ("2", 20)]));
        for (key, _) in case.select(&mut b, |value| value == 10) {
            case.set(&mut b, &key, 12);
        }
        b.commit().unwrap();
        assert_eq!(case.select(&mut a, |value| value % 3 == 0), []);
        a.commit().unwrap();
    });
}

#[test]
fn g_single_writes_after_a_skewed_read_conflict() {
    each(|case| {
        let (mut a, mut b) = case.two();
        assert_eq!(case.get(&mut a, "1"), 10);
        case.select(&mut b, |_| true);
        case.set(&mut b, "1", 12);
        case.set(&mut b, "2", 18);
        b.commit().unwrap();
        // It deletes whatever is 20: that is key 2 in its snapshot.
        for (key, _) in case.select(&mut a, |value| value == 20) {
            a.delete(&case.test, key).unwrap();
        }
        assert_eq!(case.select(&mut a, |_| true), owned([("1", 10)]), "its own deletion is seen");
        assert!(a.commit().unwrap_err().is_conflict());
        case.assert_contents([("1", 12), ("2", 18)]);
    });
}

/// As above, while the writer is still under way when the other commits.
#[test]
fn g_single_of_writers_in_flight_conflicts() {
    each(|case| {
        let (mut a, mut b) = case.two();
        assert_eq!(case.get(&mut a, "1"), 10);
        case.set(&mut b, "1", 12);
        case.set(&mut b, "2", 18);
        a.delete(&case.test, "2").unwrap();
        case.commit_one_of(b, a);
        case.assert_contents([("1", 12), ("2", 18)]);
    });
}

#[test]
fn g2_item_write_skew_is_allowed_by_snapshot_isolation_alone() {
    each(|case| {
        let (mut a, mut b) = case.two();
        for tx in [&mut a, &mut b] {
            assert_eq!((case.get(tx, "1"), case.get(tx, "2")), (10, 20));
        }
        case.set(&mut a, "1", 11);
        case.set(&mut b, "2", 21);
        case.commit_cycle(a, b);
        let second = if case.level == Snapshot { 21 } else { 20 };
        case.assert_contents([("1", 11), ("2", second)]);
    });
}

#[test]
fn g2_cycles_of_predicates_are_allowed_by_snapshot_isolation_alone() {
    each(|case| {
        let (mut a, mut b) = case.two();
        for tx in [&mut a, &mut b] {
            assert_eq!(case.select(tx, |value| value % 3 == 0), []);
        }
        case.set(&mut a, "3", 30);
        case.set(&mut b, "4", 42);
        case.commit_cycle(a, b);
        let count = case.select(&mut case.begin(), |value| value % 3 == 0).len();
        assert_eq!(count, if case.level == Snapshot { 2 } else { 1 });
    });
}

/// A transaction that only reads makes the cycle (Fekete, O'Neil and O'Neil).
#[test]
fn g2_with_two_edges_is_allowed_by_snapshot_isolation_alone() {
    each(|case| {
        let mut a = case.begin();
        assert_eq!(case.contents_in(&mut a), owned([("1", 10), ("2", 20)]));
        let mut b = case.begin();
        let value = case.get(&mut b, "2");
        case.set(&mut b, "2", value + 5);
        b.commit().unwrap();
        let mut reader = case.begin();
        assert_eq!(case.contents_in(&mut reader), owned([("1", 10), ("2", 25)]));
        reader.commit().unwrap();
        case.set(&mut a, "1", 0);
        let outcome = a.commit();
        match case.level {
            Snapshot => _ = outcome.unwrap(),
            Serializable => assert!(outcome.unwrap_err().is_conflict()),
        }
    });
}

/// Three transactions, each of which reads what the next one writes.
#[test]
fn g2_cycles_of_three_are_allowed_by_snapshot_isolation_alone() {
    each(|case| {
        case.store.put(&case.test, "3", 30i64.to_le_bytes()).unwrap();
        let keys = ["1", "2", "3"];
        let mut all: Vec<Transaction> = (0..3).map(|_| case.begin()).collect();
        for (i, tx) in all.iter_mut().enumerate() {
            case.get(tx, keys[(i + 1) % 3]);
            case.set(tx, keys[i], 1);
        }
        // The last one first: each has read what is written after it, but for the last.
        let first = all.remove(0);
        let (third, second) = (all.remove(1), all.remove(0));
        let (third, second) = case.commit(third, second);
        third.unwrap();
        match case.level {
            Snapshot => {
                second.unwrap();
                first.commit().unwrap();
            }
            Serializable => {
                assert!(second.unwrap_err().is_conflict());
                first.commit().unwrap();
            }
        }
    });
}

/// Serializable transactions are not refused where an order explains them.
#[test]
fn serializable_transactions_that_have_an_order_are_committed() {
    each(|case| {
        let (mut a, mut b) = case.two();
        assert_eq!(case.get(&mut a, "1"), 10);
        assert_eq!(case.get(&mut b, "2"), 20);
        case.set(&mut a, "1", 11);
        case.set(&mut b, "2", 21);
        let (a, b) = case.commit(a, b);
        assert!(a.unwrap() < b.unwrap());
        // The second reads what the first writes, and is committed first.
        let (mut a, mut b) = case.two();
        case.set(&mut a, "1", 12);
        assert_eq!(case.get(&mut b, "1"), 11);
        case.set(&mut b, "2", 22);
        let (b, a) = case.commit(b, a);
        assert!(b.unwrap() < a.unwrap());
        case.assert_contents([("1", 12), ("2", 22)]);
    });
}

impl Case {
    fn contents_in(&self, tx: &mut Transaction) -> Vec<(String, i64)> {
        self.select(tx, |_| true)
    }
}
