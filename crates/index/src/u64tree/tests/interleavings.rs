//! Interleavings: reads during which another thread makes a change at one of the loads, at each in turn.

use super::super::U64Tree;
use super::super::fingerprints::{NewFingerprints, bits, fingerprint, likely_slot, lines_of};
use super::super::get::SearchEnd;
use super::super::layout::{floor_off, key_off, value_off};
use super::super::lock::Locked;
use super::super::node::{Leaf, Link};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use tembo_pmem::{Observer, Region, ThreadTag};
use tembo_pool::{Geometry, Pool};

/// Lets another thread make a change at one of the loads, and waits for it.
struct Meddler {
    /// The number of loads and prefetches before the change.
    left: AtomicI64,
    /// Signals the moment to the other thread, and receives the end of its change.
    turn: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Meddler {
    fn step(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0
            && let Some((now, done)) = self.turn.lock().unwrap().take()
        {
            now.send(()).unwrap();
            done.recv().unwrap();
        }
    }

    /// Reads with the change at load number `at`; false if there were fewer loads.
    fn read(&self, at: i64, change: impl FnOnce() + Send, read: impl FnOnce()) -> bool {
        let ((now, when), (done, end)) = (channel(), channel());
        *self.turn.lock().unwrap() = Some((now, end));
        self.left.store(at, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if when.recv().is_ok() {
                    change();
                    done.send(()).unwrap();
                }
            });
            // Even if the read panics, the other thread must not wait for ever.
            let outcome = catch_unwind(AssertUnwindSafe(read));
            self.left.store(-1, Ordering::Relaxed);
            let was_made = self.turn.lock().unwrap().take().is_none();
            outcome.unwrap_or_else(|failure| resume_unwind(failure));
            was_made
        })
    }
}

impl Observer for Meddler {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
    fn flush(&self, _: ThreadTag, _: u64) {}
    fn fence(&self, _: ThreadTag) {}
    fn wants_loads(&self) -> bool {
        true
    }
    fn load(&self, _: ThreadTag, _: u64, _: u64) {
        self.step();
    }
    fn prefetch(&self, _: ThreadTag, _: u64) {
        self.step();
    }
}

/// A tree of even keys, each with the next number as its value, of several leaves.
fn meddled() -> (Arc<Meddler>, Pool, U64Tree) {
    meddled_with((0..300).map(|i| 2 * i))
}

/// As `meddled`, with these keys.
fn meddled_with(keys: impl Iterator<Item = u64>) -> (Arc<Meddler>, Pool, U64Tree) {
    let meddler = Arc::new(Meddler { left: AtomicI64::new(-1), turn: Mutex::default() });
    let bytes = 4 << 20;
    let region = Region::simulated(&vec![0; bytes], bytes as u64, Some(meddler.clone())).unwrap();
    let geometry = Geometry { zone_chunks: 1 << 12, ..Geometry::default() };
    let pool = Pool::create_in(region, &geometry).unwrap();
    let tree = U64Tree::create(&pool, "tree").unwrap();
    keys.for_each(|key| assert!(tree.insert(key, key + 1).unwrap()));
    (meddler, pool, tree)
}

fn leaf_of<'g>(tree: &'g U64Tree, key: u64, pin: &'g tembo_pool::BriefPin<'_>) -> &'g Leaf {
    match tree.tree.find_place(key, pin) {
        SearchEnd::Leaf(leaf) if !key > leaf.floor.load(Ordering::Relaxed) => leaf,
        _ => panic!("a leaf that is known, and whose key it is"),
    }
}

const FAR: u64 = 500;

fn scanned(tree: &U64Tree, up: bool) -> Vec<(u64, u64)> {
    let mut records = Vec::new();
    if up {
        tree.scan(9, 290, &mut records).unwrap();
    } else {
        tree.scan_back(FAR + 20, 259, &mut records).unwrap();
        records.reverse();
    }
    records
}

/// Both values become 7, the cause's first.
fn assert_cause_shown(tree: &U64Tree, up: bool, (cause, effect): (u64, u64), at: i64) {
    let records = scanned(tree, up);
    let value_of = |key| records.iter().find(|(found, _)| *found == key).unwrap().1;
    assert!(
        value_of(effect) != 7 || value_of(cause) == 7,
        "upwards {up}: {cause} is old and {effect} is new with a change at load {at}"
    );
}

/// A writer is stopped in one leaf. Another thread sees its new value, and then writes to another leaf. A
/// scan that shows the second change also shows the first.
#[test]
fn a_scan_that_shows_an_effect_shows_its_cause() {
    let (meddler, pool, tree) = meddled();
    // No thread has the bias, so a stopped writer delays nobody in other leaves.
    std::thread::scope(|scope| _ = scope.spawn(|| tree.put(FAR, FAR + 1).unwrap()));
    let pin = pool.pin_briefly();
    for (up, cause, effect) in [(true, 10, FAR), (false, FAR, 10)] {
        let mut locked = Locked::new(leaf_of(&tree, cause, &pin), &tree.tree.bias).unwrap();
        let slot = tree.tree.search(locked.leaf, cause).unwrap().unwrap().0;
        locked.change(slot);
        let value = value_off(locked.leaf.off, slot);
        let store = |new| pool.region().store_u64(value, new).unwrap();
        let mut at = 0;
        let mut goes_on = || {
            let change = || {
                store(7);
                assert_eq!(tree.get(cause).unwrap(), Some(7), "visible, hence durable");
                tree.put(effect, 7).unwrap();
            };
            let read = || assert_cause_shown(&tree, up, (cause, effect), at);
            let was_made = meddler.read(at, change, read);
            store(cause + 1);
            tree.put(effect, effect + 1).unwrap();
            at += 1;
            was_made
        };
        while goes_on() {}
        assert!(at > 300, "the scan loads more than {at} words");
    }
}

/// Cold nodes are read from media, because another thread has the lock of structure changes. Then they become
/// known, and change. A scan that shows the second change also shows the first.
#[test]
fn a_scan_of_cold_leaves_that_shows_an_effect_shows_its_cause() {
    let (meddler, pool, tree) = meddled_with((0..600).map(|i| 2 * i));
    drop(tree);
    // The scan reads three leaves, the last two of which change. The nodes above them are all cold, or all
    // known; in the second case only the leaves are cold.
    const BETWEEN: u64 = 260;
    let ways = [(true, FAR), (false, 10)].into_iter().flat_map(|way| [(way, false), (way, true)]);
    for ((up, effect), is_known_above) in ways {
        let cause = BETWEEN;
        let goes_on = |at| {
            let tree = U64Tree::open(&pool, "tree").unwrap().unwrap();
            if is_known_above {
                assert_eq!(tree.get(1190).unwrap(), Some(1191));
            }
            let ((hold, held), (end, ended)) = (channel(), channel());
            let (release, released) = channel::<()>();
            std::thread::scope(|scope| {
                let lock_of = &tree;
                scope.spawn(move || {
                    let lock = lock_of.tree.lock_structure();
                    hold.send(()).unwrap();
                    // An error is fine too: there was no change.
                    _ = released.recv();
                    drop(lock);
                    _ = end.send(());
                });
                held.recv().unwrap();
                let release_first = release.clone();
                let change = move || {
                    release_first.send(()).unwrap();
                    ended.recv().unwrap();
                    lock_of.put(cause, 7).unwrap();
                    lock_of.put(effect, 7).unwrap();
                };
                let read = || assert_cause_shown(&tree, up, (cause, effect), at);
                let was_made = meddler.read(at, change, read);
                drop(release);
                was_made
            })
        };
        let mut at = 0;
        loop {
            let was_made = goes_on(at);
            let tree = U64Tree::open(&pool, "tree").unwrap().unwrap();
            [cause, effect].into_iter().for_each(|key| _ = tree.put(key, key + 1).unwrap());
            if !was_made {
                break;
            }
            at += 1;
        }
        assert!(at > 300, "the scan loads more than {at} words");
    }
}

/// A record is being removed while a scan looks for its place among the sorted keys.
#[test]
fn a_removal_under_way_leads_no_scan_astray() {
    let (meddler, pool, tree) = meddled();
    let pin = pool.pin_briefly();
    for up in [true, false] {
        for removed in (10..60).chain(FAR - 20..FAR + 40).step_by(2) {
            let mut locked = Locked::new(leaf_of(&tree, removed, &pin), &tree.tree.bias).unwrap();
            let slot = tree.tree.search(locked.leaf, removed).unwrap().unwrap().0;
            locked.change(slot);
            let word = key_off(locked.leaf.off, slot);
            let with = scanned(&tree, up);
            let others: Vec<(u64, u64)> = with.iter().copied().filter(|(key, _)| *key != removed).collect();
            let mut at = 0;
            while meddler.read(
                at,
                || pool.region().store_u64(word, 0).unwrap(),
                || {
                    let found = scanned(&tree, up);
                    let mut rest = found.clone();
                    rest.retain(|(key, _)| *key != removed && others.iter().any(|(other, _)| other == key));
                    let missing = others.len() - rest.len();
                    assert!(
                        missing == 0 && found.len() <= with.len(),
                        "upwards {up}, {removed} removed at load {at}: {missing} are missing of {found:?}"
                    );
                },
            ) {
                pool.region().store_u64(word, !removed).unwrap();
                // The searches at the start are short, and the rest is long, so later places are sampled.
                at += if at > 300 { 37 } else { 1 };
            }
            pool.region().store_u64(word, !removed).unwrap();
        }
    }
}

/// A division has published the floor, removed the records from the left leaf, and was stopped there.
#[test]
fn a_division_under_way_hides_no_record() {
    let (meddler, pool, tree) = meddled();
    let pin = pool.pin_briefly();
    for up in [true, false] {
        let expected = scanned(&tree, up);
        let leaf = leaf_of(&tree, 10, &pin);
        let _locked = Locked::new(leaf, &tree.tree.bias).unwrap();
        let split = 20;
        let (floor, next) = (leaf.floor.load(Ordering::Relaxed), leaf.next.load());
        let key_in = |slot: &usize| !pool.region().load_u64(key_off(leaf.off, *slot)).unwrap();
        let moved: Vec<(usize, u64)> = bits(leaf.fingerprints.used())
            .map(|slot| (slot, key_in(&slot)))
            .filter(|(_, key)| *key >= split)
            .collect();
        let mut at = 0;
        loop {
            // The new leaf is at the same place as the old one, with the same contents.
            let mut fingerprints = NewFingerprints::new();
            moved.iter().for_each(|(slot, key)| fingerprints.set(*slot, fingerprint(*key)));
            let right = Leaf::new(leaf.off, split, floor, fingerprints);
            right.next.store(next);
            let right = Link::leaf(right);
            let change = || {
                leaf.next.store(right);
                leaf.floor.store(!split, Ordering::Release);
                moved.iter().for_each(|(slot, _)| leaf.fingerprints.clear(*slot));
            };
            let read = || {
                assert_eq!(scanned(&tree, up), expected, "upwards {up}, with a division at load {at}");
                assert_eq!(tree.get(30).unwrap(), Some(31));
            };
            let was_made = meddler.read(at, change, read);
            leaf.next.store(next);
            leaf.floor.store(floor, Ordering::Release);
            moved.iter().for_each(|(slot, key)| leaf.fingerprints.set(*slot, fingerprint(*key)));
            Link::drop_unused(vec![right]);
            if !was_made {
                break;
            }
            at += 1;
        }
        assert!(at > 300);
    }
}

/// Some slots of a leaf have keys outside of its bounds: a record that is being removed, or records that a
/// division has moved and not removed yet. Such a key was once sorted among the others if distances from the
/// leaf's least key were cut to 57 bits, and scans lost records.
#[test]
fn a_scan_finds_all_records_beside_keys_out_of_bounds() {
    const WRAPS: u64 = 1 << 57;
    let scans = |tree: &U64Tree, expected: &[u64], what: &str| {
        for (i, from) in expected.iter().enumerate() {
            for limit in [1, 5, 90] {
                let (mut up, mut down) = (Vec::new(), Vec::new());
                tree.scan(*from, limit, &mut up).unwrap();
                tree.scan_back(*from, limit, &mut down).unwrap();
                let keys = |records: &[(u64, u64)]| records.iter().map(|(key, _)| *key).collect::<Vec<_>>();
                assert!(expected[i..].iter().take(limit).eq(&keys(&up)), "{what}: up from {from}, {limit}");
                let below = expected[..=i].iter().rev().take(limit);
                assert!(below.eq(&keys(&down)), "{what}: down from {from}, {limit}");
            }
        }
    };
    // Keys on both sides of `4 * WRAPS`, where a scan cuts the distance of the largest of all keys.
    let (_, pool, tree) = meddled_with((0..300).map(|i| 4 * WRAPS - 300 + 2 * i));
    let pin = pool.pin_briefly();
    let all: Vec<u64> = tree.iter().map(|record| record.unwrap().0).collect();
    let leaf = leaf_of(&tree, 4 * WRAPS, &pin);
    assert!(leaf.low < 4 * WRAPS - 20 && !leaf.floor.load(Ordering::Relaxed) > 4 * WRAPS + 20);
    for removed in (4 * WRAPS - 20..4 * WRAPS + 20).step_by(2) {
        let mut locked = Locked::new(leaf, &tree.tree.bias).unwrap();
        let slot = tree.tree.search(leaf, removed).unwrap().unwrap().0;
        locked.change(slot);
        pool.region().store_u64(key_off(leaf.off, slot), 0).unwrap();
        let others: Vec<u64> = all.iter().copied().filter(|key| *key != removed).collect();
        scans(&tree, &others, &format!("{removed} is being removed"));
        pool.region().store_u64(key_off(leaf.off, slot), !removed).unwrap();
    }

    // The keys are so far apart that a leaf spans more than `WRAPS`, and less when it has been divided.
    let (_, pool, tree) = meddled_with((0..300).map(|i| i << 53));
    let pin = pool.pin_briefly();
    let all: Vec<u64> = tree.iter().map(|record| record.unwrap().0).collect();
    let leaf = leaf_of(&tree, 100 << 53, &pin);
    let (floor, next) = (leaf.floor.load(Ordering::Relaxed), leaf.next.load());
    for count in [3, 9, 15] {
        let split = leaf.low + (count << 53);
        assert!(!floor - leaf.low > WRAPS && split - leaf.low < WRAPS);
        let _locked = Locked::new(leaf, &tree.tree.bias).unwrap();
        let mut fingerprints = NewFingerprints::new();
        for slot in bits(leaf.fingerprints.used()) {
            let key = !pool.region().load_u64(key_off(leaf.off, slot)).unwrap();
            if key >= split {
                fingerprints.set(slot, fingerprint(key));
            }
        }
        // The new leaf is where the old one is.
        let right = Leaf::new(leaf.off, split, floor, fingerprints);
        right.next.store(next);
        let right = Link::leaf(right);
        leaf.next.store(right);
        leaf.floor.store(!split, Ordering::Release);
        scans(&tree, &all, &format!("{count} keys of a leaf stay"));
        leaf.next.store(next);
        leaf.floor.store(floor, Ordering::Release);
        Link::drop_unused(vec![right]);
    }
}

/// Whole changes of other threads, made while one looks for a key.
type Change<'c> = (&'c str, &'c (dyn Fn(&U64Tree, u64) + Sync));

fn odd(from: u64, to: u64) -> impl Iterator<Item = u64> {
    (from..to).filter(|key| key % 2 == 1)
}

fn slot_of(tree: &U64Tree, key: u64) -> Option<(u64, usize)> {
    let pin = tree.pool().pin_briefly();
    let leaf = leaf_of(tree, key, &pin);
    tree.tree.search(leaf, key).unwrap().map(|(slot, _)| (leaf.off, slot))
}

/// Removes a key, and adds others until one gets its slot; returns whether one did.
fn use_slot_again(tree: &U64Tree, key: u64) -> bool {
    let slot = slot_of(tree, key);
    tree.remove(key).unwrap();
    odd(key.max(60) - 60, key + 60).any(|other| {
        tree.insert(other, 0).unwrap();
        slot_of(tree, other) == slot || tree.remove(other).unwrap().is_none()
    })
}

fn divide_around(tree: &U64Tree, key: u64) {
    odd(key.max(100) - 100, key + 100).for_each(|i| _ = tree.put(i, i).unwrap());
}

fn join_around(tree: &U64Tree, key: u64) {
    (0..600).filter(|i| *i != key && i % 60 != 0).for_each(|i| _ = tree.remove(i).unwrap());
}

/// Makes whole changes during a lookup: it reuses a slot for another key, divides and joins leaves.
#[test]
fn a_lookup_tells_what_was_so_at_some_moment() {
    let used_again = AtomicUsize::new(0);
    let changes: [Change<'_>; 3] = [
        ("a slot is used again", &|tree, key| {
            used_again.fetch_add(use_slot_again(tree, key).into(), Ordering::Relaxed);
        }),
        ("a division", &divide_around),
        ("a join", &join_around),
    ];
    for (what, change) in changes {
        let removes = what == changes[0].0;
        for key in (0..600).step_by(20) {
            for at in 0.. {
                let (meddler, _pool, tree) = meddled();
                let found = std::cell::Cell::new(None);
                if !meddler.read(at, || change(&tree, key), || found.set(tree.get(key).unwrap())) {
                    break;
                }
                let found = found.get();
                assert!(
                    found == Some(key + 1) || removes && found.is_none(),
                    "{what} at load {at} of a lookup of {key}: {found:?}"
                );
                assert_eq!(tree.get(key).unwrap(), Some(key + 1).filter(|_| !removes));
            }
        }
    }
    let used_again = used_again.into_inner();
    assert!(used_again > 100, "{used_again}");
}

/// The same during changes, which read before they lock. Each change takes effect before or after the other
/// thread's.
#[test]
fn a_change_is_made_of_what_was_so_at_some_moment() {
    type Own<'c> = (&'c str, &'c dyn Fn(&U64Tree, u64) -> Option<u64>, Option<u64>);
    // Changes of a present key, each with the value that the key has afterwards, if nothing else changes it.
    let own: [Own<'_>; 5] = [
        ("put", &|tree, key| tree.put(key, 7).unwrap(), Some(7)),
        ("update", &|tree, key| tree.update(key, 7).unwrap(), Some(7)),
        ("swap", &|tree, key| tree.compare_and_swap(key, key + 1, 7).unwrap(), Some(7)),
        ("failing swap", &|tree, key| tree.compare_and_swap(key, 0, 7).unwrap(), None),
        ("removal", &|tree, key| tree.remove(key).unwrap(), None),
    ];
    let changes: [Change<'_>; 3] = [
        ("a slot is used again", &|tree, key| _ = use_slot_again(tree, key)),
        ("a division", &divide_around),
        ("a join", &join_around),
    ];
    let mut before_and_after = [0; 2];
    for (what, change) in changes {
        let removes = what == changes[0].0;
        for (own, make, left) in own {
            for key in (0..600).step_by(60) {
                for at in 0.. {
                    let (meddler, _pool, tree) = meddled();
                    let old = std::cell::Cell::new(None);
                    if !meddler.read(at, || change(&tree, key), || old.set(make(&tree, key))) {
                        break;
                    }
                    let (old, now) = (old.get(), tree.get(key).unwrap());
                    let story =
                        format!("{what} at load {at} of a {own} of {key}: it had {old:?}, it has {now:?}");
                    let left = left.or_else(|| Some(key + 1).filter(|_| own == "failing swap"));
                    match old {
                        // Before the removal, if there is one.
                        Some(old) => assert!(old == key + 1 && now == left.filter(|_| !removes), "{story}"),
                        // The operation came after the removal; then only a put does something.
                        None => assert!(removes && now == Some(7).filter(|_| own == "put"), "{story}"),
                    }
                    before_and_after[usize::from(old.is_none())] += 1;
                    let keys: Vec<u64> = tree.iter().map(|record| record.unwrap().0).collect();
                    assert!(keys.is_sorted_by(|a, b| a < b), "{story}: a key is there twice");
                }
            }
        }
    }
    assert!(before_and_after.iter().all(|count| *count > 50), "{before_and_after:?}");
}

/// The same for the insertion of an absent key: another thread fills the free slot with another key, and may
/// or may not insert this one too.
#[test]
fn a_key_that_is_inserted_at_a_time_is_there_once() {
    let mut taken = [0; 2];
    for (key, inserts) in odd(0, 600).step_by(15).flat_map(|key| [(key, false), (key, true)]) {
        for at in 0.. {
            // The order leaves room in the leaves: a thread that divides one has locks that the other needs.
            let (meddler, pool, tree) = meddled_with((0..300).map(|i| 2 * (i * 7 % 300)));
            let other = {
                let pin = pool.pin_briefly();
                let leaf = leaf_of(&tree, key, &pin);
                let unused = leaf.fingerprints.unused();
                let slot_for = |key: u64| likely_slot(unused, lines_of(key));
                let in_leaf = odd(leaf.low, (!leaf.floor.load(Ordering::Relaxed)).min(600));
                let mut others = in_leaf.filter(|other| *other != key);
                if unused.count_ones() < 3 {
                    None
                } else {
                    others.find(|other| slot_for(*other) == slot_for(key))
                }
            };
            let Some(other) = other else { break };
            let theirs = AtomicUsize::new(0);
            let ours = std::cell::Cell::new(false);
            let change = || {
                assert!(tree.insert(other, 8).unwrap());
                if inserts {
                    theirs.store(tree.insert(key, 8).unwrap().into(), Ordering::Relaxed);
                }
            };
            if !meddler.read(at, change, || ours.set(tree.insert(key, 7).unwrap())) {
                break;
            }
            let theirs = theirs.load(Ordering::Relaxed) == 1;
            assert!(ours.get() != theirs && theirs == inserts, "{key} at load {at}");
            assert_eq!(tree.get(key).unwrap(), Some(if theirs { 8 } else { 7 }));
            assert_eq!(tree.get(other).unwrap(), Some(8), "{key} at load {at}: {other} had the slot");
            assert_eq!(tree.count().unwrap(), 302, "{key} at load {at}");
            taken[usize::from(inserts)] += 1;
        }
    }
    assert!(taken.iter().all(|count| *count > 50), "{taken:?}");
}

/// Neither the length of the collection that a scan appends to nor the limit matters.
#[test]
fn a_limit_may_be_any_number() {
    let (_, _, tree) = meddled();
    let mut records = vec![(0, 0)];
    tree.scan(590, usize::MAX, &mut records).unwrap();
    assert_eq!(records, [(0, 0), (590, 591), (592, 593), (594, 595), (596, 597), (598, 599)]);
}

/// A floor that contradicts the parent sends a search on to a neighbour that does not have the key either.
#[test]
fn a_damaged_bound_is_reported_and_not_run_after_for_ever() {
    for key in [10, FAR] {
        let (_, pool, tree) = meddled();
        let off = leaf_of(&tree, key, &pool.pin_briefly()).off;
        drop(tree);
        pool.region().store_u64(floor_off(off), !(key + 1)).unwrap();
        let tree = U64Tree::open(&pool, "tree").unwrap().unwrap();
        assert!(tree.get(key + 2).is_err());
        assert!(tree.get(key).is_err());
        assert!(tree.put(key + 2, 1).is_err());
        assert!(tree.scan(key + 2, 1, &mut Vec::new()).is_err());
    }
}
