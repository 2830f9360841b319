//! Proving a tree whole on media, without changing it.

use super::create::{U64Tree, load_last};
use super::layout::{
    HEADER_BYTES, LEAF_KIND, MAX_LEVEL, NODE_BYTES, RESERVED_OF_HEADER, RESERVED_OF_INNER, RESERVED_OF_LEAF,
    SLOTS, floor_off, key_off, next_off, root_off,
};
use super::node::{ColdInner, ColdLeaf};
use crate::error::{Result, corrupt};
use tembo_pmem::{Region, WORD_BYTES};
use tembo_pool::{Marks, Pool};

struct U64TreeChecker<'m, 'k> {
    region: &'m Region,
    marks: &'k mut Marks,
    /// The least key and the offset that the next leaf must have, according to the leaf before it.
    expected: (u64, u64),
    records: u64,
}

impl U64Tree {
    /// Proves the tree at `header` whole: every key in its leaf and in one slot, leaves linked in order,
    /// inner nodes in agreement, each block allocated and reachable exactly once. Reads everything, changes
    /// nothing; no thread may write meanwhile. Returns the number of records.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) with the first damage found: what, where, expected and found.
    pub fn check_at(pool: &Pool, header: u64, marks: &mut Marks) -> Result<u64> {
        let region = pool.region();
        marks.reach(header, HEADER_BYTES)?;
        expect_zero(region, "a reserved word of a tree's header", header, &RESERVED_OF_HEADER)?;
        let last = load_last(region, header)?;
        let root = region.load_u64(root_off(header))?;
        let mut checker = U64TreeChecker { region, marks, expected: (0, 0), records: 0 };
        checker.node(root, 0, MAX_LEVEL + 1, None)?;
        let (low, next) = checker.expected;
        if (low, next) != (u64::MAX, 0) {
            return Err(corrupt(
                "the last leaf",
                next_off(root),
                "no bound and no next leaf",
                format!("{low}, {next}"),
            ));
        }
        Ok(checker.records + u64::from(last.is_some()))
    }

    /// As [`check_at`](Self::check_at), of this tree.
    ///
    /// # Errors
    ///
    /// As for [`check_at`](Self::check_at).
    pub fn check(&self, marks: &mut Marks) -> Result<u64> {
        Self::check_at(&self.tree.pool, self.tree.header, marks)
    }
}

impl U64TreeChecker<'_, '_> {
    /// Checks a node whose keys start at `low` and end before `high`, on a level below `below`.
    fn node(&mut self, off: u64, low: u64, below: u64, high: Option<u64>) -> Result<()> {
        self.marks.reach(off, NODE_BYTES)?;
        if self.region.load_u64(off)? == LEAF_KIND {
            return self.leaf(off, low, high);
        }
        let inner = ColdInner { region: self.region, off };
        let level = inner.level()?;
        if level >= below || (below <= MAX_LEVEL && level + 1 != below) {
            return Err(corrupt("the level of an inner node", off, below.wrapping_sub(1), level));
        }
        expect_zero(self.region, "a reserved word of an inner node", off, &RESERVED_OF_INNER)?;
        let mut children = Vec::new();
        for slot in 0..SLOTS {
            children.extend(inner.child(slot)?);
        }
        children.sort_unstable();
        if children.first().is_none_or(|first| first.0 != low) {
            return Err(corrupt(
                "the first separator of an inner node",
                off,
                low,
                format!("{:?}", children.first()),
            ));
        }
        for (i, (separator, child)) in children.iter().enumerate() {
            let high = children.get(i + 1).map(|next| next.0).or(high);
            if high.is_some_and(|high| high <= *separator) {
                return Err(corrupt("a separator", off, "different ones below the next node's", separator));
            }
            if (level == 1) != (self.region.load_u64(*child)? == LEAF_KIND) {
                return Err(corrupt(
                    "a child",
                    *child,
                    "a leaf on the lowest level, an inner node above",
                    "the other",
                ));
            }
            self.node(*child, *separator, level, high)?;
        }
        Ok(())
    }

    fn leaf(&mut self, off: u64, low: u64, high: Option<u64>) -> Result<()> {
        let (found_low, floor) = ColdLeaf { region: self.region, off }.bounds()?;
        if found_low != low {
            return Err(corrupt("the least key of a leaf", off, low, found_low));
        }
        let expected_floor = high.map_or(0, |high| !high);
        if floor != expected_floor {
            return Err(corrupt("the bound of a leaf", floor_off(off), expected_floor, floor));
        }
        expect_zero(self.region, "a reserved word of a leaf", off, &RESERVED_OF_LEAF)?;
        // I1: the leaf before this one leads here.
        if low != 0 && self.expected != (low, off) {
            return Err(corrupt(
                "a leaf",
                off,
                format!("linked from the one before, {:?}", self.expected),
                low,
            ));
        }
        self.expected = (!floor, self.region.load_u64(next_off(off))?);
        let mut keys = Vec::new();
        for slot in 0..SLOTS {
            let word = self.region.load_u64(key_off(off, slot))?;
            if word > floor {
                if !word < low {
                    return Err(corrupt(
                        "a key of a leaf",
                        key_off(off, slot),
                        format!("at least {low}"),
                        !word,
                    ));
                }
                keys.push(word);
            }
        }
        self.records += keys.len() as u64;
        keys.sort_unstable();
        match keys.windows(2).find(|two| two[0] == two[1]) {
            Some(two) => Err(corrupt("the keys of a leaf", off, "each once", !two[0])),
            None => Ok(()),
        }
    }
}

/// Checks that the unused words of an object at `off` are zero.
fn expect_zero(region: &Region, what: &'static str, off: u64, runs: &[(u64, u64)]) -> Result<()> {
    for at in
        runs.iter().flat_map(|(start, words)| (0..*words).map(move |word| off + start + WORD_BYTES * word))
    {
        let found = region.load_u64(at)?;
        if found != 0 {
            return Err(corrupt(what, at, 0, format!("{found:#x}")));
        }
    }
    Ok(())
}
