//! Writing a backup.

use super::frames::Frames;
use super::{CHANGES, DELETED, END, HEADER, KEYSPACE};
use crate::error::{Error, Result};
use crate::handle::Store;
use crate::keyspace::Keyspace;
use crate::snapshot::Snapshot;
use std::io::Write;
use std::sync::Arc;

/// Bytes of changes after which a frame is written.
const FRAME_BYTES: usize = 64 << 10;

/// The numbers of a backup that was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupSummary {
    /// Keyspaces.
    pub keyspaces: u64,
    /// Keys with their values; in a difference, also keys that were deleted.
    pub changes: u64,
}

impl Snapshot {
    /// Writes the whole snapshot to a stream, from which [`Store::restore`] makes a store. Others go on
    /// writing to the store meanwhile. It has what the snapshot has: the values of all keyspaces that were
    /// not dropped since, and neither their history nor the snapshots that are kept.
    ///
    /// Writes pieces of some 64 KiB, and one for each longer value.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] of the writer; [`Error::KeyspaceDropped`] if that happens meanwhile; as for
    /// [`iter`](Self::iter). What was written before an error is no backup, and is refused as such.
    pub fn backup(&self, to: impl Write) -> Result<BackupSummary> {
        self.write_backup(None, to)
    }

    /// Writes what has changed since an earlier snapshot: keys with other values, deleted ones, and new and
    /// dropped keyspaces. [`Store::restore`] takes it after a backup of that snapshot. Looks at all keys, and
    /// reads the values of those that were written between the snapshots ([`Store::changes`]).
    ///
    /// # Errors
    ///
    /// As for [`backup`](Self::backup), and [`Error::BackupOrder`] if `base` is later than this one,
    /// [`Error::OtherStore`] if it is one of another store.
    pub fn backup_since(&self, base: &Snapshot, to: impl Write) -> Result<BackupSummary> {
        if !Arc::ptr_eq(&self.store, &base.store) {
            return Err(Error::OtherStore { name: base.store.name.clone() });
        }
        if base.number() > self.number() {
            let why = format!(
                "snapshot {} is later than {}, whose backup this is to be",
                base.number(),
                self.number()
            );
            return Err(Error::BackupOrder { why });
        }
        self.write_backup(Some(base), to)
    }

    fn write_backup(&self, base: Option<&Snapshot>, to: impl Write) -> Result<BackupSummary> {
        let store = Store { inner: self.store.clone() };
        let mut frames = Frames::new(to)?;
        let mut header = self.store.pool.uuid().as_bytes().to_vec();
        header.extend_from_slice(&base.map_or(0, Snapshot::number).to_le_bytes());
        header.extend_from_slice(&self.number().to_le_bytes());
        header.extend_from_slice(store.name().as_bytes());
        frames.write(HEADER, &header)?;
        let mut summary = BackupSummary::default();
        for name in store.keyspaces()? {
            let found = store.find_keyspace(&name)?;
            let keyspace = found.ok_or(Error::KeyspaceDropped { name })?;
            summary.keyspaces += 1;
            summary.changes += self.write_keyspace(&store, &keyspace, base, &mut frames)?;
        }
        let counts = [summary.keyspaces.to_le_bytes(), summary.changes.to_le_bytes()];
        frames.write(END, counts.as_flattened())?;
        frames.finish()?;
        Ok(summary)
    }

    /// Returns how many changes were written.
    fn write_keyspace(
        &self,
        store: &Store,
        keyspace: &Keyspace,
        base: Option<&Snapshot>,
        frames: &mut Frames<impl Write>,
    ) -> Result<u64> {
        let mut head = keyspace.inner.id.to_le_bytes().to_vec();
        head.extend_from_slice(&keyspace.retention().encode().to_le_bytes());
        head.extend_from_slice(keyspace.name().as_bytes());
        frames.write(KEYSPACE, &head)?;
        let (mut count, mut contents) = (0, Vec::with_capacity(FRAME_BYTES));
        let mut write = |key: &[u8], value: Option<&[u8]>| {
            let value_bytes = value.map_or(DELETED, |value| value.len() as u32);
            contents.extend_from_slice(&(key.len() as u32).to_le_bytes());
            contents.extend_from_slice(&value_bytes.to_le_bytes());
            contents.extend_from_slice(key);
            contents.extend_from_slice(value.unwrap_or_default());
            count += 1;
            if contents.len() >= FRAME_BYTES {
                frames.write(CHANGES, &contents)?;
                contents.clear();
            }
            Ok::<(), Error>(())
        };
        match base {
            None => {
                for entry in self.iter(keyspace)? {
                    let (key, value) = entry?;
                    write(&key, Some(&value))?;
                }
            }
            Some(base) => {
                for change in store.changes(base, self, keyspace)? {
                    let change = change?;
                    write(&change.key, change.after.as_deref())?;
                }
            }
        }
        if !contents.is_empty() {
            frames.write(CHANGES, &contents)?;
        }
        Ok(count)
    }
}
