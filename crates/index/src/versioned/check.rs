//! Proving a map whole without changing it: the invariants of the module essays.

use super::create::{CddsMap, Version, View, check_format, load_version};
use super::kept::{self, CddsKept};
use super::layout::{CHUNK_BYTES, CHUNK_ITEMS, HEAD_BYTES, KEPT_BYTES, at};
use super::node::Record;
use super::queue::{Dead, DeadKind, QueueWords, item_off};
use super::readers::Retained;
use super::structure::CddsStructure;
use crate::error::{Result, corrupt};
use std::collections::HashSet;
use tembo_pmem::Region;
use tembo_pool::{Marks, Pool};

/// Which version is walked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Walk {
    /// The newest version: its blocks are reached.
    Newest,
    /// An older one: its blocks have been reached, from the newest one or from a queue.
    Older,
}

pub struct Checker<'m, 'k> {
    pub(super) region: &'m Region,
    marks: &'k mut Marks,
    /// Of the hashes; 0 in a tree.
    pub(super) seed: u64,
    pub(super) newest: u64,
    /// The version that is walked.
    pub(super) version: u64,
    pub(super) walk: Walk,
    pub(super) keys: u64,
    /// The versions that have names.
    pub(super) named: Retained,
    /// What was reached, if older versions are to be compared with that.
    nodes: HashSet<u64>,
    records: HashSet<u64>,
    has_older: bool,
}

/// What a map has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CddsReport {
    /// The newest version.
    pub version: u64,
    /// How many keys it has.
    pub length: u64,
    /// The named snapshots, in the order in which they were made.
    pub kept: Vec<CddsKept>,
}

impl<S: CddsStructure> CddsMap<S> {
    /// Proves the map whole: every invariant of the structure, in the newest version and in every named one, and that each of its
    /// blocks is allocated and reachable exactly once. Reads everything, changes nothing. No writer may be at work meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) with the first damage found: what, where, expected and found.
    pub fn check(&self, marks: &mut Marks) -> Result<CddsReport> {
        Self::check_at(self.pool(), self.shared.header, marks)
    }

    /// What the map has whose head lies at `header`, as the head says: beside any handle that is open, and without reading its keys.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the head is damaged, or that of something else.
    pub fn describe_at(pool: &Pool, header: u64) -> Result<CddsReport> {
        let region = pool.region();
        check_format::<S>(region, header)?;
        let newest = load_version(region, header)?;
        let kept = kept::load(region, header, newest.number)?;
        Ok(CddsReport { version: newest.number, length: newest.length, kept: kept::listed(&kept) })
    }

    /// As [`check`](Self::check), of the map whose head lies at `header`: beside any handle that is open, and without a lane.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub fn check_at(pool: &Pool, header: u64, marks: &mut Marks) -> Result<CddsReport> {
        let region = pool.region();
        marks.reach(header, HEAD_BYTES)?;
        check_format::<S>(region, header)?;
        expect_zero(region, header + at!(PmCddsHead.next_dropped), 1)?;
        let seed = region.load_u64(header + at!(PmCddsHead.seed))?;
        if !S::HAS_SEED {
            expect("the seed of a map without hashes", header, 0, seed)?;
        }
        let newest = load_version(region, header)?;
        let kept = kept::load(region, header, newest.number)?;
        let mut checker = Checker {
            region,
            marks,
            seed,
            newest: newest.number,
            version: newest.number,
            walk: Walk::Newest,
            keys: 0,
            named: Retained::new(kept.iter().map(|kept| kept.version.number).collect()),
            nodes: HashSet::new(),
            records: HashSet::new(),
            has_older: !kept.is_empty(),
        };
        checker.check_version::<S>(Walk::Newest, newest)?;
        for queue in [at!(PmCddsHead.young), at!(PmCddsHead.old)] {
            let off = header + queue;
            expect_zero(region, off + at!(PmCddsQueue.reserved), 3)?;
            checker.check_queue::<S>(off, QueueWords::load(region, off)?)?;
        }
        for kept in &kept {
            checker.marks.reach(kept.off, KEPT_BYTES + kept.name.len() as u64)?;
        }
        // I4: what a named version had is still there.
        kept.iter().try_for_each(|kept| checker.check_version::<S>(Walk::Older, kept.version))?;
        Ok(CddsReport { version: newest.number, length: newest.length, kept: kept::listed(&kept) })
    }
}

impl Checker<'_, '_> {
    /// I2 of a version that can be read in full.
    fn check_version<S: CddsStructure>(&mut self, walk: Walk, version: Version) -> Result<()> {
        (self.walk, self.version, self.keys) = (walk, version.number, 0);
        let (region, root, seed) = (self.region, version.root, self.seed);
        S::check_version(self, View { region, version: version.number, root, seed, ahead: None })?;
        if self.keys != version.length {
            return Err(corrupt("the length of a version", version.number, self.keys, version.length));
        }
        Ok(())
    }

    /// I3 of a node.
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

    /// I3 of a record.
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

    /// I3 of what died, and I1.
    fn check_queue<S: CddsStructure>(&mut self, head: u64, queue: QueueWords) -> Result<()> {
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
        expect_zero(self.region, chunk + at!(PmCddsChunk.reserved), 1)
    }

    fn check_dead<S: CddsStructure>(&mut self, item: u64, dead: Dead) -> Result<()> {
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
                // Its last version is walked as the newest one is: its blocks are reached from here and from nowhere else.
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

fn expect_zero(region: &Region, off: u64, words: u64) -> Result<()> {
    (0..words).try_for_each(|i| expect("a reserved word", off + 8 * i, 0, region.load_u64(off + 8 * i)?))
}
