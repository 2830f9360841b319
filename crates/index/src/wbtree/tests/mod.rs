//! Tests that need the tree's own knowledge of its media: shape, damage, and the words of an operation.

mod concurrent;
mod damage;
mod half_way;
mod interrupted;
mod prefetch;
mod shape;
mod snapshot_scan;

use super::clear::{children_left, next_doomed_off};
use super::layout::{LEAF_SLOTS, LeafState, TreeWord};
use super::node::{Inner, Leaf, Media, View};
use super::sums::Counting;
use crate::{Result, WbTree};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Lane, Pool};

struct Bench {
    pool: Pool,
    lane: Lane,
    tree: WbTree,
}

impl Bench {
    fn new() -> Bench {
        Bench::in_region(Region::simulated(&vec![0; 1 << 20], 1 << 28, None).unwrap())
    }

    fn in_region(region: Region) -> Bench {
        let geometry = Geometry { zone_chunks: 1 << 10, lane_count: 2, ..Geometry::default() };
        let pool = Pool::create_in(region, &geometry).unwrap();
        let mut lane = pool.lane().unwrap();
        let mut tx = lane.begin();
        let tree = WbTree::create(&mut tx, "tree").unwrap();
        tx.commit().unwrap();
        Bench { pool, lane, tree }
    }

    fn put(&mut self, key: &[u8]) {
        let mut tx = self.lane.begin();
        self.tree.put(&mut tx, key, &[b"value of ", key]).unwrap();
        tx.commit().unwrap();
    }

    fn remove(&mut self, key: &[u8]) {
        let mut tx = self.lane.begin();
        assert!(self.tree.remove(&mut tx, key).unwrap());
        tx.commit().unwrap();
    }

    fn check(&self) -> Result<()> {
        let mut marks = self.pool.marks()?;
        self.tree.check(&mut marks)?;
        marks.finish()?;
        Ok(())
    }

    fn nodes(&self) -> Nodes<'_> {
        let mut nodes = Nodes::default();
        nodes.collect(&self.tree, self.tree.root(Media(self.tree.region())).unwrap());
        nodes
    }

    fn doomed_nodes(&self) -> Nodes<'_> {
        let mut nodes = Nodes::default();
        let load = |off| TreeWord(self.pool.region().load_u64(off).unwrap());
        let mut doomed = load(self.tree.doomed_off());
        while !doomed.is_empty() {
            nodes.collect(&self.tree, doomed);
            doomed = load(next_doomed_off(doomed));
        }
        nodes
    }
}

/// All nodes of a tree.
#[derive(Default)]
struct Nodes<'m> {
    inner: Vec<Inner<'m>>,
    leaves: Vec<(Leaf, LeafState)>,
}

impl<'m> Nodes<'m> {
    fn collect(&mut self, tree: &'m WbTree, root: TreeWord) {
        let view = Media(tree.region());
        if root.is_empty() {
            return;
        }
        if root.level() == 0 {
            let leaf = Leaf::open(view.0, root.node()).unwrap();
            self.leaves.push((leaf, leaf.state(view).unwrap()));
            return;
        }
        let node = Inner::open(view.0, root.node(), root.level()).unwrap();
        for i in 0..children_left(view, Counting::Nothing, &node).unwrap() {
            let child = view.load(node.child_off(i)).unwrap();
            self.collect(tree, TreeWord::new(child, root.level() - 1));
        }
        self.inner.push(node);
    }

    fn fill(&self) -> f64 {
        let entries: usize = self.leaves.iter().map(|(_, state)| state.count()).sum();
        entries as f64 / (self.leaves.len() * LEAF_SLOTS) as f64
    }
}
