//! Stamps of the CDDS tree: comparing versions, and going back, opens the nodes on the way to what changed
//! and no others; `check` finds stamps that would hide a change; and versions that come to be held late
//! miss nothing.

use crate::structures::{Model, Structure, check, contents, new_map, new_pool};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tembo_index::{TreeStructure, VersionedSnapshot, VersionedTree};
use tembo_pmem::{Observer, Region, ThreadTag};
use tembo_pool::{Geometry, Pool};

const SLOTS: u64 = 28;
const NODE_BYTES: u64 = 960;

fn key(i: u64) -> [u8; 8] {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// A node as media has it, for tests that know the layout.
#[derive(Clone, Copy)]
struct Node<'r> {
    region: &'r Region,
    off: u64,
    level: u64,
}

impl<'r> Node<'r> {
    fn root(region: &'r Region, word: u64) -> Node<'r> {
        Node { region, off: word & ((1 << 48) - 1), level: word >> 48 }
    }

    /// The root of the newest version.
    fn newest(tree: &VersionedTree) -> Node<'_> {
        let head = tree.pool().root("map").unwrap().unwrap().off;
        let region = tree.pool().region();
        Node::root(region, region.load_u64(head + 16).unwrap())
    }

    fn field(&self, slot: u64, field: u64) -> u64 {
        let word = if self.level == 0 { 4 * slot + field } else { SLOTS * field + slot };
        self.region.load_u64(self.off + 64 + 8 * word).unwrap()
    }

    fn start(&self, slot: u64) -> u64 {
        self.field(slot, 0) & ((1 << 56) - 1)
    }

    fn end(&self, slot: u64) -> u64 {
        self.field(slot, 3)
    }

    fn children(self, version: u64) -> impl Iterator<Item = (u64, Node<'r>)> {
        let slots = (0..SLOTS).filter(move |slot| self.level > 0 && self.start(*slot) <= version);
        slots.filter(move |slot| self.end(*slot) > version).map(move |slot| {
            (slot, Node { region: self.region, off: self.field(slot, 2), level: self.level - 1 })
        })
    }

    fn stamp_off(&self, slot: u64) -> u64 {
        self.off + NODE_BYTES + 8 * slot
    }

    /// All nodes of a version, with how many of them there are.
    fn all(self, version: u64, nodes: &mut HashSet<u64>) {
        nodes.insert(self.off);
        self.children(version).for_each(|(_, child)| child.all(version, nodes));
    }

    /// The nodes of a version in or below which something changed after `from` and up to `to`, or that are
    /// not in `shared`.
    fn changed(self, version: u64, (from, to): (u64, u64), shared: &HashSet<u64>, nodes: &mut HashSet<u64>) {
        let before = nodes.len();
        self.children(version).for_each(|(_, child)| child.changed(version, (from, to), shared, nodes));
        let is_between = |number: u64| from < number && number <= to;
        let has_change = (0..SLOTS).any(|slot| is_between(self.start(slot)) || is_between(self.end(slot)));
        if nodes.len() > before || has_change || !shared.contains(&self.off) {
            nodes.insert(self.off);
        }
    }
}

/// Notes which nodes are opened.
#[derive(Default)]
struct Opened(Mutex<HashSet<u64>>);

impl Opened {
    fn by(&self, work: impl FnOnce()) -> HashSet<u64> {
        self.0.lock().unwrap().clear();
        work();
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Observer for Opened {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
    fn flush(&self, _: ThreadTag, _: u64) {}
    fn fence(&self, _: ThreadTag) {}
    fn wants_loads(&self) -> bool {
        true
    }
    fn load(&self, _: ThreadTag, off: u64, bytes: u64) {
        if TreeStructure::is_node_load(bytes) {
            self.0.lock().unwrap().insert(off);
        }
    }
}

/// The nodes on the way to what changed between two versions, in either.
fn on_the_way(tree: &VersionedTree, from: (u64, u64), to: u64) -> HashSet<u64> {
    let (from, root) = from;
    let (old, new) = (Node::root(tree.pool().region(), root), Node::newest(tree));
    let (mut of_old, mut of_new, mut nodes) = (HashSet::new(), HashSet::new(), HashSet::new());
    old.all(from, &mut of_old);
    new.all(to, &mut of_new);
    old.changed(from, (from, to), &of_new, &mut nodes);
    new.changed(to, (from, to), &of_old, &mut nodes);
    nodes
}

/// As many keys to an update as in a tree of 250,000 with a thousand of them.
#[test]
fn only_nodes_on_the_way_to_changes_are_opened() {
    const KEYS: u64 = 50_000;
    let opened = Arc::new(Opened::default());
    let region = Region::simulated(&vec![0; 32 << 20], 1 << 30, Some(opened.clone())).unwrap();
    let pool = Pool::create_in(region, &Geometry { zone_chunks: 1 << 12, ..Geometry::default() }).unwrap();
    let tree = TreeStructure::create(&pool, "map");
    (0..KEYS).for_each(|i| _ = tree.put(&key(i), b"before").unwrap());
    for updates in [1, 10, KEYS / 250, KEYS / 10] {
        let old = tree.snapshot();
        let root = pool.region().load_u64(pool.root("map").unwrap().unwrap().off + 16).unwrap();
        (0..updates).for_each(|i| _ = tree.put(&key(i * 7919 % KEYS), &[updates as u8; 5]).unwrap());
        let new = tree.snapshot();
        // More changes, which are no part of the difference.
        (0..20).for_each(|i| _ = tree.put(&key(i * 1013 % KEYS), b"later").unwrap());
        let mut all = HashSet::new();
        Node::newest(&tree).all(tree.version(), &mut all);
        tree.rollback_to(new.version()).unwrap();
        let expected = on_the_way(&tree, (old.version(), root), tree.version());
        let backward = opened.by(|| assert!(!tree.diff(tree.version(), old.version()).unwrap().is_empty()));
        let forward =
            opened.by(|| assert_eq!(tree.diff(old.version(), new.version()).unwrap().len() as u64, updates));
        let rollback = opened.by(|| _ = tree.rollback_to(old.version()).unwrap());
        println!(
            "{updates} updates: {} nodes on the way of {}; {} and {} for the differences, {} for the rollback",
            expected.len(),
            all.len(),
            forward.len(),
            backward.len(),
            rollback.len()
        );
        assert!(backward.is_subset(&expected) && forward.is_subset(&expected));
        // Nodes that are rebuilt may take a neighbour along.
        assert!(rollback.difference(&expected).count() <= expected.len() / 50 + 2);
        assert_eq!(tree.diff(old.version(), tree.version()).unwrap(), []);
        check(&tree);
    }
}

type Difference = BTreeMap<Vec<u8>, (Option<Vec<u8>>, Option<Vec<u8>>)>;

fn difference(from: &Model, to: &Model) -> Difference {
    let keys = from.keys().chain(to.keys()).filter(|key| from.get(*key) != to.get(*key));
    keys.map(|key| (key.clone(), (from.get(key).cloned(), to.get(key).cloned()))).collect()
}

fn found_difference(tree: &VersionedTree, from: u64, to: u64) -> Difference {
    let changes = tree.diff(from, to).unwrap().into_iter();
    changes.map(|change| (change.key, (change.before, change.after))).collect()
}

/// All versions of these against each other.
fn compare_all(tree: &VersionedTree, versions: &[VersionedSnapshot]) -> bool {
    let models: Vec<_> = versions.iter().map(|version| (version.version(), contents(version))).collect();
    models.iter().all(|(from, before)| {
        let mut others = models.iter();
        others.all(|(to, after)| found_difference(tree, *from, *to) == difference(before, after))
    })
}

/// Each stamp is made earlier in turn: `check` objects, or no comparison relies on it.
#[test]
fn check_finds_stamps_that_hide_a_change_from_a_named_version() {
    let tree = new_map::<TreeStructure>();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    (0..900).for_each(|i| _ = tree.put(&key(i), b"first").unwrap());
    for name in ["a", "b", "c"] {
        tree.keep(&tree.snapshot(), name).unwrap();
        for _ in 0..25 {
            let i = rng.random_range(0..900);
            if rng.random_bool(0.8) { tree.put(&key(i), name.as_bytes()) } else { tree.remove(&key(i)) }
                .unwrap();
        }
    }
    let versions: Vec<_> = tree.kept().iter().map(|kept| tree.snapshot_at(kept.version).unwrap()).collect();
    let versions = [versions, vec![tree.snapshot()]].concat();
    assert!(compare_all(&tree, &versions));
    let region = tree.pool().region();
    let mut stack = vec![Node::newest(&tree)];
    let (mut found, mut harmless) = (0, 0);
    while let Some(node) = stack.pop() {
        for (slot, child) in node.children(tree.version()) {
            stack.push(child);
            let stamp = region.load_u64(node.stamp_off(slot)).unwrap();
            for earlier in versions.iter().map(VersionedSnapshot::version).chain([0]).filter(|v| *v < stamp) {
                region.store_u64(node.stamp_off(slot), earlier).unwrap();
                match tree.check(&mut tree.pool().marks().unwrap()) {
                    Err(_) => found += 1,
                    Ok(_) => {
                        harmless += 1;
                        assert!(compare_all(&tree, &versions), "stamp {stamp} became {earlier}");
                    }
                }
            }
            // Nor may one come from the future.
            region.store_u64(node.stamp_off(slot), tree.version() + 1).unwrap();
            assert!(tree.check(&mut tree.pool().marks().unwrap()).is_err());
            region.store_u64(node.stamp_off(slot), stamp).unwrap();
        }
    }
    println!("{found} wrong stamps found, {harmless} harmless");
    assert!(found > 50);
    check(&tree);
}

/// Makes a version, and holds the one before it when that has begun.
fn late(tree: &VersionedTree, numbers: std::ops::Range<u64>, value: &[u8]) -> VersionedSnapshot {
    let mut before = None;
    tree.batch(|batch| {
        before = Some(tree.snapshot());
        numbers.clone().try_for_each(|i| batch.put(&key(i), value).map(drop))
    })
    .unwrap();
    before.unwrap()
}

/// A version that nobody held when the one after it was begun, and somebody when it was there.
#[test]
fn a_version_that_is_held_late_misses_nothing() {
    // Values change, leaves are divided, and so are the nodes above them.
    for (count, size) in [(300, 3), (300, 60), (3000, 900)] {
        let tree = new_map::<TreeStructure>();
        (0..count).for_each(|i| _ = tree.put(&key(i), b"first").unwrap());
        let first = late(&tree, 0..size, b"second");
        let now = tree.snapshot();
        assert!(compare_all(&tree, &[first.clone(), now.clone()]));
        // The next version stores the deferred stamps, in nodes that it copies too.
        let second = late(&tree, count..count + size, b"third");
        assert_eq!(second.version(), now.version());
        let all = [first.clone(), now.clone(), tree.snapshot()];
        assert!(compare_all(&tree, &all));
        let third = late(&tree, count - 1..count + 2, b"fourth");
        assert!(compare_all(&tree, &[&all[..], &[third.clone(), tree.snapshot()]].concat()));
        // A name needs it on media.
        let (last, name) = (late(&tree, 5..5 + size, b"fifth"), "late");
        tree.keep(&last, name).unwrap();
        drop((all, first, second, third, now, last));
        let image = crate::structures::image(tree.pool());
        let expected = contents(&tree.kept_snapshot(name).unwrap());
        drop(tree);
        let pool = Pool::open_in(Region::simulated(&image, 1 << 30, None).unwrap()).unwrap();
        let tree = VersionedTree::open(&pool, "map").unwrap().unwrap();
        check(&tree);
        let named = tree.kept_snapshot(name).unwrap();
        assert!(compare_all(&tree, &[named.clone(), tree.snapshot()]));
        tree.rollback_to(named.version()).unwrap();
        assert!(contents(&tree.snapshot()) == expected);
        check(&tree);
    }
}

/// The node above what the one version changed is copied by the next, and its deferred stamps go along.
#[test]
fn what_is_owed_goes_along_with_copies() {
    let tree = new_map::<TreeStructure>();
    let in_order = |i: u32| format!("key{i:05}").into_bytes();
    (0..400).for_each(|i| _ = tree.put(&in_order(i), b"first").unwrap());
    let root = Node::newest(&tree).off;
    let mut before = None;
    tree.batch(|batch| {
        before = Some(tree.snapshot());
        batch.put(&in_order(7), b"second").map(drop)
    })
    .unwrap();
    assert_eq!(Node::newest(&tree).off, root);
    let between = tree.snapshot();
    let more = |i: u32| [in_order(200), i.to_be_bytes().to_vec()].concat();
    tree.batch(|batch| (0..300).try_for_each(|i| batch.put(&more(i), b"third").map(drop))).unwrap();
    assert_ne!(Node::newest(&tree).off, root);
    assert!(compare_all(&tree, &[before.unwrap(), between, tree.snapshot()]));
    check(&tree);
}

/// `TEMBO_UPDATES=1000000 cargo test --release -p tembo-index --test suite versioned_stamps` is the long
/// form.
#[test]
fn differences_are_whole_beside_a_writer() {
    const KEYS: u64 = 2000;
    let updates = std::env::var("TEMBO_UPDATES").ok().and_then(|updates| updates.parse().ok());
    let tree = TreeStructure::create(&new_pool(32 << 20), "map");
    (0..KEYS).for_each(|i| _ = tree.put(&key(i), b"first").unwrap());
    let is_done = AtomicBool::new(false);
    let compared = std::thread::scope(|scope| {
        let compare = |seed: u64| {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut held: Vec<VersionedSnapshot> = Vec::new();
            let mut compared = 0_u64;
            while !is_done.load(Ordering::Acquire) || compared == 0 {
                held.push(tree.snapshot());
                if rng.random_bool(0.5) {
                    std::thread::yield_now();
                }
                let now = tree.snapshot();
                let from = &held[rng.random_range(0..held.len())];
                let expected = difference(&contents(from), &contents(&now));
                assert!(found_difference(&tree, from.version(), now.version()) == expected);
                compared += 1;
                if held.len() > 4 {
                    held.clear();
                }
            }
            compared
        };
        let readers = [1, 2].map(|seed| scope.spawn(move || compare(seed)));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        for i in 0..updates.unwrap_or(200_000_u64) {
            let number = rng.random_range(0..KEYS);
            if i % 3 == 0 {
                tree.remove(&key(number)).unwrap();
            } else {
                tree.put(&key(number), &i.to_be_bytes()).unwrap();
            }
        }
        is_done.store(true, Ordering::Release);
        readers.map(|reader| reader.join().unwrap())
    });
    println!("{compared:?} comparisons");
    check(&tree);
}
