//! Values as words: the only unsafe code of this crate beside what `Persist` and accessors ask for.

use crate::persist::{Persist, Plain};
use std::mem::MaybeUninit;

/// Room for a `T`, in whole words.
#[repr(C, align(8))]
pub(crate) struct Words<T> {
    value: MaybeUninit<T>,
}

impl<T: Persist> Words<T> {
    /// Words that a `T` takes.
    pub(crate) const COUNT: usize = size_of::<Words<T>>() / 8;

    /// All zero.
    #[inline(always)]
    pub(crate) fn zeroed() -> Words<T> {
        // SAFETY: any bytes are a valid `MaybeUninit`; padding after it is zeroed too.
        unsafe { MaybeUninit::<Words<T>>::zeroed().assume_init() }
    }

    /// The encoded value, followed by zeros.
    #[inline(always)]
    pub(crate) fn of(value: &T) -> Words<T> {
        let mut words = Words::zeroed();
        value.encode(&mut words.bytes_mut()[..size_of::<T>()]);
        words
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> &[u64] {
        // SAFETY: `self` is this many aligned words, initialised by `zeroed`.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), Self::COUNT) }
    }

    #[inline(always)]
    #[expect(clippy::disallowed_methods, reason = "memory of this process, not of a pool")]
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`; borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut((&raw mut *self).cast(), Self::COUNT) }
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: as in `words`; bytes have no alignment.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Words<T>>()) }
    }

    #[inline(always)]
    #[expect(clippy::disallowed_methods, reason = "memory of this process, not of a pool")]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `words_mut`.
        unsafe { std::slice::from_raw_parts_mut((&raw mut *self).cast(), size_of::<Words<T>>()) }
    }
}

impl<T: Plain> Words<T> {
    /// The value; `None` if these are not the words of one.
    #[inline(always)]
    pub(crate) fn value(&self) -> Option<T> {
        T::decode(&self.bytes()[..size_of::<T>()])
    }
}
