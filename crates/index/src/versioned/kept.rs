//! Snapshots with names, which survive the closing of the pool.

use super::kept_list::{KeptSnapshot, KeptVersion, listed};
use super::layout::{KEPT_BYTES, MAX_NAME_BYTES, at};
use super::map::VersionedMap;
use super::snapshot::VersionedSnapshot;
use super::structure::VersionedStructure;
use crate::error::{Error, Result};

impl<S: VersionedStructure> VersionedMap<S> {
    /// Gives a snapshot a name. It then survives the closing of the pool, until
    /// [`drop_kept`](Self::drop_kept). Costs one fence, and no space for anything that the version shares
    /// with others.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if the name is taken, [`Error::SnapshotName`] if it is not 1 to 255 bytes long,
    /// [`Error::Pool`].
    ///
    /// # Panics
    ///
    /// If the snapshot is of another map.
    pub fn keep(&self, snapshot: &VersionedSnapshot<S>, name: &str) -> Result<()> {
        assert!(snapshot.is_of(self), "a snapshot of another map");
        if name.is_empty() || name.len() as u64 > MAX_NAME_BYTES {
            return Err(Error::SnapshotName { name: name.to_owned(), max_bytes: MAX_NAME_BYTES });
        }
        let shared = &*self.shared;
        let mut writing = self.lock_writer()?;
        let mut kept = shared.kept.lock();
        if kept.iter().any(|kept| kept.name == name) {
            return Err(Error::Exists { name: name.to_owned() });
        }
        let Some(lane) = &mut writing.lane else { return Err(tembo_pool::ErrorKind::ReadOnly.into()) };
        let version = snapshot.top();
        let next = kept.first().map_or(0, |kept| kept.off);
        let words = [next, version.number, version.root.0, version.length, name.len() as u64];
        let mut image: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        image.extend_from_slice(name.as_bytes());
        let mut tx = lane.begin();
        let off = tx.alloc(KEPT_BYTES + name.len() as u64)?;
        tx.write_fresh(off, &image)?;
        // From now on media alone must be enough to compare this version.
        shared.deferred_for(version.number).store(&mut tx)?;
        // PERSIST(I5): the record that stores this word covers the block.
        tx.store(shared.header + at!(PmVersionedHead.kept), off)?;
        tx.store(shared.header + at!(PmVersionedHead.kept_count), kept.len() as u64 + 1)?;
        tx.commit()?;
        kept.insert(0, KeptSnapshot { name: name.to_owned(), version, off });
        Ok(())
    }

    /// The named snapshots, in the order in which they were made.
    pub fn kept(&self) -> Vec<KeptVersion> {
        self.shared.pool.assert_process();
        listed(&self.shared.kept.lock())
    }

    /// The snapshot of this name, if there is one.
    pub fn kept_snapshot(&self, name: &str) -> Option<VersionedSnapshot<S>> {
        self.shared.pool.assert_process();
        let kept = self.shared.kept.lock();
        let found = kept.iter().find(|kept| kept.name == name)?;
        // The lock of the named snapshots keeps it from being dropped before it is held.
        Some(VersionedSnapshot::hold(&self.shared, found.version))
    }

    /// Drops a named snapshot; returns whether there was one. Its version stays as long as other snapshots
    /// hold it. [`collect`](Self::collect) frees the blocks that it alone needs. Costs one fence.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`].
    pub fn drop_kept(&self, name: &str) -> Result<bool> {
        let shared = &*self.shared;
        let mut writing = self.lock_writer()?;
        let mut kept = shared.kept.lock();
        let Some(idx) = kept.iter().position(|kept| kept.name == name) else { return Ok(false) };
        let Some(lane) = &mut writing.lane else { return Err(tembo_pool::ErrorKind::ReadOnly.into()) };
        let next = kept.get(idx + 1).map_or(0, |next| next.off);
        let link = match idx.checked_sub(1) {
            None => shared.header + at!(PmVersionedHead.kept),
            Some(before) => kept[before].off + at!(PmVersionedKept.next),
        };
        let mut tx = lane.begin();
        tx.store(link, next)?;
        tx.store(shared.header + at!(PmVersionedHead.kept_count), kept.len() as u64 - 1)?;
        tx.free(kept[idx].off)?;
        tx.commit()?;
        kept.remove(idx);
        Ok(true)
    }
}
