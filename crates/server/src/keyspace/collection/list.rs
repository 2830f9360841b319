//! Large lists: chunks of several elements, records of "db.lists".
//!
//! # Media layout
//!
//! ```text
//!   key    = id_be place_be            8 bytes each
//!   chunk  = weight_le { item }        the weight, in 4 bytes, is the number of the items
//! ```
//!
//! A chunk has up to [`CHUNK_BYTES_MAX`] bytes of items and up to [`CHUNK_ELEMENTS_MAX`] of them; a longer
//! element is in a chunk alone. The map counts the weights, so that the chunk of an index is found in
//! O(log n), like the rank of the list's first chunk among those of all lists. A push or a pop at an end
//! writes one chunk anew.
//!
//! # Places
//!
//! A list begins at the place 2^63. A chunk at an end is [`STEP`] away from the last one, so that a queue
//! that moves through the places at 1M chunks a second reaches their end in four years. A chunk that is
//! divided gives its second half a place half the way to the next chunk. If there is none, the chunks around
//! are *renumbered*: those of the smallest aligned range of 2^k places around that has fewer than 2^(3k/4)
//! chunks are spread evenly over it. The wider the range, the sparser it must be, so that a renumbering pays
//! for itself: O(log n) chunks are moved for each that is divided, on average, wherever the elements are
//! inserted. The same happens at the end of all places. A single renumbering may move many chunks.
//!
//! # Invariants, commit point and recovery
//!
//! Those of large collections: I3 to I6 of [`format`](crate::keyspace::format). The order of the chunks is
//! that of their keys, so that there is no more to be right.

use std::ops::{ControlFlow, Range, RangeInclusive};

use crate::keyspace::batch::Batch;
use tembo::Map;

use super::packed::{Packed, elements};
use crate::fault::{Answer, Fault};
use crate::keyspace::format::{Kind, Malformed};

/// The longest items of a chunk that has more than one. With the record's lengths, its key and the weight
/// they fit into a block of 544 bytes. `list_tests.rs` has the lines that pushes write; with 996 bytes they
/// would be half as many again, for a list that takes 3% less.
pub(crate) const CHUNK_BYTES_MAX: usize = 512;
const CHUNK_ELEMENTS_MAX: usize = 128;

/// The place of the first chunk of a new list.
const FIRST: u64 = 1 << 63;
/// The distance of chunks that are added at an end.
const STEP: u64 = 1 << 16;
/// The smallest range that is renumbered has two to the power of this places.
const RANGE_BITS_MIN: u32 = 8;
/// Chunks that are copied together.
const COPIED_AT_ONCE: usize = if cfg!(test) { 2 } else { 64 };
const WEIGHT_BYTES: usize = 4;

fn key(id: u64, place: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&id.to_be_bytes());
    key[8..].copy_from_slice(&place.to_be_bytes());
    key
}

/// A chunk as it is read back.
#[derive(Clone, Copy)]
pub(crate) struct StoredChunk<'a> {
    id: u64,
    pub(super) place: u64,
    weight: u32,
    pub(super) items: &'a [u8],
}

impl<'a> StoredChunk<'a> {
    pub(crate) fn read(key: &[u8], value: &'a [u8]) -> Result<Self, Malformed> {
        let (id, place) = key.split_first_chunk().ok_or(Malformed)?;
        let place = place.try_into().map_err(|_| Malformed)?;
        let (weight, items) = value.split_first_chunk::<WEIGHT_BYTES>().ok_or(Malformed)?;
        let (id, place) = (u64::from_be_bytes(*id), u64::from_be_bytes(place));
        Ok(StoredChunk { id, place, weight: u32::from_le_bytes(*weight), items })
    }

    fn decode(self) -> Result<Chunk, Malformed> {
        let items = Packed::decode(Kind::List, self.items)?;
        if items.count() == self.weight as usize {
            Ok(Chunk { place: self.place, items })
        } else {
            Err(Malformed)
        }
    }

    /// Its elements.
    pub(crate) fn elements(self) -> impl Iterator<Item = &'a [u8]> {
        elements(self.items)
    }

    /// Its id and the number of its elements, if it is as it should be.
    pub(crate) fn check(self) -> Result<(u64, u64), String> {
        let items = Packed::decode(Kind::List, self.items).map_err(|_| "malformed items".to_owned())?;
        if items.count() != self.weight as usize {
            return Err(format!("{} elements, and it weighs {}", items.count(), self.weight));
        }
        if !fits(&items) {
            return Err(format!("too long, with {} elements", items.count()));
        }
        Ok((self.id, u64::from(self.weight)))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(super) place: u64,
    pub(super) items: Packed,
}

impl Chunk {
    /// Whether there is room for one more element.
    pub(super) fn takes(&self, element: &[u8]) -> bool {
        takes(&self.items, element)
    }
}

fn fits(items: &Packed) -> bool {
    items.count() <= 1 || items.as_bytes().len() <= CHUNK_BYTES_MAX && items.count() <= CHUNK_ELEMENTS_MAX
}

/// Whether items have room for one more element.
fn takes(items: &Packed, element: &[u8]) -> bool {
    let bytes = items.as_bytes().len() + Packed::bytes_of(element);
    items.count() == 0 || bytes <= CHUNK_BYTES_MAX && items.count() < CHUNK_ELEMENTS_MAX
}

/// Divides items into parts of about the same size that fit.
fn divide(items: &Packed) -> Vec<Packed> {
    let bytes = items.as_bytes().len();
    let target = bytes.div_ceil(bytes.div_ceil(CHUNK_BYTES_MAX).max(2));
    let mut parts: Vec<Packed> = Vec::new();
    for element in elements(items.as_bytes()) {
        let last = parts.last_mut().filter(|last| takes(last, element) && last.as_bytes().len() < target);
        match last {
            Some(last) => last.insert(last.count(), element),
            None => {
                let mut part = Packed::new(Kind::List);
                part.insert(0, element);
                parts.push(part);
            }
        }
    }
    parts
}

/// The chunks of a list as a batch sees them.
pub(crate) struct Chunks<'a, 'p> {
    pub(super) batch: &'a mut Batch<'p>,
    pub(super) map: &'a Map,
    pub(super) id: u64,
}

impl<'a, 'p> Chunks<'a, 'p> {
    pub(super) fn new(batch: &'a mut Batch<'p>, map: &'a Map, id: u64) -> Self {
        Chunks { batch, map, id }
    }

    /// Writes a chunk that fits; one that has lost elements may take of the space kept for removals.
    pub(super) fn put_chunk(&mut self, chunk: &Chunk, frees: bool) -> Result<(), tembo::Error> {
        let weight = (chunk.items.count() as u32).to_le_bytes();
        let (key, parts) = (key(self.id, chunk.place), [&weight, chunk.items.as_bytes()]);
        if frees {
            self.batch.put_to_free(self.map, &key, &parts.concat())?;
        } else {
            self.batch.put_parts(self.map, &key, &parts)?;
        }
        Ok(())
    }
}

impl Chunks<'_, '_> {
    /// The chunk that has the element of an index, and the index of its first one.
    pub(in crate::keyspace) fn at(&self, index: u64) -> Answer<(Chunk, u64)> {
        let before = self.batch.rank(self.map, &self.id.to_be_bytes())?;
        let found = self.batch.nth(self.map, before.saturating_add(index))?.ok_or(Fault::Malformed)?;
        let chunk = StoredChunk::read(found.key, found.value)?;
        if chunk.id != self.id {
            return Err(Fault::Malformed);
        }
        Ok((chunk.decode()?, found.rank.saturating_sub(before)))
    }

    /// The first chunk, or the last one, of a list that is not empty.
    pub(in crate::keyspace) fn end(&self, left: bool) -> Answer<Chunk> {
        let bounds = key(self.id, 0)..=key(self.id, u64::MAX);
        let mut found = Err(Fault::Malformed);
        let take = |key: &[u8], value: &[u8]| {
            found = StoredChunk::read(key, value).and_then(|chunk| chunk.decode()).map_err(Fault::from);
            ControlFlow::Break(())
        };
        match left {
            true => self.batch.walk(self.map, bounds, take)?,
            false => self.batch.walk_back(self.map, bounds, take)?,
        }
        found
    }

    pub(in crate::keyspace) fn put(&mut self, place: u64, items: &Packed) -> Answer {
        let weight = (items.count() as u32).to_le_bytes();
        self.batch.put_parts(self.map, &key(self.id, place), &[&weight, items.as_bytes()])?;
        Ok(())
    }

    /// Writes a chunk that was changed: removes it if nothing is left, and divides it if it is too long.
    pub(in crate::keyspace) fn write(&mut self, chunk: &Chunk) -> Answer {
        if chunk.items.count() == 0 {
            self.batch.remove(self.map, &key(self.id, chunk.place))?;
            Ok(())
        } else if fits(&chunk.items) {
            self.put(chunk.place, &chunk.items)
        } else {
            self.lay(chunk.place, &divide(&chunk.items))
        }
    }

    /// Lets the first of these have this place, and the others places behind it.
    pub(in crate::keyspace) fn lay(&mut self, place: u64, parts: &[Packed]) -> Answer {
        let free = self.next_place(place)?.unwrap_or(u64::MAX) - place;
        match (free / parts.len().max(1) as u64).min(STEP) {
            0 => self.renumber(place, parts),
            step => (0..).zip(parts).try_for_each(|(number, part)| self.put(place + number * step, part)),
        }
    }

    /// The place of the chunk behind a place.
    fn next_place(&self, place: u64) -> Answer<Option<u64>> {
        let Some(from) = place.checked_add(1) else {
            return Ok(None);
        };
        let mut next = None;
        self.walk(from..=u64::MAX, |chunk| {
            next = Some(chunk.place);
            ControlFlow::Break(())
        })?;
        Ok(next)
    }

    /// Gives the chunks of a range of places to `visit`, in order, until it breaks.
    pub(in crate::keyspace) fn walk(
        &self,
        places: RangeInclusive<u64>,
        mut visit: impl FnMut(StoredChunk<'_>) -> ControlFlow<()>,
    ) -> Answer {
        let bounds = key(self.id, *places.start())..=key(self.id, *places.end());
        let mut malformed = false;
        self.batch.walk(self.map, bounds, |key, value| match StoredChunk::read(key, value) {
            Ok(chunk) => visit(chunk),
            Err(Malformed) => {
                malformed = true;
                ControlFlow::Break(())
            }
        })?;
        if malformed { Err(Fault::Malformed) } else { Ok(()) }
    }

    /// Puts these in place of the chunk at a place, and gives the chunks around other places.
    #[cold]
    pub(in crate::keyspace) fn renumber(&mut self, place: u64, parts: &[Packed]) -> Answer {
        for bits in RANGE_BITS_MIN..=u64::BITS {
            let low = if bits == u64::BITS { 0 } else { place >> bits << bits };
            let high = low + (u64::MAX >> (u64::BITS - bits));
            let most = 1_u64 << (bits * 3 / 4);
            let mut count = parts.len() as u64;
            self.walk(low..=high, |_| {
                count += 1;
                if count < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            if count < most {
                return self.spread(low..=high, place, parts);
            }
        }
        Err(Fault::Error("ERR the list is too long"))
    }

    pub(in crate::keyspace) fn spread(
        &mut self,
        places: RangeInclusive<u64>,
        place: u64,
        parts: &[Packed],
    ) -> Answer {
        let mut all: Vec<Vec<u8>> = Vec::new();
        let value = |items: &[u8], weight: u32| [&weight.to_le_bytes()[..], items].concat();
        let mut laid = false;
        self.walk(places.clone(), |chunk| {
            if chunk.place >= place && !laid {
                all.extend(parts.iter().map(|part| value(part.as_bytes(), part.count() as u32)));
                laid = true;
            }
            if chunk.place != place {
                all.push(value(chunk.items, chunk.weight));
            }
            ControlFlow::Continue(())
        })?;
        if !laid {
            all.extend(parts.iter().map(|part| value(part.as_bytes(), part.count() as u32)));
        }
        let (low, high) = (*places.start(), *places.end());
        self.batch.remove_range(self.map, key(self.id, low)..=key(self.id, high))?;
        let step = (high - low) / (all.len() as u64 + 1);
        for (number, value) in (1..).zip(&all) {
            self.batch.put(self.map, &key(self.id, low + number * step), value)?;
        }
        Ok(())
    }

    /// Writes the chunks of a list that was packed.
    pub(super) fn create(&mut self, packed: &Packed) -> Answer {
        self.lay(FIRST, &divide(packed))
    }

    /// Adds elements at an end of a list of `count`. Returns the chunk that is there then, if there are any.
    pub(in crate::keyspace) fn push(
        &mut self,
        count: &mut u64,
        left: bool,
        new: &mut dyn Iterator<Item = &[u8]>,
    ) -> Answer<Option<Chunk>> {
        let Some(first) = new.next() else {
            return Ok(None);
        };
        // LMOVE takes the only element of a large list, and gives it back.
        let mut chunk = match *count {
            0 => Chunk { place: FIRST, items: Packed::new(Kind::List) },
            _ => self.end(left)?,
        };
        let mut next = Some(first);
        while let Some(element) = next {
            if takes(&chunk.items, element) {
                let index = if left { 0 } else { chunk.items.count() };
                chunk.items.insert(index, element);
            } else {
                self.put(chunk.place, &chunk.items)?;
                chunk = self.begin_chunk(chunk, left, element)?;
            }
            *count += 1;
            next = new.next();
        }
        self.put(chunk.place, &chunk.items)?;
        Ok(Some(chunk))
    }

    /// A new chunk, of one element, beyond the one at an end, which is written.
    fn begin_chunk(&mut self, old: Chunk, left: bool, element: &[u8]) -> Answer<Chunk> {
        let place = if left { old.place.checked_sub(STEP) } else { old.place.checked_add(STEP) };
        let mut items = Packed::new(Kind::List);
        items.insert(0, element);
        if let Some(place) = place {
            return Ok(Chunk { place, items });
        }
        let parts = if left { [items, old.items] } else { [old.items, items] };
        self.renumber(old.place, &parts)?;
        self.end(left)
    }

    /// Removes up to `wanted` elements from an end of a list of `count`, and returns them in this order, and
    /// the chunk that was changed last.
    pub(in crate::keyspace) fn pop(
        &mut self,
        count: &mut u64,
        left: bool,
        mut wanted: u64,
    ) -> Answer<(Vec<Vec<u8>>, Option<Chunk>)> {
        let (mut popped, mut last) = (Vec::new(), None);
        while wanted > 0 && *count > 0 {
            let mut chunk = self.end(left)?;
            let taken = cut_end(&mut chunk.items, left, wanted, &mut popped);
            self.write(&chunk)?;
            (wanted, *count) = (wanted - taken, count.saturating_sub(taken));
            last = Some(chunk);
        }
        Ok((popped, last))
    }

    /// Keeps only the elements of a range of indices, which is not empty.
    pub(super) fn trim(&mut self, count: u64, keep: Range<u64>) -> Answer {
        if keep.end < count {
            let (mut chunk, start) = self.at(keep.end - 1)?;
            if let Some(behind) = chunk.place.checked_add(1) {
                let behind = key(self.id, behind)..=key(self.id, u64::MAX);
                self.batch.remove_range(self.map, behind)?;
            }
            let kept = (keep.end - start) as usize;
            if kept < chunk.items.count() {
                chunk.items.cut(kept..chunk.items.count());
                self.put(chunk.place, &chunk.items)?;
            }
        }
        if keep.start > 0 {
            let (mut chunk, start) = self.at(keep.start)?;
            self.batch.remove_range(self.map, key(self.id, 0)..key(self.id, chunk.place))?;
            if keep.start > start {
                chunk.items.cut(0..(keep.start - start) as usize);
                self.put(chunk.place, &chunk.items)?;
            }
        }
        Ok(())
    }

    /// Removes the elements of these indices, which are in order.
    pub(in crate::keyspace) fn remove(&mut self, mut indices: &[u64]) -> Answer {
        while let Some(last) = indices.last() {
            let (mut chunk, start) = self.at(*last)?;
            let first = indices.partition_point(|index| *index < start);
            for index in indices[first..].iter().rev() {
                let index = (index - start) as usize;
                chunk.items.cut(index..index + 1);
            }
            self.write(&chunk)?;
            indices = &indices[..first];
        }
        Ok(())
    }

    /// Copies some chunks of a range of places to another id, and adds their elements to `count`; returns
    /// where the next chunk is.
    pub(super) fn copy_part(
        &mut self,
        to: u64,
        places: RangeInclusive<u64>,
        count: &mut u64,
    ) -> Answer<Option<u64>> {
        // In parts, since the batch cannot be walked and changed at once.
        let (mut part, mut next) = (Vec::new(), None);
        self.walk(places, |chunk| {
            if part.len() == COPIED_AT_ONCE {
                next = Some(chunk.place);
                return ControlFlow::Break(());
            }
            *count += u64::from(chunk.weight);
            part.push((chunk.place, [&chunk.weight.to_le_bytes()[..], chunk.items].concat()));
            ControlFlow::Continue(())
        })?;
        for (place, value) in part {
            self.batch.put(self.map, &key(to, place), &value)?;
        }
        Ok(next)
    }

    /// The places of the chunks with a range of indices, which is not empty, and the index of the first
    /// element of them.
    pub(super) fn places(&self, range: &Range<u64>) -> Answer<(RangeInclusive<u64>, u64)> {
        let (first, skipped) = self.at(range.start)?;
        let (last, _) = self.at(range.end - 1)?;
        Ok((first.place..=last.place, skipped))
    }

    /// Whether a list of `count` elements loses more than so many chunks if it keeps a range of them, which
    /// is not empty.
    pub(super) fn loses(&self, count: u64, keep: &Range<u64>, chunks_max: u64) -> Answer<bool> {
        if count - (keep.end - keep.start) <= chunks_max {
            return Ok(false);
        }
        let (places, _) = self.places(keep)?;
        let mut lost = 0;
        let mut note = |_: StoredChunk<'_>| {
            lost += 1;
            if lost > chunks_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        if let Some(last) = places.start().checked_sub(1) {
            self.walk(0..=last, &mut note)?;
        }
        if let Some(first) = places.end().checked_add(1) {
            self.walk(first..=u64::MAX, &mut note)?;
        }
        Ok(lost > chunks_max)
    }
}

/// Moves up to `wanted` elements from an end to `popped`; returns how many.
pub(in crate::keyspace) fn cut_end(
    items: &mut Packed,
    left: bool,
    wanted: u64,
    popped: &mut Vec<Vec<u8>>,
) -> u64 {
    let count = items.count();
    let taken = wanted.min(count as u64) as usize;
    let range = if left { 0..taken } else { count - taken..count };
    let begin = popped.len();
    popped.extend(elements(items.as_bytes()).skip(range.start).take(taken).map(<[u8]>::to_vec));
    if !left {
        popped[begin..].reverse();
    }
    items.cut(range);
    taken as u64
}
