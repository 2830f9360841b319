//! Rollback: a new version with the contents of an older one.

use super::diff::differences;
use super::map::VersionedMap;
use super::structure::VersionedStructure;
use crate::error::Result;

impl<S: VersionedStructure> VersionedMap<S> {
    /// Makes a version with the contents of `version`, which must be held; returns its number. The versions
    /// in between stay unchanged for their holders. Takes time in proportion to the changes since then, not
    /// to the size of the map; all of it is one transaction.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchVersion`](crate::Error::NoSuchVersion); [`Error::Pool`](crate::Error::Pool) when the
    /// pool is full, damaged, or open for reading only. After an error nothing has changed.
    pub fn rollback_to(&self, version: u64) -> Result<u64> {
        let target = self.snapshot_at(version)?;
        let mut writing = self.lock_writer()?;
        // No version is made while the lock is held, so this stays the newest.
        let newest = self.snapshot();
        let (_, version) = self.write(&mut writing, |builder, tx| {
            // Copies are needed: in a damaged pool, borrowed bytes may lie where new data is written.
            let (mut own_key, mut own_value) = (Vec::new(), Vec::new());
            differences(&newest, &target, &mut |key, _, wanted| {
                own_key.clear();
                own_key.extend_from_slice(key);
                match wanted {
                    Some(value) => {
                        own_value.clear();
                        own_value.extend_from_slice(&value);
                        builder.put(tx, &own_key, &own_value)?
                    }
                    None => builder.remove(tx, &own_key)?,
                };
                Ok(())
            })
        })?;
        Ok(version)
    }
}
