//! Proves a map whole without changing it. The invariants are in the heads of the modules.

use super::checker::{VersionChecker, Walk, expect, expect_zero};
use super::kept_list::{self, KeptVersion};
use super::layout::{HEAD_BYTES, KEPT_BYTES, at};
use super::map::VersionedMap;
use super::queue::QueueWords;
use super::structure::VersionedStructure;
use super::version::{check_format, load_version};
use crate::error::Result;
use tembo_pool::{Marks, Pool};

/// Figures of a map's contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionedReport {
    /// The newest version.
    pub version: u64,
    /// How many keys it has.
    pub length: u64,
    /// The named snapshots, in the order in which they were made.
    pub kept: Vec<KeptVersion>,
}

impl<S: VersionedStructure> VersionedMap<S> {
    /// Proves the map whole: every invariant of the structure, in the newest version and in every named one,
    /// and that each of its blocks is allocated and reachable exactly once. Reads everything and changes
    /// nothing. No writer may be at work meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) with the first damage found: what, where, expected and found.
    pub fn check(&self, marks: &mut Marks) -> Result<VersionedReport> {
        Self::check_at(self.pool(), self.shared.header, marks)
    }

    /// The report of the map whose head lies at `header`. Reads only the head, and no keys; a handle may be
    /// open.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the head is damaged, or that of something else.
    pub fn describe_at(pool: &Pool, header: u64) -> Result<VersionedReport> {
        let region = pool.region();
        check_format(region, header, S::FORMAT)?;
        let newest = load_version(region, header)?;
        let kept = kept_list::load(region, header, newest.number)?;
        Ok(VersionedReport { version: newest.number, length: newest.length, kept: kept_list::listed(&kept) })
    }

    /// As [`check`](Self::check), for the map whose head lies at `header`. A handle may be open, and no lane
    /// is needed.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub fn check_at(pool: &Pool, header: u64, marks: &mut Marks) -> Result<VersionedReport> {
        let region = pool.region();
        marks.reach(header, HEAD_BYTES)?;
        check_format(region, header, S::FORMAT)?;
        expect_zero(region, header + at!(PmVersionedHead.next_dropped), 1)?;
        let seed = region.load_u64(header + at!(PmVersionedHead.seed))?;
        if !S::HAS_SEED {
            expect("the seed of a map without hashes", header, 0, seed)?;
        }
        let newest = load_version(region, header)?;
        let kept = kept_list::load(region, header, newest.number)?;
        let mut checker = VersionChecker::new(region, marks, seed, newest.number, &kept);
        checker.check_version::<S>(Walk::Newest, newest)?;
        for queue in [at!(PmVersionedHead.young), at!(PmVersionedHead.old)] {
            let off = header + queue;
            expect_zero(region, off + at!(PmVersionedQueue.reserved), 3)?;
            checker.check_queue::<S>(off, QueueWords::load(region, off)?)?;
        }
        for kept in &kept {
            checker.marks.reach(kept.off, KEPT_BYTES + kept.name.len() as u64)?;
        }
        // I4: named versions still have their contents.
        kept.iter().try_for_each(|kept| checker.check_version::<S>(Walk::Older, kept.version))?;
        Ok(VersionedReport { version: newest.number, length: newest.length, kept: kept_list::listed(&kept) })
    }
}
