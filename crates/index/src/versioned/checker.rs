//! A walk that proves the nodes, records and queues of a map. The invariants are in the heads of the modules.

use super::kept_list::KeptSnapshot;
use super::layout::{CHUNK_BYTES, CHUNK_ITEMS, at};
use super::node::Record;
use super::queue::{Dead, DeadKind, QueueWords, item_off};
use super::readers::Retained;
use super::version::Version;
use super::view::View;
use crate::error::{Result, corrupt};
use std::collections::HashSet;
use tembo_pmem::Region;
use tembo_pool::Marks;

/// How a structure proves its nodes.
pub trait CheckNodes {
    /// Proves the nodes of a version, and counts its keys.
    fn check_version(checker: &mut VersionChecker<'_, '_>, version: View<'_>) -> Result<()>;

    /// Proves a dead node, and returns its length in bytes.
    fn check_dead_node(checker: &VersionChecker<'_, '_>, dead: &Dead) -> Result<u64>;

    /// Proves the nodes of a dead subtree, and ticks them and their records off.
    fn check_dead_subtree(checker: &mut VersionChecker<'_, '_>, dead: &Dead) -> Result<()>;
}

/// The version that is walked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Walk {
    /// The newest version: its blocks are ticked off.
    Newest,
    /// An older version: its blocks were ticked off before, from the newest version or from a queue.
    Older,
}

/// A walk over a map.
pub struct VersionChecker<'m, 'k> {
    pub(super) region: &'m Region,
    pub(super) marks: &'k mut Marks,
    /// The seed of the hashes; 0 in a tree.
    pub(super) seed: u64,
    pub(super) newest: u64,
    /// The version that is walked.
    pub(super) version: u64,
    pub(super) walk: Walk,
    pub(super) keys: u64,
    /// The versions that have names.
    pub(super) named: Retained,
    /// The nodes ticked off, if older versions have to be compared with them.
    nodes: HashSet<u64>,
    records: HashSet<u64>,
    has_older: bool,
}

impl<'m, 'k> VersionChecker<'m, 'k> {
    /// A checker of a map with this newest version and these named snapshots.
    pub(super) fn new(
        region: &'m Region,
        marks: &'k mut Marks,
        seed: u64,
        newest: u64,
        kept: &[KeptSnapshot],
    ) -> VersionChecker<'m, 'k> {
        VersionChecker {
            region,
            marks,
            seed,
            newest,
            version: newest,
            walk: Walk::Newest,
            keys: 0,
            named: Retained::new(kept.iter().map(|kept| kept.version.number).collect()),
            nodes: HashSet::new(),
            records: HashSet::new(),
            has_older: !kept.is_empty(),
        }
    }
}

impl VersionChecker<'_, '_> {
    /// Checks I2 of a version that can be read in full.
    pub(super) fn check_version<S: CheckNodes>(&mut self, walk: Walk, version: Version) -> Result<()> {
        (self.walk, self.version, self.keys) = (walk, version.number, 0);
        let (region, root, seed) = (self.region, version.root, self.seed);
        S::check_version(self, View { region, version: version.number, root, seed, size_hint: None })?;
        if self.keys != version.length {
            return Err(corrupt("the length of a version", version.number, self.keys, version.length));
        }
        Ok(())
    }

    /// Checks I3 of a node.
    pub(super) fn reach_node(&mut self, off: u64, bytes: u64) -> Result<()> {
        match self.walk {
            Walk::Newest => {
                self.marks.reach(off, bytes)?;
                if self.has_older {
                    self.nodes.insert(off);
                }
            }
            Walk::Older if !self.nodes.contains(&off) => {
                return Err(corrupt("a node", off, "one of the newest version or of a queue", "another"));
            }
            Walk::Older => {}
        }
        Ok(())
    }

    /// Checks I3 of a record.
    pub(super) fn reach_record(&mut self, off: u64) -> Result<()> {
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

    /// Checks I1 and I3 of a queue of dead blocks.
    pub(super) fn check_queue<S: CheckNodes>(&mut self, head: u64, queue: QueueWords) -> Result<()> {
        let QueueWords { first: mut chunk, first_idx: mut idx, .. } = queue;
        if chunk != 0 {
            self.check_chunk(chunk)?;
        }
        for _ in 0..queue.count {
            if idx == CHUNK_ITEMS {
                chunk = self.region.load_u64(chunk + at!(PmVersionedChunk.next))?;
                self.check_chunk(chunk)?;
                idx = 0;
            }
            let off = item_off(chunk, idx);
            let word = |i: u64| self.region.load_u64(off + 8 * i);
            self.check_dead::<S>(off, Dead::decode(off, [word(0)?, word(1)?, word(2)?])?)?;
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
        expect_zero(self.region, chunk + at!(PmVersionedChunk.reserved), 1)
    }

    fn check_dead<S: CheckNodes>(&mut self, item: u64, dead: Dead) -> Result<()> {
        if dead.birth >= dead.death || dead.death > self.newest {
            let expected = format!("a birth before a death, and both up to {}", self.newest);
            return Err(corrupt("a dead block", item, expected, format!("{dead:?}")));
        }
        match dead.kind {
            DeadKind::Record => {
                self.marks.reach(dead.off, Record::read(self.region, dead.off)?.media_bytes())?;
                self.records.insert(dead.off);
                Ok(())
            }
            DeadKind::Node => {
                let bytes = S::check_dead_node(self, &dead)?;
                self.marks.reach(dead.off, bytes)?;
                self.nodes.insert(dead.off);
                Ok(())
            }
            DeadKind::Subtree => {
                // The last version of the subtree is walked like the newest one: its blocks are reached from
                // here and from nowhere else.
                (self.walk, self.version) = (Walk::Newest, dead.death - 1);
                S::check_dead_subtree(self, &dead)
            }
        }
    }
}

pub(super) fn expect(what: &'static str, off: u64, expected: u64, found: u64) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(corrupt(what, off, format!("{expected:#x}"), format!("{found:#x}")))
}

pub(super) fn expect_zero(region: &Region, off: u64, words: u64) -> Result<()> {
    (0..words).try_for_each(|i| expect("a reserved word", off + 8 * i, 0, region.load_u64(off + 8 * i)?))
}
