//! Proving a store whole without changing it.

use crate::error::{Error, Result, corrupt};
use crate::handle::{Store, last_number};
use crate::keyspace::Keyspace;
use crate::layout::{
    HAS_TOMBSTONE, PmKeyspace, STORE_BYTES, VALUE_HEAD_BYTES, VECTOR_HEAD_BYTES, VERSION_BYTES, ValueWord,
    field, number_of,
};
use crate::log::Named;
use crate::snapshot::Snapshot;
use crate::versions::{Slots, Table, Words, value_bytes};
use std::collections::HashSet;
use std::sync::Arc;
use tembo_pmem::Region;
use tembo_pool::Marks;

/// The findings of a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Keyspaces.
    pub keyspaces: u64,
    /// Keyspaces that were dropped and are being freed.
    pub dropped_keyspaces: u64,
    /// Keys that have a version.
    pub keys: u64,
    /// Versions with a value or a tombstone.
    pub versions: u64,
}

/// The findings of a check of one snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotReport {
    /// The snapshot's number.
    pub number: u64,
    /// Keyspaces that were read.
    pub keyspaces: u64,
    /// Keyspaces that do not retain the snapshot.
    pub not_retained: u64,
    /// Keys that have a value.
    pub keys: u64,
    /// Bytes of these keys and values.
    pub bytes: u64,
}

impl Snapshot {
    /// Reads all of it, and proves that the keys ascend and that each is found where it is looked up, with
    /// the value that the walk has met. Reads everything twice, changes nothing; nobody waits meanwhile.
    /// Blocks and versions that the snapshot does not have are left to [`Store::check`].
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] with the first damage found, and [`Error::SnapshotGone`].
    pub fn check(&self) -> Result<SnapshotReport> {
        let mut report = SnapshotReport { number: self.number(), ..SnapshotReport::default() };
        for name in self.store.keyspace_names()? {
            let Some(keyspace) = self.store.find(&name)? else { continue };
            let before = report;
            match self.check_keyspace(&keyspace, &mut report) {
                Ok(()) => report.keyspaces += 1,
                Err(Error::NotRetained { .. }) => {
                    report = SnapshotReport { not_retained: before.not_retained + 1, ..before };
                }
                // Somebody has dropped it meanwhile.
                Err(Error::KeyspaceDropped { .. }) => report = before,
                Err(e) => return Err(e),
            }
        }
        Ok(report)
    }

    fn check_keyspace(&self, keyspace: &Keyspace, report: &mut SnapshotReport) -> Result<()> {
        let mut walk = self.iter(keyspace)?;
        let mut last: Option<Vec<u8>> = None;
        while let Some((key, value)) = walk.advance()? {
            let damage = |expected: &str| {
                let (head, found) = (keyspace.inner.head, key.escape_ascii().to_string());
                Err(corrupt("a key of a keyspace", head, expected, found))
            };
            if last.as_deref().is_some_and(|last| last >= key) {
                return damage("one above the key before it");
            }
            if self.value(keyspace, key)?.as_deref() != Some(value) {
                return damage("one that is found by a look-up, with its value");
            }
            report.keys += 1;
            report.bytes += (key.len() + value.len()) as u64;
            last = Some(key.to_vec());
        }
        Ok(())
    }
}

impl Store {
    /// Proves the invariants of the store, and that each of its blocks is allocated and reachable exactly
    /// once. Reads everything, changes nothing. Commits wait meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) with the first damage found.
    pub fn check(&self, marks: &mut Marks) -> Result<Report> {
        let inner = &self.inner;
        let _lead = inner.commits.hold();
        let region = inner.pool.region();
        marks.reach(inner.off, STORE_BYTES)?;
        inner.names.check(marks)?;
        inner.kept.check(marks)?;
        let current = last_number(region, inner.off)?;
        let last_id = region.load_u64(inner.off + field!(PmStore.last_keyspace))?;
        for kept in self.kept()? {
            if kept.number > current {
                return Err(corrupt("a kept snapshot", inner.off, format!("at most {current}"), kept.number));
            }
        }
        let named = inner.history.log.check(&inner.pool, current, marks)?;
        let mut report = Report::default();
        let mut ids = HashSet::new();
        let mut check = |keyspace: &Keyspace, report: &mut Report| {
            let Keyspace { inner } = keyspace;
            marks.reach(inner.head, size_of::<PmKeyspace>() as u64)?;
            if inner.id > last_id || !ids.insert(inner.id) {
                let expected = format!("a new one up to {last_id}");
                return Err(corrupt("the id of a keyspace", inner.head, expected, inner.id));
            }
            check_keyspace(keyspace, region, current, named.as_ref(), marks, report)
        };
        for keyspace in inner.all_keyspaces()? {
            report.keyspaces += 1;
            check(&keyspace, &mut report)?;
        }
        let mut dropped = region.load_u64(inner.off + field!(PmStore.dropped))?;
        while dropped != 0 {
            let keyspace =
                Keyspace::open(&inner.pool, Arc::downgrade(&inner.active), "a dropped keyspace", dropped)?;
            check(&keyspace, &mut Report::default())?;
            report.dropped_keyspaces += 1;
            dropped = region.load_u64(dropped + field!(PmKeyspace.next_dropped))?;
        }
        Ok(report)
    }
}

pub(crate) fn check_keyspace(
    keyspace: &Keyspace,
    region: &Region,
    current: u64,
    named: Option<&Named>,
    marks: &mut Marks,
    report: &mut Report,
) -> Result<()> {
    let index = &keyspace.inner.index;
    index.check(marks)?;
    let mut walk = index.iter();
    while let Some((key, place)) = walk.advance_place()? {
        let table = Table::at(place)?;
        let padding = table.off - place.off;
        // The word before the table has the last bytes of the key, or of the record's head.
        let before = region.word(table.off - 8)?.to_le_bytes();
        if before[8 - padding as usize..].iter().any(|byte| *byte != 0) {
            let found = key.escape_ascii().to_string();
            return Err(corrupt("the bytes between a key and its table", place.off, "zeros", found));
        }
        report.keys += 1;
        report.versions += check_versions(table, region, current, marks)?;
        if let Some(named) = named {
            for version in table.versions(region)? {
                named.check(table.off, keyspace.inner.id, key, version.number)?;
            }
        }
    }
    Ok(())
}

/// I1, and that each value is there; returns how many versions were not collected.
fn check_versions(table: Table, region: &Region, current: u64, marks: &mut Marks) -> Result<u64> {
    let slots = table.slots(region)?;
    if let Some(vector) = table.vector(region)? {
        marks.reach(vector, VECTOR_HEAD_BYTES + slots.capacity * VERSION_BYTES)?;
    }
    check_empty_slots(slots, table, region)?;
    let versions = table.versions(region)?;
    let (mut last, mut left) = (0, 0);
    for version in &versions {
        if version.number <= last || version.number > current {
            let expected = format!("above {last}, and at most {current}");
            return Err(corrupt("the number of a version", table.off, expected, version.number));
        }
        last = version.number;
        left += u64::from(version.value != ValueWord::Collected);
        if let ValueWord::Block(block) = version.value {
            marks.reach(block, VALUE_HEAD_BYTES + value_bytes(region, block)?)?;
        }
    }
    let has_spare = slots.spare != 0 || region.word(table.off + field!(PmTable.vector))? == HAS_TOMBSTONE;
    if has_spare && last != slots.spare {
        return Err(corrupt(
            "the tombstone beside the slots",
            table.off,
            format!("above {last}"),
            slots.spare,
        ));
    }
    if versions.last().is_none_or(|last| last.value == ValueWord::Collected) {
        return Err(corrupt("a version table", table.off, "a last version", "none"));
    }
    Ok(left)
}

/// I1: a slot without a version is zero; in a table in order, numbers ascend, and empty slots come last.
fn check_empty_slots(slots: Slots, table: Table, region: &Region) -> Result<()> {
    let mut last = 0;
    let mut has_ended = false;
    for index in 0..slots.capacity {
        let words = slots.words(region, index)?;
        let is_empty = words == [0, 0];
        if number_of(words[0]) == 0 && !is_empty {
            return Err(corrupt("an empty slot", table.off, 0, format!("{words:x?}")));
        }
        if !slots.is_ordered() {
            continue;
        }
        if !is_empty && (has_ended || number_of(words[0]) <= last) {
            let expected = format!("a number above {last}, before all empty ones");
            return Err(corrupt("a slot of a vector in order", table.off, expected, number_of(words[0])));
        }
        last = number_of(words[0]);
        has_ended |= is_empty;
    }
    Ok(())
}
