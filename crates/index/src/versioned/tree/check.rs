//! Proves a tree's nodes whole. The invariants are in the head of `tree/mod.rs`.

use super::super::checker::{VersionChecker, expect};
use super::super::layout::{Form, INLINE_BYTES};
use super::super::queue::Dead;
use super::super::view::View;
use super::layout::{Field, LIVE_MIN, NO_END, SLOTS, stamp_off};
use super::node::{Node, RESERVED_WORD, after};
use super::scan::read_entry;
use crate::error::{Result, corrupt};
use crate::key_prefix::{fingerprint, lcp, prefix8};
use crate::record::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// The keys that may lie below a node: from `low` on, below `high`.
#[derive(Clone, Copy)]
struct Range<'m> {
    low: &'m [u8],
    high: Option<&'m [u8]>,
}

impl<'m> VersionChecker<'m, '_> {
    pub(super) fn check_tree(&mut self, view: View<'_>) -> Result<()> {
        if view.root.is_empty() {
            return Ok(());
        }
        let level = view.root_level()?;
        self.node(view.root.node(), level, Range { low: &[], high: None }, true).map(drop)
    }

    pub(super) fn check_dead_tree_node(&self, dead: &Dead) -> Result<u64> {
        let node = Node::open_any(self.region, dead.off)?;
        expect("the birth of a dead node", dead.off, dead.birth, node.birth())?;
        (0..SLOTS).try_for_each(|slot| self.check_interval(&node, slot))?;
        Ok(node.fences().node_bytes(node.level()))
    }

    pub(super) fn check_dead_subtree(&mut self, dead: &Dead) -> Result<()> {
        let node = Node::open_any(self.region, dead.off)?;
        expect("the birth of a dead node", dead.off, dead.birth, node.birth())?;
        let range = Range { low: node.low()?, high: node.high()? };
        self.node(dead.off, node.level(), range, true).map(drop)
    }

    /// Checks a node and everything below it; returns the last version, up to the walked one, that changed
    /// any of it.
    fn node(&mut self, off: u64, level: usize, range: Range<'m>, is_root: bool) -> Result<u64> {
        let node = Node::open(self.region, off, level)?;
        self.reach_node(off, node.fences().node_bytes(level))?;
        if node.low()? != range.low || node.high()? != range.high {
            return Err(corrupt(
                "the fences of a node",
                off,
                format!("{:?}", range.low),
                format!("{:?}", node.low()?),
            ));
        }
        let shared = range.high.map_or(0, |high| lcp(range.low, high));
        if node.shared() > shared {
            return Err(corrupt("the shared bytes of a node", off, format!("up to {shared}"), node.shared()));
        }
        expect("a reserved word", off, 0, node.word(RESERVED_WORD))?;
        let birth = node.birth();
        if birth > self.version {
            return Err(corrupt("a tree node", off, format!("born by version {}", self.version), birth));
        }
        let mut last_change = birth;
        for slot in 0..SLOTS {
            self.check_interval(&node, slot)?;
            let versions = [node.start(slot).version(), node.field(slot, Field::End)];
            let changes = versions.into_iter().filter(|version| *version <= self.version);
            last_change = last_change.max(changes.max().unwrap_or(0));
        }
        self.check_live(&node, is_root)?;
        let below = match level {
            0 => self.check_leaf(&node, range)?,
            _ => self.check_children(&node, range)?,
        };
        Ok(last_change.max(below))
    }

    /// Checks I8.
    fn check_interval(&self, node: &Node<'_>, slot: usize) -> Result<()> {
        let (start, end) = (node.start(slot).version(), node.field(slot, Field::End));
        let is_unused = end == 0 && start <= self.newest;
        let is_dead = end != NO_END && start < end && end <= self.newest;
        let is_live = end == NO_END && (1..=self.newest).contains(&start);
        if !is_unused && !is_dead && !is_live {
            let expected = format!("a start before the end, and both up to {}", self.newest);
            return Err(corrupt("an entry", node.off, expected, format!("{start} to {end} at place {slot}")));
        }
        if node.level() > 0 && node.stamp(slot)? > self.newest {
            return Err(corrupt("a stamp", node.off, format!("up to {}", self.newest), node.stamp(slot)?));
        }
        Ok(())
    }

    /// Checks I10 of an entry; `last_change` is the last version that changed something below it.
    fn check_stamp(&self, node: &Node<'_>, slot: usize, last_change: u64) -> Result<()> {
        // Versions before the entry's start do not use the entry.
        let stamp = node.stamp(slot)?.max(node.start(slot).version());
        if self.named.any_in(stamp, last_change) {
            let expected = format!("later than the named versions before {last_change}");
            return Err(corrupt("a stamp", stamp_off(node.off, slot), expected, stamp));
        }
        Ok(())
    }

    /// Checks I9.
    fn check_live(&self, node: &Node<'_>, is_root: bool) -> Result<()> {
        let live = node.slots_in(self.version).count();
        let least = match (is_root, node.level()) {
            (true, 0) => 0,
            (true, _) => 2,
            (false, _) => LIVE_MIN + 1,
        };
        if live < least {
            return Err(corrupt("a tree node", node.off, format!("at least {least} live entries"), live));
        }
        Ok(())
    }

    /// Checks I6 and I10; returns the last version that changed anything below.
    fn check_children(&mut self, node: &Node<'m>, range: Range<'m>) -> Result<u64> {
        let mut last_change = 0;
        let mut children = Vec::with_capacity(SLOTS);
        for slot in node.slots_in(self.version) {
            if node.form(slot)? != Form::Block {
                return Err(corrupt("an inner node", node.off, "children", "an entry with a value"));
            }
            let child = node.child(slot)?;
            let (low, birth) = (child.low()?, child.birth());
            let prefix = prefix8(after(low, node.shared(), child.off)?);
            expect("the prefix of a child", node.off, prefix, node.field(slot, Field::Key))?;
            expect("the start of a child", child.off, birth, node.start(slot).version())?;
            children.push((low, child, slot));
        }
        children.sort_unstable_by(|a, b| a.0.cmp(b.0));
        for (i, (low, child, slot)) in children.iter().enumerate() {
            let high = children.get(i + 1).map_or(range.high, |(next, ..)| Some(*next));
            if (i == 0 && *low != range.low) || high.is_some_and(|high| *low >= high) {
                let expected = "ranges that divide its own";
                return Err(corrupt(
                    "the children of a node",
                    node.off,
                    expected,
                    format!("{low:?} to {high:?}"),
                ));
            }
            let changed = self.node(child.off, node.level() - 1, Range { low, high }, false)?;
            self.check_stamp(node, *slot, changed)?;
            last_change = last_change.max(changed);
        }
        Ok(last_change)
    }

    /// Checks I7 of a leaf, and I3 of its records.
    fn check_leaf(&mut self, node: &Node<'m>, range: Range<'m>) -> Result<u64> {
        let mut keys = Vec::with_capacity(SLOTS);
        for slot in node.slots_in(self.version) {
            let entry = read_entry(node, slot)?;
            let (key, value) = (entry.key(), entry.value());
            let is_long = key.len() as u64 > MAX_KEY_BYTES || value.len() as u64 > MAX_VALUE_BYTES;
            if is_long || key < range.low || range.high.is_some_and(|high| key >= high) {
                return Err(corrupt("a key", node.off, "one between its leaf's fences", format!("{key:?}")));
            }
            let rest = after(key, node.shared(), node.off)?;
            expect("the prefix of an entry", node.off, prefix8(rest), node.field(slot, Field::Key))?;
            let print = u64::from(node.fingerprint(slot));
            expect("a fingerprint", node.off, u64::from(fingerprint(key)), print)?;
            if node.form(slot)? == Form::Block {
                self.reach_record(node.field(slot, Field::Value))?;
            } else if rest.len() > INLINE_BYTES {
                return Err(corrupt("an entry", node.off, "a key that fits into it", format!("{key:?}")));
            }
            keys.push(key.to_vec());
        }
        keys.sort_unstable();
        if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(corrupt("a leaf", node.off, "every key once", format!("{:?} twice", twice[0])));
        }
        self.keys += keys.len() as u64;
        Ok(0)
    }
}
