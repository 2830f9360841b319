//! Passwords of the configuration: that of the default user, and that for a master.

use std::fmt;

/// A password. It is not shown by [`Debug`](fmt::Debug), so that no message holds it by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Box<[u8]>);

impl Password {
    /// The password, or `None` if it is empty: then none is needed.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        (!bytes.is_empty()).then(|| Password(bytes.into()))
    }

    /// The password itself, for CONFIG.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
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
    fn a_password_is_not_empty_and_not_shown() {
        let password = Password::new("abcabc").unwrap();
        assert!(Password::new("").is_none());
        assert_eq!(format!("{password:?}"), "Password(..)");
    }
}
