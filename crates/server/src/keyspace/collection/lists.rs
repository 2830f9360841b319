//! Lists of a keyspace: see [`super::list`].

use std::ops::{ControlFlow, Range};

use super::list::{Chunks, cut_end};
use super::packed::{Packed, elements};
use super::parts::Construction;
use super::value::{Collection, CollectionBody, PACKED_BYTES_MAX};
use crate::fault::{Answer, Fault};
use crate::keyspace::Keyspace;
use crate::keyspace::batch::writer;

/// Elements that a list gets together that is built in parts.
const PUSHED_AT_ONCE: usize = if cfg!(test) { 3 } else { 1024 };

impl<'p> Keyspace<'p> {
    pub(super) fn chunks(&mut self, database: usize, id: u64) -> Answer<Chunks<'_, 'p>> {
        let Keyspace { pool, batch, collections, .. } = self;
        let maps = collections.as_ref().ok_or(Fault::MissingDatabase(database))?;
        Ok(Chunks { batch: writer(pool, batch)?, map: &maps.lists, id })
    }

    /// Adds elements at an end of a list, one after the other.
    pub(crate) fn push<'e>(
        &mut self,
        list: &mut Collection,
        left: bool,
        new: impl IntoIterator<Item = &'e [u8]>,
    ) -> Answer {
        let mut new = new.into_iter();
        list.head_changed = true;
        self.last_chunk = None;
        if let CollectionBody::Packed(packed) = &mut list.body {
            for element in new.by_ref() {
                packed.insert(if left { 0 } else { packed.count() }, element);
                if packed.as_bytes().len() > PACKED_BYTES_MAX {
                    break;
                }
            }
        }
        self.grow(list)?;
        if list.construction != Construction::None && !self.parts.in_one_batch {
            return self.push_in_parts(list, left, &mut new);
        }
        if let CollectionBody::Large { id, count } = &mut list.body {
            let last = self.chunks(list.database, *id)?.push(count, left, &mut new)?;
            self.last_chunk = last.map(|chunk| (*id, chunk));
        }
        Ok(())
    }

    fn push_in_parts(
        &mut self,
        list: &mut Collection,
        left: bool,
        new: &mut dyn Iterator<Item = &[u8]>,
    ) -> Answer {
        let mut new = new.peekable();
        while let CollectionBody::Large { id, count } = &mut list.body
            && new.peek().is_some()
        {
            let mut part = new.by_ref().take(PUSHED_AT_ONCE);
            _ = self.chunks(list.database, *id)?.push(count, left, &mut part)?;
            self.commit_part(list)?;
        }
        Ok(())
    }

    /// Makes a packed list that has become too long a large one.
    fn grow(&mut self, list: &mut Collection) -> Answer {
        match &list.body {
            CollectionBody::Packed(packed) if packed.as_bytes().len() > PACKED_BYTES_MAX => {
                self.make_large(list)
            }
            _ => Ok(()),
        }
    }

    /// Removes up to `wanted` elements from an end of a list, and returns them in this order.
    pub(crate) fn pop(&mut self, list: &mut Collection, left: bool, wanted: u64) -> Answer<Vec<Vec<u8>>> {
        list.head_changed = true;
        self.last_chunk = None;
        match &mut list.body {
            CollectionBody::Packed(packed) => {
                let mut popped = Vec::new();
                cut_end(packed, left, wanted, &mut popped);
                Ok(popped)
            }
            CollectionBody::Large { id, count } => {
                let (popped, last) = self.chunks(list.database, *id)?.pop(count, left, wanted)?;
                self.last_chunk = last.map(|chunk| (*id, chunk));
                Ok(popped)
            }
        }
    }

    /// The element of an index.
    pub(crate) fn element_at(&mut self, list: &Collection, index: u64) -> Answer<Option<Vec<u8>>> {
        match &list.body {
            _ if index >= list.len() => Ok(None),
            CollectionBody::Packed(packed) => Ok(packed.nth(index as usize).map(<[u8]>::to_vec)),
            CollectionBody::Large { id, .. } => {
                let (chunk, start) = self.chunks(list.database, *id)?.at(index)?;
                Ok(chunk.items.nth((index - start) as usize).map(<[u8]>::to_vec))
            }
        }
    }

    /// Gives the elements of a list from an index on, each with its index, to `visit`, until it breaks.
    pub(crate) fn walk_list(
        &mut self,
        list: &Collection,
        from: u64,
        mut visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Answer {
        if from >= list.len() {
            return Ok(());
        }
        match &list.body {
            CollectionBody::Packed(packed) => {
                let mut rest = (0..).zip(elements(packed.as_bytes())).skip(from as usize);
                _ = rest.try_for_each(|(index, element)| visit(index, element));
                Ok(())
            }
            CollectionBody::Large { id, .. } => {
                let chunks = self.chunks(list.database, *id)?;
                let (chunk, mut index) = chunks.at(from)?;
                chunks.walk(chunk.place..=u64::MAX, |chunk| {
                    elements(chunk.items).try_for_each(|element| {
                        index += 1;
                        if index > from { visit(index - 1, element) } else { ControlFlow::Continue(()) }
                    })
                })
            }
        }
    }

    /// Changes the items that have the element of an index, which exists; `change` gets its index in them.
    fn change_at(
        &mut self,
        list: &mut Collection,
        index: u64,
        change: impl FnOnce(&mut Packed, usize),
    ) -> Answer {
        list.note_change();
        match &mut list.body {
            CollectionBody::Packed(packed) => change(packed, index as usize),
            CollectionBody::Large { id, count } => {
                let mut chunks = self.chunks(list.database, *id)?;
                let (mut chunk, start) = chunks.at(index)?;
                let before = chunk.items.count();
                change(&mut chunk.items, (index - start) as usize);
                chunks.write(&chunk)?;
                *count += (chunk.items.count() - before) as u64;
                list.head_changed |= chunk.items.count() != before;
            }
        }
        self.grow(list)
    }

    /// Gives the element of an index, which is there, another value.
    pub(crate) fn set_at(&mut self, list: &mut Collection, index: u64, element: &[u8]) -> Answer {
        self.change_at(list, index, |items, index| {
            items.cut(index..index + 1);
            items.insert(index, element);
        })
    }

    /// Inserts an element before the one of an index, which is there, or behind it.
    pub(crate) fn insert_at(
        &mut self,
        list: &mut Collection,
        index: u64,
        behind: bool,
        element: &[u8],
    ) -> Answer {
        self.change_at(list, index, |items, index| items.insert(index + usize::from(behind), element))
    }

    /// Keeps only the elements of a range of indices. A large list of which nothing is kept is given up like
    /// one that is deleted.
    pub(crate) fn trim(&mut self, list: &mut Collection, keep: Range<u64>) -> Answer {
        let keep = keep.start..keep.end.min(list.len());
        list.head_changed = true;
        if keep.is_empty() {
            list.abandon();
            return Ok(());
        }
        if self.trim_by_copy(list, keep.clone())? {
            return Ok(());
        }
        match &mut list.body {
            CollectionBody::Packed(packed) => {
                packed.cut(keep.end as usize..packed.count());
                packed.cut(0..keep.start as usize);
            }
            CollectionBody::Large { id, count } => {
                self.chunks(list.database, *id)?.trim(*count, keep.clone())?;
                *count = keep.end - keep.start;
            }
        }
        Ok(())
    }

    /// Removes the elements of these indices, which are in order.
    pub(crate) fn remove_at(&mut self, list: &mut Collection, indices: &[u64]) -> Answer {
        list.head_changed = true;
        match &mut list.body {
            CollectionBody::Packed(packed) => {
                for index in indices.iter().rev() {
                    packed.cut(*index as usize..*index as usize + 1);
                }
            }
            CollectionBody::Large { id, count } => {
                self.chunks(list.database, *id)?.remove(indices)?;
                *count = count.saturating_sub(indices.len() as u64);
            }
        }
        Ok(())
    }
}
