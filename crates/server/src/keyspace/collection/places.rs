//! Commands of very many elements, which are put in the order of their records.
//!
//! The records of a large collection lie by the hashes of its elements, so that elements in the order of a
//! client's arguments go to leaves at random: each is a miss in the caches. In the order of their records,
//! neighbours share leaves, and all that come to one leaf are put together.

use super::element::Elements;
use super::ordered::{self, Change, Score};
use super::parts::Construction;
use super::position::FIELD_BYTES_MAX;
use super::value::{Collection, CollectionBody};
use crate::fault::{Answer, Fault};
use crate::keyspace::Keyspace;

/// Fewer elements are put as they come.
const ELEMENTS_MIN: usize = if cfg!(test) { 8 } else { 256 };

/// Elements of a part of a collection that are put together.
const PART_ELEMENTS: usize = if cfg!(test) { 4 } else { 4096 };

/// Where an element lies, and its number among the arguments, in one word, which is sorted faster; ordered by
/// both, so that an element that is given twice keeps its order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place(u64);

impl Place {
    fn new(position: u32, number: usize) -> Self {
        Place(u64::from(position) << 32 | number as u64)
    }

    fn position(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn number(self) -> usize {
        self.0 as u32 as usize
    }
}

/// The elements of a command.
#[derive(Clone, Copy)]
pub(crate) struct Many<F> {
    /// How many they are.
    pub(crate) count: usize,
    /// Their fields, by their numbers.
    pub(crate) field: F,
}

impl<'e, F: Fn(usize) -> &'e [u8]> Many<F> {
    fn fields(&self, places: &[Place]) -> impl Iterator<Item = (u32, &'e [u8])> {
        places.iter().map(|place| (place.position(), (self.field)(place.number())))
    }
}

impl Collection {
    /// Whether so many elements are put fastest by [`Keyspace::put_many`] and
    /// [`put_many_scores`](Keyspace::put_many_scores). Not while it is packed: the elements of a packed
    /// collection keep the order in which they came.
    #[inline(always)]
    pub(crate) fn takes_many(&self, count: usize) -> bool {
        count >= ELEMENTS_MIN && self.is_large()
    }
}

impl<'p> Keyspace<'p> {
    /// Gives new values to elements of a large set or hash, one after the other, in the order of their
    /// records, and equal ones in the order of their numbers: `decide` gets the number of each and its
    /// present value, and returns the new one, or nothing if it stays as it is.
    pub(crate) fn put_many<'e, V: AsRef<[u8]>>(
        &mut self,
        collection: &mut Collection,
        many: &Many<impl Fn(usize) -> &'e [u8]>,
        mut decide: impl FnMut(usize, Option<&[u8]>) -> Option<V>,
    ) -> Answer {
        let long = self.put_in_parts(collection, many, |mut elements, id, places, tally| {
            elements.put_many(id, many.fields(places), |at, old| {
                let value = decide(places[at].number(), old);
                tally.note(old.is_none(), value.is_some());
                value
            })
        })?;
        for number in long {
            let field = (many.field)(number);
            let old = self.element(collection, field)?;
            if let Some(value) = decide(number, old) {
                self.put_element(collection, field, value.as_ref())?;
            }
        }
        Ok(())
    }

    /// As [`put_many`](Self::put_many), for members of a large sorted set and their scores.
    pub(crate) fn put_many_scores<'e>(
        &mut self,
        sorted: &mut Collection,
        many: &Many<impl Fn(usize) -> &'e [u8]>,
        mut decide: impl FnMut(usize, Option<Score>) -> Option<Score>,
    ) -> Answer {
        let long = self.put_in_parts(sorted, many, |elements, id, places, tally| {
            put_scores(elements, id, many, places, |number, old| {
                let score = decide(number, old);
                tally.note(old.is_none(), score.is_some());
                score
            })
        })?;
        for number in long {
            let member = (many.field)(number);
            let old = self.score(sorted, member)?;
            if let Some(score) = decide(number, old) {
                self.put_element(sorted, member, &score.to_bytes())?;
            }
        }
        Ok(())
    }

    /// Orders elements, and gives those of short fields to `put`, in as many parts as the collection is built
    /// in. Returns the numbers of the others.
    fn put_in_parts<'e>(
        &mut self,
        collection: &mut Collection,
        many: &Many<impl Fn(usize) -> &'e [u8]>,
        mut put: impl FnMut(Elements<'_, 'p>, u64, &[Place], &mut Tally) -> Answer,
    ) -> Answer<Vec<usize>> {
        let secret = self.elements(collection.database, collection.meta.kind)?.secret;
        let (mut places, mut long) = (Vec::with_capacity(many.count), Vec::new());
        for number in 0..many.count {
            match (many.field)(number) {
                field if field.len() > FIELD_BYTES_MAX => long.push(number),
                field => places.push(Place::new(secret.position(field), number)),
            }
        }
        places.sort_unstable();
        let is_in_parts = collection.construction != Construction::None && !self.parts.is_in_one_batch();
        for part in places.chunks(if is_in_parts { PART_ELEMENTS } else { places.len().max(1) }) {
            let CollectionBody::Large { id, count } = &mut collection.body else {
                return Err(Fault::Malformed);
            };
            let mut tally = Tally::default();
            put(self.elements(collection.database, collection.meta.kind)?, *id, part, &mut tally)?;
            *count += tally.new;
            if tally.new > 0 {
                collection.note_count();
            }
            if tally.changed {
                collection.note_change();
            }
            self.commit_part(collection)?;
        }
        Ok(long)
    }
}

/// The outcome of putting elements.
#[derive(Default)]
struct Tally {
    new: u64,
    changed: bool,
}

impl Tally {
    fn note(&mut self, is_new: bool, is_put: bool) {
        self.new += u64::from(is_new && is_put);
        self.changed |= is_put;
    }
}

/// Puts members of a sorted set, first by their names, then those that change in the order of their scores.
fn put_scores<'e>(
    mut elements: Elements<'_, '_>,
    id: u64,
    many: &Many<impl Fn(usize) -> &'e [u8]>,
    places: &[Place],
    mut decide: impl FnMut(usize, Option<Score>) -> Option<Score>,
) -> Answer {
    let (mut changes, mut malformed) = (Vec::with_capacity(places.len()), None);
    elements.put_many(id, many.fields(places), |at, old| {
        let old = old.map(Score::read).transpose().map_err(|e| malformed = Some(e)).ok()?;
        let number = places[at].number();
        let score = decide(number, old).filter(|score| Some(*score) != old)?;
        let member = (many.field)(number);
        if let Some(old) = old {
            changes.push(Change { score: old, member, number: at, is_there: false });
        }
        changes.push(Change { score, member, number: at, is_there: true });
        Some(score.to_value())
    })?;
    if let Some(malformed) = malformed {
        return Err(malformed.into());
    }
    let map = elements.ordered.ok_or(Fault::Malformed)?;
    ordered::change_many(elements.batch, map, (id, elements.secret), &mut changes)
}
