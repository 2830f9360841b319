//! A vector: values in arrays, each of which is as long as all before it together.

use crate::error::{ErrorKind, Result, corrupt};
use crate::objects::brand::Brand;
use crate::objects::place::{Arr, Obj, Ref};
use crate::objects::slots::{PArr, PRc};
use crate::tx::{ReadTx, Tx};
use crate::{Persist, Plain};

/// A vector of `T`: as a field of a type of your own, or in an object of its own.
///
/// The methods are those of its place, `Ref<'t, B, PVec<T>>`. A value is pushed with null pointers, and
/// linked at its place:
///
/// ```
/// # use tembo_heap::{Error, Heap, Options, Persist, PRc, collections::PVec};
/// #[derive(Persist)]
/// #[repr(C)]
/// struct Person { born: u64, mother: PRc<Person> }
///
/// #[derive(Default, Persist)]
/// #[repr(C)]
/// struct People { all: PVec<PRc<Person>>, years: PVec<u64> }
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let options = Options::new().create(true);
/// # Heap::<_, People>::with(dir.path().join("people.heap"), &options, |heap| {
/// heap.write(|tx, people| {
///     let ada = tx.alloc(Person { born: 1815, mother: PRc::null() })?;
///     people.all().push_link(tx, ada)?;
///     people.years().push(tx, 1815)?;
///     assert_eq!(people.years().to_vec(tx)?, [1815]);
///     let first = tx.load(people.all().at(tx, 0)?)?;
///     assert_eq!(first, Some(ada));
///     Ok(())
/// })
/// # }).unwrap();
/// ```
///
/// # Places
///
/// An element stays where it is when others are pushed, and its place stays valid. A place belongs to an
/// index, not to a value: after `insert`, `remove` and `swap_remove` another element may be there, and after
/// `pop`, `truncate`, `clear` and `shrink` none.
///
/// # Conflicts
///
/// The length and the pointers to the arrays belong to the object of which the vector is a field, so two
/// concurrent pushes conflict. Elements of less than 64 bytes conflict with their neighbours in the same
/// line; larger ones conflict separately. If the size is no multiple of eight bytes (and not 1, 2 or 4), all
/// elements conflict with each other.
#[derive(Debug, Persist)]
#[persist(crate = crate)]
#[repr(C)]
pub struct PVec<T: Persist> {
    count: u64,
    /// The first [`first_room`] elements.
    first: PArr<T>,
    /// [`PARTS`] arrays, each with room for as many elements as all before it.
    rest: PArr<PArr<T>>,
}

impl<T: Persist> PVec<T> {
    /// An empty vector, which takes no memory besides itself.
    pub const fn new() -> PVec<T> {
        PVec { count: 0, first: PArr::null(), rest: PArr::null() }
    }
}

impl<T: Persist> Default for PVec<T> {
    fn default() -> PVec<T> {
        PVec::new()
    }
}

/// The number of elements that a new vector has room for: about a line of them. A power of two.
const fn first_room<T>() -> usize {
    match size_of::<T>() {
        0..=4 => 16,
        5..=8 => 8,
        9..=16 => 4,
        _ => 2,
    }
}

/// Arrays after the first.
const PARTS: usize = 28;

/// The position of an element: in the first array, or in one of the others.
fn part_of<T>(index: usize) -> (Option<usize>, usize) {
    let first = first_room::<T>();
    match index / first {
        0 => (None, index),
        times => {
            let part = times.ilog2() as usize;
            (Some(part), index - (first << part))
        }
    }
}

#[cold]
fn no_element(index: usize, len: usize) -> ! {
    panic!("index {index} in a vector of {len} elements")
}

impl<'t, B: Brand, T: Persist> Ref<'t, B, PVec<T>> {
    /// Number of elements.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict), as in all methods.
    pub fn len(self, tx: &ReadTx<'t, B>) -> Result<usize> {
        Ok(tx.get(self.count())? as usize)
    }

    /// Whether there is no element.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn is_empty(self, tx: &ReadTx<'t, B>) -> Result<bool> {
        Ok(self.len(tx)? == 0)
    }

    /// The array for an element, if it exists, and the index in it.
    fn array_of(self, tx: &ReadTx<'t, B>, index: usize) -> Result<(Option<Arr<'t, B, T>>, usize)> {
        let (part, at) = part_of::<T>(index);
        let array = match part {
            None => tx.array(self.first())?,
            Some(part) => match tx.array(self.rest())?.and_then(|parts| parts.get(part)) {
                Some(slot) => tx.array(slot)?,
                None => None,
            },
        };
        Ok((array, at))
    }

    /// The place of an index below the length.
    fn place(self, tx: &ReadTx<'t, B>, index: usize) -> Result<Ref<'t, B, T>> {
        let (array, at) = self.array_of(tx, index)?;
        match array.and_then(|array| array.get(at)) {
            Some(place) => Ok(place),
            None => Err(corrupt("a vector", self.off, format!("an array with element {index}"), "none")),
        }
    }

    /// The place of an index; makes its array if there is none.
    fn make_place(self, tx: &mut Tx<'t, B>, index: usize) -> Result<Ref<'t, B, T>> {
        let (part, at) = part_of::<T>(index);
        if let (Some(array), _) = self.array_of(tx, index)? {
            return array.get(at).ok_or_else(|| corrupt("a vector", self.off, at, array.len()));
        }
        let room = first_room::<T>();
        let Some(part) = part else {
            let array = tx.alloc_blanks(room)?;
            tx.link_array(self.first(), array)?;
            return Ok(array.at(at));
        };
        if part >= PARTS {
            return Err(ErrorKind::ArrayTooLong { len: index as u64 + 1 }.into());
        }
        let parts = match tx.array(self.rest())? {
            Some(parts) => parts,
            None => {
                let parts = tx.alloc_blanks(PARTS)?;
                tx.link_array(self.rest(), parts)?;
                parts
            }
        };
        let array = tx.alloc_blanks(room << part)?;
        let slot = parts.get(part).ok_or_else(|| corrupt("a vector", self.off, PARTS, parts.len()))?;
        tx.link_array(slot, array)?;
        Ok(array.at(at))
    }

    /// The place of the element at `index`, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn get(self, tx: &ReadTx<'t, B>, index: usize) -> Result<Option<Ref<'t, B, T>>> {
        if index < self.len(tx)? { self.place(tx, index).map(Some) } else { Ok(None) }
    }

    /// The place of the element at `index`.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    ///
    /// # Panics
    ///
    /// If the index is out of range, as with slices.
    pub fn at(self, tx: &ReadTx<'t, B>, index: usize) -> Result<Ref<'t, B, T>> {
        match self.get(tx, index)? {
            Some(element) => Ok(element),
            None => no_element(index, self.len(tx)?),
        }
    }

    /// The places of all present elements. The caller may change the vector meanwhile.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn iter(self, tx: &ReadTx<'t, B>) -> Result<Places<'t, B, T>> {
        let len = self.len(tx)?;
        let mut arrays = Vec::new();
        let mut room = 0;
        while room < len {
            let (array, _) = self.array_of(tx, room)?;
            let expected = room.max(first_room::<T>());
            let array = array.filter(|array| array.len() == expected);
            let found = || corrupt("a vector", self.off, format!("an array of {expected} elements"), "none");
            arrays.push(array.ok_or_else(found)?);
            room += expected;
        }
        Ok(Places { arrays, range: 0..len })
    }

    /// Appends a value, and returns its place.
    ///
    /// No other element moves. When there is no room, an array for as many elements again is allocated.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len); [`ErrorKind::ArrayTooLong`] beyond 2^29 elements (2^32 small ones); the
    /// pool's own, when it is full.
    pub fn push(self, tx: &mut Tx<'t, B>, value: T) -> Result<Ref<'t, B, T>> {
        let len = self.len(tx)?;
        let place = self.make_place(tx, len)?;
        tx.put(place, value)?;
        tx.set(self.count(), len as u64 + 1)?;
        Ok(place)
    }

    /// Makes room for `more` elements beyond those there are.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    pub fn reserve(self, tx: &mut Tx<'t, B>, more: usize) -> Result<()> {
        let end = self.len(tx)?.saturating_add(more);
        let mut room = 0;
        while room < end {
            self.make_place(tx, room)?;
            room += room.max(first_room::<T>());
        }
        Ok(())
    }

    /// Removes the last element and releases its pointers. Returns whether there was one.
    ///
    /// The room stays: `shrink` gives memory back.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    pub fn pop(self, tx: &mut Tx<'t, B>) -> Result<bool> {
        let len = self.len(tx)?;
        if len == 0 {
            return Ok(false);
        }
        self.truncate(tx, len - 1)?;
        Ok(true)
    }

    /// Removes all elements from `len` on. A word or more is written for each.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    pub fn truncate(self, tx: &mut Tx<'t, B>, len: usize) -> Result<()> {
        let old = self.len(tx)?;
        if len >= old {
            return Ok(());
        }
        for i in len..old {
            tx.clear_value(self.place(tx, i)?)?;
        }
        tx.set(self.count(), len as u64)
    }

    /// Removes all elements, and frees their memory. Each commit releases a bounded part of their targets, so
    /// the cost does not depend on the length.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    pub fn clear(self, tx: &mut Tx<'t, B>) -> Result<()> {
        tx.set(self.count(), 0)?;
        tx.link_array(self.first(), None)?;
        tx.link_array(self.rest(), None)
    }

    /// Frees the arrays without elements. No element moves.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    pub fn shrink(self, tx: &mut Tx<'t, B>) -> Result<()> {
        let len = self.len(tx)?;
        if len == 0 {
            return self.clear(tx);
        }
        let used = part_of::<T>(len - 1).0.map_or(0, |part| part + 1);
        if used == 0 {
            return tx.link_array(self.rest(), None);
        }
        let Some(parts) = tx.array(self.rest())? else { return Ok(()) };
        for i in used..parts.len() {
            tx.link_array(parts.at(i), None)?;
        }
        Ok(())
    }

    /// Inserts a value before the element at `index`, and returns its place. Moves every element from there
    /// on.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    ///
    /// # Panics
    ///
    /// If `index` is beyond the end.
    pub fn insert(self, tx: &mut Tx<'t, B>, index: usize, value: T) -> Result<Ref<'t, B, T>> {
        let len = self.len(tx)?;
        if index > len {
            no_element(index, len);
        }
        let mut free = self.make_place(tx, len)?;
        for i in (index..len).rev() {
            let place = self.place(tx, i)?;
            tx.move_value(place, free)?;
            free = place;
        }
        tx.put(free, value)?;
        tx.set(self.count(), len as u64 + 1)?;
        Ok(free)
    }

    /// Removes the element at `index`, and moves every element after it.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn remove(self, tx: &mut Tx<'t, B>, index: usize) -> Result<()> {
        let len = self.len(tx)?;
        let mut free = self.at(tx, index)?;
        tx.clear_value(free)?;
        for i in index + 1..len {
            let place = self.place(tx, i)?;
            tx.move_value(place, free)?;
            free = place;
        }
        tx.set(self.count(), len as u64 - 1)
    }

    /// Removes the element at `index`, and moves the last one to its place.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn swap_remove(self, tx: &mut Tx<'t, B>, index: usize) -> Result<()> {
        let len = self.len(tx)?;
        let place = self.at(tx, index)?;
        tx.clear_value(place)?;
        tx.move_value(self.place(tx, len - 1)?, place)?;
        tx.set(self.count(), len as u64 - 1)
    }
}

impl<'t, B: Brand, T: Plain> Ref<'t, B, PVec<T>> {
    /// A copy of all elements.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict).
    pub fn to_vec(self, tx: &ReadTx<'t, B>) -> Result<Vec<T>> {
        self.iter(tx)?.map(|place| tx.get(place)).collect()
    }

    /// Appends copies of these values. A constant number of words for each, on average.
    ///
    /// # Errors
    ///
    /// As for [`push`](Ref::push).
    pub fn extend_from_slice(self, tx: &mut Tx<'t, B>, values: &[T]) -> Result<()> {
        let len = self.len(tx)?;
        for (i, value) in values.iter().enumerate() {
            let place = self.make_place(tx, len + i)?;
            tx.set(place, *value)?;
        }
        tx.set(self.count(), (len + values.len()) as u64)
    }

    /// Removes the last element and returns it.
    ///
    /// # Errors
    ///
    /// As for [`push`](Ref::push).
    pub fn pop_value(self, tx: &mut Tx<'t, B>) -> Result<Option<T>> {
        let len = self.len(tx)?;
        if len == 0 {
            return Ok(None);
        }
        let value = tx.get(self.place(tx, len - 1)?)?;
        tx.set(self.count(), len as u64 - 1)?;
        Ok(Some(value))
    }
}

impl<'t, B: Brand, T: Persist> Ref<'t, B, PVec<PRc<T>>> {
    /// Appends a pointer to an object.
    ///
    /// # Errors
    ///
    /// As for [`push`](Ref::push).
    pub fn push_link(self, tx: &mut Tx<'t, B>, object: Obj<'t, B, T>) -> Result<()> {
        let slot = self.push(tx, PRc::null())?;
        tx.link(slot, object)
    }

    /// Removes the last pointer, and returns its object, which dies with the commit unless another pointer
    /// leads to it then.
    ///
    /// # Errors
    ///
    /// As for [`push`](Ref::push).
    pub fn pop_link(self, tx: &mut Tx<'t, B>) -> Result<Option<Obj<'t, B, T>>> {
        let len = self.len(tx)?;
        if len == 0 {
            return Ok(None);
        }
        let object = tx.load(self.at(tx, len - 1)?)?;
        self.pop(tx)?;
        Ok(object)
    }
}

/// The places of a vector's elements: see [`PVec`].
pub struct Places<'t, B: Brand, T> {
    arrays: Vec<Arr<'t, B, T>>,
    range: std::ops::Range<usize>,
}

impl<B: Brand, T> std::fmt::Debug for Places<'_, B, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Places").field(&self.range).finish()
    }
}

impl<'t, B: Brand, T: Persist> Places<'t, B, T> {
    fn place(&self, index: usize) -> Option<Ref<'t, B, T>> {
        let (part, at) = part_of::<T>(index);
        self.arrays.get(part.map_or(0, |part| part + 1))?.get(at)
    }
}

impl<'t, B: Brand, T: Persist> Iterator for Places<'t, B, T> {
    type Item = Ref<'t, B, T>;

    fn next(&mut self) -> Option<Ref<'t, B, T>> {
        let index = self.range.next()?;
        self.place(index)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl<B: Brand, T: Persist> ExactSizeIterator for Places<'_, B, T> {}

impl<B: Brand, T: Persist> DoubleEndedIterator for Places<'_, B, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let index = self.range.next_back()?;
        self.place(index)
    }
}
