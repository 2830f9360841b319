//! Proving a tree whole without changing it: the invariants of the module essay.

use super::create::{CddsTree, Version, load_version};
use super::layout::{
    CHUNK_BYTES, CHUNK_ITEMS, Field, Form, INLINE_BYTES, KEPT_BYTES, LIVE_MIN, MAX_KEY_BYTES,
    MAX_VALUE_BYTES, NO_END, SLOTS, TREE_BYTES, at,
};
use super::node::{Node, Record, after};
use super::queue::{Dead, QueueWords, item_off};
use super::scan::CddsEntry;
use crate::error::{Result, corrupt};
use crate::wbtree::bytes::{fingerprint, lcp, prefix8};
use std::collections::HashSet;
use tembo_pmem::Region;
use tembo_pool::Marks;

/// The keys that may lie below a node: from `low` on, below `high`.
#[derive(Clone, Copy)]
struct Range<'m> {
    low: &'m [u8],
    high: Option<&'m [u8]>,
}

/// Which tree is walked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// The newest version: its blocks are reached.
    Newest,
    /// An older one: its blocks have been reached, from the newest one or from a queue.
    Older,
}

struct Checker<'m, 'k> {
    region: &'m Region,
    marks: &'k mut Marks,
    newest: u64,
    /// The version that is walked.
    version: u64,
    walk: Walk,
    keys: u64,
    /// What was reached, if older versions are to be compared with that.
    nodes: HashSet<u64>,
    records: HashSet<u64>,
    has_older: bool,
}

impl CddsTree {
    /// Proves the tree whole: every invariant of the structure, in the newest version and in every named one, and that each of its
    /// blocks is allocated and reachable exactly once. Reads everything, changes nothing. No writer may be at work meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) with the first damage found: what, where, expected and found.
    pub fn check(&self, marks: &mut Marks) -> Result<()> {
        let (shared, region) = (&*self.shared, self.shared.region());
        marks.reach(shared.header, TREE_BYTES)?;
        expect_zero(region, shared.header + at!(PmCddsTree.reserved), 2)?;
        let newest = load_version(region, shared.header)?;
        let kept = shared.kept.lock().clone();
        let mut checker = Checker {
            region,
            marks,
            newest: newest.number,
            version: newest.number,
            walk: Walk::Newest,
            keys: 0,
            nodes: HashSet::new(),
            records: HashSet::new(),
            has_older: !kept.is_empty(),
        };
        checker.tree(newest)?;
        for (off, queue) in shared.queues(|off| Ok(region.load_u64(off)?))? {
            expect_zero(region, off + at!(PmCddsQueue.reserved), 3)?;
            checker.check_queue(off, queue)?;
        }
        for kept in &kept {
            checker.marks.reach(kept.off, KEPT_BYTES + kept.name.len() as u64)?;
        }
        for kept in &kept {
            checker.check_kept(kept.version)?;
        }
        Ok(())
    }
}

impl<'m> Checker<'m, '_> {
    /// I7: a version that is held can be read in full.
    fn check_kept(&mut self, version: Version) -> Result<()> {
        (self.walk, self.version, self.keys) = (Walk::Older, version.number, 0);
        self.tree(version)
    }

    fn tree(&mut self, version: Version) -> Result<()> {
        if !version.root.is_empty() {
            let level = version.view(self.region).root_level()?;
            self.node(version.root.node(), level, Range { low: &[], high: None }, true)?;
        }
        if self.keys != version.length {
            return Err(corrupt("the length of a version", version.number, self.keys, version.length));
        }
        Ok(())
    }

    /// Checks a node and what is below it; returns the last version that changed any of it.
    fn node(&mut self, off: u64, level: usize, range: Range<'m>, is_root: bool) -> Result<u64> {
        let node = Node::open(self.region, off, level)?;
        let what = "a tree node";
        match self.walk {
            Walk::Newest => {
                self.marks.reach(off, node.fences().node_bytes())?;
                if self.has_older {
                    self.nodes.insert(off);
                }
            }
            Walk::Older if !self.nodes.contains(&off) => {
                return Err(corrupt(what, off, "one of the newest version or of a queue", "another"));
            }
            Walk::Older => {}
        }
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
        let (birth, changed) = (node.birth(), node.changed());
        if birth > self.version || changed < birth || changed > self.newest {
            let expected =
                format!("born by version {}, changed since then up to {}", self.version, self.newest);
            return Err(corrupt(what, off, expected, format!("born {birth}, changed {changed}")));
        }
        (0..SLOTS).try_for_each(|slot| self.check_interval(&node, slot))?;
        self.check_live(&node, is_root)?;
        match level {
            0 => self.check_leaf(&node, range)?,
            _ => self.check_children(&node, range)?,
        }
        Ok(changed)
    }

    /// I3, and I6 of a node's own entries.
    fn check_interval(&self, node: &Node<'_>, slot: usize) -> Result<()> {
        let (start, end) = (node.start(slot).version(), node.field(slot, Field::End));
        let is_unused = end == 0 && start <= node.changed();
        let is_dead = end != NO_END && start < end && end <= node.changed();
        let is_live = end == NO_END && (1..=node.changed()).contains(&start);
        if !is_unused && !is_dead && !is_live {
            let expected = format!("a start before the end, and both up to {}", node.changed());
            return Err(corrupt("an entry", node.off, expected, format!("{start} to {end} at place {slot}")));
        }
        Ok(())
    }

    /// I4.
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

    /// I1, and I6 of what is below.
    fn check_children(&mut self, node: &Node<'m>, range: Range<'m>) -> Result<()> {
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
            children.push((low, child));
        }
        children.sort_unstable_by(|a, b| a.0.cmp(b.0));
        for (i, (low, child)) in children.iter().enumerate() {
            let high = children.get(i + 1).map_or(range.high, |(next, _)| Some(*next));
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
            if self.walk == Walk::Newest && changed > node.changed() {
                let expected = format!("changed by {}, as the node above it", node.changed());
                return Err(corrupt("a tree node", child.off, expected, changed));
            }
        }
        Ok(())
    }

    /// I2, and I5 of the records.
    fn check_leaf(&mut self, node: &Node<'m>, range: Range<'m>) -> Result<()> {
        let mut keys = Vec::with_capacity(SLOTS);
        for slot in node.slots_in(self.version) {
            let entry = CddsEntry::read(node, slot)?;
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
                self.record(node.field(slot, Field::Value))?;
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
        Ok(())
    }

    fn record(&mut self, off: u64) -> Result<()> {
        match self.walk {
            Walk::Newest => {
                self.marks.reach(off, Record::read(self.region, off)?.media_bytes())?;
                if self.has_older {
                    self.records.insert(off);
                }
            }
            Walk::Older if !self.records.contains(&off) => {
                return Err(corrupt("a record", off, "one of the newest version or of a queue", "another"));
            }
            Walk::Older => {}
        }
        Ok(())
    }

    /// I5 of what died.
    fn check_queue(&mut self, head: u64, queue: QueueWords) -> Result<()> {
        let QueueWords { first: mut chunk, first_idx: mut idx, .. } = queue;
        if chunk != 0 {
            self.check_chunk(chunk)?;
        }
        for _ in 0..queue.count {
            if idx == CHUNK_ITEMS {
                chunk = self.region.load_u64(chunk + at!(PmCddsChunk.next))?;
                self.check_chunk(chunk)?;
                idx = 0;
            }
            let off = item_off(chunk, idx);
            let word = |i: u64| self.region.load_u64(off + 8 * i);
            self.check_dead(off, Dead::decode([word(0)?, word(1)?, word(2)?]))?;
            idx += 1;
        }
        if (chunk, idx) != (queue.last, queue.last_idx) {
            let expected = format!("item {idx} of the chunk at {chunk:#x}");
            return Err(corrupt("the end of a queue", head, expected, format!("{queue:?}")));
        }
        Ok(())
    }

    fn check_chunk(&mut self, chunk: u64) -> Result<()> {
        self.marks.reach(chunk, CHUNK_BYTES)?;
        expect_zero(self.region, chunk + at!(PmCddsChunk.reserved), 1)
    }

    fn check_dead(&mut self, item: u64, dead: Dead) -> Result<()> {
        if dead.birth >= dead.death || dead.death > self.newest {
            let expected = format!("a birth before a death, and both up to {}", self.newest);
            return Err(corrupt("a dead block", item, expected, format!("{dead:?}")));
        }
        if dead.is_node {
            let node = Node::open_any(self.region, dead.off)?;
            self.marks.reach(dead.off, node.fences().node_bytes())?;
            expect("the birth of a dead node", dead.off, dead.birth, node.birth())?;
            (0..SLOTS).try_for_each(|slot| self.check_interval(&node, slot))?;
            self.nodes.insert(dead.off);
        } else {
            self.marks.reach(dead.off, Record::read(self.region, dead.off)?.media_bytes())?;
            self.records.insert(dead.off);
        }
        Ok(())
    }
}

fn expect(what: &'static str, off: u64, expected: u64, found: u64) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(corrupt(what, off, format!("{expected:#x}"), format!("{found:#x}")))
}

fn expect_zero(region: &Region, off: u64, words: u64) -> Result<()> {
    (0..words).try_for_each(|i| expect("a reserved word", off + 8 * i, 0, region.load_u64(off + 8 * i)?))
}
