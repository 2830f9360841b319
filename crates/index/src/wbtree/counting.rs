//! Trees that count: the rank of a key, and the n-th record, in O(log n).
//!
//! Each inner node of such a tree has a word, its *tally*: the sum of the weights of all records below it. A
//! record weighs 1, or as much as its value says ([`Counting::Weights`]); in trees of the second kind each
//! leaf has a tally, too. The tallies of a node's children are not copied into the node: a search adds up
//! those of the children on one side, at most 21, whose lines it fetches together.
//!
//! # Invariant
//!
//! * I8: the tally of an inner node in the tree is the sum of its children's; that of a leaf is the number of
//!   its live entries, or the sum of their weights. Trees that do not count have zeros there.
//!
//! # Commit point
//!
//! The tallies on the way to a record change in the record of the change itself: a word for each inner node.
//! The lines of the upper nodes are the same ones again and again, and are flushed once for many commits.
//!
//! # Concurrency
//!
//! All writers meet at the root's tally. So these trees have one writer at a time, also through
//! [`concurrent`](WbTree::concurrent), and only the writer asks for ranks: tallies are stored one by one.
//!
//! # Source
//!
//! Ours. The papers' trees do not count.

use super::WbTree;
use super::items::{Item, Items};
use super::layout::{LEAF_SLOTS, LeafState, MAX_HEIGHT, TreeWord, field};
use super::node::{Inner, Leaf, Pending, Record, View};
use super::search::{Goal, descend};
use super::sums::Counting;
use crate::error::{Error, Result, corrupt};
use tembo_pmem::Region;
use tembo_pool::Tx;

impl Counting {
    /// The weight of a record.
    pub(crate) fn weight(self, region: &Region, record: u64) -> Result<u64> {
        match self {
            Counting::Nothing => Ok(0),
            Counting::Records => Ok(1),
            Counting::Weights => weight_of(Record::read(region, record)?.value(), record),
        }
    }

    /// The sum of the weights of a leaf's entries.
    pub(crate) fn leaf_tally<'m>(self, view: impl View<'m>, leaf: u64) -> Result<u64> {
        match self {
            Counting::Weights => view.load(leaf.saturating_add(field!(PmLeaf.tally))),
            _ => Ok(LeafState(view.load(leaf)?).count() as u64),
        }
    }

    /// The sum of the weights below a child of a node of this level.
    fn child_tally<'m>(self, view: impl View<'m>, child: u64, level: usize) -> Result<u64> {
        if level == 1 { self.leaf_tally(view, child) } else { view.load(child) }
    }
}

fn weight_of(value: &[u8], record: u64) -> Result<u64> {
    let weight = value.first_chunk().ok_or_else(|| {
        corrupt("a record with a weight", record, "a value of 4 bytes or more", value.len())
    })?;
    Ok(u32::from_le_bytes(*weight).into())
}

/// A record that was found by its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranked<'t> {
    /// Its key.
    pub key: &'t [u8],
    /// Its value.
    pub value: &'t [u8],
    /// The sum of the weights of all records with smaller keys.
    pub rank: u64,
}

/// The inner nodes on a path, and the child taken in each.
struct Steps<'m> {
    steps: [Option<(Inner<'m>, usize)>; MAX_HEIGHT],
    len: usize,
}

impl<'m> Steps<'m> {
    fn to_key<'v>(view: Pending<'m, 'v>, tree: TreeWord, key: &[u8]) -> Result<(Steps<'m>, Leaf)> {
        let mut all = Steps { steps: [None; MAX_HEIGHT], len: 0 };
        let leaf = descend(view, tree, Goal::At(key), |node, child| {
            all.steps[all.len] = Some((node, child));
            all.len += 1;
        })?;
        Ok((all, leaf))
    }

    fn iter(&self) -> impl Iterator<Item = &(Inner<'m>, usize)> {
        self.steps[..self.len].iter().flatten()
    }
}

impl WbTree {
    /// As [`create`](Self::create), for a tree that counts. It has one writer at a time.
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create).
    pub fn create_counting(tx: &mut Tx<'_>, name: &str, counting: Counting) -> Result<WbTree> {
        WbTree::create_with(tx, name, counting)
    }

    /// The sums that the tree keeps.
    pub fn counting(&self) -> Counting {
        self.counting
    }

    /// The sum of the weights of all records whose keys are smaller than `key`, as the transaction sees the
    /// tree. O(log n).
    ///
    /// # Errors
    ///
    /// [`Error::CountsNothing`], and [`Error::Pool`] when the tree is damaged on the way.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn rank_in(&self, tx: &Tx<'_>, key: &[u8]) -> Result<u64> {
        self.assert_counts(tx)?;
        let view = self.pending(tx);
        let tree = self.root(view)?;
        if tree.is_empty() {
            return Ok(0);
        }
        let (steps, leaf) = Steps::to_key(view, tree, key)?;
        for (node, child) in steps.iter() {
            self.prefetch_children(view, node, side(node, *child))?;
        }
        let mut rank = self.rank_in_leaf(view, &leaf, key)?;
        for (node, child) in steps.iter() {
            rank = rank.wrapping_add(self.tally_before(view, node, *child)?);
        }
        Ok(rank)
    }

    /// The record at position `nth`, counted from 0 in the order of the keys, as the transaction sees the
    /// tree: `nth` records have smaller keys. In a tree that counts weights, the record to which the unit of
    /// weight number `nth` belongs. None beyond the end. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`rank_in`](Self::rank_in).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn nth_in<'t>(&'t self, tx: &'t Tx<'_>, nth: u64) -> Result<Option<Ranked<'t>>> {
        self.assert_counts(tx)?;
        let view = self.pending(tx);
        let tree = self.root(view)?;
        if nth >= self.tally_of(view, tree)? {
            return Ok(None);
        }
        let (mut off, mut rank) = (tree.node(), 0);
        for level in (1..=tree.level()).rev() {
            let node = Inner::open(self.region(), off, level)?;
            self.prefetch_children(view, &node, 0..node.count())?;
            let mut children = 0..node.count();
            off = loop {
                let child = children.next().ok_or_else(|| wrong_tally(node.off, "more", rank))?;
                let at = view.load(node.child_off(child))?;
                let after = rank.saturating_add(self.counting.child_tally(view, at, level)?);
                if nth < after {
                    break at;
                }
                rank = after;
            };
        }
        self.nth_in_leaf(view, &Leaf::open(self.region(), off)?, rank, nth).map(Some)
    }

    /// The sum of the weights of all records, as the transaction sees the tree. O(1).
    ///
    /// # Errors
    ///
    /// As for [`rank_in`](Self::rank_in).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn tally_in(&self, tx: &Tx<'_>) -> Result<u64> {
        self.assert_counts(tx)?;
        let view = self.pending(tx);
        self.tally_of(view, self.root(view)?)
    }

    fn tally_of<'m>(&self, view: impl View<'m>, tree: TreeWord) -> Result<u64> {
        match tree {
            TreeWord::EMPTY => Ok(0),
            tree if tree.level() > MAX_HEIGHT => {
                Err(corrupt("the root of a tree", tree.node(), "a level up to 32", tree.level()))
            }
            tree => self.counting.child_tally(view, tree.node(), tree.level() + 1),
        }
    }

    fn assert_counts(&self, tx: &Tx<'_>) -> Result<()> {
        self.assert_writes(tx);
        match self.counting {
            Counting::Nothing => Err(Error::CountsNothing),
            _ => Ok(()),
        }
    }

    fn prefetch_children<'m>(
        &self,
        view: impl View<'m>,
        node: &Inner<'m>,
        children: std::ops::Range<usize>,
    ) -> Result<()> {
        for child in children {
            self.region().prefetch(view.load(node.child_off(child))?);
        }
        Ok(())
    }

    /// The sum below the children before `child`: added up, or as the rest of the node's tally.
    fn tally_before<'m>(&self, view: impl View<'m>, node: &Inner<'m>, child: usize) -> Result<u64> {
        let children = side(node, child);
        let is_before = children.end == child;
        let level = node.kind.level();
        let sum = children.into_iter().try_fold(0u64, |sum, child| {
            let tally = self.counting.child_tally(view, view.load(node.child_off(child))?, level)?;
            Ok::<u64, Error>(sum.wrapping_add(tally))
        })?;
        if is_before {
            return Ok(sum);
        }
        let all = view.load(node.off)?;
        all.checked_sub(sum).ok_or_else(|| wrong_tally(node.off, "at least that of its children", all))
    }

    /// The sum of the weights of a leaf's records with smaller keys.
    fn rank_in_leaf(&self, view: Pending<'_, '_>, leaf: &Leaf, key: &[u8]) -> Result<u64> {
        let prefix = leaf.prefix_of(key)?;
        let live = leaf.state(view)?.bitmap();
        let mut rank = 0;
        for slot in (0..LEAF_SLOTS).filter(|slot| live >> slot & 1 == 1) {
            let its = view.load(leaf.prefix_off(slot))?;
            if its > prefix {
                continue;
            }
            let record = view.load(leaf.record_off(slot))?;
            if its < prefix || Record::read(self.region(), record)?.key < key {
                rank += self.counting.weight(self.region(), record)?;
            }
        }
        Ok(rank)
    }

    fn nth_in_leaf<'t>(
        &'t self,
        view: Pending<'t, 't>,
        leaf: &Leaf,
        mut rank: u64,
        nth: u64,
    ) -> Result<Ranked<'t>> {
        let mut items = Items::new(leaf.skip());
        items.gather(view, leaf, leaf.state(view)?)?;
        items.sort(view)?;
        for Item { record, .. } in items.as_slice() {
            let after = rank.saturating_add(self.counting.weight(self.region(), *record)?);
            if nth < after {
                let found = Record::read(self.region(), *record)?;
                return Ok(Ranked { key: found.key, value: found.value(), rank });
            }
            rank = after;
        }
        Err(wrong_tally(leaf.off, "more", rank))
    }

    /// The tally of an inner node that is made of these children.
    pub(crate) fn tally_of_children<'m>(
        &self,
        view: impl View<'m>,
        level: usize,
        children: &[u64],
    ) -> Result<u64> {
        if self.counting == Counting::Nothing {
            return Ok(0);
        }
        children.iter().for_each(|child| self.region().prefetch(*child));
        children.iter().try_fold(0u64, |sum, child| {
            Ok(sum.wrapping_add(self.counting.child_tally(view, *child, level)?))
        })
    }

    /// The tally of a leaf that is made of these entries.
    pub(crate) fn tally_of_items(&self, items: &Items) -> Result<u64> {
        match self.counting {
            Counting::Weights => items.as_slice().iter().try_fold(0u64, |sum, item| {
                Ok(sum.wrapping_add(self.counting.weight(self.region(), item.record)?))
            }),
            _ => Ok(0),
        }
    }

    /// Counts a record that is being put to its key's place. Its leaf's tally is left to the caller.
    pub(crate) fn count_put(
        &self,
        tx: &mut Tx<'_>,
        tree: TreeWord,
        key: &[u8],
        (record, replaced): (u64, Option<u64>),
    ) -> Result<i64> {
        let new = self.counting.weight(self.region(), record)?;
        let old = replaced.map_or(Ok(0), |old| self.counting.weight(self.region(), old))?;
        let by = new.wrapping_sub(old) as i64;
        self.add_to_tallies(tx, tree, key, by)?;
        Ok(by)
    }

    /// Counts records that are being removed from the leaf to which `key` belongs.
    pub(crate) fn count_removed(
        &self,
        tx: &mut Tx<'_>,
        tree: TreeWord,
        (leaf, key): (&Leaf, &[u8]),
        entries: &[(usize, u64)],
    ) -> Result<()> {
        let sum = entries.iter().try_fold(0u64, |sum, (_, record)| {
            Ok::<u64, Error>(sum.wrapping_add(self.counting.weight(self.region(), *record)?))
        })?;
        let by = (sum as i64).wrapping_neg();
        self.add_to_tallies(tx, tree, key, by)?;
        self.add_to_leaf(tx, leaf, by)
    }

    /// Adds to the tallies of the inner nodes on the way to `key`.
    ///
    /// This is the first step of every change: then a change of the structure takes the sum of a node's
    /// children for a new node, and leaves all nodes above it alone.
    pub(crate) fn add_to_tallies(&self, tx: &mut Tx<'_>, tree: TreeWord, key: &[u8], by: i64) -> Result<()> {
        if by == 0 {
            return Ok(());
        }
        let mut nodes = [0; MAX_HEIGHT];
        let mut height = 0;
        descend(self.pending(tx), tree, Goal::At(key), |node, _| {
            nodes[height] = node.off;
            height += 1;
        })?;
        nodes[..height].iter().try_for_each(|node| add(tx, *node, by))
    }

    /// Adds to the tally of a leaf, if leaves have one.
    pub(crate) fn add_to_leaf(&self, tx: &mut Tx<'_>, leaf: &Leaf, by: i64) -> Result<()> {
        match self.counting {
            Counting::Weights if by != 0 => add(tx, leaf.off + field!(PmLeaf.tally), by),
            _ => Ok(()),
        }
    }
}

/// The children on that side of `child` on which there are fewer: those before it, or it and all after it.
fn side(node: &Inner<'_>, child: usize) -> std::ops::Range<usize> {
    if 2 * child <= node.count() { 0..child } else { child..node.count() }
}

fn add(tx: &mut Tx<'_>, off: u64, by: i64) -> Result<()> {
    let sum = tx.load(off)?;
    Ok(tx.store(off, sum.wrapping_add_signed(by))?)
}

#[cold]
fn wrong_tally(node: u64, expected: &'static str, found: u64) -> Error {
    corrupt("the tally of a node", node, expected, found)
}
