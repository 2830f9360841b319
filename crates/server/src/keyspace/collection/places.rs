//! The order of the elements of a command of very many, in which they are put fastest.
//!
//! The records of a large set or hash lie by the hashes of its elements, so that elements in the order of a
//! client's arguments go to leaves at random: each is a miss in the caches, and so is each word that the
//! batch has changed already. In the order of their records, neighbours share leaves and words.

use super::value::{Collection, CollectionBody};
use crate::keyspace::Keyspace;
use crate::keyspace::format::Kind;

/// Fewer elements are put as they come.
const ELEMENTS_MIN: usize = 256;

/// Where an element lies, and its number among the arguments; ordered by both, so that an element that is
/// given twice keeps its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    position: u32,
    number: u32,
}

impl Place {
    pub(crate) fn number(self) -> usize {
        self.number as usize
    }
}

impl Keyspace<'_> {
    /// The elements in the order of their records, if they are many and this order changes nothing but the
    /// time; else nothing. A packed hash keeps the order in which its fields came.
    pub(crate) fn order_of_places<'e>(
        &self,
        collection: &Collection,
        elements: impl ExactSizeIterator<Item = &'e [u8]>,
    ) -> Vec<Place> {
        let is_large = matches!(collection.body, CollectionBody::Large { .. });
        let Some(maps) = self.collections.as_ref().filter(|_| elements.len() >= ELEMENTS_MIN) else {
            return Vec::new();
        };
        if !is_large && collection.meta.kind != Kind::Set {
            return Vec::new();
        }
        let place = |(number, element)| Place { position: maps.secret.position(element), number };
        let mut places: Vec<_> = (0..).zip(elements).map(place).collect();
        places.sort_unstable();
        places
    }
}
