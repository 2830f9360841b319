//! Keys from values: an encoding of numbers, text, bytes and tuples whose order is the order of the values.
//!
//! A key of a keyspace is a byte string, and keys are in the order of their bytes. [`encode`] makes a key
//! from a tuple such that the keys of tuples compare as the tuples do, and [`decode`] makes the tuple again.
//!
//! ```
//! use tembo_store::tuple;
//!
//! let key = tuple::encode(&("eu", -3_i64, 7_u32));
//! assert!(key < tuple::encode(&("eu", 2_i64, 0_u32)));
//! assert!(key.starts_with(&tuple::encode(&("eu",))), "so all keys of `eu` lie together");
//! assert_eq!(tuple::decode::<(String, i64, u32)>(&key), Ok(("eu".to_owned(), -3, 7)));
//! ```
//!
//! # Format
//!
//! It is stable: keys are on media. No part says its type; the program knows the types of a keyspace's keys.
//!
//! | type | bytes |
//! |---|---|
//! | `u8` to `u128` | big-endian |
//! | `i8` to `i128` | big-endian, the sign bit inverted |
//! | `bool` | 0 or 1 |
//! | `[u8; N]` | as they are |
//! | text, bytes ([`Bytes`]) | as they are, but `00 01` for each zero; then `00 00` |
//! | `Option` | 0; or 1 and the value |
//! | tuples, nested too | their parts, one after the other |
//!
//! Each encoding ends by itself, so that no key of a type is the beginning of another of the same type, and
//! two keys first differ inside of one part. The encoding of a shorter tuple is the beginning of those of the
//! longer ones that begin with its parts.
//!
//! # Why not a crate
//!
//! Such crates encode by way of `serde`, or have changed what they write from one version to the next. What
//! is a key on media must stay as it is, and this is short.

/// The key for a value. Keys compare as values of one type do.
pub fn encode<T: Encode + ?Sized>(value: &T) -> Vec<u8> {
    let mut key = Vec::new();
    value.encode_to(&mut key);
    key
}

/// The value that a key was made from.
///
/// # Errors
///
/// [`DecodeError`] if no value of the type has this key.
pub fn decode<T: Decode>(key: &[u8]) -> Result<T, DecodeError> {
    let mut input = Input { bytes: key, at: 0 };
    let value = T::decode_from(&mut input)?;
    if input.at != key.len() {
        return Err(input.expected("the end of the key"));
    }
    Ok(value)
}

/// A key that no value of the expected type has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} at byte {at} of the key")]
pub struct DecodeError {
    /// The position where it was expected.
    pub at: usize,
    /// The part that was expected there.
    pub expected: &'static str,
}

/// A value that keys are made from.
pub trait Encode {
    /// Appends its encoding.
    fn encode_to(&self, key: &mut Vec<u8>);
}

/// A value that can be made from its key.
pub trait Decode: Sized {
    /// Takes its encoding off the input.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the input begins otherwise.
    fn decode_from(input: &mut Input<'_>) -> Result<Self, DecodeError>;
}

/// The rest of a key that is being decoded.
#[derive(Debug)]
pub struct Input<'k> {
    bytes: &'k [u8],
    at: usize,
}

impl Input<'_> {
    /// The error that something else was expected here.
    fn expected(&self, expected: &'static str) -> DecodeError {
        DecodeError { at: self.at, expected }
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], DecodeError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let array = *rest.first_chunk::<N>().ok_or(self.expected(expected))?;
        self.at += N;
        Ok(array)
    }

    fn escaped(&mut self, expected: &'static str) -> Result<Vec<u8>, DecodeError> {
        let mut bytes = Vec::new();
        loop {
            let [byte] = self.array(expected)?;
            if byte != 0 {
                bytes.push(byte);
                continue;
            }
            match self.array(expected)? {
                [0] => return Ok(bytes),
                [1] => bytes.push(0),
                _ => {
                    self.at -= 1;
                    return Err(self.expected("00 or 01 behind a zero"));
                }
            }
        }
    }
}

/// Bytes of any length. (A `Vec<u8>` is no part of a key: it could be meant as a list of numbers.)
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub Vec<u8>);

fn encode_escaped(bytes: &[u8], key: &mut Vec<u8>) {
    for (i, piece) in bytes.split(|byte| *byte == 0).enumerate() {
        if i > 0 {
            key.extend_from_slice(&[0, 1]);
        }
        key.extend_from_slice(piece);
    }
    key.extend_from_slice(&[0, 0]);
}

macro_rules! numbers {
    ($($number:ty, $what:literal, $flip:expr;)*) => {$(
        impl Encode for $number {
            fn encode_to(&self, key: &mut Vec<u8>) {
                key.extend_from_slice(&(*self ^ $flip).to_be_bytes());
            }
        }

        impl Decode for $number {
            fn decode_from(input: &mut Input<'_>) -> Result<$number, DecodeError> {
                Ok(<$number>::from_be_bytes(input.array($what)?) ^ $flip)
            }
        }
    )*};
}

numbers! {
    u8, "the byte of a u8", 0;
    u16, "the 2 bytes of a u16", 0;
    u32, "the 4 bytes of a u32", 0;
    u64, "the 8 bytes of a u64", 0;
    u128, "the 16 bytes of a u128", 0;
    i8, "the byte of an i8", i8::MIN;
    i16, "the 2 bytes of an i16", i16::MIN;
    i32, "the 4 bytes of an i32", i32::MIN;
    i64, "the 8 bytes of an i64", i64::MIN;
    i128, "the 16 bytes of an i128", i128::MIN;
}

impl Encode for bool {
    fn encode_to(&self, key: &mut Vec<u8>) {
        key.push((*self).into());
    }
}

impl Decode for bool {
    fn decode_from(input: &mut Input<'_>) -> Result<bool, DecodeError> {
        match input.array("a bool, 0 or 1")? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => {
                input.at -= 1;
                Err(input.expected("a bool, 0 or 1"))
            }
        }
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode_to(&self, key: &mut Vec<u8>) {
        key.extend_from_slice(self);
    }
}

impl<const N: usize> Decode for [u8; N] {
    fn decode_from(input: &mut Input<'_>) -> Result<[u8; N], DecodeError> {
        input.array("an array of bytes")
    }
}

impl Encode for str {
    fn encode_to(&self, key: &mut Vec<u8>) {
        encode_escaped(self.as_bytes(), key);
    }
}

impl Encode for String {
    fn encode_to(&self, key: &mut Vec<u8>) {
        self.as_str().encode_to(key);
    }
}

impl Decode for String {
    fn decode_from(input: &mut Input<'_>) -> Result<String, DecodeError> {
        let error = input.expected("text in UTF-8");
        String::from_utf8(input.escaped("text, which ends with 00 00")?).map_err(|_| error)
    }
}

impl Encode for Bytes {
    fn encode_to(&self, key: &mut Vec<u8>) {
        encode_escaped(&self.0, key);
    }
}

impl Decode for Bytes {
    fn decode_from(input: &mut Input<'_>) -> Result<Bytes, DecodeError> {
        input.escaped("bytes, which end with 00 00").map(Bytes)
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode_to(&self, key: &mut Vec<u8>) {
        self.is_some().encode_to(key);
        if let Some(value) = self {
            value.encode_to(key);
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode_from(input: &mut Input<'_>) -> Result<Option<T>, DecodeError> {
        let is_some = bool::decode_from(input)?;
        is_some.then(|| T::decode_from(input)).transpose()
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode_to(&self, key: &mut Vec<u8>) {
        (**self).encode_to(key);
    }
}

macro_rules! tuples {
    ($(($($part:ident $at:tt),*))*) => {$(
        impl<$($part: Encode),*> Encode for ($($part,)*) {
            fn encode_to(&self, key: &mut Vec<u8>) {
                let _ = &key;
                $(self.$at.encode_to(key);)*
            }
        }

        impl<$($part: Decode),*> Decode for ($($part,)*) {
            fn decode_from(input: &mut Input<'_>) -> Result<Self, DecodeError> {
                let _ = &input;
                Ok(($($part::decode_from(input)?,)*))
            }
        }
    )*};
}

tuples! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}
