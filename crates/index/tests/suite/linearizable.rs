//! Recorded histories of threads that change and read a tree at once, that of fixed-size keys or that of
//! byte strings: is there one order of all operations that explains every answer, in which no operation
//! comes before one that had ended when it began?
//!
//! # Method
//!
//! A clock that all threads share numbers the invocation and the response of each operation. Every write
//! has a value of its own (thread and count), so that an answer names the write that it saw.
//!
//! From these an order is searched for as Wing and Gong do: one of the operations that began before the
//! first of the others ended comes next, if its answer is what the state so far gives; sets of operations
//! done, with the state then, are not tried twice. The state is that of all keys which are recorded, and a
//! scan is one operation on it, so that the search is exact: it finds an order if there is one, for scans
//! as for the rest. A scan says what it covered, from where it began to the last record that it returned;
//! of the records there, those of keys that are not recorded are left out. The tree of byte strings is also
//! cleared, by transactions that are alone.
//!
//! Long histories are kept tractable by a barrier that all threads pass every few operations. Nothing is
//! under way then: an order of the whole is an order of each group after the other. All states that some
//! order of a group leads to are what the next may begin with.
//!
//! `TEMBO_HISTORIES=100000 cargo test --release -p tembo-index --test suite linearizable` is the long form.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;
use tembo_index::{U64Tree, WbTree, Writers};
use tembo_pmem::{Observer, Region, ThreadTag};
use tembo_pool::{Geometry, Pool};

type State = BTreeMap<u64, u64>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Op {
    Put(u64, u64),
    Insert(u64, u64),
    Update(u64, u64),
    Swap(u64, u64, u64),
    Remove(u64),
    Get(u64),
    /// The watched records of a range, both ends included. A scan stops after this many records: how far it
    /// came is what it says of the keys that it covers.
    Scan(u64, u64),
    /// As `Scan`, downwards.
    ScanBack(u64, u64),
    /// Removes all records.
    Clear,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Old(Option<u64>),
    /// Whether something was inserted, or cleared.
    Inserted(bool),
    Records(Vec<(u64, u64)>),
}

/// An operation with the times of its invocation and its response.
#[derive(Debug, Clone)]
struct Event {
    op: Op,
    answer: Answer,
    began: u64,
    ended: u64,
}

/// A map that performs one operation after the other.
fn perform(state: &mut State, op: &Op) -> Answer {
    match *op {
        Op::Put(key, value) => Answer::Old(state.insert(key, value)),
        Op::Insert(key, value) => {
            let is_absent = !state.contains_key(&key);
            state.entry(key).or_insert(value);
            Answer::Inserted(is_absent)
        }
        Op::Update(key, value) => Answer::Old(state.get_mut(&key).map(|old| std::mem::replace(old, value))),
        Op::Swap(key, expected, value) => {
            let old = state.get(&key).copied();
            if old == Some(expected) {
                state.insert(key, value);
            }
            Answer::Old(old)
        }
        Op::Remove(key) => Answer::Old(state.remove(&key)),
        Op::Get(key) => Answer::Old(state.get(&key).copied()),
        Op::Scan(from, to) => Answer::Records(state.range(from..=to).map(|(k, v)| (*k, *v)).collect()),
        Op::ScanBack(from, to) => {
            Answer::Records(state.range(to..=from).rev().map(|(k, v)| (*k, *v)).collect())
        }
        Op::Clear => {
            state.clear();
            Answer::Inserted(true)
        }
    }
}

/// All states that a linearization of the events leads to from one of `starts`. None: the history is not
/// linearizable.
fn linearize(starts: &HashSet<State>, events: &[Event]) -> HashSet<State> {
    assert!(events.len() <= 64, "a group fits into a word");
    let all = u64::MAX.checked_shr(64 - events.len() as u32).unwrap_or(0);
    let mut tried: HashSet<(u64, State)> = HashSet::new();
    let mut open: Vec<(u64, State)> = starts.iter().map(|state| (0, state.clone())).collect();
    let mut ends = HashSet::new();
    while let Some((done, state)) = open.pop() {
        if done == all {
            ends.insert(state);
            continue;
        }
        if !tried.insert((done, state.clone())) {
            continue;
        }
        let left = || events.iter().enumerate().filter(|(i, _)| done >> i & 1 == 0);
        let first_end = left().map(|(_, event)| event.ended).min().unwrap_or(u64::MAX);
        for (i, event) in left().filter(|(_, event)| event.began < first_end) {
            let mut next = state.clone();
            if perform(&mut next, &event.op) == event.answer {
                open.push((done | 1 << i, next));
            }
        }
    }
    ends
}

/// Checks groups of events between which nothing was under way.
fn check(start: &State, groups: &[Vec<Event>]) -> Result<(), String> {
    let mut states = HashSet::from([start.clone()]);
    for (number, group) in groups.iter().enumerate() {
        let ends = linearize(&states, group);
        if ends.is_empty() {
            let mut group = group.clone();
            group.sort_by_key(|event| event.began);
            let story: Vec<String> = group
                .iter()
                .map(|e| format!("  {:>6} to {:>6}: {:?} -> {:?}", e.began, e.ended, e.op, e.answer))
                .collect();
            return Err(format!("no order explains group {number}, from {states:?}:\n{}", story.join("\n")));
        }
        states = ends;
    }
    Ok(())
}

const THREADS: u64 = 4;
const GROUPS: usize = 40;
/// Operations of a thread between two barriers.
const STEPS: usize = 5;

/// The keys whose history is recorded lie far from each other, so that a scan covers several leaves. Those
/// between them belong to threads that only make leaves divide and join, and are left out of what scans
/// show.
const SPREAD: u64 = 150;

fn is_watched(key: u64) -> bool {
    key.is_multiple_of(SPREAD) || key == u64::MAX
}

fn watched_key(rng: &mut Xoshiro256PlusPlus) -> u64 {
    match rng.random_range(0..6) {
        5 => u64::MAX,
        i => i * SPREAD,
    }
}

fn random_op(rng: &mut Xoshiro256PlusPlus, value: u64, known: &State) -> Op {
    let key = watched_key(rng);
    match rng.random_range(0..14) {
        0..3 => Op::Put(key, value),
        3 => Op::Insert(key, value),
        4 => Op::Update(key, value),
        5 => Op::Swap(key, known.get(&key).copied().unwrap_or(0), value),
        6..8 => Op::Remove(key),
        8..10 => Op::Get(key),
        10..12 => Op::Scan(key, [2, 150, 300, 500][rng.random_range(0..4)]),
        _ => Op::ScanBack(key, [2, 150, 300, 500][rng.random_range(0..4)]),
    }
}

/// A tree whose histories are recorded.
trait Subject: Sync {
    /// Performs an operation; the limit of a scan becomes the end of what it covered.
    fn apply(&self, op: &mut Op) -> Answer;
    /// An operation that the tree has.
    fn random_op(&self, rng: &mut Xoshiro256PlusPlus, value: u64, known: &State) -> Op;
    /// Empties a gap and fills it again.
    fn put_beside(&self, key: u64, value: u64);
    fn remove_beside(&self, key: u64);
}

impl Subject for U64Tree {
    fn apply(&self, op: &mut Op) -> Answer {
        apply(self, op)
    }

    fn random_op(&self, rng: &mut Xoshiro256PlusPlus, value: u64, known: &State) -> Op {
        random_op(rng, value, known)
    }

    fn put_beside(&self, key: u64, value: u64) {
        self.put(key, value).unwrap();
    }

    fn remove_beside(&self, key: u64) {
        self.remove(key).unwrap();
    }
}

/// A tree of byte strings with its writers.
struct Bytes {
    tree: WbTree,
    writers: Writers,
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a value of eight bytes"))
}

impl Bytes {
    /// Makes a value of the one before, which is returned.
    fn exchange(&self, key: u64, new: impl FnOnce(Option<u64>) -> Option<u64>) -> Answer {
        let mut old = None;
        let change = |found: Option<&[u8]>| {
            old = found.map(number);
            new(old).map(u64::to_le_bytes)
        };
        self.tree.concurrent(&self.writers).modify(&key.to_be_bytes(), change).unwrap();
        Answer::Old(old)
    }
}

impl Subject for Bytes {
    fn apply(&self, op: &mut Op) -> Answer {
        let tree = self.tree.concurrent(&self.writers);
        match *op {
            Op::Scan(from, ref mut limit) => {
                let records = tree_scan(self, from, *limit);
                *limit = covered(&records, *limit, u64::MAX);
                watched(records)
            }
            Op::Put(key, value) => self.exchange(key, |_| Some(value)),
            Op::Insert(key, value) => {
                Answer::Inserted(tree.insert(&key.to_be_bytes(), &value.to_le_bytes()).unwrap())
            }
            Op::Update(key, value) => self.exchange(key, |old| old.map(|_| value)),
            Op::Swap(key, expected, value) => {
                self.exchange(key, |old| if old == Some(expected) { Some(value) } else { old })
            }
            Op::Remove(key) => self.exchange(key, |_| None),
            Op::Get(key) => {
                let found = self.tree.get_pinned(&key.to_be_bytes()).unwrap();
                Answer::Old(found.map(|value| number(&value)))
            }
            Op::Clear => {
                let mut tx = self.writers.begin();
                self.tree.clear(&mut tx).unwrap();
                tx.commit().unwrap();
                Answer::Inserted(true)
            }
            Op::ScanBack(..) => unreachable!("not among its operations"),
        }
    }

    fn random_op(&self, rng: &mut Xoshiro256PlusPlus, value: u64, known: &State) -> Op {
        match random_op(rng, value, known) {
            // Rare, as it takes what makes leaves divide and join.
            Op::Scan(..) if rng.random_bool(0.02) => Op::Clear,
            Op::ScanBack(key, limit) => Op::Scan(key, limit),
            op => op,
        }
    }

    fn put_beside(&self, key: u64, value: u64) {
        self.tree.concurrent(&self.writers).put(&key.to_be_bytes(), &[&value.to_le_bytes()]).unwrap();
    }

    fn remove_beside(&self, key: u64) {
        self.tree.concurrent(&self.writers).remove(&key.to_be_bytes()).unwrap();
    }
}

fn tree_scan(bytes: &Bytes, from: u64, limit: u64) -> Vec<(u64, u64)> {
    let range = from.to_be_bytes()..;
    let records = bytes.tree.scan(Some(&bytes.writers), range, limit as usize).unwrap();
    let key = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("a key of eight bytes"));
    let records: Vec<_> = records.iter().map(|(k, v)| (key(k), number(v))).collect();
    assert!(records.is_sorted_by(|a, b| a.0 < b.0) && records.iter().all(|(key, _)| *key >= from));
    records
}

fn apply(tree: &U64Tree, op: &mut Op) -> Answer {
    let mut records = Vec::new();
    match op {
        Op::Put(key, value) => Answer::Old(tree.put(*key, *value).unwrap()),
        Op::Insert(key, value) => Answer::Inserted(tree.insert(*key, *value).unwrap()),
        Op::Update(key, value) => Answer::Old(tree.update(*key, *value).unwrap()),
        Op::Swap(key, expected, value) => {
            Answer::Old(tree.compare_and_swap(*key, *expected, *value).unwrap())
        }
        Op::Remove(key) => Answer::Old(tree.remove(*key).unwrap()),
        Op::Get(key) => Answer::Old(tree.get(*key).unwrap()),
        Op::Scan(from, limit) => {
            tree.scan(*from, *limit as usize, &mut records).unwrap();
            assert!(records.is_sorted_by(|a, b| a.0 < b.0) && records.iter().all(|(key, _)| key >= from));
            *limit = covered(&records, *limit, u64::MAX);
            watched(records)
        }
        Op::ScanBack(from, limit) => {
            tree.scan_back(*from, *limit as usize, &mut records).unwrap();
            assert!(records.is_sorted_by(|a, b| a.0 > b.0) && records.iter().all(|(key, _)| key <= from));
            *limit = covered(&records, *limit, 0);
            watched(records)
        }
        Op::Clear => unreachable!("not among its operations"),
    }
}

fn covered(records: &[(u64, u64)], limit: u64, end: u64) -> u64 {
    records.last().filter(|_| records.len() as u64 == limit).map_or(end, |(key, _)| *key)
}

fn watched(mut records: Vec<(u64, u64)>) -> Answer {
    records.retain(|(key, _)| is_watched(*key));
    Answer::Records(records)
}

/// Holds threads up in the middle of operations, so that these overlap.
#[derive(Default)]
struct HoldUp {
    events: AtomicU64,
    is_on: AtomicBool,
    /// At loads, too. Then trees of fixed-size keys search a word at a time.
    at_loads: bool,
}

impl HoldUp {
    fn at(&self, one_in: u64) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let number = self.events.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        match number % one_in {
            0 => std::thread::sleep(Duration::from_micros(number % 40)),
            1..4 => std::thread::yield_now(),
            _ => {}
        }
    }
}

impl Observer for HoldUp {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {
        self.at(16);
    }
    fn flush(&self, _: ThreadTag, _: u64) {}
    fn fence(&self, _: ThreadTag) {
        self.at(8);
    }
    fn wants_loads(&self) -> bool {
        self.at_loads
    }
    fn load(&self, _: ThreadTag, _: u64, _: u64) {
        self.at(100);
    }
    fn prefetch(&self, _: ThreadTag, _: u64) {
        self.at(400);
    }
}

struct History {
    start: State,
    groups: Vec<Vec<Event>>,
    /// Nodes that were made and freed meanwhile, roughly: how often the number of allocated bytes changed.
    nodes: HashSet<u64>,
}

fn new_pool(at_loads: bool) -> (Pool, Arc<HoldUp>) {
    let bytes = 4 << 20;
    let hold_up = Arc::new(HoldUp { at_loads, ..HoldUp::default() });
    let region = Region::simulated(&vec![0; bytes], bytes as u64, Some(hold_up.clone())).unwrap();
    let geometry = Geometry { zone_chunks: 1 << 12, ..Geometry::default() };
    (Pool::create_in(region, &geometry).unwrap(), hold_up)
}

/// As [`record`], on a tree of byte strings.
fn record_bytes(seed: u64, churn: bool) -> History {
    let (pool, hold_up) = new_pool(true);
    let writers = Writers::new(pool.lane().unwrap());
    // Fewer than threads now and then.
    (0..2 + seed % 4).for_each(|_| assert!(writers.add().unwrap()));
    let mut tx = writers.begin();
    let tree = WbTree::create(&mut tx, "tree").unwrap();
    tx.commit().unwrap();
    let bytes = Bytes { tree, writers };
    let start: State = (0..3).map(|i| (i * SPREAD, i)).collect();
    start.iter().for_each(|(key, value)| bytes.put_beside(*key, *value));
    (0..5 * SPREAD).filter(|key| !is_watched(*key)).for_each(|key| bytes.put_beside(key, 0));
    hold_up.is_on.store(true, Ordering::Relaxed);
    let history = record_on(seed, churn, &pool, &bytes, start);
    let mut marks = pool.marks().unwrap();
    bytes.tree.check(&mut marks).unwrap();
    marks.finish().unwrap();
    history
}

/// Lets threads work on a tree, and records what they did to the watched keys. `churn`: others divide and
/// join leaves.
fn record(seed: u64, churn: bool) -> History {
    let (pool, hold_up) = new_pool(seed.is_multiple_of(2));
    let tree = U64Tree::create(&pool, "tree").unwrap();
    let mut start = State::new();
    for i in 0..3 {
        tree.put(i * SPREAD, i).unwrap();
        start.insert(i * SPREAD, i);
    }
    // The gaps are full at the start.
    (0..5 * SPREAD).filter(|key| !is_watched(*key)).for_each(|key| _ = tree.put(key, 0).unwrap());
    hold_up.is_on.store(true, Ordering::Relaxed);
    if seed.is_multiple_of(3) {
        drop(tree);
        let tree = U64Tree::open(&pool, "tree").unwrap().unwrap();
        return record_on(seed, churn, &pool, &tree, start);
    }
    record_on(seed, churn, &pool, &tree, start)
}

fn record_on(seed: u64, churn: bool, pool: &Pool, tree: &dyn Subject, start: State) -> History {
    let (clock, at_barrier) = (AtomicU64::new(0), Barrier::new(THREADS as usize));
    let (finished, nodes) = (AtomicU64::new(0), std::sync::Mutex::new(HashSet::new()));
    let known = std::sync::Mutex::new(start.clone());
    let work = |thread: u64| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed << 8 | thread);
        let mut events = Vec::new();
        for _ in 0..GROUPS {
            at_barrier.wait();
            let mut group = Vec::new();
            for _ in 0..STEPS {
                let value = (thread + 1) << 32 | clock.load(Ordering::Relaxed);
                let mut op = tree.random_op(&mut rng, value, &known.lock().unwrap());
                let began = clock.fetch_add(1, Ordering::SeqCst);
                let answer = tree.apply(&mut op);
                let ended = clock.fetch_add(1, Ordering::SeqCst);
                // A guess at what is there, for exchanges that are to succeed now and then.
                perform(&mut known.lock().unwrap(), &op);
                group.push(Event { op, answer, began, ended });
            }
            events.push(group);
        }
        finished.fetch_add(1, Ordering::Release);
        events
    };
    let disturb = || {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
        while finished.load(Ordering::Acquire) < THREADS {
            // One gap is emptied and filled again: its leaves join, then divide. In bursts, since a scan
            // starts again for each change in one of its leaves.
            let gap = rng.random_range(0..5) * SPREAD;
            let mut change = |remove: bool| {
                for key in gap + 1..gap + SPREAD {
                    if remove {
                        tree.remove_beside(key)
                    } else {
                        tree.put_beside(key, seed)
                    }
                    if rng.random_bool(0.1) {
                        std::thread::sleep(Duration::from_micros(rng.random_range(0..100)));
                    }
                }
                nodes.lock().unwrap().insert(pool.marks().map_or(0, |marks| marks.usage().allocated_bytes));
            };
            change(true);
            change(false);
        }
    };
    let threads: Vec<Vec<Vec<Event>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        if churn {
            scope.spawn(disturb);
        }
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let group = |i: usize| threads.iter().flat_map(|thread| thread[i].clone()).collect();
    History { start, groups: (0..GROUPS).map(group).collect(), nodes: nodes.into_inner().unwrap() }
}

fn histories() -> u64 {
    std::env::var("TEMBO_HISTORIES").map_or(40, |n| n.parse().expect("TEMBO_HISTORIES is a number"))
}

#[test]
fn histories_are_linearizable() {
    judge(record);
}

#[test]
fn histories_of_byte_strings_are_linearizable() {
    judge(record_bytes);
}

/// Records histories and looks for their orders.
fn judge(record: impl Fn(u64, bool) -> History) {
    let first = std::env::var("TEMBO_HISTORY_SEED").map_or(1, |n| n.parse().expect("a number"));
    let (mut overlaps, mut sizes) = (0, 0);
    for seed in first..first + histories() {
        let history = record(seed, !seed.is_multiple_of(4));
        check(&history.start, &history.groups).unwrap_or_else(|story| {
            panic!("{story}\nTEMBO_HISTORY_SEED={seed} repeats the operations, not their interleaving")
        });
        sizes = sizes.max(history.nodes.len());
        let pairs = |group: &[Event]| {
            let during = |e: &Event| group.iter().filter(|o| o.began < e.began && e.began < o.ended).count();
            group.iter().map(during).sum::<usize>()
        };
        overlaps += history.groups.iter().map(|group| pairs(group)).sum::<usize>();
    }
    println!("{} histories, {overlaps} operations began during another", histories());
    assert!(sizes > 2, "leaves divide and join meanwhile");
    assert!(overlaps > 0, "nothing overlapped, so that nothing was shown");
}

/// Histories with one answer changed to what a wrong tree would give.
#[test]
fn wrong_answers_are_found() {
    let event = |op, answer, began, ended| Event { op, answer, began, ended };
    let old = |value| Answer::Old(value);
    let start = State::from([(0, 1), (SPREAD, 1)]);
    let verdict = |events: &[Event]| check(&start, &[events.to_vec()]).is_ok();
    let write = |value, began, ended| event(Op::Put(0, value), old(Some(value - 1)), began, ended);

    // A read that overlaps a write may see either value; after it, only the new one.
    assert!(verdict(&[write(2, 0, 3), event(Op::Get(0), old(Some(1)), 1, 2)]));
    assert!(verdict(&[write(2, 0, 3), event(Op::Get(0), old(Some(2)), 1, 2)]));
    assert!(!verdict(&[write(2, 0, 1), event(Op::Get(0), old(Some(1)), 2, 3)]), "a stale read");
    assert!(!verdict(&[event(Op::Get(0), old(Some(2)), 0, 1), write(2, 2, 3)]), "a read of the future");
    let twice =
        [write(2, 0, 9), event(Op::Get(0), old(Some(2)), 1, 2), event(Op::Get(0), old(Some(1)), 3, 4)];
    assert!(!verdict(&twice), "a value that comes back");
    let lost = [event(Op::Put(0, 2), old(Some(1)), 0, 3), event(Op::Put(0, 3), old(Some(1)), 1, 2)];
    assert!(!verdict(&lost), "two writers that replace the same value");
    let both = [event(Op::Swap(0, 1, 5), old(Some(1)), 0, 3), event(Op::Swap(0, 1, 6), old(Some(1)), 1, 2)];
    assert!(!verdict(&both), "an exchange that succeeds twice");
    let gone = [event(Op::Remove(0), old(Some(1)), 0, 1), event(Op::Get(0), old(Some(1)), 2, 3)];
    assert!(!verdict(&gone), "a record that was removed");
    let inserts = [
        event(Op::Insert(7, 1), Answer::Inserted(true), 0, 3),
        event(Op::Insert(7, 2), Answer::Inserted(true), 1, 2),
    ];
    assert!(!verdict(&inserts), "two insertions of one key");

    // Two writes in turn, and a scan beside both that shows the second only.
    let scan = |first, second| {
        let seen = Answer::Records(vec![(0, first), (SPREAD, second)]);
        let second_write = event(Op::Put(SPREAD, 2), old(Some(1)), 4, 5);
        [write(2, 2, 3), second_write, event(Op::Scan(0, u64::MAX), seen, 0, 9)]
    };
    for (first, second, is_right) in [(1, 1, true), (2, 1, true), (2, 2, true), (1, 2, false)] {
        assert_eq!(verdict(&scan(first, second)), is_right, "a scan of {first} and {second}");
    }
    let torn = [
        write(2, 0, 9),
        event(Op::Put(SPREAD, 2), old(Some(1)), 0, 9),
        event(Op::Scan(0, u64::MAX), Answer::Records(vec![(0, 2), (SPREAD, 1)]), 0, 9),
        event(Op::Scan(0, u64::MAX), Answer::Records(vec![(0, 1), (SPREAD, 2)]), 0, 9),
    ];
    assert!(!verdict(&torn), "two scans that saw two writes in different orders");
}

/// Recorded histories in which one answer names a value that nobody wrote, whichever it is.
#[test]
fn a_wrong_answer_is_found_wherever_it_is() {
    let mut mutants = 0;
    for seed in 1..4 {
        let history = record(seed, false);
        for number in 0..GROUPS {
            for at in 0..history.groups[number].len() {
                let mut groups = history.groups[..=number].to_vec();
                match &mut groups[number][at].answer {
                    Answer::Old(old) => *old = Some(u64::MAX),
                    Answer::Records(records) if !records.is_empty() => records[0].1 = u64::MAX,
                    Answer::Records(_) | Answer::Inserted(_) => continue,
                }
                assert!(check(&history.start, &groups).is_err(), "group {number}, event {at} of seed {seed}");
                mutants += 1;
            }
        }
    }
    assert!(mutants > 1000, "{mutants} wrong answers were found");
}
