//! The difference of two versions of a tree.
//!
//! Both are walked side by side in the order of keys. If both reach the same node, and the stamp of the later
//! version's entry for it says that nothing in or below it has changed since the earlier one (I10), the node
//! is skipped without being read. Entries with the same start are the same in both versions (D3), so values
//! are compared only for keys that were put again.

use super::super::deferred_stamps::DeferredStamps;
use super::super::entry::VersionedEntry;
use super::super::layout::Form;
use super::super::structure::Visit;
use super::super::view::View;
use super::layout::{Field, SLOTS};
use super::node::Node;
use super::scan::{entries_of, read_entry, sort};
use crate::error::{Result, corrupt};
use std::cmp::{Ordering, Reverse};
use std::collections::VecDeque;
use tembo_pmem::Region;

/// A node to which a version leads, not opened yet.
#[derive(Debug, Clone, Copy)]
struct Child {
    off: u64,
    level: usize,
    /// The stamp of the entry that leads to it.
    stamp: u64,
}

/// One of the two walks.
struct Side<'o, 'm> {
    region: &'m Region,
    version: u64,
    /// The stamps that are deferred for the earlier version.
    deferred: &'o DeferredStamps,
    /// The children that are still to be walked, the next one last.
    stack: Vec<Child>,
    /// Entries of walked leaves, in order, that the other side has not reached yet.
    entries: VecDeque<VersionedEntry<'m>>,
    /// The upper fence of the walked range; `None` past the last leaf.
    covered: Option<Vec<u8>>,
    /// Whether both sides have skipped nodes beyond `covered`. How far is known only once the next node is
    /// opened.
    has_skipped: bool,
}

impl<'o, 'm> Side<'o, 'm> {
    fn new(view: View<'m>, deferred: &'o DeferredStamps) -> Result<Side<'o, 'm>> {
        let (region, version) = (view.region, view.version);
        let (stack, entries) = (Vec::new(), VecDeque::new());
        let mut side = Side { region, version, deferred, stack, entries, covered: None, has_skipped: false };
        if !view.root.is_empty() {
            side.stack.push(Child { off: view.root.node(), level: view.root_level()?, stamp: u64::MAX });
            side.covered = Some(Vec::new());
        }
        Ok(side)
    }

    /// Replaces the next inner node by its children, or takes the entries of the next leaf.
    fn step(&mut self) -> Result<()> {
        // A side at the end of its version is not stepped.
        let Some(next) = self.stack.pop() else {
            return Err(corrupt("a tree node", 0, "children up to its upper fence", "none"));
        };
        let node = Node::open(self.region, next.off, next.level)?;
        if next.level == 0 {
            self.entries.extend(entries_of(&node, self.version)?);
            return self.pass(&node);
        }
        self.push_children(&node, next.level - 1)
    }

    /// Pushes the children of a node. Opens them only if the 8 bytes in their entries do not decide their
    /// order.
    fn push_children(&mut self, node: &Node<'m>, level: usize) -> Result<()> {
        let mut slots: Vec<usize> = node.slots_in(self.version).collect();
        let key = |slot: &usize| node.field(*slot, Field::Key);
        slots.sort_unstable_by_key(|slot| Reverse(key(slot)));
        for alike in slots.chunk_by_mut(|a, b| key(a) == key(b)).filter(|alike| alike.len() > 1) {
            let lows = alike.iter().map(|slot| Ok((node.child_low(*slot)?, *slot)));
            let mut lows = lows.collect::<Result<Vec<_>>>()?;
            lows.sort_unstable_by(|a, b| b.cmp(a));
            alike.iter_mut().zip(lows).for_each(|(slot, (_, sorted))| *slot = sorted);
        }
        for slot in slots {
            let stamp = node.stamp_with(slot, self.deferred)?;
            self.stack.push(Child { off: node.field(slot, Field::Value), level, stamp });
        }
        Ok(())
    }

    /// Prefetches the next node and the one that will be opened after it; its lines arrive while this one is
    /// read.
    fn prefetch(&self, earlier: u64) {
        let to_open = self.stack.iter().rev().filter(|child| child.stamp > earlier);
        to_open.take(2).for_each(|child| Node::prefetch_with_stamps(self.region, child.off, child.level));
    }

    /// Notes that the range of a leaf is done.
    fn pass(&mut self, leaf: &Node<'m>) -> Result<()> {
        let (low, high) = (leaf.low()?, leaf.high()?);
        let follows = match self.covered.as_deref() {
            Some(covered) if self.has_skipped => covered < low,
            covered => covered == Some(low),
        };
        let is_range = high.is_none_or(|high| low < high);
        (self.covered, self.has_skipped) = (high.map(<[u8]>::to_vec), false);
        if !follows || !is_range || self.covered.is_none() != self.stack.is_empty() {
            let expected = "ranges of children that divide their parent's";
            return Err(corrupt("a tree node", leaf.off, expected, "a gap or an overlap"));
        }
        Ok(())
    }

    /// Compares how far the two sides have come.
    fn compare_progress(&self, other: &Side<'_, '_>) -> Ordering {
        match (&self.covered, &other.covered) {
            (Some(own), Some(others)) => own.cmp(others),
            (own, others) => own.is_none().cmp(&others.is_none()),
        }
    }
}

/// Calls `visit` with each key that differs, in order. `deferred` has the stamps deferred for the earlier
/// version.
pub(super) fn differences<'m>(
    from: View<'m>,
    to: View<'m>,
    deferred: &DeferredStamps,
    visit: &mut Visit<'_, 'm>,
) -> Result<()> {
    if from.version == to.version {
        return Ok(());
    }
    let (mut a, mut b) = (Side::new(from, deferred)?, Side::new(to, deferred)?);
    while !(a.stack.is_empty() && b.stack.is_empty()) {
        match a.compare_progress(&b) {
            Ordering::Less => a.step()?,
            Ordering::Greater => b.step()?,
            Ordering::Equal => step_both(&mut a, &mut b)?,
        }
        compare_entries(&mut a, &mut b, visit)?;
    }
    compare_entries(&mut a, &mut b, visit)
}

fn step_both<'o, 'm>(a: &mut Side<'o, 'm>, b: &mut Side<'o, 'm>) -> Result<()> {
    let (Some(of_a), Some(of_b)) = (a.stack.last().copied(), b.stack.last().copied()) else {
        return Err(corrupt("a version of a tree", 0, "leaves up to the same key as another", "fewer"));
    };
    if of_a.off == of_b.off {
        // The earlier stamp says nothing about changes made after the node above was copied.
        let (earlier, stamp) =
            if a.version < b.version { (a.version, of_b.stamp) } else { (b.version, of_a.stamp) };
        if stamp <= earlier {
            for side in [a, b] {
                side.stack.pop();
                side.has_skipped = true;
            }
            return Ok(());
        }
        if a.version < b.version {
            b.prefetch(earlier)
        } else {
            a.prefetch(earlier)
        }
        if of_a.level == 0 {
            return step_same_leaf(a, b, &Node::open(a.region, of_a.off, 0)?);
        }
    }
    match of_a.level.cmp(&of_b.level) {
        Ordering::Greater => a.step(),
        Ordering::Less => b.step(),
        Ordering::Equal => {
            a.step()?;
            b.step()
        }
    }
}

/// Takes, from a leaf that both versions have, the entries that only one of them has. The others, which are
/// most, need not be read.
fn step_same_leaf<'o, 'm>(a: &mut Side<'o, 'm>, b: &mut Side<'o, 'm>, leaf: &Node<'m>) -> Result<()> {
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for slot in 0..SLOTS {
        if leaf.is_in(slot, a.version) != leaf.is_in(slot, b.version) && leaf.form(slot)? == Form::Block {
            a.region.prefetch(leaf.field(slot, Field::Value));
        }
    }
    for slot in 0..SLOTS {
        match (leaf.is_in(slot, a.version), leaf.is_in(slot, b.version)) {
            (true, false) => of_a.push(read_entry(leaf, slot)?),
            (false, true) => of_b.push(read_entry(leaf, slot)?),
            _ => {}
        }
    }
    for (side, mut entries) in [(a, of_a), (b, of_b)] {
        sort(&mut entries);
        side.entries.extend(entries);
        side.stack.pop();
        side.pass(leaf)?;
    }
    Ok(())
}

/// Compares the entries that both sides have passed.
fn compare_entries<'m>(a: &mut Side<'_, 'm>, b: &mut Side<'_, 'm>, visit: &mut Visit<'_, 'm>) -> Result<()> {
    loop {
        let order = match (a.entries.front(), b.entries.front()) {
            (None, None) => return Ok(()),
            (Some(own), Some(others)) => own.key().cmp(others.key()),
            // The other side may still come to a key that it has not passed.
            (Some(own), None) if b.has_passed(own.key()) => Ordering::Less,
            (None, Some(others)) if a.has_passed(others.key()) => Ordering::Greater,
            _ => return Ok(()),
        };
        let before = if order.is_le() { a.entries.pop_front() } else { None };
        let after = if order.is_ge() { b.entries.pop_front() } else { None };
        match (before, after) {
            (Some(before), Some(after)) => {
                if before.start != after.start && before.value() != after.value() {
                    let (key, before) = before.into_parts();
                    visit(&key, Some(before), Some(after.into_parts().1))?;
                }
            }
            (Some(entry), None) => {
                let (key, value) = entry.into_parts();
                visit(&key, Some(value), None)?;
            }
            (None, Some(entry)) => {
                let (key, value) = entry.into_parts();
                visit(&key, None, Some(value))?;
            }
            (None, None) => {}
        }
    }
}

impl Side<'_, '_> {
    fn has_passed(&self, key: &[u8]) -> bool {
        self.covered.as_deref().is_none_or(|covered| key < covered)
    }
}
