//! Proving a store whole without changing it.

use crate::audit::Named;
use crate::error::{Result, corrupt};
use crate::keyspace::{Keyspace, table_at};
use crate::layout::{
    KEY_HEAD_BYTES, PmKeyspace, PmStore, VALUE_HEAD_BYTES, VECTOR_HEAD_BYTES, VERSION_BYTES, ValueWord, field,
};
use crate::store::Store;
use crate::versions::{Table, Words, value_bytes};
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

impl Store {
    /// Proves the invariants of the store, and that each of its blocks is allocated and reachable exactly
    /// once. Reads everything, changes nothing. Commits wait meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) with the first damage found.
    pub fn check(&self, marks: &mut Marks) -> Result<Report> {
        let inner = &self.inner;
        let _leader = inner.commits.lead();
        let region = inner.pool.region();
        marks.reach(inner.off, size_of::<PmStore>() as u64)?;
        inner.names.check(marks)?;
        inner.kept.check(marks)?;
        let current = region.load_u64(inner.off + field!(PmStore.current))?;
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
            let keyspace = Keyspace::open(&inner.pool, Arc::downgrade(inner), "a dropped keyspace", dropped)?;
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
    while let Some((key, value)) = walk.advance()? {
        let table = table_at(value)?;
        marks.reach(table.off, KEY_HEAD_BYTES + key.len() as u64)?;
        if table.key(region)? != key {
            return Err(corrupt("the key of a version table", table.off, key.escape_ascii(), "another"));
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
    let vector = region.word(table.off + field!(PmKey.vector))?;
    if vector != 0 {
        marks.reach(vector, VECTOR_HEAD_BYTES + slots.capacity * VERSION_BYTES)?;
    }
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
    if versions.last().is_none_or(|last| last.value == ValueWord::Collected) {
        return Err(corrupt("a version table", table.off, "a last version", "none"));
    }
    slots.check_rest(region, versions.len() as u64)?;
    Ok(left)
}
