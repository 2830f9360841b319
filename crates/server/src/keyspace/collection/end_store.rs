//! The store of a list's end: see [`super::list_end`].

use super::list::Chunks;
use super::list_end::ListEnd;
use super::value::{Collection, CollectionBody};
use crate::keyspace::Keyspace;
use crate::keyspace::changes::note;
use crate::keyspace::events::class;
use crate::keyspace::format::{LargePayload, Prefix};

impl Keyspace<'_> {
    /// Whether an end is kept.
    #[inline(always)]
    pub(crate) fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// Forgets the end that is kept, which is not changed.
    #[inline(always)]
    pub(crate) fn drop_end(&mut self) {
        debug_assert!(self.end.as_ref().is_none_or(|end| !end.is_changed), "an end is stored first (E2)");
        self.end = None;
    }

    /// Keeps the end at which a large list was changed, which is stored.
    pub(crate) fn keep_end(&mut self, key: &[u8], left: bool, list: Option<Collection>) {
        let last = self.last_chunk.take();
        let (Some(list), Some((of, chunk))) = (list, last) else {
            return;
        };
        let is_its = matches!(list.body, CollectionBody::Large { id, .. } if id == of);
        if is_its && list.meta.deadline.is_none() && chunk.items.count() > 0 {
            let (key, count_before, starts) = (key.to_vec(), list.len(), Vec::new());
            let end = ListEnd { key, left, list, chunk, starts, is_changed: false, count_before };
            self.end = Some(Box::new(end));
        }
    }

    /// Pushes an element at the end that is kept, if it is this one and has room; returns how many elements
    /// the list then has.
    pub(crate) fn push_at_end(
        &mut self,
        database: usize,
        key: &[u8],
        left: bool,
        element: &[u8],
    ) -> Option<u64> {
        let end = self.end.as_mut().filter(|end| end.is_of(database, key, left))?;
        let count = end.push(element)?;
        self.note_end_changed(database, key, if left { "lpush" } else { "rpush" });
        Some(count)
    }

    /// Pops an element at the end that is kept, if it is this one, and gives it to `visit`.
    pub(crate) fn pop_at_end(
        &mut self,
        database: usize,
        key: &[u8],
        left: bool,
        visit: impl FnOnce(&[u8]),
    ) -> Option<()> {
        let end = self.end.as_mut().filter(|end| end.is_of(database, key, left))?;
        end.pop(visit)?;
        self.note_end_changed(database, key, if left { "lpop" } else { "rpop" });
        Some(())
    }

    /// Tells of a change as [`Keyspace::put`] does.
    fn note_end_changed(&mut self, database: usize, key: &[u8], event: &str) {
        self.touch(database, key);
        self.waiters.touch(database, key);
        note(&mut self.changes, database, self.layout.place(key, &mut self.place));
        self.notify(class::LIST, event, database, key);
    }

    /// Lets the batch have the end that is kept, and forgets it, unless that fails.
    ///
    /// # Errors
    /// There is no room. The end is as before, and the batch is to be given up.
    pub(crate) fn store_end(&mut self) -> Result<(), tembo::Error> {
        let Some(end) = self.end.as_deref_mut().filter(|end| end.is_changed) else {
            self.end = None;
            return Ok(());
        };
        let meta = end.list.meta;
        let (Some((id, count)), Some(batch), Some(collections)) =
            (end.count(), self.batch.as_mut(), &self.collections)
        else {
            unreachable!("a large list was opened in this batch");
        };
        let (payload, frees) = (LargePayload::encode(meta, id, *count), *count <= end.count_before);
        Chunks::new(batch, &collections.lists, id).put_chunk(&end.chunk, frees)?;
        let Some(maps) = self.databases[end.list.database].as_deref() else {
            unreachable!("a list has a database");
        };
        let (prefix, place) = (Prefix::encode(meta), self.layout.place(&end.key, &mut self.place));
        if frees {
            batch.put_to_free(&maps.data, place, &[prefix.as_bytes(), payload.as_bytes()].concat())?;
        } else {
            batch.put_parts(&maps.data, place, &[prefix.as_bytes(), payload.as_bytes()])?;
        }
        self.end = None;
        Ok(())
    }
}
