//! A collection that a command has opened.

use super::packed::Packed;
use super::parts::Construction;
use crate::fault::Answer;
use crate::keyspace::entry::{Found, Old};
use crate::keyspace::format::{Kind, Meta, Stored};

/// The longest payload of a packed collection.
pub(crate) const PACKED_BYTES_MAX: usize = 512;

/// A collection that a command has opened.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    pub(super) database: usize,
    pub(super) meta: Meta,
    /// The entry that it is to replace.
    pub(super) old: Old,
    pub(super) present: bool,
    pub(super) body: CollectionBody,
    /// The key's value is to be written.
    pub(super) head_changed: bool,
    /// Some element is another.
    pub(super) changed: bool,
    pub(super) construction: Construction,
}

#[derive(Clone, Debug)]
pub(super) enum CollectionBody {
    Packed(Packed),
    Large { id: u64, count: u64 },
}

impl Collection {
    pub(super) fn new(database: usize, kind: Kind, found: &Found<'_>) -> Self {
        Collection {
            database,
            meta: Meta { kind, ..Meta::default() },
            old: found.old,
            present: found.present,
            body: CollectionBody::Packed(Packed::new(kind)),
            head_changed: false,
            changed: false,
            construction: Construction::None,
        }
    }

    /// The collection that is under a key of a database.
    pub(crate) fn of(database: usize, stored: &Stored<'_>) -> Answer<Opened> {
        let body = match stored.large() {
            Some((id, count)) => CollectionBody::Large { id, count: count.unwrap_or_default() },
            None => CollectionBody::Packed(Packed::decode(stored.meta.kind, stored.payload)?),
        };
        let (meta, old, construction) = (stored.meta, Old::of(stored), Construction::None);
        let (head_changed, changed) = (false, false);
        let collection =
            Collection { database, meta, old, present: true, body, head_changed, changed, construction };
        Ok(Opened(collection))
    }

    /// Lets a new collection be built in parts: its command changes nothing else before it stores it.
    pub(crate) fn in_parts(mut self) -> Self {
        if self.len() == 0 {
            self.construction = Construction::InParts;
        }
        self
    }

    pub(crate) fn kind(&self) -> Kind {
        self.meta.kind
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> u64 {
        match &self.body {
            CollectionBody::Packed(packed) => packed.count() as u64,
            CollectionBody::Large { count, .. } => *count,
        }
    }

    /// Whether its elements are records of their own.
    pub(crate) fn is_large(&self) -> bool {
        matches!(self.body, CollectionBody::Large { .. })
    }

    /// Whether Redis would have given up its compact encoding.
    pub(crate) fn is_converted(&self) -> bool {
        self.meta.modified
    }

    /// Notes that Redis gives up its compact encoding.
    pub(crate) fn convert(&mut self) {
        self.head_changed |= !self.meta.modified;
        self.meta.modified = true;
    }

    /// Lets go of all elements. Those of a large collection are given up like those of a deleted one.
    pub(super) fn abandon(&mut self) {
        self.body = CollectionBody::Packed(Packed::new(self.meta.kind));
        (self.meta.large, self.meta.uncounted) = (false, false);
        (self.head_changed, self.changed) = (true, true);
    }

    /// Lets the key expire, once the collection is stored.
    pub(crate) fn set_deadline(&mut self, deadline: Option<u64>) {
        self.head_changed |= self.meta.deadline != deadline;
        self.meta.deadline = deadline;
    }

    pub(super) fn note_change(&mut self) {
        self.changed = true;
        // A large sorted set that counts is one of an earlier version.
        let is_new_form = self.meta.uncounted || self.meta.kind != Kind::SortedSet;
        self.head_changed |= matches!(self.body, CollectionBody::Packed(_)) || !is_new_form;
    }

    /// Notes that the number of elements is another.
    pub(super) fn note_count(&mut self) {
        self.head_changed |= !self.meta.uncounted;
    }
}

/// A collection whose elements are yet to be counted, if its value does not.
pub(crate) struct Opened(pub(super) Collection);
