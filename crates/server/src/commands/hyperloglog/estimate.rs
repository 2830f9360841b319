//! The number of elements that registers stand for.
//!
//! # Source
//! Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (arXiv:1702.01284), the
//! improved raw estimator, with its functions sigma and tau.

use super::registers::REGISTERS;

/// How often each value of a register occurs.
pub(super) type Histogram = [u32; 64];

/// Bits of a hash that are not used for the index of a register.
const HASH_BITS: usize = 50;
/// 2^63.
const COUNT_END: f64 = 9_223_372_036_854_775_808.0;
/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

pub(super) fn estimate(histogram: &Histogram) -> u64 {
    let m = REGISTERS as f64;
    let share = |count: u32| f64::from(count) / m;
    let full = histogram[HASH_BITS + 1];
    let mut z = m * tau((m - f64::from(full)) / m);
    for count in histogram[1..=HASH_BITS].iter().rev() {
        z = (z + f64::from(*count)) * 0.5;
    }
    z += m * sigma(share(histogram[0]));
    let count = (ALPHA * m * m / z).round();
    // A number that is too large for 63 bits is converted as a processor does it. Only registers that no hash
    // gives are so high.
    if count < COUNT_END { count as u64 } else { 1 << 63 }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}
