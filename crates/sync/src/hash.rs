//! The multiplicative hash (Fibonacci hashing; Knuth, The Art of Computer Programming 3, section 6.4).

/// 2^64 divided by the golden ratio, made odd.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// The hash of an offset or key. Its high bits depend on all of `key`; its low bits do not.
#[inline(always)]
pub const fn hash_u64(key: u64) -> u64 {
    key.wrapping_mul(MULTIPLIER)
}

/// The `bits` high bits of the hash, 1 to 63: an index into a table of 2^`bits` entries.
#[inline(always)]
pub const fn hash_u64_to_bits(key: u64, bits: u32) -> u64 {
    hash_u64(key) >> (64 - bits)
}
