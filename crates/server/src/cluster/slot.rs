//! The slot of a key: CRC-16 (XMODEM) of the key, or of its hash tag, modulo 16,384.

use crc::{CRC_16_XMODEM, Crc};

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The part of a key that chooses its slot: between the first `{` and the next `}`, if that is not empty;
/// else the whole key.
fn hashed(key: &[u8]) -> &[u8] {
    tag(key).filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// The bytes between the first `{` of a key and the next `}`.
fn tag(key: &[u8]) -> Option<&[u8]> {
    let behind = &key[key.iter().position(|&byte| byte == b'{')? + 1..];
    Some(&behind[..behind.iter().position(|&byte| byte == b'}')?])
}

/// The slot of a key.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    CRC.checksum(hashed(key)) % SLOTS
}

/// The slot of all keys with this beginning, if they have one slot in common: the beginning has a hash tag.
pub(crate) fn slot_of_prefix(prefix: &[u8]) -> Option<u16> {
    tag(prefix).filter(|tag| !tag.is_empty()).map(|_| slot_of(prefix))
}

/// Reads the number of a slot.
pub(crate) fn parse_slot(text: &str) -> Option<u16> {
    let is_number = !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&slot| is_number && slot < SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // The check value of CRC-16/XMODEM.
        assert_eq!(CRC.checksum(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        assert_eq!((slot_of(b""), slot_of(b"foo"), slot_of(b"somekey")), (0, 12_182, 11_058));
    }

    #[test]
    fn a_hash_tag_chooses_the_slot_if_it_is_not_empty() {
        for (key, part) in [
            (&b"{user1000}.following"[..], &b"user1000"[..]),
            (b"foo{}{bar}", b"foo{}{bar}"),
            (b"foo{{bar}}zap", b"{bar"),
            (b"foo{bar}{zap}", b"bar"),
            (b"{open", b"{open"),
            (b"}{", b"}{"),
            (b"{}", b"{}"),
        ] {
            assert_eq!(hashed(key), part, "{}", key.escape_ascii());
        }
        assert_eq!(slot_of_prefix(b"a{b}"), Some(slot_of(b"b")));
        assert_eq!((slot_of_prefix(b"a{b"), slot_of_prefix(b"a{}b{c}")), (None, None));
    }

    #[test]
    fn numbers_of_slots_are_plain_and_in_range() {
        assert_eq!((parse_slot("0"), parse_slot("16383")), (Some(0), Some(16_383)));
        for wrong in ["", "16384", "-1", "+1", "1 ", "999999", "1a"] {
            assert_eq!(parse_slot(wrong), None, "{wrong}");
        }
    }
}
