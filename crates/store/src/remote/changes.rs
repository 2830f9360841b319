//! Changes between two snapshots of a store of another process.

use super::client::RemoteStore;
use super::link::{Opened, value_of};
use super::message::{Reply, Request};
use super::snapshot::{RemoteKeyspace, RemoteSnapshot};
use crate::changes::Change;
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::iter::FusedIterator;
use std::sync::Arc;

/// The keys of a keyspace that differ between two snapshots, in their order ([`RemoteStore::changes`]). Owns
/// both. Fetches pages; after an error it ends.
pub struct RemoteChanges {
    from: Arc<Opened>,
    to: Arc<Opened>,
    keyspace: u64,
    /// The last key that the owner has looked at.
    after: Option<Vec<u8>>,
    is_fetched: bool,
    found: VecDeque<Change>,
}

impl RemoteStore {
    /// The keys of a keyspace whose values differ between two snapshots, as
    /// [`Store::changes`](crate::Store::changes). The first page is fetched by the first step. The owner
    /// looks at some thousand keys for a page, whether they have changed or not.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`] if one is of another connection; the walk gives the others.
    pub fn changes(
        &self,
        from: &RemoteSnapshot,
        to: &RemoteSnapshot,
        keyspace: &RemoteKeyspace,
    ) -> Result<RemoteChanges> {
        keyspace.check(&self.link)?;
        for snapshot in [from, to] {
            if !Arc::ptr_eq(&snapshot.opened.link, &self.link) {
                return Err(Error::OtherStore { name: snapshot.opened.link.name.clone() });
            }
        }
        Ok(RemoteChanges {
            from: from.opened.clone(),
            to: to.opened.clone(),
            keyspace: keyspace.id(),
            after: None,
            is_fetched: false,
            found: VecDeque::new(),
        })
    }
}

impl RemoteChanges {
    fn fill(&mut self) -> Result<()> {
        while !self.is_fetched && self.found.is_empty() {
            let (from, to, keyspace) = (self.from.id, self.to.id, self.keyspace);
            let request = Request::Changes { from, to, keyspace, after: self.after.as_deref() };
            let reply = self.from.link.ask(&request);
            let (changes, next) = value_of!(reply, Reply::Changes { changes, next } => (changes, next))?;
            // An owner that gave the same place again would be asked for ever.
            if next.is_some() && next <= self.after {
                return Err(super::link::other_reply());
            }
            self.is_fetched = next.is_none();
            (self.found, self.after) = (changes.into(), next);
        }
        Ok(())
    }
}

impl Iterator for RemoteChanges {
    type Item = Result<Change>;

    fn next(&mut self) -> Option<Result<Change>> {
        match self.fill() {
            Ok(()) => self.found.pop_front().map(Ok),
            Err(e) => {
                self.is_fetched = true;
                Some(Err(e))
            }
        }
    }
}

impl FusedIterator for RemoteChanges {}

impl std::fmt::Debug for RemoteChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteChanges").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}
