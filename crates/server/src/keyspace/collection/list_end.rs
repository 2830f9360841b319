//! The end of a list in memory, between two commands of one batch.
//!
//! A push or a pop at an end writes the chunk there and the key's value anew. Where one follows another at
//! the same end of the same list, as in a pipeline that fills a queue, only the last ones matter. A command
//! that has pushed or popped therefore leaves the chunk here, the commands that follow change it in memory,
//! and the batch gets it before the commit, or before any other command runs.
//!
//! # Invariants
//!
//! - E1: an end that is kept is that of the list as the batch has it, but for changes since, if it is
//!   *changed* (`is_changed`). It is dropped with the batch, and when something is taken back.
//! - E2: no command but those of this module runs while an end is changed, and none commits: they come after
//!   [`Keyspace::store_end`].
//! - E3: a change here cannot fail. It needs no other chunk, and leaves neither the chunk nor the list empty.
//!   The list has no deadline.
//!
//! If there is no room for an end when it is stored, the commit fails, like any other in a full pool: all
//! commands of the batch are answered so, and nothing of them has happened. An end that has lost elements may
//! take of the space that is kept for removals.

use super::list::{Chunk, Chunks};
use super::{Body, Collection};
use crate::keyspace::events::class;
use crate::keyspace::format::{LargePayload, Prefix};
use crate::keyspace::{Keyspace, note};

/// An end of a list.
#[derive(Debug)]
pub(crate) struct ListEnd {
    key: Vec<u8>,
    left: bool,
    list: Collection,
    chunk: Chunk,
    /// Where each item of the chunk begins, for pops at the right end; empty until it is needed.
    starts: Vec<usize>,
    is_changed: bool,
    /// How many elements the list had as the batch has it.
    count_before: u64,
}

impl ListEnd {
    fn count(&mut self) -> Option<(u64, &mut u64)> {
        match &mut self.list.body {
            Body::Large { id, count } => Some((*id, count)),
            Body::Packed(_) => None,
        }
    }

    fn is_of(&self, database: usize, key: &[u8], left: bool) -> bool {
        self.left == left && self.list.database == database && self.key == key
    }

    /// Pushes an element, if there is room in the chunk; returns how many the list has.
    fn push(&mut self, element: &[u8]) -> Option<u64> {
        if !self.chunk.takes(element) {
            return None;
        }
        let items = &mut self.chunk.items;
        if self.left {
            items.insert(0, element);
        } else {
            if !self.starts.is_empty() {
                self.starts.push(items.as_bytes().len());
            }
            items.insert(items.count(), element);
        }
        self.is_changed = true;
        let (_, count) = self.count()?;
        *count += 1;
        Some(*count)
    }

    /// Pops an element, if another one is left in the chunk, and gives it to `visit`.
    fn pop(&mut self, visit: impl FnOnce(&[u8])) -> Option<()> {
        let items = &mut self.chunk.items;
        if items.count() < 2 {
            return None;
        }
        if self.left {
            visit(items.nth(0)?);
            items.cut(0..1);
        } else {
            if self.starts.is_empty() {
                self.starts = items.starts();
            }
            items.cut_last(self.starts.pop()?, visit);
        }
        self.is_changed = true;
        let (_, count) = self.count()?;
        *count = count.saturating_sub(1);
        Some(())
    }
}

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
        let is_its = matches!(list.body, Body::Large { id, .. } if id == of);
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
