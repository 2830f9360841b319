//! Collections, whatever their type and their size: the one place that knows how they are kept.
//!
//! A command opens the collection under a key, reads or changes elements, and stores the collection at its
//! end. A hash's elements are fields with values, a set's are members, whose values are empty, and a sorted
//! set's are members whose values are scores. A list's have an order instead of names: [`list`] has what is
//! done with them. The layout and its invariants are in [`format`](super::format).
//!
//! # The threshold
//!
//! A change of a packed collection costs 3 lines and one for each 64 bytes of its payload, which is written
//! anew. One of a large hash costs 3 lines for another value (the element's record and the record word), and
//! 5 to 6 for a field more or less (also three words of a leaf, and the record of the key). All cost one
//! fence. An element that is a record takes some 45 bytes more than one that is packed. [`PACKED_BYTES_MAX`]
//! is where a packed collection costs not quite twice the lines of a large one, so that the usual hash of ten
//! fields is packed, and takes a third of the space. `tests.rs` has the counts.
//!
//! Redis's thresholds, by which OBJECT ENCODING answers, are others: a bit of the value remembers that they
//! were crossed.

#[cfg(test)]
mod addition_tests;
#[cfg(test)]
pub(crate) mod broken;
pub(crate) mod check;
pub(crate) mod construction;
pub(in crate::keyspace) mod counts;
pub(crate) mod element;
mod end_store;
mod keys;
pub(crate) mod list;
pub(crate) mod list_end;
#[cfg(test)]
mod list_tests;
mod lists;
pub(crate) mod ordered;
pub(crate) mod packed;
pub(crate) mod parts;
pub(crate) mod places;
pub(crate) mod position;
pub(crate) mod registry;
mod sample;
pub(crate) mod sorted;
#[cfg(test)]
mod sorted_tests;
#[cfg(test)]
mod tests;
pub(crate) mod value;

use std::ops::ControlFlow;

use super::Keyspace;
use super::batch::writer;
use super::entry::Old;
use super::events::class;
use super::format::{Kind, LargePayload};
use crate::fault::{Answer, Fault};
use element::Elements;
use ordered::Score;
use parts::Construction;
use value::{Collection, CollectionBody, PACKED_BYTES_MAX};

impl<'p> Keyspace<'p> {
    /// Opens the collection under a key for a command that reads, and counts a hit or a miss.
    ///
    /// # Errors
    /// WRONGTYPE if something else is under the key.
    pub(crate) fn read_collection(
        &mut self,
        database: usize,
        key: &[u8],
        kind: Kind,
    ) -> Answer<Option<Collection>> {
        match self.read(database, key)? {
            None => Ok(None),
            Some(stored) => {
                let opened = Collection::of(database, &stored.of(kind)?)?;
                self.counted(opened).map(Some)
            }
        }
    }

    /// Opens the collection under a key, or a new one, for a command that writes.
    ///
    /// # Errors
    /// WRONGTYPE if something else is under the key.
    pub(crate) fn collection(&mut self, database: usize, key: &[u8], kind: Kind) -> Answer<Collection> {
        let found = self.find(database, key)?;
        match found.live {
            None => Ok(Collection::new(database, kind, &found)),
            Some(stored) => {
                let opened = Collection::of(database, &stored.of(kind)?)?;
                self.counted(opened)
            }
        }
    }

    /// A new collection, to be stored in place of whatever is under a key. It may be built in parts: the
    /// command changes nothing else before it stores it.
    pub(crate) fn replacement(&mut self, database: usize, key: &[u8], kind: Kind) -> Answer<Collection> {
        let found = self.find(database, key)?;
        Ok(Collection::new(database, kind, &found).in_parts())
    }

    fn elements(&mut self, database: usize, kind: Kind) -> Answer<Elements<'_, 'p>> {
        let Keyspace { pool, batch, collections, .. } = self;
        let maps = collections.as_ref().ok_or(Fault::MissingDatabase(database))?;
        let ordered = (kind == Kind::SortedSet).then_some(&maps.ordered);
        Ok(Elements { batch: writer(pool, batch)?, map: &maps.elements, ordered, secret: maps.secret })
    }

    /// The value of a field; the empty one of a member.
    pub(crate) fn element<'a>(
        &'a mut self,
        collection: &'a Collection,
        field: &[u8],
    ) -> Answer<Option<&'a [u8]>> {
        match &collection.body {
            CollectionBody::Packed(packed) => Ok(packed.get(field)),
            CollectionBody::Large { id, .. } => {
                self.elements(collection.database, collection.meta.kind)?.get(*id, field)
            }
        }
    }

    /// Puts an element; returns whether its field was there. A packed collection that becomes too long
    /// becomes a large one.
    pub(crate) fn put_element(
        &mut self,
        collection: &mut Collection,
        field: &[u8],
        value: &[u8],
    ) -> Answer<bool> {
        let replaced = match &mut collection.body {
            CollectionBody::Packed(packed) if collection.meta.kind == Kind::SortedSet => {
                packed.put(field, &Score::read(value)?.to_bytes())
            }
            CollectionBody::Packed(packed) => packed.put(field, value),
            CollectionBody::Large { id, count } => {
                let replaced =
                    self.elements(collection.database, collection.meta.kind)?.put(*id, field, value)?;
                *count += u64::from(!replaced);
                replaced
            }
        };
        if !replaced {
            collection.note_count();
        }
        collection.note_change();
        if matches!(&collection.body, CollectionBody::Packed(packed) if packed.as_bytes().len() > PACKED_BYTES_MAX)
        {
            self.make_large(collection)?;
        }
        if collection.construction != Construction::None {
            self.commit_part(collection)?;
        }
        Ok(replaced)
    }

    /// Removes an element; returns whether it was there.
    pub(crate) fn remove_element(&mut self, collection: &mut Collection, field: &[u8]) -> Answer<bool> {
        self.remove_element_by(collection, field, None)
    }

    /// As [`remove_element`](Self::remove_element), of a sorted set's member whose score may be known.
    pub(super) fn remove_element_by(
        &mut self,
        collection: &mut Collection,
        field: &[u8],
        score: Option<Score>,
    ) -> Answer<bool> {
        let removed = match &mut collection.body {
            CollectionBody::Packed(packed) => packed.remove(field),
            CollectionBody::Large { id, count } => {
                let mut elements = self.elements(collection.database, collection.meta.kind)?;
                let removed = match score {
                    Some(score) => elements.remove_scored(*id, field, score)?,
                    None => elements.remove(*id, field)?,
                };
                *count = count.saturating_sub(u64::from(removed));
                removed
            }
        };
        if removed {
            collection.note_change();
            collection.note_count();
        }
        Ok(removed)
    }

    /// Gives the elements from a position on to `visit`, in order, each with its position, until it breaks.
    /// Those of a packed collection are in order of insertion, and their position is 0.
    pub(crate) fn walk_elements(
        &mut self,
        collection: &Collection,
        from: u32,
        mut visit: impl FnMut(u32, &[u8], &[u8]) -> ControlFlow<()>,
    ) -> Answer {
        match &collection.body {
            CollectionBody::Packed(packed) => {
                _ = packed.iter().try_for_each(|(field, value)| visit(0, field, value));
                Ok(())
            }
            CollectionBody::Large { .. } if collection.meta.kind == Kind::List => {
                self.walk_list(collection, 0, |_, element| visit(0, element, &[]))
            }
            CollectionBody::Large { id, .. } => {
                self.elements(collection.database, collection.meta.kind)?.walk(*id, from, |element| {
                    element.with_field(|field| visit(element.position, field, element.value))
                })
            }
        }
    }

    /// Gives the elements of a packed collection records of their own.
    fn make_large(&mut self, collection: &mut Collection) -> Answer {
        let CollectionBody::Packed(packed) = &collection.body else {
            return Ok(());
        };
        let (database, count) = (collection.database, packed.count() as u64);
        let id = self.new_collection(database)?;
        if collection.meta.kind == Kind::List {
            self.chunks(database, id)?.create(packed)?;
        } else {
            let mut elements = self.elements(database, collection.meta.kind)?;
            for (field, value) in packed.iter() {
                elements.put(id, field, value)?;
            }
        }
        collection.body = CollectionBody::Large { id, count };
        (collection.meta.large, collection.head_changed) = (true, true);
        collection.meta.uncounted = collection.meta.kind == Kind::SortedSet;
        Ok(())
    }

    fn new_collection(&mut self, database: usize) -> Answer<u64> {
        let Keyspace { pool, batch, collections, dirty, places, .. } = self;
        let maps = collections.as_ref().ok_or(Fault::MissingDatabase(database))?;
        *dirty = true;
        maps.create(writer(pool, batch)?, places.now.maps(database))
    }

    /// Puts a collection under its key, or removes the key if no elements are left.
    pub(crate) fn store(&mut self, key: &[u8], mut collection: Collection) -> Answer {
        let database = collection.database;
        let id = match &collection.body {
            CollectionBody::Large { id, .. } => Some(*id),
            CollectionBody::Packed(_) => None,
        };
        if collection.old.id == id {
            collection.old.id = None;
        }
        self.remember_count(&collection);
        if collection.len() == 0 {
            // One that is listed as under construction is removed by reclaiming.
            if let Some(id) = id {
                self.release(database, id)?;
            }
            return if collection.present { self.remove(database, key, collection.old) } else { Ok(()) };
        }
        if !collection.head_changed {
            if collection.changed {
                self.touch(database, key);
            }
            return Ok(());
        }
        self.end_construction(&mut collection)?;
        match &collection.body {
            CollectionBody::Packed(packed) => {
                self.put(database, key, collection.meta, collection.old, &[packed.as_bytes()])
            }
            CollectionBody::Large { id, count } => {
                collection.meta.uncounted = collection.meta.kind == Kind::SortedSet;
                let payload = LargePayload::encode(collection.meta, *id, *count);
                self.put(database, key, collection.meta, collection.old, &[payload.as_bytes()])
            }
        }
    }

    /// As [`store`](Self::store), for a collection that a command has changed. Notifies of the change and, if
    /// no elements are left, of the removal of the key.
    pub(crate) fn store_changed(&mut self, key: &[u8], collection: Collection, event: &str) -> Answer {
        let (database, is_empty) = (collection.database, collection.len() == 0);
        let class = match collection.meta.kind {
            Kind::String => class::STRING,
            Kind::Hash => class::HASH,
            Kind::Set => class::SET,
            Kind::SortedSet => class::SORTED_SET,
            Kind::List => class::LIST,
        };
        self.store(key, collection)?;
        self.notify(class, event, database, key);
        if is_empty {
            self.notify(class::GENERIC, "del", database, key);
        }
        Ok(())
    }

    /// Takes an id without elements off the list.
    fn release(&mut self, database: usize, id: u64) -> Answer {
        let Keyspace { pool, batch, collections, dirty, places, .. } = self;
        *dirty = true;
        match collections {
            Some(maps) => maps.release(writer(pool, batch)?, places.now.maps(database), id),
            None => Ok(()),
        }
    }

    /// Moves a key with its value and its deadline to another database, and replaces the key there. A large
    /// collection keeps its id, so that the time does not depend on its size. Returns whether the key
    /// existed.
    pub(crate) fn change_database(&mut self, from: usize, to: usize, key: &[u8]) -> Answer<bool> {
        let Some(stored) = self.find(from, key)?.live else {
            return Ok(false);
        };
        let (meta, old, payload) = (stored.meta, Old::of(&stored), stored.payload.to_vec());
        let replaced = self.find(to, key)?.old;
        if let Some(id) = old.id {
            let Keyspace { pool, batch, collections, dirty, places, .. } = self;
            let maps = collections.as_ref().ok_or(Fault::MissingDatabase(to))?;
            *dirty = true;
            maps.rehome(writer(pool, batch)?, places.now.maps(from), places.now.maps(to), id)?;
        }
        self.put(to, key, meta, replaced, &[&payload])?;
        self.remove(from, key, old.kept())?;
        Ok(true)
    }
}
