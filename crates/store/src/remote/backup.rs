//! Backups of a snapshot of another process.

use super::link::{Link, Opened, value_of};
use super::message::{Reply, Request, Which};
use super::snapshot::RemoteSnapshot;
use crate::backup::BackupSummary;
use crate::error::{Error, Result};
use std::io::Write;
use std::sync::Arc;

impl RemoteSnapshot {
    /// Writes the whole snapshot to a stream, as [`Snapshot::backup`](crate::Snapshot::backup). The owner
    /// makes the stream, and sends it over a connection of its own, which is one of the owner's clients
    /// meanwhile: this one goes on answering. Takes memory for a part of 128 KiB, however long a value is.
    ///
    /// # Errors
    ///
    /// As there; [`Error::Refused`] if the owner takes no more clients; [`Error::Disconnected`].
    pub fn backup(&self, to: impl Write) -> Result<BackupSummary> {
        self.write_backup(None, to)
    }

    /// Writes what has changed since an earlier snapshot, as
    /// [`Snapshot::backup_since`](crate::Snapshot::backup_since).
    ///
    /// # Errors
    ///
    /// As there, and as for [`backup`](Self::backup).
    pub fn backup_since(&self, base: &RemoteSnapshot, to: impl Write) -> Result<BackupSummary> {
        if !Arc::ptr_eq(&self.opened.link, &base.opened.link) {
            return Err(Error::OtherStore { name: base.opened.link.name.clone() });
        }
        self.write_backup(Some(base), to)
    }

    fn write_backup(&self, base: Option<&RemoteSnapshot>, mut to: impl Write) -> Result<BackupSummary> {
        let writing = |source| Error::Io { doing: "writing the backup", source };
        let link: Arc<Link> = Arc::new(self.opened.link.another()?);
        // They are open on this connection, too, so that the owner has them.
        let open =
            |snapshot: &RemoteSnapshot| Opened::ask(&link, &Request::Open(Which::At(snapshot.number())));
        let (base, this) = (base.map(open).transpose()?, open(self)?);
        let request = Request::Backup { open: this.id, base: base.as_ref().map(|base| base.id) };
        let reply = link.ask_parts(&request, |part| to.write_all(part).map_err(writing));
        let summary = value_of!(reply, Reply::BackedUp(summary) => summary)?;
        to.flush().map_err(writing)?;
        Ok(summary)
    }
}
