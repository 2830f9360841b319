//! Separators of an inner node's children, and the bytes that keys between two of them share.

use super::layout::MAX_SHARED_BYTES;
use crate::key_prefix::lcp;

/// A whole separator, in two pieces, because a node keeps only the bytes that its separators do not share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Separator<'a> {
    head: &'a [u8],
    tail: [u8; 8],
    tail_bytes: usize,
    /// The block that holds these bytes on media, or 0; the owner of the separator owns the block.
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

    /// A separator of these bytes, which lie in a block of their own if `block` is not 0.
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

    /// Replaces the contents of `out` by the separator.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_prefix::prefix8;

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
}
