//! What changed between two versions of a tree.
//!
//! Both are walked side by side in the order of keys. Where both have the same node, and nothing in it or below it
//! changed since the earlier of the two versions (I10), it is passed over. Entries are the same in both versions if their starts
//! are (D3), so that values are compared only where a key was put again.

use super::super::create::View;
use super::super::entry::CddsEntry;
use super::super::structure::Visit;
use super::layout::{Field, SLOTS};
use super::node::Node;
use super::scan::{entries_of, read_entry, sort};
use crate::error::{Result, corrupt};
use std::cmp::Ordering;
use std::collections::VecDeque;

/// One of the two walks.
struct Side<'m> {
    version: u64,
    /// What is to be walked, the next one last.
    stack: Vec<Node<'m>>,
    /// Entries of the leaves that were walked, in order, which the other side has not come to.
    entries: VecDeque<CddsEntry<'m>>,
    /// The upper fence of what was walked; `None` past the last leaf.
    covered: Option<Vec<u8>>,
}

impl<'m> Side<'m> {
    fn new(view: View<'m>) -> Result<Side<'m>> {
        let mut side =
            Side { version: view.version, stack: Vec::new(), entries: VecDeque::new(), covered: None };
        if !view.root.is_empty() {
            side.stack.push(Node::open(view.region, view.root.node(), view.root_level()?)?);
            side.covered = Some(Vec::new());
        }
        Ok(side)
    }

    /// Puts the children of the next inner node in its place, or takes the entries of the next leaf.
    fn step(&mut self) -> Result<()> {
        // Who has come to the end of its version is not stepped.
        let Some(node) = self.stack.pop() else {
            return Err(corrupt("a tree node", 0, "children up to its upper fence", "none"));
        };
        if node.level() == 0 {
            self.entries.extend(entries_of(&node, self.version)?);
            return self.pass(&node);
        }
        let mut children = Vec::new();
        for slot in node.slots_in(self.version) {
            let child = Node::open(node.region(), node.field(slot, Field::Value), node.level() - 1)?;
            children.push((child.low()?, child));
        }
        children.sort_unstable_by(|a, b| b.0.cmp(a.0));
        self.stack.extend(children.into_iter().map(|(_, child)| child));
        Ok(())
    }

    /// Notes that a node's range is done with.
    fn pass(&mut self, node: &Node<'m>) -> Result<()> {
        let (low, high) = (node.low()?, node.high()?);
        let follows = self.covered.as_deref() == Some(low) && high.is_none_or(|high| low < high);
        self.covered = high.map(<[u8]>::to_vec);
        if !follows || self.covered.is_none() != self.stack.is_empty() {
            let expected = "ranges of children that divide their parent's";
            return Err(corrupt("a tree node", node.off, expected, "a gap or an overlap"));
        }
        Ok(())
    }

    /// Whether this side has come as far as the other.
    fn compare_progress(&self, other: &Side<'_>) -> Ordering {
        match (&self.covered, &other.covered) {
            (Some(own), Some(others)) => own.cmp(others),
            (own, others) => own.is_none().cmp(&others.is_none()),
        }
    }
}

/// Calls `visit` with each key that differs, in order.
pub(super) fn differences<'m>(from: View<'m>, to: View<'m>, visit: &mut Visit<'_, 'm>) -> Result<()> {
    let earlier = from.version.min(to.version);
    let (mut a, mut b) = (Side::new(from)?, Side::new(to)?);
    while !(a.stack.is_empty() && b.stack.is_empty()) {
        match a.compare_progress(&b) {
            Ordering::Less => a.step()?,
            Ordering::Greater => b.step()?,
            Ordering::Equal => step_both(&mut a, &mut b, earlier)?,
        }
        compare_entries(&mut a, &mut b, visit)?;
    }
    compare_entries(&mut a, &mut b, visit)
}

fn step_both<'m>(a: &mut Side<'m>, b: &mut Side<'m>, earlier: u64) -> Result<()> {
    let (Some(of_a), Some(of_b)) = (a.stack.last().copied(), b.stack.last().copied()) else {
        return Err(corrupt("a version of a tree", 0, "leaves up to the same key as another", "fewer"));
    };
    if of_a.off == of_b.off && of_a.changed() <= earlier {
        a.stack.pop();
        b.stack.pop();
        a.pass(&of_a)?;
        return b.pass(&of_b);
    }
    if of_a.off == of_b.off && of_a.level() == 0 {
        return step_same_leaf(a, b, &of_a);
    }
    match of_a.level().cmp(&of_b.level()) {
        Ordering::Greater => a.step(),
        Ordering::Less => b.step(),
        Ordering::Equal => {
            a.step()?;
            b.step()
        }
    }
}

/// Takes the entries of a leaf of both versions that are in one of them: the others, which are most, need not be read.
fn step_same_leaf<'m>(a: &mut Side<'m>, b: &mut Side<'m>, leaf: &Node<'m>) -> Result<()> {
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
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

/// Compares the entries that both sides have come past.
fn compare_entries<'m>(a: &mut Side<'m>, b: &mut Side<'m>, visit: &mut Visit<'_, 'm>) -> Result<()> {
    loop {
        let order = match (a.entries.front(), b.entries.front()) {
            (None, None) => return Ok(()),
            (Some(own), Some(others)) => own.key().cmp(others.key()),
            // What the other side has not come past may still follow there.
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

impl Side<'_> {
    fn has_passed(&self, key: &[u8]) -> bool {
        self.covered.as_deref().is_none_or(|covered| key < covered)
    }
}
