//! Byte strings as the tree compares them: prefixes, fingerprints and separators.

use crate::wbtree::layout::MAX_SHARED_BYTES;
use xxhash_rust::xxh3::xxh3_64;

/// The byte that a leaf keeps of a key's hash.
#[inline(always)]
pub(crate) fn fingerprint(key: &[u8]) -> u8 {
    xxh3_64(key) as u8
}

/// The first 8 bytes as a big-endian number, padded with zeros: two prefixes that differ are in the order
/// of the byte strings.
#[inline(always)]
pub(crate) fn prefix8(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => bytes.iter().rev().fold(0, |word, byte| (word >> 8) | u64::from(*byte) << 56),
    }
}

/// Length of the longest common prefix.
pub(crate) fn lcp(a: &[u8], b: &[u8]) -> usize {
    let bytes = a.len().min(b.len());
    let (words_a, _) = a[..bytes].as_chunks::<8>();
    let (words_b, _) = b[..bytes].as_chunks::<8>();
    let whole = words_a.iter().zip(words_b).take_while(|(x, y)| x == y).count() * 8;
    whole + a[whole..bytes].iter().zip(&b[whole..bytes]).take_while(|(x, y)| x == y).count()
}

/// A separator in full, in two pieces, because a node keeps only what its separators do not share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Separator<'a> {
    head: &'a [u8],
    tail: [u8; 8],
    tail_bytes: usize,
    /// The block that holds these bytes on media, if there is one; its ownership goes with the separator.
    pub(crate) block: u64,
}

impl<'a> Separator<'a> {
    pub(crate) fn whole(bytes: &'a [u8]) -> Separator<'a> {
        Separator { head: bytes, tail: [0; 8], tail_bytes: 0, block: 0 }
    }

    /// `head`, then the first `tail_bytes` (at most 8) of the big-endian `tail`.
    pub(crate) fn inline(head: &'a [u8], tail: u64, tail_bytes: usize) -> Separator<'a> {
        debug_assert!(tail_bytes <= 8);
        Separator { head, tail: tail.to_be_bytes(), tail_bytes, block: 0 }
    }

    /// Bytes that lie in a block of their own, if `block` is not 0.
    pub(crate) fn in_block(bytes: &'a [u8], block: u64) -> Separator<'a> {
        Separator { block, ..Separator::whole(bytes) }
    }

    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.tail_bytes
    }

    /// The piece that begins at byte `at`; empty only at the end.
    fn piece(&self, at: usize) -> &[u8] {
        match at.checked_sub(self.head.len()) {
            None => &self.head[at..],
            Some(in_tail) => &self.tail[in_tail.min(self.tail_bytes)..self.tail_bytes],
        }
    }

    pub(crate) fn lcp(&self, other: &Separator<'_>) -> usize {
        let mut shared = 0;
        loop {
            let (a, b) = (self.piece(shared), other.piece(shared));
            let more = lcp(a, b);
            shared += more;
            if more == 0 || more < a.len().min(b.len()) {
                return shared;
            }
        }
    }

    /// The 8 bytes from byte `base` on, as [`prefix8`].
    pub(crate) fn prefix_at(&self, base: usize) -> u64 {
        let mut out = [0; 8];
        let mut filled = 0;
        while filled < 8 {
            let piece = self.piece(base + filled);
            if piece.is_empty() {
                break;
            }
            let n = piece.len().min(8 - filled);
            out[filled..filled + n].copy_from_slice(&piece[..n]);
            filled += n;
        }
        u64::from_be_bytes(out)
    }

    /// Puts the separator into `out`, replacing what is there.
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.head);
        out.extend_from_slice(&self.tail[..self.tail_bytes]);
    }

    /// The separator in one piece.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        self.write_to(&mut out);
        out
    }
}

/// The bytes that every key between two fences shares; a missing fence shares none.
pub(crate) fn shared_bytes(low: Option<&Separator<'_>>, high: Option<&Separator<'_>>) -> usize {
    match (low, high) {
        (Some(low), Some(high)) => low.lcp(high).min(MAX_SHARED_BYTES),
        _ => 0,
    }
}

/// The shortest byte string `s` with `left < s <= right`: a prefix of `right`.
pub(crate) fn shortest_between<'a>(left: &[u8], right: &'a [u8]) -> &'a [u8] {
    debug_assert!(left < right);
    &right[..(lcp(left, right) + 1).min(right.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_order_as_the_strings_do_where_they_differ() {
        let samples: [&[u8]; 9] =
            [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0b", b"abcdefg", b"abcdefgh", b"abcdefghi"];
        for x in samples {
            for y in samples {
                let by_prefix = prefix8(x).cmp(&prefix8(y));
                assert!(by_prefix.is_eq() || by_prefix == x.cmp(y), "{x:?} {y:?}");
            }
        }
        assert_eq!(prefix8(b"ab"), u64::from_be_bytes(*b"ab\0\0\0\0\0\0"));
    }

    #[test]
    fn a_separator_in_two_pieces_behaves_as_in_one() {
        let text = b"the quick brown fox";
        let whole = Separator::whole(text);
        for head in 11..=19 {
            let mut tail = [0; 8];
            tail[..19 - head].copy_from_slice(&text[head..]);
            let pieces = Separator::inline(&text[..head], u64::from_be_bytes(tail), 19 - head);
            assert_eq!(pieces.len(), 19);
            assert_eq!(pieces.to_vec(), text);
            assert_eq!(pieces.lcp(&whole), 19);
            assert_eq!(whole.lcp(&pieces), 19);
            assert_eq!(pieces.lcp(&Separator::whole(b"the quick brown dog")), 16);
            assert_eq!(pieces.lcp(&Separator::whole(b"the quick brown fo")), 18);
            assert_eq!(pieces.lcp(&Separator::whole(b"")), 0);
            for base in 0..=19 {
                assert_eq!(pieces.prefix_at(base), prefix8(&text[base..]), "head {head}, base {base}");
            }
        }
    }

    #[test]
    fn the_shortest_separator_lies_between() {
        for (left, right) in [
            ("a", "b"),
            ("abc", "bcdef"),
            ("abc", "abd"),
            ("abc", "abcd"),
            ("", "x"),
            ("abc", "b"),
            ("a", "a\0"),
        ] {
            let s = shortest_between(left.as_bytes(), right.as_bytes());
            assert!(left.as_bytes() < s && s <= right.as_bytes(), "{left} {right}");
            assert!(s.len() == 1 || s[..s.len() - 1] <= *left.as_bytes(), "{left} {right}: could be shorter");
        }
    }

    #[test]
    fn common_prefixes_across_word_boundaries() {
        for len in 0..40 {
            let a = vec![7u8; len];
            let mut b = a.clone();
            b.push(1);
            assert_eq!(lcp(&a, &b), len);
            for at in 0..len {
                let mut c = a.clone();
                c[at] = 8;
                assert_eq!(lcp(&a, &c), at);
            }
        }
    }
}
