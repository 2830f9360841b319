//! Going back: a new version with the contents of an older one.

use super::create::CddsMap;
use super::diff::differences;
use super::structure::CddsStructure;
use crate::error::Result;

impl<S: CddsStructure> CddsMap<S> {
    /// Makes a version that has what `version` has, which has to be held; returns its number. The versions in between stay as they
    /// are, for whoever holds them. Takes time that follows what changed since, not the size of the map; all of it is
    /// one transaction.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchVersion`](crate::Error::NoSuchVersion); [`Error::Pool`](crate::Error::Pool) when the pool is full,
    /// damaged, or open for reading only. Nothing has changed then.
    pub fn rollback_to(&self, version: u64) -> Result<u64> {
        let target = self.snapshot_at(version)?;
        let mut writing = self.shared.lock_writer();
        // Nothing else is made while the lock is held, so that this stays the newest.
        let newest = self.snapshot();
        let (_, version) = self.write(&mut writing, |work, tx| {
            differences(&newest, &target, &mut |key, _, wanted| {
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
