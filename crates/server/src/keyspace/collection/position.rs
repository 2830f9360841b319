//! Where an element lies among those of its collection: by SipHash-2-4 with a secret of the pool, so that no
//! client can choose fields that lie together.
//!
//! # Source
//! Aumasson and Bernstein, *SipHash: a fast short-input PRF*, INDOCRYPT 2012.

/// A key of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Secret(u64, u64);

impl Secret {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let number = u128::from_le_bytes(bytes);
        Secret(number as u64, (number >> 64) as u64)
    }

    /// The position of a field.
    pub(crate) fn position(self, field: &[u8]) -> u32 {
        (hash(self, field) >> 32) as u32
    }

    /// Bytes that tell long fields apart, though not with certainty.
    pub(crate) fn digest(self, field: &[u8]) -> [u8; 16] {
        let half = |tweak: u64| hash(Secret(self.0 ^ tweak, self.1), field);
        ((u128::from(half(1)) << 64) | u128::from(half(2))).to_be_bytes()
    }
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

fn hash(Secret(k0, k1): Secret, text: &[u8]) -> u64 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mix = |word: u64, v: &mut [u64; 4]| {
        v[3] ^= word;
        (0..2).for_each(|_| round(v));
        v[0] ^= word;
    };
    let (words, rest) = text.as_chunks::<8>();
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word), &mut v));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = text.len() as u8;
    mix(u64::from_le_bytes(last), &mut v);
    v[2] ^= 0xFF;
    (0..4).for_each(|_| round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

/// The longest field that a key holds as a whole.
pub(crate) const FIELD_BYTES_MAX: usize = 512;

/// The keys of the members of a sorted set.
pub(crate) fn id_range(id: u64) -> std::ops::Range<[u8; 8]> {
    id.to_be_bytes()..id.saturating_add(1).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_siphash() {
        // The paper's appendix A: key 00..0f, message 00..0e.
        let key: [u8; 16] = std::array::from_fn(|i| i as u8);
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(hash(Secret::from_bytes(key), &message), 0xa129_ca61_49be_45e5);
    }
}
