//! Histories for a published checker, `adya`: transactions append to lists and read them whole, from which
//! it infers who depends on whom, and looks for cycles. It knows nothing of the store's numbers. It covers
//! single keys; ranges are for `checker.rs`.

use super::env_number;
use adya::history::{Interner, Mop, Op, OpType, ReadValue, Scalar};
use adya::{History, Opts, Valid, Workload};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tembo_pool::{Options, Pool};
use tembo_store::{Keyspace, Store, Transaction};

const THREADS: usize = 8;
/// Keys that are in use at one time; they are left for others before their lists become long.
const KEYS: u64 = 6;
const TRANSACTIONS_PER_KEYS: u64 = 60;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Append(u64, i64),
    Read(u64, Vec<i64>),
}

/// A transaction with the times of its invocation and its completion.
#[derive(Debug, Clone)]
struct Listed {
    thread: usize,
    steps: Vec<Step>,
    is_committed: bool,
    begun: u64,
    done: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Snapshot,
    Serializable,
    /// Some at snapshots that are not the current ones.
    Old,
}

impl Level {
    /// The strongest model that is promised.
    fn model(self) -> &'static str {
        match self {
            Level::Snapshot => "strong-snapshot-isolation",
            Level::Serializable => "strict-serializable",
            Level::Old => "snapshot-isolation",
        }
    }
}

fn list(tx: &mut Transaction, lists: &[Keyspace; 2], key: u64) -> Vec<i64> {
    let value = tx.get(&lists[(key % 2) as usize], key.to_be_bytes()).unwrap().unwrap_or_default();
    value.chunks_exact(8).map(|element| i64::from_le_bytes(element.try_into().unwrap())).collect()
}

/// Performs transactions of one thread.
fn work(
    (store, lists, level): (&Store, &[Keyspace; 2], Level),
    (clock, turn): (&AtomicU64, &AtomicU64),
    (thread, round, transactions): (usize, u64, u64),
) -> Vec<Listed> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(thread as u64 * 7919 + round);
    let mut all = Vec::new();
    let mut held = store.snapshot();
    for i in 0..transactions {
        let base = turn.fetch_add(1, Ordering::Relaxed) / TRANSACTIONS_PER_KEYS * KEYS;
        let begun = clock.fetch_add(1, Ordering::SeqCst);
        let mut tx = match level {
            Level::Serializable => store.begin_serializable(),
            Level::Old if rng.random_ratio(1, 4) => store.begin_at(&held).unwrap(),
            Level::Snapshot | Level::Old => store.begin(),
        };
        let mut steps = Vec::new();
        for step in 0..rng.random_range(1..5) {
            let key = base + rng.random_range(0..KEYS);
            let mut found = list(&mut tx, lists, key);
            if rng.random() {
                let element = (((round << 8 | thread as u64) << 32 | i) << 3 | step) as i64;
                found.push(element);
                let value: Vec<u8> = found.iter().flat_map(|element| element.to_le_bytes()).collect();
                tx.put(&lists[(key % 2) as usize], key.to_be_bytes(), value).unwrap();
                steps.push(Step::Append(key, element));
            } else {
                steps.push(Step::Read(key, found));
            }
            std::thread::yield_now();
        }
        let outcome = if rng.random() { tx.commit() } else { tx.commit_async().wait() };
        let is_committed = match outcome {
            Ok(_) => true,
            Err(e) if e.is_conflict() => false,
            Err(e) => panic!("{e}"),
        };
        if rng.random_ratio(1, 8) {
            held = store.snapshot();
        }
        let done = clock.fetch_add(1, Ordering::SeqCst);
        all.push(Listed { thread, steps, is_committed, begun, done });
    }
    all
}

/// A history of transactions, with restarts, and with collection beside them.
fn record(level: Level, transactions: u64) -> Vec<Listed> {
    const ROUNDS: u64 = 4;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut options = Options::new();
    options.create = true;
    let pool = Pool::open(directory.path().join("lists.pool"), &options).unwrap();
    let (clock, turn) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        let store = Store::open(&pool, "store").unwrap();
        let lists = ["even", "odd"].map(|name| store.keyspace(name).unwrap());
        let (share, times) = (transactions / ROUNDS / THREADS as u64, (&clock, &turn));
        std::thread::scope(|scope| {
            let (store, lists) = (&store, &lists);
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| scope.spawn(move || work((store, lists, level), times, (thread, round, share))))
                .collect();
            while !threads.iter().all(|thread| thread.is_finished()) {
                let _ = store.collect(20).unwrap();
                std::thread::sleep(Duration::from_micros(200));
            }
            threads.into_iter().for_each(|thread| all.extend(thread.join().unwrap()));
        });
    }
    all
}

/// The history as the checker takes it.
fn converted(listed: &[Listed]) -> History {
    let mut interner = Interner::default();
    let mut events: Vec<(u64, OpType, &Listed)> = Vec::new();
    for transaction in listed {
        events.push((transaction.begun, OpType::Invoke, transaction));
        let end = if transaction.is_committed { OpType::Ok } else { OpType::Fail };
        events.push((transaction.done, end, transaction));
    }
    events.sort_by_key(|(time, _, _)| *time);
    let mut ops = Vec::new();
    for (index, (_, kind, Listed { thread, steps, .. })) in events.into_iter().enumerate() {
        let mut id = |number: i64| interner.intern(Scalar::Int(number));
        let mut value = Vec::new();
        for step in steps {
            value.push(match step {
                Step::Append(key, element) => Mop::Append { key: id(*key as i64), value: id(*element) },
                Step::Read(key, _) if kind != OpType::Ok => {
                    Mop::Read { key: id(*key as i64), value: ReadValue::Nil }
                }
                Step::Read(key, found) => {
                    let found = found.iter().map(|element| id(*element)).collect();
                    Mop::Read { key: id(*key as i64), value: ReadValue::List(found) }
                }
            });
        }
        ops.push(Op { index: index as u64, kind, process: Some(*thread as i64), value, time: None });
    }
    History::from_ops(ops, interner)
}

/// The anomalies that a model forbids.
fn anomalies(listed: &[Listed], model: &str) -> Vec<String> {
    let opts = Opts { models: vec![model.to_owned()], timeout: Duration::from_secs(60), ..Opts::default() };
    let report = adya::check(&converted(listed), Workload::ListAppend, &opts);
    assert_ne!(report.valid, Valid::Unknown, "{report:?}");
    if report.valid == Valid::True { Vec::new() } else { report.anomaly_types }
}

#[test]
fn a_published_checker_finds_no_anomaly() {
    let transactions = env_number("TEMBO_LISTS").unwrap_or(3000);
    for level in [Level::Snapshot, Level::Serializable, Level::Old] {
        let history = record(level, transactions);
        let committed = history.iter().filter(|transaction| transaction.is_committed).count();
        println!("{level:?}: {committed} of {} committed", history.len());
        assert!(committed > history.len() / 4 && committed < history.len(), "no load that means anything");
        assert_eq!(anomalies(&history, level.model()), [""; 0], "{level:?}");
    }
}

/// Transactions of threads of their own after a history, one after the other or at once.
fn with(history: &[Listed], added: &[(bool, Vec<Step>)]) -> Vec<Listed> {
    let mut all = history.to_vec();
    let end = 1 + all.iter().map(|transaction| transaction.done).max().unwrap_or(0);
    for (i, (is_committed, steps)) in added.iter().enumerate() {
        let (begun, done) = (end + i as u64, end + 100 + i as u64);
        let (thread, steps) = (THREADS + i, steps.clone());
        all.push(Listed { thread, steps, is_committed: *is_committed, begun, done });
    }
    all
}

const X: u64 = 1 << 40;
const Y: u64 = X + 1;

fn append(key: u64, element: i64) -> Step {
    Step::Append(key, element)
}

fn read(key: u64, found: &[i64]) -> Step {
    Step::Read(key, found.to_vec())
}

/// A transaction that is added to a history, and whether it commits.
type Added = (bool, Vec<Step>);

fn ok(steps: &[Step]) -> Added {
    (true, steps.to_vec())
}

/// Transactions that no level allows.
fn anomalous() -> [(&'static str, Vec<Added>); 6] {
    [
        (
            "a lost update",
            vec![
                ok(&[read(X, &[]), append(X, -1)]),
                ok(&[read(X, &[]), append(X, -2)]),
                ok(&[read(X, &[-1, -2])]),
            ],
        ),
        ("read skew", vec![ok(&[append(X, -1), append(Y, -2)]), ok(&[read(X, &[]), read(Y, &[-2])])]),
        (
            "a long fork",
            vec![
                ok(&[append(X, -1)]),
                ok(&[append(Y, -2)]),
                ok(&[read(X, &[-1]), read(Y, &[])]),
                ok(&[read(X, &[]), read(Y, &[-2])]),
            ],
        ),
        ("an aborted read", vec![(false, vec![append(X, -1)]), ok(&[read(X, &[-1])])]),
        ("an intermediate read", vec![ok(&[append(X, -1), append(X, -2)]), ok(&[read(X, &[-1])])]),
        (
            "a write cycle",
            vec![
                ok(&[append(X, -1), append(Y, -2)]),
                ok(&[append(X, -3), append(Y, -4)]),
                ok(&[read(X, &[-1, -3]), read(Y, &[-4, -2])]),
            ],
        ),
    ]
}

/// The history with one of its own updates lost: one that read the list that it appended to.
fn with_a_lost_update(history: &[Listed]) -> Vec<Listed> {
    let mut lost = history.to_vec();
    let is_update = |transaction: &&mut Listed| {
        let appends = |key: u64| matches!(transaction.steps.last(), Some(Step::Append(k, _)) if *k == key);
        transaction.is_committed
            && matches!(&transaction.steps[0], Step::Read(key, found) if !found.is_empty() && appends(*key))
    };
    let update = lost.iter_mut().find(is_update).expect("someone reads and appends");
    if let Step::Read(_, found) = &mut update.steps[0] {
        found.pop();
    }
    lost
}

#[test]
fn the_published_checker_notices_anomalies() {
    let write_skew = [ok(&[read(X, &[]), append(Y, -1)]), ok(&[read(Y, &[]), append(X, -2)])];
    for level in [Level::Snapshot, Level::Serializable] {
        let history = record(level, 800);
        for (name, added) in anomalous() {
            let found = anomalies(&with(&history, &added), level.model());
            println!("{level:?}, {name}: {found:?}");
            assert!(!found.is_empty(), "{name} was not noticed");
        }
        let found = anomalies(&with(&history, &write_skew), level.model());
        assert_eq!(found.is_empty(), level == Level::Snapshot, "{level:?}, write skew: {found:?}");
        let found = anomalies(&with_a_lost_update(&history), level.model());
        println!("{level:?}, a read without its last element: {found:?}");
        assert!(!found.is_empty(), "{level:?}");
    }
}
