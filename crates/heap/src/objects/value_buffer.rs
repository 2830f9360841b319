//! Values as words. This is the only unsafe code of this crate besides that of `Persist` and the accessors.

use crate::objects::persist::{Persist, Plain};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Room for a `T`, in whole words.
#[repr(C, align(8))]
pub(crate) struct ValueBuffer<T> {
    value: MaybeUninit<T>,
}

impl<T: Persist> ValueBuffer<T> {
    /// Words that a `T` takes.
    pub(crate) const COUNT: usize = size_of::<ValueBuffer<T>>() / 8;

    /// An uninitialised buffer.
    #[inline(always)]
    pub(crate) fn new() -> ValueBuffer<T> {
        ValueBuffer { value: MaybeUninit::uninit() }
    }

    /// Zeroes the buffer.
    #[inline(always)]
    #[expect(clippy::disallowed_methods, reason = "memory of this process, not of a pool")]
    pub(crate) fn zeroed(&mut self) -> ValueWords<'_, T> {
        let words = (&raw mut *self).cast::<u64>();
        // SAFETY: `self` is this many aligned words, any of which may be written, and the first call
        // initialises them. They stay borrowed mutably, so no move loses the bytes that do not belong to the
        // `T`.
        let words = unsafe {
            words.write_bytes(0, Self::COUNT);
            std::slice::from_raw_parts_mut(words, Self::COUNT)
        };
        ValueWords { words, of: PhantomData }
    }

    /// The encoded value, followed by zeros.
    #[inline(always)]
    pub(crate) fn of(&mut self, value: &T) -> ValueWords<'_, T> {
        let mut words = self.zeroed();
        value.encode(words.value_bytes_mut());
        words
    }
}

/// The words of a `T` in its buffer.
pub(crate) struct ValueWords<'r, T> {
    words: &'r mut [u64],
    of: PhantomData<T>,
}

impl<T: Persist> ValueWords<'_, T> {
    #[inline(always)]
    pub(crate) fn words(&self) -> &[u64] {
        self.words
    }

    #[inline(always)]
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        self.words
    }

    /// The bytes of all words.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self.words)
    }

    /// The bytes of the value itself.
    #[inline(always)]
    pub(crate) fn value_bytes(&self) -> &[u8] {
        &self.bytes()[..size_of::<T>()]
    }

    /// As [`value_bytes`](Self::value_bytes), mutable.
    #[inline(always)]
    pub(crate) fn value_bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(self.words)[..size_of::<T>()]
    }
}

impl<T: Plain> ValueWords<'_, T> {
    /// The value; `None` if these are not the words of one.
    #[inline(always)]
    pub(crate) fn value(&self) -> Option<T> {
        T::decode(self.value_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// A move of a value's words lost the bytes that are not the value's, as a move of any `MaybeUninit` may.
    /// Stray memory was then compared and hashed with a map's keys, and went to media.
    #[test]
    fn words_are_zero_where_a_value_has_no_bytes_wherever_they_go() {
        let mut buffer = ValueBuffer::<u8>::new();
        let narrow = black_box(buffer.of(&0xA5));
        let moved = Box::new(black_box(narrow));
        assert_eq!(moved.words(), [u64::from_ne_bytes([0xA5, 0, 0, 0, 0, 0, 0, 0])]);
        assert_eq!((moved.value(), moved.value_bytes()), (Some(0xA5), &[0xA5][..]));
    }
}
