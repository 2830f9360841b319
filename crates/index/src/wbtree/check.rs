//! Proves a tree whole without changing it: one function per invariant of `mod.rs`.

use super::WbTree;
use super::clear::{children_left, next_doomed_off};
use super::layout::{
    COUNTING_FORMAT, FANOUT, FORMAT, INNER_BYTES, LEAF_BYTES, LEAF_SLOTS, LENGTHS, MAP_BYTES, MAX_HEIGHT,
    SEPARATOR_HEAD_BYTES, SeparatorWord, TreeWord, field,
};
use super::node::{Inner, Leaf, Media, Record, View, separator_bytes};
use super::sums::Counting;
use crate::error::{Result, corrupt};
use crate::key_prefix::{fingerprint, lcp, prefix8};
use crate::record::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use tembo_pool::Marks;

/// The keys that may lie below a node: from `low` on, below `high`.
#[derive(Clone, Copy)]
struct Fences<'a> {
    low: Option<&'a [u8]>,
    high: Option<&'a [u8]>,
}

impl Fences<'_> {
    fn admit(&self, key: &[u8]) -> bool {
        self.low.is_none_or(|low| low <= key) && self.high.is_none_or(|high| key < high)
    }

    /// Bytes that all keys between the fences share.
    fn shared_bytes(&self) -> usize {
        match (self.low, self.high) {
            (Some(low), Some(high)) => lcp(low, high),
            _ => 0,
        }
    }
}

/// Whether a node belongs to the tree or to a doomed one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Liveness {
    Live,
    Doomed,
}

struct TreeChecker<'m, 'k> {
    view: Media<'m>,
    marks: &'k mut Marks,
    liveness: Liveness,
    counting: Counting,
    records: u64,
}

impl WbTree {
    /// Proves the tree whole: every invariant of the structure, and that each of its blocks is allocated and
    /// reachable exactly once. Reads everything and changes nothing. No writer may be at work meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) with the first damage found: what, where, expected and found.
    pub fn check(&self, marks: &mut Marks) -> Result<()> {
        let next = self.header_off() + field!(PmMap.next_dropped);
        expect("the word of a dropped tree in one that is not", next, 0, self.region().load_u64(next)?)?;
        self.check_dropped(marks)
    }

    /// As [`check`](Self::check), for a tree that may have been dropped.
    pub(crate) fn check_dropped(&self, marks: &mut Marks) -> Result<()> {
        let view = Media(self.region());
        marks.reach(self.header_off(), MAP_BYTES)?;
        self.check_header(view)?;
        let mut checker =
            TreeChecker { view, marks, liveness: Liveness::Live, counting: self.counting, records: 0 };
        checker.tree(self.root(view)?)?;
        let len = self.length(view)?;
        if len != checker.records {
            return Err(corrupt("the length of a tree", self.length_off(0), checker.records, len as i64));
        }
        checker.liveness = Liveness::Doomed;
        let mut doomed = TreeWord(view.load(self.doomed_off())?);
        while !doomed.is_empty() {
            checker.tree(doomed)?;
            doomed = TreeWord(view.load(next_doomed_off(doomed))?);
        }
        Ok(())
    }

    fn check_header(&self, view: Media<'_>) -> Result<()> {
        let format = if self.counting == Counting::Nothing { FORMAT } else { COUNTING_FORMAT };
        expect("the format of a tree", self.header_off(), format, view.load(self.header_off())?)?;
        let what = "a tree's header";
        expect_zero(view, what, self.header_off() + field!(PmMap.reserved), 3)?;
        let mut after_lengths = (0..LENGTHS).map(|part| self.length_off(part) + field!(PmLength.reserved));
        after_lengths.try_for_each(|off| expect_zero(view, what, off, 7))
    }
}

impl<'m> TreeChecker<'m, '_> {
    fn tree(&mut self, tree: TreeWord) -> Result<()> {
        if tree.is_empty() {
            return Ok(());
        }
        if tree.level() > MAX_HEIGHT {
            return Err(corrupt("the root of a tree", tree.node(), "a level up to 32", tree.level()));
        }
        self.node(tree.node(), tree.level(), Fences { low: None, high: None }, true)?;
        Ok(())
    }

    /// Returns the sum of the weights of the records below the node (I8).
    fn node(&mut self, off: u64, level: usize, fences: Fences<'_>, is_root: bool) -> Result<u64> {
        if level == 0 {
            return self.leaf(off, fences, is_root);
        }
        self.marks.reach(off, INNER_BYTES)?;
        let node = Inner::open(self.view.0, off, level)?;
        self.links(off + field!(PmInner.next_doomed), is_root)?;
        let bytes = self.separators(&node, fences)?;
        self.unused_words(&node)?;
        let left = match self.liveness {
            Liveness::Live => node.count(),
            Liveness::Doomed => children_left(self.view, self.counting, &node)?,
        };
        let mut tally = 0u64;
        for child in 0..left {
            let low = child.checked_sub(1).map_or(fences.low, |i| Some(bytes[i].as_slice()));
            let high = bytes.get(child).map_or(fences.high, |next| Some(next.as_slice()));
            let below = self.view.load(node.child_off(child))?;
            tally = tally.wrapping_add(self.node(below, level - 1, Fences { low, high }, false)?);
        }
        if self.liveness == Liveness::Live {
            let expected = if self.counting == Counting::Nothing { 0 } else { tally };
            expect("the tally of an inner node", off, expected, self.view.load(off)?)?;
        }
        Ok(tally)
    }

    /// I1 and I2: the separators lie between the fences, ascend, and are encoded as they must be.
    fn separators(&mut self, node: &Inner<'_>, fences: Fences<'_>) -> Result<Vec<Vec<u8>>> {
        let (skip, base, off) = (node.kind.skip(), node.kind.base(), node.off);
        self.skip("an inner node", off, skip, fences)?;
        let common_block = node.common_block()?;
        if base > skip {
            self.separator_block(common_block)?;
            node.common()?;
        } else {
            expect("the common bytes of an inner node that needs none", off, 0, common_block)?;
        }
        let any_key = fences.low.or(fences.high).unwrap_or_default();
        let mut all: Vec<Vec<u8>> = Vec::with_capacity(node.count());
        for i in 0..node.count() - 1 {
            if let SeparatorWord::Block(block) = node.separator_place(i)? {
                self.separator_block(block)?;
            }
            let separator = node.separator(i, any_key)?.to_vec();
            let in_order = all.last().is_none_or(|previous| *previous < separator);
            let inside = fences.low.is_none_or(|low| low < separator.as_slice()) && fences.admit(&separator);
            let shared = node.shared_head(any_key)?;
            if !in_order || !inside || !separator.starts_with(shared) {
                let wanted = "one between its neighbours, with the node's common bytes";
                return Err(corrupt("a separator", off, wanted, format!("{separator:?} at place {i}")));
            }
            expect("the prefix of a separator", off, prefix8(&separator[base..]), node.prefix(i))?;
            all.push(separator);
        }
        Ok(all)
    }

    fn separator_block(&mut self, block: u64) -> Result<()> {
        let bytes = separator_bytes(self.view.0, block)?.len() as u64;
        if bytes > MAX_KEY_BYTES {
            return Err(corrupt("a separator's length", block, format!("up to {MAX_KEY_BYTES}"), bytes));
        }
        Ok(self.marks.reach(block, SEPARATOR_HEAD_BYTES + bytes)?)
    }

    /// The words past the last separator are zero.
    fn unused_words(&self, node: &Inner<'_>) -> Result<()> {
        let (count, arrays) = (node.count() as u64, node.off);
        let what = "the unused part of an inner node";
        let unused = FANOUT as u64 - count;
        expect_zero(self.view, what, arrays + field!(PmInner.prefixes) + 8 * (count - 1), unused)?;
        expect_zero(self.view, what, arrays + field!(PmInner.separators) + 8 * (count - 1), unused)
    }

    fn leaf(&mut self, off: u64, fences: Fences<'_>, is_root: bool) -> Result<u64> {
        self.marks.reach(off, LEAF_BYTES)?;
        let leaf = Leaf::open(self.view.0, off)?;
        self.skip("a leaf", off, leaf.skip(), fences)?;
        self.links(off + field!(PmLeaf.next_doomed), is_root)?;
        let fingerprints = leaf.fingerprints(self.view)?.map(u64::to_ne_bytes);
        expect(
            "the bytes after a leaf's fingerprints",
            off,
            0,
            fingerprints[3][4..].iter().map(|b| u64::from(*b)).sum(),
        )?;
        let live = leaf.state(self.view)?.bitmap();
        let mut keys = Vec::with_capacity(LEAF_SLOTS);
        let mut tally = 0u64;
        for slot in (0..LEAF_SLOTS).filter(|slot| live >> slot & 1 == 1) {
            let key = self.entry(&leaf, slot, fences)?;
            expect(
                "a fingerprint",
                off,
                u64::from(fingerprint(key)),
                u64::from(fingerprints[slot / 8][slot % 8]),
            )?;
            keys.push(key);
            let record = self.view.load(leaf.record_off(slot))?;
            tally = tally.wrapping_add(self.counting.weight(self.view.0, record)?);
        }
        let expected = if self.counting == Counting::Weights { tally } else { 0 };
        expect("the tally of a leaf", off, expected, self.view.load(off + field!(PmLeaf.tally))?)?;
        keys.sort_unstable();
        if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(corrupt("a leaf", off, "every key once", format!("{:?} twice", twice[0])));
        }
        self.records += keys.len() as u64;
        Ok(tally)
    }

    /// I3 and I4: the entry's record is whole, belongs into the leaf, and has the prefix that the entry says.
    fn entry(&mut self, leaf: &Leaf, slot: usize, fences: Fences<'_>) -> Result<&'m [u8]> {
        let off = self.view.load(leaf.record_off(slot))?;
        let record = Record::read(self.view.0, off)?;
        self.marks.reach(off, record.media_bytes())?;
        let (key_bytes, value_bytes) = (record.key.len() as u64, record.place().bytes);
        if key_bytes > MAX_KEY_BYTES || value_bytes > MAX_VALUE_BYTES {
            let limits = format!("at most {MAX_KEY_BYTES} and {MAX_VALUE_BYTES}");
            return Err(corrupt("a record's lengths", off, limits, format!("{key_bytes} and {value_bytes}")));
        }
        if !fences.admit(record.key) {
            return Err(corrupt("a key", off, "one between its leaf's fences", format!("{:?}", record.key)));
        }
        let prefix = self.view.load(leaf.prefix_off(slot))?;
        expect("the prefix of an entry", leaf.prefix_off(slot), leaf.prefix_of(record.key)?, prefix)?;
        Ok(record.key)
    }

    fn skip(&self, what: &'static str, off: u64, skip: usize, fences: Fences<'_>) -> Result<()> {
        let shared = fences.shared_bytes();
        if skip > shared {
            return Err(corrupt(what, off, format!("a skip up to {shared}"), skip));
        }
        Ok(())
    }

    /// Only the root of a doomed tree leads to another.
    fn links(&self, next_off: u64, is_root: bool) -> Result<()> {
        if self.liveness == Liveness::Doomed && is_root {
            return Ok(());
        }
        expect_zero(self.view, "the link to another cleared tree", next_off, 1)
    }
}

fn expect(what: &'static str, off: u64, expected: u64, found: u64) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(corrupt(what, off, format!("{expected:#x}"), format!("{found:#x}")))
}

fn expect_zero(view: Media<'_>, what: &'static str, off: u64, words: u64) -> Result<()> {
    (0..words).try_for_each(|i| expect(what, off + 8 * i, 0, view.load(off + 8 * i)?))
}
