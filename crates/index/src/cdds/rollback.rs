//! Going back: a new version with the contents of an older one.

use super::create::CddsTree;
use super::diff::differences;
use crate::error::Result;

impl CddsTree {
    /// Makes a version that has what `version` has, which has to be held; returns its number. The versions in between stay as they
    /// are, for whoever holds them. Takes time that follows what changed since, not the size of the tree; all of it is
    /// one transaction.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchVersion`](crate::Error::NoSuchVersion); [`Error::Pool`](crate::Error::Pool) when the pool is full,
    /// damaged, or open for reading only. Nothing has changed then.
    pub fn rollback_to(&self, version: u64) -> Result<u64> {
        let target = self.snapshot_at(version)?;
        let shared = &*self.shared;
        let mut writing = shared.lock_writer();
        // Nothing else is made while the lock is held, so that this stays the newest.
        let newest = self.snapshot();
        let (_, version) = shared.write(&mut writing, |work, tx| {
            differences(newest.view(), target.view(), |key, _, wanted| {
                match wanted {
                    Some(value) => work.put(tx, key, &value)?,
                    None => work.remove(tx, key)?,
                };
                Ok(())
            })
        })?;
        Ok(version)
    }
}
