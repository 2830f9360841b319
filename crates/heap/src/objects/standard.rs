//! Types of the standard library that may lie in a heap, besides numbers and arrays: `NonZero`, `Duration`,
//! tuples, and `Option`s of small types.
//!
//! The language fixes the layout of `NonZero` only. The other types therefore have an encoding here, with as
//! many bytes as they have in memory; an assertion refuses a compiler that gives them another size. For any
//! bytes on media, `decode` returns a value or refuses them.
//!
//! | type | its bytes |
//! |---|---|
//! | `NonZero<N>` | the number |
//! | `Option<NonZero<N>>` | the number, 0 for `None` |
//! | `Option<N>` of a number | a byte 1 in the first half, and the number in the second; zeros for `None` |
//! | `Option<bool>`, `Option<char>` | the value; 2 or 0x11_0000 for `None` |
//! | `Duration` | 8 bytes of seconds, 4 of nanoseconds, which are below 10^9, and 4 of zeros |
//! | `Option<Duration>` | the same; 10^9 nanoseconds for `None` |
//! | tuples | the elements, those with larger alignments first, else in their order |

use crate::objects::persist::Describe;
use crate::objects::persist::{LayoutHash, Persist, Plain};
use std::num::NonZero;
use std::time::Duration;

macro_rules! non_zero {
    ($($number:ident)*) => {$(
        // SAFETY: it has the layout of the number: no pointers, no padding.
        unsafe impl Persist for NonZero<$number> {
            const NAME_HASH: u64 = LayoutHash::new("NonZero").number($number::NAME_HASH).finish();
            const HASH: u64 = Self::NAME_HASH;
            const HAS_VARIANTS: bool = false;
            const HAS_POINTERS: bool = false;
            fn name() -> String {
                concat!("NonZero<", stringify!($number), ">").to_owned()
            }
            fn describe(_: &mut Describe) {}
            #[inline(always)]
            fn encode(&self, out: &mut [u8]) {
                self.get().encode(out);
            }
        }
        // SAFETY: a number without pointers, of which 0 is refused.
        unsafe impl Plain for NonZero<$number> {
            #[inline(always)]
            fn decode(bytes: &[u8]) -> Option<Self> {
                NonZero::new($number::decode(bytes)?)
            }
        }
        impl Optional for NonZero<$number> {
            #[inline(always)]
            fn encode_option(value: Option<Self>, out: &mut [u8]) {
                value.map_or(0, NonZero::get).encode(out);
            }
            #[inline(always)]
            fn decode_option(bytes: &[u8]) -> Option<Option<Self>> {
                Some(NonZero::new($number::decode(bytes)?))
            }
        }
        const _: () = assert!(size_of::<Option<NonZero<$number>>>() == size_of::<$number>());
    )*};
}
non_zero! { u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 }

const NANOS: u32 = 1_000_000_000;

// SAFETY: it has no pointers, and only two numbers are encoded.
unsafe impl Persist for Duration {
    const NAME_HASH: u64 = LayoutHash::new("Duration").finish();
    const HASH: u64 = Self::NAME_HASH;
    const HAS_VARIANTS: bool = false;
    const HAS_POINTERS: bool = false;
    fn name() -> String {
        "Duration".to_owned()
    }
    fn describe(_: &mut Describe) {}
    #[inline]
    fn encode(&self, out: &mut [u8]) {
        self.as_secs().encode(&mut out[..8]);
        self.subsec_nanos().encode(&mut out[8..12]);
    }
}

// SAFETY: it has no pointers; nanoseconds of a second or more are refused.
unsafe impl Plain for Duration {
    #[inline]
    fn decode(bytes: &[u8]) -> Option<Self> {
        Duration::decode_option(bytes)?
    }
}

impl Optional for Duration {
    #[inline]
    fn encode_option(value: Option<Self>, out: &mut [u8]) {
        match value {
            Some(value) => value.encode(out),
            None => NANOS.encode(&mut out[8..12]),
        }
    }
    #[inline]
    fn decode_option(bytes: &[u8]) -> Option<Option<Self>> {
        let (seconds, nanos) = (u64::decode(bytes.get(..8)?)?, u32::decode(bytes.get(8..12)?)?);
        match nanos {
            ..NANOS => Some(Some(Duration::new(seconds, nanos))),
            NANOS => Some(None),
            _ => None,
        }
    }
}

const _: () = assert!(size_of::<Duration>() == 16 && size_of::<Option<Duration>>() == 16);

/// The types whose [`Option`] may lie in a heap: numbers, `bool`, `char`, [`NonZero`] and [`Duration`].
#[diagnostic::on_unimplemented(
    message = "`Option<{Self}>` cannot lie in a heap",
    label = "not optional in a heap",
    note = "an `Option` may hold a number of a fixed width, `bool`, `char`, `NonZero` or `Duration`",
    note = "for an object that need not be there: `PRc<T>`, `PWeak<T>` and `PBox<T>` are null to begin with, and need no `Option`",
    note = "for other values: an enum of your own, with #[derive(Persist)] #[repr(u8)]"
)]
pub trait Optional: Plain {
    /// Writes an optional value to `out`, which has the size of one and is zero.
    #[doc(hidden)]
    fn encode_option(value: Option<Self>, out: &mut [u8]);

    /// The optional value of these bytes; the outer `None` stands for invalid bytes.
    #[doc(hidden)]
    fn decode_option(bytes: &[u8]) -> Option<Option<Self>>;
}

// SAFETY: a `Plain` type has no pointers, and `encode_option` writes all of its bytes.
unsafe impl<T: Optional> Persist for Option<T> {
    const NAME_HASH: u64 = LayoutHash::new("Option").number(T::NAME_HASH).finish();
    const HASH: u64 = LayoutHash::new("Option").number(T::HASH).finish();
    const HAS_VARIANTS: bool = false;
    const HAS_POINTERS: bool = false;
    fn name() -> String {
        format!("Option<{}>", T::name())
    }
    fn describe(_: &mut Describe) {}
    #[inline]
    fn encode(&self, out: &mut [u8]) {
        T::encode_option(*self, out);
    }
}

// SAFETY: as above; `decode_option` returns what `encode_option` wrote.
unsafe impl<T: Optional> Plain for Option<T> {
    #[inline]
    fn decode(bytes: &[u8]) -> Option<Self> {
        T::decode_option(bytes)
    }
}

macro_rules! optional_number {
    ($($number:ident)*) => {$(
        impl Optional for $number {
            #[inline]
            fn encode_option(value: Option<Self>, out: &mut [u8]) {
                if let Some(number) = value {
                    out[0] = 1;
                    number.encode(&mut out[size_of::<$number>()..]);
                }
            }
            #[inline]
            fn decode_option(bytes: &[u8]) -> Option<Option<Self>> {
                match bytes.first()? {
                    0 => Some(None),
                    1 => Some(Some($number::decode(bytes.get(size_of::<$number>()..)?)?)),
                    _ => None,
                }
            }
        }
        const _: () = assert!(size_of::<Option<$number>>() == 2 * size_of::<$number>());
    )*};
}
optional_number! { u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 }

/// Types for which some numbers are no values: one of these stands for `None`.
macro_rules! optional_narrow {
    ($($narrow:ident as $number:ident, none $none:literal;)*) => {$(
        impl Optional for $narrow {
            #[inline]
            fn encode_option(value: Option<Self>, out: &mut [u8]) {
                value.map_or($none, |value| value as $number).encode(out);
            }
            #[inline]
            fn decode_option(bytes: &[u8]) -> Option<Option<Self>> {
                if $number::decode(bytes)? == $none { Some(None) } else { $narrow::decode(bytes).map(Some) }
            }
        }
        const _: () = assert!(size_of::<Option<$narrow>>() == size_of::<$number>());
    )*};
}
optional_narrow! {
    bool as u8, none 2;
    char as u32, none 0x11_0000;
}

/// The offsets of a tuple's elements. Elements with larger alignments come first, so there are no gaps. No
/// order takes less room, so a tuple in memory has at least as many bytes.
const fn places<const N: usize>(sizes: [usize; N], aligns: [usize; N]) -> [usize; N] {
    let mut places = [0; N];
    let (mut at, mut align) = (0, 1 << 29);
    while align > 0 {
        let mut i = 0;
        while i < N {
            if aligns[i] == align {
                places[i] = at;
                at += sizes[i];
            }
            i += 1;
        }
        align /= 2;
    }
    places
}

macro_rules! tuple {
    ($($element:ident $at:tt)*) => {
        impl<$($element: Plain),*> TuplePlaces for ($($element,)*) {
            const PLACES: &'static [usize] =
                &places([$(size_of::<$element>()),*], [$(align_of::<$element>()),*]);
        }
        // SAFETY: the elements are plain, and so have no pointers; their encodings do not overlap.
        unsafe impl<$($element: Plain),*> Persist for ($($element,)*) {
            const NAME_HASH: u64 = LayoutHash::new("tuple")$(.number($element::NAME_HASH))*.finish();
            const HASH: u64 = LayoutHash::new("tuple")
                $(.number(Self::PLACES[$at] as u64).number($element::HASH))*
                .finish();
            const HAS_VARIANTS: bool = false $(|| $element::HAS_VARIANTS)*;
            const HAS_POINTERS: bool = false;
            fn name() -> String {
                let names = [$($element::name()),*];
                if names.len() == 1 { format!("({},)", names[0]) } else { format!("({})", names.join(", ")) }
            }
            fn describe(_: &mut Describe) {}
            #[inline]
            fn encode(&self, out: &mut [u8]) {
                const { assert!(fits::<Self>(0 $(+ size_of::<$element>())*)) }
                $(self.$at.encode(&mut out[Self::PLACES[$at]..][..size_of::<$element>()]);)*
            }
        }
        // SAFETY: the elements are plain, and each is read where it was written.
        unsafe impl<$($element: Plain),*> Plain for ($($element,)*) {
            #[inline]
            fn decode(bytes: &[u8]) -> Option<Self> {
                Some(($($element::decode(bytes.get(Self::PLACES[$at]..)?.get(..size_of::<$element>())?)?,)*))
            }
        }
    };
}

/// Whether a tuple has as many bytes as its elements, rounded up.
const fn fits<T>(elements: usize) -> bool {
    size_of::<T>() == elements.next_multiple_of(align_of::<T>())
}

/// The offsets of the elements of a tuple.
trait TuplePlaces {
    const PLACES: &'static [usize];
}

tuple! { A 0 }
tuple! { A 0 B 1 }
tuple! { A 0 B 1 C 2 }
tuple! { A 0 B 1 C 2 D 3 }
tuple! { A 0 B 1 C 2 D 3 E 4 }
tuple! { A 0 B 1 C 2 D 3 E 4 F 5 }
tuple! { A 0 B 1 C 2 D 3 E 4 F 5 G 6 }
tuple! { A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 }

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn bytes_of<T: Plain>(value: &T) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<T>()];
        value.encode(&mut bytes);
        bytes
    }

    fn is_there_again<T: Plain + PartialEq + Debug>(values: &[T]) {
        for value in values {
            assert_eq!(T::decode(&bytes_of(value)).as_ref(), Some(value));
        }
    }

    #[test]
    fn every_value_is_there_again() {
        is_there_again(&[NonZero::<u8>::MIN, NonZero::<u8>::MAX]);
        is_there_again(&[None, NonZero::new(-7_i128)]);
        is_there_again(&[None, Some(0_u8), Some(255)]);
        is_there_again(&[None, Some(0_u32), Some(1 << 31)]);
        is_there_again(&[None, Some(i128::MIN)]);
        is_there_again(&[None, Some(-0.5_f32)]);
        is_there_again(&[None, Some(false), Some(true)]);
        is_there_again(&[None, Some('\0'), Some(char::MAX)]);
        is_there_again(&[Duration::ZERO, Duration::MAX, Duration::from_millis(1500)]);
        is_there_again(&[None, Some(Duration::ZERO), Some(Duration::MAX)]);
        is_there_again(&[(1_u8,), (2,)]);
        is_there_again(&[(1_u8, 2_u64, 3_u16, Some(4_u32), 'x', true, (5_u8, 6_u16), [7_u8; 3])]);
    }

    /// The bytes are the format: a change makes heaps unreadable.
    #[test]
    fn the_bytes_are_those_that_the_head_of_the_module_says() {
        assert_eq!(bytes_of(&NonZero::new(0x0102_u16)), 0x0102_u16.to_ne_bytes());
        assert_eq!(bytes_of(&None::<NonZero<u32>>), [0; 4]);
        let seven = 7_u32.to_ne_bytes();
        assert_eq!(bytes_of(&Some(7_u32)), [&[1, 0, 0, 0][..], &seven[..]].concat());
        assert_eq!(bytes_of(&None::<u32>), [0; 8]);
        assert_eq!((bytes_of(&None::<bool>), bytes_of(&Some(true))), (vec![2], vec![1]));
        assert_eq!(bytes_of(&None::<char>), 0x11_0000_u32.to_ne_bytes());
        let second = [&1_u64.to_ne_bytes()[..], &seven, &[0; 4]].concat();
        assert_eq!(bytes_of(&Duration::new(1, 7)), second);
        let none = [&[0; 8][..], &NANOS.to_ne_bytes(), &[0; 4]].concat();
        assert_eq!(bytes_of(&None::<Duration>), none);
        let tuple = [&2_u64.to_ne_bytes()[..], &seven, &[1, 3], &[0; 2]].concat();
        assert_eq!(bytes_of(&(1_u8, 2_u64, 7_u32, 3_u8)), tuple);
    }

    /// Any bytes on media are a value or refused; no value is made up.
    #[test]
    fn bytes_that_are_no_value_are_refused() {
        assert_eq!(NonZero::<u64>::decode(&[0; 8]), None);
        assert_eq!(<Option<NonZero<u64>>>::decode(&[0; 8]), Some(None));
        for byte in 0..=u8::MAX {
            assert_eq!(<Option<u8>>::decode(&[byte, 9]).is_some(), byte < 2, "{byte}");
            assert_eq!(<Option<bool>>::decode(&[byte]).is_some(), byte < 3, "{byte}");
        }
        for (number, is_value) in [(0xD800, false), (0x11_0000, true), (0x11_0001, false)] {
            assert_eq!(<Option<char>>::decode(&u32::to_ne_bytes(number)).is_some(), is_value, "{number:#x}");
        }
        for (nanos, is_value, is_option) in
            [(NANOS - 1, true, true), (NANOS, false, true), (NANOS + 1, false, false)]
        {
            let bytes = [&[0xFF; 8][..], &nanos.to_ne_bytes(), &[0xFF; 4]].concat();
            assert_eq!(Duration::decode(&bytes).is_some(), is_value, "{nanos}");
            assert_eq!(<Option<Duration>>::decode(&bytes).is_some(), is_option, "{nanos}");
        }
        assert_eq!(<(u32, bool)>::decode(&[0, 0, 0, 0, 2, 0, 0, 0]), None);
        assert_eq!(<(u32, bool)>::decode(&[0; 4]), None, "too few");
    }
}
