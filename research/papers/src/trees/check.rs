//! The proof, read-only, that a tree's invariants hold.

use super::key::KeyKind;
use super::node::{Item, Layout, OrderedLayout, Shape, gather};
use super::{FIRST_LEAF_OFF, LEVELS_MASK, MAX_LEVELS, ROOT_OFF, Scheme, Tree};
use crate::mem::Mem;
use tembo_pmem::WORD_BYTES;

/// The nodes and blocks that a tree reaches.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Reached {
    /// All nodes.
    pub nodes: Vec<u64>,
    /// All key blocks, offset and length.
    pub blocks: Vec<(u64, u64)>,
    /// The leaves, in the order of their parents.
    pub leaves: Vec<u64>,
    /// Keys in the leaves.
    pub entry_count: u64,
}

/// Keys that bound those of a subtree: at least the first, less than the second.
type Bounds<S> = (Option<S>, Option<S>);

impl<M: Mem, K: KeyKind, S: Scheme> Tree<M, K, S> {
    /// Proves I1 to I4 and I7.
    ///
    /// # Errors
    ///
    /// The first thing that does not hold.
    pub fn check(&self) -> Result<Reached, String> {
        let reached = self.walk(true)?;
        self.check_chain(&reached)?;
        self.check_space(&reached)?;
        Ok(reached)
    }

    /// The nodes and blocks that the tree reaches; checks only what the walk needs.
    pub(crate) fn reach(&self) -> Result<Reached, String> {
        self.walk(false)
    }

    fn walk(&self, prove: bool) -> Result<Reached, String> {
        let word = self.mem.load_u64(ROOT_OFF);
        let (root, levels) = (word & !LEVELS_MASK, (word & LEVELS_MASK) as usize);
        if levels >= MAX_LEVELS {
            return Err(format!("the root is said to have {levels} levels"));
        }
        let mut reached = Reached::default();
        self.check_node(root, levels, levels, (None, None), prove, &mut reached)?;
        Ok(reached)
    }

    /// I1, I2, I4, I7: what can be said of one node, and all below it.
    fn check_node(
        &self,
        node: u64,
        level: usize,
        root_level: usize,
        bounds: Bounds<K::Stored>,
        prove: bool,
        reached: &mut Reached,
    ) -> Result<(), String> {
        if !self.space.is_node(node) {
            return Err(format!("{node:#x} cannot be a node"));
        }
        reached.nodes.push(node);
        if reached.nodes.len() as u64 > self.mem.len_bytes() / self.node_bytes {
            return Err("more nodes are reached than there are".to_owned());
        }
        let mut items = Vec::new();
        if level == 0 {
            S::Leaf::check(&self.mem, &self.leaf, node)?;
            self.collect::<S::Leaf>(&self.leaf, node, &mut items, reached)?;
            reached.leaves.push(node);
            reached.entry_count += items.len() as u64;
            if prove && items.is_empty() && root_level > 0 {
                return Err(format!("leaf {node:#x} is empty"));
            }
            return if prove { self.check_order(node, &items, bounds) } else { Ok(()) };
        }
        S::Inner::check(&self.mem, &self.inner, node)?;
        self.collect::<S::Inner>(&self.inner, node, &mut items, reached)?;
        if prove {
            self.check_order(node, &items, bounds)?;
            self.check_inner(node, level == root_level, &items)?;
        }
        let mut below = self.mem.load_u64(self.inner.link(node));
        let mut low = bounds.0;
        for item in &items {
            let child_bounds = (low, Some(item.key));
            self.check_node(below, level - 1, root_level, child_bounds, prove, reached)?;
            (below, low) = (item.value, Some(item.key));
        }
        self.check_node(below, level - 1, root_level, (low, bounds.1), prove, reached)
    }

    /// Reads a node's entries in the order of their keys, and notes the blocks of those.
    fn collect<L: Layout>(
        &self,
        shape: &Shape,
        node: u64,
        items: &mut Vec<Item<K::Stored>>,
        reached: &mut Reached,
    ) -> Result<(), String> {
        for at in L::places(&self.mem, node).iter() {
            let key = K::load(&self.mem, shape.entry::<K>(node, at));
            if K::OUT_OF_LINE {
                let block = key.as_ref()[0];
                if !self.space.is_block(block, WORD_BYTES) {
                    return Err(format!("node {node:#x} has a key at {block:#x}"));
                }
                let (block, bytes) = K::block(&self.mem, &key).unwrap_or((block, u64::MAX));
                if !self.space.is_block(block, bytes) {
                    return Err(format!("node {node:#x} has a key of {bytes} bytes at {block:#x}"));
                }
                reached.blocks.push((block, bytes));
            }
        }
        gather::<M, K, L>(&self.mem, shape, node, items);
        Ok(())
    }

    /// I2: ascending, inside the bounds. Layouts that keep order gave the items in it, the others were
    /// sorted.
    fn check_order(
        &self,
        node: u64,
        items: &[Item<K::Stored>],
        (low, high): Bounds<K::Stored>,
    ) -> Result<(), String> {
        let less = |a: &K::Stored, b: &K::Stored| K::compare_stored(&self.mem, a, b).is_lt();
        if let Some(pair) = items.windows(2).find(|pair| !less(&pair[0].key, &pair[1].key)) {
            let (a, b) = (K::owned(&self.mem, &pair[0].key), K::owned(&self.mem, &pair[1].key));
            return Err(format!("node {node:#x} has {a:?} before {b:?}"));
        }
        let below = low.zip(items.first()).is_some_and(|(low, first)| less(&first.key, &low));
        let above = high.zip(items.last()).is_some_and(|(high, last)| !less(&last.key, &high));
        if below || above {
            return Err(format!("node {node:#x} has keys outside the bounds of the nodes above"));
        }
        Ok(())
    }

    /// I4, I7: slots of inner nodes are valid, a root has two children.
    fn check_inner(&self, node: u64, is_root: bool, items: &[Item<K::Stored>]) -> Result<(), String> {
        if is_root && items.is_empty() {
            return Err(format!("the root {node:#x} has one child"));
        }
        if !S::Inner::places(&self.mem, node).is_sorted {
            return Err(format!("inner node {node:#x} has invalid slots"));
        }
        let wrong = (0..items.len())
            .find(|rank| S::Inner::place_of(&self.mem, node, *rank) != usize::from(items[*rank].at));
        wrong.map_or(Ok(()), |rank| Err(format!("inner node {node:#x} has a wrong place for rank {rank}")))
    }

    /// I3: the links are the order.
    fn check_chain(&self, reached: &Reached) -> Result<(), String> {
        let mut link = self.mem.load_u64(FIRST_LEAF_OFF);
        for &leaf in &reached.leaves {
            if link != leaf {
                return Err(format!("the chain of leaves has {link:#x} in place of {leaf:#x}"));
            }
            link = self.mem.load_u64(self.leaf.link(leaf));
        }
        if link != 0 {
            return Err(format!("the chain of leaves goes on at {link:#x}"));
        }
        Ok(())
    }

    /// I1: what is not reached is free.
    fn check_space(&self, reached: &Reached) -> Result<(), String> {
        self.space.check(reached.nodes.clone(), &reached.blocks)
    }
}
