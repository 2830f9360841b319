//! The locks that are held while a writer's changes become visible to others.

use super::super::Writers;
use super::Nodes;
use crate::WbTree;
use crate::wbtree::layout::LEAF_BYTES;
use crate::wbtree::node::Media;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use tembo_pmem::{Observer, Region, ThreadTag};
use tembo_pool::{Geometry, Pool};

type Look = Box<dyn Fn(Option<u64>) + Send>;

/// Lets the test look at the tree whenever something is stored, flushed or fenced.
#[derive(Default)]
struct Watch {
    look: Mutex<Option<Look>>,
}

impl Watch {
    fn look(&self, store: Option<u64>) {
        if let Some(look) = &*self.look.lock().unwrap() {
            look(store);
        }
    }
}

impl Observer for Watch {
    fn store(&self, _: ThreadTag, off: u64, _: &[u8]) {
        self.look(Some(off));
    }
    fn flush(&self, _: ThreadTag, _: u64) {
        self.look(None);
    }
    fn fence(&self, _: ThreadTag) {
        self.look(None);
    }
}

fn leaves(tree: &WbTree) -> HashSet<u64> {
    let mut nodes = Nodes::default();
    nodes.collect(tree, tree.root(Media(tree.region())).unwrap());
    nodes.leaves.iter().map(|(leaf, _)| leaf.off).collect()
}

/// I7: a leaf that comes into the tree, one that leaves it, and one that is stored to, is locked from
/// before the first store that others can see until the commit has returned; so is the structure if a word
/// above the leaves changes.
#[test]
fn what_others_could_change_is_locked_until_the_commit_has_returned() {
    let watch = Arc::new(Watch::default());
    let region = Region::simulated(&vec![0; 1 << 20], 1 << 24, Some(watch.clone())).unwrap();
    let geometry = Geometry { zone_chunks: 1 << 10, lane_count: 4, ..Geometry::default() };
    let pool = Pool::create_in(region, &geometry).unwrap();
    let writers = Arc::new(Writers::new(pool.lane().unwrap()));
    assert!(writers.add().unwrap());
    let mut tx = writers.begin();
    let tree = WbTree::create(&mut tx, "tree").unwrap();
    tx.commit().unwrap();

    let looks = Arc::new(Mutex::new((0, 0, 0)));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for step in 0..4000 {
        let before = leaves(&tree);
        let view = Media(tree.region());
        let root = tree.root(view).unwrap();
        let (watched, locked, counts) = (tree.clone(), writers.clone(), looks.clone());
        *watch.look.lock().unwrap() = Some(Box::new(move |store| {
            let locks = locked.locks().unwrap();
            let now = leaves(&watched);
            let mut counts = counts.lock().unwrap();
            for leaf in before.symmetric_difference(&now) {
                assert!(locks.has_leaf_locked(*leaf), "step {step}: a leaf came or went without its lock");
                counts.0 += 1;
            }
            if now != before || watched.root(Media(watched.region())).unwrap() != root {
                assert!(locks.has_structure_locked(), "step {step}: the structure changed without its lock");
                counts.1 += 1;
            }
            let stored =
                now.iter().filter(|leaf| store.is_some_and(|off| off.wrapping_sub(**leaf) < LEAF_BYTES));
            for leaf in stored {
                assert!(locks.has_leaf_locked(*leaf), "step {step}: a leaf changed without its lock");
                counts.2 += 1;
            }
        }));
        let key = random.random_range(0..1200u32).to_be_bytes();
        let beside = tree.concurrent(&writers);
        // Waves: the tree grows to some dozens of leaves and shrinks to none.
        if random.random_bool(if step % 2000 < 1000 { 0.9 } else { 0.02 }) {
            beside.put(&key, &[b"value"]).unwrap();
        } else if step % 2000 < 1000 {
            beside.remove(&key).unwrap();
        } else if let Some(first) = tree.first().unwrap() {
            beside.remove(first.key()).unwrap();
        }
        *watch.look.lock().unwrap() = None;
        let locks = writers.locks().unwrap();
        assert!(
            !locks.has_structure_locked() && !leaves(&tree).iter().any(|leaf| locks.has_leaf_locked(*leaf))
        );
    }
    let (leaves_changed, structures_changed, stores) = *looks.lock().unwrap();
    assert!(leaves_changed > 500 && structures_changed > 200 && stores > 5000, "{looks:?}");
}
