//! SHA-1, which names scripts. It protects nothing.

/// The digest of `bytes` in hexadecimal digits.
pub fn sha1_hex(bytes: &[u8]) -> [u8; 40] {
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut blocks = bytes.chunks_exact(64);
    blocks.by_ref().for_each(|block| compress(&mut state, block));
    let rest = blocks.remainder();
    let mut tail = [0; 128];
    tail[..rest.len()].copy_from_slice(rest);
    tail[rest.len()] = 0x80;
    let end = if rest.len() < 56 { 64 } else { 128 };
    tail[end - 8..end].copy_from_slice(&(bytes.len() as u64 * 8).to_be_bytes());
    tail[..end].chunks_exact(64).for_each(|block| compress(&mut state, block));
    let mut digits = [0; 40];
    for (at, byte) in state.iter().flat_map(|word| word.to_be_bytes()).enumerate() {
        digits[at * 2] = b"0123456789abcdef"[usize::from(byte >> 4)];
        digits[at * 2 + 1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    digits
}

fn compress(state: &mut [u32; 5], block: &[u8]) {
    let mut words = [0_u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, &byte| word << 8 | u32::from(byte));
    }
    for at in 16..80 {
        words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (at, word) in words.iter().enumerate() {
        let (mixed, constant) = match at / 20 {
            0 => (b & c | !b & d, 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let sum = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, sum.wrapping_add(*word));
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d, e]) {
        *word = word.wrapping_add(add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        let digest = |bytes: &[u8]| String::from_utf8(sha1_hex(bytes).to_vec()).unwrap();
        assert_eq!(digest(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(digest(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(digest(&[b'a'; 64]), "0098ba824b5c16427bd7a1122a5a442a25ec644d");
        assert_eq!(digest(&[b'a'; 1_000_000]), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}
