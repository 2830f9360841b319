//! Collections that are built in parts, each a commit of its own, so that neither memory nor a record of the
//! log grows with the result of a command: COPY, the STORE commands, commands with very many elements for a
//! new key, and those that keep a small part of a large collection.
//!
//! A part is committed once the batch has more than [`Parts::words_max`] words. No key has the id before the
//! last one: until then "db.collections" lists it as *under construction*. The last commit takes it off that
//! list, puts it on that of its home, and writes the value of the key. No other command runs in between.
//!
//! A part may hold nothing but elements of the new id: a command that finds changes of others in the batch is
//! run again after their commit. One that builds in parts changes nothing else before it stores the result.
//! Within EXEC, and for a client that waited, nothing is committed in the middle, and a collection is built
//! in one batch.
//!
//! # Recovery
//!
//! An id that is still listed as under construction when no command runs is one that was given up, by a crash
//! or an error: its elements are removed like those of a doomed one.

use std::collections::HashSet;

use foldhash::fast::RandomState;

use super::list::Chunks;
use super::parts::Construction;
use super::value::{Collection, CollectionBody};
use crate::fault::{Answer, Fault};
use crate::keyspace::Keyspace;
use crate::keyspace::batch::writer;
use crate::keyspace::entry::Old;
use crate::keyspace::format::{Kind, LargePayload};

/// If this many times as many elements are left as are removed, they are removed in place.
const LEFT_PER_REMOVED: u64 = 8;
impl Keyspace<'_> {
    /// Whether the command that failed just now had committed parts of a collection, which are to be
    /// reclaimed.
    pub(crate) fn gave_up_parts(&self) -> bool {
        self.parts.gave_up
    }

    /// Nothing may be committed in the middle of commands from now on, or it may again. Returns what held
    /// before.
    #[inline(always)]
    pub(crate) fn set_in_one_batch(&mut self, in_one_batch: bool) -> bool {
        std::mem::replace(&mut self.parts.in_one_batch, in_one_batch)
    }

    /// Lets collections be built in parts, each of which commits all other changes of the batch, too. For a
    /// caller that runs no commands, so that no client waits for a reply.
    pub(crate) fn set_parts_take_others(&mut self, words_max: usize) {
        (self.parts.in_one_batch, self.parts.takes_others) = (false, true);
        self.parts.words_max = words_max;
    }

    /// Commits the elements of a collection that is built in parts if the batch has become large.
    ///
    /// # Errors
    /// [`Fault::NeedsCommit`] if the batch has changes of other commands.
    pub(super) fn commit_part(&mut self, collection: &mut Collection) -> Answer {
        let CollectionBody::Large { id, .. } = collection.body else {
            return Ok(());
        };
        let is_large = self.pending_words() > self.parts.words_max;
        if collection.construction == Construction::None || !is_large || self.parts.in_one_batch {
            return Ok(());
        }
        if !self.parts.is_first && !self.parts.takes_others {
            return Err(Fault::NeedsCommit);
        }
        if collection.construction == Construction::InParts {
            let Keyspace { pool, batch, collections, places, .. } = self;
            let maps = collections.as_ref().ok_or(Fault::Malformed)?;
            maps.begin_construction(writer(pool, batch)?, places.now.maps(collection.database), id)?;
            collection.construction = Construction::Listed;
        }
        // If the command fails from here on, there is something to give back.
        (self.dirty, self.reclaiming) = (true, true);
        self.end_command();
        self.commit()?;
        self.parts.resumed = Some(writer(self.pool, &mut self.batch)?.begin_nested());
        Ok(())
    }

    /// Lists the id of a collection under its home. Its key gets it in the same batch.
    pub(super) fn end_construction(&mut self, collection: &mut Collection) -> Answer {
        let before = std::mem::replace(&mut collection.construction, Construction::None);
        let (Construction::Listed, CollectionBody::Large { id, .. }) = (before, &collection.body) else {
            return Ok(());
        };
        let Keyspace { pool, batch, collections, places, dirty, .. } = self;
        let maps = collections.as_ref().ok_or(Fault::Malformed)?;
        *dirty = true;
        maps.end_construction(writer(pool, batch)?, places.now.maps(collection.database), *id)
    }

    /// Copies a value to another key, and replaces that key. A large collection gets a new id.
    pub(crate) fn copy(&mut self, from: (usize, &[u8]), to: (usize, &[u8]), old: Old) -> Answer {
        let Some(stored) = self.find(from.0, from.1)?.live else {
            return Ok(());
        };
        let (mut meta, payload) = (stored.meta, stored.payload.to_vec());
        let Some((source, _)) = stored.large() else {
            return self.put(to.0, to.1, meta, old, &[&payload]);
        };
        meta.uncounted = meta.kind == Kind::SortedSet;
        let id = self.new_collection(to.0)?;
        let mut copy = Collection {
            database: to.0,
            meta,
            old,
            present: false,
            body: CollectionBody::Large { id, count: 0 },
            head_changed: true,
            changed: true,
            construction: Construction::InParts,
        };
        if meta.kind == Kind::List {
            self.copy_chunks(source, &mut copy, 0..=u64::MAX)?;
        } else {
            self.copy_elements(source, &mut copy, |_| true)?;
        }
        self.end_construction(&mut copy)?;
        self.put(to.0, to.1, meta, old, &[LargePayload::encode(meta, id, copy.len()).as_bytes()])
    }

    /// Copies the wanted elements of an id to a large collection.
    fn copy_elements(
        &mut self,
        source: u64,
        copy: &mut Collection,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Answer {
        let mut from = Some(0);
        while let Some(position) = from {
            let mut elements = self.elements(copy.database, copy.meta.kind)?;
            let part = elements.part(source, position)?;
            from = part.next;
            let CollectionBody::Large { id, count } = &mut copy.body else {
                return Err(Fault::Malformed);
            };
            for (field, value) in part.elements {
                if wanted(&field) {
                    elements.put(*id, &field, &value)?;
                    *count += 1;
                }
            }
            self.commit_part(copy)?;
        }
        Ok(())
    }

    /// Copies the chunks of an id in a range of places to a large list.
    fn copy_chunks(
        &mut self,
        source: u64,
        copy: &mut Collection,
        places: std::ops::RangeInclusive<u64>,
    ) -> Answer {
        let (mut from, last) = (Some(*places.start()), *places.end());
        while let Some(place) = from {
            let CollectionBody::Large { id, count } = &mut copy.body else {
                return Err(Fault::Malformed);
            };
            let mut chunks: Chunks<'_, '_> = self.chunks(copy.database, source)?;
            from = chunks.copy_part(*id, place..=last, count)?;
            self.commit_part(copy)?;
        }
        Ok(())
    }

    /// An empty collection of the same key, with an id of its own, that is to replace a large one.
    fn begin_replacement(&mut self, collection: &Collection) -> Answer<Collection> {
        let id = self.new_collection(collection.database)?;
        Ok(Collection {
            body: CollectionBody::Large { id, count: 0 },
            head_changed: true,
            changed: true,
            construction: Construction::InParts,
            ..collection.clone()
        })
    }

    /// Removes elements of these fields, which the collection has, each once. Where few are left of many,
    /// those are copied, and the others given up together. The command has changed nothing before.
    pub(crate) fn remove_elements<'f>(
        &mut self,
        collection: &mut Collection,
        fields: impl ExactSizeIterator<Item = &'f [u8]>,
    ) -> Answer {
        let removed = fields.len() as u64;
        let left = collection.len().saturating_sub(removed);
        let CollectionBody::Large { id, .. } = collection.body else {
            return self.remove_each(collection, fields);
        };
        if left == 0 {
            collection.abandon();
            return Ok(());
        }
        let is_copied =
            removed > self.parts.removed_in_place && left <= removed.saturating_mul(LEFT_PER_REMOVED);
        if !is_copied || self.parts.in_one_batch {
            return self.remove_each(collection, fields);
        }
        let fields: HashSet<&[u8], RandomState> = fields.collect();
        let mut rest = self.begin_replacement(collection)?;
        self.copy_elements(id, &mut rest, |field| !fields.contains(field))?;
        *collection = rest;
        Ok(())
    }

    fn remove_each<'f>(
        &mut self,
        collection: &mut Collection,
        mut fields: impl Iterator<Item = &'f [u8]>,
    ) -> Answer {
        fields.try_for_each(|field| self.remove_element(collection, field).map(drop))
    }

    /// Copies the elements that a list keeps, if it is to lose many chunks; returns whether it did.
    pub(super) fn trim_by_copy(&mut self, list: &mut Collection, keep: std::ops::Range<u64>) -> Answer<bool> {
        let CollectionBody::Large { id, count } = list.body else {
            return Ok(false);
        };
        let most = self.parts.chunks_in_place;
        if self.parts.in_one_batch || !self.chunks(list.database, id)?.loses(count, &keep, most)? {
            return Ok(false);
        }
        let chunks = self.chunks(list.database, id)?;
        let (places, skipped) = chunks.places(&keep)?;
        let mut rest = self.begin_replacement(list)?;
        self.copy_chunks(id, &mut rest, places)?;
        if let CollectionBody::Large { id, count } = &mut rest.body {
            let kept = keep.start - skipped..keep.end - skipped;
            let mut chunks = self.chunks(rest.database, *id)?;
            chunks.trim(*count, kept)?;
            *count = keep.end - keep.start;
        }
        *list = rest;
        Ok(true)
    }
}
