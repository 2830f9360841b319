//! The version protocol of leaves under a model checker: `src/u64tree/lock.rs` itself, with loom's atomics
//! in place of the processor's, so that every interleaving and every value that the orderings allow is
//! tried.
//!
//! Its surroundings are modelled: leaves of one slot, lookups, changes, a division, a join and a scan of
//! two leaves, each with the steps of `get.rs`, `edit.rs`, `structure.rs` and `scan.rs` in their order.
//! Words of records are read and written without any ordering here, which is less than the tree's own
//! accesses have. Durability is a word as well: what was flushed and fenced last. Each of a list of
//! weakenings has to be caught.
//!
//! `LOOM_MAX_PREEMPTIONS=4 cargo test --release -p tembo-index --test suite protocol` is the long form.

#[path = "../../src/u64tree/lock.rs"]
mod lock;

/// The atomics under `lock.rs`, with weakenings.
mod sync {
    use super::{Mutant, is};
    pub(super) use std::sync::atomic::Ordering;

    pub(super) struct AtomicU64(loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(super) fn new(value: u64) -> AtomicU64 {
            AtomicU64(loom::sync::atomic::AtomicU64::new(value))
        }

        pub(super) fn load(&self, order: Ordering) -> u64 {
            let is_weak = is(Mutant::BeginsRelaxed) && order == Ordering::Acquire;
            self.0.load(if is_weak { Ordering::Relaxed } else { order })
        }

        pub(super) fn store(&self, value: u64, order: Ordering) {
            let unlocks = value & 1 == 0;
            let is_weak = order == Ordering::Release
                && is(if unlocks { Mutant::UnlocksRelaxed } else { Mutant::LocksByBiasRelaxed });
            self.0.store(value, if is_weak { Ordering::Relaxed } else { order });
        }

        pub(super) fn compare_exchange(
            &self,
            old: u64,
            new: u64,
            order: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.compare_exchange_weak(old, new, order, failure)
        }

        pub(super) fn compare_exchange_weak(
            &self,
            old: u64,
            new: u64,
            order: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            let order = if is(Mutant::LocksRelaxed) { Ordering::Relaxed } else { order };
            self.0.compare_exchange(old, new, order, failure)
        }
    }

    pub(super) fn fence(order: Ordering) {
        let dropped =
            if order == Ordering::Acquire { Mutant::NoFenceOfReaders } else { Mutant::NoFenceOfWriters };
        if !is(dropped) {
            loom::sync::atomic::fence(order);
        }
    }

    /// A thread that is alone, or not, as the model says: `bias.rs` has a model of its own.
    pub(super) struct Bias;

    impl Bias {
        pub(super) fn enter(&self) -> bool {
            super::IS_ALONE.get()
        }

        pub(super) fn leave(&self) {}
    }

    pub(super) fn back_off(_: u32) {
        loom::thread::yield_now();
    }
}

mod node {
    use loom::sync::atomic::AtomicU64;

    /// A leaf of one slot.
    pub(super) struct Leaf {
        pub(super) version: super::sync::AtomicU64,
        /// The first key that belongs to the next leaf, which is the one with this number.
        pub(super) bound: AtomicU64,
        pub(super) next: AtomicU64,
        pub(super) print: AtomicU64,
        pub(super) key: AtomicU64,
        pub(super) value: AtomicU64,
        /// The highest value that a crash would leave. Values of a slot only rise.
        pub(super) durable: AtomicU64,
    }
}

use lock::{Locked, Version, begin, is_durable_since, is_unchanged};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use node::Leaf;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    BeginsRelaxed,
    UnlocksRelaxed,
    LocksRelaxed,
    LocksByBiasRelaxed,
    NoFenceOfReaders,
    NoFenceOfWriters,
    /// A writer looks, and then locks what it may not have looked at.
    SearchesBeforeBeginning,
    /// A slot is named after it was changed.
    NamesLate,
    /// A reader returns what may not be durable.
    SettlesNothing,
    /// A reader looks at the bound before it searches.
    BoundBeforeSearch,
    /// A reader who finds that a record was taken out need not find the bound that was published before.
    PrintsRelaxed,
    /// A division takes records out before it publishes the bound.
    ClearsBeforeBound,
    /// A join unlocks the left leaf before the right one is obsolete.
    UnlocksBeforeRetiring,
    /// Writers use obsolete leaves.
    WritesToTheDead,
    /// A reader that finds a key absent does not check whether the leaf was changed meanwhile.
    AnswersWithoutLookingAgain,
}

thread_local! {
    // Loom runs the threads of a model on one thread.
    static MUTANT: Cell<Mutant> = const { Cell::new(Mutant::None) };
    /// Whether the one writer of a model has the bias.
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
}

fn is(mutant: Mutant) -> bool {
    MUTANT.get() == mutant
}

const NONE: u64 = 99;
/// Retries of a reader, after which its model gives up.
const TRIES: usize = 3;

fn leaf(key: u64, value: u64, bound: u64, next: u64) -> Leaf {
    Leaf {
        version: sync::AtomicU64::new(0),
        bound: AtomicU64::new(bound),
        next: AtomicU64::new(next),
        print: AtomicU64::new(u64::from(key != 0)),
        key: AtomicU64::new(key),
        value: AtomicU64::new(value),
        durable: AtomicU64::new(value),
    }
}

fn search(leaf: &Leaf, key: u64) -> Option<u64> {
    let order = if is(Mutant::PrintsRelaxed) { Relaxed } else { Acquire };
    (leaf.print.load(order) == 1 && leaf.key.load(Relaxed) == key).then(|| leaf.value.load(Relaxed))
}

/// Flush and fence: what this thread sees there is durable afterwards.
fn persist(leaf: &Leaf) {
    leaf.durable.fetch_max(leaf.value.load(Relaxed), Relaxed);
}

/// As `Tree::look_from`, from the leaf that `parent` names; `None` after too many tries.
fn get(leaves: &[Leaf], parent: &AtomicU64, key: u64) -> Option<Option<u64>> {
    let mut at = parent.load(Acquire);
    for _ in 0..TRIES {
        let leaf = &leaves[at as usize];
        let version = begin(&leaf.version);
        let early = key >= leaf.bound.load(Acquire);
        let found = search(leaf, key);
        if if is(Mutant::BoundBeforeSearch) { early } else { key >= leaf.bound.load(Acquire) } {
            at = leaf.next.load(Acquire);
            continue;
        }
        if !is_unchanged(&leaf.version, version) {
            continue;
        }
        if version.is_obsolete() {
            at = parent.load(Acquire);
            continue;
        }
        if version.is_locked() && version.slot().is_some() && !is(Mutant::SettlesNothing) {
            persist(leaf);
        }
        if let Some(value) = found {
            assert!(leaf.durable.fetch_max(0, Relaxed) >= value, "{value} is visible and not durable");
        }
        return Some(found);
    }
    None
}

/// As `Tree::try_edit`: an update, or an insertion of a key whose value before is 0. Whether it was made.
fn try_put(leaf: &Leaf, key: u64, new: impl Fn(u64) -> u64) -> bool {
    let early = leaf.print.load(Acquire);
    let version = begin(&leaf.version);
    let print = if is(Mutant::SearchesBeforeBeginning) { early } else { leaf.print.load(Acquire) };
    if key >= leaf.bound.load(Acquire) || print == 1 && leaf.key.load(Relaxed) != key {
        return false;
    }
    let old = if print == 1 { leaf.value.load(Relaxed) } else { 0 };
    let Some(_locked) = Locked::at(leaf, version, 0, &sync::Bias) else { return false };
    leaf.value.store(new(old), Relaxed);
    leaf.key.store(key, Relaxed);
    persist(leaf);
    leaf.print.store(1, Release);
    true
}

/// As `Tree::try_edit` of a key that is to be there: whether the leaf alone says that it is not.
fn seems_absent(leaf: &Leaf, key: u64) -> bool {
    let version = begin(&leaf.version);
    if leaf.print.load(Acquire) == 1 || key >= leaf.bound.load(Acquire) {
        return false;
    }
    if is(Mutant::AnswersWithoutLookingAgain) {
        version.is_quiet()
    } else {
        is_durable_since(&leaf.version, version)
    }
}

/// As an update that goes by `Tree::lock_leaf`.
fn put(leaves: &[Leaf], parent: &AtomicU64, key: u64, new: impl Fn(u64) -> u64) {
    let mut at = parent.load(Acquire);
    loop {
        let leaf = &leaves[at as usize];
        let Some(mut locked) = Locked::new(leaf, &sync::Bias) else {
            if is(Mutant::WritesToTheDead) {
                return leaf.value.store(new(leaf.value.load(Relaxed)), Relaxed);
            }
            // That it is obsolete was read without ordering, so that the way there may seem to be the old
            // one for a while.
            thread::yield_now();
            at = parent.load(Acquire);
            continue;
        };
        if key >= leaf.bound.load(Acquire) {
            at = leaf.next.load(Acquire);
            continue;
        }
        let value = new(search(leaf, key).expect("the key is there"));
        if is(Mutant::NamesLate) {
            leaf.value.store(value, Relaxed);
        }
        locked.change(0);
        leaf.value.store(value, Relaxed);
        persist(leaf);
        return;
    }
}

/// Runs a model under every schedule with this many preemptions.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

/// A slot that is updated, emptied, and used for another key, by a writer who looks first or not.
fn a_slot_is_used_by_turns(looks_first: bool) {
    explore(2, move || {
        let leaves = Arc::new([leaf(5, 1, 100, NONE)]);
        let parent = Arc::new(AtomicU64::new(0));
        let writer = thread::spawn({
            let (leaves, parent) = (leaves.clone(), parent.clone());
            move || {
                let leaf = &leaves[0];
                let lock = || {
                    if looks_first {
                        return Locked::at(leaf, begin(&leaf.version), 0, &sync::Bias).unwrap();
                    }
                    let mut locked = Locked::new(leaf, &sync::Bias).unwrap();
                    locked.change(0);
                    locked
                };
                if looks_first {
                    assert!(try_put(leaf, 5, |_| 2), "nobody else changes it");
                } else {
                    put(&*leaves, &parent, 5, |_| 2);
                }
                let locked = lock();
                leaf.key.store(0, Relaxed);
                leaf.print.store(0, Release);
                drop(locked);
                let _locked = lock();
                leaf.value.store(9, Relaxed);
                leaf.key.store(7, Relaxed);
                persist(leaf);
                leaf.print.store(1, Release);
            }
        });
        let rank = |found: Option<u64>| found.unwrap_or(3);
        if let Some(first) = get(&*leaves, &parent, 5) {
            assert!(rank(first) <= 3, "another key's value");
            if let Some(second) = get(&*leaves, &parent, 5) {
                assert!(rank(first) <= rank(second) && rank(second) <= 3, "{first:?}, then {second:?}");
            }
        }
        writer.join().unwrap();
    });
}

/// The same by a writer that has the bias.
fn a_slot_is_used_by_one_who_is_alone(looks_first: bool) {
    IS_ALONE.set(true);
    let outcome = std::panic::catch_unwind(|| a_slot_is_used_by_turns(looks_first));
    IS_ALONE.set(false);
    if let Err(failure) = outcome {
        std::panic::resume_unwind(failure);
    }
}

fn a_slot_is_used_again() {
    a_slot_is_used_by_turns(false);
}

fn a_slot_is_used_again_as_seen() {
    a_slot_is_used_by_turns(true);
}

fn a_slot_is_used_again_by_one_who_is_alone() {
    a_slot_is_used_by_one_who_is_alone(false);
}

fn a_slot_is_used_again_as_seen_by_one_who_is_alone() {
    a_slot_is_used_by_one_who_is_alone(true);
}

/// Two writers of one record.
fn two_writers_take_turns() {
    explore(2, || {
        let leaves = Arc::new([leaf(5, 1, 100, NONE)]);
        let parent = Arc::new(AtomicU64::new(0));
        let writer = thread::spawn({
            let (leaves, parent) = (leaves.clone(), parent.clone());
            move || put(&*leaves, &parent, 5, |old| old + 1)
        });
        put(&*leaves, &parent, 5, |old| old + 1);
        writer.join().unwrap();
        assert_eq!(get(&*leaves, &parent, 5), Some(Some(3)), "no update is lost");
    });
}

/// Two writers of one key, which is there or not. Each looks before it locks, and takes more care if that
/// fails.
fn two_writers_look_first() {
    for is_there in [false, true] {
        explore(3, move || {
            let leaves = Arc::new(if is_there { [leaf(5, 1, 100, NONE)] } else { [leaf(0, 0, 100, NONE)] });
            let add = |leaves: &[Leaf; 1]| {
                if !try_put(&leaves[0], 5, |old| old + 1) {
                    let mut locked = Locked::new(&leaves[0], &sync::Bias).unwrap();
                    locked.change(0);
                    let old = search(&leaves[0], 5).unwrap_or(0);
                    leaves[0].value.store(old + 1, Relaxed);
                    leaves[0].key.store(5, Relaxed);
                    persist(&leaves[0]);
                    leaves[0].print.store(1, Release);
                }
            };
            let writer = thread::spawn({
                let leaves = leaves.clone();
                move || add(&leaves)
            });
            add(&leaves);
            writer.join().unwrap();
            assert_eq!(search(&leaves[0], 5), Some(2 + u64::from(is_there)), "no update is lost");
        });
    }
}

/// Key 5 moves to a new leaf on the right, while it is updated and looked up.
fn a_leaf_is_divided() {
    explore(2, || {
        let leaves = Arc::new([leaf(5, 1, 100, NONE), leaf(0, 0, 100, NONE)]);
        let parent = Arc::new(AtomicU64::new(0));
        let divider = thread::spawn({
            let (leaves, parent) = (leaves.clone(), parent.clone());
            move || {
                let [left, right] = &*leaves;
                let mut locked = Locked::new(left, &sync::Bias).unwrap();
                right.value.store(left.value.load(Relaxed), Relaxed);
                right.durable.fetch_max(right.value.load(Relaxed), Relaxed);
                right.key.store(5, Relaxed);
                right.print.store(1, Relaxed);
                locked.change_structure();
                if is(Mutant::ClearsBeforeBound) {
                    left.print.store(0, Release);
                }
                left.next.store(1, Release);
                left.bound.store(5, Release);
                left.print.store(0, Release);
                drop(locked);
                parent.store(1, Release);
            }
        });
        let writer = thread::spawn({
            let (leaves, parent) = (leaves.clone(), parent.clone());
            move || {
                if !try_put(&leaves[0], 5, |_| 2) {
                    put(&*leaves, &parent, 5, |_| 2);
                }
            }
        });
        if let Some(found) = get(&*leaves, &parent, 5) {
            assert!(matches!(found, Some(1 | 2)), "{found:?}");
        }
        divider.join().unwrap();
        writer.join().unwrap();
        assert_eq!(get(&*leaves, &parent, 5), Some(Some(2)));
    });
}

/// A leaf as a scan read it: its version, the record, and what was in the slot that was being changed.
fn scan_leaf(leaf: &Leaf, key: u64) -> Option<(Version, u64, Option<u64>)> {
    let version = begin(&leaf.version);
    let changing = version.slot().map(|_| leaf.value.load(Relaxed));
    let bound = leaf.bound.load(Acquire);
    if version.is_obsolete() || key >= bound {
        return None;
    }
    let value = search(leaf, key)?;
    let is_same = leaf.bound.load(Acquire) == bound && is_unchanged(&leaf.version, version);
    is_same.then_some((version, value, changing))
}

/// One try to read key 5, in the leaf that `parent` names, and then key 6 in leaf 2, as `Tree::try_scan`
/// does.
fn scan(leaves: &[Leaf], parent: &AtomicU64) -> Option<(u64, u64)> {
    let first = &leaves[parent.load(Acquire) as usize];
    let (version, value, changing) = scan_leaf(first, 5)?;
    let (other_version, other_value, other_changing) = scan_leaf(&leaves[2], 6)?;
    for (leaf, version, changing) in [(first, version, changing), (&leaves[2], other_version, other_changing)]
    {
        let again = version.slot().map(|_| leaf.value.load(Relaxed));
        if again != changing || !is_unchanged(&leaf.version, version) {
            return None;
        }
    }
    Some((value, other_value))
}

/// Key 5 is updated by a writer that is stopped before it unlocks; somebody sees that and updates key 6 in
/// another leaf.
fn a_scan_beside_cause_and_effect() {
    explore(3, || {
        let leaves = Arc::new([leaf(5, 1, 100, NONE), leaf(0, 0, 100, NONE), leaf(6, 1, 100, NONE)]);
        let (parent, other) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(2)));
        let cause = thread::spawn({
            let leaves = leaves.clone();
            move || {
                let mut locked = Locked::new(&leaves[0], &sync::Bias).unwrap();
                locked.change(0);
                leaves[0].value.store(2, Relaxed);
                std::mem::forget(locked);
            }
        });
        let effect = thread::spawn({
            let (leaves, parent) = (leaves.clone(), parent.clone());
            move || {
                if get(&*leaves, &parent, 5) == Some(Some(2)) {
                    put(&*leaves, &other, 6, |_| 2);
                }
            }
        });
        assert_ne!(scan(&*leaves, &parent), Some((1, 2)), "an effect without its cause");
        cause.join().unwrap();
        effect.join().unwrap();
    });
}

/// Key 5 moves from leaf 1 into leaf 0 on its left.
fn join(leaves: &[Leaf], parent: &AtomicU64) {
    let (left, right) = (&leaves[0], &leaves[1]);
    let (mut left_lock, right_lock) =
        (Locked::new(left, &sync::Bias).unwrap(), Locked::new(right, &sync::Bias).unwrap());
    left.value.store(right.value.load(Relaxed), Relaxed);
    left.durable.fetch_max(left.value.load(Relaxed), Relaxed);
    left.key.store(5, Relaxed);
    left_lock.change_structure();
    left.print.store(1, Release);
    left.next.store(NONE, Release);
    left.bound.store(100, Release);
    parent.store(0, Release);
    if is(Mutant::UnlocksBeforeRetiring) {
        drop(left_lock);
        right_lock.retire();
    } else {
        right_lock.retire();
        drop(left_lock);
    }
}

/// Nobody finds a key absent that is always there, in whatever leaf.
fn a_key_is_sought_beside_a_join() {
    explore(5, || {
        let leaves = Arc::new([leaf(0, 0, 5, 1), leaf(5, 1, 100, NONE)]);
        let parent = Arc::new(AtomicU64::new(1));
        let joiner = thread::spawn({
            let (leaves, parent) = (leaves.clone(), parent.clone());
            move || join(&*leaves, &parent)
        });
        leaves.iter().for_each(|leaf| assert!(!seems_absent(leaf, 5), "a key that is there is absent"));
        joiner.join().unwrap();
    });
}

/// A leaf that is being changed is not locked by who looked at it then, though nothing of its version has
/// changed since.
fn a_leaf_is_locked_once() {
    explore(0, || {
        let leaf = leaf(5, 1, 100, NONE);
        let mut locked = Locked::new(&leaf, &sync::Bias).unwrap();
        assert!(Locked::at(&leaf, begin(&leaf.version), 0, &sync::Bias).is_none(), "locked twice");
        locked.change(0);
        assert!(Locked::at(&leaf, begin(&leaf.version), 0, &sync::Bias).is_none(), "locked twice");
        drop(locked);
        let locked = Locked::at(&leaf, begin(&leaf.version), 0, &sync::Bias).unwrap();
        locked.retire();
        assert!(
            Locked::at(&leaf, begin(&leaf.version), 0, &sync::Bias).is_none(),
            "locked though it is obsolete"
        );
    });
}

/// Key 5 moves from leaf 1 into leaf 0 on its left, is then updated, and key 6 after it.
fn a_scan_beside_a_join() {
    explore(2, || {
        let leaves = Arc::new([leaf(0, 0, 5, 1), leaf(5, 1, 100, NONE), leaf(6, 1, 100, NONE)]);
        let (parent, other) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(2)));
        let joiner = thread::spawn({
            let (leaves, parent) = (leaves.clone(), parent.clone());
            move || join(&*leaves, &parent)
        });
        let writer = thread::spawn({
            let (leaves, parent) = (leaves.clone(), parent.clone());
            move || {
                put(&*leaves, &parent, 5, |old| old + 1);
                put(&*leaves, &other, 6, |_| 2);
            }
        });
        assert_ne!(scan(&*leaves, &parent), Some((1, 2)), "an effect without its cause");
        joiner.join().unwrap();
        writer.join().unwrap();
        assert_eq!(get(&*leaves, &parent, 5), Some(Some(2)), "no update is lost");
    });
}

const MODELS: [(&str, fn()); 11] = [
    ("a slot is used again", a_slot_is_used_again),
    ("a slot is used again as seen", a_slot_is_used_again_as_seen),
    ("a slot is used again by one who is alone", a_slot_is_used_again_by_one_who_is_alone),
    ("a slot is used again as seen by one who is alone", a_slot_is_used_again_as_seen_by_one_who_is_alone),
    ("two writers take turns", two_writers_take_turns),
    ("two writers look first", two_writers_look_first),
    ("a scan beside cause and effect", a_scan_beside_cause_and_effect),
    ("a scan beside a join", a_scan_beside_a_join),
    ("a leaf is divided", a_leaf_is_divided),
    ("a key is sought beside a join", a_key_is_sought_beside_a_join),
    ("a leaf is locked once", a_leaf_is_locked_once),
];

#[test]
fn the_protocol_holds_under_every_interleaving() {
    for (name, model) in MODELS {
        let start = std::time::Instant::now();
        model();
        println!("{name}: {:?}", start.elapsed());
    }
}

#[test]
fn weakenings_are_caught() {
    let mutants: [(Mutant, fn()); 25] = [
        (Mutant::BeginsRelaxed, a_slot_is_used_again),
        (Mutant::UnlocksRelaxed, two_writers_take_turns),
        (Mutant::LocksRelaxed, two_writers_take_turns),
        (Mutant::UnlocksRelaxed, two_writers_look_first),
        (Mutant::LocksRelaxed, two_writers_look_first),
        (Mutant::SearchesBeforeBeginning, two_writers_look_first),
        (Mutant::NoFenceOfReaders, a_slot_is_used_again),
        (Mutant::NoFenceOfWriters, a_slot_is_used_again),
        (Mutant::NamesLate, a_slot_is_used_again),
        (Mutant::NoFenceOfReaders, a_slot_is_used_again_as_seen),
        (Mutant::NoFenceOfWriters, a_slot_is_used_again_as_seen),
        (Mutant::LocksByBiasRelaxed, a_slot_is_used_again_as_seen_by_one_who_is_alone),
        (Mutant::NoFenceOfReaders, a_slot_is_used_again_as_seen_by_one_who_is_alone),
        (Mutant::NoFenceOfWriters, a_slot_is_used_again_as_seen_by_one_who_is_alone),
        (Mutant::SettlesNothing, a_slot_is_used_again),
        (Mutant::BeginsRelaxed, a_slot_is_used_again_by_one_who_is_alone),
        (Mutant::NoFenceOfReaders, a_slot_is_used_again_by_one_who_is_alone),
        (Mutant::NoFenceOfWriters, a_slot_is_used_again_by_one_who_is_alone),
        (Mutant::SettlesNothing, a_slot_is_used_again_by_one_who_is_alone),
        (Mutant::BoundBeforeSearch, a_leaf_is_divided),
        (Mutant::PrintsRelaxed, a_leaf_is_divided),
        (Mutant::ClearsBeforeBound, a_leaf_is_divided),
        (Mutant::UnlocksBeforeRetiring, a_scan_beside_a_join),
        (Mutant::WritesToTheDead, a_scan_beside_a_join),
        (Mutant::AnswersWithoutLookingAgain, a_key_is_sought_beside_a_join),
    ];
    let mut missed = Vec::new();
    for (mutant, model) in mutants {
        MUTANT.set(mutant);
        if std::panic::catch_unwind(model).is_ok() {
            missed.push(mutant);
        }
        MUTANT.set(Mutant::None);
    }
    assert!(missed.is_empty(), "nothing caught {missed:?}");
}
