//! Going through the keys of a database in order.
//!
//! Only the committed state of a map can be walked, so a command that walks first has the pending batch
//! committed. Within EXEC that would tear the transaction apart. There, everything before EXEC is committed,
//! and the transaction's own changes are *noted*: a walk merges the committed keys with the noted ones.

use std::ops::{Bound, ControlFlow};

use super::Keyspace;
use super::format::{Kind, Stored};
use crate::fault::{Answer, Fault};

impl Keyspace<'_> {
    /// From now on, [`walk`](Self::walk) sees what the batch changes. There must be no batch.
    pub(crate) fn begin_noting(&mut self) {
        debug_assert!(self.batch.is_none(), "its changes so far would not be seen");
        self.changes = Some(Box::default());
    }

    pub(crate) fn end_noting(&mut self) {
        self.changes = None;
    }

    /// Returns [`Fault::NeedsCommit`] unless walks see every change.
    pub(crate) fn expect_committed(&self) -> Answer {
        if self.batch.is_some() && self.changes.is_none() { Err(Fault::NeedsCommit) } else { Ok(()) }
    }

    /// Gives the places of the keys from `begin` on to `visit`, in order, each with its type if it is live,
    /// until it breaks. The [`layout`](Self::layout) has the key of a place.
    ///
    /// # Errors
    /// [`Fault::NeedsCommit`] if there is a batch whose changes are not noted.
    pub(crate) fn walk(
        &self,
        database: usize,
        begin: Bound<&[u8]>,
        mut visit: impl FnMut(&[u8], Option<Kind>) -> ControlFlow<()>,
    ) -> Answer {
        self.expect_committed()?;
        let Some(maps) = self.databases[database].as_deref() else {
            return Ok(());
        };
        let bounds = (begin, Bound::Unbounded);
        let changes = self.changes.as_deref();
        let mut changed = changes.map(|changes| changes.keys[database].range::<[u8], _>(bounds).peekable());
        let cleared = changes.is_some_and(|changes| changes.cleared[database]);
        let committed = (!cleared).then(|| maps.data.range::<&[u8]>(bounds));
        for entry in committed.into_iter().flatten() {
            let entry = entry?;
            let mut is_changed = false;
            while let Some(key) =
                changed.as_mut().and_then(|keys| keys.next_if(|key| &key[..] <= entry.key()))
            {
                is_changed = &key[..] == entry.key();
                if self.visit_changed(database, key, &mut visit)?.is_break() {
                    return Ok(());
                }
            }
            if !is_changed && visit(entry.key(), self.live_kind(&Stored::decode(entry.value())?)).is_break() {
                return Ok(());
            }
        }
        for key in changed.into_iter().flatten() {
            if self.visit_changed(database, key, &mut visit)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Visits a key that the batch has changed, if it is still there.
    fn visit_changed(
        &self,
        database: usize,
        key: &[u8],
        visit: &mut impl FnMut(&[u8], Option<Kind>) -> ControlFlow<()>,
    ) -> Answer<ControlFlow<()>> {
        let (Some(maps), Some(batch)) = (self.databases[database].as_deref(), self.batch.as_ref()) else {
            return Ok(ControlFlow::Continue(()));
        };
        match batch.get(&maps.data, key)? {
            Some(value) => Ok(visit(key, self.live_kind(&Stored::decode(value)?))),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    /// Whether walks of this database may find other keys than the committed ones.
    pub(super) fn has_noted(&self, database: usize) -> bool {
        self.changes
            .as_deref()
            .is_some_and(|changes| changes.cleared[database] || !changes.keys[database].is_empty())
    }
}
