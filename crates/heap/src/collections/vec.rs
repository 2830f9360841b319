//! A vector: values one after another, in an array that doubles.

use crate::brand::Brand;
use crate::error::Result;
use crate::place::{Arr, Obj, Ref};
use crate::slots::{PArr, PRc};
use crate::tx::{ReadTx, Tx};
use crate::{Persist, Plain};

/// A vector of `T`: as a field of a type of your own, or in an object of its own.
///
/// The methods are those of its place, `Ref<'t, B, PVec<T>>`. A value is pushed with null pointers, and linked where it lies
/// then:
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
/// # let mut options = Options::new();
/// # options.create = true;
/// # Heap::<_, People>::with(dir.path().join("people.heap"), &options, |heap| {
/// heap.write::<_, Error>(|tx, people| {
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
/// # Conflicts
///
/// Its length and the pointer to its array belong to the object that it is a field of, so that two pushes at once are in
/// conflict. An element of less than 64 bytes is written together with its neighbours in a line; a larger one alone; and all
/// of them together if their size is no multiple of eight bytes (and not 1, 2 or 4).
#[derive(Debug, Persist)]
#[persist(crate = crate)]
#[repr(C)]
pub struct PVec<T: Persist> {
    items: PArr<T>,
    count: u64,
}

impl<T: Persist> PVec<T> {
    /// A vector of nothing, which takes no memory beside itself.
    pub const fn new() -> PVec<T> {
        PVec { items: PArr::null(), count: 0 }
    }
}

impl<T: Persist> Default for PVec<T> {
    fn default() -> PVec<T> {
        PVec::new()
    }
}

/// Elements that a vector has room for at first: about a line of them.
fn first_room<T>() -> usize {
    (64 / size_of::<T>().max(1)).clamp(2, 16)
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
    /// [`Error::Conflict`](crate::Error::Conflict), as in all methods.
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

    /// The elements that there are, and the array that they are in. Media may say anything, but the array's length is that of its elements.
    fn parts(self, tx: &ReadTx<'t, B>) -> Result<(usize, Option<Arr<'t, B, T>>)> {
        let array = tx.array(self.items())?;
        let len = self.len(tx)?.min(array.map_or(0, Arr::len));
        Ok((len, array))
    }

    /// The place of the element at `index`, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn get(self, tx: &ReadTx<'t, B>, index: usize) -> Result<Option<Ref<'t, B, T>>> {
        let (len, array) = self.parts(tx)?;
        Ok(if index < len { array.and_then(|array| array.get(index)) } else { None })
    }

    /// The place of the element at `index`.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    ///
    /// # Panics
    ///
    /// If there is none, as with slices.
    pub fn at(self, tx: &ReadTx<'t, B>, index: usize) -> Result<Ref<'t, B, T>> {
        match self.get(tx, index)? {
            Some(element) => Ok(element),
            None => no_element(index, self.len(tx)?),
        }
    }

    /// The places of all elements that there are now, which may be changed while one goes through them. An element that is removed
    /// meanwhile is not a value any more: ask for the places again after that.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn iter(self, tx: &ReadTx<'t, B>) -> Result<Places<'t, B, T>> {
        let (len, array) = self.parts(tx)?;
        Ok(Places { array, range: 0..len })
    }

    /// Appends a value, and returns its place.
    ///
    /// A constant number of words on average: when the array is full, all elements move to one of twice the length in this transaction.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len); [`Error::ArrayTooLong`](crate::Error::ArrayTooLong) beyond 2^32 elements; the pool's own, when it is full.
    pub fn push(self, tx: &mut Tx<'t, B>, value: T) -> Result<Ref<'t, B, T>> {
        let (len, array) = self.parts(tx)?;
        let array = match array {
            Some(array) if len < array.len() => array,
            _ => self.grow(tx, array, len, len + 1)?,
        };
        let place = array.at(len);
        // It is a blank: there is nothing to let go.
        tx.put(place, value)?;
        tx.set(self.count(), len as u64 + 1)?;
        Ok(place)
    }

    /// Makes room for `more` elements beyond those there are, so that they are pushed without moving anything.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    pub fn reserve(self, tx: &mut Tx<'t, B>, more: usize) -> Result<()> {
        let (len, array) = self.parts(tx)?;
        let room = array.map_or(0, Arr::len);
        if more > room - len {
            self.grow(tx, array, len, len.saturating_add(more))?;
        }
        Ok(())
    }

    fn grow(
        self,
        tx: &mut Tx<'t, B>,
        old: Option<Arr<'t, B, T>>,
        len: usize,
        least: usize,
    ) -> Result<Arr<'t, B, T>> {
        let new = match old {
            None => tx.alloc_blanks(least.max(first_room::<T>()))?,
            Some(old) => tx.move_array(old, len, least.max(old.len().saturating_mul(2)))?,
        };
        tx.link_array(self.items(), new)?;
        Ok(new)
    }

    /// Removes the last element; its pointers let go of what they led to. Returns whether there was one.
    ///
    /// The array keeps its length: [`shrink`](Self::shrink) gives memory back.
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
        let (old, array) = self.parts(tx)?;
        if len >= old {
            return Ok(());
        }
        if let Some(array) = array {
            for i in len..old {
                tx.clear_value(array.at(i))?;
            }
        }
        tx.set(self.count(), len as u64)
    }

    /// Removes all elements, and gives the array back. What they led to dies a bounded part with each commit, so that the length does not matter.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    pub fn clear(self, tx: &mut Tx<'t, B>) -> Result<()> {
        tx.set(self.count(), 0)?;
        tx.link_array(self.items(), None)
    }

    /// Moves the elements to an array that has room for no others.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    pub fn shrink(self, tx: &mut Tx<'t, B>) -> Result<()> {
        let (len, array) = self.parts(tx)?;
        match array {
            Some(_) if len == 0 => tx.link_array(self.items(), None),
            Some(array) if len < array.len() => {
                let new = tx.move_array(array, len, len)?;
                tx.link_array(self.items(), new)
            }
            _ => Ok(()),
        }
    }

    /// Inserts a value before the element at `index`, and returns its place. Moves every element from there on.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    ///
    /// # Panics
    ///
    /// If `index` is beyond the end.
    pub fn insert(self, tx: &mut Tx<'t, B>, index: usize, value: T) -> Result<Ref<'t, B, T>> {
        let (len, array) = self.parts(tx)?;
        if index > len {
            no_element(index, len);
        }
        let array = match array {
            Some(array) if len < array.len() => array,
            _ => self.grow(tx, array, len, len + 1)?,
        };
        for i in (index..len).rev() {
            tx.move_value(array.at(i), array.at(i + 1))?;
        }
        tx.put(array.at(index), value)?;
        tx.set(self.count(), len as u64 + 1)?;
        Ok(array.at(index))
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
        let (array, len) = self.element(tx, index)?;
        tx.clear_value(array.at(index))?;
        for i in index + 1..len {
            tx.move_value(array.at(i), array.at(i - 1))?;
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
        let (array, len) = self.element(tx, index)?;
        tx.clear_value(array.at(index))?;
        tx.move_value(array.at(len - 1), array.at(index))?;
        tx.set(self.count(), len as u64 - 1)
    }

    fn element(self, tx: &ReadTx<'t, B>, index: usize) -> Result<(Arr<'t, B, T>, usize)> {
        match self.parts(tx)? {
            (len, Some(array)) if index < len => Ok((array, len)),
            (len, _) => no_element(index, len),
        }
    }
}

impl<'t, B: Brand, T: Plain> Ref<'t, B, PVec<T>> {
    /// A copy of all elements.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`](crate::Error::Conflict).
    pub fn to_vec(self, tx: &ReadTx<'t, B>) -> Result<Vec<T>> {
        self.iter(tx)?.map(|place| tx.get(place)).collect()
    }

    /// Appends copies of these values. A constant number of words for each, on average.
    ///
    /// # Errors
    ///
    /// As for [`push`](Ref::push).
    pub fn extend_from_slice(self, tx: &mut Tx<'t, B>, values: &[T]) -> Result<()> {
        self.reserve(tx, values.len())?;
        let (len, array) = self.parts(tx)?;
        let Some(array) = array else { return Ok(()) };
        for (i, value) in values.iter().enumerate() {
            tx.set(array.at(len + i), *value)?;
        }
        tx.set(self.count(), (len + values.len()) as u64)
    }

    /// Removes the last element and returns it.
    ///
    /// # Errors
    ///
    /// As for [`push`](Ref::push).
    pub fn pop_value(self, tx: &mut Tx<'t, B>) -> Result<Option<T>> {
        let (len, array) = self.parts(tx)?;
        let Some(array) = array.filter(|_| len > 0) else { return Ok(None) };
        let value = tx.get(array.at(len - 1))?;
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

    /// Removes the last pointer, and returns the object that it led to: it dies with the commit unless something else leads to it
    /// then.
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
    array: Option<Arr<'t, B, T>>,
    range: std::ops::Range<usize>,
}

impl<B: Brand, T> std::fmt::Debug for Places<'_, B, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Places").field(&self.range).finish()
    }
}

impl<'t, B: Brand, T: Persist> Iterator for Places<'t, B, T> {
    type Item = Ref<'t, B, T>;

    fn next(&mut self) -> Option<Ref<'t, B, T>> {
        let index = self.range.next()?;
        self.array.and_then(|array| array.get(index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl<B: Brand, T: Persist> ExactSizeIterator for Places<'_, B, T> {}

impl<B: Brand, T: Persist> DoubleEndedIterator for Places<'_, B, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let index = self.range.next_back()?;
        self.array.and_then(|array| array.get(index))
    }
}
