//! Passwords as they are kept: their SHA-256.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Hexadecimal digits of a digest.
const HEX_LEN: usize = 64;

/// The digest of a password. It is not shown by [`Debug`](fmt::Debug).
#[derive(Clone, Copy)]
pub(crate) struct PasswordDigest([u8; 32]);

impl PasswordDigest {
    pub(crate) fn of(password: &[u8]) -> Self {
        PasswordDigest(Sha256::digest(password).into())
    }

    /// Reads lower-case hexadecimal digits.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        if text.len() != HEX_LEN {
            return None;
        }
        for (byte, digits) in bytes.iter_mut().zip(text.chunks(2)) {
            *byte = digit(digits[0])? << 4 | digit(digits[1])?;
        }
        Some(PasswordDigest(bytes))
    }

    pub(crate) fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether two are the same. How long that takes does not depend on where they differ.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let differs =
            self.0.iter().zip(&other.0).fold(0, |differs, (a, b)| std::hint::black_box(differs | (a ^ b)));
        differs == 0
    }
}

impl fmt::Debug for PasswordDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordDigest(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_and_read_in_hexadecimal() {
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let digest = PasswordDigest::of(b"abc");
        assert_eq!(digest.hex(), hex);
        assert!(PasswordDigest::read(hex.as_bytes()).unwrap().is(&digest));
        assert!(!PasswordDigest::of(b"abd").is(&digest));
        for wrong in [&hex[1..], &hex.to_uppercase(), &hex.replace('b', "g"), ""] {
            assert!(PasswordDigest::read(wrong.as_bytes()).is_none(), "{wrong}");
        }
        assert_eq!(format!("{digest:?}"), "PasswordDigest(..)");
    }
}
