//! The hash of elements: MurmurHash64A, byte for byte as on every machine.

const SEED: u64 = 0xadc8_3b19;
const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

/// Mixes one word.
fn mixed(word: u64) -> u64 {
    let word = word.wrapping_mul(FACTOR);
    (word ^ word >> SHIFT).wrapping_mul(FACTOR)
}

pub(super) fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    // The length counts as a number of 32 bits with a sign, of which an argument has no more.
    let start = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let mut hash =
        words.iter().fold(start, |hash, word| (hash ^ mixed(u64::from_le_bytes(*word))).wrapping_mul(FACTOR));
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}
