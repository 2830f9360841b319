//! Byte strings as both kinds of trees compare them: prefixes, fingerprints and common prefixes.

use xxhash_rust::xxh3::xxh3_64;

/// The byte of a key's hash that a leaf keeps.
#[inline(always)]
pub(crate) fn fingerprint(key: &[u8]) -> u8 {
    xxh3_64(key) as u8
}

/// The first 8 bytes as a big-endian number, padded with zeros. If two prefixes differ, they compare as their
/// byte strings do.
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
