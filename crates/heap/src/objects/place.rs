//! Places and objects, by which a transaction names parts of the heap. They are a few words each, cheap to
//! copy, and end with the transaction.

use crate::layout::head_bytes;
use crate::objects::brand::{Brand, OfAnyThread};
use crate::objects::persist::Persist;
use std::marker::PhantomData;
use std::ops::Deref;

/// Ties a place to one transaction and one heap, and to its thread.
pub(crate) type Tie<'t, B, T> = PhantomData<(fn(&'t ()) -> &'t (), fn(B) -> B, OneThread<B>, fn() -> T)>;

/// A marker that stays on its thread.
pub(crate) struct OneThread<B>(PhantomData<(*const (), fn(B))>);

// SAFETY: no type implements `OfAnyThread`, and no program can implement it, so this never applies. It only
// replaces the compiler's message about the pointer by that of `OfAnyThread`.
unsafe impl<B> Send for OneThread<B> where PhantomData<B>: OfAnyThread {}
// SAFETY: as above.
unsafe impl<B> Sync for OneThread<B> where PhantomData<B>: OfAnyThread {}
/// The key of places in objects that the transaction has allocated, which no other transaction can have.
pub(crate) const FRESH: u64 = u64::MAX;

/// A place in a heap that holds a `T`: a field, an element, or a whole object.
pub struct Ref<'t, B: Brand, T> {
    /// Offset in the pool.
    pub(crate) off: u64,
    /// The key of the ownership record, whose owner may write here and whose version shows changes.
    pub(crate) key: u64,
    /// For a place in a variant of an enum: the number of earlier writes of values that may have variants;
    /// otherwise 0.
    pub(crate) stamp: u64,
    tie: Tie<'t, B, T>,
}

/// An object: the target of a pointer. It is the [`Ref`] of its value too.
pub struct Obj<'t, B: Brand, T> {
    value: Ref<'t, B, T>,
}

/// An array object.
pub struct Arr<'t, B: Brand, T> {
    /// Offset of the object in the pool.
    pub(crate) off: u64,
    pub(crate) len: u64,
    pub(crate) is_fresh: bool,
    tie: Tie<'t, B, T>,
}

/// The targets that a pointer may be linked to: the object or array `O`, an `Option` of one, or `None`.
#[diagnostic::on_unimplemented(
    message = "a pointer that leads to `{O}` cannot be linked to `{Self}`",
    label = "not what this pointer leads to",
    note = "a pointer leads to an object of its own type in its own heap, or, linked to `None`, to nothing",
    note = "a value becomes an object by `tx.alloc`, a handle by `tx.enter`",
    note = "no pointer leads from heap to heap: the other file may be absent, or another one, when it is followed; store a number or a key \
            by which the object is found there"
)]
pub trait Target<O> {
    /// The object or array; `None` for a null pointer.
    fn target(self) -> Option<O>;
}

impl<O> Target<O> for O {
    #[inline(always)]
    fn target(self) -> Option<O> {
        Some(self)
    }
}

impl<O> Target<O> for Option<O> {
    #[inline(always)]
    fn target(self) -> Option<O> {
        self
    }
}

impl<B: Brand, T> Copy for Ref<'_, B, T> {}
impl<B: Brand, T> Clone for Ref<'_, B, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B: Brand, T> Copy for Obj<'_, B, T> {}
impl<B: Brand, T> Clone for Obj<'_, B, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B: Brand, T> Copy for Arr<'_, B, T> {}
impl<B: Brand, T> Clone for Arr<'_, B, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<'t, B: Brand, T> Deref for Obj<'t, B, T> {
    type Target = Ref<'t, B, T>;
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.value
    }
}

/// Whether both are the same object.
impl<B: Brand, T> PartialEq for Obj<'_, B, T> {
    fn eq(&self, other: &Self) -> bool {
        self.value.off == other.value.off
    }
}
impl<B: Brand, T> Eq for Obj<'_, B, T> {}

impl<B: Brand, T> std::hash::Hash for Obj<'_, B, T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.value.off.hash(state);
    }
}

impl<B: Brand, T: Persist> std::fmt::Debug for Ref<'_, B, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {:#x}", T::name(), self.off)
    }
}
impl<B: Brand, T: Persist> std::fmt::Debug for Obj<'_, B, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}
impl<B: Brand, T: Persist> std::fmt::Debug for Arr<'_, B, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}; {}] at {:#x}", T::name(), self.len, self.off)
    }
}

impl<'t, B: Brand, T> Ref<'t, B, T> {
    #[inline(always)]
    pub(crate) fn new(off: u64, key: u64) -> Self {
        Ref { off, key, stamp: 0, tie: PhantomData }
    }

    /// A field of the value, for the accessors that `#[derive(Persist)]` makes.
    ///
    /// # Safety
    ///
    /// A `U` lies `off` bytes from the start of every `T`.
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn __project<U: Persist>(self, off: usize) -> Ref<'t, B, U> {
        self.part(off as u64)
    }

    /// A place in this one.
    #[inline(always)]
    pub(crate) fn part<U>(self, off: u64) -> Ref<'t, B, U> {
        Ref { off: self.off.wrapping_add(off), key: self.key, stamp: self.stamp, tie: PhantomData }
    }
}

impl<'t, B: Brand, T: Persist, const N: usize> Ref<'t, B, [T; N]> {
    /// The element at `index`.
    ///
    /// # Panics
    ///
    /// If the index is out of range: an array's length is part of its type.
    #[inline]
    pub fn at(self, index: usize) -> Ref<'t, B, T> {
        assert!(index < N, "index {index} in an array of {N} elements");
        self.part((index * size_of::<T>()) as u64)
    }
}

impl<'t, B: Brand, T> Obj<'t, B, T> {
    /// The object whose value begins at `value_off`.
    #[inline(always)]
    pub(crate) fn new(value_off: u64, key: u64) -> Self {
        Obj { value: Ref::new(value_off, key) }
    }

    /// The offset that pointers to the object hold.
    #[inline(always)]
    pub(crate) fn object_off(self) -> u64 {
        self.value.off.wrapping_sub(head_bytes::<T>())
    }
}

impl<'t, B: Brand, T: Persist> Arr<'t, B, T> {
    #[inline(always)]
    pub(crate) fn new(off: u64, len: u64, is_fresh: bool) -> Self {
        Arr { off, len, is_fresh, tie: PhantomData }
    }

    /// Number of elements.
    #[expect(clippy::len_without_is_empty, reason = "an array never becomes empty")]
    #[inline]
    pub fn len(self) -> usize {
        self.len as usize
    }

    /// The element at `index`, if there is one.
    #[inline(always)]
    pub fn get(self, index: usize) -> Option<Ref<'t, B, T>> {
        (index < self.len as usize).then(|| self.element(index as u64))
    }

    /// The element at `index`.
    ///
    /// # Panics
    ///
    /// If the index is out of range, as with slices.
    #[inline(always)]
    #[track_caller]
    pub fn at(self, index: usize) -> Ref<'t, B, T> {
        match self.get(index) {
            Some(element) => element,
            None => no_element(index, self.len),
        }
    }

    #[inline(always)]
    fn element(self, index: u64) -> Ref<'t, B, T> {
        let bytes = size_of::<T>() as u64;
        // A caller may compute an offset before it knows that the pointer to the array is valid.
        let first = self.off.wrapping_add(crate::layout::array_head_bytes(bytes));
        let off = first.wrapping_add(index.wrapping_mul(bytes));
        let key = if self.is_fresh { FRESH } else { element_key(self.off, off, bytes) };
        Ref::new(off, key)
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn no_element(index: usize, len: u64) -> ! {
    panic!("index {index} in an array of {len} elements")
}

/// The key of an element of the array at `array_off`: the element; if several lie in a line, the elements
/// that begin there; if elements share words, the whole array.
#[inline(always)]
pub(crate) fn element_key(array_off: u64, off: u64, bytes: u64) -> u64 {
    match bytes {
        1 | 2 | 4 => (off & !63) | 1,
        _ if !bytes.is_multiple_of(8) => array_off | 1,
        0..64 => (off & !63) | 1,
        _ => off | 1,
    }
}
