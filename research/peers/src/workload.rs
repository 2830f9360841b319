//! The keys and values, the same for every engine: a function of the seed.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The kind of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Shape {
    /// 8-byte keys, 8-byte values.
    Words,
    /// 20-byte string keys, 8-byte values.
    Strings,
    /// 20-byte string keys, 100-byte values.
    #[value(name = "strings-100")]
    #[serde(rename = "strings-100")]
    Strings100,
    /// 8-byte keys, 1 KiB values.
    Kib,
    /// 25-byte string keys, 2 KiB values, as in the CDDS paper.
    Tuples,
    /// 25-byte string keys, 1 KiB values.
    TuplesKib,
}

impl Shape {
    pub(crate) fn key_bytes(self) -> usize {
        match self {
            Shape::Words | Shape::Kib => 8,
            Shape::Strings | Shape::Strings100 => 20,
            Shape::Tuples | Shape::TuplesKib => MAX_KEY_BYTES,
        }
    }

    pub(crate) fn value_bytes(self) -> usize {
        match self {
            Shape::Words | Shape::Strings => 8,
            Shape::Strings100 => 100,
            Shape::Kib | Shape::TuplesKib => 1024,
            Shape::Tuples => 2048,
        }
    }

    pub(crate) fn describe(self) -> &'static str {
        match self {
            Shape::Words => "8-byte keys, 8-byte values",
            Shape::Strings => "20-byte string keys, 8-byte values",
            Shape::Strings100 => "20-byte string keys, 100-byte values",
            Shape::Kib => "8-byte keys, 1 KiB values",
            Shape::Tuples => "25-byte string keys, 2 KiB values",
            Shape::TuplesKib => "25-byte string keys, 1 KiB values",
        }
    }
}

const MAX_KEY_BYTES: usize = 25;

/// A key that lies in one line, so that an engine that reads a word of it does not wait for two stores.
#[repr(align(64))]
struct Key([u8; MAX_KEY_BYTES]);

/// Long values begin anywhere in the first `NOISE_STARTS` bytes of a stretch of random ones.
const NOISE_STARTS: usize = 1 << 16;

/// `count` records with distinct, random keys.
pub(crate) struct Workload {
    shape: Shape,
    /// The start that the seed gives.
    start: u64,
    noise: Vec<u8>,
    key: Key,
    value: Vec<u8>,
}

impl Workload {
    pub(crate) fn new(shape: Shape, seed: u64) -> Workload {
        let words = (NOISE_STARTS + shape.value_bytes()).div_ceil(8) as u64;
        let noise = (0..words).flat_map(|i| mix(seed ^ mix(i)).to_le_bytes()).collect();
        Workload {
            shape,
            start: mix(seed),
            noise,
            key: Key([0; MAX_KEY_BYTES]),
            value: vec![0; shape.value_bytes()],
        }
    }

    /// A number that orders the keys: `number(a) < number(b)` exactly if the key of `a` is less than that of
    /// `b`.
    pub(crate) fn number(&self, index: u64) -> u64 {
        // Multiplying by an odd number and mixing are one to one, hence no two indexes have the same number.
        mix(self.start.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The key of a record. Computed, not looked up, so that the caches hold the engine's data and not the
    /// keys.
    #[inline]
    pub(crate) fn key(&mut self, index: u64) -> &[u8] {
        self.set_key(self.number(index));
        &self.key.0[..self.shape.key_bytes()]
    }

    /// The key of the record with this number.
    #[inline(always)]
    fn set_key(&mut self, number: u64) {
        match self.shape {
            Shape::Words | Shape::Kib => self.key.0[..8].copy_from_slice(&number.to_be_bytes()),
            Shape::Strings | Shape::Strings100 | Shape::Tuples | Shape::TuplesKib => {
                hex(number, &mut self.key.0[..16]);
                hex(mix(number), &mut self.key.0[16..self.shape.key_bytes()]);
            }
        }
    }

    /// The value of the record with this number.
    #[inline(always)]
    fn set_value(&mut self, number: u64) {
        let word = mix(!number);
        let length = self.value.len();
        if length > 8 {
            let start = word as usize % NOISE_STARTS;
            self.value.copy_from_slice(&self.noise[start..start + length]);
        }
        self.value[..8].copy_from_slice(&word.to_le_bytes());
    }

    /// A value that is a part of the noise, so that making it costs nothing: one of [`NOISE_STARTS`]
    /// different ones.
    pub(crate) fn part(&self, index: u64) -> &[u8] {
        let start = mix(!self.number(index)) as usize % NOISE_STARTS;
        &self.noise[start..start + self.shape.value_bytes()]
    }

    /// Key and value of a record. Always inlined: what a call saves would be stored behind the last
    /// operation's fence.
    #[inline(always)]
    pub(crate) fn record(&mut self, index: u64) -> (&[u8], &[u8]) {
        let number = self.number(index);
        self.set_key(number);
        self.set_value(number);
        (&self.key.0[..self.shape.key_bytes()], &self.value)
    }
}

/// The hexadecimal digits of a number, from the highest, as many as fit.
fn hex(number: u64, digits: &mut [u8]) {
    for (place, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15];
    }
}

/// The numbers below `count` in random order.
pub(crate) fn shuffled(count: u64, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> =
        (0..u32::try_from(count).expect("fewer than four thousand million records")).collect();
    for last in (1..order.len()).rev() {
        let other = (u128::from(mix(seed ^ mix(last as u64))) * (last as u128 + 1)) >> 64;
        order.swap(last, other as usize);
    }
    order
}

/// The finalizer of SplitMix64: one to one, every bit of the result depends on every bit of `x`.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_are_distinct_and_ordered_as_their_numbers() {
        for shape in [Shape::Words, Shape::Strings, Shape::Kib] {
            let mut workload = Workload::new(shape, 7);
            let mut by_key: Vec<(Vec<u8>, u64)> =
                (0..10_000).map(|i| (workload.key(i).to_vec(), workload.number(i))).collect();
            by_key.sort();
            assert!(
                by_key.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1),
                "{shape:?}"
            );
            assert!(by_key.iter().all(|(key, _)| key.len() == shape.key_bytes()), "{shape:?}");
        }
    }

    #[test]
    fn records_depend_on_the_seed_and_on_nothing_else() {
        for shape in [Shape::Words, Shape::Strings, Shape::Strings100, Shape::Kib] {
            let record = |seed, index| {
                let mut workload = Workload::new(shape, seed);
                workload.record(index + 1);
                let (key, value) = workload.record(index);
                (key.to_vec(), value.to_vec())
            };
            assert_eq!(record(1, 5), record(1, 5));
            assert_ne!(record(1, 5), record(2, 5));
            assert_ne!(record(1, 5).1, record(1, 6).1);
            assert_eq!(record(1, 5).1.len(), shape.value_bytes());
        }
    }

    #[test]
    fn shuffling_keeps_every_number_once() {
        let order = shuffled(1000, 3);
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 1000);
        assert_ne!(order, shuffled(1000, 4));
        assert!(order.iter().enumerate().filter(|(place, number)| *place as u32 == **number).count() < 20);
    }
}
