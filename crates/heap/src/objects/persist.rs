//! Which types may lie in a heap, and how each describes its layout.

use crate::objects::describe::Describe;

/// A type whose values may lie in a heap. Implemented by `#[derive(Persist)]` only.
///
/// A value that is built in ordinary memory has null pointers only ([`PRc`](crate::PRc) has no other constructor): it is
/// copied into the heap field by field, and its pointers are set there, by a transaction.
///
/// # Safety
///
/// The type is `repr(C)` (enums: a primitive representation), has no `Drop`, and every field is `Persist`. `describe` names every pointer in it at its place,
/// `HASH` changes whenever what `describe` says does, and `encode` writes every field at its place and nothing else.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in a heap",
    label = "not a persistent type",
    note = "a heap outlives the process: it holds numbers of a fixed width, arrays, tuples, `PRc`, `PWeak`, `PArr` and what is made of them",
    note = "addresses (`Box`, `&T`, fn pointers), file descriptors, `usize` and types with `Drop` mean nothing after a restart",
    note = "instead of `String` or `&str`: `PString`; of `Vec<T>`: `PVec<T>`; of `Box<T>`: `PBox<T>`; of `Rc<T>`, `Arc<T>` or `&T`: `PRc<T>`; of \
            `HashMap` and `BTreeMap`: `PHashMap` and `PMap`; of `usize`: `u64`; of a `SystemTime` or `Instant`: the `Duration` since a moment that you know",
    note = "for a type of your own: #[derive(Persist)] #[repr(C)]"
)]
pub unsafe trait Persist: Sized + 'static {
    /// Hash of the type's name and of those of its parameters: pointers to the type are told apart by it.
    const NAME_HASH: u64;
    /// Hash of the type's name and layout.
    const HASH: u64;
    /// Whether there is an enum in it whose variants have fields: writing the whole value may then change what lies at a place.
    const HAS_VARIANTS: bool;
    /// Whether there is a pointer in it, in one of its variants at least.
    const HAS_POINTERS: bool;

    /// The type's name, with its parameters.
    fn name() -> String;

    /// Says what lies where.
    fn describe(layout: &mut Describe);

    /// Writes the value into `out`, which has the type's size and is zero: so that padding stays zero.
    fn encode(&self, out: &mut [u8]);
}

/// A type without pointers: its values may be read, and borrowed mutably, as a whole. Implemented by `#[derive(Plain)]`.
///
/// # Safety
///
/// There are no pointers in it, and `decode` gives back what `encode` wrote.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read or borrowed as a whole",
    label = "not a plain type",
    note = "a value with persistent pointers in it would be copied or swapped past their counts: go to its fields by their \
            accessors, and use `load` and `link` for pointers",
    note = "a tuple is read as a whole: what has pointers in it is a struct with #[derive(Persist)] #[repr(C)]",
    note = "for a type without pointers: #[derive(Clone, Copy, Persist, Plain)] #[repr(C)]"
)]
pub unsafe trait Plain: Persist + Copy {
    /// The value of these bytes, which have the type's size; `None` if no value looks like that (media is damaged).
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// Hashes of layouts (FNV-1a), made at compile time.
#[derive(Clone, Copy)]
pub struct LayoutHash(u64);

impl LayoutHash {
    /// Begins with a name.
    pub const fn new(name: &str) -> LayoutHash {
        LayoutHash(0xCBF2_9CE4_8422_2325).text(name)
    }

    /// Adds a text.
    pub const fn text(mut self, text: &str) -> LayoutHash {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            self.0 = (self.0 ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01B3);
            at += 1;
        }
        self.number(bytes.len() as u64)
    }

    /// Adds a number.
    pub const fn number(mut self, number: u64) -> LayoutHash {
        let mut rest = 0;
        while rest < 64 {
            self.0 = (self.0 ^ (number >> rest & 0xFF)).wrapping_mul(0x0100_0000_01B3);
            rest += 8;
        }
        self
    }

    /// Adds a field.
    pub const fn field(self, name: &str, off: usize, hash: u64) -> LayoutHash {
        self.text(name).number(off as u64).number(hash)
    }

    /// The hash.
    pub const fn finish(self) -> u64 {
        self.0
    }
}

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

/// Types that are kept as a number of which not every value is one of theirs.
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
