//! The difference of two versions, in time proportional to its size.

use super::bytes::VersionedBytes;
use super::map::VersionedMap;
use super::snapshot::VersionedSnapshot;
use super::structure::{VersionedStructure, Visit};
use crate::error::Result;

/// A key that differs between two versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionedChange {
    /// The key.
    pub key: Vec<u8>,
    /// Its value in the first version, if it was there.
    pub before: Option<Vec<u8>>,
    /// Its value in the second version, if it exists.
    pub after: Option<Vec<u8>>,
}

impl<S: VersionedStructure> VersionedMap<S> {
    /// The keys that differ between two held versions, with both values, in the order of
    /// [`iter`](VersionedSnapshot::iter). Either version may be the later one. Reads only the nodes on the
    /// paths to keys that changed.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchVersion`](crate::Error::NoSuchVersion), [`Error::Pool`](crate::Error::Pool) when the
    /// map is damaged.
    pub fn diff(&self, from: u64, to: u64) -> Result<Vec<VersionedChange>> {
        self.shared.pool.check_process()?;
        let (from, to) = (self.snapshot_at(from)?, self.snapshot_at(to)?);
        let mut changes = Vec::new();
        let owned = |value: Option<VersionedBytes<'_>>| value.map(|value| value.to_vec());
        differences(&from, &to, &mut |key, before, after| {
            changes.push(VersionedChange { key: key.to_vec(), before: owned(before), after: owned(after) });
            Ok(())
        })?;
        Ok(changes)
    }

    /// [`diff`](Self::diff) without copies: calls `visit` with each key that differs between two snapshots of
    /// this map and with its values in the first and the second, in the order of
    /// [`iter`](VersionedSnapshot::iter).
    ///
    /// # Errors
    ///
    /// The error of `visit`, and [`Error::Pool`](crate::Error::Pool) when the map is damaged.
    ///
    /// # Panics
    ///
    /// If a snapshot is of another map.
    pub fn for_each_change(
        &self,
        from: &VersionedSnapshot<S>,
        to: &VersionedSnapshot<S>,
        mut visit: impl FnMut(&[u8], Option<&[u8]>, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        assert!(from.is_of(self) && to.is_of(self), "a snapshot of another map");
        differences(from, to, &mut |key, before, after| visit(key, before.as_deref(), after.as_deref()))
    }
}

/// Calls `visit` with each key that differs between two snapshots of one map.
pub(super) fn differences<'m, S: VersionedStructure>(
    from: &'m VersionedSnapshot<S>,
    to: &'m VersionedSnapshot<S>,
    visit: &mut Visit<'_, 'm>,
) -> Result<()> {
    let earlier = from.top().number.min(to.top().number);
    S::differences(from.view(), to.view(), &from.shared().deferred_for(earlier), visit)
}
