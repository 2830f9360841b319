//! The password that clients are asked for.

use std::fmt;

/// A password. It is not shown by [`Debug`](fmt::Debug), so that no message holds it by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Box<[u8]>);

impl Password {
    /// The password, or `None` if it is empty: then none is asked for.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        (!bytes.is_empty()).then(|| Password(bytes.into()))
    }

    /// The password itself, for CONFIG.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is the password. How long that takes depends on the length of `given` only.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        let own = self.0.iter().cycle();
        let differs =
            given.iter().zip(own).fold(0, |differs, (a, b)| std::hint::black_box(differs | (a ^ b)));
        (differs == 0) & (given.len() == self.0.len())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_is_the_password() {
        let password = Password::new("abcabc").unwrap();
        assert!(password.is(b"abcabc"));
        for other in ["", "abc", "abcabcabc", "abcabd", "Abcabc", "abcabc\0"] {
            assert!(!password.is(other.as_bytes()), "{other}");
        }
        assert!(Password::new("").is_none());
        assert_eq!(format!("{password:?}"), "Password(..)");
    }
}
