//! Numbers, arrays and types without bytes, as they lie in a heap.

use crate::objects::persist::{Describe, LayoutHash, Persist, Plain};

macro_rules! numbers {
    ($($number:ident)*) => {$(
        // SAFETY: a number: no pointers, no padding, every pattern valid.
        unsafe impl Persist for $number {
            const NAME_HASH: u64 = LayoutHash::new(stringify!($number)).finish();
            const HASH: u64 = Self::NAME_HASH;
            const HAS_VARIANTS: bool = false;
            const HAS_POINTERS: bool = false;
            fn name() -> String {
                stringify!($number).to_owned()
            }
            fn describe(_: &mut Describe) {}
            #[inline(always)]
            fn encode(&self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_ne_bytes());
            }
        }
        // SAFETY: as above.
        unsafe impl Plain for $number {
            #[inline(always)]
            fn decode(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_ne_bytes(bytes.try_into().ok()?))
            }
        }
    )*};
}
numbers! { u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 }

/// Types that are stored as a number, of which some values are invalid.
macro_rules! narrow {
    ($($narrow:ident as $number:ident: $from:expr;)*) => {$(
        // SAFETY: kept as a number; no pointers, no padding.
        unsafe impl Persist for $narrow {
            const NAME_HASH: u64 = LayoutHash::new(stringify!($narrow)).finish();
            const HASH: u64 = Self::NAME_HASH;
            const HAS_VARIANTS: bool = false;
            const HAS_POINTERS: bool = false;
            fn name() -> String {
                stringify!($narrow).to_owned()
            }
            fn describe(_: &mut Describe) {}
            #[inline(always)]
            fn encode(&self, out: &mut [u8]) {
                out.copy_from_slice(&(*self as $number).to_ne_bytes());
            }
        }
        // SAFETY: as above.
        unsafe impl Plain for $narrow {
            #[inline(always)]
            fn decode(bytes: &[u8]) -> Option<Self> {
                $from($number::from_ne_bytes(bytes.try_into().ok()?))
            }
        }
    )*};
}
narrow! {
    bool as u8: |byte| match byte { 0 => Some(false), 1 => Some(true), _ => None };
    char as u32: char::from_u32;
}

// SAFETY: the elements follow each other without gaps, and are described one by one.
unsafe impl<T: Persist, const N: usize> Persist for [T; N] {
    const NAME_HASH: u64 = LayoutHash::new("array").number(N as u64).number(T::NAME_HASH).finish();
    const HASH: u64 = LayoutHash::new("array").number(N as u64).number(T::HASH).finish();
    const HAS_VARIANTS: bool = T::HAS_VARIANTS;
    const HAS_POINTERS: bool = T::HAS_POINTERS;
    fn name() -> String {
        format!("[{}; {N}]", T::name())
    }
    fn describe(layout: &mut Describe) {
        layout.array::<T>(N);
    }
    #[inline]
    fn encode(&self, out: &mut [u8]) {
        for (element, out) in self.iter().zip(out.chunks_exact_mut(size_of::<T>().max(1))) {
            element.encode(out);
        }
    }
}

// SAFETY: the elements are plain.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {
    #[inline]
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut complete = true;
        let bytes_each = size_of::<T>();
        let element = |i: usize| T::decode(bytes.get(i * bytes_each..(i + 1) * bytes_each)?);
        let first = element(0);
        let Some(first) = first else { return if N == 0 { array_of_none() } else { None } };
        let values = std::array::from_fn(|i| {
            element(i).unwrap_or_else(|| {
                complete = false;
                first
            })
        });
        complete.then_some(values)
    }
}

/// The array without elements.
fn array_of_none<T, const N: usize>() -> Option<[T; N]> {
    Vec::new().try_into().ok()
}

// SAFETY: it has no bytes.
unsafe impl Persist for () {
    const NAME_HASH: u64 = LayoutHash::new("()").finish();
    const HASH: u64 = Self::NAME_HASH;
    const HAS_VARIANTS: bool = false;
    const HAS_POINTERS: bool = false;
    fn name() -> String {
        "()".to_owned()
    }
    fn describe(_: &mut Describe) {}
    fn encode(&self, _: &mut [u8]) {}
}

// SAFETY: it has no bytes.
unsafe impl Plain for () {
    fn decode(_: &[u8]) -> Option<()> {
        Some(())
    }
}

// SAFETY: it has no bytes.
unsafe impl<T: 'static> Persist for std::marker::PhantomData<T> {
    const NAME_HASH: u64 = LayoutHash::new("PhantomData").finish();
    const HASH: u64 = Self::NAME_HASH;
    const HAS_VARIANTS: bool = false;
    const HAS_POINTERS: bool = false;
    fn name() -> String {
        "PhantomData".to_owned()
    }
    fn describe(_: &mut Describe) {}
    fn encode(&self, _: &mut [u8]) {}
}
